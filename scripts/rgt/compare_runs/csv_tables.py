"""CSV: one row per run (seed, run or wandb's Name column), per eval item, or per step; wandb's table and chart exports.

A row is a run or an example, never guessed: taking 1,000 examples for 1,000 runs would make any difference "real".
"""

from __future__ import annotations

import csv
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rgt.compare_runs import flat_settings
from rgt.compare_runs.trial import Reading, Trial, add_last_points, number, whole
from rgt.errors import bad_input
from rgt.metrics import table

_RUN = ("run_id", "run", "run_name", "name")
_ITEM = (
    "item item_id example example_id sample sample_id image image_id filename file question_id qid doc_id utt_id uid "
    "uuid key idx index id"
).split()
_STEP = ("step", "_step", "global_step", "iteration", "iter", "epoch", "trainer/global_step")
_SPLITS = ("split", "subset")
_RUNS = 10_000  # a table with more runs is no table of runs
_FIELD = 1 << 17  # characters

Row = tuple[int, list[str]]


def load(path: Path, wanted: tuple[str, ...], where: tuple[str, str] | None) -> list[Trial]:
    csv.field_size_limit(_FIELD)  # one for the whole process: said, so that nobody else's holds here
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline(1 << 20)
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=first.count), strict=True)
            header = [column.strip() for column in next(reader, [])]
            if not any(header):
                raise bad_input(f"{path} is empty; expected a header line and rows")
            twice = [name for name, times in Counter(header).items() if name and times > 1]
            if twice:
                raise bad_input(f"{path} has the column {twice[0][:60]!r} twice; which one counts is not knowable")
            rows = _checked(path, header, reader)
            if where and where[0] not in header:
                raise bad_input(f"{path} has no column {where[0]!r} to select by; it has {', '.join(header[:30])}")
            if where:
                at, meant = header.index(where[0]), flat_settings.plain(where[1])
                rows = ((line, row) for line, row in rows if flat_settings.plain(row[at]) == meant)
            if any(column.endswith(f" - {name}") for name in wanted for column in header):
                return _charts(path, header, rows, wanted)
            if not set(wanted) & set(header):
                raise bad_input(f"{path} has no column {wanted[0]!r}; it has {', '.join(header[:30])}")
            return _Table(path, header, wanted).trials(rows)
    except UnicodeDecodeError as error:
        raise bad_input(f"{path} is not text: byte {error.start} is not UTF-8") from None
    except csv.Error as error:
        raise bad_input(f"{path} is not usable CSV: {error}") from None


def _checked(path: Path, header: list[str], reader: Iterator[list[str]]) -> Iterator[Row]:
    for line, row in enumerate(reader, 2):
        if any(row) and len(row) != len(header):
            raise bad_input(f"{path} line {line} has {len(row)} fields; the header has {len(header)}")
        if any(row):
            yield line, row


def _charts(path: Path, header: list[str], rows: Iterator[Row], wanted: tuple[str, ...]) -> list[Trial]:
    """wandb's chart export: Step, then per run `<run> - <metric>` with its __MIN and __MAX."""
    columns = [
        (at, column.removesuffix(f" - {name}"), name)
        for at, column in enumerate(header)
        for name in wanted
        if column.endswith(f" - {name}")
    ]
    trials = {run: Trial(f"{path} {run}", run_id=run) for _, run, _ in columns}
    for line, row in rows:
        step = whole(row[0], f"{path} line {line}: {header[0]}")
        for at, run, name in columns:
            if row[at].strip():
                value = number(row[at], f"{path} line {line}: {header[at]}")
                trials[run].curves.setdefault((name, table.split_of(name)), {})[step] = value
                trials[run].budget["steps"] = float(step)
    for trial in trials.values():
        add_last_points(trial, wanted)
    return list(trials.values())


class _Table:
    def __init__(self, path: Path, header: list[str], wanted: tuple[str, ...]) -> None:
        self.path, self.header, self.wanted = path, header, wanted
        lower, of_wandb = [name.lower() for name in header], "State" in header
        run, step, split, item = (
            next((lower.index(name) for name in names if name in lower), None)
            for names in (_RUN, _STEP, _SPLITS, () if of_wandb else _ITEM)  # wandb's table has an ID of runs
        )
        self.run, self.step, self.split, self.item = run, step, split, item
        self.seed = next((i for i, name in enumerate(header) if flat_settings.is_seed(name)), None)
        self.metrics = {name: header.index(name) for name in wanted if name in header}
        history = step is not None and step not in self.metrics.values() and not of_wandb
        self.row_is = "item" if item is not None else "step" if history else "run"
        # of runs, the other columns are settings, unless they are metrics, which differ because runs differ
        skip = {*self.metrics.values(), self.seed, run, split}
        others = {name: at for at, name in enumerate(header) if at not in skip and name and not name.startswith("_")}
        self.settings = {n: at for n, at in others.items() if table.known(n) is None and table.split_of(n) is None}

    def trials(self, rows: Iterator[Row]) -> list[Trial]:
        if self.row_is == "run":
            some = list(itertools.islice(rows, _RUNS + 1))
            if len(some) > 1 and self.run is None and self.seed is None:
                raise bad_input(
                    f"{self.path} has {'many' if len(some) > _RUNS else len(some)} rows and says not what a row is: a "
                    "seed or run column makes them runs, an item or id column makes them examples; add one"
                )
            rows = iter(some)
        found: dict[tuple[str, ...], Trial] = {}
        for line, row in rows:
            key = tuple(row[at] for at in (self.run, self.seed) if at is not None)
            key = (*key, f"(line {line})") if self.row_is == "run" else key
            if key not in found:
                seed = None if self.seed is None else flat_settings.show(flat_settings.plain(row[self.seed]))
                run = None if self.run is None else row[self.run]
                found[key] = Trial(" ".join((str(self.path), *key)), run, seed, available=set(self.header))
                if len(found) > _RUNS:
                    raise bad_input(f"{self.path} has more than {_RUNS} runs; give one file per arm with its runs only")
            self._add(found[key], row, f"{self.path} line {line}")
        if not found:
            raise bad_input(f"{self.path} has no rows (or none that were selected)")
        for trial in found.values():
            for name, scores in trial.items.items():
                mean = sum(scores.values()) / len(scores)
                trial.readings[name] = [Reading(mean, table.split_of(name), len(scores))]
            add_last_points(trial, self.wanted)
        return list(found.values())

    def _add(self, trial: Trial, row: list[str], where: str) -> None:
        values = {n: number(row[at], f"{where}: {n}") for n, at in self.metrics.items() if row[at].strip()}
        if self.item is not None:
            for name, value in values.items():
                scores, item = trial.items.setdefault(name, {}), row[self.item]
                if item in scores:
                    raise bad_input(f"{where} has the item {item[:60]!r} a second time")
                scores[item] = value
            return
        step = None
        if self.step is not None and (values if self.row_is == "step" else row[self.step].strip()):
            step = whole(row[self.step], f"{where}: {self.header[self.step]}")
            trial.budget["steps"] = max(trial.budget.get("steps", 0.0), float(step))
        for name, value in values.items():
            word = "" if self.split is None else row[self.split].strip().lower()
            split = table.split_of(name) if self.split is None else table.SPLIT_WORDS.get(word, word or None)
            if self.row_is == "run":
                trial.readings[name] = [Reading(value, split)]
            elif step is not None:
                trial.curves.setdefault((name, split), {})[step] = value
        if self.row_is == "run":
            given = {name: row[at] for name, at in self.settings.items() if row[at].strip()}
            trial.config = flat_settings.flatten(given, str(self.path)) or None
