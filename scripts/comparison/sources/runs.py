"""A run directory (run.json, results.json, metrics.jsonl), part of one, or a folder that wandb wrote."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from comparison import metrics as table
from comparison import settings
from comparison.model import Reading, Trial
from rgt import files, logs, rundir, schema
from rgt.errors import bad_input, from_os_error

CONFIGS = ("config.yaml", "config.yml", "config.json", "training_config.yaml", "hparams.yaml", "args.json",
           "args.yaml", ".hydra/config.yaml")  # fmt: skip
_TOKENS = ("tokens", "tokens_seen", "total_tokens", "num_tokens", "num_input_tokens_seen", "train_tokens")
_BOOKKEEPING = {"step", "time", "split", "_step", "_runtime", "_timestamp"}
_LARGEST = 256 << 20  # bytes of one JSON file


def load(path: Path, wanted: tuple[str, ...]) -> list[Trial]:
    """Every run of a folder, or the one of a results.json."""
    if path.is_file():
        return [_from_results(path, wanted)]
    found = rundir.find(path)
    if found:
        return [_from_run(run, wanted) for run in found]
    for folder in (path, path / "files"):
        if (folder / "wandb-summary.json").is_file():
            return [_from_wandb(folder, wanted)]
    if any((path / name).is_file() for name in ("results.json", "metrics.jsonl")):
        trial = Trial(str(path))
        _add_records(trial, rundir.Run(path), wanted)
        _add_config_files(trial, path)
        return [trial]
    raise bad_input(
        f"{path} holds no run: no run.json, results.json, metrics.jsonl or wandb-summary.json in or below it"
    )


def _about_the_job(record: dict[str, Any]) -> list[str]:
    """The command without the words that name the run itself: where it writes is no setting."""
    return ["<run>" if record["run_id"] in word else word for word in record["command"]]


def _from_run(run: rundir.Run, wanted: tuple[str, ...]) -> Trial:
    read_json(run.run_json)  # for duplicate keys, which the record's own reader lets pass
    record = run.record()
    trial = Trial(str(run.path), run_id=record["run_id"])
    trial.config = settings.flatten(record["config"], str(run.run_json))
    if "args" not in record["config"]:
        trial.config = settings.merged(trial.config, _about_the_job(record))
    trial.seed = _seed(record["seeds"], trial.config)
    git = record["git"]
    if git:
        trial.code = {"commit": git["commit"], "diff": git.get("diff_sha256") or "clean"}
        trial.diff = git.get("diff") or ""
    trial.doubts = tuple(_doubts(record, trial.config))
    trial.env = {"python": record["env"]["python"], **record["env"]["packages"]}
    trial.devices = tuple(sorted({str(device["name"]) for device in record["devices"]}))
    trial.cards = len(record["devices"]) or None
    _add_records(trial, run, wanted)
    _add_config_files(trial, run.path)
    return trial


def _doubts(record: dict[str, Any], config: dict[str, Any]) -> Iterator[str]:
    """A record that contradicts itself: what ran is then not what it says."""
    git = record["git"] or {}
    if git.get("dirty") and not git.get("diff_sha256") and not git.get("untracked"):
        yield "it ran uncommitted code that was not recorded"
    said = settings.flags(_about_the_job(record))
    for key, value in said.items():
        known = {v for name, v in config.items() if name != key and settings.last(name) == settings.last(key)}
        if known and value not in known and settings.kind(key) in ("config", "budget", "data"):
            shown = "/".join(sorted(map(settings.show, known)))
            yield f"its command says {key} {settings.show(value)}, its config {shown}"


def _seed(seeds: dict[str, int], config: dict[str, Any]) -> str | None:
    found = {name: str(value) for name, value in seeds.items()}
    found = found or {key: settings.show(value) for key, value in config.items() if settings.is_seed(key)}
    distinct = set(found.values())
    return distinct.pop() if len(distinct) == 1 else json.dumps(found, sort_keys=True) if found else None


def _add_config_files(trial: Trial, folder: Path) -> None:
    """Trainers leave their whole config in the run's folder; launch records only how they were called."""
    for name in CONFIGS:
        path = folder / name
        if path.is_file():
            extra = settings.read_file(path)
            have = trial.config or {}
            known = {(settings.last(key), value) for key, value in have.items()}
            fresh = {key: value for key, value in extra.items() if (settings.last(key), value) not in known}
            trial.config = {**fresh, **have}
            trial.seed = trial.seed or _seed({}, trial.config)


def _add_records(trial: Trial, run: rundir.Run, wanted: tuple[str, ...]) -> None:
    if run.metrics.is_file():
        _add_rows(trial, files.read_jsonl(run.metrics), wanted, str(run.metrics))
    if run.results.is_file():
        add_results(trial, run.results)
    elif not run.metrics.is_file() and run.log.is_file():
        for name, value in logs.read(run.log).metrics.items():
            trial.available.add(name)
            if name in wanted:
                trial.readings.setdefault(name, []).append(Reading(value, table.split_of(name), from_curve=True))
    add_last_points(trial, wanted)
    _add_trials(trial)


def _add_trials(trial: Trial) -> None:
    for key, value in (trial.config or {}).items():
        if settings.TRIALS.fullmatch(settings.last(key)) and isinstance(value, float):
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
            if name not in row or row[name] is None:
                continue
            value = number(row[name], f"{where}, step {step}: {name}")
            if name in wanted:
                split = row.get("split") or table.split_of(name)
                trial.curves.setdefault((name, split), {})[step] = value
            elif math.isfinite(value):
                trial.budget["tokens"] = max(trial.budget.get("tokens", 0.0), value)


def add_last_points(trial: Trial, wanted: tuple[str, ...]) -> None:
    """A metric that nobody reported is the last point of its curve: the one rule that picks nothing."""
    for (name, split), points in list(trial.curves.items()):
        trial.curves[name, split] = ordered = dict(sorted(points.items()))
        if name in wanted and not any(r.split == split for r in trial.readings.get(name, [])):
            step = next(reversed(ordered))
            trial.readings.setdefault(name, []).append(Reading(ordered[step], split, step=step, from_curve=True))


def add_results(trial: Trial, path: Path) -> None:
    data = read_json(path)
    schema.check(data, "results", str(path))
    if trial.run_id not in (None, data["run_id"]):
        raise bad_input(f"{path} belongs to another run: it says {data['run_id']}")
    trial.run_id = data["run_id"]
    for row in data["metrics"]:
        trial.available.add(row["name"])
        reading = Reading(float(row["value"]), row["split"], row["n"], row["direction"], row.get("eval_set_sha256"),
                          row.get("step"))  # fmt: skip
        trial.readings.setdefault(row["name"], []).append(reading)
        if reading.step is not None:
            trial.budget.setdefault("steps", float(reading.step))
    _add_extras(trial, data)


def _add_extras(trial: Trial, data: dict[str, Any]) -> None:
    """What results.json may say beyond its schema: budget, and hashes of the data that was trained on."""
    budget: Any = data.get("budget") if isinstance(data.get("budget"), dict) else {}
    for name in ("tuning_trials", "tokens", "steps"):
        value = data.get(name, budget.get(name))
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            trial.budget[name] = float(value)
    for name, value in data.items():
        if isinstance(value, str) and name.lower().endswith(("sha256", "_hash")):
            trial.data[name] = value
    if isinstance(data.get("config"), dict) and trial.config is None:
        trial.config = settings.flatten(data["config"])
        trial.seed = trial.seed or _seed({}, trial.config)
    if trial.seed is None and isinstance(data.get("seed"), int):
        trial.seed = str(data["seed"])


def _from_results(path: Path, wanted: tuple[str, ...]) -> Trial:
    if (path.parent / "run.json").is_file() and path.name == "results.json":
        return _from_run(rundir.Run(path.parent), wanted)
    data = read_json(path)
    if isinstance(data, list) or (isinstance(data, dict) and "metrics" not in data):
        return _from_history(path, data, wanted)
    trial = Trial(str(path))
    add_results(trial, path)
    return trial


def _from_history(path: Path, data: Any, wanted: tuple[str, ...]) -> Trial:
    """A wandb history as JSON: a list of rows, or an object with history, config, summary, id."""
    whole = data if isinstance(data, dict) else {"history": data}
    rows = whole.get("history", [])
    summary: Any = whole.get("summary") if isinstance(whole.get("summary"), dict) else {}
    if not isinstance(rows, list) or not (rows or summary) or not all(isinstance(row, dict) for row in rows):
        raise bad_input(f"{path} is neither a results.json nor a wandb history (a list of rows with _step)")
    trial = Trial(str(path), run_id=str(whole["id"]) if "id" in whole else None)
    if isinstance(whole.get("config"), dict):
        trial.config = settings.flatten(whole["config"], str(path))
        trial.seed = _seed({}, trial.config)
    _add_rows(trial, rows, wanted, str(path))
    _add_summary(trial, summary, wanted, str(path))
    add_last_points(trial, wanted)
    _add_trials(trial)
    return trial


def _add_summary(trial: Trial, summary: dict[str, Any], wanted: tuple[str, ...], where: str) -> None:
    trial.available.update(summary.keys() - _BOOKKEEPING)
    step = summary.get("_step")
    if isinstance(step, int):
        trial.budget.setdefault("steps", float(step))
    for name in wanted:
        if summary.get(name) is not None:
            value = summary[name]
            if isinstance(value, dict):  # define_metric(summary="max") writes {"max": ...}: a peak, taken as reported
                value = next(iter(value.values()), None)
            reading = Reading(number(value, f"{where}: {name}"), table.split_of(name))
            trial.readings.setdefault(name, []).append(reading)


def _from_wandb(folder: Path, wanted: tuple[str, ...]) -> Trial:
    """files/ of a wandb run: wandb-summary.json, config.yaml, wandb-metadata.json."""
    trial = Trial(str(folder), run_id=folder.parent.name if folder.name == "files" else None)
    _add_config_files(trial, folder)
    meta = folder / "wandb-metadata.json"
    if meta.is_file():
        _add_metadata(trial, read_json(meta))
    path = folder / "wandb-summary.json"
    summary = read_json(path)
    if not isinstance(summary, dict):
        raise bad_input(f"{path} is a {type(summary).__name__}; expected an object of metrics")
    _add_summary(trial, summary, wanted, str(path))
    _add_trials(trial)
    return trial


def _add_metadata(trial: Trial, data: Any) -> None:
    if not isinstance(data, dict):
        return
    git = data.get("git")
    if isinstance(git, dict) and git.get("commit"):
        trial.code = {"commit": str(git["commit"])}
    if data.get("python"):
        trial.env = {"python": str(data["python"]).removeprefix("CPython ")}
    if data.get("gpu"):
        trial.devices = (str(data["gpu"]),)
    if isinstance(data.get("args"), list):
        trial.config = settings.merged(trial.config or {}, [str(word) for word in data["args"]])
        trial.seed = trial.seed or _seed({}, trial.config)


def read_json(path: Path) -> Any:
    """JSON in which no key is there twice: which of the two values counts is a guess."""
    try:
        if path.stat().st_size > _LARGEST:
            raise bad_input(f"{path} has more than {_LARGEST >> 20} MB; export fewer rows, or CSV")
        data = files.read_json(path)
        json.loads(path.read_bytes(), object_pairs_hook=lambda pairs: _unique(pairs, path))
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None
    return data


def _unique(pairs: list[tuple[str, Any]], path: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise bad_input(f"{path} has the key {key[:100]!r} twice; which one counts is not knowable")
        found[key] = value
    return found


def number(value: Any, where: str) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise bad_input(f"{where} is not a number: {str(value)[:60]!r}") from None


def whole(value: Any, where: str) -> int:
    """A step. Fractions of an epoch count down to it."""
    found = number(value, where)
    if not math.isfinite(found):
        raise bad_input(f"{where} is {found}; expected a step")
    return int(found)
