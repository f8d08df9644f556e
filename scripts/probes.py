# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""RUN · finds the bug of a training by measuring: overfit one batch, NaN origin, dead parameters, loss misuse, and more

Example:
    rgt probes all --factory examples.cpu_lifecycle.factory:factory
    rgt probes nan --factory train:factory --path src --steps 50
    rgt probes memory --inside -- python train.py

A factory is a function without arguments that builds what the real run builds and returns
probes.Training(model, data, loss, optimizer, ...); its fields are explained in scripts/rgt/probes/factory.py. The
training runs in a child process of its own Python, which needs torch and nothing of ours; the factory is called again
for every probe that trains, and what hangs or crashes there is reported. Nothing is written.

In a script of your own: `from probes import examine`, with a function like the factory.
"""

from __future__ import annotations

import contextlib
import os
import sys
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


def factory_options(seconds: float, required: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """What every command that calls a factory takes; `seconds` is the default of --timeout."""
    folder = click.Path(exists=True, file_okay=False)
    options: dict[str, dict[str, Any]] = {
        "--factory": {"required": required, "metavar": "MODULE:FUNCTION", "help": "Function that builds the training."},
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


@click.command(cls=cli.Command)
@factory_options(60.0)
@click.pass_context
def one(context: click.Context, /, fmt: str | None, timeout: float, **request: Any) -> int:
    return _probe((str(context.info_name),), fmt, timeout, request)


@click.argument("command", nargs=-1, metavar="[-- COMMAND...]")
@click.option("--duration", type=cli.Duration(), default=300.0, show_default=True, help="Watch COMMAND for so long.")
@click.option("--log", type=click.Path(path_type=Path), help="File for COMMAND's output. [default: stderr]")
@click.option("--inside", is_flag=True, help="Load a counter into COMMAND's Pythons (PYTHONPATH): names the holder.")
@factory_options(60.0, required=False)
@click.pass_context
def memory(context: click.Context, /, command: tuple[str, ...], fmt: str | None, timeout: float, **request: Any) -> int:
    """Host memory of COMMAND, or of a factory.

    \b
    COMMAND runs unmodified, for --duration or --steps, whichever is first, and is then ended with its children.
    Slopes against the steps it prints: main in training, main in validation, workers, shared memory.

    \b
    Example: rgt probes memory --duration 5m --inside -- python train.py
             rgt probes memory --factory train:factory
    """
    duration, log, inside = (request.pop(name) for name in ("duration", "log", "inside"))
    if bool(command) == bool(request["factory"]):
        raise errors.bad_input("give either --factory module:function or a command behind --")
    if request["factory"]:
        return _probe(("memory",), fmt, timeout, request)
    from rgt.probes import host_memory

    given = context.get_parameter_source("steps") == click.core.ParameterSource.COMMANDLINE
    with log.open("wb") if log else contextlib.nullcontext(sys.stderr.buffer) as sink:
        watched = host_memory.watch(list(command), duration, request["steps"] if given else None, sink, inside)
    return _emit([host_memory.judge(watched).as_dict()], fmt)


for _probe_of in PROBES:  # one set of options serves them all: each costs time at every start
    _help = f"{_probe_of.help}\n\nExample: rgt probes {_probe_of.name} --factory train:factory"
    _words = {"help": _help, "short_help": _probe_of.help}
    if _probe_of.name == "memory":
        main.command("memory", short_help=_probe_of.help)(memory)
    else:
        main.add_command(cli.Command(_probe_of.name, callback=one.callback, params=one.params, **_words))


def _probe(names: tuple[str, ...], fmt: str | None, timeout: float, request: dict[str, Any]) -> int:
    """In a child of the training's Python, when that is there, new enough for our code, and has torch."""
    from rgt.machine.interpreter import interrogate, job_python
    from rgt.probes import runner

    python = job_python(request["python"])
    found = interrogate(python, Path.cwd(), os.environ)
    problem = found.problem
    if not problem and "torch" not in found.facts["frameworks"]:
        problem = "it has no torch"
    elif not problem and tuple(map(int, found.facts["version"].split(".")[:2])) < (3, 10):
        problem = f"it is Python {found.facts['version']}, and probes need 3.10 or newer"
    if problem:
        raise errors.lacking(f"{python} cannot run the training: {problem}; name its interpreter with --python")
    paths = [os.path.abspath(path) for path in request["path"] or (".",)]
    return _emit(runner.probe({**request, "python": python, "paths": paths}, names, timeout), fmt)


def _emit(rows: list[dict[str, Any]], fmt: str | None) -> int:
    findings = [Finding(**finding) for row in rows for finding in row["findings"]]
    shown = [{key: value for key, value in row.items() if key != "findings"} for row in rows]
    if fmt is None:
        for row in rows:
            click.echo(f"{_MARKS[row['verdict']]:6}{row['probe']:13}{row['evidence'][:600]}")
    named, unjudged = (sum(row["verdict"] == verdict for row in rows) for verdict in ("found", "unjudged"))
    summary = f"{named} of {len(rows) - unjudged} probes found something; {unjudged} had nothing to judge"
    return Report("probes", findings, {"probes": shown}).emit(fmt, summary)


if __name__ == "__main__":
    main()
