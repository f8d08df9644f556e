"""What only several files together show: complete sets, one step, JSON beside the checkpoints.

Hugging Face (index, shards, companions of a Trainer or Accelerate), DeepSpeed (`latest`, one file per rank), our own
run directories (checkpoints_index.json, results.json).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt import files, schema, units
from rgt.checkpoint import index, names
from rgt.checkpoint.examine import compare_steps, is_step
from rgt.checkpoint.formats.readers import read_json
from rgt.checkpoint.formats.torch_files import keys
from rgt.checkpoint.layout import Artifact, Broken, Problem
from rgt.checkpoint.survey import Survey, may_be_weights
from rgt.errors import RgtError

Problems = Iterator[tuple[Path, Problem]]
Artifacts = dict[Path, Artifact]
Here = dict[str, Artifact]  # of one folder, by name
Sides = dict[str, Any]
_OPTIMIZERS = ("optimizer.pt", "optimizer.bin")
_MODELS = """
    model*.safetensors pytorch_model*.bin adapter_model.* pytorch_model_fsdp* global_step* distributed_* model*.bin
    diffusion_pytorch_model* *.distcp mp_rank_*
"""
# files of which each number up to the highest must be there, and files that no other rank's may be a copy of
_NUMBERED = re.compile(
    r"(random_states_|rng_state_|.*(?:expert|expp_rank|zero_pp_rank|world_size_\d+_rank)_|.*rank_?)(\d+)(_.*|\.\w+)"
)
_OWN_FILE = re.compile(
    r"(.*rank_?\d+.*|rng_state_\d+|random_states_\d+|__\d+_\d+|.*-\d{5}-of-\d{5}|model_world_size_.*)\.\w+"
)
_DEEPSPEED = re.compile(r"(?:(?:\w+_)?zero_pp_rank_\d+_)?mp_rank_(\d+)_(optim|model)_states\.pt")
_MAX_RANKS = 100_000  # a higher number in a name is no rank
_NAMED = 5
_TOKENIZERS, _MAX_TEXT = (".model", ".spm", ".txt", ".yaml", ".yml", ".vocab", ".json", ".jinja"), 16 << 20


def check_folders(found: Survey, artifacts: Artifacts) -> Problems:
    sides: dict[Path, Sides] = {}  # the JSON files of each folder by name, parsed; None: cannot be
    for path in found.sides:
        data = None
        try:
            data = read_json(path)
            name = "checkpoints_index" if path.name == index.INDEX else None
            name = "results" if path.name == "results.json" and (path.parent / "run.json").is_file() else name
            for sentence in schema.problems(data, name) if name else ():
                yield path, Problem("malformed", "error", sentence)
        except Broken as broken:
            yield path, broken.problem
        except OSError as error:
            yield path, Problem("unreadable", "error", f"cannot be read: {error.strerror}")
        sides.setdefault(path.parent, {})[path.name] = data
    for path, artifact in artifacts.items():
        yield from _check_external(found, path, artifact)
    if found.given.is_dir():
        here: dict[Path, Here] = {}
        for path, artifact in artifacts.items():
            here.setdefault(path.parent, {})[path.name] = artifact
        for folder in sorted({found.root, *found.folders}):
            beside = sides.get(folder, {})
            yield from _check_hugging_face(folder, beside, artifacts)
            yield from _check_trainer(folder, beside, here.get(folder, {}))
            for check in (_check_deepspeed, _check_latest, _check_ranks):
                yield from check(folder, here.get(folder, {}))
            if index.INDEX in beside:
                yield from _check_run(folder)
        yield from _check_others(found)


def leads_out(name: str) -> bool:
    return Path(name).is_absolute() or ".." in Path(name).parts


def _check_external(found: Survey, path: Path, artifact: Artifact) -> Problems:
    """ONNX keeps large tensors in files beside it; they must be there, below its folder, and long enough."""
    ends: dict[str, int] = {}
    for location, offset, length in artifact.layout.facts.get("external", ()):
        numbers = [int(text) if text.isdigit() and len(text) < 20 else 0 for text in (offset, length)]
        ends[location] = max(ends.get(location, 0), sum(numbers))
    for location, end in ends.items():
        target = path.parent / location
        if not location or leads_out(location):
            yield path, Problem("path-name", "error", f"has data in {location[:100]!r}, which is outside of its folder")
        elif not os.path.isfile(target) or target.stat().st_size < end:
            yield target, Problem("missing", "error", f"should hold {end} bytes of the tensors of {path.name}")
        else:
            found.others.pop(target, None)


def _check_others(found: Survey) -> Problems:
    """Files of unknown formats: said, never passed over in silence."""
    large = [path for path, size in found.others.items() if may_be_weights(path.name, size)]
    some = (large or list(found.others))[:_NAMED]
    shown = ", ".join(f"{path.name} ({units.show_size(found.others[path] or 0)})" for path in some)[:300]
    if not found.artifacts and not found.metadata and not found.others:
        yield found.given, Problem("empty", "error", "holds no checkpoint: nothing was saved or nothing was pulled")
    elif not found.artifacts and not found.metadata:
        message = f"holds {len(found.others)} files of unknown formats and no checkpoint that can be checked"
        yield found.given, Problem("unknown", "error", message, evidence=shown or None)
    elif large:
        message = f"{len(large)} files that may hold weights are of unknown formats and were not checked"
        yield found.given, Problem("unknown", "warn", message, evidence=shown or None)
    for path in (path for path in found.zeros if path.suffix in _TOKENIZERS):
        with contextlib.suppress(OSError, RgtError), files.open_regular(path) as file:
            if not any(file.read(_MAX_TEXT)):
                yield path, Problem("hole", "error", "holds nothing but zeros", fix="copy it again")


# -- Hugging Face


def _check_hugging_face(folder: Path, beside: Sides, artifacts: Artifacts) -> Problems:
    indexes = sorted(filter(names.is_index, beside))
    for name in indexes:
        if beside[name] is not None:
            yield from _check_index(folder / name, beside[name], artifacts)
    shards = [path.name for path in sorted(folder.glob("*-of-*.*")) if names.shard_stem(path.name)]
    if shards and not indexes:
        yield folder, Problem("missing", "error", f"holds shards such as {shards[0]} and no *.index.json for them")
    optimizers = [name for name in _OPTIMIZERS if (folder / name).exists()]
    if optimizers and not any(any(folder.glob(pattern)) for pattern in _MODELS.split()):
        yield folder, Problem("missing", "error", f"has {optimizers[0]} and no model weights beside it")


def _check_index(path: Path, data: Any, artifacts: Artifacts) -> Problems:
    """The index against its shards: all are there, none is of another save, every tensor is where the index says."""
    weight_map = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
        yield path, Problem("malformed", "error", "has no weight_map from tensor to file")
        return
    wanted = sorted(set(weight_map.values()))  # also in folders below
    shards = {name: artifacts[path.parent / name] for name in wanted if path.parent / name in artifacts}
    for name in wanted:
        if leads_out(name):
            yield path, Problem("path-name", "error", f"names {name[:100]!r}, which is outside of its folder")
        elif name not in shards:
            yield path.parent / name, Problem("missing", "error", f"is named by {path.name} and not there")
    stems = {names.shard_stem(name) for name in wanted} - {None}
    for one in sorted(path.parent.glob("*-of-*.*")):
        if one.name not in wanted and names.shard_stem(one.name) in stems:
            yield one, Problem("extra", "error", f"is a shard that {path.name} does not name: it is of another save")
    homes: dict[str, str] = {}
    for name, shard in shards.items():
        for tensor in shard.layout.tensors:
            if tensor.name in homes:
                yield shard.path, Problem("duplicate", "error", f"is also in {homes[tensor.name]}", tensor.name[:200])
            homes.setdefault(tensor.name, name)
    readable = {name for name, shard in shards.items() if shard.layout.tensors}
    lost = [key for key, name in weight_map.items() if name in readable and homes.get(key) != name]
    moved = f"({sum(key in homes for key in lost)} are in another)"
    extra = [key for key in homes if key not in weight_map]
    for which, what in (
        (lost, f"tensors are not in the shard that the index names {moved}"),
        (extra, "tensors of the shards are not in the index"),
    ):
        if which:
            some = ", ".join(which[:_NAMED])[:300]
            yield path, Problem("stale-index", "error", f"{len(which)} {what}", evidence=some)


def _check_trainer(folder: Path, beside: Sides, here: Here) -> Problems:
    """Trainer state, folder name and optimizer must be of one step: a Trainer counts optimizer steps."""
    path = folder / "trainer_state.json"
    state = beside.get(path.name)
    if state is None:
        return
    step: Any = state.get("global_step") if isinstance(state, dict) else None
    if not is_step(step):
        yield path, Problem("malformed", "error", "has no global_step")
        return
    named = names.step(folder.name)
    if named not in (None, step):
        yield path, Problem("step", "error", f"is of step {step}, its folder of step {named}")
    for name in _OPTIMIZERS:
        steps = here[name].layout.facts.get("optimizer_steps") if name in here else None
        for problem in compare_steps(step, max(steps), path.name, exact=True) if steps else ():
            yield folder / name, problem


# -- DeepSpeed: `latest` names a tag, the tag's folder holds one file per rank, and none may be missing


def _check_deepspeed(folder: Path, here: Here) -> Problems:
    kinds: dict[str, set[str]] = {}  # of each mp_rank: optim, model
    for match in filter(None, map(_DEEPSPEED.fullmatch, here)):
        kinds.setdefault(match[1], set()).add(match[2])
    for mp_rank in sorted(rank for rank, there in kinds.items() if "model" not in there):
        yield folder, Problem("missing", "error", f"mp_rank_{mp_rank}_model_states.pt is not there")
    tag = names.step(folder.name) if folder.name.startswith("global_step") else None  # not a tag of the user's own
    for name, artifact in here.items():
        step = artifact.layout.facts.get("step")
        if tag is not None and step not in (None, tag) and name.endswith("model_states.pt"):
            yield artifact.path, Problem("step", "error", f"is of step {step}, its folder of step {tag}")


def _check_latest(folder: Path, here: Here) -> Problems:
    path = folder / "latest"
    tags = sorted(child.name for child in folder.glob("global_step*") if any(child.glob("*_states.pt")))
    if tags and not path.exists():
        yield path, Problem("missing", "warn", f"is not there: DeepSpeed finds {tags[0]} only when it is named")
    if path.is_file() and path.stat().st_size <= 4096:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
        if not text or len(Path(text).parts) != 1 or text in (".", ".."):
            yield path, Problem("path-name", "error", f"should name a folder beside it and says {text[:100]!r}")
        elif not os.path.isdir(folder / text):  # unlike Path's, it answers for a name that is too long
            yield path, Problem("missing", "error", f"names {text[:100]}, which is not there")


def _check_ranks(folder: Path, here: Here) -> Problems:
    """Each rank's file is there and is its own: not a copy of another rank's, nor one under another's name."""
    stems = {Path(name).stem for name in here}
    seen: dict[str, str] = {}
    series: dict[tuple[str, str], set[int]] = {}
    for match in filter(None, (_NUMBERED.fullmatch(path.name) for path in folder.iterdir())):
        series.setdefault((match[1], match[3]), set()).add(int(match[2]))
    for (before, behind), numbers in series.items():
        world = re.search(r"world_size_(\d+)_rank_$", before)
        if 0 not in numbers and "rank" in before and not world and "_" not in behind:
            continue  # of an adapter: lora_rank_8.pt
        told = [int(world[1])] if world else _ranks_told(here) if before.endswith("zero_pp_rank_") else []
        count = max(max(numbers) + 1, *told, 0)
        lost = sorted(set(range(count)) - numbers) if count <= _MAX_RANKS else []
        if lost:
            ranks = f"{len(lost)} of {count} ranks have none: {', '.join(map(str, lost[:_NAMED]))}"
            yield folder, Problem("missing", "error", f"{before}{lost[0]}{behind} is not there: {ranks}")
    for name, artifact in sorted(here.items()):
        if not _OWN_FILE.fullmatch(name) or not artifact.layout.tensors:
            continue
        saved_as = str(artifact.layout.facts.get("root", "")).rstrip("/")
        if saved_as != Path(name).stem and saved_as in stems:
            yield artifact.path, Problem("duplicate", "error", f"was saved as {saved_as}, which is another rank's file")
        elif artifact.sha256 and artifact.layout.facts.get("varied"):  # zeros and ones may be anybody's
            twin = seen.setdefault(artifact.sha256, name)
            if twin != name and _rank(twin) != _rank(name):
                yield artifact.path, Problem("duplicate", "error", f"has the same bytes as {twin}")


def _ranks_told(here: Here) -> Iterator[int]:
    """How many data-parallel ranks there were, by each file of DeepSpeed."""
    for root in (keys(artifact.layout.root) for artifact in here.values()):
        told = keys(root.get("optimizer_state_dict")).get("partition_count")
        for count in (root.get("dp_world_size"), *(told if isinstance(told, list) else [told])):
            if isinstance(count, int) and count <= _MAX_RANKS:
                yield count


def _rank(name: str) -> str:
    """The writer of a file of DCP, which may have several, with one tensor each; elsewhere a file is a rank."""
    match = re.fullmatch(r"(__\d+)_\d+\.distcp", name)
    return match[1] if match else name


# -- our run directories


def _check_run(run: Path) -> Problems:
    for entry in index.read(run) or []:
        path = run / entry["path"]
        if leads_out(entry["path"]):
            yield run / index.INDEX, Problem("path-name", "error", f"names {entry['path'][:100]!r}, outside of the run")
        elif not os.path.exists(path):  # unlike Path's, it answers for a name that is too long
            yield path, Problem("missing", "error", f"is listed in {index.INDEX} and not there")
