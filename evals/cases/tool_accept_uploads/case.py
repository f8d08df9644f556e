"""A gate for checkpoints of strangers, judged on sixty uploads that the agent has not seen."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from trials.case import ROOT, Box, Case
from worlds import parts, tool

EVERY = 3  # of the defects that the tests know
# torch writes ids and addresses into these; they are among the uploads, but not among the samples
_NEVER_THE_SAME = (
    "torchscript",
    "distributed",
    "torch_legacy",
    "torch_exotic",
    "torch_zipped_again",
    "torch_big_endian",
)
MISSED, REFUSED = 0.05, 1  # shares of the broken ones, and sound ones, that may be judged wrongly
_SAMPLES = """
import random, sys
from pathlib import Path
import numpy as np, torch
from tests import zoo
for maker in zoo.HEALTHY:
    if maker.__name__ not in sys.argv[2].split(","):
        folder = Path(sys.argv[1]) / maker.__name__
        folder.mkdir(parents=True)
        torch.manual_seed(0)
        np.random.seed(0)
        random.seed(0)
        maker(folder)
"""
_REFERENCE = """#!/bin/sh
exec python {scripts}/verify_local.py "$1" --json >/dev/null
"""


def make(box: Box) -> None:
    """In a process of its own: makers draw from the global generators, which cases that are made beside it also use."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "scripts")])}
    skipped = ",".join(_NEVER_THE_SAME)
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _SAMPLES, str(box.work / "samples"), skipped],
        env=environment,
        check=True,
    )


def verify(box: Box) -> list[str]:
    zoo, corruption = parts.of_tests("tests.zoo"), parts.of_tests("tests.corruption")
    # what damages a run's own records, or needs an expectation to compare with, is no upload
    uploads = [d.make for d in corruption.DEFECTS if d.severity == "error" and not d.arguments]
    broken = [make for make in uploads if not make.__name__.startswith(("run_", "pulled_"))][::EVERY]
    with tempfile.TemporaryDirectory() as folder:
        refused = [maker.__name__ for maker in zoo.HEALTHY if not _accepts(box, maker, Path(folder))]
        passed, ran = [], []
        for maker in broken:
            if _accepts(box, maker, Path(folder)):
                passed.append(maker.__name__)
            if any(Path(folder).rglob("EXECUTED")):
                ran.append(maker.__name__)
    problems = [f"ran code out of {name}" for name in ran[:1]]
    if len(passed) > MISSED * len(broken):
        problems.append(f"{len(passed)} of {len(broken)} broken uploads were accepted, such as {passed[0]}")
    if len(refused) > REFUSED:
        problems.append(f"{len(refused)} sound uploads were refused, such as {refused[0]}")
    return problems


def _accepts(box: Box, maker: object, folder: Path) -> bool:
    name = maker.__name__  # type: ignore[attr-defined]
    place = folder / name
    place.mkdir()
    return tool.call(box, "accept", maker(place), seconds=30).code == 0  # type: ignore[operator]


# it opens, and no float of it is nan
_NAIVE = """#!/usr/bin/env python
import sys, zipfile
from pathlib import Path
import numpy as np
from safetensors.numpy import load_file
path = Path(sys.argv[1])
for file in [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]:
    if file.suffix == ".safetensors":
        for array in load_file(file).values():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                sys.exit(1)
    elif file.suffix in (".pt", ".pth", ".bin", ".ckpt") and zipfile.is_zipfile(file):
        if zipfile.ZipFile(file).testzip():
            sys.exit(1)
"""
CASE = Case(
    route="is this checkpoint real?",
    minutes=30,
    commands=40,
    reference=tool.leaving(_REFERENCE, "accept"),
    naive=tool.leaving(_NAIVE, "accept"),
    expected="accept refuses nearly every broken upload, passes the sound ones and runs nothing that is inside them.",
)
