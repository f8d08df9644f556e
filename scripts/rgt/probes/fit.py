"""Can the model learn: do gradients arrive, are units alive, and is one small batch learnt by heart?

A training that cannot learn eight samples will not learn the rest either. When it cannot, Adam at three learning rates
tries the same model, loss and samples. If Adam can, the recipe (rate, clipping, decay) is at fault; if Adam cannot, the
model, the loss or the data is.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

from rgt.probes.factory import Result, Unjudged, sentence, several
from rgt.probes.probe_session import Session, each_tensor, number, tensors

import torch

VANISH = 1e-6  # first quarter's gradient against the last's; a healthy deep net keeps within 1e-3
EXPLODE = 1e4  # gradient RMS against weight RMS: one plain step of lr 1e-3 would move weights by ten times themselves
DEAD = 0.5  # share of units that never fire; some always are
STEPS = 120
ROWS = 8
ENOUGH = 0.5  # of the way to the best possible loss
DONE = 0.9  # there is no need to go on
RATES = (1e-3, 1e-2, 5e-2)


def gradients(session: Session, result: Result) -> None:
    """Vanishing or exploding gradients by depth, and units that never fire."""
    seen = session.observation
    records = {r.name: r for r in seen.parameters if r.meta.dim() >= 2 and r.grad_rms and r.trainable}
    sizes = {name: statistics.median(record.grad_rms) for name, record in records.items()}
    if not sizes:
        raise Unjudged("no weight got a gradient; see the parameters probe")
    # by the order of registration, which is the order of depth in nearly every model; embeddings are in front
    names, values, quarter = list(sizes), list(sizes.values()), len(sizes) // 4
    first, last = (statistics.median(part or [0.0]) for part in (values[:quarter], values[len(values) - quarter :]))
    if first < VANISH * last:
        shown = f"median RMS of the first and last quarter of {len(values)} weights"
        message = f"the gradient vanishes towards the input: {first:.1e} against {last:.1e}"
        result.add("gradient", message, shown, where=several(names[:quarter]))
        result.fix("residual connections, normalisation, ReLU-like units or their initialisation instead of sigmoids")
    relative = {name: size / records[name].rms for name, size in sizes.items() if records[name].rms > 0}
    worst = max(relative, key=relative.__getitem__, default="")
    if worst and relative[worst] > EXPLODE:
        message = f"the gradient explodes: {sizes[worst]:.1e}, {relative[worst]:.0e} times the weight itself"
        result.add("gradient", message, f"limit {EXPLODE:.0e}", where=worst)
        result.fix("scale the initialisation and the inputs; clip_grad_norm_ hides it")
    _units(result, session)
    result.evidence = f"gradient RMS {min(values):.1e} to {max(values):.1e} over {len(sizes)} weights"
    result.data["gradient_rms"] = sizes


def _units(result: Result, session: Session) -> None:
    """Activations in train mode over a few batches: which units never fire."""
    live: dict[str, Any] = {}

    def note(name: str, output: Any) -> None:
        # samples x units: channels are dimension 1 of an image, the last one otherwise
        flat = output.movedim(1, -1) if output.dim() == 4 else output
        fired = (flat.reshape(-1, flat.shape[-1]) != 0).any(0)
        live[name] = fired | live[name] if name in live and live[name].shape == fired.shape else fired

    for name, module in session.training.model.named_modules():
        if isinstance(module, (torch.nn.ReLU, torch.nn.ReLU6)):
            module.register_forward_hook(lambda module, inputs, output, name=name: note(name, output))
    with torch.no_grad():
        for batch in session.cycle(min(4, session.steps)):
            session.forward(batch)
    dead = {name: 1 - float(fired.double().mean()) for name, fired in live.items() if fired.numel() >= 4}
    result.data["dead_share"] = dead
    worst = max(dead, key=dead.__getitem__, default="")
    if worst and dead[worst] > DEAD:
        shown = "output 0 for every sample of the batches tried: no gradient reaches them again"
        result.add("dead-units", f"{dead[worst]:.0%} of the units never fire", shown, where=worst)
        result.fix("lower learning rate, look at the bias and at the scale of the inputs, or LeakyReLU")


# -- one batch


def overfit(session: Session, result: Result) -> None:
    """Can the model learn one small batch; if not, is it the recipe or the wiring (an Adam control decides)?"""
    whole = session.batches(1)[0]
    lengths = {len(t) if t.dim() else 0 for _, t in tensors(whole)}
    batch = each_tensor(whole, lambda t: t[:ROWS]) if len(lengths) == 1 and lengths.pop() > ROWS else whole
    try:
        losses = _own_steps(session.fresh(), batch)
    except Exception as error:  # a model may insist on its batch size
        batch, result.data["whole_batch"] = whole, sentence(error)
        losses = _own_steps(session.fresh(), batch)
    if len(losses) < 2 or not math.isfinite(losses[0]):
        raise Unjudged("the loss is not finite (see the nan probe), or there was no time")
    gain = _gain(losses) if math.isfinite(losses[-1]) else -math.inf  # it ends at the first that is not finite
    result.evidence = f"loss {losses[0]:.4g} -> {_last(losses):.4g} in {len(losses)} steps on {ROWS} samples at most"
    result.data |= {"first": losses[0], "last": _last(losses), "steps": len(losses), "gain": gain}
    if gain >= ENOUGH:
        return
    try:
        runs = {rate: _adam_steps(session.fresh(), batch, rate) for rate in RATES}
    except Exception as error:
        result.add("no-fit", "one batch is not learnt", result.evidence)
        result.fix(f"the control with Adam could not run: {sentence(error)}")
        return
    rate = max(runs, key=lambda rate: _gain(runs[rate][0]))
    losses, ignored = runs[rate]
    best = _gain(losses)
    shown = f"{result.evidence}; Adam at {rate:g}: {losses[0]:.4g} -> {_last(losses):.4g}"
    result.data["control"] = {"lr": rate, "gain": best}
    rates = [max(lrs) for lrs in session.observation.lrs]
    warming = len(rates) > 3 and rates[-1] > rates[-2] > rates[-3]  # a short run cannot judge a long warm-up
    if ignored:
        shown = f"{shown}; after training, exchanged inputs give the same loss to the last digit"
        result.add("ignored-input", "the output does not depend on the input", shown)
        result.fix("follow the input through forward: overwritten, multiplied by 0, wrong variable")
    elif best < 0.1:
        message = "one batch cannot be learnt, by Adam neither: model, loss or data are wired wrongly"
        result.add("no-fit", message, shown)
        result.fix("run parameters, loss, gradients and data probes")
    elif gain < 0.5 * best and not warming:
        result.add("no-fit", "one batch is not learnt, but Adam learns it: the recipe is at fault", shown)
        result.fix("learning rate, clipping, weight decay, schedule: see lr and parameters")
    else:
        result.evidence = f"{shown}: as far as this model can"


def _last(losses: list[float]) -> float:
    return statistics.median(losses[-max(1, len(losses) // 10) :])


def _gain(losses: list[float]) -> float:
    """Share of the way from the first loss to 0."""
    return (losses[0] - _last(losses)) / losses[0] if losses[0] > 1e-9 else 1.0


def _own_steps(session: Session, batch: Any) -> list[float]:
    """Losses of the training's own step, held at the highest rate seen: a schedule says nothing about one batch."""
    training, losses = session.training, list[float]()
    rates = [max(column) for column in zip(*session.observation.lrs, strict=True)]
    if training.scheduler is not None:
        training.scheduler.step = lambda *_, **__: None
    for _ in range(STEPS * training.accumulate):
        for group, rate in zip(training.optimizer.param_groups, rates, strict=False):
            group["lr"] = rate
        losses.append(number(session.train_step(batch)))
        if session.late or not math.isfinite(losses[-1]) or _gain(losses) > DONE:
            break
    return losses


def _adam_steps(session: Session, batch: Any, rate: float) -> tuple[list[float], bool]:
    """Losses, and whether exchanging the inputs afterwards changes nothing."""
    losses = []
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
    if not isinstance(batch, (tuple, list)) or len(batch) < 2:
        return losses, False
    session.training.model.eval()
    rolled = type(batch)([each_tensor(batch[0], lambda t: t.roll(1, 0) if t.dim() else t), *batch[1:]])
    with torch.no_grad():
        real, other = (dict(tensors(session.forward(b))) for b in (batch, rolled))
    distinct = any(bool((t != t[:1]).any()) for _, t in tensors(batch[0]) if t.dim())
    same = bool(real) and all(torch.equal(real[name], other[name]) for name in real if name in other)
    return losses, distinct and same
