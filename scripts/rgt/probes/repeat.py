"""The same training twice: does it repeat itself, and does a resumed run go on as if it had never stopped?"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from rgt.checkpoint.training_state import capture, restore, restore_rng, rng_state
from rgt.probes.factory import Result, Training, Unjudged, several
from rgt.probes.probe_session import Session, digest, move, number, same_random, seed_all, sentence, site

_STEPS = 8
_FIXES = {
    "start": "something draws before or without the seed: os.urandom, time, a generator of its own, a set's order",
    "batch": "the data order or an augmentation uses a generator that nobody seeds",
    "loss": "same weights, same batch, another loss: an unseeded dropout, or an operation that is not deterministic; "
    "torch.use_deterministic_algorithms(True) names it",
    "weights": "same loss, other update: an unseeded optimizer or noise in the gradients",
}


def determinism(session: Session, result: Result) -> None:
    """Two runs from the same seed: the first step at which they differ, and in what (weights, data, loss)."""
    runs = []
    if session.make is None:
        raise Unjudged("needs the factory, to build the training twice")
    try:
        for _ in range(2):
            seed_all(session.seed)
            own = Session(session.make(), steps=session.steps)
            weights = list(own.training.model.parameters())
            rows = [{"start": digest(weights)}]
            for batch in _stream(own.training, _STEPS * own.training.accumulate):
                batch = move(batch, own.device)
                content, loss = digest(batch), number(own.train_step(batch))
                rows.append({"batch": content, "loss": repr(loss), "weights": digest(weights)})
                if session.late:
                    break
            runs.append(rows)
    except Exception as error:
        raise Unjudged(f"the training raises: {sentence(error)}") from None
    result.evidence = f"two runs from seed {session.seed} are equal in every bit over {len(runs[0]) - 1} steps"
    for row, (one, other) in enumerate(zip(*runs, strict=False)):
        different = [part for part in one if one[part] != other[part]]
        if different:
            step, where = max(0, row - 1), f"the {different[0]}" if row else "the initial weights"
            result.data = {"step": step, "differs": different}
            result.evidence = f"the runs differ from step {step} on, first in {where}"
            message = f"two runs from one seed differ from step {step} on, first in {where}"
            result.add("nondeterminism", message, f"{one} against {other}"[:300], severity="warn")
            result.fix(_FIXES[different[0]])
            break


def _stream(training: Training, count: int) -> Iterator[Any]:
    """Epoch after epoch, `count` batches."""
    batches = iter(training.data)
    for _ in range(count):
        batch = next(batches, None)
        if batch is None:
            batches = iter(training.data)
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


# -- resume


def resume(session: Session, result: Result) -> None:
    """Train N steps; train N/2, save, load into a fresh training, go on; name what was not carried over."""
    if session.make is None:
        raise Unjudged("needs the factory, to build the training again")
    try:
        _stop_and_resume(result, session, session.make)
    except Exception as error:
        result.add("resume", f"saving or loading raises: {sentence(error)}", where=site(error))


def _stop_and_resume(result: Result, session: Session, make: Callable[[], Training]) -> None:
    def fresh() -> Training:
        seed_all(session.seed)
        return make()

    def loaded() -> Training:
        """A fresh training that took the checkpoint; what it did not take is random."""
        checkpoint.seek(0)
        training = fresh()
        seed_all(session.seed + 1)
        state = torch.load(checkpoint, weights_only=False)
        training.load(state) if training.load else restore(state, **_parts(training))
        return training

    half = max(2, _STEPS // 2) * session.training.accumulate
    whole = fresh()
    batches, losses = _train(whole, _stream(whole, 2 * half))
    stopped = fresh()
    # reads its own data, as a run does, so that a position in it can be saved
    _, before = _train(stopped, _stream(stopped, half))
    if before != losses[:half] and not all(map(math.isnan, losses)):
        result.unjudged = "the training does not repeat itself; see the determinism probe"
        return
    checkpoint = io.BytesIO()
    torch.save(stopped.save() if stopped.save else capture(**_parts(stopped)), checkpoint)
    kept, rng = _state_digests(stopped), rng_state()
    resumed = loaded()
    lost = [name for name, value in _state_digests(resumed).items() if kept[name] != value]
    if resumed.save and len(batches) > half:  # only a run with its own save can carry the position
        with same_random():
            upcoming = digest(next(_stream(resumed, 1), None))
        if upcoming != digest(batches[half]):
            again = upcoming == digest(batches[0])
            result.data["position"] = "start" if again else "elsewhere"
            where = "starts again from the first batch" if again else "goes on with another batch than the one due"
            result.add("order", f"after resuming the data {where}", severity="warn")
            result.fix("save the epoch and the position in it (StatefulDataLoader, or skip batches)")
    _, after = _train(resumed, iter(batches[half:]))
    if after != losses[half:] and all(name.startswith("random state") for name in lost):
        again_loaded = loaded()
        restore_rng([rng])
        if _train(again_loaded, iter(batches[half:]))[1] != losses[half:]:
            lost = []  # with the right random numbers it still differs: they are not the cause
    differs = next((i for i, (a, b) in enumerate(zip(losses[half:], after, strict=False)) if a != b), None)
    plain = [name for name in lost if not name.startswith("random state")]
    if differs is None and not plain:
        result.evidence = f"resumed and uninterrupted run are equal over {len(after)} steps after the checkpoint"
        if lost:
            result.add("resume", f"not restored, without effect here: {several(lost)}", severity="info")
        return
    result.evidence = "the losses of these few steps are still equal"
    if differs is not None:
        pair = f"{losses[half + differs]:.6g} uninterrupted, {after[differs]:.6g} resumed"
        result.evidence = f"step {differs} after resuming: {pair}"
    result.data["lost"] = lost
    other = "something else that the step uses (a counter, a reference that load_state_dict made stale)"
    result.add("resume", f"not carried over by the checkpoint: {several(plain or lost) or other}", result.evidence)
    result.fix("save and load it with the rest")


def _parts(training: Training) -> dict[str, Any]:
    """What a run without its own save and load carries over."""
    parts = {"model": training.model, "optimizer": training.optimizer, "scheduler": training.scheduler}
    return {name: part for name, part in parts.items() if part is not None}


def _train(training: Training, batches: Iterator[Any]) -> tuple[list[Any], list[float]]:
    """Reading a batch leaves the random state alone here: the resumed run is fed, and must draw what a run draws."""
    own, read, losses = Session(training), list[Any](), list[float]()
    while True:
        with same_random():
            batch = next(batches, None)
        if batch is None:
            return read, losses
        read.append(batch)
        losses.append(number(own.train_step(move(batch, own.device))))


def _state_digests(training: Training) -> dict[str, str]:
    """One digest per thing that a checkpoint has to carry."""
    return {
        **{f"weights {name}": digest(tensor) for name, tensor in training.model.named_parameters()},
        **{f"buffer {name}": digest(tensor) for name, tensor in training.model.named_buffers()},
        "optimizer state": digest(training.optimizer.state_dict()["state"]),
        "learning rate": repr([group["lr"] for group in training.optimizer.param_groups]),
        "scheduler step": repr(getattr(training.scheduler, "last_epoch", None)),
        **{f"random state of {name}": digest(state) for name, state in rng_state().items() if name != "cuda"},
    }
