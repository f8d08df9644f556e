"""Every file below a folder that may be somebody's whole disk: near ones first, each once, bounded in time and count.

Example:
    stopped: list[str] = []
    for directory, entry, run in walk("exp", time.monotonic() + 20, stopped): ...
    stopped      what was not looked at, one sentence for each place; without the list it is told on stderr

Hidden folders, folders of packages and the kernel's own are left out. A link comes last, and only if what it leads to
was not met: twenty thousand links to one log are one log.
"""

from __future__ import annotations

import functools
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from rgt.report import progress

SECONDS = 20.0  # for a walk that nobody limits otherwise
ENTRIES = 200_000
_CROWDED = 10  # a directory with a tenth of all that is looked at is a data set, and is not listed to its end
_NAMED = 20  # places that could not be looked at and are named
_SKIPPED = frozenset("node_modules site-packages dist-packages __pycache__".split())
_INSTALLED = {"pyvenv.cfg", "conda-meta"}  # in the top folder of an environment
_KERNEL = ("/proc", "/sys", "/dev")

Met = tuple[str, os.DirEntry[str], str]  # a directory, a file in it, the run directory that they are in
tell = functools.cache(progress)  # the same sentence once: a page asks every few seconds


def walk(
    root: str,
    deadline: float | None = None,
    stopped: list[str] | None = None,
    *,
    depth: int = 1000,
    links: bool = True,
    inside_runs: bool = True,
    most: int = ENTRIES,
) -> Iterator[Met]:
    """`deadline` is of time.monotonic(). `links`: to folders, too. Not `inside_runs`: no folder below a run.json."""
    told: list[str] = [] if stopped is None else stopped

    def enters(entry: os.DirEntry[str], above: int, run: str) -> bool:
        allowed = above < depth and (inside_runs or not run) and (links or not entry.is_symlink())
        return allowed and entry.name[0] != "." and entry.name not in _SKIPPED

    yield from _Walk(time.monotonic() + SECONDS if deadline is None else deadline, most, told).below(root, enters)
    for sentence in told if stopped is None else ():
        tell(sentence)


class _Walk:
    def __init__(self, deadline: float, most: int, stopped: list[str]) -> None:
        self.deadline, self.most, self.stopped, self.count = deadline, most, stopped, 0
        self.seen: set[tuple[int, int]] = set()  # device and inode

    def below(self, root: str, enters: Callable[[os.DirEntry[str], int, str], bool]) -> Iterator[Met]:
        """Breadth first, so that what is near is found even when the time ends."""
        places, linked = deque([(root, 0, "")]), deque[tuple[str, int, str]]()
        files: list[Met] = []  # links to files: met when no file itself is left
        for kernel in _KERNEL if os.path.realpath(root) not in _KERNEL else ():
            self._is_new(kernel)
        while places or linked:
            directory, depth, run = (places or linked).popleft()
            if time.monotonic() > self.deadline or self.count > self.most:
                why = f"more than {self.most} entries" if self.count > self.most else "the time was over"
                self.stopped.append(f"the walk ended in {directory}: {why}; name a folder further down")
                break
            device, entries = self._list(directory)
            names = {entry.name for entry in entries}
            run = run or (directory if "run.json" in names else "")
            for entry in [] if names & _INSTALLED else entries:
                try:
                    link, folder = entry.is_symlink(), entry.is_dir()
                except OSError:  # a link that leads in circles
                    continue
                if folder and enters(entry, depth, run):
                    (linked if link else places).append((entry.path, depth + 1, run))
                elif link and not folder:
                    files.append((directory, entry, run))
                elif not folder:
                    self.seen.add((device, entry.inode()))
                    yield directory, entry, run
        for met in files:
            if self._is_new(met[1].path):
                yield met

    def _list(self, directory: str) -> tuple[int, list[os.DirEntry[str]]]:
        """The directory's device and entries; nothing of one that was met before, or cannot be read."""
        try:
            place = os.stat(directory)
            with os.scandir(directory) as scan:
                known = (place.st_dev, place.st_ino) in self.seen
                entries = [] if known else list(islice(scan, self.most // _CROWDED))
        except FileNotFoundError:  # runs/ before the first one, or a folder that was just removed
            return 0, []
        except OSError as error:
            self._add(f"{directory} cannot be read: {error.strerror}")
            return 0, []
        self.seen.add((place.st_dev, place.st_ino))
        self.count += len(entries)
        if len(entries) == self.most // _CROWDED:
            self._add(f"{directory} has {len(entries)} entries or more; only the first were looked at")
        return place.st_dev, entries

    def _is_new(self, path: str) -> bool:
        """Whether a link leads to a file that was not met. One that leads nowhere was not, either."""
        try:
            status = os.stat(path)
        except OSError:
            return False
        place = status.st_dev, status.st_ino
        new = place not in self.seen
        self.seen.add(place)
        return new

    def _add(self, sentence: str) -> None:
        if len(self.stopped) < _NAMED:
            self.stopped.append(sentence)
