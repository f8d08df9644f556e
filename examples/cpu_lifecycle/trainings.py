"""train.py as processes of this machine: started together, none outlives the demo."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.process
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rgt import errors
from rgt.run import record

from examples.cpu_lifecycle import interrupts

TRAIN = Path(__file__).with_name("train.py")
DEADLINE = 300.0  # seconds for one training process; it takes about 10, so one that takes this long hangs
POLL = 0.02  # seconds; a step takes about 0.03
_FORKS = multiprocessing.get_context("forkserver")  # torch is imported once for all of them
_FORKS.set_forkserver_preload(["examples.cpu_lifecycle.train", "torch._dynamo"])  # the optimizer asks for the latter


def create(folder: Path, slug: str, config: dict[str, Any], seeds: dict[str, int]) -> record.Run:
    """A new run directory: what launch makes for a real job."""
    command = ["python", os.path.relpath(TRAIN), "--run", "{run}"]
    return record.create(folder, slug, command=command, config=config, seeds=seeds)


@contextlib.contextmanager
def training(run: record.Run) -> Iterator[multiprocessing.process.BaseProcess]:
    """train.py's command in a process of its own, which does not outlive the block: Ctrl-C leaves no orphan."""
    child = _FORKS.Process(target=_train, args=(str(run.path), str(run.log)))
    try:
        with interrupts.held():
            child.start()
        yield child
    finally:
        if child.pid and child.is_alive():
            child.kill()
            child.join()


def _train(run: str, log: str) -> None:
    from examples.cpu_lifecycle import train

    os.setsid()  # Ctrl-C is the demo's, which then ends things in their order
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1), os.dup2(descriptor, 2)
    train.main(["--run", run])


def finish(runs: list[record.Run], at_once: int = 1) -> None:
    """Train them all to the end, `at_once` side by side; each uses one core."""
    for first in range(0, len(runs), at_once):
        with contextlib.ExitStack() as stack:
            started = [(run, stack.enter_context(training(run))) for run in runs[first : first + at_once]]
            for run, child in started:
                child.join(DEADLINE)
                if child.exitcode is None:
                    raise broken(run, f"was not done after {DEADLINE:.0f} seconds")
                if code := child.exitcode:
                    documented = errors.FINDINGS <= code <= errors.REFUSED  # a full disk is 3, in the training and here
                    raise broken(run, f"ended with exit code {code}", code if documented else errors.FINDINGS)


def wait_for_step(run: record.Run, step: int, alive: Callable[[], bool]) -> None:
    """`alive` is asked only now and then: it may cost a process."""
    deadline, asked = time.monotonic() + DEADLINE, time.monotonic()
    while last_step(run) < step:
        if time.monotonic() > asked + 5:
            if not alive() and last_step(run) < step:
                raise broken(run, f"ended before step {step}")
            asked = time.monotonic()
        if time.monotonic() > deadline:
            raise broken(run, f"did not reach step {step} in {DEADLINE:.0f} seconds")
        time.sleep(POLL)


def last_step(run: record.Run) -> int:
    return max(run.curve("loss"), default=0)


def broken(run: record.Run, what: str, code: int = errors.FINDINGS) -> errors.RgtError:
    lines = run.log.read_text(errors="replace").splitlines() if run.log.exists() else []
    last = f": {lines[-1]}" if lines else ""
    return errors.RgtError(f"the training of {run.path} {what}; {run.log} says more{last}", code)
