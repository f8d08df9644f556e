"""HDF5 (Keras, h5py): groups are walked from the root to every dataset. Contiguous ones are judged by value; of chunked
ones each chunk must lie inside of the file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rgt.checkpoint.formats.container import Window
from rgt.checkpoint.layout import DTYPES, Broken, Layout, Tensor

_UNDEFINED = (1 << 64) - 1
_MAX_OBJECTS, _MAX_ENTRIES, _MAX_DEPTH = 200_000, 2_000_000, 60
_SPACE, _LINKS, _TYPE, _LINK, _LAYOUT, _MORE, _SYMBOLS = 1, 2, 3, 6, 8, 16, 17
_INTS = {(size, signed): f"{'' if signed else 'u'}int{8 * size}" for size in (1, 2, 4, 8) for signed in (0, 1)}
_FLOATS = {2: "float16", 4: "float32", 8: "float64"}
_LAMBDA = b'"class_name": "Lambda"'  # in the attribute with Keras' configuration


def read_hdf5(window: Window) -> Layout:
    version = window.number(8, 1)
    width = window.read(13 if version < 2 else 9, 2)
    if version > 3 or width != b"\x08\x08":
        raise Broken("unjudged", f"HDF5 with a superblock of version {version} and addresses of {width[0]} bytes")
    start = (24 if version == 0 else 28) if version < 2 else 12
    walk = _Walk(window, Layout("hdf5"))
    end = window.number(start + 16)
    if end > window.length:
        raise Broken("truncated", f"should have {end} bytes and has {window.length}", fix="copy it again")
    walk.visit("", window.number(start + 40 if version < 2 else start + 24), 0)
    if _LAMBDA in window.head(16 << 20):
        walk.layout.problem("code", "warn", "holds a Keras Lambda layer: Python code that runs when it is loaded")
    if walk.passed:
        message = f"{len(walk.passed)} datasets are packed or of other types; their values are not judged"
        walk.layout.problem("unjudged", "info", message, evidence=", ".join(walk.passed[:5])[:200])
    return walk.layout


@dataclass
class _Walk:
    window: Window
    layout: Layout
    seen: set[int] = field(default_factory=set)
    passed: list[str] = field(default_factory=list)
    entries: int = 0  # of trees

    def expect(self, at: int, magic: bytes) -> None:
        if self.window.read(at, 4) != magic:
            raise Broken("malformed", f"there is no {magic.decode()} at byte {at}: the file is damaged")

    def visit(self, name: str, at: int, depth: int) -> None:
        if at in self.seen:
            return
        self.seen.add(at)
        if len(self.seen) > _MAX_OBJECTS or depth > _MAX_DEPTH:
            raise Broken("bounds", f"more than {_MAX_OBJECTS} objects, or groups nested deeper than {_MAX_DEPTH}")
        number, messages = self.window.number, list(self.messages(at))
        for kind, place in messages:
            children: Iterable[tuple[str, int]] = ()
            if kind == _SYMBOLS:
                children = self.symbols(number(place), number(place + 8))
            elif kind == _LINK:
                children = [self.link(place)]
            elif kind == _LINKS and number(place + 2 + (8 if number(place + 1, 1) & 1 else 0)) != _UNDEFINED:
                self.passed.append(f"{name} (a large group)")
            for child, where in children:
                if where or kind == _SYMBOLS:
                    self.visit(f"{name}.{child}" if name else child, where, depth + 1)
        found = dict(messages)
        if _LAYOUT in found and _SPACE in found and _TYPE in found:
            self.dataset(name, found[_SPACE], found[_TYPE], found[_LAYOUT])

    def messages(self, at: int) -> Iterator[tuple[int, int]]:
        """(kind, place) of an object's header messages."""
        number = self.window.number
        if self.window.read(at, 4) == b"OHDR":
            flags = number(at + 5, 1)
            begin = at + 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
            width = 1 << (flags & 3)
            code, head, blocks = 1, 6 if flags & 4 else 4, [(begin + width, number(begin, width))]
        elif number(at, 1) == 1:
            code, head, blocks = 2, 8, [(at + 16, number(at + 8, 4))]
        else:
            raise Broken("malformed", f"there is no object at byte {at}: the file is damaged")
        for place, length in blocks:  # grows while it is walked
            end = place + length
            if len(blocks) > 10_000:
                raise Broken("bounds", "an object has more than 10,000 blocks")
            while place + head <= end:
                kind, size = number(place, code), number(place + code, 2)
                if kind == _MORE:
                    more, span = number(place + head), number(place + head + 8)
                    blocks.append((more, span) if head == 8 else (more + 4, span - 8))
                elif place + head + size <= end:
                    yield kind, place + head
                place += head + size

    def tree(self, root: int, key: int) -> Iterator[tuple[int, int]]:
        """(place of the key, child) of each leaf; `key` is the size of one in bytes."""
        nodes = [root]
        for node in nodes:
            if node in self.seen:
                raise Broken("malformed", "a tree leads back into itself")
            self.seen.add(node)
            self.expect(node, b"TREE")
            for at in range(node + 24, node + 24 + self.window.number(node + 6, 2) * (key + 8), key + 8):
                self.entries += 1
                if self.entries > _MAX_ENTRIES:
                    raise Broken("bounds", f"trees of more than {_MAX_ENTRIES} entries")
                child = self.window.number(at + key)
                if self.window.number(node + 5, 1):
                    nodes.append(child)
                else:
                    yield at, child

    def symbols(self, tree: int, heap: int) -> Iterator[tuple[str, int]]:
        self.expect(heap, b"HEAP")
        names = self.window.number(heap + 24)
        for _, node in self.tree(tree, 8):
            self.expect(node, b"SNOD")
            for index in range(self.window.number(node + 6, 2)):
                at = names + self.window.number(node + 8 + 40 * index)
                data = self.window.read(at, min(1000, self.window.length - at))
                name = data.partition(b"\0")[0].decode("utf-8", "replace")
                yield name, self.window.number(node + 16 + 40 * index)

    def link(self, at: int) -> tuple[str, int]:
        """Where it leads; 0 for one that is no hard link."""
        flags = self.window.number(at + 1, 1)
        kind = self.window.number(at + 2, 1) if flags & 8 else 0
        at += 2 + (1 if flags & 8 else 0) + (8 if flags & 4 else 0) + (1 if flags & 16 else 0)
        width = 1 << (flags & 3)
        length = min(self.window.number(at, width), 1000)
        name = self.window.read(at + width, length).decode("utf-8", "replace")
        return name, self.window.number(at + width + length) if kind == 0 else 0

    def dataset(self, name: str, space: int, kind: int, layout: int) -> None:
        number = self.window.number
        first = space + (8 if number(space, 1) == 1 else 4)
        shape = tuple(number(first + 8 * axis) for axis in range(number(space + 1, 1)))
        form, bits, size = number(kind, 1) & 15, number(kind + 1, 1), number(kind + 4, 4)
        dtype = _FLOATS.get(size) if form == 1 else _INTS.get((size, bits >> 3 & 1)) if form == 0 else None
        version, where = number(layout, 1), number(layout + 1, 1)
        if version not in (3, 4) or where > 2:
            self.passed.append(name)
        elif where == 1:
            start, length = number(layout + 2), number(layout + 10)
            if start == _UNDEFINED:
                return
            behind = start + length - self.window.length
            if behind > 0:
                raise Broken("truncated", f"ends {behind} bytes behind the end", where=name)
            if dtype and math.prod(shape) * size == length:
                place = self.window.start + start
                self.layout.tensors.append(Tensor(name, DTYPES[dtype], shape, place, big_endian=bool(bits & 1)))
            else:
                self.passed.append(name)
        elif where == 2:
            self.passed.append(name)
            tree = number(layout + 3) if version == 3 else _UNDEFINED
            for at, chunk in self.tree(tree, 8 + 8 * number(layout + 2, 1)) if tree != _UNDEFINED else ():
                if chunk + number(at, 4) > self.window.length:
                    raise Broken("truncated", "a chunk ends behind the end of the file", where=name)
