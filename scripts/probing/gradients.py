"""Does the gradient arrive at the first layers, and are the units alive and different from each other?"""

from __future__ import annotations

import statistics
from typing import Any

from probing.observe import Observation
from probing.parameters import crashed
from probing.results import Result, several
from probing.session import Session, tensors
from probing.state import preserved

VANISH = 1e-6  # first quarter's gradient against the last's; a healthy deep net keeps within 1e-3
EXPLODE = 1e4  # gradient RMS against weight RMS: one plain step of lr 1e-3 would move weights by ten times themselves
DEAD = 0.5  # share of units that never fire; some always are
SATURATED = 0.9


def gradients(session: Session) -> Result:
    """Vanishing or exploding gradients by depth, dead or saturated units, units that are copies of each other."""
    seen = session.observation()
    result = Result("gradients")
    if crashed(result, seen):
        return result
    weights = [r for r in seen.parameters if r.tensor.dim() >= 2 and r.grad_rms and r.trainable]
    sizes = {r.name: statistics.median(r.grad_rms) for r in weights}
    if not sizes:
        result.unjudged = "no weight got a gradient; see the parameters probe"
        return result
    _depth(result, sizes)
    _explosion(result, seen, sizes)
    _symmetry(result, session, seen)
    _units(result, session)
    smallest, largest = min(sizes.values()), max(sizes.values())
    result.evidence = f"gradient RMS {smallest:.1e} to {largest:.1e} over {len(sizes)} weights"
    result.data["gradient_rms"] = sizes
    return result


def _depth(result: Result, sizes: dict[str, float]) -> None:
    """By the order of registration, which is the order of depth in nearly every model; embeddings are in front."""
    names, values = list(sizes), list(sizes.values())
    quarter = len(values) // 4
    if quarter < 1 or not max(values):
        return
    first, last = statistics.median(values[:quarter]), statistics.median(values[-quarter:])
    if first < VANISH * last:
        result.add("gradient", "error", f"the gradient vanishes towards the input: {first:.1e} against {last:.1e}",
                   where=several(names[:quarter]), evidence=f"median RMS of the first and last quarter of "
                   f"{len(values)} weights", fix="residual connections, normalisation, ReLU-like units or "
                   "their initialisation instead of stacked sigmoids")  # fmt: skip


def _explosion(result: Result, seen: Observation, sizes: dict[str, float]) -> None:
    relative = {}
    for record in seen.parameters:
        size = float(record.tensor.detach().double().square().mean().sqrt()) if record.name in sizes else 0.0
        if size > 0:
            relative[record.name] = sizes[record.name] / size
    worst = max(relative, key=relative.__getitem__, default="")
    if worst and relative[worst] > EXPLODE:
        result.add("gradient", "error", f"the gradient explodes: {sizes[worst]:.1e}, {relative[worst]:.0e} times the "
                   "weight itself", where=worst, evidence=f"limit {EXPLODE:.0e}",
                   fix="scale the initialisation and the inputs; clip_grad_norm_ hides it")  # fmt: skip


def _symmetry(result: Result, session: Session, seen: Observation) -> None:
    names = [n for n in seen.rows_equal if not session.training.is_frozen(n)]
    moved = {r.name for r in seen.parameters if r.trainable and r.group is not None}
    names = [n for n in names if n in moved]
    if names and any(step.optimizer_steps for step in seen.steps):
        result.add("symmetry", "error", "all units of a layer are copies of each other, also after training steps",
                   where=several(names), evidence="every row of the weight is equal",
                   fix="initialise with random numbers; a constant start never separates them")  # fmt: skip


def _units(result: Result, session: Session) -> None:
    """Activations in train mode over a few batches: which units never fire, which sit at their end stop."""
    import torch

    live: dict[str, Any] = {}
    stuck: dict[str, list[float]] = {}

    def note(name: str, module: Any) -> Any:
        def hook(_: Any, __: Any, output: Any) -> None:
            for _name, tensor in tensors(output):
                flat = _by_unit(tensor.detach())
                if isinstance(module, (torch.nn.Sigmoid, torch.nn.Tanh, torch.nn.Hardtanh)):
                    low = 0.0 if isinstance(module, torch.nn.Sigmoid) else -1.0
                    near = (flat - low < 0.01 * (1 - low)) | (1.0 - flat < 0.01 * (1 - low))
                    stuck.setdefault(name, []).append(float(near.double().mean()))
                else:
                    fired = (flat != 0).any(0)
                    live[name] = fired | live[name] if name in live and live[name].shape == fired.shape else fired

        return module.register_forward_hook(hook)

    kinds = (torch.nn.ReLU, torch.nn.ReLU6, torch.nn.Sigmoid, torch.nn.Tanh, torch.nn.Hardtanh)
    with preserved(session.training), torch.no_grad():
        found = [(n, m) for n, m in session.training.model.named_modules() if isinstance(m, kinds)]
        handles = [note(name, module) for name, module in found]
        try:
            for batch in session.cycle(min(4, session.steps)):
                session.forward(batch)
        finally:
            for handle in handles:
                handle.remove()
    _report_units(result, live, stuck)


def _by_unit(tensor: Any) -> Any:
    """Samples x units: channels are dimension 1 of an image, the last one otherwise."""
    if tensor.dim() == 4:
        tensor = tensor.movedim(1, -1)
    return tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() > 1 else tensor.reshape(1, -1)


def _report_units(result: Result, live: dict[str, Any], stuck: dict[str, list[float]]) -> None:
    dead = {name: 1 - float(fired.double().mean()) for name, fired in live.items() if fired.numel() >= 4}
    worst = max(dead, key=dead.__getitem__, default="")
    if worst and dead[worst] > DEAD:
        result.add(
            "dead-units",
            "error",
            f"{dead[worst]:.0%} of the units never fire",
            where=worst,
            evidence="output 0 for every sample of the batches tried: no gradient reaches them again",
            fix="lower learning rate, look at the bias and at the scale of the inputs, or LeakyReLU",
        )
    ends = {name: statistics.mean(values) for name, values in stuck.items()}
    worst = max(ends, key=ends.__getitem__, default="")
    if worst and ends[worst] > SATURATED:
        result.add("dead-units", "error", f"{ends[worst]:.0%} of the activations are saturated", where=worst,
                   evidence="within 1 % of the function's end: its slope is almost 0 there",
                   fix="normalise the inputs, shrink the weights")  # fmt: skip
    result.data["dead_share"] = dead
