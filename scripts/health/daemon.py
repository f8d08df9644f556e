"""The durable layer: a process on the box that looks at one run until it is over, whoever started it and left.

In the run's watch/ folder it keeps heartbeat.json (its last sign of life) and health.jsonl (one line a look, bounded),
beside it the run's training_status.md. One per run: a second one finds the lock taken and says so.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from health import look, status
from health.target import Target, find
from health.view import OVER
from rgt import files, procs
from rgt.errors import RgtError, bad_input, from_os_error

_LOG_BYTES = 1 << 20  # of health.jsonl; then its older half goes
_GONE = 3  # looks in a row without any log or folder: it was deleted


def lock(target: Target) -> int:
    """The daemon's place; held by whoever has the descriptor open, so it is free again when that process is gone."""
    try:
        target.keep.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(target.keep / "daemon.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = heartbeat(target).get("process", {}).get("pid", "unknown")
        raise bad_input(f"{target.where} is watched already, by pid {pid}; one daemon per run is enough") from None
    except OSError as error:
        raise from_os_error(error, f"keep a daemon's files in {target.keep}") from None
    return descriptor


def heartbeat(target: Target) -> dict[str, Any]:
    try:
        found: dict[str, Any] = files.read_json(target.keep / "heartbeat.json", "watch_heartbeat")
    except RgtError:
        return {}
    return found


def detach(target: Target, run: Callable[[], None]) -> int:
    """Start `run` in a process that nobody's end ends: own session, init's child, no terminal. Returns its pid."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        grandchild = os.fork()
        if grandchild:
            os.write(write, str(grandchild).encode())
            os._exit(0)
        os.close(read)
        os.close(write)
        _forget_terminal(target.keep / "daemon.log")
        code = 1
        try:
            run()
            code = 0
        except BaseException as error:  # nobody else will tell
            print(f"{time.time():.0f} {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(code)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read, "rb") as pipe:
        return int(pipe.read() or b"0")


def _forget_terminal(log: Path) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for target, source in ((0, null), (1, out), (2, out)):
        os.dup2(source, target)
    os.chdir("/")


def watch(target: Target, every: float, silenced: tuple[str, ...]) -> None:
    """Look until the run is over, its directory is gone, or we are told to stop."""
    stop = _Stop()
    looks, gone, reason = 0, 0, ""
    while not reason:
        found = _look(target, silenced)
        looks += 1
        gone = 0 if found else gone + 1
        if found:
            _write(target, found)
        state = found["now"]["state"] if found else "gone"
        reason = state if state in OVER or gone >= _GONE else "told to stop" if stop.asked else ""
        if not target.keep.is_dir():
            return
        _beat(target, every, looks, found, reason)
        if not reason:
            stop.wait(every)
            reason = "told to stop" if stop.asked else ""
            if reason:
                _beat(target, every, looks, found, reason)


class _Stop:
    """SIGTERM and SIGINT end the wait; SIGHUP, which a closing terminal sends, does not."""

    def __init__(self) -> None:
        self.asked = False
        self.read, self.write = os.pipe()
        os.set_blocking(self.write, False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        with contextlib.suppress(OSError):
            os.write(self.write, b"x")

    def wait(self, seconds: float) -> None:
        select.select([self.read], [], [], seconds)


def _look(target: Target, silenced: tuple[str, ...]) -> dict[str, Any] | None:
    """A look that fails (a full disk, a network disk that hangs) is no reason to stop looking."""
    if target.directory and not target.directory.is_dir():
        return None
    try:
        fresh = find((str(target.directory),)) if target.directory else target  # logs may have come since
        return look.look(fresh, silenced)
    except (RgtError, OSError) as error:
        print(f"{time.time():.0f} {error}", file=sys.stderr, flush=True)
        return None


def _write(target: Target, found: dict[str, Any]) -> None:
    now = found["now"]
    row = {
        "time": now["time"],
        "state": now["state"],
        "step": now["step"],
        "loss": now["metrics"].get(found["roles"].get("loss", "")),
        "findings": sorted({row["code"] for row in found["findings"] if row["severity"] != "info"}),
        "machine": found["machine"][-1] if found["machine"] else {},
    }
    with contextlib.suppress(RgtError):
        bound(target.keep / "health.jsonl")
        files.append_jsonl(target.keep / "health.jsonl", row, "watch_health")
        if target.status:
            files.write_text(target.status, status.render(found))


def bound(path: Path, limit: int = _LOG_BYTES) -> None:
    """Drop the older half of a health log that has grown to its limit."""
    try:
        if path.stat().st_size < limit:
            return
        data = path.read_bytes()
    except OSError:
        return
    half = data[len(data) // 2 :]
    files.write_bytes(path, half[half.find(b"\n") + 1 :])


def _beat(target: Target, every: float, looks: int, found: dict[str, Any] | None, reason: str) -> None:
    row: dict[str, Any] = {
        "time": time.time(),
        "state": "ended" if reason else "watching",
        "every": every,
        "process": procs.identify(os.getpid()),
        "looks": looks,
        "step": found["now"]["step"] if found else None,
    }
    with contextlib.suppress(RgtError):
        files.write_json(
            target.keep / "heartbeat.json", row | ({"reason": reason} if reason else {}), "watch_heartbeat"
        )
