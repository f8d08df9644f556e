"""numpy's .npy and .npz, without numpy and without ever allowing a pickle."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

from artifacts.dtypes import Dtype, from_numpy
from artifacts.formats import packed
from artifacts.formats.window import Memory, Window
from artifacts.formats.zipdir import STORED, Member
from artifacts.model import FILE, Broken, Layout, Tensor

MAGIC = b"\x93NUMPY"
_MAX_HEADER = 10_000  # numpy's own limit: literal_eval is not safe on longer text
_PREFIX = 12 + _MAX_HEADER
_CODE = re.compile(r"([<>|=]?)([biufcSUVmM])(\d+)(\[\w+\])?")


def read(window: Window) -> Layout:
    layout = Layout("npy")
    layout.tensors.append(_array("array", window, window.length, window.start, FILE))
    return layout


def read_zip(window: Window, members: list[Member]) -> Layout:
    layout = Layout("npz")
    layout.packed = [member for member in members if member.method != STORED]
    order = {id(member): number for number, member in enumerate(layout.packed)}
    for member in members:
        name = member.name.removesuffix(".npy")
        source = order.get(id(member), FILE)
        try:
            layout.tensors.append(_member(window, member, name, source))
        except Broken as broken:
            broken.problem.where = name[:200]
            layout.add(broken.problem)
    return layout


def _member(window: Window, member: Member, name: str, source: int) -> Tensor:
    if source == FILE:
        part = window.part(member.data, member.packed)
        return _array(name, part, member.size, part.start, source)
    head = b""
    for block in packed.blocks(window, member):
        head += block
        if len(head) >= _PREFIX:
            break
    return _array(name, Memory(head), member.size, 0, source)


def _array(name: str, head: Window, size: int, start: int, source: int) -> Tensor:
    header, begin = _header(head)
    dtype, big_endian = _dtype(header.get("descr"))
    shape = header.get("shape")
    if not isinstance(shape, tuple) or not all(type(n) is int and 0 <= n < 1 << 62 for n in shape) or len(shape) > 64:
        raise Broken("malformed", "the header's shape is not one")
    wanted = math.prod(shape) * dtype.size
    if begin + wanted > size:
        raise Broken("truncated", f"{dtype.name} {list(shape)[:8]} needs {wanted} bytes, there are {size - begin}")
    if begin + wanted < size:
        raise Broken("trailing", f"{size - begin - wanted} bytes follow the array")
    axes = tuple(reversed(shape)) if header.get("fortran_order") is True else shape
    return Tensor(name, dtype, axes, start + begin, source=source, big_endian=big_endian, role="weight")


def _header(window: Window) -> tuple[dict[str, Any], int]:
    """The header and where the data starts."""
    head = window.head(12)
    if not head.startswith(MAGIC) or len(head) < 10 or head[6] not in (1, 2, 3):
        raise Broken("malformed", "not a .npy file: its magic or version is another")
    width = 2 if head[6] == 1 else 4
    length = int.from_bytes(head[8 : 8 + width], "little")
    if length > _MAX_HEADER:
        raise Broken("bounds", f"the header claims {length} bytes; at most {_MAX_HEADER} are read")
    text = window.read(8 + width, length)
    try:
        header = ast.literal_eval(text.decode("utf-8" if head[6] == 3 else "latin-1").strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        raise Broken("malformed", "the header is not a Python literal") from None
    if not isinstance(header, dict):
        raise Broken("malformed", "the header is not a dict")
    return header, 8 + width + length


def _dtype(descr: Any) -> tuple[Dtype, bool]:
    """(dtype, big endian); a record dtype is opaque, an object dtype is refused."""
    if isinstance(descr, list):
        return Dtype("record", sum(_field(field) for field in descr), "opaque"), False
    match = _CODE.fullmatch(descr) if isinstance(descr, str) and len(descr) < 40 else None
    if not match:
        raise Broken("object-array", f"dtype {str(descr)[:40]!r} holds Python objects, which only a pickle can load",
                     fix="save numbers instead, and strings as a fixed-width or JSON text")  # fmt: skip
    order, kind, width = match[1], match[2], int(match[3])
    return from_numpy(f"{kind}{width}", width * (4 if kind == "U" else 1)), order == ">"


def _field(field: Any) -> int:
    if not isinstance(field, tuple) or len(field) not in (2, 3):
        raise Broken("malformed", "the header's record dtype is not one")
    counts = field[2] if len(field) == 3 else ()
    counts = (counts,) if isinstance(counts, int) else counts
    if not isinstance(counts, tuple) or not all(type(n) is int and 0 <= n < 1 << 62 for n in counts):
        raise Broken("malformed", "the header's record dtype is not one")
    return _dtype(field[1])[0].size * math.prod(counts)
