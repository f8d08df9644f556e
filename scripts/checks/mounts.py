"""Mount points as /proc/self/mountinfo tells them: which file system a path is on, and whether it outlives a stop."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

MEMORY = {"tmpfs", "ramfs", "devtmpfs", "zram"}
LAYER = {"overlay", "aufs"}  # a container's own writable layer
NETWORK = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "9p", "afs", "pvfs2",
    "fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.juicefs", "juicefs", "fuse.cephfs", "fuse.alluxio-fuse",
    "wekafs",
}  # fmt: skip
# object stores behind FUSE: a rename is a copy, and nobody sees a file before it is closed
OBJECTS = {
    "fuse.s3fs", "fuse.gcsfuse", "fuse.goofys", "fuse.rclone", "fuse.mountpoint-s3", "fuse.ossfs", "fuse.cosfs",
    "fuse.blobfuse", "fuse.blobfuse2", "fuse.obsfs",
}  # fmt: skip


@dataclass(frozen=True)
class Mount:
    root: str  # what part of the file system is mounted
    point: str
    fstype: str
    options: str  # of the file system itself


def read(path: Path = Path("/proc/self/mountinfo")) -> list[Mount]:
    return [found for line in path.read_text(errors="replace").splitlines() if (found := _parse(line))]


def _parse(line: str) -> Mount | None:
    """'36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/sda rw': the part after ' - ' moves with the tags."""
    before, _, after = line.partition(" - ")
    left, right = before.split(), after.split()
    if len(left) < 5 or not right:
        return None
    return Mount(_plain(left[3]), _plain(left[4]), right[0], right[2] if len(right) > 2 else "")


def _plain(text: str) -> str:
    """Spaces and the like are written as octal."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def of(path: Path, mounts: list[Mount]) -> Mount | None:
    """The mount a path is on: the longest mount point above it, and the last of equals (it hides the others)."""
    real = str(path.resolve())
    best: Mount | None = None
    for mount in mounts:
        inside = mount.point == "/" or real == mount.point or real.startswith(mount.point + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    return best


def is_container() -> bool:
    root = of(Path("/"), read())
    marks = ("/.dockerenv", "/run/.containerenv", "/run/secrets/kubernetes.io")
    return any(Path(mark).exists() for mark in marks) or (root is not None and root.fstype in LAYER)
