"""A pipeline: the plan from a budget, training_config.yaml with its phases, and the folder that trains by itself.

Example:
    plan = propose(card("A100", None), "bf16", params=124e6)
    plan.memory(plan.micro_batch)["total"], plan.seconds, plan.cost
    config = build_config("litgpt", "tiny", plan, seed=1337, device="cuda")
    write(folder, config)                     load_config(path): the same, or a sentence about what is wrong

Memory of mixed-precision AdamW: 4 (fp32 weights) + 4 (fp32 gradients) + 8 (two moments) bytes a parameter, and 2 for
the 16-bit copy that autocast holds. Activations by Korthikanti et al. 2022 (https://arxiv.org/abs/2205.05198), with
fused attention, that is without the term quadratic in the length. FLOPs by PaLM's count
(https://arxiv.org/abs/2204.02311).

The folder (train.sh, pretrain.py, lib/, job.yaml) stands alone: copied to a box that has the framework, click, numpy
and pyyaml, `./train.sh` trains there.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rgt import files, schema, units
from rgt.bundle import SCHEMAS, SCRIPTS, TEMPLATES
from rgt.checkpoint import index
from rgt.errors import bad_input, from_os_error
from rgt.job import description as job
from rgt.machine import card_sheets
from rgt.machine import gpus as gpu
from rgt.run.phases import Schedule
from rgt.run.record import slugify

MFU = 0.35  # share of the peak that a training reaches: an assumption until it is measured
TOKENS_PER_PARAMETER, DEFAULT_PARAMS = 20, 124e6
RESERVE, CONTEXT = 0.10, 1 << 30  # fragmentation; what CUDA itself and the libraries take
BATCH_TOKENS, LEAST_STEPS = 524_288, 1000
LARGEST_MICRO_BATCH = 64
CONFIG = "training_config.yaml"
ENTRY = {"nanogpt": "nanogpt_pretrain.py", "litgpt": "litgpt_pretrain.py", "hf-trainer": "hf_pretrain.py"}
GRACE = "5m"
WARMUP = 0.02  # of the first phase
# Shares of the tokens, and of the peak learning rate: one falling line over four phases, to zero at the end.
FOUR: tuple[tuple[str, float, dict[str, float], tuple[float, float]], ...] = (
    ("broad", 0.70, {"web": 0.9, "curated": 0.1}, (1.0, 0.3)),
    ("curated", 0.15, {"web": 0.3, "curated": 0.7}, (0.3, 0.15)),
    ("domain", 0.10, {"curated": 0.4, "domain": 0.6}, (0.15, 0.1)),
    ("anneal", 0.05, {"curated": 0.6, "domain": 0.4}, (0.1, 0.0)),
)
_HEAD = """\
# Written by rgt scaffold_training and yours to edit.
# learning_rate is the peak; start and end of a phase's lr are shares of it.
"""


# -- the plan


@dataclass(frozen=True)
class Card:
    name: str
    memory: int | None = None  # bytes of one
    peak: float | None = None  # FLOP/s of one
    compute_cap: str | None = None


def card(name: str | None, memory: int | None) -> Card:
    """A card by name, or the first one of this machine, or none; a given size of its memory wins."""
    here = None if name else next((each for each in gpu.read().gpus if each.error is None), None)
    if name is None and here is None:
        return Card("GPU" if memory else "CPU", memory)
    sheet = card_sheets.lookup(here.name if here else name or "")
    if here:
        return Card(here.name, memory or here.memory_total, sheet.flops if sheet else None, here.compute_cap)
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
    micro_batch: int = 1
    accumulation: int = 1
    steps: int = 1

    @property
    def step_tokens(self) -> int:
        return self.micro_batch * self.accumulation * self.gpus * self.block_size

    @property
    def tokens(self) -> int:
        return self.steps * self.step_tokens

    @property
    def flops(self) -> float:
        return (6 * self.shape.params + 12 * self.shape.layers * self.shape.width * self.block_size) * self.tokens

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
        derived = {name: getattr(self, name) for name in ("tokens", "flops", "seconds", "cost")}
        whole = {"params": self.shape.params, "card": self.card.name, "memory": self.memory(self.micro_batch)}
        return {**asdict(self), **derived, **whole}

    def explain(self, why_precision: str) -> list[str]:
        """The plan in lines, each number with its formula."""
        each, half = self.shape, self.precision != "fp32"
        sizes = {name: units.show_size(value) for name, value in self.memory(self.micro_batch).items()}
        pieces = f"{'4+2' if half else '4'} B x N = {sizes['weights']}; gradients 4 B x N = {sizes['gradients']}"
        per_token = f"{34 if half else 68} B x {self.micro_batch} x {self.block_size} x L x d"
        activations = f"{per_token} = {sizes['activations']}"
        room = f" of {units.show_size(self.card.memory)}" if self.card.memory else ""
        batch = f"{self.micro_batch} x {self.accumulation} accumulated x {self.gpus} GPU(s) x {self.block_size} tokens"
        counts = f"L {each.layers}, d {each.width}, {each.heads} heads, V {each.vocab_size}"
        lines = [
            f"model      N = 12 L d^2 + V d = {_count(each.params)}: {counts}",
            f"batch      {batch} = {self.step_tokens:,} tokens a step",
            f"steps      {self.steps:,} x {self.step_tokens:,} = D = {_count(self.tokens)} tokens "
            f"({self.tokens / each.params:.3g} a parameter)",
            f"precision  {self.precision}: {why_precision}",
            f"memory     weights {pieces}; adam 8 B x N = {sizes['adam']}; activations {activations}; logits "
            f"{sizes['logits']}; with {RESERVE:.0%} for fragmentation {sizes['total']}{room} (an estimate)",
            f"FLOPs      (6 N + 12 L d T) x D = {self.flops:.3g}",
        ]
        if self.seconds is None:
            return [*lines, "time       unknown: the card's peak is not known; give --gpu"]
        rate = f"{self.gpus} x {self.card.peak or 0:.3g} FLOP/s x {MFU:.0%} MFU"
        doubt = "the MFU is an assumption: measure tokens/s on the first steps"
        lines.append(f"time       FLOPs / ({rate}) = {units.show_duration(self.seconds)}; {doubt}")
        if self.cost is not None:
            hours = f"{self.seconds / 3600:.3g} h"
            lines.append(f"cost       {hours} x {self.gpus} x {self.price:g} an hour = {self.cost:.2f}")
        return lines


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
    plan = Plan(card, shape(params, vocab_size), precision, gpus, block_size, price)
    sizes = [1 << power for power in range(min(LARGEST_MICRO_BATCH, sequences).bit_length())]
    fitting = [size for size in sizes if plan.memory(size)["total"] <= (card.memory or math.inf)]
    if not fitting:
        need = {name: units.show_size(value) for name, value in plan.memory(1).items()}
        parts = ", ".join(f"{name} {size}" for name, size in need.items() if name != "total")
        room = units.show_size(card.memory or 0)
        raise bad_input(
            f"{_count(plan.shape.params)} parameters do not fit on {card.name} with {room}: one sequence of "
            f"{block_size} needs {need['total']} ({parts}, and {RESERVE:.0%}); "
            "take fewer --params, a shorter --block-size, or a larger card"
        )
    plan = replace(plan, micro_batch=fitting[-1], accumulation=max(1, round(sequences / fitting[-1])))
    return replace(plan, steps=max(len(FOUR), math.ceil(tokens / plan.step_tokens)))


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


# -- training_config.yaml


def default_phases(plan: Plan) -> list[dict[str, Any]]:
    """Four phases. The first must beat guessing by far, the others must not lose what was learned."""
    learned = round(0.75 * math.log(plan.shape.vocab_size), 2)
    phases: list[dict[str, Any]] = []
    shares, done = 0.0, 0
    for name, share, mix, (start, end) in FOUR:
        shares += share
        steps = max(1, round(shares * plan.steps) - done)  # by their ends, so that together they are the plan's steps
        done += steps
        lr: dict[str, Any] = {"policy": "cosine", "start": start, "end": end}
        if not phases:
            lr["warmup_steps"] = max(1, round(WARMUP * steps))
        criterion = {"metric": "loss", "split": "val", "at_most": "previous" if phases else learned}
        phases.append({"name": name, "steps": steps, "mix": mix, "lr": lr, "criterion": criterion})
    return phases


def build_config(framework: str, name: str, plan: Plan, seed: int, device: str) -> dict[str, Any]:
    phases = default_phases(plan)
    every = max(1, min(1000, sum(phase["steps"] for phase in phases) // 20))
    # GPT-3's table (https://arxiv.org/abs/2005.14165) as a line: 6e-4 at 125M, 1e-4 at 13B; 1e-3 at most
    peak = float(f"{min(1e-3, 6e-4 * (plan.shape.params / 125e6) ** -0.39):.1e}")
    told = {"framework": framework, "name": name, "seed": seed, "device": device, "precision": plan.precision}
    return {
        **told,
        "devices": plan.gpus,
        "compile": device == "cuda",
        "model": _model(framework, plan.shape, plan.block_size),
        "data": {"folder": "data", "block_size": plan.block_size, "workers": 0 if device == "cpu" else 2},
        "batch": {"micro_batch": plan.micro_batch, "accumulation": plan.accumulation},
        "optimizer": {"learning_rate": peak, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "grad_clip": 1.0},
        "phases": phases,
        "checkpoints": {"every_steps": every, "keep": 3, "keep_every": 5 * every},
        "eval": {"every_steps": every, "samples": 64},
        "log_every_steps": max(1, min(10, every)),
    }


def _model(framework: str, shape: Shape, block_size: int) -> dict[str, Any]:
    """The shape in the framework's own words."""
    inner = max(16, round(8 * shape.width / 3 / 16) * 16)  # a gated MLP has three matrices: 8/3 d makes them 8 d^2
    if framework == "hf-trainer":
        llama: dict[str, Any] = {"model_type": "llama", "num_hidden_layers": shape.layers, "hidden_size": shape.width}
        llama |= dict.fromkeys(("num_attention_heads", "num_key_value_heads"), shape.heads)
        llama["intermediate_size"] = inner
        llama |= {"vocab_size": shape.vocab_size, "max_position_embeddings": block_size, "tie_word_embeddings": True}
        return llama
    common = {"n_layer": shape.layers, "n_head": shape.heads, "n_embd": shape.width, "vocab_size": shape.vocab_size}
    if framework == "nanogpt":
        return {**common, "bias": False, "dropout": 0.0}
    sizes = {"padded_vocab_size": shape.vocab_size, "block_size": block_size, "rotary_percentage": 1.0}
    parts = {"parallel_residual": False, "bias": False, "norm_class_name": "RMSNorm", "mlp_class_name": "LLaMAMLP"}
    name = f"llama-{shape.layers}x{shape.width}"
    return {"name": name, **common, **sizes, **parts, "intermediate_size": inner}


def as_yaml(config: dict[str, Any]) -> str:
    import yaml

    text: str = yaml.safe_dump(config, sort_keys=False, default_flow_style=None, width=110)
    return _HEAD + text


def load_config(path: Path) -> dict[str, Any]:
    config = job.load_yaml(path, "training_config")
    missing = [key for key in schema.load("training_config")["required"] if key not in config]
    if missing:  # on a box without jsonschema
        raise bad_input(f"{path} has no {missing[0]}")
    phases = Schedule.of(config).phases
    if len({phase.name for phase in phases}) != len(phases):
        raise bad_input(f"{path} has two phases of one name; names are how a phase is found again")
    every = config["eval"]["every_steps"]
    if config["framework"] == "nanogpt" and config["checkpoints"]["every_steps"] != every:
        raise bad_input(f"{path}: nanoGPT saves where it validates; checkpoints.every_steps must be eval.every_steps")
    for phase in phases if config["framework"] == "nanogpt" else ():
        if phase.lr["policy"] == "linear" or (phase.start and phase.lr.get("warmup_steps")):
            raise bad_input(f"{path}: phase {phase.name}: nanoGPT has no linear decay, and warms up from step 0 only")
    return config


# -- the folder


def write(folder: Path, config: dict[str, Any]) -> list[Path]:
    """All or nothing: a folder that holds anything is refused, and a failure leaves no half."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise bad_input(f"{folder} exists already and is not empty; a new pipeline needs a new folder")
    final = folder.absolute()
    beside = final.with_name(f".{final.name}.{os.getpid()}.tmp")
    try:
        beside.mkdir(parents=True)
        schema.check(config, "training_config", CONFIG)
        files.write_text(beside / CONFIG, as_yaml(config))
        ranks = 1 if config["framework"] == "nanogpt" else config["devices"]  # its train.py starts its own processes
        text = (TEMPLATES / "train.sh").read_text(encoding="utf-8").replace("@RANKS@", str(ranks))
        files.write_text(beside / "train.sh", text)
        (beside / "train.sh").chmod(0o755)
        shutil.copyfile(TEMPLATES / ENTRY[config["framework"]], beside / "pretrain.py")
        shutil.copytree(SCHEMAS, beside / "lib" / "schemas")
        shutil.copytree(SCRIPTS / "rgt", beside / "lib" / "rgt", ignore=shutil.ignore_patterns("__pycache__"))
        index.write(beside, [])
        slug, cuda = slugify(config["name"]), config["device"] == "cuda"
        # train.sh starts the processes of several cards itself
        spec: dict[str, Any] = {"name": slug, "command": ["bash", "train.sh"], "grace": GRACE, "seed": config["seed"]}
        spec |= {"gpus_per_node": config["devices"] if cuda else 0, "workdir": str(final)}
        schema.check(spec, "job", "job.yaml")
        files.write_text(beside / "job.yaml", json.dumps(spec, indent=2) + "\n")  # JSON is YAML
        if folder.exists():  # the folder itself stays: its caller may stand in it
            for path in list(beside.iterdir()):
                path.rename(folder / path.name)
        else:
            beside.rename(folder)
    except OSError as error:
        raise from_os_error(error, f"write {folder}") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return sorted(path for path in folder.iterdir() if path.name != "lib")
