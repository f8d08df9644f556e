"""Everything at once: GPUs, training processes, queues, git, runs and disks, and which process writes which run.

Example:
    box = take([], seconds=1.2)       box.processes[0].summary.step        box.runs

Nothing is written, nothing is started, nothing is waited for longer than its limit. What failed is in `stopped`.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rgt.job import queue as gate
from rgt.log import summary as logs
from rgt.log.history import History
from rgt.log.line import parse_row
from rgt.machine import disks, memory, outside, processes, trainers
from rgt.machine import gpus as gpu
from rgt.run import discovery, provenance
from rgt.takeover import loose_ends, outcomes

_ROOTS = 8  # directories that are looked through when none is named
_SECONDS = 3.0  # for each look at the machine
_SETTLE = 30.0  # a process younger than this has no mean speed yet
# a log there says nothing about its neighbours
_NOBODYS = {"/tmp", "/var/tmp", "/var/log", "/dev", "/dev/pts", "/dev/shm"}
_TMUX = re.compile(r"/tmux-\d+/[^/]+$")
_COUNT = re.compile(r"--?([\w-]+)[= ](\d+)(?= |$)")
_ENDED_SHOWN = 20  # finished gpu_gate jobs that are listed
_PANE_LINES = 200
_DRIFT = 4  # newest unfinished runs whose code is compared with the tree
_GATE_FIELDS = "id name state reason command cwd log gpus submitted started ended exit_code".split()
_ACTIVE = ("running", "queued", "RUNNING", "PENDING")
Job = dict[str, Any]
Asks = dict[str, Callable[[], Any]]


@dataclass
class Process:
    """A training process with what its log says."""

    trainer: trainers.Trainer
    summary: History = field(default_factory=History)
    source: str = ""  # where the numbers are from
    age: float | None = None  # seconds since the last line

    def as_dict(self) -> dict[str, Any]:
        return {**self.trainer.as_dict(), "age": self.age, "numbers_from": self.source, **self.summary.brief()}


@dataclass
class Queue:
    """One tool that queues or holds jobs. `problem` says why it shows none: not installed, not running, failed."""

    tool: str
    jobs: list[Job] = field(default_factory=list)
    problem: str | None = None

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass
class Snapshot:
    time: float
    host: dict[str, Any] = field(default_factory=dict)
    gpus: gpu.Reading = field(default_factory=lambda: gpu.Reading("none"))
    processes: list[Process] = field(default_factory=list)
    queues: list[Queue] = field(default_factory=list)
    git: list[dict[str, Any]] = field(default_factory=list)
    runs: list[discovery.Run] = field(default_factory=list)
    disks: list[disks.Room] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)
    scope: list[str] = field(default_factory=list)  # what the user asked about: the named directories, or the current
    loose: list[loose_ends.LooseEnd] = field(default_factory=list)  # below the scope, and how its runs ended
    drift: list[dict[str, Any]] = field(default_factory=list)  # runs whose recorded code is not the tree's
    stopped: list[str] = field(default_factory=list)  # what was not looked at, and why
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in ("time", "host", "git", "roots", "drift", "stopped", "seconds")}
        rows = {name: [row.as_dict() for row in getattr(self, name)] for name in ("processes", "queues", "runs")}
        return {**plain, "gpus": asdict(self.gpus), **rows, "disks": [asdict(disk) for disk in self.disks]}

    @property
    def judged(self) -> list[discovery.Run]:
        """Runs of the last day. Where nothing has run for a day, somebody inherits: all that was asked about."""
        inside = [run for run in self.runs if any(f"{run.path}/".startswith(f"{root}/") for root in self.scope)]
        resting = all(run.age > outcomes.RECENT for run in inside)
        return [run for run in self.runs if run.age < outcomes.RECENT or (resting and run in inside)]

    def limited(self, name: str, look: Callable[[], Any], seconds: float = _SECONDS) -> Any:
        """Its result, or a line about what was not seen: a path may lie on a mount that no longer answers."""
        results, problems = outside.together({name: look}, seconds)
        self.stopped += [f"{name}: {problem}" for problem in problems.values()]
        return results.get(name)


def take(directories: list[Path], seconds: float) -> Snapshot:
    """Look at the machine; at `directories` if given, else wherever something runs and at the current one."""
    began = time.monotonic()
    total, available = memory.host_memory()
    box = Snapshot(time.time())
    box.host = {"name": socket.gethostname(), "cpus": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    box.host |= {"memory": total, "memory_available": available} if total else {}
    queues: Asks = {"gpu_gate": gpu_gate_jobs, "slurm": slurm_jobs, "tmux": tmux_panes, "docker": docker_containers}
    results, problems = outside.together({"gpus": gpu.read, **queues}, _SECONDS)
    box.gpus = results.get("gpus") or gpu.Reading("none", problem=problems.get("gpus"))
    box.queues = [results.get(name) or Queue(name, problem=problems.get(name)) for name in queues]
    panes = {job["tty"]: job for row in box.queues if row.tool == "tmux" for job in row.jobs}
    names = {tty: f"tmux {pane['session']}" for tty, pane in panes.items()}
    used: dict[int, dict[int, int | None]] = {}  # pid -> card -> bytes, of those that compute, not only draw
    for card in box.gpus.gpus:
        for process in card.processes:
            if process.type == "C":
                used.setdefault(process.pid, {})[card.index] = process.used_memory
    found = box.limited("processes", partial(trainers.find, used, names))
    box.processes = [Process(trainer) for trainer in found or []]
    if not os.path.isdir("/proc/self"):
        box.stopped.append("processes cannot be listed here: there is no /proc")
    roots = [Path(os.path.abspath(directory)) for directory in directories]
    box.scope = [str(root) for root in roots] or [os.getcwd()]
    roots = roots or box.limited("roots", partial(_roots, box)) or []
    box.roots = [str(root) for root in roots]
    _look_at_places(box, roots, seconds)
    for row in box.processes:
        box.limited(f"log of pid {row.trainer.pid}", partial(_read_process, row, box.runs, panes))
    own = [run for run in box.runs if run.kind == "run" and not run.finished][:_DRIFT]
    until = time.monotonic() + seconds / 3
    ends = box.limited("loose ends", lambda: [end for root in box.scope for end in loose_ends.find(root, until)])
    ended = partial(outcomes.look, box.judged, time.monotonic() + seconds / 2, box.stopped)
    box.loose = [*(ends or []), *(box.limited("ends of runs", ended, seconds + _SECONDS) or [])]
    drifts = box.limited("code of runs", partial(lambda: [provenance.drift(Path(run.path)) for run in own]))
    box.drift = [row for row in drifts or [] if row]
    box.seconds = round(time.monotonic() - began, 2)
    return box


def _roots(box: Snapshot) -> list[Path]:
    """Where something runs or waits, and here. A place inside another one is looked through with it."""
    seen = [process.trainer for process in box.processes if not process.trainer.container]
    files = [path for trainer in seen for path in (trainer.log.path, *trainer.outputs) if path]
    jobs = [job for row in box.queues for job in row.jobs if job.get("state") in _ACTIVE]
    places = [os.getcwd(), *(trainer.cwd for trainer in seen)]
    places += [folder for path in files if (folder := os.path.dirname(path)) not in _NOBODYS]
    places += [job["cwd"] for job in jobs if job.get("cwd")]
    real = list(dict.fromkeys(os.path.realpath(place) for place in places))
    real = [place for place in real if place != "/" and os.path.isdir(place)]
    kept = [place for place in real if not any(place.startswith(f"{other}/") for other in real)]
    if len(kept) > _ROOTS:
        left = f"{len(kept) - _ROOTS} working directories were not looked at"
        box.stopped.append(f"{left}; name them: {kept[_ROOTS]} ...")
    return [Path(place) for place in kept[:_ROOTS]]


def _look_at_places(box: Snapshot, roots: list[Path], seconds: float) -> None:
    """Surveys, repositories and disks side by side; a dead network mount costs its own row."""
    deadline = time.monotonic() + seconds
    asks: Asks = {f"{root}": partial(discovery.discover, root, deadline) for root in roots}
    asks |= {f"git {root}": partial(provenance.repository_state, root) for root in roots}
    asks |= {f"disk {root}": partial(disks.room, root) for root in [*roots, Path("/tmp"), Path("/dev/shm")]}
    results, problems = outside.together(asks, max(seconds, outside.SECONDS) + 1.0)
    rooms = []
    for answer in results.values():
        if isinstance(answer, discovery.Found):
            box.runs += answer.runs
            box.stopped += answer.stopped
        elif isinstance(answer, disks.Room):
            rooms.append(answer)
        elif answer and answer not in box.git:
            box.git.append(answer)
    box.stopped += [f"{name}: {problem}" for name, problem in problems.items() if not name.startswith("disk ")]
    here = tuple(os.path.realpath(place).rstrip("/") + "/" for place in box.scope)
    box.runs.sort(key=lambda run: (not os.path.realpath(run.path).startswith(here), -run.newest))
    box.disks = list({room.device: room for room in reversed(rooms)}.values())[::-1]


# -- which process writes which run


def _read_process(process: Process, runs: list[discovery.Run], panes: dict[str, Job]) -> None:
    """Its stdout first; if that has no numbers, the files it holds open, then what was written below its directory."""
    trainer, log = process.trainer, process.trainer.log
    if log.readable:
        _take_log(process, log.readable, log.path)
    elif log.kind == "terminal" and log.path in panes:
        # what the pane shows, with some history: the only log of a run that was started without one
        pane = panes[log.path]
        command = ("capture-pane", "-p", "-J", "-S", f"-{_PANE_LINES}", "-t", pane["pane"])
        text = outside.tool("tmux", "-u", "-S", pane["socket"], *command).text.rstrip()
        process.summary, process.source = logs.summarise(text), log.via
    elif trainer.container_id:  # only its engine may know where its log is
        answer = outside.tool("docker", "logs", "--tail", str(_PANE_LINES), trainer.container_id, merge=True)
        text = logs.to_text(answer.text.encode())
        process.summary, process.source = logs.summarise(text), f"docker logs {trainer.container_id[:12]}"
    for path in trainer.outputs:
        if not process.summary.found:
            _take_log(process, path, path)
    # its runs: by the files it holds open; else the newest below its directory that changed since it started
    held = {os.path.realpath(path) for path in (log.path, *trainer.outputs) if path}
    mine = [run for run in runs if held & {os.path.realpath(file.path) for file in (run.log, run.table) if file}]
    fresh = (run for run in runs if run.pid is None and run.newest > time.time() - trainer.elapsed)
    below = (run for run in fresh if trainer.cwd and os.path.realpath(run.path).startswith(f"{trainer.cwd}/"))
    mine = mine or [run for run in below if run.summary.found][:1]
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
    process.age = None
    with contextlib.suppress(OSError):
        process.age = max(0.0, time.time() - os.stat(readable).st_mtime)


def finish(process: Process) -> None:
    """The total from the command line, and a mean speed where the log tells none."""
    summary, trainer = process.summary, process.trainer
    for name, number in _COUNT.findall(" ".join(trainer.command)):
        point = parse_row({name.replace("-", "_"): number})
        summary.fill({key: point[key] for key in ("total", "epochs") if key in point})
    lived = trainer.elapsed - (process.age or 0.0)
    if summary.it_per_s is None and summary.step is not None and lived > _SETTLE and trainer.log.readable:
        steps = summary.step - (logs.first_step(trainer.log.readable) or 0)
        summary.it_per_s = steps / lived if steps > 0 else None
    summary.finish_eta()


# -- queues and terminals. Only looks: tmux would make its directory, so it is asked only where its socket is alive


def gpu_gate_jobs() -> Queue:
    """Every queue directory: the user's own, and those that running gates hold open."""
    named = os.environ.get("RGT_QUEUE")
    places = [Path(named).absolute() if named else gate.default_directory()]
    for pid in processes.pids():  # a gate and all of its job hold <queue>/jobs/<id>.lock open
        if any("gpu_gate" in word for word in processes.command(pid)[:3]):
            held = [Path(target) for _, target in processes.descriptors(pid) or []]
            places += [path.parent.parent for path in held if path.suffix == ".lock" and path.parent.name == "jobs"]
    records = [(place, record) for place in dict.fromkeys(places) for record in gate.Queue(place).records()]
    jobs = [{"queue": str(place), **{name: record.get(name) for name in _GATE_FIELDS}} for place, record in records]
    hidden = [id(job) for job in jobs if job["state"] in gate.FINAL][:-_ENDED_SHOWN]
    kept = [job for job in jobs if id(job) not in hidden]
    return Queue("gpu_gate", kept, None if kept else "no jobs")


def slurm_jobs() -> Queue:
    """The user's own jobs; their working directories tell where to look for logs."""
    command = ("squeue", "-h", "-u", getpass.getuser(), "-o", "%i\t%j\t%T\t%M\t%L\t%R\t%Z")
    return _table("slurm", "id name state elapsed left where cwd", command)


def docker_containers() -> Queue:
    command = ("docker", "ps", "--format", "{{.ID}}\t{{.Names}}\t{{.Image}}\t{{.Status}}\t{{.Command}}")
    return _table("docker", "id name image status command", command)


def _table(name: str, fields: str, command: tuple[str, ...], separator: str = "\t") -> Queue:
    """What the command prints, one job per line; the last field may hold the separator."""
    answer, keys = outside.tool(*command), fields.split()
    rows = [line.split(separator, len(keys) - 1) for line in answer.text.splitlines() if not answer.problem]
    jobs = [dict(zip(keys, row, strict=True)) for row in rows if len(row) == len(keys)]
    return Queue(name, jobs, answer.problem or (None if jobs else "no jobs"))


def tmux_panes() -> Queue:
    """Every pane of every server of this user, with its terminal."""
    sockets = []  # that somebody listens on: a socket file outlives its server, the kernel's list does not
    with contextlib.suppress(OSError):
        rows = Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()
        paths = {row.split(" ", 7)[-1].strip() for row in rows if " /" in row}
        sockets = sorted(path for path in paths if _TMUX.search(path) and os.access(path, os.W_OK))
    row = Queue("tmux", problem=None if sockets else "not running")
    # tmux prints no tabs; a session's name has no ':'
    words = "session_name pane_id pane_tty pane_pid pane_current_command session_attached pane_current_path".split()
    shown = ":".join(f"#{{{word}}}" for word in words)
    for path in sockets:
        command = ("tmux", "-u", "-S", path, "list-panes", "-a", "-F", shown)
        found = _table("tmux", "session pane tty pid command attached cwd", command, ":")
        row.problem = found.problem
        row.jobs += [{**job, "socket": path} for job in found.jobs]
    return row
