"""Numbers in running text.

A sentence gives its own terms first; what it leaves out comes from the paragraph, then from the line that leads a list,
then from the heading. A clause that speaks of other people's work, or of a model that was changed or not yet finished,
makes its number ambiguous, never a drift.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise, product
from typing import NamedTuple

from rgt.reconcile.agreement import ANCHOR, Mention, agrees, far_off, verdict
from rgt.reconcile.claim_index import DIMENSIONS, Evidence, Hit, Hits, Surroundings, by_dimension, extended
from rgt.reconcile.numerals import Numeral, find_numerals, has_digit
from rgt.reconcile.passages import Passage

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
# from here on it is about something else
_TURN = re.compile(r"[;；]|\b(?:while|whereas|but|our|ours|we)\b|而(?!且)|我们|本文")
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


def sentence_mentions(passage: Passage, evidence: Evidence) -> Iterator[Mention]:
    text = passage.text
    if "<!--" in text:
        text = _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    if not has_digit(text):
        return
    context = Surroundings(evidence, passage.where, (passage.lead, passage.heading))
    ends = {match.end() for match in _SENTENCE.finditer(text)}
    if " – " in text:
        ends.update(match.end() for match in _RECORD.finditer(text))
    for start, end in pairwise(sorted({0, len(text), *ends})):
        if text[start:end].strip():
            yield from _in_sentence(text[start:end], passage.line + text.count("\n", 0, start), context)


def _in_sentence(sentence: str, line: int, context: Surroundings) -> Iterator[Mention]:
    evidence, where = context.evidence, context.where
    anchors = list(ANCHOR.finditer(sentence)) if "<!--" in sentence else []
    bare = ANCHOR.sub(lambda match: " " * len(match[0]), sentence) if anchors else sentence
    hits = evidence.vocabulary.find(bare)
    known = [hit for hit in hits if hit.dimension != "method" or not extended(bare, hit)]
    hits_of = by_dimension(known)
    taken: set[int] = set()
    for anchor in anchors:
        yield _anchored(bare, anchor, line, context, taken)
    if "metric" in hits_of or (  # or it speaks of the one before: "ResNet-50 gets 89.2", "On SVHN it gets 96.1"
        context.only("metric") and ("method" in hits_of or ("dataset" in hits_of and _PRONOUN.search(bare)))
    ):
        found = find_numerals(bare, evidence.units)
        values = [numeral for numeral in found if numeral.start not in taken and not _in_term(numeral.start, hits)]
        # what no claim has a name for may be somebody else's method
        unknown = (not _in_term(name.start(), hits) for name in _NAME.finditer(bare) if "method" not in hits_of)
        strangers = len(known) < len(hits) or any(unknown)
        results = [n for n in values if n.role == "value" and not _AWAY.match(bare, n.end)]
        results = [n for n in results if not _DIFFERENCE.search(bare, 0, n.start)]
        given = {name: assign(hits_of.get(name, []), results) for name in DIMENSIONS}
        for index, numeral in enumerate(results):
            at = line + bare.count("\n", 0, numeral.start)
            own = {name: given[name][index] for name in DIMENSIONS}
            mention = _one(bare, at, numeral, own, hits_of, context, strangers)
            if mention:
                yield mention
                # the spread and the number of runs that one sentence gives beside one value
                if mention.verdict == "ok" and len(results) == len(mention.claims) == 1:
                    claims = mention.claims
                    beside = [n for n in values if n.role == "spread" or (n.role == "n" and "n" in claims[0])]
                    companions = [verdict(at, where, bare, numeral, claims, "likely") for numeral in beside]
                    yield from (each for each in companions if each.verdict != "ok")
    context.nearest |= hits_of  # for the sentences behind it


def _in_term(place: int, hits: list[Hit]) -> bool:
    return any(hit.start <= place < hit.end for hit in hits)


def _anchored(bare: str, anchor: re.Match[str], line: int, context: Surroundings, taken: set[int]) -> Mention:
    """An anchor speaks of the number before it, or, at the start of a sentence, of the one behind it."""
    free = [n for n in find_numerals(bare, context.evidence.units, in_cell=True) if n.start not in taken]
    before = [numeral for numeral in free if numeral.end <= anchor.start()]
    after = [numeral for numeral in free if numeral.start >= anchor.end()]
    where, at = context.where, line + bare.count("\n", 0, anchor.start())
    claim = context.evidence.by_id.get(anchor[1])
    if claim is None:
        return Mention(at, where, anchor[0], "drift", [], "anchored", f"EVIDENCE.json has no claim {anchor[1]}")
    if not before and not after:
        return Mention(at, where, anchor[0], "drift", [claim], "anchored", "no number beside the anchor")
    numeral = before[-1] if before else after[0]
    taken.add(numeral.start)
    return verdict(line + bare.count("\n", 0, numeral.start), where, bare, numeral, [claim], "anchored")


def _one(
    text: str, line: int, numeral: Numeral, own: dict[str, Given], hits_of: Hits, context: Surroundings, strangers: bool
) -> Mention | None:
    evidence, where = context.evidence, context.where
    inherited = False
    chosen: dict[str, str | None] = {}
    for name in DIMENSIONS:
        chosen[name] = own[name].value
        if chosen[name] is None and name in ("metric", *evidence.distinguishes):
            chosen[name] = context.only(name)
            inherited = inherited or chosen[name] is not None
    metric = chosen["metric"]
    if metric is None:
        return None
    sure = "likely" if inherited else "certain"
    claims = evidence.lookup(metric, chosen["method"], chosen["dataset"], chosen["split"])
    mention = verdict(line, where, text, numeral, claims, sure) if claims else None
    if mention and mention.verdict == "ok":
        return mention  # right, whoever's number it is
    foreign = _foreign(text, numeral, hits_of, evidence) or (strangers and own["method"].value is None)
    if foreign:
        claims = evidence.lookup(metric, None, chosen["dataset"], chosen["split"])
        mention = verdict(line, where, text, numeral, claims, sure) if claims else None
    if mention is None or numeral.value < 0 <= min(claim["value"] for claim in claims):
        return None
    if numeral.unit in evidence.measures and not any(claim.get("unit", "").lower() == numeral.unit for claim in claims):
        return None  # milliseconds are no throughput
    if mention.verdict == "ok":
        return mention
    clean = all(own[name].sure for name in DIMENSIONS)
    if not clean:  # which word belongs to which number is not sure: any of the claims that are named will do
        metrics, *others = ([hit.value for hit in hits_of.get(name, [])] for name in DIMENSIONS)
        named: list[list[str | None]] = [[*values] or [None] for values in others]
        keys = set(product(metrics, named[0], named[1], named[2]))
        if any(agrees(claim, numeral) for key in keys for claim in evidence.lookup(*key)):
            return Mention(line, where, mention.reported, "ok", claims, "likely")
    doubt = "it may be somebody else's number" if foreign else _doubt(text, numeral, hits_of)
    times = 4.0 if own["metric"].value else 1.25  # nothing in the sentence says what the number measures
    if doubt or len(claims) > 1 or far_off(claims[0], numeral, times=times):
        mention.verdict = "ambiguous"
        mention.why = doubt or "the text does not say which claim this is"
    return mention


def _doubt(text: str, numeral: Numeral, hits_of: Hits) -> str:
    """Why a number may not be ours although a method of ours is named. Asked only of one that differs."""
    hits = [hit for found in hits_of.values() for hit in found]
    turns = [turn.end() for turn in _TURN.finditer(text) if not any(h.start <= turn.start() < h.end for h in hits)]
    start = max((turn for turn in turns if turn <= numeral.start), default=0)
    end = min((turn for turn in turns if turn >= numeral.end), default=len(text))
    others = (_ELSEWHERE, "it may be somebody else's number")
    for pattern, why in (others, (_OTHER_STATE, "it may be the number of another state of the model")):
        for match in pattern.finditer(text, start, end):
            near = 2 if match[0].startswith("[") else 0  # "ResNet-50 [3] obtains" is our run of a known method
            if not any(hit.start <= match.start() < hit.end + near for hit in hits):
                return why
    return ""


def _foreign(text: str, numeral: Numeral, hits_of: Hits, evidence: Evidence) -> bool:
    """Does the clause of this number speak of other people's work, or of a wish, without naming a method of ours?"""
    cuts = [match.span() for match in _CLAUSE.finditer(text)]
    start = max((first for first, last in cuts if last <= numeral.start), default=0)
    end = min((first for first, _ in cuts if first >= numeral.end), default=len(text))
    if any(start <= hit.start < end for hit in hits_of.get("method", [])):
        return False
    clause = text[start:end]
    if _FOREIGN.search(clause):
        return True
    known = any(hit.value in ("baseline", "baselines") for hit in hits_of.get("method", []))
    return not known and bool(_BASELINE.search(clause)) and "method" not in evidence.distinguishes


# -- which word belongs to which number


class Given(NamedTuple):
    value: str | None
    sure: bool


def assign(hits: list[Hit], numerals: list[Numeral]) -> list[Given]:
    """For one dimension: the term of each number; `sure` is False when the sentence can be read in several ways.

    With T for a term and N for a number:
        TNTN   "A reaches 91, B 89"               each number takes the term before it
        NTNT   "91 for A and 89 for B"            each takes the term behind it
        TTNN   "A and B reach 91 and 89"          in order
    Anything else is the nearest term, and unsure.
    """
    if len({hit.value for hit in hits}) < 2:
        return [Given(hits[0].value if hits else None, True)] * len(numerals)
    terms = [hit for i, hit in enumerate(hits) if i == 0 or hits[i - 1].value != hit.value]  # said twice in a row: one
    order: list[tuple[int, Hit | Numeral]] = sorted(
        [(term.start, term) for term in terms] + [(numeral.start, numeral) for numeral in numerals],
        key=lambda place: (place[0], isinstance(place[1], Hit)),
    )
    shape = "".join("T" if isinstance(each, Hit) else "N" for _, each in order)
    half = len(shape) // 2
    if half > 1 and len(terms) == len(numerals) and shape in ("T" * half + "N" * half, "N" * half + "T" * half):
        return [Given(term.value, True) for term in terms]
    # every term has its numbers on one side: TNNTN, or NTNNT
    behind, ahead = shape.startswith("T") and shape.endswith("N"), shape.startswith("N") and shape.endswith("T")
    if "TT" not in shape and (behind or ahead):
        values: list[str | None] = []
        last = None
        for _, each in order if behind else order[::-1]:
            if isinstance(each, Hit):
                last = each.value
            else:
                values.append(last)
        return [Given(value, True) for value in (values if behind else values[::-1])]

    def distance(hit: Hit, number: Numeral) -> int:
        return number.start - hit.end if hit.end <= number.start else hit.start - number.end

    return [Given(min(terms, key=lambda hit: distance(hit, number)).value, False) for number in numerals]
