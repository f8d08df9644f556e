"""Loads files for real, in a process of its own. Run by verify.py as a script, not imported:

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
        try:
            answer: dict[str, Any] = {"tensors": dict(tensors(mode, form, path, items))}
        except Exception as error:  # torch, numpy and pickle raise anything for a damaged file
            text = " ".join(str(error).split()) or type(error).__name__
            named = re.search(
                r"GLOBAL (\S+) was not an allowed global|Unsupported (?:global|class|operand) (\S+)", text
            )
            answer = {"error": text[:500], "refused": next(filter(None, named.groups())) if named else None}
        # on a line of its own: what a file's code prints may have none
        print(f"\n{json.dumps(answer)}", flush=True)


def tensors(mode: str, form: str, path: str, items: list[tuple[str, int, int]]) -> Iterator[tuple[str, Any]]:
    """Names with dtype and shape."""
    if form == "safetensors":
        from safetensors import safe_open

        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  # not a dict
                yield from walk(file.get_tensor(name), name)
    elif form in ("npy", "npz"):
        import numpy as np

        loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        for name in getattr(loaded, "files", ["array"]):
            array = loaded if isinstance(loaded, np.ndarray) else loaded[name]
            yield name, [str(array.dtype), list(array.shape)]
    elif form == "pickle":
        import pickle

        with open(path, "rb") as file:
            pickle.load(file)
    else:
        import torch

        if form == "distcp":
            with open(path, "rb") as file:
                for name, offset, length in items:
                    file.seek(offset)
                    root = torch.load(io.BytesIO(file.read(length)), map_location="cpu", weights_only=True)
                    yield from walk(root, name) if isinstance(root, torch.Tensor) else ()
        else:
            mapped = form in ("torch", "lightning")
            yield from walk(torch.load(path, map_location="cpu", weights_only=mode != "pickle", mmap=mapped), "")


def walk(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(node, torch.Tensor):
        yield path or "(root)", [str(node.dtype).removeprefix("torch."), list(node.shape)]
    elif isinstance(node, (dict, list, tuple)):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from walk(child, f"{path}.{key}" if path else str(key))


if __name__ == "__main__":
    main(sys.argv[1])
