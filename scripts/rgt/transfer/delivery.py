"""A whole pull: list and copy until nothing changed, verify by load, fetch damaged copies again, record what happened.

Contents come over the connection that lists them, each file from the byte that is here already, then its digest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt import errors, files, units
from rgt.checkpoint.proof import MANIFEST, PROOF, withdraw
from rgt.errors import RgtError
from rgt.host.ssh import Place
from rgt.report import SEVERITIES, Finding, progress
from rgt.run import record as rundir
from rgt.run.record import log_decision
from rgt.transfer.boxside import CHUNK, sha256_of
from rgt.transfer.connection import Connection
from rgt.transfer.listing import (
    EVENTS,
    EVENTS_THERE,
    RECORD,
    RECORD_THERE,
    SEAL,
    Listing,
    State,
    fault,
    runs_below,
    take_listing,
)
from rgt.transfer.stage import Stage, read_manifest

if TYPE_CHECKING:
    from rgt.checkpoint.layout import Problem
    from rgt.checkpoint.verify import Verification

ROUNDS = 3  # listings in which a file may still change before we say that it does
_PAUSE = 1.0  # seconds between two listings while somebody writes there
_LOG_BYTES = 64 << 20  # a growing file up to this size is shown while it grows
_TELL_EVERY = 10.0  # seconds between two lines of progress
MAX_ABS = 1e6
_DAMAGED = ("digest", "size", "missing")  # of a file in the manifest: a copy that is not what was listed
_ENDS = (rundir.FINISHED, rundir.FAILED, rundir.STOPPED)
_ON_A_HOST = ("local", "ssh", "docker", "slurm")  # engines that are asked on the box itself
_DEPTH = 4  # folders below a source in which runs are looked for


class Delivery:
    """One pull into one folder: what it brought, and, when it was complete, its proof."""

    there: Listing

    def __init__(self, place: Place, local: Path, exclude: Sequence[str], patience: float, known: bool = False) -> None:
        """`known`: the box has answered before, so a drop is waited out from the start."""
        self.place, self.local, self.exclude = place, local, exclude
        self.box, self.stage = Connection(place.host, patience, known), Stage(local)
        self.findings: list[Finding] = []
        self.copied, self.complete, self.seconds = False, False, 0.0
        self.state: State | None = None
        self.proof: Path | None = None

    @property
    def failed(self) -> bool:
        return any(finding.severity == "error" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        there, by = self.there, "stream" if self.copied else "nothing to copy"
        row: dict[str, Any] = {"source": there.source, "local": str(self.local), "run_id": there.run_id}
        row |= {"files": len(there.entries), "bytes": there.bytes, "by": by, "drops": self.box.drops}
        row |= {"seconds": round(self.seconds, 3), "complete": self.complete}
        row |= {"state": self.state.word if self.state else None, "proof": str(self.proof) if self.proof else None}
        return row

    def pull(self, rounds: int = ROUNDS) -> Delivery:
        """Copy, list again, copy what changed meanwhile; what goes on changing is a finding."""
        start = time.monotonic()
        with contextlib.closing(self.box), contextlib.closing(self.stage):
            there = take_listing(self.box, self.place.path, self.local, self.exclude)
            self.stage.open(there)
            for _ in range(rounds):
                self._copy(there)
                if there.writers:  # one that pauses between two lines looks still for a moment
                    time.sleep(_PAUSE)
                before, there = there, take_listing(self.box, self.place.path, self.local, self.exclude)
                moving = there.versions() != before.versions()
                absent = [entry for entry in there.entries.values() if not self.stage.has(entry)]
                if not moving and not absent:
                    break
            self.there, self.findings, self.seconds = there, [*there.findings], time.monotonic() - start
            message, fix = f"could not be copied from {there.host.title}", "pull again; if it stays, look at the box"
            if moving:
                who = f"; it is being written by process {there.writers[0]}" if there.writers else ""
                message = f"keeps changing on {there.host.title}, so it cannot be proved{who}"
                fix = "pull again when the run is done, or use pull --loop"
            for entry in absent[:20]:
                code = "changed" if moving else "unpulled"
                self.findings.append(Finding(code, "error", message, entry.path, fix=fix))
                if entry.bytes <= _LOG_BYTES:
                    self.stage.snapshot(entry)
            if not self.failed:
                for path, target in there.links.items():
                    self.stage.link(path, target)
                write_manifest(self.local, there, self.stage, self.exclude)
                self.complete = True
        return self

    def _copy(self, there: Listing) -> None:
        """Everything that is not here, or whose digest is not known; once more what came with another digest."""
        todo = [entry for entry in there.entries.values() if not self.stage.in_place(entry)]
        if todo:
            self.copied = True
            withdraw(self.local)  # what is about to change has no proof
            self.stage.need_room(todo)
        try:
            gauge = Gauge(sum(entry.bytes - self.stage.held(entry) for entry in todo), f"pull {there.source}")
            if not self.box.again(lambda: self._receive(there, gauge)):
                self.box.again(lambda: self._receive(there, gauge))
        finally:
            self.stage.save(there)

    def _receive(self, there: Listing, gauge: Gauge) -> bool:
        """One attempt at all that is missing; False when something came with another digest than the box's."""
        todo = [entry for entry in there.entries.values() if not self.stage.has(entry)]
        asked = [(entry.path, self.stage.held(entry), entry.bytes) for entry in todo]
        good = True
        for row in self.box.answer("send", root=there.root, files=asked) if asked else ():
            number, offset, size = row.get("i", -1), row.get("o", 0), row.get("n", 0)
            whole = all(isinstance(value, int) and value >= 0 for value in (number, offset, size))
            if not whole or number >= len(todo) or size > CHUNK or offset + size > todo[number].bytes:
                raise self.box.strange(row)
            if "n" in row:
                self.stage.write(todo[number], offset, self.box.read(size))
                gauge.add(size)
            elif (row.get("b"), row.get("m")) == (todo[number].bytes, todo[number].mtime_ns):  # else it has changed
                if not self.stage.has(todo[number]):  # a digest of what was here already took its time there
                    self.box.advance()
                good = self.stage.settle(todo[number], str(row.get("s"))) and good
        return good


def write_manifest(local: Path, there: Listing, stage: Stage, exclude: Sequence[str]) -> None:
    """Left as it is when nothing changed: its proof names it by its digest."""
    data: dict[str, Any] = {"source": there.source, "files": stage.rows(there)}
    if there.run_id:
        data["run_id"] = there.run_id
    if there.links:
        data["links"] = dict(sorted(there.links.items()))
    if there.excluded:
        paths, count, size = there.excluded[:100], len(there.excluded), there.excluded_bytes
        data["excluded"] = {"patterns": list(exclude), "paths": paths, "count": count, "bytes": size}
    with contextlib.suppress(RgtError):
        old = read_manifest(local)
        if {key: value for key, value in old.items() if key != "created"} == data:
            return
    withdraw(local)
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    files.write_json(local / MANIFEST, {**data, "created": created}, "pull_manifest")


class Gauge:
    """Progress with an ETA: a line on stderr now and then. `total` is what is still to come."""

    def __init__(self, total: int, what: str) -> None:
        self.total, self.what, self.done = total, what, 0
        self.start = self.shown = time.monotonic()

    def add(self, count: int) -> None:
        self.done += count
        now = time.monotonic()
        if now - self.shown >= _TELL_EVERY:
            self.shown = now
            progress(self.line(now))

    def line(self, now: float) -> str:
        rate = self.done / max(now - self.start, 1e-6)
        eta = f"ETA {units.show_duration(round((self.total - self.done) / rate))}" if rate > 0 else "ETA unknown"
        percent = 100 * self.done // max(self.total, 1)
        amounts = f"{units.show_size(self.done)} of {units.show_size(self.total)}"
        return f"{self.what}: {percent} %, {amounts}, {units.show_size(rate)}/s, {eta}"


# -- copy, proof, record


def deliver(where: Place, local: Path, exclude: Sequence[str], patience: float, known: bool = False) -> Delivery:
    """Copied, verified, recorded. `known`: the box has answered before."""
    refuse_sealed(local)
    done = Delivery(where, local, exclude, patience, known).pull()
    if not done.complete:
        return done
    done.findings += differing_record(local)
    artifacts = verify_folder(done)
    if not done.failed:
        done.stage.finish()
    done.state = state_of(done.there, own_record(local))
    merge_events(local)
    facts = {key: value for key, value in done.as_dict().items() if key in ("source", "files", "bytes", "state")}
    log_decision(local, "pulled", **facts, manifest_sha256=sha256_of(local / MANIFEST))
    if done.proof:
        log_decision(local, "verified", proof=PROOF, artifacts=artifacts)
    return done


def follow(where: Place, local: Path, exclude: Sequence[str], patience: float, every: float) -> None:
    """Copy what there is, again and again, until the run is over. The pull with the proof comes after."""
    told = 0.0  # when its state was last known
    while True:
        refuse_sealed(local)
        there = Delivery(where, local, exclude, patience, known=told > 0).pull(rounds=1).there
        merge_events(local)
        now = state_of(there, own_record(local))
        if now.over:
            progress(f"{where.text}: {now.word}; now the proof")
            return
        word = now.word
        if word != rundir.UNKNOWN:
            told = time.monotonic()
        elif not told or time.monotonic() - told > every + patience:
            raise errors.lacking(f"cannot tell when {where.text} is over: {now.detail}; pull without --loop")
        else:
            word = f"{word} ({now.detail})"
        progress(f"{where.text}: {word}; {len(there.entries)} files, again in {units.show_duration(every)}")
        time.sleep(every)


def refuse_sealed(local: Path) -> None:
    """A seal that came from the box belongs to the pull; one that was made here closes the folder."""
    run = rundir.Run(local)
    with contextlib.suppress(RgtError):
        if any(row["path"] == run.seal.name for row in read_manifest(local)["files"]):
            return
    run.refuse_if_sealed()


def verify_folder(done: Delivery) -> int:
    """Load everything the manifest names and compare it; PULL_VERIFIED.json only when all of it passed.

    Returns the number of artifacts. A copy that is not what was listed is removed: the next pull fetches it again.
    """
    verdict, problems, done.proof = load_all(done.local)
    for path, p in sorted(problems, key=lambda entry: SEVERITIES.index(entry[1].severity)):
        fix = p.fix
        if p.code in _DAMAGED and path in verdict.expected.listed:
            path.unlink(missing_ok=True)
            fix = "this copy was removed; the same command fetches it again"
        finding = Finding(p.code, p.severity, p.message, str(path), where=p.where, evidence=p.evidence, fix=fix)
        done.findings.append(finding)
    if not verdict.artifacts:
        message = "holds no checkpoint or array, so nothing can be proved by loading it: no PULL_VERIFIED.json"
        done.findings.append(Finding("unverified", "warn", message, str(done.local)))
    return len(verdict.artifacts)


def load_all(local: Path) -> tuple[Verification, list[tuple[Path, Problem]], Path | None]:
    """Load what lies here now; the proof is written anew, or withdrawn."""
    from rgt.checkpoint import verify
    from rgt.checkpoint.examine import Options
    from rgt.checkpoint.survey import survey

    # a box can be destroyed on the word of the proof: what it speaks of must be on the disk, not in a cache
    flushing = threading.Thread(target=os.sync)
    flushing.start()
    found = survey(local)
    gauge = Gauge(verify.sizes(found), f"verify {local}")
    verdict = verify.verify(found, Options(max_abs=MAX_ABS), gauge.add)
    flushing.join()
    problems = [*verdict.problems, *(verify.withdraw(verdict) if verdict.failed else [])]
    return verdict, problems, next(iter(verify.prove(verdict, {"max_abs": MAX_ABS, "expect": None})), None)


def differing_record(local: Path) -> list[Finding]:
    """What the box's run.json says otherwise than ours. Ours counts: the box's is only kept to be read."""
    theirs, ours = local / RECORD_THERE, local / RECORD
    if not theirs.is_file() or not rundir.Run(local).is_recorded_here:
        return []
    try:
        said, own = files.read_json(theirs), files.read_json(ours)
        said = said if isinstance(said, dict) else {}
    except RgtError as error:
        return [Finding("changed", "warn", f"the run.json on the box is not ours: {error.message}", str(theirs))]
    fields = [name for name in sorted({*said, *own}) if said.get(name) != own.get(name)]
    if not fields:
        return []
    message = f"the run.json on the box differs from ours in {', '.join(map(repr, fields[:20]))}"
    evidence = "; ".join(f"{name}: {str(said.get(name))[:100]!r}" for name in fields[:5])
    fix = "ours is kept and used; find out who changed it on the box before you trust this run's results"
    return [Finding("changed", "warn", message, str(theirs), evidence=f"quoted from the box: {evidence}", fix=fix)]


def merge_events(local: Path) -> None:
    """Add the box's events that are not in ours yet; the file that came stays as it is."""
    known = event_rows(local / EVENTS)
    for key, row in event_rows(local / EVENTS_THERE).items():
        if key not in known and not (local / SEAL).exists():
            files.append_jsonl(local / EVENTS, row)


# -- the run: its records here, and whether it is over


def own_record(local: Path) -> dict[str, Any] | None:
    """run.json of a run that launch started from here. One that came with a pull is only the box's word."""
    with contextlib.suppress(RgtError):
        record: dict[str, Any] = files.read_json(local / RECORD, "run")
        return record if rundir.Run(local).is_recorded_here else None
    return None


def event_rows(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of an events file by their canonical text; none when there is no file."""
    rows = files.read_jsonl(path, bad=[]) if path.is_file() else ()
    return {json.dumps(row, sort_keys=True): row for row in rows}


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


# -- many runs


def gather(sources: list[Place], target: Path, patience: float) -> Iterator[tuple[Place, Path | None, list[Finding]]]:
    """Every run below the sources into target/<run-id>, with its proof; one that fails does not stop the others."""
    for where in sources:
        try:
            with contextlib.closing(Connection(where.host, patience)) as box:
                paths = sorted(row["run"] for row in runs_below(box, where.path, _DEPTH))
            if not paths:
                raise errors.bad_input("holds no run directory (a folder with run.json)")
        except RgtError as error:
            yield where, None, [Finding("unpulled", "error", error.message, where.text)]
            continue
        for path in paths:
            name, there = os.path.basename(path), Place(where.host, path)
            try:
                if why := fault(name):
                    raise errors.bad_input(f"its name {why}; nothing was copied")
                done = deliver(there, target / name, (), patience)
                yield there, done.proof, done.findings
            except (RgtError, OSError) as error:
                message = error.message if isinstance(error, RgtError) else errors.from_os_error(error).message
                yield there, None, [Finding("unpulled", "error", message, there.text)]
