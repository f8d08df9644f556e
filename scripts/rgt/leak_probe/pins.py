"""Split pins (P4): SPLITS.json says by hash which files and items each split holds, so that a change is found later.

A pin is strict: other bytes are a change. The check then says which files have them and which items are new, gone or
from another split. The hash of an item is of its values as they are read, so another order or quoting is told apart
from other items.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import bad_input
from rgt.leak_probe import normal
from rgt.leak_probe.normal import Array
from rgt.leak_probe.splits import Source
from rgt.report import Finding
from rgt.run.seal import digest_of

import numpy as np

_LISTED = 1_000_000  # items of a split whose hashes are kept, 11 bytes each; of a larger one only their digest
_SHOWN = 5
Pins = dict[str, dict[str, Any]]  # by split, as in SPLITS.json


def make(sources: Mapping[str, Source], folder: Path) -> Pins:
    """Paths are relative to the folder of the pin, so that it can be checked from any directory."""
    pins: Pins = {}
    for name, source in sources.items():
        digests = _file_digests(source)
        hashes = _item_hashes(source, digests)
        path = os.path.relpath(source.path, folder)
        pins[name] = {"path": path, "items": len(hashes), "sha256": _digest(hashes), "files": digests}
        if len(hashes) <= _LISTED:
            pins[name]["hashes"] = base64.b64encode(hashes.astype("<u8").tobytes()).decode()
    return pins


def _file_digests(source: Source) -> dict[str, str]:
    """sha256 of every file, by its path below the split."""
    base = source.path if source.path.is_dir() else source.path.parent
    return {part.relative_to(base).as_posix(): digest_of(part) for part in source.parts}


def _item_hashes(source: Source, digests: dict[str, str]) -> Array:
    """64 bits for each item, in order; the items of a folder are its files."""
    if source.kind == "files":
        return np.array([int(digest[:16], 16) for digest in digests.values()], dtype=np.uint64)
    hashes: list[int] = []
    for chunk in source.chunks():
        columns = list(chunk.columns.values())
        if isinstance(columns[0], np.ndarray):  # thousands of columns: not cell by cell
            hashes += [normal.digest(row.tobytes()) for row in np.stack(columns, axis=1)]
            continue
        for cells in zip(*columns, strict=True):
            # a chunk fills the columns that a row lacks with None: which ones depends on the other rows
            row = {name: cell for name, cell in zip(chunk.columns, cells, strict=True) if cell is not None}
            hashes.append(normal.digest(json.dumps(row, sort_keys=True).encode()))
    return np.array(hashes, dtype=np.uint64)


def _digest(hashes: Array) -> str:
    """Of the items in any order: a shuffled split holds the same."""
    return hashlib.sha256(np.sort(hashes).astype("<u8").tobytes()).hexdigest()


def write(pins: Pins, out: Path) -> None:
    created = datetime.now(timezone.utc).isoformat(timespec="seconds")
    files.write_json(out, {"created": created, "splits": pins}, "split_pins")


def read(out: Path) -> Pins:
    pins: Pins = files.read_json(out, "split_pins")["splits"]
    for name, pin in pins.items():
        if "hashes" in pin:
            try:
                pin["hashes"] = np.frombuffer(base64.b64decode(pin["hashes"]), dtype="<u8")
            except ValueError:
                pin["hashes"] = np.empty(0)
            if _digest(pin["hashes"]) != pin["sha256"]:
                raise bad_input(f"{out} was edited: the hashes of {name} are not those of its sha256; restore it")
    return pins


def check(name: str, source: Source, pins: Pins) -> Iterator[Finding]:
    pin, digests = pins[name], _file_digests(source)
    then: dict[str, str] = pin["files"]
    if digests == then:
        return
    unlike = [file for file in digests if digests[file] != then.get(file)]
    changed = [f"{file} {'changed' if file in then else 'is new'}" for file in unlike]
    changed += [f"{file} is gone" for file in then if file not in digests]
    hashes, path = _item_hashes(source, digests), str(source.path)
    if _digest(hashes) == pin["sha256"]:
        message = f"{name} has other bytes than were pinned; its {pin['items']} items, as they are read, are the same"
        yield Finding("digest", "warn", message, path=path, evidence=_first(changed))
        return
    message = f"{name} is not what was pinned: {pin['items']} items then, {len(hashes)} now"
    fix = "numbers from before and after are not comparable; take the pinned files, or pin anew and measure all again"
    yield Finding("digest", "error", message, path=path, evidence=_first(changed), fix=fix)
    if "hashes" not in pin:
        return
    came = ~np.isin(hashes, pin["hashes"])
    differences = [
        ("extra", came, digests, f"items of {name} are new or have other content"),
        ("missing", ~np.isin(pin["hashes"], hashes), then, f"pinned items of {name} are gone or have other content"),
    ]
    for other in (split for split in pins if split != name):
        moved = came & np.isin(hashes, pins[other].get("hashes", []))
        differences.append(("moved", moved, digests, f"items of {name} were in {other} when the splits were pinned"))
    for code, mask, names, words in differences:
        if mask.any():
            labels = list(names) if source.kind == "files" else [f"item {number + 1}" for number in range(len(mask))]
            items = list(itertools.compress(labels, mask))
            yield Finding(code, "error", f"{len(items)} {words}", path=path, evidence=_first(items))


def _first(words: list[str]) -> str:
    hidden = len(words) - _SHOWN
    return "; ".join(words[:_SHOWN]) + (f"; and {hidden} more" if hidden > 0 else "")
