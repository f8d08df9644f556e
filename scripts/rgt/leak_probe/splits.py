"""A split on disk, read in pieces: lines, rows, arrays, or a folder of files. Nothing is held but the piece.

Example:
    source = open_source("train", Path("train.csv"))
    for chunk in source.chunks(): ...          chunk.columns["text"], chunk.places[0] -> 2 (its line)
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from rgt.errors import bad_input, from_os_error, lacking
from rgt.leak_probe import normal
from rgt.leak_probe.near_duplicates import FLAT, SIDE
from rgt.leak_probe.normal import SURE, Array
from rgt.run.seal import digest_of

import numpy as np

ROWS = 20_000  # of a piece
CHARACTERS = 16 << 20  # of a piece; whichever comes first
LINE = 64 << 20  # a longer line is no example
FILES = 256  # of a piece
SHARDS = {".csv", ".tsv", ".jsonl", ".ndjson"}  # a folder of nothing else is one table in parts
_WHOLE = 512 << 20  # a JSON list must be read at once
_CELLS = 4 << 20  # of a piece of an array
_UNPACKED = 1 << 30  # bytes of an npz


@dataclass
class Chunk:
    """Some items: columns of cells (arrays where the split is one), or paths of files."""

    places: Array  # line, row or number of each item
    columns: dict[str, list[Any] | Array] = field(default_factory=dict)
    paths: list[Path] = field(default_factory=list)
    file: int = 0  # which of the source's files the items are in

    @property
    def size(self) -> int:
        return len(self.places)


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
        return sum(part.stat().st_size for part in self.parts if part.is_file())

    def chunks(self) -> Iterator[Chunk]:
        if self.kind == "files":
            for start in range(0, len(self.parts), FILES):
                some = self.parts[start : start + FILES]
                yield Chunk(np.arange(start, start + len(some)), paths=some)
            return
        self.malformed = 0
        for number, part in enumerate(self.parts):
            try:
                for chunk in _array_chunks(part) if self.kind == "array" else _batches(self._rows(part)):
                    chunk.file = number
                    yield chunk
            except OSError as error:
                raise from_os_error(error, f"read {part}") from None
            except (UnicodeError, csv.Error) as error:
                raise bad_input(f"{part} cannot be read as text: {error}") from None

    def _rows(self, part: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        """Place and cells of each row of a text file."""
        suffix = part.suffix.lower()
        if suffix == ".json" and self.kind == "rows":
            if part.stat().st_size > _WHOLE:
                raise bad_input(f"{part} is a JSON list of more than 512 MB; write it as .jsonl, one object per line")
            try:
                data = json.loads(part.read_bytes())
            except (ValueError, RecursionError) as error:
                raise bad_input(f"{part} is not JSON: {str(error)[:100]}") from None
            if not isinstance(data, list):
                raise bad_input(f"{part} holds no list; expected a JSON list of examples, or one per line in a .jsonl")
            yield from ((number, _cells(row)) for number, row in enumerate(data, 1))
            return
        with part.open("rb") as binary:
            utf16 = binary.read(2) in (b"\xff\xfe", b"\xfe\xff")
        encoding = "utf-16" if utf16 else "utf-8-sig"
        with part.open(encoding=encoding, errors="surrogateescape", newline="\n") as file:
            lines = _bounded_lines(file, part)
            if self.kind == "lines":
                yield from ((number, {"text": line.rstrip("\r\n")}) for number, line in enumerate(lines, 1))
            elif suffix in (".jsonl", ".ndjson"):
                for number, line in enumerate(lines, 1):
                    try:
                        if line.strip():
                            yield number, _cells(json.loads(line))
                    except (ValueError, RecursionError):
                        self._note_malformed(f"{part}:{number}")
            else:
                yield from self._table(part, lines)

    def _table(self, part: Path, lines: Iterator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        csv.field_size_limit(LINE)
        first = next(lines, "")
        semicolons = ";" in first and "," not in first
        delimiter = "\t" if part.suffix.lower() == ".tsv" else ";" if semicolons else ","
        reader = csv.reader(itertools.chain([first], lines), delimiter=delimiter)
        header: list[str] = []
        above = 0  # the line that the record before ended on
        for row in reader:
            start, above = above + 1, reader.line_num
            if not row:
                continue
            if semicolons:
                row = [normal.point_for_comma(cell) for cell in row]
            if not header and 2 * sum(normal.to_number(cell) is not None for cell in row) > len(row):
                header = [str(number) for number in range(1, len(row) + 1)]  # numbers: this row is data already
            elif not header:
                header = [name.strip() for name in row]
                continue
            if len(row) != len(header):
                self._note_malformed(f"{part}:{start}")
            yield start, dict(zip(header, row, strict=False))

    def _note_malformed(self, place: str) -> None:
        self.malformed += 1
        self.malformed_at = self.malformed_at or place

    def place(self, index: int, file: int = 0) -> str:
        """`file:line` for a person. `index` is the item's place, `file` the number of its part."""
        return str(self.parts[index]) if self.kind == "files" else f"{self.parts[file]}:{index}"


def open_source(name: str, path: Path) -> Source:
    if not path.exists():
        raise bad_input(f"--{name} {path} does not exist")
    if path.is_dir():
        # linked files count (their content is in the split); linked folders do not: they can lead in a circle
        parts = []
        for folder, below, names in os.walk(path):
            below[:] = [each for each in below if not each.startswith(".")]
            parts += [Path(folder, each) for each in names if not each.startswith(".") and Path(folder, each).is_file()]
        parts.sort()
        if not parts:
            raise bad_input(f"--{name} {path} is an empty folder; expected files, one per example")
        sharded = all(part.suffix.lower() in SHARDS for part in parts)
        return Source(name, path, "rows" if sharded else "files", parts)
    if not path.is_file():
        raise bad_input(f"--{name} {path} is neither a file nor a folder")
    with path.open("rb") as file:
        start = file.read(8192)
    if not start:
        raise bad_input(f"--{name} {path} is empty; expected one example per line")
    suffix = path.suffix.lower()
    known = "array" if suffix in (".npy", ".npz") else "rows" if suffix in SHARDS or suffix == ".json" else "lines"
    if known == "lines" and b"\0" in start and not start.startswith((b"\xff\xfe", b"\xfe\xff")):
        forms = "txt, jsonl, json, csv, tsv, npy, npz or a folder of files"
        raise bad_input(f"--{name} {path} is binary and of no known kind; expected {forms}")
    return Source(name, path, known, [path])


def _bounded_lines(file: IO[str], part: Path) -> Iterator[str]:
    for number in itertools.count(1):
        line = file.readline(LINE)
        if len(line) == LINE:
            raise bad_input(f"{part} line {number} is longer than 64 MB; expected one example per line")
        if not line:
            return
        yield line


def _cells(row: Any) -> dict[str, Any]:
    return row if isinstance(row, dict) else {"value": row}


def _batches(rows: Iterator[tuple[int, dict[str, Any]]]) -> Iterator[Chunk]:
    while True:
        batch: list[tuple[int, dict[str, Any]]] = []
        characters = 0
        for place, row in rows:
            batch.append((place, row))
            characters += sum(len(v) for v in row.values() if isinstance(v, str))
            if len(batch) >= ROWS or characters >= CHARACTERS:
                break
        if not batch:
            return
        names = dict.fromkeys(name for _, row in batch for name in row)
        columns: dict[str, list[Any] | Array] = {name: [row.get(name) for _, row in batch] for name in names}
        yield Chunk(np.array([place for place, _ in batch]), columns)


# -- arrays


def load_arrays(file: Path | IO[bytes], suffix: str) -> dict[str, Array]:
    """A pickle inside is never run."""
    if suffix == ".npz":
        with zipfile.ZipFile(file) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > _UNPACKED:
            raise _BombError(f"it would unpack to {unpacked >> 20} MB")
    mapped = suffix == ".npy" and isinstance(file, Path)
    found = np.load(file, mmap_mode="r" if mapped else None, allow_pickle=False)
    return {"": found} if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}


def _array_chunks(part: Path) -> Iterator[Chunk]:
    """One example per row, from the arrays in a file that have as many rows; its columns are numbered."""
    try:
        arrays = load_arrays(part, part.suffix.lower()).values()
    except Exception as error:  # a damaged header raises anything
        raise bad_input(f"{part} cannot be read as numpy data: {str(error)[:120]}") from None
    for array in arrays:
        if array.dtype.kind not in "biuf":
            raise bad_input(f"{part} holds {array.dtype} values; expected numbers, one example per row")
    rows = max((len(array) for array in arrays if array.ndim), default=0)
    if not rows:
        raise bad_input(f"{part} holds no rows; expected one example per row")
    wide = [array.reshape(rows, -1) for array in arrays if array.ndim and len(array) == rows]
    width = sum(array.shape[1] for array in wide)
    step = max(1, min(ROWS, _CELLS // max(1, width)))
    for start in range(0, rows, step):
        matrix = np.concatenate([np.asarray(a[start : start + step], dtype=np.float64) for a in wide], axis=1)
        columns: dict[str, list[Any] | Array] = {str(number): column for number, column in enumerate(matrix.T)}
        yield Chunk(np.arange(start, start + len(matrix)), columns)


# -- one file of a folder as an item: an image by its pixels, an array by its values, text by its words, anything else
# by its bytes


IMAGES = set(".png .jpg .jpeg .bmp .gif .webp .tif .tiff .ppm .pgm".split())
PIXELS = 100_000_000  # of an image that is decoded
_DECODED = 256 << 20  # bytes of a file that is decoded; a larger one is compared by its bytes
_TEXT = 4 << 20  # bytes of a text that are compared for near-duplicates
_SMALL = 16  # bytes of a file that is written twice by chance


@dataclass
class Content:
    exact: int
    bits: float = SURE
    text: bytes = b""
    picture: Array | None = None
    problem: tuple[str, str] | None = None  # code, sentence


class _BombError(Exception):
    """A small file that would decode to a huge one."""


def read_item(path: Path) -> Content:
    try:
        if path.stat().st_size > _DECODED:
            problem = ("unjudged", "is larger than 256 MB: compared by its bytes only")
            return Content(int(digest_of(path)[:16], 16) or 1, problem=problem)
        data = path.read_bytes()
    except OSError as error:
        return Content(0, problem=("unreadable", f"cannot be read: {error.strerror}"))
    if not data:
        return Content(0, bits=0.0)
    suffix = path.suffix.lower()
    by_bytes = Content(normal.digest(b"bytes" + data), SURE if len(data) > _SMALL else 0.0)
    try:
        if suffix in IMAGES:
            return _image_item(data)
        if suffix in (".npy", ".npz"):
            arrays, total = load_arrays(io.BytesIO(data), suffix), 0
            for name, array in sorted(arrays.items()):
                shape = normal.digest(f"{name} {array.shape}".encode())
                values = array.astype(np.float64) if array.dtype.kind in "biuf" else array
                total = normal.digest(f"{total} {shape}".encode() + np.ascontiguousarray(values).tobytes())
            varied = any(array.size > 4 and (array != array.flat[0]).any() for array in arrays.values())
            return Content(total, SURE if varied else 0.0)
    except ImportError:
        raise lacking("Pillow cannot be imported, and images are compared by pixels; pip install pillow") from None
    except Exception as error:  # decoders raise anything: SyntaxError, struct.error, DecompressionBombError
        code = "bomb" if "Bomb" in type(error).__name__ else "unreadable"
        by_bytes.problem = (code, f"cannot be decoded ({str(error)[:80]}): compared by its bytes only")
        return by_bytes
    words = b"" if b"\0" in data[:8192] else normal.text(data.decode("utf-8", "surrogateescape"))
    return Content(normal.digest(words), 0.0 if normal.is_short(words) else SURE, words[:_TEXT]) if words else by_bytes


def _image_item(data: bytes) -> Content:
    from PIL import Image, ImageOps

    with warnings.catch_warnings(), Image.open(io.BytesIO(data)) as image:
        warnings.simplefilter("ignore")
        if image.width * image.height > PIXELS:
            raise _BombError(f"it has {image.width} x {image.height} pixels")
        turned = ImageOps.exif_transpose(image)
        pixels = turned if turned.mode in ("L", "RGB", "RGBA", "I", "I;16", "F") else turned.convert("RGBA")
        if pixels.mode == "RGBA" and np.asarray(pixels)[..., 3].min() == 255:
            pixels = pixels.convert("RGB")
        if pixels.mode == "RGB" and ((values := np.asarray(pixels)) == values[..., :1]).all():
            pixels = pixels.convert("L")
        exact = normal.digest(f"{pixels.mode} {pixels.size}".encode() + pixels.tobytes())
        if pixels.mode in ("I", "I;16", "F"):  # 16 bits or floats, to 8 bits by its own range
            values = np.nan_to_num(np.asarray(pixels, dtype=np.float64))
            low, high = values.min(), values.max()
            grey = Image.fromarray(((values - low) / max(high - low, 1e-9) * 255).astype(np.uint8))
        else:
            grey = pixels.convert("L")
        picture = np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.BOX))
    return Content(exact, SURE if float(picture.std()) >= FLAT else 0.0, picture=picture)
