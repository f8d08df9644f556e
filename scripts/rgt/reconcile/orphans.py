"""A second look at numbers that state no value: what their neighbours state tells which value was mistyped.

Two digits exchanged, or a slip by a power of ten, of a value that belongs to what the other numbers of its sentence,
row or column state, and that none of them states: that value was meant, whatever the words are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rgt.reconcile.facts import Fact
from rgt.reconcile.numerals import Numeral
from rgt.reconcile.places import Outcome, comparable
from rgt.reconcile.readings import by_chance, matches, reading
from rgt.reconcile.vocabulary import Vocabulary

_POWERS = (10.0, 100.0, 1000.0, 0.1, 0.01, 0.001)


def second_look(lines: Iterable[list[Outcome]], vocabulary: Vocabulary) -> None:
    """Judges the numbers of sentences, rows and columns again, in place."""
    stated: dict[int, list[Fact]] = {}
    lines = list(lines)
    for line in (part for whole in lines for part in _by_unit(whole)):
        if len(line) < 2 or not any(map(_open, line)):
            continue
        for one in line:
            if id(one) not in stated:
                stated[id(one)] = list(matches(vocabulary, one.place.numeral, one.place.unit))
        for one in line:
            if _open(one) and not stated[id(one)]:
                _look(one, [stated[id(other)] for other in line if other is not one], vocabulary)
    _doubt(lines)


def _doubt(lines: list[list[Outcome]]) -> None:
    """Where most other numbers are no values of the file, a line is of other runs: nothing in it is wrong."""
    beside: dict[int, list[list[bool]]] = {}
    plain = [[one for one in line if one.place.numeral.role in ("", "from") and _compared(one)] for line in lines]
    for line in plain:
        for one in line if any(one.kind == "drift" for one in line) else ():
            others = [other for other in line if other is not one and not (one.place.cell and other.kind == "drift")]
            known = [other.kind in ("match", "derived") or bool(other.equals) for other in others]
            beside.setdefault(id(one), []).append(known)
    for one in (one for line in plain for one in line if one.kind == "drift" and one.sure == "likely"):
        every = [known for line in beside[id(one)] for known in line]
        alone = any(len(line) > 2 and not any(line) for line in beside[id(one)])
        if alone or (len(every) > 1 and sum(every) * (3 if one.place.cell else 2) < len(every) + (not one.place.cell)):
            one.kind, one.sure, one.why = "unexplained", "", "most numbers beside it are no values of the file"


def _compared(one: Outcome) -> bool:
    """May it be a value of the file at all? A rival's number may not."""
    return one.place.numeral.digits > 1 and one.kind != "cited"


def _by_unit(line: list[Outcome]) -> Iterator[list[Outcome]]:
    """The numbers of a line, and those of each unit."""
    yield line
    units = {one.place.numeral.unit for one in line}
    if len(units) > 1:
        yield from ([one for one in line if one.place.numeral.unit == unit] for unit in sorted(units) if unit)


def _open(one: Outcome) -> bool:
    numeral = one.place.numeral
    plain = numeral.role in ("", "from") and not one.place.average and numeral.digits > 2
    return plain and one.kind in ("unexplained", "cited")


def _look(one: Outcome, others: list[list[Fact]], vocabulary: Vocabulary) -> None:
    known = [facts for facts in others if facts]
    if 2 * len(known) < len(others) or (len(known) == 1 and one.place.doubts()):
        return
    if not known:
        return
    parts = vocabulary.parts
    shared = frozenset.intersection(*(frozenset().union(*(parts[fact.bit] for fact in facts)) for facts in known))
    taken = {fact.value for facts in known for fact in facts}
    place = one.place
    fitting = vocabulary.fitting(
        {axis: terms for axis, terms in place.own.items() if axis not in {*place.inferred, "metric"}}
    )
    said = {*place.around.values(), *(term for terms in (place.named | place.own).values() for term in terms)}

    def meant(numeral: Numeral) -> dict[float, tuple[Fact, str, float]]:
        found = {}
        for what, other in _mistyped(numeral):
            for fact in matches(vocabulary, other, place.unit):
                alone = len(known) == 1 and any(comparable(fact, other) for other in known[0])
                alike = alone or (len(known) > 1 and shared and shared <= parts[fact.bit])
                named = any(term in said for term in fact.terms.values())
                possible = fact.bit & fitting and fact.value not in taken and "point" not in fact.terms
                if possible and alike and (named or len(known) > 2):
                    found[fact.value] = fact, what, fact.value * (reading(fact, other, place.unit) or 1.0)
        return found

    found = meant(place.numeral)
    if len(found) == 1 and not by_chance(place.numeral, lambda other: bool(meant(other))):
        ((fact, what, right),) = found.values()
        one.kind, one.facts, one.expected, one.sure, one.equals = "drift", [fact], right, "likely", []
        one.why = f"{what}: the numbers beside it are of the same kind as this value"


def _mistyped(numeral: Numeral) -> Iterator[tuple[str, Numeral]]:
    """What may have been meant."""
    digits = str(round(abs(numeral.value) / numeral.ulp))
    sign = -1 if numeral.value < 0 else 1
    for at in range(len(digits) - 1):
        if digits[at] != digits[at + 1]:
            turned = digits[:at] + digits[at + 1] + digits[at] + digits[at + 2 :]
            yield "two digits are transposed", numeral._replace(value=sign * int(turned) * numeral.ulp)
    for power in _POWERS:
        other = numeral._replace(value=numeral.value * power, ulp=numeral.ulp * power)
        yield f"it is off by a factor of {1 / power:g}", other
