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

from rgt.errors import bad_input
from rgt.leak_probe import normal
from rgt.leak_probe.near_duplicates import SIDE, Scales, Sketch, common_table, sketch
from rgt.leak_probe.normal import SURE, Array, Frequencies
from rgt.leak_probe.splits import IMAGES, Chunk, Source, read_item

_SAMPLE = 20_000  # rows that frequencies and spreads are taken from
_HEAD = 2_000  # first rows of the largest split, for the kinds of its columns
_ID = re.compile(
    r"(unnamed: ?\d+|index|idx|row|row_?(no|num|number)|key|guid|uuid|hash|(.*[_ .-])?id|[a-z]+ID|[a-z]+Id)?"
)
_GROUP = re.compile(
    r"(?i)(.*[_ .-])?(patient|subject|speaker|user|session|group|client|customer|participant|person|study|scan|case|"
    r"author|household|video|recording|series|family|donor|site)s?([_ .-]?(id|no|num|number|name|key|code))?"
)
_EACH = 4096  # bytes of a sampled text
_NUMERIC = 0.95  # share of a column's cells


@dataclass
class Items:
    """A piece of a split, or all of it, brought to numbers. An item whose `exact` is 0 is blank."""

    source: Source
    exact: Array
    bits: Array
    places: Array
    files: Array
    columns: dict[str, Array] = field(default_factory=dict)  # hashes of the group columns
    times: list[Any] = field(default_factory=list)
    problems: list[tuple[str, str, str]] = field(default_factory=list)  # place, code, sentence
    near_bits: Array | None = None
    # what near-duplicates are found by
    texts: Sketch | None = None
    numbers: Array | None = None
    extra: Array | None = None  # hash of the columns that are no numbers
    pictures: Array | None = None
    pictured: Array | None = None  # the items that the pictures are of

    def __len__(self) -> int:
        return len(self.exact)

    def place(self, item: int) -> str:
        return self.source.place(int(self.places[item]), int(self.files[item]))

    @classmethod
    def join(cls, parts: list[Items]) -> Items:
        arrays: dict[str, Any] = {}
        for name in "exact bits places files near_bits numbers extra pictures pictured".split():
            some = [getattr(part, name) for part in parts]
            arrays[name] = None if some[0] is None else np.concatenate(some)
        columns = {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns}
        times, problems = ([each for part in parts for each in getattr(part, name)] for name in ("times", "problems"))
        sketches = [part.texts for part in parts if part.texts is not None]
        texts = Sketch.join(sketches) if sketches else None
        return cls(parts[0].source, columns=columns, times=times, problems=problems, texts=texts, **arrays)


@dataclass
class Schema:
    """How items are compared; made once from a sample of all splits."""

    near: str  # text | numbers | files | none
    used: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    numeric: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    frequencies: dict[str, Frequencies] = field(default_factory=dict)
    scales: Scales | None = None
    common: Array = field(default_factory=lambda: np.zeros(0, dtype=bool))
    lacking: dict[str, list[str]] = field(default_factory=dict)  # split -> columns that only others have
    width: int = 0  # of arrays

    def encode(self, source: Source, chunk: Chunk, time: str | None = None) -> Items:
        size = chunk.size
        files = np.full(size, chunk.file, dtype=np.int32)
        out = Items(source, np.zeros(size, np.uint64), np.zeros(size, np.float32), chunk.places, files)
        if chunk.paths:
            found = [read_item(path) for path in chunk.paths]
            out.exact[:] = [content.exact for content in found]
            out.bits[:] = [content.bits for content in found]
            out.texts = sketch([content.text for content in found])
            shown = [at for at, content in enumerate(found) if content.picture is not None and content.bits > 0]
            out.pictured = chunk.places[shown]  # in a folder, the place of an item is its number
            out.pictures = np.array([found[at].picture for at in shown], np.uint8).reshape(-1, SIDE, SIDE)
            out.problems = [(str(p), *c.problem) for p, c in zip(chunk.paths, found, strict=True) if c.problem]
        elif chunk.matrix is not None:
            out.numbers, out.extra = chunk.matrix, np.zeros(size, dtype=np.uint64)
            if chunk.matrix.shape[1] != self.width:
                widths = f"rows of {chunk.matrix.shape[1]} and of {self.width} numbers"
                raise bad_input(f"{widths} differ; expected one shape")
            seeds = normal.mix(np.arange(1, self.width + 1, dtype=np.uint64))
            for column, seed in zip(chunk.matrix.T, seeds, strict=True):
                out.exact += normal.mix(normal.number_hashes(column) ^ seed)  # wraps around, as arrays do
            for name, known in self.frequencies.items():
                out.bits += known.bits(normal.number_hashes(chunk.matrix[:, int(name)])).astype(np.float32)
        else:
            self._encode_columns(out, chunk.columns)
            out.times = list(chunk.columns.get(time, [None] * size)) if time else []
        if out.numbers is not None and self.scales is not None:
            out.near_bits = self.scales.bits(out.numbers)
        return out

    def _encode_columns(self, out: Items, columns: dict[str, list[Any]]) -> None:
        size = len(out)
        texts: list[list[bytes]] = []
        floats = []
        extra = np.zeros(size, dtype=np.uint64)
        filled = np.zeros(size, dtype=bool)
        for name in dict.fromkeys([*self.used, *self.groups]):
            values = columns.get(name, [None] * size)
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
            out.exact += term  # wraps around, as arrays do
            if name in self.numeric:
                floats.append(numbers)
            else:
                extra += term
            filled |= hashes != 0
            bits = self.frequencies[name].bits(hashes)
            if name in self.text:  # a few words are never sure, however rare here
                bits = np.where([not normal.is_short(each) for each in texts[-1]], SURE, np.minimum(bits, 8.0))
            out.bits += bits.astype(np.float32)
        out.exact[~filled] = 0
        if texts:
            out.texts = sketch([b" ".join(row) for row in zip(*texts, strict=True)])
        elif floats:
            out.numbers, out.extra = np.stack(floats, axis=1), extra


# -- from a sample


@dataclass
class Sample:
    """At most twice _SAMPLE rows, evenly spread over what was read."""

    source: Source
    columns: dict[str, list[Any]] = field(default_factory=dict)
    rows: list[Array] = field(default_factory=list)
    size: int = 0
    seen: int = 0

    def read(self, head: int | None) -> Sample:
        per_item = max(1, self.source.bytes // 50 // _SAMPLE)  # guesses 50 bytes a row; only the size depends on it
        for chunk in self.source.chunks():
            self.seen += chunk.size
            step = 1 if head or self.seen < 2 * _SAMPLE else per_item
            taken = len(range(0, chunk.size, step))
            if chunk.matrix is not None:
                self.rows.append(chunk.matrix[::step])
            for name in dict.fromkeys([*self.columns, *chunk.columns]):
                values = chunk.columns.get(name)
                column = self.columns.setdefault(name, [None] * self.size)
                column.extend(values[::step] if values else [None] * taken)
            self.size += taken
            if head and self.seen >= head:
                break
        return self


def fit(sources: list[Source], group: tuple[str, ...], time: str | None) -> Schema:
    """Reads the smaller splits whole, the largest in part. `sources` come smallest first."""
    if sources[0].kind == "files":
        parts = [
            part for source in (sources[0], sources[-1]) for part in source.parts[:: len(source.parts) // 1000 + 1]
        ]
        plain = (part for part in parts if part.suffix.lower() not in IMAGES)
        return Schema("files", common=_common([text for part in plain if (text := read_item(part).text)]))
    samples = [Sample(source).read(_HEAD if source is sources[-1] else None) for source in sources]
    pairs = max(1.0, sources[-1].bytes // 20)
    for sample in samples[:-1]:
        pairs *= max(1, sample.seen)
    if sources[0].kind != "array":
        return _fit_columns(samples, pairs, group, time)
    rows = np.concatenate(samples[0].rows)
    width = rows.shape[1]
    if samples[0].size < _HEAD and all(part.shape[1] == width for part in samples[-1].rows):
        rows = np.concatenate([rows, *samples[-1].rows])
    measured = np.random.default_rng(0).choice(width, min(width, 64), replace=False)
    frequencies = {str(c): Frequencies.of(normal.number_hashes(rows[:, c])) for c in measured}
    return Schema("numbers", width=width, frequencies=frequencies, scales=Scales.of(rows, pairs))


def _common(texts: list[bytes]) -> Array:
    step = max(1, len(texts) // (2 * _SAMPLE))
    return common_table(sketch([text[:_EACH] for text in texts[::step]]))


def _fit_columns(samples: list[Sample], pairs: float, group: tuple[str, ...], time: str | None) -> Schema:
    names = [name for name in samples[0].columns if all(name in sample.columns for sample in samples)]
    for option, name in [*(("--group", name) for name in group), *([("--time", time)] if time else [])]:
        for sample in samples:
            if name not in sample.columns:
                have = ", ".join(sample.columns)[:200]
                raise bad_input(f"{option} {name}: {sample.source.path} has no such column; it has {have}")
    if not names:
        have = "; ".join(f"{sample.source.name}: {', '.join(sample.columns)[:100]}" for sample in samples)
        raise bad_input(f"the splits have no column name in common ({have}); rename them or add a header line")
    kinds = {name: _column_kind(name, [sample.columns[name] for sample in samples]) for name in names}
    used = [name for name in names if kinds[name] != "id" and name not in group]
    if not used:
        shown = ", ".join(names)[:200]
        raise bad_input(f"every column that the splits share looks like an id ({shown}); nothing to compare")
    text, numeric = ([name for name in used if kinds[name] == kind] for kind in ("text", "number"))
    groups = [*group, *(name for name in names if name not in group and _GROUP.fullmatch(name))]
    near = "text" if text else "numbers" if numeric else "none"
    schema = Schema(near, used, [name for name in names if name not in used], text, numeric, groups)
    anywhere = {name for sample in samples for name in sample.columns}
    schema.lacking = {sample.source.name: sorted(anywhere - set(sample.columns)) for sample in samples}
    # frequencies and spreads; from a small split alone they would be too coarse
    every = {name: [value for sample in samples for value in sample.columns[name]] for name in used}
    chosen = every if samples[0].size < _HEAD else samples[0].columns
    for name in used:
        values = [normal.cell_text(v) for v in chosen[name]] if name in text else chosen[name]
        schema.frequencies[name] = Frequencies.of(normal.cells(values)[0])
    if text:
        words = zip(*(every[name] for name in text), strict=True)
        schema.common = _common([normal.text(" ".join(normal.cell_text(v) for v in row)) for row in words])
    elif numeric:
        columns = [normal.cells(chosen[name])[1] for name in numeric]
        schema.scales = Scales.of(np.stack(columns, axis=1), pairs)
    return schema


def _column_kind(name: str, samples: list[list[Any]]) -> str:
    if _ID.fullmatch(name) or _ID.fullmatch(name.lower()):
        return "id"
    values = [value for sample in samples for value in sample[:_HEAD] if value not in (None, "")]
    if not values:
        return "category"
    if sum(normal.to_number(value) is not None for value in values) >= _NUMERIC * len(values):
        # 0, 1, 2, ... whatever it is called: a number that rises by one from row to row
        heads = [[normal.to_number(value) for value in sample[:_HEAD]] for sample in samples]
        rising = (
            len(head) > 10 and all(a is not None and b is not None and b - a == 1 for a, b in itertools.pairwise(head))
            for head in heads
        )
        return "id" if all(rising) else "number"
    words = [normal.cell_text(value) for value in values]
    long = sum(len(word) for word in words) / len(words) >= 30
    spaced = sum(word.count(" ") + 1 for word in words) / len(words) >= 4
    return "text" if long or spaced else "category"
