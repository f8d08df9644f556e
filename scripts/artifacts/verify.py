"""All checks of one path: its files in parallel, then what only several of them together show."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from artifacts import expect, loading, proof, units
from artifacts.examine import Options, examine
from artifacts.expect import Expectation
from artifacts.folders import check
from artifacts.formats.dcp import METADATA
from artifacts.model import Artifact, Problem
from artifacts.survey import Survey
from artifacts.values.stream import Tick

JOBS = min(4, os.cpu_count() or 1)  # files at once; each holds a ring of buffers of 20 MB


@dataclass(frozen=True)
class Request:
    options: Options
    expectation: Expectation | None = None
    deep: bool = False
    allow_pickle: bool = False
    jobs: int = JOBS


@dataclass
class Verdict:
    found: Survey
    expected: proof.Expected
    artifacts: list[Artifact]  # checkpoints and arrays
    plain: list[Artifact]  # other files: only their digests
    problems: list[tuple[Path, Problem]] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return any(problem.severity == "error" for _, problem in self.problems)

    @property
    def complete(self) -> bool:
        """Whether this verdict can be a proof for its folder."""
        return bool(self.artifacts) and not self.expected.outside and (
            self.found.given.is_dir() or bool(self.expected.listed))  # fmt: skip


def sizes(found: Survey) -> int:
    """Bytes to read, for the progress bar."""
    return sum(path.stat().st_size for path in found.artifacts if path.is_file())


class _Stopped(Exception):
    """Ends the threads that still read when the main thread was interrupted."""


def verify(found: Survey, request: Request, tick: Tick | None = None) -> Verdict:
    expected = proof.gather(found)
    verdict = Verdict(found, expected, *_examine(found, _plain(found, expected), request, tick))
    _load(verdict, request)
    _judge(verdict, request)
    return verdict


def _examine(
    found: Survey, plain: list[Path], request: Request, tick: Tick | None
) -> tuple[list[Artifact], list[Artifact]]:
    lock, stop = threading.Lock(), threading.Event()
    digest_only = replace(request.options, plain=True)

    def halt(count: int) -> None:
        if stop.is_set():
            raise _Stopped

    def shared_tick(count: int) -> None:
        halt(count)
        with lock:
            (tick or (lambda _: None))(count)

    with ThreadPoolExecutor(request.jobs) as pool:
        try:
            work = [pool.submit(examine, p, request.options, found.blobs(p), shared_tick) for p in found.artifacts]
            more = [pool.submit(examine, path, digest_only, tick=halt) for path in plain]
            return [future.result() for future in work], [future.result() for future in more]
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _plain(found: Survey, expected: proof.Expected) -> list[Path]:
    named = {*expected.listed, *found.sides, *(folder / METADATA for folder in found.metadata)}
    return sorted(path for path in named - set(found.artifacts) - set(expected.outside) if os.path.isfile(path))


def _load(verdict: Verdict, request: Request) -> None:
    if not request.deep and not request.allow_pickle:
        return
    wanted = [artifact for artifact in verdict.artifacts if _worth_loading(artifact, request)]
    loading.require(wanted)
    loading.check(wanted, verdict.found, request.allow_pickle)


def _worth_loading(artifact: Artifact, request: Request) -> bool:
    """Damaged and hostile files are never loaded; refused ones only with --allow-pickle."""
    errors = {problem.code for problem in artifact.problems if problem.severity == "error"}
    if errors - {"refused-global"} or (errors and not request.allow_pickle):
        return False
    return request.deep or bool(errors)


def _judge(verdict: Verdict, request: Request) -> None:
    by_path = {artifact.path: artifact for artifact in verdict.artifacts}
    for artifact in (*verdict.artifacts, *verdict.plain):
        artifact.problems += proof.compare(artifact, verdict.expected)
        verdict.problems += [(artifact.path, problem) for problem in artifact.problems]
    others: Iterable[tuple[Path, Problem]] = [
        *verdict.found.problems,
        *verdict.expected.problems,
        *check.check(verdict.found, by_path),
        *_compared(verdict, by_path, request.expectation),
    ]
    for path, problem in others:
        verdict.problems.append((path, problem))
        if path in by_path:
            by_path[path].problems.append(problem)
    if verdict.expected.listed:
        _against_manifest(verdict)


def _compared(
    verdict: Verdict, by_path: dict[Path, Artifact], expectation: Expectation | None
) -> list[tuple[Path, Problem]]:
    if expectation is None:
        return []
    found = list(units.tables(verdict.found, by_path))
    for unit in found:
        for member in unit.members:
            member.checks.append("dimensions")
    if not found:
        return [(verdict.found.given, Problem("missing", "error", "holds no weights to compare with --expect"))]
    return [(unit.path, problem) for unit in found for problem in expect.compare(expectation, unit)]


def _against_manifest(verdict: Verdict) -> None:
    expected, given = verdict.expected, verdict.found.given
    extra = [artifact.path.name for artifact in verdict.artifacts if artifact.path not in expected.listed]
    if extra:
        message = f"{len(extra)} artifacts here are not listed in {proof.MANIFEST}: {', '.join(extra[:5])}"
        verdict.problems.append((given, Problem("extra", "info", message[:300])))
    if expected.outside:
        count = len(expected.listed) - len(expected.outside)
        message = f"holds {count} of {len(expected.listed)} files of {proof.MANIFEST}, so it is no proof of the pull"
        fix = f"for the proof, verify {expected.folder}"
        verdict.problems.append((given, Problem("unjudged", "info", message, fix=fix)))


# -- the proof


def prove(verdict: Verdict, record: dict[str, Any]) -> Iterator[Path]:
    """Write the proof of a folder in which nothing failed. A warning does not stop it; it is counted in it."""
    examined = [*verdict.artifacts, *verdict.plain]
    if verdict.complete and not verdict.failed and all(artifact.sha256 for artifact in examined):
        warnings = sum(problem.severity == "warn" for _, problem in verdict.problems)
        yield proof.write(verdict.expected, examined, warnings, record)


def withdraw(verdict: Verdict) -> Iterator[tuple[Path, Problem]]:
    try:
        stale = proof.withdraw(verdict.expected)
    except OSError as error:
        message = f"no longer holds and cannot be put aside: {error.strerror}"
        yield verdict.expected.folder / proof.PROOF, Problem("stale-proof", "error", message, fix="delete it")
        return
    if stale:
        message = f"the earlier proof no longer holds; it is now {stale.name}"
        yield stale.with_name(proof.PROOF), Problem("stale-proof", "info", message)
