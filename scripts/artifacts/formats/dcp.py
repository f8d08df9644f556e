"""torch.distributed.checkpoint directories: .metadata says which bytes of which .distcp file hold which tensor."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifacts.dtypes import DTYPES
from artifacts.formats import allowed, pickles, readers, torch_files
from artifacts.formats.machine import Call, Global
from artifacts.formats.tensors import is_count, numbers
from artifacts.formats.window import Cursor, Window
from artifacts.model import MAX_PROBLEMS, Broken, Layout, Problem
from artifacts.values import roles

METADATA = ".metadata"
_SHOWN = 10


@dataclass
class Item:
    """One tensor chunk or one pickled object in a .distcp file."""

    name: str
    offset: int
    length: int
    index: tuple[int, ...] = ()  # where the chunk is in its tensor
    transformed: bool = False  # compressed or encrypted by an extension


@dataclass
class Metadata:
    files: dict[str, list[Item]] = field(default_factory=dict)
    shapes: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)  # dtype and whole shape of each tensor
    chunks: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


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
    bad = [name for names in allowed.sort_out(pickle.globals) for name in names]
    found.problems += [Problem("hostile" if allowed.hostile(name) else "refused-global", "error",
                               f"the pickle names {name[:120]}, which no .metadata needs") for name in bad]  # fmt: skip
    _collect(pickle.root, found)
    return found


def _collect(root: Any, found: Metadata) -> None:
    entries = torch_files.keys(root)
    described = torch_files.keys(entries.get("state_dict_metadata"))
    stored = torch_files.keys(entries.get("storage_data"))
    if not described or not stored:
        raise Broken("malformed", "not the metadata of a checkpoint: it lists no tensors")
    for name, entry in described.items():
        if isinstance(name, str) and isinstance(entry, Call) and entry.dotted.endswith("TensorStorageMetadata"):
            _describe(name, torch_files.keys(entry), found)
    for key, value in stored.items():
        _store(torch_files.keys(key), torch_files.keys(value), found)
    _check_chunks(found)


def _describe(name: str, entry: dict[Any, Any], found: Metadata) -> None:
    properties = entry.get("properties")
    state = properties.state if isinstance(properties, Call) else None
    dtype = state[0] if isinstance(state, tuple) and state else torch_files.keys(properties).get("dtype")
    found.shapes[name] = dtype.name if isinstance(dtype, Global) else "", numbers(entry.get("size"))
    chunks = entry.get("chunks")
    for chunk in chunks if isinstance(chunks, list) else ():
        part = torch_files.keys(chunk)
        found.chunks[name, numbers(part.get("offsets"))] = numbers(part.get("sizes"))


def _store(key: dict[Any, Any], info: dict[Any, Any], found: Metadata) -> None:
    name, path = key.get("fqn"), info.get("relative_path")
    places: list[Any] = [info.get("offset"), info.get("length")]
    if not isinstance(name, str) or not isinstance(path, str) or not all(map(is_count, places)):
        raise Broken("malformed", "an entry of storage_data lacks its name, path, offset or length")
    if Path(path).is_absolute() or ".." in Path(path).parts or "\0" in path:
        raise Broken("path-name", f"{path[:100]!r} leads out of the checkpoint")
    index = numbers(key["offset"]) if key.get("offset") is not None else ()
    item = Item(name, int(places[0]), int(places[1]), index, bool(info.get("transform_descriptors")))
    found.files.setdefault(path, []).append(item)


def _check_chunks(found: Metadata) -> None:
    """Every tensor is there as a whole: its chunks are stored and their sizes add up."""
    stored = {(item.name, item.index) for items in found.files.values() for item in items}
    sums: dict[str, int] = {}
    for (name, index), sizes in found.chunks.items():
        sums[name] = sums.get(name, 0) + math.prod(sizes)
        if (name, index) not in stored:
            _note(found, name, f"its chunk at {list(index)[:8]} is stored in no file")
    for name, (_, shape) in found.shapes.items():
        if sums.get(name, 0) != math.prod(shape):
            _note(found, name, f"its chunks hold {sums.get(name, 0)} values, its shape needs {math.prod(shape)}")


def _note(found: Metadata, name: str, message: str) -> None:
    if len(found.problems) < MAX_PROBLEMS:
        found.problems.append(Problem("missing", "error", message, name[:200]))


def read_file(window: Window, items: list[Item], metadata: Metadata) -> Layout:
    """All items of one .distcp file, each a small checkpoint of its own."""
    layout = Layout("distcp")
    end = 0
    for item in sorted(items, key=lambda item: item.offset):
        if item.offset < end:
            layout.problem(
                "overlap", "error", f"shares {end - item.offset} bytes with another item", where=item.name[:200]
            )
            continue
        end = item.offset + item.length
        if item.transformed:
            layout.problem(
                "unjudged", "info", "is stored transformed; its values are not judged", where=item.name[:200]
            )
            continue
        try:
            _merge(layout, item, _blob(window, item), metadata)
        except Broken as broken:
            broken.problem.where = item.name[:200]
            layout.add(broken.problem)
    if end < window.length:
        layout.problem("trailing", "error", f"{window.length - end} bytes follow the last item")
    roles.assign(layout.tensors)
    return layout


def _blob(window: Window, item: Item) -> Layout:
    if item.offset < 0 or item.length < 0 or item.offset + item.length > window.length:
        message = f"should be at bytes {item.offset} to {item.offset + item.length}, the file has {window.length}"
        raise Broken("truncated", message, fix="the file was cut off; copy it again")
    return readers.read(window.part(item.offset, item.length), item.name)


def _merge(layout: Layout, item: Item, blob: Layout, metadata: Metadata) -> None:
    shift = len(layout.packed)
    layout.packed += blob.packed
    layout.spans += blob.spans
    layout.refused += blob.refused
    for problem in blob.problems:
        problem.where = ".".join(part for part in (item.name, problem.where) if part and part != "(root)")[:200]
        layout.add(problem)
    for tensor in blob.tensors:
        tensor.name = item.name if tensor.name == "(root)" else f"{item.name}.{tensor.name}"
        tensor.source += shift if tensor.source >= 0 else 0
        layout.tensors.append(tensor)
    if blob.tensors and (item.name, item.index) in metadata.chunks:
        _compare(layout, item, blob, metadata)
    elif not blob.tensors:
        layout.facts.setdefault("values", {})[item.name] = blob.root


def _compare(layout: Layout, item: Item, blob: Layout, metadata: Metadata) -> None:
    tensor, sizes = blob.tensors[0], metadata.chunks[item.name, item.index]
    dtype = metadata.shapes.get(item.name, ("", ()))[0]
    if tensor.shape != sizes:
        message = f"has shape {list(tensor.shape)[:8]}, the metadata says {list(sizes)[:8]}"
        layout.problem("shape", "error", message, where=item.name[:200])
    if dtype in DTYPES and tensor.dtype.name != dtype:
        layout.problem("dtype", "error", f"is {tensor.dtype.name}, the metadata says {dtype}", where=item.name[:200])


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
