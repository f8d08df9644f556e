"""Markdown, reStructuredText and plain text: paragraphs, pipe tables, grid and simple tables."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path

from mentions.passages import Block, Cell, Passage, Table, plain
from mentions.readers import html, layouts, text_of

_FENCE = re.compile(r" {0,3}(```+|~~~+)\s*([\w+-]*)")
_OUTPUTS = frozenset(
    ["", "text", "txt", "console", "output", "none", "markdown", "md", "log"]
)  # what a fence may show as words
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


def read(path: Path) -> Iterator[Block]:
    return blocks(plain(text_of(path)))


def blocks(text: str, first_line: int = 1, where: str = "") -> Iterator[Block]:
    lines = text.splitlines()
    state = _State(first_line, where)
    index = 0
    while index < len(lines):
        taken = _table(lines, index, state) or _markup_table(lines, index, state)
        if taken:
            yield from state.flush()
            yield from taken[1]
            state.last = ""
            index += taken[0]
            continue
        yield from state.take(lines[index], index)
        index += 1
    yield from state.flush()


class _State:
    """The paragraph being gathered, the heading it stands under, and whether we are inside a fence."""

    def __init__(self, first_line: int, where: str) -> None:
        self.first_line, self.where = first_line, where
        self.gathered: list[str] = []
        self.start = 0
        self.heading = self.last = ""
        self.below = ""  # the caption that stood behind the last table
        self.fence: str | None = None
        self.skipping = False

    def take(self, line: str, index: int) -> Iterator[Passage]:
        fence = _FENCE.match(line)
        if self.fence is not None:
            if fence and fence[1].startswith(self.fence):
                yield from self.flush()
                self.fence = None
            elif not self.skipping:
                yield from self.single(line, index)
            return
        if fence:
            yield from self.flush()
            self.fence, self.skipping = fence[1][:3], fence[2].lower() not in _OUTPUTS
            return
        heading = _HEADING.match(line)
        if heading or (self.gathered and len(self.gathered) == 1 and _UNDERLINE.match(line)):
            yield from self.head(heading[1] if heading else self.gathered.pop(), index if heading else index - 1)
        elif not line.strip():
            yield from self.flush()
        elif _LOG.match(line):
            yield from self.flush()  # a line of a training log is no statement about the result
        else:
            if _ITEM.match(line):
                yield from self.flush()
            if not self.gathered:
                self.start = index
            self.gathered.append(line)

    def head(self, title: str, index: int) -> Iterator[Passage]:
        yield from self.flush()
        self.heading = title
        yield Passage(title, self.first_line + index, "", self.where)

    def single(self, line: str, index: int) -> Iterator[Passage]:
        if line.strip() and not _LOG.match(line):
            yield Passage(line, self.first_line + index, self.heading, self.where)

    def flush(self) -> Iterator[Passage]:
        if self.gathered:
            self.last = "\n".join(self.gathered)
            self.gathered = []
            yield Passage(self.last, self.first_line + self.start, self.heading, self.where)


Taken = tuple[int, list[Block]]


def _table(lines: list[str], index: int, state: _State) -> Taken | None:
    if state.fence is not None:
        return None
    line = lines[index]
    if (
        "|" in line
        and index + 1 < len(lines)
        and "-" in lines[index + 1]
        and "|" in lines[index + 1]
        and _RULE.match(lines[index + 1])
    ):
        return _pipe_table(lines, index, state)
    if _GRID.match(line):
        return _grid_table(lines, index, state)
    if _SIMPLE.match(line):
        return _simple_table(lines, index, state)
    found = layouts.find(lines, index, state.first_line) if not state.gathered else None
    if found:
        return _build(found.rows, found.header, found.end, lines, state, found.end - index, found.caption)
    return None


def _build(
    rows: list[list[Cell]], header: int, end: int, lines: list[str], state: _State, used: int, caption: str = ""
) -> Taken:
    before = " ".join(state.gathered) or state.last
    if state.below and before.startswith(state.below):
        before = ""  # it was the caption of the table above it
    directive = re.match(r"\s*\.\. table::\s*(.*)", before)
    if directive or re.match(r"\W*(?:table|tab\.|表)", before, re.I):
        caption = caption or (directive[1] if directive else before)
    below, behind, *_ = [*(line.strip() for line in lines[end : end + 5] if line.strip()), "", ""]
    state.below = below if not caption and _BELOW.match(below) and not _DRAWN.match(behind) else ""
    return used, [Table(rows, header, caption or state.below, state.heading, state.where, before)]


def _pipe_table(lines: list[str], index: int, state: _State) -> Taken:
    rows = []
    end = index
    while end < len(lines) and "|" in lines[end]:
        if end != index + 1:
            rows.append([Cell(cell.strip(), state.first_line + end) for cell in _cells(lines[end])])
        end += 1
    return _build(rows, 1, end, lines, state, end - index)


def _cells(line: str) -> list[str]:
    line = line.strip()
    line = line[1:] if line.startswith("|") else line
    line = line[:-1] if line.endswith("|") and not line.endswith("\\|") else line
    return _SPLIT.split(line)


def _grid_table(lines: list[str], index: int, state: _State) -> Taken | None:
    rows: list[list[Cell]] = []
    header, end = 0, index
    while end < len(lines) and (_GRID.match(lines[end]) or lines[end].lstrip().startswith("|")):
        if _GRID.match(lines[end]):
            header = len(rows) if "=" in lines[end] else header
        else:
            rows.append([Cell(cell.strip(), state.first_line + end) for cell in _cells(lines[end])])
        end += 1
    return _build(rows, header or 1, end, lines, state, end - index) if rows else None


def _simple_table(lines: list[str], index: int, state: _State) -> Taken | None:
    columns = [match.span() for match in re.finditer(r"=+", lines[index])]
    rows: list[list[Cell]] = []
    header, end, rules = 0, index + 1, 1
    while end < len(lines) and lines[end].strip():
        if _SIMPLE.match(lines[end]):
            rules += 1
            header = len(rows) if rules == 2 else header
        else:
            rows.append([Cell(part.strip(), state.first_line + end) for part in _slices(lines[end], columns)])
        end += 1
    return _build(rows, header or 1, end, lines, state, end - index) if rows and rules > 1 else None


def _slices(line: str, columns: list[tuple[int, int]]) -> list[str]:
    starts = [start for start, _ in columns]
    if not line.isascii():  # a Chinese character is two columns wide
        line = "".join(f"{char}\0" if unicodedata.east_asian_width(char) in "WF" else char for char in line)
    return [line[start:stop].replace("\0", "") for start, stop in zip(starts, [*starts[1:], None], strict=True)]


def _markup_table(lines: list[str], index: int, state: _State) -> Taken | None:
    """HTML inside Markdown, up to its closing tag."""
    if state.fence is not None or not _TABLE_TAG.match(lines[index]):
        return None
    end = index
    while end < len(lines) and "</table" not in lines[end].lower():
        end += 1
    inside = "\n".join(lines[index : end + 1])
    return end + 1 - index, list(html.blocks(inside, state.first_line + index, state.where, state.heading))
