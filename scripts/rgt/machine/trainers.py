"""The training processes of this machine, however they were started: found in /proc, one row per process tree.

Example:
    for row in find(gpu_processes): row.pid, row.command, row.cwd, row.python, row.elapsed, row.log, row.origin

The log is where stdout really goes (open_files.py). Only reads.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rgt.job import queue
from rgt.machine import open_files, processes
from rgt.machine.open_files import Output, Streams
from rgt.secrets import redact, redact_words

# the script or module of a python command line
_TRAINS = re.compile(
    r"(?:^|[^a-z])(?:pre|re)?(?:train|finetun|fine[-_]tun|sft|dpo|grpo|rlhf|distill)|^run_(?:clm|mlm|glue)", re.I
)
_LAUNCHERS = {
    *("torchrun", "accelerate", "deepspeed", "litgpt", "lightning", "axolotl", "tune", "llamafactory-cli", "yolo"),
    *("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch", "deepspeed.launcher.launch"),
}
_OPTIONS = re.compile(r"--?(?:num[-_]|max[-_]|n[-_])?(?:epochs?|steps|iters|lr|learning[-_]rate|batch[-_]size)(?:=|$)")
_NEVER = re.compile(
    r"(?:^|[/.])(?:gpu_gate|takeover|tensorboard|jupyter[\w-]*|ipython|pip3?|uv|conda|pytest|mypy|ruff"
    r"|black|pylsp|jedi[\w-]*|pyright[\w-]*|debugpy|gpustat|nvitop|wandb|http\.server|supervisord|unattended-upgrade[\w-]*)"
    r"(?:\.py)?$"
)
_LIBRARIES = (b"libtorch", b"libcuda.so", b"libcudart", b"jaxlib", b"tensorflow")
_MAPS = 8 << 20  # bytes of /proc/PID/maps that are searched
_OUTPUT = re.compile(r"\.log$|\.jsonl$|\.out$|tfevents|\.wandb$|metrics\.csv$")
_OUTPUTS = 20  # open files listed per tree
# ancestors that tell who started it; the kernel keeps 15 letters of a name
_STARTERS = {"tmux: server": "tmux", "SCREEN": "screen", "slurmstepd": "slurm", "crond": "cron", "atd": "at"}
_STARTERS |= {"containerd-shim": "a container", "sshd": "an ssh login", "sshd-session": "an ssh login"}
_STARTERS |= {"screen": "screen", "tsp": "tsp", "cron": "cron", "jupyter-lab": "jupyter", "jupyter-noteboo": "jupyter"}


@dataclass
class Trainer:
    pid: int
    ppid: int
    command: list[str]
    why: str
    user: str = ""
    origin: str = ""
    cwd: str = ""
    python: str = ""
    elapsed: float = 0.0
    state: str = ""
    members: list[int] = field(default_factory=list)  # the whole tree, the root first
    gpus: list[int] = field(default_factory=list)
    gpu_memory: int | None = None
    log: Output = field(default_factory=lambda: Output("hidden"))
    outputs: list[str] = field(default_factory=list)
    container: bool = False
    container_id: str = ""
    gate_job: str = ""

    @property
    def text(self) -> str:
        return redact(" ".join(self.command))

    def as_dict(self) -> dict[str, Any]:
        row = {**asdict(self), "log": self.log._asdict()}
        return {**row, "command": redact_words(self.command), "text": self.text}


def find(gpu_memory: Mapping[int, Mapping[int, int | None]], panes: Mapping[str, str] | None = None) -> list[Trainer]:
    """`gpu_memory`: pid -> GPU index -> bytes. `panes`: terminal -> name of the tmux pane that shows it."""
    table = _Table()
    reasons = {pid: why for pid in table.commands if (why := table.reason(pid, pid in gpu_memory))}
    oldest_first = sorted(reasons, key=lambda pid: (table.starts[pid], pid))
    # the topmost training process above it: torchrun for a worker, the main process for a data loader
    roots = dict.fromkeys([pid, *(p for p in table.above(pid) if p in reasons)][-1] for pid in oldest_first)
    outputs = Streams(table.commands, panes or {})
    rows = [table.row(root, reasons[root], outputs) for root in roots]
    for row in rows:
        cards = [(index, used) for pid in row.members for index, used in gpu_memory.get(pid, {}).items()]
        row.gpus = sorted({index for index, _ in cards})
        known = [used for _, used in cards if used is not None]
        row.gpu_memory = sum(known) if known else None
    return rows


class _Table:
    """One look at /proc: parents, start times and command lines of everything that lives."""

    def __init__(self) -> None:
        self.parents: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self.commands: dict[int, list[str]] = {}
        for pid in processes.pids():
            parent, start = processes.parent(pid), processes.start_time(pid)
            if parent is None or start is None:  # it ended while we looked
                continue
            self.parents[pid], self.starts[pid] = parent, start
            if command := processes.command(pid):  # a zombie has none
                self.commands[pid] = command
        self.mine = {os.getpid(), *self.above(os.getpid())}

    def above(self, pid: int) -> Iterable[int]:
        """Its parent, the parent of that, and so on."""
        seen = {pid}
        while (pid := self.parents.get(pid, 0)) and pid not in seen:
            seen.add(pid)
            yield pid

    def reason(self, pid: int, on_gpu: bool) -> str:
        """Why this process counts as training; empty when it does not."""
        command = self.commands[pid]
        names = (os.path.basename(processes.link(pid, "exe")), os.path.basename(command[0]))
        if pid in self.mine:
            return ""
        if on_gpu:
            return "uses a GPU"
        if not any(name.startswith(("python", "pypy")) or name in _LAUNCHERS for name in names):
            return ""
        if _NEVER.search(_program(command)):
            return ""
        if why := looks_like_training(command):
            return why
        try:
            with open(f"/proc/{pid}/maps", "rb") as file:
                libraries = file.read(_MAPS)
        except OSError:
            return ""
        return "its libraries" if any(library in libraries for library in _LIBRARIES) else ""

    def row(self, pid: int, why: str, outputs: Streams) -> Trainer:
        members, command = [pid, *processes.descendants(pid)], self.commands[pid]
        environment, cwd = processes.environment(pid), processes.link(pid, "cwd")
        row = Trainer(pid, self.parents[pid], command, why, members=members, cwd=cwd)
        with contextlib.suppress(OSError, KeyError):  # a container's user may have a number only
            row.user = str(uid := os.stat(f"/proc/{pid}").st_uid)
            row.user = pwd.getpwuid(uid).pw_name
        row.state = processes.state(pid)
        # process start times count on this clock
        row.elapsed = max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - self.starts[pid] / os.sysconf("SC_CLK_TCK"))
        # as it was called: /proc/PID/exe names the base interpreter behind a virtual environment's link
        called = os.path.normpath(os.path.join(cwd, command[0])) if "/" in command[0] else ""
        called = called or shutil.which(command[0], path=environment.get("PATH", "")) or ""
        row.python = called or processes.link(pid, "exe")
        row.gate_job = environment.get(queue.MARK, "")
        row.origin = self._origin(pid, environment)
        row.container = processes.link(pid, "ns/mnt") != processes.link(os.getpid(), "ns/mnt")
        if row.container:
            with contextlib.suppress(OSError):
                names = re.findall(r"[0-9a-f]{64}", Path(f"/proc/{pid}/cgroup").read_text(errors="replace"))
                row.container_id = names[0] if names else ""
        row.log = outputs.log(members)
        written = (path for member in members for path in open_files.written_by(member))
        row.outputs = list(dict.fromkeys(path for path in written if _OUTPUT.search(path)))[:_OUTPUTS]
        return row

    def _origin(self, pid: int, environment: Mapping[str, str]) -> str:
        """Who started it: the nearest known starter, in its environment or among its ancestors."""
        if queue.MARK in environment:
            return f"gpu_gate {environment[queue.MARK]}"
        if "SLURM_JOB_ID" in environment:
            return f"slurm job {environment['SLURM_JOB_ID']}"
        for above in self.above(pid):
            if starter := _STARTERS.get(processes.comm(above)):
                return starter
        if "TMUX" in environment or "STY" in environment:
            return "tmux" if "TMUX" in environment else "screen"
        parent = self.parents.get(pid, 0)
        if parent <= 1:
            return "by hand, detached (its starter is gone)"
        return f"by hand, from {processes.comm(parent) or 'a hidden process'} {parent}"


def looks_like_training(command: list[str]) -> str:
    """By the command line of a python process alone."""
    program = _program(command)
    if _NEVER.search(program):
        return ""
    if _TRAINS.search(os.path.basename(program)) or os.path.basename(program) in _LAUNCHERS:
        return "its command line"
    own = command[: command.index("--")] if "--" in command else command
    return "its options" if any(_OPTIONS.match(word) for word in own) else ""


def _program(command: list[str]) -> str:
    """The script or module: `python -u -m pkg.train` is pkg.train, `python -c ...` is nothing."""
    words = iter(command[1:])
    for word in words:
        if word in ("-m", "-X", "-W"):
            value = next(words, "")
            if word == "-m":
                return value
        elif word == "-c":
            return ""
        elif not word.startswith("-"):
            return word
    name = os.path.basename(command[0])
    return name if name in _LAUNCHERS else ""
