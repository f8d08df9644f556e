"""The values a document is held against, each with the words that name it.

From EVIDENCE.json, or from any nested JSON, YAML or CSV of results:

    {"ours": {"cifar10": {"acc_mean": 0.914, "acc_std": 0.003}}, "seeds": 5}
        Fact("ours/cifar10/acc", 0.914, terms {level1: ours, level2: cifar 10, metric: accuracy}, spread 0.003, n 5)

Keys and short strings beside a number are its terms. Keys that stand in for each other lie on one axis (method,
dataset, ...): a text that names one of an axis speaks of no other.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt.errors import bad_input
from rgt.evidence.claims import Claim
from rgt.metrics import table as names
from rgt.reconcile.passages import text_of

_VALUE = frozenset("mean avg average value mu estimate 均值 平均值 平均 数值 值".split())
_SPREAD = frozenset("std stdev stddev sd sem stderr se spread sigma 标准差".split())
_COUNT = frozenset(
    "n seeds runs n_seeds num_seeds n_runs num_runs seed_count trials repeats repetitions nseeds seeds_per_cell "
    "runs_per_cell seeds_per_run number_of_seeds 种子数 随机种子数 运行次数 次数 重复次数".split()
)
_BOUNDS = frozenset(
    "min max low high lo hi lower upper ci ci95 ci_low ci_high ci_lower ci_upper median best worst".split()
)
_LISTS = frozenset(
    "values runs per_seed per_run seeds raw all_runs seed_values".split()
)  # the single runs of a quantity
_AXES = {
    **dict.fromkeys(
        "method methods model models system systems approach arm algorithm variant variants by_model 方法 模型".split(),
        "method",
    ),
    **dict.fromkeys(
        "baseline baselines ablation ablations ablation_study by_method name 消融 消融实验 名称".split(), "method"
    ),
    **dict.fromkeys(
        "dataset datasets benchmark benchmarks corpus domain language lang by_dataset task tasks env 数据集 "
        "任务".split(),
        "dataset",
    ),
    **dict.fromkeys("metric metrics measure by_metric 指标".split(), "metric"),
    **dict.fromkeys("split splits subset partition".split(), "split"),
}
_WRAPPERS = frozenset(
    "results result main values scores summary experiments experiment evaluation eval evals final tables table "
    "figures runs "
    "efficiency performance aggregate aggregated overall all data stats statistics entries rows records items "
    "main_results "
    "measurements quality cost resources runtime compute costs speed group 主实验 主结果 结果 效率 实验结果 "
    "汇总".split()
)
_SETTINGS = frozenset(
    "config configuration hyperparameters hparams meta info settings training_config environment 配置 元信息 "
    "超参数".split()
)
_SILENT = frozenset(  # strings that name nothing
    "date time timestamp commit git hash sha note notes description comment url path file source direction "
    "goal id title "
    "author authors version schema paper project generated created license hardware device gpu better "
    "experiment format".split()
)
_OWN_METHOD = frozenset("our_method ours our_model proposed proposed_method".split())
_ONE_RUN = frozenset("seed seed_id run run_id fold trial rep".split())
UNITS = {  # spelling: kind of quantity, and how many of the smallest
    **dict.fromkeys(("ns",), ("time", 1e-09)),
    **dict.fromkeys(("us", "µs", "μs"), ("time", 1e-06)),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds", "毫秒"), ("time", 0.001)),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "秒"), ("time", 1.0)),
    **dict.fromkeys(("min", "mins", "minute", "minutes", "分钟"), ("time", 60.0)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "小时"), ("time", 3600.0)),
    **dict.fromkeys(("day", "days", "天"), ("time", 86400.0)),
    **dict.fromkeys(("kb",), ("size", 1000.0)),
    **dict.fromkeys(("mb",), ("size", 1000000.0)),
    **dict.fromkeys(("gb",), ("size", 1000000000.0)),
    **dict.fromkeys(("tb",), ("size", 1000000000000.0)),
    **{f"{letter}ib": ("size", 1024.0**power) for power, letter in enumerate("kmgt", 1)},
    **dict.fromkeys(("%", "pct", "percent", "pp", "percentage"), ("share", 0.01)),
    "dB": ("dB", 1.0),
    "db": ("dB", 1.0),
    **{name: ("energy", factor) for name, factor in (("wh", 1.0), ("kwh", 1e3), ("j", 1 / 3600))},
    **{name: ("power", factor) for name, factor in (("w", 1.0), ("kw", 1e3))},
    **dict.fromkeys(("k", "thousand", "千"), ("count", 1000.0)),
    **dict.fromkeys(("m", "million", "millions", "百万"), ("count", 1000000.0)),
    **dict.fromkeys(("b", "billion", "billions", "十亿"), ("count", 1000000000.0)),
    **{name: ("count", factor) for name, factor in (("万", 1e4), ("亿", 1e8))},
}
_TOKEN = re.compile(r"[\u3400-\u9fff]|[^\W\d_\u3400-\u9fff]+|\d+")
_SWEPT = re.compile(r"[\d.]+ ?%?")  # a key that is a number: a point of a sweep
_LONGEST_NAME = 60  # characters
_DEEPEST, _MOST = 40, 20_000  # levels and values: beyond, a file is no summary of results


@dataclass
class Fact:
    id: str
    value: float
    terms: dict[str, str]  # axis -> the name on it
    unit: str = ""
    spread: float | None = None
    n: int | None = None
    runs: tuple[float, ...] = ()  # of single seeds
    share: bool = False  # some write it as 0..1, some as percent
    direction: str = ""
    bit: int = 0  # its place in sets of facts, which are whole numbers


@dataclass
class Truth:
    facts: list[Fact]
    aliases: dict[str, list[str]] = field(default_factory=dict)
    ours: str = ""  # the name of the own method, where the file says it


def key_words(text: str) -> str:
    """A name as it is compared: case, hyphens and spaces do not matter, CIFAR-10 is cifar10."""
    text = re.sub(r"(?<![^\W_])(?:w/o|wo|without|no|minus|sans)(?=[\W_])", "no", text.lower())
    return " ".join(_TOKEN.findall(text))


_SHARES = {word for metric in names.METRICS if metric.share for word in metric.spellings} | {
    "rate",
    "success",
    "ssim",
    "top",
}


def from_claims(claims: list[Claim]) -> list[Fact]:
    facts = []
    for claim in claims:
        axes = {
            name: key_words(str(claim[name])) for name in ("metric", "method", "dataset", "split") if claim.get(name)
        }
        metric = names.known(claim["metric"])
        axes["metric"] = canonical(axes["metric"])
        fact = Fact(claim["id"], float(claim["value"]), axes, _unit(str(claim.get("unit", ""))), claim.get("spread"))
        fact.n, fact.share, fact.direction = claim.get("n"), _is_share(claim["metric"]), claim.get("direction", "")
        fact.direction = fact.direction or (metric.direction if metric else "")
        facts.append(fact)
    return facts


def _unit(text: str) -> str:
    return text if text in UNITS else text.lower().strip("()[] ")


def _is_share(metric: str) -> bool:
    words = set(re.split(r"[-_@\s]+", metric.lower()))
    known = known_metric(metric)
    return bool(known and known.share) or metric.endswith("率") or bool(_SHARES & words)


def from_file(path: Path) -> Truth:
    """Every number of a file of results."""
    if not path.exists():
        raise bad_input(f"{path} does not exist; --values takes a JSON, YAML or CSV file of results")
    text, suffix = text_of(path), path.suffix.lower()
    try:
        if suffix in (".csv", ".tsv"):
            data: Any = _sheet(text, suffix)
        elif suffix in (".yaml", ".yml"):
            import yaml

            data = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        elif suffix == ".jsonl":
            data = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            data = json.loads(text)
    except (ValueError, RecursionError, csv.Error) as error:
        raise bad_input(f"{path} cannot be read as {suffix[1:] or 'JSON'}: {str(error)[:120]}") from None
    except Exception as error:  # yaml's own errors share no built-in class
        raise bad_input(f"{path} cannot be read as YAML: {' '.join(str(error).split())[:120]}") from None
    reader = _Walk()
    reader.walk(_without_columns(_nested(data), {}), (), {}, None, 0)
    truth = reader.truth()
    if not truth.facts:
        raise bad_input(f"{path} holds no result; --values takes a file of results")
    return truth


def _nested(node: Any) -> Any:
    """{"a/b/mean": 1} as {"a": {"b": {"mean": 1}}}"""
    if isinstance(node, list):
        return [_nested(item) for item in node]
    if not isinstance(node, dict):
        return node
    made: dict[str, Any] = {}
    for key, value in node.items():
        *above, last = _parts(str(key))
        inner = made
        for part in above:
            inner = inner.setdefault(part, {})
            if not isinstance(inner, dict):
                return node
        inner[last] = _nested(value)
    return made


def _without_columns(node: Any, names: dict[int, list[str]]) -> Any:
    """{"datasets": ["a", "b"], "acc": [1, 2]} as {"a": {"acc": 1}, "b": {"acc": 2}}

    `names` are the lists of names above, by length; two of one length leave open which is meant: nothing is done then.
    """
    if isinstance(node, list):
        return [_without_columns(item, names) for item in node]
    if not isinstance(node, dict):
        return node
    lists = {key: value for key, value in node.items() if isinstance(value, list) and len(value) > 1}
    words = [value for value in lists.values() if all(isinstance(item, str) for item in value)]
    sizes = Counter(len(value) for value in words)
    names = {**names, **{len(value): value if sizes[len(value)] == 1 else [] for value in words}}
    made: dict[str, Any] = {}
    for key, value in node.items():
        column = key in lists and all(map(_is_number, value)) and key.lower() not in _LISTS | _COUNT | _ONE_RUN
        if column and len(set(names.get(len(value), []))) == len(value):
            for name, number in zip(names[len(value)], value, strict=True):
                row = made.setdefault(name, {})
                made[name] = {**row, key: number} if isinstance(row, dict) else row
        else:
            made[key] = _without_columns(value, names)
    return made


def _sheet(text: str, suffix: str) -> list[dict[str, Any]]:
    delimiter = "\t" if suffix == ".tsv" else max(",;\t", key=text.split("\n", 1)[0].count)
    rows = []
    for row in csv.DictReader(io.StringIO(text), delimiter=delimiter):
        cells = {str(key).strip(): (cell or "").strip() for key, cell in row.items() if key and isinstance(cell, str)}
        rows.append({key: _number(cell) if _number(cell) is not None else cell for key, cell in cells.items() if cell})
    return rows


def _number(text: str) -> float | None:
    try:
        value = float(text.replace(",", "").rstrip("%"))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


@dataclass
class _Leaf:
    path: tuple[str, ...]  # keys from the root
    labels: dict[str, str]  # what strings beside it say
    stat: str  # value, spread, low, ...
    value: float
    runs: tuple[float, ...] = ()
    n: int | None = None
    unit: str = ""


@dataclass
class _Walk:
    """Gathers the numbers of a tree with the keys and strings above them."""

    leaves: list[_Leaf] = field(default_factory=list)
    ours: set[str] = field(default_factory=set)
    default_n: int | None = None
    n_of: dict[str, int] = field(default_factory=dict)  # name of a dataset or method -> runs
    axes: _Axes = field(default_factory=lambda: _Axes())

    def walk(self, node: Any, path: tuple[str, ...], labels: dict[str, str], n: int | None, depth: int) -> None:
        if depth > _DEEPEST or len(self.leaves) > _MOST:
            raise bad_input("the file of values is too deep or too large for a summary of results")
        if isinstance(node, list):
            for item in node:
                self.walk(item, path, labels, n, depth + 1)
            return
        if not isinstance(node, dict):
            return
        own = {str(key): value for key, value in node.items()}
        labels = {**labels, **self._labels(own, depth)}
        for key in filter(lambda key: key.lower() in _COUNT, own):
            n = _count(own[key]) or n
            each = own[key].items() if isinstance(own[key], dict) else ()
            self.n_of |= {key_words(str(name)): count for name, value in each if (count := _count(value))}
        if path and path[-1].lower() in _SETTINGS:
            self.default_n = n or self.default_n
            return  # settings are no results
        self.axes.siblings(own, path)
        for key, value in own.items():
            numbers = [float(item) for item in value if _is_number(item)] if isinstance(value, list) else []
            if _is_number(value):
                self._add((*path, key), labels, (float(value),), n)
            elif numbers and len(numbers) == len(value):
                self._add((*path, key), labels, tuple(numbers), n)
            elif not (key.lower() in _COUNT and isinstance(value, dict) and all(map(_count, value.values()))):
                self.walk(value, (*path, key), labels, n, depth + 1)

    def _labels(self, node: dict[str, Any], depth: int) -> dict[str, str]:
        """The short strings of one record, by the axis they name."""
        labels = {}
        for key, text in node.items():
            name = key.lower()
            if name in _OWN_METHOD and isinstance(text, str):
                self.ours.add(text)
            elif name in _OWN_METHOD and text is True:
                self.ours |= {str(node[each]) for each in ("name", "model", "method") if each in node}
            elif name in _ONE_RUN and not isinstance(text, dict | list):
                labels["seed"] = str(text)
            elif (
                isinstance(text, str)
                and 0 < len(text) <= _LONGEST_NAME
                and name not in _SILENT
                and (depth or name not in ("task", "name"))
            ):
                axis = "unit" if name in ("unit", "units", "单位") else _AXES.get(name, name)
                labels[axis] = text
                self.axes.name(text, axis)
        return labels

    def _add(self, path: tuple[str, ...], labels: dict[str, str], values: tuple[float, ...], n: int | None) -> None:
        last = path[-1].lower()
        if last in _ONE_RUN or (last in _COUNT and (len(values) == 1 or all(value == int(value) for value in values))):
            return  # inherited by what stands beside it
        if last in _LISTS and len(values) > 1:
            self.leaves.append(_Leaf(path[:-1], labels, "value", math.fsum(values) / len(values), values, n))
            return
        stat, base, unit = _stat_of(path[-1])
        if not base and path[:-1]:  # {"latency_ms": {"mean": 3.1}}
            _, above, outer = _stat_of(path[-2])
            path, unit = (*path[:-2], above if outer else path[-2], ""), unit or outer
        path = (*path[:-1], *([base] if base else []))
        if len(values) == 2 and abs(values[1]) < 0.2 * abs(values[0]):  # [mean, spread]
            self.leaves.append(_Leaf(path, labels, "spread", values[1], (), n, unit))
            values = values[:1]
        if len(values) == 2 and stat != "value":
            self.leaves.append(_Leaf(path, labels, f"{stat} high", values[1], (), n, unit))
            self.leaves.append(_Leaf(path, labels, f"{stat} low", values[0], (), n, unit))
            return
        runs = values if len(values) > 1 else ()
        self.leaves.append(_Leaf(path, labels, stat, math.fsum(values) / len(values), runs, n, unit))

    def truth(self) -> Truth:
        """Leaves of one quantity become one fact: mean, spread and number of runs, or the runs of single seeds."""
        groups: dict[tuple[Any, ...], list[_Leaf]] = {}
        for leaf in self.leaves:
            about = tuple(sorted((name, text) for name, text in leaf.labels.items() if name != "seed"))
            same = tuple(key_words(key).replace(" ", "") for key in leaf.path)  # chrF and chr_F_std
            groups.setdefault((same, about), []).append(leaf)
        paths = [min((leaf.path for leaf in leaves), key=lambda path: len("".join(path))) for leaves in groups.values()]
        self.axes.factor([path[-1] for path in paths if path])
        made: dict[str, Fact] = {}
        for path, leaves in zip(paths, groups.values(), strict=True):
            for fact in _grouped(leaves, path, self.axes):
                if fact.n is None:
                    fact.n = next((self.n_of[term] for term in fact.terms.values() if term in self.n_of), None)
                if fact.n is None and fact.spread is not None:
                    fact.n = self.default_n
                while fact.id in made:
                    fact.id += "'"
                made[fact.id] = fact
        self._one_method_axis(made.values())
        names_of_ours = {key_words(name): name for name in self.ours}
        method = next(
            (name for name in names_of_ours if any(name in fact.terms.values() for fact in made.values())), ""
        )
        aliases = {}
        if not method and names_of_ours and any("ours" in fact.terms.values() for fact in made.values()):
            method, aliases = "ours", {"ours": list(names_of_ours.values())}
        return Truth(list(made.values()), aliases, method)

    def _one_method_axis(self, facts: Iterable[Fact]) -> None:
        """Keys of a level without a name are the methods, when only ablations are called so."""
        levels = Counter(axis for fact in facts for axis in fact.terms if axis.startswith("level "))
        if len(levels) == 1 and not any("method" in leaf.labels for leaf in self.leaves):
            (level,) = levels
            for fact in facts:
                if level in fact.terms and "method" not in fact.terms:
                    fact.terms["method"] = fact.terms.pop(level)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _count(value: Any) -> int | None:
    if isinstance(value, list):
        whole = all(_is_number(item) and item == int(item) for item in value)
        return len(value) if whole and len(value) > 1 else None
    return int(value) if _is_number(value) and 0 < value <= 1000 and value == int(value) else None


def _parts(key: str) -> list[str]:
    """sst_2/bilstm/test_acc -> three keys; w/o augmentation stays one."""
    parts = key.split("/")
    return parts if len(parts) > 1 and all(len(part) > 1 and part.strip() == part for part in parts) else [key]


_UNIT_NAMES = {
    "train": "training time",
    "training": "training time",
    "gpu": "gpu hours",
    "inference": "latency",
    "infer": "latency",
}


def _stat_of(key: str) -> tuple[str, str, str]:
    """acc_std -> (spread, acc, ""); latency_ms -> (value, latency, ms); mean -> (value, "", "")"""
    words = parts = [word for word in re.split(r"[_\s/-]+|(?<=[a-z])(?=[A-Z])", key.strip("()%")) if word]
    low = [word.lower().strip("()") for word in words]
    stat, unit = "value", "%" if "%" in key and not _SWEPT.fullmatch(key) else ""
    words = list(words)
    if not words:
        return stat, key, unit
    named = _UNIT_NAMES.get(low[0]) or low[-2:-1] == ["time"] or key_words(" ".join(low[:-1])) in METRIC_GROUPS
    if "per" in low[1:]:
        return stat, key, unit
    if len(words) > 1 and low[-1] in UNITS and (named or (len(low[-1]) > 1 and low[-1] != "min")):
        unit = low.pop()
        words.pop()
        if len(words) == 1 and low[0] in _UNIT_NAMES:
            words = [_UNIT_NAMES[low[0]]]
        low = [word.lower() for word in words]
    for at in (-1, 0):
        kind = (
            "value" if low[at] in _VALUE else "spread" if low[at] in _SPREAD else low[at] if low[at] in _BOUNDS else ""
        )
        if (
            kind
            and (len(low) > 1 or key.lower() in _VALUE | _SPREAD | _BOUNDS)
            and (kind not in ("best", "worst", "max", "min") or len(low) == 1)
        ):
            stat = kind
            words.pop(at)
            break
    return stat, key if words == parts else "_".join(words), unit


def _alike(node: dict[str, Any]) -> set[str]:
    """The keys whose contents have a name in common: data sets or methods beside each other, no parts of the file."""
    inside = {key: {str(name) for name in value} for key, value in node.items() if isinstance(value, dict)}
    plain = {*_AXES, *_WRAPPERS, *_VALUE, *_SPREAD, *_COUNT, *_SETTINGS}
    names_in = {key: {name for name in own if name.lower() not in plain} for key, own in inside.items()}
    blocks = {key for key in inside if key.lower() in plain}
    return {a for a in inside for b in inside if a != b and names_in[a] & names_in[b] and not {a, b} & blocks}


class _Axes:
    """Which axis a key lies on: keys beside each other share one, and strings in a field of a name (method: ...)."""

    def __init__(self) -> None:
        self.parent: dict[str, str] = {}
        self.metric_of: dict[str, tuple[str, str]] = {}  # bdd100k_map -> (bdd100k, map)
        self.metrics: set[str] = set()  # unknown ones beside known ones
        self.blocks: set[str] = set()  # parts of the file, such as per_class beside results

    def _root(self, node: str) -> str:
        while self.parent.setdefault(node, node) != node:
            node = self.parent[node]
        return node

    def name(self, text: str, axis: str) -> None:
        """The text lies on a named axis; the first name it gets stays."""
        root, named = self._root(key_words(text)), self._root(f"@{axis}")
        if not root.startswith("@"):
            self.parent[root] = named

    def siblings(self, node: dict[str, Any], path: tuple[str, ...]) -> None:
        for kind in (dict, int | float):
            keys = [key for key, value in node.items() if isinstance(value, kind) and not isinstance(value, bool)]
            self._beside(keys, path, _alike(node) if kind is dict else {*node})

    def _beside(self, every: list[str], path: tuple[str, ...], alike: set[str]) -> None:
        keys = [key for key in every if not self.plain(key) and key.lower() not in _COUNT | _LISTS]
        entities = [key for key in keys if not is_metric(key)]
        known = [key for key in keys if known_metric(_stat_of(key)[1] or key) or key_words(key) in METRIC_GROUPS]
        if known and entities:
            self.metrics.update(entities)
            return
        if not path and any(self.plain(key) for key in every):  # {"results": ..., "per_class": ...}
            self.blocks.update(key for key in entities if key not in alike)
            entities = [key for key in entities if key not in self.blocks]
        above = path[-1].lower() if path else ""
        if (
            above in _AXES
            and (above.endswith("s") or above.startswith(("by_", "abl", "消融")))
            and _AXES[above] != "metric"
        ):
            for key in entities:
                self.name(key, _AXES[above])
        if all(_SWEPT.fullmatch(key) for key in entities):
            return
        roots = [self._root(key_words(key)) for key in entities]
        named = next((root for root in roots if root.startswith("@")), roots[0] if roots else "")
        for root in roots:
            if not root.startswith("@"):
                self.parent[root] = named

    def factor(self, keys: list[str]) -> None:
        """Keys made of a name and a metric: bdd100k_map and visdrone_map share the metric."""
        splits: dict[str, tuple[str, str]] = {}
        for key in set(keys):
            words = key_words(key).split()
            for cut in range(1, len(words)):
                head, tail = " ".join(words[:cut]), " ".join(words[cut:])
                if not is_metric(key) and is_metric(tail) and head not in names.SPLIT_WORDS:
                    splits[key] = (head, tail)
        heads, tails = ([pair[part] for pair in splits.values()] for part in (0, 1))
        self.metric_of = {key: pair for key, pair in splits.items() if heads.count(pair[0]) + tails.count(pair[1]) > 2}
        for head, _ in self.metric_of.values():
            self.name(head, "dataset")

    def terms(self, path: tuple[str, ...], labels: dict[str, str]) -> dict[str, str]:
        terms: dict[str, str] = {}
        keys = [key for key in path if key]
        metric_at = self._metric_place(keys, labels)
        level = 0
        for place, key in enumerate(keys):
            low, words = key.lower(), key_words(key)
            if place == metric_at and key in self.metric_of:
                terms["dataset"], tail = self.metric_of[key]
                terms.update(metric_terms(tail))
            elif place == metric_at:
                terms.update(metric_terms(_stat_of(key)[1] or key))
            elif low in _BOUNDS:
                terms["statistic"] = low
            elif low in names.SPLIT_WORDS:
                terms["split"] = names.SPLIT_WORDS[low]
            elif _SWEPT.fullmatch(key):
                terms["sweep"] = words
            elif not self.plain(key) and not any(_SWEPT.fullmatch(below) for below in keys[place + 1 :]):
                level += 1
                root = self._root(words)
                axis = root[1:] if root.startswith("@") else f"level {root}"
                terms[axis if axis not in terms else f"{axis} {level}"] = words
        for name, text in labels.items():
            if name == "metric":
                terms.update(metric_terms(_stat_of(text)[1]))
            elif name == "split":
                terms["split"] = names.SPLIT_WORDS.get(text.lower(), key_words(text))
            elif name not in ("unit", "seed", "group") and key_words(text):
                terms.setdefault(name, key_words(text))
        return terms

    def plain(self, key: str) -> bool:
        return key in self.blocks or any(key.lower() in words for words in (_WRAPPERS, _AXES, _SETTINGS))

    def _metric_place(self, keys: list[str], labels: dict[str, str]) -> int:
        """Which key of a path names the metric: the deepest that is known as one, else the last; -1 when a label
        does."""
        if "metric" in labels:
            return -1
        for place in reversed(range(len(keys))):
            if (keys[place] in self.metrics or is_metric(keys[place])) and keys[place].lower() not in _BOUNDS:
                return place
        if len(keys) > 1 and keys[-2].lower() in _AXES:
            return -1  # {"ablations": {"no aug": 0.88}}
        return len(keys) - 1


def is_metric(key: str) -> bool:
    stat, base, unit = _stat_of(key)
    metric = metric_terms(base or key)["metric"]
    named = unit or stat == "spread" or known_metric(metric) or metric in METRIC_GROUPS
    return bool(named) or key.lower() in _VALUE | _SPREAD | _BOUNDS


def known_metric(text: str) -> names.Metric | None:
    """ "f 1 macro" -> F1"""
    return names.known(re.sub(r"(?<=[a-z]) (?=\d)", "", text).replace(" ", "_"))


def metric_terms(key: str) -> dict[str, str]:
    """test_acc -> {metric: acc, split: test}"""
    text = re.sub(
        r"^(?:n|num|number of) (?=params?|parameters)| at(?= \d)",
        "",
        key_words(re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", key)),
    )
    words = text.split()
    if re.search(r" per (?:s|sec|second)$", text):
        return {"metric": "throughput"}
    for at in (0, -1):
        if len(words) > 1 and words[at] in names.SPLIT_WORDS:
            rest = " ".join(words[1:] if at == 0 else words[:-1])
            if known_metric(rest) or rest in METRIC_GROUPS:
                return {"metric": canonical(rest), "split": names.SPLIT_WORDS[words[at]]}
    return {"metric": canonical(text)}


def canonical(metric: str) -> str:
    """One name for all spellings of a metric."""
    group = METRIC_GROUPS.get(metric)
    return group[0] if group else metric


def _grouped(leaves: list[_Leaf], path: tuple[str, ...], axes: _Axes) -> Iterator[Fact]:
    by_stat: dict[str, list[_Leaf]] = {}
    for leaf in leaves:
        by_stat.setdefault(leaf.stat, []).append(leaf)
    spreads = by_stat.pop("spread", [])
    spread = spreads[0].value if len(spreads) == 1 else None
    for stat, same in by_stat.items():
        first = same[0]
        labels = dict(first.labels)
        terms = axes.terms(path, labels)
        metric = terms.get("metric", "")
        known = known_metric(metric)
        unit = (
            first.unit
            or _unit(labels.get("unit", ""))
            or next((found for key in (*reversed(path), labels.get("metric", "")) if (found := _stat_of(key)[2])), "")
        )
        identity = "/".join([*path, *(text for name, text in labels.items() if name not in ("unit", "seed"))])
        value = next((leaf.value for leaf in same if not leaf.runs), first.value)
        fact = Fact(identity, value, terms, unit, spread if stat == "value" else None, first.n)
        fact.share = _is_share(metric)
        fact.direction = known.direction if known else ""
        runs = next((leaf.runs for leaf in same if leaf.runs), ()) or tuple(
            leaf.value for leaf in same if "seed" in leaf.labels
        )
        if len(runs) > 1:
            fact.runs, fact.n = runs, len(runs)
            fact.value = fact.value if len(same) < len(runs) else math.fsum(runs) / len(runs)
            fact.spread = statistics.stdev(runs) if fact.spread is None else fact.spread
        if stat != "value":
            fact.terms = {**terms, "statistic": stat}
            fact.id += f"/{stat}"
        yield fact


# what is measured beside quality; the metrics of quality are in rgt.metrics.table
_MORE_METRICS = """
parameters: params, param, parameter count, number of parameters, model size, 参数量, 参数
memory: mem, peak mem, gpu mem, peak memory, gpu memory, memory footprint, memory usage, vram, peak vram, 显存,
显存占用, 峰值显存, 内存
training time: train time, train hours, training hours, wall clock, wall clock time, 训练时间, 训练耗时, 训练时长
latency: inference, inference time, inference latency, response time, runtime, 延迟, 时延, 推理时间, 推理延迟, 耗时
throughput: 吞吐量, 吞吐率, 吞吐, samples per second, images per second, tokens per second, fps, speed
gpu hours: gpu time; flops: gflops, macs, gmacs, tflops, 计算量; energy: energy consumption, power, 能耗; speedup:
speed up, 加速比"""
METRIC_GROUPS: dict[str, tuple[str, ...]] = {}
for _row in [*(", ".join(metric.spellings) for metric in names.METRICS), *re.split("[;\n]", _MORE_METRICS)]:
    _group = tuple(filter(None, map(key_words, re.split("[:,]", _row))))
    for _name in _group:
        METRIC_GROUPS[_name] = tuple(dict.fromkeys((*METRIC_GROUPS.get(_name, ()), *_group)))
