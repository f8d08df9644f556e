"""The demo's training as the probes want it: the same model, data, schedule, step and evaluation.

Usage:
    python scripts/probes.py all --factory examples.cpu_lifecycle.factory:factory
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# neither examples/ nor rgt is installed: the bundle is used from its folder
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from probes import Training

import torch
from examples.cpu_lifecycle import train
from examples.cpu_lifecycle.settings import CONFIG, SEEDS, Config

STEPS = 200


class Stream:
    """Batches without end from where the trainer stands in its epoch."""

    def __init__(self, batches: train.Batches) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        while True:
            rows = self.batches.next()
            yield rows[:, :-1], rows[:, 1:]


def factory() -> Training:
    torch.set_num_threads(1)  # as the job does
    settings: dict[str, Any] = {**CONFIG, "steps": STEPS, "eval_interval": STEPS, "checkpoint_interval": STEPS}
    trainer = train.Trainer(Config(**settings), SEEDS)

    return Training(
        model=trainer.model,
        data=Stream(trainer.batches),
        loss=lambda logits, targets: torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()),
        optimizer=trainer.optimizer,
        step=lambda training, batch: trainer.update(*batch)[0],
        evaluate=lambda training: trainer.val_loss(),
        total_steps=STEPS,
    )
