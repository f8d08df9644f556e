"""The end of a training log: the newest step, metrics, speed and remaining time, and what went wrong.

Example:
    summary = read(Path("nohup.out"))        summary.step, .total, .metrics, .it_per_s, .eta, .problems
    summarise(text)                          the same from text that is no file

A log of gigabytes costs as much as its last 256 KB. One line alone is `parse_line`'s work (rgt/log/line.py).
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rgt.files import json_number
from rgt.log.line import Point, parse_line, parse_row, plain, unwrap
from rgt.metrics.table import is_evaluation

TAIL = 256 * 1024
HEAD = 16 * 1024  # where a log says how many steps there will be
_HINTS = 300  # first lines that are searched for it
_TOTALS = ("max_", "num_", "pochs", "otal ", "_iters")  # words of the lines that tell it
_ROWS = 50  # last rows of a table
_STATE_BYTES = 8 << 20  # a trainer_state.json up to this size is parsed as a whole
_TRIES = 20  # lines with a rare word that are parsed before it is given up
_TRACEBACK = 300  # lines of a traceback
_LOOK = 40  # last lines that are parsed in search of a number
_MORE = 6  # lines before the newest number that may complete it; what is rarer is searched for by its word


@dataclass
class Problem:
    """A line that says why a run is or will be dead; `recovered` when training went on after it."""

    code: str
    line: str
    recovered: bool = False


@dataclass
class Progress:
    """How far a run is, as its lines say. None: they do not say it."""

    step: int | None = None
    total: int | None = None
    epoch: float | None = None
    epochs: int | None = None
    batch: int | None = None
    batches: int | None = None
    it_per_s: float | None = None
    tokens_per_s: float | None = None
    eta: float | None = None
    epoch_time: float | None = None


@dataclass
class Summary(Progress):
    """The newest value of everything that the last lines say."""

    epoch_eta: float | None = None  # of this epoch
    metrics: dict[str, float] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    last_line: str = ""

    @property
    def found(self) -> bool:
        return self.step is not None or self.epoch is not None or bool(self.metrics)

    @property
    def complete(self) -> bool:
        """One line has told all that changes with every step."""
        return self.it_per_s is not None and any("loss" in name for name in self.metrics)

    def as_dict(self) -> dict[str, Any]:
        """Strict JSON: NaN and infinities as words, what is unknown left out."""
        found = {name: value for name, value in asdict(self).items() if value not in (None, [], {}, "")}
        if self.metrics:
            found["metrics"] = {name: json_number(value) for name, value in self.metrics.items()}
        return found

    def fill(self, point: Point) -> None:
        """Take what is not known yet: points come newest first."""
        for name, value in point.items():
            if name == "metrics":
                for metric, number in value.items():
                    self.metrics.setdefault(metric, number)
            elif name != "time" and getattr(self, name) is None:
                setattr(self, name, value)

    def finish_eta(self) -> None:
        """Remaining time from speed and total, where the log does not say it itself."""
        if self.eta is not None:
            return
        epochs_left = max(0.0, self.epochs - self.epoch) if self.epochs and self.epoch is not None else None
        if self.it_per_s and self.total and self.step is not None:
            self.eta = max(0, self.total - self.step) / self.it_per_s
        elif self.it_per_s and self.batches and self.batch is not None and epochs_left is not None:
            self.eta = (epochs_left * self.batches + self.batches - self.batch) / self.it_per_s
        elif self.epoch_time and epochs_left is not None:
            self.eta = epochs_left * self.epoch_time


def open_regular(path: Path | str) -> int | None:
    """A descriptor to read, or None. A FIFO is never opened: that would block, or end the one who writes to it."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None


def tail(path: Path | str, limit: int = TAIL) -> list[str]:
    """The last lines of a regular file; empty when it cannot be read."""
    return _end_text(path, limit).splitlines()


def _end_text(path: Path | str, limit: int) -> str:
    """One byte more than `limit` tells whether the text starts inside a line."""
    data = _part(path, limit + 1, at_end=True)
    return to_text(data[-limit:], cut=len(data) > limit)


def head(path: Path | str, limit: int = HEAD) -> bytes:
    """The first bytes of a regular file; empty when it cannot be read."""
    return _part(path, limit)


def _part(path: Path | str, limit: int, at_end: bool = False) -> bytes:
    descriptor = open_regular(path)
    if descriptor is None:
        return b""
    try:
        return os.pread(descriptor, limit, max(0, os.fstat(descriptor).st_size - limit) if at_end else 0)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def to_text(data: bytes, cut: bool = False) -> str:
    """Lines as a terminal would show them: every state of a progress bar is one.

    `cut`: the data starts inside a line. A last line without its end is kept only when it is a bar's: its writer may be
    in the middle of "loss 2.".
    """
    text = data.decode("utf-8", "replace")
    if cut:
        text = text.partition("\n")[2] if "\n" in text else text.partition("\r")[2]
    body, newline, last = text.rpartition("\n")
    if newline and "\r" not in last:
        text = body
    if '{"log":' in text:
        text = "\n".join(unwrap(line).removesuffix("\n") for line in text.split("\n"))
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read(path: Path | str, limit: int = TAIL) -> Summary:
    """The newest numbers of a log, a metrics.jsonl, a CSV or a trainer_state.json; empty for what cannot be read."""
    name = os.path.basename(path)
    if name.endswith(".csv"):
        return summarise_rows(_csv_rows(path))
    if name == "trainer_state.json" and (state := _trainer_state(path)) is not None:
        return state
    summary = summarise(_end_text(path, limit))
    if summary.found and summary.total is None and summary.epochs is None:
        for point in _first_points(path, _TOTALS):
            summary.fill({name: point[name] for name in ("total", "epochs") if name in point})
        summary.finish_eta()
    return summary


def first_step(path: Path | str) -> int | None:
    """The first step a log tells: a resumed run does not start at 0."""
    return next((point["step"] for point in _first_points(path) if "step" in point), None)


def _first_points(path: Path | str, words: tuple[str, ...] = ("",)) -> Iterator[Point]:
    """Points of the first lines that hold one of the words: a log says at its beginning how long the run will be."""
    for line in to_text(head(path)).split("\n", _HINTS)[:_HINTS]:
        if any(word in line for word in words):
            yield parse_line(line)


def summarise_rows(rows: Iterable[Mapping[str, Any]]) -> Summary:
    """The newest state in rows of numbers, which are given oldest first."""
    summary = Summary()
    clocks: list[tuple[float, float]] = []
    for row in reversed(list(rows)):
        _take_newest(summary, parse_row(row), str(row), clocks)
    _finish(summary, clocks)
    return summary


def _csv_rows(path: Path | str) -> list[dict[str, str]]:
    """The last rows of a table with a header, as Lightning and LitGPT write it: rows have holes."""
    header = head(path).decode("utf-8", "replace").partition("\n")[0].strip()
    lines = [line for line in tail(path) if line != header][-_ROWS:]
    try:
        return [{key: cell for key, cell in row.items() if key and cell} for row in csv.DictReader([header, *lines])]
    except csv.Error:  # not a table: a cell of 100 KB
        return []


def _trainer_state(path: Path | str) -> Summary | None:
    """HF Trainer writes its whole history into every checkpoint. None: it is too long, and only its end is read."""
    data = head(path, _STATE_BYTES + 1)
    if len(data) > _STATE_BYTES:
        return None
    try:
        state = json.loads(data)
        summary = summarise_rows(row for row in state.get("log_history", [])[-_ROWS:] if isinstance(row, dict))
        told = parse_row({name: state.get(name) for name in ("global_step", "max_steps", "num_train_epochs")})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Summary()
    summary.step = None  # the history may end before the checkpoint
    summary.fill({name: told[name] for name in ("step", "total", "epochs") if name in told})
    return summary


def summarise(text: str) -> Summary:
    """The newest state that this end of a log tells, and what went wrong."""
    summary, lines = Summary(), text.split("\n")
    newest = -1  # the last line that shows training going on
    clocks: list[tuple[float, float]] = []
    for number in range(len(lines) - 1, max(-1, len(lines) - 1 - _LOOK), -1):
        point = parse_line(lines[number])
        if newest < 0 and ("step" in point or "batch" in point or "epoch" in point):
            newest = number
        _take_newest(summary, point, lines[number], clocks)
        if newest >= 0 and (newest - number >= _MORE or summary.complete):
            break
    # validation and epochs come once in thousands of lines
    if not any(map(is_evaluation, summary.metrics)):
        rare = (parse_line(line).get("metrics", {}) for line in _lines_with(text, lines, "val", "Val"))
        summary.fill({"metrics": next((metrics for metrics in rare if any(map(is_evaluation, metrics))), {})})
    if summary.epoch is None:
        points = (parse_line(line) for line in _lines_with(text, lines, "poch"))
        point = next((point for point in points if "epoch" in point), {})
        summary.fill({name: point[name] for name in ("epoch", "epochs") if name in point})
    _finish(summary, clocks)
    _find_problems(summary, text, lines, newest)
    shown = (plain(line).strip()[:200] for line in reversed(lines[-_LOOK:]))
    summary.last_line = next((line for line in shown if line), "")
    return summary


def _finish(summary: Summary, clocks: list[tuple[float, float]]) -> None:
    """The speed from the rows that have a time, then the remaining time."""
    if summary.it_per_s is None and len(clocks) > 1:
        seconds, steps = clocks[0][0] - clocks[-1][0], clocks[0][1] - clocks[-1][1]
        if seconds > 0 and steps > 0:
            summary.it_per_s = steps / seconds
    summary.finish_eta()


def _take_newest(summary: Summary, point: Point, line: str, clocks: list[tuple[float, float]]) -> None:
    """Points come newest first. A NaN is a problem only when no newer line has a finite value of that loss."""
    for name, value in point.get("metrics", {}).items():
        if "loss" in name and not math.isfinite(value) and name not in summary.metrics:
            summary.problems.append(Problem("nan", plain(line).strip()[:200]))
    if "time" in point and "step" in point:
        clocks.append((point["time"], point["step"]))
    summary.fill(point)


def _lines_with(text: str, lines: list[str], *words: str) -> Iterator[str]:
    """The last lines that hold one of the words, newest first."""
    there = [word for word in words if word in text]  # most are absent, and this is the fastest way to know
    found = (line for line in reversed(lines) if any(word in line for word in there))
    return itertools.islice(found, _TRIES) if there else iter(())


# -- what went wrong

# The few that decide whether a run is dead; the catalogue of causes is another tool's.
_MARKS = {
    "oom": "out of memory|OutOfMemoryError|OUT_OF_MEMORY|RESOURCE_EXHAUSTED|oom-kill|Cannot allocate",
    "no-space": "No space left on device|Disk quota exceeded",
    "hang": "Watchdog caught collective operation timeout|NCCL timeout",
    "killed": "Killed|Segmentation fault|Bus error|CANCELLED AT|DUE TO TIME LIMIT|SignalException",
    "crash": "Traceback (most recent call last)|ChildFailedError|Aborted (core dumped)",
}
SENTENCES = {
    "nan": "the loss is not a number",
    "oom": "ran out of memory",
    "no-space": "the disk was full",
    "hang": "a collective operation timed out",
    "killed": "was killed",
    "crash": "ended in an error",
}
_RAISED = re.compile(r"^(?:\[?rank\d+\]?:\s*)?[A-Za-z_][\w.]*\b.{0,400}$")
_CODE_OF = {mark: code for code, marks in _MARKS.items() for mark in marks.split("|")}
_ANY_MARK = re.compile("|".join(map(re.escape, _CODE_OF)))


def problem_in(line: str) -> str | None:
    """The code of what this one line says went wrong, or None."""
    found = _ANY_MARK.search(line)
    if not found or (_CODE_OF[found[0]] == "killed" and not _is_death(line)):
        return None
    return _CODE_OF[found[0]]


def _find_problems(summary: Summary, text: str, lines: list[str], newest: int) -> None:
    """The newest line of each kind; for a traceback, the line that names its exception."""
    for code, marks in _MARKS.items():
        line = next(_lines_with(text, lines, *marks.split("|")), None)
        if line is None or (code == "killed" and not _is_death(line)):
            continue
        place = len(lines) - 1 - lines[::-1].index(line)
        if code == "crash":  # the first line after the traceback's head that is not indented
            after = map(plain, lines[place + 1 : place + _TRACEBACK])
            line = next((named for named in after if _RAISED.match(named)), line)
        summary.problems.append(Problem(code, plain(line).strip()[:200], recovered=place < newest))
    living = {problem.code for problem in summary.problems if not problem.recovered}
    if living & {"oom", "no-space", "hang", "killed"}:  # the traceback around it says nothing more
        summary.problems = [problem for problem in summary.problems if problem.code != "crash"]


def _is_death(line: str) -> bool:
    """'Killed' alone is the shell's word for SIGKILL; inside a sentence it is anything."""
    return "Killed" not in line or bool(re.search(r"^\s*Killed\s*$|\d\s+Killed\b", line))
