"""Does a reported number agree with a claim? Rounded correctly, as a percent or a fraction, with its spread.

What came of each number is a Mention: ok, drift or ambiguous.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from rgt.evidence.claims import Claim
from rgt.metrics import table as names
from rgt.reconcile.claim_index import Surroundings
from rgt.reconcile.numerals import Numeral, find_numerals

# <!-- claim:C1 --> beside a number says which claim it is; readers turn \\claim{C1} into it
ANCHOR = re.compile(r"<!--\s*claim:\s*([\w-]+)\s*-->")
_SLACK = 1e-6  # of a unit of the last place: what binary floats lose
# metrics between 0 and 1 that people also write as percent without the sign, and words that mean one
_SHARES = {word for metric in names.METRICS if metric.share for word in metric.spellings}
_SHARES |= {"top", "r", "rate", "success", "ssim"}


def agrees(claim: Claim, numeral: Numeral, percent_column: bool = False) -> bool:
    """Is this number `claim`, to the digits that were written?"""
    exact = [claim["value"] * scale for scale in scales(claim, numeral, percent_column)]
    if not any(_rounds_to(value, numeral.value, numeral.ulp) for value in exact):
        return False
    if numeral.spread is None or "spread" not in claim:
        return True  # nothing to hold it against
    every_scale = {1.0, *scales(claim, numeral, percent_column)}
    return any(_rounds_to(claim["spread"] * scale, numeral.spread, numeral.spread_ulp) for scale in every_scale)


def _rounds_to(exact: float, written: float, ulp: float) -> bool:
    return abs(exact - written) <= ulp * (0.5 + _SLACK) + abs(exact) * 1e-12


def scales(claim: Claim, numeral: Numeral, percent_column: bool) -> tuple[float, ...]:
    """What the claim's value is multiplied with before it is compared."""
    value, unit = abs(claim["value"]), str(claim.get("unit", ""))
    in_percent = unit in ("%", "percent")
    if numeral.percent or percent_column:
        if in_percent:
            return (1.0,)
        return (100.0, 1.0) if value <= 1 and not _is_share(claim["metric"]) else (100.0,) if value <= 1 else (1.0,)
    if in_percent:
        return (1.0, 0.01)
    if _is_share(claim["metric"]):
        return (1.0, 100.0) if value <= 1 else (1.0, 0.01)
    return (1.0,)


@functools.cache
def _is_share(metric: str) -> bool:
    return metric.endswith("率") or any(part in _SHARES for part in re.split(r"[-_@\s]+", metric.lower()))


def nearest_scale(claim: Claim, numeral: Numeral, percent_column: bool = False) -> float:
    """The claim's value as the document would write it, for the message."""
    values = (float(claim["value"]) * scale for scale in scales(claim, numeral, percent_column))
    return min(values, key=lambda value: abs(value - numeral.value))


def far_off(claim: Claim, numeral: Numeral, percent_column: bool = False, times: float = 4.0) -> bool:
    """So different that the number is probably about something else."""
    exact, written = abs(nearest_scale(claim, numeral, percent_column)), abs(numeral.value)
    if numeral.percent and _rounds_to(exact, 100 * written, 100 * numeral.ulp):
        return False  # 0.914 % for 91.4 %: a slip, not another number
    return not exact / times <= written <= exact * times if exact else written > 4


@dataclass
class Mention:
    """A number that was looked at, and what came of it."""

    line: int
    where: str
    reported: str
    verdict: str  # ok, drift, ambiguous
    claims: list[Claim]
    sure: str  # anchored, certain, likely
    why: str = ""
    authoritative: float | None = None


def verdict(
    line: int, where: str, text: str, numeral: Numeral, claims: list[Claim], sure: str, percent_column: bool = False
) -> Mention:
    reported = " ".join(text[numeral.start : numeral.end].split())
    for claim in claims:
        if agrees(claim, numeral, percent_column):
            return Mention(line, where, reported, "ok", [claim], sure)
    nearest = min(claims, key=lambda claim: abs(nearest_scale(claim, numeral, percent_column) - numeral.value))
    why, expected = "", nearest_scale(nearest, numeral, percent_column)
    if numeral.spread is not None and agrees(nearest, numeral._replace(spread=None), percent_column):
        why, expected = "the spread differs", float(nearest.get("spread", 0.0))
    return Mention(line, where, reported, "drift", claims, sure, why, expected)


def anchored(bare: str, anchor: re.Match[str], line: int, context: Surroundings, taken: set[int]) -> Mention:
    """An anchor speaks of the number before it, or, at the start of a sentence, of the one behind it."""
    free = [n for n in find_numerals(bare, context.evidence.units, in_cell=True) if n.start not in taken]
    before = [numeral for numeral in free if numeral.end <= anchor.start()]
    after = [numeral for numeral in free if numeral.start >= anchor.end()]
    where, at = context.where, line + bare.count("\n", 0, anchor.start())
    claim = context.evidence.by_id.get(anchor[1])
    if claim is None:
        return Mention(at, where, anchor[0], "drift", [], "anchored", f"EVIDENCE.json has no claim {anchor[1]}")
    if not before and not after:
        return Mention(at, where, anchor[0], "drift", [claim], "anchored", "no number beside the anchor")
    numeral = before[-1] if before else after[0]
    taken.add(numeral.start)
    return verdict(line + bare.count("\n", 0, numeral.start), where, bare, numeral, [claim], "anchored")
