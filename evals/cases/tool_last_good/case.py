"""Where does a run go on? Asked for fifty run folders of seven trainers that the agent has not seen."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from trials.case import Box, Case
from worlds import tool
from worlds.killed_runs import RUNS

MISSES, ENOUGH = 2, 8
_REFERENCE = """#!/bin/sh
python {scripts}/checkpoints.py latest "$1" 2>/dev/null || echo none
"""
SAMPLES = {
    "a": "nanogpt_cut",
    "b": "trainer_900_1000",
    "c": "trainer_shard_gone",
    "d": "latest_is_gone",
    "e": "all_bad",
}


def make(box: Box) -> None:
    answers = []
    for name, kind in SAMPLES.items():
        right = RUNS[kind](box.work / "samples" / name)
        answers.append(f"{name} {right.relative_to(box.work) if isinstance(right, Path) else 'none'}\n")
    box.write("samples/answers.txt", "".join(answers))


def verify(box: Box) -> list[str]:
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, kind in RUNS.items():
            run = Path(folder) / f"run{len(name)}"
            right = kind(run)
            before = _state(run)
            said = tool.call(box, "last_good", run, seconds=15).out.strip()
            if _state(run) != before:
                return [f"changed the run folder {name}"]
            if not _same(box, run, said, right):
                wrong.append(f"{name} ({said[-40:] or 'nothing'})")
            if len(wrong) >= ENOUGH:
                break
            shutil.rmtree(run)
    return [] if len(wrong) <= MISSES else [f"{len(wrong)} runs: {', '.join(wrong)}"]


def _same(box: Box, run: Path, said: str, right: object) -> bool:
    """Relative to the desk or to the run, or absolute; the file inside a folder will do as well."""
    if not isinstance(right, Path):
        return said == "none"
    if not said or said == "none" or "\n" in said:
        return False
    places = [(root / said).resolve() for root in (box.work, run, right.parent)]
    return any(place == right.resolve() or place.is_relative_to(right.resolve()) for place in places)


def _state(run: Path) -> list[tuple[str, int, int]]:
    found = [(path, path.lstat()) for path in sorted(run.rglob("*"))]
    return [(str(path), status.st_size, status.st_mtime_ns) for path, status in found]


# newest number first, until all files open and no weight is nan
_NAIVE = """#!/usr/bin/env python
import json, re, sys, zipfile
from pathlib import Path
import numpy as np
from safetensors.numpy import load_file
run = Path(sys.argv[1])
places = [p for p in (run, run / "checkpoints") if p.is_dir()]
def step(p):
    numbers = re.findall(r"\\d+", p.name)
    return int(numbers[-1]) if numbers else -1
found = [p for place in places for p in place.iterdir() if step(p) >= 0 and not p.name.endswith(".tmp")]
def good(p):
    files = [p] if p.is_file() else [f for f in p.rglob("*") if f.is_file()]
    if p.is_dir() and not any(f.suffix in (".safetensors", ".pth", ".pt", ".distcp") for f in files):
        return False
    for index in p.glob("*.index.json"):
        if not all((p / f).exists() for f in json.loads(index.read_text())["weight_map"].values()):
            return False
    if p.name.startswith("checkpoint-") and not (p / "trainer_state.json").exists():
        return False
    for f in files:
        if f.suffix == ".safetensors":
            if any(not np.isfinite(a).all() for a in load_file(f).values()):
                return False
        elif f.suffix in (".pt", ".pth", ".ckpt", ".bin", ".pkl") and zipfile.ZipFile(f).testzip():
            return False
    return True
for p in sorted(found, key=step, reverse=True):
    try:
        if good(p):
            print(p)
            break
    except Exception:
        pass
else:
    print("none")
"""
CASE = Case(
    route="save, resume",
    reads=("references/training/checkpoint-resume.md",),
    minutes=4,
    commands=30,
    make=make,
    verify=verify,
    reference=tool.leaving(_REFERENCE, "last_good"),
    naive=tool.leaving(_NAIVE, "last_good"),
    expected="last_good names the right checkpoint, or none, for all but two of fifty run folders of seven trainers.",
)
