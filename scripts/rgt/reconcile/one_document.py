"""One document, number by number; and the patch for what is certain."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rgt.errors import RgtError
from rgt.reconcile.aliases import document_aliases
from rgt.reconcile.alignment import REASON
from rgt.reconcile.passages import Block, Passage, Table, read_document, text_of
from rgt.reconcile.places import Outcome
from rgt.reconcile.sentences import sentence_outcomes
from rgt.reconcile.sheet import Asked, Sheet, ask
from rgt.reconcile.table_cells import table_outcomes
from rgt.reconcile.vocabulary import Vocabulary

# "X (ours)", "we propose X": the method that a document calls its own
_BEHIND = re.compile(r"\s?[(（](?:ours|our method|proposed|本文(?:方法)?|我们(?:的方法)?)[)）]", re.I)
_PROPOSES = re.compile(
    r"\b(?:we|paper|work)\s+(?:propose|present|introduce|describe|release)s?\b|(?:我们|本文)(?:提出|介绍"
    r"|发布)(?:了|的)?|\b(?:our method|our model|our approach),?\s",
    re.I,
)
_NEAR = 60  # characters behind "we propose"
_FEW, _PART = 2, 0.125  # errors of a block that is otherwise right: no more than two, or than an eighth


@dataclass
class Examined:
    counts: Counter[str] = field(default_factory=Counter)  # by kind; certain and likely drifts apart
    kept: list[Outcome] = field(default_factory=list)  # what is reported, or everything when asked for
    unreadable: str = ""
    asked: Asked | None = None  # for the sheet, where there is one


@dataclass
class Task:
    """What is wanted of each document."""

    everything: bool = False  # also what matches
    sheet: Sheet | None = None


def examine(path: Path, vocabulary: Vocabulary, task: Task) -> Examined:
    """The numbers of one document, or the sentence why it could not be read."""
    examined = Examined()
    try:
        blocks = list(read_document(path))
        vocabulary = vocabulary.extended(document_aliases(blocks, vocabulary))
        ours = own_method(blocks, vocabulary)
        judged: list[tuple[Block, list[Outcome]]] = []
        for block in blocks:
            read = table_outcomes if isinstance(block, Table) else sentence_outcomes
            found = list(read(block, vocabulary, ours))  # type: ignore[arg-type]
            doubt_reading(found)
            judged.append((block, found))
        outcomes = [outcome for _, found in judged for outcome in found]
        doubt_names(outcomes)
        if task.sheet:
            examined.asked = ask(task.sheet.name(path), judged, task.sheet.rows, vocabulary)
        for outcome in outcomes:
            kind = outcome.kind
            examined.counts[kind if kind != "drift" or outcome.sure != "likely" else "likely"] += 1
            if kind not in ("match", "derived", "other") or task.everything:
                outcome.place.weigh = None  # it holds the vocabulary, and this goes to another process
                examined.kept.append(outcome)
    except RgtError as error:
        examined.unreadable = error.message
    except Exception as error:  # markup can be anything; one document hides no other
        examined.unreadable = f"{path} has something no reader knows: {type(error).__name__}: {str(error)[:100]}"
    return examined


def doubt_reading(outcomes: list[Outcome]) -> None:
    """Where more than an eighth of a block differs, it is about another subset or release, or was not understood."""
    drifts = [one for one in outcomes if one.kind == "drift" and one.sure != "anchored"]
    compared = len(drifts) + sum(one.kind in ("match", "derived") for one in outcomes)
    strange = sum(not one.equals for one in drifts)  # what is another value of the file was copied from it
    if strange > max(_FEW, _PART * compared):
        for one in drifts:
            one.kind, one.sure, one.why = "unexplained", "", f"{len(drifts)} of {compared} numbers here differ"


def doubt_names(outcomes: list[Outcome]) -> None:
    """Nobody writes the values of B for those of A again and again: there the name of B was read as A."""
    taken: dict[tuple[frozenset[tuple[str, str]], ...], list[Outcome]] = {}
    for one in outcomes:
        if one.kind == "drift" and one.equals and one.sure == "likely" and REASON not in one.why:
            a, b = one.facts[0].terms.items(), one.equals[0].terms.items()
            taken.setdefault((frozenset(a - b), frozenset(b - a)), []).append(one)
    for same in taken.values():
        for one in same if len(same) > 1 else ():
            one.kind, one.sure, one.why = "unexplained", "", f"{len(same)} times here: a name that was misread"


def own_method(blocks: list[Block], vocabulary: Vocabulary) -> tuple[str, str] | None:
    if vocabulary.ours:
        return vocabulary.ours
    votes: Counter[tuple[str, str]] = Counter()
    for block in blocks:
        texts = [block.text] if isinstance(block, Passage) else [cell.text for row in block.rows for cell in row[:2]]
        for text in texts:
            if "urs)" in text or "roposed)" in text or "本文" in text or "我们" in text:
                for hit in vocabulary.find(text):
                    if hit.axis in _entities(vocabulary) and _BEHIND.match(text, hit.end):
                        votes[hit.axis, hit.term] += 3
            for cue in _PROPOSES.finditer(text) if len(text) < 20_000 else ():
                ahead = [
                    hit
                    for hit in vocabulary.find(text[cue.end() : cue.end() + _NEAR])
                    if hit.axis in _entities(vocabulary)
                ]
                if ahead:
                    votes[ahead[0].axis, ahead[0].term] += 1
    for block in blocks[:6]:  # what a title names
        title = block.text if isinstance(block, Passage) and len(block.text) < 80 else block.heading
        named = {(hit.axis, hit.term) for hit in vocabulary.find(title) if hit.axis in _entities(vocabulary)}
        if len(named) == 1 and not re.search(r"\d\.\d", title):
            votes[min(named)] += 2
            break
    return votes.most_common(1)[0][0] if votes else vocabulary.leader


def _entities(vocabulary: Vocabulary) -> set[str]:
    return {axis for axis in vocabulary.axes if axis not in ("metric", "split", "statistic", "dataset")}


# -- a patch


def corrected(path: Path, outcomes: list[Outcome]) -> list[str]:
    """A unified diff that writes the right digits into the lines where this is certain and can be done in one way."""
    certain = [
        one
        for one in outcomes
        if one.kind == "drift" and one.sure != "likely" and one.expected is not None and not one.equals
    ]
    if not certain or path.suffix.lower() in (".docx", ".pptx", ".pdf"):
        return []
    old = text_of(path).splitlines(keepends=True)
    new = list(old)
    for outcome in certain:
        numeral, at = outcome.place.numeral, outcome.place.line - 1
        decimals = max(
            0,
            len(re.sub(r".*?\.|[^\d.].*", "", outcome.place.reported))
            if "." in outcome.place.reported.split("±")[0]
            else 0,
        )
        written = re.match(r"[-+−]?[\d.,]*\d(?:e-?\d+)?", outcome.place.reported)
        if (
            not written
            or outcome.why in ("the spread differs", "mean and spread are swapped")
            or not 0 <= at < len(new)
        ):
            continue
        right = f"{outcome.expected:.{decimals}f}" if "e" not in written[0] else f"{outcome.expected:.{decimals}e}"
        places = [m.start() for m in re.finditer(rf"(?<![\d.]){re.escape(written[0])}(?![\d]|\.\d)", new[at])]
        if len(places) == 1 and numeral.role not in ("runs",):
            new[at] = new[at][: places[0]] + right + new[at][places[0] + len(written[0]) :]
    return list(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}"))
