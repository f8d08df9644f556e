"""The phases of a run on one line of steps: which phase a step is in, which learning rate it has.

Example:
    schedule = Schedule.of(config)
    schedule.at(1200).name            "broad"
    schedule.lr(1200)                 of the optimizer step that follows 1,200 finished ones
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Phase:
    name: str
    start: int  # optimizer steps finished before it
    steps: int
    mix: dict[str, float]
    lr: dict[str, Any]
    criterion: dict[str, Any] | None
    on_miss: str

    @property
    def end(self) -> int:
        return self.start + self.steps

    def share(self, step: int) -> float:
        """The learning rate as a share of the peak. A pure function of the step: nothing to save, nothing to lose."""
        begin, end = float(self.lr["start"]), float(self.lr["end"])
        warmup, done = int(self.lr.get("warmup_steps", 0)), step - self.start
        if done < warmup:
            return begin * (done + 1) / (warmup + 1)
        ratio = min(1.0, (done - warmup) / max(1, self.steps - warmup))
        if self.lr["policy"] == "cosine":
            return end + (begin - end) * (1 + math.cos(math.pi * ratio)) / 2
        return begin if self.lr["policy"] == "constant" else begin + (end - begin) * ratio


@dataclass(frozen=True)
class Schedule:
    phases: tuple[Phase, ...]
    peak: float

    @classmethod
    def of(cls, config: dict[str, Any]) -> Schedule:
        phases, start = [], 0
        for entry in config["phases"]:
            phases.append(Phase(entry["name"], start, entry["steps"], entry["mix"], entry["lr"],
                                entry.get("criterion"), entry.get("on_miss", "continue")))  # fmt: skip
            start += entry["steps"]
        return cls(tuple(phases), config["optimizer"]["learning_rate"])

    @property
    def total(self) -> int:
        return self.phases[-1].end

    def at(self, step: int) -> Phase:
        """The phase of the optimizer step that comes after `step` finished ones; the last one when all are done."""
        return next((phase for phase in self.phases if step < phase.end), self.phases[-1])

    def ending(self, step: int) -> Phase | None:
        return next((phase for phase in self.phases if phase.end == step), None)

    def lr(self, step: int) -> float:
        return self.peak * self.at(step).share(step)
