"""What the files of a project promise and is not there: pointers to checkpoints, paths to resume from, pid files.

Example:
    for end in find("exp", time.monotonic() + 0.5): end.code, end.path, end.message
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rgt.checkpoint import names
from rgt.errors import RgtError
from rgt.job import settings
from rgt.job.config_paths import ConfigPaths
from rgt.walk import walk

# DeepSpeed's latest, mmengine's and Detectron2's last_checkpoint, Megatron's latest_checkpointed_iteration.txt
_POINTER = re.compile(r"(?:latest|last)(?:[_-]?(?:checkpoint|ckpt|checkpointed_iteration))?(?:\.txt)?", re.I)
_TENSORFLOW = re.compile(r'^model_checkpoint_path: "([^"]+)"', re.M)  # in a file that is called checkpoint
_WEIGHTS = re.compile(r".*\.(?:h5|hdf5|keras|onnx|npz|joblib|tflite|pdparams|bin|index|data-\d{5}-of-\d{5})", re.I)
_CONFIG = re.compile(r".*\.ya?ml|(?:.*conf.*|args|hparams|.*\bconf\w*/[^/]*)\.(?:json|py)", re.I)
_RESUMES = re.compile(rb"resume|_from\b|ckpt|checkpoint|weights|pretrained", re.I)
_LAUNCHER = re.compile(r".*\.(?:sh|bash|sbatch|slurm)", re.I)
_RESUME_OPTION = re.compile(r"(?<!\S)--?(\w*(?:resume|restore|load|init)\w*|ckpt\w*)[= ]+[\"']?([\w./-]+)")
_CONFIGS, _BYTES = 200, 256 << 10  # configs that are read, and of one
_DEPTH = 6


@dataclass
class LooseEnd:
    code: str
    severity: str
    path: str
    message: str
    fix: str = ""
    evidence: str = ""


def find(root: str, deadline: float) -> list[LooseEnd]:
    found: list[LooseEnd] = []
    folders: set[str] = set()
    configs = 0
    for directory, entry, _ in walk(root, deadline, [], depth=_DEPTH, links=False):
        with contextlib.suppress(OSError, RgtError, ValueError):
            while directory not in folders:  # one that holds only a link has no file of its own
                folders.add(directory)
                directory = directory if directory == root else os.path.dirname(directory)
            if _POINTER.fullmatch(entry.name):
                found += _pointer(Path(entry.path))
            elif entry.name == "checkpoint":
                found += _tensorflow(Path(entry.path))
            elif _WEIGHTS.fullmatch(entry.name) and not entry.is_symlink() and not entry.stat().st_size:
                fix = "take another checkpoint: nothing was written into this one"
                found.append(LooseEnd("truncated", "warn", entry.path, "an empty file of zero bytes", fix))
            elif _LAUNCHER.fullmatch(entry.name) and entry.stat().st_size < _BYTES:
                text = Path(entry.path).read_text(encoding="utf-8", errors="replace")
                commands = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
                given = [pair for pair in _RESUME_OPTION.findall(commands) if names.is_checkpoint(pair[1])]
                found += _missing(Path(entry.path), Path(root), given)
            elif entry.name.endswith("pid"):
                pid = int(Path(entry.path).read_text()[:20])
                if pid > 0 and not os.path.exists(f"/proc/{pid}"):
                    message = f"names pid {pid}; no process here has that number any more"
                    found.append(LooseEnd("mixed", "info", str(Path(entry.path)), message))
            elif _CONFIG.fullmatch(entry.path[len(root) :]) and configs < _CONFIGS:
                configs += 1
                found += _resume(Path(entry.path), Path(root))
    return found + [end for folder in sorted(folders) for end in _links(folder)]


def _links(folder: str) -> Iterator[LooseEnd]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink() and entry.name[0] != "." and not os.path.exists(entry.path):
                message = f"a link to {os.readlink(entry.path)}, which is not there"
                weights = names.is_checkpoint(entry.name) or _POINTER.fullmatch(entry.name)
                fix = (
                    "resume from the newest whole checkpoint by name"
                    if weights
                    else "find what it led to, or remove it"
                )
                yield LooseEnd("missing", "warn", entry.path, message, fix)


def _tensorflow(path: Path) -> Iterator[LooseEnd]:
    """TensorFlow's pointer: it names the part before .index, .meta and .data-*."""
    with path.open("rb") as file:
        told = _TENSORFLOW.search(file.read(_BYTES).decode("utf-8", "replace"))
    beside = [name.removesuffix(".index") for name in os.listdir(path.parent) if name.endswith(".index")]
    if told and (name := os.path.basename(told[1])) not in beside and not Path(f"{told[1]}.index").exists():
        yield _nothing_named(path, name, sorted(beside, key=_number))


def _nothing_named(path: Path, name: str, alike: list[str]) -> LooseEnd:
    there = f"; the newest there is {alike[-1]}" if alike else ""
    return LooseEnd("missing", "warn", str(path), f"names {name}, which is not there{there}", "resume by name")


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
        yield _nothing_named(path, name, alike)
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
    yield from _missing(path, root, ConfigPaths(settings.read(path), path, root).resume_paths())


def _missing(path: Path, root: Path, given: Iterable[tuple[str, str]]) -> Iterator[LooseEnd]:
    """Of the checkpoints that a config or a script goes on from, those that lie in no folder it may be started in."""
    above = [folder for folder in (path.parent, *path.parents) if folder == root or root in folder.parents]
    for key, text in given:
        if not any((base / text).exists() for base in above or [root]):
            message = f"{key} is {text}, which does not exist"
            fix = "mend the path: many trainers start at step 0, without a word, when it is missing"
            yield LooseEnd("missing", "warn", str(path), message, fix)
