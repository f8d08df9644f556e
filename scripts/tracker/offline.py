"""run-*.wandb files: LevelDB's log framing around protobuf records, read as they are on disk.

A block is 32 KiB; a record is a checksum, a length, a kind and its bytes, and may go over several blocks. A file that a
crash cut off is read up to the cut, and the cut is told.
"""

from __future__ import annotations

import json
import shutil
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from typing import Any

from rgt.errors import bad_input, from_os_error, lacking
from tracker.shape import Row, Tracked

_MAGIC = b":W&B\xe1\xbe\x00"
_BLOCK = 32768
_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_ALIVE = 300  # seconds since the last write: a run without an end may still be going


class _Damage(Exception):
    """The file goes on in a way that is none; the records before are good."""


def _records(path: Path) -> Iterator[bytes]:
    """The payloads of one file; raises _Damage where it is torn or altered."""
    try:
        file = path.open("rb")
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None
    with file:
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
            kind, data = _chunk(file.read, head, offset)
            offset += _HEADER.size + len(data)
            parts = data if kind in (_FULL, _FIRST) else parts + data
            if kind in (_FULL, _LAST):
                yield parts
                parts = b""


def _chunk(read: Any, head: bytes, offset: int) -> tuple[int, bytes]:
    if len(head) < _HEADER.size:
        raise _Damage(f"ends inside a record at byte {offset}")
    crc, length, kind = _HEADER.unpack(head)
    data = read(length)
    if len(data) < length:
        raise _Damage(f"ends inside a record at byte {offset}")
    if kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or zlib.crc32(data, zlib.crc32(bytes([kind]))) != crc:
        raise _Damage(f"is altered at byte {offset}: its checksum does not fit")
    return kind, data


def _messages(path: Path, damage: list[str]) -> Iterator[Any]:
    """Protobuf records; the place of a damage goes into `damage`, and what came before it is given."""
    try:
        from google.protobuf.message import DecodeError

        proto: Any = import_module("wandb.proto.wandb_internal_pb2")
    except ImportError:
        raise lacking("reading W&B files needs the wandb package: pip install wandb") from None
    try:
        for payload in _records(path):
            try:
                yield proto.Record.FromString(payload)
            except DecodeError:
                raise _Damage("holds a record that this version of wandb does not know") from None
    except _Damage as problem:
        damage.append(f"{path.name} {problem}")


def _key(item: Any) -> str:
    return str(item.key or ".".join(item.nested_key))


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
        into.pop(_key(item), None)


@dataclass
class Offline:
    """A folder with offline-run-* or run-* folders in it, one of those, or one .wandb file."""

    root: Path

    def runs(self) -> list[Tracked]:
        found = [self._run(path) for path in self._files()]
        if self.root.is_file() and "is not a W&B record" in found[0].damage:
            raise bad_input(f"{self.root.parent / found[0].damage}")
        if not found:
            raise bad_input(f"no run-*.wandb below {self.root}; name the wandb folder of a project, or a run in it")
        return found

    def _files(self) -> list[Path]:
        if self.root.is_file():
            return [self.root]
        if not self.root.is_dir():
            raise bad_input(f"{self.root} does not exist; name a folder, or entity/project for the hosted service")
        found = (path for path in sorted(self.root.rglob("*.wandb")) if path.is_file() and not path.is_symlink())
        return [path for path in found if "pruned" not in path.relative_to(self.root).parts]

    def _run(self, path: Path) -> Tracked:
        run = Tracked(path.stem.removeprefix("run-"), "", "", "", where=str(path))
        damage: list[str] = []
        run.rows = 0
        for record in _messages(path, damage):
            _take(run, record)
        run.damage = "; ".join(damage)
        if not run.state:
            recent = time.time() - path.stat().st_mtime < _ALIVE
            run.state = "running" if recent and not damage else "crashed"
        return run

    def details(self, run: Tracked) -> None:
        """Nothing to add: the file was read whole."""

    def history(self, run: Tracked) -> Iterator[Row]:
        for record in _messages(Path(run.where), []):
            if record.WhichOneof("record_type") == "history":
                row = {_key(item): _value(item) for item in record.history.item}
                row.setdefault("_step", record.history.step.num)
                yield row

    def delete(self, run: Tracked) -> str:
        """Offline nothing is deleted: the run's own folder, or else its file alone, moves to pruned/ beside it."""
        path = Path(run.where).resolve()  # latest-run is a link
        moved = path.parent if path.parent.name.startswith(("run-", "offline-run-")) else path
        target, number = moved.parent / "pruned" / moved.name, 1
        while target.exists():
            number += 1
            target = target.with_name(f"{number}-{moved.name}")
        try:
            target.parent.mkdir(exist_ok=True)
            shutil.move(str(moved), str(target))
        except OSError as error:
            raise from_os_error(error, f"move {moved}") from None
        return str(target)

    def remaining(self, deleted: list[Tracked]) -> list[Tracked]:
        return [run for run in deleted if Path(run.where).exists()]


def _take(run: Tracked, record: Any) -> None:
    kind = record.WhichOneof("record_type")
    if kind == "run":
        _start(run, record.run)
    elif kind == "config":
        _update(run.config, record.config)
    elif kind == "summary":
        _update(run.summary, record.summary)
    elif kind == "history":
        run.rows = (run.rows or 0) + 1
        run.summary["_step"] = max(run.steps, record.history.step.num)
    elif kind == "environment":
        _environment(run, record.environment)
    elif kind == "preempting":
        run.state = "preempted"
    elif kind == "exit":
        run.exit_code = record.exit.exit_code
        run.state = "finished" if run.exit_code == 0 else "failed"


def _start(run: Tracked, record: Any) -> None:
    run.id, run.name, run.project = record.run_id or run.id, record.display_name, record.project
    run.group, run.tags, run.host = record.run_group, list(record.tags), record.host
    run.created = datetime.fromtimestamp(record.start_time.seconds, timezone.utc).isoformat(timespec="seconds")
    run.resumed = run.resumed or bool(record.resumed or record.starting_step)
    if record.git.commit:
        run.git = {"commit": record.git.commit, "remote": record.git.remote_url}
    _update(run.config, record.config)
    _update(run.summary, record.summary)


def _environment(run: Tracked, record: Any) -> None:
    program = getattr(record, "program", "") or getattr(record, "code_path", "")
    if program and not run.command:
        run.command = [program, *getattr(record, "args", [])]
    if record.HasField("git") and record.git.commit and not run.git:
        run.git = {"commit": record.git.commit, "remote": record.git.remote_url}
