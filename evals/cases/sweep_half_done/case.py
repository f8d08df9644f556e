"""Seventy-two cells of a killed sweep: which ones are whole is in the files, not in their being there."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from trials.case import Box, Case, same_names

LRS, WDS, SEEDS = ("0.001", "0.003", "0.01", "0.03"), ("0", "0.01", "0.1"), tuple(range(6))
TRAIN = '''\
"""One cell of the sweep."""
import argparse, fcntl, hashlib, json, os, pathlib, sys, time

parser = argparse.ArgumentParser()
for name in ("--lr", "--wd", "--seed", "--out"):
    parser.add_argument(name, required=True)
args = parser.parse_args()
home, out = pathlib.Path(__file__).resolve().parent, pathlib.Path(args.out)
out = out if out.is_absolute() else home / out
cell = f"lr{args.lr}_wd{args.wd}_s{args.seed}"
with open(home / "starts.txt", "a+") as ledger:
    ledger.seek(0)
    before = ledger.read().split().count(cell)
    ledger.write(cell + "\\n")
card = open(home / ".card", "w")
try:
    fcntl.flock(card, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    with open(home / "starts.txt", "a") as ledger:
        ledger.write(f"clash {cell}\\n")
    sys.exit("CUDA error: out of memory (the card is in use)")
import numpy as np

luck = int(hashlib.sha256(cell.encode()).hexdigest(), 16) % 7
out.mkdir(parents=True, exist_ok=True)
time.sleep(0.15)
if luck == 2 and not before:
    os.kill(os.getpid(), 9)
noise = np.random.default_rng(int(hashlib.sha256(cell.encode()).hexdigest()[:8], 16))
shapes = {"embed": (64, 32), "layer0": (32, 32), "layer1": (32, 32), "layer2": (32, 32), "head": (32, 10)}
weights = {name: noise.normal(0, 0.05, shape).astype(np.float32) for name, shape in shapes.items()}
if luck in (3, 5) and not before:
    weights["layer1"][:] = 0 if luck == 3 else np.nan
np.savez(out / "weights.npz", **weights)
result = {"cell": cell, "steps": 500, "diverged": False, "val_loss": round(0.4 + float(noise.random()) / 10, 6)}
(out / "results.json").write_text(json.dumps(result) + "\\n")
print("done")
'''


def _cells() -> list[tuple[str, str, int]]:
    return list(itertools.product(LRS, WDS, SEEDS))


def _name(cell: tuple[str, str, int]) -> str:
    return f"lr{cell[0]}_wd{cell[1]}_s{cell[2]}"


def _kinds() -> dict[str, str]:
    names = [_name(cell) for cell in _cells()]
    random.Random(72).shuffle(names)
    bad = ["absent", "torn", "foreign", "cut", "nan", "zeros", "layer", "flip", "huge", "no results"]
    kinds = dict(zip(names, bad, strict=False))
    wild = [name for name in names[len(bad) :] if name.startswith("lr0.03_")][:4]
    return kinds | dict.fromkeys(wild, "diverged")


BAD = [name for name, kind in _kinds().items() if kind != "diverged"]
DIVERGED = [name for name, kind in _kinds().items() if kind == "diverged"]


def _whole(cell: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What train.py leaves on a good day."""
    import hashlib

    import numpy as np

    noise = np.random.default_rng(int(hashlib.sha256(cell.encode()).hexdigest()[:8], 16))
    shapes = {"embed": (64, 32), "layer0": (32, 32), "layer1": (32, 32), "layer2": (32, 32), "head": (32, 10)}
    weights = {name: noise.normal(0, 0.05, shape).astype(np.float32) for name, shape in shapes.items()}
    return weights, {
        "cell": cell,
        "steps": 500,
        "diverged": False,
        "val_loss": round(0.4 + float(noise.random()) / 10, 6),
    }


def make(box: Box) -> None:
    box.write("train.py", TRAIN)
    box.write("starts.txt", "")
    kinds = _kinds()
    for cell in map(_name, _cells()):
        if kinds.get(cell) != "absent":
            _leave(box.work / "cells" / cell, cell, kinds.get(cell, ""))


def _leave(folder: Path, cell: str, kind: str) -> None:
    import numpy as np

    folder.mkdir(parents=True)
    weights, result = _whole(cell)
    if kind == "diverged":
        result |= {"diverged": True, "val_loss": float("nan")}
        weights = {name: array * np.float32("nan") for name, array in weights.items()}
    if kind == "foreign":
        result = _whole(_name(_cells()[-1]))[1]
    if kind in ("nan", "zeros", "huge"):
        part = weights["layer2"] if kind != "nan" else weights["layer2"][3, 4:9]
        part[:] = {"nan": np.nan, "zeros": 0, "huge": 7e8}[kind]
    if kind == "layer":
        del weights["layer0"]
    path = folder / "weights.npz"
    np.savez(path, **weights)
    data = bytearray(path.read_bytes())
    if kind == "cut":
        del data[len(data) * 4 // 5 :]
    if kind == "flip":
        data[len(data) // 2] ^= 0x04
    path.write_bytes(bytes(data))
    text = json.dumps(result) + "\n"
    if kind != "no results":
        (folder / "results.json").write_text(text[:31] if kind == "torn" else text)


def verify(box: Box) -> list[str]:
    import numpy as np

    words = (box.work / "starts.txt").read_text().split()
    problems = ["two ran at the same time"] if "clash" in words else []
    starts = Counter(word for word in words if word != "clash")
    problems += same_names("started", starts, BAD)
    if any(count > 2 for count in starts.values()):
        problems.append("a cell was started more than twice")
    for cell in BAD:
        weights, result = _whole(cell)
        try:
            with np.load(box.work / "cells" / cell / "weights.npz") as file:
                same = set(file.files) == set(weights) and all(np.array_equal(file[k], v) for k, v in weights.items())
            fine = same and json.loads((box.work / "cells" / cell / "results.json").read_text()) == result
        except Exception:  # whatever the file is, it is not the cell's
            fine = False
        if not fine:
            problems.append(f"{cell} is not whole")
    answer = box.read("done.json")
    return problems + same_names("rerun", answer["rerun"], BAD) + same_names("diverged", answer["diverged"], DIVERGED)


def _look(box: Box, names: list[str]) -> list[str]:
    """Cells that are not done: the weights by verify_local, the results by reading them."""
    paths = [f"cells/{name}/weights.npz" for name in names if (box.work / f"cells/{name}/weights.npz").exists()]
    report = box.script("verify_local.py", *paths, "--expect", f"cells/{_good(box)}/weights.npz")
    bad = {finding["path"].split("/")[1] for finding in report["findings"] if finding["severity"] == "error"}
    for name in names:
        result = _result(box, name)
        if result.get("diverged"):
            bad.discard(name)
        elif result.get("cell") != name or not (box.work / f"cells/{name}/weights.npz").exists():
            bad.add(name)
    return sorted(bad)


def _good(box: Box) -> str:
    return next(name for name in map(_name, _cells()) if name not in _kinds())


def _result(box: Box, name: str) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads((box.work / f"cells/{name}/results.json").read_text())
    except (OSError, ValueError):
        return {}
    return data


def reference(box: Box) -> None:
    names = [_name(cell) for cell in _cells()]
    bad = _look(box, names)
    out = "cells/lr{lr}_wd{wd}_s{seed}"
    words = ["python", "train.py", "--lr", "{lr}", "--wd", "{wd}", "--seed", "{seed}", "--out", out]
    job = {"name": "cell", "command": words, "env": {"RGT_QUEUE": str(box.world / "queue")}}
    left = bad
    for sweep in ("first.yaml", "second.yaml"):  # between them all artifacts are judged at once
        cells = [{"lr": lr, "wd": wd, "seed": seed} for lr, wd, seed in _cells() if _name((lr, wd, seed)) in left]
        box.write(sweep, yaml.safe_dump({"job": job, "cells": cells, "verify": {"command": ["true"]}}))
        box.script("sweep.py", "run", sweep)
        box.script("sweep.py", "wait", sweep, "--timeout", "2m")
        left = _look(box, bad)
    box.write("done.json", {"rerun": bad, "diverged": [name for name in names if _result(box, name).get("diverged")]})


def naive(box: Box) -> None:
    """What is not there, is empty or does not parse is run; exit code 0 is done, else once more."""
    import numpy as np

    rerun = []
    for cell in _cells():
        name = _name(cell)
        try:
            json.loads((box.work / f"cells/{name}/results.json").read_text())
            np.load(box.work / f"cells/{name}/weights.npz")
        except Exception:
            rerun.append(name)
            words = [
                "python",
                "train.py",
                "--lr",
                cell[0],
                "--wd",
                cell[1],
                "--seed",
                str(cell[2]),
                "--out",
                f"cells/{name}",
            ]
            if box.run(*words, ok=range(-99, 99)).returncode:
                box.run(*words, ok=range(-99, 99))
    box.write("done.json", {"rerun": rerun, "diverged": DIVERGED})


CASE = Case(
    route="a sweep, ablation, many seeds",
    reads=("references/run-remote/parallel_ablation.md",),
    minutes=8,
    commands=15,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="The ten bad cells are run, one at a time and at most twice, until they are whole; the diverged are kept.",
)
