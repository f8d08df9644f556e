"""Runs the probes in a child process: a hang, a crash or a segfault of the user's code is reported, not suffered."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from probing.process import POLL, Child
from rgt import procs
from rgt.errors import BAD_INPUT, RgtError, bad_input

_RETRIES = 1  # a second crash or hang is not chance, and every new process costs seconds


def probe(factory: str, names: tuple[str, ...], *, paths: list[str], steps: int, timeout: float, seed: int,
          tell: Callable[[dict[str, Any]], None] = lambda row: None) -> list[dict[str, Any]]:  # fmt: skip
    """Results in order; `tell` is called with each as it comes. Raises the child's sentence when nothing can run."""
    done: list[dict[str, Any]] = []
    end = time.monotonic() + timeout
    left, failures, alone = list(names), 0, len(names) == 1
    limit = 0.95 * timeout if alone else timeout / 2  # of several probes, the others must still be heard
    with tempfile.TemporaryDirectory(prefix="rgt-probes-") as folder:
        while left:
            request = {"factory": factory, "paths": paths, "probes": left, "steps": steps, "seed": seed,
                       "seconds": max(2.0, timeout / 6)}  # fmt: skip
            rows, lost = _attempt(request, Path(folder), end, limit, alone, tell)
            done += [*rows, *([lost] if lost else [])]
            left = left[len(rows) + bool(lost) :]
            if left and time.monotonic() > end:
                done += [_unjudged(name, f"no time left of {timeout:g} s; give --timeout more") for name in left]
                return done
            failures += bool(lost)
            if lost and lost.get("nothing_ran"):
                return done
            if left and failures > _RETRIES:
                why = f"the process ended {failures} times before its time; mend that first"
                return done + [_unjudged(name, why) for name in left]
    return done


def _attempt(request: dict[str, Any], folder: Path, end: float, limit: float, alone: bool,
             tell: Callable[[dict[str, Any]], None]) -> tuple[list[Any], dict[str, Any] | None]:  # fmt: skip
    """Results of one child, and the one that stands for the probe at which it ended before its time."""
    with Child("run.py", request, folder) as child:
        hung = _wait(child, end, limit, tell)
        hung = "hang" if hung and alone else hung  # nothing else took its time
        if hung:
            child.dump()
    rows = child.rows()
    fatal = next((row for row in rows if "fatal" in row), None)
    if fatal:
        raise RgtError(fatal["fatal"], fatal.get("code", BAD_INPUT))
    results = [row for row in rows if "probe" in row]
    started = [row["start"] for row in rows if "start" in row]
    if len(results) == len(request["probes"]):
        return results, None
    at = started[-1] if len(started) > len(results) else None
    return results, _lost(at, child, hung)


def _wait(child: Child, end: float, limit: float, tell: Callable[[dict[str, Any]], None]) -> str:
    """Why it has to be ended: "hang" when nothing new came for `limit` seconds, "late" when the whole time is over."""
    told, since = 0, time.monotonic()
    while True:
        running = child.running()
        rows, now = child.rows(), time.monotonic()
        for row in rows[told:]:
            since = now
            if "probe" in row:
                tell(row)
        told = len(rows)
        if not running or now - since > limit or now > end:
            # half of the limit and the end of all time: more likely stuck than slow
            return "" if not running else "hang" if now - since > limit / 2 else "late"
        time.sleep(POLL)


def _lost(at: str | None, child: Child, hung: str) -> dict[str, Any]:
    where, last, code = next(iter(child.frames()), ""), child.last_words(), child.process.returncode
    if hung == "late" and at is not None:
        return _unjudged(at, f"no time left; it was at {where or 'its start'}; give --timeout more")
    if hung:
        code_word, message = "hang", "did not end in its time"
        fix = "what waits there: a lock, a queue, a collective, a loader worker? --timeout gives it longer"
    else:
        how = f"{procs.signal_name(-code)}" if code < 0 else f"exit code {code}"
        code_word, message = "crash", f"the process ended with {how}"
        fix = "SIGKILL is usually the memory limit; SIGSEGV a native library: run it alone under faulthandler"
    if at is None and not hung and "Error" in last:
        raise bad_input(f"the factory's process ended before it was built: {last}")
    name = at or "factory"
    finding = {"code": code_word, "severity": "error", "message": message, "path": "", "where": f"{name}: {where}",
               "evidence": last or None, "fix": fix}  # fmt: skip
    finding = {key: value for key, value in finding.items() if value is not None}
    return {"probe": name, "verdict": "found", "evidence": f"{message}{' at ' + where if where else ''}", "next": fix,
            "seconds": 0.0, "findings": [finding], "nothing_ran": at is None}  # fmt: skip


def _unjudged(name: str, why: str) -> dict[str, Any]:
    return {"probe": name, "verdict": "unjudged", "evidence": why, "next": "", "seconds": 0.0, "findings": []}
