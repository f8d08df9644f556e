"""One checkpoint file: written whole or not at all, checked before it counts, and checked again before it is used."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pickle
import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from checkpointing.errors import CheckpointError, from_os_error
from checkpointing.sink import Sink

_CHUNK = 4 << 20
_SPARE = 1 << 20  # bytes beyond the tensors: pickle, headers, the index
_ALLOWED = "store tensors, numbers, strings, lists, tuples and dicts (float(x) for a numpy number)"


class Damaged(Exception):
    """Why a file is not the checkpoint it should be."""


@dataclass
class Written:
    bytes: int
    sha256: str


def write(path: Path, state: dict[str, Any]) -> Written:
    """Temporary name, every byte read back and compared, fsync, a trial load, rename, fsync of the directory."""
    temporary = path.with_name(f".{path.name}.tmp")
    _need_room(path, state)
    try:
        sink = Sink(temporary)
        try:
            _serialize(state, sink, path)
        except BaseException:
            sink.close()
            raise
        sink.finish()
        _trial(temporary, path)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise from_os_error(error, f"save {path}") from error
        raise
    sync_directory(path.parent)
    return Written(sink.size, sink.sha256)


def _serialize(state: dict[str, Any], sink: Sink, path: Path) -> None:
    import torch

    try:
        torch.save(state, cast(IO[bytes], sink))
    except (pickle.PicklingError, AttributeError, TypeError) as error:  # a lambda, a lock, an open file
        raise CheckpointError(f"cannot save {path}: {_line(error)}; {_ALLOWED}") from None


def _trial(temporary: Path, path: Path) -> None:
    """A state that weights_only refuses would only be found out at the resume. This reads no tensor."""
    try:
        _load(temporary, "cpu", mmap=True)
    except pickle.UnpicklingError as error:
        named = re.search(r"GLOBAL ([\w.]+)", str(error))
        what = f"it holds a {named[1]}, which" if named else "it"
        raise CheckpointError(f"cannot save {path}: {what} does not load with weights_only=True; {_ALLOWED}") from None


def _need_room(path: Path, state: dict[str, Any]) -> None:
    """Before gigabytes are written for nothing. Retention deletes after a save, so both must fit at once."""
    needed = size_of(state) + _SPARE
    try:
        status = os.statvfs(path.parent)
    except OSError as error:
        raise from_os_error(error, f"save {path}") from None
    free = status.f_bavail * status.f_frsize
    if status.f_blocks and free < needed:
        sizes = f"it needs about {needed / 2**20:,.0f} MiB and {free / 2**20:,.0f} MiB are free"
        advice = "free space or prune; the checkpoints before it are untouched"
        raise CheckpointError(f"cannot save {path}: {sizes}; {advice}", full=True)


def size_of(state: Any) -> int:
    """Bytes of all tensors, shared storages once: what torch.save will write."""
    return sum(_storages(state, {}).values())


def _storages(value: Any, found: dict[int, int]) -> dict[int, int]:
    import torch

    if isinstance(value, torch.Tensor):
        with contextlib.suppress(Exception):  # a sparse or a wrapper tensor has no plain storage
            storage = value.untyped_storage()
            found[storage._cdata] = storage.nbytes()
    elif isinstance(value, dict):
        for each in value.values():
            _storages(each, found)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _storages(each, found)
    return found


def load(path: Path, entry: dict[str, Any] | None, map_location: Any = "cpu") -> dict[str, Any]:
    """The state, after every byte of the file was checked; Damaged says why not. torch.load checks no CRC."""
    check(path, entry)
    try:
        return _load(path, map_location)
    except OSError:
        raise
    except Exception as error:  # torch raises another type for every place where a file can be damaged
        raise Damaged(_line(error)) from None


def _load(path: Path, map_location: Any, mmap: bool = False) -> dict[str, Any]:
    import torch

    # weights_only: a checkpoint is data, also one from a rented box; it must not be able to run code
    state = torch.load(path, map_location=map_location, weights_only=True, mmap=mmap)
    if not isinstance(state, dict):
        raise Damaged(f"it holds a {type(state).__name__}, not a dict")
    return state


def peek(path: Path) -> dict[str, Any]:
    """What is in the file without reading its tensors; {} when it cannot be loaded."""
    try:
        return _load(path, "cpu", mmap=True)
    except Exception:
        return {}


def check(path: Path, entry: dict[str, Any] | None) -> None:
    """By the recorded sha256; a file without a record (a kill came in between) by the CRCs inside it."""
    entry = entry or {}
    look(path, entry)
    expected = entry.get("sha256")
    if expected and digest(path) != expected:
        raise Damaged("its sha256 is not the one in checkpoints_index.json")
    if not expected:
        _check_crcs(path)


def look(path: Path, entry: dict[str, Any]) -> None:
    """Without reading it all: the size, and the directory that torch writes last."""
    size = path.stat().st_size
    expected = entry.get("bytes")
    if expected is not None and size != expected:
        raise Damaged(f"it has {size} bytes, checkpoints_index.json says {expected}")
    try:
        with zipfile.ZipFile(path) as archive:
            archive.infolist()
    except OSError:
        raise
    except Exception:  # a hostile directory makes zipfile raise more than BadZipFile
        raise Damaged("empty" if size == 0 else "its end is missing or it is no torch file") from None


def _check_crcs(path: Path) -> None:
    try:
        with zipfile.ZipFile(path) as archive:
            bad = next((name for name in archive.namelist() if not _whole(archive, name)), None)
    except OSError:
        raise
    except (zipfile.BadZipFile, EOFError, zlib.error, RuntimeError) as error:
        raise Damaged(_line(error)) from None
    if bad:
        raise Damaged(f"the bytes of {bad} do not fit their CRC")


def _whole(archive: zipfile.ZipFile, name: str) -> bool:
    try:
        with archive.open(name) as member:
            while member.read(_CHUNK):
                pass
    except zipfile.BadZipFile:
        return False
    return True


def digest(path: Path) -> str:
    found, buffer = hashlib.sha256(), memoryview(bytearray(_CHUNK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            found.update(buffer[:count])
    return found.hexdigest()


def sync_directory(directory: Path) -> None:
    """Make a rename survive a power cut. Some network file systems cannot; the file itself is safe there."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def unreadable(error: OSError) -> bool:
    """A bad sector damages this file; any other error says nothing about it."""
    return error.errno == errno.EIO


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:200] + "..."
