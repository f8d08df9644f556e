"""Two arms that differ in one thing, and every way in which a comparison of them can be wrong."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt import rundir

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
    git: dict[str, Any] = {
        "commit": spec.commit,
        "branch": "main",
        "dirty": spec.dirty or bool(spec.diff),
        "untracked": [],
    }
    if spec.diff:
        git |= {"diff": spec.diff, "diff_sha256": hashlib.sha256(spec.diff.encode()).hexdigest()}
    record = {
        "run_id": run_id,
        "created": f"2026-11-16T08:30:{number:02d}Z",
        "command": ["python", "train.py", "--run", f"/box{number}/runs/{run_id}", *spec.flags],
        "cwd": f"/box{number}",
        "config": spec.config,
        "config_sha256": rundir.config_hash(spec.config),
        "seeds": {"model": spec.seed},
        "backend": "local",
        "job": {},
        "git": git,
        "env": {"python": "3.11.2", "executable": f"/venv{number}/python", "packages": spec.packages},
        "host": {"name": f"host{number}", "platform": "Linux", "cpus": 8},
        "devices": [{"index": i, "name": name} for i, name in enumerate(spec.devices)],
    }
    (folder / "run.json").write_text(json.dumps(record))
    metric = {
        "name": spec.metric,
        "value": spec.value,
        "split": spec.split,
        "n": spec.n,
        "direction": spec.direction,
        "step": spec.step,
    }
    if spec.eval_set:
        metric["eval_set_sha256"] = spec.eval_set
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


def second_change() -> tuple[list[Spec], list[Spec]]:
    return arm(NEW, 3e-4, config={"model": {"depth": 24}}), arm(OLD, 1e-3)


def nested_yaml_change() -> tuple[list[Spec], list[Spec]]:
    return arm(NEW, 3e-4, config={"opt": [{"betas": [0.9, 0.95]}]}), arm(
        OLD, 1e-3, config={"opt": [{"betas": [0.9, 0.99]}]}
    )


def flag_change() -> tuple[list[Spec], list[Spec]]:
    return (
        arm(NEW, 3e-4, config={"args": ["--warmup", "100", "--bf16"]}),
        arm(OLD, 1e-3, config={"args": ["--warmup=0", "--bf16"]}),
    )


def flipped() -> tuple[list[Spec], list[Spec]]:
    return arm(NEW, 3e-4, direction="down"), arm(OLD, 1e-3, direction="down")


def one_flipped() -> tuple[list[Spec], list[Spec]]:
    return arm(NEW, 3e-4, direction="down"), arm(OLD, 1e-3)


def longer() -> tuple[list[Spec], list[Spec]]:
    return arm(NEW, 3e-4, step=2000), arm(OLD, 1e-3)


def more_tokens() -> tuple[list[Spec], list[Spec]]:
    return arm(NEW, 3e-4, extra={"tokens": 2e9}), arm(OLD, 1e-3, extra={"tokens": 1e9})


def more_tuning() -> tuple[list[Spec], list[Spec]]:
    return arm(NEW, 3e-4, extra={"budget": {"tuning_trials": 64}}), arm(
        OLD, 1e-3, extra={"budget": {"tuning_trials": 1}}
    )


def more_epochs() -> tuple[list[Spec], list[Spec]]:
    return arm(NEW, 3e-4, config={"num_train_epochs": 20}), arm(OLD, 1e-3, config={"num_train_epochs": 10})


def best_on_test() -> tuple[list[Spec], list[Spec]]:
    return (
        with_curves(arm(NEW, 3e-4), 500, test=peaked, val=rising),
        with_curves(arm(OLD, 1e-3), 1000, test=rising, val=rising),
    )


def both_best_on_test() -> tuple[list[Spec], list[Spec]]:
    return with_curves(arm(NEW, 3e-4), 500, test=peaked), with_curves(arm(OLD, 1e-3), 500, test=peaked)


def different_rule() -> tuple[list[Spec], list[Spec]]:
    return (
        with_curves(arm(NEW, 3e-4, split="val"), 500, val=peaked),
        with_curves(arm(OLD, 1e-3, split="val"), 1000, val=lambda v: [v + 0.04, *rising(v)[1:]]),
    )


def seed_twice() -> tuple[list[Spec], list[Spec]]:
    b = arm(OLD, 1e-3)
    b[4].seed = b[4].config["seed"] = 3
    return arm(NEW, 3e-4), b


def mixed_arm() -> tuple[list[Spec], list[Spec]]:
    a = arm(NEW, 3e-4)
    a[2].config["lr"] = 1e-4
    return a, arm(OLD, 1e-3)


def diverged() -> tuple[list[Spec], list[Spec]]:
    a = arm(NEW, 3e-4)
    a[3].value = math.nan
    return a, arm(OLD, 1e-3)


def drifted() -> tuple[list[Spec], list[Spec]]:
    a = with_curves(arm(NEW, 3e-4), 1000, test=rising)
    a[0].curves["test"][1000] = 0.85
    return a, with_curves(arm(OLD, 1e-3), 1000, test=rising)


def leaked() -> tuple[list[Spec], list[Spec]]:
    return (
        with_curves(arm(NEW, 3e-4), 1000, train=lambda v: [0.5, 0.6, 0.7]),
        with_curves(arm(OLD, 1e-3), 1000, train=lambda v: [0.5, 0.8, 0.95]),
    )


def unknown_diff() -> tuple[list[Spec], list[Spec]]:
    return arm(NEW, 3e-4, dirty=True), arm(OLD, 1e-3, dirty=True)


def contradicted() -> tuple[list[Spec], list[Spec]]:
    return arm(NEW, 3e-4, flags=("--lr", "1e-3")), arm(OLD, 1e-3, flags=("--lr", "1e-3"))


def tied(
    values: tuple[float, ...], other: tuple[float, ...] = OLD, **changes: Any
) -> Callable[[], tuple[list[Spec], list[Spec]]]:
    return lambda: (arm(values, 3e-4, **changes), arm(other, 1e-3, **changes))


CHANGED = {"commit": "b" * 40}
DIFF = "diff --git a/loss.py b/loss.py\n--- a/loss.py\n+++ b/loss.py\n@@ -1 +1 @@\n-x\n+y\n"
PLANTED: dict[str, tuple[Callable[[], tuple[list[Spec], list[Spec]]], str, str, str]] = {
    "second config change": (second_change, "confound", "model.depth: 24 vs 12", "undecided"),
    "nested list change": (nested_yaml_change, "confound", "opt.0.betas: [0.9, 0.95] vs [0.9, 0.99]", "undecided"),
    "command line flag": (flag_change, "confound", "--warmup: 100 vs 0", "undecided"),
    "eval set differs": (
        lambda: (arm(NEW, 3e-4, eval_set="0" * 64), arm(OLD, 1e-3)),
        "eval-set",
        "differ",
        "bug-suspect",
    ),
    "eval set size": (lambda: (arm(NEW, 3e-4, n=9999), arm(OLD, 1e-3)), "eval-set", "9999, 10000", "bug-suspect"),
    "eval set unknown": (lambda: (arm(NEW, 3e-4, eval_set=None), arm(OLD, 1e-3)), "unrecorded", "hash", "effect"),
    "split differs": (
        lambda: (arm(NEW, 3e-4, split="val"), arm(OLD, 1e-3)),
        "split",
        "A on val, B on test",
        "bug-suspect",
    ),
    "test-selected checkpoint": (best_on_test, "selection", "selected on the test set", "undecided"),
    "both test-selected": (both_best_on_test, "selection", "arm B reports the best test value", "undecided"),
    "different checkpoint rule": (different_rule, "selection", "A best-val, B last", "undecided"),
    "peak-picking": (different_rule, "peak", "arm A reports the peak of its val curve", "undecided"),
    "direction flipped": (flipped, "direction", "results.json says down", "bug-suspect"),
    "direction flipped in one arm": (one_flipped, "direction", "says down/up", "bug-suspect"),
    "more steps": (longer, "budget", "budget.steps: 2000 vs 1000", "undecided"),
    "more tokens": (more_tokens, "budget", "budget.tokens: 2e+09 vs 1e+09", "undecided"),
    "more tuning": (more_tuning, "budget", "budget.tuning_trials: 64 vs 1", "undecided"),
    "more epochs": (more_epochs, "budget", "num_train_epochs: 20 vs 10", "undecided"),
    "another commit": (lambda: (arm(NEW, 3e-4, **CHANGED), arm(OLD, 1e-3)), "confound", "code.commit", "undecided"),
    "dirty diff": (lambda: (arm(NEW, 3e-4, diff=DIFF), arm(OLD, 1e-3)), "confound", "loss.py", "undecided"),
    "another torch": (
        lambda: (arm(NEW, 3e-4, packages={"torch": "2.12.1"}), arm(OLD, 1e-3)),
        "confound",
        "env.torch: 2.12.1 vs 2.13.0",
        "undecided",
    ),
    "training data": (
        lambda: (
            arm(NEW, 3e-4, extra={"train_set_sha256": "1" * 64}),
            arm(OLD, 1e-3, extra={"train_set_sha256": "2" * 64}),
        ),
        "confound",
        "data.train_set_sha256",
        "undecided",
    ),
    "data path": (
        lambda: (arm(NEW, 3e-4, config={"data_dir": "/d/v2"}), arm(OLD, 1e-3, config={"data_dir": "/d/v1"})),
        "confound",
        "data_dir: /d/v2 vs /d/v1",
        "undecided",
    ),
    "more cards": (
        lambda: (arm(NEW, 3e-4, devices=("A",) * 8), arm(OLD, 1e-3)),
        "confound",
        "cards: 8 vs 1",
        "undecided",
    ),
    "uncommitted code without a diff": (
        unknown_diff,
        "unrecorded",
        "uncommitted code that was not recorded",
        "undecided",
    ),
    "command contradicts config": (contradicted, "unrecorded", "its command says --lr 0.001", "undecided"),
    "another GPU": (lambda: (arm(NEW, 3e-4, devices=("H100",)), arm(OLD, 1e-3)), "hardware", "H100", "effect"),
    "different n": (lambda: (arm(NEW, 3e-4), arm(OLD[:4], 1e-3)), "seeds", "arm A has 5 runs, arm B 4", "effect"),
    "a seed twice": (seed_twice, "seeds", "more than once", "effect"),
    "mixed arm": (mixed_arm, "mixed", "arm A mixes runs with lr = 0.0001/0.0003", "undecided"),
    "NaN": (diverged, "nan", "diverged run", "bug-suspect"),
    "reported is not logged": (drifted, "drift", "its own log says 0.85", "bug-suspect"),
    "better than train in one arm": (leaked, "too-good", "better on test than on train", "bug-suspect"),
    "constant over seeds": (tied((0.91234,) * 5), "constant", "in all 5 runs", "bug-suspect"),
    "identical to the last digit": (tied(OLD), "identical", "every value is in both arms", "bug-suspect"),
    "one checkpoint in both arms": (tied((*NEW[:4], OLD[0])), "identical", "0.8912", "bug-suspect"),
    "above 100": (
        tied((101.2, 99.1, 98.3, 99.9, 98.7), (95.1, 95.2, 95.4, 95.3, 95.6)),
        "range",
        "not possible",
        "bug-suspect",
    ),
    "fraction and percent": (tied(tuple(100 * v for v in NEW)), "range", "in percent in others", "bug-suspect"),
    "perfect": (tied((1.0, 0.98213, 0.97312, 0.99112, 0.98441)), "too-good", "perfect", "bug-suspect"),
    "chance": (
        tied((0.1, 0.11234, 0.10871, 0.10543, 0.10412), config={"num_classes": 10}),
        "chance",
        "1 of 10",
        "bug-suspect",
    ),
    "chance AUC": (tied((0.5, 0.61, 0.62, 0.6, 0.63), metric="auc"), "chance", "AUC of a half", "bug-suspect"),
    "change not applied": (lambda: (arm(NEW, 1e-3), arm(OLD, 1e-3)), "unapplied", "not applied", "bug-suspect"),
}
