"""The numbers of a file of results as facts: which names tell one from another, and what belongs to one quantity.

A name is given an axis by what stands beside it. What the first reading leaves out (a part of the file, the raw key, a
field of the record) is taken up where two different values would otherwise have the same names.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from rgt.errors import bad_input
from rgt.metrics import table as names
from rgt.reconcile.facts import (
    FULL_NAMES,
    Fact,
    Truth,
    canonical,
    is_share,
    key_words,
    known_metric,
    known_words,
    unit_name,
)
from rgt.reconcile.truth_keys import AXES, COSTS, SWEPT, Axes, Key, read_key

COUNT, LISTS, ONE_RUN = (known_words("keys", name) for name in ("count", "lists", "one_run"))
_SETTINGS, _WRAPPERS, _SILENT = (known_words("keys", name) for name in ("settings", "wrappers", "silent"))
_CHOSEN = known_words("keys", "chosen")
_OWN, _REMOVED = known_words("keys", "own"), known_words("keys", "removed")
_NAME_FIELDS = ("name", "id", "label", "key", "type")
_RUN_KEY = re.compile(r"(?:seed|run|fold|trial|rep)[_ -]?\d+", re.I)
_LONGEST_NAME = 60  # characters
_DEEPEST, _MOST = 40, 20_000  # levels and values: beyond, a file is no summary of results
_COST_KINDS = ("time", "size", "energy", "power")
_SMALL = 0.2  # of a mean: a spread, and not another value
_TREND = 0.7  # correlation with the place in a list: more, on the whole, is a curve


_ASIDE: dict[str, str] = {}  # marks what is no result


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass
class _Leaf:
    path: tuple[str, ...]  # keys from the root
    labels: dict[str, str]  # what strings beside it say
    spare: dict[str, str]  # fields of its records that name nothing by themselves
    values: tuple[float, ...]
    n: int | None
    record: dict[str, Any] = field(default_factory=dict)  # the entry of a list that it stands in
    told: str = ""  # the field of this entry that tells it from others with its name

    @property
    def name(self) -> str:
        labels = (text for axis, text in self.labels.items() if axis not in ("unit", "seed"))
        return "/".join([*self.path, *labels, *filter(None, [self.told])])


@dataclass
class _Quantity:
    """A leaf and what is known of it."""

    leaf: _Leaf
    terms: dict[str, str]
    stat: str
    unit: str
    metric_at: int


@dataclass
class Leaves:
    """Gathers the numbers of a tree with the keys and strings above them."""

    leaves: list[_Leaf] = field(default_factory=list)
    aside: list[_Leaf] = field(default_factory=list)  # no results
    ours: list[str] = field(default_factory=list)
    default_n: int | None = None
    n_of: dict[str, int] = field(default_factory=dict)  # name of a dataset or method -> runs
    axes: Axes = field(default_factory=Axes)
    blocks: set[str] = field(default_factory=set)  # parts of the file, such as per_class beside results
    metrics: set[str] = field(default_factory=set)  # unknown ones, beside known ones, of the same things

    names: set[str] = field(default_factory=set)  # what looks like a metric, beside names
    listed: set[str] = field(default_factory=set)  # names that a list gives
    families: set[str] = field(default_factory=set)  # names of which several have the same inside

    def walk(
        self,
        node: Any,
        path: tuple[str, ...] = (),
        labels: dict[str, str] | None = None,
        spare: dict[str, str] | None = None,
        n: int | None = None,
        depth: int = 0,
        record: dict[str, Any] | None = None,
        listed: bool = False,
    ) -> None:
        if depth > _DEEPEST or len(self.leaves) > _MOST:
            raise bad_input("the file of values is too deep or too large for a summary of results")
        if isinstance(node, list) and any(isinstance(item, dict | list) for item in node):
            for item in node:
                self.walk(item, path, labels, spare, n, depth + 1, item if isinstance(item, dict) else record, True)
            return
        if not isinstance(node, dict):
            self._set_aside(node, path, labels or {})
            return
        above = path[-1].lower() if path else ""
        labels = {**(labels or {}), **self._labels(node, depth, above)}
        whole = {key: f"{value:.0f}" for key, value in node.items() if is_number(value) and value == int(value)}
        strings = {
            key: value for key, value in node.items() if isinstance(value, str) and 0 < len(value) <= _LONGEST_NAME
        }
        spare = {**(spare or {}), **strings, **whole}
        for key in filter(lambda key: key.lower() in COUNT, node):
            n = _count(node[key]) or n
            each = node[key].items() if isinstance(node[key], dict) else ()
            self.n_of |= {key_words(str(name)): count for name, value in each if (count := _count(value))}
        if above in _SETTINGS:
            self.default_n = n or self.default_n
            self._set_aside(node, path, labels)  # settings are no results
            return
        self._siblings(node, "" if listed or not path else path[-1].lower())
        for key, value in node.items():
            low = key.lower()
            numbers = value if isinstance(value, list) and value and all(map(is_number, value)) else []
            if is_number(value) or numbers:
                own = tuple(map(float, numbers)) if numbers else (float(value),)
                counts = low in COUNT and (len(own) == 1 or all(one == int(one) for one in own))
                if low not in ONE_RUN and not counts:  # those are inherited by what stands beside them
                    self.leaves.append(_Leaf((*path, key), labels, spare, own, n, record or {}))
                else:
                    self._set_aside(value, (*path, key), labels)
            elif low in COUNT and isinstance(value, dict) and all(map(_count, value.values())):
                self._set_aside(value, (*path, key), labels)
            else:
                self.walk(value, (*path, key), labels, spare, n, depth + 1, record)

    def _set_aside(self, node: Any, path: tuple[str, ...], labels: dict[str, str]) -> None:
        """No results, such as settings and counts; a reader can still mean them."""
        if len(path) > _DEEPEST or len(self.aside) > _MOST:
            raise bad_input("the file of values is too deep or too large for a summary of results")
        if isinstance(node, dict):
            for key, value in node.items():
                self._set_aside(value, (*path, str(key)), labels)
        elif isinstance(node, list):
            for at, value in enumerate(node, 1):
                self._set_aside(value, (*path[:-1], f"{path[-1] if path else ''}#{at}"), labels)
        elif is_number(node):
            self.aside.append(_Leaf(path, labels, _ASIDE, (float(node),), None))

    def _labels(self, node: dict[str, Any], depth: int, above: str) -> dict[str, str]:
        """The short strings of one record, by the axis they name."""
        labels: dict[str, str] = {}
        fields = [key for key in _NAME_FIELDS if isinstance(node.get(key), str)]
        listed = AXES.get(above, "")  # an entry of "metrics": [{"type": ..., "value": ...}]
        title = ("type" if listed == "metric" and "type" in fields else fields[0]) if fields else ""
        for key, text in node.items():
            name = key.lower()
            if isinstance(text, str) and above and key_words(text) == key_words(above):
                continue  # {"piqa": {"alias": "piqa", ...}}
            if isinstance(text, dict) and name in AXES:  # "dataset": {"name": "SST-2", "type": "glue"}
                text = next((text[each] for each in _NAME_FIELDS if isinstance(text.get(each), str)), None)
            if name in _OWN and isinstance(text, str):
                self.ours.append(text)
            elif name in _OWN and text is True:
                self.ours += [str(node[each]) for each in ("name", "model", "method") if each in node]
            elif name in ONE_RUN and not isinstance(text, dict | list) and re.search(r"\d$", str(text)):
                labels["seed"] = str(text)
            elif isinstance(text, str) and 0 < len(text) <= _LONGEST_NAME and name not in _SILENT:
                named = key in _NAME_FIELDS
                if named and (key != title or not depth):
                    continue
                if named and above in _OWN:
                    self.ours.append(text)
                axis = (listed or "method") if named else AXES.get(name, name)
                if axis != name and axis in node and isinstance(node[axis], str):
                    axis = name  # a record with a model and a method
                if axis != "dataset" or name != "task" or (depth and not _names_dataset(node)):
                    removed = name in _REMOVED and key_words(text) not in FULL_NAMES
                    labels[axis] = f"no {text}" if removed else text
                    self.axes.name(labels[axis], axis)
        return labels

    def _plain(self, key: str) -> bool:
        low = key.lower()
        return low in _WRAPPERS or low in AXES or low in _SETTINGS or low in _OWN or low in names.SPLIT_WORDS

    def _siblings(self, node: dict[str, Any], above: str) -> None:
        """Names beside each other share an axis; parts of a file (size, speed) have nothing in common inside."""
        every = [key for key in node if not self._plain(key) or is_number(node[key])]
        every = [key for key in every if key.lower() not in COUNT | LISTS | _SILENT]
        read = {key: read_key(key) for key in every}
        numbers = [key for key in every if is_number(node[key]) or _numeric_list(node[key])]
        inside = {key: {*map(str, node[key])} for key in every if isinstance(node[key], dict)}
        known = [key for key in numbers if read[key].metric or read[key].stat]
        if known:
            self.metrics.update(key for key in numbers if not any(read[key]) and not SWEPT.fullmatch(key))
        for family in _overlapping(inside):
            measured = [key for key in family if read[key].metric]
            if 2 * len(measured) >= len(family):
                self.metrics.update(family)  # mos beside rtf, of the same systems
            else:
                self.names.update(measured)  # the region ap beside eu and us
                self.families.update(family)
        for key, own in inside.items():
            metrics = {metric for name in own if (metric := read_key(name).metric)}
            alone = not any(own & inside[other] for other in inside if other != key)
            if (
                not read[key].metric
                and key not in self.metrics
                and key.islower()
                and alone
                and (not metrics or metrics <= COSTS)
            ):
                self.blocks.add(key)
        entities = [key for key in inside if (not read[key].metric or key in self.names) and not read[key].stat]
        entities += [] if known else [key for key in numbers if not read[key].metric]
        odd = self.blocks | self.metrics
        entities = [
            key for key in entities if key not in odd and not SWEPT.fullmatch(key) and not _RUN_KEY.fullmatch(key)
        ]
        axis = AXES.get(above, "")
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

    def truth(self) -> Truth:
        """Leaves of one quantity become one fact: mean, spread and number of runs, or the runs of single seeds."""
        _named_apart(self.leaves)
        every = [self._quantity(leaf) for leaf in self.leaves]
        runs = _are_runs([leaf.values for leaf in self.leaves])
        twos = [leaf.values for leaf in self.leaves if len(leaf.values) == 2]
        small = sum(_is_spread(values, _SMALL) for values in twos)
        spreads = 3 * small >= len(twos) > 2
        facts: dict[str, Fact] = {}
        for members in _told_apart(every):
            for fact in _grouped(members[0].terms, members, runs, spreads):
                if fact.n is None:
                    fact.n = next((self.n_of[term] for term in fact.terms.values() if term in self.n_of), None)
                if fact.n is None and fact.spread is not None:
                    fact.n = self.default_n
                while fact.id in facts:
                    fact.id += "'"
                facts[fact.id] = fact
        found = list(facts.values())
        others = self._others(facts)
        known = {term for fact in found for term in fact.terms.values()}
        ours = {key_words(name): name for name in self.ours}
        method = next((name for name in ours if name in known), "")
        if not method and "ours" in known:
            return Truth(found, {"ours": list(ours.values())}, "ours", others)
        return Truth(found, {}, method, others)

    def _others(self, facts: dict[str, Fact]) -> list[Fact]:
        """Every number of the file that no fact has under its own keys: settings, counts, single runs, spreads."""
        others: dict[str, Fact] = {}
        for leaf in (*self.leaves, *self.aside):
            known = facts.get(leaf.name)
            name = f"{leaf.name}/seed {leaf.labels['seed'].removesuffix('.0')}" if "seed" in leaf.labels else leaf.name
            for at, value in enumerate(leaf.values, 1):
                if known and value in (known.value, known.spread):
                    continue
                each = f"{name}#{at}" if len(leaf.values) > 1 else name
                while each in facts or (each in others and others[each].value != value):
                    each += "'"
                setting = leaf.spare is _ASIDE and not (ONE_RUN | LISTS) & {leaf.path[-1].partition("#")[0].lower()}
                about = {"setting": key_words(name)} if setting else {}
                others[each] = Fact(each, value, about, read_key(leaf.path[-1]).unit if leaf.path else "")
        return list(others.values())

    def _quantity(self, leaf: _Leaf) -> _Quantity:
        """What a number is about, by axes; which statistic it is; its unit."""
        terms: dict[str, str] = {}
        stat, unit, metric_at = "", unit_name(leaf.labels.get("unit", "")), -1
        keys = list(leaf.path)
        read = [Key("", "") if key in self.names else read_key(key) for key in keys]
        for word in read:
            stat = stat if word.stat in ("", "value") and stat else word.stat or stat
            unit = word.unit or unit
        if "metric" in leaf.labels:
            told = read_key(leaf.labels["metric"])
            terms["metric"] = told.metric or canonical(key_words(leaf.labels["metric"]))
            terms |= {"split": told.split} if told.split else {}
            unit = unit or told.unit
        else:  # the last that is known, or that stands beside known ones
            known = [at for at, word in enumerate(read) if word.metric]
            other = [at for at, word in enumerate(read) if word.base or keys[at] in self.metrics]
            metric_at = max(known or other, default=-1)
        for at, key in enumerate(keys):
            if at == metric_at:
                spaced = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", key)
                said = {"metric": read[at].metric or read[at].base or canonical(key_words(spaced))}
                said |= {"split": read[at].split} if read[at].split else {}
            else:
                said = self._name(keys, at, read[at], "method" in leaf.labels)
            terms |= {
                f"{axis} {at}" if axis in terms and axis != "metric" else axis: term for axis, term in said.items()
            }
        for name, text in leaf.labels.items():
            if name == "split":
                terms["split"] = names.SPLIT_WORDS.get(text.lower(), key_words(text))
            elif name not in ("metric", "unit", "seed") and key_words(text):
                terms[f"{name} of" if name in terms else name] = key_words(text)
        if any(map(_RUN_KEY.fullmatch, keys)):
            leaf.labels = {**leaf.labels, "seed": min(filter(_RUN_KEY.fullmatch, keys))}
        return _Quantity(leaf, terms, stat or "value", unit, metric_at)

    def _name(self, keys: list[str], at: int, read: Key, told: bool) -> dict[str, str]:
        """What a key that is no metric names: a split, a point of a sweep, the own method, or a name on some axis."""
        key, low = keys[at], keys[at].lower()
        if low in names.SPLIT_WORDS:
            return {"split": names.SPLIT_WORDS[low]}
        if SWEPT.fullmatch(key):
            return {"sweep": key_words(key)}
        if low in _OWN:
            return {} if told else {"method": "ours"}
        silent = read.stat or read.metric or key in self.blocks or low in LISTS or low in _WRAPPERS
        if silent or _RUN_KEY.fullmatch(key) or (self._plain(key) and at < len(keys) - 1):
            return {}
        if any(SWEPT.fullmatch(below) for below in keys[at + 1 :]) and key not in self.families:
            return {}  # the name of what is swept
        return self._on_axis(key_words(key))

    def _on_axis(self, term: str) -> dict[str, str]:
        root = self.axes.root(term)
        return {root[1:] if root.startswith("@") else f"level {root}": term}


def _overlapping(inside: dict[str, set[str]]) -> list[list[str]]:
    """The keys that have something in common inside, in groups."""
    families: list[tuple[list[str], set[str]]] = []
    for key, own in inside.items():
        same = [family for family in families if family[1] & own]
        rest = [family for family in families if not family[1] & own]
        joined = [each for keys, _ in same for each in keys]
        families = [*rest, ([*joined, key], own.union(*(names for _, names in same)))]
    return [keys for keys, _ in families if len(keys) > 1]


def _named_apart(leaves: list[_Leaf]) -> None:
    """Of records with the same names, the field in which all of them differ: a horizon, a model's size."""
    same: dict[tuple[str, str], list[_Leaf]] = {}
    for leaf in leaves:
        same.setdefault((leaf.name, leaf.labels.get("seed", "")), []).append(leaf)
    for group in same.values():
        for name in group[0].record if len(group) > 1 else ():
            values = [leaf.record.get(name) for leaf in group]
            if all(isinstance(value, str | int | float) for value in values) and len({*values}) == len(group):
                for leaf, value in zip(group, values, strict=True):
                    leaf.told = f"{name}={value}"
                break


def _told_apart(every: list[_Quantity]) -> Iterator[list[_Quantity]]:
    """Groups of one quantity; values with the same names get the field of their records in which they differ."""
    fields: set[str] = set()  # these tell others apart, and are no results
    for way in (_by_field, None):
        groups: dict[tuple[tuple[str, str], ...], list[_Quantity]] = {}
        for one in every:
            groups.setdefault(tuple(sorted(one.terms.items())), []).append(one)
        every = []
        for group in groups.values():
            single = [one for one in group if one.stat == "value" and "seed" not in one.leaf.labels]
            if way and len({one.leaf.values for one in single}) > 1:
                fields.add(way(group))
                every += group
            elif way or group[0].leaf.path[-1] not in fields:
                yield group


def _by_field(group: list[_Quantity]) -> str:
    """Fields of the records: the first that differs everywhere, such as the horizon of a forecast."""
    for name in group[0].leaf.spare:
        values = [one.leaf.spare.get(name, "") for one in group]
        if (
            len(set(values)) == len({one.leaf.values for one in group})
            and all(values)
            and name not in group[0].leaf.path
        ):
            for one, value in zip(group, values, strict=True):
                number = SWEPT.fullmatch(value) is not None
                one.terms["sweep" if number else AXES.get(name.lower(), name)] = key_words(value)
            return name
    return ""


def _are_runs(lists: list[tuple[float, ...]]) -> bool:
    """Short lists of one length without a trend: runs of several seeds, and no curves."""
    lists = [values for values in lists if len(values) > 2]
    if not lists or len({len(values) for values in lists}) > 1 or len(lists[0]) > 12 or len(lists) < 3:
        return False
    trends = [abs(statistics.correlation(range(len(one)), one)) if len(set(one)) > 1 else 0.0 for one in lists]
    return statistics.fmean(trends) < _TREND


def _names_dataset(node: dict[str, Any]) -> bool:
    """Beside a data set, "task" says what kind of problem it is."""
    return any(AXES.get(key.lower()) == "dataset" for key in node if key.lower() != "task")


def _numeric_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_number, value))


def _count(value: Any) -> int | None:
    if isinstance(value, list):
        whole = all(is_number(item) and item == int(item) for item in value)
        return len(value) if whole and len(value) > 1 else None
    return int(value) if is_number(value) and 0 < value <= 1000 and value == int(value) else None


def _is_curve(leaf: _Leaf) -> bool:
    """A list that is neither [mean, spread] nor the runs of a quantity."""
    if len(leaf.values) < 3 or len(leaf.values) == leaf.n:
        return False
    words = {word for key in leaf.path for word in re.split(r"[_\W]+", key.lower())}
    return not words & (LISTS | ONE_RUN | {"seeds", "folds", "trials", "种子"})


def _points(terms: dict[str, str], values: list[tuple[float, str, str]]) -> Iterator[Fact]:
    """Values of which no text can name one alone: they explain a number, and contradict none."""
    share = is_share(terms.get("metric", ""))
    for at, (value, unit, name) in enumerate(values, 1):
        yield Fact(name, value, {**terms, "point": f"#{at}"}, unit, share=share)


def _is_spread(values: tuple[float, ...], share: float) -> bool:
    """Where a third of the pairs of a file look like [mean, spread], those with a large second number are such, too."""
    return len(values) == 2 and 0 <= values[1] < share * abs(values[0])


def _grouped(
    terms: dict[str, str], quantities: list[_Quantity], runs_listed: bool, spreads_listed: bool
) -> Iterator[Fact]:
    """One fact for each statistic of a quantity; its spread and its single runs belong to the value."""
    by_stat: dict[str, list[tuple[_Leaf, str, str]]] = {}
    members = [(one.stat, one.leaf, one.unit, one.leaf.name) for one in quantities]
    curves = [member for member in members if not runs_listed and _is_curve(member[1])]
    members = [member for member in members if member not in curves]
    # a value for each epoch, round or size
    every = [(curve, at) for curve in curves for at in range(len(curve[1].values))]
    yield from _points(terms, [(leaf.values[at], unit, f"{name}#{at + 1}") for (_, leaf, unit, name), at in every])
    for stat, leaf, unit, name in members:
        values = leaf.values
        if stat == "value" and _is_spread(values, 1.0 if spreads_listed else _SMALL):  # [mean, spread]
            by_stat.setdefault("spread", []).append((replace(leaf, values=values[1:]), unit, name))
            leaf = replace(leaf, values=values[:1])
        elif stat not in ("value", "spread") and len(values) == 2:
            for which, value in zip(("low", "high"), values, strict=True):
                by_stat.setdefault(f"{stat} {which}", []).append((replace(leaf, values=(value,)), unit, name))
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
        if _CHOSEN & {*metric.split()}:
            terms = {**terms, "point": "chosen"}
        fact = Fact(name, math.fsum(leaf.values) / len(leaf.values), dict(terms), unit)
        fact.n, fact.share, fact.lower = leaf.n, is_share(metric), known is not None and known.direction == "down"
        if stat != "value":
            fact.terms["statistic"] = stat
            fact.id += f"/{stat}" if not fact.id.endswith(stat) else ""
            yield fact
            continue
        fact.spread = spreads[0][0].values[0] if len(spreads) == 1 and len(spreads[0][0].values) == 1 else None
        lists = next((each.values for each, _, _ in same if len(each.values) > 1), ())
        runs = lists or tuple(each.values[0] for each, _, _ in same if "seed" in each.labels)
        if len(runs) > 1:
            fact.n = len(runs)
            if not any(len(each.values) == 1 and "seed" not in each.labels for each, _, _ in same):
                fact.value = math.fsum(runs) / len(runs)
            fact.spread = statistics.stdev(runs) if fact.spread is None else fact.spread
        yield fact
