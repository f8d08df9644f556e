"""By which rule the reported number was taken from the curve, and what shape the curve has.

Rules that fit a run: last (the end of training), best-val, best-test. A run often fits several; an arm's rule is what
fits all of its runs, and two arms are comparable when some rule fits both.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from comparison.metrics import says_peak
from comparison.model import Curve, Note, Reading, Sample, Trial, short

_CLOSE = 1e-6  # relative: a value that was rounded to seven digits is still the curve's
_FEWEST = 5  # points of a curve whose shape is judged
_DRIFT = 1e-3


def _same(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=_CLOSE, abs_tol=1e-12)


def _finite(curve: Curve) -> Curve:
    return {step: value for step, value in curve.items() if math.isfinite(value)}


def _curve(trial: Trial, metric: str, split: str | None) -> Curve:
    return _finite(trial.curves.get((metric, split), {}))


def _best_step(curve: Curve, direction: str) -> int:
    pick = max if direction == "up" else min
    return pick(curve, key=lambda step: curve[step])


def rules(trial: Trial, reading: Reading, metric: str, direction: str) -> set[str] | None:
    """The rules that this number fits; None when there is no curve to tell by."""
    own, val = _curve(trial, metric, reading.split), _curve(trial, metric, "val")
    steps = {reading.step} if reading.step is not None else {s for s, v in own.items() if _same(v, reading.value)}
    if not steps or max(len(own), len(val)) < 2:
        return None
    found = {"last"} if max({*own, *val}) in steps else set()
    if len(val) > 1 and any(step in val and _same(val[step], val[_best_step(val, direction)]) for step in steps):
        found.add("best-val")
    if reading.split == "test" and len(own) > 1 and _is_best(own, reading, steps, direction):
        found.add("best-test")
    return found or {"other"}


def _is_best(curve: Curve, reading: Reading, steps: set[int], direction: str) -> bool:
    best = curve[_best_step(curve, direction)]
    return _same(reading.value, best) or any(step in curve and _same(curve[step], best) for step in steps)


def _arm_rule(sample: Sample, metric: str, direction: str) -> set[str] | None:
    each = [rules(t, r, metric, direction) for t, r in zip(sample.trials, sample.readings, strict=True)]
    known = [found for found in each if found]
    return set.intersection(*known) if known else None


def notes(a: Sample, b: Sample, metric: str, direction: str) -> Iterator[Note]:
    fits = [_arm_rule(sample, metric, direction) for sample in (a, b)]
    for sample, fit in zip((a, b), fits, strict=True):
        yield from _chosen(sample, fit, metric)
        yield from _drift(sample, metric)
    if fits[0] is not None and fits[1] is not None and not fits[0] & fits[1]:
        said = [" or ".join(sorted(fit or ())) or "no one rule" for fit in fits]
        message = f"the checkpoint was chosen by different rules: {a.arm.name} {said[0]}, {b.arm.name} {said[1]}"
        yield Note("selection", "error", message, "undecided", message, "report both arms by one rule fixed beforehand")
    if says_peak(metric):
        message = f"{metric} is by its name the best of a curve, not the value of one checkpoint"
        yield Note("peak", "warn", message, disclose=message)


def _chosen(sample: Sample, fit: set[str] | None, metric: str) -> Iterator[Note]:
    arm = sample.arm.name
    if fit == {"best-test"}:
        message = f"arm {arm} reports the best test value of its curve: the checkpoint was selected on the test set"
        yield Note("selection", "error", message, "undecided", message, "select on val, report test once")
    elif fit == {"best-val"} and sample.readings[0].split == "val":
        gain = _optimism(sample, metric)
        message = (
            f"arm {arm} reports the peak of its val curve, not its end{gain}: the maximum of noise is not its mean"
        )
        yield Note("peak", "warn", message, disclose=f"{arm}: best of the val curve{gain}")


def _optimism(sample: Sample, metric: str) -> str:
    ends = []
    for trial, reading in zip(sample.trials, sample.readings, strict=True):
        curve = _curve(trial, metric, reading.split)
        if curve:
            ends.append(reading.value - curve[max(curve)])
    return f" (mean {statistics.fmean(ends):+.4g} against its last point)" if ends else ""


def _drift(sample: Sample, metric: str) -> Iterator[Note]:
    for trial, reading in zip(sample.trials, sample.readings, strict=True):
        curve = trial.curves.get((metric, reading.split), {})
        if reading.from_curve or reading.step is None or reading.step not in curve:
            continue
        logged = curve[reading.step]
        if not math.isclose(logged, reading.value, rel_tol=_DRIFT, abs_tol=1e-9):
            message = f"reports {short(reading.value)} at step {reading.step}, where its own log says {short(logged)}"
            yield Note(
                "drift", "error", message, "bug-suspect", "a reported value is not the logged one", path=trial.source
            )


# -- the shape of the curve


def shape(curve: Curve, direction: str) -> str | None:
    """collapsed | still-improving | flat | settled; None when it is too short to say."""
    values = list(_finite(curve).values())
    if len(values) < _FEWEST:
        return None
    sign = 1.0 if direction == "up" else -1.0
    values = [sign * value for value in values]
    noise = _jitter(values)
    best = max(range(len(values)), key=lambda index: values[index])
    rise, fall = values[best] - values[0], values[best] - values[-1]
    if best < 0.7 * (len(values) - 1) and fall > max(0.3 * rise, 4 * noise) and fall > 0:
        return "collapsed"
    if max(values) - min(values) <= max(4 * noise, 1e-12 * abs(values[0])):
        return "flat"
    fifth = max(2, len(values) // 5)
    gain = statistics.fmean(values[-fifth:]) - statistics.fmean(values[-2 * fifth : -fifth])
    standard_error = noise * math.sqrt(2 / fifth)
    return "still-improving" if gain > max(0.05 * rise, 3 * standard_error) else "settled"


def _jitter(values: list[float]) -> float:
    """The noise of one point, from second differences: a slope is no noise."""
    bends = [abs(a - 2 * b + c) for a, b, c in zip(values, values[1:], values[2:], strict=False)]
    return 1.4826 * statistics.median(bends) / math.sqrt(6)


_SAID = {
    "collapsed": "peaked early and fell back: its last value is not its best, and its best is not stable",
    "still-improving": "was still improving at its end: undertrained, the comparison depends on when it is stopped",
    "flat": "never moved: not trained, or the metric does not see it",
}


def shape_notes(a: Sample, b: Sample, metric: str, direction: str) -> Iterator[Note]:
    shapes = [_arm_shape(sample, metric, direction) for sample in (a, b)]
    for sample, found in zip((a, b), shapes, strict=True):
        if found in _SAID:
            alike = found == "still-improving" and shapes[0] == shapes[1]
            message = f"the curve of arm {sample.arm.name} {_SAID[found]}"
            yield Note(
                "curve", "info" if alike else "warn", message, disclose=None if alike else f"{sample.arm.name} {found}"
            )


def _arm_shape(sample: Sample, metric: str, direction: str) -> str | None:
    found = []
    for trial, reading in zip(sample.trials, sample.readings, strict=True):
        splits = ("val", reading.split)  # val decides; a test curve only when there is no other
        curve = next((c for c in (trial.curves.get((metric, s), {}) for s in splits) if len(c) >= _FEWEST), {})
        found.append(shape(curve, direction))
    known = [each for each in found if each]
    common = max(set(known), key=known.count) if known else None
    return common if common and 2 * known.count(common) >= len(found) else None
