"""tar files: torch's format before 0.2 (storages, tensors, pickle), and archives of checkpoints (NeMo's .nemo)."""

from __future__ import annotations

import struct
import tarfile
from collections.abc import Callable, Iterator

from rgt.checkpoint.formats import pickles, torch_files
from rgt.checkpoint.formats.container import Cursor, Window
from rgt.checkpoint.formats.pickles import Global, Persistent
from rgt.checkpoint.layout import DTYPES, TORCH_STORAGES, Broken, Layout, Tensor

AddPart = Callable[[Layout, str, Window], None]  # reads what is inside, when it can be read
_BLOCK = 512
_MAX_MEMBERS = 10_000
_LONG_NAMES = (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE, tarfile.XGLTYPE)


def is_tar(head: bytes) -> bool:
    """Whether tarfile takes it for one: the checksum of its first block is right, whatever else it looks like."""
    try:
        tarfile.TarInfo.frombuf(head[:_BLOCK], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def members(window: Window) -> Iterator[tuple[str, Window]]:
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
    found = dict(members(window))
    if {"storages", "tensors", "pickle"} <= found.keys():
        return _read_torch(found)
    layout = Layout("tar")
    for name, part in found.items():
        add_part(layout, name, part)
    if not layout.tensors and not layout.problems:
        raise Broken(
            "not-a-checkpoint", f"a tar of {len(found)} files, none of them a checkpoint", fix="unpack it first"
        )
    return layout


def _read_torch(found: dict[str, Window]) -> Layout:
    layout = Layout("torch-tar")
    storages: dict[object, tuple[torch_files.Storage, int]] = {}
    part, at = found["storages"], 0

    def unpickle() -> object:
        nonlocal at
        pickle = pickles.read(Cursor(part, at, pickles.MAX_PICKLE))
        pickles.judge(pickle, layout)
        at = pickle.end
        return pickle.root

    for _ in range(_count(unpickle())):
        match unpickle():
            case (key, _, Global() as kind) if isinstance(key, (str, int)) and kind.name in TORCH_STORAGES:
                (numel,) = struct.unpack("<q", part.read(at, 8))
                storage = torch_files.Storage(str(key), DTYPES[TORCH_STORAGES[kind.name]], numel)
                storages[key] = storage, part.start + at + 8
                at += 8 + part.part(at + 8, storage.bytes).length
            case _:
                raise Broken("malformed", "a storage is not described by key, place and type")
    if unpickle() != []:
        layout.problem("unjudged", "warn", "has views of storages, whose values are not judged")
    part, at = found["tensors"], 0
    tensors: dict[object, tuple[torch_files.Storage, int, Tensor]] = {}
    for _ in range(_count(unpickle())):
        match unpickle():
            case (key, storage_key, _) if isinstance(key, (str, int)) and storage_key in storages:
                storage, start = storages[storage_key]
                (rank,) = struct.unpack("<i", part.read(at, 4))
                numbers = struct.unpack(f"<{2 * _count(rank)}q", part.read(at + 8, 16 * rank))
                (first,) = struct.unpack("<q", part.read(at + 8 + 16 * rank, 8))
                at += 16 + 16 * rank
                shape, stride = (torch_files.numbers(list(part)) for part in (numbers[:rank], numbers[rank:]))
                begin = _count(first) * storage.dtype.size
                tensors[key] = storage, start, Tensor("", storage.dtype, shape, begin, stride)
            case _:
                raise Broken("malformed", "a tensor is not described by key, storage and type")
    part, at = found["pickle"], 0
    layout.root = unpickle()
    for name, node in torch_files.leaves(layout.root):
        key = node.id if isinstance(node, Persistent) else None
        entry = tensors.get(key) or tensors.get(int(key) if isinstance(key, str) and key.isdigit() else None)
        if entry:
            storage, start, tensor = entry
            tensor.name = name
            torch_files.place(layout, storage, tensor, start)
        else:
            layout.problem("malformed", "error", "is a tensor that the file does not hold", where=name[:200])
    return layout


def _count(node: object) -> int:
    if not torch_files.is_count(node) or node > 1_000_000:  # type: ignore[operator]
        raise Broken("malformed", f"a count of the tar is {str(node)[:40]}")
    return node  # type: ignore[return-value]
