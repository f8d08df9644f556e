"""One cell of the sweep: a small network learns two moons, in numpy. It needs nothing of the bundle.

Usage:
    RGT_RUN_DIR=runs/x python train.py --lr 1.0 --seed 1

Reads its run directory from RGT_RUN_DIR. Writes metrics.jsonl and checkpoints/ there, and results.json at the end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
STEPS, EVERY, WIDTH, BATCH = 1000, 50, 16, 64
DATA_SEED = 7  # the same data for every cell: only the lr and the seed may differ


def moons(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """Two half circles that hold each other, with noise: a straight line cannot tell them apart."""
    label = rng.integers(0, 2, count)
    angle = rng.uniform(0, math.pi, count)
    x = np.where(label == 0, np.cos(angle), 1 - np.cos(angle))
    y = np.where(label == 0, np.sin(angle), 0.5 - np.sin(angle))
    return np.stack([x, y], axis=1) + rng.normal(0, 0.2, (count, 2)), label.astype(np.float64)


class Network:
    def __init__(self, rng: np.random.Generator) -> None:
        self.weights = {
            "w1": rng.normal(0, 1 / math.sqrt(2), (2, WIDTH)),
            "b1": np.zeros(WIDTH),
            "w2": rng.normal(0, 1 / math.sqrt(WIDTH), (WIDTH, 1)),
            "b2": np.zeros(1),
        }

    def forward(self, x: Array) -> tuple[Array, Array]:
        hidden = np.tanh(x @ self.weights["w1"] + self.weights["b1"])
        return hidden, 1 / (1 + np.exp(-(hidden @ self.weights["w2"] + self.weights["b2"])[:, 0]))

    def step(self, x: Array, y: Array, lr: float) -> float:
        hidden, p = self.forward(x)
        wrong = ((p - y) / len(y))[:, None]
        back = (wrong @ self.weights["w2"].T) * (1 - hidden**2)
        gradients = {"w1": x.T @ back, "b1": back.sum(0), "w2": hidden.T @ wrong, "b2": wrong.sum(0)}
        for name, gradient in gradients.items():
            self.weights[name] -= lr * gradient
        return cross_entropy(p, y)


def cross_entropy(p: Array, y: Array) -> float:
    p = np.clip(p, 1e-12, 1 - 1e-12)
    return float(-(y * np.log(p) + (1 - y) * np.log(1 - p)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--lr", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    given = parser.parse_args()
    run = Path(os.environ["RGT_RUN_DIR"])
    (run / "checkpoints").mkdir(parents=True, exist_ok=True)
    data, rng = np.random.default_rng(DATA_SEED), np.random.default_rng(given.seed)
    (x, y), (val_x, val_y) = moons(data, 1000), moons(data, 1000)
    network = Network(rng)
    with (run / "metrics.jsonl").open("a") as metrics:
        for step in range(1, STEPS + 1):
            rows = rng.integers(0, len(x), BATCH)
            loss = network.step(x[rows], y[rows], given.lr)
            if step % EVERY == 0:
                p = network.forward(val_x)[1]
                scores = {"loss": cross_entropy(p, val_y), "accuracy": float(((p > 0.5) == val_y).mean())}
                now = {"step": step, "time": time.time()}
                metrics.write(json.dumps({**now, "split": "train", "loss": loss, "lr": given.lr}) + "\n")
                metrics.write(json.dumps({**now, "split": "val", **scores}) + "\n")
                print(f"step {step} loss {loss:.4f} val_loss {scores['loss']:.4f} accuracy {scores['accuracy']:.4f}")
    np.savez(run / "checkpoints" / f"step_{STEPS:06d}.npz", **network.weights)  # type: ignore[arg-type]
    held_out = hashlib.sha256(val_x.tobytes() + val_y.tobytes()).hexdigest()
    same = {"split": "val", "n": len(val_y), "eval_set_sha256": held_out, "step": STEPS, "rule": "last"}
    rows_ = [
        {"name": "accuracy", "value": scores["accuracy"], "direction": "up", **same},
        {"name": "loss", "value": scores["loss"], "direction": "down", **same},
    ]
    half = run / "results.json.part"  # beside, then moved: half a results.json would be a cell that is not verified
    half.write_text(json.dumps({"run_id": run.name, "metrics": rows_}))
    half.replace(run / "results.json")
    print(f"finished: accuracy {scores['accuracy']:.4f} over {len(val_y)} points")


if __name__ == "__main__":
    main()
