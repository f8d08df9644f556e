"""Does a reported number agree with a claim? Rounded correctly, as a percent or a fraction, with its spread."""

from __future__ import annotations

import functools
import re
from typing import Any

from mentions.numerals import Numeral

_SLACK = 1e-6  # of a unit of the last place: what binary floats lose
# metrics between 0 and 1 that people also write as percent without the sign
_SHARES = frozenset(
    "accuracy acc f1 precision recall map miou iou auc auroc ap dice em top bleu rouge wer cer error ssim "
    "sensitivity specificity hit mrr ndcg r ece rate success dsc".split()
)


def agrees(claim: dict[str, Any], numeral: Numeral, percent_column: bool = False) -> bool:
    """Is this number `claim`, to the digits that were written?"""
    if numeral.role == "spread":
        return _spread_agrees(claim, numeral.value, numeral.ulp, numeral, percent_column)
    if numeral.role == "n":
        return "n" not in claim or claim["n"] == numeral.value
    if not any(
        _rounds_to(claim["value"] * scale, reading, _tolerance(numeral))
        for scale in scales(claim, numeral, percent_column)
        for reading in _readings(numeral)
    ):
        return False
    return numeral.spread is None or _spread_agrees(claim, numeral.spread, numeral.spread_ulp, numeral, percent_column)


def _readings(numeral: Numeral) -> tuple[float, ...]:
    return (numeral.value,) if numeral.other is None else (numeral.value, numeral.other)


def _tolerance(numeral: Numeral) -> float:
    if not numeral.approx:
        return numeral.ulp
    ulp = numeral.ulp  # "about 1,200" vouches for two digits, not for the zeros
    while numeral.value and ulp and numeral.value % (ulp * 10) == 0:
        ulp *= 10
    return 2 * ulp


def _rounds_to(exact: float, written: float, ulp: float) -> bool:
    return abs(exact - written) <= ulp * (0.5 + _SLACK) + abs(exact) * 1e-12


def scales(claim: dict[str, Any], numeral: Numeral, percent_column: bool) -> tuple[float, ...]:
    """What the claim's value is multiplied with before it is compared."""
    value, unit = abs(claim["value"]), str(claim.get("unit", ""))
    in_percent = unit in ("%", "percent")
    if numeral.percent or percent_column:
        if in_percent:
            return (1.0,)
        return (100.0, 1.0) if value <= 1 and not _is_share(claim) else (100.0,) if value <= 1 else (1.0,)
    if in_percent:
        return (1.0, 0.01)
    if _is_share(claim):
        return (1.0, 100.0) if value <= 1 else (1.0, 0.01)
    return (1.0,)


def _is_share(claim: dict[str, Any]) -> bool:
    return _share_name(str(claim["metric"]).lower())


@functools.cache
def _share_name(metric: str) -> bool:
    return metric.endswith("率") or any(part in _SHARES for part in re.split(r"[-_@\s]+", metric))


def _spread_agrees(claim: dict[str, Any], value: float, ulp: float, numeral: Numeral, percent_column: bool) -> bool:
    if "spread" not in claim:
        return True  # nothing to hold it against
    return any(
        _rounds_to(claim["spread"] * scale, value, ulp) for scale in {1.0, *scales(claim, numeral, percent_column)}
    )


def nearest_scale(claim: dict[str, Any], numeral: Numeral, percent_column: bool = False) -> float:
    """The claim's value as the document would write it, for the message."""
    return min(
        (float(claim["value"]) * scale for scale in scales(claim, numeral, percent_column)),
        key=lambda value: abs(value - numeral.value),
    )


def far_off(claim: dict[str, Any], numeral: Numeral, percent_column: bool = False, times: float = 4.0) -> bool:
    """So different that the number is probably about something else."""
    exact, written = abs(nearest_scale(claim, numeral, percent_column)), abs(numeral.value)
    if numeral.percent and _rounds_to(exact, 100 * written, 100 * numeral.ulp):
        return False  # 0.914 % for 91.4 %: a slip, not another number
    return not exact / times <= written <= exact * times if exact else written > 4
