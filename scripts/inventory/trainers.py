"""The training processes of this machine, however they were started: found in /proc, one row per process tree.

Example:
    for row in find(gpu_processes): row.pid, row.command, row.cwd, row.python, row.elapsed, row.log, row.origin

The log is where stdout really goes (streams.py). Only reads.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from inventory import ckpt, streams
from inventory.streams import Output, Streams
from rgt import gate, procs

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
_SECRET = re.compile(
    r"(?i)((?:api[-_]?key|(?:auth|access|hf|wandb|github)[-_]?token|secret|password)[=\s]+)\S+"
    r"|\b(?:hf_|sk-|ghp_|github_pat_)\w{8,}"
)
# ancestors that tell who started it; the kernel keeps 15 letters of a name
_STARTERS = {
    "tmux: server": "tmux", "screen": "screen", "SCREEN": "screen", "tsp": "tsp", "slurmstepd": "slurm", "cron": "cron",
    "crond": "cron", "atd": "at", "containerd-shim": "a container",
    "sshd": "an ssh login", "sshd-session": "an ssh login", "jupyter-lab": "jupyter", "jupyter-noteboo": "jupyter",
}  # fmt: skip


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
        return {**asdict(self), "command": [redact(word) for word in self.command], "text": self.text}


def redact(text: str) -> str:
    """Without the values of keys and tokens: a snapshot ends up in transcripts and hand-over files."""
    return _SECRET.sub(lambda match: f"{match[1] or ''}***", text)


def find(gpu_memory: Mapping[int, Mapping[int, int | None]], panes: Mapping[str, str] | None = None) -> list[Trainer]:
    """`gpu_memory`: pid -> GPU index -> bytes. `panes`: terminal -> name of the tmux pane that shows it."""
    table = _Table()
    reasons = {pid: why for pid in table.commands if (why := table.reason(pid, pid in gpu_memory))}
    oldest_first = sorted(reasons, key=lambda pid: (table.starts[pid], pid))
    roots = dict.fromkeys(table.root(pid, reasons) for pid in oldest_first)
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
        self.children: dict[int, list[int]] = {}
        for pid in procs.pids():
            self._add(pid)
        self.mine = {os.getpid(), *self._above(os.getpid())}

    def _add(self, pid: int) -> None:
        parent, start = procs.parent(pid), procs.start_time(pid)
        if parent is None or start is None:  # it ended while we looked
            return
        self.parents[pid], self.starts[pid] = parent, start
        self.children.setdefault(parent, []).append(pid)
        if command := procs.command(pid):  # a zombie has none
            self.commands[pid] = command

    # -- which ones

    def reason(self, pid: int, on_gpu: bool) -> str:
        """Why this process counts as training; empty when it does not."""
        if pid in self.mine:
            return ""
        if on_gpu:
            return "uses a GPU"
        command = self.commands[pid]
        if not _is_python(pid, command) or _NEVER.search(_program(command)):
            return ""
        if why := looks_like_training(command):
            return why
        if any(_is_training_file(path) for path in streams.written(pid)):
            return "the files it writes"
        return "its libraries" if _maps_torch(pid) else ""

    def root(self, pid: int, reasons: Mapping[int, str]) -> int:
        """The topmost training process above it: torchrun for a worker, the main process for a data loader."""
        top = pid
        for above in self._above(pid):
            if above in reasons:
                top = above
        return top

    def _above(self, pid: int) -> Iterable[int]:
        """Its parent, the parent of that, and so on."""
        seen = {pid}
        while (pid := self.parents.get(pid, 0)) and pid not in seen:
            seen.add(pid)
            yield pid

    def tree(self, root: int) -> list[int]:
        found, edge = [root], [root]
        while edge:
            edge = [child for pid in edge for child in self.children.get(pid, [])]
            found += edge
        return found

    # -- what they are

    def row(self, pid: int, why: str, outputs: Streams) -> Trainer:
        members = self.tree(pid)
        environment = procs.environment(pid)
        cwd = procs.link(pid, "cwd")
        row = Trainer(pid, self.parents[pid], self.commands[pid], why, members=members, cwd=cwd)
        row.user = _user(pid)
        row.state = procs.state(pid)
        row.elapsed = max(0.0, _uptime() - self.starts[pid] / os.sysconf("SC_CLK_TCK"))
        row.python = _interpreter(pid, self.commands[pid], cwd, environment)
        row.gate_job = environment.get(gate.MARK, "")
        row.origin = self._origin(pid, environment)
        row.container = procs.link(pid, "ns/mnt") != procs.link(os.getpid(), "ns/mnt")
        row.container_id = _container_id(pid) if row.container else ""
        row.log = outputs.log(members)
        row.outputs = _unique(path for member in members for path in streams.written(member) if _OUTPUT.search(path))
        return row

    def _origin(self, pid: int, environment: Mapping[str, str]) -> str:
        """Who started it: the nearest known starter, in its environment or among its ancestors."""
        if gate.MARK in environment:
            return f"gpu_gate {environment[gate.MARK]}"
        if "SLURM_JOB_ID" in environment:
            return f"slurm job {environment['SLURM_JOB_ID']}"
        for above in self._above(pid):
            starter = _STARTERS.get(procs.comm(above))
            if starter:
                return starter
        if "TMUX" in environment or "STY" in environment:
            return "tmux" if "TMUX" in environment else "screen"
        parent = self.parents.get(pid, 0)
        if parent <= 1:
            return "by hand, detached (its starter is gone)"
        return f"by hand, from {procs.comm(parent) or 'a hidden process'} {parent}"


def looks_like_training(command: list[str]) -> str:
    """By the command line of a python process alone."""
    program = _program(command)
    if _NEVER.search(program):
        return ""
    if _TRAINS.search(os.path.basename(program)) or os.path.basename(program) in _LAUNCHERS:
        return "its command line"
    own = command[: command.index("--")] if "--" in command else command
    return "its options" if any(_OPTIONS.match(word) for word in own) else ""


def _is_python(pid: int, command: list[str]) -> bool:
    names = (os.path.basename(procs.link(pid, "exe")), os.path.basename(command[0]))
    return any(name.startswith(("python", "pypy")) or name in _LAUNCHERS for name in names)


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


def _is_training_file(path: str) -> bool:
    name = os.path.basename(path)
    return ckpt.is_checkpoint(name) or "tfevents" in name or name.endswith(".wandb") or name == "metrics.jsonl"


def _maps_torch(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            text = file.read(_MAPS)
    except OSError:
        return False
    return any(library in text for library in _LIBRARIES)


def _interpreter(pid: int, command: list[str], cwd: str, environment: Mapping[str, str]) -> str:
    """As it was called: /proc/PID/exe names the base interpreter behind a virtual environment's link."""
    word = command[0]
    if "/" in word:
        return os.path.normpath(os.path.join(cwd, word))
    for folder in environment.get("PATH", "").split(os.pathsep):
        candidate = os.path.join(folder, word)
        if folder and os.access(candidate, os.X_OK):
            return candidate
    return procs.link(pid, "exe")


def _container_id(pid: int) -> str:
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text(errors="replace")
    except OSError:
        return ""
    name = re.search(r"[0-9a-f]{64}", groups)
    return name[0] if name else ""


def _user(pid: int) -> str:
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _uptime() -> float:
    """Since boot, on the clock that process start times use."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _unique(paths: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(paths))[:_OUTPUTS]
