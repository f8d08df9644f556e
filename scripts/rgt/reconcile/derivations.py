"""What follows from the values: differences, relative changes, ratios, shares and means, looked up by their digits.

Only values that differ on one axis are set against each other: a method against another one on the same data set.
A number that is one of these is explained, whether or not its sentence names both ends.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from rgt.reconcile.facts import UNITS, Fact
from rgt.reconcile.numerals import Numeral

_MOST = 60  # values along one axis: with more, something fits every number


class Derived(NamedTuple):
    value: float  # without its sign
    kind: str  # difference, relative, errors (of 100 %), ratio, part, mean
    how: str
    facts: tuple[Fact, ...]
    base: float = 0.0  # what a relative change is a part of


def changes(a: Fact, b: Fact) -> Iterator[Derived]:
    """What a text may say of two values."""
    x, y, both = a.value, b.value, (a, b)
    shown = f"{x:.6g} - {y:.6g}"
    yield Derived(abs(x - y), "difference", shown, both)
    if max(abs(x), abs(y)) <= 1.5:
        yield Derived(100 * abs(x - y), "difference", f"100 x ({shown})", both)
    elif a.share:
        yield Derived(0.01 * abs(x - y), "difference", f"0.01 x ({shown})", both)
    for first, second in ((x, y), (y, x)):
        if first and second:
            turned = f"{first:.6g} - {second:.6g}"
            how = f"100 x ({turned}) / {second:.6g}"
            yield Derived(100 * abs((first - second) / second), "relative", how, both, second)
            yield Derived(abs(first / second), "ratio", f"{first:.6g} / {second:.6g}", both)
            yield Derived(100 * abs(first / second), "part", f"100 x {first:.6g} / {second:.6g}", both)
        top = 100.0 if max(abs(x), abs(y)) > 1.5 else 1.0
        if a.share and second != top:  # of the errors
            fewer = f"100 x ({first:.6g} - {second:.6g}) / ({top:g} - {second:.6g})"
            yield Derived(100 * abs((first - second) / (top - second)), "errors", fewer, both)


class Derivations:
    def __init__(self, facts: list[Fact]) -> None:
        groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Fact]] = {}
        for fact in facts:
            for axis in fact.terms if "statistic" not in fact.terms else ():
                if axis != "metric":
                    rest = tuple(sorted((name, term) for name, term in fact.terms.items() if name != axis))
                    groups.setdefault((axis, rest), []).append(fact)
        made: list[Derived] = []
        for (axis, _), same in groups.items():
            if not 1 < len(same) <= _MOST:
                continue
            for pair in combinations(same, 2):
                made += changes(*pair)
            for count in {len(same), len(same) - 1} - {1} if axis != "method" else ():  # all of them, or all but one
                for some in combinations(same, count):
                    total = sum(fact.value for fact in some)
                    made.append(Derived(abs(total / count), "mean", f"the mean of {count} values", some))
                    made.append(Derived(abs(total), "mean", f"the sum of {count} values", some))
        for fact in facts:
            made += [Derived(abs(run), "mean", "one of its runs", (fact,)) for run in fact.runs]
            if fact.share:
                top = 100.0 if fact.value > 1.5 else 1.0
                made.append(Derived(top - fact.value, "mean", f"{top:g} - {fact.value:.6g}", (fact,)))
        self._made = sorted(made, key=lambda one: one.value)
        self._values = [one.value for one in self._made]
        self._factors = {UNITS[fact.unit] for fact in facts if fact.unit in UNITS}

    def explaining(self, numeral: Numeral, kinds: frozenset[str], unit: str = "") -> list[Derived]:
        """To the last place that was written; changes one more or less, as their operands are often rounded first."""
        kind, factor = UNITS.get(numeral.unit or unit, ("", 1.0))
        scales = {1.0}
        if kind not in ("", "share"):
            scales |= {factor / own for name, own in self._factors if name == kind}
        elif "mean" in kinds:
            scales |= {0.01} if abs(numeral.value) > 1.5 else set()
        found = []
        for scale in scales:
            size, slack = abs(numeral.value) * scale, numeral.ulp * scale * 1.001
            at = bisect_left(self._values, size - slack)
            while at < len(self._values) and self._values[at] <= size + slack:
                one = self._made[at]
                close = one.kind != "mean" or abs(one.value - size) <= 0.51 * slack
                found += [one] if one.kind in kinds and close else []
                at += 1
        return found
