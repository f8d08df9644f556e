"""Numbers in tables: a cell takes its terms from its row and its column, then from the caption.

A row about something that no claim knows (somebody else's method) never gets a method of ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rgt.reconcile.agreement import ANCHOR, Mention, anchored, far_off, verdict
from rgt.reconcile.claim_index import DIMENSIONS, Evidence, Hit, Hits, Surroundings, by_dimension, extended, tokens
from rgt.reconcile.numerals import find_numerals, has_digit
from rgt.reconcile.passages import Cell, Table

_STARTS = re.compile(r"[\W_]*[-+±]?\.?\d")
_MARKS = re.compile(r"\[[^\]]*\]|[†‡*]|\(ours\)")
_NO_VALUE_HEAD = re.compile(  # a spread, a number of runs
    r"^[\W_]*(?:std|stdev|sd|s\.d\.|spread|±|stderr|se|标准差|standard deviation"
    r"|n|seeds?|runs?|trials?|num[_ ]?(?:seeds|runs)|(?:运行|实验|重复)?次数|种子数)[\W_]*$",
    re.I,
)
_VALUE_HEAD = re.compile(
    r"^\W*(?:value|mean|avg|average|score|results?|reported|数值|均值|结果|平均值?)\W*(?:\(.*\))?$", re.I
)
_CHANGE_HEAD = re.compile(r"Δ|\b(?:delta|diff(?:erence)?|gain|improvement|change|vs\.?|relative)\b|提升|差值", re.I)


_HARMLESS = frozenset("ours our the method model proposed paper this full final best default a".split())


@dataclass
class _Column:
    hits: Hits
    compared: bool  # its header names something that a claim has, or "value"
    percent: bool


def table_mentions(table: Table, evidence: Evidence) -> Iterator[Mention]:
    if len(table.rows) <= table.header:
        return
    head = table.rows[: table.header]
    corner = _header_text(head, 0)
    percent = any("%" in text or "percent" in text.lower() for text in (corner, table.caption))
    around = Surroundings(evidence, table.where, (corner, table.caption, table.heading, table.context))
    columns = []
    for index in range(max(map(len, table.rows))):
        text = _without_anchors(_header_text(head, index))
        found = evidence.find(text)
        named = bool(found or _VALUE_HEAD.match(text)) and not _CHANGE_HEAD.search(text)
        compared = named and not _beside_value(text, found)
        columns.append(_Column(by_dimension(found), compared, percent or "%" in text))
    for row in table.rows[table.header :]:
        texts = {cell.text for cell in row if cell.text}
        if len(row) > 1 and len(texts) == 1 and not _is_number(min(texts)):
            around.nearest = by_dimension(evidence.find(min(texts)))  # one name: a heading of rows
            continue
        label = [cell for cell in row if cell.text and not _is_number(cell.text)]
        yield from _in_row(row, label, columns, around)


def _header_text(rows: list[list[Cell]], index: int) -> str:
    return " ".join(dict.fromkeys(row[index].text for row in rows if index < len(row)))


def _beside_value(text: str, hits: list[Hit]) -> bool:
    """Does a header or label say nothing but "std" or "n" beside its terms: "CIFAR-10 std"?"""
    for hit in reversed(hits):
        text = text[: hit.start] + " " + text[hit.end :]
    return _NO_VALUE_HEAD.match(text) is not None


def _without_anchors(text: str) -> str:
    return ANCHOR.sub(" ", text) if "<!--" in text else text


def _is_number(text: str) -> bool:
    text = _without_anchors(text)
    return _STARTS.match(text) is not None and sum(map(str.isalpha, text)) <= 6


def _in_row(row: list[Cell], label: list[Cell], columns: list[_Column], around: Surroundings) -> Iterator[Mention]:
    evidence = around.evidence
    words = _without_anchors(" | ".join(cell.text for cell in label))
    row_hits = evidence.find(words)
    row_terms = by_dimension([hit for hit in row_hits if hit.dimension != "method" or not extended(words, hit)])
    stranger = _stranger(label, row_terms, evidence)
    compared = not _beside_value(words, row_hits)
    for index, cell in enumerate(row):
        if not has_digit(cell.text):
            continue
        anchor = ANCHOR.search(cell.text) if "<!--" in cell.text else None
        if anchor:
            bare = ANCHOR.sub(lambda match: " " * len(match[0]), cell.text)
            yield anchored(bare, anchor, cell.line, around, set())
        elif compared and index < len(columns) and columns[index].compared and _is_number(cell.text):
            column = columns[index]
            if "%" in words:
                column = replace(column, percent=True)
            mention = _cell(cell, column, row_terms, around, stranger)
            if mention:
                yield mention


def _stranger(label: list[Cell], row_terms: Hits, evidence: Evidence) -> bool:
    """Is the row about something no claim knows? Then what the caption says of methods does not hold for it."""
    if not label or "method" not in evidence.distinguishes:
        return bool(label) and not row_terms and bool(label[0].text)
    if "method" not in row_terms:
        return not row_terms
    for cell in label:  # "Ours + CutMix": words beside the method that no claim knows make it another method
        text = _MARKS.sub(" ", _without_anchors(cell.text))
        hits = evidence.find(text)
        if any(hit.dimension == "method" for hit in hits):
            left = [word for word, start in tokens(text) if not any(hit.start <= start < hit.end for hit in hits)]
            return any(word not in _HARMLESS for word in left)
    return False


def _cell(cell: Cell, column: _Column, row: Hits, around: Surroundings, stranger: bool) -> Mention | None:
    found = find_numerals(cell.text, around.evidence.units, in_cell=True)
    if not found:
        return None
    chosen: dict[str, str | None] = {}
    doubtful = False
    for name in DIMENSIONS:
        values = {hit.value for hit in column.hits.get(name, [])} or {hit.value for hit in row.get(name, [])}
        if len(values) == 1:
            chosen[name] = next(iter(values))
            continue
        chosen[name] = None if values or (name == "method" and stranger) else around.only(name)
        doubtful = doubtful or chosen[name] is not None
    metric = chosen["metric"]
    claims = around.evidence.lookup(metric, chosen["method"], chosen["dataset"], chosen["split"]) if metric else []
    if not claims:
        return None
    numeral, percent = found[0], column.percent
    sure = "likely" if doubtful else "certain"
    mention = verdict(cell.line, around.where, cell.text, numeral, claims, sure, percent)
    unnamed = stranger and not column.hits.get("method")
    elsewhere = doubtful and far_off(claims[0], numeral, percent)
    if mention.verdict == "drift" and (len(claims) > 1 or unnamed or elsewhere):
        mention.verdict, mention.why = "ambiguous", "the table does not say which claim this is"
        if unnamed:
            mention.why = "the row names nothing that a claim has"
    return mention
