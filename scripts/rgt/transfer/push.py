"""Push: the files git knows (or everything but rubbish), each compared by sha256 on the box before and after."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt import git, secrets
from rgt.errors import bad_input, lacking
from rgt.host.ssh import Place
from rgt.report import Finding
from rgt.transfer.boxside import CHUNK, excluded, sha256_of, walk
from rgt.transfer.connection import Connection
from rgt.transfer.delivery import Gauge

_RUBBISH = ".git .venv venv __pycache__ node_modules .mypy_cache .pytest_cache .ruff_cache *.pyc".split()


@dataclass
class Load:
    """What is to be sent, and what was."""

    root: Path
    files: list[dict[str, Any]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    by_git: bool = False
    sent: int = 0
    sent_bytes: int = 0
    drops: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(item["bytes"] for item in self.files)


def gather_load(root: Path, exclude: Sequence[str]) -> Load:
    """What git tracks, and what is new and not ignored; outside of a repository everything but rubbish."""
    if not root.is_dir():
        raise bad_input(f"{root} is not a directory; push takes the folder of the code, or - for a secret from stdin")
    words = git.command(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    load = Load(root)
    names: set[str] = set()
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(words, capture_output=True, timeout=120)
        load.by_git = done.returncode == 0
        names = {os.fsdecode(name) for name in done.stdout.split(b"\0") if name}
    if not load.by_git:
        rows = [row for row in walk(str(root), _RUBBISH) if row.get("why") != "excluded"]
        names = {path for row in rows for key in "plx" if (path := row.get(key))}  # file, link, neither
    for name in sorted(names):
        above = [name[:end] for end, letter in enumerate(name) if letter == "/"]
        if any(excluded(part, list(exclude)) for part in (name, *above)):
            continue
        if secrets.is_secret(name):
            line = f"push - {shlex.quote(f'HOST:{name}')} < {shlex.quote(name)}"
            fix = f"{line} puts it there from stdin, readable by its owner only"
            message = "is named like a credential and was not sent"
            load.findings.append(Finding("secret", "warn", message, name, fix=fix))
            continue
        with contextlib.suppress(FileNotFoundError):  # tracked, but deleted here
            seen = (root / name).lstat()
            if stat.S_ISLNK(seen.st_mode):
                message = f"is a link to {os.readlink(root / name)!r} and was not sent"
                fix = "push what it leads to by its own path"
                load.findings.append(Finding("unjudged", "info", message, name, fix=fix))
            elif stat.S_ISREG(seen.st_mode):  # not a submodule's folder or a socket
                row = {"path": name, "bytes": seen.st_size, "mtime_ns": seen.st_mtime_ns}
                mode = 0o755 if seen.st_mode & 0o100 else 0o644
                load.files.append({**row, "sha256": sha256_of(root / name), "mode": mode})
    if not load.files and not load.findings:
        raise bad_input(f"{root} holds no file to send")
    return load


# -- sending


def send(load: Load, place: Place, patience: float) -> None:
    """Until the box has every file with its sha256. A broken connection goes on where it was."""
    box = Connection(place.host, patience)

    def attempt() -> None:
        rows = box.answer("receive", root=place.path, files=load.files)
        head = next(rows, {})
        try:
            wanted = [(int(number), int(offset)) for number, offset in head["wanted"]]
            total = sum(load.files[number]["bytes"] - offset for number, offset in wanted)
            once = sorted({number for number, _ in wanted}) == [number for number, _ in wanted]
            if not once or any(n < 0 or not 0 <= offset <= load.files[n]["bytes"] for n, offset in wanted):
                raise ValueError
        except (KeyError, TypeError, ValueError, IndexError):
            raise box.strange(head) from None
        gauge = Gauge(total, f"push {place.text}")
        for number, offset in wanted:
            path, left = load.files[number]["path"], load.files[number]["bytes"] - offset
            with (load.root / path).open("rb") as file:
                file.seek(offset)
                while left:  # a file that became shorter is filled up with zeros, and fails by its digest
                    data = file.read(min(CHUNK, left)) or bytes(min(CHUNK, left))
                    box.write(data)
                    box.advance()
                    left -= len(data)
                    load.sent_bytes += len(data)
                    gauge.add(len(data))
            if problem := next(rows, {}).get("e"):
                load.failed.append((path, str(problem)))
            else:
                load.sent += 1
        for row in rows:
            raise box.strange(row)

    with contextlib.closing(box):
        box.again(attempt)
    load.drops = box.drops


def send_secret(data: bytes, place: Place, dry_run: bool) -> None:
    """From stdin into a file that only its owner can read: in no argument list, no log, no history."""
    if not data:
        raise bad_input("stdin is empty; a secret is piped in: push - HOST:FILE < FILE")
    if not place.host.name:
        raise bad_input("a secret is pushed to HOST:FILE")
    if dry_run:
        return
    path = place.path if "/" in place.path else f"./{place.path}"
    place.host.put(path, data, 0o600)
    seen = place.host.run(["sh", "-c", 'wc -c < "$0" && ls -l "$0"', path], expand=(3,))
    words = seen.out.split()
    if seen.code or words[:1] != [str(len(data))] or words[1][:10] != "-rw-------":
        raise lacking(f"{place.text} was written, and is not a file of mode 0600 there: {seen.sentence()}")
