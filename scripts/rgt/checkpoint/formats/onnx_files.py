"""ONNX: a protobuf message; its tensors are inside of it or, as `external data`, in files beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rgt.checkpoint.formats.container import Window
from rgt.checkpoint.layout import DTYPES, Broken, Layout, Tensor

_NAMES = (
    "- float32 uint8 int8 uint16 int16 int32 int64 - bool float16 float64 uint32 uint64 complex64 complex128 bfloat16"
)
_TYPES = dict(enumerate(f"{_NAMES} float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz".split()))
_MAX_FIELDS, _MAX_DEPTH, _MAX_NAME = 5_000_000, 30, 4096
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
# where messages that hold tensors are: (kind of message, field) -> kind of what is in it
_INSIDE = {
    (kind, int(field)): inner
    for kind, row in {
        "model": "7=graph 25=function",
        "graph": "1=node 5=tensor 15=sparse",
        "function": "7=node",
        "node": "5=attribute",
        "attribute": "5=tensor 6=graph 10=tensor 11=graph",
        "sparse": "1=tensor 2=tensor",
    }.items()
    for field, inner in (pair.split("=") for pair in row.split())
}
Field = tuple[int, int, Any]  # number, wire type, value: a number, or (start, length)


class _Reader:
    def __init__(self, window: Window) -> None:
        self.window, self.fields = window, 0

    def varint(self, at: int, end: int) -> tuple[int, int]:
        data = self.window.read(at, min(10, end - at))
        value = 0
        for index, byte in enumerate(data):
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value, at + index + 1
        raise Broken("truncated", f"the message ends in the middle of a number at byte {at}")

    def message(self, at: int, end: int) -> Iterator[Field]:
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


def read_onnx(window: Window) -> Layout:
    layout, reader = Layout("onnx"), _Reader(window)
    layout.facts["external"] = []
    kinds = [number for number, *_ in reader.message(0, window.length)]
    if 1 not in kinds or 7 not in kinds:
        raise Broken("malformed", "the message has no version and graph, so it is no ONNX model")
    _walk(reader, layout, "model", 0, window.length, 0)
    if layout.facts.get("lists"):
        layout.problem("unjudged", "info", f"{layout.facts['lists']} tensors are written as lists; they are not judged")
    if layout.facts["external"]:
        files = sorted({place[0] for place in layout.facts["external"]})
        layout.problem(
            "unjudged", "info", f"{len(layout.facts['external'])} tensors are in {', '.join(files[:3])[:200]}"
        )
    return layout


def _walk(reader: _Reader, layout: Layout, kind: str, begin: int, end: int, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise Broken("bounds", f"graphs are nested deeper than {_MAX_DEPTH}")
    for number, wire, value in reader.message(begin, end):
        inner = _INSIDE.get((kind, number))
        if inner == "tensor" and wire == _BYTES:
            _tensor(reader, layout, *value)
        elif inner and wire == _BYTES:
            _walk(reader, layout, inner, value[0], value[0] + value[1], depth + 1)


def _tensor(reader: _Reader, layout: Layout, begin: int, length: int) -> None:
    shape: list[int] = []
    window, typed, kind = reader.window, False, 0
    external: dict[str, str] = {}
    texts: dict[int, tuple[int, int]] = {}
    for number, wire, value in reader.message(begin, begin + length):
        if number == 1:
            shape += [value] if wire == _VARINT else _varints(reader, *value)
        elif number == 13 and wire == _BYTES:
            pair = [
                window.read(*part).decode("utf-8", "replace") for _, _, part in reader.message(value[0], sum(value))
            ]
            external |= {pair[0]: pair[1]} if len(pair) == 2 else {}
        elif wire == _BYTES:
            texts[number] = value
        kind = value if number == 2 and wire == _VARINT else kind
        typed |= number in (4, 5, 6, 7, 10, 11)
    at, size = texts.get(8, (0, 0))
    name = window.read(at, min(size, _MAX_NAME)).decode("utf-8", "replace") or f"tensor {begin}"
    dtype, raw = DTYPES.get(_TYPES.get(kind, "")), texts.get(9) or (texts.get(4) if kind == 1 else None)
    layout.facts["lists"] = layout.facts.get("lists", 0) + (typed and not raw)
    if external:
        place = external.get("location", ""), external.get("offset", "0"), external.get("length", "0")
        layout.facts["external"].append((*place, name))
    elif raw and dtype and math.prod(shape) * dtype.size == raw[1]:
        role = "weight" if math.prod(shape) > 1 else "other"  # a number of the program, such as a limit
        layout.tensors.append(Tensor(name, dtype, tuple(shape), window.start + raw[0], role=role))
    elif raw and dtype:
        message = f"needs {math.prod(shape) * dtype.size} bytes and has {raw[1]}"
        layout.problem("bounds", "error", message, where=name[:200])
    elif not raw and not typed and 0 not in shape and kind:
        layout.problem("missing", "error", "has no values", where=name[:200])


def _varints(reader: _Reader, at: int, length: int) -> list[int]:
    numbers, end = [], at + length
    while at < end:
        number, at = reader.varint(at, end)
        numbers.append(number)
    return numbers
