"""The first steps of a training, seen from outside.

Nothing in the user's code is replaced. Hooks sit on the optimizer, on parameters and on modules, and
torch.autograd.backward, which every backward pass goes through, is wrapped while the probes record.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from rgt.probes.factory import Observation, ParameterRecord, StepRecord, sentence, site
from rgt.probes.probe_session import Session, number

import torch

_EPS = 1e-30


def observe(session: Session) -> Observation:
    recorder, original = Recorder(session), torch.autograd.backward
    torch.autograd.backward = partial(recorder.backward, original)
    try:
        for batch in session.cycle(min(session.steps, 16) * session.training.accumulate):
            recorder.step(batch)
    except Exception as error:  # the user's code may raise anything
        recorder.seen.error, recorder.seen.error_site = sentence(error), site(error)
    finally:
        torch.autograd.backward = original
    return recorder.finish()


def mode_dependent() -> Any:
    """Modules that behave differently in train and eval mode."""
    return torch.nn.modules.batchnorm._BatchNorm, torch.nn.modules.dropout._DropoutNd


class Recorder:
    """Its hooks stay: nobody uses the training afterwards."""

    def __init__(self, session: Session) -> None:
        self.session, self.training, self.seen = session, session.training, Observation()
        model, optimizer = self.training.model, self.training.optimizer
        groups = {id(p): i for i, group in enumerate(optimizer.param_groups) for p in group["params"]}
        self.tensors = dict(model.named_parameters())
        self.known = {id(tensor) for tensor in self.tensors.values()}
        self.seen.orphans = 0 if self.known & set(groups) else len(groups)
        for name, tensor in self.tensors.items():
            meta, frozen = torch.empty_like(tensor, device="meta"), self.training.is_frozen(name)
            group, rms = groups.get(id(tensor)), _rms(tensor.detach())
            record = ParameterRecord(name, meta, group, tensor.requires_grad, frozen, rms)
            self.seen.parameters.append(record)
            if record.trainable:
                tensor.register_hook(partial(self.receive, record))
        self.before = {name: tensor.detach().clone() for name, tensor in self.tensors.items()}
        self.buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
        self.current = StepRecord()
        self.incoming: dict[str, Any] = {}  # gradients of this step
        self.applied: dict[str, Any] = {}  # gradients at the last optimizer step
        self.weights: dict[str, Any] = {}
        self.bad_gradient = False
        optimizer.register_step_pre_hook(self.before_step)
        optimizer.register_step_post_hook(self.after_step)
        for name, module in model.named_modules():
            module.register_forward_pre_hook(partial(self.called, name))

    # -- hooks

    def receive(self, record: ParameterRecord, grad: Any) -> None:
        dense = _dense(grad)
        record.received += 1
        record.nonzero += bool(dense.any())
        old = self.incoming.get(record.name)
        self.incoming[record.name] = dense.clone() if old is None else old + dense

    def called(self, name: str, module: Any, _: Any) -> None:
        self.seen.called.add(name)
        if isinstance(module, mode_dependent()):
            self.seen.modes[name] = module.training

    def backward(self, original: Callable[..., Any], tensors: Any, *args: Any, **kwargs: Any) -> Any:
        """Walk through the graph: which trainable leaves are not parameters of the model?"""
        self.current.backwards += 1
        given = tensors if isinstance(tensors, (tuple, list)) else [tensors]
        edge, visited = [node for tensor in given if (node := getattr(tensor, "grad_fn", None)) is not None], set()
        while edge:
            node = edge.pop()
            if node in visited:
                continue
            visited.add(node)
            leaf = getattr(node, "variable", None)
            if leaf is not None and id(leaf) not in self.known:
                self.known.add(id(leaf))
                self.seen.strangers += ["x".join(map(str, leaf.shape))] if leaf.requires_grad else []
            edge += [following for following, _ in node.next_functions if following is not None]
        return original(tensors, *args, **kwargs)

    def before_step(self, optimizer: Any, *_: Any) -> None:
        step = self.current
        step.optimizer_steps += 1
        step.lrs = [float(group["lr"]) for group in optimizer.param_groups]
        present = {name: _dense(tensor.grad) for name, tensor in self.tensors.items() if tensor.grad is not None}
        self.bad_gradient |= any(not grad.isfinite().all() for grad in present.values())
        received = {name: grad for name, grad in self.incoming.items() if grad.any()}
        step.wiped |= bool(received) and not any(present[n].any() for n in received if n in present)
        for record in self.seen.parameters:
            parts = [source.get(record.name) for source in (self.incoming, present, self.applied)]
            if parts[1] is not None:
                record.grad_rms.append(_rms(parts[1]))
            whole = record.group is not None and all(part is not None for part in parts)
            if whole and self.training.accumulate == 1 and not step.wiped:
                record.stale += stale_share(*parts)
        self.applied = {name: grad.clone() for name, grad in present.items()}
        self.weights = {name: tensor.detach().clone() for name, tensor in self.tensors.items()}

    def after_step(self, optimizer: Any, *_: Any) -> None:
        for record in self.seen.parameters:
            old, new = self.weights[record.name].double(), self.tensors[record.name].detach().double()
            size, change = float(old.norm()), float((new - old).norm())
            record.ratios.append(change / size if size > _EPS else 0.0)
            lr = self.current.lrs[record.group] if record.group is not None else 0.0
            grad = self.applied.get(record.name)
            record.rounded |= lr > 0 and grad is not None and bool(grad.any()) and change == 0

    # -- steps

    def step(self, batch: Any) -> None:
        self.current, self.incoming, self.bad_gradient = StepRecord(), {}, False
        scheduler, step = self.training.scheduler, self.current
        count = scheduler._step_count if scheduler is not None else 0
        loss = self.session.train_step(batch)
        step.scheduler_steps = scheduler._step_count - count if scheduler is not None else 0
        self.seen.detached |= step.backwards == 0 and hasattr(loss, "requires_grad") and not loss.requires_grad
        step.loss = number(loss)
        if loss is not None and not math.isfinite(step.loss):
            step.nonfinite = "loss"
        elif any(not tensor.detach().isfinite().all() for tensor in self.tensors.values()):
            step.nonfinite = "weight"
        elif self.bad_gradient:
            step.nonfinite = "gradient"
        self.seen.steps.append(step)

    def finish(self) -> Observation:
        for record in self.seen.parameters:
            tensor = self.tensors[record.name].detach()
            record.moved = not _equal(tensor, self.before[record.name])
            record.rounded &= not record.moved
        now = dict(self.training.model.named_buffers())
        self.seen.buffers_moved = [n for n, old in self.buffers.items() if n in now and not _equal(now[n], old)]
        self.seen.done = True
        return self.seen


def _dense(grad: Any) -> Any:
    return (grad.to_dense() if grad.is_sparse else grad).detach()


def _rms(tensor: Any) -> float:
    return float(tensor.double().square().mean().sqrt())


def _equal(one: Any, other: Any) -> bool:
    """Bit by bit, but a NaN is equal to itself."""
    if one.is_floating_point():
        one, other = one.nan_to_num(7.0), other.nan_to_num(7.0)
    return torch.equal(one, other)


def stale_share(incoming: Any, present: Any, applied: Any) -> list[float]:
    """How much better `incoming + last step's gradient` explains what is applied than `incoming` alone: 0 to 1.

    Compared by direction, so that clipping and loss scaling do not matter. Empty when a gradient is zero.
    """
    cosines = []
    for guess in (incoming, incoming + applied):
        one, other = guess.double().flatten(), present.double().flatten()
        size = float(one.norm() * other.norm())
        if size <= _EPS:
            return []
        cosines.append(float(one @ other) / size)
    alone, both = cosines
    return [max(0.0, (both - alone) / (1 - alone)) if alone < 0.9999 else 0.0]
