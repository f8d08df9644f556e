"""Several ranks on gloo, for real: who left whom, at which collective, and where each stands when nothing moves."""

from __future__ import annotations

import contextlib
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from probing.process import POLL, Child
from probing.results import Result, several
from rgt import procs
from rgt.errors import bad_input

_WAITING = ("timed out", "timeout", "connection closed", "connection reset", "monitoredbarrier", "detected mismatch",
            "gloo")  # fmt: skip


@dataclass
class Rank:
    """What one rank wrote before its end."""

    number: int
    code: int
    rows: list[dict[str, Any]]
    stack: list[str]
    last: str  # of stderr
    ended_by_us: bool
    calls: list[dict[str, Any]] = field(init=False)
    error: dict[str, Any] | None = field(init=False)
    done: dict[str, Any] | None = field(init=False)

    def __post_init__(self) -> None:
        self.calls = [row for row in self.rows if "collective" in row]
        self.error = next((row for row in self.rows if "error" in row), None)
        self.done = next((row for row in self.rows if "done" in row), None)

    @property
    def steps(self) -> int:
        return max((row["step"] for row in self.rows if "step" in row), default=0)

    @property
    def stands(self) -> str:
        """Where it is: at its error, in its stack, or behind its end."""
        if self.error:
            return f"raised at {self.error['site']}"
        if self.stack:
            return f"stands at {self.stack[0]}"
        return "ended" if self.done else "left no stack"


def desync(factory: str, paths: list[str], world: int, steps: int, timeout: float, seed: int) -> dict[str, Any]:
    """One result row, as the other probes give it."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="rgt-ranks-") as folder:
        common = {"factory": factory, "paths": paths, "world": world, "steps": steps, "seed": seed,
                  "patience": max(5.0, timeout / 3), "store": f"{folder}/store"}  # fmt: skip
        ranks = _run(Path(folder), common, world, timeout)
    result = Result("desync", seconds=time.perf_counter() - start)
    judge(result, ranks)
    return result.as_dict()


def _run(folder: Path, common: dict[str, Any], world: int, timeout: float) -> list[Rank]:
    with contextlib.ExitStack() as stack:
        children = [
            stack.enter_context(Child("rank.py", {**common, "rank": rank}, folder, f".{rank}")) for rank in range(world)
        ]
        end = time.monotonic() + timeout
        while (stuck := [child for child in children if child.running()]) and time.monotonic() < end:
            time.sleep(POLL)
        for child in stuck:
            child.dump()
    return [
        Rank(number, child.process.returncode, child.rows(), child.frames(), child.last_words(), child in stuck)
        for number, child in enumerate(children)
    ]


def judge(result: Result, ranks: list[Rank]) -> None:
    if not all(any("ready" in row for row in rank.rows) for rank in ranks):
        lost = next(rank for rank in ranks if not any("ready" in row for row in rank.rows))
        raise bad_input(f"rank {lost.number} could not join the others: {lost.last or 'it printed nothing'}")
    own = [rank for rank in ranks if rank.error and rank.error["type"] == "RgtError"]
    if own and own[0].error:
        raise bad_input(own[0].error["error"].partition(": ")[2])
    result.data = {"ranks": [{"rank": r.number, "steps": r.steps, "collectives": len(r.calls), "stands": r.stands}
                             for r in ranks]}  # fmt: skip
    if _mismatch(result, ranks) or _dead(result, ranks) or _missing(result, ranks):
        return
    if all(rank.done for rank in ranks):
        _compare(result, ranks)
    else:
        stuck = [rank for rank in ranks if not rank.done]
        result.add("hang", "error", f"rank {stuck[0].number} did not end: {stuck[0].stands}",
                   evidence="; ".join(f"rank {r.number} {r.stands}" for r in ranks))  # fmt: skip


def _shown(call: dict[str, Any]) -> str:
    return f"{call['op']} {call['what']}".strip() + (f" at {call['site']}" if call["site"] else "")


def _mismatch(result: Result, ranks: list[Rank]) -> bool:
    """The first collective at which two ranks do not do the same thing."""
    for number in range(max(len(rank.calls) for rank in ranks)):
        here = {rank.number: rank.calls[number] for rank in ranks if number < len(rank.calls)}
        kinds = {(call["op"], call["what"]) for call in here.values()}
        if len(kinds) > 1 and "object" not in next(iter(here.values()))["op"]:
            result.add("desync", "error", f"collective {number} is not the same on all ranks: " + ", ".join(
                f"rank {rank} runs {_shown(call)}" for rank, call in here.items()),
                evidence=_first_error(ranks), fix="no collective under a condition that differs between ranks; same "
                "shapes and dtypes everywhere")  # fmt: skip
            return True
    return False


def _dead(result: Result, ranks: list[Rank]) -> bool:
    """A rank that failed on its own account: the others only wait for it."""
    for rank in ranks:
        left = not rank.ended_by_us and not rank.done and not rank.error
        raised = rank.error and not _is_waiting(rank)
        if left or raised:
            how = f"by {procs.signal_name(-rank.code)}" if rank.code < 0 else f"with exit code {rank.code}"
            what = rank.error["error"] if rank.error else f"ended {how}"
            place = rank.error["site"] if rank.error else rank.stack[0] if rank.stack else ""
            others = [other for other in ranks if other is not rank and not other.done]
            waiting = "; ".join(
                f"rank {o.number} waits in {_shown(o.calls[-1]) if o.calls else 'backward'}" for o in others
            )
            result.add("desync", "error", f"rank {rank.number} failed at step {rank.steps}: {what}",
                       where=place, evidence=waiting or "no other rank waits",
                       fix="its error is the cause; the timeouts of the others follow from it")  # fmt: skip
            return True
    return False


def _is_waiting(rank: Rank) -> bool:
    """Its error is that of a collective: a timeout, a closed connection, a mismatch that torch noticed."""
    text = (rank.error or {}).get("error", "").lower()
    return any(word in text for word in _WAITING)


def _missing(result: Result, ranks: list[Rank]) -> bool:
    """One rank waits in a collective that another never began."""
    most = max(ranks, key=lambda rank: len(rank.calls))
    absent = [rank for rank in ranks if len(rank.calls) < len(most.calls)]
    if absent:
        call = most.calls[len(absent[0].calls)]
        who = several([str(rank.number) for rank in absent])
        result.add(
            "desync",
            "error",
            f"rank {who} never began collective {call['collective']}: {_shown(call)}",
            evidence="; ".join(f"rank {r.number} {r.stands}, {len(r.calls)} collectives" for r in ranks),
            fix="every rank must call it as often: uneven data, an early exit, `if rank == 0`",
        )
        return True
    waiting = [rank for rank in ranks if rank.error and _is_waiting(rank)]
    if not waiting:
        return False
    gone = [rank for rank in ranks if rank.done]
    if gone:
        result.add(
            "desync",
            "error",
            f"rank {gone[0].number} ended after {gone[0].steps} steps, and rank "
            f"{waiting[0].number} waits for it in step {waiting[0].steps + 1}",
            evidence=_first_error(ranks),
            fix="uneven numbers of batches: drop_last, pad, or DDP's join",
        )
        return True
    slow = min(ranks, key=lambda rank: rank.steps)
    result.add("desync", "error", f"ranks do not meet in the backward pass of step {slow.steps}: {_first_error(ranks)}",
               evidence="; ".join(f"rank {r.number} {r.stands}, {r.steps} steps" for r in ranks),
               fix="uneven numbers of batches (join), unused parameters (find_unused_parameters)")  # fmt: skip
    return True


def _first_error(ranks: list[Rank]) -> str:
    return next((rank.error["error"][:300] for rank in ranks if rank.error), "all ranks wait")


def _compare(result: Result, ranks: list[Rank]) -> None:
    """They met every time; do they also train the same weights on different data?"""
    first = ranks[0].done or {}
    names = [name for name in first["weights"] if len({(r.done or {})["weights"].get(name) for r in ranks}) > 1]
    comms = max((r.done or {})["comms"] for r in ranks)
    seconds = max((r.done or {})["seconds"] for r in ranks)
    result.evidence = f"{len(ranks)} ranks, {ranks[0].steps} steps, {len(ranks[0].calls)} collectives of their own; " \
        f"{comms:.3g} of {seconds:.3g} s inside them"  # fmt: skip
    result.data |= {"comms_seconds": comms, "seconds": seconds}
    if names:
        result.add(
            "desync",
            "error",
            "ranks end with different weights",
            where=several(names),
            evidence=f"{len(names)} of {len(first['weights'])} parameters differ after {ranks[0].steps} steps",
            fix="DDP broadcasts at its start and averages gradients; by hand, every parameter needs both",
        )
    same = [r.number for r in ranks[1:] if (r.done or {})["batches"] == first["batches"]]
    if same and first["batches"]:
        result.add("duplicate", "error", f"rank {several([str(n) for n in same])} reads the same batches as rank 0",
                   fix="DistributedSampler, or shards by rank")  # fmt: skip
