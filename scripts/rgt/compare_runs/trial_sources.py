"""Readers: run directories (or parts of one), runs that others made, results.json and CSV; each gives Trials.

A CSV has one row per run (a seed, run or name column says so) or per eval item. Which of them is never guessed: taking
1,000 examples for 1,000 runs would make any difference "real".
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rgt import files, schema
from rgt.compare_runs import flat_settings
from rgt.compare_runs.trial import Curve, Reading, Trial, number
from rgt.errors import bad_input
from rgt.metrics import table
from rgt.run import record as rundir
from rgt.run.foreign import Ask, Foreign
from rgt.run.foreign.run_survey import CONFIGS, EVALUATION, look
from rgt.run.results import is_typed
from rgt.walk import tell

_TOKENS = ("tokens", "tokens_seen", "total_tokens", "num_tokens", "num_input_tokens_seen", "train_tokens")
_BOOKKEEPING = {"step", "time", "split"}
_TABLES = (".csv", ".tsv")


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
    if results.suffix == ".json" and results.is_file() and not schema.problems(files.read_json(results), "results"):
        trial = Trial(str(path))
        return [_with_records(trial, rundir.Run(path), wanted) if path.is_dir() else _with_results(trial, path, wanted)]
    seen = look(path, Ask())
    for sentence in seen.stopped:
        tell(sentence)
    others = [*seen.runs, *(run for run in seen.empty if run.values)]
    if not others and path.is_dir() and any(EVALUATION.fullmatch(entry.name) for entry in path.iterdir()):
        return [_finished(_with_folder(Trial(str(path)), rundir.Run(path), wanted), wanted)]  # a run without a value
    if not others:
        why = "; ".join(why for _, why in seen.unread[:3]) or "no run.json, log, table or tracker's file in or below it"
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
        if not (run.values and row.get("dataset")):  # values tell of which, as results do not
            _add_reading(trial, row)
    _add_values(trial, run.values, wanted)
    return _finished(trial, wanted)


def _add_values(trial: Trial, values: list[tuple[str, float]], wanted: tuple[str, ...]) -> None:
    """The metric is named by the user, so the table need not know it: {"mmlu": {"acc": 0.6}} is the acc of mmlu."""
    for key, value in values:
        words = table.words(key)
        trial.available.add(key.rpartition(".")[2])
        for name in wanted:
            split, rest = table.split_and_rest(name)
            wants = table.words(rest)
            if words[-len(wants) :] != wants or not wants:
                continue
            scope = table.scope(" ".join(words[: -len(wants)]))
            readings = trial.readings.setdefault(name, [])
            if (split is None or split == scope) and all(reading.split != scope for reading in readings):
                readings.append(Reading(value, scope, typed=True))


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
    for path in [run.path / name for name in CONFIGS.split()]:
        if path.is_file() and path.stat().st_size:
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
    for name in wanted:  # `val_loss` may be recorded as the loss of val
        split, rest = table.split_and_rest(name)
        if name not in trial.readings and split:
            trial.readings |= (
                {name: own} if (own := [r for r in trial.readings.get(rest, []) if r.split == split]) else {}
            )
    for (name, split), points in list(trial.curves.items()):
        trial.curves[name, split] = ordered = dict(sorted(points.items()))
        # a metric that nobody reported is the last point of its curve: the default, without any selection
        if name in wanted and not any(reading.split == split for reading in trial.readings.get(name, [])):
            step = next(reversed(ordered))
            trial.readings.setdefault(name, []).append(Reading(ordered[step], split, step=step, from_curve=True))
    return trial


def _add_rows(trial: Trial, rows: Iterable[dict[str, Any]], where: str, wanted: tuple[str, ...]) -> None:
    """Rows of metrics.jsonl; of a step computed twice the later row counts."""
    by_split = {name: table.split_and_rest(name) for name in wanted}
    others: dict[tuple[str, str | None], Curve] = {}
    for row in rows:
        step = row.get("step")
        if not isinstance(step, int) or isinstance(step, bool):
            continue
        trial.budget["steps"] = max(trial.budget.get("steps", 0.0), float(step))
        trial.available.update(row.keys() - _BOOKKEEPING)
        for name in (*wanted, *_TOKENS):
            split, rest = by_split.get(name, (None, name))
            if name in wanted:
                _add_twins(trial, name, split, rest, row)
            if row.get(name) is None and split and row.get("split") == split and row.get(rest) is not None:
                others.setdefault((name, split), {})[step] = number(row[rest], f"{where}, step {step}: {rest}")
            if row.get(name) is None:
                continue
            value = number(row[name], f"{where}, step {step}: {name}")
            if name in wanted:
                trial.curves.setdefault((name, row.get("split") or table.split_of(name)), {})[step] = value
            elif math.isfinite(value):
                trial.budget["tokens"] = max(trial.budget.get("tokens", 0.0), value)
    exact = {name for name, _ in trial.curves}
    trial.curves |= {key: curve for key, curve in others.items() if key[0] not in exact}


def _add_twins(trial: Trial, name: str, split: str | None, rest: str, row: dict[str, Any]) -> None:
    """The newest values of a metric on other splits, as `loss` of train is beside `val_loss`."""
    for key, value in row.items():
        of, what = table.split_and_rest(key)
        of = of or row.get("split")
        if what == rest and of and of != split and isinstance(value, float):
            kept = [one for one in trial.twins.get(name, []) if one[0] != of]
            trial.twins[name] = [*kept, (of, value)]


def _add_reading(trial: Trial, row: dict[str, Any]) -> None:
    trial.available.add(row["name"])
    reading = Reading(float(row["value"]), row["split"], row.get("n"), row["direction"], row.get("eval_set_sha256"))
    reading.step, reading.typed = row.get("step"), is_typed(row)
    trial.readings.setdefault(row["name"], []).append(reading)
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

Row = dict[str, str]


def _load_table(path: Path, wanted: tuple[str, ...], where: tuple[str, str] | None) -> list[Trial]:
    """The runs of a table; `where` (column, value) selects rows."""
    numbered = list(_selected_rows(path, where))
    if not numbered:
        raise bad_input(f"{path} has no rows (or none that were selected)")
    header = list(numbered[0][1])
    metrics = [name for name in wanted if name in header]
    if not metrics:
        raise bad_input(f"{path} has no column {wanted[0]!r}; it has {', '.join(header[:30])}")
    columns = {name.lower(): name for name in reversed(header)}
    run, split, item, step = (
        next((columns[name] for name in names if name in columns), None)
        for names in (_RUN, _SPLIT, () if "State" in header else _ITEM, _STEP)  # wandb's table has an ID of runs
    )
    seed = next(filter(flat_settings.is_seed, header), None) or next((columns[n] for n in _FOLDS if n in columns), None)
    own = [name for name in (run, seed) if name]  # the columns that name a run
    if item is None and not own and len(numbered) > 1:
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
        values = {name: number(row[name], f"{path} line {line}: {name}") for name in metrics if row[name].strip()}
        if item is None:
            _add_run(found[key], row, values, split, {*own, *metrics})
        else:
            _add_item(found[key], row[item], values, f"{path} line {line}")
    for trial in found.values():
        for name, scores in trial.items.items():
            mean = sum(scores.values()) / len(scores)
            trial.readings[name] = [Reading(mean, table.split_of(name), len(scores))]
    return list(found.values())


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


def _add_run(trial: Trial, row: Row, values: dict[str, float], split: str | None, not_settings: set[str]) -> None:
    """The other columns are settings, unless they are metrics, which differ because runs differ."""
    for name, value in values.items():
        of_split = table.scope(row[split]) if split else table.split_of(name)
        trial.readings[name] = [Reading(value, of_split)]
    given = {
        name: value
        for name, value in row.items()
        if value.strip() and name not in not_settings and name != split and name and not name.startswith("_")
        if table.known(name) is None and table.split_of(name) is None
    }
    trial.config = flat_settings.flatten(given) or None


def _add_item(trial: Trial, item: str, values: dict[str, float], where: str) -> None:
    for name, value in values.items():
        scores = trial.items.setdefault(name, {})
        if item in scores:
            raise bad_input(f"{where} has the item {item[:60]!r} a second time")
        scores[item] = value
