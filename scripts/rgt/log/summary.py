"""The end of a training log: the newest step, metrics, speed and remaining time, and what went wrong.

Example:
    summary = read(Path("nohup.out"))        summary.step, .total, .metrics, .it_per_s, .eta, .problems
    summarise(text)                          the same from text that is no file

A log of gigabytes costs as much as its last 256 KB. One line alone is `parse_line`'s work (rgt/log/line.py).
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rgt.log.fate import MARKS, Problem
from rgt.log.history import History
from rgt.log.line import Point, parse_line, parse_row

TAIL = 256 * 1024
HEAD = 16 * 1024  # where a log says how many steps there will be
_HINTS = 300  # first lines that are searched for it
_TOTALS = ("max_", "num_", "pochs", "otal ", "_iters")  # words of the lines that tell it
_ROWS = 50  # last rows of a table
_STATE_BYTES = 8 << 20  # a trainer_state.json up to this size is parsed as a whole
_TRIES = 6  # lines with a rare word
_TRACEBACK = 60  # lines of a traceback, up to the one that names its exception
_LOOK = 16  # last lines that are taken whatever they say


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
    text = data.replace(b"\0", b"").decode("utf-8", "replace")  # zeros: UTF-16 from a Windows shell, a hole
    if cut:
        text = text.partition("\n")[2] if "\n" in text else text.partition("\r")[2]
    body, newline, last = text.rpartition("\n")
    if newline and "\r" not in last:
        text = body
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read(path: Path | str, limit: int = TAIL) -> History:
    """The newest numbers of a log, a metrics.jsonl, a CSV or a trainer_state.json; empty for what cannot be read."""
    name = os.path.basename(path)
    if name.endswith(".csv"):
        return summarise_rows(_csv_rows(path))
    if name == "trainer_state.json":
        return _trainer_state(path)
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
    wanted = re.compile("|".join(map(re.escape, words)))
    for line in to_text(head(path)).split("\n", _HINTS)[:_HINTS]:
        if wanted.search(line):
            yield parse_line(line)


def summarise_rows(rows: Iterable[Mapping[str, Any]]) -> History:
    """The newest state in rows of numbers, which are given oldest first."""
    history = History()
    for row in rows:
        history.take_point(parse_row(row), str(row))
    return _finished(history)


def _csv_rows(path: Path | str) -> list[dict[str, str]]:
    """The last rows of a table with a header, as Lightning and LitGPT write it: rows have holes."""
    header = head(path).decode("utf-8", "replace").partition("\n")[0].strip()
    lines = [line for line in tail(path) if line != header][-_ROWS:]
    try:
        return [{key: cell for key, cell in row.items() if key and cell} for row in csv.DictReader([header, *lines])]
    except csv.Error:  # not a table: a cell of 100 KB
        return []


def _trainer_state(path: Path | str) -> History:
    """HF Trainer writes its whole history into every checkpoint; empty for one that is too long."""
    try:
        state = json.loads(head(path, _STATE_BYTES))
        summary = summarise_rows(row for row in state.get("log_history", [])[-_ROWS:] if isinstance(row, dict))
        told = parse_row({name: state.get(name) for name in ("global_step", "max_steps", "num_train_epochs")})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return History()
    summary.step = None  # the history may end before the checkpoint
    summary.fill({name: told[name] for name in ("step", "total", "epochs") if name in told})
    return summary


def summarise(text: str) -> History:
    """The newest state that this end of a log tells, and what went wrong.

    Its last lines are taken, and before them those that tell what comes once in thousands of lines.
    """
    lines = text.split("\n")
    wanted = set(range(max(0, len(lines) - _LOOK), len(lines)))
    for word in ("val", "Val", "poch", *(word for marks in MARKS.values() for word in marks.split("|"))):
        end = len(text) if word in text else 0  # most are absent, and this is the fastest way to know
        for _ in range(_TRIES):
            if (place := text.rfind(word, 0, end)) < 0:
                break
            end, number = text.rfind("\n", 0, place) + 1, text.count("\n", 0, place)
            wanted.update(range(number, min(len(lines), number + (_TRACEBACK if "Traceback" in word else 1))))
    history = History()
    for place in sorted(wanted):
        history.take(lines[place])
    return _finished(history)


def _finished(history: History) -> History:
    """With the remaining time, and of the problems only those that explain its state."""
    newest = {problem.code: problem for problem in history.problems}
    if any(not problem.recovered for code, problem in newest.items() if code != "crash"):
        newest.pop("crash", None)  # the traceback around it says nothing more
    losses = [row for row in history.not_numbers if "loss" in row["name"]]
    nans = [Problem("nan", row["line"]) for row in losses if not math.isfinite(history.metrics[row["name"]])]
    history.problems = [*nans[-1:], *newest.values()]
    history.finish_eta()
    return history
