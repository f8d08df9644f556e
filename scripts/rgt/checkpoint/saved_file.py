"""One checkpoint file of ours: written whole or not at all, checked before it counts and again before it is used."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import re
import zipfile
from pathlib import Path
from typing import IO, Any, cast

from rgt import files
from rgt.checkpoint.sink import Sink
from rgt.errors import RgtError, bad_input, from_os_error

_CHUNK = 4 << 20
_ALLOWED = "store tensors, numbers, strings, lists, tuples and dicts (float(x) for a numpy number)"
_UNTOUCHED = "the checkpoints before it are untouched"


class Damaged(Exception):
    """Why a file is not the checkpoint it should be."""


def write(path: Path, state: dict[str, Any]) -> Sink:
    """Temporary name, every byte read back and compared, fsync, a trial load, rename, fsync of the directory."""
    import torch

    temporary = path.with_name(f".{path.name}.tmp")
    try:
        sink = Sink(temporary)
        try:
            torch.save(state, cast(IO[bytes], sink))
        except BaseException:
            sink.close()
            raise
        sink.finish()
        _torch_load(temporary, "cpu", mmap=True)  # reads no tensor; refuses now what a resume would refuse later
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            problem = from_os_error(error, f"save {path}")
            advice = f"; free space or prune, then save again: {_UNTOUCHED}" if problem.full else ""
            raise RgtError(problem.message + advice, problem.exit_code, problem.full) from error
        if isinstance(error, pickle.UnpicklingError):
            named = re.search(r"GLOBAL ([\w.]+)", str(error))
            what = f"it holds a {named[1]}, which" if named else "it"
            raise bad_input(f"cannot save {path}: {what} does not load with weights_only=True; {_ALLOWED}") from None
        if isinstance(error, (pickle.PicklingError, AttributeError, TypeError)):  # a lambda, a lock, an open file
            raise bad_input(f"cannot save {path}: {_line(error)}; {_ALLOWED}") from None
        raise
    files.sync_directory(path.parent)
    return sink


def load(path: Path, entry: dict[str, Any], map_location: Any = "cpu") -> dict[str, Any]:
    """The state, after every byte was checked; Damaged says why not. torch.load itself checks no CRC.

    Checked by the sha256 of its index entry; a file without one (a kill came in between) by the CRCs inside it.
    """
    try:
        if "sha256" not in entry:
            with zipfile.ZipFile(path) as archive:
                bad = archive.testzip()
            if bad:
                raise Damaged(f"the bytes of {bad} do not fit their CRC")
        elif digest(path) != entry["sha256"]:
            raise Damaged("its sha256 is not the one in checkpoints_index.json")
        return _torch_load(path, map_location)
    except (OSError, Damaged):
        raise
    except Exception as error:  # torch raises another type for every place where a file can be damaged
        raise Damaged(_line(error)) from None


def _torch_load(path: Path, map_location: Any, mmap: bool = False) -> dict[str, Any]:
    import torch

    # weights_only: a checkpoint is data, also one from a rented box; it must not be able to run code
    state = torch.load(path, map_location=map_location, weights_only=True, mmap=mmap)
    if not isinstance(state, dict):
        raise Damaged(f"it holds a {type(state).__name__}, not a dict")
    return state


def digest(path: Path) -> str:
    state, buffer = hashlib.sha256(), memoryview(bytearray(_CHUNK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            state.update(buffer[:count])
    return state.hexdigest()


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else text[:200] + "..."
