"""The catalogue, read from the documents themselves: every `### U7 · short name` below references/ and profiles/.

An entry's lines at column 0 tell triage when it applies, beside the paragraphs for people:

    signature: `regex`     a line of the log matches it; repeatable, any one will do
    not: `regex`           a look-alike: a line that matches this too is another disease
    exit: 137, -9          exit codes that fit; an entry with nothing else is offered when only the code is known
    stage: start           where in a run it happens: start, mid or end
    rank: cascade          usually the aftermath of another failure; `hint`: also seen in healthy logs
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("references", "profiles")
STAGES = ("start", "mid", "end")
KINDS = ("root", "cascade", "hint")

_HEAD = re.compile(r"^### ([A-Z]+\d+) · (.+)$", re.M)
_NEXT = re.compile(r"^#{1,3} ", re.M)
_ATTRIBUTE = re.compile(r"^(signature|not|exit|stage|rank): *(.+?) *$", re.M)
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
    stages: tuple[str, ...] = ()
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
    return tuple(
        entry
        for path in files
        for entry in parse(path.read_text(encoding="utf-8", errors="replace"), path.relative_to(root).as_posix())
    )


def parse(text: str, path: str) -> Iterator[Entry]:
    for head in _HEAD.finditer(text):
        following = _NEXT.search(text, head.end())
        body = text[head.end() : following.start() if following else len(text)]
        yield _entry(head[1], head[2].strip(), path, body)


def _entry(name: str, title: str, path: str, body: str) -> Entry:
    attributes: dict[str, list[str]] = {}
    for key, value in _ATTRIBUTE.findall(body):
        attributes.setdefault(key, []).append(_bare(value))
    words = {key: [word.strip() for value in attributes.get(key, []) for word in value.split(",")]
             for key in ("exit", "stage", "rank")}  # fmt: skip
    prose = _paragraphs(_ATTRIBUTE.sub("", body))
    return Entry(
        id=name,
        name=title,
        path=path,
        anchor=_anchor(f"{name} · {title}"),
        signatures=tuple(attributes.get("signature", ())),
        excluders=tuple(attributes.get("not", ())),
        exits=tuple(int(word) for word in words["exit"] if re.fullmatch(r"-?\d{1,3}", word)),
        stages=tuple(words["stage"]),
        kind=words["rank"][0] if words["rank"] else "root",
        cause=_flat(prose.get("Cause", "")),
        fix=_flat(prose.get("Fix", "")),
        check=_flat(prose.get("Check", "")),
        examples=tuple(_examples(prose.get("Symptom", ""))),
    )


def _bare(value: str) -> str:
    """Backticks keep Markdown from eating the stars of a regex; they are not part of it."""
    return value[1:-1] if len(value) > 2 and value[0] == value[-1] == "`" else value


def _paragraphs(body: str) -> dict[str, str]:
    parts = _PARAGRAPH.split(body)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _flat(text: str) -> str:
    return " ".join(text.split()).strip(" ·")


def _examples(symptom: str) -> Iterator[str]:
    for fence in _FENCE.findall(symptom):
        yield from (line for line in fence.splitlines() if line.strip())
    for _, code in _CODE.findall(_FENCE.sub("", symptom)):
        yield " ".join(code.split())


def _anchor(heading: str) -> str:
    """GitHub's rule: lower case, punctuation gone, spaces to dashes."""
    return re.sub(r"[^\w\- ]", "", heading.lower().replace("`", "")).replace(" ", "-")
