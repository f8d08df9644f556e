"""Real flight-recorder dumps: python flight_ranks.py FOLDER FAULT:RANKS ...  ->  FOLDER/FAULT/rank_<n>

Every rank is a fork with gloo; what must hang ends by gloo's own timeout. Only rank 1 is ever at fault.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

SECONDS = 3
MESH = ([[0, 1], [2, 3]], [[0, 2], [1, 3]])
c10d: Any = torch._C._distributed_c10d


def train(fault: str, rank: int, world: int, folder: Path) -> None:
    grads, flag = torch.ones(4), torch.ones(2)
    bad = rank == 1
    for step in range(3):
        dist.all_reduce(grads)
        if not (fault == "skip" and bad and step == 1):
            dist.broadcast(flag, 0)
    if fault == "reorder":
        calls = (lambda: dist.all_reduce(grads, async_op=True), lambda: dist.broadcast(flag, 0, async_op=True))
        for work in [call() for call in (reversed(calls) if bad else calls)]:
            work.wait()
    elif fault == "groups":  # two groups in different order: each waits for the other
        pair, everyone = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=SECONDS)), dist.group.WORLD
        order = (everyone, pair) if bad else (pair, everyone)
        for group in order if rank < 2 else (everyone,):
            dist.all_reduce(grads, group=group)
    elif fault == "mesh":  # 2 x 2: rank 0 waits for rank 1, and rank 2 for rank 0
        limit = datetime.timedelta(seconds=SECONDS)
        rows, columns = ([dist.new_group(ranks, timeout=limit) for ranks in part] for part in MESH)
        for step in range(2):
            if bad and step:
                wait_for(folder, world - 1)
                return
            for group in (rows[rank // 2], columns[rank % 2]):
                dist.all_reduce(grads, group=group)
    elif bad:
        misbehave(fault, folder, world)
    else:
        dist.all_reduce(grads)


def misbehave(fault: str, folder: Path, world: int) -> None:
    if fault == "dead":
        os.kill(os.getpid(), signal.SIGKILL)
    elif fault == "straggler":
        wait_for(folder, world - 1)
    elif fault == "shape":
        dist.all_reduce(torch.ones(2, 2))  # as many bytes: gloo does not abort
    elif fault == "dtype":
        dist.all_reduce(torch.ones(4, dtype=torch.int32))
    elif fault == "op":
        dist.reduce(torch.ones(4), 0)
    else:
        dist.all_reduce(torch.ones(4))


def wait_for(folder: Path, count: int) -> None:
    end = time.monotonic() + 20 * SECONDS
    while len(list(folder.glob("rank_*[0-9n]"))) < count and time.monotonic() < end:
        time.sleep(0.05)


def main(rank: int, world: int, fault: str, folder: Path) -> None:
    timeout = datetime.timedelta(seconds=SECONDS)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world, timeout=timeout)
    try:
        train(fault, rank, world, folder)
    except RuntimeError as error:
        print(f"{fault} rank {rank}: {error}", file=sys.stderr)
    end = time.monotonic() + SECONDS
    while fault in ("healthy", "json") and time.monotonic() < end:  # gloo notes the end later than wait() returns
        if json.loads(c10d._dump_fr_trace_json())["entries"][-1]["retired"]:
            break
        time.sleep(0.01)
    data = c10d._dump_fr_trace_json() if fault == "json" else c10d._dump_fr_trace()
    (folder / f"rank_{rank}.tmp").write_bytes(data)
    (folder / f"rank_{rank}.tmp").rename(folder / (f"rank_{rank}.json" if fault == "json" else f"rank_{rank}"))
    if fault in ("healthy", "json"):  # nobody leaves before all are done
        wait_for(folder, world)


if __name__ == "__main__":
    pids = []
    stack = torch._C._profiler.gather_traceback(True, True, False)
    torch._C._profiler.symbolize_tracebacks([stack])  # loads what each dump needs once, not once per rank
    for word in sys.argv[2:]:
        fault, world = word.split(":")
        folder = Path(sys.argv[1], fault)
        folder.mkdir()
        for rank in range(int(world)):
            pid = os.fork()
            if not pid:
                try:
                    main(rank, int(world), fault, folder)
                finally:
                    os._exit(0)
            pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
