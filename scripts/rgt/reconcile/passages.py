"""A document as running text and tables, each with the line of the file it starts on.

latex_reader, markup_reader and packed_reader read the kinds of files; each function gives blocks.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html import unescape
from importlib import import_module
from pathlib import Path

from rgt import files
from rgt.errors import bad_input, from_os_error

READERS = {  # of each kind of file: module and function
    **dict.fromkeys((".md", ".markdown", ".txt", ".rst"), "markup_reader.read_markdown"),
    **dict.fromkeys((".html", ".htm"), "markup_reader.read_html"),
    **dict.fromkeys((".csv", ".tsv"), "packed_reader.read_sheet"),
    **dict.fromkeys((".docx", ".pptx"), "packed_reader.read_office"),
    ".tex": "latex_reader.read_latex",
    ".ipynb": "packed_reader.read_notebook",
    ".pdf": "packed_reader.read_pdf",
}
MAX_BYTES = 256 * 2**20  # a document; whatever is larger is data
_ITEM_LENGTH = 160  # characters: what is longer is a paragraph of its own

# not < > and &: they would make markup of text
_ENTITY = re.compile(
    r"&(?:nbsp|thinsp|ensp|emsp|minus|plusmn|times|ndash|mdash|micro|mu|le|ge|asymp|Delta|percnt|period|comma|middot|sigma|#\d{2,5}|#x[0-9a-fA-F]{2,4});"
)
_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+")
_GROUPED = re.compile("(?<=\\d)[\u2009\u202f\u00a0'’](?=\\d{3}(?!\\d))")  # 12 345 with a thin space, 12'345
_DASHES = str.maketrans({"−": "-", "﹣": "-", "‐": "-", "‑": "-", "—": "–", "⁓": "~", "～": "~", "\u200b": " "})


# of a line: what its macros write, and the lines on which these are defined
Definitions = dict[int, list[tuple[str, int]]]


@dataclass
class Passage:
    """A paragraph, a heading or a list item; lines are counted by its own newlines."""

    text: str
    line: int
    heading: str = ""
    where: str = ""  # slide 3, cell 5: what stands for a line in a file that has none
    lead: str = ""  # "Accuracy on CIFAR-10:", for the items of the list behind it
    defined: Definitions = field(default_factory=dict, repr=False)


@dataclass
class Cell:
    text: str
    line: int


@dataclass
class Table:
    """Rows of equal meaning: the first `header` of them name the columns."""

    rows: list[list[Cell]]
    header: int
    caption: str = ""
    heading: str = ""
    where: str = ""
    context: str = field(default="", repr=False)  # the paragraph before it
    defined: Definitions = field(default_factory=dict, repr=False)


Block = Passage | Table


def read_document(path: Path) -> Iterator[Block]:
    """What ends with a colon is said of each short passage behind it, as far as the next heading or table."""
    module, _, function = READERS.get(path.suffix.lower(), "").partition(".")
    if not module:
        raise bad_input(f"{path} is not a document this reads: {' '.join(READERS)}")
    reader: Callable[[Path], Iterator[Block]] = getattr(import_module(f"rgt.reconcile.{module}"), function)
    lead = heading = ""
    for block in reader(path):
        if isinstance(block, Table) or block.heading != heading or len(block.text) > _ITEM_LENGTH:
            lead = ""
        if isinstance(block, Passage):
            heading = block.heading
            if block.text.rstrip(" *_\n").endswith((":", "：")):
                lead = block.text
            elif lead:
                block.lead = lead
        yield block


def text_of(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise bad_input(f"{path} has more than {MAX_BYTES >> 20} MB: that is data, not a document")
        with files.open_regular(path) as file:  # a pipe would be waited for
            raw = file.read()
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None
    if b"\x00" in raw[:4096] and not raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise bad_input(f"{path} is not text: it has zero bytes")
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", errors="replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("gb18030", errors="replace")  # what Chinese Windows writes; Latin text passes, too


def plain(text: str) -> str:
    """One way to write each sign. Newlines stay where they are; everything else may change its length."""
    if "&" in text:
        text = _ENTITY.sub(lambda match: unescape(match[0]), text)
    if text.isascii():
        return text
    text = _RAISED.sub(lambda match: "^" + match[0].translate(_SUPERSCRIPT), text)
    text = _GROUPED.sub(",", text).translate(_DASHES)
    return unicodedata.normalize("NFKC", text)
