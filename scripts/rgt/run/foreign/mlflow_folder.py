"""MLflow's file store: mlruns/<experiment>/<run>/ with meta.yaml, metrics/<name>, params/<name> and tags/<name>.

A file of a metric has one line per value: milliseconds, value, step.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rgt.errors import bad_input
from rgt.job import settings
from rgt.run.foreign import Foreign, as_number
from rgt.run.foreign.databases import mlflow_run, mlflow_state

_SETTING_BYTES = 1 << 16


def is_run(folder: Path) -> bool:
    return (folder / "meta.yaml").is_file() and (folder / "metrics").is_dir() and (folder / "params").is_dir()


def read(folder: Path) -> Iterator[Foreign]:
    meta = {one.key: one.value for one in settings.read(folder / "meta.yaml")}
    if meta.get("lifecycle_stage") == "deleted":
        raise bad_input(f"{folder} was deleted in MLflow")
    params, tags = ({name: _text(path) for name, path in _files(folder / part)} for part in ("params", "tags"))
    tags.setdefault("mlflow.runName", str(meta.get("run_name") or ""))
    run = mlflow_run(folder, str(meta.get("run_id") or folder.name), params, tags)
    run.state = mlflow_state(str(meta.get("status")))
    run.began, run.ended = ((as_number(meta.get(key)) or 0) / 1000 for key in ("start_time", "end_time"))
    torn = 0
    metrics = _files(folder / "metrics")
    for name, path in metrics:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                when, value, step = (*map(as_number, line.split()[:3]), None, None, None)[:3]
                if None in (when, value, step) or not line.endswith("\n"):
                    torn += 1
                elif step is not None:
                    run.add(int(step), {name: value}, (when or 0) / 1000)
    if torn:
        run.gaps.append(f"{torn} lines of its metrics are cut off or no values")
    yield run.settle(*(path for _, path in metrics))


def _files(folder: Path) -> list[tuple[str, Path]]:
    """Name -> file; a name with a slash in it is a folder and a file."""
    return [
        (path.relative_to(folder).as_posix(), path)
        for place, _, names in sorted(os.walk(folder))
        for path in (Path(place, name) for name in sorted(names))
        if path.is_file()
    ]


def _text(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(_SETTING_BYTES)
