"""Checkpoints that a framework wrote: which are good, which are halves, what is kept. The framework's own files.

Example:
    found = last_good(run, "hf-trainer")        damaged ones are renamed to *.damaged, and said
    record(run, found.path, found.step, verified=True)
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgt import files
from rgt.errors import RgtError
from rgt.report import progress
from rgt.rundir import Run

_NAMES = {"hf-trainer": r"checkpoint-(\d+)", "litgpt": r"step-(\d+)", "nanogpt": r"step-(\d+)\.pt"}
# What a resume reads. The Trainer writes trainer_state.json last.
_FILES = {"hf-trainer": ("model*.safetensors", "optimizer.pt", "scheduler.pt", "rng_state*.pth", "trainer_state.json"),
          "litgpt": ("lit_model.pth",), "nanogpt": ()}  # fmt: skip
_TENSORS = (".safetensors", ".pt", ".pth", ".bin")
# Findings that say "this cannot be resumed from". A bias of zeros or a large weight is the science's business.
DAMAGE = {
    "bomb", "bounds", "changed", "crc", "duplicate", "empty", "error-page", "gap", "hostile", "inf", "lfs-pointer",
    "malformed", "missing", "nan", "not-a-checkpoint", "overlap", "stale-index", "trailing", "truncated", "unreadable",
}  # fmt: skip


@dataclass(frozen=True)
class Checkpoint:
    step: int
    path: Path


def find(run: Run, framework: str) -> list[Checkpoint]:
    """Everything with a checkpoint's name, newest first; nothing is said about its contents."""
    pattern = re.compile(_NAMES[framework])
    found = [(pattern.fullmatch(path.name), path) for path in _listing(run.checkpoints)]
    return sorted((Checkpoint(int(match[1]), path) for match, path in found if match), key=lambda c: -c.step)


def _listing(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def damage(checkpoint: Checkpoint, framework: str, values: bool = True) -> str | None:
    """Why it cannot be resumed from, in a clause; None when it can. Without `values` only headers are read."""
    from artifacts.examine import Options, examine

    folder = checkpoint.path
    lost = [name for name in _FILES[framework] if not any(folder.glob(name))]
    if lost:
        return f"{lost[0]} is not there: the save was cut off"
    if framework == "hf-trainer":
        why = _state_problem(folder / "trainer_state.json", checkpoint.step)
        if why:
            return why
    for path in _parts(folder):
        artifact = examine(path, Options(digest=False, values=values))
        bad = [p for p in artifact.problems if p.severity == "error" and p.code in DAMAGE]
        if bad:
            where = f" ({bad[0].where})" if bad[0].where else ""
            return f"{path.name} {bad[0].message}{where}"
    return None


def _parts(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(part for part in path.iterdir() if part.suffix in _TENSORS)


def _state_problem(path: Path, step: int) -> str | None:
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return "trainer_state.json is not JSON: the save was cut off"
    seen = state.get("global_step") if isinstance(state, dict) else None
    return None if seen == step else f"trainer_state.json is of step {seen}, its folder of step {step}"


def last_good(run: Run, framework: str) -> Checkpoint | None:
    """The newest that can be resumed from. Newer ones are set aside, and that is said and recorded."""
    for checkpoint in find(run, framework):
        why = damage(checkpoint, framework)
        if why is None:
            return checkpoint
        aside = set_aside(checkpoint.path)
        said = f"{checkpoint.path.name} is damaged: {why}; set aside as {aside.name}"
        run.log_event("set_aside", step=checkpoint.step, reason=said)
        progress(f"warning: {said}, trying the one before it")
    return None


def set_aside(path: Path) -> Path:
    """Renamed, not deleted: someone may want to look at it."""
    for number in range(1, 10_000):
        aside = path.with_name(f"{path.name}.damaged{'' if number == 1 else f'-{number}'}")
        if not aside.exists():
            path.rename(aside)
            return aside
    raise RgtError(f"{path} is damaged and cannot be set aside: too many damaged ones are there already")


# -- the index


def entries(run: Run) -> list[dict[str, Any]]:
    if not run.checkpoints_index.exists():
        return []
    try:
        found: list[dict[str, Any]] = files.read_json(run.checkpoints_index, "checkpoints_index")["checkpoints"]
    except RgtError as error:  # it can be made again from the files, so it must not stop a training
        progress(f"warning: {error.message}; it is made anew")
        return []
    return found


def record(run: Run, path: Path, step: int, verified: bool = False, metrics: dict[str, float] | None = None) -> None:
    """Put one checkpoint into the index and take out what is no longer on disk."""
    name = path.relative_to(run.path).as_posix()
    before = {entry["path"]: entry for entry in entries(run)}
    entry = {**before.get(name, {}), "path": name, "step": step, "time": path.stat().st_mtime,
             "bytes": sum(part.stat().st_size for part in ([path] if path.is_file() else path.rglob("*")))}  # fmt: skip
    if verified:
        entry["verified"] = True
    if metrics:
        entry["metrics"] = metrics
    kept = [old for old in before.values() if old["path"] != name and (run.path / old["path"]).exists()]
    write_index(run, [*kept, entry])


def write_index(run: Run, found: list[dict[str, Any]]) -> None:
    rows = sorted(found, key=lambda entry: entry["step"])
    files.write_json(run.checkpoints_index, {"checkpoints": rows}, "checkpoints_index")


def refresh(run: Run, framework: str) -> None:
    """Index what is on disk: a kill between a save and its index entry loses nothing."""
    known = {entry["path"]: entry for entry in entries(run)}
    rows = []
    for checkpoint in find(run, framework):
        name = checkpoint.path.relative_to(run.path).as_posix()
        fresh = {"path": name, "step": checkpoint.step, "time": checkpoint.path.stat().st_mtime}
        rows.append(known.get(name, fresh))
    write_index(run, rows)


# -- what is kept


def retain(run: Run, framework: str, keep: int, boundaries: set[int]) -> list[Path]:
    """Delete all but the newest `keep` and the ends of phases, and only when the newest reads as whole."""
    found = find(run, framework)
    doomed = [checkpoint.path for checkpoint in found[max(2, keep) :] if checkpoint.step not in boundaries]
    if not doomed or damage(found[0], framework, values=False):
        return []
    for path in doomed:
        if path.is_dir():
            trash = path.with_name(
                f".{path.name}.{time.time_ns()}.deleted"
            )  # half deleted must not look like half saved
            os.rename(path, trash)
            shutil.rmtree(trash, ignore_errors=True)
        else:
            path.unlink()
    return doomed


def sweep(run: Run) -> None:
    """Remove what a kill leaves inside checkpoints/: halves under temporary names, which nobody else writes."""
    for path in _listing(run.checkpoints):
        if path.name.startswith(".") and path.name.endswith((".tmp", ".deleted")):
            with contextlib.suppress(OSError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
