"""Real offline W&B runs of every fate, made with the real library. A script: it writes into the folder it is given.

Each line of logged.jsonl is what was logged, so that a reader can be compared with it bit by bit.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_CONSOLE="off")
import wandb

CURVE = 40


def values(seed: int, step: int) -> dict[str, Any]:
    """Numbers that a careless reader would change: long fractions, tiny, huge, NaN, unicode keys, nested ones."""
    rng = random.Random(seed * 1000 + step)
    return {
        "loss": rng.random() * 1e-3,
        "val/acc": rng.random(),
        "tiny": 5e-324 * (step + 1),
        "huge": 1.7976931348623157e308,
        "count": 2**60 + step,
        "bad": float("nan") if step % 2 else float("inf"),
        "损失": -rng.random(),
        "deep": {"er": rng.random()},
        "text": "x" * (40000 if step == 7 else 3),
    }


def make(folder: Path, run_id: str, seed: int, steps: int, config: dict[str, Any], end: str = "finish") -> None:
    where: dict[str, Any] = {"project": "forensics", "dir": str(folder), "reinit": "finish_previous"}
    run = wandb.init(**where, name=run_id.rstrip("01"), id=run_id, config=config)
    with (folder / "logged.jsonl").open("a") as log:
        for step in range(steps):
            run.log(values(seed, step))
            log.write(json.dumps({"id": run_id, "step": step, "values": values(seed, step)}) + "\n")
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    run.finish(exit_code=1 if end == "fail" else 0)


def main() -> None:
    folder, kind = Path(sys.argv[1]), sys.argv[2]
    if kind == "killed":
        return make(folder, "killed01", 3, 5, {"lr": 0.3}, "kill")
    for run_id, seed in (("good0001", 1), ("copy0001", 1), ("other001", 2)):
        config = {"lr": seed / 10, "seed": seed, "optim": {"name": "adam", "eps": 1e-8}}
        make(folder, run_id, seed, CURVE, config)
    return make(folder, "failed01", 4, 2, {"lr": 9.0}, "fail")


if __name__ == "__main__":
    main()
