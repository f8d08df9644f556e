"""Readers: run directories (or parts of one), results.json and CSV; each gives Trials."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from rgt import files
from rgt.compare_runs import csv_tables, flat_settings
from rgt.compare_runs.trial import Reading, Trial, add_last_points, number
from rgt.errors import bad_input
from rgt.metrics import table
from rgt.run import record as rundir

CONFIGS = "config.yaml config.yml config.json training_config.yaml hparams.yaml args.json args.yaml .hydra/config.yaml"
_TOKENS = ("tokens", "tokens_seen", "total_tokens", "num_tokens", "num_input_tokens_seen", "train_tokens")
_BOOKKEEPING = {"step", "time", "split"}
_TABLES = (".csv", ".tsv")


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
        trial = Trial(str(path))
        _add_results(trial, path)
        return [trial]
    runs = [rundir.Run(path.parent)] if beside_record else rundir.find(path)
    if runs:
        return [_from_run(run, wanted) for run in runs]
    if any((path / name).is_file() for name in ("results.json", "metrics.jsonl")):
        return [_with_records(Trial(str(path)), rundir.Run(path), wanted)]
    raise bad_input(f"{path} holds no run: no run.json, results.json or metrics.jsonl in or below it")


def _from_run(run: rundir.Run, wanted: tuple[str, ...]) -> Trial:
    record = run.record()
    trial = Trial(str(run.path), run_id=record["run_id"])
    trial.config = flat_settings.flatten(record["config"])
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
    env = record["env"]  # null where launch could not know it
    trial.env = {"python": env["python"], **(env["packages"] or {})} if env["python"] else None
    trial.devices = tuple(str(device["name"]) for device in record["devices"] or ())
    return _with_records(trial, run, wanted)


def _seed(config: dict[str, Any], seeds: dict[str, int] | None = None) -> str | None:
    found = {name: str(value) for name, value in (seeds or {}).items()}
    found = found or {key: flat_settings.show(value) for key, value in config.items() if flat_settings.is_seed(key)}
    distinct = set(found.values())
    return distinct.pop() if len(distinct) == 1 else json.dumps(found, sort_keys=True) if found else None


def _with_records(trial: Trial, run: rundir.Run, wanted: tuple[str, ...]) -> Trial:
    if run.metrics.is_file():
        _add_rows(trial, run.metrics, wanted)
    if run.results.is_file():
        _add_results(trial, run.results)
    for path in [run.path / name for name in CONFIGS.split()]:
        if path.is_file() and path.stat().st_size:
            trial.config = flat_settings.merged(trial.config or {}, flat_settings.read_file(path))
    trial.seed = trial.seed or _seed(trial.config or {})
    add_last_points(trial, wanted)
    return trial


def _add_rows(trial: Trial, path: Path, wanted: tuple[str, ...]) -> None:
    """metrics.jsonl; of a step computed twice the later row counts."""
    for row in files.read_jsonl(path):
        step = row.get("step")
        if not isinstance(step, int) or isinstance(step, bool):
            continue
        trial.budget["steps"] = max(trial.budget.get("steps", 0.0), float(step))
        trial.available.update(row.keys() - _BOOKKEEPING)
        for name in (*wanted, *_TOKENS):
            if row.get(name) is None:
                continue
            value = number(row[name], f"{path}, step {step}: {name}")
            if name in wanted:
                split = row.get("split") or table.split_of(name)
                trial.curves.setdefault((name, split), {})[step] = value
            elif math.isfinite(value):
                trial.budget["tokens"] = max(trial.budget.get("tokens", 0.0), value)


def _add_results(trial: Trial, path: Path) -> None:
    data = files.read_json(path, "results")
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
    for name in ("tuning_trials", "tokens", "steps"):
        value = data.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            trial.budget[name] = float(value)
    for name, value in data.items():
        if isinstance(value, str) and name.lower().endswith(("sha256", "_hash")):
            trial.data[name] = value
    if trial.seed is None and isinstance(data.get("seed"), int):
        trial.seed = str(data["seed"])
