"""Which runs a file or a folder holds, whoever wrote them: the readers are the siblings of this module.

Example:
    seen = look(Path("exp"), Ask())
    seen.runs         every run, read                 seen.unread       what looked like one and was not read, and why

A tracker's own folder or database says which runs it holds. Elsewhere the files of a folder are one run (a table, event
files, a log, a config), unless it holds several tables or logs: then each of them is one.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rgt import files, schema
from rgt.checkpoint.names import is_step_folder
from rgt.errors import RgtError, bad_input
from rgt.job import settings
from rgt.log.summary import head
from rgt.metrics.table import known, split_and_rest
from rgt.run import discovery
from rgt.run.foreign import (
    Ask,
    Foreign,
    as_number,
    databases,
    event_files,
    flat,
    mlflow_folder,
    printed_logs,
    row_tables,
    trainer_state,
    wandb_files,
    wire,
)

CONFIGS = "config.yaml config.yml config.json training_config.yaml hparams.yaml args.json args.yaml .hydra/config.yaml"
_SECONDS = 20.0  # for the walk over a folder
_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
_DATABASES = (".db", ".sqlite", ".sqlite3")
_EVALUATION = re.compile(r"(?:(?:all|eval|test|train|val|predict)_)?results\.json|metrics\.json|eval\.json", re.I)
_HF_EVENTS = re.compile(r"[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_.+")  # runs/Nov17_22-44-43_host/ of HF Trainer
_INNER = discovery.INNER - {"out"}


@dataclass
class Survey:
    root: Path
    runs: list[Foreign] = field(default_factory=list)
    unread: list[tuple[Path, str]] = field(default_factory=list)
    ours: list[Path] = field(default_factory=list)  # run directories already
    stopped: list[str] = field(default_factory=list)  # places that were not looked at

    def take(self, where: Path, read: Callable[[], Iterable[Foreign]]) -> list[Foreign]:
        """The runs that `read` gives; a failure is kept as a sentence and ends nothing else."""
        found: list[Foreign] = []
        try:
            for run in read():
                found.append(run)  # one by one: what came before a failure stays
        except RgtError as error:
            self.unread.append((where, error.message))
        except (OSError, wire.Malformed, ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
            self.unread.append((where, f"{where} cannot be read: {type(error).__name__}: {str(error)[:200]}"))
        self.runs += found
        return found


def look(path: Path, ask: Ask) -> Survey:
    """Everything that `path` holds. What is in a run directory of ours is only named."""
    if not path.exists():
        raise bad_input(f"{path} does not exist")
    seen = Survey(path)
    (_look_at_folder if path.is_dir() else _look_at_file)(seen, path, ask)
    for run in seen.runs:
        if ask.split:
            run.unnamed, run.gaps = ask.split, [gap for gap in run.gaps if "no split is named" not in gap]
    empty = [run for run in seen.runs if not run.points and not run.results]
    seen.unread += [(Path(run.source), f"{run.name}: {'; '.join(run.gaps) or 'no value in it'}") for run in empty]
    seen.runs = [run for run in seen.runs if run not in empty]
    return seen


def _look_at_folder(seen: Survey, path: Path, ask: Ask) -> None:
    homes: dict[Path, dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
    ours: set[str] = set()
    for folder, kinds in _folders(seen, ours).items():
        home = _home(path, folder, kinds)
        for kind, paths in kinds.items():
            homes[home][kind] += paths
    seen.ours = sorted(map(Path, ours))
    _join_events(homes)
    _look_at_wandb(seen, sorted(one for kinds in homes.values() for one in kinds.get("wandb", [])))
    for home, kinds in sorted(homes.items()):
        for database in kinds.get("database", []):
            seen.take(database, partial(databases.read, database))
        for folder in kinds.get("mlflow", []):
            seen.take(folder, partial(mlflow_folder.read, folder))
        _look_at_home(seen, home, kinds, ask)


def _folders(seen: Survey, ours: set[str]) -> dict[Path, dict[str, list[Path]]]:
    """Folder -> kind -> files. What lies inside a tracker's own folder is the tracker's."""
    found: dict[Path, dict[str, list[Path]]] = defaultdict(lambda: defaultdict(list))
    owned: set[Path] = set()
    for directory, entry, prepared in discovery.walk(str(seen.root), time.monotonic() + _SECONDS, seen.stopped):
        if prepared:
            ours.add(prepared)
            continue
        kind = _kind(Path(entry.path))
        if kind and stat.S_ISREG(os.stat(entry.path).st_mode if os.path.exists(entry.path) else 0):
            if kind in ("wandb", "mlflow"):
                owned.add(Path(directory))
            found[Path(directory)][kind].append(Path(directory) if kind == "mlflow" else Path(entry.path))
    return {folder: kinds for folder, kinds in found.items() if not owned & {*folder.parents}}


def _kind(path: Path) -> str:
    """What a file is to a run; empty when it is nothing."""
    name, suffix = path.name, path.suffix.lower()
    kind = ""
    if suffix == ".wandb":
        kind = "wandb"
    elif name == "meta.yaml" and mlflow_folder.is_run(path.parent):
        kind = "mlflow"
    elif event_files.is_event_file(name):
        kind = "events"
    elif name == trainer_state.NAME:
        kind = "state"
    elif suffix in _DATABASES:
        kind = "database" if head(path, 16) == databases.MAGIC else ""
    elif _EVALUATION.fullmatch(name):
        kind = "evaluation"
    elif suffix in _TABLES:
        kind = "" if name in ("events.jsonl", "SEALS.jsonl") else "table"
    elif discovery.is_log(name):
        kind = "log"
    return kind


def _home(root: Path, folder: Path, kinds: dict[str, list[Path]]) -> Path:
    """checkpoint-500/ and logs/ are parts of the run around them; databases and trackers stay where they are."""
    while folder != root and (folder.name.lower() in _INNER or is_step_folder(folder.name)):
        folder = folder.parent
    return folder


def _join_events(homes: dict[Path, dict[str, list[Path]]]) -> None:
    """Event files that lie below the run they belong to."""
    holding = {home for home, kinds in homes.items() if "events" in kinds}
    for folder in sorted(holding, reverse=True):
        home = event_files.home(folder, holding)
        above = folder.parent.parent
        if _HF_EVENTS.fullmatch(folder.name) and "state" in homes.get(above, {}):
            home = above
        if home != folder:
            homes[home]["events"] += homes[folder].pop("events")


def _look_at_wandb(seen: Survey, paths: list[Path]) -> None:
    """All files together: a resumed run has several."""
    records: list[wandb_files.Tracked] = []
    for path in paths:
        try:
            records += wandb_files.Offline(path).runs()
        except (RgtError, OSError, wire.Malformed) as error:
            seen.unread.append((path, str(error)))
    seen.take(seen.root, partial(wandb_files.read, records))


def _look_at_file(seen: Survey, path: Path, ask: Ask) -> None:
    if not path.is_file():
        raise bad_input(f"{path} is neither a file nor a folder")
    kind = _kind(path) or ("database" if head(path, 16) == databases.MAGIC else "log")
    if kind == "wandb":
        _look_at_wandb(seen, [path])
    elif kind == "mlflow":
        seen.take(path, partial(mlflow_folder.read, path.parent))
    elif kind == "database":
        seen.take(path, partial(databases.read, path))
    else:
        for where, read in _readers({kind: [path]}, path.parent, ask):
            seen.take(where, read)


Reader = tuple[Path, Callable[[], Iterable[Foreign]]]


def _readers(kinds: dict[str, list[Path]], home: Path, ask: Ask) -> list[Reader]:
    """The ways to read one run, the best first."""
    ways: list[Reader] = []
    if states := kinds.get("state"):
        ways.append((home, partial(trainer_state.read, states)))
    ways += [(table, partial(row_tables.read, table, ask)) for table in kinds.get("table", [])]
    if events := kinds.get("events"):
        ways.append((home, partial(event_files.read, events, home)))
    ways += [(log, partial(printed_logs.read, log)) for log in kinds.get("log", [])]
    return ways or [(path, partial(_evaluated, path, ask)) for path in kinds.get("evaluation", [])]


def _look_at_home(seen: Survey, home: Path, kinds: dict[str, list[Path]], ask: Ask) -> None:
    tables, logs = sorted(kinds.get("table", [])), sorted(kinds.get("log", []))
    if len(tables) > 1 or len(logs) > 1:
        stems = {path.stem: path for path in tables}
        for table in tables:
            beside = [log for log in logs if log.stem == table.stem]
            _read_home(seen, home, {"table": [table], "log": beside}, ask, table.stem)
        for log in (log for log in logs if log.stem not in stems):
            _read_home(seen, home, {"log": [log]}, ask, log.stem)
        kinds = {kind: paths for kind, paths in kinds.items() if kind not in ("table", "log")}
    if any(kinds.get(kind) for kind in ("state", "table", "events", "log", "evaluation")):
        _read_home(seen, home, kinds, ask)


def _read_home(seen: Survey, home: Path, kinds: dict[str, list[Path]], ask: Ask, stem: str = "") -> None:
    """One run by the first way that works. The others add their settings and the log; a table may hold several runs."""
    failed = Survey(home)
    runs: list[Foreign] = []
    for where, read in _readers(kinds, home, ask):
        if not runs:
            runs = failed.take(where, read)
        elif len(runs) == 1 and where == home:  # event files beside a table: their hparams
            for other in failed.take(where, read):
                runs[0].config = {**other.config, **runs[0].config}
    if not runs:
        seen.unread += failed.unread
        return
    for run in runs:
        run.gaps += [f"beside it, not read: {why}" for _, why in failed.unread]
    if len(runs) == 1:
        _add_neighbours(runs[0], home, kinds, ask)
        inside = home.relative_to(seen.root).as_posix() if home != seen.root else ""
        runs[0].name = "/".join(filter(None, (inside, stem))) or seen.root.resolve().name
    seen.runs += runs


def _add_neighbours(run: Foreign, home: Path, kinds: dict[str, list[Path]], ask: Ask) -> None:
    """The config, the log and the evaluation that lie beside a run's record."""
    logs = kinds.get("log", [])
    run.log = run.log or (logs[0] if logs else None)
    for path in (home / name for name in CONFIGS.split()):
        if path.is_file() and path.stat().st_size:
            try:
                given = {one.key: one.value for one in settings.read(path)}
                run.config = {**flat(given), **run.config}
            except RgtError as error:
                run.gaps.append(f"its settings cannot be read: {error.message}")
    for path in kinds.get("evaluation", []) if not run.results else []:
        try:
            run.results += [row for other in _evaluated(path, ask) for row in other.results]
        except RgtError as error:
            run.gaps.append(f"beside it, not read: {error.message}")


def _evaluated(path: Path, ask: Ask) -> Iterator[Foreign]:
    """results.json in our form, or an evaluation's flat summary. One without rule and source was typed, or may be."""
    data = files.read_json(path)
    if not isinstance(data, dict):
        raise bad_input(f"{path} is no object with numbers")
    run = Foreign(path.parent.name, "results", path)
    if isinstance(rows := data.get("metrics"), list):
        schema.check({"run_id": "20000101-000000-x-000000", "metrics": rows}, "results", str(path))
        run.results = [{"rule": "typed", **row} for row in rows]
    else:
        typed = {"rule": "typed"} if path.name == "results.json" else {}
        numbers = {one.key: as_number(one.value) for one in settings.flatten(data)}
        for name, value in numbers.items():
            if value is not None and known(split_and_rest(name.rpartition(".")[2])[1]):
                run.report(name.rpartition(".")[2], value, ask.split, path, **typed)
        run.config = {one.key: one.value for one in settings.flatten(data) if settings.is_seed(one.key)}
    if not run.results:
        raise bad_input("; ".join(run.gaps[:2]) or f"{path} has no number that is known to be a metric")
    yield run.settle(path)
