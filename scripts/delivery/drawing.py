"""A written SVG as what a reader sees: panels with titles, ticks with labels, a legend, and the marks that carry data.

Example:
    drawing = read(Path("figure.svg"))
    drawing.panels[0].marks        [Mark("mean", ((59.6, 64.5),), "#0072b2"), ...]      in points, y downwards
"""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path

from delivery.shapes import Shape, shapes
from rgt.errors import bad_input, from_os_error

KINDS = ("mean", "run", "spread", "line")  # the gids of figure.py, before the dash
_LARGEST = 256 * 2**20
_SVG = "{http://www.w3.org/2000/svg}"
_STEP = re.compile(r"([MLCQ])((?:\s*-?[\d.]+(?:e-?\d+)?)+)")
_PLACED = re.compile(r"translate\((-?[\d.]+) (-?[\d.]+)\)(?: rotate\((-?[\d.]+)\))? scale\(([\d.]+) ")
_SHIFTED = re.compile(r"translate\((-?[\d.]+) ")
_LETTER = 40.0  # of the 100 units of a letter's height: a narrow one
_COLOUR = re.compile(r"\b(fill|stroke): (#[0-9a-fA-F]{6})")

Point = tuple[float, float]


@dataclass(frozen=True)
class Mark:
    kind: str
    points: tuple[Point, ...]
    colour: str


@dataclass
class Panel:
    texts: list[str] = field(default_factory=list)  # title and other words of the axes
    x: list[tuple[float, str]] = field(default_factory=list)  # ticks: position, label
    y: list[tuple[float, str]] = field(default_factory=list)
    words: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))  # beside the x and the y axis
    ticks: list[Point] = field(default_factory=list)  # where the small lines touch the axes, x first
    marks: list[Mark] = field(default_factory=list)
    frame: tuple[float, float, float, float] | None = None  # left, top, right, bottom


@dataclass
class Drawing:
    width: float
    height: float
    panels: list[Panel] = field(default_factory=list)
    legend: dict[str, str] = field(default_factory=dict)  # label -> colour
    loose: list[tuple[float, float, str]] = field(default_factory=list)  # where every text starts, and where it ends
    lines: list[str] = field(default_factory=list)  # of all texts
    shapes: list[Shape] = field(default_factory=list)  # all that is painted, in order
    images: bool = False  # pixels or hatches in the SVG, which are not read
    live_text: bool = False  # <text>: its letters come from whatever font the reader has


def read(path: Path) -> Drawing:
    root = _parse(path)
    sizes = [re.fullmatch(r"([\d.]+)pt", root.get(name, "")) for name in ("width", "height")]
    if root.tag != f"{_SVG}svg" or not all(sizes):
        raise bad_input(f"{path} is not an SVG with its size in points, as figure.py writes it")
    width, height = (float(size[1]) for size in sizes if size)
    drawing = Drawing(width, height)
    try:
        drawing.shapes = shapes(root)
    except (ValueError, RecursionError) as error:
        raise bad_input(f"{path} has a shape that matplotlib does not write: {error}") from None
    drawing.images = root.find(f".//{_SVG}image") is not None or any(shape.pattern for shape in drawing.shapes)
    drawing.live_text = root.find(f".//{_SVG}text") is not None
    for group in root.iter(f"{_SVG}g"):
        name = group.get("id", "")
        if re.fullmatch(r"axes_\d+", name):
            drawing.panels.append(_panel(group))
        elif re.fullmatch(r"legend_\d+", name):
            drawing.legend.update(_legend(group))
        elif re.fullmatch(r"text_\d+", name):
            drawing.loose += _ends(group)
            drawing.lines += _lines(group)
    return drawing


def _parse(path: Path) -> ET.Element:
    parser = ET.XMLParser(target=ET.TreeBuilder(insert_comments=True))
    try:
        if path.stat().st_size > _LARGEST:
            raise bad_input(f"{path} has more than {_LARGEST >> 20} MB; thin out what it draws")
        return ET.parse(path, parser).getroot()
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None
    except (ET.ParseError, ValueError) as error:
        raise bad_input(f"{path} is not an SVG: {error}") from None


def _text(group: ET.Element) -> str:
    """What letters were drawn as outlines: matplotlib writes each line of a text as a comment in front of them."""
    return " ".join(_lines(group))


def _lines(group: ET.Element) -> list[str]:
    nodes = (node for node in group.iter() if not isinstance(node.tag, str))
    return [" ".join(unescape(node.text or "").split()) for node in nodes]


def _ends(group: ET.Element) -> Iterator[tuple[float, float, str]]:
    """Where a text starts and where its last letter stands, in its direction."""
    for node in group.iter(f"{_SVG}g"):
        placed = _PLACED.match(node.get("transform", ""))
        if not placed:
            continue
        x, y, angle, scale = (float(number or 0) for number in placed.groups())
        steps = [_SHIFTED.match(use.get("transform", "")) for use in node.iter(f"{_SVG}use")]
        length = max((float(step[1]) for step in steps if step), default=0.0) + _LETTER
        turn = math.radians(angle)
        yield x, y, _text(group)
        yield x + length * scale * math.cos(turn), y + length * scale * math.sin(turn), _text(group)


def _panel(axes: ET.Element) -> Panel:
    panel = Panel()
    sides = 0
    for child in axes.iterfind(f"{_SVG}g"):
        name = child.get("id", "")
        kind = name.partition("-")[0]
        if name.startswith("matplotlib.axis_"):
            _axis(child, panel.y if sides else panel.x, panel.words[min(sides, 1)], panel.ticks)
            sides += 1
        elif kind in KINDS:
            panel.marks += _marks(child, kind)
        elif name.startswith("text_"):
            panel.texts.append(_text(child))
        elif name.startswith("patch_") and panel.frame is None:
            panel.frame = _box(child)
    return panel


def _axis(group: ET.Element, ticks: list[tuple[float, str]], words: list[str], places: list[Point]) -> None:
    for child in group.iterfind(f"{_SVG}g"):
        name = child.get("id", "")
        if name.startswith(("xtick", "ytick")):
            placed = child.find(f".//{_SVG}use[@x]")
            label = next(
                (_text(node) for node in child.iterfind(f"{_SVG}g") if node.get("id", "").startswith("text")), ""
            )
            if placed is not None and label:
                place = float(placed.get("x", "nan")), float(placed.get("y", "nan"))
                ticks.append((place[name[0] == "y"], label))
                places.append(place)
        elif name.startswith("text_"):
            words.append(_text(child))


def _marks(group: ET.Element, kind: str) -> Iterator[Mark]:
    for use in group.iter(f"{_SVG}use"):
        yield Mark(kind, ((float(use.get("x", "nan")), float(use.get("y", "nan"))),), _colour(use, "fill"))
    hidden = {id(path) for defs in group.iter(f"{_SVG}defs") for path in defs.iter()}
    for path in group.iter(f"{_SVG}path"):
        points = tuple(_points(path.get("d", "")))
        if id(path) not in hidden and points:  # a line that lies outside of the page is written without points
            yield Mark(kind, points, _colour(path, "stroke"))


def _colour(node: ET.Element, wanted: str) -> str:
    found = dict(_COLOUR.findall(node.get("style", "")))
    return str(found.get(wanted) or found.get("stroke") or found.get("fill") or "").lower()


def _points(path: str) -> Iterator[Point]:
    """Where each step of a path ends."""
    for step in _STEP.finditer(path):
        numbers = [float(number) for number in step[2].split()]
        yield numbers[-2], numbers[-1]


def _box(group: ET.Element) -> tuple[float, float, float, float] | None:
    path = group.find(f"{_SVG}path")
    points = list(_points(path.get("d", ""))) if path is not None else []
    if not points:
        return None
    across, down = zip(*points, strict=True)
    return min(across), min(down), max(across), max(down)


def _legend(group: ET.Element) -> Iterator[tuple[str, str]]:
    """A line, then its text."""
    colour = ""
    for child in group.iterfind(f"{_SVG}g"):
        if child.get("id", "").startswith("text_"):
            yield _text(child), colour
        elif child.get("id", "").startswith("line2d_"):
            node = next((node for node in child.iter() if _COLOUR.search(str(node.get("style", "")))), None)
            colour = _colour(node, "stroke") if node is not None else colour
