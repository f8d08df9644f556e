"""What the files of a project promise and is not there: pointers to checkpoints, paths to resume from, pid files.

Example:
    for end in find("exp", time.monotonic() + 0.5): end.code, end.path, end.message
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rgt.checkpoint import names
from rgt.errors import RgtError
from rgt.job import settings
from rgt.job.config_paths import ConfigPaths
from rgt.walk import walk

# DeepSpeed's latest, mmengine's and Detectron2's last_checkpoint, Megatron's latest_checkpointed_iteration.txt
_POINTER = re.compile(r"(?:latest|last)(?:[_-]?(?:checkpoint|ckpt|checkpointed_iteration))?(?:\.txt)?", re.I)
_CONFIG = re.compile(r".*\.ya?ml|(?:.*conf.*|args|hparams|.*\bconf\w*/[^/]*)\.(?:json|py)", re.I)
_RESUMES = re.compile(rb"resume|_from\b|ckpt|checkpoint|weights|pretrained", re.I)
_CONFIGS, _BYTES = 200, 256 << 10  # configs that are read, and of one
_DEPTH = 6


@dataclass
class LooseEnd:
    code: str
    severity: str
    path: str
    message: str
    fix: str = ""


def find(root: str, deadline: float) -> list[LooseEnd]:
    found: list[LooseEnd] = []
    folders: set[str] = set()
    configs = 0
    for directory, entry, _ in walk(root, deadline, [], depth=_DEPTH, links=False):
        with contextlib.suppress(OSError, RgtError, ValueError):
            if names.is_checkpoint(entry.name) or _POINTER.fullmatch(entry.name):
                folders.add(directory)
            if _POINTER.fullmatch(entry.name):
                found += _pointer(Path(entry.path))
            elif entry.name.endswith("pid"):
                pid = int(Path(entry.path).read_text()[:20])
                if pid > 0 and not os.path.exists(f"/proc/{pid}"):
                    message = f"names pid {pid}; no process here has that number any more"
                    found.append(LooseEnd("mixed", "info", str(Path(entry.path)), message))
            elif _CONFIG.fullmatch(entry.path[len(root) :]) and configs < _CONFIGS:
                configs += 1
                found += _resume(Path(entry.path), Path(root))
    for folder in sorted(folders):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink() and not os.path.exists(entry.path):
                    message = f"a link to {os.readlink(entry.path)}, which is not there"
                    fix = "resume from the newest whole checkpoint by name"
                    found.append(LooseEnd("missing", "warn", entry.path, message, fix))
    return found


def _pointer(path: Path) -> Iterator[LooseEnd]:
    """A file that names the newest checkpoint: what it names is there, and nothing newer is."""
    with path.open("rb") as file:
        told = file.read(500).decode("utf-8", "replace").strip()
    if not told or "\n" in told or "\0" in told:
        return
    beside = os.listdir(path.parent)
    name = os.path.basename(told.rstrip("/"))
    if told.isdigit():
        name = next((other for other in beside if names.step(other) == int(told)), f"iter_{int(told):07d}")
    alike = sorted((other for other in beside if _shape(other) == _shape(name)), key=_number)
    if name not in alike and not Path(told).exists():
        there = f"; the newest there is {alike[-1]}" if alike else ""
        yield LooseEnd("missing", "warn", str(path), f"names {name}, which is not there{there}", "resume by name")
    elif alike and _number(alike[-1]) > _number(name):
        message = f"names {name}, and {alike[-1]} is newer"
        fix = "look why: the newer one may be broken, or the pointer stale"
        yield LooseEnd("mixed", "warn", str(path), message, fix)


def _shape(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _number(name: str) -> list[int]:
    return [int(digits) for digits in re.findall(r"\d+", name)]


def _resume(path: Path, root: Path) -> Iterator[LooseEnd]:
    if path.stat().st_size > _BYTES or not _RESUMES.search(path.read_bytes()):
        return
    above = [folder for folder in (path.parent, *path.parents) if folder == root or root in folder.parents]
    for key, text in ConfigPaths(settings.read(path), path, root).resume_paths():
        if not any((base / text).exists() for base in above or [root]):
            message = f"{key} is {text}, which does not exist"
            fix = "mend the path: many trainers start at step 0, without a word, when it is missing"
            yield LooseEnd("missing", "warn", str(path), message, fix)
