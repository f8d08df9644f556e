"""The durable layer: a process on the box that looks at one run until it is over, whoever started it and left.

In the run's watch/ folder it keeps heartbeat.json (its last sign of life) and health.jsonl (one line a look, bounded),
beside it the run's training_status.md. One per run: a second one finds the lock taken and says so.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import RgtError, bad_input
from rgt.machine import processes
from rgt.run.record import OVER
from rgt.watch import alarm, look, status
from rgt.watch.look import Target

_LOG_BYTES = 1 << 20  # of health.jsonl; then its older half goes
_GONE = 3  # looks in a row without any log or folder: it was deleted


def start(target: Target, every: float, silenced: tuple[str, ...], foreground: bool, tell: bool = False) -> int:
    """Watch in a process that outlives its starter (own session, no terminal), or here. Returns its pid."""
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(files.locked(target.keep / "daemon.lock", wait=False))
        except BlockingIOError:
            pid = look.heartbeat(target).get("process", {}).get("pid", "unknown")
            raise bad_input(f"{target.where} is watched already, by pid {pid}; one daemon per run is enough") from None
        if foreground:
            watch(target, every, silenced, tell)
            return os.getpid()
        child = os.fork()
        if child:
            return child  # the lock is the child's, too, and stays held when ours is closed
        os.setsid()
        null = os.open(os.devnull, os.O_RDONLY)
        out = os.open(target.keep / "daemon.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for number, descriptor in enumerate((null, out, out)):
            os.dup2(descriptor, number)
        os.chdir("/")
        code = 1
        try:
            watch(target, every, silenced, tell)
            code = 0
        except BaseException as error:  # there is no terminal to show it
            print(f"{time.time():.0f} {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(code)


def watch(target: Target, every: float, silenced: tuple[str, ...], tell: bool = False) -> None:
    """Look until the run is over, its directory is gone, or SIGTERM or SIGINT comes."""
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)  # they are taken between two looks
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a closing terminal sends it
    beat: dict[str, Any] = {"every": every, "process": processes.identify(os.getpid()), "looks": 0, "state": "watching"}
    gone = 0
    while beat["state"] == "watching":
        now = _look(target, silenced, tell)
        gone = 0 if now else gone + 1
        if not target.keep.is_dir():
            return
        beat |= {"time": time.time(), "looks": beat["looks"] + 1, "step": now["step"] if now else None}
        if gone >= _GONE or (now and now["state"] in OVER):
            beat |= {"state": "ended", "reason": now["state"] if now else "gone"}
        with contextlib.suppress(RgtError):
            files.write_json(target.keep / "heartbeat.json", beat)
        if beat["state"] == "watching" and signal.sigtimedwait(stops, every):
            beat |= {"time": time.time(), "state": "ended", "reason": "told to stop"}
            with contextlib.suppress(RgtError):
                files.write_json(target.keep / "heartbeat.json", beat)


def _look(target: Target, silenced: tuple[str, ...], tell: bool) -> dict[str, Any] | None:
    """Its `now`. A look that fails (a full disk, a network disk that hangs) is no reason to stop looking."""
    if target.directory and not target.directory.is_dir():
        return None
    try:
        fresh = look.find_target((str(target.directory),)) if target.directory else target  # logs may have come since
        found = look.look(fresh, silenced)
    except (RgtError, OSError) as error:
        print(f"{time.time():.0f} {error}", file=sys.stderr, flush=True)
        return None
    now: dict[str, Any] = found["now"]
    row = {
        **{name: now[name] for name in ("time", "state", "step")},
        "loss": now["metrics"].get(found["roles"].get("loss", "")),
        "findings": sorted({row["code"] for row in found["findings"] if row["severity"] != "info"}),
        "machine": found["machine"],
    }
    with contextlib.suppress(RgtError):
        bound(target.keep / "health.jsonl")
        files.append_jsonl(target.keep / "health.jsonl", row)
        status.write(target.status, found)
    for line in alarm.tell(found) if tell else ():
        print(f"{time.time():.0f} {line}", file=sys.stderr, flush=True)
    return now


def bound(path: Path, limit: int = _LOG_BYTES) -> None:
    """Drop the older half of a health log that has grown to its limit."""
    with contextlib.suppress(OSError):
        if path.stat().st_size >= limit:
            data = path.read_bytes()
            files.write_bytes(path, data[data.find(b"\n", len(data) // 2) + 1 :])
