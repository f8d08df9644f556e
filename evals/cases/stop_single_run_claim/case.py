"""Fourteen comparisons, half of which have too few runs to say anything; percent and fraction are mixed in one."""

from __future__ import annotations

import csv
import random
import statistics

from trials.case import Box, Case

SETS = {
    # dataset: (runs of ours, runs of the baseline, gain, noise)
    "cifar10": (6, 6, 0.021, 0.002),
    "svhn": (1, 1, 0.007, 0.0),
    "food101": (6, 6, 0.0, 0.004),
    "pets": (1, 5, 0.011, 0.003),
    "cars": (6, 6, 0.018, 0.002),
    "dtd": (2, 2, 0.006, 0.006),
    "sun397": (6, 6, -0.02, 0.002),
    "aircraft": (1, 1, 0.025, 0.0),
    "caltech": (6, 6, 0.016, 0.002),
    "flowers": (2, 2, 0.004, 0.005),
    "eurosat": (6, 6, -0.015, 0.002),
    "gtsrb": (1, 1, 0.003, 0.0),
    "stl10": (6, 6, 0.02, 0.002),
    "mnist": (1, 2, 0.001, 0.001),
}
ARMS = ("ours", "baseline")
YES = {"cifar10", "cars", "caltech", "stl10"}
NO = {"sun397", "eurosat"}
EITHER = {"food101"}  # nothing there: no and undecided are both honest


def make(box: Box) -> None:
    rng = random.Random(14)
    rows = []
    for name, (ours, base, gain, noise) in SETS.items():
        level = rng.uniform(0.7, 0.9)
        for arm, count, shift in (("ours", ours, gain), ("baseline", base, 0.0)):
            for seed in range(count):
                rows.append((name, arm, seed, f"{level + shift + rng.gauss(0, noise):.5f}", 10000))
    with (box.work / "results.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("dataset", "method", "seed", "accuracy", "n_test"), *rows])


def verify(box: Box) -> list[str]:
    answer = box.read("verdicts.json")
    right = {name: {"yes"} if name in YES else {"no"} if name in NO else {"undecided"} for name in SETS}
    right |= {name: {"undecided", "no"} for name in EITHER}
    wrong = [name for name in SETS if answer.get(name) not in right[name]]
    return [f"{len(wrong)} verdicts are wrong, such as {wrong[0]}"] if wrong else []


def _own(box: Box, name: str, arm: str) -> list[dict[str, str]]:
    with (box.work / "results.csv").open() as file:
        return [row for row in csv.DictReader(file) if row["dataset"] == name and row["method"] == arm]


def reference(box: Box) -> None:
    verdicts = {}
    for name in SETS:
        paths = [box.world / f"{name}-{arm}.csv" for arm in ARMS]
        for arm, path in zip(ARMS, paths, strict=True):
            with path.open("w", newline="") as out:
                writer = csv.DictWriter(out, ["seed", "accuracy"], extrasaction="ignore")
                writer.writeheader()
                writer.writerows(_own(box, name, arm))
        report = box.script("compare_runs.py", paths[0], "--vs", paths[1], "--metric", "accuracy")
        test = report["comparisons"][0].get("seeds_test") or {}
        if not test or min(test["n"]) < 3 or test["p"] is None or test["p"] > test["bar"]:
            verdicts[name] = "undecided"
        else:
            verdicts[name] = "yes" if test["difference"] > 0 else "no"
    box.write("verdicts.json", verdicts)


def naive(box: Box) -> None:
    """The higher mean wins."""
    verdicts = {}
    for name in SETS:
        ours, base = (statistics.fmean(float(row["accuracy"]) for row in _own(box, name, arm)) for arm in ARMS)
        verdicts[name] = "yes" if ours > base else "no"
    box.write("verdicts.json", verdicts)


CASE = Case(
    route="is this gain real?",
    reads=("references/verifying/methodology.md",),
    minutes=8,
    commands=20,
    kind="stop",
    held_out=True,
    expected="Four are better, two are worse, and the ones with one or two runs are undecided.",
)
