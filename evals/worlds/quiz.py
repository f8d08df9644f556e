"""A case of the kind "what is true today": a form, checked field by field; the reference comes out of the profiles."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from trials.case import Box, differs
from worlds import facts

FORM = "answer.json"


def verifier(truth: dict[str, Any]) -> Callable[[Box], list[str]]:
    def verify(box: Box) -> list[str]:
        return wrong(box.read(FORM), truth)

    return verify


def wrong(answer: dict[str, Any], truth: dict[str, Any]) -> list[str]:
    found = []
    for key, value in truth.items():
        found += differs(key, facts.plain(answer.get(key)), facts.plain(value))
    return found


def writer(fields: Callable[[Box], dict[str, Any]]) -> Callable[[Box], None]:
    def write(box: Box) -> None:
        box.write(FORM, fields(box))

    return write


def remembered(truth: dict[str, Any], **old: Any) -> Callable[[Box], None]:
    """The truth as a model remembers it: some fields are years old."""
    return writer(lambda box: {**truth, **old})


def note(name: str, text: str) -> Callable[[Box], None]:
    """A world of one file."""
    return lambda box: box.write(name, text)


def command(said: object, start: str, *needs: str) -> bool:
    """A command line that begins so and has each of the needs (with | between spellings), in any order."""
    try:
        words = shlex.split(str(said).strip().strip("`$").replace("=", " "))
    except ValueError:
        return False
    line = f" {' '.join(words)} "
    return line.startswith(f" {start} ") and all(any(f" {way} " in line for way in need.split("|")) for need in needs)


def settled(answer: dict[str, Any], truth: dict[str, Any], checks: dict[str, bool]) -> list[str]:
    """Fields with a check of their own are judged by it, the others by the truth."""
    plainly = {key: value for key, value in truth.items() if key not in checks}
    failed = [key for key, fine in checks.items() if not fine]
    return wrong(answer, plainly) + [f"{key} is wrong: {str(answer.get(key))[:160]}" for key in failed]
