"""What the lines of one log add up to: counters, curves, checkpoints, restarts and errors, ready to be kept as JSON.

Example:
    history = History()
    history.take("iter 100: loss 2.34, time 12.5ms")       history.step, history.series["loss"].points()
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from rgt.files import json_number
from rgt.log.line import Point, parse_line, plain, says_ended, says_saved
from rgt.metrics.table import CURVE_WORDS, is_curve, is_evaluation

RECENT = 512  # points of a curve that are kept as they are
OLD = 512  # and before them, ever more thinly
Points = list[tuple[float, float]]
SERIES = 24  # curves of one log
_KEPT = 32  # checkpoints, restarts and errors that are remembered
_LINE = 200  # characters of a line that are remembered
# lines without any of these can give no point: parsing one costs ten times as much as this look
_WORDS = CURVE_WORDS | {"norm", "learning"}
_WORTH = re.compile(
    r"step|iter|poch|batch|[%━\"']|\d\s*/\s*\d|\[\s*\d|updat|/s|s/|tok|total|max_|num_|eta|remaining|"
    + "|".join(sorted(word for word in _WORDS if not any(part in word for part in _WORDS - {word}))),
    re.I,
)
_RATES = ("it_per_s", "tokens_per_s")
_BRIEF = "step total epoch epochs batch batches it_per_s tokens_per_s eta epoch_eta epoch_time metrics problems".split()
_BRIEF.append("last_line")
_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(r"(?:\[?rank\d+\]?: ?)?[A-Za-z_][\w.]*\b")  # the first line after it that is not indented
_WRAPPED = 0.97  # a counter that starts anew from here has finished an epoch; from below it was restarted


@dataclass
class Series:
    recent: Points = field(default_factory=list)
    old: Points = field(default_factory=list)
    stride: int = 1  # one of so many points that leave `recent` is kept
    passed: int = 0
    count: int = 0

    def add(self, x: float, value: float) -> None:
        if not (math.isfinite(value) and math.isfinite(x)):
            return
        if self.recent and x < self.recent[-1][0]:  # a resumed run computes steps again: the later value counts
            self.recent = [point for point in self.recent if point[0] < x]
            self.old = [point for point in self.old if point[0] < x]
        if self.recent and self.recent[-1][0] == x:  # a bar shows a step first with the old value, then with the new
            self.recent[-1] = (x, value)
            return
        self.recent.append((x, value))
        self.count += 1
        if len(self.recent) > RECENT:
            oldest = self.recent.pop(0)
            self.passed += 1
            if self.passed % self.stride == 0:
                self.old.append(oldest)
            if len(self.old) > OLD:
                self.old, self.stride = self.old[::2], 2 * self.stride

    def points(self) -> Points:
        return self.old + self.recent

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Series:
        """Of what dataclasses.asdict gave; JSON has made lists of the points."""
        recent, old = ([(float(x), float(value)) for x, value in row[name]] for name in ("recent", "old"))
        return cls(recent, old, int(row["stride"]), int(row["passed"]), int(row["count"]))


@dataclass
class Problem:
    """A line that says why a run is or will be dead; `recovered` when training went on after it."""

    code: str
    line: str
    recovered: bool = False


@dataclass
class History:
    """Counters are None as long as no line tells them."""

    step: int | None = None
    total: int | None = None
    epoch: float | None = None
    epochs: int | None = None
    batch: int | None = None
    batches: int | None = None
    it_per_s: float | None = None
    tokens_per_s: float | None = None
    eta: float | None = None
    epoch_eta: float | None = None  # of this epoch
    epoch_time: float | None = None
    clocked: list[float] | None = None  # time and step of the newest row that has both
    base: int = 0  # steps of the epochs before, where every epoch counts from 0
    lines: int = 0
    furthest: int = 0
    metrics: dict[str, float] = field(default_factory=dict)  # the newest of each
    not_numbers: list[dict[str, Any]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    saves: list[dict[str, Any]] = field(default_factory=list)
    restarts: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)  # how often each of the four was seen, however many are kept
    ended: bool = False
    last_line: str = ""
    series: dict[str, Series] = field(default_factory=dict)

    def take(self, line: str) -> None:
        """One line as it stands in the file."""
        if not line or line.isspace():
            return
        self.lines += 1
        self.last_line = line
        last = self.problems[-1] if self.problems else None
        if last and _TRACEBACK in last.line and _RAISED.match(plain(line)):
            last.line = _short(line)  # which names the exception
        if code := problem_in(line):
            self._note(self.problems, code, Problem(code, _short(line)))
        if says_saved(line):
            self._note(self.saves, "saves", {"step": self.step, "line": _short(line)})
        self.ended = says_ended(line) or self.ended
        # wandb's summary comes after the end, of whatever kind
        if _WORTH.search(line) and "wandb:" not in line and (point := parse_line(line)):
            self.take_point(point, line)

    def _note(self, where: list[Any], what: str, row: Any) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
        where.append(row)
        del where[:-_KEPT]

    def take_point(self, point: Point, text: str) -> None:
        if point.get("batch") == 0:  # a bar that was reset, with the numbers of the epoch before
            point = {name: value for name, value in point.items() if name == "epochs"}
        metrics: dict[str, float] = point.get("metrics", {})
        counted = "step" in point or "batch" in point or "epoch" in point
        if metrics and not counted and not any(map(is_curve, metrics)):
            metrics = {}  # a configuration that is printed has many numbers, and none of them is a curve
        before = self.step, self.batch, self.epoch
        only_eval = bool(metrics) and all(map(is_evaluation, metrics))
        if not only_eval or self.step is None:  # LitGPT's validation counts micro-batches
            self._count(point)
        place = self._place(point, only_eval)
        for name, value in metrics.items():
            self.metrics[name] = value
            self.put(name, place, value, text)
        self._take_rates(point, place)
        if counted and not only_eval:
            if (self.step, self.batch, self.epoch) != before:  # a bar is drawn once more after a crash
                for problem in self.problems:
                    problem.recovered = True
            if self.step != before[0]:  # a bar is drawn once more after the end
                self.ended = says_ended(text)

    def _count(self, point: Point) -> None:
        shorter = self._is_shorter_bar(point)
        for name in ("epochs", "epoch", "batches", "batch", "eta", "epoch_eta", "epoch_time", *_RATES):
            if name in point:
                setattr(self, name, point[name])
        if not shorter:
            self.total = point.get("total", self.total)
        if "step" not in point or shorter:
            return
        step, before = point["step"], self.step
        if before is not None and step < before:
            if self.total and before >= _WRAPPED * self.total and self.epochs != 1:
                self.base += self.total
            elif step <= max(1, 0.98 * before) or any(not problem.recovered for problem in self.problems):
                # a step or two back is two writers in one log, unless something ended in between
                self._note(self.restarts, "restarts", {"at": before, "to": step})
        self.step = step
        self.furthest = max(self.furthest, self.base + step)

    def _is_shorter_bar(self, point: Point) -> bool:
        """A second bar inside of the training's own (an evaluation, a copy) counts to less."""
        return bool(self.total and point.get("total") and "step" in point and point["total"] < 0.5 * self.total)

    def _place(self, point: Point, only_eval: bool) -> float:
        """Where on the x axis: steps where the line counts them, else epochs, else lines."""
        here = None if self.step is None else float(self.base + self.step)
        if only_eval and here is not None:
            return here
        if "step" in point and not self._is_shorter_bar(point):
            return float(self.base + point["step"])
        if "batch" in point and self.batches:
            return max(0.0, float(point.get("epoch", self.epoch) or 0)) * self.batches + float(point["batch"])
        if "epoch" in point and (here is None or self.total is None):  # a bar counts finer than 0.01 epochs
            return float(point["epoch"])
        return float(self.lines) if here is None else here

    def put(self, name: str, place: float, value: float, text: str = "") -> None:
        """One value of a curve."""
        if not math.isfinite(value):
            if "loss" in name or "norm" in name:
                self._note(self.not_numbers, f"nan:{name}", {"name": name, "x": place, "line": _short(text)})
        elif name in self.series or len(self.series) < SERIES:
            self.series.setdefault(name, Series()).add(place, value)

    def _take_rates(self, point: Point, place: float) -> None:
        """As the line says it, or from the clock and step of two rows."""
        for name in _RATES:
            if name in point:
                self.put(name, place, point[name])
        clock, step = point.get("time"), point.get("step")
        if not clock or step is None or "it_per_s" in point:
            return
        before, since = self.clocked or (math.inf, step)
        if clock > before and step > since:
            speed = (step - since) / (clock - before)
            # smoothed: one interval may hold an evaluation or a save
            self.it_per_s = speed if self.it_per_s is None else 0.75 * self.it_per_s + 0.25 * speed
            self.put("it_per_s", place, speed)
        if self.clocked is None or step != since:
            self.clocked = [clock, step]

    # -- what it adds up to

    @property
    def found(self) -> bool:
        return self.step is not None or self.epoch is not None or bool(self.metrics)

    def fill(self, point: Point) -> None:
        """Take what is not known yet, from another source."""
        for name, value in point.items():
            if name == "metrics":
                self.metrics = value | self.metrics
            elif getattr(self, name) is None:
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

    def brief(self) -> dict[str, Any]:
        """The newest of everything as strict JSON; what is unknown is left out."""
        told = self.as_dict()
        return {name: told[name] for name in _BRIEF if told[name] not in (None, [], {}, "")}

    def as_dict(self) -> dict[str, Any]:
        curves = {name: vars(curve) for name, curve in self.series.items()}  # asdict would copy every point
        metrics = {name: json_number(value) for name, value in self.metrics.items()}
        problems, last_line = [vars(problem) for problem in self.problems], _short(self.last_line)
        return vars(self) | {"series": curves, "metrics": metrics, "problems": problems, "last_line": last_line}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> History:
        series = {name: Series.from_json(row) for name, row in data["series"].items()}
        metrics = {name: float(value) for name, value in data["metrics"].items()}
        problems = [Problem(**row) for row in data["problems"]]
        return cls(**data | {"series": series, "metrics": metrics, "problems": problems})


def _short(text: str) -> str:
    return plain(text).strip()[:_LINE]


# -- what went wrong

# The few that decide whether a run is dead; the catalogue of causes is another tool's.
MARKS = {
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
_CODE_OF = {mark: code for code, marks in MARKS.items() for mark in marks.split("|")}
_ANY_MARK = re.compile("|".join(map(re.escape, _CODE_OF)))


def problem_in(line: str) -> str | None:
    """The code of what this one line says went wrong, or None."""
    found = _ANY_MARK.search(line)
    # 'Killed' alone is the shell's word for SIGKILL; inside a sentence it is anything
    killed = found and "Killed" in line and _CODE_OF[found[0]] == "killed"
    if not found or (killed and not re.search(r"^\s*Killed\s*$|\d\s+Killed\b", line)):
        return None
    return _CODE_OF[found[0]]
