"""A small project that is ready to be delivered: two methods, three seeds each, four claims, two figures."""

from __future__ import annotations

import fcntl
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

from rgt.run import record

import pytest

from . import front_door

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
README = """# Results

Ours reaches <!-- value:acc-ours percent spread --><!-- /value --> accuracy
on CIFAR-10, the baseline <!-- value:acc-baseline percent --><!-- /value -->.
"""
PAPER = r"""\documentclass{article}
\input{tables/macros}
\begin{document}
Ours has an accuracy of \valAccOurs{} on CIFAR-10.
\end{document}
"""


def call(folder: Path, script: str, *words: object, **settings: str) -> subprocess.CompletedProcess[str]:
    """Through the front door; in a process of its own when it must see another environment, in this one for speed."""
    if settings:
        command = [sys.executable, str(SCRIPTS / script), *map(str, words)]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, **settings})
    return front_door.call(script, *words, cwd=folder)


def add_run(folder: Path, method: str, seed: int, accuracy: float, rng: random.Random, **more: Any) -> Path:
    run = record.create(folder / "runs", method, command=["train"], config={"m": method}, seeds={"torch": seed})
    pace = 0.98 if method == "Ours" else 0.985
    for step in range(0, 160, 20):
        run.log_metrics(step=step, split="val", loss=2 * pace**step + rng.random() / 20)
    row = {
        "split": "test",
        "n": 1000,
        "direction": "up",
        "dataset": "CIFAR-10",
        "eval_set_sha256": "a" * 64,
        "rule": "mean",
    }
    row |= more
    loss = {**row, "name": "loss", "value": 0.3 + seed / 100, "split": "val", "direction": "down"}
    run.write_results({"run_id": run.id, "metrics": [{**row, "name": "accuracy", "value": accuracy}, loss]})
    return run.path


def add_claim(
    folder: Path, name: str, metric: str, split: str, method: str, runs: list[Path], figure: str = ""
) -> subprocess.CompletedProcess[str]:
    words = ["--metric", metric, "--split", split, "--dataset", "CIFAR-10", "--method", method]
    words += ["--figure", figure] if figure else []
    given = [word for path in runs for word in ("--run", path)]
    return call(folder, "manifest_scaffold.py", "claim", "add", name, *words, *given)


def make(folder: Path) -> Path:
    """init, runs, claims; nothing is rendered yet."""
    assert call(folder, "manifest_scaffold.py", "init").returncode == 0
    rng = random.Random(0)
    for method, mean in (("Ours", 0.92), ("Baseline", 0.88)):
        runs = [add_run(folder, method, seed, mean + (seed - 1) * 0.004, rng) for seed in range(3)]
        for name, metric, split in (("acc", "accuracy", "test"), ("loss", "loss", "val")):
            done = add_claim(folder, f"{name}-{method.lower()}", metric, split, method, runs, name)
            assert done.returncode == 0, done.stderr
    (folder / "README.md").write_text(README)
    (folder / "paper.tex").write_text(PAPER)
    return folder


def render(folder: Path, *words: object, **settings: str) -> subprocess.CompletedProcess[str]:
    return call(folder, "render.py", *words, **settings)


def everything(factory: pytest.TempPathFactory) -> Path:
    """A project with everything rendered, once for all workers. Tests that change something take a copy."""
    shared = factory.getbasetemp()
    shared = (shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared) / "delivered"
    with shared.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not shared.exists():
            folder = shared.with_suffix(".new")
            folder.mkdir()  # one that is there already failed in another worker
            make(folder)
            for words in ("tables --percent accuracy", "figures loss --kind curve", "figures acc", "values"):
                done = render(folder, *words.split())
                assert done.returncode == 0, done.stdout + done.stderr
            folder.rename(shared)
    return shared


def findings(done: subprocess.CompletedProcess[str]) -> list[tuple[str, str]]:
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert done.returncode == (0 if report["ok"] else 1)
    return [(finding["code"], finding["message"]) for finding in report["findings"]]


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
