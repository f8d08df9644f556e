"""Dumps of eight ranks of which one skipped a collective in a branch of its own, long before the hang shows."""

from __future__ import annotations

import pickle
from typing import Any

from trials.case import Box, Case, differs

RANK, STEPS, SKIPPED = 5, 120, 87  # at this step rank 5 left the step early
_SRC = """import torch
import torch.distributed as dist


def step(model, optimizer, batch, scaler, stats, tp_group):
    loss = model(batch).mean()
    dist.all_reduce(stats.count, group=tp_group)
    if not torch.isfinite(loss):
        optimizer.zero_grad()
        return None
    loss.backward()
    dist.all_reduce(stats.found_inf)
    scaler.step(optimizer)
    for bucket in model.buckets():
        dist.all_reduce(bucket)
    return loss


def sync(stats, step_number):
    if step_number % 10 == 0:
        dist.broadcast(stats.best, 0)
    dist.all_gather_into_tensor(stats.losses, stats.loss)
"""
LINE = {text.strip(): number for number, text in enumerate(_SRC.splitlines(), 1)}
CALLS = {  # what: (line, profiling name, size)
    "count": ("dist.all_reduce(stats.count, group=tp_group)", "nccl:all_reduce", 1),
    "found": ("dist.all_reduce(stats.found_inf)", "nccl:all_reduce", 1),
    "bucket": ("dist.all_reduce(bucket)", "nccl:all_reduce", 1 << 20),
    "best": ("dist.broadcast(stats.best, 0)", "nccl:broadcast", 4),
    "gather": ("dist.all_gather_into_tensor(stats.losses, stats.loss)", "nccl:_all_gather_base", 1),
}


def _calls(rank: int) -> list[tuple[int, str]]:
    rows = []
    for step in range(1, STEPS + 1):
        rows.append((step, "count"))
        if not (rank == RANK and step == SKIPPED):
            rows += [(step, "found"), (step, "bucket"), (step, "bucket")]
        rows += [(step, "best")] * (step % 10 == 0) + [(step, "gather")]
    return rows


def _until_hang() -> tuple[int, int]:
    """How many calls of the default group match in kind and size, and the first that does not."""
    good = [what for _, what in _calls(0) if what != "count"]
    bad = [what for _, what in _calls(RANK) if what != "count"]
    sizes = [(CALLS[a][1:], CALLS[b][1:]) for a, b in zip(good, bad, strict=False)]
    first = next(number for number, pair in enumerate(sizes) if pair[0] != pair[1])
    return first, first + 1


def _entries(rank: int) -> list[dict[str, Any]]:
    done, last = _until_hang()
    seen = {"0": 0, "tp": 0}
    entries = []
    for record, (step, what) in enumerate(_calls(rank)):
        text, name, size = CALLS[what]
        group = "tp" if what == "count" else "0"
        seen[group] += 1
        if seen["0"] > last:
            break
        state = "completed" if group == "tp" or seen["0"] <= done else "started"
        function = "sync" if what in ("best", "gather") else "step"
        frames = [{"name": function, "filename": "/job/src/train.py", "line": LINE[text]}]
        entries.append(
            {
                "frames": [
                    {"name": "wrapper", "filename": "/venv/torch/distributed/c10d_logger.py", "line": 83},
                    *frames,
                ],
                "record_id": record,
                "pg_id": 0 if group == "0" else 1,
                "process_group": [group, "default_pg" if group == "0" else "tensor_parallel"],
                "collective_seq_id": seen[group],
                "p2p_seq_id": 0,
                "op_id": record,
                "profiling_name": name,
                "time_created_ns": 1_790_000_000_000_000_000 + step * 400_000_000 + record * 1000 + rank,
                "input_sizes": [[size]],
                "input_dtypes": ["Float"],
                "output_sizes": [[size * (8 if what == "gather" else 1)]],
                "output_dtypes": ["Float"],
                "state": state,
                "retired": state == "completed",
                "timeout_ms": 600000,
                "is_p2p": False,
            }
        )
    return entries[-400:]


def make(box: Box) -> None:
    box.write("src/train.py", _SRC)
    (box.work / "dumps").mkdir()
    for rank in range(8):
        pair = rank // 2 * 2
        config = {
            "0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(8)))},
            "tp": {"name": "tp", "desc": "tensor_parallel", "ranks": f"[{pair}, {pair + 1}]"},
        }
        data = {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": _entries(rank)}
        (box.work / "dumps" / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(data, protocol=2))
        box.write(f"logs/rank{rank}.log", "".join(f"[rank{rank}] step {n} ok\n" for n in range(60, SKIPPED)))


def _answer() -> dict[str, Any]:
    before = [what for step, what in _calls(0) if what != "count" and step < SKIPPED]
    done, _ = _until_hang()
    waits = [what for _, what in _calls(0) if what != "count"][done]
    line = LINE["return None"]
    return {"rank": RANK, "sequence": len(before) + 1, "group": "0", "others_wait_in": CALLS[waits][1], "line": line}


def verify(box: Box) -> list[str]:
    given, right = box.read("hang.json"), _answer()
    problems = [p for key in ("rank", "sequence", "others_wait_in") for p in differs(key, given.get(key), right[key])]
    problems += differs("group", str(given.get("group")) in ("0", "default_pg"), True)
    named = str(given.get("line", "")).rpartition(":")[2].strip()
    branch = {
        str(LINE[text]) for text in ("return None", "if not torch.isfinite(loss):", "dist.all_reduce(stats.found_inf)")
    }
    return problems + differs("line", named in branch, True)


def reference(box: Box) -> None:
    report = box.script("triage.py", "--flight", "dumps", ok=(0, 1))
    cause = next(one for one in report["findings"] if one["severity"] == "error")
    rank = int(str(cause["where"]).split()[1])
    right = _answer()
    box.write("hang.json", {**right, "rank": rank, "line": f"train.py:{right['line']}"})


def naive(box: Box) -> None:
    """The last entry of each dump, and who has fewer."""
    last = {rank: _entries(rank)[-1] for rank in range(8)}
    odd = min(last, key=lambda rank: last[rank]["record_id"])
    entry = last[odd]
    line = f"train.py:{entry['frames'][-1]['line']}"
    told = {"rank": odd, "sequence": entry["collective_seq_id"], "group": "0", "others_wait_in": "nccl:all_reduce"}
    box.write("hang.json", {**told, "line": line})


CASE = Case(
    route="ranks that hang",
    minutes=10,
    commands=20,
    held_out=True,
    expected="Rank 5 left the step at the not-finite branch; the first collective it lacks is named.",
)
