"""All checks of one path: its files in parallel, then what only several of them together show.

`deep` also loads files for real, in a subprocess, and compares the answer with what the headers said.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rgt.checkpoint import names, proof
from rgt.checkpoint.examine import Options, examine
from rgt.checkpoint.folders import check_folders
from rgt.checkpoint.layout import Artifact, Problem
from rgt.checkpoint.survey import Survey
from rgt.checkpoint.tensor_values import Tick
from rgt.errors import lacking

JOBS = min(4, os.cpu_count() or 1)  # files at once; each holds a buffer of 16 MB
_LOADABLE = {"torch", "torch-legacy", "lightning", "safetensors"}
# In a folder of its own: Python looks for modules beside a script first, and a pickle may name one called `model`.
_SCRIPT = Path(__file__).with_name("child") / "load.py"


@dataclass(frozen=True)
class Request:
    options: Options
    deep: bool = False
    jobs: int = JOBS


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
    def complete(self) -> bool:
        """Whether this verdict can be a proof for its folder."""
        whole = self.found.given.is_dir() or bool(self.expected.listed)
        return whole and bool(self.artifacts) and not self.expected.outside


def sizes(found: Survey) -> int:
    """Bytes to read, for the progress bar."""
    return sum(path.stat().st_size for path in found.artifacts if path.is_file())


class _Stopped(Exception):
    """Ends the threads that still read when the main thread was interrupted."""


def verify(found: Survey, request: Request, tick: Tick | None = None) -> Verification:
    expected = proof.gather(found)
    verdict = Verification(found, expected, *_examine_all(found, expected, request, tick))
    if request.deep:
        load_for_real(verdict.artifacts)
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
        message = f"{len(extra)} artifacts here are not listed in {proof.MANIFEST}: {', '.join(extra[:5])}"
        verdict.problems.append((found.given, Problem("extra", "info", message[:300])))
    if expected.outside:
        count = len(expected.listed) - len(expected.outside)
        message = f"holds {count} of {len(expected.listed)} files of {proof.MANIFEST}, so it is no proof of the pull"
        fix = f"for the proof, verify {expected.folder}"
        verdict.problems.append((found.given, Problem("unjudged", "info", message, fix=fix)))
    return verdict


def _examine_all(
    found: Survey, expected: proof.Expected, request: Request, tick: Tick | None
) -> tuple[list[Artifact], list[Artifact]]:
    """The artifacts, and the other files of which only the digest is taken."""
    named = {*expected.listed, *found.sides, *(folder / names.METADATA for folder in found.metadata)}
    plain = sorted(path for path in named - {*found.artifacts, *expected.outside} if os.path.isfile(path))
    lock, stop = threading.Lock(), threading.Event()

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
            more = [pool.submit(examine, path, replace(request.options, plain=True), tick=halt) for path in plain]
            return [future.result() for future in work], [future.result() for future in more]
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


# -- a real load


def load_for_real(artifacts: list[Artifact]) -> None:
    """Only files that passed every other check. Exit 3 without torch."""
    loadable = [artifact for artifact in artifacts if artifact.real and artifact.format in _LOADABLE]
    wanted = ["torch", *(["safetensors"] if any(each.format == "safetensors" for each in loadable) else [])]
    lost = [name for name in wanted if loadable and importlib.util.find_spec(name) is None]
    if lost:
        what = f"{' and '.join(lost)} cannot be imported, and a real load needs it"
        raise lacking(f"{what}; pip install {' '.join(lost)}")
    requests = [(artifact.format, str(artifact.path)) for artifact in loadable]
    answers: list[dict[str, Any]] = []
    while len(answers) < len(requests):  # one process for all, as importing torch takes seconds
        answers += _loaded(requests[len(answers) :])
    for artifact, answer in zip(loadable, answers, strict=True):
        artifact.problems += _judge_answer(artifact, answer)


def _loaded(requests: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """As many answers as the process gave, and a last one for the file at which it died."""
    command, text = [sys.executable, str(_SCRIPT)], json.dumps(requests)
    done = subprocess.run(command, input=text, capture_output=True, encoding="utf-8", errors="replace")
    answers: list[dict[str, Any]] = []
    with contextlib.suppress(ValueError):
        answers += map(json.loads, done.stdout.splitlines())
    if len(answers) < len(requests):
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        answers.append({"error": f"the loading process ended with code {done.returncode}: {last[:200]}"})
    return answers


def _judge_answer(artifact: Artifact, answer: dict[str, Any]) -> Iterator[Problem]:
    if answer.get("refused"):
        message = (
            f"torch.load(weights_only=True) refuses {answer['refused'][:120]}; it is harmless, but not on its list"
        )
        yield Problem("unloadable", "info", message)
        return
    if "error" in answer:
        yield Problem("unloadable", "error", f"does not load: {answer['error']}")
        return
    artifact.checks.append("load")
    ours = {tensor.name: [tensor.dtype.name, list(tensor.shape)] for tensor in artifact.layout.tensors}
    for name, (dtype, shape) in answer["tensors"].items():
        if ours.get(name, [dtype, shape]) != [dtype, shape]:
            message = f"loads as {dtype} {shape[:8]}, its header says {ours[name][0]} {ours[name][1][:8]}"
            yield Problem("unloadable", "error", message, where=name[:200])


# -- the proof


def prove(verdict: Verification, record: dict[str, Any]) -> Iterator[Path]:
    """Write the proof of a folder in which nothing failed. A warning does not stop it; it is counted in it."""
    examined = [*verdict.artifacts, *verdict.plain]
    if verdict.complete and not verdict.failed and all(artifact.sha256 for artifact in examined):
        warnings = sum(problem.severity == "warn" for _, problem in verdict.problems)
        yield proof.write(verdict.expected, examined, warnings, record)


def withdraw(verdict: Verification) -> Iterator[tuple[Path, Problem]]:
    path = verdict.expected.folder / proof.PROOF
    try:
        if proof.withdraw(path.parent):
            message = f"the earlier proof no longer holds; it is now {proof.STALE}"
            yield path, Problem("stale-proof", "info", message)
    except OSError as error:
        message = f"no longer holds and cannot be put aside: {error.strerror}"
        yield path, Problem("stale-proof", "error", message, fix="delete it")
