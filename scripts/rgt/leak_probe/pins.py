"""Split pins (P4): which items were in which split, as hashes, so that a changed or moved item is found later.

SPLITS.json holds the names, counts and digests; SPLITS.<split>.npy the 64-bit hash of every item in order: its bytes, a
row's line, an array's row. A pin is strict: another id or another number format is a change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np

from rgt import files
from rgt.errors import bad_input, from_os_error
from rgt.leak_probe import normal
from rgt.leak_probe.normal import Array
from rgt.leak_probe.splits import Source, array_rows, bounded_lines
from rgt.report import Finding
from rgt.run.seal import digest_of

_SHOWN = 5


def hashes(source: Source) -> Array:
    """One 64-bit hash per item, in order."""
    found: list[int] = []
    for part in source.parts:
        if source.kind == "files":
            found.append(int(digest_of(part)[:16], 16))
        elif source.kind == "array":
            found += [normal.digest(row.tobytes()) for matrix in array_rows(part) for row in matrix]
        else:
            try:
                with part.open("rb") as file:
                    found += [normal.digest(line.rstrip(b"\r\n")) for line in bounded_lines(file, part)]
            except OSError as error:
                raise from_os_error(error, f"read {part}") from None
    return np.array(found, dtype=np.uint64)


def _digest(values: Array) -> str:
    """Of the set, not of the order: a shuffled split is the same split."""
    return hashlib.sha256(np.sort(values).astype("<u8").tobytes()).hexdigest()


def write(sources: dict[str, Source], out: Path) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, source in sources.items():
        values = hashes(source)
        beside = out.with_name(f"{out.stem}.{name}.npy")
        files.write_with(beside, lambda file, values=values: np.save(file, values))  # type: ignore[misc]
        entry = {"path": str(source.path), "kind": source.kind, "items": len(values), "sha256": _digest(values)}
        made[name] = {**entry, "hashes": beside.name, "hashes_sha256": digest_of(beside)}
        if source.kind == "files":
            made[name]["files"] = [part.relative_to(source.path).as_posix() for part in source.parts]
    record = {"created": datetime.now(timezone.utc).isoformat(timespec="seconds"), "splits": made}
    files.write_json(out, record, "split_pins")
    return record


def read(out: Path) -> dict[str, tuple[dict[str, Any], Array]]:
    """Every pinned split with its hashes; refused when a part of the pin itself was changed."""
    record = files.read_json(out, "split_pins")
    found = {}
    for name, entry in record["splits"].items():
        beside = out.with_name(Path(entry["hashes"]).name)
        if not beside.is_file():
            raise bad_input(f"{beside} is missing: the pin {out} is not complete without it")
        if digest_of(beside) != entry["hashes_sha256"]:
            raise bad_input(f"{beside} is not the file that {out} was written with; take both from version control")
        found[name] = (entry, np.load(beside, allow_pickle=False))
    return found


def check(pinned: dict[str, tuple[dict[str, Any], Array]], sources: dict[str, Source]) -> Iterator[Finding]:
    now = {name: hashes(source) for name, source in sources.items()}
    for name, source in sources.items():
        entry, then = pinned[name]
        if _digest(now[name]) == entry["sha256"]:
            continue
        came, gone = _surplus(now[name], then), _surplus(then, now[name])
        origins = _elsewhere(now[name][came], {other: then for other, (_, then) in pinned.items() if other != name})
        groups: dict[str, list[int]] = {}
        for at, origin in zip(came, origins, strict=True):
            groups.setdefault(origin, []).append(at)
        for origin, items in sorted(groups.items(), reverse=True):
            in_folder = source.kind == "files"
            places = [str(source.parts[at]) if in_folder else f"{source.path} item {at + 1}" for at in items[:_SHOWN]]
            what = f"were in {origin}" if origin else "were not there, or had other content,"
            message = f"{len(items)} items of {name} {what} when the splits were pinned"
            fix = "numbers from before and after the pin are not comparable" if origin else None
            code, evidence = "moved" if origin else "extra", "; ".join(places)
            yield Finding(code, "error", message, path=str(source.path), evidence=evidence, fix=fix)
        if gone:
            message = f"{len(gone)} pinned items of {name} are gone, or have other content now"
            shown = "; ".join(entry["files"][at] if "files" in entry else f"item {at + 1}" for at in gone[:_SHOWN])
            yield Finding("missing", "error", message, path=str(source.path), evidence=shown)


def _surplus(these: Array, those: Array) -> list[int]:
    """Items of `these` that `those` has not, or has fewer times."""
    order = np.argsort(these, kind="stable")
    ordered = these[order]
    rank = np.arange(len(ordered)) - np.searchsorted(ordered, ordered, "left")
    other = np.sort(those)
    have = np.searchsorted(other, ordered, "right") - np.searchsorted(other, ordered, "left")
    return sorted(order[rank >= have].tolist())


def _elsewhere(values: Array, splits: dict[str, Array]) -> list[str]:
    """Of each value, the first of these splits that holds it, or ""."""
    found = np.full(len(values), "", dtype=object)
    for name, hashes in reversed(splits.items()):
        found[np.isin(values, hashes)] = name
    return list(found)
