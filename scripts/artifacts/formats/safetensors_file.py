"""safetensors: eight bytes of length, a JSON header, then the tensors back to back, without hole or overlap."""

from __future__ import annotations

import math
from typing import Any

from artifacts.dtypes import DTYPES, SAFETENSORS
from artifacts.formats import jsontext
from artifacts.formats.window import Window
from artifacts.model import Broken, Layout, Tensor

MAX_HEADER = 32 << 20  # bytes; 100,000 tensors need 10 MB


def read(window: Window) -> Layout:
    layout = Layout("safetensors")
    size = int.from_bytes(window.head(8), "little")
    if size > MAX_HEADER:
        raise Broken("bounds", f"the header claims {size} bytes; at most {MAX_HEADER} are read")
    if 8 + size > window.length:
        raise Broken("truncated", f"the header ends at byte {8 + size}, the file at {window.length}")
    header = jsontext.parse(window.read(8, size), "the header")
    if not isinstance(header, dict):
        raise Broken("malformed", f"the header is a {type(header).__name__}, not an object")
    metadata = header.pop("__metadata__", {})
    layout.facts["metadata"] = metadata if isinstance(metadata, dict) else {}
    data = window.part(8 + size, window.length - 8 - size)
    for name, entry in header.items():
        try:
            layout.tensors.append(_tensor(name, entry, data))
        except Broken as broken:
            broken.problem.where = name[:200]
            layout.add(broken.problem)
    _check_tiling(layout, data)
    return layout


def _tensor(name: str, entry: Any, data: Window) -> Tensor:
    entry = entry if isinstance(entry, dict) else {}
    code, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(code, str) or not _counts(shape) or not _counts(offsets) or len(offsets) != 2:
        raise Broken("malformed", "the header describes it by something else than dtype, shape and data_offsets")
    if code not in SAFETENSORS:
        raise Broken("malformed", f"has the unknown dtype {code[:40]!r}")
    dtype, (begin, end) = DTYPES[SAFETENSORS[code]], offsets
    wanted = math.prod(shape) * dtype.size
    if end - begin != wanted:
        message = f"{code} {shape[:8]} needs {wanted} bytes, its offsets {begin} to {end} hold {end - begin}"
        raise Broken("bounds", message)
    if end > data.length:
        message = f"ends {end - data.length} bytes behind the end of the file"
        raise Broken("truncated", message, fix="the file was cut off; copy it again")
    return Tensor(name, dtype, tuple(shape), data.start + begin)


def _counts(node: Any) -> bool:
    return isinstance(node, list) and len(node) <= 64 and all(type(n) is int and 0 <= n < 1 << 62 for n in node)


def _check_tiling(layout: Layout, data: Window) -> None:
    """The tensors must cover the data exactly once: the format says so, and hidden bytes have no honest use."""
    at = data.start
    for tensor in sorted(layout.tensors, key=lambda tensor: (tensor.start, tensor.extent)):
        if tensor.start < at:
            message = f"shares {at - tensor.start} bytes with another tensor"
            layout.problem("overlap", "error", message, where=tensor.name[:200])
        elif tensor.start > at and not layout.problems:
            layout.problem("gap", "error", f"{tensor.start - at} bytes before it belong to no tensor",
                           where=tensor.name[:200])  # fmt: skip
        at = max(at, tensor.start + tensor.extent)
    left = data.start + data.length - at
    if left and not layout.problems:
        layout.problem("trailing", "error", f"{left} bytes follow the last tensor")
    layout.tensors = _without_overlap(layout.tensors) if layout.problems else layout.tensors


def _without_overlap(tensors: list[Tensor]) -> list[Tensor]:
    """Reading shared bytes once per tensor would make a small hostile file endless."""
    kept: list[Tensor] = []
    at = 0
    for tensor in sorted(tensors, key=lambda tensor: (tensor.start, tensor.extent)):
        if tensor.start >= at:
            kept.append(tensor)
            at = tensor.start + tensor.extent
    return kept
