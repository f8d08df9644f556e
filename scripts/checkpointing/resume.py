"""Which checkpoint to go on from: the newest that is whole, has every part and whose parts are of one step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkpointing import inspection
from checkpointing.inspection import Found

if TYPE_CHECKING:
    from artifacts.model import Problem

_DOUBTS = ("optimizer", "step")  # as warnings they say that two saves may be mixed
_UNFINISHED_MARK = "checkpoint-is-incomplete.txt"  # transformers, enable_jit_checkpoint
Skipped = list[tuple[Found, "Problem"]]


def choose(run: Path) -> tuple[Found | None, Skipped]:
    """Newest first. One with a doubt is taken only when none is without: some trainers count in another unit."""
    named = inspection.find(run)
    unnamed = [each for each in map(_unnamed, inspection.unnamed(run)) if each is not None]
    parts = {found.path: _parts(found.path) for found in named}
    skipped: Skipped = []
    doubtful: Found | None = None
    for found in sorted([*named, *unnamed], key=lambda each: (each.step, each.path.name), reverse=True):
        problems = inspection.judge(found).problems if found.problems is None else found.problems
        problems = [*(problems or []), *_incomplete(found.path, parts), *_misnamed(found)]
        why = next((problem for problem in problems if problem.severity == "error"), None)
        doubt = next((problem for problem in problems if problem.code in _DOUBTS and problem.severity == "warn"), None)
        if why is None and doubt is None:
            return found, skipped
        if why is None:
            doubtful = doubtful or found
        skipped.append((found, why or doubt))  # type: ignore[arg-type]
    return doubtful, [each for each in skipped if each[0] is not doubtful]


def _unnamed(path: Path) -> Found | None:
    """Its step is inside it; a file without one (an export) is no checkpoint to go on from."""
    facts = _headers(path)
    if facts is None or facts.get("step") is None:
        return None
    return inspection.Found(path, facts["step"], None)


def _headers(path: Path) -> dict[str, Any] | None:
    from artifacts.examine import Options, examine
    from artifacts.formats.torch_files import keys

    artifact = examine(path, Options(digest=False, values=False))
    if not artifact.layout.tensors:
        return None
    return {**artifact.layout.facts, "keys": {str(key) for key in keys(artifact.layout.root)}}


def _parts(path: Path) -> set[str]:
    """File names without their numbers; in a single file the names at the top."""
    if path.is_dir():
        return {re.sub(r"\d+", "#", each.relative_to(path).as_posix()) for each in path.rglob("*") if each.is_file()}
    facts = _headers(path)
    return facts["keys"] if facts else set()


def _incomplete(path: Path, parts: dict[Path, set[str]]) -> list[Problem]:
    """What most others of its kind have, it should have, too."""
    from artifacts.model import Problem

    if (path / _UNFINISHED_MARK).exists():
        return [Problem("partial", "error", f"{_UNFINISHED_MARK} says that this save was cut")]
    others = [each for other, each in parts.items() if each and other != path and other.is_dir() == path.is_dir()]
    mine = parts.get(path)
    if not mine or len(others) < 2:
        return []
    usual = {part for each in others for part in each if sum(part in other for other in others) * 2 > len(others)}
    lost = sorted(usual - mine)
    # a model that fits one file this time and three the next is still whole: its index is checked by itself
    lost = [part for part in lost if "-of-" not in part and not part.endswith(".index.json")]
    return [Problem("missing", "error", f"{lost[0]} is not there, most others have it")] if lost else []


def _misnamed(found: Found) -> list[Problem]:
    """A file whose name says one step and whose contents another, as a copied backup has it."""
    from artifacts import optimizer

    facts = _headers(found.path) if found.path.is_file() else None
    step = facts.get("step") if facts else None
    return [] if step is None else list(optimizer.compare_steps(found.step, step, "its name", exact=False))
