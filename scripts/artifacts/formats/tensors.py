"""From a pickle's inert tree to named tensors: which storage, which offset, which shape.

Names are the path of keys from the root: model.blocks.0.weight. A container that is reached twice is walked once, so
neither shared nor self-containing structures can make the walk long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from artifacts.dtypes import DTYPES, TORCH_STORAGES, Dtype
from artifacts.formats import inline
from artifacts.formats.machine import Call, Global, Persistent
from artifacts.model import MAX_PROBLEMS, Broken, Problem, Tensor

MAX_DEPTH = 200
MAX_LEAVES = 500_000
MAX_NAME = 1000  # characters
MAX_NUMBER = 1 << 62
MAX_RANK = 64
_REBUILD = "torch._utils._rebuild_"
_DENSE = {f"{_REBUILD}{kind}" for kind in ("tensor", "tensor_v2", "tensor_v3", "qtensor")}


@dataclass(frozen=True)
class Storage:
    """What a persistent id says: key and element count of bytes that are elsewhere in the file."""

    key: str
    dtype: Dtype
    numel: int


@dataclass
class View:
    """A tensor as the pickle describes it, before its storage has a place."""

    name: str
    storage: Storage
    dtype: Dtype
    offset: int  # in values
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass
class Found:
    """Everything the walk met."""

    views: list[View]
    arrays: list[Tensor]
    scalars: list[tuple[str, float]]  # Python floats that are NaN or infinite
    storages: dict[str, Storage]
    problems: list[Problem]


def find(root: Any) -> Found:
    found = Found([], [], [], {}, [])
    for name, node in _leaves(root):
        try:
            _take(found, name, node)
        except Broken as broken:
            if len(found.problems) < MAX_PROBLEMS:
                broken.problem.where = name[:200]
                found.problems.append(broken.problem)
    return found


def _take(found: Found, name: str, node: Any) -> None:
    if isinstance(node, float):
        found.scalars.append((name, node))
    elif isinstance(node, Persistent):
        storage = _storage(node, found.storages)
        view = View(name, storage, storage.dtype, 0, (storage.numel,), (1,))
        found.views.append(view)
    elif inline.is_array(node):
        found.arrays.append(inline.array(name, node))
    else:
        found.views.append(_view(name, node, found.storages))


def _leaves(root: Any) -> Iterator[tuple[str, Any]]:
    """Tensors, arrays and odd floats with their names, in the order they were written."""
    stack: list[tuple[str, Iterator[tuple[str, Any]]]] = [("", iter([("", root)]))]
    seen: dict[int, Any] = {}  # holds the nodes: the id of a freed one is used again
    count = 0
    while stack:
        prefix, children = stack[-1]
        key, node = next(children, (None, None))
        if key is None:
            stack.pop()
            continue
        name = f"{prefix}.{key}"[:MAX_NAME] if prefix and key else prefix or key
        if _is_leaf(node):
            count += 1
            if count > MAX_LEAVES:
                raise Broken("bounds", f"the pickle holds more than {MAX_LEAVES} tensors")
            yield name or "(root)", node
        elif isinstance(node, (dict, list, tuple, Call)) and id(node) not in seen:
            seen[id(node)] = node
            stack.append((name, _children(node)))
            if len(stack) > MAX_DEPTH:
                raise Broken("bounds", f"the pickle is nested deeper than {MAX_DEPTH}")


def _is_leaf(node: Any) -> bool:
    if isinstance(node, float):
        return not math.isfinite(node)
    if isinstance(node, Call):
        return _is_rebuild(node) or inline.is_array(node)
    return isinstance(node, Persistent)


def _is_rebuild(node: Call) -> bool:
    return node.dotted in _DENSE


def _children(node: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(node, dict):
        yield from ((_label(key), child) for key, child in node.items())
    elif isinstance(node, (list, tuple)):
        yield from ((str(index), child) for index, child in enumerate(node))
    else:
        yield from _parts(node)


def _label(key: Any) -> str:
    if isinstance(key, int) and abs(key) >= MAX_NUMBER:  # str() refuses very long numbers
        return "int"
    return str(key)[:500] if isinstance(key, (str, int, float, bytes)) else type(key).__name__


def _parts(call: Call) -> Iterator[tuple[str, Any]]:
    """An object's contents under plain names: a parameter is its data, a namespace its attributes."""
    arguments = call.arguments if isinstance(call.arguments, tuple) else (call.arguments,)
    yield from (("", child) for child in arguments)
    yield from (("", child) for child in (call.pairs, call.items) if child)
    if isinstance(call.state, dict):
        yield "", {key: child for key, child in call.state.items() if key != "_metadata"}
    else:
        yield "", call.state


def _view(name: str, call: Call, storages: dict[str, Storage]) -> View:
    arguments = call.arguments
    if not isinstance(arguments, tuple) or len(arguments) < 4 or not isinstance(arguments[0], Persistent):
        raise Broken("malformed", "the tensor is described by something else than storage, offset, size and stride")
    storage = _storage(arguments[0], storages)
    dtype = storage.dtype
    if call.dotted == f"{_REBUILD}tensor_v3":
        dtype = _dtype(arguments[6] if len(arguments) > 6 else None)
    shape, stride = numbers(arguments[2]), numbers(arguments[3])
    if not is_count(arguments[1]) or len(shape) != len(stride):
        raise Broken("malformed", "the tensor's offset, size and stride do not go together")
    return View(name, storage, dtype, arguments[1], shape, stride)


def _storage(node: Persistent, storages: dict[str, Storage]) -> Storage:
    record = node.id
    if not isinstance(record, tuple) or len(record) < 5 or record[0] != "storage" or not isinstance(record[1], Global):
        raise Broken("malformed", "a storage is described by something else than type, key, place and size")
    key, numel = record[2], record[4]
    dtype = TORCH_STORAGES.get(record[1].name)
    if not isinstance(key, str) or not is_count(numel) or not dtype:
        raise Broken("malformed", f"a storage of type {record[1].dotted[:100]} is not known")
    storage = Storage(key, DTYPES[dtype], numel)
    known = storages.setdefault(key, storage)
    if known.numel * known.dtype.size != numel * storage.dtype.size:
        raise Broken("malformed", f"storage {key[:100]} is described twice, with two sizes")
    return storage


def _dtype(node: Any) -> Dtype:
    if not isinstance(node, Global) or node.module != "torch" or node.name not in DTYPES:
        raise Broken("malformed", "the tensor has a dtype that is not known")
    return DTYPES[node.name]


def is_count(node: Any) -> bool:
    return isinstance(node, int) and 0 <= node < MAX_NUMBER


def numbers(node: Any) -> tuple[int, ...]:
    if isinstance(node, Call) and node.dotted == "torch.Size" and isinstance(node.arguments, tuple):
        node = node.arguments[0] if node.arguments else ()
    if not isinstance(node, (tuple, list)) or len(node) > MAX_RANK:
        raise Broken("malformed", "the tensor's size or stride is not a list of numbers")
    if not all(map(is_count, node)):
        raise Broken("malformed", "the tensor's size or stride holds something else than plain numbers")
    return tuple(node)


def place(view: View, start: int, length: int, **where: Any) -> Tensor:
    """The tensor at its bytes; `start` and `length` are its storage's."""
    tensor = Tensor(view.name, view.dtype, view.shape, start + view.offset * view.dtype.size, view.stride, **where)
    end = view.offset * view.dtype.size + tensor.extent
    if end > length:
        raise Broken("bounds", f"needs {end} bytes of storage {view.storage.key[:100]}, which has {length}",
                     where=view.name[:200])  # fmt: skip
    return tensor
