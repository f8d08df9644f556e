"""Copies without rsync: one stream of all files, each from the offset that is here already, its digest behind it.

The box checks the digest of the part we have before it goes on from there; if that differs, it sends the file anew.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable
from typing import IO, Any

from cargo import frames, wire
from cargo.by_rsync import full_disk
from cargo.roster import Entry, Roster
from cargo.stage import Stage
from rgt.errors import bad_input, from_os_error

_GROWTH = 64 << 20  # bytes by which a log may have grown since it was listed


def move(found: Roster, todo: list[Entry], stage: Stage, shown: Callable[[int], None]) -> None:
    """One connection. Returns when every file was sent; raises wire.Dropped when it broke."""
    here = []  # of each file: how many bytes, and their digest
    for entry in todo:
        try:
            here.append(_here(stage, entry))
        except OSError as error:
            raise from_os_error(error, f"write {stage.part(entry)}") from None
    asked = [
        [entry.path, offset, state.hexdigest() if offset else ""]
        for entry, (offset, state) in zip(todo, here, strict=True)
    ]
    keep_open = (stage.lock.fileno(),) if stage.lock else ()
    count = 0

    def tick(more: int) -> None:
        nonlocal count
        count += more
        shown(count)

    with wire.Session(found.host, "send", keep_open) as session:
        session.ask({"root": found.root, "files": asked})
        for entry, (offset, state) in zip(todo, here, strict=True):
            _take(session, entry, offset, state, stage, tick)


def _here(stage: Stage, entry: Entry) -> tuple[int, Any]:
    state, size = hashlib.sha256(), 0
    path = stage.ready(entry)
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        while data := file.read(frames.CHUNK):
            state.update(data)
            size += len(data)
    return size, state


def _take(
    session: wire.Session, entry: Entry, offset: int, state: Any, stage: Stage, tick: Callable[[int], None]
) -> None:
    head = session.line()
    if "e" in head:  # gone, or not readable: the next listing tells
        return
    if head.get("o") not in (0, offset):
        raise session.strange(head)
    if head["o"] == 0:
        state = hashlib.sha256()
    try:
        descriptor = os.open(stage.part(entry), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            file.truncate(head["o"])
            file.seek(head["o"])
            _write(session, entry, file, state, tick)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise full_disk(str(stage.part(entry))) from None
        raise from_os_error(error, f"write {stage.part(entry)}") from None
    tail = session.line()
    if state.hexdigest() != tail.get("s"):
        stage.part(entry).unlink()  # damaged on its way: sent anew in the next round
    elif (tail.get("b"), tail.get("m")) == (entry.bytes, entry.mtime_ns):
        stage.know(*entry.version, tail["s"])
        stage.settle(entry)


def _write(session: wire.Session, entry: Entry, file: IO[bytes], state: Any, tick: Callable[[int], None]) -> None:
    size = file.tell()
    try:
        for chunk in frames.read_chunks(session.output):
            zeros = isinstance(chunk, int)
            data = bytes(chunk) if isinstance(chunk, int) else chunk
            state.update(data)
            size += len(data)
            if size > entry.bytes + _GROWTH:
                raise bad_input(f"{session.host.title} sends more of {entry.path[:100]!r} than it listed")
            if zeros:
                file.seek(len(data), os.SEEK_CUR)  # a hole stays a hole
            else:
                _all(file, data)
            tick(len(data))
        file.truncate(size)
    except frames.Cut:
        session.fail()


def _all(file: IO[bytes], data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]
