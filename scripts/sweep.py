# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""RUN · a grid or list of runs over GPUs and hosts: no cell starts twice, and a cell is done when its artifact verifies

Example:
    rgt sweep run lr.yaml --dry-run
    rgt sweep run lr.yaml          # submits what is missing; run it again after any kill
    rgt sweep report lr.yaml       # expected, submitted, finished, verified, failed

Writes lr.sweep/ beside lr.yaml: sweep.json (its id) and the job description of each cell. What was submitted is found
again by RGT_CELL in the run.json that launch writes before it starts anything, so nothing rests on our memory.

Each cell's engine is asked first (is it still running?), then the artifact itself: results.json and a checkpoint that
verify. Neither an exit code nor a log line proves a cell.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import math
import os
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt import bundle, cli, errors, files, schema
from rgt.errors import RgtError, bad_input
from rgt.job import backends
from rgt.job import description as job
from rgt.machine import processes
from rgt.report import Report, progress
from rgt.run import record

import click

MARK = "RGT_CELL"  # in the environment of every process of an attempt, and in its run.json
# Ended without an artifact to show; --retry submits these again. `unknown` is not one of them: it may be running.
BAD = ("failed", "stopped", "lost", "unverified")
STATES = ("verified", *BAD, "unpulled", "unjudged", *record.ACTIVE, "unknown", "missing")
_ALWAYS_SHOWN = ("verified", "failed")  # also when there is none
_EXPERIMENT = ("command", "script", "args", "env", "image")  # a longer time limit is the same experiment
_AT_ONCE = 4  # questions to engines and verifications
_ROWS = 100  # of the table; --json has them all
_VALUES = 60  # characters of a cell's values in the table

_AGAIN = "{logs}; then {again} --retry"
_FINDINGS = {  # state: code, severity, what is said, what helps
    "failed": ("failed", "error", "failed", _AGAIN),
    "stopped": ("failed", "error", "stopped", _AGAIN),
    "lost": ("failed", "error", "lost", _AGAIN),
    "unverified": ("unverified", "error", "ended without an artifact that verifies", _AGAIN),
    "unjudged": ("unjudged", "error", "ended, but could not be judged", ""),
    "unpulled": ("unpulled", "warn", "finished elsewhere", "bring the run directory to {run}, then report again"),
    "unknown": ("unfinished", "warn", "state unknown", "if its machine is gone, take it out of targets, then {again}"),
    "running": ("unfinished", "warn", "running", ""),
    "queued": ("unfinished", "warn", "queued", ""),
    "missing": ("unfinished", "warn", "not submitted", "{again}"),
}

sweep_argument = click.argument("path", type=click.Path(path_type=Path, dir_okay=False), metavar="SWEEP")


@click.group(cls=cli.Group)
def main() -> None:
    """Run every cell of a sweep once, and know which ones have an artifact that is real.

    Example: rgt sweep run lr.yaml
    """


@main.command()
@sweep_argument
@click.argument("words", nargs=-1, metavar="[-- COMMAND...]")
@click.option("--grid", multiple=True, help="For COMMAND: NAME=VALUE,VALUE,... of {NAME} in it; repeatable.")
@click.option(
    "--judge", default="", help="For COMMAND: what proves a cell, as 'test -s {run}/out.pt'; exit 0 verifies it."
)
@click.option("--retry", is_flag=True, help="Also submit again what failed, was lost, or left no good artifact.")
@click.option("--dry-run", is_flag=True, help="Say what would be submitted where, and submit nothing.")
@cli.report_options
def run(
    path: Path, words: tuple[str, ...], grid: tuple[str, ...], judge: str, retry: bool, dry_run: bool, fmt: str | None
) -> int:
    """Submit the cells of SWEEP (sweep.yaml) that have no run yet; what runs, or ran, is left alone.

    With a COMMAND of any trainer, SWEEP is written first: every combination of --grid, in this directory, on this
    machine. Exit 1 when a cell could not be submitted.

    Example: rgt sweep run lr.yaml --grid lr=1e-3,1e-4 --grid seed=0,1 -- python train.py --lr {lr} --seed {seed}
    """
    made = _from_command(path, words, grid, judge) if words or grid or judge else None
    sweep, report = Sweep(path.absolute(), made), Report("sweep")
    if made and not dry_run:
        files.write_json(path, made)  # YAML, too; and "1e-3" stays the text that the trainer gets
    if dry_run:
        todo = sweep.todo(retry)
        commands = {cell.id: shlex.join(sweep.job(cell).words("{run}")) for cell in todo}
        shown = [{"cell": cell.id, "values": cell.values, "command": commands[cell.id]} for cell in todo]
        changes: dict[str, Any] = {"targets": sweep.targets, "would_submit": shown}
        for cell in todo[:_ROWS] if fmt is None else []:
            click.echo(f"would submit {cell.id}  {cell.title}: {commands[cell.id]}")
        head, tail = f"{len(todo)} would be submitted to {', '.join(sweep.targets)}", ""
    else:
        with sweep.alone() as lock:
            todo = sweep.todo(retry)
            begun = _submit_all(sweep, todo, lock, report)
        changes = {"submitted": [row.as_dict() for row in begun]}
        head, tail = f"{len(begun)} submitted", f"; what became of them: {bundle.command('sweep', 'report', path)}"
    left = len(sweep.cells) - len(todo)
    report.data = {"sweep": str(sweep.path), "dry_run": dry_run, "expected": len(sweep.cells)}
    report.data |= {**changes, "left_alone": left}
    return report.emit(fmt, f"{head}, {left} left alone, of {len(sweep.cells)} cells{tail}")


@main.command("report")
@sweep_argument
@cli.report_options
def show(path: Path, fmt: str | None) -> int:
    """Reconcile the cells of SWEEP with what was submitted, finished and verified. Exit 1 unless all are verified.

    Example: rgt sweep report lr.yaml --json
    """
    return _emit(Sweep(path.absolute()), fmt)


@main.command()
@sweep_argument
@click.option("--timeout", type=cli.Duration(), help="Stop waiting after this long; the jobs go on.")
@cli.report_options
def wait(path: Path, timeout: float | None, fmt: str | None) -> int:
    """Wait until no submitted cell of SWEEP is queued or running, then report. Exit 1 unless all are verified.

    Example: rgt sweep wait lr.yaml --timeout 12h
    """
    sweep, deadline = Sweep(path.absolute()), math.inf if timeout is None else time.monotonic() + timeout
    while True:
        start = time.monotonic()
        active = sum(row.state in record.ACTIVE for row in sweep.look(judge=False))
        if not active or time.monotonic() >= deadline:
            return _emit(sweep, fmt)
        progress(f"{active} of {len(sweep.cells)} cells are queued or running")
        # asking costs processes and connections: a tenth of the time at most, also of a big sweep
        pause = min(60.0, max(1.0, 9 * (time.monotonic() - start)))
        time.sleep(max(0.0, min(pause, deadline - time.monotonic())))


# -- sweep.yaml, and the runs that were made for it


@dataclass(frozen=True)
class Cell:
    id: str
    values: dict[str, str]
    spec: dict[str, Any]  # the job description with the values in it

    @property
    def title(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.values.items())

    @property
    def where(self) -> str:
        return f"{self.id} ({self.title})"


@dataclass
class Row:
    """What is known of one cell now."""

    cell: Cell
    state: str
    attempts: int = 0
    run: record.Run | None = None  # of the last attempt
    job: dict[str, Any] = field(default_factory=dict)  # its target and its description, from run.json
    exit_code: int | None = None
    detail: str = ""

    def as_dict(self) -> dict[str, Any]:
        row = {"cell": self.cell.id, "values": self.cell.values, "state": self.state, "attempts": self.attempts}
        row |= {"target": self.job.get("target"), "run": str(self.run.path) if self.run else None}
        return {**row, "exit_code": self.exit_code, "detail": self.detail}


class Sweep:
    """sweep.yaml with every job description it makes, checked before anything starts."""

    def __init__(self, path: Path, made: dict[str, Any] | None = None) -> None:
        """`made`: what the file will hold."""
        self.path, self.directory = path, path.with_suffix(".sweep")
        data = made or job.load_yaml(path, "sweep")
        given, self.verify = data["job"], data.get("verify", {})
        source = path.parent / given if isinstance(given, str) else path
        spec = job.load_yaml(source, "job") if isinstance(given, str) else given
        schema.check(spec, "job", str(source) if isinstance(given, str) else f"{path} job")
        if MARK in spec.get("env", {}):
            raise bad_input(f"{source} sets {MARK}, which is how a sweep finds its runs; take it out of env")
        # the folder is made absolute: the cells' descriptions lie elsewhere
        spec = {**spec, "workdir": job.from_dict(spec, source.parent).workdir}
        cells: dict[str, Cell] = {}
        used, asked = job.holes(spec), job.holes({"command": self.verify.get("command", [])})
        for values in _values(path, data):
            # each placeholder has a value in every cell, and each value has a place: else cells differ only in name
            for name in sorted((used | asked) - set(values)):
                raise bad_input(f"{path}: the job asks for {{{name}}}, but a cell has no {name}: {values}")
            for name in sorted(set(values) - used):
                raise bad_input(f"{path}: {name} never reaches the job; write {{{name}}} in command, args or env")
            cell_id = hashlib.sha256(files.dump(values, "a cell", sort_keys=True)).hexdigest()[:8]
            if cell_id in cells:
                raise bad_input(f"{path} has a cell twice: {cells[cell_id].title}; for repeats of a cell use seeds")
            cells[cell_id] = Cell(cell_id, values, job.fill(spec, values))
            self.job(cells[cell_id])  # raises when a duration or size cannot be read
        self.cells, self.targets = list(cells.values()), data.get("targets", ["local"])
        for target in self.targets:
            backends.parse_target(target)
        self.find_runs()

    def job(self, cell: Cell) -> job.Job:
        return job.from_dict(cell.spec, self.directory)

    def description(self, cell: str) -> Path:
        """The job description that launch reads."""
        return self.directory / f"{cell}.job.yaml"

    def find_runs(self) -> None:
        """self.runs: the attempts of each cell, oldest first, each with its record; also of cells that are gone."""
        self.runs: dict[str, list[tuple[record.Run, dict[str, Any]]]] = {}
        birth, self.id = self.directory / "sweep.json", ""
        if not birth.exists():
            return
        known = files.read_json(birth)
        if not isinstance(known, dict) or not isinstance(known.get("sweep_id"), str):
            raise bad_input(f"{birth} is not the record of a sweep")
        self.id = known["sweep_id"]
        # where launch put them: the sweep may have changed since
        roots = {root for path in self.directory.glob("*.job.yaml") for root in job.load(path).roots()}
        marked = []
        for one in {one for root in roots for one in record.find(root)}:
            with contextlib.suppress(RgtError):
                made = files.read_json(one.run_json, "run")
                sweep_id, _, rest = str(made["config"].get("env", {}).get(MARK, "")).partition("/")
                cell, _, number = rest.partition("/")
                if sweep_id == self.id and number.isdecimal():
                    marked.append((int(number), cell, one, made))
        for _, cell, one, made in sorted(marked, key=lambda row: row[:2]):
            self.runs.setdefault(cell, []).append((one, made))

    @contextlib.contextmanager
    def alone(self) -> Iterator[int]:
        """Locked against other submits, which wait. launch inherits the lock, in case it outlives us."""
        with files.locked(self.directory / "lock") as lock:
            if not (self.directory / "sweep.json").exists():
                files.write_json(self.directory / "sweep.json", {"sweep_id": record.mint_id(self.path.stem)})
            self.find_runs()
            yield lock

    def todo(self, retry: bool) -> list[Cell]:
        if not retry:
            return [cell for cell in self.cells if cell.id not in self.runs]
        return [row.cell for row in self.look() if row.state in ("missing", *BAD)]

    # -- what became of each cell

    def look(self, judge: bool = True) -> list[Row]:
        """The state of every cell, asked of the engines and, to `judge`, of the artifacts."""
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(lambda cell: self._look_at(cell, judge), self.cells))

    def _look_at(self, cell: Cell, judge: bool) -> Row:
        tried = self.runs.get(cell.id, [])
        if not tried:
            return Row(cell, "missing")
        one, made = tried[-1]
        row = Row(cell, "unknown", len(tried), one, made["job"])
        self._ask_engine(row, one)
        if not judge or row.state not in ("finished", "lost"):
            return row
        if "command" in self.verify or row.job["target"].startswith("local") or one.results.exists():
            state, why = self._verdict(cell, one)
            lost = row.state == "lost" and state == "unverified"
            row.state, row.detail = ("lost", f"{row.detail}; {why}") if lost else (state, why)
        elif row.state == "finished":
            row.state, row.detail = "unpulled", f"results.json is not in {one.path}"
        return row

    def _ask_engine(self, row: Row, one: record.Run) -> None:
        """`lost` is believed when no process carries the mark."""
        last = one.last_event() or {}
        if last.get("event") == record.FINISHED and last.get("exit_code") == 0:  # its engine was asked before
            row.state, row.exit_code = record.FINISHED, 0
            return
        try:
            now = backends.settle(*backends.open_order(one.path))
        except RgtError as error:  # a rented box that was given up will never answer
            row.state = "unknown" if row.job["target"] in self.targets else "lost"
            row.detail = error.message
            return
        row.state, row.exit_code, row.detail = now.state, now.exit_code, now.detail
        mark = f"{self.id}/{row.cell.id}/{row.attempts}"
        if now.state == "lost" and os.path.isdir("/proc/self") and any(processes.carrying(MARK, mark)):
            row.state, row.detail = "running", "processes of it live, though its engine does not know it (yet)"

    def _verdict(self, cell: Cell, one: record.Run) -> tuple[str, str]:
        """verified, unverified or unjudged, and why: by the sweep's command, or by results.json and a checkpoint."""
        if "command" in self.verify:
            words = job.fill(self.verify, {**cell.values, "run": str(one.path)})["command"]
            try:
                done = subprocess.run(words, cwd=one.path, capture_output=True, stdin=subprocess.DEVNULL)
            except OSError as error:
                return "unjudged", f"the verify command cannot be started: {words[0]}: {error.strerror}"
            last = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()[-1:]
            why = ": ".join([f"the verify command ended with {done.returncode}", *last])
            return ("unverified", why) if done.returncode else ("verified", "")
        try:
            results = files.read_json(one.results, "results")
            if results["run_id"] != one.id:
                raise bad_input(f"{one.results} belongs to another run: {results['run_id']}")
            for metric in results["metrics"]:
                if not math.isfinite(metric["value"]):
                    raise bad_input(f"{one.results}: {metric['name']} is {metric['value']}")
            problem = _checkpoint_problem(one) if self.verify.get("checkpoint", True) else ""
        except RgtError as error:
            return "unverified" if error.exit_code == errors.BAD_INPUT else "unjudged", error.message
        except Exception as error:  # whatever is wrong with one checkpoint, the other cells are still reported
            return "unjudged", f"its checkpoint cannot be judged: {type(error).__name__}: {error}"
        return ("unverified", problem) if problem else ("verified", "")


def _from_command(path: Path, words: tuple[str, ...], grid: tuple[str, ...], judge: str) -> dict[str, Any]:
    values = {name: text.split(",") for name, _, text in (one.partition("=") for one in grid)}
    if not words or not values:
        raise bad_input("a sweep of a command needs both: --grid lr=1e-3,1e-4 -- python train.py --lr {lr}")
    command = {"name": path.stem, "command": list(words), "workdir": os.getcwd()}
    data: dict[str, Any] = {"job": command, "grid": values}
    if judge:
        data["verify"] = {"command": shlex.split(judge)}
    schema.check(data, "sweep", "--grid")
    if path.exists() and job.load_yaml(path) != data:
        raise bad_input(f"{path} holds another sweep; run it without a command, or name a new file")
    return data


def _values(path: Path, data: dict[str, Any]) -> list[dict[str, str]]:
    grid, both = data.get("grid", {}), "grid" in data and "cells" in data
    if both or not {"grid", "cells", "seeds"} & set(data):
        problem = "gives both grid and cells" if both else "names no cells"
        raise bad_input(f"{path} {problem}; it needs grid (every combination) or cells (exactly these), or seeds alone")
    if "seeds" in data and any("seed" in row for row in (grid, *data.get("cells", []))):
        raise bad_input(f"{path} gives seed twice: in seeds and among the values")
    rows = data.get("cells") or [dict(zip(grid, row, strict=True)) for row in itertools.product(*grid.values())]
    if "seeds" in data:
        rows = [{**row, "seed": seed} for row in rows for seed in data["seeds"]]
    return [{name: job.text(value) for name, value in row.items()} for row in rows]


def _checkpoint_problem(one: record.Run) -> str:
    """Of the last checkpoint that the index names, else of the newest by time."""
    from rgt.checkpoint.inventory import Checkpoint  # here, because `--help` need not pay for it

    index = one.checkpoints_index
    listed = files.read_json(index, "checkpoints_index")["checkpoints"] if index.exists() else []
    visible = [path for path in one.checkpoints.glob("*") if not path.name.startswith(".")]
    there = [one.path / row["path"] for row in listed] or sorted(visible, key=lambda path: path.stat().st_mtime_ns)
    if not there:
        return f"{one.checkpoints} holds no checkpoint (a job without one: verify: {{checkpoint: false}})"
    problems = Checkpoint(there[-1], 0).read().named_problems()
    wrong = next((problem for problem in problems if problem.severity == "error"), None)
    return f"its checkpoint: {wrong.code}: {wrong.message}" if wrong else ""


# -- submitting


def _submit_all(sweep: Sweep, todo: list[Cell], lock: int, report: Report) -> list[Row]:
    """To the target with the fewest cells so far. One that fails is left out: what failed once fails for each cell."""
    begun: list[Row] = []
    targets = list(sweep.targets)
    load = Counter(tried[-1][1]["job"]["target"] for tried in sweep.runs.values())
    for number, cell in enumerate(todo, 1):
        row = None
        while targets and not row:
            target = min(targets, key=lambda name: load[name])
            row, problem = _submit(sweep, cell, target, lock, look_first=not load[target])
            if row:
                begun.append(row)
                load[target] += 1
                progress(f"{number}/{len(todo)} {cell.where} -> {target}: {row.as_dict()['run']}")
            if problem:
                targets.remove(target)
                report.add("failed", "error", f"{target} did not take the cell: {problem}", where=cell.where)
        if not row:
            message = f"{len(todo) - number + 1} cells are not submitted: no target is left"
            fix = f"mend what is said above, then {bundle.command('sweep', 'run', sweep.path)}"
            report.add("unfinished", "error", message, fix=fix)
            break
    return begun


def _submit(sweep: Sweep, cell: Cell, target: str, lock: int, look_first: bool) -> tuple[Row | None, str]:
    """One attempt at one cell, and why it failed (empty when it did not).

    What is wrong with one cell's paths or room is wrong with all: only the first on a target is looked at.
    """
    number = len(sweep.runs.get(cell.id, [])) + 1
    mark, description = {MARK: f"{sweep.id}/{cell.id}/{number}"}, sweep.description(cell.id)
    # a run id is cut at 40 characters, and must still tell the cell
    name = f"{record.slugify(cell.spec['name'])[:31]}-{cell.id}"
    files.write_json(description, {**cell.spec, "name": name, "env": {**cell.spec.get("env", {}), **mark}})
    words = ["submit", str(description), "--on", target, *([] if look_first else ["--no-preflight"])]
    reply = job.launch(*words, env={**os.environ, **mark}, keep_open=(lock,))
    made = reply.data.get("run")
    if not made:  # it may have failed half-way
        before = sweep.runs.get(cell.id, [])
        sweep.find_runs()
        made = next((str(one.path) for one, _ in sweep.runs.get(cell.id, [])[len(before) :]), None)
    row = Row(cell, "submitted", number, record.Run(Path(made)), {"target": target}) if made else None
    return row, "" if reply.code == errors.OK else reply.sentence


# -- the report


def _emit(sweep: Sweep, fmt: str | None) -> int:
    report, rows = Report("sweep"), sweep.look()
    again = bundle.command("sweep", "run", sweep.path)
    for row in rows:
        run = str(row.run.path) if row.run else ""
        if row.state in _FINDINGS:
            code, severity, message, fix = _FINDINGS[row.state]
            ended = "" if row.exit_code is None else f", exit code {row.exit_code}"
            detail = f": {row.detail}" if row.detail else ""
            advice = fix.format(run=run, logs=bundle.command("launch", "logs", run), again=again) or None
            report.add(code, severity, f"{message}{ended}{detail}", path=run, where=row.cell.where, fix=advice)
        if row.run and _experiment(row.job["spec"]) != _experiment(sweep.job(row.cell).spec()):
            message = "ran with a job description that was changed since"
            report.add("superseded", "info", message, path=run, where=row.cell.where)
    for cell in sorted(set(sweep.runs) - {cell.id for cell in sweep.cells}):
        report.add("removed", "info", "not in the sweep any more", path=str(sweep.runs[cell][-1][0].path), where=cell)
    states = Counter(row.state for row in rows)
    # expected is the sum of all states; submitted and finished cut across them
    finished = sum(states[state] for state in ("verified", "unverified", "unpulled", "unjudged"))
    counts = {"expected": len(rows), "submitted": len(rows) - states["missing"], "finished": finished}
    counts |= {state: states[state] for state in STATES}
    report.data = {"sweep": str(sweep.path), "counts": counts, "cells": [row.as_dict() for row in rows]}
    for row in rows[:_ROWS] if fmt is None else []:
        title = row.cell.title
        values = title if len(title) <= _VALUES else title[: _VALUES - 3] + "..."
        target, run = row.job.get("target", "-"), row.run.id if row.run else "-"
        click.echo(f"{row.cell.id}  {row.state:10}  {row.attempts} tried  {target:12}  {values}  {run}")
    if fmt is None and len(rows) > _ROWS:
        click.echo(f"... and {len(rows) - _ROWS} more; --json lists them all")
    parts = " + ".join(f"{states[state]} {state}" for state in STATES if states[state] or state in _ALWAYS_SHOWN)
    summary = f"{len(rows)} expected = {parts}; {counts['submitted']} submitted, {finished} finished"
    return report.emit(fmt, summary)


def _experiment(spec: dict[str, Any]) -> dict[str, Any]:
    """What defines the experiment, without our own mark."""
    told = {name: spec[name] for name in _EXPERIMENT if spec.get(name)}
    return {**told, "env": {name: value for name, value in told.get("env", {}).items() if name != MARK}}


if __name__ == "__main__":
    main()
