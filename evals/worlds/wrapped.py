"""The ways a log reaches a reader: what a container, a scheduler or a terminal puts around its lines, and scares.

Each takes text and gives text; `dice` makes the numbers, so that the same seed gives the same bytes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta

START = datetime(2026, 11, 12, 21, 4, 11)
Wrap = Callable[[str, random.Random], str]


def _lines(text: str) -> list[str]:
    return text.rstrip("\n").split("\n")


def _clocks(count: int, dice: random.Random) -> list[datetime]:
    at = START + timedelta(seconds=dice.randrange(400_000))
    found = []
    for _ in range(count):
        at += timedelta(milliseconds=dice.randrange(5, 900))
        found.append(at)
    return found


def plain(text: str, dice: random.Random) -> str:
    return text


def stamped(text: str, dice: random.Random) -> str:
    """kubectl logs --timestamps"""
    rows = zip(_clocks(len(_lines(text)), dice), _lines(text), strict=True)
    return "".join(f"{at.isoformat(timespec='microseconds')}000Z {line}\n" for at, line in rows)


def container(text: str, dice: random.Random) -> str:
    """docker's json-file driver"""
    rows = zip(_clocks(len(_lines(text)), dice), _lines(text), strict=True)
    return "".join(
        json.dumps({"log": line + "\n", "stream": "stderr", "time": f"{at.isoformat()}Z"}, ensure_ascii=False) + "\n"
        for at, line in rows
    )


def labelled(text: str, dice: random.Random) -> str:
    """srun --label"""
    rank = dice.randrange(8)
    return "".join(f"{rank}: {line}\n" for line in _lines(text))


def compose(text: str, dice: random.Random) -> str:
    """docker compose logs"""
    return "".join(f"trainer-{1 + (len(text) % 3)}  | {line}\n" for line in _lines(text))


def node_file(text: str, dice: random.Random) -> str:
    """/var/log/pods of a Kubernetes node"""
    rows = zip(_clocks(len(_lines(text)), dice), _lines(text), strict=True)
    return "".join(f"{at.isoformat(timespec='microseconds')}000Z stderr F {line}\n" for at, line in rows)


def windows(text: str, dice: random.Random) -> str:
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def coloured(text: str, dice: random.Random) -> str:
    """A terminal's recording."""
    return "".join(f"\x1b[{dice.choice((31, 32, 33, 90))}m{line}\x1b[0m\n" for line in _lines(text))


WRAPS: tuple[Wrap, ...] = (plain, stamped, labelled, container, coloured, windows, compose, node_file)


def steps(dice: random.Random, count: int, first: int = 0, level: float = 3.1) -> str:
    rows = []
    for number in range(first, first + count):
        level *= 0.996
        rows.append(
            f"step {number} | loss {level + dice.gauss(0, 0.01):.4f} | lr 3.00e-04 | {dice.gauss(81, 1):.1f}k tok/s\n"
        )
    return "".join(rows)


def scares(dice: random.Random) -> tuple[str, ...]:
    """What a training survives; steps follow."""
    worker, gib = dice.randrange(2000, 9000), dice.uniform(1, 6)
    return (
        f"WARNING micro-batch 16: CUDA out of memory. Tried to allocate {gib:.2f} GiB. retrying with 8\n",
        f'Traceback (most recent call last):\n  File "/srv/job/fetch.py", line {worker % 90}, in get\n'
        "    return session.get(url, timeout=10)\n"
        "requests.exceptions.ConnectTimeout: HTTPSConnectionPool(host='data.local', port=443): "
        "Max retries exceeded with url: /shard\nfetch failed, attempt 1 of 5\n",
        "WARNING non-finite gradient norm (nan), step skipped, loss scale 65536 -> 32768\n",
        "WARNING tensorboard event lost: [Errno 28] No space left on device; /scratch cleaned, going on\n",
    )


def after_a_scare(text: str, dice: random.Random) -> str:
    first = dice.randrange(10, 900)
    return steps(dice, 12, first) + dice.choice(scares(dice)) + steps(dice, 14, first + 12) + text


def noise_of_ranks(dice: random.Random, ranks: list[int]) -> str:
    """What the others print minutes later; it has nothing to do with the cause."""
    rows = []
    for rank in ranks:
        at = f"04:2{dice.randrange(10)}:0{rank % 10}.{dice.randrange(10**9):09d}"
        head = f"[rank{rank}]:[E1114 {at} ProcessGroupNCCL.cpp"
        rows.append(
            f"{head}:632] [Rank {rank}] Watchdog caught collective operation timeout: "
            f"WorkNCCL(SeqNum={dice.randrange(9999)}, OpType=ALLREDUCE, NumelIn=26216448, "
            "NumelOut=26216448, Timeout(ms)=600000) ran for 600021 milliseconds "
            "before timing out.\n"
            f"{head}:698] [Rank {rank}] To avoid data inconsistency, we are taking the entire process down.\n"
            "terminate called after throwing an instance of 'c10::DistBackendError'\n"
            f"  what():  [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Process group watchdog thread terminated with "
            f"exception: [Rank {rank}] Watchdog caught collective operation timeout\n"
        )
    return "".join(rows)


def epilogue(dice: random.Random) -> str:
    node, task = f"gpu{dice.randrange(10, 99)}", dice.randrange(8)
    return dice.choice(
        (
            f"srun: error: {node}: task {task}: Exited with exit code 1\n"
            f"srun: Terminating StepId={dice.randrange(10**6)}.0\n",
            "wandb: \nwandb: Run history:\nwandb: train/loss ▇▅▃▂▁\nwandb: Synced 5 W&B file(s), 0 media file(s)\n"
            "wandb: Find logs at: ./wandb/run-20261114/logs\n",
            f"[{node}] copying logs to /archive ... done\ncleanup: removed 3 temporary files, 0 errors\n",
        )
    )


def torchrun_tail(dice: random.Random, guilty: int, ranks: int, code: int) -> str:
    """The launcher ends the other ranks and sums up."""
    pid = dice.randrange(3000, 60000)
    head = "W1114 04:09:01.412000 2911 site-packages/torch/distributed/elastic/multiprocessing/api.py:1010]"
    rows = [f"{head} Sending process {pid + n} closing signal SIGTERM\n" for n in range(ranks) if n != guilty]
    signal = f"  (SIG{'KILL' if code == -9 else 'TERM'})" if code < 0 else ""
    rows += [
        f"E1114 04:09:02.103000 2911 api.py:984] failed (exitcode: {code}) local_rank: {guilty} (pid: {pid + guilty}) "
        "of binary: /opt/venv/bin/python\n",
        'Traceback (most recent call last):\n  File "/opt/venv/bin/torchrun", line 8, in <module>\n'
        "    sys.exit(main())\n",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n" + "=" * 56 + "\ntrain.py FAILED\n",
        "-" * 56 + "\nRoot Cause (first observed failure):\n[0]:\n  time      : 2026-11-14_04:09:02\n",
        f"  host      : gpu07\n  rank      : {guilty} (local_rank: {guilty})\n",
        f"  exitcode  : {code} (pid: {pid + guilty}){signal}\n  error_file: <N/A>\n",
        "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n",
        "=" * 56 + "\n",
    ]
    return "".join(rows)
