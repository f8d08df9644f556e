"""A form whose every field stands in a document of the skill: what is true, and the sentence it is read from."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trials.case import Box
from worlds import facts, quiz


@dataclass(frozen=True)
class Fact:
    """A group in the pattern is the answer itself; a pattern without one is a sentence that means the truth."""

    truth: Any
    page: str
    pattern: str
    ways: tuple[str, ...] = ()  # other spellings of a word, as patterns


Sheet = dict[str, Fact]


def truth(sheet: Sheet) -> dict[str, Any]:
    return {key: fact.truth for key, fact in sheet.items()}


def pages(sheet: Sheet) -> tuple[str, ...]:
    return tuple(dict.fromkeys(fact.page for fact in sheet.values()))


def look_up(sheet: Sheet) -> Callable[[Box], None]:
    """The reference: every answer out of the page an agent would read."""

    def fields(box: Box) -> dict[str, Any]:
        return {key: _read(facts.page(box, fact.page), fact) for key, fact in sheet.items()}

    return quiz.writer(fields)


def _read(page: str, fact: Fact) -> Any:
    found = facts.said(page, fact.pattern)
    if not re.compile(fact.pattern).groups:
        return fact.truth
    return found if isinstance(fact.truth, str) else float(found.replace(",", ""))


def verifier(sheet: Sheet) -> Callable[[Box], list[str]]:
    """Words are judged by their letters in any case, numbers and true/false by value."""

    def verify(box: Box) -> list[str]:
        answer = box.read(quiz.FORM)
        words = {key: spelled(answer.get(key), fact) for key, fact in sheet.items() if isinstance(fact.truth, str)}
        return quiz.settled(answer, truth(sheet), words)

    return verify


def spelled(said: object, fact: Fact) -> bool:
    word = " ".join(str(said).strip(" `\"'").split())
    return any(re.fullmatch(way, word, re.IGNORECASE) for way in (re.escape(fact.truth), *fact.ways))
