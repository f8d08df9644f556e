"""Everything that an SVG of matplotlib paints, letters, too: outlines where they lie, with their colours, in order."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass

_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_STEP = re.compile(r"([MLQCz])([^MLQCz]*)")
_MOVE = re.compile(r"(translate|rotate|scale)\(([^)]*)\)")
_HEX = re.compile(r"#[0-9a-f]{6}$")

Point = tuple[float, float]
Box = tuple[float, float, float, float]  # left, top, right, bottom
Matrix = tuple[float, float, float, float, float, float]  # as SVG writes it: x' = a x + c y + e, y' = b x + d y + f
_HERE: Matrix = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)


@dataclass(frozen=True)
class Shape:
    steps: tuple[tuple[str, tuple[Point, ...]], ...]  # M, L, Q, C or z with its points
    style: dict[str, str]
    gid: str  # of the group that the artist made; data have those that figure.py gives
    clip: Box | None

    @property
    def letter(self) -> bool:
        return self.gid.startswith("text_")

    @property
    def fill(self) -> str:
        return _colour(self.style.get("fill", "#000000"))

    @property
    def stroke(self) -> str:
        return _colour(self.style.get("stroke", ""))

    @property
    def pattern(self) -> bool:
        """Hatched: what it shows is not known."""
        return self.style.get("fill", "").startswith("url(")

    @property
    def box(self) -> Box:
        across, down = zip(*(point for _, points in self.steps for point in points), strict=True)
        return min(across), min(down), max(across), max(down)


def _colour(text: str) -> str:
    return text.lower() if _HEX.match(text.lower()) else ""


def shapes(root: ET.Element) -> list[Shape]:
    known = {node.get("id", ""): node for node in root.iter() if node.get("id")}
    return list(_Walk(known).below(root, "", None, {}, _HERE))


@dataclass
class _Walk:
    known: dict[str, ET.Element]

    def below(self, node: ET.Element, gid: str, clip: Box | None, style: dict[str, str], at: Matrix) -> Iterator[Shape]:
        if not isinstance(node.tag, str) or node.tag == f"{_SVG}defs":
            return
        clip, style, at = self._clip(node) or clip, {**style, **_style(node)}, _moved(at, node)
        if node.tag == f"{_SVG}use":
            at = _times(at, (1, 0, 0, 1, float(node.get("x", "0")), float(node.get("y", "0"))))
            path = self.known.get(node.get(_LINK, "")[1:])
            if path is not None:
                yield from _shape(path, {**style, **_style(path)}, gid, clip, _moved(at, path))
        elif node.tag == f"{_SVG}path":
            yield from _shape(node, style, gid, clip, at)
        for child in node:
            yield from self.below(child, node.get("id") or gid, clip, style, at)

    def _clip(self, node: ET.Element) -> Box | None:
        named = re.fullmatch(r"url\(#(.+)\)", node.get("clip-path", ""))
        rect = self.known[named[1]].find(f"{_SVG}rect") if named and named[1] in self.known else None
        if rect is None:
            return None
        x, y, width, height = (float(rect.get(name, "0")) for name in ("x", "y", "width", "height"))
        return x, y, x + width, y + height


def _style(node: ET.Element) -> dict[str, str]:
    pairs = (part.partition(":") for part in node.get("style", "").split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def _moved(at: Matrix, node: ET.Element) -> Matrix:
    for name, numbers in _MOVE.findall(node.get("transform", "")):
        first, *more = (float(number) for number in re.split(r"[\s,]+", numbers.strip()))
        if name == "translate":
            at = _times(at, (1, 0, 0, 1, first, more[0] if more else 0.0))
        elif name == "scale":
            at = _times(at, (first, 0, 0, more[0] if more else first, 0, 0))
        else:
            sine, cosine = math.sin(math.radians(first)), math.cos(math.radians(first))
            at = _times(at, (cosine, sine, -sine, cosine, 0, 0))
    return at


def _times(outer: Matrix, inner: Matrix) -> Matrix:
    a, b, c, d, e, f = outer
    g, h, i, j, k, m = inner
    return a * g + c * h, b * g + d * h, a * i + c * j, b * i + d * j, a * k + c * m + e, b * k + d * m + f


def _shape(path: ET.Element, style: dict[str, str], gid: str, clip: Box | None, at: Matrix) -> Iterator[Shape]:
    a, b, c, d, e, f = at
    steps = []
    for step in _STEP.finditer(path.get("d", "")):
        numbers = [float(number) for number in step[2].split()]
        places = zip(numbers[::2], numbers[1::2], strict=False)
        steps.append((step[1], tuple((a * x + c * y + e, b * x + d * y + f) for x, y in places)))
    if any(points for _, points in steps):
        yield Shape(tuple(steps), style, gid, clip)
