"""Several ranks on gloo, for real: who left whom, at which collective, and where each stands when nothing moves.

Every rank is a child process (`main` below) that writes down each collective when it begins, each step, and digests
of its batches and weights at the end.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import inspect
import itertools
import os
import re
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rgt.errors import bad_input
from rgt.machine import processes
from rgt.probes import factory
from rgt.probes.factory import Result, several
from rgt.probes.probe_session import Session, digest, foreign, move, seed_all, sentence, site, tensors
from rgt.probes.runner import POLL, Child, enter

_COLLECTIVES = (
    "all_reduce broadcast reduce all_gather all_gather_into_tensor gather scatter reduce_scatter reduce_scatter_tensor"
    " all_to_all all_to_all_single barrier broadcast_object_list all_gather_object"
).split()
# in the error of a collective: a timeout, a closed connection, a mismatch that torch noticed
_WAITING = re.compile(r"timed out|timeout|connection (closed|reset)|monitoredbarrier|detected mismatch|gloo", re.I)


# -- in a rank's process


def main() -> None:
    request, say = enter()
    seconds = _join(request, say)
    try:
        function = factory.find(request["factory"])
        wants = len(inspect.signature(function).parameters)
        seed_all(request["seed"])
        made = function(request["rank"], request["world"]) if wants == 2 else function()
        training = factory.as_training(made, request["factory"])
        session = Session(training, steps=request["steps"])
        start, digests = time.perf_counter(), []
        for batch in itertools.islice(iter(training.data), request["steps"]):
            batch = move(batch, session.device)
            digests.append(digest(batch))
            session.train_step(batch)
            say(step=len(digests))
        whole = time.perf_counter() - start
        weights = {name: digest(p) for name, p in training.model.named_parameters()}
        say(done=True, batches=digests, seconds=whole, comms=sum(seconds), weights=weights)
    except BaseException as error:
        say(error=sentence(error), site=site(error), type=type(error).__name__)
        os._exit(1)  # at once: a rank that fails tidies nothing up, and the others must see that
    os._exit(0)


def _join(request: dict[str, Any], say: Callable[..., None]) -> list[float]:
    """Meet the other ranks, then listen to the collectives; the list gets the seconds of each."""
    import torch.distributed as dist

    rank, world = str(request["rank"]), str(request["world"])
    os.environ.update(RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=world, MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
    # not TORCH_DISTRIBUTED_DEBUG=DETAIL: with torch 2.13 and gloo, DDP's constructor then segfaults
    os.environ.pop("TORCH_DISTRIBUTED_DEBUG", None)
    store, patience = f"file://{request['store']}", datetime.timedelta(seconds=request["patience"])
    dist.init_process_group("gloo", init_method=store, rank=int(rank), world_size=int(world), timeout=patience)
    dist.barrier()
    dist.init_process_group = lambda *args, **kwargs: None  # the user's own call: it is done already
    seconds: list[float] = []
    numbers, inside = itertools.count(), [False]

    def listening(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def collective(*args: Any, **kwargs: Any) -> Any:
            if inside[0]:  # object collectives are made of others
                return original(*args, **kwargs)
            given = [t for _, t in tensors([list(args), dict(kwargs)])][:3]
            shapes = [f"{str(t.dtype).removeprefix('torch.')}[{'x'.join(map(str, t.shape))}]" for t in given]
            frames = [frame for frame in traceback.extract_stack() if not foreign(frame.filename)]
            place = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
            say(collective=next(numbers), op=name, what=" ".join(shapes), site=place)
            inside[0], start = True, time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                inside[0] = False
                seconds.append(time.perf_counter() - start)

        return collective

    for name in _COLLECTIVES:
        setattr(dist, name, listening(name, getattr(dist, name)))
    say(ready=True)
    return seconds


# -- our side


@dataclass
class Rank:
    """What one rank wrote before its end."""

    number: int
    code: int
    rows: list[dict[str, Any]]
    stack: list[str]
    last: str  # of stderr
    ended_by_us: bool

    def __post_init__(self) -> None:
        self.calls = [row for row in self.rows if "collective" in row]
        self.error: dict[str, Any] = next((row for row in self.rows if "error" in row), {})
        self.done: dict[str, Any] = next((row for row in self.rows if "done" in row), {})
        self.steps = max((row["step"] for row in self.rows if "step" in row), default=0)
        # its error is that of a collective: it waits for another rank
        self.waits = bool(_WAITING.search(self.error.get("error", "")))
        self.stands = f"stands at {self.stack[0]}" if self.stack else "ended" if self.done else "left no stack"
        if self.error:
            self.stands = f"raised at {self.error['site']}"

    def call(self, number: int) -> str:
        call = self.calls[number]
        return f"{call['op']} {call['what']}".strip() + (f" at {call['site']}" if call["site"] else "")


def desync(request: dict[str, Any], world: int, timeout: float) -> Result:
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="rgt-ranks-") as folder, contextlib.ExitStack() as stack:
        common = {**request, "world": world, "patience": max(5.0, timeout / 3), "store": f"{folder}/store"}
        requests = [{**common, "rank": rank} for rank in range(world)]
        children = [stack.enter_context(Child("ranks", r, Path(folder), f".{r['rank']}")) for r in requests]
        end = time.monotonic() + timeout
        while (stuck := [child for child in children if child.running()]) and time.monotonic() < end:
            time.sleep(POLL)
        for child in stuck:
            child.dump()
            child.__exit__()
        ranks = [
            Rank(number, child.process.returncode, child.rows(), child.frames(), child.last_words(), child in stuck)
            for number, child in enumerate(children)
        ]
    result = judge_ranks(ranks)
    result.seconds = time.perf_counter() - start
    return result


def judge_ranks(ranks: list[Rank]) -> Result:
    result = Result("desync")
    for rank in ranks:
        if not any("ready" in row for row in rank.rows):
            raise bad_input(f"rank {rank.number} could not join the others: {rank.last or 'it printed nothing'}")
        if rank.error.get("type") == "RgtError":
            raise bad_input(rank.error["error"].partition(": ")[2])
    result.data = {
        "ranks": [{"rank": r.number, "steps": r.steps, "collectives": len(r.calls), "stands": r.stands} for r in ranks]
    }
    for explain in (_mismatch, _failed, _missing, _compare):  # the first that finds something is the cause
        explain(result, ranks)
        if result.findings:
            break
    return result


def _first_error(ranks: list[Rank]) -> str:
    return next((rank.error["error"][:300] for rank in ranks if rank.error), "all ranks wait")


def _mismatch(result: Result, ranks: list[Rank]) -> None:
    """The first collective at which two ranks do not do the same thing."""
    for number in range(max(len(rank.calls) for rank in ranks)):
        here = [rank for rank in ranks if number < len(rank.calls)]
        kinds = {(rank.calls[number]["op"], rank.calls[number]["what"]) for rank in here}
        if len(kinds) > 1 and "object" not in here[0].calls[number]["op"]:
            shown = ", ".join(f"rank {rank.number} runs {rank.call(number)}" for rank in here)
            result.add("desync", f"collective {number} is not the same on all ranks: {shown}", _first_error(ranks))
            result.fix("no collective under a condition that differs between ranks; same shapes and dtypes everywhere")
            return


def _failed(result: Result, ranks: list[Rank]) -> None:
    """A rank that failed on its own account: the others only wait for it."""
    for rank in ranks:
        left = not rank.ended_by_us and not rank.done and not rank.error
        if not left and (not rank.error or rank.waits):
            continue
        how = f"by {processes.signal_name(-rank.code)}" if rank.code < 0 else f"with exit code {rank.code}"
        place = rank.stack[0] if rank.stack else ""
        others = [other for other in ranks if other is not rank and not other.done]
        waiting = [f"rank {o.number} waits in {o.call(-1) if o.calls else 'backward'}" for o in others]
        message = f"rank {rank.number} failed at step {rank.steps}: {rank.error.get('error', f'ended {how}')}"
        shown = "; ".join(waiting) or "no other rank waits"
        result.add("desync", message, shown, where=rank.error.get("site", place))
        result.fix("its error is the cause; the timeouts of the others follow from it")
        return


def _missing(result: Result, ranks: list[Rank]) -> None:
    """One rank waits for another, in a collective that it never began, or did not end at all."""
    most = max(ranks, key=lambda rank: len(rank.calls))
    absent = [rank for rank in ranks if len(rank.calls) < len(most.calls)]
    waiting = [rank for rank in ranks if rank.waits]
    gone, stuck = [rank for rank in ranks if rank.done], [rank for rank in ranks if not rank.done]
    if absent:
        number, who = len(absent[0].calls), several([str(rank.number) for rank in absent])
        shown = "; ".join(f"rank {r.number} {r.stands}, {len(r.calls)} collectives" for r in ranks)
        result.add("desync", f"rank {who} never began collective {number}: {most.call(number)}", shown)
        result.fix("every rank must call it as often: uneven data, an early exit, `if rank == 0`")
    elif waiting and gone:
        ended = f"rank {gone[0].number} ended after {gone[0].steps} steps"
        message = f"{ended}, and rank {waiting[0].number} waits for it in step {waiting[0].steps + 1}"
        result.add("desync", message, _first_error(ranks))
        result.fix("uneven numbers of batches: drop_last, pad, or DDP's join")
    elif waiting:
        shown = "; ".join(f"rank {r.number} {r.stands}, {r.steps} steps" for r in ranks)
        step = min(rank.steps for rank in ranks)
        result.add("desync", f"ranks do not meet in the backward pass of step {step}: {_first_error(ranks)}", shown)
        result.fix("uneven numbers of batches (join), unused parameters (find_unused_parameters)")
    elif stuck:
        shown = "; ".join(f"rank {r.number} {r.stands}" for r in ranks)
        result.add("hang", f"rank {stuck[0].number} did not end: {stuck[0].stands}", shown)


def _compare(result: Result, ranks: list[Rank]) -> None:
    """They met every time; do they also train the same weights on different data?"""
    first = ranks[0].done
    names = [name for name in first["weights"] if len({rank.done["weights"].get(name) for rank in ranks}) > 1]
    comms, seconds = (max(rank.done[key] for rank in ranks) for key in ("comms", "seconds"))
    result.evidence = (
        f"{len(ranks)} ranks, {ranks[0].steps} steps, {len(ranks[0].calls)} collectives of their own; "
        f"{comms:.3g} of {seconds:.3g} s inside them"
    )
    result.data |= {"comms_seconds": comms, "seconds": seconds}
    if names:
        shown = f"{len(names)} of {len(first['weights'])} parameters differ after {ranks[0].steps} steps"
        result.add("desync", "ranks end with different weights", shown, where=several(names))
        result.fix("DDP broadcasts at its start and averages gradients; by hand, every parameter needs both")
    same = [str(rank.number) for rank in ranks[1:] if rank.done["batches"] == first["batches"]]
    if same and first["batches"]:
        result.add("duplicate", f"rank {several(same)} reads the same batches as rank 0")
        result.fix("DistributedSampler, or shards by rank")
