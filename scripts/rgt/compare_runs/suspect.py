"""Numbers that more often come from a bug than from a method. Looked at before any statistics."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator

from rgt.compare_runs.flat_settings import last
from rgt.compare_runs.trial import Arm, Note, Sample, bug, short, told
from rgt.metrics.table import Metric, is_perfect, possible, words
from rgt.report import plural
from rgt.run.results import fitting_rules

_DIGITS = 5  # two equal values with this many significant digits are not a coincidence
_PERCENT = 1.5  # a share above this is written in percent
_CLASSES = {"num_classes", "n_classes", "num_labels", "nclasses", "classes"}


def suspicious(a: Sample, b: Sample, name: str, metric: Metric | None) -> Iterator[Note]:
    for sample in (a, b):
        own, seeds = sample.values, {trial.seed for trial in sample.trials} - {None}
        # two coarse values may agree by chance (0.91 and 0.91); three, or two with many digits, do not
        enough = len(own) >= 3 or (len(own) == 2 and _digits(own[0]) >= _DIGITS)
        if enough and len(set(own)) == 1 and len(seeds) != 1:
            yield bug(
                "constant",
                f"arm {sample.arm.name} has exactly {short(own[0])} in all {len(own)} runs: the seed has no effect, "
                "one checkpoint was evaluated for all, the output is degenerate, or the values were rounded",
            )
        if metric:
            yield from _impossible(sample, name, metric)
    values = a.values + b.values or [math.nan]
    above = sum(value > _PERCENT for value in values)
    if metric and metric.share and 0 < above < len(values) and any(value <= 1 for value in values):
        yield bug("range", f"{name} is written as a fraction in some runs and in percent in others")
    elif metric and metric.share and not above and metric.high == 1 and 0.1 < min(values) <= 1 < max(values):
        yield bug("range", f"{name} = {short(max(values))} is not possible beside {short(min(values))}")
    yield from _one_number(a, b, name)
    equal = [value for value in Counter(a.values) & Counter(b.values) if _digits(value) >= _DIGITS]
    every = sorted(a.values) == sorted(b.values)
    several = len(a.values) == 1 or len(set(a.values)) > 1  # an arm that is constant has its own finding
    if several and (equal or (every and len(a.values) >= 3)) and (every or not _by_chance(a.values, b.values)):
        what = "every value" if every else f"{short(equal[0])} (to the last digit)"
        message = f"{what} is in both arms: the change was not applied, or one checkpoint was evaluated as two"
        yield bug("identical", message)


def _by_chance(ours: list[float], theirs: list[float]) -> bool:
    """Are two equal ones no surprise, so many pairs and so few digits where the values lie?"""
    values = ours + theirs
    step = min(10.0 ** -len(f"{value:.15g}".partition(".")[2]) for value in values)
    pairs, room = len(ours) * len(theirs), (max(values) - min(values)) / step
    return len(values) > 2 and pairs > 0.01 * room


def _one_number(a: Sample, b: Sample, name: str) -> Iterator[Note]:
    """Val and test, or train and val, with the same values in every run: one was evaluated and written twice."""
    for sample in (a, b):
        pairs = [
            (
                reading.value,
                [other for split, other in trial.beside(name) if split and reading.split not in (None, split)],
            )
            for trial, reading in zip(sample.trials, sample.readings, strict=True)
        ]
        if len(pairs) >= 2 and all(value in others and _digits(value) >= 3 for value, others in pairs):
            message = f"arm {sample.arm.name} has the same {name} on two splits in every run: one was written for both"
            yield bug("identical", message)


def _digits(value: float) -> int:
    return len(f"{value:.15g}".lower().partition("e")[0].replace(".", "").replace("-", "").strip("0"))


def _impossible(sample: Sample, name: str, metric: Metric) -> Iterator[Note]:
    at_chance, word = False, set(words(name))
    for trial, reading in zip(sample.trials, sample.readings, strict=True):
        value = short(reading.value)
        if not possible(metric, reading.value):
            yield bug("range", f"{name} = {value} is not possible", path=trial.source)
        elif is_perfect(metric, reading.value):
            fix = "look for the label in the input, an overlap of train and test, or an empty eval set"
            yield bug("too-good", f"{name} is exactly {value}: perfect", fix=fix, path=trial.source)
        why = "an AUC of a half" if word & {"auc", "auroc"} and math.isclose(reading.value, 0.5, abs_tol=1e-9) else ""
        classes = next((v for k, v in (trial.config or {}).items() if last(k) in _CLASSES), None)
        if isinstance(classes, float) and classes >= 2 and word & {"acc", "accuracy"}:
            share = reading.value / 100 if reading.value > _PERCENT else reading.value
            why = f"1 of {classes:g} classes" if math.isclose(share, 1 / classes, abs_tol=1e-6) else why
        if why and not at_chance:
            at_chance = True  # one of them is enough
            yield bug("chance", f"{name} = {value} is exactly chance level ({why})", path=trial.source)


# -- which runs count


def duplicates(arms: list[Arm]) -> list[Note]:
    """One run counts once, by its id. Removes what is counted twice."""
    notes, seen = [], dict[str, tuple[str, str]]()
    for arm in arms:
        kept = []
        for trial in arm.trials:
            twin = seen.get(trial.run_id or trial.source)
            if twin and twin[0] == arm.name:
                message = f"is in arm {arm.name} twice (also as {twin[1]}); it counts once"
                said = f"{arm.name}: a run given twice was counted once"
                notes.append(told("duplicate", message, said, trial.source))
                continue
            if twin:
                message = f"is in both arms, {twin[0]} and {arm.name}: the comparison is partly of a thing with itself"
                notes.append(bug("duplicate", message, "the same run is in both arms", path=trial.source))
            seen[trial.run_id or trial.source] = (arm.name, trial.source)
            kept.append(trial)
        arm.trials = kept
    return notes


def repeated_seeds(sample: Sample, keys: list[str | None]) -> Iterator[Note]:
    twice = [key for key, times in Counter(keys).items() if key is not None and times > 1]
    if twice:
        message = (
            f"arm {sample.arm.name} has {plural(len(twice), 'seed')} more than once, with different values "
            f"({twice[0]}): repeats of one seed are not new evidence, and the better of two is a selection"
        )
        yield told("seeds", message, f"{sample.arm.name}: a seed occurs more than once")


# -- by which rule the reported number was taken from the curve


_CHOOSES = re.compile(
    r"(?i)monitor|early[_-]?stop|metric_for_best|best_metric|checkpoint_metric|select(ion)?_(on|metric|split)"
    r"|save_best|plateau|objective|stop_on|model_selection"
)
_TEST = re.compile(r"(?i)(^|[^a-z])test([^a-z]|$)")
_DRIFT = 1e-3


def selection_notes(a: Sample, b: Sample, metric: str, direction: str) -> Iterator[Note]:
    fits = []
    for sample in (a, b):
        rules = []
        for trial, reading in zip(sample.trials, sample.readings, strict=True):
            own, val = (trial.curves.get((metric, split), {}) for split in (reading.split, "val"))
            on_test = reading.split == "test"
            rules.append(fitting_rules(reading.value, reading.step, direction, own, val, on_test))
            if not reading.from_curve and reading.step is not None and reading.step in own:
                logged = own[reading.step]
                if not math.isclose(logged, reading.value, rel_tol=_DRIFT, abs_tol=1e-9):
                    at = f"at step {reading.step}, where its own log says {short(logged)}"
                    message = f"reports {short(reading.value)} {at}"
                    yield bug("drift", message, "a reported value is not the logged one", path=trial.source)
        known = [fit for fit in rules if fit]
        fits.append(set.intersection(*known) if known else None)
        arm = sample.arm.name
        settings = {(key, str(value)) for trial in sample.trials for key, value in (trial.config or {}).items()}
        for key, value in sorted(settings):
            if _CHOOSES.search(key) and _TEST.search(value):
                message = f"arm {arm}: {key} is {value}: training was stopped or a checkpoint chosen by the test set"
                yield Note("selection", "error", message, "undecided", message, "choose on val, report test once")
        if fits[-1] == {"best-test"}:
            message = f"arm {arm} reports the best test value of its curve: the checkpoint was selected on the test set"
            yield Note("selection", "error", message, "undecided", message, "select on val, report test once")
        elif fits[-1] == {"best-val"} and sample.readings[0].split == "val":
            message = f"arm {arm} reports the peak of its val curve, not its end: the maximum of noise is not its mean"
            yield told("peak", message, f"{arm}: best of the val curve")
    if fits[0] is not None and fits[1] is not None and not fits[0] & fits[1]:
        said = [" or ".join(sorted(fit or ())) or "no one rule" for fit in fits]
        message = f"the checkpoint was chosen by different rules: {a.arm.name} {said[0]}, {b.arm.name} {said[1]}"
        yield Note("selection", "error", message, "undecided", message, "report both arms by one rule fixed beforehand")
