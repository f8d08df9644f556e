"""HTML: the text a reader sees, and its tables."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from rgt.reconcile.passages import Block, Cell, Passage, Table, plain, text_of

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
