"""Runs figure.py and records, at every savefig, what a reader sees: the data marks with their labels, and all the rest.

    python artists.py figure.py artists.json       needs nothing but matplotlib; runs where figure.py lies

A data mark is an artist with a gid such as mean-1 or line-3. Its coordinates are recorded as matplotlib draws them, in
the units of the axes; figures.py compares them with source_data.csv.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KINDS = ("mean", "run", "spread", "line")  # what a gid starts with
_OFF = 60  # of 255, summed over the colours: the same colour, softened by an edge
_NOTHING = ("None", "none", " ", "", None)  # how matplotlib says that no line or marker is drawn


def record(code: str, target: str) -> None:
    """Run `code` with a savefig that also records; write the record to `target`."""
    from matplotlib.figure import Figure

    drawings: dict[str, dict[str, Any]] = {}
    patched: Any = Figure
    original = patched.savefig

    def savefig(figure: Any, fname: Any, *words: Any, **options: Any) -> None:
        original(figure, fname, *words, **options)
        if isinstance(fname, str | os.PathLike):
            path = Path(fname)
            drawings[path.name] = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), **drawn(figure)}

    patched.savefig = savefig
    try:
        runpy.run_path(code, run_name="__main__")
    finally:
        patched.savefig = original
    Path(target).write_text(json.dumps(drawings, allow_nan=False), encoding="utf-8")


def drawn(figure: Any) -> dict[str, Any]:
    """One figure as JSON."""
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    own = figure.canvas
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()  # ticks and texts get their places
    pixels = np.asarray(canvas.buffer_rgba()).astype(int)
    figure.set_canvas(own)
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    values, counts = np.unique(border, axis=0, return_counts=True)
    ink = np.abs(pixels - values[counts.argmax()]).sum(axis=2) > _OFF  # the background has the border's usual colour
    # two pixels, because a cut may go between two letters
    edges = {"top": ink[:2], "bottom": ink[-2:], "left": ink[:, :2], "right": ink[:, -2:]}
    axes = [one for one in figure.findobj(Axes) if one.get_visible()]
    loose = [*figure.lines, *figure.patches, *figure.images, *figure.artists]
    loose_texts = [text for owner in (figure, *axes) for text in owner.texts if _shown(text)]
    shared = {label: colour for legend in figure.legends for label, colour in _legend(legend)}
    recorded: dict[str, Any] = {
        "ink": float(ink.mean()),
        "edges": [name for name, edge in edges.items() if edge.any()],
        "marks": [],
        "texts": [_text(text) for text in loose_texts] + list(shared),
        "declared": [_text(text) for text in loose_texts if str(text.get_gid()).startswith("beside-")],
        "beside": [_name(artist) for artist in loose if artist.get_visible()],
    }
    for one in axes:
        _add_panel(recorded, one, shared)
    return recorded


def _add_panel(recorded: dict[str, Any], axes: Any, legend: dict[str, str]) -> None:
    from matplotlib.colors import to_hex

    legend = {**legend, **dict(_legend(axes.get_legend()))}
    titles = [_text(title) for title in (axes.title, axes._left_title, axes._right_title) if _shown(title)]
    recorded["texts"] += [*titles, *legend]
    paper = to_hex(axes.get_facecolor())
    box = axes.bbox.padded(0.01)  # pixels
    groups = (axes.lines, axes.collections, axes.patches, axes.images, axes.tables, axes.artists)
    for artist in (artist for group in groups for artist in group):
        if not artist.get_visible() or artist.get_alpha() == 0:
            continue
        kind = str(artist.get_gid() or "").partition("-")[0]
        places = list(_places(axes, artist))
        if kind not in KINDS or places == [None]:
            recorded["beside"] += [_name(artist)] if places else []
        elif (colour := _colour(artist)) not in ("", paper):  # nobody sees what has no colour of its own
            for points in filter(None, places):
                mark = {"titles": titles, "kind": kind, "label": _label(axes, kind, points, colour, legend)}
                inside = all(box.contains(*axes.transData.transform(point)) for point in points)
                recorded["marks"].append({**mark, "points": points, "inside": inside})


def _label(axes: Any, kind: str, points: list[list[float]], colour: str, legend: dict[str, str]) -> str:
    """By what a reader names a mark: a line has the name of its colour, any other mark that of the nearest tick."""
    if kind == "line":
        return next((label for label, its in legend.items() if its == colour), "no label")
    low, high = sorted(axes.xaxis.get_view_interval())
    ticks = [tick for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high and _shown(tick.label1)]
    nearest = min(ticks, key=lambda tick: abs(tick.get_loc() - points[0][0]), default=None)
    return _text(nearest.label1) if nearest and axes.xaxis.get_visible() else "no label"


def _places(axes: Any, artist: Any) -> Iterator[list[list[float]] | None]:
    """The points of each mark that an artist draws, in the units of the axes; None for a shape that is not read."""
    from matplotlib import collections, lines, patches

    if isinstance(artist, lines.Line2D):
        points = _in_data(axes, artist.get_transform(), artist.get_xydata())
        if artist.get_linestyle() not in _NOTHING:
            yield from [points] if points else []
        elif artist.get_marker() not in _NOTHING:
            yield from ([point] for point in points)
    elif isinstance(artist, collections.PathCollection):  # scatter
        yield from ([point] for point in _in_data(axes, artist.get_offset_transform(), artist.get_offsets()))
    elif isinstance(artist, collections.LineCollection):  # error bars
        for segment in artist.get_segments():
            yield _in_data(axes, artist.get_transform(), segment)
    elif isinstance(artist, patches.Rectangle):  # bars: the middle of the upper edge
        top = [artist.get_x() + artist.get_width() / 2, artist.get_y() + artist.get_height()]
        yield _in_data(axes, artist.get_data_transform(), [top])
    else:
        yield None


def _in_data(axes: Any, transform: Any, places: Any) -> list[list[float]]:
    import numpy as np

    places = np.ma.filled(np.ma.asarray(places, dtype=float), np.nan)
    if transform != axes.transData and len(places):
        places = axes.transData.inverted().transform(transform.transform(places))
    return [[float(x), float(y)] for x, y in places if math.isfinite(x) and math.isfinite(y)]


def _legend(legend: Any) -> Iterator[tuple[str, str]]:
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=False) if legend else ():
        yield _text(text), _colour(handle)


def _colour(artist: Any) -> str:
    """The colour of a line, or of an area unless it is empty; of several the first."""
    from matplotlib.colors import to_hex, to_rgba_array

    colours = [artist.get_color()] if hasattr(artist, "get_color") else [artist.get_facecolor(), artist.get_edgecolor()]
    visible = [rgba for colour in colours for rgba in to_rgba_array(colour) if rgba[3] > 0]
    return to_hex(visible[0]) if visible else ""


def _shown(text: Any) -> bool:
    return bool(text.get_visible() and text.get_text().strip())


def _text(text: Any) -> str:
    return " ".join(text.get_text().replace(r"\$", "$").split())


def _name(artist: Any) -> str:
    gid = artist.get_gid()
    return f"{type(artist).__name__} {gid}" if gid else type(artist).__name__


if __name__ == "__main__":
    sys.path[0] = os.getcwd()  # as if figure.py were run by itself
    record(*sys.argv[1:3])
