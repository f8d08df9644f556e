"""Trainer folders: the highest number is what get_last_checkpoint takes, and it is not the one."""

from __future__ import annotations

import json
import shutil
from typing import Any

from trials.case import Box, Case, differs, same_names
from worlds import weights

STEPS = list(range(500, 15000, 500))
GOOD = 12500
NEWER = [f"checkpoint-{step}" for step in STEPS if step > GOOD]


def make(box: Box) -> None:
    import torch
    from safetensors.torch import save_file

    for number, step in enumerate(STEPS):
        folder = box.work / "out" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        tensors = weights.state(9000 + number)
        if step == 13000:
            tensors["layers.0.mlp.up.weight"][0, 0] = float("nan")
        save_file(tensors, str(folder / "model.safetensors"), {"format": "pt"})
        moments = {n: {"step": torch.tensor(float(step)), "exp_avg": v * 0.1, "exp_avg_sq": v.square() + 1e-8}
                   for n, v in enumerate(tensors.values())}  # fmt: skip
        groups = [{"lr": 2e-5, "params": list(range(len(tensors)))}]
        torch.save({"state": moments, "param_groups": groups}, folder / "optimizer.pt")
        torch.save({"last_epoch": step, "_step_count": step + 1, "base_lrs": [2e-5]}, folder / "scheduler.pt")
        torch.save({"python": (3, (1, 2), None), "cpu": torch.zeros(16, dtype=torch.uint8)}, folder / "rng_state.pth")
        history = [{"step": s, "loss": 3 - s / 9000} for s in range(500, step + 1, 500)]
        _state(folder, {"global_step": step, "max_steps": 20000, "log_history": history})
    out = box.work / "out"
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"):  # killed early in the save
        (out / "checkpoint-14500" / name).unlink()
    cut = out / "checkpoint-14000" / "optimizer.pt"
    cut.write_bytes(cut.read_bytes()[:60_000])
    shutil.copy(out / "checkpoint-9000" / "optimizer.pt", out / "checkpoint-13500" / "optimizer.pt")  # of another step


def _state(folder: Any, data: dict[str, Any]) -> None:
    (folder / "trainer_state.json").write_text(json.dumps(data))


def verify(box: Box) -> list[str]:
    answer = box.read("resume.json")
    problems = differs("checkpoint", str(answer["checkpoint"]).split("/")[-1], f"checkpoint-{GOOD}")
    return problems + same_names("unusable_newer", answer["unusable_newer"], NEWER)


def reference(box: Box) -> None:
    """Newest first, until one has every part of a good older one and verifies."""
    parts = {path.name for path in (box.work / "out/checkpoint-5000").iterdir()}
    skipped: list[str] = []
    for step in reversed(STEPS):
        name = f"checkpoint-{step}"
        whole = parts <= {path.name for path in (box.work / "out" / name).iterdir()}
        if whole and box.script("verify_local.py", f"out/{name}", "--expect", "out/checkpoint-5000")["ok"]:
            box.write("resume.json", {"checkpoint": name, "unusable_newer": skipped})
            return
        skipped.append(name)


def naive(box: Box) -> None:
    """The newest with all its files."""
    box.write("resume.json", {"checkpoint": "checkpoint-14000", "unusable_newer": ["checkpoint-14500"]})


CASE = Case(
    route="save, resume, does not load",
    reads=("references/training/checkpoint-resume.md",),
    minutes=5,
    commands=12,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    held_out=True,
    expected="checkpoint-12500; the four newer ones are cut, incomplete, of mixed steps, or hold a NaN.",
)
