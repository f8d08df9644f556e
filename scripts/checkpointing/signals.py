"""SIGTERM and SIGUSR1 as a wish that is granted at the next step boundary: save, then end with a code that says so.

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
from types import FrameType
from typing import Any

from checkpointing.errors import CheckpointError

SIGNALS = (signal.SIGTERM, signal.SIGUSR1)
AGAIN = 10.0  # seconds: launchers repeat a signal at once (Slurm to every process, torchrun once more to its workers)


class StopSignals:
    """The handler takes a note and nothing else: saving inside of it could cut another save in half.

    The same signal once more, `again` seconds after the first or later, means "now": the process ends with the same
    exit code, and what was saved last stays whole.
    """

    def __init__(self, signals: tuple[signal.Signals, ...] = SIGNALS, again: float = AGAIN) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise CheckpointError("signals can only be caught in the main thread; make StopSignals() there")
        self.seen: dict[int, float] = {}
        self.again = again
        self._before: dict[int, Any] = {number: signal.signal(number, self._note) for number in signals}

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self.seen.setdefault(number, now) >= self.again:
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, b"second signal: ending without another save\n")
            os._exit(128 + number)

    @property
    def number(self) -> int:
        """The signal that came first, 0 when none did."""
        return min(self.seen, key=lambda number: self.seen[number], default=0)

    @property
    def exit_code(self) -> int:
        """What a shell shows for a process that ended on that signal; 0 when none came."""
        return 128 + self.number if self.number else 0

    def requested(self) -> bool:
        """Whether to save and end. A collective call when torch.distributed is up: every rank must make it."""
        number = _on_any_rank(self.number)
        if number and not self.number:
            self.seen[number] = time.monotonic()  # another rank's signal: the same exit code on all
        return number != 0

    def restore(self) -> None:
        """The handlers from before; for code that goes on after training."""
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _on_any_rank(number: int) -> int:
    """A signal reaches ranks at different steps, or only one of them; they must stop at the same step or hang."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return number
    device = "cuda" if torch.distributed.get_backend() == "nccl" else "cpu"
    flag = torch.tensor([number], device=device)
    torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
    return int(flag.item())
