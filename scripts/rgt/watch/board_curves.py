"""A run's curves for the board: read once, then only what was appended; thinned so that no peak is lost.

Example:
    curves = Curves(Path("runs/x"))
    curves.read()                                       True when something came; also after a truncation or rotation
    xs, ys = curves.by_name["loss"].thinned(800)        the lowest and highest point of each of 800 buckets
"""

from __future__ import annotations

import json
import math
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Any

from rgt.errors import RgtError
from rgt.log import reader
from rgt.log.history import History
from rgt.metrics.table import is_evaluation
from rgt.run.record import Run
from rgt.watch.look import find_target

_POINTS = 8192  # of one curve in memory; beyond, its lowest and highest points stay
_NAMES = 40  # curves of one run
_WHOLE = 8 << 20  # bytes of a file of which every line is read; of a longer one a sample
_NOT_METRICS = {"step", "time", "epoch", "iter", "split", "timestamp"}
Points = tuple["array[float]", "array[float]"]


class Curve:
    def __init__(self) -> None:
        self.xs, self.ys = array("d"), array("d")

    def add(self, x: float, y: float) -> None:
        xs, ys = self.xs, self.ys
        if xs and x <= xs[-1]:  # a resumed run computes steps again: the later value counts
            cut = bisect_left(xs, x)
            del xs[cut:], ys[cut:]
        xs.append(x)
        ys.append(y)
        if len(xs) > _POINTS:
            self.xs, self.ys = self.thinned(_POINTS // 4)

    def thinned(self, buckets: int, low: float = -math.inf, high: float = math.inf) -> Points:
        """Between `low` and `high` and one point beyond; all of them when there are few."""
        xs, ys = self.xs, self.ys
        start, end = max(0, bisect_left(xs, low) - 1), min(len(xs), bisect_right(xs, high) + 1)
        if end - start <= 2 * buckets:
            return xs[start:end], ys[start:end]
        width = (xs[end - 1] - xs[start]) / buckets
        kept_x, kept_y, first = array("d"), array("d"), start
        for bucket in range(1, buckets + 1):
            last = end if bucket == buckets else bisect_left(xs, xs[start] + bucket * width, first, end)
            if last > first:
                here = range(first, last)
                for at in sorted({min(here, key=ys.__getitem__), max(here, key=ys.__getitem__)}):
                    kept_x.append(xs[at])
                    kept_y.append(ys[at])
            first = last
        return kept_x, kept_y


class _Recorder(History):
    """A log's curves whole, where a History keeps a thousand points."""

    def record_into(self, curves: Curves) -> None:
        self.curves = curves

    def put(self, name: str, place: float, value: float, text: str = "") -> None:
        super().put(name, place, value, text)
        self.curves.add(name, place, value)


class Curves:
    """metrics.jsonl where there is one with rows, else the first log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.by_name: dict[str, Curve] = {}
        self.last: dict[str, float] = {}  # also where it is not a number, which no curve can show
        self.path: Path | None = None
        self.cursor: reader.Cursor | None = None

    @property
    def points(self) -> int:
        return sum(len(curve.xs) for curve in self.by_name.values())

    def add(self, name: str, x: float, value: float) -> None:
        if name not in self.last and len(self.last) >= _NAMES:
            return
        self.last[name] = value
        if math.isfinite(x) and math.isfinite(value):
            self.by_name.setdefault(name, Curve()).add(x, value)

    def read(self) -> bool:
        path = self._source()
        if path is None:
            return False
        if path != self.path:
            self.path, self.cursor = path, None
        lines: list[str] = []  # first, because only at the end it is known that the file began anew
        cursor, grown = reader.advance(path, self.cursor, lines.append, _WHOLE)
        if self.cursor is None or cursor is None or grown.restarted:
            self.by_name, self.last = {}, {}
            self.recorder = _Recorder()
            self.recorder.record_into(self)
        self.cursor = cursor
        take = self._take_row if path.suffix == ".jsonl" else self.recorder.take
        for line in lines:
            take(line)
        return bool(lines)

    def _source(self) -> Path | None:
        metrics = Run(self.folder).metrics
        try:
            if metrics.is_file() and metrics.stat().st_size:
                return metrics
            return next(iter(find_target((str(self.folder),)).logs), None)
        except (OSError, RgtError):
            return None

    def _take_row(self, line: str) -> None:
        """The names are those that watch gives them: val_loss for the loss of val."""
        try:
            row: Any = json.loads(line)
            place = float(row["step"] if row.get("step") is not None else row["epoch"])
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError):
            return
        split = row.get("split")
        for name, value in row.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool) and name not in _NOT_METRICS:
                prefix = f"{split}_" if split in ("val", "test") and not is_evaluation(name) else ""
                self.add(prefix + name, place, value)
