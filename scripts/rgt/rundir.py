"""The run directory, runs/<run-id>/: the one place where all scripts meet.

Example:
    run = create("runs", "tiny-gpt", command=[...], config={...}, seeds={...}, backend="local")
    run.log_metrics(step=10, split="train", loss=2.3)       run.log_event("checkpoint", step=10)
    curve = run.curve("loss", split="train")                find("runs")  ->  every run below

A re-run mints a new id. A resumed run keeps its directory and appends; where a step was computed twice, the later
row counts.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rgt import files, provenance
from rgt.errors import bad_input, from_os_error

RUN_ID = re.compile(r"\d{8}-\d{6}-[a-z0-9][a-z0-9._-]*-[0-9a-f]{6}")
_SLUG_LENGTH = 40
_DEPTH = 4  # how deep below a folder runs are looked for: runs/, outputs/project/runs/, ...


def mint_id(slug: str, now: float | None = None) -> str:
    """20261116-083000-tiny-gpt-1f00ab: sorts by time, says what it is, never repeats."""
    stamp = datetime.fromtimestamp(time.time() if now is None else now, timezone.utc).strftime("%Y%m%d-%H%M%S")
    return f"{stamp}-{slugify(slug)}-{secrets.token_hex(3)}"


def slugify(text: str) -> str:
    """Lower-case ASCII letters, digits, dot, dash, underscore; never empty."""
    slug = re.sub(r"[^a-z0-9._-]+", "-", text.lower())[:_SLUG_LENGTH].strip("-._")
    return slug or "run"


@dataclass(frozen=True)
class Run:
    """Paths and records of one run directory. Making one touches nothing on disk."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def run_json(self) -> Path:
        return self.path / "run.json"

    @property
    def log(self) -> Path:
        return self.path / "train.log"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def checkpoints_index(self) -> Path:
        return self.path / "checkpoints_index.json"

    @property
    def status(self) -> Path:
        return self.path / "training_status.md"

    @property
    def results(self) -> Path:
        return self.path / "results.json"

    @property
    def seal(self) -> Path:
        return self.path / "seal.json"

    def record(self) -> dict[str, Any]:
        record: dict[str, Any] = files.read_json(self.run_json, "run")
        return record

    def log_metrics(self, *, step: int, split: str, **metrics: float) -> None:
        """Takes Python, numpy and one-element tensor numbers. NaN and infinities are data here: they are kept."""
        values = {name: _json_number(float(value)) for name, value in metrics.items()}
        files.append_jsonl(self.metrics, {"step": step, "time": time.time(), "split": split, **values}, "metrics")

    def log_event(self, event: str, **detail: Any) -> None:
        files.append_jsonl(self.events, {"time": time.time(), "event": event, **detail}, "events")

    def write_results(self, results: dict[str, Any]) -> None:
        files.write_json(self.results, results, "results")

    def curve(self, metric: str, split: str = "train") -> dict[int, float]:
        """step -> value, in order of steps; the row written last wins."""
        rows = files.read_jsonl(self.metrics)
        points = {row["step"]: float(row[metric]) for row in rows if row.get("split") == split and metric in row}
        return dict(sorted(points.items()))

    def refuse_if_sealed(self) -> None:
        if self.seal.exists():
            raise bad_input(f"{self.path} is sealed; a sealed run never changes, start a new one")


def _json_number(value: float) -> float | str:
    """Strict JSON has no NaN; the words "NaN", "Infinity" and "-Infinity" stand for them, and float() reads them."""
    return value if math.isfinite(value) else str(value).replace("nan", "NaN").replace("inf", "Infinity")


def create(
    root: Path,
    slug: str,
    *,
    command: list[str],
    config: dict[str, Any],
    seeds: dict[str, int] | None = None,
    backend: str = "local",
    job: dict[str, Any] | None = None,
) -> Run:
    """Mint an id, make the directory and write run.json and the `launched` event."""
    run = Run(Path(root) / mint_id(slug))
    try:
        run.checkpoints.mkdir(parents=True)
    except OSError as error:
        raise from_os_error(error, f"make the run directory {run.path}") from error
    record = {
        "run_id": run.id,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": command,
        "cwd": os.getcwd(),
        "config": config,
        "config_sha256": config_hash(config),
        "seeds": seeds or {},
        "backend": backend,
        "job": job or {},
        **provenance.collect(),
    }
    files.write_json(run.run_json, record, "run")
    run.log_event("launched", backend=backend)
    return run


def config_hash(config: dict[str, Any]) -> str:
    """The same for the same settings, whatever their order."""
    text = json.dumps(config, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def open_run(path: Path) -> Run:
    """An existing run directory, or a sentence."""
    run = Run(Path(path))
    if not run.run_json.is_file():
        raise bad_input(f"{path} is not a run directory: it has no run.json")
    return run


def find(root: Path) -> list[Run]:
    """Every run below `root` (which may itself be one), oldest first."""
    return sorted(_find(Path(root), _DEPTH), key=lambda run: run.id)


def _find(directory: Path, depth: int) -> Iterator[Run]:
    if (directory / "run.json").is_file():
        yield Run(directory)
        return
    if depth == 0:
        return
    try:
        with os.scandir(directory) as entries:
            below = [Path(entry.path) for entry in entries if _worth_entering(entry)]
    except OSError:  # an unreadable folder hides its runs, not its neighbours'
        return
    for path in below:
        yield from _find(path, depth - 1)


def _worth_entering(entry: os.DirEntry[str]) -> bool:
    return not entry.name.startswith(".") and entry.name != "node_modules" and entry.is_dir(follow_symlinks=False)
