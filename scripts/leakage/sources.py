"""A split on disk, read in pieces: lines, rows, arrays, or a folder of files. Nothing is held but the piece.

Example:
    source = open_source("train", Path("train.csv"))
    for chunk in source.chunks(): ...          chunk.columns["text"], chunk.places[0] -> 2 (its line)
"""

from __future__ import annotations

import csv
import json
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from leakage.normal import Array
from rgt.errors import RgtError, bad_input, from_os_error

ROWS = 20_000  # of a piece
CHARACTERS = 16 << 20  # of a piece; whichever comes first
LINE = 64 << 20  # a longer line is no example
FILES = 256  # of a piece
SHARDS = {".csv", ".tsv", ".jsonl", ".ndjson"}  # a folder of nothing else is one table in parts
_WHOLE = 512 << 20  # a JSON list must be read at once
_CELLS = 4 << 20  # of a piece of an array


@dataclass
class Chunk:
    """Some items: columns of cells, or a matrix of numbers, or paths of files."""

    size: int
    places: Array  # line, row or number of each item
    files: list[int]  # which of the source's files each item is in; empty: all in the first
    columns: dict[str, list[Any]] = field(default_factory=dict)
    matrix: Array | None = None
    paths: list[Path] = field(default_factory=list)


@dataclass
class Source:
    name: str  # train | val | test
    path: Path
    kind: str  # lines | rows | array | files
    parts: list[Path]
    malformed: int = 0
    malformed_at: str = ""

    @property
    def bytes(self) -> int:
        return sum(_size(part) for part in self.parts)

    def chunks(self) -> Iterator[Chunk]:
        if self.kind == "files":
            yield from self._file_chunks()
            return
        self.malformed = 0
        for number, part in enumerate(self.parts):
            try:
                for chunk in self._read(part):
                    chunk.files = [number] * chunk.size if len(self.parts) > 1 else []
                    yield chunk
            except OSError as error:
                raise from_os_error(error, f"read {part}") from None
            except (UnicodeError, csv.Error) as error:
                raise bad_input(f"{part} cannot be read as text: {error}") from None

    def _read(self, part: Path) -> Iterator[Chunk]:
        suffix = part.suffix.lower()
        if self.kind == "array":
            yield from array_chunks(part)
        elif self.kind == "lines":
            yield from _batches((number, {"text": line}) for number, line in _lines(part))
        elif suffix == ".json":
            yield from _batches(self._json_list(part))
        elif suffix in (".jsonl", ".ndjson"):
            yield from _batches(self._json_lines(part))
        else:
            yield from _batches(self._table(part))

    def _file_chunks(self) -> Iterator[Chunk]:
        for start in range(0, len(self.parts), FILES):
            some = self.parts[start : start + FILES]
            yield Chunk(len(some), np.arange(start, start + len(some)), [], paths=some)

    def _bad(self, place: str) -> None:
        self.malformed += 1
        self.malformed_at = self.malformed_at or place

    def _json_lines(self, part: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        for number, line in _lines(part):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                self._bad(f"{part}:{number}")
                continue
            yield number, row if isinstance(row, dict) else {"value": row}

    def _json_list(self, part: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        if _size(part) > _WHOLE:
            raise bad_input(f"{part} is a JSON list of more than 512 MB; write it as .jsonl, one object per line")
        try:
            data = json.loads(part.read_bytes())
        except (ValueError, RecursionError) as error:
            raise bad_input(f"{part} is not JSON: {str(error)[:100]}") from None
        if not isinstance(data, list):
            raise bad_input(f"{part} holds no list; expected a JSON list of examples, or one per line in a .jsonl")
        for number, row in enumerate(data, 1):
            yield number, row if isinstance(row, dict) else {"value": row}

    def _table(self, part: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        csv.field_size_limit(LINE)
        with _open(part) as file:
            first = file.readline(LINE)
            file.seek(0)
            reader = csv.reader(_bounded(file, part), delimiter=_delimiter(part, first))
            header: list[str] = []
            for row in reader:
                if not header:
                    header, is_data = _header(row)
                    if not is_data:
                        continue
                if not row:
                    continue
                if len(row) != len(header):
                    self._bad(f"{part}:{reader.line_num}")
                yield reader.line_num, dict(zip(header, row, strict=False))

    def place(self, index: int, file: int = 0) -> str:
        """`file:line` for a person. `index` is the item's place, `file` the number of its part."""
        if self.kind == "files":
            return str(self.parts[index])
        return f"{self.parts[file]}:{index}"


def open_source(name: str, path: Path) -> Source:
    if not path.exists():
        raise bad_input(f"--{name} {path} does not exist")
    if path.is_dir():
        parts = sorted(_files_below(path))
        if not parts:
            raise bad_input(f"--{name} {path} is an empty folder; expected files, one per example")
        sharded = all(part.suffix.lower() in SHARDS for part in parts)
        return Source(name, path, "rows" if sharded else "files", parts)
    if not path.is_file():
        raise bad_input(f"--{name} {path} is neither a file nor a folder")
    if path.stat().st_size == 0:
        raise bad_input(f"--{name} {path} is empty; expected one example per line")
    return Source(name, path, _kind(name, path), [path])


def _kind(name: str, path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix in (".npy", ".npz"):
        return "array"
    if suffix in SHARDS or suffix == ".json":
        return "rows"
    with path.open("rb") as file:
        head = file.read(8192)
    if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        forms = "txt, jsonl, json, csv, tsv, npy, npz or a folder of files"
        raise bad_input(f"--{name} {path} is binary and of no known kind; expected {forms}")
    return "lines"


def _files_below(path: Path) -> Iterator[Path]:
    """Linked files count (their content is in the split); linked folders do not: they can lead in a circle."""
    for folder, below, names in os.walk(path):
        below[:] = [name for name in below if not name.startswith(".")]
        for name in names:
            found = Path(folder, name)
            if not name.startswith(".") and found.is_file():
                yield found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _open(part: Path) -> IO[str]:
    with part.open("rb") as file:
        utf16 = file.read(2) in (b"\xff\xfe", b"\xfe\xff")
    return part.open(encoding="utf-16" if utf16 else "utf-8-sig", errors="surrogateescape", newline="\n")


def _bounded(file: IO[str], part: Path) -> Iterator[str]:
    number = 0
    while line := file.readline(LINE):
        number += 1
        if len(line) == LINE:
            raise bad_input(f"{part} line {number} is longer than 64 MB; expected one example per line")
        yield line


def _lines(part: Path) -> Iterator[tuple[int, str]]:
    with _open(part) as file:
        yield from ((number, line.rstrip("\r\n")) for number, line in enumerate(_bounded(file, part), 1))


def _delimiter(part: Path, first: str) -> str:
    if part.suffix.lower() == ".tsv":
        return "\t"
    return ";" if ";" in first and "," not in first else ","


def _header(row: list[str]) -> tuple[list[str], bool]:
    """The names of the columns, and whether this first row is data: then they are called by their number."""
    from leakage.normal import to_number

    if 2 * sum(to_number(cell) is not None for cell in row) > len(row):
        return [str(number) for number in range(1, len(row) + 1)], True
    seen: dict[str, int] = {}
    names = []
    for cell in row:
        name = cell.strip()
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name}.{seen[name]}")
    return names, False


def _batches(rows: Iterator[tuple[int, dict[str, Any]]]) -> Iterator[Chunk]:
    places: list[int] = []
    batch: list[dict[str, Any]] = []
    characters = 0
    for place, row in rows:
        places.append(place)
        batch.append(row)
        characters += sum(len(v) for v in row.values() if isinstance(v, str))
        if len(batch) >= ROWS or characters >= CHARACTERS:
            yield _chunk(places, batch)
            places, batch, characters = [], [], 0
    if batch:
        yield _chunk(places, batch)


def _chunk(places: list[int], batch: list[dict[str, Any]]) -> Chunk:
    names = dict.fromkeys(name for row in batch for name in row)
    columns = {name: [row.get(name) for row in batch] for name in names}
    return Chunk(len(batch), np.array(places), [], columns=columns)


# -- arrays


def array_chunks(part: Path) -> Iterator[Chunk]:
    arrays = _load_arrays(part)
    rows = max(len(array) for array in arrays)
    wide = [array.reshape(len(array), -1) for array in arrays if len(array) == rows]
    width = sum(array.shape[1] for array in wide)
    step = max(1, min(ROWS, _CELLS // max(1, width)))
    for start in range(0, rows, step):
        matrix = np.concatenate([np.asarray(a[start : start + step], dtype=np.float64) for a in wide], axis=1)
        yield Chunk(len(matrix), np.arange(start, start + len(matrix)), [], matrix=matrix)


def _load_arrays(part: Path) -> list[Array]:
    """The arrays of a file that hold one example per row. A pickle inside is never run."""
    try:
        if part.suffix.lower() == ".npz":
            _refuse_bomb(part)
        found = np.load(part, mmap_mode="r" if part.suffix.lower() == ".npy" else None, allow_pickle=False)
        arrays = [found] if isinstance(found, np.ndarray) else [found[name] for name in found.files]
    except RgtError:
        raise
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, KeyError, SyntaxError, MemoryError) as error:
        raise bad_input(f"{part} cannot be read as numpy data: {str(error)[:120]}") from None
    for array in arrays:
        if array.dtype.kind not in "biuf":
            raise bad_input(f"{part} holds {array.dtype} values; expected numbers, one example per row")
    rows = [array for array in arrays if array.ndim and len(array)]
    if not rows:
        raise bad_input(f"{part} holds no rows; expected one example per row")
    return rows


def _refuse_bomb(part: Path) -> None:
    with zipfile.ZipFile(part) as archive:
        unpacked = sum(member.file_size for member in archive.infolist())
    if unpacked > 1 << 30:
        raise bad_input(f"{part} would unpack to {unpacked >> 20} MB; save such an array as .npy")
