"""HF Trainer's trainer_state.json: its whole history, in every checkpoint and, at the end, in the output folder."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import bad_input
from rgt.run import record as states_of_runs
from rgt.run.foreign import MOST_BYTES, Foreign, as_number

NAME = "trainer_state.json"
FORMAT = "transformers"
_SETTINGS = ("max_steps", "num_train_epochs", "train_batch_size", "logging_steps", "eval_steps", "save_steps")
_SUMMARY = "train_runtime"  # only in the last row, whose train_loss is the mean over the run and not a point of a curve


def belongs(folder: Path, folders: set[Path]) -> bool:
    """Is this the output folder of a Trainer?"""
    return any(one == folder or one.parent == folder for one in folders if (one / NAME).is_file())


def read(paths: list[Path]) -> Iterator[Foreign]:
    """The run whose checkpoints hold these files: of several the one that went furthest."""
    states: list[tuple[float, Path, dict[str, Any]]] = []
    for path in paths:
        if path.stat().st_size > MOST_BYTES:
            raise bad_input(f"{path} is larger than 1 GiB")
        data = files.read_json(path)
        if isinstance(data, dict):
            states.append((as_number(data.get("global_step")) or 0, path, data))
    if not states:
        raise bad_input(f"{paths[0]} is no state of a Trainer")
    last, path, state = max(states, key=lambda one: (one[0], -len(one[1].parts)))
    run = Foreign(path.parent.name, FORMAT, path)
    run.config = {name: state[name] for name in _SETTINGS if isinstance(state.get(name), (int, float))}
    history = state.get("log_history")
    for row in (row for row in (history if isinstance(history, list) else []) if isinstance(row, dict)):
        ended = _SUMMARY in row
        if (step := as_number(row.get("step"))) is not None and math.isfinite(step):
            # the summary's names are kept as they are: its train_loss is not the loss of that step
            run.add(
                int(step),
                {name: value for name, value in row.items() if name != "step"},
                0.0,
                "train" if ended else None,
            )
        run.state = states_of_runs.FINISHED if ended else run.state
    if (tokens := as_number(state.get("num_input_tokens_seen"))) and run.points:
        run.add(int(last), {"num_input_tokens_seen": tokens})
    if not run.points:
        raise bad_input(f"{path} has no log_history with steps")
    yield run.settle(path)
