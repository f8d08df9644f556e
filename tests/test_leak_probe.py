"""leak_probe: planted leaks are found, coincidences are not called leaks, and hostile splits get a sentence."""

from __future__ import annotations

import csv
import io
import json
import random
import struct
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

import leak_probe
from leakage import chance, normal, sources
from rgt import rundir

from . import planted


def run(*arguments: object) -> Result:
    return CliRunner().invoke(leak_probe.main, [str(argument) for argument in arguments])


def report(*arguments: object) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code in (0, 1), done.output
    found: dict[str, Any] = json.loads(done.stdout, parse_constant=pytest.fail)
    assert done.exit_code == (0 if found["ok"] else 1)
    return found


def overlap(train: Path, test: Path, *options: object) -> dict[str, Any]:
    return report("overlap", "--train", train, "--test", test, *options)


def codes(found: dict[str, Any], *severities: str) -> list[str]:
    return [f["code"] for f in found["findings"] if f["severity"] in (severities or ("error", "warn"))]


def matched(found: dict[str, Any], kind: str, offset: int = 1) -> set[int]:
    """Indices of test items; `offset` is the line of the first."""
    return {int(m["item"].rpartition(":")[2]) - offset for m in found["matches"] if m["kind"] == kind}


def table(path: Path, rows: list[list[Any]], header: str = "") -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
        if header:
            writer.writerow(header.split(","))
        writer.writerows(rows)
    return path


def lines(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(rows) + "\n")
    return path


def jsonl(path: Path, rows: list[Any]) -> Path:
    return lines(path, [json.dumps(row) for row in rows])


def judged(exact: set[Any], near: set[Any], found_exact: set[Any], found_near: set[Any]) -> tuple[float, float, float]:
    """Recall of exact, recall of near, precision of all. A near one found as exact was normalised away: it is found."""
    found = found_exact | found_near
    precision = len(found & (exact | near)) / max(1, len(found))
    return len(exact & found_exact) / max(1, len(exact)), len(near & found) / max(1, len(near)), precision


# -- planted leaks


def test_planted_text(tmp_path: Path) -> None:
    train, test, exact, near = planted.texts(4000)
    found = overlap(lines(tmp_path / "a.txt", train), lines(tmp_path / "b.txt", test))
    recall, near_recall, precision = judged(exact, near, matched(found, "exact"), matched(found, "near"))
    assert len(exact) > 80 and len(near) > 80
    assert recall >= 0.99 and near_recall >= 0.95 and precision >= 0.99
    assert codes(found) == ["leak", "near-duplicate"]
    assert found["pairs"][0]["coincidence"] > 20  # "yes", "thank you": counted, not called leaks


def test_planted_rows(tmp_path: Path) -> None:
    train, test, exact, near = planted.rows(4000)
    header = "id,a,b,c,d,e,f,n,m,flag,kind"
    one = table(tmp_path / "a.csv", [[index, *row] for index, row in enumerate(train)], header)
    other = table(tmp_path / "b.tsv", [[9_000_000 + 7 * i, *row] for i, row in enumerate(test)], header)
    found = overlap(one, other)
    recall, near_recall, precision = judged(exact, near, matched(found, "exact", 2), matched(found, "near", 2))
    assert len(exact) > 80 and len(near) > 80
    assert recall >= 0.99 and near_recall >= 0.95 and precision >= 0.99
    assert found["compared"]["ignored"] == ["id"]


def test_planted_images(tmp_path: Path) -> None:
    train, test, exact, near = planted.images(tmp_path, 160)
    found = overlap(train, test)
    names = {kind: {Path(m["item"]).name for m in found["matches"] if m["kind"] == kind} for kind in ("exact", "near")}
    recall, near_recall, precision = judged(exact, near, names["exact"], names["near"])
    missed = sorted(near - names["near"])
    assert recall == 1 and near_recall >= 0.95 and precision >= 0.99, (missed, names["near"] - near)
    coincidence = [Path(m["item"]).name for m in found["matches"] if m["kind"] == "coincidence"]
    assert coincidence == ["blank.png"]
