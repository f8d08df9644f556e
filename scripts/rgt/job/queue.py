"""The queue directory of gpu_gate: jobs, the line they wait in, and the locks. There is no daemon behind it.

    jobs/<id>.json     the record: what was asked, what happened
    jobs/<id>.lock     flock held by the gate and by the job's process tree: free means nobody of it lives
    jobs/<id>.log      what the job printed
    line/<number>      flock held by a gate that waits; its content is the list of resources it wants
    locks/<resource>   flock held by the gate and the job's tree; its content is the id of the job that has it

Locks are the kernel's: they vanish with the last process that holds them; nothing is stale after kill -9 or a reboot.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgt import bundle
from rgt.errors import bad_input, from_os_error
from rgt.machine import processes

MARK = "RGT_GATE_JOB"  # in the environment of every process of a job
# the words of records on disk, which gates of other versions read; backends/gate.py maps them to rgt.run.record
FINAL = ("done", "failed", "timeout", "cancelled", "lost")
_NEEDED = {"id", "name", "state", "reason", "gate", "job", "submitted", "started", "ended", "command", "log", "asked"}

Record = dict[str, Any]


def default_directory() -> Path:
    """Per user and per host: a home directory may be shared by machines, their GPUs are not."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state) / "rgt" / "gate" / os.uname().nodename


class Queue:
    """One queue directory. Users who may write to it share it: files get the directory's own permissions."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.absolute()
        self.jobs = self.directory / "jobs"
        self.line = self.directory / "line"
        self.locks = self.directory / "locks"

    def prepare(self) -> None:
        """Make what is missing; one sentence if that is impossible."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            mode = self.directory.stat().st_mode & 0o7777
            for folder in (self.jobs, self.line, self.locks):
                if not folder.is_dir():
                    folder.mkdir(exist_ok=True)
                    folder.chmod(mode)
            if not os.access(self.line, os.W_OK):
                raise PermissionError(13, "Permission denied", str(self.line))
        except OSError as error:
            raise from_os_error(error, f"use {self.directory} as a queue") from None

    def open_file(self, path: Path) -> int:
        """Open or make a file that others may have made: O_CREAT on another user's file fails in a sticky folder."""
        with contextlib.suppress(FileNotFoundError):
            try:
                return os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except PermissionError:
                return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        with contextlib.suppress(PermissionError):  # another user was faster
            os.fchmod(descriptor, self.directory.stat().st_mode & 0o666)
        return descriptor

    @contextlib.contextmanager
    def mutex(self) -> Iterator[None]:
        """Held for the few microseconds in which a number is assigned."""
        with os.fdopen(self.open_file(self.directory / "queue.lock"), "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def job_path(self, job_id: str, suffix: str) -> Path:
        return self.jobs / f"{job_id}.{suffix}"

    # -- records

    def save(self, record: Record, durable: bool = False) -> None:
        """Replace the record. Only the first write is forced to disk: after a power cut no job is running anyway."""
        path = self.job_path(record["id"], "json")
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                json.dump(record, file, indent=1, ensure_ascii=False)
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def load(self, job_id: str) -> Record | None:
        """The record, its state checked against what really lives; None when it is not readable.

        A record is a claim of the gate that wrote it. Its lock tells whether anybody still lives behind it.
        """
        try:
            record: Record = json.loads(self.job_path(job_id, "json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(record, dict) or record.get("id") != job_id or not set(record) >= _NEEDED:
            return None
        if record["state"] in FINAL:
            return record
        if not self.held(self.job_path(job_id, "lock")):
            started = record["started"] is not None
            reason = "its processes are gone and left no exit code" if started else "its gate is gone; it never started"
            return {**record, "state": "lost", "reason": reason}
        if record["gate"] and not processes.alive(record["gate"]):
            survivors = list(processes.carrying(MARK, job_id))
            reason = f"its gate was killed; the job runs on without a timeout (pids {survivors})"
            return {**record, "state": "running", "reason": reason}
        return record

    def records(self) -> list[Record]:
        """All jobs, in the order they were submitted."""
        readable = [record for path in sorted(self.jobs.glob("*.json")) if (record := self.load(path.stem))]
        return sorted(readable, key=lambda record: float(record["submitted"]))

    def find(self, word: str) -> Record:
        """By id, or the newest job of that name."""
        record = self.load(word)
        named = [record] if record else [r for r in self.records() if r["name"] == word]
        if not named:
            raise bad_input(f"no job is called {word!r} in {self.directory}; see {bundle.command('gpu_gate', 'list')}")
        return named[-1]

    def held(self, path: Path) -> bool:
        """Does any living process hold this lock?"""
        try:
            with open(path, "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    # -- the line

    def enter_line(self, wanted: list[str], after: str | None = None) -> Ticket:
        """Take the next number. A ticket is locked before it is visible, so a visible unlocked one is a dead gate's.

        `after`: a job that must end well first. Until then the ticket keeps its place and holds up nobody.
        """
        with self.mutex():
            number = max(self._numbers(), default=0) + 1
            temporary = self.line / f".{os.getpid()}.tmp"
            descriptor = self.open_file(temporary)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                os.write(descriptor, json.dumps({"wanted": wanted, "after": after}).encode())
                os.rename(temporary, self.line / f"{number:08d}")
                taken = time.time()
            except OSError:
                os.unlink(temporary)
                os.close(descriptor)
                raise
        return Ticket(self.line / f"{number:08d}", number, descriptor, taken)

    def _numbers(self) -> list[int]:
        return [int(path.name) for path in self.line.glob("*") if path.name.isdigit()]

    def ahead(self, number: int, wanted: list[str]) -> Path | None:
        """The nearest living ticket before `number` that wants any of the same resources.

        Requests that share nothing pass each other; those that share anything keep their order, so that a request for
        many GPUs cannot be starved by a stream of small ones.
        """
        for other in sorted((n for n in self._numbers() if n < number), reverse=True):
            path = self.line / f"{other:08d}"
            try:
                ticket = json.loads(path.read_text(encoding="utf-8"))
                shared, after = set(ticket["wanted"]) & set(wanted), ticket["after"]
            except (OSError, ValueError, KeyError, TypeError):  # it left the line, or is not a ticket
                continue
            if shared and not self.held(path):
                with contextlib.suppress(OSError):  # its gate died in line
                    path.unlink()
            elif shared and (not after or (self.load(after) or {}).get("state") == "done"):
                return path
        return None


@dataclass
class Ticket:
    """A place in the line; leaving lets the next one look again."""

    path: Path
    number: int
    descriptor: int
    taken: float
    left: bool = False

    def leave(self) -> None:
        """Only the first call counts: a moment later the number may belong to another job."""
        if not self.left:
            self.left = True
            with contextlib.suppress(OSError):
                self.path.unlink()
            os.close(self.descriptor)
