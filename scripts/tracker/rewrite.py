"""A tracked run as a run directory, so that every script can read it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rgt import files, rundir
from rgt.ids import mint_id
from tracker.shape import Row, Tracked

_SPLITS = {"val": "val", "valid": "val", "validation": "val", "eval": "val", "test": "test", "train": "train"}


def as_run(into: Path, tracked: Tracked, history: Iterable[Row]) -> tuple[Path, int]:
    """Returns its path and the number of its rows. All is read before anything is written."""
    run = rundir.Run(into / mint_id(tracked.name or tracked.id))
    rows = [line for row in history for line in _metrics(row)]
    record, metrics = _record(run.id, tracked), b"".join(files.dump(row, str(run.metrics)) + b"\n" for row in rows)
    run.path.mkdir(parents=True)
    files.write_json(run.run_json, record, "run")
    files.write_bytes(run.metrics, metrics)
    run.log_event({"finished": "finished", "running": "launched"}.get(tracked.state, "failed"), source=tracked.where)
    return run.path, len(rows)


def _record(run_id: str, tracked: Tracked) -> dict[str, Any]:
    """How it was started, as far as the tracker knows it."""
    config = tracked.settings()
    seeds = {key: value for key, value in config.items() if key.split(".")[-1] == "seed" and isinstance(value, int)}
    return {
        "run_id": run_id,
        "created": tracked.created or datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": tracked.command,
        "cwd": "",
        "config": config,
        "config_sha256": rundir.config_hash(config),
        "seeds": seeds,
        "backend": "wandb",
        "job": {"source": tracked.where, "id": tracked.id, "state": tracked.state},
        "git": {"commit": tracked.git["commit"], "branch": "", "dirty": False, "untracked": []}
        if tracked.git
        else None,
        "env": {"python": "", "executable": "", "packages": {}},
        "host": {"name": tracked.host, "platform": "", "cpus": None},
        "devices": [],
    }


def _metrics(row: Row) -> list[dict[str, Any]]:
    """One row of the tracker is one line per split: val/loss becomes loss of the split val."""
    by_split: dict[str, dict[str, Any]] = {}
    for key, value in row.items():
        if not key.startswith("_") and isinstance(value, (int, float)) and not isinstance(value, bool):
            split, name = _split(key)
            by_split.setdefault(split, {})[name] = files.json_number(value) if isinstance(value, float) else value
    head = {"step": int(row["_step"]), "time": float(row.get("_timestamp", 0.0))}
    # last: a metric may be called step or time, too
    return [{**values, **head, "split": split} for split, values in by_split.items()]


def _split(key: str) -> tuple[str, str]:
    for prefix, split in _SPLITS.items():
        for mark in ("/", "_", "."):
            if key.startswith(prefix + mark):
                return split, key[len(prefix) + 1 :]
    return "train", key
