"""Ninety offline tracker records: cut, altered, copied, resumed and killed ones, and summaries that flatter."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import Any

from trials.case import Box, Case
from worlds import parts, tracker

ARCHS = ("vit-s", "vit-b", "convnext-t", "swin-t", "mixer-s")
SEEDS, STEPS, EVERY = 16, 480, 7
HALF = 230
# kinds by (number of the arch, seed); all others end well
KILLED = {(0, 3), (1, 7), (2, 2), (3, 11), (4, 5), (4, 14)}
FAILED = {(0, 9), (2, 12), (3, 4)}
CUT = {(1, 2), (3, 8)}
ALTERED = {(0, 12), (2, 6), (4, 9)}
RESUMED = {(0, 6), (1, 13), (3, 1), (4, 2)}  # the second part ends well
LOST = {(2, 9)}  # resumed, and killed again
COPIED = {(0, 1), (1, 5), (1, 10), (2, 15), (3, 13), (4, 0)}


@dataclass(frozen=True)
class Run:
    arch: int
    seed: int

    @property
    def key(self) -> tuple[int, int]:
        return self.arch, self.seed

    @property
    def id(self) -> str:
        return f"{random.Random(self.arch * 100 + self.seed).getrandbits(40):010x}"[:8]

    @property
    def config(self) -> dict[str, Any]:
        return {"arch": ARCHS[self.arch], "seed": self.seed, "optim": {"name": "adamw", "lr": 1e-3}, "batch": 256}

    @property
    def rows(self) -> list[dict[str, Any]]:
        rng = random.Random(7 + self.arch * 1000 + self.seed)
        top = 0.78 + 0.012 * self.arch + rng.gauss(0, 0.004)
        rows = []
        for step in range(STEPS):
            row = {
                "_step": step,
                "_timestamp": tracker.START + step * 2.0,
                "train/loss": 2.3 * 0.985**step + rng.random() / 9,
            }
            if step % EVERY == 0:  # the last rows have none
                row["val/acc"] = top - 0.4 * 0.985**step - rng.random() * 0.01
            rows.append(row)
        return rows


def _last(rows: list[dict[str, Any]]) -> float:
    return float(next(row["val/acc"] for row in reversed(rows) if "val/acc" in row))


@cache
def _truth() -> dict[str, tuple[int, float]]:
    values = defaultdict(list)
    for run in _runs():
        if run.key not in KILLED | FAILED | CUT | ALTERED | LOST:
            values[ARCHS[run.arch]].append(_last(run.rows))
    return {arch: (len(some), sum(some) / len(some)) for arch, some in values.items()}


def _runs() -> list[Run]:
    return [Run(arch, seed) for arch in range(len(ARCHS)) for seed in range(SEEDS)]


def _alter(data: bytes) -> bytes:
    """One digit of one number in the middle, as a bad sector does: it still decodes."""
    at = data.index(b"0.", len(data) * 2 // 3) + 5
    return data[:at] + bytes([(data[at] - 48 + 3) % 10 + 48 if 48 <= data[at] < 58 else data[at] ^ 1]) + data[at + 1 :]


def make(box: Box) -> None:
    order = _runs()
    random.Random(90).shuffle(order)
    for number, run in enumerate(order):
        rows = run.rows
        best = {"val/acc": max(row["val/acc"] for row in rows if "val/acc" in row) + 0.01, "_step": STEPS - 1}
        ended = {"summary": best, "exit": 1 if run.key in FAILED else 0}
        if run.key in RESUMED | LOST:
            half = tracker.records(run.id, run.config, rows[:HALF], number)
            _write(box, number, run, tracker.frame(half), None)
            rest = tracker.records(run.id, run.config, rows[HALF:], number + 200, resumed_at=HALF,
                                   **({} if run.key in LOST else ended))  # fmt: skip
            _write(box, number + 200, run, tracker.frame(rest), best)
            continue
        data = tracker.frame(tracker.records(run.id, run.config, rows, number, **({} if run.key in KILLED else ended)))
        data = data[: len(data) - 9000] if run.key in CUT else _alter(data) if run.key in ALTERED else data
        _write(box, number, run, data, None if run.key in KILLED else best)
        if run.key in COPIED:
            copy = f"{random.Random(10_000 + number).getrandbits(40):010x}"[:8]
            again = tracker.frame(tracker.records(copy, run.config, rows, number + 300, **ended))
            _write(box, number + 300, run, again, best, copy)


def _write(box: Box, number: int, run: Run, data: bytes, summary: Any, run_id: str = "") -> None:
    stamp = f"202610{4 + number // 96:02d}_{number % 96 // 4:02d}{number % 4 * 15:02d}07"
    beside = {"config.yaml": {"arch": {"value": ARCHS[run.arch]}, "seed": {"value": run.seed}}}
    tracker.write(
        box.work / "wandb",
        stamp,
        run_id or run.id,
        data,
        {**beside, **({"wandb-summary.json": summary} if summary else {})},
    )


def verify(box: Box) -> list[str]:
    table = box.read("table.json")
    problems = [] if set(table) == set(ARCHS) else [f"the architectures are {sorted(table)}"]
    for arch, (n, mean) in _truth().items():
        if table[arch]["n"] != n:
            problems.append(f"n of {arch} is wrong: {table[arch]['n']}")
        if abs(float(table[arch]["mean"]) - mean) > 6e-5:
            problems.append(f"the mean of {arch} is wrong: {table[arch]['mean']}")
    return problems


def reference(box: Box) -> None:
    listed = box.script("wandb_forensics.py", "list", "wandb")
    groups = box.script("wandb_forensics.py", "dupes", "wandb")["groups"]
    twice = {path for group in groups if group["kind"] == "copy" for path in group["runs"][1:]}
    damaged = {finding["path"] for finding in listed["findings"] if finding["code"] == "truncated"}
    good = [r for r in listed["runs"] if r["state"] == "finished" and r["where"] not in twice | damaged]
    reader, values = parts.of_tests("tracker.offline"), defaultdict(list)  # `curve` without a process per run
    for run in good:
        (tracked,) = (source := reader.Offline(box.work / run["where"])).runs()
        values[run["config"]["arch"]].append(_last(list(source.history(tracked))))
    box.write(
        "table.json", {a: {"n": len(some), "mean": round(sum(some) / len(some), 4)} for a, some in values.items()}
    )


def naive(box: Box) -> None:
    """What lies beside the records: configs and summaries."""
    import json

    values = defaultdict(list)
    for path in sorted((box.work / "wandb").glob("*/files/wandb-summary.json")):
        arch = json.loads((path.parent / "config.yaml").read_text())["arch"]["value"]
        values[arch].append(json.loads(path.read_text())["val/acc"])
    box.write(
        "table.json", {a: {"n": len(some), "mean": round(sum(some) / len(some), 4)} for a, some in values.items()}
    )


CASE = Case(
    route="what did the tracker really record? copies, crashes, resumed runs",
    reads=(),
    minutes=6,
    commands=12,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="Per architecture the number of independent, clean, undamaged runs and the mean of what they logged last.",
)
