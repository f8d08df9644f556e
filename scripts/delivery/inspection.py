"""The written files of a figure, opened again: size, fonts, colours, and whether they show their data."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from delivery import colours, drawing, pdf, pixels, readback, sources
from delivery.drawing import Drawing
from delivery.readback import Problem
from rgt.errors import RgtError

CODE = "figure.py"
_COARSE = 150  # dpi: below, print looks broken
_NEAR = 0.02  # inches


def look(folder: Path) -> list[Problem]:
    """The written files, opened again. Collects everything; one broken file does not hide the others."""
    declared = _declared(folder / CODE)
    if declared is None:
        return [
            Problem("unjudged", f"{CODE} does not say SIZE_IN = (width, height) and DPI = number: size not checked")
        ]
    size_in, dpi = declared
    found: list[Problem] = []
    if dpi < _COARSE:
        found.append(Problem("size", f"DPI = {dpi:g} is coarse in print; 300 is usual"))
    svg = _caught(found, lambda: drawing.read(folder / "figure.svg"))
    rows = _caught(found, lambda: sources.read(folder / sources.DATA))
    sound = False
    if svg is not None and rows is not None:
        problems = list(_look_svg(svg, rows, size_in))
        sound = not any(problem.code in ("drawn", "wrong-order", "blank") for problem in problems)
        found += problems
    page = _caught(found, lambda: pdf.read(folder / "figure.pdf"))
    if page is not None:
        found += _look_pdf(page, svg if sound else None, size_in)
    _caught(found, lambda: found.extend(pixels.examine(folder / "figure.png", size_in, dpi, svg if sound else None)))
    return found


def _caught(found: list[Problem], step: Any) -> Any:
    try:
        return step()
    except RgtError as error:
        name = re.sub(r"\S*/(?=(?:figure|source_data)\.)", "", error.message)
        found.append(Problem("missing" if "not exist" in name else "unreadable", name))
        return None


def _declared(code: Path) -> tuple[tuple[float, float], float] | None:
    """SIZE_IN and DPI of figure.py, read without running it."""
    try:
        tree = ast.parse(code.read_text(encoding="utf-8"))
        named = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in tree.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id in ("SIZE_IN", "DPI")
        }
        width, height = named["SIZE_IN"]
        return (float(width), float(height)), float(named["DPI"])
    except (OSError, SyntaxError, ValueError, TypeError, KeyError):
        return None


def _look_svg(svg: Drawing, rows: list[sources.Row], size_in: tuple[float, float]) -> Iterator[Problem]:
    yield from _size("figure.svg", (svg.width, svg.height), size_in)
    if not any(panel.marks for panel in svg.panels):
        yield Problem("blank", "figure.svg shows no data: no mark with a gid mean, run, spread or line is in it")
        return
    yield from readback.compare(svg, rows)
    if svg.live_text:
        yield Problem("font", "figure.svg leaves its letters to the reader's fonts; set svg.fonttype to path")
    outside = [text for x, y, text in svg.loose if not (0 <= x <= svg.width and 0 <= y <= svg.height)]
    if outside:
        yield Problem("clipped", f"figure.svg: the text {outside[0]!r} runs out of the picture")
    used = [mark.colour for panel in svg.panels for mark in panel.marks if len(mark.colour) == 7]
    for first, second, kind, distance in colours.alike(used):
        yield Problem("colour", f"{first} and {second} look alike with {kind} (distance {distance:.0f}, 12 is needed)")


def _look_pdf(page: pdf.Page, svg: Drawing | None, size_in: tuple[float, float]) -> Iterator[Problem]:
    yield from _size("figure.pdf", (page.width, page.height), size_in)
    if page.type3:
        yield Problem("font", "figure.pdf has Type 3 fonts, which publishers refuse; set pdf.fonttype to 42")
    if page.loose_fonts:
        yield Problem("font", f"figure.pdf does not carry its font {page.loose_fonts[0]}; set pdf.fonttype to 42")
    if not page.marks:
        yield Problem("blank", "figure.pdf is blank: nothing is painted on its page")
    elif svg:
        yield from readback.same_page(svg, page.marks, page.texts)


def _size(name: str, points: tuple[float, float], size_in: tuple[float, float]) -> Iterator[Problem]:
    found = points[0] / 72, points[1] / 72
    if any(abs(one - other) > _NEAR for one, other in zip(found, size_in, strict=True)):
        yield Problem(
            "size",
            f"{name} is {found[0]:.2f} x {found[1]:.2f} in; SIZE_IN of figure.py says {size_in[0]:g} x {size_in[1]:g}",
        )


def seen(folder: Path) -> str:
    """What was looked at, in a line."""
    svg, (pixel_rows, dpi) = drawing.read(folder / "figure.svg"), pixels.read(folder / "figure.png")
    marks = [mark for panel in svg.panels for mark in panel.marks]
    count = ", ".join(
        f"{sum(mark.kind == kind for mark in marks)} {kind}"
        for kind in drawing.KINDS
        if any(m.kind == kind for m in marks)
    )
    height, width = pixel_rows.shape[:2]
    return (
        f"{len(svg.panels)} panels, marks read back: {count}; {width} x {height} pixels at {dpi[0]:.0f} dpi, "
        f"{svg.width / 72:g} x {svg.height / 72:g} in, {len({mark.colour for mark in marks})} colours"
    )
