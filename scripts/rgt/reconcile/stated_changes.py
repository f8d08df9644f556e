"""Differences, relative changes and ratios of running text, recomputed from the values they compare.

The operands are two numbers of the same sentence, or two facts that differ on one axis of which the text names an end.
A change that fits none of them is a drift when it is clear which two are meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

from rgt.reconcile.facts import FULL_NAMES, UNITS, Fact
from rgt.reconcile.judgement import CERTAIN, LIKELY, Outcome, Place, comparable
from rgt.reconcile.numerals import Numeral
from rgt.reconcile.readings import matches, rounds_to
from rgt.reconcile.vocabulary import Vocabulary

_MOST = 400  # facts whose pairs are looked at
_RELATIVE = re.compile(r"\brelative\b|相对|\bfewer\b|\bof the errors\b|的错误", re.I)
_POINTS = re.compile(
    r"[-\s%]{0,3}(?:absolute|percentage|accuracy|\w+)?[\s-]?(?:points?\b|pp\b|p\.p\.|pts?\b|ppt\b)"
    r"|\s?%?\s?(?:个?百分点|个点)|\s?%?\s(?:in |abs)",
    re.I,
)
_BEST = re.compile(
    r"\b(?:best|strongest|second|runner[- ]?up|next|closest|nearest|winner|previous|leading)\b|次优|最强|最好|第二",
    re.I,
)
_TO = re.compile(r"(?:→|->|⇒|\bto\b|降至|升至|提升到|提高到|增至|变为|变成|至|到)")
_COMPARES = re.compile(
    r"\b(?:than|over|vs|versus|compared|relative|behind|ahead|against|from|gap|distance|margin|difference|advantage|lead|"
    r"trails?|above|below|between|better|worse|faster|slower|smaller|larger|beats?|outperform\w*|reduc\w+|replac\w+|of)\b"
    r"|→|->|比|较|相|领先|落后|差|超过|优于|倍",
    re.I,
)


class Operand(NamedTuple):
    value: float
    ulp: float  # 0: exact
    share: bool = False
    down: bool = False


class Change(NamedTuple):
    kind: str  # difference, relative, ratio
    how: str
    value: float
    slack: float  # what rounded operands leave open


def computed(a: Operand, b: Operand) -> Iterator[Change]:
    """What a text may say of `a` against `b`."""
    x, y, rounding = a.value, b.value, 0.5 * (a.ulp + b.ulp)
    shown = f"{x:.6g} - {y:.6g}"
    yield Change("difference", shown, x - y, rounding)
    if max(abs(x), abs(y)) <= 1.5:
        yield Change("difference", f"100 x ({shown})", 100 * (x - y), 100 * rounding)
    elif a.share:
        yield Change("difference", f"0.01 x ({shown})", 0.01 * (x - y), 0.01 * rounding)
    if x and y:
        part = 0.5 * (a.ulp / abs(x) + b.ulp / abs(y))
        yield Change("relative", f"100 x ({shown}) / {y:.6g}", 100 * (x - y) / y, 100 * part * abs(x / y))
        yield Change("ratio", f"{x:.6g} / {y:.6g}", x / y, part * abs(x / y))
    top = 100.0 if max(abs(x), abs(y)) > 1.5 else 1.0
    if a.share and y != top:
        rest = f"100 x ({y:.6g} - {x:.6g}) / ({top:g} - {y:.6g})"
        yield Change("relative", rest, 100 * (y - x) / (top - y), 100 * rounding / abs(top - y))


def kinds_of(place: Place) -> set[str]:
    numeral, text = place.numeral, place.text
    if numeral.role == "ratio":
        return {"ratio"}
    if _POINTS.match(text, numeral.end) and not numeral.unit:
        return {"difference"}
    near = text[max(0, numeral.start - 40) : numeral.end + 25]
    if numeral.percent and _RELATIVE.search(near):
        return {"relative"}
    return {"difference", "relative"} if numeral.percent else {"difference"}


def states(change: Change, numeral: Numeral) -> bool:
    """To its digits; a little more where the operands were rounded, or are before they are compared."""
    apart = abs(abs(change.value) - abs(numeral.value))
    loose = 0.75 if change.kind != "difference" else 0.5
    return apart <= numeral.ulp * (loose + 1e-6) + change.slack + 1e-12 * abs(change.value)


def rounded_difference(a: Fact, b: Fact, numeral: Numeral) -> bool:
    """Numbers are often rounded first and subtracted then."""
    for scale in (1.0, 100.0, 0.01) if a.share else (1.0, 100.0) if max(abs(a.value), abs(b.value)) <= 1.5 else (1.0,):
        first, second = ({round(fact.value * scale / numeral.ulp + tilt) for tilt in (-1e-6, 1e-6)} for fact in (a, b))
        if round(abs(numeral.value) / numeral.ulp) in {abs(x - y) for x in first for y in second}:
            return True
    return False


def explained(a: Fact, b: Fact, numeral: Numeral, kinds: set[str]) -> Change | None:
    scale = _scale(a, numeral)
    first, second = (Operand(fact.value * scale, 0.0, fact.share, fact.direction == "down") for fact in (a, b))
    for x, y in ((first, second), (second, first)):
        for change in computed(x, y):
            if change.kind in kinds and states(change, numeral):
                return change
    if "difference" in kinds and scale == 1.0 and rounded_difference(a, b, numeral):
        return Change("difference", f"{a.value:.6g} - {b.value:.6g}", a.value - b.value, 0.0)
    return None


def _scale(fact: Fact, numeral: Numeral) -> float:
    kind, factor = UNITS.get(numeral.unit, ("", 1.0))
    own_kind, own_factor = UNITS.get(fact.unit, ("", 1.0))
    return own_factor / factor if kind == own_kind and kind not in ("", "share") else 1.0


def judge_changes(outcomes: list[Outcome], vocabulary: Vocabulary) -> None:
    """Fills in the outcomes of a sentence's changes and ratios, in place."""
    plain = [
        one
        for one in outcomes
        if one.place.numeral.role not in ("runs", "change", "ratio", "spread", "bound") and one.kind != "cited"
    ]
    for at, outcome in enumerate(outcomes):
        if outcome.place.numeral.role in ("change", "ratio") and outcome.kind == "unexplained":
            outcomes[at] = _judge(outcome.place, plain, vocabulary)


def _judge(place: Place, plain: list[Outcome], vocabulary: Vocabulary) -> Outcome:
    numeral, kinds = place.numeral, kinds_of(place)
    written = [one for one in plain if one.place.numeral.start != numeral.start and _is_operand(one)][:8]
    for first, second in combinations(written, 2):
        change = _of_written(first.place, second.place, numeral, kinds)
        if change:
            if _wrong_sign(place, first.place, second.place, vocabulary):
                right = -numeral.value
                return Outcome(place, "drift", first.facts[:1], right, "likely", "the sign is wrong", score=LIKELY)
            return Outcome(place, "derived", [], change.value, why=change.how)
    strict, loose = _pairs(place, vocabulary)
    own = [pair for pair in strict if any(_of_own(fact, place) for fact in pair)]
    matched = [one.facts[0] for one in written if one.kind == "match" and one.facts]
    stated = [(a, b) for a, b in combinations(matched, 2) if comparable(a, b)]
    for a, b in [*stated, *strict, *([] if strict else loose)]:
        found = explained(a, b, numeral, kinds)
        if found:
            part, whole = (a, b) if any(term.startswith("no ") for term in a.terms.values()) else (b, a)
            if _signs_differ(place, part, whole):
                right = part.value - whole.value
                return Outcome(place, "drift", [part, whole], right, "likely", "the sign is wrong", score=LIKELY)
            return Outcome(place, "derived", [a, b], found.value, why=found.how)
    equal = [fact for fact in matches(vocabulary, numeral, place.unit) if fact.bit & vocabulary.fitting(place.own)]
    if equal:
        return Outcome(place, "match", equal)
    if numeral.value in (0.0, 1.0) or place.against >= 2:
        why = "; ".join(["a change that no values here give", *place.doubts])
        return Outcome(place, "cited" if place.against >= 3 else "unexplained", why=why)
    if stated and len(written) == 2:
        return _wrong(place, stated[:1], kinds, "likely")
    if strict and len(strict) <= 12:
        return _wrong(place, own or strict, kinds, "likely")
    return Outcome(place, "unexplained", why="a change between values that the text does not name both")


def _is_operand(outcome: Outcome) -> bool:
    """A list's (1) is none."""
    digits = outcome.place.numeral.digits
    return digits > 2 or (digits > 1 and outcome.kind in ("match", "drift"))


def _of_own(fact: Fact, place: Place) -> bool:
    """Is it about the names that stand nearest to the number?"""
    return all(fact.terms.get(axis) in terms for axis, terms in place.own.items() if axis in fact.terms)


def _of_written(a: Place, b: Place, numeral: Numeral, kinds: set[str]) -> Change | None:
    """The change between two numbers of the sentence; whether those are right is their own question."""
    first, second = a.numeral, b.numeral
    kind, factor = UNITS.get(first.unit, ("", 1.0))
    other, other_factor = UNITS.get(second.unit, ("", 1.0))
    if kind != other and kind and other:
        return None
    scale = other_factor / factor if kind == other else 1.0
    x = Operand(first.value, first.ulp * 0.98, first.percent or kind == "")
    y = Operand(second.value * scale, second.ulp * scale * 0.98, second.percent)
    pairs = [change for p, q in ((x, y), (y, x)) for change in computed(p, q)]
    return next((change for change in pairs if change.kind in kinds and states(change, numeral)), None)


def _signs_differ(place: Place, part: Fact, whole: Fact) -> bool:
    """Only what is left out has a sure direction: the part against the whole."""
    left_out = any(term.startswith("no ") for term in part.terms.values())
    left_out = left_out and not any(term.startswith("no ") for term in whole.terms.values())
    return left_out and place.numeral.signed and (part.value - whole.value) * place.numeral.value < 0


def _wrong_sign(place: Place, first: Place, second: Place, vocabulary: Vocabulary) -> bool:
    """ "71.2 -> 73.4 (-2.2)" """
    numeral = place.numeral
    between = place.text[first.numeral.end : second.numeral.start]
    if not numeral.signed or not _TO.search(between) or second.numeral.start > numeral.start or len(between) > 40:
        return False
    return (second.numeral.value - first.numeral.value) * numeral.value < 0


def _pairs(place: Place, vocabulary: Vocabulary) -> tuple[list[tuple[Fact, Fact]], list[tuple[Fact, Fact]]]:
    """The pairs a text may compare: alike but for one axis. Those it names both ends of, and those it names one of.

    The own method and the full model need no name.
    """
    strict: list[tuple[Fact, Fact]] = []
    loose: list[tuple[Fact, Fact]] = []
    around = {axis: frozenset([term]) for axis, term in place.around.items()}
    kind = UNITS.get(place.numeral.unit, ("",))[0]
    compares = _COMPARES.search(place.text)
    for axis, terms in vocabulary.axes.items():
        if axis in ("metric", "split", "statistic") or len(terms) < 2:
            continue
        named, own = place.named.get(axis, frozenset()), place.own.get(axis, frozenset())
        others = {name: given for name, given in {**around, **place.named, **place.own}.items() if name != axis}
        others.pop("split", None)
        groups: dict[tuple[tuple[str, str], ...], list[Fact]] = {}
        for fact in list(vocabulary.members(vocabulary.plausible({**others, axis: frozenset(terms)})))[:_MOST]:
            if axis in fact.terms and (kind in ("", "share") or UNITS.get(fact.unit, ("",))[0] == kind):
                rest = tuple(sorted((name, term) for name, term in fact.terms.items() if name != axis))
                groups.setdefault(rest, []).append(fact)
        for same in groups.values():
            leaders = {fact.bit for fact in _leaders(same, axis, place.ours)} if _BEST.search(place.text) else set()
            for a, b in combinations(same, 2):
                ends = {a.terms[axis], b.terms[axis]}
                if len(ends) < 2:
                    continue
                left_out = any(term.startswith("no ") for term in ends)
                silent = FULL_NAMES | {place.ours} if left_out else {place.ours} if compares else set()
                both = ends <= named | silent and ends & named and (len(own) != 1 or ends & own or axis == "method")
                best = leaders == {a.bit, b.bit} and place.ours in ends and not named - {place.ours}
                if both or best:
                    strict.append((a, b))
                elif ends & named if named else place.ours in ends:
                    loose.append((a, b))
    return strict, loose


def _leaders(same: list[Fact], axis: str, ours: str) -> list[Fact]:
    """Ours and the best of the others."""
    down = same[0].direction == "down"
    rest = [fact for fact in same if fact.terms[axis] != ours]
    own = [fact for fact in same if fact.terms[axis] == ours]
    return own + (sorted(rest, key=lambda fact: fact.value, reverse=not down)[:1])


def _wrong(place: Place, pairs: list[tuple[Fact, Fact]], kinds: set[str], sure: str) -> Outcome:
    numeral = place.numeral
    possible = []
    for a, b in pairs:
        scale = _scale(a, numeral)
        for x, y in ((a, b), (b, a)):
            first, second = (Operand(fact.value * scale, 0.0, fact.share, fact.direction == "down") for fact in (x, y))
            possible += [
                (change, x, y) for change in computed(first, second) if change.kind in kinds and abs(change.value) > 0
            ]
    near = [
        one
        for one in possible
        if abs(abs(one[0].value) - abs(numeral.value)) <= 2.5 * abs(one[0].value)
        or any(
            rounds_to(abs(one[0].value) * times, abs(numeral.value), numeral.ulp) for times in (10.0, 100.0, 0.1, 0.01)
        )
    ]
    if not near:
        return Outcome(place, "unexplained", list(pairs[0]), why="no change between the values named is near it")
    change, a, b = min(near, key=lambda one: abs(abs(one[0].value) - abs(numeral.value)))
    score = CERTAIN if sure == "certain" else LIKELY
    return Outcome(place, "drift", [a, b], abs(change.value), sure, f"{change.how} = {change.value:.4g}", score=score)
