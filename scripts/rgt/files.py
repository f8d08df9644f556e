"""Files that are always whole: the old one or the new one, whatever is killed in between.

Example:
    write_json(path, data, schema="run")      temp name, fsync, rename, fsync of the directory
    append_jsonl(path, row, schema="events")  one locked append; a torn tail left by a crash is cut first
    for row in read_jsonl(path): ...          streams; a torn last line is skipped
    with locked(lock_beside(path)): ...       read, change, write: one process at a time
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import IO, Any, NamedTuple

from rgt import schema as schemas
from rgt.errors import RgtError, bad_input, from_os_error

_READABLE = 1 << 18  # bytes of JSON that a person may want to read; to lay out more takes long
_TAIL = 64 * 1024  # a torn line is looked for in steps of this size


FileState = tuple[int, int, int, int]


class Written(NamedTuple):
    """A file that this process wrote: what it was then, the sha256 of its bytes, and the first of them."""

    state: FileState
    sha256: str
    head: bytes


def file_state(seen: os.stat_result) -> FileState:
    """The same as long as nobody writes to the file or puts another one in its place."""
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns


def write_bytes(path: Path, data: bytes, mode: int | None = None) -> None:
    write_with(path, lambda file: file.write(data), mode)


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, data: Any, schema: str | None = None, mode: int | None = None) -> None:
    """Write JSON, laid out for people unless it is huge; `schema` names a file of scripts/schemas, checked first."""
    if schema:
        schemas.check(data, schema, str(path))
    text = dump(data, str(path))
    if len(text) <= _READABLE:
        text = dump(data, str(path), indent=2)
    write_bytes(path, text + b"\n", mode)


def dump(data: Any, where: str, **layout: Any) -> bytes:
    """Strict JSON, or a sentence about what JSON cannot hold; `layout` goes to json.dumps."""
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False, **layout).encode()
    except UnicodeEncodeError:  # a file name that is not UTF-8 holds lone surrogates: only escapes can say them
        return json.dumps(data, allow_nan=False, **layout).encode()
    except (TypeError, ValueError) as error:  # a tensor, a NaN, a set: strict JSON has no word for it
        raise bad_input(f"{where} cannot hold this as JSON: {error}") from None
    except RecursionError:
        raise bad_input(f"{where} cannot hold this as JSON: nested too deep") from None


def json_number(value: float) -> float | str:
    """Strict JSON has no NaN; the words "NaN", "Infinity" and "-Infinity" stand for them, and float() reads them."""
    return value if math.isfinite(value) else str(value).replace("nan", "NaN").replace("inf", "Infinity")


def write_with(path: Path, write: Callable[[IO[bytes]], Any], mode: int | None = None) -> None:
    """Give `write` a temporary file beside `path`, then move it into place. On failure `path` is as it was."""
    try:
        # mkstemp makes 0600; other users of a shared run directory expect the old mode, or the umask's
        if mode is None:
            mode = path.stat().st_mode & 0o777 if path.exists() else new_mode()
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                write(file)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise from_os_error(error, f"write {path}") from error
    sync_directory(path.parent)


def new_mode(executable: bool = False) -> int:
    """What the umask leaves a new file."""
    mask = os.umask(0)
    os.umask(mask)
    return (0o777 if executable else 0o666) & ~mask


def sync_directory(directory: Path) -> None:
    """Make a rename survive a power cut. Some network file systems cannot; the file itself is safe there."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[int]:
    """Hold a lock that the kernel frees with this process; BlockingIOError when it is taken and not `wait`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise from_os_error(error, f"write to {path.parent}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield lock
    finally:
        os.close(lock)


def lock_beside(path: Path) -> Path:
    """What all who change `path` lock: not `path` itself, which is replaced, and no folder, which NFS cannot lock."""
    return path.with_name(f".{path.name}.lock")


def open_regular(path: Path) -> IO[bytes]:
    """For reading. Of strangers' folders only plain files are opened: a FIFO waits for ever, a device has no end."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise bad_input(f"{path} does not exist") from None
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise bad_input(f"{path} is not a plain file")
    return os.fdopen(descriptor, "rb")


def read_text(path: Path) -> str:
    """A text file in UTF-8, or a sentence."""
    try:
        with open_regular(path) as file:
            return file.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise bad_input(f"{path} is not text: byte {error.start} is not UTF-8") from None
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None


def without_comments(table: str) -> str:
    """A CSV without the lines of # above its header; numpy writes the header itself behind one."""
    lines = table.split("\n")
    start = next((at for at, line in enumerate(lines) if not line.startswith("#")), 0)
    if not start:
        return table
    above, first = lines[start - 1], lines[start]
    delimiter = max(",;\t", key=first.count)
    if above.count(delimiter) == first.count(delimiter) and first[:1].isdigit():
        return "\n".join([above.lstrip("# "), *lines[start:]])
    return "\n".join(lines[start:])


def read_json(path: Path, schema: str | None = None) -> Any:
    """Read one JSON file, or say in a sentence what is wrong with it."""
    text = read_text(path)
    if not text.strip():
        raise bad_input(f"{path} is empty; expected JSON")
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise bad_input(f"{path} line {error.lineno} is not JSON: {error.msg}") from None
    except RecursionError:
        raise bad_input(f"{path} is not usable JSON: nested too deep") from None
    except ValueError as error:  # an integer of thousands of digits
        raise bad_input(f"{path} is not usable JSON: {error}") from None
    if schema:
        schemas.check(data, schema, str(path))
    return data


def append_jsonl(path: Path, row: dict[str, Any], schema: str | None = None) -> None:
    """Append one line. Writers of one file take turns (flock), so a torn tail can only be a crash's: cut it."""
    if schema:
        schemas.check(row, schema, str(path))
    line = dump(row, str(path)) + b"\n"
    try:
        with path.open("ab+", buffering=0) as file:  # a buffer would write the rest of a failed line at close
            fcntl.flock(file, fcntl.LOCK_EX)
            end = file.seek(_end_of_last_line(file))
            tail = file.read()
            if tail and not _torn(tail):
                end, line = end + len(tail), b"\n" + line
            file.truncate(end)
            try:
                while line:
                    line = line[file.write(line) :]
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):  # a full disk took half the line: give the half back
                    file.truncate(end)
                raise
    except OSError as error:
        raise from_os_error(error, f"append to {path}") from error


def _torn(tail: bytes) -> bool:
    """A part of an object is never an object, so a last line that is one lacks only its newline."""
    try:
        return not isinstance(json.loads(tail), dict)
    except (ValueError, RecursionError):
        return True


def _end_of_last_line(file: FileIO) -> int:
    """Offset just behind the last newline: 0 in an empty file."""
    end = file.seek(0, os.SEEK_END)
    while end:
        start = max(0, end - _TAIL)
        file.seek(start)
        newline = file.read(end - start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def read_jsonl(path: Path, schema: str | None = None, bad: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a JSONL file, one at a time, so that a file of gigabytes costs one line of memory.

    A last line that a crash cut off is skipped. Any other broken line raises, or, when `bad` is given, is described
    there and skipped.
    """
    try:
        with open_regular(path) as file:
            for number, raw in enumerate(file, 1):
                if not raw.strip() or (not raw.endswith(b"\n") and _torn(raw)):
                    continue
                where = f"{path} line {number}"
                try:
                    try:
                        row = json.loads(raw)
                    except (ValueError, RecursionError):
                        raise bad_input(f"{where} is not JSON: {raw[:60]!r}") from None
                    if not isinstance(row, dict):
                        raise bad_input(f"{where} is a {type(row).__name__}; expected an object")
                    if schema:
                        schemas.check(row, schema, where)
                except RgtError as error:
                    if bad is None:
                        raise
                    bad.append(error.message)
                    continue
                yield row
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None
