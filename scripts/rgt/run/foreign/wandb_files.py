"""W&B's run-*.wandb files, read as they are on disk, without its library; which records are one run.

LevelDB's log framing around protobuf records: blocks of 32 KiB; a record is a checksum, a length, a kind and its bytes,
and may go over several blocks. A file that a crash cut off is read up to the cut.
"""

from __future__ import annotations

import contextlib
import json
import math
import struct
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import bad_input
from rgt.run import record as states
from rgt.run.foreign import LIVE, Foreign, Row, flat, strict
from rgt.run.foreign import event_files as wire
from rgt.walk import walk

_MAGIC = b":W&B\xe1\xbe\x00"
_BLOCK = 32768
_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
# fields of a Record that are read, by number
_KINDS = {2: "history", 3: "summary", 5: "config", 17: "run", 18: "exit", 23: "preempting", 26: "environment"}


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
    devices: list[str] = field(default_factory=list)
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

    def take(self, kind: str, data: wire.Fields) -> None:
        """One record of its .wandb file."""
        if kind == "run":
            self.id = wire.text(data, 1) or self.id
            self.name, self.project, self.host = (wire.text(data, field) for field in (8, 3, 13))
            with contextlib.suppress(ValueError, OverflowError, OSError):
                began = datetime.fromtimestamp(wire.number(wire.inner(data, 17), 1), timezone.utc)
                self.created = began.isoformat(timespec="seconds")
            self.resumed = self.resumed or bool(wire.number(data, 18) or wire.number(data, 14))
            _update(self.config, wire.inner(data, 4))
            _update(self.summary, wire.inner(data, 5))
        elif kind in ("config", "summary"):
            _update(getattr(self, kind), data)
        elif kind == "history":
            self.rows = (self.rows or 0) + 1
            self.summary["_step"] = max(self.steps, int(wire.number(wire.inner(data, 2), 1)))
        elif kind == "environment":
            program = wire.text(data, 6) or wire.text(data, 7)
            words = [word.decode("utf-8", "replace") for word in wire.blobs(data, 5)]
            self.command = self.command or ([program, *words] if program else [])
            cards = min(int(wire.number(data, 19)), 4096)
            self.devices = [wire.text(data, 18)] * cards or self.devices
        elif kind == "preempting":
            self.state = "preempted"
        elif kind == "exit":
            self.exit_code = int(wire.number(data, 1))
            self.state = "finished" if self.exit_code == 0 else "failed"
        git = wire.inner(data, {"run": 21, "environment": 9}.get(kind, 0))
        if (commit := wire.text(git, 2)) and (kind == "run" or not self.git):
            self.git = {"commit": commit, "remote": wire.text(git, 1)}

    def as_dict(self) -> dict[str, Any]:
        kept = ("id", "name", "project", "state", "created", "rows", "resumed", "where")
        row = {key: getattr(self, key) for key in kept}
        return {**row, "last_step": self.steps, "summary": self.numbers(), "config": self.settings()}

    def settings(self) -> dict[str, Any]:
        """The config without what the tracker adds, flattened and in strict JSON: {"optim.lr": 0.1}."""
        return flat({key: value for key, value in self.config.items() if not key.startswith("_wandb")})

    def numbers(self) -> dict[str, Any]:
        """The last values of what was logged."""
        last = {key: value for key, value in self.summary.items() if isinstance(value, (int, float))}
        return {key: strict(value) for key, value in last.items() if not key.startswith("_")}

    def as_foreign(self, history: Iterable[Row], source: Path | str) -> Foreign:
        run = Foreign(self.name or self.id, "wandb", source, self.id, config=self.settings(), command=self.command)
        run.commit, run.host, run.devices = self.git.get("commit", ""), self.host, self.devices
        run.state = {"crashed": states.FAILED}.get(self.state, self.state)
        run.gaps = [self.damage] if self.damage else []
        with contextlib.suppress(ValueError):
            run.began = datetime.fromisoformat(self.created.replace("Z", "+00:00")).timestamp()
        for row in history:
            values = {key: value for key, value in row.items() if not key.startswith("_")}
            run.add(int(row["_step"]), values, float(row.get("_timestamp") or 0.0))
        return run


class Damage(Exception):
    """The file is corrupt from here on; the records before are good."""


def _payloads(path: Path) -> Iterator[bytes]:
    """The records of one file; raises Damage where it is torn or altered."""
    with files.open_regular(path) as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise Damage(f"is not a W&B record file: it does not start with {_MAGIC[:4]!r}")
        offset, parts = len(_MAGIC), b""
        while True:
            left = _BLOCK - offset % _BLOCK
            if left < _HEADER.size:  # padding, or the end: it is written together with the next record
                file.read(left)
                offset += left
            head = file.read(_HEADER.size)
            if not head:
                if parts:
                    raise Damage("ends inside a record")
                return
            crc, length, kind = _HEADER.unpack(head) if len(head) == _HEADER.size else (0, _BLOCK, 0)
            data = file.read(length)
            if len(data) < length:
                raise Damage(f"ends inside a record at byte {offset}")
            if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or zlib.crc32(data, zlib.crc32(bytes([kind]))) != crc:
                raise Damage(f"is altered at byte {offset}: its checksum does not fit")
            offset += _HEADER.size + length
            parts = data if kind in (_FULL, _FIRST) else parts + data
            if kind in (_FULL, _LAST):
                yield parts
                parts = b""


def _records(path: Path, damage: list[str]) -> Iterator[tuple[str, wire.Fields]]:
    """Kind and fields of each record; the place of a damage goes into `damage`, and what came before it is given."""
    try:
        for payload in _payloads(path):
            record = wire.message(payload)
            for number in record.keys() & _KINDS.keys():
                yield _KINDS[number], wire.inner(record, number)
    except wire.Malformed as problem:
        damage.append(f"{path.name} holds a record that cannot be decoded: {problem}")
    except Damage as problem:
        damage.append(f"{path.name} {problem}")


def _key_and_value(item: wire.Fields) -> tuple[list[str], Any]:
    text = wire.text(item, 16)
    with contextlib.suppress(ValueError, RecursionError):
        text = json.loads(text)
    nested = [part.decode("utf-8", "replace") for part in wire.blobs(item, 2)]
    return [wire.text(item, 1)] if wire.text(item, 1) else nested, text


def _update(into: dict[str, Any], record: wire.Fields) -> None:
    for item in map(wire.message, wire.blobs(record, 1)):
        path, value = _key_and_value(item)
        place = into
        for part in path[:-1]:
            place = place.setdefault(part, {}) if isinstance(place.get(part, {}), dict) else place
        place |= dict.fromkeys(path[-1:], value)
    for item in map(wire.message, wire.blobs(record, 2)):
        into.pop(".".join(_key_and_value(item)[0]), None)


@dataclass
class Offline:
    """A folder with offline-run-* or run-* folders in it, one of those, or one .wandb file."""

    root: Path
    stopped: list[str] = field(default_factory=list)  # places that were not looked at

    def runs(self) -> list[Tracked]:
        if not self.root.exists():
            raise bad_input(f"{self.root} does not exist; name a folder, or entity/project for the hosted service")
        paths = [self.root]
        if self.root.is_dir():
            met = walk(str(self.root), None, self.stopped)
            found = (Path(entry.path) for _, entry, _ in met if entry.is_file(follow_symlinks=False))
            paths = sorted(path for path in found if path.suffix == ".wandb")
        runs = []
        for path in paths:
            run = Tracked(path.stem.removeprefix("run-"), "", "", "", where=str(path), rows=0)
            damage: list[str] = []
            for kind, data in _records(path, damage):
                run.take(kind, data)
            run.damage = "; ".join(damage)
            if not run.state:
                recent = time.time() - path.stat().st_mtime < LIVE
                run.state = "running" if recent and not damage else "crashed"
            runs.append(run)
        if self.root.is_file() and "is not a W&B record" in runs[0].damage:
            raise bad_input(f"{self.root.parent / runs[0].damage}")
        if not runs:
            looked = "".join(f"; {sentence}" for sentence in self.stopped[:3])
            raise bad_input(
                f"no run-*.wandb below {self.root}; name the wandb folder of a project, or a run in it{looked}"
            )
        return runs

    def details(self, run: Tracked) -> None:
        """Nothing to add: the file was read whole."""

    def history(self, run: Tracked) -> Iterator[Row]:
        for kind, data in _records(Path(run.where), []):
            if kind == "history":
                items = (_key_and_value(wire.message(blob)) for blob in wire.blobs(data, 1))
                row: Row = {".".join(path): value for path, value in items}
                row.setdefault("_step", int(wire.number(wire.inner(data, 2), 1)))
                yield row


def read(records: list[Tracked]) -> Iterator[Foreign]:
    """The runs that these files hold; the records of a resumed one are joined."""
    source = Offline(Path())
    for parts in whole_runs(records):
        last, places = parts[-1], [Path(part.where) for part in parts]
        run = last.as_foreign(joined(source.history(part) for part in parts), places[-1])
        output = places[-1].parent / "files" / "output.log"
        run.log = output if output.is_file() else None
        yield run.settle(*places)


def whole_runs(runs: list[Tracked]) -> list[list[Tracked]]:
    """Every run as its records, as they were begun."""
    by_id: dict[tuple[str, str], list[Tracked]] = {}
    for run in sorted(runs, key=lambda run: (run.created, run.where)):
        by_id.setdefault((run.project, run.id), []).append(run)
    return list(by_id.values())


def joined(histories: Iterable[Iterator[Row]]) -> Iterator[Row]:
    """The history of a resumed run, by step. Where two records have a step, the later one's values count."""
    rows: dict[int, Row] = {}
    for history in histories:
        for row in history:
            rows[row["_step"]] = {**rows.get(row["_step"], {}), **row}
    return iter([rows[step] for step in sorted(rows)])
