"""One run as its files tell it: which log counts, which curve is the loss, how old it all is.

Example:
    view = build(records, facts)         view.step, view.points("loss"), view.age, view.finished
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from health.collect import Record
from health.series import Points

TABLE = "metrics.jsonl"
_LOSSES = ("loss", "train_loss", "lm_loss", "total_loss", "training_loss", "train_total_loss")
_VAL_LOSSES = ("val_loss", "eval_loss", "valid_loss", "dev_loss", "test_loss")
_LRS = ("lr", "learning_rate", "train_lr", "train_learning_rate")
_NORMS = ("grad_norm", "train_grad_norm", "gnorm", "norm")
_RATES = ("tokens_per_s", "samples_per_s", "it_per_s")
_ACCURACIES = ("val_acc", "val_accuracy", "eval_accuracy", "eval_acc", "acc", "accuracy", "train_acc", "acc@1")
ENDS = ("finished", "failed", "stopped", "preempted", "destroyed")  # events
OVER = ("finished", "failed", "stopped")  # states
_SETTLED = 120.0  # seconds without a line after which the last step of the last epoch is the end


@dataclass
class Facts:
    """What the files beside the log and the machine say."""

    now: float
    where: str
    mtimes: dict[str, float] = field(default_factory=dict)  # of the logs
    event: str = ""  # the last one of events.jsonl that ends a run, or restarts it
    reason: str = ""  # why it failed
    results: bool = False
    writers: list[int] | None = None  # pids that write to the logs; None: cannot be known
    saved: list[float] = field(default_factory=list)  # when checkpoints were written, oldest first
    since: float = 0.0  # when it started, or was first looked at
    progress: float = 0.0  # when the step last changed
    line_gap: float | None = None  # seconds between two lines, from one look to the next


@dataclass
class View:
    facts: Facts
    records: dict[str, Record]
    main: Record
    log: str
    chosen: dict[str, tuple[str, Points]] = field(default_factory=dict)  # role -> name and points

    # -- counters

    def _first(self, name: str) -> Any:
        values = (getattr(record, name) for record in (self.main, *self.records.values()))
        return next((value for value in values if value is not None), None)

    @property
    def step(self) -> int | None:
        return None if self.main.step is None else self.main.base + self.main.step

    @property
    def total(self) -> int | None:
        """Not one of an epoch, and not one of something else: no run is further than its end."""
        total = self._first("total")
        wrong = total is not None and (self.main.furthest > total or (self.main.base and total == self.main.total))
        return None if wrong else total

    @property
    def epoch(self) -> float | None:
        return self._first("epoch")  # type: ignore[no-any-return]

    @property
    def epochs(self) -> int | None:
        return self._first("epochs")  # type: ignore[no-any-return]

    @property
    def it_per_s(self) -> float | None:
        return self._first("it_per_s")  # type: ignore[no-any-return]

    @property
    def tokens_per_s(self) -> float | None:
        return self._first("tokens_per_s")  # type: ignore[no-any-return]

    @property
    def eta(self) -> float | None:
        if self.finished:
            return None
        said = self._first("eta")
        if said is not None:
            return float(said)
        if self.total and self.step is not None and self.it_per_s:
            return max(0.0, (self.total - self.step) / self.it_per_s)
        if self.epochs and self.epoch is not None and self.main.epoch_time:
            return max(0.0, self.epochs - self.epoch) * self.main.epoch_time
        return None

    @property
    def share_done(self) -> float | None:
        if self.total and self.step is not None:
            return min(1.0, self.step / self.total)
        if self.epochs and self.epoch is not None:
            return min(1.0, self.epoch / self.epochs)
        return None

    # -- what was seen

    @property
    def metrics(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for record in (*self.records.values(), self.main):
            found |= record.shown_metrics()
        return found

    @property
    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for record in self.records.values():
            for name, count in record.counts.items():
                found[name] = max(found.get(name, 0), count)  # the ranks of one job tell of one event each
        return found

    @property
    def problems(self) -> list[dict[str, Any]]:
        return [row for record in self.records.values() for row in record.problems]

    @property
    def saves(self) -> list[dict[str, Any]]:
        return max((record.saves for record in self.records.values()), key=len, default=[])

    @property
    def restarts(self) -> list[dict[str, Any]]:
        return max((record.restarts for record in self.records.values()), key=len, default=[])

    @property
    def last_line(self) -> str:
        return self.main.last_line[:200].strip()

    def not_numbers(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for record in self.records.values():
            for row in record.not_numbers:
                found.setdefault(row["name"], []).append(row)
        return found

    def points(self, role: str) -> Points:
        return self.chosen.get(role, ("", []))[1]

    def name_of(self, role: str) -> str:
        return self.chosen.get(role, ("", []))[0]

    # -- clocks

    @property
    def now(self) -> float:
        return self.facts.now

    @property
    def where(self) -> str:
        return self.facts.where

    @property
    def writers(self) -> list[int] | None:
        return self.facts.writers

    @property
    def age(self) -> float | None:
        """Seconds since the last line of any log."""
        return max(0.0, self.now - max(self.facts.mtimes.values())) if self.facts.mtimes else None

    @property
    def gap(self) -> float | None:
        """Seconds between two lines that show a step."""
        places = [x for x, _ in self.points("loss")[-20:]]
        gaps = [after - before for before, after in pairwise(places) if after > before]
        if gaps and self.it_per_s and self.main.step is not None:
            return max(median(gaps), 1.0) / self.it_per_s
        return self.facts.line_gap

    @property
    def frozen(self) -> float | None:
        return self.now - self.facts.progress if self.facts.progress and self.step is not None else None

    @property
    def running(self) -> float:
        return self.now - self.facts.since if self.facts.since else 0.0

    @property
    def saved_at(self) -> float | None:
        return self.facts.saved[-1] if self.facts.saved else None

    @property
    def save_gap(self) -> float | None:
        times = self.facts.saved
        gaps = [after - before for before, after in pairwise(times) if after - before > 1]
        return median(gaps) if len(gaps) >= 2 else None

    # -- the end

    @property
    def state(self) -> str:
        """running, finished, failed, stopped, or waiting for its first line."""
        event = self.facts.event
        if event in ENDS:
            return event if event in OVER else "stopped"
        dead = any(not row["recovered"] for row in self.problems)
        if not dead and (
            self.facts.results or any(record.ended for record in self.records.values()) or self._complete()
        ):
            return "finished"
        if not any(record.lines for record in self.records.values()):
            return "waiting"
        return "running"

    @property
    def finished(self) -> bool:
        """No more lines are to be expected."""
        return self.state in OVER

    def _complete(self) -> bool:
        """At its last step, and quiet: a bar that counts one of many epochs starts again at once."""
        share = self.share_done
        quiet = self.writers == [] or (self.age or 0.0) > _SETTLED
        return share is not None and share >= 1.0 and quiet

    def stall_fix(self) -> str:
        pid = self.writers[0] if self.writers else None
        return f"py-spy dump --pid {pid}" if pid else "look for its process: python scripts/takeover.py snapshot"


def build(records: dict[str, Record], facts: Facts) -> View:
    """`records` by path. A metrics.jsonl is preferred for curves; for counters what has got furthest."""
    log = next((path for path in records if Path(path).name != TABLE), next(iter(records), ""))
    main = max(
        records.values(), key=lambda record: (record.step is not None, record.furthest, record.lines), default=Record()
    )
    view = View(facts, records, main, log)
    roles = {
        "loss": _LOSSES,
        "val_loss": _VAL_LOSSES,
        "lr": _LRS,
        "grad_norm": _NORMS,
        "rate": _RATES,
        "accuracy": _ACCURACIES,
    }
    for role, names in roles.items():
        _choose(view, role, names)
    if "loss" not in view.chosen:
        others = {name for record in records.values() for name in record.series if name.endswith("loss")}
        _choose(view, "loss", tuple(sorted(name for name in others if not name.startswith(("val", "eval", "test")))))
    return view


def _choose(view: View, role: str, names: tuple[str, ...]) -> None:
    for name in names:
        found = [
            (Path(path).name == TABLE, record.series[name].count, path)
            for path, record in view.records.items()
            if name in record.series
        ]
        if found:
            _, _, path = max(found)
            view.chosen[role] = (name, view.records[path].series[name].points())
            return
