"""What a step costs: memory by kind and whether it grows, time by data and compute."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from rgt.machine import memory as host
from rgt.machine import processes
from rgt.probes import growth
from rgt.probes.factory import Result, Unjudged
from rgt.probes.held_objects import HOOKS, Look
from rgt.probes.probe_session import Session, move
from rgt.units import show_size

import torch

_KEPT = 1024  # bytes per step that are worth a warning when no graph hangs on them
_ROUND = 3  # steps between two counts
_SHARE = 0.5  # of the time spent waiting for data
_WORTH = 0.02  # seconds per step: below it, a probe on a few batches cannot tell waiting from noise
_STEPS = 12
_ROUNDS = 4
_FEWEST = 3  # steps to take a median of
_WORKER_BATCHES = 400


def memory(session: Session, result: Result) -> None:
    """Bytes of parameters, gradients, optimizer and activations; what steps, evaluations and workers keep (a leak)."""
    anatomy = _anatomy(session)
    training = session.training
    batches = session.cycle(6 * _ROUND * training.accumulate)  # three rounds to count, as many to find the holder

    def step() -> None:
        for batch in itertools.islice(batches, training.accumulate):
            session.train_step(batch)

    counts = _live(step, training.model)
    result.data = {"bytes": anatomy, "live_tensors": [count[:3] for count in counts], "hooks": [c[3] for c in counts]}
    result.evidence = ", ".join(f"{name} {show_size(size)}" for name, size in anatomy.items())
    _judge_growth(counts, "step", step, result)
    evaluate = training.evaluate
    if evaluate and not session.late:
        act = functools.partial(evaluate, training)
        _judge_growth(_live(act, training.model), "evaluation", act, result)
    if getattr(training.data, "num_workers", 0):
        _judge_workers(session, result)
    if session.device.type == "cuda":
        names = {"allocated": "memory_allocated", "reserved": "memory_reserved", "peak": "max_memory_allocated"}
        result.data["cuda"] = {name: getattr(torch.cuda, function)() for name, function in names.items()}


def _live(act: Callable[[], Any], model: Any) -> list[tuple[int, int, int, int]]:
    """Tensors, bytes, tensors with a graph, and hooks, after each of three rounds of `act`."""
    gc.freeze()  # a process has hundreds of thousands of objects; only what comes after this is looked through
    counts = []
    for _ in range(3):
        for _ in range(_ROUND):
            act()
        gc.collect(0)
        live = [thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, torch.nn.Parameter)]
        size = sum(tensor.numel() * tensor.element_size() for tensor in live)
        hooks = sum(len(module.__dict__.get(name) or ()) for module in model.modules() for name in HOOKS)
        counts.append((len(live), size, sum(tensor.grad_fn is not None for tensor in live), hooks))
        del live
    gc.unfreeze()
    return counts


def _judge_growth(counts: list[tuple[int, int, int, int]], what: str, act: Callable[[], Any], result: Result) -> None:
    """Every round must add at least one per `act`: anything less has another cause."""
    more = [[b - a for a, b in zip(*pair, strict=True)] for pair in itertools.pairwise(counts)]
    tensors, size, graphs, hooks = (count / _ROUND for count in more[-1])
    if all(row[3] >= _ROUND for row in more):
        result.add("growth", f"{hooks:.0f} more hook is registered by each {what}: memory and time grow", _held(act))
        result.fix("register it once, outside of the loop, or keep the handle and remove() it")
    elif all(row[0] >= _ROUND and row[2] >= _ROUND for row in more):
        message = f"tensors with their graph are kept from {what} to {what}: memory grows until OOM"
        shown = f"{graphs:.0f} more tensor with a graph alive after each {what}"
        result.add("growth", message, f"{shown}{_held(act, '; ')}")
        result.fix("keep loss.item() or loss.detach(), not loss")
    elif all(row[0] >= _ROUND for row in more) and size >= _KEPT:
        shown = f"{tensors:.0f} more tensors alive per {what}, none with a graph{_held(act, '; ')}"
        result.add("growth", f"{show_size(size)} more are kept after each {what}", shown, severity="warn")
        result.fix("write it out or move it to the CPU instead of collecting it in a list")


def _held(act: Callable[[], Any], before: str = "") -> str:
    """The container that grows with every call."""
    look = Look("", forked=True)
    look.take()
    for _ in range(_ROUND):
        act()
        rows = look.take()["growing"]
    names = [f"{row['name'] or 'an unnamed ' + row['kind']} ({row['length']} elements)" for row in rows]
    return f"{before}held by {names[0]}" if names else ""


def _judge_workers(session: Session, result: Result) -> None:
    """Host memory of the loader's workers while they make batches."""
    session.touched = True
    lives: dict[int, list[tuple[float, float]]] = {}
    for index, _ in enumerate(itertools.islice(iter(session.training.data), _WORKER_BATCHES)):
        if session.late:
            break
        for pid in processes.descendants(os.getpid()):
            if pages := host.rollup(pid):
                lives.setdefault(pid, []).append((index, float(pages.get("Pss_Anon", pages["Pss"]))))
    slope = growth.estimate(list(lives.values()))
    if slope.verdict == growth.LEAK:
        shown = f"{show_size(slope.mean)} ± {show_size(2 * slope.error)} per batch in each of {len(lives)} workers"
        result.add("growth", "the loader's workers grow with every batch", shown)
        result.fix("a cache in the dataset: bound it; `rgt probes memory --inside -- <command>` names it")


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
    times: list[float] = []
    start = _clock()
    for batch in batches:
        session.train_step(move(batch, session.device))
        if session.device.type == "cuda":  # it works on after the call returns
            torch.cuda.synchronize()
        now = _clock()
        times.append(now - start)
        start = now
        if session.late:
            break
    return times[1:]


def _clock() -> float:
    """Seconds, without those in which other processes had the core: they say nothing about this loader."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            queued = int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):  # not Linux, or not built in
        queued = 0.0
    return time.perf_counter() - queued
