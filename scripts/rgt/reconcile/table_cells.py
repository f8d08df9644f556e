"""Numbers in tables: a cell takes its names from its row and its column, then from the caption and what stands before.

What labels leave open is learned from the neighbours: a row whose other cells state the values of one method is that
method's row, whatever it is called. A row or column about something that no value knows stays somebody else's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from rgt.reconcile.alignment import align
from rgt.reconcile.facts import FULL_NAMES, UNITS, key_words, kind_of, known_words
from rgt.reconcile.formulas import check_formulas
from rgt.reconcile.judgement import judged
from rgt.reconcile.numerals import IDLE, find_numerals, has_digit
from rgt.reconcile.orphans import second_look
from rgt.reconcile.passages import Cell, Table
from rgt.reconcile.places import Outcome, Place, Terms
from rgt.reconcile.prose_changes import direction
from rgt.reconcile.readings import matches
from rgt.reconcile.sentences import ANCHOR, Surroundings, anchored, terms_of
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
_ONE_RUN = re.compile(r"seed|run|fold|trial|种子", re.I)
_LEFT_OUT = re.compile(
    r"^\W*(?:w/o\.?|without|no|minus|removing|removed|remove|drop(?:ping)?|disabl\w+|ablat\w+|不含|去掉|去除|移除|不使用|不用|无|取消|[-–−])\s*"
    r"(?:the |our )?|\s*(?:removed|off|disabled)\W*$",
    re.I,
)
_ITSELF = FULL_NAMES | {"本 文", "ours", "proposed"}  # rows about the document's own method
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


def table_outcomes(table: Table, vocabulary: Vocabulary, ours: tuple[str, str] | None) -> Iterator[Outcome]:
    if len(table.rows) <= table.header:
        return
    head = table.rows[: table.header]
    corner = _header_text(head, 0)
    around = Surroundings(vocabulary, table.where, (corner, table.caption, table.heading, table.context), ours)
    shared_unit = "%" if any("%" in text or "percent" in text.lower() for text in (corner, table.caption)) else ""
    columns = [_label(_header_text(head, index), around, shared_unit) for index in range(max(map(len, table.rows)))]
    firsts = [row[0].text.strip() for row in table.rows[table.header :] if row]
    columns[0].counts = (
        firsts == [str(number) for number in range(int(firsts[0]), int(firsts[0]) + len(firsts))]
        if (firsts and firsts[0] in ("0", "1"))
        else False
    )
    places: list[list[tuple[Place, int]]] = []
    rows: list[_Label] = []
    group: Terms = {}
    for row in table.rows[table.header :]:
        texts = {cell.text for cell in row if cell.text}
        if len(row) > 1 and len(texts) == 1 and not _is_number(min(texts)):
            group = terms_of(around.hits(min(texts)))  # one name: a heading of rows
            continue
        rows.append(_row_label(row, columns, around, group))
        cells = [(cell, at) for at, cell in enumerate(row) if at == 0 or cell is not row[at - 1]]
        for cell, _ in cells:
            anchor = ANCHOR.search(cell.text) if "<!--" in cell.text else None
            if anchor:
                bare = ANCHOR.sub(lambda match: " " * len(match[0]), cell.text)
                yield anchored(bare, anchor, cell.line, table.where, vocabulary, set())
        values = [(cell, at) for cell, at in cells if has_digit(cell.text) and not ANCHOR.search(cell.text)]
        values = values[columns[0].counts :]  # what numbers the rows is no value
        found = [(_cell(cell, rows[-1], columns[at], around), at) for cell, at in values if _is_number(cell.text)]
        places.append([(place, at) for place, at in found if place])
    if any(column.role == "spread" for column in columns):
        for place, at in (pair for line in places for pair in line):
            if columns[at].average:
                place.average = False  # a mean over seeds
    _learn(places, rows, columns, vocabulary)
    outcomes = judged([place for found in places for place, _ in found], vocabulary)
    columns_of = [column for found in places for _, column in found]
    grid = [(row, column) for row, found in enumerate(places) for _, column in found]
    align(outcomes, grid, vocabulary)
    check_formulas(outcomes, grid)
    second_look(
        (
            [one for one, at in zip(outcomes, grid, strict=True) if at[axis] == line]
            for axis in (0, 1)
            for line in {at[axis] for at in grid}
        ),
        vocabulary,
    )
    for column in set(columns_of):
        judge_changes([one for one, at in zip(outcomes, columns_of, strict=True) if at == column])
    yield from outcomes


def judge_changes(column: list[Outcome]) -> None:
    """In a column of changes or means most of which follow from the values, those that do not are wrong."""
    if not all(one.place.average or one.place.numeral.role in ("change", "ratio") for one in column):
        return
    derived = [one for one in column if one.kind == "derived"]
    if len(derived) < max(2, 0.6 * len(column)):
        return
    for one in column:
        if one.kind == "unexplained" and not one.place.average and not one.place.doubts():
            one.kind, one.sure, one.why = "drift", "likely", "unlike the rest of its column, it follows from no values"
    signs = Counter(sign for one in derived if (sign := direction(one.facts, one.place)))
    usual, count = signs.most_common(1)[0] if signs else (0, 0)
    for one in derived if count > 1 and count >= 0.6 * len(derived) else ():
        if direction(one.facts, one.place) == -usual:
            one.kind, one.sure, one.why = "drift", "likely", "the sign is wrong"
            one.expected = -one.place.numeral.value


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


def _label(text: str, around: Surroundings, unit: str) -> _Label:
    bare = _bare(text)
    hits = around.hits(bare)
    label = _Label(text, terms_of(hits), unit=_unit_of(bare))
    if unit and not label.unit:  # a caption's per cent is not that of a column of milliseconds
        named = {"metric": label.terms["metric"]} if "metric" in label.terms else {}
        measured = around.vocabulary.members(around.vocabulary.fitting(named) if named else 0)
        label.unit = unit if all(kind_of(fact) in ("", "share") for fact in measured) else ""
    rest = bare
    for hit in sorted(hits, key=lambda hit: -hit.start):
        rest = rest[: hit.start] + " " + rest[hit.end :]
    core = re.sub(r"\([^)]*\)|[↑↓\W_]+$|^[\W_]+", " ", rest).strip()
    swept = key_words(text.rstrip("% "))
    if swept in around.vocabulary.axes.get("sweep", ()) and _is_number(text):
        label.terms["sweep"] = frozenset([swept])
        return label
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


_RATE = re.compile(r"[A-Za-z]+\.?/s(?:ec)?\b")


def _unit_of(text: str) -> str:
    """ "Latency (ms)" -> ms; tok/s is no time"""
    text = _RATE.sub(" ", text)
    for inside in re.findall(r"[(\[/,]\s?([A-Za-zµμ%/]+|毫秒|秒|小时|万|亿)\s?[)\]]?", text):
        if inside in UNITS or inside.lower() in UNITS:
            return str(inside.lower())
    return "%" if "%" in text else ""


def _row_label(row: list[Cell], columns: list[_Label], around: Surroundings, group: Terms) -> _Label:
    cells = [cell for cell in row if cell.text and not _is_number(cell.text)]
    text = " | ".join(dict.fromkeys(cell.text for cell in cells or row[:1]))
    label = _label(text, around, "")
    if around.ours and not label.terms and key_words(_bare(text)) in _ITSELF:
        label.terms, label.stranger = {around.ours[0]: frozenset([around.ours[1]])}, ""
    label.terms = {**group, **label.terms}
    label.unit = _unit_of(text)
    settings = [
        c for c, column in enumerate(columns[: len(row)]) if _SETTING_HEAD.fullmatch(column.text) and not column.terms
    ]
    points = around.vocabulary.axes.get("sweep", ())
    swept = [
        point
        for cell, column in zip(row, columns, strict=False)
        if not (column.terms or column.role or column.counts or _ONE_RUN.fullmatch(column.text.strip()))
        and (point := key_words(cell.text.rstrip("% "))) in points
    ]
    if swept:
        label.terms["sweep"] = frozenset(swept[:1])
    elif any(_is_number(row[c].text) for c in settings):
        label.stranger = label.stranger or f"one {columns[settings[0]].text}"
    elif row and row[0].text and _is_number(row[0].text) and not columns[0].terms and not columns[0].counts:
        label.stranger = label.stranger or "a row of a sweep"
    return label


def _cell(cell: Cell, row: _Label, column: _Label, around: Surroundings) -> Place | None:
    found = [n for n in find_numerals(cell.text, around.vocabulary.units, in_cell=True) if n.role not in IDLE]
    if not found or (_SETTING_HEAD.fullmatch(column.text) and not column.terms):
        return None
    numeral = found[0]
    role = column.role or row.role
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
    place = Place(
        numeral, reported, cell.line, around.where, text, own, own, around.missing(own), cell=True, unclear=unclear
    )
    place.unit, place.average = column.unit or row.unit, column.average or row.average
    place.ours = around.ours[1] if around.ours else ""
    for label, what in ((row, "row"), (column, "column")):
        if label.stranger and not place.average:
            place.against.append(f"the {what} {label.text!r} is about {label.stranger!r}, which no value knows")
    return place


# -- learning from the neighbours


def _learn(
    places: list[list[tuple[Place, int]]], rows: list[_Label], columns: list[_Label], vocabulary: Vocabulary
) -> None:
    """Names for the axes that labels leave open, from the cells that state a value exactly."""
    choices = [axis for axis, terms in vocabulary.axes.items() if len(terms) > 1 and axis != "statistic"]
    by_row = [[place for place, _ in found] for found in places]
    by_column = [[place for found in places for place, at in found if at == index] for index in range(len(columns))]
    everything = [place for line in by_row for place in line]
    for line, label in [*zip(by_row, rows, strict=True), *zip(by_column, columns, strict=True), (everything, None)]:
        if label and label.stranger and "[cite]" in label.text:
            continue  # somebody else's, however near the values are
        plain = [place for place in line if not place.numeral.role and not place.average]
        for axis in choices:
            if any(axis in place.own and axis not in place.inferred for place in plain) or len(plain) < 2:
                continue
            share = 0.75 if axis == "point" else 0.5 if label else 0.35  # no word names a point: recall at 5, 10, 20
            learned = _vote(plain, axis, vocabulary, share)
            if learned is None:
                continue
            for place in line:
                if axis not in place.own:
                    place.own = {**place.own, axis: frozenset([learned])}
                    place.around.pop(axis, None)
                    place.inferred.add(axis)
            if label:
                _trust(line, label, axis)
    for line, label in [*zip(by_row, rows, strict=True), *zip(by_column, columns, strict=True)]:
        plain = [place for place in line if not place.numeral.role and place.numeral.digits > 2]
        if label.stranger and label.terms and _agreeing(plain, vocabulary) >= max(2, 0.5 * len(plain)):
            _trust(line, label, "label")  # "zero-shot accuracy" states our accuracy all the way down


def _agreeing(places: list[Place], vocabulary: Vocabulary) -> int:
    return sum(
        any(fact.bit & vocabulary.fitting(place.own) for fact in matches(vocabulary, place.numeral, place.unit))
        for place in places
    )


def _trust(line: list[Place], label: _Label, axis: str) -> None:
    """The neighbours say that a row or column is ours, whatever else its label says."""
    if label.stranger and axis not in ("metric", "split"):
        for place in line:
            place.against = [reason for reason in place.against if repr(label.text) not in reason]
        label.stranger = ""


def _vote(places: list[Place], axis: str, vocabulary: Vocabulary, share: float) -> str | None:
    votes: Counter[str] = Counter()
    for place in places:
        if place.numeral.digits < 3:
            continue
        fitting = vocabulary.fitting(place.own)
        votes.update(
            {
                fact.terms[axis]
                for fact in matches(vocabulary, place.numeral, place.unit)
                if fact.bit & fitting and axis in fact.terms
            }
        )
    if not votes:
        return None
    (best, count), *rest = votes.most_common(2)
    return best if count >= 2 and count >= share * len(places) and (not rest or rest[0][1] < count) else None
