"""A form whose every field stands in a document of the skill: what is true, and the sentence it is read from.

Example:
    CASE = sheet.case({"profiles/vastai.md": {"hours_left": (48, r"deleted (\\d+) h after")}}, {"hours_left": 24}, ...)

A group in the pattern is the answer itself; a pattern without one is a sentence that means the truth. Behind it stand
other spellings of a word, as patterns.
"""

from __future__ import annotations

import re
from typing import Any

from trials.case import Box, Case
from worlds import facts, quiz

Sheet = dict[str, dict[str, tuple[Any, ...]]]  # document -> field -> truth, pattern, other spellings


def case(sheet: Sheet, old: dict[str, Any], **about: Any) -> Case:
    """The reference reads the documents; the naive answer has the `old` values that a model remembers."""
    rows = {key: row for fields in sheet.values() for key, row in fields.items()}
    truth = {key: row[0] for key, row in rows.items()}

    def look_up(box: Box) -> dict[str, Any]:
        pages = {name: facts.page(box, name) for name in sheet}
        return {key: _read(pages[name], *row) for name, fields in sheet.items() for key, row in fields.items()}

    def verify(box: Box) -> list[str]:
        """Words are judged by their letters in any case, numbers and true/false by value."""
        answer = box.read(quiz.FORM)
        words = {key: _is_spelled(answer.get(key), *row) for key, row in rows.items() if isinstance(row[0], str)}
        return quiz.settled(answer, truth, words)

    naive = quiz.writer(lambda box: {**truth, **old})
    return Case(reads=tuple(sheet), verify=verify, reference=quiz.writer(look_up), naive=naive, **about)


def _read(page: str, truth: Any, pattern: str, *_: str) -> Any:
    found = facts.said(page, pattern)
    if not re.compile(pattern).groups:
        return truth
    return found if isinstance(truth, str) else float(found.replace(",", ""))


def _is_spelled(said: object, truth: str, _: str, *ways: str) -> bool:
    word = " ".join(str(said).strip(" `\"'$").split())
    return any(re.fullmatch(way, word, re.IGNORECASE) for way in (re.escape(truth), *ways))
