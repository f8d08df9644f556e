"""Saved predictions (npz, csv or jsonl): one answer for everything, chance level, an input that is ignored.

pred | prob | logits   what the model said: a label or number, or one number per class
target                 the truth
pred_shuffled          what it said to inputs exchanged between samples (also prob_shuffled, logits_shuffled)
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import RgtError, bad_input
from rgt.probes.factory import Result

import numpy as np

_KINDS = ("logits", "prob", "pred")
_FEWEST = 20  # samples: with fewer, noise explains any difference of two scores


def judge_file(path: Path) -> list[Result]:
    kind, columns = _read(path)
    said, target, shuffled = columns[kind], columns.get("target"), columns.get(f"{kind}_shuffled")
    collapse, chance, ignored = Result("collapse"), Result("chance"), Result("shuffled")
    if said.dtype.kind == "f" and (broken := int((~np.isfinite(said.reshape(len(said), -1))).any(1).sum())):
        collapse.add("nan", f"{broken} of {len(said)} predictions hold NaN or Inf")
        return [collapse]

    answers = _answers(said, kind, target)
    labels = answers.ndim == 1 and _whole(answers) and (target is None or (target.ndim == 1 and _whole(target)))
    top, share = _most_frequent(answers)
    collapse.evidence = f"{len(said)} predictions; the most frequent answer {str(top)[:50]} has {share:.0%}"
    true_share = _most_frequent(target)[1] if labels and target is not None else 1.0
    spread = 1 - share if said.dtype.kind == "U" else np.ptp(said, axis=0).max() / (np.abs(said).mean() or 1)
    if spread <= 1e-6:
        collapse.add("collapse", "every prediction is the same", collapse.evidence)
        collapse.fix("a bias has learnt the mean: does the input reach the output? save pred_shuffled too")
    elif share > 0.95 and true_share < 0.9 * share:
        shown = f"the most frequent true label has {true_share:.0%}"
        collapse.add("collapse", f"{share:.0%} of the predictions are {str(top)[:50]}", shown)
        collapse.fix("class weights, the loss's input, a learning rate that killed the features")

    def score(values: Any) -> Any:
        """Of each sample, more is better: right or wrong, or minus the squared error."""
        return 1.0 * (values == target) if labels else -((values - target) ** 2).reshape(len(said), -1).mean(1)

    if target is None or len(said) < _FEWEST:
        chance.unjudged = ignored.unjudged = f"needs a column target and {_FEWEST} rows"
    else:
        constant = _most_frequent(target)[0] if labels else target.mean(0)
        if not _is_better(chance, score(answers), "always " + str(constant)[:50], score(constant)):
            chance.add("chance", "no better than one constant answer", chance.evidence, severity="warn")
            chance.fix("nothing was learnt, or this score cannot show it: rare classes, too few samples")
    if shuffled is None:
        ignored.unjudged = f"needs a column {kind}_shuffled"
    elif np.array_equal(said, shuffled):
        ignored.add("ignored-input", "real and shuffled input give identical predictions")
        ignored.fix("the input does not reach the output: cached, overwritten, masked")
    elif not ignored.unjudged:
        blind = score(_answers(shuffled, kind, target))
        if not _is_better(ignored, score(answers), "shuffled input", blind):
            ignored.add("ignored-input", "the score does not need the right input", ignored.evidence)
            ignored.fix("the model answers by the prior, or the score cannot show it: too few samples")
    return [collapse, chance, ignored]


def _is_better(result: Result, ours: Any, other: str, theirs: Any) -> bool:
    """By more than two standard errors of the difference, sample by sample."""
    gain, noise = float((ours - theirs).mean()), 2 * float((ours - theirs).std() / len(ours) ** 0.5)
    result.evidence = f"score {ours.mean():.4g}, of {other} {theirs.mean():.4g}: {gain:+.3g} ± {noise:.2g}"
    return gain > noise


def _most_frequent(values: Any) -> tuple[Any, float]:
    different, counts = np.unique(values, axis=0, return_counts=True)
    return different[counts.argmax()], float(counts.max() / len(values))


def _whole(array: Any) -> bool:
    return array.dtype.kind == "U" or bool((array == array.round()).all())


def _answers(array: Any, kind: str, target: Any) -> Any:
    """One answer a sample: rows of classes at their maximum; logits of several labels as probabilities."""
    if array.ndim == 2 and (target is None or target.ndim == 1):
        if target is not None and not np.isin(target, range(array.shape[1])).all():
            raise bad_input(f"target must be class numbers from 0 to {array.shape[1] - 1}: {kind} has so many columns")
        return array.argmax(1).astype(float)
    if target is not None and array.shape != target.shape:
        raise bad_input(f"{kind} has the shape {array.shape}, target {target.shape}; expected the same")
    return 1 / (1 + np.exp(-array)) if kind == "logits" else array


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    """Which kind of prediction, and the columns that are about it: all numbers, or all text."""
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as loaded:
                columns: dict[str, Any] = dict(loaded)
        elif path.suffix == ".csv":
            with path.open(encoding="utf-8-sig", newline="") as file:  # spreadsheets put a mark in front
                columns = _columns(list(csv.DictReader(file)))
        elif path.suffix == ".jsonl":
            columns = _columns(list(files.read_jsonl(path)))
        else:
            raise bad_input(f"{path} is not .npz, .csv or .jsonl")
    except RgtError:
        raise
    except Exception as error:  # csv, zipfile, zlib and numpy each raise their own for a damaged file
        raise bad_input(f"{path} cannot be read as {path.suffix[1:]}: {str(error)[:200]}") from None
    kind = next((name for name in _KINDS if name in columns), None)
    if kind is None or not len(columns[kind]):
        raise bad_input(f"{path} has {', '.join(columns) or 'no rows'}; expected one of {', '.join(_KINDS)}")
    columns = {name: columns[name] for name in (kind, "target", f"{kind}_shuffled") if name in columns}
    if len(lengths := {len(values) for values in columns.values()}) > 1:
        raise bad_input(f"{path} has columns of different length: {lengths}")
    try:
        arrays = {name: np.array(values, dtype=float) for name, values in columns.items()}
    except (TypeError, ValueError, OverflowError):
        if kind != "pred":
            raise bad_input(f"{path}: {kind} or target is not a number in every row") from None
        return kind, {name: np.array([str(value).strip() for value in values]) for name, values in columns.items()}
    if "target" in arrays and not np.isfinite(arrays["target"]).all():
        raise bad_input(f"{path}: target has no number in some rows; leave these rows out")
    return kind, {name: array.reshape(-1) if array.size == len(array) else array for name, array in arrays.items()}


def _columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """By name; prob_0, prob_1, ... are the numbers of one row."""
    merged: dict[str, list[str]] = {}
    for name in dict.fromkeys(str(name) for row in rows for name in row):
        stem, _, index = name.rpartition("_")
        merged.setdefault(stem if stem and index.isdigit() else name, []).append(name)
    return {
        stem: [row.get(names[0]) if names == [stem] else [row.get(name) for name in names] for row in rows]
        for stem, names in merged.items()
    }
