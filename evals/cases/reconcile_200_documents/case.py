"""Two hundred documents in ten formats, some eight thousand numbers, half a percent of them stale."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

from trials.case import Box, Case, same_names
from worlds import parts

DOCUMENTS, CLAIMS, SEED, RATE = 200, 120, 7, 0.01


def make(box: Box) -> None:
    parts.of_tests("reconcile_corpus").write(box.work, DOCUMENTS, CLAIMS, SEED, RATE)


def _planted() -> set[str]:
    """Generated again: an answer that lay in the world could be found there."""
    with tempfile.TemporaryDirectory() as folder:
        planted = parts.of_tests("reconcile_corpus").write(Path(folder), DOCUMENTS, CLAIMS, SEED, RATE)
    return {f"{name} {_digits(number)}" for name, number in planted.drifts}


def _digits(text: str) -> str:
    return re.sub(r"[^\d.e-]", "", text)


def verify(box: Box) -> list[str]:
    given = [f"{row['file'].split('/')[-1]} {_digits(row['number'])}" for row in box.read("stale.json", list)]
    return same_names("stale numbers", given, _planted())


def reference(box: Box) -> None:
    report = box.script("reconcile.py", ".")
    drifts = [f for f in report["findings"] if f["code"] == "drift"]
    box.write("stale.json", [{"file": f["path"], "number": f["evidence"]} for f in drifts])


def naive(box: Box) -> None:
    """Text files only, and a number counts as fine when any claim rounds to it."""
    claims = [claim["value"] for claim in json.loads((box.work / "EVIDENCE.json").read_text())["claims"]]
    right = {f"{value * scale:.{places}f}" for value in claims for scale in (1, 100) for places in range(5)}
    stale = []
    for path in sorted(box.work.glob("d*")):
        if path.suffix in (".md", ".tex", ".csv", ".txt"):
            numbers = re.findall(r"\d+\.\d+", path.read_text())
            stale += [{"file": path.name, "number": n} for n in numbers if n not in right]
    box.write("stale.json", stale)


CASE = Case(
    route="do the documents still say what the runs say?",
    reads=(),
    minutes=15,
    commands=25,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    held_out=True,
    expected="stale.json holds exactly the planted stale numbers, none of the right ones.",
)
