"""msgpack as flax writes it: maps, and arrays as extension 1 that holds (shape, dtype, bytes)."""

from __future__ import annotations

import math
import struct
from typing import Any

from rgt.checkpoint.formats.container import Window
from rgt.checkpoint.layout import DTYPES, Broken, Layout, Tensor

_MAX_NODES, _MAX_DEPTH, _MAX_TEXT = 2_000_000, 100, 1 << 20
_ARRAY, _SCALAR = 1, 3  # flax's extensions
_NUMBERS = dict(zip(range(0xCA, 0xD4), "fdBHIQbhiq", strict=True))
# bytes of the length that follows: of bytes, extensions, text, lists and maps
_SIZED = {
    code: width for first in (0xC4, 0xC7, 0xD9) for code, width in zip(range(first, first + 3), (1, 2, 4), strict=True)
}
_SIZED |= {0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4}
_FIXED = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


class _Place:
    """Bytes that stay in the file."""

    def __init__(self, start: int, length: int) -> None:
        self.start, self.length = start, length


class _Reader:
    def __init__(self, window: Window, layout: Layout) -> None:
        self.window, self.layout, self.at, self.nodes = window, layout, 0, 0

    def take(self, size: int) -> bytes:
        self.at += size
        return self.window.read(self.at - size, size)

    def place(self, size: int) -> _Place:
        if self.at + size > self.window.length:
            raise Broken("truncated", f"{size} bytes at byte {self.at} end behind the end of the file")
        self.at += size
        return _Place(self.at - size, size)

    def value(self, name: str, depth: int = 0) -> Any:
        self.nodes += 1
        if self.nodes > _MAX_NODES or depth > _MAX_DEPTH:
            raise Broken("bounds", f"more than {_MAX_NODES} values, or nested deeper than {_MAX_DEPTH}")
        code = self.take(1)[0]
        if code < 0x80 or code >= 0xE0:
            return code if code < 0x80 else code - 256
        if code in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[code]
        if code in _NUMBERS:
            return struct.unpack(f">{_NUMBERS[code]}", self.take(struct.calcsize(_NUMBERS[code])))[0]
        size = int.from_bytes(self.take(_SIZED.get(code, 0)), "big")
        if 0x80 <= code <= 0x8F or code in (0xDE, 0xDF):
            return self.mapping(name, size if code > 0x8F else code & 15, depth)
        if 0x90 <= code <= 0x9F or code in (0xDC, 0xDD):
            return [self.value(f"{name}.{n}", depth + 1) for n in range(size if code > 0x9F else code & 15)]
        if 0xA0 <= code <= 0xBF or code in (0xD9, 0xDA, 0xDB):
            return self.take(min(size if code > 0xBF else code & 31, _MAX_TEXT)).decode("utf-8", "replace")
        if code in (0xC4, 0xC5, 0xC6):
            return self.place(size)
        if code in _FIXED or code in (0xC7, 0xC8, 0xC9):
            kind, place = self.take(1)[0], self.place(_FIXED.get(code, size))
            return self.array(name, place) if kind in (_ARRAY, _SCALAR) else place
        raise Broken("malformed", f"there is no msgpack value at byte {self.at - 1}")

    def mapping(self, name: str, size: int, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for _ in range(size):
            key = self.value(name, depth + 1)
            if not isinstance(key, (str, int)):
                raise Broken("malformed", "a key is neither text nor number")
            found[key] = self.value(f"{name}.{key}" if name else str(key), depth + 1)
        return found

    def array(self, name: str, place: _Place) -> None:
        inner = _Reader(self.window.part(place.start, place.length), self.layout)
        parts = inner.value(name)
        if not isinstance(parts, list) or len(parts) != 3 or not isinstance(parts[2], _Place):
            raise Broken("malformed", "an array is not described by shape, dtype and bytes", where=name[:200])
        shape, code, data = parts
        if isinstance(code, _Place):  # the name of the dtype as bytes
            code = inner.window.read(code.start, min(code.length, 40)).decode("latin-1")
        dtype = DTYPES.get(code if isinstance(code, str) else "")
        counts = isinstance(shape, list) and all(isinstance(size, int) and size >= 0 for size in shape)
        if not dtype or not counts:
            self.layout.problem("unjudged", "info", f"is an array of {str(code)[:40]}", where=name[:200])
        elif math.prod(shape) * dtype.size != data.length:
            message = f"{code} {shape[:8]} needs {math.prod(shape) * dtype.size} bytes, there are {data.length}"
            self.layout.problem("bounds", "error", message, where=name[:200])
        else:
            start = inner.window.start + data.start
            self.layout.tensors.append(Tensor(name, dtype, tuple(shape), start))


def read_msgpack(window: Window) -> Layout:
    layout = Layout("msgpack")
    reader = _Reader(window, layout)
    layout.root = reader.value("")
    if reader.at != window.length:
        layout.problem("trailing", "error", f"{window.length - reader.at} bytes follow the end")
    return layout
