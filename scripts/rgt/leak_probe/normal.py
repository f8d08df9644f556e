"""What counts as the same: text, numbers and cells brought to one form, their 64-bit hashes, and what chance explains.

Text: NFKC, casefold, runs of space as one, punctuation as space. Signs that carry meaning in code and arithmetic
(+ - * / = < > %) stay: "3 + 4" is not "3 - 4".

Leak or coincidence: a row (0, 1) is in every split and proves nothing; a row of eight measured numbers does. The
surprise of an item, in bits, is summed over its columns from how often each value occurs; columns are taken as
independent, so strongly correlated ones (city and zip code) make a row look rarer than it is. Items count as leaked
from the number of bits at which chance explains at most 1 % of the matches that were seen.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_PUNCTUATION = b".,;:!?\"'`()[]{}_\t\r\n\v\f"
# lower case, punctuation as space
_ASCII = bytes(0x20 if code in _PUNCTUATION else (code + 32 if 65 <= code <= 90 else code) for code in range(256))
_HYPHEN = re.compile(rb"(?<=[a-z\x80-\xff])-(?=[a-z\x80-\xff])")  # well-known; but not -5
_MISSING = {"", "na", "n/a", "nan", "null", "none"}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d*)?")
_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?")  # 1.234,5 in files whose fields are parted by semicolons
_EXACT_INTEGER = 2**53  # above it two integers share a float
_DEEP = 100  # levels of a nested JSON value

MISSING = np.uint64(0)  # the hash of a cell without a value


def text(value: str) -> bytes:
    """The normal form, as UTF-8. Bytes that were no UTF-8 are escaped, each in its own way."""
    if value.isascii():
        data = value.encode().translate(_ASCII)
    else:
        folded = unicodedata.normalize("NFKC", value).casefold()
        plain = "".join(" " if unicodedata.category(c)[0] in "PZ" and c not in "-*/%&@#\\" else c for c in folded)
        data = plain.encode("utf-8", "surrogatepass").translate(_ASCII)
    if b"-" in data:
        data = _HYPHEN.sub(b" ", data)
    return b" ".join(data.split())


def digest(data: bytes) -> int:
    """64 stable bits: a million items meet by chance once in thirty million times. Never 0, which means missing."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") or 1


def mix(values: Array) -> Array:
    """splitmix64: spreads 64 bits, so that sums of mixed values collide no more than random numbers do."""
    z = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)  # wraps around, as arrays do
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def number_hashes(values: Array) -> Array:
    """1, 1.0 and 1e0 are one number; -0 is 0; every NaN is a missing value."""
    floats = np.ascontiguousarray(values, dtype=np.float64) + 0.0
    hashes = mix(floats.view(np.uint64))
    hashes[np.isnan(floats)] = MISSING
    return hashes


def cells(values: list[Any] | Array) -> tuple[Array, Array]:
    """Hashes of a column's cells, and their numbers (NaN where a cell holds none)."""
    floats = values if isinstance(values, np.ndarray) else _all_numbers(values)
    if floats is not None:
        return number_hashes(floats), floats
    hashes = np.zeros(len(values), dtype=np.uint64)
    floats = np.full(len(values), np.nan)
    for index, value in enumerate(values):
        found = to_number(value)
        if found is None:
            words = cell_text(value)
            if not (len(words) <= 4 and words.lower() in _MISSING):  # "?" has no normal form: it stands for itself
                hashes[index] = digest(text(words) or words.encode("utf-8", "surrogatepass"))
        else:
            floats[index] = found
    numbers = ~np.isnan(floats)
    hashes[numbers] = number_hashes(floats[numbers])
    return hashes, floats


def _all_numbers(values: list[Any]) -> Array | None:
    """The fast way for a column of nothing but small numbers."""
    if not values or to_number(values[0]) is None or any(type(v) not in (str, float, int) for v in values):
        return None
    if isinstance(values[0], str) and not all(isinstance(v, str) and len(v) <= 40 for v in values):
        return None
    try:
        floats = np.array(values).astype(np.float64)
    except (ValueError, OverflowError, TypeError):
        return None
    return floats if not len(floats) or not np.nanmax(np.abs(floats), initial=0) >= _EXACT_INTEGER else None


def to_number(value: Any) -> float | None:
    """The number that a cell holds; None for text, truth values, and integers that a float cannot tell apart."""
    if isinstance(value, str):
        stripped = value.strip()
        if "," in stripped and len(stripped) <= 40 and _THOUSANDS.fullmatch(stripped):
            stripped = stripped.replace(",", "")
        if len(stripped) > 40 or not _NUMBER.fullmatch(stripped):
            return None
        found = float(stripped)
        return found if abs(found) < _EXACT_INTEGER else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < _EXACT_INTEGER else None


def point_for_comma(cell: str) -> str:
    return cell.replace(".", "").replace(",", ".") if "," in cell and _COMMA.fullmatch(cell.strip()) else cell


def cell_text(value: Any) -> str:
    """The words of a cell. Nested JSON (chat messages) gives the words inside, in order."""
    if isinstance(value, str):
        return value.strip()
    if value is None:
        return ""
    if isinstance(value, (list, dict)):
        return " ".join(_leaves(value, _DEEP))
    return str(value).lower()


def _leaves(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, (dict, list)):
        inside = [value[key] for key in sorted(value)] if isinstance(value, dict) else value
        for each in inside if depth else ():
            yield from _leaves(each, depth - 1)
    elif value is not None:
        yield str(int(value) if isinstance(value, float) and value.is_integer() else value)


def is_short(data: bytes) -> bool:
    """Few enough words to be written twice by chance ("thank you", "yes"); a Chinese character counts as a word."""
    characters = len(data.decode("utf-8", "replace"))
    wide = (len(data) - characters) // 2
    return characters < 20 and data.count(b" ") + 1 < 5 and wide < 8


# -- leak or coincidence


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


def bar(all_bits: Array, matched_bits: Array, others: int) -> float:
    """The bits from which a match is a leak.

    `all_bits` of every item of the split, `matched_bits` of those found in the other split of `others` items.
    """
    if not len(matched_bits):
        return 0.0
    ordered = np.sort(all_bits)[::-1]
    expected = np.cumsum(np.minimum(1.0, others * np.exp2(-ordered)))
    levels = np.unique(matched_bits)[::-1]
    matched = np.sort(matched_bits)[::-1]
    best = float("inf")
    for level in levels[:: max(1, len(levels) // 1000)]:  # a thousand bars are enough to choose from
        by_chance = float(expected[np.searchsorted(-ordered, -level, "right") - 1])
        if by_chance <= ALLOWED * np.searchsorted(-matched, -level, "right"):
            best = float(level)
    return best
