"""What an optimizer step does: which parameters learn, by how much, and at which learning rate.

The first steps are seen from outside (`observe`), and nothing in the user's code is replaced: hooks sit on the
optimizer, on parameters and on modules, and torch.autograd.backward, which every backward pass goes through, is wrapped
"""

from __future__ import annotations

import contextlib
import copy
import math
import statistics
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from rgt.probes.factory import (
    Observation,
    ParameterRecord,
    Result,
    StepRecord,
    Training,
    Unjudged,
    sentence,
    several,
    site,
)
from rgt.probes.probe_session import Session, mode_dependent, number

import torch

_EPS = 1e-30
_FOLD = 20  # names of one cause in one finding


def parameters(session: Session, result: Result) -> None:
    """Which parameters are in the optimizer, get a gradient and move; what is frozen and moves all the same."""
    seen = session.observation
    moved = [record for record in seen.parameters if record.moved]
    if seen.error:
        message = f"the step raises at batch {len(seen.steps)}: {seen.error}"
        result.add("crash", message, where=seen.error_site)
        result.fix("the loss and data probes name what such a batch holds")
    if not seen.steps:
        raise Unjudged("" if seen.error else "the data gave no batch")
    _whole_step(result, seen, session.training.accumulate)
    if not any(finding.severity == "error" for finding in result.findings):
        causes: dict[tuple[str, str], list[str]] = {}
        for record in seen.parameters:
            cause = None if record.frozen else _cause(record, seen)
            if cause:
                causes.setdefault(cause, []).append(record.name)
        for (message, fix), names in causes.items():
            shown = f"{len(names)} of {len(seen.parameters)} parameters"
            severity = "warn" if "requires_grad" in message else "error"
            result.add("not-updating", message, shown, where=several(names[:_FOLD]), severity=severity)
            result.fix(fix)
    frozen = [record.name for record in moved if record.frozen]
    if frozen:
        shown = f"{len(frozen)} parameters changed in {len(seen.steps)} steps"
        result.add("moving", "declared frozen, and moves", shown, where=several(frozen))
        result.fix("requires_grad_(False) and leave it out of the optimizer; weight decay moves it too")
    buffers = [name for name in seen.buffers_moved if session.training.is_frozen(name)]
    if buffers:
        shown = "requires_grad does not stop BatchNorm; its mode does"
        result.add("moving", "running statistics of a frozen part move", shown, where=several(buffers))
        result.fix("call .eval() on the frozen part after every model.train()")
    if seen.strangers:
        shown = f"shapes {several(seen.strangers)}"
        result.add("unregistered", "the loss trains tensors that are not parameters of the model", shown)
        result.fix("nn.ModuleList, nn.ModuleDict or nn.Parameter instead of a plain list, dict or tensor")
    if seen.orphans:
        shown = f"{seen.orphans} tensors in the optimizer, none of them in the model"
        result.add("not-updating", "the optimizer holds none of the model's parameters", shown)
        result.fix("the model was rebuilt, copied or reloaded after the optimizer was made")
    ratios = [statistics.median(r.ratios) for r in seen.parameters if r.learns and r.ratios and r.meta.dim() >= 2]
    ratio = statistics.median(ratios or [0.0])
    result.evidence = (
        f"{len(moved)} of {len(seen.parameters)} parameters moved in {len(seen.steps)} steps, "
        f"by {ratio:.1e} of the weights per step"
    )
    result.data = {"parameters": len(seen.parameters), "moved": len(moved), "update_ratio": ratio}


def _whole_step(result: Result, seen: Observation, accumulate: int) -> None:
    steps = seen.steps
    if seen.detached:
        shown = "loss.requires_grad is False and no backward pass ran"
        result.add("not-updating", "the loss has no graph: nothing can be learnt from it", shown)
        result.fix("look for .item(), .detach(), .data, numpy or no_grad between model and loss")
    elif not any(step.backwards for step in steps):
        result.add("not-updating", "no backward pass ran in any step")
        result.fix("call loss.backward()")
    elif len(steps) >= accumulate and not any(step.optimizer_steps for step in steps):
        shown = f"{len(steps)} steps with a backward pass, none with an optimizer step"
        result.add("not-updating", "optimizer.step() was never called", shown)
        result.fix("call optimizer.step() on this optimizer (a second one was made?) after backward")
    elif any(step.wiped for step in steps):
        shown = "backward brought nonzero gradients; at optimizer.step() all are zero or None"
        result.add("not-updating", "the gradients are gone when the optimizer steps", shown)
        result.fix("zero_grad() belongs before backward or after step, not between them")
    # a parameter of one number has only two directions: it cannot tell
    judged = [record for record in seen.parameters if record.meta.numel() > 1 and len(record.stale) > 2]
    kept = {record.name: share for record in judged if (share := statistics.median(record.stale)) > 0.9}
    if kept:
        shown = f"applied gradient = new + previous one, in direction to {statistics.median(kept.values()):.1%}"
        message = "gradients of earlier steps are still in what the optimizer applies"
        result.add("accumulated", message, shown, where=several(list(kept)))
        result.fix("call optimizer.zero_grad() every step, or declare accumulate=")


def _cause(record: ParameterRecord, seen: Observation) -> tuple[str, str] | None:
    """Why this parameter does not learn, and what to do; None when it does, or when nothing depends on it."""
    usual = statistics.median([max(r.grad_rms) for r in seen.parameters if r.grad_rms] or [0.0])
    noise = max(record.grad_rms, default=0.0) < 1e-5 * usual  # a bias in front of a BatchNorm, for one
    if not record.trainable:  # an EMA copy inside the model moves without a gradient; that is meant
        fix = "if it is meant, declare frozen=; if not, requires_grad_(True) and into the optimizer"
        return None if record.moved else ("requires_grad is False and nobody declared it frozen", fix)
    if record.received == 0 and record.name.rpartition(".")[0] in seen.called:
        message = "its module runs, but the loss does not reach it: cut by detach, no_grad, .data or an index"
        return message, "look downstream of this module for what ends the graph"
    if record.received == 0:
        return "its module is never called in forward", "use it, or delete it; DDP would hang or raise on it"
    if record.group is None:
        fix = "build the optimizer from model.parameters() after the last change of the model"
        return "it gets a gradient and is not in the optimizer", fix
    if record.moved:
        return None
    if record.nonzero == 0:
        return "its gradient is exactly zero in every step", "see the gradients probe: dead or saturated units"
    if not any(lrs[record.group] for lrs in seen.lrs):
        return "the learning rate of its group is 0 in every step", f"param_groups[{record.group}]['lr']"
    if record.rounded and not noise:
        message = f"its updates are lost to rounding in {str(record.meta.dtype).removeprefix('torch.')}"
        return message, "keep float32 master weights (autocast instead of model.half/bfloat16)"
    message = "it gets a gradient, is in the optimizer, and does not move"
    return None if noise else (message, "is something copied over it after the step?")


# -- the learning rate


def lr(session: Session, result: Result) -> None:
    """Learning rate at each optimizer step; scheduler never stepped, stepped at the wrong time, or ended too early."""
    seen, training = session.observation, session.training
    if not seen.lrs:
        raise Unjudged("the optimizer never stepped; see the parameters probe")
    firsts = [rates[0] for rates in seen.lrs]
    result.evidence = f"applied {firsts[0]:.3g} -> {firsts[-1]:.3g} over {len(firsts)} optimizer steps"
    result.data = {"applied": seen.lrs}
    if not any(any(rates) for rates in seen.lrs):
        result.add("lr", "the learning rate is 0 in every step", result.evidence)
        result.fix("a warm-up that is never stepped, or a schedule that has already ended")
    if training.scheduler is not None:
        _scheduler(result, training, seen)


def _scheduler(result: Result, training: Training, seen: Observation) -> None:
    taken, updates = (sum(getattr(s, f"{name}_steps") for s in seen.steps) for name in ("scheduler", "optimizer"))
    shown, by_step = f"{taken} scheduler steps in {updates} optimizer steps", training.scheduler_interval == "step"
    if getattr(training.scheduler, "optimizer", training.optimizer) is not training.optimizer:
        result.add("lr", "the scheduler drives another optimizer than the one that steps")
        result.fix("make the scheduler after the last time the optimizer is made")
        return
    if taken and not by_step:
        result.add("lr", "a scheduler of epochs is stepped inside the training step", f"{shown}; {result.evidence}")
        result.fix("step it once per epoch, or give it the number of steps")
    elif not taken and by_step:
        result.add("lr", "the scheduler is never stepped", f"0 in {updates} optimizer steps")
        result.fix("scheduler.step() after optimizer.step()")
    elif taken > updates:
        result.add("lr", "the scheduler steps more often than the optimizer", shown)
        result.fix("with gradient accumulation, step it with the optimizer, not with every batch")
    total, kind = training.total_steps or 0, type(training.scheduler).__name__
    rates = _planned_rates(training, min(total, 100_000)) if by_step else []
    if not rates:
        return
    peak = max(rates)
    last = max((step + 1 for step, rate in enumerate(rates) if rate > 0.01 * peak), default=0)
    revived = any(rates[i] < 0.01 * peak and max(rates[i:]) > 0.9 * peak for i in range(len(rates) // 10, len(rates)))
    result.data["planned"] = {"total_steps": total, "peak": peak, "last_useful_step": last}
    if peak > 0 and last < 0.5 * len(rates):
        shown = f"above 1 % of its peak {peak:.3g} only until then"
        result.add("lr", f"the schedule ends at step {last} of {total}", shown)
        result.fix("give the scheduler the number of optimizer steps, not of epochs")
    elif revived and "Restart" not in kind and "Cyclic" not in kind:
        shown = f"{kind} over {total} steps"
        result.add("lr", "the learning rate falls to its end and climbs back within the run", shown)
        result.fix("its period (T_max) is in epochs while it is stepped per optimizer step")


def _planned_rates(training: Training, total: int) -> list[float]:
    """Of the whole run, from a copy of the scheduler on an optimizer of one number; empty when it cannot be copied."""
    if getattr(training.scheduler, "_schedulers", None):
        return []
    groups = [{**group, "params": [torch.zeros(1)]} for group in training.optimizer.param_groups]
    stand_in: Any = torch.optim.SGD(groups, lr=0.0)
    clone = copy.copy(training.scheduler)
    clone.optimizer = stand_in
    rates: list[float] = []
    with warnings.catch_warnings(), contextlib.suppress(Exception):
        warnings.simplefilter("ignore")
        for _ in range(total):
            rates.append(float(stand_in.param_groups[0]["lr"]))
            clone.step()  # ReduceLROnPlateau wants a metric, OneCycleLR raises at its end
    return rates


# -- the first steps


def observe(session: Session) -> Observation:
    recorder, original = Recorder(session), torch.autograd.backward
    torch.autograd.backward = partial(recorder.backward, original)
    try:
        for batch in session.cycle(min(session.steps, 16) * session.training.accumulate):
            recorder.step(batch)
    except Exception as error:  # the user's code may raise anything
        recorder.seen.error, recorder.seen.error_site = sentence(error), site(error)
    finally:
        torch.autograd.backward = original
    return recorder.finish()


class Recorder:
    """Its hooks stay: nobody uses the training afterwards."""

    def __init__(self, session: Session) -> None:
        self.session, self.training, self.seen = session, session.training, Observation()
        model, optimizer = self.training.model, self.training.optimizer
        groups = {id(p): i for i, group in enumerate(optimizer.param_groups) for p in group["params"]}
        self.tensors = dict(model.named_parameters())
        self.known = {id(tensor) for tensor in self.tensors.values()}
        self.seen.orphans = 0 if self.known & set(groups) else len(groups)
        for name, tensor in self.tensors.items():
            meta, frozen = torch.empty_like(tensor, device="meta"), self.training.is_frozen(name)
            group, rms = groups.get(id(tensor)), _rms(tensor.detach())
            record = ParameterRecord(name, meta, group, tensor.requires_grad, frozen, rms)
            self.seen.parameters.append(record)
            if record.trainable:
                tensor.register_hook(partial(self.receive, record))
        self.before = {name: tensor.detach().clone() for name, tensor in self.tensors.items()}
        self.buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
        self.current = StepRecord()
        self.incoming: dict[str, Any] = {}  # gradients of this step
        self.applied: dict[str, Any] = {}  # gradients at the last optimizer step
        self.weights: dict[str, Any] = {}
        self.bad_gradient = False
        optimizer.register_step_pre_hook(self.before_step)
        optimizer.register_step_post_hook(self.after_step)
        for name, module in model.named_modules():
            module.register_forward_pre_hook(partial(self.called, name))

    # -- hooks

    def receive(self, record: ParameterRecord, grad: Any) -> None:
        dense = _dense(grad)
        record.received += 1
        record.nonzero += bool(dense.any())
        old = self.incoming.get(record.name)
        self.incoming[record.name] = dense.clone() if old is None else old + dense

    def called(self, name: str, module: Any, _: Any) -> None:
        self.seen.called.add(name)
        if isinstance(module, mode_dependent()):
            self.seen.modes[name] = module.training

    def backward(self, original: Callable[..., Any], tensors: Any, *args: Any, **kwargs: Any) -> Any:
        """Walk through the graph: which trainable leaves are not parameters of the model?"""
        self.current.backwards += 1
        given = tensors if isinstance(tensors, (tuple, list)) else [tensors]
        edge, visited = [node for tensor in given if (node := getattr(tensor, "grad_fn", None)) is not None], set()
        while edge:
            node = edge.pop()
            if node in visited:
                continue
            visited.add(node)
            leaf = getattr(node, "variable", None)
            if leaf is not None and id(leaf) not in self.known:
                self.known.add(id(leaf))
                self.seen.strangers += ["x".join(map(str, leaf.shape))] if leaf.requires_grad else []
            edge += [following for following, _ in node.next_functions if following is not None]
        return original(tensors, *args, **kwargs)

    def before_step(self, optimizer: Any, *_: Any) -> None:
        step = self.current
        step.optimizer_steps += 1
        step.lrs = [float(group["lr"]) for group in optimizer.param_groups]
        present = {name: _dense(tensor.grad) for name, tensor in self.tensors.items() if tensor.grad is not None}
        self.bad_gradient |= any(not grad.isfinite().all() for grad in present.values())
        received = {name: grad for name, grad in self.incoming.items() if grad.any()}
        step.wiped |= bool(received) and not any(present[n].any() for n in received if n in present)
        for record in self.seen.parameters:
            parts = [source.get(record.name) for source in (self.incoming, present, self.applied)]
            if parts[1] is not None:
                record.grad_rms.append(_rms(parts[1]))
            whole = record.group is not None and all(part is not None for part in parts)
            if whole and self.training.accumulate == 1 and not step.wiped:
                record.stale += stale_share(*parts)
        self.applied = {name: grad.clone() for name, grad in present.items()}
        self.weights = {name: tensor.detach().clone() for name, tensor in self.tensors.items()}

    def after_step(self, optimizer: Any, *_: Any) -> None:
        for record in self.seen.parameters:
            old, new = self.weights[record.name].double(), self.tensors[record.name].detach().double()
            size, change = float(old.norm()), float((new - old).norm())
            record.ratios.append(change / size if size > _EPS else 0.0)
            lr = self.current.lrs[record.group] if record.group is not None else 0.0
            grad = self.applied.get(record.name)
            record.rounded |= lr > 0 and grad is not None and bool(grad.any()) and change == 0

    # -- steps

    def step(self, batch: Any) -> None:
        self.current, self.incoming, self.bad_gradient = StepRecord(), {}, False
        scheduler, step = self.training.scheduler, self.current
        count = scheduler._step_count if scheduler is not None else 0
        loss = self.session.train_step(batch)
        step.scheduler_steps = scheduler._step_count - count if scheduler is not None else 0
        self.seen.detached |= step.backwards == 0 and hasattr(loss, "requires_grad") and not loss.requires_grad
        step.loss = number(loss)
        if loss is not None and not math.isfinite(step.loss):
            step.nonfinite = "loss"
        elif any(not tensor.detach().isfinite().all() for tensor in self.tensors.values()):
            step.nonfinite = "weight"
        elif self.bad_gradient:
            step.nonfinite = "gradient"
        self.seen.steps.append(step)

    def finish(self) -> Observation:
        for record in self.seen.parameters:
            tensor = self.tensors[record.name].detach()
            record.moved = not _equal(tensor, self.before[record.name])
            record.rounded &= not record.moved
        now = dict(self.training.model.named_buffers())
        self.seen.buffers_moved = [n for n, old in self.buffers.items() if n in now and not _equal(now[n], old)]
        self.seen.done = True
        return self.seen


def _dense(grad: Any) -> Any:
    return (grad.to_dense() if grad.is_sparse else grad).detach()


def _rms(tensor: Any) -> float:
    return float(tensor.double().square().mean().sqrt())


def _equal(one: Any, other: Any) -> bool:
    """Bit by bit, but a NaN is equal to itself."""
    if one.is_floating_point():
        one, other = one.nan_to_num(7.0), other.nan_to_num(7.0)
    return torch.equal(one, other)


def stale_share(incoming: Any, present: Any, applied: Any) -> list[float]:
    """How much better `incoming + last step's gradient` explains what is applied than `incoming` alone: 0 to 1.

    Compared by direction, so that clipping and loss scaling do not matter. Empty when a gradient is zero.
    """
    cosines = []
    for guess in (incoming, incoming + applied):
        one, other = guess.double().flatten(), present.double().flatten()
        size = float(one.norm() * other.norm())
        if size <= _EPS:
            return []
        cosines.append(float(one @ other) / size)
    alone, both = cosines
    return [max(0.0, (both - alone) / (1 - alone)) if alone < 0.9999 else 0.0]
