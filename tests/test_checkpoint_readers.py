"""Formats of other libraries: the library writes, what is read agrees with it, and a cut file never passes."""

from __future__ import annotations

import json
import os
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rgt.checkpoint.examine import examine

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from .front_door import call

Arrays = dict[str, Any]


def values(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


def gguf_file(folder: Path) -> tuple[Path, Arrays]:
    gguf = pytest.importorskip("gguf")
    arrays = {"blk.0.attn_q.weight": values(0, 64, 64), "norm": values(1, 64)}
    writer = gguf.GGUFWriter(str(folder / "a.gguf"), "llama")
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder / "a.gguf", arrays


def onnx_file(folder: Path) -> tuple[Path, Arrays]:
    onnx = pytest.importorskip("onnx")
    weight = onnx.numpy_helper.from_array(values(0, 64, 64), "w")
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 64]) for name in "xy"]
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:], [weight])
    onnx.save(onnx.helper.make_model(graph), folder / "a.onnx")
    return folder / "a.onnx", {"w": values(0, 64, 64)}


def hdf5_file(folder: Path) -> tuple[Path, Arrays]:
    h5py = pytest.importorskip("h5py")
    arrays = {"layers.dense.kernel": values(0, 64, 64), "layers.dense.bias": values(1, 64)}
    with h5py.File(folder / "a.h5", "w") as file:
        for name, array in arrays.items():
            file[name.replace(".", "/")] = array
    return folder / "a.h5", arrays


def msgpack_file(folder: Path) -> tuple[Path, Arrays]:
    flax = pytest.importorskip("flax.serialization")
    state = {"params": {"dense": {"kernel": values(0, 64, 64)}}, "step": 3}
    (folder / "a.msgpack").write_bytes(flax.to_bytes(state))
    return folder / "a.msgpack", {"params.dense.kernel": values(0, 64, 64)}


def flax_by_hand(folder: Path) -> tuple[Path, Arrays]:
    """{"params": {"w": array}, "step": [3, 1.5, None], "names": {"a": "b" * 40}}, for where there is no flax"""
    array = b"\x93\x92\x40\x40\xa7float32\xc5\x40\x00" + values(0, 64, 64).tobytes()
    array = b"\xc8" + struct.pack(">HB", len(array), 1) + array
    step = b"\xa4step\xdc\x00\x03\x03\xcb" + struct.pack(">d", 1.5) + b"\xc0"
    names = b"\xa5names\xde\x00\x01\xa1a\xd9\x28" + b"b" * 40
    (folder / "b.msgpack").write_bytes(b"\x83\xa6params\x81\xa1w" + array + step + names)
    return folder / "b.msgpack", {"params.w": values(0, 64, 64)}


def exported_file(folder: Path) -> tuple[Path, Arrays]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32))
    torch.export.save(torch.export.export(model, (torch.randn(2, 32),)), folder / "a.pt2")
    return folder / "a.pt2", {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}


def legacy_tar(folder: Path) -> tuple[Path, Arrays]:
    """torch before 0.2, by hand: nothing writes it any more."""
    array = values(0, 32, 32)
    storages = pickle.dumps(1, 2) + b"\x80\x02K\x05X\x03\0\0\0cpuctorch\nFloatStorage\n\x87." + struct.pack("<q", 1024)
    storages += array.tobytes() + pickle.dumps([], 2)
    tensors = pickle.dumps(1, 2) + b"\x80\x02K\x07K\x05ctorch\nFloatTensor\n\x87."
    tensors += struct.pack("<iiqqqqq", 2, 0, 32, 32, 32, 1, 0)
    parts = {"storages": storages, "tensors": tensors, "pickle": b"\x80\x02}X\x01\0\0\0wK\x07Qs."}
    with tarfile.open(folder / "a.tar.pt", "w") as archive:
        for name, data in parts.items():
            (folder / name).write_bytes(data)
            archive.add(folder / name, name)
            (folder / name).unlink()
    return folder / "a.tar.pt", {"w": array}


FILES: list[Callable[[Path], tuple[Path, Arrays]]] = [
    gguf_file,
    onnx_file,
    hdf5_file,
    msgpack_file,
    flax_by_hand,
    exported_file,
    legacy_tar,
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", FILES, ids=lambda make: make.__name__)
def test_every_tensor_is_where_its_library_put_it(tmp_path: Path, make: Callable[[Path], tuple[Path, Arrays]]) -> None:
    path, arrays = make(tmp_path)
    artifact, data = examine(path), path.read_bytes()
    assert artifact.real, artifact.problems
    tensors = {tensor.name: tensor for tensor in artifact.layout.tensors}
    for name, array in arrays.items():
        tensor = tensors[name]
        assert (tensor.shape, data[tensor.start : tensor.start + tensor.extent]) == (array.shape, array.tobytes()), name
    assert "finite" in artifact.checks
    nan = tensors[next(iter(arrays))].start
    path.write_bytes(data[:nan] + b"\xff\xff\xff\x7f" + data[nan + 4 :])
    assert "nan" in {problem.code for problem in examine(path).problems}
    for share in (0.3, 0.6, 0.95):
        os.truncate(path, int(len(data) * share))
        assert not examine(path).real, share


def test_the_data_beside_an_onnx_model_belongs_to_it(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    path, _ = onnx_file(tmp_path)
    (tmp_path / "e").mkdir()
    onnx.save(
        onnx.load(path), tmp_path / "e" / "b.onnx", save_as_external_data=True, location="b.data", size_threshold=0
    )
    done = call("verify_local", tmp_path / "e", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["unchecked"] == []
    os.truncate(tmp_path / "e" / "b.data", 100)
    assert call("verify_local", tmp_path / "e").returncode == 1


def test_joblib_writes_arrays_into_the_pickle(tmp_path: Path) -> None:
    joblib = pytest.importorskip("joblib")
    for name, compress in (("a.joblib", 0), ("b.joblib", 3)):
        joblib.dump({"w": values(0, 64, 64), "names": np.array(["x", None], dtype=object)}, tmp_path / name, compress)
        assert examine(tmp_path / name).real
    os.truncate(tmp_path / "a.joblib", 8000)
    assert not examine(tmp_path / "a.joblib").real


def test_tensors_of_a_plain_pickle_are_judged_by_value(tmp_path: Path) -> None:
    tensor, path = torch.randn(8, 8), tmp_path / "a.pkl"
    path.write_bytes(pickle.dumps({"w": tensor, "part": tensor[2:4, 1:]}))
    artifact = examine(path)
    assert artifact.real and {one.name: one.shape for one in artifact.layout.tensors} == {"w": (8, 8), "part": (2, 7)}
    tensor[3, 3] = torch.nan
    path.write_bytes(pickle.dumps({"w": tensor}))
    assert "nan" in {problem.code for problem in examine(path).problems}


def test_shards_may_be_in_folders_below_their_index(tmp_path: Path) -> None:
    shards = {"a.weight": "one/model.safetensors", "b.weight": "two/model.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    for name, place in shards.items():
        (tmp_path / place).parent.mkdir()
        save_file({name: torch.randn(8, 8)}, tmp_path / place)
    assert call("verify_local", tmp_path).returncode == 0
    (tmp_path / shards["b.weight"]).unlink()
    assert "is named by model.safetensors.index.json and not there" in call("verify_local", tmp_path).stdout


def test_unknown_files_are_named_and_never_passed_over(tmp_path: Path) -> None:
    (tmp_path / "weights.xyz").write_bytes(os.urandom(5000))
    for path in (tmp_path, tmp_path / "weights.xyz"):
        done = call("verify_local", path, "--json")
        assert (done.returncode, json.loads(done.stdout)["verdict"]) == (1, "unknown")
    assert "nothing was saved" not in call("verify_local", tmp_path).stdout


# -- one training, several files


def test_expected_values_are_what_a_step_can_change(tmp_path: Path) -> None:
    torch.manual_seed(0)
    old = {f"layers.{n}.w": torch.randn(64, 64) for n in range(5)}
    new = {name: tensor + 0.01 * torch.randn(64, 64) for name, tensor in old.items()}
    torch.save(old, tmp_path / "old.pt")
    torch.save(new, tmp_path / "new.pt")
    assert call("verify_local", tmp_path / "new.pt", "--expect", tmp_path / "old.pt").returncode == 0
    new["layers.3.w"] = torch.randn(64, 64)
    torch.save(new, tmp_path / "new.pt")
    done = call("verify_local", tmp_path / "new.pt", "--expect", tmp_path / "old.pt")
    assert done.returncode == 1 and "no training step did that" in done.stdout


def test_a_folder_of_several_models_is_what_it_expects_of_itself(tmp_path: Path) -> None:
    for name, size in (("unet", 32), ("vae", 16)):
        torch.save({f"{name}.{n}.weight": torch.randn(size, size) for n in range(3)}, tmp_path / f"{name}.pt")
    assert call("verify_local", tmp_path, "--expect", tmp_path).returncode == 0
