"""The supervisor of local jobs: what it restarts and what not, its own death, its bounds, its records."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt.job import queue as gate
from rgt.job import supervisor
from rgt.machine import processes

import pytest
import yaml

from . import front_door
from .gate_box import kill_job, until

JOB = Path(__file__).with_name("supervised_job.py")
STEPS = 12


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder, self.queue = folder, gate.Queue(folder / "queue")
        self.env = {"RGT_QUEUE": str(self.queue.directory)}
        shutil.copy(JOB, folder / "job.py")

    def submit(self, *words: object, **changes: Any) -> Path:
        spec = {"name": "x", "command": [sys.executable, "job.py", *map(str, words)], "restart_delay": 0.3, **changes}
        (self.folder / "job.yaml").write_text(yaml.safe_dump(spec))
        done = front_door.call("launch.py", "submit", self.folder / "job.yaml", "--on", "local", env=self.env)
        assert done.returncode == 0, done.stderr
        return Path(done.stdout.strip())

    def status(self, run: Path) -> dict[str, Any]:
        done = front_door.call("launch.py", "status", run, "--json", env=self.env)
        assert done.stdout, done.stderr
        return dict(json.loads(done.stdout))

    def ended(self, run: Path) -> dict[str, Any]:
        until(lambda: json.loads(read(run / ".supervisor" / "state.json") or "{}").get("ended"), 120)
        return until(lambda: (now := self.status(run))["state"] not in ("queued", "running") and now)  # type: ignore[no-any-return]


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def events(run: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [row for row in rows if row["event"] not in ("launched", "submitted")]


def living(run: Path) -> list[int]:
    """The job's own processes, without the shell around it."""
    attempt = json.loads(read(run / ".supervisor" / "state.json") or '{"attempt": 0}')["attempt"]
    pids = processes.carrying(supervisor.MARK, f"{run.name}.{attempt}")
    return [pid for pid in pids if processes.command(pid)[1:2] == ["job.py"]]


def supervisors(run: Path) -> list[int]:
    """Not the gate, whose command line ends with the same words."""
    words = {pid: processes.command(pid) for pid in processes.pids()}
    return [pid for pid, each in words.items() if each[-1:] == [str(run)] and each[1:2] == ["-c"]]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for record in bench.queue.records():
        kill_job(record)


def kill_and_wait(pid: int) -> None:
    mark = processes.identify(pid)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not processes.alive(mark))


def uninterrupted(steps: int) -> dict[str, Any]:
    value = 1.0
    for _ in range(steps):
        value = value * 1.5 % 1.3
    return {"step": steps, "value": value}


def at(run: Path) -> int:
    return int(json.loads(read(run / "state.json") or '{"step": 0}')["step"])


def wait_step(run: Path, step: int) -> None:
    until(lambda: at(run) >= step)


# -- transient causes


def test_a_killed_job_goes_on_and_ends_as_if_nothing_had_been(bench: Bench) -> None:
    run = bench.submit(STEPS)
    wait_step(run, 3)
    os.kill(until(lambda: living(run))[0], signal.SIGKILL)
    assert bench.ended(run)["state"] == "finished"
    assert json.loads((run / "final.json").read_text()) == uninterrupted(STEPS)
    (restarted, finished) = events(run)
    assert (restarted["event"], restarted["exit_code"], restarted["attempt"]) == ("restarted", 137, 1)
    assert "SIGKILL" in restarted["reason"] and finished["event"] == "finished"
    assert len(read(run / "starts").splitlines()) == 2 and not (run / "twice").exists()


def test_what_a_killed_job_left_is_gone_before_the_next_attempt(bench: Bench) -> None:
    run = bench.submit(6, "leftover", grace="2s")
    assert bench.ended(run)["state"] == "finished" and not (run / "twice").exists()


# -- causes that a restart would meet again


DETERMINISTIC = [
    ("shape", 0, "TO87"),
    ("nan", 0, "PS1"),
    ("disk", 0, "U6"),
    ("code", 1, "it came no further (step 4 as before)"),
]


@pytest.mark.parametrize(("fault", "restarts", "said"), DETERMINISTIC)
def test_deterministic_faults_stop(bench: Bench, fault: str, restarts: int, said: str) -> None:
    run = bench.submit(STEPS, fault)
    now = bench.ended(run)
    assert (now["state"], now["exit_code"]) == ("failed", 1)
    rows = events(run)
    assert [row["event"] for row in rows] == ["restarted"] * restarts + ["failed"]
    assert said in rows[-1]["reason"] and "not restarted" in rows[-1]["reason"] and said in now["detail"]


def test_a_failure_before_the_first_step_is_not_repeated(bench: Bench) -> None:
    run = bench.submit("not-a-number")
    assert bench.ended(run)["state"] == "failed" and [row["event"] for row in events(run)] == ["failed"]


# -- bounds


def test_restarts_and_cost_are_bounded(bench: Bench) -> None:
    run = bench.submit(1000, max_restarts=1)
    for _ in range(2):
        wait_step(run, at(run) + 2)
        kill_and_wait(until(lambda: living(run))[0])
    assert "all 1 restarts are used" in bench.ended(run)["detail"]
    run = bench.submit(1000, rate=1e9, max_cost=1)
    os.kill(until(lambda: living(run))[0], signal.SIGKILL)
    assert "of at most 1" in bench.ended(run)["detail"]


def test_a_stop_is_a_stop(bench: Bench) -> None:
    run = bench.submit(100000)
    wait_step(run, 2)
    done = front_door.call("launch.py", "stop", run, env=bench.env)
    assert done.returncode == 0, done.stderr
    until(lambda: not supervisors(run) and not living(run))
    now = bench.status(run)
    assert now["state"] == "stopped" and len(read(run / "starts").splitlines()) == 1
    assert "SIGKILL" not in now["detail"]  # all ended at SIGTERM
    assert "has a supervisor already" not in read(run / "train.log")  # the standby's end is no news
    resumed = front_door.call("launch.py", "resume", run, env=bench.env)
    assert resumed.returncode == 0, resumed.stderr
    until(lambda: len(read(run / "starts").splitlines()) == 2)


def test_a_finished_run_is_not_started_again_and_a_resume_without_checkpoint_says_so(bench: Bench) -> None:
    run = bench.submit(1)
    assert bench.ended(run)["state"] == "finished"
    done = front_door.call("launch.py", "resume", run, env=bench.env)
    assert (done.returncode, len(read(run / "starts").splitlines())) == (2, 1)
    assert f"{run.name} finished, there is nothing to resume; a re-run is a new submit" in done.stderr
    (job,) = bench.queue.records()
    assert job["id"].startswith(f"{run.name}-") and job["id"].count(run.name[:15]) == 1


# -- the supervisor's own death


def test_killed_supervisors_are_replaced_and_the_job_goes_on(bench: Bench) -> None:
    run = bench.submit(STEPS, "hold")
    for _ in range(3):
        until(lambda: len(supervisors(run)) == 2)
        kill_and_wait(random.choice(supervisors(run)))
    wait_step(run, STEPS - 1)
    os.kill(until(lambda: living(run))[0], signal.SIGKILL)
    (run / "go").touch()
    assert bench.ended(run)["state"] == "finished"
    assert json.loads((run / "final.json").read_text()) == uninterrupted(STEPS)
    assert not (run / "twice").exists() and len(read(run / "starts").splitlines()) == 2


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(5))
def test_random_kills_of_everything(bench: Bench, seed: int) -> None:
    """20 kills a run of the job, the shell around it and the supervisors: the same end, and never two at once."""
    luck, kills = random.Random(seed), 0
    run = bench.submit(200, "hold", max_restarts=1000, restart_delay=0.05)
    while kills < 20:
        wait_step(run, at(run) + luck.randrange(1, 8))
        until(lambda: len(supervisors(run)) == 2)
        attempt = json.loads(read(run / ".supervisor" / "state.json"))["attempt"]
        job = list(processes.carrying(supervisor.MARK, f"{run.name}.{attempt}"))
        os.kill(luck.choice([*job, *supervisors(run)[:1]]), signal.SIGKILL)
        kills += 1
    (run / "go").touch()
    assert bench.ended(run)["state"] == "finished"
    assert json.loads((run / "final.json").read_text()) == uninterrupted(200)
    assert not (run / "twice").exists()
