"""HF Trainer's trainer_state.json: its whole history, in every checkpoint and, at the end, in the output folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import bad_input
from rgt.run import record as states
from rgt.run.foreign import MOST_BYTES, Foreign, as_number

NAME = "trainer_state.json"
FORMAT = "transformers"
_SETTINGS = ("max_steps", "num_train_epochs", "train_batch_size", "logging_steps", "eval_steps", "save_steps")
_SUMMARY = "train_runtime"  # only in the last row, whose train_loss is the mean over the run and not a point of a curve


def newest(paths: list[Path]) -> Path:
    """Of several checkpoints the one that went furthest."""
    return max(paths, key=lambda path: (_state(path).get("global_step") or 0, -len(path.parts)))


def _state(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MOST_BYTES:
        raise bad_input(f"{path} is larger than 1 GiB")
    data = files.read_json(path)
    return data if isinstance(data, dict) else {}


def read(paths: list[Path]) -> Iterator[Foreign]:
    """The run whose checkpoints hold these files."""
    path = newest(paths)
    state = _state(path)
    rows = [row for row in state.get("log_history") or [] if isinstance(row, dict)]
    run = Foreign(path.parent.name, FORMAT, path)
    run.config = {name: state[name] for name in _SETTINGS if isinstance(state.get(name), (int, float))}
    for row in rows:
        step = as_number(row.get("step"))
        if step is not None and step >= 0:
            run.add(int(step), {name: value for name, value in row.items() if name != "step"}, 0.0, _whole(row))
        if _SUMMARY in row:
            run.state = states.FINISHED
    last, tokens = as_number(state.get("global_step")), as_number(state.get("num_input_tokens_seen"))
    if tokens and last is not None:
        run.add(int(last), {"num_input_tokens_seen": tokens})
    if not run.points:
        raise bad_input(f"{path} has no log_history with steps")
    yield run.settle(path)


def _whole(row: dict[str, Any]) -> str | None:
    """The names of the summary are kept as they are: train_loss is not the loss of that step."""
    return "train" if _SUMMARY in row else None
