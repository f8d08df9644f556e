"""One training under examination: its batches, its step, its time, and copies of it that a probe may change."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import multiprocessing
import os
import pickle
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any

from rgt.checkpoint.training_state import restore_rng, rng_state
from rgt.errors import bad_input
from rgt.probes.factory import Observation, Training

READ_AHEAD = 20  # steps whose batches are read once for all probes
_OURS = str(Path(__file__).resolve().parent)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Died(BaseException):
    """A fork ended without an answer; `code` as in subprocess: negative for a signal."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the process of a probe ended with code {code}")
        self.code = code


class RaisedInFork(Exception):
    """Its arguments are the sentence and the place of what was raised."""


@dataclass
class Session:
    """`steps` bounds every loop of optimizer steps, `seconds` the time one probe may take in such a loop."""

    training: Training
    _: KW_ONLY
    steps: int = 20
    seconds: float = 20.0
    make: Callable[[], Training] | None = None
    seed: int = 0
    threads: int = 1
    on_fork: Callable[[int], None] = lambda pid: None

    def __post_init__(self) -> None:
        self.observation = Observation()  # made before the first probe that reads it
        self._batches: list[Any] = []
        self._whole = False  # are the batches above all there are?
        self._touched = True  # has anybody run this training?
        self._system_threads = _system_threads()
        self.start()

    def start(self) -> None:
        """A probe begins: its time runs from here."""
        self._end = time.monotonic() + self.seconds
        self._micro = 0

    @property
    def late(self) -> bool:
        return time.monotonic() > self._end

    # -- copies of the training

    def isolated(self, work: Callable[..., Any], *given: Any) -> Any:
        """work(session, *given) on a training that nobody has run, and nothing that it does is seen afterwards.

        It runs in a fork of this process, and its value comes back as a pickle. CUDA does not survive a fork, nor does
        Metal: with them, the work gets a new training from the factory instead.
        """
        import torch

        self._micro = 0
        if torch.cuda.is_initialized() or sys.platform != "linux":  # type: ignore[no-untyped-call]
            if self.make is None:
                why = "CUDA is in use" if sys.platform == "linux" else "it is not Linux"
                raise bad_input(f"this process cannot fork ({why}): give make=, a function like the factory")
            with same_random():
                if self._touched:
                    seed_all(self.seed)
                    self.training, self._touched = self.make(), False
                return work(self, *given)
        parent = os.getpid()
        # OpenMP's threads do not survive a fork: a second thread only where this process has started none
        threads = self.threads if _system_threads() <= self._system_threads else 1
        with tempfile.TemporaryFile() as file:  # not a pipe: a loader's workers would hold its other end open

            def answer() -> None:
                end_with(parent)
                torch.set_num_threads(threads)
                self.training.model.zero_grad()
                self._system_threads = _system_threads()
                outcome: tuple[Any, Any]
                try:
                    outcome = work(self, *given), None
                except Exception as problem:
                    outcome = None, (sentence(problem), site(problem))
                pickle.dump(outcome, file)
                file.flush()

            fork: Any = multiprocessing.get_context("fork").Process(target=answer)
            fork.start()
            self.on_fork(fork.pid)
            fork.join()
            self.on_fork(0)
            if fork.exitcode:
                raise Died(fork.exitcode)
            file.seek(0)
            value, error = pickle.load(file)
        if error:
            raise RaisedInFork(*error)
        return value

    # -- data

    def batches(self, count: int) -> list[Any]:
        """The first `count` batches, or all when there are fewer; random states and `also` are as before."""
        if len(self._batches) < count and not self._whole:
            kept = [(thing, dict(vars(thing))) for thing in self.training.also]
            with same_random(self.training.data):
                try:
                    read = list(itertools.islice(iter(self.training.data), count))
                finally:
                    for thing, attributes in kept:
                        vars(thing).update(attributes)
            self._whole = len(read) < count
            self._batches = [move(batch, self.device) for batch in read]
        return self._batches[:count]

    def read_ahead(self) -> None:
        with suppress(Exception):  # the collate probe reads again, and reports it
            self.batches(min(self.steps, READ_AHEAD) * self.training.accumulate)

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
        self._touched = True
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
        import torch

        training = self.training
        self._touched = True
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


def end_with(parent: int) -> None:
    """This process ends when its parent does, however that one ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def _system_threads() -> int:
    """0 where there is no /proc."""
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else 0


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
    import torch

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


def digest(item: Any) -> str:
    """Of everything in a sample or batch: equal contents, equal digest."""
    import torch

    state = hashlib.blake2b(digest_size=12)

    def feed(part: Any) -> None:
        if isinstance(part, torch.Tensor):
            values = part.detach().cpu().contiguous()
            state.update(str((values.dtype, tuple(values.shape))).encode())
            state.update(values.reshape(-1).view(torch.uint8).numpy().tobytes() if values.numel() else b"")
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


# -- errors of the user's code


def sentence(error: BaseException) -> str:
    if isinstance(error, RaisedInFork):
        return str(error.args[0])
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def site(error: BaseException) -> str:
    """file:line of the deepest frame that is neither ours nor torch's: where the user has to look."""
    if isinstance(error, RaisedInFork):
        return str(error.args[1])
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not foreign(f.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def foreign(filename: str) -> bool:
    """Ours, torch's or Python's own."""
    return filename.startswith((_OURS, "<")) or "site-packages" in filename or "/lib/python" in filename


# -- random numbers


def seed_all(seed: int) -> None:
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


@contextmanager
def same_random(data: Any = None) -> Iterator[None]:
    """Whatever is drawn inside, also from the generators of a loader, is drawn again afterwards."""
    holders = [data, getattr(data, "sampler", None), getattr(getattr(data, "batch_sampler", None), "sampler", None)]
    generators = {id(g): g for holder in holders if (g := getattr(holder, "generator", None)) is not None}
    rng, states = rng_state(), [(generator, generator.get_state()) for generator in generators.values()]
    try:
        yield
    finally:
        for generator, state in states:
            generator.set_state(state)
        restore_rng([rng])
