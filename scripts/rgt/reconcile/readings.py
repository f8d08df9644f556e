"""How a written number can state a value: as is, as percent, in another unit, rounded; and how it can miss it by a
slip.

Example:
    reading(Fact(value=0.914, share=True), Numeral("91.4%"))      "percent"
    slip(Fact(value=0.914, share=True), Numeral("94.1%"))         Slip("two digits are transposed", 91.4)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from rgt.reconcile.facts import UNITS, Fact
from rgt.reconcile.numerals import Numeral
from rgt.reconcile.vocabulary import Vocabulary

_SLACK = 1e-6  # of a unit of the last place: what binary floats lose
_PRINTED = 1e-8  # of a value: two programs print the ninth digit of one float differently
_MEASURED = {  # what a value without a unit may be measured in
    "time": ("latency", "training time", "gpu hours", "time"),
    "size": ("memory", "size"),
    "energy": ("energy",),
    "power": ("power", "energy"),
    "dB": ("psnr",),
}


def rounds_to(exact: float, written: float, ulp: float) -> bool:
    return abs(exact - written) <= ulp * (0.5 + _SLACK) + abs(exact) * _PRINTED


def scales(fact: Fact, numeral: Numeral, unit: str = "") -> tuple[float, ...]:
    """What a fact is multiplied with before it is compared. `unit`: of the column or row, for a number without one."""
    kind, factor = UNITS.get(numeral.unit or unit, ("", 1.0))
    own_kind, own_factor = UNITS.get(fact.unit, ("", 1.0))
    size = abs(fact.value)
    if numeral.percent or kind == "share":
        if own_kind:
            return (1.0,) if own_kind == "share" else ()
        if size > 1.5:
            return (1.0,) if fact.share or (size <= 100 and fact.value != round(fact.value)) else ()
        return (100.0,) if fact.share else (100.0, 1.0)
    if kind and own_kind:
        return (own_factor / factor,) if kind == own_kind else ()
    if kind == "count":
        return (1 / factor, 1.0) if size < 1e5 else (1 / factor,)
    if kind and (fact.share or fact.terms.get("metric") not in _MEASURED.get(kind, ())):
        return ()  # milliseconds are no accuracy
    if own_kind == "share":
        return (1.0, 0.01)
    if fact.share:
        return (1.0, 100.0) if size <= 1.5 else (1.0, 0.01)
    if own_kind == "count" and not kind:
        return (1.0, own_factor)
    if not kind and not own_kind and size <= 100 and not fact.lower:
        return (1.0, 100.0) if size <= 1 else (1.0, 0.01)  # people multiply scores by 100 without a sign
    return (1.0,)


def reading(fact: Fact, numeral: Numeral, unit: str = "") -> float | None:
    """The scale at which a number is this fact, to the digits that were written; the spread is not looked at."""
    for scale in scales(fact, numeral, unit):
        if rounds_to(fact.value * scale, numeral.value, numeral.ulp):
            return scale
    return None


def spread_agrees(fact: Fact, numeral: Numeral, scale: float, other: bool = False) -> bool:
    """The standard deviation; `other`: or the standard error, or half of a confidence interval."""
    if numeral.spread is None or fact.spread is None:
        return True
    root = math.sqrt(fact.n) if fact.n else 1.0
    widths = {1.0, 2.0, 1.96, 1 / root, 1.96 / root, 2 / root} if other else {1.0}
    return any(
        rounds_to(fact.spread * width * size, numeral.spread, numeral.spread_ulp)
        for width in widths
        for size in (scale, 1.0)
    )


def agrees(fact: Fact, numeral: Numeral, unit: str = "") -> bool:
    scale = reading(fact, numeral, unit)
    return scale is not None and spread_agrees(fact, numeral, scale)


def matches(vocabulary: Vocabulary, numeral: Numeral, unit: str = "") -> Iterator[Fact]:
    """Every fact that a number states exactly, whatever the text says."""
    kind, factor = UNITS.get(numeral.unit or unit, ("", 1.0))
    tried = (
        {1.0, 0.01, 100.0} if kind in ("", "share") else {1.0, *(factor / other for _, other in _of_kind(kind)), factor}
    )
    if not kind and vocabulary.counted:
        tried |= {1e-3, 1e-6, 1e-9}
    seen = 0
    for scale in tried:
        radius = numeral.ulp * scale * (0.5 + _SLACK) * 1.000001 + abs(numeral.value * scale) * _PRINTED
        for fact in vocabulary.near(numeral.value * scale, radius):
            if not fact.bit & seen and reading(fact, numeral, unit) is not None:
                seen |= fact.bit
                yield fact


def _of_kind(kind: str) -> list[tuple[str, float]]:
    return [each for each in set(UNITS.values()) if each[0] == kind]


class Slip(NamedTuple):
    what: str
    expected: float  # as the document would write it
    apart: float = 0.0  # relative, where nothing but another value explains it


def slip(fact: Fact, numeral: Numeral, unit: str = "") -> Slip | None:
    """How a number that is not the fact may have come from it; None when it cannot be the same quantity."""
    possible = scales(fact, numeral, unit)
    if not possible:
        return None
    written, ulp = numeral.value, numeral.ulp
    # as a ratio, so that 18.3 is nearer to 81.3 than to 0.813
    exact = min(
        (fact.value * scale for scale in possible),
        key=lambda value: abs(math.log(abs(value / written))) if value and written else abs(value - written),
    )
    scale = exact / fact.value if fact.value else 1.0
    if fact.spread is not None and numeral.spread is not None and rounds_to(exact, written, ulp):
        return Slip("the spread differs", fact.spread * scale)
    if exact and rounds_to(-exact, written, ulp):
        return Slip("the sign is wrong", exact)
    kind, factor = UNITS.get(numeral.unit or unit, ("", 1.0))
    others = {other for _, other in _of_kind(kind)} - {factor} if kind not in ("", "share") else set()
    if any(rounds_to(exact * factor / other, written, ulp) for other in others):
        return Slip("the unit is wrong", exact)
    for times in (100.0, 0.01, 1000.0, 0.001, 10.0, 0.1) if numeral.digits > 1 else ():
        if rounds_to(exact * times, written, max(ulp, abs(exact * times) * 1e-3)):
            return Slip(f"it is off by a factor of {times:g}", exact)
    return _digit_slip(numeral, exact)


def _digit_slip(numeral: Numeral, exact: float) -> Slip:
    ulp = numeral.ulp
    written, right = (str(round(min(abs(value) / ulp, 1e15))) for value in (numeral.value, exact))
    apart = abs(numeral.value - exact) / max(abs(exact), ulp)
    different = [at for at, pair in enumerate(zip(written, right, strict=False)) if pair[0] != pair[1]]
    if len(written) == len(right) and len(different) == 2:
        first, last = different
        if last == first + 1 and written[first : last + 1] == right[first : last + 1][::-1]:
            return Slip("two digits are transposed", exact)
    if len(written) == len(right) > 2 and len(different) == 1:
        return Slip("one digit differs", exact, apart)
    return Slip("the value differs", exact, apart)
