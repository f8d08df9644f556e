"""Leak or coincidence: how many test items would be in train by chance alone.

A row (0, 1) is in every split and proves nothing; a row of eight measured numbers does. The surprise of an item, in
bits, is summed over its columns from how often each value occurs; columns are taken as independent, so strongly
correlated ones (city and zip code) make a row look rarer than it is. Items count as leaked from the number of bits at
which chance explains at most 1 % of the matches that were seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from leakage.normal import Array

SURE = 64.0  # bits of a text, image or file: it does not come twice by chance
ALLOWED = 0.01  # share of the matches that chance may explain


@dataclass
class Frequencies:
    """How often each value of a column occurs in the sample."""

    values: Array
    counts: Array
    size: int
    rare_bits: float  # of a value that the sample holds once or not at all

    @classmethod
    def of(cls, hashes: Array) -> Frequencies:
        values, counts = np.unique(hashes, return_counts=True)
        size = max(1, len(hashes))
        rare = int(counts[counts <= 2].sum())
        met = int((counts == 2).sum())  # pairs of rare values that met
        chance = (rare / size) * (met + 1) / max(1.0, rare * (rare - 1) / 2) if rare else 1.0
        return cls(values, counts, size, max(0.0, -float(np.log2(min(1.0, chance)))))

    def bits(self, hashes: Array) -> Array:
        at = np.minimum(np.searchsorted(self.values, hashes), max(0, len(self.values) - 1))
        seen = np.where(self.values[at] == hashes, self.counts[at], 0) if len(self.values) else np.zeros(len(hashes))
        plain = -np.log2(np.minimum(1.0, (seen + 1) / (self.size + 1)))
        return np.where(seen <= 2, np.maximum(plain, self.rare_bits), plain)


def within_bits(sample: Array, values: Array, tolerance: float) -> Array:
    """Surprise of meeting a value within the tolerance; `sample` is sorted and without NaN."""
    if not len(sample):
        return np.zeros(len(values))
    near = np.searchsorted(sample, values + tolerance, "right") - np.searchsorted(sample, values - tolerance, "left")
    bits = -np.log2(np.minimum(1.0, (near + 1) / (len(sample) + 1)))
    return np.where(np.isnan(values), 0.0, bits)


def bar(all_bits: Array, matched_bits: Array, others: int) -> tuple[float, float]:
    """The bits from which a match is a leak, and how many matches chance would give at or above it.

    `all_bits` of every item of the split, `matched_bits` of those found in the other split of `others` items.
    """
    if not len(matched_bits):
        return 0.0, 0.0
    ordered = np.sort(all_bits)[::-1]
    expected = np.cumsum(np.minimum(1.0, others * np.exp2(-ordered)))
    levels = np.unique(matched_bits)[::-1]
    matched = np.sort(matched_bits)[::-1]
    best, least = float("inf"), 0.0
    for level in levels[:: max(1, len(levels) // 1000)]:  # a thousand bars are enough to choose from
        by_chance = float(expected[np.searchsorted(-ordered, -level, "right") - 1])
        if by_chance <= ALLOWED * np.searchsorted(-matched, -level, "right"):
            best, least = float(level), by_chance
    return best, least
