"""One rank's loader worker was killed by the kernel; sixty-three others shout NCCL, and that node's clock is ahead."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

from trials.case import Box, Case, differs

RANKS, STEPS, ROOT_RANK, LAST = 64, 2600, 37, 2588
START = datetime(2026, 11, 15, 1, 0, 0)
OOM = "CUDA out of memory. Tried to allocate 1.20 GiB"
ASYNC = "Due to the asynchronous nature of CUDA kernels, GPU operations might run on corrupted/incomplete data."
SKEW = {1: -320, 4: 1510, 6: 45}  # seconds, by node


def _stamp(rank: int, seconds: float) -> str:
    when = START + timedelta(seconds=seconds + SKEW.get(rank // 8, 0))
    return when.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def _steps(rank: int, last: int, rng: random.Random) -> list[str]:
    lines = []
    for step in range(last + 1):
        at = _stamp(rank, 3.1 * step)
        loss, speed = 9 * (step + 3) ** -0.22 + rng.random() * 0.05, rng.randint(41000, 43000)
        lines.append(f"{at} INFO [rank{rank}] step {step}/{STEPS} loss {loss:.4f} lr 3.0e-04 tok/s {speed}")
        if rank == 12 and step == 940:
            lines.append(f"{at} WARNING [rank12] torch.OutOfMemoryError caught: {OOM}; retrying with micro batch 4")
        if rank in (3, 50) and step % 700 == 699:
            lines.append(f"{at} WARNING [rank{rank}] grad norm inf, step skipped, loss scale 32768.0")
    return lines


def _timeout(rank: int, rng: random.Random) -> list[str]:
    head = f"[rank{rank}]:[E1115 03:23:{rng.randint(10, 59)}.{rng.randint(100000, 999999)}000 ProcessGroupNCCL.cpp"
    work = "WorkNCCL(SeqNum=20711, OpType=ALLREDUCE, NumelIn=26216448, NumelOut=26216448, Timeout(ms)=600000)"
    ran = f"ran for {600000 + rng.randint(5, 99)} milliseconds before timing out."
    at = _stamp(rank, 3.1 * LAST + 603 + rng.random())
    return [
        f"{head}:632] [Rank {rank}] Watchdog caught collective operation timeout: {work} {ran}",
        f"{head}:684] [Rank {rank}] Some NCCL operations have failed or timed out. {ASYNC}",
        f"{at} ERROR [rank{rank}] terminate called after throwing an instance of 'c10::DistBackendError'",
    ]


def _killed(rank: int) -> list[str]:
    at = _stamp(rank, 3.1 * LAST + 4)
    return [
        f"{at} ERROR [rank{rank}] Traceback (most recent call last):",
        '  File "/opt/train/train.py", line 412, in <module>',
        "    main()",
        '  File "/opt/train/train.py", line 371, in main',
        "    batch = next(batches)",
        '  File "/opt/venv/lib/python3.11/site-packages/torch/utils/data/dataloader.py", line 1284, in _try_get_data',
        "    raise RuntimeError(",
        "RuntimeError: DataLoader worker (pid(s) 48113) exited unexpectedly",
        "RuntimeError: DataLoader worker (pid 48113) is killed by signal: Killed. ",
    ]


def make(box: Box) -> None:
    rng = random.Random(64)
    logs = box.work / "logs"
    logs.mkdir()
    for rank in range(RANKS):
        last = LAST if rank == ROOT_RANK else LAST + 1 if rank % 5 else LAST
        end = _killed(rank) if rank == ROOT_RANK else _timeout(rank, rng)
        (logs / f"rank_{rank:02d}.log").write_text("\n".join(_steps(rank, last, rng) + end) + "\n")


def verify(box: Box) -> list[str]:
    answer = box.read("answer.json")
    right = {"rank": ROOT_RANK, "step": LAST, "kind": "host-memory"}
    return [problem for key, value in right.items() for problem in differs(key, answer.get(key), value)]


def reference(box: Box) -> None:
    kinds = {"DP1": "host-memory", "U9": "host-memory", "OOM9": "host-memory", "DL2": "network", "OOM1": "gpu-memory"}
    report = box.script("triage.py", *sorted((box.work / "logs").glob("*.log")))
    first = report["diagnoses"][0]
    rank = first["rank"]
    lines = (box.work / "logs" / f"rank_{rank:02d}.log").read_text().splitlines()
    step = next(line for line in reversed(lines) if " step " in line).split(" step ")[1].split("/")[0]
    box.write("answer.json", {"rank": rank, "step": int(step), "kind": kinds.get(first["id"], "code")})


def naive(box: Box) -> None:
    """The earliest clock with the word ERROR in it."""
    found = []
    for path in sorted((box.work / "logs").glob("*.log")):
        found += [(line[:23], path) for line in path.read_text().splitlines() if " ERROR " in line]
    rank = int(min(found)[1].stem[-2:])
    box.write("answer.json", {"rank": rank, "step": LAST, "kind": "network"})


CASE = Case(
    route="a run failed, what does this log mean?",
    reads=(),
    minutes=5,
    commands=10,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="Rank 37, step 2588, host memory: its loader worker was killed; the NCCL timeouts are the aftermath.",
)
