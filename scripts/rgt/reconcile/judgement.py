"""What the machine alone says of a number: match, drift or unexplained, and the words that decided.

The core is strict. A number is held against a value only when its row, column, caption or sentence names everything
that tells this value from the others; it is a drift only when no other value has these digits and no word speaks of
another owner or state. Changes, ratios and means are recomputed by the sheet, or by the formula of a table.
"""

from __future__ import annotations

import re

from rgt.reconcile.facts import Fact
from rgt.reconcile.numerals import IDLE
from rgt.reconcile.owners import doubt
from rgt.reconcile.places import Outcome, Place
from rgt.reconcile.readings import Slip, agrees, matches, reading, scales, slip, spread_agrees
from rgt.reconcile.vocabulary import Vocabulary

_CLOSE, _FAR = 0.15, 0.6  # relative differences: of the same quantity in a sentence; in a cell
_LONG = 3  # digits: of shorter numbers three in a hundred differ from a value in one digit
_SOFT = ("the value differs", "one digit differs")  # what happens by chance
_COMPUTED = ("change", "ratio")
_ROUGH = ("about", "bound", "range")
_OTHER_SPREAD = re.compile(r"\b(?:s\.?e\.?m?|std\.? ?err\w*|standard errors?|CI|confidence|95)\b|标准误|置信", re.I)
_AVERAGED = re.compile(r"\baverage(?!d over \d+ (?:seeds|runs|trials))|\bmean\b|平均|均值", re.I)


def judged(places: list[Place], vocabulary: Vocabulary) -> list[Outcome]:
    """The numbers of one sentence or table together."""
    outcomes = [_judge(place, vocabulary) for place in places]
    _other_spreads(outcomes)
    stated = {one.facts[0].id for one in outcomes if one.kind == "match" and one.facts}
    for one in outcomes:  # its sentence states that very value already: this is another one
        if one.kind == "drift" and not one.place.cell and one.facts[0].id in stated:
            one.kind, one.sure, one.why = "unexplained", "", "the value that is named stands beside it"
        if one.kind == "unexplained" and is_idle(one.place):
            one.kind, one.why = "other", ""
    return outcomes


def is_idle(place: Place) -> bool:
    """Page 2, 6 people: nothing of the file is spoken of."""
    numeral = place.numeral
    bare = numeral.digits < 2 and numeral.ulp >= 1 and not numeral.percent
    return bare and not (place.cell or place.named or numeral.role == "runs")


def _judge(place: Place, vocabulary: Vocabulary) -> Outcome:
    numeral = place.numeral
    if numeral.role in IDLE:
        return Outcome(place, "other")
    if numeral.role == "runs":
        known = round(numeral.value) in vocabulary.counts
        return Outcome(place, "match" if known else "unexplained", why="" if known else "no value has so many runs")
    if numeral.role in _COMPUTED or place.average:
        return Outcome(place, "unexplained", why="something computed")
    if numeral.role == "spread":
        return _spread(place, vocabulary)
    equal = list(matches(vocabulary, numeral, place.unit))
    fitting = vocabulary.fitting(place.own)
    own = [fact for fact in equal if fact.bit & fitting]
    if own:
        return _matched(place, own, vocabulary)
    if numeral.role in _ROUGH:
        return Outcome(place, "unexplained", why="a bound or a rough number")
    return _turned(place, vocabulary) or _differs(place, vocabulary, equal)


def meant(place: Place, vocabulary: Vocabulary) -> list[Fact]:
    """The facts that the words may mean."""
    facts = list(vocabulary.members(vocabulary.plausible({**place.around, **place.own})))
    # a fact that lacks an axis which the words name, and others have, is not what they mean
    axes = place.own.keys() - {"split"}
    most = max((len(axes & fact.terms.keys()) for fact in facts), default=0)
    return [fact for fact in facts if len(axes & fact.terms.keys()) == most]


# -- spreads


def _matched(place: Place, own: list[Fact], vocabulary: Vocabulary) -> Outcome:
    numeral = place.numeral
    fitting = [fact for fact in own if agrees(fact, numeral, place.unit)]
    if fitting or numeral.spread is None:
        return Outcome(place, "match", fitting or own)
    named = meant(place, vocabulary)
    if len(named) != 1 or named[0] not in own or named[0].spread is None or doubt(place, vocabulary):
        return Outcome(place, "match", own)
    fact = named[0]
    scale = reading(fact, numeral, place.unit) or 1.0
    for factor in (100.0, 0.01):
        if numeral.spread and spread_agrees(fact, numeral, scale * factor):
            why = f"it is off by a factor of {1 / factor:g}: its spread is not"
            return Outcome(place, "drift", [fact], fact.value * scale * factor, "certain", why)
    if _OTHER_SPREAD.search(place.text) and spread_agrees(fact, numeral, scale, other=True):
        return Outcome(place, "match", own)
    sure = "likely" if place.unclear else "certain"
    return Outcome(place, "drift", [fact], (fact.spread or 0.0) * scale, sure, "the spread differs")


def _other_spreads(outcomes: list[Outcome]) -> None:
    """Where most spreads are the standard error, or half an interval, all of them may be."""
    told = [one for one in outcomes if one.place.numeral.spread is not None and one.facts]
    wrong = [one for one in told if one.why == "the spread differs"]
    if len(wrong) > max(1, 0.34 * len(told)):
        for one in wrong:
            one.kind, one.sure, one.why = "match", "", "another kind of spread"


def _turned(place: Place, vocabulary: Vocabulary) -> Outcome | None:
    """0.3 ± 71.2 for 71.2 ± 0.3: nothing else could look like that, whatever the words say."""
    numeral = place.numeral
    if numeral.spread is None or numeral.spread <= abs(numeral.value):
        return None
    other = numeral._replace(
        value=numeral.spread, ulp=numeral.spread_ulp, spread=numeral.value, spread_ulp=numeral.ulp, digits=3
    )
    turned = [fact for fact in matches(vocabulary, other, place.unit) if fact.spread is not None]
    turned = [fact for fact in turned if agrees(fact, other, place.unit)]
    if not turned:
        return None
    fitting = vocabulary.fitting(place.own)
    fact = min(turned, key=lambda fact: not fact.bit & fitting)
    right = fact.value * (reading(fact, other, place.unit) or 1.0)
    return Outcome(place, "drift", [fact], right, "certain", "mean and spread are swapped")


def _spread(place: Place, vocabulary: Vocabulary) -> Outcome:
    numeral = place.numeral
    written = numeral._replace(spread=numeral.value, spread_ulp=numeral.ulp)
    known = [fact for fact in meant(place, vocabulary) if fact.spread is not None]
    for fact in known:
        if any(spread_agrees(fact, written, scale) for scale in {1.0, *scales(fact, numeral, place.unit)}):
            return Outcome(place, "match", [fact])
    return Outcome(place, "unexplained", known[:4], why="a spread that no value here has")


# -- a number that no fitting fact has


def _differs(place: Place, vocabulary: Vocabulary, equal: list[Fact]) -> Outcome:
    """A slip of the one fact that the words name, when nothing else explains the number."""
    named = meant(place, vocabulary)
    single = (fact for fact in vocabulary.truth.others if fact.id.startswith(f"{named[0].id}/")) if named else ()
    if any(reading(fact, place.numeral, place.unit) for fact in single):
        return Outcome(place, "unexplained", named[:1], why="a single run")
    values = {fact.value for fact in named}
    why = _unlike(place, named, vocabulary) if len(values) == 1 else f"the words leave {len(values)} values open"
    miss = slip(named[0], place.numeral, place.unit) if not why else None
    if not why and not (miss and _may_state(named[0], miss, place, equal)):
        why = "too far from the one value that the words may mean"
    why = why or doubt(place, vocabulary)
    if why or miss is None:
        return Outcome(place, "match" if equal else "unexplained", equal[:4], why=why)
    hard = miss.what not in _SOFT or (miss.what == "one digit differs" and place.numeral.digits > _LONG)
    return Outcome(
        place, "drift", named[:1], miss.expected, "certain" if hard and not equal else "likely", miss.what, equal
    )


def _unlike(place: Place, named: list[Fact], vocabulary: Vocabulary) -> str:
    """Why the one value that is left need not be what is meant."""
    said = place.own.keys() | (place.around.keys() if place.cell else set()) | {"split"}
    open_axes = [axis for axis in named[0].terms if axis not in said and len(vocabulary.axes[axis]) > 1]
    if open_axes:
        return f"nothing says which {open_axes[0]}"
    if not named[0].terms.keys() & said - {"split"}:
        return "nothing names it: it is the only value of the file"
    if place.unclear:
        return "the sentence can be read in several ways"
    return "a mean" if not place.cell and _AVERAGED.search(place.text) else ""


def _may_state(fact: Fact, miss: Slip, place: Place, equal: list[Fact]) -> bool:
    """Could the number be meant as this value at all? A digit, a whole number of things, a far value may not."""
    numeral = place.numeral
    if equal:  # copied from another row or column, which its labels tell from this one
        apart = ({axis for axis, _ in fact.terms.items() ^ other.terms.items()} for other in equal)
        return place.cell and all(place.own.keys() & axes for axes in apart)
    whole = numeral.ulp >= 1 and not numeral.percent and abs(numeral.value) < 1000 and fact.value != round(fact.value)
    says_what = "metric" in place.own or "metric" not in fact.terms or numeral.unit or numeral.percent
    unnamed = "a factor of" in miss.what and not (says_what or place.cell)
    far = miss.what in _SOFT and miss.apart > (_FAR if place.cell else _CLOSE)
    few = numeral.digits < 2 and (numeral.ulp >= 1 or miss.what != "the unit is wrong")
    return not (few or whole or far or unnamed)
