"""Readers: run directories (or parts of one), runs that others made, results.json and CSV; each gives Trials.

A CSV has one row per run (a seed, run or name column says so) or per eval item. Which of them is never guessed: taking
1,000 examples for 1,000 runs would make any difference "real".
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from rgt import files, schema
from rgt.compare_runs import flat_settings
from rgt.compare_runs.trial import Curve, Reading, Trial, number
from rgt.errors import bad_input
from rgt.job import settings
from rgt.metrics import table
from rgt.run import record as rundir
from rgt.run.foreign import Ask, Foreign, as_number
from rgt.run.foreign.run_survey import configs, look
from rgt.run.foreign.text_files import pivoted
from rgt.run.results import is_typed
from rgt.walk import tell

_TOKENS = ("tokens", "tokens_seen", "total_tokens", "num_tokens", "num_input_tokens_seen", "train_tokens")
_BOOKKEEPING = {"step", "time", "split"}
_TABLES = (".csv", ".tsv")
Scope = Callable[[str, str], "str | None"]  # what a name says that a metric was measured on


def load(word: str, wanted: tuple[str, ...]) -> list[Trial]:
    """Every run of `path`, whoever made it, or of `file.csv::column=value`: some of its rows."""
    name, marked, condition = word.partition("::")
    path = Path(name)
    column, equals, value = condition.rpartition("=")
    if marked and not equals:
        raise bad_input(f"{word}: expected FILE.csv::COLUMN=VALUE")
    if not path.exists():
        raise bad_input(f"{path} does not exist")
    if path.suffix.lower() in _TABLES:
        return _load_table(path, wanted, (column, value) if marked else None)
    if marked:
        raise bad_input(f"{word}: rows can only be selected from a CSV")
    if path.name == "results.json" and (path.parent / "run.json").is_file():
        return [_from_run(rundir.Run(path.parent), wanted)]
    if path.is_dir() and (runs := rundir.find(path)):
        return [_from_run(run, wanted) for run in runs]
    results = path / "results.json" if path.is_dir() else path
    data = files.read_json(results) if results.suffix == ".json" and results.is_file() else None
    if isinstance(data, dict) and isinstance(data.get("metrics"), list) and not schema.problems(data, "results"):
        trial = Trial(str(path))
        return [_with_records(trial, rundir.Run(path), wanted) if path.is_dir() else _with_results(trial, path, wanted)]
    seen = look(path, Ask())
    for sentence in seen.stopped:
        tell(sentence)
    others = [*seen.runs, *(run for run in seen.empty if run.values)]
    why = "; ".join(why for _, why in seen.unread[:3]) or "no run.json, log, table or tracker's file in or below it"
    if not others and path.is_dir() and (seen.unread or configs(path)):
        tell(f"{path}: a run without a value: {why}")
        return [_finished(_with_folder(Trial(str(path)), rundir.Run(path), wanted), wanted)]
    if not others:
        raise bad_input(f"{path} holds no run: {why}")
    return [_from_foreign(run, wanted) for run in others]


def _from_run(run: rundir.Run, wanted: tuple[str, ...]) -> Trial:
    record = run.record()
    return _with_records(_from_record(Trial(str(run.path), run_id=record["run_id"]), record), run, wanted)


def _from_foreign(run: Foreign, wanted: tuple[str, ...]) -> Trial:
    """A run that has no run directory: what adopt would write is read from memory."""
    trial = _from_record(Trial(f"{run.source} {run.key}".strip()), run.record())
    _add_rows(trial, run.rows, str(run.source), wanted)
    for row in run.results:
        if all(row["value"] != value for _, value in run.values):  # which tell where it stood
            _add_reading(trial, row)
    # metrics, and settings where the file holds both: {"lr": 0.1, "dropout": 0.2, "test_acc": 0.9}
    named = {re.sub(r"\.(?!\d)", "/", key): value for key, value in run.values}
    trial.recorded |= {name: [Reading(value, typed=True)] for name, value in named.items()}
    config = trial.config or {}
    given = {name: value for name, value in named.items() if not table.known(name) and not table.split_of(name)}
    if (settings.plain_names(given) or {"lr", "learning_rate"} & given.keys()) and not given.keys() & config.keys():
        trial.config, trial.table = flat_settings.flatten(given) | config, True
    return _finished(trial, wanted)


def _fitting(asked: str, names: Iterable[str], where: str, scope: Scope) -> tuple[list[str], list[str]]:
    """The recorded names that come nearest to the one asked for, one per split, and the same of other splits."""
    ranks = {name: rank for name in names if (rank := table.rank(asked, name)) is not None}
    best = [name for name, rank in ranks.items() if rank == min(ranks.values())]
    if len({scope(asked, name) for name in best}) < len(best):
        raise bad_input(f"{where} has {asked!r} as {', '.join(best[:10])}: name one of them")
    alike = {table.unsplit(name) for name in best}
    return best, [name for name in names if name not in best and table.unsplit(name) in alike]


def _scope(asked: str, name: str) -> str | None:
    """What a value was measured on, as its name says: {"mmlu": {"acc": 0.6}} is the acc of mmlu."""
    path, _, last = name.rpartition("/")
    have, wants = table.unsplit(last).split(), table.unsplit(asked).split()
    before = have[: -len(wants)] if have[-len(wants) :] == wants else []
    return table.scope(" ".join([path, table.split_of(last) or "", *before]))


def _from_record(trial: Trial, record: dict[str, Any]) -> Trial:
    """What run.json says."""
    trial.config = flat_settings.flatten(record["config"]) or None
    # without the words that name the run itself: where it writes is no setting
    command = ["<run>" if trial.run_id and trial.run_id in word else word for word in record["command"]]
    said = flat_settings.flags(command)
    if "args" not in record["config"]:
        trial.config = flat_settings.merged(trial.config or {}, said) or None
    trial.seed = _seed(trial.config or {}, record["seeds"])
    git = record["git"] or {}
    if git:
        unknown = "not recorded" if git["dirty"] is None else "clean"
        trial.code = {"commit": git["commit"], "diff": git.get("diff_sha256") or unknown}
        trial.diff = git.get("diff") or ""
    # a record that contradicts itself: what ran is then not what it says
    if git.get("dirty") and not git.get("diff_sha256") and not git.get("untracked"):
        trial.doubts.append("it ran uncommitted code that was not recorded")
    last, show = flat_settings.last, flat_settings.show
    for key, value in said.items():
        known = {v for name, v in (trial.config or {}).items() if name != key and last(name) == last(key)}
        if known and value not in known and flat_settings.kind(key) in ("config", "budget", "data"):
            shown = "/".join(sorted(map(show, known)))
            trial.doubts.append(f"its command says {key} {show(value)}, its config {shown}")
    env = record["env"]  # null where launch could not know it
    trial.env = {"python": env["python"], **(env["packages"] or {})} if env["python"] else None
    trial.devices = tuple(str(device["name"]) for device in record["devices"] or ())
    return trial


def _seed(config: dict[str, Any], seeds: dict[str, int] | None = None) -> str | None:
    found = {name: str(value) for name, value in (seeds or {}).items()}
    found = found or {key: flat_settings.show(value) for key, value in config.items() if flat_settings.is_seed(key)}
    distinct = set(found.values())
    return distinct.pop() if len(distinct) == 1 else json.dumps(found, sort_keys=True) if found else None


def _with_records(trial: Trial, run: rundir.Run, wanted: tuple[str, ...]) -> Trial:
    return _with_results(_with_folder(trial, run, wanted), run.results, wanted)


def _with_folder(trial: Trial, run: rundir.Run, wanted: tuple[str, ...]) -> Trial:
    """Its curves and its settings."""
    if run.metrics.is_file():
        _add_rows(trial, files.read_jsonl(run.metrics), str(run.metrics), wanted)
    for path in configs(run.path):
        trial.config = flat_settings.merged(trial.config or {}, flat_settings.read_file(path))
    return trial


def _with_results(trial: Trial, path: Path, wanted: tuple[str, ...]) -> Trial:
    if not path.is_file():
        return _finished(trial, wanted)
    data = files.read_json(path, "results")
    if trial.run_id not in (None, data["run_id"]):
        raise bad_input(f"{path} belongs to another run: it says {data['run_id']}")
    trial.run_id = data["run_id"]
    for row in data["metrics"]:
        _add_reading(trial, row)
    # what results.json may say beyond its schema: budget, and hashes of the data that was trained on
    for name in ("tuning_trials", "tokens", "steps"):
        value = data.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            trial.budget[name] = float(value)
    for name, value in data.items():
        if isinstance(value, str) and name.lower().endswith(("sha256", "_hash")):
            trial.data[name] = value
    if trial.seed is None and isinstance(data.get("seed"), int):
        trial.seed = str(data["seed"])
    return _finished(trial, wanted)


def _finished(trial: Trial, wanted: tuple[str, ...]) -> Trial:
    trial.seed = trial.seed or _seed(trial.config or {})
    trial.available |= trial.recorded.keys()
    for asked in wanted:
        best, others = _fitting(asked, trial.recorded, trial.source, _scope)
        for name in best:
            own = [replace(one, split=one.split or _scope(asked, name)) for one in trial.recorded[name]]
            trial.readings.setdefault(asked, []).extend(own)
            trial.names |= {(asked, one.split): name for one in own}
        beside = [(table.split_of(name), one.value) for name in others for one in trial.recorded[name]]
        trial.twins[asked] = trial.twins.get(asked, []) + beside
    for (name, split), points in list(trial.curves.items()):
        trial.curves[name, split] = ordered = dict(sorted(points.items()))
        # a metric that nobody reported is the last point of its curve: the default, without any selection
        if name in wanted and not any(reading.split == split for reading in trial.readings.get(name, [])):
            step = next(reversed(ordered))
            trial.readings.setdefault(name, []).append(Reading(ordered[step], split, step=step, from_curve=True))
    return trial


def _add_rows(trial: Trial, rows: Iterable[dict[str, Any]], where: str, wanted: tuple[str, ...]) -> None:
    """Rows of metrics.jsonl; of a step computed twice the later row counts."""
    curves: dict[str, Curve] = {}
    for row in rows:
        step, of = row.get("step"), row.get("split")
        if not isinstance(step, int) or isinstance(step, bool):
            continue
        trial.budget["steps"] = max(trial.budget.get("steps", 0.0), float(step))
        trial.available.update(row.keys() - _BOOKKEEPING)
        for key in row.keys() - _BOOKKEEPING:
            name = key if not of or table.split_of(key) else f"{of}/{key}"
            fits = any(table.rank(table.unsplit(asked), name) is not None for asked in wanted)
            if row[key] is None or not (fits or key in _TOKENS):
                continue
            value = number(row[key], f"{where}, step {step}: {key}")
            if fits:
                curves.setdefault(name, {})[step] = value
            elif math.isfinite(value):
                trial.budget["tokens"] = max(trial.budget.get("tokens", 0.0), value)
    for asked in wanted:
        best, others = _fitting(asked, curves, where, lambda _, name: table.split_of(name))  # which a curve is of
        trial.curves |= {(asked, table.split_of(name)): curves[name] for name in best}
        trial.names |= {(asked, table.split_of(name)): name for name in best}
        trial.twins[asked] = [(table.split_of(name), next(reversed(curves[name].values()))) for name in others]


def _add_reading(trial: Trial, row: dict[str, Any]) -> None:
    reading = Reading(float(row["value"]), row["split"], row.get("n"), row["direction"], row.get("eval_set_sha256"))
    reading.step, reading.typed = row.get("step"), is_typed(row)
    trial.recorded.setdefault("/".join(filter(None, (reading.split, row["name"]))), []).append(reading)
    if reading.step is not None:
        trial.budget.setdefault("steps", float(reading.step))


# -- CSV


_RUN = ("run_id", "run", "run_name", "name")
_ITEM = (
    "item item_id example example_id sample sample_id image image_id filename file question_id qid doc_id utt_id uid "
    "uuid key idx index id"
).split()
_FOLDS = ("fold", "cv_fold", "replicate", "replica", "repetition", "repeat", "rep")  # a run each, where no seed is
_STEP = ("step", "global_step", "iteration", "iter", "epoch", "trainer/global_step")
_SPLIT = ("split", "subset")
_FIELD = 1 << 17  # characters
_LINE = "\0"  # a column of ours: where a row stands

_NO_VALUE = ("", "-", "--", "n/a", "na", "none", "null")

Row = dict[str, str]


def _load_table(path: Path, wanted: tuple[str, ...], where: tuple[str, str] | None) -> list[Trial]:
    """The runs of a table; `where` (column, value) selects rows."""
    # a column per metric, and every row has all of them
    wide = pivoted([{_LINE: str(line), **row} for line, row in _selected_rows(path, where)], _LINE)
    if not wide:
        raise bad_input(f"{path} has no rows (or none that were selected)")
    header = [name for name in dict.fromkeys(name for row in wide for name in row) if name != _LINE]
    numbered = [(int(row[_LINE]), {name: row.get(name, "") for name in header}) for row in wide]
    run, split, item, step, seed = _columns([row for _, row in numbered])
    own = [name for name in (run, seed) if name]  # the columns that name a run
    measures = [name for name in header if name not in (*own, split, item, step)]
    metrics = {name: fits for name in wanted if (fits := _fitting(name, measures, str(path), _scope))[0]}
    if not metrics:
        raise bad_input(f"{path} has no column {wanted[0]!r}; it has {', '.join(header[:30])}")
    if item is None and not own and not step and len(numbered) > 1:
        raise bad_input(
            f"{path} has {len(numbered)} rows and does not say what a row is: a seed or run column makes them runs, an "
            "item or id column makes them examples; add one"
        )
    found: dict[tuple[str, ...], Trial] = {}
    for line, row in numbered:
        key = tuple(row[name] for name in own)
        if item is None and step is None:
            key = (*key, f"(line {line})")
        elif item is None and key in found:
            if where is None:
                return [_from_foreign(curve, wanted) for curve in look(path, Ask()).runs]
            raise bad_input(f"{path} line {line}: a row per {step} is a curve; keep the row of each run that counts")
        if key not in found:
            shown = flat_settings.show(flat_settings.plain(row[seed])) if seed else None
            name = row[run] if run else None
            label = where[0] if where else ""
            found[key] = Trial(" ".join((str(path), *key)), name, shown, table=True, label=label, available=set(header))
        cells = {name: row[name].strip() for best, others in metrics.values() for name in (*best, *others)}
        cells = {name: cell for name, cell in cells.items() if cell.lower() not in _NO_VALUE}
        values = {name: number(cell, f"{path} line {line}: {name}") for name, cell in cells.items()}
        if item is None:
            _add_run(found[key], row, values, split, own)
        else:
            scores = {asked: values[best[0]] for asked, (best, _) in metrics.items() if best[0] in values}
            _add_item(found[key], row[item], scores, f"{path} line {line}")
    for trial in [_finished(trial, wanted) for trial in found.values()]:
        for name, of in trial.items.items():
            trial.readings[name] = [Reading(sum(of.values()) / len(of), table.split_of(name), len(of))]
    return list(found.values())


def _columns(rows: list[Row]) -> list[str | None]:
    """Which one names the run, the split, the item, the step and the seed."""
    columns = {name.lower(): name for name in reversed(rows[0])}
    items = [] if "State" in rows[0] else _ITEM  # wandb's table has an ID of runs
    run, split, item, step, fold = (
        next((columns[n] for n in names if n in columns), None) for names in (_RUN, _SPLIT, items, _STEP, _FOLDS)
    )
    seed = next(filter(flat_settings.is_seed, rows[0]), fold)
    own = [name for name in (run, seed) if name]
    if split and not all(table.split_of(row[split]) for row in rows):
        split = None  # how the data was split, which is a setting
    if own and len({tuple(row[name] for name in own) for row in rows}) == len(rows):
        item = None  # an id of runs
    return [run, split, item, step, seed]


def _selected_rows(path: Path, where: tuple[str, str] | None) -> Iterator[tuple[int, Row]]:
    """The selected rows with their lines; every row has every column."""
    csv.field_size_limit(_FIELD)  # one for the whole process: said, so that nobody else's holds here
    try:
        with io.TextIOWrapper(files.open_regular(path), encoding="utf-8-sig", newline="") as file:
            first = file.readline(1 << 20)
            file.seek(0)
            reader = csv.DictReader(file, delimiter=max(",;\t", key=first.count), strict=True)
            header = reader.fieldnames = [column.strip() for column in reader.fieldnames or []]
            if not any(header):
                raise bad_input(f"{path} is empty; expected a header line and rows")
            twice = [name for name, times in Counter(header).items() if name and times > 1]
            if twice:
                raise bad_input(f"{path} has the column {twice[0][:60]!r} twice; rename one of them")
            if where and where[0] not in header:
                raise bad_input(f"{path} has no column {where[0]!r} to select by; it has {', '.join(header[:30])}")
            for row in reader:
                if None in row or None in row.values():
                    raise bad_input(f"{path} line {reader.line_num} has another number of fields than the header")
                meant = where is None or flat_settings.plain(row[where[0]]) == flat_settings.plain(where[1])
                if meant and any(row.values()):
                    yield reader.line_num, row
    except UnicodeDecodeError as error:
        raise bad_input(f"{path} is not text: byte {error.start} is not UTF-8") from None
    except csv.Error as error:
        raise bad_input(f"{path} is not usable CSV: {error}") from None


def _add_run(trial: Trial, row: Row, values: dict[str, float], split: str | None, own: list[str]) -> None:
    """The other columns are settings, unless they are metrics, which differ because runs differ."""
    scope = table.scope(row[split]) if split else None
    trial.recorded = {name: [Reading(value, scope)] for name, value in values.items()}
    given = {
        name: value
        for name, value in row.items()
        if value.strip() and name not in (*own, *values) and name != split and name and not name.startswith("_")
        if as_number(value) is None or (table.known(name) is None and table.split_of(name) is None)
    }
    trial.config = flat_settings.flatten(given) or None


def _add_item(trial: Trial, item: str, values: dict[str, float], where: str) -> None:
    for name, value in values.items():
        scores = trial.items.setdefault(name, {})
        if item in scores:
            raise bad_input(f"{where} has the item {item[:60]!r} a second time")
        scores[item] = value
