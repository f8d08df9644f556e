"""Tables that plain text and reStructuredText draw without rules: columns kept apart by tabs or spaces, directives."""

from __future__ import annotations

import csv
import re
from typing import NamedTuple

from mentions.passages import Cell

_DIRECTIVE = re.compile(r"(\s*)\.\. (list-table|csv-table)::\s*(.*)")
_OPTION = re.compile(r"\s+:([\w-]+):\s*(.*)")
_GAP = re.compile(r" {2,}|\t")
_ITEM = re.compile(r"\s*(\* - |\* -$|- |-$)(.*)")
_NUMERIC = re.compile(r"[\W_]*[-+±]?\.?\d[\d.,]*\s*(?:%|[±(+].*)?$")


class Found(NamedTuple):
    rows: list[list[Cell]]
    header: int
    caption: str
    end: int  # the first line behind it


def find(lines: list[str], index: int, first_line: int) -> Found | None:
    line = lines[index]
    if line.lstrip().startswith(".. "):
        return _directive(lines, index, first_line)
    if "\t" in line or "  " in line.strip():
        return _aligned(lines, index, first_line)
    return None


def _aligned(lines: list[str], index: int, first_line: int) -> Found | None:
    """A line of words over at least two lines that each have numbers, all with as many columns."""
    end = index
    while end < len(lines) and lines[end].strip() and ("\t" in lines[end] or "  " in lines[end].strip()):
        end += 1
    split = [_columns(line) for line in lines[index:end]]
    if len(split) < 3 or any(_NUMERIC.match(cell) for cell in split[0]):
        return None
    width = max(map(len, split))
    if len(split[0]) == width - 1:
        split[0].insert(0, "")  # the corner is often left empty
    body = [cells for cells in split[1:] if any(_NUMERIC.match(cell) for cell in cells)]
    if width < 2 or len(body) < 2 or any(len(cells) != width for cells in split[:1] + body):
        return None
    return Found([[Cell(c, first_line + index + i) for c in cells] for i, cells in enumerate(split)], 1, "", end)


def _columns(line: str) -> list[str]:
    if "\t" in line:
        return [cell.strip() for cell in line.split("\t")]
    return _GAP.split(line.strip())


def _directive(lines: list[str], index: int, first_line: int) -> Found | None:
    match = _DIRECTIVE.match(lines[index])
    if not match:
        return None
    end = index + 1
    options: dict[str, str] = {}
    while end < len(lines) and (option := _OPTION.match(lines[end])):
        options[option[1]] = option[2]
        end += 1
    start = end
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith(match[1] + "  ")):
        end += 1
    body = [(first_line + number, lines[number]) for number in range(start, end) if lines[number].strip()]
    names = [(first_line + index, options["header"])] if "header" in options else []
    try:
        rows = _listed(body) if match[2] == "list-table" else _comma_separated([*names, *body])
    except csv.Error:
        return None
    header = options.get("header-rows", "1")
    return Found(rows, int(header) if header.isdigit() else 1, match[3], end) if rows else None


def _comma_separated(body: list[tuple[int, str]]) -> list[list[Cell]]:
    parsed = ((at, next(csv.reader([line.strip()], skipinitialspace=True))) for at, line in body)
    return [[Cell(cell.strip(), at) for cell in cells] for at, cells in parsed]


def _listed(body: list[tuple[int, str]]) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for at, line in body:
        item = _ITEM.match(line)
        if item and item[1].startswith("*"):
            rows.append([])
        if item and rows:
            rows[-1].append(Cell(item[2].strip(), at))
        elif rows and rows[-1]:
            rows[-1][-1].text += " " + line.strip()
    return rows
