"""Regular expressions at their first use: most lines need few, and `re` with its compiling costs more than judging one.

from rgt.guard.lazy_regex import Regex, re      the module `re`, imported when it is first asked for something
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from re import compile as Regex
else:

    class _Re:
        def __getattr__(self, name):
            import re

            return getattr(re, name)

    re = _Re()

    class Regex:
        def __init__(self, text):
            self.__dict__["text"] = text

        def __getattr__(self, name):
            """A method of the compiled expression, kept for the next time."""
            compiled = self.__dict__.setdefault("compiled", None) or re.compile(self.text)
            self.__dict__.update({"compiled": compiled, name: getattr(compiled, name)})
            return self.__dict__[name]


__all__ = ["Regex", "re"]
