"""Which tensors together are one model: a file, the shards of an index, a distributed checkpoint's folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from artifacts.facts import CONTAINERS
from artifacts.formats.torch_files import keys
from artifacts.model import Artifact, Layout
from artifacts.survey import Survey

Table = dict[str, tuple[str | None, tuple[int, ...] | None]]  # name -> dtype, shape; None: not asked


@dataclass
class Unit:
    """What belongs together as one model: a file, or all files of a sharded or distributed checkpoint."""

    path: Path
    weights: Table
    parameters: int
    members: list[Artifact]

    @property
    def format(self) -> str:
        return self.members[0].format if self.members else "unknown"

    @property
    def ema(self) -> bool:
        return any(artifact.layout.facts.get("ema") for artifact in self.members)

    @property
    def optimizer(self) -> bool:
        return any(tensor.role == "optimizer" for artifact in self.members for tensor in artifact.layout.tensors)

    @property
    def step(self) -> int | None:
        steps = [artifact.layout.facts.get("step") for artifact in self.members]
        return next((step for step in steps if step is not None), None)


def tables(found: Survey, artifacts: dict[Path, Artifact]) -> Iterator[Unit]:
    """One unit per model: shards of one index together, a DCP folder as its metadata describes it."""
    shards: dict[Path, list[Artifact]] = {}
    for path, artifact in artifacts.items():
        if found.blobs(path) or not any(tensor.role == "weight" for tensor in artifact.layout.tensors):
            continue
        shards.setdefault(path.parent if "-of-" in path.name else path, []).append(artifact)
    for path, members in shards.items():
        weights: Table = {}
        for member in members:
            weights.update(_weights(member.layout))
        yield Unit(path, weights, sum(member.parameters for member in members), members)
    for directory, metadata in found.metadata.items():
        members = [artifact for path, artifact in artifacts.items() if path.is_relative_to(directory)]
        layout = [tensor for artifact in members for tensor in artifact.layout.tensors if tensor.role == "weight"]
        names = {tensor.name for tensor in layout}
        described: Table = {name: entry for name, entry in metadata.shapes.items() if name in names}
        yield Unit(directory, _without_container(described), sum(tensor.numel for tensor in layout), members)


def _weights(layout: Layout) -> Table:
    """The model's tensors by the names the model knows: {"model": {...}, "step": 3} is looked into."""
    everything: Table = {t.name: (t.dtype.name, t.shape) for t in layout.tensors if t.role == "weight"}
    root = keys(layout.root)
    for container in CONTAINERS:
        if keys(root.get(container)):
            prefix = f"{container}."
            inside = {name[len(prefix) :]: entry for name, entry in everything.items() if name.startswith(prefix)}
            if inside:
                return inside
    return everything


def _without_container(table: Table) -> Table:
    for container in CONTAINERS:
        if table and all(name.startswith(f"{container}.") for name in table):
            return {name[len(container) + 1 :]: entry for name, entry in table.items()}
    return table
