"""A written pipeline to play with: small, on the CPU, with text of its own; and a nursery that starts it quickly."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rgt.checkpoint import index
from rgt.checkpoint.inventory import Checkpoint
from rgt.machine import processes
from rgt.run.record import Run

import numpy as np
import yaml

from . import front_door
from .gate_box import ROOT
from .nursery import Nursery

SCRIPT = ROOT / "scripts" / "scaffold_training.py"
STAND_IN = ROOT / "tests" / "nanogpt_stand_in.py"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHON": sys.executable, "HF_HUB_OFFLINE": "1"}
ENVIRONMENT.pop("RGT_RUN_DIR", None)
DEADLINE = 120.0


def phase(name: str, steps: int, mix: dict[str, float], lr: tuple[str, float, float], at_most: Any) -> dict[str, Any]:
    rate = dict(zip(("policy", "start", "end"), lr, strict=True))
    made: dict[str, Any] = {"name": name, "steps": steps, "mix": mix, "lr": rate}
    return {**made, "criterion": {"metric": "loss", "at_most": at_most}} if at_most else made


PHASES = [
    phase("broad", 8, {"web": 0.9, "curated": 0.1}, ("cosine", 1, 0.5), 5.4),
    phase("curated", 6, {"web": 0.3, "curated": 0.7}, ("constant", 0.5, 0.5), "previous"),
    phase("domain", 6, {"domain": 1}, ("cosine", 0.5, 0.2), 0.01),
    phase("anneal", 4, {"domain": 1, "curated": 1}, ("linear", 0.2, 0), None),
]
PHASES[0]["lr"]["warmup_steps"] = 3
PERIOD = 12  # steps of the checkpoints that stay
NANO_PHASES = [{**PHASES[0], "steps": 8}, {**PHASES[1], "steps": 8, "criterion": {"metric": "loss", "at_most": 0.01}}]
WORDS = {
    "web": "alpha beta gamma delta epsilon",
    "curated": "the quick brown fox jumps",
    "domain": "zero one two three",
}


def scaffold(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    env = {"RGT_RUN_DIR": None, "PYTHON": sys.executable, **options.pop("env", {})}
    return front_door.call("scaffold_training.py", *words, env=env, **options)


def small(folder: Path, framework: str, phases: list[dict[str, Any]] | None = None, **changes: Any) -> Path:
    """A pipeline of 24 steps that saves every third; bytes are its tokens."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    sizes = ("--params", "40K", "--vocab-size", 257, "--block-size", 32)
    done = scaffold("new", folder, "--framework", framework, *sizes)
    assert done.returncode == 0, done.stderr
    edit(
        folder,
        phases=phases or PHASES,
        batch={"micro_batch": 2, "accumulation": 2},
        checkpoints={"every_steps": 3, "keep": 3, "keep_every": PERIOD},
        eval={"every_steps": 4, "samples": 6},
        log_every_steps=1,
        **changes,
    )
    for name, words in WORDS.items():
        dice = random.Random(name)
        text = " ".join(dice.choice(words.split()) for _ in range(2000)).encode()
        (folder / "data" / name).mkdir(parents=True)
        for split, part in (("train", text[: -len(text) // 10]), ("val", text[-len(text) // 10 :])):
            np.frombuffer(part, "uint8").astype("uint16").tofile(folder / "data" / name / f"{split}.bin")
    return folder


def nano(folder: Path, phases: list[dict[str, Any]] = NANO_PHASES, every: int = 4) -> Path:
    small(folder, "nanogpt", phases)
    saves, evals = {"every_steps": every, "keep": 3, "keep_every": PERIOD}, {"every_steps": every, "samples": 32}
    edit(folder, checkpoints=saves, eval=evals)
    (folder / "nanoGPT").mkdir()
    shutil.copy(STAND_IN, folder / "nanoGPT/train.py")
    return folder


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "training_config.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}))


def train(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**ENVIRONMENT, **environment}
    return subprocess.run([str(folder / "train.sh")], capture_output=True, text=True, timeout=300, env=env)


def curves(run: Path) -> dict[str, dict[int, float]]:
    return {split: Run(run).curve("loss", split) for split in ("train", "val")}


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


TRAIN = """
import os, runpy, sys
os.chdir(home)
os.environ["RUN"] = run
sys.path[:0] = [os.path.join(home, "lib")]
sys.argv = ["session", home, run]
runpy.run_module("rgt.scaffold_training.training_session", run_name="__main__")
sys.argv = [os.path.join(home, "pretrain.py")]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
IMPORTS = {
    "hf-trainer": ("torch", "transformers.trainer", "transformers.models.llama.modeling_llama", "accelerate"),
    "litgpt": ("litgpt.pretrain",),
}


class PipelineNursery(Nursery):
    """Importing transformers or litgpt takes seconds; each start is a real process running the written pretrain.py."""

    def __init__(self, framework: str) -> None:
        super().__init__(*IMPORTS[framework])

    def train(self, home: Path, run: Path) -> int:
        run.mkdir(parents=True, exist_ok=True)
        return self.start(TRAIN, run / "train.log", home=str(home), run=str(run))

    def finish(self, home: Path, run: Path) -> int:
        self.train(home, run)
        return self.end()


def kill_at_random(start: Callable[[], int], end: Callable[[], int], run: Path, dice: random.Random) -> int:
    """Start, wait for a random amount of progress or for a save to begin, SIGKILL. Gives the exit code."""
    pid = start()
    rows, in_save = progress(run) + dice.randint(0, 5), dice.random() < 0.5
    seen = names(run)
    limit = time.monotonic() + DEADLINE
    while time.monotonic() < limit and processes.state(pid) not in ("", "Z"):
        if in_save and names(run) - seen:
            break
        if not in_save and progress(run) > rows:
            time.sleep(dice.uniform(0, 0.03))  # not only right behind a log line
            break
        time.sleep(0.002)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return end()


class IndexWatch:
    """The index right after each kill: what it names is there and whole, with the best, latest and periodic ones."""

    def __init__(self, run: Path) -> None:
        self.run, self.best, self.looks = run, math.inf, 0

    def look(self) -> None:
        listed = index.read(self.run)
        if listed is None:
            assert not (self.run / index.INDEX).exists()
            return
        self.looks += 1
        for entry in listed:
            assert entry["verified"], entry
            one = Checkpoint(self.run / entry["path"], entry["step"], entry)
            assert (one.damage(), one.bytes) == (None, entry["bytes"]), entry
        steps = {entry["step"] for entry in listed}
        saved = [row["step"] for row in events(self.run) if row["event"] == "checkpoint"]
        assert not saved or (saved[-1] in steps and {s for s in saved if s % PERIOD == 0} <= steps), (saved, steps)
        losses = [entry["metrics"]["val_loss"] for entry in listed if "val_loss" in entry.get("metrics", {})]
        self.best = min([self.best, *losses])
        assert not math.isfinite(self.best) or min(losses) == self.best


def names(run: Path) -> set[str]:
    folder = run / "checkpoints"
    return set(os.listdir(folder)) if folder.is_dir() else set()


def progress(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0
