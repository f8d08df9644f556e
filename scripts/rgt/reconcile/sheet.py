"""The sheet: a row for each number whose meaning no machine settles, filled by whoever reads, kept by the project.

Example:
    sheet = Sheet(Path("numbers.jsonl"))
    asked = ask("docs/a.md", judged_blocks, sheet.rows, vocabulary)      of one document; judges what is filled
    sheet.save({"docs/a.md": asked})

A row is found again by the words around its number, not by the number or the line: it outlives edits of both, and is
asked anew when the words change.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any

from rgt import files, schema
from rgt.reconcile import meanings
from rgt.reconcile.facts import Fact
from rgt.reconcile.judgement import is_idle, meant
from rgt.reconcile.meanings import Malformed, Meaning
from rgt.reconcile.numerals import IDLE, Numeral, find_numerals
from rgt.reconcile.passages import Block, Passage, Table
from rgt.reconcile.places import Outcome, Place
from rgt.reconcile.readings import agrees, matches, reading, rounds_to, scales, spread_agrees
from rgt.reconcile.vocabulary import Vocabulary
from rgt.units import show_json

_CANDIDATES, _COMPUTED = 8, 3  # per row: all, and of these the expressions
_OPERANDS = 6  # values of a sentence that are tried against each other
_NEXT = 25  # characters: the words beside a number
_SIZE = 0.35  # powers of ten: 44 is as far from 20 and 100, and 4.4 as likely as 44
_TEXT, _LABEL = 360, 100  # characters that are quoted
# with another name, which may stand for the one that is not named
_COMPARES = re.compile(
    r"\b(?:than|over (?!\d)|against|versus|vs|compared|relative|beats?|outperform\w*|ahead|behind)\b"
    r"|[比较优倍]|超过|高于|低于",
    re.I,
)
BY_SHEET = "certain, by the sheet"
_COLUMN, _TIMES_100 = 3, re.compile(r"it is off by a factor of (?:100|0\.01); by line")
_CHANGES: tuple[tuple[str, Callable[[float, float], float]], ...] = (
    ("{0} - {1}", lambda a, b: a - b),
    ("({0} - {1}) / {1}", lambda a, b: (a - b) / b),
    ("{0} / {1}", lambda a, b: a / b),
    ("mean({0}, {1})", lambda a, b: (a + b) / 2),
)
_SCALES, _NEAR = (1.0, 100.0, 0.01), 0.2  # what is farther off is not worth an exact comparison


@dataclass
class Row:
    """One line of the sheet; empty fields are left out."""

    key: str
    file: str
    line: int
    number: str
    where: str = ""
    heading: str = ""
    before: str = ""  # the sentence before
    text: str = ""  # its sentence; of a table: row, column and caption
    row: str = ""
    column: str = ""
    caption: str = ""
    values: dict[str, str] = field(default_factory=dict)  # candidates: id and value; --ids lists all
    means: str | int = ""
    at: int = 0  # line of the sheet

    def as_json(self) -> str:
        data = {name: value for name, value in asdict(self).items() if value != "" and name != "at"}
        return show_json(files.dump(data | {"means": self.means}, self.file).decode())


@dataclass
class Asked:
    """Of one document: its rows in reading order, and what is wrong with filled ones."""

    rows: list[Row] = field(default_factory=list)
    malformed: list[tuple[int, str]] = field(default_factory=list)  # line of the sheet, sentence

    @property
    def waiting(self) -> list[Row]:
        return [row for row in self.rows if row.means == ""]


class Sheet:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, Row] = {}
        self.broken: list[tuple[int, str]] = []  # lines that are no rows
        self._text = files.read_text(path) if path.exists() else ""
        for at, line in enumerate(self._text.split("\n"), 1):
            if line.strip():
                self._read(line, at)

    def _read(self, line: str, at: int) -> None:
        try:
            data: Any = json.loads(line)
        except (ValueError, RecursionError):
            self.broken.append((at, f"is not JSON: {line[:60]!r}"))
            return
        problems = schema.problems(data, "numbers")
        if problems:
            self.broken.append((at, f"does not fit the numbers schema: {problems[0]}"))
            return
        row = Row(**data, at=at)
        if row.key not in self.rows or row.means != "":  # of two the filled one, or the later
            self.rows[row.key] = row

    def name(self, document: Path) -> str:
        """A document as the sheet calls it: from the sheet's folder."""
        return Path(os.path.relpath(document.resolve(), self.path.resolve().parent)).as_posix()

    def save(self, asked: dict[str, Asked]) -> None:
        """Rows of documents that were not looked at stay; those of documents that are gone do not."""
        if self.broken:
            return  # nobody's line is lost
        by_file: dict[str, list[Row]] = {}
        for row in self.rows.values():
            by_file.setdefault(row.file, []).append(row)
        kept = {name: rows for name, rows in by_file.items() if (self.path.parent / name).exists()}
        kept |= {name: one.rows for name, one in asked.items()}
        text = "".join(f"{row.as_json()}\n" for rows in kept.values() for row in rows)
        if text != self._text:
            files.write_text(self.path, text)


def ask(name: str, read: list[tuple[Block, list[Outcome]]], rows: dict[str, Row], vocabulary: Vocabulary) -> Asked:
    """Judges the numbers of filled rows, in place, and asks for what stays open."""
    asked, seen, waiting = Asked(), Counter[str](), list[Outcome]()
    for block, outcomes in read:
        for one in sorted(outcomes, key=lambda one: (one.place.used or one.place.line, one.place.numeral.start)):
            words = _words(name, block, one.place)
            seen[words] += 1
            key = hashlib.sha256(f"{words}\0{seen[words]}".encode(errors="replace")).hexdigest()[:12]
            old = rows.get(key)
            row = Row(key, name, one.place.line, one.place.reported)
            if old and old.means != "":
                row.means, row.at, ids = old.means, old.at, list(old.values)
                try:
                    _decide(one, meanings.meaning(old.means, ids, vocabulary), old.at)
                except Malformed as error:
                    asked.malformed.append((old.at, str(error)))
            elif _open(one, vocabulary):
                ids = list(_candidates(one, outcomes, vocabulary))
                waiting.append(one)
            else:
                continue
            row.values = {each: _shown(each, vocabulary) for each in ids}
            asked.rows.append(_context(row, block, one))
        _accept_scaled_columns(outcomes)
    for one in waiting:
        if one.kind != "drift":
            one.kind = "unexplained"
    return asked


def _decide(one: Outcome, meaning: Meaning, at: int) -> None:
    one.sure, one.why, one.expected, one.equals, one.facts = "", f"by line {at} of the sheet", None, [], meaning.facts
    one.formula = "" if meaning.kind or meaning.alone else meaning.text
    if meaning.kind:
        one.kind = meaning.kind
        return
    place = one.place
    miss = meanings.misses(meaning, place.numeral, place.unit, place.text)
    one.kind = "drift" if miss else "match" if meaning.alone else "derived"
    if miss:
        one.expected, one.sure = miss.expected, BY_SHEET
        one.why = f"{miss.why}; by line {at} of the sheet"
        one.percent = miss.percent


def _accept_scaled_columns(outcomes: list[Outcome]) -> None:
    """A factor of 100 that all cells of a column have is a way to write it, and no slip."""
    columns: dict[str, list[Outcome]] = {}
    for one in outcomes:
        if one.place.cell and one.facts:
            columns.setdefault(one.place.text.rpartition(" | ")[2], []).append(one)
    for cells in columns.values():
        if len(cells) >= _COLUMN and all(_TIMES_100.match(one.why) for one in cells):
            for one in cells:
                one.kind, one.sure, one.expected, one.why = "match", "", None, "its column is in per cent"


# -- what is asked


def _open(one: Outcome, vocabulary: Vocabulary) -> bool:
    """Is it neither surely right nor surely wrong?"""
    place = one.place
    numeral = place.numeral
    if is_idle(place):
        return False
    if place.cell and numeral.ulp >= 1 and f"{numeral.value:g}" in vocabulary.axes.get("sweep", ()):
        # mostly the point of a sweep that its row is; but a value of the file may be as large, or named as its column
        named = re.compile(rf"(?<![\d.]){numeral.value:.0f}(?!\d)")
        values = (fact.value == numeral.value and not named.search(fact.id) for fact in vocabulary.by_id.values())
        known = vocabulary.others(place.text.rpartition(" | ")[2], settings=True) or any(values)
        return bool(known) and one.kind in ("other", "unexplained")
    if one.kind == "other":
        near = place.text if place.cell else place.text[max(0, numeral.start - _NEXT) : numeral.end + _NEXT]
        settings = vocabulary.others(near, settings=True)
        if any(rounds_to(fact.value, numeral.value, numeral.ulp) for fact in settings):
            return False
        return (numeral.role == "thing" and numeral.digits > 1) or (numeral.role in IDLE and bool(settings))
    if one.kind == "drift":
        return one.sure == "likely"
    if one.kind == "derived":
        return not one.settled
    if one.kind != "match":
        return True
    if numeral.spread is not None and not any(
        fact.spread is not None and agrees(fact, numeral, place.unit) for fact in one.facts
    ):
        return True  # another kind of spread, or a wrong one
    return not (one.settled or _named(place, vocabulary))


def _named(place: Place, vocabulary: Vocabulary) -> bool:
    """Do its own words leave one value alone, and is it the number's?"""
    numeral = place.numeral
    if not place.cell and (place.unclear or _COMPARES.search(place.text)):
        return False
    ways = [vocabulary.fitting(place.own), vocabulary.plausible(place.own)]
    ways += [vocabulary.plausible({**place.around, **place.own})]
    if numeral.role == "runs":
        counts = [vocabulary.counts, *({fact.n for fact in vocabulary.members(left)} for left in ways)]
        return {numeral.value} in counts
    if not place.cell and numeral.digits < 3 and numeral.spread is None:
        return False
    if numeral.role == "spread":
        known = [fact for fact in meant(place, vocabulary) if fact.spread is not None]
        written = numeral._replace(spread=numeral.value, spread_ulp=numeral.ulp)
        scale = [{1.0, *scales(fact, numeral, place.unit)} for fact in known]
        return all(
            any(spread_agrees(fact, written, each) for each in ways) for fact, ways in zip(known, scale, strict=True)
        )
    equal = 0
    for fact in matches(vocabulary, numeral, place.unit):
        equal |= fact.bit
    return any(left and not left & ~equal for left in ways)


def _candidates(one: Outcome, block: list[Outcome], vocabulary: Vocabulary) -> Iterator[str]:
    """What it may mean: ids of values, and for a change what is computed from those that its neighbours state."""
    place = one.place
    beside = [other for other in block if other.kind == "match" and (other.place.line == place.line or not place.cell)]
    beside.sort(key=lambda other: (other.place.text != place.text, abs(other.place.line - place.line)))
    near = [fact for other in beside for fact in other.facts[:2]]
    computed: list[str] = []
    if place.numeral.role in ("change", "ratio") or one.kind == "derived":
        computed = list(_expressions(one, [*one.facts, *near], vocabulary))
    exact = matches(vocabulary, place.numeral, place.unit)
    sets = [meant(place, vocabulary)]
    sets += [list(vocabulary.members(vocabulary.fitting(terms))) for terms in (place.own, place.named)]
    likely = [fact for facts in sets for fact in _by_size(facts, place)]
    others = vocabulary.others(f"{place.group} {place.text}")
    same = [fact for fact in vocabulary.truth.others if reading(fact, place.numeral, place.unit)]
    close = [fact for fact in vocabulary.truth.others if "setting" in fact.terms and _is_close(fact, place.numeral)]
    others = [*same[:2], *_by_size(others, place)[:3], *others[:2], *close[:2]]
    facts = [*one.facts[:4], *one.equals, *exact, *others, *(near if place.numeral.role else []), *likely]
    ids = [*computed, *(fact.id for fact in facts)]
    yield from list(dict.fromkeys(ids))[:_CANDIDATES]


def _is_close(fact: Fact, numeral: Numeral) -> bool:
    return numeral.digits > 1 and abs(fact.value - numeral.value) <= _NEAR * abs(numeral.value)


def _by_size(facts: Iterable[Fact], place: Place) -> list[Fact]:
    """Those of the size of what is written, or of a power of ten of it, the nearest first; of a change all."""
    written, far = abs(place.numeral.value), math.inf if place.numeral.role in ("change", "ratio") else _SIZE
    apart: list[tuple[float, int, Fact]] = []
    for fact in facts:
        tens = math.log10(abs(fact.value) / written) if fact.value and written else 9.5
        distance = abs(tens - round(tens)) + 0.1 * abs(round(tens))
        apart += [(distance, len(apart), fact)] if distance < far else []
    return [fact for _, _, fact in sorted(apart, key=lambda pair: pair[:2])]


def _expressions(one: Outcome, facts: list[Fact], vocabulary: Vocabulary) -> Iterator[str]:
    """What can be computed from values near a number and gives it."""
    written = one.place.numeral.value
    different = list({fact.id: fact for fact in facts}.values())[:_OPERANDS]
    ways = [
        way.format(_quoted(a.id), _quoted(b.id))
        for a, b in permutations(different, 2)
        for way, compute in _CHANGES
        if b.value
        and any(abs(compute(a.value, b.value) * scale - written) <= _NEAR * abs(written) for scale in _SCALES)
    ]
    ways += [f"mean({', '.join(_quoted(fact.id) for fact in different)})"] if len(different) > 2 else []
    found = 0
    for way in ways:
        meaning = meanings.meaning(way, [], vocabulary)
        if found < _COMPUTED and not meanings.misses(meaning, one.place.numeral, one.place.unit, one.place.text):
            found += 1
            yield way


def _quoted(name: str) -> str:
    return name if name.isidentifier() and not re.fullmatch(r"v\d", name) else repr(name)


def _shown(name: str, vocabulary: Vocabulary) -> str:
    """A candidate's value, and what it is where its id does not say so."""
    fact = vocabulary.by_id.get(name)
    if not fact:
        try:
            return f"{meanings.computed(meanings.meaning(name, [], vocabulary)):.6g}"
        except Malformed:
            return "?"
    spread = "" if fact.spread is None else f" ± {fact.spread:.4g}"
    about = "" if "/" in name else f" {', '.join(fact.terms.values())}"
    return f"{fact.value:.6g}{spread}{about}"


# -- where it stands


def _words(name: str, block: Block, place: Place) -> str:
    """Everything that tells a number from another one but its own digits and its line."""
    about = [block.heading, block.caption if isinstance(block, Table) else ""]
    masked, ordinal = place.text, 0
    if not place.cell:
        numerals = find_numerals(place.text)
        ordinal = sum(numeral.start < place.numeral.start for numeral in numerals)
        for numeral in reversed(numerals):
            masked = masked[: numeral.start] + "#" + masked[numeral.end :]
    parts = [place.group] if place.group else []
    parts += [name, block.where.partition(" ")[0], *(re.sub(r"\d+", "#", text) for text in about), masked]
    return "\0".join([*(" ".join(part.split()) for part in parts), str(ordinal)])


def _context(row: Row, block: Block, one: Outcome) -> Row:
    place = one.place
    row.where, row.heading = place.where, _cut(block.heading)
    if isinstance(block, Table):
        row.heading = "" if block.caption else row.heading
        labels, _, column = place.text.rpartition(" | ")
        labels = f"{place.group} / {labels}" if place.group else labels
        row.row, row.column, row.caption = _cut(labels), _cut(column), _cut(block.caption or block.context)
        return row
    start, end = place.numeral.start, place.numeral.end
    before, after = place.text[:start], place.text[end:]
    row.text = _cut_left(before, _TEXT // 2) + f"«{place.text[start:end]}»" + _cut(after, _TEXT // 2)
    row.text = " ".join(row.text.split())
    if isinstance(block, Passage):
        at = block.text.find(place.text.strip()[:60])
        row.before = _cut_left(" ".join(block.text[: max(0, at)].split()) or block.lead, _LABEL)
    return row


def _cut(text: str, most: int = _LABEL) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _cut_left(text: str, most: int) -> str:
    return text if len(text) <= most else f"…{text[-most:]}"
