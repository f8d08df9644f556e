"""A file of results (any nested JSON, YAML or CSV) as facts.

    {"ours": {"cifar10": {"acc_mean": 0.914, "acc_std": 0.003}}, "seeds": 5}
        Fact("ours/cifar10/acc", 0.914, terms {method: ours, dataset: cifar 10, metric: accuracy}, spread 0.003, n 5)

Each number is a leaf: the keys above it and the strings of its record. A key is a statistic, a metric, a split, a point
of a sweep, a part of the file that names nothing, or a name; names beside each other share an axis.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rgt.errors import bad_input
from rgt.metrics import table as names
from rgt.reconcile.facts import (
    FULL_NAMES,
    METRIC_GROUPS,
    UNITS,
    WORDS,
    Fact,
    Truth,
    canonical,
    is_share,
    key_words,
    known_metric,
    known_words,
    unit_name,
)
from rgt.reconcile.passages import text_of

_VALUE, _SPREAD, _BOUNDS = (known_words("keys", name) for name in ("value", "spread", "bounds"))
_COUNT, _LISTS, _ONE_RUN = (known_words("keys", name) for name in ("count", "lists", "one_run"))
_AXES = {word: axis for axis in WORDS["axes"] for word in known_words("axes", axis)}
_SETTINGS, _WRAPPERS, _SILENT = (known_words("keys", name) for name in ("settings", "wrappers", "silent"))
_OWN, _REMOVED = known_words("keys", "own"), known_words("keys", "removed")
_NAME_FIELDS = ("name", "id", "label", "key", "type")
_COSTS = frozenset(
    ["parameters", "memory", "latency", "throughput", "flops", "energy", "training time", "gpu hours", "speedup"]
)
_SWEPT = re.compile(r"[\d.]+ ?%?")  # a key that is a number: a point of a sweep
_LONGEST_NAME = 60  # characters
_DEEPEST, _MOST = 40, 20_000  # levels and values: beyond, a file is no summary of results


def from_file(path: Path) -> Truth:
    """Every number of a file of results."""
    if not path.exists():
        raise bad_input(f"{path} does not exist; --values takes a JSON, YAML or CSV file of results")
    text, suffix = text_of(path), path.suffix.lower()
    try:
        if suffix in (".csv", ".tsv"):
            delimiter = "\t" if suffix == ".tsv" else max(",;\t", key=text.split("\n", 1)[0].count)
            rows = csv.DictReader(io.StringIO(text), delimiter=delimiter)
            data: Any = [
                {str(key).strip(): cell.strip() for key, cell in row.items() if key and isinstance(cell, str)}
                for row in rows
            ]
        elif suffix in (".yaml", ".yml"):
            import yaml

            data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        elif suffix == ".jsonl":
            data = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            data = json.loads(text)
        data = _nested(_plain_tree(data))
    except (ValueError, RecursionError, csv.Error) as error:
        raise bad_input(f"{path} cannot be read as {suffix[1:] or 'JSON'}: {str(error)[:120]}") from None
    except Exception as error:  # yaml's own errors share no built-in class
        raise bad_input(f"{path} cannot be read as YAML: {' '.join(str(error).split())[:120]}") from None
    reader = _Leaves()
    reader.walk(_named_lists(data, {}, reader.axes), (), {}, None, 0)
    truth = reader.truth()
    if not truth.facts:
        raise bad_input(f"{path} holds no result; --values takes a file of results")
    return truth


# -- shapes of files, brought to one: dicts in dicts, and lists of records

_WITH_SPREAD = re.compile(r"(-?\d[\d.,]*)\s?%?\s?(?:±|\+/-|\+-|\()\s?(\d[\d.,]*)\s?\)?\s?(%?)")
_SHEETS = (("columns", "data"), ("headers", "rows"), ("header", "rows"), ("columns", "rows"), ("fields", "values"))


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", "").rstrip("% "))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _plain_tree(node: Any) -> Any:
    """Numbers written as text as numbers, and a sheet (columns beside rows of values) as records."""
    if isinstance(node, list):
        return [_plain_tree(item) for item in node]
    if isinstance(node, str):
        spread = _WITH_SPREAD.fullmatch(node.strip())
        if spread and None not in (numbers := [_number(spread[1]), _number(spread[2])]):
            return dict(zip(("mean", "std"), numbers, strict=True))
        plain = re.fullmatch(r"\s*[-+]?\d[\d,]*(?:\.\d+)?(?:[eE][-+]?\d+)?\s*%?\s*", node)
        return _number(node) if plain and _number(node) is not None else node
    if not isinstance(node, dict):
        return node
    for head, body in _SHEETS:
        columns, rows = node.get(head), node.get(body)
        if isinstance(columns, list) and isinstance(rows, list) and all(isinstance(row, list) for row in rows):
            index = node.get("index", [])
            titles = index if len(index) == len(rows) and all(isinstance(name, str) for name in index) else []
            records = [_plain_tree(dict(zip(map(str, columns), row, strict=False))) for row in rows]
            rest = {key: _plain_tree(value) for key, value in node.items() if key not in (head, body, "index")}
            return {**rest, body: dict(zip(titles, records, strict=True)) if titles else records}
    return {str(key): _plain_tree(value) for key, value in node.items() if value != ""}


def _nested(node: Any) -> Any:
    """{"a/b/mean": 1} as {"a": {"b": {"mean": 1}}}"""
    if isinstance(node, list):
        return [_nested(item) for item in node]
    if not isinstance(node, dict):
        return node
    made: dict[str, Any] = {}
    keys = [str(key) for key, value in node.items() if _is_number(value) or isinstance(value, list)]
    sign = "/"
    for other in ("::", "|", ".", "__"):  # what all of the keys have equally often
        counts = {key.count(other) for key in keys}
        if len(keys) > 3 and len(counts) == 1 and 0 not in counts and not any(key.endswith(other) for key in keys):
            sign = other
    for key, value in node.items():
        parts = str(key).split(sign)  # w/o augmentation stays one
        whole = len(parts) < 2 or not all(len(part) > 1 and part.strip() == part for part in parts)
        *above, last = [str(key)] if whole else parts
        inner = made
        for part in above:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                return node
        inner[last] = _nested(value)
    return made


def _named_lists(node: Any, lists: dict[int, list[list[str]]], axes: _Axes) -> Any:
    """{"datasets": ["a", "b"], "acc": [1, 2]} as {"acc": {"a": 1, "b": 2}}, a matrix likewise.

    `lists` are the lists of names above, by length; two of one length leave open which is meant: nothing is done then.
    """
    if isinstance(node, list):
        return [_named_lists(item, lists, axes) for item in node]
    if not isinstance(node, dict):
        return node
    several = {key: value for key, value in node.items() if isinstance(value, list) and len(value) > 1}
    words = {key: value for key, value in several.items() if all(isinstance(item, str) for item in value)}
    for key, value in words.items():
        if _AXES.get(key.lower(), "unit") != "unit":
            for name in value:
                axes.name(name, _AXES[key.lower()])
    lengths = {len(value): [other for other in words.values() if len(other) == len(value)] for value in words.values()}
    lists = {**lists, **lengths}

    def named(value: list[Any], used: list[list[str]]) -> dict[str, Any] | None:
        fitting = [one for one in lists.get(len(value), []) if one not in used and len(set(one)) == len(one)]
        if len(fitting) == 1 and all(map(_is_number, value)):
            return dict(zip(fitting[0], value, strict=True))
        if len(fitting) != 1 or not all(isinstance(item, list) for item in value):
            return None
        inner = [named(item, [*used, fitting[0]]) for item in value]
        return dict(zip(fitting[0], inner, strict=True)) if None not in inner else None

    made: dict[str, Any] = {}
    for key, value in node.items():
        column = key in several and key.lower() not in _LISTS | _COUNT | _ONE_RUN
        made[key] = (column and named(value, [])) or _named_lists(value, lists, axes)
    return made


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


def _read_key(key: str) -> Key:
    """test_acc_std -> Key(spread, accuracy, "", test); latency_ms -> Key("", latency, ms); Cora -> Key("", "")"""
    low = key.lower()
    if low in _VALUE or low in _SPREAD or low in _BOUNDS:
        return Key("value" if low in _VALUE else "spread" if low in _SPREAD else low, "")
    unit = "%" if "%" in key and not _SWEPT.fullmatch(key) else ""
    if _PER.search(low):
        return Key("", "throughput")
    words = _words(key)
    if len(words) == 1 and re.fullmatch(r".+(?:标准差|均值|平均值)", key):
        words = [key[:-3], key[-3:]] if not key.endswith("均值") else [key[:-2], key[-2:]]
    stat = split = ""
    for _ in range(3):  # in any order at the end: acc_pct_std, acc_std_pct
        last = words[-1].lower() if len(words) > 1 else ""
        if not stat and last in _VALUE | _SPREAD | _BOUNDS - {"best", "max", "min", "worst"}:
            stat = "value" if last in _VALUE else "spread" if last in _SPREAD else last
            words.pop()
        elif not unit and last in UNITS and _measures(words[:-1], last):
            unit = last
            words.pop()
    low_words = [word.lower() for word in words]
    leads = len(words) == 2 or (len(words) > 1 and bool(_metric_name(words[1:])))
    if leads and low_words[0] in _VALUE | _SPREAD - {"average", "score"} and not stat:
        stat = "value" if low_words.pop(0) in _VALUE else "spread"
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
        if len(words) > 1 and low_words[at] in names.SPLIT_WORDS and _metric_name(words[1:] if at == 0 else words[:-1]):
            split = names.SPLIT_WORDS[low_words[at]]
            words.pop(at)
            low_words.pop(at)
            break
    metric = _metric_name(words)
    if not metric and unit and unit != "%":
        metric = canonical(key_words(" ".join(words)))
    base = key_words(" ".join(words)) if (stat or unit) and not metric else ""
    return Key(stat, metric, unit, split, base)


def _words(key: str) -> list[str]:
    words = [word for word in re.split(r"[_\s/-]+|(?<=[a-z])(?=[A-Z][a-z0-9])|[()%]", key) if word]
    rate = "/".join(words[-2:])  # read_mb_s
    return [*words[:-2], rate] if rate.lower() in UNITS and len(words) > 2 else words


def _measures(words: list[str], unit: str) -> bool:
    """Is the last word of a key its unit? The s of ms_marco_s is none."""
    text = key_words(" ".join(words))
    known = canonical(text) in _COSTS or words[0].lower() in _COST_WORDS or "time" in text or bool(_metric_name(words))
    return known or (len(unit) > 1 and unit not in ("min", "db"))


_MORE_WORDS = frozenset(
    "macro micro weighted mean avg top score box mask test val dev eval word token n num number of".split()
)


def _metric_name(words: list[str]) -> str:
    """The canonical name of a metric that the table knows, with what tells it from others of its kind: ndcg 10."""
    text = key_words(" ".join(words))
    bare = re.sub(r"^(?:n|num|number of) (?=params?|parameters)| at(?= \d)", "", text)
    if bare in METRIC_GROUPS:
        return canonical(bare)
    if _known_core(bare):
        return bare
    left = [word for word in bare.split() if word not in _MORE_WORDS]
    return bare if left and len(left) < 4 and left[-1] in _HEADS else ""


def _known_core(text: str) -> bool:
    """Without what only tells one of a kind: macro f 1, recall 20, ap 50"""
    for core in (text, re.sub(r" \d+(?: \d+)?$", "", text)):
        left = " ".join(word for word in core.split() if word not in _MORE_WORDS)
        if left in METRIC_GROUPS or left.replace(" ", "") in METRIC_GROUPS:
            return True
    return False


# unknown metrics often end like this
_HEADS = frozenset(
    "accuracy acc f1 score error loss rate auc auroc recall precision latency memory throughput time".split()
)


# -- axes: which names stand in for each other


class _Axes:
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


@dataclass
class _Leaf:
    path: tuple[str, ...]  # keys from the root
    labels: dict[str, str]  # what strings beside it say
    values: tuple[float, ...]
    n: int | None


@dataclass
class _Leaves:
    """Gathers the numbers of a tree with the keys and strings above them."""

    leaves: list[_Leaf] = field(default_factory=list)
    ours: list[str] = field(default_factory=list)
    default_n: int | None = None
    n_of: dict[str, int] = field(default_factory=dict)  # name of a dataset or method -> runs
    axes: _Axes = field(default_factory=_Axes)
    blocks: set[str] = field(default_factory=set)  # parts of the file, such as per_class beside results
    metrics: set[str] = field(default_factory=set)  # unknown ones, beside known ones
    _groups: dict[tuple[str, ...], set[tuple[str, ...]]] = field(default_factory=dict)  # names -> paths above them

    def walk(self, node: Any, path: tuple[str, ...], labels: dict[str, str], n: int | None, depth: int) -> None:
        if depth > _DEEPEST or len(self.leaves) > _MOST:
            raise bad_input("the file of values is too deep or too large for a summary of results")
        if isinstance(node, list):
            for item in node:
                self.walk(item, path, labels, n, depth + 1)
            return
        if not isinstance(node, dict):
            return
        above = path[-1].lower() if path else ""
        labels = {**labels, **self._labels(node, depth, above)}
        for key in filter(lambda key: key.lower() in _COUNT, node):
            n = _count(node[key]) or n
            each = node[key].items() if isinstance(node[key], dict) else ()
            self.n_of |= {key_words(str(name)): count for name, value in each if (count := _count(value))}
        if above in _SETTINGS:
            self.default_n = n or self.default_n
            return  # settings are no results
        self._siblings(node, path)
        for key, value in node.items():
            low = key.lower()
            numbers = value if isinstance(value, list) and value and all(map(_is_number, value)) else []
            if _is_number(value) or numbers:
                own = tuple(map(float, numbers)) if numbers else (float(value),)
                counts = low in _COUNT and (len(own) == 1 or all(one == int(one) for one in own))
                if low not in _ONE_RUN and not counts:  # those are inherited by what stands beside them
                    self.leaves.append(_Leaf((*path, key), labels, own, n))
            elif not (low in _COUNT and isinstance(value, dict) and all(map(_count, value.values()))):
                self.walk(value, (*path, key), labels, n, depth + 1)

    def _labels(self, node: dict[str, Any], depth: int, above: str) -> dict[str, str]:
        """The short strings of one record, by the axis they name."""
        labels: dict[str, str] = {}
        fields = [key for key in _NAME_FIELDS if isinstance(node.get(key), str)]
        listed = _AXES.get(above, "")  # an entry of "metrics": [{"type": ..., "value": ...}]
        title = ("type" if listed == "metric" and "type" in fields else fields[0]) if fields else ""
        for key, text in node.items():
            name = key.lower()
            if isinstance(text, dict) and name in _AXES:  # "dataset": {"name": "SST-2", "type": "glue"}
                text = next((text[each] for each in _NAME_FIELDS if isinstance(text.get(each), str)), None)
            if name in _OWN and isinstance(text, str):
                self.ours.append(text)
            elif name in _OWN and text is True:
                self.ours += [str(node[each]) for each in ("name", "model", "method") if each in node]
            elif name in _ONE_RUN and not isinstance(text, dict | list):
                labels["seed"] = str(text)
            elif isinstance(text, str) and 0 < len(text) <= _LONGEST_NAME and name not in _SILENT:
                named = key in _NAME_FIELDS
                if named and (key != title or not depth):
                    continue
                if named and above in _OWN:
                    self.ours.append(text)
                axis = (listed or "method") if named else _AXES.get(name, name)
                if axis != "dataset" or name != "task" or (depth and not _names_dataset(node)):
                    removed = name in _REMOVED and key_words(text) not in FULL_NAMES
                    labels[axis] = f"no {text}" if removed else text
                    self.axes.name(labels[axis], axis)
        return labels

    def _plain(self, key: str) -> bool:
        low = key.lower()
        return low in _WRAPPERS or low in _AXES or low in _SETTINGS or low in _OWN or low in names.SPLIT_WORDS

    def _siblings(self, node: dict[str, Any], path: tuple[str, ...]) -> None:
        """Names beside each other share an axis; parts of a file (size, speed) have nothing in common inside."""
        every = [key for key in node if not self._plain(key) or _is_number(node[key])]
        every = [key for key in every if key.lower() not in _COUNT | _LISTS | _SILENT]
        read = {key: _read_key(key) for key in every}
        numbers = [key for key in every if _is_number(node[key]) or _numeric_list(node[key])]
        inside = {key: {*map(str, node[key])} for key in every if isinstance(node[key], dict)}
        known = [key for key in numbers if read[key].metric or read[key].stat]
        if known:
            self.metrics.update(key for key in numbers if not read[key].metric and not _SWEPT.fullmatch(key))
        for key, own in inside.items():
            metrics = {metric for name in own if (metric := _read_key(name).metric)}
            alone = not any(own & inside[other] for other in inside if other != key)
            if not read[key].metric and key.islower() and alone and (not metrics or metrics <= _COSTS):
                self.blocks.add(key)
        entities = [key for key in inside if not read[key].metric and not read[key].stat]
        entities += [] if known else [key for key in numbers if not read[key].metric]
        entities = [key for key in entities if key not in self.blocks and not _SWEPT.fullmatch(key)]
        above = path[-1].lower() if path else ""
        axis = _AXES.get(above, "")
        removed = any(key_words(key).startswith("no ") or key_words(key) in FULL_NAMES for key in entities)
        if above.startswith(("abl", "消融")) and not removed:
            axis = ""  # {"ablation": {"mnli": {"full": ...}}}
        if axis and axis != "metric" and (above.endswith("s") or above.startswith(("by_", "abl", "消融"))):
            for key in entities:
                self.axes.name(key, axis)
        if any(key.lower() in _OWN and not isinstance(value, str | bool) for key, value in node.items()):
            for key in entities:
                self.axes.name(key, "method")  # beside "ours": the others
        if len(entities) > 1:
            self.axes.join(entities)
            self._groups.setdefault(tuple(sorted(entities)), set()).add(path)

    def truth(self) -> Truth:
        """Leaves of one quantity become one fact: mean, spread and number of runs, or the runs of single seeds."""
        glued = self._glued()
        groups: dict[tuple[tuple[str, str], ...], list[tuple[str, _Leaf, str, str]]] = {}
        for leaf in self.leaves:
            terms, stat, unit = self._terms(leaf, glued)
            groups.setdefault(tuple(sorted(terms.items())), []).append((stat, leaf, unit, "/".join(leaf.path)))
        facts: dict[str, Fact] = {}
        for about, members in groups.items():
            for fact in _grouped(dict(about), members):
                if fact.n is None:
                    fact.n = next((self.n_of[term] for term in fact.terms.values() if term in self.n_of), None)
                if fact.n is None and fact.spread is not None:
                    fact.n = self.default_n
                while fact.id in facts:
                    fact.id += "'"
                facts[fact.id] = fact
        every = list(facts.values())
        self._name_levels(every)
        known = {term for fact in every for term in fact.terms.values()}
        ours = {key_words(name): name for name in self.ours}
        method = next((name for name in ours if name in known), "")
        if not method and ours and "ours" in known:
            return Truth(every, {"ours": list(ours.values())}, "ours")
        return Truth(every, {}, method)

    def _glued(self) -> dict[str, tuple[str, str]]:
        """Keys made of a name and a metric: bdd100k_map and visdrone_map share the metric."""
        splits: dict[str, tuple[str, str]] = {}
        for key in {leaf.path[-1] for leaf in self.leaves} | {key for leaf in self.leaves for key in leaf.path}:
            read = _read_key(key)
            words = [word for word in re.split(r"[_\s/-]+", key) if word]
            if read.stat == "spread" or read.stat == "value":
                words = words[:-1]
            if read.unit and not read.metric:
                continue
            for cut in range(1, len(words)):
                head, tail = words[:cut], key_words(" ".join(words[cut:]))
                qualifier = all(word.lower() in _MORE_WORDS or word.lower() in names.SPLIT_WORDS for word in head)
                whole = canonical(key_words(" ".join(words))) in METRIC_GROUPS
                if not qualifier and not whole and _known_core(tail) and not _metric_name(head):
                    splits[key] = (key_words(" ".join(head)), _metric_name(words[cut:]))
                    break
        heads, tails = ([pair[part] for pair in splits.values()] for part in (0, 1))
        several = len(set(heads)) > 1
        made = {
            key: pair for key, pair in splits.items() if several and heads.count(pair[0]) + tails.count(pair[1]) > 2
        }
        for name, _ in made.values():
            self.axes.name(name, "dataset")
        return made

    def _terms(self, leaf: _Leaf, glued: dict[str, tuple[str, str]]) -> tuple[dict[str, str], str, str]:
        """What a number is about, by axes; which statistic it is; its unit."""
        terms: dict[str, str] = {}
        stat, unit, metric_at = "", unit_name(leaf.labels.get("unit", "")), -1
        keys = list(leaf.path)
        read = [_read_key(key) for key in keys]
        for at, word in enumerate(read):
            stat = stat if word.stat in ("", "value") and stat else word.stat or stat
            unit = word.unit or unit
            if word.metric and "metric" not in leaf.labels:
                metric_at = at
        if "metric" in leaf.labels:
            told = _read_key(leaf.labels["metric"])
            terms["metric"] = told.metric or canonical(key_words(leaf.labels["metric"]))
            terms |= {"split": told.split} if told.split else {}
            unit = unit or told.unit
        elif metric_at < 0:
            metric_at = self._unknown_metric(keys, read, glued)
        for at, key in enumerate(keys):
            if at == metric_at and key in glued:
                terms["dataset"], terms["metric"] = glued[key]
            elif at == metric_at:
                spaced = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", key)
                terms["metric"] = read[at].metric or read[at].base or canonical(key_words(spaced))
                terms |= {"split": read[at].split} if read[at].split else {}
            elif key in glued:
                terms["dataset"] = glued[key][0]
            else:
                said = self._name(keys, at, read[at], "method" in leaf.labels)
                twice = {axis: f"{axis} {at}" if axis in terms and len(said) == 1 else axis for axis in said}
                terms = {**{twice[axis]: term for axis, term in said.items()}, **terms}
        for name, text in leaf.labels.items():
            if name == "split":
                terms["split"] = names.SPLIT_WORDS.get(text.lower(), key_words(text))
            elif name not in ("metric", "unit", "seed") and key_words(text):
                terms.setdefault(name, key_words(text))
        return terms, stat or "value", unit

    def _name(self, keys: list[str], at: int, read: Key, told: bool) -> dict[str, str]:
        """What a key that is no metric names: a split, a point of a sweep, the own method, or a name on some axis."""
        key, low = keys[at], keys[at].lower()
        if low in names.SPLIT_WORDS:
            return {"split": names.SPLIT_WORDS[low]}
        if _SWEPT.fullmatch(key):
            return {"sweep": key_words(key)}
        if low in _OWN:
            return {} if told else {"method": "ours"}
        silent = read.stat or read.metric or key in self.blocks or low in _LISTS or low in _WRAPPERS
        if silent or (self._plain(key) and at < len(keys) - 1):
            return {}
        if any(_SWEPT.fullmatch(below) for below in keys[at + 1 :]):
            return {}  # the name of what is swept
        root = self.axes.root(key_words(key))
        axis = root[1:] if root.startswith("@") else f"level {root}"
        return {axis: key_words(key)}

    def _unknown_metric(self, keys: list[str], read: list[Key], glued: dict[str, tuple[str, str]]) -> int:
        """Which key may be a metric that no table knows: the last name, unless it is one of the things compared."""
        named = [at for at, key in enumerate(read) if (key.base or not key.stat) and keys[at].lower() not in _LISTS]
        at = max(named, default=-1)
        if at < 0 or keys[at] in glued or keys[at] in self.metrics or read[at].base:
            return at
        key = keys[at]
        typed = self.axes.root(key_words(key)).startswith("@")
        paths = [paths for group, paths in self._groups.items() if key in group]
        names_like = any(
            re.search("[A-Z0-9\u3400-\u9fff-]", name) for group in self._groups for name in group if key in group
        )
        repeated = any(len(each) > 1 for each in paths) and names_like
        left_out = key_words(key).startswith("no ") or key.lower() in ("full", "all_components", "baseline")
        if typed or left_out or repeated or _SWEPT.fullmatch(key) or self._plain(key) or (at == 0 and names_like):
            return -1
        return at

    def _name_levels(self, facts: list[Fact]) -> None:
        """Axes that the file gives no name: what has a cost or is left out is a method, the others are data sets."""
        having: dict[str, list[Fact]] = {}
        for fact in facts:
            for axis in fact.terms:
                having.setdefault(axis, []).append(fact)
        levels = [axis for axis in having if axis.startswith("level ")]
        methods = {fact.terms["method"] for fact in facts if "method" in fact.terms} | set(map(key_words, self.ours))

        def rename(level: str, name: str) -> None:
            if not any(name in fact.terms for fact in having[level]):
                for fact in having[level]:
                    fact.terms[name] = fact.terms.pop(level)
                levels.remove(level)

        for level in list(levels):
            own = {fact.terms[level] for fact in having[level]}
            costs = any(fact.terms.get("metric") in _COSTS and "dataset" not in fact.terms for fact in having[level])
            alone = costs and any(
                fact.terms.get("metric") in _COSTS and sum(axis.startswith("level ") for axis in fact.terms) == 1
                for fact in having[level]
            )
            odd = own & (FULL_NAMES | {"ours", "baseline", "proposed"}) or any(term.startswith("no ") for term in own)
            if alone or odd or own & methods:
                rename(level, "method")
        for level in list(levels):
            if (
                any("method" in fact.terms for fact in having[level])
                and len({f.terms[level] for f in having[level]}) > 1
            ):
                rename(level, "dataset")
        if levels and not any("method" in fact.terms for fact in facts):
            rename(max(levels, key=lambda level: _steadiness(level, having[level])), "method")
            if len(levels) == 1:
                rename(levels[0], "dataset")


def _steadiness(level: str, facts: list[Fact]) -> float:
    """How often the same name is the best or the worst: methods keep their rank from one data set to the next."""
    groups: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for fact in facts:
        rest = tuple(sorted((axis, term) for axis, term in fact.terms.items() if axis != level))
        groups.setdefault(rest, {})[fact.terms[level]] = fact.value
    compared = [group for group in groups.values() if len(group) > 1]
    firsts = Counter(max(group, key=lambda term: group[term]) for group in compared)
    lasts = Counter(min(group, key=lambda term: group[term]) for group in compared)
    return (max(firsts.values(), default=0) + max(lasts.values(), default=0)) / (len(compared) or 1)


def _names_dataset(node: dict[str, Any]) -> bool:
    """Beside a data set, "task" says what kind of problem it is."""
    return any(_AXES.get(key.lower()) == "dataset" for key in node if key.lower() != "task")


def _numeric_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_number, value))


def _count(value: Any) -> int | None:
    if isinstance(value, list):
        whole = all(_is_number(item) and item == int(item) for item in value)
        return len(value) if whole and len(value) > 1 else None
    return int(value) if _is_number(value) and 0 < value <= 1000 and value == int(value) else None


def _is_curve(leaf: _Leaf) -> bool:
    """A list that is neither [mean, spread] nor the runs of a quantity."""
    if len(leaf.values) < 3 or len(leaf.values) == leaf.n:
        return False
    words = {word for key in leaf.path for word in re.split(r"[_\W]+", key.lower())}
    return not words & (_LISTS | _ONE_RUN | {"seeds", "folds", "trials", "种子"})


def _points(terms: dict[str, str], values: list[tuple[float, str, str]]) -> Iterator[Fact]:
    """Values of which no text can name one alone: they explain a number, and contradict none."""
    share = is_share(terms.get("metric", ""))
    for at, (value, unit, name) in enumerate(values, 1):
        yield Fact(f"{name}#{at}", value, {**terms, "point": f"#{at}"}, unit, share=share)


def _grouped(terms: dict[str, str], members: list[tuple[str, _Leaf, str, str]]) -> Iterator[Fact]:
    """One fact for each statistic of a quantity; its spread and its single runs belong to the value."""
    by_stat: dict[str, list[tuple[_Leaf, str, str]]] = {}
    curves = [member for member in members if _is_curve(member[1])]
    members = [member for member in members if not _is_curve(member[1])]
    # a value for each epoch, round or size
    yield from _points(terms, [(value, unit, name) for _, leaf, unit, name in curves for value in leaf.values])
    for stat, leaf, unit, name in members:
        values = leaf.values
        if stat == "value" and len(values) == 2 and abs(values[1]) < 0.2 * abs(values[0]):  # [mean, spread]
            by_stat.setdefault("spread", []).append((_Leaf(leaf.path, leaf.labels, values[1:], leaf.n), unit, name))
            leaf = _Leaf(leaf.path, leaf.labels, values[:1], leaf.n)
        elif stat not in ("value", "spread") and len(values) == 2:
            for which, value in zip(("low", "high"), values, strict=True):
                one = _Leaf(leaf.path, leaf.labels, (value,), leaf.n)
                by_stat.setdefault(f"{stat} {which}", []).append((one, unit, name))
            continue
        by_stat.setdefault(stat, []).append((leaf, unit, name))
    spreads = by_stat.pop("spread", [])
    metric = terms.get("metric", "")
    known = known_metric(metric)
    for stat, same in by_stat.items():
        single = [one for one in same if len(one[0].values) == 1 and "seed" not in one[0].labels]
        if len({f"{leaf.values[0]:.4g}" for leaf, _, _ in single}) > 1:  # what tells them apart was not read
            yield from _points(terms, [(leaf.values[0], unit, name) for leaf, unit, name in single])
            continue
        leaf, unit, name = min(same, key=lambda member: (len(member[0].values) > 1, len(member[2])))
        labels = [text for axis, text in leaf.labels.items() if axis not in ("unit", "seed")]
        fact = Fact("/".join([name, *labels]), math.fsum(leaf.values) / len(leaf.values), dict(terms), unit)
        fact.n, fact.share, fact.direction = leaf.n, is_share(metric), known.direction if known else ""
        if stat != "value":
            fact.terms["statistic"] = stat
            fact.id += f"/{stat}" if not fact.id.endswith(stat) else ""
            yield fact
            continue
        fact.spread = spreads[0][0].values[0] if len(spreads) == 1 and len(spreads[0][0].values) == 1 else None
        lists = next((each.values for each, _, _ in same if len(each.values) > 1), ())
        runs = lists or tuple(each.values[0] for each, _, _ in same if "seed" in each.labels)
        if len(runs) > 1:
            fact.runs, fact.n = runs, len(runs)
            if not any(len(each.values) == 1 and "seed" not in each.labels for each, _, _ in same):
                fact.value = math.fsum(runs) / len(runs)
            fact.spread = statistics.stdev(runs) if fact.spread is None else fact.spread
        yield fact
