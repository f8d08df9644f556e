"""Offline W&B folders as their clients leave them, of every fate: written in the real framing, without the client."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import zlib
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib import import_module
from pathlib import Path
from typing import Any

BLOCK, HEAD = 32768, 7
START = 1_790_000_000
Rows = dict[int, dict[str, Any]]


def _framed(payloads: list[bytes]) -> bytes:
    """LevelDB's log: records in blocks of 32 KiB, each piece with its checksum, length and kind."""
    out = bytearray(b":W&B\xe1\xbe\x00")
    for payload in payloads:
        rest, first = payload, True
        while first or rest:
            left = BLOCK - len(out) % BLOCK
            if left < HEAD:
                out += bytes(left)
                left = BLOCK
            piece, rest = rest[: left - HEAD], rest[left - HEAD :]
            kind = bytes([(1 if not rest else 2) if first else (4 if not rest else 3)])
            out += struct.pack("<IH", zlib.crc32(piece, zlib.crc32(kind)), len(piece)) + kind + piece
            first = False
    return bytes(out)


def _item(items: Any, name: str, value: Any, nested: bool) -> None:
    item = items.add()
    if nested:
        item.nested_key.extend([name])
    else:
        item.key = name
    item.value_json = json.dumps(value)


def record(place: Path, run_id: str, begun: int, config: dict[str, Any], rows: Rows, code: int | None) -> Path:
    """One file of one start; `code` None: it was killed. Clients differ in how they write keys."""
    proto: Any = import_module("wandb.proto.wandb_internal_pb2")
    nested = begun % 2 == 0
    messages = [proto.Record(num=1)]
    run = messages[0].run
    run.run_id, run.project, run.display_name, run.host = run_id, "vision", f"name-{run_id}", "box"
    run.start_time.seconds = begun
    for name, value in {**config, "_wandb": {"value": begun}}.items():
        _item(run.config.update, name, value, nested)
    for step, values in rows.items():
        history = proto.Record(num=len(messages) + 1)
        history.history.step.num = step
        own = {"_step": step, "_timestamp": begun + 1.5 * step, "_runtime": 1.5 * step}
        for name, value in {**values, **own}.items():
            _item(history.history.item, name, value, nested)
        messages.append(history)
    if code is not None:
        messages.append(proto.Record(num=len(messages) + 1))
        messages[-1].exit.exit_code = code
    stamp = datetime.fromtimestamp(begun, timezone.utc).strftime("%Y%m%d_%H%M%S")
    folder = place / f"offline-run-{stamp}-{run_id}"
    folder.mkdir(parents=True)
    path = folder / f"run-{run_id}.wandb"
    path.write_bytes(_framed([message.SerializeToString() for message in messages]))
    return path


@dataclass
class Folder:
    """A folder under construction, and the truth about it."""

    root: Path
    dice: random.Random
    now: int = START
    fates: dict[str, str] = field(default_factory=dict)
    copies: list[list[str]] = field(default_factory=list)
    last: tuple[str, dict[str, Any], Rows] = ("", {}, {})

    def name(self) -> str:
        return "".join(self.dice.choices("abcdefghijkmnpqrstuvwxyz0123456789", k=8))

    def config(self) -> dict[str, Any]:
        return {"lr": self.dice.choice((0.1, 0.01)) * self.dice.randint(1, 99), "optim": {"name": "adam"}}

    def curve(self, first: int, end: int) -> Rows:
        """A row of some hundred bytes now and then, so that records go over the ends of blocks."""
        noise = "x" * self.dice.choice((3, 3, 3, 4000))
        return {
            s: {"loss": self.dice.random(), "val/acc": self.dice.random(), "note": noise} for s in range(first, end)
        }

    def write(self, run_id: str, config: dict[str, Any], rows: Rows, code: int | None) -> Path:
        self.now += self.dice.randint(100, 5000)
        path = record(self.root, run_id, self.now, config, rows, code)
        self.last = (run_id, config, rows)
        self.fates[run_id] = "crashed" if code is None else "failed" if code else "finished"
        return path

    def plain(self, code: int | None = 0) -> Path:
        return self.write(self.name(), self.config(), self.curve(0, self.dice.randint(10, 40)), code)


# -- what happens to runs


def finished(folder: Folder) -> None:
    folder.plain()


def failed(folder: Folder) -> None:
    folder.plain(folder.dice.choice((1, 137)))


def killed(folder: Folder) -> None:
    folder.plain(None)


def cut(folder: Folder) -> None:
    path = folder.plain()
    os.truncate(path, path.stat().st_size * 2 // 3)
    folder.fates[folder.last[0]] = "crashed"


def altered(folder: Folder) -> None:
    path = folder.plain()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x01  # another digit or letter: only the checksum tells
    path.write_bytes(data)
    folder.fates[folder.last[0]] = "crashed"


def never_began(folder: Folder) -> None:
    path = folder.plain(None)
    os.truncate(path, 0)


def resumed(folder: Folder, last: int | None = 0) -> None:
    run_id, config = folder.name(), folder.config()
    folder.write(run_id, config, folder.curve(0, 20), None)
    folder.write(run_id, config, folder.curve(16, 40), last)


def resumed_and_killed(folder: Folder) -> None:
    resumed(folder, None)


def copied(folder: Folder) -> None:
    """Logged again under another id: the same settings and values, at another time."""
    finished(folder)
    run_id, config, rows = folder.last
    other = folder.name()
    folder.write(other, config, rows, 0)
    folder.copies.append(sorted([run_id, other]))


def copied_whole(folder: Folder) -> None:
    """The copy of a resumed run has its joined curve: where both parts have a step, the later one counts."""
    run_id, config, other = folder.name(), folder.config(), folder.name()
    first, second = folder.curve(0, 20), folder.curve(15, 40)
    folder.write(run_id, config, first, None)
    folder.write(run_id, config, second, 0)
    folder.write(other, config, {**first, **second}, 0)
    folder.copies.append(sorted([run_id, other]))


def repeated(folder: Folder) -> None:
    """The same settings and another curve: an experiment of its own."""
    finished(folder)
    config = folder.last[1]
    folder.write(folder.name(), config, folder.curve(0, 30), 0)


def backed_up(folder: Folder) -> None:
    path = folder.plain()
    shutil.copytree(path.parent, folder.root / "backup" / path.parent.name)


def backed_up_early(folder: Folder) -> None:
    """A copy of the folder from before the run's end: shorter, and without one."""
    run_id, config, rows = folder.name(), folder.config(), folder.curve(0, 30)
    early = folder.write(run_id, config, dict(list(rows.items())[:12]), None)
    stamp = folder.now
    shutil.move(early.parent, folder.root / folder.dice.choice(("backup-monday", "old")) / early.parent.name)
    record(folder.root, run_id, stamp, config, rows, 0)
    folder.fates[run_id] = "finished"


def linked(folder: Folder) -> None:
    (folder.root / "latest-run").symlink_to(folder.plain().parent.name)


USUAL = (finished, failed, killed, finished)
ODD = (cut, altered, never_began, resumed, resumed_and_killed, copied, copied_whole, repeated, backed_up,
       backed_up_early)  # fmt: skip


def build(root: Path, seed: int) -> dict[str, Any]:
    """A folder in which the usual and three odd things happened, and what is true of it."""
    folder = Folder(root, random.Random(seed))
    odd = [ODD[(3 * seed + number) % len(ODD)] for number in range(3)]
    happened = [*USUAL, *odd, linked]
    folder.dice.shuffle(happened)
    for happen in happened:
        happen(folder)
    for path in sorted(root.rglob("*")):
        if not path.is_symlink():
            os.utime(path, (START + 10**6, START + 10**6))
    fates = {state: sorted(name for name, fate in folder.fates.items() if fate == state)
             for state in ("finished", "failed", "crashed")}  # fmt: skip
    return {"experiments": len(folder.fates) - len(folder.copies), **fates, "copies": sorted(folder.copies)}
