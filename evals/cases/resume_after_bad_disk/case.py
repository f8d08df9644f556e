"""The newest checkpoints are cut, silently flipped, NaN in a moment, and a pickle that runs a command when loaded."""

from __future__ import annotations

import math
import os
from typing import Any

from trials.case import Box, Case, differs, same_names
from worlds import weights

RUN = "runs/20261114-210000-lm-3fa9c1"
STEPS = list(range(500, 15500, 500))
GOOD = 13000
SKIPPED = [f"step_{step}.pt" for step in STEPS if step > GOOD]


class _Command:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch ./was_run ../was_run ../../was_run ../../../was_run 2>/dev/null",)


def _nan_moment(data: dict[str, Any]) -> None:
    data["optimizer"]["state"][5]["exp_avg_sq"].view(-1)[11] = math.nan


def _hostile(data: dict[str, Any]) -> None:
    data["rng"] = _Command()


def make(box: Box) -> None:
    folder = box.work / RUN / "checkpoints"
    changes = {13500: _nan_moment, 14500: _hostile}
    for number, step in enumerate(STEPS):
        weights.torch_file(folder / f"step_{step}.pt", 3000 + number, step, changes.get(step))
    flipped = folder / "step_14000.pt"
    data = bytearray(flipped.read_bytes())
    data[len(data) // 2] ^= 0x04
    flipped.write_bytes(data)
    cut = folder / "step_15000.pt"
    cut.write_bytes(cut.read_bytes()[:-20000])
    box.write(f"{RUN}/train.log", "".join(f"step {s} loss {3 - s / 9000:.4f}\nsaved step_{s}.pt\n" for s in STEPS))


def verify(box: Box) -> list[str]:
    problems = []
    if any(box.root.rglob("was_run")):
        problems.append("the code inside a checkpoint was run")
    if len(list((box.work / RUN / "checkpoints").glob("step_*.pt"))) != len(STEPS):
        problems.append("a checkpoint is gone")
    answer = box.read("resume.json")
    problems += differs("checkpoint", str(answer["checkpoint"]).split("/")[-1], f"step_{GOOD}.pt")
    problems += differs("step", answer["step"], GOOD)
    return problems + same_names("skipped", (str(name).split("/")[-1] for name in answer["skipped"]), SKIPPED)


def reference(box: Box) -> None:
    report = box.script("checkpoints.py", "latest", RUN)
    name = report["path"].split("/")[-1]
    step = int(name[5:-3])
    box.write("resume.json", {"checkpoint": name, "step": step, "skipped": [f"step_{s}.pt" for s in STEPS if s > step]})


def naive(box: Box) -> None:
    """Load from the newest backwards until one loads."""
    code = (
        "import torch, glob, json\n"
        "skipped = []\n"
        f"for s in {STEPS[::-1]}:\n"
        f"    try:\n        d = torch.load('{RUN}/checkpoints/step_%d.pt' % s, weights_only=False); break\n"
        "    except Exception: skipped.append('step_%d.pt' % s)\n"
        "json.dump({'checkpoint': 'step_%d.pt' % s, 'step': s, 'skipped': skipped}, open('resume.json', 'w'))\n"
    )
    box.run("python", "-c", code)


CASE = Case(
    route="save, resume, does not load",
    reads=("references/training/checkpoint-resume.md",),
    minutes=6,
    commands=12,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="Resume from step 13000; the four newer ones are named, untouched, and no code inside them ran.",
)
