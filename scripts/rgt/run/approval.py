"""The user's approval of one act: a phrase with a random word, shown once everything else holds, repeated by the user.

Nobody can hold the word in advance, and it is good for this run, id, profile, command and list of losses only, for half
an hour. It lies beside the pulled folder, or in the guard's state, in a file of mode 0600; the user's words are kept.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import RgtError

SECONDS = 30 * 60
_SYLLABLES = [first + second for first in "bdfgklmnprstvz" for second in "aeiou"]


@dataclass(frozen=True)
class Act:
    """What exactly is approved; any difference needs another approval."""

    run_id: str
    box_id: str
    profile: str
    command: str
    abandoned: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {**self.__dict__, "abandoned": sorted(self.abandoned)}


@dataclass(frozen=True)
class Phrase:
    text: str
    expires: float  # seconds since 1970

    @property
    def until(self) -> str:
        return time.strftime("%H:%M UTC", time.gmtime(self.expires))


def state_file(local: Path) -> Path:
    here = local.absolute()
    return here.with_name(f".{here.name}.approval.json")


def phrase_for(local: Path, act: Act) -> Phrase:
    """The phrase that is still good for this act, or a new one, written down for its owner only."""
    known, _ = _read(local, act)
    if known:
        return known
    word = "".join(secrets.choice(_SYLLABLES) for _ in range(4))
    phrase = Phrase(f"end {act.box_id or act.run_id}: {word}", time.time() + SECONDS)
    state = {"phrase": phrase.text, "expires": phrase.expires, "act": act.as_dict()}
    files.write_json(state_file(local), state, mode=0o600)
    return phrase


def problem(local: Path, act: Act, words: str) -> str:
    """Why these words do not approve this act; empty when they do."""
    phrase, why = _read(local, act)
    if not words:
        return "no words of the user were given"
    if not phrase:
        return why
    return "" if phrase.text in words else f"their words are {words[:200]!r}, which do not hold the phrase"


def spend(local: Path) -> None:
    """One phrase, one act."""
    with contextlib.suppress(OSError):
        state_file(local).unlink()


def _read(local: Path, act: Act) -> tuple[Phrase | None, str]:
    try:
        state = files.read_json(state_file(local))
        phrase, asked = Phrase(str(state["phrase"]), float(state["expires"])), dict(state["act"])
    except (RgtError, KeyError, TypeError, ValueError):
        return None, "no phrase was shown to the user for this"
    if asked != act.as_dict():
        other = [name for name, value in act.as_dict().items() if asked.get(name) != value]
        return None, f"the phrase that was shown is for another {' and '.join(other)}"
    if not time.time() < phrase.expires <= time.time() + SECONDS:
        return None, f"the phrase expired at {phrase.until}"
    return phrase, ""
