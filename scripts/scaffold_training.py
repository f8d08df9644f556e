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

from rgt import cli, errors, files
from rgt.checkpoint import index
from rgt.errors import bad_input
from rgt.job import description
from rgt.job.backends import KINDS
from rgt.report import Report, print_json
from rgt.run.phases import Schedule, phase_rows
from rgt.run.record import Run
from rgt.scaffold_training import budget, pipeline, tokens

SEED = 1337
STATES = {"launched": "started", "resumed": "started"}  # other events are named like the state they lead to
F = TypeVar("F", bound=Callable[..., Any])
_ABOVE_0, _SHARE = click.FloatRange(0, min_open=True), click.FloatRange(0.01, 1)
_PATH, _FOLDER = click.Path(path_type=Path), click.Path(path_type=Path, exists=True, file_okay=False)
_HALF = click.FloatRange(0, 0.5, min_open=True)
_PRECISION = click.Choice(["bf16", "fp16", "fp32"])
_MFU_HELP = "Share of the peak that the training reaches: an assumption until it is measured."
_VOCAB_HELP = "Of the tokenizer; 257 for bytes."


BUDGET = (
    click.option("--params", type=budget.count, help="Parameters, such as 124M."),
    click.option("--tokens", type=budget.count, help="Tokens to train on, such as 2.5B. [default: 20 a parameter]"),
    click.option("--gpu", help="Card, such as A100. [default: this machine's, else the CPU]"),
    click.option("--gpu-mem", type=cli.Size(), help="Memory of one card. [default: the card's]"),
    click.option("--peak-flops", type=_ABOVE_0, help="16-bit FLOP/s of one card, for a card that is not known."),
    click.option("--gpus", type=click.IntRange(1), default=1, show_default=True, help="Cards, on one machine."),
    click.option("--price", type=click.FloatRange(0), help="Of one card for an hour, for the cost."),
    click.option("--mfu", type=_SHARE, default=budget.MFU, show_default=True, help=_MFU_HELP),
    click.option("--precision", type=_PRECISION, help="[default: by the card's compute capability]"),
    click.option("--block-size", type=click.IntRange(8), default=1024, show_default=True, help="Tokens a sequence."),
    click.option("--vocab-size", type=click.IntRange(2), default=50_304, show_default=True, help=_VOCAB_HELP),
)


def budget_options(function: F) -> F:
    """What `plan` and `new` size a run by."""
    return functools.reduce(lambda decorated, option: option(decorated), reversed(BUDGET), function)


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
    proposed, why, device = _propose(wishes)
    if as_json:
        print_json({**proposed.as_dict(), "precision_because": why, "device": device})
    else:
        click.echo("\n".join(budget.explain(proposed, why)))


@main.command()
@click.argument("folder", type=_PATH)
@click.option("--framework", required=True, type=click.Choice(pipeline.FRAMEWORKS), help="Whose trainer.")
@click.option("--phases", "phases_file", type=_PATH, help="YAML with phases. [default: broad, curated, domain, anneal]")
@click.option("--target", default="local", show_default=True, help="Where it will run: a kind of launch.py's targets.")
@click.option("--name", help="Of the run. [default: the folder's]")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=SEED, show_default=True, help="Of everything.")
@click.option("--dry-run", is_flag=True, help="Print training_config.yaml and write nothing.")
@budget_options
@cli.report_options
def new(
    folder: Path,
    framework: str,
    phases_file: Path | None,
    target: str,
    name: str | None,
    seed: int,
    dry_run: bool,
    fmt: str | None,
    **wishes: Any,
) -> int:
    """Write a pipeline to FOLDER, which must not hold anything yet.

    Example: python scripts/scaffold_training.py new pipelines/base --framework litgpt --params 124M --gpu A100
    """
    if target not in KINDS:
        raise bad_input(f"--target {target!r} is none of {', '.join(sorted(KINDS))}")
    if wishes["params"] is None and wishes["tokens"] is None:
        wishes["params"] = 124e6
    if target == "kaggle" and not wishes["gpu"] and not wishes["gpu_mem"]:
        wishes["gpu"] = "T4"  # this machine's card says nothing about Kaggle's
    proposed, why, device = _propose(wishes)
    given: list[dict[str, Any]] = pipeline.default_phases(wishes["vocab_size"])
    if phases_file:
        given = description.load_yaml(phases_file, "phases")["phases"]
    phases = pipeline.resolve_phases(given, proposed, framework, str(phases_file or "the default phases"))
    config = pipeline.build_config(framework, name or folder.absolute().name, proposed, phases, seed, device)
    report = Report("scaffold_training")
    for phase in given if framework == "nanogpt" else []:
        if (phase.get("lr") or {}).get("policy") == "linear":
            report.add("unjudged", "info", f"nanoGPT has no linear decay: phase {phase['name']} gets the cosine")
    report.data = {"plan": proposed.as_dict(), "config": config, "files": [], "folder": str(folder)}
    if dry_run:
        lines = [pipeline.as_yaml(config).rstrip(), "nothing was written"]
    else:
        report.data["files"] = [str(path) for path in pipeline.write(folder, config, target)]
        lines = [*budget.explain(proposed, why), f"written    {folder}"]
        for source in sorted({name for phase in phases for name in phase["mix"]}):
            lines.append(f"data       python scripts/scaffold_training.py data {folder} {source} <text files>")
        if framework == "nanogpt":
            lines.append(f"nanoGPT    clone it to {folder}/nanoGPT, or set nanogpt_dir in training_config.yaml")
        start = f"start      python scripts/launch.py submit {folder}/job.yaml --on {target}"
        if target == "kaggle":
            start = f"push       kaggle datasets create -p {folder} -r zip && kaggle kernels push -p {folder}"
        elif target == "local":
            start = f"start      bash {folder}/train.sh"
        status = [f"status     python scripts/scaffold_training.py status {folder}"]
        lines += [start, *(status if target != "kaggle" else [])]
    report.emit(fmt, "\n".join(lines))
    return errors.OK


def _propose(wishes: dict[str, Any]) -> tuple[budget.Plan, str, str]:
    rest = dict(wishes)
    card = budget.card(rest.pop("gpu"), rest.pop("gpu_mem"), rest.pop("peak_flops"))
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
        counts = f"{meta['train_tokens']:,} tokens to train on, {meta['val_tokens']:,} to validate with"
        click.echo(f"{folder}/data/{source}: {counts}, vocabulary {meta['vocab_size']}")


@main.command()
@click.argument("folder", type=_FOLDER)
@click.option("--run", "run_dir", type=_FOLDER, help="Run directory, when launch.py started it. [default: FOLDER]")
@cli.report_options
def status(folder: Path, run_dir: Path | None, fmt: str | None) -> int:
    """Say where the pipeline in FOLDER is, from its files; exit 1 when a phase missed its criterion.

    Example: python scripts/scaffold_training.py status pipelines/base
    """
    config = pipeline.load_config(folder / pipeline.CONFIG)
    run, schedule = Run(run_dir or folder), Schedule.of(config)
    events = list(files.read_jsonl(run.events, bad=[])) if run.events.exists() else []
    lives = [row["event"] for row in events if row["event"] not in ("checkpoint", "phase", "set_aside")]
    state = STATES.get(lives[-1], lives[-1]) if lives else "not started"
    saved = index.entries(run.path)
    curves = {split: run.curve("loss", split) for split in ("train", "val")}
    losses = {split: next(reversed(curve.values())) if curve else None for split, curve in curves.items()}
    facts: dict[str, Any] = {
        "state": state,
        "step": max([saved[-1]["step"] if saved else 0, *curves["train"]]),
        "total": schedule.total,
        "checkpoint": saved[-1]["path"] if saved else None,
        "loss": losses,
        "phases": phase_rows(events, schedule.plan()),
    }
    report = Report("scaffold_training", data=facts)
    for phase in facts["phases"]:
        if phase["verdict"] == "missed":
            report.add("missed", "warn", f"phase {phase['name']} {phase['result']}", path=str(run.events))
    lines = [
        f"# {config['name']}: {state}, step {facts['step']} of {schedule.total}",
        "",
        f"- framework: {config['framework']}, {config['precision']}, {config['devices']} device(s)",
        f"- newest checkpoint: {facts['checkpoint'] or 'none yet'}",
        *(f"- {split} loss: {value:.4f}" for split, value in losses.items() if value is not None),
        "",
        "| phase | steps | data mix | learning rate | criterion | result |",
        "|---|---|---|---|---|---|",
    ]
    for phase, row in zip(schedule.phases, facts["phases"], strict=True):
        mix = ", ".join(f"{name} {weight:g}" for name, weight in phase.mix.items())
        rate = f"{phase.lr['policy']} {schedule.peak * phase.lr['start']:.3g} to {schedule.peak * phase.lr['end']:.3g}"
        cells = (phase.name, f"{phase.start} to {phase.end}", mix, rate, phase.goal(), row["result"])
        lines.append(f"| {' | '.join(cells)} |")
    aside = [row["reason"] for row in events if row["event"] == "set_aside"]
    lines += ["", "Set aside:", "", *(f"- {line}" for line in aside[-10:])] if aside else []
    lines += ["", "Start, or go on after a stop: `./train.sh` in the pipeline's folder."]
    return report.emit(fmt, "\n".join(lines))


if __name__ == "__main__":
    main()
