"""Which items of one split are in another: all splits but the largest are held as hashes, the largest streams by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from leakage import chance
from leakage.grids import RowIndex
from leakage.normal import Array
from leakage.pictures import PictureIndex
from leakage.shingles import Sketch, TextIndex, sketch
from leakage.sources import Source
from leakage.tables import Encoded, Schema, fit

ORDER = ("train", "val", "test")
_OFTEN = 3  # times in both splits: boilerplate, not a copied example


@dataclass
class Match:
    """One item of `split` that is in another split."""

    index: int
    place: str
    other: str
    kind: str  # exact | near
    similarity: float = 1.0


@dataclass
class Pair:
    """What of split `b` is in split `a`; b comes later in train, val, test."""

    a: Source
    b: Source
    exact: list[Match] = field(default_factory=list)
    near: list[Match] = field(default_factory=list)
    coincidences: list[Match] = field(default_factory=list)
    boilerplate: list[Match] = field(default_factory=list)
    expected: float = 0.0  # matches that chance gives, among those counted as leaks
    items: int = 0


@dataclass
class Whole:
    """A split as columns of numbers: 20 bytes an item, more when it is held."""

    source: Source
    exact: Array
    bits: Array
    near_bits: Array
    places: Array
    files: Array
    columns: dict[str, Array]
    times: list[Any]
    problems: list[tuple[str, str, str]]
    index: Any = None  # an Index when it is held

    def place(self, item: int) -> str:
        return self.source.place(int(self.places[item]), int(self.files[item]))

    def __len__(self) -> int:
        return len(self.exact)


@dataclass
class Found:
    splits: dict[str, Whole]
    pairs: list[Pair]
    schema: Schema


Near = dict[tuple[str, str], list[tuple[int, int, float]]]


def compare(sources: dict[str, Source], group: tuple[str, ...] = (), time: str | None = None) -> Found:
    """All pairs of the splits."""
    by_size = sorted(sources.values(), key=lambda source: source.bytes)
    schema = fit(by_size, group, time)
    near: Near = {}
    wholes: dict[str, Whole] = {}
    for source in by_size[:-1]:
        wholes[source.name] = _read(source, schema, time, hold=True, others=list(wholes.values()), near=near)
    last = by_size[-1]
    wholes[last.name] = _read(last, schema, time, hold=False, others=list(wholes.values()), near=near)
    names = [name for name in ORDER if name in wholes]
    pairs = [_pair(wholes[a], wholes[b], near) for a, b in combinations(names, 2)]
    return Found({name: wholes[name] for name in names}, pairs, schema)


def _read(source: Source, schema: Schema, time: str | None, hold: bool, others: list[Whole], near: Near) -> Whole:
    """One pass: hashes of every item are kept, what near-duplicates need only when `hold`."""
    parts: list[Encoded] = []
    features: list[Features] = []
    problems: list[tuple[str, str, str]] = []
    start = 0
    for chunk in source.chunks():
        part = schema.encode(chunk, time)
        asked = Features.of(part, schema.near)
        for other in others:
            judge_held = ORDER.index(other.source.name) > ORDER.index(source.name)
            rows = near.setdefault((other.source.name, source.name), [])
            rows += [(held, start + item, alike) for held, item, alike in other.index.matches(asked, judge_held)]
        if hold:
            features.append(asked)
        problems += [(source.place(int(part.places[i])), code, said) for i, code, said in part.problems]
        start += chunk.size
        part.texts, part.numbers, part.extra, part.pictures = [], None, None, None
        parts.append(part)
    whole = _join(source, parts, problems)
    if hold:
        whole.index = Index(features, schema)
    return whole


def _join(source: Source, parts: list[Encoded], problems: list[tuple[str, str, str]]) -> Whole:
    def joined(name: str, dtype: Any) -> Array:
        found = [getattr(part, name) for part in parts if getattr(part, name) is not None]
        return np.concatenate(found).astype(dtype) if found else np.zeros(0, dtype)

    names = parts[0].columns if parts else {}
    return Whole(
        source,
        joined("exact", np.uint64),
        joined("bits", np.float32),
        joined("near_bits", np.float32),
        joined("places", np.int64),
        joined("files", np.int32),
        {name: np.concatenate([part.columns[name] for part in parts]) for name in names},
        [value for part in parts for value in part.times],
        problems,
    )


# -- near-duplicates: text and pictures, or rows of numbers


@dataclass
class Features:
    """What near-duplicates are found by, of one piece."""

    texts: Sketch | None = None
    pictures: Array | None = None
    shows: Array | None = None
    numbers: Array | None = None
    extra: Array | None = None

    @classmethod
    def of(cls, part: Encoded, near: str) -> Features:
        if near == "numbers":
            return cls(numbers=part.numbers, extra=part.extra)
        texts = sketch(part.texts) if near in ("text", "files") else None
        return cls(texts, part.pictures, part.shows if part.pictures is not None else None)


class Index:
    def __init__(self, pieces: list[Features], schema: Schema) -> None:
        self.texts: TextIndex | None = None
        self.rows: RowIndex | None = None
        self.pictures: PictureIndex | None = None
        texts = [piece.texts for piece in pieces if piece.texts is not None]
        if texts:
            self.texts = TextIndex(_joined(texts), schema.common)
        numbers = [piece.numbers for piece in pieces if piece.numbers is not None]
        if numbers and schema.scales is not None:
            extra = np.concatenate([piece.extra for piece in pieces if piece.extra is not None])
            self.rows = RowIndex(np.concatenate(numbers), extra, schema.scales)
        if schema.near == "files":
            self._hold_pictures(pieces)

    def _hold_pictures(self, pieces: list[Features]) -> None:
        """Only the items that are pictures, and their numbers among all."""
        held, items, start = [], [], 0
        for piece in pieces:
            if piece.pictures is not None and piece.shows is not None:
                held.append(piece.pictures[piece.shows])
                items.append(start + np.flatnonzero(piece.shows))
            start += len(piece.texts.lengths) if piece.texts is not None else 0
        if held:
            self.items = np.concatenate(items)
            self.pictures = PictureIndex(np.concatenate(held), np.ones(len(self.items), dtype=bool))

    def matches(self, asked: Features, judge_held: bool) -> Iterator[tuple[int, int, float]]:
        if self.texts is not None and asked.texts is not None:
            yield from self.texts.matches(asked.texts, judge_held)
        if self.rows is not None and asked.numbers is not None and asked.extra is not None:
            yield from self.rows.matches(asked.numbers, asked.extra)
        if self.pictures is not None and asked.pictures is not None and asked.shows is not None:
            for held, item, alike in self.pictures.matches(asked.pictures, asked.shows):
                yield int(self.items[held]), item, alike


def _joined(sketches: list[Sketch]) -> Sketch:
    counts = np.concatenate([np.diff(each.starts) for each in sketches])
    flat = np.concatenate([each.flat for each in sketches])
    lengths = np.concatenate([each.lengths for each in sketches])
    return Sketch(flat, np.concatenate(([0], np.cumsum(counts))), lengths)


# -- one pair of splits


def _pair(a: Whole, b: Whole, near: Near) -> Pair:
    pair = Pair(a.source, b.source, items=len(b))
    values, first, counts = np.unique(a.exact, return_index=True, return_counts=True)
    at = np.minimum(np.searchsorted(values, b.exact), max(0, len(values) - 1))
    hit = (values[at] == b.exact) & (b.exact != 0) if len(values) else np.zeros(len(b), dtype=bool)
    exact = np.flatnonzero(hit)
    own = dict(zip(*np.unique(b.exact[exact], return_counts=True), strict=True))
    bar, pair.expected = chance.bar(b.bits, b.bits[exact], len(a))
    for item in exact.tolist():
        match = Match(item, b.place(item), a.place(int(first[at[item]])), "exact")
        if b.bits[item] < bar:
            pair.coincidences.append(match)
        elif counts[at[item]] >= _OFTEN and own[b.exact[item]] >= _OFTEN:
            pair.boilerplate.append(match)
        else:
            pair.exact.append(match)
    _add_near(pair, a, b, near, set(exact.tolist()))
    return pair


def _add_near(pair: Pair, a: Whole, b: Whole, near: Near, known: set[int]) -> None:
    """The best partner of each item that is not there exactly."""
    turned = [(y, x, alike) for x, y, alike in near.get((b.source.name, a.source.name), [])]
    best: dict[int, tuple[float, int]] = {}
    for item_a, item_b, alike in [*near.get((a.source.name, b.source.name), []), *turned]:
        if item_b not in known and alike > best.get(item_b, (0.0, 0))[0]:
            best[item_b] = (alike, item_a)
    items = np.array(sorted(best), dtype=np.int64)
    bar = 0.0
    if len(b.near_bits) and len(items):
        bar, by_chance = chance.bar(b.near_bits, b.near_bits[items], len(a))
        pair.expected += by_chance
    for item in items.tolist():
        match = Match(item, b.place(item), a.place(best[item][1]), "near", round(best[item][0], 3))
        weak = len(b.near_bits) and b.near_bits[item] < bar
        (pair.coincidences if weak else pair.near).append(match)
