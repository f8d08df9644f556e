"""The learning rate that the optimizer really applied, step by step, against the one that was meant."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

from probing.contract import Training
from probing.observe import Observation
from probing.parameters import crashed
from probing.results import Result
from probing.session import Session


def lr(session: Session) -> Result:
    """Learning rate at each optimizer step; scheduler never stepped, stepped at the wrong time, or ended too early."""
    seen, training = session.observation(), session.training
    result = Result("lr")
    if crashed(result, seen):
        return result
    if not seen.lrs:
        result.unjudged = "the optimizer never stepped; see the parameters probe"
        return result
    firsts = [rates[0] for rates in seen.lrs]
    result.evidence = f"applied {firsts[0]:.3g} -> {firsts[-1]:.3g} over {len(firsts)} optimizer steps"
    result.data = {"applied": seen.lrs}
    if all(not any(rates) for rates in seen.lrs):
        result.add("lr", "error", "the learning rate is 0 in every step", evidence=result.evidence,
                   fix="a warm-up that is never stepped, or a schedule that has already ended")  # fmt: skip
    if training.lr_at:
        _as_meant(result, training, seen)
    if training.scheduler is not None:
        _scheduler(result, training, seen)
    return result


def _as_meant(result: Result, training: Training, seen: Observation) -> None:
    assert training.lr_at
    for step, rates in enumerate(seen.lrs):
        wanted = training.lr_at(step)
        if not any(math.isclose(rate, wanted, rel_tol=1e-3, abs_tol=1e-12) for rate in rates):
            result.add("lr", "error", f"optimizer step {step} used {rates[0]:.4g}; lr_at({step}) is {wanted:.4g}",
                       evidence=f"applied: {', '.join(f'{r[0]:.3g}' for r in seen.lrs[:6])}",
                       fix="set it in optimizer.param_groups, for every group, before optimizer.step()")  # fmt: skip
            return


def _scheduler(result: Result, training: Training, seen: Observation) -> None:
    scheduler = training.scheduler
    if getattr(scheduler, "optimizer", training.optimizer) is not training.optimizer:
        result.add("lr", "error", "the scheduler drives another optimizer than the one that steps",
                   fix="make the scheduler after the last time the optimizer is made")  # fmt: skip
        return
    taken = sum(step.scheduler_steps for step in seen.steps)
    updates = sum(step.optimizer_steps for step in seen.steps)
    if training.scheduler_interval == "epoch":
        if taken:
            result.add("lr", "error", "a scheduler of epochs is stepped inside the training step",
                       evidence=f"{taken} scheduler steps in {updates} optimizer steps; {result.evidence}",
                       fix="step it once per epoch, or give it the number of steps")  # fmt: skip
        return
    if not taken:
        result.add("lr", "error", "the scheduler is never stepped", evidence=f"0 in {updates} optimizer steps",
                   fix="scheduler.step() after optimizer.step()")  # fmt: skip
    elif taken > updates:
        result.add("lr", "error", "the scheduler steps more often than the optimizer",
                   evidence=f"{taken} scheduler steps in {updates} optimizer steps",
                   fix="with gradient accumulation, step it with the optimizer, not with every batch")  # fmt: skip
    if training.total_steps:
        _whole_run(result, training)


def _whole_run(result: Result, training: Training) -> None:
    """Step a copy to the planned end: a schedule that ends early leaves most of the run without a learning rate."""
    total = training.total_steps or 0
    rates = project(training, min(total, 100_000))
    if rates is None:
        return
    peak = max(rates)
    living = [step for step, rate in enumerate(rates) if rate > 0.01 * peak]
    last = living[-1] + 1 if living else 0
    revived = any(rates[i] < 0.01 * peak and max(rates[i:]) > 0.9 * peak for i in range(len(rates) // 10, len(rates)))
    result.data["planned"] = {"total_steps": total, "peak": peak, "last_useful_step": last}
    if peak > 0 and last < 0.5 * len(rates):
        result.add("lr", "error", f"the schedule ends at step {last} of {total}",
                   evidence=f"above 1 % of its peak {peak:.3g} only until then",
                   fix="give the scheduler the number of optimizer steps, not of epochs")  # fmt: skip
    elif revived and "Restart" not in type(training.scheduler).__name__ and "Cyclic" not in type(
            training.scheduler).__name__:  # fmt: skip
        result.add("lr", "error", "the learning rate falls to its end and climbs back within the run",
                   evidence=f"{type(training.scheduler).__name__} over {total} steps",
                   fix="its period (T_max) is in epochs while it is stepped per optimizer step")  # fmt: skip


def project(training: Training, total: int) -> list[float] | None:
    """The rates of a whole run from a copy of the scheduler on an optimizer of one number; None when it resists."""
    import torch

    groups = [{**{k: v for k, v in g.items() if k != "params"}, "params": [torch.zeros(1)]}
              for g in training.optimizer.param_groups]  # fmt: skip
    stand_in: Any = torch.optim.SGD(groups, lr=0.0)
    if getattr(training.scheduler, "_schedulers", None):
        return None
    clone = copy.copy(training.scheduler)
    clone.optimizer = stand_in
    rates = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            for _ in range(total):
                rates.append(float(stand_in.param_groups[0]["lr"]))
                clone.step()
        except Exception:  # ReduceLROnPlateau wants a metric, OneCycleLR raises at its end
            return rates or None
    return rates
