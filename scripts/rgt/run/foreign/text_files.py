"""Text files of one run or many: CSV and JSON lines, HF Trainer's trainer_state.json, and what a program printed.

A table with a column of steps or epochs is a curve; columns that name a run (run, seed, `--group`) cut it into runs.
Without steps each row is a run, and only when such a column says so: a row may as well be an example.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import bad_input
from rgt.job import settings
from rgt.log import reader
from rgt.log.history import SCALE_TOLD, History
from rgt.log.line import Point
from rgt.metrics.table import known, split_of
from rgt.run import record as states
from rgt.run.foreign import LIVE, MOST_BYTES, Ask, Foreign, Row, as_number, as_setting, flat, split_word

TRAINER_STATE = "trainer_state.json"
_TRAINER_SETTINGS = ("max_steps", "num_train_epochs", "train_batch_size", "logging_steps", "eval_steps", "save_steps")
_STEPS = """step _step global_step iteration iter iterations training_iteration num_updates total_timesteps timesteps
timesteps_total epoch epochs""".split()
_INSIDE = "batch batch_idx minibatch".split()  # counters that begin anew with every epoch
_OF_CONFIG = re.compile(r"(?:config|params|hparams|args)[./]")  # columns that repeat a setting in every row: Ray's
_RUNS = "run_id run run_name name experiment exp trial".split()
_CLOCKS = "time timestamp _timestamp wall_time date".split()
_SPLITS = "split phase mode subset".split()
# what is measured beside the metrics: it differs from run to run, and is no setting
_MEASURED = re.compile(
    r".*(runtime|duration|elapsed|wall|seconds|_time|time_|hours|memory|_mem|throughput|per_s(ec(ond)?)?|flops?|gpu_util)"
    r".*|.*_(s|ms|gb|mb)|time|date|timestamp",
    re.I,
)
_LONGEST = 1 << 20  # characters of a cell
_METRICS, _VALUES = "metric metric_name measure tag".split(), "value metric_value score result".split()


def read_table(path: Path, ask: Ask) -> Iterator[Foreign]:
    if path.stat().st_size > MOST_BYTES:
        raise bad_input(f"{path} is larger than 1 GiB; cut it into runs first")
    gaps: list[str] = []
    text = path.read_bytes().decode("utf-8-sig", "replace").replace("\0", "")
    live = time.time() - path.stat().st_mtime < LIVE
    # its writer may be in the middle of 0.1234
    if text and not text.endswith("\n") and live and path.suffix != ".json":
        text = text.rpartition("\n")[0]
        gaps.append("its last line has no end and was written just now: left out")
    kind = "jsonl" if path.suffix.lower() in (".jsonl", ".ndjson", ".json") else "csv"
    rows = pivoted(list(_objects(text, gaps) if kind == "jsonl" else _cells(path, text, gaps)))
    if not rows:
        raise bad_input(f"{path} has no row" + "".join(f"; {gap}" for gap in gaps[:1]))
    # settings may be the first line: mmcv's environment, a config
    first = next((at for at, row in enumerate(rows) if any(_step_word(name) in _STEPS for name in row)), 0)
    told = {_OF_CONFIG.sub("", name): as_setting(str(value)) for row in rows[:first] for name, value in row.items()}
    for run in _runs(path, kind, rows[first:], gaps, ask):
        run.config = told | run.config
        yield run


def _step_word(name: str) -> str:
    return name.lower().rpartition("/")[2]


def pivoted(rows: list[Row], line: str = "") -> list[Row]:
    """A long table, a row per run and metric, as one with a column per metric; `line` is a column that says where."""
    columns = {name.lower(): name for name in (rows[0] if rows else ())}
    metric, value, split = (next((columns[n] for n in ns if n in columns), "") for ns in (_METRICS, _VALUES, _SPLITS))
    if not metric or not value or any(as_number(row.get(metric, 0)) is not None for row in rows):
        return rows
    split = split if all(split_word(row.get(split)) for row in rows) else ""
    wide: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        rest = {name: cell for name, cell in row.items() if name not in (metric, value, split)}
        key = tuple(cell for name, cell in rest.items() if name != line and not _MEASURED.fullmatch(name))
        name = "/".join(filter(None, (split and row[split], row[metric])))
        while name in wide.get(key, ()):  # a second value of the same is another run's
            key = (*key, "")
        wide.setdefault(key, rest)[name] = row[value]
    return list(wide.values())


def _objects(text: str, gaps: list[str]) -> Iterator[Row]:
    bad = 0
    whole = json.loads(text) if text.lstrip().startswith("[") else None
    for line in whole or filter(str.strip, text.split("\n")):
        try:
            row = json.loads(line) if whole is None else line
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            yield {name: str(value) if isinstance(value, list) else value for name, value in flat(row).items()}
        else:
            bad += 1
    if bad:
        gaps.append(f"{bad} lines are no JSON objects")


def _cells(path: Path, text: str, gaps: list[str]) -> Iterator[Row]:
    csv.field_size_limit(_LONGEST)
    text = files.without_comments(text)
    first = text.partition("\n")[0]
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count))
    header: list[str] = []
    bad = 0
    try:
        for cells in reader:
            if not header:
                header = [cell.strip() for cell in cells]
                if len(set(header)) < len(header) or any(as_number(name) is not None for name in header):
                    raise bad_input(f"{path} has no header of its own names: {first[:80]!r}")
            elif len(cells) == len(header) and cells != header:
                yield {name: cell.strip() for name, cell in zip(header, cells, strict=True) if name and cell.strip()}
            elif cells and cells != header:  # a resumed writer writes its header again
                bad += 1
    except csv.Error as error:
        gaps.append(f"is no CSV from line {reader.line_num} on: {error}")
    if bad:
        gaps.append(f"{bad} rows have another number of cells than the header")


def _runs(path: Path, kind: str, rows: list[Row], gaps: list[str], ask: Ask) -> Iterator[Foreign]:
    by_word = {name.lower(): name for row in rows for name in row}
    columns = list(by_word.values())
    named_below = {_step_word(word): name for word, name in by_word.items()}  # time/total_timesteps
    by_word = {word: named_below[word] for word in _STEPS if word in named_below} | by_word
    step, run, split, clock = (
        next((by_word[name] for name in names if name in by_word), "") for names in (_STEPS, _RUNS, _SPLITS, _CLOCKS)
    )
    epoch = next((by_word[name] for name in ("epoch", "epochs") if name in by_word), "")
    step = next((by_word[name] for name in _INSIDE if step == epoch and epoch and name in by_word), step)
    place = _places(rows, step, epoch, split)
    for name in (name for name in (*ask.metrics, ask.seed, ask.group) if name and name not in columns):
        raise bad_input(f"{path} has no column {name!r}; it has {', '.join(columns[:20])}")
    seed = ask.seed or next(filter(settings.is_seed, columns), None)
    own = [name for name in dict.fromkeys((ask.group, run, seed)) if name]
    if not step and not own and len(rows) > 1:
        raise bad_input(f"{path} has no column of steps, and none that makes a row a run: name one, --seed or --group")
    numeric = {name for row in rows for name, value in row.items() if as_number(value) is not None}
    measured = list(ask.metrics) or [name for name in columns if name in numeric and (known(name) or split_of(name))]
    if not measured and not step:
        raise bad_input(f"{path} has no column that is known to be a metric; name it, --metric")
    parts: dict[tuple[Any, ...], list[Row]] = {}
    unique = len({tuple(row.get(name) for name in own) for row in rows}) == len(rows)
    for number, row in enumerate(rows):
        key = tuple(row.get(name) for name in own)
        parts.setdefault(key if step or unique else (*key, number), []).append(row)
    apart = {step, run, split, clock, *measured} - {ask.group}
    given = [name for name in columns if name not in apart and name[0] != "_" and not _MEASURED.fullmatch(name)]
    if varying := [name for name in given if name not in own and _varies(name, rows, ask.group)]:
        gaps.append(f"no settings, because they vary within {ask.group}: {', '.join(varying)}")
    for key, part in parts.items():
        several = len(parts) > 1
        words = [str(word) for word in key[: len(own)] if word is not None] if several else []
        found = Foreign("-".join(words) or path.stem, kind, path, " ".join(map(str, key)) if several else "")
        found.gaps = list(gaps)
        found.config = _settings([name for name in given if name not in varying], part, several)
        found.config |= {"seed": as_setting(str(part[0].get(ask.seed)))} if ask.seed else {}
        for row in part:
            of_split, at, when = split_word(row.get(split)), place(row), as_number(row.get(clock))
            numbers = {name: value for name in row if (value := as_number(row[name])) is not None}
            if not step:
                for name in set(measured) & numbers.keys():
                    found.report(name, numbers[name], of_split or ask.split, path)
            elif at is not None and math.isfinite(at):  # Lightning's rows have holes
                kept = numbers.keys() - {step, clock, *own, *found.config, *filter(_OF_CONFIG.match, numbers)}
                kept = kept & set(ask.metrics) if ask.metrics else kept
                found.add(int(at), {name: numbers[name] for name in kept}, when or 0.0, of_split)
        if not found.points and not found.results:
            raise bad_input(f"{path}: " + ("; ".join(found.gaps) or "no column of it is a number"))
        yield found.settle(path)


def _places(rows: list[Row], step: str, epoch: str, split: str) -> Callable[[Row], float | None]:
    """The step of a row; where the counter begins anew with every epoch, its steps since the first."""
    pairs = [(as_number(row.get(epoch)), as_number(row.get(step))) for row in rows]
    trained = [
        (of, at)
        for row, (of, at) in zip(rows, pairs, strict=True)
        if of is not None and at is not None and split_word(row.get(split)) in (None, "train")
    ]
    anew = any(later[0] > one[0] and later[1] <= one[1] for one, later in pairwise(trained))
    if not anew or not epoch or step == epoch:
        return lambda row: as_number(row.get(step))
    length, first = max(at for _, at in trained), min(1.0, min(of for of, _ in trained))

    def place(row: Row) -> float | None:
        of, at = as_number(row.get(epoch)), as_number(row.get(step))
        if of is None or split_word(row.get(split)) in ("val", "test"):  # counts its own batches, at the epoch's end
            at = length
        return None if of is None or at is None else (of - first) * length + min(at, length)

    return place


def _varies(name: str, rows: list[Row], group: str | None) -> bool:
    """Is a column not the same for all runs of a group? Then it was not set for it."""
    values: dict[Any, set[Any]] = {}
    for row in rows if group else ():
        values.setdefault(row.get(group or ""), set()).add(row.get(name))
    return any(len(one) > 1 for one in values.values())


def _settings(names: list[str], rows: list[Row], several: bool) -> dict[str, Any]:
    """What stays the same in all rows of a run. A number in the only run of a table is rather a flat curve."""
    found = {}
    for name in names:
        values = {row.get(name) for row in rows}
        value = values.pop()
        plain = several or len(rows) == 1 or settings.is_seed(name) or as_number(value) is None
        plain, name = plain or bool(_OF_CONFIG.match(name)), _OF_CONFIG.sub("", name)
        if not values and value is not None and plain:
            found[name] = as_setting(value) if isinstance(value, str) else value
    return found


# -- trainer_state.json: the whole history, in every checkpoint and, at the end, in the output folder


def belongs_to_trainer(folder: Path, folders: set[Path]) -> bool:
    """Is this the output folder of a Trainer?"""
    return any(one == folder or one.parent == folder for one in folders if (one / TRAINER_STATE).is_file())


def read_trainer_states(paths: list[Path]) -> Iterator[Foreign]:
    """The run whose checkpoints hold these files: of several the one that went furthest."""
    loaded = [(path, files.read_json(path)) for path in paths if path.stat().st_size <= MOST_BYTES]
    found = [(as_number(data.get("global_step")) or 0, path, data) for path, data in loaded if isinstance(data, dict)]
    if not found:
        raise bad_input(f"{paths[0]} is no state of a Trainer")
    last, path, state = max(found, key=lambda one: (one[0], -len(one[1].parts)))
    run = Foreign(path.parent.name, "transformers", path)
    run.config = {name: state[name] for name in _TRAINER_SETTINGS if isinstance(state.get(name), (int, float))}
    history = state.get("log_history")
    for row in (row for row in (history if isinstance(history, list) else []) if isinstance(row, dict)):
        is_summary = "train_runtime" in row  # the last: its train_loss is the run's mean, not the loss of that step
        if (step := as_number(row.get("step"))) is not None and math.isfinite(step):
            values = {name: value for name, value in row.items() if name != "step"}
            run.add(int(step), values, split="train" if is_summary else None)
        run.state = states.FINISHED if is_summary else run.state
    if (tokens := as_number(state.get("num_input_tokens_seen"))) and run.points:
        run.add(int(last), {"num_input_tokens_seen": tokens})
    if not run.points:
        raise bad_input(f"{path} has no log_history with steps")
    yield run.settle(path)


# -- a log: the log noun's points as rows, and the settings that logs tell first


_WHOLE = 64 << 20  # bytes of which every line is read
_HEAD = 300  # lines
_NAMESPACE = re.compile(r"Namespace\((.{1,20000})\)")  # print(args) of argparse
_OPTION = re.compile(r"(\w+)=('[^']*'|\"[^\"]*\"|[^,()\[\]{}'\"]+)(?=, |$)")
_SEED = re.compile(r"\b(?:random |global |rng )?seed\b(?: set)?(?: is| to)?[\"']?\s*[:= ]\s*(\d{1,10})\b", re.I)


class _EveryPoint(History):
    """A history thins its curves; here each value goes into the run."""

    def __init__(self, run: Foreign) -> None:
        super().__init__()
        self.run, self.told_at = run, 0.0
        self.rows: dict[float, Row] = {}  # place -> values, its time and epoch

    def take(self, line: str) -> None:
        if self.lines < _HEAD:
            if "Namespace(" in line and (printed := _NAMESPACE.search(line)):
                options = _OPTION.findall(printed[1])
                self.run.config |= {name: as_setting(value.strip("'\"")) for name, value in options}
            elif told := _SEED.search(line[:500]):
                self.run.config["seed"] = int(told[1])
        super().take(line)

    def take_point(self, point: Point, text: str) -> None:
        self.told_at = point.get("time", 0.0)
        super().take_point(point, text)

    def put(self, name: str, place: float, value: float, text: str = "") -> None:
        if name != SCALE_TOLD:  # its places are lines
            row = self.rows.setdefault(place, {"epoch": self.epoch})
            row |= {name: value, "time": self.told_at or row.get("time", 0.0)}

    def give(self) -> None:
        """The rows to the run, by steps as far as the log counts them: HF prints `'epoch': 0.2` and no step."""
        epochs = [row["epoch"] for row in self.rows.values()]
        whole = all(place.is_integer() for place in self.rows)
        steps = {place: round(place) for place in self.rows}
        if self.step is None and len({*epochs}) == len(epochs) and all(float(e or 0.5).is_integer() for e in epochs):
            steps = {place: int(row["epoch"]) for place, row in self.rows.items()}
        elif self.step is None and not whole:
            of_all = {place: round(place / (self.epochs or 1) * (self.total or 0)) for place in self.rows}
            numbered = {place: number for number, place in enumerate(sorted(self.rows), 1)}
            steps = of_all if len({*of_all.values()}) == len(of_all) else numbered
            if steps is numbered:
                self.run.gaps.append("it counts parts of epochs and no steps: its lines are numbered, with their epoch")
        for place, row in self.rows.items():
            values = {name: row[name] for name in row if name != "time" and (name != "epoch" or not whole)}
            self.run.add(steps[place], values, row["time"])


def read_log(path: Path) -> Iterator[Foreign]:
    run = Foreign(path.stem, "log", path, log=path)
    history = _EveryPoint(run)
    cursor, grown = reader.advance(path, None, history.take, _WHOLE)
    history.give()
    if cursor is None:
        raise bad_input(f"{path} is no file that can be read")
    if not run.points:
        raise bad_input(f"{path}: no line of it has a metric of training")
    if history.step is None and history.epoch is None:
        run.gaps.append("it counts neither steps nor epochs: its lines are numbered instead")
    if grown.thinned:
        run.gaps.append("is longer than 64 MiB: its beginning, its end and lines evenly spread between them were read")
    failed = any(not problem.recovered for problem in history.problems)
    run.state = states.FINISHED if history.ended else states.FAILED if failed else states.UNKNOWN
    yield run.settle(path)
