"""What runs on the box: `python3 box.pyz transfer` answers questions until its stdin ends. Standard library only.

A question is one line of JSON, {"verb": ..., ...}; its answer is lines of JSON up to {"end": true}. `send` puts raw
bytes behind each line that announces them, `receive` reads raw bytes. A path is never taken from a stream of bytes.
"""

from __future__ import annotations

import contextlib
import fnmatch
import hashlib
import io
import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rgt.checkpoint.names import is_artifact
from rgt.machine import open_files, processes
from rgt.run.record import AFTER_EVENT
from rgt.transfer.disk_sweep import examine_disks, true_size

MARK = b"rgt-transfer-2\n"  # before it, a login script may have printed anything
CHUNK = 1 << 20
STAGE = ".rgt-push"
OURS = (".rgt-pull", STAGE, "PULL_MANIFEST.json", "PULL_VERIFIED.json", "PULL_VERIFIED.json.stale")
_RUN_JSON = 4 << 20  # bytes; a larger one is not ours
_SHOWN = 20  # processes
_SIZE_SECONDS = 20.0  # to add up a folder that is left out

Row = dict[str, Any]


def main() -> None:
    out = sys.stdout.buffer
    try:
        out.write(MARK)
        out.flush()
        while line := sys.stdin.buffer.readline():
            asked = json.loads(line)
            for row in VERBS[asked.pop("verb")](**asked):
                # ASCII: a name that is not UTF-8 travels as escapes
                out.write(row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n")
            out.write(b'{"end": true}\n')
            out.flush()
    except (BrokenPipeError, EOFError):  # the other side is gone: it will come back and ask again
        os._exit(1)
    except OSError as error:
        sys.exit(f"error: cannot use {error.filename or 'the disk'}: {error.strerror}")


def _existing(directory: str) -> str:
    root = os.path.realpath(os.path.expanduser(directory))
    if not os.path.isdir(root):
        sys.exit(f"error: there is no directory {directory}")
    return root


def open_plain(path: str | os.PathLike[str]) -> io.FileIO:
    """For reading, and not through a link."""
    return io.FileIO(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC))


def sha256_of(path: str | os.PathLike[str]) -> str:
    state, buffer = hashlib.sha256(), bytearray(CHUNK)
    with open_plain(path) as file:
        while count := file.readinto(buffer):
            state.update(memoryview(buffer)[:count])
    return state.hexdigest()


# -- what is there


def list_tree(root: str, exclude: list[str], env: str) -> Iterator[Row]:
    """First what is known of the run, then one row for each file, link or thing that cannot be copied."""
    root = _existing(root)
    head: Row = {"root": root, "record": None, "last_event": None, "env": ""}
    with contextlib.suppress(OSError, ValueError):
        path = os.path.join(root, "run.json")
        if os.path.getsize(path) <= _RUN_JSON:
            with open(path, encoding="utf-8") as file:
                head["record"] = json.load(file)
    with contextlib.suppress(OSError), open(os.path.join(root, "events.jsonl"), "rb") as lines:
        for line in lines:
            with contextlib.suppress(ValueError, TypeError, KeyError):
                word = json.loads(line)["event"]
                head["last_event"] = word if word in AFTER_EVENT else head["last_event"]
    if env:  # a container's variables belong to its first process; an ssh session often has none of them
        head["env"] = os.environ.get(env) or processes.environment(1).get(env, "")
    pids = open_files.writers([root]) or []
    yield {**head, "writers": [f"{pid} ({' '.join(processes.command(pid))[:80]})" for pid in pids[:_SHOWN]]}
    yield from walk(root, exclude)


def excluded(path: str, patterns: list[str]) -> bool:
    """A pattern is a name or a path with * and ?; what is below an excluded folder is excluded, too."""
    name = path.rpartition("/")[2]
    return any(fnmatch.fnmatchcase(part, pattern.strip("/")) for pattern in patterns for part in (path, name))


def walk(root: str, exclude: list[str]) -> Iterator[Row]:
    """One row per file, link or thing that cannot be copied. Links are never followed."""
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            names = sorted(os.listdir(os.path.join(root, folder)))
        except OSError as error:
            yield {"x": folder or ".", "why": "unreadable", "say": error.strerror}
            continue
        below = []
        for path in (f"{folder}/{name}" if folder else name for name in names):
            if path in OURS:
                continue
            with contextlib.suppress(FileNotFoundError):  # gone since it was listed
                seen = os.lstat(os.path.join(root, path))
                is_folder = stat.S_ISDIR(seen.st_mode)
                if excluded(path, exclude):
                    size = true_size(os.path.join(root, path), _SIZE_SECONDS)["b"] if is_folder else seen.st_size
                    yield {"x": path, "why": "excluded", "b": size}
                elif is_folder:
                    below.append(path)
                else:
                    yield _row(root, path, seen)
        folders += reversed(below)


def _row(root: str, path: str, seen: os.stat_result) -> Row:
    full = os.path.join(root, path)
    if stat.S_ISLNK(seen.st_mode):
        raw, target = os.readlink(full), os.path.realpath(full)
        if not os.path.exists(target):
            return {"x": path, "why": "broken", "say": raw}
        if target != root and not target.startswith(root + os.sep):
            return {"x": path, "why": "outside", "say": raw}
        return {"l": path, "t": os.path.relpath(target, root)}
    if not stat.S_ISREG(seen.st_mode):
        return {"x": path, "why": "special"}
    if not os.access(full, os.R_OK):
        return {"x": path, "why": "unreadable", "say": "Permission denied"}
    return {"p": path, "b": seen.st_size, "m": seen.st_mtime_ns, "o": stat.S_IMODE(seen.st_mode)}


def list_runs(root: str, depth: int) -> Iterator[Row]:
    """Run directories below a folder, with the number of artifacts that each holds."""
    root = _existing(root)
    for folder, folders, names in os.walk(root):
        if "run.json" in names:
            folders.clear()
            inside = [name for _, _, below in os.walk(folder) for name in below]
            yield {"run": folder, "artifacts": sum(is_artifact(name) for name in inside)}
        elif os.path.relpath(folder, root).count(os.sep) >= depth:
            folders.clear()


# -- contents


def send(root: str, files: list[tuple[str, int, int]]) -> Iterator[Row | bytes]:
    """Of each (path, offset, size) the bytes from offset to size, and then the digest of it all.

    A file that is there already is asked for from its end on: then only its digest travels.
    """
    root = _existing(root)
    for number, (path, offset, size) in enumerate(files):
        state, position = hashlib.sha256(), 0
        try:
            file = open_plain(os.path.join(root, path))
        except OSError:  # gone, or not readable: the next listing says it
            continue
        with file:
            while position < size and (data := file.read(min(CHUNK, size - position))):
                state.update(data)
                position += len(data)
                fresh = data[max(0, len(data) - (position - offset)) :] if position > offset else b""
                if fresh:
                    yield {"i": number, "o": position - len(fresh), "n": len(fresh)}
                    yield fresh
            seen = os.fstat(file.fileno())
        yield {"i": number, "b": seen.st_size, "m": seen.st_mtime_ns, "s": state.hexdigest()}


def receive(root: str, files: list[Row]) -> Iterator[Row]:
    """Say from which offset each file is wanted, read exactly that from stdin, put each whole file in its place."""
    root = os.path.abspath(os.path.expanduser(root))
    stage = os.path.join(root, STAGE)
    os.makedirs(stage, exist_ok=True)
    wanted = []
    for number, item in enumerate(files):
        path = os.path.join(root, item["path"])
        name = hashlib.sha256(os.fsencode(item["path"]) + item["sha256"].encode()).hexdigest()
        item["part"] = os.path.join(stage, name)  # of this version of this file
        with contextlib.suppress(OSError):
            if os.path.getsize(path) == item["bytes"] and sha256_of(path) == item["sha256"]:
                os.chmod(path, item["mode"])
                continue
        wanted.append((number, os.path.getsize(item["part"]) if os.path.exists(item["part"]) else 0))
    yield {"wanted": wanted}
    sys.stdout.buffer.flush()
    for number, offset in wanted:
        yield {"i": number, "e": _receive(os.path.join(root, files[number]["path"]), files[number], offset)}
        sys.stdout.buffer.flush()
    with contextlib.suppress(OSError):
        os.rmdir(stage)


def _receive(path: str, item: Row, offset: int) -> str | None:
    """What was wrong; the file's bytes are read from stdin in any case."""
    part, left, problem = item["part"], item["bytes"] - offset, None
    with open(part, "r+b" if offset else "wb") as file:
        file.seek(offset)  # not at its end: one whose connection broke may still be writing the same bytes
        while left:
            data = sys.stdin.buffer.read(min(CHUNK, left))
            if not data:
                raise EOFError
            left -= len(data)
            try:
                file.write(data)
            except OSError as error:
                problem = problem or error.strerror
    try:
        if not problem and sha256_of(part) != item["sha256"]:
            os.unlink(part)
            problem = "arrived with another sha256"
        if not problem:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.chmod(part, item["mode"])
            os.utime(part, ns=(item["mtime_ns"], item["mtime_ns"]))
            os.replace(part, path)
    except OSError as error:
        return error.strerror
    return problem


VERBS: dict[str, Callable[..., Iterator[Row | bytes]]]
VERBS = {"list": list_tree, "runs": list_runs, "send": send, "receive": receive, "disks": examine_disks}
