"""What is wrong with a drawn figure: the artists that artists.py recorded against the rows of source_data.csv.

Example:
    for problem in figure_problems(folder, rows): ...         Problem("wrong-order", "...", "error")

Every row must be drawn once, with its numbers and at its label, and nothing else may look like data. Whatever else the
figure shows is listed, for the disclosures.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rgt import files
from rgt.render.artists import KINDS
from rgt.render.figure_data import DATA, Row
from rgt.run import seal

ARTISTS = "artists.json"
OUTPUTS = ("figure.png", "figure.pdf", "figure.svg")
_BLANK = 0.002  # of all pixels: an empty pair of axes has more

Json = dict[str, Any]


class Problem(NamedTuple):
    code: str  # of report.CODES
    message: str
    severity: str = "error"


def figure_problems(folder: Path, rows: list[Row]) -> list[Problem]:
    """Of the files that figure.py wrote into `folder` a moment ago."""
    recorded: Json = files.read_json(folder / ARTISTS)
    problems: list[Problem] = []
    for name in OUTPUTS:
        if name not in recorded:
            problems.append(
                Problem("unjudged", f"{name} was not written by savefig: what it shows is not known", "warn")
            )
        elif seal.digest_of(folder / name) != recorded[name]["sha256"]:
            problems.append(Problem("digest", f"{name} is not what savefig wrote: figure.py changed it afterwards"))
        else:
            problems += [*_data(recorded[name], rows), *_beside(recorded[name], rows)]
    return list(dict.fromkeys(problems))  # the three files usually show the same


def summary(folder: Path) -> str:
    """What was looked at, in a line."""
    recorded: Json = files.read_json(folder / ARTISTS).get("figure.png", {})
    kinds = Counter(mark["kind"] for mark in recorded.get("marks", []))
    count = ", ".join(f"{kinds[kind]} {kind}" for kind in KINDS if kinds[kind])
    return f"{recorded.get('panels', 0)} panels, marks compared: {count or 'none'}"


# -- the marks against source_data.csv


Shown = tuple[str, list[float]]  # label, then y from bottom to top, or along a line y and then x


def _data(drawing: Json, rows: list[Row]) -> Iterator[Problem]:
    left = drawing["marks"]
    if not left or drawing["ink"] < _BLANK:
        yield Problem("blank", f"the figure shows no data: no artist has a gid {', '.join(KINDS)}")
        return
    for (panel, kind), wanted in _wanted(rows).items():
        mine = [mark for mark in left if mark["kind"] == kind and panel in mark["titles"]]
        left = [mark for mark in left if mark not in mine]
        for problem in _matched(kind, wanted, [_shown(mark) for mark in mine]):
            yield problem._replace(message=f"{panel}: {problem.message}")
    if left:
        yield Problem("drawn", f"{len(left)} marks ({left[0]['kind']}) are drawn that {DATA} does not have")
    outside = sum(not mark["inside"] for mark in drawing["marks"])
    if outside:
        yield Problem("clipped", f"{outside} marks lie outside of the axes and are cut off")


def _shown(mark: Json) -> Shown:
    xs, ys = ([point[side] for point in mark["points"]] for side in (0, 1))
    return mark["label"], ys + xs if mark["kind"] == "line" else sorted(ys)


def _wanted(rows: list[Row]) -> dict[tuple[str, str], list[Shown]]:
    """By panel and kind, with texts as artists.py records them: one space between words."""
    wanted: dict[tuple[str, str], list[Shown]] = {}
    lines: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for row in rows:
        panel, label = (" ".join(row[name].split()) for name in ("panel", "label"))
        y = float(row["y"])
        if "step" in row:
            points = lines.setdefault((panel, label, row["run_id"]), [])
            points += [(y, float(row["step"]))] if math.isfinite(y) else []
            continue
        wanted.setdefault((panel, row["mark"]), []).append((label, [y]))
        if row["spread"]:
            bar = [y - float(row["spread"]), y + float(row["spread"])]
            wanted.setdefault((panel, "spread"), []).append((label, bar))
    for (panel, label, _), points in lines.items():
        line = [y for y, _ in points] + [x for _, x in points]
        wanted.setdefault((panel, "line"), []).append((label, line))
    return wanted


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
        yield Problem("drawn", f"{len(left)} marks ({kind}) are drawn that {DATA} does not have")


# -- what else is drawn


def _beside(drawing: Json, rows: list[Row]) -> Iterator[Problem]:
    """Texts and artists without a number of source_data.csv: not judged, and not passed over in silence."""
    known = {" ".join(row[name].split()) for row in rows for name in ("panel", "label")}
    texts = [text for text in dict.fromkeys(drawing["texts"]) if text not in known]
    if texts:
        shown = ", ".join(repr(text[:60]) for text in texts[:5]) + (f" and {len(texts) - 5} more" if texts[5:] else "")
        yield Problem("undeclared", f"the figure says what {DATA} does not: {shown}", "info")
    beside = Counter(drawing["beside"])
    if beside:
        shown = ", ".join(f"{count} {name}" for name, count in beside.most_common(5))
        declared = all(" beside-" in name for name in beside)
        yield Problem("undeclared", f"drawn beside the data: {shown}", "info" if declared else "warn")
    if drawing["edges"]:
        where = " and ".join(drawing["edges"])
        yield Problem("clipped", f"the picture has ink at its {where} edge: something is cut off there")
