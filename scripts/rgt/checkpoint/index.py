"""checkpoints_index.json: what is in checkpoints/ now, oldest first. The one reader and writer, whoever saved them.

Example:
    entries(run)                     the index, corrected by the disk: a kill can come between a file and its entry
    record(run, entry)               add or replace one
    delete(run, listed, gone)        take them out of the index, then from the disk
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from rgt import files, schema
from rgt.checkpoint import names
from rgt.checkpoint.formats.readers import read_json
from rgt.checkpoint.layout import Broken
from rgt.errors import RgtError, bad_input, from_os_error

INDEX, FOLDER = "checkpoints_index.json", "checkpoints"
SUFFIXES = (*names.FILES, ".bin")
_DOOMSDAY = 1e12  # seconds since 1970
Entry = dict[str, Any]


def run_directory(path: Path) -> Path:
    """The run itself also when its checkpoints/ was named."""
    if path.exists() and not path.is_dir():
        raise bad_input(f"{path} is a file; expected a run directory with {FOLDER}/ in it")
    return path.parent if path.resolve().name == FOLDER else path


def read(run: Path) -> list[Entry] | None:
    """What the index says; None when there is none, or one that cannot be used. Paths may lead anywhere."""
    try:
        data = read_json(run / INDEX)
        listed: list[Entry] = list(data["checkpoints"])
        for entry in listed:  # also on a box without jsonschema
            values = [entry["time"], *entry.get("metrics", {}).values()]
            if type(entry["path"]) is not str or type(entry["step"]) is not int:
                return None
            if not all(type(each) in (int, float) and math.isfinite(each) for each in values):
                return None
    except (Broken, OSError, LookupError, TypeError, AttributeError, OverflowError):
        return None
    return None if schema.problems(data, "checkpoints_index") else listed


def on_disk(folder: Path) -> list[tuple[int, Path]]:
    """(step, path) of every file and folder with a checkpoint's name, oldest first; not what is unfinished."""
    try:
        paths = [folder / name for name in os.listdir(folder)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise from_os_error(error, f"read {folder}") from None
    named = [(names.step(path.name), path) for path in paths if path.is_dir() or path.name.endswith(SUFFIXES)]
    return sorted((step, path) for step, path in named if step is not None)


def entries(run: Path) -> list[Entry]:
    """What is there now. An index can come from a rented box: what it names outside of the run is left out."""
    listed = []
    for entry in read(run) or []:
        path = PurePosixPath(entry["path"])
        if not path.is_absolute() and ".." not in path.parts and (run / path).exists():
            listed.append(entry)
    known = {entry["path"] for entry in listed}
    listed += [describe(run, path, step) for step, path in on_disk(run / FOLDER) if relative(run, path) not in known]
    return sorted(listed, key=lambda entry: (entry["step"], entry["time"]))


def describe(run: Path, path: Path, step: int) -> Entry:
    """An entry from what is on disk. It is not called verified: that is said by whoever read every byte."""
    entry: Entry = {"path": relative(run, path), "step": step, "time": path.stat().st_mtime}
    entry["bytes"] = size_on_disk(path)
    if names.own_step(path.name) is None:
        return entry
    from rgt.checkpoint.examine import HEADERS, examine  # the readers of all formats: few calls need them
    from rgt.checkpoint.formats.torch_files import keys

    inside = keys(examine(path, HEADERS).layout.root)
    if isinstance(inside.get("time"), (int, float)) and 0 <= inside["time"] < _DOOMSDAY:
        entry["time"] = float(inside["time"])
    for name, value in keys(inside.get("metrics")).items():
        with contextlib.suppress(RgtError):  # another program's file may keep its history there
            entry["metrics"] = {**entry.get("metrics", {}), **numbers({name: value})}
    return entry


def size_on_disk(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size
    return sum(part.stat().st_size for part in path.rglob("*") if part.is_file())


def relative(run: Path, path: Path) -> str:
    return path.relative_to(run).as_posix()


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The finite ones, which JSON can hold. NaN is no metric to choose a best by; the file itself keeps it."""
    finite = {}
    for name, value in metrics.items():
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: a tensor of several numbers
            raise bad_input(f"the metric {name!r} is {str(value)[:60]!r}; expected a number") from None
        if math.isfinite(number):
            finite[str(name)] = number
    return finite


# -- what changes it


def write(run: Path, listed: list[Entry]) -> None:
    files.write_json(run / INDEX, {"checkpoints": listed}, "checkpoints_index")


def record(run: Path, new: Entry) -> list[Entry]:
    """Add an entry, or replace the one of the same path; gives the whole index."""
    listed = [entry for entry in entries(run) if entry["path"] != new["path"]]
    listed = sorted([*listed, new], key=lambda entry: (entry["step"], entry["time"]))
    write(run, listed)
    return listed


def delete(run: Path, listed: list[Entry], gone: list[Entry]) -> None:
    """Index first: killed in between, everything it names is there."""
    write(run, [entry for entry in listed if entry not in gone])
    for path in (run / entry["path"] for entry in gone):
        try:
            if path.is_dir() and not path.is_symlink():
                hidden = path.with_name(f".{path.name}.deleted")  # half deleted must not look like half saved
                path.rename(hidden)
                shutil.rmtree(hidden)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:  # no reason to end a training: what was just saved is whole
            print(f"cannot delete {relative(run, path)}: {error.strerror}", file=sys.stderr, flush=True)


def set_aside(run: Path, path: Path) -> Path:
    """Rename a damaged one, so that nothing takes it for a checkpoint; someone may want to look at it."""
    number, aside = 1, path.with_name(path.name + names.DAMAGED)
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}{names.DAMAGED}-{number}")
    path.rename(aside)
    write(run, entries(run))
    return aside


def sweep(run: Path) -> None:
    """Remove what a SIGKILL left behind: halves under temporary names, which nobody else writes."""
    folder = run / FOLDER
    for half in (*folder.glob(".*.tmp"), *folder.glob(".*.deleted"), *run.glob(f".{INDEX}.*tmp")):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(half) if half.is_dir() else half.unlink()


# -- which checkpoints stay: the newest good ones, the best one, and one every so many steps


@dataclass(frozen=True)
class Keep:
    last: int = 2  # if the newest turns out to be damaged, there is one before it
    best: str | None = None  # a metric's name
    direction: str = "down"  # down: less is better
    every: int | None = None  # steps
    steps: frozenset[int] = frozenset()  # these always

    def __post_init__(self) -> None:
        if self.last < 1:
            raise bad_input(f"keep_last is {self.last}; at least 1, or there is nothing to resume from")
        if self.direction not in ("down", "up"):
            raise bad_input(f"direction is {self.direction!r}; expected 'down' (less is better) or 'up'")
        if self.every is not None and self.every < 1:
            raise bad_input(f"every is {self.every}; expected a number of steps from 1")

    def doomed(self, entries: list[Entry], good: Callable[[Entry], bool]) -> list[Entry]:
        """What may go, oldest first. Only good ones count, and one that is not good is never touched."""
        sound = [entry for entry in entries if good(entry)]
        kept = sound[-self.last :]
        kept += [entry for entry in sound if entry["step"] in self.steps]
        kept += [entry for entry in sound if self.every and entry["step"] % self.every == 0]
        scored = [entry for entry in sound if self.best in entry.get("metrics", {})]
        if scored:
            sign = 1 if self.direction == "down" else -1
            kept.append(min(scored, key=lambda entry: (sign * entry["metrics"][self.best], -entry["step"])))
        return [entry for entry in sound if entry not in kept]
