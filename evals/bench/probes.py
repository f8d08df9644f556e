"""Looking at every 50th step must not be felt: the demo's training step with and without the Watcher, taking turns."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from bench.measure import ROOT, Row, take_turns

EVERY = 50
STEPS = 2 * EVERY  # of one turn: two of them are sampled
ROUNDS = 7


def rows() -> Iterator[Row]:
    sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]
    from examples.cpu_lifecycle.factory import factory

    from probes import Watcher

    training = factory()
    step, batches = training.step, iter(training.data)
    assert step

    def bare() -> None:
        for _ in range(STEPS):
            step(training, next(batches))

    def watched() -> None:
        with Watcher(training.model, training.optimizer, every=EVERY) as watcher:
            for _ in range(STEPS):
                watcher.step(step(training, next(batches)))
        assert len(watcher.samples) == STEPS // EVERY

    bare()  # warm up
    yield Row(f"training with Watcher(every={EVERY}) / without", *take_turns(watched, bare, ROUNDS), 1.05)
