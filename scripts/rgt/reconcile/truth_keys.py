"""What the keys of a file of results say: a statistic, a metric, a split, a unit, or a name beside other names."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from rgt.metrics import table as names
from rgt.reconcile.facts import METRIC_GROUPS, UNITS, WORDS, canonical, key_words, known_words

VALUE, SPREAD, BOUNDS = (known_words("keys", name) for name in ("value", "spread", "bounds"))
AXES = {word: axis for axis in WORDS["axes"] for word in known_words("axes", axis)}
COSTS = frozenset(
    ["parameters", "memory", "latency", "throughput", "flops", "energy", "training time", "gpu hours", "speedup"]
)
SWEPT = re.compile(r"[\d.]+ ?%?")  # a key that is a number: a point of a sweep

# -- what a key says

_PER = re.compile(r"_?per_(?:s|sec|second)$")
_COST_WORDS = {"train": "training time", "training": "training time", "gpu": "gpu hours"}
_COST_WORDS |= {"inference": "latency", "infer": "latency"}


class Key(NamedTuple):
    stat: str  # value, spread, low, ...; empty when the key says nothing of it
    metric: str  # canonical; empty when it names none
    unit: str = ""
    split: str = ""
    base: str = ""  # what is left of a key that names a statistic of something unknown: tar_std


@functools.cache
def read_key(key: str) -> Key:
    """What was left out ("no attention") is no metric, whatever its name."""
    return Key("", "") if key_words(key).startswith("no ") else _read(key)


def _read(key: str) -> Key:
    """test_acc_std -> Key(spread, accuracy, "", test); latency_ms -> Key("", latency, ms); Cora -> Key("", "")"""
    low = key.lower()
    if low in VALUE or low in SPREAD or low in BOUNDS:
        return Key("value" if low in VALUE else "spread" if low in SPREAD else low, "")
    unit = "%" if "%" in key and not SWEPT.fullmatch(key) else ""
    if _PER.search(low):
        return Key("", "throughput")
    words = _words(key)
    if len(words) == 1 and re.fullmatch(r".+(?:标准差|均值|平均值)", key):
        words = [key[:-3], key[-3:]] if not key.endswith("均值") else [key[:-2], key[-2:]]
    stat = split = ""
    for _ in range(3):  # in any order at the end: acc_pct_std, acc_std_pct
        last = words[-1].lower() if len(words) > 1 else ""
        if not stat and last in VALUE | SPREAD | BOUNDS - {"best", "max", "min", "worst"}:
            stat = "value" if last in VALUE else "spread" if last in SPREAD else last
            words.pop()
        elif not unit and last in UNITS and _measures(words[:-1], last):
            unit = last
            words.pop()
    unit = unit or _inner_unit(words)
    low_words = [word.lower() for word in words]
    leads = len(words) == 2 or (len(words) > 1 and bool(metric_name(words[1:])))
    if leads and low_words[0] in VALUE | SPREAD - {"average", "score"} and not stat:
        stat = "value" if low_words.pop(0) in VALUE else "spread"
        words.pop(0)
    about_cost = {*low_words[1:]} <= {
        "time",
        "latency",
        "hours",
        "duration",
        "cost",
        "wall",
        "clock",
    }
    if low_words and low_words[0] in _COST_WORDS and about_cost and (len(words) > 1 or unit):
        return Key(stat, _COST_WORDS[low_words[0]], unit)
    for at in (0, -1):
        if len(words) > 1 and low_words[at] in names.SPLIT_WORDS and metric_name(words[1:] if at == 0 else words[:-1]):
            split = names.SPLIT_WORDS[low_words[at]]
            words.pop(at)
            low_words.pop(at)
            break
    metric = metric_name(words)
    if not metric and unit and unit != "%":
        metric = canonical(key_words(" ".join(words)))
    base = key_words(" ".join(words)) if (stat or unit) and not metric else ""
    return Key(stat, metric, unit, split, base)


def _inner_unit(words: list[str]) -> str:
    """score_ms_p95, infer_s_per_case"""
    inner = [word.lower() for word in words[1:]]
    for at, word in enumerate(inner):
        whole = len(word) > 1 or inner[at + 1 : at + 2] == ["per"]
        if whole and UNITS.get(word, ("",))[0] in ("time", "size", "energy"):
            return word
    return ""


def _words(key: str) -> list[str]:
    words = [word for word in re.split(r"[_\s/-]+|(?<=[a-z])(?=[A-Z][a-z0-9])|[()%]", key) if word]
    rate = "/".join(words[-2:])  # read_mb_s
    return [*words[:-2], rate] if rate.lower() in UNITS and len(words) > 2 else words


def _measures(words: list[str], unit: str) -> bool:
    """Is the last word of a key its unit? The s of ms_marco_s is none."""
    text = key_words(" ".join(words))
    known = canonical(text) in COSTS or words[0].lower() in _COST_WORDS or "time" in text or bool(metric_name(words))
    return known or (len(unit) > 1 and unit not in ("min", "db"))


MORE_WORDS = frozenset(
    "macro micro weighted mean avg top score box mask test val dev eval word token n num number of".split()
)


def metric_name(words: list[str]) -> str:
    """The canonical name of a metric that the table knows, with what tells it from others of its kind: ndcg 10."""
    text = key_words(" ".join(words))
    bare = re.sub(r"^(?:n|num|number of) (?=params?|parameters)| at(?= \d)", "", text)
    if bare in METRIC_GROUPS:
        return canonical(bare)
    if known_core(bare):
        return bare
    left = [word for word in bare.split() if word not in MORE_WORDS]
    return bare if left and len(left) < 4 and left[-1] in _HEADS else ""


def known_core(text: str) -> bool:
    """Without what only tells one of a kind: macro f 1, recall 20, ap 50"""
    for core in (text, re.sub(r" \d+(?: \d+)?$", "", text)):
        left = " ".join(word for word in core.split() if word not in MORE_WORDS)
        if left in METRIC_GROUPS or left.replace(" ", "") in METRIC_GROUPS:
            return True
    return False


# unknown metrics often end like this
_HEADS = frozenset(
    "accuracy acc f1 score error loss rate auc auroc recall precision latency memory throughput time".split()
)


# -- axes: which names stand in for each other


class Axes:
    def __init__(self) -> None:
        self.parent: dict[str, str] = {}

    def root(self, node: str) -> str:
        while self.parent.setdefault(node, node) != node:
            node = self.parent[node]
        return node

    def name(self, text: str, axis: str) -> None:
        """The text lies on a named axis; the first name it gets stays."""
        root = self.root(key_words(text))
        if not root.startswith("@"):
            self.parent[root] = self.root(f"@{axis}")

    def join(self, texts: list[str]) -> None:
        roots = [self.root(key_words(text)) for text in texts]
        named = next((root for root in roots if root.startswith("@")), roots[0] if roots else "")
        for root in roots:
            if not root.startswith("@"):
                self.parent[root] = named
