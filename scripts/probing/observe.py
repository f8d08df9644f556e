"""The first steps of a training, seen from outside: what was called, what got a gradient, what moved, at which rate.

Nothing in the user's code is replaced. Hooks sit on the optimizer, on parameters and on modules, and
torch.autograd.backward is wrapped for the time of the recording, the one door every backward goes through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from probing.session import Session, number, sentence, site
from probing.state import preserved

_EPS = 1e-30


@dataclass
class ParameterRecord:
    """A parameter over all recorded steps."""

    name: str
    tensor: Any
    group: int | None  # of the optimizer; None: not in it
    trainable: bool
    received: int = 0  # backward passes that brought a gradient
    nonzero: int = 0  # of those, with a value other than zero
    moved: bool = False
    ratios: list[float] = field(default_factory=list)  # |update| / |weight| per optimizer step
    grad_rms: list[float] = field(default_factory=list)
    stale: list[float] = field(default_factory=list)  # see stale_share
    rounded: bool = False  # updates were made and lost to the dtype's precision


@dataclass
class StepRecord:
    """One call of the step."""

    loss: float
    optimizer_steps: int
    lrs: list[float]  # per group, at the optimizer step; empty without one
    scheduler_steps: int
    wiped: bool  # a gradient was computed, and was gone when the optimizer stepped
    nonfinite: str  # "", "loss", "gradient" or "weight"
    graph: int  # nodes of the graph that backward went through
    backwards: int


@dataclass
class Observation:
    steps: list[StepRecord] = field(default_factory=list)
    parameters: list[ParameterRecord] = field(default_factory=list)
    called: set[str] = field(default_factory=set)  # modules whose forward ran
    modes: dict[str, bool] = field(default_factory=dict)  # dropout and norm modules: .training inside the step
    buffers_moved: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)  # trainable leaves of the loss that are not model parameters
    rows_equal: list[str] = field(default_factory=list)  # weights whose units are still copies of each other
    detached: bool = False  # the loss has no graph
    error: str = ""
    error_site: str = ""
    error_batch: int = -1

    @property
    def losses(self) -> list[float]:
        return [step.loss for step in self.steps]

    @property
    def lrs(self) -> list[list[float]]:
        return [step.lrs for step in self.steps if step.lrs]


def observe(session: Session) -> Observation:
    training = session.training
    count = min(session.steps, 16) * training.accumulate
    with preserved(training):
        session.reset()
        recorder = Recorder(session)
        with recorder.attached():
            for index, batch in enumerate(session.cycle(count)):
                try:
                    recorder.step(batch)
                except Exception as error:  # the user's code may raise anything
                    seen = recorder.seen
                    seen.error, seen.error_site, seen.error_batch = sentence(error), site(error), index
                    break
        recorder.finish()
    return recorder.seen


class Recorder:
    def __init__(self, session: Session) -> None:
        self.session, self.training = session, session.training
        self.seen = Observation()
        groups = {id(p): i for i, g in enumerate(self.training.optimizer.param_groups) for p in g["params"]}
        self.seen.parameters = [
            ParameterRecord(name, tensor, groups.get(id(tensor)), tensor.requires_grad)
            for name, tensor in self.training.model.named_parameters()
        ]
        self.before = {r.name: r.tensor.detach().clone() for r in self.seen.parameters}
        self.buffers = {name: b.detach().clone() for name, b in self.training.model.named_buffers()}
        self.known = {id(r.tensor) for r in self.seen.parameters}
        self.incoming: dict[str, Any] = {}
        self.applied: dict[str, Any] = {}  # gradients at the last optimizer step
        self.weights: dict[str, Any] = {}
        self._clear()

    def _clear(self) -> None:
        self.incoming = {}
        self.optimizer_steps, self.graph, self.backwards = 0, 0, 0
        self.lrs: list[float] = []
        self.wiped, self.bad_gradient = False, False

    # -- hooks

    @contextmanager
    def attached(self) -> Iterator[None]:
        import torch

        handles = [r.tensor.register_hook(self._receiver(r)) for r in self.seen.parameters if r.trainable]
        optimizer = self.training.optimizer
        handles += [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(self._after_step),
        ]
        for name, module in self.training.model.named_modules():
            handles.append(module.register_forward_pre_hook(self._caller(name, module)))
        original = torch.autograd.backward
        torch.autograd.backward = self._backward(original)
        try:
            yield
        finally:
            torch.autograd.backward = original
            for handle in handles:
                handle.remove()

    def _receiver(self, record: ParameterRecord) -> Callable[[Any], None]:
        def receive(grad: Any) -> None:
            dense = _dense(grad)
            record.received += 1
            record.nonzero += bool(dense.any())
            old = self.incoming.get(record.name)
            self.incoming[record.name] = dense.clone() if old is None else old + dense

        return receive

    def _caller(self, name: str, module: Any) -> Callable[..., None]:
        import torch

        norms = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.modules.dropout._DropoutNd)

        def called(*_: Any) -> None:
            self.seen.called.add(name)
            if isinstance(module, norms):
                self.seen.modes[name] = module.training

        return called

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
            for tensor in tensors if isinstance(tensors, (tuple, list)) else [tensors]:
                nodes, leaves = walk(tensor)
                self.graph += nodes
                fresh = [leaf for leaf in leaves if id(leaf) not in self.known]
                self.seen.strangers += ["x".join(map(str, leaf.shape)) for leaf in fresh if leaf.requires_grad]
                self.known |= {id(leaf) for leaf in fresh}
            self.backwards += 1
            return original(tensors, *args, **kwargs)

        return backward

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        self.optimizer_steps += 1
        self.lrs = [float(group["lr"]) for group in optimizer.param_groups]
        present = {r.name: _dense(r.tensor.grad) for r in self.seen.parameters if r.tensor.grad is not None}
        self.bad_gradient |= any(not grad.isfinite().all() for grad in present.values())
        received = {name: grad for name, grad in self.incoming.items() if grad.any()}
        self.wiped |= bool(received) and not any(present[n].any() for n in received if n in present)
        if self.training.accumulate == 1 and not self.wiped:
            self._compare(present)
        for record in self.seen.parameters:
            if record.name in present:
                record.grad_rms.append(float(present[record.name].double().square().mean().sqrt()))
        self.applied = {name: grad.clone() for name, grad in present.items()}
        self.weights = {r.name: r.tensor.detach().clone() for r in self.seen.parameters}

    def _compare(self, present: dict[str, Any]) -> None:
        for record in self.seen.parameters:
            parts = [source.get(record.name) for source in (self.incoming, present, self.applied)]
            if record.group is not None and all(part is not None for part in parts):
                share = stale_share(*parts)
                record.stale += [] if share is None else [share]

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        for record in self.seen.parameters:
            old, new = self.weights[record.name].double(), record.tensor.detach().double()
            size, change = float(old.norm()), float((new - old).norm())
            record.ratios.append(change / size if size > _EPS else 0.0)
            lr = self.lrs[record.group] if record.group is not None else 0.0
            grad = self.applied.get(record.name)
            record.rounded |= lr > 0 and grad is not None and bool(grad.any()) and change == 0

    # -- steps

    def step(self, batch: Any) -> None:
        self._clear()
        scheduler = self.training.scheduler
        count = scheduler._step_count if scheduler is not None else 0
        loss = self.session.train_step(batch)
        after = scheduler._step_count - count if scheduler is not None else 0
        self.seen.detached |= self.backwards == 0 and hasattr(loss, "requires_grad") and not loss.requires_grad
        value = number(loss)
        bad = loss is not None and not -float("inf") < value < float("inf")
        weight = any(not r.tensor.detach().isfinite().all() for r in self.seen.parameters)
        nonfinite = "loss" if bad else "weight" if weight else "gradient" if self.bad_gradient else ""
        self.seen.steps.append(
            StepRecord(value, self.optimizer_steps, self.lrs, after, self.wiped, nonfinite, self.graph, self.backwards)
        )

    def finish(self) -> None:
        """Inside `preserved` still: what differs from the start."""
        for record in self.seen.parameters:
            record.moved = not _equal(record.tensor.detach(), self.before[record.name])
            record.rounded &= not record.moved
            if record.tensor.dim() >= 2 and _rows_equal(record.tensor.detach()):
                self.seen.rows_equal.append(record.name)
        now = dict(self.training.model.named_buffers())
        self.seen.buffers_moved = [n for n, old in self.buffers.items() if n in now and not _equal(now[n], old)]
        self.before, self.buffers, self.weights, self.applied, self.incoming = {}, {}, {}, {}, {}


def _dense(grad: Any) -> Any:
    return (grad.to_dense() if grad.is_sparse else grad).detach()


def _equal(one: Any, other: Any) -> bool:
    """Bit by bit, but a NaN is equal to itself."""
    import torch

    if one.is_floating_point():
        one, other = one.nan_to_num(7.0), other.nan_to_num(7.0)
    return torch.equal(one, other)


def _rows_equal(weight: Any) -> bool:
    rows = weight.flatten(1)
    return rows.shape[0] > 1 and rows.shape[1] > 1 and bool((rows == rows[0]).all())


def stale_share(incoming: Any, present: Any, applied: Any) -> float | None:
    """How much better `incoming + last step's gradient` explains what is applied than `incoming` alone: 0 to 1.

    Compared by direction, so that clipping and loss scaling do not matter.
    """
    alone, both = _cosine(incoming, present), _cosine(incoming + applied, present)
    if alone is None or both is None:
        return None
    return max(0.0, (both - alone) / (1 - alone)) if alone < 0.9999 else 0.0


def _cosine(one: Any, other: Any) -> float | None:
    one, other = one.double().flatten(), other.double().flatten()
    size = float(one.norm() * other.norm())
    return float(one @ other) / size if size > _EPS else None


def walk(tensor: Any) -> tuple[int, list[Any]]:
    """Number of graph nodes behind a tensor, and the leaves at its ends."""
    seen: set[Any] = set()
    leaves, edge = [], [tensor.grad_fn] if getattr(tensor, "grad_fn", None) is not None else []
    while edge:
        node = edge.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.append(node.variable)
        edge += [following for following, _ in node.next_functions if following is not None]
    return len(seen), leaves
