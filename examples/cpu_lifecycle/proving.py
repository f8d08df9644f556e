"""VERIFY: pulled with proof, a corrupt checkpoint caught, one difference that is an effect and one that is noise."""

from __future__ import annotations

import json
import os
from pathlib import Path

from rgt import errors

from examples.cpu_lifecycle import trainings
from examples.cpu_lifecycle.settings import SEEDS
from examples.cpu_lifecycle.story import Demo, here

# arm: learning rate, seeds. The last is the first once more, with other seeds: its difference is luck and nothing else.
ARMS = {"fast": (6e-3, (1, 2, 3)), "slow": (1e-3, (1, 2, 3)), "fast-again": (6e-3, (4, 5, 6))}


def pull(demo: Demo) -> None:
    demo.pulled = demo.folder / "pulled" / demo.killed.id
    demo.last(demo.tool("transfer", "pull", source(demo), here(demo.pulled)))


def source(demo: Demo) -> str:
    return f"box:~/runs/{demo.killed.id}" if demo.box else here(demo.killed.path)


def corrupt(demo: Demo) -> None:
    newest = max((demo.pulled / "checkpoints").glob("step_*.pt"))
    flip_a_byte(newest)
    demo.tell(f"planted: one byte of {here(newest)} is flipped")
    findings = (errors.FINDINGS,)
    demo.tell("caught: " + finding(demo.tool("verify_local", here(demo.pulled), codes=findings), "digest"))
    demo.last(demo.tool("transfer", "pull", source(demo), here(demo.pulled)))
    demo.last(demo.tool("verify_local", here(demo.pulled)))


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def finding(said: str, word: str) -> str:
    return next(line.strip() for line in said.splitlines() if word in line)


def train_variants(demo: Demo) -> None:
    steps = max(10, demo.config["steps"] // 4)
    every = {"steps": steps, "eval_interval": max(1, steps // 5), "checkpoint_interval": steps}
    for arm, (rate, seeds) in ARMS.items():
        config = {**demo.config, **every, "learning_rate": rate}
        folder = demo.delivery / "runs" / arm
        demo.arms[arm] = [trainings.create(folder, arm, config, {**SEEDS, "train": seed}) for seed in seeds]
        demo.show(
            f"python {here(trainings.TRAIN)} --run {here(demo.arms[arm][0].path)}   # and seeds {seeds[1]}, {seeds[2]}"
        )
    runs = [run for arm in demo.arms.values() for run in arm]
    trainings.finish(runs, at_once=min(2, os.cpu_count() or 1))
    demo.tell(f"{len(runs)} runs of {steps} steps")


def effect_or_noise(demo: Demo) -> None:
    """Exit 1 of compare_runs is a verdict too: anything but an effect with nothing to disclose."""
    pairs = {"slow": ("--intended", "learning_rate"), "fast-again": ()}
    for other, more in pairs.items():
        words = ("runs/fast", "--vs", f"runs/{other}", "--metric", "loss", "--split", "val", *more)
        codes = (errors.OK, errors.FINDINGS)
        said = demo.tool("compare_runs", *words, "--json", codes=codes, inside=demo.delivery)
        (demo.delivery / f"compare-{other}.json").write_text(said)
        answer = json.loads(said)
        demo.verdicts[other] = str(answer["verdict"])
        test = answer["comparisons"][0]["seeds_test"]
        demo.tell(f"{answer['verdict']}: the means differ by {abs(test['difference']):.3g}, p = {test['p']:.2g}")
    if demo.verdicts["fast-again"] == "effect":
        raise errors.RgtError("the same variant with other seeds was called an effect", errors.FINDINGS)
