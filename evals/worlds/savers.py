"""Checkpoints of one small model as seven trainers lay them out, and the damage that a kill, a disk or a copy does."""

from __future__ import annotations

import json
import os
import random
import shutil
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from worlds import weights

Change = Callable[[dict[str, Any]], None]
Saver = Callable[..., Path]


def parts(step: int, change: Change | None = None) -> dict[str, Any]:
    """Weights and an optimizer that made `step` steps; `change` may spoil them before they are written."""
    found = weights.training(step, step)
    if change:
        change(found)
    return found


def nanogpt(run: Path, step: int, change: Change | None = None, name: str = "") -> Path:
    import torch

    found = parts(step, change)
    shape = {"n_layer": weights.LAYERS, "n_embd": weights.WIDTH, "vocab_size": 128}
    optimizer = {"optimizer": found["optimizer"]} if "optimizer" in found else {}
    state = {"model": found["model"], **optimizer, "model_args": shape, "iter_num": found["step"],
             "best_val_loss": 3.1 - step / 9000, "config": {"batch_size": 12, "dtype": "float32"}}  # fmt: skip
    path = run / (name or f"ckpt_{step}.pt")
    run.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)
    return path


def trainer(run: Path, step: int, change: Change | None = None, ranks: int = 1) -> Path:
    import torch

    folder = run / f"checkpoint-{step}"
    found = parts(step, change)
    weights.sharded(folder, found["model"])
    torch.save(found["optimizer"], folder / "optimizer.pt")
    torch.save({"last_epoch": step, "_step_count": step + 1, "base_lrs": [3e-4]}, folder / "scheduler.pt")
    for rank in range(ranks):
        name = f"rng_state_{rank}.pth" if ranks > 1 else "rng_state.pth"
        torch.save({"python": (3, (1, 2, rank), None), "cpu": torch.ones(16, dtype=torch.uint8)}, folder / name)
    history = [{"step": s, "loss": 3 - s / 9000} for s in range(100, step + 1, 100)]
    state = {"global_step": found["step"], "max_steps": 5000, "log_history": history}
    (folder / "trainer_state.json").write_text(json.dumps(state, indent=2))
    return folder


def accelerate(run: Path, step: int, change: Change | None = None, ranks: int = 2) -> Path:
    import numpy as np
    import torch
    from safetensors.torch import save_file

    folder = run / f"step_{step}"
    folder.mkdir(parents=True)
    found = parts(step, change)
    save_file(found["model"], str(folder / "model.safetensors"), {"format": "pt"})
    torch.save(found["optimizer"], folder / "optimizer.bin")
    torch.save({"last_epoch": step, "_last_lr": [3e-4]}, folder / "scheduler.bin")
    for rank in range(ranks):
        states = {"step": step, "random_state": random.Random(rank).getstate(),
                  "numpy_random_seed": np.random.RandomState(rank).get_state(),
                  "torch_manual_seed": torch.ones(16, dtype=torch.uint8)}  # fmt: skip
        torch.save(states, folder / f"random_states_{rank}.pkl")
    return folder


def lightning(run: Path, step: int, change: Change | None = None, name: str = "") -> Path:
    import torch

    found = parts(step, change)
    path = run / "checkpoints" / (name or f"epoch={step // 250}-step={step}.ckpt")
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {f"net.{key}": value for key, value in found["model"].items()}
    loops = {"fit_loop": {"epoch_progress": {"current": {"completed": step // 250}}}}
    torch.save(
        {"epoch": step // 250, "global_step": found["step"], "pytorch-lightning_version": "2.5.1", "state_dict": state,
         "loops": loops, "callbacks": {}, "optimizer_states": [found["optimizer"]],
         "lr_schedulers": [{"last_epoch": step}]},
        path,
    )  # fmt: skip
    return path


def litgpt(run: Path, step: int, change: Change | None = None) -> Path:
    import torch

    folder = run / f"step-{step:08d}"
    folder.mkdir(parents=True)
    found = parts(step, change)
    torch.save({**found, "iter_num": 4 * step, "step_count": step}, folder / "lit_model.pth")
    (folder / "model_config.yaml").write_text(f"name: tiny\nn_layer: {weights.LAYERS}\nn_embd: {weights.WIDTH}\n")
    return folder


def distributed(run: Path, step: int, change: Change | None = None) -> Path:
    from torch.distributed.checkpoint.state_dict_saver import save

    found = parts(step, change)
    save({"app": found}, checkpoint_id=run / f"step-{step}", no_dist=True)
    return run / f"step-{step}"


def deepspeed(run: Path, step: int, change: Change | None = None, ranks: int = 2) -> Path:
    import torch

    tag = run / f"global_step{step}"
    tag.mkdir(parents=True)
    (run / "latest").write_text(tag.name)
    found = parts(step, change)
    model = found["model"]
    torch.save(
        {"module": model, "optimizer": None, "param_shapes": [OrderedDict((n, v.shape) for n, v in model.items())],
         "global_steps": found["step"], "dp_world_size": ranks, "mp_world_size": 1, "ds_version": "0.16.4",
         "ds_config": {"zero_optimization": {"stage": 2}}},
        tag / "mp_rank_00_model_states.pt",
    )  # fmt: skip
    flat = torch.cat([value.flatten() for value in model.values()])
    for rank, piece in enumerate(flat.chunk(ranks)):
        state = {"step": step, "exp_avg": piece * 0.1, "exp_avg_sq": piece.square() + 1e-8}
        torch.save(
            {"optimizer_state_dict": {"base_optimizer_state": {"state": {0: state}, "param_groups": [{"params": [0]}]},
             "single_partition_of_fp32_groups": [piece.clone()], "zero_stage": 2, "group_paddings": [0],
             "partition_count": [ranks]}, "ds_version": "0.16.4"},
            tag / f"zero_pp_rank_{rank}_mp_rank_00_optim_states.pt",
        )  # fmt: skip
    return tag


# -- spoiled before it was written


def bad_value(value: float, name: str = "layers.2.mlp.up.weight") -> Change:
    def change(found: dict[str, Any]) -> None:
        found["model"][name].view(-1)[-5] = value

    return change


def bad_moment(found: dict[str, Any]) -> None:
    found["optimizer"]["state"][6]["exp_avg_sq"].view(-1)[3] = float("nan")


def optimizer_of_step(step: int) -> Change:
    return lambda found: found.update(optimizer=parts(step)["optimizer"])


def optimizer_of_another_model(found: dict[str, Any]) -> None:
    for state in found["optimizer"]["state"].values():
        for name in ("exp_avg", "exp_avg_sq"):
            state[name] = state[name][..., :7].repeat(*[1] * (state[name].dim() - 1), 3).contiguous()


def fresh_optimizer(found: dict[str, Any]) -> None:
    for state in found["optimizer"]["state"].values():
        for name in ("exp_avg", "exp_avg_sq"):
            state[name].zero_()


def says_step(step: int) -> Change:
    return lambda found: found.update(step=step)


def weights_only(found: dict[str, Any]) -> None:
    del found["optimizer"]


# -- spoiled on the disk


def cut(path: Path, keep: float = 0.6) -> None:
    os.truncate(path, int(path.stat().st_size * keep))


def zero_tail(path: Path, keep: float = 0.6) -> None:
    """The size was set, the last blocks were never written."""
    size = path.stat().st_size
    cut(path, keep)
    os.truncate(path, size)


def flip(path: Path) -> None:
    """One bit inside the largest storage: the file still loads."""
    with zipfile.ZipFile(path) as archive:
        largest = max(archive.infolist(), key=lambda info: info.file_size)
    data = bytearray(path.read_bytes())
    data[largest.header_offset + 200 + largest.file_size // 2] ^= 0x10
    path.write_bytes(data)


def drop(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        (folder / name).unlink()


def as_if_from(path: Path, minutes: float) -> None:
    for each in [path, *path.rglob("*")] if path.is_dir() else [path]:
        os.utime(each, (1_790_000_000 + 60 * minutes,) * 2)


def swap(folder: Path, one: str, other: str) -> None:
    shutil.move(folder / one, folder / "x")
    shutil.move(folder / other, folder / one)
    shutil.move(folder / "x", folder / other)
