"""The end of a training log: the newest step, metrics, speed and remaining time, and what went wrong.

Example:
    summary = read(Path("nohup.out"))        summary.step, .total, .metrics, .it_per_s, .eta, .problems
    summarise(text)                          the same from text that is no file

A log of gigabytes costs as much as its last 256 KB. One line alone is `parse_line`'s work (rgt/logline.py).
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rgt.files import json_number
from rgt.logline import Point, parse_line, plain, unwrap

TAIL = 256 * 1024
HEAD = 16 * 1024  # where a log says how many steps there will be
_HINTS = 300  # first lines that are searched for it
_TOTALS = ("max_", "num_", "pochs", "otal ", "_iters")  # words of the lines that tell it
_TRIES = 20  # lines with a rare word that are parsed before it is given up
_TRACEBACK = 20_000  # characters of a traceback
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
    return _ends(path, limit)[1].splitlines()


def _ends(path: Path | str, limit: int) -> tuple[str, str]:
    """The beginning and the end of a file; they are the same text when it is short."""
    descriptor = open_regular(path)
    if descriptor is None:
        return "", ""
    try:
        start = max(0, os.fstat(descriptor).st_size - limit)
        end = to_text(os.pread(descriptor, limit, start), cut=start > 0)
        return (to_text(os.pread(descriptor, HEAD, 0)) if start else end[:HEAD]), end
    except OSError:
        return "", ""
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


def head(path: Path | str, limit: int = HEAD) -> bytes:
    """The first bytes of a regular file; empty when it cannot be read."""
    descriptor = open_regular(path)
    if descriptor is None:
        return b""
    try:
        return os.pread(descriptor, limit, 0)
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def read(path: Path | str, limit: int = TAIL) -> Summary:
    """The end of a log, and its beginning for the number of steps."""
    head, end = _ends(path, limit)
    summary = summarise(end)
    if summary.found and summary.total is None and summary.epochs is None:
        _find_totals(summary, head)
        summary.finish_eta()
    return summary


def _find_totals(summary: Summary, head: str) -> None:
    """How long the run will be is said once, before the first step."""
    if not any(word in head for word in _TOTALS):
        return
    for line in head.split("\n", _HINTS)[:_HINTS]:
        if any(word in line for word in _TOTALS):
            point = parse_line(line)
            summary.fill({name: point[name] for name in ("total", "epochs") if name in point})


def first_step(path: Path | str) -> int | None:
    """The first step a log tells: a resumed run does not start at 0."""
    steps = (parse_line(line).get("step") for line in _ends(path, TAIL)[0].split("\n", _HINTS)[:_HINTS])
    return next((step for step in steps if step is not None), None)


def summarise(text: str) -> Summary:
    """The newest state that this end of a log tells, and what went wrong."""
    summary = Summary()
    newest = -1  # where the last line starts that shows training going on
    seen = 0  # lines looked at after it was found
    clocks: list[tuple[float, float]] = []
    for start, line in _backwards(text, _LOOK):
        point = parse_line(line)
        if newest < 0 and ("step" in point or "batch" in point or "epoch" in point):
            newest = start
        if "time" in point and "step" in point:
            clocks.append((point["time"], point["step"]))
        _note_nan(summary, point, line)
        summary.fill(point)
        seen += newest >= 0
        if seen > _MORE or (newest >= 0 and summary.complete):
            break
    _find_rare(summary, text)
    _speed_from_clocks(summary, clocks)
    summary.finish_eta()
    _find_problems(summary, text, newest)
    summary.last_line = next((shown for _, line in _backwards(text, _LOOK) if (shown := plain(line).strip()[:200])), "")
    return summary


def _backwards(text: str, limit: int) -> Iterator[tuple[int, str]]:
    """The last lines, newest first, with the place where each starts."""
    end = len(text)
    for _ in range(limit):
        if end < 0:
            return
        start = text.rfind("\n", 0, end) + 1
        yield start, text[start:end]
        end = start - 1


def _note_nan(summary: Summary, point: Point, line: str) -> None:
    """Only while no newer line has shown that loss: a NaN that passed is history."""
    for name, value in point.get("metrics", {}).items():
        if "loss" in name and not math.isfinite(value) and name not in summary.metrics:
            summary.problems.append(Problem("nan", plain(line).strip()[:200]))


def _find_rare(summary: Summary, text: str) -> None:
    """Validation and epochs come once in thousands of lines."""
    if not any(name.startswith(("val", "eval", "test")) for name in summary.metrics):
        for line in _lines_with(text, ("val", "Val")):
            metrics = parse_line(line).get("metrics", {})
            if any(name.startswith(("val", "eval")) for name in metrics):
                summary.fill({"metrics": metrics})
                break
    if summary.epoch is None:
        for line in _lines_with(text, ("poch",)):
            point = parse_line(line)
            if "epoch" in point:
                summary.fill({name: point[name] for name in ("epoch", "epochs") if name in point})
                break


def _lines_with(text: str, words: tuple[str, ...]) -> Iterator[str]:
    """The last lines that hold a word, newest first."""
    end = len(text)
    for _ in range(_TRIES):
        place = _last(text, words, end)
        if place < 0:
            return
        yield _line_at(text, place)
        end = text.rfind("\n", 0, place)
        if end < 0:
            return


def _last(text: str, words: tuple[str, ...], end: int) -> int:
    """Where the last of them starts, or -1. Most are absent, and `in` knows that much faster than rfind."""
    return max((text.rfind(word, 0, end) for word in words if word in text), default=-1)


def _line_at(text: str, place: int) -> str:
    end = text.find("\n", place)
    return text[text.rfind("\n", 0, place) + 1 : end if end >= 0 else len(text)]


def _speed_from_clocks(summary: Summary, clocks: list[tuple[float, float]]) -> None:
    if summary.it_per_s is None and len(clocks) > 1:
        seconds, steps = clocks[0][0] - clocks[-1][0], clocks[0][1] - clocks[-1][1]
        if seconds > 0 and steps > 0:
            summary.it_per_s = steps / seconds


# -- what went wrong

# The few that decide whether a run is dead; the catalogue of causes is another tool's.
_MARKS = (
    (
        "oom",
        ("out of memory", "OutOfMemoryError", "OUT_OF_MEMORY", "RESOURCE_EXHAUSTED", "oom-kill", "Cannot allocate"),
    ),
    ("no-space", ("No space left on device", "Disk quota exceeded")),
    ("hang", ("Watchdog caught collective operation timeout", "NCCL timeout")),
    ("killed", ("Killed", "Segmentation fault", "Bus error", "CANCELLED AT", "DUE TO TIME LIMIT", "SignalException")),
    ("crash", ("Traceback (most recent call last)", "ChildFailedError", "Aborted (core dumped)")),
)
SENTENCES = {
    "nan": "the loss is not a number",
    "oom": "ran out of memory",
    "no-space": "the disk was full",
    "hang": "a collective operation timed out",
    "killed": "was killed",
    "crash": "ended in an error",
}
_RAISED = re.compile(r"^(?:\[?rank\d+\]?:\s*)?[A-Za-z_][\w.]*\b.{0,400}$")
_ANY_MARK = re.compile("|".join(re.escape(mark) for _, marks in _MARKS for mark in marks))
_CODE_OF = {mark: code for code, marks in _MARKS for mark in marks}


def problem_in(line: str) -> str | None:
    """The code of what this one line says went wrong, or None."""
    found = _ANY_MARK.search(line)
    if not found or (_CODE_OF[found[0]] == "killed" and not _is_death(line)):
        return None
    return _CODE_OF[found[0]]


def _find_problems(summary: Summary, text: str, newest: int) -> None:
    """The newest line of each kind; a traceback is told by the line that names its exception."""
    for code, marks in _MARKS:
        place = _last(text, marks, len(text))
        if place < 0 or (code == "killed" and not _is_death(_line_at(text, place))):
            continue
        line = _raised(text, place) if code == "crash" else _line_at(text, place)
        summary.problems.append(Problem(code, plain(line).strip()[:200], recovered=place < newest))
    living = {problem.code for problem in summary.problems if not problem.recovered}
    if living & {"oom", "no-space", "hang", "killed"}:  # the traceback around it says nothing more
        summary.problems = [problem for problem in summary.problems if problem.code != "crash"]


def _is_death(line: str) -> bool:
    """'Killed' alone is the shell's word for SIGKILL; inside a sentence it is anything."""
    return "Killed" not in line or bool(re.search(r"^\s*Killed\s*$|\d\s+Killed\b", line))


def _raised(text: str, place: int) -> str:
    """The first line after a traceback's head that is not indented."""
    for line in text[place : place + _TRACEBACK].split("\n")[1:]:
        if line.strip() and not plain(line)[:1].isspace() and _RAISED.match(plain(line)):
            return line
    return _line_at(text, place)
