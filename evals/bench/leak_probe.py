"""leak_probe on a million rows: seconds against five minutes and against `sort -u`, memory against 2 GB, what it finds.

900,000 training and 100,000 test rows, once as text lines and once as a table of numbers. 1,000 test rows are copies
under another disguise (case and punctuation; number format) and 1,000 are near-duplicates (a word in twenty-five
replaced; noise of 1 % of a column's spread). A row of the report is a share in percent, or a ratio to the peer.
"""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.measure import Ran, Row, ran, timed, tool

import numpy as np

TRAIN, TEST = 900_000, 100_000
PLANTED = 1_000  # of each kind
SECONDS = 300.0
MEMORY = 2048.0  # MB


def rows() -> Iterator[Row]:
    for kind, make in (("text", make_text), ("numbers", make_numbers)):
        with tempfile.TemporaryDirectory(prefix="leak-bench-") as name:
            train, test = make(Path(name))
            sort = timed(lambda train=train, test=test: _sort(train, test))  # type: ignore[misc]
            found, seconds, memory = _probe(train, test)
            what = f"leak_probe: {TRAIN + TEST:,} rows of {kind}"
            yield Row(f"{what} / 5 min", seconds, SECONDS, goal=1)
            yield Row(f"{what} / sort -u", seconds, sort, goal=math.inf)
            yield Row(f"{what}, peak memory / 2 GB", memory, MEMORY, goal=1, unit="M")
            yield from _quality(kind, found)


def _quality(kind: str, found: dict[str, set[int]]) -> Iterator[Row]:
    """Missed and wrong ones, against what is allowed: 1 % of exact, 5 % of near, 1 % of all that was found."""
    exact, near = set(range(PLANTED)), set(range(PLANTED, 2 * PLANTED))
    every = found["exact"] | found["near"]
    missed, lost = len(exact - found["exact"]), len(near - every)
    yield Row(f"leak_probe: {kind}, exact copies missed", 100 * missed / PLANTED, 1.0, 1, "%")
    yield Row(f"leak_probe: {kind}, near-duplicates missed", 100 * lost / PLANTED, 5.0, 1, "%")
    yield Row(f"leak_probe: {kind}, wrongly called", 100 * len(every - exact - near) / len(every), 1.0, 1, "%")


def _sort(*paths: Path) -> None:
    with open(os.devnull, "wb") as nowhere:
        subprocess.run(["sort", "-u", *map(str, paths)], check=True, stdout=nowhere, env={**os.environ, "LC_ALL": "C"})


def _probe(train: Path, test: Path) -> tuple[dict[str, set[int]], float, float]:
    """What it found by line, the seconds and the peak memory in MB of its process."""
    command = tool("leak_probe", "overlap", "--train", train, "--test", test, "--json")
    outputs: list[Ran] = []
    seconds = timed(lambda: outputs.append(ran(command)))
    report: dict[str, Any] = json.loads(outputs[0].out)
    lines: dict[str, set[int]] = {"exact": set(), "near": set(), "coincidence": set()}
    for match in report["matches"]:
        lines[match["kind"]].add(int(match["item"].rpartition(":")[2]) - 1)
    return lines, seconds, outputs[0].peak


def make_text(folder: Path) -> tuple[Path, Path]:
    noise = random.Random(0)
    words = ["".join(noise.choices("abcdefghijklmnopqrstuvwxyz", k=noise.randint(2, 9))) for _ in range(20_000)]
    weights = np.cumsum(1 / (np.arange(len(words)) + 3)).tolist()  # Zipf: unrelated texts share words

    def text() -> list[str]:
        return noise.choices(words, cum_weights=weights, k=25)

    copied = noise.sample(range(TRAIN), 2 * PLANTED)
    wanted = {number: place for place, number in enumerate(copied)}
    test: list[str] = [""] * (2 * PLANTED)
    train_path, test_path = folder / "train.txt", folder / "test.txt"
    with train_path.open("w") as file:
        for number in range(TRAIN):
            tokens = text()
            file.write(" ".join(tokens) + "\n")
            if number in wanted:
                place = wanted[number]
                if place >= PLANTED:
                    tokens[noise.randrange(25)] = "replaced"
                line = " ".join(tokens)
                test[place] = line if place >= PLANTED else line.title() + "!"
    with test_path.open("w") as file:
        file.writelines(line + "\n" for line in test)
        file.writelines(" ".join(text()) + "\n" for _ in range(TEST - 2 * PLANTED))
    return train_path, test_path


def make_numbers(folder: Path) -> tuple[Path, Path]:
    noise = np.random.default_rng(0)
    spread = np.array([1, 10, 0.1, 3, 100, 1, 1, 5])
    train = noise.normal(0, spread, (TRAIN, 8)).round(5)
    test = noise.normal(0, spread, (TEST, 8)).round(5)
    copied = noise.choice(TRAIN, 2 * PLANTED, replace=False)
    test[: 2 * PLANTED] = train[copied]
    test[PLANTED : 2 * PLANTED] += noise.normal(0, 0.01 * spread, (PLANTED, 8))
    return _table(folder / "train.csv", train, "%.5f"), _table(folder / "test.csv", test, "%.7f")


def _table(path: Path, values: Any, form: str) -> Path:
    np.savetxt(path, values, fmt=form, delimiter=",")  # no header: line 1 is the first row
    return path
