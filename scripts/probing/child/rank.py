"""One rank of a desync probe. Run by ranks.py as a script, not imported:

    python rank.py < {"factory", "paths", "rank", "world", "store", "steps", "seed", "patience", and what Child adds}

Its rows: each collective when it begins, each step, the digests at the end.
"""

from __future__ import annotations

import datetime
import functools
import inspect
import itertools
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])

from probing import contract, process, samples, session, state  # noqa: E402  # after the path is set

COLLECTIVES = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "gather", "scatter", "reduce_scatter",
    "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "barrier", "broadcast_object_list", "all_gather_object",
)  # fmt: skip


class Log:
    """What this rank did, line by line: a flight recorder that survives its end."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.say = process.writer(request)
        self.count, self.depth, self.seconds = 0, 0, 0.0

    def wrap(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def collective(*args: Any, **kwargs: Any) -> Any:
            if self.depth:  # object collectives are made of others
                return original(*args, **kwargs)
            number, self.count, self.depth, start = self.count, self.count + 1, 1, time.perf_counter()
            self.say(collective=number, op=name, what=_what(args, kwargs), site=_site())
            try:
                return original(*args, **kwargs)
            finally:
                self.depth = 0
                self.seconds += time.perf_counter() - start

        return collective


def _what(args: Any, kwargs: Any) -> str:
    tensors = [t for _, t in session.tensors([list(args), dict(kwargs)])]
    return " ".join(f"{str(t.dtype).removeprefix('torch.')}[{'x'.join(map(str, t.shape))}]" for t in tensors[:3])


def _site() -> str:
    """The innermost frame that is neither ours nor a library's."""
    for frame in reversed(traceback.extract_stack()):
        if not session.foreign(frame.filename):
            return f"{frame.filename}:{frame.lineno}"
    return ""


def main(request: dict[str, Any]) -> None:
    process.enter(request)
    log = Log(request)
    _join(request, log)
    try:
        _train(request, log)
    except BaseException as error:
        where = session.site(error)
        log.say(error=session.sentence(error), site=where, type=type(error).__name__)
        os._exit(1)  # at once: a rank that fails tidies nothing up, and the others must see that
    os._exit(0)


def _join(request: dict[str, Any], log: Log) -> None:
    import torch.distributed as dist

    rank, world = request["rank"], request["world"]
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT="0")  # fmt: skip
    # not TORCH_DISTRIBUTED_DEBUG=DETAIL: with torch 2.13 and gloo, DDP's constructor then segfaults
    os.environ.pop("TORCH_DISTRIBUTED_DEBUG", None)
    dist.init_process_group("gloo", init_method=f"file://{request['store']}", rank=rank, world_size=world,
                            timeout=datetime.timedelta(seconds=request["patience"]))  # fmt: skip
    dist.barrier()
    dist.init_process_group = lambda *args, **kwargs: None  # the user's own call: it is done already
    for name in COLLECTIVES:
        setattr(dist, name, log.wrap(name, getattr(dist, name)))
    log.say(ready=True)


def _train(request: dict[str, Any], log: Log) -> None:
    contract.put_on_path(request["paths"])
    function = contract.find(request["factory"])
    wants = len(inspect.signature(function).parameters)
    state.seed_all(request["seed"])
    made = function(request["rank"], request["world"]) if wants == 2 else function()
    training = contract.as_training(made, request["factory"])
    own = session.Session(training, steps=request["steps"])
    start, digests = time.perf_counter(), []
    for batch in itertools.islice(iter(training.data), request["steps"]):
        batch = session.move(batch, own.device)
        digests.append(samples.digest(batch))
        own.train_step(batch)
        log.say(step=len(digests))
    whole = time.perf_counter() - start
    log.say(
        done=True, batches=digests, seconds=whole, comms=log.seconds,
        weights={name: samples.digest(p) for name, p in training.model.named_parameters()},
    )  # fmt: skip


if __name__ == "__main__":
    main(json.load(sys.stdin))
