"""Finds the lines worth a regex: a log of gigabytes is a few hundred kinds of lines, repeated with other numbers.

Without its digits a line is a key. A key that lacks the literal words of every signature (regexes.words) is harmless,
and so are all lines that share it: one set lookup each. What a new key holds is searched with a few fragments that
stand for all signatures.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import re
from collections import defaultdict
from dataclasses import dataclass, field

from diagnosis import regexes

_NUMERIC = b"0123456789.+-"
_LINES = bytes.maketrans(b"\r", b"\n")  # every state of a progress bar is a line
_LENGTHS = (5, 7, 12)  # of a fragment: short ones are shared by many signatures
_EDGE = re.compile(rb"[^A-Za-z]+|(?<=[a-z])(?=[A-Z])")  # fragments start where a word does
_MOST = 200_000  # keys kept; a log of ever new lines starts anew
_LONG = 4000  # bytes of a key: a dumped tensor is not worth more

Way = tuple[int, tuple[bytes, ...]]  # a pattern and the words that a line must hold for it
Plan = dict[bytes, tuple[Way, ...]]  # fragment -> the ways that it stands for


@dataclass
class Prefilter:
    patterns: tuple[str, ...]
    harmless: set[bytes] = field(default_factory=set)
    suspect: dict[bytes, frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.plan = _plan(self.patterns)

    def candidates(self, block: bytes, often: set[int]) -> dict[int, frozenset[int]]:
        """Start of line -> patterns that may match there; of patterns seen `often` only the first and the last line."""
        keys = block.translate(_LINES, _NUMERIC).split(b"\n")
        fresh = set(keys).difference(self.harmless)
        new = [key for key in fresh if key not in self.suspect]
        if new:
            self._learn(new)
        suspects = {key: owners for key in fresh if (owners := self.suspect.get(key))}
        if not suspects:
            return {}
        starts = itertools.accumulate((len(line) + 1 for line in block.translate(_LINES).split(b"\n")), initial=0)
        spots = {start: suspects[key] for start, key in zip(starts, keys, strict=False) if key in suspects}
        return _thinned(spots, often) if often else spots

    def _learn(self, new: list[bytes]) -> None:
        if len(self.harmless) + len(self.suspect) > _MOST:
            self.harmless.clear()
            self.suspect.clear()
        together = b"\n".join(new)
        present = [(fragment, ways) for fragment, ways in self.plan.items() if fragment in together]
        for key in new:
            owners = frozenset(_owners(key[:_LONG], present)) if present else frozenset()
            if owners:
                self.suspect[key] = owners
            else:
                self.harmless.add(key)


def _owners(key: bytes, present: list[tuple[bytes, tuple[Way, ...]]]) -> set[int]:
    return {
        pattern
        for fragment, ways in present
        if fragment in key
        for pattern, words in ways
        if all(word in key for word in words)
    }


def _thinned(spots: dict[int, frozenset[int]], often: set[int]) -> dict[int, frozenset[int]]:
    known = [start for start, owners in spots.items() if owners <= often]
    kept = set(known[:1] + known[-1:])
    return {start: owners for start, owners in spots.items() if not owners <= often or start in kept}


@functools.lru_cache(maxsize=4)
def _plan(patterns: tuple[str, ...]) -> Plan:
    """Greedy: the fragment that stands for most ways which are left, until all are covered."""
    ways = [(index, _words(way)) for index, text in enumerate(patterns) for way in regexes.words(text)]
    holders: dict[bytes, list[int]] = defaultdict(list)
    for number, (_, words) in enumerate(ways):
        for fragment in _fragments(words):
            holders[fragment].append(number)
    # what a fragment covers only shrinks: an old count is an upper bound, and is looked at again when its turn comes
    heap = [(-len(numbers), -len(fragment), fragment) for fragment, numbers in holders.items()]
    heapq.heapify(heap)
    left = set(range(len(ways)))
    plan: Plan = {}
    while left:
        _, _, best = heapq.heappop(heap)
        covered = [number for number in holders[best] if number in left]
        if heap and covered and -len(covered) > heap[0][0]:
            heapq.heappush(heap, (-len(covered), -len(best), best))
        elif covered:
            plan[best] = tuple(ways[number] for number in covered)
            left.difference_update(covered)
    return plan


def _words(way: regexes.Way) -> tuple[bytes, ...]:
    """As they stand in a key: without digits. Part of a run is enough to be sure that it is missing."""
    return tuple(word for run in way if (word := run.encode().translate(None, _NUMERIC)))


def _fragments(words: tuple[bytes, ...]) -> set[bytes]:
    found: set[bytes] = set()
    for word in words:
        starts = [0, *(match.end() for match in _EDGE.finditer(word))]
        for length in _LENGTHS:
            found.update(word[start : start + length] for start in starts if start + length <= len(word))
    return found or {max(words, key=len)}
