"""Which word belongs to which number of a sentence.

Example, with T for a term and N for a number:
    TNTN   "A reaches 91, B 89"               each number takes the term before it
    NTNT   "91 for A and 89 for B"            each takes the term behind it
    TTNN   "A and B reach 91 and 89"          in order
Anything else is the nearest term, and said to be unsure.
"""

from __future__ import annotations

from typing import NamedTuple

from mentions.numerals import Numeral
from mentions.terms import Hit


class Given(NamedTuple):
    value: str | None
    sure: bool


NOTHING = Given(None, True)


def assign(hits: list[Hit], numerals: list[Numeral]) -> list[Given]:
    """For one dimension: the term of each number; `sure` is False when the sentence can be read in several ways."""
    values = {hit.value for hit in hits}
    if not values:
        return [NOTHING] * len(numerals)
    if len(values) == 1:
        return [Given(hits[0].value, True)] * len(numerals)
    terms = _distinct_runs(hits)
    order = sorted(
        [(term.start, "T", i) for i, term in enumerate(terms)] + [(n.start, "N", i) for i, n in enumerate(numerals)]
    )
    shape = "".join(kind for _, kind, _ in order)
    if _listed(shape) and len(terms) == len(numerals):
        return [Given(term.value, True) for term in terms]
    before, after = _before(order, terms, len(numerals)), _after(order, terms, len(numerals))
    if _alternates(shape, "T"):
        return [Given(value, True) for value in before]
    if _alternates(shape, "N"):
        return [Given(value, True) for value in after]
    return [Given(_nearest(terms, number), False) for number in numerals]


def _distinct_runs(hits: list[Hit]) -> list[Hit]:
    """A term said twice in a row is one."""
    return [hit for i, hit in enumerate(hits) if i == 0 or hits[i - 1].value != hit.value]


def _listed(shape: str) -> bool:
    half = len(shape) // 2
    return len(shape) % 2 == 0 and shape in ("T" * half + "N" * half, "N" * half + "T" * half) and half > 1


def _alternates(shape: str, first: str) -> bool:
    """Starts with `first`, and every term has numbers on that side: TNNTN, or NTNNT."""
    if not shape.startswith(first):
        return False
    return "TT" not in shape and (shape.endswith("N") if first == "T" else shape.endswith("T"))


def _before(order: list[tuple[int, str, int]], terms: list[Hit], count: int) -> list[str | None]:
    result: list[str | None] = [None] * count
    last = None
    for _, kind, index in order:
        if kind == "T":
            last = terms[index].value
        else:
            result[index] = last
    return result


def _after(order: list[tuple[int, str, int]], terms: list[Hit], count: int) -> list[str | None]:
    return _before(order[::-1], terms, count)


def _nearest(terms: list[Hit], number: Numeral) -> str:
    def distance(hit: Hit) -> int:
        return number.start - hit.end if hit.end <= number.start else hit.start - number.end

    return min(terms, key=distance).value
