"""What the columns of the splits are, and a piece of a split as hashes, texts, numbers and pictures.

Columns are matched by name, and only those that every split has are compared. Ids and running numbers are left out:
a copied row gets a new id. Text columns decide near-duplicates where there are any, numbers where there are none.
"""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass, field
from typing import Any

from rgt.errors import bad_input
from rgt.leak_probe import normal
from rgt.leak_probe.near_duplicates import SIDE, Scales, Sketch, common_table, sketch
from rgt.leak_probe.normal import ALLOWED, SURE, Array, Frequencies
from rgt.leak_probe.splits import IMAGES, ROWS, Chunk, Source, read_item

import numpy as np

_HEAD = 2_000  # rows that the kind of a column is taken from
_MEASURED = 64  # columns of an array that the surprise of a row is measured on
_ID = re.compile(
    r"(unnamed: ?\d+|index|idx|row|row_?(no|num|number)|key|guid|uuid|hash|(.*[_ .-])?id|[a-z]+ID|[a-z]+Id)?"
)
_GROUP = re.compile(
    r"(?i)(.*[_ .-])?(patient|subject|speaker|user|session|group|client|customer|participant|person|study|scan|case|"
    r"author|household|video|recording|series|family|donor|site)s?([_ .-]?(id|no|num|number|name|key|code))?"
)
_VALUES, _LABELS = 20, 16  # of a label; labels of one table
_CODE = re.compile(r"(?=.*\d)([0-9a-fA-F-]{8,}|[A-Za-z]{0,6}[-_#]?\d{3,})")  # a number or a hash that names a row
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
    problems: list[tuple[str, str, str]] = field(default_factory=list)  # place, code, sentence
    near_bits: Array | None = None
    # what near-duplicates are found by
    texts: Sketch | None = None
    numbers: Array | None = None
    extra: Array | None = None  # hash of the columns that are no numbers
    pictures: Array | None = None
    pictured: Array | None = None  # the items that the pictures are of
    rests: Array | None = None  # of each label: the hash of all other columns, where these say enough; else random

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
        problems = [each for part in parts for each in part.problems]
        if parts[0].rests is not None:
            arrays["rests"] = np.concatenate([part.rests for part in parts if part.rests is not None], axis=1)
        sketches = [part.texts for part in parts if part.texts is not None]
        texts = Sketch.join(sketches) if sketches else None
        return cls(parts[0].source, columns=columns, problems=problems, texts=texts, **arrays)


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
    labels: list[str] = field(default_factory=list)  # columns of a few values: the one in which a copy may differ
    alone: float = 0.0  # bits at which all other columns are no coincidence
    lacking: dict[str, list[str]] = field(default_factory=dict)  # split -> columns that only others have

    def encode(self, source: Source, chunk: Chunk) -> Items:
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
        else:
            self._encode_columns(out, chunk.columns)
        if out.numbers is not None and self.scales is not None:
            out.near_bits = self.scales.bits(out.numbers)
        return out

    def _encode_columns(self, out: Items, columns: dict[str, list[Any] | Array]) -> None:
        size = len(out)
        texts: list[list[bytes]] = []
        floats = []
        extra = np.zeros(size, dtype=np.uint64)
        filled = np.zeros(size, dtype=bool)
        terms: list[tuple[Array, Array]] = []  # of each label, its part of `exact` and its bits
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
            if name not in self.frequencies:
                continue
            bits = self.frequencies[name].bits(hashes)
            if name in self.text:  # a few words are never sure, however rare here
                bits = np.where([not normal.is_short(each) for each in texts[-1]], SURE, np.minimum(bits, 8.0))
            out.bits += bits.astype(np.float32)
            if name in self.labels:
                terms.append((term, bits))
        out.rests = self._rests(out, terms) if terms else None
        out.exact[~filled] = 0
        if texts:
            out.texts = sketch([b" ".join(row) for row in zip(*texts, strict=True)])
        elif floats:
            out.numbers, out.extra = np.stack(floats, axis=1), extra

    def _rests(self, out: Items, terms: list[tuple[Array, Array]]) -> Array:
        own = normal.digest(out.source.name.encode()) ^ (out.files.astype(np.uint64) << np.uint64(40))
        unlike = normal.mix(out.places.astype(np.uint64) ^ own)  # equal to no other's
        enough = np.stack([out.bits - bits >= self.alone for _, bits in terms])
        return np.where(enough, np.stack([out.exact - term for term, _ in terms]), unlike)


# -- from the first piece of each split


def fit(sources: list[Source], group: tuple[str, ...]) -> Schema:
    """`sources` come smallest first."""
    if sources[0].kind == "files":
        parts = [part for s in (sources[0], sources[-1]) for part in s.parts[:: len(s.parts) // 1000 + 1]]
        plain = (part for part in parts if part.suffix.lower() not in IMAGES)
        return Schema("files", common=_common([words for part in plain if (words := read_item(part).text)]))
    firsts = [next(source.chunks(), Chunk(np.zeros(0))) for source in sources]
    names = [name for name in firsts[0].columns if all(name in first.columns for first in firsts)]
    for name in group:
        for source, first in zip(sources, firsts, strict=True):
            if name not in first.columns:
                have = ", ".join(first.columns)[:200]
                raise bad_input(f"--group {name}: {source.path} has no such column; it has {have}")
    if not names:
        shown = (f"{s.name}: {', '.join(first.columns)[:100]}" for s, first in zip(sources, firsts, strict=True))
        raise bad_input(f"the splits have no column name in common ({'; '.join(shown)}); rename them or add a header")
    kinds = {name: _column_kind(name, [first.columns[name] for first in firsts]) for name in names}
    used = [name for name in names if kinds[name] != "id" and name not in group]
    if not used:
        shown_names = ", ".join(names)[:200]
        raise bad_input(f"every column that the splits share looks like an id ({shown_names}); nothing to compare")
    text, numeric = ([name for name in used if kinds[name] == kind] for kind in ("text", "number"))
    groups = [*group, *(name for name in names if name not in group and _GROUP.fullmatch(name))]
    near = "text" if text else "numbers" if numeric else "none"
    schema = Schema(near, used, [name for name in names if name not in used], text, numeric, groups)
    anywhere = {name for first in firsts for name in first.columns}
    schema.lacking = {s.name: sorted(anywhere - {*first.columns}) for s, first in zip(sources, firsts, strict=True)}
    if sources[0].kind == "array" and len(anywhere) > len(names):
        widths = " and of ".join(str(len(first.columns)) for first in firsts)
        raise bad_input(f"rows of {widths} numbers differ; expected one shape")
    sizes = [f.size if f.size < ROWS else s.bytes // 20 for s, f in zip(sources, firsts, strict=True)]
    pairs = float(math.prod(map(float, sizes)))
    schema.alone = math.log2(max(1.0, pairs) / ALLOWED)
    _measure(schema, sources, firsts, pairs)
    few = [name for name, one in schema.frequencies.items() if name not in text and len(one.values) <= _VALUES]
    schema.labels = few if len(used) > 1 and len(few) <= _LABELS else []
    return schema


def _measure(schema: Schema, sources: list[Source], firsts: list[Chunk], pairs: float) -> None:
    """Frequencies and spreads, of the smallest split; from a few rows alone they would be too coarse."""
    chosen = firsts if firsts[0].size < _HEAD else firsts[:1]
    measured = schema.used[:: len(schema.used) // _MEASURED + 1] if sources[0].kind == "array" else schema.used
    for name in measured:
        values = _joined(chosen, name)
        words = [normal.cell_text(value) for value in values] if name in schema.text else values
        schema.frequencies[name] = Frequencies.of(normal.cells(words)[0])
    if schema.text:
        rows = zip(*(_joined(firsts, name) for name in schema.text), strict=True)
        schema.common = _common([normal.text(" ".join(normal.cell_text(v) for v in row)) for row in rows])
    elif schema.numeric:
        columns = [normal.cells(_joined(chosen, name))[1] for name in schema.numeric]
        schema.scales = Scales.of(np.stack(columns, axis=1), pairs)


def _joined(chunks: list[Chunk], name: str) -> list[Any] | Array:
    parts = [chunk.columns[name] for chunk in chunks]
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else list(itertools.chain(*parts))


def _common(texts: list[bytes]) -> Array:
    step = max(1, len(texts) // (2 * ROWS))
    return common_table(sketch([text[:_EACH] for text in texts[::step]]))


def _column_kind(name: str, samples: list[list[Any] | Array]) -> str:
    if isinstance(samples[0], np.ndarray):
        return "number"
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
    if len({*words}) == len(words) > 10 and all(_CODE.fullmatch(word) for word in words):
        return "id"
    long = sum(len(word) for word in words) / len(words) >= 30
    spaced = sum(word.count(" ") + 1 for word in words) / len(words) >= 4
    return "text" if long or spaced else "category"
