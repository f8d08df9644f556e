"""What a tensor is for, from its name: the same zeros are fatal in a weight and ordinary in a bias or a fresh Adam."""

from __future__ import annotations

import re

from artifacts.model import Tensor

_LONGEST = 300  # characters of a name that are looked at; hostile ones are longer

_OPTIMIZER = re.compile(
    r"(^|\.)(opt|opt_state\w*|optim|optim_\w+|optimizers?|optimizer_\w+|base_optimizer_state|fp32_flat_groups"
    r"|single_partition_of_fp32_groups|exp_avg(_sq)?|exp_inf|max_exp_avg_sqs?|momentum_buffer|square_avg|grad_avg"
    r"|acc_delta)(\.|$)|^state\.\d+\."
)
_EMA = re.compile(r"(^|[._])ema([._]|$)|(^|\.)(averaged_model|swa_model)\.")
_OTHER = re.compile(
    r"(^|\.)(callbacks|loops|lr_schedulers?|schedulers?|scaler|loss_scaler|metrics?|history|\w*rng\w*|random_states?"
    r"|numpy_random_seed|torch_manual_seed|torch_cuda_manual_seed)(\.|$)"
)
_RANDOM_FILES = ("rng_state", "random_states")
_MASK = re.compile(r"mask|alibi|causal", re.I)
_COUNTER = re.compile(
    r"(^|\.)(steps?|num_batches_tracked|\w*position\w*|(\w*_)?ids|seed|counts?|counter|timesteps?|epoch|growth_tracker"
    r"|(\w*_)?(idx|index|indices))$"
)
_ZERO_IS_ORDINARY = re.compile(
    r"(^|[._])(bias|beta|mask\w*|running_\w+|\w*position\w*|pos_embed\w*|token_type\w*|\w*cache\w*|zero_point\w*"
    r"|\w*offset\w*|absmax|\w*buffer\w*)$"
)


def of(name: str) -> str:
    """weight | optimizer | ema | other"""
    name = name[-_LONGEST:]
    if _OPTIMIZER.search(name):
        return "optimizer"
    if _EMA.search(name):
        return "ema"
    return "other" if _OTHER.search(name) else "weight"


def assign(tensors: list[Tensor], file: str = "") -> None:
    for tensor in tensors:
        if tensor.role == "weight":
            tensor.role = "other" if file.startswith(_RANDOM_FILES) else of(tensor.name)


def is_mask(tensor: Tensor) -> bool:
    return bool(_MASK.search(tensor.name.rpartition(".")[2][-_LONGEST:]))


def is_counter(tensor: Tensor) -> bool:
    return bool(_COUNTER.search(tensor.name[-_LONGEST:]))


def zero_is_ordinary(tensor: Tensor) -> bool:
    last = tensor.name.rpartition(".")[2][-_LONGEST:]
    return tensor.rank < 2 or not tensor.dtype.floating or bool(_ZERO_IS_ORDINARY.search(last))
