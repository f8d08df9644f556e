"""checkpoints: whatever is killed, full or damaged, the last good one loads, and what resume needs is never deleted."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import checkpoints
from checkpoints import CheckpointError, Checkpoints, StopSignals
from rgt import schema
from rgt.checkpoint import index, saved_file, store

import numpy
import pytest
import torch

from . import front_door
from .gate_box import until
from .nursery import Nursery

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
SCRIPT = SCRIPTS / "checkpoints.py"
PATIENCE = 120.0


def make(step: int, size: int = 1000) -> dict[str, Any]:
    """A state that says itself whether it is whole: every weight is its step."""
    return {"model": {"w": torch.full((size,), float(step + 1)), "b": torch.arange(5.0)}, "note": f"of step {step}"}


def assert_whole(found: checkpoints.Loaded | None) -> int:
    assert found is not None
    assert found.state["step"] == found.step and found.state["note"] == f"of step {found.step}"
    assert bool((found.state["model"]["w"] == found.step + 1).all())
    return found.step


def filled(folder: Path, *steps: int, **keep: Any) -> Checkpoints:
    store = Checkpoints(folder, **{"keep_last": 100, **keep})
    for step in steps:
        store.save(step, make(step), {"loss": 10.0 - step})
    return store


def steps_on_disk(folder: Path) -> list[int]:
    return [step for step, _ in index.on_disk(folder / index.FOLDER)]


def listed(folder: Path) -> list[dict[str, Any]]:
    data = json.loads((folder / index.INDEX).read_text())
    assert schema.problems(data, "checkpoints_index") == []
    return list(data["checkpoints"])


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return front_door.call("checkpoints.py", *words)


# -- somebody else's files


def test_a_foreign_file_of_our_name_stands_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    metrics = {"loss": 2.0, "history": [3.0, 2.0], "each": torch.ones(2), "huge": 10**400, "nan": float("nan")}
    foreign = {**make(5), "time": float("nan"), "metrics": metrics}
    torch.save(foreign, tmp_path / "checkpoints" / "step_000005.pt")
    torch.save({**make(6), "metrics": [1.0]}, tmp_path / "checkpoints" / "step_000006.pt")
    filled(tmp_path, 10)
    assert [entry.get("metrics") for entry in listed(tmp_path)] == [{"loss": 2.0}, None, {"loss": 0.0}]
    (tmp_path / index.INDEX).unlink()
    done = run("verify", tmp_path)
    assert "3 of 3 checkpoints are real" in done.stdout, done.stdout + done.stderr


# -- a full round trip


def test_everything_that_changes_comes_back(tmp_path: Path) -> None:
    trained, fresh = (Training() for _ in range(2))
    for _ in range(3):
        trained.step()
    store = Checkpoints(tmp_path)
    store.save(3, checkpoints.capture(**trained.parts(), phase="curated"), {"loss": 1.5})
    expected = [trained.step() for _ in range(3)], random.random(), numpy.random.rand(), torch.rand(2).tolist()
    random.seed(1), numpy.random.seed(1), torch.manual_seed(1)
    found = store.load_latest()
    assert found and found.step == 3 and found.skipped == []
    assert checkpoints.restore(found.state, **fresh.parts()) == ["phase"]
    assert ([fresh.step() for _ in range(3)], random.random(), numpy.random.rand(), torch.rand(2).tolist()) == expected
    assert found.state["phase"] == "curated" and found.state["metrics"] == {"loss": 1.5}


class Training:
    """Model, optimizer, scheduler, scaler, EMA and sampler, all of which matter for the next loss."""

    def __init__(self) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 10)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
        self.ema = torch.optim.swa_utils.AveragedModel(self.model)
        self.sampler = Position()

    def parts(self) -> dict[str, Any]:
        names = ("model", "optimizer", "scheduler", "scaler", "ema", "sampler")
        return {name: getattr(self, name) for name in names}

    def step(self) -> tuple[float, float, float]:
        self.sampler.position += 1
        batch = torch.full((2, 4), float(self.sampler.position)) + torch.rand(2, 4)
        loss = self.model(batch).square().mean()
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        self.ema.update_parameters(self.model)
        return loss.item(), self.scaler.get_scale(), next(self.ema.parameters()).sum().item()


class Position:
    position = 0

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


def test_the_index_names_what_was_written(tmp_path: Path) -> None:
    filled(tmp_path, 1, 2)
    first, second = listed(tmp_path)
    assert (first["step"], second["step"], second["verified"]) == (1, 2, True)
    assert second["metrics"] == {"loss": 8.0} and second["path"] == "checkpoints/step_000002.pt"
    path = tmp_path / second["path"]
    assert (second["bytes"], second["sha256"]) == (path.stat().st_size, saved_file.digest(path))
    assert torch.load(path, weights_only=True)["note"] == "of step 2"


def test_a_checkpoint_larger_than_all_blocks_is_whole(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path)
    large = torch.arange(3 * saved_file.BLOCKS * saved_file.BLOCK // 8 + 123)  # int64, three times around the ring
    store.save(1, {"model": {"w": large}})
    found = store.load_latest()
    assert found and torch.equal(found.state["model"]["w"], large)


@pytest.mark.parametrize("refused", ["open", "pwrite", "preadv"])
def test_a_file_system_that_refuses_o_direct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str) -> None:
    """Some refuse it when the file is opened, some only when bytes are moved."""
    whole, refusals = getattr(os, refused), []

    def picky(first: Any, second: Any, *rest: Any) -> Any:
        flags = second if refused == "open" else fcntl.fcntl(first, fcntl.F_GETFL)
        if flags & os.O_DIRECT:
            refusals.append(first)
            raise OSError(errno.EINVAL, "Invalid argument")
        return whole(first, second, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(os, refused, picky)
        store = filled(tmp_path, 7)
    assert refusals and assert_whole(store.load_latest()) == 7


def test_ddp_and_compile_leave_no_prefix() -> None:
    plain = torch.nn.Linear(2, 2)
    compiled = type("OptimizedModule", (), {"_orig_mod": torch.nn.DataParallel(plain)})()
    assert list(checkpoints.capture(model=compiled)["model"]) == ["weight", "bias"]


# -- damage


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def one_bit(data: bytes) -> bytes:
    middle = data.index(b"\x00\x00\x40\x41" * 4)  # inside the weights of step 11: torch.load takes it without a word
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def running_code(_: bytes) -> bytes:
    target = io.BytesIO()
    torch.save({"step": 11, "model": Position()}, target)
    return target.getvalue()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "truncated": truncated,
    "one bit": one_bit,
    "code": running_code,
    "error page": lambda _: b"<html>404</html>",
}


@pytest.mark.parametrize("indexed", [True, False], ids=["indexed", "index lost"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_passed_over_and_named(
    tmp_path: Path, damage: str, indexed: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    store = filled(tmp_path, 9, 10, 11)
    newest = store.path(11)
    newest.write_bytes(DAMAGES[damage](newest.read_bytes()))
    if not indexed:
        (tmp_path / index.INDEX).unlink()
    found = store.load_latest()
    assert assert_whole(found) == 10 and found
    assert len(found.skipped) == 1 and found.skipped[0] in capfd.readouterr().err
    assert found.skipped[0].startswith("step_000011.pt is damaged (")
    assert steps_on_disk(tmp_path) == [9, 10] and newest.with_name("step_000011.pt.damaged").exists()
    assert [entry["step"] for entry in listed(tmp_path)] == [9, 10]


def test_when_none_is_whole_it_does_not_start_over(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path).load_latest() is None and Checkpoints(tmp_path / "new").load_latest() is None
    store = filled(tmp_path, 1, 2)
    for step in (1, 2):
        store.path(step).write_bytes(b"")
    for _ in range(2):  # and a second start does not either
        with pytest.raises(
            CheckpointError, match=r"none of the 2 checkpoints of .* is whole \(step_000002.pt: its sha256 is not"
        ):
            store.load_latest()
    assert steps_on_disk(tmp_path) == [1, 2]


ENTRY = '{"checkpoints": [{"path": "checkpoints/step_000001.pt", "step": 1, "time": 1, %s}]}'
FOREIGN = [ENTRY % more for more in ('"metrics": {"loss": "low"}', '"metrics": {"loss": NaN}', '"owner": "others"')]


@pytest.mark.parametrize("content", [None, "", '{"checkpoints": [', "[]", '{"checkpoints": [{"path": 3}]}', *FOREIGN])
def test_a_lost_or_torn_index_is_made_again(tmp_path: Path, content: str | None) -> None:
    store = filled(tmp_path, 1, 2)
    (tmp_path / index.INDEX).unlink()
    if content is not None:
        (tmp_path / index.INDEX).write_text(content)
    assert assert_whole(store.load_latest()) == 2
    assert [entry["metrics"] for entry in store.entries()] == [{"loss": 9.0}, {"loss": 8.0}]
    store.save(3, make(3))
    assert [entry["step"] for entry in listed(tmp_path)] == [1, 2, 3]


def test_a_kill_between_file_and_index_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the same step is written again: the old sha256 must not condemn the new file."""
    store = filled(tmp_path, 1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "_let_go", lambda *_: None)
        whole = index.write
        patch.setattr(index, "write", lambda run, rows: whole(run, rows) if rows[-1]["step"] < 2 else _die())
        with pytest.raises(KeyboardInterrupt):
            store.save(2, {**make(2), "again": 1})
    found = store.load_latest()
    assert assert_whole(found) == 2 and found and found.state["again"] == 1
    store.tidy()
    assert [entry["step"] for entry in listed(tmp_path)] == [1, 2]


def _die() -> None:
    raise KeyboardInterrupt


# -- what a save refuses


UNFIT = [
    ((2, {"x": numpy.float64(1)}), "does not load with weights_only=True; store tensors, numbers"),
    ((2, {"x": Position()}), "Position, which does not load with weights_only=True"),
    ((2, {"x": lambda: 1}), "store tensors, numbers"),
    ((2, torch.nn.Linear(2, 2)), "the state is a Linear; expected a dict, as capture() gives"),
    *(((step, make(1)), "expected a whole number from 0") for step in (-1, 1.5, "3", None, True)),
    *(((2, make(2), {"loss": bad}), "; expected a number") for bad in (torch.ones(2), 10**400, "x", None)),
]


@pytest.mark.parametrize(("words", "sentence"), UNFIT)
def test_what_would_not_load_is_refused_at_once(tmp_path: Path, words: tuple[Any, ...], sentence: str) -> None:
    store = filled(tmp_path, 1)
    with pytest.raises(CheckpointError, match=re.escape(sentence)):
        store.save(*words)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step_000001.pt"]


def test_a_file_in_place_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(CheckpointError, match="is a file; expected a run directory"):
        Checkpoints(tmp_path / "x")
    (tmp_path / "checkpoints").touch()
    with pytest.raises(CheckpointError, match=r"cannot save .*step_000001.pt: (File exists|Not a directory)"):
        Checkpoints(tmp_path).save(1, make(1))


def test_bytes_that_come_back_different_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(tmp_path, 1)
    whole = os.preadv

    def lying(descriptor: int, buffers: Any, offset: int) -> int:
        count = whole(descriptor, buffers, offset)
        buffers[0][100] ^= 1
        return count

    monkeypatch.setattr(os, "preadv", lying)
    with pytest.raises(CheckpointError, match=r"bytes 0 to \d+ read back are not the ones that were written"):
        store.save(2, make(2))
    monkeypatch.undo()
    assert os.listdir(tmp_path / "checkpoints") == ["step_000001.pt"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_disk_that_fails_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Deep inside of a large save, where torch's own error would be 'unexpected pos'."""
    store, whole = filled(tmp_path, 1), os.pwrite
    before = threading.active_count()

    def failing(descriptor: int, data: Any, offset: int) -> int:
        if offset >= 2 * saved_file.BLOCK:
            raise OSError(number, os.strerror(number))
        return whole(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", failing)
    with pytest.raises(CheckpointError, match=os.strerror(number)) as caught:
        store.save(2, make(2, 20_000_000))
    assert caught.value.full == (number != errno.EIO)
    assert os.listdir(tmp_path / "checkpoints") == ["step_000001.pt"]
    monkeypatch.undo()
    assert assert_whole(store.load_latest()) == 1
    assert threading.active_count() <= before


# -- what a resume refuses


def test_restore_says_what_does_not_fit() -> None:
    given = checkpoints.capture(model=torch.nn.Linear(2, 2), optimizer={"a": torch.optim.SGD([torch.zeros(1)])})
    for parts, sentence in (
        ({"scheduler": Position()}, "the checkpoint has no 'scheduler'; it holds model, optimizer, rng."),
        ({"model": torch.nn.Linear(3, 2)}, "'model' does not fit this Linear: Error(s) in loading state_dict"),
        ({"optimizer": {"b": Position()}}, "the checkpoint's 'optimizer' has no 'b'"),
        (
            {"optimizer": {"a": torch.optim.SGD([torch.zeros(1), torch.zeros(1)])}},
            "'optimizer.a' does not fit this SGD",
        ),
        ({"model": 3}, "'model' is a int without load_state_dict; take state['model'] yourself"),
        ({"model": [Position()]}, "the checkpoint has 2 of 'model', and 1 are to be restored"),
    ):
        with pytest.raises(CheckpointError, match=re.escape(sentence)):
            checkpoints.restore(given, **parts)


def test_another_number_of_ranks_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    before = torch.get_rng_state()
    store.restore_rng([{}, {}])
    assert "random state of 2 ranks, this run has 1" in capfd.readouterr().err
    assert torch.equal(before, torch.get_rng_state())


# -- retention


def test_latest_best_and_every_kth_stay(tmp_path: Path) -> None:
    store = Checkpoints(tmp_path, keep_last=2, best="loss", every=10)
    for step, loss in ((5, 3.0), (10, 2.0), (15, 1.0), (20, 4.0), (25, 5.0), (30, 6.0), (35, 7.0), (40, 1.0)):
        store.save(step, make(step), {"loss": loss})
    assert steps_on_disk(tmp_path) == [10, 20, 30, 35, 40]  # of two equally good ones the later stays
    assert [entry["step"] for entry in listed(tmp_path)] == [10, 20, 30, 35, 40]
    up = Checkpoints(tmp_path, keep_last=1, best="loss", direction="up")
    up.save(45, make(45), {})
    assert steps_on_disk(tmp_path) == [35, 45]


def test_damaged_ones_do_not_count_and_are_left_for_somebody_to_look_at(tmp_path: Path) -> None:
    store = filled(tmp_path, 1, 2, 3)
    store.path(3).write_bytes(b"")
    store.keep = index.Keep(last=2)
    store.save(4, make(4))
    assert steps_on_disk(tmp_path) == [2, 3, 4]
    store.path(4).write_bytes(b"")
    store.keep = index.Keep(last=1)
    store.tidy()
    assert assert_whole(store.load_latest()) == 2  # the only good one


def test_an_index_cannot_reach_outside_of_its_run(tmp_path: Path) -> None:
    victim = filled(tmp_path / "other", 1).path(1)
    store = filled(tmp_path / "run", 5)
    rows = [{**entry, "path": "../other/checkpoints/step_000001.pt", "step": 1} for entry in listed(tmp_path / "run")]
    (tmp_path / "run" / index.INDEX).write_text(json.dumps({"checkpoints": rows}))
    store.keep = index.Keep(last=1)
    store.save(6, make(6))
    assert victim.exists() and [entry["step"] for entry in listed(tmp_path / "run")] == [6]


def test_one_that_cannot_be_deleted_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    store = filled(tmp_path, 1, keep_last=1)

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if path.name == "step_000001.pt":
            raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "unlink", refuse)
    store.save(2, make(2))
    assert capfd.readouterr().err == "cannot delete checkpoints/step_000001.pt: Operation not permitted\n"
    assert [entry["step"] for entry in listed(tmp_path)] == [2]


def test_what_was_just_saved_stays_after_a_step_back(tmp_path: Path) -> None:
    store = filled(tmp_path, 10, 20)
    store.keep = index.Keep(last=1)
    store.save(15, make(15))
    assert steps_on_disk(tmp_path) == [15, 20]


# -- killed while saving


forked = pytest.mark.xdist_group("checkpoints")  # torch is imported once for all of them


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    one = Nursery("torch", "tests.test_checkpoints")
    yield one
    one.close()


SAVES = """
from checkpoints import Checkpoints
from tests.test_checkpoints import make
store = Checkpoints(folder, keep_last=2)
found = store.load_latest()
step = found.step + 1 if found else 1
while True:
    store.save(step, make(step, 600_000))
    step += 1
"""


def kill_many_times(folder: Path, nursery: Nursery, kills: int) -> None:
    """So many, and more, ever later ones where the machine is so slow that none has met a save."""
    rng, last, done = random.Random(), 0, 0
    seen: set[str] = set()
    while done < kills or not (last and ".tmp" in seen):
        assert done < kills + 50, "no kill hit a save"
        pid = nursery.start(SAVES, folder.with_name("log"), folder=str(folder))
        time.sleep(rng.uniform(0.02, 0.25) * max(1, done - kills))  # the point of the test: a random moment
        os.kill(pid, signal.SIGKILL)
        assert nursery.end() == -signal.SIGKILL
        done += 1
        names = os.listdir(folder / "checkpoints") if (folder / "checkpoints").exists() else []
        seen.update(".tmp" if name.endswith(".tmp") else "" for name in names)
        found = Checkpoints(folder).load_latest()
        step = assert_whole(found) if last or found else 0
        assert step >= last and (found is None or found.skipped == [])  # never a step back, never a damaged newest
        if (folder / index.INDEX).exists():
            assert all((folder / entry["path"]).exists() for entry in listed(folder))
        last = step


@forked
@pytest.mark.parametrize("kills", [12, pytest.param(500, marks=pytest.mark.soak)])
def test_kills_at_random_moments_never_cost_the_last_good_one(tmp_path: Path, nursery: Nursery, kills: int) -> None:
    kill_many_times(tmp_path / "run", nursery, kills)


# -- signals

LOOP = """
import sys, time, torch
from checkpoints import Checkpoints, StopSignals
store, stop, step = Checkpoints(folder), StopSignals(again=float(again)), 0
print("up", flush=True)
while True:
    step += 1
    time.sleep(float(step_time))
    if stop.requested():
        store.save(step, {"model": torch.ones(3)})
        print("signal", stop.number, flush=True)
        sys.exit(stop.exit_code)
"""


@forked
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGUSR1, 138)])
def test_a_signal_saves_and_ends_with_its_code(
    tmp_path: Path, nursery: Nursery, number: signal.Signals, code: int
) -> None:
    log = tmp_path / "log"
    pid = nursery.start(LOOP, log, folder=str(tmp_path), again="10", step_time="0.01")
    until(lambda: log.exists() and log.read_text() == "up\n", PATIENCE)
    for _ in range(3):  # launchers repeat themselves
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    assert (nursery.end(), log.read_text()) == (code, f"up\nsignal {number.value}\n")
    assert Checkpoints(tmp_path).load_latest()


@forked
def test_a_second_signal_ends_a_step_that_hangs(tmp_path: Path, nursery: Nursery) -> None:
    log = tmp_path / "log"
    pid = nursery.start(LOOP, log, folder=str(tmp_path), again="0.1", step_time="1000")
    until(lambda: log.exists() and log.read_text() == "up\n", PATIENCE)
    os.kill(pid, signal.SIGTERM)
    time.sleep(0.3)  # longer than `again`
    os.kill(pid, signal.SIGTERM)
    assert nursery.end() == 143 and Checkpoints(tmp_path).load_latest() is None
    assert log.read_text() == "up\nsecond signal: ending without another save\n"


def test_signals_in_this_process() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    stop = StopSignals()
    assert (stop.requested(), stop.exit_code) == (False, 0)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert (stop.requested(), stop.exit_code) == (True, 138)
    stop.restore()
    assert signal.getsignal(signal.SIGUSR1) is before
    with ThreadPoolExecutor(1) as pool, pytest.raises(CheckpointError, match="only be caught in the main thread"):
        pool.submit(StopSignals).result()


DDP = """
import os, sys, time
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "RANK": rank}
import torch, torch.distributed as dist
from checkpoints import Checkpoints, StopSignals, capture
dist.init_process_group("gloo")
store, stop, step = Checkpoints(folder), StopSignals(), 0
torch.manual_seed(int(rank))
print("up", flush=True)
while not stop.requested():
    step += 1
    time.sleep(0.002 * int(rank))
store.save(step, capture(model=torch.nn.Linear(2, 2), rank=int(rank)))
print(step, flush=True)
dist.barrier()
dist.destroy_process_group()
sys.exit(stop.exit_code)
"""


@forked
def test_a_signal_to_one_rank_stops_both_at_the_same_step(tmp_path: Path, nursery: Nursery) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    other, logs = Nursery("torch"), [tmp_path / f"log{rank}" for rank in range(2)]
    ranks = [nursery, other]
    pids = [
        each.start(DDP, logs[rank], folder=str(tmp_path), port=port, rank=str(rank)) for rank, each in enumerate(ranks)
    ]
    until(lambda: all(log.exists() and "up\n" in log.read_text() for log in logs), PATIENCE)
    os.kill(pids[1], signal.SIGUSR1)
    assert [each.end() for each in ranks] == [138, 138]
    other.close()
    ends = [log.read_text().split()[-1] for log in logs]
    found = Checkpoints(tmp_path).load_latest()
    assert ends[0] == ends[1] and found and found.step == int(ends[0]) and found.state["rank"] == 0
    first, second = found.state["rng"]
    assert not torch.equal(first["torch"], second["torch"])


# -- the catalogue knows the lines that torch really prints

REFERENCE = SCRIPTS.parent / "references" / "training" / "checkpoint-resume.md"


def line_of(action: Callable[[], Any]) -> str:
    with pytest.raises(Exception) as caught:
        action()
    return f"{caught.typename}: {caught.value}"


def real_lines(folder: Path) -> dict[str, str]:
    path, model = filled(folder, 1).path(1), torch.nn.Linear(2, 2)
    short, odd = folder / "short.pt", folder / "odd.pt"
    short.write_bytes(truncated(path.read_bytes()))
    torch.save({"loss": numpy.float64(1)}, odd)
    prefixed = {f"module.{name}": value for name, value in model.state_dict().items()}
    one, two = torch.optim.Adam([model.weight]), torch.optim.Adam(model.parameters())
    return {
        "C2": line_of(lambda: torch.load(short)),
        "C4": line_of(lambda: torch.load(odd)),
        "C5": line_of(lambda: model.load_state_dict(prefixed)),
        "C6": line_of(lambda: two.load_state_dict(one.state_dict())),
    }


def test_every_signature_meets_a_real_line_and_no_other(tmp_path: Path) -> None:
    entries = re.split(r"^### ", REFERENCE.read_text(encoding="utf-8"), flags=re.M)[1:]
    patterns = {  # `near:` tells apart what shares a line
        entry.split()[0]: re.findall(r"^signature: `(.+)`$", entry, re.M)
        for entry in entries
        if "\nnear: " not in entry
    }
    for name, line in real_lines(tmp_path).items():
        assert [entry for entry, found in patterns.items() if any(re.search(each, line) for each in found)] == [name]


# -- the library stands alone


def test_it_imports_without_click_and_without_torch(tmp_path: Path) -> None:
    """On a box with torch alone, and quickly; and from a copy of the two names that the documents name."""
    shutil.copy(SCRIPT, tmp_path)
    shutil.copytree(SCRIPTS / "rgt", tmp_path / "rgt")
    (tmp_path / "checkpoints").mkdir()  # a folder of that name beside it does not hide the module
    code = "import sys; sys.modules['click'] = None; import checkpoints as c; print('torch' in sys.modules, c.__file__)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == f"False {tmp_path / 'checkpoints.py'}\n"


# -- the command line


def damage(path: Path) -> None:
    path.write_bytes(truncated(path.read_bytes()))


def test_list_shows_what_there_is(tmp_path: Path) -> None:
    filled(tmp_path, 1, 20)
    done = subprocess.run([sys.executable, SCRIPT, "list", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^ +1  +\d.* KiB  verified      checkpoints/step_000001.pt  loss 9$", done.stdout, re.M)
    assert done.stdout.splitlines()[-1].startswith("2 checkpoints, ")
    (tmp_path / "checkpoints" / ".step_000030.pt.tmp").write_bytes(b"half")
    (tmp_path / "checkpoints" / "step_000001.pt").rename(tmp_path / "checkpoints" / "step_000001.pt.damaged")
    again = run("list", tmp_path / "checkpoints", "--json")
    data = json.loads(again.stdout)
    assert (again.returncode, [row["step"] for row in data["checkpoints"]]) == (1, [20])
    assert sorted(finding["code"] for finding in data["findings"]) == ["missing", "partial", "truncated"]


def test_latest_names_the_last_good_one_and_why_not_the_newer(tmp_path: Path) -> None:
    store = filled(tmp_path, 1, 2, 3)
    damage(store.path(3))
    done = run("latest", tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{store.path(2)}\n")
    assert f"{store.path(3)} is damaged (truncated: " in done.stderr
    for step in (1, 2):
        damage(store.path(step))
    done = run("latest", tmp_path)
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.endswith("holds no good checkpoint\n")


def test_verify_reads_everything_and_notes_it(tmp_path: Path) -> None:
    store = filled(tmp_path, 1, 2)
    (tmp_path / index.INDEX).unlink()
    damage(store.path(2))
    done = run("verify", tmp_path, "--json")
    data = json.loads(done.stdout)
    assert (done.returncode, data["good"], data["latest"]) == (1, 1, str(store.path(1)))
    assert {finding["code"] for finding in data["findings"]} >= {"stale-index", "truncated"}
    assert [(entry["step"], entry["verified"], "sha256" in entry) for entry in listed(tmp_path)] == [
        (1, True, True),
        (2, False, False),
    ]
    store.save(2, {"model": {"w": torch.tensor([1.0, float("nan")])}})  # whole, but not real
    done = run("verify", tmp_path, "--dry-run")
    assert done.stdout.splitlines()[-1] == f"1 of 2 checkpoints are real; last good: {store.path(1)}"
    assert "nan: " in done.stdout


def test_prune_counts_only_good_ones(tmp_path: Path) -> None:
    store = filled(tmp_path, 1, 2, 3, 4, 5, 6)
    damage(store.path(6))
    words = ("prune", tmp_path, "--keep-last", "1", "--every", "2", "--best", "loss", "--direction", "up", "--json")
    done = run(*words, "--dry-run")
    expected = [str(store.path(step)) for step in (3,)]
    assert json.loads(done.stdout)["deleted"] == expected and steps_on_disk(tmp_path) == [1, 2, 3, 4, 5, 6]
    done = run(*words)
    assert (done.returncode, json.loads(done.stdout)["deleted"]) == (0, expected)
    assert steps_on_disk(tmp_path) == [1, 2, 4, 5, 6] and [entry["step"] for entry in listed(tmp_path)] == [1, 2, 4, 5]
    assert json.loads(run(*words).stdout)["deleted"] == []


def test_prune_keeps_what_the_results_were_measured_on(tmp_path: Path) -> None:
    filled(tmp_path, 1, 2, 3)
    metric = {"name": "loss", "value": 1.0, "split": "val", "n": 3, "direction": "down", "step": 1}
    results = {
        "run_id": "20261116-083000-x-1f00ab",
        "metrics": [{**metric, "checkpoint": "checkpoints/step_000001.pt"}],
    }
    assert schema.problems(results, "results") == []
    (tmp_path / "results.json").write_text(json.dumps(results))
    done = run("prune", tmp_path, "--keep-last", "1")
    assert done.returncode == 0 and done.stderr.startswith("deleted 1, ")
    assert steps_on_disk(tmp_path) == [1, 3]


def test_prune_keeps_each_series_and_what_links_lead_to(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    for fold in (0, 1):
        for step in (100, 200, 300):
            torch.save({"w": torch.randn(8, 8), "step": step}, folder / f"fold{fold}-step_{step}.pt")
    (folder / "best.pt").symlink_to("fold1-step_100.pt")
    done = run("prune", tmp_path, "--keep-last", "1", "--json")
    gone = sorted(Path(path).name for path in json.loads(done.stdout)["deleted"])
    assert gone == ["fold0-step_100.pt", "fold0-step_200.pt", "fold1-step_200.pt"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "checkpoints").symlink_to(folder)
    done = run("prune", tmp_path / "other", "--keep-last", "1")
    assert done.returncode == 4 and "is a link" in done.stderr


def test_cadence_says_how_often_to_save() -> None:
    """Worked out by hand: sqrt(2 * 60 * 86400) * (1 + sqrt(60/172800)/3 + (60/172800)/9) - 60 seconds."""
    done = run("cadence", "--save-cost", "60s", "--mtbf", "1d", "--step-time", "1.5s")
    assert done.stdout == "save every 53m00s, 2120 steps: 3.7% of the time is lost\n"
    hopeless = json.loads(run("cadence", "--save-cost", "100s", "--mtbf", "40s", "--json").stdout)
    assert hopeless["interval"] == 100  # as often as can be
    assert run("cadence", "--save-cost", "1s", "--mtbf", "0s").returncode == 2


def test_prune_refuses(tmp_path: Path) -> None:
    store = filled(tmp_path, 1, 2)
    for step in (1, 2):
        damage(store.path(step))
    done = run("prune", tmp_path)
    assert (done.returncode, steps_on_disk(tmp_path)) == (4, [1, 2])
    assert "none of the 2 checkpoints" in done.stderr
    (tmp_path / "seal.json").write_text("{}")
    done = run("prune", tmp_path)
    assert done.returncode == 4 and "is sealed; a sealed run never changes" in done.stderr
    assert run("prune", tmp_path, "--keep-last", "0").returncode == 2


def test_folders_of_other_trainers_are_checkpoints_too(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    for step in (500, 1000, 1500):
        folder = tmp_path / "checkpoints" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        save_file({"w": torch.rand(100) + step}, folder / "model.safetensors")
        (folder / "config.json").write_text("{}")
    damage(tmp_path / "checkpoints" / "checkpoint-1500" / "model.safetensors")
    done = run("latest", tmp_path)
    assert done.stdout == f"{tmp_path / 'checkpoints' / 'checkpoint-1000'}\n"
    assert run("prune", tmp_path, "--keep-last", "1").returncode == 0
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["checkpoint-1000", "checkpoint-1500"]
    assert [(entry["path"], entry["step"]) for entry in listed(tmp_path)] == [("checkpoints/checkpoint-1000", 1000)]


@pytest.mark.parametrize("verb", ["list", "verify", "latest", "prune"])
def test_a_wrong_folder_is_one_sentence(tmp_path: Path, verb: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    for name, sentence in (
        ("gone", "does not exist; name a run directory"),
        ("file", "is a file; name the run directory"),
        ("", "has no checkpoints/; name a run directory"),
    ):
        done = run(verb, tmp_path / name)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
        assert sentence in done.stderr
    if verb in ("verify", "prune"):
        done = run(verb, tmp_path / "run")
        assert done.returncode == 2 and "holds no checkpoint: no file or folder with a step" in done.stderr


def test_latest_wants_all_parts_of_one_save(tmp_path: Path) -> None:
    """A Trainer's output_dir: without checkpoints/, 900 before 1000, and newer ones that would resume half of it."""
    from . import zoo  # it imports what each process of the kills above would have to

    good = [zoo.hf_trainer(tmp_path, step) for step in (800, 900, 1000)][-1]
    (zoo.hf_trainer(tmp_path, 1100) / "scheduler.pt").unlink()
    zoo.hf_trainer(tmp_path, 1300).rename(tmp_path / "tmp-checkpoint-1300")
    zoo.hf_trainer(tmp_path, 1400).rename(tmp_path / "checkpoint-1400.tmp")
    (zoo.hf_trainer(tmp_path, 1500) / "checkpoint-is-incomplete.txt").touch()
    done = run("latest", tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{good}\n")
    said = done.stderr.splitlines()
    assert len(said) == 2 and "checkpoint-is-incomplete.txt says that this save was cut" in said[0]
    assert "scheduler.pt is not there, most others have it" in said[1]


def test_latest_finds_the_one_folder_that_holds_them(tmp_path: Path) -> None:
    run_of_others = tmp_path / "r8"
    (run_of_others / "ckpt").mkdir(parents=True)
    torch.save({"w": torch.rand(8, 8)}, run_of_others / "ckpt" / "step_40.pt")
    done = run("latest", run_of_others)
    assert (done.returncode, done.stdout) == (0, f"{run_of_others / 'ckpt' / 'step_40.pt'}\n")
    shutil.copytree(run_of_others / "ckpt", run_of_others / "other")  # which one is not ours to guess
    assert run("latest", run_of_others).returncode == 2


def test_latest_looks_for_the_step_inside(tmp_path: Path) -> None:
    def save(name: str, step: int) -> Path:
        torch.save({"model": {"w": torch.rand(8, 8)}, "iter_num": step}, tmp_path / name)
        return tmp_path / name

    save("ckpt_900.pt", 900)
    newest = save("ckpt.pt", 1000)
    save("ckpt_1500.pt", 700)  # a backup under a wrong name
    torch.save({"w": torch.rand(8, 8)}, tmp_path / "export.pt")
    assert run("latest", tmp_path).stdout == f"{newest}\n"


def test_latest_takes_a_doubtful_one_when_all_are(tmp_path: Path) -> None:
    """A trainer that counts samples: no step is the optimizer's, and that is no reason to start over."""
    for step in (8000, 9000):
        state = {0: {"step": torch.tensor(step / 7.3), "exp_avg": torch.rand(8, 8)}}
        optimizer = {"state": state, "param_groups": [{"params": [0]}]}
        whole = {"model": {"w": torch.rand(8, 8)}, "optimizer": optimizer, "step": step}
        torch.save(whole, tmp_path / f"step_{step}.pt")
    assert run("latest", tmp_path).stdout == f"{tmp_path / 'step_9000.pt'}\n"
