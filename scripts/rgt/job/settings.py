"""The settings of a YAML, JSON or Python config, flat; what kind of path each key names, and by which other words.

Example:
    read(Path("train.yaml"))           [Setting("trainer.output_dir", "out"), ...]
    flatten({"a": {"b": 1}})           [Setting("a.b", 1)]
    plain_names({"num_epochs": 3})     {"epochs": Setting("num_epochs", 3)}
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import bad_input, lacking

_CONFIG_BYTES = 10 << 20
# by the last word of a key; the first that fits
_KINDS = {
    "output": r"""(?:output|out|save|log|logging|work|run|results?|default_root|tensorboard)_(?:dir|path|root|folder)
                  |(?:checkpoint|ckpt)s?_(?:dir|root|folder)|output""",
    "resume": r"""resume(?:_from(?:_checkpoint)?|_path|_ckpt|_checkpoint)?|(?:init|load|restore|start)_from
                  |(?:init|initial|pretrained|load)_(?:checkpoint|ckpt|weights|path)(?:_dir|_path)?
                  |(?:ckpt|checkpoint|weights)(?:_path|_file)?|pretrained""",
    "data": r"""(?:.*_)?(?:data|datasets?|corpus)(?:_(?:dir|path|root|files?|folder))?
                |(?:train|val|valid|validation|test|eval)_(?:dir|path|root|files?|folder|data|set)""",
}
_PATTERNS = {kind: re.compile(pattern, re.X) for kind, pattern in _KINDS.items()}
# Our word for a setting, and how trainers spell the same thing. DeepSpeed's train_batch_size is of all processes, a
# learning-rate scheduler's patience is another patience: what means two things is not here.
SPELLINGS = {
    "epochs": "num_epochs max_epochs n_epochs nb_epochs num_train_epochs train_epochs total_epochs training_epochs",
    "max_steps": "num_steps n_steps total_steps train_steps max_train_steps num_train_steps training_steps max_iters"
    " num_iters total_iters num_iterations max_iterations iterations",
    "early_stopping_patience": "early_stop_patience es_patience early_stopping_rounds patience",
    "save_every": "save_interval save_freq save_frequency save_every_n_epochs save_every_epochs save_epochs"
    " checkpoint_every checkpoint_interval checkpoint_freq checkpoint_frequency ckpt_every ckpt_interval ckpt_freq",
    "validate_every": "val_every eval_every val_interval eval_interval validation_interval validate_interval val_freq"
    " eval_freq validation_frequency check_val_every_n_epoch validation_every",
    "gradient_checkpointing": "use_gradient_checkpointing activation_checkpointing use_activation_checkpointing"
    " grad_checkpointing grad_checkpoint checkpoint_activations enable_gradient_checkpointing",
    "mixed_precision": "use_mixed_precision amp use_amp enable_amp bf16 use_bf16 fp16 use_fp16 autocast amp_dtype",
    "world_size": "num_processes n_processes nproc total_processes",
    "batch_size": "per_device_train_batch_size micro_batch_size train_micro_batch_size_per_gpu batch_size_per_gpu"
    " batch_size_per_device per_gpu_batch_size per_gpu_train_batch_size device_batch_size",
    "gradient_accumulation_steps": "accumulate_grad_batches grad_accum_steps grad_accumulation_steps grad_accum"
    " gradient_accumulation accumulation_steps accum_steps grad_acc_steps accum_iter",
    "resume_from": "resume resume_from_checkpoint resume_path resume_ckpt resume_checkpoint resume_from_path",
}
_OURS = {word: ours for ours, words in SPELLINGS.items() for word in (ours, *words.split())}
_ALIKE = 0.87  # of 1, for "did you mean"
_SEED = re.compile(r"(.*_)?(seed|seeds|rng_seed|seed_everything)")


@dataclass
class Setting:
    key: str
    value: Any

    @property
    def name(self) -> str:
        return self.key.rpartition(".")[2].lower().replace("-", "_")

    @property
    def kind(self) -> str:
        return next((kind for kind, pattern in _PATTERNS.items() if pattern.fullmatch(self.name)), "")


def read(path: Path) -> list[Setting]:
    """Every scalar of a YAML, JSON or Python config with its dotted key."""
    if not path.is_file() or path.stat().st_size > _CONFIG_BYTES:
        raise bad_input(f"{path} is not a config: expected a YAML, JSON or Python file of at most 10 MiB")
    text, data = files.read_text(path), dict[str, Any]()
    try:
        if path.suffix == ".json":
            data = json.loads(text)
        elif path.suffix == ".py":  # nanoGPT's configs: assignments of plain values. They are parsed, never run
            for node in ast.parse(text).body:
                if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                    with contextlib.suppress(ValueError, TypeError, MemoryError):
                        data[node.targets[0].id] = ast.literal_eval(node.value)
        else:
            from rgt import yaml_text

            data = yaml_text.parse(text)
        wandb = isinstance(data, dict) and {name: one for name, one in data.items() if name != "wandb_version"}
        if wandb and all(isinstance(one, dict) and "value" in one for one in wandb.values()):
            data = {name: one["value"] for name, one in wandb.items()}
        settings = flatten(data) if isinstance(data, dict) else []
    except ImportError:
        raise lacking("reading YAML needs pyyaml: pip install pyyaml, or give the config as JSON") from None
    except RecursionError:
        raise bad_input(f"{path} is nested too deep to be a config") from None
    except (SyntaxError, ValueError) as error:
        language = {".json": "JSON", ".py": "Python"}.get(path.suffix, "YAML")
        raise bad_input(f"{path} is not {language}: {' '.join(str(error).split())[:200]}") from None
    if not settings:
        raise bad_input(f"{path} has no settings; expected keys such as output_dir and resume_from")
    return settings


def flatten(data: Any) -> list[Setting]:
    return list(_flat(data, "", set()))


def _flat(data: Any, key: str, seen: set[int]) -> Iterator[Setting]:
    """A list of scalars is one value, other lists give keys such as layers.0.width.

    An alias of YAML is the same object again: visited once, so no file explodes.
    """
    nested = isinstance(data, list) and any(isinstance(item, (dict, list)) for item in data)
    if not isinstance(data, dict) and not nested:
        yield Setting(key, data)
    elif id(data) not in seen:
        seen.add(id(data))
        for name, inner in data.items() if isinstance(data, dict) else enumerate(data):
            yield from _flat(inner, f"{key}.{name}" if key else str(name), seen)


def plain_names(config: Any) -> dict[str, Setting]:
    """The settings that SPELLINGS knows, by our words, at any depth. Two different values of one thing are refused."""
    known: dict[str, Setting] = {}
    for setting in sorted(flatten(config), key=lambda setting: setting.key.count(".")):
        ours = "" if "sched" in setting.key else _OURS.get(setting.name)  # a scheduler has its own patience and steps
        if not ours or setting.value in (None, False, ""):
            continue
        first = known.setdefault(ours, setting)
        level = first.key.count(".") == setting.key.count(".")
        if first.value != setting.value and level and not isinstance(setting.value, (bool, str)):  # bf16 beside amp
            both = f"{first.key}: {first.value} and {setting.key}: {setting.value}"
            raise bad_input(f"{both} mean the same and differ; leave one of them out")
    return known


def misspelt(config: Any) -> dict[str, str]:
    """Keys that are nearly a known spelling of something that the config does not say otherwise: with what is meant."""
    known, near = plain_names(config), {}
    for setting in flatten(config):
        alike = difflib.get_close_matches(setting.name, _OURS, 1, _ALIKE) if setting.name not in _OURS else []
        if alike and _OURS[alike[0]] not in known:
            near[setting.key] = alike[0]
    return near


def is_seed(key: str) -> bool:
    return bool(_SEED.fullmatch(key.rpartition(".")[2].lstrip("-+").replace("-", "_").lower()))


def seeds(config: Any, words: list[str]) -> dict[str, int]:
    """The seeds that settings name, and those of a command line: --seed 3, --seed=3, trainer.seed=3."""
    given: list[tuple[str, Any]] = [(one.key, one.value) for one in flatten(config)]
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        given.append((name, value if equals else following if word.startswith("-") else ""))
    return {
        key.lstrip("-+"): int(value)
        for key, value in given
        if is_seed(key) and not isinstance(value, bool) and re.fullmatch(r"\d{1,18}", str(value))
    }
