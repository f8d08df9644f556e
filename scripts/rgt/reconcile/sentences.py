"""Numbers in running text.

A sentence gives its own terms first; what it leaves out comes from the paragraph, then from the line that leads a list,
then from the heading. A clause that speaks of other people's work, or of a model that was changed or not yet finished,
makes its number ambiguous, never a drift.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise, product

from rgt.reconcile.agreement import ANCHOR, Mention, agrees, anchored, far_off, verdict
from rgt.reconcile.claim_index import DIMENSIONS, Evidence, Hit, Hits, Surroundings, by_dimension, extended
from rgt.reconcile.numerals import Numeral, find_numerals, has_digit
from rgt.reconcile.passages import Passage

_SENTENCE = re.compile(
    r"(?<=[。！？；])|(?<=[.!?;])(?<!\bvs\.)(?<!\bacc\.)(?<!\bal\.)(?<!\bresp\.)(?<!\bapprox\.)(?=\s+(?:[^a-z\s]|[a-z]+-?[A-Z\d])|\s*\n\s*\n|\s*$)|\n(?=\s*(?:[-*+•]|\d+[.)])\s)"
)
_COMMENT = re.compile(r"<!--(?!\s*claim:).*?-->", re.S)
# other people's work, a wish, or a model in another state than the one a claim is about
_DOUBT = re.compile(
    r"\[cite\]|\[\s?\d+(?:\s?[,–-]\s?\d+)*\s?\]|\bet al\b|\bbaselines?\b"
    r"|\b(?:prior|previous(?:ly)?|earlier|existing|competing|published|literature|state[- ]of[- ]the[- ]art|sota"
    r"|others?|their|human|chance|random guess(?:ing)?|official|original (?:paper|publication|work)|in contrast"
    r"|reported (?:by|in)|according to|leaderboard|model card|outdated|obsolete|target|goal|aim|expected|hoped?|budget"
    r"|would|should|upper bound|lower bound|oracle)\b"
    r"|\bat (?:epoch|step|iteration|initiali[sz]ation)\b|\b(?:intermediate|preliminary|already|so far)\b"
    r"|\bafter (?:just|only)\b|\b(?:quanti[sz]|prun|compress|distill)\w*|\bINT[48]\b"
    r"|文献|前人|此前|以往|他人|原论文|原文|目标|预期|已有|基线|中间|初步|量化|剪枝|蒸馏",
    re.I,
)
# from here on it is about something else
_TURN = re.compile(
    r"[;；]|\b(?:while|whereas|but|our|ours|we|versus|vs\.?|compared (?:to|with)|than|against)\b|而(?!且)|我们|本文"
)
# a difference or a wish: the number behind it states no result
_DIFFERENCE = re.compile(
    r"\b(?:gap|difference|margin|distance)\b[^;]*\b(?:is|was|of|to)\s?(?:about |only )?$"
    r"|\b(?:differs?|differed|apart)\b[^.;,]*\bby\s?$"
    r"|\b(?:target|goal|budget|requirement)\b[^.;,\n]*\b(?:is|was|of|at|to)\s?(?:about )?$",
    re.I,
)
_AWAY = re.compile(r"\s?(?:[\w@.-]+\s){0,3}?(?:above|below|ahead of|behind|apart)\b")
_NAME = re.compile(r"\b[A-Z][A-Za-z]*(?:[a-z][A-Z]|-?\d)[\w-]*")  # WideNet-28, GPT4: a name, not a word
_PRONOUN = re.compile(r"\b(?:it|its)\b|它|其(?![中他余次])", re.I)


def sentence_mentions(passage: Passage, evidence: Evidence) -> Iterator[Mention]:
    text = passage.text
    if "<!--" in text:
        text = _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    if not has_digit(text):
        return
    context = Surroundings(evidence, passage.where, (passage.lead, passage.heading))
    ends = {match.end() for match in _SENTENCE.finditer(text)}
    for start, end in pairwise(sorted({0, len(text), *ends})):
        if text[start:end].strip():
            yield from _in_sentence(text[start:end], passage.line + text.count("\n", 0, start), context)


def _in_sentence(sentence: str, line: int, context: Surroundings) -> Iterator[Mention]:
    evidence = context.evidence
    anchors = list(ANCHOR.finditer(sentence)) if "<!--" in sentence else []
    bare = ANCHOR.sub(lambda match: " " * len(match[0]), sentence) if anchors else sentence
    hits = evidence.find(bare)
    known = [hit for hit in hits if hit.dimension != "method" or not extended(bare, hit)]
    hits_of = by_dimension(known)
    taken: set[int] = set()
    for anchor in anchors:
        yield anchored(bare, anchor, line, context, taken)
    if "metric" in hits_of or (  # or it speaks of the one before: "ResNet-50 gets 89.2", "On SVHN it gets 96.1"
        context.only("metric") and ("method" in hits_of or ("dataset" in hits_of and _PRONOUN.search(bare)))
    ):
        found = find_numerals(bare, evidence.units)
        values = [numeral for numeral in found if numeral.start not in taken and not _in_term(numeral.start, hits)]
        # what no claim has a name for may be somebody else's method
        unknown = (not _in_term(name.start(), hits) for name in _NAME.finditer(bare) if "method" not in hits_of)
        strangers = len(known) < len(hits) or any(unknown)
        results = [n for n in values if not _AWAY.match(bare, n.end)]
        results = [n for n in results if not _DIFFERENCE.search(bare, 0, n.start)]
        given = {name: assign(hits_of.get(name, []), results) for name in DIMENSIONS}
        clear = all(sure for _, sure in given.values())
        for index, numeral in enumerate(results):
            at = line + bare.count("\n", 0, numeral.start)
            own = {name: given[name][0][index] for name in DIMENSIONS}
            mention = _one(bare, at, numeral, own, hits_of, context, strangers and own["method"] is None, clear)
            if mention:
                yield mention
    context.nearest |= hits_of  # for the sentences behind it


def _in_term(place: int, hits: list[Hit]) -> bool:
    return any(hit.start <= place < hit.end for hit in hits)


def _one(
    text: str,
    line: int,
    numeral: Numeral,
    own: dict[str, str | None],
    hits_of: Hits,
    context: Surroundings,
    stranger: bool,
    clear: bool,
) -> Mention | None:
    evidence, where = context.evidence, context.where
    chosen = dict(own)
    for name in ("metric", *evidence.distinguishes):
        chosen[name] = chosen[name] or context.only(name)
    metric = chosen["metric"]
    if metric is None:
        return None
    sure = "certain" if chosen == own else "likely"
    claims = evidence.lookup(metric, chosen["method"], chosen["dataset"], chosen["split"])
    mention = verdict(line, where, text, numeral, claims, sure) if claims else None
    if mention and mention.verdict == "ok":
        return mention  # right, whoever's number it is
    doubt = stranger or _doubtful(text, numeral, hits_of)
    if doubt and own["method"] is None:
        claims = evidence.lookup(metric, None, chosen["dataset"], chosen["split"])
        mention = verdict(line, where, text, numeral, claims, sure) if claims else None
    if mention is None or numeral.value < 0 <= min(claim["value"] for claim in claims):
        return None
    if numeral.unit in evidence.measures and not any(claim.get("unit", "").lower() == numeral.unit for claim in claims):
        return None  # milliseconds are no throughput
    if mention.verdict == "ok":
        return mention
    if not clear:  # any of the claims that are named will do
        metrics, *others = ([hit.value for hit in hits_of.get(name, [])] for name in DIMENSIONS)
        named: list[list[str | None]] = [[*values] or [None] for values in others]
        keys = set(product(metrics, named[0], named[1], named[2]))
        if any(agrees(claim, numeral) for key in keys for claim in evidence.lookup(*key)):
            return Mention(line, where, mention.reported, "ok", claims, "likely")
    times = 4.0 if own["metric"] else 1.25  # nothing in the sentence says what the number measures
    if doubt or len(claims) > 1 or far_off(claims[0], numeral, times=times):
        elsewhere = "it may be somebody else's number, or of another state of the model"
        mention.verdict, mention.why = "ambiguous", elsewhere if doubt else "the text does not say which claim this is"
    return mention


def _doubtful(text: str, numeral: Numeral, hits_of: Hits) -> bool:
    """May a number not be ours, although the words fit? Asked only of one that differs."""
    hits = [hit for found in hits_of.values() for hit in found]
    turns = [turn.end() for turn in _TURN.finditer(text) if not _in_term(turn.start(), hits)]
    start = max((turn for turn in turns if turn <= numeral.start), default=0)
    end = min((turn for turn in turns if turn >= numeral.end), default=len(text))
    for cue in _DOUBT.finditer(text, start, end):
        near = 2 if cue[0].startswith("[") else 0  # "ResNet-50 [3] obtains" is our run of a known method
        if not any(hit.start <= cue.start() < hit.end + near for hit in hits):
            return True
    return False


# -- which word belongs to which number


def assign(hits: list[Hit], numerals: list[Numeral]) -> tuple[list[str | None], bool]:
    """For one dimension: the term of each number; False when the sentence can be read in several ways.

    With T for a term and N for a number:
        TNTN   "A reaches 91, B 89"               each number takes the term before it
        NTNT   "91 for A and 89 for B"            each takes the term behind it
        TTNN   "A and B reach 91 and 89"          in order
    Anything else is the nearest term, and unsure.
    """
    if len({hit.value for hit in hits}) < 2:
        return [hits[0].value if hits else None] * len(numerals), True
    terms = [hit for i, hit in enumerate(hits) if i == 0 or hits[i - 1].value != hit.value]  # said twice in a row: one
    order = sorted([*((term.start, "T") for term in terms), *((numeral.start, "N") for numeral in numerals)])
    shape, n = "".join(sign for _, sign in order), len(numerals)
    if len(terms) == n and shape in ("TN" * n, "NT" * n, "T" * n + "N" * n, "N" * n + "T" * n):
        return [term.value for term in terms], True
    nearest = [min(terms, key=lambda hit: max(one.start - hit.end, hit.start - one.end)) for one in numerals]
    return [hit.value for hit in nearest], False
