"""What a run cost: the hours its box was up and stopped, from the run's events, times the prices that are recorded.

Example:
    bill = bill_of(Path("runs/x"))      bill.up and bill.stopped (hours), bill.cost (None: no rate is known)

The box is up from the first sign of it (box_started, launched, submitted, resumed, the start of a lease) until
box_stopped or destroyed. Stopped it bills its disk, where a rate for that is known. Without an end on record it is
counted to now while a lease holds, else to the run's last event, and the bill says so. No price is invented.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import RgtError
from rgt.run.record import Event, Run, event_time

_UP = ("box_started", "launched", "submitted", "resumed")
_STARTS = ("launched", "resumed")  # of the job
_HELD = {"started": True, "extended": True, "ended": False, "stopped": False}  # after these events of a lease


@dataclass
class Stretch:
    """Time in one state at one price."""

    start: float
    end: float
    is_up: bool
    rate: float | None  # per hour

    @property
    def hours(self) -> float:
        return max(0.0, self.end - self.start) / 3600


@dataclass
class Bill:
    run_id: str
    box: str  # provider's id, or the run's own: boxes that several runs share are counted once
    stretches: list[Stretch] = field(default_factory=list)
    failed: float = 0.0  # hours from a start of the job to its failure
    failed_cost: float | None = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def up(self) -> float:
        return sum(one.hours for one in self.stretches if one.is_up)

    @property
    def stopped(self) -> float:
        return sum(one.hours for one in self.stretches if not one.is_up)

    @property
    def cost(self) -> float | None:
        """None without a rate for the time that it was up. A stopped disk of unknown price is a note."""
        if not self.stretches or any(one.rate is None for one in self.stretches if one.is_up and one.hours):
            return None
        return sum(one.hours * (one.rate or 0.0) for one in self.stretches)

    def sentence(self) -> str:
        money = "unknown cost (no rate is recorded)" if self.cost is None else f"{self.cost:.2f}"
        hours = f"{self.up:.2f} h up" + (f", {self.stopped:.2f} h stopped" if self.stopped else "")
        return "; ".join([f"{money}: {hours}", *self.notes])

    def as_dict(self) -> dict[str, Any]:
        numbers = {"hours_up": self.up, "hours_stopped": self.stopped, "cost": self.cost}
        numbers |= {"failed_hours": self.failed, "failed_cost": self.failed_cost}
        rounded = {name: None if value is None else round(value, 4) for name, value in numbers.items()}
        return {"run_id": self.run_id, "box": self.box, **rounded, "notes": self.notes}


def bill_of(path: Path, rate: float | None = None, stopped_rate: float | None = None, now: float | None = None) -> Bill:
    """Of a run directory, or of the folder that a run was pulled into; `rate` replaces what is recorded."""
    rows: list[Event] = []
    beside = path.absolute().with_name(f"{path.absolute().name}.events.jsonl")  # of a sealed run
    for file in (Run(path).events, beside):
        with contextlib.suppress(RgtError):
            rows += files.read_jsonl(file, bad=[])
    recorded = None
    with contextlib.suppress(RgtError, AttributeError, TypeError):
        recorded = ((files.read_json(Run(path).run_json).get("job") or {}).get("spec") or {}).get("rate")
    return bill_for(rows, path.absolute().name, rate, stopped_rate, now, recorded)


def bill_for(
    events: list[Event],
    run_id: str,
    rate: float | None = None,
    stopped_rate: float | None = None,
    now: float | None = None,
    recorded: Any = None,
) -> Bill:
    rows = sorted((row for row in events if event_time(row)), key=event_time)
    prices = [row for row in rows if row.get("event") == "lease" and "rate" in row]
    first = _price(prices[0]["rate"]) if prices else _price(recorded)  # also for the hours before the lease
    running, resting = first, _price(prices[0].get("stopped_rate")) if prices else None
    bill = Bill(run_id, next((str(row["id"]) for row in rows if row.get("event") == "lease" and row.get("id")), run_id))
    since, is_up, held, job_start = 0.0, False, False, 0.0

    def close(until: float) -> None:
        given, recorded = (rate, running) if is_up else (stopped_rate, resting)
        price = recorded if given is None else given
        if since and until > since:
            bill.stretches.append(Stretch(since, until, is_up, price))

    for row in rows:
        when, word, what = event_time(row), row.get("event"), row.get("what")
        held = _HELD.get(str(what), held) if word == "lease" else held
        if word in _UP or (word == "lease" and what == "started" and not is_up and not since):
            if not is_up:
                close(when)
                since, is_up = when, True
        elif word in ("box_stopped", "destroyed"):
            close(when)
            since, is_up = (when if word == "box_stopped" else 0.0), False
        if word == "lease" and "rate" in row and _price(row["rate"]) != running:
            close(when)
            since, running = (when if since else 0.0), _price(row["rate"])
        job_start = when if word in _STARTS else job_start
        if word == "failed" and job_start:
            hours, price = (when - job_start) / 3600, running if rate is None else rate
            bill.failed += hours
            bill.failed_cost = None if price is None or bill.failed_cost is None else bill.failed_cost + hours * price
            job_start = 0.0
    # the stretch that no event ended: to now while somebody answers for the box, else to what is on record
    if since and (held or not is_up):
        close(now if now is not None else time.time())
    elif since:
        close(event_time(rows[-1]))
        bill.notes.append("no stop of the box is recorded: counted to the last event")
    if bill.stopped and any(one.rate is None for one in bill.stretches if not one.is_up):
        bill.notes.append("what the stopped disk costs is not recorded")
    return bill


def _price(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 else None


def total(bills: list[Bill]) -> float | None:
    """Of all of them, each box's hours once; None when one has no rate."""
    if any(bill.cost is None for bill in bills):
        return None
    money = 0.0
    for box in {bill.box for bill in bills}:
        done = 0.0
        for one in sorted((s for bill in bills if bill.box == box for s in bill.stretches), key=lambda s: s.start):
            money += max(0.0, one.end - max(one.start, done)) / 3600 * (one.rate or 0.0)
            done = max(done, one.end)
    return money
