"""A whole pull: copy, verify by load, fetch again what is not what was listed, write down what happened."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cargo import prove, roster, state, wire
from cargo.place import Place
from cargo.prove import Verified
from cargo.pull import Outcome, Pull
from cargo.roster import EVENTS, EVENTS_THERE
from cargo.stage import FOLDER, MANIFEST, PROOF, Stage, read_manifest
from rgt import errors, files, rundir
from rgt.errors import RgtError
from rgt.report import Finding

_AGAIN = 2  # times that damaged copies are fetched again


@dataclass
class Delivery:
    local: Path
    outcome: Outcome
    verified: Verified | None = None
    state: state.State | None = None
    findings: list[Finding] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        found, done = self.outcome.found, self.outcome
        return {
            "source": found.source,
            "local": str(self.local),
            "run_id": found.run_id,
            "files": len(found.entries),
            "bytes": found.bytes,
            "by": done.mover,
            "drops": done.drops,
            "seconds": round(done.seconds, 3),
            "complete": done.complete,
            "state": self.state.word if self.state else None,
            "proof": str(self.verified.proof) if self.verified and self.verified.proof else None,
        }


def deliver(where: Place, local: Path, exclude: Sequence[str], patience: float, known: bool = False) -> Delivery:
    """Copied, verified, recorded. `known`: the box has answered before."""
    refuse_sealed(local)
    prove.get_ready()
    for attempt in range(_AGAIN + 1):
        outcome = Pull(where, local, exclude, patience, known=known).run()
        delivery = Delivery(local, outcome, findings=list(outcome.findings))
        if not outcome.complete:
            return delivery
        delivery.verified = prove.verify_folder(local)
        if not delivery.verified.again or attempt == _AGAIN:
            break
        _discard(local, outcome, set(delivery.verified.again))
    assert delivery.verified
    delivery.findings += delivery.verified.findings
    if not any(finding.severity == "error" for finding in delivery.verified.findings):
        Stage(local).finish()
    delivery.state = state.of(outcome.found, state.own_record(local))
    _record(delivery)
    return delivery


def snapshot(where: Place, local: Path, exclude: Sequence[str], patience: float, known: bool = False) -> Delivery:
    """What can be had of a run that goes on: copied once, proved later."""
    refuse_sealed(local)
    outcome = Pull(where, local, exclude, patience, rounds=1, known=known).run()
    merge_events(local)
    return Delivery(local, outcome, state=state.of(outcome.found, state.own_record(local)))


def refuse_sealed(local: Path) -> None:
    """A seal that came from the box belongs to the pull; one that was made here closes the folder."""
    run = rundir.Run(local)
    if run.seal.exists() and not any(row["path"] == run.seal.name for row in _manifest_rows(local)):
        run.refuse_if_sealed()


def _manifest_rows(local: Path) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = read_manifest(local / MANIFEST)["files"]
    except RgtError:
        return []
    return rows


def _discard(local: Path, outcome: Outcome, paths: set[Path]) -> None:
    stage = Stage(local)
    for entry in outcome.found.entries.values():
        if local / entry.local in paths:
            stage.discard(entry)


def _record(delivery: Delivery) -> None:
    local, found = delivery.local, delivery.outcome.found
    merge_events(delivery.local)
    sha256 = hashlib.sha256((delivery.local / MANIFEST).read_bytes()).hexdigest()
    word = delivery.state.word if delivery.state else "unknown"
    state.log(
        local,
        "pulled",
        source=found.source,
        files=len(found.entries),
        bytes=found.bytes,
        manifest_sha256=sha256,
        state=word,
    )
    if delivery.verified and delivery.verified.proof:
        state.log(local, "verified", proof=PROOF, artifacts=delivery.verified.artifacts)


def merge_events(local: Path) -> None:
    """Add the box's events that are not in ours yet; the file that came stays as it is."""
    there, here = local / EVENTS_THERE, local / EVENTS
    if not there.is_file() or (local / roster.SEAL).exists():
        return
    with here.open("ab+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        known = {state.canonical(row) for row in files.read_jsonl(here, bad=[])}
        new = [row for row in files.read_jsonl(there, bad=[]) if state.canonical(row) not in known]
        if not new:
            return
        file.seek(0)
        text = file.read()
        gap = b"" if not text or text.endswith(b"\n") else b"\n"
        file.write(gap + b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in new))
        file.flush()
        os.fsync(file.fileno())


# -- many runs


@dataclass
class Gathered:
    run: str
    source: str
    state: str  # verified | unchanged | failed
    detail: str = ""
    bytes: int = 0
    findings: list[Finding] = field(default_factory=list)


def gather(sources: list[Place], target: Path, patience: float) -> Iterator[Gathered]:
    """Every run below the sources into target/<run-id>; one that fails does not stop the others."""
    for where in sources:
        try:
            rows = wire.first(where.host, functools.partial(roster.runs_below, where.host, where.path, 4))
        except RgtError as error:
            yield Gathered("", where.text, "failed", error.message)
            continue
        if not rows:
            yield Gathered("", where.text, "failed", "holds no run directory (a folder with run.json)")
        for path in sorted(row["run"] for row in rows):
            name, there = os.path.basename(path), Place(where.host, path)
            why = roster.fault(name)
            if why:
                yield Gathered("", there.text, "failed", f"its name {why}; nothing was copied")
            else:
                yield _gather_one(there, target / name, patience)


def _gather_one(where: Place, local: Path, patience: float) -> Gathered:
    try:
        if unchanged(where, local):
            return Gathered(
                local.name, where.text, "unchanged", bytes=sum(row["bytes"] for row in _manifest_rows(local))
            )
        done = deliver(where, local, (), patience)
    except RgtError as error:
        return Gathered(local.name, where.text, "failed", error.message)
    except OSError as error:
        return Gathered(local.name, where.text, "failed", errors.from_os_error(error).message)
    worst = [finding for finding in done.findings if finding.severity == "error"]
    proved = bool(done.verified and done.verified.proof)
    detail = "" if proved else worst[0].message if worst else "nothing in it can be verified by load"
    word = "verified" if proved else "failed"
    return Gathered(local.name, where.text, word, detail, done.outcome.found.bytes, done.findings)


def unchanged(where: Place, local: Path) -> bool:
    """Proved before, the same on both sides by size and time: not read again."""
    if (local / FOLDER).exists() or not (local / PROOF).is_file():
        return False
    try:
        manifest = read_manifest(local / MANIFEST)
        proof = files.read_json(local / PROOF, "pull_verified")
        found = roster.take(where.host, where.path, manifest.get("excluded", {}).get("patterns", []))
    except (RgtError, wire.Dropped):
        return False
    known = {(row.get("there", row["path"]), row["bytes"], row.get("mtime_ns")) for row in manifest["files"]}
    stage = Stage(local)
    return (
        proof.get("manifest_sha256") == hashlib.sha256((local / MANIFEST).read_bytes()).hexdigest()
        and manifest["source"] == found.source
        and known == found.versions()
        and all(map(stage.in_place, found.entries.values()))
    )
