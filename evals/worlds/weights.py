"""Small checkpoints that look like those of a training, whole or damaged in ways that no size and no load shows."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

LAYERS = 4
WIDTH = 24


def state(seed: int, dtype: str = "float32") -> dict[str, Any]:
    """The weights of a small transformer after `seed` steps."""
    import torch

    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Any:
        return (torch.randn(*shape, generator=generator) * 0.02).to(getattr(torch, dtype))

    weights = {"embed.weight": normal(128, WIDTH)}
    for layer in range(LAYERS):
        weights[f"layers.{layer}.attn.qkv.weight"] = normal(3 * WIDTH, WIDTH)
        weights[f"layers.{layer}.attn.out.weight"] = normal(WIDTH, WIDTH)
        weights[f"layers.{layer}.mlp.up.weight"] = normal(4 * WIDTH, WIDTH)
        weights[f"layers.{layer}.mlp.down.weight"] = normal(WIDTH, 4 * WIDTH)
        weights[f"layers.{layer}.norm.weight"] = 1 + normal(WIDTH)
    weights["head.weight"] = normal(128, WIDTH)
    return weights


def sharded(folder: Path, seed: int, change: Callable[[dict[str, Any]], None] | None = None) -> Path:
    """A Hugging Face checkpoint in three shards with its index."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    weights = state(seed)
    if change:
        change(weights)
    names = list(weights)
    third = len(names) // 3
    index: dict[str, str] = {}
    for number, part in enumerate([names[:third], names[third : 2 * third], names[2 * third :]], 1):
        shard = f"model-{number:05d}-of-00003.safetensors"
        save_file({name: weights[name] for name in part}, str(folder / shard), {"format": "pt"})
        index |= dict.fromkeys(part, shard)
    total = sum(value.numel() * value.element_size() for value in weights.values())
    write_index(folder, {"metadata": {"total_size": total}, "weight_map": index})
    (folder / "config.json").write_text('{"model_type": "tiny", "num_layers": 4}\n', encoding="utf-8")
    return folder


def write_index(folder: Path, index: dict[str, Any]) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1), encoding="utf-8")


def torch_file(path: Path, seed: int, step: int, change: Callable[[dict[str, Any]], None] | None = None) -> Path:
    """A training checkpoint: weights, Adam's moments, the step."""
    import torch

    path.parent.mkdir(parents=True, exist_ok=True)
    weights = state(seed)
    moments = {
        number: {"step": torch.tensor(float(step)), "exp_avg": value * 0.1, "exp_avg_sq": value.square() + 1e-8}
        for number, value in enumerate(weights.values())
    }
    groups = [{"lr": 3e-4, "betas": (0.9, 0.95), "params": list(range(len(weights)))}]
    data = {"model": weights, "optimizer": {"state": moments, "param_groups": groups}, "step": step}
    if change:
        change(data)
    torch.save(data, path)
    return path


def set_nan(name: str) -> Callable[[dict[str, Any]], None]:
    def change(weights: dict[str, Any]) -> None:
        weights[name].view(-1)[7] = float("nan")

    return change


def set_to(name: str, value: float) -> Callable[[dict[str, Any]], None]:
    def change(weights: dict[str, Any]) -> None:
        weights[name].fill_(value)

    return change


def swap_shards(folder: Path, one: int, other: int) -> None:
    """The contents of two shards change places: each file is whole, the index is wrong."""
    a, b = (folder / f"model-{number:05d}-of-00003.safetensors" for number in (one, other))
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)
