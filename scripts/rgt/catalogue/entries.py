"""The catalogue, read from the documents themselves: every `### U7 · short name` below references/ and profiles/.

An entry's lines at column 0 tell triage when it applies, beside the paragraphs for people:

    signature: `regex`     a line of the log matches it; repeatable, any one will do
    near: `regex`          context without which it is another disease: the same line, one within NEAR lines of it, or
                           any line of another given file (kernel log, events) matches; repeatable, any one will do.
                           On one line, an entry whose context is there beats one without (/dev/shm, not the disk)
    not: `regex`           a look-alike: a line that matches this too is another disease
    where: a - b > 0.2 * c what the signature's groups took, as numbers or sizes (GiB): a look-alike has others
    exit: 137, -9          exit codes that fit; an entry with nothing else is offered when only the code is known
    curve: nan             the log's own numbers show it: the loss ends as `nan`, it `explodes`, its `scale` collapses,
                           it is exactly `zero` from one line to the next
    lasting: yes           a run that goes on has not outlived it: it trains on, without its GPU
    restart: yes           it passes: a supervised job is restarted; `once`: a second time means that it does not pass;
                           `never`: it would be met again. Without it: restarted only if it came further than before
    rank: cascade          usually the aftermath of another failure; `hint`: also seen in healthy logs;
                           `general`: a kind of failure, told only when no other entry explains the same one;
                           `fallback`: what can be said of any exception, told where it would else be only "unknown"
    over: AX9, UC25        entries of which it is a special case: on one line it is told instead of them, and instead
                           of a general one or an aftermath in the whole message
    from: torch, peft      modules that print its signatures; tests/test_signature_wordings.py looks them up there

In Cause and Fix `{key|the key}` stands for what the signature's group (?P<key>...) took (or key2, key3 in other
branches of one regex); `frame` and `source` are the user's last frame and the code it quotes, `code` the code that
raised, `library` its package (`libraries`: behind the one that called it), `message` what it said. Without it the
default is printed, without backticks around the slot; an empty one takes its () along. Where an entry is general, a
fallback or about many messages, what the exception's own message says is to be done stands before its Fix.

Files below SHORT hold the classics, which only triage prints: name, attributes, Cause and Fix are enough.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import pkgutil
import posixpath
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rgt import environment, files, units
from rgt.bundle import ROOT
from rgt.errors import RgtError

FOLDERS = ("references", "profiles")
SHORT = "references/signatures/"
CURVES = ("nan", "explodes", "scale", "zero")
RESTARTS = ("yes", "once", "never")
PACKED = "catalogue.json"  # in box.pyz, which has no documents
KINDS = ("root", "general", "cascade", "hint", "fallback")
FIELDS = ("Symptom", "Cause", "Fix", "Check", "Source")
NEAR = 60  # lines between a signature's line and its context

_HEAD = re.compile(r"^### ([A-Z]+\d+) · (.+)$", re.M)
_NEXT = re.compile(r"^#{1,3} ", re.M)
_ATTRIBUTE = re.compile(r"^(signature|near|not|exit|curve|rank|restart|lasting|where|over|from): *(.+?) *$", re.M)
_PARAGRAPH = re.compile(rf"\*\*({'|'.join(FIELDS)})\*\*")
_FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.M | re.S)
_TERM = re.compile(r"([-+]?) *(?:([\d.]+) *\* *)?([a-z]\w*)")
_LINK = re.compile(r"\[([^\]\n]+)\]\(([^)\s]+)\)")
_CODE = re.compile(r"(`+)(.+?)\1", re.S)


@dataclass(frozen=True)
class Entry:
    id: str
    name: str
    path: str  # relative to the bundle
    anchor: str
    signatures: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    excluders: tuple[str, ...] = ()
    exits: tuple[int, ...] = ()
    curve: str = ""
    kind: str = "root"
    restart: str = ""  # yes, once, never
    lasting: bool = False
    where: str = ""
    over: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()  # that print it
    cause: str = ""
    fix: str = ""
    check: str = ""
    source: str = ""
    examples: tuple[str, ...] = ()  # the log lines of its Symptom

    def fits(self, parts: Mapping[str, str | None]) -> bool:
        """Whether the numbers that its signature took are as `where` says; one that is missing is no evidence."""
        if not self.where:
            return True
        taken = {name.rstrip("0123456789"): part.replace("bytes", "B") for name, part in parts.items() if part}
        with contextlib.suppress(RgtError, ValueError, KeyError):
            terms = [_TERM.findall(side) for side in self.where.split(">")]
            more, less = (
                sum(float(sign + (factor or "1")) * units.size(taken[name]) for sign, factor, name in side)
                for side in terms
            )
            return more > less
        return False

    @property
    def short(self) -> bool:
        return self.path.startswith(SHORT)

    @property
    def read(self) -> str:
        """Where more is written; a short entry says all that it knows."""
        return "" if self.short else f"{self.path}#{self.anchor}"


def load(root: Path = ROOT) -> tuple[Entry, ...]:
    """Every entry of every document, in the order of the files."""
    return read(root).entries


@dataclass(frozen=True)
class Catalogue:
    entries: tuple[Entry, ...]
    ways: dict[str, list[list[str]]]  # of each signature and each context; see literal_ways


def documents(root: Path = ROOT) -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (root / folder).rglob("*.md"))


@functools.cache
def read(root: Path = ROOT) -> Catalogue:
    """The entries and their regexes taken apart; parsed once, then kept in the user's cache while no file changes."""
    if not (root / FOLDERS[0]).is_dir():
        with contextlib.suppress(OSError):  # on a box
            return unpack(json.loads(pkgutil.get_data("rgt", PACKED) or b""))
    paths = documents(root)
    stats = ((path, path.stat()) for path in [*paths, Path(__file__)])
    state = [[str(path), status.st_size, status.st_mtime_ns] for path, status in stats]
    kept = Path(environment.cache()) / f"catalogue-{hashlib.sha256(os.fsencode(root)).hexdigest()[:12]}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        book = json.loads(kept.read_bytes())
        if book["state"] == state:
            return unpack(book)
    texts = [(path.read_text(encoding="utf-8", errors="replace"), path.relative_to(root).as_posix()) for path in paths]
    entries = tuple(entry for text, path in texts for entry in parse(text, path))
    ways = {}
    for pattern in {pattern for entry in entries for pattern in (*entry.signatures, *entry.near)}:
        with contextlib.suppress(re.error, RecursionError, OverflowError):  # the documents' check names it
            ways[pattern] = literal_ways(pattern)
    with contextlib.suppress(OSError, RgtError):  # a home that cannot be written costs time, not the answer
        kept.parent.mkdir(parents=True, exist_ok=True)
        rows = [asdict(entry) for entry in entries]
        files.write_bytes(kept, json.dumps({"state": state, "entries": rows, "ways": ways}).encode())
    return Catalogue(entries, ways)


def pack() -> bytes:
    """What tells one failure from another, without the prose: for a box."""
    prose, book = ("cause", "fix", "check", "source", "examples", "modules"), read()
    rows = [{name: value for name, value in asdict(one).items() if name not in prose and value} for one in book.entries]
    rows = [row for row in rows if {"signatures", "exits", "curve"} & set(row)]
    return json.dumps({"entries": rows, "ways": book.ways}, sort_keys=True).encode()


def unpack(book: dict[str, Any]) -> Catalogue:
    for row in book["entries"]:
        row.update({name: tuple(value) for name, value in row.items() if isinstance(value, list)})
    return Catalogue(tuple(Entry(**row) for row in book["entries"]), book["ways"])


def parse(text: str, path: str) -> Iterator[Entry]:
    """The entries of one document."""

    def plain_link(link: re.Match[str]) -> str:
        """`[the ladder](../run-local/local-oom.md)` leads nowhere outside of its document."""
        target, _, anchor = link[2].partition("#")
        if ":" in target:
            return f"{link[1]} ({link[2]})"
        file = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path
        return f"{link[1]} ({file}{'#' if anchor else ''}{anchor})"

    for head in _HEAD.finditer(text):
        following = _NEXT.search(text, head.end())
        body = text[head.end() : following.start() if following else len(text)]
        attributes: dict[str, list[str]] = defaultdict(list)
        for key, value in _ATTRIBUTE.findall(body):
            # backticks keep Markdown from eating the stars of a regex; they are not part of it
            quoted = len(value) > 2 and value[0] == value[-1] == "`"
            attributes[key].append(value[1:-1] if quoted else value)
        exits, ranks, over, modules = (
            tuple(word.strip() for value in attributes[key] for word in value.split(","))
            for key in ("exit", "rank", "over", "from")
        )
        parts = _PARAGRAPH.split(_ATTRIBUTE.sub("", body))
        prose = {**dict.fromkeys(FIELDS, ""), **dict(zip(parts[1::2], parts[2::2], strict=True))}
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
            near=tuple(attributes["near"]),
            excluders=tuple(attributes["not"]),
            exits=tuple(int(word) for word in exits if re.fullmatch(r"-?\d{1,3}", word)),
            curve=attributes["curve"][0] if attributes["curve"] else "",
            kind=ranks[0] if ranks else "root",
            restart=attributes["restart"][0] if attributes["restart"] else "",
            lasting=bool(attributes["lasting"]),
            where=attributes["where"][0] if attributes["where"] else "",
            over=over,
            modules=modules,
            examples=(*fences, *inline),
            **{key.lower(): _LINK.sub(plain_link, " ".join(prose[key].split()).strip(" ·")) for key in FIELDS[1:]},
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
