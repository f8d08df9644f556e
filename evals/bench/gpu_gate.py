"""gpu_gate against task-spooler and against its own limits: the gap between jobs, the submit, the wait, the chaos."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import gate_chaos
from bench.measure import Row, cpu_seconds, quiet, take_turns, tool

JOBS = 60
# start and end of a job in nanoseconds, told by the job itself in the same way on both sides
JOB = 'date +%s%N >> "$0"; sleep 0.01; date +%s%N >> "$0"'
WATCHED_SECONDS = 10.0


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        yield from gap(directory / "gap")
        yield submit(directory / "submit")
        yield waiting(directory / "waiting")
        yield from storm(directory / "storm")


def gap(directory: Path) -> Iterator[Row]:
    """From one job's end to the next one's start, with the whole line queued beforehand."""
    directory.mkdir()
    if not shutil.which("tsp"):
        print("task-spooler is not installed (make system-deps): the gap row is left out", file=sys.stderr)
        return
    ours = _gaps(directory / "ours", _gate(directory))
    spooler = _spooler(directory)
    peer = _gaps(directory / "peer", spooler)
    spooler(["-K"])  # ends its server
    yield Row("gpu_gate: end of a job to start of the next / tsp", ours, peer, goal=3)


def _gate(directory: Path) -> Callable[[list[str]], None]:
    environment = {**os.environ, "RGT_QUEUE": str(directory / "queue")}
    options = ["-n", "job", "--slots", "1", "--detach", "--"]
    return lambda command: _call(tool("gpu_gate", *options, *command), environment)


def _spooler(directory: Path) -> Callable[[list[str]], None]:
    environment = {**os.environ, "TS_SOCKET": str(directory / "tsp.socket"), "TMPDIR": str(directory)}
    return lambda command: _call(["tsp", *command], environment)


def _call(command: list[str], environment: dict[str, str]) -> None:
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _gaps(file: Path, submit_job: Callable[[list[str]], None]) -> float:
    """Median seconds between the jobs, which wait behind a first one until all are queued."""
    release = file.with_suffix(".go")
    submit_job(["sh", "-c", 'until [ -e "$0" ]; do sleep 0.05; done', str(release)])
    for _ in range(JOBS):
        submit_job(["sh", "-c", JOB, str(file)])
    release.touch()
    deadline = time.monotonic() + 120
    while len(stamps := _stamps(file)) < 2 * JOBS and time.monotonic() < deadline:
        time.sleep(0.1)
    ends, starts = stamps[1::2], stamps[2::2]
    return statistics.median((start - end) / 1e9 for end, start in zip(ends, starts, strict=False))


def _stamps(file: Path) -> list[int]:
    return [int(word) for word in file.read_text().split()] if file.exists() else []


def submit(directory: Path) -> Row:
    """A detached submit, beside the cheapest Python command line there is."""
    queue = ["--queue", str(directory), "-n", "job", "--slots", "1", "--detach", "--", "true"]
    peer = quiet(sys.executable, "-c", "import click")
    ours, peer_took = take_turns(quiet(*tool("gpu_gate", *queue)), peer, rounds=15)
    return Row("gpu_gate: detached submit / import click", ours, peer_took, goal=2)


def waiting(directory: Path) -> Row:
    """CPU seconds per second of a gate that waits in line, against 0.5 % of a core."""
    chaos = gate_chaos.Chaos(directory)
    chaos.gate("-n", "first", "--slots", "1", "--detach", "--", "sleep", "300").communicate(timeout=60)
    chaos.gate("-n", "second", "--slots", "1", "--detach", "--", "true").communicate(timeout=60)
    chaos.wait_for(lambda jobs: jobs[0]["state"] == "running" and bool(jobs[1]["reason"]))
    pid = chaos.jobs()[1]["gate"]["pid"]
    before = cpu_seconds(pid)
    time.sleep(WATCHED_SECONDS)  # the measured interval
    used = (cpu_seconds(pid) - before) / WATCHED_SECONDS
    chaos.gate("cancel", "second", "first").communicate(timeout=60)
    return Row("gpu_gate: CPU share of a waiting gate / 0.5 %", used, 0.005, goal=1, unit="")


def storm(directory: Path) -> Iterator[Row]:
    """20 submitters x 50 jobs with gates killed at random; each count must be zero."""
    outcome = gate_chaos.storm(directory, submitters=20, jobs=50)
    counts = {
        "two jobs in one slot": outcome.overlaps,
        "jobs without a record": len(outcome.without_record),
        "starts out of order": outcome.out_of_order,
        "jobs that ran twice": len(outcome.ran) - len(set(outcome.ran)),
    }
    how = f"{len(outcome.submitted)} jobs, {outcome.kills} kills"
    yield from (Row(f"gpu_gate: {what}, {how}", count, 1, goal=0, unit="") for what, count in counts.items())
