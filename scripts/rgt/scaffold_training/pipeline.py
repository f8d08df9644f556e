"""The folder of a pipeline: training_config.yaml from a plan and phases, train.sh, pretrain.py, lib/, job.yaml.

It stands alone: copied to a box that has the framework, click, numpy and pyyaml, `./train.sh` trains there.

Example:
    config = build_config("litgpt", "tiny", plan, seed=1337, device="cuda")
    write(folder, config)                     load_config(path): the same, or a sentence about what is wrong
"""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt import files, schema
from rgt.bundle import SCHEMAS, SCRIPTS, TEMPLATES
from rgt.checkpoint import index
from rgt.errors import bad_input, from_os_error
from rgt.job import description as job
from rgt.run.phases import Schedule
from rgt.run.record import slugify

if TYPE_CHECKING:
    from rgt.scaffold_training.budget import Plan, Shape

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
