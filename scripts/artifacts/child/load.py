"""Loads files for real, in a process of its own. Run by loading.py as a script, not imported:

    python load.py weights-only|pickle < [[format, path, items], ...]

Prints one JSON object per file: {"tensors": {name: [dtype, shape]}}, or {"error": sentence, "refused": name or null}.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Iterator
from typing import Any


def main(mode: str) -> None:
    for form, path, items in json.load(sys.stdin):
        # on a line of its own: what a file's code prints may have none
        print(f"\n{json.dumps(_answer(mode, form, path, items))}", flush=True)


def _answer(mode: str, form: str, path: str, items: list[tuple[str, int, int]]) -> dict[str, Any]:
    try:
        return {"tensors": dict(_tensors(mode, form, path, items))}
    except Exception as error:  # torch, numpy and pickle raise anything for a damaged file
        text = " ".join(str(error).split()) or type(error).__name__
        refused = re.search(r"GLOBAL (\S+) was not an allowed global|Unsupported (?:global|class|operand) (\S+)", text)
        return {"error": text[:500], "refused": next(filter(None, refused.groups())) if refused else None}


def _tensors(mode: str, form: str, path: str, items: list[tuple[str, int, int]]) -> Iterator[tuple[str, Any]]:
    if form == "safetensors":
        yield from _safetensors(path)
    elif form in ("npy", "npz"):
        yield from _numpy(path)
    elif form == "distcp":
        yield from _distcp(path, items)
    elif form == "pickle" and mode == "pickle":
        import pickle

        with open(path, "rb") as file:
            pickle.load(file)
    else:
        yield from _torch(mode, form, path)


def _torch(mode: str, form: str, path: str) -> Iterator[tuple[str, Any]]:
    import torch

    mapped = form in ("torch", "lightning")
    root = torch.load(path, map_location="cpu", weights_only=mode != "pickle", mmap=mapped)
    yield from _walk(root, ())


def _walk(node: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(node, torch.Tensor):
        yield ".".join(path) or "(root)", [str(node.dtype).removeprefix("torch."), list(node.shape)]
    elif isinstance(node, dict):
        for key, child in node.items():
            yield from _walk(child, (*path, str(key)))
    elif isinstance(node, (list, tuple)):
        for index, child in enumerate(node):
            yield from _walk(child, (*path, str(index)))


def _safetensors(path: str) -> Iterator[tuple[str, Any]]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118  # not a dict
            tensor = file.get_tensor(name)
            yield name, [str(tensor.dtype).removeprefix("torch."), list(tensor.shape)]


def _numpy(path: str) -> Iterator[tuple[str, Any]]:
    import numpy as np

    loaded = np.load(path, mmap_mode="r", allow_pickle=False)
    for name in getattr(loaded, "files", ["array"]):
        array = loaded if isinstance(loaded, np.ndarray) else loaded[name]
        yield name, [str(array.dtype), list(array.shape)]


def _distcp(path: str, items: list[tuple[str, int, int]]) -> Iterator[tuple[str, Any]]:
    import torch

    with open(path, "rb") as file:
        for name, offset, length in items:
            file.seek(offset)
            root = torch.load(io.BytesIO(file.read(length)), map_location="cpu", weights_only=True)
            if isinstance(root, torch.Tensor):
                yield name, [str(root.dtype).removeprefix("torch."), list(root.shape)]


if __name__ == "__main__":
    main(sys.argv[1])
