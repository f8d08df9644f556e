"""What the lines of one log add up to: counters, curves, checkpoints, restarts and errors, ready to be kept as JSON.

Example:
    history = History()
    history.take("iter 100: loss 2.34, time 12.5ms")       history.step, history.series["loss"].points()
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any

from rgt.files import json_number
from rgt.log.fate import CHAPTER, OVERFLOW, RESUMES, SCALED, WAITS, Problem, problem_in, says_ended, says_saved
from rgt.log.line import WORTH, Point, parse_line, parse_row, plain
from rgt.log.printed import bare_line, clock
from rgt.log.printed_table import Table
from rgt.log.series import Series, is_elapsed
from rgt.log.starts import Starts, see_start
from rgt.metrics.table import is_curve, is_evaluation, known, role

SERIES = 48  # curves of one log
_PAUSES = 256
_YEAR = 366 * 86400.0
_KEPT = 32  # checkpoints, restarts and errors that are remembered
_LINE = 200  # characters of a line that are remembered
_CLOCK_WITHIN = 80  # characters from the left, but for a JSON object
_COARSE = 10.0  # seconds
_CLOCKS = ("", "told", "day", "date")  # none, seconds since the start or since 1970, the time of day, the best last
_TIME_OF_DAY = re.compile(r"[^\w%]{0,3}(?:[A-Z]+:? +)?(\d\d):(\d\d):(\d\d)\b(?!:)")
_RATES = ("it_per_s", "tokens_per_s")
_BRIEF = "step total epoch epochs batch batches it_per_s tokens_per_s eta epoch_eta epoch_time metrics problems".split()
_BRIEF.append("last_line")
_TRACEBACK = "Traceback (most recent call last)"
_BAR_BEFORE = re.compile(r".{0,200}?\d%\|[^\]]{1,400}\]")
_RAISED = re.compile(r"(?:\[?rank\d+\]?: ?)?[A-Za-z_][\w.]*\b")  # the first line after it that is not indented
_WRAPPED = 0.97  # a counter that starts anew from here has finished an epoch; from below it was restarted
_DIGITS = 0.01  # of an epoch that is printed as a fraction
_RECOVERED = 3  # steps after a kill that are more than a buffer that was written out late
_COUNTERS = {"step", "batch", "epoch"}
_KINDS, _KIND = 64, 60  # kinds of lines that are remembered, and characters of each
_NUMBER = re.compile(r"\d+")
_NOT_ZERO = re.compile(r"[1-9]\d*|\d{2,}")
_A_VALUE = re.compile(r" *[-+]?\b(?:\d[\d.,:/]*(?:e[-+]?\d+)?|nan|inf)", re.I)
_WORD = re.compile(r"[^\W\d_]{2,}")
SCALE_TOLD = "loss_scale_told"  # by messages about overflows, one point each


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
    interrupted: bool = False  # an evaluation or a save since then
    closed: bool = False  # an evaluation or a save is the newest of all
    clean: int = 0  # intervals without one
    lap: list[float] | None = None  # place and seconds of the first step time, the newest one's seconds, ups, downs
    clock: float | None = None  # of the newest line that has one: seconds in a year of its own
    clock_kind: str = ""  # a key of _CLOCKS
    moved: float | None = None  # the clock at the last progress
    pauses: list[float] = field(default_factory=list)  # the newest seconds between two of them
    waits: int = 0  # lines since the last progress that say that something waits
    usual_waits: int = 0  # most of them before a progress
    repeats: int = 0  # lines that show the same counters again, up to the newest
    usual_repeats: int = 0  # most of them before a progress: every rank may print its own
    step_epoch: float | None = None  # the epoch when the step was last told
    stepless: int = 0  # points in a row that count epochs and no steps
    laps: int = 0  # points of this epoch, where nothing finer is counted
    usual_laps: int = 1  # most of them
    finer: bool = False  # its epochs have fractions
    stride: int = 0  # steps between the newest two
    pairs: bool = False  # of epoch and batch, where others count the batches of all
    base: int = 0  # steps of the epochs before, where every epoch counts from 0
    first_epoch: float = 0
    own: list[str] = field(default_factory=list)  # metrics of the training, on lines that count
    lines: int = 0
    again: bool = False  # lines like the newest one have been there before
    furthest: int = 0
    metrics: dict[str, float] = field(default_factory=dict)  # the newest of each
    not_numbers: list[dict[str, Any]] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    saves: list[dict[str, Any]] = field(default_factory=list)
    restarts: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)  # how often each of the four was seen, however many are kept
    ended: bool = False
    went_back: bool = False  # its counters, with the line that is being taken
    resumed: bool = False  # a line since the last progress says so, or repeats the first lines of the log
    starts: Starts = field(default_factory=dict)
    banner: list[str] = field(default_factory=list)  # kinds of lines before the first progress
    origin: float | None = None  # the first place, for not every run counts from 0
    place: float = 0.0  # of the newest line of the training that counts, on the x axis
    chapter: bool = False  # a line since the last restart names the next fold, stage or trial
    chapters: list[str] = field(default_factory=list)  # all of them: one that is named again is started again
    last_line: str = ""
    waiting_line: str = ""
    moves: int = 0  # points that made progress
    news: dict[str, int] = field(default_factory=dict)  # lines since the last progress that are no points, by kind
    counters: dict[str, list[int]] = field(default_factory=dict)  # the newest whole numbers by the words before them
    counter: str | None = None  # of them, the one that counts the steps
    records: list[str] = field(default_factory=list)  # kinds of lines that hold numbers
    kinds: list[str] = field(default_factory=list)  # of such lines before it
    mute: list[str] = field(default_factory=list)  # kinds of lines that tell no problem, wait or end
    muted: bool = False  # the line that is being taken is one of them
    series: dict[str, Series] = field(default_factory=dict)
    nan_runs: dict[str, int] = field(default_factory=dict)  # values in a row, up to the newest, that are not numbers
    table: Table = field(default_factory=Table)

    def take(self, line: str) -> None:
        """One line as it stands in the file."""
        if not line or line.isspace():
            return
        self.lines += 1
        raw, line = line, plain(line)
        self.last_line = line
        when = self._see_clock(line)
        # what lines of this kind say is the same for other numbers, but not for a 0; a trainer prints few kinds
        kind = _NOT_ZERO.sub("#", line)
        self.muted = kind in self.mute and not self.problems
        waits = not self.muted and bool(WAITS.search(line))
        if waits:
            self.waits, self.waiting_line = self.waits + 1, _short(line)
        if not self.muted and self._take_problem(raw, line):
            return
        if says_saved(line):
            self.interrupted = self.closed = True
            self._note(self.saves, "saves", {"step": self.step, "line": _short(line)})
        ended = not self.muted and says_ended(line)
        self.ended = ended or self.ended
        self._see_chapter(line)
        if waits and "loss" not in line:  # "no progress for 7200 seconds (last step 7600)"
            return
        if not self.muted and self._take_overflow(line):
            return
        if not (self.muted or waits or ended or "signal" in line.lower()) and len(self.mute) < _KINDS:
            self.mute.append(kind)
        printed = bare_line(raw.encode("utf-8", "replace"))
        whole, raw = raw, raw if raw.lstrip()[:1] in tuple("|│┃") else printed.text
        # a line of names and numbers is cheaper to see than to try as a table
        tabular = "=" not in line and (": " not in line or "%|" in line or ": [" in line)
        record = self.again = self._is_record(raw)
        rows = self.table.rows(raw) if tabular else []
        rows = self.table.rows(whole) if tabular and rows == [] else rows
        if rows is None:
            return
        if rows:
            bar = parse_line(raw) if "%|" in raw else {}
            for row in rows:
                self.take_point({**parse_row(row), **{name: bar[name] for name in bar if name != "metrics"}}, line)
        # wandb's summary comes after the end, of whatever kind
        elif (record or WORTH.search(line)) and "wandb:" not in line and (point := self._point(raw, record)):
            self.take_point({"time": when, **point} if when else point, line)
        else:
            self._see_kind(raw)

    def _take_overflow(self, line: str) -> bool:
        if not OVERFLOW.search(line):
            return False
        self.counts["overflows"] = self.counts.get("overflows", 0) + 1
        if told := SCALED.search(line):
            self.put(SCALE_TOLD, float(self.lines), float(told[1]))
        return True

    def _see_chapter(self, line: str) -> None:
        if (chapter := CHAPTER.search(line)) and (scope := (chapter[1] or chapter[0]).lower()) not in self.chapters:
            self.chapter, self.chapters = True, [*self.chapters, scope][-_KINDS:]

    def _is_record(self, text: str) -> bool:
        """Has a line with the same words around its numbers been there before?"""
        kind = _A_VALUE.sub("#", text[:_LINE])
        if "#" not in kind:
            return False
        if kind not in self.records and len(self.records) < _KINDS:
            self.records.append(kind)
            return False
        return kind in self.records

    def _point(self, text: str, record: bool) -> Point:
        """Where a run resumes is no progress: it may lie behind what was reached, and the next step tells it."""
        point = parse_line(text, record)
        if self._is_last_evaluation(point):
            return {"metrics": {n if is_evaluation(n) else f"val_{n}": v for n, v in point["metrics"].items()}}
        return point if point.get("metrics") or not RESUMES.search(text) else {}

    def _take_problem(self, raw: str, line: str) -> bool:
        last, code = self.problems[-1] if self.problems else None, problem_in(line)
        if last and _TRACEBACK in last.line and _RAISED.match(line):
            last.line = _short(line)  # which names the exception
            code = None if code == "crash" else code
        if not code or (self.ended and code == "crash"):  # of what cleans up after the end
            return False
        # its numbers are of the accident, such as "STEP 9432010.0 CANCELLED AT"; a bar before it is not
        if bar := _BAR_BEFORE.match(raw):
            self.take_point(parse_line(bar[0]), line)
        self._note(self.problems, code, Problem(code, _short(line)))
        return True

    def _see_kind(self, text: str) -> None:
        """Of a line that tells no number of the training."""
        self.resumed = self.resumed or bool(RESUMES.search(text))
        now = [self.moves, len(self.problems), self.clock or 0.0, self.place]
        see_start(self.starts, _short(text), now, self.ended)
        if len(self.news) < _KINDS and "%|" not in text and len(_WORD.findall(text)) >= 3:
            kind = _NUMBER.sub("#", text.strip())[:_KIND]
            self.news[kind] = self.news.get(kind, 0) + 1
            self.resumed = self.resumed or kind in self.banner

    def _see_clock(self, line: str) -> float | None:
        """Some lines of one log name the year and some do not: all are put into one leap year."""
        if when := clock(line if line[:1] == "{" else line[:_CLOCK_WITHIN]):
            self._set_clock("date", datetime.fromtimestamp(when, timezone.utc).replace(year=2000).timestamp())
        elif self.clock_kind != "date" and (day := _TIME_OF_DAY.match(line)):
            hours, minutes, seconds = map(int, day.groups())
            when, before = 3600.0 * hours + 60 * minutes + seconds, self.clock or 0.0
            since = (when - before) % 86400
            self._set_clock("day", before + since if since < 80000 else before)
        else:
            return None
        return self.clock

    def _set_clock(self, kind: str, when: float) -> None:
        """The best one that the log has."""
        if _CLOCKS.index(kind) < _CLOCKS.index(self.clock_kind):
            return
        if kind != self.clock_kind or (kind == "told" and when < (self.clock or 0.0)):
            self.moved, self.pauses = None, self.pauses if kind == self.clock_kind else []
        self.clock, self.clock_kind = when, kind

    @property
    def silence(self) -> float:
        """Seconds by the log's own clock between its last progress and its newest line."""
        passed = 0.0 if self.clock is None or self.moved is None else (self.clock - self.moved) % _YEAR
        return passed if passed < _YEAR / 12 else 0.0  # a clock that went back, or one from elsewhere

    @property
    def chatter(self) -> int:
        """Lines since the last progress that say the same again and again, and never did before."""
        new = (count for kind, count in self.news.items() if kind not in self.kinds)
        return max(new, default=0) if self.moves else 0

    def _note(self, where: list[Any], what: str, row: Any) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
        where.append(row)
        del where[:-_KEPT]

    def _guess_counter(self, point: Point) -> None:
        """Where nothing is called a counter, the whole number that goes up by equal steps is it."""
        counters: dict[str, list[int]] = point.pop("counters", {})
        lap = point.pop("lap", None)
        if lap and not point.get("metrics"):
            point |= {"it_per_s": 1 / lap} if self.step is not None else {"epoch_time": lap}
        if not _COUNTERS.isdisjoint(point):
            if self.counter is not None and ("step" in point or "batch" in point):  # it was something else
                self.counter = self.step = None
            return
        for name, (value, _) in counters.items() if self.moves <= 8 and point.get("metrics") else ():
            values = self.counters.get(name, [])
            values = values if value in values[-1:] else [*values, value][-3:]
            self.counters[name] = values
            steps = [after - before for before, after in pairwise(values)]
            if self.counter is None and len(steps) == 2 and steps[0] == steps[1] > 0:
                self.counter = name
        if self.counter is not None and self.counter in counters:
            point["step"], total = counters[self.counter]
            if self.moves < 16 and point["step"] < (self.step or 0) and not self._told_of_a_start:
                self.counter = self.step = None  # by chance it went up evenly at first
                del point["step"]
                return
            point |= {"total": total} if total else {}
            point |= {"it_per_s": 1 / lap} if lap else {}

    def take_point(self, point: Point, text: str) -> None:
        self._guess_counter(point)
        metrics: dict[str, float] = point.get("metrics", {})
        if point.get("batch") == 0 and not self._is_epoch_0(point) and self._is_reset_bar(point):
            self.repeats += 1
            point, metrics = {name: value for name, value in point.items() if name == "epochs"}, {}
        counted = "step" in point or "batch" in point or "epoch" in point
        if metrics and not counted and not (self.found or self.again or any("loss" in name for name in metrics)):
            metrics = {}  # a configuration that is printed has many numbers, and none of them is a curve
        elif not counted:
            metrics = self._uncounted(metrics)
        before = self.step, self.batch, self.epoch
        only_eval = bool(metrics) and all(map(is_evaluation, metrics))
        if counted and not only_eval:
            self.own = [*self.own, *(name for name in metrics if name not in self.own)][:SERIES]
        new = any(self.metrics.get(name) != value for name, value in metrics.items())
        self.interrupted = self.interrupted or only_eval
        self.closed = any(map(is_evaluation, metrics)) or (self.closed and (only_eval or not (counted and metrics)))
        if not only_eval or self.step is None:  # LitGPT's validation counts micro-batches
            self._count(point)
        if "epoch" in point and not only_eval:
            self.finer = self.finer or point["epoch"] % 1 > 0
            self.usual_laps = max(self.usual_laps, self.laps + 1)
            self.laps = self.laps + 1 if self.epoch == before[2] else 0
        self.stepless = 0 if "step" in point or "batch" in point else self.stepless + ("epoch" in point)
        place = self._place(point, only_eval)
        self._see_place(place, counted and not only_eval)
        for name, value in metrics.items():
            # a bar shows the last evaluation beside every batch
            inside = "batch" in point and point["batch"] != point.get("batches") and not only_eval
            if not (inside and is_evaluation(name) and self.metrics.get(name) == value):
                self.put(name, place, value, text)
            self.metrics[name] = value
        self._take_rates(point, place)
        if not only_eval and (counted or (metrics and before == (None, None, None))):  # uncounted: a value is progress
            same = counted and (self.step, self.batch, self.epoch) == before
            if not (same and new and before[:2] != (None, None)):
                self._see_progress(same and not new)
            # a bar is drawn once more after the end
            if self.step != before[0] and not (self.total and self.step and self.step >= self.total):
                self.ended = not self.muted and says_ended(text)

    def _is_last_evaluation(self, point: Point) -> bool:
        """Keras: the bar of model.evaluate() after the last epoch counts fewer batches and no epoch."""
        over = self.epochs and self.batches and (self.epoch, self.batch) == (self.epochs, self.batches)
        bar = "metrics" in point and "epoch" not in point
        return bool(over and bar and 0 < point.get("batches", 0) < 0.5 * (self.batches or 0))

    def _is_reset_bar(self, point: Point) -> bool:
        """With the numbers of the epoch before; or a batch that is counted modulo all, at the end of its epoch."""
        for name in _RATES:  # the first step of an epoch waits for its data
            point.pop(name, None)
        same = bool(self.batch) and point.get("epoch", self.epoch) == self.epoch and not self._told_of_a_start
        return same or all(self.metrics.get(name) == value for name, value in point.get("metrics", {}).items())

    def _uncounted(self, metrics: dict[str, float]) -> dict[str, float]:
        """Of a line without a counter. Where others count what it tells, it sums an evaluation up, or an epoch."""
        if not any(name in self.own for name in metrics):
            return {n: v for n, v in metrics.items() if is_curve(n) or role(n) or n == "samples_per_s"}
        new = [metric for name in metrics if name not in self.own and (metric := known(name))]
        if any(metric.direction == "up" for metric in new):  # Swin: "* Acc@1 62.4 Acc@5 74.9 loss 3.50"
            return {n if is_evaluation(n) else f"val_{n}": v for n, v in metrics.items() if known(n)}
        return {n: v for n, v in metrics.items() if is_curve(n) and (n not in self.own or not math.isfinite(v))}

    def _see_progress(self, again: bool) -> None:
        """`again`: the same counters are shown once more."""
        if again:
            self.repeats += 1
            return
        self.usual_repeats = max(self.usual_repeats, self.repeats)
        self.usual_waits = max(self.usual_waits, self.waits)
        self.repeats = self.waits = 0
        self.moves += 1
        self.kinds = [*self.kinds, *(kind for kind in self.news if kind not in self.kinds)][-_KINDS:]
        self.banner = self.banner if self.moves > 1 else [*self.news]
        if self.silence and not self.resumed:
            self.pauses = [*self.pauses, self.silence][-_PAUSES:]
        for problem in self.problems:
            problem.moves += 1
            enough = _RECOVERED if problem.code == "killed" and not self.resumed else 1
            problem.recovered = problem.recovered or problem.moves >= enough
        self.moved, self.news, self.resumed = self.clock, {}, False

    @property
    def _told_of_a_start(self) -> bool:
        return self.resumed or any(not problem.recovered for problem in self.problems)

    def _see_place(self, place: float, counts: bool) -> None:
        if self.went_back:
            told = self._told_of_a_start
            self._note(self.restarts, "restarts", {"at": self.place, "to": place, "told": told})
            for name in (*_RATES, "samples_per_s", "epochs_per_s") if told else ():  # a bar's mean counts from here
                self.series.pop(name, None)
            self.went_back = False
        if counts:
            self.place, self.origin = place, place if self.origin is None else self.origin

    def _count(self, point: Point) -> None:
        if "batches" in point and "epoch" not in point and self._is_epoch_and_batch(point["batch"], point["batches"]):
            point |= {"epoch": point.pop("batch"), "step": point.pop("batches")}
            self.batch = self.batches = None
        shorter = self._is_shorter_bar(point)
        epoch, last = point.get("epoch"), self.epoch
        if epoch is not None and last is not None and self._earlier_epoch(point, epoch, last):
            whole = not self.batches or (self.batch or 0) >= _WRAPPED * self.batches
            self._restart(whole and last >= (self.epochs or math.inf) - (1 if last % 1 == 0 else 0.05))
            self.step = self.batch = None
            self.base = round(self._steps_of_epoch * max(0.0, epoch - self.first_epoch)) if self.went_back else 0
        elif "batch" in point and epoch == last and self.batch and 0 <= point["batch"] < 0.9 * self.batch:
            # in one epoch: an evaluation's bar names none; one that is named again after an accident was not done
            again = epoch is not None and self._told_of_a_start
            self._restart(not again and self.batch >= _WRAPPED * (self.batches or math.inf))
        elif epoch is not None and epoch != last and self.batch:
            self.batch = 0
        self.first_epoch = epoch if last is None and epoch is not None else self.first_epoch
        for name in ("epochs", "epoch", "batches", "batch", "eta", "epoch_eta", "epoch_time", *_RATES):
            if name in point:
                setattr(self, name, point[name])
        if not shorter:
            self.total = point.get("total", self.total)
        if "step" not in point or shorter:
            return
        step, before = point["step"], self.step
        if before is not None and step < before:
            self._fall_back(step, before)
        self.stride = step - before if before is not None and step > before else self.stride
        self.step, self.step_epoch = step, self.epoch
        self.furthest = max(self.furthest, self.base + step)

    def _fall_back(self, step: int, before: int) -> None:
        next_epoch = self.epoch is not None and self.step_epoch is not None and self.epoch // 1 > self.step_epoch // 1
        if next_epoch:  # a counter of batches
            self.base += self.total if self.total and self.total >= before else before
        elif self.total and self.epochs != 1 and self._wraps(before, step, self.total) and not self.chapter:
            self.base += self.total
        elif step <= max(1, 0.98 * before) or self._told_of_a_start:
            # a step or two back is two writers in one log, unless something ended in between
            self._restart(bool(self.total and before >= _WRAPPED * self.total))

    def _wraps(self, before: int, step: int, total: int) -> bool:
        """At its end, or its next print falls into the next epoch: 72 of 82, and then 8 in strides of 18."""
        return before >= _WRAPPED * total or (step <= total - before + step == self.stride)

    def _is_epoch_and_batch(self, first: int, second: int) -> bool:
        """WeNet: "Batch 3/100" and then "Batch 3/200" is batch 200 of epoch 3."""
        was, last = (self.batch, self.batches) if self.batches is not None else (self.epoch, self.step)
        self.pairs = self.pairs or (was == first and last is not None and second > last >= 0)
        return self.pairs

    def _is_epoch_0(self, point: Point) -> bool:
        if "epoch" in point or self.batch:
            return False
        pairs = self._is_epoch_and_batch(0, point["batches"])
        self.batch, self.batches = 0, point["batches"]
        return pairs

    @property
    def _steps_of_epoch(self) -> float:
        """Where every epoch counts them from 0, and none says how many there are."""
        return self.base / max(1.0, (self.epoch or 0) - self.first_epoch)

    def _earlier_epoch(self, point: Point, epoch: float, last: float) -> bool:
        """And not a late line of the epoch before, or of a slower rank."""
        if self._told_of_a_start:
            return epoch < last
        if epoch >= last - 0.5 or epoch <= 1 or last - epoch >= 2:
            return epoch < last - 0.5
        per, here = self.batches or self.total or self._steps_of_epoch, point.get("batch", point.get("step"))
        was = (self.batch if "batch" in point else self.step) or 0
        return here is not None and per - here + was > 0.1 * per > 0

    def _restart(self, complete: bool) -> None:
        """A fold or a trial after one that reached its end is none."""
        self.went_back = not (complete or self.ended or self.chapter)
        if self.chapter:
            self.series.clear()
            self.base = 0
        self.chapter = False

    def _is_shorter_bar(self, point: Point) -> bool:
        """A second bar inside of the training's own (an evaluation, a copy) counts to less."""
        return bool(self.total and point.get("total") and "step" in point and point["total"] < 0.5 * self.total)

    def _place(self, point: Point, only_eval: bool) -> float:
        """Where on the x axis: steps where the line counts them, else epochs, else lines."""
        here = None if self.step is None else float(self.base + self.step)
        if only_eval and here is not None:
            return here
        if only_eval and self.batches and self.batch is not None:  # where the training stands
            return max(0.0, self.epoch or 0.0) * self.batches + self.batch
        if "step" in point and not self._is_shorter_bar(point):
            return float(self.base + point["step"])
        if "batch" in point and self.batches:
            return max(0.0, float(point.get("epoch", self.epoch) or 0)) * self.batches + float(point["batch"])
        if here is None and self.batches and self.batch is not None:
            return max(0.0, self.epoch or 0.0) * self.batches + self.batch
        # a bar counts finer than 0.01 epochs; a step that is told no more counts nothing
        if "epoch" in point and (here is None or (self.total is None and self.stepless > 2)):
            one = _DIGITS if self.finer or not point["epoch"] else 1.0  # HF prints several lines for epoch 0.01
            return float(point["epoch"]) + one * self.laps / max(self.usual_laps, self.laps + 1)
        return float(self.lines) if here is None else here

    def put(self, name: str, place: float, value: float, text: str = "") -> None:
        """One value of a curve."""
        finite = math.isfinite(value)
        self.nan_runs[name] = 0 if finite else self.nan_runs.get(name, 0) + 1
        if not finite:
            of = (role(name) or ("",))[0]
            known = of in ("loss", "grad_norm") or "loss" in name
            # nobody knows its name: it may be the loss
            is_known = is_curve(name) and of != "reward"
            known = known or (self.nan_runs[name] > 2 and name in self.series and not is_known)
            if known and "best" not in name:  # the best loss so far begins at infinity
                self._note(self.not_numbers, f"nan:{name}", {"name": name, "x": place, "line": _short(text)})
        elif name in self.series or len(self.series) < SERIES:
            self.series.setdefault(name, Series()).add(place, value)

    def _take_rates(self, point: Point, place: float) -> None:
        """As the line says it, or from the clock and place of two rows."""
        seconds = point.get("epoch_time") or (1 / point["it_per_s"] if point.get("it_per_s") else None)
        self.lap = self.lap or ([place, seconds, seconds, 0, 0] if seconds else None)
        if seconds and self.lap and is_elapsed(self.lap, place, seconds):
            point = {name: value for name, value in point.items() if name not in ("it_per_s", "epoch_time")}
            point["time"] = seconds
            if self.clocked is None or self.clocked[0] > 1e8:
                self.clocked = self.it_per_s = self.epoch_time = None
                self.series.pop("it_per_s", None)
                self.series.pop("epochs_per_s", None)
        elif "epoch_time" in point:
            self.put("epochs_per_s", place, 1 / point["epoch_time"])
        for name in _RATES:
            if name in point:
                self.put(name, place, point[name])
        when, steps = point.get("time", point.get("elapsed")), "step" in point or "batch" in point
        if when:
            self._set_clock("told", when)
        told = "epoch_time" in point or any(name in point for name in _RATES)
        if not when or told or not (steps or "epoch" in point):
            return
        before, since = self.clocked or (math.inf, place)
        if 0 < when - before < _COARSE and (when - before) % 1 == 0:
            return  # a clock of seconds tells nothing about less than a few of them
        if when > before and place > since and not (self.interrupted and self.clean > 2):
            self.clean += not self.interrupted
            speed = (place - since) / (when - before)
            self.put("it_per_s" if steps else "epochs_per_s", place, speed)
            if steps:  # smoothed: one interval may hold an evaluation or a save
                self.it_per_s = speed if self.it_per_s is None else 0.75 * self.it_per_s + 0.25 * speed
        if self.clocked is None or when != before or place < since:
            self.clocked, self.interrupted = [when, place], False

    # -- what it adds up to

    @property
    def found(self) -> bool:
        return self.step is not None or self.epoch is not None or bool(self.metrics)

    @property
    def concluded(self) -> bool:
        """Its last step is done, and the evaluation or the save behind it."""
        if not self.closed:
            return False
        left = self.batches - (self.batch or 0) if self.batches else 0
        if self.eta is not None and self.batches:  # paddle prints no number of epochs, and not each of its batches
            return self.eta <= 1.2 * left / (self.it_per_s or math.inf) if left else not self.eta
        from_0 = self.first_epoch == 0 and bool(self.batches)
        last = bool(self.epochs) and (self.epoch or 0) >= (self.epochs or 0) - from_0
        parts = None in (self.step, self.total) or bool(self.base or self.epochs or self.epoch is not None)
        return (last and left <= 0.1 * (self.batches or 0)) or (not parts and self.furthest >= (self.total or 0))

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
        own = {"series": curves, "metrics": metrics, "problems": problems, "last_line": last_line}
        return vars(self) | own | {"table": vars(self.table)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> History:
        series = {name: Series.from_json(row) for name, row in data["series"].items()}
        metrics = {name: float(value) for name, value in data["metrics"].items()}
        problems = [Problem(**row) for row in data["problems"]]
        table = Table(**data["table"])
        return cls(**data | {"series": series, "metrics": metrics, "problems": problems, "table": table})


def _short(text: str) -> str:
    return plain(text).strip()[:_LINE]
