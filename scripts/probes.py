# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "numpy", "torch"]
# ///
"""RUN · finds the bug of a training by measuring: overfit one batch, NaN origin, dead parameters, loss misuse, and more

Example:
    python scripts/probes.py all --factory examples.cpu_lifecycle.factory:factory
    python scripts/probes.py nan --factory train:factory --path src --steps 50
    python scripts/probes.py desync --factory train:rank_main --ranks 2
    python scripts/probes.py predictions runs/x/predictions.npz

A factory is a function without arguments that builds what the real run builds and returns
probes.Training(model, data, loss, optimizer, ...); its fields are explained in scripts/probing/contract.py. The
training runs in a child process; what hangs or crashes there is reported. Nothing of it is changed or written.

In a training script: `from probes import Watcher` looks at every 50th step; `from probes import examine` runs probes
in this process and puts everything back (weights, optimizer, gradients, modes, hooks, random numbers).
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probing.catalogue import NAMES, PROBES
from probing.contract import Training
from probing.watcher import Watcher
from rgt import cli, errors, report, units
from rgt.report import Finding, Report

if TYPE_CHECKING:
    from probing.results import Result

__all__ = ["NAMES", "Training", "Watcher", "examine", "main"]

_MARKS = {"fine": "ok", "found": "FOUND", "unjudged": "-"}


def examine(training: Training, names: tuple[str, ...] = NAMES, *, make: Callable[[], Training] | None = None,
            steps: int = 20, seconds: float = 20.0, seed: int = 0) -> Iterator[Result]:  # fmt: skip
    """Probe a training in this process, one result after the other; it is afterwards what it was before."""
    from probing import catalogue
    from probing.session import Session

    return catalogue.run(Session(training, steps=steps, seconds=seconds, make=make, seed=seed), names)


@click.group(cls=cli.Group)
def main() -> None:
    """Measure what is wrong with a training; each probe prints verdict, evidence and next step.

    Example: python scripts/probes.py all --factory examples.cpu_lifecycle.factory:factory
    """


def factory_options(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--seed", type=int, default=0, show_default=True, help="Seed set before the factory is called."),
        click.option("--steps", type=click.IntRange(2, 10_000), default=20, show_default=True,
                     help="Optimizer steps a probe may look at."),
        click.option("--path", "paths", multiple=True, type=click.Path(exists=True, file_okay=False),
                     help="Folder to import the factory from. [default: the current one]"),
        click.option("--factory", required=True, metavar="MODULE:FUNCTION", help="Function that builds the training."),
    ):  # fmt: skip
        function = option(function)
    return function


def _timeout(seconds: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option("--timeout", type=units.Duration(), default=seconds, show_default=True,
                        help="Time for everything; what is not done by then is reported as such.")  # fmt: skip


@main.command("all")
@factory_options
@_timeout(120.0)
@cli.report_options
def every(fmt: str | None, **how: Any) -> int:
    """Run all probes in order (list: `names`), each on the untouched training.

    Example: python scripts/probes.py all --factory train:factory --timeout 2m
    """
    return _run(NAMES, fmt, **how)


def _single(name: str, text: str) -> None:
    @main.command(name, help=f"{text}\n\nExample: python scripts/probes.py {name} --factory train:factory",
                  short_help=text)  # fmt: skip
    @factory_options
    @_timeout(60.0)
    @cli.report_options
    def command(fmt: str | None, **how: Any) -> int:
        return _run((name,), fmt, **how)


for _probe in PROBES:
    _single(_probe.name, _probe.help)


@main.command()
@click.option("--ranks", type=click.IntRange(2, 16), default=2, show_default=True, help="Processes to start.")
@factory_options
@_timeout(60.0)
@cli.report_options
def desync(factory: str, paths: tuple[str, ...], ranks: int, steps: int, timeout: float, seed: int,
           fmt: str | None) -> int:  # fmt: skip
    """Run ranks on gloo and name the one that left the others: which rank, which collective, where it stands.

    The factory is called as FUNCTION(rank, world_size), or without arguments, in every process, with the process group
    ready (its own init_process_group is let pass); the Training it returns is stepped. Its model may be wrapped in DDP,
    and it may call collectives itself.

    Example: python scripts/probes.py desync --factory train:rank_main --ranks 2
    """
    _need_torch()
    from probing import ranks as processes

    row = processes.desync(factory, _folders(paths), ranks, steps, timeout, seed)
    return _emit([row], fmt)


@main.command()
@click.argument("path", type=click.Path(path_type=Path))
@cli.report_options
def predictions(path: Path, fmt: str | None) -> int:
    """Collapse and hidden failures in saved predictions: PATH is npz, csv or jsonl.

    \b
    Columns: pred, prob or logits; target; embedding;
    pred_shuffled (inputs exchanged), pred_label_shuffled (trained on shuffled labels), pred_without_<input>.
    In csv, prob_0, prob_1, ... make one row.

    Example: python scripts/probes.py predictions runs/x/predictions.npz
    """
    if importlib.util.find_spec("numpy") is None:
        raise errors.lacking("numpy cannot be imported; pip install numpy")
    from probing import predictions as saved

    return _emit([result.as_dict() for result in saved.examine(saved.read(path))], fmt)


@main.command()
@cli.json_option
def names(as_json: bool) -> int:
    """List the probes in the order of `all`."""
    if as_json:
        report.print_json([{"name": probe.name, "help": probe.help} for probe in PROBES])
    else:
        for probe in PROBES:
            click.echo(f"{probe.name:12} {probe.help}")
    return errors.OK


def _run(names: tuple[str, ...], fmt: str | None, *, factory: str, paths: tuple[str, ...], steps: int, timeout: float,
         seed: int) -> int:  # fmt: skip
    _need_torch()
    from probing import runner

    rows = runner.probe(factory, names, paths=_folders(paths), steps=steps, timeout=timeout, seed=seed,
                        tell=lambda row: report.progress(f"{row['probe']}: {row['verdict']}"))  # fmt: skip
    return _emit(rows, fmt)


def _folders(paths: tuple[str, ...]) -> list[str]:
    return [os.path.abspath(path) for path in paths] or [os.getcwd()]


def _need_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise errors.lacking("torch cannot be imported, and probes need it; run this in the training's environment")


def _emit(rows: list[dict[str, Any]], fmt: str | None) -> int:
    found = Report("probes", data={"probes": [_without_findings(row) for row in rows]})
    for row in rows:
        found.findings += [Finding(**finding) for finding in row["findings"]]
    if fmt is None:
        for row in rows:
            click.echo(f"{_MARKS[row['verdict']]:6}{row['probe']:13}{row['evidence'][:300]}")
    named = sum(row["verdict"] == "found" for row in rows)
    judged = sum(row["verdict"] != "unjudged" for row in rows)
    return found.emit(fmt, f"{named} of {judged} probes found something; {len(rows) - judged} had nothing to judge")


def _without_findings(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in ("findings", "nothing_ran")}


if __name__ == "__main__":
    main()
