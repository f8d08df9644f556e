"""The words of program_words.json: verbs, things, options and programs by what the guard takes them for."""

from __future__ import annotations

import os

from rgt.guard.quick_json import read_json

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "program_words.json"), "rb") as _file:
    _data = read_json(_file.read())
STARTER_ROWS: list[str] = _data.pop("starters")
WORDS: dict[str, frozenset[str]] = {name: frozenset(text.split()) for name, text in _data.items()}
