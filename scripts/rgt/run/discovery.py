"""What runs left below a directory: run directories, logs, metric tables, checkpoints, whoever wrote them and however.

Example:
    found = discover(Path("exp"), deadline=time.monotonic() + 1)
    found.runs        newest first: path, log, summary, checkpoints        found.stopped    what was left out, and why

Names first, then the ends of the files that matter.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt.checkpoint import names
from rgt.log import summary as logs
from rgt.log.history import History
from rgt.log.line import is_sane
from rgt.metrics.table import is_curve
from rgt.walk import Met, walk

if TYPE_CHECKING:
    from rgt.checkpoint.whole import Verdict

_RANKS = {".jsonl": 2, ".csv": 1}  # of several tables the one written line by line is best
_RECORD_BYTES = 1 << 20  # of a run.json
TOTALS = {
    "total": "steps max_steps max_iters total_steps train_steps".split(),
    "epochs": "epochs max_epochs num_epochs num_train_epochs".split(),
}
_END = 64 << 10  # bytes of a log or table that are read: there may be hundreds
_LOOK, _LOOK_LINES = 8 << 10, 60  # of a text whose name says nothing
_READ_RUNS = 20  # runs whose newest checkpoint is read, not only its structure
_READ_SECONDS = 0.4  # for reading newest checkpoints byte by byte, all runs together
_LOG = re.compile(
    r".*\.(?:log|out|err)|(?:train|log|stdout|stderr|out|output|console|screen|history)[\w-]*\.txt", re.I | re.S
)
# not every .jsonl: train.jsonl is a data set
_TABLE = re.compile(
    r"(?:.*[-_.])?(?:metrics|logs?|history|progress)(?:[-_.].*)?\.jsonl|(?:metrics|progress)\.csv|trainer_state\.json|.*\.log\.json"
    r"|wandb-summary\.json",
    re.I | re.S,
)
_NOT_LOG = re.compile(
    r"events\.jsonl|(?:pip|apt|dpkg|install|build|setup|debug-internal|debug)[\w.-]*\.log|wandb-\w+\.log", re.I
)
# folders inside a run, not runs themselves
INNER = set("checkpoints checkpoint ckpt ckpts weights models snapshots files logs log out vis_data".split())


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
    check: Verdict | None = None  # of the newest
    summary: History = field(default_factory=History)
    finished: bool = False
    read: bool = False  # False: there was no time to
    pid: int | None = None

    @property
    def age(self) -> float:
        """Seconds since the last line; since the last checkpoint where there is no log."""
        return max(0.0, time.time() - self.newest)

    def as_dict(self) -> dict[str, Any]:
        row: dict[str, Any] = {"path": self.path, "kind": self.kind, "age": round(self.age, 1)}
        row |= {"finished": self.finished}
        row |= {name: file.path for name, file in (("log", self.log), ("table", self.table)) if file}
        row |= self.summary.brief() if self.read else {"unread": True}
        if self.checkpoints:
            newest, total = self.checkpoints[-1], sum(file.bytes for file in self.checkpoints)
            unchecked = {"state": "unchecked", "path": newest.path, "bytes": newest.bytes}
            check = self.check.as_dict() if self.check else unchecked
            age = round(max(0.0, time.time() - newest.mtime), 1)
            row["checkpoints"] = {"count": len(self.checkpoints), "bytes": total, "newest": {**check, "age": age}}
        return row | {name: value for name, value in (("pid", self.pid), ("tfevents", self.tfevents)) if value}


@dataclass
class Found:
    root: str
    runs: list[Run] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)


def discover(root: Path, deadline: float, check: bool = True) -> Found:
    """Everything below `root`. `deadline` is of time.monotonic(); what is not done by then is said, not waited for.

    Without `check` the files are only listed, neither read nor checked.
    """
    found = Found(str(root))
    homes = _sort(str(root), [met for met in walk(str(root), deadline, found.stopped) if _kind(met[1].name)])
    found.runs = sorted((run for home in homes for run in home.runs()), key=lambda run: -run.newest)
    if not check:
        return found
    for run in found.runs:
        if time.monotonic() < deadline:
            _read(run)
    if left := sum(not run.read for run in found.runs):
        found.stopped.append(f"{left} of {len(found.runs)} runs were not read: the time was over")
    from rgt.checkpoint import whole  # the readers of all formats: not needed to list files

    # structure of every run's newest checkpoint; the most recent ones are also read while the time lasts
    budget, reading = whole.READ, min(deadline, time.monotonic() + _READ_SECONDS)
    by_age = sorted((run for run in found.runs if run.checkpoints), key=lambda run: -run.checkpoints[-1].mtime)
    for number, run in enumerate(by_age):
        newest = run.checkpoints[-1]
        if time.monotonic() > deadline + _READ_SECONDS:
            break
        read = budget if time.monotonic() < reading and number < _READ_RUNS else 0
        run.check = whole.verdict(Path(newest.path), read=read, read_until=reading)
        if run.check.depth == "read":
            budget -= newest.bytes
    return found


# -- what belongs together


@dataclass
class _Home:
    """Files of one run, or of one directory of runs, by kind and path."""

    path: str
    prepared: bool
    files: dict[str, dict[str, File]] = field(default_factory=lambda: defaultdict(dict))

    def runs(self) -> Iterator[Run]:
        """A run directory is one run. Elsewhere every log is one, with the table and checkpoints if it is alone."""
        logs, tables, weights = (list(self.files[kind].values()) for kind in ("log", "table", "checkpoint"))
        logs.sort(key=lambda file: (self.prepared and file.path.endswith("/train.log"), file.mtime))
        table = max(tables, key=lambda file: (_RANKS.get(Path(file.path).suffix, 0), file.mtime), default=None)
        weights.sort(key=lambda file: file.mtime)
        rest = "table" if table else "checkpoints"
        if self.prepared or len(logs) <= 1:
            log = logs[-1] if logs else None
            yield self._run("run" if self.prepared else "log" if log else rest, log, table, weights)
            return
        yield from (self._run("log", log, None, []) for log in logs)
        if table or weights:
            yield self._run(rest, None, table, weights)

    def _run(self, kind: str, log: File | None, table: File | None, weights: list[File]) -> Run:
        path, boards = log.path if kind == "log" and log else self.path, self.files["tfevents"].values()
        lines = [file for file in (log, table) if file]
        newest = max([0.0, *(file.mtime for file in [*boards, *(lines or weights)])])
        finished = bool(self.files["result"]) and self.prepared
        return Run(path, kind, newest, log, table, bool(boards), weights, finished=finished)


def _sort(root: str, entries: list[Met]) -> Iterable[_Home]:
    """Every file to its run; of the names of one file, the first."""
    homes: dict[str, _Home] = {}
    seen: set[tuple[int, int]] = set()
    for directory, entry, prepared in entries:
        try:
            status = entry.stat()
        except OSError:  # a link that leads nowhere
            continue
        inode = (status.st_dev, status.st_ino)
        if not stat.S_ISREG(status.st_mode) or inode in seen:  # a FIFO must never be opened
            continue
        seen.add(inode)
        path = prepared or directory
        # checkpoints/, checkpoint-500/ and logs/ are parts of the run around them
        while not prepared and path != root:
            folder = os.path.basename(path)
            if folder.lower() not in INNER and not names.is_step_folder(folder):
                break
            path = os.path.dirname(path)
        home = homes.setdefault(path, _Home(path, bool(prepared)))
        kind = _kind(entry.name)
        # one file, or the directory whose files only together are a checkpoint
        together = names.is_step_folder(os.path.basename(directory)) or names.is_shard(entry.name)
        path = directory if kind == "checkpoint" and together else entry.path
        file = home.files[kind].setdefault(path, File(path, 0, 0.0))
        file.bytes, file.mtime = file.bytes + status.st_size, max(file.mtime, status.st_mtime)
    return homes.values()


def is_log(name: str) -> bool:
    return bool(_LOG.fullmatch(name)) and not _NOT_LOG.fullmatch(name)


def _kind(name: str) -> str:
    """What a file is to a run, by its name; empty when it is nothing."""
    if names.is_checkpoint(name):
        return "checkpoint"
    if "tfevents" in name or name == "results.json":
        return "tfevents" if "tfevents" in name else "result"
    if _NOT_LOG.fullmatch(name):
        return ""
    return "table" if _TABLE.fullmatch(name) else "log" if is_log(name) else ""


def prints_training(path: str | Path) -> bool:
    """Is this text what a trainer printed, whatever it is called? Its first lines count and tell a curve."""
    history = History()
    for line in logs.to_text(logs.head(path, _LOOK)).splitlines()[:_LOOK_LINES]:
        history.take(line)
    counts = history.step is not None or history.epoch is not None
    return counts and any(is_curve(name) and one.count > 1 for name, one in history.series.items())


# -- what they say


def _read(run: Run) -> None:
    """Metrics from the table where there is one; what went wrong from the log."""
    run.read = True
    run.summary = told = logs.read(run.log.path, _END) if run.log else History()
    if run.table:
        run.summary = logs.read(run.table.path, _END)
        run.summary.problems += [problem for problem in told.problems if problem.code != "nan"]
        run.summary.last_line = told.last_line or run.summary.last_line
        from_log = ("total", "epoch", "epochs", "it_per_s", "eta", "metrics")
        run.summary.fill({name: getattr(told, name) for name in from_log})
    if run.kind == "run":  # the number of steps as the run's own config has it
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            config = json.loads(logs.head(os.path.join(run.path, "run.json"), _RECORD_BYTES))["config"]
            known = {name: value for name, value in config.items() if isinstance(value, int) and is_sane(value)}
            for counter, spellings in TOTALS.items():
                run.summary.fill({counter: next((known[name] for name in spellings if known.get(name, 0) > 0), None)})
    run.summary.finish_eta()
