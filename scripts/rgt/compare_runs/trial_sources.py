"""Readers: run directories (or parts of one), results.json, wandb folders and exports, CSV; each gives Trials."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

from rgt import files, schema
from rgt.compare_runs import csv_tables, flat_settings
from rgt.compare_runs.trial import Reading, Trial, add_last_points, number
from rgt.errors import bad_input, from_os_error
from rgt.log import summary as logs
from rgt.metrics import table
from rgt.run import record as rundir

CONFIGS = "config.yaml config.yml config.json training_config.yaml hparams.yaml args.json args.yaml .hydra/config.yaml"
_TOKENS = ("tokens", "tokens_seen", "total_tokens", "num_tokens", "num_input_tokens_seen", "train_tokens")
_BOOKKEEPING = {"step", "time", "split", "_step", "_runtime", "_timestamp"}
_TABLES = (".csv", ".tsv")
_LARGEST = 256 << 20  # bytes of one JSON file


def load(word: str, wanted: tuple[str, ...]) -> list[Trial]:
    """Every run of `path`, or of `file.csv::column=value`: some of its rows."""
    name, marked, condition = word.partition("::")
    path = Path(name)
    column, equals, value = condition.rpartition("=")
    if marked and not equals:
        raise bad_input(f"{word}: expected FILE.csv::COLUMN=VALUE")
    if not path.exists():
        raise bad_input(f"{path} does not exist")
    if path.suffix.lower() in _TABLES:
        return csv_tables.load(path, wanted, (column, value) if marked else None)
    if marked:
        raise bad_input(f"{word}: rows can only be selected from a CSV")
    if path.is_file() and path.suffix.lower() != ".json":
        raise bad_input(f"{path} is no run: expected a run directory, a .json or a .csv")
    beside_record = path.name == "results.json" and (path.parent / "run.json").is_file()
    if path.is_file() and not beside_record:
        return [_from_json(path, wanted)]
    runs = [rundir.Run(path.parent)] if beside_record else rundir.find(path)
    if runs:
        return [_from_run(run, wanted) for run in runs]
    for folder in (path, path / "files"):
        if (folder / "wandb-summary.json").is_file():
            return [_from_wandb(folder, wanted)]
    if any((path / name).is_file() for name in ("results.json", "metrics.jsonl")):
        return [_with_records(Trial(str(path)), rundir.Run(path), wanted)]
    nothing = "holds no run: no run.json, results.json, metrics.jsonl or wandb-summary.json in or below it"
    raise bad_input(f"{path} {nothing}")


def _from_run(run: rundir.Run, wanted: tuple[str, ...]) -> Trial:
    read_json(run.run_json)  # for duplicate keys, which the record's own reader lets pass
    record = run.record()
    trial = Trial(str(run.path), run_id=record["run_id"])
    trial.config = flat_settings.flatten(record["config"], str(run.run_json))
    # without the words that name the run itself: where it writes is no setting
    command = ["<run>" if record["run_id"] in word else word for word in record["command"]]
    said = flat_settings.flags(command)
    if "args" not in record["config"]:
        trial.config = flat_settings.merged(trial.config, said)
    trial.seed = _seed(trial.config, record["seeds"])
    git = record["git"] or {}
    if git:
        trial.code = {"commit": git["commit"], "diff": git.get("diff_sha256") or "clean"}
        trial.diff = git.get("diff") or ""
    # a record that contradicts itself: what ran is then not what it says
    if git.get("dirty") and not git.get("diff_sha256") and not git.get("untracked"):
        trial.doubts.append("it ran uncommitted code that was not recorded")
    last, show = flat_settings.last, flat_settings.show
    for key, value in said.items():
        known = {v for name, v in trial.config.items() if name != key and last(name) == last(key)}
        if known and value not in known and flat_settings.kind(key) in ("config", "budget", "data"):
            shown = "/".join(sorted(map(show, known)))
            trial.doubts.append(f"its command says {key} {show(value)}, its config {shown}")
    trial.env = {"python": record["env"]["python"], **record["env"]["packages"]}
    trial.devices = tuple(sorted({str(device["name"]) for device in record["devices"]}))
    trial.cards = len(record["devices"]) or None
    return _with_records(trial, run, wanted)


def _seed(config: dict[str, Any], seeds: dict[str, int] | None = None) -> str | None:
    found = {name: str(value) for name, value in (seeds or {}).items()}
    found = found or {key: flat_settings.show(value) for key, value in config.items() if flat_settings.is_seed(key)}
    distinct = set(found.values())
    return distinct.pop() if len(distinct) == 1 else json.dumps(found, sort_keys=True) if found else None


def _with_records(trial: Trial, run: rundir.Run, wanted: tuple[str, ...]) -> Trial:
    if run.metrics.is_file():
        _add_rows(trial, files.read_jsonl(run.metrics), wanted, str(run.metrics))
    if run.results.is_file():
        _add_results(trial, run.results)
    elif not run.metrics.is_file() and run.log.is_file():
        for name, value in logs.read(run.log).metrics.items():
            trial.available.add(name)
            if name in wanted:
                trial.readings.setdefault(name, []).append(Reading(value, table.split_of(name), from_curve=True))
    _add_settings(trial, run.path)
    add_last_points(trial, wanted)
    return trial


def _add_settings(trial: Trial, folder: Path | None = None, words: Any = None) -> None:
    """The config files of a run's folder and the flags of its command: launch records only how trainers were called."""
    for path in [folder / name for name in CONFIGS.split()] if folder else []:
        if path.is_file():
            trial.config = flat_settings.merged(trial.config or {}, flat_settings.read_file(path))
    if isinstance(words, list):
        trial.config = flat_settings.merged(trial.config or {}, flat_settings.flags([str(word) for word in words]))
    trial.seed = trial.seed or _seed(trial.config or {})
    for key, value in (trial.config or {}).items():
        if flat_settings.TRIALS.fullmatch(flat_settings.last(key)) and isinstance(value, float):
            trial.budget.setdefault("tuning_trials", value)


def _add_rows(trial: Trial, rows: Any, wanted: tuple[str, ...], where: str) -> None:
    """metrics.jsonl and wandb history alike; of a step computed twice the later row counts."""
    for row in rows:
        step = row.get("step", row.get("_step"))
        if not isinstance(step, int) or isinstance(step, bool):
            continue
        trial.budget["steps"] = max(trial.budget.get("steps", 0.0), float(step))
        trial.available.update(row.keys() - _BOOKKEEPING)
        for name in (*wanted, *_TOKENS):
            if row.get(name) is None:
                continue
            value = number(row[name], f"{where}, step {step}: {name}")
            if name in wanted:
                split = row.get("split") or table.split_of(name)
                trial.curves.setdefault((name, split), {})[step] = value
            elif math.isfinite(value):
                trial.budget["tokens"] = max(trial.budget.get("tokens", 0.0), value)


def _add_results(trial: Trial, path: Path) -> None:
    data = read_json(path)
    schema.check(data, "results", str(path))
    if trial.run_id not in (None, data["run_id"]):
        raise bad_input(f"{path} belongs to another run: it says {data['run_id']}")
    trial.run_id = data["run_id"]
    for row in data["metrics"]:
        trial.available.add(row["name"])
        seen = {"eval_set": row.get("eval_set_sha256"), "step": row.get("step")}
        reading = Reading(float(row["value"]), row["split"], row.get("n"), row["direction"], **seen)
        trial.readings.setdefault(row["name"], []).append(reading)
        if reading.step is not None:
            trial.budget.setdefault("steps", float(reading.step))
    # what results.json may say beyond its schema: budget, and hashes of the data that was trained on
    budget: Any = data.get("budget") if isinstance(data.get("budget"), dict) else {}
    for name in ("tuning_trials", "tokens", "steps"):
        value = data.get(name, budget.get(name))
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            trial.budget[name] = float(value)
    for name, value in data.items():
        if isinstance(value, str) and name.lower().endswith(("sha256", "_hash")):
            trial.data[name] = value
    if isinstance(data.get("config"), dict) and trial.config is None:
        trial.config = flat_settings.flatten(data["config"])
        trial.seed = trial.seed or _seed(trial.config)
    if trial.seed is None and isinstance(data.get("seed"), int):
        trial.seed = str(data["seed"])


def _from_json(path: Path, wanted: tuple[str, ...]) -> Trial:
    """A results.json, or a wandb history: a list of rows, or an object with history, config, summary, id."""
    data = read_json(path)
    trial = Trial(str(path))
    if isinstance(data, dict) and "metrics" in data:
        _add_results(trial, path)
        return trial
    whole: dict[str, Any] = data if isinstance(data, dict) else {"history": data}
    rows, summary = whole.get("history", []), whole.get("summary") or {}
    if not isinstance(rows, list) or not (rows or summary) or not all(isinstance(row, dict) for row in rows):
        raise bad_input(f"{path} is neither a results.json nor a wandb history (a list of rows with _step)")
    trial.run_id = str(whole["id"]) if "id" in whole else None
    if isinstance(whole.get("config"), dict):
        trial.config = flat_settings.flatten(whole["config"], str(path))
    _add_rows(trial, rows, wanted, str(path))
    _add_summary(trial, summary, wanted, f"{path}: summary")
    _add_settings(trial)
    add_last_points(trial, wanted)
    return trial


def _add_summary(trial: Trial, summary: Any, wanted: tuple[str, ...], where: str) -> None:
    if not isinstance(summary, dict):
        raise bad_input(f"{where} is a {type(summary).__name__}; expected an object of metrics")
    trial.available.update(summary.keys() - _BOOKKEEPING)
    if isinstance(summary.get("_step"), int):
        trial.budget.setdefault("steps", float(summary["_step"]))
    for name in wanted:
        value = summary.get(name)
        if isinstance(value, dict):  # define_metric(summary="max") writes {"max": ...}: a peak, taken as reported
            value = next(iter(value.values()), None)
        if value is not None:
            reading = Reading(number(value, f"{where}: {name}"), table.split_of(name))
            trial.readings.setdefault(name, []).append(reading)


def _from_wandb(folder: Path, wanted: tuple[str, ...]) -> Trial:
    """files/ of a wandb run: wandb-summary.json, config.yaml, wandb-metadata.json."""
    trial = Trial(str(folder), run_id=folder.parent.name if folder.name == "files" else None)
    meta = read_json(folder / "wandb-metadata.json") if (folder / "wandb-metadata.json").is_file() else {}
    meta = meta if isinstance(meta, dict) else {}
    git = meta.get("git")
    if isinstance(git, dict) and git.get("commit"):
        trial.code = {"commit": str(git["commit"])}
    if meta.get("python"):
        trial.env = {"python": str(meta["python"]).removeprefix("CPython ")}
    if meta.get("gpu"):
        trial.devices = (str(meta["gpu"]),)
    _add_settings(trial, folder, meta.get("args"))
    path = folder / "wandb-summary.json"
    _add_summary(trial, read_json(path), wanted, str(path))
    return trial


def read_json(path: Path) -> Any:
    """JSON in which no key is there twice: which of the two values counts would be a guess."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]
        if twice:
            raise bad_input(f"{path} has the key {twice[0][:100]!r} twice; which one counts is not knowable")
        return dict(pairs)

    try:
        if path.stat().st_size > _LARGEST:
            raise bad_input(f"{path} has more than {_LARGEST >> 20} MB; export fewer rows, or CSV")
        data = files.read_json(path)
        json.loads(path.read_bytes(), object_pairs_hook=unique)
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None
    return data
