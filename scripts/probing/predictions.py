"""Saved predictions: read npz, csv or jsonl and ask the questions of collapse.py that their columns allow.

pred | prob | logits            what the model said (logits and prob are rows of one number per class)
target                          the truth
pred_shuffled (or prob_ logits_)         of the same model on inputs exchanged between samples
pred_label_shuffled (or prob_ logits_)   of a model trained on shuffled labels
pred_without_<input>            of the same model with that input exchanged
embedding                       rows of a representation
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from probing import collapse
from probing.results import Result
from rgt.errors import bad_input

_KINDS = ("logits", "prob", "pred")


def read(path: Path) -> dict[str, Any]:
    """Arrays by name; one sentence for what cannot be read."""
    readers = {".npz": _npz, ".csv": _csv, ".jsonl": _jsonl}
    if path.suffix not in readers:
        raise bad_input(f"{path} is none of {', '.join(readers)}")
    if not path.is_file():
        raise bad_input(f"{path} is not a file")
    arrays = readers[path.suffix](path)
    lengths = {name: len(array) for name, array in arrays.items()}
    if not arrays or not max(lengths.values()):
        raise bad_input(f"{path} holds no predictions")
    if len(set(lengths.values())) > 1:
        raise bad_input(f"{path} has columns of different length: {lengths}")
    if not {*_KINDS, "embedding"} & set(arrays):
        raise bad_input(f"{path} has {', '.join(arrays)}; expected one of {', '.join(_KINDS)}, embedding")
    return arrays


def _npz(path: Path) -> dict[str, Any]:
    import numpy

    try:
        file = numpy.load(path, allow_pickle=False)
        arrays = {name: file[name] for name in file.files} if hasattr(file, "files") else {}
    except Exception as error:  # zipfile, zlib and numpy each raise their own for a damaged file
        raise bad_input(f"{path} cannot be read as npz: {str(error)[:200]}") from None
    if not hasattr(file, "files"):
        raise bad_input(f"{path} holds one array without a name; use numpy.savez(pred=...)")
    file.close()
    odd = [name for name, array in arrays.items() if array.dtype.kind not in "fiub" or not array.ndim]
    if odd:
        raise bad_input(f"{path}: {', '.join(odd)} is not an array of numbers")
    return {name: array.astype(float) for name, array in arrays.items()}  # flags and uint8 cannot be subtracted


def _csv(path: Path) -> dict[str, Any]:
    """Columns prob_0, prob_1, ... are the numbers of one row."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # spreadsheets put a mark in front
            rows = list(csv.DictReader(file))
    except (UnicodeDecodeError, csv.Error) as error:
        raise bad_input(f"{path} cannot be read as csv: {error}") from None
    return _columns(path, rows)


def _jsonl(path: Path) -> dict[str, Any]:
    rows = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            row = json.loads(line) if line.strip() else None
        except ValueError as error:
            raise bad_input(f"{path} line {number} is not JSON: {error}") from None
        if row is not None and not isinstance(row, dict):
            raise bad_input(f"{path} line {number} is not a JSON object")
        rows += [row] if row is not None else []
    return _columns(path, rows)


def _columns(path: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    import numpy

    names = list(rows[0]) if rows else []
    merged: dict[str, list[str]] = {}
    for name in names:
        stem, _, index = (name or "").rpartition("_")
        merged.setdefault(stem if stem and index.isdigit() else str(name), []).append(name)
    arrays = {}
    for stem, parts in merged.items():
        try:
            values = [[row[part] for part in parts] if len(parts) > 1 else row[parts[0]] for row in rows]
            arrays[stem] = numpy.array(values, dtype=float)
        except (KeyError, TypeError, ValueError, OverflowError):
            if any(stem == known or stem.startswith(known + "_") for known in (*_KINDS, "target", "embedding")):
                raise bad_input(f"{path}: column {stem} is not a number in every row") from None
    return arrays


def examine(arrays: dict[str, Any]) -> list[Result]:
    kind = next((name for name in _KINDS if name in arrays), None)
    target = arrays.get("target")
    results = []
    if "embedding" in arrays:
        results.append(collapse.constant_output(arrays["embedding"]))
        results[-1].probe = "embedding"
    if kind is None:
        return results
    given = arrays[kind]
    results.append(collapse.constant_output(given, target))
    if kind != "pred":
        classes = target if target is None or _is_column(target) else None
        results.append(collapse.entropy(_probabilities(given) if kind == "logits" else given, classes))
    if target is not None:
        score = _score(given, target)
        if f"{kind}_shuffled" in arrays:
            results.append(collapse.compare_shuffled(given, arrays[f"{kind}_shuffled"], target, score))
        if f"{kind}_label_shuffled" in arrays:
            results.append(collapse.at_chance(arrays[f"{kind}_label_shuffled"], target, score))
        results += [_without(name, given, arrays[name]) for name in arrays if name.startswith(f"{kind}_without_")]
    return results


def _without(name: str, given: Any, other: Any) -> Result:
    import numpy

    result = Result("ablation", evidence=f"largest change {float(numpy.abs(given - other).max()):.3g}")
    if numpy.array_equal(given, other):
        result.add("ignored-input", "warn", "has no influence on any prediction", where=name.rpartition("without_")[2],
                   evidence="with it exchanged, every prediction stays the same to the last digit")  # fmt: skip
    return result


def _is_column(target: Any) -> bool:
    """One label per sample; several make rows of 0 and 1."""
    return bool(target.size == len(target))


def _score(given: Any, target: Any) -> collapse.Score:
    whole = _is_column(target) and bool((target == target.round()).all())
    classes = whole and (given.ndim > 1 or bool((given == given.round()).all()))
    return collapse.accuracy if classes else collapse.negative_error


def _probabilities(logits: Any) -> Any:
    import numpy

    powers = numpy.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)
