"""The Iron Law as a checklist: nothing is destroyed before it is pulled, verified by load, and approved in words."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cargo import place, roster, state, wire
from cargo.roster import Roster
from cargo.stage import FOLDER, MANIFEST, PROOF
from rgt import files, units
from rgt.errors import RgtError, bad_input
from rgt.hosts import Host
from rgt.report import Finding

_NAMED = 5
_SIBLINGS = 1  # folders deep: what lies beside the run


@dataclass
class Case:
    """One run, and all that speaks against the end of its box."""

    local: Path
    run_id: str
    manifest: dict[str, Any] | None = None
    proof: dict[str, Any] | None = None
    against: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    state: state.State | None = None
    lost_too: list[dict[str, Any]] = field(default_factory=list)  # other runs on the box

    def object(self, code: str, message: str, path: Path | str = "", fix: str | None = None) -> None:
        self.against.append(Finding(code, "error", message, str(path), fix=fix))

    @property
    def pull_words(self) -> str:
        source = self.manifest["source"] if self.manifest else "HOST:DIR"
        return f"python scripts/transfer.py pull {source} {self.local}"


def run_id_of(local: Path) -> str:
    if not local.is_dir():
        raise bad_input(f"{local} is not a directory; name the folder that the run was pulled into")
    with contextlib.suppress(RgtError):
        return str(files.read_json(local / "run.json", "run")["run_id"])
    return local.absolute().name


def examine(local: Path, variable: str = "", box_id: str = "", abandon: tuple[str, ...] = ()) -> Case:
    """Collects everything; it does not stop at the first."""
    case = Case(local, run_id_of(local))
    _records(case)
    if case.manifest:
        _still_here(case)
        _box(case, variable, box_id, abandon)
    return case


# -- what is here


def _records(case: Case) -> None:
    if (case.local / FOLDER).exists():
        case.object(
            "partial", "an unfinished pull is in this folder", case.local / FOLDER, f"finish it: {case.pull_words}"
        )
    for name, key, code, what in (
        (MANIFEST, "pull_manifest", "unpulled", "nothing was pulled here"),
        (PROOF, "pull_verified", "unverified", "what was pulled is not verified by load"),
    ):
        path = case.local / name
        if not path.is_file():
            case.object(code, f"{what}: there is no {name}", case.local, case.pull_words)
            continue
        try:
            data = files.read_json(path, key)
        except RgtError as error:
            case.object("malformed", error.message.removeprefix(f"{path} "), path, case.pull_words)
            continue
        if key == "pull_manifest":
            case.manifest = data
        else:
            case.proof = data
    if case.manifest and case.proof:
        _one_of_the_other(case, case.manifest, case.proof)


def _one_of_the_other(case: Case, manifest: dict[str, Any], proof: dict[str, Any]) -> None:
    sha256 = hashlib.sha256((case.local / MANIFEST).read_bytes()).hexdigest()
    if proof.get("manifest_sha256") != sha256:
        case.object(
            "stale-proof", f"is not of this {MANIFEST}: something was pulled since", case.local / PROOF, case.pull_words
        )
        return
    proved = {row["path"]: row["sha256"] for row in proof["artifacts"]}
    lacking = [row["path"] for row in manifest["files"] if proved.get(row["path"]) != row["sha256"]]
    if lacking:
        message = f"{len(lacking)} files of {MANIFEST} are not in {PROOF}: {_names(lacking)}"
        case.object("unverified", message, case.local, case.pull_words)
    if not any(row["tensors"] or row["format"] != "file" for row in proof["artifacts"]):
        case.object("unverified", "nothing in it was verified by load", case.local / PROOF)
    if manifest.get("run_id", case.run_id) != case.run_id:
        case.object("unpulled", f"the pull is of {manifest['run_id']}, not of {case.run_id}", case.local / MANIFEST)


def _names(paths: list[str]) -> str:
    return ", ".join(map(repr, paths[:_NAMED])) + (", ..." if len(paths) > _NAMED else "")


def _still_here(case: Case) -> None:
    """The proof was true when it was written; the files are read again, now."""
    assert case.manifest
    rows = [row for row in case.manifest["files"] if roster.fault(row["path"]) is None]
    if len(rows) < len(case.manifest["files"]):
        case.object("path-name", "names files outside of its folder", case.local / MANIFEST)
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        digests = list(pool.map(lambda row: _digest(case.local / row["path"]), rows))
    gone = [row["path"] for row, now in zip(rows, digests, strict=True) if now is None]
    other = [row["path"] for row, now in zip(rows, digests, strict=True) if now not in (None, row["sha256"])]
    if gone:
        case.object(
            "missing", f"{len(gone)} pulled files are no longer here: {_names(gone)}", case.local, case.pull_words
        )
    if other:
        case.object(
            "digest",
            f"{len(other)} files have changed since they were verified: {_names(other)}",
            case.local,
            case.pull_words,
        )


def _digest(path: Path) -> str | None:
    state_, buffer = hashlib.sha256(), bytearray(1 << 20)
    try:
        with path.open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                state_.update(memoryview(buffer)[:count])
    except OSError:
        return None
    return state_.hexdigest()


# -- what is there


def _box(case: Case, variable: str, box_id: str, abandon: tuple[str, ...]) -> None:
    assert case.manifest
    where = place.parse(case.manifest["source"])
    exclude = case.manifest.get("excluded", {}).get("patterns", [])
    try:
        found = wire.first(where.host, lambda: roster.take(where.host, where.path, exclude, variable))
        beside = roster.runs_below(where.host, os.path.dirname(where.path) or "/", _SIBLINGS)
    except (RgtError, wire.Dropped) as error:
        _out_of_reach(case, where.host, getattr(error, "message", str(error)))
        return
    _compare(case, found)
    _identity(case, found, variable, box_id)
    case.state = state.of(found, state.own_record(case.local))
    if not case.state.over:
        detail = f" ({case.state.detail})" if case.state.detail else ""
        message = f"the run is {case.state.word}{detail}: what it is yet to write would be lost"
        fix = "wait for its end, or end it with launch.py stop, then pull again"
        case.object("unfinished", message, case.local, fix)
    _others(case, found, beside, abandon)


def _out_of_reach(case: Case, host: Host, why: str) -> None:
    """The box is stopped, or gone. Then the last pull must have seen the run's end."""
    assert case.manifest
    case.notes.append(f"{host.title} does not answer ({why}); what is on it now could not be compared")
    sha256 = hashlib.sha256((case.local / MANIFEST).read_bytes()).hexdigest()
    events = state.decisions(case.local)
    rows = list(files.read_jsonl(events, bad=[])) if events.exists() else []
    pulls = [row for row in rows if row.get("event") == "pulled" and row.get("manifest_sha256") == sha256]
    if not pulls or not state.State(str(pulls[-1].get("state"))).over:
        seen = pulls[-1].get("state") if pulls else "not recorded"
        message = f"{host.title} does not answer, and at the last pull the run's state was: {seen}"
        case.object("unfinished", message, case.local, "start the box, and pull again")


def _compare(case: Case, found: Roster) -> None:
    assert case.manifest
    known = {row.get("there", row["path"]): (row["bytes"], row.get("mtime_ns")) for row in case.manifest["files"]}
    there = {entry.path: (entry.bytes, entry.mtime_ns) for entry in found.entries.values()}
    newer = sorted(path for path, version in there.items() if known.get(path) != version)
    if newer:
        message = f"{len(newer)} files on {found.host.title} are new or changed since the pull: {_names(newer)}"
        case.object("unpulled", message, found.root, case.pull_words)
    case.against += [finding for finding in found.findings if finding.severity == "error"]
    if found.run_id and found.run_id != case.run_id:
        case.object("unpulled", f"{found.source} now holds {found.run_id}, not {case.run_id}", found.root)
    gone = len(known.keys() - there.keys())
    if gone:
        case.notes.append(f"{gone} of the pulled files are no longer on the box; they are here")


def _identity(case: Case, found: Roster, variable: str, box_id: str) -> None:
    """The worst accident is the right command on the wrong box."""
    if not variable or not box_id:
        return
    if not found.env:
        case.notes.append(
            f"{variable} is not set on {found.host.title}: that {box_id} is this box could not be checked"
        )
    elif box_id != found.env and not found.env.endswith(f".{box_id}"):
        case.object(
            "wrong-box",
            f"{found.host.title} calls itself {found.env!r}, and --id is {box_id!r}: the wrong box",
            found.root,
        )


def _others(case: Case, found: Roster, beside: list[dict[str, Any]], abandon: tuple[str, ...]) -> None:
    case.lost_too = [row for row in beside if row["run"] != found.root]
    for row in case.lost_too:
        name = os.path.basename(row["run"])
        if row["artifacts"] and name not in abandon and not _proved_beside(case, name):
            message = f"{name} is on the box, too, with {row['artifacts']} artifacts, and is not pulled"
            fix = f"pull it to {case.local.absolute().parent / name}, or give it up in words: --abandon {name}"
            case.object("unpulled", message, row["run"], fix)


def _proved_beside(case: Case, name: str) -> bool:
    """Its pull lies beside this one, whole and verified."""
    other = case.local.absolute().parent / name
    if not (other / MANIFEST).is_file() or not (other / PROOF).is_file():
        return False
    sibling = Case(other, run_id_of(other))
    _records(sibling)
    if not sibling.against:
        _still_here(sibling)
    return not sibling.against


# -- what it means


def consequences(profile: dict[str, Any], case: Case) -> Iterator[tuple[str, str]]:
    """(what, sentence): lost, kept, bills."""
    for tier in profile["storage"]:
        price = f", {tier['price']}" if tier.get("price") else ""
        if tier["destroy"] == "kept":
            yield "keeps billing" if price else "kept", f"{tier['tier']} ({tier['path']}){price}"
        else:
            unsure = "" if tier["destroy"] == "lost" else ": what becomes of it is not known, count it as lost"
            yield "lost", f"{tier['tier']} ({tier['path']}){unsure}"
    for row in case.lost_too:
        yield "lost", f"{row['run']}, another run with {row['artifacts']} artifacts"
    left_out = (case.manifest or {}).get("excluded")
    if left_out:
        size = units.show_size(left_out["bytes"])
        yield (
            "lost",
            f"what --exclude left out of the pull: {left_out['count']} paths, {size}: {_names(left_out['paths'])}",
        )
    yield "only stopped", f"still bills {profile['meter']['stopped_still_bills']['value']}"
