"""training_config.yaml: made from a plan and phases, read back and checked before anything is trained.

Example:
    config = build("litgpt", "tiny", plan, phases, seed=1337)
    files.write_text(path, dump(config))          load(path): the same, or a sentence about what is wrong
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from pipelines.budget import Plan, Shape, count
from pipelines.schedule import Schedule
from rgt import job, schema
from rgt.errors import bad_input

NAME = "training_config.yaml"
FRAMEWORKS = ("nanogpt", "litgpt", "hf-trainer")
WARMUP = 0.02  # of the first phase
DEFAULT_LR = {"policy": "cosine", "start": 1.0, "end": 0.1}
# Shares of the tokens and of the peak learning rate: one falling line over four phases, to zero at the end.
FOUR: tuple[tuple[str, float, dict[str, float], dict[str, Any]], ...] = (
    ("broad", 0.70, {"web": 0.9, "curated": 0.1}, {"policy": "cosine", "start": 1.0, "end": 0.3}),
    ("curated", 0.15, {"web": 0.3, "curated": 0.7}, {"policy": "cosine", "start": 0.3, "end": 0.15}),
    ("domain", 0.10, {"curated": 0.4, "domain": 0.6}, {"policy": "cosine", "start": 0.15, "end": 0.1}),
    ("anneal", 0.05, {"curated": 0.6, "domain": 0.4}, {"policy": "linear", "start": 0.1, "end": 0.0}),
)


def default_phases(vocab_size: int) -> list[dict[str, Any]]:
    """Four phases. The first must beat guessing by far, the others must not lose what was learned."""
    learned = round(0.75 * math.log(vocab_size), 2)
    return [
        {"name": name, "share": share, "mix": mix, "lr": lr,
         "criterion": {"metric": "loss", "split": "val", "at_most": "previous" if number else learned}}
        for number, (name, share, mix, lr) in enumerate(FOUR)
    ]  # fmt: skip


def load_phases(path: Path) -> list[dict[str, Any]]:
    phases: list[dict[str, Any]] = job.load_yaml(path, "phases")["phases"]
    return phases


def resolve(phases: list[dict[str, Any]], plan: Plan, framework: str, where: str) -> list[dict[str, Any]]:
    """Shares and tokens as steps; what nanoGPT cannot express is refused."""
    names = [phase["name"] for phase in phases]
    if len(set(names)) != len(names):
        raise bad_input(f"{where} has two phases of one name; names are how a phase is found again")
    found = []
    for number, phase in enumerate(phases):
        given = [key for key in ("steps", "tokens", "share") if key in phase]
        if len(given) != 1:
            raise bad_input(f"phase {phase['name']} of {where} needs exactly one of steps, tokens, share; it has "
                            f"{' and '.join(given) or 'none'}")  # fmt: skip
        steps = _steps(phase, given[0], plan)
        lr: dict[str, Any] = {**(phase.get("lr") or DEFAULT_LR)}
        lr.setdefault("end", lr["start"])
        if number == 0:
            lr.setdefault("warmup_steps", max(1, round(WARMUP * steps)))
        if framework == "nanogpt":
            lr = _for_nanogpt(lr, phase["name"], first=number == 0)
        kept: dict[str, Any] = {key: phase[key] for key in ("criterion", "on_miss") if key in phase}
        found.append({"name": phase["name"], "steps": steps, "mix": phase["mix"], "lr": lr, **kept})
    return found


def _steps(phase: dict[str, Any], key: str, plan: Plan) -> int:
    if key == "steps":
        return int(phase["steps"])
    tokens = count(phase["tokens"]) if key == "tokens" else phase["share"] * plan.tokens
    return max(1, round(tokens / plan.step_tokens))


def _for_nanogpt(lr: dict[str, Any], name: str, first: bool) -> dict[str, Any]:
    if lr["policy"] == "linear":
        return {**lr, "policy": "cosine"}  # said by `new`
    if lr.get("warmup_steps") and not first:
        raise bad_input(f"phase {name} has a warm-up; nanoGPT warms up from step 0 only")
    return lr


def build(
    framework: str, name: str, plan: Plan, phases: list[dict[str, Any]], seed: int, device: str
) -> dict[str, Any]:
    total = sum(phase["steps"] for phase in phases)
    every = max(1, min(1000, total // 20))
    if framework == "nanogpt":  # it saves where it validates, and nowhere else: a phase must end there
        phases = [{**phase, "steps": -(-phase["steps"] // every) * every} for phase in phases]
    return {
        "framework": framework,
        "name": name,
        "seed": seed,
        "device": device,
        "precision": plan.wish.precision,
        "devices": plan.wish.gpus,
        "compile": device == "cuda",
        "model": model(framework, plan.shape, plan.wish.block_size),
        "data": {"folder": "data", "block_size": plan.wish.block_size, "workers": 0 if device == "cpu" else 2},
        "batch": {"micro_batch": plan.micro_batch, "accumulation": plan.accumulation},
        "optimizer": {"learning_rate": peak_lr(plan.shape.params), "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95,
                      "grad_clip": 1.0},
        "phases": phases,
        "checkpoints": {"every_steps": every, "keep": 3},
        "eval": {"every_steps": every, "samples": 64},
        "log_every_steps": max(1, min(10, every)),
    }  # fmt: skip


def peak_lr(params: float) -> float:
    """GPT-3's table (https://arxiv.org/abs/2005.14165) as a line: 6e-4 at 125M, 1e-4 at 13B; 1e-3 at most."""
    return float(f"{min(1e-3, 6e-4 * (params / 125e6) ** -0.39):.1e}")


def model(framework: str, shape: Shape, block_size: int) -> dict[str, Any]:
    """The shape in the framework's own words."""
    if framework == "nanogpt":
        return {"n_layer": shape.layers, "n_head": shape.heads, "n_embd": shape.width, "vocab_size": shape.vocab_size,
                "bias": False, "dropout": 0.0}  # fmt: skip
    inner = max(16, round(8 * shape.width / 3 / 16) * 16)  # a gated MLP has three matrices: 8/3 d makes them 8 d^2
    if framework == "litgpt":
        return {
            "name": f"llama-{shape.layers}x{shape.width}", "n_layer": shape.layers, "n_head": shape.heads,
            "n_embd": shape.width, "vocab_size": shape.vocab_size, "padded_vocab_size": shape.vocab_size,
            "block_size": block_size, "rotary_percentage": 1.0, "parallel_residual": False, "bias": False,
            "norm_class_name": "RMSNorm", "mlp_class_name": "LLaMAMLP", "intermediate_size": inner,
        }  # fmt: skip
    return {
        "model_type": "llama", "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.heads, "hidden_size": shape.width, "intermediate_size": inner,
        "vocab_size": shape.vocab_size, "max_position_embeddings": block_size, "tie_word_embeddings": True,
    }  # fmt: skip


def dump(config: dict[str, Any]) -> str:
    import yaml

    head = (
        "# Written by scaffold_training.py and yours to edit.\n"
        "# learning_rate is the peak; start and end of a phase's lr are shares of it.\n"
    )
    text: str = yaml.safe_dump(config, sort_keys=False, default_flow_style=None, width=110)
    return head + text


def load(path: Path) -> dict[str, Any]:
    config = job.load_yaml(path, "training_config")
    missing = [key for key in schema.load("training_config")["required"] if key not in config]
    if missing:  # on a box without jsonschema
        raise bad_input(f"{path} has no {missing[0]}")
    if config["framework"] == "nanogpt":
        _check_nanogpt(config, path)
    return config


def _check_nanogpt(config: dict[str, Any], path: Path) -> None:
    every = config["eval"]["every_steps"]
    if config["checkpoints"]["every_steps"] != every:
        raise bad_input(f"{path}: nanoGPT saves where it validates; checkpoints.every_steps must be eval.every_steps")
    for phase in Schedule.of(config).phases:
        if phase.end % every:
            raise bad_input(f"{path}: phase {phase.name} ends at step {phase.end}, but nanoGPT saves every {every} "
                            "steps; make its steps a multiple")  # fmt: skip
