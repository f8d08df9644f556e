"""Offline W&B run folders as the library writes them, with a fixed clock: LevelDB's framing around protobuf records."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

_MAGIC, _BLOCK, _HEADER = b":W&B\xe1\xbe\x00", 32768, struct.Struct("<IHB")
START = 1_792_000_000


def _items(into: Any, values: dict[str, Any]) -> None:
    for key, value in values.items():
        into.add(key=key, value_json=json.dumps(value))


def records(
    run_id: str, config: dict[str, Any], rows: Iterable[dict[str, Any]], number: int, **more: Any
) -> list[bytes]:
    """`more`: summary (written by hand at the end), exit (None: it was killed), resumed_at (a step)."""
    proto = import_module("wandb.proto.wandb_internal_pb2")
    start = proto.Record()
    start.run.run_id, start.run.project, start.run.display_name = run_id, "sweep", f"cell-{run_id}"
    start.run.start_time.seconds = START + 900 * number
    _items(start.run.config.update, config)
    if more.get("resumed_at"):
        start.run.resumed, start.run.starting_step = True, more["resumed_at"]
    made = [start]
    for row in rows:
        record = proto.Record()
        record.history.step.num = row["_step"]
        _items(record.history.item, row)
        made.append(record)
    if more.get("summary"):
        record = proto.Record()
        _items(record.summary.update, more["summary"])
        made.append(record)
    if more.get("exit") is not None:
        record = proto.Record()
        record.exit.exit_code = more["exit"]
        record.exit.runtime = 600
        made.append(record)
    for count, record in enumerate(made, 1):
        record.num = count
    return [record.SerializeToString(deterministic=True) for record in made]


def frame(payloads: Iterable[bytes]) -> bytes:
    out = bytearray(_MAGIC)
    for payload in payloads:
        rest, first = payload, True
        while True:
            left = _BLOCK - len(out) % _BLOCK
            if left < _HEADER.size:
                out += bytes(left)
                continue
            piece, rest = rest[: left - _HEADER.size], rest[left - _HEADER.size :]
            kind = (1 if not rest else 2) if first else (4 if not rest else 3)
            out += _HEADER.pack(zlib.crc32(piece, zlib.crc32(bytes([kind]))), len(piece), kind) + piece
            first = False
            if not rest:
                break
    return bytes(out)


def write(root: Path, stamp: str, run_id: str, data: bytes, files: dict[str, Any]) -> Path:
    """The folder of one run; `files` are those that the library leaves beside the record."""
    folder = root / f"offline-run-{stamp}-{run_id}"
    (folder / "files").mkdir(parents=True)
    (folder / "logs").mkdir()
    path = folder / f"run-{run_id}.wandb"
    path.write_bytes(data)
    for name, content in files.items():
        (folder / "files" / name).write_text(json.dumps(content, indent=1))
    return path
