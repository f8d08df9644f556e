"""Kernel locks that are waited for without polling, and the signals that end a wait.

The main thread blocks these signals and reads them with sigtimedwait: nothing interrupts it half way through a step.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading

WAKE = signal.SIGRTMIN  # a thread of ours got its lock
FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
WAITED = {*FORWARDED, signal.SIGCHLD, WAKE}


def next_signal(seconds: float | None) -> int | None:
    """The next signal of WAITED, or None when the time is over."""
    info = signal.sigwaitinfo(WAITED) if seconds is None else signal.sigtimedwait(WAITED, seconds)
    return info.si_signo if info else None


class Lock:
    """A flock that a thread waits for, so that the main thread stays free for signals. Waiting costs no CPU."""

    def __init__(self, descriptor: int, kind: int, name: str = "") -> None:
        self.descriptor, self.name = descriptor, name
        self.got = self.unwanted = False
        self.turn = threading.Lock()
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            self.got = True
        except BlockingIOError:
            threading.Thread(target=self._wait, args=(kind,), daemon=True).start()

    def _wait(self, kind: int) -> None:
        fcntl.flock(self.descriptor, kind)
        with self.turn:
            self.got = True
            if self.unwanted:
                os.close(self.descriptor)
        signal.pthread_kill(threading.main_thread().ident or 0, WAKE)

    def drop(self) -> None:
        """Give it back: now, or, if the thread still waits, in the moment it would be ours."""
        with self.turn:
            if self.got and not self.unwanted:
                os.close(self.descriptor)
            self.unwanted = True

    def read_owner(self) -> str:
        return os.pread(self.descriptor, 200, 0).decode(errors="replace")

    def write_owner(self, owner: str) -> None:
        """Name the owner inside the lock file, for whoever finds the lock free but the owner's children alive."""
        with contextlib.suppress(OSError):  # another user's file: then only the lock itself speaks
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, owner.encode(), 0)
