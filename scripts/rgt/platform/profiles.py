"""What `down` needs to know of a platform: the front matter of profiles/<name>.md, and commands made of its words.

A command is a list of words; no shell sees it, and an id is one word or part of one, whatever is in it.
"""

from __future__ import annotations

import copy
import functools
import os
import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgt import schema
from rgt.bundle import PROFILES
from rgt.errors import bad_input, from_os_error, lacking

_FRONT = re.compile(r"---\n(.*?)\n---\n", re.S)
_HOLE = re.compile(r"<([a-z][a-z0-9_-]*)>")
_VALUE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+=-]*")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def load(name: str) -> dict[str, Any]:
    """A profile, or NAME:VARIANT, a platform that shares it: verbs and meter replaced key by key, all else whole."""
    name, _, variant = name.partition(":")
    path = Path(name) if name.endswith(".md") else PROFILES / f"{name}.md"
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        known = sorted(one.stem for one in PROFILES.glob("[a-z]*.md"))
        raise bad_input(f"there is no profile {name}; known are {', '.join(known)}, or give the path of one") from None
    profile = copy.deepcopy(_front_matter(text, str(path)))
    variants = profile.pop("variants", {})
    if variant and variant not in variants:
        raise bad_input(f"{path} has no variant {variant}; it has {', '.join(sorted(variants)) or 'none'}")
    own = variants.get(variant, {})
    parts = {key: {**profile[key], **own.get(key, {})} for key in ("verbs", "meter")}
    return {**profile, **own, **parts}


def every(folder: Path = PROFILES) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each profile and each variant with its facts."""
    for path in sorted(folder.glob("[a-z]*.md")):
        variants = _front_matter(path.read_text(encoding="utf-8"), str(path)).get("variants", {})
        for variant in ("", *(f":{name}" for name in variants)):
            yield path.stem + variant, load(f"{path}{variant}")


@functools.lru_cache(maxsize=16)  # a profile has up to seven variants, and YAML is slow
def _front_matter(text: str, path: str) -> dict[str, Any]:
    from rgt import yaml_text

    front = _FRONT.match(text)
    try:
        data = yaml_text.parse(front[1]) if front else None
    except yaml_text.YamlError as error:
        raise bad_input(f"{path} is not YAML: {error}") from None
    schema.check(data, "profile", path)
    return data or {}


@dataclass(frozen=True)
class Reply:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Command:
    """One command of a provider, its holes filled."""

    words: list[str]
    stdin: str = ""
    source: str = ""  # where the provider documents it

    @property
    def text(self) -> str:
        return shlex.join(self.words)

    def run(self, seconds: float) -> Reply:
        """A key joins only here, by stdin."""
        missing = [name for name in _VARIABLE.findall(self.stdin) if name not in os.environ]
        if missing:
            raise lacking(f"{missing[0]} is not set in this environment; the command needs it")
        stdin = _VARIABLE.sub(lambda hole: os.environ[hole[1]], self.stdin).encode()
        try:
            done = subprocess.run(self.words, input=stdin, capture_output=True, timeout=seconds)
        except FileNotFoundError:
            how = f"its documentation ({self.source.split(',')[0]}) says how" if self.source else "install it"
            raise lacking(f"{self.words[0]} is not installed here: {how}, or use the provider's console") from None
        except subprocess.TimeoutExpired:
            return Reply(124, "", f"did not end within {seconds:g} s")
        except OSError as error:
            raise from_os_error(error, f"run {self.words[0]}") from None
        return Reply(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def placeholders(box_id: str, more: Iterable[str]) -> dict[str, str]:
    """Values for the holes, from --id and the NAME=VALUE of --set."""
    for pair in more:
        if pair.find("=") < 1:
            raise bad_input(f"--set takes NAME=VALUE, not {pair!r}")
    return ({"id": box_id} if box_id else {}) | dict(pair.split("=", 1) for pair in more)


def command(fact: dict[str, Any] | None, values: dict[str, str]) -> Command | None:
    """None when the platform has no such command."""
    if not fact or "argv" not in fact:
        return None
    for name, value in values.items():
        if not _VALUE.fullmatch(value):
            allowed = "letters, digits and . _ : / @ + = - only, no leading dash"
            raise bad_input(f"{value!r} cannot be the {name} of anything: {allowed}")
    wanted = {hole for word in fact["argv"] for hole in _HOLE.findall(word)}
    missing = sorted(wanted - set(values))
    if missing:
        how = "--id ID" if missing[0] == "id" else f"--set {missing[0]}=VALUE"
        raise bad_input(f"the command of this platform needs its {missing[0]}: give {how} ({shlex.join(fact['argv'])})")
    words = [_HOLE.sub(lambda hole: values[hole[1]], word) for word in fact["argv"]]
    return Command(words, fact.get("stdin", ""), fact.get("source", ""))
