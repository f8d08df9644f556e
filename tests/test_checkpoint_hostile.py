"""Files that are data to one reader and something else to the loader. Each is built here; the loader is asked, too."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from . import zoo
from .front_door import call


def verify(path: Path) -> tuple[int, dict[str, Any]]:
    done = call("verify_local", path, "--json")
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, found


def unicode(text: str) -> bytes:
    return b"X" + struct.pack("<I", len(text.encode())) + text.encode()


def mkdir(target: Path) -> bytes:
    """Opcodes that call os.mkdir(target) and leave nothing on the stack."""
    return b"cos\nmkdir\n" + unicode(str(target)) + b"\x85R0"


# -- pickles: what C's reader makes of frames and of objects


def crossing_frame(target: Path) -> bytes:
    """At an opcode that crosses a frame's border, C drops what is left of the frame and reads on behind it.

    Read in a row, there is a string of 400 bytes; to C its length is 0, and code follows.
    """
    inside = b"X" + struct.pack("<I", 400)[:2]  # the other half of the length is behind the frame
    behind = b"\0\0" + (b"\0\0" + mkdir(target) + b"N.").ljust(400, b"x") + b"."
    return b"\x80\x04\x95" + struct.pack("<Q", len(inside)) + inside + behind


def call_of_a_name(module: str, name: str, arguments: bytes) -> bytes:
    return f"c{module}\n{name}\n".encode() + arguments + b"R"


def build_over_a_function(target: Path) -> bytes:
    """The defaults of a function that the file goes on to call are replaced."""
    function = b"ctorch._utils\n_rebuild_tensor_v2\n"
    return b"\x80\x02" + function + b"}" + unicode("__defaults__") + b"(Nts" + b"b0N."


def appends_to_an_attribute(target: Path) -> bytes:
    """Namespace(append=...) and then APPEND: the attribute is called."""
    namespace = b"cargparse\nNamespace\n)\x81}" + unicode("append") + b"ctorch\ndevice\nsb"
    return b"\x80\x02" + namespace + unicode("cpu") + b"a."


def sets_state_through_an_attribute(target: Path) -> bytes:
    namespace = b"cargparse\nNamespace\n)\x81}" + unicode("__setstate__") + b"ctorch\ndevice\nsb"
    return b"\x80\x02" + namespace + unicode("cpu") + b"b."


def another_class(target: Path) -> bytes:
    state = b"N}" + unicode("__class__") + b"ctypes\nSimpleNamespace\ns\x86"
    return b"\x80\x02cargparse\nNamespace\n)\x81" + state + b"b."


def calls_what_it_made(target: Path) -> bytes:
    return b"\x80\x02cargparse\nNamespace\n)\x81)R."


def random_state_calls(target: Path) -> bytes:
    arguments = unicode("/tmp") + b"cpathlib\nPosixPath\n\x86"
    return b"\x80\x02" + call_of_a_name("numpy.random._pickle", "__randomstate_ctor", arguments) + b"."


def default_factory(target: Path) -> bytes:
    return b"\x80\x02" + call_of_a_name("collections", "defaultdict", b"ctorch._utils\n_rebuild_parameter\n\x85") + b"."


def rebuild_from_a_type(target: Path) -> bytes:
    arguments = b"(ctypes\nSimpleNamespace\nctorch\nTensor\n)}t"
    return b"\x80\x02" + call_of_a_name("torch._tensor", "_rebuild_from_type_v2", arguments) + b"."


def three_gigabytes(name: bytes) -> Callable[[Path], bytes]:
    def make(target: Path) -> bytes:
        return b"\x80\x02c" + name + b"\n\x8a\x05" + struct.pack("<Q", 3 << 30)[:5] + b"\x85R."

    make.__name__ = f"three_gigabytes_{name.decode().split()[-1]}"
    return make


def unrolled_range(target: Path) -> bytes:
    numbers = call_of_a_name("builtins", "range", b"\x8a\x05" + struct.pack("<Q", 3 << 30)[:5] + b"\x85")
    return b"\x80\x02" + call_of_a_name("builtins", "list", numbers + b"\x85") + b"."


def far_memo(target: Path) -> bytes:
    return b"\x80\x02Nr\xff\xff\xff\x0f."


def memo_used_twice(target: Path) -> bytes:
    return b"\x80\x02Nq\x000Kq\x01q\x00h\x00.".replace(b"Kq\x01", b"K\x01")


def nested_frame(target: Path) -> bytes:
    return b"\x80\x04\x95" + struct.pack("<Q", 11) + b"\x95" + struct.pack("<Q", 2) + b"N."


def octal_number(target: Path) -> bytes:
    return b"I010\n."


def inside_of_a_storage(target: Path) -> bytes:
    """torch.storage._load_from_bytes loads a pickle that is inside of a string."""
    inner = io.BytesIO()
    torch.save({}, inner, _use_new_zipfile_serialization=False)
    bad = inner.getvalue().replace(b"}q\x00.", b"}q\x00" + mkdir(target) + b".", 1)
    assert b"mkdir" in bad
    return b"\x80\x03ctorch.storage\n_load_from_bytes\nB" + struct.pack("<I", len(bad)) + bad + b"\x85R."


PICKLES: list[Callable[[Path], bytes]] = [
    crossing_frame,
    build_over_a_function,
    appends_to_an_attribute,
    sets_state_through_an_attribute,
    another_class,
    calls_what_it_made,
    random_state_calls,
    default_factory,
    rebuild_from_a_type,
    three_gigabytes(b"builtins\nbytearray"),
    three_gigabytes(b"torch.storage\nUntypedStorage"),
    three_gigabytes(b"torch\nTensor"),
    unrolled_range,
    far_memo,
    memo_used_twice,
    nested_frame,
    octal_number,
    inside_of_a_storage,
]


def plain(folder: Path, data: bytes) -> Path:
    path = folder / "random_states_0.pkl"
    path.write_bytes(data)
    return folder


def zipped(folder: Path, data: bytes) -> Path:
    path = folder / "model.pt"
    torch.save({"w": torch.arange(1.0, 9.0)}, path)
    with zipfile.ZipFile(path) as old:
        members = {info.filename: old.read(info) for info in old.infolist()}
    with zipfile.ZipFile(path, "w") as new:
        for name, content in members.items():
            new.writestr(name, data if name.endswith("data.pkl") else content)
    return folder


def metadata(folder: Path, data: bytes) -> Path:
    """Before the real .metadata: a call whose result is dropped."""
    zoo.distributed(folder)
    path = next(folder.rglob(".metadata"))
    body = path.read_bytes()
    if data[:2] == b"\x80\x04" and data[2:3] == b"\x95":
        path.write_bytes(data)  # frames stay where they are
    else:
        start = 2 if data[:1] == b"\x80" else 0
        path.write_bytes(b"\x80\x04" + data[start:-1] + b"0" + body[2:])
    return folder


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("container", [plain, zipped, metadata], ids=lambda container: container.__name__)
@pytest.mark.parametrize("make", PICKLES, ids=lambda make: make.__name__)
def test_a_pickle_that_is_more_than_data(tmp_path: Path, make: Callable[[Path], bytes], container: Any) -> None:
    target, folder = tmp_path / "made", tmp_path / "files"
    folder.mkdir()
    code, found = verify(container(folder, make(target)))
    assert (code, found["verdict"]) == (1, "damaged"), found["findings"]
    assert not target.exists()


def test_the_code_behind_a_crossed_frame_really_runs(tmp_path: Path) -> None:
    """Or the test above would prove nothing."""
    pickle.load(io.BytesIO(crossing_frame(tmp_path / "made")))
    assert (tmp_path / "made").is_dir()


# -- zips: torch's reader finds members in its own way

STORAGE = struct.pack("<8f", *[float("nan")] * 8)


def members_of(path: Path) -> dict[str, bytes]:
    torch.save({"w": torch.arange(1.0, 9.0)}, path)
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def written(path: Path, members: dict[str, bytes], folders: tuple[str, ...] = ()) -> bytearray:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = 0x10 if name.endswith(folders or "?") else 0
            archive.writestr(info, data)
    return bytearray(path.read_bytes())


def patched(signature: bytes, offset: int, value: int) -> Callable[[bytearray], None]:
    def patch(data: bytearray) -> None:
        at = data.find(signature)
        while at >= 0:
            (old,) = struct.unpack_from("<H", data, at + offset)
            struct.pack_into("<H", data, at + offset, old | value)
            at = data.find(signature, at + 4)

    return patch


ZIPS: dict[str, Callable[[dict[str, bytes]], dict[str, bytes]]] = {
    "another spelling of the pickle": lambda m: {**m, "model/Data.pkl": b"\x80\x02}."},
    "another spelling of a storage": lambda m: {**m, "model/datA/0": STORAGE},
    "no version": lambda m: {n: d for n, d in m.items() if not n.endswith("version")},
    "version 99": lambda m: {n: b"99\n" if n.endswith("/version") else d for n, d in m.items()},
    "a foreign member": lambda m: {**m, "evil.txt": b"x"},
    "backslashes": lambda m: {n.replace("data/0", "data\\0"): d for n, d in m.items()},
    "constants.pkl": lambda m: {**m, "model/constants.pkl": b"\x80\x02N."},
    "byte order in capitals": lambda m: {
        n.replace("byteorder", "ByteOrder"): b"none" if n.endswith("byteorder") else d for n, d in m.items()
    },
}
PATCHES = {
    "encrypted": patched(b"PK\x01\x02", 8, 0x41),
    "hidden names": patched(b"PK\x01\x02", 8, 0x2000),
    "patched": patched(b"PK\x01\x02", 8, 0x20),
    "second disk": patched(b"PK\x05\x06", 4, 1),
    "directory on the second disk": patched(b"PK\x05\x06", 6, 1),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", [*ZIPS, *PATCHES, "storage is a folder", "pickle is a folder"])
def test_a_zip_that_torch_reads_otherwise(tmp_path: Path, how: str) -> None:
    path = tmp_path / "model.pt"
    members = members_of(path)
    folders = {"storage is a folder": ("data/0",), "pickle is a folder": ("data.pkl",)}.get(how, ())
    data = written(path, ZIPS.get(how, dict)(members), folders)
    PATCHES.get(how, lambda data: None)(data)  # type: ignore[no-untyped-call]
    path.write_bytes(data)
    code, found = verify(path)
    assert (code, found["verdict"]) == (1, "damaged"), found["findings"]
    try:  # torch refuses it, or gives other values than the ones we see
        loaded = torch.load(path, weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, ValueError, IndexError):  # the last from an empty stack
        return
    assert how in ("another spelling of the pickle", "another spelling of a storage", "storage is a folder")
    del loaded


def test_tensors_whose_case_differs_are_two_arrays(tmp_path: Path) -> None:
    """numpy tells them apart, so they are healthy there."""
    import numpy as np

    np.savez(tmp_path / "x.npz", W=np.arange(1.0, 9.0), w=np.arange(2.0, 9.0))
    assert verify(tmp_path / "x.npz")[0] == 0


# -- two formats at once


def test_a_pickle_that_torch_takes_for_a_tar(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    torch.save({"w": torch.arange(1.0, 9.0)}, buffer, _use_new_zipfile_serialization=False)
    data = bytearray(buffer.getvalue().ljust(2048, b"\0"))
    data[100:512] = tarfile.TarInfo("storages").tobuf()[100:512]  # a tar's header, named like a pickle
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    path = tmp_path / "model.pt"
    path.write_bytes(data)
    assert tarfile.is_tarfile(path)
    code, found = verify(path)
    assert code == 1 and found["findings"][0]["code"] == "hostile", found["findings"]


def test_a_program_is_called_a_program(tmp_path: Path) -> None:
    class Saves(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.save(x, "made_by_a_script")
            return x

    fine, bad = tmp_path / "fine.pt", tmp_path / "bad.pt"
    torch.jit.script(torch.nn.Linear(3, 4)).save(fine)  # type: ignore[no-untyped-call]
    code, found = verify(fine)
    assert code == 0 and "code" in [finding["code"] for finding in found["findings"]], found["findings"]
    torch.jit.save(torch.jit.script(Saves()), bad)
    code, found = verify(bad)
    assert code == 1 and "hostile" in [finding["code"] for finding in found["findings"]], found["findings"]
    assert not os.path.exists("made_by_a_script")
