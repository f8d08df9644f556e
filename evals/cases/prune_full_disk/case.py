"""Thinning out by rules, where the newest and the best by the index are the damaged ones."""

from __future__ import annotations

import json
import math
from typing import Any

from trials.case import Box, Case, same_names
from worlds import weights

RUN = "runs/20261110-060000-big-77aa01"
STEPS = list(range(1000, 25000, 1000))
DAMAGED = [24000, 17000, 9000]
BEST = 21000
KEPT = sorted({23000, 22000, BEST, *(s for s in STEPS if s % 5000 == 0), *DAMAGED})


def _loss(step: int) -> float:
    return {17000: 1.91, BEST: 1.94}.get(step, round(3.2 - step / 24000, 4))


def _nan(data: dict[str, Any]) -> None:
    data["model"]["layers.1.mlp.up.weight"][2, 2] = math.nan


def make(box: Box) -> None:
    folder = box.work / RUN / "checkpoints"
    entries = []
    for number, step in enumerate(STEPS):
        path = weights.torch_file(folder / f"step_{step}.pt", 5000 + number, step, _nan if step == 17000 else None)
        entries.append(
            {
                "path": f"checkpoints/{path.name}",
                "step": step,
                "time": 1.8e9 + step,
                "verified": True,
                "metrics": {"val_loss": _loss(step)},
            }
        )
    cut = folder / "step_24000.pt"
    cut.write_bytes(cut.read_bytes()[:100_000])
    flipped = folder / "step_9000.pt"
    data = bytearray(flipped.read_bytes())
    data[len(data) // 2] ^= 0x10
    flipped.write_bytes(data)
    (folder.parent / "checkpoints_index.json").write_text(json.dumps({"checkpoints": entries}, indent=1))


def verify(box: Box) -> list[str]:
    found = [path.name for path in (box.work / RUN / "checkpoints").glob("*.pt")]
    return same_names("checkpoints that are left", found, [f"step_{step}.pt" for step in KEPT])


def reference(box: Box) -> None:
    box.script("checkpoints.py", "prune", RUN, "--keep-last", "2", "--best", "val_loss", "--every", "5000")


def naive(box: Box) -> None:
    keep = {24000, 23000, 17000, *(s for s in STEPS if s % 5000 == 0)}
    for step in set(STEPS) - keep:
        (box.work / RUN / "checkpoints" / f"step_{step}.pt").unlink()


CASE = Case(
    route="save, resume, does not load",
    reads=("references/training/checkpoint-resume.md",),
    minutes=6,
    commands=15,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="Left are the two newest good ones, the best good one, the multiples of 5000 and the three damaged ones.",
)
