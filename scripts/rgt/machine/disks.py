"""Disks: how much room is left, which mount a path is on, and whether that file system outlives a stop."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

MEMORY = {"tmpfs", "ramfs", "devtmpfs", "zram"}
LAYER = {"overlay", "aufs"}  # a container's own writable layer
NETWORK = set(
    """nfs nfs4 cifs smb3 smbfs lustre gpfs beegfs ceph glusterfs 9p afs pvfs2 juicefs wekafs
    fuse.sshfs fuse.glusterfs fuse.ceph fuse.cephfs fuse.juicefs fuse.alluxio-fuse""".split()
)
# object stores behind FUSE: a rename is a copy, and nobody sees a file before it is closed
OBJECTS = {
    f"fuse.{name}" for name in "s3fs gcsfuse goofys rclone mountpoint-s3 ossfs cosfs blobfuse blobfuse2 obsfs".split()
}


@dataclass(frozen=True)
class Room:
    """Of the file system that `path` is on, as a user without privileges may use it."""

    path: str
    free: int
    total: int
    inodes_free: int
    inodes: int  # 0: the file system does not count them
    device: int = 0

    @property
    def free_share(self) -> float:
        return self.free / self.total if self.total else 1.0

    @property
    def inodes_share(self) -> float:
        return self.inodes_free / self.inodes if self.inodes else 1.0


def room(path: str | Path) -> Room:
    """Raises OSError for a path that is not there."""
    seen = os.statvfs(path)
    free, total = seen.f_bavail * seen.f_frsize, seen.f_blocks * seen.f_frsize
    return Room(str(path), free, total, seen.f_favail, seen.f_files, os.stat(path).st_dev)


def nearest_existing(path: Path) -> Path:
    """The path itself, or the last of its parents that is there."""
    return next((place for place in (path, *path.parents) if place.exists()), Path("/"))


@dataclass(frozen=True)
class Mount:
    root: str  # what part of the file system is mounted
    point: str
    fstype: str
    options: str  # of the file system itself


def mounts(path: Path = Path("/proc/self/mountinfo")) -> list[Mount]:
    """From lines such as '36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/sda rw'; the tags vary in number."""
    table = []
    for line in path.read_text(errors="replace").splitlines():
        # spaces and the like inside a word are written as octal
        left, right = (
            [re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), word) for word in half.split()]
            for half in line.partition(" - ")[::2]
        )
        if len(left) >= 5 and right:
            table.append(Mount(left[3], left[4], right[0], right[2] if len(right) > 2 else ""))
    return table


def mount_of(path: Path, table: list[Mount]) -> Mount | None:
    """The mount a path is on: the longest mount point above it, and the last of equals (it hides the others)."""
    real = f"{path.resolve()}/".replace("//", "/")
    above = [mount for mount in table if real.startswith(mount.point.rstrip("/") + "/")]
    return max(reversed(above), key=lambda mount: len(mount.point), default=None)


def is_remote(path: str) -> bool:
    """Whether processes of other machines may have it open: nothing here can see them."""
    try:
        mount = mount_of(Path(path), mounts())
    except OSError:
        return True
    return mount is None or mount.fstype in NETWORK | OBJECTS
