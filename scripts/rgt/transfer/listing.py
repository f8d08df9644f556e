"""What is on the box, as it says itself. A box is not trusted: no name it gives may lead out of the target folder."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rgt import files
from rgt.errors import RgtError, bad_input
from rgt.host.ssh import Host, Place
from rgt.report import Finding
from rgt.run import record as rundir
from rgt.run.record import OVER, RUN_ID, Run
from rgt.transfer.boxside import OURS
from rgt.transfer.connection import Connection

EVENTS, EVENTS_THERE, SEAL = "events.jsonl", "events.box.jsonl", "seal.json"
RECORD, RECORD_THERE = "run.json", "run.box.json"
_MOST_ROWS = 150_000  # a row takes up to 1.5 KB here
_LONGEST = 4000  # bytes of a path
_ENDS = (rundir.FINISHED, rundir.FAILED, rundir.STOPPED)
_ON_A_HOST = ("local", "ssh", "docker", "slurm")  # engines that are asked on the box itself
Version = tuple[str, int, int | None]  # path, bytes, mtime_ns


@dataclass
class State:
    word: str  # one of the states of rgt.run.record, or idle: nobody can tell, and nobody writes there
    detail: str = ""

    @property
    def over(self) -> bool:
        return self.word in (*OVER, "idle")


class Entry(NamedTuple):  # made faster than a dataclass: there are thousands
    path: str  # on the box
    bytes: int
    mtime_ns: int
    mode: int
    local: str  # its name here

    @property
    def version(self) -> Version:
        return self.path, self.bytes, self.mtime_ns


@dataclass
class Listing:
    host: Host
    root: str
    record: dict[str, Any] | None = None  # its run.json
    last_event: str | None = None
    writers: list[str] = field(default_factory=list)
    env: str = ""
    entries: dict[str, Entry] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    excluded: int = 0

    @property
    def source(self) -> str:
        return Place(self.host, self.root).text

    @property
    def run_id(self) -> str | None:
        name = (self.record or {}).get("run_id")
        return name if isinstance(name, str) and RUN_ID.fullmatch(name) else None

    @property
    def bytes(self) -> int:
        return sum(entry.bytes for entry in self.entries.values())

    def versions(self) -> set[Version]:
        return {entry.version for entry in self.entries.values()}

    def take(self, row: dict[str, Any]) -> None:
        """One row of the box's answer; KeyError, TypeError or ValueError when it is none of ours."""
        if "l" in row:
            self.links[str(row["l"])] = str(row["t"])
            return
        if "p" in row:
            entry = Entry(str(row["p"]), row["b"], row["m"], row["o"] & 0o777, str(row["p"]))
            if not (0 <= entry.bytes < 1 << 62 and abs(entry.mtime_ns) < 1 << 62):
                raise ValueError
            self.entries[entry.path] = entry
            return
        path, why, said, name = str(row["x"]), row["why"], str(row.get("say", ""))[:200], self.host.title
        if why == "excluded":
            self.excluded += 1
            return
        unread = f"is a link to {said!r}, outside of {self.root}: what it leads to was not copied"
        code, severity, message = {
            "outside": ("unpulled", "error", unread),
            "unreadable": ("unreadable", "error", f"cannot be read on {name}: {said}"),
            "broken": ("missing", "info", f"is a link to {said!r}, which does not exist on {name}"),
        }.get(why, ("unjudged", "info", "is not a regular file (pipe, socket or device): not copied"))
        fix = f"pull that place, too, or leave it out: --exclude {shlex.quote(path)}" if why == "outside" else None
        self.findings.append(Finding(code, severity, message, path, fix=fix))

    def bad_names(self) -> Iterator[tuple[str, str]]:
        """(name, why). A name cannot be a file and a folder either, and two names cannot be one."""
        names = {*self.entries, *self.links}
        for path in names:
            if why := fault(path):
                yield path, why
            above = path
            while above := above.rpartition("/")[0]:
                if above in names:
                    yield path, "is below a name that is a file or a link"
                    break
        for path, to in self.links.items():
            if to != "." and fault(to):
                yield path, "points to a name that leads out"
            if path in self.entries:
                yield path, "is a file and a link"
        for path, entry in self.entries.items():
            if entry.local != path and entry.local in names:
                yield entry.local, f"is what {path} is called here"


def take_listing(
    box: Connection, directory: str, local: Path, exclude: Iterable[str] = (), variable: str = ""
) -> Listing:
    """Every file by size and time, without digests; a drop is waited out."""
    asked = {"root": directory, "exclude": list(exclude), "env": variable}
    return box.again(lambda: read_listing(box, box.answer("list", **asked), local))


def read_listing(box: Connection, rows: Iterator[dict[str, Any]], local: Path) -> Listing:
    """From the box's rows; refused whole when one name in it is not to be trusted.

    What we keep ourselves in LOCAL (our events, the run.json of a run that was launched from here) is not overwritten:
    the box's file of that name gets another one here.
    """
    renamed = {EVENTS: EVENTS_THERE} | ({RECORD: RECORD_THERE} if Run(local).is_recorded_here else {})
    head = next(rows, {})
    try:
        record = head["record"] if isinstance(head["record"], dict) else None
        writers = [str(line)[:200] for line in head["writers"]]
        there = Listing(box.host, str(head["root"]), record, head["last_event"], writers, str(head.get("env") or ""))
        if not there.root.startswith("/"):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise box.strange(head) from None
    for count, row in enumerate(rows):
        if count > _MOST_ROWS:
            raise bad_input(f"{there.source} holds more than {_MOST_ROWS} files; leave folders out with --exclude")
        try:
            there.take(row)
        except (KeyError, TypeError, ValueError):
            raise bad_input(f"{box.host.title} listed something that is not a file: {str(row)[:100]}") from None
    if SEAL in there.entries:  # its ledger names each file, so names stay; its run.json still never replaces ours
        del renamed[EVENTS]
    elif EVENTS in there.entries:
        there.entries.pop(EVENTS_THERE, None)  # of an earlier pull; its lines are part of events.jsonl
    for path in renamed.keys() & there.entries.keys():
        there.entries[path] = there.entries[path]._replace(local=renamed[path])
    if bad := list(there.bad_names()):
        path, why = bad[0]
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise bad_input(f"{box.host.title} lists {path[:100]!r}, which {why}{more}; nothing was copied")
    return there


def fault(path: str) -> str | None:
    """Why a name that came from elsewhere must not be used here."""
    parts = path.split("/")
    if path.startswith("/") or ".." in parts:
        return "leads out of the folder"
    if not path or "" in parts or "." in parts or "\0" in path:
        return "is not a plain relative path"
    try:
        encoded = os.fsencode(path)
        if len(encoded) > 255 and (len(encoded) > _LONGEST or max(map(len, encoded.split(b"/"))) > 255):
            return "is too long"
    except UnicodeEncodeError:  # a lone surrogate that no file name can hold
        return "is not a file name"
    return "is a name of our own records" if parts[0] in OURS else None


# -- whether the run there is over


def own_record(local: Path) -> dict[str, Any] | None:
    """run.json of a run that launch started from here. One that came with a pull is only the box's word."""
    with contextlib.suppress(RgtError):
        record: dict[str, Any] = files.read_json(local / RECORD, "run")
        return record if Run(local).is_recorded_here else None
    return None


def state_of(there: Listing, record: dict[str, Any] | None = None) -> State:
    """`record` is our own run.json; without it the box's copy is used, and only for questions to the box itself."""
    job = (record or there.record or {}).get("job")
    if isinstance(job, dict) and "target" in job:
        try:
            state = _ask_engine(there, record)
        except RgtError as error:
            return State(rundir.UNKNOWN, error.message)
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # a run.json that is not ours
            return State(rundir.UNKNOWN, f"run.json cannot be used: {type(error).__name__}")
    elif (after := rundir.AFTER_EVENT.get(there.last_event or "")) in _ENDS:
        state = State(after, "by its events.jsonl")
    elif there.last_event:
        state = State(rundir.UNKNOWN, f"its last event is {there.last_event}, and no launch record tells who runs it")
    else:
        state = State("idle", "no record tells who runs it, and no process writes there")
    if state.over and there.writers:
        return State(rundir.RUNNING, f"process {there.writers[0]} has files of it open for writing")
    return state


def _ask_engine(there: Listing, record: dict[str, Any] | None) -> State:
    from rgt.job import backends, description

    chosen = record or there.record or {}
    kind, targets = backends.parse_target(chosen["job"]["target"])
    if kind in _ON_A_HOST:
        name = there.host.name
        targets = [dataclasses.replace(one, name=one.name if record and one.name else name) for one in targets]
        kind = "ssh" if kind == "local" and name else kind
    elif not record:
        detail = f"it runs with {kind}, which can be asked only with the run directory that launch made"
        return State(rundir.UNKNOWN, detail)
    run_id = str(record["run_id"]) if record else there.run_id or str(chosen.get("run_id"))
    now = backends.backend(kind).status(backends.Order(description.from_record(chosen), run_id, kind, targets))
    return State(now.state, now.detail)
