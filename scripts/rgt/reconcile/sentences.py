"""Numbers in running text: which names of a sentence belong to each. Anything unclear is left to the sheet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from rgt.reconcile.judgement import judged
from rgt.reconcile.numerals import IDLE, Numeral, find_numerals
from rgt.reconcile.passages import Passage
from rgt.reconcile.places import Outcome, Place, Terms
from rgt.reconcile.readings import agrees, slip
from rgt.reconcile.vocabulary import Hit, Vocabulary

ANCHOR = re.compile(r"<!--\s*claim:\s*([\w-]+)\s*-->")  # readers turn \\claim{C1} into it

_SENTENCE = re.compile(
    r"(?<=[。！？])|(?<=[.!?])(?<!\bvs\.)(?<!\bacc\.)(?<!\bal\.)(?<!\bresp\.)(?<!\bapprox\.)(?<!\bavg\.)(?<!\bFig\.)(?<!\bTab\.)(?<!\bSec\.)(?<!\be\.g\.)(?<!\bi\.e\.)(?=\s+(?:[^a-z\s]|[a-z]+-?[A-Z\d])|\s*\n\s*\n|\s*$)|\n(?=\s*(?:[-*+•]|\d+[.)])\s)"
)
_COMMENT = re.compile(r"<!--(?!\s*claim:).*?-->", re.S)
_PRONOUN = re.compile(r"\s*(?:It|Its|This|They|Their)\b|\s*其")  # what it is about stands in the sentence before
# a name in brackets behind a number, or behind "for": those belong together
_BINDS = re.compile(
    r"\s?%?(?:\s[\w@%/-]+)?\s?(?:\(|\[|（)\s?(?:for |with |by |of |from )?|\s?%?(?:\s[\w@%/-]+){0,2}?\s(?:for"
    r"|with|by|from|of|on|in|using|achieved by|obtained by|under)\s(?:the\s)?"
)
_TIED = re.compile(
    r"\s?(?:[:：=]|at|of|为|是|的|对应为|只有|仅为?|达到?)?\s?|\s?[(（]\s?"
)  # between a name and its number


def terms_of(hits: tuple[Hit, ...] | list[Hit]) -> Terms:
    gathered: dict[str, set[str]] = {}
    for hit in hits:
        gathered.setdefault(hit.axis, set()).add(hit.term)
    return {axis: frozenset(terms) for axis, terms in gathered.items()}


def around(own: Terms, texts: tuple[str, ...], vocabulary: Vocabulary) -> Terms:
    """For what is not named: the one name that the nearest of `texts` with any has."""
    chosen: Terms = {}
    for text in texts:
        for axis, terms in terms_of(vocabulary.find(text)).items() if text else ():
            if axis not in own and axis != "split":
                chosen.setdefault(axis, terms)
    return {axis: terms for axis, terms in chosen.items() if len(terms) == 1 and axis in vocabulary.axes}


def sentence_outcomes(passage: Passage, vocabulary: Vocabulary) -> Iterator[Outcome]:
    text = passage.text
    if "<!--" in text:
        text = _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    ends = {match.end() for match in _SENTENCE.finditer(text)}
    before = ""
    for start, end in pairwise(sorted({0, len(text), *ends})):
        sentence = text[start:end]
        if sentence.strip():
            line = passage.line + text.count("\n", 0, start)
            continued = (before if _PRONOUN.match(sentence) else "", passage.lead)
            yield from _in_sentence(sentence, line, passage, continued, vocabulary)
            before = sentence


def _in_sentence(
    sentence: str, line: int, passage: Passage, continued: tuple[str, ...], vocabulary: Vocabulary
) -> Iterator[Outcome]:
    anchors = list(ANCHOR.finditer(sentence)) if "<!--" in sentence else []
    bare = ANCHOR.sub(lambda match: " " * len(match[0]), sentence) if anchors else sentence
    numerals = find_numerals(bare, vocabulary.units)
    if not numerals and not anchors:
        return
    hits = vocabulary.find(bare)
    numerals = [numeral for numeral in numerals if not any(hit.start <= numeral.start < hit.end for hit in hits)]
    if not vocabulary.negative:  # then a sign says that it is a change
        signed = [one.signed and one.value < 0 and one.role in ("", "from", "about") for one in numerals]
        numerals = [one._replace(role="change") if sign else one for one, sign in zip(numerals, signed, strict=True)]
    taken: set[int] = set()
    for anchor in anchors:
        yield anchored(bare, anchor, line, passage.where, vocabulary, taken)
    left = [numeral for numeral in numerals if numeral.start not in taken]
    named = terms_of(hits)
    led = around(named, continued, vocabulary)
    farther = around({**named, **led}, (passage.heading,), vocabulary)
    plain = [numeral for numeral in left if numeral.role in ("", "from", "about", "bound", "range")]
    places = []
    for numeral in left:
        own, unclear = dict(led), 0
        for axis in named:
            on_axis = sorted((hit for hit in hits if hit.axis == axis), key=lambda hit: hit.start)
            own[axis], clear = assigned(on_axis, plain, numeral, bare)
            unclear += not clear
        reported = " ".join(bare[numeral.start : numeral.end].split())
        at = line + bare.count("\n", 0, numeral.start)
        places.append(Place(numeral, reported, at, passage.where, bare, own, named, farther, unclear=unclear))
    yield from judged(places, vocabulary)


def anchored(
    bare: str, anchor: re.Match[str], line: int, where: str, vocabulary: Vocabulary, taken: set[int]
) -> Outcome:
    """An anchor speaks of the number before it, or, at the start of a sentence, of the one behind it."""
    free = [n for n in find_numerals(bare, vocabulary.units, in_cell=True) if n.start not in taken]
    free = [n for n in free if n.role not in ("runs", *IDLE)]
    before = [numeral for numeral in free if numeral.end <= anchor.start()]
    numeral = before[-1] if before else next((n for n in free if n.start >= anchor.end()), None)
    at = line + bare.count("\n", 0, numeral.start if numeral else anchor.start())
    fact = vocabulary.by_id.get(anchor[1])
    reported = " ".join(bare[numeral.start : numeral.end].split()) if numeral and fact else anchor[0]
    place = Place(numeral or Numeral(0, 0, 0.0, 1.0), reported, at, where, bare, {}, {}, {})
    if fact is None:
        return Outcome(place, "drift", [], None, "anchored", f"EVIDENCE.json has no claim {anchor[1]}")
    if numeral is None:
        return Outcome(place, "drift", [fact], None, "anchored", "no number beside the anchor")
    taken.add(numeral.start)
    if agrees(fact, numeral):
        return Outcome(place, "match", [fact], sure="anchored")
    miss = slip(fact, numeral)
    expected, why = (miss.expected, miss.what) if miss else (fact.value, "the value differs")
    return Outcome(place, "drift", [fact], expected, "anchored", why)


def assigned(hits: list[Hit], numerals: list[Numeral], numeral: Numeral, text: str) -> tuple[frozenset[str], bool]:
    """On one axis: the name of one of several numbers; False when the sentence can be read in several ways.

    With T for a name and N for a number:
        TNTN   "A reaches 91, B 89"               each number takes the name before it
        NTNT   "91 for A and 89 for B"            each takes the name behind it
        TTNN   "A and B reach 91 and 89"          in order
    Anything else is any of the names.
    """
    every = frozenset(hit.term for hit in hits)
    if len(every) < 2:
        return every, True
    bound = {one.start: hit for one in numerals if (hit := _bound(text, hits, one))}
    if numeral.start in bound:
        return frozenset([bound[numeral.start].term]), True
    if bound:  # what is bound to another number is not this one's
        taken = {hit.term for hit in bound.values()}
        left = [hit for hit in hits if hit.term not in taken]
        rest = [one for one in numerals if one.start not in bound]
        return assigned(left, rest, numeral, text) if left else (every, False)
    terms = [hit for at, hit in enumerate(hits) if at == 0 or hits[at - 1].term != hit.term]  # said twice in a row: one
    signs = sorted([*((term.start, "T") for term in terms), *((one.start, "N") for one in numerals)])
    shape, n = "".join(sign for _, sign in signs), len(numerals)
    if numeral in numerals and len(terms) == n and shape in ("TN" * n, "NT" * n, "T" * n + "N" * n, "N" * n + "T" * n):
        return frozenset([terms[numerals.index(numeral)].term]), True
    if numeral in numerals and re.fullmatch(r"(?:TN+)+", shape):  # "A reaches 91 and 92, B 89 and 90"
        return frozenset([[term for term in terms if term.start < numeral.start][-1].term]), True
    return every, False


def _bound(text: str, hits: list[Hit], numeral: Numeral) -> Hit | None:
    """The name that a number is tied to: "91 (B)", "91 for B", "B: 91"."""
    behind = _BINDS.match(text, numeral.end)
    for hit in hits:
        if behind and hit.start == behind.end():
            closing = re.search(r"[)）\]]", text[hit.end :]) if behind[0].rstrip()[-1:] in "(（[" else None
            # "91 (B: 89)": what is in brackets speaks for itself
            return None if closing and re.search(r"\d", text[hit.end : hit.end + closing.start()]) else hit
        if hit.end <= numeral.start and _TIED.fullmatch(text, hit.end, numeral.start):
            return hit
    return None
