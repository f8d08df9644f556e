"""One curve of a log: its newest points as they are, and those before them ever more thinly.

Example:
    curve = Series()
    curve.add(100, 2.34)        curve.points()     [(100, 2.34)]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

RECENT = 512  # points of a curve that are kept as they are
OLD = 512  # and before them, ever more thinly
Points = list[tuple[float, float]]


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


def is_elapsed(lap: list[float], place: float, seconds: float) -> bool:
    """Is 'time 12.5s' the time since the start? Then it grows with the steps, and hardly ever falls. Updates `lap`."""
    first_place, first, before, ups, downs = lap
    lap[2:] = seconds, ups + (seconds > before), downs + (seconds < before)
    ups, downs = lap[3:]
    if not (ups >= 4 and ups > 8 * downs and place > first_place and seconds > first):
        return False
    in_step = first_place > 0 and math.log(seconds / first) > 0.6 * math.log(place / first_place)
    return in_step or (ups >= 8 and not downs and seconds - before < 3 * (seconds - first) / ups)


def is_stuck(points: Points) -> bool:
    """All 0; or the same digits in all values after a first one that was hardly higher: no bar that repeats it."""
    values = [value for _, value in points]
    if len(values) < 9 or not any(values):
        return len(values) >= 8 and not any(values)
    hardly = 0 < values[0] - values[1] < 0.02 * values[0]
    return hardly and len(set(values[1:])) == 1 and round(values[1], 2) != values[1]


def is_chance(points: Points) -> bool:
    """A network that plays against another and cannot tell anything: within 2 % of log(2), or of twice it."""
    values = sorted(value for _, value in points[len(points) // 4 :])
    edges = values[len(values) // 10 :: max(1, 8 * len(values) // 10)][:2] if len(values) >= 36 else []
    return bool(edges) and any(all(abs(y / (n * math.log(2)) - 1) < 0.02 for y in edges) for n in (1, 2))
