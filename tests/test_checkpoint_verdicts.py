"""One checkpoint, one answer: takeover, checkpoints list, verify_local and transfer's proof agree on what is whole."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import takeover
from rgt.checkpoint import whole
from rgt.checkpoint.whole import verdict
from rgt.host.ssh import Host, Place
from rgt.transfer import delivery

import numpy as np
import pytest

from . import corruption, zoo
from .corruption import flip, lengthen, member_offset, truncate
from .front_door import report

STEP = zoo.STEP


class Settings:
    """A class of the training's own, as people save it with their weights."""


def named(make: Callable[[Path], Path], name: str) -> Callable[[Path], Path]:
    """What `make` leaves, under a name that says its step."""

    def run(folder: Path) -> Path:
        return make(folder).rename(folder / name)

    return run


def inside(make: Callable[[Path], Path], name: str) -> Callable[[Path], Path]:
    """What `make` leaves, inside a folder whose name says its step."""

    def run(folder: Path) -> Path:
        (folder / name).mkdir()
        make(folder / name)
        return folder / name

    return run


def with_array(folder: Path) -> Path:
    zoo.hf_trainer(folder)
    np.savez(folder / f"checkpoint-{STEP}" / "ema.npz", ema=np.arange(1.0, 50.0))
    return folder / f"checkpoint-{STEP}"


FILE, GLOBAL = "step_000040.pt", f"global_step{STEP}"
TORCH, LEGACY = named(zoo.torch_zip, FILE), named(zoo.torch_legacy, FILE)
DCP = named(zoo.distributed, "step_40")  # "step" is an entry that is no tensor

HEALTHY: dict[str, Callable[[Path], Path]] = {
    "torch": TORCH,
    "torch legacy": LEGACY,
    "torch packed again": named(zoo.torch_zipped_again, FILE),
    "torch of every dtype": named(zoo.torch_exotic, "step_000040.pth"),
    "lightning": zoo.lightning,
    "safetensors": named(zoo.safetensors, "step-40.safetensors"),
    "sharded": inside(zoo.hf_sharded, "checkpoint-40"),
    "Trainer": zoo.hf_trainer,
    "dcp with other entries": DCP,
    "deepspeed": lambda folder: zoo.deepspeed(folder) / GLOBAL,
    "folder with an npz": with_array,
}


def written(data: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / FILE).write_bytes(data)
        return folder / FILE

    return make


def flip_a_weight(path: Path) -> None:
    flip(path, member_offset(path, "data/0") + 8)


def with_a_flipped_packed_weight(folder: Path) -> Path:
    path = zoo.torch_zipped_again(folder)
    with zipfile.ZipFile(path) as archive:
        member = max(archive.infolist(), key=lambda each: each.compress_size)
    return flip(path, member.header_offset + 200)


def with_a_storage_that_is_a_folder(folder: Path) -> Path:
    """One bit of the zip's directory: torch then returns memory that nobody wrote to."""
    path = zoo.torch_zip(folder)
    data = bytearray(path.read_bytes())
    data[data.rindex(b"PK\x01\x02", 0, data.rindex(b"/data/0")) + 38] |= 0x10
    path.write_bytes(data)
    return path


def with_a_cut_array(folder: Path) -> Path:
    truncate(with_array(folder) / "ema.npz", 0.5)
    return folder / f"checkpoint-{STEP}"


def torch_pickle(name: str) -> bytes:
    return b"\x80\x02c" + name.replace(" ", "\n").encode() + b"\n)R."


BROKEN: dict[str, tuple[Callable[[Path], Path], str]] = {  # how, and what the reason names
    "cut": (named(corruption.torch_cut_in_half, FILE), "the zip's directory is missing"),
    "bit flipped, packed": (named(with_a_flipped_packed_weight, FILE), "zip member"),
    "storage is a folder": (named(with_a_storage_that_is_a_folder, FILE), "folder"),
    "text": (written(b"loss 0.3\n" * 100), "plain text"),
    "hostile pickle": (written(torch_pickle("os system")), "os.system"),
    "legacy with a tail": (named(corruption.legacy_with_a_tail, FILE), "4 bytes follow the last storage"),
    "safetensors short": (named(corruption.safetensors_cut, "step-40.safetensors"), "behind the end of the file"),
    "shard missing": (inside(corruption.shard_missing, "checkpoint-40"), "model-00002-of-00003.safetensors: is named"),
    "dcp file short": (named(corruption.dcp_file_cut, "step_40"), "__0_0.distcp: should be at"),
    "rank missing": (lambda folder: corruption.deepspeed_last_rank_missing(folder) / GLOBAL, "1 of 2 ranks have none"),
    "of another step": (corruption.trainer_in_the_wrong_folder, "is of step 40, its folder of step 400"),
    "npz cut": (with_a_cut_array, "ema.npz: "),
}


def settle(folder: Path) -> None:
    """Old enough not to be taken for a file that is still written."""
    for path in folder.rglob("*"):
        os.utime(path, (0, time.time() - 1000))


def answers(run: Path, path: Path) -> dict[str, bool]:
    """Whether it is whole, by everyone who is asked."""
    settle(run)
    newest = report("takeover.py", "snapshot", run)["runs"][0]["checkpoints"]["newest"]
    assert newest["path"] == str(path)
    folder = path if path.is_dir() else path.parent
    corruption.manifest(folder)
    delivered = delivery.Delivery(Place(Host(), str(folder)), folder, (), 0.0)
    delivery.verify_folder(delivered)
    rows = {row["path"]: row["whole"] for row in report("checkpoints.py", "list", run)["checkpoints"]}
    return {
        "verdict": verdict(path).whole,
        "verdict on values": verdict(path, values=True).whole,
        "takeover": newest["state"] == "ok",
        "checkpoints list": rows[path.relative_to(run).as_posix()],
        "verify_local": report("verify_local.py", path)["ok"],
        "transfer": delivered.proof is not None,
    }


def run_folder(tmp_path: Path) -> Path:
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    return tmp_path / "run"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*HEALTHY, *BROKEN])
def test_everyone_says_the_same(tmp_path: Path, name: str) -> None:
    run = run_folder(tmp_path)
    make, named_by = BROKEN[name] if name in BROKEN else (HEALTHY[name], "")
    path = make(run / "checkpoints")
    said = answers(run, path)
    assert [who for who, good in said.items() if good != (name in HEALTHY)] == []
    found = verdict(path)
    if name in HEALTHY:
        assert (found.state, found.depth, found.reason, found.step) == ("ok", "read", "", STEP)
        return
    assert named_by in found.reason
    assert found.state == ("unknown" if name == "text" else "broken")
    if path.is_file():
        os.utime(path)
        assert verdict(path).state == "writing"
        assert verdict(path).message == f"written seconds ago and not complete yet ({found.reason}); look again"


def test_a_look_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = TORCH(tmp_path)
    assert verdict(path).depth == "read" and verdict(path, values=True).depth == "values"
    flip_a_weight(path)
    settle(tmp_path)
    assert verdict(path).reason.startswith("zip member 'ckpt/data/0' has CRC")
    for limits in ({"read": 1000}, {"read_until": 0.0}):
        assert (verdict(path, **limits).state, verdict(path, **limits).depth) == ("ok", "structure")
    monkeypatch.setattr(whole, "_HEADERS_SECONDS", -1.0)
    late = verdict(path)
    assert (late.whole, late.state) == (False, "unknown")
    assert late.reason == "there was no time to read all of its headers"


def test_what_is_not_there_or_not_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.pt")
    (tmp_path / "loop.pt").symlink_to(tmp_path / "loop.pt")
    (tmp_path / "checkpoint-1").mkdir()
    assert verdict(tmp_path / "gone.pt").reason.startswith(f"{tmp_path}/gone.pt does not exist")
    assert verdict(tmp_path / "fifo.pt").reason == "not a regular file"
    assert verdict(tmp_path / "loop.pt").reason == "cannot be opened: Too many levels of symbolic links"
    assert verdict(tmp_path / "checkpoint-1").code == "empty" and not verdict(tmp_path / "checkpoint-1").files


@pytest.mark.filterwarnings("ignore")
def test_a_bare_python_gives_the_same_answer(tmp_path: Path) -> None:
    """As on a rented box: no numpy, no torch, no click, no schema."""
    healthy, broken = DCP(tmp_path), LEGACY(tmp_path)
    lengthen(broken)
    code = (
        "import sys, pathlib\n"
        "for name in ('numpy', 'torch', 'click', 'yaml', 'jsonschema'): sys.modules[name] = None\n"
        "from rgt.checkpoint.whole import verdict\n"
        "print([verdict(pathlib.Path(path)).whole for path in sys.argv[1:]])\n"
    )
    scripts = str(Path(takeover.__file__).parent)
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(healthy), str(broken)],
        env={"PYTHONPATH": scripts},
        capture_output=True,
        text=True,
    )
    assert (done.stdout.strip(), done.stderr) == ("[True, False]", "")
