"""What a training is told: config and seeds, from run.json or from a file of their own."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from rgt import errors, files
from rgt.run import record as rundir

SEEDS = {"data": 7, "train": 1337}
CONFIG = {
    "batch_size": 32,
    "block_size": 32,
    "n_layer": 2,
    "n_head": 8,
    "n_embd": 64,
    "dropout": 0.05,
    "learning_rate": 6e-3,
    "min_lr": 2e-4,
    "warmup_steps": 20,
    "weight_decay": 0.1,
    "grad_clip": 1.0,
    "text_bytes": 100_000,
}


@dataclass(frozen=True)
class Config:
    """The science. No defaults: the record alone explains the run."""

    steps: int
    batch_size: int
    block_size: int
    n_layer: int
    n_head: int
    n_embd: int
    dropout: float
    learning_rate: float
    min_lr: float
    warmup_steps: int
    weight_decay: float
    grad_clip: float
    eval_interval: int
    checkpoint_interval: int
    text_bytes: int


def read(run: rundir.Run, path: Path | None) -> tuple[Config, dict[str, int]]:
    """Of `path` when one is given: launch's run.json holds the job description, which names that file."""
    where = path or run.run_json
    record = files.read_json(path) if path else run.record()
    if not isinstance(record, dict) or not all(isinstance(record.get(key), dict) for key in ("config", "seeds")):
        raise errors.bad_input(f'{where} is no training\'s settings; expected {{"config": {{...}}, "seeds": {{...}}}}')
    seeds: dict[str, int] = record["seeds"]
    if not {"data", "train"} <= set(seeds):
        raise errors.bad_input(f"{where} has the seeds {seeds}; expected one for 'data' and one for 'train'")
    return _checked(record["config"], where), seeds


def _checked(given: dict[str, Any], where: Path) -> Config:
    known = {field.name: field.type for field in fields(Config)}
    if set(given) != set(known):
        odd = ", ".join(sorted(set(given) ^ set(known)))
        raise errors.bad_input(f"the config in {where} has these settings too few or too many: {odd}")
    for name, value in given.items():
        whole = known[name] == "int"
        if type(value) not in ({int} if whole else {int, float}) or value < whole:  # counts start at 1, rates at 0
            expected = "a whole number from 1" if whole else "a number from 0"
            raise errors.bad_input(f"the config in {where} has {name} = {value!r}; expected {expected}")
    return Config(**given)
