"""Was the test set used to choose? What the records of runs say about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isfinite, nan
from pathlib import Path
from typing import Any

from rgt import files
from rgt.checkpoint import names
from rgt.metrics import table
from rgt.report import Finding
from rgt.run import record as rundir
from rgt.run.record import Run
from rgt.run.results import Curve, chosen_on_test

MANY = 3  # evaluations on test during one run; once at its end is the rule, twice may be a resume
_CHOOSES = re.compile(
    r"(?i)monitor|early[_-]?stop|metric_for_best|best_metric|checkpoint_metric|select(ion)?_(on|metric|split)"
    r"|save_best|plateau|objective|stop_on|model_selection"
)
_TEST = re.compile(r"(?i)(^|[^a-z])test([^a-z]|$)")


def findings(run: Run) -> Iterator[Finding]:
    record = files.read_json(run.run_json) if run.run_json.is_file() else {}
    for key, value in _leaves(record.get("config") if isinstance(record, dict) else None, ""):
        if _CHOOSES.search(key) and isinstance(value, str) and _TEST.search(value):
            message = f"{key} is {value!r}: training was stopped or a checkpoint chosen by the test set"
            fix = "choose on val; the test number of this run is a selected one"
            yield Finding("selection", "error", message, path=str(run.run_json), where=key, fix=fix)
    bad: list[str] = []
    curves: dict[tuple[str, str], Curve] = {}  # (metric, split): a test/acc in a row of another split is of test too
    for row in files.read_jsonl(run.metrics, bad=bad) if run.metrics.is_file() else []:
        try:
            step = int(row.pop("step"))
            for name, value in row.items():
                if name not in ("time", "split") and not isinstance(value, bool):
                    split, plain = table.split_and_rest(name)
                    curves.setdefault((plain, split or str(row.get("split", ""))), {})[step] = float(value)
        except (KeyError, TypeError, ValueError, OverflowError):
            bad.append(f"a row whose step or value is no number: {str(row)[:80]}")
    if bad:
        message = f"{len(bad)} rows could not be read and were not judged"
        yield Finding("unjudged", "info", message, path=str(run.metrics), evidence=bad[0])
    yield from _chosen(run, curves)
    steps = sorted({step for (_, split), curve in curves.items() if split == "test" for step in curve})
    if len(steps) >= MANY:
        shown = ", ".join(map(str, steps[:5])) + (", ..." if len(steps) > 5 else "")
        message = f"the test set was evaluated at {len(steps)} steps of training: the curve invites to choose by it"
        fix = "log val during training, evaluate test once at the end, and say so when it was otherwise"
        yield Finding("touched", "warn", message, path=str(run.metrics), evidence=f"steps {shown}", fix=fix)


def _leaves(value: Any, key: str, depth: int = 20) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (dict, list)) and depth:
        for name, each in value.items() if isinstance(value, dict) else (("", each) for each in value):
            yield from _leaves(each, f"{key}.{name}".strip("."), depth - 1)
    else:
        yield key, value


def _rows(path: Path, name: str) -> list[dict[str, Any]]:
    """The objects of a list in somebody else's JSON; empty where there is none, or it has another shape."""
    data = files.read_json(path) if path.is_file() else None
    rows = data.get(name) if isinstance(data, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _chosen(run: Run, curves: dict[tuple[str, str], Curve]) -> Iterator[Finding]:
    """Reported test values that only the test curve explains."""
    step_of = {str(each.get("path")): each.get("step") for each in _rows(run.checkpoints_index, "checkpoints")}
    for metric in _rows(run.results, "metrics"):
        if metric.get("split") != "test" or metric.get("direction") not in ("up", "down"):
            continue
        test, val = (
            {step: value for step, value in curves.get((str(metric.get("name")), split), {}).items() if isfinite(value)}
            for split in ("test", "val")
        )
        step, checkpoint = metric.get("step"), metric.get("checkpoint")
        if step is None and isinstance(checkpoint, str):
            name = Path(checkpoint).name
            digits = re.findall(r"\d+", name)  # a name of somebody's own making: model_40.pt
            step = step_of.get(checkpoint, names.step(name))
            step = int(digits[-1]) if step is None and digits else step
        step = step if isinstance(step, int) else None
        value = metric["value"] if isinstance(metric.get("value"), int | float) else nan
        if chosen_on_test(value, step, metric["direction"], test, val):
            best = max if metric["direction"] == "up" else min
            step = best(test, key=test.__getitem__) if step is None else step
            other = f"best on val is {best(val, key=val.__getitem__)}" if val else "val was not logged"
            at = f"step {step}, the best on test of {len(test)} steps ({other}, the last is {max(test)})"
            message = f"the reported {metric['name']} is of {at}: chosen on test"
            fix = "report the checkpoint that val chose, or the last; disclose that this one was chosen on test"
            yield Finding("selection", "error", message, path=str(run.results), where=str(metric["name"]), fix=fix)


def runs_of(paths: tuple[str, ...]) -> tuple[list[Run], list[str]]:
    """Run directories below the paths (those with a metrics.jsonl or results.json alone count), and paths without."""
    found: list[Run] = []
    without = []
    for path in paths:
        alone = Run(Path(path))
        here = rundir.find(alone.path) or [alone] * (alone.metrics.is_file() or alone.results.is_file())
        found += here
        without += [] if here else [path]
    return found, without
