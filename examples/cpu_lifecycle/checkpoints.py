"""Checkpoints of one run: written whole, indexed, the last two kept, the newest undamaged one found again.

Example:
    save(run, {"step": 40, "time": time.time(), "metrics": {"val_loss": 2.3}, "model": ...})
    state = newest_loadable(run)        None when there is none
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import click
import torch

from rgt import files, rundir

KEPT = 2  # if the newest turns out to be damaged, there is one before it


def save(run: rundir.Run, state: dict[str, Any]) -> None:
    """File first, index second, deletion last: killed in between, what the index names is there and whole."""
    path = checkpoint_path(run, state["step"])
    files.write_with(path, lambda file: torch.save(state, file))
    keep(run, state)
    run.log_event("checkpoint", step=state["step"], path=relative(run, path))


def checkpoint_path(run: rundir.Run, step: int) -> Path:
    return run.checkpoints / f"step_{step:06d}.pt"


def relative(run: rundir.Run, path: Path) -> str:
    return path.relative_to(run.path).as_posix()


def keep(run: rundir.Run, state: dict[str, Any]) -> None:
    """Put a written checkpoint into the index, as the newest of KEPT, and delete what falls out."""
    path = checkpoint_path(run, state["step"])
    data = path.read_bytes()
    entry = {
        "path": relative(run, path),
        "step": state["step"],
        "time": state["time"],
        "bytes": len(data),
        "metrics": state["metrics"],
        "sha256": hashlib.sha256(data).hexdigest(),
    }
    entries = [*(old for old in index(run) if old["path"] != entry["path"]), entry][-KEPT:]
    write_index(run, entries)
    for old in run.checkpoints.glob("step_*.pt"):
        if relative(run, old) not in [entry["path"] for entry in entries]:
            old.unlink()


def index(run: rundir.Run) -> list[dict[str, Any]]:
    if not run.checkpoints_index.exists():
        return []
    entries: list[dict[str, Any]] = files.read_json(run.checkpoints_index, "checkpoints_index")["checkpoints"]
    return entries


def write_index(run: rundir.Run, entries: list[dict[str, Any]]) -> None:
    files.write_json(run.checkpoints_index, {"checkpoints": entries}, "checkpoints_index")


def newest_loadable(run: rundir.Run) -> dict[str, Any] | None:
    """The newest state that is whole. A damaged one is set aside, not deleted: someone may want to look at it."""
    for path in sorted(run.checkpoints.glob("step_*.pt"), reverse=True):
        data = path.read_bytes()  # outside of try: a disk that cannot be read says nothing about the checkpoint
        try:
            return parse(run, path, data)
        except Exception as error:  # torch.load raises another type for every place where a file can be cut
            set_aside(run, path, str(error).partition("\n")[0] or type(error).__name__)
    return None


def parse(run: rundir.Run, path: Path, data: bytes) -> dict[str, Any]:
    known = {entry["path"]: entry.get("sha256") for entry in index(run)}
    expected = known.get(relative(run, path))  # None: the run was killed between the file and the index
    if expected not in {None, hashlib.sha256(data).hexdigest()}:
        raise ValueError("its sha256 is not the one in checkpoints_index.json")
    # weights_only: a checkpoint is data, also one from a rented box; it must not be able to run code
    state: dict[str, Any] = torch.load(io.BytesIO(data), weights_only=True)
    return state


def set_aside(run: rundir.Run, path: Path, why: str) -> None:
    what = f"set aside as {path.name}.damaged, trying the one before it"
    click.echo(f"{path.name} is damaged ({why}); {what}", err=True)
    write_index(run, [entry for entry in index(run) if entry["path"] != relative(run, path)])
    path.rename(path.with_name(f"{path.name}.damaged"))


def sweep_halves(run: rundir.Run) -> None:
    """Remove what a SIGKILL in the middle of an atomic write leaves behind; nobody else writes these two names."""
    for half in (*run.checkpoints.glob(".step_*.tmp"), *run.path.glob(f".{run.checkpoints_index.name}.*.tmp")):
        half.unlink()
