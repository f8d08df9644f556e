"""Processes as /proc tells them: who lives, since when, whose child, started with what.

Example:
    mark = identify(pid)         {"pid": 4711, "start": 8123456}: a pid alone may have been given to another process
    alive(mark)                  descendants(pid)                     carrying("RGT_GATE_JOB", job_id)
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import resource
import signal
import stat
from collections.abc import Iterator

_FILE_LOCKS = 10  # RLIMIT_LOCKS: every child inherits it, and Linux has not enforced it since 2.4


def identify(pid: int) -> dict[str, int]:
    return {"pid": pid, "start": start_time(pid) or 0}


def alive(mark: dict[str, int] | None) -> bool:
    """Is this very process (not a later one with its number) still running? A zombie is not."""
    if not mark:
        return False
    fields = _stat(mark["pid"])
    return fields is not None and fields[0] not in "ZX" and int(fields[19]) == mark["start"]


def start_time(pid: int) -> int | None:
    """Clock ticks since boot."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def state(pid: int) -> str:
    """R runs, S sleeps, D waits for a disk, T is stopped, Z is dead; empty when it is gone."""
    fields = _stat(pid)
    return fields[0] if fields else ""


def parent(pid: int) -> int | None:
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def _stat(pid: int) -> list[str] | None:
    """/proc/PID/stat from the state on. The command before it may hold spaces and parentheses: cut at the last one."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return None


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def descendants(root: int) -> list[int]:
    """Children, their children, and so on; parents before children."""
    found, edge = [], [root]
    while edge:
        edge = [child for pid in edge for child in _children(pid)]
        found += edge
    return found


def _children(pid: int) -> list[int]:
    """From the kernel's own list of each thread, where it keeps one; else by looking through all processes."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(ProcessLookupError), open(f"/proc/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    except FileNotFoundError:  # it ended, or a kernel without these files
        return [child for child in pids() if parent(child) == pid] if os.path.exists(f"/proc/{pid}/stat") else []
    return found


def comm(pid: int) -> str:
    """The kernel's short name for it."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def link(pid: int, name: str) -> str:
    """Where /proc/PID/<name> leads; empty when it is gone or not ours to see."""
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return ""


def command(pid: int) -> list[str]:
    """The argument list; empty for a kernel thread, a zombie, or somebody else's hidden process."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    except OSError:
        return []


def environment(pid: int) -> dict[str, str]:
    """What the process was started with; empty when it is not ours to read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = (entry.partition(b"=") for entry in file.read().split(b"\0") if entry)
            return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    except OSError:
        return {}


def descriptors(pid: int) -> list[tuple[int, str]] | None:
    """What it holds open, each with the target of its link; None when it is not ours to see."""
    found = []
    try:
        for number in sorted(map(int, os.listdir(f"/proc/{pid}/fd"))):
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                found.append((number, os.readlink(f"/proc/{pid}/fd/{number}")))
    except PermissionError:
        return None
    except OSError:  # it ended
        return []
    return found


def writes_to(pid: int, number: int) -> bool:
    """The link's own permission bits are the mode the descriptor was opened with."""
    try:
        return bool(os.lstat(f"/proc/{pid}/fd/{number}").st_mode & stat.S_IWUSR)
    except OSError:
        return False


def carrying(name: str, value: str) -> Iterator[int]:
    """Living processes with name=value in their environment, or `branded` with the value."""
    brand = str(_brand(value))
    for pid in pids():
        marked = environment(pid).get(name) == value
        with contextlib.suppress(OSError), open(f"/proc/{pid}/limits", encoding="ascii") as file:
            words = next((line.split() for line in file if line.startswith("Max file locks")), [])
            marked = marked or words[3:4] == [brand]
        if marked and state(pid) not in ("", "Z"):
            yield pid


@contextlib.contextmanager
def branded(value: str) -> Iterator[None]:
    """What is started inside carries the value in a limit that Linux ignores: emptying the environment keeps it."""
    try:
        before = resource.getrlimit(_FILE_LOCKS)
        resource.setrlimit(_FILE_LOCKS, (_brand(value), before[1]))
    except (ValueError, OSError):  # a Mac has no such limit, or somebody set it lower: then the environment must do
        yield
        return
    try:
        yield
    finally:
        resource.setrlimit(_FILE_LOCKS, before)


def _brand(value: str) -> int:
    return 1 << 48 | int.from_bytes(hashlib.sha256(value.encode()).digest()[:6], "big")


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # Python names only the first and the last of the real-time signals
        return f"signal {number}"


def become_subreaper() -> None:
    """Descendants whose parent died become our children, even those that called setsid."""
    import ctypes  # only a supervisor needs it, and it is slow to import

    pr_set_child_subreaper = 36  # linux/prctl.h
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)
