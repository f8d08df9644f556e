"""One training under examination: its batches, its step, its time. Probes share what was read and measured here."""

from __future__ import annotations

import itertools
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probing.contract import Training

if TYPE_CHECKING:
    from probing.observe import Observation

_OURS = str(Path(__file__).resolve().parent)


class Session:
    """`steps` bounds every loop of optimizer steps, `seconds` the time one probe may take in such a loop."""

    def __init__(self, training: Training, *, steps: int = 20, seconds: float = 20.0,
                 make: Callable[[], Training] | None = None, seed: int = 0) -> None:  # fmt: skip
        self.training, self.steps, self.seconds, self.make, self.seed = training, steps, seconds, make, seed
        self._batches: list[Any] = []
        self._whole = False  # are the batches above all there are?
        self._observation: Observation | None = None
        self._micro = 0
        self._end = time.monotonic() + seconds

    def start(self) -> None:
        """A probe begins: its time runs from here."""
        self._end = time.monotonic() + self.seconds
        self._micro = 0

    @property
    def late(self) -> bool:
        return time.monotonic() > self._end

    def reset(self) -> None:
        """Count accumulated batches from zero again."""
        self._micro = 0

    # -- data

    def batches(self, count: int) -> list[Any]:
        """The first `count` batches, or all when there are fewer. Read once, under the random state of the caller."""
        from probing.state import others_state, restore_others, same_random

        if len(self._batches) < count and not self._whole:
            others = others_state(self.training)
            with same_random(self.training.data):
                try:
                    found = list(itertools.islice(iter(self.training.data), count))
                finally:
                    restore_others(others)
            self._whole = len(found) < count
            self._batches = [move(batch, self.device) for batch in found]
        return self._batches[:count]

    def cycle(self, count: int) -> Iterator[Any]:
        """Batches for `count` calls of the step, from the front again when there are fewer; ends when time is up."""
        known = self.batches(min(count, self.steps * self.training.accumulate))
        for index in range(count):
            if not known or (self.late and index % self.training.accumulate == 0 and index):
                return
            yield known[index % len(known)]

    @property
    def device(self) -> Any:
        import torch

        return next((parameter.device for parameter in self.training.model.parameters()), torch.device("cpu"))

    # -- the step

    def forward(self, batch: Any) -> Any:
        training = self.training
        if training.forward:
            return training.forward(training.model, batch)
        return call(training.model, batch if isinstance(batch, Mapping) else inputs_of(batch))

    def loss(self, output: Any, batch: Any) -> Any:
        return scalar(self.training.loss(output, target_of(batch)))

    def train_step(self, batch: Any) -> Any:
        """One call of the user's step, or of the usual one; gives the loss."""
        if self.training.step:
            return scalar(self.training.step(self.training, batch))
        return self._usual_step(batch)

    def _usual_step(self, batch: Any) -> Any:
        import torch

        training = self.training
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

    # -- what several probes look at

    def observation(self) -> Observation:
        """The first steps of the training, recorded once for all probes that read them."""
        from probing.observe import observe

        if self._observation is None:
            self._observation = observe(self)
        return self._observation


def inputs_of(batch: Any) -> Any:
    return batch[0] if isinstance(batch, (tuple, list)) and len(batch) else batch


def target_of(batch: Any) -> Any:
    """The second of a pair; all but the first of a longer tuple; a dict or tensor batch is its own target."""
    if isinstance(batch, (tuple, list)) and len(batch) > 1:
        return batch[1] if len(batch) == 2 else tuple(batch[1:])
    return batch


def call(model: Any, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


def scalar(loss: Any) -> Any:
    """Of several losses, the one that is trained on: `loss` of a dict or of a model output, the first of a tuple."""
    if isinstance(loss, Mapping):
        return loss["loss"]
    if isinstance(loss, (tuple, list)):
        return loss[0]
    return getattr(loss, "loss", loss) if loss is not None and not hasattr(loss, "item") else loss


def number(loss: Any) -> float:
    """NaN when a step gives none."""
    return float(loss.detach() if hasattr(loss, "detach") else loss) if loss is not None else float("nan")


def move(item: Any, device: Any) -> Any:
    import torch

    if isinstance(item, torch.Tensor):
        return item if item.device == device else item.to(device)
    if isinstance(item, Mapping):
        return {key: move(value, device) for key, value in item.items()}
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return type(item)(*(move(value, device) for value in item))
    return type(item)(move(value, device) for value in item) if isinstance(item, (tuple, list)) else item


def tensors(item: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every tensor of a nested batch or output, with a name to say where it was."""
    import torch

    if isinstance(item, torch.Tensor):
        yield name or "batch", item
    elif isinstance(item, Mapping):
        for key, value in item.items():
            yield from tensors(value, f"{name}.{key}" if name else str(key))
    elif isinstance(item, (tuple, list)):
        for index, value in enumerate(item):
            yield from tensors(value, f"{name}[{index}]")


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


def site(error: BaseException) -> str:
    """file:line of the deepest frame that is neither ours nor torch's: where the user has to look."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not foreign(f.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def foreign(filename: str) -> bool:
    """Ours, torch's or Python's own."""
    return filename.startswith((_OURS, "<frozen")) or "site-packages" in filename or "/lib/python" in filename


def sentence(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
