"""What came of each number: match, drift, derived, cited or unexplained, and the words that decided.

Every explanation is weighed: the facts that equal the number, those that the words around it name, what can be computed
from them, and whoever else is named. It is a drift when a slip of a named fact is clearly the best of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from rgt.reconcile.facts import UNITS, Fact, kind_of
from rgt.reconcile.numerals import Numeral
from rgt.reconcile.readings import (
    Slip,
    agrees,
    matches,
    mean,
    reading,
    rounds_to,
    scales,
    slip,
    spread_agrees,
)
from rgt.reconcile.vocabulary import Vocabulary

CERTAIN, LIKELY = 5.0, 3.0  # scores; calibrated on documents of strangers (evals/strangers)
_WEAK = {"from": 0.0, "about": 1.0, "bound": 1.0, "range": 4.0, "spread": 0.5}
_MANY = 40  # facts that the words may mean: with more, they name nothing
_AVERAGE = re.compile(r"\b(?:average[sd]?|mean|avg\.?|overall|macro|across)\b|平均|均值|总体", re.I)
_AVERAGED = re.compile(
    r"\b(?:averaged? (?:over|across)|averages|(?:mean|average) .{0,30}(?:over|across|of) (?:all|the|both))"
    r"|数据集的?(?:\w{0,2})平均|取?算术平均|平均而言|均值为",
    re.I,
)
_ONE_RUN = re.compile(r"\b(?:seeds?|runs?|best|worst|max\w*|min\w*|single)\b|种子|单次|最", re.I)
_ERROR = re.compile(r"\berr(?:or)?s?\b|错误率|误差", re.I)

_OTHER_SPREAD = re.compile(r"\b(?:s\.?e\.?m?|std\.? ?err\w*|standard errors?|CI|confidence|95)\b|标准误|置信", re.I)
_INTERVAL = re.compile(
    r"\bCI\b|confidence|interval|bound|\b(?:low|high|min|max|best|worst|median|lower|upper)|置信|区间|最", re.I
)

Terms = dict[str, frozenset[str]]


@dataclass
class Place:
    """A number and everything that may say what it is."""

    numeral: Numeral
    reported: str
    line: int
    where: str
    text: str  # its sentence, or its row and column
    own: Terms  # the names that belong to it
    named: Terms  # all names of its sentence
    around: dict[str, str]  # from farther away, for axes that nothing near names
    unit: str = ""  # of its column
    cell: bool = False
    bound: bool = False  # a name is tied to it: "91 (ours)", "91 for ours"
    unclear: int = 0  # axes on which the sentence can be read in several ways
    reasons_against: float = 0.0
    doubts: list[str] = field(default_factory=list)
    ours: str = ""  # the document's own method
    row_values: tuple[float, ...] = ()  # what its average is taken of
    inferred: set[str] = field(default_factory=set)  # axes known from the neighbours' values
    average: bool = False  # its column or row says so
    weigh: Callable[[], None] | None = None  # finds what speaks against it; most numbers match and never need it

    @property
    def against(self) -> float:
        """How much says that it is somebody else's, or of another state of the model."""
        if self.weigh:
            weigh, self.weigh = self.weigh, None
            weigh()
        return self.reasons_against

    @against.setter
    def against(self, weight: float) -> None:
        self.reasons_against = weight


@dataclass
class Outcome:
    place: Place
    kind: str  # match, drift, derived, cited, unexplained
    facts: list[Fact] = field(default_factory=list)
    expected: float | None = None
    sure: str = ""  # certain, likely, anchored
    why: str = ""
    equals: list[Fact] = field(default_factory=list)  # other facts that it states exactly
    score: float = 0.0
    meant: Fact | None = None  # the one that the words name


def judged(places: list[Place], vocabulary: Vocabulary) -> list[Outcome]:
    """The plain numbers of one sentence or table together; changes and ratios are left to who knows their operands."""
    outcomes = [_judge(place, vocabulary) for place in places]
    _swaps(outcomes)
    _other_spreads(outcomes)
    stated = {
        outcome.facts[0].bit
        for outcome in outcomes
        if outcome.kind == "match" and outcome.facts and outcome.meant is None and outcome.place.numeral.role != "runs"
    }
    for outcome in outcomes:
        taken = outcome.equals and all(fact.bit in stated for fact in outcome.equals)
        # what it equals stands beside it already, and is not what its own words name
        if outcome.kind == "match" and outcome.meant and taken and outcome.score + _RIVAL >= LIKELY:
            outcome.kind, outcome.sure, outcome.facts = "drift", "likely", [outcome.meant]
        # the value that the words name stands in the same sentence already: this is another one
        if outcome.kind == "drift" and not outcome.place.cell and outcome.meant and outcome.meant.bit in stated:
            outcome.kind, outcome.sure = "unexplained", ""
    return outcomes


def _judge(place: Place, vocabulary: Vocabulary) -> Outcome:
    role = place.numeral.role
    if role == "runs":
        return _runs(place, vocabulary)
    if role in ("change", "ratio"):
        return Outcome(place, "unexplained")  # needs its neighbours
    if role == "spread":
        return _spread(place, vocabulary)
    equal = list(matches(vocabulary, place.numeral, place.unit))
    if vocabulary.rare:
        equal = [fact for fact in equal if _sayable(fact, place, vocabulary)]
    fitting = vocabulary.fitting(place.own)
    own = [fact for fact in equal if fact.bit & fitting]
    if own:
        return _matched(place, own, vocabulary)
    if role in ("about", "bound") and (place.numeral.digits < 3 or place.numeral.ulp >= 1):
        return _roughly(place, vocabulary)
    return (
        _turned(place, vocabulary)
        or _computed(place, vocabulary, fitting)
        or _other_unit(place, vocabulary)
        or _differs(place, vocabulary, equal)
    )


def _sayable(fact: Fact, place: Place, vocabulary: Vocabulary) -> bool:
    """A point of a sweep or a bound of an interval is stated only where the text speaks of such."""
    if "statistic" in fact.terms and not place.cell and not _INTERVAL.search(place.text):
        return False
    swept = fact.terms.get("sweep")
    return swept is None or place.cell or swept in place.named.get("sweep", ())


def _other_spreads(outcomes: list[Outcome]) -> None:
    """Where most spreads are the standard error, or half an interval, all of them may be."""
    told = [
        one for one in outcomes if one.place.numeral.spread is not None and one.facts and one.kind in ("match", "drift")
    ]
    wrong = [one for one in told if one.why == "the spread differs"]
    if len(wrong) > max(1, 0.34 * len(told)):
        for one in wrong:
            fact, numeral = one.facts[0], one.place.numeral
            scale = reading(fact, numeral, one.place.unit) or 1.0
            if spread_agrees(fact, numeral, scale, other=True) or len(wrong) > 0.6 * len(told) > 2:
                one.kind, one.sure, one.why = "match", "", "another kind of spread"


def _matched(place: Place, own: list[Fact], vocabulary: Vocabulary) -> Outcome:
    if len(own) > 1:
        around = {axis: frozenset([term]) for axis, term in place.around.items()}
        nearer = vocabulary.fitting({**around, **place.own})
        own.sort(key=lambda fact: not fact.bit & nearer)
    numeral = place.numeral
    if numeral.spread is None or any(agrees(fact, numeral, place.unit) for fact in own):
        fitting = [fact for fact in own if agrees(fact, numeral, place.unit)] or own
        return Outcome(place, "match", fitting)
    fact = own[0]
    scale = reading(fact, numeral, place.unit) or 1.0
    meant = [one for one in own if one.bit & wider(place, vocabulary)]
    if place.against >= 2 or len(meant) > 1 or fact.spread is None:
        return Outcome(place, "match", own)
    if numeral.spread and any(spread_agrees(fact, numeral, scale * factor) for factor in (100.0, 0.01)):
        factor = 100.0 if spread_agrees(fact, numeral, scale * 100) else 0.01
        why = f"it is off by a factor of {1 / factor:g}: its spread is not"
        return Outcome(place, "drift", [fact], fact.value * scale * factor, "certain", why, score=CERTAIN)
    if _OTHER_SPREAD.search(place.text) and spread_agrees(fact, numeral, scale, other=True):
        return Outcome(place, "match", own)
    sure = "certain" if _resolved(place, fact, vocabulary) and not place.unclear and not place.against else "likely"
    return Outcome(place, "drift", [fact], fact.spread * scale, sure, "the spread differs", score=CERTAIN)


def _resolved(place: Place, fact: Fact, vocabulary: Vocabulary) -> bool:
    """Does its own sentence, or row and column, name the fact on every axis where there is a choice?"""
    return all(axis in place.own for axis, terms in vocabulary.axes.items() if len(terms) > 1 and axis in fact.terms)


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
    turned.sort(key=lambda fact: not fact.bit & fitting)
    scale = reading(turned[0], other, place.unit) or 1.0
    why = "mean and spread are swapped"
    return Outcome(place, "drift", turned[:1], turned[0].value * scale, "certain", why, score=CERTAIN)


def _other_unit(place: Place, vocabulary: Vocabulary) -> Outcome | None:
    """13.8 minutes for 13.8 hours: the very digits of a fact of that kind, with another unit."""
    numeral = place.numeral
    kind, factor = UNITS.get(numeral.unit or place.unit, ("", 1.0))
    told = "metric" in place.named and "method" in place.named
    if kind in ("", "share") or numeral.digits < (2 if told else 3) or place.against >= 2:
        return None
    fitting = vocabulary.fitting({axis: terms for axis, terms in place.named.items() if axis != "metric"})
    slips = []
    for fact in vocabulary.members(fitting):
        own_kind, own_factor = UNITS.get(fact.unit, ("", 1.0))
        counted = kind == "count" and fact.terms.get("metric") == "parameters"
        if own_kind == kind or counted:
            scaled = fact.value * (1.0 if counted and not own_kind else own_factor)  # in the smallest unit
            factors = {other for name, other in UNITS.values() if name == kind and other != factor}
            if any(rounds_to(scaled / other, numeral.value, numeral.ulp) for other in factors):
                slips.append((fact, scaled / factor))
    if len({fact.value for fact, _ in slips}) != 1:
        return None
    fact, right = slips[0]
    return Outcome(place, "drift", [fact], right, "certain", "the unit is wrong", score=CERTAIN, meant=fact)


def _spread(place: Place, vocabulary: Vocabulary) -> Outcome:
    fitting = list(vocabulary.members(wider(place, vocabulary)))
    numeral = place.numeral
    known = [fact for fact in fitting if fact.spread is not None]
    for fact in known:
        for scale in {1.0, *scales(fact, numeral, place.unit)}:
            if spread_agrees(fact, numeral._replace(spread=numeral.value, spread_ulp=numeral.ulp), scale):
                return Outcome(place, "match", [fact])
    if len(known) == 1 and not place.against and not place.unclear:
        fact = known[0]
        assert fact.spread is not None
        right = min(
            (fact.spread * scale for scale in {1.0, *scales(fact, numeral, place.unit)}),
            key=lambda v: abs(v - numeral.value),
        )
        if right and (abs(numeral.value - right) < 3 * right or rounds_to(fact.value, numeral.value, numeral.ulp)):
            sure = "certain" if place.cell and _resolved(place, fact, vocabulary) else "likely"
            return Outcome(place, "drift", [fact], right, sure, "the spread differs", score=LIKELY)
    return Outcome(place, "unexplained", known[:4], why="a spread that no value here has")


def wider(place: Place, vocabulary: Vocabulary) -> int:
    around = {axis: frozenset([term]) for axis, term in place.around.items()}
    return vocabulary.plausible({**around, **place.own})


def _runs(place: Place, vocabulary: Vocabulary) -> Outcome:
    """A number of seeds, against those of the facts it may speak of."""
    said = round(place.numeral.value)
    counts = {fact.n: fact for fact in vocabulary.members(wider(place, vocabulary)) if fact.n}
    if said in counts or said in vocabulary.counts:
        return Outcome(place, "match", [counts[said]] if said in counts else [])
    if not vocabulary.counts or place.against >= 2 or said > 30:
        return Outcome(place, "unexplained", why="no value says how many runs it has")
    every = {fact.n: fact for fact in vocabulary.facts if fact.n}
    if len(every) == 1:
        right, fact = next(iter(every.items()))
        assert right is not None
        complete = sum(1 for each in vocabulary.facts if each.n) > 0.5 * len(vocabulary.facts)
        sure = "certain" if complete and not place.against else "likely"
        return Outcome(place, "drift", [fact], float(right), sure, "the number of runs differs", score=CERTAIN)
    if len(counts) == 1:
        right, fact = next(iter(counts.items()))
        return Outcome(place, "drift", [fact], float(right or 0), "likely", "the number of runs differs", score=LIKELY)
    return Outcome(place, "unexplained", why="the values have different numbers of runs")


def _roughly(place: Place, vocabulary: Vocabulary) -> Outcome:
    """ "about 42 %", "more than 90": true when a fact that fits is near, or on the right side."""
    numeral = place.numeral
    candidates = list(vocabulary.members(wider(place, vocabulary)))
    if not {"metric"} & {*place.own, *place.around}:
        return Outcome(place, "unexplained", why="a bound or a rough number")
    values = [(fact, fact.value * scale) for fact in candidates for scale in scales(fact, numeral, place.unit)]
    near = [fact for fact, value in values if abs(value - numeral.value) <= max(numeral.ulp, 0.12 * abs(value))]
    if near or not values:
        return Outcome(place, "match", near[:4], why="roughly")
    fact, right = min(values, key=lambda pair: abs(pair[1] - numeral.value))
    tens = right and any(
        abs(right * times - numeral.value) <= numeral.ulp for times in (100.0, 0.01, 10.0, 0.1, 1e3, 1e-3)
    )
    if tens and "metric" in place.own and not place.against:
        return Outcome(place, "drift", [fact], right, "likely", "it is off by a power of ten", score=LIKELY)
    return Outcome(place, "unexplained", why="a bound or a rough number")


# -- computed from several facts


def _computed(place: Place, vocabulary: Vocabulary, fitting: int) -> Outcome | None:
    """A mean over facts, or what is left to one: only where the words say so."""
    numeral, text = place.numeral, place.text
    if place.average or _AVERAGE.search(text):
        averaged = _average(place, vocabulary)
        if averaged:
            return averaged
    if _ERROR.search(text):
        given = {axis: terms for axis, terms in place.own.items() if axis != "metric"}
        for fact in vocabulary.members(vocabulary.fitting(given)):
            top = 1.0 if fact.value <= 1 else 100.0
            rest = Fact("", top - fact.value, fact.terms, fact.unit, share=True)
            if fact.share and reading(rest, numeral, place.unit) is not None:
                return Outcome(place, "derived", [fact], rest.value, why=f"{top:g} - {fact.value:.6g}")
    if len(place.own.get("metric", ())) == 1 and not fitting & (fitting - 1):
        for fact in vocabulary.members(fitting):
            for run in fact.runs if _ONE_RUN.search(text) else ():
                if reading(Fact("", run, fact.terms, fact.unit, share=fact.share), numeral, place.unit) is not None:
                    return Outcome(place, "derived", [fact], run, why="one of its runs")
    return None


def _average(place: Place, vocabulary: Vocabulary) -> Outcome | None:
    """A mean over the facts of one axis: those named, or all. A text that says so states no single fact."""
    if len(place.row_values) > 1:
        average = sum(place.row_values) / len(place.row_values)
        if abs(average - place.numeral.value) <= 1.01 * place.numeral.ulp:
            return Outcome(place, "derived", [], average, why=f"the mean of {len(place.row_values)} numbers of its row")
    skipped = {"metric", "split", "method", *vocabulary.rare, *([vocabulary.ours[0]] if vocabulary.ours else [])}
    axes = [axis for axis, terms in vocabulary.axes.items() if axis not in skipped and len(terms) > 1]
    sole: list[list[Fact]] = []
    for axis in [axis for axis in axes if len(place.own.get(axis, ())) != 1] or axes:
        some, terms = place.named.get(axis, frozenset()), frozenset(vocabulary.axes[axis])
        for chosen in [some, terms] if len(some) > 1 else [terms]:
            groups = _alike({**place.own, axis: chosen}, axis, vocabulary)
            for same in groups:
                if reading(_mean_fact(same), place.numeral, place.unit) is not None:
                    return Outcome(place, "derived", same, mean(same), why=f"the mean of {len(same)} values")
            if len(some) != 1:
                sole += groups
                break
    if not place.average and not _AVERAGED.search(place.text, 0, place.numeral.start + 1):
        return None
    around = {axis: frozenset([term]) for axis, term in place.around.items()}
    fits = vocabulary.fitting({axis: terms for axis, terms in {**around, **place.own}.items() if axis not in axes})
    sole = [same for same in sole if same[0].bit & fits]
    miss = slip(_mean_fact(sole[0]), place.numeral, place.unit) if len(sole) == 1 else None
    far = miss and abs(miss.expected - place.numeral.value) > 1.5 * place.numeral.ulp  # a mean of rounded numbers
    if miss and far and miss.weight > 0 and not place.against and not place.numeral.role:
        why = f"the mean of {len(sole[0])} values is another"
        return Outcome(place, "drift", sole[0], miss.expected, "likely", why, score=LIKELY)
    return Outcome(place, "unexplained", why="a mean over values that the text does not name")


def _mean_fact(facts: list[Fact]) -> Fact:
    return Fact("", mean(facts), facts[0].terms, facts[0].unit, share=facts[0].share)


def _alike(terms: Terms, axis: str, vocabulary: Vocabulary) -> list[list[Fact]]:
    """Facts that differ on one axis alone, in groups of at least two."""
    groups: dict[tuple[tuple[str, str], ...], list[Fact]] = {}
    for fact in list(vocabulary.members(vocabulary.plausible(terms)))[:400]:
        if axis in fact.terms:
            rest = tuple(sorted((name, term) for name, term in fact.terms.items() if name != axis))
            groups.setdefault(rest, []).append(fact)
    return [same for same in groups.values() if len(same) > 1]


# -- a number that no fitting fact has

_RIVAL = 4.0  # what it costs to equal a fact that the sentence names as well


def _differs(place: Place, vocabulary: Vocabulary, equal: list[Fact]) -> Outcome:
    """No fact that the words may mean has this value: a slip of one of them, unless somebody else's."""
    numeral = place.numeral
    meant = {axis for axis in place.own if axis != "split"}
    # a fact that lacks an axis which the words name, and others of its metric have, is not what they mean
    candidates = [
        fact
        for fact in vocabulary.members(wider(place, vocabulary))
        if not meant & vocabulary.axes_of[fact.terms.get("metric", "")] - {*fact.terms}
    ]
    kind = UNITS.get(numeral.unit or place.unit, ("",))[0]
    measures = {kind_of(fact) for fact in candidates}
    told = place.own.get("metric") or {place.around.get("metric", "")}
    ours = all(("metric", metric) in vocabulary.named for metric in told)  # else it is about what no fact measures
    if kind not in ("", "share") and kind not in measures and ours:
        place.own = {axis: terms for axis, terms in place.own.items() if axis != "metric"}  # 18 hours are no parameters
        place.around.pop("metric", None)
        candidates = list(vocabulary.members(wider(place, vocabulary)))
    by_unit = "metric" not in {*place.own, *place.around} and len(vocabulary.axes.get("metric", [])) > 1
    if kind not in ("", "share"):
        measured = [fact for fact in candidates if kind_of(fact) == kind]
        candidates = measured or ([] if by_unit else candidates)
    misses = [(fact, miss) for fact in candidates[:_MANY] if (miss := slip(fact, numeral, place.unit))]
    unknown = by_unit and place.cell and kind in ("", "share")  # a column of which nothing says what it measures
    if not misses or len(candidates) > _MANY or unknown:
        why = "nothing here says which value this is" if candidates or not place.own else "no value is about this"
        sort = "cited" if place.against >= 3 else "unexplained"
        if equal and not place.own:
            sort = "match"
        return Outcome(place, sort, equal[:4], why="; ".join([why, *place.doubts]))
    fact, miss = max(misses, key=lambda pair: (pair[1].weight, -abs(pair[1].expected - numeral.value)))
    choices = len({each.value for each, _ in misses})
    rivals = [other for other in equal if other.terms.get("metric") == fact.terms.get("metric")]
    if rivals and miss.weight < 0.8 and any(comparable(fact, other) for other in rivals):
        miss = miss._replace(weight=0.8)  # however far: it is the neighbour's value
    score = _score(place, fact, miss, vocabulary, by_unit) - (0.5 if choices == 2 else 1.0 if choices > 2 else 0.0)
    if not place.cell and any(_mentioned(other, fact, place) for other in rivals):
        score -= _RIVAL  # first of all it is that one's
    sort = "drift" if score >= LIKELY and place.against < 3 else "cited" if place.against >= 3 else "unexplained"
    if sort != "drift" and equal and place.against < 3:
        why = "another value than the words name"
        return Outcome(place, "match", equal[:4], miss.expected, "", why, rivals, score, fact)
    sure = "certain" if score >= CERTAIN and not rivals and choices == 1 else "likely"
    why = "; ".join([miss.what, *place.doubts])
    return Outcome(place, sort, [fact], miss.expected, sure if sort == "drift" else "", why, rivals, score, fact)


def _mentioned(other: Fact, fact: Fact, place: Place) -> bool:
    """Is everything that tells a rival from the expected fact named in the sentence, or known from around it?"""
    apart = [axis for axis, term in other.terms.items() if fact.terms.get(axis) != term]
    return all(
        other.terms[axis] in place.named.get(axis, ()) or other.terms[axis] in (place.around.get(axis), place.ours)
        for axis in apart
    )


def _score(place: Place, fact: Fact, miss: Slip, vocabulary: Vocabulary, by_unit: bool) -> float:
    numeral = place.numeral
    kind = UNITS.get(numeral.unit or place.unit, ("",))[0]
    weak = 0.0 if place.bound and numeral.role in ("from", "range") else _WEAK.get(numeral.role, 0.0)
    score = miss.weight - place.against - 0.7 * place.unclear - weak + 0.8 * place.cell
    for axis in fact.terms:
        choice, metric = len(vocabulary.axes[axis]) > 1, axis == "metric"
        if axis in place.inferred:
            score += 1.0
        elif axis in place.own:
            score += 2.0 if metric else 1.0 if choice else 0.3
        elif axis in place.around:
            score += 1.2 if metric else 0.4 if choice else 0.2
        elif metric and (by_unit or kind not in ("", "share")):
            score += 2.0
        elif choice:
            score -= 0.3 if axis == "split" else 0.7
    if "metric" in place.own and not any(len(terms) > 1 for axis, terms in vocabulary.axes.items() if axis != "metric"):
        score += 1.0  # the metric alone decides
    if not place.own and not place.cell and kind in ("", "share"):
        score -= 1.5  # its sentence names nothing
    if numeral.digits < 2:
        score -= 2.0
    if numeral.ulp >= 1 and not numeral.percent and abs(numeral.value) < 1000 and fact.value != round(fact.value):
        score -= 1.5  # a whole number of something
    return score


def comparable(a: Fact, b: Fact) -> bool:
    """Of one metric, and different on one axis alone."""
    if a.terms.get("metric") != b.terms.get("metric"):
        return False
    apart = a.terms.items() ^ b.terms.items()
    return len(apart) <= 2 and len({axis for axis, _ in apart}) == 1


def _swaps(outcomes: list[Outcome]) -> None:
    """Two numbers that each state what is expected of the other: certain, although each equals another fact."""
    open_ones = [one for one in outcomes if one.meant and one.equals and one.place.against < 2]
    meant = {one.meant.bit: one for one in open_ones if one.meant}
    for outcome in open_ones:
        for partner in [meant[fact.bit] for fact in outcome.equals if fact.bit in meant]:
            if any(outcome.meant and fact.bit == outcome.meant.bit for fact in partner.equals):
                for one in (outcome, partner):
                    if one.meant and not one.place.unclear and (one.place.cell or one.place.bound):
                        one.kind, one.sure, one.why = "drift", "certain", "two values are swapped"
                        one.facts = [one.meant]
