"""The one pass over a file: digest, CRCs and the statistics of every tensor.

Values are never converted. A block is viewed as unsigned integers, its sign bits are masked away, and the maximum tells
whether any value is NaN, infinite or too large; only then is the block looked at again for counts and places. Memory is
two buffers, and 3 MB for each GiB of a file without checksums; the digest, or else the CRCs, run ahead of the rest.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rgt.checkpoint.formats.container import Window, blocks
from rgt.checkpoint.layout import FILE, INLINE, Broken, Dtype, Layout, Member, Problem, Tensor

if TYPE_CHECKING:
    import numpy as np

    Words = np.ndarray[Any, np.dtype[Any]]

READ = 2 << 20  # bytes read at once: stay in the cache for the statistics
AHEAD_READ = 4 << 20  # bytes read at once for the digest, which gives way to the other thread between two of them
LEAD = 256 << 20  # bytes that the digest may be ahead: still in the page cache when their values are judged
BLOCK = 1 << 20  # bytes looked at in one go: stays in the cache between two operations
PAGE = 4096
HOLE = 4096  # bytes of zeros in a row that no dense tensor has by chance
SAMPLE = 1024  # bytes of the file from one word that is looked at to the next
_NAMED = 20  # damaged zip members
Tick = Callable[[int], None]


@dataclass
class Tally:
    """How many values are bad in one way, and the first of them."""

    count: int = 0
    first: int = -1  # index of the word

    def add(self, where: Words, at: int) -> None:
        found = int(where.sum())
        if found and not self.count:
            self.first = at + int(where.argmax())
        self.count += found


@dataclass
class Stats:
    dtype: Dtype
    limit: int  # largest magnitude bits that are in range
    nan: Tally = field(default_factory=Tally)
    inf: Tally = field(default_factory=Tally)
    over: Tally = field(default_factory=Tally)
    count: int = 0  # words seen
    largest: int = 0  # magnitude bits, floats only
    largest_finite: int = 0
    constant: bool = True
    first: int = 0
    low: int = 0  # of the infinite or too large values: those below zero

    @property
    def zero(self) -> bool:
        if not self.count:
            return False
        return self.largest == 0 and not self.nan.count if self.dtype.floating else self.constant and self.first == 0

    @property
    def bad(self) -> bool:
        return bool(self.nan.count or self.inf.count or self.over.count)

    def update(self, words: Words) -> None:
        """One block of words, in order."""
        if not len(words):
            return
        words = words if words.flags.aligned else words.copy()
        if not self.count:
            self.first = int(words[0])
        if self.constant:
            self.constant = int(words[-1]) == self.first and bool((words == self.first).all())
        dtype = self.dtype
        if dtype.floating:
            magnitudes = words & words.dtype.type(dtype.magnitude)
            largest = int(magnitudes.max())
            self.largest = max(self.largest, largest)
            if largest <= self.limit:
                self.largest_finite = max(self.largest_finite, largest)
            else:
                inf = magnitudes == dtype.infinity if dtype.infinite else magnitudes < 0
                nan = (magnitudes > dtype.largest) & ~inf
                over = (magnitudes > self.limit) & (magnitudes <= dtype.largest)
                for tally, where in ((self.nan, nan), (self.inf, inf), (self.over, over)):
                    tally.add(where, self.count)
                self.low += int(((words > dtype.magnitude) & (inf | over)).sum())
                finite = magnitudes[magnitudes <= dtype.largest]
                self.largest_finite = max(self.largest_finite, int(finite.max(initial=0)))
        elif dtype.kind == "bool" and int(words.max()) > 1:
            self.over.add(words > 1, self.count)
        if dtype.nan_raw is not None:
            self.nan.add(words == dtype.nan_raw, self.count)
        self.count += len(words)


@dataclass
class Segment:
    """Bytes of one tensor, or of several that share them: tied weights, views of one storage."""

    source: int
    start: int
    length: int
    tensors: list[Tensor]
    stats: Stats
    done: int = 0  # bytes that were judged

    @property
    def first(self) -> Tensor:
        return self.tensors[0]

    @property
    def end(self) -> int:
        return self.start + self.length

    def judge(self, data: memoryview | bytes) -> None:
        """The next bytes of it."""
        import numpy as np

        tensor, dtype = self.first, self.first.dtype
        if dtype.kind != "opaque":
            words = np.frombuffer(data, f"{'>' if tensor.big_endian else '<'}u{dtype.word}")
            step = BLOCK // dtype.word
            gappy = len(self.tensors) == 1 and tensor.numel * dtype.size < self.length
            for begin in range(0, len(words), step):
                part = words[begin : begin + step]
                if gappy:  # x[:, :10] of a wider x: what lies between its values is replaced by its first one
                    rest = (self.stats.count + np.arange(len(part))) * dtype.word // dtype.size
                    for stride, size, _ in reversed(tensor.axes()):
                        rest -= np.minimum(rest // stride, size - 1) * stride
                    first = self.stats.first if self.stats.count else part[0]
                    part = np.where(rest == 0, part, part.dtype.type(first))
                self.stats.update(part)
        self.done += len(data)


@dataclass
class Pass:
    """What the pass learned."""

    segments: list[Segment]  # by source and start, never overlapping
    sha256: str | None = None
    problems: list[Problem] = field(default_factory=list)
    # where no checksum speaks: whether the eight bytes at every SAMPLE are zero, and those at every PAGE
    zeros: Words | None = None
    pages: Words | None = None


def read_values(window: Window, layout: Layout, *, digest: bool, max_abs: float, tick: Tick | None = None) -> Pass:
    """Read every byte of the file once (deflated members a second time)."""
    done = Pass(_plan(layout.tensors, max_abs))
    for segment in done.segments:
        for tensor in segment.tensors:
            if tensor.dtype != segment.first.dtype:
                judged = f"{segment.first.name[:100]} and was judged only as {segment.first.dtype.name}"
                done.problems.append(Problem("unjudged", "info", f"shares bytes with {judged}", tensor.name[:200]))
    _read_file(window, layout, done, digest, tick or (lambda count: None))
    for segment in done.segments:
        if segment.source == INLINE:
            segment.judge(segment.first.data)
    for number, member in enumerate(layout.packed):
        pending = deque(segment for segment in done.segments if segment.source == number)
        at, data = 0, b""
        try:
            for block in blocks(window, member):
                data += block
                kept = _judge_block(pending, at, memoryview(data))
                at, data = kept, data[kept - at :]
        except Broken as broken:
            done.problems.append(broken.problem)
    return done


def _plan(tensors: list[Tensor], max_abs: float) -> list[Segment]:
    """One segment for each tensor; tensors that share bytes are judged together."""
    plan: list[Segment] = []
    sized = [(tensor, tensor.extent) for tensor in tensors]
    for tensor, extent in sorted(sized, key=lambda pair: (pair[0].source, pair[0].start, -pair[1])):
        last = plan[-1] if plan and plan[-1].source == tensor.source != INLINE else None
        if last and extent and tensor.start < last.end:
            length = max(last.length, tensor.start + extent - last.start)
            last.length = length - length % last.first.dtype.word
            last.tensors.append(tensor)
        elif extent:
            limit = tensor.dtype.limit(max_abs) if tensor.dtype.floating else 0
            plan.append(Segment(tensor.source, tensor.start, extent, [tensor], Stats(tensor.dtype, limit)))
    return plan


class Ahead:
    """Reads the file from its start on in a thread of its own, and gives each block to `take`: the digest or the CRCs.

    The values are judged behind it, from the page cache: what it does takes longer than all the rest, and so begins
    while numpy is still imported.
    """

    def __init__(self, window: Window, take: Callable[[int, memoryview], None]) -> None:
        self.window, self.take = window, take
        self.done = self.judged = 0  # bytes of the file
        self.closed = False
        self.error: BaseException | None = None
        self.moved = threading.Condition()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        length = self.window.length
        buffer = memoryview(bytearray(min(AHEAD_READ, length)))
        try:
            while (at := self.done) < length:
                with self.moved:
                    self.moved.wait_for(lambda: self.closed or self.done < self.judged + LEAD)
                if self.closed:
                    return
                data = self.window.read_into(at, buffer[: length - at])
                self.take(at, data)
                with self.moved:
                    self.done = at + len(data)
                    self.moved.notify()
        except BaseException as error:
            with self.moved:
                self.error, self.done = error, length
                self.moved.notify()

    def wait(self, end: int, judged: int) -> None:
        """Until all before `end` was taken; what is before `judged` is not needed any more."""
        with self.moved:
            self.judged = judged
            self.moved.notify()
            self.moved.wait_for(lambda: self.done >= end)
        if self.error:
            raise self.error

    def close(self) -> None:
        with self.moved:
            self.closed = True
            self.moved.notify()
        self.thread.join()


def _read_file(window: Window, layout: Layout, done: Pass, digest: bool, tick: Tick) -> None:
    sha256, checksums = hashlib.sha256(), Checksums(layout.spans)
    take = (lambda _, data: sha256.update(data)) if digest else checksums.update
    with contextlib.ExitStack() as stack:
        ahead = Ahead(window, take) if window.length and (digest or layout.spans) else None
        if ahead:
            stack.callback(ahead.close)
        _judge_file(window, layout, done, checksums if digest else Checksums([]), ahead, tick)
    done.sha256 = sha256.hexdigest() if digest else None
    done.problems += checksums.problems(layout)


def _judge_file(
    window: Window, layout: Layout, done: Pass, checksums: Checksums, ahead: Ahead | None, tick: Tick
) -> None:
    import numpy as np

    pending = deque(segment for segment in done.segments if segment.source == FILE)
    buffer = memoryview(bytearray(min(READ, window.length)))
    at = read = 0  # the buffer starts at `at`; `read` bytes of the file were judged
    if not layout.spans and not window.start:
        done.zeros = np.zeros(-(-window.length // SAMPLE), "?")
        done.pages = np.ones(-(-window.length // PAGE), "u8")
    while read < window.length:
        size = min(len(buffer), window.length - at)
        if ahead:
            ahead.wait(at + size, read)
        data = window.read_into(at, buffer[:size])
        fresh = data[read - at :]
        checksums.update(read, fresh)
        kept = _judge_block(pending, at, data)
        if done.zeros is not None and done.pages is not None:
            first = -read % SAMPLE
            words = np.frombuffer(fresh[first : first + max(len(fresh) - first, 0) // 8 * 8], "u8")[:: SAMPLE // 8]
            number = (read + first) // SAMPLE
            done.zeros[number : number + len(words)] = words == 0
            words, number = words[-number % (PAGE // SAMPLE) :: PAGE // SAMPLE], -(-number * SAMPLE // PAGE)
            done.pages[number : number + len(words)] = words
        tick(len(fresh))
        at, read = kept, at + len(data)


def _judge_block(pending: deque[Segment], at: int, data: memoryview) -> int:
    """Give each segment its part of the bytes from `at` on, in whole pages, so that no value is cut in two.

    Returns from where on the next block must repeat them.
    """
    end = at + len(data)
    while pending and pending[0].start < end:
        segment = pending[0]
        begin = segment.start + segment.done
        size = min(segment.end, end) - begin
        if segment.end > end:
            size -= size % PAGE
        if size:
            segment.judge(data[begin - at : begin - at + size])
        if segment.done < segment.length:
            return begin + size
        pending.popleft()
    return end


@dataclass
class Checksums:
    """Running CRC-32 of the spans, which come in the order of the file and do not overlap."""

    spans: list[Member]
    values: list[int] = field(default_factory=list)
    next: int = 0

    def __post_init__(self) -> None:
        self.spans = sorted(self.spans, key=lambda span: span.data)
        self.values = [0] * len(self.spans)

    def update(self, start: int, data: memoryview | bytes) -> None:
        end = start + len(data)
        while self.next < len(self.spans):
            span = self.spans[self.next]
            low, high = max(span.data, start), min(span.data + span.packed, end)
            if low < high:
                self.values[self.next] = zlib.crc32(data[low - start : high - start], self.values[self.next])
            if span.data + span.packed > end:
                return
            self.next += 1

    def problems(self, layout: Layout) -> Iterator[Problem]:
        wrong = [(span, crc) for span, crc in zip(self.spans, self.values, strict=True) if span.crc != crc]
        for span, crc in wrong[:_NAMED]:
            end = span.data + span.packed
            inside = [t.name for t in layout.tensors if t.source == FILE and span.data <= t.start < end]
            crcs = f"has CRC {crc:08x}, its directory says {span.crc:08x}: its bytes changed"
            where, place = ", ".join(inside[:3])[:200] or None, f"bytes {span.data} to {end}"
            fix = "copy the file again; if the source has the same CRC error, it was damaged there"
            yield Problem("crc", "error", f"zip member {span.name[:100]!r} {crcs}", where, place, fix)
