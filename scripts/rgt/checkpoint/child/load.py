"""Loads files for real, in a process of its own, with weights_only. Run by verify.py as a script, not imported:

    python load.py < [[format, path], ...]

Prints one JSON object per file: {"tensors": {name: [dtype, shape]}}, or {"error": sentence, "refused": name or null}.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

import torch

_REFUSED = re.compile(r"GLOBAL (\S+) was not an allowed global|Unsupported (?:global|class|operand) (\S+)")


def main() -> None:
    for form, path in json.load(sys.stdin):
        try:
            answer: dict[str, Any] = {"tensors": dict(tensors(load(form, path), ""))}
        except Exception as error:  # torch raises anything for a damaged file
            text = " ".join(str(error).split()) or type(error).__name__
            named = _REFUSED.search(text)
            answer = {"error": text[:500], "refused": next(filter(None, named.groups())) if named else None}
        print(json.dumps(answer), flush=True)


def load(form: str, path: str) -> Any:
    if form == "safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True, mmap=form != "torch-legacy")


def tensors(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Names with dtype and shape."""
    if isinstance(node, torch.Tensor):
        yield path or "(root)", [str(node.dtype).removeprefix("torch."), list(node.shape)]
    elif isinstance(node, (dict, list, tuple)):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from tensors(child, f"{path}.{key}" if path else str(key))


if __name__ == "__main__":
    main()
