"""The rules for `signature:` lines: each regex compiles, stays linear on any line, and matches its own Symptom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from rgt.catalogue.entries import CURVES, KINDS, REPEATS, SHORTEST, Entry, literal_ways, sre

_LOOPS = 4  # unbounded repeats in one regex
_BANNED = {
    sre.ASSERT: "a look-around",
    sre.ASSERT_NOT: "a look-around",
    sre.GROUPREF: "a back-reference",
    sre.GROUPREF_EXISTS: "a back-reference",
}


def problems(entry: Entry) -> Iterator[str]:
    """What is wrong with the lines of an entry that triage reads."""
    for name, patterns, letters in (
        ("signature", entry.signatures, SHORTEST),
        ("near", entry.near, SHORTEST - 1),  # looked for in fewer logs
        ("not", entry.excluders, 0),  # tried only on lines that matched
    ):
        for pattern in patterns:
            yield from (f"{entry.id}'s {name} {problem}: `{pattern}`" for problem in regex_problems(pattern, letters))
    shown = entry.examples or not entry.short
    if entry.signatures and shown and not any(_matches(p, line) for p in entry.signatures for line in entry.examples):
        yield f"{entry.id}: no signature matches a log line of its Symptom (write the line there, in backticks)"
    if entry.short and not (entry.signatures or entry.exits or entry.curve):
        yield f"{entry.id}: has no signature: and no exit:, and nobody reads this file"
    if entry.curve and entry.curve not in CURVES:
        yield f"{entry.id}: curve is one of {', '.join(CURVES)}"
    if entry.kind not in KINDS:
        yield f"{entry.id}: rank is one of {', '.join(KINDS)}"


def _matches(pattern: str, line: str) -> bool:
    try:
        return re.search(pattern, line) is not None
    except re.error:
        return True  # said already


def regex_problems(pattern: str, letters: int = SHORTEST) -> Iterator[str]:
    """Why this regex may not be a signature, or the context of one."""
    try:
        tree = sre.parse(pattern)
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        yield f"is not a regular expression: {error}"
        return
    if tree.state.flags & ~re.UNICODE:
        yield "has inline flags; spell the cases out"
    yield from sorted(set(_slow(tree, inside=False)))
    if sum(_loops(tree)) > _LOOPS or sum(_loops(tree, anything=True)) > 1:
        yield "repeats too often without a bound; use one .* or [^)]* or .{0,80}"
    if any(max(map(len, way), default=0) < letters for way in literal_ways(pattern)):
        yield f"can match without {letters} fixed letters in a row; name more of the message"


def _slow(items: Any, inside: bool) -> Iterator[str]:
    for kind, value in items:
        if kind in _BANNED:
            yield f"has {_BANNED[kind]}"
        elif kind in REPEATS:
            if inside and value[0] != value[1]:
                yield "has a quantifier inside a quantified group"
            yield from _slow(value[2], inside or value[1] > 1)
        elif kind is sre.SUBPATTERN:
            yield from _slow(value[-1], inside)
        elif kind is sre.BRANCH:
            for branch in value[1]:
                yield from _slow(branch, inside)


def _loops(items: Any, anything: bool = False) -> Iterator[int]:
    """One for each unbounded repeat (with `anything`: of a dot) on the longest way through."""
    for kind, value in items:
        if kind in REPEATS:
            dot = len(value[2]) == 1 and value[2][0][0] is sre.ANY
            yield int(value[1] is sre.MAXREPEAT and (dot or not anything)) + sum(_loops(value[2], anything))
        elif kind is sre.SUBPATTERN:
            yield from _loops(value[-1], anything)
        elif kind is sre.BRANCH:
            yield max((sum(_loops(branch, anything)) for branch in value[1]), default=0)
