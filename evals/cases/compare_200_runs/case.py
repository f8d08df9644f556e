"""Two hundred runs: five clean gains among noise, a loss, and ten variants whose gain is something else."""

from __future__ import annotations

import csv
import random
from typing import Any

from trials.case import Box, Case, same_names
from worlds import parts

SEEDS = 8
BASE: dict[str, Any] = {
    "lr": 1e-3,
    "weight_decay": 0.1,
    "warmup": 100,
    "dropout": 0.1,
    "label_smoothing": 0.0,
    "mixup": 0.0,
    "ema": 0.0,
    "batch_size": 256,
    "model": {"depth": 12, "width": 384},
    "max_steps": 1000,
    "clip": 1.0,
    "beta2": 0.95,
}
# each value is tried by one variant only: two arms of one config with different results would contradict each other
TRIED: dict[str, list[Any]] = {
    "lr": [3e-3, 2e-3, 5e-4],
    "weight_decay": [0.3, 0.05, 0.2],
    "warmup": [300, 200, 50],
    "dropout": [0.3, 0.2, 0.05],
    "label_smoothing": [0.1, 0.05, 0.2],
    "mixup": [0.2, 0.4, 0.8],
    "ema": [0.999, 0.9999, 0.99],
    "clip": [3.0, 0.5, 2.0],
    "beta2": [0.98, 0.99, 0.999],
}
KEYS = list(TRIED)
REAL = ["v02", "v07", "v11", "v16", "v21"]
WORSE = ["v05"]
TRAPS = {
    "v01": "depth",
    "v04": "eval",
    "v08": "steps",
    "v10": "commit",
    "v13": "selected",
    "v15": "drift",
    "v18": "copied",
    "v19": "data",
    "v22": "nested",
    "v24": "too good",
}


def _specs(name: str, key: str | None, rng: random.Random) -> list[Any]:
    confounds = parts.of_tests("confounds")
    gain = 0.021 if name in REAL or name in TRAPS else -0.024 if name in WORSE else 0.0
    specs = []
    for seed in range(SEEDS):
        base = 0.894 + 0.0024 * random.Random(seed).gauss(0, 1)
        value = round(base + gain + 0.0011 * rng.gauss(0, 1), 4)  # of 10,000 examples
        config = {**BASE, "model": dict(BASE["model"]), "seed": seed, "out_dir": f"out/{name}/{seed}"}
        if key:
            config[key] = TRIED[key][int(name[1:]) // len(KEYS)]
        spec = confounds.Spec(
            value, seed, config, run_id=f"20261101-08{int(name[1:] or 0):02d}{seed:02d}-{name}-{0xABC000 + seed:06x}"
        )
        spec.curves = {
            "test": confounds.curve(confounds.rising(value)),
            "val": confounds.curve(confounds.rising(round(value + 0.0012 * rng.gauss(0, 1), 4))),
        }
        _trap(confounds, TRAPS.get(name), spec, seed)
        specs.append(spec)
    return specs


def _trap(confounds: Any, trap: str | None, spec: Any, seed: int) -> None:
    if trap == "depth":
        spec.config["model"]["depth"] = 16
    elif trap == "eval":
        spec.eval_set = "0" * 64
    elif trap == "steps":
        spec.step = 2000
    elif trap == "commit":
        spec.commit = "b" * 40
    elif trap == "selected":  # the reported step is the best of the test curve, the baseline's is its last
        spec.curves = {
            "test": confounds.curve(confounds.peaked(spec.value)),
            "val": confounds.curve(confounds.rising(spec.value)),
        }
        spec.step = 500
    elif trap == "drift":
        spec.curves["test"][1000] = round(spec.value - 0.02, 4)
    elif trap == "data":
        spec.config["data_dir"] = "/data/web-v2-dedup"
    elif trap == "nested":
        spec.config["opt"] = [{"betas": [0.9, 0.999], "foreach": True}]
    elif trap == "too good" and seed == 3:
        spec.value = 1.0
        spec.curves["test"][1000] = 1.0


def make(box: Box) -> None:
    confounds = parts.of_tests("confounds")
    rng = random.Random(200)
    baseline = _specs("v00", None, rng)
    arms = {"baseline": baseline}
    rows = []
    for number in range(1, 25):
        name, key = f"v{number:02d}", KEYS[number % len(KEYS)]
        arms[name] = _specs(name, key, rng)
        rows.append((name, key))
    for spec, twin in zip(arms["v18"][4:], baseline[4:], strict=True):  # half of the runs are the baseline's, copied
        spec.value, spec.curves = twin.value, twin.curves
    for name, specs in arms.items():
        for number, spec in enumerate(specs):
            confounds.write(box.work / "runs" / name, spec, number)
    with (box.work / "variants.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("variant", "changed"), *rows])


def verify(box: Box) -> list[str]:
    return same_names("clean gains", box.read("gains.json", list), REAL)


def reference(box: Box) -> None:
    with (box.work / "variants.csv").open() as file:
        rows = list(csv.DictReader(file))
    gains = []
    for row in rows:
        report = box.script(
            "compare_runs.py",
            f"runs/{row['variant']}",
            "--vs",
            "runs/baseline",
            "--metric",
            "accuracy",
            "--intended",
            row["changed"],
        )
        better = report["comparisons"][0]["seeds_test"]["difference"] > 0
        if report["ok"] and report["verdict"] == "effect" and better:
            gains.append(row["variant"])
    box.write("gains.json", gains)


def naive(box: Box) -> None:
    """Means over seeds, a t test, done."""
    import json

    from scipy import stats

    def values(name: str) -> list[float]:
        return [
            json.loads(p.read_text())["metrics"][0]["value"]
            for p in sorted((box.work / "runs" / name).glob("*/results.json"))
        ]

    base = values("baseline")
    arms = {f"v{n:02d}": values(f"v{n:02d}") for n in range(1, 25)}
    box.write(
        "gains.json", [n for n, v in arms.items() if sum(v) > sum(base) and stats.ttest_ind(v, base).pvalue < 0.05]
    )


CASE = Case(
    route="is this gain real?",
    reads=("references/verifying/methodology.md",),
    minutes=12,
    commands=25,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="gains.json holds the five clean gains, none of the ten confounded ones.",
)
