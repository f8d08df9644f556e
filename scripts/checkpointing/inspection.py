"""Every checkpoint of a run directory, whoever wrote it, and whether it is real: for the command line.

A checkpoint is a file or a folder below checkpoints/ with its step in its name: step_000040.pt, checkpoint-500/
(Hugging Face), step-00000500/ (LitGPT), global_step500/ (DeepSpeed), epoch=3-step=900.ckpt (Lightning). Without
checkpoints/ they lie in the folder itself, as in a Trainer's output_dir.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from checkpointing import index
from rgt import schema
from rgt.errors import bad_input, from_os_error

if TYPE_CHECKING:
    from artifacts.model import Problem

_STEP = re.compile(r"(?:^|[-_.])(?:checkpoint|ckpt|global_?step|step|iter|iteration)[-_=]?(\d+)(?=\D|$)", re.I)
_FILES = (".pt", ".pth", ".ckpt", ".safetensors", ".bin")
_SET_ASIDE = ".damaged"
_UNFINISHED = re.compile(
    r"^(tmp|temp|partial|incomplete)[-_.]|[-_.](tmp|temp|part|partial|incomplete)\W*\w{0,8}$", re.I
)


@dataclass
class Found:
    path: Path
    step: int
    entry: index.Entry | None  # of the index
    problems: list[Problem] | None = None  # None: not looked at yet
    sha256: str | None = None
    bytes: int = field(default=0)

    @property
    def good(self) -> bool:
        return self.problems is not None and all(problem.severity != "error" for problem in self.problems)


def open_run(path: Path) -> Path:
    """The run directory, or a sentence about what was named instead."""
    if not path.exists():
        raise bad_input(f"{path} does not exist; name a run directory with checkpoints/ in it")
    if not path.is_dir():
        raise bad_input(f"{path} is a file; name the run directory (`scripts/verify_local.py` checks single files)")
    run = index.run_directory(path)
    if not (run / index.FOLDER).is_dir() and not find(run) and not unnamed(run):
        raise bad_input(f"{run} has no {index.FOLDER}/; name a run directory, or make one with a first save")
    return run


def place(run: Path) -> Path:
    """Where they lie: a Trainer's output_dir and DeepSpeed's folder have no checkpoints/ of their own."""
    return run / index.FOLDER if (run / index.FOLDER).is_dir() else run


def find(run: Path) -> list[Found]:
    """Oldest first. What the index names and is gone is not here; `gone` tells."""
    known = {entry["path"]: entry for entry in index.read(run) or []}
    found = []
    for path in _entries(run):
        step = _STEP.search(path.name)
        if step and (path.is_dir() or path.name.endswith(_FILES)):
            entry = known.get(index.relative(run, path))
            found.append(Found(path, int(step[1]), entry, bytes=_size(path)))
    return sorted(found, key=lambda each: (each.step, each.path.name))


def unnamed(run: Path) -> list[Path]:
    """ckpt.pt, last.ckpt: the step is inside. Only to resume from; nothing here is ever pruned."""
    paths = [path for path in _entries(run) if path.name.endswith(_FILES) and not _STEP.search(path.name)]
    return sorted(path for path in paths if path.is_file() and not path.is_symlink())


def _entries(run: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(place(run)))
    except OSError as error:
        raise from_os_error(error, f"read {place(run)}") from None
    return [place(run) / name for name in names if not name.startswith(".") and not _UNFINISHED.search(name)]


def gone(run: Path) -> list[str]:
    return [entry["path"] for entry in index.read(run) or [] if not (run / entry["path"]).exists()]


def set_aside(run: Path) -> list[Path]:
    return sorted(path for path in place(run).iterdir() if path.name.endswith(_SET_ASIDE))


def index_problem(run: Path) -> str | None:
    """Why the index cannot be used; None when it can, or when nothing is there to index."""
    if not (run / index.INDEX).exists():
        return "is missing" if find(run) else None
    listed = index.read(run)
    if listed is None:
        return "is torn or not an index"
    wrong = schema.problems({"checkpoints": listed}, "checkpoints_index")
    return f"does not fit its schema: {wrong[0]}" if wrong else None


def _size(path: Path) -> int:
    try:
        if path.is_dir():
            return sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
        return path.stat().st_size
    except OSError:
        return 0


def judge(found: Found) -> Found:
    """Read every byte once: container, CRCs, finite and nonzero values, and the recorded sha256."""
    from artifacts.examine import Options
    from artifacts.model import Problem
    from artifacts.survey import survey
    from artifacts.verify import Request, verify

    verdict = verify(survey(found.path), Request(Options()))
    found.problems = [problem for _, problem in verdict.problems]
    if not verdict.artifacts and not found.problems:
        found.problems.append(Problem("empty", "error", "holds no artifact"))
    if found.path.is_file() and verdict.artifacts:
        found.sha256 = verdict.artifacts[0].sha256
    expected = (found.entry or {}).get("sha256")
    if expected and found.sha256 and expected != found.sha256:
        found.problems.append(Problem("digest", "error", "its sha256 is not the one in checkpoints_index.json"))
    return found


def describe(run: Path, found: Found) -> index.Entry:
    """An entry for the index, with what the old one and the file itself know."""
    inside: dict[str, Any] = {}
    if index.NAME.fullmatch(found.path.name):
        inside = index.describe(run, found.path, found.step)
    entry = {
        "path": index.relative(run, found.path),
        "step": found.step,
        "time": found.path.stat().st_mtime,
        "bytes": found.bytes,
        **inside,
        **(found.entry or {}),
        "verified": found.good,
    }
    entry["bytes"] = found.bytes
    return {**entry, "sha256": found.sha256} if found.sha256 and found.good else entry
