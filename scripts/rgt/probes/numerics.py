"""Where the first NaN or Inf is born, train and eval mode, the seed: what the numbers of a step depend on."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rgt.probes.factory import Result, sentence, several, site
from rgt.probes.probe_session import Session, describe, digest, mode_dependent, move, number, tensors

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# These make an Inf on purpose: masks, running maxima, new tensors.
_FILLS = (
    "fill full where empty new_ scalar_tensor neg clone copy view expand detach select slice index cat stack transpose"
    " t.default permute to_copy"
).split()
_ROOT = "the slope of a root at 0 is infinite: add an epsilon inside the root"
_DIVISION = "division by 0: add an epsilon to the denominator"
# the first row whose word is in the operation's name, and whose phase ("" for any) fits
_ADVICE = (
    ("log", "", "log of 0 or less: clamp its input, or use log_softmax / log1p"),
    ("sqrt", "", _ROOT),
    ("pow", "backward", _ROOT),
    ("norm", "", _ROOT),
    ("div", "", _DIVISION),
    ("reciprocal", "", _DIVISION),
    ("softmax", "", "a row with every position masked has no sum: keep one, or mask with a finite number"),
    ("exp", "", "exp overflows above 88 in float32, 11 in float16: subtract the maximum first"),
    ("", "backward", "torch.where and masks do not stop a NaN slope: make the input safe before the function"),
    ("", "optimizer", "the update itself overflows: lower the learning rate, clip, look at eps"),
    ("", "", "bound the input of this operation; in float16 or bfloat16 try it in float32 first"),
)
_BIRTHS = 20  # remembered
_STEPS = 8  # of each of two runs that must be equal
_SEEDING = {
    "start": "something draws before or without the seed: os.urandom, time, a generator of its own, a set's order",
    "batch": "the data order or an augmentation uses a generator that nobody seeds",
    "loss": "same weights, same batch, another loss: an unseeded dropout, or an operation that is not deterministic; "
    "torch.use_deterministic_algorithms(True) names it",
    "weights": "same loss, other update: an unseeded optimizer or noise in the gradients",
}


@dataclass
class Birth:
    """An operation that made a NaN (or Inf) out of finite numbers."""

    phase: str
    module: str
    op: str
    kind: str
    inputs: str

    @property
    def on_purpose(self) -> bool:
        return any(word in self.op for word in _FILLS)


def nan(session: Session, result: Result) -> None:
    """First NaN or Inf: batch, forward or backward or optimizer, module, operation, and what went into it."""
    seen = session.observation
    numbered = enumerate(session.batches(session.steps))
    for index, (name, tensor) in ((i, pair) for i, batch in numbered for pair in tensors(batch)):
        if _nonfinite_kind(tensor):
            result.add("nan", f"batch {index} itself holds NaN or Inf", describe(tensor), where=name)
            result.fix("find the rows with the data probe; repair or drop them")
            return
    first = next((i for i, step in enumerate(seen.steps) if step.nonfinite in ("loss", "weight")), None)
    if first is not None:
        _find_birth(result, session, first, seen.steps[first].nonfinite)
        return
    result.evidence = f"all finite in {len(seen.steps)} steps"
    overflow = sum(step.nonfinite == "gradient" for step in seen.steps)
    if seen.error or not seen.steps:
        result.unjudged = f"the step raises: {seen.error}" if seen.error else "the data gave no batch"
    elif overflow:
        message = f"{overflow} of {len(seen.steps)} steps had gradients that are not finite, and were skipped"
        result.add("inf", message, "a GradScaler does this while it looks for its scale", severity="info")


def _find_birth(result: Result, session: Session, first: int, what: str) -> None:
    """Run again up to step `first`, that one under the tracer."""
    births: list[Birth] = []
    unclear = "there was no time to run it again"
    for position, batch in enumerate(session.cycle(first + 1)):
        if position < first:
            session.train_step(batch)
            continue
        unclear = "no single operation made it in the second run"
        try:
            with _tracing(session.training, births):
                session.train_step(batch)
        except Exception as error:
            unclear = sentence(error)
    if what == "weight":  # the loss is finite: what the forward pass made and hid again is not the cause
        births = [birth for birth in births if birth.phase != "forward"]
    # a NaN outranks an Inf before it that was only a mask; an Inf that was computed outranks what it led to
    birth = next((birth for birth in births if birth.kind == "NaN" or not birth.on_purpose), None)
    message = f"the {what} is not finite from step {first} on"
    if birth is None:
        result.add("nan", message, unclear)
        result.fix("set torch.autograd.set_detect_anomaly(True) around this step")
        return
    message = f"{message}: {birth.kind} is born in the {birth.phase}, in {birth.op}"
    result.add("nan", message, f"batch {first}; before it: {birth.inputs}", where=birth.module)
    result.fix(next(text for word, phase, text in _ADVICE if word in birth.op and phase in ("", birth.phase)))
    result.data = {"batch": first, "phase": birth.phase, "module": birth.module, "op": birth.op, "kind": birth.kind}


@contextmanager
def _tracing(training: Any, births: list[Birth]) -> Iterator[None]:
    stack: list[str] = []  # modules at work
    place = {"phase": "forward", "module": "loss function"}

    class Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            before = [t for _, t in tensors([list(args), kwargs or {}])]
            wanted = len(births) < _BIRTHS
            stats = [describe(t) for t in before[:3]] if wanted and "_foreach" not in str(func) else []
            kinds = [_nonfinite_kind(t) for t in before]
            out = func(*args, **(kwargs or {}))
            kind = next((k for _, t in tensors([out]) if (k := _nonfinite_kind(t))), "")
            if kind and wanted and (not any(kinds) or (kind == "NaN" and "NaN" not in kinds)):
                name = stack[-1] if stack else place["module"]
                births.append(Birth(place["phase"], name, str(func).removeprefix("aten."), kind, "; ".join(stats)))
            return out

    def leave(name: str) -> Any:
        def left(module: Any, inputs: Any, output: Any) -> None:
            if stack:
                stack.pop()
            for _, tensor in tensors(output):
                if tensor.requires_grad:  # in backward: the module whose output's gradient came last
                    tensor.register_hook(lambda grad: place.update(module=f"{name} (on the way back)"))

        return left

    for name, module in training.model.named_modules():
        module.register_forward_pre_hook(lambda *_, name=name or "model": stack.append(name))
        module.register_forward_hook(leave(name or "model"))
    training.optimizer.register_step_pre_hook(lambda *_: place.update(phase="optimizer", module="optimizer"))
    original = torch.autograd.backward

    def backward(*args: Any, **kwargs: Any) -> Any:
        place.update(phase="backward", module="")
        stack.clear()
        return original(*args, **kwargs)

    torch.autograd.backward = backward
    try:
        with Tracer():  # type: ignore[no-untyped-call]
            yield
    finally:
        torch.autograd.backward = original


def _nonfinite_kind(tensor: Any) -> str:
    if not tensor.is_floating_point() or tensor.is_sparse or not tensor.numel() or tensor.device.type == "meta":
        return ""
    return "NaN" if tensor.isnan().any() else "Inf" if tensor.isinf().any() else ""


# -- train and eval mode


def mode(session: Session, result: Result) -> None:
    """Dropout and BatchNorm in the wrong mode in the step or the evaluation; what evaluating changes."""
    modes, model = session.observation.modes, session.training.model
    result.evidence = f"{len(modes)} dropout or norm modules, in the mode they should have"
    result.data["modes"] = modes
    asleep = [name for name, on in modes.items() if not on and not session.training.is_frozen(name)]
    if asleep:
        shown = f"{len(asleep)} of {len(modes)} dropout or BatchNorm modules"
        result.add("mode", "in eval mode during the training step", shown, where=several(asleep))
        result.fix("model.train() at the start of every epoch, also after evaluation and after loading")
    model.eval()
    batch = session.batches(1)[0]
    try:
        with torch.no_grad():
            first, second = (dict(tensors(session.forward(batch))) for _ in range(2))
    except Exception as error:
        result.add("mode", f"the model cannot run in eval mode: {sentence(error)}", where=site(error))
        result.fix("compare what forward does under self.training")
        first = second = {}
    odd = [name for name in first if name in second and not torch.equal(first[name], second[name])]
    gaps = {name: float((first[name] - second[name]).abs().max()) for name in odd}
    gaps = {name: gap for name, gap in gaps.items() if gap == gap}  # NaN in both is no difference
    if gaps:
        shown = f"largest difference {max(gaps.values()):.3g}"
        result.add("mode", "in eval mode the same input gives two different outputs", shown, where=several(list(gaps)))
        result.fix("F.dropout(x, p) drops always: pass training=self.training")
    if session.training.evaluate:
        _evaluation(result, session)


def _evaluation(result: Result, session: Session) -> None:
    training, model = session.training, session.training.model
    assert training.evaluate
    model.train()
    before = {name: module.training for name, module in model.named_modules()}
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modes: dict[str, bool] = {}
    for name, module in model.named_modules():
        if isinstance(module, mode_dependent()):
            module.register_forward_pre_hook(lambda inner, _, name=name: modes.update({name: inner.training}))
    try:
        training.evaluate(training)
    except Exception as error:
        result.add("crash", f"evaluate raises: {sentence(error)}", where=site(error))
        return
    left = [name or "model" for name, module in model.named_modules() if before.get(name) and not module.training]
    if left:
        shown = "every later training step runs without dropout and with frozen BatchNorm"
        result.add("mode", "evaluation leaves the model in eval mode", shown, where=several(left))
        result.fix("model.train() after evaluating")
    after = model.state_dict()
    changed = [name for name, old in state.items() if name in after and not torch.equal(old, after[name])]
    if changed:
        result.add("moving", "evaluating changes the model", where=several(changed))
        result.fix("model.eval() and torch.no_grad() around the evaluation")
    awake = [name for name, on in modes.items() if on]
    if awake:
        shown = "dropout drops, BatchNorm uses the batch's own statistics"
        result.add("mode", "in train mode during the evaluation", shown, where=several(awake))
        result.fix("model.eval() before evaluating, model.train() after")


# -- the seed


def determinism(session: Session, result: Result) -> None:
    """Two runs from the same seed: the first step at which they differ, and in what (weights, data, loss)."""
    runs: list[list[dict[str, str]]] = []
    for again in (session.fresh() for _ in range(2)):
        weights = list(again.training.model.parameters())
        runs.append([{"start": digest(weights)}])
        for batch in itertools.islice(iter(again.training.data), _STEPS * again.training.accumulate):
            content = digest(batch)
            loss = number(again.train_step(move(batch, again.device)))
            runs[-1].append({"batch": content, "loss": repr(loss), "weights": digest(weights)})
            if again.late:
                break
    result.evidence = f"two runs from seed {session.seed} are equal in every bit over {len(runs[0]) - 1} steps"
    for row, (one, other) in enumerate(zip(*runs, strict=False)):
        different = [part for part in one if one[part] != other[part]]
        if different:
            step, where = max(0, row - 1), f"the {different[0]}" if row else "the initial weights"
            result.data = {"step": step, "differs": different}
            result.evidence = f"the runs differ from step {step} on, first in {where}"
            message = f"two runs from one seed differ from step {step} on, first in {where}"
            result.add("nondeterminism", message, f"{one} against {other}"[:300], severity="warn")
            result.fix(_SEEDING[different[0]])
            break
