"""Regular expressions at their first use: most lines need few, and `re` with its compiling costs more than judging one.

from rgt.guard.lazy_regex import Regex, re      the module `re`, imported when it is first asked for something
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator
else:

    class _Re:
        def __getattr__(self, name):
            import re

            return getattr(re, name)

    re = _Re()

__all__ = ["Regex", "re"]


class Regex:
    __slots__ = ("compiled", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.compiled: re.Pattern[str] | None = None

    def pattern(self) -> re.Pattern[str]:
        if self.compiled is None:
            self.compiled = re.compile(self.text)
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
