"""Our run directories: checkpoints_index.json, metrics.jsonl and run.json against the files themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from artifacts import facts, optimizer
from artifacts.folders.side import read_json
from artifacts.model import Artifact, Broken, Problem
from rgt import files, schema
from rgt.errors import RgtError

Found = Iterator[tuple[Path, Problem]]
INDEX = "checkpoints_index.json"


def entries(run: Path) -> list[dict[str, Any]]:
    """What the index lists; empty when there is none that can be used (the JSON check says why)."""
    try:
        data = read_json(run / INDEX)
    except (Broken, OSError):
        return []
    return [] if schema.problems(data, "checkpoints_index") else list(data["checkpoints"])


def check(run: Path, artifacts: dict[Path, Artifact]) -> Found:
    listed = entries(run)
    for entry in listed:
        path = run / entry["path"]
        artifact = artifacts.get(path)
        if ".." in Path(entry["path"]).parts or Path(entry["path"]).is_absolute():
            yield run / INDEX, Problem("path-name", "error", f"names {entry['path'][:100]!r}, outside of the run")
        elif artifact is None and not os.path.exists(path):  # unlike Path's, it answers for a name that is too long
            yield path, Problem("missing", "error", f"is listed in {INDEX} and not there")
        elif artifact is not None:
            yield from ((path, problem) for problem in check_entry(entry, artifact))
    if listed:
        yield from _curve(run, max(entry["step"] for entry in listed))
        known = {run / entry["path"] for entry in listed}
        extra = [path.name for path in artifacts if path.parent == run / "checkpoints" and path not in known]
        if extra:
            message = f"does not list {len(extra)} files of checkpoints/: {', '.join(sorted(extra)[:5])}"
            yield run / INDEX, Problem("extra", "info", message[:300])
    if _declares_ema(run) and artifacts and not any(a.layout.facts.get("ema") for a in artifacts.values()):
        yield run, Problem("ema", "error", "run.json asks for an EMA and no checkpoint holds one")


def check_entry(entry: dict[str, Any], artifact: Artifact) -> Iterator[Problem]:
    step = artifact.layout.facts.get("step")
    if step is not None and step != entry["step"]:
        yield Problem("step", "error", f"is of step {step}, {INDEX} says {entry['step']}")
    steps = artifact.layout.facts.get("optimizer_steps")
    if step is None and steps:
        yield from optimizer.compare_steps(entry["step"], max(steps), INDEX, exact=False)


def _curve(run: Path, step: int) -> Found:
    path = run / "metrics.jsonl"
    if not path.is_file():
        return
    try:
        last = max(
            (row["step"] for row in files.read_jsonl(path, bad=[]) if isinstance(row.get("step"), int)), default=None
        )
    except RgtError:
        return
    if last is not None and last < step - 1:
        yield path, Problem("step", "warn", f"ends at step {last}, the newest checkpoint is of step {step}")


def _declares_ema(run: Path) -> bool:
    try:
        record = read_json(run / "run.json")
    except (Broken, OSError):
        return False
    config = record.get("config") if isinstance(record, dict) else None
    return isinstance(config, dict) and facts.declares_ema(config)
