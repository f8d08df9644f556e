"""Regular expressions, compiled at their first use: a line needs few, and compiling all costs more than judging it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator


class Regex:
    __slots__ = ("compiled", "flags", "text")

    def __init__(self, text: str, flags: int = 0) -> None:
        self.text, self.flags = text, flags
        self.compiled: re.Pattern[str] | None = None

    def pattern(self) -> re.Pattern[str]:
        if self.compiled is None:
            self.compiled = re.compile(self.text, self.flags)
        return self.compiled

    def match(self, text: str, start: int = 0) -> re.Match[str] | None:
        return self.pattern().match(text, start)

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        return self.pattern().search(text, start)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        return self.pattern().fullmatch(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        return self.pattern().finditer(text)

    def sub(self, new: str | Callable[[re.Match[str]], str], text: str) -> str:
        return self.pattern().sub(new, text)
