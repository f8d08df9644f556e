"""Where a process writes: its log through files, pipes and terminals, and the other files that it holds open.

Example:
    streams = Streams(pids, panes)              panes: terminal -> name of the tmux pane that shows it
    streams.log(members).path                   written(pid)
"""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rgt import procs

_MEMBERS = 16  # of a tree that are asked for a log
_DELETED = " (deleted)"


@dataclass
class Output:
    """Where stdout goes. `readable` is the path to open: it works for deleted files and inside containers."""

    kind: str  # file | deleted | pipe | terminal | null | socket | closed | hidden
    path: str = ""
    via: str = ""
    readable: str = ""


class Streams:
    def __init__(self, pids: Iterable[int], panes: Mapping[str, str]) -> None:
        self.pids, self.panes = list(pids), panes

    def log(self, members: list[int]) -> Output:
        """stdout of the root, else the first of its tree that writes to a file."""
        outputs = [self._stdout(pid) for pid in members[:_MEMBERS]]
        for kind in ("file", "deleted", "pipe", "terminal"):
            for output in outputs:
                if output.kind == kind and (kind != "pipe" or output.path):
                    return output
        return outputs[0]

    def _stdout(self, pid: int) -> Output:
        """stderr counts where stdout is thrown away."""
        output = Output("hidden")
        for number in (1, 2):
            found = self._descriptor(pid, number)
            if found.kind in ("file", "deleted") or (number == 1 and found.kind != "null"):
                return found
            if output.kind == "hidden":
                output = found
        return output

    def _descriptor(self, pid: int, number: int) -> Output:
        target = procs.link(pid, f"fd/{number}")
        if not target:
            return Output("closed" if os.access(f"/proc/{pid}/fd", os.R_OK) else "hidden")
        if target == os.devnull:
            return Output("null", target)
        if target.startswith("pipe:"):
            return self._behind_pipe(pid, target)
        if target.startswith("socket:"):
            return Output("socket", via=target)
        if target.startswith(("/dev/pts/", "/dev/tty")):
            return Output("terminal", target, via=self.panes.get(target, ""))
        if not _is_regular(pid, number):
            return Output("hidden", target)
        return _file("deleted" if target.endswith(_DELETED) else "file", pid, number, target)

    def _behind_pipe(self, pid: int, pipe: str) -> Output:
        """Follow a pipe to the file its reader writes: `python train.py | tee run.log`."""
        reader = next((other for other in self._readers.get(pipe, []) if other != pid), None)
        if reader is None:
            return Output("pipe", via="nobody reads it")
        name = f"{procs.comm(reader)} (pid {reader})"
        for number, target in procs.descriptors(reader) or []:
            if number != 2 and target.startswith("/") and _is_written(reader, number):
                return _file("pipe", reader, number, target, via=name)
        return Output("pipe", via=name)

    @functools.cached_property
    def _readers(self) -> dict[str, list[int]]:
        """Pipe -> who reads it."""
        found: dict[str, list[int]] = {}
        for pid in self.pids:
            for number, target in procs.descriptors(pid) or []:
                if target.startswith("pipe:") and not procs.writes_to(pid, number):
                    found.setdefault(target, []).append(pid)
        return found


def written(pid: int) -> list[str]:
    """Regular files it holds open for writing, beside its standard streams."""
    return [
        target
        for number, target in procs.descriptors(pid) or []
        if number > 2
        and target.startswith("/")
        and not target.startswith(("/dev/", "/proc/", "/memfd:"))
        and _is_written(pid, number)
    ]


def _file(kind: str, pid: int, number: int, target: str, via: str = "") -> Output:
    return Output(kind, target.removesuffix(_DELETED), via, f"/proc/{pid}/fd/{number}")


def _is_written(pid: int, number: int) -> bool:
    return procs.writes_to(pid, number) and _is_regular(pid, number)


def _is_regular(pid: int, number: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(f"/proc/{pid}/fd/{number}").st_mode)
    except OSError:
        return False
