"""Near-duplicate images: a DCT hash of a small grey picture, flipped and cropped, then the pictures themselves.

Hashes only propose. A pair counts when one picture, flipped or cropped by up to a fifth, correlates with the other
both as it is and in its fine structure: two photographs of one class agree in the first, not in the second.
"""

from __future__ import annotations

import numpy as np

from leakage.normal import Array

SIDE = 64  # of the grey picture that is kept
FLAT = 4.0  # grey levels of standard deviation below which a picture shows nothing
_SMALL, _LOW = 32, 8
_NEAR = 14  # of 64 bits that may differ in a candidate
_COARSE = 0.85  # correlation of roughly aligned pictures, below which no finer alignment is tried
_ALIKE, _FINE = 0.93, 0.6  # correlation of the pictures, and of their fine structure
_PARTNERS = 8  # candidates of one picture in one piece
_FLIPS = ((1, 1), (1, -1), (-1, 1))


def _resize(start: float, size: float) -> Array:
    """(_SMALL, SIDE) weights that average a window of a row of pixels down."""
    edges = start + size * np.arange(_SMALL + 1) / _SMALL
    pixels = np.arange(SIDE)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    weights = np.clip(overlap, 0, None)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _windows(shares: tuple[float, ...], places: int) -> list[tuple[Array, Array]]:
    """(rows, columns) of the whole picture first, then of windows of these shares of its side."""
    found = [(_resize(0, SIDE), _resize(0, SIDE))]
    for share in shares:
        size = SIDE * share
        starts = np.linspace(0, SIDE - size, places)
        found += [(_resize(y, size), _resize(x, size)) for y in starts for x in starts]
    return found


_CROPS = _windows((0.92, 0.84), 3)
_FINE_CROPS = _windows((0.97, 0.94, 0.91, 0.88, 0.85, 0.82), 5)
_DCT = np.cos(np.pi / _SMALL * (np.arange(_SMALL) + 0.5) * np.arange(_LOW)[:, None])
_COARSE_ROWS = np.stack([rows for rows, _ in _CROPS])
_COARSE_COLUMNS = np.stack([columns.T for _, columns in _CROPS])
_ROWS = np.stack([rows for rows, _ in _FINE_CROPS])
_COLUMNS = np.stack([columns for _, columns in _FINE_CROPS])


def hashes(pictures: Array, crops: bool, flips: bool) -> Array:
    """(variants, pictures) 64-bit hashes; a flip only turns the sign of odd frequencies."""
    variants = []
    odd = 1 - 2 * (np.arange(_LOW) % 2)
    floats = pictures.astype(np.float32)
    for rows, columns in _CROPS if crops else _CROPS[:1]:
        low = (_DCT @ rows).astype(np.float32) @ floats @ (_DCT @ columns).astype(np.float32).T
        for y, x in _FLIPS if flips else _FLIPS[:1]:
            turned = low * np.where(y < 0, odd, 1)[:, None] * np.where(x < 0, odd, 1)
            flat = turned.reshape(len(low), -1)
            bits = flat > np.median(flat[:, 1:], axis=1, keepdims=True)
            variants.append(np.packbits(bits, axis=1).view(np.uint64).ravel())
    return np.stack(variants)


class PictureIndex:
    def __init__(self, pictures: Array, usable: Array) -> None:
        self.pictures = pictures
        self.items = np.flatnonzero(usable)
        held = pictures[self.items]
        self.whole = hashes(held, crops=False, flips=True) if len(held) else np.zeros((1, 0), np.uint64)
        self.cropped = hashes(held, crops=True, flips=True) if len(held) else np.zeros((1, 0), np.uint64)

    def matches(self, pictures: Array, usable: Array) -> list[tuple[int, int, float]]:
        """(held, asked, correlation) of the pairs that show the same picture."""
        asked = np.flatnonzero(usable)
        if not len(asked) or not len(self.items):
            return []
        distance = self._distances(hashes(pictures[asked], crops=True, flips=False))
        found = []
        for row in np.flatnonzero((distance <= _NEAR).any(axis=1)):
            for column in np.argsort(distance[row], kind="stable")[:_PARTNERS]:
                if distance[row, column] > _NEAR:
                    break
                held, other = int(self.items[column]), int(asked[row])
                alike = same_picture(self.pictures[held], pictures[other])
                if alike:
                    found.append((held, other, alike))
        return found

    def _distances(self, asked: Array) -> Array:
        """(asked, held) least number of differing bits: crops of one against the whole of the other, both ways."""
        least = np.full((asked.shape[1], len(self.items)), 64, dtype=np.uint8)
        for ours, theirs in ((self.cropped, asked[:1]), (self.whole, asked[1:])):
            for a in ours:
                for b in theirs:
                    np.minimum(least, np.bitwise_count(b[:, None] ^ a[None, :]), out=least)
        return least


def same_picture(a: Array, b: Array) -> float:
    """The correlation of the best alignment, or 0."""
    best = 0.0
    for y, x in _FLIPS:
        turned = a[::y, ::x].astype(np.float64)
        for one, other in ((turned, b.astype(np.float64)), (b.astype(np.float64), turned)):
            whole = _ROWS[0] @ other @ _COLUMNS[0].T
            if _correlation(_COARSE_ROWS @ one @ _COARSE_COLUMNS, whole).max() < _COARSE:
                continue
            crops = _ROWS @ one @ _COLUMNS.transpose(0, 2, 1)
            alike = _correlation(crops, whole)
            good = alike >= _ALIKE
            if good.any() and (_correlation(_detail(crops[good]), _detail(whole)) >= _FINE).any():
                best = max(best, float(alike.max()))
        if best:
            break
    return best


def _correlation(many: Array, one: Array) -> Array:
    many = many - many.mean(axis=(1, 2), keepdims=True)
    one = one - one.mean()
    norm = np.sqrt((many**2).sum(axis=(1, 2)) * (one**2).sum())
    return np.asarray((many * one).sum(axis=(1, 2)) / np.maximum(norm, 1e-9))


def _detail(pictures: Array) -> Array:
    """What a blur of 5 x 5 takes away."""
    wide = np.pad(pictures, [(0, 0)] * (pictures.ndim - 2) + [(2, 2), (2, 2)], mode="edge")
    rows, columns = pictures.shape[-2:]
    blur = sum(wide[..., y : y + rows, x : x + columns] for y in range(5) for x in range(5)) / 25
    return np.asarray(pictures - blur)
