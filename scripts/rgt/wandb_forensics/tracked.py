"""Runs of a tracker: read from run-*.wandb files or the hosted service; which records are one run; the export.

A .wandb file is LevelDB's log framing around protobuf records: blocks of 32 KiB; a record is a checksum, a length, a
kind and its bytes, and may go over several blocks. A file that a crash cut off is read up to the cut.
"""

from __future__ import annotations

import contextlib
import json
import math
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import RgtError, bad_input, lacking
from rgt.metrics.table import split_and_rest
from rgt.report import progress
from rgt.run import record as rundir
from rgt.run.record import mint_id

_COMPARED = 50  # rows of two histories that decide whether they are one
_OWN = frozenset(["_timestamp", "_runtime", "_wandb", "_step"])
_MAGIC = b":W&B\xe1\xbe\x00"
_BLOCK = 32768
_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_ALIVE = 300  # seconds since the last write: a run without an end may still be going
_PAGE = 1000
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}  # how the service says them

Row = dict[str, Any]


@dataclass
class Tracked:
    id: str
    name: str
    project: str
    state: str  # finished, failed, crashed, running, preempted
    created: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    git: dict[str, str] = field(default_factory=dict)
    host: str = ""
    command: list[str] = field(default_factory=list)
    exit_code: int | None = None
    resumed: bool = False
    where: str = ""  # path or address
    damage: str = ""  # what is wrong with the record itself
    rows: int | None = None  # of its history; None when nobody counted yet

    @property
    def steps(self) -> int:
        """The last step the summary knows."""
        step = self.summary.get("_step")
        return int(step) if isinstance(step, (int, float)) and math.isfinite(step) else 0

    @property
    def length(self) -> int:
        """Its rows, or where nobody counted them its steps."""
        return self.steps if self.rows is None else self.rows

    def take(self, record: Any) -> None:
        """One record of its .wandb file."""
        kind = record.WhichOneof("record_type")
        data: Any = getattr(record, kind) if kind else None
        if kind == "run":
            self.id, self.name, self.project = data.run_id or self.id, data.display_name, data.project
            self.host = data.host
            self.created = datetime.fromtimestamp(data.start_time.seconds, timezone.utc).isoformat(timespec="seconds")
            self.resumed = self.resumed or bool(data.resumed or data.starting_step)
            _update(self.config, data.config)
            _update(self.summary, data.summary)
        elif kind in ("config", "summary"):
            _update(getattr(self, kind), data)
        elif kind == "history":
            self.rows = (self.rows or 0) + 1
            self.summary["_step"] = max(self.steps, data.step.num)
        elif kind == "environment":
            program = getattr(data, "program", "") or getattr(data, "code_path", "")
            self.command = self.command or ([program, *getattr(data, "args", [])] if program else [])
        elif kind == "preempting":
            self.state = "preempted"
        elif kind == "exit":
            self.exit_code = data.exit_code
            self.state = "finished" if self.exit_code == 0 else "failed"
        if kind in ("run", "environment") and data.git.commit and (kind == "run" or not self.git):
            self.git = {"commit": data.git.commit, "remote": data.git.remote_url}

    def as_dict(self) -> dict[str, Any]:
        kept = ("id", "name", "project", "state", "created", "rows", "resumed", "where")
        row = {key: getattr(self, key) for key in kept}
        return {**row, "last_step": self.steps, "summary": self.numbers(), "config": self.settings()}

    def settings(self) -> dict[str, Any]:
        """The config without what the tracker adds, flattened and in strict JSON: {"optim.lr": 0.1}."""
        return dict(_flat({key: value for key, value in self.config.items() if not key.startswith("_wandb")}))

    def numbers(self) -> dict[str, Any]:
        """The last values of what was logged."""
        last = {key: value for key, value in self.summary.items() if isinstance(value, (int, float))}
        return {key: strict(value) for key, value in last.items() if not key.startswith("_")}


def _flat(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", strict(value)


def strict(value: Any) -> Any:
    """NaN and infinities as the words that stand for them in JSON."""
    if isinstance(value, dict):
        return {key: strict(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [strict(inner) for inner in value]
    return files.json_number(value) if isinstance(value, float) else value


# -- where they are read from: run-*.wandb files as they are on disk, or the hosted service


class _Damage(Exception):
    """The file is corrupt from here on; the records before are good."""


def _payloads(path: Path) -> Iterator[bytes]:
    """The records of one file; raises _Damage where it is torn or altered."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise _Damage(f"is not a W&B record file: it does not start with {_MAGIC[:4]!r}")
        offset, parts = len(_MAGIC), b""
        while True:
            left = _BLOCK - offset % _BLOCK
            if left < _HEADER.size:  # padding, or the end: it is written together with the next record
                file.read(left)
                offset += left
            head = file.read(_HEADER.size)
            if not head:
                if parts:
                    raise _Damage("ends inside a record")
                return
            crc, length, kind = _HEADER.unpack(head) if len(head) == _HEADER.size else (0, _BLOCK, 0)
            data = file.read(length)
            if len(data) < length:
                raise _Damage(f"ends inside a record at byte {offset}")
            if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or zlib.crc32(data, zlib.crc32(bytes([kind]))) != crc:
                raise _Damage(f"is altered at byte {offset}: its checksum does not fit")
            offset += _HEADER.size + length
            parts = data if kind in (_FULL, _FIRST) else parts + data
            if kind in (_FULL, _LAST):
                yield parts
                parts = b""


def _messages(path: Path, damage: list[str]) -> Iterator[Any]:
    """Protobuf records; the place of a damage goes into `damage`, and what came before it is given."""
    try:
        from google.protobuf.message import DecodeError

        proto: Any = import_module("wandb.proto.wandb_internal_pb2")
    except ImportError:
        raise lacking("reading W&B files needs the wandb package: pip install wandb") from None
    try:
        for payload in _payloads(path):
            yield proto.Record.FromString(payload)
    except DecodeError:
        damage.append(f"{path.name} holds a record that this version of wandb does not know")
    except _Damage as problem:
        damage.append(f"{path.name} {problem}")


def _value(item: Any) -> Any:
    try:
        return json.loads(item.value_json)
    except ValueError:
        return item.value_json


def _update(into: dict[str, Any], record: Any) -> None:
    for item in record.update:
        path = [item.key] if item.key else list(item.nested_key)
        place = into
        for part in path[:-1]:
            place = place.setdefault(part, {}) if isinstance(place.get(part, {}), dict) else place
        place[path[-1]] = _value(item)
    for item in record.remove:
        into.pop(item.key or ".".join(item.nested_key), None)


@dataclass
class Offline:
    """A folder with offline-run-* or run-* folders in it, one of those, or one .wandb file."""

    root: Path

    def runs(self) -> list[Tracked]:
        if not self.root.exists():
            raise bad_input(f"{self.root} does not exist; name a folder, or entity/project for the hosted service")
        paths = [self.root]
        if self.root.is_dir():
            paths = [path for path in sorted(self.root.rglob("*.wandb")) if path.is_file() and not path.is_symlink()]
        found = []
        for path in paths:
            run = Tracked(path.stem.removeprefix("run-"), "", "", "", where=str(path), rows=0)
            damage: list[str] = []
            for record in _messages(path, damage):
                run.take(record)
            run.damage = "; ".join(damage)
            if not run.state:
                recent = time.time() - path.stat().st_mtime < _ALIVE
                run.state = "running" if recent and not damage else "crashed"
            found.append(run)
        if self.root.is_file() and "is not a W&B record" in found[0].damage:
            raise bad_input(f"{self.root.parent / found[0].damage}")
        if not found:
            raise bad_input(f"no run-*.wandb below {self.root}; name the wandb folder of a project, or a run in it")
        return found

    def details(self, run: Tracked) -> None:
        """Nothing to add: the file was read whole."""

    def history(self, run: Tracked) -> Iterator[Row]:
        for record in _messages(Path(run.where), []):
            if record.WhichOneof("record_type") == "history":
                row = {item.key or ".".join(item.nested_key): _value(item) for item in record.history.item}
                row.setdefault("_step", record.history.step.num)
                yield row


@dataclass
class Hosted:
    """entity/project, or entity/project/run, through the wandb library's public API."""

    path: str
    _runs: dict[str, Any] = field(default_factory=dict)

    def runs(self) -> list[Tracked]:
        try:
            import wandb
        except ImportError:
            raise lacking("the hosted service needs the wandb package: pip install wandb") from None
        entity, project, *run = self.path.split("/")
        with _one_sentence(self.path):
            api = wandb.Api(timeout=30)  # a new one each time: it remembers its answers
            found: list[Any] = [api.run(self.path)] if run else list(api.runs(f"{entity}/{project}", lazy=False))
            self._runs |= {one.id: one for one in found}
            runs = []
            for one in found:
                summary = json.loads(json.dumps(dict(one.summary), default=str))
                names = (one.id, one.name or "", project, one.state, str(one.created_at or ""))
                runs.append(Tracked(*names, dict(one.config), summary, where=one.url))
            return runs

    def details(self, run: Tracked) -> None:
        """The metadata file is one request per run: asked for only where it is shown."""
        with _one_sentence(run.where):
            metadata = self._runs[run.id].metadata or {}
        git = metadata.get("git") or {}
        run.git = {"commit": git["commit"], "remote": git.get("remote", "")} if git.get("commit") else {}
        run.host = metadata.get("host", "")
        run.command = [metadata["program"], *metadata.get("args", [])] if metadata.get("program") else []

    def history(self, run: Tracked) -> Iterator[Row]:
        """scan_history gives every row; `history` would give 500 of them, sampled."""
        with _one_sentence(run.where):
            for row in self._runs[run.id].scan_history(page_size=_PAGE):
                numbers = {key: _WORDS.get(value, value) for key, value in row.items() if isinstance(value, str)}
                yield {key: value for key, value in {**row, **numbers}.items() if value is not None}


@contextlib.contextmanager
def _one_sentence(path: str) -> Iterator[None]:
    """Whatever the library raises becomes one sentence: it raises a dozen kinds for one broken link."""
    try:
        yield
    except RgtError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        raise lacking(f"the hosted service did not give {path}: {text or type(error).__name__}") from None


Source = Offline | Hosted


# -- which run a word of the command line means; a resumed run has several records


def records_of(runs: list[Tracked], run_id: str) -> list[Tracked]:
    """Every record of the run with this id, or else this name, the last one last; that there are several is told."""
    found = [run for run in runs if run.id == run_id] or [run for run in runs if run.name == run_id]
    if not found:
        raise bad_input(f"no run {run_id}; there are: {', '.join(run.id for run in runs[:10])}")
    whole = whole_runs(found)
    if len(whole) > 1:
        ids = ", ".join(dict.fromkeys(parts[0].id for parts in whole[:10]))
        raise bad_input(f"{run_id} names {len(whole)} runs: {ids}; name one by its id, or its own place as SOURCE")
    if len(found) > 1:
        places = ", ".join(part.where for part in whole[0])
        rule = "the later one counts where both have a step"
        progress(f"{len(found)} records of {found[0].id}, which was resumed; {rule}: {places}")
    return whole[0]


def whole_runs(runs: list[Tracked]) -> list[list[Tracked]]:
    """Every run as its records, as they were begun."""
    by_id: dict[tuple[str, str], list[Tracked]] = {}
    for run in sorted(runs, key=lambda run: (run.created, run.where)):
        by_id.setdefault((run.project, run.id), []).append(run)
    return list(by_id.values())


def joined_history(source: Source, parts: list[Tracked]) -> Iterator[Row]:
    """The history of a resumed run, by step. Where two records have a step, the later one's values count."""
    if len(parts) == 1:
        return source.history(parts[0])
    rows: dict[int, Row] = {}
    for part in parts:
        for row in source.history(part):
            rows[row["_step"]] = {**rows.get(row["_step"], {}), **row}
    return iter([rows[step] for step in sorted(rows)])


def copies(source: Source, runs: list[Tracked]) -> list[list[str]]:
    """Ids of runs with the same config and the same curve: one run that was tracked several times."""
    by_config: dict[str, list[list[Tracked]]] = {}
    for parts in whole_runs(runs):
        key = parts[-1].project + json.dumps(parts[-1].settings(), sort_keys=True, default=str)
        by_config.setdefault(key, []).append(parts)
    by_curve: dict[tuple[str, str], list[str]] = {}
    for key, alike in by_config.items():
        for parts in alike if len(alike) > 1 else []:
            rows = list(islice(joined_history(source, parts), _COMPARED))
            values = [[row.get("_step"), {key: row[key] for key in row if key not in _OWN}] for row in rows]
            if rows:
                by_curve.setdefault((key, json.dumps(values, sort_keys=True, default=str)), []).append(parts[0].id)
    return [ids for ids in by_curve.values() if len(ids) > 1]


# -- export


def write_run(into: Path, tracked: Tracked, history: Iterator[Row]) -> tuple[Path, int]:
    """A run directory; its path and the number of its rows. All is read before anything is written."""
    run = rundir.Run(into / mint_id(tracked.name or tracked.id))
    rows: list[Row] = []
    for row in history:  # one row of the tracker is one line per split: val/loss becomes loss of the split val
        by_split: dict[str, Row] = {}
        for key, value in row.items():
            if not key.startswith("_") and isinstance(value, (int, float)) and not isinstance(value, bool):
                split, name = split_and_rest(key)
                by_split.setdefault(split or "train", {})[name] = strict(value)
        head = {"step": int(row["_step"]), "time": float(row.get("_timestamp", 0.0))}
        # last: a metric may be called step or time, too
        rows += [{**values, **head, "split": split} for split, values in by_split.items()]
    metrics = b"".join(files.dump(row, str(run.metrics)) + b"\n" for row in rows)
    config, commit = tracked.settings(), tracked.git.get("commit")
    created = tracked.created or datetime.now(timezone.utc).isoformat(timespec="seconds")
    seeds = {key: seed for key, seed in config.items() if key.split(".")[-1] == "seed" and isinstance(seed, int)}
    record: dict[str, Any] = {"run_id": run.id, "created": created, "command": tracked.command, "cwd": ""}
    record |= {"seeds": seeds, "config": config, "config_sha256": rundir.config_hash(config), "devices": []}
    record |= {"backend": "wandb", "job": {"source": tracked.where, "id": tracked.id, "state": tracked.state}}
    record |= {"git": {"commit": commit, "branch": "", "dirty": False, "untracked": []} if commit else None}
    record |= {"env": {"python": "", "executable": "", "packages": {}}}
    record |= {"host": {"name": tracked.host, "platform": "", "cpus": None}}
    run.path.mkdir(parents=True)
    run.write_record(record)
    files.write_bytes(run.metrics, metrics)
    run.log_event({"finished": "finished", "running": "launched"}.get(tracked.state, "failed"), source=tracked.where)
    return run.path, len(rows)
