# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""RUN · finds the bug of a training by measuring: overfit one batch, NaN origin, dead parameters, loss misuse, and more

Example:
    rgt probes all --factory examples.cpu_lifecycle.factory:factory
    rgt probes nan --factory train:factory --path src --steps 50
    rgt probes predictions runs/x/predictions.npz

A factory is a function without arguments that builds what the real run builds and returns
probes.Training(model, data, loss, optimizer, ...); its fields are explained in scripts/rgt/probes/factory.py. The
training runs in a child process of its own Python, which needs torch and nothing of ours; the factory is called again
for every probe that trains, and what hangs or crashes there is reported. Nothing is written.

In a script of your own: `from probes import examine`, with a function like the factory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rgt import cli, errors
from rgt.probes.factory import NAMES, PROBES, Result, Training
from rgt.report import Finding, Report

import click

__all__ = ["NAMES", "Training", "examine", "main"]

_MARKS = {"fine": "ok", "found": "FOUND", "unjudged": "-"}


def examine(
    make: Callable[[], Training], names: tuple[str, ...] = NAMES, *, steps: int = 20, seconds: float = 20.0
) -> Iterator[Result]:
    """Probe what `make` builds, in this process, one result after the other; it builds a new one for every probe."""
    from rgt.probes import runner
    from rgt.probes.probe_session import Session

    return runner.run(Session(make, steps, seconds), names)


@click.group(cls=cli.Group)
def main() -> None:
    """Measure what is wrong with a training; each probe prints verdict, evidence and next step.

    Example: rgt probes all --factory examples.cpu_lifecycle.factory:factory
    """


def factory_options(seconds: float) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What every command that calls a factory takes; `seconds` is the default of --timeout."""
    folder = click.Path(exists=True, file_okay=False)
    options: dict[str, dict[str, Any]] = {
        "--factory": {"required": True, "metavar": "MODULE:FUNCTION", "help": "Function that builds the training."},
        "--path": {"multiple": True, "type": folder, "help": "Folder to import from. [default: the current one]"},
        "--python": {"help": "The training's interpreter. [default: the active environment's, else the one on PATH]"},
        "--steps": {"type": click.IntRange(2, 10_000), "default": 20, "help": "Optimizer steps a probe may look at."},
        "--seed": {"type": int, "default": 0, "help": "Seed set before the factory is called."},
        "--timeout": {"type": cli.Duration(), "default": seconds, "help": "Time for everything; the rest is reported."},
    }

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        function = cli.report_options(function)
        for name, settings in reversed(options.items()):
            function = click.option(name, show_default="default" in settings, **settings)(function)
        return function

    return decorate


@main.command("all")
@factory_options(120.0)
def every(fmt: str | None, timeout: float, **request: Any) -> int:
    """Run all probes, the cheap ones first, each on a new training.

    Example: rgt probes all --factory train:factory --timeout 2m
    """
    return _probe(NAMES, fmt, timeout, request)


for _one in PROBES:
    _help = f"{_one.help}\n\nExample: rgt probes {_one.name} --factory train:factory"

    @main.command(_one.name, help=_help, short_help=_one.help)
    @factory_options(60.0)
    @click.pass_context
    def one(context: click.Context, /, fmt: str | None, timeout: float, **request: Any) -> int:
        return _probe((str(context.info_name),), fmt, timeout, request)


@main.command()
@click.argument("path", type=click.Path(path_type=Path))
@cli.report_options
def predictions(path: Path, fmt: str | None) -> int:
    """Collapse and hidden failures in saved predictions: PATH is npz, csv or jsonl.

    \b
    Columns: pred, prob or logits; target; pred_shuffled (the answers to inputs exchanged between samples).
    In csv, prob_0, prob_1, ... make one row; in npz and jsonl, prob is a row of numbers.

    Example: rgt probes predictions runs/x/predictions.npz
    """
    from rgt.probes.predictions import judge_file

    return _emit([result.as_dict() for result in judge_file(path)], fmt)


def _probe(names: tuple[str, ...], fmt: str | None, timeout: float, request: dict[str, Any]) -> int:
    from rgt.probes import runner

    return _emit(runner.probe(_checked(request), names, timeout), fmt)


def _checked(request: dict[str, Any]) -> dict[str, Any]:
    """What the child is asked for, when its Python is there, new enough for our code, and has torch."""
    from rgt.machine.interpreter import interrogate, job_python

    python = job_python(request["python"])
    found = interrogate(python, Path.cwd(), os.environ)
    problem = found.problem
    if not problem and "torch" not in found.facts["frameworks"]:
        problem = "it has no torch"
    elif not problem and tuple(map(int, found.facts["version"].split(".")[:2])) < (3, 10):
        problem = f"it is Python {found.facts['version']}, and probes need 3.10 or newer"
    if problem:
        raise errors.lacking(f"{python} cannot run the training: {problem}; name its interpreter with --python")
    return {**request, "python": python, "paths": [os.path.abspath(path) for path in request["path"] or (".",)]}


def _emit(rows: list[dict[str, Any]], fmt: str | None) -> int:
    findings = [Finding(**finding) for row in rows for finding in row["findings"]]
    shown = [{key: value for key, value in row.items() if key != "findings"} for row in rows]
    if fmt is None:
        for row in rows:
            click.echo(f"{_MARKS[row['verdict']]:6}{row['probe']:13}{row['evidence'][:300]}")
    named, unjudged = (sum(row["verdict"] == verdict for row in rows) for verdict in ("found", "unjudged"))
    summary = f"{named} of {len(rows) - unjudged} probes found something; {unjudged} had nothing to judge"
    return Report("probes", findings, {"probes": shown}).emit(fmt, summary)


if __name__ == "__main__":
    main()
