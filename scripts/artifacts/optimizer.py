"""Optimizer state: does it belong to this model, and to this step?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from artifacts.formats.torch_files import keys
from artifacts.model import Layout, Problem, Tensor
from artifacts.values.stream import Pass

_MOMENTS = ("exp_avg", "exp_avg_sq", "momentum_buffer")
# A gradient scaler skips steps, most of them at the start, so the optimizer may have made somewhat fewer.
_SLACK, _SKIPPED = 0.1, 16


def check(layout: Layout, done: Pass) -> Iterator[Problem]:
    for optimizer in layout.facts["optimizers"]:
        yield from _states_have_parameters(optimizer)
    yield from shapes_exist(layout, [tensor for tensor in layout.tensors if tensor.role in ("weight", "ema")])
    yield from _never_stepped(layout, done)
    step, steps = layout.facts["step"], layout.facts["optimizer_steps"]
    if step is not None and steps:
        exact = layout.format == "lightning" and len(layout.facts["optimizers"]) == 1
        yield from compare_steps(step, max(steps), "the file", exact)


def _states_have_parameters(optimizer: dict[Any, Any]) -> Iterator[Problem]:
    listed: set[Any] = set()
    for group in optimizer["param_groups"]:
        params = keys(group).get("params")
        listed |= {param for param in params if isinstance(param, (int, str))} if isinstance(params, list) else set()
    states = {key for key in keys(optimizer["state"]) if isinstance(key, (int, str))}
    if states - listed:
        some = ", ".join(map(str, sorted(states - listed, key=str)[:5]))
        yield Problem("optimizer", "error", f"{len(states - listed)} states belong to no parameter of param_groups",
                      where="optimizer", evidence=some[:200])  # fmt: skip


def shapes_exist(layout: Layout, weights: Iterable[Tensor]) -> Iterator[Problem]:
    """Each moment has the shape of some parameter."""
    shapes = Counter(tensor.shape for tensor in weights)
    if not shapes or layout.format == "distcp":
        return
    for tensor in layout.tensors:
        last = tensor.name.rpartition(".")[2]
        if tensor.role == "optimizer" and last in _MOMENTS and tensor.rank > 1 and not shapes[tensor.shape]:
            yield Problem("optimizer", "warn", f"has shape {list(tensor.shape)[:8]}, which no tensor of the model has",
                          where=tensor.name[:200], fix="the optimizer state is of another model")  # fmt: skip


def _never_stepped(layout: Layout, done: Pass) -> Iterator[Problem]:
    moments = [segment for segment in done.plan.segments
               if segment.first.role == "optimizer" and segment.first.name.endswith(_MOMENTS)]  # fmt: skip
    steps = layout.facts["optimizer_steps"]
    if moments and steps and max(steps) > 0 and all(segment.stats.zero for segment in moments):
        message = f"every moment is zero although the optimizer made {max(steps):g} steps"
        yield Problem("optimizer", "error", message, where="optimizer")


def compare_steps(step: int, optimizer_step: float, source: str, exact: bool) -> Iterator[Problem]:
    """`exact`: the format counts optimizer steps. Elsewhere a step may be several (accumulation) or hold several."""
    if abs(step - optimizer_step) <= 1:
        return
    message = f"{source} says step {step}, the optimizer made {optimizer_step:g}"
    if optimizer_step == 0 and step > 0:
        yield Problem("step", "error", f"{message}: it is fresh, or of another checkpoint", where="optimizer")
    elif exact:
        if not step - max(_SLACK * step, _SKIPPED) <= optimizer_step <= step:
            yield Problem("step", "error", f"{message}: they are of two checkpoints", where="optimizer")
    elif step and (step % optimizer_step == 0 or optimizer_step % step == 0):
        yield Problem("step", "info", f"{message}: one is a multiple of the other", where="optimizer")
    else:
        yield Problem("step", "warn", f"{message}; neither is a multiple of the other", where="optimizer")
