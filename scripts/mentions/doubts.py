"""Why a number may state no result of ours although a method of ours is named: somebody else's, a wish, another state.

A cue in the clause of the number speaks of it, unless the clause only compares with it ("91.2, better than before").
A cue in another clause speaks of the number there, if it has one ("While Lee et al. report 85, ours gets 91").
Asked only of a number that differs from its claim.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from mentions import cues, strangers, terms
from mentions.numerals import Numeral

Hits = dict[str, list[terms.Hit]]
Clause = tuple[int, int]

_CUT = re.compile(
    r"(?<!\d)[,:]|[,:](?!\d)|[;，；：()（）]|\s[–—-]\s"
    r"|\b(?:while|whereas|but|although|though|however|yet)\b|而(?!且)|但|不过"
)
_AND = re.compile(r"\band (?:the |our )?")
_OURS = re.compile(r"\b(?:we|our|ours|this work|here)\b|我们|本文", re.I)
_DIGITS = re.compile(r"(?<![A-Za-z\d-])\d")
_OPENS = re.compile(r"\.?['’s]{0,2}\s?[(（]\s?")
# numbers that a clause may have without reporting anything: [3], Table 2, 50 % sparsity, 10 epochs, v1.2, 2024
_IDLE = re.compile(
    cues.REFERENCE
    + r"|\b(?:phase|stage|table|fig(?:ure)?\.?|sec(?:tion)?\.?|version|milestone|step|epoch|reviewer|experiment|part"
    r"|release|task|week|year)\s\d+(?:\.\d+)*"
    r"|\b\d+(?:\.\d+)?\s?%?\s(?:sparsity|epochs?|steps?|bits?|labels?|layers?|iterations?|of|GPUs?)\b"
    r"|\bv\d+(?:\.\d+)*|\b(?:19|20)\d\d\b",
    re.I,
)
_FOREIGN, _WISH, _STATE, _SPLIT = "somebody else's number", "a wish or a bound", "another state of the model", "split"
_KINDS = ((cues.FOREIGN, _FOREIGN), (cues.WISH, _WISH), (cues.STATE, _STATE))


def of_number(text: str, numeral: Numeral, hits: Hits, split: str | None) -> str:
    """The doubt about one number of a sentence; `hits`: the names of claims in it, `split`: that of the claim."""
    about = _About(text, numeral.start, numeral.end, [(hit.start, hit.end) for found in hits.values() for hit in found])
    made = _made_from(about, hits.get("method", []))
    if made:
        return f"it may be something made from the method: {made}"
    other = _circumstances(about, hits)
    if other:
        return f"it may be about something else: {other}"
    if _unbound(text, numeral, hits.get("metric", [])):
        return "the metric is said of something else"
    for pattern, kind in _KINDS:
        for cue in pattern.finditer(text):
            if _speaks(about, cue, kind):
                return f"it may be {kind}: {cue[0]}"
    return _other_split(about, split) if split else ""


def of_label(text: str, split: str | None) -> str:
    """The same for the label of a row or a column, where everything is said of the number."""
    others = [pattern for name, pattern in cues.SPLITS.items() if split and name != split]
    for pattern in (cues.LABEL, cues.WISH, cues.STATE, *others):
        match = pattern.search(text)
        if match:
            return f"the label says {match[0]}"
    return ""


@dataclass
class _About:
    """A sentence, the place of the number in it, and the places of the names that claims have."""

    text: str
    start: int
    end: int
    names: list[Clause]

    def named(self, at: int, slack: int = 0) -> bool:
        return any(first <= at < last + slack for first, last in self.names)

    @cached_property
    def cuts(self) -> list[re.Match[str]]:
        """Where clauses end. An "and" ends one when a name and a number follow it, and a number is before it."""
        starts = {first for first, _ in self.names}
        found = [match for match in _CUT.finditer(self.text) if not self.named(match.start())]
        for match in _AND.finditer(self.text):
            follows = match.end() in starts or match.end() - 4 in starts  # "the baseline" is a name with its article
            if follows and _DIGITS.search(self.text, 0, match.start()) and _DIGITS.search(self.text, match.end()):
                found.append(match)
        return found

    def clause(self, at: int) -> Clause:
        return (
            max((cut.end() for cut in self.cuts if cut.end() <= at), default=0),
            min((cut.start() for cut in self.cuts if cut.start() >= at), default=len(self.text)),
        )

    @cached_property
    def own(self) -> Clause:
        return self.clause(self.start)

    def has_number(self, clause: Clause, cue: re.Match[str]) -> bool:
        """Does a clause report a number of its own, beside those of the cue and of names?"""
        part = _IDLE.sub(lambda match: " " * len(match[0]), self.text[slice(*clause)])
        places = (clause[0] + digit.start() for digit in _DIGITS.finditer(part))
        return any(not cue.start() <= at < cue.end() and not self.named(at) for at in places)


# -- cues, and which number they speak of


def _speaks(about: _About, cue: re.Match[str], kind: str) -> bool:
    near = 2 if cue[0].startswith("[") else 0  # "ResNet-50 [3] obtains" is our run of a known method
    if about.named(cue.start(), near):
        return False
    if _OPENS.fullmatch(about.text, cue.end(), about.start):
        return True  # "beats Smith et al. (58.1%"
    there = about.clause(cue.start())
    if there == about.own:
        return not (about.end <= cue.start() and _compared(about, cue, kind, about.end))
    if (
        about.has_number(there, cue)
        or _has_its_number_behind(about, there, cue)
        or _compared(about, cue, kind, there[0])
    ):
        return False
    if kind == _WISH and cue.start() < about.start:
        return _announces(about, there)
    if cue.start() > about.end:
        return kind in (_STATE, _SPLIT) or cues.SAID_LATER.search(about.text, *there) is not None
    return not _turned(about, cue, kind)


def _announces(about: _About, there: Clause) -> bool:
    """ "Our goal: 91.2"; but "As expected, ours gets 91.2" and "You should use ours, which gets 91.2" state results."""
    return about.text[there[1] : there[1] + 1] in (":", "：") and about.clause(there[1] + 1) == about.own


def _compared(about: _About, cue: re.Match[str], kind: str, start: int) -> bool:
    """Is the number only compared with what the cue speaks of? Nobody compares with a split in passing."""
    if kind == _SPLIT:
        return False
    before, behind = (
        cues.COMPARED.search(about.text, start, cue.start()),
        cues.COMPARED_AFTER.match(about.text, cue.end()),
    )
    return before is not None or behind is not None


def _has_its_number_behind(about: _About, there: Clause, cue: re.Match[str]) -> bool:
    """ "(Smith et al.: 87.1%)": the clause behind the colon is the one the cue speaks of."""
    if about.text[there[1] : there[1] + 1] not in (":", "："):
        return False
    behind = about.clause(there[1] + 1)
    return behind != about.own and about.has_number(behind, cue)


def _turned(about: _About, cue: re.Match[str], kind: str) -> bool:
    """Does the sentence come to our own work between the cue and the number, or start anew?"""
    between = range(cue.end(), about.start + 1)
    if any(about.text[cut.start()] in ";；" for cut in about.cuts if cut.start() in between and cut.end() in between):
        return True
    ours = _OURS.finditer(about.text, cue.end(), about.start)
    return kind == _FOREIGN and any(not about.named(match.start()) for match in ours)


def _other_split(about: _About, split: str) -> str:
    for name, pattern in cues.SPLITS.items():
        for cue in pattern.finditer(about.text) if name != split else ():
            if not cues.CHOSEN_ON.search(about.text, 0, cue.start()) and _speaks(about, cue, _SPLIT):
                return f"it may be another split: {cue[0]}"
    if split != "train":
        for first, _ in about.names:  # "the training 准确率"
            if about.own[0] <= first < about.own[1] and re.search(r"\btrain(?:ing)?[- ]$", about.text[:first]):
                return "it may be another split: training"
    return ""


# -- what stands beside the names


def _made_from(about: _About, methods: Iterable[terms.Hit]) -> str:
    """The student of X, an X ensemble."""
    for hit in methods:
        of = cues.OF.search(about.text, max(0, hit.start - 40), hit.start)
        if of and of["noun"].lower() not in cues.OWN_NOUNS and not about.named(of.start("noun")):
            return of["noun"]
        behind = cues.DERIVED.match(about.text, hit.end)
        if behind:
            return behind[0].strip()
    return ""


def _circumstances(about: _About, hits: Hits) -> str:
    """Another name nearer to the number; "X with greedy decoding"; "on rotated SVHN"; "At half precision, X"."""
    before = [hit.start for hit in hits.get("method", []) if hit.start < about.start]
    unknown = [at for at in strangers.names(about.text, about.start) if not about.named(at)]
    if unknown and unknown[-1] > max(before, default=-1):
        return "a name that no claim has"
    return next(_altered(about, hits), "")


def _altered(about: _About, hits: Hits) -> Iterator[str]:
    matches = [cues.WITH.match(about.text, hit.end) for hit in hits.get("method", [])]
    matches += [cues.ALTERED.search(about.text, max(0, hit.start - 30), hit.start) for hit in hits.get("dataset", [])]
    matches += [match for match in cues.WHEN.finditer(about.text) if about.own[0] <= match.start() < about.own[1]]
    for match in matches:
        if match and not about.named(match.start("word")):
            yield match[0].strip()
    for hit in hits.get("dataset", []):
        part = cues.PART.match(about.text, hit.end)
        if part or about.text[about.end : hit.start] == " of ":  # "agrees on 83 % of SVHN"
            yield part[0].strip() if part else f"a part of {about.text[hit.start : hit.end]}"
    situation = cues.SITUATION.search(about.text)
    names_none = situation and not any(situation.start() <= first < situation.end() for first, _ in about.names)
    if situation and names_none and situation.end() <= about.start:
        yield situation[0].strip()


# -- "the lr is 0.35, chosen by accuracy": a metric that is said of something else

_OWN_VERB = re.compile(
    r"\s?(?:is|was|are|were|remains?|stays?|suffers?|follows?|see|below|above|accordingly|changes?|improves?|did|does"
    r"|will|has|had|can|unchanged|unaffected|monitored|logged|tracked|in Table|in the appendix|见|如|另|未|不|将)\b"
)
_BINDS = re.compile(r"\b(?:for|of|in|as|is|=)\s(?:the |its )?$|的\s?$")
_PARTS = re.compile(r"[,;，；。(（](?!\d)|\band its\b|\bwhile\b|\bwhen\b")
_CLOSES = re.compile(r"\.?\s?(?:score|rate|[@%])?\s?[)）,，;；]|\s?(?:on|for|of|in)\b|\s?$")
_MEASURED = re.compile(r"\b(?:in terms of|measured (?:by|in|as)|in|the|as|of|namely|best|highest|lowest)\s(?:the )?$")


def _unbound(text: str, numeral: Numeral, metrics: list[terms.Hit]) -> bool:
    """Does the only metric stand behind the number, in a clause of its own?"""
    if not metrics or any(hit.start < numeral.start for hit in metrics):
        return False
    hit = metrics[0]
    between = text[numeral.end : hit.start]
    if _OWN_VERB.match(text, hit.end) and not _BINDS.search(between):
        return True
    if not _PARTS.search(between):
        return False
    if "(" in between or "（" in between:  # "91.2 (SVHN, accuracy)"
        return not _CLOSES.match(text, hit.end)
    return not _MEASURED.search(between)
