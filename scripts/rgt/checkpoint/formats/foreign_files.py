"""Model files of other libraries: GGUF, ONNX and flax' msgpack. What is not judged by value is said."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rgt.checkpoint.formats.container import Cursor, Window
from rgt.checkpoint.layout import DTYPES, Broken, Dtype, Layout, Tensor

GGUF = b"GGUF"
_CUT = "the file was cut off; copy it again"


# -- GGUF (llama.cpp): keys and values, a table of tensors, then their bytes, each at its aligned offset

_MAX_HEADER, _MAX_COUNT = 256 << 20, 1_000_000
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of each type of a value
_STRING, _ARRAY = 8, 9
_PLAIN = {0: "float32", 1: "float16", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64", 30: "bfloat16"}
# quantised types: values in a block, bytes of it
_BLOCKS = {2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40), 10: (256, 84)}
_BLOCKS |= {11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66)}
_BLOCKS |= {17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136)}
_BLOCKS |= {29: (256, 56), 34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18)}


class _Header(Cursor):
    what = "header"

    def number(self, code: str = "Q") -> int:
        return int(struct.unpack(f"<{code}", self.read(struct.calcsize(code)))[0])

    def count(self) -> int:
        count = self.number()
        if count > _MAX_COUNT:
            raise Broken("bounds", f"the header counts {count}; at most {_MAX_COUNT} are read")
        return count

    def text(self) -> str:
        return self.read(self.count()).decode("utf-8", "replace")

    def value(self, kind: int) -> bytes:
        """The bytes of a scalar; strings and lists are passed over."""
        if kind == _STRING:
            self.text()
        elif kind == _ARRAY:
            inner, count = self.number("I"), self.count()
            if inner in _SCALARS:
                self.read(count * _SCALARS[inner])
            else:
                for _ in range(count):
                    self.value(inner)
        elif kind not in _SCALARS:
            raise Broken("malformed", f"the header has a value of unknown type {kind}")
        return self.read(_SCALARS.get(kind, 0))


def read_gguf(window: Window) -> Layout:
    header, layout, table = _Header(window, 4, _MAX_HEADER), Layout("gguf"), []
    version = header.number("I")
    if version not in (2, 3):
        raise Broken("malformed", f"GGUF version {version}; 2 and 3 are known")
    tensors, keys, alignment = header.count(), header.count(), 32
    for _ in range(keys):
        key, kind = header.text(), header.number("I")
        value = header.value(kind)
        if key == "general.alignment" and len(value) == 4:
            alignment = max(int.from_bytes(value, "little"), 1)
    for _ in range(tensors):
        name, rank = header.text(), header.number("I")
        if rank > 8:
            raise Broken("malformed", f"a tensor has {rank} axes", where=name)
        shape = tuple(header.number() for _ in range(rank))[::-1]
        table.append((name, shape, header.number("I"), header.number()))
    begin = -(-header.tell() // alignment) * alignment
    for name, shape, kind, offset in table:
        values, size = _BLOCKS.get(kind, (1, 0))
        dtype = DTYPES[_PLAIN[kind]] if kind in _PLAIN else Dtype(f"ggml-{kind}", size, "opaque")
        length = math.prod(shape) // values * dtype.size
        behind = begin + offset + length - window.length
        if not dtype.size or math.prod(shape) % values:
            layout.error("malformed", f"its type {kind} is not known, or does not fit its shape", name)
        elif behind > 0:
            layout.error("truncated", f"ends {behind} bytes behind the end of the file", name, fix=_CUT)
        else:
            shape = shape if values == 1 else (length // dtype.size,)
            layout.tensors.append(Tensor(name, dtype, shape, window.start + begin + offset))
    return layout


# -- ONNX: a protobuf message; its tensors are inside of it or, as `external data`, in files beside it

_ONNX_TYPES = (
    "- float32 uint8 int8 uint16 int16 int32 int64 - bool float16 float64 uint32 uint64 complex64 complex128 bfloat16"
    " float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz"
).split()
_MAX_FIELDS, _MAX_GRAPHS, _MAX_NAME = 5_000_000, 30, 4096
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
# where messages that hold tensors are: kind of message -> field -> kind of what is in it
_INSIDE = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
    "sparse": {1: "tensor", 2: "tensor"},
}
_LISTS = (4, 5, 6, 7, 10, 11)  # fields of a tensor that hold its values as a list


@dataclass
class _Protobuf:
    window: Window
    layout: Layout
    fields: int = 0
    lists: int = 0  # tensors that are written as lists

    def varint(self, at: int, end: int) -> tuple[int, int]:
        value = 0
        for index, byte in enumerate(self.window.read(at, min(10, end - at))):
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value, at + index + 1
        raise Broken("truncated", f"the message ends in the middle of a number at byte {at}")

    def message(self, at: int, end: int) -> Iterator[tuple[int, int, Any]]:
        """(number, wire type, value) of each field; the value is a number, or (start, length)."""
        while at < end:
            self.fields += 1
            if self.fields > _MAX_FIELDS:
                raise Broken("bounds", f"the message has more than {_MAX_FIELDS} fields")
            tag, at = self.varint(at, end)
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                value, at = self.varint(at, end)
                yield number, kind, value
                continue
            if kind not in (_EIGHT, _BYTES, _FOUR) or not number:
                raise Broken("malformed", f"the message is damaged at byte {at}")
            length = 8 if kind == _EIGHT else 4
            if kind == _BYTES:
                length, at = self.varint(at, end)
            if at + length > end:
                raise Broken("truncated", f"a field of {length} bytes at byte {at} ends behind the end of its message")
            yield number, kind, (at, length)
            at += length

    def text(self, at: int, length: int) -> str:
        return self.window.read(at, min(length, _MAX_NAME)).decode("utf-8", "replace")

    def walk(self, kind: str, begin: int, end: int, depth: int = 0) -> None:
        if depth > _MAX_GRAPHS:
            raise Broken("bounds", f"graphs are nested deeper than {_MAX_GRAPHS}")
        for number, wire, value in self.message(begin, end):
            inner = _INSIDE[kind].get(number)
            if inner == "tensor" and wire == _BYTES:
                self.tensor(*value)
            elif inner and wire == _BYTES:
                self.walk(inner, value[0], sum(value), depth + 1)

    def tensor(self, begin: int, length: int) -> None:
        shape: list[int] = []
        external: dict[str, str] = {}
        parts: dict[int, Any] = {}
        for number, wire, value in self.message(begin, begin + length):
            if number == 1 and wire == _BYTES:  # packed
                at, end = value[0], sum(value)
                while at < end:
                    size, at = self.varint(at, end)
                    shape.append(size)
            elif number == 1:
                shape.append(value)
            elif number == 13 and wire == _BYTES:
                pair = [self.text(*part) for _, _, part in self.message(value[0], sum(value))]
                external |= {pair[0]: pair[1]} if len(pair) == 2 else {}
            elif (wire == _VARINT) == (number == 2):
                parts[number] = value
        kind, typed = parts.get(2, 0), any(number in parts for number in _LISTS)
        name = (self.text(*parts[8]) if 8 in parts else "") or f"tensor {begin}"
        raw = parts.get(9) or (parts.get(4) if kind == 1 else None)
        dtype = DTYPES.get(_ONNX_TYPES[kind] if kind < len(_ONNX_TYPES) else "")
        self.lists += typed and not raw
        if external:
            place = external.get("location", ""), external.get("offset", "0"), external.get("length", "0")
            self.layout.facts["external"].append(place)
        elif raw and dtype:
            role = "weight" if math.prod(shape) > 1 else "other"  # a number of the program, such as a limit
            self.layout.add_values(name, dtype, tuple(shape), self.window.start + raw[0], raw[1], role)
        elif not raw and not typed and 0 not in shape and kind:
            self.layout.error("missing", "has no values", name)


def read_onnx(window: Window) -> Layout:
    layout = Layout("onnx", facts={"external": []})
    reader = _Protobuf(window, layout)
    kinds = [number for number, *_ in reader.message(0, window.length)]
    if 1 not in kinds or 7 not in kinds:
        raise Broken("malformed", "the message has no version and graph, so it is no ONNX model")
    reader.walk("model", 0, window.length)
    if reader.lists:
        layout.problem("unjudged", "info", f"{reader.lists} tensors are written as lists; they are not judged")
    if external := layout.facts["external"]:
        files = sorted({place[0] for place in external})
        layout.problem("unjudged", "info", f"{len(external)} tensors are in {', '.join(files[:3])[:200]}")
    return layout


# -- msgpack as flax writes it: maps, and arrays as extension 1 that holds (shape, dtype, bytes)

_MAX_NODES, _MAX_DEPTH, _MAX_TEXT = 2_000_000, 100, 1 << 20
_FLAX = (1, 3)  # its extensions for arrays and scalars
_NUMBERS = dict(zip(range(0xCA, 0xD4), "fdBHIQbhiq", strict=True))
# bytes of the length that follows: of bytes, extensions, text, lists and maps
_SIZED = dict(zip((0xC4, 0xC5, 0xC6, 0xC7, 0xC8, 0xC9, 0xD9, 0xDA, 0xDB), (1, 2, 4) * 3, strict=True))
_SIZED |= {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
_FIXED = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


class _Msgpack(Cursor):
    """Bytes and arrays stay in the file: they are Windows of it."""

    what = "msgpack value"

    def __init__(self, window: Window, layout: Layout) -> None:
        super().__init__(window, 0, window.length)
        self.layout, self.nodes = layout, 0

    def value(self, name: str, depth: int = 0) -> Any:
        self.nodes += 1
        if self.nodes > _MAX_NODES or depth > _MAX_DEPTH:
            raise Broken("bounds", f"more than {_MAX_NODES} values, or nested deeper than {_MAX_DEPTH}")
        code = self.read(1)[0]
        if code < 0x80 or code >= 0xE0:
            return code if code < 0x80 else code - 256
        if code in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[code]
        if code in _NUMBERS:
            return struct.unpack(f">{_NUMBERS[code]}", self.read(struct.calcsize(_NUMBERS[code])))[0]
        size = int.from_bytes(self.read(_SIZED.get(code, 0)), "big")
        if 0x80 <= code <= 0x8F or code in (0xDE, 0xDF):
            return self.mapping(name, size if code > 0x8F else code & 15, depth)
        if 0x90 <= code <= 0x9F or code in (0xDC, 0xDD):
            return [self.value(f"{name}.{n}", depth + 1) for n in range(size if code > 0x9F else code & 15)]
        if 0xA0 <= code <= 0xBF or code in (0xD9, 0xDA, 0xDB):
            return self.read(min(size if code > 0xBF else code & 31, _MAX_TEXT)).decode("utf-8", "replace")
        if code in (0xC4, 0xC5, 0xC6):
            return self.take(size)
        if code in _FIXED or code in (0xC7, 0xC8, 0xC9):
            kind, data = self.read(1)[0], self.take(_FIXED.get(code, size))
            return self.array(name, data) if kind in _FLAX else data
        raise Broken("malformed", f"there is no msgpack value at byte {self.tell() - 1}")

    def mapping(self, name: str, size: int, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for _ in range(size):
            key = self.value(name, depth + 1)
            if not isinstance(key, (str, int)):
                raise Broken("malformed", "a key is neither text nor number")
            found[key] = self.value(f"{name}.{key}" if name else str(key), depth + 1)
        return found

    def array(self, name: str, data: Window) -> None:
        match _Msgpack(data, self.layout).value(name):
            case [list(shape), (str() | Window()) as code, Window() as values]:
                if isinstance(code, Window):  # the name of the dtype as bytes
                    code = code.head(40).decode("latin-1")
                if code in DTYPES and all(isinstance(size, int) and size >= 0 for size in shape):
                    self.layout.add_values(name, DTYPES[code], tuple(shape), values.start, values.length, "weight")
                else:
                    self.layout.problem("unjudged", "info", f"is an array of {code[:40]}", name)
            case _:
                raise Broken("malformed", "an array is not described by shape, dtype and bytes", where=name)


def read_msgpack(window: Window) -> Layout:
    layout = Layout("msgpack")
    reader = _Msgpack(window, layout)
    layout.root = reader.value("")
    if reader.tell() != window.length:
        layout.error("trailing", f"{window.length - reader.tell()} bytes follow the end")
    return layout
