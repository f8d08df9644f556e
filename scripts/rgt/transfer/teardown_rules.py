"""The Iron Law as a checklist: nothing is destroyed before it is pulled, verified by load, and approved in words.

No record is believed: the box makes its digests now, and what lies here is hashed and loaded again now. What the box
holds is here by digest, or in a store that tells the same hash now, or it is given up by name and true size.
"""

from __future__ import annotations

import calendar
import contextlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt import bundle, files, schema, units
from rgt.checkpoint.names import MANIFEST, STORE_PROOF
from rgt.errors import RgtError, bad_input
from rgt.host import stores
from rgt.host.ssh import Place, parse_place
from rgt.platform import acts
from rgt.report import Finding, progress
from rgt.run import approval, billing
from rgt.run import lease as leases
from rgt.run.record import RUN_ID, Run, log_decision
from rgt.transfer.boxside import is_inside, sha256_of
from rgt.transfer.connection import Connection
from rgt.transfer.delivery import FOLDER, load_all, read_manifest
from rgt.transfer.listing import Listing, State, fault, own_record, state_of, take_listing

_NAMED = 5
_GROUPS = 20  # places on the box that are named one by one
_SECONDS, _ROWS = 60.0, 20_000  # for the look at the box's disks


@dataclass
class Disks:
    """What the box said about its disks."""

    roots: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)  # files that count, with their bytes
    given: list[dict[str, Any]] = field(default_factory=list)  # what is given up, with its true size
    left: list[str] = field(default_factory=list)  # system folders, package caches, what cannot be read
    late: str = ""  # where the time or the rows ended
    busy: list[tuple[int, str]] = field(default_factory=list)  # pid, what it does
    notes: list[str] = field(default_factory=list)


@dataclass
class Case:
    """One run, and all that speaks against the end of its box."""

    local: Path
    facts: dict[str, Any]  # the platform's profile
    values: dict[str, str]  # for the holes in its commands
    command: str
    act: str  # stop or destroy
    abandon: tuple[str, ...] = ()
    lease: Path | None = None  # instead of a phrase, for a stop that keeps the run's disk
    profile: str = ""  # as it was given
    run_id: str = ""
    manifest: dict[str, Any] | None = None
    source: str = ""  # where the run is on the box: HOST:DIR
    store: dict[str, Any] | None = None  # STORE_VERIFIED.json, when the store still tells the same
    loaded: str = ""
    against: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    state: State | None = None
    disks: Disks = field(default_factory=Disks)

    def object(self, code: str, message: str, path: Path | str = "", fix: str | None = None) -> None:
        self.against.append(Finding(code, "error", message, str(path), fix=fix))

    @property
    def box_id(self) -> str:
        return self.values.get("id", "")

    def require_approval(self, words: str) -> None:
        """The phrase is shown when nothing else is missing: nobody is asked to approve what cannot be done."""
        if self.lease:
            path = parse_place(self.source).path if self.source else ""
            loses = acts.why_stop_loses(self.facts, path)
            if why := leases.problem(self.lease, *self.leased) or loses:
                self.object("unapproved", f"the lease does not approve the end of {self.run_id}: {why}", self.lease)
            return
        act = approval.Act(self.run_id, self.box_id, self.facts["name"], self.command, self.abandon)
        why = approval.problem(self.local, act, words)
        if not why:
            return
        fix = "mend the rest first; then the phrase is shown that the user repeats"
        if not self.against:
            phrase = approval.phrase_for(self.local, act)
            self.notes.append(f'to approve, the user says until {phrase.until}: "{phrase.text}"')
            fix = "show the user this page, wait for their answer, and give it word for word: --approve <their-words>"
        self.object("unapproved", f"the user has not approved the end of {self.run_id}: {why}", fix=fix)

    @property
    def leased(self) -> tuple[Path, str, str, str]:
        """What a lease must be for."""
        return self.local, self.profile, self.box_id, self.act

    def log(self, event: str, **detail: Any) -> str:
        """Write a decision down; why that failed, or nothing. An empty folder is no run and stays empty."""
        try:
            if any(self.local.iterdir()):
                log_decision(self.local, event, act="down", **detail)
        except RgtError as error:
            progress(f"warning: {error.message}")
            return error.message
        return ""

    @property
    def pull_words(self) -> str:
        return bundle.command("transfer", "pull", self.source or "<host:dir>", self.local)


def examine(case: Case, variable: str = "") -> None:
    """Collects everything; it does not stop at the first."""
    if not case.local.is_dir():
        raise bad_input(f"{case.local} is not a directory; name the folder that the run was pulled into")
    for path in case.abandon:
        if not path.startswith(("/", "~")):
            raise bad_input(f"--abandon takes a path on the box as this page names it (/... or ~/...), not {path!r}")
    copies = _examine_here(case)
    if not case.manifest and not case.store:
        return
    where = parse_place(case.source)
    try:
        with contextlib.closing(Connection(where.host)) as box:
            there = take_listing(box, where.path, case.local, variable=variable)
            _check_id(case, there, variable)
            if any(finding.code == "wrong-box" for finding in case.against):
                return  # the disks and processes of another machine are not to be told as this box's
            _ask_disks(case, box, there)
            sizes = {**case.disks.sizes, **{f"{there.root}/{path}": e.bytes for path, e in there.entries.items()}}
            here = _held_here(box, sizes, copies)
    except RgtError as error:
        message = f"{where.host.title} does not answer as it should ({error.message}): what is on it was not compared"
        # only the provider's own list can say so; that nobody answers is no sign of it
        if case.box_id and acts.ask(case.facts, case.values).is_stopped(case.box_id):
            case.notes.append(f"{message}; the provider lists {case.box_id} as stopped, so the pull counts as it is")
            return
        fix = f"mend the connection, or start the box, then pull again: {case.pull_words}"
        case.object("unseen", message, case.local, fix)
        return
    _compare(case, there, sizes, here)
    for folder in sorted(copies.used - {case.local.absolute()}):
        _load(case, folder)
    if there.run_id and there.run_id != case.run_id:
        case.object("unpulled", f"{there.source} now holds {there.run_id}, not {case.run_id}", there.root)
    record = own_record(case.local)
    case.state = state_of(there, record)
    if not case.state.over:
        detail = f" ({case.state.detail})" if case.state.detail else ""
        message = f"the run is {case.state.word}{detail}: what it is yet to write would be lost"
        stop = bundle.command("launch", "stop", case.local) if record else f"on {there.host.title}"
        case.object("unfinished", message, case.local, f"wait for its end, or end it ({stop}), then: {case.pull_words}")


# -- here


class Copies:
    """Files of pulled folders by size; a digest is made when the box has a file of that size. And those in a store."""

    def __init__(self, folders: list[Path]) -> None:
        self.by_size: dict[int, list[tuple[Path, Path]]] = defaultdict(list)  # file, its pulled folder
        self.digests: dict[Path, str] = {}
        self.used: set[Path] = set()  # pulled folders that were needed
        self.stored: dict[int, set[str]] = defaultdict(set)  # sha256 by size
        for root in folders:
            for folder, below, names in os.walk(root):
                below[:] = [name for name in below if name != FOLDER]
                for path in (Path(folder, name) for name in names):
                    if path.is_file() and not path.is_symlink():
                        self.by_size[path.stat().st_size].append((path, root))

    def holds(self, size: int, sha256: str) -> bool:
        if sha256 in self.stored.get(size, ()):
            return True
        for path, root in self.by_size[size]:
            if path not in self.digests:
                with contextlib.suppress(OSError):  # what cannot be read here is not here
                    self.digests[path] = sha256_of(path)
            if self.digests.get(path) == sha256:
                self.used.add(root)
                return True
        return False


def _examine_here(case: Case) -> Copies:
    """The pull's own folder, loaded again, and the pulls beside it."""
    local = case.local.absolute()
    case.run_id = local.name
    with contextlib.suppress(RgtError):
        case.run_id = str(files.read_json(local / "run.json", "run")["run_id"])
    beside = [path.parent for path in sorted(local.parent.glob(f"*/{MANIFEST}")) if path.parent != local]
    copies = Copies([local, *beside])
    if (local / FOLDER).exists():
        case.object("partial", "an unfinished pull is in this folder", local / FOLDER, f"finish it: {case.pull_words}")
    missing = ""
    try:
        case.manifest = read_manifest(local)
        case.source = case.manifest["source"]
    except RgtError as error:
        missing = error.message.removeprefix(f"{local / MANIFEST} ")
        with contextlib.suppress(RgtError):
            from rgt.job import backends

            case.source = next((place.text for place in backends.places(Run(local))), "")
    unstored = _ask_store(case, copies)
    if not case.manifest:
        if unstored:
            message = f"nothing was pulled here: {MANIFEST} {missing}; {unstored}"
            case.object("unpulled", message, case.local, case.pull_words)
        return copies
    if unstored.startswith("and"):
        case.notes.append(f"{unstored.removeprefix('and ')}; only what was pulled counts")
    if any(fault(row["path"]) for row in case.manifest["files"]):
        case.object("path-name", "names files outside of its folder", local / MANIFEST, case.pull_words)
        return copies
    if case.manifest.get("run_id", case.run_id) != case.run_id:
        message = f"the pull is of {case.manifest['run_id']}, not of {case.run_id}"
        case.object("unpulled", message, local / MANIFEST, case.pull_words)
    copies.digests |= _load(case, local)
    return copies


def _store_proof(case: Case) -> dict[str, Any] | None:
    """Where the upload was made: on the box, else here."""
    where, path = parse_place(case.source), case.local.absolute() / STORE_PROOF
    with contextlib.suppress(RgtError):  # a box that does not answer is told by `examine`
        if data := where.host.read(f"{where.path}/{STORE_PROOF}"):
            proof: dict[str, Any] = json.loads(data)
            schema.check(proof, "store_verified", f"{case.source}/{STORE_PROOF}")
            return proof
    return dict(files.read_json(path, "store_verified")) if path.is_file() else None


def _ask_store(case: Case, copies: Copies) -> str:
    """What a store still holds by the hashes of its proof counts as here; why it does not, or nothing."""
    try:
        proof = _store_proof(case) if case.source else None
        if proof is None:
            return f"nor is there a {STORE_PROOF}, here or on the box"
        if proof["run_id"] != case.run_id:
            return f"and {STORE_PROOF} is of {proof['run_id']}, not of {case.run_id}"
        wrong = stores.still_there(proof)
    except (RgtError, ValueError) as error:
        return f"and {STORE_PROOF} could not be checked: {getattr(error, 'message', 'it is not JSON')}"
    if wrong:
        return f"and {proof['store']} no longer holds {len(wrong)} of {len(proof['files'])} files as sent: {wrong[0]}"
    case.store = proof
    for row in proof["files"]:
        copies.stored[row["bytes"]].add(row["sha256"])
    case.loaded = f"{len(proof['files'])} files in {proof['store']}, {proof['loaded']} of them loaded before"
    files.write_json(case.local / STORE_PROOF, proof, "store_verified")  # the guard looks for it here
    if not proof["loaded"]:
        case.object("unverified", f"nothing in {proof['store']} was verified by load", case.local, case.pull_words)
    for path, why in proof["unproved"].items():
        pulled = case.manifest and (case.local / path).exists()  # then it is loaded here
        if not pulled and not any(given.endswith(f"/{path}") for given in case.abandon):
            case.object("unverified", f"{path} in {proof['store']}: {why}", path, case.pull_words)
    return ""


def _load(case: Case, folder: Path) -> dict[Path, str]:
    """Load a pulled folder now; its digests. What is damaged speaks against the end."""
    verdict, problems, _ = load_all(folder)
    words = case.pull_words if folder == case.local.absolute() else f"pull it again into {folder}"
    # what is missing here, or the lack of any checkpoint here, is no matter where the store has it
    stored = {folder, *(folder / row["path"] for row in case.store["files"])} if case.store else set()
    for path, problem in problems:
        if problem.severity == "error" and not (problem.code in ("missing", "unknown") and path in stored):
            case.object(problem.code, f"fails the check by load, made now: {problem.message}", path, words)
    if folder == case.local.absolute():
        warnings = sum(problem.severity == "warn" for _, problem in problems)
        files_here = [*verdict.artifacts, *verdict.plain]
        here = f"{len(files_here)} files here, {len(verdict.artifacts)} of them loaded now, {warnings} warnings"
        case.loaded = f"{here}; {case.loaded}" if case.store else here
        if not verdict.artifacts and not case.store:
            case.object("unverified", "holds nothing that could be verified by load", folder, words)
        for path in verdict.unchecked_weights:
            if not any(given.endswith(f"/{path.relative_to(folder).as_posix()}") for given in case.abandon):
                fix = "look at it yourself; then leave it out of this check by name: --abandon <its path on the box>"
                case.object("unknown", "is of an unknown format: nobody has opened it", path, fix)
    return {one.path: one.sha256 for one in (*verdict.artifacts, *verdict.plain) if one.sha256}


# -- on the box


def _ask_disks(case: Case, box: Connection, there: Listing) -> None:
    """Every place that ends with the box. Of a scheduler's job only the named tiers end; one's own machine stays."""
    kind = case.facts["kind"]
    whole = kind in ("rented", "notebook")
    ends = {"rented": ("lost", "unknown"), "notebook": ("lost", "unknown"), "scheduler": ("lost",)}.get(kind, ())
    fate = "stop" if case.lease else "destroy"  # a lease is for a stop: what that keeps is not at stake
    fates = [(place.strip(), tier[fate]) for tier in case.facts["storage"] for place in tier["path"].split(",")]
    lost = [place for place, fate in fates if fate in ends]
    kept = [place.partition("<")[0] for place, fate in fates if fate == "kept" and place not in lost]
    since = min((entry.mtime_ns / 1e9 for entry in there.entries.values()), default=0.0)
    if RUN_ID.fullmatch(case.run_id):
        with contextlib.suppress(ValueError):
            since = calendar.timegm(time.strptime(case.run_id[:15], "%Y%m%d-%H%M%S"))
    asked = {
        "run": there.root,
        "whole_disk": whole,
        "roots": [*(["~"] if whole else []), *(place for place in lost if place[:1] in ("/", "~", "$"))],
        "kept": [place for place in kept if place[:1] in ("/", "~")],
        "abandoned": list(case.abandon),
        "since": since,
        "seconds": _SECONDS,
        "most": _ROWS,
    }

    def ask() -> Disks:
        found = Disks()
        for row in box.answer("disks", **asked):
            try:
                _take(found, row)
            except (KeyError, TypeError, ValueError):
                raise box.strange(row) from None
        return found

    case.disks = box.again(ask)
    case.notes += case.disks.notes


def _take(found: Disks, row: dict[str, Any]) -> None:
    """One row of the box's answer; KeyError, TypeError or ValueError when it is none of ours."""
    if "f" in row:
        found.sizes[str(row["f"])] = int(row["b"])
    elif "roots" in row:
        found.roots = [str(root) for root in row["roots"]]
    elif "given" in row:
        size = {"files": int(row["n"]), "bytes": int(row["b"])}
        found.given.append(
            {"path": str(row["given"]), **size, "whole": bool(row["whole"]), "there": bool(row["there"])}
        )
    elif "left" in row:
        found.left.append(str(row["left"]))
    elif "denied" in row:
        found.left.append(f"{row['denied']} (unreadable)")
    elif "late" in row:
        found.late = str(row["late"])
    elif "pid" in row:
        found.busy.append((int(row["pid"]), f"{row['what']} ({str(row['command'])!r})"))
    elif "blind" in row:
        found.notes.append(f"{int(row['blind'])} processes could not be asked what they write")
    elif "sick" in row:
        found.notes.append(f"the GPUs could not be asked who uses them: {str(row['sick'])[:200]}")
    elif "run" not in row:
        raise ValueError


def _held_here(box: Connection, sizes: dict[str, int], copies: Copies) -> set[str]:
    """Files of the box whose content is here: digests made there now against digests made here now."""
    asked = [(path, size) for path, size in sorted(sizes.items()) if size in copies.by_size or size in copies.stored]
    progress(f"{box.host.title}: sha256 of {len(asked)} files, {units.show_size(sum(size for _, size in asked))}")
    here = {path for path, size in sizes.items() if not size}  # an empty file holds nothing to lose

    def ask() -> None:
        for row in box.answer("send", root="/", files=[(path.lstrip("/"), size, size) for path, size in asked]):
            if not isinstance(row.get("i"), int) or not 0 <= row["i"] < len(asked) or "s" not in row:
                raise box.strange(row)
            path, size = asked[row["i"]]
            if row.get("b") == size and copies.holds(size, str(row["s"])):
                here.add(path)

    if asked:
        box.again(ask)
    return here


def _compare(case: Case, there: Listing, sizes: dict[str, int], here: set[str]) -> None:
    given = [*(str(row["path"]) for row in case.disks.given), *case.abandon]
    # the run itself cannot be given up
    below = [path for path in given if path != there.root and is_inside(path, [there.root])]
    is_given = {path: is_inside(path, below if is_inside(path, [there.root]) else given) for path in sizes}
    lacking = {path: size for path, size in sizes.items() if path not in here and not is_given[path]}
    groups: dict[str, list[str]] = defaultdict(list)
    anchors = {above for path in (*here, there.root, *case.disks.roots) for above in _above(path)}
    anchors |= {there.root, *case.disks.roots}
    for path in lacking:
        groups[next((above for above in _above(path) if above not in anchors), path)].append(path)
    ranked = sorted(groups.items(), key=lambda item: -sum(lacking[path] for path in item[1]))
    for place, paths in ranked[:_GROUPS]:
        size, drop = units.show_size(sum(lacking[path] for path in paths)), f"give it up by name: --abandon {place!r}"
        names = _names([os.path.relpath(path, os.path.dirname(place)) for path in paths])
        message = f"{len(paths)} files on {there.host.title} ({size}) are not here as they are there now: {names}"
        again = case.pull_words
        if not is_inside(place, [there.root]):
            folder = place if [place] != paths else os.path.dirname(place)
            target = case.local.parent / (os.path.basename(folder) or "disk")
            again = bundle.command("transfer", "pull", Place(there.host, folder).text, target)
        elif left_out := (case.manifest or {}).get("excluded"):
            message += f"; the pull left out {_names(left_out['patterns'])}"
        fix = f"{again}; or {drop}"
        case.object("unpulled", message, place, fix)
    if len(ranked) > _GROUPS:
        rest = sum(lacking[path] for _, paths in ranked[_GROUPS:] for path in paths)
        case.object("unpulled", f"and {len(ranked) - _GROUPS} more places with {units.show_size(rest)}", there.root)
    for finding in there.findings:
        if finding.severity == "error" and not is_inside(f"{there.root}/{finding.path}", below):
            case.against.append(finding)
    if case.disks.late:
        message = f"the look at the disks ended here, after {_SECONDS:g} s or {_ROWS} files; the rest is not known"
        case.object("unseen", message, case.disks.late, "pull or give up what is large: --abandon PATH, then ask again")
    for pid, what in case.disks.busy:
        message = f"process {pid} on {there.host.title} {what}"
        case.object("unfinished", message, there.root, "wait for its end, or end it there; then pull again")


def _above(path: str) -> list[str]:
    """The folders above a path, the highest first, and not the path itself."""
    parts = path.split("/")
    return ["/".join(parts[:count]) or "/" for count in range(1, len(parts))]


def _check_id(case: Case, there: Listing, variable: str) -> None:
    """The worst accident is the right command on the wrong box."""
    unchecked = f"that {case.box_id or 'what ends'} is this box could not be checked"
    if not there.host.name and not there.env and case.facts["kind"] in ("rented", "notebook"):
        fix = f"pull from the box itself: {bundle.command('transfer', 'pull', '<host:dir>', case.local)}"
        case.object("wrong-box", f"the pull is of a folder on this machine: {unchecked}", there.root, fix)
    elif not variable or not case.box_id:
        return
    elif not there.env:
        case.notes.append(f"{variable} is not set on {there.host.title}: {unchecked}")
    elif case.box_id != there.env and not there.env.endswith(f".{case.box_id}"):
        message = f"{there.host.title} calls itself {there.env!r}, and --id is {case.box_id!r}: the wrong box"
        case.object("wrong-box", message, there.root, f"give the id of this box: --id {there.env!r}")


def _names(paths: list[str]) -> str:
    return ", ".join(map(repr, paths[:_NAMED])) + (", ..." if len(paths) > _NAMED else "")


# -- what it means


def consequences(case: Case) -> Iterator[tuple[str, str]]:
    """(what, sentence): lost, kept, bills."""
    yield from acts.consequences(case.facts, case.act)
    for row in case.disks.given:
        size = f"{row['files']} files, {'' if row['whole'] else 'at least '}{units.show_size(row['bytes'])}"
        yield "lost", f"{row['path']}: {size}, given up" if row["there"] else f"{row['path']}: nothing is there"


def page(case: Case) -> Iterator[tuple[str, str]]:
    """What the user is shown before the decision, as (what, sentence)."""
    where = f"{'pulled from' if case.manifest else 'on'} {case.source}" if case.source else "where it is is not known"
    yield "run", f"{case.run_id}, {where}"
    if case.store:
        yield "stored", f"{case.store['store']}: {len(case.store['files'])} files, by the hashes it tells now"
    yield "platform", case.facts["title"]
    yield from consequences(case)
    yield "cost", billing.bill_of(case.local).sentence()
    if case.loaded:
        yield "proof", case.loaded
    if case.disks.roots:
        yield "looked at", f"{', '.join(case.disks.roots)}: {len(case.disks.sizes)} files that count besides the run's"
    if left := case.disks.left:
        yield "left out", ", ".join(left[:_GROUPS]) + (f" and {len(left) - _GROUPS} more" if left[_GROUPS:] else "")
    yield from (("note", note) for note in case.notes)
    keep = "; to keep the disk: --act stop" if "stop" in case.facts["verbs"] else ""
    yield "command", f"{case.command}   ({f'cannot be undone{keep}' if case.act == 'destroy' else 'can be undone'})"
