"""A zip's directory, read without trust: every offset, size and name is checked before anything uses it.

torch.save and numpy.savez write zips. zipfile reads damaged ones too kindly: it looks only at the central directory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from artifacts.formats.window import Window
from artifacts.model import Broken, Layout, Problem, Span

MAX_MEMBERS = 200_000
MAX_DIRECTORY = 64 << 20  # bytes
STORED, DEFLATED = 0, 8
_END, _END64, _LOCATOR = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY, _LOCAL, _DESCRIPTOR = b"PK\x01\x02", b"PK\x03\x04", b"PK\x07\x08"
_ENCRYPTED, _HAS_DESCRIPTOR = 0x1, 0x8
_SHIFTED = "bytes were added or lost before it; copy the file again"
_MAX_RATIO, _MAX_INFLATED = 200, 1 << 30  # together they call a deflated member a bomb


@dataclass
class Member:
    name: str
    method: int
    flags: int
    crc: int
    packed: int  # bytes in the file
    size: int  # bytes unpacked
    header: int  # offset of the local header
    data: int = 0  # offset of the first byte behind it


def read(window: Window) -> tuple[list[Member], list[Problem]]:
    """Every member whose place is sound, and what is wrong with the others."""
    start, size, count = _find_directory(window)
    if count > MAX_MEMBERS or size > MAX_DIRECTORY:
        raise Broken("bounds", f"the zip lists {count} members in {size} bytes; at most {MAX_MEMBERS} are read")
    members = list(_entries(window.read(start, size)))
    if len(members) != count:
        raise Broken("malformed", f"the zip's directory holds {len(members)} members, its end record says {count}")
    problems: list[Problem] = []
    sound = [member for member in members if _check(window, member, start, problems)]
    return _apart(sound, problems), problems


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
    _, _, _, count, size, offset = struct.unpack_from("<HHHHII", data, at + 4)
    end = window.length - tail + at
    end64 = _zip64(window, end)
    if end64:
        end, count, size, offset = end64
    if end - size < 0 or offset != end - size:
        message = f"the zip's directory should be at byte {offset} and is at {end - size}"
        raise Broken("bounds", message, fix=_SHIFTED)
    return offset, size, count


def _zip64(window: Window, end: int) -> tuple[int, int, int, int] | None:
    """(its offset, members, size, directory offset) of the 64-bit end record."""
    if end < 20:
        return None
    locator = window.read(end - 20, 20)
    if locator[:4] != _LOCATOR:
        return None
    (at,) = struct.unpack_from("<Q", locator, 8)
    record = window.read(at, 56) if at <= window.length - 56 else b""
    if record[:4] != _END64:
        raise Broken("bounds", f"the zip's end record should be at byte {at} and is not", fix=_SHIFTED)
    count, size, offset = struct.unpack_from("<QQQ", record, 32)
    return at, count, size, offset


def _entries(data: bytes) -> Iterator[Member]:
    at = 0
    while at < len(data):
        if data[at : at + 4] != _ENTRY or at + 46 > len(data):
            raise Broken("malformed", f"the zip's directory is damaged at its byte {at}")
        flags, method, _, crc, packed, size, name, extra, comment = struct.unpack_from("<HHIIIIHHH", data, at + 8)
        (header,) = struct.unpack_from("<I", data, at + 42)
        names = data[at + 46 : at + 46 + name]
        more = data[at + 46 + name : at + 46 + name + extra]
        size, packed, header = _wide(more, size, packed, header)
        text = names.decode("utf-8" if flags & 0x800 else "cp437", "replace")
        yield Member(text, method, flags, crc, packed, size, header)
        at += 46 + name + extra + comment


def _wide(extra: bytes, *values: int) -> tuple[int, ...]:
    """64-bit sizes are in an extra field, only for those of the three that are all ones."""
    at, wide = 0, b""
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            wide = extra[at + 4 : at + 4 + length]
        at += 4 + length
    found = []
    for value in values:
        if value == 0xFFFFFFFF and len(wide) >= 8:
            value, wide = int.from_bytes(wide[:8], "little"), wide[8:]
        found.append(value)
    return tuple(found)


def _check(window: Window, member: Member, directory: int, problems: list[Problem]) -> bool:
    """The local header must tell the same story as the directory."""
    found = _sentence(window, member, directory)
    if found:
        problems.append(Problem(found[0], "error", f"zip member {member.name[:100]!r} {found[1]}"))
    return not found


def _sentence(window: Window, member: Member, directory: int) -> tuple[str, str] | None:
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
    return _local(window, member, directory)


def _local(window: Window, member: Member, directory: int) -> tuple[str, str] | None:
    header = window.read(member.header, 30)
    if header[:4] != _LOCAL:
        return "malformed", f"has no header at byte {member.header}"
    _, _, method, _, crc, packed, size, name, extra = struct.unpack_from("<HHHIIIIHH", header, 4)
    member.data = member.header + 30 + name + extra
    if member.data + member.packed > directory:
        return "bounds", f"ends at byte {member.data + member.packed}, behind the last one at {directory}"
    codec = "utf-8" if member.flags & 0x800 else "cp437"
    if window.read(member.header + 30, name).decode(codec, "replace") != member.name or method != member.method:
        return "malformed", "has another name or packing in its own header than in the directory"
    if member.flags & _HAS_DESCRIPTOR:
        return _descriptor(window, member, directory)
    if crc != member.crc or (0xFFFFFFFF not in (packed, size) and (packed, size) != (member.packed, member.size)):
        return "malformed", "has another size or CRC in its own header than in the directory"
    return None


def _descriptor(window: Window, member: Member, directory: int) -> tuple[str, str] | None:
    """Behind the data: signature, CRC, two sizes. Some writers leave the signature out; then it is not looked at."""
    at = member.data + member.packed
    if at + 16 > directory:
        return None
    found = window.read(at, 8)
    if found[:4] == _DESCRIPTOR and int.from_bytes(found[4:], "little") != member.crc:
        return "malformed", "has another CRC behind its data than in the directory"
    return None


def _apart(members: list[Member], problems: list[Problem]) -> list[Member]:
    """The members that share no byte and no name with one before them; overlapping ones make small files endless."""
    kept: dict[str, Member] = {}
    end, last = 0, ""
    for member in sorted(members, key=lambda member: member.header):
        if member.header < end:
            message = f"zip members {last[:100]!r} and {member.name[:100]!r} share bytes {member.header} to {end}"
            problems.append(Problem("overlap", "error", message))
        elif member.name in kept:
            problems.append(Problem("duplicate", "error", f"zip member {member.name[:100]!r} is there twice"))
        else:
            kept[member.name] = member
        if member.data + member.packed > end:
            end, last = member.data + member.packed, member.name
    if members and min(member.header for member in members) > 0:
        problems.append(Problem("malformed", "error", "there are foreign bytes before the first zip member"))
    return list(kept.values())


def spans(members: list[Member], base: int, layout: Layout) -> list[Span]:
    """What the stream pass must find the right CRC for; torch can be told to write none."""
    if members and all(member.crc == 0 for member in members) and any(member.size for member in members):
        layout.problem("no-crc", "info", "saved without checksums (torch.serialization.set_crc32_options)")
        return []
    return [Span(m.name, base + m.data, m.packed, m.crc) for m in members if m.method == STORED]
