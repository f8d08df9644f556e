"""From two arms and a metric to bug-suspect, effect, noise or undecided, with the reasons."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from comparison import changes as changing
from comparison import metrics as table
from comparison import selection, settings, stats, suspect
from comparison.model import SPLITS, Arm, Note, Sample, count, short, usable
from rgt.errors import bad_input

VERDICTS = ("bug-suspect", "undecided", "noise", "effect")  # worst first


@dataclass
class Question:
    """One comparison: A against B in one metric."""

    metric: str
    known: table.Metric | None
    direction: str
    stated_by: str
    split: str | None
    a: Sample
    b: Sample
    changes: changing.Changes
    notes: list[Note]
    paired: bool = False
    outcome: stats.Outcome | None = None
    items: stats.Outcome | None = None
    verdict: str = "undecided"
    reasons: list[str] = field(default_factory=list)

    @property
    def leads(self) -> str:
        """Which arm is better by the mean, in words."""
        if self.a.mean == self.b.mean:
            return "no difference"
        ahead = self.a if table.better(self.a.mean, self.b.mean, self.direction) else self.b
        return f"{ahead.arm.name} better"


# -- what is compared


def ask(a: Arm, b: Arm, metric: str, split: str | None, told: str | None, intended: str | None) -> Question:
    splits, notes = _splits((a, b), metric, split)
    sides = [_sample(arm, metric, splits[arm.name]) for arm in (a, b)]
    known = table.known(metric)
    direction, by, more = _direction(metric, known, told, sides)
    notes += [*more, *_lost(sides)]
    changes = changing.compare(a, b, intended)
    one = next(iter(splits.values())) if len(set(splits.values())) == 1 else None
    question = Question(metric, known, direction, by, one, sides[0], sides[1], changes, notes)
    notes += changing.eval_set(*sides)
    _pair(question)
    notes += suspect.suspicious(question.a, question.b, metric, known, direction)
    notes += selection.notes(question.a, question.b, metric, direction)
    notes += selection.shape_notes(question.a, question.b, metric, direction)
    _measure(question)
    return question


def _splits(arms: tuple[Arm, Arm], metric: str, asked: str | None) -> tuple[dict[str, str | None], list[Note]]:
    """The split each arm is read on: the one asked for, else the first of test, val, train that all runs have."""
    have = {arm.name: _arm_splits(arm, metric) for arm in arms}
    for arm in arms:
        if not have[arm.name]:
            names = sorted({name for trial in arm.trials for name in trial.available})
            raise bad_input(f"no run of arm {arm.name} has {metric!r}; they have {', '.join(names[:30]) or 'nothing'}")
        if asked and asked not in have[arm.name]:
            seen = ", ".join(str(split) for split in have[arm.name])
            raise bad_input(f"no run of arm {arm.name} has {metric!r} on {asked}; they have it on {seen}")
    if asked:
        return dict.fromkeys(have, asked), []
    common = [split for split in (*SPLITS, None) if all(split in found for found in have.values())]
    common += sorted(set.intersection(*({str(s) for s in found if s} for found in have.values())) - set(SPLITS))
    if common:
        return dict.fromkeys(have, common[0]), []
    chosen = {name: next(s for s in (*SPLITS, None, *found) if s in found) for name, found in have.items()}
    said = ", ".join(f"{name} on {split or 'an unnamed split'}" for name, split in chosen.items())
    return chosen, [Note("split", "error", f"the arms have {metric} on different splits: {said}", "bug-suspect",
                         f"the arms are read on different splits ({said})")]  # fmt: skip


def _arm_splits(arm: Arm, metric: str) -> set[str | None]:
    return {reading.split for trial in arm.trials for reading in trial.readings.get(metric, [])}


def _sample(arm: Arm, metric: str, split: str | None) -> Sample:
    found = Sample(arm, [], [])
    for trial in arm.trials:
        fits = [reading for reading in trial.readings.get(metric, []) if reading.split == split]
        # several checkpoints of one run may be reported; which one counts is not ours to pick
        if len({reading.value for reading in fits}) > 1:
            raise bad_input(f"{trial.source} reports {metric} on {split} {len(fits)} times with different values")
        if fits and usable(fits[0].value):
            found.trials.append(trial)
            found.readings.append(fits[0])
    return found


def _lost(sides: list[Sample]) -> Iterator[Note]:
    for sample in sides:
        for trial in sample.arm.trials:
            if trial in sample.trials:
                continue
            values = [r.value for readings in trial.readings.values() for r in readings if not usable(r.value)]
            if values:
                said = f"{sample.arm.name}: a run ended in {values[0]} and is not in the mean"
                message = f"arm {sample.arm.name}: the value is {values[0]}; a diverged run is a result of its arm"
                yield Note("nan", "error", message, "bug-suspect", said, path=trial.source)
            else:
                message = f"arm {sample.arm.name}: this run has no value; leaving failed runs out favours unstable arms"
                yield Note("missing", "warn", message, path=trial.source,
                           disclose=f"{sample.arm.name}: a run without a value was left out")  # fmt: skip
        if not sample.readings:
            raise bad_input(f"no run of arm {sample.arm.name} has a finite value")


def _direction(
    metric: str, known: table.Metric | None, told: str | None, sides: list[Sample]
) -> tuple[str, str, list[Note]]:
    """Which way is better, who says so, and who contradicts."""
    said = {reading.direction for sample in sides for reading in sample.readings if reading.direction}
    if told is None and known is None and len(said) != 1:
        why = "the records contradict each other" if said else "it is not in the table of known metrics"
        message = f"which way {metric!r} is better is not known: {why}; say --higher-is-better or --lower-is-better"
        raise bad_input(message)
    direction = told or (known.direction if known else next(iter(said)))
    by = "as told" if told else "known metric" if known else "results.json"
    notes = []
    if said - {direction}:
        message = f"results.json says {'/'.join(sorted(said))} is better for {metric}; taken is {direction} ({by})"
        notes.append(Note("direction", "error", message, "bug-suspect", f"the recorded direction of {metric} is wrong"))
    if known and told and known.direction != told:
        message = f"{metric} is a metric where {known.direction} is better, told was {told}; taken is {told}"
        notes.append(
            Note("direction", "error", message, "bug-suspect", f"{metric} was read as {told} against its meaning")
        )
    return direction, by, notes


# -- pairs


def _keys(sample: Sample, varying: list[str]) -> list[str | None]:
    """The seed, and where both arms hold the same mix of something (folds, datasets), that too."""
    return [
        None if t.seed is None else " ".join([t.seed, *(settings.show((t.config or {}).get(key)) for key in varying)])
        for t in sample.trials
    ]


def _varying(a: Arm, b: Arm) -> list[str]:
    values: dict[str, list[set[str]]] = {}
    for side, arm in enumerate((a, b)):
        for trial in arm.trials:
            for key, value in (trial.config or {}).items():
                if settings.kind(key) not in ("seed", "harmless"):
                    values.setdefault(key, [set(), set()])[side].add(settings.show(value))
    return sorted(key for key, (left, right) in values.items() if left == right and len(left) > 1)


def _pair(question: Question) -> None:
    a, b, notes = question.a, question.b, question.notes
    varying = _varying(a.arm, b.arm)
    left, right = _keys(a, varying), _keys(b, varying)
    repeats = [*suspect.repeated_seeds(a, left), *suspect.repeated_seeds(b, right)]
    notes += repeats
    common = {key for key in left if key is not None} & set(right)
    smaller = min(len(left), len(right))
    if len(left) != len(right):
        message = f"arm {a.arm.name} has {count(len(left), 'run')}, arm {b.arm.name} {len(right)}"
        notes.append(Note("seeds", "warn", message, disclose=message))
    if repeats or None in left or None in right or len(common) < 2 or 2 * len(common) < smaller:
        return
    if set(left) != set(right):
        dropped = len(set(left) ^ set(right))
        message = (
            f"only the {len(common)} common seeds are compared; {count(dropped, 'run')} without a partner left out"
        )
        notes.append(Note("seeds", "warn", message, disclose=message))
    order = {key: index for index, key in enumerate(right)}
    question.a = a.taken([at for at, key in enumerate(left) if key in common])
    question.b = b.taken([order[key] for key in left if key in common])
    question.paired = True


# -- the numbers


def _measure(question: Question) -> None:
    a, b = question.a, question.b
    if min(len(a.values), len(b.values)) >= 2:
        question.outcome = stats.compare(a.values, b.values, question.paired)
    scores = [_item_means(sample, question.metric) for sample in (a, b)]
    if scores[0] and scores[1]:
        _measure_items(question, scores)


def _item_means(sample: Sample, metric: str) -> dict[str, float]:
    """Per item, the mean over the runs that have it."""
    total: dict[str, list[float]] = {}
    for trial in sample.trials:
        for item, score in trial.items.get(metric, {}).items():
            total.setdefault(item, []).append(score)
    return {item: sum(scores) / len(scores) for item, scores in total.items() if all(map(usable, scores))}


def _measure_items(question: Question, scores: list[dict[str, float]]) -> None:
    common = sorted(scores[0].keys() & scores[1].keys())
    odd = len(scores[0].keys() ^ scores[1].keys())
    if odd:
        message = f"{count(odd, 'eval item')} in one arm only; compared on the {len(common)} common ones"
        question.notes.append(Note("eval-set", "error", message, "bug-suspect", message))
    if len(common) >= 2:
        question.items = stats.compare([scores[0][i] for i in common], [scores[1][i] for i in common], True)


# -- the verdict


def decide(questions: list[Question], general: list[Note]) -> None:
    """Holm over all comparisons of one call, then what blocks, then what the numbers say."""
    tested = [question for question in questions if question.outcome]
    adjusted = stats.holm([question.outcome.p for question in tested if question.outcome])
    for question, p in zip(tested, adjusted, strict=True):
        if question.outcome:
            question.outcome.holm = p
    for question in questions:
        _decide(question, general, len(questions))


def _decide(question: Question, general: list[Note], comparisons: int) -> None:
    word, why = _numbers(question)
    bugs = [
        note.message for note in (*question.notes, *question.changes.notes, *general) if note.blocks == "bug-suspect"
    ]
    blocked = [note.message for note in (*question.notes, *question.changes.notes) if note.blocks == "undecided"]
    if bugs:
        question.verdict, question.reasons = "bug-suspect", [*bugs, why]
    elif word == "effect" and blocked:
        question.verdict, question.reasons = "undecided", [f"{why}, but it cannot be attributed", *blocked]
    elif word == "effect" and question.changes.recorded and not question.changes.found:
        nothing = "no recorded variable differs between the arms: what made the difference is not in the records"
        question.verdict, question.reasons = "undecided", [why, nothing]
    else:
        question.verdict, question.reasons = word, [why, *(blocked if word == "undecided" else [])]
    if comparisons > 1 and question.outcome:
        question.reasons.append(f"p is adjusted for {comparisons} comparisons in this call (Holm)")
    question.notes.append(_closing(question))


def _numbers(question: Question) -> tuple[str, str]:
    outcome, n = question.outcome, min(len(question.a.values), len(question.b.values))
    if n < stats.FEWEST or outcome is None:
        return _few(question, n)
    word = outcome.decision()
    p = outcome.p if math.isnan(outcome.holm) else outcome.holm
    if math.isnan(p):
        return word, "the runs of an arm do not vary, so there is no noise to compare the difference with"
    if word == "effect":
        alone = "" if outcome.permutation_can else (
            f"; a permutation test cannot go below {outcome.floor:.2g} with {n} runs, so the t test decides alone"
        )  # fmt: skip
        return word, f"the difference is larger than the noise between runs (p = {p:.2g}){alone}"
    least = f"with {n} runs only effects from about {short(outcome.smallest)} on would show"
    if word == "noise":
        return (
            word,
            f"runs of one arm differ as much as the arms do (p = {p:.2g}); {least}, smaller ones are not excluded",
        )
    return word, f"p = {p:.2g} is neither below {stats.CLAIM} nor from {stats.NOISE} on; {least}; more seeds decide"


def _few(question: Question, n: int) -> tuple[str, str]:
    runs = "single run" if n == 1 else f"{n} runs"
    why = f"{runs} per arm: the noise between seeds is unknown, so no difference can be called an effect"
    if question.items is None:
        return "undecided", why
    items = question.items
    found = items.decision()
    p, low, high = items.p, *items.ci
    over = f"over {items.n[0]} paired eval items p = {p:.2g}, 95 % CI [{low:+.4g}, {high:+.4g}]"
    if found == "noise":
        return "noise", f"the difference is within the noise of the eval set alone ({over}), before any noise of seeds"
    return "undecided", f"these checkpoints: {found} ({over}); the method: {why}"


def _closing(question: Question) -> Note:
    """A verdict other than effect is itself something to say beside the number."""
    single = min(len(question.a.values), len(question.b.values)) == 1
    code = "single-run" if question.verdict == "undecided" and single else question.verdict
    severity = {"bug-suspect": "error", "effect": "info"}.get(question.verdict, "warn")
    return Note(code, severity, question.reasons[0])
