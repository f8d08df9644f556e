"""What is to be watched, and where its watcher keeps its own files.

Example:
    target = find(("runs/x",))         target.logs, target.keep        a run directory, any directory with logs, or logs

In a directory the watcher's files go into its `watch/` folder. For a bare log, a sealed run, and where nothing can be
written, they go into the user's cache, so that somebody else's directory stays as it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from inventory import ckpt
from rgt import logs, rundir
from rgt.errors import bad_input

_LOG = re.compile(r".*\.(?:log|out|err)(?:\.\d+)?|(?:train|log|stdout|stderr|output)[\w-]*\.txt|metrics\.jsonl", re.I)
_ROTATED = re.compile(r".*\.log\.\d+")
_LOGS = 16
_CHECKPOINTS = 200
FOLDER = "watch"


@dataclass
class Target:
    where: str
    logs: list[Path]
    keep: Path
    directory: Path | None = None

    @property
    def run(self) -> rundir.Run | None:
        return rundir.Run(self.directory) if self.directory and (self.directory / "run.json").is_file() else None

    @property
    def status(self) -> Path | None:
        """training_status.md, where it may be written."""
        if self.directory is None or self.keep.parent != self.directory:
            return None
        return self.directory / "training_status.md"

    @property
    def place(self) -> Path:
        """For questions about the disk."""
        return self.directory or (self.logs[0].parent if self.logs else Path())

    def checkpoints(self) -> list[float]:
        """When each was written, oldest first."""
        times: list[float] = []
        for folder in (self.directory, self.directory / "checkpoints") if self.directory else ():
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in filter(_is_checkpoint, entries):
                    with contextlib.suppress(OSError):  # deleted meanwhile, by retention
                        times.append(entry.stat().st_mtime)
        return sorted(times)[-_CHECKPOINTS:]


def _is_checkpoint(entry: os.DirEntry[str]) -> bool:
    return ckpt.is_checkpoint(entry.name) or (bool(ckpt.STEP_DIRECTORY.fullmatch(entry.name)) and entry.is_dir())


def find(words: tuple[str, ...]) -> Target:
    """One directory, or one or more logs; a sentence for anything else."""
    paths = [Path(word) for word in words]
    for path in paths:
        if not path.exists():
            raise bad_input(f"{path} does not exist; give a run directory or a log")
    directories = [path for path in paths if path.is_dir()]
    if directories and len(paths) > 1:
        raise bad_input(f"{directories[0]} is a directory: watch one of them at a time, or name its logs")
    if not directories:
        for path in paths:
            _refuse_special(path)
        return Target(", ".join(words), paths, _cache(paths), None)
    directory = directories[0]
    found = _logs(directory)
    if not found and not (directory / "run.json").is_file():
        raise bad_input(f"{directory} has no log: no *.log, *.out, *.err or metrics.jsonl; name the log itself")
    return Target(str(directory), found, _folder(directory), directory)


def _refuse_special(path: Path) -> None:
    descriptor = logs.open_regular(path)
    if descriptor is None:
        raise bad_input(f"{path} cannot be read as a log: it is no regular file, or not readable by you")
    os.close(descriptor)


def _logs(directory: Path) -> list[Path]:
    """Newest first would change with every line; names do not."""
    names = sorted(entry.name for entry in os.scandir(directory) if entry.is_file() and _LOG.fullmatch(entry.name))
    names = [name for name in names if not _ROTATED.fullmatch(name)]
    names.sort(key=lambda name: (name != "train.log", name != "metrics.jsonl"))
    return [directory / name for name in names[:_LOGS]]


def _folder(directory: Path) -> Path:
    sealed = (directory / "seal.json").exists()
    return directory / FOLDER if not sealed and os.access(directory, os.W_OK) else _cache([directory])


def _cache(paths: list[Path]) -> Path:
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rgt" / FOLDER
    name = "\0".join(sorted(os.path.realpath(path) for path in paths))
    return root / hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
