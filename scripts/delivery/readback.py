"""A figure back into numbers, the way a reader does it: ticks give the scale, labels and legend give the names.

Example:
    for problem in compare(drawing, rows): ...        Problem("wrong-order", "...")

Nothing that figure.py says of itself is believed: a mark's value comes from where it lies between two tick labels.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from delivery.drawing import KINDS, Drawing, Mark, Panel, Point
from delivery.shapes import Shape
from delivery.sources import Row

_NEAR = 0.4  # points (0.14 mm): a mark lies where its number belongs
_TICK = 6.0  # points: the PDF's reader knows no colour of a tick for sure
_LOG = re.compile(r"10\^\{(-?\d+)\}")
_FACTOR = re.compile(r"1e([+-]?\d+)$")


class Problem(NamedTuple):
    code: str  # of report.CODES
    message: str


@dataclass(frozen=True)
class Axis:
    """position = origin + slope * value, or * log10(value)"""

    origin: float
    slope: float
    log: bool

    def position(self, value: float) -> float:
        if self.log:
            return self.origin + self.slope * math.log10(value) if value > 0 else math.nan
        return self.origin + self.slope * value

    def value(self, position: float) -> float:
        read = (position - self.origin) / self.slope
        return float(10**read) if self.log else read


def axis_of(ticks: list[tuple[float, str]], words: list[str]) -> Axis | None:
    """From the ticks a reader can read; None when they do not give one scale."""
    plain = [(position, text.replace("−", "-").replace(",", "")) for position, text in ticks]
    logs = [(position, float(match[1])) for position, text in plain if (match := _LOG.search(text))]
    log = len(logs) >= 2
    factor = next((10.0 ** int(match[1]) for word in words if (match := _FACTOR.match(word.replace("−", "-")))), 1.0)
    read = (
        logs
        if log
        else [(position, number * factor) for position, text in plain if (number := _number(text)) is not None]
    )
    if len(read) < 2 or read[0][1] == read[-1][1]:
        return None
    (first, low), (last, high) = read[0], read[-1]
    slope = (last - first) / (high - low)
    axis = Axis(first - slope * low, slope, log)
    straight = all(abs(axis.origin + slope * value - position) <= _NEAR for position, value in read)
    return axis if straight and slope else None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def compare(drawing: Drawing, rows: list[Row]) -> Iterator[Problem]:
    """What the drawing shows other than the rows of source_data.csv."""
    for title in dict.fromkeys(row["panel"] for row in rows):
        panel = _titled(drawing, title)
        if panel is None:
            yield Problem("drawn", f"no panel is titled {title!r}")
            continue
        mine = [row for row in rows if row["panel"] == title]
        y = axis_of(panel.y, panel.words[1])
        if y is None:
            yield Problem("unjudged", f"{title}: the labels of the y axis give no scale, its data were not read back")
        elif "mark" in mine[0]:
            yield from _points(panel, mine, y)
        else:
            yield from _lines(panel, mine, y, drawing.legend)
        yield from _cut(panel, title)


def _titled(drawing: Drawing, title: str) -> Panel | None:
    return next((panel for panel in drawing.panels if _plain(title) in map(_plain, panel.texts)), None)


def _plain(text: str) -> str:
    """As a comment of an SVG can hold it, wrapped or not."""
    return re.sub(r"[\s-]+", "", text)


def _cut(panel: Panel, title: str) -> Iterator[Problem]:
    if panel.frame is None:
        return
    left, top, right, bottom = panel.frame
    outside = [
        mark
        for mark in panel.marks
        for x, y in mark.points
        if not (left - _NEAR <= x <= right + _NEAR and top - _NEAR <= y <= bottom + _NEAR)
    ]
    if outside:
        yield Problem("clipped", f"{title}: {len(outside)} marks lie outside of the axes and are cut off")


# -- marks above labels


def _points(panel: Panel, rows: list[Row], y: Axis) -> Iterator[Problem]:
    title = rows[0]["panel"]
    wanted = list(dict.fromkeys(row["label"] for row in rows))
    shown = [text for _, text in sorted(panel.x)]
    if list(map(_plain, shown)) != list(map(_plain, wanted)):
        same = sorted(map(_plain, shown)) == sorted(map(_plain, wanted))
        said = f"{title}: the labels read {', '.join(shown)}; source_data.csv has {', '.join(wanted)}"
        yield Problem("wrong-order" if same else "drawn", said)
    places = {_plain(text): position for position, text in panel.x}
    for kind, expected in _expected(rows).items():
        drawn = [mark for mark in panel.marks if mark.kind == kind]
        yield from _kind(title, kind, expected, drawn, places, y)


Expected = list[tuple[str, tuple[float, ...]]]  # label, values from bottom to top


def _expected(rows: list[Row]) -> dict[str, Expected]:
    found: dict[str, Expected] = {"mean": [], "run": [], "spread": []}
    for row in rows:
        y = float(row["y"])
        found[row["mark"]].append((row["label"], (y,)))
        if row["spread"]:
            spread = float(row["spread"])
            found["spread"].append((row["label"], (y - spread, y + spread)))
    return found


def _kind(
    title: str, kind: str, expected: Expected, drawn: list[Mark], places: dict[str, float], y: Axis
) -> Iterator[Problem]:
    left = list(drawn)
    missing = []
    for label, values in expected:
        at = places.get(_plain(label))
        fits = [mark for mark in left if at is not None and _nearest(mark, places) == at and _lies(mark, values, y)]
        if fits:
            left.remove(fits[0])
        else:
            missing.append((label, values))
    swapped = [label for label, values in missing if any(_lies(mark, values, y) for mark in left)]
    if missing and len(swapped) == len(missing):
        yield Problem("wrong-order", f"{title}: the {kind} of {', '.join(swapped[:4])} is drawn above another label")
    elif missing:
        label, values = missing[0]
        said = ", ".join(f"{y.value(mark.points[0][1]):.4g}" for mark in left[:3]) or "nothing"
        number = " to ".join(f"{value:.4g}" for value in values)
        yield Problem("drawn", f"{title}: the {kind} {number} of {label} is not drawn; drawn instead: {said}")
    elif left:
        yield Problem("drawn", f"{title}: {len(left)} marks ({kind}) are drawn that source_data.csv does not have")


def _nearest(mark: Mark, places: dict[str, float]) -> float:
    return min(places.values(), key=lambda place: abs(place - mark.points[0][0]))


def _lies(mark: Mark, values: tuple[float, ...], y: Axis) -> bool:
    heights = sorted(point[1] for point in mark.points)
    wanted = sorted(y.position(value) for value in values)
    return len(heights) == len(wanted) and all(
        abs(one - other) <= _NEAR for one, other in zip(heights, wanted, strict=True)
    )


# -- lines with a legend


def _lines(panel: Panel, rows: list[Row], y: Axis, legend: dict[str, str]) -> Iterator[Problem]:
    title = rows[0]["panel"]
    x = axis_of(panel.x, panel.words[0])
    if x is None:
        yield Problem("unjudged", f"{title}: the labels of the x axis give no scale, its data were not read back")
        return
    colours = {_plain(label): colour for label, colour in legend.items()}
    if len(set(colours.values())) < len(colours):
        yield Problem("colour", f"{title}: two labels of the legend have one colour")
        return
    left = [mark for mark in panel.marks if mark.kind == "line"]
    for label, run_id, points in _curves(rows, x, y):
        if _plain(label) not in colours:
            yield Problem("drawn", f"{title}: the legend does not name {label}")
            return
        fits = [mark for mark in left if _along(mark.points, points)]
        own = [mark for mark in fits if mark.colour == colours[_plain(label)]]
        if own:
            left.remove(own[0])
            continue
        if fits:
            other = next((name for name, colour in legend.items() if colour == fits[0].colour), "nobody")
            yield Problem("wrong-order", f"{title}: the line of {label} ({run_id}) has the colour of {other}")
        else:
            yield Problem("drawn", f"{title}: no line follows the data of {label} ({run_id})")
        return
    if left:
        yield Problem("drawn", f"{title}: {len(left)} lines are drawn that source_data.csv does not have")


def _curves(rows: list[Row], x: Axis, y: Axis) -> Iterator[tuple[str, str, list[Point]]]:
    for key in dict.fromkeys((row["label"], row["run_id"]) for row in rows):
        mine = [row for row in rows if (row["label"], row["run_id"]) == key]
        places = [(x.position(float(row["step"])), y.position(float(row["y"]))) for row in mine]
        yield *key, [place for place in places if all(map(math.isfinite, place))]  # NaN is a gap in the line


def _along(drawn: tuple[Point, ...], wanted: list[Point]) -> bool:
    return len(drawn) == len(wanted) and all(
        abs(one[0] - other[0]) <= _NEAR and abs(one[1] - other[1]) <= _NEAR
        for one, other in zip(drawn, wanted, strict=True)
    )


def same_page(svg: Drawing, marks: list[Mark], texts: set[str]) -> Iterator[Problem]:
    """Every mark, tick and word of the SVG is in the PDF, too: same place, same colour; and no other data."""
    left, lacking = list(marks), []
    for mark in (mark for panel in svg.panels for mark in panel.marks):
        fits = [other for other in left if other.colour == mark.colour and _along(other.points, list(mark.points))]
        if fits:
            left.remove(min(fits, key=lambda other: math.dist(other.points[0], mark.points[0])))
        else:
            lacking.append(mark)
    if lacking:
        yield Problem("drawn", f"{len(lacking)} marks of the SVG are not in the PDF, such as {_place(lacking[0])}")
    colours = {mark.colour for panel in svg.panels for mark in panel.marks}
    others = [shape for shape in svg.shapes if not shape.letter and shape.gid.partition("-")[0] not in KINDS]
    extra = [mark for mark in left if mark.colour in colours and not any(_within(mark, shape) for shape in others)]
    if extra:
        yield Problem("drawn", f"{len(extra)} marks of the PDF are not in the SVG, such as {_place(extra[0])}")
    starts = [mark.points[0] for mark in marks]
    moved = [tick for panel in svg.panels for tick in panel.ticks if not any(_along((tick,), [at]) for at in starts)]
    if moved:
        yield Problem("drawn", f"the ticks of the PDF are not those of the SVG: {len(moved)} lie elsewhere")
    words, there = [_plain(text) for text in svg.lines if _ordinary(text)], {_plain(text) for text in texts}
    absent = [text for text in words if text not in there]
    if absent and len(absent) <= len(words) / 2:  # more: this PDF writes its letters in a way that is not read here
        yield Problem("drawn", f"the PDF lacks the text {absent[0]!r} of the SVG")


def _ordinary(text: str) -> bool:
    """Formulas and other alphabets are put together from pieces."""
    return text.isascii() and "$" not in text


def _place(mark: Mark) -> str:
    x, y = mark.points[0]
    return f"the {mark.kind} at {x:.0f}, {y:.0f} points in {mark.colour}"


def _within(mark: Mark, shape: Shape) -> bool:
    """A tick, or something in a colour of the data that carries none, such as the lines in a legend."""
    left, top, right, bottom = shape.box
    tick = max(right - left, bottom - top) <= _TICK
    return (tick or shape.pattern or mark.colour in (shape.fill, shape.stroke)) and all(
        left - _NEAR <= x <= right + _NEAR and top - _NEAR <= y <= bottom + _NEAR for x, y in mark.points
    )
