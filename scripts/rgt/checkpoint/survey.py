"""Which files below a path are artifacts, which are JSON beside them, and which are the remains of a broken copy."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rgt.checkpoint import names
from rgt.checkpoint.examine import Blobs, judge_names
from rgt.checkpoint.formats import dcp, readers
from rgt.checkpoint.layout import Broken, Problem
from rgt.errors import bad_input, from_os_error
from rgt.files import Written

MAX_FILES = 200_000
_SKIPPED = {".git", ".venv", "node_modules", "__pycache__"}
_SIDE = re.compile(
    r"(.*results|.*metrics|trainer_state|checkpoints_index|.*\.index(\.\w+)?|(.*_)?config|model_index|(added_|special_)tokens.*"
    r"|tokenizer|vocab)\.json"
)
WEIGHT_SIZE = 1 << 20  # bytes from which on a file that was not opened may be a model
_PICKLES, _MAX_PICKLE = (".pkl", ".pickle", ".joblib"), 64 << 20
_NO_WEIGHTS = re.compile(  # of any size: logs, trackers, pictures, tables, archives of data
    r".*\.(log|out|err|txt|md|jsonl?|ya?ml|toml|csv|tsv|py|sh|html?|svg|png|jpe?g|gif|webp|pdf|mp[34]|wav|flac|avi|parquet|arrow"
    r"|lock|wandb|sqlite3?|db|xml|ipynb|idx|vocab|spm|merges|prof|trace|nsys-rep|stale)|events\.out\.tfevents\..*"
)


Known = Mapping[str, Written]  # by path


@dataclass
class Survey:
    given: Path
    root: Path  # the folder that was given, or the one the file is in
    artifacts: list[Path] = field(default_factory=list)
    sides: list[Path] = field(default_factory=list)
    problems: list[tuple[Path, Problem]] = field(default_factory=list)
    metadata: dict[Path, dcp.Metadata] = field(default_factory=dict)  # of DCP folders
    strangers: list[str] = field(default_factory=list)  # names in the pickles of .metadata files
    # everything else, by size (None: no file): only its first bytes were read, and in some they are nothing but zeros
    others: dict[Path, int | None] = field(default_factory=dict)
    zeros: list[Path] = field(default_factory=list)

    def blobs(self, path: Path) -> Blobs | None:
        for directory in path.parents if self.metadata else ():
            metadata = self.metadata.get(directory)
            name = str(path.relative_to(directory))
            if metadata and (name in metadata.files or path.suffix == ".distcp"):
                return metadata.files.get(name, []), metadata
        return None

    @property
    def folders(self) -> list[Path]:
        """Every folder that holds something to check."""
        return sorted({path.parent for path in [*self.artifacts, *self.sides]} | set(self.metadata))


def survey(given: Path, known: Known | None = None) -> Survey:
    """Raises a sentence when the path is not there at all. What is `known` is not opened for its first bytes."""
    if not os.path.lexists(given):
        raise bad_input(f"{given} does not exist; name a checkpoint, a folder of them or a run directory")
    found = Survey(given, given if given.is_dir() else given.parent)
    if given.is_dir():
        for path in _walk(given):
            _sort(found, path, (known or {}).get(str(path)))
    elif given.name == names.METADATA or given.suffix == ".distcp":
        return survey(given.parent)  # one file of a DCP checkpoint means nothing without the others
    elif _SIDE.fullmatch(given.name):
        found.sides.append(given)
    else:
        found.artifacts.append(given)
    for directory in {path.parent for path in found.artifacts if path.suffix == ".distcp"} - set(found.metadata):
        message = "has .distcp files and no .metadata to read them by"
        found.problems.append((directory, Problem("missing", "error", message)))
    return found


def _walk(root: Path) -> Iterator[Path]:
    """Files in order; links to files are followed (the hub's cache is made of them), links to folders are not."""

    def unreadable(error: OSError) -> None:
        raise from_os_error(error, f"read {error.filename}")

    count = 0
    for folder, folders, here in os.walk(root, onerror=unreadable):
        if "snapshots" in folders and "blobs" in folders:
            folders.remove("blobs")  # the same files under their digests
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        above = Path(folder)
        for name in sorted(here):
            count += 1
            if count > MAX_FILES:
                raise bad_input(f"{root} holds more than {MAX_FILES} files; name the folder of the checkpoints")
            yield above / name


def _sort(found: Survey, path: Path, known: Written | None) -> None:
    name = path.name
    if name == names.METADATA and (any(path.parent.glob("*.distcp")) or _peek(path)[0][:1] == b"\x80"):
        try:
            metadata = dcp.read_metadata(path)
        except Broken as broken:
            found.problems.append((path, broken.problem))
        except OSError as error:
            found.problems.append((path, Problem("unreadable", "error", f"cannot be read: {error.strerror}")))
        else:
            found.metadata[path.parent] = metadata
            strangers = metadata.layout.refused
            found.strangers += strangers
            found.problems += [(path, one) for one in (*metadata.layout.problems, *judge_names(strangers, strangers))]
            found.problems += dcp.lost_files(path.parent, metadata)
    elif names.is_partial_copy(name):
        message = "a copy that was not finished"
        found.problems.append((path, Problem("partial", "error", message, fix="finish the transfer, or delete it")))
    elif name.startswith(".") and name.endswith(".tmp"):
        found.problems.append((path, Problem("partial", "info", "left by a save that was killed; harmless")))
    elif _SIDE.fullmatch(name):
        found.sides.append(path)
    elif names.is_artifact(name):
        found.artifacts.append(path)
    else:
        head, size = (known.head, known.state[2]) if known else _peek(path)
        small_pickle = size is not None and size <= _MAX_PICKLE and name.endswith(_PICKLES)
        if small_pickle or readers.looks_like_one(head, name):
            found.artifacts.append(path)
        elif name not in names.OUR_RECORDS:
            found.others[path] = size
            found.zeros += [path] if head and not any(head) else []


def may_be_weights(name: str, size: int | None) -> bool:
    """Large, and not of a kind that never holds any: a proof that leaves it out is no proof of the model."""
    return (size or 0) >= WEIGHT_SIZE and not _NO_WEIGHTS.fullmatch(name.lower())


def _peek(path: Path) -> tuple[bytes, int | None]:
    """The first bytes and the size; no size of what is no plain file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return b"", os.path.getsize(path) if os.path.isfile(path) else None
    try:
        seen = os.fstat(descriptor)
        return os.read(descriptor, names.HEAD), seen.st_size if stat.S_ISREG(seen.st_mode) else None
    except OSError:
        return b"", None
    finally:
        os.close(descriptor)
