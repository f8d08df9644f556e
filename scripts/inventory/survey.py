"""What runs left below a directory: run directories, logs, metric tables, checkpoints, whoever wrote them and however.

Example:
    found = look(Path("exp"), deadline=time.monotonic() + 1)
    found.runs        newest first: path, log, summary, checkpoints        found.stopped    what was left out, and why

Names first (walk.py), then the ends of the files that matter (tables.py, ckpt.py).
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inventory import ckpt, tables
from inventory.walk import Met, Walk
from rgt import logs

_READ_RUNS = 20  # runs whose newest checkpoint is read, not only its structure
_READ_SECONDS = 0.4  # for reading newest checkpoints byte by byte, all runs together
_LOG = re.compile(r".*\.(?:log|out|err)|(?:train|log|stdout|stderr|output)[\w-]*\.txt", re.I | re.S)
# not every .jsonl: train.jsonl is a data set
_TABLE = re.compile(
    r"(?:.*[-_.])?(?:metrics|logs?|history|progress)(?:[-_.].*)?\.jsonl|(?:metrics|progress)\.csv|trainer_state\.json"
    r"|wandb-summary\.json",
    re.I | re.S,
)
_NOT_LOG = re.compile(
    r"events\.jsonl|(?:pip|apt|dpkg|install|build|setup|debug-internal|debug)[\w.-]*\.log|wandb-\w+\.log", re.I
)
# folders inside a run, not runs themselves
_INNER = {"checkpoints", "checkpoint", "ckpt", "ckpts", "weights", "models", "snapshots", "files", "logs", "log", "out"}


@dataclass
class File:
    path: str
    bytes: int
    mtime: float


@dataclass
class Run:
    """One run: a run directory, or a log with what lies beside it. `kind` is run, log, table or checkpoints."""

    path: str
    kind: str
    newest: float = 0.0
    log: File | None = None
    table: File | None = None
    tfevents: bool = False
    checkpoints: list[File] = field(default_factory=list)  # oldest first; a directory may be one
    check: ckpt.Check | None = None  # of the newest
    summary: logs.Summary = field(default_factory=logs.Summary)
    finished: bool = False
    read: bool = False  # False: there was no time to
    pid: int | None = None

    @property
    def age(self) -> float:
        """Seconds since the last line; since the last checkpoint where there is no log."""
        return max(0.0, time.time() - self.newest)

    def as_dict(self) -> dict[str, Any]:
        row: dict[str, Any] = {
            "path": self.path,
            "kind": self.kind,
            "age": round(self.age, 1),
            "finished": self.finished,
        }
        row |= {name: file.path for name, file in (("log", self.log), ("table", self.table)) if file}
        row |= self.summary.as_dict() if self.read else {"unread": True}
        if self.checkpoints:
            total = sum(file.bytes for file in self.checkpoints)
            row["checkpoints"] = {"count": len(self.checkpoints), "bytes": total, "newest": self._newest()}
        return row | {name: value for name, value in (("pid", self.pid), ("tfevents", self.tfevents)) if value}

    def _newest(self) -> dict[str, Any]:
        newest = self.checkpoints[-1]
        check = (
            self.check.as_dict() if self.check else {"state": "unchecked", "path": newest.path, "bytes": newest.bytes}
        )
        return {**check, "age": round(max(0.0, time.time() - newest.mtime), 1)}


@dataclass
class Found:
    root: str
    runs: list[Run] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)


def look(root: Path, deadline: float, check: bool = True) -> Found:
    """Everything below `root`. `deadline` is of time.monotonic(); what is not done by then is said, not waited for.

    Without `check` the files are only listed, neither read nor checked.
    """
    found = Found(str(root))
    sorter = _Sorter(str(root))
    for directory, entry, prepared in Walk(str(root), deadline, found.stopped):
        sorter.add(directory, entry, prepared)
    found.runs = sorted(sorter.runs(), key=lambda run: -run.newest)
    if not check:
        return found
    left = 0
    for run in found.runs:
        if time.monotonic() < deadline:
            _read(run)
        else:
            left += 1
    if left:
        found.stopped.append(f"{left} of {len(found.runs)} runs were not read: the time was over")
    _check_newest(found.runs, deadline)
    return found


# -- what belongs together


@dataclass
class _Home:
    """Files of one run, or of one directory of runs."""

    path: str
    prepared: bool
    logs: list[File] = field(default_factory=list)
    tables: list[File] = field(default_factory=list)
    checkpoints: dict[str, File] = field(default_factory=dict)
    tfevents: float = 0.0
    finished: bool = False

    def add(self, kind: str, directory: str, file: File) -> None:
        if kind == "checkpoint":
            self._add_checkpoint(directory, file)
        elif kind == "tfevents":
            self.tfevents = max(self.tfevents, file.mtime)
        elif kind == "result":
            self.finished = True
        else:
            (self.tables if kind == "table" else self.logs).append(file)

    def _add_checkpoint(self, directory: str, file: File) -> None:
        """One file, or the directory whose files only together are a checkpoint."""
        name, folder = os.path.basename(file.path), os.path.basename(directory)
        path = directory if ckpt.STEP_DIRECTORY.fullmatch(folder) or ckpt.is_shard(name) else file.path
        known = self.checkpoints.setdefault(path, File(path, 0, 0.0))
        known.bytes += file.bytes
        known.mtime = max(known.mtime, file.mtime)

    def runs(self) -> Iterator[Run]:
        """A run directory is one run. Elsewhere every log is one, with the table and checkpoints if it is alone."""
        text = sorted(self.logs, key=lambda file: file.mtime)
        table = max(self.tables, key=lambda file: (_rank(file.path), file.mtime), default=None)
        weights = sorted(self.checkpoints.values(), key=lambda file: file.mtime)
        if self.prepared or len(text) <= 1:
            log = text[-1] if text else None
            if self.prepared:
                log = next((file for file in text if os.path.basename(file.path) == "train.log"), log)
            kind = "run" if self.prepared else "log" if log else "table" if table else "checkpoints"
            yield self._run(kind, log, table, weights)
            return
        for log in text:
            yield self._run("log", log, None, [])
        if table or weights:
            yield self._run("table" if table else "checkpoints", None, table, weights)

    def _run(self, kind: str, log: File | None, table: File | None, weights: list[File]) -> Run:
        path = log.path if kind == "log" and log else self.path
        lines = [file.mtime for file in (log, table) if file]
        newest = max(
            [*lines, self.tfevents] if lines else [self.tfevents, *(file.mtime for file in weights)], default=0.0
        )
        tfevents = self.tfevents > 0
        return Run(path, kind, newest, log, table, tfevents, weights, finished=self.finished and self.prepared)


def _rank(path: str) -> int:
    """Of several tables the one written line by line is best."""
    name = os.path.basename(path)
    return 2 if name.endswith(".jsonl") else 1 if name.endswith(".csv") else 0


class _Sorter:
    """Puts every file that matters to its run. A link to a file that was met as itself is not a second one."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.homes: dict[str, _Home] = {}
        self.met: set[tuple[int, int]] = set()
        self.links: list[Met] = []

    def runs(self) -> Iterator[Run]:
        links, self.links = self.links, []
        for link in links:
            self._put(*link)
        for home in self.homes.values():
            yield from home.runs()

    def add(self, directory: str, entry: os.DirEntry[str], prepared: str) -> None:
        if _kind(entry.name):
            if entry.is_symlink():
                self.links.append((directory, entry, prepared))
            else:
                self._put(directory, entry, prepared)

    def _put(self, directory: str, entry: os.DirEntry[str], prepared: str) -> None:
        try:
            status = entry.stat()
        except OSError:  # a link that leads nowhere
            return
        inode = (status.st_dev, status.st_ino)
        if not stat.S_ISREG(status.st_mode) or inode in self.met:  # a FIFO must never be opened
            return
        self.met.add(inode)
        path = prepared or _home(directory, self.root)
        home = self.homes.setdefault(path, _Home(path, bool(prepared)))
        home.add(_kind(entry.name), directory, File(entry.path, status.st_size, status.st_mtime))


def _kind(name: str) -> str:
    """What a file is to a run, by its name; empty when it is nothing."""
    if ckpt.is_checkpoint(name):
        return "checkpoint"
    if "tfevents" in name:
        return "tfevents"
    if name == "results.json":
        return "result"
    if _NOT_LOG.fullmatch(name):
        return ""
    return "table" if _TABLE.fullmatch(name) else "log" if _LOG.fullmatch(name) else ""


def _home(directory: str, root: str) -> str:
    """The run a file belongs to: checkpoints/, checkpoint-500/ and logs/ are parts of the run around them."""
    while directory != root:
        name = os.path.basename(directory)
        if name.lower() not in _INNER and not ckpt.STEP_DIRECTORY.fullmatch(name):
            break
        directory = os.path.dirname(directory)
    return directory


# -- what they say


def _read(run: Run) -> None:
    """Metrics from the table where there is one; what went wrong from the log."""
    run.read = True
    told = tables.read_log(run.log.path) if run.log else logs.Summary()
    if run.table:
        run.summary = tables.read_table(run.table.path)
        run.summary.problems += [problem for problem in told.problems if problem.code != "nan"]
        run.summary.last_line = told.last_line or run.summary.last_line
        run.summary.fill({name: getattr(told, name) for name in ("total", "epoch", "epochs", "it_per_s", "eta")})
        run.summary.fill({"metrics": told.metrics})
    else:
        run.summary = told
    if run.kind == "run":
        tables.fill_totals(run.summary, run.path)
    run.summary.finish_eta()


def _check_newest(runs: list[Run], deadline: float) -> None:
    """Structure of every run's newest checkpoint; the most recent ones are also read while the time lasts."""
    budget, reading = ckpt.READ, min(deadline, time.monotonic() + _READ_SECONDS)
    by_age = sorted((run for run in runs if run.checkpoints), key=lambda run: -run.checkpoints[-1].mtime)
    for number, run in enumerate(by_age):
        newest = run.checkpoints[-1]
        if time.monotonic() > deadline + _READ_SECONDS:
            return
        read = budget if time.monotonic() < reading and number < _READ_RUNS else 0
        run.check = ckpt.inspect(Path(newest.path), read, reading)
        if run.check.depth == "read":
            budget -= newest.bytes
