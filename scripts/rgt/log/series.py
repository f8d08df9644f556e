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
