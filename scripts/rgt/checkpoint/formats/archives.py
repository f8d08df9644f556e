"""tar and zip files that hold checkpoints as members: NeMo's .nemo, torch.export's .pt2, Keras' .keras, and torch's own
tar from before 0.2 (storages, tensors, pickle)."""

from __future__ import annotations

import json
import math
import struct
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from rgt.checkpoint.formats import pickles, torch_files
from rgt.checkpoint.formats.container import STORED, Cursor, Window, member_window
from rgt.checkpoint.formats.pickles import Global, Persistent
from rgt.checkpoint.layout import DTYPES, FILE, TORCH_STORAGES, Broken, Layout, Member, Tensor

AddPart = Callable[[Layout, str, Window], None]  # reads what is inside, when it can be read
_BLOCK = 512
_MAX_MEMBERS, _MAX_COUNT = 10_000, 1_000_000
_LONG_NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE)


def is_tar(head: bytes) -> bool:
    """Whether tarfile takes it for one: the checksum of its first block is right, whatever else it looks like."""
    try:
        tarfile.TarInfo.frombuf(head[:_BLOCK], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _members(window: Window) -> Iterator[tuple[str, Window]]:
    """Regular files, in order."""
    at = 0
    for _ in range(_MAX_MEMBERS):
        block = window.read(at, min(_BLOCK, window.length - at)) if at < window.length else b""
        if len(block) < _BLOCK or not any(block):
            return
        try:
            entry = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise Broken("malformed", f"the tar is damaged at byte {at}: {error}") from None
        if entry.size < 0 or at + _BLOCK + entry.size > window.length:
            raise Broken("truncated", f"the tar's {entry.name[:100]!r} ends behind the end of the file")
        if entry.issym() or entry.islnk():
            raise Broken("path-name", f"the tar's {entry.name[:100]!r} is a link")
        if entry.isreg() and entry.type not in _LONG_NAMES:
            yield entry.name.removeprefix("./"), window.part(at + _BLOCK, entry.size)
        at += _BLOCK + -(-entry.size // _BLOCK) * _BLOCK
    raise Broken("bounds", f"the tar holds more than {_MAX_MEMBERS} files")


def read_tar(window: Window, add_part: AddPart) -> Layout:
    if window.head(1) == b"\x80":
        raise Broken("hostile", "is a pickle and a tar at once, and torch takes it for the tar", fix="do not load it")
    layout, found = Layout("tar"), dict(_members(window))
    if found.keys() >= {"storages", "tensors", "pickle"}:
        return _read_torch(found)
    for name, part in found.items():
        add_part(layout, name, part)
    if not layout.tensors and not layout.problems:
        message = f"a tar of {len(found)} files, none of them a checkpoint"
        raise Broken("not-a-checkpoint", message, fix="unpack it first")
    return layout


def _read_torch(found: dict[str, Window]) -> Layout:
    layout, part, at = Layout("torch-tar"), found["storages"], 0
    contents, places = torch_files.Contents(), {}

    def unpickle() -> Any:
        nonlocal at
        pickle = pickles.read(Cursor(part, at, pickles.MAX_PICKLE))
        pickles.judge(pickle, layout)
        at = pickle.end
        return pickle.root

    for _ in range(_count(unpickle())):
        match unpickle():
            case (key, _, Global() as kind) if kind.name in TORCH_STORAGES:
                storage = torch_files.Storage(_key(key), DTYPES[TORCH_STORAGES[kind.name]], part.number(at))
                contents.storages[storage.key], places[storage.key] = storage, (FILE, part.start + at + 8)
                at += 8 + part.part(at + 8, storage.bytes).length
            case _:
                raise Broken("malformed", "a storage is not described by key, place and type")
    if unpickle() != []:
        layout.problem("unjudged", "warn", "has views of storages, whose values are not judged")
    part, at = found["tensors"], 0
    tensors: dict[str, tuple[torch_files.Storage, Tensor]] = {}
    for _ in range(_count(unpickle())):
        match unpickle():
            case (key, of, _) if _key(of) in contents.storages:
                storage, rank = contents.storages[_key(of)], _count(part.number(at, 4))
                axes = torch_files.numbers(struct.unpack(f"<{2 * rank + 1}q", part.read(at + 8, 16 * rank + 8)))
                begin, at = axes[-1] * storage.dtype.size, at + 16 + 16 * rank
                tensors[_key(key)] = storage, Tensor("", storage.dtype, axes[:rank], begin, axes[rank:-1])
            case _:
                raise Broken("malformed", "a tensor is not described by key, storage and type")
    part, at = found["pickle"], 0
    layout.root = unpickle()
    for name, node in torch_files.leaves(layout.root):
        if isinstance(node, Persistent) and _key(node.id) in tensors:
            storage, tensor = tensors[_key(node.id)]
            contents.views.append((storage, replace(tensor, name=name)))
        else:
            layout.error("malformed", "is a tensor that the file does not hold", name)
    torch_files.place(layout, contents, places, False)
    return layout


def _count(node: Any) -> int:
    if not torch_files.is_count(node) or node > _MAX_COUNT:
        raise Broken("malformed", f"the tar counts something else than 0 to {_MAX_COUNT}")
    return int(node)


def _key(node: Any) -> str:
    """Storages and tensors are known by a number, or by the same number as text."""
    if not isinstance(node, str) and not torch_files.is_count(node):
        raise Broken("malformed", "a storage or tensor of the tar is known by something else than a number")
    return str(node)


# -- zips that are no torch.save

_TYPES = "- uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool bfloat16".split()
_MORE = "uint16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu uint32 uint64".split()
_EXPORTED = {**dict(enumerate(_TYPES)), **dict(enumerate(_MORE, 28))}  # torch.export's numbers of dtypes
_MAX_JSON = 64 << 20


def read_parts(window: Window, members: list[Member], add_part: AddPart) -> Layout:
    """What is inside and can be read; raises when nothing is."""
    layout = Layout("zip")
    if any(member.name.partition("/")[2] == "archive_format" for member in members):
        layout.format = "torch-export"
    for member in members:
        short = member.name.rpartition("/")[2]
        if member.name == "model.weights.h5":
            layout.format = "keras"
        if short.endswith(("weights_config.json", "constants_config.json")):
            _add_exported(window, member, members, layout)
        elif short == "config.json" and b'"Lambda"' in member_window(window, member, _MAX_JSON).head(_MAX_JSON):
            layout.problem("code", "warn", "holds a Keras Lambda layer: Python code that runs when it is loaded")
        elif member.method == STORED and member.size:
            add_part(layout, member.name, window.part(member.data, member.packed))
    if not layout.tensors and not layout.problems:
        shown = ", ".join(member.name for member in members[:5])
        raise Broken("not-a-checkpoint", f"a zip of {len(members)} other files, without data.pkl", evidence=shown[:200])
    return layout


def _add_exported(window: Window, config: Member, members: list[Member], layout: Layout) -> None:
    """model_weights_config.json: which member holds which tensor, with its dtype and sizes."""
    folder, places = config.name.rpartition("/")[0], {member.name: member for member in members}
    try:
        rows: dict[str, Any] = json.loads(member_window(window, config, _MAX_JSON).head(_MAX_JSON))["config"]
        for name, row in rows.items():
            member, meta = places.get(f"{folder}/{row.get('path_name')}"), row.get("tensor_meta")
            if member is None:
                layout.error("missing", f"its file {str(row.get('path_name'))[:100]} is not in the zip", name)
            elif meta and not row.get("use_pickle") and member.method == STORED:
                shape = tuple(int(size.get("as_int") or 0) for size in meta["sizes"])
                dtype = DTYPES.get(_EXPORTED.get(int(meta["dtype"]), ""))
                if dtype and math.prod(shape) * dtype.size >= member.size:  # less: a view
                    layout.add_values(name, dtype, shape, window.start + member.data, member.size, "weight")
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        raise Broken("malformed", f"{config.name[:100]} does not describe tensors") from None
