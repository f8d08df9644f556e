"""Readers: nothing is read outside of its window; hostile bytes never cause a traceback, an import or a call."""

from __future__ import annotations

import io
import json
import os
import pickle
import pickletools
import struct
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt.checkpoint.examine import examine
from rgt.checkpoint.formats import dcp, pickle_names, pickles, readers
from rgt.checkpoint.formats import torch_files as tensors
from rgt.checkpoint.formats.container import Cursor, Window, in_memory
from rgt.checkpoint.formats.pickles import Call, Global, Persistent
from rgt.checkpoint.formats.torch_files import numpy_array
from rgt.checkpoint.layout import FILE, Broken, Layout

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

EXAMPLES = settings(max_examples=100, suppress_health_check=list(HealthCheck))


@pytest.fixture(autouse=True)
def nothing_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def caught(*arguments: Any, **options: Any) -> None:
        raise AssertionError("a pickle was executed")

    for module, name in ((os, "system"), (os, "popen"), (pickle, "load"), (pickle, "loads"), (torch, "load")):
        monkeypatch.setattr(module, name, caught)


def read_pickle(data: bytes) -> pickles.Machine:
    return pickles.read(Cursor(in_memory(data), 0, pickles.MAX_PICKLE))


# -- windows


@pytest.fixture
def window(tmp_path: Path) -> Iterator[Window]:
    (tmp_path / "x").write_bytes(bytes(range(100)))
    descriptor = os.open(tmp_path / "x", os.O_RDONLY)
    yield Window(descriptor, 0, 100)
    os.close(descriptor)


def test_a_window_ends_where_it_ends(window: Window) -> None:
    part = window.part(10, 20)
    assert part.read(0, 20) == bytes(range(10, 30))
    assert part.head(50) == bytes(range(10, 30))
    for offset, size in ((0, 21), (-1, 5), (20, 1), (5, -1)):
        with pytest.raises(Broken, match="are wanted, there are 20"):
            part.read(offset, size)
    for start, length in ((0, 21), (-1, 5), (21, 0), (5, -1)):
        with pytest.raises(Broken, match="lie outside of 20"):
            part.part(start, length)


def test_a_file_that_shrank_while_it_was_read(window: Window, tmp_path: Path) -> None:
    os.truncate(tmp_path / "x", 50)
    with pytest.raises(Broken, match="the file ended at byte 50 while it was read"):
        window.read(0, 100)


# -- pickles, opcode by opcode

GLOBALS = [
    name.replace("/", " ")
    for name in """
    os/system posix/system builtins/eval collections/OrderedDict torch._utils/_rebuild_tensor_v2
    torch/FloatStorage torch/Size numpy.core.multiarray/_reconstruct numpy/dtype _codecs/encode
    torch.storage/UntypedStorage torch._utils/_rebuild_tensor_v3 argparse/Namespace
""".split()
]
NUMBERS = st.one_of(st.integers(0, 10), st.integers(-(2**70), 2**70), st.just(10**5000))


def code(name: str) -> bytes:
    return next(op for op in pickletools.opcodes if op.name == name).code.encode("latin-1")


def text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return code("BINUNICODE") + struct.pack("<I", len(data)) + data


def number(value: int) -> bytes:
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return code("LONG4") + struct.pack("<i", len(data)) + data


NO_ARGUMENT = [op.code.encode("latin-1") for op in pickletools.opcodes if op.arg is None and op.name != "STOP"]
OPCODE = st.one_of(
    st.sampled_from(NO_ARGUMENT),
    st.sampled_from([code("MARK"), code("TUPLE"), code("REDUCE"), code("BUILD"), code("BINPERSID"), code("SETITEMS")]),
    st.sampled_from(["storage", "cpu", "0", "step", "state", "param_groups", "latin1", "f8", "\ud800"]).map(text),
    st.sampled_from(GLOBALS).map(lambda name: code("GLOBAL") + name.replace(" ", "\n").encode() + b"\n"),
    NUMBERS.map(number),
    st.integers(0, 5).map(lambda index: code("BINPUT") + bytes([index])),
    st.integers(0, 5).map(lambda index: code("BINGET") + bytes([index])),
    st.floats().map(lambda value: code("BINFLOAT") + struct.pack(">d", value)),
    st.binary(max_size=20).map(lambda data: code("SHORT_BINBYTES") + bytes([len(data)]) + data),
)


@EXAMPLES
@given(st.lists(OPCODE, max_size=60))
def test_any_sequence_of_opcodes_is_data_or_a_sentence(ops: list[bytes]) -> None:
    before = set(sys.modules)
    try:
        found = read_pickle(b"\x80\x04" + b"".join(ops) + b".")
    except Broken as broken:
        assert broken.problem.message
    else:
        pickles.judge(found, Layout("pickle"))
        tensors.find(Layout("pickle", root=found.root))
    assert set(sys.modules) == before


@EXAMPLES
@given(
    storage=st.tuples(st.sampled_from(["storage", "x", 3]), st.sampled_from(["0", 0, None]), NUMBERS),
    offset=NUMBERS,
    size=st.lists(NUMBERS, max_size=3),
    stride=st.lists(NUMBERS, max_size=3),
)
def test_any_tensor_description(storage: tuple[Any, ...], offset: int, size: list[int], stride: list[int]) -> None:
    """What _rebuild_tensor_v2 is called with decides where we read: nothing outside of the file may be reached."""
    kind, key, numel = storage
    record = Persistent((kind, Global("torch", "FloatStorage"), key, "cpu", numel))
    call = Call(Global("torch._utils", "_rebuild_tensor_v2"), (record, offset, tuple(size), tuple(stride), False, {}))
    layout = Layout("torch", root={"w": call})
    found = tensors.find(layout)
    tensors.place(layout, found, dict.fromkeys(found.storages, (FILE, 100)), False)
    for tensor in layout.tensors:
        assert tensor.start >= 100 and tensor.start + tensor.extent <= 100 + numel * 4


def test_a_deep_tree_a_shared_tree_and_a_ring_end() -> None:
    laughs = b"\x80\x02]q\x00" + b"".join(
        b"](h" + bytes([n]) + b"h" + bytes([n]) + b"eq" + bytes([n + 1]) for n in range(90)
    )
    tensors.find(Layout("pickle", root=read_pickle(laughs + b".").root))  # 2**90 paths, 90 lists
    tensors.find(Layout("pickle", root=read_pickle(b"\x80\x02]q\x00h\x00a.").root))
    with pytest.raises(Broken, match="nested deeper"):
        tensors.find(Layout("pickle", root=read_pickle(b"\x80\x02" + b"]" * 500 + b"a" * 499 + b".").root))


def test_no_name_of_the_standard_library_that_runs_code_is_allowed() -> None:
    names = """
        os.system posix.system subprocess.Popen builtins.eval builtins.getattr sys.exit importlib.import_module
        runpy.run_path operator.attrgetter pickle.loads shutil.rmtree socket.socket
        ctypes.CDLL webbrowser.open pty.spawn timeit.timeit __builtin__.eval types.FunctionType code.interact
        asyncio.run http.client
    """.split()
    assert [
        name for name in names if not pickle_names.is_hostile(name) or pickle_names.is_known(name, True, False)
    ] == []


# -- headers that decide where is read


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**65), 2**65), st.text(max_size=5), st.floats()),
    lambda children: st.one_of(
        st.lists(children, max_size=3), st.dictionaries(st.text(max_size=5), children, max_size=3)
    ),
    max_leaves=8,
)
ENTRY = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.one_of(st.sampled_from(["F32", "BF16", "I8", "F8_E4M3", "X"]), VALUES),
        "shape": st.one_of(st.lists(st.integers(-1, 2**63), max_size=3), VALUES),
        "data_offsets": st.one_of(st.lists(st.integers(0, 64), min_size=2, max_size=2), VALUES),
    },
)


@EXAMPLES
@given(
    st.one_of(VALUES, st.dictionaries(st.text(max_size=5), st.one_of(ENTRY, VALUES), max_size=4)), st.integers(0, 64)
)
def test_any_safetensors_header(header: Any, length: int) -> None:
    text = json.dumps(header).encode()
    window = in_memory(len(text).to_bytes(8, "little") + text + bytes(length))
    try:
        layout = readers.read_safetensors(window)
    except Broken:
        return
    for tensor in layout.tensors:
        assert tensor.start >= 8 + len(text) and tensor.start + tensor.extent <= window.length


@EXAMPLES
@given(st.one_of(st.text(max_size=60), VALUES.map(repr)), st.integers(0, 3), st.integers(0, 300))
def test_any_npy_header(header: str, version: int, claimed: int) -> None:
    text = header.encode("utf-8", "surrogatepass")
    size = struct.pack("<H" if version < 2 else "<I", claimed or len(text))
    try:
        readers.read(in_memory(readers.NPY + bytes([version, 0]) + size + text + bytes(50)), "x.npy")
    except Broken as broken:
        assert broken.problem.code


@EXAMPLES
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=6))
def test_any_zip_directory(changes: list[tuple[int, int]]) -> None:
    """Offsets, sizes, counts and names of the central directory, the part that decides where is read."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x/data.pkl", b"\x80\x02}.")
        archive.writestr("x/version", "3")
        archive.writestr("x/data/0", bytes(100))
    content = bytearray(target.getvalue())
    for distance, value in changes:
        content[-1 - distance % len(content)] = value
    try:
        readers.read(in_memory(bytes(content)), "x.pt")
    except Broken as broken:
        assert broken.problem.message


@EXAMPLES
@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=4))
def test_any_metadata_of_a_distributed_checkpoint(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]]
) -> None:
    content = bytearray(METADATA)
    for at, value in changes:
        content[at % len(content)] = value
    path = tmp_path_factory.mktemp("dcp") / ".metadata"
    path.write_bytes(content)
    try:
        dcp.read_metadata(path)
    except Broken as broken:
        assert len(broken.problem.message) < 1000


def _metadata() -> bytes:
    from torch.distributed.checkpoint import metadata as names
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    properties = names.TensorProperties(dtype=torch.float32)
    chunk = names.ChunkStorageMetadata(offsets=torch.Size([0, 0]), sizes=torch.Size([4, 4]))
    tensor = names.TensorStorageMetadata(properties=properties, size=torch.Size([4, 4]), chunks=[chunk])
    index = names.MetadataIndex("w", torch.Size([0, 0]), 0)
    info = _StorageInfo("__0_0.distcp", 0, 100)
    return pickle.dumps(names.Metadata({"w": tensor}, storage_data={index: info}))


METADATA = _metadata()


# -- numpy inside pickles


def array(shape: object, code: object, data: object, state: object = None) -> Call:
    dtype = Call(Global("numpy", "dtype"), (code, False, True), (3, "<", None, None, None, -1, -1, 0))
    contents = (1, shape, dtype, False, data) if state is None else state
    return Call(Global("numpy.core.multiarray", "_reconstruct"), (), contents)


NO_ARRAYS = [
    (array((2, 3), "f4", bytes(20)), r"a numpy array of shape \[2, 3\] has 20 bytes"),
    (array((2, -3), "f4", bytes(24)), "has a shape that is not a tuple of numbers"),
    (array([2, 3], "f4", bytes(24)), "has a shape that is not a tuple of numbers"),
    (array((2,), "O8", bytes(16)), "holds Python objects"),
    (array((2,), None, bytes(16)), "holds Python objects"),
    (array((2,), "f8", 5), "contents are not bytes"),
    (array((2,), "f8", b"", state=(1, 2)), "is not described by"),
    (Call(Global("numpy.core.multiarray", "scalar"), (1,)), "is not described by"),
]


@pytest.mark.parametrize(("call", "message"), NO_ARRAYS)
def test_an_array_that_is_none(call: Call, message: str) -> None:
    with pytest.raises(Broken, match=message):
        numpy_array("a", call)


def test_nan_inside_a_pickle_is_found(tmp_path: Path) -> None:
    """Protocol 2 writes the bytes as latin-1 text, protocol 4 as bytes, protocol 5 by _frombuffer."""
    values = np.array([[1.0, np.nan], [2.0, 3.0]])
    for protocol in (2, 4, 5):
        torch.save({"curve": values, "last": np.float32("nan")}, tmp_path / "x.pt", pickle_protocol=protocol)
        found = {problem.where: problem for problem in examine(tmp_path / "x.pt").problems if problem.code == "nan"}
        assert found["curve"].message == "1 of 4 values is NaN" and found["curve"].severity == "error"
        assert found["curve"].evidence == "first at [0, 1]"


ENUM = b"ctransformers.trainer_utils\nIntervalStrategy\n"
LOOK_UP = b"c__builtin__\ngetattr\n"
NO = b"X\x02\x00\x00\x00NO"


MEMBERS = {
    "once": b"\x80\x02" + LOOK_UP + ENUM + NO + b"\x86R.",
    "twice": b"\x80\x04cbuiltins\ngetattr\nq\x00" + ENUM + NO + b"\x86R0h\x00" + ENUM + NO + b"\x86R.",
    "inst": b"(" + ENUM + NO + b"i__builtin__\ngetattr\n.",
}
OTHER_USES = {
    "inner name": b"\x80\x02" + LOOK_UP + ENUM + b"X\x05\x00\x00\x00__mro" + b"\x86R.",
    "one argument": b"\x80\x02" + LOOK_UP + ENUM + b"\x85R.",
    "kept in the memo": b"\x80\x02" + LOOK_UP + b"q\x00" + ENUM + NO + b"\x86R0h\x00.",
    "beside an inst": b"(" + ENUM + NO + b"i__builtin__\ngetattr\n0" + LOOK_UP + b".",
    "in a tuple": b"\x80\x02(" + LOOK_UP + LOOK_UP + ENUM + NO + b"\x86Rt.",
}


def test_getattr_is_harmless_only_where_it_spells_a_name() -> None:
    for how, source in MEMBERS.items():
        assert set(read_pickle(source).globals) == {"transformers.trainer_utils.IntervalStrategy"}, how
    for how, source in OTHER_USES.items():
        assert "__builtin__.getattr" in set(read_pickle(source).globals), how
    nested = read_pickle(b"\x80\x02" + LOOK_UP + b"ctorch\nTensor\n" + NO + b"\x86R.")
    assert set(nested.globals) == {"torch.Tensor", "torch.Tensor.NO"}  # as protocol 2 writes the name of a nested class
