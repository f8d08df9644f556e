"""A check of documents for years to come: judged on wordings that the drafts do not have."""

from __future__ import annotations

import contextlib
import json
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trials.case import Box, Case, Missing
from worlds import parts, tool

SHOWN, JUDGED, CLAIMS = 10, 80, 80
KNOWN = 4  # wordings of results, and of what is no result, that the drafts have
_REFERENCE = """#!/bin/sh
cd "$1" && python {scripts}/reconcile.py . --evidence "$2" --json | python -c '
import json, sys
found = json.load(sys.stdin)["findings"]
print(json.dumps([dict(file=f["path"].split("/")[-1], number=f["evidence"]) for f in found if f["code"] == "drift"]))'
"""


@contextlib.contextmanager
def _wordings(corpus: Any, part: slice) -> Iterator[None]:
    every = corpus.SENTENCES, corpus.NOISE
    corpus.SENTENCES, corpus.NOISE = every[0][part], every[1][part]
    try:
        yield
    finally:
        corpus.SENTENCES, corpus.NOISE = every


def make(box: Box) -> None:
    corpus = parts.of_tests("reconcile_corpus")
    (box.work / "drafts").mkdir()
    with _wordings(corpus, slice(None, KNOWN)):
        corpus.write(box.work / "drafts", SHOWN, CLAIMS, seed=3, drift_rate=0.0)


def verify(box: Box) -> list[str]:
    corpus = parts.of_tests("reconcile_corpus")
    with tempfile.TemporaryDirectory() as name, _wordings(corpus, slice(KNOWN, None)):
        planted = corpus.write(Path(name), JUDGED, CLAIMS, seed=11, drift_rate=0.06)
        said = tool.call(box, "check", name, Path(name) / "EVIDENCE.json", seconds=120)
    try:
        rows = json.loads(said.out)
    except ValueError:
        raise Missing("check printed no JSON list" if said.code is not None else "check took too long") from None
    given = {f"{row['file'].split('/')[-1]} {_digits(row['number'])}" for row in rows}
    right = {f"{file} {_digits(number)}" for file, number in planted.drifts}
    problems = []
    if len(given & right) < 0.8 * len(right):
        problems.append(f"{len(given & right)} of {len(right)} stale numbers were found")
    if len(given - right) > 0.1 * max(1, len(given)):
        problems.append(f"{len(given - right)} of {len(given)} alarms were wrong, such as {min(given - right)}")
    return problems


def _digits(text: str) -> str:
    """The number itself: no sign of percent, no spread."""
    found = re.search(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?", str(text))
    return found[0].replace(",", "") if found else ""


# any number with a point in a text file that no claim rounds to
_NAIVE = """#!/usr/bin/env python
import json, re, sys
from pathlib import Path
claims = [claim["value"] for claim in json.loads(Path(sys.argv[2]).read_text())["claims"]]
right = {f"{value * scale:.{places}f}" for value in claims for scale in (1, 100) for places in range(5)}
stale = []
for path in sorted(Path(sys.argv[1]).glob("d*")):
    if path.suffix in (".md", ".rst", ".tex", ".csv", ".tsv", ".txt", ".html", ".ipynb"):
        numbers = re.findall(r"\\d+\\.\\d+", path.read_text())
        stale += [{"file": path.name, "number": n} for n in numbers if n not in right]
print(json.dumps(stale))
"""
CASE = Case(
    route="do the documents still say what the runs say?",
    minutes=30,
    commands=40,
    reference=tool.leaving(_REFERENCE, "check"),
    naive=tool.leaving(_NAIVE, "check"),
    held_out=True,
    expected="check finds at least eight of ten stale numbers in unseen wordings, with at most one wrong alarm in ten.",
)
