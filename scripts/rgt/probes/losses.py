"""What the loss function is really given: its calls are recorded as they happen and compared with what it expects.

A black box: it does not matter whether nn.CrossEntropyLoss, F.cross_entropy or a model's own .loss() makes the call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rgt.probes.factory import Result, Unjudged, sentence, site
from rgt.probes.probe_session import Session, describe, inputs_of, tensors

import torch
from torch.overrides import TorchFunctionMode

# autograd nodes that only move values around
_SHAPES_ONLY = (
    "View Reshape Permute Transpose TBackward Squeeze Unsqueeze Slice Select Clone ToCopy Expand Alias Contiguous Index"
    " Split Unbind"
).split()
_CLASSES = ["cross_entropy", "nll_loss"]
_BINARY = ["binary_cross_entropy", "binary_cross_entropy_with_logits"]
_PAIRWISE = ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", *_BINARY]
_LONGEST = 4096  # rows of one batch looked at


@dataclass
class Call:
    """One call of a loss function; `input` keeps its gradient."""

    name: str
    input: Any
    target: Any
    ignore_index: int

    @property
    def origin(self) -> str:
        """Name of the function that made the input, behind views and slices: SoftmaxBackward0."""
        node = self.input.grad_fn
        while node is not None and any(word in type(node).__name__ for word in _SHAPES_ONLY):
            node = next((following for following, _ in node.next_functions if following is not None), None)
        return type(node).__name__ if node is not None else ""

    @property
    def shown(self) -> str:
        return f"{self.name} got {describe(self.input)}" + (f", made by {self.origin}" if self.origin else "")


def loss(session: Session, result: Result) -> None:
    """Softmax before cross-entropy, logits before NLL, target range, dtype and shape, padding in the mean, shift."""
    calls, batches = list[Call](), session.batches(2)
    for batch in batches:
        recorded, error = record(session, batch)
        calls += recorded
        for call in recorded:
            (_classes if call.name in _CLASSES else _pairs)(result, call)
        _padding(result, session, recorded)
        _shift(result, batch, recorded)
        if error is not None and not result.findings:
            result.add("crash", f"the step raises: {sentence(error)}", where=site(error))
        if result.findings:
            break
    if not calls and not result.findings:
        nothing = "no loss function of torch.nn.functional was called; its inputs cannot be judged"
        raise Unjudged(nothing if batches else "the data gave no batch")
    result.evidence = f"{', '.join(sorted({call.name for call in calls}))} get what they expect" if calls else ""
    result.data = {"calls": [f"{c.name}({describe(c.input)} | {describe(c.target)})" for c in calls[:8]]}


def record(session: Session, batch: Any) -> tuple[list[Call], Exception | None]:
    """The loss calls of one step, with the gradient that came back to their inputs, and the error if it raises."""
    calls: list[Call] = []

    class Listener(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            name, kwargs = getattr(func, "__name__", ""), kwargs or {}
            if name in _CLASSES + _PAIRWISE:
                given = args[0] if args else kwargs.get("input")
                target = args[1] if len(args) > 1 else kwargs.get("target")
                if isinstance(given, torch.Tensor) and isinstance(target, torch.Tensor):
                    if given.requires_grad and not given.is_leaf:
                        given.retain_grad()
                    calls.append(Call(name, given, target, int(kwargs.get("ignore_index", -100))))
            return func(*args, **kwargs)

    try:
        with Listener():
            session.train_step(batch)
    except Exception as error:  # a target out of range raises here, after it was recorded
        return calls, error
    return calls, None


def _classes(result: Result, call: Call) -> None:
    """One score per class, one class number per sample."""
    rows = call.input.detach().double()  # samples x classes; the class dimension is 1, or 0 without a batch
    rows = (rows.movedim(1, -1).flatten(0, -2) if rows.dim() > 2 else rows)[:_LONGEST]
    wide = rows.shape[-1] > 1
    probabilities = wide and bool(rows.min() >= 0) and bool(((rows.sum(-1) - 1).abs() < 1e-3).all())
    if call.name == "cross_entropy" and (probabilities or (wide and call.origin.startswith("Softmax"))):
        result.add("loss-input", "cross_entropy gets probabilities: softmax is applied twice", call.shown)
        result.fix("give it the raw scores; softmax only where probabilities are shown")
    elif call.name == "nll_loss" and probabilities:
        result.add("loss-input", "nll_loss gets probabilities instead of their logarithms", call.shown)
        result.fix("log_softmax instead of softmax, or cross_entropy on the raw scores")
    elif call.name == "nll_loss" and not bool((rows.logsumexp(-1).abs() < 1e-3).all()):
        result.add("loss-input", "nll_loss gets raw scores (logits): no log_softmax before it", call.shown)
        result.fix("cross_entropy on the raw scores")
    target, width = call.target, call.input.shape[1] if call.input.dim() > 1 else call.input.shape[0]
    if target.is_floating_point():
        if target.shape != call.input.shape:
            result.add("target", f"class numbers must be int64, these are {target.dtype}", describe(target))
            result.fix("target.long()")
        return
    counted = target[target != call.ignore_index]
    if not counted.numel():
        shown = f"{target.numel()} targets, all {call.ignore_index}"
        result.add("target", "every target is ignore_index: the mean over nothing is NaN", shown)
        result.fix("skip such batches; look at truncation and at the label mask")
    elif (low := int(counted.min())) < 0 or int(counted.max()) >= width:
        hint = "a value to ignore that was not declared" if low < 0 else "they count from 1, or the outputs are too few"
        result.add("target", f"targets from {low} to {int(counted.max())} for {width} classes", describe(target))
        result.fix(f"{hint}; on a GPU this is a device-side assert, far from its cause")


def _pairs(result: Result, call: Call) -> None:
    """One target per output."""
    given, target = call.input, call.target
    if given.shape != target.shape:
        shapes = f"{tuple(given.shape)} with {tuple(target.shape)}"
        shown = "every output is compared with every target"
        result.add("shape", f"{call.name} compares {shapes}: one is broadcast over the other", shown)
        result.fix("squeeze or unsqueeze until both shapes are the same")
    if call.name not in _BINARY:
        return
    low, high = float(target.min()), float(target.max())
    if low < 0 or high > 1:
        result.add("target", f"targets from {low:g} to {high:g}; {call.name} wants 0 to 1", describe(target))
    inside, logits = bool((given >= 0).all() and (given <= 1).all()), call.name.endswith("logits")
    if logits and inside and ("Sigmoid" in call.origin or "Softmax" in call.origin):
        result.add("loss-input", "binary_cross_entropy_with_logits gets probabilities: sigmoid twice", call.shown)
        result.fix("give it the raw scores")
    elif not logits and not inside:
        result.add("loss-input", "binary_cross_entropy gets raw scores (logits)", call.shown)
        result.fix("binary_cross_entropy_with_logits")


def _padding(result: Result, session: Session, calls: list[Call]) -> None:
    """Does the loss pull on scores of padded positions? Their gradient tells, whatever mask was used."""
    embeddings = (m for m in session.training.model.modules() if isinstance(m, torch.nn.Embedding))
    pad = session.training.pad_id
    if pad is None:
        pad = next((m.padding_idx for m in embeddings if m.padding_idx is not None), None)
    for call in calls:
        if pad is None or call.name not in _CLASSES or call.target.is_floating_point() or call.input.grad is None:
            continue
        grads = call.input.grad.movedim(1, -1) if call.input.dim() > 2 else call.input.grad
        padded = call.target == pad
        if grads.shape[:-1] != padded.shape or not padded.any() or padded.all():
            continue
        pulled = grads[padded].abs().sum(-1) > 0
        if pulled.any():
            message = f"padding ({pad}) counts in the loss: {int(padded.sum())} of {padded.numel()} positions"
            result.add("padding", message, f"the loss pulls on {int(pulled.sum())} of them")
            result.fix(f"ignore_index={pad}, or set padded targets to -100; divide by what is counted")
            return


def _shift(result: Result, batch: Any, calls: list[Call]) -> None:
    """A language model must predict the next token: the same one is copying, the one after it is a second shift."""
    tokens = next((t for _, t in tensors(inputs_of(batch))), None)
    if tokens is None or tokens.dim() != 2 or tokens.is_floating_point() or tokens.shape[1] < 6:
        return
    for call in calls:
        if call.name != "cross_entropy" or call.target.is_floating_point() or call.target.numel() % tokens.shape[0]:
            continue
        rows = call.target.reshape(tokens.shape[0], -1)
        for offset in (1, 0, 2):  # how many positions the targets are ahead of the inputs
            length = min(rows.shape[1], tokens.shape[1] - offset)
            ours, theirs = rows[:, :length], tokens[:, offset : offset + length]
            counted = ours != call.ignore_index
            if length > 3 and counted.any() and (ours == theirs)[counted].all() and len(theirs.unique()) > 2:
                break
        else:
            continue
        if offset == 0 and rows.shape[1] == tokens.shape[1]:
            message = "each position is asked for the token it is given: targets are not shifted"
            result.add("target", message, "targets equal inputs, position by position")
            result.fix("targets = tokens[:, 1:]")
        elif offset == 2:
            message = "targets are shifted twice: each position is asked for the token after the next"
            result.add("target", message, "targets equal inputs moved by 2")
            result.fix("shift in the data or in the loss, not in both")
