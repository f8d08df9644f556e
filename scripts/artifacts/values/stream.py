"""The one pass over a file: digest, CRCs and statistics share each block that is read.

One thread reads into a ring of buffers, one hashes, one takes CRCs and one statistics; all release the interpreter
lock, so several cores are busy. Memory is the ring, whatever the size of the file.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

from artifacts.formats.window import Window
from artifacts.model import FILE, Broken, Layout, Problem, Span
from artifacts.values import again, plan
from artifacts.values.plan import CHUNK, Piece, Plan
from artifacts.values.stats import PAGE
from artifacts.values.worker import Checksums, Worker

_RING = 5
_NAMED = 20  # damaged zip members
Tick = Callable[[int], None]
Consumer = Callable[[Piece, memoryview], None]


@dataclass
class Pass:
    """What the pass learned."""

    plan: Plan
    sha256: str | None = None
    problems: list[Problem] = field(default_factory=list)


def run(window: Window, layout: Layout, *, digest: bool, max_abs: float, tick: Tick | None = None) -> Pass:
    """Read every byte of the file once (views that overlap and deflated members a second time)."""
    done = Pass(plan.make(layout.tensors, max_abs))
    checksums, worker, sha256 = Checksums(layout.spans), Worker(), hashlib.sha256()
    consumers: list[Consumer] = [worker.piece]
    if layout.spans:
        consumers.append(lambda piece, data: checksums.update(piece.start, data))
    if digest:
        consumers.append(lambda piece, data: sha256.update(data))
    in_file = [segment for segment in done.plan.segments if segment.source == FILE]
    _flow(window, plan.pieces(window.length, in_file), consumers, tick or (lambda count: None))
    done.sha256 = sha256.hexdigest() if digest else None
    done.problems += [_crc_problem(span, value, layout) for span, value in checksums.wrong()[:_NAMED]]
    done.problems += again.look(window, layout, done.plan, worker)
    for segment in (*done.plan.segments, *done.plan.alone):
        segment.stats.finish(-(-segment.length // PAGE))
    return done


def _flow(window: Window, pieces: Iterator[Piece], consumers: list[Consumer], tick: Tick) -> None:
    if window.length <= CHUNK:
        buffer = memoryview(bytearray(window.length))
        for piece in pieces:
            data = _fill(window, piece, buffer)
            for consume in consumers:
                consume(piece, data)
            tick(piece.length)
        return
    with ExitStack() as stack:
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in consumers]  # one each: pieces stay in order
        free = [memoryview(bytearray(CHUNK)) for _ in range(_RING)]
        busy: deque[tuple[memoryview, list[Future[None]], int]] = deque()
        for piece in pieces:
            if not free:
                free.append(_wait(busy, tick))
            buffer = free.pop()
            data = _fill(window, piece, buffer)
            work = [thread.submit(consume, piece, data) for thread, consume in zip(threads, consumers, strict=True)]
            busy.append((buffer, work, piece.length))
        while busy:
            _wait(busy, tick)


def _wait(busy: deque[tuple[memoryview, list[Future[None]], int]], tick: Tick) -> memoryview:
    buffer, work, length = busy.popleft()
    for future in work:
        future.result()
    tick(length)
    return buffer


def _fill(window: Window, piece: Piece, buffer: memoryview) -> memoryview:
    done = 0
    while done < piece.length:
        count = os.preadv(window.descriptor, [buffer[done : piece.length]], window.start + piece.start + done)
        if not count:
            raise Broken("truncated", f"the file ended at byte {piece.start + done} while it was read")
        done += count
    return buffer[: piece.length]


def _crc_problem(span: Span, value: int, layout: Layout) -> Problem:
    inside = [t.name for t in layout.tensors if t.source == FILE and span.start <= t.start < span.start + span.length]
    message = (
        f"zip member {span.name[:100]!r} has CRC {value:08x}, its directory says {span.crc:08x}: its bytes changed"
    )
    place = f"bytes {span.start} to {span.start + span.length}"
    return Problem("crc", "error", message, where=", ".join(inside[:3])[:200] or None, evidence=place,
                   fix="copy the file again; if the source has the same CRC error, it was damaged there")  # fmt: skip
