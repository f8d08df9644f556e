"""The running job: signals in, exit code out, and nobody of its tree left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gatekeeper.locks import FORWARDED, next_signal
from rgt import procs, units

TIMEOUT_CODE = 124  # as timeout(1)
ECHO_SECONDS = 0.2
KILL_AGAIN_SECONDS = 0.2  # for what was forked between two looks


class Supervisor:
    """Follows the process tree of `pid` until its last process is dead."""

    def __init__(
        self,
        pid: int,
        asked: dict[str, Any],
        echo: Echo | None,
        say: Callable[[str], None],
        cancelled: Callable[[], bool],
    ) -> None:
        self.pid, self.say, self.cancelled = pid, say, cancelled
        self.timeout, self.grace = asked["timeout"], float(asked["grace"])
        self.echo = echo
        self.code: int | None = None
        self.ending: str | None = None  # "timeout" or "cancelled" once we end it ourselves
        self.deadline = None if self.timeout is None else time.monotonic() + self.timeout
        self.told = False
        self.note: str | None = None

    def run(self) -> tuple[str, int, str | None]:
        """State, exit code and what there is to say about them."""
        while self._reap():
            if self.deadline is not None and time.monotonic() >= self.deadline:
                self._escalate()
            self._wait()
        if self.echo:
            self.echo.more()
        assert self.code is not None
        if self.ending == "timeout":
            return "timeout", TIMEOUT_CODE, self.note
        return self.ending or ("failed" if self.code else "done"), self.code, self.note

    def _reap(self) -> bool:
        """Collect the dead; False when the whole tree is gone. Orphans come to us: we are their subreaper."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    self._tell_of_leftovers()
                    return True
                if pid == self.pid:
                    code = os.waitstatus_to_exitcode(status)
                    self.code = code if code >= 0 else 128 - code  # as a shell tells a signal
        except ChildProcessError:
            return False

    def _tell_of_leftovers(self) -> None:
        if self.code is None or self.ending or self.told:
            return
        self.told = True
        left = procs.descendants(os.getpid())
        words = " ".join(procs.command(left[0]))[:60] if left else ""
        self.say(f"the command ended with {self.code}; waiting for the {len(left)} processes it left: {words}")

    def _wait(self) -> None:
        limits = [] if self.deadline is None else [max(0.0, self.deadline - time.monotonic())]
        if self.echo:
            self.echo.more()
            limits.append(ECHO_SECONDS)
        number = next_signal(min(limits) if limits else None)
        if number in FORWARDED:
            self._forward(signal.Signals(number))

    def _forward(self, number: signal.Signals) -> None:
        """To the job's own process group, as a terminal would; a cancelled job gets the whole ladder instead."""
        if number == signal.SIGTERM and self.cancelled():
            self._end("cancelled", "cancelled")
            return
        self.note = f"{number.name} was passed on to it"
        self.say(self.note)
        if self.code is None:
            os.killpg(self.pid, number)
        else:
            self._signal_tree(number)

    def _escalate(self) -> None:
        if not self.ending:
            self._end("timeout", f"timeout after {units.show_duration(self.timeout)}")
        else:
            self._signal_tree(signal.SIGKILL)
            self.deadline = time.monotonic() + KILL_AGAIN_SECONDS

    def _end(self, state: str, why: str) -> None:
        if self.ending:
            return
        self.ending, self.deadline = state, time.monotonic() + self.grace
        count = self._signal_tree(signal.SIGTERM)
        self.note = f"{why}: SIGTERM to {count} processes, SIGKILL after {units.show_duration(self.grace)}"
        self.say(self.note)

    def _signal_tree(self, number: signal.Signals) -> int:
        tree = procs.descendants(os.getpid())
        for pid in tree:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return len(tree)


class Echo:
    """Copies the job's log to our stdout. The job itself writes to the file: killing us costs it nothing."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("rb")
        self.file.seek(0, os.SEEK_END)

    def more(self) -> None:
        with contextlib.suppress(OSError):  # nobody reads our stdout any more: the log has it all
            while block := self.file.read(1 << 16):
                os.write(1, block)
