"""All checks of one path: its files in parallel, then what only several of them together show.

`deep` and `allow_pickle` also load files for real, in a subprocess, and compare the answer with what the headers said.
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
from rgt.checkpoint.layout import INLINE, Artifact, Problem
from rgt.checkpoint.survey import Survey
from rgt.checkpoint.tensor_values import Tick
from rgt.errors import lacking

JOBS = min(4, os.cpu_count() or 1)  # files at once; each holds a buffer of 16 MB
_NEED_TORCH = {"torch", "torch-legacy", "lightning", "safetensors", "distcp"}
_LOADABLE = _NEED_TORCH | {"npy", "npz", "pickle"}
# In a folder of its own: Python looks for modules beside a script first, and a pickle may name one called `model`.
_SCRIPT = Path(__file__).with_name("child") / "load.py"


@dataclass(frozen=True)
class Request:
    options: Options
    deep: bool = False
    allow_pickle: bool = False
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
    if request.deep or request.allow_pickle:
        load_for_real(verdict, request)
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


def load_for_real(verdict: Verification, request: Request) -> None:
    """Only files that passed every other check, or lack nothing but trust. Exit 3 without torch."""
    loadable = []
    for artifact in verdict.artifacts:
        errors = {problem.code for problem in artifact.problems if problem.severity == "error"}
        trusted = errors == {"refused-global"} and request.allow_pickle
        plain_pickle = artifact.format == "pickle" and not request.allow_pickle
        if ((request.deep and not errors) or trusted) and artifact.format in _LOADABLE and not plain_pickle:
            loadable.append(artifact)
    formats = {artifact.format for artifact in loadable}
    wanted = [*(["torch"] if formats & _NEED_TORCH else []), *(["safetensors"] if "safetensors" in formats else [])]
    lost = [name for name in wanted if importlib.util.find_spec(name) is None]
    if lost:
        what = f"{' and '.join(lost)} cannot be imported, and a real load needs it"
        raise lacking(f"{what}; pip install {' '.join(lost)}")
    requests = []
    for artifact in loadable:
        blobs = verdict.found.blobs(artifact.path)
        items = [(item.name, item.offset, item.length) for item in blobs.items] if blobs else []
        requests.append((artifact.format, str(artifact.path), items))
    answers: list[dict[str, Any]] = []
    while len(answers) < len(requests):  # one process for all, as importing torch takes seconds; one each for own code
        left = requests[len(answers) :]
        answers += _loaded(left[:1], "pickle") if request.allow_pickle else _loaded(left, "weights-only")
    for artifact, answer in zip(loadable, answers, strict=True):
        artifact.problems += _judge_answer(artifact, answer, request.allow_pickle)


def _loaded(requests: list[tuple[str, str, list[tuple[str, int, int]]]], mode: str) -> list[dict[str, Any]]:
    """As many answers as the process gave, and a last one for the file at which it died."""
    command = [sys.executable, str(_SCRIPT), mode]
    done = subprocess.run(command, input=json.dumps(requests), capture_output=True, encoding="utf-8", errors="replace")
    answers = []
    for line in done.stdout.splitlines():
        with contextlib.suppress(ValueError):  # what a file's own code prints is not an answer
            answer = json.loads(line)
            if isinstance(answer, dict) and {"tensors", "error"} & set(answer):
                answers.append(answer)
    if len(answers) < len(requests):
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        answers.append({"error": f"the loading process ended with code {done.returncode}: {last[:200]}"})
    return answers[: len(requests)]


def _judge_answer(artifact: Artifact, answer: dict[str, Any], allow_pickle: bool) -> Iterator[Problem]:
    refused = answer.get("refused")
    if "error" in answer and refused and not allow_pickle:
        message = f"torch.load(weights_only=True) refuses {refused[:120]}; it is harmless, but not on its list"
        yield Problem("unloadable", "info", message, fix="add --allow-pickle to load it all the same")
        return
    if "error" in answer:
        yield Problem("unloadable", "error", f"does not load: {answer['error']}")
        return
    artifact.checks.append("load")
    for problem in artifact.problems if allow_pickle else ():
        if problem.code == "refused-global":  # disclosed, no longer an error
            problem.severity, problem.fix = "info", None
            problem.message += "; it was run in a subprocess because of --allow-pickle"
    ours = {tensor.name: tensor for tensor in artifact.layout.tensors if tensor.source != INLINE}
    for name, (dtype, shape) in answer["tensors"].items() if artifact.format not in ("npy", "npz") else ():
        tensor = ours.get(name)
        if tensor and (tensor.dtype.name, list(tensor.shape)) != (dtype, shape):
            message = f"loads as {dtype} {shape[:8]}, its header says {tensor.dtype.name} {list(tensor.shape)[:8]}"
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
