"""What the loss function is really given: its calls are recorded as they happen and compared with what it expects.

A black box: it does not matter whether nn.CrossEntropyLoss, F.cross_entropy or a model's own .loss() makes the call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from probing.results import Result
from probing.session import Session, describe, inputs_of, sentence, site, target_of, tensors
from probing.state import preserved

_SHAPES_ONLY = ("View", "Reshape", "Permute", "Transpose", "TBackward", "Squeeze", "Unsqueeze", "Slice", "Select",
                "Clone", "ToCopy", "Expand", "Alias", "Contiguous", "Index", "Split", "Unbind")  # fmt: skip
_PAIRWISE = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy",
             "binary_cross_entropy_with_logits")  # fmt: skip
_CLASSES = ("cross_entropy", "nll_loss")
_LONGEST = 4096  # rows of one batch looked at


@dataclass
class Call:
    """One call of a loss function; `input` keeps its gradient."""

    name: str
    input: Any
    target: Any
    ignore_index: int = -100


def loss(session: Session) -> Result:
    """Softmax before cross-entropy, logits before NLL, target range, dtype and shape, padding in the mean, shift."""
    result = Result("loss")
    batches = session.batches(2)
    if not batches:
        result.unjudged = "the data gave no batch"
        return result
    calls: list[Call] = []
    for batch in batches:
        found, error = record(session, batch)
        calls += found
        for call in found:
            _inspect(result, call, session)
        _padding(result, session, batch, found)
        _shift(result, batch, found)
        if error is not None and not result.findings:
            result.add("crash", "error", f"the step raises: {sentence(error)}", where=site(error))
        if result.findings:
            break
    names = sorted({call.name for call in calls})
    result.evidence = f"{', '.join(names)} get what they expect" if names else ""
    if not names and not result.findings:
        result.unjudged = "no loss function of torch.nn.functional was called; its inputs cannot be judged"
    result.data = {"calls": [f"{c.name}({describe(c.input)} | {describe(c.target)})" for c in calls[:8]]}
    return result


def record(session: Session, batch: Any) -> tuple[list[Call], Exception | None]:
    """The loss calls of one step, with the gradient that came back to their inputs."""
    from torch.overrides import TorchFunctionMode

    calls: list[Call] = []

    class Listener(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name = getattr(func, "__name__", "")
            kwargs = kwargs or {}
            if name in _CLASSES + _PAIRWISE:
                call = _call(name, args, kwargs)
                if call is not None:
                    calls.append(call)
            return func(*args, **kwargs)

    with preserved(session.training):
        session.reset()
        try:
            with Listener():
                session.train_step(batch)
        except Exception as error:  # a target out of range raises here, after it was recorded
            return calls, error
    return calls, None


def _call(name: str, args: Any, kwargs: dict[str, Any]) -> Call | None:
    import torch

    given, target = (args[i] if len(args) > i else kwargs.get(key) for i, key in enumerate(("input", "target")))
    if not isinstance(given, torch.Tensor) or not isinstance(target, torch.Tensor):
        return None
    if given.requires_grad and not given.is_leaf:
        given.retain_grad()
    return Call(name, given, target, int(kwargs.get("ignore_index", -100)))


def _inspect(result: Result, call: Call, session: Session) -> None:
    if call.name in _CLASSES:
        _classes(result, call, session)
    else:
        _pairs(result, call)


# -- one score per class


def _classes(result: Result, call: Call, session: Session) -> None:
    rows = _rows(call.input)
    wide = rows.shape[-1] > 1
    total, low = rows.sum(-1), rows.min()
    probabilities = wide and bool(low >= 0) and bool(((total - 1).abs() < 1e-3).all())
    logs = bool((rows.logsumexp(-1).abs() < 1e-3).all())
    source = origin(call.input)
    shown = f"{call.name} got {describe(call.input)}" + (f", made by {source}" if source else "")
    if call.name == "cross_entropy" and (probabilities or (wide and source.startswith("Softmax"))):
        result.add("loss-input", "error", "cross_entropy gets probabilities: softmax is applied twice", evidence=shown,
                   fix="give it the raw scores; softmax only where probabilities are shown")  # fmt: skip
    elif call.name == "nll_loss" and probabilities:
        result.add("loss-input", "error", "nll_loss gets probabilities instead of their logarithms", evidence=shown,
                   fix="log_softmax instead of softmax, or cross_entropy on the raw scores")  # fmt: skip
    elif call.name == "nll_loss" and not logs:
        result.add("loss-input", "error", "nll_loss gets raw scores (logits): no log_softmax before it", evidence=shown,
                   fix="cross_entropy on the raw scores")  # fmt: skip
    _class_targets(result, call, session)


def _class_targets(result: Result, call: Call, session: Session) -> None:
    target, width = call.target, call.input.shape[1] if call.input.dim() > 1 else call.input.shape[0]
    if target.is_floating_point():
        if target.shape != call.input.shape:
            result.add("target", "error", f"class numbers must be int64, these are {target.dtype}",
                       evidence=describe(target), fix="target.long()")  # fmt: skip
        return
    counted = target[target != call.ignore_index]
    if not counted.numel():
        result.add("target", "error", "every target is ignore_index: the mean over nothing is NaN",
                   evidence=f"{target.numel()} targets, all {call.ignore_index}",
                   fix="skip such batches; look at truncation and at the label mask")  # fmt: skip
    elif int(counted.min()) < 0 or int(counted.max()) >= width:
        low, high = int(counted.min()), int(counted.max())
        hint = "a value to ignore that was not declared" if low < 0 else "too few outputs"
        hint = "they count from 1, or the model has too few outputs" if low == 1 and high == width else hint
        result.add("target", "error", f"targets from {low} to {high} for {width} classes", evidence=describe(target),
                   fix=f"{hint}; on a GPU this is a device-side assert, far from its cause")  # fmt: skip
    wanted = session.training.num_classes
    if wanted is not None and wanted != width:
        result.add("target", "error", f"the model scores {width} classes, num_classes is {wanted}",
                   evidence=describe(call.input))  # fmt: skip


def _rows(scores: Any) -> Any:
    """Samples x classes in double; the class dimension is 1, or 0 without a batch."""
    scores = scores.detach().double()
    if scores.dim() > 2:
        scores = scores.movedim(1, -1).flatten(0, -2)
    return scores[:_LONGEST]


def origin(tensor: Any) -> str:
    """Name of the function that made a tensor, behind views and slices: SoftmaxBackward0."""
    node = tensor.grad_fn
    for _ in range(20):
        name = type(node).__name__ if node is not None else ""
        if not any(word in name for word in _SHAPES_ONLY):
            return name
        node = next((following for following, _ in node.next_functions if following is not None), None)
    return ""


# -- one target per output


def _pairs(result: Result, call: Call) -> None:
    given, target = call.input, call.target
    if given.shape != target.shape:
        result.add("shape", "error", f"{call.name} compares {tuple(given.shape)} with {tuple(target.shape)}: one is "
                   "broadcast over the other", evidence="every output is compared with every target",
                   fix="squeeze or unsqueeze until both shapes are the same")  # fmt: skip
    if not call.name.startswith("binary"):
        return
    low, high = float(target.min()), float(target.max())
    if low < 0 or high > 1:
        result.add("target", "error", f"targets from {low:g} to {high:g}; {call.name} wants 0 to 1",
                   evidence=describe(target))  # fmt: skip
    values, source = given.detach(), origin(given)
    inside = bool((values >= 0).all() and (values <= 1).all())
    shown = f"{describe(given)}" + (f", made by {source}" if source else "")
    if call.name.endswith("logits") and inside and ("Sigmoid" in source or "Softmax" in source):
        result.add("loss-input", "error", "binary_cross_entropy_with_logits gets probabilities: sigmoid twice",
                   evidence=shown, fix="give it the raw scores")  # fmt: skip
    elif not call.name.endswith("logits") and not inside:
        result.add("loss-input", "error", "binary_cross_entropy gets raw scores (logits)", evidence=shown,
                   fix="binary_cross_entropy_with_logits")  # fmt: skip


# -- sequences


def _padding(result: Result, session: Session, batch: Any, calls: list[Call]) -> None:
    """Does the loss pull on scores of padded positions? Their gradient tells, whatever mask was used."""
    pad = _pad_value(session, batch)
    for call in calls:
        if pad is None or call.name not in _CLASSES or call.target.is_floating_point() or call.input.grad is None:
            continue
        grads = call.input.grad.movedim(1, -1) if call.input.dim() > 2 else call.input.grad
        padded = call.target == pad
        if grads.shape[:-1] != padded.shape or not padded.any() or padded.all():
            continue
        pulled = grads[padded].abs().sum(-1) > 0
        if pulled.any():
            result.add("padding", "error", f"padding ({pad}) counts in the loss: {int(padded.sum())} of "
                       f"{padded.numel()} positions", evidence=f"the loss pulls on {int(pulled.sum())} of them",
                       fix=f"ignore_index={pad}, or set padded targets to -100; divide by what is counted")  # fmt: skip
            return


def _pad_value(session: Session, batch: Any) -> int | None:
    """Declared; or an embedding's padding_idx; or a value that only ever fills the ends of rows of the target."""
    import torch

    if session.training.pad_id is not None:
        return session.training.pad_id
    target = next((t for _, t in tensors(target_of(batch))), None)
    if target is None or target.dim() != 2 or target.is_floating_point() or target.shape[1] < 4:
        return None
    last = target[:, -1]
    value = int(last.mode().values)
    tail = (target == value).flip(1).long().cumprod(1).sum(1)  # length of the run at each row's end
    only_there = int((target == value).sum()) == int(tail.sum())
    declared = any(
        m.padding_idx == value for m in session.training.model.modules() if isinstance(m, torch.nn.Embedding)
    )
    runs = tail[tail >= 2]
    if only_there and value >= 0 and (declared or (len(runs) * 2 >= len(target) and len(runs.unique()) > 1)):
        return value
    return None


def _shift(result: Result, batch: Any, calls: list[Call]) -> None:
    """A language model must predict the next token: the same one is copying, the one after it is a second shift."""
    tokens = next((t for _, t in tensors(inputs_of(batch))), None)
    if tokens is None or tokens.dim() != 2 or tokens.is_floating_point() or tokens.shape[1] < 6:
        return
    for call in calls:
        target = call.target
        if call.name != "cross_entropy" or target.is_floating_point() or target.numel() % tokens.shape[0]:
            continue
        rows = target.reshape(tokens.shape[0], -1)
        offset = _offset(tokens, rows, call.ignore_index)
        if offset == 0 and rows.shape[1] == tokens.shape[1]:
            result.add(
                "target",
                "error",
                "each position is asked for the token it is given: targets are not shifted",
                evidence="targets equal inputs, position by position",
                fix="targets = tokens[:, 1:]",
            )
        elif offset == 2:
            result.add("target", "error", "targets are shifted twice: each position is asked for the token after "
                       "the next", evidence="targets equal inputs moved by 2",
                       fix="shift in the data or in the loss, not in both")  # fmt: skip


def _offset(tokens: Any, rows: Any, ignore: int) -> int | None:
    """How far the targets are ahead of the inputs, when they are the same sequence."""
    for offset in (1, 0, 2):
        length = min(rows.shape[1], tokens.shape[1] - offset)
        ours, theirs = rows[:, :length], tokens[:, offset : offset + length]
        counted = ours != ignore
        if length > 3 and counted.any() and bool((ours == theirs)[counted].all()) and len(theirs.unique()) > 2:
            return offset
    return None
