"""A save that is read back before it counts must not cost much more than one that is not.

1 GiB of tensors, written in turns to files of their own: against torch.save as everybody calls it, and against
torch.save with the fsync that makes it survive a power cut.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.measure import ROOT, Row, take_turns

SIZE = 1 << 30
TENSORS = 64
ROUNDS = 7

sys.path.insert(0, str(ROOT / "scripts"))


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="rgt-bench-") as folder:
        yield from _rows(Path(folder), make_state(SIZE))


def make_state(size: int) -> dict[str, Any]:
    import torch

    return {"model": {f"layers.{n}": torch.randn(size // TENSORS // 4) for n in range(TENSORS)}}


def _rows(folder: Path, state: dict[str, Any]) -> Iterator[Row]:
    import checkpoints

    ours = Saver(checkpoints.Checkpoints(folder / "ours", keep_last=1), state)
    plain, synced = Plain(folder / "plain", state), Plain(folder / "synced", state, sync=True)
    for save in (ours.blocking, plain.save, synced.save):  # the first of each finds no memory and no file yet
        save()
    yield Row("blocking save of 1 GiB / torch.save", *_turns(ours.blocking, plain.save), 1.15)
    # a yardstick without a goal: the peer that is as safe against a power cut, and reads nothing back
    yield Row("blocking save of 1 GiB / torch.save + fsync", *_turns(ours.blocking, synced.save), math.inf)


def _turns(ours: Callable[[], object], peer: Callable[[], object]) -> tuple[float, float]:
    os.sync()
    return take_turns(ours, peer, ROUNDS)


class Saver:
    def __init__(self, store: Any, state: dict[str, Any]) -> None:
        self.store, self.state, self.step = store, state, 0

    def blocking(self) -> None:
        self.step += 1
        self.store.save(self.step, self.state)


class Plain:
    """torch.save to a new name, and the file before it deleted: as a training loop that keeps the last one does."""

    def __init__(self, folder: Path, state: dict[str, Any], sync: bool = False) -> None:
        folder.mkdir()
        self.folder, self.state, self.sync, self.step = folder, state, sync, 0

    def save(self) -> None:
        import torch

        self.step += 1
        path = self.folder / f"step_{self.step}.pt"
        torch.save(self.state, path)
        if self.sync:
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        (self.folder / f"step_{self.step - 1}.pt").unlink(missing_ok=True)
