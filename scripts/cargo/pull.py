"""Pull: list, copy, list again until nothing changed, then the manifest; broken connections are waited out."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

from cargo import by_rsync, by_stream, roster, wire
from cargo.gauge import Gauge
from cargo.place import Place
from cargo.roster import Entry, Roster
from cargo.stage import MANIFEST, Stage, read_manifest
from rgt import files
from rgt.errors import RgtError
from rgt.report import Finding, progress

ROUNDS = 3  # listings in which a file may still change before we say that it does
_FLUSH_SECONDS = 2.0
_LOG_BYTES = 64 << 20  # a growing file up to this size is shown while it grows
T = TypeVar("T")


@dataclass
class Outcome:
    found: Roster
    local: Path
    complete: bool = False
    findings: list[Finding] = field(default_factory=list)
    mover: str = ""
    drops: int = 0
    seconds: float = 0.0


@dataclass
class Pull:
    """One pull into one folder."""

    place: Place
    local: Path
    exclude: Sequence[str] = ()
    patience: float = 900.0
    rounds: int = ROUNDS
    known: bool = False  # the box has answered before: a drop is waited out from the start

    def __post_init__(self) -> None:
        self.stage = Stage(self.local)
        self.waiting = wire.Patience(self.patience)
        self.mover = ""
        self.moving = False  # the last two listings differ
        self.ready: wire.Session | None = None  # connected while the copy goes on, for the listing behind it

    def run(self) -> Outcome:
        start = time.monotonic()
        found = self._again(lambda: wire.first(self.place.host, self._list, self.known))
        self.stage.open(found)
        try:
            changed = self._rounds(found)
            found, outcome = self.found, Outcome(self.found, self.local, findings=list(self.found.findings))
            for entry in changed[:20]:
                outcome.findings.append(_changing(entry, found) if self.moving else _not_copied(entry, found))
                if entry.bytes <= _LOG_BYTES:
                    self.stage.snapshot(entry)
            errors = [finding for finding in outcome.findings if finding.severity == "error"]
            if not errors:
                self._finish(found)
                outcome.complete = True
        finally:
            self._let_go()
            self.stage.close()
        outcome.mover, outcome.drops = self.mover or "nothing to copy", self.waiting.drops
        outcome.seconds = time.monotonic() - start
        return outcome

    def _list(self) -> Roster:
        ready, self.ready = self.ready, None
        if ready:
            with contextlib.suppress(wire.Dropped):  # it idled for as long as the copy took: no surprise, no drop
                return roster.take(self.place.host, self.place.path, self.exclude, ready=ready)
        return roster.take(self.place.host, self.place.path, self.exclude)

    def _stand_by(self) -> None:
        with contextlib.suppress(wire.Dropped, RgtError):  # the listing itself will say it
            self.ready = self.ready or roster.stand_by(self.place.host)

    def _let_go(self) -> None:
        if self.ready:
            self.ready.close()
            self.ready = None

    def _again(self, action: Callable[[], T]) -> T:
        while True:
            try:
                done = action()
            except wire.Dropped as drop:
                self.waiting.wait(self.place.host, str(drop))
            else:
                self.waiting.progress()
                return done

    # -- copying

    def _rounds(self, found: Roster) -> list[Entry]:
        """Copy, list again, copy what changed meanwhile. Returns what went on changing."""
        for _ in range(self.rounds):
            self.found = found
            self._copy(found)
            again = self._again(self._list)
            self.found = again
            self.moving = again.versions() != found.versions()
            if not self.moving and self._all_here(again):
                return []
            found = again
        return [entry for entry in found.entries.values() if not self._here(entry)]

    def _here(self, entry: Entry) -> bool:
        return self.stage.in_place(entry) and entry.version in self.stage.digests

    def _all_here(self, found: Roster) -> bool:
        return all(map(self._here, found.entries.values()))

    def _copy(self, found: Roster) -> None:
        entries = list(found.entries.values())
        todo = [entry for entry in entries if not entry.same_as and not self.stage.in_place(entry)]
        if todo:
            withdraw(self.local)
            self.stage.need_room(todo)
            self._stand_by()
        rsync = by_rsync.usable(found) if todo else False
        by_them = [entry for entry in todo if rsync and by_rsync.takes(entry)]
        by_us = [entry for entry in todo if not (rsync and by_rsync.takes(entry))]
        digests = Digests(found, self.stage, self.patience, by_us)
        digests.start()
        try:
            self._move_all(found, by_them, by_us)
            for entry in entries:
                if entry.same_as and not self.stage.in_place(entry):
                    first = found.entries.get(entry.same_as)
                    if first and self.stage.in_place(first):
                        self.stage.twin(entry, first)
        except BaseException:
            digests.stop()
            raise
        digests.join()
        digests.result()

    def _move_all(self, found: Roster, by_them: list[Entry], by_us: list[Entry]) -> None:
        total = sum(entry.bytes for entry in (*by_them, *by_us))
        gauge = Gauge(total, f"pull {found.source}")
        flusher = Flusher()
        flusher.start()
        try:
            if by_them:
                self.mover = "rsync"
                try:
                    self._move(by_rsync.move, found, by_them, gauge, total)
                except by_rsync.Unusable as problem:
                    progress(f"rsync cannot be used: {problem}; going on with a stream of our own")
                    by_us = by_us + by_them
            left = [entry for entry in by_us if not self.stage.in_place(entry)]
            if left:
                self.mover = self.mover or "stream"
                self._move(by_stream.move, found, left, gauge, total)
        finally:
            flusher.done.set()
            gauge.close()

    def _move(self, mover: Any, found: Roster, todo: list[Entry], gauge: Gauge, total: int) -> None:
        """With one mover, until it ends without a drop."""
        while todo:
            missing = sum(entry.bytes for entry in todo) - self.stage.held(todo)
            base = total - missing
            gauge.begin(base)

            def shown(count: int, base: int = base) -> None:
                if base + count > gauge.done:
                    self.waiting.progress()
                gauge.show(base + count)

            try:
                mover(found, todo, self.stage, shown)
                return
            except wire.Dropped as drop:
                left = [entry for entry in todo if not self.stage.in_place(entry)]
                if len(left) < len(todo) or sum(e.bytes for e in left) - self.stage.held(left) < missing:
                    self.waiting.progress()
                todo = left
                self.waiting.wait(found.host, str(drop))

    # -- the end

    def _finish(self, found: Roster) -> None:
        for path, target in found.links.items():
            self.stage.link(path, target)
        write_manifest(self.local, found, self.stage, self.exclude)


class Flusher(threading.Thread):
    """Brings what arrives to the disk meanwhile: the proof waits for the disk, and then little is left to wait for."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.done = threading.Event()

    def run(self) -> None:
        while not self.done.wait(_FLUSH_SECONDS):
            os.sync()


class Digests(threading.Thread):
    """Takes the sha256 of files on the box while others are being copied; our own stream brings its digests along."""

    def __init__(self, found: Roster, stage: Stage, patience: float, brought: list[Entry]) -> None:
        super().__init__(daemon=True)
        self.found, self.stage, self.waiting = found, stage, wire.Patience(patience)
        later = {entry.path for entry in brought}
        self.wanted = [
            entry
            for entry in found.entries.values()
            if not entry.same_as and entry.path not in later and entry.version not in stage.digests
        ]
        self.failure: BaseException | None = None
        self.session: wire.Session | None = None

    def stop(self) -> None:
        """The copy has failed: nobody waits for the rest."""
        self.wanted = []
        if self.session:
            self.session.process.kill()

    def run(self) -> None:
        try:
            while self.wanted:
                try:
                    self._ask()
                    break
                except wire.Dropped as drop:
                    self.waiting.wait(self.found.host, str(drop))
        except BaseException as error:
            self.failure = error

    def _ask(self) -> None:
        paths = [entry.path for entry in self.wanted]
        asked, answered = list(self.wanted), set()
        try:
            with wire.Session(self.found.host, "digests") as session:
                self.session = session
                session.ask({"root": self.found.root, "paths": paths})
                for row in session.lines():
                    try:
                        entry: Entry = asked[row["i"]]
                    except (KeyError, IndexError, TypeError):
                        raise session.strange(row) from None
                    answered.add(entry.path)
                    if (row.get("b"), row.get("m")) == (entry.bytes, entry.mtime_ns):
                        self.stage.know(*entry.version, str(row.get("s")))
                    self.waiting.progress()
        finally:
            self.wanted = [entry for entry in self.wanted if entry.path not in answered]

    def result(self) -> None:
        if self.failure:
            raise self.failure
        for entry in self.found.entries.values():
            first = self.found.entries.get(entry.same_as)
            if first and first.version in self.stage.digests:
                self.stage.know(*entry.version, self.stage.digests[first.version])


def _changing(entry: Entry, found: Roster) -> Finding:
    who = f"; it is being written by process {found.writers[0]}" if found.writers else ""
    message = f"keeps changing on {found.host.title}, so it cannot be proved{who}"
    return Finding("changed", "error", message, entry.path, fix="pull again when the run is done, or use pull --loop")


def _not_copied(entry: Entry, found: Roster) -> Finding:
    message = f"could not be copied from {found.host.title}"
    return Finding("unpulled", "error", message, entry.path, fix="pull again; if it stays, look at it on the box")


def withdraw(local: Path) -> None:
    """What is about to change has no proof."""
    from artifacts import proof

    proof.withdraw(proof.Expected(local))


def write_manifest(local: Path, found: Roster, stage: Stage, exclude: Sequence[str]) -> None:
    """Left as it is when nothing changed: its proof names it by its digest."""
    rows = []
    for entry in sorted(found.entries.values(), key=lambda entry: entry.local):
        row = {
            "path": entry.local,
            "bytes": entry.bytes,
            "sha256": stage.digests[entry.version],
            "mtime_ns": entry.mtime_ns,
        }
        rows.append({**row, "there": entry.path} if entry.local != entry.path else row)
    data: dict[str, Any] = {"source": found.source, "files": rows}
    if found.run_id:
        data["run_id"] = found.run_id
    if found.links:
        data["links"] = dict(sorted(found.links.items()))
    if found.excluded:
        data["excluded"] = {
            "patterns": list(exclude),
            "paths": found.excluded[:100],
            "count": len(found.excluded),
            "bytes": found.excluded_bytes,
        }
    path = local / MANIFEST
    with contextlib.suppress(RgtError):
        old = read_manifest(path)
        if {key: value for key, value in old.items() if key != "created"} == data:
            return
    withdraw(local)
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    files.write_json(path, {**data, "created": created}, "pull_manifest")
