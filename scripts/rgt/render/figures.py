"""figures/<id>/: runs -> source_data.csv -> figure.py -> figure.png, .pdf, .svg, and a sidecar that says from what.

build() makes them in a folder where nothing but the two inputs lies; audit() says what changed since. The same runs,
code and versions give the same bytes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rgt import files
from rgt.bundle import TEMPLATES
from rgt.errors import RgtError, bad_input, lacking
from rgt.evidence.claims import Project, checked_name, runs_of
from rgt.render import artists, figure_data
from rgt.render.artists import KINDS
from rgt.render.figure_data import DATA, Row
from rgt.run import seal

ARTISTS = "artists.json"
OUTPUTS = ("figure.png", "figure.pdf", "figure.svg")
_BLANK = 0.002  # of all pixels: an empty pair of axes has more
CODE = "figure.py"
SIDECAR = "figure.provenance.json"
_PANEL_IN = (3.5, 2.6)  # one column of a paper; two panels share a page's width
_SECONDS = 600


Json = dict[str, Any]


class Problem(NamedTuple):
    code: str  # of report.CODES
    message: str
    severity: str = "error"


def folder_of(project: Project, figure: str) -> Path:
    return project.root / "figures" / checked_name(figure)


# -- make


def build(project: Project, figure: str) -> list[Problem]:
    """Write everything anew; returns what is wrong with it, which the sidecar keeps."""
    source = figure_data.collect(project, figure)
    folder = folder_of(project, figure)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / CODE).exists():
        across = min(source.panels, 2)
        size = (round(_PANEL_IN[0] * across, 2), round(_PANEL_IN[1] * -(-source.panels // across), 2))
        text = (TEMPLATES / CODE).read_text(encoding="utf-8").replace("SIZE_IN = (3.5, 2.6)", f"SIZE_IN = {size}")
        files.write_text(folder / CODE, text.replace("COLUMNS = 1 ", f"COLUMNS = {across} "))
    judged = _draw(folder, source)
    claims = figure_data.claims_of(project, figure)
    runs = [project.run(run_id) for run_id in dict.fromkeys(run_id for claim in claims for run_id in runs_of(claim))]
    read = [(run.results if source.kind == "points" else run.metrics).resolve() for run in runs]
    dates = [  # a figure is as old as its data: the same on every rebuild
        files.read_json(run.seal, "seal")["sealed"] if run.seal.exists() else run.record()["created"] for run in runs
    ]
    versions = {name: importlib.metadata.version(name) for name in ("matplotlib", "numpy", "pillow")}
    inputs = [*read, folder / DATA, folder / CODE]
    record = {
        "figure": figure,
        "created": max(map(str, dates)),
        "command": ["python", CODE],
        "inputs": {path.relative_to(project.root).as_posix(): seal.digest_of(path) for path in inputs},
        "outputs": {name: seal.digest_of(folder / name) for name in OUTPUTS},
        "versions": {"python": platform.python_version(), **versions},
        "claims": [claim["id"] for claim in claims],
        "seals": {run.id: seal.digest_of(run.seal) for run in runs if run.seal.exists()},
        "notes": source.notes,
        **judged,
    }
    files.write_json(folder / SIDECAR, {**record, "sha256": digest(record)}, "figure_provenance")
    return audit(project, figure)


def _draw(folder: Path, source: figure_data.Source) -> dict[str, Any]:
    """Run figure.py beside its data and nothing else; what was compared, and the problems."""
    if importlib.util.find_spec("matplotlib") is None:
        raise lacking("figures need matplotlib in this Python: pip install matplotlib")
    code = folder / CODE
    settings = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "MPLBACKEND": "Agg", "SOURCE_DATE_EPOCH": "0"}
    with tempfile.TemporaryDirectory(prefix="figure-") as name:
        room = Path(name)
        (room / DATA).write_text(source.text, encoding="utf-8", newline="")
        shutil.copy(code, room / CODE)
        command, env = [sys.executable, artists.__file__, CODE, ARTISTS], {**os.environ, **settings}
        try:
            done = subprocess.run(command, cwd=room, env=env, capture_output=True, errors="replace", timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            raise bad_input(f"{code} did not end within {_SECONDS} s") from None
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            raise bad_input(f"{code} failed: {last[:300]} (delete it to get a fresh one)")
        absent = [output for output in OUTPUTS if not (room / output).is_file()]
        if absent:
            raise bad_input(f"{code} ended without writing {', '.join(absent)}")
        recorded: Json = files.read_json(room / ARTISTS)
        problems = figure_problems(room, recorded, source.rows)
        for output in OUTPUTS:
            files.write_bytes(folder / output, (room / output).read_bytes())
    files.write_text(folder / DATA, source.text)
    signs = sorted(set(re.findall(r"Glyph \d+ \((.*?)\) missing from", done.stderr)))
    if signs:
        names = ", ".join(sign[-40:] for sign in signs[:3])
        message = f"{len(signs)} signs have no picture in the font and are drawn as boxes: {names}"
        problems.insert(0, Problem("font", message))
    marks = Counter(mark["kind"] for mark in recorded.get("figure.png", {}).get("marks", []))
    count = ", ".join(f"{marks[kind]} {kind}" for kind in KINDS if marks[kind])
    compared = f"{source.panels} panels, marks compared: {count or 'none'}"
    return {"compared": compared, "problems": [problem._asdict() for problem in problems]}


def digest(record: dict[str, Any]) -> str:
    """The sha256 that a sidecar carries about itself."""
    return hashlib.sha256(files.dump(record, SIDECAR, sort_keys=True)).hexdigest()


# -- what changed since


def audits(project: Project) -> dict[str, list[Problem]]:
    """Of every figure that a claim names."""
    audited = {}
    for name in figure_data.names(project):
        try:
            audited[name] = audit(project, name)
        except RgtError as error:  # a name that leads out of figures/
            audited[name] = [Problem("malformed", error.message)]
    return audited


def audit(project: Project, figure: str) -> list[Problem]:
    """Every link of the chain, then what was wrong with the drawing itself when it was made."""
    try:
        record = _recorded(project, figure)
    except RgtError as error:
        return [Problem("missing" if "not exist" in error.message else "malformed", _relative(error.message, project))]
    of_drawing = [Problem(**problem) for problem in record.get("problems", [])]
    bare = {key: value for key, value in record.items() if key != "sha256"}
    if record.get("sha256") != digest(bare) or record["figure"] != figure:
        return [Problem("digest", f"{SIDECAR} was edited: it does not fit its own sha256"), *of_drawing]
    problems: list[Problem] = []
    folder, inside = folder_of(project, figure), f"figures/{figure}/"
    made = {DATA: record["inputs"].get(inside + DATA), CODE: record["inputs"].get(inside + CODE)}
    for name, known in {**made, **{name: record["outputs"].get(name) for name in OUTPUTS}}.items():
        if not (folder / name).is_file():
            problems.append(Problem("missing", f"{name} does not exist"))
        elif seal.digest_of(folder / name) != known and name == CODE:
            problems.append(Problem("stale", f"{CODE} was edited since the figure was drawn; draw it again"))
        elif seal.digest_of(folder / name) != known:
            problems.append(Problem("digest", f"{name} is not the one that was made: it changed since"))
    try:  # `claim check` looks at the seals of the runs
        now = hashlib.sha256(figure_data.collect(project, figure).text.encode()).hexdigest()
        if now != record["inputs"].get(inside + DATA):
            problems.append(Problem("stale-source", f"{DATA} is not what the runs and claims say now; draw it again"))
    except RgtError as error:
        why = _relative(error.message, project)
        problems.append(Problem("stale-source", f"its data cannot be computed anew: {why}"))
    return problems + of_drawing


def compared(project: Project, figure: str) -> str:
    """What was looked at when the figure was drawn, in a line."""
    return str(_recorded(project, figure).get("compared", ""))


def _recorded(project: Project, figure: str) -> dict[str, Any]:
    record: dict[str, Any] = files.read_json(folder_of(project, figure) / SIDECAR, "figure_provenance")
    return record


def _relative(message: str, project: Project) -> str:
    return message.replace(f"{project.root}/", "")


# -- what is wrong with a drawing


def figure_problems(folder: Path, recorded: Json, rows: list[Row]) -> list[Problem]:
    """What is wrong with the files that figure.py just wrote into `folder`; `recorded` by artists.py.

    Every row must be drawn once, with its numbers and at its label, and nothing else may look like data. Whatever else
    the figure shows is listed, for the disclosures.
    """
    problems: list[Problem] = []
    for name in OUTPUTS:
        if name not in recorded:
            problems.append(Problem("unjudged", f"{name} was not written by savefig: what it shows is unknown", "warn"))
        elif seal.digest_of(folder / name) != recorded[name]["sha256"]:
            problems.append(Problem("digest", f"{name} is not what savefig wrote: figure.py changed it afterwards"))
        else:
            problems += [*_data(recorded[name], rows), *_beside(recorded[name], rows)]
    return list(dict.fromkeys(problems))  # the three files usually show the same


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
        shown: list[Shown] = []
        for mark in mine:
            xs, ys = ([point[side] for point in mark["points"]] for side in (0, 1))
            shown.append((mark["label"], ys + xs if kind == "line" else sorted(ys)))
        for problem in _matched(kind, wanted, shown):
            yield problem._replace(message=f"{panel}: {problem.message}")
    if left:
        yield Problem("drawn", f"{len(left)} marks ({left[0]['kind']}) are drawn that {DATA} does not have")
    outside = sum(not mark["inside"] for mark in drawing["marks"])
    if outside:
        yield Problem("clipped", f"{outside} marks lie outside of the axes and are cut off")


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
    if missing:
        label, values = missing[0]
        number = " to ".join(f"{value:.4g}" for value in values) if len(values) < 3 else f"from {values[0]:.4g} on"
        instead = ", ".join(f"{values[0]:.4g} of {other}" for other, values in left[:3]) or "nothing"
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
        claims = [text for text in texts if re.search(r"\d", text) and text not in drawing["declared"]]
        severity = "warn" if claims else "info"  # "p < 0.001" is a result
        yield Problem("undeclared", f"the figure says what {DATA} does not: {shown}", severity)
    beside: Counter[str] = Counter(drawing["beside"])
    if beside:
        shown = ", ".join(f"{count} {name}" for name, count in beside.most_common(5))
        declared = all(" beside-" in name for name in beside)
        yield Problem("undeclared", f"drawn beside the data: {shown}", "info" if declared else "warn")
    if drawing["edges"]:
        where = " and ".join(drawing["edges"])
        yield Problem("clipped", f"the picture has ink at its {where} edge: something is cut off there")
