"""Numbers in tables: a cell takes its terms from its row and its column, then from the caption.

A row about something that no claim knows (somebody else's method) never gets a method of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mentions import judge, numerals, terms
from mentions.evidence import Evidence
from mentions.numerals import Numeral
from mentions.passages import Cell, Table
from mentions.verdict import ANCHOR, Mention, check_direction, direction_said, verdict

_STARTS = re.compile(r"[\W_]*[-+±]?\.?\d")
_MARKS = re.compile(r"\[[^\]]*\]|[†‡*]|\(ours\)")
_SPREAD_HEAD = re.compile(r"^[\W_]*(?:std|stdev|sd|s\.d\.|spread|±|stderr|se|标准差|standard deviation)[\W_]*$", re.I)
_N_HEAD = re.compile(
    r"^[\W_]*(?:n|seeds?|runs?|trials?|num[_ ]?(?:seeds|runs)|(?:运行|实验|重复)?次数|种子数)[\W_]*$", re.I
)
_VALUE_HEAD = re.compile(
    r"^\W*(?:value|mean|avg|average|score|results?|reported|数值|均值|结果|平均值?)\W*(?:\(.*\))?$", re.I
)
_CHANGE_HEAD = re.compile(r"Δ|\b(?:delta|diff(?:erence)?|gain|improvement|change|vs\.?|relative)\b|提升|差值", re.I)


def find(table: Table, evidence: Evidence) -> Iterator[Mention]:
    table = _whole_header(table)
    if len(table.rows) <= table.header:
        return
    columns = _columns(table, evidence)
    around = _Around(table, evidence)
    label: list[Cell] = []
    for row in table.rows[table.header :]:
        section = _section(row)
        if section:
            around.enter(section)
            label = []
            continue
        label = _row_label(row, label)
        yield from _in_row(row, label, columns, around, evidence)
    for column in columns:
        said = direction_said(column.text, column.hits)
        if said:
            yield from check_direction(said, table.rows[0][0].line if table.rows[0] else 0, table.where, evidence)


def _whole_header(table: Table) -> Table:
    """Rows of words below the header belong to it: few formats mark a second one. What spans columns is repeated."""
    header = table.header
    while header < min(3, len(table.rows) - 1) and _names_columns(table.rows[header]):
        header += 1
    if header < 2:
        return table
    spread = [_filled(row) for row in table.rows[: header - 1]]
    return replace(table, rows=[*spread, *table.rows[header - 1 :]], header=header)


def _names_columns(row: list[Cell]) -> bool:
    texts = [cell.text for cell in row if cell.text]
    return len(set(texts)) > 1 and len(texts) >= len(row) - 1 and not any(_is_number(text) for text in texts)


def _filled(row: list[Cell]) -> list[Cell]:
    cells: list[Cell] = []
    for cell in row:
        cells.append(cells[-1] if cells and not cell.text else cell)
    return cells


def _section(row: list[Cell]) -> str:
    """A row with one name in it, alone or over all columns, is a heading for the rows below it."""
    texts = {cell.text for cell in row if cell.text}
    return next(iter(texts)) if len(row) > 1 and len(texts) == 1 and not _is_number(min(texts)) else ""


@dataclass
class _Column:
    text: str
    hits: dict[str, list[terms.Hit]]
    role: str  # value, spread, n, skip, or plain (its header says nothing)
    percent: bool


def _columns(table: Table, evidence: Evidence) -> list[_Column]:
    width = max(len(row) for row in table.rows)
    return [_column(" ".join(_texts(table.rows[: table.header], index)), evidence) for index in range(width)]


def _texts(rows: list[list[Cell]], index: int) -> list[str]:
    texts = [row[index].text for row in rows if index < len(row)]
    return list(dict.fromkeys(texts))


def _column(text: str, evidence: Evidence) -> _Column:
    text = _without_anchors(text)
    found = evidence.vocabulary.find(text)
    hits = terms.by_dimension(found)
    own = _own_role(text, found)
    if own:
        role = own
    elif _CHANGE_HEAD.search(text):
        role = "skip"
    elif hits or _VALUE_HEAD.match(text):
        role = "value"
    else:
        role = "plain"
    return _Column(text, hits, role, "%" in text)


def _own_role(text: str, hits: list[terms.Hit]) -> str:
    """spread or n, when that is all a header or label says beside its terms: "CIFAR-10 std"."""
    for hit in reversed(hits):
        text = text[: hit.start] + " " + text[hit.end :]
    return "spread" if _SPREAD_HEAD.match(text) else "n" if _N_HEAD.match(text) else ""


def _without_anchors(text: str) -> str:
    return ANCHOR.sub(" ", text) if "<!--" in text else text


class _Around:
    """What corner, caption, heading and the paragraph before a table say, for terms that row and column leave out."""

    def __init__(self, table: Table, evidence: Evidence) -> None:
        self.where, self.vocabulary = table.where, evidence.vocabulary
        corner = " ".join(_texts(table.rows[: table.header], 0))
        texts = (corner, table.caption, table.heading, table.context)
        self.levels = [terms.by_dimension(evidence.vocabulary.find(text)) for text in texts if text]
        self.percent = any("%" in text or "percent" in text.lower() for text in (corner, table.caption))
        self.section: dict[str, list[terms.Hit]] = {}

    def enter(self, section: str) -> None:
        self.section = terms.by_dimension(self.vocabulary.find(section))

    def only(self, dimension: str) -> str | None:
        for level in (self.section, *self.levels):
            values = {hit.value for hit in level.get(dimension, [])}
            if values:
                return next(iter(values)) if len(values) == 1 else None
        return None


def _row_label(row: list[Cell], above: list[Cell]) -> list[Cell]:
    """The cells of a row that are words. An empty first cell goes on with the one above it."""
    label = [cell for cell in row if cell.text and not _is_number(cell.text)]
    if row and not row[0].text and above:
        return [above[0], *label]
    return label


def _is_number(text: str) -> bool:
    text = _without_anchors(text)
    return _STARTS.match(text) is not None and sum(map(str.isalpha, text)) <= 6


def _in_row(
    row: list[Cell], label: list[Cell], columns: list[_Column], around: _Around, evidence: Evidence
) -> Iterator[Mention]:
    words = _without_anchors(" | ".join(cell.text for cell in label))
    row_hits = evidence.vocabulary.find(words)
    row_terms = terms.by_dimension(
        [hit for hit in row_hits if hit.dimension != "method" or not terms.extended(words, hit)]
    )
    stranger = _stranger(label, row_terms, evidence)
    role = _own_role(words, row_hits)
    for index, cell in enumerate(row):
        if not numerals.has_digit(cell.text):
            continue
        anchor = ANCHOR.search(cell.text) if "<!--" in cell.text else None
        if anchor:
            yield from _anchored_cell(cell, anchor, around, evidence)
        elif index < len(columns) and _is_number(cell.text):
            column = columns[index]
            if role or "%" in words:
                column = replace(column, role=role or column.role, percent=column.percent or "%" in words)
            mention = _cell(cell, column, row_terms, around, evidence, stranger)
            if mention:
                yield mention


def _stranger(label: list[Cell], row_terms: dict[str, list[terms.Hit]], evidence: Evidence) -> bool:
    """Is the row about something no claim knows? Then what the caption says of methods does not hold for it."""
    if not label or "method" not in evidence.distinguishes:
        return bool(label) and not row_terms and bool(label[0].text)
    if "method" in row_terms:
        return _more_than_the_method(label, evidence)
    return not row_terms


_HARMLESS = frozenset("ours our the method model proposed paper this full final best default a".split())


def _more_than_the_method(label: list[Cell], evidence: Evidence) -> bool:
    """ "Ours + CutMix" in a row: words beside the method that no claim knows make it another method."""
    for cell in label:
        text = _MARKS.sub(" ", _without_anchors(cell.text))
        hits = evidence.vocabulary.find(text)
        if not any(hit.dimension == "method" for hit in hits):
            continue
        left = [token for token in terms.tokens(text) if not any(hit.start <= token[1] < hit.end for hit in hits)]
        return any(token[0] not in _HARMLESS for token in left)
    return False


def _anchored_cell(cell: Cell, anchor: re.Match[str], around: _Around, evidence: Evidence) -> Iterator[Mention]:
    claim = evidence.by_id.get(anchor[1])
    bare = ANCHOR.sub(lambda match: " " * len(match[0]), cell.text)
    found = numerals.find(bare, evidence.units, in_cell=True)
    if claim is None:
        yield Mention(
            cell.line, around.where, anchor[0], "drift", [], "anchored", f"EVIDENCE.json has no claim {anchor[1]}"
        )
    elif found:
        yield verdict(cell.line, around.where, bare, found[0], [claim], "anchored")


def _cell(
    cell: Cell, column: _Column, row: dict[str, list[terms.Hit]], around: _Around, evidence: Evidence, stranger: bool
) -> Mention | None:
    found = numerals.find(cell.text, evidence.units, in_cell=True)
    if not found or column.role == "skip":
        return None
    chosen, doubtful = _terms_of_cell(column, row, around, stranger)
    metric = chosen["metric"]
    if metric is None or (column.role == "plain"):
        return None
    claims = evidence.lookup(metric, chosen["method"], chosen["dataset"], chosen["split"])
    if not claims:
        return None
    numeral = _as_role(found[0], column.role)
    mention = verdict(
        cell.line,
        around.where,
        cell.text,
        numeral,
        claims,
        "likely" if doubtful else "certain",
        column.percent or around.percent,
    )
    unnamed = stranger and not column.hits.get("method")
    elsewhere = (
        doubtful and numeral.role == "value" and judge.far_off(claims[0], numeral, column.percent or around.percent)
    )
    if mention.verdict == "drift" and (len(claims) > 1 or unnamed or elsewhere):
        mention.verdict = "ambiguous"
        mention.why = (
            "the row names nothing that a claim has" if unnamed else "the table does not say which claim this is"
        )
    return mention


def _as_role(numeral: Numeral, role: str) -> Numeral:
    if role not in ("spread", "n"):
        return numeral
    return Numeral(numeral.start, numeral.end, numeral.value, numeral.ulp, numeral.percent, role=role)


def _terms_of_cell(
    column: _Column, row: dict[str, list[terms.Hit]], around: _Around, stranger: bool
) -> tuple[dict[str, str | None], bool]:
    chosen: dict[str, str | None] = {}
    doubtful = False
    for name in terms.DIMENSIONS:
        values = {hit.value for hit in column.hits.get(name, [])} or {hit.value for hit in row.get(name, [])}
        if len(values) == 1:
            chosen[name] = next(iter(values))
            continue
        chosen[name] = None if values or (name == "method" and stranger) else around.only(name)
        doubtful = doubtful or chosen[name] is not None
    return chosen, doubtful
