"""Numbers in running text.

A sentence gives its own terms first; what it leaves out comes from the paragraph, then from the line that leads a list,
then from the heading. A clause that speaks of other people's work, or of a model that was changed or not yet finished,
makes its number ambiguous, never a drift.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise, product

from mentions import judge, numerals, terms
from mentions.align import Given, assign
from mentions.evidence import Claim, Evidence
from mentions.numerals import Numeral
from mentions.passages import Passage
from mentions.verdict import ANCHOR, Mention, check_direction, direction_said, verdict

_SENTENCE = re.compile(
    r"(?<=[。！？；])|(?<=[.!?;])(?<!\bvs\.)(?<!\bacc\.)(?<!\bal\.)(?<!\bresp\.)(?<!\bapprox\.)(?=\s+(?:[^a-z\s]|[a-z]+-?[A-Z\d])|\s*\n\s*\n|\s*$)|\n(?=\s*(?:[-*+•]|\d+[.)])\s)"
)
_CLAUSE = re.compile(r"[,;，；、()（）]|\b(?:while|whereas|but|versus|vs\.?|compared (?:to|with)|than|against)\b")
_COMMENT = re.compile(r"<!--(?!\s*claim:).*?-->", re.S)
# other people's work, or a wish
_FOREIGN = re.compile(
    r"\[cite\]|\[\s?\d+(?:\s?[,–-]\s?\d+)*\s?\]|\bet al\b"
    r"|\b(?:prior|previous(?:ly)?|earlier|existing|competing|published|literature|state[- ]of[- ]the[- ]art|sota"
    r"|others?|their|human|chance|random guess(?:ing)?|official|original paper|in contrast|reported (?:by|in)|target"
    r"|goal|aim|expected|hoped|budget|would|should|upper bound|lower bound|oracle)\b"
    r"|文献|前人|此前|以往|他人|目标|预期|已有",
    re.I,
)
# the same even where a method of ours is named: somebody else ran it
_CITED = r"(?:\[cite\]|\[\s?\d+(?:\s?[,–-]\s?\d+)*\s?\]|\bet al\.?,?(?:\s?\(\d{4}\w?\))?)"
_ELSEWHERE = re.compile(
    rf"{_CITED}\s(?:also\s)?(?:report|list|obtain|claim|state|publish|give|quote|find|found|measure)\w*"
    r"|\b(?:prior|previous|earlier|related|existing) (?:work|studies|results|papers?)\b"
    r"|\boriginal (?:paper|publication|work)\b"
    r"|\b(?:published|literature|leaderboard|model card|no longer comparable|outdated|obsolete)\b"
    r"|\breported (?:by|in)\b|\b(?:according to|as per) (?:its|their|the)\b|文献|前人|原论文|原文",
    re.I,
)
# a model in another state than the one a claim is about
_OTHER_STATE = re.compile(
    r"\bat (?:epoch|step|iteration|initiali[sz]ation)\b"
    r"|\b(?:intermediate|preliminary|already|so far|would|hope|hoped)\b"
    r"|\bafter (?:just|only)\b|\b(?:quanti[sz]|prun|compress|distill)\w*|\bINT[48]\b|中间|初步|量化|剪枝|蒸馏",
    re.I,
)
_TURN = re.compile(
    r"[;；]|\b(?:while|whereas|but|our|ours|we)\b|而(?!且)|我们|本文"
)  # from here on it is about something else
# a difference or a wish: the number behind it states no result
_DIFFERENCE = re.compile(
    r"\b(?:gap|difference|margin|distance)\b[^;]*\b(?:is|was|of|to)\s?(?:about |only )?$"
    r"|\b(?:differs?|differed|apart)\b[^.;,]*\bby\s?$"
    r"|\b(?:target|goal|budget|requirement)\b[^.;,\n]*\b(?:is|was|of|at|to)\s?(?:about )?$",
    re.I,
)
_RECORD = re.compile(r"^[^\n]{1,80}? – [^\n]{1,80} – [^\n]{1,80}\n", re.M)  # "Ours – SVHN – 0.96 F1": a line of its own
_AWAY = re.compile(r"\s?(?:[\w@.-]+\s){0,3}?(?:above|below|ahead of|behind|apart)\b")
_NAME = re.compile(r"\b[A-Z][A-Za-z]*(?:[a-z][A-Z]|-?\d)[\w-]*")  # WideNet-28, GPT4: a name, not a word
_PRONOUN = re.compile(r"\b(?:it|its)\b|它|其(?![中他余次])", re.I)
_BASELINE = re.compile(r"\bbaselines?\b|基线", re.I)


def find(passage: Passage, evidence: Evidence) -> Iterator[Mention]:
    text = (
        _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), passage.text)
        if "<!--" in passage.text
        else passage.text
    )
    if not numerals.has_digit(text):
        return
    context = _Context(passage, evidence)
    for start, end in _sentences(text):
        yield from _in_sentence(text[start:end], passage.line + text.count("\n", 0, start), context)


def _sentences(text: str) -> list[tuple[int, int]]:
    ends = {match.end() for match in _SENTENCE.finditer(text)}
    if " – " in text:
        ends.update(match.end() for match in _RECORD.finditer(text))
    cuts = sorted({0, len(text), *ends})
    return [(start, end) for start, end in pairwise(cuts) if text[start:end].strip()]


@dataclass
class _Context:
    """What earlier sentences of the paragraph, and the heading, have named."""

    passage: Passage
    evidence: Evidence
    named: dict[str, set[str]] = field(default_factory=dict)

    @functools.cached_property
    def around(self) -> list[dict[str, list[terms.Hit]]]:
        texts = (self.passage.lead, self.passage.heading)
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


def _in_sentence(sentence: str, line: int, context: _Context) -> Iterator[Mention]:
    evidence = context.evidence
    anchors = list(ANCHOR.finditer(sentence)) if "<!--" in sentence else []
    bare = ANCHOR.sub(lambda match: " " * len(match[0]), sentence) if anchors else sentence
    hits = evidence.vocabulary.find(bare)
    known = [hit for hit in hits if hit.dimension != "method" or not terms.extended(bare, hit)]
    by_dimension = terms.by_dimension(known)
    taken: set[int] = set()
    for anchor in anchors:
        mention = _anchored(sentence, bare, anchor, line, context, taken)
        if mention:
            yield mention
    if "metric" in by_dimension or (context.only("metric") and _goes_on(bare, by_dimension)):
        found = numerals.find(bare, evidence.units)
        values = [numeral for numeral in found if numeral.start not in taken and not _in_term(numeral, hits)]
        strangers = len(known) < len(hits) or ("method" not in by_dimension and _unknown_name(bare, hits))
        if values:
            yield from _unanchored(bare, line, values, by_dimension, context, strangers)
    context.learn(by_dimension)


def _unknown_name(text: str, hits: list[terms.Hit]) -> bool:
    """Does a sentence without a method of ours name something that no claim has? It may be somebody else's method."""
    return any(not any(hit.start <= name.start() < hit.end for hit in hits) for name in _NAME.finditer(text))


def _in_term(numeral: Numeral, hits: list[terms.Hit]) -> bool:
    return any(hit.start <= numeral.start < hit.end for hit in hits)


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


def _unanchored(
    text: str,
    line: int,
    values: list[Numeral],
    by_dimension: dict[str, list[terms.Hit]],
    context: _Context,
    strangers: bool,
) -> Iterator[Mention]:
    results = [numeral for numeral in values if numeral.role == "value" and not _is_difference(text, numeral)]
    given = {name: assign(by_dimension.get(name, []), results) for name in terms.DIMENSIONS}
    direction = direction_said(text, by_dimension)
    for index, numeral in enumerate(results):
        own = {name: given[name][index] for name in terms.DIMENSIONS}
        at = line + text.count("\n", 0, numeral.start)
        mention = _one(text, at, numeral, own, by_dimension, context, strangers)
        if mention:
            yield mention
            if mention.verdict == "ok" and len(results) == 1:
                yield from _companions(text, at, values, mention, context)
    if direction:
        yield from check_direction(direction, line, context.passage.where, context.evidence)


def _goes_on(text: str, by_dimension: dict[str, list[terms.Hit]]) -> bool:
    """Does a sentence without a metric speak of the one before: "ResNet-50 gets 89.2", "On SVHN it gets 96.1"?"""
    return "method" in by_dimension or ("dataset" in by_dimension and bool(_PRONOUN.search(text)))


def _is_difference(text: str, numeral: Numeral) -> bool:
    return bool(_AWAY.match(text, numeral.end)) or bool(_DIFFERENCE.search(text, 0, numeral.start))


def _one(
    text: str,
    line: int,
    numeral: Numeral,
    own: dict[str, Given],
    by_dimension: dict[str, list[terms.Hit]],
    context: _Context,
    strangers: bool,
) -> Mention | None:
    evidence = context.evidence
    inherited = False
    chosen: dict[str, str | None] = {}
    for name in terms.DIMENSIONS:
        chosen[name] = own[name].value
        if chosen[name] is None and name in ("metric", *evidence.distinguishes):
            chosen[name] = context.only(name)
            inherited = inherited or chosen[name] is not None
    metric = chosen["metric"]
    if metric is None:
        return None
    sure = "likely" if inherited else "certain"
    where = context.passage.where
    claims = evidence.lookup(metric, chosen["method"], chosen["dataset"], chosen["split"])
    mention = verdict(line, where, text, numeral, claims, sure) if claims else None
    if mention and mention.verdict == "ok":
        return mention  # right, whoever's number it is
    foreign = _foreign(text, numeral, by_dimension, evidence) or (strangers and own["method"].value is None)
    if foreign:
        claims = evidence.lookup(metric, None, chosen["dataset"], chosen["split"])
        mention = verdict(line, where, text, numeral, claims, sure) if claims else None
    if mention is None or numeral.value < 0 <= min(claim["value"] for claim in claims):
        return None
    if numeral.unit in evidence.measures and not any(claim.get("unit", "").lower() == numeral.unit for claim in claims):
        return None  # milliseconds are no throughput
    if mention.verdict == "ok":
        return mention
    clean = all(own[name].sure for name in terms.DIMENSIONS)
    if not clean and any(judge.agrees(claim, numeral) for claim in _all_named(by_dimension, evidence)):
        return Mention(line, where, mention.reported, "ok", claims, "likely")
    doubt = "it may be somebody else's number" if foreign else _doubt(text, numeral, by_dimension)
    times = 4.0 if own["metric"].value else 1.25  # nothing in the sentence says what the number measures
    if doubt or len(claims) > 1 or judge.far_off(claims[0], numeral, times=times):
        mention.verdict = "ambiguous"
        mention.why = doubt or "the text does not say which claim this is"
    return mention


def _doubt(text: str, numeral: Numeral, by_dimension: dict[str, list[terms.Hit]]) -> str:
    """Why a number may not be ours although a method of ours is named. Asked only of one that differs."""
    hits = [hit for found in by_dimension.values() for hit in found]
    turns = [turn.end() for turn in _TURN.finditer(text) if not any(h.start <= turn.start() < h.end for h in hits)]
    start = max((turn for turn in turns if turn <= numeral.start), default=0)
    end = min((turn for turn in turns if turn >= numeral.end), default=len(text))
    for pattern, why in (
        (_ELSEWHERE, "it may be somebody else's number"),
        (_OTHER_STATE, "it may be the number of another state of the model"),
    ):
        for match in pattern.finditer(text, start, end):
            near = 2 if match[0].startswith("[") else 0  # "ResNet-50 [3] obtains" is our run of a known method
            if not any(hit.start <= match.start() < hit.end + near for hit in hits):
                return why
    return ""


def _all_named(by_dimension: dict[str, list[terms.Hit]], evidence: Evidence) -> list[Claim]:
    metrics, *others = ([hit.value for hit in by_dimension.get(name, [])] for name in terms.DIMENSIONS)
    rest: list[list[str | None]] = [[*named] or [None] for named in others]
    keys = {(metric, *key) for metric in metrics for key in product(rest[0], rest[1], rest[2])}
    return [claim for key in keys for claim in evidence.lookup(*key)]


def _foreign(text: str, numeral: Numeral, by_dimension: dict[str, list[terms.Hit]], evidence: Evidence) -> bool:
    """Does the clause of this number speak of other people's work, or of a wish, without naming a method of ours?"""
    start, end = _clause(text, numeral)
    if any(start <= hit.start < end for hit in by_dimension.get("method", [])):
        return False
    clause = text[start:end]
    if _FOREIGN.search(clause):
        return True
    known = any(hit.value in ("baseline", "baselines") for hit in by_dimension.get("method", []))
    return not known and bool(_BASELINE.search(clause)) and "method" not in evidence.distinguishes


def _clause(text: str, numeral: Numeral) -> tuple[int, int]:
    cuts = [match.span() for match in _CLAUSE.finditer(text)]
    start = max((first for first, last in cuts if last <= numeral.start), default=0)
    end = min((first for first, _ in cuts if first >= numeral.end), default=len(text))
    return start, end


def _companions(text: str, line: int, values: list[Numeral], mention: Mention, context: _Context) -> Iterator[Mention]:
    """The spread and the number of runs that one sentence gives beside one value."""
    if len(mention.claims) != 1:
        return
    for numeral in values:
        if numeral.role == "spread" or (numeral.role == "n" and "n" in mention.claims[0]):
            said = verdict(line, context.passage.where, text, numeral, mention.claims, "likely")
            if said.verdict != "ok":
                yield said
