"""Every checkpoint of a run directory, whoever wrote it, whether it is real, and the newest one to resume from.

Without checkpoints/ they lie in the folder itself, as in a Trainer's output_dir.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rgt.checkpoint import index, names
from rgt.checkpoint.examine import HEADERS, Options, compare_steps, examine
from rgt.checkpoint.formats.torch_files import keys
from rgt.checkpoint.layout import Problem
from rgt.checkpoint.survey import survey
from rgt.checkpoint.verify import verify
from rgt.errors import bad_input

_UNFINISHED_MARK = "checkpoint-is-incomplete.txt"  # transformers, enable_jit_checkpoint
# Findings that do not show damage: they say that two saves may be mixed, or that the training went wrong.
_DOUBTS = {("step", "warn"), ("zero", "error"), ("range", "error")}


@dataclass
class Checkpoint:
    path: Path
    step: int
    entry: index.Entry = field(default_factory=dict)  # of the index; empty when it is not listed
    problems: list[tuple[Path, Problem]] | None = None  # None: not read yet; each with the file it is about
    sha256: str | None = None  # of a single file that was read

    @property
    def bytes(self) -> int:
        return index.size_on_disk(self.path)

    @property
    def good(self) -> bool:
        return self.problems is not None and all(problem.severity != "error" for _, problem in self.problems)

    def read(self, values: bool = True) -> Checkpoint:
        """Every byte, once: container, CRCs, finite and nonzero values, the recorded sha256; else the headers only."""
        verdict = verify(survey(self.path), Options(digest=values, values=values))
        self.problems = list(verdict.problems)
        if not verdict.artifacts and not self.problems:
            self.problems.append((self.path, Problem("empty", "error", "holds no artifact")))
        if self.path.is_file() and verdict.artifacts:
            self.sha256 = verdict.artifacts[0].sha256
        return self

    def damage(self, parts: tuple[str, ...] = (), values: bool = True) -> Problem | None:
        """Why it cannot be resumed from; None when it can. `parts` are globs of what its folder must hold."""
        lost = [part for part in parts if not any(self.path.glob(part))]
        if lost:
            return Problem("missing", "error", f"{lost[0]} is not there: the save was cut off")
        self.read(values)
        return next(filter(_is_damage, self.named_problems()), None)

    def named_problems(self) -> list[Problem]:
        """Each with the name of its file in the message."""
        return [
            problem if place == self.path else replace(problem, message=f"{place.name}: {problem.message}")
            for place, problem in self.problems or []
        ]

    def new_entry(self, run: Path) -> index.Entry:
        """What the index should say now, with what the old entry and the file itself know."""
        fresh = index.describe(run, self.path, self.step)
        entry = {**fresh, **self.entry, "bytes": fresh["bytes"], "verified": self.good}
        return {**entry, "sha256": self.sha256} if self.sha256 and self.good else entry


def _is_damage(problem: Problem) -> bool:
    return problem.severity == "error" and (problem.code, "error") not in _DOUBTS


def open_run(path: Path) -> Path:
    """The run directory, or a sentence about what was named instead."""
    if not path.exists():
        raise bad_input(f"{path} does not exist; name a run directory with {index.FOLDER}/ in it")
    if not path.is_dir():
        raise bad_input(f"{path} is a file; name the run directory (`scripts/verify_local.py` checks single files)")
    run = index.run_directory(path)
    if not (run / index.FOLDER).is_dir() and not find(run) and not without_step(run):
        raise bad_input(f"{run} has no {index.FOLDER}/; name a run directory, or make one with a first save")
    return run


def place(run: Path) -> Path:
    """Where they lie: checkpoints/, the run itself (Trainer, DeepSpeed), or the one folder of it that has any."""
    if (run / index.FOLDER).is_dir() or index.on_disk(run):
        return run / index.FOLDER if (run / index.FOLDER).is_dir() else run
    others = [path for path in sorted(run.iterdir()) if path.is_dir() and not path.is_symlink() and index.on_disk(path)]
    return others[0] if len(others) == 1 else run


def find(run: Path) -> list[Checkpoint]:
    """Oldest first; nothing is read yet."""
    known = {entry["path"]: entry for entry in index.read(run) or []}
    found = index.on_disk(place(run))
    return [Checkpoint(path, step, known.get(index.relative(run, path), {})) for step, path in found]


def read_all(run: Path) -> list[Checkpoint]:
    found = find(run)
    if not found:
        raise bad_input(f"{place(run)} holds no checkpoint: no file or folder with a step in its name")
    return [checkpoint.read() for checkpoint in found]


# -- to resume from


def newest_whole(
    candidates: list[Checkpoint], parts: tuple[str, ...] = ()
) -> tuple[Checkpoint | None, list[tuple[Checkpoint, Problem]]]:
    """The newest that is whole, has every part and whose parts are of one step; and why newer ones are not.

    One with a doubt is taken only when none is without: some trainers count in another unit. `parts` are globs of what
    a folder must hold; without them it must hold what most others hold.
    """
    present: dict[Path, set[str]] = {}  # file names without their numbers; in a single file the names at the top
    for path in (each.path for each in candidates if not parts and names.step(each.path.name) is not None):
        below = [one.relative_to(path).as_posix() for one in path.rglob("*") if one.is_file()] if path.is_dir() else []
        inside = (re.sub(r"\d+", "#", name) for name in below) if path.is_dir() else _headers(path).get("keys", ())
        present[path] = set(inside)
    skipped: list[tuple[Checkpoint, Problem]] = []
    doubtful: Checkpoint | None = None
    for each in sorted(candidates, key=lambda each: (each.step, each.path.name), reverse=True):
        damage = next(_incomplete(each.path, present), None) or each.damage(parts)
        problems = each.named_problems()
        inside = _headers(each.path).get("step") if each.path.is_file() else None
        if inside is not None:  # another step than its name says, as a copied backup has it
            problems += compare_steps(each.step, inside, "its name", exact=False)
        damage = damage or next(filter(_is_damage, problems), None)
        doubts = [problem for problem in problems if (problem.code, problem.severity) in _DOUBTS]
        if not damage and not doubts:
            return each, skipped
        if not damage:
            doubtful = doubtful or each
        skipped.append((each, damage or doubts[0]))
    return doubtful, [(each, why) for each, why in skipped if doubtful is None or each.step > doubtful.step]


def without_step(run: Path) -> list[Checkpoint]:
    """ckpt.pt, last.ckpt: the step is inside; a file without one (an export) is nothing to go on from."""
    found = []
    for path in sorted(place(run).iterdir()):
        candidate = path.name.endswith(index.SUFFIXES) and not names.is_unfinished(path.name)
        if candidate and names.step(path.name) is None and path.is_file() and not path.is_symlink():
            step = _headers(path).get("step")
            found += [] if step is None else [Checkpoint(path, step)]
    return found


def _headers(path: Path) -> dict[str, Any]:
    """What a single file says about itself, with the names at its top; {} when it holds no tensor."""
    layout = examine(path, HEADERS).layout
    return {**layout.facts, "keys": {str(key) for key in keys(layout.root)}} if layout.tensors else {}


def _incomplete(path: Path, present: dict[Path, set[str]]) -> Iterator[Problem]:
    """What most others of its kind have, it should have, too."""
    if (path / _UNFINISHED_MARK).exists():
        yield Problem("partial", "error", f"{_UNFINISHED_MARK} says that this save was cut")
    others = [each for other, each in present.items() if each and other != path and other.is_dir() == path.is_dir()]
    mine = present.get(path)
    if not mine or len(others) < 2:
        return
    usual = {part for each in others for part in each if sum(part in other for other in others) * 2 > len(others)}
    # a model that fits one file this time and three the next is still whole: its index is checked by itself
    lost = sorted(part for part in usual - mine if "-of-" not in part and not part.endswith(names.INDEX))
    if lost:
        yield Problem("missing", "error", f"{lost[0]} is not there, most others have it")
