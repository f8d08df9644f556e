"""Formats of other libraries: the library writes, what is read agrees with it, and a cut file never passes."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rgt.checkpoint.examine import examine

import numpy as np
import pytest
import torch

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


def exported_file(folder: Path) -> tuple[Path, Arrays]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 32))
    torch.export.save(torch.export.export(model, (torch.randn(2, 32),)), folder / "a.pt2")
    return folder / "a.pt2", {name: tensor.detach().numpy() for name, tensor in model.state_dict().items()}


FILES: list[Callable[[Path], tuple[Path, Arrays]]] = [
    gguf_file,
    onnx_file,
    exported_file,
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
    for share in (0.3, 0.6, 0.95):
        os.truncate(path, int(len(data) * share))
        assert not examine(path).real, share


def hdf5_file(path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file["layers/dense/kernel"] = values(0, 64, 64)


def msgpack_file(path: Path) -> None:
    """{"params": {"w": array}, "step": [3, 1.5, None], "names": {"a": "b" * 40}} as flax writes it"""
    array = b"\x93\x92\x08\x08\xa7float32\xc5\x01\x00" + values(0, 8, 8).tobytes()
    array = b"\xc8" + struct.pack(">HB", len(array), 1) + array
    step = b"\xa4step\xdc\x00\x03\x03\xcb" + struct.pack(">d", 1.5) + b"\xc0"
    path.write_bytes(b"\x83\xa6params\x81\xa1w" + array + step + b"\xa5names\xde\x00\x01\xa1a\xd9\x28" + b"b" * 40)


@pytest.mark.parametrize("make", [hdf5_file, msgpack_file])
def test_what_is_not_judged_by_value_is_still_whole(tmp_path: Path, make: Callable[[Path], None]) -> None:
    path = tmp_path / f"a.{'h5' if make is hdf5_file else 'msgpack'}"
    make(path)
    assert [(problem.code, problem.severity) for problem in examine(path).problems] == [("unjudged", "info")]
    for keep in range(1, path.stat().st_size, 97):
        data = path.read_bytes()
        path.write_bytes(data[:keep])
        assert not examine(path).real, keep
        path.write_bytes(data)


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


def test_each_rank_has_a_file_of_its_own(tmp_path: Path) -> None:
    for rank in range(3):
        torch.save({"rng": torch.get_rng_state(), "w": torch.randn(8, 8)}, tmp_path / f"rng_state_{rank}.pth")
    assert call("verify_local", tmp_path).returncode == 0
    (tmp_path / "rng_state_1.pth").write_bytes((tmp_path / "rng_state_0.pth").read_bytes())
    done = call("verify_local", tmp_path)
    assert done.returncode == 1 and "was saved as rng_state_0" in done.stdout
