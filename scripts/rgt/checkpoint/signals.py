"""SIGTERM and SIGUSR1 as a stop request, honoured after the current step: save, then end with a code that says so.

Example:
    stop = StopSignals()
    for batch in loader:
        train_step(batch)
        if stop.requested():             # with several ranks: all of them answer the same
            store.save(step, state)
            sys.exit(stop.exit_code)     # 143 after SIGTERM, 138 after SIGUSR1
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from rgt.checkpoint.training_state import distributed
from rgt.errors import bad_input

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
AGAIN = 10.0  # seconds: launchers repeat a signal at once (Slurm to every process, torchrun once more to its workers)


class StopSignals:
    """The handler takes a note and nothing else: saving inside of it could cut another save in half.

    The same signal once more, `again` seconds after the first or later, means "now": the process ends with the same
    exit code, and what was saved last stays whole. `then` is called at each signal, such as to end a child process.
    """

    def __init__(self, signals: tuple[signal.Signals, ...] = SIGNALS, again: float = AGAIN) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise bad_input("signals can only be caught in the main thread; make StopSignals() there")
        self.seen: dict[int, float] = {}
        self.again = again
        self.then: Callable[[], None] | None = None
        self._before: dict[int, Any] = {number: signal.signal(number, self._note) for number in signals}

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self.seen.setdefault(number, now) >= self.again:
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"second signal: ending without another save\n")
            os._exit(128 + number)
        if self.then:
            self.then()

    @property
    def number(self) -> int:
        """The signal that came first, 0 when none did."""
        return min(self.seen, key=lambda number: self.seen[number], default=0)

    @property
    def exit_code(self) -> int:
        """What a shell shows for a process that ended on that signal; 0 when none came."""
        return 128 + self.number if self.number else 0

    def requested(self) -> bool:
        """Whether to save and end. A collective call when torch.distributed is up: every rank must make it.

        A signal reaches ranks at different steps, or only one of them; they must stop at the same step or hang.
        """
        number, ranks = self.number, distributed()
        if ranks:
            import torch

            flag = torch.tensor([number], device="cuda" if ranks.get_backend() == "nccl" else "cpu")
            ranks.all_reduce(flag, op=ranks.ReduceOp.MAX)
            number = int(flag.item())
        if number and not self.number:
            self.seen[number] = time.monotonic()  # another rank's signal: the same exit code on all
        return number != 0

    def restore(self) -> None:
        """The handlers from before; for code that goes on after training."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
