"""One document, number by number; and the patch for what is certain."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from rgt.errors import RgtError
from rgt.reconcile.passages import Block, Definitions, Table, read_document, text_of
from rgt.reconcile.places import Outcome, Place
from rgt.reconcile.sentences import sentence_outcomes
from rgt.reconcile.sheet import Asked, Sheet, ask
from rgt.reconcile.table_cells import table_outcomes
from rgt.reconcile.vocabulary import Vocabulary

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
        judged: list[tuple[Block, list[Outcome]]] = []
        for block in read_document(path):
            read = table_outcomes if isinstance(block, Table) else sentence_outcomes
            found = list(read(block, vocabulary))  # type: ignore[arg-type]
            doubt_reading(found)
            for one in found if block.defined else ():
                _defined(one.place, block.defined)
            judged.append((block, found))
        if task.sheet:
            examined.asked = ask(task.sheet.name(path), judged, task.sheet.rows, vocabulary)
        for outcome in (outcome for _, found in judged for outcome in found):
            kind = outcome.kind
            examined.counts[kind if kind != "drift" or outcome.sure != "likely" else "likely"] += 1
            if kind not in ("match", "derived", "other") or task.everything:
                examined.kept.append(outcome)
    except RgtError as error:
        examined.unreadable = error.message
    except Exception as error:  # markup can be anything; one document hides no other
        examined.unreadable = f"{path} has something no reader knows: {type(error).__name__}: {str(error)[:100]}"
    return examined


def _defined(place: Place, definitions: Definitions) -> None:
    """A number that a macro writes is mended where the macro is defined."""
    written = place.reported.rstrip("% ").split("±")[0].strip()
    number = re.compile(rf"(?<![\d.]){re.escape(written)}(?!\d|\.\d)")
    lines = {line for body, line in definitions.get(place.line, ()) if number.search(body)}
    if len(lines) == 1:
        place.used, place.where = place.line, f"used in line {place.line}"
        place.line = lines.pop()


def doubt_reading(outcomes: list[Outcome]) -> None:
    """Where more than an eighth of a block differs, it is about another subset or release, or was not understood."""
    drifts = [one for one in outcomes if one.kind == "drift" and one.sure != "anchored"]
    compared = len(drifts) + sum(one.kind in ("match", "derived") for one in outcomes)
    strange = sum(not one.equals for one in drifts)  # what is another value of the file was copied from it
    if strange > max(_FEW, _PART * compared):
        for one in drifts:
            one.kind, one.sure, one.why = "unexplained", "", f"{len(drifts)} of {compared} numbers here differ"


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
        reported = outcome.place.reported
        decimals = len(re.sub(r".*?\.|[^\d.].*", "", reported)) if "." in reported.split("±")[0] else 0
        written = re.match(r"[-+−]?[\d.,]*\d(?:e-?\d+)?", reported)
        if (
            not written
            or outcome.why.startswith(("the spread differs", "mean and spread are swapped"))
            or not 0 <= at < len(new)
        ):
            continue
        right = f"{outcome.expected:.{decimals}f}" if "e" not in written[0] else f"{outcome.expected:.{decimals}e}"
        places = [m.start() for m in re.finditer(rf"(?<![\d.]){re.escape(written[0])}(?![\d]|\.\d)", new[at])]
        if len(places) == 1 and numeral.role not in ("runs",):
            new[at] = new[at][: places[0]] + right + new[at][places[0] + len(written[0]) :]
    return list(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}"))
