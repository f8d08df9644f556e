"""Reading the documents: headings, links, code, front matter. One place that knows Markdown."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

_CJK = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uffef]")
_FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.S)
_EXPLICIT_ANCHOR = re.compile(r"<a (?:id|name)=\"([^\"]+)\"")


@dataclass(frozen=True)
class Snippet:
    """A piece of a document: a link target, inline code or a fenced block (with its language in `info`)."""

    text: str
    line: int
    info: str = ""


@dataclass
class Document:
    path: Path  # relative to the repository
    text: str
    anchors: set[str] = field(default_factory=set)
    links: list[Snippet] = field(default_factory=list)
    codes: list[Snippet] = field(default_factory=list)
    fences: list[Snippet] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """The budget's measure: characters / 4, a CJK character counts 1."""
        wide = len(_CJK.findall(self.text))
        return wide + (len(self.text) - wide) // 4

    def targets(self) -> set[Path]:
        """What its links lead to in the repository, there or not."""
        return {path for link in self.links if (path := resolved(self.path, link.text.partition("#")[0]))}

    def front_matter(self) -> dict[str, Any]:
        match = _FRONT_MATTER.match(self.text)
        data = yaml.safe_load(match[1]) if match else {}
        return data if isinstance(data, dict) else {}


def resolved(source: Path, name: str) -> Path | None:
    """A link's target relative to the repository; None when it climbs out of it."""
    path = os.path.normpath(source.parent / name)
    return None if path.startswith("..") else Path(path)


def load_all(root: Path) -> list[Document]:
    """Every Markdown file that is part of the repository."""
    files = sorted(path for path in repository_files(root) if path.suffix == ".md")
    return [parse(path.relative_to(root), path.read_text(encoding="utf-8")) for path in files]


def repository_files(root: Path) -> list[Path]:
    """Tracked and new files, without what git ignores; a folder without git (an installed copy) is read whole."""
    command = ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        return [path for path in root.rglob("*") if path.is_file() and not _made_here(path.relative_to(root))]
    return [path for name in listed.split("\0") if name and (path := root / name).is_file()]


def _made_here(path: Path) -> bool:
    """What running things leaves in the folder; .gitignore names the same."""
    first, kept = path.parts[0], (".ci", ".github", ".gitignore")
    hidden = first[0] == "." and first not in kept
    return hidden or first in ("demo-out", "build", "dist") or first.endswith(".egg-info")


def parse(path: Path, text: str) -> Document:
    document = Document(path, text, anchors=set(_EXPLICIT_ANCHOR.findall(text)))
    # front matter is blanked, not cut, so that line numbers stay true
    body = _FRONT_MATTER.sub(lambda match: "\n" * match[0].count("\n"), text)
    previous = Token("", "", 0)
    for token in _parser().parse(body):
        line = (token.map or [0])[0] + 1
        if token.type == "fence":
            document.fences.append(Snippet(token.content, line, token.info.strip()))
        elif token.type == "inline":
            if previous.type == "heading_open":
                _add_anchor(document.anchors, token)
            _read_inline(document, token.children or [], line)
        previous = token
    return document


@functools.cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable("table")


def _add_anchor(anchors: set[str], heading: Token) -> None:
    """GitHub's rule: lower case, punctuation gone, spaces to dashes, repeats numbered."""
    text = "".join(child.content for child in heading.children or [] if child.type in ("text", "code_inline"))
    slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
    numbered, count = slug, 0
    while numbered in anchors:
        count += 1
        numbered = f"{slug}-{count}"
    anchors.add(numbered)


def _read_inline(document: Document, children: list[Token], line: int) -> None:
    for child in children:
        if child.type in ("softbreak", "hardbreak"):
            line += 1
        elif child.type == "code_inline":
            document.codes.append(Snippet(child.content, line))
        elif child.type in ("link_open", "image"):
            target = child.attrGet("href" if child.type == "link_open" else "src")
            document.links.append(Snippet(str(target or ""), line))


def catalogue_entries(document: Document) -> Iterator[tuple[str, int, str]]:
    """(id, line, body) of every `### U7 · short name` entry."""
    heads = list(re.finditer(r"^### ([A-Z]+\d+) · .+$", document.text, re.M))
    for head in heads:
        following = re.search(r"^#{1,3} ", document.text[head.end() :], re.M)
        end = head.end() + following.start() if following else len(document.text)
        yield head[1], document.text.count("\n", 0, head.start()) + 1, document.text[head.end() : end]
