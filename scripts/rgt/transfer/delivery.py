"""A whole pull: list and copy until nothing changed, verify by load, fetch damaged copies again, record what happened.

Contents come over the connection that lists them, each file from the byte that is here already, then its digest. A file
appears under its own name only when it is whole and has the box's sha256. LOCAL/.rgt-pull holds the lock, the digests
known so far and the partial files: whatever is killed, the next pull goes on from there.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import hashlib
import json
import os
import shutil
import stat
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rgt import files, units
from rgt.checkpoint.names import HEAD, MANIFEST, PROOF
from rgt.errors import RgtError, bad_input, from_os_error, lacking, refused
from rgt.files import FileState, Written, file_state
from rgt.host.ssh import Place
from rgt.machine import disks
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
    Entry,
    Listing,
    State,
    Version,
    fault,
    own_record,
    read_listing,
    state_of,
    take_listing,
)

if TYPE_CHECKING:
    from rgt.checkpoint.layout import Problem
    from rgt.checkpoint.verify import Verification

FOLDER = ".rgt-pull"
_CLOCK = 2_000_000_000  # nanoseconds: how coarse a file system's time stamps may be
_RESERVE = 1 << 20  # bytes left for our own records
ROUNDS = 3  # listings in which a file may still change before we say that it does
_PAUSE = 1.0  # seconds between two listings while somebody writes there
_LOG_BYTES = 64 << 20  # a growing file up to this size is shown while it grows
_TELL_EVERY = 10.0  # seconds between two lines of progress
MAX_ABS = 1e6
_DAMAGED = ("digest", "size", "missing")  # of a file in the manifest: a copy that is not what was listed
_DEPTH = 4  # folders below a source in which runs are looked for


# -- the receiving side


class Stage:
    def __init__(self, local: Path) -> None:
        self.local, self.folder = local, local / FOLDER
        self.parts, self.state = self.folder / "parts", self.folder / "state.json"
        self.digests: dict[Version, str] = {}
        self.arrived: dict[str, Written] = {}  # by path here: what this pull wrote whole
        self._whole: set[Version] = set()  # the same as the box lists them
        self._present: set[str] = set()  # what lies here, partial files by their whole path
        self.lock: IO[bytes] | None = None
        self._local, self._parts, self._made, self._checked = str(local), f"{self.parts}/", set[str](), {""}
        self._modes = (files.new_mode(), files.new_mode(executable=True))

    def open(self, there: Listing) -> None:
        """Claim the folder for this source; refuse when it holds something else, or another pull is at work."""
        _refuse_mixing(self.local, there)
        self.parts.mkdir(parents=True, exist_ok=True)
        self.lock = (self.folder / "lock").open("ab")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise bad_input(f"another pull is at work in {self.local}; wait for it, or end it") from None
        for folder, _, names in os.walk(self.local):
            below = os.path.relpath(folder, self.local)
            self._present |= {name if below == "." else f"{below}/{name}" for name in names}
        for path in (self.state, self.local / MANIFEST):
            for row in (_read_object(path) or {}).get("files", []):
                if "mtime_ns" in row and "sha256" in row:
                    self.digests[row.get("there", row["path"]), row["bytes"], row["mtime_ns"]] = row["sha256"]
        self.save(there)

    def save(self, there: Listing) -> None:
        """Whose files these are, and the digests that are known: for the pull after a kill."""
        data = {"source": there.source, "run_id": there.run_id, "files": self.rows(there)}
        files.write_bytes(self.state, files.dump(data, str(self.state)))

    def rows(self, there: Listing) -> list[dict[str, Any]]:
        """As in the manifest; before the end some have no sha256."""
        rows: list[dict[str, Any]] = []
        for entry in sorted(there.entries.values(), key=lambda entry: entry.local):
            rows.append({"path": entry.local, "bytes": entry.bytes, "mtime_ns": entry.mtime_ns})
            if entry.version in self.digests:
                rows[-1]["sha256"] = self.digests[entry.version]
            if entry.local != entry.path:
                rows[-1]["there"] = entry.path
        return rows

    def close(self) -> None:
        if self.lock:
            self.lock.close()

    def held(self, entry: Entry) -> int:
        """Bytes of it that are here: all, or those of its partial file."""
        if self.in_place(entry):
            return entry.bytes
        if f"{FOLDER}/parts/{entry.path}" not in self._present:
            return 0
        try:
            return min(os.lstat(self._parts + entry.path).st_size, entry.bytes)
        except OSError:
            return 0

    def write(self, entry: Entry, offset: int, data: bytes, whole: bool = False) -> FileState:
        """Bytes of a partial file, and what it is then."""
        part, left = self._parts + entry.path, memoryview(data)
        self._present.add(f"{FOLDER}/parts/{entry.path}")
        try:
            if (folder := part.rpartition("/")[0]) not in self._made:
                os.makedirs(folder, exist_ok=True)
                self._made.add(folder)
            mode = self._mode(entry) if whole else 0o600
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
            try:
                while left:
                    left = left[os.pwrite(descriptor, left, offset + len(data) - len(left)) :]
                if whole:
                    os.utime(descriptor, ns=(entry.mtime_ns, entry.mtime_ns))
                seen = os.fstat(descriptor)
                if whole and stat.S_IMODE(seen.st_mode) != self._mode(entry):
                    os.chmod(descriptor, self._mode(entry))
                return file_state(seen)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise from_os_error(error, f"write {part} (what has arrived is kept)") from None

    def put(self, entry: Entry, data: bytes, sha256: str) -> bool:
        """A whole file that came in one piece, under its name; False, and nothing written, when it is not the box's."""
        if hashlib.sha256(data).hexdigest() != sha256:
            return False
        self.arrived[entry.local] = Written(self.write(entry, 0, data, whole=True), sha256, data[:HEAD])
        os.replace(self._parts + entry.path, self._safe(entry.local))
        self._whole.add(entry.version)
        self.digests[entry.version] = sha256
        self._present.add(entry.local)
        return True

    def _mode(self, entry: Entry) -> int:
        """Who may write is not the box's word."""
        return self._modes[bool(entry.mode & 0o100)]

    def settle(self, entry: Entry, sha256: str) -> bool:
        """Move a whole partial file to its name; False when it is not the box's: then it is removed."""
        self.digests[entry.version] = sha256
        if self.in_place(entry):  # perhaps an older version of the same size, written in the same second
            if sha256_of(self.local / entry.local) == sha256:
                return True
            (self.local / entry.local).unlink()
            return False
        part = self._parts + entry.path
        if not os.path.exists(part):  # empty
            self.write(entry, 0, b"")
        os.truncate(part, entry.bytes)
        if sha256_of(part) != sha256:
            os.unlink(part)
            return False
        os.chmod(part, self._mode(entry))
        os.utime(part, ns=(entry.mtime_ns, entry.mtime_ns))
        os.replace(part, self._safe(entry.local))
        self._present.add(entry.local)
        return True

    def in_place(self, entry: Entry) -> bool:
        """By size and time; digests decide in the end, this only tells what need not be sent again."""
        if entry.local not in self._present:
            return False
        try:
            seen = os.lstat(f"{self._local}/{entry.local}")
        except OSError:
            return False
        same_time = abs(seen.st_mtime_ns - entry.mtime_ns) < _CLOCK
        return stat.S_ISREG(seen.st_mode) and seen.st_size == entry.bytes and same_time

    def has(self, entry: Entry) -> bool:
        return entry.version in self._whole or (entry.version in self.digests and self.in_place(entry))

    def link(self, path: str, target: str) -> None:
        final = Path(self._safe(path))
        to = os.path.relpath(self.local / target, final.parent)
        if not final.is_symlink() or os.readlink(final) != to:
            os.symlink(to, final)

    def snapshot(self, entry: Entry) -> None:
        """A copy of what there is of a growing file, so that a log can be read while the run goes on."""
        final = Path(self._safe(entry.local))
        with contextlib.suppress(OSError), (self.parts / entry.path).open("rb") as part:
            files.write_with(final, lambda out: shutil.copyfileobj(part, out))

    def _safe(self, path: str) -> str:
        """The final path, its folders made; a link among them would lead out of LOCAL."""
        above = path.rpartition("/")[0]
        if above not in self._checked:
            folder = Path(self._safe(above))
            folder.mkdir(exist_ok=True)
            if folder.is_symlink():
                raise refused(f"{folder} is a link that may lead out of {self.local}; nothing is written there")
            self._checked.add(above)
        return f"{self._local}/{path}"


def _import_proof() -> None:
    """What loads the result takes half a second to import."""
    with contextlib.suppress(ImportError):  # said where it is needed
        from rgt.checkpoint import verify  # noqa: F401

        import numpy  # noqa: F401
    gc.freeze()  # the collector need not go through all of it whenever there are thousands of new files


def read_manifest(local: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = files.read_json(local / MANIFEST, "pull_manifest")
    return manifest


def _read_object(path: Path) -> dict[str, Any] | None:
    with contextlib.suppress(RgtError):
        data = files.read_json(path)
        return data if isinstance(data, dict) else None
    return None


def _refuse_mixing(local: Path, there: Listing) -> None:
    """A folder holds one run: a second one in it could pass for results of the first."""
    if local.exists() and not local.is_dir():
        raise bad_input(f"{local} is a file; name a folder to pull into")
    owners = map(_read_object, (local / FOLDER / "state.json", local / MANIFEST, local / "run.json"))
    owner = next((owner for owner in owners if owner is not None), None)
    if owner is None:
        ours = {FOLDER, EVENTS}  # a lease may have been started before the first pull
        if local.is_dir() and any(path.name not in ours for path in local.iterdir()):
            raise refused(f"{local} is not empty and holds no earlier pull of {there.source}; pull into a new folder")
        return
    source, same = owner.get("source"), owner.get("run_id") == there.run_id
    if source is None:
        same = same and there.run_id is not None
    elif source != there.source:  # the address of a box changes at every restart: the same files are the same run
        rows = [row for row in owner.get("files", []) if row["path"] != RECORD]  # launch puts that one on each node
        own = {(row.get("there", row["path"]), row["bytes"], row.get("mtime_ns")) for row in rows}
        same = same and bool(own) and 2 * len(there.versions() & own) >= len(own)
    if not same:
        both = f"{local} holds {owner.get('run_id') or source}, and this is {there.run_id or there.source}"
        raise refused(f"{both}: two runs in one folder cannot be told apart later; pull into another one")


# -- copying


class Delivery:
    """One pull into one folder: what it brought, and, when it was complete, its proof."""

    there: Listing

    def __init__(self, place: Place, local: Path, exclude: Sequence[str], patience: float, known: bool = False) -> None:
        """`known`: the box has answered before, so a drop is waited out from the start."""
        self.place, self.local, self.exclude = place, local, exclude
        self.box, self.stage = Connection(place.host, patience, known, meanwhile=_import_proof), Stage(local)
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
            self.there = take_listing(self.box, self.place.path, self.local, self.exclude)
            self.stage.open(self.there)
            try:
                moving, absent = self._copy_until_still(rounds)
                self.findings, self.seconds = [*self.there.findings], time.monotonic() - start
                code, message = "unpulled", f"could not be copied from {self.there.host.title}"
                fix = "pull again; if it stays, look at the box"
                if moving:
                    writers = self.there.writers
                    who = f"; it is being written by process {writers[0]}" if writers else ""
                    message = f"keeps changing on {self.there.host.title}, so it cannot be proved{who}"
                    code, fix = "changed", "pull again when the run is done, or use pull --loop"
                for entry in absent[:20]:
                    self.findings.append(Finding(code, "error", message, entry.path, fix=fix))
                    if entry.bytes <= _LOG_BYTES:
                        self.stage.snapshot(entry)
                if not self.failed:
                    for path, target in self.there.links.items():
                        self.stage.link(path, target)
                    write_manifest(self.local, self.there, self.stage, self.exclude)
                    self.complete = True
            finally:
                if not self.complete:  # else the manifest has the digests
                    self.stage.save(self.there)
        return self

    def _copy_until_still(self, rounds: int) -> tuple[bool, list[Entry]]:
        """Whether something still changes there, and what is not here whole."""
        for _ in range(rounds):
            before, self.there = self.there, self._copy(self.there)
            if before.writers:  # one that pauses between two lines looks still for a moment
                time.sleep(_PAUSE)
                self.there = take_listing(self.box, self.place.path, self.local, self.exclude)
            moving = self.there.versions() != before.versions()
            absent = [entry for entry in self.there.entries.values() if not self.stage.has(entry)]
            if not moving and not absent:
                break
        return moving, absent

    def _copy(self, there: Listing) -> Listing:
        """Everything that is not here, or whose digest is not known; once more what came with another digest.

        Returns what is there after it."""
        todo = [entry for entry in there.entries.values() if not self.stage.in_place(entry)]
        missing = sum(entry.bytes - self.stage.held(entry) for entry in todo)
        if todo:
            from rgt.checkpoint.proof import withdraw

            self.copied = True
            withdraw(self.local)  # what is about to change has no proof
            room = disks.room(self.local)
            if missing + _RESERVE > room.free:  # said before hours of copying, not after
                sizes = f"{units.show_size(room.free)} free, {units.show_size(missing)} are still to come"
                raise lacking(f"{self.local} has {sizes}; make room, or pull to another disk")
        gauge = Gauge(missing, f"pull {there.source}")
        good, after = self.box.again(lambda: self._receive(there, gauge))
        return after if good else self.box.again(lambda: self._receive(there, gauge))[1]

    def _receive(self, there: Listing, gauge: Gauge) -> tuple[bool, Listing]:
        """One attempt at all that is missing, and what is there after it; False when something came with another digest
        than the box's."""
        todo = [entry for entry in there.entries.values() if not self.stage.has(entry)]
        asked = [(entry.path, self.stage.held(entry), entry.bytes) for entry in todo]
        rows = self.box.answer("send", root=there.root, files=asked, exclude=list(self.exclude))
        good = True
        for row in rows:
            if "sent" in row:
                break
            number, offset, size = row.get("i", -1), row.get("o", 0), row.get("n", 0)
            whole = all(isinstance(value, int) and value >= 0 for value in (number, offset, size))
            if not whole or number >= len(todo) or size > CHUNK or offset + size > todo[number].bytes:
                raise self.box.strange(row)
            entry, data = todo[number], self.box.read(size) if size else b""
            gauge.add(size)
            unchanged = (row.get("b"), row.get("m")) == (entry.bytes, entry.mtime_ns)
            if unchanged and "s" in row and data and size == entry.bytes:
                good = self.stage.put(entry, data, str(row["s"])) and good
                continue
            if data:
                self.stage.write(entry, offset, data)
            if unchanged and "s" in row:
                if not self.stage.has(entry):  # a digest of what was here already took its time there
                    self.box.advance()
                good = self.stage.settle(entry, str(row["s"])) and good
        if asked:  # so that little is left for the one that the proof waits for
            threading.Thread(target=os.sync, daemon=True).start()
        return good, read_listing(self.box, rows, self.local)


def write_manifest(local: Path, there: Listing, stage: Stage, exclude: Sequence[str]) -> None:
    """Left as it is when nothing changed: its proof names it by its digest."""
    data: dict[str, Any] = {"source": there.source, "files": stage.rows(there)}
    if there.run_id:
        data["run_id"] = there.run_id
    if there.links:
        data["links"] = dict(sorted(there.links.items()))
    if there.excluded:
        data["excluded"] = {"patterns": list(exclude), "count": there.excluded}
    from rgt.checkpoint.proof import withdraw

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
        if now - self.shown < _TELL_EVERY:
            return
        self.shown, rate = now, self.done / (now - self.start)
        eta = units.show_duration(round((self.total - self.done) / max(rate, 1)))
        amounts = f"{units.show_size(self.done)} of {units.show_size(self.total)}"
        progress(f"{self.what}: {amounts}, {units.show_size(rate)}/s, ETA {eta}")


# -- copy, proof, record


def deliver(where: Place, local: Path, exclude: Sequence[str], patience: float, known: bool = False) -> Delivery:
    """Copied, verified, recorded. `known`: the box has answered before."""
    _refuse_sealed(local)
    if not where.host.name and local.resolve().is_relative_to(Path(where.path).expanduser().resolve()):
        raise bad_input(f"{local} lies in {where.path}, which would be copied into itself; pull into another folder")
    done = Delivery(where, local, exclude, patience, known).pull()
    if not done.complete:
        return done
    done.findings += differing_record(local)
    artifacts = verify_folder(done)
    if not done.failed or not artifacts:  # without a checkpoint there is nothing to prove, and nothing to fetch again
        shutil.rmtree(done.stage.folder, ignore_errors=True)
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
        _refuse_sealed(local)
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
            raise lacking(f"cannot tell when {where.text} is over: {now.detail}; pull without --loop")
        else:
            word = f"{word} ({now.detail})"
        progress(f"{where.text}: {word}; {len(there.entries)} files, again in {units.show_duration(every)}")
        time.sleep(every)


def _refuse_sealed(local: Path) -> None:
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
    verdict, problems, done.proof = load_all(done.local, done.stage.arrived)
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


def load_all(
    local: Path, written: Mapping[str, Written] | None = None
) -> tuple[Verification, list[tuple[Path, Problem]], Path | None]:
    """Load what lies here now; the proof is written anew, or withdrawn.

    `written`: what this process wrote itself, with the sha256 of the bytes it gave to the disk. A file that is no
    checkpoint is not read a second time while its state is still that.
    """
    from rgt.checkpoint import verify
    from rgt.checkpoint.examine import Options
    from rgt.checkpoint.survey import survey

    # a box can be destroyed on the word of the proof: what it speaks of must be on the disk, not in a cache
    flushing = threading.Thread(target=os.sync)
    flushing.start()
    folder = str(local / "x")[:-1]  # as the survey writes it
    known = {f"{folder}{path}": one for path, one in (written or {}).items()}
    found = survey(local, known)
    gauge = Gauge(verify.sizes(found), f"verify {local}")
    verdict = verify.verify(found, Options(max_abs=MAX_ABS), gauge.add, known=known)
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
    ours, theirs = (
        {json.dumps(row, sort_keys=True): row for row in files.read_jsonl(path, bad=[])} if path.is_file() else {}
        for path in (local / EVENTS, local / EVENTS_THERE)
    )
    for key, row in theirs.items():
        if key not in ours and not (local / SEAL).exists():
            files.append_jsonl(local / EVENTS, row)


# -- many runs


def gather(sources: list[Place], target: Path, patience: float) -> Iterator[tuple[Place, Path | None, list[Finding]]]:
    """Every run below the sources into target/<run-id>, with its proof; one that fails does not stop the others."""
    for where in sources:
        try:
            paths = _runs_below(where, patience)
        except RgtError as error:
            yield where, None, [Finding("unpulled", "error", error.message, where.text)]
            continue
        for path in paths:
            name, there = os.path.basename(path), Place(where.host, path)
            try:
                if why := fault(name):
                    raise bad_input(f"its name {why}; nothing was copied")
                done = deliver(there, target / name, (), patience)
                yield there, done.proof, done.findings
            except (RgtError, OSError) as error:
                message = error.message if isinstance(error, RgtError) else from_os_error(error).message
                yield there, None, [Finding("unpulled", "error", message, there.text)]


def _runs_below(where: Place, patience: float) -> list[str]:
    with contextlib.closing(Connection(where.host, patience)) as box:
        rows = box.again(lambda: list(box.answer("runs", root=where.path, depth=_DEPTH)))
        for row in rows:
            if not isinstance(row.get("run"), str):
                raise box.strange(row)
    if not rows:
        raise bad_input("holds no run directory (a folder with run.json)")
    return sorted(row["run"] for row in rows)
