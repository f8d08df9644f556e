"""When to look next at a run of N epochs: often after a start, rarely in a long steady run, tighter after trouble."""

from __future__ import annotations

import math
from dataclasses import dataclass

LONG = 1000  # epochs from which a run is looked at every STEADY epochs
STEADY = 100
STARTUP = (5, 20)  # epochs between looks after a start or a resume, by length of the run
STARTUP_LOOKS, UNSTABLE_LOOKS = 3, 5  # looks at the tighter interval before the next wider one
SHORTEST, LONGEST = 60.0, 86400.0  # seconds: a look costs something, and a day may lose a day of GPU money


@dataclass
class Plan:
    phase: str  # startup | steady | unstable | over
    interval: int
    next_epoch: int
    then: list[int]
    why: str


def plan(epochs: int, epoch: int, started: int, unstable: int | None, epoch_time: float | None) -> Plan:
    """The next look after `epoch`, for a run that (re)started at epoch `started` and shook at epoch `unstable`."""
    if epoch >= epochs:
        return Plan("over", 0, epochs, [], "the last epoch is done: verify the result instead of watching it")
    looks: list[int] = []
    phase, interval, why = _phase(epochs, epoch, started, unstable, epoch_time)
    now = epoch
    while now < epochs and len(looks) < 6:
        _, step, _ = _phase(epochs, now, started, unstable, epoch_time)
        now = min(epochs, _next(now, step, started, unstable))
        looks.append(now)
    return Plan(phase, interval, looks[0], looks[1:], why)


def _phase(epochs: int, epoch: int, started: int, unstable: int | None, time: float | None) -> tuple[str, int, str]:
    startup = min(max(STARTUP[0], min(STARTUP[1], epochs // 50)), max(1, epochs // 4))
    tight = _bounded(max(1, startup // 4), time)
    startup = _bounded(startup, time)
    if unstable is not None and unstable <= epoch < unstable + UNSTABLE_LOOKS * tight:
        return (
            "unstable",
            tight,
            f"{UNSTABLE_LOOKS} looks every {tight} epochs after the instability at epoch {unstable}",
        )
    if started <= epoch < started + STARTUP_LOOKS * startup:
        return "startup", startup, f"{STARTUP_LOOKS} looks every {startup} epochs after the start at epoch {started}"
    steady = _bounded(STEADY if epochs >= LONG else max(startup, epochs // 10), time)
    return "steady", steady, f"steady: every {steady} epochs"


def _bounded(interval: int, time: float | None) -> int:
    if not time:
        return interval
    return max(1, min(max(interval, math.ceil(SHORTEST / time)), int(LONGEST / time)))


def _next(epoch: int, step: int, started: int, unstable: int | None) -> int:
    """Counted from what caused the tight looks; steady looks fall on round numbers."""
    base = max((mark for mark in (started, unstable) if mark is not None and mark <= epoch), default=0)
    return base + ((epoch - base) // step + 1) * step if step < STEADY else (epoch // step + 1) * step
