"""Numbers in tables: a cell takes its names from its row and its column, then from the caption and what stands before.

A row or column about something that no value knows is somebody else's, unless its values say what it is (alignment).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from rgt.reconcile.alignment import align
from rgt.reconcile.facts import UNITS, kind_of, known_words
from rgt.reconcile.formulas import check_formulas
from rgt.reconcile.judgement import judged
from rgt.reconcile.numerals import IDLE, Numeral, find_numerals
from rgt.reconcile.passages import Cell, Table
from rgt.reconcile.places import Outcome, Place, Terms
from rgt.reconcile.sentences import ANCHOR, anchored, around, terms_of
from rgt.reconcile.vocabulary import Hit, Vocabulary

_STARTS = re.compile(r"[\W_]*[-+±]?\.?\d")
_MARKS = re.compile(r"\[[^\]]*\]|[†‡*^]|\(ours\)|（ours）|\(本文\)|\(proposed\)|\bet al\.?", re.I)
_SPREAD_HEAD = re.compile(
    r"(?:std|stdev|sd|s\.d\.|spread|±|stderr|se|σ|标准差|standard deviation|std\.? ?dev\.?)", re.I
)
_COUNT_HEAD = re.compile(
    r"(?:n|seeds|runs|trials|num[_ ]?(?:seeds|runs)|#\s?(?:seeds|runs)|(?:运行|实验|重复)?次数|种子数)", re.I
)
_CHANGE_HEAD = re.compile(
    r"Δ|\b(?:delta|diff(?:erence)?|gain|improvement|change|vs\.?|relative|gap|speed-?up)\b|提升|差值|增益|变化", re.I
)
_AVERAGE_HEAD = re.compile(
    r"(?:avg\.?|average|mean|macro[- ]?avg\.?|overall|平均|平均值|均值)(?: (?:over|of|across) .*)?", re.I
)
# a column that makes each row one run, or one point of a sweep
_SETTING_HEAD = re.compile(
    r"\W*(?:seed|run|fold|trial|epoch|epochs|step|steps|iter\w*|lr|learning rate|batch(?: size)?|k|t"
    r"|temperature|layers?|depth|width"
    r"|rank|dropout|lambda|alpha|beta|gamma|tau|λ|α|β|γ|τ|threshold|shots?|data|fraction|labels?|size|length|window|beam\w*|种子|轮次|学习率"
    r"|时间|步数|date|year|version|commit)\W*(?:\(.*\))?\W*",
    re.I,
)
_LEFT_OUT = re.compile(
    r"^\W*(?:w/o\.?|without|no|minus|removing|removed|remove|drop(?:ping)?|disabl\w+|ablat\w+|不含|去掉|去除|移除|不使用|不用|无|取消|[-–−])\s*"
    r"(?:the |our )?|\s*(?:removed|off|disabled)\W*$",
    re.I,
)
_HARMLESS = known_words("texts", "harmless")


@dataclass
class _Label:
    """What the header of a column, or the words of a row, say."""

    text: str
    terms: Terms
    role: str = ""  # spread, runs, change
    unit: str = ""
    average: bool = False
    stranger: str = ""  # why it may be about something that no value knows
    counts: bool = False  # its cells number the rows


def table_outcomes(table: Table, vocabulary: Vocabulary) -> Iterator[Outcome]:
    if len(table.rows) <= table.header:
        return
    head, body = table.rows[: table.header], table.rows[table.header :]
    corner = _header_text(head, 0)
    shared_unit = "%" if any(map(_in_percent, (corner, table.caption))) else ""
    columns = [_label(_header_text(head, index), vocabulary, shared_unit) for index in range(max(map(len, table.rows)))]
    firsts = [row[0].text.strip() for row in body if row]
    columns[0].counts = firsts in ([str(number + first) for number in range(len(firsts))] for first in (0, 1))
    places: list[Place] = []
    places_of_labels = [
        place
        for row in head
        for cell in {cell.text: cell for cell in row}.values()
        for place in _runs(cell, vocabulary)
    ]
    grid: list[tuple[int, int]] = []
    group, title = Terms(), ""
    for number, row in enumerate(body):
        texts = {cell.text for cell in row if cell.text}
        if len(row) > 1 and len(texts) == 1 and not _is_number(min(texts)):
            title = min(texts)
            group = terms_of(vocabulary.find(title))  # one name: a heading of rows
            continue
        label = _row_label(row, columns, vocabulary, group)
        for at, cell in enumerate(row):
            if at and cell is row[at - 1]:
                continue  # it spans columns
            anchor = ANCHOR.search(cell.text) if "<!--" in cell.text else None
            if anchor:
                bare = ANCHOR.sub(lambda match: " " * len(match[0]), cell.text)
                yield anchored(bare, anchor, cell.line, table.where, vocabulary, set())
            elif _is_number(cell.text) and not (at == 0 and columns[0].counts):  # what numbers the rows is no value
                for nth, place in enumerate(_cells(cell, label, columns[at], vocabulary)):
                    place.group = title
                    places.append(place)
                    grid.append((number, at + nth * len(columns)))
            else:
                places_of_labels += _runs(cell, vocabulary)
    texts_around = (corner, table.caption, table.heading, table.context)
    spreads = any(column.role == "spread" for column in columns)
    for place in places:
        place.where, place.around = table.where, around(place.own, texts_around, vocabulary)
        place.average = place.average and not spreads  # a mean over seeds
    outcomes = judged(places, vocabulary)
    align(outcomes, grid, vocabulary)
    check_formulas(outcomes, grid)
    yield from outcomes
    yield from judged(places_of_labels, vocabulary)


def _runs(cell: Cell, vocabulary: Vocabulary) -> list[Place]:
    """The number of seeds that a label names."""
    runs = (one for one in find_numerals(cell.text, vocabulary.units) if one.role == "runs")
    return [Place(one, cell.text[one.start : one.end], cell.line, "", cell.text, {}, {}, {}) for one in runs]


def _header_text(rows: list[list[Cell]], index: int) -> str:
    return " ".join(dict.fromkeys(row[index].text for row in rows if index < len(row)))


def _bare(text: str) -> str:
    return _MARKS.sub(lambda match: " " * len(match[0]), ANCHOR.sub(" ", text) if "<!--" in text else text)


def _is_number(text: str) -> bool:
    text = _bare(text) if "<!--" in text else text
    return _STARTS.match(text) is not None and sum(map(str.isalpha, text)) <= 6


def _left_over(text: str, hits: list[Hit]) -> str:
    """The words of a label that name nothing known."""
    for hit in sorted(hits, key=lambda hit: -hit.start):
        text = text[: hit.start] + " " + text[hit.end :]
    if any(hit.term.startswith("no ") for hit in hits):
        text = _LEFT_OUT.sub("", text)
    words = [
        word
        for word in re.findall(r"[^\W_]+", text)
        if word.lower() not in _HARMLESS and not _SPREAD_HEAD.fullmatch(word)
    ]
    return " ".join(
        word for word in words if not all("\u4e00" <= sign <= "\u9fff" and sign in _HARMLESS for sign in word)
    )


def _label(text: str, vocabulary: Vocabulary, unit: str) -> _Label:
    bare = _bare(text)
    hits = list(vocabulary.find(bare))
    label = _Label(text, terms_of(hits), unit=_unit_of(bare))
    if unit and not label.unit:  # a caption's per cent is not that of a column of milliseconds
        named = {"metric": label.terms["metric"]} if "metric" in label.terms else {}
        measured = vocabulary.members(vocabulary.fitting(named) if named else 0)
        label.unit = unit if all(kind_of(fact) in ("", "share") for fact in measured) else ""
    rest = bare
    for hit in sorted(hits, key=lambda hit: -hit.start):
        rest = rest[: hit.start] + " " + rest[hit.end :]
    core = re.sub(r"\([^)]*\)|[↑↓\W_]+$|^[\W_]+", " ", rest).strip()
    if _SPREAD_HEAD.fullmatch(core) or ("±" in core and not hits):
        label.role = "spread"
    elif _COUNT_HEAD.fullmatch(core) and not label.terms:
        label.role = "runs"
    elif _CHANGE_HEAD.search(rest):
        label.role = "change"
    label.average = _AVERAGE_HEAD.fullmatch(core) is not None and label.terms.keys() <= {"metric"}
    if not label.role and not label.average:
        label.stranger = _left_over(
            re.sub(r"[(\[][^)\]]*[)\]]", lambda m: " " * len(m[0]) if _unit_of(m[0]) else m[0], bare), hits
        )
    return label


_SOME_PERCENT = re.compile(r"(?<![\w.@-])\d+(?:\.\d+)?\s?\\?(?:%|percent\b)")
_RATE = re.compile(r"[A-Za-z]+\.?/s(?:ec)?\b")


def _unit_of(text: str) -> str:
    """ "Latency (ms)" -> ms; tok/s is no time"""
    text = _RATE.sub(" ", text)
    for inside in re.findall(r"[(\[/,]\s?([A-Za-zµμ%/]+|毫秒|秒|小时|万|亿)\s?[)\]]?", text):
        if inside in UNITS or inside.lower() in UNITS:
            return str(inside.lower())
    return "%" if _in_percent(text, "") else ""


def _in_percent(text: str, word: str = "percent") -> bool:
    """Does a label say it of its metric? "Accuracy (%)", and not "95% CI" or "rounds until 80% accuracy"."""
    rest = _SOME_PERCENT.sub(" ", text.lower())
    return "%" in rest or (word and word in rest) is True


def _row_label(row: list[Cell], columns: list[_Label], vocabulary: Vocabulary, group: Terms) -> _Label:
    cells = [cell for cell in row if any(map(str.isalnum, cell.text)) and not _is_number(cell.text)]
    label = _label(" | ".join(dict.fromkeys(cell.text for cell in cells or row[:1])), vocabulary, "")
    label.terms = {**group, **label.terms}
    settings = [column for column in columns[: len(row)] if _SETTING_HEAD.fullmatch(column.text) and not column.terms]
    if settings and any(_is_number(row[columns.index(column)].text) for column in settings):
        label.stranger = label.stranger or f"one {settings[0].text}"
    elif row and row[0].text and _is_number(row[0].text) and not columns[0].terms and not columns[0].counts:
        label.stranger = label.stranger or "a row of a sweep"
    return label


def _cells(cell: Cell, row: _Label, column: _Label, vocabulary: Vocabulary) -> list[Place]:
    """Its number, or each of those that a stroke divides: 0.19 / 0.16."""
    found = [n for n in find_numerals(cell.text, vocabulary.units, in_cell=True) if n.role not in IDLE]
    measured = found and found[0].unit  # a size of 36.3M is none of a sweep
    if _SETTING_HEAD.fullmatch(column.text) and not column.terms and not measured:
        settings = vocabulary.others(column.text, settings=True)
        return [_place(n._replace(role="setting"), cell, row, column) for n in found[:1] if settings]
    beside = [b for a, b in pairwise(found) if re.fullmatch(r"\W*/\W*", cell.text[a.end : b.start])]
    return [_place(numeral, cell, row, column) for numeral in [*found[:1], *beside]]


def _place(numeral: Numeral, cell: Cell, row: _Label, column: _Label) -> Place:
    role = column.role or row.role if numeral.role != "setting" else ""
    if role and not (role == "change" and (numeral.role == "ratio" or (not column.role and numeral.role))):
        numeral = numeral._replace(role=role)
    own: Terms = {}
    unclear = 0
    for axis in {*row.terms, *column.terms}:
        first, second = row.terms.get(axis), column.terms.get(axis)
        both = first & second if first and second else first or second or frozenset()
        own[axis] = both or (first or frozenset()) | (second or frozenset())
        unclear += len(own[axis]) > 1
    reported = " ".join(cell.text[numeral.start : numeral.end].split())
    text = f"{row.text} | {column.text}"
    place = Place(numeral, reported, cell.line, "", text, own, own, {}, cell=True, unclear=unclear)
    place.unit, place.average = column.unit or row.unit, column.average or row.average
    strange = [
        f"{label.text!r} is about {label.stranger!r}, which no value knows" for label in (row, column) if label.stranger
    ]
    place.stranger = strange[0] if strange and not place.average else ""
    return place
