"""Was the test set used to choose? What the records of runs say about it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt import files, rundir
from rgt.report import Finding
from rgt.rundir import Run

MANY = 3  # evaluations on test during one run; once at its end is the rule, twice may be a resume
_CHOOSES = re.compile(
    r"(?i)monitor|early[_-]?stop|metric_for_best|best_metric|checkpoint_metric|select(ion)?_(on|metric|split)"
    r"|save_best|plateau|objective|stop_on|model_selection"
)
_TEST = re.compile(r"(?i)(^|[^a-z])test([^a-z]|$)")


def findings(run: Run) -> Iterator[Finding]:
    record = files.read_json(run.run_json) if run.run_json.is_file() else {}
    config = record.get("config") if isinstance(record, dict) else None
    yield from _config(run, config if isinstance(config, dict) else {})
    bad: list[str] = []
    curves = _curves(run, bad)
    if bad:
        message = f"{len(bad)} rows could not be read and were not judged"
        yield Finding("unjudged", "info", message, path=str(run.metrics), evidence=bad[0])
    steps = sorted({step for (_, split), curve in curves.items() if split == "test" for step in curve})
    yield from _chosen(run, curves, files.read_json(run.results) if run.results.is_file() else {})
    if len(steps) >= MANY:
        shown = ", ".join(map(str, steps[:5])) + (", ..." if len(steps) > 5 else "")
        message = f"the test set was evaluated at {len(steps)} steps of training: the curve invites to choose by it"
        fix = "log val during training, evaluate test once at the end, and say so when it was otherwise"
        yield Finding("touched", "warn", message, path=str(run.metrics), evidence=f"steps {shown}", fix=fix)


def _config(run: Run, config: dict[str, Any]) -> Iterator[Finding]:
    for key, value in _flat(config, ""):
        if _CHOOSES.search(key) and isinstance(value, str) and _TEST.search(value):
            message = f"{key} is {value!r}: training was stopped or a checkpoint chosen by the test set"
            fix = "choose on val; the test number of this run is a selected one"
            yield Finding("selection", "error", message, path=str(run.run_json), where=key, fix=fix)


def _flat(value: Any, key: str, depth: int = 20) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and depth:
        for name, each in value.items():
            yield from _flat(each, f"{key}.{name}" if key else str(name), depth - 1)
    elif isinstance(value, list) and depth:
        for each in value:
            yield from _flat(each, key, depth - 1)
    else:
        yield key, value


def _curves(run: Run, bad: list[str]) -> dict[tuple[str, str], dict[int, float]]:
    """(metric, split) -> step -> value. A `test/acc` in a row of another split is a test value too."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for row in files.read_jsonl(run.metrics, bad=bad) if run.metrics.is_file() else []:
        try:
            step = int(row["step"])
            for name, value in row.items():
                if name in ("step", "time", "split") or isinstance(value, bool):
                    continue
                head, slash, rest = name.replace("_", "/", 1).partition("/")
                split = head if slash and head in ("test", "val", "train") else str(row.get("split", ""))
                plain = rest if slash and head in ("test", "val", "train") else name
                found.setdefault((plain, split), {})[step] = float(value)
        except (KeyError, TypeError, ValueError, OverflowError):
            bad.append(f"a row whose step or value is no number: {str(row)[:80]}")
    return found


def _rows(data: Any, name: str) -> list[dict[str, Any]]:
    """The objects of a list in somebody else's JSON; empty where it has another shape."""
    rows = data.get(name) if isinstance(data, dict) else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _chosen(run: Run, curves: dict[tuple[str, str], dict[int, float]], results: Any) -> Iterator[Finding]:
    index = files.read_json(run.checkpoints_index) if run.checkpoints_index.is_file() else {}
    step_of = {str(each.get("path")): each.get("step") for each in _rows(index, "checkpoints")}
    for metric in _rows(results, "metrics"):
        if metric.get("split") != "test" or metric.get("direction") not in ("up", "down"):
            continue
        curve = _finite(curves.get((str(metric.get("name")), "test"), {}))
        step = metric.get("step", _checkpoint_step(metric.get("checkpoint"), step_of))
        if len(curve) < 2 or not isinstance(step, int):
            continue
        sign = 1 if metric["direction"] == "up" else -1
        best = max(curve, key=lambda at: sign * curve[at])
        val = _finite(curves.get((str(metric.get("name")), "val"), {}))
        by_val = max(val, key=lambda at: sign * val[at]) if val else None
        if curve.get(step) != curve[best] or step in (max(curve), by_val):
            continue
        other = f"best on val is {by_val}" if by_val is not None else "val was not logged"
        at = f"step {step}, the best on test of {len(curve)} steps ({other}, the last is {max(curve)})"
        message = f"the reported {metric['name']} is of {at}: chosen on test"
        fix = "report the checkpoint that val chose, or the last; disclose that this one was chosen on test"
        yield Finding("selection", "error", message, path=str(run.results), where=str(metric["name"]), fix=fix)


def _checkpoint_step(checkpoint: Any, step_of: dict[str, Any]) -> Any:
    if not isinstance(checkpoint, str):
        return None
    if checkpoint in step_of:
        return step_of[checkpoint]
    digits = re.findall(r"\d+", Path(checkpoint).name)
    return int(digits[-1]) if digits else None


def _finite(curve: dict[int, float]) -> dict[int, float]:
    return {step: value for step, value in curve.items() if math.isfinite(value)}


def runs_of(paths: tuple[str, ...]) -> tuple[list[Run], list[str]]:
    """Run directories below the paths (those with a metrics.jsonl or results.json alone count), and paths without."""
    found: list[Run] = []
    without = []
    for path in paths:
        here = rundir.find(Path(path))
        alone = Run(Path(path))
        if not here and (alone.metrics.is_file() or alone.results.is_file()):
            here = [alone]
        found += here
        if not here:
            without.append(path)
    return found, without
