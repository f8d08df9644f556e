"""Finds the lines worth a regex: a log of gigabytes is a few hundred kinds of lines, repeated with other numbers.

Three sieves, each cheaper per byte than the next. A line whose words are known to be harmless costs a look into a set.
Of a new line only words that were never seen are looked at: does one hold the trigger of a signature? Only a line with
a trigger meets the other words of that signature, and only one that holds them all (or may be wrapped) its regex.

Each way through a signature has one trigger: its rarest word, or six letters of it. More signatures are more rows of a
table, not more passes over the text.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

# digits, and in UTF-8 what is not the first byte of a character, nor of one that draws a bar
_DELETED = b"0123456789.+-\xe2" + bytes(range(0x80, 0xC0)) + bytes(range(9)) + b"\x0b\x0c" + bytes(range(0x0E, 0x20))
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
_SPACED = bytes(
    code if code in _LETTERS or code > 127 or code == 10 else 10 if code == 13 else 32 for code in range(256)
)
_LINES = bytes.maketrans(b"\r", b"\n")  # every state of a progress bar is a line
_LENGTH = 6  # letters of a trigger; shorter words are triggers as they are
_SHORTEST = 3
_MOST = 200_000  # keys, and words, that are kept; a log of ever new ones starts anew
_TIRED = 500  # visits without an outcome to a line that only a wrap could make suspect: it is harmless
_LONG = 4000  # bytes of a key, at each end: a dumped tensor is not worth more
_LONG_WORD = 80  # letters of a word, at each end
# Numbers that are words: taken only as whole words ("m" is the end of a colour's code).
_NUMBERS = tuple(before + word for word in (b"nan", b"NaN", b"NAN", b"inf", b"Inf", b"INF") for before in (b"", b"m"))
# Words of healthy lines: a trigger only where a signature has no other.
_COMMON = frozenset(
    b"""loss Loss step Step iter epoch Epoch train Train eval valid test time Time rate learning norm grad model
    Model batch size INFO WARNING WARN DEBUG info warning Warning UserWarning data Data with from this that your have
    been will some which version default token tokens error Error ERROR Exception failed Failed torch Torch python
    line File file core site packages lib cuda CUDA device NCCL nccl rank Rank home user input output set using
    memory accuracy best metrics state load_state_dict total load save checkpoint""".split()
)


@dataclass
class Spot:
    """A kind of line that patterns may match: `sure` have all their words in it, `maybe` only if it was wrapped."""

    sure: frozenset[int]
    maybe: frozenset[int]
    visits: int = 0
    outcome: str = ""  # of the last visit; the scan knows the words


class Table:
    """Trigger -> (pattern, all words) of the ways that it stands for; patterns are named by their index."""

    def __init__(self, patterns: Iterable[list[list[str]]]) -> None:
        self.ways: dict[bytes, list[tuple[int, tuple[bytes, ...]]]] = {}
        for index, ways in enumerate(patterns):
            for way in ways:
                words = tuple(" ".join(way).encode().translate(_SPACED, _DELETED).split())
                if trigger := _trigger(words):
                    self.ways.setdefault(trigger, []).append((index, words))
        self.pieces = {trigger for trigger in self.ways if trigger not in _NUMBERS}  # that may be a part of a word
        self.heads = {trigger[:_SHORTEST] for trigger in self.pieces}
        self.lengths = sorted({len(trigger) for trigger in self.pieces})


@dataclass
class Prefilter:
    """One log's: what it has learned of the lines and words of this log."""

    table: Table
    harmless: set[bytes] = field(default_factory=set)
    suspect: dict[bytes, Spot] = field(default_factory=dict)
    words: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)  # every word seen -> triggers in it

    def candidates(self, block: bytes) -> tuple[dict[int, Spot], int]:
        """Start of line -> what may match there, in the order of the lines; and how many lines there are."""
        if len(self.harmless) + len(self.suspect) > _MOST:  # before any key is looked up: a known suspect stays one
            self.harmless.clear()
            self.suspect.clear()
        keys = block.translate(_SPACED, _DELETED).split(b"\n")
        fresh = set(keys) - self.harmless
        for key in fresh - self.suspect.keys():
            self._judge(key)
        suspects = {key: spot for key in fresh if (spot := self.suspect.get(key))}
        for key, spot in list(suspects.items()):
            if spot.visits > _TIRED and not spot.sure and not spot.outcome:  # it is not a part of a wrapped one
                self.harmless.add(key)
                del self.suspect[key], suspects[key]
        if not suspects:  # nearly always
            return {}, len(keys) - 1
        starts = itertools.accumulate((len(line) + 1 for line in block.translate(_LINES).split(b"\n")), initial=0)
        spots = {start: suspects[key] for start, key in zip(starts, keys, strict=False) if key in suspects}
        return spots, len(keys) - 1

    def _judge(self, key: bytes) -> None:
        """Sort a new line into harmless or suspect."""
        if len(self.words) > _MOST:
            self.words.clear()
        text = key if len(key) <= 2 * _LONG else key[:_LONG] + b" " + key[-_LONG:]
        triggers: set[bytes] = set()
        for word in text.split():
            hits = self.words.get(word)
            if hits is None:
                hits = self.words[word] = tuple(self._triggers(word))
            triggers.update(hits)
        ways = [way for trigger in triggers for way in self.table.ways[trigger]]
        counts = [(index, sum(word in text for word in words), len(words)) for index, words in ways]
        sure = frozenset(index for index, there, of in counts if there == of)
        maybe = frozenset(index for index, there, of in counts if there >= min(2, (of + 1) // 2)) - sure
        if sure or maybe:
            self.suspect[key] = Spot(sure, maybe)
        elif len(key) <= 2 * _LONG:
            self.harmless.add(key)

    def _triggers(self, word: bytes) -> Iterable[bytes]:
        if word in _NUMBERS:
            return [number for number in (word, word[1:]) if number in self.table.ways]
        if len(word) > 2 * _LONG_WORD:
            word = word[:_LONG_WORD] + b" " + word[-_LONG_WORD:]
        if self.table.heads.isdisjoint([word[at : at + _SHORTEST] for at in range(len(word) - _SHORTEST + 1)]):
            return ()
        pieces = {word[at : at + size] for size in self.table.lengths for at in range(len(word) - size + 1)}
        return pieces & self.table.pieces


def _trigger(words: tuple[bytes, ...]) -> bytes:
    """The rarest of the words; of a long one its last letters, for a signature may begin in the middle of a word."""
    rare = long = b""
    for word in words:  # twenty thousand times at each start: one pass
        if len(word) < _SHORTEST:
            continue
        if word in _NUMBERS:
            return word
        if word not in _COMMON:
            rare = word if len(word) > len(rare) else rare
        elif len(word) > len(long):
            long = word
    return (rare or long or max(words, key=len, default=b""))[-_LENGTH:]
