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
_ALIKE = 0.93  # correlation of the same picture
_FINE, _FINE_CROPPED = 0.85, 0.9  # of its fine structure; a crop may be fitted, so more is asked of it
_FINE_SPARSE = 0.95  # of a picture with little structure: two digits, shifted and scaled, are soon the same
_SPARSE = 0.4  # share of flat pixels from which a picture has little, and its crops are not judged
_WORTH = 0.75  # of the fine structure, from which a fit is tried
_PARTNERS = 4  # candidates of one picture in one piece
_FLIPS = ((1, 1), (1, -1), (-1, 1))


def _resize(start: float, size: float) -> Array:
    """(_SMALL, SIDE) weights that average a window of a row of pixels down."""
    edges = start + size * np.arange(_SMALL + 1) / _SMALL
    pixels = np.arange(SIDE)
    overlap = np.minimum(edges[1:, None], pixels + 1) - np.maximum(edges[:-1, None], pixels)
    weights = np.clip(overlap, 0, None)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


Window = tuple[float, float, float, float]  # top, left, height, width in pixels of the kept picture
_WHOLE: Window = (0, 0, SIDE, SIDE)


def _windows(shares: tuple[float, ...], places: int) -> list[Window]:
    """The whole picture first, then windows of these shares of its side."""
    found = [_WHOLE]
    for share in shares:
        starts = np.linspace(0, SIDE * (1 - share), places).tolist()
        found += [(y, x, SIDE * share, SIDE * share) for y in starts for x in starts]
    return found


def _weights(windows: list[Window]) -> tuple[Array, Array]:
    """Matrices so that rows @ picture @ columns are the windows, made small."""
    rows = np.stack([_resize(y, height) for y, _, height, _ in windows])
    columns = np.stack([_resize(x, width).T for _, x, _, width in windows])
    return rows.astype(np.float32), columns.astype(np.float32)


_CROPS = _windows((0.92, 0.84), 3)
_FINE_CROPS = _windows((0.97, 0.94, 0.91, 0.88, 0.85, 0.82), 5)
_COARSE_WEIGHTS, _FINE_WEIGHTS = _weights(_CROPS), _weights(_FINE_CROPS)
_WEIGHTS_OF_WHOLE = _weights([_WHOLE])
_DCT = np.cos(np.pi / _SMALL * (np.arange(_SMALL) + 0.5) * np.arange(_LOW)[:, None])


def hashes(pictures: Array, crops: bool, flips: bool) -> Array:
    """(variants, pictures) 64-bit hashes; a flip only turns the sign of odd frequencies."""
    variants = []
    odd = 1 - 2 * (np.arange(_LOW) % 2)
    floats = pictures.astype(np.float32)
    for rows, columns in list(zip(*_COARSE_WEIGHTS, strict=True))[: None if crops else 1]:
        low = (_DCT @ rows).astype(np.float32) @ floats @ (columns @ _DCT.T).astype(np.float32)
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
    sparse = (np.abs(_detail(whole)) < 1).mean() > _SPARSE
    crops = _cut(picture, _WEIGHTS_OF_WHOLE if sparse else _FINE_WEIGHTS)
    alike, fine = _correlation(crops, whole), _correlation(_detail(crops), _detail(whole))
    if fine[0] >= (_FINE_SPARSE if sparse else _FINE) and alike[0] >= _ALIKE:
        return float(alike[0])
    best = int(np.argmax(fine))
    if sparse or fine[best] < _WORTH:
        return 0.0
    fitted, rough = _fit(picture, whole, _FINE_CROPS[best], float(fine[best]))
    return rough if fitted >= _FINE_CROPPED and rough >= _ALIKE else 0.0


def _fit(picture: Array, whole: Array, window: Window, fine: float) -> tuple[float, float]:
    """Moves the edges of the window as long as the fine structure agrees better; its correlation, and the plain one."""
    for step in (1.0, 0.5, 0.25):
        for _ in range(3):
            moves = [_moved(window, edge, sign * step) for edge in range(4) for sign in (-1, 1)]
            found = _correlation(_detail(_cut(picture, _weights(moves))), _detail(whole))
            best = int(np.argmax(found))
            if found[best] <= fine:
                break
            window, fine = moves[best], float(found[best])
    return fine, float(_correlation(_cut(picture, _weights([window])), whole)[0])


def _moved(window: Window, edge: int, by: float) -> Window:
    moved = list(window)
    moved[edge] += by
    height, width = min(moved[2], SIDE), min(moved[3], SIDE)
    top, left = (min(max(0.0, moved[axis]), SIDE - size) for axis, size in ((0, height), (1, width)))
    return top, left, height, width


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
