"""TensorBoard event files: TFRecord framing around Event messages. Scalars old and new, and hparams.

    record = length (8 bytes), its masked crc32c (4), the message, its masked crc32c (4)

The files of one folder are one run. So are its folders `train` and `validation` (Keras), those that add_scalars makes
(loss_train: the tag loss, the line train) and the one that add_hparams makes, whose name is a time.

Protobuf is read without its library, here and in wandb_files:
    fields = message(data)                  {1: [b"val/loss"], 2: [b"..."]}     field number -> its values, in order
    text(fields, 1), number(fields, 2)      the last one, as protobuf has it; "" and 0 when it is not there
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt.errors import bad_input
from rgt.run.foreign import Foreign, split_word, strict

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
    run = Foreign(top.name, "tensorboard", top)
    steps: dict[tuple[str, int], dict[str, float]] = {}  # folder below `top` and step
    clocks: dict[int, float] = {}
    for path in sorted(paths, key=lambda path: (path.parent, path.name)):
        folder = path.parent.relative_to(top).as_posix() if path.parent != top else ""
        for event in _events(path, run.gaps):
            step, when = int(number(event, 2)), number(event, 1)
            if 7 in event and number(inner(event, 7), 1) == _START and step:
                # a writer that went back here (purge_step): what it had written from there on does not count
                steps = {at: values for at, values in steps.items() if at[0] != folder or at[1] < step}
            for value in map(message, blobs(inner(event, 5), 1)):
                tag = text(value, 1)
                run.config |= _settings(tag, value)
                scalar = _scalar(value)
                if scalar is not None:
                    if folder and not split_word(folder) and not _CLOCK.fullmatch(folder):
                        # add_scalars("loss", {"val": ...}) writes the tag loss into the folder loss_val
                        main = tag.replace("/", "_") + "_"
                        own = folder.startswith(main)
                        tag = f"{tag}/{folder.removeprefix(main)}" if own else f"{folder}/{tag}"
                    steps.setdefault((folder, step), {})[tag] = scalar
                    clocks[step] = when
    for (folder, step), values in steps.items():
        run.add(step, values, clocks[step], split_word(folder))
    if not run.points and not run.config:
        raise bad_input("; ".join(run.gaps) or f"no scalar in {len(paths)} event files")
    yield run.settle(*paths)


def _events(path: Path, gaps: list[str]) -> Iterator[Fields]:
    """Its messages. The place where it is cut off, or a record that is altered, goes into `gaps`."""
    at = 0
    with path.open("rb") as file:
        while head := file.read(_LENGTH.size):
            length, crc = _LENGTH.unpack(head) if len(head) == _LENGTH.size else (0, -1)
            if crc != -1 and masked_crc32c(head[:8]) != crc:
                gaps.append(f"{path.name} is altered at byte {at}: a length does not fit; what came before is read")
                return
            data = file.read(length) if length <= _READ else b""
            if length > _READ:
                file.seek(length, 1)
            tail = file.read(4)
            if crc == -1 or len(tail) < 4:
                gaps.append(f"{path.name} ends inside a record at byte {at}; what came before is read")
                return
            try:
                if length <= _CHECKED and masked_crc32c(data) != struct.unpack("<I", tail)[0]:
                    raise Malformed("its checksum does not fit")
                yield message(data)
            except Malformed as error:
                gaps.append(f"{path.name}: the record at byte {at} is left out: {error}")
            at += _LENGTH.size + length + 4


def _scalar(value: Fields) -> float | None:
    if 2 in value:
        return number(value, 2)
    tensor = inner(value, 8)
    packing, field = _PACKED.get(int(number(tensor, 1)), ("", 0))
    sizes = [int(number(message(blob), 1)) for blob in blobs(inner(tensor, 2), 2)]
    if not packing or math.prod(sizes) != 1:
        return None
    content = b"".join(blobs(tensor, 4)) or b"".join(blobs(tensor, field))  # packed floats are bytes, too
    if len(content) == struct.calcsize(packing):
        return float(struct.unpack(packing, content)[0])
    return number(tensor, field) if isinstance((tensor.get(field) or [b""])[0], int) else None


def _settings(tag: str, value: Fields) -> dict[str, Any]:
    """hparams as the plugin stores them."""
    found: dict[str, Any] = {}
    content = inner(inner(inner(value, 9), 1), 2) if tag == "_hparams_/session_start_info" else {}
    for entry in map(message, blobs(inner(content, 3), 1)):
        given = inner(entry, 2)
        kinds: dict[int, Any] = {2: number(given, 2), 3: text(given, 3), 4: bool(number(given, 4))}
        for one in (strict(kinds[field]) for field in kinds if field in given):
            whole = isinstance(one, float) and one.is_integer() and abs(one) < 1 << 53
            found[text(entry, 1)] = int(one) if whole else one
    return found


# -- protobuf


Fields = dict[int, list[int | bytes]]


class Malformed(ValueError):
    """These bytes are no message."""


def message(data: bytes) -> Fields:
    """Numbers as unsigned integers, everything else (fixed width, text, messages inside) as bytes."""
    fields: Fields = {}
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            whole, at = _varint(data, at)
            fields.setdefault(tag >> 3, []).append(whole)
            continue
        if kind not in (1, 2, 5):  # 64 bits, a length and as many bytes, 32 bits
            raise Malformed(f"wire type {kind}")
        length, at = _varint(data, at) if kind == 2 else (8 if kind == 1 else 4, at)
        if at + length > len(data):
            raise Malformed("it ends inside a field")
        fields.setdefault(tag >> 3, []).append(data[at : at + length])
        at += length
    return fields


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : at + 10]):  # the longest of 64 bits
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at + place + 1
    raise Malformed("a number without an end")


def blobs(fields: Fields, field: int) -> list[bytes]:
    return [value for value in fields.get(field, ()) if isinstance(value, bytes)]


def inner(fields: Fields, field: int) -> Fields:
    """The last message of a field; empty when there is none."""
    return message((blobs(fields, field) or [b""])[-1])


def text(fields: Fields, field: int) -> str:
    return (blobs(fields, field) or [b""])[-1].decode("utf-8", "replace")


def number(fields: Fields, field: int) -> float:
    """A float or double by its width; an integer as it was signed."""
    value = (fields.get(field) or [0])[-1]
    if isinstance(value, int):
        return value - (1 << 64) if value >> 63 else value
    return float(struct.unpack("<d" if len(value) == 8 else "<f", value)[0]) if len(value) in (4, 8) else 0.0


_CRC = list(range(256))
for _ in range(8):
    _CRC = [byte >> 1 ^ (0x82F63B78 if byte & 1 else 0) for byte in _CRC]


def masked_crc32c(data: bytes) -> int:
    """Castagnoli's, as TFRecord masks it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
