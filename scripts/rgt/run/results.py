"""The rows of results.json, computed from a run's metrics.jsonl or from the output of an evaluation; never typed.

Example:
    question = Question("val_loss", rule="mean-last-3")
    row = measure(run, question)                        {"name": "loss", "split": "val", "value": 2.31, "rule": ...}
    run.write_results(merge(run, [row], replace=False))

A rule is last (no selection), best (by the metric's direction), best-val (at the step where val is best) or
mean-last-K. An evaluation's output has `mean` (of a CSV with one row per example) or `reported` (the one number in it).
A row without a rule, or with the rule `typed`, was not computed by a command that says how.

A number that somebody reported often fits several rules. It counts as chosen on the test set when it is the best of its
test curve and neither the end of training nor the best on val explains it (`fitting_rules`).
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from rgt import files
from rgt.errors import bad_input, from_os_error, refused
from rgt.job import settings
from rgt.metrics import table as names
from rgt.run.record import Run
from rgt.run.seal import digest_of

RULE = re.compile(r"last|best|best-val|mean-last-[1-9]\d{0,5}")
_COUNTS = "n n_samples num_samples num_examples eval_samples test_samples samples".split()  # of examples
_SAME_ROW = ("name", "split", "dataset")
_CLOSE = 1e-6  # relative: a value that was rounded to seven digits is still the curve's

Row = dict[str, Any]
Curve = dict[int, float]  # step -> value


@dataclass(frozen=True)
class Question:
    metric: str  # its name in the file; before it may stand the split: val_loss
    rule: str | None = None
    split: str | None = None
    direction: str | None = None
    n: int | None = None  # examples behind the value
    dataset: str | None = None
    eval_set_sha256: str | None = None

    def __post_init__(self) -> None:
        if self.rule and not RULE.fullmatch(self.rule):
            raise bad_input(f"{self.rule!r} is not a rule: last, best, best-val or mean-last-K, such as mean-last-5")

    @property
    def better(self) -> str:
        known = names.known(self.metric) or names.known(self.metric.rpartition(".")[2])
        if self.direction or known:
            return self.direction or known.direction  # type: ignore[union-attr]
        raise bad_input(f"which way {self.metric} is better is not known; say --direction up or --direction down")

    def split_or(self, found: str | None, where: Path) -> str:
        split = self.split or found or names.split_of(self.metric)
        if split not in names.SPLITS:
            raise bad_input(f"{where} does not say of which split {self.metric} is; say --split train, val or test")
        return split


def measure(run: Run, question: Question, evaluation: Path | None = None, rows: Iterable[Row] | None = None) -> Row:
    """One row of results.json, with the rule, the file it was computed from and that file's sha256.

    `rows`: those of metrics.jsonl, for a caller who has them already.
    """
    source = evaluation or run.metrics
    if evaluation and question.rule:
        raise bad_input(f"--rule {question.rule} chooses from a curve, and {evaluation} has no steps")
    try:
        if evaluation is None:
            row = _from_curves(run, question, files.read_jsonl(source) if rows is None else rows)
        else:
            row = (_from_table if evaluation.suffix.lower() == ".csv" else _from_json)(evaluation, question)
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        problem = error if isinstance(error, OSError) else OSError(0, str(error))
        raise from_os_error(problem, f"read {source}") from None
    if not math.isfinite(row["value"]):
        raise bad_input(f"{source}: {question.metric} is {row['value']}; a result is a number")
    inside = run.path.resolve() in source.resolve().parents
    index = files.read_json(run.checkpoints_index, "checkpoints_index") if run.checkpoints_index.is_file() else {}
    saved = {entry["step"]: entry["path"] for entry in index.get("checkpoints", [])}
    extras = {
        "n": question.n or row.get("n"),
        "dataset": question.dataset,
        "eval_set_sha256": question.eval_set_sha256,
        "checkpoint": saved.get(row.get("step")),  # of the step the value was taken at
        "source": source.resolve().relative_to(run.path.resolve()).as_posix() if inside else str(source),
        "source_sha256": digest_of(source),
    }
    return {**row, "direction": question.better, **{name: value for name, value in extras.items() if value is not None}}


def is_typed(row: Row) -> bool:
    """Nothing says how the value came about: somebody typed it, or a program that keeps no account wrote it."""
    return bool(row.get("rule", "typed") == "typed")


def same_row(row: Row, other: Row) -> bool:
    return all(row.get(name) == other.get(name) for name in _SAME_ROW)


def merge(run: Run, rows: list[Row], replace: bool) -> dict[str, Any]:
    """results.json with these rows. A row that is there already and says something else is kept unless `replace`."""
    run.refuse_if_sealed()
    results: dict[str, Any] = {"run_id": run.id, "metrics": []}
    if run.results.exists():
        results = files.read_json(run.results, "results")
    for row in rows:
        same = [old for old in results["metrics"] if same_row(old, row)]
        differing = [old for old in same if {**old, "command": ""} != {**row, "command": ""}]
        if differing and not replace:
            told = ", ".join(f"{name} {old[name]}" for old in differing for name in ("value", "rule") if name in old)
            what = f"{row['split']} {row['name']}"
            raise refused(f"{run.results} has another {what} already ({told}); --replace puts {row['value']} there")
        results["metrics"] = [old for old in results["metrics"] if old not in same] + [row]
    return results


def _from_curves(run: Run, question: Question, rows: Iterable[Row]) -> Row:
    """By the question's rule from the one curve it means; the later row of a step that was computed twice counts."""
    source = run.metrics
    split, rest = names.split_and_rest(question.metric)
    all_curves: dict[tuple[str, str | None], Curve] = {}
    for row in rows:
        told = names.SPLIT_WORDS.get(str(row.get("split", "")).lower())
        for name in row.keys() & {question.metric, rest} - {"step", "time", "split"}:
            if not isinstance(row[name], bool):
                with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
                    step, value = int(row["step"]), float(row[name])
                    all_curves.setdefault((name, told or names.split_of(name)), {})[step] = value
    curves = {key: curve for key, curve in all_curves.items() if key[0] == question.metric or key[1] == split}
    wanted = {key: curve for key, curve in curves.items() if question.split in (None, key[1]) or key[1] is None}
    # HF's train_loss is another number than the loss of train: the name as it stands comes first
    wanted = {key: curve for key, curve in wanted.items() if key[0] == question.metric} or wanted
    if len(wanted) != 1:
        have = ", ".join(sorted(f"{name} of {of_split or 'no split'}" for name, of_split in curves))
        what = f"{have}: say --metric and --split so that one is meant" if have else f"no {question.metric}"
        raise bad_input(f"{source} has {what}")
    ((name, of_split), curve) = wanted.popitem()
    rule = question.rule or "last"
    step = max(curve)
    if rule.startswith("best"):
        chosen_on = curve if rule == "best" else all_curves.get((names.split_and_rest(name)[1], "val"), {})
        finite = {at: value for at, value in sorted(chosen_on.items()) if math.isfinite(value) and at in curve}
        if not finite:
            what = f"no {name} is a number" if rule == "best" else f"no step has both {name} and the {name} of val"
            raise bad_input(f"{source}: {what}")
        step = (max if question.better == "up" else min)(finite, key=lambda at: finite[at])
    value = curve[step]
    if rule.startswith("mean-last-"):
        count = int(rule.removeprefix("mean-last-"))
        if count > len(curve):
            raise bad_input(f"{source} has {len(curve)} points of {name}, fewer than {rule} needs")
        value = fmean(curve[at] for at in sorted(curve)[-count:])
    found = {"name": name, "value": value, "split": question.split_or(of_split, source)}
    return {**found, "step": step, "rule": rule, "points": len(curve)}


def _from_table(path: Path, question: Question) -> Row:
    """One row per example, or one row."""
    rows = list(csv.DictReader(io.StringIO(files.without_comments(files.read_text(path)), newline="")))
    if not rows or question.metric not in rows[0]:
        have = ", ".join(str(name) for name in (rows[0] if rows else ())) or "no row"
        raise bad_input(f"{path} has no column {question.metric}; it has {have}")
    if "step" in rows[0]:
        raise bad_input(f"{path} has a row per step, and a mean over steps is no result; log them to metrics.jsonl")
    try:
        values = [float(row[question.metric]) for row in rows]
    except (TypeError, ValueError) as error:
        raise bad_input(f"{path}: column {question.metric} has a cell that is not a number: {error}") from None
    found = {"name": question.metric, "value": fmean(values), "split": question.split_or(None, path)}
    return {**found, "rule": "mean", "n": len(values)} if len(values) > 1 else {**found, "rule": "reported"}


def _from_json(path: Path, question: Question) -> Row:
    """An evaluation's own summary: a number by its name, or by its path where a name is there twice (a.b.acc)."""
    given = [(one.key, one.value) for one in settings.flatten(files.read_json(path))]
    numbers = {key: float(value) for key, value in given if key and type(value) in (int, float)}
    asked = question.metric
    fitting = [asked] if asked in numbers else [key for key in numbers if key.endswith(f".{asked}")]
    if len(fitting) != 1:
        have = ", ".join(fitting or sorted(numbers)[:12]) or "no number"
        raise bad_input(f"{path} has {'more than one' if fitting else 'no'} {asked}; it has {have}")
    above, dot, name = fitting[0].rpartition(".")
    n = next((numbers[key] for count in _COUNTS if (key := f"{above}{dot}{count}") in numbers), None)
    found = {"name": name, "value": numbers[fitting[0]], "split": question.split_or(None, path), "rule": "reported"}
    return {**found, "n": int(n)} if n and n >= 1 and n == int(n) else found


# -- the other way round: by which rule was a reported number taken, and was it chosen on the test set?


def fitting_rules(
    value: float, step: int | None, direction: str, own: Curve, val: Curve, on_test: bool
) -> set[str] | None:
    """last, best-val, best-test: those that fit; {"other"} if none does; None when there is no curve to tell by.

    `own` is the curve of the split that was reported, `val` that of the validation split. Without a step, every step
    with the reported value counts.
    """
    own, val = ({at: point for at, point in curve.items() if math.isfinite(point)} for curve in (own, val))
    steps = {at for at, point in own.items() if _same(point, value)}
    if step is not None and (step in steps or not steps):  # a step whose own value is another one names nothing
        steps = {step}
    if not steps or max(len(own), len(val)) < 2:
        return None
    best = max if direction == "up" else min
    ends = {max({*own, *val}), *([max(own)] if len(own) > 1 else [])}  # test may be measured less often than val
    rules = {"last"} if ends & steps else set()
    if len(val) > 1 and any(at in val and _same(val[at], best(val.values())) for at in steps):
        rules.add("best-val")
    candidates = (value, *(own[at] for at in steps if at in own))
    if on_test and len(own) > 1 and any(_same(point, best(own.values())) for point in candidates):
        rules.add("best-test")
    return rules or {"other"}


def chosen_on_test(value: float, step: int | None, direction: str, test: Curve, val: Curve) -> bool:
    return fitting_rules(value, step, direction, test, val, on_test=True) == {"best-test"}


def _same(value: float, other: float) -> bool:
    return math.isclose(value, other, rel_tol=_CLOSE, abs_tol=1e-12)
