"""Everything that changes while training, taken apart into what torch.load(weights_only=True) accepts, and put back."""

from __future__ import annotations

import random
import sys
from typing import Any

from rgt.errors import bad_input


def capture(**parts: Any) -> dict[str, Any]:
    """The state of each part, and of all random generators. A collective call when torch.distributed is up.

    A part (model, optimizer, scheduler, scaler, ema, sampler, ...) is an object with state_dict(), or the state itself;
    lists and dicts of parts work too.
    """
    generators: list[Any] = [rng_state()] * world()
    if ranks := distributed():
        ranks.all_gather_object(generators, rng_state())
    return {**{name: _state_of(part) for name, part in parts.items() if part is not None}, "rng": generators}


def _state_of(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _state_of(each) for name, each in part.items()}
    if isinstance(part, (list, tuple)):
        return type(part)(_state_of(each) for each in part)
    part = _unwrap(part)
    return part.state_dict() if hasattr(part, "state_dict") else part


def _unwrap(model: Any) -> Any:
    """Without DistributedDataParallel and torch.compile around it, whose prefixes a plain model does not know."""
    if getattr(model, "_orig_mod", None) is not None:
        return _unwrap(model._orig_mod)
    wrapped = type(model).__name__ in ("DistributedDataParallel", "DataParallel")
    return _unwrap(model.module) if wrapped else model


def restore(state: dict[str, Any], **parts: Any) -> list[str]:
    """Put the state back into the objects and the random generators; gives the names that nobody asked for.

    The parts are the ones given to capture(). A part that the checkpoint lacks is an error, not a fresh start of it.
    """
    for name, part in parts.items():
        if name not in state:
            held = ", ".join(sorted(map(str, state)))
            raise bad_input(f"the checkpoint has no {name!r}; it holds {held}. Leave it out to start it afresh")
        _load_into(part, state[name], name)
    if "rng" in state:
        restore_rng(state["rng"])
    return sorted(set(state) - set(parts) - {"rng", "step", "time", "metrics"})


def _load_into(part: Any, state: Any, name: str) -> None:
    if isinstance(part, (list, tuple)) and len(part) != len(state):
        raise bad_input(f"the checkpoint has {len(state)} of {name!r}, and {len(part)} are to be restored")
    if isinstance(part, (dict, list, tuple)):
        for key, each in part.items() if isinstance(part, dict) else enumerate(part):
            if isinstance(part, dict) and key not in state:
                raise bad_input(f"the checkpoint's {name!r} has no {key!r}")
            _load_into(each, state[key], f"{name}.{key}")
        return
    part = _unwrap(part)
    if not hasattr(part, "load_state_dict"):
        what = f"{name!r} is a {type(part).__name__} without load_state_dict"
        raise bad_input(f"{what}; take state[{name!r}] yourself")
    try:
        part.load_state_dict(state)
    except (ValueError, KeyError, RuntimeError) as error:  # torch has a line for each of a thousand names
        seen = " ".join(str(error).split())[:200]
        raise bad_input(f"the checkpoint's {name!r} does not fit this {type(part).__name__}: {seen}") from None


# -- random generators


def rng_state() -> dict[str, Any]:
    """Of python, torch, and numpy and CUDA when they are in use, of this process."""
    import torch

    state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        state["numpy"] = (kind, keys.tolist(), *map(float, rest))  # weights_only refuses arrays
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        # a rank has one device; asking for all would start a context on each of the others
        state["cuda"] = [torch.cuda.get_rng_state()] if world() > 1 else torch.cuda.get_rng_state_all()
    return state


def restore_rng(states: list[dict[str, Any]]) -> None:
    """This rank's. With another number of ranks than at the save there is none: then say so and leave them alone."""
    import torch

    if len(states) != world():
        ranks = f"the checkpoint has the random state of {len(states)} ranks, this run has {world()}"
        print(f"{ranks}: generators are left as seeded, and the run is not bit-equal from here", file=sys.stderr)
        return
    state = states[rank()]
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"])
    if "numpy" in state:
        import numpy

        kind, keys, position, has_gauss, gauss = state["numpy"]
        numpy.random.set_state((kind, keys, int(position), int(has_gauss), gauss))
    if "cuda" in state and torch.cuda.is_available():
        if len(state["cuda"]) > 1:
            torch.cuda.set_rng_state_all(state["cuda"])
        else:
            torch.cuda.set_rng_state(state["cuda"][0])


def distributed() -> Any:
    """torch.distributed when it is up, else None; torch is not imported for this."""
    torch = sys.modules.get("torch")
    up = torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.distributed if up and torch else None


def rank() -> int:
    return int(distributed().get_rank()) if distributed() else 0


def world() -> int:
    return int(distributed().get_world_size()) if distributed() else 1
