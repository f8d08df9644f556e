"""The documents of a project: those git knows, or every file; never inside runs, environments or hidden folders."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from rgt.errors import bad_input

_SKIPPED = frozenset(["runs", "node_modules", "site-packages", "__pycache__", "wandb", "build", "dist"])
_DATA = "source_data.csv"  # what a figure is drawn from: single runs, which state no claim; render.py checks it


def chosen(paths: tuple[Path, ...], root: Path, suffixes: frozenset[str]) -> list[Path]:
    """The documents among `paths` (files as they are, folders searched); without paths, those of `root`."""
    if not paths:
        return sorted(_in_folder(root, suffixes))
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(_in_folder(path, suffixes))
        elif path.exists():
            found.append(path)
        else:
            raise bad_input(f"{path} does not exist; name documents or folders of them")
    return list(dict.fromkeys(found))


def _in_folder(folder: Path, suffixes: frozenset[str]) -> Iterator[Path]:
    for path in _tracked(folder) or (path for path in folder.rglob("*") if path.is_file()):
        inside = path.relative_to(folder).parts
        skipped = any(part in _SKIPPED or part.startswith(".") for part in inside)
        if path.suffix.lower() in suffixes and path.name != _DATA and not skipped:
            yield path


def _tracked(folder: Path) -> list[Path]:
    words = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(words, capture_output=True)
    except FileNotFoundError:
        return []
    names = [os.fsdecode(name) for name in done.stdout.split(b"\0") if name] if done.returncode == 0 else []
    return [folder / name for name in names if (folder / name).is_file()]
