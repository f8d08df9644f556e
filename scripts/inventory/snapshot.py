"""Everything at once: GPUs, training processes, queues, git, runs and disks, and which process writes which run.

Example:
    box = take([], queues=[], seconds=1.2)       box.processes[0].summary.step        box.runs

Nothing is written, nothing is started, nothing is waited for longer than its limit. What failed is in `stopped`.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from inventory import git, outside, queues, survey, trainers
from rgt import gpu, logs
from rgt.logline import parse_line

_ROOTS = 8  # directories that are looked through when none is named
_SECONDS = 3.0  # for each look at the machine
_SETTLE = 30.0  # a process younger than this has no mean speed yet
# a log there says nothing about its neighbours
_NOBODYS = {"/tmp", "/var/tmp", "/var/log", "/dev", "/dev/pts", "/dev/shm"}
_COUNT = re.compile(r"--?([\w-]+)[= ](\d+)(?= |$)")


@dataclass
class Process:
    """A training process with what its log says."""

    trainer: trainers.Trainer
    summary: logs.Summary
    source: str = ""  # where the numbers are from
    age: float | None = None  # seconds since the last line

    def as_dict(self) -> dict[str, Any]:
        return {**self.trainer.as_dict(), "age": self.age, "numbers_from": self.source, **self.summary.as_dict()}


@dataclass
class Disk:
    path: str
    free: int
    total: int
    inodes_free: int
    inodes: int  # 0: the file system does not count them
    device: int = 0

    @property
    def free_share(self) -> float:
        return self.free / self.total if self.total else 1.0

    @property
    def inodes_share(self) -> float:
        return self.inodes_free / self.inodes if self.inodes else 1.0


@dataclass
class Snapshot:
    time: float
    host: dict[str, Any] = field(default_factory=dict)
    gpus: gpu.Reading = field(default_factory=lambda: gpu.Reading("none"))
    processes: list[Process] = field(default_factory=list)
    queues: list[queues.Row] = field(default_factory=list)
    git: list[dict[str, Any]] = field(default_factory=list)
    runs: list[survey.Run] = field(default_factory=list)
    disks: list[Disk] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)  # what was not looked at, and why
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        lists = {
            "processes": [process.as_dict() for process in self.processes],
            "queues": [row.as_dict() for row in self.queues],
            "runs": [run.as_dict() for run in self.runs],
            "disks": [asdict(disk) for disk in self.disks],
        }
        plain = {name: getattr(self, name) for name in ("time", "host", "git", "roots", "stopped", "seconds")}
        return {**plain, "gpus": asdict(self.gpus), **lists}

    def unseen_pids(self) -> dict[int, list[int]]:
        """Processes on a card that are not in our /proc: another container's, or dead ones."""
        pids: dict[int, list[int]] = {}
        for card in self.gpus.gpus:
            for process in card.processes:
                if not os.path.exists(f"/proc/{process.pid}"):
                    pids.setdefault(process.pid, []).append(card.index)
        return pids


def take(directories: list[Path], queue_directories: list[Path], seconds: float) -> Snapshot:
    """Look at the machine; at `directories` if given, else wherever something runs and at the current one."""
    began = time.monotonic()
    box = Snapshot(time.time(), host=_host())
    _look_at_machine(box, queue_directories)
    roots = [Path(os.path.abspath(directory)) for directory in directories] or _limited(
        box, "roots", partial(_roots, box)
    )
    box.roots = [str(root) for root in roots or []]
    _look_at_places(box, roots or [], seconds)
    panes = {row["tty"]: row for queue in box.queues if queue.tool == "tmux" for row in queue.jobs}
    for process in box.processes:
        _limited(box, f"log of pid {process.trainer.pid}", partial(_read_process, process, box.runs, panes))
    box.seconds = round(time.monotonic() - began, 2)
    return box


def _limited(box: Snapshot, name: str, look: Callable[[], Any]) -> Any:
    """Its result, or a line about what was not seen: a path may lie on a mount that no longer answers."""
    results, problems = outside.together({name: look}, _SECONDS)
    box.stopped += [f"{name}: {problem}" for problem in problems.values()]
    return results.get(name)


def _host() -> dict[str, Any]:
    memory = dict(re.findall(r"(\w+):\s+(\d+) kB", _text("/proc/meminfo")))
    load = os.getloadavg()[0]
    row: dict[str, Any] = {"name": socket.gethostname(), "cpus": os.cpu_count(), "load": round(load, 1)}
    if memory:
        row |= {"memory": int(memory["MemTotal"]) << 10, "memory_available": int(memory.get("MemAvailable", 0)) << 10}
    return row


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def _look_at_machine(box: Snapshot, queue_directories: list[Path]) -> None:
    asks: dict[str, Callable[[], Any]] = {"gpus": gpu.read, "queues": partial(queues.read, queue_directories)}
    results, problems = outside.together(asks, _SECONDS)
    box.gpus = results.get("gpus") or gpu.Reading("none", problem=problems.get("gpus"))
    box.queues = results.get("queues") or [queues.Row("queues", problem=problems.get("queues"))]
    if not os.path.isdir("/proc/self"):
        box.stopped.append("processes cannot be listed here: there is no /proc")
        return
    panes = {job["tty"]: f"tmux {job['session']}" for row in box.queues if row.tool == "tmux" for job in row.jobs}
    found = _limited(box, "processes", partial(trainers.find, _gpu_memory(box.gpus), panes))
    box.processes = [Process(trainer, logs.Summary()) for trainer in found or []]


def _gpu_memory(reading: gpu.Reading) -> dict[int, dict[int, int | None]]:
    """pid -> card -> bytes, of those that compute; a desktop's server only draws."""
    found: dict[int, dict[int, int | None]] = {}
    for card in reading.gpus:
        for process in card.processes:
            if process.type == "C":
                found.setdefault(process.pid, {})[card.index] = process.used_memory
    return found


def _roots(box: Snapshot) -> list[Path]:
    """Where something runs or waits, and here. A place inside another one is looked through with it."""
    seen = [process.trainer for process in box.processes if not process.trainer.container]
    places = [trainer.cwd for trainer in seen]
    files = [path for trainer in seen for path in (trainer.log.path, *trainer.outputs) if path]
    places += [folder for path in files if (folder := os.path.dirname(path)) not in _NOBODYS]
    for row in box.queues:
        active = (job for job in row.jobs if job.get("state") in ("running", "queued", "RUNNING", "PENDING"))
        places += [job["cwd"] for job in active if job.get("cwd")]
    real = list(dict.fromkeys(os.path.realpath(place) for place in [os.getcwd(), *places]))
    kept = [
        place for place in real if place != "/" and os.path.isdir(place) and not any(map(partial(_inside, place), real))
    ]
    if len(kept) > _ROOTS:
        box.stopped.append(
            f"{len(kept) - _ROOTS} working directories were not looked at; name them: {kept[_ROOTS]} ..."
        )
    return [Path(place) for place in kept[:_ROOTS]]


def _look_at_places(box: Snapshot, roots: list[Path], seconds: float) -> None:
    """Surveys, repositories and disks side by side; a dead network mount costs its own row."""
    deadline = time.monotonic() + seconds
    asks: dict[str, Callable[[], Any]] = {f"{root}": partial(survey.look, root, deadline) for root in roots}
    asks |= {f"git {root}": partial(_git, root) for root in roots}
    asks |= {f"disk {root}": partial(_disk, root) for root in [*roots, Path("/tmp"), Path("/dev/shm")]}
    results, problems = outside.together(asks, max(seconds + 1.0, outside.SECONDS + 1.0))
    for answer in results.values():
        if isinstance(answer, survey.Found):
            box.runs += answer.runs
            box.stopped += answer.stopped
        elif isinstance(answer, Disk):
            box.disks.append(answer)
        elif answer and answer not in box.git:
            box.git.append(answer)
    box.stopped += [f"{name}: {problem}" for name, problem in problems.items() if not name.startswith("disk ")]
    box.runs.sort(key=lambda run: -run.newest)
    box.disks = list({disk.device: disk for disk in reversed(box.disks)}.values())[::-1]


def _git(root: Path) -> dict[str, Any] | None:
    repository = git.top(root)
    return git.state(repository) if repository else None


def _disk(path: Path) -> Disk:
    room = os.statvfs(path)
    free, total = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    return Disk(str(path), free, total, room.f_favail, room.f_files, os.stat(path).st_dev)


# -- which process writes which run


def _read_process(process: Process, runs: list[survey.Run], panes: dict[str, Any]) -> None:
    """Its stdout first; if that has no numbers, the files it holds open, then what was written below its directory."""
    trainer = process.trainer
    if trainer.log.readable:
        _take_log(process, trainer.log.readable, trainer.log.path)
    elif trainer.log.kind == "terminal" and trainer.log.path in panes:
        process.summary = logs.summarise(queues.pane_text(panes[trainer.log.path]))
        process.source = trainer.log.via
    elif trainer.container_id:
        process.summary = logs.summarise(logs.to_text(queues.container_text(trainer.container_id).encode()))
        process.source = f"docker logs {trainer.container_id[:12]}"
    for path in trainer.outputs:
        if not process.summary.found:
            _take_log(process, path, path)
    mine = _runs_of(process, runs)
    for run in mine:
        run.pid = trainer.pid
    if mine and not process.summary.found and mine[0].summary.found:
        problems = process.summary.problems
        process.summary, process.source, process.age = mine[0].summary, mine[0].path, mine[0].age
        process.summary.problems += problems
    finish(process)


def _take_log(process: Process, readable: str, path: str) -> None:
    summary = logs.read(readable)
    summary.problems = summary.problems or process.summary.problems
    process.summary, process.source = summary, path
    try:
        process.age = max(0.0, time.time() - os.stat(readable).st_mtime)
    except OSError:
        process.age = None


def _runs_of(process: Process, runs: list[survey.Run]) -> list[survey.Run]:
    """By the files it holds open; else the newest below its directory that changed since it started."""
    trainer = process.trainer
    paths = {os.path.realpath(path) for path in (trainer.log.path, *trainer.outputs) if path}
    files = {id(run): [file.path for file in (run.log, run.table) if file] for run in runs}
    mine = [run for run in runs if paths & {os.path.realpath(path) for path in files[id(run)]}]
    if mine:
        return mine
    started = time.time() - trainer.elapsed
    below = [run for run in runs if run.pid is None and run.newest > started]
    below = [run for run in below if trainer.cwd and _inside(os.path.realpath(run.path), trainer.cwd)]
    return [run for run in below if run.summary.found][:1]


def _inside(path: str, directory: str) -> bool:
    return directory != "/" and path.startswith(directory + "/")


def finish(process: Process) -> None:
    """The total from the command line, and a mean speed where the log tells none."""
    summary, trainer = process.summary, process.trainer
    for name, number in _COUNT.findall(" ".join(trainer.command)):
        point = parse_line(f"{name.replace('-', '_')} = {number}")
        summary.fill({key: point[key] for key in ("total", "epochs") if key in point})
    lived = trainer.elapsed - (process.age or 0.0)
    if summary.it_per_s is None and summary.step is not None and lived > _SETTLE and trainer.log.readable:
        steps = summary.step - (logs.first_step(trainer.log.readable) or 0)
        summary.it_per_s = steps / lived if steps > 0 else None
    summary.finish_eta()
