"""All checks of one path: its files in parallel, then what only several of them together show.

Example:
    verdict = verify(survey(path), Options())        verdict.failed, verdict.problems
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rgt import files
from rgt.checkpoint import names, proof
from rgt.checkpoint.examine import Options, examine
from rgt.checkpoint.folders import check_folders
from rgt.checkpoint.layout import Artifact, Layout, Problem
from rgt.checkpoint.survey import Known, Survey, may_be_weights
from rgt.checkpoint.tensor_values import READ, Tick

JOBS = min(4, os.cpu_count() or 1)  # files at once; each holds a buffer of 16 MB


@dataclass
class Verification:
    found: Survey
    expected: proof.Expected
    artifacts: list[Artifact]  # checkpoints and arrays
    plain: list[Artifact]  # other files: only their digests
    problems: list[tuple[Path, Problem]] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return any(problem.severity == "error" for _, problem in self.problems)

    @property
    def word(self) -> str:
        """sound | strangers (sound, and loading it imports code that is not a known library's) | damaged | unknown"""
        if self.failed:
            codes = {problem.code for _, problem in self.problems if problem.severity == "error"}
            return "unknown" if codes == {"unknown"} else "damaged"
        return "strangers" if self.strangers else "sound"

    @property
    def strangers(self) -> list[str]:
        """Names that loading would import, and that nobody allowed."""
        return sorted({name for artifact in self.artifacts for name in artifact.strangers} | set(self.found.strangers))

    @property
    def unchecked(self) -> list[dict[str, Any]]:
        """Files of the folder that were not opened, the largest first."""
        rows = [(size, path) for path, size in self.found.others.items() if size is not None]
        rows += [(each.bytes, each.path) for each in self.artifacts if each.layout.facts.get("unopened")]
        return [{"path": str(path), "bytes": size} for size, path in sorted(rows, key=lambda row: -row[0])]

    @property
    def unchecked_weights(self) -> list[Path]:
        return [path for row in self.unchecked if may_be_weights((path := Path(row["path"])).name, row["bytes"])]

    @property
    def complete(self) -> bool:
        """Whether this verdict can be a proof: of a pull, and of all of it."""
        return bool(self.expected.listed) and bool(self.artifacts) and not self.expected.outside


def sizes(found: Survey) -> int:
    """Bytes to read, for the progress bar."""
    return sum(path.stat().st_size for path in found.artifacts if path.is_file())


_PLAIN = Layout("file")  # of all files that are not looked into


class _Stopped(Exception):
    """Ends the threads that still read when the main thread was interrupted."""


def verify(
    found: Survey, options: Options, tick: Tick | None = None, jobs: int = JOBS, known: Known | None = None
) -> Verification:
    """`known`: digests of files that need not be read again for it, unless they are checkpoints."""
    expected = proof.gather(found)
    verdict = Verification(found, expected, *_examine_all(found, expected, options, tick, jobs, known or {}))
    by_path = {artifact.path: artifact for artifact in verdict.artifacts}
    of_files: list[tuple[Path, Problem]] = []
    for artifact in (*verdict.artifacts, *verdict.plain):
        artifact.problems += proof.compare(artifact, expected)
        of_files += [(artifact.path, problem) for problem in artifact.problems]
    of_sets = [*expected.problems, *check_folders(found, by_path)]
    for path, problem in (*found.problems, *of_sets):
        if path in by_path:
            by_path[path].problems.append(problem)
    # a folder without its table of contents comes first: what its files then look like follows from that
    verdict.problems = [*found.problems, *of_files, *of_sets]
    extra = [artifact.path.name for artifact in verdict.artifacts if artifact.path not in expected.listed]
    if expected.listed and extra:
        message = f"{len(extra)} artifacts here are not listed in {names.MANIFEST}: {', '.join(extra[:5])}"
        verdict.problems.append((found.given, Problem("extra", "info", message[:300])))
    if expected.outside:
        count = len(expected.listed) - len(expected.outside)
        message = f"holds {count} of {len(expected.listed)} files of {names.MANIFEST}, so it is no proof of the pull"
        fix = f"for the proof, verify {expected.folder}"
        verdict.problems.append((found.given, Problem("unjudged", "info", message, fix=fix)))
    return verdict


def _examine_all(
    found: Survey, expected: proof.Expected, options: Options, tick: Tick | None, jobs: int, known: Known
) -> tuple[list[Artifact], list[Artifact]]:
    """The artifacts, and the other files of which only the digest is taken."""
    named = {*expected.listed, *found.sides, *(folder / names.METADATA for folder in found.metadata)}
    plain = sorted(named - {*found.artifacts, *expected.outside}, key=str)
    lock, stop = threading.Lock(), threading.Event()

    def shared_tick(count: int) -> None:
        if stop.is_set():
            raise _Stopped
        with lock:
            (tick or (lambda _: None))(count)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            work = [pool.submit(examine, p, options, found.blobs(p), shared_tick) for p in found.artifacts]
            more: list[Artifact | Future[Artifact]] = []
            digest = replace(options, plain=True)
            for path in plain:
                with contextlib.suppress(OSError):  # gone, which the manifest's check says
                    state = files.file_state(seen := os.stat(path))
                    if (one := known.get(str(path))) and one.state == state:
                        more.append(Artifact(path, "file", seen.st_size, one.sha256, _PLAIN))
                    elif stat.S_ISREG(seen.st_mode) and seen.st_size <= READ:  # done before threads would take turns
                        more.append(examine(path, digest))
                    elif stat.S_ISREG(seen.st_mode):
                        more.append(pool.submit(examine, path, digest, tick=lambda _: shared_tick(0)))
            rest = [one if isinstance(one, Artifact) else one.result() for one in more]
            return [future.result() for future in work], rest
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


# -- the proof


def prove(verdict: Verification, record: dict[str, Any]) -> Iterator[Path]:
    """Write the proof of a folder in which nothing failed. A warning does not stop it; it is counted in it."""
    examined = [*verdict.artifacts, *verdict.plain]
    if verdict.complete and not verdict.failed and all(artifact.sha256 for artifact in examined):
        warnings = sum(problem.severity == "warn" for _, problem in verdict.problems)
        said = {"verdict": verdict.word, "strangers": verdict.strangers, "warnings": warnings}
        folder = verdict.expected.folder
        unchecked = [{**row, "path": proof.relative(row["path"], folder)} for row in verdict.unchecked]
        yield proof.write(verdict.expected, examined, {**said, "unchecked": unchecked, **record})


def withdraw(verdict: Verification) -> Iterator[tuple[Path, Problem]]:
    path = verdict.expected.folder / names.PROOF
    try:
        if proof.withdraw(path.parent):
            yield path, Problem("stale-proof", "info", f"the earlier proof no longer holds; it is now {names.STALE}")
    except OSError as error:
        message = f"no longer holds and cannot be put aside: {error.strerror}"
        yield path, Problem("stale-proof", "error", message, fix="delete it")
