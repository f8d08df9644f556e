"""Zips that are no torch.save: torch.export's .pt2, Keras' .keras and others that hold checkpoints as members."""

from __future__ import annotations

import json
import math
from typing import Any

from rgt.checkpoint.formats.container import STORED, Window, member_window
from rgt.checkpoint.formats.tar_files import AddPart
from rgt.checkpoint.layout import DTYPES, FILE, Broken, Layout, Member, Tensor

_TYPES = "- uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool bfloat16".split()
_MORE = {28: "uint16", 29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz", 32: "float8_e5m2fnuz"}
_MORE |= {33: "float8_e8m0fnu", 34: "uint32", 35: "uint64"}
_EXPORTED = {**dict(enumerate(_TYPES)), **_MORE}  # torch.export's numbers of dtypes
_MAX_JSON = 64 << 20


def read_parts(window: Window, members: list[Member], add_part: AddPart) -> Layout:
    """What is inside and can be read; raises when nothing is."""
    names = {member.name.partition("/")[2]: member for member in members}
    layout = Layout(
        "torch-export"
        if "archive_format" in names
        else "keras"
        if "model.weights.h5" in (member.name for member in members)
        else "zip"
    )
    for member in members:
        short = member.name.rpartition("/")[2]
        if short.endswith(("weights_config.json", "constants_config.json")):
            _exported(window, member, members, layout)
        elif short == "config.json" and b'"Lambda"' in member_window(window, member, _MAX_JSON).head(_MAX_JSON):
            layout.problem("code", "warn", "holds a Keras Lambda layer: Python code that runs when it is loaded")
        elif member.method == STORED and member.size:
            add_part(layout, member.name, window.part(member.data, member.packed))
    if not layout.tensors and not layout.problems:
        shown = ", ".join(member.name for member in members[:5])
        message = f"a zip of {len(members)} other files, without data.pkl"
        raise Broken("not-a-checkpoint", message, evidence=shown[:200])
    return layout


def _exported(window: Window, config: Member, members: list[Member], layout: Layout) -> None:
    """model_weights_config.json: which member holds which tensor, with its dtype and sizes."""
    try:
        data: Any = json.loads(member_window(window, config, _MAX_JSON).head(_MAX_JSON))
    except (ValueError, RecursionError):
        raise Broken("malformed", f"{config.name[:100]} is not JSON") from None
    folder = config.name.rpartition("/")[0]
    places = {member.name: member for member in members}
    rows = data.get("config") if isinstance(data, dict) else None
    for name, row in rows.items() if isinstance(rows, dict) else ():
        member = places.get(f"{folder}/{row.get('path_name')}")
        meta = row.get("tensor_meta")
        if member is None:
            layout.problem(
                "missing", "error", f"its file {row.get('path_name')!s:.100} is not in the zip", where=name[:200]
            )
        elif isinstance(meta, dict) and not row.get("use_pickle") and member.method == STORED:
            dtype = DTYPES.get(_EXPORTED.get(int(meta.get("dtype") or 0), ""))
            shape = tuple(int(size.get("as_int") or 0) for size in meta.get("sizes", []))
            if dtype and math.prod(shape) * dtype.size == member.size:
                layout.tensors.append(Tensor(name, dtype, shape, window.start + member.data, source=FILE))
            elif dtype and math.prod(shape) * dtype.size > member.size:
                message = f"needs {math.prod(shape) * dtype.size} bytes and has {member.size}"
                layout.problem("bounds", "error", message, where=name[:200])
