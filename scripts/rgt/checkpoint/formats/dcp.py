"""torch.distributed.checkpoint directories: .metadata says which bytes of which .distcp file hold which tensor."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt.checkpoint.formats import pickles, readers
from rgt.checkpoint.formats.container import Cursor, Window
from rgt.checkpoint.formats.pickles import Call, Global
from rgt.checkpoint.formats.torch_files import is_count, keys, numbers
from rgt.checkpoint.layout import DTYPES, Broken, Layout, Problem

_OWN = "torch.distributed.checkpoint."
_CLASSES = """
    metadata.Metadata metadata.TensorProperties metadata.TensorStorageMetadata metadata.BytesStorageMetadata
    metadata.ChunkStorageMetadata metadata.MetadataIndex metadata.StorageMeta metadata._MEM_FORMAT_ENCODING
    filesystem._StorageInfo filesystem._StoragePrefix
""".split()
# by value, or by name as Python 3.11.0 to 3.11.3 pickle members of enums
_MEMORY_FORMATS = (0, 1, 2, "TORCH_CONTIGUOUS_FORMAT", "TORCH_CHANNELS_LAST", "TORCH_PRESERVE_FORMAT")


@dataclass
class Item:
    """One tensor chunk or one pickled object in a .distcp file."""

    name: str
    offset: int
    length: int
    index: tuple[int, ...] | None  # where the chunk is in its tensor; None for an object
    transformed: bool = False  # compressed or encrypted by an extension


@dataclass
class Metadata:
    files: dict[str, list[Item]] = field(default_factory=dict)
    shapes: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)  # dtype and whole shape of each tensor
    chunks: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = field(default_factory=dict)
    layout: Layout = field(default_factory=lambda: Layout("distcp"))  # its problems, and the names in its pickle


def read_metadata(path: Path) -> Metadata:
    """Raises Broken or OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        window = Window(descriptor, 0, os.fstat(descriptor).st_size)
        if not window.length:
            raise Broken("empty", "the file has no bytes")
        pickle = pickles.read(Cursor(window, 0, pickles.MAX_PICKLE))
    finally:
        os.close(descriptor)
    found = Metadata()
    layout = found.layout
    pickles.judge(pickle, layout)
    layout.refused += [name for name in pickle.globals if name.startswith(_OWN) and name[len(_OWN) :] not in _CLASSES]
    if pickle.end != window.length:
        layout.error("trailing", f"{window.length - pickle.end} bytes follow the end of the pickle")
    entries = keys(pickle.root)
    described, stored = keys(entries.get("state_dict_metadata")), keys(entries.get("storage_data"))
    if not described or not stored:
        raise Broken("malformed", "not the metadata of a checkpoint: it lists no tensors")
    planned = keys(entries.get("planner_data"))
    for name, path in planned.items():  # ("model", "layers", 0, "weight") of model.layers.0.weight
        parts = path if isinstance(path, tuple) and all(isinstance(part, (str, int)) for part in path) else ()
        if ".".join(map(str, parts)) != name:
            raise Broken("malformed", "the metadata's paths into the state are not those of its names")
    for name, entry in described.items():
        _describe(found, name, entry)
    if pickle.keys - {f"{_OWN}metadata.MetadataIndex"}:  # of torch's classes there it alone can be hashed
        raise Broken("malformed", "the metadata has keys that are neither names nor a MetadataIndex")
    for key, value in ((keys(key), keys(value)) for key, value in stored.items()):
        name, relative = key.get("fqn"), value.get("relative_path")
        place: list[Any] = [value.get("offset"), value.get("length")]
        if not isinstance(name, str) or not isinstance(relative, str) or not all(map(is_count, place)):
            raise Broken("malformed", "an entry of storage_data lacks its name, path, offset or length")
        if Path(relative).is_absolute() or ".." in Path(relative).parts or "\0" in relative:
            raise Broken("path-name", f"{relative[:100]!r} leads out of the checkpoint")
        index = numbers(key["offset"]) if key.get("offset") is not None else None
        item = Item(name, int(place[0]), int(place[1]), index, bool(value.get("transform_descriptors")))
        found.files.setdefault(relative, []).append(item)
    _check_chunks(found)
    return found


def _describe(found: Metadata, name: Any, entry: Any) -> None:
    """One entry of state_dict_metadata: a tensor with its chunks, or bytes."""
    kind = entry.dotted if isinstance(name, str) and isinstance(entry, Call) else ""
    if kind.endswith("TensorStorageMetadata"):
        fields = keys(entry)
        properties, chunks = fields.get("properties"), fields.get("chunks")
        state = properties.state if isinstance(properties, Call) else None
        if isinstance(state, tuple) and not _are_properties(state):
            raise Broken("malformed", "the metadata gives it other properties than a tensor has", where=name)
        dtype = state[0] if isinstance(state, tuple) and state else keys(properties).get("dtype")
        if not isinstance(dtype, Global) or dtype.module != "torch" or dtype.name not in DTYPES:
            raise Broken("malformed", "the metadata gives it a dtype that is not known", where=name)
        found.shapes[name] = dtype.name, numbers(fields.get("size"))
        for part in map(keys, chunks if isinstance(chunks, list) else ()):
            found.chunks[name, numbers(part.get("offsets"))] = numbers(part.get("sizes"))
    elif not kind.endswith("BytesStorageMetadata"):
        raise Broken("malformed", f"the metadata describes {str(name)[:100]} as neither tensor nor bytes")


def _are_properties(state: tuple[Any, ...]) -> bool:
    """dtype, layout, requires_grad, memory format, pin_memory; of some also the strides"""
    flags = len(state) in (5, 6) and isinstance(state[2], bool) and isinstance(state[4], bool)
    known = isinstance(state[3], Call) and state[3].dotted.endswith("_MEM_FORMAT_ENCODING")
    return flags and known and state[3].arguments in [(word,) for word in _MEMORY_FORMATS]


def _check_chunks(found: Metadata) -> None:
    """Every tensor is there as a whole: its chunks are stored and their sizes add up."""
    stored = {(item.name, item.index) for items in found.files.values() for item in items}
    sums: dict[str, int] = {}
    for (name, index), sizes in found.chunks.items():
        sums[name] = sums.get(name, 0) + math.prod(sizes)
        if (name, index) not in stored:
            found.layout.error("missing", f"its chunk at {list(index)[:8]} is stored in no file", name)
    for name, (_, shape) in found.shapes.items():
        if sums.get(name, 0) != math.prod(shape):
            message = f"its chunks hold {sums.get(name, 0)} values, its shape needs {math.prod(shape)}"
            found.layout.error("missing", message, name)


def read_file(window: Window, items: list[Item], metadata: Metadata) -> Layout:
    """All items of one .distcp file, each a small checkpoint of its own."""
    layout = Layout("distcp")
    end = 0
    for item in sorted(items, key=lambda item: item.offset):
        if item.offset < end:
            layout.error("overlap", f"shares {end - item.offset} bytes with another item", item.name)
            continue
        end = item.offset + item.length
        if item.transformed:
            layout.problem("unjudged", "info", "is stored transformed; its values are not judged", item.name)
            continue
        with layout.part(item.name):
            if end > window.length:
                message = f"should be at bytes {item.offset} to {end}, the file has {window.length}"
                raise Broken("truncated", message, fix="the file was cut off; copy it again")
            blob = readers.read(window.part(item.offset, item.length), item.name)
            readers.merge(layout, item.name, blob)
            if not blob.tensors:
                layout.facts.setdefault("values", {})[item.name] = blob.root
            elif item.index is not None and (item.name, item.index) in metadata.chunks:
                tensor, sizes = blob.tensors[0], metadata.chunks[item.name, item.index]
                dtype, _ = metadata.shapes.get(item.name, (tensor.dtype.name, ()))
                if tensor.shape != sizes:
                    message = f"has shape {list(tensor.shape)[:8]}, the metadata says {list(sizes)[:8]}"
                    layout.error("shape", message, item.name)
                if tensor.dtype.name != dtype:
                    layout.error("dtype", f"is {tensor.dtype.name}, the metadata says {dtype}", item.name)
    if end < window.length:
        layout.error("trailing", f"{window.length - end} bytes follow the last item")
    layout.assign_roles()
    return layout


def lost_files(directory: Path, metadata: Metadata) -> Iterator[tuple[Path, Problem]]:
    """Files that the metadata names and that are gone, and files it does not name."""
    for name, items in metadata.files.items():
        if not os.path.isfile(directory / name):  # unlike Path's, it answers for a name that is too long
            message = f"is missing; {len(items)} tensors and values are in it"
            names = ", ".join(item.name for item in items[:3])
            yield directory / name, Problem("missing", "error", message, evidence=names[:200])
    for path in sorted(directory.glob("*.distcp")):
        if path.name not in metadata.files:
            yield path, Problem("extra", "error", "is named by no entry of .metadata: it is of another save")
