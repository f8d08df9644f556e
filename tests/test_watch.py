"""watch.py through its own front door, on logs that real trainers printed and on files that change under it."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bench import watch_curves
from rgt import bundle, files
from rgt.log import reader
from rgt.log.history import History
from rgt.log.line import parse_line
from rgt.log.series import OLD, RECENT, Points, Series
from rgt.machine import open_files, processes
from rgt.report import Finding
from rgt.run import curves
from rgt.run import record as rundir
from rgt.watch import box_health, daemon, status
from rgt.watch import look as looks
from rgt.watch.view import View, liveness

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from . import front_door
from .gate_box import Gate, until

ROOT = Path(__file__).resolve().parent.parent
WATCH = ROOT / "scripts" / "watch.py"
CORPUS = ROOT / "tests" / "log_corpus"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def watch(*words: object, expect: int | None = None) -> subprocess.CompletedProcess[str]:
    """In this process, unless it starts one that stays."""
    if words[0] != "daemon":
        done = front_door.call("watch.py", *words)
    else:
        command = [sys.executable, str(WATCH), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    assert expect is None or done.returncode == expect, done.stdout + done.stderr
    return done


LIVING: list[Any] = []  # logs that this process holds open, as a trainer would


def live(path: Path, text: str) -> Path:
    path.write_text(text)
    LIVING.append(path.open("a"))
    return path


def look(*words: object) -> dict[str, Any]:
    return front_door.report("watch.py", *words)


def seen(path: Path, *silenced: str) -> dict[str, Any]:
    """A look without the machine and the command around it."""
    return looks.look(looks.find_target((str(path),)), silenced, box=False)


def codes(found: dict[str, Any]) -> dict[str, str]:
    return {row["code"]: row["severity"] for row in found["findings"]}


class Reading:
    """A log that is written and read in turns."""

    def __init__(self, path: Path) -> None:
        self.path, self.history = path, History()
        self.cursor: reader.Cursor | None = None

    def look(self, text: str | None = None, mode: str = "a") -> reader.Grown:
        if text is not None:
            with self.path.open(mode) as file:
                file.write(text)
        self.cursor, grown = reader.advance(self.path, self.cursor, self.history.take)
        return grown

    @property
    def loss(self) -> Series:
        return self.history.series["loss"]


@pytest.fixture
def log(tmp_path: Path) -> Reading:
    return Reading(tmp_path / "x.log")


def recorded(*lines: str) -> History:
    history = History()
    for line in lines:
        history.take(line)
    return history


# -- logs of real trainers


@pytest.mark.parametrize("log", sorted(CORPUS.glob("*.log")), ids=lambda path: path.stem)
def test_corpus_is_extracted_exactly(log: Path) -> None:
    truth = json.loads(log.with_suffix(".json").read_text())
    reading = Reading(log)
    reading.look()
    history = reading.history
    names = {name for row in truth for name in row} - {"step", "epoch"}
    read = {name: [value for _, value in history.series[name].points()] for name in names}
    assert read == {name: [row[name] for row in truth if name in row] for name in names}
    steps = [row["step"] for row in truth if "step" in row]
    if steps:
        assert history.step == steps[-1]
        places = [x for x, _ in history.series[next(name for name in truth[-1] if name in history.series)].points()]
        assert places[-1] == steps[-1]


COUNTERS = [
    ("hf_trainer", {"step": 24, "total": 24, "epoch": 3, "ended": True, "saves": 3}),
    ("litgpt", {"step": 31, "epoch": 2, "ended": True, "saves": 4}),
    ("lightning", {"epoch": 2, "epochs": 3, "batches": 10, "ended": True}),
    ("nanogpt", {"step": 60, "total": 60, "saves": 3, "it_per_s": 1000 / 106}),
    ("torchtitan", {"step": 60, "tokens_per_s": 12405.0}),
    ("slurm", {"step": 29, "killed": 1, "it_per_s": 4.0}),
]


@pytest.mark.parametrize(("name", "expected"), COUNTERS)
def test_corpus_counters(name: str, expected: dict[str, Any]) -> None:
    reading = Reading(CORPUS / f"{name}.log")
    reading.look()
    known = {**vars(reading.history), **reading.history.counts}
    assert {key: known[key] for key in expected} == expected


def test_corpus_runs_are_healthy_and_the_killed_one_is_not() -> None:
    for log in sorted(CORPUS.glob("*.log")):
        found = seen(log, "stalled", "unfinished")
        bad = {code: severity for code, severity in codes(found).items() if severity != "info"}
        assert bad == ({"killed": "error"} if log.stem == "slurm" else {}), log.stem


def test_a_loss_that_doubles_within_a_short_log_has_diverged() -> None:
    for seed in range(20):
        dice = random.Random(seed)
        values = [(1.6 + 6 * (1 + n / 4) ** -0.5) * (1 + dice.gauss(0, 0.015)) for n in range(200)]
        points = [(float(n), value * (1 + 0.02 * max(0, n - 120))) for n, value in enumerate(values)]
        assert [finding.code for finding in curves.diverged(curves.Curves(points))] == ["diverged"], seed
        assert not list(curves.diverged(curves.Curves([(float(n), value) for n, value in enumerate(values)]))), seed


def test_rows_beside_a_bar_are_placed_by_its_steps() -> None:
    row = "{'loss': 2.5, 'grad_norm': 0.8, 'learning_rate': 2e-05, 'epoch': 0.0}"
    bars = [f"  0%|          | {step}/40000 [00:04<4:26:36,  2.50it/s]" for step in range(10, 60, 10)]
    history = recorded(*(line for bar in bars for line in (bar, row)))
    assert [x for x, _ in history.series["loss"].points()] == [10, 20, 30, 40, 50]


def test_what_is_printed_after_a_crash_is_no_recovery() -> None:
    bar = " 67%|######7   | 6/9 [00:17<00:08,  2.91s/it]"
    crash = ("Traceback (most recent call last):", "KeyError: 'x'")
    history = recorded(bar, *crash, bar, "wandb: epoch 1", "wandb: loss 2.5")
    assert [row.recovered for row in history.problems] == [False] and "loss" not in history.series
    history.take(" 78%|#######8  | 7/9 [00:20<00:05,  2.91s/it]")
    assert [row.recovered for row in history.problems] == [True]


# -- reading what is new


def rows(start: int, stop: int, level: float = 2.0) -> str:
    dice = random.Random(start)
    return "".join(f"step {n} loss {level + 9 / (9 + n) + dice.gauss(0, 0.01):.4f}\n" for n in range(start, stop))


def test_only_what_is_new_is_read(log: Reading) -> None:
    grown = log.look(rows(0, 50))
    assert (grown.bytes, log.history.step) == (log.path.stat().st_size, 49)
    log.look("step 50 loss 2.0\nstep 51 lo")
    assert (log.history.step, log.loss.count) == (50, 51)
    grown = log.look("ss 2.5\n")
    assert (log.history.step, log.history.metrics["loss"], grown.bytes) == (51, 2.5, len("step 51 loss 2.5\n"))
    assert log.look().bytes == 0


def test_truncation_starts_at_the_beginning(log: Reading) -> None:
    log.look(rows(0, 40))
    assert (log.look(rows(40, 42), "w").restarted, log.history.step) == ("truncated", 41)
    # and longer than before: its size alone would not tell
    assert log.look(rows(100, 200), "w").restarted == "truncated"
    assert (log.history.step, log.loss.count) == (199, 142)
    log.path.rename(log.path.with_suffix(".log.1"))
    assert (log.look(rows(200, 205)).restarted, log.history.step) == ("rotated", 204)


def test_bytes_that_are_no_text(log: Reading) -> None:
    data = b"\xff\xfe\x00\xf0 noise\nstep 1 loss 2.5 \xe9\xff\n" + "step 2 loss 2.25\r\n".encode("utf-16")
    log.path.write_bytes(data)
    log.look()
    assert (log.history.step, log.history.metrics["loss"]) == (2, 2.25)


def test_bars_are_states_of_one_line(log: Reading) -> None:
    states = [f"\r {n}%|##| {n}/100 [00:01<00:09, 2.00it/s, loss={n / 10}]" for n in range(1, 60)]
    log.look("".join(states))
    assert (log.history.step, log.history.metrics["loss"]) == (58, 5.8)  # the last state may still be written


def test_a_long_backlog_is_sampled_and_its_newest_part_is_read_whole(log: Reading) -> None:
    lines = [f"iter {n}: loss {3 - n / 1e6:.4f}, time 12.00ms, mfu 31.20%\n" for n in range(100_000)]
    lines[0] = "max_iters = 200000\n" + lines[0]
    for n in range(0, 100_000, 2000):
        lines[n] = f"step {n}: train loss 2.5000, val loss {2.6 - n / 1e6:.4f}\n" + lines[n]
    lines[98_500] += "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    assert log.look("".join(lines)).thinned and log.path.stat().st_size > reader.WHOLE
    history = log.history
    assert (history.step, history.total, history.counts) == (99_999, 200_000, {"oom": 1})
    places = [x for x, _ in log.loss.points()]
    assert places[-500:] == list(range(99_500, 100_000)) and sum(x < 50_000 for x in places) > 40
    assert [x for x, _ in history.series["val_loss"].points()][-1] == 98_000
    assert len(places) <= RECENT + OLD
    sample = "- only a sample was read of all but the newest 256 KiB of "
    assert sample in watch(log.path, "--silence", "unfinished").stdout


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=60), max_size=12), st.data())
def test_any_bytes_in_any_pieces_read_alike(parts: list[bytes], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "x.log"
        whole = b"\n".join([*parts, b"step 3 loss 1.5", b""])
        cursor: reader.Cursor | None = None
        pieces: list[str] = []
        cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
        for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True):
            with log.open("ab") as file:
                file.write(whole[start:stop])
            cursor, _ = reader.advance(log, cursor, pieces.append)
        at_once: list[str] = []
        reader.advance(log, None, at_once.append)
    assert pieces == at_once
    kept = recorded(*at_once).as_dict()
    assert History.from_json(json.loads(json.dumps(kept, allow_nan=False))).as_dict() == kept


# -- what the command says


def run_dir(tmp_path: Path, text: str, name: str = "run") -> Path:
    folder = tmp_path / name
    folder.mkdir()
    live(folder / "train.log", text)
    return folder


def test_status_file_has_numbers_decision_risks_next_and_changes(tmp_path: Path) -> None:
    folder = run_dir(tmp_path, "max_steps = 1000\n" + rows(0, 100))
    first = watch(folder, expect=0).stdout
    assert first == (folder / "training_status.md").read_text()
    head = first.splitlines()
    assert head[0] == f"# {folder}" and head[2].startswith("**step 99/1000 · loss ")
    assert "**Decision: continue** — nothing speaks against it." in first and "First look" in first
    assert bundle.command("watch", folder) in first
    with (folder / "train.log").open("a") as file:
        file.write(rows(100, 110) + "step 110 loss nan\nstep 111 loss nan\n")
    second = watch(folder, expect=1).stdout
    assert "**Decision: stop** — nan: loss is not a number since 110." in second
    assert "- step: 99 → 111" in second and "- new: `nan`" in second and "(sure: 99%)" in second
    assert "- nothing" in watch(folder, expect=1).stdout  # nothing new, and only that is said
    state = files.read_json(folder / "watch" / "state.json")
    assert state["files"][str(folder / "train.log")]["cursor"]["offset"] == (folder / "train.log").stat().st_size


def test_metrics_file_beside_the_log_is_preferred(tmp_path: Path) -> None:
    run = rundir.create(tmp_path, "tiny", command=["x"], config={})
    run.log.write_text("step 5 loss 9.9\nsaving checkpoint to x\n")
    for step in range(10):
        run.log_metrics(step=step, split="train", loss=3 - step / 10)
        run.log_metrics(step=step, split="val", loss=3.5 - step / 10, acc=step / 10)
    found = look(run.path)
    assert found["now"]["metrics"]["loss"] == 2.1
    assert (found["now"]["step"], found["roles"]["val_loss"], found["roles"]["accuracy"]) == (9, "val_loss", "val_acc")
    run.log_event("finished", exit_code=0)
    finished = look(run.path)
    assert (finished["now"]["state"], finished["decision"]["word"]) == ("finished", "stop")
    assert finished["decision"]["next"] == bundle.command("verify_local", run.path)


WHY = [
    ({"exit_code": 137}, "exit code 137"),
    ({"exit_code": 1, "reason": "the box is gone"}, "the box is gone"),
    ({}, "its record does not say why"),
]


@pytest.mark.parametrize(("detail", "said"), WHY)
def test_why_a_run_failed(tmp_path: Path, detail: dict[str, Any], said: str) -> None:
    run = rundir.create(tmp_path, "tiny", command=["x"], config={})
    run.log.write_text(rows(0, 5))
    run.log_event("finished")
    run.log_event("resumed")
    run.log_event("failed", **detail)
    (failed,) = [row for row in seen(run.path)["findings"] if row["code"] == "failed"]
    assert (failed["severity"], failed["message"]) == ("error", f"the run failed: {said}")


def test_the_end_of_a_run_is_known_behind_many_checkpoints_and_rows_that_came_late(tmp_path: Path) -> None:
    run = rundir.create(tmp_path, "tiny", command=["x"], config={})
    run.log.write_text(rows(0, 5))
    now = time.time()
    late = [{"event": "failed", "time": now + 9000, "exit_code": 1}, {"event": "resumed", "time": now + 1}]
    late += [{"event": "resumed", "time": when} for when in (10**400, "noon", None)]
    saves = [{"event": "checkpoint", "time": now + step, "step": step} for step in range(2, 8000)]
    with run.events.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in [*saves, *late])
    assert seen(run.path)["now"]["state"] == "failed"


def test_several_logs_of_one_run(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text(rows(0, 30))
    (tmp_path / "rank1.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    found = look(tmp_path / "rank0.log", tmp_path / "rank1.log")
    assert (found["now"]["step"], codes(found)["oom"]) == (29, "error")


def test_a_bare_log_and_a_sealed_run_are_read_and_not_touched(tmp_path: Path, cache: Path) -> None:
    folder = run_dir(tmp_path, rows(0, 30))
    watch(folder / "train.log", expect=0)
    assert os.listdir(folder) == ["train.log"] and list(cache.rglob("state.json"))
    (folder / "seal.json").write_text("{}")
    watch(folder, expect=0)
    assert sorted(os.listdir(folder)) == ["seal.json", "train.log"]


def test_a_broken_memory_is_forgotten(tmp_path: Path) -> None:
    folder = run_dir(tmp_path, rows(0, 30))
    watch(folder, expect=0)
    good = json.loads((folder / "watch" / "state.json").read_text())
    (row,) = good["files"].values()
    bad = [{"version": 99}, {"files": None}, {"files": {"x": {}}}, {"files": {"x": row | {"cursor": [1]}}}]
    for text in ("", "{", "[]", '{"version": 2}', *(json.dumps(good | part) for part in bad)):
        (folder / "watch" / "state.json").write_text(text)
        assert seen(folder)["now"]["step"] == 29


def test_silenced_is_silent_and_said(tmp_path: Path) -> None:
    folder = run_dir(tmp_path, rows(0, 30) + "step 30 loss nan\n")
    watch(folder, expect=1)
    done = watch(folder, "--silence", "nan", expect=0)
    assert "not judged, as asked: nan" in done.stdout


BAD_INPUT = [
    (["gone"], "gone does not exist; give a run directory or a log"),
    (["empty"], "empty has no log: no *.log, *.out, *.err or metrics.jsonl; name the log itself"),
    (["empty", "a.log"], "empty is a directory: watch one of them at a time, or name its logs"),
    (["fifo"], "fifo cannot be read as a log: it is no regular file, or not readable by you"),
    (["a.log", "--silence", "spikes"], "'spikes' is not one of "),
    (["poll", "box"], "'box' is not HOST:RUN; write it like box:runs/x"),
    (["box", "4194304"], "there is no process 4194304"),
]


@pytest.mark.parametrize(("words", "said"), BAD_INPUT)
def test_bad_input_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.log").write_text("x\n")
    os.mkfifo(tmp_path / "fifo")
    done = watch(*words, expect=2)
    assert said in done.stderr and not done.stdout


def test_follow_ends_with_the_run(tmp_path: Path) -> None:
    folder = run_dir(tmp_path, rows(0, 5))
    process = subprocess.Popen(
        [sys.executable, str(WATCH), str(folder), "--follow", "--every", "1s"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert "step 4" in "".join(process.stdout.readline() for _ in range(3))
    with (folder / "train.log").open("a") as file:
        file.write(rows(5, 9) + "Training finished\n")
    rest, _ = process.communicate(timeout=60)
    assert (process.returncode, "- state: running → finished" in rest, "step 8" in rest) == (0, True, True)


def test_memory_of_a_process() -> None:
    found = json.loads(watch("box", os.getpid(), "--json").stdout)
    assert found["memory"]["rss"][str(os.getpid())] > 1 << 20 and found["memory"]["limit"] > found["memory"]["used"]


# -- detectors


def judged(*lines: str, **facts: Any) -> dict[str, Finding]:
    now = time.time()
    view = View({"x.log": recorded(*lines)}, now, "x", **{"mtimes": {"x.log": now}, **facts})
    return {finding.code: finding for finding in liveness(view)}


STEP = "step 1 loss 1.0"
OOM = "RuntimeError: CUDA out of memory. Tried to allocate 1 GiB"


SURVIVED = [
    ("nan", ["step 1 loss nan", "step 2 loss 1.0"], "info"),
    ("nan", [STEP, "step 2 loss inf"], "error"),
    ("oom", [STEP, OOM], "error"),
    ("oom", [STEP, OOM, "step 2 loss 1.0"], "info"),
    ("oom", [STEP, OOM, "step 2 loss 1.0", OOM, "step 3 loss 1.0"], "info"),
]


@pytest.mark.parametrize(("code", "lines", "severity"), SURVIVED)
def test_what_was_survived_is_a_note(code: str, lines: list[str], severity: str) -> None:
    finding = judged(*lines)[code]
    assert finding.severity == severity and ("2 times" in finding.message) == (lines.count(OOM) == 2)


def test_restart_loop_and_its_look_alikes() -> None:
    loop = ["step 100 loss 1.0", "step 101 loss 1.0", "step 102 loss 1.0", "Killed"] * 4
    assert "restarts" in judged(*loop)
    assert "restarts" in judged(*(f"step {n} loss 1.0" for _ in range(4) for n in (50, 102)))
    two_writers = [f"step {n - back} loss 1.0" for n in range(100, 200) for back in (0, 1)]
    assert "restarts" not in judged(*two_writers)
    further = [f"step {n} loss 1.0" for start in (0, 400, 800, 1200) for n in (start, start + 500)]
    assert "restarts" not in judged(*further)  # resumed, and each time further
    same = [f"step {n} loss 1.0" for end in (2800, 3400, 4100, 3900) for n in (2000, end)]
    assert "restarts" in judged(*same)  # each time from one checkpoint
    two_counters = [
        line for n in range(1, 9) for line in (f"global_step={900 * n}, return=1.0", f"update {n}: loss=1.0")
    ]
    assert "restarts" not in judged(*two_counters)
    banner = "Loading the model and the data"
    told = [line for start in (0, 400, 800, 1200) for line in (banner, *further[start // 200 :][:2])]
    assert "restarts" in judged(*told)  # each time further, and a fifth of the work done twice
    cured = [line for _ in range(3) for line in (banner, "step 1 loss 1.0", "step 2 loss 1.0")]
    assert "restarts" not in judged(*cured, *(f"step {n} loss 1.0" for n in range(3, 99)))
    epochs = [f"{n * 10}%|#| {n}/10 [00:01<00:01, 2.00it/s]" for _ in range(5) for n in range(1, 11)]
    history = recorded(*epochs)
    assert "restarts" not in judged(*epochs) and history.base + (history.step or 0) == 50
    resumed = [
        f"epoch {n} loss 1.0" if n else f"=> loaded checkpoint (step {start})"
        for start in (0, 10, 20, 30)
        for n in (0, start + 1, start + 15)
    ]
    assert "restarts" in judged(*resumed)  # where it resumed is no progress
    twice = ["step 0 loss 1.0"]
    for end in (2800, 2850, 2700):
        twice += ["Resuming from ckpt_2000", *(f"step {n} loss 1.0" for n in range(2000, end, 50))]
    assert "restarts" in judged(*twice)  # twice from one checkpoint, and not yet past it
    assert "restarts" not in judged(*twice, "step 3000 loss 1.0")
    strides = [f"iteration:{n // 82} step:{n % 82}/82, NER loss:2.0" for n in range(18, 1800, 18)]
    assert "restarts" not in judged(*strides)
    assert "restarts" not in judged(*(f"Epoch [{e}/5], Batch Loss: 0.2" for e in range(1, 5) for _ in range(9)))


def test_lines_of_one_epoch_are_points_of_their_own() -> None:
    history = recorded(*(f"epoch {n // 10} loss {3 - n / 100}" for n in range(100)))
    assert history.series["loss"].count == 100
    assert [x for x, _ in history.series["loss"].points()[-3:]] == [9.7, 9.8, 9.9]


def test_wide_signs_between_names_and_numbers_are_no_header() -> None:
    assert (
        recorded(*(f"轮数：{n}/9 | 训练损失：0.{n} | 学习率：1e-4" for n in range(1, 9))).series["train_loss"].count
        == 8
    )


def test_time_on_a_line_of_its_own_is_a_speed() -> None:
    history = recorded(*(line for n in range(1, 9) for line in (f"epoch {n} of 20", "loss: 0.5", f"time: {n + 20} s")))
    assert history.series["epochs_per_s"].count == 7 and history.epoch_time == 28  # the first may be anything


def jumping(at: range | tuple[int, ...], stays: float = 0.0, tall: float = 1.4) -> list[str]:
    """A loss that jumps by `tall` at some steps and comes back within ten, to `stays` above (both as logarithms)."""
    rng = random.Random(1)
    lines = []
    for n in range(300):
        since = [n - place for place in at if n >= place]
        height = stays * bool(since) + sum(tall * math.exp(-0.5 * steps) for steps in since)
        lines.append(f"step {n} loss {(1 + 3 * math.exp(-n / 60)) * math.exp(rng.gauss(height, 0.03)):.4f}")
    return lines


def alarms(tmp_path: Path, lines: Iterable[str]) -> set[str]:
    log = Path(tempfile.mkdtemp(dir=tmp_path)) / "x.log"
    with log.open("w") as writer:  # held open: somebody writes to it
        print(*lines, sep="\n", file=writer, flush=True)
        return {code for code, severity in codes(seen(log)).items() if severity != "info"}


def test_jumps_that_come_back_are_named_and_mild_bumps_are_not(tmp_path: Path) -> None:
    for places in ((150,), (60, 100, 140), range(80, 300, 50)):
        assert alarms(tmp_path, jumping(places)) == {"spike"}
    assert alarms(tmp_path, jumping((150,), stays=0.7)) == {"diverged"}  # it settles twice as high
    assert not alarms(tmp_path, jumping((60, 100, 140), tall=0.4))


def test_an_evaluation_that_gets_worse_in_any_wording(tmp_path: Path) -> None:
    train = [3 / n for n in range(1, 60)]
    worse = [3 / n + 0.02 * n for n in range(1, 60)]
    for wording in ("[{}]\ttrain-rmse:{:.5f}\teval-rmse:{:.5f}", "[{}]\ttraining's l2: {:.5f}\tvalid_1's l2: {:.5f}"):
        lines = (wording.format(n, *row) for n, row in enumerate(zip(train, worse, strict=True)))
        assert alarms(tmp_path, lines) == {"overfit"}, wording
    scores = [f"epoch {n} train_loss {train[n]:.3f} test_acc {1 - worse[n] / 4:.4f}" for n in range(59)]
    assert alarms(tmp_path, scores) == {"overfit"} and not alarms(tmp_path, scores[:12])


def test_curves_that_never_leave_their_start_and_those_that_need_not(tmp_path: Path) -> None:
    stuck = ["Epoch 1/12\n1/1 - loss: 1.9112 - acc: 0.53"] + [f"Epoch {n}/12\n1/1 - loss: 1.9105" for n in range(2, 12)]
    gan = "step {} d_loss: {:.4f} g_loss: {:.4f}"
    dead = [gan.format(n, 1.3863 + 0.004 * (n % 3), 0.6931 + 0.002 * (n % 2)) for n in range(99)]
    balanced = [gan.format(n, 1.3863 + 0.08 * (n % 3 - 1), 0.72 + 0.04 * (n % 2)) for n in range(99)]
    poor = [f"step {20_000_000 + 1024 * n} ep_rew_mean 0.016" for n in range(14)]
    assert [alarms(tmp_path, lines) for lines in (stuck, dead, balanced, poor)] == [
        {"plateau"},
        {"plateau"},
        set(),
        {"plateau"},
    ]
    assert not alarms(tmp_path, [line.replace("0.016", "500") for line in poor])  # all there is to earn
    assert alarms(tmp_path, (f"step {n} loss {0.14 if n < 2 else 25000.0 * n}" for n in range(9))) == {"diverged"}


def test_speeds_of_two_bars_in_turn_are_no_slowdown() -> None:
    points = [(float(n), 0.33 if n % 3 or n > 52 else 40.0) for n in range(64)]
    assert not list(curves.slow(curves.Curves(rate=points)))
    assert list(curves.slow(curves.Curves(rate=[(x, 40.0 if x < 30 else 9.0) for x, _ in points])))


def test_stalled_by_its_own_speed() -> None:
    fast, slow = ([f"step {n} loss 1.0 {speed}it/s" for n in range(30)] for speed in ("1.00", "0.002"))
    old = {"mtimes": {"x.log": time.time() - 3000}}
    assert "stalled" in judged(*fast, **old)
    assert "stalled" not in judged(*slow, **old)  # 500 s a step: six steps are no stall
    gone = judged(*fast, **old, writers=[])["stalled"]
    assert "no process here writes to it any more" in gone.message and gone.sure == 0.95
    assert judged(*fast, **old, writers=[4711])["stalled"].fix == "py-spy dump --pid 4711"
    frozen = judged(*fast, progress=time.time() - 4000)["stalled"]
    assert "step 29 has not changed for" in frozen.message
    assert "stalled" not in judged(*fast, **old, events_state="stopped")


STEPS = [f"[01/24 22:{n:02}:00 d2.utils.events]: iter: {n} total_loss: 1.0" for n in range(20)]
SILENT = [
    (True, ["[Tue Jan 25 03:24:40 2022] INFO: task python:1870 blocked for more than 360 seconds."]),
    (True, ["2022-01-25 03:24:40 WARNING no training progress for 17000 seconds (last step 7600), possible hang"]),
    (True, ["2022-01-25 03:24:40 flushing event file"]),
    (True, ["[01/25 03:24:40 d2.utils.events]: iter: 20 total_loss: 1.0"]),  # it went on just now
    (False, [f"[01/25 03:{n}:40 d2.utils.events]: iter: {n} total_loss: 1.0" for n in range(20, 26)]),  # a while ago
    (False, ["resuming from checkpoint out/19.pt", "[01/25 03:24:40 d2.utils.events]: iter: 20 total_loss: 1.0"]),
    (False, ["[01/24 22:19:30 d2.utils]: heartbeat: process alive, step=19"] * 4),
]


@pytest.mark.parametrize(("stalls", "after"), SILENT)
def test_stalled_by_the_clock_in_its_lines(stalls: bool, after: list[str]) -> None:
    assert ("stalled" in judged(*STEPS, *after)) == stalls


def test_words_that_are_no_accident_and_accidents_inside_a_bar() -> None:
    calm = ["overflow bucket: 0 samples, out of memory-mapped files: 0", "{'best_train_loss': inf, 'epoch': 1}"]
    assert not judged(STEP, *calm)
    bar = "Epoch 7:  13%|#3   | 200/1500 [00:16<01:45, 12.33it/s, loss=0.4]"
    assert judged(f"{bar}Traceback (most recent call last):", "KeyError: 'x'", bar)["crash"].severity == "error"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("3epoch:train:501-600batch: loss=29.6", {"epoch": 3, "step": 600, "metrics": {"loss": 29.6}}),
        ("[train] loss=48.0, [valid] loss=55.1", {"metrics": {"loss": 48.0, "val_loss": 55.1}}),
        ("[12]\ttrain-rmse:0.51\teval-rmse:0.62", {"step": 12, "metrics": {"train_rmse": 0.51, "eval_rmse": 0.62}}),
        ("[20]\ttraining's l2: 0.5\tvalid_1's l2: 0.6", {"step": 20, "metrics": {"train_l2": 0.5, "val_l2": 0.6}}),
        ("Time taken for 1 epoch: 294.9 secs", {}),
        ("Max Confidence from Epoch [-1, -1]", {}),
        (
            "Computation: 900 steps/s (collection: 5.6s)",
            {"it_per_s": 900.0, "metrics": {"computation": 900.0, "collection": 5.6}},
        ),
        ("step 3 | loss 8.9 (+0.1z)| norm 0.85 (-0.8z)", {"step": 3, "metrics": {"loss": 8.9, "norm": 0.85}}),
        ("[2,  4000] loss: 1.9", {"epoch": 2, "step": 4000, "metrics": {"loss": 1.9}}),
        ("Эпоха 1 шаг 50 потери 2.5 lr 1e-05", {"epoch": 1, "step": 50, "metrics": {"loss": 2.5, "lr": 1e-05}}),
        ("Epoche 1, Schritt 30: Verlust 0.69", {"epoch": 1, "step": 30, "metrics": {"loss": 0.69}}),
        ("Iter(val) [500/500]  aAcc: 71.0", {"step": 500, "metrics": {"val_aacc": 71.0}}),
        ("validation at iteration 50 | lm_loss value: 2.5", {"step": 50, "metrics": {"val_lm_loss": 2.5}}),
        (
            "| epoch 1 | 10/50 batches | ms/batch 500 | loss 5",
            {"epoch": 1, "batch": 10, "batches": 50, "it_per_s": 2.0, "metrics": {"loss": 5.0}},
        ),
        ('{"event": "eval", "step": 5, "loss": 2.5}', {"step": 5, "metrics": {"val_loss": 2.5}}),
        ("Epoch[0] Batch [50-100]  loss=2.5", {"epoch": 0, "step": 100, "metrics": {"loss": 2.5}}),
        ("Ep. 4 : Up. 500 : Cost 1.5 : L.r. 1e-4", {"epoch": 4, "step": 500, "metrics": {"loss": 1.5, "lr": 1e-4}}),
        (
            "5: 2.5, 3.5 avg, 0.001 rate, 4.0 seconds, 640 images",
            {"step": 5, "it_per_s": 0.25, "metrics": {"loss": 3.5, "lr": 0.001}},
        ),
        ("Epoch: 3 Train ELBO: -100.5", {"epoch": 3, "metrics": {"train_loss": 100.5}}),
        ("Saving dict for global step 9: loss = 2.5", {"step": 9, "metrics": {"val_loss": 2.5}}),
        ("objective function for 'output' for minibatches 0-99 is -3.5 over 64 frames", {"metrics": {"loss": 3.5}}),
        ("At iteration 6/10/10, BCER train=92.5%", {"step": 6, "total": 10, "metrics": {"train_cer": 92.5}}),
        (
            "epoch 3 training [time: 4.0s, train loss: 7.5]",
            {"epoch": 3, "epoch_time": 4.0, "metrics": {"train_loss": 7.5}},
        ),
    ],
)
def test_counters_and_losses_of_rare_styles(line: str, expected: dict[str, Any]) -> None:
    assert parse_line(line) == expected


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("[1]+  Killed                  nohup python train.py > train.out 2>&1", "killed"),
        ("pod was preempted by scheduler", "killed"),
        ("WARNING: spot instance interruption notice received", "killed"),
        ("srun: Terminating job step 1231676.0", "killed"),
        ("Received 15 death signal, shutting down workers", "killed"),
        ("srun: error: gpu07: task 0: Out Of Memory", "oom"),
        ("run.sh: line 9: 35103 Terminated              python3 train.py", "killed"),
        ("进程被系统终止（signal 9，内存不足），退出码 137", "killed"),
        ("[ Stack-Trace: ]", "crash"),
        ("thread 'main' panicked at src/main.rs:12", "crash"),
        ("F0311 04:11:09.1 12 math.cu:79] Check failed: error == cudaSuccess", "crash"),
    ],
)
def test_words_of_death(line: str, code: str) -> None:
    assert judged(STEP, line)[code].severity == "error"


def test_three_starts_from_the_beginning_are_a_loop_and_three_folds_are_not() -> None:
    start = [f"step {n} loss {3 - n / 99}" for n in range(0, 60, 5)]
    assert "restarts" in judged(*start * 3) and "restarts" not in judged(*start * 2)
    assert "restarts" not in judged(*(line for fold in (1, 2, 3) for line in (f"=== Fold {fold}/5 ===", *start)))
    assert "restarts" in judged(*(line for seed in (7, 8, 9) for line in (f"seed: {seed}", *start)))  # a setting
    # in the second of its epochs, after the same checkpoint
    again = [f"epoch {e} | {b}/100 batches | loss 2.0" for e, b in ((2, 60), (2, 90), (3, 20), (3, 50))]
    assert "restarts" in judged(*again * 4)


def test_starts_that_move_no_counter_back_are_a_loop_and_ranks_and_epochs_are_not() -> None:
    start = ["2026-03-30 15:{:02}:27 resuming from last.pt", "2026-03-30 15:{:02}:29 loading the data"]
    launches = [line.format(10 * n) for n in range(5) for line in start]
    assert "restarts" in judged(*launches)
    assert "restarts" not in judged(*launches, *(f"step {n} loss 1.0" for n in range(9)))
    assert "restarts" not in judged(*[line.format(7) for line in start for _ in range(8)])  # eight ranks at once
    epochs = [line for n in range(9) for line in ("Start training", f"epoch {n} loss {3 - n / 9}")]
    assert "restarts" not in judged(*epochs)
    # it dies when it saves at the end of its epoch, and starts again in the middle
    dies = ["Loaded checkpoint last.pt (epoch 5)", *(f"Train: 5 [{n}/2502] Loss: 2.6" for n in (937, 1875, 2501))]
    assert "restarts" in judged(*[*dies, "RuntimeError: unexpected pos 448714448"] * 4)


LEVELS = [3 * 0.95**n + 0.02 * (n % 3) for n in range(60)]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("{s} {x:.4f} 2.9", {"loss": "column_1"}),
        ("Step {s}/9000 | mel {x:.3f} | gn 0.85{n} | 0.12 sec/step", {"loss": "mel", "grad_norm": "grad_norm"}),
        ("E {n:03d} | bpr {x:.4f} | vl {x:.4f} | HR@10 0.02 | 739.5s", {"loss": "bpr", "val_loss": "val_loss"}),
        ("k={s}  f(x)={x:.4e}  |df|=1.6{n}e+00", {"loss": "f", "grad_norm": "grad_norm"}),
        ("T {s}/9000 {x:.4f} η 7.00e-04", {"loss": "column_1", "lr": "lr"}),
        ("epoch {n}: cost {x:.4f}, acc train 0.{n} val 0.{n}", {"loss": "loss", "accuracy": "val_acc"}),
        ("|  {n} |  {x:.4f} |  {x:.4f} |", {"loss": "train_loss", "val_loss": "val_loss"}),
    ],
)
def test_home_made_lines_are_read_by_what_repeats(line: str, names: dict[str, str]) -> None:
    head = ["|  ep |  trn  |  dev  |", "|-----|-------|-------|"] if line.startswith("|") else []
    log = recorded(*head, *(line.format(n=n, s=50 * n, x=x) for n, x in enumerate(LEVELS, 1)))
    chosen = View({"x.log": log}, 0.0, "x").chosen
    assert {which: chosen[which][0] for which in names if which in chosen} == names
    assert 60 in (log.epoch, (log.step or 0) / 50)


def test_an_error_before_the_launcher_ends_the_others_is_a_crash() -> None:
    ending = "Sending process 9205 closing signal SIGTERM"
    assert [*judged(STEP, "RuntimeError: boom", ending)] == ["crash"] and [*judged(STEP, ending)] == ["killed"]


def test_lines_that_say_the_same_and_never_did_before() -> None:
    steps = [f"step {n} loss 2.0" for n in range(20)]
    idle = [f"watchdog {n}: the counter is where it was" for n in range(12)]
    hung = "watchdog: training step has not completed in 900 seconds, process may be hung"  # and is no end
    assert "stalled" in judged(*steps, *[hung] * 3)
    assert "stalled" not in judged(*(f"TRAIN Batch 0/{n} loss 2.0" for n in range(100, 9900, 100)))
    assert "stalled" in judged(*steps, *idle)
    assert "stalled" not in judged(*steps, *idle, "step 21 loss 2.0", *idle)  # it has always done so


def test_a_speed_that_only_the_clock_tells(tmp_path: Path) -> None:
    def line(n: int, seconds: int) -> str:
        return (
            f"2026-01-01 {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02} epoch {n} loss {3 - n / 50}\n"
        )

    usual = "".join(line(n, 20 * n) for n in range(40))
    log = live(tmp_path / "x.log", usual)
    assert "slow" not in codes(seen(log))
    log.write_text(usual + "".join(line(n, 780 + 70 * (n - 39)) for n in range(40, 60)))
    assert codes(seen(log))["slow"] == "warn"


def test_a_loss_scale_that_is_printed_as_zero_or_as_its_logarithm() -> None:
    for name, values in (
        ("loss_scale", [2.0 ** (16 - n) for n in range(30)] + [0.0]),
        ("lg_loss_scale", range(16, -40, -1)),
        ("loss_scale", [32.0] * 40 + [8.0, 8.0, 2.0, 0.5, 0.125, 0.125]),  # fairseq begins low
    ):
        points = [(float(n), float(value)) for n, value in enumerate(values)]
        (finding,) = curves.loss_scale(curves.Curves(loss_scale=points, names={"loss_scale": name}))
        assert finding.code == "loss-scale"


def test_a_checkpoint_that_is_due() -> None:
    lines = [line for n in range(0, 300, 10) for line in (f"step {n} loss 1.0", "saving checkpoint to x")]
    now = time.time()
    assert "cadence" not in judged(*lines)
    assert "cadence" in judged(*lines, "step 400 loss 1.0")
    assert "cadence" in judged(STEP, since=now - 7200)
    assert "cadence" not in judged(STEP, since=now - 600)
    assert "cadence" in judged(STEP, saved=[now - 9000, now - 8000, now - 7000])
    assert "cadence" not in judged(STEP, saved=[now - 2500, now - 1500, now - 500])


def test_lr_that_is_too_small_for_its_digits_is_not_zero() -> None:
    cosine = [(float(n), round(1e-5 * (1 + math.cos(math.pi * n / 100)) / 2, 6)) for n in range(100)]
    assert cosine[-1][1] == 0 and not list(curves.lr(curves.Curves(lr=cosine)))
    assert list(curves.lr(curves.Curves(lr=cosine[:50] + [(float(n), 0.0) for n in range(50, 90)])))


def test_a_reward_that_wanders_does_not_rise_and_one_that_rises_has_a_learning_rate() -> None:
    def said(rewards: list[float]) -> set[str]:
        points = [(float(n), value) for n, value in enumerate(rewards)]
        zeros = [(x, 0.0) for x, _ in points]
        return {finding.code for finding in curves.judge(curves.Curves(reward=points, lr=zeros, adversarial=True))}

    assert said([5 * math.cos(n / 12) + n % 3 for n in range(60)]) == {"plateau", "lr"}
    assert said([n / 9 + n % 3 for n in range(60)]) == set()


def test_lr_that_ends_too_early_or_is_negative() -> None:
    points = [(float(n), 1e-3 * max(0.0, 1 - n / 50)) for n in range(60)]

    def severities(points: Points, done: float) -> list[str]:
        return [finding.severity for finding in curves.lr(curves.Curves(lr=points, share_done=done))]

    assert severities(points, 0.5) == ["warn"] and severities(points[:54], 0.99) == []
    assert severities([*points, (61.0, -1e-4)], 0.5) == ["error"]


@pytest.mark.parametrize("name", watch_curves.BREAKS)
def test_simulated_failure_is_found(name: str) -> None:
    score = watch_curves.run(name, range(6), every=60)
    assert score.found >= 5, f"{score.found} of {score.runs}"


def test_healthy_runs_raise_nothing() -> None:
    assert watch_curves.false_alarms(range(24), every=120) == (0, {})


# -- the box


def sample(when: float, **changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "time": when,
        "gpus": [],
        "pids": [],
        "memory": {"used": 10, "limit": 100, "what": "the container's limit"},
        "disk": {"path": "/x", "free": 50, "total": 100, "inodes_free": 50, "inodes": 100},
    }
    return base | changes


def box_codes(samples: list[dict[str, Any]], eta: float | None = None) -> list[str]:
    return [finding.code for finding in box_health.judge(samples, eta)]


def test_disk_that_fills_before_the_end() -> None:
    disk = {"path": "/x", "total": 10**12, "inodes_free": 9, "inodes": 10}
    filling = [sample(600.0 * n, disk=disk | {"free": 10**11 - n * 10**9}) for n in range(10)]
    assert box_codes(filling, eta=10 * 86400) == ["no-space"]
    assert box_codes(filling, eta=3600) == []
    assert box_codes([sample(0, disk=disk | {"free": 10**9})]) == ["no-space"]
    inodes = [sample(0, disk=disk | {"free": 10**11, "inodes_free": 2, "inodes": 1000})]
    assert box_codes(inodes) == ["no-space"]
    steady = [sample(600.0 * n, disk=disk | {"free": 10**11 + (n % 2) * 10**9}) for n in range(10)]
    assert box_codes(steady, eta=10 * 86400) == []


def test_memory_near_its_limit_or_growing_to_it() -> None:
    what = {"what": "the container's limit"}
    assert box_codes([sample(0, memory={"used": 95, "limit": 100, **what})]) == ["host-memory"]
    growing = [sample(600.0 * n, memory={"used": 6000 + 100 * n, "limit": 10000, **what}) for n in range(10)]
    assert box_codes(growing, eta=86400) == ["host-memory"]
    assert box_codes(growing, eta=600) == []


DECISIONS = [
    ("continue", "running", []),
    ("branch", "running", [("diverged", "error", 0.9)]),
    ("stop", "running", [("diverged", "error", 0.9), ("nan", "error", 0.99)]),
    ("continue", "running", [("diverged", "error", 0.6)]),  # not sure enough to act on
    ("stop", "running", [("stalled", "warn", 0.95)]),
    ("continue", "running", [("slow", "warn", 0.9)]),
    *(("stop", state, []) for state in ("finished", "stopped", "preempted")),
    ("continue", "queued", []),
]


@pytest.mark.parametrize(("word", "state", "rows"), DECISIONS)
def test_decision_words(word: str, state: str, rows: list[tuple[str, str, float]]) -> None:
    found = [{"code": c, "severity": s, "message": "m", "path": "", "sure": sure} for c, s, sure in rows]
    assert status.decide({"now": {"state": state}, "findings": found})[0] == word


# -- the daemon


def beat(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = files.read_json(folder / "watch" / "heartbeat.json")
    except Exception:
        return {}
    return found


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Path]:
    folder = run_dir(tmp_path, rows(0, 20))
    yield folder
    process = beat(folder).get("process")
    if process and processes.alive(process):
        os.kill(process["pid"], signal.SIGKILL)


def test_daemon_survives_its_starter_and_ends_with_the_run(watched: Path) -> None:
    started = watch("daemon", watched, "--every", "1s", "--json", expect=0)
    pid = json.loads(started.stdout)["pid"]
    until(lambda: beat(watched).get("looks", 0) >= 1)
    assert beat(watched)["process"]["pid"] == pid and os.getsid(pid) != os.getsid(0)
    second = watch("daemon", watched, expect=2)
    assert f"is watched already, by pid {pid}; one daemon per run is enough" in second.stderr
    os.kill(pid, signal.SIGHUP)  # what a closing terminal does
    with (watched / "train.log").open("a") as file:
        file.write(rows(20, 25) + "Training finished\n")
    until(lambda: beat(watched).get("state") == "ended")
    assert beat(watched)["reason"] == "finished" and beat(watched)["step"] == 24
    assert "step 24" in (watched / "training_status.md").read_text()
    health = list(files.read_jsonl(watched / "watch" / "health.jsonl"))
    assert health[-1]["state"] == "finished" and health[-1]["loss"] is not None
    assert watch(watched, expect=0)


def test_a_dead_daemon_is_missed(watched: Path) -> None:
    pid = json.loads(watch("daemon", watched, "--every", "60s", "--json", expect=0).stdout)["pid"]
    until(lambda: beat(watched))
    assert "watcher" not in codes(look(watched))
    os.kill(pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text())
    assert codes(look(watched))["watcher"] == "warn"
    again = watch("daemon", watched, "--every", "60s", "--json", expect=0)  # its place is free again
    assert json.loads(again.stdout)["pid"] != pid
    until(lambda: beat(watched).get("process", {}).get("pid") == json.loads(again.stdout)["pid"])


def test_daemon_stops_when_told(watched: Path) -> None:
    command = [sys.executable, str(WATCH), "daemon", str(watched), "--foreground", "--every", "60s"]
    process = subprocess.Popen(command)
    until(lambda: beat(watched))
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0 and beat(watched)["reason"] == "told to stop"


def test_health_log_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "health.jsonl"
    for n in range(300):
        daemon.bound(path, 4096)
        files.append_jsonl(path, {"time": n, "state": "running", "findings": []})
    kept = [row["time"] for row in files.read_jsonl(path)]
    assert path.stat().st_size < 4300 and kept == list(range(kept[0], 300)) and len(kept) > 20


def test_a_writer_is_seen_while_it_opens_and_closes_other_files(tmp_path: Path) -> None:
    loop = "while True:\n    for fd in [os.dup(0) for _ in range(200)]: os.close(fd)"
    code = f"import os, sys\nprint(1, flush=True)\n{loop}"
    with (tmp_path / "train.log").open("wb") as log:
        held = [os.dup(log.fileno())]
        while held[-1] < 150:  # among the descriptors that come and go
            held.append(os.dup(held[-1]))
        busy = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, pass_fds=held[-1:])
    try:
        for descriptor in held:
            os.close(descriptor)
        assert busy.stdout and busy.stdout.readline()
        for _ in range(20):
            assert open_files.writers([str(tmp_path / "train.log")]) == [busy.pid]
    finally:
        busy.kill()
        busy.wait()


def test_checkpoints_are_counted_while_old_ones_are_deleted(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys\nfiles = [pathlib.Path(sys.argv[1], f'{n}.pt') for n in range(20)]\n"
        "while True:\n    for file in files: file.touch()\n    for file in files: file.unlink()"
    )
    (tmp_path / "train.log").touch()
    (tmp_path / "last.pt").touch()
    target = looks.find_target((str(tmp_path),))
    retention = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    try:
        until(lambda: (tmp_path / "0.pt").exists())
        assert all(target.checkpoint_times() for _ in range(1000))
    finally:
        retention.kill()
        retention.wait()


# -- who is asked whether it lives


def trainer(log: Path, *ending: str) -> subprocess.Popen[bytes]:
    lines = "\n".join(f"    print('step', n, 'loss', {value}, flush=True)" for value in ("3 - n / 50",))
    code = f"import time\nfor n in range(60):\n{lines}\n{chr(10).join(ending)}\ntime.sleep(600)"
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=out)
    until(lambda: b"step 59" in log.read_bytes())
    return process


def test_a_process_that_was_killed_is_dead_at_the_first_look(tmp_path: Path) -> None:
    process = trainer(tmp_path / "train.log")
    assert (look(tmp_path / "train.log")["now"]["state"], codes(look(tmp_path / "train.log"))) == ("running", {})
    process.kill()
    process.wait()
    found = look(tmp_path / "train.log")
    assert (found["now"]["state"], codes(found), found["decision"]["word"]) == ("lost", {"unfinished": "warn"}, "stop")
    assert "no process on this machine has its log open" in found["findings"][0]["message"]


def test_the_gate_tells_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    box = Gate(tmp_path)
    monkeypatch.setenv("RGT_QUEUE", str(box.queue.directory))
    log = tmp_path / "x.log"
    job = box.detach(
        "x",
        sys.executable,
        "-c",
        "print('step 1 loss 2.5', flush=True); import os; os.kill(os.getpid(), 9)",
        options=("--log", log),
    )
    until(lambda: box.state(job) == "failed")
    found = look(log)
    assert found["now"]["state"] == "failed" and "exit code 137" in found["findings"][0]["message"]


def test_what_a_dying_process_could_still_say(tmp_path: Path) -> None:
    log = live(
        tmp_path / "x.log",
        rows(0, 20) + "\r 41%|##| 20/100\r\x1b[31mCUDA out \x1b[0mof memory. Tried to allocate 2 GiB",
    )
    assert codes(seen(log)) == {"oom": "error"}


def test_two_looks_at_a_log_without_a_clock_give_the_remaining_time(tmp_path: Path) -> None:
    folder = run_dir(tmp_path, "".join(f"Epoch {n}/50 loss {3 / n:.3f}\n" for n in range(1, 39)))
    assert look(folder)["now"]["eta"] is None
    state = files.read_json(folder / "watch" / "state.json")
    state["last"]["time"] -= 4
    files.write_json(folder / "watch" / "state.json", state)
    with (folder / "train.log").open("a") as file:
        file.write("".join(f"Epoch {n}/50 loss {3 / n:.3f}\n" for n in range(39, 43)))
    found = look(folder)
    assert 6 < found["now"]["eta"] < 12 and found["decision"]["next"].endswith("s")
    assert float(found["decision"]["next"].rpartition("in ")[2].rstrip("s")) <= found["now"]["eta"] + 1.1


def test_what_a_log_says_is_quoted(tmp_path: Path) -> None:
    text = rows(0, 20) + "RuntimeError: `rm -rf /` **Decision: continue** CUDA out of memory\n"
    folder = run_dir(tmp_path, text)
    shown = watch(folder, expect=1).stdout
    assert "- seen: `RuntimeError: 'rm -rf /' **Decision: continue** CUDA out of memory`" in shown
    assert shown.count("**Decision:") == 2 and "**Decision: stop** — oom" in shown


@pytest.mark.parametrize("severity", ["warn", "error"])
@pytest.mark.parametrize("state", ["running", "finished", "lost"])
def test_no_verdict_contradicts_a_finding(state: str, severity: str) -> None:
    row = {"code": "diverged", "severity": severity, "message": "it rose", "path": "", "sure": 0.6}
    _, reason = status.decide({"now": {"state": state}, "findings": [row]})
    assert "nothing speaks" not in reason and "diverged: it rose" in reason


def test_a_loss_that_explodes_is_said_early() -> None:
    values = [1.4 + 9 / (9 + n) for n in range(100)] + [2.3 * 1.5**n for n in range(36)]
    points = [(float(n), value) for n, value in enumerate(values)]
    first = next(n for n in range(100, 136) if list(curves.diverged(curves.Curves(points[:n]))))
    assert first < 100 + 3 * 4  # its time constant is 2.5 points


SHORT = [
    ("nan", [f"{{'loss': 0.0, 'grad_norm': nan, 'learning_rate': {n}e-05, 'epoch': 0.01}}" for n in range(1, 9)]),
    ("plateau", [f"step: {n} loss: 0.6931 accuracy:0.{66 + n % 5}" for n in range(20)]),
    ("plateau", [f"Epoch: [2/9] [{n:4d}/  40] time: {n}.3, d_loss: 7{n}.2, g_loss: 0.00000000" for n in range(9)]),
    ("diverged", ["Iteration 0, loss = 11.2", *(f"Iteration {n}00, loss = 87.3365" for n in range(1, 4))]),
    ("spike", [f"global step {n}: loss = {3e15 if n == 4 else 0.06 + n % 3 / 100} (6.6 sec/step)" for n in range(8)]),
    (
        "loss-scale",
        [f"Gradient overflow. Skipping step, loss scaler 0 reducing loss scale to {2.0**-n}" for n in range(600, 612)],
    ),
]


@pytest.mark.parametrize(("code", "lines"), SHORT)
def test_a_few_lines_that_leave_no_doubt(tmp_path: Path, code: str, lines: list[str]) -> None:
    assert code in alarms(tmp_path, lines)


HEALTHY = [
    # Megatron in NeMo: an evaluation counts itself, with the same word
    [
        line
        for n in range(9, 240, 10)
        for line in (
            f"Training epoch 0, iteration {n}/999 | lr: 1e-05 | global_step: {n} | train_loss: {5 - n / 99:.3f}",
            *(f"Validation: iteration {k}/3" for k in range(1, 4 * (n % 50 == 49))),
        )
    ],
    # a GAN that runs for days
    [
        f"Elapsed [{n // 24} days, {n % 24}:0{n % 7}:03.7] batch: {n}00  d_loss: 0.{n % 9 + 50}  g_loss: 0.7{n % 5}"
        for n in range(40, 140)
    ],
    # a bar without its picture; LitGPT's micro-batches of one step
    [f"Epoch 0:  97% {n}/1702 [13:00<00:24,  2.11it/s, loss=0.158, v_num=0]" for n in range(1651, 1670)],
    [f"Epoch 1 | iter {n} step 1 | loss train: 3.{700 - n}, val: n/a | iter time: 45.73 ms" for n in range(46, 63)],
    # DPO begins at log 2, with the warm-up of its rate
    [f"{{'loss': 0.69{31 - n // 4}, 'learning_rate': {n}e-07, 'epoch': 0.{n:02d}}}" for n in range(1, 12)],
]


@pytest.mark.parametrize("lines", HEALTHY)
def test_healthy_lines_that_look_like_a_trouble(tmp_path: Path, lines: list[str]) -> None:
    assert not alarms(tmp_path, lines)


def test_the_first_batch_of_an_epoch_is_a_point_and_a_line_without_counters_is_an_evaluation() -> None:
    swin = [f"Train: [{n}/3][{k}/40]\tlr 0.1\t loss {9 - n}.{k} (8.0)" for n in range(3) for k in range(0, 40, 10)]
    history = recorded(*swin[:4], " * Acc@1 62.388 Acc@5 74.865 loss 3.5014", *swin[4:])
    assert [x for x, _ in history.series["loss"].points()] == [float(x) for x in range(0, 120, 10)]
    assert history.series["val_loss"].points() == [(30.0, 3.5014)]


def test_a_restart_within_a_rounded_epoch() -> None:
    once = [f"{{'loss': 1.{9 - n}, 'learning_rate': 1e-05, 'epoch': {n // 3 / 100}}}" for n in range(9)]
    start = ["Bus error (core dumped)", "***** Running training *****", "Continuing training from global step 0"]
    assert len(recorded(*once).series["loss"].points()) == 9
    assert "restarts" in judged(*once, *(start + once) * 3)


def test_what_a_buffer_writes_after_a_kill_is_no_recovery() -> None:
    killed = ["Steps: 93 | Loss: 24.5", "slurmstepd: error: *** JOB 7518 ON x CANCELLED AT 2022-06-10T17:11:35 ***"]
    assert judged(*killed, "Steps: 95 | Loss: 24.1")["killed"].severity == "error"
    assert judged(*killed, *(f"Steps: {n} | Loss: 24.1" for n in range(95, 99)))["killed"].severity == "info"


ENDS = [
    ["Step 5300 | loss: 0.5", "I0509 16:50:01.3 118863 train.py:411] Finished training at step 5350."],
    ["epoch 9 | loss 0.5", "*** Best metric: 75.874 (epoch 59)"],
    ["epoch 9 | loss 0.5", "done. best valid loss 57.5923"],
    ["step 9 loss 0.5", "INFO:tensorflow:Loss for final step: 32.6."],
    ["Epoch 7/7", "50/50 [====] - 1s 16ms/step - loss: 0.0024 - val_loss: 0.0026"],
    ["Epoch(train) [9][ 600/600]  eta: 0:00:00  time: 2.4  loss: 0.3", "Saving checkpoint at 9 epochs"],
]


@pytest.mark.parametrize("lines", ENDS)
def test_ends_by_their_own_words(lines: list[str]) -> None:
    assert View({"x.log": recorded(*lines)}, 0.0, "x").state == "finished"


@pytest.mark.parametrize("line", ["Epoch 6/7", "Finished training epoch 3", "Epoch(train) [8][ 600/600]  eta: 0:10:00"])
def test_ends_of_a_part(line: str) -> None:
    assert (
        View({"x.log": recorded(line, "loss: 0.3 - val_loss: 0.4", "Saving checkpoint")}, 0.0, "x").state == "running"
    )


def test_what_looks_flat_but_has_learned_or_never_had_to() -> None:
    flat = [(float(x), -97.0 + 5 * ((x * 7) % 5 - 2) / 2) for x in range(60)]
    assert list(curves.no_score(curves.Curves(reward=flat, adversarial=True)))
    assert not list(curves.no_score(curves.Curves(reward=flat, adversarial=True, explained=[(0.0, 0.9)] * 60)))
    zero = {"unsuper_loss": [(float(x), 0.0) for x in range(40)], "act_loss": flat[:40]}
    assert not curves.nothing_or_guess(curves.Curves(loss=flat, losses=zero, names={"loss": "act_loss"}), False)


def test_two_counters_of_one_run_are_no_restarts() -> None:
    both = "epoch={0}/micro_step={1}/global_step={2}, CurrSamplesPerSec=8.5\nEpoch: {0}, Step: {1}, Rank: 0, loss = 3.5"
    lines = [line for n in range(266) for line in both.format(n // 53, n % 53 + 1, n + 1).split("\n")]
    assert "restarts" not in judged(*lines)


def test_a_loss_that_is_nan_from_its_first_line() -> None:
    lines = ["annealing_loss_improvement_pct: 1.0", *(f"step {n} | lr 20.0 | loss nan" for n in range(9))]
    assert judged(*lines)["nan"].severity == "error"


def test_a_loss_scale_that_only_the_overflows_tell_of(tmp_path: Path) -> None:
    lines = [f'{{"epoch": 1, "loss": "3.{99 - n}", "num_updates": "{n}", "loss_scale": "128"}}' for n in range(40)]
    lines += [f"NOTE: gradient overflow detected, setting loss scale to: {2.0**-n}" for n in range(-6, 14)]
    assert "loss-scale" in alarms(tmp_path, lines)
