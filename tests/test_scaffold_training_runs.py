"""Written pipelines with the real frameworks: they train in phases, and a killed one ends as one that was not."""

from __future__ import annotations

import functools
import json
import math
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import front_door
from .gate_box import until
from .pipeline_box import (
    DEADLINE,
    PHASES,
    IndexWatch,
    PipelineNursery,
    curves,
    edit,
    events,
    kill_at_random,
    names,
    nano,
    small,
    train,
)

FRAMEWORKS = ["hf-trainer", "litgpt"]
STEPS = 24


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.xdist_group(f"pipeline-{name}")) for name in FRAMEWORKS],
)
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def nursery(framework: str) -> Iterator[PipelineNursery]:
    one = PipelineNursery(framework)
    yield one
    one.close()


@pytest.fixture(scope="module")
def pipeline(framework: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small(tmp_path_factory.mktemp(framework) / "pipeline", framework)


@pytest.fixture(scope="module")
def whole(pipeline: Path, nursery: PipelineNursery) -> Path:
    """The run that nobody disturbs. Through train.sh go those of nanoGPT, and of all in the soak version."""
    assert nursery.finish(pipeline, pipeline) == 0, (pipeline / "train.log").read_text()[-3000:]
    return pipeline


def weights(run: Path, framework: str, steps: int = STEPS) -> bytes:
    names = {"hf-trainer": f"checkpoint-{steps}/model.safetensors", "litgpt": f"step-{steps:08d}/lit_model.pth"}
    return (run / "checkpoints" / names[framework]).read_bytes()


def test_trains_through_all_phases(whole: Path, framework: str) -> None:
    found = curves(whole)
    assert list(found["train"]) == list(range(1, STEPS + 1)) and found["val"][STEPS] < found["val"][4]
    phases = [(row["phase"], row["step"], row["verdict"]) for row in events(whole) if row["event"] == "phase"]
    assert phases == [("broad", 8, "met"), ("curated", 14, "met"), ("domain", 20, "missed"), ("anneal", 24, "unjudged")]
    assert events(whole)[-1]["event"] == "finished"


def chaos(nursery: PipelineNursery, pipeline: Path, run: Path, kills: int, seed: int) -> None:
    """Kill so many times, then let it finish."""
    dice, watch = random.Random(seed), IndexWatch(run)
    for _ in range(kills):
        code = kill_at_random(lambda: nursery.train(pipeline, run), nursery.end, run, dice)
        assert code == -9, (code, (run / "train.log").read_text()[-3000:])
        watch.look()
    assert nursery.finish(pipeline, run) == 0, (run / "train.log").read_text()[-3000:]
    watch.look()
    assert watch.looks > kills // 2 and math.isfinite(watch.best)


@pytest.mark.parametrize(("times", "kills"), [(1, 3), pytest.param(3, 20, marks=pytest.mark.soak)])
def test_kills_end_bit_equal(
    whole: Path, nursery: PipelineNursery, framework: str, tmp_path: Path, times: int, kills: int
) -> None:
    run, home, steps = tmp_path / "20261116-083000-killed-1f00ab", whole, times * STEPS  # a run id, as launch gives one
    if times > 1:
        long = [{**phase, "steps": times * int(str(phase["steps"]))} for phase in PHASES]
        home, whole = small(tmp_path / "pipeline", framework, long), tmp_path / "whole"
        assert train(home, RGT_RUN_DIR=str(whole)).returncode == 0
    chaos(nursery, home, run, kills, seed=kills)
    assert curves(run) == curves(whole)
    assert weights(run, framework, steps) == weights(whole, framework, steps)
    assert [row["event"] for row in events(run)].count("resumed") >= 1
    (result,) = json.loads((run / "results.json").read_text())["metrics"]
    assert (result["value"], result["n"], result["step"]) == (curves(run)["val"][steps], 6, steps)
    assert (run / result["checkpoint"]).exists() and not (whole / "results.json").exists()


def test_a_finished_run_is_proved_and_its_box_may_be_stopped(whole: Path, tmp_path: Path) -> None:
    assert_provable(whole, tmp_path)


@pytest.mark.xdist_group("pipeline-nanogpt")
def test_a_finished_nanogpt_run_is_proved_and_its_box_may_be_stopped(tmp_path: Path) -> None:
    folder = nano(tmp_path / "pipeline", [{**PHASES[0], "steps": 200}])  # on a busy machine many saves are overwritten
    edit(folder, checkpoints={"every_steps": 4, "keep": 2})
    done = train(folder)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    assert_provable(folder, tmp_path)


def assert_provable(run: Path, tmp_path: Path) -> None:
    """More saves than are kept; the index names what is there, so that the pull is a proof and only approval lacks."""
    saved = [row["step"] for row in events(run) if row["event"] == "checkpoint"]
    listed = json.loads((run / "checkpoints_index.json").read_text())["checkpoints"]
    assert len(listed) < len(set(saved)) and {entry["path"] for entry in listed} == {
        f"checkpoints/{name}" for name in names(run)
    }
    here = tmp_path / "pulled" / run.name
    for words in (("verify_local.py", run), ("transfer.py", "pull", run, here)):
        done = front_door.call(*words)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    done = front_door.call("transfer.py", "down", here, "--profile", "local", "--json")
    assert done.returncode == 4
    assert [row["code"] for row in json.loads(done.stdout)["findings"] if row["severity"] == "error"] == ["unapproved"]


def reached(run: Path, step: int) -> bool:
    return len(curves(run)["train"]) > step


def test_a_stop_signal_saves_for_the_next_start(
    whole: Path, nursery: PipelineNursery, framework: str, tmp_path: Path
) -> None:
    """SIGTERM (spot), SIGUSR1 (Slurm) between two regular saves: no step is trained twice, and the end is the same."""
    run = tmp_path / "stopped"
    for number, step in ((signal.SIGTERM, 4), (signal.SIGUSR1, 10)):
        pid = nursery.train(whole, run)
        until(functools.partial(reached, run, step), DEADLINE)
        os.kill(pid, number)
        assert nursery.end() == 143
        stopped = [row for row in events(run) if row["event"] == "preempted"][-1]
        assert stopped["signal"] == number.name
        assert names(run) & {f"checkpoint-{stopped['step']}", f"step-{stopped['step']:08d}"}
    assert nursery.finish(whole, run) == 0
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [row["step"] for row in rows if row["split"] == "train"]
    assert steps == sorted(set(steps))
    assert (curves(run), weights(run, framework)) == (curves(whole), weights(whole, framework))
