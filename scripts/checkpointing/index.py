"""checkpoints_index.json: what there is, oldest first, always whole, and made again from the files when it is lost."""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from checkpointing import disk
from checkpointing.errors import CheckpointError, from_os_error

INDEX, FOLDER = "checkpoints_index.json", "checkpoints"
NAME = re.compile(r"step_(\d+)\.pt")
Entry = dict[str, Any]


def run_directory(path: Path) -> Path:
    """The run itself also when its checkpoints/ was named."""
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise CheckpointError(f"{path} is a file; expected a run directory with {FOLDER}/ in it")
    return path.parent if path.resolve().name == FOLDER else path


def file_name(step: int) -> str:
    return f"step_{step:06d}.pt"


def files(run: Path) -> dict[int, Path]:
    """Our checkpoint files by step, oldest first; never a temporary or a damaged one."""
    try:
        names = os.listdir(run / FOLDER)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise from_os_error(error, f"read {run / FOLDER}") from None
    found = {int(match[1]): run / FOLDER / name for name in names if (match := NAME.fullmatch(name))}
    return dict(sorted(found.items()))


def read(run: Path) -> list[Entry] | None:
    """None when there is no index, or one that cannot be used."""
    try:
        data = json.loads((run / INDEX).read_text(encoding="utf-8"))
        entries = data["checkpoints"]
        usable = isinstance(entries, list) and all(map(_usable, entries))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    return entries if usable else None


def _usable(entry: Entry) -> bool:
    """Also: a path below the run. An index can come from a rented box, and what it names may be deleted."""
    path = PurePosixPath(entry["path"])
    below = not path.is_absolute() and ".." not in path.parts
    scores = all(type(value) in (int, float) for value in entry.get("metrics", {}).values())
    return below and scores and type(entry["step"]) is int and type(entry["time"]) in (int, float)


def entries(run: Path) -> list[Entry]:
    """The index, corrected by what is on disk: a kill can come between the file and the index."""
    on_disk, listed = files(run), read(run)
    found = [entry for entry in listed or [] if (run / entry["path"]).exists()]
    known = {entry["path"] for entry in found}
    found += [describe(run, path, step) for step, path in on_disk.items() if relative(run, path) not in known]
    return sorted(found, key=lambda entry: (entry["step"], entry["time"]))


def describe(run: Path, path: Path, step: int) -> Entry:
    """An entry from the file alone. It is not called verified: that is said by whoever read every byte."""
    inside, status = disk.peek(path), path.stat()
    when, metrics = inside.get("time"), inside.get("metrics")
    entry: Entry = {
        "path": relative(run, path),
        "step": step,
        "time": float(when) if isinstance(when, (int, float)) and 0 <= when < 1e12 else status.st_mtime,
        "bytes": status.st_size,
    }
    scores: dict[str, float] = {}
    for name, value in metrics.items() if isinstance(metrics, dict) else ():
        with contextlib.suppress(CheckpointError):  # another program's file may keep its history there
            scores |= numbers({name: value})
    return {**entry, "metrics": scores} if scores else entry


def write(run: Path, listed: list[Entry]) -> None:
    path = run / INDEX
    temporary = path.with_name(f".{INDEX}.tmp")
    try:
        with open(temporary, "wb") as file:
            file.write(json.dumps({"checkpoints": listed}, indent=2, allow_nan=False).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise from_os_error(error, f"write {path}") from error
    disk.sync_directory(run)


def relative(run: Path, path: Path) -> str:
    return path.relative_to(run).as_posix()


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """What JSON can hold: the finite ones. NaN is no metric to choose a best by; the file itself keeps it."""
    found = {}
    for name, value in metrics.items():
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: a tensor of several numbers
            raise CheckpointError(f"the metric {name!r} is {str(value)[:60]!r}; expected a number") from None
        if math.isfinite(number):
            found[str(name)] = number
    return found
