"""What a checkpoint should hold, for `verify_local --expect`: from a spec, or from one that is known to be good.

Example:
    expected = load_expectation(Path("step_1000.pt"))
    compare(expected, verify(survey(path), Options()))      adds what differs to the verdict
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt.checkpoint.examine import CONTAINERS, HEADERS, examine
from rgt.checkpoint.formats.torch_files import keys
from rgt.checkpoint.layout import FILE, MODEL, Artifact, Problem, Tensor, role_of
from rgt.checkpoint.survey import Survey, survey
from rgt.checkpoint.verify import Verification
from rgt.errors import bad_input

_NAMED = 5
_BLOCK = 16 << 10  # bytes that are compared at each of three places
_ALIKE, _UNLIKE = 0.9, 0.3  # correlation: of most tensors, and of one that stands out
_FEWEST = 256  # values of a block that can be compared
_CODES = {"float32": "f4", "float64": "f8", "float16": "f2", "bfloat16": "u2"}

Table = dict[str, tuple[str | None, tuple[int, ...] | None]]  # name -> dtype, shape; None: not asked
# what wrappers put into a key: DataParallel, torch.compile, FSDP, activation checkpointing, a plain outer module
_WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "model"}


@dataclass
class Model:
    """What belongs together: a file, or all files of a sharded or distributed checkpoint."""

    path: Path
    weights: Table
    members: list[Artifact]


@dataclass
class Expectation:
    models: list[Model]  # of a good checkpoint; a spec is one without files
    extra: bool = False
    allow: dict[str, list[str]] = field(default_factory=dict)


def load_expectation(path: Path) -> Expectation:
    from rgt.job.description import load_yaml  # few calls have a spec

    if not path.exists():
        raise bad_input(f"{path} does not exist; --expect takes a YAML or JSON spec, or a good checkpoint")
    if path.is_file() and path.suffix in (".yaml", ".yml", ".json") and not path.name.endswith(".index.json"):
        spec = load_yaml(path, "expect")
        tensors: Table = {}
        for name, entry in spec.pop("tensors", {}).items():
            wanted = entry if isinstance(entry, dict) else {"shape": entry}
            dtype, shape = wanted.get("dtype"), wanted.get("shape")
            tensors[name] = dtype and dtype.removeprefix("torch."), None if shape is None else tuple(shape)
        return Expectation([Model(path, tensors, [])], **spec)
    found = survey(path)
    models = list(_models(found, [examine(p, HEADERS, found.blobs(p)) for p in found.artifacts]))
    if not models:
        raise bad_input(f"{path} is neither a spec for --expect nor a checkpoint that can be read")
    return Expectation(models)


def _models(found: Survey, artifacts: list[Artifact]) -> Iterator[Model]:
    """Shards of one index together, a DCP folder as its metadata describes it."""
    files: dict[Path, list[Artifact]] = {}
    for artifact in artifacts:
        path = artifact.path
        if not found.blobs(path) and any(tensor.role in MODEL for tensor in artifact.layout.tensors):
            files.setdefault(path.parent if "-of-" in path.name else path, []).append(artifact)
    for path, members in files.items():
        weights: Table = {}
        for member in members:
            tensors = [tensor for tensor in member.layout.tensors if tensor.role in MODEL]
            weights |= _model_names({t.name: (t.dtype.name, t.shape) for t in tensors}, member.layout.root)
        yield Model(path, weights, members)
    for directory, metadata in found.metadata.items():
        members = [artifact for artifact in artifacts if artifact.path.is_relative_to(directory)]
        weights = {name: entry for name, entry in metadata.shapes.items() if role_of(name) in MODEL}
        yield Model(directory, _model_names(weights), members)


def _model_names(weights: Table, root: Any = None) -> Table:
    """The tensors by the names the model knows: {"model": {...}, "step": 3} is looked into."""
    for container in CONTAINERS:
        prefix = f"{container}."
        inside = {name[len(prefix) :]: entry for name, entry in weights.items() if name.startswith(prefix)}
        if inside and (len(inside) == len(weights) if root is None else bool(keys(keys(root).get(container)))):
            return inside
    return weights


def compare(expected: Expectation, verdict: Verification) -> None:
    """Add what differs to the verdict."""
    models = list(_models(verdict.found, verdict.artifacts))
    if not models and not verdict.failed:  # of a file that does not load, that it has no weights is no news
        lacking = Problem("missing", "error", "holds no weights to compare with --expect")
        verdict.problems.append((verdict.found.given, lacking))
    for model in models:
        # of several models, the one with the most names in common, or the largest
        common = [(len(one.weights.keys() & model.weights.keys()), len(one.weights)) for one in expected.models]
        wanted = expected.models[common.index(max(common))]
        problems = list(differences(wanted.weights, model, expected.extra))
        problems += compare_values(wanted.members, [member for member in model.members if member.real])
        verdict.problems += [(model.path, problem) for problem in problems]
        for member in model.members:
            member.checks.append("dimensions")
            member.problems += problems if member.path == model.path else []


def differences(wanted: Table, model: Model, extra: bool) -> Iterator[Problem]:
    actual = dict(model.weights)
    # keys that differ by a wrapper's prefix are one finding, not two per tensor
    bare = {_bare(name): name for name in wanted.keys() - actual.keys()}
    pairs = {name: bare[_bare(name)] for name in actual.keys() - wanted.keys() if _bare(name) in bare}
    if pairs:
        first, fix = min(pairs), "rename them, or load into the same wrapper"
        message = f"{len(pairs)} keys differ from the expected ones by a wrapper's prefix: {first} for {pairs[first]}"
        lightning = {name.removesuffix(pairs[name]) for name in pairs} == {"model."}  # its name for the whole model
        severity = "info" if lightning and len(pairs) == len(model.weights) else "error"
        yield Problem("renamed", severity, message[:400], where=first, fix=fix)
        actual |= {other: actual.pop(name) for name, other in pairs.items()}
    lost = [name for name in wanted if name not in actual]
    added = [name for name in actual if name not in wanted] if wanted and not extra else []
    for code, names, what in (("missing", lost, "expected and not there"), ("extra", added, "there and not expected")):
        if names:
            shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
            yield Problem(code, "error", f"{len(names)} tensors are {what}", where=names[0][:200], evidence=shown[:400])
    for name in (name for name in wanted if name in actual):
        (dtype, shape), (actual_dtype, actual_shape) = wanted[name], actual[name]
        if shape not in (None, actual_shape):
            message = f"has shape {list(actual_shape or ())[:8]}, expected {list(shape or ())[:8]}"
            yield Problem("shape", "error", message, where=name)
        if dtype not in (None, actual_dtype):
            yield Problem("dtype", "error", f"is {actual_dtype}, expected {dtype}", where=name)


def _bare(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


# -- values: what a few steps of an optimizer cannot have done


def compare_values(good: list[Artifact], new: list[Artifact]) -> Iterator[Problem]:
    """Most tensors of a later checkpoint still look like before; one that does not was damaged or is another's."""
    import numpy as np

    before = {tensor.name: (artifact, tensor) for artifact in good for tensor in _comparable(artifact)}
    alike: list[tuple[float, str]] = []
    for artifact in new:
        for tensor in _comparable(artifact):
            old_artifact, old = before.get(tensor.name, (artifact, tensor))
            if old is tensor or (old.shape, old.dtype) != (tensor.shape, tensor.dtype):
                continue
            least = math.inf  # correlation, stays infinite where nothing can be compared
            for share in (0.0, 0.5, 1.0):  # at the beginning, the middle and the end
                one, other = _values(old_artifact, old, share), _values(artifact, tensor, share)
                if len(one) == len(other) >= _FEWEST and one.std() > 0:
                    least = min(least, float(np.corrcoef(one, other)[0, 1]) if other.std() else 0.0)
            alike.append((least, tensor.name))
    known = [value for value, _ in alike if math.isfinite(value)]
    if len(known) < 3 or statistics.median(known) < _ALIKE:
        return  # too far apart to say anything
    for value, name in alike:
        if value < _UNLIKE:
            message = f"is unlike the expected one (correlation {value:.2f}), while most are alike"
            yield Problem("changed", "error", f"{message}: no training step did that", where=name)


def _comparable(artifact: Artifact) -> Iterator[Tensor]:
    for tensor in artifact.layout.tensors:
        if tensor.source == FILE and tensor.role == "weight" and tensor.rank > 1 and tensor.dtype.name in _CODES:
            yield tensor


def _values(artifact: Artifact, tensor: Tensor, share: float) -> Any:
    import numpy as np

    size = min(_BLOCK, tensor.extent) // 8 * 8
    with open(artifact.path, "rb") as file:
        file.seek(tensor.start + int((tensor.extent - size) * share) // 8 * 8)
        data = np.frombuffer(file.read(size), f"{'>' if tensor.big_endian else '<'}{_CODES[tensor.dtype.name]}")
    if tensor.dtype.name == "bfloat16":
        data = (data.astype("u4") << 16).view("f4")
    return np.nan_to_num(data.astype("f8"))
