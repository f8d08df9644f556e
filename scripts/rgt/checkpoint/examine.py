"""Is this file real? One call, one file, every check that needs nothing but its bytes.

Example:
    artifact = examine(Path("step_100.pt"))
    artifact.real, [problem.message for problem in artifact.problems]
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rgt.checkpoint import names
from rgt.checkpoint.formats import dcp, readers
from rgt.checkpoint.formats.container import Late, Window, blocks
from rgt.checkpoint.formats.pickles import Call
from rgt.checkpoint.formats.torch_files import keys
from rgt.checkpoint.layout import FILE, MODEL, Artifact, Broken, Layout, Problem
from rgt.checkpoint.tensor_values import READ, Checksums, Tick, read_values
from rgt.checkpoint.value_rules import MAX_ABS, bounded, judge_values

STEP_KEYS = ("global_step", "step", "iter_num", "global_steps", "iteration", "steps")
CONTAINERS = ("state_dict", "model_state_dict", "model", "module", "net", "network", "weights")
_SCALARS = {"float32": "f", "float64": "d", "int64": "q", "int32": "i"}
# A gradient scaler skips steps, most of them at the start, so the optimizer may have made somewhat fewer.
_SLACK, _SKIPPED = 0.1, 16
_ACCUMULATED = 256  # micro-steps in one step of the optimizer, at most
_CHUNK = 1 << 20
_MAY_BE_EMPTY = ("pickle", "distcp", "onnx")  # a program of operations may need no weights


@dataclass(frozen=True)
class Options:
    digest: bool = True
    max_abs: float = MAX_ABS
    values: bool = True  # False: no numpy; headers, and checksums when `read` says so
    read: int = 0  # without values: files up to this many bytes are read for their checksums
    read_until: float = math.inf  # of time.monotonic()
    headers_until: float = math.inf
    plain: bool = False  # any file: its digest and nothing else
    allow: dict[str, list[str]] = field(default_factory=dict)


HEADERS = Options(digest=False, values=False)


Blobs = tuple[list[dcp.Item], dcp.Metadata]  # what .metadata says about one .distcp file


def examine(
    path: Path, options: Options | None = None, blobs: Blobs | None = None, tick: Tick | None = None
) -> Artifact:
    """Never raises for anything the file holds; a file that cannot be read is a finding, too."""
    options = options or Options()
    artifact = Artifact(path, "file" if options.plain else "unknown", 0)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        artifact.problems.append(Problem("unreadable", "error", f"cannot be opened: {error.strerror}"))
        return artifact
    try:
        before = os.fstat(descriptor)
        if not stat.S_ISREG(before.st_mode):
            raise Broken("unreadable", "not a regular file")
        artifact.bytes = before.st_size
        window = Window(descriptor, 0, before.st_size, options.headers_until)
        artifact.layout = Layout("file") if options.plain else _read_headers(window, artifact, blobs, options)
        try:
            if options.plain and options.digest and window.length <= READ:  # a run has thousands of small ones
                artifact.sha256 = hashlib.sha256(window.read(0, window.length)).hexdigest()
            elif options.values:
                whole, layout = replace(window, deadline=math.inf), artifact.layout
                done = read_values(whole, layout, digest=options.digest, max_abs=options.max_abs, tick=tick)
                artifact.sha256 = done.sha256
                layout.facts["varied"] = any(not segment.stats.constant for segment in done.segments)
                if artifact.format not in ("file", "unknown"):
                    judged = judge_values(whole, done, layout, options.max_abs, options.allow)
                    artifact.problems += [*done.problems, *judged]
                    values = ["finite", "nonzero", "range", "holes"] if layout.tensors else []
                    artifact.checks = [] if layout.facts.get("unopened") else ["container", *values]
            elif window.length <= options.read and not options.plain:
                _read_checksums(replace(window, deadline=options.read_until), artifact)
        except Broken as broken:
            artifact.problems.append(broken.problem)
        artifact.problems = list(bounded(artifact.problems))
        after = os.fstat(descriptor)
        if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
            fix = "wait until the writer is done, then run this again"
            artifact.problems.append(Problem("changed", "error", "was written to while it was read", fix=fix))
    except Broken as broken:
        artifact.problems.append(broken.problem)
    except OSError as error:
        artifact.problems.append(Problem("unreadable", "error", f"cannot be read: {error.strerror or error}"))
    except Late:
        artifact.problems.append(Problem("unjudged", "error", "there was no time to read all of its headers"))
    finally:
        os.close(descriptor)
    return artifact


def _read_headers(window: Window, artifact: Artifact, blobs: Blobs | None, options: Options) -> Layout:
    """What the headers say; an empty layout when they cannot be read, so that the digest is still taken."""
    try:
        layout = dcp.read_file(window, *blobs) if blobs else readers.read(window, artifact.path.name)
        collect_facts(window, layout)
    except Broken as broken:
        artifact.problems.append(broken.problem)
        return Layout("unknown")
    artifact.format = layout.format
    artifact.problems += layout.problems
    patterns = options.allow.get("refused-global", ())
    artifact.strangers = [name for name in layout.refused if not any(fnmatchcase(name, each) for each in patterns)]
    artifact.problems += judge_names(layout.refused, artifact.strangers)
    step, steps = layout.facts["step"], layout.facts["optimizer_steps"]
    if step is not None and steps:
        states = keys(layout.root).get("optimizer_states")  # of a GAN: each step of each counts
        several = isinstance(states, list) and len(states) > 1
        exact = layout.format == "lightning" and not several
        artifact.problems += compare_steps(step, max(steps), "the file", exact)
    # A scheduler's state holds numbers only; a file that should hold a model and holds nothing is a failed save.
    root = keys(layout.root)
    hollow = [key for key in CONTAINERS if isinstance(root.get(key), (dict, Call)) and not keys(root[key])]
    nothing = not root and not layout.tensors and not layout.problems and layout.format not in _MAY_BE_EMPTY
    # an empty dict of tensors is a file, too, as of a layer without parameters; of a model it is a failed save
    name = artifact.path.name
    meant = name.startswith("layer_") or (layout.format == "safetensors" and not names.is_model(name))
    if hollow and not any(tensor.role in MODEL for tensor in layout.tensors):
        artifact.problems.append(Problem("empty", "error", f"its {hollow[0]!r} holds nothing"))
    elif nothing:
        artifact.problems.append(Problem("empty", "warn" if meant else "error", "holds no tensor"))
    return layout


def judge_names(refused: list[str], strangers: list[str]) -> Iterator[Problem]:
    """Names of code that is neither known to be harmless nor to be hostile: the user's own, or a stranger's."""
    for of, severity in ((strangers, "warn"), ([name for name in refused if name not in strangers], "info")):
        if of:
            modules = sorted({name.partition(".")[0] for name in of})
            message = f"loading it imports {', '.join(modules[:5])[:120]}, code that is not known here"
            fix = "yours: allow the names with --expect. A stranger's: read that code first; plain tensors need none"
            yield Problem("refused-global", severity, message, evidence=", ".join(of[:10])[:400], fix=fix)


def _read_checksums(window: Window, artifact: Artifact) -> None:
    """Every byte, with the standard library alone: each zip member has the CRC that the directory says."""
    layout = artifact.layout
    checksums = Checksums(layout.spans)
    try:
        for at in range(0, window.length, _CHUNK):
            checksums.update(at, window.read(at, min(_CHUNK, window.length - at)))
        artifact.problems += checksums.problems(layout)
        for member in layout.packed:
            for _ in blocks(window, member):
                pass
    except Late:
        return
    artifact.checks = ["container"]


# -- what a checkpoint says about itself: its step, its optimizer


def collect_facts(window: Window, layout: Layout) -> None:
    """Fill layout.facts: step, optimizer_steps."""
    root = keys(layout.root)
    told = root or layout.facts.get("values", {})
    layout.facts["step"] = next((int(told[key]) for key in STEP_KEYS if is_step(told.get(key))), None)
    steps: set[float] = set()
    for tensor in layout.tensors:
        code = _SCALARS.get(tensor.dtype.name)
        is_counter = tensor.role == "optimizer" and tensor.name.endswith(".step") and tensor.numel == 1
        if is_counter and code and tensor.source == FILE:
            with contextlib.suppress(Broken):
                data = window.read(tensor.start - window.start, tensor.dtype.size)
                steps |= set(struct.unpack(f"{'>' if tensor.big_endian else '<'}{code}", data))
    layout.facts["optimizer_steps"] = sorted(float(step) for step in steps if abs(step) < 1 << 53)
    if "pytorch-lightning_version" in root and layout.format == "torch":
        layout.format = "lightning"


def is_step(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 53


def compare_steps(step: int, optimizer_step: float, source: str, exact: bool) -> Iterator[Problem]:
    """`exact`: the format counts optimizer steps. Elsewhere a step may be several (accumulation) or hold several."""
    if abs(step - optimizer_step) <= 1:
        return
    message = f"{source} says step {step}, the optimizer made {optimizer_step:g}"
    if optimizer_step == 0 and step > 0:
        yield Problem("step", "error", f"{message}: it is fresh, or of another checkpoint", where="optimizer")
    elif exact:
        if not step - max(_SLACK * step, _SKIPPED) <= optimizer_step <= step:
            yield Problem("step", "error", f"{message}: they are of two checkpoints", where="optimizer")
    elif not step or (step % optimizer_step and optimizer_step % step):
        yield Problem("step", "warn", f"{message}; neither is a multiple of the other", where="optimizer")
    elif max(step / optimizer_step, optimizer_step / step) > _ACCUMULATED:
        yield Problem("step", "warn", f"{message}: nobody accumulates so many", where="optimizer")
