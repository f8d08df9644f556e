"""Numbers in tables: a cell takes its names from its row and its column, then from the caption and what stands before.

What labels leave open is learned from the neighbours: a row whose other cells state the values of one method is that
method's row, whatever it is called. A row or column about something that no value knows stays somebody else's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from rgt.reconcile.anchors import ANCHOR, anchored
from rgt.reconcile.facts import FULL_NAMES, UNITS, key_words
from rgt.reconcile.judgement import Outcome, Place, Terms, comparable, judged
from rgt.reconcile.local_names import LEFT_OUT, LocalNames
from rgt.reconcile.numerals import find_numerals, has_digit
from rgt.reconcile.passages import Cell, Table
from rgt.reconcile.readings import matches
from rgt.reconcile.sentences import Surroundings, terms_of
from rgt.reconcile.table_columns import CellValue, judge_columns
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
_HARMLESS = frozenset(
    """ours our the method model proposed paper this full final best default a an of on in and for to with mean avg
    average std sd n
    score scores value values result results test set split metric dataset data higher lower is better top seeds
    runs main pm reported
    measured size count number sample s ms gb mb m b k h hours min sec db x our's per second all pass
    passed ok met 达 标 通 过 测 试 集 值
    均 的 结 果 方 法 模 型 本 文 我 们 在 上 与""".split()
)


@dataclass
class _Label:
    """What the header of a column, or the words of a row, say."""

    text: str
    terms: Terms
    role: str = ""  # spread, runs, change
    unit: str = ""
    average: bool = False
    stranger: str = ""  # why it may be about something that no value knows
    learned: dict[str, str] = field(default_factory=dict)
    counts: bool = False  # its cells number the rows


def table_outcomes(
    table: Table, vocabulary: Vocabulary, ours: tuple[str, str] | None, local: LocalNames
) -> Iterator[Outcome]:
    if len(table.rows) <= table.header:
        return
    head = table.rows[: table.header]
    corner = _header_text(head, 0)
    around = Surroundings(vocabulary, table.where, (corner, table.caption, table.heading, table.context), ours, local)
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
    for label in [*rows, *columns]:
        if len(label.learned) == 1 and not label.terms and not label.role:
            local.learn(_MARKS.sub("", label.text), *next(iter(label.learned.items())), vocabulary)
    _averages(places, [*rows, *columns])
    outcomes = judged([place for found in places for place, _ in found], vocabulary)
    spots = [(row, column) for row, line in enumerate(places) for _, column in line]
    cells_read = [CellValue(outcome, *spot) for outcome, spot in zip(outcomes, spots, strict=True)]
    _scales(cells_read)
    judge_columns(cells_read)
    yield from outcomes


def _averages(places: list[list[tuple[Place, int]]], labels: list[_Label]) -> None:
    """What the average of a row is taken of: its other numbers, and the names of all columns."""
    every: dict[str, frozenset[str]] = {}
    for label in labels:
        for axis, terms in label.terms.items():
            every[axis] = every.get(axis, frozenset()) | terms
    for found in places:
        values = tuple(one.numeral.value for one, _ in found if not one.average and not one.numeral.role)
        for place, _ in found:
            if place.average:
                place.named, place.row_values = every, values


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
        text = LEFT_OUT.sub("", text)
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
    label = _Label(text, terms_of(hits), unit=_unit_of(bare) or unit)
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


def _unit_of(text: str) -> str:
    """ "Latency (ms)" -> ms"""
    for inside in re.findall(r"[(\[/,]\s?([A-Za-zµμ%/]+|毫秒|秒|小时|万|亿)\s?[)\]]?", text):
        if inside in UNITS or inside.lower() in UNITS:
            return str(inside.lower())
    return "%" if "%" in text else ""


def _row_label(row: list[Cell], columns: list[_Label], around: Surroundings, group: Terms) -> _Label:
    cells = [cell for cell in row if cell.text and not _is_number(cell.text)]
    text = " | ".join(dict.fromkeys(cell.text for cell in cells))
    label = _label(text, around, "")
    if around.ours and not label.terms and key_words(_bare(text)) in FULL_NAMES:
        label.terms, label.stranger = {around.ours[0]: frozenset([around.ours[1]])}, ""
    label.terms = {**group, **label.terms}
    label.unit = _unit_of(text)
    settings = [
        c for c, column in enumerate(columns[: len(row)]) if _SETTING_HEAD.fullmatch(column.text) and not column.terms
    ]
    if any(_is_number(row[c].text) for c in settings):
        label.stranger = label.stranger or f"one {columns[settings[0]].text}"
    elif row and row[0].text and _is_number(row[0].text) and not columns[0].terms:
        swept = key_words(row[0].text.rstrip("% "))
        if swept in around.vocabulary.axes.get("sweep", ()):
            label.terms["sweep"] = frozenset([swept])
        elif not columns[0].counts:
            label.stranger = label.stranger or "a row of a sweep"
    return label


def _cell(cell: Cell, row: _Label, column: _Label, around: Surroundings) -> Place | None:
    found = find_numerals(cell.text, around.vocabulary.units, in_cell=True)
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
            place.against += 4.0
            place.doubts.append(f"the {what} {label.text!r} is about {label.stranger!r}, which no value knows")
    return place


def _scales(cells: list[CellValue]) -> None:
    """0.752 in a table of percentages is off by a factor of 100, although it states the value."""
    plain = [cell for cell in cells if not cell.place.numeral.role and not cell.place.numeral.percent]
    for cell in plain:
        one, small = cell.outcome, abs(cell.place.numeral.value) <= 1
        if one.kind != "match" or not one.facts or not one.facts[0].share:
            continue
        row = [abs(other.place.numeral.value) <= 1 for other in plain if other.row == cell.row and other is not cell]
        column = [
            abs(other.place.numeral.value) <= 1 for other in plain if other.column == cell.column and other is not cell
        ]
        if len(row) + len(column) > 2 and row and column and small not in row and small not in column:
            factor = 0.01 if small else 100.0
            one.kind, one.sure, one.why = "drift", "certain", f"it is off by a factor of {factor:g}"
            one.expected = one.place.numeral.value / factor


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
        plain = [place for place in line if not place.numeral.role and not place.average]
        for axis in choices:
            if any(axis in place.own and axis not in place.inferred for place in plain) or len(plain) < 2:
                continue
            learned = _vote(plain, axis, vocabulary, 0.5 if label else 0.35)
            if learned is None:
                continue
            for place in line:
                if axis not in place.own:
                    place.own = {**place.own, axis: frozenset([learned])}
                    place.around.pop(axis, None)
                    place.inferred.add(axis)
            if label:
                label.learned[axis] = learned
                _trust(line, label, axis)
    for lines, labels in ((by_row, rows), (by_column, columns)):
        for axis in choices:
            _assign(lines, labels, axis, vocabulary)
    for line, label in [*zip(by_row, rows, strict=True), *zip(by_column, columns, strict=True)]:
        plain = [place for place in line if not place.numeral.role and place.numeral.digits > 2]
        if label.stranger and label.terms and _agreeing(plain, vocabulary) >= max(2, 0.5 * len(plain)):
            _trust(line, label, "label")  # "zero-shot accuracy" states our accuracy all the way down


def _assign(lines: list[list[Place]], labels: list[_Label], axis: str, vocabulary: Vocabulary) -> None:
    """Rows with a single value each: whose values they are, when most of them state one exactly.

    What is left over is the row that is left over: its value is the wrong one.
    """
    open_ones: dict[int, set[str]] = {}
    siblings: set[str] = set()
    taken: set[str] = set()
    for at, line in enumerate(lines):
        plain = [place for place in line if not place.numeral.role and not place.average and place.numeral.digits > 2]
        if any(axis in place.own for place in line):
            taken.update(term for place in line for term in place.own.get(axis, ()))
            continue
        if not plain or axis in labels[at].terms:
            continue
        found: list[set[str]] = []
        for place in plain:
            around = {name: frozenset([term]) for name, term in place.around.items() if name != axis}
            fitting = vocabulary.fitting({**around, **place.own})
            facts = [fact for fact in matches(vocabulary, place.numeral, place.unit) if fact.bit & fitting]
            found.append({fact.terms[axis] for fact in facts if axis in fact.terms})
            for fact in facts:
                siblings |= {
                    other.terms[axis] for other in vocabulary.facts if comparable(fact, other) and axis in other.terms
                }
        open_ones[at] = set.intersection(*found) if found else set()
    stated = [at for at, terms in open_ones.items() if terms - taken]
    if len(stated) < 2 or len(stated) < 0.6 * len(open_ones):
        return
    left = dict(open_ones)
    for _ in range(3):
        for at, terms in sorted(left.items()):
            rest = {term for term in terms - taken if term.startswith("no ")} or terms - taken
            if len(rest) == 1:
                _name(lines[at], labels[at], axis, rest.pop())
                taken |= labels[at].learned.keys() & {axis} and {labels[at].learned[axis]}
                del left[at]
    missing = {term for term in siblings - taken if term.startswith("no ") or term in FULL_NAMES}
    if len(left) == 1 and len(missing) == 1 and len(lines) > 2:
        at = next(iter(left))
        _name(lines[at], labels[at], axis, missing.pop())


def _name(line: list[Place], label: _Label, axis: str, term: str) -> None:
    for place in line:
        place.own = {**place.own, axis: frozenset([term])}
        place.around.pop(axis, None)
        place.inferred.add(axis)
    label.learned[axis] = term
    _trust(line, label, axis)


def _trust(line: list[Place], label: _Label, axis: str) -> None:
    """The neighbours say that a row or column is ours, whatever else its label says."""
    if label.stranger and axis not in ("metric", "split"):
        for place in line:
            place.against = max(0.0, place.against - 4.0)
            place.doubts = [doubt for doubt in place.doubts if label.text not in doubt]
        label.stranger = ""


def _agreeing(places: list[Place], vocabulary: Vocabulary) -> int:
    return sum(
        any(fact.bit & vocabulary.fitting(place.own) for fact in matches(vocabulary, place.numeral, place.unit))
        for place in places
    )


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
