"""gpu_gate's command line on a queue of its own, for the tests that start real jobs with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rgt.job import queue
from rgt.machine import processes

ROOT = Path(__file__).resolve().parent.parent
SHELL = ROOT / "scripts" / "gpu_gate.sh"
PYTHON = ROOT / "scripts" / "gpu_gate.py"


def until(condition: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait for a condition, not for a time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)
    return value


class Gate:
    """The command line on a queue of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.queue = queue.Queue(directory / "queue")
        self.environment = {**os.environ, "RGT_QUEUE": str(self.queue.directory), "PYTHON": sys.executable}
        self.started: list[subprocess.Popen[str]] = []

    def popen(self, *words: object, program: tuple[object, ...] = (SHELL,), **options: Any) -> subprocess.Popen[str]:
        own: dict[str, Any] = {"env": self.environment, "cwd": self.directory, "text": True}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([*map(str, (*program, *words))], **{**own, **pipes, **options})
        self.started.append(process)
        return process

    def run(self, *words: object, **options: Any) -> subprocess.CompletedProcess[str]:
        process = self.popen(*words, **options)
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess([str(word) for word in words], process.returncode, out, err)

    def detach(self, name: str, *command: object, slots: int | None = 1, options: tuple[object, ...] = ()) -> str:
        where = ("--slots", slots) if slots else ()
        done = self.run("-n", name, *where, "--detach", *options, "--", *command)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def record(self, job: str) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(self.run("status", job, "--json").stdout)
        return record

    def state(self, job: str) -> str:
        return str(self.queue.find(job)["state"])

    def running(self, job: str) -> dict[str, Any]:
        """The record once the job has really started."""
        return dict(until(lambda: [r for r in self.named(job) if r["state"] == "running" and r["job"]])[0])

    def named(self, job: str) -> list[dict[str, Any]]:
        return [record for record in self.queue.records() if job in (record["name"], record["id"])]

    def tickets(self) -> list[str]:
        return os.listdir(self.queue.line) if self.queue.line.exists() else []

    def clean(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
        for record in self.queue.records():
            kill_job(record)


def kill_job(record: dict[str, Any]) -> None:
    """Every process of it, and its gate."""
    if record["state"] in ("queued", "running", "lost"):
        if processes.alive(record["gate"]):
            kill(record["gate"]["pid"])
        for pid in processes.carrying(queue.MARK, record["id"]):
            kill(pid)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
