"""A torch job of a second that trains, saves every step and resumes; it stops at PAUSE until RGT_RUN_DIR/go exists.

So a test interrupts it at a known step, and the final loss tells whether anything was lost.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from types import FrameType

import torch
import torch.distributed as dist

STEPS, PAUSE = 12, 6
RUN = Path(os.environ["RGT_RUN_DIR"])
RANK = int(os.environ.get("RANK", "0"))


def stop(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # every step is saved: there is nothing left to do


def main() -> None:
    signal.signal(signal.SIGTERM, stop)
    torch.manual_seed(0)
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo", timeout=timedelta(seconds=8))
    weight = torch.zeros(4, dtype=torch.float64)
    data, target = torch.randn(32, 4, dtype=torch.float64), torch.randn(32, dtype=torch.float64)
    saved = RUN / "state.pt"
    first = 0
    if saved.exists():
        state = torch.load(saved)
        first, weight = state["step"], state["weight"]
    for step in range(first, STEPS):
        while step == PAUSE and not (RUN / "go").exists():
            (RUN / f"paused.{RANK}").touch()
            time.sleep(0.02)
        weight, loss = train(weight, data, target)
        print(f"step {step} loss {loss!r}")
        save(saved, step + 1, weight)
    if RANK == 0:
        (RUN / "final.json").write_text(json.dumps({"loss": loss, "started_at": first}))
    if dist.is_initialized():
        dist.destroy_process_group()  # else gloo's threads sometimes abort the process that has just finished


def train(weight: torch.Tensor, data: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, float]:
    error = data @ weight - target
    gradient = data.T @ error / len(data)
    if dist.is_initialized():
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()
    return weight - 0.1 * gradient, float((error**2).mean())


def save(path: Path, step: int, weight: torch.Tensor) -> None:
    if RANK == 0:
        beside = path.with_suffix(".part")
        torch.save({"step": step, "weight": weight}, beside)
        beside.replace(path)


if __name__ == "__main__":
    main()
