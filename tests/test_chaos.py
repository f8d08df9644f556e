"""Killed at random moments and run in parallel: nothing is lost, nothing is doubled, and the next call mends the rest.

`python -m pytest -m soak -s tests/test_chaos.py` prints the figures.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from . import front_door, transfer_lab
from .gate_box import until
from .test_manifest_scaffold import make_run

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.soak
KILLS, PARALLEL = 25, 4


def start(folder: Path, *words: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(ROOT / "scripts" / str(words[0])), *map(str, words[1:])]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, cwd=folder, stdout=quiet, stderr=quiet, start_new_session=True)


def how_long(folder: Path, *words: object) -> float:
    """Seconds that one call takes when nobody kills it."""
    began = time.monotonic()
    start(folder, *words).wait()
    return time.monotonic() - began


def kill_at_random(chance: random.Random, folder: Path, seconds: float, *words: object) -> bool:
    """Whether the call was really cut."""
    process = start(folder, *words)
    time.sleep(chance.uniform(0, 1.1 * seconds))  # the point of the test: a random moment
    cut = process.poll() is None
    if cut:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return cut


def told(name: str, **figures: object) -> None:
    print(f"\n{name}: " + ", ".join(f"{key} {value}" for key, value in figures.items()))


def test_claims_and_seals(tmp_path: Path) -> None:
    chance = random.Random(1)
    assert front_door.call("manifest_scaffold.py", "init", cwd=tmp_path).returncode == 0
    seconds, cut = 0.0, 0
    for number in range(KILLS):
        run = make_run(tmp_path, 0.5 + number / 1000)
        words = ("manifest_scaffold.py", "claim", "add", f"c{number}", "--metric", "accuracy", "--run", run)
        seconds = seconds or how_long(tmp_path, *words)
        cut += kill_at_random(chance, tmp_path, seconds, *words)
        assert start(tmp_path, *words).wait() in (0, 2)  # 2: it is there already
    claims = json.loads((tmp_path / "EVIDENCE.json").read_text())["claims"]
    assert sorted(claim["id"] for claim in claims) == sorted(f"c{number}" for number in range(KILLS))
    checked = front_door.call("manifest_scaffold.py", "claim", "check", cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout
    told("claims and seals", calls=KILLS, killed=cut, lost=0, doubled=0)


def test_prune(tmp_path: Path) -> None:
    chance = random.Random(2)
    folder = tmp_path / "run" / "checkpoints"
    folder.mkdir(parents=True)
    values = np.random.default_rng(0).standard_normal(4000).astype(np.float32)

    def fill() -> None:
        for step in range(1, 9):
            save_file({"w": values + step}, folder / f"step_{step}.safetensors")

    fill()
    words = ("checkpoints.py", "prune", tmp_path / "run", "--keep-last", "2")
    seconds, cut = how_long(tmp_path, *words), 0
    for _ in range(KILLS):
        fill()
        cut += kill_at_random(chance, tmp_path, seconds, *words)
        latest = front_door.call("checkpoints.py", "latest", tmp_path / "run")
        assert latest.returncode == 0 and "step_8.safetensors" in latest.stdout, latest.stdout + latest.stderr
        assert start(tmp_path, *words).wait() == 0
        assert sorted(path.name for path in folder.glob("step_*")) == ["step_7.safetensors", "step_8.safetensors"]
    told("prune", calls=KILLS, killed=cut, newest_lost=0)


def test_pull(tmp_path: Path) -> None:
    chance = random.Random(3)
    there = transfer_lab.make_run(tmp_path / "box", mib=8, small=40)
    seconds, cut = how_long(tmp_path, "transfer.py", "pull", there, tmp_path / "first"), 0
    for number in range(KILLS):
        here = tmp_path / f"here-{number}"
        cut += kill_at_random(chance, tmp_path, seconds, "transfer.py", "pull", there, here)
        if (here / "PULL_VERIFIED.json").exists():  # a proof is there only for what is whole
            transfer_lab.same_tree(there, here, cut=True)
        assert start(tmp_path, "transfer.py", "pull", there, here).wait() == 0
        transfer_lab.same_tree(there, here)
    told("pull", calls=KILLS, killed=cut, false_proofs=0, lost=0)


def test_launch(tmp_path: Path) -> None:
    """A submit that is killed either started its job or did not: no job runs without a record, none runs twice."""
    chance = random.Random(4)
    job = {"name": "x", "command": ["sh", "-c", f"echo started >> {tmp_path}/started"]}
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    words = ("launch.py", "submit", tmp_path / "job.yaml", "--on", "local")
    os.environ["RGT_QUEUE"] = str(tmp_path / "queue")
    try:
        seconds, cut = how_long(tmp_path, *words), 0
        for _ in range(KILLS):
            cut += kill_at_random(chance, tmp_path, seconds, *words)

        def settled() -> bool:
            done = front_door.call("gpu_gate.py", "list", "--json")
            return all(row["state"] not in ("waiting", "running") for row in json.loads(done.stdout)["jobs"])

        until(settled, 120)
    finally:
        del os.environ["RGT_QUEUE"]
    runs = [path for path in (tmp_path / "runs").iterdir() if (path / "run.json").exists()]
    started = (tmp_path / "started").read_text().count("started")
    for run in runs:
        events = [json.loads(line)["event"] for line in (run / "events.jsonl").read_text().splitlines()]
        assert events[0] == "launched" and events.count("submitted") <= 1, events
    assert started <= len(runs)
    told("launch", calls=KILLS + 1, killed=cut, records=len(runs), started=started, doubled=0)


def test_parallel(tmp_path: Path) -> None:
    assert front_door.call("manifest_scaffold.py", "init", cwd=tmp_path).returncode == 0
    run = make_run(tmp_path, 0.5)
    rounds = 6
    for number in range(rounds):
        adding = ("manifest_scaffold.py", "claim", "add")
        ids = [f"p{number}-{one}" for one in range(PARALLEL)]
        every = [start(tmp_path, *adding, name, "--metric", "accuracy", "--run", run) for name in ids]
        assert [process.wait() for process in every] == [0] * PARALLEL
    claims = json.loads((tmp_path / "EVIDENCE.json").read_text())["claims"]
    assert len({claim["id"] for claim in claims}) == len(claims) == rounds * PARALLEL
    told("parallel claims", calls=rounds * PARALLEL, there=len(claims))
