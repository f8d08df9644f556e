"""One training under examination: its batches, its step, its time, and a new one for every probe that runs it."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import hashlib
import itertools
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rgt.probes.factory import Observation, Training

import torch


@dataclass
class Session:
    """`steps` bounds every loop of optimizer steps, `seconds` the time one probe may take in such a loop."""

    make: Callable[[], Training]
    steps: int = 20
    seconds: float = 20.0
    seed: int = 0

    def __post_init__(self) -> None:
        self.observation = Observation()  # made before the first probe that reads it
        self.fresh().start()
        self._batches: list[Any] | None = None

    def start(self) -> None:
        """A probe begins: its time runs from here."""
        self._end = time.monotonic() + self.seconds

    @property
    def late(self) -> bool:
        return time.monotonic() > self._end

    def fresh(self) -> Session:
        """With a new training from the factory: nothing that was done to the last one is left."""
        self.training: Any = None
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            gc.collect()  # hooks make cycles, which keep the memory of earlier ones
        random.seed(self.seed)
        with contextlib.suppress(ImportError):  # torch runs without it
            import numpy

            numpy.random.seed(self.seed)
        torch.manual_seed(self.seed)
        self.training, self._micro = self.make(), 0
        return self

    # -- data

    def batches(self, count: int) -> list[Any]:
        """The first `count` batches, or all when there are fewer; read once, and a copy for whoever asks."""
        if self._batches is None:
            read = itertools.islice(iter(self.training.data), self.steps * self.training.accumulate)
            self._batches = [move(batch, self.device) for batch in read]
        return [each_tensor(batch, lambda tensor: tensor.clone()) for batch in self._batches[:count]]

    def cycle(self, count: int) -> Iterator[Any]:
        """Batches for `count` calls of the step, from the front again when there are fewer; ends when time is up."""
        known = self.batches(count)
        for index in range(count):
            if not known or (self.late and index % self.training.accumulate == 0 and index):
                return
            yield known[index % len(known)]

    @property
    def device(self) -> Any:
        return next((parameter.device for parameter in self.training.model.parameters()), torch.device("cpu"))

    # -- the step

    def forward(self, batch: Any) -> Any:
        training = self.training
        if training.forward:
            return training.forward(training.model, batch)
        inputs = batch if isinstance(batch, Mapping) else inputs_of(batch)
        if isinstance(inputs, Mapping):
            return training.model(**inputs)
        return training.model(*inputs) if isinstance(inputs, (tuple, list)) else training.model(inputs)

    def loss(self, output: Any, batch: Any) -> Any:
        return _scalar(self.training.loss(output, target_of(batch)))

    def train_step(self, batch: Any) -> Any:
        """One call of the user's step, or of the usual one; gives the loss."""
        training = self.training
        if training.step:
            return _scalar(training.step(training, batch))
        loss = self.loss(self.forward(batch), batch)
        torch.autograd.backward(loss / training.accumulate)
        self._micro += 1
        if self._micro % training.accumulate == 0:
            if training.clip:
                torch.nn.utils.clip_grad_norm_(training.model.parameters(), training.clip)
            training.optimizer.step()
            if training.scheduler and training.scheduler_interval == "step":
                training.scheduler.step()
            training.optimizer.zero_grad()
        return loss


# -- batches, outputs and losses, of whatever shape


def inputs_of(batch: Any) -> Any:
    return batch[0] if isinstance(batch, (tuple, list)) and len(batch) else batch


def target_of(batch: Any) -> Any:
    """The second of a pair; all but the first of a longer tuple; a dict or tensor batch is its own target."""
    if isinstance(batch, (tuple, list)) and len(batch) > 1:
        return batch[1] if len(batch) == 2 else tuple(batch[1:])
    return batch


def _scalar(loss: Any) -> Any:
    """Of several losses, the one that is trained on: `loss` of a dict or of a model output, the first of a tuple."""
    if isinstance(loss, Mapping):
        return loss["loss"]
    if isinstance(loss, (tuple, list)):
        return loss[0]
    return getattr(loss, "loss", loss) if loss is not None and not hasattr(loss, "item") else loss


def number(loss: Any) -> float:
    """NaN when the step returns nothing."""
    return float(loss.detach() if hasattr(loss, "detach") else loss) if loss is not None else float("nan")


def each_tensor(item: Any, change: Callable[[Any], Any]) -> Any:
    """A nested batch with every tensor changed."""
    if isinstance(item, torch.Tensor):
        return change(item)
    if isinstance(item, Mapping):
        return {key: each_tensor(value, change) for key, value in item.items()}
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*(each_tensor(value, change) for value in item))
    return type(item)(each_tensor(value, change) for value in item) if isinstance(item, (tuple, list)) else item


def move(item: Any, device: Any) -> Any:
    return each_tensor(item, lambda tensor: tensor.to(device))


def tensors(item: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor of a nested batch or output, with a name to say where it was."""
    if isinstance(item, torch.Tensor):
        yield name or "batch", item
    elif isinstance(item, Mapping):
        for key, value in item.items():
            yield from tensors(value, f"{name}.{key}" if name else str(key))
    elif isinstance(item, (tuple, list)):
        for index, value in enumerate(item):
            yield from tensors(value, f"{name}[{index}]")


def mode_dependent() -> Any:
    """Modules that behave differently in train and eval mode."""
    return torch.nn.modules.batchnorm._BatchNorm, torch.nn.modules.dropout._DropoutNd


def describe(tensor: Any) -> str:
    """shape, dtype, range, mean, and how many values are not finite."""
    values = tensor.detach()
    head = f"{'x'.join(map(str, values.shape)) or 'scalar'} {str(values.dtype).removeprefix('torch.')}"
    if values.numel() == 0 or values.is_sparse or not (values.is_floating_point() or values.dtype.itemsize):
        return head
    values = values.double() if not values.is_complex() else values.abs().double()
    finite = values[values.isfinite()]
    bad = f", {int(values.isnan().sum())} NaN, {int(values.isinf().sum())} Inf" if len(finite) < values.numel() else ""
    if not len(finite):
        return f"{head}{bad}"
    return f"{head}, min {finite.min():.4g}, max {finite.max():.4g}, mean {finite.mean():.4g}{bad}"


def digest(item: Any) -> str:
    """Of everything in a sample or batch: equal contents, equal digest."""
    state = hashlib.blake2b(digest_size=12)

    def feed(part: Any) -> None:
        if isinstance(part, torch.Tensor):
            values = part.detach().cpu().contiguous()
            state.update(str((values.dtype, tuple(values.shape))).encode())
            state.update(ctypes.string_at(values.data_ptr(), values.numel() * values.element_size()))  # without numpy
        elif isinstance(part, dict):
            for key in sorted(part, key=str):
                state.update(str(key).encode())
                feed(part[key])
        elif isinstance(part, (tuple, list)):
            for inner in part:
                feed(inner)
        else:
            state.update(part.tobytes() if hasattr(part, "tobytes") else repr(part).encode())

    feed(item)
    return state.hexdigest()
