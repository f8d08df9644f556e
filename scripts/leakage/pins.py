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

from leakage import normal
from leakage.normal import Array
from leakage.sources import LINE, Source, array_chunks
from rgt import files
from rgt.errors import bad_input, from_os_error
from rgt.report import Finding
from rgt.seal import digest_of

_SHOWN = 5


def hashes(source: Source) -> Array:
    """One 64-bit hash per item, in order."""
    if source.kind == "files":
        found = [int(digest_of(part)[:16], 16) for part in source.parts]
    elif source.kind == "array":
        rows = (row for part in source.parts for chunk in array_chunks(part) for row in chunk.matrix)  # type: ignore[union-attr]
        found = [normal.digest(row.tobytes()) for row in rows]
    else:
        found = [normal.digest(line) for part in source.parts for line in _raw_lines(part)]
    return np.array(found, dtype=np.uint64)


def _raw_lines(part: Path) -> Iterator[bytes]:
    try:
        with part.open("rb") as file:
            while line := file.readline(LINE):
                if len(line) == LINE:
                    raise bad_input(f"{part} has a line longer than 64 MB; expected one example per line")
                yield line.rstrip(b"\r\n")
    except OSError as error:
        raise from_os_error(error, f"read {part}") from None


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
        targets = _elsewhere(then[gone], {other: values for other, values in now.items() if other != name})
        yield from _moved(source, came, origins)
        own = [at for at, origin in zip(came, origins, strict=True) if not origin]
        lost = [at for at, target in zip(gone, targets, strict=True) if not target]
        yield from _changes(entry, source, own, lost)


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


def _moved(source: Source, came: list[int], origins: list[str]) -> Iterator[Finding]:
    by_origin: dict[str, list[int]] = {}
    for at, origin in zip(came, origins, strict=True):
        if origin:
            by_origin.setdefault(origin, []).append(at)
    for origin, items in by_origin.items():
        places = "; ".join(_place(source, at) for at in items[:_SHOWN])
        message = f"{len(items)} items of {source.name} were in {origin} when the splits were pinned"
        fix = "numbers from before and after the pin are not comparable"
        yield Finding("moved", "error", message, path=str(source.path), evidence=places, fix=fix)


def _changes(entry: dict[str, Any], source: Source, came: list[int], gone: list[int]) -> Iterator[Finding]:
    """The same place or file name with other content is a change; the rest was added or removed."""
    names = entry.get("files")
    now_names = [part.relative_to(source.path).as_posix() for part in source.parts] if names is not None else None
    then_key = {(names[at] if names else at): at for at in gone}
    now_key = {at: now_names[at] if now_names else at for at in came}
    changed = [at for at, key in now_key.items() if key in then_key]
    added = [at for at, key in now_key.items() if key not in then_key]
    taken = {now_key[at] for at in changed}
    removed = [at for key, at in then_key.items() if key not in taken]
    path = str(source.path)
    for code, items, word in (("digest", changed, "have other content than"), ("extra", added, "were not there")):
        if items:
            places = "; ".join(_place(source, at) for at in items[:_SHOWN])
            message = f"{len(items)} items of {source.name} {word} when the splits were pinned"
            yield Finding(code, "error", message, path=path, evidence=places)
    if removed:
        where = "; ".join(names[at] if names else f"item {at + 1}" for at in removed[:_SHOWN])
        message = f"{len(removed)} pinned items of {source.name} are gone"
        yield Finding("missing", "error", message, path=path, evidence=where)


def _place(source: Source, at: int) -> str:
    return str(source.parts[at]) if source.kind == "files" else f"{source.path} item {at + 1}"
