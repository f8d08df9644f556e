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
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import bad_input
from rgt.reconcile.facts import Truth
from rgt.reconcile.passages import text_of
from rgt.reconcile.truth_facts import COUNT, LISTS, ONE_RUN, Leaves, is_number
from rgt.reconcile.truth_keys import AXES


def from_file(path: Path) -> Truth:
    """Every number of a file of results."""
    if not path.exists():
        raise bad_input(f"{path} does not exist; --values takes a JSON, YAML or CSV file of results")
    text, suffix = text_of(path), path.suffix.lower()
    try:
        if suffix in (".csv", ".tsv"):
            text = files.without_comments(text)
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
    reader = Leaves()
    reader.walk(_named_lists(data, {}, reader))
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
    # "acc,none" and "exact_match,strict-match" of lm-evaluation-harness: a metric and its filter
    keys = {key: str(key).removesuffix(",none").replace(",", " ") for key in node}
    return {keys[key]: _plain_tree(value) for key, value in node.items() if value != ""}


def _nested(node: Any) -> Any:
    """{"a/b/mean": 1} as {"a": {"b": {"mean": 1}}}"""
    if isinstance(node, list):
        return [_nested(item) for item in node]
    if not isinstance(node, dict):
        return node
    made: dict[str, Any] = {}
    keys = [str(key) for key, value in node.items() if is_number(value) or isinstance(value, list)]
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


def _named_lists(node: Any, lists: dict[int, list[list[str]]], reader: Leaves) -> Any:
    """{"datasets": ["a", "b"], "acc": [1, 2]} as {"acc": {"a": 1, "b": 2}}, a matrix likewise.

    `lists` are the lists of names above, by length; two of one length leave open which is meant: nothing is done then.
    """
    if isinstance(node, list):
        return [_named_lists(item, lists, reader) for item in node]
    if not isinstance(node, dict):
        return node
    several = {key: value for key, value in node.items() if isinstance(value, list) and len(value) > 1}
    words = {key: value for key, value in several.items() if all(isinstance(item, str) for item in value)}
    for key, value in words.items():
        if AXES.get(key.lower(), "unit") != "unit":
            for name in value:
                reader.axes.name(name, AXES[key.lower()])
        reader.listed.update(value)
        reader.axes.join(value)
    lengths = {len(value): [other for other in words.values() if len(other) == len(value)] for value in words.values()}
    lists = {**lists, **lengths}

    def named(value: list[Any], used: list[list[str]]) -> dict[str, Any] | None:
        fitting = [one for one in lists.get(len(value), []) if one not in used and len(set(one)) == len(one)]
        if len(fitting) == 1 and all(map(is_number, value)):
            return dict(zip(fitting[0], value, strict=True))
        if len(fitting) != 1 or not all(isinstance(item, list) for item in value):
            return None
        inner = [named(item, [*used, fitting[0]]) for item in value]
        return dict(zip(fitting[0], inner, strict=True)) if None not in inner else None

    made: dict[str, Any] = {}
    for key, value in node.items():
        column = key in several and key.lower() not in LISTS | COUNT | ONE_RUN
        made[key] = (column and named(value, [])) or _named_lists(value, lists, reader)
    return made
