"""What this process may really use: the tightest limit on the way from its own cgroup to the top, v1 or v2.

Example:
    limits = read()          limits.memory, limits.memory_high, limits.used, limits.cpus, limits.pids; None: no limit

/proc/meminfo and nproc tell of the host; the kernel kills by these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from checks import mounts

Number = TypeVar("Number", int, float)

_UNLIMITED = 1 << 60  # v1 writes about 2**63 for no limit


@dataclass(frozen=True)
class Limits:
    memory: int | None = None
    memory_high: int | None = None  # v2: above it the process is not killed but slowed to a crawl
    used: int | None = None  # under the tightest memory limit, without page cache that can be dropped
    cpus: float | None = None
    pids: int | None = None


def read(proc: Path = Path("/proc/self"), root: Path = Path("/")) -> Limits:
    """`root` is put before every mount point, for a tree that is not this machine's."""
    memory = list(_folders(proc, root, "memory"))
    limits = [(limit, folder) for folder in memory if (limit := _memory(folder)) is not None]
    tightest = min(limits, default=None, key=lambda found: found[0])
    return Limits(
        tightest[0] if tightest else None,
        _least(_number(folder / "memory.high") for folder in memory),
        _used(tightest[1]) if tightest else None,
        _least(_cpus(folder) for folder in _folders(proc, root, "cpu")),
        _least(_number(folder / "pids.max") for folder in _folders(proc, root, "pids")),
    )


def _least(values: Iterator[Number | None]) -> Number | None:
    return min((value for value in values if value is not None), default=None)


def _folders(proc: Path, root: Path, controller: str) -> Iterator[Path]:
    """The process's own cgroup, its parent and so on, up to the mount point (in a container: the container's own)."""
    mine = _own_path(proc, controller)
    for mount in mounts.read(proc / "mountinfo"):
        old = mount.fstype == "cgroup" and controller in mount.options.split(",")
        new = mount.fstype == "cgroup2"
        path = mine.get("v1") if old else mine.get("v2") if new else None
        if path is None or (new and "v1" in mine):
            continue
        point = root / mount.point.lstrip("/")
        folder = point / _inside(path, mount.root)
        folder = folder if folder.is_dir() else point
        yield from (place for place in (folder, *folder.parents) if place == point or point in place.parents)


def _own_path(proc: Path, controller: str) -> dict[str, str]:
    """'4:memory:/a' is v1 and decides for that controller; '0::/a' is v2."""
    found = {}
    for line in (proc / "cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            found["v1"] = path
        elif not names:
            found["v2"] = path
    return found


def _inside(path: str, mounted: str) -> str:
    """A container often sees only its own part of the tree, while the path may be the host's."""
    if mounted != "/" and (path == mounted or path.startswith(mounted + "/")):
        path = path[len(mounted) :]
    elif mounted != "/":
        return ""
    return "" if ".." in path.split("/") else path.strip("/")


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text.isdigit() and int(text) < _UNLIMITED else None


def _memory(folder: Path) -> int | None:
    new = _number(folder / "memory.max")
    return new if new is not None else _number(folder / "memory.limit_in_bytes")


def _used(folder: Path) -> int | None:
    """As the kubelet counts: usage without inactive page cache."""
    usage = _number(folder / "memory.current")
    usage = usage if usage is not None else _number(folder / "memory.usage_in_bytes")
    if usage is None:
        return None
    stat = dict(line.split() for line in _text(folder / "memory.stat").splitlines() if len(line.split()) == 2)
    cache = int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
    return max(0, usage - cache)


def _cpus(folder: Path) -> float | None:
    """v2 has both numbers in one file: '200000 100000', or 'max 100000'."""
    words = _text(folder / "cpu.max").split() or [_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    if len(words) != 2 or not all(word.isdigit() for word in words) or not int(words[1]):
        return None
    return int(words[0]) / int(words[1])
