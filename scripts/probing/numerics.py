"""Where the first NaN or Inf is born: batch, phase, module, operation, and the numbers that went into it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from probing.observe import Observation
from probing.results import Result
from probing.session import Session, describe, number, sentence, tensors
from probing.state import preserved

# These make an Inf on purpose: masks, running maxima, new tensors.
_FILLS = tuple(
    "fill full where empty new_ scalar_tensor neg clone copy view expand detach select slice index cat stack transpose"
    " t.default permute to_copy".split()
)


@dataclass
class Birth:
    """The operation that made the first NaN (or Inf) out of numbers that were none."""

    phase: str
    module: str
    op: str
    kind: str
    inputs: str
    earlier: str = ""  # an Inf that the forward pass made and hid before this


def nan(session: Session) -> Result:
    """First NaN or Inf: batch, forward or backward or optimizer, module, operation, and what went into it."""
    result = Result("nan")
    for index, batch in enumerate(session.batches(session.steps)):
        bad = [(name, t) for name, t in tensors(batch) if t.is_floating_point() and not t.isfinite().all()]
        if bad:
            name, tensor = bad[0]
            result.add(
                "nan",
                "error",
                f"batch {index} itself holds NaN or Inf",
                where=name,
                evidence=describe(tensor),
                fix="find the rows with the data probe; mend or drop them",
            )
            return result
    seen = session.observation()
    first = next((i for i, step in enumerate(seen.steps) if step.nonfinite in ("loss", "weight")), None)
    if first is None:
        _quiet(result, seen)
        return result
    kind = seen.steps[first].nonfinite
    birth, crash = trace(session, first, finite_loss=kind == "weight")
    what = f"the {kind} is not finite from step {first} on"
    if birth is None:
        result.add("nan", "error", what, evidence=crash or "no single operation made it in the second run",
                   fix="set torch.autograd.set_detect_anomaly(True) around this step")  # fmt: skip
        return result
    result.add("nan", "error", f"{what}: {birth.kind} is born in the {birth.phase}, in {birth.op}"
               f"{birth.earlier}",
               where=birth.module, evidence=f"batch {first}; before it: {birth.inputs}",
               fix=_advice(birth))  # fmt: skip
    result.data = {"batch": first, "phase": birth.phase, "module": birth.module, "op": birth.op, "kind": birth.kind}
    return result


def _quiet(result: Result, seen: Observation) -> None:
    if seen.error:
        result.unjudged = f"the step raises: {seen.error}"
        return
    overflow = sum(step.nonfinite == "gradient" for step in seen.steps)
    result.evidence = f"all finite in {len(seen.steps)} steps"
    if overflow:
        result.add("inf", "info", f"{overflow} of {len(seen.steps)} steps had gradients that are not finite, and "
                   "were skipped", evidence="a GradScaler does this while it looks for its scale")  # fmt: skip
    if not seen.steps:
        result.unjudged = "the data gave no batch"


def _advice(birth: Birth) -> str:
    op = birth.op
    if "log" in op:
        return "log of 0 or less: clamp its input, or use log_softmax / log1p"
    if "sqrt" in op or ("pow" in op and birth.phase == "backward") or "norm" in op:
        return "the slope of a root at 0 is infinite: add an epsilon inside the root"
    if "div" in op or "reciprocal" in op:
        return "division by 0: add an epsilon to the denominator"
    if "softmax" in op:
        return "a row with every position masked has nothing to normalise: keep one, or mask with a finite number"
    if "exp" in op:
        return "exp overflows above 88 in float32, 11 in float16: subtract the maximum first"
    if birth.phase == "backward":
        return "torch.where and masks do not stop a NaN slope: make the input safe before the function"
    if birth.phase == "optimizer":
        return "the update itself overflows: lower the learning rate, clip, look at eps"
    return "bound the input of this operation; in float16 or bfloat16 try it in float32 first"


def trace(session: Session, index: int, finite_loss: bool) -> tuple[Birth | None, str]:
    """Run again up to batch `index`, that one under the tracer."""
    training = session.training
    with preserved(training):
        session.reset()
        for position, batch in enumerate(session.cycle(index + 1)):
            if position < index:
                session.train_step(batch)
                continue
            with _tracing(training) as births:
                try:
                    number(session.train_step(batch))
                except Exception as error:
                    return _origin(births, finite_loss), sentence(error)
            return _origin(births, finite_loss), ""
    return None, "there was no time to run it again"


def _origin(births: list[Birth], finite_loss: bool) -> Birth | None:
    """A NaN outranks an Inf before it that was only a mask; an Inf that was computed outranks what it led to.

    What the forward pass makes and hides again (the loss is finite) is not the cause.
    """
    hidden = [b for b in births if b.phase == "forward" and not any(word in b.op for word in _FILLS)]
    if finite_loss:
        births = [birth for birth in births if birth.phase != "forward"]
        if births and hidden:
            births[0].earlier = f"; before it the forward made {hidden[0].kind} in {hidden[0].op} and hid it"
    return next((b for b in births if b.kind == "NaN" or not any(word in b.op for word in _FILLS)), None)


@contextmanager
def _tracing(training: Any) -> Iterator[list[Birth]]:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    births: list[Birth] = []
    place = {"phase": "forward", "module": "loss function"}
    stack: list[str] = []

    class Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            before = [t for _, t in tensors([list(args), kwargs or {}])]
            stats = [describe(t) for t in before] if len(births) < 20 and "_foreach" not in str(func) else []
            clean = not any(_kind(t) for t in before)
            out = func(*args, **(kwargs or {}))
            kind = next((k for _, t in tensors([out]) if (k := _kind(t))), "")
            had_nan = any(_kind(t) == "NaN" for t in before)
            if kind and len(births) < 20 and (clean or (kind == "NaN" and not had_nan)):
                name = stack[-1] if stack else place["module"]
                births.append(Birth(place["phase"], name, str(func).removeprefix("aten."), kind, "; ".join(stats[:3])))
            return out

    handles = _places(training, place, stack)
    original = torch.autograd.backward

    def backward(*args: Any, **kwargs: Any) -> Any:
        place.update(phase="backward", module="")
        stack.clear()
        return original(*args, **kwargs)

    torch.autograd.backward = backward
    try:
        with Tracer():  # type: ignore[no-untyped-call]
            yield births
    finally:
        torch.autograd.backward = original
        for handle in handles:
            handle.remove()


def _kind(tensor: Any) -> str:
    if not tensor.is_floating_point() or tensor.is_sparse or not tensor.numel() or tensor.device.type == "meta":
        return ""
    if tensor.isnan().any():
        return "NaN"
    return "Inf" if tensor.isinf().any() else ""


def _places(training: Any, place: dict[str, str], stack: list[str]) -> list[Any]:
    """Keep track of the module at work; in backward, of the module whose output's gradient came last."""
    handles = []

    def enter(name: str) -> Any:
        return lambda *_: stack.append(name)

    def leave(name: str) -> Any:
        def left(module: Any, inputs: Any, output: Any) -> None:
            if stack:
                stack.pop()
            for _, tensor in tensors(output):
                if tensor.requires_grad:
                    tensor.register_hook(lambda grad: place.update(module=f"{name} (on the way back)"))

        return left

    for name, module in training.model.named_modules():
        handles.append(module.register_forward_pre_hook(enter(name or "model")))
        handles.append(module.register_forward_hook(leave(name or "model")))
    update = training.optimizer.register_step_pre_hook(lambda *_: place.update(phase="optimizer", module="optimizer"))
    return [*handles, update]
