"""torch.save's two formats: the zip (since 1.6) and the row of pickles before it. Also plain pickles."""

from __future__ import annotations

import struct
from typing import Any

from artifacts.formats import allowed, packed, pickles, tensors
from artifacts.formats.machine import Call
from artifacts.formats.window import Cursor, Window
from artifacts.formats.zipdir import STORED, Member
from artifacts.model import FILE, Broken, Layout

MAGIC = 0x1950A86A20F9469CFC6C
MAGIC_PICKLE = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # what a legacy file starts with
_SHOWN = 10  # names in one sentence


def read_zip(window: Window, members: list[Member], root: str) -> Layout:
    """A zip whose members are below `root`/, one of them data.pkl."""
    names = {member.name.removeprefix(root): member for member in members}
    script = "constants.pkl" in names
    layout = Layout("torchscript" if script else "torch")
    layout.packed = [member for member in members if member.method != STORED]
    for pickle in ("constants.pkl", "data.pkl") if script else ("data.pkl",):
        content = packed.whole(window, names[pickle], pickles.MAX_PICKLE)
        layout.root = _read_pickle(content, 0, layout, script).root
        _place_zip(window, names, layout, pickle)
    return layout


def _place_zip(window: Window, names: dict[str, Member], layout: Layout, pickle: str) -> None:
    found = tensors.find(layout.root)
    _keep_what_is_inline(found, layout)
    folder = "constants/" if pickle == "constants.pkl" else "data/"
    big = _big_endian(window, names)
    users = _users(found)
    order = {id(member): number for number, member in enumerate(layout.packed)}
    places = {}
    for key, storage in found.storages.items():
        member = names.get(folder + key)
        wanted = storage.numel * storage.dtype.size
        if member is None:
            layout.problem("malformed", "error", f"storage {key[:100]} is not in the file", where=users.get(key))
        elif member.size != wanted:
            message = f"storage {key[:100]} has {member.size} bytes, the pickle wants {wanted}"
            layout.problem("bounds", "error", message, where=users.get(key))
        else:
            places[key] = _place_of(window, member, order)
    for view in found.views:
        if view.storage.key in places:
            source, start, length = places[view.storage.key]
            _add(layout, view, start, length, source=source, big_endian=big)
    _extra_storages(names, found, layout, folder)


def _place_of(window: Window, member: Member, order: dict[int, int]) -> tuple[int, int, int]:
    if member.method == STORED:
        return FILE, window.start + member.data, member.size
    return order[id(member)], 0, member.size


def _add(layout: Layout, view: tensors.View, start: int, length: int, **where: Any) -> None:
    try:
        layout.tensors.append(tensors.place(view, start, length, **where))
    except Broken as broken:
        layout.add(broken.problem)


def _users(found: tensors.Found) -> dict[str, str]:
    """Storage key -> the first tensors that use it."""
    names: dict[str, list[str]] = {}
    for view in found.views:
        names.setdefault(view.storage.key, []).append(view.name)
    return {key: ", ".join(users[:3])[:200] for key, users in names.items()}


def _extra_storages(names: dict[str, Member], found: tensors.Found, layout: Layout, folder: str) -> None:
    stored = {name.removeprefix(folder) for name in names if name.startswith(folder)}
    extra = sorted(stored - set(found.storages))
    if extra:
        message = f"{len(extra)} storages belong to no tensor: {', '.join(extra[:_SHOWN])}"
        layout.problem("extra", "warn", message[:300])


def _big_endian(window: Window, names: dict[str, Member]) -> bool:
    if "byteorder" not in names:
        return False
    order = packed.whole(window, names["byteorder"], 16).head(16)
    if order not in (b"little", b"big"):
        raise Broken("malformed", f"the byte order of the file is given as {order!r}")
    return order == b"big"


def _keep_what_is_inline(found: tensors.Found, layout: Layout) -> None:
    layout.tensors += found.arrays
    layout.problems += found.problems
    layout.facts.setdefault("odd_scalars", []).extend(found.scalars)


def _read_pickle(window: Window, start: int, layout: Layout, script: bool = False) -> pickles.Pickle:
    """One pickle with its globals judged; the caller may go on with the tree, since nothing in it was run."""
    pickle = pickles.read(Cursor(window, start, pickles.MAX_PICKLE))
    hostile, unknown = allowed.sort_out(pickle.globals, script)
    for name in hostile[:_SHOWN]:
        message = f"the pickle wants to call {name[:120]}, which can run any code"
        layout.problem("hostile", "error", message, fix="do not load this file; get it from its source again")
    layout.refused += [name for name in unknown if name not in layout.refused]
    if pickle.odd_calls:
        layout.problem("hostile", "error", f"the pickle calls {pickle.odd_calls} values that it computed itself",
                       fix="do not load this file; get it from its source again")  # fmt: skip
    return pickle


def read_pickle(window: Window) -> Layout:
    """A plain pickle, or torch's legacy format."""
    if window.head(len(MAGIC_PICKLE)) == MAGIC_PICKLE:
        return _read_legacy(window)
    layout = Layout("pickle")
    pickle = _read_pickle(window, 0, layout)
    layout.root = pickle.root
    found = tensors.find(pickle.root)
    _keep_what_is_inline(found, layout)
    if found.views:
        layout.problem("malformed", "error", f"{len(found.views)} tensors have no storage in this pickle")
    if pickle.end != window.length:
        layout.problem("trailing", "error", f"{window.length - pickle.end} bytes follow the end of the pickle")
    return layout


def _read_legacy(window: Window) -> Layout:
    """magic, protocol, system, object, storage keys: five pickles; then each storage as its count and its bytes."""
    layout = Layout("torch-legacy")
    at, parts = len(MAGIC_PICKLE), []
    for _ in range(4):
        pickle = _read_pickle(window, at, layout)
        at = pickle.end
        parts.append(pickle.root)
    _, system, layout.root, keys = parts
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise Broken("malformed", "the list of storages is not one")
    big = isinstance(system, dict) and system.get("little_endian") is False
    found = tensors.find(layout.root)
    _keep_what_is_inline(found, layout)
    _place_legacy(window, at, keys, found, layout, big)
    return layout


def _place_legacy(window: Window, at: int, keys: list[str], found: tensors.Found, layout: Layout, big: bool) -> None:
    places: dict[str, tuple[int, int]] = {}
    users = _users(found)
    for key in keys:
        storage = found.storages.get(key)
        if storage is None:
            raise Broken("malformed", f"storage {key[:100]} is listed and no tensor uses it")
        count = struct.unpack(">q" if big else "<q", window.read(at, 8))[0]
        length = storage.numel * storage.dtype.size
        if count != storage.numel:
            raise Broken("bounds", f"storage {key[:100]} has {count} values, the pickle says {storage.numel}",
                         where=users.get(key))  # fmt: skip
        if at + 8 + length > window.length:
            raise Broken("truncated", f"storage {key[:100]} needs {at + 8 + length - window.length} bytes more",
                         where=users.get(key))  # fmt: skip
        places[key] = at + 8, length
        at += 8 + length
    if at != window.length:
        layout.problem("trailing", "error", f"{window.length - at} bytes follow the last storage")
    for view in found.views:
        if view.storage.key in places:
            start, length = places[view.storage.key]
            _add(layout, view, window.start + start, length, big_endian=big)
        else:
            layout.problem("malformed", "error", f"storage {view.storage.key[:100]} is not in the file",
                           where=view.name[:200])  # fmt: skip


def keys(node: Any) -> dict[Any, Any]:
    """A pickled mapping or namespace as a dict; empty for anything else."""
    if isinstance(node, Call):
        is_namespace = isinstance(node.state, dict) and not node.dotted.startswith("collections.")
        return node.pairs or (node.state if is_namespace else None) or {}
    return node if isinstance(node, dict) else {}
