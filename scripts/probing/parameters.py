"""Is every parameter that should learn in the optimizer, reached by the loss, and moving; does what is frozen stay?"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from probing.contract import Training
from probing.observe import Observation, ParameterRecord
from probing.results import Result, several
from probing.session import Session

_FOLD = 20  # names of one cause in one finding


def parameters(session: Session) -> Result:
    """Which parameters are in the optimizer, get a gradient and move; what is frozen and moves all the same."""
    seen, training = session.observation(), session.training
    result = Result("parameters")
    if crashed(result, seen):
        return result
    _whole_step(result, seen, training)
    blamed = any(finding.severity == "error" for finding in result.findings)
    if not blamed:
        _each(result, seen, training)
    _frozen(result, seen, training)
    _outside(result, seen, training)
    moved = sum(record.moved for record in seen.parameters)
    result.evidence = f"{moved} of {len(seen.parameters)} parameters moved in {len(seen.steps)} steps"
    result.data = {"parameters": len(seen.parameters), "moved": moved}
    return result


def crashed(result: Result, seen: Observation) -> bool:
    """A step that raises leaves nothing to judge; `nan` and `loss` look into the cause."""
    if seen.error and result.probe == "parameters":  # once is enough
        result.add("crash", "error", f"the step raises at batch {seen.error_batch}: {seen.error}",
                   where=seen.error_site, fix="the loss and data probes name what such a batch holds")  # fmt: skip
    elif seen.error and not seen.steps:
        result.unjudged = f"the step raises: {seen.error}"
    elif not seen.steps:
        result.unjudged = "the data gave no batch"
    return not seen.steps


def _whole_step(result: Result, seen: Observation, training: Training) -> None:
    steps = seen.steps
    if seen.detached:
        result.add("not-updating", "error", "the loss has no graph: nothing can be learnt from it",
                   evidence="loss.requires_grad is False and no backward pass ran",
                   fix="look for .item(), .detach(), .data, numpy or no_grad between model and loss")  # fmt: skip
    elif not any(step.backwards for step in steps):
        result.add("not-updating", "error", "no backward pass ran in any step", fix="call loss.backward()")
    elif len(steps) >= training.accumulate and not any(step.optimizer_steps for step in steps):
        result.add("not-updating", "error", "optimizer.step() was never called",
                   evidence=f"{len(steps)} steps with a backward pass, none with an optimizer step",
                   fix="call optimizer.step() on this optimizer (a second one was made?) after backward")  # fmt: skip
    elif any(step.wiped for step in steps):
        result.add("not-updating", "error", "the gradients are gone when the optimizer steps",
                   evidence="backward brought nonzero gradients; at optimizer.step() all are zero or None",
                   fix="zero_grad() belongs before backward or after step, not between them")  # fmt: skip
    # a single number has only two directions: it cannot tell
    kept = [
        r for r in seen.parameters if r.tensor.numel() > 1 and len(r.stale) > 2 and statistics.median(r.stale) > 0.9
    ]
    if kept:
        share = statistics.median(statistics.median(record.stale) for record in kept)
        result.add("accumulated", "error", "gradients of earlier steps are still in what the optimizer applies",
                   where=several([record.name for record in kept]),
                   evidence=f"applied gradient = new + previous one, in direction to {share:.1%}",
                   fix="call optimizer.zero_grad() every step, or declare accumulate=")  # fmt: skip


def _each(result: Result, seen: Observation, training: Training) -> None:
    causes: dict[tuple[str, str], list[str]] = {}
    for record in seen.parameters:
        if not training.is_frozen(record.name):
            cause = _cause(record, seen)
            if cause:
                causes.setdefault(cause, []).append(record.name)
    for (message, fix), names in causes.items():
        result.add("not-updating", "warn" if "requires_grad" in message else "error", message,
                   where=several(names[:_FOLD]), evidence=f"{len(names)} of {len(seen.parameters)} parameters",
                   fix=fix)  # fmt: skip


def _cause(record: ParameterRecord, seen: Observation) -> tuple[str, str] | None:
    if not record.trainable:  # an EMA copy inside the model moves without a gradient; that is meant
        fix = "if it is meant, declare frozen=; if not, requires_grad_(True) and into the optimizer"
        return None if record.moved else ("requires_grad is False and nobody declared it frozen", fix)
    if record.received == 0:
        module = record.name.rpartition(".")[0]
        if module in seen.called:
            return ("its module runs, but the loss does not reach it: cut by detach, no_grad, .data or an index",
                    "look downstream of this module for what ends the graph")  # fmt: skip
        return "its module is never called in forward", "use it, or delete it; DDP would hang or raise on it"
    if record.group is None:
        return ("it gets a gradient and is not in the optimizer",
                "build the optimizer from model.parameters() after the last change of the model")  # fmt: skip
    if record.moved:
        return None
    if record.nonzero == 0:
        return "its gradient is exactly zero in every step", "see the gradients probe: dead or saturated units"
    if not any(lrs[record.group] for lrs in seen.lrs):
        return "the learning rate of its group is 0 in every step", f"param_groups[{record.group}]['lr']"
    if record.rounded and not _negligible(record, seen):
        return (f"its updates are lost to rounding in {str(record.tensor.dtype).removeprefix('torch.')}",
                "keep float32 master weights (autocast instead of model.half/bfloat16)")  # fmt: skip
    if _negligible(record, seen):  # a bias in front of a BatchNorm, for one: nothing depends on it
        return None
    return "it gets a gradient, is in the optimizer, and does not move", "is something copied over it after the step?"


def _negligible(record: ParameterRecord, seen: Observation) -> bool:
    """Its gradient is rounding noise beside that of the others."""
    usual = statistics.median(max(r.grad_rms) for r in seen.parameters if r.grad_rms)
    return max(record.grad_rms, default=0.0) < 1e-5 * usual


def _frozen(result: Result, seen: Observation, training: Training) -> None:
    moved = [r.name for r in seen.parameters if r.moved and training.is_frozen(r.name)]
    if moved:
        result.add(
            "moving",
            "error",
            "declared frozen, and moves",
            where=several(moved),
            evidence=f"{len(moved)} parameters changed in {len(seen.steps)} steps",
            fix="requires_grad_(False) and leave it out of the optimizer; weight decay moves it too",
        )
    buffers = [name for name in seen.buffers_moved if training.is_frozen(name)]
    if buffers:
        result.add("moving", "error", "running statistics of a frozen part move", where=several(buffers),
                   evidence="requires_grad does not stop BatchNorm; its mode does",
                   fix="call .eval() on the frozen part after every model.train()")  # fmt: skip


def _outside(result: Result, seen: Observation, training: Training) -> None:
    """Trainable tensors that only the loss knows, and optimizer entries that only the optimizer knows."""
    if seen.strangers:
        result.add("unregistered", "error", "the loss trains tensors that are not parameters of the model",
                   evidence=f"shapes {several(seen.strangers)}",
                   fix="modules in a plain list or dict are not registered: nn.ModuleList, nn.ModuleDict, "
                       "nn.Parameter; they are missing in state_dict, .to() and the optimizer")  # fmt: skip
    known = {id(record.tensor) for record in seen.parameters}
    orphans = sum(id(p) not in known for group in training.optimizer.param_groups for p in group["params"])
    if orphans and not any(id(p) in known for group in training.optimizer.param_groups for p in group["params"]):
        result.add("not-updating", "error", "the optimizer holds none of the model's parameters",
                   evidence=f"{orphans} tensors in the optimizer, none of them in the model",
                   fix="the model was rebuilt, copied or reloaded after the optimizer was made")  # fmt: skip


def ratios(session: Session) -> Result:
    """|update| / |weight| per step: too large when the loss rises with it, too small when nothing can move."""
    seen = session.observation()
    result = Result("ratios")
    if crashed(result, seen):
        return result
    table = dict(_table(seen))
    if not table:
        result.unjudged = "no weight was updated; see the parameters probe"
        return result
    middle = statistics.median(table.values())
    result.evidence = f"median |update|/|weight| {middle:.1e} over {len(table)} weights"
    result.data = {"median": middle, "weights": table}
    losses = [loss for loss in seen.losses if loss == loss]
    half = len(losses) // 2
    rising = half >= 2 and statistics.median(losses[half:]) > 2 * statistics.median(losses[:half])
    diverged = bool(losses) and len(losses) > 3 and max(losses[1:]) > 10 * max(abs(losses[0]), 1e-3)
    falling = half >= 2 and statistics.median(losses[half:]) < statistics.median(losses[:half])
    shown = f"{result.evidence}; loss {losses[0]:.4g} -> {losses[-1]:.4g}" if losses else result.evidence
    smallest = 10 * _resolution(seen)
    if (rising or diverged) and max(table.values()) > 0.05:
        worst = max(table, key=table.__getitem__)
        result.add(
            "update-ratio",
            "error",
            f"updates are too large, and the loss rises: {table[worst]:.2g} of it per step",
            where=worst,
            evidence=shown,
            fix="divide the learning rate by 10, or warm up",
        )
    elif middle < smallest and not falling:
        result.add(
            "update-ratio",
            "error",
            f"updates of {middle:.1e} of the weights cannot teach anything",
            evidence=shown,
            fix="look at the learning rate really applied (lr probe) and at clipping",
        )
    return result


def _table(seen: Observation) -> Iterator[tuple[str, float]]:
    """Only steps with a rate: a warm-up may start at 0."""
    live = [index for index, lrs in enumerate(seen.lrs) if any(lrs)]
    for record in seen.parameters:
        values = [record.ratios[i] for i in live if i < len(record.ratios)]
        if record.tensor.dim() >= 2 and record.trainable and record.group is not None and values:
            yield record.name, max(statistics.median(values), 0.0)


def _resolution(seen: Observation) -> float:
    """The dtype's own step: an update below it cannot be stored."""
    import torch

    return max(torch.finfo(r.tensor.dtype).eps for r in seen.parameters if r.tensor.is_floating_point())
