"""A curve in bounded memory: the newest points as they are, the older ones ever more thinly.

Example:
    curve = Series()
    curve.add(100, 2.31)          a second value at the same place replaces the first
    curve.points()                [(x, value), ...] in order
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

RECENT = 512
OLD = 512

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
        if self.recent and x < self.recent[-1][0]:
            self._rewind(x)
        if self.recent and self.recent[-1][0] == x:  # a bar shows a step first with the old value, then with the new
            self.recent[-1] = (x, value)
            return
        self.recent.append((x, value))
        self.count += 1
        if len(self.recent) > RECENT:
            self._age(self.recent.pop(0))

    def _age(self, point: tuple[float, float]) -> None:
        self.passed += 1
        if self.passed % self.stride == 0:
            self.old.append(point)
        if len(self.old) > OLD:
            self.old = self.old[::2]
            self.stride *= 2

    def _rewind(self, x: float) -> None:
        """A resumed run computes steps again: what was computed later counts."""
        self.recent = [point for point in self.recent if point[0] < x]
        self.old = [point for point in self.old if point[0] < x]

    def points(self) -> Points:
        return self.old + self.recent

    def last(self) -> tuple[float, float] | None:
        newest = self.recent or self.old
        return newest[-1] if newest else None

    def as_dict(self) -> dict[str, Any]:
        return {
            "recent": [list(point) for point in self.recent],
            "old": [list(point) for point in self.old],
            "stride": self.stride,
            "passed": self.passed,
            "count": self.count,
        }


def from_dict(data: dict[str, Any]) -> Series:
    return Series(
        [(float(x), float(value)) for x, value in data["recent"]],
        [(float(x), float(value)) for x, value in data["old"]],
        int(data["stride"]),
        int(data["passed"]),
        int(data["count"]),
    )


def thin(points: Points, limit: int) -> Points:
    """At most `limit` points for a plot; in each stretch the lowest and the highest stay, so that no spike is lost."""
    if len(points) <= limit:
        return points
    width = math.ceil(len(points) / max(1, limit // 2))
    kept: Points = []
    for start in range(0, len(points), width):
        stretch = points[start : start + width]
        kept += sorted({min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])})
    kept[-1] = points[-1]
    return kept
