"""Collapse and hidden failures, on any callable: `predict(inputs) -> array` and arrays are all that is needed.

Example:
    constant_output(predictions)                              # one answer for everything?
    shuffled_input(predict, inputs, targets, score)           # does the score need the right input?
    label_shuffle(fit, score, train, held_out)                # does a model of shuffled labels still score?
    ablate(predict, {"image": x, "text": t}, targets, score)  # which input does nothing?
    entropy(probabilities)                                    # how sure, and how many classes are used?

Every answer is a Result; a score is any function score(predictions, targets) -> float where more is better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from probing.results import Result

Score = Callable[[Any, Any], float]
_ROUNDS = 200  # permutations: the smallest p-value they can show is 0.005


def constant_output(predictions: Any, targets: Any = None) -> Result:
    """Is every prediction the same, or one class given almost always; rank of the rows when they are vectors."""
    import numpy

    result = Result("constant")
    rows = _rows(predictions)
    if len(rows) < 2:
        result.unjudged = "fewer than two predictions"
        return result
    spread = rows.std(0)
    scale = float(numpy.abs(rows).mean()) or 1.0
    result.evidence = f"{len(rows)} predictions, spread {float(spread.max()):.3g} around {float(rows.mean()):.3g}"
    result.data = {"rows": len(rows), "spread": float(spread.max()), "effective_rank": effective_rank(rows)}
    if not numpy.isfinite(rows).all():
        result.add("nan", "error", f"{int((~numpy.isfinite(rows)).any(1).sum())} of {len(rows)} predictions hold NaN "
                   "or Inf", fix="a metric over them is not a number of this model")  # fmt: skip
    elif float(spread.max()) <= 1e-6 * scale:
        result.add(
            "collapse",
            "error",
            "every prediction is the same",
            evidence=result.evidence,
            fix="a bias has learnt the mean: does the input reach the output? (shuffled input control)",
        )
    elif rows.shape[1] == 1 and _whole(rows):
        _classes(result, rows[:, 0], targets)
    elif rows.shape[1] > 4 and len(rows) > rows.shape[1] and result.data["effective_rank"] < 1.5:
        result.add("collapse", "error", f"vectors of {rows.shape[1]} numbers vary along one direction only",
                   evidence=f"effective rank {result.data['effective_rank']:.2f}",
                   fix="the representation has collapsed; see representation-collapse")  # fmt: skip
    return result


def _classes(result: Result, given: Any, targets: Any) -> None:
    """Class numbers: more than chance would pile onto one class, against what the targets hold."""
    import numpy

    values, counts = numpy.unique(given, return_counts=True)
    top = float(counts.max() / len(given))
    known = numpy.asarray(targets).reshape(-1) if targets is not None else None
    if known is None or len(known) != len(given):
        return
    true_top = float(numpy.unique(known, return_counts=True)[1].max() / len(known))
    if top > 0.95 and true_top < 0.9 * top:
        result.add("collapse", "error", f"{top:.0%} of the predictions are class {values[counts.argmax()]:g}",
                   evidence=f"the most frequent true class has {true_top:.0%}",
                   fix="class weights, the loss's input, a learning rate that killed the features")  # fmt: skip


def _whole(rows: Any) -> bool:
    return bool((rows == rows.round()).all())


def _rows(predictions: Any) -> Any:
    import numpy

    values = numpy.asarray(predictions, dtype=numpy.float64)
    return values.reshape(len(values), -1) if values.ndim else values.reshape(1, 1)


def effective_rank(rows: Any) -> float:
    """exp of the entropy of the singular values: how many directions the rows really use."""
    import numpy

    if not numpy.isfinite(rows).all() or min(rows.shape) < 2:
        return float(min(rows.shape))
    values = numpy.linalg.svd(rows - rows.mean(0), compute_uv=False)
    total = values.sum()
    if total <= 0:
        return 0.0
    share = values[values > 0] / total
    return float(numpy.exp(-(share * numpy.log(share)).sum()))


def shuffled_input(predict: Callable[[Any], Any], inputs: Any, targets: Any, score: Score, seed: int = 0) -> Result:
    """The score on real inputs against the score on inputs that were exchanged between samples."""
    import numpy

    other = take(inputs, numpy.random.default_rng(seed).permutation(_length(inputs)))
    return compare_shuffled(predict(inputs), predict(other), targets, score, seed)


def compare_shuffled(real: Any, shuffled: Any, targets: Any, score: Score, seed: int = 0) -> Result:
    """The same, on predictions that were already made. Noise is measured by resampling the samples."""
    import numpy

    result = Result("shuffled-input")
    real, shuffled, targets = numpy.asarray(real), numpy.asarray(shuffled), numpy.asarray(targets)
    ours, theirs = float(score(real, targets)), float(score(shuffled, targets))
    rng = numpy.random.default_rng(seed)
    gaps = []
    for _ in range(_ROUNDS):
        chosen = rng.integers(0, len(targets), len(targets))
        gaps.append(score(real[chosen], targets[chosen]) - score(shuffled[chosen], targets[chosen]))
    low, high = (float(v) for v in numpy.quantile(gaps, [0.025, 0.975]))
    result.evidence = f"score {ours:.4g} on real input, {theirs:.4g} on shuffled; difference {low:.3g} to {high:.3g}"
    result.data = {"real": ours, "shuffled": theirs, "interval": [low, high]}
    if numpy.array_equal(real, shuffled):
        result.add(
            "ignored-input",
            "error",
            "real and shuffled input give identical predictions",
            evidence=result.evidence,
            fix="the input does not reach the output: cached, overwritten, masked",
        )
    elif low <= 0:
        result.add("ignored-input", "error", "the score does not need the right input", evidence=result.evidence,
                   fix="the model scores by the prior, or the score is blind; n may be too small")  # fmt: skip
    return result


def label_shuffle(fit: Callable[[Any, Any], Callable[[Any], Any]], score: Score, train: tuple[Any, Any],
                  held_out: tuple[Any, Any], seed: int = 0) -> Result:  # fmt: skip
    """Fit on shuffled labels: on held-out data such a model must be at chance, or something leaks."""
    import numpy

    inputs, labels = train
    predict = fit(inputs, take(labels, numpy.random.default_rng(seed).permutation(_length(labels))))
    return at_chance(predict(held_out[0]), held_out[1], score, seed)


def at_chance(predictions: Any, targets: Any, score: Score, seed: int = 0) -> Result:
    """Is a score within what the same predictions get against permuted targets?"""
    import numpy

    result = Result("label-shuffle")
    predictions, targets = numpy.asarray(predictions), numpy.asarray(targets)
    rng = numpy.random.default_rng(seed)
    ours = float(score(predictions, targets))
    chance = numpy.array([score(predictions, rng.permutation(targets)) for _ in range(_ROUNDS)])
    p = (1 + int((chance >= ours).sum())) / (1 + _ROUNDS)
    result.evidence = f"score {ours:.4g}; chance {chance.mean():.4g} +- {chance.std():.2g}; p = {p:.3g}"
    result.data = {"score": ours, "chance": float(chance.mean()), "p": p}
    if p < 0.01:
        result.add(
            "label-control",
            "error",
            "a model trained on shuffled labels still scores above chance",
            evidence=result.evidence,
            fix="the labels reach it another way: leak_probe on the split, ids, order",
        )
    return result


def ablate(
    predict: Callable[[Any], Any], inputs: Mapping[str, Any], targets: Any, score: Score, seed: int = 0
) -> Result:
    """Each input exchanged between samples in turn: one whose loss costs nothing is not used."""
    import numpy

    result = Result("ablation")
    order = numpy.random.default_rng(seed).permutation(len(numpy.asarray(targets)))
    real = numpy.asarray(predict(inputs))
    for name in inputs:
        other = numpy.asarray(predict({**inputs, name: take(inputs[name], order)}))
        cost = float(score(real, targets) - score(other, targets))
        result.data[name] = cost
        if numpy.array_equal(real, other):
            result.add("ignored-input", "warn", "has no influence on any prediction", where=name,
                       evidence="exchanged between samples, every prediction stays the same to the last digit",
                       fix="is it wired in, or does another input carry the answer alone?")  # fmt: skip
    result.evidence = ", ".join(f"{name} costs {cost:.3g}" for name, cost in result.data.items())
    return result


def entropy(probabilities: Any, targets: Any = None) -> Result:
    """Entropy of each prediction and of their mean, in nats: the second far below that of the targets is collapse."""
    import numpy

    result = Result("entropy")
    rows = _rows(probabilities)
    if rows.shape[1] < 2 or (rows < -1e-6).any() or (numpy.abs(rows.sum(1) - 1) > 1e-2).any():
        result.unjudged = "rows are not probabilities (two or more, not negative, sum 1)"
        return result
    limit = float(numpy.log(rows.shape[1]))
    each = -(rows * numpy.log(numpy.clip(rows, 1e-12, 1))).sum(1)
    mean = rows.mean(0)
    of_mean = float(-(mean * numpy.log(numpy.clip(mean, 1e-12, 1))).sum())
    result.data = {"mean_entropy": float(each.mean()), "entropy_of_mean": of_mean, "limit": limit}
    result.evidence = f"each {each.mean():.3g}, of their mean {of_mean:.3g}, limit {limit:.3g} nats"
    known = _class_entropy(targets) if targets is not None else limit
    if of_mean < 0.1 * known:
        result.add("collapse", "error", "all predictions put their weight on the same class",
                   evidence=f"{result.evidence}; of the {'targets' if targets is not None else 'limit'} {known:.3g}",
                   fix="unless the data has one class: class weights, the loss's input, the learning rate")  # fmt: skip
    elif each.mean() > 0.99 * limit and each.std() < 0.01 * limit:
        result.add("collapse", "error", "every prediction is close to uniform: nothing was learnt",
                   evidence=result.evidence)  # fmt: skip
    return result


def _class_entropy(targets: Any) -> float:
    import numpy

    share = numpy.unique(numpy.asarray(targets), return_counts=True)[1] / len(targets)
    return float(-(share * numpy.log(share)).sum())


def take(values: Any, order: Any) -> Any:
    """Rows of an array, tensor or list in a new order; of every field of a dict."""
    if isinstance(values, Mapping):
        return {name: take(part, order) for name, part in values.items()}
    return [values[i] for i in order] if isinstance(values, list) else values[order]


def _length(values: Any) -> int:
    return len(next(iter(values.values()))) if isinstance(values, Mapping) else len(values)


def accuracy(predictions: Any, targets: Any) -> float:
    """The usual score of classes: rows of scores are taken at their maximum."""
    import numpy

    given = numpy.asarray(predictions)
    chosen = given.argmax(1) if given.ndim > 1 and given.shape[1] > 1 else given.reshape(-1)
    return float((chosen == numpy.asarray(targets).reshape(-1)).mean())


def negative_error(predictions: Any, targets: Any) -> float:
    """The usual score of numbers: minus the mean squared error."""
    import numpy

    given = numpy.asarray(predictions, dtype=float).reshape(len(targets), -1)
    return -float(((given - numpy.asarray(targets, dtype=float).reshape(len(targets), -1)) ** 2).mean())
