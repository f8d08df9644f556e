"""numpy arrays and scalars whose bytes are inside a pickle: random states, metrics, Accelerate's extras."""

from __future__ import annotations

import math
import re
from typing import Any

from artifacts.dtypes import Dtype, from_numpy
from artifacts.formats.machine import Call
from artifacts.model import INLINE, Broken, Tensor

_CORES = ("numpy.core.", "numpy._core.")
_CODE = re.compile(r"[<>|=]?([biufcSUVmM])(\d*)")


def is_array(node: Any) -> bool:
    return isinstance(node, Call) and node.dotted.startswith(_CORES) and node.dotted.endswith(
        ("multiarray._reconstruct", "multiarray.scalar", "numeric._frombuffer"))  # fmt: skip


def array(name: str, call: Call) -> Tensor:
    shape, dtype, fortran, data = _contents(call)
    kind, big_endian = _dtype(dtype)
    content = _bytes(data)
    if not isinstance(shape, tuple) or not all(isinstance(size, int) and 0 <= size < 1 << 62 for size in shape):
        raise Broken("malformed", "a numpy array has a shape that is not one")
    if math.prod(shape) * kind.size != len(content):
        raise Broken("truncated", f"a numpy array of shape {list(shape)[:8]} has {len(content)} bytes")
    axes = tuple(reversed(shape)) if fortran else shape
    return Tensor(name, kind, axes, 0, source=INLINE, big_endian=big_endian, role="other", data=content)


def _contents(call: Call) -> tuple[Any, Any, bool, Any]:
    """(shape, dtype, is Fortran, bytes) of the three ways numpy pickles."""
    if call.dotted.endswith("_reconstruct"):
        if not isinstance(call.state, tuple) or len(call.state) != 5:
            raise Broken("malformed", "a numpy array has no contents")
        _, shape, dtype, fortran, data = call.state
        return shape, dtype, fortran is True, data
    if call.dotted.endswith("scalar"):
        dtype, data = _arguments(call, 2)
        return (), dtype, False, data
    data, dtype, shape, order = _arguments(call, 4)
    return shape, dtype, order == "F", data


def _arguments(call: Call, count: int) -> tuple[Any, ...]:
    if not isinstance(call.arguments, tuple) or len(call.arguments) < count:
        raise Broken("malformed", "a numpy value has too few arguments")
    return call.arguments[:count]


def _dtype(node: Any) -> tuple[Dtype, bool]:
    arguments = node.arguments if isinstance(node, Call) and node.dotted == "numpy.dtype" else None
    code = arguments[0] if isinstance(arguments, tuple) and arguments else None
    match = _CODE.fullmatch(code) if isinstance(code, str) and len(code) < 20 else None
    if not match:
        raise Broken("object-array", f"a numpy array of {str(code)[:40]} cannot be checked: it holds Python objects")
    size = int(match[2] or 1) * (4 if match[1] == "U" else 1)
    order = node.state[1] if isinstance(node.state, tuple) and len(node.state) > 1 else "<"
    return from_numpy(f"{match[1]}{match[2]}", size), order == ">"


def _bytes(node: Any) -> bytes:
    """Protocol 2 has no bytes: they are written as text and a call of _codecs.encode."""
    if isinstance(node, (bytes, bytearray)):
        return bytes(node)
    if isinstance(node, Call) and node.dotted == "_codecs.encode" and isinstance(node.arguments, tuple):
        text = node.arguments[0] if node.arguments else None
        if isinstance(text, str) and node.arguments[1:] in ((), ("latin1",), ("latin-1",)):
            return text.encode("latin-1", "replace")
    raise Broken("malformed", "a numpy array's contents are not bytes")
