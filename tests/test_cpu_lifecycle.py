"""The demo keeps its promise: a training job that is killed anywhere ends as if it had never been killed."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from rgt import errors, files, schema
from rgt.machine import processes
from rgt.run import record

from examples.cpu_lifecycle import bit_equal, box, settings, trainings

from .gate_box import until
from .nursery import Nursery

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "examples" / "cpu_lifecycle" / "demo.py"
pytestmark = pytest.mark.xdist_group("cpu_lifecycle")  # the fixtures are dear: one worker
PATIENCE = 120.0  # seconds for anything that is waited for here; all of it takes a few

# About 10 batches make an epoch, so that both generators matter: python's shuffles three more times, torch's drops out.
TINY = {**settings.CONFIG, "steps": 40, "batch_size": 16, "block_size": 8, "n_layer": 1, "n_head": 2, "n_embd": 16}
TINY |= {"warmup_steps": 5, "eval_interval": 10, "checkpoint_interval": 7, "text_bytes": 1_500}

TRAIN = """
import os
from examples.cpu_lifecycle import train
exec(fault)
train.main(["--run", run])
"""

KILLED_IN_THE_MIDDLE_OF_A_SAVE = """
import signal
whole_write = os.pwrite
def half_write(descriptor, data, offset):
    if "step_000021" in os.readlink(f"/proc/self/fd/{descriptor}"):
        whole_write(descriptor, data[:4096], offset)
        os.kill(os.getpid(), signal.SIGKILL)
    return whole_write(descriptor, data, offset)
os.pwrite = half_write
"""

KILLED_BEFORE_THE_CALL = """
import signal
from rgt.checkpoint import index
from rgt.run.record import Run
original = getattr(OWNER, NAME)
def replacement(run, what, **detail):
    if WHEN:
        os.kill(os.getpid(), signal.SIGKILL)
    return original(run, what, **detail)
setattr(OWNER, NAME, replacement)
"""


def killed_before(owner: str, name: str, when: str) -> str:
    return KILLED_BEFORE_THE_CALL.replace("OWNER", owner).replace("NAME", repr(name)).replace("WHEN", when)


def command_lines() -> list[str]:
    return [" ".join(processes.command(pid)) for pid in processes.pids()]


class TrainNursery(Nursery):
    def __init__(self, runs: Path) -> None:
        super().__init__("torch._dynamo", "examples.cpu_lifecycle.train")
        self.runs = runs

    def new_run(self, **changes: Any) -> record.Run:
        return record.create(self.runs, "tiny", command=[], config={**TINY, **changes}, seeds=settings.SEEDS)

    def train(self, run: record.Run, fault: str = "", at: int = 0, send: signal.Signals = signal.SIGKILL) -> int:
        """Run train.py's command to its end, or send it a signal once step `at` is logged; gives the exit code."""
        pid = self.start(TRAIN, run.log, fault=fault, run=str(run.path))
        if at:
            until(lambda: trainings.last_step(run) >= at)
            os.kill(pid, send)
        return self.end()


@pytest.fixture(scope="module")
def demo_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """The whole demo, small, after an earlier one. Most of its time is imports, so it runs beside the other tests."""
    out = tmp_path_factory.mktemp("demo-out")
    (out / "1").mkdir()
    (out / "index.html").write_text("of an earlier demo")
    command = [sys.executable, str(DEMO), "--out", str(out), "--steps", "20"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    yield process, out
    process.terminate()
    process.communicate()


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory, demo_process: object) -> Iterator[TrainNursery]:
    one = TrainNursery(tmp_path_factory.mktemp("runs"))
    yield one
    one.close()


@pytest.fixture(scope="module")
def reference(nursery: TrainNursery) -> record.Run:
    run = nursery.new_run()
    assert nursery.train(run) == 0, run.log.read_text()
    return run


def assert_same(run: record.Run, reference: record.Run) -> None:
    assert bit_equal.curves(reference, run, "train") == TINY["steps"]
    assert bit_equal.curves(reference, run, "val") == 5
    assert bit_equal.final_states(reference, run) > 50
    assert len({files.read_json(each.results)["metrics"][0]["value"] for each in (reference, run)}) == 1
    bit_equal.redone_steps(run)


def resumed_steps(run: record.Run) -> list[int]:
    """As the training says it; here, without ssh, the launcher writes into the same file, and knows no step."""
    return [row["step"] for row in files.read_jsonl(run.events) if row["event"] == "resumed" and "step" in row]


@pytest.mark.parametrize(("steps", "kills"), [(40, 4), pytest.param(1_000, 200, marks=pytest.mark.soak)])
def test_random_kills_leave_no_trace(nursery: TrainNursery, reference: record.Run, steps: int, kills: int) -> None:
    whole, run = reference, nursery.new_run(steps=steps)
    if steps != TINY["steps"]:
        whole = nursery.new_run(steps=steps)
        assert nursery.train(whole) == 0
    for step in sorted(random.Random().choices(range(1, steps - 10), k=kills)):
        assert nursery.train(run, at=step) == -signal.SIGKILL
    assert nursery.train(run) == 0, run.log.read_text()
    assert len(resumed_steps(run)) >= 1 and bit_equal.redone_steps(run) > 0
    assert bit_equal.curves(whole, run, "train") == steps
    bit_equal.curves(whole, run, "val")
    bit_equal.final_states(whole, run)


def test_a_kill_before_the_first_checkpoint_starts_over(nursery: TrainNursery, reference: record.Run) -> None:
    run = nursery.new_run(checkpoint_interval=30)
    assert nursery.train(run, at=5) == -signal.SIGKILL
    assert (nursery.train(run), resumed_steps(run)) == (0, [0])
    assert bit_equal.curves(reference, run, "train") == TINY["steps"]


FAULTS = {  # and the step that the next start goes on from
    KILLED_IN_THE_MIDDLE_OF_A_SAVE: 14,
    killed_before("index", "write", 'what[-1]["step"] == 40'): 40,
    killed_before("Run", "log_event", "what == 'finished'"): 40,
}


@pytest.mark.parametrize("fault", FAULTS, ids=["in a save", "before the index", "after the results"])
def test_a_kill_at_the_worst_moment(nursery: TrainNursery, reference: record.Run, fault: str) -> None:
    run = nursery.new_run()
    assert nursery.train(run, fault) == -signal.SIGKILL
    half = [path for path in run.checkpoints.iterdir() if path.suffix == ".tmp"]
    assert len(half) == (fault is KILLED_IN_THE_MIDDLE_OF_A_SAVE)
    assert (nursery.train(run), resumed_steps(run)) == (0, [FAULTS[fault]])
    assert [row["event"] for row in files.read_jsonl(run.events)][-1] == "finished"
    assert not any(path.exists() for path in half)
    assert_same(run, reference)


def test_sigterm_saves_and_ends_with_143(nursery: TrainNursery, reference: record.Run) -> None:
    run = nursery.new_run()
    assert nursery.train(run, at=15, send=signal.SIGTERM) == 143
    *_, saved, last = files.read_jsonl(run.events)
    assert (saved["event"], last["event"], last["signal"]) == ("checkpoint", "preempted", "SIGTERM")
    assert saved["step"] == last["step"] == trainings.last_step(run) < TINY["steps"]
    assert (nursery.train(run), resumed_steps(run), bit_equal.redone_steps(run)) == (0, [last["step"]], 0)
    assert_same(run, reference)


def assert_contract(run: record.Run) -> None:
    for path, name in ((run.run_json, "run"), (run.results, "results"), (run.checkpoints_index, "checkpoints_index")):
        assert schema.problems(files.read_json(path), name) == []
    for path, name in ((run.metrics, "metrics"), (run.events, "events")):
        assert list(files.read_jsonl(path, name))
    for entry in files.read_json(run.checkpoints_index)["checkpoints"]:
        assert (run.path / entry["path"]).stat().st_size == entry["bytes"]
        assert files.read_json(run.results)["metrics"][0]["n"] > 0


def test_a_finished_run_keeps_the_contract_and_is_left_alone(nursery: TrainNursery, reference: record.Run) -> None:
    assert_contract(reference)
    assert sorted(path.name for path in reference.checkpoints.iterdir()) == ["step_000035.pt", "step_000040.pt"]
    before = reference.metrics.read_bytes(), reference.events.read_bytes()
    assert nursery.train(reference) == 0
    assert (reference.metrics.read_bytes(), reference.events.read_bytes()) == before
    assert reference.log.read_text().endswith("is finished already; a re-run needs a new run directory\n")


def test_a_sealed_run_and_a_config_that_cannot_train_are_one_sentence(nursery: TrainNursery) -> None:
    sealed, typo = nursery.new_run(), nursery.new_run(learning_rat=0.1)
    sealed.seal.write_text("{}")
    cases = {"is sealed": sealed, "has these settings too few or too many: learning_rat": typo}
    for sentence, run in cases.items():
        assert nursery.train(run) == errors.BAD_INPUT and not run.metrics.exists()
        log = run.log.read_text()
        assert sentence in log and log.count("\n") == 1


def test_a_loss_that_is_not_finite_ends_the_run(nursery: TrainNursery) -> None:
    run = nursery.new_run(learning_rate=1e30)
    assert nursery.train(run) == errors.FINDINGS
    last = list(files.read_jsonl(run.events))[-1]
    assert (last["event"], last["reason"]) == ("failed", "the loss is not finite")
    assert re.fullmatch(r"error: the loss is (nan|inf) at step \d+", run.log.read_text().splitlines()[-1])


def test_two_different_runs_are_told_apart_at_their_first_step(nursery: TrainNursery, reference: record.Run) -> None:
    run = nursery.new_run(dropout=0.5)
    assert nursery.train(run) == 0
    with pytest.raises(errors.RgtError, match="the train loss first differs at step 1: "):
        bit_equal.curves(reference, run, "train")
    with pytest.raises(errors.RgtError, match="is not the same in the last checkpoints"):
        bit_equal.final_states(reference, run)
    run.log_metrics(step=20, split="train", loss=0.5)
    with pytest.raises(errors.RgtError, match="step 20 was computed 2 times"):
        bit_equal.redone_steps(run)


@pytest.mark.parametrize(
    ("number", "sight"),
    [(signal.SIGTERM, "smoke.json"), pytest.param(signal.SIGINT, "box/runs/", marks=pytest.mark.soak)],
)
def test_a_stopped_demo_leaves_nothing_behind(tmp_path: Path, number: signal.Signals, sight: str) -> None:
    """Stopped in the smoke, and while the detached job trains on the box: no training, no gate, no sshd stays."""
    command = [sys.executable, str(DEMO), "--out", str(tmp_path), "--steps", "2000"]
    (scratch := tmp_path / "scratch").mkdir()
    variables = {**os.environ, "TMPDIR": str(scratch)}
    child = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: any(str(tmp_path) in line and sight in line for line in command_lines()))
    child.send_signal(number)
    _, err = child.communicate(timeout=PATIENCE)
    assert (child.returncode, err.strip()) == (128 + number, b"")
    assert not any(str(tmp_path) in line for line in command_lines())
    assert not (tmp_path / "index.html").exists() and list(scratch.glob("preflight-*")) == []


# each stage's one line of outcome
TOLD = r"""
bit-equal: 20 of 20 steps, 6 of 6 evaluations
-> 4 ok, 0 warn, 0 fail
-> failed, exit code 137:
-> Decision: stop — failed: (?:ssh says that it failed with|the run failed:) exit code 137
-> finished, exit code 0:
-> Decision: stop — the run is finished
-> caught: error digest: .*step_000020\.pt
-> pulled and verified: (?s:.*)-> pulled and verified:
-> effect: the means differ by
-> noise: the means differ by
-> caught: warn  drift: STALE\.md:1: loss-fast
-> exit 4, error unapproved:
-> everything holds, and nothing was executed
"""


def test_demo_through_its_front_door(demo_process: tuple[subprocess.Popen[str], Path]) -> None:
    process, directory = demo_process
    out, err = process.communicate(timeout=3 * PATIENCE)
    assert (process.returncode, err) == (0, ""), out + err
    assert not any(str(directory) in line for line in command_lines())
    folder = directory / "2"
    (reference,) = (folder / "runs").glob("*-reference-*")
    (killed,) = record.find(folder / "box" / "runs")
    assert resumed_steps(record.Run(reference)) == [] and resumed_steps(killed)[-1] >= 8
    for run in (record.Run(reference), killed):
        assert_contract(run)
    for line in TOLD.strip().splitlines():
        assert re.search(line, out), f"{line!r} is not in\n{out}"
    assert f", on {'ssh:box' if all(map(shutil.which, box.NEEDED)) else 'local'}\n" in out
    assert_page(directory / "index.html")
    delivered = record.find(folder / "delivery")
    sealed = [run.id for run in delivered if run.seal.exists()]
    assert len(delivered) == 9 and len(sealed) == 6 and not any("again" in run for run in sealed)
    (pulled,) = (path for path in (folder / "pulled").iterdir() if path.is_dir())
    decisions = [row["event"] for row in files.read_jsonl(pulled / "events.jsonl") if row.get("act") == "down"]
    assert decisions[-2:] == ["refused", "approved"]  # what stands before them the keeper of the lease decided


def assert_page(index: Path) -> None:
    """One page; everything it links is there."""
    links = re.findall(r'(?:href|src)="([^":]+)"', index.read_text())
    assert len(links) >= 15 and [link for link in links if not (index.parent / link).exists()] == []


@pytest.mark.soak
def test_demo_with_nothing_but_python(tmp_path: Path) -> None:
    """No sshd, no ssh, no rsync, no git, no ps: what a bare image has is a shell and its core tools."""
    (tools := tmp_path / "bin").mkdir()
    for name in "sh mkdir cat chmod mv test wc ls tail base64 nice".split():
        (tools / name).symlink_to(str(shutil.which(name)))
    (tools / "python3").symlink_to(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    command = [sys.executable, str(DEMO), "--out", str(tmp_path / "out"), "--steps", "20"]
    done = subprocess.run(command, env={"PATH": str(tools), "HOME": str(tmp_path)}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert re.search("-> sshd? is not installed, so the box is this machine", done.stdout)
    assert ", on local\n" in done.stdout
    assert_page(tmp_path / "out" / "index.html")
