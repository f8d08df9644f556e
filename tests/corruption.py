"""The damage that checkpoints meet: each defect makes a folder with exactly one thing wrong in it."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from . import zoo


@dataclass
class Defect:
    """`code` must be reported as an error (or `severity`), and the report must contain every word of `named`."""

    make: Callable[[Path], Path]
    code: str
    named: tuple[str, ...]
    severity: str
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.make.__name__


DEFECTS: list[Defect] = []
NAN, WTE = float("nan"), "wte.weight"
NESTED = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
LISTS = b'{"a":[' + b"[]," * 1_100_000 + b"[]]}"


def defect(
    code: str,
    *named: str,
    severity: str = "error",
    arguments: tuple[str, ...] = (),
    of: Callable[[Path], Path] = lambda folder: folder,
) -> Callable[[Callable[[Path], Path | None]], Callable[[Path], Path]]:
    """`of` makes what is healthy, the function damages it. `{folder}` in an argument is the folder of the defect."""

    def register(damage: Callable[[Path], Path | None]) -> Callable[[Path], Path]:
        @functools.wraps(damage)
        def make(folder: Path) -> Path:
            healthy = of(folder)
            return damage(healthy) or healthy

        DEFECTS.append(Defect(make, code, named, severity, arguments))
        return make

    return register


# -- tools


def truncate(path: Path, keep: float) -> Path:
    os.truncate(path, int(path.stat().st_size * keep))
    return path


def put(path: Path, at: int | bytes, data: bytes) -> Path:
    """Over what is at that offset, or where those bytes are first."""
    offset = at if isinstance(at, int) else path.read_bytes().index(at)
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
    return path


def flip(path: Path, offset: int, mask: int = 0x01) -> Path:
    data = path.read_bytes()
    return put(path, offset, bytes([data[offset] ^ mask]))


def member_offset(path: Path, suffix: str) -> int:
    """Where a stored zip member's data starts."""
    with zipfile.ZipFile(path) as archive:
        info = next(info for info in archive.infolist() if info.filename.endswith(suffix))
    header = path.read_bytes()[info.header_offset : info.header_offset + 30]
    return info.header_offset + 30 + int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")


def rezip(path: Path, end: str, change: Callable[[bytes], bytes | None]) -> Path:
    """Write the zip anew (with right CRCs); `change` gives new bytes for names with this end, None drops them."""
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w") as new:
        for name, data in members.items():
            changed = change(data) if name.endswith(end) else data
            if changed is not None:
                new.writestr(name, changed)
    return path


def read_header(path: Path) -> tuple[dict[str, Any], bytes]:
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def write_header(path: Path, header: dict[str, Any] | bytes, data: bytes) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def edit_header(path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    header, data = read_header(path)
    change(header)
    return write_header(path, header, data)


def edit_json(path: Path, change: Callable[[Any], Any]) -> Path:
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    return path


def saved(folder: Path, state: Any, name: str = "ckpt.pt") -> Path:
    torch.save(state, folder / name)
    return folder / name


def with_weight(folder: Path, name: str, tensor: torch.Tensor) -> Path:
    """A healthy safetensors file with one more tensor."""
    save_file({**zoo.weights(), name: tensor}, folder / "model.safetensors")
    return folder / "model.safetensors"


def broken(index: tuple[int, int], value: float, side: int = 64) -> torch.Tensor:
    tensor = torch.randn(side, side)
    tensor[index] = value
    return tensor


def manifest(folder: Path) -> Path:
    files = [
        {
            "path": str(path.relative_to(folder)),
            "bytes": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith("PULL_")
    ]
    (folder / "PULL_MANIFEST.json").write_text(
        json.dumps({"source": "box:/runs", "created": "2026-11-16", "files": files})
    )
    return folder


# -- tables of defects that need no function of their own


def damaged(of: Callable[[Path], Path], **rows: tuple[Any, ...]) -> None:
    """Each by its name: what is done to what `of` makes, the code, the words that must be named."""
    for name, (damage, code, *named) in rows.items():

        def make(folder: Path, damage: Callable[[Path], object] = damage) -> Path:
            healthy = of(folder)
            damage(healthy)
            return healthy

        make.__name__ = name
        DEFECTS.append(Defect(make, code, tuple(named), "error", ()))


def __getattr__(name: str) -> Callable[[Path], Path]:
    """A defect of a table is a maker of this module, as the others are."""
    for each in DEFECTS:
        if each.name == name:
            return each.make
    raise AttributeError(name)


def in_folder(folder: Path) -> Path:
    return folder


def pulled(folder: Path) -> Path:
    zoo.safetensors(folder)
    zoo.torch_zip(folder)
    (folder / "train.log").write_text("step 1\nstep 2\n")
    return folder


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"tail")


def zipped(path: Path, name: str) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, b"\x80\x02}.")


def lost(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def edited(name: str, change: Callable[[Any], Any]) -> Callable[[Path], Path]:
    return lambda folder: edit_json(folder / name, change)


def newest(**fields: object) -> Callable[[Path], Path]:
    return edited("checkpoints_index.json", lambda index: index["checkpoints"][-1].update(fields))


def wte(**fields: object) -> Callable[[Path], Path]:
    return lambda path: edit_header(path, lambda header: header[WTE].update(fields))


def one_of_four(make: Callable[[], torch.Tensor]) -> Callable[[Path], Path]:
    """A layer that is not like the other three."""

    def damage(folder: Path) -> Path:
        save_file(
            {f"layers.{n}.w": make() if n == 2 else torch.randn(64, 64) for n in range(4)}, folder / "model.safetensors"
        )
        return folder

    return damage


def weight(make: Callable[[], torch.Tensor]) -> Callable[[Path], Path]:
    return lambda folder: with_weight(folder, "w", make())


def fp8(dtype: torch.dtype, bits: int) -> torch.Tensor:
    numbers = torch.randn(16, 16).to(dtype).view(torch.uint8)
    numbers[3, 4] = bits
    return numbers.view(dtype)


def raw(data: bytes) -> Callable[[Path], Path]:
    return lambda folder: raw_pickle(folder, b"\x80\x02" + data)


# -- the container: torch zip


def half_copied(path: Path) -> None:
    """Preallocated, as some copies do."""
    size = path.stat().st_size
    os.truncate(truncate(path, 0.5), size)


damaged(
    zoo.torch_zip,
    torch_preallocated_and_half_copied=(half_copied, "truncated", "a copy that was never finished"),
    torch_cut_in_half=(lambda path: truncate(path, 0.5), "truncated", "directory is missing"),
    torch_empty_file=(lambda path: truncate(path, 0), "empty", "the file has no bytes"),
    torch_storage_missing=(lambda path: rezip(path, "data/4", lambda data: None), "malformed", "storage 4 is not"),
    torch_storage_shortened=(lambda path: rezip(path, "data/5", lambda data: data[:-4]), "bounds", "5 has 32764 bytes"),
    torch_byte_order_unknown=(lambda path: rezip(path, "byteorder", lambda data: b"middle"), "malformed", "byte order"),
    torch_member_twice=(lambda path: zipped(path, "ckpt/data/0"), "duplicate", "ckpt/data/0", "is there twice"),
    torch_member_climbs_out=(lambda path: zipped(path, "../../evil"), "path-name", "../../evil", "outside of"),
    torch_local_header_damaged=(lambda path: put(path, b"/data/0", b"/data/9"), "malformed", "another name"),
    torch_pickle_text_changed=(lambda path: put(path, b"norm.weight", b"Norm"), "crc", "data.pkl"),
    zip_of_two_checkpoints=(lambda path: zipped(path, "x/data.pkl"), "malformed", "the zip holds 2 checkpoints"),
    zip_with_a_tail=(lengthen, "trailing", "other bytes follow the end of the zip"),
)


@defect("crc", "model.proj.weight", "its bytes changed", of=zoo.torch_zip)
def torch_one_bit_flipped(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        large = max(archive.infolist(), key=lambda info: info.file_size).filename
    flip(path, member_offset(path, large) + 1001)


@defect("crc", "model.out.weight", of=zoo.torch_zip)
def torch_zero_filled_hole(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        second = [info.filename for info in archive.infolist() if info.file_size == 32768][1]
    put(path, member_offset(path, second) + 4096, bytes(8192))


@defect("bounds", "bytes were added or lost before it", of=zoo.torch_zip)
def torch_bytes_prepended(path: Path) -> None:
    path.write_bytes(b"HTTP" * 8 + path.read_bytes())
    put(path, 0, b"PK\x03\x04")


@defect("extra", "storages belong to no tensor: 999", severity="warn", of=zoo.torch_zip)
def torch_storage_of_nobody(path: Path) -> None:
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("ckpt/data/999", b"x" * 100)


@defect("overlap", "share bytes", of=zoo.torch_zip)
def torch_members_overlap(path: Path) -> None:
    """Two directory entries for one range: how zip bombs are made."""
    with zipfile.ZipFile(path, "a") as archive:
        first = archive.getinfo("ckpt/data/0")
        twin = zipfile.ZipInfo("ckpt/data/7")
        for field in ("header_offset", "CRC", "compress_size", "file_size", "flag_bits", "compress_type"):
            setattr(twin, field, getattr(first, field))
        twin.filename = "ckpt/data/0"
        archive.filelist.append(twin)
        archive._didModify = True  # type: ignore[attr-defined]


@defect("not-a-checkpoint", "a zip of 2 other files", "word/document.xml")
def zip_of_something_else(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "model.pt", "w") as archive:
        archive.writestr("word/document.xml", "<x/>")
        archive.writestr("other", "y")
    return folder / "model.pt"


@defect("bomb", "would grow from")
def zip_bomb(folder: Path) -> Path:
    path = folder / "model.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(1 << 20))
    data = bytearray(path.read_bytes())
    struct.pack_into("<I", data, data.index(b"PK\x01\x02") + 24, 0xFFFFFF00)
    path.write_bytes(data)
    return path


@defect("bomb", "unpacks to more than")
def zip_grows_beyond_its_claim(folder: Path) -> Path:
    path = folder / "model.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        np.lib.format.write_array(archive.open("a.npy", "w", force_zip64=False), np.zeros(300_000))
    data = bytearray(path.read_bytes())
    for magic, at in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        struct.pack_into("<I", data, data.index(magic) + at, 100_000)
    path.write_bytes(data)
    return path


# -- the container: legacy torch


def at_count(path: Path) -> int:
    return path.read_bytes().index(struct.pack("<q", 2048))


damaged(
    zoo.torch_legacy,
    legacy_cut_in_half=(lambda path: truncate(path, 0.5), "truncated", "needs", "bytes more"),
    legacy_cut_in_a_count=(lambda path: os.truncate(path, at_count(path) + 4), "truncated", "needs", "bytes more"),
    legacy_cut_in_the_pickle=(lambda path: os.truncate(path, 300), "truncated", "not a whole pickle"),
    legacy_with_a_tail=(lengthen, "trailing", "follow the last storage"),
    legacy_storage_count_flipped=(lambda path: put(path, struct.pack("<q", 2048), b"\1"), "bounds", "the pickle says"),
)


# -- the container: safetensors


damaged(
    zoo.safetensors,
    safetensors_cut=(lambda path: truncate(path, 0.7), "truncated", "behind the end of the file", "copy it again"),
    safetensors_header_of_an_exabyte=(lambda path: put(path, 7, b"\x10"), "bounds", "the header claims", "at most"),
    safetensors_header_damaged=(lambda path: put(path, 40, b"\x01\x02"), "malformed", "the header is not JSON"),
    safetensors_header_nested=(lambda path: write_header(path, NESTED, b""), "malformed", "nested too deep"),
    safetensors_header_of_a_million_lists=(lambda path: write_header(path, LISTS, b""), "bounds", "lists and objects"),
    safetensors_with_a_tail=(lengthen, "trailing", "4 bytes follow the last tensor"),
    safetensors_shape_and_offsets_disagree=(wte(shape=[64, 33]), "bounds", "F32 [64, 33] needs 8448 bytes", WTE),
    safetensors_dtype_unknown=(wte(dtype="F31"), "malformed", "unknown dtype 'F31'", WTE),
    safetensors_negative_shape=(wte(shape=[-64, -32]), "malformed", "else than dtype, shape and data_offsets", WTE),
    safetensors_of_nothing=(lambda path: save_file({}, path), "empty", "holds no tensor"),
    file_of_zeros=(lambda path: path.write_bytes(bytes(100_000)), "hole", "reserved and never written"),
    json_answer=(lambda path: path.write_text('{"error": "not found"}'), "error-page", "not found"),
)


@defect("duplicate", "'wte.weight' is there twice", of=zoo.safetensors)
def safetensors_key_twice(path: Path) -> None:
    header, data = read_header(path)
    text = json.dumps(header)
    entry = json.dumps(header["wte.weight"])
    write_header(path, (text[:-1] + f', "wte.weight": {entry}}}').encode(), data)


@defect("overlap", "shares", "bytes with another tensor")
def safetensors_tensors_overlap(folder: Path) -> Path:
    path = folder / "model.safetensors"
    save_file({"a": torch.randn(4, 4), "b": torch.randn(4, 4)}, path)
    return edit_header(path, lambda header: header["b"].update(data_offsets=header["a"]["data_offsets"]))


@defect("gap", "belong to no tensor", "'b'")
def safetensors_hidden_bytes(folder: Path) -> Path:
    path = folder / "model.safetensors"
    save_file({"a": torch.randn(4, 4), "b": torch.randn(4, 4)}, path)
    header, data = read_header(path)
    header["b"]["data_offsets"] = [96, 160]
    return write_header(path, header, data[:64] + b"payload!" * 4 + data[64:])


@defect("hole", "131072 bytes of zeros in a row", "big.weight", "from [")
def safetensors_hole_of_pages(folder: Path) -> Path:
    path = with_weight(folder, "big.weight", torch.randn(512, 515))
    header, _ = read_header(path)
    base = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    inside = base + header["big.weight"]["data_offsets"][0] + 200_000
    return put(path, -(-inside // 4096) * 4096, bytes(131072))


@defect("hole", "bytes of zeros in a row", "big.weight")
def safetensors_tail_never_written(folder: Path) -> Path:
    """A preallocated download whose last part never came: the file has its full size."""
    path = with_weight(folder, "big.weight", torch.randn(512, 515))
    header, _ = read_header(path)
    end = 8 + int.from_bytes(path.read_bytes()[:8], "little") + header["big.weight"]["data_offsets"][1]
    return put(path, end - 100_002, bytes(100_002))


# -- strangers under a checkpoint's name


damaged(
    zoo.torch_zip,
    html_page=(lambda path: path.write_text("<!DOCTYPE html><title>Sign in</title>"), "error-page", "HTML", "Sign in"),
    gzip_file=(lambda path: put(path, 0, b"\x1f\x8b\x08\x00"), "crc", "does not unpack (gzip)"),
    random_bytes=(lambda path: path.write_bytes(b"\x07" * 1000), "not-a-checkpoint", "no format that is known"),
)
damaged(
    in_folder,
    gguf_file=(lambda folder: (folder / "model.bin").write_text("GGUF" * 200), "malformed", "GGUF version"),
    empty_folder=(in_folder, "empty", "nothing was saved or nothing was pulled"),
    model_without_tensors=(lambda folder: saved(folder, {"model": {}, "step": 3}), "empty", "'model' holds nothing"),
    dangling_link=(lambda folder: (folder / "model.pt").symlink_to("gone"), "unreadable", "cannot be opened"),
)
damaged(
    pulled,
    download_unfinished=(lambda folder: (folder / "x.pt.incomplete").touch(), "partial", "not finished"),
    rsync_unfinished=(lambda folder: (folder / ".x.pt.Xk29aB").touch(), "partial", "a copy that was not finished"),
)


@defect("lfs-pointer", "git lfs pull")
def lfs_pointer(folder: Path) -> Path:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 1234\n"
    (folder / "pytorch_model.bin").write_text(text)
    return folder


# -- values


damaged(
    in_folder,
    nan_in_bf16=(weight(lambda: broken((5, 7), NAN).bfloat16()), "nan", "w", "1 of 4096 values is NaN"),
    nan_at_the_very_end_of_a_large_tensor=(weight(lambda: broken((-1, -1), NAN, 2048)), "nan", "w", "at [2047, 2047]"),
    nan_in_fp8_e4m3=(weight(lambda: fp8(torch.float8_e4m3fn, 0xFF)), "nan", "w", "1 of 256 values is NaN"),
    inf_in_fp8_e5m2=(weight(lambda: fp8(torch.float8_e5m2, 0x7C)), "inf", "w", "1 of 256 values is infinite"),
    nan_in_fp8_fnuz=(lambda f: saved(f, {"x": fp8(torch.float8_e4m3fnuz, 0x80)}), "nan", "x", "1 of 256 values is NaN"),
    nan_in_a_transposed_tensor=(lambda f: saved(f, {"t": broken((60, 3), NAN).t()}), "nan", "t", "first at [3, 60]"),
    nan_in_a_view_with_gaps=(lambda f: saved(f, {"v": broken((5, 2), NAN)[:, :10]}), "nan", "v", "first at [5, 2]"),
    weight_above_a_million=(weight(lambda: broken((1, 1), 2e6)), "range", "1 of 4096 value", "above 1e+06", "2e+06"),
    weight_all_zero=(
        one_of_four(lambda: torch.zeros(64, 64)),
        "zero",
        "layers.2.w",
        "all 4096 values",
        "float32 64x64",
    ),
)


@defect("nan", "1 of 8192 values is NaN", "model.proj.weight", "first at [17, 3], byte")
def nan_in_one_weight(folder: Path) -> Path:
    state = zoo.checkpoint()
    weight = state["model"]["proj.weight"].clone()
    weight[17, 3] = NAN
    return saved(folder, {**state, "model": {**state["model"], "proj.weight": weight}})


@defect("nan", "1 of 8192 values is NaN", "optimizer.state.1.exp_avg", "[255, 31]")
def nan_in_one_moment(folder: Path) -> Path:
    state = zoo.checkpoint()
    moment = state["optimizer"]["state"][1]["exp_avg"].clone()
    moment[-1, -1] = NAN
    states = {**state["optimizer"]["state"], 1: {**state["optimizer"]["state"][1], "exp_avg": moment}}
    return saved(folder, {**state, "optimizer": {**state["optimizer"], "state": states}})


@defect("nan", "z", "1 of 36 values is NaN", "first at [2, 3]")
def nan_in_the_imaginary_part(folder: Path) -> Path:
    tensor = torch.randn(6, 6, dtype=torch.complex64)
    tensor.imag[2, 3] = NAN
    return saved(folder, {"z": tensor})


@defect("inf", "w", "2 of 4096 values are infinite", "first at [0, 1]")
def infinities_in_a_weight(folder: Path) -> Path:
    tensor = broken((0, 1), float("inf"))
    tensor[9, 9] = float("-inf")
    return with_weight(folder, "w", tensor)


@defect("nan", "wte", "tied to", "head")
def nan_in_tied_weights(folder: Path) -> Path:
    shared = broken((0, 0), NAN)
    return saved(folder, {"wte": shared, "head": shared})


@defect("nan", "array", "first at [3, 1]")
def nan_in_npy(folder: Path) -> Path:
    array = np.random.default_rng(0).standard_normal((9, 9))
    array[3, 1] = np.nan
    np.save(folder / "a.npy", array)
    return folder / "a.npy"


@defect("nan", "a", "1 of 1000000 values is NaN")
def nan_in_deflated_npz(folder: Path) -> Path:
    array = np.random.default_rng(0).standard_normal(1_000_000).astype("f4")
    array[777_777] = np.nan
    np.savez_compressed(folder / "a.npz", a=array)
    return folder / "a.npz"


@defect("range", "w", "above 100 in magnitude", arguments=("--max-abs", "100"))
def weight_above_the_given_limit(folder: Path) -> Path:
    return with_weight(folder, "w", broken((1, 1), -101.0))


@defect("range", "w", "the largest")
def exponent_bit_flipped(folder: Path) -> Path:
    """One flipped bit in a file without checksums: the value becomes astronomic."""
    path = with_weight(folder, "w", torch.full((8, 8), 0.02) + torch.rand(8, 8) * 0.01)
    header, _ = read_header(path)
    base = 8 + int.from_bytes(path.read_bytes()[:8], "little") + header["w"]["data_offsets"][0]
    return flip(path, base + 43, 0x40)


@defect("zero", "w", "all 4096 values are zero", severity="warn")
def weight_that_may_start_at_zero(folder: Path) -> Path:
    return with_weight(folder, "w", torch.zeros(64, 64))


@defect("zero", "ema.w", "all 4096 values are zero")
def ema_all_zero(folder: Path) -> Path:
    return saved(folder, {"model": {"w": torch.randn(64, 64)}, "ema": {"w": torch.zeros(64, 64)}})


@defect("constant", "w", "all 4096 values are 1", severity="warn")
def weight_constant(folder: Path) -> Path:
    return with_weight(folder, "w", torch.ones(64, 64))


@defect("malformed", "b", "neither true nor false")
def bool_of_two(folder: Path) -> Path:
    path = with_weight(folder, "b", torch.rand(9, 9) > 0.5)
    header, _ = read_header(path)
    base = 8 + int.from_bytes(path.read_bytes()[:8], "little") + header["b"]["data_offsets"][0]
    return put(path, base + 4, b"\x02")


# -- pickles; a sentinel file would show that anything ran


damaged(
    in_folder,
    pickle_calls_the_hub=(raw(b"ctorch.hub\nload\n(X\x01\x00\x00\x00xtR."), "hostile", "torch.hub.load"),
    pickle_calls_what_it_computed=(raw(b"ccollections\nOrderedDict\n)R(X\x01\0\0\0xtR."), "hostile", "computed itself"),
    pickle_runs_through_numpy=(raw(b"cnumpy.testing._private.utils\nrunstring\n)R."), "hostile", "utils.runstring"),
    pickle_nested_in_bytes=(raw(b"ctorch.storage\n_load_from_bytes\n(X\x01\0\0\0xtR."), "hostile", "_load_from_bytes"),
    pickle_extension=(raw(b"\x82\x01."), "refused-global", "EXT1"),
    pickle_nested_deep=(raw(b"]" * 50_000 + b"a" * 49_999 + b"."), "bounds", "nested deeper than"),
    pickle_key_that_overflows_the_stack=(raw(b"}()" + b"\x85" * 200_000 + b"K\x01u."), "malformed", "a tuple as a key"),
)


class Runs:
    def __init__(self, function: Any, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.function, self.arguments


def sentinel(folder: Path) -> Path:
    return folder / "EXECUTED"


@defect("hostile", "posix.system", "can run any code")
def pickle_calls_system(folder: Path) -> Path:
    return saved(folder, {"model": zoo.weights(), "x": Runs(os.system, f"touch {sentinel(folder)}")})


@defect("hostile", "__builtin__.eval")
def pickle_calls_eval(folder: Path) -> Path:
    return saved(folder, {"x": Runs(eval, f"open({str(sentinel(folder))!r}, 'w')")})


@defect("hostile", "__builtin__.exec")
def legacy_pickle_calls_exec(folder: Path) -> Path:
    state = {"w": torch.randn(3), "x": Runs(exec, f"open({str(sentinel(folder))!r}, 'w')")}
    torch.save(state, folder / "old.pt", _use_new_zipfile_serialization=False)
    return folder / "old.pt"


@defect("hostile", "os.system", "posix")
def pickle_by_stack_global(folder: Path) -> Path:
    command = f"touch {sentinel(folder)}".encode()
    text = b"\x8c" + bytes([len(command)]) + command
    return raw_pickle(
        folder, b"\x80\x04\x8c\x02os\x8c\x06system\x93" + text + b"\x85R0\x8c\x05posix\x8c\x06system\x93."
    )


@defect("hostile", "os.system")
def pickle_by_inst(folder: Path) -> Path:
    return raw_pickle(folder, f"\x80\x02(S'touch {sentinel(folder)}'\nios\nsystem\n.".encode("latin-1"))


@defect("hostile", "builtins.__import__")
def pickle_getattr_chain(folder: Path) -> Path:
    return raw_pickle(
        folder,
        b"\x80\x02cbuiltins\ngetattr\ncbuiltins\n__import__\nX\x02\x00\x00\x00os\x85RX\x06\x00\x00\x00system\x86R.",
    )


@defect("truncated", "not a whole pickle", "but only 8 remain")
def pickle_string_of_an_exabyte(folder: Path) -> Path:
    return raw_pickle(folder, b"\x80\x04\x8d" + (1 << 60).to_bytes(8, "little") + b"x" * 8)


def raw_pickle(folder: Path, data: bytes) -> Path:
    """As the data.pkl of a torch zip, which is where attackers put it."""
    path = saved(folder, {})
    return rezip(path, "data.pkl", lambda old: data)


@defect("bounds", "needs 4000 bytes of storage 0, which has 64")
def pickle_tensor_beyond_its_storage(folder: Path) -> Path:
    path = saved(folder, {"w": torch.randn(16)})
    return rezip(path, "pkl", lambda data: data.replace(b"K\x10\x85q", b"M\xe8\x03\x85q", 1))


@defect("hostile", "posix.system")
def npy_of_objects_calls_system(folder: Path) -> Path:
    objects = np.array([Runs(os.system, f"touch {sentinel(folder)}")], dtype=object)
    np.save(folder / "a.npy", objects, allow_pickle=True)
    return folder / "a.npy"


@defect("hostile", "posix.system")
def plain_pickle_calls_system(folder: Path) -> Path:
    (folder / "random_states_0.pkl").write_bytes(pickle.dumps(Runs(os.system, f"touch {sentinel(folder)}")))
    return folder


# -- numpy containers


damaged(
    lambda folder: zoo.numpy_arrays(folder) / "features.npy",
    npy_cut=(lambda path: truncate(path, 0.5), "truncated", "needs 16000 bytes"),
    npy_header_damaged=(lambda path: put(path, 20, b"((((("), "malformed", "not a Python literal"),
    npy_with_a_tail=(lengthen, "trailing", "follow the array"),
)


@defect("truncated", "big.npy", "unpacks to", "instead of 4800128")
def npz_deflated_bytes_changed(folder: Path) -> Path:
    path = zoo.numpy_arrays(folder) / "packed.npz"
    return put(path, path.stat().st_size // 2, b"\xff" * 64)


# -- expectations


@defect("shape", "wte.weight", "has shape [64, 32], expected [65, 32]", arguments=("--expect", "{folder}/spec.yaml"))
def expected_another_shape(folder: Path) -> Path:
    (folder / "spec.yaml").write_text("tensors:\n  wte.weight: [65, 32]\nextra: true\n")
    return zoo.torch_zip(folder)


@defect("dtype", "norm.weight", "is float32, expected bfloat16", arguments=("--expect", "{folder}/spec.json"))
def expected_another_dtype(folder: Path) -> Path:
    spec = {"tensors": {"norm.weight": {"shape": [32], "dtype": "bfloat16"}}, "extra": True}
    (folder / "spec.json").write_text(json.dumps(spec))
    return zoo.torch_zip(folder)


@defect("missing", "1 tensors are expected and not there", "wte.weight", arguments=("--expect", "{folder}/good.pt"))
def key_lost(folder: Path) -> Path:
    torch.save(zoo.checkpoint(), folder / "good.pt")
    state = {name: tensor for name, tensor in zoo.weights().items() if name != "wte.weight"}
    return saved(folder, {**zoo.checkpoint(), "model": {**state, "head.weight": zoo.weights()["wte.weight"]}})


@defect("extra", "1 tensors are there and not expected", "surplus", arguments=("--expect", "{folder}/good.pt"))
def key_added(folder: Path) -> Path:
    torch.save(zoo.weights(), folder / "good.pt")
    return saved(folder, {**zoo.weights(), "surplus": torch.randn(3)})


@defect("renamed", "by a wrapper's prefix: module.", arguments=("--expect", "{folder}/good.pt"))
def keys_with_the_prefix_of_data_parallel(folder: Path) -> Path:
    torch.save(zoo.weights(), folder / "good.pt")
    return saved(folder, {f"module.{name}": tensor for name, tensor in zoo.weights().items()})


@defect("renamed", " for _orig_mod.", arguments=("--expect", "{folder}/good.safetensors"))
def keys_without_the_prefix_of_compile(folder: Path) -> Path:
    save_file({f"_orig_mod.{name}": tensor for name, tensor in zoo.weights().items()}, folder / "good.safetensors")
    return saved(folder, {"state_dict": zoo.weights()})


@defect("count", "1 artifact found, 2 expected", arguments=("--expect-count", "2"))
def too_few_artifacts(folder: Path) -> Path:
    zoo.torch_zip(folder)
    return folder


# -- optimizer and step


@defect("step", "the file says step 40, the optimizer made 0", "fresh")
def optimizer_is_fresh(folder: Path) -> Path:
    return saved(folder, {**zoo.checkpoint(), "optimizer": zoo.trained_optimizer(0)})


@defect("step", "the file says step 40, the optimizer made 33", severity="warn")
def optimizer_of_another_step(folder: Path) -> Path:
    return saved(folder, {**zoo.checkpoint(), "optimizer": zoo.trained_optimizer(33)})


# -- Hugging Face folders


SHARD, INDEX = "model-00002-of-00003.safetensors", "model.safetensors.index.json"
FIRST = "model-00001-of-00003.safetensors"


def shard(name: str, of: slice, **more: torch.Tensor) -> Callable[[Path], None]:
    """Written again with these of the weights, and more."""
    weights = zoo.weights()
    return lambda folder: save_file({**more, **{key: weights[key] for key in list(weights)[of]}}, folder / name)


damaged(
    zoo.hf_sharded,
    shard_of_another_save=(
        shard("model-00004-of-00004.safetensors", slice(0), other=torch.randn(3)),
        *("extra", "model-00004-of-00004.safetensors", "of another save"),
    ),
    shard_copied_twice=(lambda folder: shutil.copy(folder / FIRST, folder / SHARD), "duplicate", f"is also in {FIRST}"),
    shard_lost_a_tensor=(shard(FIRST, slice(1, 4)), "stale-index", "not in the shard that the index names"),
    index_of_an_earlier_save=(
        shard(FIRST, slice(4), surplus=torch.randn(3)),
        *("stale-index", "tensors of the shards are not in the index", "surplus"),
    ),
    tensor_in_two_shards=(
        shard(SHARD, slice(4, 9), position_ids=zoo.weights()["position_ids"]),
        *("duplicate", f"is also in {FIRST}", "position_ids"),
    ),
    index_climbs_out=(
        edited(INDEX, lambda index: index["weight_map"].update({WTE: "/etc/passwd"})),
        *("path-name", "/etc/passwd", "outside of its folder"),
    ),
    shard_missing=(lost(SHARD), "missing", SHARD, f"is named by {INDEX} and not there"),
    index_without_a_map=(edited(INDEX, lambda index: index.pop("weight_map")), "malformed", "has no weight_map"),
    index_cut=(lambda folder: truncate(folder / INDEX, 0.6), "malformed", "is not JSON"),
    shards_without_index=(lost(INDEX), "missing", "no *.index.json for them"),
)
damaged(
    zoo.accelerate,
    accelerate_without_model=(lost("model.safetensors"), "missing", "has optimizer.bin and no model weights"),
    accelerate_rank_missing=(lost("random_states_0.pkl"), "missing", "random_states_0.pkl is not there"),
)


@defect("crc", "pytorch_model-00002-of-00003.bin", of=zoo.hf_sharded_bin)
def bin_shard_damaged(folder: Path) -> None:
    path = folder / "pytorch_model-00002-of-00003.bin"
    flip(path, member_offset(path, "data/0") + 5)


@defect("step", "trainer_state.json says step 40, the optimizer made 20", "two checkpoints", of=zoo.hf_trainer)
def trainer_with_a_stale_optimizer(folder: Path) -> None:
    torch.save(zoo.trained_optimizer(20), folder / "optimizer.pt")


@defect("step", "is of step 40, its folder of step 400")
def trainer_in_the_wrong_folder(folder: Path) -> Path:
    return zoo.hf_trainer(folder).rename(folder / "checkpoint-400")


# -- torch.distributed.checkpoint


damaged(
    zoo.distributed,
    dcp_file_missing=(lost("__0_0.distcp"), "missing", "__0_0.distcp", "is missing"),
    dcp_file_cut=(lambda folder: truncate(folder / "__0_0.distcp", 0.6), "truncated", "should be at bytes"),
    dcp_without_metadata=(lost(".metadata"), "missing", ".distcp files and no .metadata"),
    dcp_metadata_cut=(lambda folder: truncate(folder / ".metadata", 0.5), "truncated", "not a whole pickle"),
)


@defect("extra", "__9_9.distcp", "of another save", of=zoo.distributed)
def dcp_file_of_another_save(folder: Path) -> None:
    shutil.copy(folder / "__0_0.distcp", folder / "__9_9.distcp")


@defect("crc", "__0_0.distcp", of=zoo.distributed)
def dcp_bytes_changed(folder: Path) -> None:
    path = folder / "__0_0.distcp"
    needle = zoo.weights()["proj.weight"].numpy().tobytes()[1000:1032]
    flip(path, path.read_bytes().index(needle))


@defect("shape", "the metadata says", of=zoo.distributed)
def dcp_metadata_of_another_model(folder: Path) -> None:
    data = (folder / ".metadata").read_bytes()
    assert b"M\x00\x01K \x86" in data  # (256, 32)
    (folder / ".metadata").write_bytes(data.replace(b"M\x00\x01K \x86", b"M\x00\x01K\x1f\x86"))


@defect("hostile", ".metadata", "posix.system", of=zoo.distributed)
def dcp_metadata_calls_system(folder: Path) -> None:
    data = (folder / ".metadata").read_bytes()
    call = b"cposix\nsystem\nX\x04\x00\x00\x00true\x85R0"
    (folder / ".metadata").write_bytes(
        data[:11] + call + data[11:] if data[2:3] == b"\x95" else data[:2] + call + data[2:]
    )


# -- DeepSpeed


RANK, MODEL = "zero_pp_rank_1_mp_rank_00_optim_states.pt", "mp_rank_00_model_states.pt"
damaged(
    zoo.deepspeed,
    deepspeed_last_rank_missing=(lost(f"global_step40/{RANK}"), "missing", RANK, "1 of 2 ranks have none: 1"),
    deepspeed_model_missing=(lost(f"global_step40/{MODEL}"), "missing", f"{MODEL} is not there"),
    deepspeed_latest_is_gone=(lambda folder: (folder / "latest").write_text("step9"), "missing", "names step9"),
    deepspeed_latest_climbs_out=(lambda folder: (folder / "latest").write_text("../../etc"), "path-name", "latest"),
)


@defect("step", "is of step 40, its folder of step 50", of=zoo.deepspeed)
def deepspeed_folder_of_another_step(folder: Path) -> None:
    (folder / "global_step40").rename(folder / "global_step50")
    (folder / "latest").write_text("global_step50")


@defect("nan", "single_partition_of_fp32_groups.0", of=zoo.deepspeed)
def deepspeed_nan_in_the_master_weights(folder: Path) -> None:
    path = folder / "global_step40" / "zero_pp_rank_0_mp_rank_00_optim_states.pt"
    state = torch.load(path, weights_only=True)
    state["optimizer_state_dict"]["single_partition_of_fp32_groups"][0][7] = NAN
    torch.save(state, path)


# -- run directories and pulled trees


RUN_INDEX, MANIFEST = "checkpoints_index.json", "PULL_MANIFEST.json"
damaged(
    zoo.run_directory,
    run_index_of_another_step=(newest(step=41), "step", f"is of step 40, {RUN_INDEX} says 41"),
    run_index_of_another_size=(newest(bytes=5, sha256="0" * 64), "size", f"{RUN_INDEX} says 5"),
    run_index_of_another_digest=(newest(sha256="0" * 64), "digest", f"{RUN_INDEX} says 0000000000000000"),
    run_index_climbs_out=(newest(path="../../x.pt"), "path-name", RUN_INDEX, "outside of the run"),
    run_index_without_steps=(edited(RUN_INDEX, lambda it: it["checkpoints"][0].pop("step")), "malformed", "'step' is"),
    run_results_without_metrics=(edited("results.json", lambda it: it.update(metrics=[])), "malformed", "metrics: []"),
)
damaged(
    lambda folder: manifest(pulled(folder)),
    pulled_manifest_cut=(lambda folder: truncate(folder / MANIFEST, 0.5), "malformed", MANIFEST, "line 1 is not JSON"),
    pulled_manifest_of_nothing=(edited(MANIFEST, lambda it: it.update(files=[])), "empty", "lists no file"),
    pulled_file_missing=(lost("ckpt.pt"), "missing", f"is listed in {MANIFEST} and not there"),
    pulled_log_cut=(lambda folder: (folder / "train.log").write_text("1"), "size", "train.log", f"{MANIFEST} says"),
)


@defect("missing", "step_000099.pt", "is listed in checkpoints_index.json and not there", of=zoo.run_directory)
def run_checkpoint_missing(run: Path) -> None:
    entry = {"path": "checkpoints/step_000099.pt", "step": 99, "time": 1.0}
    edit_json(run / "checkpoints_index.json", lambda index: index["checkpoints"].insert(0, entry))


@defect("digest", "model.safetensors", "PULL_MANIFEST.json says")
def pulled_one_bit_flipped(folder: Path) -> Path:
    """A low mantissa bit: no value looks wrong, only the digest knows."""
    path = zoo.safetensors(folder)
    manifest(folder)
    flip(path, path.stat().st_size - 4000)
    return folder


@defect("path-name", "../../etc/passwd", "outside of its folder")
def pulled_manifest_climbs_out(folder: Path) -> Path:
    zoo.safetensors(folder)
    path = manifest(folder) / "PULL_MANIFEST.json"
    edit_json(path, lambda data: data["files"][0].update(path="../../etc/passwd"))
    return folder


# -- more of the folders


def change_metadata(folder: Path, change: Callable[[Any], Any]) -> Path:
    """Of a distributed checkpoint, with its own classes."""
    folder = zoo.distributed(folder)
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    change(metadata)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    return folder


@defect("missing", "model.proj.weight", "its chunk at [0, 0] is stored in no file")
def dcp_chunk_without_a_file(folder: Path) -> Path:
    def drop(metadata: Any) -> None:
        index = next(index for index in metadata.storage_data if index.fqn == "model.proj.weight")
        del metadata.storage_data[index]

    return change_metadata(folder, drop)


@defect("missing", "model.proj.weight", "its chunks hold 0 values, its shape needs 8192")
def dcp_tensor_without_chunks(folder: Path) -> Path:
    return change_metadata(folder, lambda metadata: metadata.state_dict_metadata["model.proj.weight"].chunks.clear())


@defect("path-name", "leads out of the checkpoint")
def dcp_metadata_climbs_out(folder: Path) -> Path:
    def climb(metadata: Any) -> None:
        next(iter(metadata.storage_data.values())).relative_path = "../../etc/passwd"

    return change_metadata(folder, climb)


@defect("overlap", "shares", "bytes with another item")
def dcp_items_overlap(folder: Path) -> Path:
    def shift(metadata: Any) -> None:
        infos = sorted(metadata.storage_data.values(), key=lambda info: info.offset)
        infos[1].offset -= 100

    return change_metadata(folder, shift)


@defect("malformed", "trainer_state.json", "has no global_step", of=zoo.hf_trainer)
def trainer_state_without_step(folder: Path) -> None:
    (folder / "trainer_state.json").write_text("{}")
