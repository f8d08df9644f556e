"""Near-duplicate rows of numbers: the same row after rounding or a little noise.

Eight grids with random offsets, each over some of the columns; rows that share a cell are compared column by column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leakage.chance import within_bits
from leakage.normal import Array, mix
from leakage.shingles import join_ranges

GRIDS = 8
TOLERANCE = 0.05  # of a column's spread: noise of 1 % of it is found, rounding to a tenth of it too
_CELL = 0.4  # of a column's spread
_COLUMNS = 24  # of one grid
_MEASURED = 64  # columns that the surprise of a row is measured on
_PARTNERS = 32  # rows of one cell; a cell with more is no sign of a copy
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
        spread = np.array([_spread(column) for column in columns])
        return cls(spread, columns, list(_grids(columns, spread, float(np.log2(max(2.0, pairs))) + 4)))

    def bits(self, rows: Array) -> Array:
        """Surprise of a row's neighbourhood."""
        chosen = np.arange(rows.shape[1])
        if rows.shape[1] > _MEASURED:
            chosen = np.random.default_rng(0).choice(rows.shape[1], _MEASURED, replace=False)
        total = np.zeros(len(rows))
        for c in chosen:
            total += within_bits(self.samples[c], rows[:, c], TOLERANCE * self.spread[c])
        return total

    def keys(self, rows: Array, grid: int, extra: Array) -> Array:
        columns, offsets = self.grids[grid]
        with np.errstate(invalid="ignore", over="ignore"):
            cells = np.floor(rows[:, columns] / (_CELL * self.spread[columns]) + offsets)
            cells = np.nan_to_num(cells, nan=-1e15, posinf=1e15, neginf=-1e15).clip(-1e15, 1e15)
            key = extra.copy()
            for column in range(len(columns)):
                key = mix(key ^ cells[:, column].astype(np.int64).view(np.uint64))
        return np.asarray(key)


def _spread(column: Array) -> float:
    if not len(column):
        return 1.0
    low, high = np.quantile(column, (0.1, 0.9))
    return float((high - low) / 2.56) or float(column.std()) or 1.0


def _grids(columns: list[Array], spread: Array, wanted: float) -> list[tuple[Array, Array]]:
    random = np.random.default_rng(7)
    entropy = np.array([_entropy(column, _CELL * wide) for column, wide in zip(columns, spread, strict=True)])
    telling = np.flatnonzero(entropy > 0.01)
    grids = []
    for _ in range(GRIDS):
        order = random.permutation(telling)
        enough = int(np.searchsorted(np.cumsum(entropy[order]), wanted)) + 1
        chosen = order[: max(enough, min(4, len(order)))][:_COLUMNS]
        grids.append((chosen, random.random(len(chosen))))
    return grids


def _entropy(column: Array, cell: float) -> float:
    _, counts = np.unique(np.floor(column / cell), return_counts=True)
    share = counts / max(1, counts.sum())
    return float(-(share * np.log2(share)).sum())


class RowIndex:
    """Rows that are held; `extra` is the hash of their other columns, which must be equal."""

    def __init__(self, rows: Array, extra: Array, scales: Scales) -> None:
        self.rows, self.extra, self.scales = rows, extra, scales
        keys = [scales.keys(rows, grid, extra) for grid in range(GRIDS)]
        self.order = [np.argsort(key, kind="stable") for key in keys]
        self.sorted = [key[order] for key, order in zip(keys, self.order, strict=True)]

    def matches(self, rows: Array, extra: Array) -> list[tuple[int, int, float]]:
        """(held, asked, 1 - largest difference in spreads) of the pairs where every column agrees within tolerance."""
        found: list[Array] = []
        for grid in range(GRIDS):
            keys = self.scales.keys(rows, grid, extra)
            low = np.searchsorted(self.sorted[grid], keys, "left")
            counts = np.searchsorted(self.sorted[grid], keys, "right") - low
            hit = np.flatnonzero((counts > 0) & (counts <= _PARTNERS))
            found.append(join_ranges(self.order[grid], hit, low[hit], counts[hit]))
        pairs = np.unique(np.concatenate(found))
        step = max(1, _BATCH // max(1, rows.shape[1]))
        parts = [self._agreeing(pairs[at : at + step], rows, extra) for at in range(0, len(pairs), step)]
        return [match for part in parts for match in part]

    def _agreeing(self, pairs: Array, rows: Array, extra: Array) -> list[tuple[int, int, float]]:
        held, asked = (pairs >> np.uint64(32)).astype(np.int64), (pairs & np.uint64(0xFFFFFFFF)).astype(np.int64)
        a, b = self.rows[held], rows[asked]
        with np.errstate(invalid="ignore"):
            apart = np.abs(a - b) / self.scales.spread
        apart[(a == b) | (np.isnan(a) & np.isnan(b))] = 0.0
        worst = apart.max(axis=1, initial=0.0)
        good = (worst <= TOLERANCE) & (self.extra[held] == extra[asked])  # NaN is never within
        return [(int(h), int(o), 1 - float(w)) for h, o, w in zip(held[good], asked[good], worst[good], strict=True)]
