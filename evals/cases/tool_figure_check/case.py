"""A check of figures, judged on deliveries it has not seen: one script draws all, and is right for most data."""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from trials.case import Box, Case
from worlds import parts, sealed, tool

FIGURES = [f"fig{number:02d}" for number in range(1, 11)]
SEEDS = 4
DEFECTS = (
    "computed anew", "png of older data", "order", "clipped", "pdf of older data", "cap", "svg of older data",
)  # fmt: skip
METHODS = {"order": ["ours", "base", "mixed"], "cap": ["adamw", "base", "lion", "ours"]}
HIDDEN = (21, 22)
MISJUDGED = 1  # figures
_SCRIPT = """#!/usr/bin/env python
import json, subprocess, sys
words = [sys.executable, {script!r}, "figures", "--check", "--evidence", sys.argv[1] + "/EVIDENCE.json", "--json"]
report = json.loads(subprocess.run(words, stdout=subprocess.PIPE, text=True).stdout)
for name in sorted({{each["path"].split("/")[-1] for each in report["findings"] if each["severity"] != "info"}}):
    print(name)
"""
_NAIVE = """#!/usr/bin/env python
import csv, hashlib, json, re, sys
from pathlib import Path
root = Path(sys.argv[1])
claims = json.loads((root / "EVIDENCE.json").read_text())["claims"]
for folder in sorted((root / "figures").iterdir()):
    record = json.loads((folder / "figure.provenance.json").read_text())
    bad = any(hashlib.sha256((folder / n).read_bytes()).hexdigest() != d for n, d in record["outputs"].items())
    rows = list(csv.reader((folder / "source_data.csv").open()))[1:]
    runs = {row[-1]: float(row[3]) for row in rows if row[2] == "run"}
    shown = {item["run_id"] for claim in claims if claim["figure"] == folder.name for item in claim["evidence"]}
    bad |= set(runs) != shown
    for run, value in runs.items():
        bad |= abs(json.loads((root / "runs" / run / "results.json").read_text())["metrics"][0]["value"] - value) > 1e-9
    points = len(re.findall("<use ", (folder / "figure.svg").read_text()))
    bad |= points < len(runs)
    if bad:
        print(folder.name)
"""
DRAW = """\
import os, runpy, sys
for name in sys.argv[1:]:
    os.chdir(name)
    runpy.run_path("figure.py", run_name="__main__")
"""
_STILL = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "MPLBACKEND": "Agg", "SOURCE_DATE_EPOCH": "0"}


def _code() -> str:
    """The usual script, after somebody's edits: right as long as labels are sorted, few and in the usual range."""
    text: str = parts.of_tests("delivery.figures").TEMPLATES.joinpath("figure_points.py").read_text()
    edits = {
        "DPI = 300": "DPI = 200",
        "    for row in rows:\n        number += 1": "    for row in rows[:15]:\n        number += 1",
        "for label in labels], **turned)": "for label in sorted(labels)], **turned)\n    axis.set_ylim(0.62, 0.95)",
    }
    for old, new in edits.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def make(box: Box) -> None:
    wrong = _deliver(box.work / "sample", 16)
    box.write("sample_wrong.txt", "".join(f"{figure}\n" for figure in sorted(wrong)))


def _deliver(root: Path, seed_of_it: int) -> dict[str, str]:
    """Ten figures of which seven are wrong; says what is wrong with which."""
    confounds = parts.of_tests("confounds")
    rng, claims, folders = random.Random(seed_of_it), [], []
    wrong = dict(zip(rng.sample(FIGURES, len(DEFECTS)), DEFECTS, strict=True))
    for number, figure in enumerate(FIGURES):
        defect = wrong.get(figure, "")
        for rank, method in enumerate(METHODS.get(defect, ["base", "mixed", "ours"])):
            specs = []
            for seed in range(SEEDS + (defect == "computed anew" and rank == 1)):
                value = round(0.68 + 0.012 * number + 0.02 * rank + rng.gauss(0, 0.006), 5)
                if defect == "clipped" and rank == 2:
                    value = round(value + 0.3 - 0.05 * seed, 5)
                digits = 0xB00000 + number * 64 + rank * 8 + seed
                run_id = f"20261019-{number:02d}{rank:02d}{seed:02d}-{method}-{digits:06x}"
                specs.append(confounds.Spec(value, seed, {"method": method, "seed": seed}, run_id=run_id))
            folders += [confounds.write(root / "runs", spec, number) for spec in specs]
            claims.append(_claim(figure, method, specs))
    digests = sealed.ledger(root / "runs", folders)
    for claim in claims:
        for item in claim["evidence"]:
            item["seal_sha256"] = digests[item["run_id"]]
    evidence = root / "EVIDENCE.json"
    evidence.write_text(json.dumps({"claims": [_before(claim) for claim in claims], "aliases": {}}))
    _draw(root, wrong)
    evidence.write_text(json.dumps({"claims": claims, "aliases": {}}, indent=1))
    return wrong


def _claim(figure: str, method: str, specs: list[Any]) -> dict[str, Any]:
    values = [spec.value for spec in specs]
    return {
        "id": f"{figure}-{method}", "metric": "accuracy", "split": "test", "method": method, "figure": figure,
        "value": sum(values) / len(values), "spread": statistics.stdev(values), "n": len(values), "direction": "up",
        "evidence": [{"run_id": spec.run_id} for spec in specs],
    }  # fmt: skip


def _before(claim: dict[str, Any]) -> dict[str, Any]:
    """One was drawn before the fifth seed came in."""
    return {**claim, "evidence": claim["evidence"][:SEEDS]}


def _draw(root: Path, wrong: dict[str, str]) -> None:
    delivery, evidence = parts.of_tests("delivery.figures"), parts.of_tests("rgt.evidence")
    project, code = evidence.load(root / "EVIDENCE.json"), _code()
    sources, places = {}, []
    for figure in FIGURES:
        sources[figure] = parts.of_tests("delivery.sources").collect(project, figure)
        older = "older" in wrong.get(figure, "")
        for place in [root / "figures" / figure, *([root / "old" / figure] if older else [])]:
            place.mkdir(parents=True)
            text = sources[figure].text
            (place / "source_data.csv").write_text(text if "old" not in place.parts else _older(text))
            only = f'figure.savefig("figure.{wrong.get(figure, "")[:3]}"'  # of an old drawing one file is taken
            lines = [line for line in code.splitlines() if "savefig(" not in line or only in line]
            (place / "figure.py").write_text(code if "old" not in place.parts else "\n".join(lines))
            places.append(str(place))
    words = [sys.executable, "-c", DRAW, *places]
    done = subprocess.run(words, env={**os.environ, **_STILL}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-500:])
    for figure, defect in wrong.items():
        if "older" in defect:
            name = f"figure.{defect[:3]}"
            shutil.copy(root / "old" / figure / name, root / "figures" / figure / name)
    shutil.rmtree(root / "old")
    for figure in FIGURES:
        record = delivery._sidecar(project, figure, sources[figure])
        (root / "figures" / figure / delivery.SIDECAR).write_text(json.dumps(record, indent=2) + "\n")


def _older(text: str) -> str:
    """One method was trained with another seed list then."""
    rows = [line.split(",") for line in text.splitlines()]
    for row in rows:
        if row[1] == "mixed":
            row[3] = repr(float(row[3]) + 0.031)
    return "".join(",".join(row) + "\n" for row in rows)


def verify(box: Box) -> list[str]:
    missed: list[str] = []
    for seed in HIDDEN:
        with tempfile.TemporaryDirectory() as name:
            wrong = _deliver(Path(name), seed)
            answer = tool.call(box, "figcheck", name, seconds=90)
            said = {line.strip() for line in answer.out.splitlines() if line.strip()}
            missed += [f"{wrong[figure]} was not seen" for figure in sorted(set(wrong) - said)]
            missed += [f"{figure[:40]} was called wrong" for figure in sorted(said - set(wrong))]
    return [] if len(missed) <= MISJUDGED else [f"{len(missed)} of 20 figures: {'; '.join(missed[:6])}"]


def reference(box: Box) -> None:
    tool.leave(box, "figcheck", _SCRIPT.format(script=str(box.skill / "scripts" / "render.py")))


def naive(box: Box) -> None:
    """Every hash against its file, the data against the runs, and the number of points in the svg."""
    tool.leave(box, "figcheck", _NAIVE)


CASE = Case(
    route='tables, figures, LaTeX numbers, a report to hand over; "is it ready to ship?"',
    reads=("references/delivering/principles.md",),
    minutes=4,
    commands=20,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="figcheck names the figures of which a file does not show what the runs say, in deliveries it never saw.",
)
