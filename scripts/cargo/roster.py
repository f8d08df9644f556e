"""What is on the box, as it says itself. A box is not trusted: no name it gives may lead out of the target folder."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cargo import tree, wire
from rgt.errors import bad_input
from rgt.hosts import Host
from rgt.ids import RUN_ID
from rgt.report import Finding

EVENTS, EVENTS_THERE, SEAL = "events.jsonl", "events.box.jsonl", "seal.json"
MAX_FILES = 2_000_000
_LONGEST = 4000  # bytes of a path
_NAMED = 5


@dataclass(frozen=True)
class Entry:
    path: str  # on the box
    bytes: int
    mtime_ns: int
    mode: int
    same_as: str = ""  # another entry: two names of one file
    sparse: bool = False
    sealed: bool = False  # part of a sealed run: every name stays

    @property
    def local(self) -> str:
        """Its name here. Our own decisions are appended to events.jsonl, so the box's one gets a name of its own."""
        return EVENTS_THERE if self.path == EVENTS and not self.sealed else self.path

    @property
    def version(self) -> tuple[str, int, int]:
        return self.path, self.bytes, self.mtime_ns


@dataclass
class Roster:
    host: Host
    root: str
    rsync: str | None
    record: dict[str, Any] | None = None
    last_event: str | None = None
    writers: list[str] = field(default_factory=list)
    env: str = ""
    entries: dict[str, Entry] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    excluded_bytes: int = 0

    @property
    def source(self) -> str:
        return f"{self.host.name}:{self.root}" if self.host.name else self.root

    @property
    def run_id(self) -> str | None:
        name = (self.record or {}).get("run_id")
        return name if isinstance(name, str) and RUN_ID.fullmatch(name) else None

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.entries.values() if not entry.same_as)

    def versions(self) -> set[tuple[str, int, int]]:
        return {entry.version for entry in self.entries.values()}


def stand_by(host: Host) -> wire.Session:
    """A connection that is ready to list."""
    return wire.Session(host, "list")


def take(
    host: Host, directory: str, exclude: Iterable[str] = (), variable: str = "", ready: wire.Session | None = None
) -> Roster:
    """One listing, without digests; over the connection `ready` when there is one."""
    asked = {"root": directory, "exclude": list(exclude), "env": variable}
    with ready or stand_by(host) as session:
        head = session.ask(asked).line()
        try:
            found = _head(host, head)
        except (KeyError, TypeError, ValueError):
            raise session.strange(head) from None
        for row in session.lines():
            _take_row(found, row)
    _check(found)
    return found


def _head(host: Host, head: dict[str, Any]) -> Roster:
    record = head["record"] if isinstance(head["record"], dict) else None
    writers = [str(line)[:200] for line in head["writers"]]
    root = str(head["root"])
    if not root.startswith("/"):
        raise ValueError(root)
    return Roster(host, root, head["rsync"], record, head["last_event"], writers, str(head.get("env") or ""))


def _take_row(found: Roster, row: dict[str, Any]) -> None:
    if len(found.entries) > MAX_FILES:
        raise bad_input(f"{found.source} holds more than {MAX_FILES} files; leave folders out with --exclude")
    try:
        if "x" in row:
            _take_problem(found, row)
        elif "l" in row:
            found.links[str(row["l"])] = str(row["t"])
        else:
            entry = Entry(row["p"], row["b"], row["m"], row["o"] & 0o777, row.get("h", ""), bool(row.get("s")))
            if not (0 <= entry.bytes < 1 << 62 and abs(entry.mtime_ns) < 1 << 62 and isinstance(entry.path, str)):
                raise ValueError
            found.entries[str(entry.path)] = entry
    except (KeyError, TypeError, ValueError):
        raise bad_input(f"{found.host.title} listed something that is no file: {str(row)[:100]}") from None


def _take_problem(found: Roster, row: dict[str, Any]) -> None:
    path, why, said = str(row["x"]), row["why"], str(row.get("say", ""))
    if why == "excluded":
        found.excluded.append(path)
        found.excluded_bytes += int(row.get("b", 0))
    elif why == "outside":
        fix = f"pull that place, too, or leave it out: --exclude {path!r}"
        message = f"is a link to {said!r}, outside of {found.root}: what it leads to was not copied"
        found.findings.append(Finding("unpulled", "error", message, path, fix=fix))
    elif why == "unreadable":
        found.findings.append(Finding("unreadable", "error", f"cannot be read on {found.host.title}: {said}", path))
    elif why == "broken":
        message = f"is a link to {said!r}, which does not exist on {found.host.title}"
        found.findings.append(Finding("missing", "info", message, path))
    else:
        found.findings.append(
            Finding("unjudged", "info", "is no regular file (pipe, socket or device): not copied", path)
        )


# -- names


def fault(path: str) -> str | None:
    """Why a name that came from elsewhere must not be used here."""
    parts = path.split("/")
    if path.startswith("/") or ".." in parts:
        return "leads out of the folder"
    if not path or "" in parts or "." in parts or "\0" in path:
        return "is no plain relative path"
    try:
        if len(os.fsencode(path)) > _LONGEST or any(len(os.fsencode(part)) > 255 for part in parts):
            return "is too long"
    except UnicodeEncodeError:  # a lone surrogate that no file name can hold
        return "is no file name"
    if parts[0] in tree.OURS:
        return "is a name of our own records"
    return None


def _check(found: Roster) -> None:
    if SEAL in found.entries:
        found.entries = {path: dataclasses.replace(entry, sealed=True) for path, entry in found.entries.items()}
    elif EVENTS in found.entries:
        found.entries.pop(EVENTS_THERE, None)  # of an earlier pull; its lines are part of events.jsonl
    bad = [(path, why) for path in (*found.entries, *found.links) if (why := fault(path))]
    bad += [(path, "points to a name that leads out") for path, to in found.links.items() if to != "." and fault(to)]
    bad += list(_collisions(found))
    if bad:
        path, why = bad[0]
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise bad_input(f"{found.host.title} lists {path[:100]!r}, which {why}{more}; nothing was copied")
    for entry in found.entries.values():
        if entry.same_as and found.entries.get(entry.same_as, entry).same_as:
            raise bad_input(f"{found.host.title} lists {entry.path[:100]!r} as a link to a link; nothing was copied")


def _collisions(found: Roster) -> Iterator[tuple[str, str]]:
    """A name cannot be a file and a folder, and two names cannot be one."""
    names = {*found.entries, *found.links}
    for path in names:
        above = path
        while above := above.rpartition("/")[0]:
            if above in names:
                yield path, "is below a name that is a file or a link"
                break
    if EVENTS in found.entries and EVENTS_THERE in found.links:
        yield EVENTS_THERE, f"is what {EVENTS} is called here"
    for path in {*found.entries} & {*found.links}:
        yield path, "is a file and a link"


def folded(paths: Iterable[str], fold: Any) -> list[list[str]]:
    """Groups of names that are one name where the file system folds them (case, or Unicode forms)."""
    seen: dict[str, list[str]] = {}
    for path in paths:
        seen.setdefault(fold(path), []).append(path)
    return [group[:_NAMED] for group in seen.values() if len(group) > 1]


def runs_below(host: Host, directory: str, depth: int) -> list[dict[str, Any]]:
    with wire.Session(host, "runs") as session:
        rows = list(session.ask({"root": directory, "depth": depth}).lines())
        for row in rows:
            if not isinstance(row.get("run"), str) or not isinstance(row.get("artifacts"), int):
                raise session.strange(row)
    return rows
