"""A lease: what the user said, once, about one rented box: until when, for how much, and what happens at the end.

    <run>.<id>.lease.json                    beside the run's folder (a sealed run never changes), with a schema
    ~/.local/state/rgt/leases/<box>/         lease (the path of that file), the locks, the keeper's memory and log

It approves one act, `stop`, of this box, for this run, when its end has come, once. A file that came from elsewhere
approves nothing: the folder above must name it.

Elapsed time is the larger of what the wall clock and the machine's counter since boot (it runs on in sleep) say: a
clock that is set back does not lengthen a lease.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import RgtError, bad_input
from rgt.run import record

ACTIVE, ENDED, STOPPED, UNRESOLVED = "active", "ended", "stopped", "unresolved"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_COUNTER = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # macOS: its CLOCK_MONOTONIC runs on in sleep
_CLOCK = "RGT_CLOCK"  # for tests: a file with [seconds added to the wall clock, seconds added to the counter]


@dataclass
class Lease:
    lease_id: str
    profile: str  # as it was given; a path is absolute
    box_id: str
    values: dict[str, str]  # for the holes of the platform's commands
    run_id: str
    local: str  # the folder that is pulled into, or the run itself
    source: str | None  # where it is pulled from
    on_end: str  # stop | tell
    words: str
    started: float
    since: float  # the start, or the last extension
    boot: list[Any] | None  # id of this boot and its counter at the start
    seconds: float | None  # from the start
    most: float | None  # money
    idle: float | None
    rate: float | None  # per hour, running
    stopped_rate: float | None
    every: float
    on_box: bool  # a timer was put on the box
    state: str = ACTIVE
    generation: int = 0  # counts the extensions
    due: dict[str, Any] | None = None  # {"time", "why"}: the end has come
    spent: float | None = None  # when its one stop was begun

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def title(self) -> str:
        return f"{self.box_id} ({Path(self.profile).stem})"

    @property
    def folder(self) -> Path:
        key = hashlib.sha256(f"{self.profile}\0{self.box_id}".encode()).hexdigest()[:8]
        return home() / f"{re.sub('[^A-Za-z0-9._-]', '_', self.box_id)[:60]}-{key}"

    @property
    def file(self) -> Path:
        local = Path(self.local)
        return local.with_name(f"{local.name}.{re.sub('[^A-Za-z0-9._-]', '_', self.box_id)[:60]}.lease.json")

    def log(self, what: str, **detail: Any) -> None:
        """An event of the run."""
        facts = {"what": what, "id": self.box_id, "lease": self.lease_id, "time": self.now(), **detail}
        record.log_decision(Path(self.local), "lease", **facts)

    def now(self) -> float:
        """Seconds since 1970, never less than the start plus what has really passed since."""
        wall, boot = clock()
        if self.boot and boot and boot[0] == self.boot[0]:
            return max(wall, self.started + float(boot[1] - self.boot[1]))
        return wall


def clock() -> tuple[float, list[Any] | None]:
    """The wall clock; this boot's id with its counter, where there is one."""
    extra = [0.0, 0.0]
    if os.environ.get(_CLOCK):
        with contextlib.suppress(OSError, ValueError):
            extra = json.loads(Path(os.environ[_CLOCK]).read_text(encoding="utf-8"))
    boot = None
    with contextlib.suppress(OSError):
        boot = [_BOOT_ID.read_text(encoding="ascii").strip(), time.clock_gettime(_COUNTER) + extra[1]]
    return time.time() + extra[0], boot


def home() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "rgt" / "leases"


# -- on disk


def read(path: Path) -> Lease:
    return Lease(**files.read_json(path, "lease"))


def write(lease: Lease) -> None:
    files.write_json(lease.file, lease.as_dict(), "lease")


def register(lease: Lease) -> None:
    """Written beside the run, and known here. Refused while this box has another one."""
    with files.locked(lease.folder / "change.lock"):
        known = registered(lease.folder)
        if known and known.state in (ACTIVE, UNRESOLVED):
            raise bad_input(f"{known.title} has a lease already ({known.file}): extend it, or end it first")
        write(lease)
        files.write_text(lease.folder / "lease", f"{lease.file}\n")


def registered(folder: Path) -> Lease | None:
    """The lease that a folder of `home` names; None when there is none (yet)."""
    with contextlib.suppress(RgtError, OSError):
        return read(Path((folder / "lease").read_text(encoding="utf-8").strip()))
    return None


def every() -> Iterator[tuple[Path, Lease | None]]:
    """Folder and lease of all that were started here; None: its file is gone or broken."""
    with contextlib.suppress(FileNotFoundError):
        for folder in sorted(home().iterdir()):
            if (folder / "lease").is_file():
                yield folder, registered(folder)


def find(word: str) -> Lease:
    """By the id of its box, its run (id or folder), or its file."""
    known = [lease for _, lease in every() if lease]
    path = os.path.abspath(word)
    fitting = [one for one in known if {word, path} & {one.box_id, one.run_id, one.lease_id, one.local, str(one.file)}]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(sorted(one.box_id for one in (fitting or known))[:8]) or "none"
    raise bad_input(f"{'several leases fit' if fitting else 'there is no lease of'} {word}; boxes with one: {names}")


@contextlib.contextmanager
def change(lease: Lease) -> Iterator[Lease]:
    """The lease as it is on disk now, to be changed; nobody else changes it meanwhile."""
    with files.locked(lease.folder / "change.lock"):
        fresh = read(lease.file)
        yield fresh
        write(fresh)


# -- what it approves


def problem(path: Path, local: Path, profile: str, box_id: str, act: str) -> str:
    """Why the lease in `path` does not approve this act now; empty when it does."""
    try:
        lease = read(path)
        known = (lease.folder / "lease").read_text(encoding="utf-8").strip()
    except (RgtError, OSError) as error:
        return f"{path} is not a lease of this machine: {getattr(error, 'message', error)}"
    same_box = (lease.box_id, lease.profile) == (box_id, profile_word(profile))
    wanted = {
        "it is not a lease that was started here": os.path.realpath(known) == os.path.realpath(path),
        f"a lease approves a stop, never a {act}": act == "stop",
        f"it says --on-end {lease.on_end}": lease.on_end == "stop",
        f"it is for {lease.box_id} of {lease.profile}": same_box,
        f"it is for the run in {lease.local}": os.path.realpath(lease.local) == os.path.realpath(local),
        f"it is {lease.state}": lease.state == ACTIVE,
        "its end has not come": lease.due is not None,
        "its one stop was begun already": lease.spent is None,
    }
    return "; ".join(why for why, holds in wanted.items() if not holds)


def spend(path: Path, *asked: Any) -> str:
    """Use it up, in the moment before the act: of two who ask, one gets it. Why not, or nothing."""
    lease = read(path)
    with files.locked(lease.folder / "change.lock"):
        why = problem(path, *asked)
        if not why:
            lease = read(path)
            lease.spent = clock()[0]
            write(lease)
    return why


def profile_word(profile: str) -> str:
    """A profile as a lease keeps it: a name, or the absolute path of a file."""
    name, colon, variant = profile.partition(":")
    return os.path.abspath(name) + colon + variant if name.endswith(".md") else profile
