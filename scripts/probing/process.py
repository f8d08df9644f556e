"""A process of its own for the user's code: how it is started, what it leaves in its files, and how it is ended.

The request is its stdin, as JSON. It appends rows to `out`, one JSON object per line, and Python stacks to `stacks`
when it crashes or gets SIGUSR1. Child is our side of this; enter() and writer() are for the scripts in child/.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from probing.session import foreign
from rgt import logs

POLL = 0.05
_SCRIPTS = Path(__file__).with_name("child")
_DUMP = 10.0  # seconds a stuck process gets to write its stacks
_WHOLE = ("in <module>\n", "  ...\n")  # how a dump ends; faulthandler leaves out what is deeper than 100 calls
_FRAME = re.compile(r'File "([^"]+)", line (\d+) in (.+)')
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Child:
    """A script of child/ in a session of its own; as a context, nothing of it outlives the block."""

    def __init__(self, script: str, request: dict[str, Any], folder: Path, name: str = "") -> None:
        self.out, self.stacks, self.log = (folder / f"{kind}{name}" for kind in ("out", "stacks", "log"))
        self.out.write_text("")
        self.stacks.write_text("")
        order = folder / f"request{name}"
        more = {"out": str(self.out), "stacks": str(self.stacks), "parent": os.getpid()}
        order.write_text(json.dumps({**request, **more}))
        with order.open("rb") as source, self.log.open("wb") as sink:
            self.process = subprocess.Popen([sys.executable, str(_SCRIPTS / script)], stdin=source, stdout=sink,
                                            stderr=sink, start_new_session=True)  # fmt: skip

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        if self.running():
            self._kill_group()
            self.process.wait()

    def running(self) -> bool:
        if self.process.returncode is None and self.process.poll() is not None:
            self._kill_group()  # what it left behind; at once, while its number cannot be another's
        return self.process.returncode is None

    def _kill_group(self) -> None:
        """The whole group: loader workers too."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def dump(self) -> None:
        """Have it write its stacks."""
        self.process.send_signal(signal.SIGUSR1)
        end = time.monotonic() + _DUMP
        while time.monotonic() < end and self.running() and not self._stacks().endswith(_WHOLE):
            time.sleep(POLL)

    def _stacks(self) -> str:
        return self.stacks.read_text(encoding="utf-8", errors="replace")

    def rows(self) -> list[dict[str, Any]]:
        """What it has written so far; a line without its end is not there yet, or never will be."""
        lines = self.out.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def frames(self) -> list[str]:
        """file:line function of the user's frames, innermost first.

        Of the thread that crashed or was asked, which is the main one; of all threads where that one has none.
        """
        stacks = self._stacks()
        current = stacks[max(0, stacks.rfind("Current thread")) :].partition("\n\n")[0]
        return _theirs(current) or _theirs(stacks)

    def last_words(self) -> str:
        """The last line that it printed."""
        return next((line[:300] for line in reversed(logs.tail(self.log)) if line.strip()), "")


def _theirs(stacks: str) -> list[str]:
    found = [match.groups() for match in _FRAME.finditer(stacks)]
    return [f"{file}:{line} {name}" for file, line, name in found if not foreign(file)]


# -- in the child


def enter(request: dict[str, Any]) -> None:
    """First of all: it ends with whoever started it, and writes its stacks on a crash and when asked."""
    if sys.platform == "linux":  # Ctrl-C may come before Popen has returned, and nothing else runs after a SIGKILL
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != request["parent"]:
            os._exit(1)
    stacks = open(request["stacks"], "w", encoding="utf-8")  # noqa: SIM115  # open until the process ends
    faulthandler.enable(stacks)
    faulthandler.register(signal.SIGUSR1, stacks, all_threads=True)


def writer(request: dict[str, Any]) -> Callable[..., None]:
    """say(key=value, ...) appends one row."""
    out = open(request["out"], "a", encoding="utf-8")  # noqa: SIM115  # open until the process ends

    def say(**row: Any) -> None:
        out.write(json.dumps(row) + "\n")
        out.flush()

    return say
