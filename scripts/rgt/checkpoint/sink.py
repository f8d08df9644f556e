"""A file that torch.save writes to; each block is read back and compared while the next ones are written.

Writing, reading back and hashing run in one thread each, behind the serializer: one after the other they would more
than double the time of a save. With O_DIRECT the bytes do not pass the page cache: what
is read back comes from the disk, and a checkpoint does not push the data set out of memory. File systems without
O_DIRECT are written as usual.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import mmap
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

BLOCK = 4 << 20
BLOCKS = 6  # two per thread: one in work, one waiting
_ALIGN = 4096  # of offsets, lengths and memory, for O_DIRECT
_DIRECT: int = getattr(os, "O_DIRECT", 0)
_MEMCMP = ctypes.CDLL(None).memcmp  # memoryviews compare item by item, 20 times slower
_MEMCMP.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def _aligned_buffer() -> memoryview:
    return memoryview(mmap.mmap(-1, BLOCK))  # page-aligned, which a bytearray is not


def _address(buffer: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


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
        self._digest, self._echo = hashlib.sha256(), _aligned_buffer()
        self._buffer, self._filled = _aligned_buffer(), 0
        self._writer, self._reader, self._hasher = (ThreadPoolExecutor(1) for _ in range(3))
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
        written = self._writer.submit(self._write, block, length, self.size)
        compared = self._reader.submit(self._read_back, written, block, length, self.size)
        self._under_way.append((block, [compared, self._hasher.submit(self._digest.update, block[:length])]))
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

    def _write(self, buffer: memoryview, length: int, offset: int) -> None:
        padded = -(-length // _ALIGN) * _ALIGN
        buffer[length:padded] = bytes(padded - length)
        done = 0
        while done < padded:
            done += self._transfer(os.pwrite, buffer[done:padded], offset + done)

    def _read_back(self, written: Future[None], buffer: memoryview, length: int, offset: int) -> None:
        written.result()
        done, count = 0, 1
        while done < length and count:
            count = self._transfer(lambda file, part, at: os.preadv(file, [part], at), self._echo[done:], offset + done)
            done += count
        if done < length or _MEMCMP(_address(buffer), _address(self._echo), length):
            where = f"bytes {offset} to {offset + length}"
            raise OSError(errno.EIO, f"{where} read back are not the ones that were written")

    def _transfer(self, how: Callable[[int, memoryview, int], int], buffer: memoryview, offset: int) -> int:
        """Some file systems accept O_DIRECT and then refuse the first transfer, or one that is not a whole block."""
        try:
            return how(self._file, buffer, offset)
        except OSError as error:
            flags = fcntl.fcntl(self._file, fcntl.F_GETFL)
            if error.errno != errno.EINVAL or not flags & _DIRECT:
                raise
        fcntl.fcntl(self._file, fcntl.F_SETFL, flags & ~_DIRECT)
        return how(self._file, buffer, offset)

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
        for pool in (self._writer, self._reader, self._hasher):
            pool.shutdown()
        with contextlib.suppress(OSError):
            os.close(self._file)
        self._file = -1
