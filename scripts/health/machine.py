"""The box under a run: GPUs, host memory against its limit, disk and inodes, and what the kernel says of the cards.

Example:
    sample = take(Path("runs/x"), pids=[4711])       one reading, JSON-ready
    for finding in judge(samples, eta=7200): ...      the newest against those before it
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from checks import cgroups
from rgt import gpu, procs, units
from rgt.report import Finding

SAMPLES = 240
_FULL = 0.03  # share of a disk that may be left
_TIGHT = 0.92  # share of a memory limit from which the kernel's kill is near
_HOT = 90  # degrees Celsius at which every data-centre card throttles; below it, 15 above its own usual
_IDLE = 5  # percent
_IDLE_SAMPLES = 3
_IDLE_SECONDS = 120.0
_SLOPE_SAMPLES = 4
_SLOPE_SECONDS = 300.0
_HELD = 600 << 20  # bytes; drivers and contexts of their own stay below
_XID = re.compile(r"NVRM: Xid \(([^)]*)\): (\d+),?\s*(.*)")
# NVIDIA's catalogue of Xid errors: these mean the hardware or its memory, the others mostly the program
_XID_HARDWARE = {48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120}
_DMESG_SECONDS = 5.0


def take(where: Path, pids: list[int] | None = None) -> dict[str, Any]:
    """One reading. What cannot be read is left out."""
    reading = gpu.read()
    sample: dict[str, Any] = {"time": time.time(), "gpus": [_card(card) for card in reading.gpus]}
    if reading.problem:
        sample["gpu_problem"] = reading.problem
    sample["memory"] = memory(pids or [])
    sample["disk"] = disk(where)
    sample["xid"] = xids() if reading.gpus or reading.problem else []
    sample["pids"] = sorted({pid for root in pids or [] for pid in (root, *procs.descendants(root))})
    return sample


def _card(card: gpu.Gpu) -> dict[str, Any]:
    row = card.as_dict()
    row["processes"] = [process.pid for process in card.processes]
    return {name: value for name, value in row.items() if value not in (None, "", [])} | {"processes": row["processes"]}


def memory(pids: list[int]) -> dict[str, Any]:
    """Used and limit of the run's own cgroup; without a limit, the host's."""
    folder = Path(f"/proc/{pids[0]}") if pids else Path("/proc/self")
    try:
        limits = cgroups.read(folder)
    except (OSError, ValueError):
        limits = cgroups.Limits()
    rss = {str(pid): size for pid in pids if (size := _rss(pid)) is not None}
    total, available = _meminfo()
    if limits.memory and limits.used is not None and (not total or limits.memory < total):
        return {"used": limits.used, "limit": limits.memory, "what": "the container's limit", "rss": rss}
    if total:
        return {"used": total - available, "limit": total, "what": "the host's memory", "rss": rss}
    return {"rss": rss}


def _meminfo() -> tuple[int, int]:
    try:
        rows = dict(line.split(":", 1) for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line)
        return int(rows["MemTotal"].split()[0]) * 1024, int(rows["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        return 0, 0


def _rss(pid: int) -> int | None:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def disk(where: Path) -> dict[str, Any]:
    try:
        found = os.statvfs(where)
    except OSError:
        return {}
    return {
        "path": str(where),
        "free": found.f_bavail * found.f_frsize,
        "total": found.f_blocks * found.f_frsize,
        "inodes_free": found.f_favail,
        "inodes": found.f_files,
    }


def xids() -> list[dict[str, Any]]:
    """Xid lines of the kernel's ring buffer, newest last; empty when it may not be read."""
    if not shutil.which("dmesg"):
        return []
    try:
        text = subprocess.run(["dmesg"], capture_output=True, timeout=_DMESG_SECONDS).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return []
    found = [(match, line) for line in text.splitlines() if (match := _XID.search(line))]
    return [{"device": match[1], "xid": int(match[2]), "line": line.strip()[:200]} for match, line in found[-8:]]


def writers(paths: list[str]) -> list[int] | None:
    """Who has one of these files open to write; None when not everybody may be asked."""
    wanted = {os.path.realpath(path) for path in paths}
    found, blind = [], False
    try:
        pids = procs.pids()
    except OSError:
        return None
    for pid in pids:
        held = procs.descriptors(pid)
        if held is None:
            blind = True
        elif any(target in wanted and procs.writes_to(pid, number) for number, target in held):
            found.append(pid)
    return sorted(found) or (None if blind else [])


# -- judging


def judge(samples: list[dict[str, Any]], eta: float | None = None, live: bool = True) -> Iterator[Finding]:
    """`live`: the run should be using the box now; `eta` is how long it will still need it."""
    if not samples:
        return
    now = samples[-1]
    if now.get("gpu_problem"):
        yield Finding("gpu", "error", now["gpu_problem"], sure=0.95)
    for card in now.get("gpus", []):
        yield from _judge_card(card, _history(samples, card), now, live)
    yield from _judge_xid(samples)
    yield from _judge_memory(samples, eta)
    yield from _judge_disk(samples, eta)


def _history(samples: list[dict[str, Any]], card: dict[str, Any]) -> list[tuple[float, dict[str, Any]]]:
    return [
        (sample["time"], row) for sample in samples for row in sample.get("gpus", []) if row["index"] == card["index"]
    ]


def _judge_card(
    card: dict[str, Any], history: list[tuple[float, dict[str, Any]]], now: dict[str, Any], live: bool
) -> Iterator[Finding]:
    where = f"GPU {card['index']}"
    if card.get("error"):
        yield Finding("gpu", "error", card["error"], where=where, sure=0.99)
        return
    yield from _heat(card, history, where)
    errors = card.get("ecc_errors") or 0
    if errors:
        before = next((row.get("ecc_errors", 0) for _, row in history), 0)
        more = f", {errors - before} since the first look" if errors > before else ""
        fix = "save, drain the card and ask for another; numbers computed on it are suspect"
        yield Finding(
            "ecc", "error", f"{errors} uncorrectable memory errors since boot{more}", where=where, fix=fix, sure=0.95
        )
    used = card.get("memory_used") or 0
    if not card["processes"] and used > _HELD:
        fix = "a process in another container, or a dead one: fuser -v /dev/nvidia*"
        yield Finding(
            "held",
            "warn",
            f"{units.show_size(used)} in use, and no process shows for it",
            where=where,
            fix=fix,
            sure=0.8,
        )
    if live and _mine(card, now) and _idle(history):
        span = history[-1][0] - history[-_IDLE_SAMPLES][0]
        evidence = f"{_IDLE_SAMPLES} looks over {units.show_duration(span)}"
        use = card.get("utilization", 0)
        message = f"used {use} % while the run goes on"
        yield Finding("gpu-idle", "warn", message, where=where, evidence=evidence, sure=0.8)


def _mine(card: dict[str, Any], now: dict[str, Any]) -> bool:
    """Held by the run; where the run's processes are not known, by anybody."""
    holders = set(card["processes"])
    return bool(holders & set(now["pids"])) if now.get("pids") else bool(holders)


def _idle(history: list[tuple[float, dict[str, Any]]]) -> bool:
    newest = history[-_IDLE_SAMPLES:]
    quiet = all(row.get("utilization", 100) < _IDLE for _, row in newest)
    return len(newest) == _IDLE_SAMPLES and quiet and newest[-1][0] - newest[0][0] >= _IDLE_SECONDS


def _heat(card: dict[str, Any], history: list[tuple[float, dict[str, Any]]], where: str) -> Iterator[Finding]:
    degrees = card.get("temperature")
    usual = [row["temperature"] for _, row in history[:-1] if "temperature" in row]
    own = median(usual) if len(usual) >= 5 else None
    reasons = card.get("slowdown", [])
    thermal = [reason for reason in reasons if "thermal" in reason or reason == "hw_slowdown"]
    if degrees is not None and (degrees >= _HOT or (own is not None and degrees >= max(80, own + 15))):
        told = f", usually {own:g}" if own is not None else ""
        yield Finding(
            "gpu-hot", "warn", f"{degrees} degrees{told}", where=where, evidence=", ".join(reasons) or None, sure=0.9
        )
    if thermal or "hw_power_brake_slowdown" in reasons:
        yield Finding("throttled", "warn", f"slowed down: {', '.join(reasons)}", where=where, sure=0.95)
    elif reasons:  # sw_power_cap: a card at full load usually is at its power limit
        yield Finding("throttled", "info", f"at its limit: {', '.join(reasons)}", where=where, sure=0.9)


def _judge_xid(samples: list[dict[str, Any]]) -> Iterator[Finding]:
    for row in {row["line"]: row for row in samples[-1].get("xid", [])}.values():
        hardware = row["xid"] in _XID_HARDWARE
        severity = "error" if hardware else "warn"
        meaning = "the card or its memory" if hardware else "most often the program"
        yield Finding(
            "xid", severity, f"Xid {row['xid']}: {meaning}", where=row["device"], evidence=row["line"], sure=0.9
        )


def _judge_memory(samples: list[dict[str, Any]], eta: float | None) -> Iterator[Finding]:
    now = samples[-1].get("memory", {})
    if not now.get("limit"):
        return
    share = now["used"] / now["limit"]
    told = f"{units.show_size(now['used'])} of {units.show_size(now['limit'])} ({now['what']})"
    fix = "fewer data-loader workers; the kernel kills with exit code 137 and no traceback"
    if share > _TIGHT:
        yield Finding("host-memory", "warn", f"{told} are used", evidence=f"{share:.0%}", fix=fix, sure=0.9)
        return
    rows = [(s["time"], float(s["memory"]["used"])) for s in samples if s.get("memory", {}).get("used") is not None]
    left = _until(rows, float(now["limit"]))
    if left is not None and share > 0.5 and left < (eta or 6 * 3600):
        message = f"{told} are used and grow: full in {units.show_duration(left)}"
        yield Finding("host-memory", "warn", message, evidence=f"{len(rows)} looks", fix=fix, sure=0.7)


def _judge_disk(samples: list[dict[str, Any]], eta: float | None) -> Iterator[Finding]:
    now = samples[-1].get("disk", {})
    for unit, total in (("free", "total"), ("inodes_free", "inodes")):
        if not now.get(total):  # btrfs and others have no fixed number of inodes
            continue
        left = f"{units.show_size(now['free'])} free" if unit == "free" else f"{now[unit]} inodes free of {now[total]}"
        if now[unit] < _FULL * now[total]:
            yield Finding("no-space", "warn", left, path=now["path"], sure=0.95)
            continue
        rows = [(s["time"], -float(s["disk"][unit])) for s in samples if s.get("disk", {}).get(unit) is not None]
        seconds = _until(rows, 0.0)
        if seconds is not None and seconds < (eta if eta is not None else 24 * 3600):
            message = f"{left}, and full in {units.show_duration(seconds)} at this rate"
            message += ", before the run ends" if eta is not None else ""
            yield Finding("no-space", "warn", message, path=now["path"], evidence=f"{len(rows)} looks", sure=0.75)


def _until(rows: list[tuple[float, float]], limit: float) -> float | None:
    """Seconds until a growing quantity reaches `limit`, by the median of pairwise slopes (Theil-Sen)."""
    rows = rows[-60:]
    if len(rows) < _SLOPE_SAMPLES or rows[-1][0] - rows[0][0] < _SLOPE_SECONDS:
        return None
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for n, a in enumerate(rows) for b in rows[n + 1 :] if b[0] > a[0]]
    slope = median(slopes) if slopes else 0.0
    return max(0.0, (limit - rows[-1][1]) / slope) if slope > 0 else None
