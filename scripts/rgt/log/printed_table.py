"""Numbers whose names stand above or beside them: tables with a header, boxes of `| name | value |`, lists by name.

Example:
    table = Table()
    table.rows("epoch,train_loss,val_loss")   None      table.rows("3,0.51,0.62")   [{"epoch": "3", "train_loss": ...}]

CSV, TSV, Markdown and fixed columns alike: a header is a line of names, among them two that a trainer would print, and
a row is a line with as many cells. The newest header counts, because ultralytics prints two in turn.
"""

from __future__ import annotations

import ast
import contextlib
import re
from dataclasses import dataclass, field
from itertools import zip_longest

from rgt.log.line import LONGEST, plain
from rgt.metrics.table import is_curve

_COLUMNS = 64
_SIDES = str.maketrans("│┃║：＝", "|||:=")
_WITH_NUMBER = re.compile(r"[A-Za-z].*[ :=][-+]?[\d.]+(?:e[-+]?\d+)?", re.I)  # "loss 2.3" is no name of a column
_RULE = re.compile(r"[\s|+=─━┃│:-]*")
_BAR = re.compile(r":?\s+\d{1,3}%\|.*|:\s*$")  # ultralytics draws a bar behind the row
_NAME = re.compile(r"[A-Za-z_#][\w ./@#%()\[\]:*-]{0,39}")
_COUNTERS = {"epoch", "step", "iter", "iteration", "e", "#", "epochs", "steps", "time", "lr", "global_step"}
_CELL = re.compile(r"(?i)[-+]?(?:[\d.,]+(?:e[-+]?\d+)?|nan|inf)[%a-z]{0,3}|\d+/\d+|[\d:]+|-+|n/a|none|")
_HAS_VALUE = re.compile(r"(?i)(?:.*[ :=])?[-+]?[\d.,]*\d(?:e[-+]?\d+)?\s?[%a-z]{0,3}|nan|inf")
_WORDS = 2  # cells of a row that may be words, such as `all` or `val`
_LISTS = re.compile(r"""\s*\{\s*["'][\w ./-]{1,40}["']\s*:\s*\[\s*[-\d]""")
Row = dict[str, str]


@dataclass
class Table:
    names: list[str] = field(default_factory=list)
    box: Row = field(default_factory=dict)  # `| name | value |` so far
    section: str = ""
    heads: list[str] = field(default_factory=list)  # cells of the newest line of words: names, if numbers follow

    def rows(self, line: str) -> list[Row] | None:
        """The rows that this line is or completes; mostly none. None: it is a header, whose bar counts no step."""
        if len(line) > LONGEST and not _LISTS.match(line):
            return []
        text = _BAR.sub("", plain(line)) if "\t" not in line else line
        if self.box and _RULE.fullmatch(text):
            row, self.box = self.box, {}
            return [row] if len(row) > 1 else []
        cells = _cells(text)
        if _LISTS.match(text):
            return _by_index(text)
        if text.lstrip()[:1] in "|│" and len(cells) == 2 and _NAME.fullmatch(cells[0]):
            if cells[1]:
                self.box[self.section + cells[0]] = cells[1]
            else:
                self.section = cells[0]  # stable-baselines3: "| train/ |    |"
            return []
        if len(cells) < 2:
            return []
        if names := _header(text, cells):
            self.names, self.heads = names, names
            return None
        if self._may_be_header(text, cells):
            return None
        if len(cells) == len(self.names):
            odd = [cell for cell in cells if not _CELL.fullmatch(cell)]
            told = dict(zip(self.names, cells, strict=True))
            counted = all(cell not in odd for name, cell in told.items() if name.lower() in _COUNTERS - {"time", "lr"})
            if (
                counted
                and len(odd) <= _WORDS
                and any(cell[:1].isdigit() or cell[:1] in "-.nN" for cell in cells if cell)
            ):
                return [{name: cell for name, cell in told.items() if cell}]
        return []

    def _may_be_header(self, text: str, cells: list[str]) -> bool:
        """Cells without a number are names that nobody knows, or the second line of some, if as many numbers follow."""
        if "|" in text.translate(_SIDES) and not any(map(_HAS_VALUE.fullmatch, cells)):
            if len(cells) == len(self.heads) and not _RULE.fullmatch(text):
                cells = [f"{above} {cell}".strip() for above, cell in zip(self.heads, cells, strict=True)]
            self.heads = self.heads if _RULE.fullmatch(text) else cells
            return True
        self.names = self.heads if len(cells) == len(self.heads) >= 3 else self.names
        self.heads = []
        return False


def _cells(text: str) -> list[str]:
    text = text.translate(_SIDES)
    if text.count("|") >= 2:
        return [cell.strip() for cell in text.strip().strip("|").split("|")]
    for sign in ("\t", ",", ";"):
        if sign in text and ": " not in text and "=" not in text:
            return [cell.strip().strip('"') for cell in text.split(sign)][:_COLUMNS]
    return text.split()[:_COLUMNS]


def _header(text: str, cells: list[str]) -> list[str]:
    """Its names, or nothing. Names of fixed columns may hold a space: two spaces part them."""
    wide = re.split(r"\s{2,}", text.strip())
    for names in (cells, wide if len(wide) >= 3 else []):
        named = [name for name in names if not name or (_NAME.fullmatch(name) and not _WITH_NUMBER.fullmatch(name))]
        told = sum("loss" in name.lower() or is_curve(name) or name.lower() in _COUNTERS for name in named)
        if len(names) >= 2 and len(named) == len(names) and told >= 2 and 2 * told >= min(len(names), 4):
            if "  " in text.strip() and names is cells and len(wide) >= 3 and len(wide) < len(cells):
                continue
            return names
    return []


def _by_index(text: str) -> list[Row]:
    """A Keras history, as print(history.history) shows it: one row for each epoch."""
    with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        lists = ast.literal_eval(text.strip())
        columns = [[(name, str(value)) for value in values] for name, values in lists.items()]
        return [{"epoch": str(n), **dict(filter(None, row))} for n, row in enumerate(zip_longest(*columns), 1)]
    return []
