"""What a checkpoint says about itself: its step, its optimizer, whether it should have an EMA."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

from artifacts.formats.machine import Call
from artifacts.formats.torch_files import keys
from artifacts.formats.window import Window
from artifacts.model import FILE, Broken, Layout, Tensor

STEP_KEYS = ("global_step", "step", "iter_num", "global_steps", "iteration", "steps")
_CONFIGS = ("config", "args", "hyper_parameters", "hparams", "cfg", "training_args", "model_args")
_EMA_FLAGS = ("ema", "use_ema", "model_ema", "with_ema")
_EMA_RATES = ("ema_decay", "ema_rate")
CONTAINERS = ("state_dict", "model_state_dict", "model", "module", "net", "network", "weights")
_DEPTH = 5
_FLOATS = {"float32": "f", "float64": "d", "int64": "q", "int32": "i"}


def collect(window: Window, layout: Layout) -> None:
    """Fill layout.facts: step, optimizer_steps, ema (present), ema_declared, hollow."""
    root = keys(layout.root)
    values = layout.facts.get("values", {})
    layout.facts["step"] = _step(root) if root else _step(values)
    layout.facts["optimizers"] = list(_optimizers(layout.root))
    layout.facts["optimizer_steps"] = sorted(set(_steps(window, layout)))
    layout.facts["ema"] = any(tensor.role == "ema" for tensor in layout.tensors)
    layout.facts["ema_declared"] = any(declares_ema(keys(root.get(name))) for name in _CONFIGS)
    hollow = [key for key in CONTAINERS if isinstance(root.get(key), (dict, Call)) and not keys(root[key])]
    layout.facts["hollow"] = hollow[0] if hollow else None
    if "pytorch-lightning_version" in root and layout.format == "torch":
        layout.format = "lightning"


def _step(root: dict[Any, Any]) -> int | None:
    for key in STEP_KEYS:
        if is_step(root.get(key)):
            return int(root[key])
    return None


def is_step(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 53


def declares_ema(config: dict[Any, Any]) -> bool:
    if any(config.get(name) is True for name in _EMA_FLAGS):
        return True
    return any(isinstance(config.get(name), float) and config[name] > 0 for name in _EMA_RATES)


def _optimizers(root: Any) -> Iterator[dict[Any, Any]]:
    """Every state dict of a torch optimizer, wherever it was put; what is shared is entered once."""
    level, seen = [root], {id(root)}
    for _ in range(_DEPTH):
        below: list[Any] = []
        for node in level:
            found = keys(node)
            if isinstance(found.get("param_groups"), list) and "state" in found:
                yield found
            else:
                below += list(found.values()) if found else node if isinstance(node, (list, tuple)) else []
        level = [node for node in below if id(node) not in seen and not seen.add(id(node))]  # type: ignore[func-returns-value]


def _steps(window: Window, layout: Layout) -> Iterator[float]:
    """Step counters of the optimizer: plain numbers in old files, scalar tensors in new ones."""
    for optimizer in layout.facts["optimizers"]:
        for state in keys(optimizer["state"]).values():
            step = keys(state).get("step")
            if isinstance(step, (int, float)) and abs(step) < 1 << 53:
                yield float(step)
    for tensor in layout.tensors:
        if tensor.role == "optimizer" and tensor.name.endswith(".step") and tensor.numel == 1:
            value = scalar(window, tensor)
            if value is not None and math.isfinite(value):
                yield value


def scalar(window: Window, tensor: Tensor) -> float | None:
    code = _FLOATS.get(tensor.dtype.name)
    if code is None or tensor.source != FILE:
        return None
    try:
        data = window.read(tensor.start - window.start, tensor.dtype.size)
    except Broken:
        return None
    return float(struct.unpack(f"{'>' if tensor.big_endian else '<'}{code}", data)[0])
