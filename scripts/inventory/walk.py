"""Every file below a directory, near ones first, bounded in time, entries and depth.

Example:
    for directory, entry, prepared in Walk(root, deadline, stopped): ...

`prepared` is the run directory (one with a run.json) around the entry, or empty; `stopped` gets a sentence about every
place that was left out.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

DEPTH = 8
ENTRIES = 200_000
CROWDED = 20_000  # entries of one directory; more is a data set, not a run
_SAID = 20  # places that could not be looked at and are named
_SKIPPED = frozenset(
    "node_modules site-packages dist-packages __pycache__ venv env conda miniconda3 anaconda3 proc sys dev".split()
)

Met = tuple[str, os.DirEntry[str], str]
_Place = tuple[str, int, str]  # a directory, its depth, the run directory it is in


class Walk:
    """Breadth first, so that what is near is found even when the time ends. Links come last, and no place twice."""

    def __init__(self, root: str, deadline: float, stopped: list[str]) -> None:
        self.deadline, self.stopped = deadline, stopped
        self.edge: list[_Place] = [(root, 0, "")]
        self.links: list[_Place] = []
        self.seen: set[tuple[int, int]] = set()
        self.entries = 0

    def __iter__(self) -> Iterator[Met]:
        while self.edge or self.links:
            edge, self.edge = self.edge or self.links, []
            if edge is self.links:
                self.links = []
            for directory, depth, prepared in edge:
                if time.monotonic() > self.deadline or self.entries > ENTRIES:
                    why = f"more than {ENTRIES} entries" if self.entries > ENTRIES else "the time was over"
                    self.stopped.append(f"the walk ended in {directory}: {why}")
                    return
                yield from self._directory(directory, depth, prepared)

    def _directory(self, directory: str, depth: int, prepared: str) -> Iterator[Met]:
        try:
            place = os.stat(directory)
            if (place.st_dev, place.st_ino) in self.seen:
                return
            self.seen.add((place.st_dev, place.st_ino))
            with os.scandir(directory) as scan:
                entries = [entry for entry, _ in zip(scan, range(CROWDED), strict=False)]
        except OSError as error:
            self._say(f"{directory} cannot be read: {error.strerror}")
            return
        self.entries += len(entries)
        if len(entries) == CROWDED:
            self._say(f"{directory} has {CROWDED} entries or more; only the first were looked at")
        names = {entry.name for entry in entries}
        if "run.json" in names:
            prepared = prepared or directory
        if "pyvenv.cfg" in names or "conda-meta" in names:
            return
        for entry in entries:
            if not self._enter(entry, depth, prepared):
                yield directory, entry, prepared

    def _say(self, message: str) -> None:
        if len(self.stopped) < _SAID:
            self.stopped.append(message)

    def _enter(self, entry: os.DirEntry[str], depth: int, prepared: str) -> bool:
        """Put a directory on the list; True when the entry was one."""
        try:
            if not entry.is_dir():
                return False
            skipped = entry.name.startswith(".") or entry.name in _SKIPPED
            if not skipped and depth < DEPTH:
                (self.links if entry.is_symlink() else self.edge).append((entry.path, depth + 1, prepared))
        except OSError:  # a link that leads in circles
            pass
        return True
