"""What a signature's regex is made of: the literal words it cannot do without.

Example:
    words("CUDA (?:out of memory|error: \\w+)")     [["CUDA out of memory"], ["CUDA error: "]]
"""

from __future__ import annotations

import warnings
from typing import Any

with warnings.catch_warnings():  # Python 3.11 moved it
    warnings.simplefilter("ignore", DeprecationWarning)
    try:
        from re import _parser  # type: ignore[attr-defined]
    except ImportError:
        import sre_parse as _parser

sre: Any = _parser
SHORTEST = 4  # letters that every way to match must share with the line: the prefilter looks for them
_WAYS = 64  # of one regex; beyond it an alternative counts as "anything"
_FEW = 4  # letters of a [class] that are tried one by one
REPEATS = tuple(getattr(sre, name) for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") if hasattr(sre, name))

Way = list[str]  # runs of letters, each of which is in the line when this way matches; the last one may still grow


def words(pattern: str) -> list[Way]:
    """The ways in which the regex can match, each as its runs of literal text."""
    return [[run for run in way if run] for way in _sequence(sre.parse(pattern), [[""]])]


def _sequence(items: Any, ways: list[Way]) -> list[Way]:
    for kind, value in items:
        ways = _item(kind, value, ways)
    return ways


def _item(kind: Any, value: Any, ways: list[Way]) -> list[Way]:
    if kind is sre.LITERAL:
        return [[*way[:-1], way[-1] + chr(value)] for way in ways]
    if kind is sre.AT:  # \b, ^ and $ take no room
        return ways
    if kind is sre.SUBPATTERN:
        return _sequence(value[-1], ways)
    if kind is sre.BRANCH and len(ways) * len(value[1]) <= _WAYS:
        return [way for branch in value[1] for way in _sequence(branch, ways)]
    if kind is sre.IN and _is_few(value) and len(ways) * len(value) <= _WAYS:
        return [[*way[:-1], way[-1] + chr(letter)] for _, letter in value for way in ways]
    if kind in REPEATS and value[0] >= 1:
        ways = _sequence(value[2], ways)
    return [[*way, ""] for way in ways]


def _is_few(members: Any) -> bool:
    return len(members) <= _FEW and all(kind is sre.LITERAL for kind, _ in members)
