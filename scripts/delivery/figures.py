"""figures/<id>/: runs -> source_data.csv -> figure.py -> figure.png, .pdf, .svg, and a sidecar that says from what.

build() makes them in a folder where nothing but the two inputs lies; audit() says what changed since. The same runs,
code and versions give the same bytes.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
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

from delivery import sources
from delivery.inspection import CODE, look
from delivery.readback import Problem
from delivery.sources import DATA
from rgt import files, seal
from rgt.errors import RgtError, bad_input, lacking
from rgt.evidence import Project, runs_of

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
OUTPUTS = ("figure.png", "figure.pdf", "figure.svg")
SIDECAR = "figure.provenance.json"
_PANEL_IN = (3.5, 2.6)  # one column of a paper; two panels share a page's width
_SECONDS = 600


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
            words,
            cwd=room,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
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
