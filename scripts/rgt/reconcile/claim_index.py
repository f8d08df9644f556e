"""The claims of EVIDENCE.json, found by the words of a text: CIFAR10 for CIFAR-10, acc for accuracy, 准确率 too.

A text is looked through once, whatever the number of claims: its words are looked up in one table.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from rgt.evidence.claims import Claim
from rgt.metrics import table as names

DIMENSIONS = ("metric", "method", "dataset", "split")

# letters, digits, and single Chinese characters: so that spelling with or without spaces, hyphens and case is one
_TOKEN = re.compile(r"[\u3400-\u9fff]|[^\W\d_\u3400-\u9fff]+|\d+")

# one word for another, on both sides; "eval" is no split here: in prose it often means the test set
_SAME = {
    **{word: split for word, split in names.SPLIT_WORDS.items() if word not in ("eval", split)},
    **{word: metric.name for word in "acc accuracies ppl losses err prec rec".split() if (metric := names.known(word))},
    **dict(pair.split("=") for pair in "params=parameters baselines=baseline sec=s seconds=s hours=h".split()),
}
# several ways to say one method; those to say a metric or a split are in rgt.metrics.table
_METHODS = (
    "ours, our method, our model, our approach, our network, proposed, proposed method, proposed model, 本文方法, "
    "我们的方法, 所提方法, 本文, 我们的模型",
    "baseline, the baseline, 基线, 基线模型, 基准方法, 基线方法",
)
_EXTENDED = re.compile(r"\s?(?:\+|w/o?\b|without\b|with\b(?=\s+[A-Z])|[-/](?=[A-Za-z0-9]))")
_REMEMBERED = 10_000  # texts: labels of rows and columns come again


class Hit(NamedTuple):
    dimension: str
    value: str  # as the claim writes it, lower case
    start: int
    end: int


Hits = dict[str, list[Hit]]  # by dimension


def tokens(text: str) -> list[tuple[str, int]]:
    """Each word as it is compared, and where it starts."""
    return [(_SAME.get(word := match[0].lower(), word), match.start()) for match in _TOKEN.finditer(text)]


def words(text: str) -> tuple[str, ...]:
    return tuple(word for word, _ in tokens(text))


def by_dimension(hits: list[Hit]) -> Hits:
    result: Hits = {}
    for hit in hits:
        result.setdefault(hit.dimension, []).append(hit)
    return result


def extended(text: str, hit: Hit) -> bool:
    """ "Ours + CutMix" and "Ours-L" are other methods than "Ours"."""
    return _EXTENDED.match(text, hit.end) is not None


Entry = tuple[tuple[str, ...], list[tuple[str, str]]]  # the words, and what they may mean: (dimension, value)


def _vocabulary(claims: list[Claim], aliases: dict[str, list[str]]) -> dict[str, list[Entry]]:
    """Every term of every claim, by its first word as texts may write it, longest first.

    `aliases`: other words for a name, as EVIDENCE.json gives them.
    """
    named = {(name, claim[name].lower()) for claim in claims for name in DIMENSIONS if claim.get(name)}
    own = {(dimension, words(value)): value for dimension, value in named}
    splits = [[word for word in group if word != "eval"] for group in names.SPLITS.values()]
    groups = [*(metric.spellings for metric in names.METRICS), *splits, *(text.split(", ") for text in _METHODS)]
    others: dict[tuple[str, ...], set[tuple[str, ...]]] = {}  # every way to say a metric, method or split
    for group in groups:
        spellings = {words(name) for name in group}
        for spelling in spellings:
            others.setdefault(spelling, set()).update(spellings)
    for name, more in aliases.items():
        others.setdefault(words(name), set()).update(map(words, more))
    meanings: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for dimension, value in sorted(named):
        self = words(value)
        for spelling in {self} | others.get(self, set()):
            if spelling and own.get((dimension, spelling), value) == value:  # another claim's own name is no alias
                meanings.setdefault(spelling, []).append((dimension, value))
    by_first: dict[str, list[Entry]] = {}
    for spelling, meant in meanings.items():
        for written in (spelling[0], *(other for other, same in _SAME.items() if same == spelling[0])):
            by_first.setdefault(written, []).append((spelling, meant))
    for entries in by_first.values():
        entries.sort(key=lambda entry: -len(entry[0]))
    return by_first


Key = tuple[str, str | None, str | None, str | None]  # metric, method, dataset, split


@dataclass
class Evidence:
    """The claims, by every combination of terms that a text may give."""

    claims: list[Claim]
    aliases: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.by_id = {claim["id"]: claim for claim in self.claims}
        self.by_first = _vocabulary(self.claims, self.aliases)
        self.find = functools.lru_cache(_REMEMBERED)(self._look)
        self.measures = frozenset(str(claim["unit"]).lower() for claim in self.claims if claim.get("unit"))
        self.units = self.measures.union(*(words(claim["metric"]) for claim in self.claims))
        self.by_key: dict[Key, list[Claim]] = {}
        for claim in self.claims:
            own = [claim[name].lower() if claim.get(name) else None for name in DIMENSIONS[1:]]
            for given in product(*({value, None} for value in own)):
                self.by_key.setdefault((claim["metric"].lower(), *given), []).append(claim)
        self.distinguishes = {name for name in DIMENSIONS[1:] if any(claim.get(name) for claim in self.claims)}

    def _look(self, text: str) -> list[Hit]:
        """The terms in `text`, left to right; of two that overlap the longer one counts."""
        low = text.lower()
        if len(low) != len(text):  # a few letters grow; then case is kept, so that places stay places
            low = text
        hits: list[Hit] = []
        end = 0
        for match in self.first_words.finditer(low):
            if match.start() < end:
                continue
            for spelling, meant in self.by_first[match[0]]:
                at = match.end()
                for word in spelling[1:]:
                    token = _TOKEN.search(low, at)
                    if not token or _SAME.get(token[0], token[0]) != word:
                        break
                    at = token.end()
                else:
                    end = at
                    hits += [Hit(dimension, value, match.start(), end) for dimension, value in meant]
                    break
        return hits

    @functools.cached_property
    def first_words(self) -> re.Pattern[str]:
        """Finds where a term may start: a first word, whole as _TOKEN would cut it."""
        kinds: dict[str, list[str]] = {}
        for word in sorted(self.by_first, key=len, reverse=True):
            chinese = "\u3400" <= word[0] <= "\u9fff"
            letter = r"\d" if word.isdigit() else "(?!)" if chinese else r"[^\W\d_\u3400-\u9fff]"
            kinds.setdefault(letter, []).append(re.escape(word))
        alternatives = (rf"(?<!{letter})(?:{'|'.join(group)})(?!{letter})" for letter, group in kinds.items())
        return re.compile("|".join(sorted(alternatives)) or "(?!)")

    def lookup(self, metric: str, method: str | None, dataset: str | None, split: str | None) -> list[Claim]:
        """The claims that fit. One that leaves a term open fits every text that names one."""
        exact = self.by_key.get((metric, method, dataset, split))
        if exact:
            return exact
        for given in dict.fromkeys(product((method, None), (dataset, None), (split, None))):  # the most terms first
            pairs = zip(DIMENSIONS[1:], (method, dataset, split), given, strict=True)
            dropped = [name for name, term, kept in pairs if term and not kept]
            fitting = self.by_key.get((metric, *given), [])
            open_ones = [claim for claim in fitting if not any(map(claim.get, dropped))]
            if open_ones:
                return open_ones
        return []


class Surroundings:
    """What the texts around a number name, nearest first: for the terms that its own sentence or row leaves out."""

    def __init__(self, evidence: Evidence, where: str, texts: tuple[str, ...]) -> None:
        self.evidence, self.where, self.texts = evidence, where, texts
        self.nearest: Hits = {}  # of earlier sentences, or of a row that heads others

    @functools.cached_property
    def farther(self) -> list[Hits]:
        return [by_dimension(self.evidence.find(text)) for text in self.texts if text]

    def only(self, dimension: str) -> str | None:
        """The term of the nearest text that has any, if it is one."""
        hits = self.nearest.get(dimension) or next((h[dimension] for h in self.farther if dimension in h), [])
        values = {hit.value for hit in hits}
        return values.pop() if len(values) == 1 else None
