"""Saved predictions: collapse and hidden failures, as far as the columns of an npz or csv file allow.

pred | prob | logits            what the model said (logits and prob are rows of one number per class)
target                          the truth
pred_shuffled (or prob_ logits_)  of the same model on inputs (or one of them) exchanged between samples
embedding                       rows of a representation
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

from rgt.errors import RgtError, bad_input
from rgt.probes.factory import Result

Score = Callable[[Any, Any], float]  # score(predictions, targets): more is better
_KINDS = ("logits", "prob", "pred")
_ROUNDS = 200  # permutations: the smallest p-value they can show is 0.005


def judge_file(path: Path) -> list[Result]:
    arrays = read_arrays(path)
    kind, target = next((name for name in _KINDS if name in arrays), None), arrays.get("target")
    results = [constant_output(arrays["embedding"], probe="embedding")] if "embedding" in arrays else []
    if kind is None:
        return results
    given = arrays[kind]
    results.append(constant_output(given, target))
    one_label = target is not None and target.size == len(target)  # several labels make rows of 0 and 1
    if kind != "pred":
        powers = numpy.exp(given - given.max(-1, keepdims=True))
        probabilities = powers / powers.sum(-1, keepdims=True) if kind == "logits" else given
        results.append(entropy(probabilities, target if one_label else None))
    if target is None:
        return results
    whole = one_label and bool((target == target.round()).all())
    classes = whole and (given.ndim > 1 or bool((given == given.round()).all()))
    score = accuracy if classes else negative_error
    if f"{kind}_shuffled" in arrays:
        results.append(shuffled_input(given, arrays[f"{kind}_shuffled"], target, score))
    return results


def read_arrays(path: Path) -> dict[str, Any]:
    """Arrays by name; one sentence for what cannot be read."""
    kind = path.suffix.removeprefix(".")
    if kind not in ("npz", "csv"):
        raise bad_input(f"{path} is neither .npz nor .csv")
    if not path.is_file():
        raise bad_input(f"{path} is not a file")
    try:
        if kind == "npz":
            loaded = numpy.load(path, allow_pickle=False)
            if isinstance(loaded, numpy.ndarray):
                raise bad_input(f"{path} holds one array without a name; use numpy.savez(pred=...)")
            with loaded:
                arrays = dict(loaded)
        else:
            with path.open(encoding="utf-8-sig", newline="") as file:  # spreadsheets put a mark in front
                arrays = _columns(path, list(csv.DictReader(file)))
    except RgtError:
        raise
    except Exception as error:  # csv, zipfile, zlib and numpy each raise their own for a damaged file
        raise bad_input(f"{path} cannot be read as {kind}: {str(error)[:200]}") from None
    odd = [name for name, array in arrays.items() if array.dtype.kind not in "fiub" or not array.ndim]
    if odd:
        raise bad_input(f"{path}: {', '.join(odd)} is not an array of numbers")
    lengths = {name: len(array) for name, array in arrays.items()}
    if not any(lengths.values()):
        raise bad_input(f"{path} holds no predictions")
    if len(set(lengths.values())) > 1:
        raise bad_input(f"{path} has columns of different length: {lengths}")
    if not {*_KINDS, "embedding"} & set(arrays):
        raise bad_input(f"{path} has {', '.join(arrays)}; expected one of {', '.join(_KINDS)}, embedding")
    return {name: array.astype(float) for name, array in arrays.items()}  # flags and uint8 cannot be subtracted


def _columns(path: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Columns prob_0, prob_1, ... are the numbers of one row."""
    merged: dict[str, list[str]] = {}
    for name in rows[0] if rows else ():
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


# -- the questions


def constant_output(predictions: Any, targets: Any = None, probe: str = "constant") -> Result:
    """Is every prediction the same, or one class given almost always; rank of the rows when they are vectors."""
    result, rows = Result(probe), predictions.reshape(len(predictions), -1)
    if len(rows) < 2:
        result.unjudged = "fewer than two predictions"
        return result
    spread, rank = float(rows.std(0).max()), effective_rank(rows)
    scale = float(numpy.abs(rows).mean()) or 1.0
    result.evidence = f"{len(rows)} predictions, spread {spread:.3g} around {float(rows.mean()):.3g}"
    result.data = {"rows": len(rows), "spread": spread, "effective_rank": rank}
    broken = int((~numpy.isfinite(rows)).any(1).sum())
    if broken:
        result.add("nan", f"{broken} of {len(rows)} predictions hold NaN or Inf")
        result.fix("a metric over them says nothing about this model")
    elif spread <= 1e-6 * scale:
        result.add("collapse", "every prediction is the same", result.evidence)
        result.fix("a bias has learnt the mean: does the input reach the output? (shuffled input control)")
    elif rows.shape[1] == 1 and bool((rows == rows.round()).all()):
        values, counts = numpy.unique(rows[:, 0], return_counts=True)
        top, known = float(counts.max() / len(rows)), numpy.asarray(targets).reshape(-1)
        if targets is None or len(known) != len(rows):
            return result
        true_top = float(numpy.unique(known, return_counts=True)[1].max() / len(known))
        if top > 0.95 and true_top < 0.9 * top:
            shown = f"the most frequent true class has {true_top:.0%}"
            result.add("collapse", f"{top:.0%} of the predictions are class {values[counts.argmax()]:g}", shown)
            result.fix("class weights, the loss's input, a learning rate that killed the features")
    elif rows.shape[1] > 4 and len(rows) > rows.shape[1] and rank < 1.5:
        message = f"vectors of {rows.shape[1]} numbers vary along one direction only"
        result.add("collapse", message, f"effective rank {rank:.2f}")
        result.fix("the representation has collapsed; see representation-collapse")
    return result


def effective_rank(rows: Any) -> float:
    """exp of the entropy of the singular values: how many directions the rows really use."""
    if not numpy.isfinite(rows).all() or min(rows.shape) < 2:
        return float(min(rows.shape))
    values = numpy.linalg.svd(rows - rows.mean(0), compute_uv=False)
    share = values[values > 0] / (values.sum() or 1.0)
    return float(numpy.exp(_entropy(share))) if len(share) else 0.0


def _entropy(share: Any) -> Any:
    """Of the last axis, in nats."""
    return -(share * numpy.log(numpy.clip(share, 1e-12, 1))).sum(-1)


def entropy(rows: Any, targets: Any = None) -> Result:
    """Entropy of each prediction and of their mean, in nats: the second far below that of the targets is collapse."""
    result, rows = Result("entropy"), rows.reshape(len(rows), -1)
    if rows.shape[1] < 2 or (rows < -1e-6).any() or (numpy.abs(rows.sum(1) - 1) > 1e-2).any():
        result.unjudged = "rows are not probabilities (two or more, not negative, sum 1)"
        return result
    limit, of_mean, each = float(numpy.log(rows.shape[1])), float(_entropy(rows.mean(0))), _entropy(rows)
    result.data = {"mean_entropy": float(each.mean()), "entropy_of_mean": of_mean, "limit": limit}
    result.evidence = f"each {each.mean():.3g}, of their mean {of_mean:.3g}, limit {limit:.3g} nats"
    known, of_what = limit, "limit"
    if targets is not None:
        known, of_what = _entropy(numpy.unique(targets, return_counts=True)[1] / len(targets)), "targets"
    if of_mean < 0.1 * known:
        shown = f"{result.evidence}; of the {of_what} {known:.3g}"
        result.add("collapse", "all predictions put their weight on the same class", shown)
        result.fix("unless the data has one class: class weights, the loss's input, the learning rate")
    elif each.mean() > 0.99 * limit and each.std() < 0.01 * limit:
        result.add("collapse", "every prediction is close to uniform: nothing was learnt", result.evidence)
    return result


def shuffled_input(real: Any, shuffled: Any, targets: Any, score: Score, seed: int = 0) -> Result:
    """The score on real inputs against that on inputs exchanged between samples; noise by resampling the samples."""
    result, rng = Result("shuffled-input"), numpy.random.default_rng(seed)
    ours, theirs = float(score(real, targets)), float(score(shuffled, targets))
    draws = [rng.integers(0, len(targets), len(targets)) for _ in range(_ROUNDS)]
    gaps = [score(real[i], targets[i]) - score(shuffled[i], targets[i]) for i in draws]
    low, high = (float(v) for v in numpy.quantile(gaps, [0.025, 0.975]))
    result.evidence = f"score {ours:.4g} on real input, {theirs:.4g} on shuffled; difference {low:.3g} to {high:.3g}"
    result.data = {"real": ours, "shuffled": theirs, "interval": [low, high]}
    if numpy.array_equal(real, shuffled):
        result.add("ignored-input", "real and shuffled input give identical predictions", result.evidence)
        result.fix("the input does not reach the output: cached, overwritten, masked")
    elif low <= 0:
        result.add("ignored-input", "the score does not need the right input", result.evidence)
        result.fix("the model scores by the prior, or the score is blind; n may be too small")
    return result


def accuracy(predictions: Any, targets: Any) -> float:
    """The usual score of classes: rows of scores are taken at their maximum."""
    chosen = predictions.argmax(1) if predictions.ndim > 1 and predictions.shape[1] > 1 else predictions.reshape(-1)
    return float((chosen == targets.reshape(-1)).mean())


def negative_error(predictions: Any, targets: Any) -> float:
    """The usual score of numbers: minus the mean squared error."""
    count = len(targets)
    return -float(((predictions.reshape(count, -1) - targets.reshape(count, -1)) ** 2).mean())
