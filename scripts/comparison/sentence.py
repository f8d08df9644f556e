"""The disclosure sentence, and a comparison as JSON."""

from __future__ import annotations

import math
from typing import Any

from comparison import judge, stats
from comparison.model import Note, Sample, short


def disclosure(question: judge.Question, general: list[Note]) -> str:
    a, b, outcome = question.a, question.b, question.outcome
    better = "higher" if question.direction == "up" else "lower"
    head = f"{question.metric} ({question.split or 'split not recorded'}, {better} is better): "
    parts = [f"{_arm_words(a)} vs {_arm_words(b)}"]
    if outcome:
        parts.append(f"difference {outcome.difference:+.4g} ({question.leads}){_interval(outcome)}")
        parts.append(_test_words(outcome))
    else:
        parts.append(f"difference {a.values[0] - b.values[0]:+.4g}; single run per arm, no estimate of seed noise"
                     if len(a.values) == len(b.values) == 1 else "too few runs for a test")  # fmt: skip
    if question.items:
        low, high = question.items.ci
        over = f"over {question.items.n[0]} paired eval items, these checkpoints only"
        parts.append(f"{over}: 95 % CI [{low:+.4g}, {high:+.4g}], p = {question.items.p:.2g}")
    if question.changes.variable:
        parts.append(f"varied: {question.changes.variable}")
    if question.changes.confounds:
        keys = [str(change) for change in question.changes.confounds[:6]]
        more = f" and {len(question.changes.confounds) - 6} more" if len(question.changes.confounds) > 6 else ""
        parts.append(f"confounded by {'; '.join(keys)}{more}")
    parts += _said(question, general)
    return head + ", ".join(parts[:2]) + "; " + "; ".join(parts[2:]) + f". Verdict: {question.verdict}."


def _said(question: judge.Question, general: list[Note]) -> list[str]:
    known = {str(change) for change in question.changes.confounds}
    notes = [*question.changes.notes, *question.notes, *general]
    return list(dict.fromkeys(note.disclose for note in notes if note.disclose and note.disclose not in known))


def _arm_words(sample: Sample) -> str:
    count = len(sample.values)
    spread = "(" if count == 1 else f"± {short(sample.sd)} (sd, "
    return f"{sample.arm.name} {short(sample.mean)} {spread}n={count})"


def _interval(outcome: stats.Outcome) -> str:
    low, high = outcome.ci
    return "" if math.isnan(low) else f", 95 % CI [{low:+.4g}, {high:+.4g}]"


def _test_words(outcome: stats.Outcome) -> str:
    if math.isnan(outcome.p):
        return "no test: the runs do not vary"
    words = f"{outcome.test} p = {outcome.p:.2g}"
    if outcome.p_permutation is not None:
        words += f", permutation p = {outcome.p_permutation:.2g}"
        words += "" if outcome.permutation_can else f" (cannot go below {outcome.floor:.2g} at this n)"
    if not math.isnan(outcome.holm) and outcome.holm != outcome.p:
        words += f", Holm-adjusted p = {outcome.holm:.2g}"
    return f"{words}; smallest effect this n could show {short(outcome.smallest)}"


def as_dict(question: judge.Question, general: list[Note]) -> dict[str, Any]:
    return {
        "metric": question.metric, "split": question.split, "direction": question.direction,
        "direction_from": question.stated_by, "arms": [question.a.arm.name, question.b.arm.name],
        "verdict": question.verdict, "reasons": question.reasons,
        "values": [question.a.values, question.b.values],
        "seeds": [[trial.seed for trial in sample.trials] for sample in (question.a, question.b)],
        "seeds_test": _outcome_dict(question.outcome), "items_test": _outcome_dict(question.items),
        "changed": [{"key": c.key, "kind": c.kind, "a": c.a, "b": c.b} for c in question.changes.found],
        "variable": question.changes.variable.key if question.changes.variable else None,
        "confounds": [change.key for change in question.changes.confounds],
        "disclosure": disclosure(question, general),
    }  # fmt: skip


def _outcome_dict(outcome: stats.Outcome | None) -> dict[str, Any] | None:
    if outcome is None:
        return None
    found = {
        "test": outcome.test, "paired": outcome.paired, "n": outcome.n, "means": outcome.means, "sds": outcome.sds,
        "difference": outcome.difference, "ci95": outcome.ci, "p": outcome.p, "p_holm": outcome.holm,
        "p_permutation": outcome.p_permutation, "permutation_floor": outcome.floor, "bootstrap95": outcome.bootstrap,
        "smallest_effect": outcome.smallest, "bar": stats.CLAIM,
    }  # fmt: skip
    return {name: _strict(value) for name, value in found.items()}


def _strict(value: Any) -> Any:
    """Strict JSON has no NaN: where arms do not vary there is no p and no interval."""
    if isinstance(value, tuple):
        return [_strict(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
