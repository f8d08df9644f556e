"""GGUF (llama.cpp): a header of keys and values, a table of tensors, then their bytes, each at its aligned offset."""

from __future__ import annotations

import math
import struct

from rgt.checkpoint.formats.container import Cursor, Window
from rgt.checkpoint.layout import DTYPES, Broken, Dtype, Layout, Tensor

MAGIC = b"GGUF"
_MAX_HEADER, _MAX_COUNT = 256 << 20, 1_000_000
_SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # bytes of each type of a value
_STRING, _ARRAY = 8, 9
_PLAIN = {0: "float32", 1: "float16", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64", 30: "bfloat16"}
# quantised types: values in a block, bytes of it
_BLOCKS = {2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40), 10: (256, 84)}
_BLOCKS |= {11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66)}
_BLOCKS |= {17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136)}
_BLOCKS |= {29: (256, 56), 34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18)}


class _Header:
    def __init__(self, window: Window) -> None:
        self.file = Cursor(window, 4, _MAX_HEADER)

    def take(self, size: int) -> bytes:
        data = self.file.read(size) if size else b""
        if len(data) != size:
            raise Broken(self.file.verdict(), "the header ends in the middle")
        return data

    def number(self, code: str) -> int:
        return int(struct.unpack(f"<{code}", self.take(struct.calcsize(code)))[0])

    def count(self) -> int:
        count = self.number("Q")
        if count > _MAX_COUNT:
            raise Broken("bounds", f"the header counts {count}; at most {_MAX_COUNT} are read")
        return count

    def text(self) -> str:
        return self.take(self.count()).decode("utf-8", "replace")

    def skip_value(self, kind: int) -> bytes:
        """The bytes of a scalar; strings and lists are passed over."""
        if kind in _SCALARS:
            return self.take(_SCALARS[kind])
        if kind == _STRING:
            self.text()
        elif kind == _ARRAY:
            inner, count = self.number("I"), self.count()
            if inner in _SCALARS:
                self.take(count * _SCALARS[inner])
            else:
                for _ in range(count):
                    self.skip_value(inner)
        else:
            raise Broken("malformed", f"the header has a value of unknown type {kind}")
        return b""


def read_gguf(window: Window) -> Layout:
    header, layout = _Header(window), Layout("gguf")
    version = header.number("I")
    if version not in (2, 3):
        raise Broken("malformed", f"GGUF version {version & 0xFFFFFFFF}; 2 and 3 are known")
    tensors, keys, alignment = header.count(), header.count(), 32
    for _ in range(keys):
        key, kind = header.text(), header.number("I")
        value = header.skip_value(kind)
        if key == "general.alignment" and len(value) == 4:
            alignment = max(int.from_bytes(value, "little"), 1)
    table = []
    for _ in range(tensors):
        name, rank = header.text(), header.number("I")
        if rank > 8:
            raise Broken("malformed", f"a tensor has {rank} axes", where=name[:200])
        shape = tuple(header.number("Q") for _ in range(rank))[::-1]
        table.append((name, shape, header.number("I"), header.number("Q")))
    begin = -(-header.file.tell() // alignment) * alignment
    for name, shape, kind, offset in table:
        values, size = _BLOCKS.get(kind, (1, 0))
        dtype = DTYPES[_PLAIN[kind]] if kind in _PLAIN else Dtype(f"ggml-{kind}", size, "opaque")
        length = math.prod(shape) // values * dtype.size
        if not dtype.size or math.prod(shape) % values:
            layout.problem(
                "malformed", "error", f"its type {kind} is not known, or does not fit its shape", where=name[:200]
            )
        elif begin + offset + length > window.length:
            message = f"ends {begin + offset + length - window.length} bytes behind the end of the file"
            layout.problem("truncated", "error", message, where=name[:200], fix="the file was cut off; copy it again")
        else:
            shape = shape if values == 1 else (length // dtype.size,)
            layout.tensors.append(Tensor(name, dtype, shape, window.start + begin + offset))
    return layout
