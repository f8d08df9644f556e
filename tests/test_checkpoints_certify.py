"""`rgt checkpoints certify`: those that resume pass; what others forget is named, with its place in the checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .front_door import report

HERE = Path(__file__).resolve().parent
TRAINING = HERE / "resuming.py"
BUGS = ("sampler", "lr", "rng", "optimizer", "ema", "step")
IMPORTS = {
    "nanogpt": ("torch",),
    "plain": ("torch",),
    "hf": ("transformers.trainer", "transformers.models.llama.modeling_llama", "accelerate"),
    "lightning": ("lightning.pytorch",),
    "litgpt": ("litgpt.pretrain",),
}
# weights alone, loaded by hand, are a counter that starts again, and all else is new; the optimizer holds the rate of
# its next step; transformers restores its generators before it draws the order of ignore_data_skip's new epoch
FOLLOWS = {"step": {"lr", "sampler", "optimizer", "rng", "ema"}, "optimizer": {"lr"}, "sampler": {"rng"}}
ALL = tuple(IMPORTS)
Certify = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def certify(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certify]:
    """Of one trainer, from a process that has imported it once."""
    folder, servers = tmp_path_factory.mktemp("servers"), {}
    variables = {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    script = str(HERE / "forked_training.py")

    def ask(trainer: str, forget: str = "", *options: object) -> dict[str, Any]:
        place = folder / trainer
        if trainer not in servers:
            modules = ("torch._dynamo", "torch.distributed.tensor", *IMPORTS[trainer])
            words = [sys.executable, script, "serve", str(place), *modules]
            servers[trainer] = subprocess.Popen(words, env=variables)
            limit = time.monotonic() + 300
            while not place.exists():
                assert servers[trainer].poll() is None and time.monotonic() < limit
                time.sleep(0.05)
        training = (sys.executable, script, "run", place, trainer, "--out", "{out}", "--steps", "{steps}")
        return report("checkpoints", "certify", "--steps", 24, *options, "--", *training, "--forget", forget)

    yield ask
    for server in servers.values():
        server.kill()
        server.wait()


def codes(found: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in found["findings"] if finding["severity"] == "error"}


def test_a_command_as_it_is_resumes(tmp_path: Path) -> None:
    """A Python of its own, cut after so many steps; without {out} each run has its copy of the directory."""
    (tmp_path / "train.py").write_bytes(TRAINING.read_bytes())
    words = ("checkpoints", "certify", "--steps", 14, "--", sys.executable, "train.py", "plain", "--steps", 1000)
    found = report(*words, cwd=tmp_path)
    assert found["findings"] == [] and found["steps"] == 14 and found["saves"] == [4, 8, 12]
    term, kill = found["cuts"]
    # the loop saves once more on SIGTERM, one step later; SIGKILL leaves the last one of every fourth step
    assert (term["signal"], term["resumed_at"]) == ("SIGTERM", term["killed_at"] + 1)
    assert (kill["signal"], kill["resumed_at"]) == ("SIGKILL", kill["killed_at"] // 4 * 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]


def test_what_was_forgotten_is_named_with_its_place(certify: Certify) -> None:
    assert certify("plain")["ok"]
    found = certify("plain", "sampler,rng,optimizer,ema")
    assert codes(found) == {"sampler", "rng", "optimizer", "ema"}
    said = {finding["code"]: f"{finding['message']} {finding['evidence']}" for finding in found["findings"]}
    assert "optimizer state is fresh" in said["optimizer"] and "no entry for optimizer" in said["optimizer"]
    assert "data seen twice" in said["sampler"] and "saved (loader), so not restored" in said["sampler"]
    assert "RNG not restored: the torch generator" in said["rng"] and "no entry for rng" in said["rng"]
    assert "EMA dropped" in said["ema"] and "no entry for ema" in said["ema"]


@pytest.mark.parametrize(
    "trainer", [pytest.param(one, marks=[pytest.mark.soak] if one != "nanogpt" else []) for one in ALL]
)
def test_every_trainer_resumes_and_every_bug_is_named(certify: Certify, trainer: str) -> None:
    assert certify(trainer)["ok"]
    for number, bug in enumerate(BUGS):
        found = certify(trainer, bug, "--seed", number)
        assert bug in codes(found) and codes(found) <= {bug} | FOLLOWS.get(bug, set()), (bug, found["findings"])
