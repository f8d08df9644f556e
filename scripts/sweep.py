# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""RUN · a grid or list of runs over GPUs and hosts: no cell starts twice, and a cell is done when its artifact verifies

Example:
    rgt sweep run lr.yaml --dry-run
    rgt sweep run lr.yaml          # submits what is missing; run it again after any kill
    rgt sweep report lr.yaml       # expected, submitted, finished, verified, failed

Writes lr.sweep/ beside lr.yaml: sweep.json (its id), cells.jsonl (every attempt, its intent before it) and the job
description of each cell. A submitted cell is found again by RGT_CELL in its run.json, so nothing rests on our memory.
"""

from __future__ import annotations

import math
import os
import shlex
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from rgt import bundle, cli, errors, files
from rgt.report import Report, progress

import click

if TYPE_CHECKING:
    from rgt.sweep.cells import Attempt, Cell, Ledger, Row, Sweep

_ROWS = 100  # of the table; --json has them all
_VALUES = 60  # characters of a cell's values in the table
_ALWAYS_SHOWN = ("verified", "failed")  # also when there is none

_AGAIN = "{logs}; then {retry}"
_GONE = "if its machine is gone for good, take it out of targets, then {retry}"
_FINDINGS = {  # state: code, severity, what is said, what helps
    "failed": ("failed", "error", "failed", _AGAIN),
    "stopped": ("failed", "error", "stopped", _AGAIN),
    "lost": ("failed", "error", "lost", _AGAIN),
    "unverified": ("unverified", "error", "ended without an artifact that verifies", _AGAIN),
    "unjudged": ("unjudged", "error", "ended, but could not be judged", ""),
    "unpulled": ("unpulled", "warn", "finished elsewhere", "bring the run directory to {run}, then report again"),
    "unknown": ("unfinished", "warn", "state unknown", _GONE),
    "running": ("unfinished", "warn", "running", ""),
    "queued": ("unfinished", "warn", "queued", ""),
    "missing": ("unfinished", "warn", "not submitted", "{again}"),
}

# -- the command line

sweep_argument = click.argument("sweep", type=click.Path(path_type=Path, dir_okay=False), metavar="SWEEP")


@click.group(cls=cli.Group)
def main() -> None:
    """Run every cell of a sweep once, and know which ones have an artifact that is real.

    Example: rgt sweep run lr.yaml
    """


@main.command()
@sweep_argument
@click.option("--retry", is_flag=True, help="Also submit again what failed, was lost, or left no good artifact.")
@click.option("--dry-run", is_flag=True, help="Say what would be submitted where, and submit nothing.")
@cli.report_options
def run(sweep: Path, retry: bool, dry_run: bool, fmt: str | None) -> int:
    """Submit the cells of SWEEP (sweep.yaml) that have no run yet; what runs, or ran, is left alone.

    Exit 1 when a cell could not be submitted.

    Example: rgt sweep run lr.yaml --retry
    """
    from rgt.job import description as job
    from rgt.sweep.cells import MARK, Row, alone, load, read_ledger

    wanted = load(sweep)
    report = Report("sweep")
    if dry_run:
        todo = _todo(wanted, read_ledger(wanted), retry, write=False)
        commands = {cell.id: shlex.join(wanted.job(cell).words("{run}")) for cell in todo}
        shown = [{"cell": cell.id, "values": cell.values, "command": commands[cell.id]} for cell in todo]
        changes = {"targets": wanted.targets, "would_submit": shown}
        for cell in todo[:_ROWS] if fmt is None else []:
            click.echo(f"would submit {cell.id}  {cell.title}: {commands[cell.id]}")
        head, tail = f"{len(todo)} would be submitted to {', '.join(wanted.targets)}", ""
    else:
        with alone(wanted) as (ledger, lock):
            # an attempt without an outcome: we were killed. We hold the lock, so its launch is over: look for its run
            for attempt in ledger.unsettled():
                given = job.load(wanted.description(attempt.cell))  # what launch read; the sweep may have changed since
                made = job.find(given, attempt.cell, MARK, ledger.mark(attempt))
                interrupted = "interrupted before it had a run directory; nothing was started"
                ledger.settle(attempt, str(made.path) if made else "", interrupted)
            todo = _todo(wanted, ledger, retry)
            begun = _submit_all(wanted, ledger, todo, lock, report)
        cells = {cell.id: cell for cell in wanted.cells}
        changes = {"submitted": [Row(cells[each.cell], "submitted", each.number, each).as_dict() for each in begun]}
        head, tail = f"{len(begun)} submitted", f"; what became of them: {bundle.command('sweep', 'report', sweep)}"
    left = len(wanted.cells) - len(todo)
    counts = {"expected": len(wanted.cells), **changes, "left_alone": left}
    report.data = {"sweep": str(wanted.path), "dry_run": dry_run, **counts}
    return report.emit(fmt, f"{head}, {left} left alone, of {len(wanted.cells)} cells{tail}")


@main.command()
@sweep_argument
@cli.report_options
def report(sweep: Path, fmt: str | None) -> int:
    """Reconcile the cells of SWEEP with what was submitted, finished and verified. Exit 1 unless all are verified.

    Example: rgt sweep report lr.yaml --json
    """
    from rgt.sweep.cells import load, look, read_ledger

    wanted = load(sweep)
    ledger = read_ledger(wanted)
    return _emit(wanted, ledger, look(wanted, ledger), fmt)


@main.command()
@sweep_argument
@click.option("--timeout", type=cli.Duration(), help="Stop waiting after this long; the jobs go on.")
@cli.report_options
def wait(sweep: Path, timeout: float | None, fmt: str | None) -> int:
    """Wait until no submitted cell of SWEEP is queued or running, then report. Exit 1 unless all are verified.

    Example: rgt sweep wait lr.yaml --timeout 12h
    """
    from rgt.run.record import ACTIVE
    from rgt.sweep.cells import load, look, read_ledger

    wanted = load(sweep)
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        start = time.monotonic()
        ledger = read_ledger(wanted)
        rows = look(wanted, ledger)
        active = sum(row.state in ACTIVE for row in rows)
        if not active or time.monotonic() >= deadline:
            return _emit(wanted, ledger, rows, fmt)
        progress(f"{active} of {len(rows)} cells are queued or running")
        # asking costs processes and connections: a tenth of the time at most, also of a big sweep
        pause = min(60.0, max(1.0, 9 * (time.monotonic() - start)))
        time.sleep(max(0.0, min(pause, deadline - time.monotonic())))


# -- submitting


def _todo(sweep: Sweep, ledger: Ledger, retry: bool, write: bool = True) -> list[Cell]:
    from rgt.sweep.cells import BAD, look

    if not retry:
        return [cell for cell in sweep.cells if ledger.last(cell.id) is None]
    return [row.cell for row in look(sweep, ledger, write) if row.state in ("missing", *BAD)]


def _submit(sweep: Sweep, ledger: Ledger, cell: Cell, target: str, lock: int) -> tuple[Attempt, str]:
    """One attempt at one cell, and why it failed (empty when it did not)."""
    from rgt.job import description as job
    from rgt.sweep.cells import MARK, Attempt

    number = len(ledger.attempts.get(cell.id, [])) + 1
    attempt = Attempt(cell.id, number, target, cell.values, cell.job_sha256)
    mark = {MARK: ledger.mark(attempt)}
    description = sweep.description(cell.id)  # JSON is YAML
    files.write_json(description, {**cell.spec, "name": cell.name, "env": {**cell.spec.get("env", {}), **mark}})
    ledger.write("intent", attempt, target=target, values=cell.values, job_sha256=cell.job_sha256)
    attempt = ledger.attempts[cell.id][-1]
    # what is wrong with one cell's paths or room is wrong with all: the first on each target is looked at
    first = not any(tried.target == target and tried.run for tries in ledger.attempts.values() for tried in tries)
    words = ["submit", str(description), "--on", target, *([] if first else ["--no-preflight"])]
    reply = job.launch(*words, env={**os.environ, **mark}, keep_open=(lock,))
    made = job.find(sweep.job(cell), cell.id, MARK, mark[MARK]) if "run" not in reply.data else None
    ledger.settle(attempt, reply.data.get("run") or (str(made.path) if made else ""), reply.sentence)
    return attempt, "" if reply.code == errors.OK else reply.sentence


def _submit_all(sweep: Sweep, ledger: Ledger, todo: list[Cell], lock: int, report: Report) -> list[Attempt]:
    """To the target with the fewest cells so far. One that fails is left out: what failed once fails for each cell."""

    begun: list[Attempt] = []
    targets = list(sweep.targets)
    for number, cell in enumerate(todo, 1):
        attempt = None
        while targets and not (attempt and attempt.run):
            load = Counter(last.target for tried in ledger.attempts if (last := ledger.last(tried)))
            target = min(targets, key=lambda name: load[name])
            attempt, problem = _submit(sweep, ledger, cell, target, lock)
            if attempt.run:
                begun.append(attempt)
                progress(f"{number}/{len(todo)} {cell.id} {cell.title} -> {target}: {attempt.run.path}")
            if problem:
                targets.remove(target)
                report.add("failed", "error", f"{target} did not take the cell: {problem}", where=_where(cell))
        if not (attempt and attempt.run):
            message = f"{len(todo) - number + 1} cells are not submitted: no target is left"
            fix = f"mend what is said above, then {bundle.command('sweep', 'run', sweep.path)}"
            report.add("unfinished", "error", message, fix=fix)
            break
    return begun


def _where(cell: Cell) -> str:
    return f"{cell.id} ({cell.title})"


# -- the report


def _emit(sweep: Sweep, ledger: Ledger, rows: list[Row], fmt: str | None) -> int:
    from rgt.sweep.cells import STATES, Cell

    report = Report("sweep")
    for row in rows:
        run = str(row.run.path) if row.run else ""
        if row.state in _FINDINGS:
            code, severity, message, fix = _FINDINGS[row.state]
            ended = "" if row.exit_code is None else f", exit code {row.exit_code}"
            detail = f": {row.detail}" if row.detail else ""
            again, logs = bundle.command("sweep", "run", sweep.path), bundle.command("launch", "logs", run)
            advice = fix.format(run=run, logs=logs, again=again, retry=f"{again} --retry") or None
            report.add(code, severity, f"{message}{ended}{detail}", path=run, where=_where(row.cell), fix=advice)
        if row.attempt and row.attempt.job_sha256 != row.cell.job_sha256:
            message = "ran with a job description that was changed since"
            report.add("superseded", "info", message, path=run, where=_where(row.cell))
    present = {cell.id for cell in sweep.cells}
    for last in (attempts[-1] for cell, attempts in ledger.attempts.items() if cell not in present):
        run, where = str(last.run.path) if last.run else "", _where(Cell(last.cell, last.values, {}))
        report.add("removed", "info", "not in the sweep any more", path=run, where=where)
    states = Counter(row.state for row in rows)
    # expected is the sum of all states; submitted and finished cut across them
    finished = sum(states[state] for state in ("verified", "unverified", "unpulled", "unjudged"))
    counts = {"expected": len(rows), "submitted": len(rows) - states["missing"], "finished": finished}
    counts |= {state: states[state] for state in STATES}
    report.data = {"sweep": str(sweep.path), "counts": counts, "cells": [row.as_dict() for row in rows]}
    for row in rows[:_ROWS] if fmt is None else []:
        title, target = row.cell.title, row.attempt.target if row.attempt else "-"
        values = title if len(title) <= _VALUES else title[: _VALUES - 3] + "..."
        run = row.run.id if row.run else "-"
        click.echo(f"{row.cell.id}  {row.state:10}  {row.attempts} tried  {target:12}  {values}  {run}")
    if fmt is None and len(rows) > _ROWS:
        click.echo(f"... and {len(rows) - _ROWS} more; --json lists them all")
    parts = " + ".join(f"{states[state]} {state}" for state in STATES if states[state] or state in _ALWAYS_SHOWN)
    summary = f"{len(rows)} expected = {parts}; {counts['submitted']} submitted, {finished} finished"
    return report.emit(fmt, summary)


if __name__ == "__main__":
    main()
