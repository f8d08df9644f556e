"""What a step costs: memory by kind and whether it grows, time by data and compute."""

from __future__ import annotations

import gc
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from rgt.probes.factory import Result, Unjudged
from rgt.probes.held_objects import Look, hook_count
from rgt.probes.probe_session import Session, move
from rgt.units import show_size

import torch

_KEPT = 1024  # bytes per step that are worth a warning when no graph hangs on them
_ROUND = 3  # calls between two looks
_LOOKS = 5  # the first is before any call; a container is named when it has grown in three
_SHARE = 0.5  # of the time spent waiting for data
_WORTH = 0.02  # seconds per step: below it, a probe on a few batches cannot tell waiting from noise
_STEPS = 12
_ROUNDS = 4
_FEWEST = 3  # steps to take a median of


def memory(session: Session, result: Result) -> None:
    """Bytes of parameters, gradients, optimizer and activations; what steps and evaluations keep (a leak)."""
    anatomy = _anatomy(session)
    training = session.training
    batches = session.cycle(_LOOKS * _ROUND * training.accumulate)

    def step() -> None:
        for batch in itertools.islice(batches, training.accumulate):
            session.train_step(batch)

    result.data = {"bytes": anatomy}
    result.evidence = ", ".join(f"{name} {show_size(size)}" for name, size in anatomy.items())
    _judge_growth(training.model, step, "step", result)
    if training.evaluate and not session.late:
        _judge_growth(training.model, lambda: training.evaluate(training), "evaluation", result)
    if session.device.type == "cuda":
        names = {"allocated": "memory_allocated", "reserved": "memory_reserved", "peak": "max_memory_allocated"}
        result.data["cuda"] = {name: getattr(torch.cuda, function)() for name, function in names.items()}


def _judge_growth(model: Any, act: Callable[[], Any], what: str, result: Result) -> None:
    """Every round must add at least one per `act`: anything less has another cause."""
    look, looks = Look(), []
    gc.freeze()  # a process has hundreds of thousands of objects; only what comes after this is looked through
    for _ in range(_LOOKS):
        gc.collect(0)
        looks.append({**look.take(), "hooks": hook_count(model.modules())})
        for _ in range(_ROUND):
            act()
    gc.unfreeze()
    kinds = ("tensors", "graph_tensors", "hooks", "tensor_bytes")
    more = {kind: [b[kind] - a[kind] for a, b in itertools.pairwise(looks[1:])] for kind in kinds}
    tensors, graphs, hooks, size = (more[kind][-1] / _ROUND for kind in kinds)
    grows = {kind: min(counts) >= _ROUND for kind, counts in more.items()}
    names = [f"{row['name'] or 'an unnamed ' + row['kind']} ({row['length']} elements)" for row in look.holders()]
    held = f"; held by {names[0]}" if names else ""
    if grows["hooks"]:
        message = f"{hooks:.0f} more hook is registered by each {what}: memory and time grow"
        result.add("growth", message, f"{looks[-1]['hooks']} hooks{held}")
        result.fix("register it once, outside of the loop, or keep the handle and remove() it")
    elif grows["tensors"] and grows["graph_tensors"]:
        message = f"tensors with their graph are kept from {what} to {what}: memory grows until OOM"
        result.add("growth", message, f"{graphs:.0f} more tensor with a graph alive after each {what}{held}")
        result.fix("keep loss.item() or loss.detach(), not loss")
    elif grows["tensors"] and size >= _KEPT:
        shown = f"{tensors:.0f} more tensors alive per {what}, none with a graph{held}"
        result.add("growth", f"{show_size(size)} more are kept after each {what}", shown, severity="warn")
        result.fix("write it out or move it to the CPU instead of collecting it in a list")


def _anatomy(session: Session) -> dict[str, int]:
    """Of one whole step: the optimizer's state appears at its end, which is why the second step needs more."""
    training, parameters = session.training, list(session.training.model.parameters())
    own = {p.untyped_storage().data_ptr() for p in parameters}
    storages: dict[int, int] = {}

    def pack(tensor: Any) -> Any:
        if not tensor.is_sparse and tensor.untyped_storage().data_ptr() not in own:
            storages[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        for batch in session.cycle(training.accumulate):
            storages.clear()
            session.train_step(batch)
    state = [t for entry in training.optimizer.state.values() for t in entry.values() if hasattr(t, "element_size")]
    return {
        "parameters": sum(p.numel() * p.element_size() for p in parameters),
        # cleared by zero_grad: they are as large as what they belong to
        "gradients": sum(p.numel() * p.element_size() for p in parameters if p.requires_grad),
        "optimizer": sum(t.numel() * t.element_size() for t in state),
        "activations": sum(storages.values()),
    }


def throughput(session: Session, result: Result) -> None:
    """Time per step split into data and compute, with a batch in memory as the control."""
    batch = session.batches(1)[0]
    for _ in range(_ROUNDS):
        _step_times(session, itertools.repeat(batch, 2))  # warm up
        real = _step_times(session, itertools.islice(iter(session.training.data), _STEPS))
        synthetic = _step_times(session, itertools.repeat(batch, _STEPS))
        if min(len(real), len(synthetic)) < _FEWEST:
            raise Unjudged(f"fewer than {_FEWEST} batches, or no time for them")
        step, compute = statistics.median(real), statistics.median(synthetic)
        waits = step - compute > max(_SHARE * step, _WORTH)
        if not waits:  # a busy machine is no slow loader: it must wait every time
            break
    share = max(0.0, 1 - compute / step)
    result.evidence = f"{step * 1e3:.1f} ms a step with real data, {compute * 1e3:.1f} ms with a batch in memory"
    result.data = {"seconds_per_step": step, "compute": compute, "data_share": share}
    if waits:
        message = f"{share:.0%} of the time the model waits for data"
        result.add("starved", message, result.evidence, severity="warn")
        result.fix("more workers, cheaper decoding, a local disk; a faster card changes nothing")


def _step_times(session: Session, batches: Iterator[Any]) -> list[float]:
    """Of each step with the wait for its batch; without the first, which pays for starting the workers."""
    times = [time.perf_counter()]
    for batch in batches:
        session.train_step(move(batch, session.device))
        if session.device.type == "cuda":  # it works on after the call returns
            torch.cuda.synchronize()
        times.append(time.perf_counter())
        if session.late:
            break
    return [end - start for start, end in itertools.pairwise(times)][1:]
