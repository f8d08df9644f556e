"""<!-- claim:C1 --> beside a number says which claim it is; readers turn \\claim{C1} into it."""

from __future__ import annotations

import re

from rgt.reconcile.judgement import Outcome, Place
from rgt.reconcile.numerals import Numeral, find_numerals
from rgt.reconcile.readings import agrees, slip
from rgt.reconcile.vocabulary import Vocabulary

ANCHOR = re.compile(r"<!--\s*claim:\s*([\w-]+)\s*-->")


def anchored(
    bare: str, anchor: re.Match[str], line: int, where: str, vocabulary: Vocabulary, taken: set[int]
) -> Outcome:
    """An anchor speaks of the number before it, or, at the start of a sentence, of the one behind it."""
    free = [n for n in find_numerals(bare, vocabulary.units, in_cell=True) if n.start not in taken and n.role != "runs"]
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
