"""What checkpoints are called, and which step a name means: the one table, for every tool. Standard library only.

    ours         checkpoints/step_000040.pt             Hugging Face    checkpoint-500/, model-00001-of-00003.bin
    LitGPT       step-00000500/lit_model.pth            DeepSpeed       global_step500/mp_rank_00_model_states.pt
    Lightning    epoch=3-step=900.ckpt, last.ckpt       DCP, FSDP       .metadata, __0_0.distcp
    nanoGPT      ckpt.pt (its step is inside)           Megatron        iter_0000500/

Example:
    step("checkpoint-500")           500; None when the name says no step
    is_checkpoint("ckpt.pt")         True: worth counting and looking at
"""

from __future__ import annotations

import re

MANIFEST, PROOF, STALE = "PULL_MANIFEST.json", "PULL_VERIFIED.json", "PULL_VERIFIED.json.stale"
STORE_PROOF = "STORE_VERIFIED.json"
OUR_RECORDS = (MANIFEST, PROOF, STALE, STORE_PROOF)  # about one copy of a run, not part of it
HEAD = 256  # bytes of a file that tell what it is
METADATA, INDEX = ".metadata", ".index.json"  # DCP's table of contents; the end of Hugging Face's
_INDEX = re.compile(r".*\.index(\.[\w-]+)?\.json")  # model.safetensors.index.fp16.json: of a variant
DAMAGED = ".damaged"  # set aside by us
FILES = (".pt", ".pth", ".ckpt", ".safetensors")  # a model, or more, in one file
_OWN = re.compile(r"step_(\d+)\.pt")
_COUNTED = r"(?:checkpoint|ckpt|global_?step|step|iter|iteration)"
_STEP = re.compile(rf"(?:^|[-_.]){_COUNTED}[-_=]?(\d+)(?=\D|$)", re.I)
_FOLDER = re.compile(rf"(?:{_COUNTED}|epoch)[-_=]?\d+(?:[-_.].*)?", re.I)
_MODEL = re.compile(r"(?:pytorch_model|diffusion_pytorch_model|model|adapter_model).*\.(?:bin|safetensors)")
_COMPANION = re.compile(
    r".*\.(?:npy|npz)|(?:optimizer|scheduler|sampler|scaler|training_args).*\.bin"
    r"|(?:random_states_|custom_checkpoint_)\d+\.pkl"
)
_SHARD = re.compile(r"(?!shard-)(?P<stem>.+)-\d{5}-of-\d{5}\.(?:safetensors|bin)")  # shard-: DCP's, without an index
_UNFINISHED = re.compile(
    r"^(?:tmp|temp|partial|incomplete)[-_.]|[-_.](?:tmp|temp|part|partial|incomplete)\W*\w{0,8}$", re.I
)
_SET_ASIDE = re.compile(rf".*{re.escape(DAMAGED)}(?:-\d+)?")
_PARTIAL_COPY = re.compile(r".*\.(?:incomplete|part|partial|filepart|aria2|crdownload|download)")
_RSYNC = re.compile(r"\.(.+)\.[A-Za-z0-9]{6}")  # .model.pt.Xa81kQ: rsync's name for a file on its way


def own(step: int) -> str:
    """The name that rgt checkpoints gives."""
    return f"step_{step:06d}.pt"


def own_step(name: str) -> int | None:
    """The step of a file of ours; None for everybody else's. Only ours are ever made again or deleted by name."""
    match = _OWN.fullmatch(name)
    return int(match[1]) if match else None


def step(name: str) -> int | None:
    """The step that the name of a file or folder says; None for one that is unfinished or was set aside, too."""
    match = _STEP.search(name)
    return int(match[1]) if match and not is_unfinished(name) and not _SET_ASIDE.fullmatch(name) else None


def series(name: str) -> str:
    """fold0-step_#.pt: the name without its step, the same for all checkpoints of one training."""
    match = _STEP.search(name)
    return f"{name[: match.start(1)]}#{name[match.end(1) :]}" if match else name


def is_step_folder(name: str) -> bool:
    """A folder that is one checkpoint, by its name; epoch_3 counts, although it says no step."""
    return bool(_FOLDER.fullmatch(name))


def is_checkpoint(name: str) -> bool:
    """A file that holds weights, by its name alone, as a walk over thousands of files must decide."""
    return name.endswith((*FILES, ".distcp")) or is_model(name)


def is_model(name: str) -> bool:
    """A name that a library gives to the weights of a model."""
    return bool(_MODEL.fullmatch(name))


def is_artifact(name: str) -> bool:
    """A file that can be verified: weights, and what is saved beside them (optimizers, random states, arrays)."""
    return is_checkpoint(name) or bool(_COMPANION.fullmatch(name))


def is_shard(name: str) -> bool:
    """One of several files that only together are a checkpoint."""
    return name.endswith(".distcp") or bool(_SHARD.fullmatch(name))


def is_index(name: str) -> bool:
    return bool(_INDEX.fullmatch(name))


def shard_stem(name: str) -> str | None:
    """model of model-00001-of-00003.safetensors; None for a file that is no such shard."""
    match = _SHARD.fullmatch(name)
    return match["stem"] if match else None


def is_unfinished(name: str) -> bool:
    """A save that did not end: tmp-checkpoint-500, checkpoint-500.partial. What starts with a dot is one, too."""
    return name.startswith(".") or bool(_UNFINISHED.search(name))


def is_partial_copy(name: str) -> bool:
    """A transfer that did not end: model.safetensors.part, .model.pt.Xa81kQ (rsync)."""
    match = _RSYNC.fullmatch(name)
    return bool(_PARTIAL_COPY.fullmatch(name)) or bool(match and is_artifact(match[1]))
