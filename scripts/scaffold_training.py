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

`new` writes train.sh, training_config.yaml, pretrain.py, job.yaml, training_status.md, checkpoints_index.json and lib/;
the folder needs nothing of this bundle afterwards. train.sh again, after any end, goes on from the last good
checkpoint.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import click

from pipelines import budget, settings, tokens
from pipelines.progress import status as read_status
from rgt import cli, errors, files, units
from rgt.errors import RgtError, bad_input
from rgt.report import Report, print_json
from rgt.rundir import Run

SEED = 1337
F = TypeVar("F")


class Count(click.ParamType):  # type: ignore[type-arg]  # not generic in older click
    """124M, 1.5B, 3e9."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return budget.count(value)
        except RgtError as error:
            self.fail(error.message, param, ctx)


def budget_options(function: F) -> F:
    """What `plan` and `new` size a run by."""
    for option in reversed((
        click.option("--params", type=Count(), help="Parameters, such as 124M."),
        click.option("--tokens", type=Count(), help="Tokens to train on, such as 2.5B. [default: 20 a parameter]"),
        click.option("--gpu", help="Card, such as A100. [default: this machine's, else the CPU]"),
        click.option("--gpu-mem", type=units.Size(), help="Memory of one card. [default: the card's]"),
        click.option("--peak-flops", type=click.FloatRange(0, min_open=True),
                     help="16-bit FLOP/s of one card, for a card that is not known."),
        click.option("--gpus", type=click.IntRange(1), default=1, show_default=True, help="Cards, on one machine."),
        click.option("--price", type=click.FloatRange(0), help="Of one card for an hour, for the cost."),
        click.option("--mfu", type=click.FloatRange(0.01, 1), default=budget.MFU, show_default=True,
                     help="Share of the peak that the training reaches: an assumption until it is measured."),
        click.option("--precision", type=click.Choice(["bf16", "fp16", "fp32"]),
                     help="[default: by the card's compute capability]"),
        click.option("--block-size", type=click.IntRange(8), default=1024, show_default=True,
                     help="Tokens a sequence."),
        click.option("--vocab-size", type=click.IntRange(2), default=50_304, show_default=True,
                     help="Of the tokenizer; 257 for bytes."),
    )):  # fmt: skip
        function = option(function)  # type: ignore[type-var]
    return function


@click.group(cls=cli.Group)
def main() -> None:
    """Plan, write and follow a pretraining pipeline.

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
    proposed, why, device = _propose(**wishes)
    if as_json:
        print_json({**proposed.as_dict(), "precision_because": why, "device": device})
    else:
        click.echo("\n".join(budget.explain(proposed, why)))


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--framework", required=True, type=click.Choice(settings.FRAMEWORKS), help="Whose trainer.")
@click.option("--phases", "phases_file", type=click.Path(path_type=Path),
              help="YAML with phases. [default: broad, curated, domain, anneal]")  # fmt: skip
@click.option("--target", default="local", show_default=True, help="Where it will run, a kind of launch.py's targets; "
              "kaggle adds kernel-metadata.json.")  # fmt: skip
@click.option("--name", help="Of the run. [default: the folder's]")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=SEED, show_default=True, help="Of everything.")
@click.option("--dry-run", is_flag=True, help="Print training_config.yaml and write nothing.")
@budget_options
@cli.report_options
def new(folder: Path, framework: str, phases_file: Path | None, target: str, name: str | None, seed: int, dry_run: bool,
        fmt: str | None, **wishes: Any) -> int:  # fmt: skip
    """Write a pipeline to FOLDER, which must not hold anything yet.

    Example: python scripts/scaffold_training.py new pipelines/base --framework litgpt --params 124M --gpu A100
    """
    from pipelines import write

    if target not in write.TARGETS:
        raise bad_input(f"--target {target!r} is none of {', '.join(write.TARGETS)}")
    if wishes["params"] is None and wishes["tokens"] is None:
        wishes["params"] = 124e6
    if target == "kaggle" and not wishes["gpu"] and not wishes["gpu_mem"]:
        wishes["gpu"] = "T4"  # this machine's card says nothing about Kaggle's
    proposed, why, device = _propose(**wishes)
    given = settings.load_phases(phases_file) if phases_file else settings.default_phases(wishes["vocab_size"])
    phases = settings.resolve(given, proposed, framework, str(phases_file or "the default phases"))
    config = settings.build(framework, name or folder.absolute().name, proposed, phases, seed, device)
    report = Report("scaffold_training")
    for phase in given if framework == "nanogpt" else []:
        if (phase.get("lr") or {}).get("policy") == "linear":
            report.add("unjudged", "info", f"nanoGPT has no linear decay: phase {phase['name']} gets the cosine")
    report.data = {"plan": proposed.as_dict(), "config": config, "files": [], "folder": str(folder)}
    if dry_run:
        lines = [settings.dump(config).rstrip(), "nothing was written"]
    else:
        report.data["files"] = [str(path) for path in write.write(folder, config, target)]
        lines = [*budget.explain(proposed, why), *_next(folder, config, target)]
    report.emit(fmt, "\n".join(lines))
    return errors.OK


def _propose(*, params: float | None, tokens: float | None, gpu: str | None, gpu_mem: int | None,
             peak_flops: float | None, precision: str | None, **rest: Any) -> tuple[budget.Plan, str, str]:  # fmt: skip
    card = budget.card(gpu, gpu_mem, peak_flops)
    device = "cpu" if card.name == "CPU" else "cuda"
    chosen, why = budget.precision(card.compute_cap, device == "cpu")
    if precision:
        chosen, why = precision, "as asked"
    wish = budget.Wish(card, params, tokens, precision=chosen, **rest)
    return budget.propose(wish), why, device


def _next(folder: Path, config: dict[str, Any], target: str) -> list[str]:
    names = sorted({name for phase in config["phases"] for name in phase["mix"]})
    lines = [f"written    {folder}"]
    lines += [f"data       python scripts/scaffold_training.py data {folder} {name} <text files>" for name in names]
    if config["framework"] == "nanogpt":
        lines.append(f"nanoGPT    clone it to {folder}/nanoGPT, or set nanogpt_dir in training_config.yaml")
    if target == "kaggle":
        return [*lines, f"push       kaggle datasets create -p {folder} -r zip && kaggle kernels push -p {folder}"]
    start = (
        f"bash {folder}/train.sh"
        if target == "local"
        else f"python scripts/launch.py submit {folder}/job.yaml --on {target}"
    )
    return [*lines, f"start      {start}", f"status     python scripts/scaffold_training.py status {folder}"]


@main.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("source")
@click.argument("texts", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--tokenizer", type=click.Path(path_type=Path), help="A tokenizer.json. [default: bytes as tokens]")
@click.option("--val-share", type=click.FloatRange(0, 0.5, min_open=True), default=tokens.VAL_SHARE, show_default=True,
              help="Last part of each file that is kept for validation.")  # fmt: skip
@cli.json_option
def data(
    folder: Path, source: str, texts: tuple[Path, ...], tokenizer: Path | None, val_share: float, as_json: bool
) -> None:
    """Tokenize TEXTS into FOLDER/data/SOURCE/train.bin and val.bin, memory-mapped while training.

    Token files of nanoGPT's kind (16 bits a token) can be put there as they are, without this.

    Example: python scripts/scaffold_training.py data pipelines/base web corpus/a.txt corpus/b.txt
    """
    if not source or Path(source).name != source or source.startswith("."):
        raise bad_input(f"{source!r} is not a name for a source; it becomes a folder of {folder}/data")
    meta = tokens.write(folder / "data" / source, list(texts), tokenizer, val_share)
    if as_json:
        print_json({"source": source, **meta})
    else:
        click.echo(f"{folder}/data/{source}: {meta['train_tokens']:,} tokens to train on, {meta['val_tokens']:,} to "
                   f"validate with, vocabulary {meta['vocab_size']}")  # fmt: skip


@main.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--run", "run_dir", type=click.Path(path_type=Path, exists=True, file_okay=False),
              help="Run directory, when launch.py started it. [default: FOLDER]")  # fmt: skip
@cli.report_options
def status(folder: Path, run_dir: Path | None, fmt: str | None) -> int:
    """Say where the pipeline in FOLDER is, from its files; exit 1 when a phase missed its criterion.

    Example: python scripts/scaffold_training.py status pipelines/base
    """
    config = settings.load(folder / settings.NAME)
    run = Run(run_dir or folder)
    facts = read_status(run, config)
    text = facts.pop("text")
    report = Report("scaffold_training", data=facts)
    for phase in facts["phases"]:
        if phase["verdict"] == "missed":
            report.add("missed", "warn", f"phase {phase['name']} {phase['result']}", path=str(run.events))
    if fmt is None and os.access(run.path, os.W_OK):
        files.write_text(run.status, text)
    return report.emit(fmt, text.rstrip())


if __name__ == "__main__":
    main()
