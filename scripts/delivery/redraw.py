"""The shapes of an SVG, drawn once more into pixels: what its PNG has to look like."""

from __future__ import annotations

from typing import Any

from delivery.shapes import Shape
from rgt.errors import bad_input

_CODES = {"M": 1, "L": 2, "Q": 3, "C": 4, "z": 79}  # of matplotlib.path.Path


def pixels_of(shapes: list[Shape], width: int, height: int, scale: float) -> Any:
    """RGB as an array; `scale` is pixels per point."""
    import numpy as np
    from matplotlib.backends import backend_agg

    agg: Any = backend_agg  # it has no types
    canvas = agg.RendererAgg(width, height, 72 * scale)
    canvas.clear()
    try:
        for shape in shapes:
            _draw(canvas, shape, height, scale)
    except (ValueError, OverflowError) as error:
        raise bad_input(f"figure.svg has a shape that matplotlib does not write: {error}") from None
    drawn = np.asarray(canvas.buffer_rgba()).astype(int)
    alpha = drawn[..., 3:] / 255  # on white, as the PNG is read
    return (drawn[..., :3] * alpha + 255 * (1 - alpha)).round().astype(int)


def _draw(canvas: Any, shape: Shape, height: int, scale: float) -> None:
    from matplotlib.colors import to_rgba
    from matplotlib.path import Path
    from matplotlib.transforms import Affine2D, Bbox

    style = shape.style
    solid = float(style.get("opacity", 1))
    gc = canvas.new_gc()
    gc.set_linewidth(float(style.get("stroke-width", 1)) if shape.stroke else 0)
    gc.set_foreground(to_rgba(shape.stroke or "#000000", solid * float(style.get("stroke-opacity", 1))), isRGBA=True)
    gc.set_joinstyle(style.get("stroke-linejoin", "round"))
    gc.set_capstyle(style.get("stroke-linecap", "butt").replace("square", "projecting"))
    if "stroke-dasharray" in style:
        dashes = [float(part) for part in style["stroke-dasharray"].split(",")]
        gc.set_dashes(float(style.get("stroke-dashoffset", 0)), dashes)
    if shape.clip:
        left, top, right, bottom = (side * scale for side in shape.clip)
        gc.set_clip_rectangle(Bbox.from_extents(left, height - bottom, right, height - top))
    face = to_rgba(shape.fill, solid * float(style.get("fill-opacity", 1))) if shape.fill else None
    flip = Affine2D().scale(scale, -scale).translate(0, height)
    canvas.draw_path(gc, Path(*_path(shape)), flip, face)


def _path(shape: Shape) -> tuple[list[tuple[float, float]], list[int]]:
    places: list[tuple[float, float]] = []
    codes: list[int] = []
    for letter, points in shape.steps:
        kept = points or ((0.0, 0.0),)  # the end of an outline has no place of its own
        places += kept
        codes += [_CODES[letter]] * len(kept)
    return places, codes
