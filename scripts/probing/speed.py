"""Time of a step with real data against the same step on a batch already in memory: the rest is the loader's."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from typing import Any

from probing.parameters import crashed
from probing.results import Result
from probing.session import Session, move
from probing.state import preserved

SHARE = 0.5  # of the time spent waiting for data
WORTH = 0.02  # seconds per step: below it, a probe on a few batches cannot tell waiting from noise
_STEPS = 12
_ROUNDS = 4
_FEWEST = 3  # steps to take a median of


def throughput(session: Session) -> Result:
    """Time per step split into data and compute, with a batch in memory as the control."""
    result = Result("throughput")
    if crashed(result, session.observation()):
        return result
    with preserved(session.training):
        session.reset()
        for _ in range(_ROUNDS):
            real, synthetic = _measure(session)
            if not _waits(real, synthetic):  # a busy machine is no slow loader: it must wait every time
                break
    if not real:
        result.unjudged = f"fewer than {_FEWEST} batches, or no time for them"
        return result
    share = max(0.0, 1 - synthetic / real)
    result.evidence = f"{real * 1e3:.1f} ms a step with real data, {synthetic * 1e3:.1f} ms with a batch in memory"
    result.data = {"seconds_per_step": real, "compute": synthetic, "data_share": share}
    if _waits(real, synthetic):
        result.add("starved", "warn", f"{share:.0%} of the time the model waits for data", evidence=result.evidence,
                   fix="more workers, cheaper decoding, a local disk; a faster card changes nothing")  # fmt: skip
    return result


def _waits(real: float, synthetic: float) -> bool:
    return real - synthetic > max(SHARE * real, WORTH)


def _measure(session: Session) -> tuple[float, float]:
    """Median seconds of a step with real data and with a batch in memory; zeros when there are too few."""
    batch = session.batches(1)[0]
    _times(session, itertools.repeat(batch, 2))  # warm up
    real = _times(session, itertools.islice(iter(session.training.data), _STEPS))
    synthetic = _times(session, itertools.repeat(batch, _STEPS))
    enough = len(real) >= _FEWEST and len(synthetic) >= _FEWEST
    return (statistics.median(real), statistics.median(synthetic)) if enough else (0.0, 0.0)


def _times(session: Session, batches: Iterator[Any]) -> list[float]:
    """Of each step with the wait for its batch; without the first, which pays for starting the workers."""
    times: list[float] = []
    start = _clock()
    for batch in batches:
        session.train_step(move(batch, session.device))
        if session.device.type == "cuda":  # it works on after the call returns
            import torch

            torch.cuda.synchronize()
        now = _clock()
        times.append(now - start)
        start = now
        if session.late:
            break
    return times[1:]


def _clock() -> float:
    """Seconds, without those in which other processes had the core: they say nothing about this loader."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:
            queued = int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):  # not Linux, or not built in
        queued = 0.0
    return time.perf_counter() - queued
