"""Which checkpoints stay: the newest good ones, the best one, and one every so many steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from checkpointing import disk
from checkpointing.errors import CheckpointError

Entry = dict[str, Any]


@dataclass(frozen=True)
class Keep:
    last: int = 2  # if the newest turns out to be damaged, there is one before it
    best: str | None = None  # a metric's name
    direction: str = "down"  # down: less is better
    every: int | None = None  # steps

    def __post_init__(self) -> None:
        if self.last < 1:
            raise CheckpointError(f"keep_last is {self.last}; at least 1, or there is nothing to resume from")
        if self.direction not in ("down", "up"):
            raise CheckpointError(f"direction is {self.direction!r}; expected 'down' (less is better) or 'up'")
        if self.every is not None and self.every < 1:
            raise CheckpointError(f"every is {self.every}; expected a number of steps from 1")


def whole(run: Path) -> Callable[[Entry], bool]:
    """Good enough to count on without reading it all again: it was verified when it was written."""

    def good(entry: Entry) -> bool:
        try:
            disk.look(run / entry["path"], entry)
        except (disk.Damaged, OSError):
            return False
        return True

    return good


def doomed(entries: list[Entry], keep: Keep, good: Callable[[Entry], bool]) -> list[Entry]:
    """What may go, oldest first. Only good ones count, and one that is not good is never touched: look at it first."""
    sound = [entry for entry in entries if good(entry)]
    kept = {entry["path"] for entry in sound[-keep.last :]}
    kept |= {entry["path"] for entry in sound if keep.every and entry["step"] % keep.every == 0}
    kept |= {entry["path"] for entry in _best(sound, keep)}
    return [entry for entry in sound if entry["path"] not in kept]


def _best(entries: list[Entry], keep: Keep) -> Iterable[Entry]:
    name = keep.best
    scored = [entry for entry in entries if name in entry.get("metrics", {})] if name else []
    if not scored:
        return []
    sign = 1 if keep.direction == "down" else -1
    return [min(scored, key=lambda entry: (sign * entry["metrics"][name], -entry["step"]))]
