"""Runs the probes in a child process: a hang, a crash or a segfault of the user's code is reported, not suffered."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rgt.errors import BAD_INPUT, RgtError, bad_input

_CHILD = Path(__file__).with_name("child") / "run.py"
_POLL = 0.05
_RETRIES = 1  # a second crash or hang is not chance, and every new process costs seconds
_DUMP = 3.0  # seconds a stuck process gets to write its stacks
_FRAME = re.compile(r'File "([^"]+)", line (\d+) in (.+)')
_NOT_THEIRS = ("site-packages", "/lib/python", str(Path(__file__).resolve().parent), "<frozen")


def probe(factory: str, names: tuple[str, ...], *, paths: list[str], steps: int, timeout: float, seed: int,
          tell: Callable[[dict[str, Any]], None] = lambda row: None) -> list[dict[str, Any]]:  # fmt: skip
    """Results in order; `tell` is called with each as it comes. Raises the child's sentence when nothing can run."""
    done: list[dict[str, Any]] = []
    end = time.monotonic() + timeout
    left, failures = list(names), 0
    with tempfile.TemporaryDirectory(prefix="rgt-probes-") as folder:
        while left:
            request = {"factory": factory, "paths": paths, "probes": left, "steps": steps, "seed": seed,
                       "alone": len(names) == 1, "seconds": max(2.0, timeout / 6)}  # fmt: skip
            rows, lost = _attempt(request, Path(folder), end, _limit(timeout, len(names)), tell)
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


def _limit(timeout: float, count: int) -> float:
    """Of several probes one may take half of the time: the others must still be heard."""
    return 0.95 * timeout if count == 1 else timeout / 2


def _attempt(request: dict[str, Any], folder: Path, end: float, limit: float,
             tell: Callable[[dict[str, Any]], None]) -> tuple[list[Any], dict[str, Any] | None]:  # fmt: skip
    """Results of one child, and the one that stands for the probe at which it ended before its time."""
    out, stacks, log = folder / "out.jsonl", folder / "stacks.txt", folder / "log.txt"
    out.write_text("")
    stacks.write_text("")
    request = {**request, "out": str(out), "stacks": str(stacks)}
    with log.open("wb") as sink:
        child = subprocess.Popen([sys.executable, str(_CHILD)], stdin=subprocess.PIPE, stdout=sink, stderr=sink,
                                 start_new_session=True)  # fmt: skip
        assert child.stdin
        child.stdin.write(json.dumps(request).encode())
        child.stdin.close()
        hung = _wait(child, out, end, limit, tell)
        hung = "hang" if hung and request["alone"] else hung  # nothing else took its time
        if hung:
            dump_and_kill(child, stacks)
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    fatal = next((row for row in rows if "fatal" in row), None)
    if fatal:
        raise RgtError(fatal["fatal"], fatal.get("code", BAD_INPUT))
    results = [row for row in rows if "probe" in row]
    started = [row["start"] for row in rows if "start" in row]
    if len(results) == len(request["probes"]):
        return results, None
    at = started[-1] if len(started) > len(results) else None
    return results, _lost(at, child.returncode, hung, stacks.read_text(errors="replace"), log)


def _wait(child: subprocess.Popen[bytes], out: Path, end: float, limit: float,
          tell: Callable[[dict[str, Any]], None]) -> str:  # fmt: skip
    """Why it has to be ended: "hang" when nothing new came for `limit` seconds, "late" when the whole time is over."""
    told, since = 0, time.monotonic()
    while True:
        ended = child.poll() is not None
        lines = out.read_text(encoding="utf-8").splitlines(keepends=True)
        for line in lines[told:]:
            if line.endswith("\n"):
                told, since = told + 1, time.monotonic()
                if line.startswith('{"probe"'):
                    tell(json.loads(line))
        now = time.monotonic()
        if ended or now - since > limit or now > end:
            # half of the limit and the end of all time: more likely stuck than slow
            return "" if ended else "hang" if now - since > limit / 2 else "late"
        time.sleep(_POLL)


def dump_and_kill(child: subprocess.Popen[bytes], stacks: Path) -> None:
    """Ask for the Python stacks, then end the whole group (loader workers too)."""
    child.send_signal(signal.SIGUSR1)
    end = time.monotonic() + _DUMP
    while time.monotonic() < end and child.poll() is None and "File" not in stacks.read_text(errors="replace"):
        time.sleep(_POLL)
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def frames(stacks: str) -> list[str]:
    """file:line function of the user's frames, innermost first, of the thread that counts (the last printed)."""
    found = [match.groups() for match in _FRAME.finditer(stacks)]
    return [f"{file}:{line} {name}" for file, line, name in found if not any(part in file for part in _NOT_THEIRS)]


def _lost(at: str | None, code: int | None, hung: str, stacks: str, log: Path) -> dict[str, Any]:
    own = frames(stacks)
    where = own[0] if own else ""
    if hung == "late" and at is not None:
        return _unjudged(at, f"no time left; it was at {where or 'its start'}; give --timeout more")
    words = log.read_text(errors="replace").strip().splitlines()
    last = words[-1][:300] if words else ""
    if hung:
        code_word, message = "hang", "did not end in its time"
        fix = "what waits there: a lock, a queue, a collective, a loader worker? --timeout gives it longer"
    else:
        how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"
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
