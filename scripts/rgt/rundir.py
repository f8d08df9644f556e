"""The run directory, runs/<run-id>/: the one place where all scripts meet.

Example:
    run = create("runs", "tiny-gpt", command=[...], config={...}, seeds={...}, backend="local")
    run.log_metrics(step=10, split="train", loss=2.3)       run.log_event("checkpoint", step=10)
    curve = run.curve("loss", split="train")                find("runs")  ->  every run below

A re-run mints a new id. A resumed run keeps its directory and appends; where a step was computed twice, the later
row counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import operator
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import bad_input, from_os_error
from rgt.ids import LIFE, mint_id

_DOOMSDAY = 1e12  # seconds since 1970
_DEPTH = 4  # how deep below a folder runs are looked for: runs/, outputs/project/runs/, ...


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
        """How the run was started; refused when the config was edited afterwards."""
        record: dict[str, Any] = files.read_json(self.run_json, "run")
        if config_hash(record["config"]) != record["config_sha256"]:
            raise bad_input(f"{self.run_json} was edited: its config has another sha256; a changed config is a new run")
        return record

    def log_metrics(self, *, step: int, split: str, **metrics: float) -> None:
        """Takes Python, numpy and one-element tensor numbers. NaN and infinities are data here: they are kept."""
        values = {name: files.json_number(float(value)) for name, value in metrics.items()}
        row = {**values, "step": operator.index(step), "time": time.time(), "split": split}
        files.append_jsonl(self.metrics, row, "metrics")

    def log_event(self, event: str, **detail: Any) -> None:
        files.append_jsonl(self.events, {**detail, "time": time.time(), "event": event}, "events")

    def last_event(self) -> dict[str, Any] | None:
        """The latest that is about the job itself; None before the first. Rows from a box may stand out of order."""
        if not self.events.exists():
            return None
        last: dict[str, Any] | None = None
        for row in files.read_jsonl(self.events, bad=[]):
            if row.get("event") in LIFE and (last is None or event_time(row) >= event_time(last)):
                last = row
        return last

    def write_results(self, results: dict[str, Any]) -> None:
        files.write_json(self.results, results, "results")

    def curve(self, metric: str, split: str = "train") -> dict[int, float]:
        """step -> value, in order of steps; the row written last wins. Empty before the first row."""
        rows = files.read_jsonl(self.metrics) if self.metrics.exists() else []
        points = dict(self._point(row, metric) for row in rows if row.get("split") == split and metric in row)
        return dict(sorted(points.items()))

    def _point(self, row: dict[str, Any], metric: str) -> tuple[int, float]:
        try:
            return int(row["step"]), float(row[metric])
        except (KeyError, TypeError, ValueError, OverflowError):
            seen = str(row)[:100]
            raise bad_input(f"{self.metrics} has a row whose step or {metric} is not a number: {seen}") from None

    def refuse_if_sealed(self) -> None:
        if self.seal.exists():
            raise bad_input(f"{self.path} is sealed; a sealed run never changes, start a new one")


def event_time(row: dict[str, Any]) -> float:
    """0 when it does not say, or says nonsense."""
    when = row.get("time")
    return float(when) if isinstance(when, (int, float)) and 0 < when < _DOOMSDAY else 0.0


def event_reason(row: dict[str, Any]) -> str:
    """Why, as an event tells it."""
    code = row.get("exit_code")
    said = row.get("reason") or row.get("detail") or (f"exit code {code}" if code is not None else "")
    return str(said or "its record does not say why")


def create(
    root: Path,
    slug: str,
    *,
    command: list[str],
    config: dict[str, Any],
    seeds: dict[str, int] | None = None,
    backend: str = "local",
    job: dict[str, Any] | None = None,
    code: Path | None = None,
) -> Run:
    """Mint an id, make the directory and write run.json and the `launched` event.

    `{run}` in a word of the command stands for the new directory's path; `code` is where the code lies, for its commit.
    """
    from rgt import provenance  # here, because most scripts only read runs, and it costs a third of their start

    config_sha256 = config_hash(config)  # first, because it refuses what JSON cannot hold
    run = _make(Path(root), slug)
    record = {
        "run_id": run.id,
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": [word.replace("{run}", str(run.path)) for word in command],
        "cwd": os.getcwd(),
        "config": config,
        "config_sha256": config_sha256,
        "seeds": seeds or {},
        "backend": backend,
        "job": job or {},
        **provenance.collect(code),
    }
    files.write_json(run.run_json, record, "run")
    run.log_event("launched", backend=backend)
    return run


def _make(root: Path, slug: str) -> Run:
    """A directory of its own: a sweep can mint the same six hex digits twice in one second."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        while True:
            run = Run(root / mint_id(slug))
            with contextlib.suppress(FileExistsError):
                run.path.mkdir()
                run.checkpoints.mkdir()
                return run
    except OSError as error:
        raise from_os_error(error, f"make a run directory in {root}") from error


def config_hash(config: dict[str, Any]) -> str:
    """The same for the same settings, whatever their order."""
    return hashlib.sha256(files.dump(config, "the config", sort_keys=True, separators=(",", ":"))).hexdigest()


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
    if os.path.isfile(directory / "run.json"):  # unlike Path.is_file, False in a folder that may not be entered
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
