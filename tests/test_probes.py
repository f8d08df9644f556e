"""probes: every planted bug is named, no healthy training is accused, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import probes
from rgt.errors import RgtError
from rgt.machine import processes
from rgt.probes import factory as contract
from rgt.probes import runner
from rgt.probes.factory import Training
from rgt.probes.probe_session import Session

import click.testing
import pytest
import torch

from . import broken_trainings as zoo
from .real.support import wait_for

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = str(ROOT / "scripts" / "probes.py")


def command(*words: str | Path) -> click.testing.Result:
    return click.testing.CliRunner().invoke(probes.main, [str(word) for word in words])


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about the bugs that are planted
        yield
    torch.set_num_threads(threads)


# --- the zoo ---------------------------------------------------------------------------------------------------


def test_the_zoo_is_large_enough() -> None:
    assert len(zoo.BROKEN) >= 40 and len(zoo.HEALTHY) >= 15
    assert {planted.probe for planted in zoo.BROKEN.values()} == set(probes.NAMES)


@pytest.mark.parametrize("name", zoo.BROKEN)
def test_the_planted_bug_is_named(name: str) -> None:
    planted = zoo.BROKEN[name]
    (result,) = probes.examine(planted.make, (planted.probe,), steps=16, seconds=30)
    named = [f for f in result.findings if f.code == planted.code and planted.words in f.message]
    assert named and result.verdict == "found", result.as_dict()


@pytest.mark.parametrize("name", zoo.HEALTHY)
def test_a_healthy_training_is_not_accused(name: str) -> None:
    results = list(probes.examine(zoo.HEALTHY[name], steps=16, seconds=30))
    assert [r.as_dict() for r in results if r.verdict == "found"] == []
    assert [r.unjudged for r in results if "Error" in r.unjudged] == []
    assert torch.autograd.backward.__module__ == "torch.autograd"


def test_no_probe_sees_what_another_one_did() -> None:
    """A new training for each, and batches that a step which writes into them cannot spoil."""

    def step(t: Training, batch: Any) -> Any:
        loss = zoo.update(t, zoo.usual_loss(t, batch))
        batch[0].zero_()
        return loss

    session = Session(lambda: zoo.training(step=step), steps=4)
    before = session.batches(1)[0][0].clone()
    for name in ("parameters", "loss", "gradients"):
        assert [result.verdict for result in runner.run(session, (name,))] == ["fine"]
        assert torch.equal(session.batches(1)[0][0], before)
    session.train_step(session.batches(1)[0])
    assert session.training.optimizer.state and not session.fresh().training.optimizer.state


# --- the command ---------------------------------------------------------------------------------------------------


FACTORIES = """
import ctypes, pathlib, queue, threading, time
import torch
from torch import nn

def good():
    x, y = torch.randn(32, 4), torch.randint(3, (32,))
    model = nn.Linear(4, 3)
    data = [(x[i:i + 8], y[i:i + 8]) for i in range(0, 32, 8)]
    print("noise on stdout")
    return model, data, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters(), lr=0.05)

def stuck(output, target):
    time.sleep(1000)

def hangs_in_loss():
    threading.Thread(target=lambda: queue.Queue().get(), daemon=True).start()
    return *good()[:2], stuck, good()[3]

def segfaults():
    return dict(zip(("model", "data", "loss", "optimizer"), (*good()[:2], fall, good()[3])))

def fall(output, target): ctypes.string_at(0)
def raises(): raise FileNotFoundError("data/train.bin")
def odd(): return {"model": nn.Linear(1, 1), "lr": 3}
def short(): return {"model": nn.Linear(1, 1)}
def number(): return 7
def no_module(): return 1, [], nn.MSELoss(), None
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("factories")
    (path / "mine.py").write_text(FACTORIES)
    return path


def test_a_finding_has_evidence_and_a_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    found = probes.examine(zoo.softmax_before_cross_entropy, ("loss",))
    code = probes._emit([result.as_dict() for result in found], None)
    first, head, seen, fix, last = capsys.readouterr().out.splitlines()
    assert (code, first[:10]) == (1, "FOUND loss")
    assert head == "error loss-input: loss: cross_entropy gets probabilities: softmax is applied twice"
    assert "made by SoftmaxBackward0" in seen
    assert fix == "      fix: give it the raw scores; softmax only where probabilities are shown"
    assert last == "1 of 1 probes found something; 0 had nothing to judge"


def test_a_hang_is_reported_with_its_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe's time runs from its own start, however long the imports took; a thread that waits is not the place."""
    monkeypatch.setattr(runner, "_ALONE", 1 / 3600)
    done = command("nan", "--factory", "mine:hangs_in_loss", "--path", folder, "--timeout", "1h", "--json")
    (finding,) = json.loads(done.stdout)["findings"]
    assert (done.exit_code, finding["code"]) == (1, "hang")
    assert "mine.py:14 stuck" in finding["where"]


SLEEPY = """
import os, pathlib, time
def pause():
    pathlib.Path(f"pid.{os.getpid()}").touch()
    time.sleep(1000)
def in_a_step():
    from mine import good
    return *good()[:2], lambda *_: pause(), good()[3]
if __name__ != "sleepy_factory":
    pause()
"""


def sleepers(folder: Path) -> list[dict[str, int]]:
    return [processes.identify(int(path.suffix[1:])) for path in folder.glob("pid.*")]


ENDED = {
    "data --factory sleepy:pause": signal.SIGINT,
    "loss --factory sleepy_factory:in_a_step": signal.SIGKILL,
}


@pytest.mark.parametrize("words", ENDED)
def test_nothing_runs_on_when_we_are_ended(tmp_path: Path, words: str) -> None:
    number = ENDED[words]
    for name, text in (("sleepy", SLEEPY), ("sleepy_factory", SLEEPY), ("mine", FACTORIES)):
        (tmp_path / f"{name}.py").write_text(text)
    tool = subprocess.Popen([sys.executable, SCRIPT, *words.split()], cwd=tmp_path)
    try:
        wait_for("the children", lambda: len(sleepers(tmp_path)) == 1)
        children = sleepers(tmp_path)
        tool.send_signal(number)
        assert tool.wait(60) == (130 if number == signal.SIGINT else -number)
        wait_for("their end", lambda: not any(map(processes.alive, children)))
    finally:
        tool.kill()
        tool.wait()


def test_a_segfault_is_reported_and_the_other_probes_still_run(folder: Path) -> None:
    done = command("all", "--factory", "mine:segfaults", "--path", folder, "--json")
    answer = json.loads(done.stdout)
    rows = {row["probe"]: (row["verdict"], row["evidence"]) for row in answer["probes"]}
    assert (done.exit_code, list(rows)) == (1, list(probes.NAMES))
    assert [rows[name][0] for name in ("data", "loss", "nan")] == ["fine", "found", "found"]
    assert rows["overfit"] == ("unjudged", "the process ended 2 times before its time; mend that first")
    crash = next(f for f in answer["findings"] if f["where"].startswith("loss"))
    assert crash["code"] == "crash" and "SIGSEGV" in crash["message"] and "mine.py:23 fall" in crash["where"]


BAD_FACTORIES = {
    "mine": "--factory mine is not module:function, as in train:factory or examples.demo:factory",
    "gone:good": "cannot import gone: no module gone; run it from the folder of your code, or give --path",
    "/here/mine.py:good": "is not below a folder to import from; give that with --path",
    "mine:gone": "mine has no function gone",
    "mine:odd": "what mine:odd returned is not the fields of probes.Training: got an unexpected keyword argument 'lr'",
    "mine:short": "probes.Training: missing 3 required positional arguments: 'data', 'loss', and 'optimizer'",
    "mine:number": "mine:number returned int; expected a probes.Training, a dict, or (model, data, loss",
    "mine:no_module": "the model from mine:no_module is a int, not a torch.nn.Module",
}


def test_a_bad_factory_is_one_sentence_and_code_2(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    monkeypatch.syspath_prepend(folder)
    for factory, sentence in BAD_FACTORIES.items():
        with pytest.raises(RgtError) as caught:
            contract.as_training(contract.find(factory)(), factory)
        assert sentence in caught.value.message
    done = command("data", "--factory", "mine:raises", "--path", folder)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "FileNotFoundError: data/train.bin at" in done.stderr and "Traceback" not in done.stderr


# --- the training's own Python ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with an environment of its own, which has torch and nothing that rgt needs."""
    path = tmp_path_factory.mktemp("project")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(path / "venv")], check=True)
    (packages,) = (path / "venv").glob("lib/python*/site-packages")
    for entry in Path(torch.__file__).parents[1].iterdir():
        if not entry.name.startswith(("click", "jsonschema", "yaml", "numpy")) and entry.suffix != ".pth":
            (packages / entry.name).symlink_to(entry)
    (path / "mine.py").write_text(f"from probes import Training\n{FACTORIES}\ndef made(): return Training(*good())\n")
    return path


def rgt(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "RGT_COMMAND": str(ROOT / "bin" / "rgt"), **env}
    return subprocess.run([sys.executable, SCRIPT, *words], cwd=cwd, env=environ, capture_output=True, text=True)


def test_all_runs_the_whole_order_in_the_projects_directory_and_python(project: Path) -> None:
    done = rgt("all", "--factory", "mine:made", "--json", cwd=project, VIRTUAL_ENV=str(project / "venv"))
    assert done.stdout, done.stderr
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["ok"], answer["findings"]) == (0, True, [])
    assert [row["probe"] for row in answer["probes"]] == list(probes.NAMES)
    assert {row["probe"]: row["verdict"] for row in answer["probes"]}["overfit"] == "fine"
    assert all(row["evidence"] and "Error" not in row["evidence"] for row in answer["probes"])


def test_no_torch_is_one_sentence_that_names_the_interpreter(tmp_path: Path, project: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    words = ("data", "--factory", "mine:good", "--python")
    done = rgt(*words, python, cwd=project)
    why = f"error: {python} cannot run the training: it has no torch; name its interpreter with --python\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, "", why)
    done = rgt(*words, "nopython", cwd=project)
    assert done.returncode == 3 and "nopython cannot run the training: there is no such program on PATH" in done.stderr


@pytest.mark.soak
def test_the_demo_passes_every_probe_within_two_minutes() -> None:
    done = command("all", "--factory", "examples.cpu_lifecycle.factory:factory", "--path", ROOT, "--json")
    answer = json.loads(done.stdout)
    assert (done.exit_code, [f["message"] for f in answer["findings"] if f["severity"] != "info"]) == (0, [])
    assert not [row for row in answer["probes"] if "no time left" in row["evidence"]]
