"""Chaos for gpu_gate: many submitters, gates killed with SIGKILL at random; then everything killed, as a reboot would.

Used by the tests (short), by `make soak` and by the benchmark (20 submitters x 50 jobs).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.measure import tool

# A job claims the slot with mkdir, which only one can do at a time, and says so when somebody else has it.
JOB = 'mkdir "$0/busy" 2>/dev/null || echo "$1" >> "$0/overlaps"; echo "$1" >> "$0/ran"; sleep 0.05; rmdir "$0/busy"'


@dataclass
class Outcome:
    submitted: list[str] = field(default_factory=list)  # names
    kills: int = 0
    overlaps: int = 0
    ran: list[str] = field(default_factory=list)  # names, in the order they ran
    records: list[dict[str, Any]] = field(default_factory=list)

    @property
    def without_record(self) -> set[str]:
        return set(self.submitted) - {record["name"] for record in self.records}

    @property
    def out_of_order(self) -> int:
        """Pairs of neighbours in line that started the other way round."""
        started = [r for r in self.records if r["taken"] and r["started"]]
        by_ticket = sorted(started, key=lambda record: float(record["taken"]))
        return sum(a["started"] > b["started"] for a, b in itertools.pairwise(by_ticket))


class Chaos:
    def __init__(self, directory: Path, seed: int = 0) -> None:
        self.directory, self.queue = directory, directory / "queue"
        directory.mkdir(parents=True, exist_ok=True)
        self.random = random.Random(seed)
        self.outcome = Outcome()
        self.mutex = threading.Lock()

    def gate(self, *arguments: str) -> subprocess.Popen[str]:
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(tool("gpu_gate", *arguments), env={**os.environ, "RGT_QUEUE": str(self.queue)}, **pipes)

    def submit(self, name: str, detach: bool) -> subprocess.Popen[str]:
        options = ["-n", name, "--slots", "1", *(["--detach"] if detach else [])]
        with self.mutex:
            self.outcome.submitted.append(name)
        return self.gate(*options, "--", "sh", "-c", JOB, str(self.directory), name)

    def submitter(self, number: int, jobs: int, seed: int) -> None:
        """Foreground and detached jobs by turns; every fourth foreground gate is killed at a random moment."""
        chance = random.Random(seed)
        for job in range(jobs):
            process = self.submit(f"s{number}-{job}", detach=job % 2 == 1)
            if job % 4 == 0:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=self._until_queued(process) and chance.uniform(0, 0.3))
                self._kill(process.pid)
            process.communicate(timeout=300)

    def _until_queued(self, process: subprocess.Popen[str]) -> bool:
        """The first line on stderr comes when the record is on disk: a kill before that is a submit that never was."""
        assert process.stderr
        process.stderr.readline()
        return True

    def _kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            with self.mutex:
                self.outcome.kills += 1

    def run(self, submitters: int, jobs: int) -> None:
        seeds = [self.random.random() for _ in range(submitters)]
        threads = [
            threading.Thread(target=self.submitter, args=(number, jobs, int(seed * 1e9)))
            for number, seed in enumerate(seeds)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.kill_a_gate()
            time.sleep(self.random.uniform(0.05, 0.3))  # the moment of the next kill, not a wait

    def kill_a_gate(self) -> None:
        """Kill the gate of some unfinished detached job."""
        unfinished = [r for r in self.jobs() if r["detached"] and r["gate"] and r["state"] in ("queued", "running")]
        gates = [record["gate"]["pid"] for record in unfinished]
        if gates:
            self._kill(self.random.choice(gates))

    def jobs(self) -> list[dict[str, Any]]:
        process = self.gate("list", "--all", "--json")
        text, _ = process.communicate(timeout=60)
        jobs: list[dict[str, Any]] = json.loads(text)["jobs"]
        return jobs

    def kill_everything(self) -> None:
        """What a reboot does: nothing survives. From the end of the line, so that nobody moves up meanwhile."""
        for record in reversed(self.jobs()):
            for mark in (record["gate"], record["job"]):
                if mark and record["state"] in ("queued", "running"):
                    self._kill(mark["pid"])

    def wait_for(self, condition: Callable[[list[dict[str, Any]]], bool], seconds: float = 300) -> None:
        deadline = time.monotonic() + seconds
        while not condition(self.jobs()):
            if time.monotonic() > deadline:
                raise TimeoutError("the queue did not get there")
            time.sleep(0.1)

    def settle(self) -> None:
        """Until nothing is queued or running any more."""
        self.wait_for(lambda jobs: not any(job["state"] in ("queued", "running") for job in jobs))

    def resume(self) -> list[str]:
        text, _ = self.gate("resume").communicate(timeout=120)
        return text.split()

    def finish(self) -> Outcome:
        self.outcome.records = self.jobs()
        self.outcome.ran = _lines(self.directory / "ran")
        self.outcome.overlaps = len(_lines(self.directory / "overlaps"))
        return self.outcome


def _lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def storm(directory: Path, submitters: int, jobs: int) -> Outcome:
    """Random kills, then resume what was lost in line, until all is settled."""
    chaos = Chaos(directory)
    chaos.run(submitters, jobs)
    chaos.settle()
    while chaos.resume():
        chaos.settle()
    return chaos.finish()


def reboot(directory: Path, jobs: int) -> tuple[Outcome, list[str]]:
    """Queue detached jobs, kill everything, resume by one command. Also the names that were lost in line, in order."""
    chaos = Chaos(directory)
    chaos.gate("-n", "blocker", "--slots", "1", "--detach", "--", "sleep", "600").communicate(timeout=60)
    for number in range(jobs):
        chaos.submit(f"r{number}", detach=True).communicate(timeout=60)
    chaos.wait_for(lambda jobs: all(job["gate"] for job in jobs))
    chaos.kill_everything()
    chaos.settle()
    lost = [record["name"] for record in chaos.jobs() if record["state"] == "lost" and not record["started"]]
    chaos.resume()
    chaos.settle()
    return chaos.finish(), lost
