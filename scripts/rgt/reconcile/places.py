"""A number of a document with everything that may say what it is, and what came of it."""

from __future__ import annotations

from collections.abc import Callable
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
    around: dict[str, str]  # from farther away, for axes that nothing near names
    unit: str = ""  # of its column
    cell: bool = False
    bound: bool = False  # a name is tied to it: "91 (ours)", "91 for ours"
    unclear: int = 0  # axes on which the sentence can be read in several ways
    ours: str = ""  # the document's own method
    inferred: set[str] = field(default_factory=set)  # axes known from the neighbours' values
    average: bool = False  # its column or row says so
    reference: tuple[str, str] | None = None  # axis and name of what it is compared with: "2.6 points over B"
    compared: frozenset[str] = frozenset()  # all such names of its sentence
    against: list[str] = field(default_factory=list)  # why it may be somebody else's, or of another state of the model
    weigh: Callable[[], list[str]] | None = None  # finds such reasons; most numbers match and never need it

    def doubts(self) -> list[str]:
        if self.weigh:
            self.against, self.weigh = self.against + self.weigh(), None
        return self.against


@dataclass
class Outcome:
    place: Place
    kind: str  # match, drift, derived, cited, unexplained, other
    facts: list[Fact] = field(default_factory=list)
    expected: float | None = None
    sure: str = ""  # certain, likely, anchored
    why: str = ""
    equals: list[Fact] = field(default_factory=list)  # other facts that it states exactly
    settled: bool = False  # by what stands beside it, whatever its words leave open


def comparable(a: Fact, b: Fact) -> bool:
    """Of one metric, and different on one axis alone."""
    apart = a.terms.items() ^ b.terms.items()
    return a.terms.get("metric") == b.terms.get("metric") and len(apart) == 2 and len({axis for axis, _ in apart}) == 1


def about(fact: Fact, place: Place) -> bool:
    """Does nothing that its place names speak against a fact?"""
    return all(fact.terms.get(axis) in terms for axis, terms in place.own.items() if axis in fact.terms)
