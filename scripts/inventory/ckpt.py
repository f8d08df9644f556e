"""Is this checkpoint whole? Answered from its structure, without unpickling a byte and without torch.

Example:
    check = inspect(Path("step_500.pt"))
    check.state       ok | broken | writing | unknown      check.depth    read (every byte, with CRC) | structure | none
    check.message     "cut off: ...", when the state is not ok

`ok` by structure means: all of it is there. That it loads into the model is another tool's proof.
"""

from __future__ import annotations

import json
import os
import re
import stat
import struct
import time
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

READ = 256 << 20  # up to this size every byte is read
_SETTLED = 60.0  # seconds without a write after which an incomplete file counts as broken, not as being written
_HEADER = 100 << 20  # safetensors' own limit for its header
_CHUNK = 1 << 20
_ZIP_END = 22 + 65535 + 76  # the last records of a ZIP with the longest comment

_SUFFIXES = (".pt", ".pth", ".ckpt", ".safetensors", ".distcp")
_WEIGHTS = re.compile(r"pytorch_model.*\.bin|model.*\.bin")
# a directory that is one checkpoint: HF checkpoint-500, DeepSpeed global_step500, LitGPT step-00000500
STEP_DIRECTORY = re.compile(r"(?:checkpoint|ckpt|global_?step|step|iter|iteration|epoch)[-_=]?(\d+)(?:[-_.].*)?", re.I)
_SHARD = re.compile(r"-\d{5}-of-\d{5}\.")


class Broken(Exception):
    """Why a file is not a whole checkpoint."""


@dataclass
class Check:
    path: str
    state: str
    depth: str = "none"
    message: str = ""
    bytes: int = 0
    mtime: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value != ""}


def is_checkpoint(name: str) -> bool:
    """By its name alone, as a walk over thousands of files must decide."""
    return name.endswith(_SUFFIXES) or bool(_WEIGHTS.fullmatch(name))


def is_shard(name: str) -> bool:
    """One of several files that only together are a checkpoint."""
    return bool(_SHARD.search(name)) or name.endswith(".distcp")


def inspect(path: Path, read: int = READ, deadline: float = float("inf")) -> Check:
    """One file, or a directory that is one checkpoint. `deadline` is of time.monotonic(). Never raises."""
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            return _directory(path, read, deadline)
        if not stat.S_ISREG(status.st_mode):
            return Check(str(path), "broken", message="not a regular file")
    except (OSError, ValueError) as error:
        return Check(str(path), "broken", message=f"cannot be read: {getattr(error, 'strerror', None) or error}")
    return _file(path, status, read, deadline)


def _file(path: Path, status: os.stat_result, read: int, deadline: float) -> Check:
    check = Check(str(path), "ok", "structure", bytes=status.st_size, mtime=status.st_mtime)
    try:
        with open(path, "rb") as file:
            check.state, check.depth, check.message = _whole(file, status.st_size, read, deadline)
            grown = os.fstat(file.fileno()).st_size != status.st_size
    except Broken as problem:
        check.state, check.message = "broken", str(problem)
        grown = False
    except OSError as error:
        return Check(str(path), "broken", message=f"cannot be read: {error.strerror}", bytes=status.st_size)
    if grown or (check.state == "broken" and time.time() - status.st_mtime < _SETTLED):
        check.state = "writing"
        check.message = f"written seconds ago and not complete yet ({check.message or 'it grows'}); look again"
    return check


def _whole(file: Any, size: int, read: int, deadline: float) -> tuple[str, str, str]:
    """State, depth and message by what the first bytes say it is."""
    if size == 0:
        raise Broken("empty")
    start = file.read(16)
    if start.startswith(b"PK\x03\x04"):
        return _zip(file, size, read, deadline)
    if len(start) >= 9 and start[8:9] == b"{" and file.name.endswith(".safetensors"):
        return _safetensors(file, size, read, deadline)
    if start.startswith(b"version https://"):
        raise Broken("a git-LFS pointer, not the file itself: run git lfs pull")
    if start[:1] == b"<":
        raise Broken("a web page, not the file itself: the download was answered by an error")
    if not start.strip(b"\0"):
        raise Broken("starts with zeros: the space was reserved, the content never written")
    if file.name.endswith(".safetensors"):
        raise Broken("no safetensors header")
    if start.startswith(b"\x80"):
        return "unknown", "none", "an old pickle format; only loading it can tell"
    return "unknown", "none", "not a format known here"


def _zip(file: Any, size: int, read: int, deadline: float) -> tuple[str, str, str]:
    """torch.save since 1.6. The directory is the last thing written: a cut-off file has none."""
    _zip_directory(file, size)
    if size > read:
        return "ok", "structure", ""
    try:
        archive = zipfile.ZipFile(file)
        members = archive.infolist()
    except Exception as error:  # a hostile directory makes zipfile raise more than BadZipFile
        raise Broken(f"its directory is damaged: {error}") from None
    if sum(member.file_size for member in members) > read:  # a small file that inflates
        return "ok", "structure", ""
    for member in members:
        if not _read_member(archive, member, deadline):
            return "ok", "structure", ""
    return "ok", "read", ""


def _zip_directory(file: Any, size: int) -> None:
    """Where the end of the file says its directory is, there it must be, and reach up to that end."""
    start = max(0, size - _ZIP_END)
    file.seek(start)
    tail = file.read(_ZIP_END)
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) < end + 22:
        raise Broken("cut off: the directory at its end is missing")
    entries, length, offset = struct.unpack("<H2L", tail[end + 10 : end + 20])
    place = start + end
    locator = tail[end - 20 : end] if end >= 20 else b""
    if locator.startswith(b"PK\x06\x07"):  # ZIP64, as torch writes it
        (place,) = struct.unpack("<Q", locator[8:16])
        file.seek(min(place, size))
        record = file.read(56)
        if len(record) < 56 or not record.startswith(b"PK\x06\x06"):
            raise Broken("its directory is damaged: the ZIP64 record is not where it should be")
        entries, length, offset = struct.unpack("<3Q", record[32:56])
    file.seek(min(offset, size))
    if not entries or offset + length != place or file.read(4) != b"PK\x01\x02":
        raise Broken("its directory is damaged: it is not where the end of the file says")


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, deadline: float) -> bool:
    """Read one member, which checks its CRC; False when the time is over."""
    try:
        with archive.open(member) as content:
            while content.read(_CHUNK):
                if time.monotonic() > deadline:
                    return False
    except Exception as error:
        raise Broken(f"{member.filename}: {error}") from None
    return True


def _safetensors(file: Any, size: int, read: int, deadline: float) -> tuple[str, str, str]:
    """A length, a JSON header, the tensors back to back: the header says how long the file must be."""
    file.seek(0)
    (length,) = struct.unpack("<Q", file.read(8))
    if length > min(size - 8, _HEADER):
        raise Broken(f"cut off: the header alone would be {length} bytes")
    try:
        header = json.loads(file.read(length))
        ends = [int(entry["data_offsets"][1]) for name, entry in header.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, OverflowError):
        raise Broken("its header is not the JSON of safetensors") from None
    expected = 8 + length + max(ends, default=0)
    if size != expected:
        raise Broken(f"{size} bytes, but its header says {expected}")
    while size <= read and time.monotonic() < deadline:
        if not file.read(_CHUNK):
            return "ok", "read", ""
    return "ok", "structure", ""


# -- a directory that is one checkpoint


def _directory(path: Path, read: int, deadline: float) -> Check:
    names = sorted(os.listdir(path))
    parts = _parts(path, names) or [part for name in names for part in _nested(path / name)]
    if not parts:
        return Check(str(path), "unknown", message="no weight file in it")
    checks = [inspect(part, read // len(parts), deadline) for part in parts]
    whole = Check(str(path), "ok", bytes=sum(part.bytes for part in checks), mtime=max(part.mtime for part in checks))
    missing = _missing_shards(path, names)
    for state in ("broken", "writing", "unknown"):
        bad = [part for part in checks if part.state == state]
        if bad:
            whole.state, whole.message = state, f"{Path(bad[0].path).name}: {bad[0].message}"
            break
    if missing and whole.state != "writing":
        whole.state, whole.message = "broken", f"{len(missing)} shards of its index are missing: {missing[0]}"
    whole.depth = "read" if all(part.depth == "read" for part in checks) else "structure"
    return whole


def _parts(path: Path, names: list[str]) -> list[Path]:
    return [path / name for name in names if is_checkpoint(name) and (path / name).is_file()]


def _nested(path: Path) -> list[Path]:
    """One level deeper, as DeepSpeed and Lightning nest; a link could lead anywhere, or back."""
    return _parts(path, sorted(os.listdir(path))) if path.is_dir() and not path.is_symlink() else []


def torch_files(path: Path) -> list[Path]:
    """What torch.load would be given of it; safetensors are not for torch.load."""
    parts = _parts(path, sorted(os.listdir(path))) if path.is_dir() else [path]
    return [part for part in parts if not part.name.endswith((".safetensors", ".distcp"))]


def _missing_shards(path: Path, names: list[str]) -> list[str]:
    """Shards that an index.json names, or DCP's own list of contents."""
    if any(name.endswith(".distcp") for name in names) and ".metadata" not in names:
        return [".metadata"]
    wanted: set[str] = set()
    for name in names:
        if name.endswith(".index.json"):
            try:
                wanted |= {str(shard) for shard in json.loads((path / name).read_bytes())["weight_map"].values()}
            except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
                return [name]
    return sorted(wanted - set(names))
