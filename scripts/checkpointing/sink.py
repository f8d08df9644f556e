"""A file that torch.save writes to, and that is read back and compared while it is written.

Three threads work behind the serializer, each on a block of its own: write, read back and compare, digest. With
O_DIRECT the bytes do not pass the page cache: what is read back comes from the disk, a checkpoint does not push the
data set out of memory, and little is left for fsync to wait for. File systems without it are written as usual.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import mmap
import os
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BLOCK = 4 << 20
BLOCKS = 6  # two per stage: one in work, one waiting
_ALIGN = 4096  # of offsets, lengths and memory, for O_DIRECT
_DIRECT: int = getattr(os, "O_DIRECT", 0)
_MEMCMP = ctypes.CDLL(None).memcmp  # memoryviews compare item by item, 20 times slower
_MEMCMP.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


def _buffer() -> memoryview:
    return memoryview(mmap.mmap(-1, BLOCK))  # page-aligned, which a bytearray is not


def _address(buffer: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


@dataclass
class _Block:
    buffer: memoryview = field(default_factory=_buffer)
    offset: int = 0
    length: int = 0


class Sink:
    """write() never raises, because torch's C++ writer writes once more while it is destroyed; finish() tells."""

    def __init__(self, path: Path) -> None:
        self.path, self.size, self.sha256 = path, 0, ""
        self.problem: BaseException | None = None
        self._out = _open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._back = _open(path, os.O_RDONLY)
        self._echo, self._digest = _buffer(), hashlib.sha256()
        self._made, self._block = 0, _Block()
        self._free: queue.Queue[Any] = queue.Queue()
        stages = [_Stage(work, self._fail) for work in (self._write, self._read_back, self._hash)]
        for stage, after in zip(stages, [*(each.queue for each in stages[1:]), self._free], strict=True):
            stage.start(after)
        self._stages = stages

    # -- the serializer's side

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        at = 0
        while at < len(view) and self.problem is None:
            block = self._block
            part = min(BLOCK - block.length, len(view) - at)
            block.buffer[block.length : block.length + part] = view[at : at + part]
            block.length += part
            at += part
            if block.length == BLOCK:
                self._send()
        return len(view)

    def flush(self) -> None:
        """Part of what torch.save asks of a file; a block is sent when it is full."""

    def _send(self) -> None:
        sent, self._block = self._block, self._next()
        self.size = sent.offset + sent.length
        self._block.offset, self._block.length = self.size, 0
        self._stages[0].queue.put(sent)

    def _next(self) -> _Block:
        if self._made < BLOCKS - 1 and self._free.empty():  # a small checkpoint does not need them all
            self._made += 1
            return _Block()
        block: _Block = self._free.get()
        return block

    def finish(self) -> None:
        """Everything is on disk, read back and equal; or the first thing that went wrong is raised."""
        try:
            if self.problem is None and self._block.length:
                self._send()
            self._stages[0].end()
            if self.problem is None:
                os.ftruncate(self._out, self.size)  # the last block was padded
                os.fsync(self._out)
        finally:
            self.close()
        if self.problem is not None:
            raise self.problem
        self.sha256 = self._digest.hexdigest()

    def close(self) -> None:
        for stage in self._stages:
            stage.end()
        for descriptor in (self._out, self._back):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        self._out = self._back = -1

    # -- the stages, each in its thread

    def _write(self, block: _Block) -> None:
        length = -(-block.length // _ALIGN) * _ALIGN
        block.buffer[block.length : length] = bytes(length - block.length)
        done = 0
        while done < length:
            done += _transfer(os.pwrite, self._out, block.buffer[done:length], block.offset + done)

    def _read_back(self, block: _Block) -> None:
        done, count = 0, 1
        while done < block.length and count:
            count = _transfer(_pread, self._back, self._echo[done:], block.offset + done)
            done += count
        if done < block.length or _MEMCMP(_address(block.buffer), _address(self._echo), block.length):
            where = f"bytes {block.offset} to {block.offset + block.length}"
            raise OSError(errno.EIO, f"{where} read back are not the ones that were written")

    def _hash(self, block: _Block) -> None:
        self._digest.update(block.buffer[: block.length])

    def _fail(self, problem: BaseException) -> None:
        self.problem = self.problem or problem


class _Stage:
    """A thread that does one thing with every block and hands it on, also after a failure: somebody waits for it."""

    def __init__(self, work: Callable[[_Block], None], fail: Callable[[BaseException], None]) -> None:
        self.work, self.fail = work, fail
        self.queue: queue.Queue[Any] = queue.Queue()

    def start(self, after: queue.Queue[Any]) -> None:
        name = f"checkpoint{self.work.__name__}"
        self.thread = threading.Thread(target=self._run, args=(after,), name=name)
        self.thread.start()

    def _run(self, after: queue.Queue[Any]) -> None:
        failed = False
        while (block := self.queue.get()) is not None:
            try:
                if not failed:
                    self.work(block)
            except BaseException as problem:
                failed = True
                self.fail(problem)
            after.put(block)

    def end(self) -> None:
        if self.thread.is_alive():
            self.queue.put(None)
            self.thread.join()


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | _DIRECT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return os.open(path, flags | os.O_CLOEXEC, 0o666)


def _pread(descriptor: int, buffer: memoryview, offset: int) -> int:
    return os.preadv(descriptor, [buffer], offset)


def _transfer(how: Callable[[int, memoryview, int], int], descriptor: int, buffer: memoryview, offset: int) -> int:
    """Some file systems accept O_DIRECT and then refuse the first transfer, or one that is not a whole block."""
    try:
        return how(descriptor, buffer, offset)
    except OSError as error:
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        if error.errno != errno.EINVAL or not flags & _DIRECT:
            raise
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~_DIRECT)
    return how(descriptor, buffer, offset)
