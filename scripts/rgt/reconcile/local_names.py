"""Names that only one document uses: "checkpoint averaging" for ckpt_avg, 平均回报 for the column that states returns.

They are found by their letters, or learned from tables, where most values of a row say what the row is about.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from rgt.reconcile.facts import key_words
from rgt.reconcile.vocabulary import Hit, Vocabulary

LEFT_OUT = re.compile(
    r"^\W*(?:w/o\.?|without|no|minus|removing|removed|remove|drop(?:ping)?|disabl\w+|ablat\w+|不含|去掉|去除|移除|不使用|不用|无|取消|[-–−])\s*"
    r"(?:the |our )?|\s*(?:removed|off|disabled)\W*$",
    re.I,
)
_SHORTEST = 4  # letters of a name that is worth learning, Chinese signs count twice


@dataclass
class LocalNames:
    meanings: dict[str, tuple[str, str]] = field(default_factory=dict)  # lower case text -> axis and term
    _pattern: re.Pattern[str] | None = None

    def learn(self, text: str, axis: str, term: str, vocabulary: Vocabulary) -> None:
        core = " ".join(LEFT_OUT.sub("", text).split()).strip(" *_†‡:：()（）").lower()
        size = sum(2 if sign > "\u2e80" else sign.isalnum() for sign in core)
        if size < _SHORTEST or core.replace(".", "").isdigit() or len(core) > 60:
            return
        if vocabulary.find(core):
            return  # it has a meaning already
        if self.meanings.get(core, (axis, term)) == (axis, term):
            self.meanings[core] = (axis, term)
        else:
            del self.meanings[core]  # said of two: of neither
        self._pattern = None

    def find(self, text: str) -> list[Hit]:
        if not self.meanings:
            return []
        if self._pattern is None:
            longest = sorted(map(re.escape, self.meanings), key=len, reverse=True)
            self._pattern = re.compile("|".join(rf"(?<![A-Za-z]){name}(?![A-Za-z])" for name in longest), re.I)
        low = text.lower()
        if len(low) != len(text):
            return []
        return [Hit(*self.meanings[match[0]], *match.span()) for match in self._pattern.finditer(low)]

    def add(self, text: str, hits: list[Hit]) -> list[Hit]:
        """The names of the vocabulary in a text, with those that are only used here."""
        own = self.find(text)
        if not own:
            return hits
        kept = [
            hit for hit in hits if not any(one.start <= hit.start < one.end and one.axis == hit.axis for one in own)
        ]
        return sorted([*kept, *own], key=lambda hit: hit.start)


def written_here(text: str, vocabulary: Vocabulary) -> LocalNames:
    local = LocalNames()
    for pattern, axis, term in vocabulary.spelled_out:
        for match in {match[0].lower() for match in pattern.finditer(text)}:
            if key_words(match) != term.removeprefix("no ") and len(match.split()) <= len(term.split()) + 1:
                local.learn(match, axis, term, vocabulary)
    return local
