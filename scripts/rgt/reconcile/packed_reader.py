"""Files that hold cells, slides, pages or rows: Jupyter notebooks, Word and PowerPoint files, PDF, CSV and TSV."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from rgt.errors import bad_input, lacking
from rgt.reconcile.markup_reader import html_blocks, markdown_blocks
from rgt.reconcile.passages import MAX_BYTES, Block, Cell, Passage, Table, plain, text_of

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_SLIDE = re.compile(r"ppt/(?:slides/slide|notesSlides/notesSlide)(\d+)\.xml")
_OWNER = re.compile(rb'slides/slide(\d+)\.xml"')
# a column of steps or epochs makes a sheet a curve, which is data and not a report
_AXES = frozenset(
    "step steps epoch epochs iter iteration global_step _step time timestamp _timestamp wall_time".split()
)
PDF_NEEDS = "a PDF is read with pypdf, which is not installed: pip install pypdf, or give the source of the document"
_LARGEST_FIELD = 2**20
# SyntaxError: broken XML; RuntimeError: an encrypted member, or an unknown packing; ValueError: a width without digits
_BROKEN = (zipfile.BadZipFile, zlib.error, SyntaxError, KeyError, RuntimeError, EOFError, OSError, ValueError)


# -- notebooks: Markdown cells and what the code cells printed. Lines are those of the .ipynb file


def read_notebook(path: Path) -> Iterator[Block]:
    text = text_of(path)
    try:
        parts: list[tuple[str, str, list[str]]] = []  # where, kind of text, its lines
        for number, cell in enumerate(json.loads(text)["cells"], 1):
            texts = [(f"cell {number}", "text/markdown", cell["source"])] if cell["cell_type"] == "markdown" else []
            for output in cell.get("outputs", []):
                data, where = output.get("data", {}), f"output of cell {number}"
                kinds = [kind for kind in ("text/markdown", "text/html", "text/plain") if kind in data]
                texts += [(where, "text", output["text"])] if "text" in output else []
                texts += [(where, kind, data[kind]) for kind in kinds[:1]]
            parts += [(where, kind, "".join(source).splitlines(keepends=True)) for where, kind, source in texts]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise bad_input(f"{path} is not a notebook: expected JSON with `cells`") from None
    offset, line = 0, 1
    for where, kind, source in parts:
        numbers = []  # in the file, of each line of the part: looked for from where the last one was found
        for each in source:
            at = text.find(json.dumps(each.rstrip("\n"), ensure_ascii=False)[1:-1], offset)
            if at >= 0:
                line += text.count("\n", offset, at)
                offset = at
            numbers.append(line)
        if kind == "text":  # printed: every line stands for itself
            yield from (Passage(plain(each), at, "", where) for each, at in zip(source, numbers, strict=True))
            continue
        blocks = html_blocks if kind == "text/html" else markdown_blocks
        for block in blocks(plain("".join(source)), 1, where):
            for piece in [block] if isinstance(block, Passage) else [cell for row in block.rows for cell in row]:
                known = piece.line <= 10**6 and numbers
                piece.line = numbers[min(piece.line, len(numbers)) - 1] if known else 1
            yield block


# -- Word and PowerPoint: zip archives of XML. A paragraph or slide number stands for the line


def read_office(path: Path) -> Iterator[Block]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            slides = sorted((int(match[1]), name) for name in names if (match := _SLIDE.fullmatch(name)))
            if "word/document.xml" in names:
                yield from _word(_tree(path, archive, "word/document.xml"))
            elif not slides:
                raise bad_input(f"{path} is a zip archive, but neither a Word nor a PowerPoint file")
            for number, name in slides:
                if "notes" in name:  # numbered on their own; the relations name their slide
                    relations = f"ppt/notesSlides/_rels/{name.rpartition('/')[2]}.rels"
                    owner = _OWNER.search(archive.read(relations)) if relations in names else None
                    number = int(owner[1]) if owner else number
                where = f"slide {number}" + (" notes" if "notes" in name else "")
                yield from _slide(_tree(path, archive, name), number, where)
    except _BROKEN as error:
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
            caption = before if re.match(r"\W*(?:table|表)", before, re.I) else ""
            yield Table(_rows(element, _W, number), 1, caption, heading, f"table at {number}", before)


def _slide(root: ElementTree.Element, number: int, where: str) -> Iterator[Block]:
    tables = list(root.iter(f"{_A}tbl"))
    in_tables = {id(part) for table in tables for part in table.iter(f"{_A}p")}
    heading = ""
    for paragraph in root.iter(f"{_A}p"):
        text = _text(paragraph, _A)
        if id(paragraph) not in in_tables and text.strip():
            heading = heading or text
            yield Passage(text, number, heading, where)
    for table in tables:
        yield Table(_rows(table, _A, number), 1, "", heading, where, heading)


def _rows(table: ElementTree.Element, space: str, number: int) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for row in table.iter(f"{space}tr"):
        rows.append([])
        for cell in row.findall(f"{space}tc"):
            span = cell.find(f"{space}tcPr/{space}gridSpan")
            width = int(span.get(f"{space}val", "1")) if span is not None else 1
            text = " ".join(_text(part, space) for part in cell.iter(f"{space}p")).strip()
            rows[-1] += [Cell(text, number)] * min(width, 100)  # repeated, so that columns stay columns
    return rows


def _text(element: ElementTree.Element, space: str) -> str:
    words = {f"{space}br": " ", f"{space}tab": " "}
    nodes = element.iter()
    return plain("".join((node.text or "") if node.tag == f"{space}t" else words.get(node.tag, "") for node in nodes))


# -- PDF: the text of its pages, as pypdf gives it: a table is lines of numbers, which prose rules read with care


def read_pdf(path: Path) -> Iterator[Block]:
    try:
        import pypdf
    except ImportError:
        raise lacking(PDF_NEEDS) from None
    try:
        pages = [page.extract_text() for page in pypdf.PdfReader(path).pages]
    except Exception as error:  # a PDF can be broken in any way
        raise bad_input(f"{path} cannot be read as a PDF: {' '.join(str(error).split())[:100]}") from None
    for number, text in enumerate(pages, 1):
        joined = re.sub(r"(?<=[a-z])-\n(?=[a-z])", "", text)  # a word that is broken at the end of a line
        for block in markdown_blocks(plain(joined), 1, f"page {number}"):
            for piece in [block] if isinstance(block, Passage) else [cell for row in block.rows for cell in row]:
                piece.line = number
            yield block


# -- CSV and TSV: one table


def read_sheet(path: Path) -> Iterator[Block]:
    text = plain(text_of(path))
    csv.field_size_limit(_LARGEST_FIELD)
    first = text.split("\n", 1)[0]
    delimiter = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text), delimiter=delimiter)
    rows: list[list[Cell]] = []
    line = 1
    try:
        for row in reader:
            rows.append([Cell(cell.strip(), line) for cell in row])
            line = reader.line_num + 1
    except csv.Error as error:
        raise bad_input(f"{path} is not a table of values: {error}") from None
    rows = [row for row in rows if any(cell.text for cell in row)]
    if rows and not any(cell.text.strip().lower() in _AXES for cell in rows[0]):
        yield Table(rows, 1)
