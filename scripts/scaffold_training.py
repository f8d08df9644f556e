# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""RUN · writes a pretraining pipeline for nanoGPT, LitGPT or HF Trainer: sized to a card, in phases, resumable anywhere

Example:
    python scripts/scaffold_training.py plan --params 124M --gpu A100 --price 1.8
    python scripts/scaffold_training.py new pipelines/base --framework litgpt --params 124M --gpu A100
    python scripts/scaffold_training.py data pipelines/base web corpus/*.txt
    bash pipelines/base/train.sh

`new` writes train.sh, training_config.yaml, pretrain.py, job.yaml, checkpoints_index.json and lib/; the folder needs
nothing of this bundle afterwards. train.sh again, after any end, goes on from the last good checkpoint.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rgt import cli, errors
from rgt.errors import bad_input
from rgt.report import Report, print_json
from rgt.scaffold_training import budget, pipeline, tokens

SEED = 1337
F = TypeVar("F", bound=Callable[..., Any])
_PATH, _FOLDER = click.Path(path_type=Path), click.Path(path_type=Path, exists=True, file_okay=False)
_HALF = click.FloatRange(0, 0.5, min_open=True)
_PRECISION = click.Choice(["bf16", "fp16", "fp32"])
_VOCAB_HELP = "Of the tokenizer; 257 for bytes."


BUDGET = (
    click.option("--params", type=budget.count, help="Parameters, such as 124M."),
    click.option("--tokens", type=budget.count, help="Tokens to train on, such as 2.5B. [default: 20 a parameter]"),
    click.option("--gpu", help="Card, such as A100. [default: this machine's, else the CPU]"),
    click.option("--gpu-mem", type=cli.Size(), help="Memory of one card. [default: the card's]"),
    click.option("--gpus", type=click.IntRange(1), default=1, show_default=True, help="Cards, on one machine."),
    click.option("--price", type=click.FloatRange(0), help="Of one card for an hour, for the cost."),
    click.option("--precision", type=_PRECISION, help="[default: by the card's compute capability]"),
    click.option("--block-size", type=click.IntRange(8), default=1024, show_default=True, help="Tokens a sequence."),
    click.option("--vocab-size", type=click.IntRange(2), default=50_304, show_default=True, help=_VOCAB_HELP),
)


def budget_options(function: F) -> F:
    """What `plan` and `new` size a run by."""
    return functools.reduce(lambda decorated, option: option(decorated), reversed(BUDGET), function)


@click.group(cls=cli.Group)
def main() -> None:
    """Plan and write a pretraining pipeline.

    Example: python scripts/scaffold_training.py new pipelines/base --framework hf-trainer --params 124M
    """


@main.command()
@budget_options
@cli.json_option
def plan(as_json: bool, **wishes: Any) -> None:
    """Propose batch x accumulation x steps, and estimate memory, FLOPs, time and cost with the formulas.

    A model that does not fit on the card is refused: exit 2.

    Example: python scripts/scaffold_training.py plan --tokens 3B --gpu 4090 --price 0.4
    """
    proposed, why, device = _propose(wishes)
    if as_json:
        print_json({**proposed.as_dict(), "precision_because": why, "device": device})
    else:
        click.echo("\n".join(budget.explain(proposed, why)))


@main.command()
@click.argument("folder", type=_PATH)
@click.option("--framework", required=True, type=click.Choice(pipeline.FRAMEWORKS), help="Whose trainer.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=SEED, show_default=True, help="Of everything.")
@click.option("--dry-run", is_flag=True, help="Print training_config.yaml and write nothing.")
@budget_options
@cli.report_options
def new(folder: Path, framework: str, seed: int, dry_run: bool, fmt: str | None, **wishes: Any) -> int:
    """Write a pipeline to FOLDER, which must not hold anything yet.

    Its phases (broad, curated, domain, anneal) are in training_config.yaml, yours to edit before the first start.

    Example: python scripts/scaffold_training.py new pipelines/base --framework litgpt --params 124M --gpu A100
    """
    if wishes["params"] is None and wishes["tokens"] is None:
        wishes["params"] = 124e6
    proposed, why, device = _propose(wishes)
    config = pipeline.build_config(framework, folder.absolute().name, proposed, seed, device)
    report = Report("scaffold_training")
    report.data = {"plan": proposed.as_dict(), "config": config, "files": [], "folder": str(folder)}
    if dry_run:
        lines = [pipeline.as_yaml(config).rstrip(), "nothing was written"]
    else:
        report.data["files"] = [str(path) for path in pipeline.write(folder, config)]
        lines = [*budget.explain(proposed, why), f"written    {folder}"]
        for source in sorted({name for phase in config["phases"] for name in phase["mix"]}):
            lines.append(f"data       python scripts/scaffold_training.py data {folder} {source} <text files>")
        if framework == "nanogpt":
            lines.append(f"nanoGPT    clone it to {folder}/nanoGPT, or set nanogpt_dir in training_config.yaml")
        lines.append(f"start      bash {folder}/train.sh, or python scripts/launch.py submit {folder}/job.yaml")
        lines.append(f"status     python scripts/watch.py {folder}")
    report.emit(fmt, "\n".join(lines))
    return errors.OK


def _propose(wishes: dict[str, Any]) -> tuple[budget.Plan, str, str]:
    rest = dict(wishes)
    card = budget.card(rest.pop("gpu"), rest.pop("gpu_mem"))
    device = "cpu" if card.name == "CPU" else "cuda"
    chosen, why = budget.precision(card.compute_cap, device == "cpu")
    if rest["precision"]:
        chosen, why = rest["precision"], "as asked"
    return budget.propose(budget.Wish(card, **{**rest, "precision": chosen})), why, device


@main.command()
@click.argument("folder", type=_FOLDER)
@click.argument("source")
@click.argument("texts", nargs=-1, required=True, type=_PATH)
@click.option("--tokenizer", type=_PATH, help="A tokenizer.json. [default: bytes as tokens]")
@click.option(
    "--val-share", type=_HALF, default=tokens.VAL_SHARE, show_default=True, help="End of each file for val.bin."
)
def data(folder: Path, source: str, texts: tuple[Path, ...], tokenizer: Path | None, val_share: float) -> None:
    """Tokenize TEXTS into FOLDER/data/SOURCE/train.bin and val.bin, memory-mapped while training.

    Token files of nanoGPT's kind (16 bits a token) can be put there as they are, without this.

    Example: python scripts/scaffold_training.py data pipelines/base web corpus/a.txt corpus/b.txt
    """
    if not source or Path(source).name != source or source.startswith("."):
        raise bad_input(f"{source!r} is not a name for a source; it becomes a folder of {folder}/data")
    meta = tokens.write(folder / "data" / source, list(texts), tokenizer, val_share)
    counts = f"{meta['train_tokens']:,} tokens to train on, {meta['val_tokens']:,} to validate with"
    click.echo(f"{folder}/data/{source}: {counts}, vocabulary {meta['vocab_size']}")


if __name__ == "__main__":
    main()
