"""The receiving side: LOCAL/.rgt-pull holds the lock, the digests known so far and the partial files.

A file appears under its own name only when it is whole. Whatever is killed, the next pull goes on from here.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import stat
import time
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

from cargo import roster
from cargo.roster import Entry, Roster
from rgt import files, units
from rgt.errors import RgtError, bad_input, from_os_error, lacking, refused
from rgt.report import progress

FOLDER, MANIFEST, PROOF = ".rgt-pull", "PULL_MANIFEST.json", "PULL_VERIFIED.json"
LOCK_SECONDS = 60.0
_CLOCK = 2_000_000_000  # nanoseconds: how coarse a file system's time stamps may be
_RESERVE = 1 << 20  # bytes left for our own records


class Stage:
    def __init__(self, local: Path) -> None:
        self.local, self.folder = local, local / FOLDER
        self.parts = self.folder / "parts"
        self.digests: dict[tuple[str, int, int], str] = {}
        self.lock: IO[bytes] | None = None
        self._journal: IO[bytes] | None = None
        self._checked: set[Path] = set()

    # -- begin and end

    def open(self, found: Roster) -> None:
        """Claim the folder for this source; refuse when it holds something else."""
        refuse_mixing(self.local, found)
        try:
            self.parts.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            self._refuse_folding(found)
            files.write_json(self.folder / "state.json", _state(found))
            self._load_digests()
            self._journal = (self.folder / "digests.jsonl").open("ab")
        except OSError as error:
            raise from_os_error(error, f"write to {self.local}") from None

    def close(self) -> None:
        for file in (self._journal, self.lock):
            if file:
                file.close()

    def finish(self) -> None:
        """Everything is in its place: nothing to go on with."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _take_lock(self) -> None:
        """Held by our rsync and ssh as well: one that outlived a killed pull must end before its files are touched."""
        self.lock = (self.folder / "lock").open("ab")
        deadline, told = time.monotonic() + LOCK_SECONDS, False
        while True:
            try:
                return fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise bad_input(f"another pull is at work in {self.local}; wait for it, or end it") from None
                if not told:
                    progress(f"another pull is at work in {self.local}; waiting up to {LOCK_SECONDS:g} s")
                told = True
                time.sleep(0.1)

    def _refuse_folding(self, found: Roster) -> None:
        """Two names on the box that would be one file here."""
        names = [*(entry.local for entry in found.entries.values()), *found.links]
        for probe, twin, fold in (("Aa", "aA", str.casefold), ("\u00e9", "e\u0301", _composed)):
            (self.folder / probe).touch()
            same = (self.folder / twin).exists()
            (self.folder / probe).unlink()
            groups = roster.folded(names, fold) if same else []
            if groups:
                shown = " and ".join(map(repr, groups[0]))
                raise bad_input(
                    f"{shown} are one name on the disk of {self.local}; pull to another disk, or --exclude one"
                )

    # -- digests

    def _load_digests(self) -> None:
        path, manifest = self.folder / "digests.jsonl", self.local / MANIFEST
        rows = list(files.read_jsonl(path, bad=[])) if path.exists() else []
        with contextlib.suppress(RgtError):
            rows += [{**row, "path": row.get("there", row["path"])} for row in read_manifest(manifest)["files"]]
        for row in rows:
            if "mtime_ns" in row:
                self.digests[row["path"], row["bytes"], row["mtime_ns"]] = row["sha256"]

    def know(self, path: str, size: int, mtime_ns: int, sha256: str) -> None:
        self.digests[path, size, mtime_ns] = sha256
        if self._journal:
            row = {"path": path, "bytes": size, "mtime_ns": mtime_ns, "sha256": sha256}
            self._journal.write(json.dumps(row).encode() + b"\n")
            self._journal.flush()

    # -- partial files

    def part(self, entry: Entry) -> Path:
        return self.parts / entry.path

    def ready(self, entry: Entry) -> Path:
        """The partial file's path, its folder made."""
        path = self.part(entry)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def drop_stale(self, entry: Entry) -> None:
        """rsync passes over a file that is not shorter than the box's, also when it is another version of it."""
        path = self.part(entry)
        with contextlib.suppress(FileNotFoundError):
            seen = path.lstat()
            stale = seen.st_size == entry.bytes and not same_time(seen.st_mtime_ns, entry.mtime_ns)
            if seen.st_size > entry.bytes or stale:
                path.unlink()

    def whole(self, entry: Entry) -> bool:
        with contextlib.suppress(OSError):
            seen = self.part(entry).lstat()
            return seen.st_size == entry.bytes and same_time(seen.st_mtime_ns, entry.mtime_ns)
        return False

    def held(self, entries: Iterable[Entry]) -> int:
        """Bytes of partial files."""
        total = 0
        for entry in entries:
            with contextlib.suppress(OSError):
                total += min(self.part(entry).lstat().st_size, entry.bytes)
        return total

    # -- in place

    def in_place(self, entry: Entry) -> bool:
        with contextlib.suppress(OSError):
            seen = (self.local / entry.local).lstat()
            same = seen.st_size == entry.bytes and same_time(seen.st_mtime_ns, entry.mtime_ns)
            return stat.S_ISREG(seen.st_mode) and same
        return False

    def settle(self, entry: Entry) -> None:
        """Move a whole partial file to its name."""
        part = self.part(entry)
        final = self._safe(entry.local)
        try:
            os.chmod(part, entry.mode & 0o777 | 0o600)
            os.utime(part, ns=(entry.mtime_ns, entry.mtime_ns))
            os.replace(part, final)
        except OSError as error:
            raise from_os_error(error, f"write {final}") from None

    def twin(self, entry: Entry, first: Entry) -> None:
        """A second name of a file that is here."""
        final, source = self._safe(entry.local), self.local / first.local
        beside = final.with_name(f".{final.name[:200]}.link.tmp")
        try:
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()
            try:
                os.link(source, beside, follow_symlinks=False)
            except OSError:  # a file system without hard links
                shutil.copy2(source, beside, follow_symlinks=False)
            os.replace(beside, final)
        except OSError as error:
            raise from_os_error(error, f"write {final}") from None

    def link(self, path: str, target: str) -> None:
        final = self._safe(path)
        to = os.path.relpath(self.local / target, final.parent)
        with contextlib.suppress(OSError):
            if os.readlink(final) == to:
                return
        try:
            if os.path.lexists(final):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            os.symlink(to, final)
        except OSError as error:
            raise from_os_error(error, f"link {final}") from None

    def snapshot(self, entry: Entry) -> None:
        """A copy of what there is of a growing file, so that a log can be read while the run goes on."""
        final = self._safe(entry.local)
        with contextlib.suppress(OSError), self.part(entry).open("rb") as part:
            files.write_with(final, lambda out: shutil.copyfileobj(part, out))

    def discard(self, entry: Entry) -> None:
        for path in (self.local / entry.local, self.part(entry)):
            with contextlib.suppress(OSError):
                path.unlink()

    def _safe(self, path: str) -> Path:
        """The final path, its folders made; a link among them would lead out of LOCAL."""
        final = self.local / path
        folder = self.local
        for name in Path(path).parent.parts:
            folder = folder / name
            if folder in self._checked:
                continue
            try:
                folder.mkdir(exist_ok=True)
                if folder.is_symlink():
                    raise refused(
                        f"{folder} is a link; what it leads to is not part of {self.local}, nothing is written there"
                    )
            except OSError as error:
                raise from_os_error(error, f"make {folder}") from None
            self._checked.add(folder)
        return final

    # -- room

    def need_room(self, todo: list[Entry]) -> None:
        """Said before hours of copying, not after."""
        room = os.statvfs(self.local)
        missing = sum(entry.bytes for entry in todo if not entry.sparse) - self.held(todo)
        free = room.f_bavail * room.f_frsize
        if missing + _RESERVE > free:
            raise lacking(f"{self.local} has {units.show_size(free)} free, {units.show_size(missing)} are still to "
                          "come; make room, or pull to another disk")  # fmt: skip
        if room.f_files and len(todo) > room.f_favail:
            raise lacking(f"{self.local} has {room.f_favail} inodes free, {len(todo)} files are still to come")


def same_time(one: int, other: int) -> bool:
    """Digests decide in the end; this only tells what need not be sent again."""
    return abs(one - other) < _CLOCK


def _composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def _state(found: Roster) -> dict[str, Any]:
    rows = [{"path": entry.path, "bytes": entry.bytes, "mtime_ns": entry.mtime_ns} for entry in found.entries.values()]
    return {"source": found.source, "run_id": found.run_id, "files": rows}


def read_manifest(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = files.read_json(path, "pull_manifest")
    return manifest


def refuse_mixing(local: Path, found: Roster) -> None:
    """A folder holds one run: a second one in it could pass for results of the first."""
    if local.exists() and not local.is_dir():
        raise bad_input(f"{local} is a file; name a folder to pull into")
    for owner in (_read(local / FOLDER / "state.json"), _read(local / MANIFEST), _read(local / "run.json")):
        if owner is None:
            continue
        if _same_run(owner, found):
            return
        whose = owner.get("run_id") or owner.get("source")
        raise refused(f"{local} holds {whose}, and this is {found.run_id or found.source}: two runs in one folder "
                      "cannot be told apart later; pull into another one")  # fmt: skip
    if local.is_dir() and any(path.name != FOLDER for path in local.iterdir()):
        raise refused(f"{local} is not empty and holds no earlier pull of {found.source}; pull into a new folder")


def _read(path: Path) -> dict[str, Any] | None:
    with contextlib.suppress(RgtError):
        data = files.read_json(path)
        return data if isinstance(data, dict) else None
    return None


def _same_run(owner: dict[str, Any], found: Roster) -> bool:
    """By its id. The address of a box changes at every restart, so the same path elsewhere may be the same run."""
    if owner.get("run_id") != found.run_id:
        return False
    source = owner.get("source")
    if source is None or source == found.source:
        return source is not None or found.run_id is not None
    known = [(row.get("there", row["path"]), row["bytes"], row.get("mtime_ns")) for row in owner.get("files", [])]
    own = [row for row in known if row[0] != "run.json"]  # launch puts that one on every node
    return bool(own) and 2 * len(found.versions().intersection(own)) >= len(own)
