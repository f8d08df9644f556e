"""Which cards a job may take, and why not now."""

from __future__ import annotations

import os
from typing import Any

from rgt import units
from rgt.errors import bad_input, lacking
from rgt.machine import gpus as gpu

HELD_BY_NOBODY = 1 << 30  # bytes in use without a visible process that an idle driver does not explain


def choose(gpus: int) -> list[gpu.Gpu]:
    """The cards a job may be given: all that CUDA_VISIBLE_DEVICES leaves; at least what it needs."""
    reading = gpu.read()
    if not reading.gpus:
        why = f" ({reading.problem})" if reading.problem else ""
        raise lacking(f"no GPU found here{why}; to queue jobs without one, say how many may run at once: --slots 1")
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or None
    cards = gpu.visible(reading.gpus, visible)
    if gpus > len(cards):
        why = f"CUDA_VISIBLE_DEVICES is {visible!r}" if visible else "nvidia-smi -L lists them"
        raise bad_input(f"--gpus {gpus}: only {len(cards)} can be seen here ({why})")
    return cards


def lock_name(card: gpu.Gpu) -> str:
    """The UUID if there is one: after a reboot the same index may be another card."""
    return card.uuid or f"gpu-{card.index}"


def by_lock() -> tuple[dict[str, gpu.Gpu], str]:
    """The cards as they are now, by the name of their lock, and what to say of one that is missing."""
    reading = gpu.read()
    sick = "; ".join(f"GPU {card.index}: {card.error}" for card in reading.gpus if card.error)
    return {lock_name(card): card for card in reading.gpus}, reading.problem or sick or "it is not listed any more"


def problem(card: gpu.Gpu, asked: dict[str, Any]) -> str | None:
    """Why this card must not be used now; None when it is free."""
    name = f"GPU {card.index}"
    if card.error:
        return f"{name}: {card.error}"
    foreign = [process.pid for process in card.processes if process.type == "C"]
    if foreign:
        return f"{name} is used by pids {foreign[:5]}, not started through this gate"
    if asked["min_free_mem"]:
        free = card.memory_free
        enough = free is not None and free >= asked["min_free_mem"]
        return None if enough else f"{name} has {'unknown' if free is None else units.show_size(free)} free"
    unexplained = (card.memory_used or 0) - sum(process.used_memory or 0 for process in card.processes)
    if unexplained > HELD_BY_NOBODY:
        size = units.show_size(unexplained)
        return f"{name} has {size} in use by no visible process (another container's, or a dead one's)"
    return None
