"""A table read by its values alone: what the other cells of a row and of a column have in common is what a cell is.

Names are spelled in as many ways as there are authors; digits are not. A value has parts (the terms of its axes, the
keys of its path). Where nearly all other numbers of a column state values with the same parts, and those of its row
do, too, one value of the file may have all of these: that is what the cell must be, whatever the labels seem to say.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rgt.reconcile.facts import Fact
from rgt.reconcile.places import Outcome
from rgt.reconcile.readings import agrees, matches, slip
from rgt.reconcile.vocabulary import Part, Vocabulary

_NEARLY = 0.75  # of the other cells of a line
_OTHERS = 3  # cells of the row and the column together that must agree
_LIKE = 0.6  # relative difference, beyond which a number that is no other value is something else
_LONG = 12  # cells of a row or a column: looking at each again would take their square
_LARGE = 4000  # cells: a table of raw data
_CHANCE = 0.02  # of all rows of the file that one would have states the other cells of a row by accident
_BESIDE = tuple(step * sign for step in range(3, 60, 3) for sign in (1, -1))  # in units of a number's last digit
REASON = "the other cells of its row and column are those of this value"


@dataclass(eq=False)
class _Cell:
    outcome: Outcome
    row: int
    column: int
    equal: int  # the set of facts that it states
    facts: int = 0  # of these, the ones that suit its column and row

    def __post_init__(self) -> None:
        self.facts = self.equal

    def line(self, axis: int) -> int:
        return self.column if axis else self.row


@dataclass
class _Line:
    """What the cells of a row or a column are of."""

    cells: list[_Cell]  # those that agree
    parts: set[Part]  # which they share
    facts: int  # with all of these parts


class _Grid:
    """The cells of a table by rows (0) and columns (1)."""

    def __init__(self, cells: list[_Cell], vocabulary: Vocabulary) -> None:
        self.having, self.parts = vocabulary.having_part, vocabulary.parts
        self.vocabulary, self.lines = vocabulary, [_lines(cells, axis) for axis in (0, 1)]
        # a rival's row and a column of something else state few values of the file
        self.known = [
            {at for at, line in lines.items() if 2 * sum(one.facts != 0 for one in line) >= len(line)}
            for lines in self.lines
        ]
        self.common: list[dict[int, _Line]] = [{}, {}]
        longer = int(len(self.lines[0]) > len(self.lines[1]))
        for axis in (longer, 1 - longer):  # of the values that a cell may state, those of its column and row
            self.common[axis] = {at: self._shared(line, axis) for at, line in self.lines[axis].items()}
            for cell in cells:
                cell.facts = cell.facts & self.common[axis][cell.line(axis)].facts or cell.facts
        self.common[longer] = {at: self._shared(line, longer) for at, line in self.lines[longer].items()}

    def _shared(self, cells: list[_Cell], axis: int, share: float = _NEARLY) -> _Line:
        """The parts that nearly all cells share in one value each, general ones first."""
        cells = [one for one in cells if one.line(1 - axis) in self.known[1 - axis]]
        need = max(1, share * len(cells))
        counts, certain = Counter[Part](), set[Part]()
        for one in cells:
            each = [self.parts[fact.bit] for fact in self.vocabulary.members(one.facts)]
            counts.update(set[Part]().union(*each))
            certain.update(frozenset.intersection(*each) if each else ())  # whichever of them it states
        shared = [part for part, count in counts.items() if count >= need and part in certain]
        parts, facts = set[Part](), self.vocabulary.every
        for part in sorted(shared, key=lambda part: (-counts[part], -self.having[part].bit_count(), str(part))):
            fewer = facts & self.having[part]
            if sum(one.facts & fewer != 0 for one in cells) >= need:
                facts = fewer
                parts.add(part)
        return _Line([one for one in cells if one.facts & facts] if parts else [], parts, facts)

    def agreed(self, cell: _Cell) -> bool:
        """Its words, its row and its column agree."""
        lines = [self.common[axis][cell.line(axis)] for axis in (0, 1)]
        several = sum(len(line.cells) for line in lines) > _OTHERS + 1
        possible = lines[0].facts & lines[1].facts
        facts = cell.facts & possible
        if not (several and cell.outcome.kind == "match" and facts) or self._contradicted(cell, facts):
            return False
        return not possible & self.vocabulary.fitting(cell.outcome.place.own) & ~cell.equal  # no other is possible

    def _contradicted(self, cell: _Cell, facts: int) -> bool:
        """Do its words name another value, or does another cell of its row or column state the same one?"""
        place = cell.outcome.place
        across = (one for axis in (0, 1) for one in self.lines[axis][cell.line(axis)] if one is not cell)
        return not facts & self.vocabulary.fitting(place.own) or any(one.facts == facts for one in across)

    def settled(self, cell: _Cell) -> bool:
        """Most cells of a large table."""
        lines = [self.common[axis][cell.line(axis)] for axis in (0, 1)]
        return any(len(line.cells) > _LONG for line in lines) and cell.outcome.settled

    def meant(self, cell: _Cell) -> int:
        """The facts that its row and its column leave; 0 where these say nothing, or against each other."""
        for own, share in ((False, _NEARLY), (False, 1.0), (True, _NEARLY), (True, 1.0)):
            lines = [self._around(cell, axis, own, share) for axis in (0, 1)]
            told = [self._told(line, axis) for axis, line in enumerate(lines)]
            sizes = [len(line.cells) for line in lines]
            if not all(told) or sum(sizes) < _OTHERS or (own and min(sizes) < _OTHERS):
                continue
            facts = self.vocabulary.every
            for part in told[0] | told[1] | lines[0].parts & lines[1].parts:
                facts &= self.having[part]
            # of two cells that deny each other the words tell the wrong one
            pairs = [line.cells[0].outcome.kind for line in lines if len(line.cells) == 1]
            tied = own or (pairs and ({*pairs} != {"match"} or cell.outcome.kind == "match"))
            if facts and (facts & cell.equal or not tied):
                return facts
        return 0

    def _around(self, cell: _Cell, axis: int, own: bool, share: float) -> _Line:
        """Its row or column: the other cells, and where one of these may be wrong, its own, too."""
        line = self._shared([one for one in self.lines[axis][cell.line(axis)] if own or one is not cell], axis, share)
        across = self.common[1 - axis]  # what is itself out of place tells nothing
        line.cells = [one for one in line.cells if one.facts & across[one.line(1 - axis)].facts]
        return line

    def by_accident(self, cell: _Cell) -> bool:
        """In a file of many values any number is one: would other numbers have given a row or column, too?"""
        for axis in (0, 1):
            chance = rows = 1.0
            for one in self._around(cell, axis, False, _NEARLY).cells:
                numeral, unit = one.outcome.place.numeral, one.outcome.place.unit
                alike = self.common[1 - axis][one.line(1 - axis)].facts  # what its own column is of
                moved = (numeral._replace(value=numeral.value + step * numeral.ulp) for step in _BESIDE)
                hits = sum(each.bit & alike != 0 for other in moved for each in matches(self.vocabulary, other, unit))
                others = (one.equal & alike).bit_count() - 1
                rows = max(rows, alike.bit_count())
                chance *= max(others, (hits + 0.5) / len(_BESIDE)) / max(1, alike.bit_count())
            if rows * chance > _CHANCE:
                return True
        return False

    def _told(self, line: _Line, axis: int) -> set[Part]:
        """What the cells of a row have from their row: not what each of them has from its own column."""
        told = set(line.parts) if line.cells else set()
        for part in line.parts:
            if all(part in self.common[1 - axis][one.line(1 - axis)].parts for one in line.cells):
                told.discard(part)
        return told


def align(outcomes: list[Outcome], at: list[tuple[int, int]], vocabulary: Vocabulary) -> None:
    """Judges the cells of one table again, in place. `at`: row and column of each."""
    cells = []
    for outcome, (row, column) in zip(outcomes, at, strict=True):
        numeral = outcome.place.numeral
        if numeral.digits > 1 and not numeral.role:
            equal = [*matches(vocabulary, numeral, outcome.place.unit)]
            cells.append(_Cell(outcome, row, column, sum(fact.bit for fact in equal)))
            same = sum(fact.bit for fact in equal if agrees(fact, numeral, outcome.place.unit))
            cells[-1].facts = same or cells[-1].equal
    if not _OTHERS < len(cells) <= _LARGE:
        return
    grid = _Grid(cells, vocabulary)
    for cell in cells:
        cell.outcome.settled = grid.agreed(cell)
    meant = [(cell, facts) for cell in cells if not grid.settled(cell) and (facts := grid.meant(cell))]
    for cell, facts in meant:
        if facts & cell.equal:
            _agreed(cell, facts, vocabulary)
        elif not facts & (facts - 1) and not any(
            one.facts & facts for one in cells if one.row == cell.row or one.column == cell.column
        ):
            (fact,) = vocabulary.members(facts)
            if facts & vocabulary.fitting(cell.outcome.place.own) and not grid.by_accident(cell):
                _missed(cell, fact, vocabulary)


def _lines(cells: list[_Cell], axis: int) -> dict[int, list[_Cell]]:
    lines: dict[int, list[_Cell]] = {}
    for cell in cells:
        lines.setdefault(cell.line(axis), []).append(cell)
    return lines


def _agreed(cell: _Cell, facts: int, vocabulary: Vocabulary) -> None:
    one = cell.outcome
    allowed = one.kind == "drift" and one.facts and one.facts[0].bit & facts  # what the words say is possible, too
    if one.kind != "match" and "spread" not in one.why and not allowed:
        own = list(vocabulary.members(facts & cell.equal))
        one.kind, one.facts, one.expected, one.sure, one.why, one.equals = "match", own, None, "", "", []


def _missed(cell: _Cell, fact: Fact, vocabulary: Vocabulary) -> None:
    one, place = cell.outcome, cell.outcome.place
    if one.kind == "match" and any(_named(each, one, vocabulary) for each in one.facts):
        return
    miss = slip(fact, place.numeral, place.unit)
    if not miss or "point" in fact.terms or place.numeral.digits < 3 or (one.kind == "drift" and fact in one.facts):
        return
    if not cell.equal and miss.apart > _LIKE:
        return
    one.kind, one.facts, one.expected, one.sure = "drift", [fact], miss.expected, "likely"
    one.why, one.equals = f"{miss.what}: {REASON}", list(vocabulary.members(cell.equal))[:4]


def _named(fact: Fact, one: Outcome, vocabulary: Vocabulary) -> bool:
    """Do its row and column say in words that it is this one?"""
    return all(axis in one.place.own for axis in fact.terms if len(vocabulary.axes[axis]) > 1)
