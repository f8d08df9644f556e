"""Columns (and rows) of a table that are computed from others: differences, relative changes, ratios, averages.

How a column is computed is learned from most of its cells; the cell that does not follow is the wrong one. The operands
are the facts that the cells stand for, so that a wrong operand does not make its difference wrong, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise

from rgt.reconcile.facts import UNITS
from rgt.reconcile.judgement import Outcome, Place

_AGREE = 0.6  # of the cells of a column must follow a rule before it is one
_WIDEST = 40  # rows and columns; beyond, a table is data
_RATIO = re.compile(r"speed-?up|ratio|×|\btimes\b|加速比|倍", re.I)


@dataclass
class CellValue:
    """A cell: what is written, and the exact values that it may stand for."""

    outcome: Outcome
    row: int
    column: int

    @property
    def place(self) -> Place:
        return self.outcome.place

    def operands(self) -> list[float]:
        """As written, and as the fact that its row and column name would be written without rounding."""
        numeral, found = self.place.numeral, self.outcome
        fact = found.meant or (found.facts[0] if found.facts else None)
        if fact is None or found.kind not in ("match", "drift") or not fact.value:
            return [numeral.value]
        right = found.expected if found.kind == "drift" and found.expected is not None else numeral.value
        if found.kind == "drift":
            return [numeral.value if found.why == "the spread differs" else right]
        power = min((0.01, 1.0, 100.0), key=lambda scale: abs(fact.value * scale - right))
        kind = UNITS.get(numeral.unit or self.place.unit, ("",))[0]
        exact = fact.value * power if kind in ("", "share") else right
        return [exact, numeral.value] if abs(exact - right) <= numeral.ulp else [right]


Rule = tuple[str, Callable[[float, float], float]]
_RULES: dict[str, Callable[[float, float], float]] = {
    "a - b": lambda a, b: a - b,
    "b - a": lambda a, b: b - a,
    "100 (a - b)": lambda a, b: 100 * (a - b),
    "100 (a - b) / b": lambda a, b: 100 * (a - b) / b,
    "100 (b - a) / b": lambda a, b: 100 * (b - a) / b,
    "a / b": lambda a, b: a / b,
    "b / a": lambda a, b: b / a,
}


def judge_columns(cells: list[CellValue]) -> None:
    """Settles the outcomes of changes and averages in place, by columns and then by rows."""
    if not cells or max(cell.row for cell in cells) > _WIDEST or max(cell.column for cell in cells) > _WIDEST:
        return
    for turned in (False, True):
        lines: dict[int, list[CellValue]] = {}
        for cell in cells:
            lines.setdefault(cell.row if turned else cell.column, []).append(cell)
        for at, line in lines.items():
            others = {key: other for key, other in lines.items() if key != at}
            if all(cell.place.average for cell in line):
                _settle(line, list(_averages(line, others, turned)), "the mean of")
            elif all(cell.place.numeral.role in ("change", "ratio") for cell in line):
                _settle(line, list(_changes(line, others, turned)), "")


Prediction = tuple[str, dict[int, list[float]], int]  # name, value of each cell, how natural it is


def _crossing(cell: CellValue, turned: bool) -> int:
    return cell.column if turned else cell.row


def _averages(line: list[CellValue], others: dict[int, list[CellValue]], turned: bool) -> Iterator[Prediction]:
    plain = {key: other for key, other in others.items() if not any(_computed(cell) for cell in other)}
    for chosen in [
        list(plain),
        *([list(group) for group in combinations(plain, len(plain) // 2)] if len(plain) in (4, 6) else []),
    ]:
        predicted: dict[int, list[float]] = {}
        for cell in line:
            at = _crossing(cell, turned)
            values = [each.operands() for key in chosen for each in plain[key] if _crossing(each, turned) == at]
            if len(values) > 1:
                exact = sum(each[0] for each in values) / len(values)
                predicted[at] = [exact, sum(each[-1] for each in values) / len(values)]
        yield f"{len(chosen)} columns", predicted, 0


def _computed(cell: CellValue) -> bool:
    return cell.place.average or cell.place.numeral.role in ("change", "ratio", "runs", "spread")


def _changes(line: list[CellValue], others: dict[int, list[CellValue]], turned: bool) -> Iterator[Prediction]:
    plain = {
        key: {_crossing(cell, turned): cell for cell in other}
        for key, other in others.items()
        if not any(_computed(cell) for cell in other)
    }
    wanted = {_crossing(cell, turned) for cell in line}
    ratio = any(cell.place.numeral.role == "ratio" for cell in line)
    for name, rule in _RULES.items():
        if ratio != (name in ("a / b", "b / a")):
            continue
        for other in plain.values():  # each row against one row of the same column, or against the row before
            ordered = sorted(other)
            for reference in ordered:
                yield name, _predicted(wanted, other, dict.fromkeys(other, other[reference]), rule), 1
            before = {at: other[above] for above, at in pairwise(ordered)}
            yield name, _predicted(wanted, other, before, rule), 0
        for first, second in combinations(plain.values(), 2):  # one column against another
            yield name, _predicted(wanted, first, second, rule), 2


def _predicted(
    wanted: set[int],
    first: dict[int, CellValue],
    second: dict[int, CellValue],
    rule: Callable[[float, float], float],
) -> dict[int, list[float]]:
    made = {}
    for at in wanted:
        a, b = first.get(at), second.get(at)
        if a and b and a is not b:
            pairs = zip(a.operands() * 2, b.operands() * 2, strict=False)
            made[at] = [rule(x, y) for x, y in pairs if x and y]
    return made


def _settle(line: list[CellValue], predictions: list[Prediction], what: str) -> None:
    """Takes the rule that most cells follow, and names the cells that do not."""
    if not predictions:
        return
    turned = len({cell.row for cell in line}) == 1 and len(line) > 1

    def follows(cell: CellValue, predicted: dict[int, list[float]]) -> bool:
        numeral = cell.place.numeral
        values = predicted.get(_crossing(cell, turned), [])
        return any(abs(value - numeral.value) <= 1.01 * numeral.ulp for value in values)

    def unsigned(cell: CellValue, predicted: dict[int, list[float]]) -> bool:
        numeral = cell.place.numeral
        values = predicted.get(_crossing(cell, turned), [])
        return any(abs(abs(value) - abs(numeral.value)) <= 1.01 * numeral.ulp for value in values)

    def quality(prediction: Prediction) -> tuple[int, int, int]:
        cells = [cell for cell in line if _crossing(cell, turned) in prediction[1]]
        return (
            sum(follows(cell, prediction[1]) for cell in cells),
            sum(unsigned(cell, prediction[1]) for cell in cells),
            prediction[2],
        )

    name, predicted, _ = max(predictions, key=quality)
    covered = [cell for cell in line if predicted.get(_crossing(cell, turned))]
    right = [cell for cell in covered if follows(cell, predicted)]
    for cell in right:
        _set(cell, "derived", predicted[_crossing(cell, turned)][0], what or name, "")
    few = len(covered) == 2 and len(right) == 1
    if not few and (len(right) < 2 or len(right) < _AGREE * len(covered)):
        return
    for cell in covered:
        if cell not in right and (not few or unsigned(cell, predicted)):
            value = predicted[_crossing(cell, turned)][0]
            why = "the sign is wrong" if unsigned(cell, predicted) else f"its column is {what or name}"
            _set(
                cell,
                "drift",
                value,
                why,
                "certain" if len(right) > 2 and len(right) >= 0.7 * len(covered) else "likely",
            )


def _set(cell: CellValue, kind: str, expected: float, why: str, sure: str) -> None:
    outcome = cell.outcome
    outcome.kind, outcome.expected, outcome.why, outcome.sure = kind, expected, why, sure
