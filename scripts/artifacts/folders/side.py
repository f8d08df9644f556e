"""JSON beside the checkpoints: results, metrics, indexes. It parses, and its numbers are numbers."""

from __future__ import annotations

import itertools
import math
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from artifacts.formats import jsontext
from artifacts.model import Broken, Problem
from rgt import files, schema
from rgt.errors import RgtError

_SCHEMAS = {"checkpoints_index.json": "checkpoints_index"}
_DEPTH = 20
_SHOWN = 20  # findings in one file


def read_json(path: Path) -> Any:
    """Raises Broken or OSError."""
    with open(path, "rb", opener=_without_waiting) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Broken("unreadable", "not a regular file")
        if status.st_size > jsontext.MAX_TEXT:
            raise Broken("bounds", f"more than {jsontext.MAX_TEXT} bytes of JSON")
        return jsontext.parse(file.read(jsontext.MAX_TEXT), "the file")


def _without_waiting(path: str, flags: int) -> int:
    """A FIFO is opened at once, and not only when somebody writes to it."""
    return os.open(path, flags | os.O_NONBLOCK)


def check(path: Path) -> Iterator[Problem]:
    if path.suffix == ".jsonl":
        yield from _metrics(path)
        return
    try:
        data = read_json(path)
    except Broken as broken:
        yield broken.problem
        return
    except OSError as error:
        yield Problem("unreadable", "error", f"cannot be read: {error.strerror}")
        return
    name = _SCHEMAS.get(path.name) or ("results" if _is_run(path) else None)
    for sentence in schema.problems(data, name) if name else ():
        yield Problem("malformed", "error", sentence)
    for where in itertools.islice(_not_finite(_final(path, data)), _SHOWN):
        yield Problem("nan", "error", "is NaN or infinite", where=where[:200])


def _final(path: Path, data: Any) -> Any:
    """A Trainer's history may pass through NaN; only where it ends counts."""
    if path.name == "trainer_state.json" and isinstance(data, dict) and isinstance(data.get("log_history"), list):
        return data["log_history"][-1:]
    return data


def _is_run(path: Path) -> bool:
    return path.name == "results.json" and (path.parent / "run.json").is_file()


def _not_finite(node: Any, where: str = "", depth: int = _DEPTH) -> Iterator[str]:
    if isinstance(node, float) and not math.isfinite(node):
        yield where
    elif isinstance(node, dict) and depth:
        for key, child in node.items():
            yield from _not_finite(child, f"{where}.{key}".lstrip("."), depth - 1)
    elif isinstance(node, list) and depth:
        for index, child in enumerate(node):
            yield from _not_finite(child, f"{where}[{index}]", depth - 1)


def _metrics(path: Path) -> Iterator[Problem]:
    """A curve may pass through NaN; one that ends there has no result."""
    if path.exists() and not path.is_file():
        yield Problem("unreadable", "error", "not a regular file")
        return
    bad: list[str] = []
    last: dict[str, Any] = {}
    try:
        for row in files.read_jsonl(path, bad=bad):
            last.update({f"{row.get('split', '')}.{key}": value for key, value in row.items()})
    except RgtError as error:
        yield Problem("unreadable", "error", error.message)
        return
    if bad:
        yield Problem("malformed", "error", f"{len(bad)} lines are not JSON objects", evidence=bad[0][:300])
    if not last and not bad:
        yield Problem("empty", "error", "holds no row")
    for name, value in last.items():
        if value in ("NaN", "Infinity", "-Infinity") or (isinstance(value, float) and not math.isfinite(value)):
            yield Problem("nan", "error", f"its last value is {value}", where=name[:200])
