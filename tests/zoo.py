"""Healthy checkpoints of every format, made by the libraries that own them (or faithful to their layout)."""

from __future__ import annotations

import argparse
import json
import pickle
import random
import shutil
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn
from torch.distributed.checkpoint.state_dict_saver import save

STEP = 40
RUN_ID = "20261116-083000-tiny-1f00ab"


class Tiny(nn.Module):
    """Everything that ordinary models have and naive checks stumble over."""

    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(64, 32)
        self.proj = nn.Linear(32, 256)  # 32 KiB
        self.out = nn.Linear(256, 32)
        self.norm = nn.LayerNorm(32)
        self.conv = nn.Conv1d(32, 32, 1)
        self.batch = nn.BatchNorm1d(32)
        self.head = nn.Linear(32, 64, bias=False)
        self.head.weight = self.wte.weight  # tied
        nn.init.zeros_(self.out.bias)
        self.register_buffer("mask", torch.full((32, 32), float("-inf")).triu(1))
        self.register_buffer("attn_mask", torch.full((8, 8), torch.finfo(torch.float32).min).triu(1))
        self.register_buffer("position_ids", torch.arange(2_000_000, 2_000_064))
        self.register_buffer("token_type_ids", torch.zeros(1, 64, dtype=torch.long))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.wte(ids))
        hidden = hidden + self.out(self.proj(hidden).relu())
        hidden = self.batch(self.conv(hidden.transpose(1, 2))).transpose(1, 2)
        return torch.as_tensor(self.head(hidden))


def trained(steps: int = STEP) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = Tiny()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        ids = torch.randint(0, 64, (4, 8))
        loss = nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


_MADE: list[tuple[nn.Module, torch.optim.Optimizer]] = []


def model_and_optimizer() -> tuple[nn.Module, torch.optim.Optimizer]:
    if not _MADE:
        _MADE.append(trained())
    return _MADE[0]


def weights() -> dict[str, torch.Tensor]:
    """A model's state dict without ties, as safetensors wants it."""
    state = model_and_optimizer()[0].state_dict()
    return {name: tensor.clone() for name, tensor in state.items() if name != "head.weight"}


def checkpoint() -> dict[str, Any]:
    model, optimizer = model_and_optimizer()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": STEP, "best": float("inf")}


def exotic() -> dict[str, Any]:
    """All dtypes, views and odd shapes."""
    wide = torch.randn(64, 48)
    gaps = torch.randn(16, 16)
    gaps[:, 8:] = float("nan")  # not part of the view that is saved
    torch.manual_seed(1)
    return {
        "bf16": torch.randn(40, 40).bfloat16(),
        "fp16": (torch.randn(40, 40) * 0.002).half(),  # a deep residual projection: 2 % subnormal, healthy
        "f64": torch.randn(5, 5, dtype=torch.float64),
        "e4m3": torch.randn(16, 16).to(torch.float8_e4m3fn),
        "e5m2": torch.randn(16, 16).to(torch.float8_e5m2),
        "e4m3fnuz": torch.randn(16, 16).to(torch.float8_e4m3fnuz),
        "int8": torch.randint(-128, 128, (32, 32), dtype=torch.int8),
        "uint16": torch.arange(10).to(torch.uint16),
        "bool": torch.rand(9, 9) > 0.5,
        "complex": torch.randn(6, 6, dtype=torch.complex64),
        "transposed": wide.t(),
        "slice_with_gaps": gaps[:, :8],
        "expanded": torch.ones(1).expand(7),
        "same_storage": wide[3],
        "empty": torch.empty(0, 4),
        "scalar": torch.tensor(3.5),
        "large_ids": torch.arange(5_000_000, 5_000_010),
        "sparse": torch.eye(4).to_sparse(),
        "parameter": nn.Parameter(torch.randn(3, 3)),
        "args": argparse.Namespace(lr=1e-3, name="x", sizes=[1, 2]),
        "path": Path("data/train.bin"),
        "device": torch.device("cpu"),
        "dtype": torch.bfloat16,
        "rng": {"python": random.getstate(), "numpy": np.random.get_state(), "torch": torch.get_rng_state()},
        "numpy_loss": np.float64(0.5),
    }


# -- files and folders; each takes a folder and returns what to verify


def torch_zip(folder: Path) -> Path:
    torch.save(checkpoint(), folder / "ckpt.pt")
    return folder / "ckpt.pt"


def torch_exotic(folder: Path) -> Path:
    torch.save(exotic(), folder / "exotic.pth")
    return folder / "exotic.pth"


def torch_legacy(folder: Path) -> Path:
    torch.save(checkpoint(), folder / "old.pt", _use_new_zipfile_serialization=False)
    return folder / "old.pt"


def torch_without_crc(folder: Path) -> Path:
    torch.serialization.set_crc32_options(False)
    try:
        return torch_zip(folder)
    finally:
        torch.serialization.set_crc32_options(True)


def torch_big_endian(folder: Path) -> Path:
    """What torch.save writes on s390x: swapped storages and a byteorder record."""
    source = folder / "little.pt"
    torch.save({"w": torch.arange(1.0, 513.0).reshape(16, 32)}, source)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(folder / "big.pt", "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("byteorder"):
                data = b"big"
            elif name.endswith("data/0"):
                data = np.frombuffer(data, "<f4").astype(">f4").tobytes()
            new.writestr(name, data)
    source.unlink()
    return folder / "big.pt"


def torch_zipped_again(folder: Path) -> Path:
    """A .pt that someone unpacked and packed with deflate: torch loads it."""
    source = torch_zip(folder)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(folder / "again.pt", "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    source.unlink()
    return folder / "again.pt"


def torchscript(folder: Path) -> Path:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.as_tensor(self.linear(x))

    torch.jit.save(torch.jit.trace(Plain(), torch.randn(1, 8)), folder / "script.pt")  # type: ignore[no-untyped-call]
    return folder / "script.pt"


def lightning(folder: Path) -> Path:
    model, optimizer = model_and_optimizer()
    callback = {
        "monitor": "val_loss",
        "best_model_score": torch.tensor(float("nan")),
        "kth_value": torch.tensor(float("inf")),
    }
    torch.save(
        {
            "epoch": 1,
            "global_step": STEP,
            "pytorch-lightning_version": "2.5.0",
            "state_dict": model.state_dict(),
            "loops": {"fit_loop": {"state_dict": {}, "epoch_progress": {"current": {"completed": 1}}}},
            "callbacks": {"ModelCheckpoint{'monitor': 'val_loss'}": callback},
            "optimizer_states": [optimizer.state_dict()],
            "lr_schedulers": [{"last_epoch": 1, "_last_lr": [1e-3]}],
            "hparams_name": "kwargs",
            "hyper_parameters": {"lr": 1e-3, "ema": False},
        },
        folder / "epoch=1-step=40.ckpt",
    )
    return folder / "epoch=1-step=40.ckpt"


def safetensors(folder: Path) -> Path:
    tensors = {
        **weights(),
        **{k: v.contiguous() for k, v in exotic().items() if torch.is_tensor(v) and not v.is_sparse},
    }
    plain = {name: tensor.detach().clone() for name, tensor in tensors.items() if name != "e4m3fnuz"}
    save_file(plain, folder / "model.safetensors", metadata={"format": "pt"})
    return folder / "model.safetensors"


def hf_sharded(folder: Path, suffix: str = "safetensors") -> Path:
    names = list(weights())
    shards = [names[:4], names[4:9], names[9:]]
    stem = "model" if suffix == "safetensors" else "pytorch_model"
    weight_map, total = {}, 0
    for number, shard in enumerate(shards, 1):
        file = f"{stem}-{number:05d}-of-{len(shards):05d}.{suffix}"
        tensors = {name: weights()[name] for name in shard}
        save_file(tensors, folder / file) if suffix == "safetensors" else torch.save(tensors, folder / file)
        weight_map.update(dict.fromkeys(shard, file))
        total += sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / f"{stem}.{suffix}.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text("{}")
    return folder


def hf_sharded_bin(folder: Path) -> Path:
    return hf_sharded(folder, "bin")


def hf_trainer(folder: Path, step: int = STEP) -> Path:
    folder = folder / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    save_file(weights(), folder / "model.safetensors")
    torch.save(trained_optimizer(step), folder / "optimizer.pt")
    torch.save({"last_epoch": step, "_last_lr": [1e-3]}, folder / "scheduler.pt")
    torch.save({"python": random.getstate(), "cpu": torch.get_rng_state()}, folder / "rng_state.pth")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": [{"loss": 1.5}]}))
    return folder


def accelerate(folder: Path) -> Path:
    save_file(weights(), folder / "model.safetensors")
    torch.save(model_and_optimizer()[1].state_dict(), folder / "optimizer.bin")
    torch.save({"last_epoch": STEP, "_last_lr": [1e-3]}, folder / "scheduler.bin")
    for rank in range(2):
        states = {
            "step": STEP,
            "random_state": random.getstate(),
            "numpy_random_seed": np.random.get_state(),
            "torch_manual_seed": torch.get_rng_state(),
        }
        torch.save(states, folder / f"random_states_{rank}.pkl")
    return folder


def distributed(folder: Path) -> Path:
    state = checkpoint()
    del state["best"]
    save(state, checkpoint_id=folder / "dcp", no_dist=True)
    return folder / "dcp"


def deepspeed(folder: Path, ranks: int = 2) -> Path:
    tag = folder / f"global_step{STEP}"
    tag.mkdir()
    (folder / "latest").write_text(tag.name)
    model = model_and_optimizer()[0]
    shapes = [OrderedDict((name, tensor.shape) for name, tensor in model.named_parameters())]
    torch.save(
        {
            "module": model.state_dict(),
            "buffer_names": ["mask"],
            "optimizer": None,
            "param_shapes": shapes,
            "global_steps": STEP,
            "skipped_steps": 0,
            "dp_world_size": ranks,
            "mp_world_size": 1,
            "ds_version": "0.15.0",
            "sparse_tensor_module_names": set(),
            "ds_config": {"zero_optimization": {"stage": 2}},
        },
        tag / "mp_rank_00_model_states.pt",
    )
    flat = torch.cat([tensor.detach().flatten() for tensor in model.parameters()])
    for rank, part in enumerate(flat.chunk(ranks)):
        state = {"step": STEP, "exp_avg": torch.randn_like(part) * 1e-3, "exp_avg_sq": torch.rand_like(part) * 1e-6}
        torch.save(
            {
                "optimizer_state_dict": {
                    "base_optimizer_state": {"state": {0: state}, "param_groups": [{"params": [0]}]},
                    "single_partition_of_fp32_groups": [part.clone()],
                    "zero_stage": 2,
                    "group_paddings": [0],
                    "partition_count": [ranks],
                },
                "ds_version": "0.15.0",
            },
            tag / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt",
        )
    return folder


def old_pickles(folder: Path) -> Path:
    """Protocol 0, with an array whose bytes are a string; several in one file; an array of objects."""
    weights = np.random.default_rng(0).standard_normal(64)
    for protocol in (0, 1, 2):
        (folder / f"protocol{protocol}.pkl").write_bytes(pickle.dumps({"w": weights}, protocol))
    python2 = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I2\nt"
    python2 += b"cnumpy\ndtype\n(S'i1'\nI0\nI1\ntR"
    (folder / "python2.pkl").write_bytes(python2 + b"(I3\nS'|'\nNNNI-1\nI-1\nI0\ntbI00\nS'\\x80\\xff'\ntb.")
    (folder / "several.pkl").write_bytes(pickle.dumps([1]) + pickle.dumps({"a": 2}))
    (folder / "objects.pkl").write_bytes(pickle.dumps({"a": np.array([{"b": 1}, None], dtype=object)}))
    return folder


def numpy_arrays(folder: Path) -> Path:
    generator = np.random.default_rng(0)
    np.save(folder / "features.npy", generator.standard_normal((100, 40)).astype("f4"))
    np.save(folder / "fortran.npy", np.asfortranarray(generator.standard_normal((7, 5))))
    np.save(folder / "big_endian.npy", generator.standard_normal((7, 5)).astype(">f8"))
    np.save(folder / "empty.npy", np.empty((0, 3)))
    np.save(folder / "scalar.npy", np.array(1.5))
    np.save(folder / "words.npy", np.array(["cat", "dog"]))
    np.save(folder / "records.npy", np.zeros(3, dtype=[("id", "i4"), ("score", "f8", (2,))]))
    np.savez(folder / "plain.npz", a=generator.standard_normal((9, 9)), labels=np.zeros(50, np.int64))
    np.savez_compressed(folder / "packed.npz", big=np.tile(generator.standard_normal(1000), 600).reshape(600, 1000))
    return folder


def run_directory(folder: Path) -> Path:
    run = folder / RUN_ID
    (run / "checkpoints").mkdir(parents=True)
    entries = []
    for step in (STEP - 20, STEP):
        path = run / "checkpoints" / f"step_{step:06d}.pt"
        torch.save({**checkpoint(), "optimizer": trained_optimizer(step), "step": step}, path)
        entries.append({"path": f"checkpoints/{path.name}", "step": step, "time": 1.0, "bytes": path.stat().st_size})
    (run / "checkpoints_index.json").write_text(json.dumps({"checkpoints": entries}))
    (run / "run.json").write_text(json.dumps({"run_id": RUN_ID, "config": {"lr": 1e-3}}))
    rows = [{"step": step, "time": 1.0, "split": "train", "loss": 2.0 if step else "NaN"} for step in range(STEP + 1)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    metric = {"name": "loss", "value": 1.5, "split": "val", "n": 10, "direction": "down"}
    (run / "results.json").write_text(json.dumps({"run_id": RUN_ID, "metrics": [metric]}))
    return run


def trained_optimizer(step: int) -> dict[str, Any]:
    state = model_and_optimizer()[1].state_dict()
    moments = {number: {**entry, "step": torch.tensor(float(step))} for number, entry in state["state"].items()}
    return {**state, "state": moments}


def fresh(folder: Path) -> Path:
    """A checkpoint of step 0: zero-initialised adapter, optimizer that never stepped."""
    model = {"lora_A.weight": torch.randn(4, 32), "lora_B.weight": torch.zeros(32, 4)}
    torch.save({"model": model, "step": 0}, folder / "step_0.pt")
    return folder / "step_0.pt"


HEALTHY: tuple[Callable[[Path], Path], ...] = (
    torch_zip,
    torch_exotic,
    torch_legacy,
    torch_without_crc,
    torch_big_endian,
    torch_zipped_again,
    torchscript,
    lightning,
    safetensors,
    hf_sharded,
    hf_sharded_bin,
    hf_trainer,
    accelerate,
    distributed,
    deepspeed,
    numpy_arrays,
    old_pickles,
    run_directory,
    fresh,
)


def hub_cache(folder: Path) -> Path:
    """The hub's cache: a snapshot of links to blobs."""
    snapshot = folder / "models--x--y" / "snapshots" / "abc"
    blobs = folder / "models--x--y" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    shutil.move(safetensors(folder), blobs / "0123456789abcdef")
    (snapshot / "model.safetensors").symlink_to(blobs / "0123456789abcdef")
    return folder
