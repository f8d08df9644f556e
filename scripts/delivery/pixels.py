"""The PNG that was written, opened again: is anything on it, is it cut off, and are the marks where they belong?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from delivery import redraw
from delivery.drawing import Drawing, Mark
from delivery.readback import Problem
from rgt.errors import bad_input, from_os_error, lacking

_BLANK = 0.002  # of all pixels: an empty pair of axes has more
_LARGEST = 200_000_000  # pixels
_OFF = 60  # of 255, summed over the three colours: the same colour, softened by an edge
_SOFT = 100  # the same, where something else lies beside it
_NEAR = 0.4  # points: marks that lie closer to where they belong did not move
_AREA = 0.5  # square points: a tenth of a small mark
_HEX = re.compile("#[0-9a-f]{6}")
_SHARE = 0.3  # of a line's points in its own colour: the rest may lie under other lines


def read(path: Path) -> tuple[Any, tuple[float, float]]:
    """RGB as an array, and the resolution."""
    try:
        import numpy as np
        from PIL import Image
    except ImportError:
        raise lacking("looking at figures needs matplotlib, numpy and pillow: pip install matplotlib") from None
    Image.MAX_IMAGE_PIXELS = _LARGEST
    try:
        with Image.open(path) as image:
            dpi = image.info.get("dpi", (0.0, 0.0))
            ground = Image.new("RGBA", image.size, "white")
            pixels = np.asarray(Image.alpha_composite(ground, image.convert("RGBA")).convert("RGB")).astype(int)
    except FileNotFoundError:
        raise bad_input(f"{path} does not exist") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        if isinstance(error, OSError) and error.errno:
            raise from_os_error(error, f"read {path}") from None
        raise bad_input(f"{path} is not a whole PNG: {error}") from None
    return pixels, (float(dpi[0]), float(dpi[1]))


def examine(path: Path, size_in: tuple[float, float], dpi: float, drawing: Drawing | None) -> Iterator[Problem]:
    pixels, found = read(path)
    height, width = pixels.shape[:2]
    wanted = tuple(round(side * dpi) for side in size_in)
    if abs(width - wanted[0]) > 1 or abs(height - wanted[1]) > 1:
        yield Problem(
            "size",
            f"figure.png has {width} x {height} pixels; SIZE_IN and DPI of figure.py make {wanted[0]} x {wanted[1]}",
        )
        return
    if abs(found[0] - dpi) > 1:
        yield Problem("size", f"figure.png says {found[0]:.0f} dpi; figure.py says {dpi:g}")
    ink = _ink(pixels)
    if ink.mean() < _BLANK:
        yield Problem("blank", f"figure.png is blank: {ink.mean():.2%} of its pixels differ from the background")
        return
    edges = {"top": ink[0], "bottom": ink[-1], "left": ink[:, 0], "right": ink[:, -1]}
    touched = [name for name, edge in edges.items() if edge.any()]
    if touched:
        yield Problem("clipped", f"figure.png has ink at its {' and '.join(touched)} edge: something is cut off there")
    if drawing:
        yield from list(_marks(pixels, drawing, dpi / 72)) or _areas(pixels, ink, drawing, dpi / 72)
        yield from _ticks(ink, drawing, dpi / 72)


def _ink(pixels: Any) -> Any:
    """Where a pixel is not the background; that is the colour most of the picture's edge has."""
    import numpy as np

    edge = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    values, counts = np.unique(edge, axis=0, return_counts=True)
    return np.abs(pixels - values[counts.argmax()]).sum(axis=2) > _OFF


def _marks(pixels: Any, drawing: Drawing, scale: float) -> Iterator[Problem]:
    lost = []
    for panel in drawing.panels:
        for mark in panel.marks:
            seen = [_coloured(pixels, x * scale, y * scale, mark.colour) for x, y in _probes(mark)]
            if seen and sum(seen) < _SHARE * len(seen):
                lost.append(mark)
    if lost:
        x, y = lost[0].points[0]
        place = f"pixel {x * scale:.0f}, {y * scale:.0f}"
        yield Problem(
            "drawn", f"figure.png lacks {len(lost)} marks of the SVG: at {place} there is no {lost[0].colour}"
        )


def _areas(pixels: Any, ink: Any, drawing: Drawing, scale: float) -> Iterator[Problem]:
    """A neighbour of the same colour can cover the place of a mark that moved: the whole area of each colour counts."""
    if drawing.images:
        return  # what they show is not known
    height, width = pixels.shape[:2]
    wanted = redraw.pixels_of(drawing.shapes, width, height, scale)
    pictures = (pixels, ink), (wanted, _ink(wanted))
    letters, reach = _letters(drawing, height, width, scale), max(2, round(_NEAR * scale))
    for colour in sorted({mark.colour for panel in drawing.panels for mark in panel.marks}):
        if not _HEX.fullmatch(colour):
            continue
        (drawn, soft), (due, soft_due) = (
            [_near(*picture, colour, off) for off in (_OFF, _SOFT)] for picture in pictures
        )
        for odd, said in (
            (due & ~_grown(soft, reach) & ~letters, "lacks {} of the SVG"),
            (drawn & ~_grown(soft_due, reach) & ~letters, "shows {} where the SVG has none"),
        ):
            if odd.sum() > max(4, _AREA * scale**2):
                row, column = (places[0] for places in odd.nonzero())
                place = f"{odd.sum()} pixels, the first at {column}, {row}"
                yield Problem("drawn", f"figure.png {said.format(colour)}: {place}")


def _letters(drawing: Drawing, height: int, width: int, scale: float) -> Any:
    """Where letters lie: a PNG has them in a form of its own, maybe in a colour of the data, maybe above marks."""
    import numpy as np

    mask = np.zeros((height, width), bool)
    for shape in drawing.shapes:
        if shape.letter:
            left, top, right, bottom = (round(side * scale) for side in shape.box)
            mask[max(0, top - 2) : bottom + 3, max(0, left - 2) : right + 3] = True
    return mask


def _near(pixels: Any, ink: Any, colour: str, off: int) -> Any:
    import numpy as np

    mask = np.zeros_like(ink)  # most of a picture is paper
    mask[ink] = np.abs(pixels[ink] - [int(colour[at : at + 2], 16) for at in (1, 3, 5)]).sum(axis=1) <= off
    return mask


def _grown(mask: Any, by: int) -> Any:
    """With all that lies within `by` pixels, across and down."""
    for axis in (0, 1):
        narrow, mask = mask.swapaxes(0, axis), mask.swapaxes(0, axis).copy()
        for shift in range(1, by + 1):
            mask[shift:] |= narrow[:-shift]
            mask[:-shift] |= narrow[shift:]
        mask = mask.swapaxes(0, axis)
    return mask


def _ticks(ink: Any, drawing: Drawing, scale: float) -> Iterator[Problem]:
    """Marks in the right place beside a moved scale would be other numbers."""
    moved = 0
    for panel in drawing.panels:
        for number, (x, y) in enumerate(panel.ticks):
            below = number < len(panel.x)
            column, row = (x if below else x - 2) * scale, (y + 2 if below else y) * scale
            around = ink[max(0, round(row - 2)) : round(row + 2), max(0, round(column - 2)) : round(column + 2)]
            moved += not around.any()
    if moved:
        yield Problem("drawn", f"the ticks of figure.png are not those of the SVG: {moved} lie elsewhere")


def _probes(mark: Mark) -> list[tuple[float, float]]:
    if mark.kind != "spread":
        return list(mark.points)
    (x, low), (_, high) = mark.points[0], mark.points[-1]
    return [(x, low + (high - low) * part) for part in (0.1, 0.9)]  # clear of the mark in its middle


def _coloured(pixels: Any, x: float, y: float, colour: str) -> bool:
    import numpy as np

    if not _HEX.fullmatch(colour):
        return True  # no colour of its own: nothing to hold the picture against
    row, column = round(y - 0.5), round(x - 0.5)
    near = pixels[max(0, row - 2) : row + 3, max(0, column - 2) : column + 3]
    wanted = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return bool(near.size) and bool((np.abs(near - wanted).sum(axis=2) <= _OFF).any())
