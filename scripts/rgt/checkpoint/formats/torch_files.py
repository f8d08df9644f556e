"""torch.save's two formats, the zip (since 1.6) and the row of pickles before it, and plain pickles.

From a pickle's inert tree to named tensors: which storage, which offset, which shape. Names are the path of keys from
the root: model.blocks.0.weight. A container that is reached twice is walked once, so neither shared nor self-containing
structures can make the walk long.
"""

from __future__ import annotations

import contextlib
import functools
import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rgt.checkpoint.formats import pickles
from rgt.checkpoint.formats.container import STORED, Cursor, Window, in_memory, member_window
from rgt.checkpoint.formats.pickles import Call, Global, Persistent
from rgt.checkpoint.layout import (
    DTYPES,
    FILE,
    INLINE,
    TORCH_STORAGES,
    Broken,
    Dtype,
    Layout,
    Member,
    Tensor,
    from_numpy,
)

MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # what a legacy file starts with
MAGIC_PICKLE = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # as protocol 2 writes it
_BEGINS = (b"\x80", b"(", b"]", b"}", b"c")  # of pickles; those of protocol 0 and 1 do not say their protocol
MAX_DEPTH, MAX_LEAVES = 200, 500_000
MAX_NAME = 1000  # characters
MAX_NUMBER = 1 << 62
MAX_RANK = 64
_SHOWN = 10  # names in one sentence
_RECORDS = {  # what torch 2.13 takes
    "version": rb"\s*(10|[1-9])(\D|$)",
    ".storage_alignment": rb"\s*\d+\s*$",
    ".data/serialization_id": rb"[\x00-\x7f]*$",
}
_SCRIPT_FILES = re.compile(rb"torch\.(save|from_file|load)\(|ops\.aten\.(save|from_file)|torch\.jit\.(save|load)\(")
_DENSE = {f"torch._utils._rebuild_{kind}" for kind in ("tensor", "tensor_v2", "tensor_v3", "qtensor")}
_ARRAYS = {
    f"{core}.{name}"
    for core in ("numpy.core", "numpy._core")
    for name in ("multiarray._reconstruct", "multiarray.scalar", "numeric._frombuffer")
}
_LEAVES = _DENSE | _ARRAYS
_SEVERAL_IN_A_BYTE = ("quint4x2", "quint2x4")


@dataclass(frozen=True)
class Storage:
    """What a persistent id says: key and element count of bytes that are elsewhere in the file."""

    key: str
    dtype: Dtype
    numel: int

    @property
    def bytes(self) -> int:
        return self.numel * self.dtype.size


@dataclass
class Contents:
    """The tensors of a pickled tree, before their storages have a place."""

    views: list[tuple[Storage, Tensor]] = field(default_factory=list)  # the tensor starts at its byte of the storage
    storages: dict[str, Storage] = field(default_factory=dict)
    wrong: set[str] = field(default_factory=set)  # keys of storages that are there, with another size

    @functools.cached_property
    def users(self) -> dict[str, str]:
        """Storage key -> the first tensors that use it."""
        names: dict[str, list[str]] = {}
        for storage, tensor in self.views:
            names.setdefault(storage.key, []).append(tensor.name)
        return {key: ", ".join(users[:3])[:200] for key, users in names.items()}


def keys(node: Any) -> dict[Any, Any]:
    """A pickled mapping or namespace as a dict; empty for anything else."""
    if isinstance(node, Call):
        is_namespace = isinstance(node.state, dict) and not node.dotted.startswith("collections.")
        return node.pairs or (node.state if is_namespace else None) or {}
    return node if isinstance(node, dict) else {}


# -- files


def read_zip(window: Window, members: list[Member], root: str) -> Layout:
    """A zip with a `root`/data.pkl, as torch's reader takes it: it finds members whatever their case."""
    script = f"{root}constants.pkl" in (member.name for member in members)
    layout = Layout("torchscript" if script else "torch")
    layout.facts["root"] = root
    names = _find_members(members, root, layout)
    for name, pattern in _RECORDS.items():  # small members that torch's reader parses before anything else
        record = names.get(".data/version") or names.get(name) if name == "version" else names.get(name)
        told = member_window(window, record, 4096).head(4096) if record else None
        if (told is None and name == "version") or (told is not None and not re.match(pattern, told)):
            layout.error("malformed", f"its {name} is {told and told[:20]!r}: torch refuses it")
    layout.packed = [member for member in members if member.method != STORED]
    if script:
        _judge_script(window, names, layout)
    order = member_window(window, names["byteorder"], 16).head(16) if "byteorder" in names else b"little"
    if order not in (b"little", b"big"):
        raise Broken("malformed", f"the byte order of the file is given as {order!r}")
    packed = {id(member): number for number, member in enumerate(layout.packed)}
    for pickle in ("constants", "data") if script else ("data",):
        content = member_window(window, names[f"{pickle}.pkl"], pickles.MAX_PICKLE)
        layout.root = _read_pickle(content, 0, layout, script).root
        found, folder = find(layout), f"{pickle}/"
        places = {}
        for key, storage in found.storages.items():
            member = names.get((folder + key).lower())
            if member is None:
                continue  # told for each of its tensors
            if member.size != storage.bytes:
                found.wrong.add(key)
                message = f"storage {key[:100]} has {member.size} bytes, the pickle wants {storage.bytes}"
                layout.error("bounds", message, found.users.get(key))
            elif member.method == STORED:
                places[key] = FILE, window.start + member.data
            else:
                places[key] = packed[id(member)], 0
        place(layout, found, places, order == b"big")
        stored = {name.removeprefix(folder) for name in names if name.startswith(folder)}
        extra = sorted(stored - {key.lower() for key in found.storages})
        if extra:
            layout.problem("extra", "warn", f"{len(extra)} storages belong to no tensor: {', '.join(extra[:_SHOWN])}")
    return layout


def _find_members(members: list[Member], root: str, layout: Layout) -> dict[str, Member]:
    """By their names in small letters, without the root."""
    names: dict[str, Member] = {}
    for member in members:
        with contextlib.suppress(UnicodeEncodeError):  # a name that is marked as UTF-8 was decoded before
            if "\ufffd" in member.name.encode("cp437").decode("utf-8", "replace"):
                layout.error("malformed", f"zip member {member.name[:100]!r} has a name that is not UTF-8")
        if not member.name.startswith(root) or "\\" in member.name:
            message = f"zip member {member.name[:100]!r} is not below {root[:60]!r}: torch refuses the file"
            layout.error("malformed", message)
        elif names.setdefault(member.name[len(root) :].lower(), member) is not member:
            message = f"zip member {member.name[:100]!r} is there in two spellings, and torch tells them not apart"
            layout.error("duplicate", message)
    return names


def _judge_script(window: Window, names: dict[str, Member], layout: Layout) -> None:
    """TorchScript is a program: its __setstate__ runs when it is loaded, the rest when it is used."""
    sources = [member for name, member in names.items() if name.startswith("code/") and name.endswith(".py")]
    texts = [member_window(window, member, pickles.MAX_PICKLE).head(pickles.MAX_PICKLE) for member in sources]
    runs = sum(b"def __setstate__" in text for text in texts)
    files = next((match[0].decode() for match in map(_SCRIPT_FILES.search, texts) if match), None)
    if files:
        message = f"its program calls {files[:60]}, which reads or writes files"
        layout.error("hostile", message, fix="do not load this file; get it from its source again")
    if not sources:
        layout.error("malformed", "has the constants of a program (TorchScript) and not the program")
    message = f"holds a program in {len(sources)} files (TorchScript), {runs} with code that runs when it is loaded"
    layout.problem("code", "info", message)


def is_pickle(window: Window, named: bool) -> bool:
    """`named`: by its name it may be one; text that begins like one is no reason to call it so."""
    head = window.head(2)
    if head[:1] == b"\x80":
        return len(head) > 1 and head[1] <= 5
    return named and head[:1] in _BEGINS and window.read(window.length - 1, 1) == b"."


def read_pickle(window: Window) -> Layout:
    """A plain pickle, or torch's legacy format."""
    layout = Layout("pickle")
    pickle = _read_pickle(window, 0, layout)
    if pickle.root == MAGIC:
        return _read_legacy(window, pickle.end, layout)
    layout.root = pickle.root
    found = find(layout)
    if found.views:
        layout.error("malformed", f"{len(found.views)} tensors have no storage in this pickle")
    opcodes = pickle.count
    while pickle.end < window.length and opcodes <= pickles.MAX_OPCODES and window.read(pickle.end, 1) in _BEGINS:
        pickle = _read_pickle(window, pickle.end, layout)  # dumped one behind the other
        opcodes += pickle.count
    if pickle.end != window.length:
        layout.error("trailing", f"{window.length - pickle.end} bytes follow the end of the pickle")
    return layout


def _read_legacy(window: Window, at: int, layout: Layout) -> Layout:
    """magic, protocol, system, object, storage keys: five pickles; then each storage as its count and its bytes."""
    layout.format = "torch-legacy"
    parts: list[Any] = []
    for _ in range(4):
        pickle = _read_pickle(window, at, layout, sources=True)
        at, parts = pickle.end, [*parts, pickle.root]
    protocol, system, layout.root, listed = parts
    if protocol != _PROTOCOL:
        raise Broken("malformed", f"its protocol is {str(protocol)[:40]}; torch loads {_PROTOCOL}")
    if not isinstance(listed, list) or not all(isinstance(key, str) for key in listed):
        raise Broken("malformed", "the list of storages is not a list of names")
    big = isinstance(system, dict) and system.get("little_endian") is False
    found = find(layout)
    places: dict[str, int] = {}
    for key in listed:
        storage, name = found.storages.get(key), f"storage {key[:100]}"
        if storage is None or key in places:
            raise Broken("malformed", f"{name} is listed {'twice' if storage else 'and no tensor uses it'}")
        end = at + 8 + storage.bytes
        if at + 8 <= window.length:
            count = struct.unpack(">q" if big else "<q", window.read(at, 8))[0]
            if count != storage.numel:
                message = f"{name} has {count} values, the pickle says {storage.numel}"
                raise Broken("bounds", message, where=found.users.get(key))
        if end > window.length:
            raise Broken("truncated", f"{name} needs {end - window.length} bytes more", where=found.users.get(key))
        places[key], at = at + 8, end
    if at != window.length:
        layout.error("trailing", f"{window.length - at} bytes follow the last storage")
    place(layout, found, {key: (FILE, window.start + start) for key, start in places.items()}, big)
    return layout


def place(layout: Layout, found: Contents, places: dict[str, tuple[int, int]], big: bool) -> None:
    """Every tensor at the bytes of its storage: (source, start); one that is not there is a problem."""
    for storage, tensor in found.views:
        end = tensor.start + tensor.extent
        if storage.key not in places:
            if storage.key not in found.wrong:
                layout.error("malformed", f"storage {storage.key[:100]} is not in the file", tensor.name)
        elif end > storage.bytes:
            message = f"needs {end} bytes of storage {storage.key[:100]}, which has {storage.bytes}"
            layout.error("bounds", message, tensor.name)
        else:
            tensor.source, start = places[storage.key]
            tensor.start, tensor.big_endian = tensor.start + start, big
            layout.tensors.append(tensor)


def _read_pickle(
    window: Window, start: int, layout: Layout, script: bool = False, sources: bool = False
) -> pickles.Machine:
    """One pickle with its globals judged; the caller may go on with the tree, since nothing in it was run."""
    pickle = pickles.read(Cursor(window, start, pickles.MAX_PICKLE))
    if pickle.sources and not sources:
        layout.error("malformed", "holds a class with its source, which only torch's old format loads")
    for data in pickle.nested:
        inner = read_pickle(_window(data))
        for problem in inner.problems:
            layout.add(problem)
        layout.refused += [name for name in inner.refused if name not in layout.refused]
    pickle.nested = []
    pickles.judge(pickle, layout, script)
    return pickle


# -- the tree


def find(layout: Layout) -> Contents:
    """The tensors of layout.root; arrays, which need no storage, go into the layout at once."""
    found = Contents()
    for name, node in leaves(layout.root):
        with layout.part(name):
            if isinstance(node, Persistent):
                storage, first = _storage(node, found.storages)
                count = storage.numel - first
                found.views.append((storage, Tensor(name, storage.dtype, (count,), first * storage.dtype.size)))
            elif node.dotted in _ARRAYS:
                layout.tensors.append(numpy_array(name, node))
            elif node.dotted in pickles.ARRAYS:
                state = node.state
                shape = state["shape"][::-1] if state.get("order") == "F" else state["shape"]
                layout.tensors.append(_array(name, *_numpy_dtype(state["dtype"]), shape, node.items[0]))
            else:
                match node.arguments:
                    case (Call(dotted=pickles.NESTED) as inner, *more):
                        layout.tensors.append(_nested_view(name, node, inner, more))
                    case _:
                        found.views.append(_view(name, node, found.storages))
    return found


def leaves(root: Any) -> Iterator[tuple[str, Any]]:
    """Tensors and arrays with their names, in the order they were written."""
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
        if isinstance(node, Persistent) or (isinstance(node, Call) and _is_leaf(node)):
            count += 1
            if count > MAX_LEAVES:
                raise Broken("bounds", f"the pickle holds more than {MAX_LEAVES} tensors")
            yield name or "(root)", node
            if isinstance(node, Call) and node.dotted.endswith("_qtensor") and isinstance(node.arguments, tuple):
                stack.append((f"{name}.quantizer", _children(list(node.arguments[4:5]))))  # scales and zero points
        elif isinstance(node, (dict, list, tuple, Call)) and id(node) not in seen:
            seen[id(node)] = node
            stack.append((name, _children(node)))
            if len(stack) > MAX_DEPTH:
                raise Broken("bounds", f"the pickle is nested deeper than {MAX_DEPTH}")


def _is_leaf(call: Call) -> bool:
    """A tensor or an array; one of Python objects is a list of them."""
    match call.state:
        case (_, _, Call(dotted="numpy.dtype", arguments=(str(code), *_)), _, list()) if code.startswith("O"):
            return False
        case {"shape": _, "dtype": _} if call.dotted in pickles.ARRAYS:
            return bool(call.items) and isinstance((call.items or [0])[0], Window)
    return call.dotted in _LEAVES


def _children(node: Any) -> Iterator[tuple[str, Any]]:
    """An object's contents have plain names: a parameter is its data, a namespace its attributes."""
    if isinstance(node, dict):
        for key, child in node.items():
            if isinstance(key, int) and abs(key) >= MAX_NUMBER:  # str() refuses very long numbers
                key = "int"
            yield str(key)[:500] if isinstance(key, (str, int, float, bytes)) else type(key).__name__, child
    elif isinstance(node, (list, tuple)):
        yield from ((str(index), child) for index, child in enumerate(node))
    else:
        arguments = node.arguments if isinstance(node.arguments, tuple) else (node.arguments,)
        yield from (("", child) for child in (*arguments, node.pairs, node.items))
        state = node.state
        yield "", {k: child for k, child in state.items() if k != "_metadata"} if isinstance(state, dict) else state


def _nested_view(name: str, call: Call, inner: Call, more: list[Any]) -> Tensor:
    """pickle.dump of a tensor: its storage is a file of torch.save inside of the pickle."""
    part = _window(inner.arguments[0])
    inside = read_pickle(part).tensors
    if len(inside) != 1:
        raise Broken("malformed", "the tensor's storage inside of the pickle is something else")
    (whole,) = inside
    storage = Persistent(("storage", Global("torch", "ByteStorage"), "0", "cpu", whole.numel * whole.dtype.size))
    _, tensor = _view(name, Call(call.function, (storage, *more)), {})
    tensor.dtype, begin = whole.dtype, tensor.start * whole.dtype.size
    if begin + tensor.extent > whole.extent:
        raise Broken("bounds", f"needs {begin + tensor.extent} bytes of a storage of {whole.extent}")
    tensor.big_endian = whole.big_endian
    return _place_at(tensor, part.part(begin + whole.start - part.start, tensor.extent))


def _view(name: str, call: Call, storages: dict[str, Storage]) -> tuple[Storage, Tensor]:
    match call.arguments:
        case (Persistent() as identity, offset, size, step, *more) if isinstance(call.arguments, tuple):
            storage, first = _storage(identity, storages)
        case _:
            raise Broken("malformed", "the tensor is described by something else than storage, offset, size and stride")
    dtype = storage.dtype
    if call.dotted.endswith("tensor_v3"):
        named = more[2] if len(more) > 2 else None
        if not isinstance(named, Global) or named.module != "torch" or named.name not in DTYPES:
            raise Broken("malformed", "the tensor has a dtype that is not known")
        dtype = DTYPES[named.name]
    shape, stride = numbers(size), numbers(step)
    if not is_count(offset) or len(shape) != len(stride):
        raise Broken("malformed", "the tensor's offset, size and stride do not go together")
    if dtype.name in _SEVERAL_IN_A_BYTE:  # the storage counts bytes, the shape values
        return storage, Tensor(name, dtype, (storage.numel,), 0)
    return storage, Tensor(name, dtype, shape, offset * dtype.size + first * storage.dtype.size, stride)


def _storage(node: Persistent, storages: dict[str, Storage]) -> tuple[Storage, int]:
    """With the first value of a view of it, as files before torch 1.0 have them."""
    match node.id:
        case ("storage", Global() as kind, str(key), _, numel, *view) if isinstance(node.id, tuple) and is_count(numel):
            if kind.name not in TORCH_STORAGES:
                raise Broken("malformed", f"a storage of type {kind.dotted[:100]} is not known")
        case _:
            raise Broken("malformed", "a storage is described by something else than type, key, place and size")
    storage = Storage(key, DTYPES[TORCH_STORAGES[kind.name]], numel)
    if storages.setdefault(key, storage).bytes != storage.bytes:
        raise Broken("malformed", f"storage {key[:100]} is described twice, with two sizes")
    match view:
        case [] | [None, *_]:
            return storage, 0
        case [(_, first, count), *_] if is_count(first) and is_count(count):
            return storage, int(first)
    raise Broken("malformed", f"a view of storage {key[:100]} is not described by name, offset and size")


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


# -- numpy arrays and scalars whose bytes are inside a pickle: random states, metrics, Accelerate's extras


def _window(data: bytes | Window) -> Window:
    return data if isinstance(data, Window) else in_memory(data)


def _place_at(tensor: Tensor, part: Window) -> Tensor:
    """Where its bytes are in the file; those of a file that was unpacked in memory come with it."""
    tensor.source, tensor.start = FILE, part.start
    if part.memory is not None:
        tensor.source, tensor.start, tensor.data = INLINE, 0, part.read(0, part.length)
    return tensor


def _array(name: str, dtype: Dtype, big_endian: bool, shape: tuple[int, ...], data: bytes | Window) -> Tensor:
    part = _window(data)
    if math.prod(shape) * dtype.size != part.length:
        raise Broken("truncated", f"a numpy array of shape {list(shape)[:8]} has {part.length} bytes")
    return _place_at(Tensor(name, dtype, shape, 0, big_endian=big_endian, role="array"), part)


def _numpy_dtype(described: Any) -> tuple[Dtype, bool]:
    """With whether it is big endian."""
    inner = described.arguments if isinstance(described, Call) and described.dotted == "numpy.dtype" else None
    dtype, _ = from_numpy(inner[0] if isinstance(inner, tuple) and inner else None)
    return dtype, isinstance(described.state, tuple) and len(described.state) > 1 and described.state[1] == ">"


def numpy_array(name: str, call: Call) -> Tensor:
    """Of the three ways numpy pickles: _reconstruct with a state, scalar, _frombuffer."""
    shape: Any = ()
    match call.dotted.rpartition(".")[2], call.arguments, call.state:
        case "_reconstruct", _, (_, shape, described, order, data) if isinstance(call.state, tuple):
            pass
        case "scalar", (described, data, *_), _:
            order = None
        case "_frombuffer", (data, described, shape, order, *_), _:
            pass
        case _:
            raise Broken("malformed", "a numpy value is not described by its type, shape and contents")
    dtype, big_endian = _numpy_dtype(described)
    match data:
        case Call(dotted="__builtin__.bytes" | "builtins.bytes", arguments=()):
            data = b""
        case Call(dotted="_codecs.encode", arguments=(str(data),) | (str(data), "latin1" | "latin-1")):
            pass  # protocol 2 has no bytes: they are written as text
    if isinstance(data, str):  # also of Python 2, where a string is bytes
        data = data.encode("latin-1", "replace")
    if not isinstance(data, (bytes, bytearray, Window)):
        raise Broken("malformed", "a numpy array's contents are not bytes")
    if not isinstance(shape, tuple) or not all(map(is_count, shape)):
        raise Broken("malformed", "a numpy array has a shape that is not a tuple of numbers")
    axes = shape[::-1] if order is True or order == "F" else shape
    return _array(name, dtype, big_endian, axes, bytes(data) if isinstance(data, bytearray) else data)
