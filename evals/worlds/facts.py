"""A profile's facts, for reference solutions: an answer is computed from the file an agent would read."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Any

from trials.case import Box, Broken

import yaml


class Profile:
    def __init__(self, box: Box, name: str) -> None:
        self.path = box.skill / "profiles" / f"{name}.md"

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def front(self) -> dict[str, Any]:
        data: dict[str, Any] = yaml.safe_load(self.text.split("---\n", 2)[1])
        return data

    def value(self, *keys: str) -> str:
        node: Any = self.front
        for key in keys:
            node = node[key]
        return str(node["value"])

    def says(self, keys: tuple[str, ...], pattern: str) -> bool:
        """The fact matches; () looks at the whole file."""
        return bool(re.search(pattern, self.value(*keys) if keys else self.text))

    def number(self, keys: tuple[str, ...], pattern: str) -> float:
        return float(self.word(keys, pattern))

    def word(self, keys: tuple[str, ...], pattern: str) -> str:
        return said(self.value(*keys) if keys else self.text, pattern)


def page(box: Box, name: str) -> str:
    """A document of the skill without its line breaks, for said()."""
    return " ".join((box.skill / name).read_text(encoding="utf-8").split())


def said(text: str, pattern: str) -> str:
    """What the document says there; Broken when it says it no longer."""
    match = re.search(pattern, text)
    if not match:
        raise Broken(f"no longer said: {pattern}")
    return match[1] if match.groups() else match[0]


def plain(value: object) -> object:
    """An answer without what does not matter: spaces, an int for a float, where in a command its flags stand."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, (int, float)):
        return float(value)
    words = ["-y" if word == "--yes" else word for word in str(value).strip().strip("`$").split()]
    return " ".join(sorted(words, key=lambda word: (word.startswith("-"), word if word.startswith("-") else "")))
