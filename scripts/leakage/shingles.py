"""Near-duplicate text: MinHash over pieces of six bytes, in numpy, then the true Jaccard similarity of each candidate.

Pieces that many texts share (licence headers, templates) say nothing about being copied: they are left out when
candidates are looked for, and a pair must be similar with and without them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leakage.normal import Array, mix

SHINGLE = 6  # bytes: a word, or two Chinese characters
KEPT = 256  # the smallest hashes of a text: all of a text up to 260 bytes, a fair sample of a longer one
BANDS, DEPTH = 20, 4  # finds 94 % of pairs at similarity 0.6, 99.6 % at 0.7, all above
SHORT = 200  # bytes: below it a pair must be more similar, because a template is a large part of it
SIMILAR_SHORT, SIMILAR = 0.7, 0.6
FEWEST = 40  # bytes of a text that can be a near-duplicate
_DISTINCT = 12  # shingles that are not common, to say anything
_TABLE = 22  # bits of the table of common shingles
_PARTNERS = 16  # of one item in one band
_SEEDS = mix(np.arange(1, 2 * BANDS * DEPTH + 1, dtype=np.uint64)).astype(np.uint32)
_XOR, _MULTIPLY = _SEEDS[: BANDS * DEPTH], _SEEDS[BANDS * DEPTH :] | np.uint32(1)


@dataclass
class Sketch:
    """Per text: its sorted shingle hashes `flat[starts[i]:starts[i + 1]]`, and its length in bytes."""

    flat: Array
    starts: Array
    lengths: Array

    def of(self, index: int) -> Array:
        return self.flat[self.starts[index] : self.starts[index + 1]]


def sketch(texts: list[bytes]) -> Sketch:
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    data = np.frombuffer(b"".join(texts) + b"\0" * SHINGLE, dtype=np.uint8)
    windows = np.zeros(len(data) - SHINGLE, dtype=np.uint64)
    for offset in range(SHINGLE):
        windows |= data[offset : offset + len(windows)].astype(np.uint64) << np.uint64(8 * offset)
    owner = np.repeat(np.arange(len(texts), dtype=np.uint64), lengths)
    ends = np.repeat(np.cumsum(lengths), lengths)
    inside = np.arange(len(windows)) + SHINGLE <= ends  # a shingle never reaches into the next text
    hashes = mix(windows[inside]) >> np.uint64(32)
    keys = np.sort((owner[inside] << np.uint64(32)) | hashes)
    if len(keys):
        keys = keys[np.concatenate(([True], keys[1:] != keys[:-1]))]
    owners = (keys >> np.uint64(32)).astype(np.int64)
    first = np.searchsorted(owners, np.arange(len(texts)))
    keep = np.arange(len(keys)) - first[owners] < KEPT if len(keys) else np.zeros(0, dtype=bool)
    counts = np.bincount(owners[keep], minlength=len(texts))
    return Sketch(keys[keep].astype(np.uint32), np.concatenate(([0], np.cumsum(counts))), lengths)


def common_table(sample: Sketch) -> Array:
    """Which shingles are in at least 1 % of the texts, and in twenty."""
    table = np.zeros(1 << _TABLE, dtype=bool)
    values, counts = np.unique(sample.flat, return_counts=True)
    often = values[counts >= max(20, 0.01 * len(sample.lengths))]
    table[often >> np.uint32(32 - _TABLE)] = True
    return table


def band_keys(found: Sketch, common: Array) -> tuple[Array, Array]:
    """(texts, BANDS) keys, and which texts have enough of their own to be compared."""
    size = len(found.lengths)
    distinct = ~common[found.flat >> np.uint32(32 - _TABLE)]
    owners = np.repeat(np.arange(size), np.diff(found.starts))[distinct]
    hashes = found.flat[distinct]
    counts = np.bincount(owners, minlength=size)
    usable = (counts >= _DISTINCT) & (found.lengths >= FEWEST)
    keys = np.zeros((size, BANDS), dtype=np.uint32)
    if not usable.any():
        return keys, usable
    nonempty = counts > 0
    starts = (np.cumsum(counts) - counts)[nonempty]
    for band in range(BANDS):
        key = np.zeros(len(starts), dtype=np.uint32)
        for row in range(band * DEPTH, (band + 1) * DEPTH):
            least = np.minimum.reduceat((hashes ^ _XOR[row]) * _MULTIPLY[row], starts)
            key = (key ^ least) * np.uint32(0x9E3779B1)
            key ^= key >> np.uint32(15)
        keys[nonempty, band] = key
    return keys, usable


class TextIndex:
    """Texts that are held, to be asked with pieces of a stream."""

    def __init__(self, texts: Sketch, common: Array) -> None:
        self.texts, self.common = texts, common
        self.proven: set[int] = set()
        keys, usable = band_keys(texts, common)
        self.items = np.flatnonzero(usable)
        order = [np.argsort(keys[self.items, band], kind="stable") for band in range(BANDS)]
        self.order = [self.items[each].astype(np.uint32) for each in order]
        self.sorted = [keys[self.items, band][each] for band, each in enumerate(order)]

    def matches(self, asked: Sketch, judge_held: bool) -> list[tuple[int, int, float]]:
        """(held, asked, similarity) of near-duplicates; one partner of each item of the side that is judged."""
        keys, usable = band_keys(asked, self.common)
        items = np.flatnonzero(usable)
        pairs = [self._candidates(band, items, keys[items, band]) for band in range(BANDS)]
        found = []
        done = self.proven if judge_held else set()
        for pair in np.unique(np.concatenate(pairs)):
            held, other = int(pair >> np.uint64(32)), int(pair & np.uint64(0xFFFFFFFF))
            judged = held if judge_held else other
            similarity = 0.0 if judged in done else self._similarity(held, other, asked)
            if similarity:
                done.add(judged)
                found.append((held, other, similarity))
        return found

    def _candidates(self, band: int, items: Array, keys: Array) -> Array:
        low = np.searchsorted(self.sorted[band], keys, "left")
        counts = np.minimum(np.searchsorted(self.sorted[band], keys, "right") - low, _PARTNERS)
        hit = counts > 0
        return join_ranges(self.order[band], items[hit], low[hit], counts[hit])

    def _similarity(self, held: int, other: int, asked: Sketch) -> float:
        """0 when it is below the bar."""
        a, b = _below_cut(self.texts.of(held), asked.of(other))
        short = min(self.texts.lengths[held], asked.lengths[other]) < SHORT
        bar = SIMILAR_SHORT if short else SIMILAR
        whole = jaccard(a, b)
        if whole < bar:
            return 0.0
        a, b = (each[~self.common[each >> np.uint32(32 - _TABLE)]] for each in (a, b))
        return whole if jaccard(a, b) >= bar else 0.0


def join_ranges(order: Array, items: Array, low: Array, counts: Array) -> Array:
    """Every (held << 32 | asked) of the ranges order[low : low + counts]."""
    owner = np.repeat(items.astype(np.uint64), counts)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    held = order[np.repeat(low, counts) + within].astype(np.uint64)
    return np.asarray((held << np.uint64(32)) | owner)


def _below_cut(a: Array, b: Array) -> tuple[Array, Array]:
    """When one text was cut to its smallest hashes, only what lies below the cut can be compared."""
    ceiling = min(each[-1] if len(each) >= KEPT else np.uint32(0xFFFFFFFF) for each in (a, b))
    return a[: np.searchsorted(a, ceiling, "right")], b[: np.searchsorted(b, ceiling, "right")]


def jaccard(a: Array, b: Array) -> float:
    """Of two sorted sets."""
    both = len(np.intersect1d(a, b, assume_unique=True))
    return float(both / max(1, len(a) + len(b) - both))
