"""What came of each number: match, drift, derived, cited or unexplained, and the words that decided.

The core is strict. A number is held against a value only when its row, column, caption or sentence names everything
that tells this value from the others; it is a drift only when nothing else explains it: another value, a difference,
a ratio or a mean of values, another owner. All other numbers are unexplained, which is no alarm.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from rgt.reconcile.facts import UNITS, Fact, kind_of
from rgt.reconcile.numerals import NUMBER_WORDS
from rgt.reconcile.places import Outcome, Place, about, comparable
from rgt.reconcile.prose_changes import judge_change
from rgt.reconcile.readings import Slip, agrees, matches, reading, rounds_to, scales, slip, spread_agrees
from rgt.reconcile.vocabulary import Vocabulary

_CLOSE, _FAR = 0.15, 0.6  # relative differences: of the same quantity in a sentence; in a cell
_ALIKE = 3.0  # one value taken for another that is larger by more is noticed
_LONG = 3  # digits: of shorter numbers three in a hundred differ from a value in one digit
_MOST_RUNS = 30  # seeds: more are episodes, or samples
_FEW = 4  # values that the words leave open, of which a slip of digits still tells the one
_SOFT = ("the value differs", "one digit differs")  # what happens by chance
_SUMMARIES: tuple[tuple[str, Callable[[list[float]], float]], ...] = (
    ("mean", statistics.fmean),
    ("median", statistics.median),
    ("sum", math.fsum),
    ("range", lambda values: max(values) - min(values)),
)
_ROUGH = frozenset(["about", "bound", "range"])
_MEANS = frozenset(["mean"])
_AVERAGED = re.compile(
    r"\b(?:averaged? (?:over|across)|averages|(?:mean|average) .{0,30}(?:over|across|of) (?:all|the|both))"
    r"|数据集的?(?:\w{0,2})平均|取?算术平均|平均而言|均值为|平均",
    re.I,
)
_HOW_MANY = re.compile(
    rf"\b(?:over|across|of)\s(?:all\s|the\s)*(\d+|{'|'.join(filter(str.isascii, NUMBER_WORDS))})\b", re.I
)
_OTHER_SPREAD = re.compile(r"\b(?:s\.?e\.?m?|std\.? ?err\w*|standard errors?|CI|confidence|95)\b|标准误|置信", re.I)
_INTERVAL = re.compile(
    r"\bCI\b|confidence|interval|bound|\b(?:low|high|min|max|best|worst|median|lower|upper)|置信|区间|最", re.I
)


def judged(places: list[Place], vocabulary: Vocabulary) -> list[Outcome]:
    """The numbers of one sentence or table together."""
    outcomes = [_judge(place, vocabulary) for place in places]
    _other_spreads(outcomes)
    _one_scale(outcomes)
    stated = {one.facts[0].bit for one in outcomes if one.kind == "match" and one.facts}
    drifts = Counter(one.facts[0].bit for one in outcomes if one.kind == "drift" and one.facts)
    for one in outcomes:  # its sentence states that very value already: this is another one
        if one.kind != "drift" or one.place.cell or not one.facts:
            continue
        if one.facts[0].bit in stated or (one.equals and drifts[one.facts[0].bit] > 1):
            one.kind, one.sure, one.why = "unexplained", "", "the value that is named stands beside it"
    for at, outcome in enumerate(outcomes):
        if outcome.place.numeral.role in ("change", "ratio"):
            outcomes[at] = judge_change(outcome.place, outcomes, vocabulary)
    return outcomes


def _judge(place: Place, vocabulary: Vocabulary) -> Outcome:
    role = place.numeral.role
    if role == "runs":
        return _runs(place, vocabulary)
    if role in ("change", "ratio"):
        return Outcome(place, "unexplained")  # judged when its neighbours are
    if role == "spread":
        return _spread(place, vocabulary)
    equal = [fact for fact in matches(vocabulary, place.numeral, place.unit) if _sayable(fact, place)]
    fitting = vocabulary.fitting(place.own)
    own = [fact for fact in equal if fact.bit & fitting]
    if own:
        return _matched(place, own, vocabulary)
    if role in _ROUGH:
        return Outcome(place, "unexplained", why="a bound or a rough number")
    if place.average:
        return _average(place, vocabulary)
    outcome = _turned(place, vocabulary) or _differs(place, vocabulary, equal)
    averaged = not place.cell and _AVERAGED.search(place.text, 0, place.numeral.start + 1)
    return _average(place, vocabulary) if averaged and outcome.sure != "certain" else outcome


def _sayable(fact: Fact, place: Place) -> bool:
    """A point of a sweep or a bound of an interval is stated only where the text speaks of such."""
    if "statistic" in fact.terms and not place.cell and not _INTERVAL.search(place.text):
        return False
    swept = fact.terms.get("sweep")
    return swept is None or place.cell or swept in place.named.get("sweep", ())


def wider(place: Place, vocabulary: Vocabulary) -> int:
    """The facts that a number may be about, by its own names and those from farther away."""
    around = {axis: frozenset([term]) for axis, term in place.around.items()}
    return vocabulary.plausible({**around, **place.own})


# -- spreads and numbers of runs


def _matched(place: Place, own: list[Fact], vocabulary: Vocabulary) -> Outcome:
    numeral = place.numeral
    fitting = [fact for fact in own if agrees(fact, numeral, place.unit)]
    if fitting or numeral.spread is None:
        return Outcome(place, "match", fitting or own)
    meant = [fact for fact in own if fact.bit & wider(place, vocabulary)]
    if len(meant) != 1 or meant[0].spread is None or place.doubts():
        return Outcome(place, "match", own)
    fact = meant[0]
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
    told = [
        one for one in outcomes if one.place.numeral.spread is not None and one.facts and one.kind in ("match", "drift")
    ]
    wrong = [one for one in told if one.why == "the spread differs"]
    if len(wrong) > max(1, 0.34 * len(told)):
        for one in wrong:
            one.kind, one.sure, one.why = "match", "", "another kind of spread"


def _one_scale(outcomes: list[Outcome]) -> None:
    """0.052 % beside 8.4 % for 0.052 and 0.084: one of two comparable values was not multiplied by 100."""
    told = [one for one in outcomes if one.kind == "match" and one.place.numeral.percent and one.facts]
    scaled = [(one, fact, reading(fact, one.place.numeral)) for one in told for fact in one.facts[:1]]
    for one, fact, scale in scaled:
        if scale == 1.0 and any(other == 100.0 and comparable(fact, same) for _, same, other in scaled):
            one.kind, one.expected, one.sure = "drift", fact.value * 100, "likely"
            one.why = "it is off by a factor of 0.01: the number beside it is not"


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
    known = [fact for fact in vocabulary.members(wider(place, vocabulary)) if fact.spread is not None]
    written = numeral._replace(spread=numeral.value, spread_ulp=numeral.ulp)
    for fact in known:
        if any(spread_agrees(fact, written, scale) for scale in {1.0, *scales(fact, numeral, place.unit)}):
            return Outcome(place, "match", [fact])
    if len(known) == 1 and not place.unclear and not place.doubts():
        fact = known[0]
        possible = [(fact.spread or 0.0) * scale for scale in {1.0, *scales(fact, numeral, place.unit)}]
        right = min(possible, key=lambda value: abs(value - numeral.value))
        if right and (abs(numeral.value - right) < 3 * right or rounds_to(fact.value, numeral.value, numeral.ulp)):
            sure = "certain" if place.cell else "likely"
            return Outcome(place, "drift", [fact], right, sure, "the spread differs")
    return Outcome(place, "unexplained", known[:4], why="a spread that no value here has")


def _runs(place: Place, vocabulary: Vocabulary) -> Outcome:
    """A number of seeds, where all facts have the same."""
    said = round(place.numeral.value)
    if said in vocabulary.counts:
        return Outcome(place, "match")
    having = [fact for fact in vocabulary.facts if fact.n]
    if (
        len(vocabulary.counts) != 1
        or max(said, *vocabulary.counts) > _MOST_RUNS
        or 4 * len(having) < len(vocabulary.facts)
        or place.doubts()
    ):
        return Outcome(place, "unexplained", why="the values have no such number of runs, or several")
    right = float(having[0].n or 0)
    if said % right == 0 and re.match(r"\s?(?:\w+ )?(?:runs|trainings)\b|\s?次", place.text[place.numeral.end :]):
        return Outcome(place, "unexplained", why="the runs of several settings together")
    return Outcome(place, "drift", having[:1], right, "likely", "the number of runs differs")


def _average(place: Place, vocabulary: Vocabulary) -> Outcome:
    """A mean over values, which no single one of them contradicts."""
    found = vocabulary.derivations.explaining(place.numeral, _MEANS, place.unit)
    for one in found:
        if all(about(fact, place) for fact in one.facts):
            return Outcome(place, "derived", list(one.facts[:8]), one.value, why=one.how)
    numeral, means = place.numeral, list(_means(place, vocabulary))
    if len(means) == 1 and numeral.digits > 2 and not numeral.role and not place.doubts():
        facts = means[0]
        mean = replace(facts[0], value=sum(fact.value for fact in facts) / len(facts), spread=None)
        if reading(mean, numeral, place.unit) is not None:
            return Outcome(place, "derived", facts[:8], mean.value, why=f"the mean of {len(facts)} values")
        miss = slip(mean, numeral, place.unit)
        if miss and (miss.what not in _SOFT or miss.apart < _CLOSE):
            why = f"{miss.what}: the mean of {len(facts)} values"
            return Outcome(place, "drift", facts[:8], miss.expected, "likely", why)
    return Outcome(place, "unexplained", why="a mean over values that the text does not name")


def _means(place: Place, vocabulary: Vocabulary) -> Iterator[list[Fact]]:
    """The values that differ on one axis alone, of which the text may give the mean."""
    if len(vocabulary.axes.get("method", ())) > 1 and "method" not in place.own:
        return
    told = _HOW_MANY.search(place.text)
    count = NUMBER_WORDS.get(told[1].lower(), told[1]) if told else ""
    for axis in vocabulary.axes:
        if axis in ("metric", "method", "split", "statistic", "point", "sweep") or axis in place.own:
            continue
        terms = {name: frozenset([term]) for name, term in place.around.items() if name != axis} | place.own
        facts = [fact for fact in vocabulary.members(vocabulary.plausible(terms)) if axis in fact.terms]
        rest = {frozenset(fact.terms.items()) - {(axis, fact.terms[axis])} for fact in facts}
        if len(facts) > 1 and len(rest) == 1 and str(count) in ("", str(len(facts))):
            yield facts


# -- a number that no fitting fact has


def _differs(place: Place, vocabulary: Vocabulary, equal: list[Fact]) -> Outcome:
    """A slip of the one fact that the words name, when nothing else explains the number."""
    numeral = place.numeral
    candidates = _candidates(place, vocabulary)
    choices = {fact.value for fact in candidates}
    if not equal and not place.cell:
        named = vocabulary.fitting(place.named)
        computed = [
            one
            for one in vocabulary.derivations.explaining(numeral, _MEANS, place.unit)
            if all(fact.bit & named for fact in one.facts)
        ]
        if computed:
            return Outcome(place, "derived", list(computed[0].facts[:8]), computed[0].value, why=computed[0].how)
    for how, compute in _SUMMARIES if len(choices) > 1 and not equal and numeral.digits > 2 else ():
        summary = replace(candidates[0], value=compute([fact.value for fact in candidates]), spread=None)
        if reading(summary, numeral, place.unit) is not None:
            return Outcome(
                place, "derived", candidates[:8], summary.value, why=f"the {how} of {len(candidates)} values"
            )
    misses = [(fact, miss) for fact in candidates[:_FEW] if (miss := slip(fact, numeral, place.unit))]
    hard = [pair for pair in misses if pair[1].what not in _SOFT]
    if len(choices) > 1:  # of a few values, the one that was mistyped
        misses = hard if len(candidates) <= _FEW and len({fact.value for fact, _ in hard}) == 1 and not equal else []
    misses = [(fact, miss) for fact, miss in misses if _may_state(fact, miss, place, equal)]
    if not misses or (place.unclear and not hard):
        why = "no value is about this" if not choices else "too far from the one value that the words may mean"
        if len(choices) > 1:
            why = f"the words leave open which of {len(choices)} values this is"
        kind = "match" if equal else "cited" if place.doubts() else "unexplained"
        return Outcome(place, kind, equal[:4], why="; ".join([why, *place.against]))
    fact, miss = misses[0]
    mentioned = not place.cell and any(_mentioned(other, fact, place) for other in equal)
    named = all(axis in {*place.own, "split"} for axis in fact.terms if len(vocabulary.axes[axis]) > 1)
    tied = place.cell and all(place.own.keys() & _apart(fact, other) for other in equal)
    tied = tied or (place.bound and all(comparable(fact, other) for other in equal))
    tied = tied or (named and not place.unclear and numeral.digits > 2 and all(_confused(fact, one) for one in equal))
    if (equal and not tied) or mentioned or place.doubts():
        return Outcome(place, "match" if equal else "cited", equal[:4], why="; ".join(place.against))
    typed = hard or (named and miss.what == "one digit differs" and numeral.digits > _LONG)
    sure = "certain" if typed and not equal and len(choices) == 1 else "likely"
    return Outcome(place, "drift", [fact], miss.expected, sure, miss.what, equal)


def _apart(fact: Fact, other: Fact) -> set[str]:
    return {axis for axis, _ in fact.terms.items() ^ other.terms.items()}


def _confused(fact: Fact, other: Fact) -> bool:
    """Could one have been copied for the other: of the same metric, or of everything but the metric?"""
    apart = _apart(fact, other)
    near = abs(fact.value) < _ALIKE * abs(other.value) < _ALIKE**2 * abs(fact.value)
    return near and (fact.terms.get("metric") == other.terms.get("metric") or apart == {"metric"})


def _mentioned(other: Fact, fact: Fact, place: Place) -> bool:
    """Is everything that tells a rival from the expected fact named in the sentence, or known from around it?"""
    return all(
        term in place.named.get(axis, ()) or term in (place.around.get(axis), place.ours)
        for axis, term in other.terms.items()
        if fact.terms.get(axis) != term
    )


def _may_state(fact: Fact, miss: Slip, place: Place, equal: list[Fact]) -> bool:
    """Could the number be meant as this value at all? A digit, a whole number of things, a far value may not."""
    numeral = place.numeral
    whole = numeral.ulp >= 1 and not numeral.percent and abs(numeral.value) < 1000 and fact.value != round(fact.value)
    says_what = "metric" in place.own or "metric" not in fact.terms or numeral.unit or numeral.percent
    unnamed = "a factor of" in miss.what and not (says_what or place.cell)
    far = miss.what in _SOFT and not equal and miss.apart > (_FAR if place.cell else _CLOSE)
    few = numeral.digits < 2 and (numeral.ulp >= 1 or miss.what != "the unit is wrong")
    return not few and not whole and not far and not unnamed


def _candidates(place: Place, vocabulary: Vocabulary) -> list[Fact]:
    """The facts that the words may mean; none, where nothing says what is measured."""
    meant = {axis for axis in place.own if axis != "split"}
    candidates = list(vocabulary.members(wider(place, vocabulary)))
    # a fact that lacks an axis which the words name, and others have, is not what they mean
    most = max((len(meant & {*fact.terms}) for fact in candidates), default=0)
    candidates = [fact for fact in candidates if len(meant & {*fact.terms}) == most]
    if place.numeral.ulp < 1 and not place.numeral.unit and any(fact.value % 1 for fact in candidates):
        candidates = [fact for fact in candidates if fact.value % 1]  # counts have no decimals
    kind = UNITS.get(place.numeral.unit or place.unit, ("",))[0]
    if kind not in ("", "share"):
        return [fact for fact in candidates if kind_of(fact) == kind]
    return candidates
