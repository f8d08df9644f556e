"""Two arms that differ in one thing, and every way in which a comparison of them can be wrong."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rgt.run import record as rundir

SEEDS = (0, 1, 2, 3, 4)
HASH = hashlib.sha256(b"the eval set").hexdigest()
NEW = (0.91234, 0.91871, 0.91543, 0.91412, 0.91705)
OLD = (0.89123, 0.89765, 0.89432, 0.89377, 0.89541)


@dataclass
class Spec:
    """One run directory; the defaults of two arms differ in lr only."""

    value: float
    seed: int = 0
    config: dict[str, Any] = field(default_factory=dict)
    commit: str = "a" * 40
    diff: str | None = None
    packages: dict[str, str] = field(default_factory=lambda: {"torch": "2.13.0"})
    devices: tuple[str, ...] = ("NVIDIA A100",)
    metric: str = "accuracy"
    split: str = "test"
    n: int = 10_000
    direction: str = "up"
    eval_set: str | None = HASH
    step: int = 1000
    curves: dict[str, dict[int, Any]] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    run_id: str | None = None
    dirty: bool = False
    flags: tuple[str, ...] = ()


def write(root: Path, spec: Spec, number: int) -> Path:
    run_id = spec.run_id or f"20261116-0830{number:02d}-cell-{hashlib.sha1(f'{root}{number}'.encode()).hexdigest()[:6]}"
    folder = root / run_id
    folder.mkdir(parents=True)
    git: dict[str, Any] = {"commit": spec.commit, "branch": "main", "dirty": spec.dirty, "untracked": []}
    if spec.diff:
        git |= {"dirty": True, "diff": spec.diff, "diff_sha256": hashlib.sha256(spec.diff.encode()).hexdigest()}
    record: dict[str, Any] = {"run_id": run_id, "created": f"2026-11-16T08:30:{number:02d}Z", "git": git}
    record["command"] = ["python", "train.py", "--run", f"/box{number}/runs/{run_id}", *spec.flags]
    record |= {"config": spec.config, "config_sha256": rundir.config_hash(spec.config), "seeds": {"model": spec.seed}}
    record |= {"cwd": f"/box{number}", "backend": "local", "job": {}}
    record |= {"host": {"name": f"host{number}", "platform": "Linux", "cpus": 8}}
    record["env"] = {"python": "3.11.2", "executable": f"/venv{number}/python", "packages": spec.packages}
    record["devices"] = [{"index": i, "name": name} for i, name in enumerate(spec.devices)]
    (folder / "run.json").write_text(json.dumps(record))
    metric = {"name": spec.metric} | {key: getattr(spec, key) for key in ("value", "split", "n", "direction", "step")}
    metric |= {"rule": "reported"} | ({"eval_set_sha256": spec.eval_set} if spec.eval_set else {})
    (folder / "results.json").write_text(json.dumps({"run_id": run_id, "metrics": [metric], **spec.extra}))
    rows = [
        {"step": step, "time": 1.0 + step, "split": split, spec.metric: value}
        for split, curve in spec.curves.items()
        for step, value in curve.items()
    ]
    if rows:
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def arm(values: tuple[float, ...], lr: float, **changes: Any) -> list[Spec]:
    config = {"lr": lr, "model": {"depth": 12}, "max_steps": 1000, "out_dir": f"out/{lr}"} | changes.pop("config", {})
    return [Spec(value, seed, {**config, "seed": seed}, **changes) for seed, value in zip(SEEDS, values, strict=False)]


def curve(values: list[float]) -> dict[int, float]:
    return {100 * (index + 1): value for index, value in enumerate(values)}


def peaked(value: float) -> list[float]:
    return [value - below for below in (0.3, 0.2, 0.1, 0.05, 0.0, 0.02, 0.03, 0.02, 0.03, 0.04)]


def rising(value: float) -> list[float]:
    return [value - 0.3 * 0.5**k for k in range(9)] + [value]


def with_curves(specs: list[Spec], step: int, **make: Callable[[float], list[float]]) -> list[Spec]:
    for spec in specs:
        spec.curves = {split: curve(shape(spec.value)) for split, shape in make.items()}
        spec.step = step
    return specs


Arms = tuple[list[Spec], list[Spec]]
Make = Callable[[], Arms]


def tied(values: tuple[float, ...], other: tuple[float, ...] = OLD, **changes: Any) -> Make:
    """Both arms are changed, and still differ in lr."""
    return lambda: (arm(values, 3e-4, **changes), arm(other, 1e-3, **changes))


def first(**changes: Any) -> Make:
    """The first arm is changed."""
    return lambda: (arm(NEW, 3e-4, **changes), arm(OLD, 1e-3))


def each(key: str, a: Any, b: Any) -> Make:
    return lambda: (arm(NEW, 3e-4, **{key: a}), arm(OLD, 1e-3, **{key: b}))


def one_run(arm_number: int, number: int, **changes: Any) -> Make:
    """One run of one arm is changed."""

    def make() -> Arms:
        arms = first()()
        old = arms[arm_number][number]
        arms[arm_number][number] = replace(old, **{**changes, "config": {**old.config, **changes.get("config", {})}})
        return arms

    return make


def curved(a: dict[str, Any], b: dict[str, Any], **changes: Any) -> Make:
    return lambda: (
        with_curves(arm(NEW, 3e-4, **changes), **a),
        with_curves(arm(OLD, 1e-3, **changes), **b),
    )


def drifted() -> Arms:
    a, b = curved({"step": 1000, "test": rising}, {"step": 1000, "test": rising})()
    a[0].curves["test"][1000] = 0.85
    return a, b


DIFF = "diff --git a/loss.py b/loss.py\n--- a/loss.py\n+++ b/loss.py\n@@ -1 +1 @@\n-x\n+y\n"
second_change = first(config={"model": {"depth": 24}})
flag_change = each("config", {"args": ["--warmup", "100", "--bf16"]}, {"args": ["--warmup=0", "--bf16"]})
more_tuning = each("extra", {"tuning_trials": 64}, {"tuning_trials": 1})
other_data = each("extra", {"train_set_sha256": "1" * 64}, {"train_set_sha256": "2" * 64})
below = lambda value: rising(value - 0.01)  # noqa: E731
best_on_test = curved({"step": 500, "test": peaked, "val": below}, {"step": 1000, "test": rising, "val": below})
different_rule = curved(
    {"step": 500, "val": peaked}, {"step": 1000, "val": lambda v: [v + 0.04, *rising(v)[1:]]}, split="val"
)
# verdict -> name: how it is planted, the code of its finding, words of the message
BY_VERDICT: dict[str, dict[str, tuple[Make, str, str]]] = {
    "effect": {
        "eval set unknown": (first(eval_set=None), "unrecorded", "hash"),
        "another GPU": (first(devices=("H100",)), "hardware", "H100"),
        "different n": (lambda: (arm(NEW, 3e-4), arm(OLD[:4], 1e-3)), "seeds", "arm A has 5 runs, arm B 4"),
        "a seed twice": (one_run(1, 4, seed=3, config={"seed": 3}), "seeds", "more than once"),
    },
    "undecided": {
        "second config change": (second_change, "confound", "model.depth: 24 vs 12"),
        "command line flag": (flag_change, "confound", "--warmup: 100 vs 0"),
        "test-selected checkpoint": (best_on_test, "selection", "selected on the test set"),
        "stopped on test": (
            tied(NEW, config={"early_stopping": {"monitor": "test_loss"}}),
            "selection",
            "monitor",
        ),
        "different checkpoint rule": (different_rule, "selection", "A best-val, B last"),
        "peak-picking": (different_rule, "peak", "arm A reports the peak of its val curve"),
        "more steps": (first(step=2000), "budget", "budget.steps: 2000 vs 1000"),
        "more tokens": (each("extra", {"tokens": 2e9}, {"tokens": 1e9}), "budget", "budget.tokens: 2e+09 vs 1e+09"),
        "more tuning": (more_tuning, "budget", "budget.tuning_trials: 64 vs 1"),
        "another commit": (first(commit="b" * 40), "confound", "code.commit"),
        "dirty diff": (first(diff=DIFF), "confound", "loss.py"),
        "another torch": (first(packages={"torch": "2.12.1"}), "confound", "env.torch: 2.12.1 vs 2.13.0"),
        "training data": (other_data, "confound", "data.train_set_sha256"),
        "data path": (each("config", {"data_dir": "/v2"}, {"data_dir": "/v1"}), "confound", "data_dir: /v2 vs /v1"),
        "more cards": (first(devices=("A",) * 8), "confound", "cards: 8 vs 1"),
        "code without a diff": (tied(NEW, dirty=True), "unrecorded", "uncommitted code that was not recorded"),
        "command contradicts config": (tied(NEW, flags=("--lr", "1e-3")), "unrecorded", "its command says --lr 0.001"),
        "mixed arm": (one_run(0, 2, config={"lr": 1e-4}), "mixed", "arm A mixes runs with lr = 0.0001/0.0003"),
    },
    "bug-suspect": {
        "eval set differs": (first(eval_set="0" * 64), "eval-set", "differ"),
        "eval set size": (first(n=9999), "eval-set", "9999, 10000"),
        "direction flipped": (tied(NEW, direction="down"), "direction", "results.json says down"),
        "NaN": (one_run(0, 3, value=math.nan), "nan", "diverged run"),
        "reported is not logged": (drifted, "drift", "its own log says 0.85"),
        "constant over seeds": (tied((0.91234,) * 5), "constant", "in all 5 runs"),
        "identical to the last digit": (tied(OLD), "identical", "every value is in both arms"),
        "one checkpoint in both arms": (tied((*NEW[:4], OLD[0])), "identical", "0.8912"),
        "above 100": (tied((101.2, 99.1, 98.3, 99.9, 98.7), (95.1, 95.2, 95.4, 95.3, 95.6)), "range", "not possible"),
        "fraction and percent": (tied(tuple(100 * v for v in NEW)), "range", "in percent in others"),
        "perfect": (tied((1.0, 0.98213, 0.97312, 0.99112, 0.98441)), "too-good", "perfect"),
        "chance": (tied((0.1, 0.112, 0.108, 0.105, 0.104), config={"num_classes": 10}), "chance", "1 of 10"),
        "chance AUC": (tied((0.5, 0.61, 0.62, 0.6, 0.63), metric="auc"), "chance", "AUC of a half"),
        "change not applied": (lambda: (arm(NEW, 1e-3), arm(OLD, 1e-3)), "unapplied", "not applied"),
    },
}
PLANTED = {name: (*rest, verdict) for verdict, rows in BY_VERDICT.items() for name, rest in rows.items()}
