"""takeover's snapshot against its budget of 2 s, on a box with 200 runs that nobody prepared for it."""

from __future__ import annotations

import io
import json
import random
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Row, timed, tool

import torch

RUNS = 200
BUDGET = 2.0  # seconds
ROUNDS = 5
STEPS = 2000  # lines of a log
MEMBERS = 160  # of a checkpoint: a GPT-2 has 149 tensors


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        make_runs(Path(name))
        # 20 s, so that a slow machine shows as a slow row, not as a short list
        command = tool("takeover", "snapshot", name, "--json", "--seconds", 20)
        seconds = [timed(lambda: _snapshot(command)) for _ in range(ROUNDS)]
        yield Row(f"takeover: snapshot of {RUNS} runs / its {BUDGET:g} s", statistics.median(seconds), BUDGET, goal=1)


def _snapshot(command: list[str]) -> None:
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE).stdout)
    unread = [run for run in found["runs"] if "step" not in run or run["checkpoints"]["newest"]["state"] != "ok"]
    left = [
        line for line in found["stopped"] if "how they ended" not in line
    ]  # the newest forty are judged, and it says so
    if len(found["runs"]) != RUNS or unread or left:
        raise AssertionError(f"{len(found['runs'])} runs, {len(unread)} not read, stopped: {found['stopped']}")


def make_runs(directory: Path, count: int = RUNS) -> None:
    """Half of them with a log, half with a metrics.jsonl beside it; each with three checkpoints and small change."""
    noise, checkpoint = random.Random(0), _checkpoint()
    took = [noise.uniform(10, 12) for _ in range(STEPS)]
    lines = [f"iter {n}: loss {9 - n / 300:.4f}, time {each:.2f}ms, mfu 31.2%" for n, each in enumerate(took)]
    lines[::250] = [f"step {step}: train loss 4.1234, val loss 4.2345" for step in range(0, STEPS, 250)]
    table = [json.dumps({"step": n, "time": 1.7e9 + n, "split": "train", "loss": 9 - n / 300}) for n in range(STEPS)]
    for number in range(count):
        run = directory / f"sweep-{number % 10}" / f"lr{number}"
        weights = run / "checkpoints"
        weights.mkdir(parents=True)
        (run / "train.log").write_text("\n".join(lines) + "\n")
        (run / "config.yaml").write_text("lr: 3e-4\n")
        if number % 2:
            (run / "metrics.jsonl").write_text("\n".join(table) + "\n")
        for step in (500, 1000, 1500):
            (weights / f"step_{step}.pt").write_bytes(checkpoint)


def _checkpoint() -> bytes:
    """As many tensors as a real one, without their bulk: opening it costs what opening a real one costs."""
    file = io.BytesIO()
    torch.save({"step": 1500, "model": {f"w{n}": torch.randn(64) for n in range(MEMBERS)}}, file)
    return file.getvalue()
