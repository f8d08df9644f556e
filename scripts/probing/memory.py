"""Where the memory is: parameters, gradients, optimizer, activations; and whether it grows from step to step."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from probing.parameters import crashed
from probing.results import Result
from probing.session import Session
from probing.state import preserved
from rgt.units import show_size

_KEPT = 1024  # bytes per step that are worth a warning when no graph hangs on them
_ROUND = 3  # steps between two counts


def memory(session: Session) -> Result:
    """Bytes of parameters, gradients, optimizer and activations; what is kept from step to step (a leak)."""
    result = Result("memory")
    seen = session.observation()
    if crashed(result, seen):
        return result
    with preserved(session.training):
        session.reset()
        anatomy = _anatomy(session)
        with _only_new_objects():
            counts = _counts(session)
    result.data = {"bytes": anatomy, "live_tensors": counts}
    result.evidence = ", ".join(f"{name} {show_size(size)}" for name, size in anatomy.items())
    _growth(result, counts)
    graphs = [step.graph for step in seen.steps if step.graph]
    if len(graphs) >= 4 and all(later > earlier for earlier, later in itertools.pairwise(graphs)):
        result.add(
            "growth",
            "error",
            "the graph grows with every step: backward reaches into earlier steps",
            evidence=f"{graphs[0]} nodes in the first step, {graphs[-1]} in step {len(graphs)}",
            fix="detach what is carried over (hidden states, running losses) at the start of a step",
        )
    if session.device.type == "cuda":
        result.data["cuda"] = _cuda()
    return result


def _anatomy(session: Session) -> dict[str, int]:
    """Of one whole step: the optimizer's state appears at its end, which is why the second step needs more."""
    import torch

    training = session.training
    storages: dict[int, int] = {}
    own = {p.untyped_storage().data_ptr() for p in training.model.parameters()}

    def pack(tensor: Any) -> Any:
        if not tensor.is_sparse and tensor.untyped_storage().data_ptr() not in own:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        gradients = 0
        for batch in session.cycle(training.accumulate):
            storages.clear()
            session.train_step(batch)
        # cleared by zero_grad: they are as large as what they belong to
        gradients = sum(p.numel() * p.element_size() for p in training.model.parameters() if p.requires_grad)
    state = [t for entry in training.optimizer.state.values() for t in entry.values() if hasattr(t, "element_size")]
    return {
        "parameters": sum(p.numel() * p.element_size() for p in training.model.parameters()),
        "gradients": gradients,
        "optimizer": sum(t.numel() * t.element_size() for t in state),
        "activations": sum(storages.values()),
    }


def _counts(session: Session) -> list[tuple[int, int, int]]:
    """(tensors, bytes, tensors with a graph) alive, after every third step."""
    counts = []
    accumulate = session.training.accumulate
    for index, batch in enumerate(session.cycle(3 * _ROUND * accumulate)):
        session.train_step(batch)
        if (index + 1) % (_ROUND * accumulate) == 0:
            gc.collect(0)
            counts.append(_live())
    return counts


@contextmanager
def _only_new_objects() -> Iterator[None]:
    """A process has hundreds of thousands of objects; only what comes after this is looked through."""
    ours = gc.get_freeze_count() == 0
    if ours:
        gc.freeze()
    try:
        yield
    finally:
        if ours:
            gc.unfreeze()


def _live() -> tuple[int, int, int]:
    import torch

    count, size, graphs = 0, 0, 0
    for thing in gc.get_objects():
        if type(thing) in (torch.Tensor, torch.nn.Parameter):
            count += 1
            size += thing.numel() * thing.element_size()
            graphs += thing.grad_fn is not None
    return count, size, graphs


def _growth(result: Result, counts: list[tuple[int, int, int]]) -> None:
    """Every round must add at least one tensor per step: anything less has another cause."""
    pairs = list(itertools.pairwise(counts))
    more = [tuple(b - a for a, b in zip(one, other, strict=True)) for one, other in pairs]
    if len(more) < 2 or any(entry[0] < _ROUND for entry in more):
        return
    per_step = more[-1][1] / _ROUND
    if all(entry[2] >= _ROUND for entry in more):
        result.add("growth", "error", "tensors with their graph are kept from step to step: memory grows until OOM",
                   evidence=f"{more[-1][2] / _ROUND:.0f} more tensor with a graph alive after each step",
                   fix="keep loss.item() or loss.detach(), not loss")  # fmt: skip
    elif per_step >= _KEPT:
        result.add("growth", "warn", f"{show_size(per_step)} more are kept after each step",
                   evidence=f"{more[-1][0] / _ROUND:.0f} more tensors alive per step, none with a graph",
                   fix="write it out or move it to the CPU instead of collecting it in a list")  # fmt: skip


def _cuda() -> dict[str, int]:
    import torch

    return {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "peak": torch.cuda.max_memory_allocated(),
    }
