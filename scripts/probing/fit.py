"""Overfit one batch: a training that cannot learn eight samples by heart will not learn the rest either.

When it cannot, Adam at three learning rates tries the same model, loss and samples. If Adam can, the recipe (rate,
clipping, decay) is at fault; if Adam cannot, the model, the loss or the data is.
"""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Callable
from typing import Any

from probing.parameters import crashed
from probing.results import Result
from probing.session import Session, number, sentence, tensors
from probing.state import preserved, schedule_state

STEPS = 120
ROWS = 8
ENOUGH = 0.5  # of the way to the best possible loss
DONE = 0.9  # there is no need to go on
RATES = (1e-3, 1e-2, 5e-2)


def overfit(session: Session) -> Result:
    """Can the model learn one small batch; if not, is it the recipe or the wiring (an Adam control decides)?"""
    result = Result("overfit")
    if crashed(result, session.observation()):
        return result
    batch, floor = small(session.batches(1)[0]), _floor(session)
    try:
        losses = _own(session, batch, floor)
    except Exception as error:  # a model may insist on its batch size
        batch = session.batches(1)[0]
        result.data["whole_batch"] = sentence(error)
        losses = _own(session, batch, floor)
    if len(losses) < 2 or not all(map(math.isfinite, losses)):
        result.unjudged = "the loss is not finite (see the nan probe), or there was no time"
        return result
    gain = _gain(losses, floor)
    result.evidence = f"loss {losses[0]:.4g} -> {_last(losses):.4g} in {len(losses)} steps on {ROWS} samples at most"
    result.data |= {"first": losses[0], "last": _last(losses), "steps": len(losses), "gain": gain, "floor": floor}
    if gain < ENOUGH:
        _control(result, session, batch, gain, floor)
    return result


def _own(session: Session, batch: Any, floor: float) -> list[float]:
    losses: list[float] = []
    with preserved(session.training):
        session.reset()
        hold = _peak(session)
        for _ in range(STEPS * session.training.accumulate):
            hold()
            losses.append(number(session.train_step(batch)))
            if session.late or not math.isfinite(losses[-1]) or _gain(losses, floor) > DONE:
                break
    return losses


def _peak(session: Session) -> Callable[[], None]:
    """A function that sets the highest rate seen and the scheduler back: a schedule says nothing about one batch."""
    training = session.training
    rates = [max(column) for column in zip(*session.observation().lrs, strict=True)]
    schedule = schedule_state(training.scheduler) if training.scheduler is not None else {}

    def hold() -> None:
        for group, rate in zip(training.optimizer.param_groups, rates, strict=False):
            group["lr"] = rate
        if training.scheduler is not None:
            vars(training.scheduler).update(copy.deepcopy(schedule))

    return hold


def _last(losses: list[float]) -> float:
    return statistics.median(losses[-max(1, len(losses) // 10) :])


def _gain(losses: list[float], floor: float) -> float:
    """Share of the way from the first loss to the best possible one."""
    way = losses[0] - floor
    return (losses[0] - _last(losses)) / way if way > 1e-9 else 1.0


def _floor(session: Session) -> float:
    """0, but for label smoothing, where even a perfect model pays the entropy of the smoothed target."""
    import torch

    smooth = getattr(session.training.loss, "label_smoothing", 0.0)
    classes = session.training.num_classes
    if not smooth:
        return 0.0
    if classes is None:
        with preserved(session.training), torch.no_grad():
            scores = next((t for _, t in tensors(session.forward(session.batches(1)[0]))), None)
        classes = int(scores.shape[1]) if scores is not None and scores.dim() > 1 else 2
    off = smooth / classes
    on = 1 - smooth + off
    return -(on * math.log(on) + (classes - 1) * off * math.log(off))


def small(batch: Any) -> Any:
    """The first rows, when every tensor of the batch has the same number of them."""
    lengths = {len(t) if t.dim() else 0 for _, t in tensors(batch)}
    return _cut(batch, ROWS) if len(lengths) == 1 and lengths.pop() > ROWS else batch


def _cut(item: Any, rows: int) -> Any:
    if isinstance(item, dict):
        return {key: _cut(value, rows) for key, value in item.items()}
    if isinstance(item, (tuple, list)):
        return type(item)(_cut(value, rows) for value in item)
    return item[:rows] if hasattr(item, "dim") else item


def _control(result: Result, session: Session, batch: Any, gain: float, floor: float) -> None:
    runs = {}
    for rate in RATES:
        try:
            runs[rate] = _adam(session, batch, rate)
        except Exception as error:
            result.add("no-fit", "error", "one batch is not learnt", evidence=result.evidence,
                       fix=f"the control with Adam could not run: {sentence(error)}")  # fmt: skip
            return
    rate = max(runs, key=lambda r: _gain(runs[r][0], floor))
    losses, ignored = runs[rate]
    best = _gain(losses, floor)
    shown = f"{result.evidence}; Adam at {rate:g}: {losses[0]:.4g} -> {_last(losses):.4g}"
    result.data["control"] = {"lr": rate, "gain": best}
    if ignored:
        result.add("ignored-input", "error", "the output does not depend on the input", evidence=f"{shown}; after "
                   "training, exchanged inputs give the same loss to the last digit",
                   fix="follow the input through forward: overwritten, multiplied by 0, wrong variable")  # fmt: skip
    elif best < 0.1:
        result.add("no-fit", "error", "one batch cannot be learnt, by Adam neither: model, loss or data are wired "
                   "wrongly", evidence=shown, fix="run parameters, loss, gradients and data probes")  # fmt: skip
    elif gain < 0.5 * best and not _warming(session):
        result.add(
            "no-fit",
            "error",
            "one batch is not learnt, but Adam learns it: the recipe is at fault",
            evidence=shown,
            fix="learning rate, clipping, weight decay, schedule: see lr and ratios",
        )
    else:
        result.evidence = f"{shown}: as far as this model can"


def _warming(session: Session) -> bool:
    """Still climbing at the end of what was observed: a short run cannot judge a long warm-up."""
    rates = [max(lrs) for lrs in session.observation().lrs]
    return len(rates) > 3 and rates[-1] > rates[-2] > rates[-3]


def _adam(session: Session, batch: Any, rate: float) -> tuple[list[float], bool]:
    """Losses, and whether exchanging the inputs afterwards changes nothing."""
    import torch

    losses = []
    with preserved(session.training):
        parameters = [p for p in session.training.model.parameters() if p.requires_grad]
        adam = torch.optim.Adam(parameters, lr=rate) if parameters else None
        for _ in range(STEPS):
            loss = session.loss(session.forward(batch), batch)
            losses.append(number(loss))
            if adam is None or not loss.requires_grad or session.late:
                break
            adam.zero_grad()
            torch.autograd.backward(loss)
            adam.step()
        return losses, _ignored(session, batch)


def _ignored(session: Session, batch: Any) -> bool:
    """Rows of the inputs exchanged, rows of the targets not: does the loss notice?"""
    import torch

    if not isinstance(batch, (tuple, list)) or len(batch) < 2:
        return False
    session.training.model.eval()
    rolled = type(batch)([_roll(batch[0]), *batch[1:]])
    with torch.no_grad():
        real, other = (session.forward(b) for b in (batch, rolled))
    one, two = dict(tensors(real)), dict(tensors(other))
    distinct = any(bool((t != t[:1]).any()) for _, t in tensors(batch[0]) if t.dim())
    return distinct and bool(one) and all(torch.equal(one[name], two[name]) for name in one if name in two)


def _roll(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: _roll(value) for key, value in item.items()}
    if isinstance(item, (tuple, list)):
        return type(item)(_roll(value) for value in item)
    return item.roll(1, 0) if hasattr(item, "roll") and item.dim() else item
