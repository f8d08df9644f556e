"""What an optimizer step does: which parameters learn, by how much, and at which learning rate."""

from __future__ import annotations

import contextlib
import copy
import statistics
import warnings
from typing import Any

from rgt.probes.factory import Observation, ParameterRecord, Result, Training, Unjudged, several
from rgt.probes.probe_session import Session

import torch

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
