"""What the columns of the splits are, and a piece of a split as hashes, texts, numbers and pictures.

Columns are matched by name, and only those that every split has are compared. Ids and running numbers are left out:
a copied row gets a new id. Text columns decide near-duplicates where there are any, numbers where there are none.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from leakage import contents, normal
from leakage.chance import SURE, Frequencies
from leakage.grids import Scales
from leakage.normal import Array
from leakage.pictures import SIDE
from leakage.shingles import common_table, sketch
from leakage.sources import Chunk, Source
from rgt.errors import bad_input

_SAMPLE = 20_000  # rows that frequencies and spreads are taken from
_HEAD = 2_000  # first rows of the largest split, for the kinds of its columns
_ID = re.compile(
    r"(unnamed: ?\d+|index|idx|row|row_?(no|num|number)|key|guid|uuid|hash|(.*[_ .-])?id|[a-z]+ID|[a-z]+Id)"
)
_GROUP = re.compile(
    r"(?i)(.*[_ .-])?(patient|subject|speaker|user|session|group|client|customer|participant|person|study|scan|case|"
    r"author|household|video|recording|series|family|donor|site)s?([_ .-]?(id|no|num|number|name|key|code))?"
)
_EACH = 4096  # bytes of a sampled text
_NUMERIC = 0.95  # share of a column's cells


@dataclass
class Encoded:
    """A piece, or a whole split, brought to numbers. An item whose `exact` is 0 is blank."""

    exact: Array
    bits: Array
    places: Array
    files: Array
    texts: list[bytes] = field(default_factory=list)
    numbers: Array | None = None
    extra: Array | None = None  # hash of the columns that are no numbers
    near_bits: Array | None = None
    pictures: Array | None = None
    shows: Array | None = None  # which items have a picture
    columns: dict[str, Array] = field(default_factory=dict)  # hashes of the group columns
    times: list[Any] = field(default_factory=list)
    problems: list[tuple[int, str, str]] = field(default_factory=list)


@dataclass
class Schema:
    """How items are compared; made once from a sample of all splits."""

    used: list[str]
    ignored: list[str]
    text: list[str]
    numeric: list[str]
    groups: list[str]
    near: str  # text | numbers | files | none
    frequencies: dict[str, Frequencies] = field(default_factory=dict)
    scales: Scales | None = None
    common: Array = field(default_factory=lambda: np.zeros(0, dtype=bool))
    lacking: dict[str, list[str]] = field(default_factory=dict)  # split -> columns that only others have
    width: int = 0  # of arrays

    def encode(self, chunk: Chunk, time: str | None = None) -> Encoded:
        files = np.array(chunk.files or [0] * chunk.size, dtype=np.int32)
        blank = np.zeros(chunk.size, dtype=np.uint64)
        out = Encoded(blank, np.zeros(chunk.size, np.float32), chunk.places, files)
        if chunk.paths:
            _encode_files(out, chunk)
        elif chunk.matrix is not None:
            self._encode_matrix(out, chunk.matrix)
        else:
            self._encode_columns(out, chunk)
            out.times = list(chunk.columns.get(time, [None] * chunk.size)) if time else []
        return out

    def _encode_matrix(self, out: Encoded, matrix: Array) -> None:
        if matrix.shape[1] != self.width:
            raise bad_input(f"rows of {matrix.shape[1]} and of {self.width} numbers differ; expected one shape")
        seeds = normal.mix(np.arange(1, self.width + 1, dtype=np.uint64))
        with np.errstate(over="ignore"):
            for column in range(self.width):
                out.exact += normal.mix(normal.number_hashes(matrix[:, column]) ^ seeds[column])
        for name, known in self.frequencies.items():
            out.bits += known.bits(normal.number_hashes(matrix[:, int(name)])).astype(np.float32)
        self._numbers(out, matrix, np.zeros(len(matrix), dtype=np.uint64))

    def _numbers(self, out: Encoded, matrix: Array, extra: Array) -> None:
        if self.near == "numbers" and self.scales is not None:
            out.numbers, out.extra, out.near_bits = matrix, extra, self.scales.bits(matrix)

    def _encode_columns(self, out: Encoded, chunk: Chunk) -> None:
        size = chunk.size
        texts: list[list[bytes]] = []
        floats = []
        extra = np.zeros(size, dtype=np.uint64)
        filled = np.zeros(size, dtype=bool)
        for name in dict.fromkeys([*self.used, *self.groups]):
            values = chunk.columns.get(name, [None] * size)
            if name in self.text:
                plain = [normal.text(normal.cell_text(value)) for value in values]
                hashes = np.array([normal.digest(each) if each else 0 for each in plain], dtype=np.uint64)
                texts.append(plain)
            else:
                hashes, numbers = normal.cells(values)
            if name in self.groups:
                out.columns[name] = hashes
            if name not in self.used:
                continue
            term = normal.mix(hashes ^ np.uint64(normal.digest(name.encode("utf-8", "surrogateescape"))))
            with np.errstate(over="ignore"):
                out.exact += term
                if name in self.numeric:
                    floats.append(numbers)
                else:
                    extra += term
            filled |= hashes != 0
            out.bits += self._bits(name, hashes, texts[-1] if name in self.text else None)
        out.exact[~filled] = 0
        if self.near == "text":
            out.texts = texts[0] if len(texts) == 1 else [b" ".join(row) for row in zip(*texts, strict=True)]
        elif floats:
            self._numbers(out, np.stack(floats, axis=1), extra)

    def _bits(self, name: str, hashes: Array, plain: list[bytes] | None) -> Array:
        known = self.frequencies.get(name)
        bits = known.bits(hashes) if known else np.zeros(len(hashes))
        if plain is not None:
            long = np.array([not normal.is_short(each) for each in plain])
            bits = np.where(long, SURE, np.minimum(bits, 8.0))  # a few words are never sure, however rare here
        return bits.astype(np.float32)


def _encode_files(out: Encoded, chunk: Chunk) -> None:
    found = [contents.read(path) for path in chunk.paths]
    out.exact[:] = [content.exact for content in found]
    out.bits[:] = [content.bits for content in found]
    out.texts = [content.text for content in found]
    out.shows = np.array([content.picture is not None and content.bits > 0 for content in found])
    empty = np.zeros((SIDE, SIDE), dtype=np.uint8)
    if any(content.picture is not None for content in found):
        out.pictures = np.stack([empty if c.picture is None else c.picture for c in found])
    out.problems = [(index, *content.problem) for index, content in enumerate(found) if content.problem]


# -- from a sample


@dataclass
class Sample:
    """At most twice _SAMPLE rows, evenly spread over what was added."""

    columns: dict[str, list[Any]] = field(default_factory=dict)
    rows: list[Array] = field(default_factory=list)
    size: int = 0

    def add(self, chunk: Chunk, step: int) -> None:
        taken = range(0, chunk.size, step)
        if chunk.matrix is not None:
            self.rows.append(chunk.matrix[::step])
        for name in [*self.columns, *(name for name in chunk.columns if name not in self.columns)]:
            column = self.columns.setdefault(name, [None] * self.size)
            values = chunk.columns.get(name)
            column.extend(values[::step] if values else [None] * len(taken))
        self.size += len(taken)


def fit(sources: list[Source], group: tuple[str, ...], time: str | None) -> Schema:
    """Reads the smaller splits whole, the largest in part. `sources` come smallest first."""
    if sources[0].kind == "files":
        return Schema([], [], [], [], [], "files", common=_common(_file_texts(sources[0]) + _file_texts(sources[-1])))
    samples, counts = [], 1.0
    for source in sources:
        largest = source is sources[-1]
        sample, seen = _sample(source, _HEAD if largest else None)
        samples.append(sample)
        counts *= max(1, source.bytes // 20 if largest else seen)
    if sources[0].kind == "array":
        return _fit_matrix(samples, counts)
    return _fit_columns(sources, samples, counts, group, time)


def _sample(source: Source, head: int | None) -> tuple[Sample, int]:
    sample, seen = Sample(), 0
    per_item = max(1, source.bytes // 50 // _SAMPLE)  # a guess of 50 bytes a row; a wrong one only changes the size
    for chunk in source.chunks():
        seen += chunk.size
        sample.add(chunk, 1 if head or seen < 2 * _SAMPLE else per_item)
        if head and seen >= head:
            break
    return sample, seen


def _file_texts(source: Source) -> list[bytes]:
    step = max(1, len(source.parts) // 1000)
    plain = [part for part in source.parts[::step] if part.suffix.lower() not in contents.IMAGES]
    return [content.text for part in plain if (content := contents.read(part)).text]


def _common(texts: list[bytes]) -> Array:
    step = max(1, len(texts) // (2 * _SAMPLE))
    return common_table(sketch([text[:_EACH] for text in texts[::step]]))


def _fit_matrix(samples: list[Sample], pairs: float) -> Schema:
    small = samples[0].size < _HEAD
    rows = np.concatenate(samples[0].rows)
    if small and all(part.shape[1] == rows.shape[1] for part in samples[-1].rows):
        rows = np.concatenate([rows, *samples[-1].rows])
    width = rows.shape[1]
    schema = Schema([], [], [], [], [], "numbers", width=width)
    measured = np.random.default_rng(0).choice(width, min(width, 64), replace=False)
    schema.frequencies = {str(c): Frequencies.of(normal.number_hashes(rows[:, c])) for c in measured}
    schema.scales = Scales.of(rows, pairs)
    return schema


def _fit_columns(
    sources: list[Source], samples: list[Sample], pairs: float, group: tuple[str, ...], time: str | None
) -> Schema:
    names = [name for name in samples[0].columns if all(name in sample.columns for sample in samples)]
    _need_columns(sources, samples, names, group, time)
    kinds = {name: _column_kind(name, [sample.columns[name] for sample in samples]) for name in names}
    used = [name for name in names if kinds[name] != "id" and name not in group]
    if not used:
        raise bad_input(
            f"every column that the splits share looks like an id ({', '.join(names)[:200]}); nothing to compare"
        )
    text = [name for name in used if kinds[name] == "text"]
    numeric = [name for name in used if kinds[name] == "number"]
    groups = [*group, *(name for name in names if name not in group and _GROUP.fullmatch(name))]
    near = "text" if text else "numbers" if numeric else "none"
    schema = Schema(used, [name for name in names if name not in used], text, numeric, groups, near)
    for source, sample in zip(sources, samples, strict=True):
        others = {name for each in samples for name in each.columns}
        schema.lacking[source.name] = sorted(others - set(sample.columns))
    _measure(schema, samples, pairs)
    return schema


def _measure(schema: Schema, samples: list[Sample], pairs: float) -> None:
    """Frequencies and spreads; from a small split alone they would be too coarse."""
    every = {name: [value for sample in samples for value in sample.columns[name]] for name in schema.used}
    chosen = every if samples[0].size < _HEAD else samples[0].columns
    for name in schema.used:
        values = [normal.cell_text(v) for v in chosen[name]] if name in schema.text else chosen[name]
        schema.frequencies[name] = Frequencies.of(normal.cells(values)[0])
    if schema.text:
        words = zip(*(every[name] for name in schema.text), strict=True)
        schema.common = _common([normal.text(" ".join(normal.cell_text(v) for v in row)) for row in words])
    elif schema.numeric:
        columns = [normal.cells(chosen[name])[1] for name in schema.numeric]
        schema.scales = Scales.of(np.stack(columns, axis=1), pairs)


def _need_columns(
    sources: list[Source], samples: list[Sample], names: list[str], group: tuple[str, ...], time: str | None
) -> None:
    for option, name in [*(("--group", name) for name in group), *([("--time", time)] if time else [])]:
        for source, sample in zip(sources, samples, strict=True):
            if name not in sample.columns:
                have = ", ".join(sample.columns)[:200]
                raise bad_input(f"{option} {name}: {source.path} has no such column; it has {have}")
    if not names:
        have = "; ".join(f"{s.name}: {', '.join(p.columns)[:100]}" for s, p in zip(sources, samples, strict=True))
        raise bad_input(f"the splits have no column name in common ({have}); rename them or add a header line")


def _column_kind(name: str, samples: list[list[Any]]) -> str:
    if _ID.fullmatch(name) or _ID.fullmatch(name.lower()) or not name:
        return "id"
    values = [value for sample in samples for value in sample[:_HEAD] if value not in (None, "")]
    if not values:
        return "category"
    numbers = [normal.to_number(value) for value in values]
    if sum(number is not None for number in numbers) >= _NUMERIC * len(values):
        return "id" if all(_is_counter(sample[:_HEAD]) for sample in samples) else "number"
    words = [normal.cell_text(value) for value in values]
    long = sum(len(word) for word in words) / len(words) >= 30
    spaced = sum(word.count(" ") + 1 for word in words) / len(words) >= 4
    return "text" if long or spaced else "category"


def _is_counter(values: list[Any]) -> bool:
    """0, 1, 2, ... whatever it is called: a number that rises by one from row to row."""
    numbers = [normal.to_number(value) for value in values]
    steps = (a is not None and b is not None and b - a == 1 for a, b in itertools.pairwise(numbers))
    return len(numbers) > 10 and all(steps)
