"""One checkpoint file of ours: written whole or not at all, checked before it counts and again before it is used.

`Sink` is the file that torch.save writes to; each block is read back and compared while the next ones are written, in
threads behind the serializer: one after the other, writing, reading and hashing would double the time of a save. With
O_DIRECT the bytes do not pass the page cache: what is read back comes from the disk, and a checkpoint does not push the
data set out of memory. File systems without O_DIRECT are written as usual.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import mmap
import os
import pickle
import re
import zipfile
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, cast

from rgt import files
from rgt.errors import RgtError, bad_input, from_os_error

BLOCK = 4 << 20
BLOCKS = 6  # in work or waiting
_ALIGN = 4096  # of offsets, lengths and memory, for O_DIRECT
_DIRECT: int = getattr(os, "O_DIRECT", 0)
_MEMCMP = ctypes.CDLL(None).memcmp
_MEMCMP.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_ALLOWED = "store tensors, numbers, strings, lists, tuples and dicts (float(x) for a numpy number)"
_UNTOUCHED = "the checkpoints before it are untouched"


class Damaged(Exception):
    """Why a file is not the checkpoint it should be."""


def write(path: Path, state: dict[str, Any]) -> Sink:
    """Temporary name, every byte read back and compared, fsync, a trial load, rename, fsync of the directory."""
    import torch

    temporary = path.with_name(f".{path.name}.tmp")
    try:
        sink = Sink(temporary)
        try:
            torch.save(state, cast(IO[bytes], sink))
        except BaseException:
            sink.close()
            raise
        sink.finish()
        _torch_load(temporary, "cpu", mapped=True)  # reads no tensor; refuses now what a resume would refuse later
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            problem = from_os_error(error, f"save {path}")
            advice = f"; free space or prune, then save again: {_UNTOUCHED}" if problem.full else ""
            raise RgtError(problem.message + advice, problem.exit_code, problem.full) from error
        if isinstance(error, pickle.UnpicklingError):
            named = re.search(r"GLOBAL ([\w.]+)", str(error))
            what = f"it holds a {named[1]}, which" if named else "it"
            raise bad_input(f"cannot save {path}: {what} does not load with weights_only=True; {_ALLOWED}") from None
        if isinstance(error, (pickle.PicklingError, AttributeError, TypeError)):  # a lambda, a lock, an open file
            raise bad_input(f"cannot save {path}: {_line(error)}; {_ALLOWED}") from None
        raise
    files.sync_directory(path.parent)
    return sink


def load(path: Path, entry: dict[str, Any], map_location: Any = "cpu") -> dict[str, Any]:
    """The state, after every byte was checked; Damaged says why not. torch.load itself checks no CRC.

    Checked by the sha256 of its index entry; a file without one (a kill came in between) by the CRCs inside it.
    """
    try:
        if "sha256" not in entry:
            with zipfile.ZipFile(path) as archive:
                bad = archive.testzip()
            if bad:
                raise Damaged(f"the bytes of {bad} do not fit their CRC")
        elif digest(path) != entry["sha256"]:
            raise Damaged("its sha256 is not the one in checkpoints_index.json")
        return _torch_load(path, map_location)
    except (OSError, Damaged):
        raise
    except Exception as error:  # torch raises another type for every place where a file can be damaged
        raise Damaged(_line(error)) from None


def _torch_load(path: Path, map_location: Any, mapped: bool = False) -> dict[str, Any]:
    import torch

    # weights_only: a checkpoint is data, also one from a rented box; it must not be able to run code
    state = torch.load(path, map_location=map_location, weights_only=True, mmap=mapped)
    if not isinstance(state, dict):
        raise Damaged(f"it holds a {type(state).__name__}, not a dict")
    return state


def digest(path: Path) -> str:
    state, buffer = hashlib.sha256(), memoryview(bytearray(BLOCK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            state.update(buffer[:count])
    return state.hexdigest()


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:200] + "..."


# -- the file that is written to


def _aligned_buffer() -> memoryview:
    return memoryview(mmap.mmap(-1, BLOCK))  # page-aligned, which a bytearray is not


class Sink:
    """write() never raises, because torch's C++ writer writes once more while it is destroyed; finish() does."""

    def __init__(self, path: Path) -> None:
        self.size, self.sha256 = 0, ""
        self._problem: BaseException | None = None
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        try:
            self._file = os.open(path, flags | _DIRECT, 0o666)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._file = os.open(path, flags, 0o666)
        self._digest = hashlib.sha256()
        self._buffer, self._filled = _aligned_buffer(), 0
        self._disk, self._hasher = ThreadPoolExecutor(2), ThreadPoolExecutor(1)
        self._under_way: deque[tuple[memoryview, list[Future[None]]]] = deque()

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        at = 0
        while at < len(view) and self._problem is None:
            part = min(BLOCK - self._filled, len(view) - at)
            self._buffer[self._filled : self._filled + part] = view[at : at + part]
            self._filled += part
            at += part
            if self._filled == BLOCK:
                self._send()
        return len(view)

    def flush(self) -> None:
        """Part of what torch.save asks of a file; a block is sent when it is full."""

    def _send(self) -> None:
        """Hand the block to the threads and take a free one; wait when all are in work."""
        block, length = self._buffer, self._filled
        stored = self._disk.submit(self._store, block, length, self.size)
        self._under_way.append((block, [stored, self._hasher.submit(self._digest.update, block[:length])]))
        self.size, self._filled = self.size + length, 0
        self._buffer = self._oldest() if len(self._under_way) >= BLOCKS else _aligned_buffer()

    def _oldest(self) -> memoryview:
        """The block that was handed over first, once it is done."""
        block, work = self._under_way.popleft()
        for each in work:
            try:
                each.result()
            except OSError as problem:
                self._problem = self._problem or problem
        return block

    def _store(self, block: memoryview, length: int, offset: int) -> None:
        """Write it, read it back and compare; while one thread waits for a write, the other does for a read."""
        padded, echo = -(-length // _ALIGN) * _ALIGN, _aligned_buffer()
        block[length:padded] = bytes(padded - length)
        self._transfer(os.pwrite, block[:padded], offset)
        self._transfer(lambda file, part, at: os.preadv(file, [part], at), echo[:padded], offset)
        addresses = [ctypes.addressof(ctypes.c_char.from_buffer(buffer)) for buffer in (block, echo)]
        if _MEMCMP(*addresses, length):  # memoryviews compare item by item, 20 times slower
            where = f"bytes {offset} to {offset + length}"
            raise OSError(errno.EIO, f"{where} read back are not the ones that were written")

    def _transfer(self, how: Callable[[int, memoryview, int], int], buffer: memoryview, offset: int) -> None:
        """Some file systems accept O_DIRECT and then refuse the first transfer, or one that is not a whole block."""
        done, count, refused = 0, 1, False
        while done < len(buffer) and count:
            try:
                count = how(self._file, buffer[done:], offset + done)
                done += count
            except OSError as error:
                if error.errno != errno.EINVAL or refused:
                    raise
                refused = True
                fcntl.fcntl(self._file, fcntl.F_SETFL, fcntl.fcntl(self._file, fcntl.F_GETFL) & ~_DIRECT)

    def finish(self) -> None:
        """Everything is on disk, read back and equal; or the first thing that went wrong is raised."""
        if self._filled and self._problem is None:
            self._send()
        try:
            while self._under_way:
                self._oldest()
            if self._problem is not None:
                raise self._problem
            os.ftruncate(self._file, self.size)  # the last block was padded
            os.fsync(self._file)
        finally:
            self.close()
        self.sha256 = self._digest.hexdigest()

    def close(self) -> None:
        self._disk.shutdown()
        self._hasher.shutdown()
        with contextlib.suppress(OSError):
            os.close(self._file)
        self._file = -1
