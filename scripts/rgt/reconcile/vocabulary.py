"""The names of the facts, found in a text: CIFAR10 for CIFAR-10, acc for accuracy, 准确率, "our method".

A text is looked through once, whatever the number of facts. Sets of facts are whole numbers, one bit each.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

from rgt.metrics import table as names
from rgt.reconcile.facts import METRIC_GROUPS, UNITS, Fact, Truth, canonical, key_words, known_words

_OUR_WORDS = (
    "ours, our method, our model, our approach, our network, our system, the proposed method, proposed method, "
    "proposed model, proposed approach, the proposed model, 本文方法, 我们的方法, 所提方法, 我们的模型, "
    "本方法, 本文模型"
)
_METHOD_WORDS = (
    "full, full model, full method, full system, complete model, complete method, all components, default, "
    "完整模型, 完整方法, 完整, 全部组件, 全模型",
    "baseline, the baseline, baselines, baseline model, 基线, 基线模型, 基准方法, 基线方法, 基准模型",
)
_SAME = {
    **dict.fromkeys("without removing remove removed dropping disabling minus".split(), "no"),
    "w": "with",
    "losses": "loss",
    "accuracies": "accuracy",
    "seconds": "s",
    **{word: split for word, split in names.SPLIT_WORDS.items() if word not in ("eval", split, "training", "testing")},
}
_TOKEN = re.compile(r"[\u3400-\u9fff]|[^\W\d_\u3400-\u9fff]+|\d+")
# metrics no fact has: words of every day among them say nothing
_PLAIN_WORDS = known_words("texts", "plain_metrics")
_NO_SPLIT = frozenset(["eval", "training", "testing"])  # in prose they are mostly what one does
_REMEMBERED = 10_000  # texts: labels of rows and columns come again
_ARTICLES = frozenset(["the", "a", "an", "our", "its"])  # "removing the gate" is "no gate"
_LEFT_OUT = re.compile("去掉|移除|去除")  # as long as "no"
_FAR = 60  # characters between the words of one name: the next word, not one of another sentence


Part = tuple[str, object]
Entry = tuple[tuple[str, ...], list[tuple[str, str]]]  # the words, and what they may mean: axis and term
Add = Callable[[tuple[str, ...], str, str], None]


class Hit(NamedTuple):
    axis: str
    term: str
    start: int
    end: int


def words(text: str) -> tuple[str, ...]:
    return tuple(_SAME.get(word, word) for word in key_words(text).split())


def _stems(text: str) -> set[str]:
    return {
        word.rstrip("s") if len(word) > 3 else word
        for word in key_words(text).split()
        if len(word) > 1 or word > "\u3000"
    }


_SPREAD_WORD = re.compile(rf"(?<![^\W_])(?:{'|'.join(sorted(known_words('keys', 'spread')))}|ci\d*)(?![^\W_])")
_VALUE_WORD = re.compile(rf"(?<![^\W_])(?:{'|'.join(sorted(known_words('keys', 'value')))})(?![^\W_])")


def _without_statistic(name: str) -> str:
    """ "acc_std/fox" and "acc_mean/fox" as "acc/fox" """
    text = _VALUE_WORD.sub("", _SPREAD_WORD.sub("", name))
    return "/".join(filter(None, (re.sub(r"[\W_]+", " ", part).strip() for part in text.split("/"))))


_CHOSEN = _stems(" ".join(known_words("keys", "chosen")))


def _whole(text: str, start: int, end: int) -> bool:
    before, behind = text[start - 1 : start], text[end : end + 2]
    if before.isascii() and before.isalnum() and text[start] < "\u3000":
        return False
    if behind[:1] == "_" and behind[1:].isalnum():
        return False  # the AP_S of small objects is no AP
    glued = behind[:1].isascii() and behind[:1].isalnum() and text[end - 1] < "\u3000"
    return not glued or (behind[0] == "s" and not behind[1:].isalnum())


class Vocabulary:
    def __init__(self, truth: Truth) -> None:
        self.truth, self.facts, self.aliases = truth, truth.facts, truth.aliases
        facts = self.facts
        self.by_id = {fact.id: fact for fact in (*facts, *truth.others)}
        self.having: dict[str, int] = {}  # axis -> facts on it
        self.named: dict[tuple[str, str], int] = {}  # axis and term -> facts
        for place, fact in enumerate(facts):
            fact.bit = 1 << place
            for axis, term in fact.terms.items():
                self.having[axis] = self.having.get(axis, 0) | fact.bit
                self.named[axis, term] = self.named.get((axis, term), 0) | fact.bit
        shares = [fact for fact in facts if fact.share]
        large = Counter(fact.terms.get("metric") for fact in shares if 2 < abs(fact.value) <= 100)
        small = Counter(fact.terms.get("metric") for fact in shares if 0 < abs(fact.value) <= 1)
        in_percent = {metric for metric, count in large.items() if count >= small[metric]}
        for fact in facts:  # an error rate of 1.4 beside one of 12.5 is a percentage, too
            if fact.share and not fact.unit and fact.terms.get("metric") in in_percent:
                fact.unit = "%"
        self._pair_spreads()
        self.rare = self._rare()
        self.axes_of: dict[str, set[str]] = {}  # metric -> axes that its facts have
        for fact in facts:
            self.axes_of.setdefault(fact.terms.get("metric", ""), set()).update(fact.terms)
        self.every = (1 << len(facts)) - 1
        self.axes = {axis: [term for at, term in self.named if at == axis] for axis in self.having}
        self.units = frozenset(fact.unit for fact in facts if fact.unit)
        self.counted = any(UNITS.get(unit, ("",))[0] == "count" for unit in self.units)
        self.negative = any(fact.value < 0 for fact in facts)
        self.counts = {fact.n for fact in facts if fact.n}
        self._by_size = sorted(facts, key=lambda fact: abs(fact.value))
        self._sizes = [abs(fact.value) for fact in self._by_size]
        self.by_first = self._spellings()
        self.find = functools.lru_cache(_REMEMBERED)(self._look)

    def _pair_spreads(self) -> None:
        """A value without a spread gets the std or ci that has its id but for this word, or is a key beside it."""
        beside: dict[str, float] = {}
        for name, fact in self.by_id.items():
            if _SPREAD_WORD.search(name) and fact.value >= 0:
                beside.setdefault(_without_statistic(name), fact.value)
        for name, fact in self.by_id.items() if beside else ():
            if fact.spread is None and not _SPREAD_WORD.search(name):
                own = beside.get(_without_statistic(name))
                fact.spread = beside.pop(name.rpartition("/")[0], None) if own is None else own

    def _rare(self) -> dict[str, int]:
        """Axes that only a few facts of a metric have (a class, a point of a sweep): a text must name them."""
        rare: dict[str, int] = {}
        of_metric: dict[str, list[Fact]] = {}
        for fact in self.facts:
            of_metric.setdefault(fact.terms.get("metric", ""), []).append(fact)
        for facts in of_metric.values():
            counts = Counter(axis for fact in facts for axis in fact.terms)
            for fact in facts:
                for axis in fact.terms:
                    if axis in ("statistic", "sweep", "point") or (
                        counts[axis] < 0.4 * len(facts) and axis not in ("metric", "split")
                    ):
                        rare[axis] = rare.get(axis, 0) | fact.bit
        return rare

    def plausible(self, terms: dict[str, frozenset[str]]) -> int:
        """The facts that fit, without those of a rare kind that nothing names."""
        left = self.fitting(terms)
        for axis, facts in self.rare.items():
            if axis not in terms:
                left &= ~facts
        return left

    def _spellings(self) -> dict[str, list[Entry]]:
        """Every way to write every name, by its first word, longest first."""
        meanings: dict[tuple[str, ...], list[tuple[str, str]]] = {}
        own = {(axis, words(term)) for axis, term in self.named}

        def add(spelling: tuple[str, ...], axis: str, term: str) -> None:
            if not any(word.isalpha() for word in spelling):
                return  # a name of digits would be found in every number
            if spelling == words(term) or (axis, spelling) not in own:
                meant = meanings.setdefault(spelling, [])
                meant += [(axis, term)] if (axis, term) not in meant else []

        for axis, term in self.named:
            for spelling in self._ways(axis, term):
                add(spelling, axis, term)
        self._shorter_metrics(add)
        others = [
            (name, "metric", canonical(name))
            for name in METRIC_GROUPS
            if name not in _PLAIN_WORDS and canonical(name) not in _PLAIN_WORDS
        ]
        others += [
            (name, "split", split) for split, group in names.SPLITS.items() for name in group if name not in _NO_SPLIT
        ]
        known = set(meanings)
        for name, axis, term in others:  # a metric that no fact has: its number is none of ours
            if words(name) not in known:
                add(words(name), axis, term)
        by_first: dict[str, list[Entry]] = {}
        for spelling, meant in meanings.items():
            for written in (spelling[0], *(other for other, same in _SAME.items() if same == spelling[0])):
                by_first.setdefault(written, []).append((spelling, meant))
        for entries in by_first.values():
            entries.sort(key=lambda entry: -len(entry[0]))
        return by_first

    def _ways(self, axis: str, term: str) -> Iterator[tuple[str, ...]]:
        """How one name is written: itself, its synonyms, its aliases."""
        itself = words(term)
        yield itself
        if len(itself) == 2 and itself[1].isdigit() and len(itself[0]) > 3:
            yield itself[::-1]  # 10 clients for clients_10
        if axis == "metric":
            yield from (words(name) for name in METRIC_GROUPS.get(term, ()))
        elif axis == "split":
            yield from (words(name) for name in names.SPLITS.get(term, ()) if name not in _NO_SPLIT)
        for text in (*_METHOD_WORDS, _OUR_WORDS):
            group = [words(name) for name in text.split(", ")]
            own = text == _OUR_WORDS and term == self.truth.ours
            yield from group if own or itself in group else ()
        for name, more in self.aliases.items():
            yield from map(words, more) if words(name) == itself else ()

    def _shorter_metrics(self, add: Add) -> None:
        """ "latency" for "p50 latency", as long as no other metric of a fact may be meant."""
        short: dict[str, set[str]] = {}
        for term in self.axes.get("metric", []):
            parts = term.split()
            for start in range(len(parts)):
                for end in range(start + 1, len(parts) + 1):
                    piece = " ".join(parts[start:end])
                    if piece in METRIC_GROUPS and piece != term:
                        short.setdefault(canonical(piece), set()).add(term)
            cut = {
                group[0]
                for name, group in METRIC_GROUPS.items()
                if term not in METRIC_GROUPS and len(term) > 2 and name.startswith(term)
            }
            for whole in cut if len(cut) == 1 else ():
                short.setdefault(whole, set()).add(term)  # sens for sensitivity
        for first, second in (("training time", "gpu hours"), ("gpu hours", "training time")):
            if ("metric", first) not in self.named and ("metric", second) in self.named:
                short.setdefault(first, set()).add(second)
        for piece, terms in short.items():
            if len(terms) == 1 and ("metric", piece) not in self.named:
                for name in METRIC_GROUPS[piece]:
                    add(words(name), "metric", min(terms))

    def _look(self, text: str) -> tuple[Hit, ...]:
        """The names in `text`, left to right; of two that overlap the longer one counts."""
        low = _LEFT_OUT.sub("no", text.lower()).replace("w/o", "no ").replace("hyper-param", "hyperxparam")
        if len(low) != len(text):  # a few letters grow; then case is kept, so that places stay places
            low = text
        hits: list[Hit] = []
        end = 0
        for match in _TOKEN.finditer(low):
            entries = self.by_first.get(match[0])
            if not entries or match.start() < end:
                continue
            for spelling, meant in entries:
                at = match.end()
                for word in spelling[1:]:
                    token = _TOKEN.search(low, at, at + _FAR)
                    while token and token[0] in _ARTICLES and token[0] != word:
                        token = _TOKEN.search(low, token.end(), token.end() + _FAR)
                    if not token or _SAME.get(token[0], token[0]) != word or "." in low[at : token.start()].strip(". "):
                        break
                    at = token.end()
                else:
                    if not _whole(low, match.start(), at):
                        continue  # the Rec of BERT4Rec
                    end = at
                    hits += [Hit(axis, term, match.start(), end) for axis, term in meant]
                    break
        return tuple(hits)

    @functools.cached_property
    def parts(self) -> dict[int, frozenset[Part]]:
        """What each fact is made of: its terms, and the keys of its path."""
        keys = {fact.bit: re.sub(r"#\d+|'+$", "", fact.id).split("/") for fact in self.facts}
        return {
            fact.bit: frozenset(
                [*fact.terms.items(), ("axes", frozenset(fact.terms)), *(("/", key) for key in keys[fact.bit])]
            )
            for fact in self.facts
        }

    @functools.cached_property
    def having_part(self) -> dict[Part, int]:
        having: dict[Part, int] = {}
        for bit, parts in self.parts.items():
            for part in parts:
                having[part] = having.get(part, 0) | bit
        return having

    @functools.cached_property
    def settings(self) -> dict[str, Fact]:
        """By id: what no result is, and results that are named like a setting (n-shot)."""
        chosen = (fact for fact in self.facts if _stems(fact.id) & _CHOSEN)
        return {fact.id: fact for fact in (*(one for one in self.truth.others if "setting" in one.terms), *chosen)}

    @functools.cached_property
    def _with_word(self) -> dict[str, list[str]]:
        having: dict[str, list[str]] = {}
        for name in {**self.settings, **{fact.id: fact for fact in self.truth.others}}:
            for word in _stems(name):
                having.setdefault(word, []).append(name)
        return having

    def others(self, text: str, settings: bool = False) -> list[Fact]:
        """The settings and counts that share most words with a text; unless only these, also single runs, by two."""
        shared = Counter(name for word in _stems(text) for name in self._with_word.get(word, ()))
        known = {name: n for name, n in shared.items() if name in self.settings or (n > 1 and not settings)}
        most = max(known.values(), default=0)
        return [self.by_id[name] for name, count in known.items() if count == most]

    # -- sets of facts

    def fitting(self, terms: dict[str, frozenset[str]]) -> int:
        """The facts that no term speaks against: on each axis one of its terms, or not on the axis at all."""
        left = self.every
        for axis, given in terms.items():
            named = 0
            for term in given:
                named |= self.named.get((axis, term), 0)
            left &= named | ~self.having.get(axis, 0)
        return left

    def members(self, chosen: int) -> Iterator[Fact]:
        while chosen:
            lowest = chosen & -chosen
            yield self.facts[lowest.bit_length() - 1]
            chosen ^= lowest

    def near(self, value: float, slack: float) -> Iterator[Fact]:
        """Facts whose size is within `slack` of a value's."""
        size = abs(value)
        at = bisect_left(self._sizes, size - slack)
        while at < len(self._sizes) and self._sizes[at] <= size + slack:
            yield self._by_size[at]
            at += 1
