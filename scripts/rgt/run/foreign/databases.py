"""MLflow's stores and Trackio's projects. SQLite files are known by their tables, not by their names.

A database with a write-ahead log is copied and read there: opening it in place would write beside it. MLflow's folder
is mlruns/<experiment>/<run>/ with meta.yaml, params/<name>, tags/<name> and metrics/<name>: milliseconds, value, step.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from rgt.errors import bad_input
from rgt.job import settings
from rgt.log.summary import head
from rgt.run import record as states
from rgt.run.foreign import Foreign, as_number, as_setting, flat

MAGIC = b"SQLite format 3\0"
_SECONDS = 20.0  # for all questions to one file
_EVERY = 10_000  # instructions of SQLite between looks at the clock
_HUGE = 1.7976931348623157e308  # how MLflow's SQL store says infinity
_SETTING_BYTES = 1 << 16
# a status is its name, or in the folder its number in protobuf
_MLFLOW_STATES = {"RUNNING": states.RUNNING, "SCHEDULED": states.QUEUED, "FINISHED": states.FINISHED}
_MLFLOW_STATES |= {"FAILED": states.FAILED, "KILLED": states.STOPPED}
_MLFLOW_STATES |= {str(number): state for number, state in enumerate(_MLFLOW_STATES.values(), 1)}


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


# -- MLflow


def _mlflow(path: Path, database: sqlite3.Connection, tables: dict[str, set[str]]) -> Iterator[Foreign]:
    nan = "is_nan" if "is_nan" in tables["metrics"] else "0"
    columns = "run_uuid, name, status, start_time, end_time, lifecycle_stage"
    for uuid, name, status, began, ended, stage in database.execute(f"SELECT {columns} FROM runs").fetchall():
        if stage == "deleted":
            continue
        params, tags = (
            dict(database.execute(f"SELECT key, value FROM {table} WHERE run_uuid = ?", (uuid,)).fetchall())
            for table in ("params", "tags")
        )
        meta = {"run_id": uuid, "run_name": name, "status": status, "start_time": began, "end_time": ended}
        run = _mlflow_run(path, meta, params, tags)
        ordered = "WHERE run_uuid = ? ORDER BY timestamp, step"
        points = database.execute(f"SELECT key, value, step, timestamp, {nan} FROM metrics {ordered}", (uuid,))
        for key, value, step, when, is_nan in points:
            number = math.nan if is_nan else math.copysign(math.inf, value) if abs(value) >= _HUGE else value
            run.add(step, {key: number}, (as_number(when) or 0) / 1000)
        yield run.settle(path)


def is_mlflow_run(folder: Path) -> bool:
    return (folder / "meta.yaml").is_file() and (folder / "metrics").is_dir() and (folder / "params").is_dir()


def read_mlflow_folder(folder: Path) -> Iterator[Foreign]:
    meta = {"run_id": folder.name, **{one.key: one.value for one in settings.read(folder / "meta.yaml")}}
    if meta.get("lifecycle_stage") == "deleted":
        raise bad_input(f"{folder} was deleted in MLflow")
    params, tags = (
        {name: head(path, _SETTING_BYTES).decode("utf-8", "replace") for name, path in _files(folder / part)}
        for part in ("params", "tags")
    )
    run, torn, metrics = _mlflow_run(folder, meta, params, tags), 0, _files(folder / "metrics")
    for name, path in metrics:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                when, value, step = (*map(as_number, line.split()[:3]), None, None, None)[:3]
                if when is None or value is None or step is None or not line.endswith("\n"):
                    torn += 1
                else:
                    run.add(int(step), {name: value}, when / 1000)
    if torn:
        run.gaps.append(f"{torn} lines of its metrics are cut off or no values")
    yield run.settle(*(path for _, path in metrics))


def _files(folder: Path) -> list[tuple[str, Path]]:
    """Name and file; a name with a slash in it is a folder and a file."""
    found = sorted(Path(place, name) for place, _, names in os.walk(folder) for name in names)
    return [(path.relative_to(folder).as_posix(), path) for path in found if path.is_file()]


def _mlflow_run(source: Path, meta: dict[str, Any], params: dict[str, str], tags: dict[str, str]) -> Foreign:
    """The same facts from either of MLflow's stores."""
    name = meta.get("run_name") or tags.get("mlflow.runName") or meta["run_id"]
    run = Foreign(str(name), "mlflow", source, str(meta["run_id"]))
    run.config = {key: as_setting(str(value)) for key, value in params.items()}
    run.command = [tags["mlflow.source.name"]] if "mlflow.source.name" in tags else []
    run.commit = tags.get("mlflow.source.git.commit", "")
    run.state = _MLFLOW_STATES.get(str(meta.get("status")), states.UNKNOWN)
    run.began, run.ended = ((as_number(meta.get(key)) or 0) / 1000 for key in ("start_time", "end_time"))
    return run


# -- Trackio


def _trackio(path: Path, database: sqlite3.Connection, tables: dict[str, set[str]]) -> Iterator[Foreign]:
    key = "run_id" if "run_id" in tables["metrics"] else "run_name"  # before runs had ids, a name was all
    runs: dict[Any, Foreign] = {}
    rows = database.execute(f"SELECT {key}, run_name, step, timestamp, metrics FROM metrics ORDER BY id")
    for run_key, name, step, when, text in rows:
        run = runs.setdefault(run_key, Foreign(str(name), "trackio", path, str(run_key)))
        clock = 0.0
        with contextlib.suppress(ValueError):
            clock = datetime.fromisoformat(str(when)).timestamp()
        run.add(int(step), flat(_json(text)), clock)
    if {key, "config"} <= tables.get("configs", set()):
        for run_key, text in database.execute(f"SELECT {key}, config FROM configs").fetchall():
            if run_key in runs:
                given = {name: value for name, value in _json(text).items() if not name.startswith("_")}
                runs[run_key].config = flat(given)
    for run in runs.values():
        yield run.settle(path)


def _json(text: Any) -> dict[str, Any]:
    data = None
    with contextlib.suppress(ValueError, TypeError, RecursionError):
        data = json.loads(text)
    return data if isinstance(data, dict) else {}
