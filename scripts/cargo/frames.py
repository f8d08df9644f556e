"""The stream in which file contents travel when there is no rsync: chunks with a length, zeros as a mere number.

The order of the files is the order in which they were asked for; the sender never names a path.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO, Protocol

MARK = b"rgt-cargo-1\n"  # before it, a login script may have printed anything
CHUNK = 1 << 20
_ZEROS = 1 << 31  # this bit of a length: that many zeros, which are not sent
_LENGTH = struct.Struct(">I")


class Reader(Protocol):
    def read(self, count: int, /) -> bytes: ...


class Cut(Exception):
    """The stream ended in the middle."""


def write_chunk(out: IO[bytes], data: bytes) -> None:
    if len(data) == CHUNK and not any(data[:64]) and data.count(0) == CHUNK:
        out.write(_LENGTH.pack(_ZEROS | CHUNK))
        return
    out.write(_LENGTH.pack(len(data)))
    out.write(data)


def end_file(out: IO[bytes]) -> None:
    out.write(_LENGTH.pack(0))


def read_chunks(source: Reader) -> Iterator[bytes | int]:
    """Bytes, or a number of zeros."""
    while True:
        length = _LENGTH.unpack(exactly(source, _LENGTH.size))[0]
        if not length:
            return
        if length & _ZEROS:
            yield min(length & ~_ZEROS, CHUNK)
        elif length > CHUNK:
            raise Cut("the other side sends chunks of a size that nobody agreed on")
        else:
            yield exactly(source, length)


def exactly(source: Reader, count: int) -> bytes:
    parts = []
    while count:
        part = source.read(count)
        if not part:
            raise Cut("the connection ended")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
