"""What the one pass cannot see: deflated members, arrays inside pickles, and views that overlap or have gaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from artifacts.formats import packed
from artifacts.formats.window import Window
from artifacts.model import FILE, INLINE, Broken, Layout, Problem, Tensor
from artifacts.values.plan import CHUNK, Plan, Segment
from artifacts.values.stats import PAGE
from artifacts.values.worker import Worker


def look(window: Window, layout: Layout, plan: Plan, worker: Worker) -> list[Problem]:
    """Fill the statistics of the segments that the pass left out."""
    for segment in plan.segments:
        if segment.source == INLINE:
            worker.part(segment, 0, memoryview(segment.first.data))
    return [*_unpacked(window, layout, plan, worker), *_alone(window, plan, worker)]


def _unpacked(window: Window, layout: Layout, plan: Plan, worker: Worker) -> Iterator[Problem]:
    """Deflated members, each through its own inflater."""
    inside: dict[int, list[Segment]] = {}
    for segment in plan.segments:
        inside.setdefault(segment.source, []).append(segment)
    for number, member in enumerate(layout.packed):
        try:
            _feed(packed.blocks(window, member), inside.get(number, []), worker)
        except Broken as broken:
            yield broken.problem


def _feed(blocks: Iterable[bytes], segments: list[Segment], worker: Worker) -> None:
    """Blocks of any length, given to the segments in whole pages."""
    buffer, at = bytearray(), 0
    for block in blocks:
        buffer += block
        while segments:
            segment = segments[0]
            skipped = min(len(buffer), max(0, segment.start - at))
            del buffer[:skipped]
            at += skipped
            rest = segment.start + segment.length - at
            size = rest if len(buffer) >= rest else len(buffer) // PAGE * PAGE
            if not size:
                break
            worker.part(segment, at - segment.start, memoryview(bytes(buffer[:size])))
            del buffer[:size]
            at += size
            segments = segments[1:] if size == rest else segments
        if not segments:
            buffer.clear()


def _alone(window: Window, plan: Plan, worker: Worker) -> Iterator[Problem]:
    """Exact, but each is read again; so only up to a few times the length of the file."""
    budget = 4 * window.length
    for segment in plan.alone:
        if segment.source != FILE or segment.length > budget:
            message = "a view whose values were judged only as part of others"
            yield Problem("unjudged", "info", message, where=segment.first.name[:200])
            continue
        budget -= segment.length
        for at in range(0, segment.length, CHUNK):
            data = window.read(segment.start - window.start + at, min(CHUNK, segment.length - at))
            worker.part(segment, at, memoryview(_own_values(segment.first, data, at)))


def _own_values(tensor: Tensor, data: bytes, at: int) -> bytes:
    """Of these bytes, those that belong to the tensor; the gaps of its strides are left out."""
    import numpy as np

    if not tensor.gappy:
        return data
    rest = np.arange(at // tensor.dtype.size, (at + len(data)) // tensor.dtype.size)
    mine = np.ones(len(rest), bool)
    for step, size in reversed(tensor.by_stride()):
        index, rest = np.divmod(rest, step)
        mine &= index < size
    values = np.frombuffer(data, f"V{tensor.dtype.size}")
    return bytes(values[mine & (rest == 0)].tobytes())
