"""What is known of one training run, whoever recorded it. None and {} mean: not recorded, which is not 'the same'."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt.errors import bad_input
from rgt.run.record import RUN_ID

SPLITS = ("test", "val", None, "train")  # in this order, where the user names none
Curve = dict[int, float]


@dataclass
class Reading:
    """One reported value of one metric."""

    value: float
    split: str | None = None
    n: int | None = None  # examples behind it
    direction: str | None = None  # as the record says: up | down
    eval_set: str | None = None
    step: int | None = None
    from_curve: bool = False  # not reported: the last point of the curve
    typed: bool = False  # in a results.json that does not say how it was computed


@dataclass
class Trial:
    """One training run: one seed of one arm."""

    source: str
    run_id: str | None = None
    seed: str | None = None
    recorded: dict[str, list[Reading]] = field(default_factory=dict)  # by the name in the record
    readings: dict[str, list[Reading]] = field(default_factory=dict)  # by the name that the user gave
    curves: dict[tuple[str, str | None], Curve] = field(default_factory=dict)  # (metric, split) -> step -> value
    items: dict[str, dict[str, float]] = field(default_factory=dict)  # metric -> eval item -> score
    config: dict[str, Any] | None = None
    code: dict[str, str] | None = None
    diff: str = ""
    env: dict[str, str] | None = None
    data: dict[str, str] = field(default_factory=dict)
    budget: dict[str, float] = field(default_factory=dict)
    devices: tuple[str, ...] = ()  # one name per card; the effective batch often hangs on their number
    doubts: list[str] = field(default_factory=list)  # why its record does not say what ran
    table: bool = False  # a row of a CSV, whose columns may be settings or measurements
    left_out: dict[str, Any] = field(default_factory=dict)  # of the config, as no setting
    twins: dict[str, list[tuple[str | None, float]]] = field(default_factory=dict)  # metric -> the same on other splits
    names: dict[tuple[str, str | None], str] = field(default_factory=dict)  # (as asked for, split) -> as recorded
    label: str = ""  # the column that its rows were selected by
    available: set[str] = field(default_factory=set)  # metric names seen, for the sentence about a missing one

    def beside(self, name: str) -> list[tuple[str | None, float]]:
        """The values of a metric on every split that is recorded."""
        return [*self.twins.get(name, []), *((one.split, one.value) for one in self.readings.get(name, []))]


@dataclass
class Arm:
    name: str
    trials: list[Trial]
    words: tuple[str, ...] = ()  # as they were named on the command line

    @property
    def title(self) -> str:
        """A (new): its letter, and the folders or files that it was named by; of a run's id only the slug."""
        last = [Path(word).name for word in self.words]
        names = list(dict.fromkeys(name[16:-7] if RUN_ID.fullmatch(name) else name for name in last if name))
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        return f"{self.name} ({', '.join(names[:2])}{more})" if names else self.name


@dataclass
class Sample:
    """The values of one metric in one arm, and the trials they came from."""

    arm: Arm
    trials: list[Trial]
    readings: list[Reading]

    @property
    def values(self) -> list[float]:
        return [reading.value for reading in self.readings]

    @property
    def mean(self) -> float:
        """NaN where every run diverged."""
        return sum(self.values) / len(self.values) if self.values else math.nan

    @property
    def sd(self) -> float:
        """NaN for a single run."""
        return statistics.stdev(self.values) if len(self.values) > 1 else math.nan

    def taken(self, places: list[int]) -> Sample:
        return Sample(self.arm, [self.trials[at] for at in places], [self.readings[at] for at in places])


@dataclass
class Note:
    """A finding before it is reported; `blocks` is the verdict it forces, if any."""

    code: str
    severity: str
    message: str
    blocks: str | None = None  # bug-suspect | undecided
    disclose: str | None = None  # its words in the disclosure sentence
    fix: str | None = None
    evidence: str | None = None
    path: str = ""


def bug(code: str, message: str, disclose: str | None = None, fix: str | None = None, path: str = "") -> Note:
    """A finding that makes the comparison a bug suspect."""
    return Note(code, "error", message, "bug-suspect", disclose or message, fix, path=path)


def told(code: str, message: str, disclose: str | None = None, path: str = "", fix: str | None = None) -> Note:
    """A finding that travels with the number and changes no verdict."""
    return Note(code, "warn", message, disclose=disclose or message, path=path, fix=fix)


def usable(value: float) -> bool:
    """A loss of 1e60 is as diverged as NaN, and the fourth power of it is no float."""
    return math.isfinite(value) and abs(value) < 1e50


def short(value: float) -> str:
    """Four significant digits, more when the number is large: 0.9134, 27.31, 12345."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 1e4 and abs(value) < 1e9 else f"{value:.4g}"


def number(value: Any, where: str) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise bad_input(f"{where} is not a number: {str(value)[:60]!r}") from None
