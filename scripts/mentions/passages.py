"""What every reader gives: running text and tables, with the line of the file they start on."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+")
_GROUPED = re.compile("(?<=\\d)[\u2009\u202f\u00a0'’](?=\\d{3}(?!\\d))")  # 12 345 with a thin space, 12'345
_DASHES = str.maketrans({"−": "-", "﹣": "-", "‐": "-", "‑": "-", "—": "–", "⁓": "~", "～": "~", "\u200b": " "})


@dataclass
class Passage:
    """A paragraph, a heading or a list item; lines are counted by its own newlines."""

    text: str
    line: int
    heading: str = ""
    where: str = ""  # slide 3, cell 5: what stands for a line in a file that has none
    lead: str = ""  # "Accuracy on CIFAR-10:", for the items of the list behind it


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


Block = Passage | Table


_ITEM_LENGTH = 160  # characters: what is longer is a paragraph of its own


def with_leads(blocks: Iterable[Block]) -> Iterator[Block]:
    """What ends with a colon is said of each short passage behind it, as far as the next heading or table."""
    lead = heading = ""
    for block in blocks:
        if isinstance(block, Table) or block.heading != heading or len(block.text) > _ITEM_LENGTH:
            lead = ""
        if isinstance(block, Passage):
            heading = block.heading
            if block.text.rstrip(" *_\n").endswith((":", "：")):
                lead = block.text
            elif lead:
                block.lead = lead
        yield block


def plain(text: str) -> str:
    """One way to write each sign. Newlines stay where they are; everything else may change its length."""
    if text.isascii():
        return text
    text = _RAISED.sub(lambda match: "^" + match[0].translate(_SUPERSCRIPT), text)
    text = _GROUPED.sub(",", text).translate(_DASHES)
    return unicodedata.normalize("NFKC", text)
