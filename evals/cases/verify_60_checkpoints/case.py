"""Sixty checkpoints, nine of them damaged in nine ways; most of the damage neither a load nor a NaN check shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from trials.case import Box, Case, same_names
from worlds import weights

FOLDERS = [f"step_{step:05d}" for step in range(100, 4100, 100)]
FILES = [f"opt_{step:05d}.pt" for step in range(20, 420, 20)]
BAD = [
    "step_00700",
    "step_01300",
    "step_01900",
    "step_02400",
    "step_03100",
    "opt_00080.pt",
    "opt_00160.pt",
    "opt_00260.pt",
    "opt_00340.pt",
]


def _huge(data: dict[str, Any]) -> None:
    data["model"]["layers.2.mlp.up.weight"][5, 3] = 3e9


def _lose_a_layer(folder: Path) -> None:
    """A tensor is gone from its shard and from the index: only the siblings know that it belongs there."""
    from safetensors.torch import load_file, save_file

    index = weights.index_of(folder)
    shard = index["weight_map"].pop("layers.3.attn.out.weight")
    tensors = load_file(str(folder / shard))
    lost = tensors.pop("layers.3.attn.out.weight")
    save_file(tensors, str(folder / shard), {"format": "pt"})
    index["metadata"]["total_size"] -= lost.numel() * lost.element_size()
    weights.write_index(folder, index)


def make(box: Box) -> None:
    root = box.work / "ckpts"
    changes = {
        "step_00700": weights.set_nan("layers.2.mlp.down.weight"),
        "step_02400": weights.set_to("head.weight", 0.0),
    }
    for seed, name in enumerate(FOLDERS):
        weights.sharded(root / name, seed, changes.get(name))
    weights.swap_shards(root / "step_01300", 1, 2)
    stale = weights.index_of(root / "step_01900")
    stale["weight_map"]["layers.1.norm.weight"] = "model-00003-of-00003.safetensors"
    weights.write_index(root / "step_01900", stale)
    _lose_a_layer(root / "step_03100")
    for seed, name in enumerate(FILES, 1000):
        step = int(name[4:9])
        weights.torch_file(root / name, seed, step, _huge if name == "opt_00340.pt" else None)
    weights.flip_inside_zip(root / "opt_00080.pt")
    data = bytearray((root / "opt_00160.pt").read_bytes())
    data[len(data) // 3] ^= 0x02  # one bit of one number: loads, finite, only the stored CRC disagrees
    (root / "opt_00160.pt").write_bytes(data)
    whole = (root / "opt_00260.pt").read_bytes()
    (root / "opt_00260.pt").write_bytes(whole[: len(whole) * 9 // 10])


def verify(box: Box) -> list[str]:
    return same_names("bad checkpoints", box.read("bad.json", list), BAD)


def reference(box: Box) -> None:
    bad = set()
    for names, good in ((FOLDERS, "step_00100"), (FILES, "opt_00020.pt")):
        paths = [f"ckpts/{name}" for name in names]
        report = box.script("verify_local.py", *paths, "--expect", f"ckpts/{good}")
        for finding in report["findings"]:
            if finding["severity"] == "error":
                bad.add(Path(finding["path"]).relative_to("ckpts").parts[0])
    box.write("bad.json", sorted(bad))


def naive(box: Box) -> None:
    """Load everything, look for NaN and Inf."""
    import torch
    from safetensors.torch import load_file

    bad = []
    for path in sorted((box.work / "ckpts").iterdir()):
        try:
            if path.is_dir():
                tensors = {k: v for shard in path.glob("*.safetensors") for k, v in load_file(str(shard)).items()}
                json.loads((path / "model.safetensors.index.json").read_text())
            else:
                tensors = torch.load(path, weights_only=True)["model"]
            if not all(bool(torch.isfinite(value).all()) for value in tensors.values()):
                bad.append(path.name)
        except Exception:
            bad.append(path.name)
    box.write("bad.json", bad)


CASE = Case(
    route="is this checkpoint real?",
    reads=(),
    minutes=10,
    commands=20,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="bad.json names exactly the nine damaged checkpoints of sixty.",
)
