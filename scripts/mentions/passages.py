"""What every reader gives: running text and tables, with the line of the file they start on."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_SUPERSCRIPT = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺", "0123456789-+")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+")
_GROUPED = re.compile("(?<=\\d)[\u2009\u202f\u00a0'’](?=\\d{3}(?!\\d))")  # 12 345 with a thin space, 12'345
_SPACED = re.compile(
    r"(?<![\d.,:/-])(?<!\d )[1-9]\d{0,2}(?: \d{3})+(?:\.\d+)?(?=\s?(?:±[^\n]{1,12})?[A-Za-z]+/s)"
)  # 41 093 tokens/s
_DASHES = str.maketrans({"−": "-", "﹣": "-", "‐": "-", "‑": "-", "—": "–", "⁓": "~", "～": "~", "\u200b": " "})


@dataclass
class Passage:
    """A paragraph, a heading or a list item; lines are counted by its own newlines."""

    text: str
    line: int
    heading: str = ""
    where: str = ""  # slide 3, cell 5: what stands for a line in a file that has none
    title: str = ""  # a short line of its own above it that no format marks as a heading
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
_TITLE_LENGTH = 60
_BULLET = re.compile(r"\s*(?:[-*+•]|\d{1,3}[.)])\s+")
_NO_TITLE = re.compile(r"[-*+•>|]|.*[\n.。:：;；!?=]|(?:.*\s)?[\d.]*\d[.,%]?\d*(?:\s|$)", re.S)
_DIGITS_OF_NAMES = re.compile(r"[A-Za-z]+-?\d+")


def with_leads(blocks: Iterable[Block]) -> Iterator[Block]:
    """What ends with a colon is said of each short passage behind it, as far as the next heading or table."""
    lead = heading = intro = title = ""
    for block in blocks:
        if isinstance(block, Table) or block.heading != heading or len(block.text) > _ITEM_LENGTH:
            lead = intro = ""
        if isinstance(block, Passage):
            title = title if block.heading == heading else ""
            heading = block.heading
            title, block.title = (block.text, "") if _is_title(block.text) else (title, title)
            item = _BULLET.match(block.text) is not None
            if block.text.rstrip(" *_\n").endswith((":", "：")):
                lead = block.text
            elif lead or (item and not has_number(intro)):
                block.lead = lead or intro  # a sentence without numbers leads the list behind it, colon or not
            if not item:
                intro = block.text
        yield block


def _is_title(text: str) -> bool:
    """A short line of its own, without a number or the end of a sentence."""
    text = text.strip()
    return 1 < len(text) <= _TITLE_LENGTH and not _NO_TITLE.match(text)


def has_number(text: str) -> bool:
    """Digits other than those of names."""
    return any(map(str.isdigit, _DIGITS_OF_NAMES.sub("", text)))


def plain(text: str) -> str:
    """One way to write each sign. Newlines stay where they are; everything else may change its length."""
    if "/s" in text:
        text = _SPACED.sub(lambda match: match[0].replace(" ", ","), text)
    if text.isascii():
        return text
    text = _RAISED.sub(lambda match: "^" + match[0].translate(_SUPERSCRIPT), text)
    text = _GROUPED.sub(",", text).translate(_DASHES)
    return unicodedata.normalize("NFKC", text)
