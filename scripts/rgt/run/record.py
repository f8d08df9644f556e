"""The run directory, runs/<run-id>/: the one place where all scripts meet.

Example:
    run = create("runs", "tiny-gpt", command=[...], config={...}, seeds={...}, backend="local")
    run.log_metrics(step=10, split="train", loss=2.3)       run.log_event("checkpoint", step=10)
    curve = run.curve("loss", split="train")                find("runs")  ->  every run below

A re-run mints a new id. A resumed run keeps its directory and appends; where a step was computed twice, the later
row counts.

What a run or a job can be, one set of words for every tool (an engine's own words are mapped to these in its backend):

    queued      accepted, and nothing shows yet that it started
    running     started, and not over
    finished    reached its own end
    failed      ended by an error
    stopped     ended because somebody asked for it
    preempted   ended because its machine was taken away; meant to be resumed
    lost        its engine no longer knows it, or its processes are gone without a record of an end
    unknown     nobody could be asked
"""

from __future__ import annotations

import contextlib
import hashlib
import operator
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import RgtError, bad_input, from_os_error
from rgt.walk import walk

QUEUED, RUNNING = "queued", "running"
FINISHED, FAILED, STOPPED, PREEMPTED, LOST = "finished", "failed", "stopped", "preempted", "lost"
UNKNOWN = "unknown"
ACTIVE = (QUEUED, RUNNING)
OVER = (FINISHED, FAILED, STOPPED, PREEMPTED, LOST)  # nothing more is to be expected of it
STATES = (*ACTIVE, *OVER, UNKNOWN)

# Events that tell what became of the job; the others (checkpoint, verified, pulled, ...) are about its results.
AFTER_EVENT = {"launched": QUEUED, "submitted": QUEUED, "resumed": RUNNING, "restarted": RUNNING}
AFTER_EVENT |= {word: word for word in (PREEMPTED, STOPPED, FINISHED, FAILED)}
_LATEST = 1e12  # seconds since 1970; a later time is not a time
RUN_ID = re.compile(r"\d{8}-\d{6}-[a-z0-9][a-z0-9._-]*-[0-9a-f]{6}")
_SLUG_LENGTH = 40
_DEPTH = 4  # how deep below a folder runs are looked for: runs/, outputs/project/runs/, ...
_ENTRIES = 2_000_000  # a hundred thousand runs

Event = dict[str, Any]


def event_time(event: Event) -> float:
    """0 when it has no plausible time."""
    when = event.get("time")
    return float(when) if isinstance(when, (int, float)) and 0 < when < _LATEST else 0.0


def event_reason(event: Event) -> str:
    code = event.get("exit_code")
    said = event.get("reason") or event.get("detail") or (f"exit code {code}" if code is not None else "")
    return str(said or "its record does not say why")


def last_event(events: Iterable[Event]) -> Event | None:
    """The latest one that tells what became of the job. Rows that came from a box may be out of order."""
    ours = [event for event in events if event.get("event") in AFTER_EVENT]
    return max(reversed(ours), key=event_time, default=None)


def state_after(events: Iterable[Event]) -> str:
    """The state that a run's events leave it in. A box that was destroyed stops a run that was not over yet."""
    rows = list(events)
    last = last_event(rows)
    state = AFTER_EVENT[last["event"]] if last else UNKNOWN
    destroyed = max((event_time(event) for event in rows if event.get("event") == "destroyed"), default=-1.0)
    return STOPPED if state not in OVER and destroyed >= event_time(last or {}) else state


def mint_id(slug: str, now: float | None = None) -> str:
    """UTC time, slug, six random hex digits."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    return f"{stamp}-{slugify(slug)}-{os.urandom(3).hex()}"


def slugify(text: str) -> str:
    """Lower-case ASCII letters, digits, dot, dash, underscore; never empty."""
    slug = re.sub(r"[^a-z0-9._-]+", "-", text.lower())[:_SLUG_LENGTH].strip("-._")
    return slug or "run"


class _File:
    """A file of a run directory by its name."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, run: Run, owner: type[Run]) -> Path:
        return run.path / self.name


@dataclass(frozen=True)
class Run:
    """Paths and records of one run directory. Making one touches nothing on disk."""

    path: Path

    run_json = _File("run.json")
    log = _File("train.log")
    metrics = _File("metrics.jsonl")
    events = _File("events.jsonl")
    checkpoints = _File("checkpoints")
    checkpoints_index = _File("checkpoints_index.json")
    status = _File("training_status.md")
    results = _File("results.json")
    seal = _File("seal.json")

    @property
    def id(self) -> str:
        return self.path.name

    def record(self) -> dict[str, Any]:
        """How the run was started; refused when the config was edited afterwards."""
        record: dict[str, Any] = files.read_json(self.run_json, "run")
        if config_hash(record["config"]) != record["config_sha256"]:
            raise bad_input(f"{self.run_json} was edited: its config has another sha256; a changed config is a new run")
        return record

    @property
    def is_recorded_here(self) -> bool:
        """Whether run.json is our own record. One that a pull brought is the word of a box: data, never an order."""
        for path in (self.path / "PULL_MANIFEST.json", self.path / ".rgt-pull" / "state.json"):
            if os.path.exists(path):
                try:
                    if any(row["path"] == self.run_json.name for row in files.read_json(path)["files"]):
                        return False
                except (RgtError, KeyError, TypeError):  # nobody can tell whose it is
                    return False
        return self.run_json.is_file()

    def write_record(self, record: dict[str, Any]) -> None:
        files.write_json(self.run_json, record, "run", mode=0o600)  # it holds a diff and a command line

    def log_metrics(self, *, step: int, split: str, **metrics: float) -> None:
        """Takes Python, numpy and one-element tensor numbers. NaN and infinities are data here: they are kept."""
        values = {name: files.json_number(float(value)) for name, value in metrics.items()}
        row = {**values, "step": operator.index(step), "time": time.time(), "split": split}
        files.append_jsonl(self.metrics, row, "metrics")

    def log_event(self, event: str, **detail: Any) -> None:
        files.append_jsonl(self.events, {**detail, "time": time.time(), "event": event}, "events")

    def last_event(self) -> dict[str, Any] | None:
        """The latest that is about the job itself; None before the first."""
        return last_event(files.read_jsonl(self.events, bad=[])) if self.events.exists() else None

    def write_results(self, results: dict[str, Any]) -> None:
        files.write_json(self.results, results, "results")

    def curve(self, metric: str, split: str = "train") -> dict[int, float]:
        """step -> value, in order of steps; the row written last wins. Empty before the first row."""
        points = {}
        for row in files.read_jsonl(self.metrics) if self.metrics.exists() else ():
            if row.get("split") == split and metric in row:
                try:
                    points[int(row["step"])] = float(row[metric])
                except (KeyError, TypeError, ValueError, OverflowError):
                    message = f"{self.metrics} has a row whose step or {metric} is not a number: {str(row)[:100]}"
                    raise bad_input(message) from None
        return dict(sorted(points.items()))

    def refuse_if_sealed(self) -> None:
        if self.seal.exists():
            raise bad_input(f"{self.path} is sealed; a sealed run never changes, start a new one")


def log_decision(local: Path, event: str, **detail: Any) -> None:
    """What was done about a run: in its events.jsonl, or beside a sealed run, which never changes."""
    path, run = local.absolute(), Run(local)
    beside = path.with_name(f"{path.name}.events.jsonl")
    row = {"time": time.time(), **detail, "event": event}
    files.append_jsonl(beside if run.seal.exists() else run.events, row, "events")


def create(
    root: Path,
    slug: str,
    *,
    command: list[str],
    config: dict[str, Any],
    seeds: dict[str, int] | None = None,
    backend: str = "local",
    job: dict[str, Any] | None = None,
    origin: dict[str, Any] | None = None,
) -> Run:
    """Mint an id, make the directory and write run.json and the `launched` event.

    `{run}` in a word of the command stands for the new directory's path. `origin` is what provenance.collect says;
    by default of the current directory, where a training that makes its own run stands.
    """
    # here, because most scripts only read runs, and it costs a third of their start
    from rgt.machine.interpreter import job_python
    from rgt.run import provenance

    config_sha256 = config_hash(config)  # first, because it refuses what JSON cannot hold
    try:
        Path(root).mkdir(parents=True, exist_ok=True)
        while True:
            run = Run(Path(root) / mint_id(slug))
            with contextlib.suppress(FileExistsError):  # a sweep can mint the same six hex digits twice in one second
                run.path.mkdir()
                run.checkpoints.mkdir()
                break
    except OSError as error:
        raise from_os_error(error, f"make a run directory in {root}") from error
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
        **(origin or provenance.collect(Path.cwd(), job_python(command=command))),
    }
    run.log_event("launched", backend=backend)  # first: a directory with a run.json is a run, and its events begin here
    run.write_record(record)
    return run


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
    met = walk(str(root), depth=_DEPTH, links=False, inside_runs=False, most=_ENTRIES)
    runs = [Run(Path(folder)) for folder, entry, _ in met if entry.name == "run.json" and entry.is_file()]
    return sorted(runs, key=lambda run: run.id)
