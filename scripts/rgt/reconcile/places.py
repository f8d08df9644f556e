"""A number of a document with everything that may say what it is, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from rgt.reconcile.facts import Fact
from rgt.reconcile.numerals import Numeral

Terms = dict[str, frozenset[str]]


@dataclass
class Place:
    """A number and everything that may say what it is."""

    numeral: Numeral
    reported: str
    line: int
    where: str
    text: str  # its sentence, or its row and column
    own: Terms  # the names that belong to it
    named: Terms  # all names of its sentence
    around: Terms  # one name from farther away, for axes that nothing near names
    unit: str = ""  # of its column
    cell: bool = False
    unclear: int = 0  # axes on which the sentence can be read in several ways
    average: bool = False  # its column or row says so
    group: str = ""  # the row above that heads its rows
    used: int = 0  # the line that uses the macro which is defined on `line`
    stranger: str = ""  # why its row or column may be about something that no value knows


@dataclass
class Outcome:
    place: Place
    kind: str  # match, drift, derived, cited, unexplained, other
    facts: list[Fact] = field(default_factory=list)
    expected: float | None = None
    sure: str = ""  # certain, likely, anchored
    why: str = ""
    equals: list[Fact] = field(default_factory=list)  # other facts that it states exactly
    formula: str = ""  # what a reader says it is computed by
    percent: bool = False  # expected is a ratio of values in per cent
    settled: bool = False  # by what stands beside it, whatever its words leave open
