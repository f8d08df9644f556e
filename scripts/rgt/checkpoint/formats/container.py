"""Bounded reading: a part of a file by position, and a zip's members. Never beyond an end, never more than asked for.

torch.save and numpy.savez write zips. zipfile reads damaged ones too kindly: it looks only at the central directory.
Here every offset, size and name is checked before anything uses it.
"""

from __future__ import annotations

import math
import os
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rgt.checkpoint.layout import Broken, Layout, Member, Problem

_CHUNK = 16 * 1024
MAX_MEMBERS = 200_000
MAX_DIRECTORY = 64 << 20  # bytes
STORED, DEFLATED = 0, 8
_END, _END64, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY, _LOCAL, _DESCRIPTOR = b"PK\x01\x02", b"PK\x03\x04", b"PK\x07\x08"
_ENCRYPTED, _HAS_DESCRIPTOR, _UTF8 = 0x2061, 0x8, 0x800  # encryption of three kinds, and patches
_FOLDER = 0x10  # of the attributes: torch's reader then leaves the bytes of the storage as they were in memory
_SHIFTED = "bytes were added or lost before it; copy the file again"
_MAX_RATIO, _MAX_INFLATED = 200, 1 << 30  # together they call a deflated member a bomb
_IN, _OUT = 256 << 10, 1 << 20  # bytes inflated at once


class Late(Exception):
    """The time that was given for reading is over."""


@dataclass(frozen=True)
class Window:
    """Bytes start .. start+length of an open file or of `memory`; a checkpoint inside another file is one, too."""

    descriptor: int
    start: int
    length: int
    deadline: float = math.inf  # of time.monotonic(); reading after it raises Late
    memory: bytes | None = None  # bytes that were unpacked

    def part(self, start: int, length: int) -> Window:
        if start < 0 or length < 0 or start + length > self.length:
            raise Broken("bounds", f"bytes {start} to {start + length} lie outside of {self.length}")
        return replace(self, start=self.start + start, length=length)

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes, or Broken."""
        if time.monotonic() > self.deadline:
            raise Late
        if offset < 0 or size < 0 or offset + size > self.length:
            raise Broken("truncated", f"bytes {offset} to {offset + size} are wanted, there are {self.length}")
        start = self.start + offset
        if self.memory is not None:
            return self.memory[start : start + size]
        data = os.pread(self.descriptor, size, start)
        while len(data) < size:  # one call gives 2 GiB at most
            more = os.pread(self.descriptor, size - len(data), start + len(data))
            if not more:
                raise Broken("truncated", f"the file ended at byte {start + len(data)} while it was read")
            data += more
        return data

    def read_into(self, offset: int, buffer: memoryview) -> memoryview:
        done = 0
        while done < len(buffer):
            count = os.preadv(self.descriptor, [buffer[done:]], self.start + offset + done)
            if not count:
                raise Broken("truncated", f"the file ended at byte {offset + done} while it was read")
            done += count
        return buffer

    def head(self, size: int) -> bytes:
        return self.read(0, min(size, self.length))

    def number(self, at: int, size: int = 8) -> int:
        return int.from_bytes(self.read(at, size), "little")


def in_memory(data: bytes) -> Window:
    return Window(-1, 0, len(data), memory=data)


class Cursor:
    """A Window read forward through a buffer, at most `limit` bytes: a claim of an exabyte must not allocate one."""

    what = "pickle"

    def __init__(self, window: Window, position: int, limit: int) -> None:
        self.window, self.end = window, min(window.length, position + limit)
        self.data, self._start, self.at = b"", position, 0  # the buffer, its place in the window, what of it was read

    def tell(self) -> int:
        return self._start + self.at

    def ahead(self, size: int) -> bytes:
        """The buffer, with so many bytes behind `at`; fewer only at the end."""
        if len(self.data) - self.at < size:
            self._start, self.at = self.tell(), 0
            self.data = self.window.read(self._start, min(max(size, _CHUNK), max(self.end - self._start, 0)))
        return self.data

    def _check(self, size: int, end: int) -> None:
        if size < 0 or size > end - self.tell():
            code = "malformed" if size < 0 else "truncated" if end == self.window.length else "bounds"
            there = f"but only {end - self.tell()} remain"
            raise Broken(code, f"not a whole {self.what}: expected {size} bytes at byte {self.tell()}, {there}")

    def read(self, size: int) -> bytes:
        """Exactly so many bytes, or Broken."""
        self._check(size, self.end)
        data = self.ahead(size)
        self.at += size
        return data[self.at - size : self.at]

    def readline(self) -> bytes:
        """Without its end when there is none."""
        size = _CHUNK
        while (behind := self.ahead(size).find(b"\n", self.at) + 1) == 0 and size < self.end - self.tell():
            size *= 2
        return self.read((behind or len(self.data)) - self.at)

    def take(self, size: int) -> Window:
        """The next bytes, left where they are; they do not count against the limit."""
        self._check(size, self.window.length)
        at, self.end = self.tell(), min(self.window.length, self.end + size)
        self.data, self._start, self.at = b"", at + size, 0
        return self.window.part(at, size)


# -- a zip's directory


def read_zip(window: Window) -> tuple[list[Member], list[Problem]]:
    """Every member whose place is sound, and what is wrong with the others."""
    start, size, count = _find_directory(window)
    if count > MAX_MEMBERS or size > MAX_DIRECTORY:
        raise Broken("bounds", f"the zip lists {count} members in {size} bytes; at most {MAX_MEMBERS} are read")
    members = list(_entries(window.read(start, size)))
    if len(members) != count:
        raise Broken("malformed", f"the zip's directory holds {len(members)} members, its end record says {count}")
    sound: list[Member] = []
    problems: list[Problem] = []
    for member in members:
        fault = _fault(window, member, start)
        if member.attributes & _FOLDER and member.size:
            fault = "malformed", "is marked as a folder and holds bytes: torch would not read them"
        if fault:
            problems.append(Problem(fault[0], "error", f"zip member {member.name[:100]!r} {fault[1]}"))
        else:
            sound.append(member)
    kept: dict[str, Member] = {}
    sound.sort(key=lambda member: member.header)
    end, last = 0, ""
    for member in sound:  # overlapping members make small files endless
        if member.header < end:
            message = f"zip members {last[:100]!r} and {member.name[:100]!r} share bytes {member.header} to {end}"
            problems.append(Problem("overlap", "error", message))
        elif member.name in kept:
            problems.append(Problem("duplicate", "error", f"zip member {member.name[:100]!r} is there twice"))
        else:
            kept[member.name] = member
        if member.data + member.packed > end:
            end, last = member.data + member.packed, member.name
    if sound and sound[0].header > 0:
        problems.append(Problem("malformed", "error", "there are foreign bytes before the first zip member"))
    return list(kept.values()), problems


def _find_directory(window: Window) -> tuple[int, int, int]:
    """(offset, size, members) of the central directory."""
    tail = min(window.length, 65557)
    data = window.read(window.length - tail, tail)
    at = data.rfind(_END)
    if at < 0:
        zeros = " (it ends in zeros: a copy that was never finished)" if not any(data[-4096:]) else ""
        raise Broken("truncated", f"the zip's directory is missing: the end of the file is not there{zeros}")
    if at + 22 > len(data) or at + 22 + int.from_bytes(data[at + 20 : at + 22], "little") != len(data):
        raise Broken("trailing", "other bytes follow the end of the zip")
    disk, disk_of_directory, on_disk, count, size, offset = struct.unpack_from("<HHHHII", data, at + 4)
    if disk or disk_of_directory or on_disk != count:
        raise Broken("malformed", "the zip is one of several disks, which no checkpoint is")
    end = window.length - tail + at
    locator = window.read(end - 20, 20) if end >= 20 else b""
    if locator[:4] == _LOCATOR:  # the 64-bit end record
        (end,) = struct.unpack_from("<Q", locator, 8)
        record = window.read(end, 56) if end <= window.length - 56 else b""
        if record[:4] != _END64:
            raise Broken("bounds", f"the zip's end record should be at byte {end} and is not", fix=_SHIFTED)
        disk, disk_of_directory, on_disk, count, size, offset = struct.unpack_from("<IIQQQQ", record, 16)
        if disk or disk_of_directory or on_disk != count:
            raise Broken("malformed", "the zip is one of several disks, which no checkpoint is")
    if end - size < 0 or offset != end - size:
        raise Broken("bounds", f"the zip's directory should be at byte {offset} and is at {end - size}", fix=_SHIFTED)
    return offset, size, count


def _entries(data: bytes) -> Iterator[Member]:
    at = 0
    while at < len(data):
        if data[at : at + 4] != _ENTRY or at + 46 > len(data):
            raise Broken("malformed", f"the zip's directory is damaged at its byte {at}")
        flags, method, _, crc, packed, size, name, extra, comment = struct.unpack_from("<HHIIIIHHH", data, at + 8)
        disk, _, attributes, header = struct.unpack_from("<HHII", data, at + 34)
        if disk > 1 or at + 46 + name + extra + comment > len(data):
            raise Broken("malformed", f"the zip's directory is damaged at its byte {at}, or of several disks")
        text = data[at + 46 : at + 46 + name].decode("utf-8" if flags & _UTF8 else "cp437", "replace")
        wide, values = b"", [size, packed, header]  # 64-bit values are in an extra field, only for those all ones
        more = data[at + 46 + name : at + 46 + name + extra] if 0xFFFFFFFF in values else b""
        while len(more) >= 4:
            kind, length = struct.unpack_from("<HH", more)
            wide = more[4 : 4 + length] if kind == 1 else wide
            more = more[4 + length :]
        for index, value in enumerate(values):
            if value == 0xFFFFFFFF and len(wide) >= 8:
                values[index], wide = int.from_bytes(wide[:8], "little"), wide[8:]
        yield Member(text, method, flags, crc, values[1], values[0], values[2], attributes=attributes)
        at += 46 + name + extra + comment


def _fault(window: Window, member: Member, directory: int) -> tuple[str, str] | None:
    """Its own header must tell the same story as the directory; where its data begins is only known from there."""
    parts = member.name.replace("\\", "/").split("/")
    if ".." in parts or member.name.startswith(("/", "\\")) or "\0" in member.name or ":" in parts[0]:
        return "path-name", "would be written outside of the folder it is unpacked in"
    if member.method not in (STORED, DEFLATED) or member.flags & _ENCRYPTED:
        return "malformed", "is encrypted or packed in a way that checkpoints are not"
    if member.method == STORED and member.size != member.packed:
        return "malformed", f"has {member.packed} bytes and claims {member.size}"
    if member.size > max(_MAX_INFLATED, _MAX_RATIO * member.packed):
        return "bomb", f"would grow from {member.packed} to {member.size} bytes"
    if member.header + 30 > directory:
        return "bounds", f"starts at byte {member.header}, behind the last one"
    # its name is as long as in the directory, or it has another one
    header = window.read(member.header, min(30 + len(member.name.encode()), directory - member.header))
    if header[:4] != _LOCAL:
        return "malformed", f"has no header at byte {member.header}"
    method, _, crc, packed, size, name_length, extra = struct.unpack_from("<HIIIIHH", header, 8)
    member.data = member.header + 30 + name_length + extra
    end = member.data + member.packed
    if end > directory:
        return "bounds", f"ends at byte {end}, behind the last one at {directory}"
    raw = header[30 : 30 + name_length]
    raw = raw if len(raw) == name_length else window.read(member.header + 30, name_length)
    name = raw.decode("utf-8" if member.flags & _UTF8 else "cp437", "replace")
    if name != member.name or method != member.method:
        return "malformed", "has another name or packing in its own header than in the directory"
    if member.flags & _HAS_DESCRIPTOR:  # signature, CRC, two sizes; some writers leave the signature out
        behind = window.read(end, 8) if end + 16 <= directory else b""
        if behind[:4] == _DESCRIPTOR and int.from_bytes(behind[4:], "little") != member.crc:
            return "malformed", "has another CRC behind its data than in the directory"
    elif crc != member.crc or (0xFFFFFFFF not in (packed, size) and (packed, size) != (member.packed, member.size)):
        return "malformed", "has another size or CRC in its own header than in the directory"
    return None


def crc_spans(members: list[Member], base: int, layout: Layout) -> list[Member]:
    """The bytes whose CRC is known; torch can be told to write none."""
    if members and all(member.crc == 0 for member in members) and any(member.size for member in members):
        layout.problem("no-crc", "info", "saved without checksums (torch.serialization.set_crc32_options)")
        return []
    stored = [member for member in members if member.method == STORED]
    return [replace(member, data=base + member.data) for member in stored] if base else stored


# -- its members


def blocks(window: Window, member: Member) -> Iterator[bytes]:
    """A deflated member's contents, a block at a time; Broken when they are not exactly what the directory says."""
    name, done, crc, engine = f"zip member {member.name[:100]!r}", 0, 0, zlib.decompressobj(-15)
    try:
        for at in range(0, member.packed, _IN):
            data = window.read(member.data + at, min(_IN, member.packed - at))
            while data and not engine.eof:
                block = engine.decompress(data, _OUT)
                done, crc, data = done + len(block), zlib.crc32(block, crc), engine.unconsumed_tail
                if done > member.size:
                    raise Broken("bomb", f"{name} unpacks to more than the {member.size} bytes it claims")
                yield block
    except zlib.error as error:
        raise Broken("crc", f"{name} does not unpack: {error}") from None
    if done != member.size or not engine.eof:
        raise Broken("truncated", f"{name} unpacks to {done} bytes instead of {member.size}")
    if crc != member.crc:
        raise Broken("crc", f"{name} has CRC {crc:08x}, its directory says {member.crc:08x}")


def member_window(window: Window, member: Member, limit: int) -> Window:
    """A member's contents to read by position: in place when stored, unpacked into memory when small enough."""
    if member.size > limit:
        raise Broken("bounds", f"zip member {member.name[:100]!r} has {member.size} bytes; at most {limit} are read")
    if member.method == STORED:
        return window.part(member.data, member.packed)
    return in_memory(b"".join(blocks(window, member)))
