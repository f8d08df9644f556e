"""Two checkpoints of one training, by values: what a few steps of an optimizer cannot have done.

Three places of each tensor are compared. Most tensors of a later checkpoint still look like before; one that does not,
while the others do, was damaged or comes from elsewhere.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Any

from rgt.checkpoint.layout import FILE, Artifact, Problem, Tensor

_BLOCK = 16 << 10  # bytes at each place
_ALIKE, _UNLIKE = 0.9, 0.3  # correlation: of most tensors, and of one that stands out
_FEWEST = 256  # values of a block that can be compared
_CODES = {"float32": "f4", "float64": "f8", "float16": "f2", "bfloat16": "u2"}


def compare_values(good: list[Artifact], new: list[Artifact]) -> Iterator[Problem]:
    before = {tensor.name: (artifact, tensor) for artifact in good for tensor in _comparable(artifact)}
    alike: list[tuple[float, str]] = []
    for artifact in new:
        for tensor in _comparable(artifact):
            old_artifact, old = before.get(tensor.name, (artifact, tensor))
            if old is not tensor and (old.shape, old.dtype) == (tensor.shape, tensor.dtype):
                alike.append((_least_alike(old_artifact, old, artifact, tensor), tensor.name))
    known = [value for value, _ in alike if math.isfinite(value)]
    if len(known) < 3 or statistics.median(known) < _ALIKE:
        return  # too far apart to say anything
    for value, name in alike:
        if value < _UNLIKE:
            message = (
                f"is unlike the expected one (correlation {value:.2f}), while most are alike: no training step did that"
            )
            yield Problem("changed", "error", message, where=name[:200])


def _comparable(artifact: Artifact) -> Iterator[Tensor]:
    for tensor in artifact.layout.tensors:
        if tensor.source == FILE and tensor.role == "weight" and tensor.rank > 1 and tensor.dtype.name in _CODES:
            yield tensor


def _least_alike(old_artifact: Artifact, old: Tensor, artifact: Artifact, tensor: Tensor) -> float:
    import numpy as np

    least = math.inf
    for share in (0.0, 0.5, 1.0):
        one, other = (_values(each, part, share) for each, part in ((old_artifact, old), (artifact, tensor)))
        if len(one) == len(other) >= _FEWEST and one.std() and one.std() > 0:
            least = min(least, float(np.corrcoef(one, other)[0, 1]) if other.std() else 0.0)
    return least


def _values(artifact: Artifact, tensor: Tensor, share: float) -> Any:
    import numpy as np

    size = min(_BLOCK, tensor.extent) // 8 * 8
    offset = int((tensor.extent - size) * share) // 8 * 8
    with open(artifact.path, "rb") as file:
        file.seek(tensor.start + offset)
        data = np.frombuffer(file.read(size), f"{'>' if tensor.big_endian else '<'}{_CODES[tensor.dtype.name]}")
    if tensor.dtype.name == "bfloat16":
        data = (data.astype("u4") << 16).view("f4")
    return np.nan_to_num(data.astype("f8"))
