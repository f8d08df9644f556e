"""Progress with an ETA on stderr: one line that is rewritten on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time

import click

from rgt import units

_ON_TERMINAL, _IN_LOG = 0.2, 15.0  # seconds between two looks


class Gauge:
    def __init__(self, total: int, what: str) -> None:
        self.total, self.what, self.done = total, what, 0
        self.start = self.shown = time.monotonic()
        self.base = 0  # was here before this start
        self.terminal = sys.stderr.isatty()
        self.drawn = False

    def begin(self, done: int) -> None:
        """What an earlier run brought must not count as speed."""
        self.base = self.done = done
        self.start = time.monotonic()

    def show(self, done: int) -> None:
        self.done = max(self.done, done)
        now = time.monotonic()
        if now - self.shown < (_ON_TERMINAL if self.terminal else _IN_LOG):
            return
        self.shown = now
        if self.terminal:
            click.echo(f"\r\033[K{self.line(now)}", nl=False, err=True)
            self.drawn = True
        else:
            click.echo(self.line(now), err=True)

    def line(self, now: float) -> str:
        rate = (self.done - self.base) / max(now - self.start, 1e-6)
        left = (self.total - self.done) / rate if rate > 0 else None
        eta = f"ETA {units.show_duration(round(left))}" if left is not None else "ETA unknown"
        percent = 100 * self.done // max(self.total, 1)
        amounts = f"{units.show_size(self.done)} of {units.show_size(self.total)}"
        return f"{self.what}: {percent} %, {amounts}, {units.show_size(rate)}/s, {eta}"

    def close(self) -> None:
        if self.drawn:
            click.echo("\r\033[K", nl=False, err=True)
