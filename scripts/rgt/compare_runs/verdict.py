"""From two arms and a metric to bug-suspect, effect, noise or undecided, with its reasons and disclosure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rgt.compare_runs import changes as changing
from rgt.compare_runs import flat_settings, plan, stats, suspect
from rgt.compare_runs.trial import SPLITS, Arm, Note, Sample, bug, short, told, usable
from rgt.errors import bad_input
from rgt.metrics import table
from rgt.report import plural

VERDICTS = ("bug-suspect", "undecided", "noise", "effect")  # worst first


@dataclass
class Question:
    """One comparison: A against B in one metric."""

    metric: str
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
    look: plan.Look | None = None  # of the plan that was given
    last_look: bool = True
    verdict: str = "undecided"
    reasons: list[str] = field(default_factory=list)

    @property
    def leads(self) -> str:
        """Which arm is better by the mean, in words."""
        if self.a.mean == self.b.mean:
            return "no difference"
        ahead = self.a if table.better(self.a.mean, self.b.mean, self.direction or "up") else self.b
        return f"{ahead.arm.name} {'better' if self.direction else 'higher'}"

    @property
    def better(self) -> str:
        return {"up": "higher is better", "down": "lower is better"}.get(self.direction, "which way is better unknown")

    @property
    def fewest(self) -> int:
        return min(len(self.a.values), len(self.b.values))

    @property
    def more_seeds_decide(self) -> bool:
        """Undecided by the numbers alone, with a spread to plan from."""
        undecided = self.verdict == "undecided" and self.outcome and self.outcome.decision() == "undecided"
        return bool(undecided and self.last_look and self.a.mean != self.b.mean) and self.fewest >= stats.FEWEST


# -- what is compared


def samples(arms: list[Arm], metric: str, split: str | None) -> list[Sample]:
    """The values of one metric, on one split of all arms."""
    one = _split(tuple(arms), metric, split)
    return [_sample(arm, metric, one, []) for arm in arms]


def ask(
    a: Arm, b: Arm, metric: str, split: str | None, better: str | None, intended: str | None, pair_by: str | None = None
) -> Question:
    notes: list[Note] = []
    one = _split((a, b), metric, split)
    sides = [_sample(arm, metric, one, notes) for arm in (a, b)]
    known = table.known(metric)
    direction, by = _direction(metric, known, better, sides, notes)
    changes = changing.compare(a, b, intended)
    question = Question(metric, direction, by, one, sides[0], sides[1], changes, notes)
    notes += [*changing.eval_set(*sides), *_recorded_as(sides, metric, one)]
    _pair(question, pair_by)
    notes += suspect.suspicious(question.a, question.b, metric, known)
    notes += suspect.selection_notes(question.a, question.b, metric, direction)
    if question.fewest >= 2:
        question.outcome = stats.compare(question.a.values, question.b.values, question.paired)
    ours, theirs = _item_means(question.a, metric), _item_means(question.b, metric)
    common, odd = sorted(ours.keys() & theirs.keys()), len(ours.keys() ^ theirs.keys())
    if ours and theirs and odd:
        message = f"{plural(odd, 'eval item')} in one arm only; compared on the {len(common)} common ones"
        notes.append(bug("eval-set", message))
    if len(common) >= 2:
        question.items = stats.compare([ours[item] for item in common], [theirs[item] for item in common], True)
    return question


def _split(arms: tuple[Arm, ...], metric: str, asked: str | None) -> str | None:
    """The split that is read: the one asked for, else the first of test, val, train that both arms have."""
    have: list[set[str | None]] = []
    for arm in arms:
        have.append({reading.split for trial in arm.trials for reading in trial.readings.get(metric, [])})
        if not have[-1]:
            names = sorted({name for trial in arm.trials for name in trial.available})
            raise bad_input(f"no run of arm {arm.name} has {metric!r}; they have {', '.join(names[:30]) or 'nothing'}")
    common = set.intersection(*have)
    chosen: list[str | None]
    if asked:
        chosen = [split for split in common if split == asked] or [
            split for split in common if split and set(asked.split()) <= set(split.split())
        ]
    else:
        chosen = [split for split in SPLITS if split in common][:1] or [*sorted(filter(None, common))]
    if len(chosen) > 1:
        raise bad_input(f"the arms have {metric!r} of {', '.join(map(str, chosen))}: say which, --split")
    if not chosen:
        said = [f"{arm.name} on {'/'.join(sorted(map(str, found)))}" for arm, found in zip(arms, have, strict=True)]
        what = f"not both on {asked}" if asked else "on different splits"
        raise bad_input(f"the arms have {metric!r} {what}: {', '.join(said)}; the numbers are not of the same thing")
    return chosen[0]


def _recorded_as(sides: list[Sample], metric: str, split: str | None) -> Iterator[Note]:
    """Under which name the value stands, where it is not the one that was asked for."""
    names = [{trial.names.get((metric, split), metric) for trial in side.trials} for side in sides]
    said = [" and ".join(sorted(own)) for own in names]
    if all(names) and {table.unsplit(name) for name in names[0]} != {table.unsplit(name) for name in names[1]}:
        yield told("mixed", f"{metric} is read from {said[0]} in one arm and from {said[1]} in the other")
    elif any((table.rank(metric, name) or 0) >= table.GUESSED for name in names[0]):
        yield Note("disclose", "info", f"{metric} is read from {said[0]}")


def _sample(arm: Arm, metric: str, split: str | None, notes: list[Note]) -> Sample:
    """The runs with a usable value. A diverged run is a result, and a missing one favours unstable arms: notes."""
    sample = Sample(arm, [], [])
    for trial in arm.trials:
        fits = [reading for reading in trial.readings.get(metric, []) if reading.split == split]
        met = [*trial.recorded.values(), *trial.readings.values()]
        unusable = [reading.value for readings in met for reading in readings if not usable(reading.value)]
        # several checkpoints of one run may be reported; which one counts is not ours to pick
        if len({reading.value for reading in fits}) > 1:
            raise bad_input(f"{trial.source} reports {metric} on {split} {len(fits)} times with different values")
        if fits and usable(fits[0].value):
            sample.trials.append(trial)
            sample.readings.append(fits[0])
        elif unusable:
            message = f"arm {arm.name}: the value is {unusable[0]}; a diverged run is a result of its arm"
            said = f"{arm.name}: a run ended in {unusable[0]} and is not in the mean"
            notes.append(bug("nan", message, said, path=trial.source))
        else:
            message = f"arm {arm.name}: this run has no value; leaving failed runs out favours unstable arms"
            notes.append(told("missing", message, f"{arm.name}: a run without a value was left out", trial.source))
    if not sample.readings and not any(note.code == "nan" for note in notes):
        raise bad_input(f"no run of arm {arm.name} has {metric!r} on {split}")
    return sample


def _direction(
    metric: str, known: table.Metric | None, asked: str | None, sides: list[Sample], notes: list[Note]
) -> tuple[str, str]:
    """Which way is better, and who says so; notes of who contradicts."""
    said = {reading.direction for sample in sides for reading in sample.readings if reading.direction}
    if asked is None and known is None and len(said) != 1:
        why = "the records contradict each other" if said else "it is not in the table of known metrics"
        message = f"which way {metric!r} is better is not known: {why}; say --higher-is-better or --lower-is-better"
        notes.append(told("direction", message, "which way is better is not known"))
        return "", why
    direction = asked or (known.direction if known else next(iter(said)))
    by = "as told" if asked else "known metric" if known else "results.json"
    if said - {direction}:
        message = f"results.json says {'/'.join(sorted(said))} is better for {metric}; taken is {direction} ({by})"
        notes.append(bug("direction", message, f"the recorded direction of {metric} is wrong"))
    if known and asked and known.direction != asked:
        message = f"{metric} is a metric where {known.direction} is better, told was {asked}; taken is {asked}"
        notes.append(bug("direction", message, f"{metric} was read as {asked} against its meaning"))
    return direction, by


def check_plan(question: Question, planned: dict[str, Any]) -> None:
    """Is this what was planned, and which look is it?"""
    if planned["metric"] != question.metric or planned.get("split") not in (None, question.split):
        question.notes.append(told("plan", f"found afterwards: the plan is about {planned['metric']}"))
    elif question.outcome:
        question.look, notes = plan.apply(planned, (question.a, question.b), question.outcome)
        question.last_look = question.look is None or question.look.n == planned["looks"][-1]["n"]
        question.notes += notes


def _pair(question: Question, pair_by: str | None) -> None:
    """Pair the runs by seed and, where both arms hold the same mix of something (folds, datasets), by that too."""
    a, b, notes = question.a, question.b, question.notes
    varying = []
    for key in sorted({key for arm in (a.arm, b.arm) for trial in arm.trials for key in trial.config or {}}):
        one, other = ({changing.setting(key, trial) for trial in arm.trials} for arm in (a.arm, b.arm))
        if one == other and len(one) > 1 and flat_settings.kind(key) not in ("seed", "harmless"):
            varying.append(key)

    def keys(sample: Sample) -> list[str | None]:
        if pair_by:
            return [changing.paired_value(pair_by, trial) for trial in sample.trials]
        of = [" ".join([t.seed or "", *(changing.setting(k, t) for k in varying)]) for t in sample.trials]
        return [
            key if t.seed or len(set(of)) == len(of) > 1 else None for key, t in zip(of, sample.trials, strict=True)
        ]

    left, right = keys(a), keys(b)
    repeats = [*suspect.repeated_seeds(a, left), *suspect.repeated_seeds(b, right)]
    notes += repeats
    common = {key for key in left if key is not None} & set(right)
    if len(left) != len(right):
        notes.append(told("seeds", f"arm {a.arm.name} has {plural(len(left), 'run')}, arm {b.arm.name} {len(right)}"))
    if repeats or None in left or None in right or len(common) < 2 or 2 * len(common) < min(len(left), len(right)):
        return
    if set(left) != set(right):
        dropped = plural(len(set(left) ^ set(right)), "run")
        message = (
            f"only the {len(common)} common {pair_by or 'seed'}s are compared; {dropped} without a partner left out"
        )
        notes.append(told("seeds", message))
    order = {key: index for index, key in enumerate(right)}
    question.a = a.taken([at for at, key in enumerate(left) if key in common])
    question.b = b.taken([order[key] for key in left if key in common])
    question.paired = True


def _item_means(sample: Sample, metric: str) -> dict[str, float]:
    """Per item, the mean over the runs that have it."""
    total: dict[str, list[float]] = {}
    for trial in sample.trials:
        for item, score in trial.items.get(metric, {}).items():
            total.setdefault(item, []).append(score)
    return {item: sum(scores) / len(scores) for item, scores in total.items() if all(map(usable, scores))}


# -- the verdict


def decide(questions: list[Question], general: list[Note]) -> None:
    """Holm over all comparisons of one call, then what blocks, then what the numbers say."""
    outcomes = [question.outcome for question in questions if question.outcome]
    for outcome, p in zip(outcomes, stats.holm([outcome.p for outcome in outcomes]), strict=True):
        outcome.holm = p
    for question in questions:
        own = [*question.notes, *question.changes.notes]
        bugs = [note.message for note in (*own, *general) if note.blocks == "bug-suspect"]
        blocked = [note.message for note in own if note.blocks == "undecided"]
        word, why = _by_the_numbers(question)
        if bugs:
            word, reasons = "bug-suspect", [*bugs, why]
        elif word == "effect" and blocked:
            word, reasons = "undecided", [f"{why}, but it cannot be attributed", *blocked]
        elif word == "effect" and question.changes.recorded and not question.changes.found:
            nothing = "no recorded variable differs between the arms: what made the difference is not in the records"
            word, reasons = "undecided", [why, nothing]
        else:
            reasons = [why, *(blocked if word == "undecided" else [])]
        if len(questions) > 1 and question.outcome:
            reasons.append(f"p is adjusted for {len(questions)} comparisons in this call (Holm)")
        question.verdict, question.reasons = word, reasons
        # a verdict other than effect is itself something to say beside the number
        code = "single-run" if word == "undecided" and question.fewest == 1 else word
        question.notes.append(Note(code, {"bug-suspect": "error", "effect": "info"}.get(word, "warn"), reasons[0]))


def _by_the_numbers(question: Question) -> tuple[str, str]:
    outcome, n = question.outcome, question.fewest
    if n < stats.FEWEST or outcome is None:
        runs = "single run" if n == 1 else f"{n} runs"
        why = f"{runs} per arm: the noise between seeds is unknown, so no difference can be called an effect"
        if question.items is None:
            return "undecided", why
        word, (low, high) = question.items.decision(), question.items.ci
        over = f"over {question.items.n[0]} paired eval items p = {question.items.p:.2g}"
        over += f", 95 % CI [{low:+.4g}, {high:+.4g}]"
        if word == "noise":
            return word, f"the difference is within the noise of the eval set alone ({over}), before any noise of seeds"
        return "undecided", f"these checkpoints: {word} ({over}); the method: {why}"
    word = outcome.decision()
    p = outcome.p if math.isnan(outcome.holm) else outcome.holm
    if math.isnan(p):
        return word, "the runs of an arm do not vary, so there is no noise to compare the difference with"
    if word == "effect":
        why = f"the difference is larger than the noise between runs (p = {p:.2g})"
        alone = f"; a permutation test cannot go below {outcome.floor:.2g} with {n} runs, so the t test decides alone"
        return word, why if outcome.permutation_can else why + alone
    if question.look and not question.last_look:
        why = f"p = {p:.2g} is not below {outcome.bar:.2g}, the bar of this look"
        return "undecided", f"{why}; go on to the next one, or stop without a claim"
    least = f"with {n} runs only effects from about {short(outcome.smallest)} on would show"
    if word == "noise":
        why = f"runs of one arm differ as much as the arms do (p = {p:.2g})"
        return word, f"{why}; {least}, smaller ones are not excluded"
    between = f"p = {p:.2g}: below {outcome.bar:.2g} would be an effect, {stats.NOISE} and more noise"
    if p >= stats.NOISE:
        between = f"p = {p:.2g}, yet the arms are {outcome.apart:.1f} of the runs' spread apart"
    return word, f"{between}; {least}; more seeds decide"


# -- what is said beside the number


def disclosure(question: Question, general: list[Note]) -> str:
    a, b, outcome, changes = question.a, question.b, question.outcome, question.changes
    head = f"{question.metric} ({question.split or 'split not recorded'}, {question.better}): "
    arms = []
    for sample in (a, b):
        spread = "(" if len(sample.values) == 1 else f"± {short(sample.sd)} (sd, "
        arms.append(f"{sample.arm.title} {short(sample.mean)} {spread}n={len(sample.values)})")
    parts = [" vs ".join(arms)]
    if outcome:
        low, high = outcome.ci
        interval = "" if math.isnan(low) else f", 95 % CI [{low:+.4g}, {high:+.4g}]"
        parts += [f"difference {outcome.difference:+.4g} ({question.leads}){interval}", str(outcome)]
    elif len(a.values) == len(b.values) == 1:
        difference = a.values[0] - b.values[0]
        parts.append(f"difference {difference:+.4g}; single run per arm, no estimate of seed noise")
    else:
        parts.append("too few runs for a test")
    if question.items:
        low, high = question.items.ci
        over = f"over {question.items.n[0]} paired eval items, these checkpoints only"
        parts.append(f"{over}: 95 % CI [{low:+.4g}, {high:+.4g}], p = {question.items.p:.2g}")
    if changes.variable:
        parts.append(f"varied: {changes.variable}")
    confounds = [str(change) for change in changes.confounds]
    if confounds:
        more = f" and {len(confounds) - 6} more" if len(confounds) > 6 else ""
        parts.append(f"confounded by {'; '.join(confounds[:6])}{more}")
    said = dict.fromkeys(note.disclose for note in (*changes.notes, *question.notes, *general) if note.disclose)
    parts += [text for text in said if text not in confounds]
    return head + ", ".join(parts[:2]) + "; " + "; ".join(parts[2:]) + f". Verdict: {question.verdict}."


def as_dict(question: Question, general: list[Note]) -> dict[str, Any]:
    return {
        "metric": question.metric,
        "split": question.split,
        "direction": question.direction,
        "direction_from": question.stated_by,
        "arms": [question.a.arm.name, question.b.arm.name],
        "verdict": question.verdict,
        "reasons": question.reasons,
        "values": [question.a.values, question.b.values],
        "seeds": [[trial.seed for trial in sample.trials] for sample in (question.a, question.b)],
        "seeds_test": question.outcome and question.outcome.as_dict(),
        "items_test": question.items and question.items.as_dict(),
        "changed": [{"key": c.key, "kind": c.kind, "a": c.a, "b": c.b} for c in question.changes.found],
        "variable": question.changes.variable.key if question.changes.variable else None,
        "confounds": [change.key for change in question.changes.confounds],
        "disclosure": disclosure(question, general),
    }
