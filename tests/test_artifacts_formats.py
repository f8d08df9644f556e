"""Readers: nothing is read outside of its window, and arrays inside pickles are judged like any other tensor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from artifacts.examine import examine
from artifacts.formats import inline, pickles
from artifacts.formats.machine import Call, Global
from artifacts.formats.window import Cursor, Window
from artifacts.model import Broken


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


def test_a_cursor_gives_what_is_there(window: Window) -> None:
    cursor = Cursor(window.part(10, 20), 5, 10)
    assert cursor.read(4) == bytes(range(15, 19))
    assert cursor.tell() == 9
    assert cursor.read(1 << 60) == bytes(range(19, 25))
    assert cursor.read(1) == b""
    assert Cursor(window.part(5, 10), 0, 10).readline() == bytes(range(5, 11))  # byte 10 is a newline


# -- numpy inside pickles


def array(shape: object, code: object, data: object, state: object = None) -> Call:
    dtype = Call(Global("numpy", "dtype"), (code, False, True), (3, "<", None, None, None, -1, -1, 0))
    contents = (1, shape, dtype, False, data) if state is None else state
    return Call(Global("numpy.core.multiarray", "_reconstruct"), (), contents)


def test_an_array_is_read_from_its_bytes() -> None:
    tensor = inline.array("a", array((2, 3), "f4", np.arange(6, dtype="f4").tobytes()))
    assert (tensor.shape, tensor.dtype.name, tensor.data) == ((2, 3), "float32", np.arange(6, dtype="f4").tobytes())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (array((2, 3), "f4", bytes(20)), r"a numpy array of shape \[2, 3\] has 20 bytes"),
        (array((2, -3), "f4", bytes(24)), "has a shape that is not one"),
        (array([2, 3], "f4", bytes(24)), "has a shape that is not one"),
        (array((2,), "O8", bytes(16)), "holds Python objects"),
        (array((2,), None, bytes(16)), "holds Python objects"),
        (array((2,), "f8", 5), "contents are not bytes"),
        (array((2,), "f8", b"", state=(1, 2)), "has no contents"),
        (Call(Global("numpy.core.multiarray", "scalar"), (1,)), "too few arguments"),
    ],
)
def test_an_array_that_is_none(call: Call, message: str) -> None:
    with pytest.raises(Broken, match=message):
        inline.array("a", call)


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


def names_in(tmp_path: Path, pickle: bytes) -> set[str]:
    (tmp_path / "x").write_bytes(pickle)
    descriptor = os.open(tmp_path / "x", os.O_RDONLY)
    try:
        return set(pickles.read(Cursor(Window(descriptor, 0, len(pickle)), 0, len(pickle))).globals)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    "pickle",
    [
        b"\x80\x02" + LOOK_UP + ENUM + NO + b"\x86R.",
        b"\x80\x04cbuiltins\ngetattr\nq\x00" + ENUM + NO + b"\x86R0h\x00" + ENUM + NO + b"\x86R.",
        b"(" + ENUM + NO + b"i__builtin__\ngetattr\n.",
    ],
    ids=["once", "twice", "inst"],
)
def test_a_member_of_an_enum_as_python_3_11_2_writes_it(pickle: bytes, tmp_path: Path) -> None:
    assert names_in(tmp_path, pickle) == {"transformers.trainer_utils.IntervalStrategy"}


@pytest.mark.parametrize(
    "pickle",
    [
        b"\x80\x02" + LOOK_UP + b"ctorch\nTensor\n" + NO + b"\x86R.",
        b"\x80\x02" + LOOK_UP + ENUM + b"X\x05\x00\x00\x00__mro" + b"\x86R.",
        b"\x80\x02" + LOOK_UP + ENUM + b"\x85R.",
        b"\x80\x02" + LOOK_UP + b"q\x00" + ENUM + NO + b"\x86R0h\x00.",
        b"(" + ENUM + NO + b"i__builtin__\ngetattr\n0" + LOOK_UP + b".",
        b"\x80\x02(" + LOOK_UP + LOOK_UP + ENUM + NO + b"\x86Rt.",
    ],
    ids=["no enum", "inner name", "one argument", "kept in the memo", "beside an inst", "in a tuple"],
)
def test_any_other_use_of_getattr_is_named(pickle: bytes, tmp_path: Path) -> None:
    assert "__builtin__.getattr" in names_in(tmp_path, pickle)
