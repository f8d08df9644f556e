"""Markdown, plain text and HTML: paragraphs, and tables as pipes, aligned columns or <table>."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from rgt.reconcile.passages import Block, Cell, Passage, Table, plain, text_of

_FRONT = re.compile(r"---[ \t]*\n(.*?\n)---[ \t]*\n", re.S)
_FENCE = re.compile(r" {0,3}(```+|~~~+)\s*([\w+-]*)")
_OUTPUTS = frozenset(["markdown", "md"])  # a fence that shows a document; others show code or logs
_HEADING = re.compile(r" {0,3}#{1,6}\s+(.*)")
_RULE = re.compile(r"\s*\|?\s*:?-{1,}:?\s*(\|\s*:?-{1,}:?\s*)*\|?\s*$")
_UNDERLINE = re.compile(r"([=\-~^\"'*#])\1{2,}\s*$")
_ITEM = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_SPLIT = re.compile(r"(?<!\\)\|")
_LOG = re.compile(r"\s*\[?(?:step|epoch|iter(?:ation)?|it|global_step)\W{0,3}\d+|.{0,40}\d+it/s", re.I)
_TAG = re.compile(r"</?(?:b|i|em|strong|u|sup|sub|small|span|font|code|a)\b[^>]*>", re.I)
_TABLE_TAG = re.compile(r"\s*<table", re.I)
_NUMERIC = re.compile(r"[\W_]*[-+±]?\.?\d[\d.,]*\s*(?:%|[±(+].*)?$")


def read_markdown(path: Path) -> Iterator[Block]:
    text = plain(text_of(path))
    front = _FRONT.match(text)
    if front and "model-index" in front[0]:
        yield from _model_index(front[1])
        yield from markdown_blocks(text[front.end() :], 1 + text.count("\n", 0, front.end()))
    else:
        yield from markdown_blocks(text)


def _model_index(front: str) -> Iterator[Passage]:
    """The results that a model card lists for the hub, each as a sentence: "m, SST-2, test: accuracy 91.2"."""
    import yaml

    def entries(node: Any, key: str) -> list[Any]:
        """What stands under a key, as a list."""
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        inner = next((value for name, value in pairs if name.value == key), None)
        return inner.value if isinstance(inner, yaml.SequenceNode) else [inner] if inner is not None else []

    def word(node: Any, *keys: str) -> str:
        return next((found[0].value for key in keys if (found := entries(node, key)) and found[0].id == "scalar"), "")

    try:
        root = yaml.compose(front, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return
    for model in entries(root, "model-index"):
        for result in entries(model, "results"):
            data = " ".join(f"{word(one, 'name', 'type')} {word(one, 'split')}" for one in entries(result, "dataset"))
            for metric in entries(result, "metrics"):
                line = 2 + max(
                    [value.start_mark.line for value in entries(metric, "value")] or [metric.start_mark.line]
                )
                text = f"{word(model, 'name')}, {data}: {word(metric, 'name', 'type')} {word(metric, 'value')}"
                yield Passage(text, line, "model-index")


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
        self.heading = self.last = ""
        self.fence: str | None = None

    def take(self, line: str, index: int) -> Iterator[Passage]:
        fence = _FENCE.match(line)
        if self.fence is not None:
            if fence and fence[1].startswith(self.fence):
                yield from self.flush()
                self.fence = None
            elif not self.skipping and line.strip() and not _LOG.match(line):  # Markdown that is shown
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
    rule = lines[index + 1] if index + 1 < len(lines) else ""
    rows = None
    if "|" in line and "-" in rule and "|" in rule and _RULE.match(rule):
        end = next((at for at in range(index, len(lines)) if "|" not in lines[at]), len(lines))
        rows = [_pipe_cells(lines[at], first + at) for at in range(index, end) if at != index + 1]
        length = end - index
    elif not state.gathered and ("\t" in line or "  " in line.strip()):
        rows = _aligned(lines, index, first)
        length = len(rows or [])
    if rows is None:
        return None
    before = " ".join(state.gathered) or state.last
    caption = before if re.match(r"\W*(?:table|tab\.|表)", before, re.I) else ""
    return length, [Table(rows, 1, caption, state.heading, state.where, before)]


def _pipe_cells(line: str, at: int) -> list[Cell]:
    line = line.strip().removeprefix("|")
    line = line[:-1] if line.endswith("|") and not line.endswith("\\|") else line
    return [Cell(_TAG.sub("", cell).strip(), at) for cell in _SPLIT.split(line)]


def _aligned(lines: list[str], index: int, first_line: int) -> list[list[Cell]] | None:
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
    return [[Cell(cell, first_line + index + i) for cell in cells] for i, cells in enumerate(split)]


# -- HTML: the text a reader sees, and its tables

_BREAKS = frozenset(
    "p div li h1 h2 h3 h4 h5 h6 br section article ul ol dl dt dd pre blockquote header footer body caption "
    "figcaption title".split()
)
_HIDDEN = frozenset(["script", "style", "noscript", "template", "svg"])


def read_html(path: Path) -> Iterator[Block]:
    return html_blocks(plain(text_of(path)))


def html_blocks(text: str, first_line: int = 1, where: str = "", heading: str = "") -> Iterator[Block]:
    parser = _Parser(first_line, where, heading)
    parser.feed(text)
    parser.close()
    while parser.tables:
        parser.handle_endtag("table")
    parser.end_passage()
    return iter(parser.found)


class _Parser(HTMLParser):
    def __init__(self, first_line: int, where: str, heading: str) -> None:
        super().__init__(convert_charrefs=True)
        self.first_line, self.where, self.heading = first_line, where, heading
        self.found: list[Block] = []
        self.text: list[str] = []
        self.start = first_line
        self.hidden = 0
        self.tables: list[_Table] = []

    @property
    def here(self) -> int:
        return self.first_line + self.getpos()[0] - 1

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self.hidden += 1
        if tag in _BREAKS and not self.tables:
            self.end_passage()
        if tag == "table":
            self.end_passage()
            self.tables.append(_Table())
        elif self.tables:
            self.tables[-1].open(tag, dict(attrs), self.here)

    def handle_endtag(self, tag: str) -> None:
        if tag in _HIDDEN and self.hidden:
            self.hidden -= 1
        if tag == "table" and self.tables:
            table = self.tables.pop()
            before = next((block.text for block in reversed(self.found) if isinstance(block, Passage)), "")
            if table.rows:
                self.found.append(Table(table.rows, table.header or 1, table.caption, self.heading, self.where, before))
        elif self.tables:
            self.tables[-1].close(tag)
        elif tag in _BREAKS:
            if tag[0] == "h" and tag[1:].isdigit():
                self.heading = "".join(self.text)
            self.end_passage()

    def handle_data(self, data: str) -> None:
        if self.hidden:
            return
        if self.tables:
            self.tables[-1].add(data)
            return
        if not self.text:
            self.start = self.here
        self.text.append(data)

    def handle_comment(self, data: str) -> None:
        if "claim:" in data:
            self.handle_data(f"<!--{data}-->")

    def parse_marked_section(self, i: int, report: bool = True) -> int:
        """<![anything: the library takes only some words there, and fails at the others."""
        return self.parse_bogus_comment(i, report)

    def end_passage(self) -> None:
        text = "".join(self.text)
        self.text = []
        if text.strip():
            self.found.append(Passage(text, self.start, self.heading, self.where))


class _Table:
    """The rows of one <table>; a cell over several columns or rows is repeated."""

    def __init__(self) -> None:
        self.rows: list[list[Cell]] = []
        self.header = 0
        self.caption = ""
        self.into: str | None = None
        self.spans: dict[int, tuple[int, Cell]] = {}  # column -> rows still to fill

    def open(self, tag: str, attributes: dict[str, str | None], line: int) -> None:
        if tag == "tr":
            self.rows.append([])
            self.into = None
        elif tag in ("td", "th") and self.rows:
            self._carry()
            width, height = _number(attributes.get("colspan")), _number(attributes.get("rowspan"))
            row, cell = self.rows[-1], Cell("", line)
            if height > 1:
                self.spans.update({len(row) + i: (height - 1, cell) for i in range(width)})
            row.extend([cell] * width)
            self.into = tag
        elif tag == "caption":
            self.into = "caption"

    def _carry(self) -> None:
        row = self.rows[-1]
        while len(row) in self.spans:
            left, cell = self.spans.pop(len(row))
            if left > 1:
                self.spans[len(row)] = (left - 1, cell)
            row.append(cell)

    def add(self, data: str) -> None:
        if self.into == "caption":
            self.caption += data
        elif self.into and self.rows and self.rows[-1]:
            self.rows[-1][-1].text += data

    def close(self, tag: str) -> None:
        if tag == "thead":
            self.header = len(self.rows)
        elif tag == "tr" and self.rows:
            self._carry()
            self.rows[-1] = [Cell(cell.text.strip(), cell.line) for cell in self.rows[-1]]
        if tag in ("td", "th", "caption"):
            self.into = None


def _number(text: str | None) -> int:
    return min(int(text[:4]), 100) if text and text.isdigit() and int(text[:4]) else 1
