"""What else is on the box's disks, and who still works there. It runs on the box: standard library only.

A file counts when it is in a run directory, large, named like weights, or changed since the run began. System folders
and package caches are left out, and each of them is named. Time and rows are bounded: what was not reached is said.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgt.machine import disks, gpus, processes

LARGE = 1_000_000  # bytes
WEIGHTS = tuple(
    """.pt .pth .ckpt .bin .safetensors .gguf .ggml .onnx .h5 .hdf5 .keras .msgpack .npy .npz .pkl .pickle .joblib
    .distcp .tflite .pb .params .pdparams .mlmodel .engine .orbax .cbm .ubj""".split()
)
SYSTEM = {f"/{name}" for name in "bin boot dev etc lib lib32 lib64 libx32 opt proc run sbin snap sys usr var".split()}
CACHES = set(
    """.cache .conda .config .cargo .cursor-server .git .ipynb_checkpoints .ipython .jupyter .local .npm .nv .rustup
    .ssh .triton .venv .vscode-server __pycache__ dist-packages lost+found node_modules site-packages""".split()
)
_INSTALLED = {"pyvenv.cfg", "conda-meta"}  # a folder with one of these is an installed Python
_MOUNTS = "/proc/self/mountinfo"
_HELD = 20  # processes
Row = dict[str, Any]


def is_inside(path: str, folders: list[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


@dataclass
class Question:
    """What `down` wants to know; paths may begin with ~ or $NAME."""

    run: str
    whole_disk: bool  # the run's own file system ends with the box
    roots: list[str]  # other places that end with it
    kept: list[str]  # places that outlive it
    abandoned: list[str]  # given up by name
    since: float  # when the run began
    seconds: float
    most: int  # rows

    def places(self) -> list[str]:
        """Where to look, as it is called here; a place inside another one of the same mount counts once."""
        table = disks.mounts() if os.path.exists(_MOUNTS) else []
        disk = disks.mount_of(Path(self.run), table)
        named = {_real(root) for root in self.roots}
        real = {root for root in named if os.path.isabs(root) and os.path.isdir(root)}
        real |= {disk.point if disk else "/"} if self.whole_disk else set()
        on = {root: disks.mount_of(Path(root), table) for root in real}
        return sorted(root for root in real if not is_inside(root, [o for o in real - {root} if on[o] == on[root]]))

    def counts(self, name: str, seen: os.stat_result, in_run: bool) -> bool:
        weighty = seen.st_size >= LARGE or name.lower().endswith(WEIGHTS)
        recent = seen.st_mtime >= self.since and not name.startswith(".")
        return stat.S_ISREG(seen.st_mode) and seen.st_size > 0 and (in_run or weighty or recent)


def _real(path: str) -> str:
    return os.path.realpath(os.path.expandvars(os.path.expanduser(path)))


def _named(path: str) -> str:
    """The thing of that name itself: a link that is given up does not give up what it leads to."""
    folder, name = os.path.split(os.path.abspath(os.path.expanduser(path)))
    return os.path.join(os.path.realpath(folder), name)


def sweep(asked: Question, places: list[str]) -> Iterator[Row]:
    """Rows: {"f": file}, {"run": folder}, {"left": folder}, {"denied": folder}, {"late": folder not reached}."""
    end, rows = time.monotonic() + asked.seconds, 0
    points = {mount.point for mount in disks.mounts()} if os.path.exists(_MOUNTS) else set()
    apart = [asked.run, *map(_real, asked.kept), *map(_named, asked.abandoned)]
    folders = [(place, False) for place in reversed(places)]
    while folders:
        folder, in_run = folders.pop()
        if time.monotonic() > end or rows > asked.most:
            yield {"late": folder}
            return
        try:
            names = sorted(os.listdir(folder))
        except OSError as error:
            yield {"denied": folder, "say": error.strerror}
            continue
        if _INSTALLED & set(names):
            yield {"left": folder}
            continue
        if "run.json" in names and not in_run:
            in_run = True
            yield {"run": folder}
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):  # gone since it was listed
                seen = os.lstat(path)
                if is_inside(path, apart):
                    continue
                if stat.S_ISDIR(seen.st_mode) and (path in SYSTEM or name in CACHES):
                    yield {"left": path}
                elif stat.S_ISDIR(seen.st_mode) and path not in points:
                    folders.append((path, in_run))
                elif asked.counts(name, seen, in_run):
                    rows += 1
                    yield {"f": path, "b": seen.st_size}


def true_size(path: str, seconds: float) -> Row:
    """Files and bytes below a path that is given up; `whole` is False when the time did not suffice."""
    end, path = time.monotonic() + seconds, _named(path)
    row: Row = {"given": path, "n": 0, "b": 0, "whole": True, "there": os.path.lexists(path)}
    if os.path.islink(path) or os.path.isfile(path):
        return {**row, "n": 1, "b": os.lstat(path).st_size}
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                row["b"] += os.lstat(os.path.join(folder, name)).st_size
                row["n"] += 1
            except OSError:
                continue
        if time.monotonic() > end:
            return {**row, "whole": False}
    return row


def examine_disks(**asked: Any) -> Iterator[Row]:
    """What is given up, what is there, who works there: one answer, because only together they are a state."""
    question = Question(**asked)
    for path in question.abandoned:
        yield true_size(path, question.seconds)
    places = question.places()
    yield {"roots": places}
    runs = [question.run]
    for row in sweep(question, places):
        runs += [row["run"]] if "run" in row else []
        yield row
    yield from busy([question.run, *places], runs)


def busy(roots: list[str], runs: list[str]) -> Iterator[Row]:
    """Processes that write to these disks, work in a run, or use a GPU; {"blind": n} were not ours to ask."""
    ours, blind = {os.getpid()}, 0
    above = os.getppid()
    while above > 1 and above not in ours:
        ours.add(above)
        above = processes.parent(above) or 0
    doing: dict[int, str] = {}
    for pid in processes.pids() if os.path.isdir("/proc/self") else []:
        if pid in ours:
            continue
        if is_inside(here := processes.link(pid, "cwd"), runs):
            doing[pid] = f"works in {here}"
        held = processes.descriptors(pid)
        blind += held is None
        for number, path in held or []:
            parts = path.split("/")
            system = "/" + parts[1] in SYSTEM if len(parts) > 1 else True
            if not system and is_inside(path, roots) and not CACHES & set(parts) and processes.writes_to(pid, number):
                doing[pid] = f"writes {path}"
    reading = gpus.read()
    doing |= {p.pid: f"uses GPU {gpu.index}" for gpu in reading.gpus for p in gpu.processes if p.type == "C"}
    for pid, what in sorted(doing.items())[:_HELD]:
        yield {"pid": pid, "what": what, "command": " ".join(processes.command(pid))[:80]}
    if blind:
        yield {"blind": blind}
    if reading.problem:
        yield {"sick": reading.problem}
