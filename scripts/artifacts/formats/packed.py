"""Deflated zip members: unpacked a block at a time, so that neither memory nor a false size matters."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from artifacts.formats.window import Memory, Window
from artifacts.formats.zipdir import STORED, Member
from artifacts.model import Broken

_IN, _OUT = 256 << 10, 1 << 20


def blocks(window: Window, member: Member) -> Iterator[bytes]:
    """The member's contents; Broken when they do not unpack to exactly what the directory says."""
    done, crc = 0, 0
    for block in _inflate(window, member):
        done, crc = done + len(block), zlib.crc32(block, crc)
        if done > member.size:
            raise Broken(
                "bomb", f"zip member {member.name[:100]!r} unpacks to more than the {member.size} bytes it claims"
            )
        yield block
    if done != member.size:
        raise Broken("truncated", f"zip member {member.name[:100]!r} unpacks to {done} bytes instead of {member.size}")
    if crc != member.crc:
        raise Broken("crc", f"zip member {member.name[:100]!r} has CRC {crc:08x}, its directory says {member.crc:08x}")


def _inflate(window: Window, member: Member) -> Iterator[bytes]:
    engine = zlib.decompressobj(-15)
    try:
        for at in range(0, member.packed, _IN):
            data = window.read(member.data + at, min(_IN, member.packed - at))
            while data and not engine.eof:
                yield engine.decompress(data, _OUT)
                data = engine.unconsumed_tail
        yield engine.flush()
    except zlib.error as error:
        raise Broken("crc", f"zip member {member.name[:100]!r} does not unpack: {error}") from None


def whole(window: Window, member: Member, limit: int) -> Window:
    """A member's contents to read by position: in place when stored, unpacked into memory when small enough."""
    if member.size > limit:
        raise Broken("bounds", f"zip member {member.name[:100]!r} has {member.size} bytes; at most {limit} are read")
    if member.method == STORED:
        return window.part(member.data, member.packed)
    return Memory(b"".join(blocks(window, member)))
