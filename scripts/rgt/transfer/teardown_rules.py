"""The Iron Law as a checklist: nothing is destroyed before it is pulled, verified by load, and approved in words."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt import bundle, files, units
from rgt.checkpoint.proof import MANIFEST, PROOF
from rgt.errors import RgtError, bad_input
from rgt.host.ssh import parse_place
from rgt.platform import acts
from rgt.report import Finding, progress
from rgt.transfer.boxside import sha256_of
from rgt.transfer.connection import Connection
from rgt.transfer.delivery import log_decision, own_record, state_of
from rgt.transfer.listing import State, fault, runs_below, take_listing
from rgt.transfer.stage import FOLDER, listed_versions

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
    state: State | None = None
    lost_too: list[dict[str, Any]] = field(default_factory=list)  # other runs on the box

    def object(self, code: str, message: str, path: Path | str = "", fix: str | None = None) -> None:
        self.against.append(Finding(code, "error", message, str(path), fix=fix))

    def require_approval(self, words: str) -> None:
        if words != self.run_id:
            seen = f"--approve names {words!r}" if words else "there is no --approve"
            message = f"the user has not approved the end of {self.run_id}: {seen}"
            self.object("unapproved", message, fix=f"show the user this page and ask; then --approve {self.run_id}")

    def log(self, event: str, **detail: Any) -> str:
        """Write a decision down; why that failed, or nothing."""
        try:
            log_decision(self.local, event, act="down", **detail)
        except RgtError as error:
            progress(f"warning: {error.message}")
            return error.message
        return ""

    @property
    def pull_words(self) -> str:
        source = self.manifest["source"] if self.manifest else "<host:dir>"
        return bundle.command("transfer", "pull", source, self.local)


def examine(local: Path, variable: str = "", box_id: str = "", abandon: tuple[str, ...] = ()) -> Case:
    """Collects everything; it does not stop at the first."""
    case = _examine_here(local)
    manifest = case.manifest
    if not manifest:
        return case
    where = parse_place(manifest["source"])
    exclude = manifest.get("excluded", {}).get("patterns", [])
    try:
        with contextlib.closing(Connection(where.host)) as box:
            there = take_listing(box, where.path, exclude, variable)
            beside = runs_below(box, os.path.dirname(where.path) or "/", _SIBLINGS)
    except RgtError as error:
        message = f"{where.host.title} does not answer ({error.message}): what is on it now could not be compared"
        case.object("unseen", message, case.local, "start the box, and pull again")
        return case
    known, now = listed_versions(manifest), there.versions()
    newer = sorted({path for path, *_ in now - known})
    if newer:
        message = f"{len(newer)} files on {there.host.title} are new or changed since the pull: {_names(newer)}"
        case.object("unpulled", message, there.root, case.pull_words)
    case.against += [finding for finding in there.findings if finding.severity == "error"]
    if there.run_id and there.run_id != case.run_id:
        case.object("unpulled", f"{there.source} now holds {there.run_id}, not {case.run_id}", there.root)
    # the worst accident is the right command on the wrong box
    if variable and box_id and not there.env:
        unchecked = f"that {box_id} is this box could not be checked"
        case.notes.append(f"{variable} is not set on {there.host.title}: {unchecked}")
    elif variable and box_id and box_id != there.env and not there.env.endswith(f".{box_id}"):
        message = f"{there.host.title} calls itself {there.env!r}, and --id is {box_id!r}: the wrong box"
        case.object("wrong-box", message, there.root)
    case.state = state_of(there, own_record(case.local))
    if not case.state.over:
        detail = f" ({case.state.detail})" if case.state.detail else ""
        message = f"the run is {case.state.word}{detail}: what it is yet to write would be lost"
        fix = f"wait for its end, or end it with rgt launch stop, then pull again: {case.pull_words}"
        case.object("unfinished", message, case.local, fix)
    case.lost_too = [row for row in beside if row["run"] != there.root]
    for row in case.lost_too:
        name = os.path.basename(row["run"])
        pulled = case.local.absolute().parent / name  # its own pull may lie beside this one, whole and verified
        proved = (pulled / PROOF).is_file() and not _examine_here(pulled).against
        if row["artifacts"] and name not in abandon and not proved:
            message = f"{name} is on the box, too, with {row['artifacts']} artifacts, and is not pulled"
            fix = f"pull it to {pulled}, or give it up in words: --abandon {name}"
            case.object("unpulled", message, row["run"], fix)
    return case


def _examine_here(local: Path) -> Case:
    """The records of the pull, and whether the files are still those: the proof was true when it was written."""
    if not local.is_dir():
        raise bad_input(f"{local} is not a directory; name the folder that the run was pulled into")
    case = Case(local, local.absolute().name)
    with contextlib.suppress(RgtError):
        case.run_id = str(files.read_json(local / "run.json", "run")["run_id"])
    for name, kept_as, code, what in (
        (MANIFEST, "manifest", "unpulled", "nothing was pulled here"),
        (PROOF, "proof", "unverified", "what was pulled is not verified by load"),
    ):
        path = local / name
        if not path.is_file():
            case.object(code, f"{what}: there is no {name}", local, case.pull_words)
            continue
        try:
            setattr(case, kept_as, files.read_json(path, path.stem.lower()))
        except RgtError as error:
            case.object("malformed", error.message.removeprefix(f"{path} "), path, case.pull_words)
    if (local / FOLDER).exists():
        message = "an unfinished pull is in this folder"
        case.object("partial", message, local / FOLDER, f"finish it: {case.pull_words}")
    if case.manifest and case.proof:
        _check_proof(case, case.manifest, case.proof)
    rows = case.manifest["files"] if case.manifest else []
    inside = [row for row in rows if fault(row["path"]) is None]
    if len(inside) < len(rows):
        case.object("path-name", "names files outside of its folder", local / MANIFEST)
    gone = [row["path"] for row in inside if not (local / row["path"]).is_file()]
    here = [row for row in inside if row["path"] not in set(gone)]
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        digests = list(pool.map(lambda row: sha256_of(local / row["path"]), here))
    other = [row["path"] for row, now in zip(here, digests, strict=True) if now != row["sha256"]]
    if gone:
        message = f"{len(gone)} pulled files are no longer here: {_names(gone)}"
        case.object("missing", message, local, case.pull_words)
    if other:
        message = f"{len(other)} files have changed since they were verified: {_names(other)}"
        case.object("digest", message, local, case.pull_words)
    return case


def _check_proof(case: Case, manifest: dict[str, Any], proof: dict[str, Any]) -> None:
    """The proof must be of this manifest, of every file in it, and by load."""
    if proof.get("manifest_sha256") != sha256_of(case.local / MANIFEST):
        message = f"is not of this {MANIFEST}: something was pulled since"
        case.object("stale-proof", message, case.local / PROOF, case.pull_words)
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


# -- what it means


def consequences(profile: dict[str, Any], case: Case, act: str) -> Iterator[tuple[str, str]]:
    """(what, sentence): lost, kept, bills."""
    yield from acts.consequences(profile, act)
    for row in case.lost_too:
        yield "lost", f"{row['run']}, another run with {row['artifacts']} artifacts"
    left_out = (case.manifest or {}).get("excluded")
    if left_out:
        count, size = left_out["count"], units.show_size(left_out["bytes"])
        yield "lost", f"what --exclude left out of the pull: {count} paths, {size}: {_names(left_out['paths'])}"


def page(case: Case, profile: dict[str, Any], command: str, act: str) -> Iterator[tuple[str, str]]:
    """What the user is shown before the decision, as (what, sentence)."""
    yield "run", f"{case.run_id}, pulled from {case.manifest['source'] if case.manifest else 'nowhere'}"
    yield "platform", profile["title"]
    yield from consequences(profile, case, act)
    if case.proof:
        count, warnings = len(case.proof["artifacts"]), case.proof.get("warnings", 0)
        yield "proof", f"{count} files, verified {case.proof['verified']}, {warnings} warnings"
    yield from (("note", note) for note in case.notes)
    yield "command", f"{command}   ({'cannot' if act == 'destroy' else 'can'} be undone)"
