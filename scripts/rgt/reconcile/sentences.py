"""Numbers in running text: which names belong to each.

A clause gives its own names first; what it leaves out comes from the sentence, then from the sentences before it,
the line
that leads a list and the headings. Names that no fact has, and words for other people's work, can own a number, too.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from rgt.reconcile.aliases import NAME, NO_OWNER
from rgt.reconcile.facts import UNITS
from rgt.reconcile.judgement import judged
from rgt.reconcile.numerals import IDLE, Numeral, find_numerals
from rgt.reconcile.orphans import second_look
from rgt.reconcile.passages import Passage
from rgt.reconcile.places import Outcome, Place, Terms
from rgt.reconcile.readings import agrees, slip
from rgt.reconcile.vocabulary import OURS, Hit, Vocabulary

ANCHOR = re.compile(r"<!--\s*claim:\s*([\w-]+)\s*-->")  # readers turn \\claim{C1} into it

_SENTENCE = re.compile(
    r"(?<=[。！？])|(?<=[.!?])(?<!\bvs\.)(?<!\bacc\.)(?<!\bal\.)(?<!\bresp\.)(?<!\bapprox\.)(?<!\bavg\.)(?<!\bFig\.)(?<!\bTab\.)(?<!\bSec\.)(?<!\be\.g\.)(?<!\bi\.e\.)(?=\s+(?:[^a-z\s]|[a-z]+-?[A-Z\d])|\s*\n\s*\n|\s*$)|\n(?=\s*(?:[-*+•]|\d+[.)])\s)"
)
_COMMENT = re.compile(r"<!--(?!\s*claim:).*?-->", re.S)
# where another owner may begin
_TURN = re.compile(
    r"[;；:：]|\b(?:while|whereas|but|versus|vs\.?|compared (?:to|with)|than|against|over(?= the\b| [A-Z])"
    r"|although|though|up from|down from)\b"
    r"|(?<=\S) –(?= )|而(?!且)|相比|相较|高于|低于|优于|超过(?=[^\d\s])|较(?=[^\d高低]{2})"
)
# somebody else's numbers
_OTHERS = re.compile(
    r"\[cite\]|\[\s?\d+(?:\s?[,–-]\s?\d+)*\s?\]|\bet al\b"
    r"|\b(?:prior|previous(?:ly)?|earlier|existing|competing|published|literature|state[- ]of[- ]the[- ]art"
    r"|sota|concurrent"
    r"|others?|their (?:paper|work|own|original|report)|human"
    r"|chance|random guess(?:ing)?|official|original (?:paper|publication|work|authors?)"
    r"|reported (?:by|in)|according to|leaderboard|model card|competitors?|rivals?|commercial|proprietary"
    r"|third[- ]party)\b"
    r"|文献|前人|此前|以往|他人|原论文|原文|论文报告|报告值|公开榜单|已有|现有|竞品|官方|人类",
    re.I,
)
# another state of the model, a wish or a limit
_STATES = re.compile(
    r"\b(?:(?:on|with|using) (?:only |just )?(?:\d+ ?%|(?:a |one )?(?:quarter|half|third|fifth|tenth)) of"
    r"|outdated|obsolete|target|goal|aim(?:ed)?|expect(?:ed)?|hoped?|budget|would|should|upper bound|lower bound|oracle"
    r"|threshold|requirement|cap|limit|at (?:epoch|step|iteration|initiali[sz]ation)|intermediate|preliminary"
    r"|already|so far"
    r"|after (?:just|only)|pilot|draft|preprint|submi(?:ssion|tted)|old(?:er)?|initial(?:ly)?|first version"
    r"|legacy|deprecated|retired|superseded|used to|last (?:year"
    r"|month|release)"
    r"|quanti[sz]\w*|prun\w*|compress\w*|distill\w*|INT[48]|fp16|bf16|best (?:seed|run|single|checkpoint)"
    r"|worst|single (?:seed|run)"
    r"|seed \d+|on a subset|subset of|ablat\w*|without|w/o|removing|disabling|if we|when we|with only|early stopp\w*"
    r"|varying|sweep\w*|increas\w+ the|fold \d|at \d+ ?% |low-resource|few-shot|zero-shot|estimated?"
    r"|extrapolat\w*|peaks? at|saturat\w*)\b"
    r"|目标|预期|中间|初步|量化|剪枝|蒸馏|最佳种子|单次运行|单次实验|去掉|移除|旧版|旧配置|历史版本|废弃|上周|上月|早期|若|如果|阈值|上限|下限|要求",
    re.I,
)


@dataclass
class Surroundings:
    """What the texts around a number name, nearest first, for the names that its own sentence or row leaves out."""

    vocabulary: Vocabulary
    where: str
    texts: tuple[str, ...]
    ours: tuple[str, str] | None = None  # axis and term of "our method" in this document
    nearest: dict[str, frozenset[str]] = field(
        default_factory=dict
    )  # of earlier sentences, or of a row that heads others
    _farther: list[Terms] | None = None

    def hits(self, text: str) -> list[Hit]:
        """The names in a text; "ours" as the method that this document calls so."""
        hits = list(self.vocabulary.find(text))
        if not any(hit.axis == OURS for hit in hits):
            return hits
        if self.ours is None:
            return [hit for hit in hits if hit.axis != OURS]
        axis, term = self.ours
        return [hit._replace(axis=axis, term=term) if hit.axis == OURS else hit for hit in hits]

    def missing(self, own: Terms) -> dict[str, str]:
        if self._farther is None:
            self._farther = [terms_of(self.hits(text)) for text in self.texts if text]
        chosen = {}
        for axis in self.vocabulary.axes:
            if axis not in own and axis != "split":  # "we train" some sentences ago names no split
                layer = next((terms[axis] for terms in (self.nearest, *self._farther) if axis in terms), frozenset())
                if len(layer) > 1 and self.ours and self.ours[0] == axis and self.ours[1] in layer:
                    layer = frozenset([self.ours[1]])
                if len(layer) == 1 and (axis != "metric" or (axis, min(layer)) in self.vocabulary.named):
                    chosen[axis] = min(layer)
                elif not layer and self.ours and self.ours[0] == axis:
                    chosen[axis] = self.ours[1]  # nobody is named: the document's own
        return chosen


def terms_of(hits: list[Hit]) -> Terms:
    gathered: dict[str, set[str]] = {}
    for hit in hits:
        gathered.setdefault(hit.axis, set()).add(hit.term)
    return {axis: frozenset(terms) for axis, terms in gathered.items()}


def sentence_outcomes(passage: Passage, vocabulary: Vocabulary, ours: tuple[str, str] | None) -> Iterator[Outcome]:
    text = passage.text
    if "<!--" in text:
        text = _COMMENT.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    context = Surroundings(vocabulary, passage.where, (passage.lead, passage.heading), ours)
    ends = {match.end() for match in _SENTENCE.finditer(text)}
    for start, end in pairwise(sorted({0, len(text), *ends})):
        if text[start:end].strip():
            yield from _in_sentence(text[start:end], passage.line + text.count("\n", 0, start), context)


def _in_sentence(sentence: str, line: int, context: Surroundings) -> Iterator[Outcome]:
    vocabulary = context.vocabulary
    anchors = list(ANCHOR.finditer(sentence)) if "<!--" in sentence else []
    bare = ANCHOR.sub(lambda match: " " * len(match[0]), sentence) if anchors else sentence
    hits = context.hits(bare)
    numerals = find_numerals(bare, vocabulary.units)
    numerals = [numeral for numeral in numerals if not any(hit.start <= numeral.start < hit.end for hit in hits)]
    if not vocabulary.negative:  # then a sign says that it is a change
        signed = [one.signed and one.value < 0 and one.role in ("", "from", "about") for one in numerals]
        numerals = [one._replace(role="change") if sign else one for one, sign in zip(numerals, signed, strict=True)]
    taken: set[int] = set()
    for anchor in anchors:
        yield anchored(bare, anchor, line, context.where, vocabulary, taken)
    left = [numeral for numeral in numerals if numeral.start not in taken and numeral.role not in IDLE]
    for idle in (numeral for numeral in numerals if numeral.start not in taken and numeral.role in IDLE):
        at = line + bare.count("\n", 0, idle.start)
        yield Outcome(Place(idle, bare[idle.start : idle.end].strip(), at, context.where, bare, {}, {}, {}), "other")
    if left:
        outcomes = judged(list(_places(bare, line, left, hits, context)), vocabulary)
        second_look([outcomes], vocabulary)
        yield from outcomes
    subjects = [hit for hit in hits if not _REFERENCE.search(bare, max(0, hit.start - 24), hit.start)]
    context.nearest = {**context.nearest, **terms_of(subjects)}  # for the sentences behind it


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


def _places(text: str, line: int, numerals: list[Numeral], hits: list[Hit], context: Surroundings) -> Iterator[Place]:
    vocabulary = context.vocabulary
    covered = [(hit.start, hit.end) for hit in hits]
    brackets = [match.span() for match in _BRACKETS.finditer(text)]
    turns = [turn.start() for turn in _TURN.finditer(text) if not _inside(turn.start(), covered + brackets)]
    if len(turns) > 30:
        turns = []
    things = [(hit.start, hit.end) for hit in hits if hit.axis in ("metric", "split", "dataset")]
    strangers = _Strangers(text, covered, things)
    named = terms_of(hits)
    swept = {term for term in vocabulary.axes.get("sweep", ()) if re.search(_number_of(term), text)}
    if swept:
        named["sweep"] = frozenset(swept)
    references = {
        hit.start
        for hit in hits
        if _REFERENCE.search(text, max(0, hit.start - 24), hit.start)
        or _TIMES.match(text, hit.end)
        or (text[: hit.start].rstrip()[-1:] in "与和同跟" and _REFERRED.match(text, hit.end))
    }
    plain = [numeral for numeral in numerals if numeral.role not in ("runs", "change", "ratio", "spread")]
    bounds = [0, *turns, len(text)]
    ours_axes = {"method", context.ours[0] if context.ours else ""}
    for numeral in numerals:
        start = max(bound for bound in bounds if bound <= numeral.start)
        end = min((bound for bound in bounds if bound >= numeral.end), default=len(text))
        peers = plain if numeral in plain else [one for one in numerals if one.role == numeral.role]
        group = next(([one for one in peers if a <= one.start < b] for a, b in brackets if a <= numeral.start < b), [])
        if len(group) > 1:
            start, end = 0, len(text)  # "A beats B (91 vs. 89)": in the order of the names
        here = [one for one in peers if start <= one.start < end]
        own: Terms = {}
        unclear, bound = 0, False
        if swept:
            own["sweep"] = frozenset(swept)
        for axis in named:
            on_axis = [hit for hit in hits if hit.axis == axis]
            if axis not in ("metric", "split"):
                on_axis = _owners(text, on_axis, references, numeral, group)
                on_axis = _free(text, on_axis, numeral, peers) if axis in ours_axes else on_axis
            local = [hit for hit in on_axis if start <= hit.start < end]
            if not on_axis or (not local and axis not in ("metric", "split") and strangers.within(start, end)):
                continue  # nobody, or the clause has an owner of its own
            terms, clear = assigned(local or on_axis, here if local else peers, numeral, text)
            own[axis] = terms
            unclear += not clear
            bound = bound or _bound(text, on_axis, numeral) is not None
        at = line + text.count("\n", 0, numeral.start)
        reported = " ".join(text[numeral.start : numeral.end].split())
        place = Place(numeral, reported, at, context.where, text, own, named, context.missing(own))
        place.unclear, place.bound, place.ours = unclear, bound, context.ours[1] if context.ours else ""
        compared = [hit for hit in hits if hit.start in references]
        if numeral.role == "ratio":
            compared += [hit for hit in hits if _MULTIPLE.fullmatch(text, numeral.end, hit.start)]
        place.reference, place.compared = _reference(text, numeral, compared), frozenset(hit.term for hit in compared)
        place.weigh = functools.partial(_reasons_against, place, (start, end), strangers, hits, here, vocabulary)
        yield place


def _number_of(term: str) -> str:
    """The number that a point of a sweep is: "0 5" is 0.5"""
    number = re.escape(term.replace(" ", "."))
    return rf"(?<![\d.]){number}\s?%|(?:\b(?:with|at|of|using|to)\s(?:only\s)?|=\s?){number}(?![\d/]|\.\d)"


_TIMES = re.compile(r"\s?的\s?[\d.]+\s?(?:倍|%)")  # 是 X 的 3 倍
_REFERRED = re.compile(r"\s?相[比较]")  # 与 X 相比
# what stands behind these is what something is compared with, not what a number is about
_REFERENCE = re.compile(
    r"(?:\b(?:relative to|compared (?:to|with)|against|than|over|versus|vs\.?|with respect to|w\.r\.t\.|beats?"
    r"|outperforms?|beating|surpass\w*"
    r"|ahead of|behind|below|above|short of|gap to|runner-up,?|competing method,?)\s"
    r"(?:(?:the|its|our)\s)?(?:plain\s|strong\w*\s|best\s|previous\s)?|(?:以"
    r"|相比|相较于?|较|比|优于|超过|高于|低于|对比|对照)\s?)$",
    re.I,
)


_MULTIPLE = re.compile(r"[^,;.()，；。（）\d]{1,45}")  # 3.5x the throughput of


def _reference(text: str, numeral: Numeral, compared: list[Hit]) -> tuple[str, str] | None:
    """The name that a change is compared with: the next one of its clause, or the last one with no number between."""
    compared = [hit for hit in compared if hit.axis not in ("metric", "split", "statistic", "dataset")]
    behind = [hit for hit in compared if _MULTIPLE.fullmatch(text, numeral.end, hit.start)]
    before = [hit for hit in compared if hit.end <= numeral.start and not _TWO.search(text, hit.end, numeral.start)]
    chosen = behind[:1] or before[-1:] or (compared if len({hit.term for hit in compared}) == 1 else [])
    return (chosen[0].axis, chosen[0].term) if chosen else None


def _owners(text: str, hits: list[Hit], references: set[int], numeral: Numeral, group: list[Numeral]) -> list[Hit]:
    """The names a number may belong to: not what something is compared with, unless it is tied to the number."""
    if len(group) < 2:
        return [hit for hit in hits if hit.start not in references or _bound(text, hits, numeral) == hit]
    if len(group) == 2 and len({hit.term for hit in hits}) == 1 and hits[0].start in references:
        between = text[group[0].end : group[1].start]
        # "faster than B (3 vs. 5 ms)", "against B (5 to 3 ms)": 3 is the subject's
        return [] if numeral == group[any(sign in between for sign in ("to", "→", "至", "到"))] else hits
    return hits


def _free(text: str, hits: list[Hit], numeral: Numeral, numerals: list[Numeral]) -> list[Hit]:
    """Without the name that is tied to another number: "from 14 (A) down to 7" says nothing of whose 7 is."""
    if len({hit.term for hit in hits}) != 1 or _bound(text, hits, numeral):
        return hits
    return [] if any(_bound(text, hits, other) for other in numerals if other is not numeral) else hits


_BRACKETS = re.compile(r"\([^()]*\)|（[^（）]*）")


def _inside(place: int, spans: list[tuple[int, int]]) -> bool:
    return any(start <= place < end for start, end in spans)


@dataclass
class _Strangers:
    """Looked for once, and only where a number does not match."""

    text: str
    covered: list[tuple[int, int]]
    things: list[tuple[int, int]]  # of these, the names of what is no method

    @functools.cached_property
    def all(self) -> list[Hit]:
        return list(_strangers(self.text, self.covered, self.things))

    def within(self, start: int, end: int) -> list[Hit]:
        return [stranger for stranger in self.all if start <= stranger.start < end]


def _strangers(text: str, covered: list[tuple[int, int]], things: list[tuple[int, int]]) -> Iterator[Hit]:
    """Whoever else may own a number."""
    for cue in _OTHERS.finditer(text):
        near = 2 if cue[0].startswith("[") else 0  # "ResNet-50 [3] obtains" is our run of a known method
        if not any(start <= cue.start() < end + near * ((start, end) not in things) for start, end in covered):
            yield Hit("", cue[0], cue.start(), cue.end())
    for name in NAME.finditer(text):
        low = name[0].lower()
        known = _inside(name.start(), covered) or _inside(name.end() - 1, covered)
        if len(low) < 3 or low in NO_OWNER or low in UNITS or known:
            continue
        if name.start() == 0 and name[0].isalpha() and name[0][1:].islower():
            continue
        yield Hit("", name[0], name.start(), name.end())


def _reasons_against(
    place: Place,
    clause: tuple[int, int],
    strangers: _Strangers,
    hits: list[Hit],
    here: list[Numeral],
    vocabulary: Vocabulary,
) -> list[str]:
    """Why a number may not be ours: another owner that is nearer, or another state of the model."""
    reasons = []
    entities = [axis for axis, terms in vocabulary.axes.items() if axis not in ("metric", "split", "statistic")]
    unresolved = [axis for axis in entities if axis not in place.own and len(vocabulary.axes[axis]) > 1]
    text, inside = place.text, strangers.within(*clause)
    candidates = inside or (strangers.all if unresolved else [])
    if candidates:
        who = min(candidates, key=lambda hit: _distance(hit, place.numeral))
        owners = [hit for hit in hits if hit.axis in entities and clause[0] <= hit.start < clause[1]]
        nearer = all(_distance(who, place.numeral) < _distance(hit, place.numeral) for hit in owners)
        terms, _ = assigned([*owners, *inside], here, place.numeral, text)
        if unresolved or nearer or who.term in terms:
            reasons.append(f"{who.term!r} is named, which no value is about")
    if _REPORTED.search(text, *clause) and not _REPEATED.search(text, *clause):
        reasons.append("it says who reported it")
    covered = [(hit.start, hit.end) for hit in hits]
    left_out = any(term.startswith("no ") for terms in place.named.values() for term in terms)
    for state in _STATES.finditer(text, *clause) if place.numeral.role not in ("change", "ratio") else ():
        if not _inside(state.start(), covered) and not (left_out and _LEFT_OUT.fullmatch(state[0])):
            reasons.append(f"{state[0]!r} may mean another state")
            break
    if _extended(text, hits, place):
        reasons.append("the name goes on: another variant")
    return reasons


_LEFT_OUT = re.compile(r"without|w/o|removing|disabling|ablat\w*|去掉|移除", re.I)  # known when it names a value
_REPORTED = re.compile(
    r"\[cite\]|\bet al\b|[A-Z][a-z]+ and [A-Z][a-z]+ \["
    r"|\b(?:original|published|official) (?:\S+ )?(?:paper|publication|work|report|number"
    r"|result|repo\w*)|\b(?:is|are|was|were|as) reported\b"
    r"|\breported (?:by|in|at|as)\b|(?<!\bwe )\b(?:claims|reports|states|announces)\b"
    r"|\bpaper (?:states|reports|gives|lists|claims)\b|\baccording to\b"
    r"|论文(?:中)?报告|论文(?:中)?给出|公开榜单|原论文",
    re.I,
)
_REPEATED = re.compile(
    r"\b(?:our|ours|we) (?:own )?(?:re-?)?(?:run|implement|reproduc|measure|train|obtain|get)\w*"
    r"|\bre-?(?:implementation|run|produced)\b|我们复现|复现得到",
    re.I,
)
_EXTENDED = re.compile(
    r"\s?(?:\+|w/o?\b|without\b|with\b(?=\s+[A-Z])|[-/](?=[A-Za-z0-9])|\((?:w/|with|no|without|\+|large|small|base|tiny|xl)\b)",
    re.I,
)


def _extended(text: str, hits: list[Hit], place: Place) -> bool:
    """ "Ours + CutMix" and "Ours-L" are other methods than "Ours"."""
    return any(
        hit.axis not in ("metric", "split")
        and hit.term in place.own.get(hit.axis, ())
        and _EXTENDED.match(text, hit.end)
        for hit in hits
    )


def _distance(hit: Hit, numeral: Numeral) -> int:
    return max(numeral.start - hit.end, hit.start - numeral.end)


_BINDS = re.compile(
    r"\s?%?(?:\s[\w@%/-]+)?\s?(?:\(|\[|（)\s?(?:for |with |by |of |from )?|\s?%?(?:\s[\w@%/-]+){0,2}?\s(?:for"
    r"|with|by|from|of|on|in|using|achieved by|obtained by|under)\s(?:the\s)?"
)


_TIED = re.compile(r"\s?(?:[:：=]|at|of|为|是|的|对应为|只有|仅为?|达到?)?\s?")
_CLOSES = re.compile(r"[)）\]]")


def _bound(text: str, hits: list[Hit], numeral: Numeral) -> Hit | None:
    """The name in brackets behind a number, or before a number in brackets, or behind "for": those belong together."""
    behind = _BINDS.match(text, numeral.end)
    if behind:
        for hit in hits:
            if hit.start == behind.end():
                closing = _CLOSES.search(text, hit.end)
                opened = behind[0].rstrip()[-1:] in "(（["
                if opened and closing and _TWO.search(text, hit.end, closing.start()):
                    continue  # "91 (B: 89)": what is in brackets speaks for itself
                several = opened and closing and any(hit.end <= other.start < closing.start() for other in hits)
                return None if several else hit
    for hit in hits:
        tied = None if hit.end >= numeral.start else _TIED.fullmatch(text, hit.end, numeral.start)
        if tied and not (":" in tied[0] and _REFERENCE.search(text, max(0, hit.start - 24), hit.start)):
            return hit
        inside = hit.end <= numeral.start and _OPENS.fullmatch(text, hit.end, numeral.start)
        if inside and not _TWO.search(text[numeral.end :].partition(")")[0].partition("）")[0]):
            return hit
    return None


_OPENS = re.compile(r"\s?[(（]\s?")
_TWO = re.compile(r"\d")  # "than B (3 vs. 5)": two numbers, and the first is not B's


def assigned(hits: list[Hit], numerals: list[Numeral], numeral: Numeral, text: str = "") -> tuple[frozenset[str], bool]:
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
    ordered = sorted(hits, key=lambda hit: hit.start)
    bound = {one.start: hit for one in numerals if (hit := _bound(text, ordered, one))}
    if numeral.start in bound:
        return frozenset([bound[numeral.start].term]), True
    if bound:  # what is bound to another number is not this one's
        taken = {hit.term for hit in bound.values()}
        left = [hit for hit in ordered if hit.term not in taken]
        return (
            assigned(left, [one for one in numerals if one.start not in bound], numeral, text)
            if left
            else (every, False)
        )
    terms = [
        hit for i, hit in enumerate(ordered) if i == 0 or ordered[i - 1].term != hit.term
    ]  # said twice in a row: one
    signs = sorted([*((term.start, "T") for term in terms), *((one.start, "N") for one in numerals)])
    shape, n = "".join(sign for _, sign in signs), len(numerals)
    if (
        n
        and len(terms) == n
        and shape in ("TN" * n, "NT" * n, "T" * n + "N" * n, "N" * n + "T" * n)
        and numeral in numerals
    ):
        return frozenset([terms[numerals.index(numeral)].term]), True
    blocks = re.fullmatch(r"(?:TN+)+", shape)  # "A reaches 91 and 92, B 89 and 90"
    if blocks and numeral in numerals:
        before = [term for term in terms if term.start < numeral.start]
        return frozenset([before[-1].term]), True
    return every, False
