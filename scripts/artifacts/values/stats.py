"""What one pass learns about a tensor: NaN, infinities, range, constant, subnormals, and where zeros run on.

Values are never converted. A block is viewed as unsigned integers, its sign bits are masked away, and the maximum
tells whether any value is NaN, infinite or too large; only then is the block looked at again for counts and places.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from artifacts.dtypes import Dtype

if TYPE_CHECKING:
    import numpy as np

    Words = np.ndarray[Any, np.dtype[Any]]

BLOCK = 1 << 20  # bytes looked at in one go: stays in the cache between the two operations
PAGE = 4096
HOLE = 64 << 10  # bytes of zeros in a row that no dense tensor has by chance
_SAMPLE = 16  # subnormals are counted in every 16th value of a large block
_MAX_RUNS = 1000


@dataclass
class Tally:
    """How many values are bad in one way, and the first of them."""

    count: int = 0
    first: int = -1  # index of the word
    bits: int = 0

    def add(self, where: Words, words: Words, at: int) -> None:
        import numpy as np

        found = int(np.count_nonzero(where))
        if found and not self.count:
            index = int(where.argmax())
            self.first, self.bits = at + index, int(words[index])
        self.count += found


class Scratch:
    """Reused memory of one worker, so that a pass allocates nothing per block."""

    def __init__(self) -> None:
        import numpy as np

        self._bytes = [np.empty(BLOCK, np.uint8), np.empty(BLOCK, np.uint8)]

    def words(self, size: int, count: int) -> Words:
        return self._bytes[0].view(f"u{size}")[:count]

    def aligned(self, words: Words) -> Words:
        if words.flags.aligned:
            return words
        copy = self._bytes[1][: words.nbytes].view(words.dtype)
        copy[:] = words
        return copy


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
    subnormal: int = 0
    sampled: int = 0
    low: int = 0  # of the infinite or too large values: those below zero
    runs: list[tuple[int, int]] = field(default_factory=list)  # [first, last] page of a run of zeros
    _open: int | None = None

    @property
    def zero(self) -> bool:
        if not self.count:
            return False
        return self.largest == 0 and not self.nan.count if self.dtype.floating else self.constant and self.first == 0

    @property
    def bad(self) -> bool:
        return bool(self.nan.count or self.inf.count or self.over.count)

    def update(self, words: Words, scratch: Scratch) -> None:
        """One block of words, in order."""
        if not len(words):
            return
        words = scratch.aligned(words)
        if not self.count:
            self.first = int(words[0])
        if self.constant:
            self.constant = bool((words[:64] == self.first).all()) and bool((words == self.first).all())
        if self.dtype.floating:
            self._floats(words, scratch)
        elif self.dtype.kind == "bool" and int(words.max()) > 1:
            self.over.add(words > 1, words, self.count)
        if self.dtype.nan_raw is not None:
            self.nan.add(words == self.dtype.nan_raw, words, self.count)
        self.count += len(words)

    def _floats(self, words: Words, scratch: Scratch) -> None:
        import numpy as np

        magnitudes = scratch.words(self.dtype.word, len(words))
        np.bitwise_and(words, words.dtype.type(self.dtype.magnitude), out=magnitudes)
        largest = int(np.maximum.reduce(magnitudes))
        self.largest = max(self.largest, largest)
        if largest > self.limit:
            self._look_closer(words, magnitudes)
        else:
            self.largest_finite = max(self.largest_finite, largest)
        self._sample(magnitudes)

    def _look_closer(self, words: Words, magnitudes: Words) -> None:
        dtype = self.dtype
        inf = magnitudes == dtype.infinity if dtype.infinite else magnitudes < 0
        nan = (magnitudes > dtype.largest) & ~inf
        over = (magnitudes > self.limit) & (magnitudes <= dtype.largest)
        for tally, where in ((self.nan, nan), (self.inf, inf), (self.over, over)):
            tally.add(where, words, self.count)
        self.low += int(((words > dtype.magnitude) & (inf | over)).sum())
        finite = magnitudes[magnitudes <= dtype.largest]
        if len(finite):
            self.largest_finite = max(self.largest_finite, int(finite.max()))

    def _sample(self, magnitudes: Words) -> None:
        import numpy as np

        sample = magnitudes[::_SAMPLE] if len(magnitudes) > 1 << 16 else magnitudes
        self.sampled += len(sample)
        small = sample < self.dtype.smallest_normal
        self.subnormal += int(np.count_nonzero(small)) - int(np.count_nonzero(sample == 0))

    def pages(self, flags: Words, first: int) -> None:
        """`flags`: for each page, counted from `first`, whether its first eight bytes are zero."""
        import numpy as np

        if not flags.any():
            self._close(first)
            return
        edges = np.flatnonzero(np.diff(flags.astype(np.int8), prepend=0, append=0)).tolist()
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            if start > 0 or self._open is None:
                self._close(first)
                self._open = first + start
            if end < len(flags):
                self._close(first + end)

    def _close(self, page: int) -> None:
        """A run of zeros ended before `page`."""
        if self._open is not None and (page - self._open) * PAGE >= HOLE - PAGE and len(self.runs) < _MAX_RUNS:
            self.runs.append((self._open, page - 1))
        self._open = None

    def finish(self, pages: int) -> None:
        self._close(pages)
