"""Copies with rsync: into the stage, by appending, so that what a killed connection brought is never sent again.

--append-verify compares the whole file, prefix included, and sends it anew when the prefix is not the box's. Only names
that were checked are asked for; links, devices, owners and modes are not taken over.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Callable

from cargo import tree, wire
from cargo.roster import Entry, Roster
from cargo.stage import Stage
from rgt import hosts
from rgt.errors import RgtError, lacking
from rgt.hosts import Done

_PROGRESS = re.compile(rb"([\d.,]+)\s+\d+%")
_IO_SECONDS = 60  # without a byte; a dead peer behind NAT never says good-bye
_FINE = (0, 23, 24)  # 23, 24: some files could not be read, or are gone; the next listing tells
_DROPPED = (10, 12, 13, 14, 20, 30, 35, 255)
_FULL_DISK = "No space left on device"


class Unusable(Exception):
    """rsync is there and cannot do it; the stream can."""


def usable(found: Roster) -> bool:
    """Both sides need the real one, 3.1 or newer."""
    versions = (tree.rsync_version(), found.rsync)
    return bool(found.host.name) and all(version and _new_enough(version) for version in versions)


def takes(entry: Entry) -> bool:
    """Not files with holes: rsync would send the zeros."""
    return not entry.sparse


def _new_enough(version: str) -> bool:
    major, minor = (int(part) for part in re.findall(r"\d+", version)[:2])
    return (major, minor) >= (3, 1)


def move(found: Roster, todo: list[Entry], stage: Stage, shown: Callable[[int], None]) -> None:
    """One connection. Returns when rsync is done; raises wire.Dropped when it broke."""
    for entry in todo:
        stage.ready(entry)
        stage.drop_stale(entry)
    listed = b"".join(b"./" + os.fsencode(entry.path) + b"\0" for entry in todo)
    try:
        code, said = _run(_words(found, stage), listed, stage, shown)
    finally:
        _harvest(todo, stage)
    _judge(found, code, said)


def _words(found: Roster, stage: Stage) -> list[str]:
    user, at, address = found.host.name.rpartition("@")
    address = f"[{address}]" if ":" in address else address
    root = found.root.rstrip("/") + "/"
    return ["rsync", "-t", "--append-verify", "-s", "--files-from=-", "--from0", "--no-implied-dirs",
            "--info=progress2", f"--timeout={_IO_SECONDS}", "-e", shlex.join(found.host.ssh_words()), "--",
            f"{user}{at}{address}:{root}", f"{stage.parts.absolute()}/"]  # fmt: skip


def _run(words: list[str], listed: bytes, stage: Stage, shown: Callable[[int], None]) -> tuple[int, str]:
    keep_open = (stage.lock.fileno(),) if stage.lock else ()
    with tempfile.TemporaryFile() as names, tempfile.TemporaryFile() as errors:
        names.write(listed)
        names.seek(0)
        process = subprocess.Popen(words, stdin=names, stdout=subprocess.PIPE, stderr=errors, pass_fds=keep_open,
                                   env={**os.environ, "LC_ALL": "C"}, start_new_session=True)  # fmt: skip
        try:
            assert process.stdout is not None
            while data := os.read(process.stdout.fileno(), 1 << 16):
                if seen := _PROGRESS.findall(data):
                    shown(int(re.sub(rb"\D", b"", seen[-1])))
            code = process.wait()
        finally:
            process.terminate()
            process.wait()
        errors.seek(0)
        return code, errors.read().decode(errors="replace")


def _harvest(entries: list[Entry], stage: Stage) -> None:
    """rsync sets a file's time when it is whole; until then it is a part."""
    for entry in entries:
        if stage.whole(entry):
            stage.settle(entry)


def _judge(found: Roster, code: int, said: str) -> None:
    if code in _FINE and _FULL_DISK not in said:
        return
    if _FULL_DISK in said:
        raise full_disk(stage_name(said))
    done = Done(code, "", said)
    problem = hosts.failure(found.host, Done(hosts.LOST, "", said))
    if problem:
        raise problem
    if "is your shell clean" in said or "command not found" in said or code in (1, 2, 4, 127):
        raise Unusable(done.sentence())
    if code in _DROPPED or code < 0:
        raise wire.Dropped(said.strip().splitlines()[0] if said.strip() else "the connection was lost")
    raise RgtError(f"rsync failed: {done.sentence()}")


def stage_name(said: str) -> str:
    found = re.search(r'on "(.*?)"', said)
    return found[1] if found else "the disk here"


def full_disk(where: str) -> RgtError:
    return lacking(f"the disk here is full: cannot write {where}: {_FULL_DISK}; what has arrived is kept: make room, "
                   "then run the same command again")  # fmt: skip
