"""All probes in the order of `all`: the cheap ones first, and those that explain others before what they explain."""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from probing.results import Result
    from probing.session import Session


class Probe(NamedTuple):
    name: str
    home: str  # module:function below probing
    help: str


PROBES = (
    Probe("collate", "samples:collate", "Do samples stack into batches; if not, which field is ragged."),
    Probe("data", "samples:data", "NaN, constants, repeats and empty loaders in the batches themselves."),
    Probe("images", "samples:images", "Scale (0-255, divided twice), channels last, BGR for RGB."),
    Probe("workers", "loaders:workers", "Random numbers that workers or epochs repeat; streams that are not sharded."),
    Probe("order", "loaders:order", "The same order in every epoch, or sorted by label."),
    Probe("loss", "losses:loss", "Softmax before cross-entropy, logits before NLL, targets, padding, shift."),
    Probe("nan", "numerics:nan", "Where the first NaN or Inf is born: batch, phase, module, operation."),
    Probe("parameters", "parameters:parameters", "Not in the optimizer, not updating, frozen but moving."),
    Probe("mode", "modes:mode", "Train and eval mode in the step, in the evaluation, and after it."),
    Probe("lr", "rates:lr", "The learning rate applied in each step against the one that was meant."),
    Probe("gradients", "gradients:gradients", "Vanishing, exploding, dead or saturated units, units that are copies."),
    Probe("ratios", "parameters:ratios", "Update-to-weight ratios: too large, or too small to matter."),
    Probe("memory", "memory:memory", "Parameters, gradients, optimizer, activations; what grows from step to step."),
    Probe("throughput", "speed:throughput", "Time of a step: data against compute, with a batch in memory as control."),
    Probe("overfit", "fit:overfit", "Can one small batch be learnt; if not, recipe or wiring (Adam as control)."),
    Probe("determinism", "repeat:determinism", "Two runs from one seed: first step that differs, and in what."),
    Probe("resume", "repeat:resume", "Train N against N/2, save, load, N/2: what the checkpoint does not carry."),
)  # fmt: skip
NAMES = tuple(probe.name for probe in PROBES)


def run(session: Session, names: tuple[str, ...] = NAMES) -> Iterator[Result]:
    """Each result as soon as it is there. A probe that raises is a result too: it must not take the others along."""
    from probing.results import Result
    from probing.session import sentence, site

    for probe in PROBES:
        if probe.name not in names:
            continue
        module, _, function = probe.home.partition(":")
        start = time.perf_counter()
        session.start()
        try:
            result: Result = getattr(importlib.import_module(f"probing.{module}"), function)(session)
        except Exception as error:  # the user's code may raise anywhere
            result = Result(probe.name, unjudged=f"{sentence(error)} ({site(error) or 'in the probe'})")
        result.seconds = time.perf_counter() - start
        yield result
