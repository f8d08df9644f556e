"""Two months of events: the mean running time, the usual cost of a save, and the interval that follows (Daly)."""

from __future__ import annotations

import json
import random
import statistics

from trials.case import Box, Case


def _events() -> list[dict[str, float | str]]:
    rng = random.Random(6)
    time, events = 1_756_700_000.0, list[dict[str, float | str]]()
    events.append({"time": time, "event": "launched"})
    for _ in range(140):
        up = rng.expovariate(1 / 5400)
        saved = 1800.0
        while saved < up:
            cost = 1450.0 if 70 <= len(events) <= 72 else round(rng.uniform(17, 23), 1)
            events.append({"time": round(time + saved, 1), "event": "checkpoint", "blocked_s": cost})
            saved += 1800
        time += up
        events.append({"time": round(time, 1), "event": "preempted"})
        time += rng.uniform(600, 5000)
        events.append({"time": round(time, 1), "event": "resumed"})
    return events


def _facts() -> tuple[float, float, float]:
    """Mean running seconds, median cost of a save, mean time down."""
    up, down, started = [], [], None
    ended = 0.0
    costs = []
    for event in _events():
        if event["event"] == "checkpoint":
            costs.append(float(event["blocked_s"]))
        elif event["event"] == "preempted" and started is not None:
            ended = float(event["time"])
            up.append(ended - started)
        else:
            if event["event"] == "resumed":
                down.append(float(event["time"]) - ended)
            started = float(event["time"])
    return statistics.fmean(up), statistics.median(costs), statistics.fmean(down)


def make(box: Box) -> None:
    box.write("events.jsonl", "".join(json.dumps(event) + "\n" for event in _events()))


def verify(box: Box) -> list[str]:
    answer, (mtbf, cost, _) = box.read("cadence.json"), _facts()
    young = (2 * cost * mtbf) ** 0.5
    problems = []
    if abs(float(answer["mtbf_minutes"]) * 60 / mtbf - 1) > 0.03:
        problems.append("mtbf_minutes is wrong")
    if abs(float(answer["save_seconds"]) - cost) > 1.5:
        problems.append("save_seconds is wrong")
    if abs(float(answer["interval_seconds"]) / young - 1) > 0.12:  # Young's and Daly's formulas differ by a few percent
        problems.append("interval_seconds is wrong")
    return problems


def reference(box: Box) -> None:
    mtbf, cost, down = _facts()
    report = box.script(
        "checkpoints.py",
        "cadence",
        "--save-cost",
        f"{cost:.1f}s",
        "--mtbf",
        f"{mtbf:.0f}s",
        "--restart",
        f"{down:.0f}s",
    )
    box.write("cadence.json", {"mtbf_minutes": mtbf / 60, "save_seconds": cost, "interval_seconds": report["interval"]})


def naive(box: Box) -> None:
    """Wall time by the number of preemptions, divided by the nodes once more, and the mean cost."""
    events = _events()
    wall = (float(events[-1]["time"]) - float(events[0]["time"])) / 140
    cost = statistics.fmean(float(e["blocked_s"]) for e in events if e["event"] == "checkpoint")
    mtbf = wall / 6
    box.write(
        "cadence.json", {"mtbf_minutes": mtbf / 60, "save_seconds": cost, "interval_seconds": (2 * cost * mtbf) ** 0.5}
    )


CASE = Case(
    route="spot, preemption, how often to save",
    reads=("references/run-remote/spot-resilience.md",),
    minutes=5,
    commands=10,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="Mean running time of the job, median blocking time, and the interval of Young or Daly.",
)
