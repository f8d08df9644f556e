"""What a log has gained since the last look, whatever happened to the file in between.

Example:
    cursor, grown = advance(Path("train.log"), cursor, take)      take(line) for every new line; cursor is JSON-ready

Up to WHOLE new bytes every line is taken. Of a longer backlog the beginning and the newest part are taken line by line,
and between them SAMPLES lines with a number, evenly spread: a log of gigabytes costs about as much as one of megabytes.
A file that was rotated or truncated is read from its beginning.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rgt.log import summary

WHOLE = 2 << 20  # new bytes of which every line is taken
_HEAD = 32 << 10  # of a longer backlog: how long the run will be is said here
_NEWEST = 256 << 10
SAMPLES = 2000
_BLOCK = 1 << 20
_SAMPLE = 4 << 10  # bytes in which a sample is looked for
_LONGEST = 1 << 20  # bytes without a line's end that are given up as not text
_MARK = 64  # bytes before the cursor, by which the file is recognised
_HINTS = (re.compile("[Ll]oss"), re.compile("step|iter|poch|it/s"))  # of a line with a number, the better one first


@dataclass
class Cursor:
    """Where reading stopped: always just behind the end of a line."""

    device: int
    inode: int
    offset: int
    mark: str  # hex of the bytes before `offset`


@dataclass
class Grown:
    bytes: int = 0
    thinned: bool = False
    restarted: str = ""  # "rotated" or "truncated"
    mtime: float = 0.0
    rest: str = ""  # of a last line without its end: it may be all that a dying process could say


Take = Callable[[str], None]


def advance(path: Path, cursor: Cursor | None, take: Take, whole: int = WHOLE) -> tuple[Cursor | None, Grown]:
    """Give `take` every new line, up to `whole` bytes of them. None: there is no such file."""
    descriptor = summary.open_regular(path)
    if descriptor is None:
        return None, Grown()
    try:
        status = os.fstat(descriptor)
        grown = Grown(status.st_size, mtime=status.st_mtime)
        start = 0
        same_file = cursor and (status.st_dev, status.st_ino) == (cursor.device, cursor.inode)
        # a copy on another disk (or a restored one) is the same log when it has the same bytes there
        known = False
        if cursor and status.st_size >= cursor.offset:
            mark = bytes.fromhex(cursor.mark)
            known = os.pread(descriptor, len(mark), cursor.offset - len(mark)) == mark
        if cursor and known and (same_file or cursor.offset):
            start = cursor.offset
            grown.bytes -= start
        elif cursor:
            grown.restarted = "truncated" if same_file else "rotated"
        offset, grown.thinned = _consume(descriptor, start, status.st_size, take, whole)
        mark = os.pread(descriptor, min(_MARK, offset), offset - min(_MARK, offset))
        grown.rest = next(_lines(os.pread(descriptor, _SAMPLE, offset)), "")
        return Cursor(status.st_dev, status.st_ino, offset, mark.hex()), grown
    finally:
        os.close(descriptor)


def _consume(descriptor: int, start: int, end: int, take: Take, limit: int) -> tuple[int, bool]:
    """Where the last line ends, and whether lines were left out."""
    if end - start <= limit:
        return _take_all(descriptor, start, end, take), False
    middle, newest = _take_all(descriptor, start, start + _HEAD, take), end - _NEWEST
    for place in range(middle, newest, max(_SAMPLE, (newest - middle) // SAMPLES)):
        whole = list(_lines(os.pread(descriptor, _SAMPLE, place)))[1:-1]
        if line := next((line for hint in _HINTS for line in whole if hint.search(line)), None):
            take(line)
    cut = re.search(rb"[\r\n]", os.pread(descriptor, _SAMPLE, newest))
    return _take_all(descriptor, newest + cut.end() if cut else newest, end, take), True


def _take_all(descriptor: int, start: int, end: int, take: Take) -> int:
    """Where the last line ends; its unfinished rest is left for the next time."""
    place, rest = start, b""
    while place < end and (data := os.pread(descriptor, min(_BLOCK, end - place), place)):
        place += len(data)
        data = rest + data
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        for line in _lines(data[:cut]):
            take(line)
        rest = data[cut:] if len(data) - cut <= _LONGEST else b""
    return place - len(rest)


def _lines(data: bytes) -> Iterator[str]:
    text = data.replace(b"\0", b"").decode("utf-8", "replace")  # zeros: UTF-16 from a Windows shell, a hole
    for line in text.replace("\r", "\n").split("\n"):
        if line and not line.isspace():
            yield line
