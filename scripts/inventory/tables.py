"""How far a run is, as the files of different trainers tell it: logs, CSV, trainer_state.json, its own record.

Example:
    summary = read_table("out/metrics.csv")         summary.step, .total, .metrics; empty for what cannot be read
"""

from __future__ import annotations

import csv
import json
import os
from typing import Any

from rgt import logs
from rgt.logline import is_sane

_RECORD_BYTES = 1 << 20  # of a run.json
_STATE_BYTES = 8 << 20  # a trainer_state.json up to this size is parsed as a whole


def read_log(path: str) -> logs.Summary:
    """A quarter of the usual end is enough for most, and there may be hundreds."""
    summary = logs.read(path, logs.TAIL // 4)
    return summary if summary.found else logs.read(path)


def read_table(path: str) -> logs.Summary:
    name = os.path.basename(path)
    if name.endswith(".csv"):
        return _read_csv(path)
    return _read_trainer_state(path) if name == "trainer_state.json" else read_log(path)


def _read_csv(path: str) -> logs.Summary:
    """Lightning's and LitGPT's CSV: a header, then rows with holes."""
    lines = logs.tail(path)
    header = logs.head(path).decode("utf-8", "replace").partition("\n")[0].strip()
    if lines and lines[0] == header:
        del lines[0]
    try:
        rows = list(csv.reader([header, *lines[-50:]]))
    except csv.Error:  # not a table: a cell of 100 KB
        return logs.Summary()
    words = [", ".join(f"'{key}': {cell}" for key, cell in zip(rows[0], row, strict=False) if cell) for row in rows[1:]]
    return logs.summarise("\n".join(f"{{{word}}}" for word in words))


def _read_trainer_state(path: str) -> logs.Summary:
    """HF Trainer writes its whole history into every checkpoint."""
    data = logs.head(path, _STATE_BYTES + 1)
    if len(data) > _STATE_BYTES:
        return logs.read(path)
    try:
        state = json.loads(data)
        lines = [json.dumps(row) for row in state.get("log_history", [])[-20:]]
        counters = {
            "step": state["global_step"],
            "total": state.get("max_steps"),
            "epochs": state.get("num_train_epochs"),
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return logs.Summary()
    summary = logs.summarise("\n".join(lines))
    summary.step = None
    summary.fill({name: int(value) for name, value in counters.items() if _is_count(value)})
    return summary


def fill_totals(summary: logs.Summary, directory: str) -> None:
    """The number of steps as the run's own config has it."""
    try:
        config = json.loads(logs.head(os.path.join(directory, "run.json"), _RECORD_BYTES))["config"]
        words = {name: value for name, value in config.items() if isinstance(value, int) and _is_count(value)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return
    for name in ("steps", "max_steps", "max_iters", "total_steps", "train_steps"):
        summary.fill({"total": words.get(name)})
    for name in ("epochs", "max_epochs", "num_epochs", "num_train_epochs"):
        summary.fill({"epochs": words.get(name)})


def _is_count(value: Any) -> bool:
    return isinstance(value, (int, float)) and value > 0 and is_sane(value)
