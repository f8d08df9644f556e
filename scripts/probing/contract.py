"""What a factory returns: a training, small enough to be taken apart.

Example:
    def factory():
        model = nn.Linear(8, 3)
        data = DataLoader(TensorDataset(torch.randn(64, 8), torch.randint(3, (64,))), batch_size=16, shuffle=True)
        return Training(model, data, nn.CrossEntropyLoss(), torch.optim.AdamW(model.parameters()))

A factory may also return the four in this order as a tuple, or a dict with the field names below as keys.
"""

from __future__ import annotations

import fnmatch
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from rgt.errors import bad_input


@dataclass
class Training:
    """Model, data, loss and optimizer as the real run builds them; everything else is optional.

    A batch is `(inputs, target)`: the output is model(inputs) (`*inputs` for a tuple, `**inputs` for a dict) and the
    loss is loss(output, target). A dict batch goes to model(**batch) and loss(output, batch). `forward` replaces the
    first rule. `step` replaces the whole step, which is where most bugs live: give the real one when there is one.
    """

    model: Any  # nn.Module
    data: Iterable[Any]  # batches; must start again when iterated again, as a DataLoader does
    loss: Callable[..., Any]
    optimizer: Any  # torch.optim.Optimizer
    forward: Callable[[Any, Any], Any] | None = None  # forward(model, batch) -> output
    step: Callable[[Any, Any], Any] | None = None  # step(training, batch) -> loss; with backward and optimizer.step
    scheduler: Any = None
    scheduler_interval: str = "step"  # or "epoch": when the real run calls scheduler.step()
    lr_at: Callable[[int], float] | None = None  # the schedule as meant: lr_at(0) is for the first optimizer step
    total_steps: int | None = None  # optimizer steps of the whole run
    accumulate: int = 1  # batches per optimizer step
    clip: float | None = None  # clip_grad_norm_ of the default step
    frozen: tuple[str, ...] = ()  # name patterns of what is frozen on purpose: ("backbone.*",)
    evaluate: Callable[[Any], Any] | None = None  # evaluate(training) -> a number or numbers; the real evaluation
    make_loader: Callable[[int], Iterable[Any]] | None = None  # make_loader(epoch), where the run builds one per epoch
    num_classes: int | None = None
    pad_id: int | None = None  # target value that pads short rows
    channel_mean: tuple[float, ...] | None = None  # of the images as the model expects them, before normalisation
    channel_std: tuple[float, ...] | None = None  # given with channel_mean when the batches are normalised
    save: Callable[[], Any] | None = None  # what the run writes into a checkpoint
    load: Callable[[Any], None] | None = None  # and how it takes it back
    # other objects that a step changes (counters, hidden states, an EMA module): put back too
    also: tuple[Any, ...] = ()

    def is_frozen(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) or name.startswith(pattern + ".") for pattern in self.frozen)


_NAMES = tuple(field.name for field in fields(Training))
_REQUIRED = _NAMES[:4]


def as_training(made: Any, source: str) -> Training:
    """A Training from whatever the factory returned, or one sentence about what is wrong with it."""
    if isinstance(made, tuple) and len(made) == len(_REQUIRED):
        made = Training(*made)
    elif isinstance(made, Mapping):
        odd = sorted(str(key) for key in set(made) - set(_NAMES))
        lost = [name for name in _REQUIRED if name not in made]
        if odd or lost:
            problem = f"does not know {', '.join(odd)}" if odd else f"lacks {', '.join(lost)}"
            raise bad_input(f"the dict from {source} {problem}; its keys are the fields of probes.Training")
        made = Training(**made)
    if not isinstance(made, Training):
        expected = "a probes.Training, a dict, or (model, data, loss, optimizer)"
        raise bad_input(f"{source} returned {type(made).__name__}; expected {expected}")
    _check(made, source)
    return made


def _check(training: Training, source: str) -> None:
    import torch

    if not isinstance(training.model, torch.nn.Module):
        raise bad_input(f"the model from {source} is a {type(training.model).__name__}, not a torch.nn.Module")
    if not isinstance(training.optimizer, torch.optim.Optimizer):
        raise bad_input(f"the optimizer from {source} is a {type(training.optimizer).__name__}, not a torch.optim one")
    if not callable(training.loss):
        raise bad_input(f"the loss from {source} is a {type(training.loss).__name__}, which cannot be called")
    if not isinstance(training.data, Iterable):
        raise bad_input(f"the data from {source} is a {type(training.data).__name__}, which cannot be iterated")
    if training.scheduler_interval not in ("step", "epoch"):
        raise bad_input(f"scheduler_interval from {source} is {training.scheduler_interval!r}; expected step or epoch")
    if training.accumulate < 1:
        raise bad_input(f"accumulate from {source} is {training.accumulate}; expected a whole number from 1")


def find(spec: str) -> Callable[..., Any]:
    """The function behind `module:function`; a file's path may stand for the module."""
    module_name, _, name = spec.partition(":")
    if not module_name or not name:
        raise bad_input(f"--factory {spec} is not module:function, as in train:factory or examples.demo:factory")
    dotted = os.path.normpath(module_name).removesuffix(".py").replace("/", ".")
    if dotted.startswith("."):
        folder, file = os.path.split(module_name)
        better = f"--path {folder or '.'} --factory {file.removesuffix('.py')}:{name}"
        raise bad_input(f"{module_name} is not below a folder to import from; give {better}")
    try:
        module = importlib.import_module(dotted)
    except ModuleNotFoundError as error:
        ours = (error.name or "?") in dotted
        hint = "run it from the folder of your code, or give --path" if ours else "install it"
        raise bad_input(f"cannot import {module_name}: no module {error.name}; {hint}") from None
    function = module
    for part in name.split("."):
        function = getattr(function, part, None)  # type: ignore[assignment]
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise bad_input(f"{module_name} has no function {name}; it has {', '.join(known[:12]) or 'none'}")
    return function


def put_on_path(folders: list[str]) -> None:
    """In front, as `python train.py` would have it."""
    for folder in reversed(folders):
        sys.path.insert(0, folder)
