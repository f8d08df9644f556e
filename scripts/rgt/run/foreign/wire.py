"""Protobuf messages and TFRecord checksums, read without their libraries: what TensorBoard and W&B write to disk.

Example:
    fields = message(data)                  {1: [b"val/loss"], 2: [b"..."]}     field number -> its values, in order
    text(fields, 1), number(fields, 2)      the last one, as protobuf has it; "" and 0 when it is not there
"""

from __future__ import annotations

import struct

Fields = dict[int, list[int | bytes]]
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST = 10  # bytes of a varint of 64 bits


class Malformed(Exception):
    """These bytes are no message."""


def message(data: bytes) -> Fields:
    """Numbers as unsigned integers, everything else (fixed width, text, messages inside) as bytes."""
    fields: Fields = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind, value = tag & 7, b""
        if kind == _VARINT:
            whole, at = _varint(data, at)
            fields.setdefault(tag >> 3, []).append(whole)
            continue
        if kind == _BYTES:
            length, at = _varint(data, at)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise Malformed(f"wire type {kind}")
        value = data[at : at + length]
        if len(value) < length:
            raise Malformed("it ends inside a field")
        fields.setdefault(tag >> 3, []).append(value)
        at += length
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : at + _LONGEST]):
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at + place + 1
    raise Malformed("a number without an end")


def blobs(fields: Fields, field: int) -> list[bytes]:
    return [value for value in fields.get(field, ()) if isinstance(value, bytes)]


def inner(fields: Fields, field: int) -> Fields:
    """The last message of a field; empty when there is none."""
    values = blobs(fields, field)
    return message(values[-1]) if values else {}


def text(fields: Fields, field: int) -> str:
    values = blobs(fields, field)
    return values[-1].decode("utf-8", "replace") if values else ""


def number(fields: Fields, field: int) -> float:
    """A float or double by its width; an integer as it was signed."""
    value = (fields.get(field) or [0])[-1]
    if isinstance(value, int):
        return value - (1 << 64) if value >> 63 else value
    return float(struct.unpack("<d" if len(value) == 8 else "<f", value)[0]) if len(value) in (4, 8) else 0.0


# -- crc32c (Castagnoli), as TFRecord masks it


def _table() -> list[int]:
    rows = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        rows.append(byte)
    return rows


_CRC = _table()


def masked_crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
