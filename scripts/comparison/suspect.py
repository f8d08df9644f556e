"""Numbers that more often come from a bug than from a method. Looked at before any statistics."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator

from comparison import settings
from comparison.metrics import Metric, better, is_perfect, possible, words
from comparison.model import Arm, Note, Reading, Sample, Trial, count, short

_DIGITS = 5  # significant digits from which on two equal values are no coincidence
_PERCENT = 1.5  # a share above this is written in percent
_CLASSES = {"num_classes", "n_classes", "num_labels", "nclasses", "classes"}
_BETTER = 0.1  # relative: eval better than train by more than this


def suspicious(a: Sample, b: Sample, name: str, metric: Metric | None, direction: str) -> Iterator[Note]:
    for sample in (a, b):
        yield from _constant(sample)
        if metric:
            yield from _impossible(sample, name, metric)
            yield from _chance(sample, name)
    if metric and metric.percent:
        yield from _scales(a, b, name)
    yield from _identical(a, b)
    yield from _better_than_train(a, b, name, direction)


def _bug(code: str, message: str, fix: str | None = None) -> Note:
    return Note(code, "error", message, "bug-suspect", message, fix)


def _digits(value: float) -> int:
    return len(f"{value:.15g}".lower().partition("e")[0].replace(".", "").replace("-", "").strip("0"))


def _constant(sample: Sample) -> Iterator[Note]:
    """Two coarse values may agree by chance (0.91 and 0.91); three, or two with many digits, do not."""
    values, seeds = sample.values, {trial.seed for trial in sample.trials}
    if len(values) < 2 or len(set(values)) > 1 or len(seeds - {None}) == 1:
        return
    if len(values) >= 3 or _digits(values[0]) >= _DIGITS:
        message = (
            f"arm {sample.arm.name} has exactly {short(values[0])} in all {len(values)} runs: the seed has no effect, "
            "one checkpoint was evaluated for all, the output is degenerate, or the values were rounded"
        )
        yield _bug("constant", message)


def _impossible(sample: Sample, name: str, metric: Metric) -> Iterator[Note]:
    for trial, reading in zip(sample.trials, sample.readings, strict=True):
        if not possible(metric, reading.value):
            note = _bug("range", f"{name} = {short(reading.value)} is not possible")
            note.path = trial.source
            yield note
        elif is_perfect(metric, reading.value):
            fix = "look for the label in the input, an overlap of train and test, or an empty eval set"
            note = _bug("too-good", f"{name} is exactly {short(reading.value)}: perfect", fix)
            note.path = trial.source
            yield note


def _scales(a: Sample, b: Sample, name: str) -> Iterator[Note]:
    values = a.values + b.values
    above = sum(value > _PERCENT for value in values)
    if 0 < above < len(values) and any(value <= 1 for value in values):
        yield _bug("range", f"{name} is written as a fraction in some runs and in percent in others")


def _chance(sample: Sample, name: str) -> Iterator[Note]:
    for trial, reading in zip(sample.trials, sample.readings, strict=True):
        why = _chance_level(name, reading, trial)
        if why:
            note = _bug("chance", f"{name} = {short(reading.value)} is exactly chance level ({why})")
            note.path = trial.source
            yield note
            return


def _chance_level(name: str, reading: Reading, trial: Trial) -> str | None:
    word = set(words(name))
    if word & {"auc", "auroc"} and math.isclose(reading.value, 0.5, abs_tol=1e-9):
        return "an AUC of a half"
    if word & {"mcc", "kappa", "r2", "pearson", "spearman"} and reading.value == 0.0:
        return "zero"
    classes = next((v for k, v in (trial.config or {}).items() if settings.last(k) in _CLASSES), None)
    if not isinstance(classes, float) or classes < 2:
        return None
    share = reading.value / 100 if reading.value > _PERCENT else reading.value
    if word & {"acc", "accuracy"} and math.isclose(share, 1 / classes, abs_tol=1e-6):
        return f"1 of {classes:g} classes"
    if word & {"loss", "nll"} and math.isclose(reading.value, math.log(classes), abs_tol=1e-4):
        return f"ln {classes:g}"
    return None


def _identical(a: Sample, b: Sample) -> Iterator[Note]:
    shared = Counter(a.values) & Counter(b.values)
    equal = [value for value in shared if _digits(value) >= _DIGITS]
    if equal and (len(a.values) == 1 or len(set(a.values)) > 1):  # an arm that is constant has its own finding
        all_same = sorted(a.values) == sorted(b.values)
        what = "every value" if all_same else f"{short(equal[0])} (to the last digit)"
        message = f"{what} is in both arms: the change was not applied, or one checkpoint was evaluated as two"
        yield _bug("identical", message)


def _better_than_train(a: Sample, b: Sample, name: str, direction: str) -> Iterator[Note]:
    """Dropout and augmentation do it too, but to both arms alike."""
    shown = [_beats_train(sample, name, direction) for sample in (a, b)]
    for sample, found, other in ((a, shown[0], shown[1]), (b, shown[1], shown[0])):
        if found and other is False:
            message = (
                f"arm {sample.arm.name} is better on {sample.readings[0].split} than on train, the other arm is not"
            )
            yield _bug("too-good", message, "look for eval data in the training set of that arm")


def _beats_train(sample: Sample, name: str, direction: str) -> bool | None:
    known = []
    for trial, reading in zip(sample.trials, sample.readings, strict=True):
        train = trial.curves.get((name, "train"), {})
        if reading.split == "train" or not train:
            continue
        last = train[max(train)]
        margin = abs(reading.value - last) > _BETTER * max(abs(last), 1e-12)
        known.append(better(reading.value, last, direction) and margin)
    return all(known) if known else None


# -- which runs count


def duplicates(arms: list[Arm]) -> list[Note]:
    """One run counts once: by its id, or by being equal in everything that was read. Removes what is counted twice."""
    notes, seen = [], dict[str, tuple[str, str]]()
    for arm in arms:
        kept = []
        for trial in arm.trials:
            mark = trial.run_id or trial.source
            twin = seen.get(mark) or seen.get(_content(trial))
            if twin and twin[0] == arm.name:
                message = f"is in arm {arm.name} twice (also as {twin[1]}); it counts once"
                said = f"{arm.name}: a run given twice was counted once"
                notes.append(Note("duplicate", "warn", message, disclose=said, path=trial.source))
                continue
            if twin:
                message = f"is in both arms, {twin[0]} and {arm.name}: the comparison is partly of a thing with itself"
                notes.append(Note("duplicate", "error", message, "bug-suspect", "the same run is in both arms",
                                  path=trial.source))  # fmt: skip
            seen[mark] = seen[_content(trial)] = (arm.name, trial.source)
            kept.append(trial)
        arm.trials = kept
    return notes


def _content(trial: Trial) -> str:
    """A copied run folder has the same numbers to the last digit; two trainings with one seed rarely do."""
    values = {name: [repr(r.value) for r in readings] for name, readings in sorted(trial.readings.items())}
    precise = any(_digits(r.value) >= _DIGITS for readings in trial.readings.values() for r in readings)
    if not precise or trial.seed is None:
        return f"\0{trial.source}"
    settings_of_it = sorted((k, str(v)) for k, v in (trial.config or {}).items() if settings.kind(k) != "harmless")
    return "\0" + json.dumps([values, trial.seed, settings_of_it])


def repeated_seeds(sample: Sample, keys: list[str | None]) -> Iterator[Note]:
    twice = [key for key, times in Counter(keys).items() if key is not None and times > 1]
    if twice:
        message = (
            f"arm {sample.arm.name} has {count(len(twice), 'seed')} more than once with different values ({twice[0]}): "
            "repeats of one seed are not new evidence, and the better of two is a selection"
        )
        yield Note("seeds", "warn", message, disclose=f"{sample.arm.name}: a seed occurs more than once")
