"""Time of a step with real data against the same step on a batch that is already there: the difference is the loader's."""

from __future__ import annotations

import itertools
import time
from typing import Any

from probing.parameters import crashed
from probing.results import Result
from probing.session import Session, move
from probing.state import preserved

SHARE = 0.5  # of the time spent waiting for data
WORTH = 0.02  # seconds per step: below it, a probe on a few batches cannot tell waiting from noise
_STEPS = 12


def throughput(session: Session) -> Result:
    """Time per step split into data and compute, with a batch in memory as the control."""
    result = Result("throughput")
    if crashed(result, session.observation()):
        return result
    with preserved(session.training):
        session.reset()
        batches = session.batches(1)
        _run(session, itertools.repeat(batches[0], 2))  # warm up
        real, count = _real(session)
        synthetic, again = _run(session, itertools.repeat(batches[0], max(count, 1)))
    if not count or not again:
        result.unjudged = "no time for two steps"
        return result
    real, synthetic = real / count, synthetic / again
    share = max(0.0, 1 - synthetic / real)
    result.evidence = f"{real * 1e3:.1f} ms a step with real data, {synthetic * 1e3:.1f} ms with a batch in memory"
    result.data = {"seconds_per_step": real, "compute": synthetic, "data_share": share, "steps": count}
    if share > SHARE and real - synthetic > WORTH:
        result.add("starved", "warn", f"{share:.0%} of the time the model waits for data", evidence=result.evidence,
                   fix="more workers, cheaper decoding, data on a local disk; a faster card changes nothing")  # fmt: skip
    return result


def _real(session: Session) -> tuple[float, int]:
    """Without the first batch, which pays for starting the workers."""
    source = iter(session.training.data)
    first = next(source, None)
    if first is None:
        return 0.0, 0
    session.train_step(move(first, session.device))
    return _run(session, itertools.islice(source, _STEPS))


def _run(session: Session, batches: Any) -> tuple[float, int]:
    count, start = 0, time.perf_counter()
    for batch in batches:
        session.train_step(move(batch, session.device))
        _wait(session)
        count += 1
        if session.late:
            break
    return time.perf_counter() - start, count


def _wait(session: Session) -> None:
    """A GPU works on after the call returns."""
    if session.device.type == "cuda":
        import torch

        torch.cuda.synchronize()
