"""Which bytes of a file belong to which tensor, and how to cut the file so that one reading serves all checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from artifacts.model import INLINE, Tensor
from artifacts.values.stats import Stats

CHUNK = 4 << 20  # bytes read at once; a multiple of every word and of the page


@dataclass
class Segment:
    """Bytes of one dense tensor, or of several with the same place (tied weights)."""

    source: int
    start: int
    length: int
    tensors: list[Tensor]
    stats: Stats

    @property
    def first(self) -> Tensor:
        return self.tensors[0]


@dataclass
class Plan:
    segments: list[Segment] = field(default_factory=list)  # by source and start, never overlapping
    alone: list[Segment] = field(default_factory=list)  # views with gaps or that overlap: read once more, by themselves


def make(tensors: list[Tensor], max_abs: float) -> Plan:
    plan = Plan()
    end, last_source = 0, None
    for segment in _merged(tensors, max_abs):
        if segment.source != last_source:
            end, last_source = 0, segment.source
        if segment.source != INLINE and (segment.start < end or segment.first.gappy):
            plan.alone.append(segment)
        else:
            plan.segments.append(segment)
            end = segment.start + segment.length
    return plan


def _merged(tensors: list[Tensor], max_abs: float) -> list[Segment]:
    """Tensors of one place and dtype together; the longer of two that start together comes first."""
    found: dict[tuple[object, ...], Segment] = {}
    for number, tensor in enumerate(tensors):
        length = tensor.extent
        if not length:
            continue
        alone = number if tensor.source == INLINE or tensor.gappy else None
        key = (tensor.source, tensor.start, length, tensor.dtype.name, alone)
        if key not in found:
            limit = tensor.dtype.limit(max_abs) if tensor.dtype.floating else 0
            found[key] = Segment(tensor.source, tensor.start, length, [], Stats(tensor.dtype, limit))
        found[key].tensors.append(tensor)
    return sorted(found.values(), key=lambda segment: (segment.source, segment.start, -segment.length))


@dataclass
class Part:
    segment: Segment
    at: int  # offset in the segment
    begin: int  # offset in the piece
    length: int


@dataclass
class Piece:
    start: int
    length: int
    parts: list[Part] = field(default_factory=list)


def pieces(length: int, segments: list[Segment]) -> Iterator[Piece]:
    """The whole file in pieces of at most CHUNK. No value is cut in two: a large segment starts a piece of its own."""
    start = 0
    parts: list[Part] = []
    for segment in segments:
        done = 0
        while done < segment.length:
            here, rest = segment.start + done, segment.length - done
            if here + rest - start <= CHUNK:
                parts.append(Part(segment, done, here - start, rest))
                break
            if here > start:
                yield from _cut(start, here, parts)
                start, parts = here, []
                continue
            yield Piece(start, CHUNK, [Part(segment, done, 0, CHUNK)])
            start, done = start + CHUNK, done + CHUNK
    yield from _cut(start, length, parts)


def _cut(start: int, end: int, parts: list[Part]) -> Iterator[Piece]:
    """From `start` to `end`; the parts, if any, lie in the first CHUNK."""
    while start < end:
        size = min(CHUNK, end - start)
        yield Piece(start, size, parts)
        start, parts = start + size, []
