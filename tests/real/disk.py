"""A disk that fills: a tmpfs with few bytes and few inodes, so ENOSPC comes from the kernel and not from a mock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from rgt.machine import disks

import pytest

from .support import missing, need, need_root, run, wait_for


class TinyDisk(Protocol):
    def __call__(self, size: str = "8m", inodes: int = 50) -> Path: ...


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[TinyDisk]:
    """A factory: `tiny_disk(size="8m", inodes=50)` is a new mount point, empty, one inode used by its root."""
    mounted: list[Path] = []

    def make(size: str = "8m", inodes: int = 50) -> Path:
        mounted.append(mount(tmp_path / f"disk{len(mounted)}", f"size={size},nr_inodes={inodes}"))
        return mounted[-1]

    yield make
    for point in reversed(mounted):
        unmount(point)


def mount(point: Path, options: str = "") -> Path:
    """A new tmpfs at a new folder; without options the folder itself, as a mount with all the room."""
    need_root("mounting a disk")
    point.mkdir(parents=True)
    how = ["-t", "tmpfs", "-o", options, "tmpfs"] if options else ["--bind", str(point)]
    done = run([need("mount", "mount"), *how, str(point)], check=False)
    if done.returncode:  # a container without CAP_SYS_ADMIN
        missing(f"a disk cannot be mounted: {done.stderr.strip()}")
    return point


def _is_mounted(point: Path) -> bool:
    """Unlike is_mount, True for a folder that is mounted on itself."""
    return any(mounted.point == str(point) for mounted in disks.mounts())


def unmount(point: Path) -> None:
    """Give the last writer a moment to close its file, then detach lazily: the mount must not outlive the test."""
    umount = need("umount", "mount")
    try:
        wait_for("umount", lambda: not _is_mounted(point) or run([umount, str(point)], check=False).returncode == 0, 1)
    except TimeoutError:
        run([umount, "-l", str(point)])
