"""A real disk that fills up while checkpoints are saved: the last good one loads, and no part of one is left."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path
from typing import Any

from checkpoints import CheckpointError, Checkpoints
from rgt.checkpoint import saved_file

import pytest
import torch

from .disk import TinyDisk


def make(step: int, megabytes: float) -> dict[str, Any]:
    return {"model": {"w": torch.full((int(megabytes * 2**18),), float(step + 1))}}


def assert_whole(folder: Path, step: int) -> None:
    found = Checkpoints(folder).load_latest()
    assert found and found.step == step and found.skipped == []
    assert bool((found.state["model"]["w"] == step + 1).all())


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder / "checkpoints"))


def test_it_fills_up_in_the_middle_of_a_save(tiny_disk: TinyDisk) -> None:
    folder = tiny_disk(size="32m")
    store = Checkpoints(folder)
    store.save(1, make(1, 4))
    for megabytes in (28, 29, 40, 100):
        sentence = (
            "No space left on device; free space or prune, then save again: the checkpoints before it are untouched"
        )
        with pytest.raises(CheckpointError, match=sentence) as caught:
            store.save(2, make(2, megabytes))
        assert caught.value.full and names(folder) == ["step_000001.pt"]
        assert_whole(folder, 1)
    store.save(2, make(2, 4))
    assert_whole(folder, 2)


def test_what_torch_says_on_a_full_disk_is_in_the_catalogue(tiny_disk: TinyDisk) -> None:
    folder = tiny_disk(size="2m")
    with pytest.raises(RuntimeError) as caught:
        torch.save(make(1, 8), folder / "x.pt")
    reference = Path(__file__).parents[2] / "references" / "training" / "checkpoint-resume.md"
    entry = reference.read_text(encoding="utf-8").partition("### C3 ")[2]
    pattern = re.search(r"^signature: `(.+)`$", entry, re.M)
    assert pattern and re.search(pattern[1], str(caught.value)), caught.value


def test_no_inode_is_left(tiny_disk: TinyDisk) -> None:
    folder = tiny_disk(size="8m", inodes=6)
    store = Checkpoints(folder)
    store.save(1, make(1, 0.1))
    for number in range(2):  # the root, checkpoints/, the checkpoint, the index: two of six are free
        (folder / f"shard{number}").touch()
    with pytest.raises(CheckpointError, match="No space left on device") as caught:
        store.save(2, make(2, 0.1))
    assert caught.value.full
    assert_whole(folder, 1)


def test_the_index_does_not_fit_any_more(tiny_disk: TinyDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is there, its record is not: it counts all the same."""
    folder = tiny_disk(size="8m")
    store = Checkpoints(folder)
    store.save(1, make(1, 0.5))
    whole = saved_file.write

    def then_fill(path: Path, state: dict[str, Any]) -> Any:
        written = whole(path, state)
        fill(folder)
        return written

    monkeypatch.setattr(saved_file, "write", then_fill)
    with pytest.raises(CheckpointError, match=r"cannot write .*checkpoints_index.json: No space left"):
        store.save(2, make(2, 0.5))
    monkeypatch.undo()
    assert_whole(folder, 2)
    (folder / "filler").unlink()
    store.tidy()
    assert [entry["step"] for entry in store.entries()] == [1, 2]


def fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                pass


@pytest.mark.soak
def test_random_sizes_on_a_disk_that_is_nearly_full(tiny_disk: TinyDisk) -> None:
    folder, rng, good, refused = tiny_disk(size="24m"), random.Random(), 0, 0
    store = Checkpoints(folder, keep_last=1)
    for step in range(1, 41):
        try:
            store.save(step, make(step, rng.uniform(1, 18)))
            good = step
        except CheckpointError as error:
            assert error.full
            refused += 1
        if good:
            assert_whole(folder, good)
        assert not [name for name in os.listdir(folder / "checkpoints") if name.endswith(".tmp")]
    assert good and refused
