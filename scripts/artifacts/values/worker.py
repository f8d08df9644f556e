"""CRCs and statistics of the blocks of a file, in their order."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from artifacts.model import Span, Tensor
from artifacts.values.plan import Piece, Segment
from artifacts.values.stats import BLOCK, HOLE, PAGE, Scratch


@dataclass
class Checksums:
    """Running CRC-32 of the spans, which come in the order of the file and do not overlap."""

    spans: list[Span]
    values: list[int] = field(default_factory=list)
    next: int = 0

    def __post_init__(self) -> None:
        self.spans = sorted(self.spans, key=lambda span: span.start)
        self.values = [0] * len(self.spans)

    def update(self, start: int, data: memoryview) -> None:
        end = start + len(data)
        while self.next < len(self.spans):
            span = self.spans[self.next]
            low, high = max(span.start, start), min(span.start + span.length, end)
            if low < high:
                self.values[self.next] = zlib.crc32(data[low - start : high - start], self.values[self.next])
            if span.start + span.length > end:
                return
            self.next += 1

    def wrong(self) -> list[tuple[Span, int]]:
        return [(span, value) for span, value in zip(self.spans, self.values, strict=True) if value != span.crc]


class Worker:
    """Statistics, in the order of the file."""

    def __init__(self) -> None:
        import numpy as np

        self.np = np
        self.scratch = Scratch()

    def piece(self, piece: Piece, data: memoryview) -> None:
        for part in piece.parts:
            self.part(part.segment, part.at, data[part.begin : part.begin + part.length])

    def part(self, segment: Segment, at: int, data: memoryview) -> None:
        dtype = segment.first.dtype
        if dtype.kind == "opaque":
            return
        words = self.np.frombuffer(data, _word_type(segment.first))
        step = BLOCK // dtype.word
        for begin in range(0, len(words), step):
            segment.stats.update(words[begin : begin + step], self.scratch)
        if segment.length >= 2 * HOLE and not segment.first.gappy:
            heads = self.np.frombuffer(data[: len(data) // 8 * 8], "u8")[:: PAGE // 8]
            segment.stats.pages(heads == 0, at // PAGE)


def _word_type(tensor: Tensor) -> str:
    return f"{'>' if tensor.big_endian else '<'}u{tensor.dtype.word}"
