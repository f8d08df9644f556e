"""What the lines of one log add up to: counters, curves, checkpoints, restarts and errors, ready to be kept as JSON.

Example:
    record = Record()
    record.take("iter 100: loss 2.34, time 12.5ms")       record.step, record.series["loss"].last()
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, fields
from typing import Any

from health import series
from health.series import Series
from rgt import logs
from rgt.files import json_number
from rgt.logline import Point, parse_line, plain, says_ended, says_saved, unwrap

SERIES = 24  # curves of one log
_KEPT = 32  # checkpoints, restarts and errors that are remembered
_LINE = 200  # characters of a line that are remembered
# lines without any of these can give no point: parsing one costs ten times as much as this look
_WORTH = re.compile(
    r"step|iter|poch|batch|[%━\"']|\d\s*/\s*\d|\[\s*\d|updat|loss|acc|ppl|perplex|lr|learning|norm|f1|auc|bleu|reward"
    r"|score|mfu|/s|s/|tok|total|max_|num_|eta|remaining",
    re.I,
)
_KNOWN = re.compile(
    r"(?:^|_)(?:loss|acc\w*|ppl|perplexity|lr|learning_rate|grad_norm|gnorm|f1|auc|bleu|reward|score|mfu)(?:$|@)"
)
_EVALUATED = ("val", "eval", "test")
_RATES = ("it_per_s", "tokens_per_s")
_WRAPPED = 0.97  # a counter that starts anew from here has finished an epoch; from below it was restarted


@dataclass
class Record(logs.Progress):
    """All of it is JSON but `series`."""

    clocked: list[float] | None = None  # time and step of the newest row that has both
    base: int = 0  # steps of the epochs before, where every epoch counts from 0
    lines: int = 0
    first: int | None = None  # step
    furthest: int = 0
    metrics: dict[str, Any] = field(default_factory=dict)  # the newest of each; NaN and infinities as words
    not_numbers: list[dict[str, Any]] = field(default_factory=list)
    problems: list[dict[str, Any]] = field(default_factory=list)
    saves: list[dict[str, Any]] = field(default_factory=list)
    restarts: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)  # how often each of the four was seen, however many are kept
    ended: bool = False
    last_line: str = ""
    series: dict[str, Series] = field(default_factory=dict)

    def take(self, text: str) -> None:
        """One line as it stands in the file."""
        if text.startswith('{"log":'):
            for part in unwrap(text).replace("\r", "\n").split("\n"):
                self._take(part)
        else:
            self._take(text)

    def _take(self, text: str) -> None:
        if not text or text.isspace():
            return
        self.lines += 1
        self.last_line = text
        self._take_words(text)
        if _WORTH.search(text) and "wandb:" not in text:  # its summary comes after the end, of whatever kind
            point = parse_line(text)
            if point:
                self.take_point(point, text)

    def _take_words(self, text: str) -> None:
        code = logs.problem_in(text)
        if code:
            self._note(self.problems, code, {"code": code, "line": _short(text), "step": self.step, "recovered": False})
        if says_saved(text):
            self._note(self.saves, "saves", {"step": self.step, "line": _short(text)})
        self.ended = says_ended(text) or self.ended

    def _note(self, where: list[dict[str, Any]], what: str, row: dict[str, Any]) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
        where.append(row)
        del where[:-_KEPT]

    def take_point(self, point: Point, text: str) -> None:
        if point.get("batch") == 0:  # a bar that was reset, with the numbers of the epoch before
            point = {name: value for name, value in point.items() if name == "epochs"}
        metrics: dict[str, float] = point.get("metrics", {})
        counted = "step" in point or "batch" in point or "epoch" in point
        if metrics and not counted and not any(_KNOWN.search(name) for name in metrics):
            metrics = {}  # a configuration that is printed has many numbers, and none of them is a curve
        before = self.step, self.batch, self.epoch
        only_eval = bool(metrics) and all(name.startswith(_EVALUATED) for name in metrics)
        if not only_eval or self.step is None:  # LitGPT's validation counts micro-batches
            self._count(point)
        place = self._place(point, only_eval)
        for name, value in metrics.items():
            self._put(name, place, value, text)
        self._take_rates(point, place)
        if counted and not only_eval:
            moved = (self.step, self.batch, self.epoch) != before
            for problem in self.problems if moved else ():  # a bar is drawn once more after a crash
                problem["recovered"] = True
            if self.step != before[0]:  # a bar is drawn once more after the end
                self.ended = says_ended(text)

    def _count(self, point: Point) -> None:
        for name in ("total", "epochs", "batches", "eta", "epoch_time", *_RATES):
            if name in point and not (name == "total" and self._is_shorter_bar(point)):
                setattr(self, name, point[name])
        if "epoch" in point:
            self.epoch = point["epoch"]
        if "batch" in point:
            self.batch = point["batch"]
        if "step" in point and not self._is_shorter_bar(point):
            self._count_step(point["step"])

    def _is_shorter_bar(self, point: Point) -> bool:
        """A second bar inside of the training's own (an evaluation, a copy) counts to less."""
        return bool(self.total and point.get("total") and "step" in point and point["total"] < 0.5 * self.total)

    def _count_step(self, step: int) -> None:
        before = self.step
        if before is not None and step < before:
            if self.total and before >= _WRAPPED * self.total and self.epochs != 1:
                self.base += self.total
            elif step <= max(1, 0.98 * before) or any(not problem["recovered"] for problem in self.problems):
                # a step or two back is two writers in one log, unless something ended in between
                self._note(self.restarts, "restarts", {"at": before, "to": step})
        self.first = step if self.first is None else self.first
        self.step = step
        self.furthest = max(self.furthest, self.base + step)

    def _place(self, point: Point, only_eval: bool) -> float:
        """Where on the x axis: steps where the line counts them, else epochs, else lines."""
        if "step" in point and not (only_eval and self.step is not None) and not self._is_shorter_bar(point):
            return float(self.base + point["step"])
        if only_eval and self.step is not None:
            return float(self.base + self.step)
        if "batch" in point and self.batches:
            return max(0.0, float(point.get("epoch", self.epoch) or 0)) * self.batches + float(point["batch"])
        bar = self.step is not None and self.total is not None  # it counts finer than 0.01 epochs
        if "epoch" in point and not bar:
            return float(point["epoch"])
        return float(self.base + self.step) if self.step is not None else float(self.lines)

    def _put(self, name: str, place: float, value: float, text: str) -> None:
        self.metrics[name] = json_number(value)
        if not math.isfinite(value):
            if "loss" in name or "norm" in name:
                self._note(self.not_numbers, f"nan:{name}", {"name": name, "x": place, "line": _short(text)})
            return
        if name in self.series or len(self.series) < SERIES:
            self.series.setdefault(name, Series()).add(place, value)

    def _take_rates(self, point: Point, place: float) -> None:
        clock, step = point.get("time"), point.get("step")
        if clock and step is not None and "it_per_s" not in point:
            self._rate_from_clock(float(clock), int(step), place)
        for name in _RATES:
            if name in point:
                self._put(name, place, point[name], "")
                self.metrics.pop(name, None)

    def _rate_from_clock(self, clock: float, step: int, place: float) -> None:
        """metrics.jsonl says when; how fast follows."""
        before, since = self.clocked or (math.inf, step)
        if clock > before and step > since:
            self.it_per_s = (step - since) / (clock - before)
            self._put("it_per_s", place, self.it_per_s, "")
            self.metrics.pop("it_per_s", None)
        if self.clocked is None or step != since:
            self.clocked = [clock, step]

    def shown_metrics(self) -> dict[str, Any]:
        """Without what a tracker keeps for itself, such as _runtime."""
        return {name: value for name, value in self.metrics.items() if not name.startswith("_")}

    def as_dict(self) -> dict[str, Any]:
        row = {item.name: getattr(self, item.name) for item in fields(self)}
        row["last_line"] = _short(self.last_line)
        row["series"] = {name: curve.as_dict() for name, curve in self.series.items()}
        return row


def from_dict(data: dict[str, Any]) -> Record:
    known = {item.name for item in fields(Record)}
    record = Record(**{name: value for name, value in data.items() if name in known and name != "series"})
    record.series = {name: series.from_dict(row) for name, row in data.get("series", {}).items()}
    return record


def _short(text: str) -> str:
    return plain(text).strip()[:_LINE]
