"""Near-duplicates: texts, rows of numbers and pictures that are almost the same, each found by an index that is held.

Text: MinHash over pieces of six bytes, then the true Jaccard similarity of each candidate. Pieces that many texts share
(licence headers, templates) say nothing about being copied: they are left out when candidates are looked for, and a
pair must be similar with and without them. Rows: the same after rounding or a little noise; eight grids with random
offsets, each over some of the columns, and rows that share a cell are compared column by column.
Near-duplicate images: a DCT hash of a small grey picture, flipped and cropped, then the pictures themselves.

Hashes only propose. A pair counts when one picture, flipped or cropped by up to a fifth, correlates with the other
both as it is and in its fine structure: two photographs of one class agree in the first, not in the second.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from rgt.leak_probe.normal import Array, mix, within_bits

import numpy as np

SHINGLE = 6  # bytes: a word, or two Chinese characters
KEPT = 256  # the smallest hashes of a text: all of a text up to 260 bytes, a fair sample of a longer one
BANDS, DEPTH = 20, 4  # finds 94 % of pairs at similarity 0.6, 99.6 % at 0.7, all above
SHORT = 200  # bytes: below it a pair must be more similar, because a template is a large part of it
SIMILAR_SHORT, SIMILAR = 0.7, 0.6
FEWEST = 40  # bytes of a text that can be a near-duplicate
_DISTINCT = 12  # shingles that are not common, to say anything
_TABLE = 22  # bits of the table of common shingles
_TEXT_PARTNERS = 16  # of one item in one band
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

    @classmethod
    def join(cls, parts: list[Sketch]) -> Sketch:
        starts = np.concatenate(([0], np.cumsum(np.concatenate([np.diff(part.starts) for part in parts]))))
        flat, lengths = (np.concatenate([getattr(part, name) for part in parts]) for name in ("flat", "lengths"))
        return cls(flat, starts, lengths)


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
    """Which texts have enough of their own to be compared, and (BANDS, those texts) keys."""
    size = len(found.lengths)
    distinct = ~common[found.flat >> np.uint32(32 - _TABLE)]
    owners = np.repeat(np.arange(size), np.diff(found.starts))[distinct]
    hashes = found.flat[distinct]
    counts = np.bincount(owners, minlength=size)
    items = np.flatnonzero((counts >= _DISTINCT) & (found.lengths >= FEWEST))
    keys = np.zeros((BANDS, size), dtype=np.uint32)
    nonempty = counts > 0
    starts = (np.cumsum(counts) - counts)[nonempty]
    for row in range(BANDS * DEPTH if len(items) else 0):
        least = np.minimum.reduceat((hashes ^ _XOR[row]) * _MULTIPLY[row], starts)
        key = (keys[row // DEPTH, nonempty] ^ least) * np.uint32(0x9E3779B1)
        keys[row // DEPTH, nonempty] = key ^ (key >> np.uint32(15))
    return items, keys[:, items]


class KeyTables:
    """Several tables of keys of the items that are held: two items that share a key in any table are candidates."""

    def __init__(self, items: Array, keys: Array) -> None:
        order = np.argsort(keys, axis=1, kind="stable")
        self.order = items[order].astype(np.uint32)
        self.sorted = np.take_along_axis(keys, order, axis=1)

    def candidates(self, items: Array, keys: Array, most: int, skip_crowded: bool = False) -> tuple[Array, Array]:
        """Held and asked items of each pair; of a key that more than `most` items share, the first of them or none."""
        pairs = []
        for ordered, order, wanted in zip(self.sorted, self.order, keys, strict=True):
            low = np.searchsorted(ordered, wanted, "left")
            counts = np.searchsorted(ordered, wanted, "right") - low
            counts[counts > most] = 0 if skip_crowded else most
            owner = np.repeat(items.astype(np.uint64), counts)
            within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
            held = order[np.repeat(low, counts) + within].astype(np.uint64)
            pairs.append((held << np.uint64(32)) | owner)
        unique = np.unique(np.concatenate(pairs))
        return (unique >> np.uint64(32)).astype(np.int64), (unique & np.uint64(0xFFFFFFFF)).astype(np.int64)


class TextIndex:
    """Texts that are held, to be asked with pieces of a stream."""

    def __init__(self, texts: Sketch, common: Array) -> None:
        self.texts, self.common = texts, common
        self.proven: set[int] = set()
        self.tables = KeyTables(*band_keys(texts, common))

    def matches(self, asked: Sketch, judge_held: bool) -> list[tuple[int, int, float]]:
        """(held, asked, similarity) of near-duplicates; one partner of each item of the side that is judged."""
        found = []
        done = self.proven if judge_held else set()
        for pair in zip(*self.tables.candidates(*band_keys(asked, self.common), _TEXT_PARTNERS), strict=True):
            held, other = map(int, pair)
            judged = held if judge_held else other
            if judged in done:
                continue
            a, b = self.texts.of(held), asked.of(other)
            # when one text was cut to its smallest hashes, only what lies below the cut can be compared
            ceiling = min(each[-1] if len(each) >= KEPT else np.uint32(0xFFFFFFFF) for each in (a, b))
            a, b = (each[: np.searchsorted(each, ceiling, "right")] for each in (a, b))
            short = min(self.texts.lengths[held], asked.lengths[other]) < SHORT
            bar, whole = SIMILAR_SHORT if short else SIMILAR, jaccard(a, b)
            if whole >= bar and jaccard(*(x[~self.common[x >> np.uint32(32 - _TABLE)]] for x in (a, b))) >= bar:
                done.add(judged)
                found.append((held, other, whole))
        return found


def jaccard(a: Array, b: Array) -> float:
    """Of two sorted sets."""
    both = len(np.intersect1d(a, b, assume_unique=True))
    return float(both / max(1, len(a) + len(b) - both))


# -- rows of numbers


GRIDS = 8
TOLERANCE = 0.05  # of a column's spread: noise of 1 % of it is found, rounding to a tenth of it too
_CELL = 0.4  # of a column's spread
_COLUMNS = 24  # of one grid
_MEASURED = 64  # columns that the surprise of a row is measured on
_CELL_PARTNERS = 32  # rows of one cell; a cell with more is no sign of a copy
_BATCH = 1 << 22  # numbers compared at once


@dataclass
class Scales:
    """Spread of each column, and sorted samples of it."""

    spread: Array
    samples: list[Array]
    grids: list[tuple[Array, Array]]  # columns, offsets

    @classmethod
    def of(cls, sample: Array, pairs: float) -> Scales:
        """`pairs`: rows times rows; a grid needs as many bits as it takes to tell them apart."""
        columns = [np.sort(column[np.isfinite(column)]) for column in sample.T]
        spreads, entropies = [], []
        for column in columns:
            low, high = np.quantile(column, (0.1, 0.9)) if len(column) else (0.0, 2.56)
            spreads.append(float((high - low) / 2.56) or float(column.std()) or 1.0)
            _, counts = np.unique(np.floor(column / (_CELL * spreads[-1])), return_counts=True)
            share = counts / max(1, counts.sum())
            entropies.append(float(-(share * np.log2(share)).sum()))
        entropy, wanted = np.array(entropies), float(np.log2(max(2.0, pairs))) + 4
        random, telling, grids = np.random.default_rng(7), np.flatnonzero(entropy > 0.01), []
        for _ in range(GRIDS):
            order = random.permutation(telling)
            enough = int(np.searchsorted(np.cumsum(entropy[order]), wanted)) + 1
            chosen = order[: max(enough, min(4, len(order)))][:_COLUMNS]
            grids.append((chosen, random.random(len(chosen))))
        return cls(np.array(spreads), columns, grids)

    def bits(self, rows: Array) -> Array:
        """Surprise of a row's neighbourhood."""
        chosen = np.arange(rows.shape[1])
        if rows.shape[1] > _MEASURED:
            chosen = np.random.default_rng(0).choice(rows.shape[1], _MEASURED, replace=False)
        total = np.zeros(len(rows))
        for c in chosen:
            total += within_bits(self.samples[c], rows[:, c], TOLERANCE * self.spread[c])
        return total.astype(np.float32)

    def keys(self, rows: Array, extra: Array) -> Array:
        """(GRIDS, rows): the cell that each row falls into."""
        keys = np.tile(extra, (GRIDS, 1))
        with np.errstate(invalid="ignore", over="ignore"):
            for key, (columns, offsets) in zip(keys, self.grids, strict=True):
                cells = np.floor(rows[:, columns] / (_CELL * self.spread[columns]) + offsets)
                cells = np.nan_to_num(cells, nan=-1e15, posinf=1e15, neginf=-1e15).clip(-1e15, 1e15)
                for column in cells.T:
                    key[:] = mix(key ^ column.astype(np.int64).view(np.uint64))
        return keys


class RowIndex:
    """Rows that are held; `extra` is the hash of their other columns, which must be equal."""

    def __init__(self, rows: Array, extra: Array, scales: Scales) -> None:
        self.rows, self.extra, self.scales = rows, extra, scales
        self.tables = KeyTables(np.arange(len(rows)), scales.keys(rows, extra))

    def matches(self, rows: Array, extra: Array) -> Iterator[tuple[int, int, float]]:
        """(held, asked, 1 - largest difference in spreads) of the pairs where every column agrees within tolerance."""
        keys = self.scales.keys(rows, extra)
        pairs = self.tables.candidates(np.arange(len(rows)), keys, _CELL_PARTNERS, skip_crowded=True)
        step = max(1, _BATCH // max(1, rows.shape[1]))
        for at in range(0, len(pairs[0]), step):
            held, asked = (side[at : at + step] for side in pairs)
            a, b = self.rows[held], rows[asked]
            with np.errstate(invalid="ignore"):
                apart = np.abs(a - b) / self.scales.spread
            apart[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
            worst = apart.max(axis=1, initial=0.0)
            good = (worst <= TOLERANCE) & (self.extra[held] == extra[asked])  # NaN is never within
            yield from zip(held[good].tolist(), asked[good].tolist(), (1 - worst[good]).tolist(), strict=True)


# -- pictures


SIDE = 64  # of the grey picture that is kept
FLAT = 4.0  # grey levels of standard deviation below which a picture shows nothing
_SMALL, _LOW = 32, 8
_NEAR = 14  # of 64 bits that may differ in a candidate
_COARSE = 0.85  # correlation of roughly aligned pictures, below which no finer alignment is tried
_ALIKE = 0.93  # correlation of the same picture
_FINE, _FINE_CROPPED = 0.85, 0.8  # of its fine structure; a crop is only roughly aligned
_FINE_SPARSE = 0.95  # of a picture with little structure: two digits, shifted and scaled, are soon the same
_SPARSE = 0.4  # share of flat pixels from which a picture has little, and its crops are not judged
_SAMPLE = 64  # pictures that are compared with others of their own split
_PICTURE_PARTNERS = 4  # candidates of one picture in one piece
_FLIPS = ((1, 1), (1, -1), (-1, 1))


Window = tuple[float, float, float, float]  # top, left, height, width in pixels of the kept picture


def _windows(shares: tuple[float, ...], places: int) -> list[Window]:
    """The whole picture first, then windows of these shares of its side."""
    found: list[Window] = [(0, 0, SIDE, SIDE)]
    for share in shares:
        starts = np.linspace(0, SIDE * (1 - share), places).tolist()
        found += [(y, x, SIDE * share, SIDE * share) for y in starts for x in starts]
    return found


def _weights(windows: list[Window]) -> tuple[Array, Array]:
    """Matrices so that rows @ picture @ columns are the windows, averaged down to _SMALL x _SMALL pixels."""
    top, left, height, width = np.array(windows)[:, :, None].transpose(1, 0, 2)
    pixels, made = np.arange(SIDE), []
    for start, size in ((top, height), (left, width)):
        edges = start + size * np.arange(_SMALL + 1) / _SMALL
        overlap = np.minimum(edges[:, 1:, None], pixels + 1) - np.maximum(edges[:, :-1, None], pixels)
        weights = np.clip(overlap, 0, None)
        made.append((weights / weights.sum(axis=2, keepdims=True)).astype(np.float32))
    return made[0], made[1].transpose(0, 2, 1)


_CROPS = _windows((0.92, 0.84), 3)
_FINE_CROPS = _windows((0.97, 0.94, 0.91, 0.88, 0.85, 0.82), 5)
_COARSE_WEIGHTS, _FINE_WEIGHTS = _weights(_CROPS), _weights(_FINE_CROPS)
_WEIGHTS_OF_WHOLE = _weights(_CROPS[:1])
_DCT = np.cos(np.pi / _SMALL * (np.arange(_SMALL) + 0.5) * np.arange(_LOW)[:, None])


def picture_hashes(pictures: Array, flips: tuple[tuple[int, int], ...]) -> Array:
    """(crops x flips, pictures) 64-bit hashes, the whole picture's first; a flip turns the sign of odd frequencies."""
    variants = []
    odd = 1 - 2 * (np.arange(_LOW) % 2)
    floats = pictures.astype(np.float32)
    for rows, columns in zip(*_COARSE_WEIGHTS, strict=True):
        low = (_DCT @ rows).astype(np.float32) @ floats @ (columns @ _DCT.T).astype(np.float32)
        for y, x in flips:
            turned = low * np.where(y < 0, odd, 1)[:, None] * np.where(x < 0, odd, 1)
            flat = turned.reshape(len(low), _LOW * _LOW)
            bits = flat > np.median(flat[:, 1:], axis=1, keepdims=True)
            variants.append(np.packbits(bits, axis=1).view(np.uint64).ravel())
    return np.stack(variants)


class PictureIndex:
    def __init__(self, pictures: Array) -> None:
        self.pictures = pictures
        self.hashes = picture_hashes(pictures, _FLIPS)
        # the correlation below which a match proves nothing: scans of one organ all look alike
        best = dict.fromkeys(range(min(_SAMPLE, len(pictures))), 0.0)
        for held, row, alike in self.matches(pictures[:_SAMPLE]):
            best[row] = max(best[row], alike if held != row else 0.0)
        usual = float(np.quantile(list(best.values()) or [0.0], 0.8))  # copies within a split are fewer than that
        self.bar = 1 - (1 - usual) / 2 if usual else 0.0

    def matches(self, pictures: Array) -> Iterator[tuple[int, int, float]]:
        """(held, asked, correlation) of the pairs that show the same picture."""
        hashes = picture_hashes(pictures, _FLIPS[:1])
        # least number of differing bits: crops of one against the whole of the other, both ways
        distance = np.full((len(pictures), len(self.pictures)), 64, dtype=np.uint8)
        for ours, theirs in ((self.hashes, hashes[:1]), (self.hashes[: len(_FLIPS)], hashes[1:])):
            for a, b in itertools.product(ours, theirs):
                np.minimum(distance, np.bitwise_count(b[:, None] ^ a[None, :]), out=distance)
        for row in np.flatnonzero((distance <= _NEAR).any(axis=1)).tolist():
            nearest = np.argsort(distance[row], kind="stable")[:_PICTURE_PARTNERS]
            for held in nearest[distance[row, nearest] <= _NEAR].tolist():
                alike = same_picture(self.pictures[held], pictures[row])
                if alike:
                    yield held, row, alike


def same_picture(a: Array, b: Array) -> float:
    """The correlation of the best alignment, or 0."""
    for y, x in _FLIPS:
        turned, other = a[::y, ::x].astype(np.float32), b.astype(np.float32)
        alike = _aligned(turned, other) or _aligned(other, turned)
        if alike:
            return alike
    return 0.0


def _aligned(picture: Array, target: Array) -> float:
    """Correlation of the best window of `picture` with the whole of `target`; 0 when they are not the same."""
    whole = _cut(target, _WEIGHTS_OF_WHOLE)[0]
    if _correlation(_cut(picture, _COARSE_WEIGHTS), whole).max() < _COARSE:
        return 0.0
    detail = _detail(whole)
    sparse = (np.abs(detail) < 1).mean() > _SPARSE
    crops = _cut(picture, _WEIGHTS_OF_WHOLE if sparse else _FINE_WEIGHTS)
    alike, agreement = _correlation(crops, whole), _correlation(_detail(crops), detail)
    if agreement[0] >= (_FINE_SPARSE if sparse else _FINE) and alike[0] >= _ALIKE:
        return float(alike[0])
    best = int(np.argmax(agreement))
    return float(alike[best]) if agreement[best] >= _FINE_CROPPED and alike[best] >= _ALIKE and not sparse else 0.0


def _cut(picture: Array, weights: tuple[Array, Array]) -> Array:
    return np.asarray(weights[0] @ picture @ weights[1])


def _correlation(many: Array, one: Array) -> Array:
    many = many - many.mean(axis=(1, 2), keepdims=True)
    one = one - one.mean()
    norm = np.sqrt((many**2).sum(axis=(1, 2)) * (one**2).sum())
    return np.asarray((many * one).sum(axis=(1, 2)) / np.maximum(norm, 1e-9))


def _detail(pictures: Array) -> Array:
    """What a blur of 5 x 5 takes away, without the border: a blur cut off there makes all pictures alike."""
    rows, columns = (size - 4 for size in pictures.shape[-2:])
    blur = sum(pictures[..., y : y + rows, x : x + columns] for y in range(5) for x in range(5)) / 25
    return np.asarray(pictures[..., 2:-2, 2:-2] - blur)
