"""How runs ended, by the whole of their logs and what lies beside them: short, started over, diverged, contradicted.

Example:
    for end in look(runs, time.monotonic() + 1, stopped): end.code, end.path, end.message
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

from rgt.checkpoint import whole
from rgt.errors import RgtError
from rgt.job import settings
from rgt.log import summary as logs
from rgt.log.history import History
from rgt.metrics.table import known, role, split_of, unsplit, words
from rgt.run import curves, discovery
from rgt.run.discovery import Run
from rgt.run.foreign import as_number, run_survey
from rgt.takeover.loose_ends import LooseEnd
from rgt.units import show_duration

RECENT = 86400.0  # seconds: a run that ended within them may be one that nobody knows to be dead
_ALONE = 120.0  # seconds without a line after which a run that no process writes has ended
_MOST = 40  # runs, the newest first: each costs some 30 ms
_LINES = 240  # of a log or table that are read; all of them before a number is called one that it never says
_LARGEST = 32 << 20  # bytes; of a longer file only the end is read
_OLDER = 20  # checkpoints before the newest whose structure is looked at
_STARTS = 2  # starts from the beginning after the first that no longer look like a correction
_PARTS = 6  # rank of a loss from which on it is a part, such as a critic's, and need not fall
_RESULT = re.compile(r"(?:(?:all|final|test)[_-])?(?:results?|scores?)\.json|(?:all|final|test)[_-]metrics\.json", re.I)
_FINAL = re.compile(r"(?:model[_-]?)?final\b.*|model\.\w+", re.I)  # weights that a trainer writes at its end
_PICKED = {"best", "last", "max", "min", "highest", "lowest"}


def look(runs: list[Run], deadline: float, stopped: list[str]) -> list[LooseEnd]:
    """What somebody who inherits these runs must know. `deadline` is of time.monotonic()."""
    found: list[LooseEnd] = []
    beside: dict[str, list[str]] = {}  # folder -> files that print numbers there
    ending = {_shape(run) for run in runs if run.summary.ended}  # logs of this name say an end
    for number, run in enumerate(runs):
        if number == _MOST or time.monotonic() > deadline:
            left = f"{len(runs) - number} of {len(runs)} runs were not read to see how they ended"
            stopped.append(f"{left}; name their folder{'' if number == _MOST else ', or give --seconds 20'}")
            break
        files = [file.path for file in (run.table, run.log) if file]
        with contextlib.suppress(OSError, RgtError, ValueError):
            history = _history(files[0], _LINES) if files else History()
            found += [*_unfinished(run, history, _shape(run) in ending), *_broken_before(run)]
            found += [*_started_over(files[0], history), *_diverged(run, files[0], history)] if files else []
            if run.kind != "run" and any(map(run_survey.is_evaluation, os.listdir(_folder(run)))):
                beside.setdefault(_folder(run), []).extend(files)
    for folder, files in beside.items():
        with contextlib.suppress(OSError):
            doubts = list(_contradicted(Path(folder), [_history(path, _LINES) for path in files]))
            found += _contradicted(Path(folder), [_history(path, 1 << 30) for path in files]) if doubts else []
    return found


def _folder(run: Run) -> str:
    return run.path if os.path.isdir(run.path) else os.path.dirname(run.path)


def _shape(run: Run) -> str:
    return re.sub(r"\d+", "#", os.path.basename(run.log.path)) if run.log else ""


def _history(path: str, most: int) -> History:
    """What the file prints; of more than `most` lines the first and the last, and between them evenly spread ones."""
    history = History()
    text = logs.to_text(logs.head(path, _LARGEST)) if os.path.getsize(path) <= _LARGEST else "\n".join(logs.tail(path))
    lines = text.splitlines()
    ends = most // 3
    middle = lines[ends:-ends] if len(lines) > most else []
    kept = [*lines[:ends], *middle[:: -(-len(middle) // ends)], *lines[-ends:]] if middle else lines
    for line in kept:
        history.take(line)
    return history


def _unfinished(run: Run, history: History, others_end: bool) -> Iterator[LooseEnd]:
    """A run that nobody computes any more, and that said no end. A day later only with a sign that it was to go on."""
    over = run.finished or run.pid or run.summary.ended or history.ended
    over = over or any(not problem.recovered for problem in run.summary.problems)
    if over or not (run.log and run.summary.found) or run.age < _ALONE:
        return
    folder = Path(_folder(run))
    weights = [os.path.basename(file.path) for file in run.checkpoints]
    has_result = any(map(_RESULT.fullmatch, os.listdir(folder))) or any(map(_FINAL.fullmatch, weights))
    at, goal, word = _goal(run.summary, history, folder)
    if (goal and at >= goal) or (has_result and not goal) or not (goal or others_end or run.age < RECENT):
        return
    where = f" at {word} {at:g} of {goal}" if goal else ""
    message = f"stopped{where}: no process here, and the log ends without an error or an end; last line {_ago(run)}"
    fix = "ask whether it runs on another machine; else it was killed: resume from its newest whole checkpoint"
    yield LooseEnd("unfinished", "warn", run.log.path, message, fix, run.summary.last_line[:160])


def _ago(run: Run) -> str:
    return f"{show_duration(max(1.0, round(run.age))).replace('.0s', 's')} ago"


def _goal(newest: History, history: History, folder: Path) -> tuple[float, int, str]:
    """How far it came and was to come, by its log or the settings beside it; a goal of 0 when neither says it."""
    told = {"epochs": newest.epochs, "total": newest.total}
    if not any(told.values()):
        numbers = {one.name: one.value for path in run_survey.configs(folder) for one in settings.read(path)}
        for counter, spellings in discovery.TOTALS.items():
            named = (numbers[name] for name in spellings if isinstance(numbers.get(name), int))
            told[counter] = next((number for number in named if number > 0), None)
    if told["epochs"] and newest.epoch is not None:
        from_0 = history.epoch is not None and history.first_epoch == 0
        return newest.epoch + from_0, told["epochs"], "epoch"
    if told["total"] and newest.step is not None:
        return newest.step + history.stride, told["total"], "step"
    return 0.0, 0, ""


def _started_over(path: str, history: History) -> Iterator[LooseEnd]:
    """Again and again from its first step: what it had computed is lost each time."""
    starts = sum(row["to"] <= (history.origin or 0.0) for row in history.restarts)
    if starts >= _STARTS and not history.ended:
        message = f"started from the beginning {starts + 1} times; the last time it came to step {history.step}"
        fix = "look whether it saves before it is stopped, and resumes from what it saved, before it is started again"
        yield LooseEnd("restarts", "warn", path, message, fix)


def _diverged(run: Run, path: str, history: History) -> Iterator[LooseEnd]:
    """One curve is enough; a loss that is no number any more is another finding."""
    by_role: dict[str, list[tuple[int, str]]] = {}
    for name in history.series if all(problem.code != "nan" for problem in run.summary.problems) else ():
        kind, rank = role(name) or ("", 0)
        by_role.setdefault(kind, []).append((rank, name))
    points = {kind: history.series[min(names)[1]].points() for kind, names in by_role.items()}
    for rank, name in sorted(by_role.get("loss", [])):
        reward = points.get("reward", [])
        curve = curves.Curves(history.series[name].points(), lr=points.get("lr", []), reward=reward)
        curve.names, curve.adversarial = {"loss": name}, rank >= _PARTS or bool(reward)
        for finding in curves.diverged(curve):
            yield LooseEnd("diverged", "error", path, f"diverged: {finding.message}", finding.fix or "")
            return


def _broken_before(run: Run) -> Iterator[LooseEnd]:
    """Checkpoints before the newest one: the best may be among them."""
    for file in run.checkpoints[-_OLDER - 1 : -1]:
        answer = whole.verdict(Path(file.path), read=0)
        if answer.state == "broken":
            fix = "do not resume from it; load another one before anything is built on it"
            yield LooseEnd("truncated", "warn", file.path, f"a broken checkpoint: {answer.reason}", fix)


# -- numbers in results.json and its kin that no line of the log beside them has


def _contradicted(folder: Path, printed: list[History]) -> Iterator[LooseEnd]:
    series: dict[str, list[tuple[str | None, list[float]]]] = {}
    for history in printed:
        for name, curve in history.series.items():
            series.setdefault(_measured(name), []).append((split_of(name), [value for _, value in curve.points()]))
    for path in sorted(path for path in folder.glob("*.json") if run_survey.is_evaluation(path.name)):
        with contextlib.suppress(OSError, ValueError, RecursionError):
            for one in settings.flatten(json.loads(path.read_text(encoding="utf-8"))):
                value, split = as_number(one.value), split_of(one.key)
                if value is None or split == "train" or (split is None and not _is_score(one.name)):
                    continue
                same = [values for of, values in series.get(_measured(one.name), []) if of == split]
                # the result names no split: an evaluation, if there is one
                same = same or [vs for of, vs in series.get(_measured(one.name), []) if split is None and of == "val"]
                if same and not any(_is_rounded(value, shown) for values in same for shown in values):
                    severity = "warn" if split else "info"
                    message = f"{one.key} is {value:g} and disagrees with the log beside it, "
                    message += f"which never says so: its last is {same[-1][-1]:g}"
                    fix = "evaluate the checkpoint again before anything quotes this number"
                    yield LooseEnd("unexplained", severity, str(path), message, fix)
                    break


def _measured(name: str) -> str:
    """`best_val_acc` and `val/accuracy` are accuracies; a qualifier that says what (macro, top 5) stays."""
    left = [word for word in words(unsplit(name)) if word not in _PICKED]
    metric = known(left[0]) if len(left) == 1 else None
    return metric.name if metric else " ".join(left)


def _is_score(name: str) -> bool:
    metric = known(name)
    return metric is not None and metric.name != "loss"


def _is_rounded(value: float, shown: float) -> bool:
    """Is `shown`, as it was printed, this value, or its percentage?"""
    half_a_digit = 0.51 * 10.0 ** -len(repr(shown).partition(".")[2])
    return any(abs(value * scale - shown) <= half_a_digit for scale in (1.0, 100.0, 0.01))
