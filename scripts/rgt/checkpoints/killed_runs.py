"""One short run of the user's command after the other, each watched from inside, some of them killed at a chosen step.

Example:
    with Stage(["python", "train.py", "--out", "{out}"], steps=30) as stage:
        whole = stage.run("whole", stage.command)
        killed = stage.run("killed", stage.command, kill=(12, signal.SIGKILL))
        resumed = stage.run("killed", stage.command, known=killed.weights())      # in the same folder

`{out}` is a new folder for each; without it each works in its own copy of the current directory.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt.checkpoint import names
from rgt.errors import RgtError, bad_input, lacking
from rgt.files import write_json
from rgt.log import summary
from rgt.machine import interpreter, processes
from rgt.units import show_size

_OBSERVER = Path(__file__).with_name("observer.py")
_ENDINGS = [*names.FILES, ".distcp", ".bin"]
_LARGEST, _MOST = 200 << 20, 20_000  # bytes and files of a working directory that is copied
_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "venv", "node_modules", "__pycache__", "wandb")
_GRACE = 30.0  # seconds for a save after SIGTERM
_RUNAWAY = 3  # times the steps that were asked for


@dataclass
class Leg:
    """One process's share of a run. Steps are counted from its own start."""

    states: dict[int, dict[str, Any]] = field(default_factory=dict)  # after so many steps
    steps: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] | None = None  # the state when it ended by itself
    stopped: bool = False  # by us, at the last step wanted
    code: int = 0
    tail: str = ""

    @property
    def made(self) -> int:
        return len(self.steps)

    def state(self, after: int) -> dict[str, Any]:
        """What is known of the state after so many steps; without `rng` where it is not that of a step's start."""
        if after in self.states:
            return self.states[after]
        at_end = self.end if self.end and self.end["at"] == after else {}
        return {name: value for name, value in at_end.items() if name != "rng"}

    @property
    def final(self) -> Any:
        """The weights after the last step."""
        return self.state(self.made).get("weights")

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [*self.states.values(), *([self.end] if self.end else [])]

    def weights(self) -> dict[str, int]:
        """Steps by the weights that they led to; the last where a warm-up's first step changes nothing."""
        return {state["weights"]: state["at"] for state in self.rows}

    def saves(self) -> list[int]:
        """Steps after which a checkpoint had been written."""
        pairs = itertools.pairwise(self.states.values())
        return [after["at"] for before, after in pairs if after["saved"] != before["saved"]]

    def averages(self, after: int) -> set[str]:
        """Copies of the weights that follow them, as they were after so many steps; a copy that rests is none."""
        moves: dict[str, list[bool]] = {}
        for before, later in itertools.pairwise(self.rows):
            for place in before["copies"].keys() & later["copies"].keys():
                moves.setdefault(place, []).append(before["copies"][place] != later["copies"][place])
        moving = {place for place, told in moves.items() if len(told) > 1 and sum(told) * 3 >= len(told)}
        return {digest for place, digest in self.state(after).get("copies", {}).items() if place in moving}


class Stage:
    """Where the runs take place; everything is gone when it ends."""

    def __init__(self, command: list[str], steps: int, timeout: float) -> None:
        self.command, self.steps, self.timeout = command, steps, timeout
        self.bounded = any("{steps}" in word for word in command)
        self.own_folder = any("{out}" in word for word in command)

    def __enter__(self) -> Stage:
        self.root = Path(tempfile.mkdtemp(prefix="rgt-certify-"))
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def folder(self, run: str) -> Path:
        """Its {out}, or its copy of the current directory; made at the first call."""
        folder = self.root / run
        if not folder.exists():
            folder.mkdir() if self.own_folder else _copy_directory(Path.cwd(), folder)
        return folder

    def forget(self, run: str) -> None:
        shutil.rmtree(self.root / run, ignore_errors=True)

    def run(
        self,
        run: str,
        command: list[str],
        kill: tuple[int, int] | None = None,
        known: dict[str, int] | None = None,
        checkpoint: Path | None = None,
    ) -> Leg:
        """Until it ends, is killed at that step, or has made the steps wanted, counted from where `known` says."""
        folder = self.folder(run)
        values = {"{out}": str(folder), "{steps}": str(self.steps), "{checkpoint}": str(checkpoint or "")}
        # not str.format: other braces are the program's
        words = [re.sub("|".join(map(re.escape, values)), lambda match: values[match[0]], word) for word in command]
        inside = Path(tempfile.mkdtemp(prefix=f"{run}-", dir=self.root))
        stop = self.steps * (_RUNAWAY if self.bounded else 1)
        orders = {"kill_at": kill and kill[0], "signal": kill and kill[1], "stop_at": stop, "known": known or {}}
        write_json(inside / "orders.json", {**orders, "out": str(folder), "endings": _ENDINGS})
        env = {**os.environ, "PYTHONUNBUFFERED": "1", **interpreter.observed(_OBSERVER, inside)}
        env.setdefault("WANDB_MODE", "offline")  # these runs are nobody's results
        with open(inside / "log", "wb") as log:
            try:
                streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": subprocess.STDOUT}
                cwd = None if self.own_folder else folder
                child = subprocess.Popen(words, **streams, env=env, cwd=cwd, start_new_session=True)
            except OSError as error:
                raise bad_input(f"cannot start {words[0]}: {error.strerror}") from None
            code = self._wait(child, inside)
        return _read(inside, code)

    def _wait(self, child: subprocess.Popen[bytes], inside: Path) -> int:
        """Its exit code, once nothing that it started lives any more."""
        before = signal.signal(signal.SIGTERM, lambda *_: os._exit(_end_all(child, inside)))
        try:
            code = child.wait(self.timeout)
            end = time.monotonic() + _GRACE  # a shell in front of it may have died at once
            while time.monotonic() < end and any(processes.carrying("RGT_INSIDE", str(inside))):
                time.sleep(0.05)
            return code
        except subprocess.TimeoutExpired:
            tail = "; ".join(summary.tail(inside / "log")[-3:])
            raise RgtError(f"no end within {self.timeout:.0f} s (--timeout); its last lines: {tail}", 1) from None
        finally:
            _end_all(child, inside)
            signal.signal(signal.SIGTERM, before)


def _end_all(child: subprocess.Popen[bytes], inside: Path) -> int:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    for pid in processes.carrying("RGT_INSIDE", str(inside)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    child.wait()
    return 128 + signal.SIGTERM


def _copy_directory(source: Path, target: Path) -> None:
    size = count = 0
    for folder, below, here in os.walk(source):
        below[:] = sorted(set(below) - _LEFT_OUT(folder, below))
        count += len(here)
        size += sum(os.lstat(os.path.join(folder, name)).st_size for name in here)
        if size > _LARGEST or count > _MOST:
            limit = f"more than {show_size(_LARGEST)} or {_MOST} files"
            raise bad_input(f"{source} holds {limit}, too much to copy: write {{out}} where COMMAND names its output")
    shutil.copytree(source, target, symlinks=True, ignore=_LEFT_OUT)


def _read(inside: Path, code: int) -> Leg:
    leg = Leg(code=code, tail="; ".join(summary.tail(inside / "log")[-3:]))
    for path in sorted(inside.glob("*.jsonl")):
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        rows = [json.loads(line) for line in lines if line.endswith("\n")]
        problem = next((row["problem"] for row in rows if "problem" in row), "")
        if problem:
            raise lacking(f"the observer inside the command met what it does not know: {problem}")
        if any("at" in row for row in rows) and not leg.states:
            leg.states = {row["at"]: row for row in rows if "at" in row and "end" not in row}
            leg.steps = [row for row in rows if "step" in row]
            leg.end = next((row for row in rows if "end" in row), None)
            leg.stopped = any("stopped" in row for row in rows)
    return leg
