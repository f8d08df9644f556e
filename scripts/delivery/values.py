r"""Numbers between the markers of a document, written from the evidence. Nothing outside of them is touched.

    Markdown, HTML   <!-- value:acc-ours percent spread -->92.0 ± 2.0 %<!-- claim:acc-ours --><!-- /value -->
    LaTeX            \claimvalue[percent spread]{acc-ours}{$92.0 \pm 2.0$\,\%}

Words behind the id: percent, spread, n. Markers inside code (fences, backticks, verbatim) are examples and stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from delivery.digits import Style
from rgt.errors import RgtError, bad_input, from_os_error
from rgt.evidence import Project

SUFFIXES = frozenset([".md", ".markdown", ".html", ".htm", ".tex"])
_WORDS = frozenset(["percent", "spread", "n"])
_MARKED = re.compile(
    r"(<!--\s*value:\s*(?P<id>[\w-]+)(?P<words>[\w\s]*?)\s*-->)(?P<body>.*?)(<!--\s*/value\s*-->)", re.S
)
_OPEN = re.compile(r"<!--\s*value:\s*(?P<id>[\w-]+)")
_MACRO = re.compile(r"(\\claimvalue(?:\[(?P<words>[^\]]*)\])?\{(?P<id>[\w-]+)\}\{)(?P<body>(?:[^{}]|\{[^{}]*\})*)(\})")
_MACRO_OPEN = re.compile(r"\\claimvalue(?:\[[^\]]*\])?\{(?P<id>[\w-]+)\}")
_CODE = re.compile(
    r"^ {0,3}(```+|~~~+)[^\n]*\n.*?(?:^ {0,3}\1[ \t\r]*$|\Z)|(?<!`)(`+)(?!`)[^\n]*?(?<!`)\2(?!`)", re.S | re.M
)
_TEX_CODE = re.compile(
    r"\\begin\{(verbatim|lstlisting|minted)\}.*?\\end\{\1\}|\\verb(\W).*?\2"
    r"|(?<!\\)%[^\n]*|\\(?:newcommand|renewcommand|providecommand)[^\n]*",
    re.S,
)


@dataclass
class Document:
    """A document with its numbers written anew."""

    path: Path
    old: str
    new: str = ""
    markers: int = 0
    stale: list[tuple[int, str]] = field(default_factory=list)  # line, sentence
    problems: list[tuple[int, str, str]] = field(default_factory=list)  # line, code, sentence


def read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None
    except UnicodeDecodeError as error:
        raise bad_input(f"{path} is not UTF-8 (byte {error.start}); nothing is written into it") from None


def rendered(path: Path, project: Project) -> Document:
    document = Document(path, read(path))
    tex = path.suffix.lower() == ".tex"
    marked, opened, code = (_MACRO, _MACRO_OPEN, _TEX_CODE) if tex else (_MARKED, _OPEN, _CODE)
    hidden = [match.span() for match in code.finditer(document.old)]
    if path.suffix.lower() in (".html", ".htm"):
        hidden = []
    pieces, at = [], 0
    seen: list[tuple[int, int]] = []
    for match in marked.finditer(document.old):
        if any(start <= match.start() < end for start, end in hidden):
            continue
        seen.append(match.span())
        document.markers += 1
        inner = _inner(document, match, project, tex)
        pieces += [document.old[at : match.start("body")], inner]
        at = match.end("body")
    document.new = "".join([*pieces, document.old[at:]])
    for line, claim_id in _unclosed(document.old, opened, [*hidden, *seen]):
        document.problems.append((line, "malformed", f"the marker of {claim_id} is not closed"))
    return document


def _inner(document: Document, match: re.Match[str], project: Project, tex: bool) -> str:
    line = document.old.count("\n", 0, match.start()) + 1
    body: str = match["body"]
    if "<!-- value:" in body or "\\claimvalue" in body:
        document.problems.append((line, "malformed", f"the marker of {match['id']} is not closed before the next"))
        return body
    try:
        text = _text(project, match["id"], (match["words"] or "").split(), tex)
    except RgtError as error:
        known = any(claim["id"] == match["id"] for claim in project.claims)
        document.problems.append((line, "malformed" if known else "unknown-claim", error.message))
        return body
    if text != body:
        document.stale.append((line, f"{match['id']} says {_bare(body) or 'nothing'}, the evidence {_bare(text)}"))
    return text


def _text(project: Project, claim_id: str, words: list[str], tex: bool) -> str:
    strange = set(words) - _WORDS
    if strange:
        raise bad_input(f"{claim_id}: {sorted(strange)[0]} is no word of a marker; use percent, spread, n")
    style = Style("percent" in words, "spread" in words, "n" in words, tex)
    number = style.text(project.claim(claim_id))
    return number if tex else f"{number}<!-- claim:{claim_id} -->"


def _bare(text: str) -> str:
    return " ".join(re.sub(r"<!--.*?-->", "", text).split())[:60]


def _unclosed(text: str, opened: re.Pattern[str], known: list[tuple[int, int]]) -> Iterator[tuple[int, str]]:
    for match in opened.finditer(text):
        if not any(start <= match.start() < end for start, end in known):
            yield text.count("\n", 0, match.start()) + 1, match["id"]
