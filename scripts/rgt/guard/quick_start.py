"""What a hook cannot afford to import: `re` and `json` cost more than most command lines take to judge.

`Regex` and `re` compile when they are first used; `read_json` reads without the module; WORDS are the lists of
programs.json: verbs, things, options and programs by what the guard takes them for.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from re import compile as Regex
    from typing import Any
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


class _Context:
    """What json.JSONDecoder tells the reader in C."""

    strict, object_hook, object_pairs_hook, parse_float, parse_int = False, None, None, float, int
    parse_constant, memo = float, {}  # type: ignore[var-annotated]


def read_json(raw: bytes) -> Any:
    text = raw.decode("utf-8", "replace").strip()
    try:
        import _json

        value, end = _json.make_scanner(_Context())(text, 0)  # type: ignore[arg-type]
        if end == len(text):
            return value
    except (ImportError, StopIteration, AttributeError, TypeError):
        pass
    import json

    return json.loads(text)


class _Like:
    """The expressions of patterns.txt, each compiled when it is first used."""

    def __init__(self, file: str) -> None:
        with open(file, encoding="utf-8") as opened:
            blocks = opened.read().split("\n\n")
        rows = [[row for row in block.split("\n") if row[:1] not in "#="] for block in blocks[2:]]
        self.texts = {name: "".join(row[2:] for row in lines) for name, *lines in filter(None, rows)}

    def text(self, name: str) -> str:
        text = self.texts[name]
        for part in ("literal", "ending_verb"):
            text = text.replace(f"<{part}>", self.texts[part])
        return text

    def __getattr__(self, name: str) -> re.Pattern[str]:
        compiled = self.__dict__[name] = re.compile(self.text(name))
        return compiled


__all__ = ["LIKE", "PROGRAMS", "WORDS", "Regex", "re", "read_json"]

LIKE = _Like(os.path.join(os.path.dirname(os.path.abspath(__file__)), "patterns.txt"))
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs.json"), "rb") as _file:
    PROGRAMS: dict[str, Any] = read_json(_file.read())
WORDS: dict[str, frozenset[str]] = {
    name: frozenset(text.split()) for name, text in PROGRAMS.items() if isinstance(text, str)
}
