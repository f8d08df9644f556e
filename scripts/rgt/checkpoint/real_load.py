"""Load what passed every other check for real, in the user's Python, and compare it with what our readers saw.

Example:
    load_for_real(verify(survey(path), Options()), job_python())
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt.checkpoint.layout import INLINE, Artifact, Problem
from rgt.checkpoint.verify import Verification
from rgt.errors import lacking
from rgt.machine import outside

SECONDS, BYTES_PER_SECOND = 120.0, 20e6  # an import of torch, and a slow disk
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
    seconds = SECONDS + sum(artifact.bytes for artifact in artifacts) / BYTES_PER_SECOND
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
