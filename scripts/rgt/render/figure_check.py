"""What is wrong with a drawn figure: its recorded artists against source_data.csv, and its PNG.

Example:
    for problem in figure_problems(Path("figures/acc")): ...         Problem("wrong-order", "...", "error")

artists.py recorded what figure.py drew. Every row of source_data.csv must be drawn once, with its numbers and at its
label, and nothing else may look like data. Whatever else the figure shows is listed, for the disclosures.
"""

from __future__ import annotations

import importlib.util
import math
import re
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from rgt import files
from rgt.errors import RgtError, bad_input
from rgt.render import figure_data
from rgt.render.artists import KINDS
from rgt.render.figure_data import Row
from rgt.run import seal

ARTISTS = "figure.artists.json"
OUTPUTS = ("figure.png", "figure.pdf", "figure.svg")
_COARSE = 150  # dpi: below, print looks broken
_BLANK = 0.002  # of all pixels: an empty pair of axes has more
_OFF = 60  # of 255, summed over the three colours: the same colour, softened by an edge
_LARGEST = 200_000_000  # pixels
_FONTS = (  # file, what it was written with, and what is wrong with that
    ("figure.pdf", "pdf.use14corefonts", True, "does not carry its fonts; set pdf.use14corefonts to False"),
    ("figure.pdf", "pdf.fonttype", 3, "has Type 3 fonts, which publishers refuse; set pdf.fonttype to 42"),
    ("figure.svg", "svg.fonttype", "none", "leaves its letters to the reader's fonts; set svg.fonttype to path"),
)
_ALIKE = 12.0  # CIE76: below, two thin lines look alike
# Machado, Oliveira, Fernandes 2009, severity 1.0, for linear RGB
_SEEN_WITH = {
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}

Json = dict[str, Any]


class Problem(NamedTuple):
    code: str  # of report.CODES
    message: str
    severity: str = "error"


def figure_problems(folder: Path) -> list[Problem]:
    """Collects everything; one broken file does not hide the others."""
    if importlib.util.find_spec("matplotlib") is None:  # it brings numpy and pillow
        return [Problem("unjudged", "figures need matplotlib in this Python: pip install matplotlib", "warn")]
    all_problems: list[Problem] = []
    try:
        drawings = _drawings(folder)
        rows = figure_data.read(folder / figure_data.DATA)
        for row in rows:  # as artists.py records texts: one space between words
            row |= {name: " ".join(row[name].split()) for name in ("panel", "label")}
        for drawing in drawings:
            where = "" if len(drawings) == 1 else f"{', '.join(drawing['files'])}: "
            problems = [*_data(drawing, rows), *_beside(drawing, rows)]
            all_problems += [problem._replace(message=where + problem.message) for problem in problems]
        all_problems += _files(folder, drawings)
    except RgtError as error:
        name = re.sub(r"\S*/(?=(?:figure|source_data)\.)", "", error.message)
        all_problems.append(Problem("missing" if "not exist" in name else "unreadable", name))
    return all_problems


def _kind(mark: Json) -> str:
    return str(mark["gid"].partition("-")[0])


def _drawings(folder: Path) -> list[Json]:
    drawings: list[Json] = files.read_json(folder / ARTISTS, "figure_artists")["drawings"]
    return [drawing for drawing in drawings if set(drawing["files"]) & set(OUTPUTS)]


def summary(folder: Path) -> str:
    """What was looked at, in a line."""
    drawing = next(drawing for drawing in _drawings(folder) if "figure.png" in drawing["files"])
    pixels, dpi = _pixels(folder / "figure.png")
    marks = [mark for panel in drawing["panels"] for mark in panel["marks"]]
    kinds = Counter(map(_kind, marks))
    count = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind])
    (height, width), (across, up) = pixels.shape[:2], drawing["size_in"]
    size = f"{width} x {height} pixels at {dpi:.0f} dpi, {across:g} x {up:g} in"
    colours = len({mark["colour"] for mark in marks})
    return f"{len(drawing['panels'])} panels, marks compared: {count}; {size}, {colours} colours"


# -- the marks against source_data.csv


Shown = tuple[str, list[float]]  # label, then y from bottom to top, or along a line y and then x


def _data(drawing: Json, rows: list[Row]) -> Iterator[Problem]:
    others = list(drawing["panels"])
    if not any(panel["marks"] for panel in others):
        yield Problem("blank", f"the figure shows no data: no artist has a gid {', '.join(KINDS)}")
        return
    for title in dict.fromkeys(row["panel"] for row in rows):
        panel = next((panel for panel in others if title in panel["titles"]), None)
        if panel is None:
            yield Problem("drawn", f"no panel is titled {title!r}")
            continue
        others.remove(panel)
        mine = [row for row in rows if row["panel"] == title]
        legend = {**drawing["legend"], **panel["legend"]} if "step" in mine[0] else {}
        problems = [*_scale(panel["y"], "y"), *_names(panel, mine, legend)]
        if not any(problem.code == "colour" for problem in problems):
            for kind in KINDS:
                drawn = [_shown(mark, panel, legend) for mark in panel["marks"] if _kind(mark) == kind]
                problems += _matched(kind, _wanted(kind, mine), drawn)
        outside = 0
        for x, y in (point for mark in panel["marks"] for point in mark["points"]):
            ends = (x, *panel["x"]["limits"]), (y, *panel["y"]["limits"])
            outside += any(min(at - low, high - at) < -1e-9 * (high - low) for at, low, high in ends)
        if outside:
            problems.append(Problem("clipped", f"{outside} marks lie outside of the axes and are cut off"))
        yield from (problem._replace(message=f"{title}: {problem.message}") for problem in problems)
    extra = sum(len(panel["marks"]) for panel in others)
    if extra:
        yield Problem("drawn", f"{extra} marks are drawn in a panel that {figure_data.DATA} does not have")


def _scale(axis: Json, side: str) -> Iterator[Problem]:
    """A reader takes values from the tick labels: they must be numbers, and those of their places."""
    factor = re.match(r"1e([+-]?\d+)$", axis["offset"].replace("−", "-"))
    low, high = axis["limits"]
    numbers = 0
    for place, label in axis["ticks"]:
        plain = label.replace("−", "-").replace(",", "")
        power = re.search(r"10\^\{(-?\d+)\}", plain)
        try:
            value = 10.0 ** int(power[1]) if power else float(plain) * 10.0 ** int(factor[1] if factor else 0)
        except ValueError:
            continue
        numbers += 1
        if abs(value - place) > (1e-3 * value if power else 0.003 * (high - low)):
            yield Problem("drawn", f"the {side} axis says {label} at {place:.6g}")
            return
    if numbers < 2:
        yield Problem("unjudged", f"the {side} axis has fewer than two numbers: its values cannot be read", "warn")


def _names(panel: Json, rows: list[Row], legend: dict[str, str]) -> Iterator[Problem]:
    """The labels by which a reader tells the marks apart: below them, or in the legend of curves."""
    labels = list(dict.fromkeys(row["label"] for row in rows))
    if "step" in rows[0]:
        yield from _scale(panel["x"], "x")
        if len(set(legend.values())) < len(legend):
            yield Problem("colour", "two labels of the legend have one colour")
        yield from (Problem("drawn", f"the legend does not name {label}") for label in labels if label not in legend)
        return
    shown = [text for _, text in sorted(panel["x"]["ticks"])]
    if shown != labels:
        code = "wrong-order" if sorted(shown) == sorted(labels) else "drawn"
        yield Problem(code, f"the labels read {', '.join(shown)}; source_data.csv has {', '.join(labels)}")


def _shown(mark: Json, panel: Json, legend: dict[str, str]) -> Shown:
    """What a reader sees: a line has the name of its colour, any other mark that of the nearest label."""
    xs, ys = ([point[side] for point in mark["points"]] for side in (0, 1))
    if _kind(mark) == "line":
        return next((label for label, colour in legend.items() if colour == mark["colour"]), "no label"), ys + xs
    ticks = panel["x"]["ticks"]
    return min(ticks, key=lambda tick: abs(tick[0] - xs[0]))[1] if ticks else "no label", sorted(ys)


def _wanted(kind: str, rows: list[Row]) -> list[Shown]:
    if "step" not in rows[0]:
        if kind != "spread":
            return [(row["label"], [float(row["y"])]) for row in rows if row["mark"] == kind]
        bars = [(row["label"], float(row["y"]), float(row["spread"])) for row in rows if row["spread"]]
        return [(label, [y - spread, y + spread]) for label, y, spread in bars]
    lines: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows if kind == "line" else []:
        point = float(row["y"]), float(row["step"])
        lines.setdefault((row["label"], row["run_id"]), []).extend([point] if all(map(math.isfinite, point)) else [])
    return [(label, [y for y, _ in points] + [x for _, x in points]) for (label, _), points in lines.items()]


def _matched(kind: str, wanted: list[Shown], drawn: list[Shown]) -> Iterator[Problem]:
    """Every wanted mark is drawn once, with its label, and no other."""

    def same(one: list[float], other: list[float]) -> bool:
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12) for a, b in pairs)

    left, missing = list(drawn), []
    for label, values in wanted:
        fits = next((mark for mark in left if mark[0] == label and same(mark[1], values)), None)
        if fits:
            left.remove(fits)
        else:
            missing.append((label, values))
    elsewhere = [label for label, values in missing if any(same(mark[1], values) for mark in left)]
    if missing and len(elsewhere) == len(missing):
        where = "in the colour of" if kind == "line" else "above"
        names = ", ".join(dict.fromkeys(elsewhere))
        yield Problem("wrong-order", f"the {kind} of {names} is drawn {where} another label")
    elif missing:
        label, values = missing[0]
        number = " to ".join(f"{value:.4g}" for value in values) if len(values) < 3 else f"from {values[0]:.4g} on"
        instead = ", ".join(f"{values[0]:.4g}" for _, values in left[:3]) or "nothing"
        yield Problem("drawn", f"the {kind} {number} of {label} is not drawn; drawn instead: {instead}")
    elif left:
        yield Problem("drawn", f"{len(left)} marks ({kind}) are drawn that source_data.csv does not have")


# -- what else is drawn, and the page


def _beside(drawing: Json, rows: list[Row]) -> Iterator[Problem]:
    """Texts and artists without a number of source_data.csv: not judged, and not passed over in silence."""
    known = {row[name] for row in rows for name in ("panel", "label")}
    panels = drawing["panels"]
    texts = [*drawing["texts"], *(text for panel in panels for text in (*panel["titles"], *panel["legend"]))]
    texts = [text for text in dict.fromkeys(texts) if text not in known]
    if texts:
        shown = ", ".join(repr(text[:60]) for text in texts[:5]) + (f" and {len(texts) - 5} more" if texts[5:] else "")
        yield Problem("undeclared", f"the figure says what {figure_data.DATA} does not: {shown}", "info")
    beside = Counter([*drawing["beside"], *(name for panel in panels for name in panel["beside"])])
    if beside:
        shown = ", ".join(f"{count} {name}" for name, count in beside.most_common(5))
        declared = all(" beside-" in name for name in beside)
        yield Problem("undeclared", f"drawn beside the data: {shown}", "info" if declared else "warn")
    if drawing["bbox"] is not None:
        width, height = drawing["size_in"]
        what = f"{', '.join(drawing['files'])}: saved with bbox_inches={drawing['bbox']}"
        yield Problem("size", f"{what}: its size is not the {width:g} x {height:g} in of the figure")
    elif drawing["cut"]:
        yield Problem("clipped", f"the text {drawing['cut'][0]!r} runs out of the picture")
    for file, setting, bad, message in _FONTS:
        if file in drawing["files"] and drawing["fonts"][setting] == bad:
            yield Problem("font", f"{file} {message}")
    yield from _alike({mark["colour"] for panel in panels for mark in panel["marks"]})


def _alike(colours: set[str]) -> Iterator[Problem]:
    """About one man in twelve sees red and green differently. Each pair once, as it looks worst."""
    import numpy as np

    names = sorted(colours)
    if len(names) < 2:
        return
    rgb = np.array([[int(name[at : at + 2], 16) / 255 for at in (1, 3, 5)] for name in names])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([(0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505)])
    labs = {}
    for kind, matrix in _SEEN_WITH.items():
        xyz = (linear @ np.array(matrix).T).clip(0, 1) @ to_xyz.T / (0.9505, 1.0, 1.089)
        x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116).T
        labs[kind] = np.stack([116 * y, 500 * (x - y), 200 * (y - z)], axis=1)
    for (one, first), (other, second) in combinations(enumerate(names), 2):
        distance, kind = min((float(np.linalg.norm(lab[one] - lab[other])), kind) for kind, lab in labs.items())
        if distance < _ALIKE:
            message = f"{first} and {second} look alike with {kind} (distance {distance:.0f}, {_ALIKE:.0f} is needed)"
            yield Problem("colour", message, "warn")


def _files(folder: Path, drawings: list[Json]) -> Iterator[Problem]:
    """The pictures are those that savefig wrote; the PNG is opened."""
    digests = {name: digest for drawing in drawings for name, digest in drawing["files"].items()}
    for name in OUTPUTS:
        if not (folder / name).is_file():
            yield Problem("missing", f"{name} does not exist")
        elif name not in digests:
            yield Problem("unjudged", f"{name} was not written by savefig: what it shows is not known", "warn")
        elif seal.digest_of(folder / name) != digests[name]:
            yield Problem("digest", f"{name} is not the one that was made: it changed since")
        elif name == "figure.png":
            size = next(drawing["size_in"] for drawing in drawings if name in drawing["files"])
            yield from _png(folder / name, size)


def _png(path: Path, size_in: list[float]) -> Iterator[Problem]:
    import numpy as np

    pixels, dpi = _pixels(path)
    height, width = pixels.shape[:2]
    wanted = [round(side * dpi) for side in size_in]
    if dpi < _COARSE:
        yield Problem("size", f"figure.png has {dpi:.0f} dpi, which is coarse in print; 300 is usual")
    if abs(width - wanted[0]) > 1 or abs(height - wanted[1]) > 1:
        message = f"the figure's {size_in[0]:g} x {size_in[1]:g} in make {wanted[0]} x {wanted[1]}"
        yield Problem("size", f"figure.png has {width} x {height} pixels at {dpi:.0f} dpi; {message}")
    border = np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])
    values, counts = np.unique(border, axis=0, return_counts=True)
    ink = np.abs(pixels - values[counts.argmax()]).sum(axis=2) > _OFF  # the background has the border's usual colour
    if ink.mean() < _BLANK:
        yield Problem("blank", f"figure.png is blank: {ink.mean():.2%} of its pixels differ from the background")
    edges = {"top": ink[0], "bottom": ink[-1], "left": ink[:, 0], "right": ink[:, -1]}
    touched = [name for name, edge in edges.items() if edge.any()]
    if touched:
        yield Problem("clipped", f"figure.png has ink at its {' and '.join(touched)} edge: something is cut off there")


def _pixels(path: Path) -> tuple[Any, float]:
    """RGB on white as an array, and the resolution."""
    import numpy as np
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = _LARGEST
    try:
        with Image.open(path) as image:
            dpi = float(image.info.get("dpi", (0.0, 0.0))[0])
            ground = Image.new("RGBA", image.size, "white")
            return np.asarray(Image.alpha_composite(ground, image.convert("RGBA")).convert("RGB")).astype(int), dpi
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise bad_input(f"{path} is not a whole PNG: {error}") from None
