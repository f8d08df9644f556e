"""The box under a run: GPUs, host memory against its limit, disk and inodes.

Example:
    sample = take(Path("runs/x"), pids=[4711])       one reading, JSON-ready
    for finding in judge(samples, eta=7200): ...      the newest against those before it
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from rgt import units
from rgt.machine import disks, gpus, memory, processes
from rgt.report import Finding

SAMPLES = 240
_ROOMS = (  # code, kind of sample, its number, of what, the share from which it is nearly full
    ("host-memory", "memory", "used", "limit", 0.92),  # the kernel's kill is near
    ("no-space", "disk", "free", "total", 0.97),
    ("no-space", "disk", "inodes_free", "inodes", 0.97),
)
_HOT = 90  # degrees Celsius at which every data-centre card throttles
_IDLE = 5  # percent
_IDLE_SAMPLES = 3
_IDLE_SECONDS = 120.0
_SLOPE_SAMPLES = 4
_SLOPE_SECONDS = 300.0
_HELD = 600 << 20  # bytes; drivers and contexts of their own stay below


def take(where: Path, pids: list[int] | None = None) -> dict[str, Any]:
    """One reading. What cannot be read is left out."""
    reading = gpus.read()
    sample: dict[str, Any] = {"time": time.time(), "gpus": [], "disk": {}}
    for card in reading.gpus:
        known = {name: value for name, value in card.as_dict().items() if value not in (None, "", [])}
        sample["gpus"].append({**known, "processes": [process.pid for process in card.processes]})
    if reading.problem:
        sample["gpu_problem"] = reading.problem
    sample["memory"] = memory_in_use(pids or [])
    with contextlib.suppress(OSError):
        sample["disk"] = {name: value for name, value in vars(disks.room(where)).items() if name != "device"}
    sample["pids"] = sorted({pid for root in pids or [] for pid in (root, *processes.descendants(root))})
    return sample


def memory_in_use(pids: list[int]) -> dict[str, Any]:
    """Used and limit of the run's own cgroup; without a limit, the host's."""
    limits = memory.Limits()
    with contextlib.suppress(OSError, ValueError):
        limits = memory.limits(Path(f"/proc/{pids[0]}" if pids else "/proc/self"))
    rss = {str(pid): size for pid in pids if (size := memory.resident(pid)) is not None}
    total, available = memory.host_memory()
    if limits.memory and limits.used is not None and (not total or limits.memory < total):
        return {"used": limits.used, "limit": limits.memory, "what": "the container's limit", "rss": rss}
    if total:
        return {"used": total - available, "limit": total, "what": "the host's memory", "rss": rss}
    return {"rss": rss}


# -- judging


def judge(samples: list[dict[str, Any]], eta: float | None = None, live: bool = True) -> Iterator[Finding]:
    """`live`: the run should be using the box now; `eta` is how long it will still need it."""
    if not samples:
        return
    now = samples[-1]
    if now.get("gpu_problem"):
        yield Finding("gpu", "error", now["gpu_problem"], sure=0.95)
    for card in now.get("gpus", []):
        rows = [(sample["time"], row) for sample in samples for row in sample.get("gpus", [])]
        yield from _judge_card(card, [row for row in rows if row[1]["index"] == card["index"]], now, live)
    yield from _judge_room(samples, eta)


def _judge_card(
    card: dict[str, Any], history: list[tuple[float, dict[str, Any]]], now: dict[str, Any], live: bool
) -> Iterator[Finding]:
    def finding(code: str, severity: str, message: str, sure: float, **more: Any) -> Finding:
        return Finding(code, severity, message, where=f"GPU {card['index']}", sure=sure, **more)

    if card.get("error"):
        yield finding("gpu", "error", card["error"], 0.99)
        return
    reasons = card.get("slowdown", [])  # sw_power_cap is no fault: a card at full load usually is at its power limit
    if slowed := [reason for reason in reasons if "thermal" in reason or reason.startswith("hw_")]:
        yield finding("throttled", "warn", f"slowed down: {', '.join(slowed)}", 0.95)
    if card.get("temperature", 0) >= _HOT:
        yield finding("gpu-hot", "warn", f"{card['temperature']} degrees", 0.9)
    if errors := card.get("ecc_errors"):
        fix = "save, drain the card and ask for another; numbers computed on it are suspect"
        yield finding("ecc", "error", f"{errors} uncorrectable memory errors since boot", 0.95, fix=fix)
    used, holders = card.get("memory_used") or 0, set(card["processes"])
    if not holders and used > _HELD:
        fix = "a process in another container, or a dead one: fuser -v /dev/nvidia*"
        yield finding("held", "warn", f"{units.show_size(used)} in use, but no visible process holds it", 0.8, fix=fix)
    # held by the run; where the run's processes are not known, by anybody
    mine = holders & set(now["pids"]) if now.get("pids") else holders
    newest = history[-_IDLE_SAMPLES:]
    quiet = len(newest) == _IDLE_SAMPLES and all(row.get("utilization", 100) < _IDLE for _, row in newest)
    span = newest[-1][0] - newest[0][0]
    if live and mine and quiet and span >= _IDLE_SECONDS:
        evidence = f"{_IDLE_SAMPLES} looks over {units.show_duration(span)}"
        message = f"used {card.get('utilization', 0)} % while the run goes on"
        yield finding("gpu-idle", "warn", message, 0.8, evidence=evidence)


def _judge_room(samples: list[dict[str, Any]], eta: float | None) -> Iterator[Finding]:
    """Memory, disk and inodes: nearly full now, or more than half full and full before the run ends."""
    for code, kind, name, whole, tight in _ROOMS:
        now = samples[-1].get(kind, {})
        if not (limit := now.get(whole)):  # btrfs and others have no fixed number of inodes
            continue
        values = [(sample["time"], sample.get(kind, {}).get(name)) for sample in samples]
        used = [(when, float(n if name == "used" else limit - n)) for when, n in values if n is not None]
        told = f"{now[name]} inodes free of {limit}" if whole == "inodes" else f"{units.show_size(now[name])} free"
        facts: dict[str, Any] = {"path": now.get("path", ""), "evidence": f"{used[-1][1] / limit:.0%} used"}
        if name == "used":
            told = f"{units.show_size(now['used'])} of {units.show_size(limit)} ({now['what']}) are used"
            facts["fix"] = "fewer data-loader workers; the kernel kills with exit code 137 and no traceback"
        # when it is full, by the median of pairwise slopes (Theil-Sen)
        rows, left = used[-60:], None
        if len(rows) >= _SLOPE_SAMPLES and rows[-1][0] - rows[0][0] >= _SLOPE_SECONDS:
            slopes = [(b[1] - a[1]) / (b[0] - a[0]) for n, a in enumerate(rows) for b in rows[n + 1 :] if b[0] > a[0]]
            if slopes and (slope := median(slopes)) > 0:
                left = max(0.0, (limit - rows[-1][1]) / slope)
        if used[-1][1] > tight * limit:
            yield Finding(code, "warn", told, sure=0.9, **facts)
        elif left is not None and used[-1][1] > 0.5 * limit and left < (eta if eta is not None else 6 * 3600):
            message = f"{told}, and full in {units.show_duration(left)} at this rate"
            yield Finding(code, "warn", message, sure=0.75, **facts)
