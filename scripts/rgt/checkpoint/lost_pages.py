"""Pages that a copy or a disk lost or repeated, in files where no checksum would tell.

The pass over the file looked at a word of every SAMPLE bytes. Here runs of zeros and repeated words are judged: where
they begin and end says whether they are damage (at a page) or meant (at a row, at a tensor).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rgt.checkpoint.formats.container import Window
from rgt.checkpoint.layout import FILE, Problem, is_counter, is_mask
from rgt.checkpoint.tensor_values import HOLE, PAGE, SAMPLE, Pass, Segment

if TYPE_CHECKING:
    import numpy as np

    Words = np.ndarray[Any, np.dtype[Any]]

_STEP = 256 << 10  # bytes in which the ends of a run are looked for
_ROW = 64  # bytes of a row whose borders are not met by chance
_SLACK = 8  # bytes of a hole that were zero before
_SCATTERED = 0.005  # share of zeros from which on a tensor is not dense
_MAX_RUNS = 2000
_MIX = 0x9E3779B97F4A7C15  # odd: of words with few differing bits the upper ones differ
_DISTINCT = 64  # words of a page whose values are not all of a kind
_CHANCE = 0.01  # that rows end at pages, below which it is damage
_COPY_AGAIN = "a copy or a disk did that; copy the file again"


def judge_pages(window: Window, done: Pass) -> Iterator[Problem]:
    segments = [segment for segment in done.segments if segment.source == FILE]
    if done.zeros is not None and done.pages is not None and segments:
        places = _Places(segments, done.zeros)
        yield from _lost(window, places)
        yield from _repeated(window, places, _equal_pages(done.pages))


class _Places:
    """The tensors of a file by their bytes."""

    def __init__(self, segments: list[Segment], zeros: Words) -> None:
        self.segments, self.zeros = segments, zeros
        self.starts = [segment.start for segment in segments]

    def around(self, at: int) -> Segment | None:
        """The tensor that has bytes before and behind `at`."""
        index = bisect_right(self.starts, at) - 1
        segment = self.segments[index] if index >= 0 else None
        return segment if segment and segment.start < at < segment.end else None

    def is_dense(self, segment: Segment, run: tuple[int, int]) -> bool:
        """Whether zeros are rare in it outside of the run, and not what it is made of."""
        import numpy as np

        first = segment.first
        if (
            segment.stats.zero
            or is_mask(first)
            or is_counter(first)
            or first.dtype.kind == "bool"
            or first.role == "other"
        ):
            return False
        begin, end = -(-segment.start // SAMPLE), -(-segment.end // SAMPLE)
        low, high = (min(max(edge // SAMPLE, begin), end) for edge in run)
        others = sum(np.count_nonzero(part) for part in (self.zeros[begin:low], self.zeros[high + 1 : end]))
        return int(others) <= max(_SCATTERED * (end - begin), 1)


def _lost(window: Window, places: _Places) -> Iterator[Problem]:
    for run in _zero_runs(window, places.zeros):
        edges = [(segment, edge) for edge in run if (segment := places.around(edge))]
        if not edges or not all(places.is_dense(segment, run) for segment, _ in edges):
            continue  # it begins and ends with whole tensors, or in one of which zeros are a part
        paged = all(_near(edge, PAGE, segment.first.dtype.size) for segment, edge in edges)
        rows = [_row(segment, edge) for segment, edge in edges]
        tensors = [segment.first for segment, _ in edges]
        matrix = all(one.dtype.floating and one.rank > 1 and one.role != "array" for one in tensors)
        by_chance = 1.0
        for row in rows:
            by_chance *= min(row / PAGE, 1.0) if row else 0.0
        if paged or (matrix and not all(rows)):
            segment = edges[0][0]
            place = segment.first.position((max(run[0], segment.start) - segment.start) // segment.first.dtype.size)
            message = f"{run[1] - run[0]} bytes of zeros in a row inside of tensors that are dense elsewhere"
            evidence = f"from {place}, bytes {run[0]} to {run[1]} of the file"
            severity = "error" if by_chance < _CHANCE or not all(rows) else "warn"
            yield Problem("hole", severity, message, segment.first.name[:200], evidence, _COPY_AGAIN)


def _near(edge: int, unit: int, size: int) -> bool:
    """Give or take the bytes of one value that may happen to be zero."""
    return min(edge % unit, -edge % unit) <= size


def _row(segment: Segment, edge: int) -> int:
    """Bytes of the longest row that ends or begins there; 0 for none."""
    tensor = segment.first
    rows = [stride * tensor.dtype.size for stride, *_ in tensor.axes() if stride * tensor.dtype.size >= _ROW]
    return max((row for row in rows if _near(edge - segment.start, row, tensor.dtype.size)), default=0)


def _zero_runs(window: Window, flags: Words) -> list[tuple[int, int]]:
    """First byte, and byte behind the last, of every run of at least HOLE zero bytes."""
    import numpy as np

    zeros = np.flatnonzero(flags)
    breaks = np.flatnonzero(np.diff(zeros) > 1)
    first, last = zeros[np.append(0, breaks + 1)[: len(zeros)]], zeros[np.append(breaks, -1)[: len(zeros)]]
    long = last - first + 1 >= HOLE // SAMPLE - 1
    if int(long.sum()) > _MAX_RUNS:
        return []  # pruned: zeros are everywhere
    found = []
    for begin, end in zip((first[long] * SAMPLE).tolist(), (last[long] * SAMPLE).tolist(), strict=True):
        begin, end = max(0, begin - SAMPLE), min(window.length, end + 2 * SAMPLE)
        before = begin - 1  # the last byte seen that is not zero
        for at in range(begin, end, _STEP):
            data = window.read(at, min(_STEP, end - at))
            edges = np.concatenate(([before], at + np.flatnonzero(np.frombuffer(data, np.uint8))))
            gaps = np.flatnonzero(np.diff(edges) > HOLE - _SLACK).tolist()
            found += [(int(edges[index]) + 1, int(edges[index + 1])) for index in gaps]
            before = int(edges[-1])
        if end - before > HOLE - _SLACK:
            found.append((before + 1, end))
    return list(dict.fromkeys(found))


def _equal_pages(words: Words) -> Words:
    """Pairs of pages that begin with the same word, as distance << 32 | number of the first; sorted.

    All in the place of the words, which are many: 2 MB for each GiB of the file.
    """
    import numpy as np

    bits, filled = np.uint64(len(words).bit_length()), 0
    number = (np.uint64(1) << bits) - np.uint64(1)
    for at in range(0, len(words), _STEP):  # the upper bits of a hash, and below them the number of the page
        part = words[at : at + _STEP]
        part *= np.uint64(_MIX)
        part &= ~number
        part |= np.arange(at, at + len(part), dtype="u8")
    words.sort()
    for at in range(0, len(words) - 1, _STEP):
        part = words[at : at + _STEP + 1]
        same = np.flatnonzero(((part[1:] ^ part[:-1]) >> bits == 0) & (part[1:] >> bits != 0))
        one, other = part[same] & number, part[same + 1] & number
        words[filled : filled + len(same)] = (other - one) << np.uint64(32) | one
        filled += len(same)
    words[:filled].sort()
    return words[:filled]


def _repeated(window: Window, places: _Places, pairs: Words) -> Iterator[Problem]:
    """Pages that are there twice: damage when what is the same begins and ends at a page. Copies of tensors do not."""
    import numpy as np

    breaks = np.flatnonzero(pairs[1:] - pairs[:-1] != 1)
    starts, ends = np.append(0, breaks + 1)[: len(pairs)], np.append(breaks, len(pairs) - 1)[: len(pairs)]
    if len(starts) > _MAX_RUNS:
        return  # constants, or values of few bits
    for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
        distance, number = divmod(int(pairs[begin]), 1 << 32)
        at, again, length = number * PAGE, (number + distance) * PAGE, (end - begin + 1) * PAGE
        first, second = places.around(at + PAGE // 2), places.around(again + PAGE // 2)
        if not first or not second or again + length + 8 > window.length or at < places.starts[0]:
            continue
        data = window.read(at, PAGE)
        if data != window.read(again, PAGE) or len(set(memoryview(data).cast("Q"))) < _DISTINCT:
            continue
        if any(window.read(at + edge, 8) == window.read(again + edge, 8) for edge in (-8, length)):
            continue  # it goes on: a copy of a tensor or of rows
        # whole rows, or from or to the border of a tensor: somebody may have copied those
        whole = any(one.start == begin or one.end == begin + length for one, begin in ((first, at), (second, again)))
        rows = _row(second, again) and _row(second, again + length)
        doubt = whole or rows or second.first.role == "other"
        message = f"{length} bytes at byte {again} of the file are the same as at byte {at}"
        evidence = f"there: {first.first.name[:200]}"
        where = second.first.name[:200]
        yield Problem("duplicate", "warn" if doubt else "error", message, where, evidence, _COPY_AGAIN)
