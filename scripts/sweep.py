# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "nvidia-ml-py", "numpy"]
# ///
"""RUN · a grid or list of runs over GPUs and hosts: no cell starts twice, and a cell is done when its artifact verifies

Example:
    python scripts/sweep.py run lr.yaml --dry-run
    python scripts/sweep.py run lr.yaml          # submits what is missing; run it again after any kill
    python scripts/sweep.py report lr.yaml       # expected, submitted, finished, verified, failed

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

import click

from cells import MARK
from cells.judge import ACTIVE, BAD, STATES, Row, Rows, look
from cells.ledger import Attempt, Ledger, alone, read_ledger
from cells.plan import Cell, Sweep, load
from rgt import cli, errors, files, job, rundir, submit, units
from rgt.report import Report, progress

_ROWS = 100  # of the table; --json has them all
_VALUES = 60  # characters of a cell's values in the table

_AGAIN = "python scripts/launch.py logs {run}; then python scripts/sweep.py run {sweep} --retry"
_FINDINGS = {  # state: code, severity, what is said, what helps
    "failed": ("failed", "error", "failed", _AGAIN),
    "cancelled": ("failed", "error", "cancelled", _AGAIN),
    "lost": ("failed", "error", "lost", _AGAIN),
    "unverified": ("unverified", "error", "ended without an artifact that verifies", _AGAIN),
    "unjudged": ("unjudged", "error", "ended, but could not be judged", ""),
    "unpulled": ("unpulled", "warn", "finished elsewhere", "bring the run directory to {run}, then report again"),
    "unknown": ("unfinished", "warn", "state unknown", "look again later; if that machine is gone for good, take it "
                "out of targets, then python scripts/sweep.py run {sweep} --retry"),
    "running": ("unfinished", "warn", "running", ""),
    "queued": ("unfinished", "warn", "queued", ""),
    "missing": ("unfinished", "warn", "not submitted", "python scripts/sweep.py run {sweep}"),
}  # fmt: skip

# -- the command line

sweep_argument = click.argument("sweep", type=click.Path(path_type=Path, dir_okay=False), metavar="SWEEP")


@click.group(cls=cli.Group)
def main() -> None:
    """Run every cell of a sweep once, and know which ones have an artifact that is real.

    Example: python scripts/sweep.py run lr.yaml
    """


@main.command()
@sweep_argument
@click.option("--retry", is_flag=True, help="Also submit again what failed, was lost, or left no good artifact.")
@click.option("--dry-run", is_flag=True, help="Say what would be submitted where, and submit nothing.")
@cli.report_options
def run(sweep: Path, retry: bool, dry_run: bool, fmt: str | None) -> int:
    """Submit the cells of SWEEP (sweep.yaml) that have no run yet; what runs, or ran, is left alone.

    Exit 1 when a cell could not be submitted.

    Example: python scripts/sweep.py run lr.yaml --retry
    """
    wanted = load(sweep)
    if dry_run:
        return _dry_run(wanted, retry, fmt)
    report = Report("sweep")
    with alone(wanted) as (ledger, lock):
        _recover(wanted, ledger)
        todo = _todo(wanted, ledger, retry)
        begun = _submit_all(wanted, ledger, todo, lock, report)
    cells = {cell.id: cell for cell in wanted.cells}
    report.data = {
        "sweep": str(wanted.path), "dry_run": False, "expected": len(wanted.cells),
        "submitted": [Row(cells[each.cell], "submitted", each.number, each).as_dict() for each in begun],
        "left_alone": len(wanted.cells) - len(todo),
    }  # fmt: skip
    after = f"{len(begun)} submitted, {len(wanted.cells) - len(todo)} left alone, of {len(wanted.cells)} cells"
    return report.emit(fmt, f"{after}; python scripts/sweep.py report {sweep} tells what became of them")


def _todo(sweep: Sweep, ledger: Ledger, retry: bool, write: bool = True) -> list[Cell]:
    if not retry:
        return [cell for cell in sweep.cells if ledger.last(cell.id) is None]
    return [row.cell for row in look(sweep, ledger, write) if row.state in ("missing", *BAD)]


def _dry_run(sweep: Sweep, retry: bool, fmt: str | None) -> int:
    ledger = read_ledger(sweep)
    todo = _todo(sweep, ledger, retry, write=False)
    report = Report("sweep")
    shown = []
    for number, cell in enumerate(todo):
        words = shlex.join(sweep.job(cell).words("{run}"))
        shown.append({"cell": cell.id, "values": cell.values, "command": words})
        if fmt is None and number < _ROWS:
            click.echo(f"would submit {cell.id}  {cell.title}: {words}")
    alone = len(sweep.cells) - len(todo)
    report.data = {"sweep": str(sweep.path), "dry_run": True, "expected": len(sweep.cells), "targets": sweep.targets,
                   "would_submit": shown, "left_alone": alone}  # fmt: skip
    where = ", ".join(sweep.targets)
    return report.emit(
        fmt, f"{len(todo)} would be submitted to {where}, {alone} left alone, of {len(sweep.cells)} cells"
    )


@main.command()
@sweep_argument
@cli.report_options
def report(sweep: Path, fmt: str | None) -> int:
    """Reconcile the cells of SWEEP with what was submitted, finished and verified. Exit 1 unless all are verified.

    Example: python scripts/sweep.py report lr.yaml --json
    """
    wanted = load(sweep)
    ledger = read_ledger(wanted)
    return _tell(wanted, ledger, look(wanted, ledger), fmt)


@main.command()
@sweep_argument
@click.option("--timeout", type=units.Duration(), help="Stop waiting after this long; the jobs go on.")
@cli.report_options
def wait(sweep: Path, timeout: float | None, fmt: str | None) -> int:
    """Wait until no submitted cell of SWEEP is queued or running, then report. Exit 1 unless all are verified.

    Example: python scripts/sweep.py wait lr.yaml --timeout 12h
    """
    wanted = load(sweep)
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        start = time.monotonic()
        ledger = read_ledger(wanted)
        rows = look(wanted, ledger)
        active = sum(row.state in ACTIVE for row in rows)
        if not active or time.monotonic() >= deadline:
            return _tell(wanted, ledger, rows, fmt)
        progress(f"{active} of {len(rows)} cells are queued or running")
        # asking costs processes and connections: a tenth of the time at most, also of a big sweep
        pause = min(60.0, max(1.0, 9 * (time.monotonic() - start)))
        time.sleep(max(0.0, min(pause, deadline - time.monotonic())))


# -- submitting


def _recover(sweep: Sweep, ledger: Ledger) -> None:
    """We were killed between an intent and its end. We hold the lock, so no launch of ours lives: look what it made."""
    for attempt in list(ledger.open()):
        given = job.load(sweep.description(attempt.cell))  # what launch read; the sweep file may have changed since
        run = submit.find(given, attempt.cell, MARK, ledger.mark(attempt))
        if run:
            ledger.write("submitted", attempt, run=str(run.path))
        else:
            ledger.write("refused", attempt, reason="interrupted before it had a run directory; nothing was started")


def _submit(sweep: Sweep, ledger: Ledger, cell: Cell, target: str, lock: int) -> tuple[Attempt, str]:
    """One attempt at one cell; the sentence is empty when all went well."""
    number = len(ledger.attempts.get(cell.id, [])) + 1
    attempt = Attempt(cell.id, number, target, cell.values, cell.job_sha256)
    spec = {**cell.spec, "name": cell.name, "env": {**cell.spec.get("env", {}), MARK: ledger.mark(attempt)}}
    description = sweep.description(cell.id)
    files.write_json(description, spec)  # JSON is YAML
    ledger.write("intent", attempt, target=target, values=cell.values, job_sha256=cell.job_sha256)
    attempt = ledger.attempts[cell.id][-1]
    marked = {**os.environ, MARK: ledger.mark(attempt)}
    reply = submit.launch("submit", str(description), "--on", target, env=marked, keep_open=(lock,))
    made = reply.data.get("run") or submit.find(sweep.job(cell), cell.id, MARK, ledger.mark(attempt))
    path = made.path if isinstance(made, rundir.Run) else made
    if path:
        ledger.write("submitted", attempt, run=str(path))
    else:
        ledger.write("refused", attempt, reason=reply.sentence)
    return attempt, "" if reply.code == errors.OK else reply.sentence


def _submit_all(sweep: Sweep, ledger: Ledger, todo: list[Cell], lock: int, report: Report) -> list[Attempt]:
    """To the target with the fewest cells so far. One that fails is left out: what failed once fails for each cell."""
    begun: list[Attempt] = []
    targets = list(sweep.targets)
    for number, cell in enumerate(todo, 1):
        while targets:
            target = _emptiest(targets, ledger)
            attempt, problem = _submit(sweep, ledger, cell, target, lock)
            if attempt.run:
                begun.append(attempt)
                progress(f"{number}/{len(todo)} {cell.id} {cell.title} -> {target}: {attempt.run.path}")
            if problem:
                targets.remove(target)
                report.add("failed", "error", f"{target} did not take the cell: {problem}", where=_where(cell))
            if attempt.run:
                break
        else:
            left = len(todo) - number + 1
            report.add("unfinished", "error", f"{left} cells are not submitted: no target is left",
                       fix=f"mend what is said above, then python scripts/sweep.py run {sweep.path}")  # fmt: skip
            break
    return begun


def _emptiest(targets: list[str], ledger: Ledger) -> str:
    load = Counter(last.target for cell in ledger.attempts if (last := ledger.last(cell)))
    return min(targets, key=lambda target: load[target])


def _where(cell: Cell) -> str:
    return f"{cell.id} ({cell.title})"


# -- the report


def _count(rows: Rows) -> dict[str, int]:
    """expected is the sum of all states; submitted and finished cut across them."""
    states = Counter(row.state for row in rows)
    finished = sum(states[state] for state in ("verified", "unverified", "unpulled", "unjudged"))
    ours = {"expected": len(rows), "submitted": len(rows) - states["missing"], "finished": finished}
    return {**ours, **{state: states[state] for state in STATES}}


def _find(sweep: Sweep, ledger: Ledger, rows: Rows, report: Report) -> None:
    for row in rows:
        _find_row(sweep, row, report)
    names = {cell.id for cell in sweep.cells}
    for cell, attempts in ledger.attempts.items():
        last = attempts[-1]
        if cell not in names:
            values = " ".join(f"{name}={value}" for name, value in last.values.items())
            report.add("removed", "info", "not in the sweep any more", path=str(last.run.path) if last.run else "",
                       where=f"{cell} ({values})")  # fmt: skip


def _find_row(sweep: Sweep, row: Row, report: Report) -> None:
    run = str(row.attempt.run.path) if row.attempt and row.attempt.run else ""
    if row.state in _FINDINGS:
        code, severity, message, fix = _FINDINGS[row.state]
        ended = "" if row.exit_code is None else f", exit code {row.exit_code}"
        detail = f": {row.detail}" if row.detail else ""
        advice = fix.format(run=run, sweep=sweep.path) or None
        report.add(code, severity, f"{message}{ended}{detail}", path=run, where=_where(row.cell), fix=advice)
    if row.attempt and row.attempt.job_sha256 != row.cell.job_sha256:
        message = "ran with a job description that was changed since"
        report.add("superseded", "info", message, path=run, where=_where(row.cell))


def _print_table(rows: Rows) -> None:
    lines = [("cell", "state", "tries", "target", "values", "run")]
    for row in rows[:_ROWS]:
        run = row.attempt.run.id if row.attempt and row.attempt.run else "-"
        target = row.attempt.target if row.attempt else "-"
        values = row.cell.title if len(row.cell.title) <= _VALUES else row.cell.title[: _VALUES - 3] + "..."
        lines.append((row.cell.id, row.state, str(row.attempts), target, values, run))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        click.echo("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)).rstrip())
    if len(rows) > _ROWS:
        click.echo(f"... and {len(rows) - _ROWS} more; --json lists them all")


def _summary(counts: dict[str, int]) -> str:
    parts = [f"{counts[state]} {state}" for state in STATES if counts[state] or state in ("verified", "failed")]
    return (
        f"{counts['expected']} expected = {' + '.join(parts)}; "
        f"{counts['submitted']} submitted, {counts['finished']} finished"
    )


def _tell(sweep: Sweep, ledger: Ledger, rows: Rows, fmt: str | None) -> int:
    report = Report("sweep")
    _find(sweep, ledger, rows, report)
    counts = _count(rows)
    report.data = {"sweep": str(sweep.path), "counts": counts, "cells": [row.as_dict() for row in rows]}
    if fmt is None:
        _print_table(rows)
    return report.emit(fmt, _summary(counts))


if __name__ == "__main__":
    main()
