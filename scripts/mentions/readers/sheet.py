"""CSV and TSV: one table. A curve (a column of steps or epochs) is data, not a report, and is left alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path

from mentions.passages import Block, Cell, Table, plain
from mentions.readers import text_of
from rgt.errors import bad_input

_AXES = frozenset(
    "step steps epoch epochs iter iteration global_step _step time timestamp _timestamp wall_time".split()
)
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
    if rows and not any(cell.text.strip().lower() in _AXES for cell in rows[0]):
        yield Table(rows, 1)


def _rows(text: str, delimiter: str) -> Iterator[list[Cell]]:
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    line = 1
    for row in reader:
        yield [Cell(cell.strip(), line) for cell in row]
        line = reader.line_num + 1
