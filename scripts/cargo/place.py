"""Where something is: HOST:DIR behind ssh, or a directory here."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from rgt import rundir
from rgt.errors import bad_input
from rgt.hosts import Host

_REMOTE = re.compile(r"((?:[^/:@\s]+@)?(?:\[[0-9A-Fa-f:.%\w]+\]|[^/:@\[\]\s]+)):(.*)", re.S)


@dataclass(frozen=True)
class Place:
    host: Host
    path: str

    @property
    def text(self) -> str:
        return f"{self.host.name}:{self.path}" if self.host.name else self.path


def parse(text: str) -> Place:
    found = _REMOTE.fullmatch(text)
    if not found:
        if not text or "\0" in text:
            raise bad_input("a place is HOST:DIR or a directory here; this one is empty")
        return Place(Host(), text)
    name, path = found[1], found[2]
    if name.startswith("-"):
        raise bad_input(f"{name!r} is not a host: ssh would read it as an option")
    if not path or "\0" in path:
        raise bad_input(f"{text} names no directory on {name}; write {name}:DIR")
    user, at, address = name.rpartition("@")
    return Place(Host(user + at + address.strip("[]")), path)


def of_run(record_dir: Path) -> list[Place]:
    """Where the run of a local record is, by its run.json: one place for each node."""
    import backends
    from rgt import job

    run = rundir.open_run(record_dir)
    record = run.record()
    if "target" not in record["job"]:
        raise bad_input(f"{record_dir} was not started by launch, so its machine is not known; write HOST:DIR")
    kind, found = backends.parse_target(record["job"]["target"])
    order = backends.Order(job.from_record(record), run.id, kind, found)
    places = [Place(host, order.run_dir) for host in found if host.name]
    if not places:
        raise bad_input(f"{record_dir} ran with {kind}, not behind ssh: there is nothing to pull from a host")
    return places
