"""A tree on the box, and what is known of the run in it: files, links, events, who writes there. Standard library only.

Also used here: both sides leave out the same names, and ask the same question of their rsync.
"""

from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from typing import Any

from rgt.ids import LIFE

OURS = (".rgt-pull", ".rgt-push", "PULL_MANIFEST.json", "PULL_VERIFIED.json", "PULL_VERIFIED.json.stale")
_RUN_JSON = 4 << 20  # bytes; a larger one is not ours
_SHOWN = 20


def facts(root: str, variable: str) -> dict[str, Any]:
    """What is known about the run besides its files."""
    found: dict[str, Any] = {"record": None, "last_event": last_event(root), "writers": writers(root)}
    with contextlib.suppress(OSError, ValueError):
        path = os.path.join(root, "run.json")
        if os.path.getsize(path) <= _RUN_JSON:
            with open(path, encoding="utf-8") as file:
                found["record"] = json.load(file)
    if variable:
        found["env"] = os.environ.get(variable) or _environment_of_init(variable)
    return found


def _environment_of_init(variable: str) -> str:
    """A container's variables are given to its first process; an ssh session often has none of them."""
    with contextlib.suppress(OSError), open("/proc/1/environ", "rb") as file:
        for entry in file.read().split(b"\0"):
            name, _, value = entry.partition(b"=")
            if os.fsdecode(name) == variable:
                return os.fsdecode(value)
    return ""


def last_event(root: str) -> str | None:
    last = None
    with contextlib.suppress(OSError), open(os.path.join(root, "events.jsonl"), "rb") as file:
        for line in file:
            with contextlib.suppress(ValueError, TypeError, KeyError):
                word = json.loads(line)["event"]
                last = word if word in LIFE else last
    return last


def writers(root: str) -> list[str]:
    """Processes that have a file below `root` open for writing."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else []):
        with contextlib.suppress(OSError):
            if any(_writes_below(pid, name, root) for name in os.listdir(f"/proc/{pid}/fd")):
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = os.fsdecode(file.read().replace(b"\0", b" ")).strip()
                found.append(f"{pid} ({words[:80]})")
    return found[:_SHOWN]


def _writes_below(pid: str, name: str, root: str) -> bool:
    """One that was closed since does not: it must not hide the others of its process."""
    with contextlib.suppress(OSError):
        if os.readlink(f"/proc/{pid}/fd/{name}").startswith(root + os.sep):
            with open(f"/proc/{pid}/fdinfo/{name}", encoding="ascii") as file:
                return any(int(line.split()[1], 8) & os.O_ACCMODE for line in file if line.startswith("flags:"))
    return False


def rsync_version() -> str | None:
    """Of the real one; macOS has another program of that name (openrsync), which cannot resume by appending."""
    if not shutil.which("rsync"):
        return None
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        said = subprocess.run(["rsync", "--version"], capture_output=True, text=True, timeout=20).stdout
        found = re.match(r"rsync +version v?(\d+\.\d+[\w.]*)", said)
        return found[1] if found else None
    return None


def walk(root: str, exclude: list[str]) -> Iterator[dict[str, Any]]:
    """One row per file, link or thing that cannot be copied. Links are never followed."""
    hard: dict[tuple[int, int], str] = {}
    stack = [""]
    while stack:
        folder = stack.pop()
        try:
            with os.scandir(os.path.join(root, folder)) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            yield {"x": folder or ".", "why": "unreadable", "say": error.strerror}
            continue
        below = []
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if path in OURS:
                continue
            directory = entry.is_dir(follow_symlinks=False)
            if excluded(path, exclude):
                yield {"x": path, "why": "excluded", **({} if directory else {"b": _size(entry)})}
            elif directory:
                below.append(path)
            else:
                yield from _row(root, path, entry, hard)
        stack += reversed(below)


def _size(entry: os.DirEntry[str]) -> int:
    with contextlib.suppress(OSError):
        return entry.stat(follow_symlinks=False).st_size
    return 0


def excluded(path: str, patterns: list[str]) -> bool:
    """A pattern is a name or a path with * and ?; what is below an excluded folder is excluded, too."""
    name = path.rpartition("/")[2]
    return any(fnmatch.fnmatchcase(part, pattern.strip("/")) for pattern in patterns for part in (path, name))


def _row(root: str, path: str, entry: os.DirEntry[str], hard: dict[tuple[int, int], str]) -> Iterator[dict[str, Any]]:
    try:
        seen = entry.stat(follow_symlinks=False)
        link = _link(root, path) if stat.S_ISLNK(seen.st_mode) else None
    except OSError:  # gone since
        return
    if link:
        yield link
        return
    if not stat.S_ISREG(seen.st_mode):
        yield {"x": path, "why": "special"}
        return
    if not os.access(os.path.join(root, path), os.R_OK):
        yield {"x": path, "why": "unreadable", "say": "Permission denied"}
        return
    row = {"p": path, "b": seen.st_size, "m": seen.st_mtime_ns, "o": stat.S_IMODE(seen.st_mode)}
    if seen.st_nlink > 1:
        first = hard.setdefault((seen.st_dev, seen.st_ino), path)
        if first != path:
            row["h"] = first
    if seen.st_blocks * 512 < seen.st_size // 2:
        row["s"] = 1
    yield row


def _link(root: str, path: str) -> dict[str, Any]:
    full = os.path.join(root, path)
    raw = os.readlink(full)
    target = os.path.realpath(full)
    if not os.path.exists(target):
        return {"x": path, "why": "broken", "say": raw}
    if target != root and not target.startswith(root + os.sep):
        return {"x": path, "why": "outside", "say": raw}
    return {"l": path, "t": os.path.relpath(target, root)}
