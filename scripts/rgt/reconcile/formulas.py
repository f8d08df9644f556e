"""Rows and columns of a table that are computed from its others: a gain, a ratio, a mean, the distance to a base row.

Which formula it is the cells themselves say: the one that nearly all of them follow. What does not follow it is wrong,
as long as the cells it is computed from state their values.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise, permutations

from rgt.reconcile.places import Outcome

_WIDEST = 14  # lines that are tried against each other
_SIZE = 12.0  # times: a slip by ten is wrong, what is farther off is something else
_RARE = 0.3  # of all numbers: what follows a formula more often does so by chance
_PLAIN = ("", "from")

Grid = dict[tuple[int, int], Outcome]
Formula = tuple[str, Callable[[float, float], float]]

_PAIRS: tuple[Formula, ...] = (
    ("{0} - {1}", lambda a, b: a - b),
    ("100 x ({0} - {1}) / {1}", lambda a, b: 100 * (a - b) / b),
    ("100 x ({0} - {1}) / {0}", lambda a, b: 100 * (a - b) / a),
    ("{0} / {1}", lambda a, b: a / b),
)


class _Line:
    """One column (or row) that may be computed, and the ways to compute its cells."""

    def __init__(self, cells: dict[int, Outcome]) -> None:
        self.cells = cells
        self.signed = any(one.place.numeral.signed for one in cells.values())
        roles = Counter(one.place.numeral.role for one in cells.values())
        self.told = any(one.place.average for one in cells.values()) or roles["change"] + roles["ratio"] > 0


def check_formulas(outcomes: list[Outcome], at: list[tuple[int, int]]) -> None:
    """Judges the computed cells of one table, in place. `at`: row and column of each."""
    grid = dict(zip(at, outcomes, strict=True))
    for turned in (False, True):
        lines: dict[int, dict[int, Outcome]] = {}
        for (row, column), one in grid.items():
            across, along = (row, column) if turned else (column, row)
            lines.setdefault(across, {})[along] = one
        if 1 < len(lines) <= _WIDEST:
            for across, cells in lines.items():
                if len(cells) > 1:
                    _check(_Line(cells), {other: lines[other] for other in lines if other != across})


def _check(line: _Line, others: dict[int, dict[int, Outcome]]) -> None:
    stated = sum(one.kind == "match" for one in line.cells.values())
    if 2 * stated > len(line.cells):
        return  # a column of values
    best: dict[int, tuple[float, float, str]] = {}
    most = 0
    for ways in _ways(line, others):
        results = {along: way for along, way in ways.items() if _tells(line.cells[along], *way[:2])}
        held = sum(_follows(line, line.cells[along], value, slack) for along, (value, slack, _) in results.items())
        if held > most:
            most, best = held, results
    wrong = [along for along, (value, slack, _) in best.items() if not _follows(line, line.cells[along], value, slack)]
    chance = math.prod(_luck(line.cells[along], best[along][1]) for along in best if along not in wrong)
    if most > 2 and chance <= _RARE:
        for along in best.keys() - {*wrong}:
            line.cells[along].settled = True
    if most < (2 if line.told else 3) or chance > _RARE or not wrong or 3 * len(wrong) > most + len(wrong):
        for along, (value, _, how) in best.items():
            one = line.cells[along]
            if most > 2 and one.kind == "unexplained" and along not in wrong:
                one.kind, one.why, one.expected = "derived", how, value
        return
    for along in wrong:
        value, _, how = best[along]
        one = line.cells[along]
        if one.kind != "drift":
            one.kind, one.sure, one.expected, one.equals = "drift", "likely", value, []
            same = abs(abs(value) - abs(one.place.numeral.value)) <= one.place.numeral.ulp
            one.why = f"the sign is wrong: {how}" if same else f"unlike the rest of its line, it is not {how}"


def _luck(one: Outcome, slack: float) -> float:
    """How often any number of this size would follow a formula."""
    numeral = one.place.numeral
    return min(1.0, (2 * slack + numeral.ulp) / max(abs(numeral.value), numeral.ulp))


def _tells(one: Outcome, value: float, slack: float) -> bool:
    """Is the result of rounded operands known well enough, and of the size of what is written?"""
    numeral = one.place.numeral
    exact = slack <= max(2.2 * numeral.ulp, 0.05 * abs(value))
    return exact and abs(value) < _SIZE * max(abs(numeral.value), numeral.ulp) < _SIZE**2 * max(abs(value), numeral.ulp)


def _follows(line: _Line, one: Outcome, value: float, slack: float) -> bool:
    written = one.place.numeral.value
    apart = abs(written - value) if line.signed else abs(abs(written) - abs(value))
    return apart <= slack + one.place.numeral.ulp * 0.5001


def _ways(line: _Line, others: dict[int, dict[int, Outcome]]) -> Iterator[dict[int, tuple[float, float, str]]]:
    """What each cell would be by one formula: value, what rounded operands leave open, and how it was computed."""
    for alike in (False, True):
        yield _means(line, others, alike)
    for first, second in permutations(others, 2):
        both = [along for along in line.cells if _given(others[first].get(along)) and _given(others[second].get(along))]
        for how, compute in _PAIRS if len(both) > 1 else ():
            made = {along: _computed(how, compute, others[first][along], others[second][along]) for along in both}
            yield {along: one for along, one in made.items() if one}
    for which in others:  # against the best of the rest, which is another one in each column
        rivals = [cells for at, cells in others.items() if at != which]
        whole = [along for along in line.cells if all(_given(cells.get(along)) for cells in others.values())]
        for best in (max, min) if len(whole) > 1 < len(rivals) else ():
            for how, compute in _PAIRS:
                made = {
                    along: _computed(how, compute, others[which][along], best((r[along] for r in rivals), key=_written))
                    for along in whole
                }
                yield {along: one for along, one in made.items() if one}
    for other in others.values():  # against the row before, as in a list of additions
        given = [along for along in sorted(other) if _given(other[along])]
        after = [(base, along) for base, along in pairwise(given) if along in line.cells]
        for how, compute in _PAIRS[:1] if len(after) > 2 else ():
            made = {along: _computed(how, compute, other[along], other[base]) for base, along in after}
            yield {along: one for along, one in made.items() if one}
    for other in others.values():  # against one row
        given = [along for along in other if _given(other[along])]
        for base in given:
            rest = [along for along in given if along != base and along in line.cells]
            for how, compute in _PAIRS if len(rest) > 1 else ():
                made = {along: _computed(how, compute, other[along], other[base]) for along in rest}
                yield {along: one for along, one in made.items() if one}


def _means(line: _Line, others: dict[int, dict[int, Outcome]], alike: bool) -> dict[int, tuple[float, float, str]]:
    """Of all other cells, or of those with as many decimals."""
    made = {}
    for along, one in line.cells.items():
        across = [cells[along] for cells in others.values() if along in cells]
        ulp = one.place.numeral.ulp
        across = [other for other in across if not alike or 0.5 < other.place.numeral.ulp / ulp < 2]
        numbers = [other.place.numeral for other in across]
        if len(numbers) > 1 and all(map(_given, across)):
            value = sum(number.value for number in numbers) / len(numbers)
            slack = sum(number.ulp for number in numbers) / len(numbers) / 2
            made[along] = value, slack, f"the mean of the {len(numbers)} numbers beside it"
    return made


def _written(one: Outcome) -> float:
    return one.place.numeral.value


def _given(one: Outcome | None) -> bool:
    return one is not None and one.settled and one.place.numeral.role in _PLAIN


def _computed(
    how: str, compute: Callable[[float, float], float], first: Outcome, second: Outcome
) -> tuple[float, float, str] | None:
    a, b = first.place.numeral, second.place.numeral
    if not a.value or not b.value:
        return None
    value = compute(a.value, b.value)
    half = 0.5001
    around = [
        compute(a.value + s * half * a.ulp, b.value + t * half * b.ulp)
        for s, t in ((1, 1), (1, -1), (-1, 1), (-1, -1))
        if b.value + t * half * b.ulp and a.value + s * half * a.ulp
    ]
    return value, max(abs(one - value) for one in around), how.format(first.place.reported, second.place.reported)
