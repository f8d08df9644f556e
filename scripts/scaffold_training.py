# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""RUN · writes a pretraining pipeline for nanoGPT, LitGPT or HF Trainer: sized to a card, in phases, resumable anywhere

Example:
    rgt scaffold_training new pipelines/base --framework litgpt --gpu A100 --price 1.8 --dry-run
    rgt scaffold_training new pipelines/base --framework litgpt --gpu A100
    rgt scaffold_training data pipelines/base web corpus/a.txt corpus/b.txt
    bash pipelines/base/train.sh                      # once it runs: rgt watch pipelines/base

`new` writes train.sh, training_config.yaml, pretrain.py, job.yaml, checkpoints_index.json and lib/; the folder needs
nothing of this bundle afterwards, only token files in data/. train.sh again, after any end, goes on from the last good
checkpoint.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from rgt import bundle, cli
from rgt.errors import bad_input
from rgt.scaffold_training import pipeline

import click

FRAMEWORKS = ("nanogpt", "litgpt", "hf-trainer")
SEED = 1337
_HALF = click.FloatRange(0, 0.5, min_open=True)
_VOCAB_HELP = "Of the tokenizer; 257 for bytes."


@click.group(cls=cli.Group)
def main() -> None:
    """Plan and write a pretraining pipeline.

    Example: rgt scaffold_training new pipelines/base --framework hf-trainer --params 124M
    """


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--framework", required=True, type=click.Choice(FRAMEWORKS), help="Whose trainer.")
@click.option("--params", type=pipeline.count, help="Parameters, such as 124M. [default: 124M]")
@click.option("--tokens", type=pipeline.count, help="Tokens to train on, such as 2.5B. [default: 20 a parameter]")
@click.option("--gpu", help="Card, such as A100. [default: this machine's, else the CPU]")
@click.option("--gpu-mem", type=cli.Size(), help="Memory of one card. [default: the card's]")
@click.option("--gpus", type=click.IntRange(1), default=1, show_default=True, help="Cards, on one machine.")
@click.option("--price", type=click.FloatRange(0), help="Of one card for an hour, for the cost.")
@click.option("--block-size", type=click.IntRange(8), default=1024, show_default=True, help="Tokens a sequence.")
@click.option("--vocab-size", type=click.IntRange(2), default=50_304, show_default=True, help=_VOCAB_HELP)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=SEED, show_default=True, help="Of everything.")
@click.option("--dry-run", is_flag=True, help="Print the plan and training_config.yaml, and write nothing.")
@cli.json_option
def new(
    folder: Path,
    framework: str,
    gpu: str | None,
    gpu_mem: int | None,
    seed: int,
    dry_run: bool,
    as_json: bool,
    **wishes: Any,
) -> None:
    """Plan a run and write its pipeline to FOLDER, which must not hold anything yet.

    The plan is batch x accumulation x steps, and memory, FLOPs, time and cost with their formulas. A model that does
    not fit on the card is refused: exit 2. The phases (broad, curated, domain, anneal) are in training_config.yaml,
    yours to edit before the first start.

    Example: rgt scaffold_training new pipelines/base --framework litgpt --params 124M --gpu A100
    """
    from rgt.scaffold_training import tokens  # here, because it imports numpy

    card = pipeline.card(gpu, gpu_mem)
    device = "cpu" if card.name == "CPU" else "cuda"
    precision, why = pipeline.precision(card.compute_cap, device == "cpu")
    proposed = pipeline.propose(card, precision, **wishes)
    config = pipeline.build_config(framework, folder.absolute().name, proposed, seed, device)
    written = [] if dry_run else pipeline.write(folder, config)
    lines = proposed.explain(why)
    if dry_run:
        lines += [pipeline.as_yaml(config).rstrip(), "nothing was written"]
    else:
        lines.append(f"written    {folder}")
        names = sorted({name for phase in config["phases"] for name in phase["mix"]})
        for name in names:
            lines.append(f"data       {bundle.command('scaffold_training', 'data', folder, name, '<text files>')}")
        lines.append(f"or         your own {folder}/data/<source>/{{train,val}}.bin: {tokens.width(config)}, no more")
        if framework == "nanogpt":
            lines.append(f"nanoGPT    clone it to {folder}/nanoGPT, or set nanogpt_dir in training_config.yaml")
        lines.append(f"start      {shlex.join(['bash', f'{folder}/train.sh'])}")
        lines.append(f"or         {bundle.command('launch', 'submit', folder / 'job.yaml', '--on', '<target>')}")
    plan = {**proposed.as_dict(), "precision_because": why, "device": device}
    cli.show({"plan": plan, "config": config, "files": list(map(str, written))}, as_json, lines)


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("source")
@click.argument("texts", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--tokenizer", type=click.Path(path_type=Path), help="A tokenizer.json. [default: bytes as tokens]")
@click.option("--val-share", type=_HALF, default=0.01, show_default=True, help="End of each file for val.bin.")
@cli.json_option
def data(
    folder: Path, source: str, texts: tuple[Path, ...], tokenizer: Path | None, val_share: float, as_json: bool
) -> None:
    """Tokenize TEXTS into FOLDER/data/SOURCE/train.bin and val.bin, piece by piece.

    Example: rgt scaffold_training data pipelines/base web corpus/a.txt corpus/b.txt
    """
    from rgt.scaffold_training import tokens  # here, because it imports numpy

    if not source or Path(source).name != source or source.startswith("."):
        raise bad_input(f"{source!r} is not a name for a source; it becomes a folder of {folder}/data")
    config = pipeline.load_config(folder / "training_config.yaml")
    known = tokens.load_tokenizer(tokenizer) if tokenizer else None
    have, need = config["model"]["vocab_size"], tokens.vocabulary(known)
    if need > have:
        raise bad_input(f"the tokenizer has {need} tokens, the model {have}; make it by `new --vocab-size {need}`")
    target = folder / "data" / source
    counts = tokens.write(target, list(texts), known, tokens.width(config), val_share)
    said = f"{counts['train']:,} tokens to train on, {counts['val']:,} to validate with, vocabulary {need}"
    unread = "" if any(source in phase["mix"] for phase in config["phases"]) else "; no phase reads it yet"
    cli.show({"folder": str(target), "tokens": counts, "vocab_size": need}, as_json, [f"{target}: {said}{unread}"])


if __name__ == "__main__":
    main()
