"""DeepSpeed folders: `latest` names a tag, the tag's folder holds one file per rank, and none may be missing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from artifacts.formats.torch_files import keys
from artifacts.model import Artifact, Problem

Found = Iterator[tuple[Path, Problem]]
_OPTIM = re.compile(r"(?:\w+_)?zero_pp_rank_(\d+)_mp_rank_(\d+)_optim_states\.pt")
_MODEL = re.compile(r"(?:zero_pp_rank_(\d+)_)?mp_rank_(\d+)_model_states\.pt")
_TAG_STEP = re.compile(r"global_step(\d+)")
_MAX_RANKS = 100_000


def check(folder: Path, artifacts: dict[Path, Artifact]) -> Found:
    here = {path.name: artifact for path, artifact in artifacts.items() if path.parent == folder}
    optim = {(int(m[1]), int(m[2])) for m in map(_OPTIM.fullmatch, here) if m}
    model = {name: artifact for name, artifact in here.items() if _MODEL.fullmatch(name)}
    if optim or model:
        yield from _ranks(folder, optim, here)
        yield from _model(folder, optim, model)
    yield from _latest(folder)


def _ranks(folder: Path, optim: set[tuple[int, int]], here: dict[str, Artifact]) -> Found:
    world = max([_world(artifact) for artifact in here.values()] + [rank + 1 for rank, _ in optim if rank < _MAX_RANKS])
    for mp_rank in sorted({mp_rank for _, mp_rank in optim}):
        lost = sorted(set(range(world)) - {rank for rank, mp in optim if mp == mp_rank})
        if lost:
            some = ", ".join(map(str, lost[:5]))
            message = f"{len(lost)} of {world} ranks have no optim_states file for mp_rank {mp_rank:02d}: {some}"
            yield folder, Problem("missing", "error", message)


def _world(artifact: Artifact) -> int:
    """How many ranks the file says there were."""
    root = keys(artifact.layout.root)
    count: Any = root.get("dp_world_size")
    if not isinstance(count, int):
        count = keys(root.get("optimizer_state_dict")).get("partition_count")
    numbers = count if isinstance(count, list) else [count]
    return max((number for number in numbers if isinstance(number, int) and number <= _MAX_RANKS), default=0)


def _model(folder: Path, optim: set[tuple[int, int]], model: dict[str, Artifact]) -> Found:
    ranks = {int(match[2]) for match in map(_MODEL.fullmatch, model) if match}
    for mp_rank in sorted({mp_rank for _, mp_rank in optim} - ranks):
        yield folder, Problem("missing", "error", f"mp_rank_{mp_rank:02d}_model_states.pt is not there")
    tag = _TAG_STEP.fullmatch(folder.name)
    for artifact in model.values():
        step = artifact.layout.facts.get("step")
        if tag and step is not None and step != int(tag[1]):
            yield artifact.path, Problem("step", "error", f"is of step {step}, its folder of step {tag[1]}")


def _latest(folder: Path) -> Found:
    path = folder / "latest"
    if not path.is_file() or path.stat().st_size > 4096:
        return
    tag = path.read_text(encoding="utf-8", errors="replace").strip()
    if not tag or len(Path(tag).parts) != 1 or tag in (".", ".."):
        yield path, Problem("path-name", "error", f"should name a folder beside it and says {tag[:100]!r}")
    elif not os.path.isdir(folder / tag):  # unlike Path's, it answers for a name that is too long
        yield path, Problem("missing", "error", f"names {tag[:100]}, which is not there")
