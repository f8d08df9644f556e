"""What other people's libraries write and is healthy, and the damage to it that no checksum would tell."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rgt.checkpoint import verify
from rgt.checkpoint.examine import Options, examine
from rgt.checkpoint.survey import survey

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from . import zoo

MIB = 1 << 20
Make = Callable[[Path], Path]


def word(path: Path) -> tuple[str, list[str]]:
    verdict = verify.verify(survey(path), Options(), jobs=1)
    return verdict.word, [f"{one.severity} {one.code}: {one.message}" for _, one in verdict.problems]


def layers(count: int = 3) -> dict[str, torch.Tensor]:
    return {f"layers.{n}.weight": torch.randn(16, 16) for n in range(count)}


def saved(state: Any, **how: Any) -> Make:
    def make(folder: Path) -> Path:
        torch.save(state() if callable(state) else state, folder / "x.pt", **how)
        return folder / "x.pt"

    return make


# -- healthy


class Module(torch.nn.Module):
    """Of somebody: loading it imports this file."""


def single_rank(folder: Path, make: Callable[[], Any]) -> Path:
    """Saved while a group of one rank exists, as a sharded tensor needs it."""
    from torch._C._distributed_c10d import HashStore

    torch.distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        return saved({"w": make()})(folder)
    finally:
        torch.distributed.destroy_process_group()


def dtensor(folder: Path) -> Path:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    return single_rank(folder, lambda: distribute_tensor(torch.randn(8, 8), init_device_mesh("cpu", (1,)), [Shard(0)]))


def sharded_tensor(folder: Path) -> Path:
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.sharding_spec import ChunkShardingSpec

    spec = ChunkShardingSpec(0, ["rank:0/cpu"])
    return single_rank(folder, lambda: sharded_tensor.rand(spec, 8, 8))


def one_file_per_tensor(folder: Path) -> Path:
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    ones = {f"norm.{n}.weight": torch.ones(64) for n in range(3)}  # the same bytes in three files
    twins = {"model": layers(), "ema": layers()} | ones
    twins["ema"] = dict(twins["model"])
    save(twins, storage_writer=FileSystemWriter(folder / "dcp", single_file_per_rank=False), no_dist=True)
    assert len(list((folder / "dcp").glob("*.distcp"))) > 5
    return folder / "dcp"


def enums_by_name(folder: Path) -> Path:
    """As Python 3.11.0 to 3.11.3 write it, whichever Python this is."""
    from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING as ENCODING

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ENCODING, "__reduce_ex__", lambda self, protocol: (getattr, (ENCODING, self.name)))
        return one_file_per_tensor(folder)


def variant_shards(folder: Path) -> Path:
    names = {f"layers.{n}.weight": f"model.fp16-0000{n + 1}-of-00002.safetensors" for n in range(2)}
    for name, file in names.items():
        save_file({name: torch.randn(8, 8)}, folder / file)
    (folder / "model.safetensors.index.fp16.json").write_text(json.dumps({"weight_map": names}))
    return folder


def two_values_in_a_byte(folder: Path) -> Path:
    header = json.dumps({"w": {"dtype": "F4", "shape": [8, 8], "data_offsets": [0, 32]}}).encode()
    (folder / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(range(1, 33)))
    return folder / "x.safetensors"


def no_tensor(folder: Path) -> Path:
    save_file({}, folder / "extra.safetensors")
    return folder / "extra.safetensors"


def arrays_that_are_no_weights(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    np.savez(folder / "io.npz", output_0=rng.normal(size=(4, 7)) * 1e8, inv_cov=np.diag(np.full(25, 4e7)))
    np.savez(folder / "baseline.npz", values=np.zeros((4, 6)))
    np.save(folder / "fluxes.npy", np.where(np.arange(900).reshape(30, 30) == 7, 1.7e16, 1.0))
    return folder


def plain_pickle(folder: Path) -> Path:
    regrets: Any = defaultdict(np.array, {"s": np.ones(3)})  # type: ignore[arg-type]
    content = {"regrets": regrets, "large": {"w": np.random.rand(100, 100)}}
    (folder / "policy.pkl").write_bytes(pickle.dumps(content))
    return folder / "policy.pkl"


def pipeline_stages(folder: Path) -> Path:
    """DeepSpeed's pipeline: a file for each layer, also for those without parameters."""
    torch.save({"weight": torch.randn(8, 8)}, folder / "layer_00-model_00-model_states.pt")
    torch.save(OrderedDict(), folder / "layer_01-model_00-model_states.pt")
    return folder


def of_other_libraries(folder: Path) -> Path:
    (folder / "counter.ckpt").write_text("12")  # SpeechBrain
    torch.save(layers(), folder / "model.ckpt")
    (folder / "cc.bin").write_bytes(b"\xba\x16\x4f\x2f" + bytes(range(200)))  # fastText
    (folder / "model.bin").write_bytes(b"\x06\0\0\0\x10\0TransformerSpec\0" + bytes(range(200)))  # CTranslate2
    return folder


def training_args(folder: Path) -> Path:
    generation = pytest.importorskip("transformers").GenerationConfig(max_length=3)
    return saved({"generation_config": generation, "model": layers()})(folder)


def quantised() -> dict[str, Any]:
    scales, points = torch.rand(16) + 0.1, torch.zeros(16)
    four = torch.quantize_per_channel(torch.randn(16, 16), scales, points, 0, torch.quint4x2)
    eight = torch.quantize_per_channel(torch.randn(16, 16), scales.double(), points.long(), 0, torch.qint8)
    return {"four": four, "eight": eight}


def large_where_that_is_ordinary() -> dict[str, Any]:
    moments = {0: {"step": torch.tensor(9.0), "exp_avg_sq": torch.full((16, 16), 3e9) * torch.rand(16, 16)}}
    model = {**layers(), "bn.running_var": torch.rand(16) * 1e8}
    return {"model": model, "optimizer": {"state": moments, "param_groups": []}, "scaler": {"scale": 2.0**32}}


HEALTHY: dict[str, Make] = {
    "builtins as protocol 2 spells them": saved({"a": defaultdict(int), "b": slice(1, 2), "c": range(3), "d": b""}),
    "dtensor": dtensor,
    "sharded tensor": sharded_tensor,
    "large optimizer state, variance, loss scale": saved(large_where_that_is_ordinary),
    "variant shards": variant_shards,
    "F4": two_values_in_a_byte,
    "quantised": saved(quantised),
    "nested": saved(lambda: {"w": torch.nested.nested_tensor([torch.randn(3), torch.randn(4)])}),
    "legacy of protocol 3": saved(layers, pickle_protocol=3, _use_new_zipfile_serialization=False),
    "numpy's generator": saved(lambda: {"rng": np.random.default_rng(0), "model": layers()}),
    "training_args": training_args,
    "use_ema=False": saved(lambda: {"args": argparse.Namespace(use_ema=False), "model": layers()}),
    "fresh adapter": saved(lambda: {"l.0.lora_A.weight": torch.randn(4, 16), "l.0.lora_B.weight": torch.zeros(16, 4)}),
    "fresh codebook": saved(lambda: {**layers(), "quantizer.embed": torch.zeros(32, 8)}),
    "one file per tensor": one_file_per_tensor,
    "enums by name": enums_by_name,
    "no tensor": no_tensor,
    "arrays that are no weights": arrays_that_are_no_weights,
    "plain pickle": plain_pickle,
    "pipeline stages": pipeline_stages,
    "other libraries": of_other_libraries,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_files_of_strangers(tmp_path: Path, name: str) -> None:
    torch.manual_seed(0)
    found = word(HEALTHY[name](tmp_path))
    assert found[0] == "sound", found


@pytest.mark.parametrize("zipped", [True, False])
def test_a_whole_module_imports_code_of_strangers(tmp_path: Path, zipped: bool) -> None:
    """The old format writes the source of the class beside it, and takes the class for it."""
    path = saved(Module, _use_new_zipfile_serialization=zipped)(tmp_path)
    assert word(path)[0] == "strangers" and any(name.endswith(".Module") for name in examine(path).strangers)


def test_a_model_without_tensors_is_a_failed_save(tmp_path: Path) -> None:
    save_file({}, tmp_path / "model.safetensors")
    assert word(tmp_path / "model.safetensors")[0] == "damaged"


def test_a_weight_among_arrays_is_still_judged(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).normal(size=(30, 30))
    weight[3, 3] = 3e30
    arrays: dict[str, Any] = {"layers.0.weight": weight}
    np.savez(tmp_path / "x.npz", **arrays)
    assert word(tmp_path / "x.npz")[0] == "damaged"


# -- damaged, in files without a checksum


def dense(rows: int = 700, columns: int = 500) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    return {f"layers.{n}.weight": rng.normal(size=(rows, columns)).astype("f4") for n in range(3)}


def joblib_file(folder: Path) -> Path:
    pytest.importorskip("joblib").dump(dense(), folder / "m.joblib")
    return folder / "m.joblib"


def pickle_file(folder: Path) -> Path:
    (folder / "m.pkl").write_bytes(pickle.dumps(dense(), protocol=4))
    return folder / "m.pkl"


def npy_file(folder: Path) -> Path:
    np.save(folder / "m.npy", dense()["layers.0.weight"])
    return folder / "m.npy"


def safetensors_file(folder: Path) -> Path:
    save_file({name: torch.from_numpy(array) for name, array in dense().items()}, folder / "m.safetensors")
    return folder / "m.safetensors"


def pickled_tensors(folder: Path) -> Path:
    (folder / "t.pkl").write_bytes(pickle.dumps({name: torch.from_numpy(array) for name, array in dense().items()}))
    return folder / "t.pkl"


legacy_file = saved(
    lambda: {name: torch.from_numpy(array) for name, array in dense().items()}, _use_new_zipfile_serialization=False
)


def int8_file(folder: Path) -> Path:
    weights = np.random.default_rng(0).integers(-127, 128, (1500, 1531), dtype=np.int8)
    save_file({"layers.0.weight": torch.from_numpy(weights)}, folder / "m.safetensors")
    return folder / "m.safetensors"


LOST = [(make, 4096) for make in (joblib_file, pickle_file, npy_file, safetensors_file, pickled_tensors)]


@pytest.mark.parametrize(("make", "size"), [*LOST, (legacy_file, 60 << 10), (int8_file, MIB), (int8_file, 4096)])
@pytest.mark.parametrize("what", ["zeros", "copy"])
def test_a_lost_or_repeated_page_is_found(tmp_path: Path, make: Make, size: int, what: str) -> None:
    path = make(tmp_path)
    assert word(path)[0] == "sound"
    data = bytearray(path.read_bytes())
    data[409600 : 409600 + size] = bytes(size) if what == "zeros" else data[49152 : 49152 + size]
    path.write_bytes(data)
    found = word(path)
    assert found[0] == "damaged" and any("hole" in one or "duplicate" in one for one in found[1]), found


def sharded_model_states(folder: Path) -> Path:
    """ZeRO-3: each rank has its model states, too; experts in files of their own."""
    zoo.deepspeed(folder)
    tag = folder / "global_step40"
    (tag / "mp_rank_00_model_states.pt").rename(tag / "zero_pp_rank_0_mp_rank_00_model_states.pt")
    state = torch.load(tag / "zero_pp_rank_0_mp_rank_00_model_states.pt", weights_only=False)
    torch.save(state, tag / "zero_pp_rank_1_mp_rank_00_model_states.pt")
    for expert in range(3):
        torch.save({"w": torch.randn(8, 8)}, tag / f"layer_0_expert_{expert}_mp_rank_00_model_states.pt")
        torch.save({"optimizer": {"w": torch.randn(8, 8)}}, tag / f"expp_rank_{expert}_mp_rank_00_optim_states.pt")
    return folder


def tokens_and_configs(folder: Path) -> Path:
    save_file(layers(), folder / "model.safetensors")
    save_file(layers(), folder / "adapter_model.safetensors")
    for name in ("config.json", "adapter_config.json"):
        (folder / name).write_text(json.dumps({"hidden_size": 16}))
    (folder / "tokenizer.model").write_bytes(b"\x0a\x0e\x0a\x05<unk>" * 100)
    return folder


def by_world_size(folder: Path) -> Path:
    for rank in range(4):
        torch.save(layers(), folder / f"model_world_size_4_rank_{rank}.pt")
    return folder


def random_states(folder: Path) -> Path:
    for rank in range(3):
        torch.save({"rng": torch.get_rng_state(), "w": torch.randn(8, 8)}, folder / f"rng_state_{rank}.pth")
    return folder


def swap(one: str, other: str) -> Callable[[Path], Any]:
    def swapped(folder: Path) -> None:
        (folder / one).rename(folder / "kept")
        (folder / other).rename(folder / one)
        (folder / "kept").rename(folder / other)

    return swapped


def lost(name: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).unlink()


ZERO = "global_step40/zero_pp_rank_{}_mp_rank_00_{}_states.pt"
WORLD = "model_world_size_4_rank_{}.pt"
RANKS: dict[str, tuple[Make, Callable[[Path], Any]]] = {
    "model states of a rank": (sharded_model_states, lost(ZERO.format(1, "model"))),
    "an expert": (sharded_model_states, lost("global_step40/layer_0_expert_1_mp_rank_00_model_states.pt")),
    "optimizer of experts": (sharded_model_states, lost("global_step40/expp_rank_0_mp_rank_00_optim_states.pt")),
    "ranks swapped": (sharded_model_states, swap(ZERO.format(0, "optim"), ZERO.format(1, "optim"))),
    "last of the world": (by_world_size, lost(WORLD.format(3))),
    "world swapped": (by_world_size, swap(WORLD.format(0), WORLD.format(2))),
    "random states copied": (
        random_states,
        lambda at: shutil.copy(at / "rng_state_0.pth", at / "rng_state_1.pth"),
    ),
    "rank copied": (by_world_size, lambda at: shutil.copy(at / WORLD.format(1), at / WORLD.format(2))),
    "config cut": (tokens_and_configs, lambda at: os.truncate(at / "config.json", 9)),
    "adapter config cut": (tokens_and_configs, lambda at: os.truncate(at / "adapter_config.json", 9)),
    "tokenizer zeroed": (tokens_and_configs, lambda at: (at / "tokenizer.model").write_bytes(bytes(700))),
}


@pytest.mark.parametrize("name", RANKS)
def test_a_set_of_files_that_is_not_whole(tmp_path: Path, name: str) -> None:
    make, damage = RANKS[name]
    folder = make(tmp_path)
    assert word(folder)[0] == "sound", word(folder)
    damage(folder)
    assert word(folder)[0] == "damaged"


# -- what a checkpoint says of itself


def test_no_training_accumulates_hundreds_of_steps(tmp_path: Path) -> None:
    state = {"model": layers(), "optimizer": zoo.trained_optimizer(6), "step": 4500}
    found = examine(saved(state)(tmp_path)).problems
    assert [one.message for one in found if one.code == "step"] == [
        "the file says step 4500, the optimizer made 6: nobody accumulates so many"
    ]
