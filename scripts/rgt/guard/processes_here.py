"""Is a pid the training of somebody else? Asked of /proc, for `kill PID`."""

from __future__ import annotations

import os
import re

_TRAINS = re.compile(
    r"(?i)(?:^|[^a-z])(?:(?:pre|re)?train(?:er|ing)?(?:[^a-z]|$)|finetun|fine[-_]tun|sft|dpo|grpo|torchrun|accelerate|deepspeed)"
)


def foreign_training(pid: int) -> str:
    """What it is, when it or a process above it trains or is a job of the gate, and this session did not start it."""
    ours, above = _line(os.getpid()), _line(pid)
    if set(above) & (set(ours[:3]) - {1}):  # of the agent or the shell that asks
        return ""
    for one in above:
        if one in ours:
            break
        words = _read(one, "cmdline").replace("\0", " ").strip()
        if re.search(r"python|torchrun|accelerate|deepspeed", words) and _TRAINS.search(words):
            return f"pid {one} trains: {words[:120]}"
        if "RGT_GATE_JOB=" in _read(one, "environ"):
            return f"pid {one} is a job of the GPU gate: {words[:120]}"
    return ""


def _line(pid: int) -> list[int]:
    """The process and those above it."""
    found: list[int] = []
    while pid > 0 and len(found) < 64:
        stat = _read(pid, "stat")
        if not stat:
            break
        found.append(pid)
        pid = int(stat.rpartition(")")[2].split()[1])
    return found


def _read(pid: int, name: str) -> str:
    try:
        with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""
