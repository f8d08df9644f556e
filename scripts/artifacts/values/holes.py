"""Runs of zeros that a crashed copy leaves in an otherwise dense tensor, told from rows that are meant to be zero."""

from __future__ import annotations

import math
from collections.abc import Iterator

from artifacts.formats.window import Window
from artifacts.model import FILE, Problem
from artifacts.values.plan import Segment
from artifacts.values.stats import HOLE, PAGE

_STEP = 256 << 10
Run = tuple[int, int]  # first byte, byte behind the last; in the file


def find(window: Window, segment: Segment) -> list[Run]:
    """The pass only sampled a word per page; here the suspected places are read for their exact ends."""
    if segment.source != FILE or segment.stats.zero:
        return []
    found: list[Run] = []
    for first, last in segment.stats.runs:
        begin = segment.start + max(0, (first - 1) * PAGE)
        end = min(segment.start + segment.length, segment.start + (last + 2) * PAGE)
        found += [run for run in _zeros(window, begin, end) if run not in found]
    return found


def _zeros(window: Window, begin: int, end: int) -> Iterator[Run]:
    """Every run of at least HOLE zero bytes."""
    import numpy as np

    before = begin - 1  # the last byte seen that is not zero
    for at in range(begin, end, _STEP):
        data = window.read(at - window.start, min(_STEP, end - at))
        edges = np.concatenate(([before], at + np.flatnonzero(np.frombuffer(data, np.uint8))))
        for index in np.flatnonzero(np.diff(edges) > HOLE).tolist():
            yield int(edges[index]) + 1, int(edges[index + 1])
        before = int(edges[-1])
    if end - before > HOLE:
        yield before + 1, end


def judge(segment: Segment, run: Run) -> Problem | None:
    """A page boundary speaks for damage, a row boundary for intention."""
    tensor = segment.first
    begin, end = run
    interior = [edge for edge in run if edge not in (segment.start, segment.start + segment.length)]
    paged = bool(interior) and all(_near(edge, PAGE, tensor.dtype.size) for edge in interior)
    row = _row_bytes(segment)
    by_rows = row > tensor.dtype.size and all(_near(edge - segment.start, row, tensor.dtype.size) for edge in interior)
    if tensor.dtype.kind == "bool" or (not tensor.dtype.floating and not paged):
        return None
    if by_rows and not paged:
        return None
    if tensor.rank < 2 and not paged:
        return None
    return _problem(segment, run, "warn" if by_rows else "error", end - begin)


def _row_bytes(segment: Segment) -> int:
    """Bytes of one step along the axis that moves slowest."""
    axes = segment.first.by_stride()
    return math.prod(size for _, size in axes[:-1]) * segment.first.dtype.size if axes else 0


def _near(edge: int, step: int, size: int) -> bool:
    """At a multiple of `step`, give or take the bytes of one value that may happen to be zero."""
    return min(edge % step, -edge % step) <= size


def _problem(segment: Segment, run: Run, severity: str, length: int) -> Problem:
    tensor = segment.first
    first = (run[0] - segment.start) // tensor.dtype.size
    message = f"{length} bytes of zeros in a row inside a tensor that is dense elsewhere"
    return Problem("hole", severity, message, where=tensor.name[:200],
                   evidence=f"from {tensor.position(first)}, bytes {run[0]} to {run[1]} of the file",
                   fix="a copy or a disk lost these pages; copy the file again")  # fmt: skip
