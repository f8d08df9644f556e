"""The receiving side: LOCAL/.rgt-pull holds the lock, the digests known so far and the partial files.

A file appears under its own name only when it is whole and has the box's sha256. Whatever is killed, the next pull goes
on from here.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import IO, Any

from rgt import files, units
from rgt.checkpoint.proof import MANIFEST
from rgt.errors import RgtError, bad_input, from_os_error, lacking, refused
from rgt.machine import disks
from rgt.transfer.boxside import sha256_of
from rgt.transfer.listing import EVENTS, Entry, Listing, Version

FOLDER = ".rgt-pull"
_CLOCK = 2_000_000_000  # nanoseconds: how coarse a file system's time stamps may be
_RESERVE = 1 << 20  # bytes left for our own records


class Stage:
    def __init__(self, local: Path) -> None:
        self.local, self.folder = local, local / FOLDER
        self.parts, self.state = self.folder / "parts", self.folder / "state.json"
        self.digests: dict[Version, str] = {}
        self.lock: IO[bytes] | None = None
        self._hash, self._hashed = hashlib.sha256(), (self.parts, 0)  # of the part that is being written, up to there
        self._checked: set[Path] = set()

    # -- begin and end

    def open(self, there: Listing) -> None:
        """Claim the folder for this source; refuse when it holds something else, or another pull is at work."""
        _refuse_mixing(self.local, there)
        self.parts.mkdir(parents=True, exist_ok=True)
        self.lock = (self.folder / "lock").open("ab")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise bad_input(f"another pull is at work in {self.local}; wait for it, or end it") from None
        for path in (self.state, self.local / MANIFEST):
            for row in (_read_object(path) or {}).get("files", []):
                if "mtime_ns" in row and "sha256" in row:
                    self.digests[row.get("there", row["path"]), row["bytes"], row["mtime_ns"]] = row["sha256"]
        self.save(there)

    def save(self, there: Listing) -> None:
        """Whose files these are, and the digests that are known: for the pull after a kill."""
        files.write_json(self.state, {"source": there.source, "run_id": there.run_id, "files": self.rows(there)})

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

    def finish(self) -> None:
        """Everything is in its place: nothing to go on with."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def need_room(self, todo: list[Entry]) -> None:
        """Said before hours of copying, not after."""
        room = disks.room(self.local)
        missing = sum(entry.bytes - self.held(entry) for entry in todo)
        if missing + _RESERVE > room.free:
            sizes = f"{units.show_size(room.free)} free, {units.show_size(missing)} are still to come"
            raise lacking(f"{self.local} has {sizes}; make room, or pull to another disk")

    # -- partial files

    def part(self, entry: Entry) -> Path:
        return self.parts / entry.path

    def held(self, entry: Entry) -> int:
        """Bytes of it that are here: all, or those of its partial file."""
        if self.in_place(entry):
            return entry.bytes
        with contextlib.suppress(OSError):
            return min(self.part(entry).lstat().st_size, entry.bytes)
        return 0

    def write(self, entry: Entry, offset: int, data: bytes) -> None:
        """Bytes of a partial file, hashed on the way if in order."""
        part = self.part(entry)
        if offset == 0:
            self._hash, self._hashed = hashlib.sha256(), (part, 0)
        if self._hashed == (part, offset):
            self._hash.update(data)
            self._hashed = (part, offset + len(data))
        try:
            part.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.seek(offset)
                file.write(data)
        except OSError as error:
            raise from_os_error(error, f"write {part} (what has arrived is kept)") from None

    def settle(self, entry: Entry, sha256: str) -> bool:
        """Move a whole partial file to its name; False when it is not the box's: then it is removed."""
        self.digests[entry.version] = sha256
        if self.in_place(entry):  # perhaps an older version of the same size, written in the same second
            if sha256_of(self.local / entry.local) == sha256:
                return True
            (self.local / entry.local).unlink()
            return False
        part = self.part(entry)
        if not part.exists():  # empty
            self.write(entry, 0, b"")
        os.truncate(part, entry.bytes)
        if (self._hash.hexdigest() if self._hashed == (part, entry.bytes) else sha256_of(part)) != sha256:
            part.unlink()
            return False
        os.chmod(part, files.new_mode(executable=bool(entry.mode & 0o100)))  # who may write is not its word
        os.utime(part, ns=(entry.mtime_ns, entry.mtime_ns))
        os.replace(part, self._safe(entry.local))
        return True

    # -- in place

    def in_place(self, entry: Entry) -> bool:
        """By size and time; digests decide in the end, this only tells what need not be sent again."""
        with contextlib.suppress(OSError):
            seen = (self.local / entry.local).lstat()
            same_time = abs(seen.st_mtime_ns - entry.mtime_ns) < _CLOCK
            return stat.S_ISREG(seen.st_mode) and seen.st_size == entry.bytes and same_time
        return False

    def has(self, entry: Entry) -> bool:
        return entry.version in self.digests and self.in_place(entry)

    def link(self, path: str, target: str) -> None:
        final = self._safe(path)
        to = os.path.relpath(self.local / target, final.parent)
        if not final.is_symlink() or os.readlink(final) != to:
            os.symlink(to, final)

    def snapshot(self, entry: Entry) -> None:
        """A copy of what there is of a growing file, so that a log can be read while the run goes on."""
        final = self._safe(entry.local)
        with contextlib.suppress(OSError), self.part(entry).open("rb") as part:
            files.write_with(final, lambda out: shutil.copyfileobj(part, out))

    def _safe(self, path: str) -> Path:
        """The final path, its folders made; a link among them would lead out of LOCAL."""
        folder = self.local
        for name in Path(path).parent.parts:
            folder = folder / name
            if folder in self._checked:
                continue
            folder.mkdir(exist_ok=True)
            if folder.is_symlink():
                raise refused(f"{folder} is a link that may lead out of {self.local}; nothing is written there")
            self._checked.add(folder)
        return self.local / path


def read_manifest(local: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = files.read_json(local / MANIFEST, "pull_manifest")
    return manifest


def listed_versions(manifest: dict[str, Any]) -> set[Version]:
    """What a manifest, or the state of an unfinished pull, says was on the box."""
    rows = manifest.get("files", [])
    return {(row.get("there", row["path"]), row["bytes"], row.get("mtime_ns")) for row in rows}


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
        own = {version for version in listed_versions(owner) if version[0] != "run.json"}  # launch puts it on each node
        same = same and bool(own) and 2 * len(there.versions() & own) >= len(own)
    if not same:
        both = f"{local} holds {owner.get('run_id') or source}, and this is {there.run_id or there.source}"
        raise refused(f"{both}: two runs in one folder cannot be told apart later; pull into another one")
