"""What runs on the box: list a tree, take digests, send files from an offset on, receive files. Standard library only.

Each verb reads one line of JSON from stdin and answers on stdout, after a mark: lines of JSON, and frames (frames.py).
Starts in a few hundredths of a second: nothing but the standard library is imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, BinaryIO

from cargo import frames, tree

STAGE = ".rgt-push"
_ARTIFACT = re.compile(r".*\.(pt|pth|ckpt|safetensors|distcp|npz|bin)")


def request() -> dict[str, Any]:
    line = sys.stdin.buffer.readline()
    if not line:
        sys.exit(0)  # whoever connected needed nothing after all
    asked: dict[str, Any] = json.loads(line)
    answer = sys.stdout.buffer
    answer.write(frames.MARK)
    answer.flush()
    return asked


def say(data: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(data).encode() + b"\n")  # ASCII: a name that is not UTF-8 arrives as escapes


def existing(directory: str) -> str:
    root = os.path.realpath(os.path.expanduser(directory))
    if not os.path.isdir(root):
        sys.exit(f"error: there is no directory {directory}")
    return root


# -- list


def list_tree() -> None:
    asked = request()
    root = existing(asked["root"])
    say({"root": root, "rsync": tree.rsync_version(), **tree.facts(root, asked.get("env", ""))})
    for row in tree.walk(root, asked["exclude"]):
        say(row)
    say({"end": True})
    sys.stdout.buffer.flush()


def other_runs() -> None:
    """Run directories below a folder, or beside one, with the number of artifacts that each holds."""
    asked = request()
    root = existing(asked["root"])
    for folder, folders, names in os.walk(root):
        depth = os.path.relpath(folder, root).count(os.sep)
        if "run.json" in names:
            folders.clear()
            inside = [name for _, _, below in os.walk(folder) for name in below]
            count = sum(bool(_ARTIFACT.fullmatch(name)) for name in inside)
            say({"run": folder, "artifacts": count})
        elif depth >= asked["depth"]:
            folders.clear()
    say({"end": True})
    sys.stdout.buffer.flush()


# -- digests


def take_digests() -> None:
    with contextlib.suppress(OSError):
        os.nice(10)  # the copy, and whatever trains on the box, go first
    asked = request()
    root, paths = existing(asked["root"]), asked["paths"]
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        work = [pool.submit(_digest, root, number, path) for number, path in enumerate(paths)]
        for done in as_completed(work):
            say(done.result())
            sys.stdout.buffer.flush()
    say({"end": True})
    sys.stdout.buffer.flush()


def _digest(root: str, number: int, path: str) -> dict[str, Any]:
    state, buffer = hashlib.sha256(), bytearray(frames.CHUNK)
    try:
        with _open(root, path) as file:
            while count := file.readinto(buffer):
                state.update(memoryview(buffer)[:count])
            seen = os.fstat(file.fileno())
    except OSError as error:
        return {"i": number, "e": error.strerror}
    return {"i": number, "b": seen.st_size, "m": seen.st_mtime_ns, "s": state.hexdigest()}


def _open(root: str, path: str) -> Any:
    descriptor = os.open(os.path.join(root, path), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    return open(descriptor, "rb", buffering=0)


# -- send


def send() -> None:
    asked = request()
    root, out = existing(asked["root"]), sys.stdout.buffer
    for path, offset, prefix in asked["files"]:
        try:
            file = _open(root, path)
        except OSError as error:
            say({"e": error.strerror})
            continue
        with file:
            _send(file, offset, prefix, out)
    out.flush()


def _send(file: Any, offset: int, prefix: str, out: BinaryIO) -> None:
    """From `offset` on when the bytes before it are the ones that arrived there (by their digest), else from 0."""
    state = hashlib.sha256()
    if offset and not _same_prefix(file, offset, prefix, state):
        offset, state = 0, hashlib.sha256()
        file.seek(0)
    say({"o": offset})
    while data := file.read(frames.CHUNK):
        state.update(data)
        frames.write_chunk(out, data)
    frames.end_file(out)
    seen = os.fstat(file.fileno())
    say({"b": seen.st_size, "m": seen.st_mtime_ns, "s": state.hexdigest()})


def _same_prefix(file: Any, offset: int, prefix: str, state: Any) -> bool:
    left = offset
    while left and (data := file.read(min(left, frames.CHUNK))):
        state.update(data)
        left -= len(data)
    return not left and state.hexdigest() == prefix


# -- receive


def receive() -> None:
    """Into a folder of partial files that are named by their digest; a file is moved to its place when it is whole."""
    asked = request()
    root = os.path.abspath(os.path.expanduser(asked["root"]))
    stage = os.path.join(root, STAGE)
    try:
        os.makedirs(stage, exist_ok=True)
    except OSError as error:
        sys.exit(f"error: cannot make {root}: {error.strerror}")
    wanted: list[list[int]] = []
    first: dict[str, dict[str, Any]] = {}
    copies: list[tuple[int, dict[str, Any]]] = []
    for number, item in enumerate(asked["files"]):
        if _there(root, item):
            continue
        if first.setdefault(item["sha256"], item) is not item:
            copies.append((number, item))  # the same content under another name is sent once
            continue
        part = os.path.join(stage, item["sha256"])
        wanted.append([number, os.path.getsize(part) if os.path.exists(part) else 0])
    say({"wanted": wanted})
    sys.stdout.buffer.flush()
    for number, offset in wanted:
        say({"i": number, "e": _receive(root, stage, asked["files"][number], offset)})
        sys.stdout.buffer.flush()
    for number, item in copies:
        say({"i": number, "e": _copy(root, stage, first[item["sha256"]], item)})
    with contextlib.suppress(OSError):
        os.rmdir(stage)
    say({"end": True})
    sys.stdout.buffer.flush()


def _there(root: str, item: dict[str, Any]) -> bool:
    path = os.path.join(root, item["path"])
    with contextlib.suppress(OSError):
        if os.path.getsize(path) == item["bytes"]:
            with open(path, "rb") as file:
                same = bool(_file_digest(file) == item["sha256"])
            if same and stat.S_IMODE(os.stat(path).st_mode) != item["mode"]:
                os.chmod(path, item["mode"])
            return same
    return False


def _file_digest(file: BinaryIO) -> str:
    state = hashlib.sha256()
    while data := file.read(frames.CHUNK):
        state.update(data)
    return state.hexdigest()


def _receive(root: str, stage: str, item: dict[str, Any], offset: int) -> str | None:
    """None, or what was wrong; the stream is read to the file's end in any case."""
    part, path, problem = os.path.join(stage, item["sha256"]), os.path.join(root, item["path"]), None
    with open(part, "r+b" if offset else "wb") as file:
        file.seek(offset)
        for chunk in frames.read_chunks(sys.stdin.buffer):
            try:
                file.write(bytes(chunk) if isinstance(chunk, int) else chunk)
            except OSError as error:
                problem = problem or error.strerror
        file.truncate()
    if problem:
        return problem
    with open(part, "rb") as file:
        if _file_digest(file) != item["sha256"]:
            os.unlink(part)
            return "arrived with another sha256"
    return _settle(part, path, item)


def _copy(root: str, stage: str, source: dict[str, Any], item: dict[str, Any]) -> str | None:
    part = os.path.join(stage, item["sha256"])
    try:
        shutil.copyfile(os.path.join(root, source["path"]), part)
    except OSError as error:
        return error.strerror
    return _settle(part, os.path.join(root, item["path"]), item)


def _settle(part: str, path: str, item: dict[str, Any]) -> str | None:
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.chmod(part, item["mode"])
        os.utime(part, ns=(item["mtime_ns"], item["mtime_ns"]))
        os.replace(part, path)
    except OSError as error:
        return error.strerror
    return None


VERBS = {"list": list_tree, "runs": other_runs, "digests": take_digests, "send": send, "receive": receive}


def main() -> None:
    """python3 box.pyz cargo VERB"""
    if len(sys.argv) != 2 or sys.argv[1] not in VERBS:
        sys.exit(f"usage: box.pyz cargo {{{','.join(VERBS)}}}")
    try:
        VERBS[sys.argv[1]]()
    except (BrokenPipeError, frames.Cut):  # the other side is gone: it will come back and ask again
        os._exit(1)
    except OSError as error:
        sys.exit(f"error: cannot use {error.filename or 'the disk'}: {error.strerror}")
