"""figures/<id>/: runs -> source_data.csv -> figure.py -> figure.png, .pdf, .svg, and a sidecar that says from what.

build() makes them in a folder where nothing but the two inputs lies; look() reads back what was written; audit() says
what changed since. The same runs, code and versions give the same bytes.
"""

from __future__ import annotations

import ast
import csv
import hashlib
import importlib.metadata
import importlib.util
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from delivery import colours, drawing, pdf, pixels, readback, sources
from delivery.drawing import Drawing
from delivery.readback import Problem
from rgt import files, seal
from rgt.errors import RgtError, bad_input, lacking
from rgt.evidence import Project, runs_of

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
OUTPUTS = ("figure.png", "figure.pdf", "figure.svg")
DATA, CODE, SIDECAR = "source_data.csv", "figure.py", "figure.provenance.json"
_PANEL_IN = (3.5, 2.6)  # one column of a paper; two panels share a page's width
_SECONDS = 600
_COARSE = 150  # dpi: below, print looks broken
_NEAR = 0.02  # inches


def folder_of(project: Project, figure: str) -> Path:
    return project.root / "figures" / sources.checked(figure)


# -- make


def build(project: Project, figure: str) -> list[Problem]:
    """Write everything anew, then look at it."""
    source = sources.collect(project, figure)
    folder = folder_of(project, figure)
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / CODE).exists():
        files.write_text(folder / CODE, _template(source))
    said = _draw(folder, source.text)
    files.write_json(folder / SIDECAR, _sidecar(project, figure, source), "figure_provenance")
    return [*_glyphs(said), *audit(project, figure)]


def _template(source: sources.Source) -> str:
    across = min(source.panels, 2)
    size = (round(_PANEL_IN[0] * across, 2), round(_PANEL_IN[1] * -(-source.panels // across), 2))
    text = (TEMPLATES / f"figure_{source.kind}.py").read_text(encoding="utf-8")
    return text.replace("SIZE_IN = (3.5, 2.6)", f"SIZE_IN = {size}").replace("COLUMNS = 1 ", f"COLUMNS = {across} ")


def _draw(folder: Path, data: str) -> str:
    """Run figure.py beside its data and nothing else; what it said."""
    if importlib.util.find_spec("matplotlib") is None:
        raise lacking("figures need matplotlib in this Python: pip install matplotlib")
    with tempfile.TemporaryDirectory(prefix="figure-") as name:
        room = Path(name)
        (room / DATA).write_text(data, encoding="utf-8", newline="")
        shutil.copy(folder / CODE, room / CODE)
        said = _run(room, folder / CODE)
        absent = [output for output in OUTPUTS if not (room / output).is_file()]
        if absent:
            raise bad_input(f"{folder / CODE} ended without writing {', '.join(absent)}")
        for output in OUTPUTS:
            files.write_bytes(folder / output, (room / output).read_bytes())
    files.write_text(folder / DATA, data)
    return said


def _run(room: Path, code: Path) -> str:
    settings = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "MPLBACKEND": "Agg", "SOURCE_DATE_EPOCH": "0"}
    words = [sys.executable, CODE]
    try:
        done = subprocess.run(
            words, cwd=room, env={**os.environ, **settings}, capture_output=True, text=True, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise bad_input(f"{code} did not end within {_SECONDS} s") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise bad_input(f"{code} failed: {last[:300]} (delete it to get a fresh one)")
    return done.stderr


def _glyphs(said: str) -> Iterator[Problem]:
    absent = sorted(set(re.findall(r"Glyph \d+ \((.*?)\) missing from", said)))
    if absent:
        names = ", ".join(name[-40:] for name in absent[:3])
        yield Problem("font", f"{len(absent)} signs have no picture in the font and are drawn as boxes: {names}")


def _sidecar(project: Project, figure: str, source: sources.Source) -> dict[str, Any]:
    folder, claims = folder_of(project, figure), sources.claims_of(project, figure)
    runs = [project.run(run_id) for run_id in dict.fromkeys(run_id for claim in claims for run_id in runs_of(claim))]
    read = [run.results if source.kind == "points" else run.metrics for run in runs]
    record = {
        "figure": figure,
        "created": max(_dated(run) for run in runs),
        "command": ["python", CODE],
        "inputs": {
            path.relative_to(project.root).as_posix(): seal.digest_of(path)
            for path in [*(path.resolve() for path in read), folder / DATA, folder / CODE]
        },
        "outputs": {name: seal.digest_of(folder / name) for name in OUTPUTS},
        "versions": {"python": platform.python_version(), **_versions()},
        "claims": [claim["id"] for claim in claims],
        "seals": {run.id: seal.digest_of(run.seal) for run in runs if run.seal.exists()},
        "notes": source.notes,
    }
    return {**record, "sha256": _digest(record)}


def _dated(run: Any) -> str:
    """A figure is as old as its data: the same on every rebuild."""
    return str(files.read_json(run.seal, "seal")["sealed"] if run.seal.exists() else run.record()["created"])


def _versions() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in ("matplotlib", "numpy", "pillow")}


def _digest(record: dict[str, Any]) -> str:
    return hashlib.sha256(files.dump(record, SIDECAR, sort_keys=True)).hexdigest()


# -- what changed since


def audits(project: Project) -> dict[str, list[Problem]]:
    """Of every figure that a claim names."""
    found = {}
    for name in sources.names(project):
        try:
            found[name] = audit(project, name)
        except RgtError as error:  # a name that is no folder's
            found[name] = [Problem("malformed", error.message)]
    return found


def audit(project: Project, figure: str) -> list[Problem]:
    """Every link of the chain, then the pictures themselves."""
    folder = folder_of(project, figure)
    try:
        record = files.read_json(folder / SIDECAR, "figure_provenance")
    except RgtError as error:
        return [Problem("missing" if "not exist" in error.message else "malformed", _relative(error.message, project))]
    return [*_chain(project, figure, record), *look(folder)]


def _relative(message: str, project: Project) -> str:
    return message.replace(f"{project.root}/", "")


def _chain(project: Project, figure: str, record: dict[str, Any]) -> Iterator[Problem]:
    bare = {key: value for key, value in record.items() if key != "sha256"}
    if record.get("sha256") != _digest(bare) or record["figure"] != figure:
        yield Problem("digest", f"{SIDECAR} was edited: it does not fit its own sha256")
        return
    yield from _tampered_runs(project, record)
    folder = folder_of(project, figure)
    inside = f"figures/{figure}/"
    for name in (DATA, *OUTPUTS):
        known = record["outputs"].get(name) or record["inputs"].get(inside + name)
        yield from _same(folder / name, known, "digest", f"{name} is not the one that was made: it changed since")
    code = record["inputs"].get(inside + CODE)
    yield from _same(folder / CODE, code, "stale", f"{CODE} was edited since the figure was drawn; draw it again")
    try:
        now = hashlib.sha256(sources.collect(project, figure).text.encode()).hexdigest()
    except RgtError as error:
        yield Problem("stale-source", f"its data cannot be computed anew: {_relative(error.message, project)}")
        return
    if now != record["inputs"].get(inside + DATA):
        yield Problem("stale-source", f"{DATA} is not what the runs and claims say now; draw it again")


def _same(path: Path, known: str | None, code: str, sentence: str) -> Iterator[Problem]:
    if not path.is_file():
        yield Problem("missing", f"{path.name} does not exist")
    elif seal.digest_of(path) != known:
        yield Problem(code, sentence)


def _tampered_runs(project: Project, record: dict[str, Any]) -> Iterator[Problem]:
    for run_id, known in record.get("seals", {}).items():
        try:
            run = project.run(run_id)
            found = project.seal_problems(run_id)
        except RgtError as error:
            yield Problem("missing", _relative(error.message, project))
            continue
        for problem in found[:3]:
            yield Problem("digest", f"the sealed run {run_id}: {problem.name} {_relative(problem.message, project)}")
        if not found and seal.digest_of(run.seal) != known:
            yield Problem("digest", f"the sealed run {run_id} has another seal than when the figure was drawn")


# -- look at the pictures


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
    rows = _caught(found, lambda: _rows(folder / DATA))
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


def _rows(path: Path) -> list[sources.Row]:
    try:
        rows = list(csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"))))
        numbers = [float(row["y"]) for row in rows]
    except FileNotFoundError:
        raise bad_input(f"{path} does not exist") from None
    except (OSError, UnicodeDecodeError, csv.Error, KeyError, TypeError, ValueError) as error:
        raise bad_input(f"{path} is not a table with a column y of numbers: {error}") from None
    if not numbers:
        raise bad_input(f"{path} has no rows")
    return rows


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
