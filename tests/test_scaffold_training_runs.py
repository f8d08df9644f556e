"""Written pipelines with the real frameworks: they train in phases, and a killed one ends with the loss of one that was not."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from .pipeline_box import Nursery, curves, events, kill_at_random, small, train

FRAMEWORKS = ["hf-trainer", "litgpt"]
STEPS = 24


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.xdist_group(f"pipeline-{name}"))
                                        for name in FRAMEWORKS])  # fmt: skip
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def nursery(framework: str) -> Iterator[Nursery]:
    one = Nursery(framework)
    yield one
    one.close()


@pytest.fixture(scope="module")
def pipeline(framework: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small(tmp_path_factory.mktemp(framework) / "pipeline", framework)


@pytest.fixture(scope="module")
def whole(pipeline: Path) -> Path:
    """The run that nobody disturbs, through train.sh."""
    done = train(pipeline)
    assert done.returncode == 0, done.stdout + done.stderr
    return pipeline


def weights(run: Path, framework: str) -> bytes:
    name = {"hf-trainer": f"checkpoint-{STEPS}/model.safetensors", "litgpt": f"step-{STEPS:08d}/lit_model.pth"}[framework]
    return (run / "checkpoints" / name).read_bytes()


def test_trains_through_all_phases(whole: Path, framework: str) -> None:
    found = curves(whole)
    assert list(found["train"]) == list(range(1, STEPS + 1)) and found["val"][STEPS] < found["val"][4]
    phases = [(row["phase"], row["step"], row["verdict"]) for row in events(whole) if row["event"] == "phase"]
    assert phases == [("broad", 8, "met"), ("curated", 14, "met"), ("domain", 20, "missed"), ("anneal", 24, "unjudged")]
    assert events(whole)[-1]["event"] == "finished"


def chaos(nursery: Nursery, pipeline: Path, run: Path, kills: int, seed: int) -> int:
    """Kill until so many were hit, then let it finish; how many starts set something aside."""
    dice, hit = random.Random(seed), 0
    for _ in range(kills * 3):
        code = kill_at_random(lambda: nursery.start(pipeline, run), nursery.end, run, dice)
        assert code in (0, -9), (run / "train.log").read_text()[-3000:]
        hit += code == -9
        if hit == kills or code == 0:
            break
    assert nursery.finish(pipeline, run) == 0, (run / "train.log").read_text()[-3000:]
    return sum("set_aside" in row for row in events(run))


def test_three_kills_end_bit_equal(whole: Path, nursery: Nursery, framework: str, tmp_path: Path) -> None:
    run = tmp_path / "killed"
    chaos(nursery, whole, run, 3, seed=3)
    assert curves(run) == curves(whole)
    assert weights(run, framework) == weights(whole, framework)
    assert [row["event"] for row in events(run)].count("resumed") >= 1
