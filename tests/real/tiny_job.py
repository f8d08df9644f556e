"""A job that trains, saves every step and resumes; it stops at PAUSE until RGT_RUN_DIR/go exists.

So a test interrupts it at a known step, and the final loss tells whether anything was lost. Alone it is plain Python,
for torch takes seconds of CPU to import at each start; several ranks join by torch.distributed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path
from types import FrameType

STEPS, PAUSE = 12, 6
RUN = Path(os.environ["RGT_RUN_DIR"])
RANK = int(os.environ.get("RANK", "0"))


def stop(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # every step is saved: there is nothing left to do


def main() -> None:
    signal.signal(signal.SIGTERM, stop)
    luck = random.Random(0)
    join()
    weight = [0.0] * 4
    data = [([luck.gauss(0, 1) for _ in weight], luck.gauss(0, 1)) for _ in range(32)]
    saved = RUN / "state.json"
    first = 0
    if saved.exists():
        state = json.loads(saved.read_text())
        first, weight = state["step"], state["weight"]
    for step in range(first, STEPS):
        while step == PAUSE and not (RUN / "go").exists():
            (RUN / f"paused.{RANK}").touch()
            time.sleep(0.02)
        weight, loss = train(weight, data)
        print(f"step {step} loss {loss!r}")
        save(saved, step + 1, weight)
    if RANK == 0:
        (RUN / "final.json").write_text(json.dumps({"loss": loss, "started_at": first}))
    leave()


def train(weight: list[float], data: list[tuple[list[float], float]]) -> tuple[list[float], float]:
    errors = [sum(a * b for a, b in zip(row, weight, strict=True)) - target for row, target in data]
    gradient = [sum(error * row[i] for error, (row, _) in zip(errors, data, strict=True)) for i in range(len(weight))]
    gradient = [value / len(data) for value in mean(gradient)]
    return [w - 0.1 * g for w, g in zip(weight, gradient, strict=True)], sum(e * e for e in errors) / len(errors)


def join() -> None:
    if "WORLD_SIZE" in os.environ:
        import torch.distributed as dist

        dist.init_process_group("gloo", timeout=timedelta(seconds=8))


def mean(values: list[float]) -> list[float]:
    """Over the ranks, which all have the same data: the values themselves, unless a rank is gone."""
    if "WORLD_SIZE" not in os.environ:
        return values
    import torch

    shared = torch.tensor(values, dtype=torch.float64)
    torch.distributed.all_reduce(shared)
    return [float(value) for value in shared / torch.distributed.get_world_size()]


def leave() -> None:
    if "WORLD_SIZE" in os.environ:
        import torch.distributed as dist

        dist.destroy_process_group()  # else gloo's threads sometimes abort the process that has just finished


def save(path: Path, step: int, weight: list[float]) -> None:
    if RANK == 0:
        beside = path.with_suffix(".part")
        beside.write_text(json.dumps({"step": step, "weight": weight}))
        beside.replace(path)


if __name__ == "__main__":
    main()
