"""CSV and TSV: one table. A curve (a column of steps or epochs) is data, not a report, and is left alone."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

from mentions.passages import Block, Cell, Table, plain
from mentions.readers import text_of
from rgt.errors import bad_input

_AXES = frozenset(
    [
        "step",
        "steps",
        "epoch",
        "epochs",
        "iter",
        "iteration",
        "global_step",
        "_step",
        "time",
        "timestamp",
        "_timestamp",
        "wall_time",
    ]
)
_THOUSANDS, _REST = re.compile(r"[1-9]\d{0,2}"), re.compile(r"\d{3}(?:\.\d+)?(?: ?±.*)?")
_LARGEST_FIELD = 2**20


def read(path: Path) -> Iterator[Block]:
    text = plain(text_of(path))
    csv.field_size_limit(_LARGEST_FIELD)
    first = text.split("\n", 1)[0]
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=first.count)
    try:
        rows = [row for row in _rows(text, delimiter) if any(cell.text for cell in row)]
    except csv.Error as error:
        raise bad_input(f"{path} is not a table of values: {error}") from None
    rows = [row for row in (_mended(row, len(rows[0])) for row in rows) if row]
    if rows and not any(_is_axis(rows, index) for index in range(len(rows[0]))):
        yield Table(rows, 1)


def _mended(row: list[Cell], width: int) -> list[Cell]:
    """A row with more cells than the header: 41,093 without quotes is two. What stays too long is left out."""
    if len(row) <= width or not any(cell.text for cell in row[width:]):
        return row[:width]
    places = [i for i in range(len(row) - 1) if _THOUSANDS.fullmatch(row[i].text) and _REST.fullmatch(row[i + 1].text)]
    if len(row) - len(places) != width:
        return []
    return [
        Cell(f"{cell.text},{row[i + 1].text}", cell.line) if i in places else cell
        for i, cell in enumerate(row)
        if i - 1 not in places
    ]


def _is_axis(rows: list[list[Cell]], index: int) -> bool:
    """A column of steps makes a curve; one of settings (epochs: 90, 90, 200) repeats itself, beside names."""
    if rows[0][index].text.strip().lower() not in _AXES:
        return False
    values = [row[index].text for row in rows[1:] if index < len(row)]
    if len(values) > 3:
        return 2 * len(set(values)) >= len(values)
    return not any(cell.text[:1].isalpha() for row in rows[1:] for cell in row)


def _rows(text: str, delimiter: str) -> Iterator[list[Cell]]:
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    line = 1
    for row in reader:
        yield [Cell(cell.strip(), line) for cell in row]
        line = reader.line_num + 1
