"""What becomes of a number once the claims it may state are known."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from mentions import judge, terms
from mentions.evidence import Claim, Evidence
from mentions.numerals import Numeral

# <!-- claim:C1 --> beside a number says which claim it is; readers turn \\claim{C1} into it
ANCHOR = re.compile(r"<!--\s*claim:\s*([\w-]+)\s*-->")
_ARROW = re.compile(r"[↑↓]|\b(?:lower|higher|smaller|larger)[- ]is[- ]better\b|越[低小高大]越好", re.I)
_HINT = re.compile(r"[↑↓越]|[Bb](?:etter|ETTER)")  # quick to look for: nearly no sentence has one
_UP = re.compile(r"↑|higher|larger|越[高大]", re.I)


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
        if judge.agrees(claim, numeral, percent_column):
            return Mention(line, where, reported, "ok", [claim], sure)
    nearest = min(claims, key=lambda claim: abs(judge.nearest_scale(claim, numeral, percent_column) - numeral.value))
    return Mention(
        line,
        where,
        reported,
        "drift",
        claims,
        sure,
        _why(nearest, numeral),
        _expected(nearest, numeral, percent_column),
    )


def _why(claim: Claim, numeral: Numeral) -> str:
    if numeral.role == "n":
        return "the number of runs differs"
    if numeral.role == "spread" or (
        numeral.spread is not None and judge.agrees(claim, Numeral(0, 0, numeral.value, numeral.ulp, numeral.percent))
    ):
        return "the spread differs"
    return ""


def _expected(claim: Claim, numeral: Numeral, percent_column: bool) -> float:
    if numeral.role == "n":
        return float(claim["n"])
    if _why(claim, numeral):
        return float(claim.get("spread", 0.0))
    return judge.nearest_scale(claim, numeral, percent_column)


# -- which way is better


def direction_said(text: str, by_dimension: dict[str, list[terms.Hit]]) -> tuple[str, str] | None:
    """(metric, up or down) when the text says which way is better, about one metric."""
    said = _ARROW.search(text) if _HINT.search(text) else None
    values = {hit.value for hit in by_dimension.get("metric", [])}
    if not said or len(values) != 1:
        return None
    return next(iter(values)), "up" if _UP.search(said[0]) else "down"


def check_direction(said: tuple[str, str], line: int, where: str, evidence: Evidence) -> Iterator[Mention]:
    claims = [claim for claim in evidence.by_key.get((said[0], None, None, None), []) if claim.get("direction")]
    if claims and all(claim["direction"] != said[1] for claim in claims):
        word = "higher" if said[1] == "up" else "lower"
        yield Mention(
            line,
            where,
            f"{word} is better",
            "drift",
            claims[:1],
            "certain",
            f"for {said[0]} {claims[0]['direction']} is better",
        )
