"""The cells of a sweep: what they are (sweep.yaml), every attempt at them (cells.jsonl), and what became of each.

Asked in this order: the engine (is it still running?), then the artifact itself (results.json and a checkpoint that
verify). Neither an exit code nor a log line proves a cell.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rgt import errors, files, schema
from rgt.errors import RgtError, bad_input
from rgt.job import backends
from rgt.job import description as job
from rgt.machine import processes
from rgt.report import progress
from rgt.run import record
from rgt.run.record import ACTIVE, mint_id, slugify

MARK = "RGT_CELL"  # in the environment of every process of an attempt, and in its run.json
# Ended without an artifact to show; --retry submits these again. `unknown` is not one of them: it may be running.
BAD = ("failed", "stopped", "lost", "unverified")
STATES = ("verified", *BAD, "unpulled", "unjudged", *ACTIVE, "unknown", "missing")
_AT_ONCE = 4  # questions to engines and verifications


# -- sweep.yaml


@dataclass(frozen=True)
class Cell:
    id: str
    values: dict[str, str]
    spec: dict[str, Any]  # the job description with the values in it

    @property
    def title(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.values.items())

    @property
    def name(self) -> str:
        """Name of its job; the run id is cut at 40 characters and must still end in the cell's id."""
        return f"{slugify(self.spec['name'])[:31]}-{self.id}"

    @property
    def job_sha256(self) -> str:
        """Hash of what defines the experiment; a longer time limit does not change it."""
        told = {key: self.spec.get(key) for key in ("command", "script", "args", "env", "workdir", "image")}
        return record.config_hash(told)


@dataclass(frozen=True)
class Sweep:
    path: Path
    cells: list[Cell]
    targets: list[str]
    verify: dict[str, Any]

    @property
    def directory(self) -> Path:
        return self.path.with_suffix(".sweep")

    def description(self, cell: str) -> Path:
        """The job description that launch reads."""
        return self.directory / f"{cell}.job.yaml"

    def job(self, cell: Cell) -> job.Job:
        return job.from_dict(cell.spec, self.directory)


def load(path: Path) -> Sweep:
    """Read sweep.yaml and every job description it makes, before anything starts."""
    path = path.absolute()
    data = job.load_yaml(path, "sweep")
    given, verify = data["job"], data.get("verify", {})
    source = path.parent / given if isinstance(given, str) else path
    spec = job.load_yaml(source, "job") if isinstance(given, str) else given
    schema.check(spec, "job", str(source) if isinstance(given, str) else f"{path} job")
    if MARK in spec.get("env", {}):
        raise bad_input(f"{source} sets {MARK}, which is how a sweep finds its runs; take it out of env")
    # the folder is made absolute: the cells' descriptions lie elsewhere
    spec = {**spec, "workdir": job.from_dict(spec, source.parent).workdir}
    cells: dict[str, Cell] = {}
    used, asked = job.holes(spec), job.holes({"command": verify.get("command", [])})
    for values in _values(path, data):
        # each placeholder has a value in every cell, and each value has a place: else cells would differ only in name
        for name in sorted((used | asked) - set(values)):
            raise bad_input(f"{path}: the job asks for {{{name}}}, but a cell has no {name}: {values}")
        for name in sorted(set(values) - used):
            raise bad_input(f"{path}: {name} never reaches the job; write {{{name}}} in command, args or env")
        cell_id = hashlib.sha256(files.dump(values, "a cell", sort_keys=True)).hexdigest()[:8]
        cell = Cell(cell_id, values, job.fill(spec, values))
        if cell_id in cells:
            raise bad_input(f"{path} has a cell twice: {cell.title}; for repeats of a cell use seeds")
        cells[cell_id] = cell
        job.from_dict(cell.spec, path.parent)  # raises when a duration or size cannot be read
    for target in (targets := data.get("targets", ["local"])):
        backends.parse_target(target)
    return Sweep(path, list(cells.values()), targets, verify)


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


# -- cells.jsonl: the intent of an attempt is written first, so a kill at any moment leaves a trace


@dataclass
class Attempt:
    cell: str
    number: int
    target: str
    values: dict[str, str]
    job_sha256: str
    run: record.Run | None = None
    refused: str = ""
    fingerprint: str = ""  # of the artifact as it was when it verified


@dataclass
class Ledger:
    """cells.jsonl. `mark` is what the processes of an attempt carry."""

    directory: Path
    sweep_id: str = ""
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.directory / "cells.jsonl"

    def mark(self, attempt: Attempt) -> str:
        return f"{self.sweep_id}/{attempt.cell}/{attempt.number}"

    def last(self, cell: str) -> Attempt | None:
        """The newest attempt that has a run."""
        return next((each for each in reversed(self.attempts.get(cell, [])) if each.run), None)

    def unsettled(self) -> list[Attempt]:
        """Attempts that were begun, with no record of a run or a refusal."""
        return [each for tried in self.attempts.values() for each in tried if not each.run and not each.refused]

    def write(self, event: str, attempt: Attempt, **detail: Any) -> None:
        row = {"time": time.time(), "event": event, "cell": attempt.cell, "attempt": attempt.number, **detail}
        files.append_jsonl(self.path, row)
        self.apply(row)

    def settle(self, attempt: Attempt, run: str, reason: str) -> None:
        """Record the run that an attempt got, or the reason why it got none."""
        if run:
            self.write("submitted", attempt, run=run)
        else:
            self.write("refused", attempt, reason=reason)

    def apply(self, row: dict[str, Any]) -> None:
        tried = self.attempts.setdefault(row["cell"], [])
        if row["event"] == "intent":
            tried.append(Attempt(row["cell"], row["attempt"], row["target"], dict(row["values"]), row["job_sha256"]))
        attempt = next((each for each in tried if each.number == row["attempt"]), None)
        if attempt is None:
            raise bad_input(f"{self.path} tells of an attempt that it never began: {row['cell']} {row['attempt']}")
        attempt.refused = row.get("reason", attempt.refused)
        attempt.fingerprint = row.get("fingerprint", attempt.fingerprint)
        attempt.run = record.Run(Path(row["run"])) if "run" in row else attempt.run


def read_ledger(sweep: Sweep) -> Ledger:
    ledger = Ledger(sweep.directory)
    birth = sweep.directory / "sweep.json"
    if birth.exists():
        known = files.read_json(birth)
        if not isinstance(known, dict) or not {"sweep_id", "sweep"} <= set(known):
            raise bad_input(f"{birth} is not the record of a sweep")
        if known["sweep"] != sweep.path.name:
            raise bad_input(f"{sweep.directory} belongs to {known['sweep']}, not to {sweep.path.name}; rename one")
        ledger.sweep_id = str(known["sweep_id"])
    for row in files.read_jsonl(ledger.path) if ledger.path.exists() else []:
        try:
            ledger.apply(row)
        except (KeyError, TypeError, AttributeError):
            raise bad_input(f"{ledger.path} has a row that no sweep wrote: {str(row)[:100]}") from None
    return ledger


@contextlib.contextmanager
def alone(sweep: Sweep) -> Iterator[tuple[Ledger, int]]:
    """The ledger, locked against other submits. launch inherits the lock, in case it outlives us."""
    with contextlib.ExitStack() as held:
        try:
            lock = held.enter_context(files.locked(sweep.directory / "lock", wait=False))
        except BlockingIOError:
            progress("another submit of this sweep is under way; waiting for its end")
            lock = held.enter_context(files.locked(sweep.directory / "lock"))
        if not (sweep.directory / "sweep.json").exists():
            now = datetime.now(timezone.utc).isoformat(timespec="seconds")
            birth = {"sweep_id": mint_id(sweep.path.stem), "sweep": sweep.path.name, "created": now}
            files.write_json(sweep.directory / "sweep.json", birth)
        yield read_ledger(sweep), lock


# -- what became of each cell


@dataclass
class Row:
    """What is known of one cell now."""

    cell: Cell
    state: str
    attempts: int = 0
    attempt: Attempt | None = None
    exit_code: int | None = None
    detail: str = ""

    @property
    def run(self) -> record.Run | None:
        return self.attempt.run if self.attempt else None

    def as_dict(self) -> dict[str, Any]:
        target, run = self.attempt.target if self.attempt else None, str(self.run.path) if self.run else None
        row = {"cell": self.cell.id, "values": self.cell.values, "state": self.state, "attempts": self.attempts}
        return {**row, "target": target, "run": run, "exit_code": self.exit_code, "detail": self.detail}


def look(sweep: Sweep, ledger: Ledger, write: bool = True) -> list[Row]:
    """The state of every cell, asked of the engines and of the artifacts."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        rows = list(pool.map(lambda cell: _look_at(sweep, ledger, cell), sweep.cells))
    for row in rows:
        if write and row.state == "verified" and row.attempt and row.run:
            now = _fingerprint(sweep, row.run)
            if now != row.attempt.fingerprint:
                ledger.write("verified", row.attempt, run=str(row.run.path), fingerprint=now)
    return rows


def _look_at(sweep: Sweep, ledger: Ledger, cell: Cell) -> Row:
    tried, attempt = len(ledger.attempts.get(cell.id, [])), ledger.last(cell.id)
    if attempt is None or attempt.run is None:
        return Row(cell, "missing", tried)
    run, own_judge = attempt.run, "command" in sweep.verify
    # its engine was asked when it verified first
    if attempt.fingerprint and attempt.fingerprint == _fingerprint(sweep, run):
        state, detail = _verdict(sweep, cell, run) if own_judge else ("verified", "")
        return Row(cell, state, tried, attempt, detail=detail)
    state, code, detail = _ask_engine(sweep, ledger, attempt, run)
    if state in ("finished", "lost") and (own_judge or attempt.target.startswith("local") or run.results.exists()):
        verdict, why = _verdict(sweep, cell, run)
        lost = state == "lost" and verdict == "unverified"
        state, detail = ("lost", f"{detail}; {why}") if lost else (verdict, why)
    elif state == "finished":
        state, detail = "unpulled", f"results.json is not in {run.path}"
    return Row(cell, state, tried, attempt, code, detail)


def _ask_engine(sweep: Sweep, ledger: Ledger, attempt: Attempt, run: record.Run) -> tuple[str, int | None, str]:
    """State, exit code and detail as its engine tells them. `lost` is believed when no process carries the mark."""
    try:
        now = backends.settle(*backends.open_order(run.path))
    except RgtError as error:  # a rented box that was given up will never answer
        return "unknown" if attempt.target in sweep.targets else "lost", None, error.message
    state, code, detail = now.state, now.exit_code, now.detail
    if state == "lost" and (run.last_event() or {}).get("event") == "finished":
        return "finished", 0, "its engine has forgotten it; its record says that it finished"
    if state == "lost" and os.path.isdir("/proc/self") and any(processes.carrying(MARK, ledger.mark(attempt))):
        return "running", None, "processes of it live, though its engine does not know it (yet)"
    return state, code, detail


def _verdict(sweep: Sweep, cell: Cell, run: record.Run) -> tuple[str, str]:
    """verified, unverified or unjudged, and why: by the sweep's own command, or by results.json and a checkpoint."""
    if "command" in sweep.verify:
        words = job.fill(sweep.verify, {**cell.values, "run": str(run.path)})["command"]
        try:
            done = subprocess.run(words, cwd=run.path, capture_output=True, stdin=subprocess.DEVNULL)
        except OSError as error:
            return "unjudged", f"the verify command cannot be started: {words[0]}: {error.strerror}"
        last = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()[-1:]
        why = ": ".join([f"the verify command ended with {done.returncode}", *last])
        return ("unverified", why) if done.returncode else ("verified", "")
    from rgt.checkpoint.inventory import Checkpoint  # here, because `--help` need not pay for it

    try:
        results = files.read_json(run.results, "results")
        if results["run_id"] != run.id:
            raise bad_input(f"{run.results} belongs to another run: {results['run_id']}")
        for metric in results["metrics"]:
            if not math.isfinite(metric["value"]):
                raise bad_input(f"{run.results}: {metric['name']} is {metric['value']}")
        problems: list[Any] = []
        if sweep.verify.get("checkpoint", True):
            index = run.checkpoints_index  # where it names none, the newest by time
            listed = files.read_json(index, "checkpoints_index")["checkpoints"] if index.exists() else []
            visible = [path for path in run.checkpoints.glob("*") if not path.name.startswith(".")]
            visible.sort(key=lambda path: path.stat().st_mtime_ns)
            there = [run.path / row["path"] for row in listed] or visible
            if not there:
                none = f"{run.checkpoints} holds no checkpoint"
                raise bad_input(f"{none} (a job without one: verify: {{checkpoint: false}})")
            problems = Checkpoint(Path(there[-1]), 0).read().named_problems()
    except RgtError as error:
        return "unverified" if error.exit_code == errors.BAD_INPUT else "unjudged", error.message
    except Exception as error:  # whatever is wrong with one checkpoint, the other cells are still reported
        return "unjudged", f"its checkpoint cannot be judged: {type(error).__name__}: {error}"
    wrong = next((problem for problem in problems if problem.severity == "error"), None)
    return ("unverified", f"its checkpoint: {wrong.code}: {wrong.message}") if wrong else ("verified", "")


def _fingerprint(sweep: Sweep, run: record.Run) -> str:
    """Hash of the verify rule and of the artifact's sizes and times: cheap enough for every report."""
    paths = [run.results, run.checkpoints_index, *sorted(run.checkpoints.rglob("*"))]
    seen = [(str(p.relative_to(run.path)), (s := p.stat()).st_size, s.st_mtime_ns) for p in paths if p.is_file()]
    return hashlib.sha256(json.dumps([sweep.verify, seen]).encode()).hexdigest()
