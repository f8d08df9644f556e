"""From bytes to a Layout, whatever the format: the file's content decides which. Also safetensors and numpy's files.

safetensors: eight bytes of length, a JSON header, then the tensors back to back, without hole or overlap.
.npy and .npz: read without numpy and without ever allowing a pickle.
"""

from __future__ import annotations

import ast
import bz2
import codecs
import json
import lzma
import math
import os
import re
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rgt.checkpoint.formats import archives, foreign_files, hdf5, torch_files
from rgt.checkpoint.formats.container import STORED, Window, blocks, crc_spans, in_memory, read_zip
from rgt.checkpoint.layout import DTYPES, FILE, INLINE, SAFETENSORS, Broken, Dtype, Layout, Tensor, from_numpy

NPY = b"\x93NUMPY"
_HEAD = 512
# what is often saved under a checkpoint's name, and what to call it
_PACKED: dict[bytes, tuple[str, Callable[[], Any]]] = {
    b"\x1f\x8b": ("gzip", lambda: zlib.decompressobj(31)),
    b"BZh": ("bz2", bz2.BZ2Decompressor),
    b"\xfd7zXZ\0": ("lzma", lzma.LZMADecompressor),
    **dict.fromkeys((b"x\x01", b"x\x5e", b"x\x9c", b"x\xda"), ("zlib", zlib.decompressobj)),
}
_MAX_UNPACKED = 64 << 20  # bytes
_STRANGERS = {b"\x28\xb5\x2f\xfd": "a zstd file", b"\x7fELF": "a program"}
_NAMES = tuple(".jit .ts .ptl .pt2 .onnx .h5 .hdf5 .keras .msgpack .nemo .npz .ocdbt".split())
_SPEECHBRAIN = re.compile(r"(counter|epoch_counter|brain|dataloader-\w+)\.ckpt")
_PICKLES = (".pkl", ".pickle", ".joblib", ".p")
_TORCH_NAMES = (".pt", ".pth", ".ckpt", ".npy", ".npz", ".distcp", "pytorch_model.bin", "optimizer.bin")
_OCDBT = b"\x0c\xdb\x3a\x2a"  # Orbax
_HDF5 = b"\x89HDF"
_MAGICS = (foreign_files.GGUF, _HDF5, _OCDBT)
_MARKUP = (b"<!doctype html", b"<html", b"<?xml", b"<error", b"<head")
_MAX_HEADER = 32 << 20  # bytes of safetensors; 100,000 tensors need 10 MB
_MAX_NPY_HEADER = 10_000  # numpy's own limit: literal_eval is not safe on longer text
MAX_JSON = 64 << 20
# A bracket costs a container, a comma a value: 50 times the bytes of the text
_MAX_CONTAINERS, _MAX_VALUES = 1_000_000, 4_000_000


def read(window: Window, name: str) -> Layout:
    """Raises Broken when the file is not a checkpoint or its structure is beyond reading."""
    head = window.head(_HEAD)
    if not head:
        raise Broken("empty", "the file has no bytes", fix="the save or the copy never happened; do it again")
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        layout = _zip(window)
    elif archives.is_tar(head):  # torch looks for a tar before it looks for a pickle
        layout = archives.read_tar(window, _add_part)
    elif head.startswith(NPY):
        layout = Layout("npy")
        _add_array(layout, "array", window, window.length, FILE)
    elif head[8:9] == b"{" and (head[6:8] == b"\0\0" or name.endswith(".safetensors")):
        layout = read_safetensors(window)
    elif (reader := _OTHERS.get(head[:4]) or _BY_NAME.get(Path(name).suffix)) is not None:
        layout = reader(window)
    elif torch_files.is_pickle(window, name.endswith((*_TORCH_NAMES, *_PICKLES))):
        layout = torch_files.read_pickle(window)
    elif packed := next((each for magic, each in _PACKED.items() if head.startswith(magic)), None):
        layout = _unpack(window, name, *packed)
    elif what := _recognised(head, name):
        layout = Layout(what)
        layout.facts["unopened"] = True
        layout.problem("unjudged", "info", f"looks like a file of {what}, of which nothing is checked")
    else:
        if stranger := _name_the_stranger(window, head, name):
            raise stranger
        layout = read_safetensors(window)
    layout.assign_roles(name)
    return layout


def merge(layout: Layout, name: str, inner: Layout) -> None:
    """A checkpoint inside of another: its tensors and problems by the name of the part."""
    shift = len(layout.packed)
    layout.packed += inner.packed
    layout.spans += inner.spans
    layout.refused += [one for one in inner.refused if one not in layout.refused]
    for problem in inner.problems:
        problem.where = ".".join(part for part in (name, problem.where) if part and part != "(root)")[:200]
        layout.add(problem)
    for tensor in inner.tensors:
        tensor.name = name if tensor.name == "(root)" else f"{name}.{tensor.name}"
        tensor.source += shift if tensor.source >= 0 else 0
        layout.tensors.append(tensor)


def _add_part(layout: Layout, name: str, part: Window) -> None:
    short = name.rpartition("/")[2]
    if part.length and (
        looks_like_one(part.head(256), short) or short.endswith((".pt", ".pth", ".bin", ".ckpt", ".pkl"))
    ):
        merge(layout, name, read(part, short))


def looks_like_one(head: bytes, name: str) -> bool:
    """Whether a file is worth examining: its first bytes are those of a checkpoint, or its name says so."""
    header = head[8:9] == b"{" and head[5:8] == b"\0\0\0"
    zipped = head.startswith(b"PK\x03\x04") and b"data.pkl" in head
    return header or zipped or head.startswith((NPY, torch_files.MAGIC_PICKLE, *_MAGICS)) or name.endswith(_NAMES)


def _zip(window: Window) -> Layout:
    members, problems = read_zip(window)
    members = [member for member in members if not (member.name.endswith("/") and not member.size)]
    roots = [member.name[:-8] for member in members if re.fullmatch(r"[^/]+/data\.pkl", member.name, re.I)]
    if len(roots) > 1:
        raise Broken("malformed", f"the zip holds {len(roots)} checkpoints", evidence=", ".join(roots[:3])[:200])
    if roots:
        layout = torch_files.read_zip(window, members, roots[0])
    elif members and all(member.name.endswith(".npy") for member in members):
        layout = Layout("npz")
        for member in members:
            name = member.name.removesuffix(".npy")
            with layout.part(name):
                if member.method == STORED:
                    part, place = window.part(member.data, member.packed), FILE
                else:
                    unpacked, head = blocks(window, member), b""
                    while len(head) < 12 + _MAX_NPY_HEADER and (block := next(unpacked, b"")):
                        head += block
                    layout.packed.append(member)
                    part, place = in_memory(head), len(layout.packed) - 1
                _add_array(layout, name, part, member.size, place)
    elif members and not problems:
        layout = archives.read_parts(window, members, _add_part)
    elif problems:
        layout = Layout("zip")  # the zip's own problems say more than what is missing because of them
    else:
        raise Broken("empty", "a zip without any file")
    layout.problems = problems + layout.problems
    layout.spans = crc_spans(members, window.start, layout)
    return layout


def _recognised(head: bytes, name: str) -> str | None:
    """Whose file it is, when it is one that is not read here."""
    if head[:4] == b"\xba\x16\x4f\x2f":
        return "fastText"
    if re.match(rb"[\x01-\x20]\0\0\0[\x01-\x40]\0[A-Z]\w+\0", head) and name.endswith(".bin"):
        return "CTranslate2"
    return "SpeechBrain" if _SPEECHBRAIN.fullmatch(name) and _is_text(head) else None


def _unpack(window: Window, name: str, kind: str, engine: Callable[[], Any]) -> Layout:
    """A small file that was packed as a whole, as joblib and tar do: unpacked in memory, bounded."""
    try:
        data = engine().decompress(window.head(_MAX_UNPACKED), _MAX_UNPACKED)
    except (OSError, ValueError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise Broken("crc", f"does not unpack ({kind}): {error}") from None
    if len(data) >= _MAX_UNPACKED or window.length > _MAX_UNPACKED:
        raise Broken("unknown", f"a {kind} file of more than {_MAX_UNPACKED} bytes", fix="unpack it first")
    layout = read(in_memory(data), name.rpartition(".")[0] or name)
    layout.spans = []
    for tensor in layout.tensors:
        if tensor.source == FILE:
            tensor.data, tensor.source = data[tensor.start : tensor.start + tensor.extent], INLINE
    return layout


def _ocdbt(window: Window) -> Layout:
    """Orbax: the manifest says its own length; the values are in packed files below d/, which are not opened."""
    if int.from_bytes(window.read(4, 8), "little") != window.length:
        raise Broken("truncated", "the manifest's length is not the one that it says")
    layout = Layout("ocdbt")
    layout.problem("unjudged", "info", "is the manifest of an Orbax checkpoint; the values below d/ are not judged")
    return layout


def _name_the_stranger(window: Window, head: bytes, name: str) -> Broken | None:
    """What it is instead of a checkpoint; only a name that promises one makes that a fault."""
    promised = name.endswith((*_NAMES, *_TORCH_NAMES, *_PICKLES, ".safetensors"))
    shown = " ".join(head[:120].decode("utf-8", "replace").split())
    what = next((what for magic, what in _STRANGERS.items() if head.startswith(magic)), None)
    if head.startswith(b"version https://git-lfs.github.com/spec/"):
        return Broken("lfs-pointer", "a git-LFS pointer, not the file itself", fix="run: git lfs pull")
    if not any(head) and not any(window.read(window.length // 2, min(_HEAD, window.length - window.length // 2))):
        return Broken("hole", "begins with zeros: the space was reserved and never written", fix="copy it again")
    markup = head.lstrip().lower().startswith(_MARKUP)
    if promised and (markup or (head.lstrip()[:1] in (b"{", b"[") and _is_text(head))):
        what = f"{'an HTML or XML page' if markup else 'JSON text'}, as a server sends instead of a file"
        return Broken("error-page", what, evidence=shown, fix="check the address and the login, then download again")
    if what or _is_text(head):
        code = "not-a-checkpoint" if promised else "unknown"
        return Broken(code, what or "plain text", evidence=shown, fix="unpack it first, if it is packed")
    if name.endswith(".safetensors"):
        return None
    message = f"{window.length} bytes of no format that is known here; nothing of it was checked"
    code = "not-a-checkpoint" if name.endswith(_TORCH_NAMES) else "unknown"
    return Broken(code, message, evidence=head[:16].hex(" "))


def _is_text(head: bytes) -> bool:
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(head)  # a character cut off by _HEAD is fine
    except UnicodeDecodeError:
        return False
    return all(sign.isprintable() or sign in "\t\r\n" for sign in text)


# -- safetensors


def read_safetensors(window: Window) -> Layout:
    layout = Layout("safetensors")
    size = int.from_bytes(window.head(8), "little")
    if size > _MAX_HEADER:
        raise Broken("bounds", f"the header claims {size} bytes; at most {_MAX_HEADER} are read")
    if 8 + size > window.length:
        raise Broken("truncated", f"the header ends at byte {8 + size}, the file at {window.length}")
    header = parse_json(window.read(8, size), "the header")
    if not isinstance(header, dict):
        raise Broken("malformed", f"the header is a {type(header).__name__}, not an object")
    header.pop("__metadata__", None)
    data = window.part(8 + size, window.length - 8 - size)
    for name, entry in header.items():
        with layout.part(name):
            layout.tensors.append(_safetensor(name, entry, data))
    # The tensors must cover the data exactly once: the format says so, and hidden bytes have no honest use.
    at, apart = data.start, []
    for tensor in sorted(layout.tensors, key=lambda tensor: (tensor.start, tensor.extent)):
        if tensor.start < at:
            layout.error("overlap", f"shares {at - tensor.start} bytes with another tensor", tensor.name)
        else:
            apart.append(tensor)
            if tensor.start > at and not layout.problems:
                layout.error("gap", f"{tensor.start - at} bytes before it belong to no tensor", tensor.name)
        at = max(at, tensor.start + tensor.extent)
    if at < data.start + data.length and not layout.problems:
        layout.error("trailing", f"{data.start + data.length - at} bytes follow the last tensor")
    layout.tensors = apart  # reading shared bytes once per tensor would make a small hostile file endless
    return layout


def _safetensor(name: str, entry: Any, data: Window) -> Tensor:
    entry = entry if isinstance(entry, dict) else {}
    code, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(code, str) or not _are_counts(shape, list) or not _are_counts(offsets, list) or len(offsets) != 2:
        raise Broken("malformed", "the header describes it by something else than dtype, shape and data_offsets")
    if code not in SAFETENSORS:
        raise Broken("malformed", f"has the unknown dtype {code[:40]!r}")
    dtype, (begin, end) = DTYPES[SAFETENSORS[code]], offsets
    if code == "F4" and shape and shape[-1] % 2 == 0:  # two values in a byte
        shape = [*shape[:-1], shape[-1] // 2]
    wanted = math.prod(shape) * dtype.size
    if end - begin != wanted:
        message = f"{code} {shape[:8]} needs {wanted} bytes, its offsets {begin} to {end} hold {end - begin}"
        raise Broken("bounds", message)
    if end > data.length:
        message = f"ends {end - data.length} bytes behind the end of the file"
        raise Broken("truncated", message, fix="the file was cut off; copy it again")
    return Tensor(name, dtype, tuple(shape), data.start + begin)


def _are_counts(node: Any, kind: type[list[Any]] | type[tuple[Any, ...]]) -> bool:
    return isinstance(node, kind) and len(node) <= 64 and all(type(n) is int and 0 <= n < 1 << 62 for n in node)


def parse_json(data: bytes, what: str) -> Any:
    """JSON of unknown origin: bounded before it is parsed, duplicate keys reported."""
    if len(data) > MAX_JSON:
        raise Broken("bounds", f"{what} has {len(data)} bytes of JSON; at most {MAX_JSON} are read")
    if data.count(b"[") + data.count(b"{") > _MAX_CONTAINERS or data.count(b",") > _MAX_VALUES:
        raise Broken("bounds", f"{what} holds more than {_MAX_CONTAINERS} lists and objects")
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise Broken("malformed", f"{what} is not text: byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise Broken("malformed", f"{what} is not JSON: {error.msg} at character {error.pos}") from None
    except (RecursionError, ValueError):
        raise Broken("malformed", f"{what} is nested too deep or holds a number that is too long") from None


def read_json(path: Path) -> Any:
    """Raises Broken or OSError. A FIFO is opened at once, and not only when somebody writes to it."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Broken("unreadable", "not a regular file")
        if status.st_size > MAX_JSON:
            raise Broken("bounds", f"more than {MAX_JSON} bytes of JSON")
        return parse_json(file.read(MAX_JSON), "the file")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise Broken("duplicate", f"the key {key[:100]!r} is there twice")
        found[key] = value
    return found


# -- numpy


def _add_array(layout: Layout, name: str, window: Window, size: int, source: int) -> None:
    """`window` holds at least the header of the array's `size` bytes in its source."""
    head = window.head(12)
    if not head.startswith(NPY) or len(head) < 10 or head[6:8] not in (b"\1\0", b"\2\0", b"\3\0"):
        raise Broken("malformed", "not a .npy file: its magic or version is another")
    width = 2 if head[6] == 1 else 4
    length = int.from_bytes(head[8 : 8 + width], "little")
    if length > _MAX_NPY_HEADER:
        raise Broken("bounds", f"the header claims {length} bytes; at most {_MAX_NPY_HEADER} are read")
    begin = 8 + width + length
    text = window.read(8 + width, length)
    try:
        header: Any = ast.literal_eval(text.decode("utf-8" if head[6] == 3 else "latin-1").strip(" \n"))
    except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
        raise Broken("malformed", "the header is not a Python literal") from None
    if not isinstance(header, dict) or header.keys() != {"descr", "fortran_order", "shape"}:
        raise Broken("malformed", "the header is not a dict of descr, fortran_order and shape")
    shape, descr = header["shape"], header["descr"]
    if not isinstance(header["fortran_order"], bool):
        raise Broken("malformed", "the header's fortran_order is neither True nor False")
    if not _are_counts(shape, tuple):
        raise Broken("malformed", "the header's shape is not a tuple of numbers")
    if descr in ("|O", "O") and window.length == size:
        merge(layout, name, torch_files.read_pickle(window.part(begin, size - begin)))
        message = "holds Python objects: numpy loads them only with allow_pickle"
        layout.problem("object-array", "warn", message, name)
        return
    if isinstance(descr, list):  # records: their values are not judged, and any size of one is taken
        dtype, big_endian = Dtype("record", (size - begin) // max(math.prod(shape), 1), "opaque"), False
    else:
        dtype, big_endian = from_numpy(descr)
    wanted = math.prod(shape) * dtype.size
    if begin + wanted > size:
        raise Broken("truncated", f"{dtype.name} {list(shape)[:8]} needs {wanted} bytes, there are {size - begin}")
    if begin + wanted < size:
        raise Broken("trailing", f"{size - begin - wanted} bytes follow the array")
    axes = tuple(reversed(shape)) if header["fortran_order"] else shape
    layout.tensors.append(Tensor(name, dtype, axes, window.start + begin, source=source, big_endian=big_endian))


_OTHERS: dict[bytes, Callable[[Window], Layout]] = {
    _HDF5: hdf5.read_hdf5,
    foreign_files.GGUF: foreign_files.read_gguf,
    _OCDBT: _ocdbt,
}
_BY_NAME = {".onnx": foreign_files.read_onnx, ".msgpack": foreign_files.read_msgpack}
