"""What a log has gained since the last look, whatever happened to the file in between.

Example:
    cursor, grown = advance(Path("train.log"), cursor, take)      take(line) for every new line; cursor is JSON-ready

Up to WHOLE new bytes every line is taken. Of a longer backlog the beginning and the end are taken line by line, and
between them SAMPLES lines with a number, evenly spread, plus every line with one of RARE: a log of gigabytes costs
one pass of C-level searches and constant memory. A file that was rotated or truncated is read from its beginning.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rgt.log import summary

WHOLE = 2 << 20  # new bytes of which every line is taken
_HEAD = 32 << 10  # of a longer backlog: how long the run will be is said here
_NEWEST = 128 << 10
SAMPLES = 2000
_BLOCK = 1 << 20  # searched several times, so it should fit the processor's cache
_MARGIN = 4 << 10  # around a block, for the line that its edge cuts
_LONGEST = 1 << 20  # bytes without a line's end that are given up as not text
_MARK = 64  # bytes before the cursor, by which the file is recognised
_PER_BLOCK = 32  # lines taken for one rare word in one block

# Long words are cheap to search for (the search skips by their length); only `nan` is short, and costs the most.
RARE = (b"heckpoint", b"out of memory", b"Traceback (most recent call last)")
_EVALUATED = (b"val loss", b"val_loss", b"eval_loss")  # searched for where the log's beginning or end spells it so
_LOSS = re.compile(rb"[Ll]oss")
_COUNTER = re.compile(rb"step|iter|poch|it/s")


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
    unfinished: str = ""  # text after the last line's end, such as the newest state of a progress bar


Take = Callable[[str], None]


def advance(path: Path, cursor: Cursor | None, take: Take) -> tuple[Cursor | None, Grown]:
    """Give `take` every new line. None: there is no such file."""
    descriptor = summary.open_regular(path)
    if descriptor is None:
        return None, Grown()
    try:
        status = os.fstat(descriptor)
        grown = Grown(status.st_size, mtime=status.st_mtime)
        start = 0
        same_file = cursor and (status.st_dev, status.st_ino) == (cursor.device, cursor.inode)
        # a copy on another disk (or a restored one) is the same log when it has the same bytes there
        if cursor and _knows(descriptor, status.st_size, cursor) and (same_file or cursor.offset):
            start = cursor.offset
            grown.bytes -= start
        elif cursor:
            grown.restarted = "truncated" if same_file else "rotated"
        offset, grown.unfinished, grown.thinned = _consume(descriptor, start, status.st_size, take)
        mark = os.pread(descriptor, min(_MARK, offset), offset - min(_MARK, offset))
        return Cursor(status.st_dev, status.st_ino, offset, mark.hex()), grown
    finally:
        os.close(descriptor)


def _knows(descriptor: int, size: int, cursor: Cursor) -> bool:
    mark = bytes.fromhex(cursor.mark)
    return size >= cursor.offset and os.pread(descriptor, len(mark), cursor.offset - len(mark)) == mark


def _consume(descriptor: int, start: int, end: int, take: Take) -> tuple[int, str, bool]:
    """Where the last line ends, the unfinished text after it, and whether lines were left out."""
    if start < end:
        try:  # a log truncated under a writer without O_APPEND starts with a hole of the old length
            start = min(end, os.lseek(descriptor, start, os.SEEK_DATA))
        except OSError as error:  # ENXIO: nothing but a hole; any other: a file system without SEEK_DATA
            start = end if error.errno == errno.ENXIO else start
    if end - start <= WHOLE:
        return (*_whole(descriptor, start, end, take), False)
    middle, _ = _whole(descriptor, start, start + _HEAD, take)
    newest = end - _NEWEST
    ends = os.pread(descriptor, _HEAD, start) + os.pread(descriptor, _NEWEST, newest)
    words = tuple(word for word in _EVALUATED if word in ends)
    for line in _thin(descriptor, middle, newest, (*RARE, *words)):
        take(line)
    cut = re.search(rb"[\r\n]", os.pread(descriptor, _MARGIN, newest))
    return (*_whole(descriptor, newest + cut.end() if cut else newest, end, take), True)


def _whole(descriptor: int, start: int, end: int, take: Take) -> tuple[int, str]:
    place, rest = start, b""
    while place < end and (data := os.pread(descriptor, min(_BLOCK, end - place), place)):
        place += len(data)
        data = rest + data
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        for line in _lines(data[:cut]):
            take(line)
        rest = data[cut:] if len(data) - cut <= _LONGEST else b""
    return place - len(rest), _decode(rest)


def _decode(data: bytes) -> str:
    return data.replace(b"\0", b"").decode("utf-8", "replace")  # zeros: UTF-16 from a Windows shell, a hole


def _lines(data: bytes) -> Iterator[str]:
    for line in _decode(data).replace("\r", "\n").split("\n"):
        if line and not line.isspace():
            yield line


def _thin(descriptor: int, start: int, end: int, words: tuple[bytes, ...]) -> Iterator[str]:
    """The rare lines, and every so many bytes one with a number, in their order."""
    spacing = max(1, (end - start) // SAMPLES)
    sample = start
    for place in range(start, end, _BLOCK):
        before = min(_MARGIN, place - start)
        data = os.pread(descriptor, min(_BLOCK, end - place) + before + _MARGIN, place - before)
        stop = min(len(data), before + min(_BLOCK, end - place))
        found = set(_rare(data, before, stop, words))
        hint = _LOSS if _LOSS.search(data, before, stop) else _COUNTER
        while sample < place + _BLOCK and sample < end:
            match = hint.search(data, max(before, sample - place + before), stop)
            if match is None:
                sample = place + _BLOCK
                break
            found.add(_bounds(data, match.start()))
            sample = max(sample + spacing, place - before + match.end())
        for first, last in sorted(found):
            yield from _lines(data[first:last])


def _rare(data: bytes, start: int, stop: int, words: tuple[bytes, ...]) -> Iterator[tuple[int, int]]:
    rows_of_json = data.startswith(b'{"') or b'\n{"' in data[:_MARGIN]
    for word in (b"NaN" if rows_of_json else b"nan", *words):
        place = data.find(word, start, stop)
        for _ in range(_PER_BLOCK):
            if place < 0:
                break
            bounds = _bounds(data, place)
            yield bounds
            place = data.find(word, bounds[1], stop)


def _bounds(data: bytes, place: int) -> tuple[int, int]:
    """The line, or the bar's state, around a place."""
    first = max(data.rfind(b"\n", 0, place), data.rfind(b"\r", max(0, place - _MARGIN), place)) + 1
    end = data.find(b"\n", place, place + _MARGIN)
    back = data.find(b"\r", place, end if end >= 0 else place + _MARGIN)
    ends = [place for place in (end, back) if place >= 0]
    return max(first, place - _MARGIN), min(ends) if ends else min(len(data), place + _MARGIN)
