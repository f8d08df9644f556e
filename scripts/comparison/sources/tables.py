"""CSV: one row per run (seed, run or wandb's Name column), per eval item, or per step; wandb's table and chart exports.

A row is a run or an example, never guessed: taking 1,000 examples for 1,000 runs would make any difference "real".
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from comparison import metrics as table
from comparison import settings
from comparison.model import Reading, Trial
from comparison.sources.runs import add_last_points, number, whole
from rgt.errors import bad_input, from_os_error

_RUN = ("run_id", "run", "run_name", "name")
_ITEM = ("item", "item_id", "example", "example_id", "sample", "sample_id", "image", "image_id", "filename", "file",
         "question_id", "qid", "doc_id", "utt_id", "uid", "uuid", "key", "idx", "index", "id")  # fmt: skip
_STEP = ("step", "_step", "global_step", "iteration", "iter", "epoch", "trainer/global_step")
_SPLITS = ("split", "subset")
_RUNS = 10_000  # a table with more runs is no table of runs
_WIDE = 5_000  # columns
_FIELD = 1 << 17  # characters

Row = tuple[int, list[str]]


def load(path: Path, wanted: tuple[str, ...], where: tuple[str, str] | None) -> list[Trial]:
    with _rows(path) as (header, rows):
        if where:
            rows = _only(path, header, rows, where)
        charts = [name for name in wanted if any(column.endswith(f" - {name}") for column in header)]
        if charts:
            return _charts(path, header, rows, wanted)
        missing = [name for name in wanted if name not in header]
        if len(missing) == len(wanted):
            raise bad_input(f"{path} has no column {missing[0]!r}; it has {', '.join(header[:30])}")
        return _Table(path, header, rows, wanted).trials()


@contextmanager
def _rows(path: Path) -> Iterator[tuple[list[str], Iterator[Row]]]:
    csv.field_size_limit(_FIELD)  # one for the whole process: said, so that nobody else's holds here
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline(1 << 20)
            file.seek(0)
            reader = csv.reader(file, delimiter=_delimiter(first), strict=True)
            header = [column.strip() for column in next(reader, [])]
            _check_header(path, header)
            yield header, _checked(path, header, reader)
    except UnicodeDecodeError as error:
        raise bad_input(f"{path} is not text: byte {error.start} is not UTF-8") from None
    except csv.Error as error:
        raise bad_input(f"{path} is not usable CSV: {error}") from None
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None


def _delimiter(line: str) -> str:
    return max(",;\t", key=line.count)


def _check_header(path: Path, header: list[str]) -> None:
    if not any(header):
        raise bad_input(f"{path} is empty; expected a header line and rows")
    twice = next((name for name in header if name and header.count(name) > 1), None) if len(header) <= _WIDE else None
    if twice:
        raise bad_input(f"{path} has the column {twice[:60]!r} twice; which one counts is not knowable")


def _checked(path: Path, header: list[str], reader: Iterator[list[str]]) -> Iterator[Row]:
    for index, row in enumerate(reader, 2):
        if not any(row):
            continue
        if len(row) != len(header):
            raise bad_input(f"{path} line {index} has {len(row)} fields; the header has {len(header)}")
        yield index, row


def _only(path: Path, header: list[str], rows: Iterator[Row], where: tuple[str, str]) -> Iterator[Row]:
    column, value = where
    if column not in header:
        raise bad_input(f"{path} has no column {column!r} to select by; it has {', '.join(header[:30])}")
    at, meant = header.index(column), settings.plain(value)
    return ((line, row) for line, row in rows if settings.plain(row[at]) == meant)


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
    def __init__(self, path: Path, header: list[str], rows: Iterator[Row], wanted: tuple[str, ...]) -> None:
        self.path, self.header, self.rows, self.wanted = path, header, rows, wanted
        self.at = {name: header.index(name) for name in wanted if name in header}
        self.seed = next((i for i, name in enumerate(header) if settings.is_seed(name)), None)
        self.step, self.split = self._column(_STEP), self._column(_SPLITS)
        self.run = self._column(_RUN)
        self.item = self._column(_ITEM) if "State" not in header else None  # wandb's table has an ID of runs

    def _column(self, names: tuple[str, ...]) -> int | None:
        lower = [name.lower() for name in self.header]
        return next((lower.index(name) for name in names if name in lower), None)

    def trials(self) -> list[Trial]:
        if self.item is not None:
            return self._items()
        if self.step is not None and self.step not in self.at.values() and "State" not in self.header:
            return self._history()
        return self._runs()

    def _cells(self, line: int, row: list[str]) -> Iterator[tuple[str, float]]:
        for name, at in self.at.items():
            try:
                yield name, float(row[at])
            except ValueError:
                if row[at].strip():
                    number(row[at].strip(), f"{self.path} line {line}: {name}")  # says what is wrong

    def _key(self, row: list[str]) -> tuple[str, ...]:
        return tuple(row[at] for at in (self.run, self.seed) if at is not None)

    def _trial(self, row: list[str], key: tuple[str, ...]) -> Trial:
        seed = settings.show(settings.plain(row[self.seed])) if self.seed is not None else None
        run = row[self.run] if self.run is not None else None
        trial = Trial(" ".join((str(self.path), *key)), run_id=run, seed=seed)
        trial.available = set(self.header)
        return trial

    def _split(self, row: list[str], name: str) -> str | None:
        if self.split is None:
            return table.split_of(name)
        return table.SPLIT_WORDS.get(row[self.split].strip().lower(), row[self.split].strip().lower() or None)

    def _grouped(self, add: Callable[[Trial, int, list[str]], None]) -> list[Trial]:
        found: dict[tuple[str, ...], Trial] = {}
        for line, row in self.rows:
            key = self._key(row)
            if key not in found:
                found[key] = self._trial(row, key)
                if len(found) > _RUNS:
                    raise bad_input(f"{self.path} has more than {_RUNS} runs; give one file per arm with its runs only")
            add(found[key], line, row)
        return self._some(list(found.values()))

    def _some(self, trials: list[Trial]) -> list[Trial]:
        if not trials:
            raise bad_input(f"{self.path} has no rows (or none that were selected)")
        return trials

    def _items(self) -> list[Trial]:
        def add(trial: Trial, line: int, row: list[str]) -> None:
            item = row[self.item or 0]
            for name, value in self._cells(line, row):
                scores = trial.items.setdefault(name, {})
                if item in scores:
                    raise bad_input(f"{self.path} line {line} has the item {item[:60]!r} a second time")
                scores[item] = value

        trials = self._grouped(add)
        for trial in trials:
            for name, scores in trial.items.items():
                mean = sum(scores.values()) / len(scores)
                trial.readings[name] = [Reading(mean, table.split_of(name), len(scores))]
        return trials

    def _history(self) -> list[Trial]:
        def add(trial: Trial, line: int, row: list[str]) -> None:
            text = row[self.step or 0]
            for name, value in self._cells(line, row):
                step = whole(text, f"{self.path} line {line}: {self.header[self.step or 0]}")
                trial.curves.setdefault((name, self._split(row, name)), {})[step] = value
                trial.budget["steps"] = max(trial.budget.get("steps", 0.0), float(step))

        trials = self._grouped(add)
        for trial in trials:
            add_last_points(trial, self.wanted)
        return trials

    def _runs(self) -> list[Trial]:
        rows = list(itertools.islice(self.rows, _RUNS + 1))
        if len(rows) > 1 and self.run is None and self.seed is None:
            raise bad_input(
                f"{self.path} has {'many' if len(rows) > _RUNS else len(rows)} rows and says not what a row is: a seed "
                "or run column makes them runs, an item or id column makes them examples; add one"
            )
        if len(rows) > _RUNS:
            raise bad_input(f"{self.path} has more than {_RUNS} runs; give one file per arm with its runs only")
        return self._some([self._one(line, row) for line, row in rows])

    def _one(self, line: int, row: list[str]) -> Trial:
        trial = self._trial(row, (*self._key(row), f"(line {line})"))
        for name, value in self._cells(line, row):
            trial.readings[name] = [Reading(value, self._split(row, name))]
        trial.config = self._config(row)
        if self.step is not None and row[self.step].strip():
            trial.budget["steps"] = float(whole(row[self.step], f"{self.path} line {line}: {self.header[self.step]}"))
        return trial

    def _config(self, row: list[str]) -> dict[str, object] | None:
        """The other columns that are settings: not metrics, which differ because runs differ."""
        skip = {*self.at.values(), self.seed, self.run, self.split}
        found = {
            name: row[at]
            for at, name in enumerate(self.header)
            if at not in skip and name and not _is_metric(name) and row[at].strip()
        }
        return settings.flatten(found, str(self.path)) or None


def _is_metric(name: str) -> bool:
    return table.known(name) is not None or table.split_of(name) is not None or name.startswith("_")
