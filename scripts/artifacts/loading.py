"""--deep and --allow-pickle: a real load in a subprocess, and its answer against what the headers said."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from artifacts.model import INLINE, Artifact, Problem
from artifacts.survey import Survey
from rgt.errors import lacking

_LOADABLE = ("torch", "torch-legacy", "lightning", "safetensors", "npy", "npz", "distcp", "pickle")
_NEEDS_TORCH = ("torch", "torch-legacy", "lightning", "safetensors", "distcp")
# In a folder of its own: Python looks for modules beside a script first, and a pickle may name one called `model`.
_SCRIPT = Path(__file__).with_name("child") / "load.py"
Request = tuple[str, str, list[tuple[str, int, int]]]  # format, path, items of a .distcp file


def require(artifacts: list[Artifact]) -> None:
    """Exit 3 with a sentence when a real load is asked for and the libraries are not here."""
    formats = {artifact.format for artifact in artifacts}
    wanted = ["torch"] if formats & set(_NEEDS_TORCH) else []
    wanted += ["safetensors"] if "safetensors" in formats else []
    lost = [name for name in wanted if importlib.util.find_spec(name) is None]
    if lost:
        raise lacking(
            f"{' and '.join(lost)} cannot be imported, and a real load needs it; pip install {' '.join(lost)}"
        )


def check(artifacts: list[Artifact], found: Survey, allow_pickle: bool) -> None:
    """Load files that passed every other check, or lack nothing but trust; the answers become findings and checks."""
    loadable = [artifact for artifact in artifacts if artifact.format in _LOADABLE]
    loadable = [artifact for artifact in loadable if allow_pickle or artifact.format != "pickle"]
    requests = [_request(artifact, found) for artifact in loadable]
    for artifact, answer in zip(loadable, _ask(requests, allow_pickle), strict=True):
        artifact.problems += _judge(artifact, answer, allow_pickle)


def _request(artifact: Artifact, found: Survey) -> Request:
    blobs = found.blobs(artifact.path)
    items = [(item.name, item.offset, item.length) for item in blobs.items] if blobs else []
    return artifact.format, str(artifact.path), items


def _ask(requests: list[Request], allow_pickle: bool) -> list[dict[str, Any]]:
    """One process for all files, since importing torch takes seconds; one for each when their own code may run."""
    answers: list[dict[str, Any]] = []
    while len(answers) < len(requests):
        left = requests[len(answers) :]
        answers += _run(left[:1], "pickle") if allow_pickle else _run(left, "weights-only")
    return answers


def _run(requests: list[Request], mode: str) -> list[dict[str, Any]]:
    """As many answers as the process gave, and a last one for the file at which it died."""
    command = [sys.executable, str(_SCRIPT), mode]
    done = subprocess.run(command, input=json.dumps(requests), capture_output=True, encoding="utf-8", errors="replace")
    answers = []
    for line in done.stdout.splitlines():
        with contextlib.suppress(ValueError):  # what a file's own code prints is not an answer
            answers.append(json.loads(line))
    answers = [answer for answer in answers if isinstance(answer, dict) and {"tensors", "error"} & set(answer)]
    if len(answers) < len(requests):
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        answers.append({"error": f"the loading process ended with code {done.returncode}: {last[:200]}"})
    return answers[: len(requests)]


def _judge(artifact: Artifact, answer: dict[str, Any], allow_pickle: bool) -> list[Problem]:
    if "error" not in answer:
        artifact.checks.append("load")
        if allow_pickle:
            _disclose(artifact)
        return list(_differences(artifact, answer["tensors"]))
    if answer.get("refused") and not allow_pickle:
        message = (
            f"torch.load(weights_only=True) refuses {answer['refused'][:120]}; it is harmless, but not on its list"
        )
        return [Problem("unloadable", "info", message, fix="add --allow-pickle to load it all the same")]
    return [Problem("unloadable", "error", f"does not load: {answer['error']}")]


def _differences(artifact: Artifact, loaded: dict[str, Any]) -> Iterator[Problem]:
    """Our reading of the headers and the library's must agree."""
    ours = {tensor.name: tensor for tensor in artifact.layout.tensors if tensor.source != INLINE}
    for name, (dtype, shape) in loaded.items():
        tensor = ours.get(name)
        if (
            tensor
            and artifact.format not in ("npy", "npz")
            and (tensor.dtype.name, list(tensor.shape)) != (dtype, shape)
        ):
            message = f"loads as {dtype} {shape[:8]}, its header says {tensor.dtype.name} {list(tensor.shape)[:8]}"
            yield Problem("unloadable", "error", message, where=name[:200])


def _disclose(artifact: Artifact) -> None:
    """With --allow-pickle, and loaded: unknown names are disclosed, no longer an error."""
    for problem in artifact.problems:
        if problem.code == "refused-global":
            problem.severity, problem.fix = "info", None
            problem.message += "; it was run in a subprocess because of --allow-pickle"
