"""The card decides: scaffold_training asks a real NVML for compute capability and memory."""

from __future__ import annotations

import json
import sys

import pytest

from ..pipeline_box import SCRIPT
from .nvml import GIB, Gpu, Nvml
from .support import run

CARDS = [
    (Gpu(name="Tesla T4", compute_capability=(7, 5), memory_total=16 * GIB), "fp16", True),
    (Gpu(name="NVIDIA H100 80GB HBM3", compute_capability=(9, 0), memory_total=80 * GIB), "bf16", True),
    (Gpu(name="NVIDIA GeForce GTX 1080", compute_capability=(6, 1), memory_total=8 * GIB), "fp32", False),
]


@pytest.mark.parametrize(("card", "precision", "peak_known"), CARDS)
def test_the_card_of_this_machine(nvml: Nvml, card: Gpu, precision: str, peak_known: bool) -> None:
    nvml.set([card])
    words = [sys.executable, str(SCRIPT), "new", "never", "--framework", "litgpt", "--dry-run", "--json"]
    plan = json.loads(run(words, env=nvml.env, timeout=60).stdout)["plan"]
    assert (plan["card"], plan["precision"], plan["device"]) == (card.name, precision, "cuda")
    assert plan["memory"]["total"] <= card.memory_total
    assert (plan["seconds"] is not None) == peak_known
