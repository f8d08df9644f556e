"""What came of each number: match, drift, derived, cited or unexplained, and the words that decided.

Every explanation is weighed: the facts that equal the number, those that the words around it name, what can be computed
from them, and whoever else is named. It is a drift only when a slip of one named fact is clearly the best of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

from rgt.reconcile.facts import UNITS, Fact
from rgt.reconcile.numerals import Numeral
from rgt.reconcile.readings import (
    Slip,
    agrees,
    changes,
    derived,
    matches,
    mean,
    reading,
    scales,
    slip,
    spread_agrees,
)
from rgt.reconcile.vocabulary import Vocabulary

CERTAIN, LIKELY = 5.4, 3.6  # scores; calibrated on documents of strangers (evals/strangers)
_WEAK = {"from": 1.0, "about": 3.0, "bound": 3.5, "range": 3.5, "spread": 0.5}
_RIVAL = 4.0
_PAIRS = 60  # facts whose pairs are tried for a difference
_AVERAGE = re.compile(r"\b(?:average[sd]?|mean|avg\.?|overall|macro|across)\b|平均|均值|总体", re.I)
_AVERAGED = re.compile(
    r"\b(?:averaged? (?:over|across)|averages|(?:mean|average) .{0,30}(?:over|across|of) (?:all|the|both))"
    r"|数据集的?(?:\w{0,2})平均|取?算术平均|平均而言|均值为",
    re.I,
)
_ONE_RUN = re.compile(r"\b(?:seeds?|runs?|best|worst|max\w*|min\w*|single)\b|种子|单次|最", re.I)
_ERROR = re.compile(r"\berr(?:or)?s?\b|错误率|误差", re.I)

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
    """The numbers of one sentence or table together: what matches helps to explain differences and swaps."""
    outcomes = [_judge(place, vocabulary) for place in places]
    matched = [
        outcome
        for outcome in outcomes
        if outcome.kind == "match" and outcome.facts and outcome.place.numeral.role != "runs"
    ]
    known = [outcome.facts[0] for outcome in matched]
    written = [
        place.numeral for place in places if place.numeral.role not in ("runs", "change", "ratio") and not place.cell
    ]
    for at, place in enumerate(places):
        if place.numeral.role in ("change", "ratio") and outcomes[at].kind == "unexplained":
            near = [numeral for numeral in written if numeral is not place.numeral]
            outcomes[at] = _of_written(place, near) or _change(place, vocabulary, [] if place.cell else known)
    _swaps(outcomes)
    stated = {outcome.facts[0].bit for outcome in matched if outcome.kind == "match" and outcome.meant is None}
    for outcome in outcomes:
        taken = outcome.equals and all(
            fact.bit in stated for fact in outcome.equals
        )  # that one's number stands beside it
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
    fitting = vocabulary.fitting(place.own)
    own = [fact for fact in equal if fact.bit & fitting]
    if own:
        return _matched(place, own, vocabulary)
    explained = _computed(place, vocabulary, fitting)
    return explained or _differs(place, vocabulary, equal)


def _matched(place: Place, own: list[Fact], vocabulary: Vocabulary) -> Outcome:
    if len(own) > 1:
        around = {axis: frozenset([term]) for axis, term in place.around.items()}
        wider = vocabulary.fitting({**around, **place.own})
        own.sort(key=lambda fact: not fact.bit & wider)
    numeral = place.numeral
    if numeral.spread is None or any(agrees(fact, numeral, place.unit) for fact in own):
        fitting = [fact for fact in own if agrees(fact, numeral, place.unit)] or own
        return Outcome(place, "match", fitting)
    fact = own[0]
    scale = reading(fact, numeral, place.unit) or 1.0
    if place.against >= 2 or len(own) > 1 or fact.spread is None or spread_agrees(fact, numeral, scale):
        return Outcome(place, "match", own)
    sure = "certain" if _resolved(place, fact, vocabulary) and not place.unclear and not place.against else "likely"
    return Outcome(place, "drift", [fact], fact.spread * scale, sure, "the spread differs", score=CERTAIN)


def _resolved(place: Place, fact: Fact, vocabulary: Vocabulary) -> bool:
    """Does its own sentence, or row and column, name the fact on every axis where there is a choice?"""
    return all(axis in place.own for axis, terms in vocabulary.axes.items() if len(terms) > 1 and axis in fact.terms)


def _spread(place: Place, vocabulary: Vocabulary) -> Outcome:
    fitting = list(vocabulary.members(_wider(place, vocabulary)))
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
        if right and abs(numeral.value - right) < 3 * right:
            return Outcome(place, "drift", [fact], right, "likely", "the spread differs", score=LIKELY)
    return Outcome(place, "unexplained", known[:4], why="a spread that no value here has")


def _wider(place: Place, vocabulary: Vocabulary) -> int:
    around = {axis: frozenset([term]) for axis, term in place.around.items()}
    return vocabulary.plausible({**around, **place.own})


def _runs(place: Place, vocabulary: Vocabulary) -> Outcome:
    """A number of seeds, against those of the facts it may speak of."""
    said = round(place.numeral.value)
    counts = {fact.n: fact for fact in vocabulary.members(_wider(place, vocabulary)) if fact.n}
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
            if len(groups) == 1 and len(some) != 1:
                sole += groups
                break
    if not place.average and not _AVERAGED.search(place.text, 0, place.numeral.start + 1):
        return None
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


def _change(place: Place, vocabulary: Vocabulary, known: list[Fact]) -> Outcome:
    """A difference, a relative change or a ratio, recomputed."""
    numeral, role = place.numeral, place.numeral.role
    named = {axis: terms for axis, terms in place.named.items() if axis != "split"}
    stated = [(known[0], known[1])] if len(known) == 2 and _comparable(*known) else []
    whole = _from_full(place, vocabulary, named)
    compared = list(_compared(place, vocabulary, named))
    pairs = [(a, b) for a, b, strict in compared if strict]
    loose = [(a, b) for a, b, strict in compared if not strict and not pairs and "metric" in {*named, *place.around}]
    for a, b in [*stated, *whole, *pairs, *loose, *_pairs(known[:8], known[:8])]:
        found = derived([a, b], numeral, role)
        if found:
            if (a, b) in whole and numeral.signed and (a.value - b.value) * numeral.value < 0:
                return Outcome(place, "drift", [a, b], a.value - b.value, "likely", "the sign is wrong", score=LIKELY)
            return Outcome(place, "derived", [a, b], found.value, why=found.how)
    fitting = vocabulary.fitting(place.own)
    equal = [fact for fact in matches(vocabulary, numeral, place.unit) if fact.bit & fitting]
    if equal:
        return Outcome(place, "match", equal)
    sole = stated or whole or (pairs if len(pairs) == 1 else [])
    if numeral.value in (0.0, 1.0):
        return Outcome(place, "unexplained", why="against itself")
    if sole and "metric" in {*named, *place.around} and place.against < 2:
        return _wrong_change(place, sole[0], bool(stated))
    return Outcome(place, "unexplained", why="a change between values that the text does not name both")


def _of_written(place: Place, numerals: list[Numeral]) -> Outcome | None:
    """The change between two numbers of the same sentence; whether those are right is their own question."""
    for first, second in combinations(numerals[:8], 2):
        a, b = Fact("", first.value, {}), Fact("", second.value, {})
        found = derived([a, b], place.numeral, place.numeral.role) if first.unit == second.unit else None
        if found:
            return Outcome(place, "derived", [], found.value, why=found.how)
    return None


def _compared(place: Place, vocabulary: Vocabulary, named: Terms) -> Iterator[tuple[Fact, Fact, bool]]:
    """The pairs a text may compare: alike but for one axis, on which it names both, or one and means its own method.

    False: one is named, and the other may be any; that explains a number but proves none wrong.
    """
    several = any(len(terms) > 1 for axis, terms in named.items() if axis != "metric")
    around = {axis: frozenset([term]) for axis, term in place.around.items()}
    for axis, terms in vocabulary.axes.items():
        if axis in ("metric", "split", "statistic") or len(terms) < 2:
            continue
        some = named.get(axis, frozenset())
        own = {place.ours} - {""}
        others = {name: given for name, given in {**around, **named}.items() if name != axis}
        pool = [
            fact
            for fact in vocabulary.members(vocabulary.plausible({**others, axis: frozenset(terms)}))
            if axis in fact.terms
        ]
        for a, b in _pairs(pool, pool) if len(pool) <= _PAIRS and some else ():
            ends = {a.terms[axis], b.terms.get(axis, "")}
            if len(ends) < 2:
                continue
            strict = ends <= some or (not several and bool(ends & some) and bool((ends - some) & own))
            if strict or ends & some:
                yield a, b, strict


_FULL = frozenset(["full", "full model", "all components", "complete", "complete model", "default", "all"])


def _from_full(place: Place, vocabulary: Vocabulary, named: Terms) -> list[tuple[Fact, Fact]]:
    """ "Without X it drops by 1.2": what is left out, against the whole."""
    left_out = {(axis, term) for axis, terms in named.items() for term in terms if term.startswith("no ")}
    if len(left_out) != 1:
        return []
    ((axis, term),) = left_out
    others = {name: own for name, own in named.items() if name != axis}
    around = {name: frozenset([found]) for name, found in place.around.items() if name != axis}
    parts = list(vocabulary.members(vocabulary.plausible({**around, **others, axis: frozenset([term])})))
    wholes = _FULL | {place.ours}
    return [
        (part, whole) for part in parts[:4] for whole in vocabulary.facts
        if whole.terms.get(axis) in wholes and _comparable(part, whole) and axis in part.terms
    ][:1] if len(parts) == 1 else []  # fmt: skip


def _wrong_change(place: Place, pair: tuple[Fact, Fact], stated: bool) -> Outcome:
    numeral = place.numeral
    possible = [
        each
        for each in changes(*pair)
        if (" / " in each.how and not each.how.startswith("100")) == (numeral.role == "ratio")
    ]
    possible = [each for each in possible if each.value]
    if not possible:
        return Outcome(place, "unexplained")
    best = min(possible, key=lambda each: abs(abs(each.value) - abs(numeral.value)))
    if abs(abs(best.value) - abs(numeral.value)) > 1.5 * abs(best.value):
        return Outcome(place, "unexplained", list(pair), why="no change between the values named is near it")
    sure = "certain" if stated else "likely"
    return Outcome(place, "drift", list(pair), abs(best.value), sure, f"{best.how} = {best.value:.4g}", score=CERTAIN)


def _comparable(a: Fact, b: Fact) -> bool:
    """Of one metric, and different on one axis alone."""
    if a.terms.get("metric") != b.terms.get("metric"):
        return False
    apart = a.terms.items() ^ b.terms.items()
    return len(apart) <= 2 and len({axis for axis, _ in apart}) == 1


def _pairs(first: list[Fact], second: list[Fact]) -> Iterator[tuple[Fact, Fact]]:
    seen = set()
    for a in first[:_PAIRS]:
        for b in second:
            if a.bit != b.bit and (b.bit, a.bit) not in seen and _comparable(a, b):
                seen.add((a.bit, b.bit))
                yield a, b


# -- a number that no fitting fact has


def _differs(place: Place, vocabulary: Vocabulary, equal: list[Fact]) -> Outcome:
    numeral = place.numeral
    # a fact that lacks an axis which the words name, and others of its metric have, is not what they mean
    meant = {axis for axis in place.own if axis != "split"}
    fitting = vocabulary.members(_wider(place, vocabulary))
    candidates = [
        fact for fact in fitting if not meant & vocabulary.axes_of[fact.terms.get("metric", "")] - {*fact.terms}
    ]
    by_unit = "metric" not in {*place.own, *place.around} and len(vocabulary.axes.get("metric", [])) > 1
    kind = UNITS.get(numeral.unit or place.unit, ("",))[0]
    if by_unit:  # nothing names the metric: the unit may tell it
        candidates = [
            fact for fact in candidates if kind not in ("", "share") and UNITS.get(fact.unit, ("",))[0] in (kind, "")
        ]
    misses = [(fact, miss) for fact in candidates[:8] if (miss := slip(fact, numeral, place.unit))]
    if by_unit:
        misses = [(fact, miss) for fact, miss in misses if miss.weight >= 1 and UNITS.get(fact.unit, ("",))[0] == kind]
        candidates = [fact for fact, _ in misses]
    turned = [(fact, miss) for fact, miss in misses if miss.what == "mean and spread are swapped"]
    if len(turned) == 1:  # nothing else could look like that
        misses, candidates = turned, [turned[0][0]]
    values = {fact.value for fact, _ in misses}
    if len(candidates) > 8 or len(values) != 1:
        why = (
            "nothing here says which value this is"
            if values or candidates or not place.own
            else "no value is about this"
        )
        kind = "cited" if place.against >= 3 else "unexplained"
        if equal:
            return Outcome(place, "match" if not place.own else kind, equal[:4], why=why)
        return Outcome(place, kind, [fact for fact, _ in misses], why="; ".join([why, *place.doubts]))
    fact, miss = misses[0]
    rivals = [other for other in equal if other.terms.get("metric") == fact.terms.get("metric")]
    if rivals and miss.weight < 0.8 and any(_comparable(fact, other) for other in rivals):
        miss = miss._replace(weight=0.8)  # however far: it is the neighbour's value
    score = _score(place, fact, miss, vocabulary)
    if not place.cell and any(_mentioned(other, fact, place) for other in rivals):
        score -= _RIVAL  # first of all it is that one's
    kind = "drift" if score >= LIKELY else "cited" if place.against >= 3 else "unexplained"
    if kind != "drift" and equal and place.against < 3:
        why = "another value than the words name"
        return Outcome(place, "match", equal[:4], miss.expected, "", why, rivals, score, fact)
    sure = "certain" if score >= CERTAIN and not rivals else "likely"
    why = "; ".join([miss.what, *place.doubts])
    return Outcome(place, kind, [fact], miss.expected, sure if kind == "drift" else "", why, rivals, score, fact)


def _mentioned(other: Fact, fact: Fact, place: Place) -> bool:
    """Is everything that tells a rival from the expected fact named in the sentence, or known from around it?"""
    apart = [axis for axis, term in other.terms.items() if fact.terms.get(axis) != term]
    return all(
        other.terms[axis] in place.named.get(axis, ()) or other.terms[axis] in (place.around.get(axis), place.ours)
        for axis in apart
    )


def _score(place: Place, fact: Fact, miss: Slip, vocabulary: Vocabulary) -> float:
    numeral = place.numeral
    kind = UNITS.get(numeral.unit or place.unit, ("",))[0]
    weak = 0.0 if place.bound and numeral.role in ("from", "range") else _WEAK.get(numeral.role, 0.0)
    score = miss.weight - place.against - 1.5 * place.unclear - weak + 0.8 * place.cell
    for axis in fact.terms:
        choice, metric = len(vocabulary.axes[axis]) > 1, axis == "metric"
        if axis in place.inferred:
            score += 1.0
        elif axis in place.own:
            score += 2.0 if metric else 1.0 if choice else 0.3
        elif axis in place.around:
            score += 1.2 if metric else 0.4 if choice else 0.2
        elif metric and kind not in ("", "share"):
            score += 1.2
        elif choice:
            score -= 0.3 if axis == "split" else 1.0
    if "metric" in place.own and not any(len(terms) > 1 for axis, terms in vocabulary.axes.items() if axis != "metric"):
        score += 1.0  # the metric alone decides
    if numeral.digits < 2:
        score -= 2.0
    if numeral.ulp >= 1 and not numeral.percent and abs(numeral.value) < 1000 and fact.value != round(fact.value):
        score -= 1.5  # a whole number of something
    return score


def _swaps(outcomes: list[Outcome]) -> None:
    """Two numbers that each state what is expected of the other: certain, although each equals another fact."""
    open_ones = [one for one in outcomes if one.meant and one.equals and one.place.against < 2]
    meant = {one.meant.bit: one for one in open_ones if one.meant}
    for outcome in open_ones:
        for partner in [meant[fact.bit] for fact in outcome.equals if fact.bit in meant]:
            if any(outcome.meant and fact.bit == outcome.meant.bit for fact in partner.equals):
                for one in (outcome, partner):
                    if one.meant and not one.place.unclear and (one.place.cell or one.place.bound):
                        one.kind, one.sure, one.why, one.facts = (
                            "drift",
                            "certain",
                            "two values are swapped",
                            [one.meant],
                        )
