"""SQLite files of trackers: MLflow's store and Trackio's projects. Known by their tables, not by their names.

A database with a write-ahead log is copied and read there: opening it in place would write beside it.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from rgt.errors import bad_input
from rgt.run import record as states
from rgt.run.foreign import Foreign, as_setting, flat

MAGIC = b"SQLite format 3\0"
_SECONDS = 20.0  # for all questions to one file
_EVERY = 10_000  # instructions of SQLite between looks at the clock
_HUGE = 1.7976931348623157e308  # how MLflow's SQL store says infinity
_MLFLOW_STATES = {"FINISHED": states.FINISHED, "FAILED": states.FAILED, "KILLED": states.STOPPED}
_MLFLOW_STATES |= {"RUNNING": states.RUNNING, "SCHEDULED": states.QUEUED}


def read(path: Path) -> Iterator[Foreign]:
    """Every run of the file; raises a sentence when it is no tracker's."""
    with _opened(path) as database:
        try:
            tables = {
                str(name): {str(row[1]) for row in database.execute(f'PRAGMA table_info("{name}")')}
                for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
                if name in ("runs", "metrics", "params", "tags", "configs", "experiments")
            }
            if {"run_uuid", "key", "value", "step"} <= tables.get("metrics", set()) and "run_uuid" in tables["runs"]:
                yield from _mlflow(path, database, tables)
            elif {"run_name", "step", "metrics"} <= tables.get("metrics", set()):
                yield from _trackio(path, database, tables)
            else:
                have = ", ".join(sorted(tables)) or "none that a tracker has"
                raise bad_input(f"{path} is a database, but neither MLflow's nor Trackio's: its tables are {have}")
        except (sqlite3.Error, KeyError) as error:
            raise bad_input(f"{path} cannot be read as a database: {error}") from None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.ExitStack() as stack:
        beside = [path.with_name(path.name + ending) for ending in ("-wal", "-journal")]
        beside = [log for log in beside if log.exists() and log.stat().st_size]
        where = f"{path.resolve().as_uri()}?mode=ro&immutable=1"  # immutable: nothing is locked, and nothing written
        if beside:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rgt-adopt-")))
            for source in (path, *beside):
                shutil.copyfile(source, place / source.name)
            where = f"{(place / path.name).as_uri()}?mode=rw"
        database = stack.enter_context(contextlib.closing(sqlite3.connect(where, uri=True)))
        database.text_factory = lambda data: data.decode("utf-8", "replace")
        end = time.monotonic() + _SECONDS
        database.set_progress_handler(lambda: time.monotonic() > end, _EVERY)  # a view may be a query without an end
        database.execute("PRAGMA trusted_schema = OFF")
        yield database


def _mlflow(path: Path, database: sqlite3.Connection, tables: dict[str, set[str]]) -> Iterator[Foreign]:
    nan, deleted = "is_nan" if "is_nan" in tables["metrics"] else "0", 0
    for uuid, name, status, began, ended, stage in database.execute(
        "SELECT run_uuid, name, status, start_time, end_time, lifecycle_stage FROM runs ORDER BY start_time"
    ).fetchall():
        if stage == "deleted":
            deleted += 1
            continue
        of_run = " WHERE run_uuid = ?"
        params, tags = (
            dict(database.execute(f"SELECT key, value FROM {table}{of_run}", (uuid,)).fetchall())
            for table in ("params", "tags")
        )
        run = mlflow_run(path, str(uuid), params, {**tags, "mlflow.runName": name or tags.get("mlflow.runName", "")})
        run.state, run.began, run.ended = _MLFLOW_STATES.get(status, states.UNKNOWN), *map(_seconds, (began, ended))
        questions = f"SELECT key, value, step, timestamp, {nan} FROM metrics{of_run} ORDER BY timestamp, step"
        for key, value, step, when, is_nan in database.execute(questions, (uuid,)):
            number = math.nan if is_nan else math.copysign(math.inf, value) if abs(value) >= _HUGE else value
            run.add(step, {key: number}, _seconds(when))
        yield run.settle(path)
    if deleted:
        raise bad_input(f"{path}: {deleted} runs were deleted in MLflow and are left out")


def mlflow_run(source: Path, uuid: str, params: dict[str, str], tags: dict[str, str]) -> Foreign:
    """The same facts from either of MLflow's stores."""
    run = Foreign(tags.get("mlflow.runName") or uuid, "mlflow", source, uuid)
    run.config = {key: as_setting(str(value)) for key, value in params.items()}
    program = tags.get("mlflow.source.name")
    run.command, run.commit = [program] if program else [], tags.get("mlflow.source.git.commit", "")
    return run


def mlflow_state(word: str) -> str:
    """A status as the file store has it: its name, or its number in protobuf."""
    numbers = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}
    return _MLFLOW_STATES.get(numbers.get(word, word), states.UNKNOWN)


def _seconds(milliseconds: Any) -> float:
    return milliseconds / 1000 if isinstance(milliseconds, (int, float)) else 0.0


def _trackio(path: Path, database: sqlite3.Connection, tables: dict[str, set[str]]) -> Iterator[Foreign]:
    # before runs had ids, a name was all
    key = "run_id" if "run_id" in tables["metrics"] else "run_name"
    configs: dict[Any, dict[str, Any]] = {}
    if {key, "config"} <= tables.get("configs", set()):
        for run_key, text in database.execute(f"SELECT {key}, config FROM configs").fetchall():
            given = _json(text)
            configs[run_key] = {name: value for name, value in given.items() if not name.startswith("_")}
    runs: dict[Any, Foreign] = {}
    for run_key, name, step, when, text in database.execute(
        f"SELECT {key}, run_name, step, timestamp, metrics FROM metrics ORDER BY id"
    ):
        run = runs.setdefault(run_key, Foreign(str(name), "trackio", path, str(run_key)))
        clock = 0.0
        with contextlib.suppress(ValueError):
            clock = datetime.fromisoformat(str(when)).timestamp()
        run.add(int(step), flat(_json(text)), clock)
    for run_key, run in runs.items():
        run.config = flat(configs.get(run_key))
        yield run.settle(path)


def _json(text: Any) -> dict[str, Any]:
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        data = json.loads(text)
        return data if isinstance(data, dict) else {}
    return {}
