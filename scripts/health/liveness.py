"""Is it going on? Judged by the log, its clock and the checkpoints; a process that lives proves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import Any

from health.view import View
from rgt import logs, units
from rgt.report import Finding

QUIET = 600.0  # seconds without a line that need no explanation
QUIET_STEPS = 20  # or this many steps, or gaps between two lines, of its own speed
_FROZEN = 3  # times the usual gap between two steps without a step, while lines still come
_LOOP = 3  # starts without getting further that make a loop
_UNSAVED = 3600.0  # seconds of work that may exist only in memory


def findings(view: View) -> Iterator[Finding]:
    yield from not_a_number(view)
    yield from problems(view)
    yield from restarts(view)
    if not view.finished:
        yield from stalled(view)
        yield from unsaved(view)


def not_a_number(view: View) -> Iterator[Finding]:
    for name, rows in view.not_numbers().items():
        now = view.metrics.get(name)
        still = isinstance(now, str)
        count = view.counts.get(f"nan:{name}", len(rows))
        first, last = rows[0], rows[-1]
        yield Finding(
            "nan",
            "error" if still and "loss" in name else "warn" if still else "info",
            f"{name} is not a number since {first['x']:g}" if still else f"{name} was not a number {count} times",
            path=view.log,
            where=name,
            evidence=last["line"],
            fix=f"go back to a checkpoint before {first['x']:g}" if still else None,
            sure=0.99,
        )


def problems(view: View) -> Iterator[Finding]:
    """A repeated OOM counts although each was survived: the next one may come in the save."""
    seen: set[str] = set()
    fatal = any(row["code"] != "crash" and not row["recovered"] for row in view.problems)
    for row in reversed(view.problems):
        code, count = row["code"], view.counts.get(row["code"], 1)
        if code in seen or (code == "crash" and fatal):
            continue
        seen.add(code)
        repeated = code == "oom" and count > 1
        severity = "error" if not row["recovered"] else "warn" if repeated else "info"
        times = f" {count} times" if count > 1 else ""
        after = "; training went on after it" if row["recovered"] else ""
        yield Finding(
            code, severity, f"{logs.SENTENCES[code]}{times}{after}", path=view.log, evidence=row["line"], sure=0.95
        )


def restarts(view: View) -> Iterator[Finding]:
    rows = view.restarts[-_LOOP:]
    if view.counts.get("restarts", 0) < _LOOP:
        return
    furthest = [row["at"] for row in rows]
    gained = max(furthest) - min(furthest)
    if gained <= 0.1 * max(furthest, default=0) + 1:
        told = ", ".join(f"{row['at']} to {row['to']}" for row in rows)
        yield Finding(
            "restarts",
            "error",
            f"started again {view.counts['restarts']} times without getting further than step {max(furthest)}",
            path=view.log,
            evidence=f"steps went back: {told}",
            fix="read the end of the log before each start; a resume that fails at one step will fail there again",
            sure=0.9,
        )


def stalled(view: View) -> Iterator[Finding]:
    if view.age is None:
        return
    gap = view.gap or 0.0
    quiet = max(QUIET, QUIET_STEPS * gap)
    fix = view.stall_fix()
    if view.age > quiet:
        nobody = "; no process here writes to it any more" if view.writers == [] else ""
        buffered = "; its stdout may be buffered (PYTHONUNBUFFERED=1)" if not view.last_line else ""
        message = f"no new line for {units.show_duration(view.age)}{nobody}{buffered}"
        usual = f"a line every {units.show_duration(gap)} is usual" if gap else "how often it writes is not known"
        sure = 0.95 if nobody or view.age > 3 * quiet else 0.8
        yield Finding(
            "stalled", "warn", message, evidence=f"{usual}; last: {view.last_line}", path=view.log, fix=fix, sure=sure
        )
    elif view.frozen and view.frozen > max(QUIET, _FROZEN * QUIET_STEPS * gap / 4):
        message = f"lines still come, but step {view.step} has not changed for {units.show_duration(view.frozen)}"
        yield Finding("stalled", "warn", message, evidence=f"last: {view.last_line}", path=view.log, fix=fix, sure=0.8)


def unsaved(view: View) -> Iterator[Finding]:
    """Due is what the run itself did before; without a first checkpoint, an hour."""
    steps = [int(row["step"]) for row in view.saves if row.get("step") is not None]
    gaps = [after - before for before, after in pairwise(steps) if after > before]
    if gaps and view.step is not None and view.step - steps[-1] > 2 * median(gaps):
        yield _unsaved(
            view, f"the last checkpoint was at step {steps[-1]}, one every {median(gaps):g} steps was usual", 0.85
        )
    elif view.saved_at and view.save_gap and view.now - view.saved_at > 2.5 * view.save_gap:
        late = units.show_duration(view.now - view.saved_at)
        yield _unsaved(view, f"no checkpoint for {late}, one every {units.show_duration(view.save_gap)} was usual", 0.8)
    elif not view.saves and view.saved_at is None and view.running > _UNSAVED:
        yield _unsaved(view, f"no checkpoint yet after {units.show_duration(view.running)}", 0.6)


def _unsaved(view: View, message: str, sure: float) -> Finding:
    fix = "look at the free space and at how often it is told to save"
    return Finding("cadence", "warn", message, path=view.where, evidence=_step(view.step), fix=fix, sure=sure)


def _step(step: Any) -> str:
    return f"now at step {step}" if step is not None else "the step is not known"
