"""Runs inside the user's training for `rgt checkpoints certify`: what each optimizer step started from and was fed.

Into <folder>/<pid>.jsonl go two kinds of lines, of the process that steps first and of rank 0:
    {"at": 7, "weights", "optimizer", "copies", "rng", "saved"}      the state after 7 steps, seen as the 8th begins
    {"step": 8, "lr", "batch", "loss"}                               what the 8th step used, once it is done
<folder>/orders.json says after how many steps a signal comes, and after how many the run is cut. Needs nothing but the
standard library and the user's torch, draws no random number and changes no tensor.
"""

from __future__ import annotations

import atexit
import gc
import hashlib
import importlib.abc
import importlib.util
import json
import os
import random
import signal
import sys
import time
import weakref
from typing import Any

_VALUES = 4096  # of each tensor: a resume bug changes all of them
_ROWS = 512  # of a batch
_TENSORS = 16  # of a call
_PAUSES, _PAUSE = 3, 1.5  # steps that a program may still make after SIGTERM, and how long each then takes
_SCANS = 3  # first steps that look for copies of the weights, and then every so many
_NEAR = 0.9  # relative distance: an average is nearer to its weights than zero is, a stranger is not


class AfterTorch(importlib.abc.MetaPathFinder):
    """Calls back once torch is imported, before the program goes on."""

    def __init__(self, done: Any) -> None:
        self.done = done

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                self.done(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class Observer:
    def __init__(self, folder: str, torch: Any) -> None:
        self.torch, self.path = torch, os.path.join(folder, f"{os.getpid()}.jsonl")
        with open(os.path.join(folder, "orders.json"), encoding="utf-8") as file:
            self.orders: dict[str, Any] = json.load(file)
        self.pid = os.getpid()
        self.optimizer: Any = None  # the first one that steps; its steps are the run's
        self.depth = 0  # of calls of modules: only the outermost is given a batch
        self.steps, self.base = 0, 0  # of this process; of the run before it
        self.pauses: int | None = None  # left, once SIGTERM was sent
        self.lr: list[float] = []
        self.batch: list[str] = []
        self.loss: list[float] = []
        self.alike: list[Any] = []  # tensors of the shape of the largest weight

    def attach(self) -> None:
        torch, observer = self.torch, self
        hooks = sys.modules["torch.optim.optimizer"]
        hooks.register_optimizer_step_pre_hook(lambda one, *_: self.safely(self.before, one))
        hooks.register_optimizer_step_post_hook(lambda one, *_: self.safely(self.after, one))
        call, backward = torch.nn.Module.__call__, torch.Tensor.backward

        def watched_call(module: Any, *args: Any, **words: Any) -> Any:
            if observer.depth or not module.training or torch.compiler.is_compiling() or not torch.is_grad_enabled():
                return call(module, *args, **words)
            observer.depth += 1
            try:
                if next(module.parameters(), None) is not None:  # not a loss
                    observer.safely(observer.feed, (args, words))
                return call(module, *args, **words)
            finally:
                observer.depth -= 1

        def watched_backward(tensor: Any, *args: Any, **words: Any) -> Any:
            observer.safely(observer.note, tensor)
            return backward(tensor, *args, **words)

        torch.nn.Module.__call__, torch.Tensor.backward = watched_call, watched_backward
        atexit.register(self.safely, self.end)

    def safely(self, look: Any, *what: Any) -> None:
        """What goes wrong here is told, and is never the program's problem."""
        try:
            look(*what)
        except Exception as problem:
            self.write({"problem": f"{type(problem).__name__}: {problem}"[:300]})

    # -- one step

    def before(self, optimizer: Any) -> None:
        self.optimizer = self.optimizer if self.optimizer is not None else optimizer
        if optimizer is self.optimizer:
            self.lr = [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]
            state = self.state()
            if not self.steps:
                self.base = self.orders["known"].get(state["weights"], 0)
            self.write({"at": self.steps, **state})
            self.obey()

    def after(self, optimizer: Any) -> None:
        if optimizer is self.optimizer:
            self.steps += 1
            self.write({"step": self.steps, "lr": self.lr, "batch": self.batch, "loss": self.loss})
            self.batch, self.loss = [], []

    def end(self) -> None:
        if self.optimizer is not None and os.getpid() == self.pid:
            self.write({"at": self.steps, **self.state(), "end": True})

    def obey(self) -> None:
        """At the orders' step: the signal, or the end. SIGTERM leaves a few slow steps, for a save."""
        if self.pauses is not None:
            self.pauses -= 1
            if self.pauses < 0:
                os.killpg(os.getpgrp(), signal.SIGKILL)
            time.sleep(_PAUSE)
        elif self.orders["kill_at"] == self.steps:
            self.pauses = _PAUSES
            os.killpg(os.getpgrp(), self.orders["signal"])
        if self.orders["stop_at"] is not None and self.base + self.steps >= self.orders["stop_at"]:
            self.write({"stopped": self.steps})
            os.killpg(os.getpgrp(), signal.SIGKILL)

    def write(self, row: dict[str, Any]) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    # -- what there is

    def state(self) -> dict[str, Any]:
        weights = [one for group in self.optimizer.param_groups for one in group["params"]]
        return {
            "weights": self.digest(weights),
            "optimizer": self.moments(weights),
            "copies": self.copies(weights),
            "rng": self.generators(),
            "saved": newest(self.orders["out"], tuple(self.orders["endings"])),
        }

    def moments(self, weights: list[Any]) -> str | None:
        """The optimizer's memory; None for one that has none yet."""
        entries = [(self.optimizer.state.get(one) or {}) for one in weights]
        flat = [value for entry in entries for _, value in sorted(entry.items(), key=lambda pair: str(pair[0]))]
        return self.digest(flat) if any(entries) else None

    def copies(self, weights: list[Any]) -> dict[str, str]:
        """Tensors elsewhere that look like the largest weight, by their place: an average of the weights is one."""
        with self.torch.no_grad():
            largest = max(weights, key=lambda one: one.numel()).detach()
            known = [entry for one in weights for entry in (self.optimizer.state.get(one) or {}).values()]
            known += [*weights, *(one.grad for one in weights)]
            taken = {one.data_ptr() for one in known if isinstance(one, self.torch.Tensor)}
            if self.steps < _SCANS or self.steps % _SCANS == 0:  # it takes long, and an average lives from the start
                kinds = {self.torch.Tensor, self.torch.nn.Parameter}
                tensors = [one for one in gc.get_objects() if type(one) in kinds]
                self.alike = [weakref.ref(one) for one in tensors if one.shape == largest.shape]
            near = {}
            for thing in [one for one in (reference() for reference in self.alike) if one is not None]:
                mine = thing.data_ptr() in taken or thing.device != largest.device or not thing.is_floating_point()
                if not mine and float((thing - largest).norm()) < _NEAR * float(largest.norm()):
                    near[str(thing.data_ptr())] = self.digest([thing])
        return near

    def generators(self) -> dict[str, str]:
        torch, numpy = self.torch, sys.modules.get("numpy")
        states = {"python": repr(random.getstate()), "torch": torch.get_rng_state().numpy().tobytes().hex()}
        if numpy is not None and hasattr(numpy, "random"):
            kind, keys, *others = numpy.random.get_state()
            states["numpy"] = repr((kind, keys.tolist(), others))
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states["cuda"] = torch.cuda.get_rng_state().numpy().tobytes().hex()
        return {name: hashlib.blake2b(state.encode(), digest_size=6).hexdigest() for name, state in states.items()}

    def note(self, loss: Any) -> None:
        if loss.numel() == 1 and not _is_rehearsal(loss):
            self.loss.append(float(loss.detach()))

    def feed(self, given: Any) -> None:
        """A digest per sample of what the model is called with."""
        tensors = [one for one in flatten(given) if isinstance(one, self.torch.Tensor)][:_TENSORS]
        tensors = [one for one in tensors if one.dim() and not one.requires_grad and not _is_rehearsal(one)]
        if tensors:
            size = len(tensors[0])
            alike = [one for one in tensors if len(one) == size]
            self.batch += [self.digest([one[row] for one in alike]) for row in range(min(size, _ROWS))]

    def digest(self, things: list[Any]) -> str:
        torch, total = self.torch, hashlib.blake2b(digest_size=6)
        for thing in things:
            if isinstance(thing, torch.Tensor):
                thing = getattr(thing, "to_local", lambda thing=thing: thing)().detach().reshape(-1)
                thing = thing[:: max(1, thing.numel() // _VALUES)].cpu().contiguous()
                total.update(thing.view(torch.uint8).numpy().tobytes() if thing.numel() else b"")
            else:
                total.update(repr(thing).encode())
        return total.hexdigest()


def _is_rehearsal(tensor: Any) -> bool:
    """Without values: somebody counts operations, or compiles."""
    return tensor.is_meta or type(tensor).__name__ == "FakeTensor"


def flatten(thing: Any) -> list[Any]:
    if isinstance(thing, (list, tuple)):
        return [one for part in thing for one in flatten(part)]
    return flatten(list(thing.values())) if hasattr(thing, "values") and hasattr(thing, "keys") else [thing]


def newest(folder: str, endings: tuple[str, ...]) -> int:
    """When a checkpoint was last written, in ns; 0: never."""
    times = [0]
    for place, _, names in os.walk(folder):
        for name in names:
            if name.endswith(endings):
                try:
                    times.append(os.stat(os.path.join(place, name)).st_mtime_ns)
                except OSError:
                    pass
    return max(times)


def begin(folder: str, forked: bool) -> None:
    if not forked and os.environ.get("RANK", "0") == "0" and os.environ.get("LOCAL_RANK", "0") == "0":
        sys.meta_path.insert(0, AfterTorch(lambda torch: Observer(folder, torch).attach()))
