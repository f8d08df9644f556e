"""TFLite: a flatbuffer; each tensor of a subgraph names a buffer, whose bytes are inside of the file or behind it."""

from __future__ import annotations

import math

from rgt.checkpoint.formats.container import Window
from rgt.checkpoint.layout import DTYPES, Broken, Layout, Tensor

IDENT = b"TFL3"  # at byte 4
_NAMES = "float32 float16 int32 uint8 int64 - bool int16 complex64 int8 float64 complex128 uint64 - - uint32 uint16"
_TYPES = dict(enumerate(_NAMES.split()))
_MAX = 1_000_000


def read_tflite(window: Window) -> Layout:
    layout = Layout("tflite")
    model = _number(window, 0, 4)
    buffers = [_buffer(window, table) for table in _tables(window, model, 4)]
    for number, graph in enumerate(_tables(window, model, 2)):
        for table in _tables(window, graph, 0):
            shape_at, name_at, kind_at, buffer_at = (_field(window, table, index) for index in (0, 3, 1, 2))
            name = f"{number}.{_text(window, name_at)}"
            index = _number(window, buffer_at, 4) if buffer_at else 0
            if index >= len(buffers):
                raise Broken("bounds", f"names buffer {index} of {len(buffers)}", where=name[:200])
            start, length = buffers[index]
            dtype = DTYPES.get(_TYPES.get(_number(window, kind_at, 1) if kind_at else 0, ""))
            shape = tuple(_number(window, at, 4) for at in _vector(window, shape_at, 4)) if shape_at else ()
            if length and dtype and math.prod(shape) * dtype.size == length:
                role = "weight" if math.prod(shape) > 1 else "other"  # a number of the program, such as a limit
                layout.tensors.append(Tensor(name, dtype, shape, window.start + start, role=role))
    return layout


def _number(window: Window, at: int, size: int) -> int:
    return int.from_bytes(window.read(at, size), "little")


def _field(window: Window, table: int, index: int) -> int:
    """Where a table's field is; 0 when it is left out."""
    vtable = table - int.from_bytes(window.read(table, 4), "little", signed=True)
    size = _number(window, vtable, 2)
    offset = _number(window, vtable + 4 + 2 * index, 2) if 4 + 2 * index < size else 0
    return table + offset if offset else 0


def _vector(window: Window, at: int, size: int) -> list[int]:
    begin = at + _number(window, at, 4)
    count = _number(window, begin, 4)
    if count > _MAX or begin + 4 + count * size > window.length:
        raise Broken("truncated", f"a list of {count} at byte {begin} ends behind the end of the file")
    return [begin + 4 + size * index for index in range(count)]


def _tables(window: Window, table: int, index: int) -> list[int]:
    at = _field(window, table, index)
    return [entry + _number(window, entry, 4) for entry in _vector(window, at, 4)] if at else []


def _text(window: Window, at: int) -> str:
    if not at:
        return ""
    begin = at + _number(window, at, 4)
    return window.read(begin + 4, min(_number(window, begin, 4), 1000)).decode("utf-8", "replace")


def _buffer(window: Window, table: int) -> tuple[int, int]:
    """(start, length): in a list of bytes, or at an offset behind the flatbuffer in files above 2 GB."""
    data, offset, size = (_field(window, table, index) for index in (0, 1, 2))
    if offset and size and _number(window, size, 8) > 0:
        place = _number(window, offset, 8), _number(window, size, 8)
    elif data:
        begin = data + _number(window, data, 4)
        place = begin + 4, _number(window, begin, 4)
    else:
        return 0, 0
    window.part(*place)
    return place
