"""What processes hold open: where a process logs to (a file, a pipe, a terminal), what it writes, who writes a path.

Example:
    Streams(pids, panes).log(members).path      panes: terminal -> name of the tmux pane that shows it
    written_by(pid)                          writers(["runs/x"])
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rgt.machine import processes

_MEMBERS = 16  # of a tree that are asked for a log
_DELETED = " (deleted)"
_READABLE = "file deleted pipe terminal".split()  # kinds of output, best first


class Output(NamedTuple):  # a box would compile for 7 ms what `dataclass` imports
    """Where stdout goes. `readable` is the path to open: it works for deleted files and inside containers."""

    kind: str  # file | deleted | pipe | terminal | null | socket | closed | hidden
    path: str = ""
    via: str = ""
    readable: str = ""


class Streams:
    def __init__(self, pids: Iterable[int], panes: Mapping[str, str]) -> None:
        self.pids, self.panes = list(pids), panes

    def log(self, members: list[int]) -> Output:
        """stdout of the root, else the first of its tree that writes to a file; stderr where stdout is thrown away."""
        outputs = []
        for pid in members[:_MEMBERS]:
            output, errors = self._output(pid, 1), self._output(pid, 2)
            outputs.append(errors if output.kind == "null" and errors.kind in ("file", "deleted") else output)
        ranked = [output for kind in _READABLE for output in outputs if output.kind == kind]
        return next((output for output in ranked if output.path), outputs[0])

    def _output(self, pid: int, number: int) -> Output:
        target = processes.link(pid, f"fd/{number}")
        if not target:
            return Output("closed" if os.access(f"/proc/{pid}/fd", os.R_OK) else "hidden")
        if target == os.devnull:
            return Output("null", target)
        if target.startswith("pipe:"):
            reader = next((other for other in self._readers.get(target, []) if other != pid), None)
            if reader is None:
                return Output("pipe", via="nobody reads it")
            name = f"{processes.comm(reader)} (pid {reader})"
            for held, path in processes.descriptors(reader) or []:  # `python train.py | tee run.log`
                if held != 2 and path.startswith("/") and _is_written(reader, held):
                    return Output("pipe", path.removesuffix(_DELETED), name, f"/proc/{reader}/fd/{held}")
            return Output("pipe", via=name)
        if target.startswith("socket:"):
            return Output("socket", via=target)
        if target.startswith(("/dev/pts/", "/dev/tty")):
            return Output("terminal", target, via=self.panes.get(target, ""))
        if not _is_regular(pid, number):
            return Output("hidden", target)
        kind = "deleted" if target.endswith(_DELETED) else "file"
        return Output(kind, target.removesuffix(_DELETED), readable=f"/proc/{pid}/fd/{number}")

    @functools.cached_property
    def _readers(self) -> dict[str, list[int]]:
        """Pipe -> who reads it."""
        found: dict[str, list[int]] = {}
        for pid in self.pids:
            for number, target in processes.descriptors(pid) or []:
                if target.startswith("pipe:") and not processes.writes_to(pid, number):
                    found.setdefault(target, []).append(pid)
        return found


def writers(paths: Iterable[str], of_owner: bool = False) -> list[int] | None:
    """Processes that have one of these files, or a file below one of these directories, open for writing.

    None when none was found but not every process may be asked; with `of_owner`, not every one of the files' owner.
    """
    files = {os.path.realpath(path) for path in paths}
    owners = {owner for path in files if (owner := _owner(path)) is not None} if of_owner else None
    folders = tuple(path + os.sep for path in files)
    in_containers = {os.path.basename(path): place for path in files if (place := _place(path))}
    found, blind = [], not os.path.isdir("/proc/self")
    for pid in [] if blind else processes.pids():
        held = processes.descriptors(pid)
        other = owners is not None and (pid == 1 or _owner(f"/proc/{pid}") not in owners)
        blind = blind or (held is None and not other)
        for number, target in held or []:
            known = target in files or target.startswith(folders)
            other_path = in_containers.get(os.path.basename(target))  # a container has its own names for our files
            if (known or (other_path and _place(f"/proc/{pid}/fd/{number}") == other_path)) and processes.writes_to(
                pid, number
            ):
                found.append(pid)
                break
    return sorted(found) or (None if blind else [])


def _place(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _owner(path: str) -> int | None:
    try:
        return os.stat(path).st_uid
    except OSError:
        return None


def written_by(pid: int) -> list[str]:
    """Regular files it holds open for writing, beside its standard streams."""
    held = [(number, path) for number, path in processes.descriptors(pid) or [] if number > 2 and path[:1] == "/"]
    plain = [(number, path) for number, path in held if not path.startswith(("/dev/", "/proc/", "/memfd:"))]
    return [path for number, path in plain if _is_written(pid, number)]


def _is_written(pid: int, number: int) -> bool:
    return processes.writes_to(pid, number) and _is_regular(pid, number)


def _is_regular(pid: int, number: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(f"/proc/{pid}/fd/{number}").st_mode)
    except OSError:
        return False
