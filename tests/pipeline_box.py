"""A written pipeline to play with: small, on the CPU, with text of its own; and a nursery that starts it quickly.

Importing transformers or litgpt takes seconds. A nursery imports once and forks for every start, so that a test can
kill and restart a training often; the process that trains and is killed is a real one, running the written pretrain.py.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from rgt.rundir import Run

from . import front_door
from .gate_box import ROOT

SCRIPT = ROOT / "scripts" / "scaffold_training.py"
STAND_IN = ROOT / "tests" / "nanogpt_stand_in.py"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHON": sys.executable, "HF_HUB_OFFLINE": "1"}
ENVIRONMENT.pop("RGT_RUN_DIR", None)
DEADLINE = 120.0
PHASES = [
    {"name": "broad", "steps": 8, "mix": {"web": 0.9, "curated": 0.1},
     "lr": {"policy": "cosine", "start": 1, "end": 0.5, "warmup_steps": 3},
     "criterion": {"metric": "loss", "at_most": 5.4}},
    {"name": "curated", "steps": 6, "mix": {"web": 0.3, "curated": 0.7}, "lr": {"policy": "constant", "start": 0.5},
     "criterion": {"metric": "loss", "at_most": "previous"}},
    {"name": "domain", "steps": 6, "mix": {"domain": 1}, "lr": {"policy": "cosine", "start": 0.5, "end": 0.2},
     "criterion": {"metric": "loss", "at_most": 0.01}},
    {"name": "anneal", "steps": 4, "mix": {"domain": 1, "curated": 1},
     "lr": {"policy": "linear", "start": 0.2, "end": 0}},
]  # fmt: skip
WORDS = {
    "web": "alpha beta gamma delta epsilon",
    "curated": "the quick brown fox jumps",
    "domain": "zero one two three",
}


def scaffold(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
    env = {"RGT_RUN_DIR": None, "PYTHON": sys.executable, **options.pop("env", {})}
    return front_door.call("scaffold_training.py", *words, env=env, **options)


def small(folder: Path, framework: str, phases: list[dict[str, Any]] | None = None, **changes: Any) -> Path:
    """A pipeline of 24 steps that saves every third; data made by the `data` verb."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    wanted = folder.parent / f"{folder.name}-phases.yaml"
    wanted.write_text(yaml.safe_dump({"phases": phases or PHASES}))
    done = scaffold("new", folder, "--framework", framework, "--phases", wanted, "--params", "40K", "--vocab-size", 257,
                    "--block-size", 32)  # fmt: skip
    assert done.returncode == 0, done.stderr
    edit(folder, batch={"micro_batch": 2, "accumulation": 2}, checkpoints={"every_steps": 3, "keep": 3},
         eval={"every_steps": 4, "samples": 6}, log_every_steps=1, **changes)  # fmt: skip
    for name, words in WORDS.items():
        dice = random.Random(name)
        text = folder.parent / f"{name}.txt"
        text.write_text(" ".join(dice.choice(words.split()) for _ in range(2000)))
        made = scaffold("data", folder, name, text, "--val-share", "0.1")
        assert made.returncode == 0, made.stderr
    return folder


def edit(folder: Path, **changes: Any) -> None:
    path = folder / "training_config.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **changes}))


def train(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(folder / "train.sh")], capture_output=True, text=True, timeout=300,
                          env={**ENVIRONMENT, **environment})  # fmt: skip


def curves(run: Path) -> dict[str, dict[int, float]]:
    return {split: Run(run).curve("loss", split) for split in ("train", "val")}


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


NURSERY = """
import json, os, runpy, sys
for name in sys.argv[1].split(","):
    __import__(name)
for line in sys.stdin:
    home, run = json.loads(line)
    pid = os.fork()
    if pid == 0:
        os.setsid()
        log = os.open(os.path.join(run, "train.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1), os.dup2(log, 2)
        os.chdir(home)
        os.environ["RUN"] = run
        sys.path[:0] = [os.path.join(home, "lib")]
        sys.argv = ["session", home, run]
        try:
            runpy.run_module("pipelines.session", run_name="__main__")
        except SystemExit as end:
            if end.code:
                os._exit(end.code)
        sys.argv = [os.path.join(home, "pretrain.py")]
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            os._exit(end.code or 0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(99)
        os._exit(0)
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""
IMPORTS = {"hf-trainer": "torch,transformers.trainer,transformers.models.llama.modeling_llama,accelerate",
           "litgpt": "litgpt.pretrain"}  # fmt: skip


class Nursery:
    def __init__(self, framework: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", NURSERY, IMPORTS[framework]], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)  # fmt: skip

    def start(self, home: Path, run: Path) -> int:
        run.mkdir(parents=True, exist_ok=True)
        assert self.process.stdin and self.process.stdout
        print(json.dumps([str(home), str(run)]), file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def end(self) -> int:
        """Exit code of the last one; minus the signal that killed it."""
        assert self.process.stdout
        return os.waitstatus_to_exitcode(int(self.process.stdout.readline()))

    def finish(self, home: Path, run: Path) -> int:
        self.start(home, run)
        return self.end()

    def close(self) -> None:
        self.process.kill()  # to take torch apart in order costs seconds
        self.process.communicate()


def kill_at_random(start: Callable[[], int], end: Callable[[], int], run: Path, dice: random.Random) -> int:
    """Start, wait for a random amount of progress or for a save to begin, SIGKILL. Gives the exit code."""
    pid = start()
    rows, in_save = progress(run) + dice.randint(0, 5), dice.random() < 0.5
    seen = names(run)
    limit = time.monotonic() + DEADLINE
    while time.monotonic() < limit and alive(pid):
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


def names(run: Path) -> set[str]:
    folder = run / "checkpoints"
    return set(os.listdir(folder)) if folder.is_dir() else set()


def progress(run: Path) -> int:
    path = run / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
