"""What only several files together show: complete sets, one step, a declared EMA."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from artifacts.folders import deepspeed, hf, runs, side
from artifacts.model import Artifact, Problem
from artifacts.survey import Survey

Found = Iterator[tuple[Path, Problem]]


def check(found: Survey, artifacts: dict[Path, Artifact]) -> Found:
    for path in found.sides:
        yield from ((path, problem) for problem in side.check(path))
    if found.given.is_dir():
        for folder in sorted({found.root, *found.folders}):
            yield from hf.check(folder, artifacts)
            yield from deepspeed.check(folder, artifacts)
        for run in sorted({path.parent for path in found.sides if path.name == runs.INDEX}):
            yield from runs.check(run, artifacts)
        yield from _empty(found)
    elif found.given.name.endswith(".index.json"):
        yield from hf.check(found.root, artifacts)
    else:
        yield from _listed(found, artifacts)
    yield from _ema(artifacts)


def _listed(found: Survey, artifacts: dict[Path, Artifact]) -> Found:
    """One file of a run: what the run's index says about it."""
    for run in (found.root, found.root.parent):
        for entry in runs.entries(run):
            artifact = artifacts.get(run / entry["path"])
            if artifact:
                yield from ((artifact.path, problem) for problem in runs.check_entry(entry, artifact))


def _empty(found: Survey) -> Found:
    if not found.artifacts and not found.metadata:
        message = "holds no checkpoint: nothing was saved or nothing was pulled"
        yield found.given, Problem("empty", "error", message)
    if found.skipped:
        names = ", ".join(path.name for path in found.skipped[:5])
        message = f"{len(found.skipped)} pickles were not examined; name one to have it examined"
        yield found.given, Problem("unjudged", "info", message, evidence=names[:200])


def _ema(artifacts: dict[Path, Artifact]) -> Found:
    """A configuration that asks for an EMA; it may be in the same file or in one beside it."""
    for path, artifact in artifacts.items():
        facts = artifact.layout.facts
        if not facts.get("ema_declared"):
            continue
        beside = [other for other in artifacts.values() if other.path.parent == path.parent]
        if not any(o.layout.facts.get("ema") or "ema" in o.path.stem for o in beside):
            yield path, Problem("ema", "error", "its configuration asks for an EMA and it holds none")
