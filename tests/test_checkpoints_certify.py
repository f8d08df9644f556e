"""`rgt checkpoints certify`: those that resume pass; what others forget is named, with its place in the checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rgt import schema

import pytest

from .front_door import call

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
# Weights alone, loaded by hand, are a counter that starts again, and all else is new. The optimizer holds the rate of
# its next step. transformers restores its generators before it draws the order of ignore_data_skip's new epoch.
# LitGPT's batches here have noise in them.
FOLLOWS = {"step": set(BUGS), "optimizer": {"lr"}, "sampler": {"rng"}, "rng": {"sampler"}}
Certify = Callable[..., dict[str, Any]]


def certified(*words: object, cwd: Path | None = None) -> dict[str, Any]:
    done = call("checkpoints", "certify", "--json", *words, cwd=cwd)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert (done.returncode, schema.problems(found, "report")) == (0 if found["ok"] else 1, [])
    return found


@pytest.fixture(scope="module")
def certify(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Certify]:
    """Of one trainer, from a process that has imported it once."""
    folder, servers = tmp_path_factory.mktemp("servers"), {}
    variables = {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    script = str(HERE / "forked_training.py")

    def ask(trainer: str, forget: str = "", seed: int = 0, more: tuple[str, ...] = ()) -> dict[str, Any]:
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
        return certified("--steps", 24, "--seed", seed, "--", *training, "--forget", forget, *more)

    yield ask
    for server in servers.values():
        server.kill()
        server.wait()


def codes(found: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in found["findings"] if finding["severity"] == "error"}


def test_a_command_as_it_is_resumes(tmp_path: Path) -> None:
    """A Python of its own, cut after so many steps; without {out} each run has its copy of the directory."""
    (tmp_path / "train.py").write_bytes(TRAINING.read_bytes())
    found = certified("--steps", 14, "--", sys.executable, "train.py", "plain", "--steps", 1000, cwd=tmp_path)
    assert found["findings"] == [] and found["steps"] == 14 and found["saves"] == [4, 8, 12]
    term, kill = found["cuts"]
    # the loop saves once more on SIGTERM, one step later; SIGKILL leaves the last one of every fourth step
    assert (term["signal"], term["resumed_at"]) == ("SIGTERM", term["killed_at"] + 1)
    assert (kill["signal"], kill["resumed_at"]) == ("SIGKILL", kill["killed_at"] // 4 * 4)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]


def test_what_was_forgotten_is_named_with_its_place(certify: Certify) -> None:
    found = certify("plain", "sampler,rng,optimizer,ema")
    assert codes(found) == {"sampler", "rng", "optimizer", "ema", "lr"}  # the optimizer holds the next step's rate
    said = {finding["code"]: f"{finding['message']} {finding['evidence']}" for finding in found["findings"]}
    assert "optimizer state is fresh" in said["optimizer"] and "no entry for optimizer" in said["optimizer"]
    assert "data seen twice" in said["sampler"] and "saved (loader), so not restored" in said["sampler"]
    assert "RNG not restored: the torch generator" in said["rng"] and "no entry for rng" in said["rng"]
    assert "EMA dropped" in said["ema"] and "no entry for ema" in said["ema"]


def test_a_run_that_never_repeats_is_not_accused(certify: Certify) -> None:
    """Unseeded: two whole runs differ, so only what the killed run itself had is held against the resumed one."""
    found = certify("plain", more=("--unseeded",))
    assert found["ok"] and [finding["code"] for finding in found["findings"]] == ["nondeterminism"]
    assert codes(certify("plain", "optimizer,ema", more=("--unseeded",))) == {"optimizer", "ema", "lr"}


def test_a_command_that_starts_over_is_told_so(certify: Certify) -> None:
    found = certify("nanogpt", "weights")
    assert codes(found) == {"weights"} and "give --resume" in found["findings"][0]["message"]


@pytest.mark.parametrize(
    "code, exit_code, said",
    [("pass", 2, "0 steps of a torch optimizer seen"), ("raise OSError('no data')", 1, "OSError: no data")],
)
def test_a_command_that_cannot_be_judged(tmp_path: Path, code: str, exit_code: int, said: str) -> None:
    done = call("checkpoints", "certify", "--", sys.executable, "-c", code, "{out}", cwd=tmp_path)
    assert done.returncode == exit_code and said in done.stderr and len(done.stderr.splitlines()) == 2


@pytest.mark.soak
@pytest.mark.parametrize("trainer", IMPORTS)
def test_every_trainer_resumes_and_every_bug_is_named(certify: Certify, trainer: str) -> None:
    assert certify(trainer)["ok"]
    for seed, bug in enumerate(BUGS):
        found = certify(trainer, bug, seed)
        assert bug in codes(found) and codes(found) <= {bug} | FOLLOWS.get(bug, set()), (bug, found["findings"])
