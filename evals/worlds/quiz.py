"""A case of the kind "what is true today": a form, checked field by field; the reference comes out of the profiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trials.case import Box
from worlds import facts

FORM = "answer.json"


def verifier(truth: dict[str, Any]) -> Callable[[Box], list[str]]:
    return lambda box: settled(box.read(FORM), truth, {})


def writer(fields: Callable[[Box], dict[str, Any]]) -> Callable[[Box], None]:
    def write(box: Box) -> None:
        box.write(FORM, fields(box))

    return write


def note(name: str, text: str) -> Callable[[Box], None]:
    """A world of one file."""
    return lambda box: box.write(name, text)


def settled(answer: dict[str, Any], truth: dict[str, Any], checks: dict[str, bool]) -> list[str]:
    """Fields with a check of their own are judged by it, the others by the truth."""
    fine = {key: facts.plain(answer.get(key)) == facts.plain(value) for key, value in truth.items()} | checks
    return [f"{key} is wrong: {str(answer.get(key))[:160]}" for key in truth if not fine[key]]
