"""From a budget to a plan: shape of the model, batch x accumulation x steps, memory, FLOPs, time, cost, with formulas.

Example:
    plan = propose(card("A100", None), "bf16", params=124e6)
    plan.memory(plan.micro_batch)["total"], plan.seconds, plan.cost

Memory of mixed-precision AdamW: 4 (fp32 weights) + 4 (fp32 gradients) + 8 (two moments) bytes a parameter, and 2 for
the 16-bit copy that autocast holds. Activations by Korthikanti et al. 2022 (https://arxiv.org/abs/2205.05198), with
fused attention, that is without the term quadratic in the length. FLOPs by PaLM's count
(https://arxiv.org/abs/2204.02311).
"""

from __future__ import annotations

import math
import re
from dataclasses import asdict, dataclass, replace
from typing import Any

from rgt import units
from rgt.errors import bad_input
from rgt.machine import card_sheets
from rgt.machine import gpus as gpu

MFU = 0.35  # share of the peak that a training reaches: an assumption until it is measured
TOKENS_PER_PARAMETER, DEFAULT_PARAMS = 20, 124e6
RESERVE, CONTEXT = 0.10, 1 << 30  # fragmentation; what CUDA itself and the libraries take
BATCH_TOKENS, LEAST_STEPS = 524_288, 1000
_LARGEST = 64
LEAST_PHASES = 4  # one step for each


@dataclass(frozen=True)
class Card:
    name: str
    memory: int | None = None  # bytes of one
    peak: float | None = None  # FLOP/s of one
    compute_cap: str | None = None


def card(name: str | None, memory: int | None) -> Card:
    """A card by name, or the first one of this machine, or none; a given size of its memory wins."""
    if name is None:
        here = next((each for each in gpu.read().gpus if each.error is None), None)
        if here is None:
            return Card("GPU" if memory else "CPU", memory)
        sheet = card_sheets.lookup(here.name)
        return Card(here.name, memory or here.memory_total, sheet.flops if sheet else None, here.compute_cap)
    sheet = card_sheets.lookup(name)
    if sheet is None:
        known = ", ".join(card_sheets.SHEETS)
        raise bad_input(f"no card called {name!r} is known; known are {known}; or give --gpu-mem instead")
    return Card(sheet.name, memory or sheet.gibibytes << 30, sheet.flops, sheet.compute_cap)


def precision(compute_cap: str | None, on_cpu: bool) -> tuple[str, str]:
    """The precision for a card, and why. bf16 has fp32's range and needs no loss scaling; cards have it since 8.0."""
    if on_cpu:
        return "fp32", "there is no GPU"
    if compute_cap is None:
        return "bf16", "the card's compute capability is unknown; every NVIDIA card since 2020 has bf16"
    major = int(compute_cap.partition(".")[0])
    if major >= 8:
        return "bf16", f"compute capability {compute_cap} has bf16 (8.0 and newer)"
    if major >= 7:
        return "fp16", f"compute capability {compute_cap} has fp16 tensor cores and no bf16"
    return "fp32", f"compute capability {compute_cap} has no tensor cores: fp16 saves memory there, not time"


@dataclass(frozen=True)
class Shape:
    layers: int
    width: int
    heads: int
    vocab_size: int

    @property
    def params(self) -> int:
        """12 L d^2 of the blocks and V d of the embedding, which the output layer shares."""
        return 12 * self.layers * self.width**2 + self.vocab_size * self.width


def shape(params: float, vocab_size: int) -> Shape:
    """The shape nearest to a number of parameters: width a multiple of the head size, 64 to 128 wide a layer."""
    head = 64 if params >= 5e6 else 16
    shapes = (
        Shape(max(1, round(width / ratio)), width, width // head, vocab_size)
        for width in range(head, 16384 + 1, head)
        for ratio in (128, 112, 96, 80, 64, 48, 32)
    )
    best = min(shapes, key=lambda each: abs(math.log(each.params / params)))
    if not 0.5 < best.params / params < 2:
        why = f"the embedding alone has {vocab_size * head:,}; give --vocab-size, or more --params"
        raise bad_input(f"no shape has about {_count(params)} parameters with a vocabulary of {vocab_size}: {why}")
    return best


@dataclass(frozen=True)
class Plan:
    card: Card
    shape: Shape
    precision: str
    gpus: int
    block_size: int
    price: float | None
    tokens: float
    micro_batch: int
    accumulation: int
    steps: int

    @property
    def step_tokens(self) -> int:
        return self.micro_batch * self.accumulation * self.gpus * self.block_size

    @property
    def flops(self) -> float:
        per_token = 6 * self.shape.params + 12 * self.shape.layers * self.shape.width * self.block_size
        return per_token * self.steps * self.step_tokens

    @property
    def seconds(self) -> float | None:
        return self.flops / (self.card.peak * self.gpus * MFU) if self.card.peak else None

    @property
    def cost(self) -> float | None:
        return None if self.price is None or self.seconds is None else self.seconds / 3600 * self.price * self.gpus

    def memory(self, micro_batch: int) -> dict[str, int]:
        """Bytes on one card, replicated on each (data parallel without sharding)."""
        each, half, tokens = self.shape, self.precision != "fp32", micro_batch * self.block_size
        parts = {
            "weights": each.params * (6 if half else 4),
            "gradients": each.params * 4,
            "adam": each.params * 8,
            "activations": tokens * each.layers * each.width * (34 if half else 68),
            "logits": tokens * each.vocab_size * (10 if half else 8),
            "context": CONTEXT if self.card.name != "CPU" else 0,
        }
        return {**parts, "total": round(sum(parts.values()) * (1 + RESERVE))}

    def as_dict(self) -> dict[str, Any]:
        whole = {"params": self.shape.params, "tokens": self.steps * self.step_tokens, "card": self.card.name}
        derived = {"memory": self.memory(self.micro_batch), "flops": self.flops, "seconds": self.seconds}
        return {**asdict(self), **whole, **derived, "cost": self.cost}


def propose(
    card: Card,
    precision: str,
    params: float | None = None,
    tokens: float | None = None,
    gpus: int = 1,
    block_size: int = 1024,
    vocab_size: int = 50_304,
    price: float | None = None,
) -> Plan:
    """The largest micro-batch that fits, accumulated to the batch; refused when not even one sequence fits."""
    params = params or (tokens / TOKENS_PER_PARAMETER if tokens else DEFAULT_PARAMS)
    tokens = tokens or params * TOKENS_PER_PARAMETER
    # half a million tokens a step, but at least a thousand steps: a short run needs its updates
    sequences = max(1, round(min(BATCH_TOKENS, tokens / LEAST_STEPS) / block_size / gpus))
    plan = Plan(card, shape(params, vocab_size), precision, gpus, block_size, price, tokens, 1, 1, 1)
    sizes = [1 << power for power in range(min(_LARGEST, sequences).bit_length())]
    room = card.memory or math.inf
    fitting = [size for size in sizes if plan.memory(size)["total"] <= room]
    if not fitting:
        need = {name: units.show_size(value) for name, value in plan.memory(1).items()}
        parts = ", ".join(f"{name} {size}" for name, size in need.items() if name != "total")
        raise bad_input(
            f"{_count(plan.shape.params)} parameters do not fit on {card.name} with {units.show_size(room)}: one "
            f"sequence of {block_size} needs {need['total']} ({parts}, and {RESERVE:.0%}); "
            "take fewer --params, a shorter --block-size, or a larger card"
        )
    plan = replace(plan, micro_batch=fitting[-1], accumulation=max(1, round(sequences / fitting[-1])))
    return replace(plan, steps=max(LEAST_PHASES, math.ceil(tokens / plan.step_tokens)))


def explain(plan: Plan, why_precision: str) -> list[str]:
    """The plan in lines, each number with its formula."""
    each, half = plan.shape, plan.precision != "fp32"
    sizes = {name: units.show_size(value) for name, value in plan.memory(plan.micro_batch).items()}
    pieces = f"{'4+2' if half else '4'} B x N = {sizes['weights']}; gradients 4 B x N = {sizes['gradients']}"
    activations = f"{34 if half else 68} B x {plan.micro_batch} x {plan.block_size} x L x d = {sizes['activations']}"
    room = f" of {units.show_size(plan.card.memory)}" if plan.card.memory else ""
    batch = f"{plan.micro_batch} x {plan.accumulation} accumulated x {plan.gpus} GPU(s) x {plan.block_size} tokens"
    tokens = plan.steps * plan.step_tokens
    counts = f"L {each.layers}, d {each.width}, {each.heads} heads, V {each.vocab_size}"
    lines = [
        f"model      N = 12 L d^2 + V d = {_count(each.params)}: {counts}",
        f"batch      {batch} = {plan.step_tokens:,} tokens a step",
        f"steps      {plan.steps:,} x {plan.step_tokens:,} = D = {_count(tokens)} tokens "
        f"({tokens / each.params:.3g} a parameter)",
        f"precision  {plan.precision}: {why_precision}",
        f"memory     weights {pieces}; adam 8 B x N = {sizes['adam']}; activations {activations}; logits "
        f"{sizes['logits']}; with {RESERVE:.0%} for fragmentation {sizes['total']}{room} (an estimate)",
        f"FLOPs      (6 N + 12 L d T) x D = {plan.flops:.3g}",
    ]
    if plan.seconds is None:
        return [*lines, "time       unknown: the card's peak is not known; give --gpu"]
    rate = f"{plan.gpus} x {plan.card.peak or 0:.3g} FLOP/s x {MFU:.0%} MFU"
    doubt = "the MFU is an assumption: measure tokens/s on the first steps"
    lines.append(f"time       FLOPs / ({rate}) = {units.show_duration(plan.seconds)}; {doubt}")
    if plan.cost is not None:
        lines.append(f"cost       {plan.seconds / 3600:.3g} h x {plan.gpus} x {plan.price:g} an hour = {plan.cost:.2f}")
    return lines


def _count(number: float) -> str:
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.0f}"


def count(text: str | float) -> float:
    """124M, 1.5B, 3e9."""
    match = re.fullmatch(r"([0-9]*\.?[0-9]+(?:e[0-9]+)?|[0-9]+\.)\s*([KMBT]?)", str(text).strip(), re.I)
    number = float(match[1]) * {"": 1, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}[match[2].upper()] if match else 0.0
    if not 1 <= number < 1e16:
        raise bad_input(f"{str(text)[:40]!r} is not a count; write it like 124M, 1.5B or 3e9")
    return number
