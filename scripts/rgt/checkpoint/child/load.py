"""Loads files for real, in a process of its own and in the user's Python; verify.py runs it as a script:

    python load.py REQUEST ANSWERS

REQUEST is JSON: {"modules": [...], "files": [[format, path, items], ...]}. Appends lines of JSON to ANSWERS: {} when
the modules are imported, then for each file {"tensors": {name: [dtype, shape]}}, {"refused": name} or {"error": text}.

Nothing of rgt is imported, and nothing that a Python older than ours lacks is used. This folder holds nothing else:
Python looks for modules beside a script first.
"""

from __future__ import annotations

import importlib
import inspect
import io
import json
import re
import sys
from collections.abc import Iterator
from typing import Any

_REFUSED = re.compile(
    r"GLOBAL (\S+) was not an allowed global|Unsupported (?:global|class|operand):? (?:GLOBAL )?(\S+)"
)


def main(request: str, answers: str) -> None:
    with open(request, encoding="utf-8") as file:
        wanted = json.load(file)
    for name in wanted["modules"]:
        importlib.import_module(name)
    with open(answers, "a", encoding="utf-8") as out:
        print("{}", file=out, flush=True)
        for form, path, items in wanted["files"]:
            print(json.dumps(answer(form, path, items)), file=out, flush=True)


def answer(form: str, path: str, items: list[Any]) -> dict[str, Any]:
    try:
        return {"tensors": dict(tensors(form, path, items))}
    except Exception as error:  # torch and numpy raise anything for a damaged file
        text = " ".join(str(error).split()) or type(error).__name__
        named = _REFUSED.search(text)
        return {"refused": named.group(1) or named.group(2)} if named else {"error": text[:300]}


def tensors(form: str, path: str, items: list[Any]) -> Iterator[tuple[str, Any]]:
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
            array = loaded if form == "npy" else loaded[name]
            # as it lies in the file: a Fortran array's first axis is the last one there
            yield name, [array.dtype.name, list(array.shape[::-1] if array.flags.fnc else array.shape)]
    elif form == "distcp":
        with open(path, "rb") as file:
            for name, offset, length in items:
                file.seek(offset)
                yield from walk(torch_load(io.BytesIO(file.read(length))), name)
    else:
        yield from walk(torch_load(path, mmap=form != "torch-legacy"), "")


def torch_load(source: Any, mmap: bool = False) -> Any:
    import torch

    options = {"mmap": True} if mmap and "mmap" in inspect.signature(torch.load).parameters else {}  # new in 2.1
    return torch.load(source, map_location="cpu", weights_only=True, **options)


def walk(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(node, torch.Tensor):
        if not (node.is_nested or node.device.type == "meta"):  # no shape of its own, no bytes
            yield path or "(root)", [str(node.dtype).split(".")[-1], list(node.shape)]
    elif isinstance(node, (dict, list, tuple)):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from walk(child, f"{path}.{key}" if path else str(key))


if __name__ == "__main__":
    main(*sys.argv[1:])
