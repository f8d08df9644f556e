"""All checks of one path: its files in parallel, then what only several of them together show.

Example:
    verdict = verify(survey(path), Options())        verdict.failed, verdict.problems
    load_for_real(verdict, job_python())             what passed is loaded in the user's Python, and compared
"""

from __future__ import annotations

import json
import os
import tempfile
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
from rgt.checkpoint.survey import Survey, may_be_weights
from rgt.checkpoint.tensor_values import Tick
from rgt.errors import lacking
from rgt.machine import outside

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
        unopened = [artifact.path for artifact in self.artifacts if artifact.layout.facts.get("unopened")]
        rows = [(os.path.getsize(path), path) for path in (*self.found.others, *unopened) if os.path.isfile(path)]
        return [{"path": str(path), "bytes": size} for size, path in sorted(rows, key=lambda row: -row[0])]

    @property
    def unchecked_weights(self) -> list[Path]:
        return [path for row in self.unchecked if may_be_weights(path := Path(row["path"]))]

    @property
    def complete(self) -> bool:
        """Whether this verdict can be a proof: of a pull, and of all of it."""
        return bool(self.expected.listed) and bool(self.artifacts) and not self.expected.outside


def sizes(found: Survey) -> int:
    """Bytes to read, for the progress bar."""
    return sum(path.stat().st_size for path in found.artifacts if path.is_file())


class _Stopped(Exception):
    """Ends the threads that still read when the main thread was interrupted."""


def verify(found: Survey, options: Options, tick: Tick | None = None, jobs: int = JOBS) -> Verification:
    expected = proof.gather(found)
    verdict = Verification(found, expected, *_examine_all(found, expected, options, tick, jobs))
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
    found: Survey, expected: proof.Expected, options: Options, tick: Tick | None, jobs: int
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

    with ThreadPoolExecutor(jobs) as pool:
        try:
            work = [pool.submit(examine, p, options, found.blobs(p), shared_tick) for p in found.artifacts]
            more = [pool.submit(examine, path, replace(options, plain=True), tick=halt) for path in plain]
            return [future.result() for future in work], [future.result() for future in more]
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
        unchecked = [{**row, "path": os.path.relpath(row["path"], folder)} for row in verdict.unchecked]
        yield proof.write(verdict.expected, examined, {**said, "unchecked": unchecked, **record})


def withdraw(verdict: Verification) -> Iterator[tuple[Path, Problem]]:
    path = verdict.expected.folder / proof.PROOF
    try:
        if proof.withdraw(path.parent):
            message = f"the earlier proof no longer holds; it is now {proof.STALE}"
            yield path, Problem("stale-proof", "info", message)
    except OSError as error:
        message = f"no longer holds and cannot be put aside: {error.strerror}"
        yield path, Problem("stale-proof", "error", message, fix="delete it")


# -- the load for real


LOAD_SECONDS, BYTES_PER_SECOND = 120.0, 20e6  # an import of torch, and a slow disk
_MODULES = dict.fromkeys(("torch", "torch-legacy", "lightning", "distcp"), "torch")
_MODULES |= {"safetensors": "torch safetensors", "npy": "numpy", "npz": "numpy"}
_SCRIPT = Path(__file__).with_name("child") / "load.py"


def load_for_real(verdict: Verification, python: str) -> None:
    """Adds what it finds to the verdict. Exit 3 when that Python cannot load such files."""
    left = []
    for artifact in verdict.artifacts:
        if not artifact.real:
            continue
        if artifact.format in _MODULES:
            left.append(artifact)
        else:
            message = f"{artifact.format} was not loaded: that would run the code in it"
            _add(verdict, artifact, Problem("unjudged", "info", message))
    while left:  # one process for all, as importing torch takes seconds; a new one after the file at which it ended
        answers, end = _answers(verdict, left, python)
        for artifact, answer in zip(left, answers):  # noqa: B905  # it may have ended before the last
            for problem in _judge(artifact, answer):
                _add(verdict, artifact, problem)
        left = left[len(answers) :]
        ended = left if end.startswith(outside.LATE) else left[:1]  # a disk that hangs does so for the others, too
        for artifact in ended:
            _add(verdict, artifact, Problem("unloadable", "error", f"was not loaded, the process for it ended: {end}"))
        left = left[len(ended) :]


def _add(verdict: Verification, artifact: Artifact, problem: Problem) -> None:
    artifact.problems.append(problem)
    verdict.problems.append((artifact.path, problem))


def _answers(verdict: Verification, artifacts: list[Artifact], python: str) -> tuple[list[dict[str, Any]], str]:
    """What the process said of the first so many artifacts, and how it ended."""
    modules = dict.fromkeys(module for artifact in artifacts for module in _MODULES[artifact.format].split())
    files = []
    for artifact in artifacts:
        items, _ = verdict.found.blobs(artifact.path) or ([], None)
        places = [(item.name, item.offset, item.length) for item in items]
        files.append((artifact.format, str(artifact.path.absolute()), places))
    seconds = LOAD_SECONDS + sum(artifact.bytes for artifact in artifacts) / BYTES_PER_SECOND
    with tempfile.TemporaryDirectory(prefix="rgt-load-") as folder:
        request, answers = Path(folder, "request"), Path(folder, "answers")
        request.write_text(json.dumps({"modules": list(modules), "files": files}))
        answers.touch()
        # not in the current directory: PYTHONPATH may name it, and a stranger's box may have sent a torch.py there
        done = outside.tool(python, str(_SCRIPT), str(request), str(answers), seconds=seconds, cwd=folder)
        lines = answers.read_text().splitlines(keepends=True)
    end = done.problem or "exit code 0"
    if not lines:
        raise lacking(f"{python} cannot load checkpoints ({end}); name the training's interpreter with --python")
    return [json.loads(line) for line in lines[1:] if line.endswith("\n")], end


def _judge(artifact: Artifact, answer: dict[str, Any]) -> Iterator[Problem]:
    if "refused" in answer:
        message = f"torch.load(weights_only=True) refuses {answer['refused'][:120]}, so it was not loaded"
        yield Problem("unloadable", "info", message, fix="save plain tensors, and it loads everywhere")
    elif "error" in answer:
        yield Problem("unloadable", "error", f"does not load: {answer['error']}")
    else:
        artifact.checks.append("load")
        theirs = {name: f"{dtype} {shape[:8]}" for name, (dtype, shape) in answer["tensors"].items()}
        ours = {}
        for tensor in artifact.layout.tensors:
            if tensor.dtype.kind == "opaque":  # records and strings, which numpy calls by other names
                theirs.pop(tensor.name, None)
            elif tensor.source != INLINE:
                ours[tensor.name] = f"{tensor.dtype.name} {list(tensor.shape)[:8]}"
        for name in (name for name in ours if theirs.get(name, ours[name]) != ours[name]):
            message = f"loads as {theirs[name]}, its header says {ours[name]}"
            yield Problem("unloadable", "error", message, where=name[:200])
        lost, new = ours.keys() - theirs.keys(), theirs.keys() - ours.keys()
        # a sparse tensor has several parts in the file: s.0, s.1 there are s here
        lost, new = (
            {name for name in lost if not name.startswith(tuple(f"{one}." for one in new))},
            {name for name in new if not any(one.startswith(f"{name}.") for one in lost)},
        )
        if lost or new:
            message = f"{len(lost)} of its tensors do not come back by their names, {len(new)} others do"
            yield Problem("unloadable", "warn", message, where=min(lost | new)[:200])
