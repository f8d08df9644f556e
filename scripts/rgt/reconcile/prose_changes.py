"""Differences, relative changes and ratios in running text, recomputed from what their sentence says.

First from the two numbers it writes ("from 71.2 to 73.4, a gain of 2.2"), then from the values of the two names it
compares ("2.2 points over B"). Only where it says neither, any two comparable values explain a change.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from rgt.reconcile.derivations import Derived, changes
from rgt.reconcile.facts import FULL_NAMES, Fact, kind_of
from rgt.reconcile.numerals import Numeral
from rgt.reconcile.places import Outcome, Place, Terms, about, comparable
from rgt.reconcile.readings import matches
from rgt.reconcile.vocabulary import Vocabulary

_TIMES = 2.5  # a change that is off by more is of something else, unless it is off by a power of ten
_BECOMES = re.compile(
    r"→|->|⇒|\bto\b|\binto\b|降至|升至|降到|降为|提升到|提高到|提升至|提高至|升到|增至|增到|增加到|变为|变成|缩短到|缩短至|减少到|减至|压到|至|到",
    re.I,
)
_INSTEAD = re.compile(
    r"\binstead of\b|\b(?:up|down) from\b|\bcompared (?:to|with)\b|\bvs\b|\bversus\b|\bagainst\b|\bthan\b|而非", re.I
)
_LESS = re.compile(
    r"\b(?:reduc\w+|fewer|less|lower\w*|sav\w+|cut\w*|drops?|dropp\w+|decreas\w+|down|shrink\w*|short\w+|smaller|cheaper|fall\w*"
    r"|earlier)\b|降|减|少|缩短|低|省",
    re.I,
)
_MORE = re.compile(r"\b(?:increas\w+|more|higher|larger|rise\w*|rose|grow\w*|longer|up)\b|增|升|高|多|涨", re.I)
_POINTS = re.compile(
    r"[-\s%]{0,3}(?:absolute|percentage|accuracy|\w+)?[\s-]?(?:points?\b|pp\b|p\.p\.|pts?\b|ppt\b)"
    r"|\s?%?\s?(?:个?百分点|个点)|\s?%?\s(?:in |abs)",
    re.I,
)
_RELATIVE = re.compile(r"\brelative\b|相对|\bfewer\b|\bof the errors\b|的错误", re.I)
_ERRORS = re.compile(r"error|mistake|\bgap\b|误|错", re.I)
_PART = re.compile(r"\bof (?:the|its|our|what)\b|\bas \w+ as\b|的\s?\d|约为", re.I)
_AVERAGED = re.compile(r"\baverage|\bmean\b|平均", re.I)
_UP = re.compile(
    r"\b(?:increas\w+|rais\w+|rises?|rose|grows?|grew|higher)\b|增加|上升|升高|高出|高(?=[了约]?\s?\d)", re.I
)
_DOWN = re.compile(
    r"\b(?:decreas\w+|reduc\w+|lower\w*|falls?|fell|drops?|dropped|fewer)\b|降低|下降|减少|低(?=[了约]?\s?\d)",
    re.I,
)
_SPEED = re.compile(r"fast|slow|speed|快|慢|加速")
_AND = re.compile(r"\band\b|[,;，、(（]|和|与|而", re.I)
_APART = re.compile(r"[;；。]|\b(?:and|while|but) \w+ (?:\w+ )*?(?:from|is|to)\b|并")
_CHAIN = re.compile(r"[\s*_]*(?:→|->|⇒|to|至|到|,|、)[\s*_]*")  # 0.1 → 0.2 → 0.3
_NEAR, _BETWEEN = 60, 40  # characters: from the numbers to their change; between the two


def kinds_of(place: Place) -> frozenset[str]:
    """What a change may have been computed as, by what stands around it."""
    numeral, text = place.numeral, place.text
    near = text[max(0, numeral.start - 40) : numeral.end + 25]
    if numeral.role == "ratio":
        return frozenset(["ratio"])
    if _POINTS.match(text, numeral.end) and not numeral.unit:
        return frozenset(["difference"])
    if not numeral.percent:
        return frozenset(["difference"])
    kinds = ["relative"] if _RELATIVE.search(near) else ["difference", "relative"]
    kinds += ["errors"] if place.cell or _ERRORS.search(near) else []
    kinds += ["part"] if place.cell or _PART.search(near) or not (_LESS.search(near) or _MORE.search(near)) else []
    return frozenset(kinds)


def judge_change(place: Place, outcomes: list[Outcome], vocabulary: Vocabulary) -> Outcome:
    numeral, kinds = place.numeral, kinds_of(place)
    if not place.cell:
        decided = (
            _from_written(place, outcomes, kinds, vocabulary)
            or _from_stated(place, outcomes, kinds, vocabulary)
            or _from_names(place, outcomes, kinds, vocabulary)
        )
        if decided:
            return decided
    found = vocabulary.derivations.explaining(numeral, kinds, place.unit)
    said = {axis: terms for axis, terms in place.named.items() if axis in ("metric", "dataset")}
    if numeral.role == "change" and "metric" in said:  # what is said of one metric is no change of another
        named = vocabulary.fitting(said)
        found = [one for one in found if all(fact.bit & named for fact in one.facts)]
    if found:
        best = max(found, key=lambda one: (direction(one.facts, place) != 0, sum(about(f, place) for f in one.facts)))
        if not place.cell and direction(best.facts, place) < 0:
            right = -numeral.value
            return Outcome(place, "drift", list(best.facts), right, "likely", f"the sign is wrong: {best.how}")
        return Outcome(place, "derived", list(best.facts), best.value, why=best.how)
    equal = list(matches(vocabulary, numeral, place.unit))
    if any(numeral.digits > 2 or fact.bit & vocabulary.fitting(place.own) for fact in equal):
        return Outcome(place, "match", equal[:4])
    return Outcome(place, "unexplained", why="; ".join(["a change that no two values here give", *place.doubts()]))


# -- from the two numbers that the sentence writes


def _from_written(
    place: Place, outcomes: list[Outcome], kinds: frozenset[str], vocabulary: Vocabulary
) -> Outcome | None:
    """Both numbers are values that differ in one name alone: then the change is wrong where they do not give it."""
    pair, ordered = _written_pair(place, outcomes, kinds)
    if not pair:
        return None
    old, new = (one.place.numeral for one in pair)
    stated = [list(matches(vocabulary, one.place.numeral, one.place.unit)) for one in pair]
    facts = next(([a, b] for a in stated[0] for b in stated[1] if comparable(a, b)), [])
    known = bool(facts) and not any(one.kind == "drift" for one in pair) and _of_pair(place, pair, facts, vocabulary)
    possible = [one for one in _between(old, new, kinds) if not ordered or _right_base(one[2], old, new, place)]
    size, ulp = abs(place.numeral.value), place.numeral.ulp
    for value, slack, _, how in possible:
        if abs(value - size) <= slack + 0.5001 * ulp:
            if ordered and known and _turned(place, new.value - old.value):
                return Outcome(place, "drift", facts, -place.numeral.value, "likely", f"the direction is wrong: {how}")
            return Outcome(place, "derived", facts, value, why=how)
    near = [one for one in possible if _alike(one[0], size, ulp)]
    if not near or not known:
        return None
    value, _, _, how = min(near, key=lambda one: abs(one[0] - size))
    return Outcome(place, "drift", facts, value, "likely", f"{how} = {value:.4g}")


def _of_pair(place: Place, pair: tuple[Outcome, Outcome], facts: list[Fact], vocabulary: Vocabulary) -> bool:
    """Is a change said of these two? "from 85.1 to 89.4, F1 by 6.2 %" and "42.4, 3.0 times that of C" are not."""
    near = max((one.place.numeral.end for one in pair), default=0)
    between = {
        hit.term
        for hit in vocabulary.find(place.text)
        if hit.axis == "metric" and near <= hit.start < place.numeral.start
    }
    terms = {term for fact in facts for term in fact.terms.values()}
    return between <= terms and (not place.reference or place.reference[1] in terms)


def _turned(place: Place, change: float) -> bool:
    """Does the sign of a change, or its verb, say the opposite?"""
    numeral = place.numeral
    if numeral.role == "ratio" or not change:
        return False
    if numeral.signed:
        return numeral.value * change < 0
    near = place.text[max(0, numeral.start - 25) : numeral.end + 12]
    up, down = _UP.search(near), _DOWN.search(near)
    return bool(up) != bool(down) and (change < 0 if up else change > 0)


def _alike(value: float, size: float, ulp: float) -> bool:
    """May one be meant by the other: near it, or off by a power of ten?"""
    powers = any(abs(size * power - value) <= ulp * power for power in (0.001, 0.01, 0.1, 10, 100, 1000))
    return powers or (size < _TIMES * value and value < _TIMES * size)


def _written_pair(
    place: Place, outcomes: list[Outcome], kinds: frozenset[str]
) -> tuple[tuple[Outcome, Outcome] | None, bool]:
    """Old and new: the two numbers nearest to a change; and whether the words between them say which is which."""
    text, change = place.text, place.numeral
    plain = [one for one in outcomes if one.place is not place and one.place.numeral.role in ("", "from")]
    best: tuple[Outcome, Outcome] | None = None
    nearest, ordered = _NEAR, False
    for first, second in pairwise(plain):
        a, b = first.place.numeral, second.place.numeral
        between = text[a.end : b.start]
        gap = text[b.end : change.start] if b.end <= change.start else text[change.end : a.start]
        if a.end > change.start > b.start or not a.value or not 0.02 < abs(b.value / a.value) < 50:
            continue
        if len(between) > _BETWEEN or len(gap) > _NEAR or _APART.search(gap) or _CHAIN.fullmatch(gap):
            continue
        low, high = (b.end, change.start) if b.end <= change.start else (change.end, a.start)
        if any(low <= one.place.numeral.start < high for one in outcomes):
            continue
        points = change.percent or _POINTS.match(text, change.end)
        same = change.unit == b.unit and (points or not b.percent) and change.ulp > 0.5 * min(a.ulp, b.ulp)
        if (a.unit and a.unit != b.unit) or (kinds == {"difference"} and not same):
            continue
        instead, becomes = _INSTEAD.search(between), _BECOMES.search(between)
        if len(gap) < nearest and (instead or becomes or (len(plain) == 2 and _AND.search(between))):
            nearest, best = len(gap), (second, first) if instead else (first, second)
            ordered = bool(instead or becomes)
    return best, ordered


def _between(old: Numeral, new: Numeral, kinds: frozenset[str]) -> Iterator[tuple[float, float, float, str]]:
    """Value, what rounding leaves open, the base, and how."""
    x, y = abs(old.value), abs(new.value)
    half = (old.ulp + new.ulp) / 2
    if "difference" in kinds:
        yield abs(x - y), half, 0.0, f"{x:.6g} - {y:.6g}"
        if max(x, y) <= 1.5:
            yield 100 * abs(x - y), 100 * half, 0.0, f"100 x ({x:.6g} - {y:.6g})"
    for base, other in ((x, y), (y, x)):
        if "relative" in kinds and base:
            slack = 100 * (half * (1 + other / base)) / base
            yield 100 * abs(x - y) / base, slack, base, f"100 x ({x:.6g} - {y:.6g}) / {base:.6g}"
    if "ratio" in kinds and min(x, y):
        small, large = sorted((x, y))
        yield large / small, half * (1 + large / small) / small, 0.0, f"{large:.6g} / {small:.6g}"
        yield small / large, half * (1 + small / large) / large, 0.0, f"{small:.6g} / {large:.6g}"


def _right_base(base: float, old: Numeral, new: Numeral, place: Place) -> bool:
    """What becomes less, or more, does so by a part of what it was."""
    near = place.text[max(0, place.numeral.start - 30) : place.numeral.end + 25]
    if not base or _SPEED.search(near):
        return True  # half the time is 50 % or 100 % faster
    x, y = abs(old.value), abs(new.value)
    if bool(_LESS.search(near)) != bool(_MORE.search(near)):
        return base == (max(x, y) if _LESS.search(near) else min(x, y))
    return base == x


# -- from the value before it

_BESIDE, _BEHIND = 70, 25  # characters: between a value and its change; behind it, where it says what is measured


def _from_stated(
    place: Place, outcomes: list[Outcome], kinds: frozenset[str], vocabulary: Vocabulary
) -> Outcome | None:
    """ "48.9 on X, 3.6 points above B": the value says what is compared, whatever the words leave open."""
    numeral = place.numeral
    before = [
        one for one in outcomes if one.place.numeral.role in ("", "from") and one.place.numeral.end <= numeral.start
    ]
    if not before or before[-1].kind != "match":
        return None
    gap = place.text[before[-1].place.numeral.end : numeral.start]
    speed = _SPEED.search(place.text, numeral.start - len(gap), numeral.end + _BEHIND)
    beside = (hit for hit in vocabulary.find(place.text) if -len(gap) <= hit.start - numeral.end < _BEHIND)
    measured = {hit.term for hit in beside if hit.axis == "metric"}
    if len(gap) > _BESIDE or _APART.search(gap):
        return None
    pairs = {
        (fact.value, base.value): (fact, base)
        for fact in before[-1].facts
        if not measured or fact.terms.get("metric") in measured
        if "point" not in fact.terms and not (speed and kind_of(fact) != "time")
        for axis, term in _bases(fact, place)
        if all(fact.terms.get(name) in said for name, said in place.own.items() if name in fact.terms and name != axis)
        for base in vocabulary.members(vocabulary.named.get((axis, term), 0))
        if base.terms == {**fact.terms, axis: term} and base.value != fact.value
    }
    if len(pairs) != 1 or place.doubts():
        return None
    ((fact, base),) = pairs.values()
    if numeral.percent and not (fact.share or fact.unit == "%"):
        kinds -= {"difference"}
    possible = [one for one in changes(fact, base) if one.kind in kinds and _fair(one, base, place)]
    size, ulp = abs(numeral.value), numeral.ulp
    for one in possible:
        if abs(one.value - size) <= 1.5 * ulp:
            return Outcome(place, "derived", list(one.facts), one.value, why=one.how)
    near = [one for one in possible if one.kind != "errors" and _alike(one.value, size, ulp)]
    if not near or numeral.digits < 2:
        return None
    nearest = min(near, key=lambda one: abs(one.value - size))
    return Outcome(place, "drift", list(nearest.facts), nearest.value, "likely", f"{nearest.how} = {nearest.value:.4g}")


def _bases(fact: Fact, place: Place) -> Iterator[tuple[str, str]]:
    """What a value is compared with: what is named, or the whole from which something was left out."""
    if place.reference:
        yield place.reference
        return
    for axis, term in fact.terms.items():
        if term.startswith("no ") and term in place.named.get(axis, ()):
            yield from ((axis, whole) for whole in (*FULL_NAMES, place.ours) if whole)


# -- from the names that it compares


def _from_names(place: Place, outcomes: list[Outcome], kinds: frozenset[str], vocabulary: Vocabulary) -> Outcome | None:
    """Between the values of a name and of the one it is compared with: "2.6 points over B"."""
    ends = _ends(place, outcomes, vocabulary)
    if not ends:
        return None
    axis, subjects, references = ends
    around = {name: frozenset([one]) for name, one in place.around.items() if name != axis}
    strict = {**around, **{name: terms for name, terms in place.own.items() if name != axis}}
    named = {name: terms for name, terms in place.named.items() if name not in (axis, "metric")}
    size, ulp = abs(place.numeral.value), place.numeral.ulp
    pairs = list(_pairs(axis, subjects, references, strict, vocabulary))
    most = max((len(strict.keys() & pair[0].terms) for pair in pairs), default=0)
    pairs = [pair for pair in pairs if len(strict.keys() & pair[0].terms) == most]  # about what is named
    plain = place.numeral.digits > 1 and not _AVERAGED.search(place.text) and not place.doubts()
    for terms in (strict, named, {}):
        for reference, subject in _pairs(axis, subjects, references, terms, vocabulary):
            for one in changes(subject, reference):
                if one.kind in kinds and abs(one.value - size) <= 1.5 * ulp and _fair(one, reference, place):
                    wrong = plain and terms is strict and len(pairs) == 1 and one.kind != "errors"
                    if wrong and _turned(place, subject.value - reference.value):
                        why = f"the direction is wrong: {one.how}"
                        return Outcome(place, "drift", list(one.facts), -place.numeral.value, "likely", why)
                    return Outcome(place, "derived", list(one.facts), one.value, why=one.how)
    if not plain or not pairs or "point" in pairs[0][0].terms:
        return None
    possible = [
        one for pair in pairs for one in changes(*pair[::-1]) if one.kind in kinds and _fair(one, pair[0], place)
    ]
    near = [one for one in possible if _alike(one.value, size, ulp)]
    others = frozenset(vocabulary.axes[axis]) - references - subjects
    left_out = any(term.startswith("no ") for term in subjects)  # which of several was left out is easily misread
    confused = [
        one
        for pair in _pairs(
            axis, others if left_out else subjects, references if left_out else others, strict, vocabulary
        )
        for one in changes(*pair[::-1])
        if one.kind in kinds and abs(one.value - size) <= 0.51 * ulp
    ]
    stated = any(fact in one.facts for one in outcomes for _, fact in pairs if one.kind == "match")
    if (
        not possible
        or (confused and left_out and not stated)
        or (not confused and (len(pairs) > 1 or not near or place.unclear))
    ):
        return None
    nearest = min(possible, key=lambda one: abs(one.value - size))
    why = f"{nearest.how} = {nearest.value:.4g}"
    why += f"; {confused[0].how} is another comparison" if confused else ""
    return Outcome(place, "drift", list(nearest.facts), nearest.value, "likely", why)


def _fair(one: Derived, reference: Fact, place: Place) -> bool:
    """A part of what it is compared with; what is faster may be counted in both ways."""
    return one.kind != "relative" or one.base == reference.value or bool(_SPEED.search(place.text))


def _pairs(
    axis: str, subjects: frozenset[str], references: frozenset[str], terms: Terms, vocabulary: Vocabulary
) -> Iterator[tuple[Fact, Fact]]:
    first, second = (
        [fact for fact in vocabulary.members(vocabulary.plausible({**terms, axis: ends})) if axis in fact.terms]
        for ends in (references, subjects)
    )
    yield from ((a, b) for a in first for b in second if comparable(a, b) and a.value != b.value)


def _ends(
    place: Place, outcomes: list[Outcome], vocabulary: Vocabulary
) -> tuple[str, frozenset[str], frozenset[str]] | None:
    """An axis, the names of a sentence whose change this may be, and those it is compared with."""
    if place.reference:
        axis, term = place.reference
        silent = frozenset([place.around.get(axis, ""), place.ours]) & frozenset(vocabulary.axes[axis])
        subjects = (place.named[axis] - place.compared or silent) - place.compared
        return (axis, subjects, frozenset([term])) if subjects else None
    if sum(one.place.numeral.role == "change" for one in outcomes) > 1:
        return None
    for axis, terms in place.own.items():
        left_out = [term for term in terms if term.startswith("no ")]
        if len(terms) == 1 and left_out:
            whole = FULL_NAMES & {*vocabulary.axes[axis]} or {place.ours} & {*vocabulary.axes[axis]}
            return axis, terms, frozenset(whole)
    return None


def direction(facts: tuple[Fact, ...] | list[Fact], place: Place) -> int:
    """1 when a change has the sign of what was left out minus the whole, -1 when it has the other, 0 for no such."""
    left_out = {term for terms in place.own.values() for term in terms if term.startswith("no ")}
    parts = [bool(left_out & {*fact.terms.values()}) for fact in facts]
    if not place.numeral.signed or len(facts) != 2 or parts[0] == parts[1]:
        return 0
    part, whole = facts if parts[0] else facts[::-1]
    if not {*whole.terms.values()} & {place.ours, *FULL_NAMES}:
        return 0
    return 1 if (part.value - whole.value) * place.numeral.value > 0 else -1
