"""What is said: matches of two splits, groups on both sides, problems of a split, and the data of --json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from rgt import files
from rgt.leak_probe import normal
from rgt.leak_probe.near_duplicates import KeyTables, PictureIndex, RowIndex, TextIndex
from rgt.leak_probe.normal import Array
from rgt.leak_probe.split_tables import Items, Schema, fit
from rgt.leak_probe.splits import Source
from rgt.report import Finding, Report

import numpy as np

_SHOWN = 3  # examples in a finding
_LISTED = 10_000  # matches in --json; --list writes all
_FILES = 20  # findings about single files


_SAYINGS = {  # kind of match -> code, severity, what is said of the items
    "exact": ("leak", "error", "({share:.2g} %) are in {a}, the same after normalisation"),
    "near": ("near-duplicate", "error", "({share:.2g} %) are near-duplicates of items in {a}"),
    "coincidence": ("coincidence", "info", "match {a}, and are short or common enough to do so by chance"),
}


def pair_findings(pair: Pair) -> Iterator[Finding]:
    a, b = pair.a.name, pair.b.name
    for kind, (code, severity, saying) in _SAYINGS.items():
        matches = pair.matches[kind]
        if not matches:
            continue
        shown = [f"{m['item']} ~ {m['same_as']} ({m['similarity']:.2f})" for m in matches[:_SHOWN]]
        said = saying.format(a=a, share=100 * len(matches) / pair.items)
        message = f"{len(matches)} of {pair.items} {b} items {said}"
        fix = f"remove them from {a} (or from {b}) and report both numbers: with and without"
        fixed = fix if severity == "error" else None
        yield Finding(code, severity, message, path=str(pair.b.path), evidence="; ".join(shown), fix=fixed)


def say_splits(report: Report, found: Found) -> None:
    for name, items in found.splits.items():
        source, size = items.source, len(items)
        path = str(source.path)
        blank = int((items.exact == 0).sum())
        if blank == size:
            report.add("empty", "warn", f"{name} holds no item with content, so nothing was compared", path=path)
        elif blank:
            report.add("empty", "info", f"{blank} of {size} items are blank and were not compared", path=path)
        if source.malformed:
            text = f"{source.malformed} rows are not JSON or have another number of fields than the header"
            report.add("malformed", "warn", text, path=path, evidence=f"first: {source.malformed_at}")
        if found.schema.lacking.get(name):
            text = f"has no column {', '.join(found.schema.lacking[name])[:200]}; other splits do; it was not compared"
            report.add("unjudged", "info", text, path=path)
        for place, code, said in items.problems[:_FILES]:
            report.add(code, "info" if code == "unjudged" else "warn", said, path=place)
        if len(items.problems) > _FILES:
            report.add("unreadable", "warn", f"{len(items.problems) - _FILES} more files have such problems", path=path)


def data(found: Found, listing: Path | None) -> dict[str, Any]:
    rows = found.splits.items()
    splits = {name: {"path": str(i.source.path), "kind": i.source.kind, "items": len(i)} for name, i in rows}
    pairs, matches = [], []
    for pair in found.pairs:
        names = {"a": pair.a.name, "b": pair.b.name}
        pairs.append({**names, **{kind: len(some) for kind, some in pair.matches.items()}})
        matches += [{**names, "kind": kind, **match} for kind, some in pair.matches.items() for match in some]
    schema = found.schema
    numbered = next(iter(found.splits.values())).source.kind == "array"  # columns without a name
    compared = {
        "columns": [] if numbered else schema.used,
        "ignored": schema.ignored,
        "text": schema.text,
        "near_by": schema.near,
    }
    made: dict[str, Any] = {"splits": splits, "compared": compared, "pairs": pairs, "matches": matches[:_LISTED]}
    made["matches_left_out"] = max(0, len(matches) - _LISTED)
    if listing:
        files.write_text(listing, "".join(json.dumps(match, ensure_ascii=True) + "\n" for match in matches))
    return made


def summary(data: dict[str, Any]) -> str:
    splits = data["splits"]
    said = ", ".join(f"{name} {split['items']}" for name, split in splits.items())
    compared = data["compared"]
    by = f"; columns compared: {', '.join(compared['columns'])[:200]}" if compared["columns"] else ""
    ignored = f"; left out as ids or groups: {', '.join(compared['ignored'])[:200]}" if compared["ignored"] else ""
    clean = "" if any(p["exact"] + p["near"] for p in data["pairs"]) else "no item is shared by two splits; "
    return f"{clean}items: {said}{by}{ignored}"


# -- leakage that no copy shows: the same patient on both sides of a split


_FEWEST = 10  # values of a column in the later split; fewer (site, sex) are shared by any split
_IN_NAME = re.compile(
    r"(?i)(?:^|[^a-z])(patient|subject|sub|speaker|spk|user|session|sess|scan|video|vid|case|person)[-_]?([a-z]{0,3}\d+)"
)


def group_findings(found: Found, asked: tuple[str, ...]) -> Iterator[Finding]:
    """Asked for: an error. Only named like a group: a warning, because the split may be meant that way."""
    for a, b in combinations(found.splits.values(), 2):
        groups = {name: (a.columns[name], b.columns[name]) for name in a.columns}
        if a.source.kind == "files":
            groups["file name"] = _name_groups(a), _name_groups(b)
        for name, (ours, theirs) in groups.items():
            values, first = np.unique(theirs, return_index=True)
            shared = np.isin(values, ours) & (values != 0)
            known = int((values != 0).sum())
            if not shared.any() or (name not in asked and known < _FEWEST):
                continue
            rows = int(np.isin(theirs, values[shared]).sum())
            examples = [
                f"{b.place(at)} and {a.place(int(np.flatnonzero(ours == theirs[at])[0]))}"
                for at in first[shared][:_SHOWN].tolist()
            ]
            share = f"{int(shared.sum())} of {known} values of {name} in {b.source.name}"
            message = f"{share} are also in {a.source.name} ({rows} of {len(theirs)} items)"
            severity, fix = "error", f"split by {name}, so that each value is in one split only"
            if name not in asked:
                hint = "" if name == "file name" else f" (--group {name} makes it an error)"
                severity, fix = "warn", f"{fix}; if items of one {name} are independent, say so{hint}"
            path, evidence = str(b.source.path), "; ".join(examples)
            yield Finding("group-leak", severity, message, path=path, where=name, evidence=evidence, fix=fix)


def _name_groups(items: Items) -> Array:
    """patient012 of train/patient012_slice3.png; 0 where a name has none."""
    inside = (part.relative_to(items.source.path).as_posix() for part in items.source.parts)
    seen = map(_IN_NAME.search, inside)
    groups = [normal.digest((each[1] + each[2].lstrip("0")).lower().encode()) if each else 0 for each in seen]
    return np.array(groups, dtype=np.uint64)


# -- Which items of one split are in another: all splits but the largest are held as hashes, the largest streams by


KINDS = ("exact", "near", "coincidence")
_OFTEN = 3  # times in both splits: boilerplate such as a licence line, not a copied example


@dataclass
class Pair:
    """What of split `b` is in split `a`; b comes later in train, val, test."""

    a: Source
    b: Source
    items: int  # of b
    matches: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {kind: [] for kind in KINDS})

    def add(self, kind: str, item: str, same_as: str, similarity: float = 1.0) -> None:
        self.matches[kind].append({"item": item, "same_as": same_as, "similarity": round(similarity, 3)})


@dataclass
class Found:
    splits: dict[str, Items]
    pairs: list[Pair]
    schema: Schema


Near = dict[tuple[str, str], list[tuple[int, int, float]]]  # (split, split) -> item, item, similarity


def compare(sources: dict[str, Source], group: tuple[str, ...] = ()) -> Found:
    """All pairs of the splits; each is read once, and compared with those before it."""
    order = list(sources)  # train, val, test
    by_size = sorted(sources.values(), key=lambda source: source.bytes)
    schema = fit(by_size, group)
    near: Near = {}
    bars: dict[str, float] = {}
    splits: dict[str, Items] = {}
    indexes: dict[str, Index] = {}
    for source in by_size:
        parts: list[Items] = []
        start, held = 0, source is not by_size[-1]
        for chunk in source.chunks():
            part = schema.encode(source, chunk)
            for other, index in indexes.items():
                judge_held = order.index(other) > order.index(source.name)
                near.setdefault((other, source.name), []).extend(index.matches(part, start, judge_held))
            start += chunk.size
            parts.append(
                part if held else replace(part, texts=None, numbers=None, extra=None, pictures=None, rests=None)
            )
        splits[source.name] = Items.join(parts)
        if held:
            indexes[source.name] = Index(splits[source.name], schema)
            pictures = indexes[source.name].pictures
            bars[source.name] = pictures.bar if pictures else 0.0
    pairs = [
        _pair(splits[a], splits[b], near, max(bars.get(a, 0.0), bars.get(b, 0.0))) for a, b in combinations(order, 2)
    ]
    return Found({name: splits[name] for name in order}, pairs, schema)


class Index:
    """Near-duplicates of the items that are held: text and pictures, or rows of numbers."""

    def __init__(self, held: Items, schema: Schema) -> None:
        self.held = held
        self.texts = TextIndex(held.texts, schema.common) if held.texts else None
        self.rows = RowIndex(held.numbers, held.extra, schema.scales) if schema.scales else None  # type: ignore[arg-type]
        self.pictures = PictureIndex(held.pictures) if held.pictures is not None else None
        self.rests = None if held.rests is None else KeyTables(np.arange(len(held)), held.rests)

    def matches(self, part: Items, start: int, judge_held: bool) -> Iterator[tuple[int, int, float]]:
        """(held item, item of the other split, similarity); `start` is the number of the first item of the part."""
        if self.texts and part.texts:
            yield from ((a, start + b, alike) for a, b, alike in self.texts.matches(part.texts, judge_held))
        if self.rows and part.numbers is not None and part.extra is not None:
            yield from ((a, start + b, alike) for a, b, alike in self.rows.matches(part.numbers, part.extra))
        if self.pictures and part.pictures is not None:
            for a, b, alike in self.pictures.matches(part.pictures):
                yield int(self.held.pictured[a]), int(part.pictured[b]), alike  # type: ignore[index]
        if self.rests and part.rests is not None:
            for a, b in zip(*self.rests.candidates(np.arange(len(part)), part.rests, 1), strict=True):
                yield int(a), start + int(b), 1.0


def _pair(a: Items, b: Items, near: Near, alike_bar: float) -> Pair:
    """`alike_bar`: of pictures."""
    pair = Pair(a.source, b.source, len(b))
    values, first, counts = np.unique(a.exact, return_index=True, return_counts=True)
    at = np.minimum(np.searchsorted(values, b.exact), len(values) - 1)
    exact = np.flatnonzero((values[at] == b.exact) & (b.exact != 0))
    own = dict(zip(*np.unique(b.exact[exact], return_counts=True), strict=True))
    bar = normal.bar(b.bits, b.bits[exact], len(a))
    for item in exact.tolist():
        common = counts[at[item]] >= _OFTEN and own[b.exact[item]] >= _OFTEN
        kind = "coincidence" if b.bits[item] < bar or common else "exact"
        pair.add(kind, b.place(item), a.place(int(first[at[item]])))
    # the best partner of each item that is not there exactly
    known = set(exact.tolist())
    turned = [(y, x, alike) for x, y, alike in near.get((b.source.name, a.source.name), [])]
    best: dict[int, tuple[float, int]] = {}
    for item_a, item_b, alike in [*near.get((a.source.name, b.source.name), []), *turned]:
        if item_b not in known and alike > best.get(item_b, (0.0, 0))[0]:
            best[item_b] = (alike, item_a)
    bar, items = 0.0, sorted(best)
    if b.near_bits is not None:
        bar = normal.bar(b.near_bits, b.near_bits[items], len(a))
    for item in items:
        common = best[item][0] < alike_bar or (b.near_bits is not None and b.near_bits[item] < bar)
        kind = "coincidence" if common else "near"
        pair.add(kind, b.place(item), a.place(best[item][1]), best[item][0])
    return pair
