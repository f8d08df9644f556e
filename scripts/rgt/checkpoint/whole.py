"""Is this checkpoint whole? One answer for every tool, from the readers that verify_local uses.

Example:
    answer = verdict(Path("checkpoint-500"))
    answer.whole, answer.reason        True, ""  |  False, "model.safetensors: ends 80 bytes behind the end of the file"

A look reads headers, and up to READ bytes for their checksums; `values=True` also judges every value (NaN, zeros,
range), which needs numpy. Otherwise the standard library is enough. Nothing is ever unpickled.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgt.checkpoint import names
from rgt.checkpoint.examine import Options
from rgt.checkpoint.survey import survey
from rgt.checkpoint.verify import verify
from rgt.errors import RgtError
from rgt.machine import disks, open_files

READ = 256 << 20  # bytes that a look reads for their checksums
_HEADERS_SECONDS = 5.0
_SETTLED = 60.0  # seconds without a write after which an incomplete file counts as broken, not as being written
_GAP = 5.0  # seconds in which a writer may be between two files of one checkpoint
_UNSURE = {"not-a-checkpoint", "refused-global", "unjudged", "unknown"}  # not verified, not shown to be damaged either


@dataclass
class Verdict:
    path: Path
    whole: bool
    reason: str = ""  # the first error, in a clause
    code: str = ""  # of that error
    step: int | None = None
    bytes: int = 0
    format: str = "unknown"
    mtime: float = 0.0
    depth: str = "none"  # values | read (all checksums) | structure | none
    files: tuple[Path, ...] = ()  # that were examined

    @property
    def state(self) -> str:
        """ok | writing | unknown (a format or a pickle that cannot be judged) | broken"""
        if self.whole:
            return "ok"
        age, path = time.time() - self.mtime, str(self.path)
        if age < _GAP:
            return "writing"
        # a process has it open, or one that cannot be seen from here may have
        if age < _SETTLED and (disks.is_remote(path) or open_files.writers([path], of_owner=True) != []):
            return "writing"
        return "unknown" if self.code in _UNSURE else "broken"

    @property
    def message(self) -> str:
        if self.state != "writing":
            return self.reason
        return f"written seconds ago and not complete yet ({self.reason}); look again"

    def as_dict(self) -> dict[str, Any]:
        shown = ("path", "state", "depth", "message", "bytes", "mtime", "format", "step")
        row = {name: getattr(self, name) for name in shown} | {"path": str(self.path)}
        return {name: value for name, value in row.items() if value not in ("", None)}


def verdict(path: Path, values: bool = False, read: int = READ, read_until: float = math.inf) -> Verdict:
    """One file, or a folder that is one checkpoint. Never raises for what is there. Times are of time.monotonic()."""
    try:
        found = survey(path)
        headers_until = time.monotonic() + _HEADERS_SECONDS
        share = read // max(len(found.artifacts), 1)
        options = Options(False, values=values, read=share, read_until=read_until, headers_until=headers_until)
        done = verify(found, options, jobs=1)
    except (RgtError, OSError, ValueError) as error:
        return Verdict(path, False, getattr(error, "message", None) or str(error), "unreadable")
    answer = Verdict(path, not done.failed, files=tuple(artifact.path for artifact in done.artifacts))
    for artifact in done.artifacts:
        answer.bytes += artifact.bytes
        with contextlib.suppress(OSError):
            answer.mtime = max(answer.mtime, os.stat(artifact.path).st_mtime)
        answer.format = artifact.format if answer.format == "unknown" else answer.format
    inside = (artifact.layout.facts.get("step") for artifact in done.artifacts)
    answer.step = next((step for step in inside if step is not None), names.step(path.name))
    answer.depth = "values" if values else "read" if all(a.checks for a in done.artifacts) else "structure"
    errors = [entry for entry in done.problems if entry[1].severity == "error"]
    errors.sort(key=lambda entry: entry[1].code in _UNSURE)  # damage is said first
    if errors:
        place, problem = errors[0]
        below = f"{place.relative_to(path).as_posix()}: " if place != path and place.is_relative_to(path) else ""
        answer.code, answer.reason = problem.code, f"{below}{problem.message}"
    return answer
