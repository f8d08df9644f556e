"""Hugging Face folders: the index against its shards, the companions of a Trainer or Accelerate checkpoint."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from artifacts import optimizer
from artifacts.facts import is_step
from artifacts.folders.side import read_json
from artifacts.model import Artifact, Broken, Problem

Found = Iterator[tuple[Path, Problem]]
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.(safetensors|bin)")
_STEP_FOLDER = re.compile(r"(?:checkpoint|step|global_step)[-_]?(\d+)")
_OPTIMIZERS = ("optimizer.pt", "optimizer.bin")
_MODELS = ("model*.safetensors", "pytorch_model*.bin", "adapter_model.*", "pytorch_model_fsdp*", "global_step*",
           "distributed_*", "model*.bin", "diffusion_pytorch_model*", "*.distcp", "mp_rank_*")  # fmt: skip
_RANKED = re.compile(r"(random_states_|rng_state_)(\d+)\.(pkl|pth)")
_MAX_RANKS = 10_000  # a higher number in a name is no rank
_NAMED = 5


def check(folder: Path, artifacts: dict[Path, Artifact]) -> Found:
    indexes = sorted(folder.glob("*.index.json"))
    for index in indexes:
        yield from _index(index, artifacts)
    if not indexes:
        yield from _shards_without_index(folder)
    yield from _companions(folder)
    yield from _ranks(folder)
    yield from _steps(folder, artifacts)
    yield from _shapes(folder, artifacts)


def _index(path: Path, artifacts: dict[Path, Artifact]) -> Found:
    try:
        data = read_json(path)
    except (Broken, OSError):
        return  # said where every JSON file is looked at
    weight_map = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        yield path, Problem("malformed", "error", "has no weight_map from tensor to file")
        return
    names = sorted(set(weight_map.values()))
    outside = [name for name in names if Path(name).is_absolute() or ".." in Path(name).parts]
    for name in outside:
        yield path, Problem("path-name", "error", f"names {name[:100]!r}, which is outside of its folder")
    shards = {name: artifacts.get(path.parent / name) for name in names if name not in outside}
    yield from _shard_set(path, shards)
    yield from _tensors(path, weight_map, {name: shard for name, shard in shards.items() if shard})
    yield from _total(path, data, [shard for shard in shards.values() if shard])


def _shard_set(path: Path, shards: dict[str, Artifact | None]) -> Found:
    for name, shard in shards.items():
        if shard is None:
            yield path.parent / name, Problem("missing", "error", f"is named by {path.name} and not there")
    patterns = {(match[1], match[3]) for match in map(_SHARD.fullmatch, shards) if match}
    for found in sorted(path.parent.glob("*-of-*.*")):
        match = _SHARD.fullmatch(found.name)
        if match and found.name not in shards and any(match[1] == stem for stem, _ in patterns):
            yield found, Problem("extra", "error", f"is a shard that {path.name} does not name: it is of another save")
    yield from _copies(shards)


def _copies(shards: dict[str, Artifact | None]) -> Found:
    seen: dict[str, str] = {}
    for name, shard in shards.items():
        if shard and shard.sha256:
            if shard.sha256 in seen:
                yield shard.path, Problem("duplicate", "error", f"is the same file as {seen[shard.sha256]}")
            seen.setdefault(shard.sha256, name)


def _tensors(path: Path, weight_map: dict[str, str], shards: dict[str, Artifact]) -> Found:
    """Every tensor is in the shard that the index says, and only there."""
    homes: dict[str, str] = {}
    for name, shard in shards.items():
        for tensor in shard.layout.tensors:
            if tensor.name in homes:
                yield shard.path, Problem("duplicate", "error", f"is also in {homes[tensor.name]}", tensor.name[:200])
            homes.setdefault(tensor.name, name)
    readable = {name for name, shard in shards.items() if shard.layout.tensors}
    lost = [tensor for tensor, name in weight_map.items() if name in readable and homes.get(tensor) != name]
    extra = [tensor for tensor in homes if tensor not in weight_map]
    if lost:
        moved = sum(tensor in homes for tensor in lost)
        message = f"{len(lost)} tensors are not in the shard that the index names ({moved} are in another)"
        yield path, Problem("stale-index", "error", message, evidence=", ".join(lost[:_NAMED])[:300])
    if extra:
        message = f"{len(extra)} tensors of the shards are not in the index"
        yield path, Problem("stale-index", "error", message, evidence=", ".join(extra[:_NAMED])[:300])


def _total(path: Path, data: dict[str, Any], shards: list[Artifact]) -> Found:
    metadata = data.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if not isinstance(total, int) or any(not shard.layout.tensors for shard in shards):
        return
    sizes = [(shard.path, t.start, t.numel * t.dtype.size) for shard in shards for t in shard.layout.tensors]
    if total not in (sum(size for _, _, size in sizes), sum(size for _, _, size in set(sizes))):
        message = f"total_size is {total}, the tensors have {sum(size for _, _, size in sizes)} bytes"
        yield path, Problem("stale-index", "warn", message)


def _shards_without_index(folder: Path) -> Found:
    for found in sorted(folder.glob("*-of-*.*")):
        if _SHARD.fullmatch(found.name):
            yield folder, Problem("missing", "error", f"holds shards such as {found.name} and no *.index.json for them")
            return


def _companions(folder: Path) -> Found:
    """An optimizer without its model resumes nothing."""
    optimizers = [name for name in _OPTIMIZERS if (folder / name).exists()]
    if optimizers and not any(any(folder.glob(pattern)) for pattern in _MODELS):
        yield folder, Problem("missing", "error", f"has {optimizers[0]} and no model weights beside it")


def _ranks(folder: Path) -> Found:
    ranks: dict[str, set[int]] = {}
    for path in folder.iterdir():
        match = _RANKED.fullmatch(path.name)
        if match:
            ranks.setdefault(match[1], set()).add(int(match[2]))
    for stem, found in ranks.items():
        if max(found) >= _MAX_RANKS:
            continue
        lost = sorted(set(range(max(found) + 1)) - found)
        if lost:
            yield folder, Problem("missing", "error", f"{stem}{lost[0]} is not there, but a higher rank is")


def _steps(folder: Path, artifacts: dict[Path, Artifact]) -> Found:
    """Trainer state, folder name and optimizer must be of one step: a Trainer counts optimizer steps."""
    path = folder / "trainer_state.json"
    try:
        state = read_json(path)
    except (Broken, OSError):
        return
    step = state.get("global_step") if isinstance(state, dict) else None
    if not isinstance(step, int) or not is_step(step):
        yield path, Problem("malformed", "error", "has no global_step")
        return
    match = _STEP_FOLDER.fullmatch(folder.name)
    if match and int(match[1]) != step:
        yield path, Problem("step", "error", f"is of step {step}, its folder of step {match[1]}")
    for name in _OPTIMIZERS:
        artifact = artifacts.get(folder / name)
        steps = artifact.layout.facts.get("optimizer_steps") if artifact else None
        if steps:
            problems = optimizer.compare_steps(step, max(steps), path.name, exact=True)
            yield from ((folder / name, problem) for problem in problems)


def _shapes(folder: Path, artifacts: dict[Path, Artifact]) -> Found:
    """Moments in a file of their own: each has the shape of some tensor of the model beside it."""
    here = [artifact for path, artifact in artifacts.items() if path.parent == folder]
    weights = [tensor for artifact in here for tensor in artifact.layout.tensors if tensor.role == "weight"]
    for artifact in here:
        if artifact.path.name in _OPTIMIZERS and weights:
            for problem in optimizer.shapes_exist(artifact.layout, weights):
                yield artifact.path, problem
