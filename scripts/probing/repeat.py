"""The same training twice: does it repeat itself, and does a resumed run go on as if it had never stopped?"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from typing import Any

from probing.contract import Training
from probing.results import Result, several
from probing.samples import digest
from probing.session import Session, move, number, sentence, site
from probing.state import rng_state, same_random, seed_all, set_rng_state

_STEPS = 8


def determinism(session: Session) -> Result:
    """Two runs from the same seed: the first step at which they differ, and in what (weights, data, loss)."""
    result = Result("determinism")
    if session.make is None:
        result.unjudged = "needs the factory, to build the training twice"
        return result
    try:
        with same_random():
            first, second = (_run(session, _STEPS) for _ in range(2))
    except Exception as error:
        result.unjudged = f"the training raises: {sentence(error)}"
        return result
    result.evidence = f"two runs from seed {session.seed} are equal in every bit over {len(first)} steps"
    for step, (one, other) in enumerate(zip(first, second, strict=False)):
        different = [part for part in one if one[part] != other.get(part)]
        if different:
            where = "the initial weights" if step == 0 and "start" in different else f"the {different[0]}"
            result.data = {"step": step, "differs": different}
            result.evidence = f"the runs differ from step {step} on, first in {where}"
            result.add("nondeterminism", "warn", f"two runs from one seed differ from step {step} on, first in {where}",
                       evidence=f"{one} against {other}"[:300], fix=_FIXES.get(different[0], ""))  # fmt: skip
            break
    return result


_FIXES = {
    "start": "something draws before or without the seed: os.urandom, time, a generator of its own, a set's order",
    "batch": "the data order or an augmentation uses a generator that nobody seeds",
    "loss": "same weights, same batch, another loss: an unseeded dropout, or an operation that is not deterministic; "
    "torch.use_deterministic_algorithms(True) names it",
    "weights": "same loss, other update: an unseeded optimizer or noise in the gradients",
}


def _run(session: Session, steps: int) -> list[dict[str, Any]]:
    """Of each step: digests of the batch, the loss and the weights; the first entry also has the initial weights."""
    assert session.make
    seed_all(session.seed)
    training = session.make()
    own = Session(training, steps=session.steps)
    rows: list[dict[str, Any]] = []
    start = _weights(training)
    for batch in _stream(training, steps * training.accumulate):
        batch = move(batch, own.device)
        row = {"start": start} if not rows else {}
        loss = number(own.train_step(batch))
        rows.append({**row, "batch": digest(batch), "loss": repr(loss), "weights": _weights(training)})
        if session.late:
            break
    return rows


def _weights(training: Training) -> str:
    return digest(list(training.model.parameters()))


def _stream(training: Training, count: int) -> Iterator[Any]:
    """Epoch after epoch, `count` batches."""
    given = 0
    while given < count:
        before = given
        for batch in training.data:
            yield batch
            given += 1
            if given == count:
                return
        if given == before:
            return


# -- resume


def resume(session: Session) -> Result:
    """Train N steps; train N/2, save, load into a fresh training, go on; name what was not carried over."""
    result = Result("resume")
    if session.make is None:
        result.unjudged = "needs the factory, to build the training again"
        return result
    try:
        with same_random():
            _resume(result, session, session.make)
    except Exception as error:
        result.add("resume", "error", f"saving or loading raises: {sentence(error)}", where=site(error))
    return result


def _resume(result: Result, session: Session, make: Any) -> None:
    import torch

    half = max(2, _STEPS // 2) * session.training.accumulate
    seed_all(session.seed)
    whole = make()
    batches, losses = _train(whole, _stream(whole, 2 * half))
    seed_all(session.seed)
    stopped = make()
    # reads its own data, as a run does, so that a position in it can be saved
    _, before = _train(stopped, _stream(stopped, half))
    if before != losses[:half] and not all(map(math.isnan, losses)):
        result.unjudged = "the training does not repeat itself; see the determinism probe"
        return
    buffer = io.BytesIO()
    torch.save(_save(stopped), buffer)
    kept = _facts(stopped)
    rng = rng_state()
    resumed = _loaded(session, make, buffer)
    lost = _differences(kept, _facts(resumed))
    _position(result, resumed, batches, half)
    _, after = _train(resumed, iter(batches[half:]))
    if after != losses[half:] and all(name.startswith("random state") for name in lost):
        again = _loaded(session, make, buffer)
        set_rng_state(rng)
        if _train(again, iter(batches[half:]))[1] != losses[half:]:
            lost = []  # with the right random numbers it still differs: they are not the cause
    _judge(result, losses[half:], after, lost)


def _loaded(session: Session, make: Any, checkpoint: io.BytesIO) -> Training:
    """A fresh training that took the checkpoint; what it did not take is random."""
    import torch

    checkpoint.seek(0)
    seed_all(session.seed)
    fresh: Training = make()
    seed_all(session.seed + 1)
    (fresh.load or (lambda state: _load(fresh, state)))(torch.load(checkpoint, weights_only=False))
    return fresh


def _train(training: Training, batches: Iterator[Any]) -> tuple[list[Any], list[float]]:
    """Reading a batch leaves the random state alone here: the resumed run is fed, and must draw what a run draws."""
    own = Session(training)
    seen: list[Any] = []
    losses: list[float] = []
    while True:
        with same_random():
            batch = next(batches, None)
        if batch is None:
            return seen, losses
        seen.append(batch)
        losses.append(number(own.train_step(move(batch, own.device))))


def _save(training: Training) -> Any:
    if training.save:
        return training.save()
    scheduler = training.scheduler.state_dict() if training.scheduler is not None else None
    return {"model": training.model.state_dict(), "optimizer": training.optimizer.state_dict(),
            "scheduler": scheduler, "rng": rng_state()}  # fmt: skip


def _load(training: Training, state: dict[str, Any]) -> None:
    training.model.load_state_dict(state["model"])
    training.optimizer.load_state_dict(state["optimizer"])
    if training.scheduler is not None:
        training.scheduler.load_state_dict(state["scheduler"])
    set_rng_state(state["rng"])


def _facts(training: Training) -> dict[str, str]:
    """One digest per thing that a checkpoint has to carry."""
    model, optimizer, scheduler = training.model, training.optimizer, training.scheduler
    rng = rng_state()
    facts = {f"weights {name}": digest(tensor) for name, tensor in model.named_parameters()}
    facts |= {f"buffer {name}": digest(tensor) for name, tensor in model.named_buffers()}
    facts["optimizer state"] = digest(optimizer.state_dict()["state"])
    facts["learning rate"] = repr([group["lr"] for group in optimizer.param_groups])
    facts["scheduler step"] = repr(getattr(scheduler, "last_epoch", None))
    facts["random state of torch"] = digest(rng["torch"])
    facts["random state of python"] = repr(rng["python"])
    facts["random state of numpy"] = digest(list(rng["numpy"][1:]))
    return facts


def _differences(kept: dict[str, str], loaded: dict[str, str]) -> list[str]:
    return [name for name in kept if kept[name] != loaded.get(name)]


def _position(result: Result, resumed: Training, batches: list[Any], half: int) -> None:
    """Only where the run has its own save: would the next batch be the one that was due?"""
    if not resumed.save or len(batches) <= half:
        return
    with same_random():
        upcoming = next(_stream(resumed, 1), None)
    if upcoming is not None and digest(upcoming) != digest(batches[half]):
        again = digest(upcoming) == digest(batches[0])
        result.data["position"] = "start" if again else "elsewhere"
        where = "starts again from the first batch" if again else "goes on with another batch than the one due"
        result.add("order", "warn", f"after resuming the data {where}",
                   fix="save the epoch and the position in it (StatefulDataLoader, or skip batches)")  # fmt: skip


def _judge(result: Result, wanted: list[float], got: list[float], lost: list[str]) -> None:
    differs = next((i for i, (a, b) in enumerate(zip(wanted, got, strict=False)) if a != b), None)
    result.evidence = f"resumed and uninterrupted run are equal over {len(got)} steps after the checkpoint"
    plain = [name for name in lost if not name.startswith("random state")]
    if differs is None and not plain:
        if lost:
            result.add("resume", "info", f"not restored, without effect here: {several(lost)}")
        return
    what = (
        several(plain or lost)
        or "something else that the step uses (a counter, a reference that load_state_dict made stale)"
    )
    seen = f"step {differs} after resuming: {wanted[differs]:.6g} uninterrupted, {got[differs]:.6g} resumed" \
        if differs is not None else "the losses of these few steps are still equal"  # fmt: skip
    result.evidence = seen
    result.data["lost"] = lost
    result.add("resume", "error", f"not carried over by the checkpoint: {what}", evidence=seen,
               fix="save and load it with the rest")  # fmt: skip
