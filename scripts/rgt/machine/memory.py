"""How much memory, CPU and how many processes may really be used: the host's memory and the tightest cgroup limit.

Example:
    host_memory().available         limits().memory, .used, .cpus; None: no limit

/proc/meminfo and nproc describe the host; the kernel kills by the limit of the cgroup (v1 or v2), or of one above it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from rgt.machine import disks

_UNLIMITED = 1 << 60  # v1 writes about 2**63 for no limit


class HostMemory(NamedTuple):
    total: int
    available: int


def host_memory() -> HostMemory:
    """In bytes; zeros where there is no /proc/meminfo."""
    rows = dict(re.findall(r"(\w+):\s+(\d+) kB", _text(Path("/proc/meminfo"))))
    return HostMemory(int(rows.get("MemTotal", 0)) << 10, int(rows.get("MemAvailable", 0)) << 10)


def resident(pid: int) -> int | None:
    """Resident set size in bytes; None when the process is gone."""
    words = _text(Path(f"/proc/{pid}/statm")).split()
    return int(words[1]) * os.sysconf("SC_PAGE_SIZE") if len(words) > 1 else None


def rollup(pid: int) -> dict[str, int] | None:
    """Bytes by the names of /proc/PID/smaps_rollup (Pss, Anonymous, ...); None when it is gone or not ours to read."""
    rows = re.findall(r"^(\w+):\s+(\d+) kB", _text(Path(f"/proc/{pid}/smaps_rollup")), re.M)
    return {name: int(size) << 10 for name, size in rows} or None


@dataclass(frozen=True)
class Limits:
    memory: int | None = None
    used: int | None = None  # under the tightest memory limit, without page cache that can be dropped
    cpus: float | None = None


def limits(proc: Path = Path("/proc/self"), root: Path = Path("/")) -> Limits:
    """`root` is put before every mount point, for a tree that is not this machine's."""
    files = ("memory.max", "memory.limit_in_bytes")
    caps = [(cap, at) for at in _cgroups(proc, root, "memory") if (cap := _number(at, *files)) is not None]
    tightest, where = min(caps, default=(None, None), key=lambda pair: pair[0])
    used = _number(where, "memory.current", "memory.usage_in_bytes") if where else None
    if where and used is not None:  # as the kubelet counts: without inactive page cache
        stat: dict[str, str] = dict(re.findall(r"^(\w+) (\d+)$", _text(where / "memory.stat"), re.M))
        used = max(0, used - int(stat.get("total_inactive_file") or stat.get("inactive_file") or 0))
    cpus = []
    for at in _cgroups(proc, root, "cpu"):  # v2 has both numbers in one file: '200000 100000', or 'max 100000'
        words = _text(at / "cpu.max").split() or [_text(at / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):
            cpus.append(int(words[0]) / int(words[1]))
    return Limits(tightest, used, min(cpus, default=None))


def kills(proc: Path = Path("/proc/self"), root: Path = Path("/")) -> int:
    """How often the kernel has killed for memory in this process's cgroup, or, where that does not tell, at all."""
    own = next(_cgroups(proc, root, "memory"), None)
    text = (_text(own / "memory.events") or _text(own / "memory.oom_control")) if own else ""
    found = re.search(r"^oom_kill (\d+)$", text if "oom_kill " in text else _text(root / "proc/vmstat"), re.M)
    return int(found[1]) if found else 0


def _cgroups(proc: Path, root: Path, controller: str) -> Iterator[Path]:
    """The process's own cgroup, its parent and so on, up to the mount point (in a container: the container's own)."""
    own: dict[str, str] = {}  # '4:memory:/a' is v1 and decides for that controller; '0::/a' is v2
    for line in (proc / "cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(",") or not names:
            own["cgroup" if names else "cgroup2"] = path
    fstype = "cgroup" if "cgroup" in own else "cgroup2"
    for mount in disks.mounts(proc / "mountinfo"):
        if mount.fstype != fstype or fstype not in own:
            continue
        if fstype == "cgroup" and controller not in mount.options.split(","):
            continue
        point, inside = root / mount.point.lstrip("/"), own[fstype]
        if mount.root != "/":  # a container often sees only its own part of the tree, while the path may be the host's
            known = inside == mount.root or inside.startswith(mount.root + "/")
            inside = inside[len(mount.root) :] if known else ""
        folder = point if ".." in inside.split("/") else point / inside.strip("/")
        folder = folder if folder.is_dir() else point
        yield from (place for place in (folder, *folder.parents) if place == point or point in place.parents)


def _number(folder: Path, *names: str) -> int | None:
    """From the first of these files that holds a limit."""
    texts = (_text(folder / name) for name in names)
    return next((int(text) for text in texts if text.isdigit() and int(text) < _UNLIMITED), None)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
