"""Is this file real? One call, one file, every check that needs nothing but its bytes.

Example:
    artifact = examine(Path("step_100.pt"))
    artifact.real, [problem.message for problem in artifact.problems]
"""

from __future__ import annotations

import os
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path

from artifacts import facts, optimizer
from artifacts.formats import dcp, readers, torch_files
from artifacts.formats.window import Window
from artifacts.model import Artifact, Broken, Layout, Problem
from artifacts.values import judge, stream
from artifacts.values.stream import Tick

_NAMED = 10
CONTAINER, VALUES = ("container",), ("container", "finite", "nonzero", "range", "holes")


@dataclass(frozen=True)
class Options:
    digest: bool = True
    max_abs: float = judge.MAX_ABS
    values: bool = True  # False: headers only
    plain: bool = False  # any file: its digest and nothing else
    allow: dict[str, list[str]] = field(default_factory=dict)


HEADERS = Options(digest=False, values=False)


@dataclass(frozen=True)
class Blobs:
    """What .metadata says about one .distcp file."""

    items: list[dcp.Item]
    metadata: dcp.Metadata


def examine(
    path: Path, options: Options | None = None, blobs: Blobs | None = None, tick: Tick | None = None
) -> Artifact:
    """Never raises for anything the file holds; a file that cannot be read is a finding, too."""
    options = options or Options()
    start = time.perf_counter()
    artifact = Artifact(path, "file" if options.plain else "unknown", 0)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        artifact.problems.append(Problem("unreadable", "error", f"cannot be opened: {error.strerror}"))
        return artifact
    try:
        _examine(descriptor, artifact, options, blobs, tick)
    except OSError as error:
        artifact.problems.append(Problem("unreadable", "error", f"cannot be read: {error.strerror or error}"))
    finally:
        os.close(descriptor)
    artifact.seconds = time.perf_counter() - start
    return artifact


def _examine(descriptor: int, artifact: Artifact, options: Options, blobs: Blobs | None, tick: Tick | None) -> None:
    before = os.fstat(descriptor)
    if not stat.S_ISREG(before.st_mode):
        artifact.problems.append(Problem("unreadable", "error", "not a regular file"))
        return
    artifact.bytes = before.st_size
    window = Window(descriptor, 0, before.st_size)
    layout = Layout("file") if options.plain else _layout(window, artifact, blobs)
    artifact.layout = layout
    try:
        if options.values:
            _values(window, artifact, options, tick)
    except Broken as broken:
        artifact.problems.append(broken.problem)
    artifact.problems = list(judge.bounded(artifact.problems))
    after = os.fstat(descriptor)
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        artifact.problems.append(Problem("changed", "error", "was written to while it was read",
                                         fix="wait until the writer is done, then run this again"))  # fmt: skip


def _layout(window: Window, artifact: Artifact, blobs: Blobs | None) -> Layout:
    """What the headers say; an empty one when they cannot be read, so that the digest is still taken."""
    try:
        if blobs:
            layout = dcp.read_file(window, blobs.items, blobs.metadata)
        else:
            layout = readers.read(window, artifact.path.name)
        facts.collect(window, layout)
    except Broken as broken:
        artifact.problems.append(broken.problem)
        return Layout("unknown")
    artifact.format = layout.format
    artifact.problems += layout.problems
    artifact.problems += _refused(layout)
    return layout


def _refused(layout: Layout) -> list[Problem]:
    fix = "if you trust its source, look at it with --allow-pickle; better: save plain tensors"
    what = "which is not on the list of harmless names"
    found = [Problem("refused-global", "error", f"the pickle names {name[:120]}, {what}", fix=fix)
             for name in layout.refused[:_NAMED]]  # fmt: skip
    if len(layout.refused) > _NAMED:
        found.append(Problem("refused-global", "error", f"{len(layout.refused) - _NAMED} more names are refused"))
    return found


def _values(window: Window, artifact: Artifact, options: Options, tick: Tick | None) -> None:
    layout = artifact.layout
    done = stream.run(window, layout, digest=options.digest, max_abs=options.max_abs, tick=tick)
    artifact.sha256 = done.sha256
    if artifact.format in ("file", "unknown"):
        return
    rules = judge.Rules(options.max_abs, layout.facts.get("step"), options.allow)
    artifact.problems += done.problems
    artifact.problems += judge.judge(window, layout, done, rules)
    artifact.problems += optimizer.check(layout, done)
    artifact.checks = list(VALUES if layout.tensors else CONTAINER)
    artifact.problems += _no_tensor(layout, artifact.format)


def _no_tensor(layout: Layout, form: str) -> list[Problem]:
    """A scheduler's state holds numbers only; a file that should hold a model and holds nothing is a failed save."""
    hollow = layout.facts.get("hollow")
    if hollow and not any(tensor.role == "weight" for tensor in layout.tensors):
        return [Problem("empty", "error", f"its {hollow!r} holds nothing")]
    nothing = form in ("safetensors", "npz") or not torch_files.keys(layout.root)
    if nothing and not layout.tensors and not layout.problems and form not in ("pickle", "distcp"):
        return [Problem("empty", "error", "holds no tensor")]
    return []
