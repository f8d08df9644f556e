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
import math
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rgt.errors import bad_input
from rgt.report import Finding

_OURS = str(Path(__file__).resolve().parent)


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
    total_steps: int | None = None  # optimizer steps of the whole run
    accumulate: int = 1  # batches per optimizer step
    clip: float | None = None  # clip_grad_norm_ of the default step
    frozen: tuple[str, ...] = ()  # name patterns of what is frozen on purpose: ("backbone.*",)
    evaluate: Callable[[Any], Any] | None = None  # evaluate(training) -> a number or numbers; the real evaluation
    pad_id: int | None = None  # target value that pads short rows; else padding_idx of an embedding

    def is_frozen(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) or name.startswith(pattern + ".") for pattern in self.frozen)


def as_training(made: Any, source: str) -> Training:
    """A Training from whatever the factory returned, or one sentence about what is wrong with it."""
    import torch

    if isinstance(made, (tuple, Mapping)):
        try:
            made = Training(**made) if isinstance(made, Mapping) else Training(*made)
        except TypeError as error:  # it names the keys that are odd or missing
            problem = str(error).partition(") ")[2] or str(error)
            raise bad_input(f"what {source} returned is not the fields of probes.Training: {problem}") from None
    if not isinstance(made, Training):
        expected = "a probes.Training, a dict, or (model, data, loss, optimizer)"
        raise bad_input(f"{source} returned {type(made).__name__}; expected {expected}")
    for name, right, problem in (
        ("model", isinstance(made.model, torch.nn.Module), "not a torch.nn.Module"),
        ("optimizer", isinstance(made.optimizer, torch.optim.Optimizer), "not a torch.optim one"),
        ("loss", callable(made.loss), "which cannot be called"),
        ("data", isinstance(made.data, Iterable), "which cannot be iterated"),
    ):
        if not right:
            raise bad_input(f"the {name} from {source} is a {type(getattr(made, name)).__name__}, {problem}")
    if made.scheduler_interval not in ("step", "epoch"):
        raise bad_input(f"scheduler_interval from {source} is {made.scheduler_interval!r}; expected step or epoch")
    if made.accumulate < 1:
        raise bad_input(f"accumulate from {source} is {made.accumulate}; expected a whole number from 1")
    return made


def find(spec: str) -> Callable[..., Any]:
    """The function behind `module:function`; a file's path may stand for the module."""
    module_name, _, name = spec.partition(":")
    if not module_name or not name:
        raise bad_input(f"--factory {spec} is not module:function, as in train:factory or examples.demo:factory")
    dotted = module_name.removesuffix(".py").replace("/", ".")
    if dotted.startswith("."):
        raise bad_input(f"{module_name} is not below a folder to import from; give that with --path")
    try:
        module = importlib.import_module(dotted)
    except ModuleNotFoundError as error:
        hint = "run it from the folder of your code, or give --path" if (error.name or "?") in dotted else "install it"
        raise bad_input(f"cannot import {module_name}: no module {error.name}; {hint}") from None
    function: Callable[..., Any] | None = getattr(module, name, None)
    if not callable(function):
        raise bad_input(f"{module_name} has no function {name}")
    return function


# -- errors of the user's code


def sentence(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def site(error: BaseException) -> str:
    """file:line of the deepest frame that is neither ours nor torch's: where the user has to look."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if not foreign(f.filename)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def foreign(filename: str) -> bool:
    """Ours, torch's or Python's own."""
    return filename.startswith((_OURS, "<")) or "site-packages" in filename or "/lib/python" in filename


# -- What is measured and answered: a probe's Result, and the Observation of the first steps that many probes read


class Unjudged(Exception):
    """Raised by a probe that cannot give a verdict; its text says why."""


@dataclass
class Result:
    """`fine`, `found` or `unjudged`; evidence is a sentence with the measured numbers; `data` is for --json."""

    probe: str
    evidence: str = ""
    unjudged: str = ""  # why there is no verdict
    findings: list[Finding] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, code: str, message: str, evidence: str = "", *, where: str = "", severity: str = "error") -> None:
        place = ": ".join(part for part in (self.probe, where[:200]) if part)
        self.findings.append(Finding(code, severity, message, where=place, evidence=evidence or None))

    def fix(self, advice: str) -> None:
        """What to do about the finding that was added last."""
        self.findings[-1].fix = advice

    @property
    def verdict(self) -> str:
        if any(finding.severity != "info" for finding in self.findings):
            return "found"
        return "unjudged" if self.unjudged else "fine"

    def as_dict(self) -> dict[str, Any]:
        row = {
            "probe": self.probe,
            "verdict": self.verdict,
            "evidence": self.unjudged or self.evidence,
            "next": next((finding.fix for finding in self.findings if finding.fix), ""),
            "seconds": round(self.seconds, 3),
            "findings": [finding.as_dict() for finding in self.findings],
            **self.data,
        }
        return {key: _for_json(value) for key, value in row.items()}


def _for_json(value: Any) -> Any:
    """JSON has no NaN and no Inf: they become words."""
    if isinstance(value, dict):
        return {str(key): _for_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_for_json(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def several(names: list[str], shown: int = 4) -> str:
    """'a, b and 7 more'"""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


@dataclass
class ParameterRecord:
    """A parameter over all observed steps."""

    name: str
    meta: Any  # a tensor of its shape and dtype, without the numbers
    group: int | None  # of the optimizer; None: not in it
    trainable: bool
    frozen: bool  # declared so
    rms: float  # of the weights before the first step
    received: int = 0  # backward passes that brought a gradient
    nonzero: int = 0  # of those, with a value other than zero
    moved: bool = False
    rounded: bool = False  # updates were made and lost to the dtype's precision
    ratios: list[float] = field(default_factory=list)  # |update| / |weight| per optimizer step
    grad_rms: list[float] = field(default_factory=list)
    stale: list[float] = field(default_factory=list)  # 1: the last step's gradient is still in the applied one

    @property
    def learns(self) -> bool:
        return self.trainable and self.group is not None


@dataclass
class StepRecord:
    """One call of the step."""

    loss: float = math.nan
    optimizer_steps: int = 0
    scheduler_steps: int = 0
    backwards: int = 0
    lrs: list[float] = field(default_factory=list)  # per group, at the optimizer step; empty without one
    wiped: bool = False  # a gradient was computed, and was gone when the optimizer stepped
    nonfinite: str = ""  # or "loss", "weight", "gradient"


@dataclass
class Observation:
    """The first steps of a training; plain data, so that it can leave the process that made them."""

    steps: list[StepRecord] = field(default_factory=list)
    parameters: list[ParameterRecord] = field(default_factory=list)
    done: bool = False
    called: set[str] = field(default_factory=set)  # modules whose forward ran
    modes: dict[str, bool] = field(default_factory=dict)  # dropout and norm modules: .training inside the step
    buffers_moved: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)  # shapes of trainable leaves that are not model parameters
    orphans: int = 0  # tensors in the optimizer, when none of them is in the model
    detached: bool = False  # the loss has no graph
    error: str = ""
    error_site: str = ""

    @property
    def lrs(self) -> list[list[float]]:
        return [step.lrs for step in self.steps if step.lrs]


class Probe(NamedTuple):
    name: str  # also of its function
    module: str  # below rgt.probes
    help: str
    observes: bool = False  # reads session.observation


# in the order of `all`: the cheap ones first, and those that explain others before what they explain
PROBES = (
    Probe("data", "data", "Ragged samples, NaN, constants, repeats, images from 0 to 255, the same order every epoch."),
    Probe("workers", "data", "Random numbers that workers or epochs repeat; streams that are not sharded."),
    Probe("loss", "losses", "Softmax before cross-entropy, logits before NLL, targets, padding, shift."),
    Probe("nan", "numerics", "Where the first NaN or Inf is born: batch, phase, module, operation.", True),
    Probe("parameters", "updates", "Not in the optimizer, not updating, frozen but moving; update ratio.", True),
    Probe("mode", "numerics", "Train and eval mode in the step, in the evaluation, and after it.", True),
    Probe("lr", "updates", "The learning rate applied in each step, and what the schedule does with it.", True),
    Probe("gradients", "fit", "Vanishing, exploding, units that never fire.", True),
    Probe("memory", "cost", "Parameters, gradients, optimizer, activations; what grows from step to step.", True),
    Probe("throughput", "cost", "Time of a step: data against compute, with a batch in memory as control.", True),
    Probe("overfit", "fit", "Can one small batch be learnt; if not, recipe or wiring (Adam as control).", True),
    Probe("determinism", "numerics", "Two runs from one seed: first step that differs, and in what."),
)
NAMES = tuple(probe.name for probe in PROBES)
