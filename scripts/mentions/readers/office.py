"""Word and PowerPoint files: zip archives of XML. A paragraph or slide number stands for the line."""

from __future__ import annotations

import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from mentions.passages import Block, Cell, Passage, Table, plain
from mentions.readers import MAX_BYTES
from rgt.errors import bad_input

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_SLIDE = re.compile(r"ppt/(?:slides/slide|notesSlides/notesSlide)(\d+)\.xml")


def read(path: Path) -> Iterator[Block]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if "word/document.xml" in names:
                yield from _word(_tree(path, archive, "word/document.xml"))
            elif any(_SLIDE.fullmatch(name) for name in names):
                yield from _slides(path, archive, names)
            else:
                raise bad_input(f"{path} is a zip archive, but neither a Word nor a PowerPoint file")
    except (
        zipfile.BadZipFile,
        zlib.error,
        ElementTree.ParseError,
        KeyError,
        RuntimeError,  # zipfile's word for a member that is encrypted, or packed in a way it does not know
        EOFError,
        OSError,
        ValueError,  # a width that is no number
    ) as error:
        raise bad_input(f"{path} cannot be read as an Office file: {error}") from None


def _tree(path: Path, archive: zipfile.ZipFile, name: str) -> ElementTree.Element:
    with archive.open(name) as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES or b"<!DOCTYPE" in data[:4096]:  # no real document has a DTD; a bomb has
        raise bad_input(f"{path} has an unreasonable {name}; not read")
    return ElementTree.fromstring(data)


def _word(root: ElementTree.Element) -> Iterator[Block]:
    body = root.find(f"{_W}body")
    heading = before = ""
    for number, element in enumerate(body if body is not None else [], 1):
        if element.tag == f"{_W}p":
            text = _text(element, _W)
            style = element.find(f"{_W}pPr/{_W}pStyle")
            if style is not None and str(style.get(f"{_W}val", "")).lower().startswith(("heading", "title")):
                heading = text
            if text.strip():
                before = text
                yield Passage(text, number, heading, f"paragraph {number}")
        elif element.tag == f"{_W}tbl":
            rows = [[Cell(text, number) for text in _row(row)] for row in element.iter(f"{_W}tr")]
            caption = before if re.match(r"\W*(?:table|表)", before, re.I) else ""
            yield Table(rows, 1, caption, heading, f"table at {number}", before)


def _row(row: ElementTree.Element) -> Iterator[str]:
    """A cell over several columns is repeated, so that columns stay columns."""
    for cell in row.findall(f"{_W}tc"):
        span = cell.find(f"{_W}tcPr/{_W}gridSpan")
        width = int(span.get(f"{_W}val", "1")) if span is not None else 1
        yield from [_paragraphs(cell, _W).strip()] * min(width, 100)


def _paragraphs(cell: ElementTree.Element, space: str) -> str:
    return " ".join(_text(part, space) for part in cell.iter(f"{space}p"))


def _text(element: ElementTree.Element, space: str) -> str:
    parts = []
    for node in element.iter():
        if node.tag == f"{space}t":
            parts.append(node.text or "")
        elif node.tag in (f"{space}br", f"{space}tab"):
            parts.append(" ")
    return plain("".join(parts))


def _slides(path: Path, archive: zipfile.ZipFile, names: list[str]) -> Iterator[Block]:
    for name in sorted(filter(_SLIDE.fullmatch, names), key=lambda name: (int(_SLIDE.fullmatch(name)[1]), name)):  # type: ignore[index]
        number = int(re.findall(r"\d+", name)[-1])
        where = f"slide {number}" + (" notes" if "notes" in name else "")
        root = _tree(path, archive, name)
        in_tables: set[int] = set()
        heading = ""
        for table in root.iter(f"{_A}tbl"):
            in_tables.update(id(part) for part in table.iter(f"{_A}p"))
        for paragraph in root.iter(f"{_A}p"):
            text = _text(paragraph, _A)
            if id(paragraph) not in in_tables and text.strip():
                heading = heading or text
                yield Passage(text, number, heading, where)
        for table in root.iter(f"{_A}tbl"):
            cells = (row.findall(f"{_A}tc") for row in table.iter(f"{_A}tr"))
            rows = [[Cell(_paragraphs(cell, _A), number) for cell in row] for row in cells]
            yield Table(rows, 1, "", heading, where, heading)
