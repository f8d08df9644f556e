"""Small checkpoints that look like those of a training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

LAYERS = 4
WIDTH = 24


def state(seed: int) -> dict[str, Any]:
    """The weights of a small transformer after `seed` steps."""
    import torch

    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, generator=generator) * 0.02

    weights = {"embed.weight": normal(128, WIDTH)}
    for layer in range(LAYERS):
        weights[f"layers.{layer}.attn.qkv.weight"] = normal(3 * WIDTH, WIDTH)
        weights[f"layers.{layer}.attn.out.weight"] = normal(WIDTH, WIDTH)
        weights[f"layers.{layer}.mlp.up.weight"] = normal(4 * WIDTH, WIDTH)
        weights[f"layers.{layer}.mlp.down.weight"] = normal(WIDTH, 4 * WIDTH)
        weights[f"layers.{layer}.norm.weight"] = 1 + normal(WIDTH)
    weights["head.weight"] = normal(128, WIDTH)
    return weights


def sharded(folder: Path, weights: dict[str, Any]) -> None:
    """A Hugging Face checkpoint in three shards with its index."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    names = list(weights)
    third = len(names) // 3
    index: dict[str, str] = {}
    for number, part in enumerate([names[:third], names[third : 2 * third], names[2 * third :]], 1):
        shard = f"model-{number:05d}-of-00003.safetensors"
        save_file({name: weights[name] for name in part}, str(folder / shard), {"format": "pt"})
        index |= dict.fromkeys(part, shard)
    total = sum(value.numel() * value.element_size() for value in weights.values())
    listed = json.dumps({"metadata": {"total_size": total}, "weight_map": index}, indent=1)
    (folder / "model.safetensors.index.json").write_text(listed, encoding="utf-8")
    (folder / "config.json").write_text('{"model_type": "tiny", "num_layers": 4}\n', encoding="utf-8")


def training(seed: int, step: int) -> dict[str, Any]:
    """What a training saves: weights, Adam's moments, the step."""
    import torch

    weights = state(seed)
    moments = {
        number: {"step": torch.tensor(float(step)), "exp_avg": value * 0.1, "exp_avg_sq": value.square() + 1e-8}
        for number, value in enumerate(weights.values())
    }
    groups = [{"lr": 3e-4, "betas": (0.9, 0.95), "params": list(range(len(weights)))}]
    return {"model": weights, "optimizer": {"state": moments, "param_groups": groups}, "step": step}


def torch_file(path: Path, seed: int, step: int) -> Path:
    import torch

    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(training(seed, step), path)
    return path
