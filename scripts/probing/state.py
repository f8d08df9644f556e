"""Nothing a probe does outlives it: weights, gradients, optimizer, modes, hooks and random numbers are put back."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probing.contract import Training

# The registries of an nn.Module are restored entry by entry or as copies of the dict; the rest is plain attributes.
_HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs",
)  # fmt: skip
_REGISTRIES = ("_parameters", "_buffers", "_modules")


@dataclass
class _Kept:
    """An object that can be changed in place, and what it held."""

    original: Any
    value: Any


@contextmanager
def preserved(training: Training) -> Iterator[None]:
    """Whatever happens inside, the training is afterwards what it was before; gradients start out empty."""
    restore = Restore(training)
    try:
        for parameter in training.model.parameters():
            parameter.grad = None
        yield
    finally:
        restore()


class Restore:
    """Holds a copy of everything that a step can change; calling it puts that back, in place."""

    def __init__(self, training: Training) -> None:
        self.training = training
        self.rng = rng_state()
        self.modules = [(module, _module_state(module)) for module in _modules(training)]
        self.parameters = [_parameter_state(parameter) for parameter in _parameters(training)]
        self.others = others_state(training)
        self.optimizer = _optimizer_state(training.optimizer)
        self.schedulers = [(scheduler, schedule_state(scheduler)) for scheduler in _schedulers(training.scheduler)]
        self.generators = _generators(training.data)

    def __call__(self) -> None:
        import torch

        for module, kept in self.modules:
            _restore_module(module, kept)
        with torch.no_grad():
            for parameter, value, grad, wanted in self.parameters:
                _copy(parameter.data, value)
                parameter.requires_grad_(wanted)
                parameter.grad = None if grad is None else grad
        restore_others(self.others)
        _restore_optimizer(self.training.optimizer, self.optimizer)
        for scheduler, kept in self.schedulers:
            scheduler.__dict__.update(kept)
        for generator, kept in self.generators:
            generator.set_state(kept)
        set_rng_state(self.rng)


def others_state(training: Training) -> list[tuple[Any, dict[str, Any]]]:
    return [(thing, _attributes(vars(thing))) for thing in training.also if not _is_module(thing)]


def restore_others(others: list[tuple[Any, dict[str, Any]]]) -> None:
    for thing, kept in others:
        vars(thing).clear()
        vars(thing).update({name: _restored(value) for name, value in kept.items()})


def _is_module(thing: Any) -> bool:
    import torch

    return isinstance(thing, torch.nn.Module)


def _modules(training: Training) -> list[Any]:
    roots = [training.model, *(thing for thing in training.also if _is_module(thing))]
    return [module for root in roots for module in root.modules()]


def _parameters(training: Training) -> list[Any]:
    """Of the model and of the optimizer: the two may differ, which is one of the bugs looked for."""
    found = {id(p): p for module in _modules(training) for p in module.parameters(recurse=False)}
    found |= {id(p): p for group in training.optimizer.param_groups for p in group["params"]}
    return list(found.values())


def _parameter_state(parameter: Any) -> tuple[Any, Any, Any, bool]:
    grad = None if parameter.grad is None else parameter.grad.detach().clone()
    return parameter, parameter.detach().clone(), grad, parameter.requires_grad


def _module_state(module: Any) -> dict[str, Any]:
    own = {name: value for name, value in vars(module).items() if name not in _HOOKS + _REGISTRIES}
    kept = _attributes(own)
    kept |= {name: _Kept(vars(module)[name], vars(module)[name].copy()) for name in _HOOKS + _REGISTRIES}
    kept["buffer values"] = {k: v.detach().clone() for k, v in module._buffers.items() if v is not None}
    return kept


def _restore_module(module: Any, kept: dict[str, Any]) -> None:
    for name in set(vars(module)) - set(kept):
        del vars(module)[name]
    vars(module).update({name: _restored(value) for name, value in kept.items() if name != "buffer values"})
    for name, value in kept["buffer values"].items():
        _copy(module._buffers[name].data, value)


def _attributes(values: dict[str, Any]) -> dict[str, Any]:
    """One level deep: tensors and containers are copied, everything else is remembered as the object it is."""
    import torch

    kept: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            kept[name] = _Kept(value, value.detach().clone())
        else:
            kept[name] = _Kept(value, copy.copy(value)) if type(value) in (list, dict, set) else value
    return kept


def _restored(kept: Any) -> Any:
    """The very object that was there, with the contents it had."""
    import torch

    if not isinstance(kept, _Kept):
        return kept
    original, value = kept.original, kept.value
    if isinstance(original, torch.Tensor):
        _copy(original.data, value)
    elif isinstance(original, list):
        original[:] = value
    else:
        original.clear()
        original.update(value)
    return original


def _copy(target: Any, value: Any) -> None:
    if target.shape == value.shape:
        target.copy_(value)
    else:
        target.set_(value)


def _optimizer_state(optimizer: Any) -> dict[str, Any]:
    groups = [{key: copy.copy(value) for key, value in group.items()} for group in optimizer.param_groups]
    hooks = {name: dict(value) for name, value in vars(optimizer).items() if name.endswith("_hooks")}
    return {"state": {p: copy.deepcopy(s) for p, s in optimizer.state.items()}, "groups": groups, "hooks": hooks}


def _restore_optimizer(optimizer: Any, kept: dict[str, Any]) -> None:
    optimizer.state.clear()
    optimizer.state.update(kept["state"])
    del optimizer.param_groups[len(kept["groups"]) :]
    for group, old in zip(optimizer.param_groups, kept["groups"], strict=True):
        group.clear()
        group.update(old)
    for name, value in kept["hooks"].items():
        getattr(optimizer, name).clear()
        getattr(optimizer, name).update(value)


def _schedulers(scheduler: Any) -> list[Any]:
    """SequentialLR and ChainedScheduler hold others."""
    if scheduler is None:
        return []
    return [scheduler, *(inner for one in getattr(scheduler, "_schedulers", []) for inner in _schedulers(one))]


def schedule_state(scheduler: Any) -> dict[str, Any]:
    """Numbers and lists of them; the optimizer and the functions are the same objects afterwards."""
    return {key: copy.copy(value) for key, value in vars(scheduler).items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, (int, float, str, dict))


# -- random numbers


def rng_state() -> dict[str, Any]:
    import numpy
    import torch

    state = {"python": random.getstate(), "numpy": numpy.random.get_state(), "torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(state: dict[str, Any]) -> None:
    import numpy
    import torch

    random.setstate(state["python"])
    numpy.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if "cuda" in state:
        torch.cuda.set_rng_state_all(state["cuda"])


def seed_all(seed: int) -> None:
    import numpy
    import torch

    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


@contextmanager
def same_random(data: Any = None) -> Iterator[None]:
    """Whatever is drawn inside, also from the generators of a loader, is drawn again afterwards."""
    rng, generators = rng_state(), _generators(data)
    try:
        yield
    finally:
        for generator, state in generators:
            generator.set_state(state)
        set_rng_state(rng)


def _generators(data: Any) -> list[tuple[Any, Any]]:
    """Generators of a DataLoader and its sampler: reading a batch moves them."""
    holders = [data, getattr(data, "sampler", None), getattr(getattr(data, "batch_sampler", None), "sampler", None)]
    found = {id(g): g for holder in holders if (g := getattr(holder, "generator", None)) is not None}
    return [(generator, generator.get_state()) for generator in found.values()]
