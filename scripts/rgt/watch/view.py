"""One run as its files tell it: which log counts, which curve is the loss, how old it all is; and is it going on?

Example:
    view = View({"train.log": log}, now=time.time(), where="runs/x")         view.step, view.points("loss"), view.age
    for finding in liveness(view): ...

Whether it goes on is judged by the log, its clock and the checkpoints; a process that lives proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from rgt import bundle, units
from rgt.log.fate import SENTENCES, Problem, problem_in, says_ended
from rgt.log.history import History
from rgt.log.line import plain
from rgt.log.series import Points
from rgt.log.starts import false_starts
from rgt.metrics.table import is_evaluation, known, role
from rgt.report import Finding
from rgt.run import record

_TABLE = "metrics.jsonl"
_PLAYERS = re.compile(r"(?:^|_)(?:d|g|gen|disc|critic|actor|policy|generator|discriminator|adv)(?:_|$)")
RATES = ("tokens_per_s", "samples_per_s", "it_per_s", "epochs_per_s")
_LOSS_LIKE = re.compile(r"total|ent|nll|nce|energy|obj|cost|likelihood|divergence|bce|bpr")
_TOTAL = re.compile(r"(?:train_|total_|avg_|mean_|l_)?(?:tot|total|obj|energy|cost)")  # sure enough if it does not fall
_CLOSING = re.compile(r"closing signal|sigterm|terminat", re.I)
_SETTLED = 120.0  # seconds without a line after which the last step of the last epoch is the end
QUIET = 600.0  # seconds without a line that need no explanation
QUIET_STEPS = 20  # or this many steps, or gaps between two lines, of its own speed
_FROZEN = 3  # times the usual gap between two steps without a step, while lines still come
_WAITING = 3  # lines in a row, without progress between them, that say so
_KNOWN = 5  # pauses between two steps that tell how long they usually are
_LATE = 5  # pauses that are news
_REPEATS = 10  # of the same counters; three times what was usual
_CHATTER = 8  # lines that say the same
_LOOP = 3  # starts without getting further that make a loop; from the beginning, the first one counts, too
_UNSAVED = 3600.0  # seconds of work that may exist only in memory


@dataclass
class View:
    """What the logs say, and what the files beside them and the machine say."""

    logs: dict[str, History]  # by path
    now: float
    where: str
    mtimes: dict[str, float] = field(default_factory=dict)  # of the logs
    events_state: str = record.UNKNOWN  # after its events.jsonl
    reason: str = ""  # of its last event
    phases: list[dict[str, Any]] = field(default_factory=list)  # as phase_rows() gives them
    results: bool = False
    writers: list[int] | None = None  # pids that write to the logs; None: cannot be known
    saved: list[float] = field(default_factory=list)  # when checkpoints were written, oldest first
    since: float = 0.0  # when it started, or was first looked at
    progress: float = 0.0  # when the step last changed
    line_gap: float | None = None  # seconds between two lines, from one look to the next
    steps_per_s: float | None = None  # counters of one look against those of another, where the log has no clock
    rests: list[str] = field(default_factory=list)  # last lines without an end
    asked: tuple[str, str] = ("", "")  # what its engine says of it, and why: a state of rgt.run.record

    @cached_property
    def log(self) -> str:
        return next((path for path in self.logs if Path(path).name != _TABLE), next(iter(self.logs), ""))

    @cached_property
    def main(self) -> History:
        """For counters: what has got furthest."""
        logs = self.logs.values()
        return max(logs, key=lambda log: (log.step is not None, log.furthest, log.lines), default=History())

    @cached_property
    def chosen(self) -> dict[str, tuple[str, Points]]:
        """role -> name and points: the best-ranked name, by preference of metrics.jsonl, then with the most points."""
        found: dict[str, list[tuple[int, bool, int, str, Points]]] = {}
        for path, log in self.logs.items():
            for name, curve in log.series.items():
                known = role(name) or (("rate", RATES.index(name)) if name in RATES else None)
                if known:
                    row = (known[1], Path(path).name != _TABLE, -curve.count, name, curve.points())
                    found.setdefault(known[0], []).append(row)
        if "loss" not in found and (stand_in := self._stand_in):
            name, points = stand_in
            found["loss"] = [(0, False, -len(points), name, points)]
            if "val_loss" not in found and (judged := self.curves.get(f"val_{name}")):
                found["val_loss"] = [(0, False, -len(judged), f"val_{name}", judged)]
        most = {which: min(row[2] for row in rows) for which, rows in found.items()}
        # a summary at the end (HF's train_samples_per_second) is no curve
        best = {which: min(row for row in rows if row[2] <= most[which] / 4) for which, rows in found.items()}
        return {which: (name, points) for which, (*_, name, points) in best.items()}

    @cached_property
    def curves(self) -> dict[str, Points]:
        return {name: curve.points() for log in self.logs.values() for name, curve in log.series.items()}

    @property
    def _stand_in(self) -> tuple[str, Points] | None:
        """Where nothing is called a loss: the first curve of an unknown name that comes down, noisily, from its start.

        One that is called the total or an entropy comes before those that only behave so.
        """
        unknown = [
            (name, points)
            for name, points in self.curves.items()
            if name not in RATES and (not role(name) or name == "score")
        ]
        unknown = [(name, points) for name, points in unknown if not is_evaluation(name) and not known(name)]
        unknown.sort(key=lambda row: not _LOSS_LIKE.search(row[0]))
        fell = (row for row in unknown if _comes_down([y for _, y in row[1]]))
        total = (row for row in unknown if _TOTAL.fullmatch(row[0]) and not all(y.is_integer() for _, y in row[1]))
        return next(fell, next(total, None))

    def points(self, role: str) -> Points:
        return self.chosen.get(role, ("", []))[1]

    def name_of(self, role: str) -> str:
        return self.chosen.get(role, ("", []))[0]

    # -- counters

    def first(self, name: str) -> Any:
        """Of the main log, else of any that says it: epoch, epochs, total, it_per_s, tokens_per_s, eta."""
        values = (getattr(log, name) for log in (self.main, *self.logs.values()))
        return next((value for value in values if value is not None), None)

    @property
    def step(self) -> int | None:
        return None if self.main.step is None else self.main.base + self.main.step

    @property
    def total(self) -> int | None:
        """Not one of an epoch, and not one of something else: no run is further than its end."""
        total: int | None = self.first("total")
        wrong = total is not None and (self.main.furthest > total or (self.main.base and total == self.main.total))
        return None if wrong else total

    @property
    def eta(self) -> float | None:
        speed, epoch, epochs = self.first("it_per_s"), self.first("epoch"), self.first("epochs")
        if self.over:
            return None
        if not speed and self.steps_per_s and self.first("eta") is None and self.share_done is not None:
            whole = self.total if self.step is not None and self.total else epochs
            done = self.step if self.step is not None and self.total else epoch
            return float(max(0.0, whole - done) / self.steps_per_s)
        if (said := self.first("eta")) is not None:
            return float(said)
        if self.total and self.step is not None and speed:
            return float(max(0.0, (self.total - self.step) / speed))
        if epochs and epoch is not None and self.main.epoch_time:
            return float(max(0.0, epochs - epoch) * self.main.epoch_time)
        return None

    @property
    def share_done(self) -> float | None:
        epoch, epochs = self.first("epoch"), self.first("epochs")
        pairs = [(self.step, self.total), (epoch, epochs)]
        if epochs and epoch is not None and epoch < epochs - 1:  # a total that is one of an epoch says less
            pairs.reverse()
        return next((min(1.0, done / all_of) for done, all_of in pairs if all_of and done is not None), None)

    # -- what was seen

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Without what a tracker keeps for itself, such as _runtime."""
        logs = (*self.logs.values(), self.main)
        return {name: v for log in logs for name, v in log.metrics.items() if not name.startswith("_")}

    @cached_property
    def counts(self) -> dict[str, int]:
        names = {name for log in self.logs.values() for name in log.counts}
        # not their sum: the ranks of one job tell of one event each
        return {name: max(log.counts.get(name, 0) for log in self.logs.values()) for name in names}

    @property
    def problems(self) -> list[Problem]:
        cut = [Problem(code, rest[:200]) for rest in self.rests if (code := problem_in(plain(rest)))]
        return [row for log in self.logs.values() for row in log.problems] + cut

    def longest(self, name: str) -> list[dict[str, Any]]:
        """The saves or restarts of the log that tells of the most."""
        return max((getattr(log, name) for log in self.logs.values()), key=len, default=[])

    @cached_property
    def not_numbers(self) -> dict[str, list[dict[str, Any]]]:
        """By metric."""
        found: dict[str, list[dict[str, Any]]] = {}
        for log in self.logs.values():
            for row in log.not_numbers:
                found.setdefault(row["name"], []).append(row)
        return found

    @property
    def losses(self) -> dict[str, Points]:
        """Every loss of the training by its name."""
        named = self.curves
        losses = {name: curve for name, curve in named.items() if (role(name) or ("",))[0] == "loss"}
        losses = losses or dict([self.chosen["loss"]] if "loss" in self.chosen else [])
        # CycleGAN's D_A and G_A are losses without the word
        return losses or {name: curve for name, curve in named.items() if _PLAYERS.search(name) and not role(name)}

    @property
    def adversarial(self) -> bool:
        """A policy or a pair of networks: its losses need not fall."""
        names = {name for log in self.logs.values() for name in log.series}
        players = {name for name in names if _PLAYERS.search(name) and not is_evaluation(name)}
        return "reward" in self.chosen or len(players) >= 2

    # -- clocks

    @property
    def age(self) -> float | None:
        """Seconds since the last line of any log."""
        return max(0.0, self.now - max(self.mtimes.values())) if self.mtimes else None

    @property
    def gap(self) -> float | None:
        """Seconds between two lines that show a step."""
        places = [x for x, _ in self.points("loss")[-20:]]
        gaps = [after - before for before, after in pairwise(places) if after > before]
        speed = self.first("it_per_s")
        return max(median(gaps), 1.0) / speed if gaps and speed and self.main.step is not None else self.line_gap

    # -- the end

    @property
    def state(self) -> str:
        """By its events; where they name no end, by its lines. Queued: it has not printed a line yet."""
        if self.events_state in record.OVER:
            return self.events_state
        dead = any(not row.recovered for row in self.problems)
        # at its last step and quiet; a bar that counts one of many epochs starts again at once
        quiet = self.writers == [] or (self.age or 0.0) > _SETTLED
        complete = (self.share_done is not None and self.share_done >= 1.0 and quiet) or self.main.concluded
        ended = any(log.ended for log in self.logs.values()) or any(map(says_ended, self.rests))
        if not dead and (self.results or complete or ended):
            return record.FINISHED
        if self.asked[0] in record.OVER:
            return self.asked[0]
        return record.RUNNING if any(log.lines for log in self.logs.values()) else record.QUEUED

    @property
    def over(self) -> bool:
        """No more lines are to be expected."""
        return self.state in record.OVER


# -- is it going on?


def liveness(view: View) -> Iterator[Finding]:
    yield from not_a_number(view)
    yield from problems(view)
    yield from restart_loop(view)
    if not view.over:
        yield from stalled(view)
        yield from unsaved(view)


def not_a_number(view: View) -> Iterator[Finding]:
    skipped = view.metrics.get("nan_iterations", 0.0)
    if skipped and view.step is not None and view.points("loss") and view.points("loss")[-1][0] < view.step:
        message = f"its steps give no loss any more since {view.points('loss')[-1][0]:g}, and count NaN iterations"
        yield Finding("nan", "error", message, path=view.log, evidence=view.main.last_line[:200], sure=0.95)
    for name, rows in view.not_numbers.items():
        count, first = view.counts.get(f"nan:{name}", len(rows)), f"{rows[0]['x']:g}"
        facts: dict[str, Any] = {"path": view.log, "where": name, "evidence": rows[-1]["line"], "sure": 0.99}
        run = max(log.nan_runs.get(name, 0) for log in view.logs.values())
        is_loss = "norm" not in name
        known = max((log.series[name].count for log in view.logs.values() if name in log.series), default=0)
        # some print a norm that they never compute; the loss of one that is lost is 0
        shown = view.points("loss")
        unused = not known and any(value for _, value in shown[-3:]) and (len(shown) >= 3 or not is_loss)
        # a norm is infinite in each step that fp16 skips
        if (
            run > (0 if is_loss else 1 if known > 3 and "nan" in rows[-1]["line"].lower() else 2) and not unused
        ):  # still
            facts["fix"] = f"go back to a checkpoint before {first}"
            severity = "error" if is_loss else "warn"
            yield Finding("nan", severity, f"{name} is not a number since {first}", **facts)
        else:
            yield Finding("nan", "info", f"{name} was not a number {count} times", **facts)


def problems(view: View) -> Iterator[Finding]:
    rows = view.problems
    crashed = next((n for n, row in enumerate(rows) if row.code == "crash" and not row.recovered), len(rows))
    # a launcher ends the other processes after one has crashed
    rows = [
        row for n, row in enumerate(rows) if not (n > crashed and row.code == "killed" and _CLOSING.search(row.line))
    ]
    fatal = any(row.code != "crash" and not row.recovered for row in rows)
    newest = {row.code: row for row in rows}
    for code, row in newest.items():
        if code == "crash" and fatal:
            continue
        count = view.counts.get(code, 1)
        severity = "info" if row.recovered else "error"
        times = f" {count} times" if count > 1 else ""
        after = "; training went on after it" if row.recovered else ""
        message = f"{SENTENCES[code]}{times}{after}"
        yield Finding(code, severity, message, path=view.log, evidence=row.line, sure=0.95)


def restart_loop(view: View) -> Iterator[Finding]:
    """Again and again from the same place, or without getting further."""
    rows, count = view.longest("restarts"), view.counts.get("restarts", 0)
    log = max(view.logs.values(), key=lambda log: len(log.restarts), default=History())
    starts = [log.origin or 0.0, *(row["to"] for row in rows)]
    ways = [row["at"] - start for row, start in zip(rows, starts, strict=False)]
    if (again := max((false_starts(log.starts, log.moves) for log in view.logs.values()), default=0)) > _LOOP:
        message = f"started {again} times with the same words and got nowhere in between"
        fix = "read what stands before each start: it dies before its first steps, or cannot save"
        evidence = view.main.last_line[:200]
        yield Finding("restarts", "error", message, path=view.log, evidence=evidence, fix=fix, sure=0.85)
        return
    if not rows or log.place - starts[-1] > 3 * sum(ways):  # it has got over it
        return
    told = [row for row in rows if row["told"]]
    steps = [(before["at"] < after["at"], before["to"] < after["to"]) for before, after in pairwise(rows)]
    if len(rows) > 2 * _LOOP and not told and sum(map(all, steps)) > 0.7 * len(steps):
        return  # two counters of one run, one of which begins again in each epoch
    wasted = len(told) >= _LOOP and sum(row["at"] - row["to"] for row in told) > 0.1 * (max(starts) - starts[0])
    rows = rows[-_LOOP:]
    at, to = [row["at"] for row in rows], [row["to"] for row in rows]
    scratch = max(to) - starts[0] <= max(1.0, 0.1 * (max(at) - starts[0]))
    # twice from one checkpoint, and not yet past where it ended before
    once_more = len(told) > 1 and len(set(to)) == 1 and log.place <= max(at)
    stuck = count >= (_LOOP - 1 if scratch or once_more else _LOOP)
    # two counters of one run go forward together
    stuck = stuck and not all(before < after for before, after in pairwise(to))
    same_end, same_start = max(at) - min(at) <= 0.1 * max(at) + 1, max(to) - min(to) <= 0.01 * max(to)
    if wasted or (stuck and (scratch or same_end or same_start)):
        message = f"started again {count} times, from behind where it was, and got no further than {max(at):g}"
        evidence = "counters went back: " + ", ".join(f"{row['at']:g} to {row['to']:g}" for row in rows)
        fix = "read the end of the log before each start; a resume that fails at one step will fail there again"
        yield Finding("restarts", "error", message, path=view.log, evidence=evidence, fix=fix, sure=0.9)


def stalled(view: View) -> Iterator[Finding]:
    gap, last_line = view.gap or 0.0, view.main.last_line[:200].strip()
    quiet = max(QUIET, QUIET_STEPS * gap)
    frozen = view.now - view.progress if view.progress and view.step is not None else 0.0
    silent = next(
        (log for log in view.logs.values() if len(log.pauses) >= _KNOWN and log.silence > _patience(log)), None
    )
    paused = next((log for log in view.logs.values() if _longest_of_late(log)), None)
    waiting = next((log for log in view.logs.values() if _waits(log)), None)
    chatty = next((log for log in view.logs.values() if log.chatter >= _CHATTER and not _moves(log)), None)
    repeated = view.main.repeats >= max(_REPEATS, 3 * view.main.usual_repeats)
    if waiting:
        message, sure = f"its last {waiting.waits} lines about progress say that it waits", 0.9
        evidence = f"last: {waiting.waiting_line}"
    elif silent:
        usual = f"one every {units.show_duration(median(silent.pauses))} was usual"
        message, sure = f"no progress in the last {units.show_duration(silent.silence)} of its own clock, {usual}", 0.9
        evidence = f"last: {last_line}"
    elif paused:
        usual = f"one every {units.show_duration(median(paused.pauses))} was usual"
        late = units.show_duration(_longest_of_late(paused))
        message, sure = f"it stood still for {late} of its own clock just before its newest lines, {usual}", 0.8
        evidence = f"last: {last_line}"
    elif repeated:
        message, sure = f"its bar is drawn again and again at the same place, {view.main.repeats} times", 0.85
        evidence = f"last: {last_line}"
    elif chatty:
        message, sure = (
            f"its last {chatty.chatter} lines say the same, which it never did before, and show no progress",
            0.8,
        )
        evidence = f"last: {last_line}"
    elif view.age is not None and view.age > quiet:
        nobody = "; no process here writes to it any more" if view.writers == [] else ""
        buffered = "; its stdout may be buffered (PYTHONUNBUFFERED=1)" if not last_line else ""
        message = f"no new line for {units.show_duration(view.age)}{nobody}{buffered}"
        usual = f"a line every {units.show_duration(gap)} is usual" if gap else "how often it writes is not known"
        evidence, sure = f"{usual}; last: {last_line}", 0.95 if nobody or view.age > 3 * quiet else 0.8
    elif view.age is not None and frozen > max(QUIET, _FROZEN * QUIET_STEPS * gap / 4):
        message = f"lines still come, but step {view.step} has not changed for {units.show_duration(frozen)}"
        evidence, sure = f"last: {last_line}", 0.8
    else:
        return
    search = f"look for its process: {bundle.command('takeover', 'snapshot')}"
    fix = f"py-spy dump --pid {view.writers[0]}" if view.writers else search
    yield Finding("stalled", "warn", message, evidence=evidence, path=view.log, fix=fix, sure=sure)


def _comes_down(values: list[float]) -> bool:
    """From its start to its best by a fifth, in steps of which some go up: a schedule has no noise."""
    best = min(range(len(values)), key=values.__getitem__, default=0)
    way = values[: best + 1]
    levels = [median(way[n : n + max(1, len(way) // 6)]) for n in range(0, len(way), max(1, len(way) // 6))]
    falls = sum(after < before for before, after in pairwise(levels)) >= 0.8 * (len(levels) - 1)
    noisy = any(after > before for before, after in pairwise(way))
    return len(way) >= 8 and values[best] < way[0] - 0.2 * abs(way[0]) and falls and noisy


def _patience(log: History) -> float:
    """Seconds without progress, by the log's own clock, that an evaluation or a save may explain."""
    return max(QUIET, QUIET_STEPS * median(log.pauses), 2 * max(log.pauses))


def _longest_of_late(log: History) -> float:
    """Seconds of one of its newest pauses that nothing before explains, else 0."""
    before, newest = log.pauses[:-_LATE], max(log.pauses[-_LATE:], default=0.0)
    usual = max(QUIET, QUIET_STEPS * median(before), 2 * max(before)) if len(before) >= _KNOWN else newest
    return newest if newest > usual else 0.0


def _waits(log: History) -> bool:
    return log.waits >= _WAITING and (not _moves(log) or log.waits > max(_REPEATS, 3 * log.usual_waits))


def _moves(log: History) -> bool:
    """Its clock says that the next progress is not due yet, however many lines tell of waiting."""
    return len(log.pauses) >= _KNOWN and log.clock != log.moved and log.silence < _FROZEN * median(log.pauses)


def unsaved(view: View) -> Iterator[Finding]:
    """Due is what the run itself did before; without a first checkpoint, an hour."""
    saves = view.longest("saves")
    steps = [int(row["step"]) for row in saves if row.get("step") is not None]
    gaps = [after - before for before, after in pairwise(steps) if after > before]
    pauses = [after - before for before, after in pairwise(view.saved) if after - before > 1]
    late = view.now - view.saved[-1] if view.saved else 0.0
    running = view.now - view.since if view.since else 0.0
    if gaps and view.step is not None and view.step - steps[-1] > 2 * median(gaps):
        message = f"the last checkpoint was at step {steps[-1]}, one every {median(gaps):g} steps was usual"
        sure = 0.85
    elif len(pauses) >= 2 and late > 2.5 * median(pauses):
        usual = units.show_duration(median(pauses))
        message, sure = f"no checkpoint for {units.show_duration(late)}, one every {usual} was usual", 0.8
    elif not saves and not view.saved and running > _UNSAVED:
        message, sure = f"no checkpoint yet after {units.show_duration(running)}", 0.6
    else:
        return
    evidence = f"now at step {view.step}" if view.step is not None else "the step is not known"
    fix = "look at the free space and at how often it is told to save"
    yield Finding("cadence", "warn", message, path=view.where, evidence=evidence, fix=fix, sure=sure)
