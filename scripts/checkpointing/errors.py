"""The one exception of the library: a sentence for whoever reads the training log."""

from __future__ import annotations

import errno

FULL = {errno.ENOSPC, errno.EDQUOT}


class CheckpointError(RuntimeError):
    """What happened, where, and what to do. `full` is true when bytes, inodes or a quota ran out."""

    def __init__(self, message: str, full: bool = False) -> None:
        super().__init__(message)
        self.full = full


def from_os_error(error: OSError, doing: str) -> CheckpointError:
    full = error.errno in FULL
    advice = "; free space or prune, then save again: the checkpoints before it are untouched" if full else ""
    return CheckpointError(f"cannot {doing}: {error.strerror or error}{advice}", full)
