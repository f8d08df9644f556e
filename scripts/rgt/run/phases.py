"""The phases of a run on one line of steps: which phase a step is in, its learning rate, and how each phase ended.

Example:
    schedule = Schedule.of(config)
    schedule.at(1200).name            "broad"
    schedule.lr(1200)                 of the optimizer step that follows 1,200 finished ones
    phase_rows(events)                each phase with its verdict, from events.jsonl alone
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rgt.run.record import Run

_BOUNDS = {"at_most": "at most", "at_least": "at least"}


@dataclass(frozen=True)
class Phase:
    name: str
    start: int  # optimizer steps finished before it
    steps: int
    mix: dict[str, float]
    lr: dict[str, Any]
    criterion: dict[str, Any] | None

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

    def verdict(self, run: Run) -> dict[str, Any]:
        """met | missed | unjudged, with the number and the bound it was held against."""
        wanted = self.criterion
        if wanted is None:
            return {"verdict": "unjudged", "why": "no criterion"}
        split, metric = wanted.get("split", "val"), wanted["metric"]
        word = "at_most" if "at_most" in wanted else "at_least"
        curve = run.curve(metric, split)
        value, threshold = curve.get(self.end), wanted[word]
        if threshold == "previous":
            threshold = curve.get(self.start) if self.start else None
        facts = {"metric": metric, "split": split, "bound": word}
        if value is None or threshold is None:
            lacking = f"{split} {metric} at step {self.end if value is None else self.start}"
            return {**facts, "verdict": "unjudged", "why": f"there is no {lacking}"}
        met = math.isfinite(value) and (value <= threshold if word == "at_most" else value >= threshold)
        shown = value if math.isfinite(value) else str(value)
        return {**facts, "verdict": "met" if met else "missed", "value": shown, "threshold": threshold}


@dataclass(frozen=True)
class Schedule:
    phases: tuple[Phase, ...]
    peak: float

    @classmethod
    def of(cls, config: dict[str, Any]) -> Schedule:
        phases: list[Phase] = []
        for entry in config["phases"]:
            start = phases[-1].end if phases else 0
            data = (entry["steps"], entry["mix"], entry["lr"], entry.get("criterion"))
            phases.append(Phase(entry["name"], start, *data))
        return cls(tuple(phases), config["optimizer"]["learning_rate"])

    @property
    def total(self) -> int:
        return self.phases[-1].end

    @property
    def ends(self) -> frozenset[int]:
        return frozenset(phase.end for phase in self.phases)

    def at(self, step: int) -> Phase:
        """The phase of the optimizer step that comes after `step` finished ones; the last one when all are done."""
        return next((phase for phase in self.phases if step < phase.end), self.phases[-1])

    def lr(self, step: int) -> float:
        return self.peak * self.at(step).share(step)

    def plan(self) -> list[dict[str, Any]]:
        """What an event says about the phases, so that a reader of the run needs no other file."""
        return [{"name": phase.name, "start": phase.start, "end": phase.end} for phase in self.phases]


def verdicts(events: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {str(row.get("phase")): row for row in events if row.get("event") == "phase"}


def sentence(verdict: dict[str, Any]) -> str:
    """One verdict in words: missed: val loss 9.5, wanted at most 5.4."""
    if verdict["verdict"] == "unjudged":
        return f"not judged, {verdict['why']}"
    value = verdict["value"]
    seen = f"{value:.4g}" if isinstance(value, float) else str(value)
    wanted = f"{_BOUNDS[verdict['bound']]} {verdict['threshold']:.4g}"
    return f"{verdict['verdict']}: {verdict['split']} {verdict['metric']} {seen}, wanted {wanted}"


def phase_rows(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """name, start, end, result and verdict of each phase of the newest plan; [] for a run without phases."""
    plan: list[dict[str, Any]] = next((row["phases"] for row in reversed(events) if row.get("phases")), [])
    known, step = verdicts(events), None
    for row in events:
        if row.get("event") in ("checkpoint", "launched", "resumed") and isinstance(row.get("step"), int):
            step = row["step"]
    found = []
    for phase in plan:
        verdict, result = known.get(phase["name"]), "not reached"
        if verdict:
            result = sentence(verdict)
        elif step is not None and phase["start"] <= step < phase["end"]:
            result = f"under way: {step - phase['start']} of {phase['end'] - phase['start']} steps saved"
        found.append({**phase, "result": result, "verdict": verdict["verdict"] if verdict else None})
    return found
