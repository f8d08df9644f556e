"""Markdown, reStructuredText and plain text: paragraphs, and tables as pipes, grids, directives or aligned columns."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rgt.reconcile.html_reader import html_blocks
from rgt.reconcile.passages import Block, Cell, Passage, Table, plain, text_of

_FENCE = re.compile(r" {0,3}(```+|~~~+)\s*([\w+-]*)")
_OUTPUTS = frozenset(["", *"text txt console output none markdown md log".split()])  # a fence that shows words
_HEADING = re.compile(r" {0,3}#{1,6}\s+(.*)")
_RULE = re.compile(r"\s*\|?\s*:?-{1,}:?\s*(\|\s*:?-{1,}:?\s*)*\|?\s*$")
_UNDERLINE = re.compile(r"([=\-~^\"'*#])\1{2,}\s*$")
_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_GRID = re.compile(r"\s*\+[-=+]+\+\s*$")
_SIMPLE = re.compile(r"\s*=+( +=+)+\s*$")
_SPLIT = re.compile(r"(?<!\\)\|")
_LOG = re.compile(r"\s*\[?(?:step|epoch|iter(?:ation)?|it|global_step)\W{0,3}\d+|.{0,40}\d+it/s", re.I)
_BELOW = re.compile(r"\W*(?:table|tab\.|表)|:|([*_]{1,2})[^*_\s][^*]*\1$", re.I)
_DRAWN = re.compile(r"[|+=]|.*(?:\t|\S {2,}\S)|\.\. \w+-table::")  # another table: what is before it is its own
_TABLE_TAG = re.compile(r"\s*<table", re.I)
_DIRECTIVE = re.compile(r"(\s*)\.\. (list-table|csv-table)::\s*(.*)")
_OPTION = re.compile(r"\s+:([\w-]+):\s*(.*)")
_LISTED = re.compile(r"\s*(\* - |\* -$|- |-$)(.*)")
_NUMERIC = re.compile(r"[\W_]*[-+±]?\.?\d[\d.,]*\s*(?:%|[±(+].*)?$")


def read_markdown(path: Path) -> Iterator[Block]:
    return markdown_blocks(plain(text_of(path)))


def markdown_blocks(text: str, first_line: int = 1, where: str = "") -> Iterator[Block]:
    lines = text.splitlines()
    state = _State(first_line, where)
    index = 0
    while index < len(lines):
        length, blocks = _table(lines, index, state) or (1, None)
        if blocks is None:
            yield from state.take(lines[index], index)
        else:
            yield from (*state.flush(), *blocks)
            state.last = ""
        index += length
    yield from state.flush()


class _State:
    """The paragraph being gathered, the heading it stands under, and whether we are inside a fence."""

    def __init__(self, first_line: int, where: str) -> None:
        self.first_line, self.where = first_line, where
        self.gathered: list[str] = []
        self.start, self.skipping = 0, False
        self.heading = self.last = self.below = ""  # below: the caption that stood behind the last table
        self.fence: str | None = None

    def take(self, line: str, index: int) -> Iterator[Passage]:
        fence = _FENCE.match(line)
        if self.fence is not None:
            if fence and fence[1].startswith(self.fence):
                yield from self.flush()
                self.fence = None
            elif not self.skipping and line.strip() and not _LOG.match(line):
                yield Passage(line, self.first_line + index, self.heading, self.where)
            return
        heading = None if fence else _HEADING.match(line)
        underlined = not fence and len(self.gathered) == 1 and _UNDERLINE.match(line)
        if fence:
            yield from self.flush()
            self.fence, self.skipping = fence[1][:3], fence[2].lower() not in _OUTPUTS
        elif heading or underlined:
            title, at = (heading[1], index) if heading else (self.gathered.pop(), index - 1)
            yield from self.flush()
            self.heading = title
            yield Passage(title, self.first_line + at, "", self.where)
        elif not line.strip() or _LOG.match(line):  # a line of a training log states no result
            yield from self.flush()
        else:
            if _ITEM.match(line):
                yield from self.flush()
            if not self.gathered:
                self.start = index
            self.gathered.append(line)

    def flush(self) -> Iterator[Passage]:
        if self.gathered:
            self.last = "\n".join(self.gathered)
            self.gathered = []
            yield Passage(self.last, self.first_line + self.start, self.heading, self.where)


# -- tables


class _Drawn(NamedTuple):
    rows: list[list[Cell]]
    header: int
    end: int  # the first line behind it
    caption: str = ""


def _table(lines: list[str], index: int, state: _State) -> tuple[int, list[Block]] | None:
    """The table that starts at this line: how many lines it has, and its blocks."""
    if state.fence is not None:
        return None
    line, first = lines[index], state.first_line
    if _TABLE_TAG.match(line):  # HTML inside Markdown, up to its closing tag
        end = index
        while end < len(lines) and "</table" not in lines[end].lower():
            end += 1
        inside = "\n".join(lines[index : end + 1])
        return end + 1 - index, list(html_blocks(inside, first + index, state.where, state.heading))
    drawn = None
    rule = lines[index + 1] if index + 1 < len(lines) else ""
    if "|" in line and "-" in rule and "|" in rule and _RULE.match(rule):
        end = next((at for at in range(index, len(lines)) if "|" not in lines[at]), len(lines))
        rows = [_pipe_cells(lines[at], first + at) for at in range(index, end) if at != index + 1]
        drawn = _Drawn(rows, 1, end)
    elif _GRID.match(line):
        drawn = _grid_table(lines, index, first)
    elif _SIMPLE.match(line):
        drawn = _simple_table(lines, index, first)
    elif not state.gathered and line.lstrip().startswith(".. "):
        drawn = _directive(lines, index, first)
    elif not state.gathered and ("\t" in line or "  " in line.strip()):
        drawn = _aligned(lines, index, first)
    if drawn is None:
        return None
    before = " ".join(state.gathered) or state.last
    if state.below and before.startswith(state.below):
        before = ""  # it was the caption of the table above it
    caption = drawn.caption
    directive = re.match(r"\s*\.\. table::\s*(.*)", before)
    if directive or re.match(r"\W*(?:table|tab\.|表)", before, re.I):
        caption = caption or (directive[1] if directive else before)
    below, behind, *_ = [*(near.strip() for near in lines[drawn.end : drawn.end + 5] if near.strip()), "", ""]
    state.below = below if not caption and _BELOW.match(below) and not _DRAWN.match(behind) else ""
    table = Table(drawn.rows, drawn.header, caption or state.below, state.heading, state.where, before)
    return drawn.end - index, [table]


def _pipe_cells(line: str, at: int) -> list[Cell]:
    line = line.strip().removeprefix("|")
    line = line[:-1] if line.endswith("|") and not line.endswith("\\|") else line
    return [Cell(cell.strip(), at) for cell in _SPLIT.split(line)]


def _grid_table(lines: list[str], index: int, first_line: int) -> _Drawn | None:
    rows: list[list[Cell]] = []
    header, end = 0, index
    while end < len(lines) and (_GRID.match(lines[end]) or lines[end].lstrip().startswith("|")):
        if _GRID.match(lines[end]):
            header = len(rows) if "=" in lines[end] else header
        else:
            rows.append(_pipe_cells(lines[end], first_line + end))
        end += 1
    return _Drawn(rows, header or 1, end) if rows else None


def _simple_table(lines: list[str], index: int, first_line: int) -> _Drawn | None:
    starts = [match.start() for match in re.finditer(r"=+", lines[index])]
    rows: list[list[Cell]] = []
    header, end, rules = 0, index + 1, 1
    while end < len(lines) and lines[end].strip():
        line = lines[end]
        if _SIMPLE.match(line):
            rules += 1
            header = len(rows) if rules == 2 else header
        else:
            if not line.isascii():  # a Chinese character is two columns wide
                line = "".join(f"{char}\0" if unicodedata.east_asian_width(char) in "WF" else char for char in line)
            parts = [line[start:stop] for start, stop in zip(starts, [*starts[1:], None], strict=True)]
            rows.append([Cell(part.replace("\0", "").strip(), first_line + end) for part in parts])
        end += 1
    return _Drawn(rows, header or 1, end) if rows and rules > 1 else None


def _aligned(lines: list[str], index: int, first_line: int) -> _Drawn | None:
    """A line of words over at least two lines that each have numbers, all with as many columns."""
    end = index
    while end < len(lines) and lines[end].strip() and ("\t" in lines[end] or "  " in lines[end].strip()):
        end += 1
    split = [
        [cell.strip() for cell in line.split("\t")] if "\t" in line else re.split(" {2,}", line.strip())
        for line in lines[index:end]
    ]
    if len(split) < 3 or any(_NUMERIC.match(cell) for cell in split[0]):
        return None
    width = max(map(len, split))
    if len(split[0]) == width - 1:
        split[0].insert(0, "")  # the corner is often left empty
    body = [cells for cells in split[1:] if any(_NUMERIC.match(cell) for cell in cells)]
    if width < 2 or len(body) < 2 or any(len(cells) != width for cells in split[:1] + body):
        return None
    return _Drawn([[Cell(c, first_line + index + i) for c in cells] for i, cells in enumerate(split)], 1, end)


def _directive(lines: list[str], index: int, first_line: int) -> _Drawn | None:
    """list-table and csv-table of reStructuredText."""
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
    rows: list[list[Cell]] = []
    if match[2] == "csv-table":
        names = [(first_line + index, options["header"])] if "header" in options else []
        try:
            for at, line in [*names, *body]:
                cells = next(csv.reader([line.strip()], skipinitialspace=True))
                rows.append([Cell(cell.strip(), at) for cell in cells])
        except csv.Error:
            return None
    else:
        for at, line in body:
            item = _LISTED.match(line)
            if item and item[1].startswith("*"):
                rows.append([])
            if item and rows:
                rows[-1].append(Cell(item[2].strip(), at))
            elif rows and rows[-1]:
                rows[-1][-1].text += " " + line.strip()
    header = options.get("header-rows", "1")
    return _Drawn(rows, int(header) if header.isdigit() else 1, end, match[3]) if rows else None
