from __future__ import annotations

import errno
import os

import pytest

from .disk import TinyDisk, unmount


def test_it_fills_by_bytes(tiny_disk: TinyDisk) -> None:
    disk = tiny_disk(size="1m", inodes=50)
    with pytest.raises(OSError) as full, (disk / "checkpoint.pt").open("wb", buffering=0) as out:
        for _ in range(100):
            out.write(bytes(64 * 1024))
    assert full.value.errno == errno.ENOSPC
    assert (disk / "checkpoint.pt").stat().st_size == 1 << 20


def test_it_fills_by_inodes_while_bytes_are_free(tiny_disk: TinyDisk) -> None:
    disk = tiny_disk(size="1m", inodes=10)
    with pytest.raises(OSError) as full:
        for n in range(100):
            (disk / f"shard{n}").touch()
    assert full.value.errno == errno.ENOSPC
    assert len(list(disk.iterdir())) == 9  # the tenth inode is the root directory
    assert os.statvfs(disk).f_bavail > 0


def test_two_disks_are_two_mounts(tiny_disk: TinyDisk) -> None:
    one, other = tiny_disk(), tiny_disk()
    (one / "x").touch()
    assert os.path.ismount(one) and os.path.ismount(other) and not list(other.iterdir())


def test_a_file_left_open_does_not_keep_the_mount(tiny_disk: TinyDisk) -> None:
    disk = tiny_disk()
    with (disk / "train.log").open("w"):
        unmount(disk)
        assert not os.path.ismount(disk)
