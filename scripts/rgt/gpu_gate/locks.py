"""Kernel locks that are waited for without polling, and the signals that end a wait.

The main thread blocks these signals and reads them with sigtimedwait: nothing interrupts it half way through a step.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
from pathlib import Path

from rgt.machine import processes

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

    def write_owner(self, owner: str) -> None:
        """Name the owner inside the lock file, for whoever finds the lock free but the owner's children alive."""
        with contextlib.suppress(OSError):  # another user's file: then only the lock itself speaks
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, owner.encode(), 0)


def who_has(descriptor: int, path: str) -> str:
    """Who holds this flock and who waits for it before us, by the kernel's own list."""
    inode, mine = os.fstat(descriptor).st_ino, os.getpid()
    holders: list[int] = []
    waiters: list[int] = []
    with contextlib.suppress(OSError):
        for line in Path("/proc/locks").read_text().splitlines():
            words = line.replace("->", "").split()  # "1: -> FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF"
            if len(words) > 5 and words[1] == "FLOCK" and words[5].endswith(f":{inode}"):
                (waiters if "->" in line else holders).append(int(words[4]))
    ahead = waiters[: waiters.index(mine)] if mine in waiters else waiters
    names = [f"pid {pid} ({' '.join(processes.command(pid))[:50] or 'ended; its children hold it'})" for pid in holders]
    who = ", ".join(names) or "somebody on another machine"
    return f"{path} is held by {who}" + (f"; ahead: {' '.join(f'pid {pid}' for pid in ahead)}" if ahead else "")
