"""Runs figure.py and records, at every savefig, what is drawn: the data marks, the axes, the texts, and all the rest.

    python artists.py figure.py figure.artists.json       needs nothing but matplotlib; runs where figure.py lies

A data mark is an artist with a gid such as mean-1 or line-3. Its coordinates are recorded as matplotlib draws them, in
the units of the axes; figure_check.py compares them with source_data.csv.
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
_FONTS = ("pdf.fonttype", "pdf.use14corefonts", "svg.fonttype")


def record(code: str, target: str) -> None:
    """Run `code` with a savefig that also records; write the record to `target`."""
    import matplotlib
    from matplotlib.figure import Figure

    drawings: list[dict[str, Any]] = []
    settings: Any = matplotlib.rcParams
    patched: Any = Figure
    original = patched.savefig

    def savefig(figure: Any, fname: Any, *words: Any, **options: Any) -> None:
        original(figure, fname, *words, **options)
        if not isinstance(fname, str | os.PathLike):
            return
        path, box = Path(fname), options.get("bbox_inches", settings["savefig.bbox"])
        fonts = {name: settings[name] for name in _FONTS}
        drawing = {**drawn(figure), "bbox": box if box is None else str(box), "fonts": fonts}
        for one in drawings:
            one["files"].pop(path.name, None)  # saved once more
        same = next((one for one in drawings if {**one, "files": {}} == {**drawing, "files": {}}), None)
        if same is None:
            drawings.append(same := {"files": {}, **drawing})
        same["files"][path.name] = hashlib.sha256(path.read_bytes()).hexdigest()

    patched.savefig = savefig
    try:
        runpy.run_path(code, run_name="__main__")
    finally:
        patched.savefig = original
    Path(target).write_text(json.dumps({"drawings": drawings}, allow_nan=False), encoding="utf-8")


def drawn(figure: Any) -> dict[str, Any]:
    """One figure as JSON: its panels, and what does not belong to one."""
    from matplotlib.axes import Axes

    figure.canvas.draw()  # ticks and texts get their places
    axes = [one for one in figure.findobj(Axes) if one.get_visible()]
    others = [text for owner in (figure, *axes) for text in owner.texts if _shown(text)]
    texts = list(others)
    for one in axes:  # and those that have a place of their own: titles, labels, ticks, the legend
        sides = (one.xaxis, one.yaxis)
        texts += [*_titles(one), *(side.label for side in sides if _shown(side.label))]
        texts += [*(tick.label1 for side in sides for tick in _ticks(side))]
        texts += one.get_legend().get_texts() if one.get_legend() else []
    whole = figure.bbox.padded(0.5)  # pixels: what a letter's soft edge may take
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    loose = [*figure.lines, *figure.patches, *figure.images, *figure.artists]
    return {
        "size_in": [float(side) for side in figure.get_size_inches()],
        "panels": [_panel(one) for one in axes],
        "legend": {label: colour for legend in figure.legends for label, colour in _legend(legend)},
        "texts": [_text(text) for text in others],
        "beside": [_name(artist) for artist in loose if artist.get_visible()],
        "cut": [text for text, box in boxes if not all(whole.contains(*corner) for corner in (box.min, box.max))],
    }


def _panel(axes: Any) -> dict[str, Any]:
    from matplotlib.colors import to_hex

    marks: list[dict[str, Any]] = []
    beside = []
    paper = to_hex(axes.get_facecolor())
    groups = (axes.lines, axes.collections, axes.patches, axes.images, axes.tables, axes.artists)
    for artist in (artist for group in groups for artist in group):
        if not artist.get_visible() or artist.get_alpha() == 0:
            continue
        gid = str(artist.get_gid() or "")
        places = list(_places(axes, artist))
        if gid.partition("-")[0] not in KINDS or places == [None]:
            beside += [_name(artist)] if places else []
        elif (colour := _colour(artist)) not in ("", paper):  # nobody sees what has no colour of its own
            marks += [{"gid": gid, "colour": colour, "points": points} for points in places]
    return {
        "titles": [_text(title) for title in _titles(axes)],
        "x": _axis(axes.xaxis),
        "y": _axis(axes.yaxis),
        "legend": dict(_legend(axes.get_legend())) if axes.get_legend() else {},
        "marks": marks,
        "beside": beside,
    }


def _places(axes: Any, artist: Any) -> Iterator[list[list[float]] | None]:
    """The points of each mark that an artist draws, in the units of the axes; None for a shape that is not read."""
    from matplotlib import collections, lines, patches

    if isinstance(artist, lines.Line2D):
        points = _in_data(axes, artist.get_transform(), artist.get_xydata())
        nothing = ("None", "none", " ", "", None)
        if artist.get_linestyle() not in nothing:
            yield from [points] if points else []
        elif artist.get_marker() not in nothing:
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


def _axis(axis: Any) -> dict[str, Any]:
    return {
        "label": _text(axis.label),
        "scale": axis.get_scale(),
        "limits": [float(end) for end in sorted(axis.get_view_interval())],
        "offset": _text(axis.get_offset_text()),
        "ticks": [[float(tick.get_loc()), _text(tick.label1)] for tick in _ticks(axis)],
    }


def _ticks(axis: Any) -> list[Any]:
    """The major ticks that are drawn with a label."""
    low, high = sorted(axis.get_view_interval())
    slack = 1e-9 * (high - low)
    ticks = axis.get_major_ticks() if axis.get_visible() else []
    return [tick for tick in ticks if low - slack <= tick.get_loc() <= high + slack and _shown(tick.label1)]


def _titles(axes: Any) -> list[Any]:
    return [title for title in (axes.title, axes._left_title, axes._right_title) if _shown(title)]


def _legend(legend: Any) -> Iterator[tuple[str, str]]:
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=False):
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
