"""Numbers in running text.

A sentence gives its own terms first; what it leaves out comes from the paragraph, then from the line that leads a list,
then from the heading. Most sentences agree with the claims and are done at the first look. Where a number differs, the
sentence is read again, closer: with the names that no claim has, and with the doubts about whose number it is. A number
in doubt is ambiguous, never a drift.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import NamedTuple

from mentions import differences, doubts, judge, numerals, splitting, strangers, terms
from mentions.align import Given, assign
from mentions.evidence import Claim, Evidence
from mentions.numerals import Numeral
from mentions.passages import Passage
from mentions.verdict import ANCHOR, Mention, check_direction, direction_said, verdict

_CLAUSE = re.compile(r"[,;，；、()（）]|\b(?:while|whereas|but|versus|vs\.?|compared (?:to|with)|than|against)\b")
_COMMENT = re.compile(r"<!--(?!\s*claim:).*?-->", re.S)
# other people's work, or a wish, where no method of ours is named
_FOREIGN = re.compile(
    r"\[cite\]|\[\s?\d+(?:\s?[,–-]\s?\d+)*\s?\]|\bet al\b"
    r"|\b(?:prior|previous(?:ly)?|earlier|existing|competing|published|literature|state[- ]of[- ]the[- ]art|sota"
    r"|others?|their|human|chance|random guess(?:ing)?|official|original paper|in contrast|reported (?:by|in)|target"
    r"|goal|aim|expected|hoped|budget|would|should|upper bound|lower bound|oracle)\b"
    r"|文献|前人|此前|以往|他人|目标|预期|已有",
    re.I,
)
_PRONOUN = re.compile(r"\b(?:it|its)\b|它|其(?![中他余次])", re.I)
_REFERS = re.compile(
    r"\b(?:it|its|it's|itself|this|that|the (?:same|latter|former)"
    r"|the (?:\w+ )?(?:model|method|network|system|approach|variant|one))\b"
    r"|它|其(?![中他余次])|该(?:方法|模型|网络)|此(?:方法|模型)|同一",
    re.I,
)
# "we obtain 91.2" is ours, "with a linear probe we obtain 91.2" may not be
_WE = re.compile(
    r"\bwe (?:\w+ ){0,2}?(?:obtain|get|got|reach|achiev|measur|observ|attain|scor|record|have)"
    r"|(?:我们|本文)(?:在|取得|得到|达到|获得|测得)",
    re.I,
)
_WITH_A = re.compile(r"\b(?:with|using|via|from|by) (?:a|an|the)\b", re.I)
_BASELINE = re.compile(r"\bbaselines?\b|基线", re.I)
_COUNT_BELOW = 1000  # a bare whole number under it may count anything


def find(passage: Passage, evidence: Evidence) -> Iterator[Mention]:
    text = (
        _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), passage.text)
        if "<!--" in passage.text
        else passage.text
    )
    if not numerals.has_digit(text) or splitting.is_drawn(text):
        return
    context = _Context(passage, evidence)
    for start, end in splitting.sentences(text):
        yield from _in_sentence(text[start:end], passage.line + text.count("\n", 0, start), context)


@dataclass
class _Context:
    """What earlier sentences of the paragraph, and the heading, have named."""

    passage: Passage
    evidence: Evidence
    named: dict[str, set[str]] = field(default_factory=dict)

    @functools.cached_property
    def around(self) -> list[dict[str, list[terms.Hit]]]:
        texts = (self.passage.lead, self.passage.title, self.passage.heading)
        return [terms.by_dimension(self.evidence.vocabulary.find(text)) for text in texts if text]

    def learn(self, hits: dict[str, list[terms.Hit]]) -> None:
        for dimension, found in hits.items():
            self.named[dimension] = {hit.value for hit in found}

    def only(self, dimension: str) -> str | None:
        """The one term that was named last, if it was one."""
        values = self.named.get(dimension) or next(
            ({hit.value for hit in level[dimension]} for level in self.around if dimension in level), set()
        )
        return next(iter(values)) if len(values) == 1 else None


@dataclass
class _Sentence:
    """One sentence, with the terms that were found in it."""

    text: str
    line: int
    hits: list[terms.Hit]
    context: _Context
    known: list[terms.Hit] = field(init=False)  # without methods that are more than their name: "Ours + CutMix"
    by_dimension: dict[str, list[terms.Hit]] = field(init=False)

    def __post_init__(self) -> None:
        hits = self.hits
        self.known = [hit for hit in hits if hit.dimension != "method" or not terms.extended(self.text, hit, hits)]
        self.by_dimension = terms.by_dimension(self.known)

    @property
    def strange(self) -> bool:
        """Does it name a method that no claim has?"""
        if len(self.known) < len(self.hits):
            return True
        return "method" not in self.by_dimension and strangers.another_method(self.text, self.hits)

    def closer(self) -> _Sentence:
        return _Sentence(self.text, self.line, strangers.beside(self.text, self.hits), self.context)

    def line_of(self, numeral: Numeral) -> int:
        return self.line + self.text.count("\n", 0, numeral.start)


def _in_sentence(text: str, line: int, context: _Context) -> Iterator[Mention]:
    evidence = context.evidence
    anchors = list(ANCHOR.finditer(text)) if "<!--" in text else []
    bare = ANCHOR.sub(lambda match: " " * len(match[0]), text) if anchors else text
    sentence = _Sentence(bare, line, evidence.vocabulary.find(bare), context)
    taken: set[int] = set()
    for anchor in anchors:
        mention = _anchored(text, bare, anchor, line, context, taken)
        if mention:
            yield mention
    if "metric" in sentence.by_dimension or (context.only("metric") and _goes_on(sentence)):
        found = numerals.find(bare, evidence.units)
        values = [numeral for numeral in found if numeral.start not in taken and not _in_term(numeral, sentence.hits)]
        if values:
            mentions = _agreeing(sentence, values)
            if mentions is None:
                sentence = sentence.closer()
                values = [numeral for numeral in values if not _in_term(numeral, sentence.hits)]
                mentions = list(_unanchored(sentence, values, close=True))
            yield from mentions
    context.learn(sentence.by_dimension)


def _agreeing(sentence: _Sentence, values: list[Numeral]) -> list[Mention] | None:
    """What the first look gives, if all of it agrees with the claims."""
    mentions = []
    for mention in _unanchored(sentence, values, close=False):
        if mention.verdict != "ok":
            return None
        mentions.append(mention)
    return mentions


def _in_term(numeral: Numeral, hits: list[terms.Hit]) -> bool:
    return any(hit.start <= numeral.start < hit.end for hit in hits)


def _goes_on(sentence: _Sentence) -> bool:
    """Does a sentence without a metric speak of the one before: "ResNet-50 gets 89.2", "On SVHN it gets 96.1"?"""
    if "method" in sentence.by_dimension:
        return True
    refers = _PRONOUN.search(sentence.text) is not None or splitting.is_field(sentence.text)
    return "dataset" in sentence.by_dimension and refers


def _anchored(
    sentence: str, bare: str, anchor: re.Match[str], line: int, context: _Context, taken: set[int]
) -> Mention | None:
    """An anchor speaks of the number before it, or, at the start of a sentence, of the one behind it."""
    found = numerals.find(bare, context.evidence.units, in_cell=True)
    before = [numeral for numeral in found if numeral.end <= anchor.start() and numeral.start not in taken]
    after = [numeral for numeral in found if numeral.start >= anchor.end() and numeral.start not in taken]
    numeral = before[-1] if before else after[0] if after else None
    where, at = context.passage.where, line + sentence.count("\n", 0, anchor.start())
    claim = context.evidence.by_id.get(anchor[1])
    if claim is None:
        return Mention(at, where, anchor[0], "drift", [], "anchored", f"EVIDENCE.json has no claim {anchor[1]}")
    if numeral is None:
        return Mention(at, where, anchor[0], "drift", [claim], "anchored", "no number beside the anchor")
    taken.add(numeral.start)
    at = line + sentence.count("\n", 0, numeral.start)
    return verdict(at, where, bare, numeral, [claim], "anchored")


def _unanchored(sentence: _Sentence, values: list[Numeral], close: bool) -> Iterator[Mention]:
    """At the first look only agreement counts; what does not agree there is looked at closer."""
    results = [numeral for numeral in values if numeral.role == "value"]
    if close:
        bare = differences.without_names(sentence.text, sentence.known)
        results = [numeral for numeral in results if not differences.states(bare, numeral)]
    given = {name: assign(sentence.by_dimension.get(name, []), results, sentence.text) for name in terms.DIMENSIONS}
    for index, numeral in enumerate(results):
        own = {name: given[name][index] for name in terms.DIMENSIONS}
        mention = _one(sentence, numeral, own, close)
        if mention:
            yield mention
            if mention.verdict == "ok" and len(results) == 1:
                yield from _companions(sentence, values, mention)
    direction = direction_said(sentence.text, sentence.by_dimension)
    if direction:
        yield from check_direction(direction, sentence.line, sentence.context.passage.where, sentence.context.evidence)


class _Read(NamedTuple):
    """What a sentence says of one number."""

    metric: str
    method: str | None
    dataset: str | None
    split: str | None
    inherited: bool  # part of it comes from the text around
    nameless: bool  # the method is a guess


def _one(sentence: _Sentence, numeral: Numeral, own: dict[str, Given], close: bool) -> Mention | None:
    read = _read(sentence, own)
    if read is None:
        return None
    evidence = sentence.context.evidence
    mention = _verdict(sentence, numeral, evidence.lookup(*read[:4]), read.inherited)
    if not close or (mention and mention.verdict == "ok"):
        return mention  # right, whoever's number it is
    foreign = _foreign(sentence, numeral) or (sentence.strange and own["method"].value is None)
    if foreign:
        claims = evidence.lookup(read.metric, None, read.dataset, read.split)
        mention = _verdict(sentence, numeral, claims, read.inherited)
    if mention is None or _cannot_be(mention.claims, numeral, evidence):
        return None
    if mention.verdict == "ok":
        return mention
    clean = all(own[name].sure for name in terms.DIMENSIONS)
    if not clean and any(judge.agrees(claim, numeral) for claim in _all_named(sentence)):
        return replace(mention, verdict="ok", sure="likely", why="", authoritative=None)
    doubt = "it may be somebody else's number" if foreign else _doubt(sentence, numeral, mention.claims[0], read)
    times = _plausible(mention.claims[0], own["metric"].value is not None)
    if doubt or len(mention.claims) > 1 or judge.far_off(mention.claims[0], numeral, times=times):
        mention.verdict = "ambiguous"
        mention.why = doubt or "the text does not say which claim this is"
    return mention


def _read(sentence: _Sentence, own: dict[str, Given]) -> _Read | None:
    context = sentence.context
    chosen = {name: own[name].value for name in terms.DIMENSIONS}
    inherited = nameless = False
    for name in ("metric", *context.evidence.distinguishes):
        if chosen[name] is not None:
            continue
        if name == "method":
            chosen[name], nameless = _whose(sentence)
        else:
            chosen[name] = context.only(name)
        inherited = inherited or chosen[name] is not None
    metric = chosen["metric"]
    if metric is None:
        return None
    return _Read(metric, chosen["method"], chosen["dataset"], chosen["split"], inherited, nameless)


def _whose(sentence: _Sentence) -> tuple[str | None, bool]:
    """The method of a sentence that names none, and whether that is a mere guess."""
    context, text = sentence.context, sentence.text
    before = context.only("method")
    if before and (not context.named.get("method") or _REFERS.search(text) or splitting.is_field(text)):
        return before, False
    if before is None and "ours" in context.evidence.methods and _WE.search(text) and not _WITH_A.search(text):
        return "ours", False
    return before, True


def _verdict(sentence: _Sentence, numeral: Numeral, claims: list[Claim], inherited: bool) -> Mention | None:
    if not claims:
        return None
    sure = "likely" if inherited else "certain"
    return verdict(sentence.line_of(numeral), sentence.context.passage.where, sentence.text, numeral, claims, sure)


def _cannot_be(claims: list[Claim], numeral: Numeral, evidence: Evidence) -> bool:
    """A sign or a unit that no such claim has: milliseconds are no throughput."""
    if numeral.value < 0 <= min(claim["value"] for claim in claims):
        return True
    return numeral.unit in evidence.measures and all(claim.get("unit", "").lower() != numeral.unit for claim in claims)


def _doubt(sentence: _Sentence, numeral: Numeral, claim: Claim, read: _Read) -> str:
    """Why a number may not be ours although a method of ours is named."""
    doubt = doubts.of_number(sentence.text, numeral, sentence.by_dimension, claim.get("split"))
    if doubt:
        return doubt
    if numeral.percent and not judge.in_percent(claim):
        return "nobody writes this metric in percent"
    if read.nameless:
        return "it names no method"
    counts = numeral.whole and numeral.value < _COUNT_BELOW and numeral.unit not in sentence.context.evidence.units
    return "a bare whole number may count something" if counts else ""


def _plausible(claim: Claim, metric_named: bool) -> float:
    """How many times as large as the claim a number may be. A share has little room; an unnamed metric, none."""
    if not metric_named:
        return 1.25
    return 1.7 if judge.in_percent(claim) else 2.5


def _all_named(sentence: _Sentence) -> list[Claim]:
    metrics, *others = ([hit.value for hit in sentence.by_dimension.get(name, [])] for name in terms.DIMENSIONS)
    rest: list[list[str | None]] = [[*named] or [None] for named in others]
    keys = {(metric, *key) for metric in metrics for key in product(rest[0], rest[1], rest[2])}
    return [claim for key in keys for claim in sentence.context.evidence.lookup(*key)]


def _foreign(sentence: _Sentence, numeral: Numeral) -> bool:
    """Does the clause of this number speak of other people's work, or of a wish, without naming a method of ours?"""
    start, end = _clause(sentence.text, numeral)
    methods = sentence.by_dimension.get("method", [])
    if any(start <= hit.start < end for hit in methods):
        return False
    clause = sentence.text[start:end]
    if _FOREIGN.search(clause):
        return True
    known = any(hit.value in ("baseline", "baselines") for hit in methods)
    return not known and bool(_BASELINE.search(clause)) and "method" not in sentence.context.evidence.distinguishes


def _clause(text: str, numeral: Numeral) -> tuple[int, int]:
    cuts = [match.span() for match in _CLAUSE.finditer(text)]
    start = max((first for first, last in cuts if last <= numeral.start), default=0)
    end = min((first for first, _ in cuts if first >= numeral.end), default=len(text))
    return start, end


def _companions(sentence: _Sentence, values: list[Numeral], mention: Mention) -> Iterator[Mention]:
    """The spread and the number of runs that one sentence gives beside one value."""
    if len(mention.claims) != 1:
        return
    for numeral in values:
        if numeral.role == "spread" or (numeral.role == "n" and "n" in mention.claims[0]):
            said = verdict(
                mention.line, sentence.context.passage.where, sentence.text, numeral, mention.claims, "likely"
            )
            if said.verdict != "ok":
                yield said
