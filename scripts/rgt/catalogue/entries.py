"""The catalogue, read from the documents themselves: every `### U7 · short name` below references/ and profiles/.

An entry's lines at column 0 tell triage when it applies, beside the paragraphs for people:

    signature: `regex`     a line of the log matches it; repeatable, any one will do
    not: `regex`           a look-alike: a line that matches this too is another disease
    exit: 137, -9          exit codes that fit; an entry with nothing else is offered when only the code is known
    rank: cascade          usually the aftermath of another failure; `hint`: also seen in healthy logs
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgt.bundle import ROOT

FOLDERS = ("references", "profiles")
KINDS = ("root", "cascade", "hint")

_HEAD = re.compile(r"^### ([A-Z]+\d+) · (.+)$", re.M)
_NEXT = re.compile(r"^#{1,3} ", re.M)
_ATTRIBUTE = re.compile(r"^(signature|not|exit|rank): *(.+?) *$", re.M)
_PARAGRAPH = re.compile(r"\*\*(Symptom|Cause|Fix|Check|Source)\*\*")
_FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.M | re.S)
_CODE = re.compile(r"(`+)(.+?)\1", re.S)


@dataclass(frozen=True)
class Entry:
    id: str
    name: str
    path: str  # relative to the bundle
    anchor: str
    signatures: tuple[str, ...] = ()
    excluders: tuple[str, ...] = ()
    exits: tuple[int, ...] = ()
    kind: str = "root"
    cause: str = ""
    fix: str = ""
    check: str = ""
    examples: tuple[str, ...] = ()  # the log lines of its Symptom

    @property
    def read(self) -> str:
        return f"{self.path}#{self.anchor}"


@functools.cache
def load(root: Path = ROOT) -> tuple[Entry, ...]:
    """Every entry of every document, in the order of the files."""
    files = sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.md"))
    texts = [(path.read_text(encoding="utf-8", errors="replace"), path.relative_to(root).as_posix()) for path in files]
    return tuple(entry for text, path in texts for entry in parse(text, path))


def parse(text: str, path: str) -> Iterator[Entry]:
    """The entries of one document."""
    for head in _HEAD.finditer(text):
        following = _NEXT.search(text, head.end())
        body = text[head.end() : following.start() if following else len(text)]
        attributes: dict[str, list[str]] = defaultdict(list)
        for key, value in _ATTRIBUTE.findall(body):
            # backticks keep Markdown from eating the stars of a regex; they are not part of it
            quoted = len(value) > 2 and value[0] == value[-1] == "`"
            attributes[key].append(value[1:-1] if quoted else value)
        exits, ranks = (
            [word.strip() for value in attributes[key] for word in value.split(",")] for key in ("exit", "rank")
        )
        parts = _PARAGRAPH.split(_ATTRIBUTE.sub("", body))
        prose = {"Symptom": "", "Cause": "", "Fix": "", "Check": "", **dict(zip(parts[1::2], parts[2::2], strict=True))}
        fences = [line for fence in _FENCE.findall(prose["Symptom"]) for line in fence.splitlines() if line.strip()]
        inline = [" ".join(code.split()) for _, code in _CODE.findall(_FENCE.sub("", prose["Symptom"]))]
        name, title = head[1], head[2].strip()
        yield Entry(
            id=name,
            name=title,
            path=path,
            # GitHub's rule: lower case, punctuation gone, spaces to dashes
            anchor=re.sub(r"[^\w\- ]", "", f"{name} · {title}".lower()).replace(" ", "-"),
            signatures=tuple(attributes["signature"]),
            excluders=tuple(attributes["not"]),
            exits=tuple(int(word) for word in exits if re.fullmatch(r"-?\d{1,3}", word)),
            kind=ranks[0] if ranks else "root",
            examples=(*fences, *inline),
            **{key.lower(): " ".join(prose[key].split()).strip(" ·") for key in ("Cause", "Fix", "Check")},
        )


# -- what a signature's regex is made of: the literal words it cannot do without

sre: Any = vars(re).get("_parser") or vars(re)["sre_parse"]  # Python 3.10 has it under the second name
SHORTEST = 4  # letters that every way to match must share with the line: triage's prefilter looks for them
_WAYS = 64  # of one regex; beyond it an alternative counts as "anything"
_FEW = 4  # letters of a [class] that are tried one by one
REPEATS = tuple(getattr(sre, name) for name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") if hasattr(sre, name))

Way = list[str]  # runs of letters, each of which is in the line when this way matches; the last one may still grow


def literal_ways(pattern: str) -> list[Way]:
    """The ways in which a regex can match, each as its runs of literal text.

    Example: "CUDA (?:out of memory|error: \\w+)" gives [["CUDA out of memory"], ["CUDA error: "]]
    """
    return [[run for run in way if run] for way in _after_items(sre.parse(pattern), [[""]])]


def _after_items(items: Any, ways: list[Way]) -> list[Way]:
    for kind, value in items:
        if kind is sre.AT:  # \b, ^ and $ take no room
            continue
        letters = chr(value) if kind is sre.LITERAL else ""
        if kind is sre.IN and len(value) <= _FEW and all(member is sre.LITERAL for member, _ in value):
            letters = "".join(chr(letter) for _, letter in value)
        if kind is sre.SUBPATTERN:
            ways = _after_items(value[-1], ways)
        elif kind is sre.BRANCH and len(ways) * len(value[1]) <= _WAYS:
            ways = [way for branch in value[1] for way in _after_items(branch, ways)]
        elif letters and (len(letters) == 1 or len(ways) * len(letters) <= _WAYS):
            ways = [[*way[:-1], way[-1] + letter] for letter in letters for way in ways]
        else:
            if kind in REPEATS and value[0] >= 1:
                ways = _after_items(value[2], ways)
            ways = [[*way, ""] for way in ways]
    return ways
