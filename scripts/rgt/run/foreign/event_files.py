"""TensorBoard event files: TFRecord framing around Event messages. Scalars old and new, hparams, and settings as text.

    record = length (8 bytes), its masked crc32c (4), the message, its masked crc32c (4)

The files of one folder are one run. So are its folders `train` and `validation` (Keras), those that add_scalars makes
(loss_train: the tag loss, the line train) and the one that add_hparams makes, whose name is a time.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt.errors import bad_input
from rgt.run.foreign import Foreign, flat, split_word, strict, wire

FORMAT = "tensorboard"
_LENGTH = struct.Struct("<QI")
_CHECKED = 1 << 16  # bytes of a message whose checksum is computed; pictures are longer, and are not read
_READ = 1 << 24
_CLOCK = re.compile(r"\d{9,}(\.\d+)?")
_START = 1  # SessionLog.START
# dtype of a TensorProto -> how one of its values is packed in tensor_content, and the field that holds it otherwise
_PACKED = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 9: ("<q", 10), 19: ("<e", 13)}


def is_event_file(name: str) -> bool:
    return "tfevents" in name and not name.endswith((".profile-empty", ".v2.gz"))


def home(folder: Path, holding: set[Path]) -> Path:
    """The folder of the run that the event files in `folder` belong to."""
    part = split_word(folder.name) or _CLOCK.fullmatch(folder.name) or folder.parent in holding
    return folder.parent if part else folder


def read(paths: list[Path], top: Path) -> Iterator[Foreign]:
    """The event files of one run, whose folder is `top`."""
    run = Foreign(top.name, FORMAT, top)
    steps: dict[tuple[str, int], dict[str, float]] = {}  # folder below `top` and step
    clocks: dict[int, float] = {}
    for path in sorted(paths, key=lambda path: (path.parent, path.name)):
        folder = path.parent.relative_to(top).as_posix() if path.parent != top else ""
        for event in _events(path, run.gaps):
            step, when = int(wire.number(event, 2)), wire.number(event, 1)
            if 7 in event and wire.number(wire.inner(event, 7), 1) == _START and step:
                # a writer that went back here (purge_step): what it had written from there on does not count
                steps = {at: values for at, values in steps.items() if at[0] != folder or at[1] < step}
            for value in (wire.message(blob) for blob in wire.blobs(wire.inner(event, 5), 1)):
                tag = wire.text(value, 1)
                _take_settings(run, tag, value)
                scalar = _scalar(value)
                if scalar is not None:
                    steps.setdefault((folder, step), {})[_named(folder, tag)] = scalar
                    clocks[step] = when
    for (folder, step), values in steps.items():
        run.add(step, values, clocks[step], split_word(folder))
    if not run.points and not run.config:
        raise bad_input("; ".join(run.gaps) or f"no scalar in {len(paths)} event files")
    yield run.settle(*paths)


def _named(folder: str, tag: str) -> str:
    """add_scalars("loss", {"val": ...}) writes the tag loss into the folder loss_val."""
    if not folder or split_word(folder) or _CLOCK.fullmatch(folder):
        return tag
    main = tag.replace("/", "_") + "_"
    return f"{tag}/{folder.removeprefix(main)}" if folder.startswith(main) else f"{folder}/{tag}"


def _events(path: Path, gaps: list[str]) -> Iterator[wire.Fields]:
    """Its messages; where it is cut off or altered, that place goes into `gaps`."""
    at = 0
    with path.open("rb") as file:
        while head := file.read(_LENGTH.size):
            length, crc = _LENGTH.unpack(head) if len(head) == _LENGTH.size else (0, -1)
            if crc == -1 or wire.masked_crc32c(head[:8]) != crc:
                torn = "ends inside a record" if crc == -1 else "is altered: the checksum of a length does not fit"
                gaps.append(f"{path.name} {torn} at byte {at}; what came before is read")
                return
            data = file.read(length) if length <= _READ else b""
            if length > _READ:
                file.seek(length, 1)
            tail = file.read(4)
            if len(tail) < 4:
                gaps.append(f"{path.name} ends inside a record at byte {at}; what came before is read")
                return
            if length <= _CHECKED and wire.masked_crc32c(data) != struct.unpack("<I", tail)[0]:
                gaps.append(
                    f"{path.name} is altered at byte {at}: the checksum of a record does not fit; it is left out"
                )
            else:
                try:
                    yield wire.message(data)
                except wire.Malformed as error:
                    gaps.append(f"{path.name} has no event at byte {at}: {error}")
            at += _LENGTH.size + length + 4


def _scalar(value: wire.Fields) -> float | None:
    if 2 in value:
        return wire.number(value, 2)
    tensor = wire.inner(value, 8)
    packing, field = _PACKED.get(int(wire.number(tensor, 1)), ("", 0))
    if not packing or math.prod(_sizes(tensor)) != 1:
        return None
    content = b"".join(wire.blobs(tensor, 4)) or b"".join(wire.blobs(tensor, field))  # packed floats are bytes, too
    if len(content) == struct.calcsize(packing):
        return float(struct.unpack(packing, content)[0])
    return wire.number(tensor, field) if isinstance((tensor.get(field) or [b""])[0], int) else None


def _sizes(tensor: wire.Fields) -> list[int]:
    return [int(wire.number(wire.message(blob), 1)) for blob in wire.blobs(wire.inner(tensor, 2), 2)]


def _take_settings(run: Foreign, tag: str, value: wire.Fields) -> None:
    """hparams as the plugin stores them, and a JSON object that was written as text (HF Trainer's args)."""
    if tag == "_hparams_/session_start_info":
        content = wire.inner(wire.inner(wire.inner(value, 9), 1), 2)
        for entry in map(wire.message, wire.blobs(wire.inner(content, 3), 1)):
            name, given = wire.text(entry, 1), wire.inner(entry, 2)
            kinds: dict[int, Any] = {2: wire.number(given, 2), 3: wire.text(given, 3), 4: bool(wire.number(given, 4))}
            found = [strict(kinds[field]) for field in kinds if field in given]
            whole = found and isinstance(found[0], float) and found[0].is_integer() and abs(found[0]) < 1 << 53
            run.config |= {name: int(found[0]) if whole else found[0]} if found else {}
    elif tag.endswith("/text_summary"):
        for text in wire.blobs(wire.inner(value, 8), 8):
            with contextlib.suppress(ValueError, RecursionError):
                data = json.loads(text)
                run.config |= flat(data) if isinstance(data, dict) else {}
