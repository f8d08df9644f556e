"""Mutated files: what is called sound loads with torch and safetensors, with the same values; in bounded time."""

from __future__ import annotations

import random
import time
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rgt.checkpoint import verify
from rgt.checkpoint.examine import Options
from rgt.checkpoint.survey import survey

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from . import zoo

SECONDS = 5.0  # for one mutant of some 10 kB


def small() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {f"layers.{n}.w": torch.randn(16, 16, generator=generator) for n in range(3)}


def torch_zip(folder: Path) -> Path:
    torch.save({"model": small(), "step": 3}, folder / "a.pt")
    return folder / "a.pt"


def torch_without_crc(folder: Path) -> Path:
    torch.serialization.set_crc32_options(False)
    try:
        return torch_zip(folder)
    finally:
        torch.serialization.set_crc32_options(True)


def torch_deflated(folder: Path) -> Path:
    path = torch_zip(folder)
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in members.items():
            new.writestr(name, data)
    return path


def torch_legacy(folder: Path) -> Path:
    torch.save({"model": small(), "step": 3}, folder / "a.pt", _use_new_zipfile_serialization=False)
    return folder / "a.pt"


def safetensors(folder: Path) -> Path:
    save_file(small(), folder / "a.safetensors")
    return folder / "a.safetensors"


def npy(folder: Path) -> Path:
    np.save(folder / "a.npy", small()["layers.0.w"].numpy())
    return folder / "a.npy"


def npz(folder: Path) -> Path:
    arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in small().items()}
    np.savez_compressed(folder / "a.npz", **arrays)
    return folder / "a.npz"


def loaded(path: Path) -> dict[str, bytes]:
    """Names and bytes of the tensors, as the owner of the format loads them."""
    if path.is_dir():
        from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

        dcp_to_torch_save(path, path.parent / "converted.pt")
        state = torch.load(path.parent / "converted.pt", weights_only=False)
    elif path.suffix == ".safetensors":
        state = load_file(path)
    elif path.suffix in (".npy", ".npz"):
        loaded = np.load(path, allow_pickle=False)
        return (
            {name: loaded[name].tobytes() for name in loaded} if path.suffix == ".npz" else {"array": loaded.tobytes()}
        )
    else:
        state = torch.load(path, map_location="cpu", weights_only=True)
    return dict(_flat(state, ""))


def _flat(node: Any, name: str) -> Any:
    if isinstance(node, torch.Tensor):
        yield name, node.contiguous().numpy().tobytes() if node.dtype != torch.bfloat16 else b""
    elif isinstance(node, (dict, list, tuple)):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _flat(child, f"{name}.{key}" if name else str(key))


def mutated(data: bytes, dice: random.Random) -> bytes:
    body = bytearray(data)
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        at = dice.randrange(len(body))
        how = dice.randrange(6)
        if how < 3:
            body[at] = dice.choice((body[at] ^ 1 << dice.randrange(8), dice.randrange(256), 0, 0xFF))
        elif how == 3:
            del body[at : at + dice.randrange(1, 9)]
        elif how == 4:
            body[at:at] = bytes(dice.randrange(256) for _ in range(dice.randrange(1, 9)))
        else:
            source = dice.randrange(len(body))
            body[at : at + 8] = body[source : source + 8]
    return bytes(body)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mutants", [12, pytest.param(1_700, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    "make",
    [torch_zip, torch_without_crc, torch_deflated, torch_legacy, safetensors, npy, npz, zoo.distributed],
    ids=lambda make: make.__name__,
)
def test_what_is_sound_loads_with_the_same_values(tmp_path: Path, make: Callable[[Path], Path], mutants: int) -> None:
    path, dice = make(tmp_path), random.Random(mutants)
    files = [path] if path.is_file() else sorted(part for part in path.iterdir() if part.is_file())
    originals = {part: part.read_bytes() for part in files}
    for number in range(mutants):
        target = files[number % len(files)]
        data = mutated(originals[target], dice)
        target.write_bytes(data)
        start = time.perf_counter()
        verdict = verify.verify(survey(path), Options(digest=False), jobs=1)
        took = time.perf_counter() - start
        assert took < SECONDS, f"mutant {number}: {took:.1f} s"
        if verdict.word == "sound":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                theirs = loaded(path)  # raises: we called it sound, and it does not load
            if path.is_file():
                ours = {
                    tensor.name: data[tensor.start : tensor.start + tensor.extent]
                    for artifact in verdict.artifacts
                    for tensor in artifact.layout.tensors
                    if tensor.source == -1 and tensor.stride in (None, (16, 1))
                }
                assert all(theirs[name] == ours[name] for name in ours), f"mutant {number}"
        target.write_bytes(originals[target])
