"""probes: every planted bug is named, no healthy training is accused, and nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from click.testing import CliRunner

import probes
from probing import collapse, contract, runner, state
from probing import ranks as ranks_
from probing.contract import Training
from probing.results import Result
from probing.samples import digest
from rgt import procs

from . import broken_trainings as zoo
from .real.support import wait_for

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = str(ROOT / "scripts" / "probes.py")
TESTS = str(ROOT / "tests")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own, about the bugs that are planted
        yield
    torch.set_num_threads(threads)


def found(make: zoo.Make, names: tuple[str, ...]) -> list[Any]:
    state.seed_all(0)
    return list(probes.examine(make(), names, make=make, steps=16, seconds=30))


# --- the zoo ---------------------------------------------------------------------------------------------------


def test_the_zoo_is_large_enough() -> None:
    assert len(zoo.BROKEN) >= 40 and len(zoo.HEALTHY) >= 15
    assert {planted.probe for planted in zoo.BROKEN.values()} == set(probes.NAMES)


@pytest.mark.parametrize("name", zoo.BROKEN)
def test_the_planted_bug_is_named(name: str) -> None:
    planted = zoo.BROKEN[name]
    (result,) = found(planted.make, (planted.probe,))
    named = [f for f in result.findings if f.code == planted.code and planted.words in f.message]
    assert named, result.as_dict()
    assert result.verdict == "found"


@pytest.mark.parametrize("name", zoo.HEALTHY)
def test_a_healthy_training_is_not_accused_and_not_changed(name: str) -> None:
    state.seed_all(0)
    make = zoo.HEALTHY[name]
    training = make()
    warm_up(training)
    before = fingerprint(training)
    results = list(probes.examine(training, make=make, steps=16, seconds=30))
    assert [r.as_dict() for r in results if r.verdict == "found"] == []
    assert [r.unjudged for r in results if "Error" in r.unjudged] == []
    assert fingerprint(training) == before


STEPPING = ("loss", "nan", "parameters", "mode", "memory", "overfit")


@pytest.mark.parametrize(
    "name",
    [
        "zero_grad_forgotten",
        "labels_from_one",
        "root_at_zero",
        "evaluation_moves_batchnorm",
        "frozen_batchnorm_moves",
        "never_back_to_train_mode",
        "rate_far_too_high",
    ],
)
def test_a_broken_training_is_not_changed_either(name: str) -> None:
    state.seed_all(0)
    training = zoo.BROKEN[name].make()
    before = fingerprint(training)
    list(probes.examine(training, STEPPING, steps=8, seconds=30))
    assert fingerprint(training) == before


def warm_up(training: Training) -> None:
    """In the middle of a run: with optimizer state, gradients, and a foreign hook that must stay."""
    from probing.session import Session

    session = Session(training)
    for batch in session.batches(2):
        session.train_step(batch)
    for parameter in training.model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.full_like(parameter, 0.5)
    training.model.register_forward_hook(lambda *_: None)


def fingerprint(training: Training) -> dict[str, Any]:
    model, optimizer = training.model, training.optimizer
    rng = state.rng_state()
    return {
        "weights": {name: digest(t) for name, t in model.state_dict().items()},
        "buffers": {name: digest(t) for name, t in model.named_buffers()},
        "grads": {name: None if p.grad is None else digest(p.grad) for name, p in model.named_parameters()},
        "trainable": {name: p.requires_grad for name, p in model.named_parameters()},
        "modes": {name: m.training for name, m in model.named_modules()},
        "hooks": {n: (len(m._forward_hooks), len(m._forward_pre_hooks)) for n, m in model.named_modules()},
        "tensor hooks": {name: len(p._backward_hooks or {}) for name, p in model.named_parameters()},
        "optimizer": digest(optimizer.state_dict()),
        "optimizer hooks": (len(optimizer._optimizer_step_pre_hooks), len(optimizer._optimizer_step_post_hooks)),
        "scheduler": repr(training.scheduler.state_dict()) if training.scheduler is not None else None,
        "rng": (digest(rng["torch"]), repr(rng["python"]), digest(list(rng["numpy"][1:]))),
        "backward": torch.autograd.backward.__module__,
    }


def test_the_fingerprint_sees_a_change() -> None:
    training = zoo.HEALTHY["plain"]()
    before = fingerprint(training)
    training.model[0].register_forward_hook(lambda *_: None)
    with torch.no_grad():
        training.model[0].weight[0, 0] += 1
    torch.rand(1)
    after = fingerprint(training)
    assert [key for key in before if before[key] != after[key]] == ["weights", "hooks", "rng"]


# --- the watcher -------------------------------------------------------------------------------------------------


def test_the_watcher_samples_and_leaves_no_hook() -> None:
    training = zoo.HEALTHY["plain"]()
    hooks = fingerprint(training)["optimizer hooks"]
    seen = []
    with probes.Watcher(training.model, training.optimizer, every=3) as watcher:
        for step in range(7):
            batch = next(iter(training.data))
            loss = zoo.update(training, zoo.usual_loss(training, batch))
            seen += [(step, f.code) for f in watcher.step(loss)]
    assert seen == []
    assert [sample["step"] for sample in watcher.samples] == [0, 3, 6]
    assert all(0 < ratio < 1 for ratio in watcher.samples[-1]["update_ratio"].values())
    assert fingerprint(training)["optimizer hooks"] == hooks


@pytest.mark.parametrize(
    ("name", "code"),
    [("root_at_zero", "nan"), ("group_with_rate_zero", "not-updating"), ("module_never_called", "not-updating")],
)
def test_the_watcher_names_what_is_wrong(name: str, code: str) -> None:
    state.seed_all(0)
    training = zoo.BROKEN[name].make()
    with probes.Watcher(training.model, training.optimizer, every=1) as watcher:
        for batch in list(training.data)[:2]:
            found = watcher.step(zoo.update(training, zoo.usual_loss(training, batch)))
    assert code in [finding.code for finding in found]


def test_the_watcher_refuses_a_rhythm_of_zero() -> None:
    with pytest.raises(ValueError, match="every=0"):
        probes.Watcher(torch.nn.Linear(1, 1), None, every=0)


# --- the command ---------------------------------------------------------------------------------------------------


def command(*words: str, cwd: Path | None = None, timeout: float = 200) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, *words], capture_output=True, text=True, cwd=cwd, timeout=timeout)


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

def hangs_in_loss():
    model, data, loss, optimizer = good()
    def stuck(output, target):
        pathlib.Path(__file__).with_name("stuck").touch(), time.sleep(1000)
    threading.Thread(target=lambda: queue.Queue().get(), daemon=True).start()
    return {"model": model, "data": data, "loss": stuck, "optimizer": optimizer}

def segfaults():
    model, data, loss, optimizer = good()
    def fall(output, target):
        ctypes.string_at(0)
    return {"model": model, "data": data, "loss": fall, "optimizer": optimizer}

def raises():
    raise FileNotFoundError("data/train.bin")

def odd():
    return {"model": nn.Linear(1, 1), "lr": 3}

def short():
    return {"model": nn.Linear(1, 1)}

def number():
    return 7

def no_module():
    return 1, [], nn.MSELoss(), None

value = 3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("factories")
    (path / "mine.py").write_text(FACTORIES)
    return path


def test_all_runs_the_whole_order(folder: Path) -> None:
    done = command("all", "--factory", "mine:good", "--json", cwd=folder)
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["ok"], answer["findings"]) == (0, True, [])
    assert [row["probe"] for row in answer["probes"]] == list(probes.NAMES)
    assert {row["probe"]: row["verdict"] for row in answer["probes"]}["overfit"] == "fine"
    assert all(row["evidence"] for row in answer["probes"])


def test_a_finding_has_evidence_and_a_next_step() -> None:
    done = command("loss", "--factory", "broken_trainings:softmax_before_cross_entropy", "--path", TESTS)
    assert done.returncode == 1
    first, head, seen, fix, last = done.stdout.splitlines()
    assert first.startswith("FOUND loss")
    assert head == "error loss-input: loss: cross_entropy gets probabilities: softmax is applied twice"
    assert "made by SoftmaxBackward0" in seen
    assert fix == "      fix: give it the raw scores; softmax only where probabilities are shown"
    assert last == "1 of 1 probes found something; 0 had nothing to judge"


def test_a_hang_is_reported_with_its_place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is over as soon as it hangs, however long it took to get there; a thread that waits is not the place."""
    hour = lambda: time.monotonic() + 3600 * (folder / "stuck").exists()  # noqa: E731
    monkeypatch.setattr(runner, "time", SimpleNamespace(monotonic=hour, sleep=time.sleep))
    words = ("--factory", "mine:hangs_in_loss", "--path", str(folder), "--timeout", "1h", "--json")
    done = CliRunner().invoke(probes.main, ["nan", *words])
    (finding,) = json.loads(done.stdout)["findings"]
    assert (done.exit_code, finding["code"]) == (1, "hang")
    assert "mine.py:16 stuck" in finding["where"]


SLEEPY = """
import os, pathlib, time
pathlib.Path(f"pid.{os.getpid()}").touch()
time.sleep(1000)
"""


def sleepers(folder: Path) -> list[dict[str, int]]:
    return [procs.identify(int(path.suffix[1:])) for path in folder.glob("pid.*")]


@pytest.mark.parametrize(
    ("word", "count", "number"), [("data", 1, signal.SIGKILL), ("data", 1, signal.SIGINT), ("desync", 2, signal.SIGINT)]
)
def test_nothing_runs_on_when_we_are_ended(tmp_path: Path, word: str, count: int, number: int) -> None:
    (tmp_path / "sleepy.py").write_text(SLEEPY)
    tool = subprocess.Popen([sys.executable, SCRIPT, word, "--factory", "sleepy:gone"], cwd=tmp_path)
    try:
        wait_for("the children", lambda: len(sleepers(tmp_path)) == count)
        children = sleepers(tmp_path)
        tool.send_signal(number)
        assert tool.wait(60) == (130 if number == signal.SIGINT else -number)
        wait_for("their end", lambda: not any(map(procs.alive, children)))
    finally:
        tool.kill()
        tool.wait()


INTERRUPTED = """
import glob, subprocess, time
class Popen(subprocess.Popen):
    def __init__(self, *words, **more):
        super().__init__(*words, **more)
        while not glob.glob("pid.*"):
            time.sleep(0.05)
        raise KeyboardInterrupt
subprocess.Popen = Popen
import probes
probes.main(["data", "--factory", "sleepy:gone"])
"""


def test_ctrl_c_before_popen_has_returned_ends_the_child_too(tmp_path: Path) -> None:
    (tmp_path / "sleepy.py").write_text(SLEEPY)
    environ = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], cwd=tmp_path, env=environ)
    (child,) = sleepers(tmp_path)
    assert done.returncode == 130
    wait_for("its end", lambda: not procs.alive(child))


def test_a_segfault_is_reported_and_the_other_probes_still_run(folder: Path) -> None:
    done = command("all", "--factory", "mine:segfaults", "--json", cwd=folder)
    answer = json.loads(done.stdout)
    verdicts = {row["probe"]: row["verdict"] for row in answer["probes"]}
    assert (done.returncode, list(verdicts)) == (1, list(probes.NAMES))
    assert verdicts["data"] == "fine" and verdicts["loss"] == verdicts["nan"] == "found"
    assert {
        row["evidence"] for row in answer["probes"] if row["verdict"] == "unjudged" and row["probe"] == "overfit"
    } == {"the process ended 2 times before its time; mend that first"}
    crash = next(f for f in answer["findings"] if f["where"].startswith("loss"))
    assert crash["code"] == "crash" and "SIGSEGV" in crash["message"] and "mine.py:23 fall" in crash["where"]


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        ("mine", "--factory mine is not module:function, as in train:factory or examples.demo:factory"),
        ("gone:good", "cannot import gone: no module gone; run it from the folder of your code, or give --path"),
        ("/here/mine.py:good", "is not below a folder to import from; give --path /here --factory mine:good"),
        ("../mine.py:good", "is not below a folder to import from; give --path .. --factory mine:good"),
        ("mine:gone", "mine has no function gone; it has good, hangs_in_loss, segfaults, raises, odd, short, number"),
        ("mine:value", "mine has no function value"),
        ("mine:raises", "mine:raises raises FileNotFoundError: data/train.bin at"),
        ("mine:odd", "the dict from mine:odd does not know lr; its keys are the fields of probes.Training"),
        ("mine:short", "the dict from mine:short lacks data, loss, optimizer"),
        ("mine:number", "mine:number returned int; expected a probes.Training, a dict, or (model, data, loss"),
        ("mine:no_module", "the model from mine:no_module is a int, not a torch.nn.Module"),
    ],
)
def test_a_bad_factory_is_one_sentence(folder: Path, factory: str, sentence: str) -> None:
    from rgt.errors import RgtError

    sys.modules.pop("mine", None)
    sys.path.insert(0, str(folder))
    try:
        with pytest.raises((RgtError, FileNotFoundError)) as caught:
            contract.as_training(contract.find(factory)(), factory)
    finally:
        sys.path.remove(str(folder))
    if factory == "mine:raises":  # what the child makes of it is below
        return
    assert sentence in str(getattr(caught.value, "message", ""))


@pytest.mark.parametrize(
    ("factory", "sentence"),
    [
        ("mine", "error: --factory mine is not module:function"),
        ("mine:raises", "error: mine:raises raises FileNotFoundError: data/train.bin at"),
    ],
)
def test_a_bad_factory_ends_with_code_2(folder: Path, factory: str, sentence: str) -> None:
    done = command("data", "--factory", factory, cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr and "Traceback" not in done.stderr


def test_names_are_listed() -> None:
    done = CliRunner().invoke(probes.main, ["names"])
    assert [line.split()[0] for line in done.output.splitlines()] == list(probes.NAMES)


@pytest.mark.soak
def test_the_demo_passes_every_probe_within_two_minutes() -> None:
    done = command("all", "--factory", "examples.cpu_lifecycle.factory:factory", "--json", cwd=ROOT)
    answer = json.loads(done.stdout)
    assert (done.returncode, [f["message"] for f in answer["findings"] if f["severity"] != "info"]) == (0, [])
    assert not [row for row in answer["probes"] if "no time left" in row["evidence"]]


# --- ranks -----------------------------------------------------------------------------------------------------------


def ranks(name: str) -> tuple[int, dict[str, Any]]:
    words = ("desync", "--factory", f"rank_trainings:{name}", "--path", TESTS, "--steps", "4", "--timeout", "60")
    done = command(*words, "--json")
    return done.returncode, json.loads(done.stdout)


def test_two_ranks_that_stay_together() -> None:
    code, answer = ranks("healthy")
    assert (code, answer["findings"]) == (0, [])
    assert [row["steps"] for row in answer["probes"][0]["ranks"]] == [4, 4]


PARTED = {
    "raises": ("desync", "rank 1 failed at step 1: KeyError: 'image_017'"),
    "forgets_a_parameter": ("desync", "ranks end with different weights"),
    "skips_a_collective": ("desync", "rank 1 never began collective 6: all_reduce float32[3x4] at"),
    "rank_zero_only": ("desync", "rank 0 runs barrier at"),
    "same_data": ("duplicate", "rank 1 reads the same batches as rank 0"),
    "dies": ("desync", "rank 1 failed at step 1: ended by SIGKILL"),
    "uneven": ("desync", "rank 1 ended after 2 steps, and rank 0 waits for it in step 3"),
}
SHORT = ("raises",)


@pytest.mark.parametrize("name", [n if n in SHORT else pytest.param(n, marks=pytest.mark.soak) for n in PARTED])
def test_the_rank_that_left_is_named(name: str) -> None:
    code, answer = ranks(name)
    (finding,) = answer["findings"]
    assert (code, finding["code"]) == (1, PARTED[name][0])
    assert PARTED[name][1] in finding["message"]


# --- collapse, on callables and on saved predictions -----------------------------------------------------------


def test_a_rank_that_just_leaves_is_named() -> None:
    rows: list[dict[str, Any]] = [{"ready": True}, {"step": 1}]
    others = [ranks_.Rank(0, -9, rows, [], "", True), ranks_.Rank(1, 3, rows, [], "", False)]
    result = Result("desync")
    ranks_.judge(result, others)
    assert [finding.message for finding in result.findings] == ["rank 1 failed at step 1: ended with exit code 3"]


def classes(count: int = 200) -> tuple[Any, Any]:
    rng = numpy.random.default_rng(0)
    target = rng.integers(0, 4, count)
    return numpy.eye(4)[target] * 3 + rng.normal(size=(count, 4)), target


def test_a_model_that_uses_its_input_passes_and_one_that_does_not_is_named() -> None:
    inputs, target = classes()
    assert collapse.shuffled_input(lambda x: x, inputs, target, collapse.accuracy).verdict == "fine"
    deaf = collapse.shuffled_input(lambda x: numpy.tile([1.0, 0, 0, 0], (len(x), 1)), inputs, target, collapse.accuracy)
    assert [f.message for f in deaf.findings] == ["real and shuffled input give identical predictions"]
    noise = numpy.random.default_rng(1)
    guess = collapse.shuffled_input(lambda x: noise.normal(size=(len(x), 4)), inputs, target, collapse.accuracy)
    assert [f.message for f in guess.findings] == ["the score does not need the right input"]


def test_label_shuffle_sees_a_leak() -> None:
    inputs, target = classes(400)
    nearest = lambda x, y: lambda q: y[((q[:, None] - x[None]) ** 2).sum(-1).argmin(1)]  # noqa: E731
    held_out = (inputs[200:], target[200:])
    honest = collapse.label_shuffle(nearest, collapse.accuracy, (inputs[:200], target[:200]), held_out)
    assert honest.verdict == "fine", honest.evidence
    leaky = collapse.label_shuffle(lambda x, y: lambda q: target[200:], collapse.accuracy, (inputs, target), held_out)
    assert [f.code for f in leaky.findings] == ["label-control"]


def test_ablation_names_the_input_without_influence() -> None:
    inputs, target = classes()
    result = collapse.ablate(lambda d: d["image"], {"image": inputs, "text": inputs}, target, collapse.accuracy)
    assert [(f.where, f.code) for f in result.findings] == [("ablation: text", "ignored-input")]
    assert result.data["image"] > 0.3


def save(path: Path, **arrays: Any) -> Path:
    if path.suffix == ".npz":
        numpy.savez(path, **arrays)
    elif path.suffix == ".jsonl":
        rows = zip(*(array.tolist() for array in arrays.values()), strict=True)
        path.write_text("\n".join(json.dumps(dict(zip(arrays, row, strict=True))) for row in rows))
    else:
        flat = {f"{n}_{i}" if a.ndim > 1 else n: (a[:, i] if a.ndim > 1 else a) for n, a in arrays.items()
                for i in range(a.shape[1] if a.ndim > 1 else 1)}  # fmt: skip
        lines = [",".join(flat), *(",".join(map(str, row)) for row in zip(*flat.values(), strict=True))]
        path.write_text("\n".join(lines))
    return path


def judged(path: Path) -> tuple[int, list[str]]:
    done = CliRunner().invoke(probes.main, ["predictions", str(path), "--json"])
    return done.exit_code, [finding["message"] for finding in json.loads(done.stdout)["findings"]]


@pytest.mark.parametrize("suffix", ["npz", "csv", "jsonl"])
def test_saved_predictions_good_and_bad(tmp_path: Path, suffix: str) -> None:
    logits, target = classes()
    shuffled = numpy.roll(logits, 1, 0)
    good = save(tmp_path / f"good.{suffix}", logits=logits, target=target, logits_shuffled=shuffled)
    assert judged(good) == (0, [])
    bad = save(tmp_path / f"bad.{suffix}", logits=logits, target=target, logits_shuffled=logits)
    assert judged(bad) == (1, ["real and shuffled input give identical predictions"])


def test_kinds_of_collapse(tmp_path: Path) -> None:
    rng = numpy.random.default_rng(0)
    target = rng.integers(0, 4, 100)
    one = numpy.eye(4)[numpy.zeros(100, int)] * 0.98 + 0.005
    line = rng.normal(size=(100, 1)) * numpy.ones((1, 8))
    cases = {
        "every prediction is the same": {"pred": numpy.full(100, 0.25), "target": target},
        "97% of the predictions are class 2": {"pred": numpy.where(numpy.arange(100) < 97, 2, 1), "target": target},
        "all predictions put their weight on the same class": {"prob": one + rng.normal(size=(100, 4)) * 1e-5},
        "vectors of 8 numbers vary along one direction only": {"embedding": line},
        "3 of 100 predictions hold NaN or Inf": {"pred": numpy.where(numpy.arange(100) < 3, numpy.nan, 0.5)},
        "every prediction is close to uniform: nothing was learnt": {"prob": numpy.full((100, 4), 0.25)
                                                                      + rng.normal(size=(100, 4)) * 1e-4},
        "a model trained on shuffled labels still scores above chance": {
            "pred": target, "target": target, "pred_label_shuffled": target},
        "has no influence on any prediction": {"pred": target, "target": target, "pred_without_text": target},
    }  # fmt: skip
    for message, arrays in cases.items():
        code, messages = judged(save(tmp_path / "case.npz", **arrays))
        assert (code, message in messages) == (1, True), (message, messages)


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("x.txt", b"", "is none of .npz, .csv, .jsonl"),
        ("x.npz", b"PK\x03\x04 torn", "cannot be read as npz"),
        ("x.csv", b"pred,target\n1,two\n", "column target is not a number in every row"),
        ("x.csv", b"", "holds no predictions"),
        ("x.csv", b"\xff\xfe\x00", "cannot be read as csv"),
        ("x.jsonl", b'{"pred": 1}\n{"pred": ', "line 2 is not JSON"),
        ("x.jsonl", b"[1]\n", "line 1 is not a JSON object"),
        ("x.jsonl", b'{"score": 1}\n', "expected one of logits, prob, pred, embedding"),
        ("x.jsonl", b'{"pred": 1' + b"0" * 400 + b"}\n", "column pred is not a number in every row"),
    ],
)
def test_unreadable_predictions_are_one_sentence(tmp_path: Path, name: str, content: bytes, sentence: str) -> None:
    (tmp_path / name).write_bytes(content)
    done = CliRunner().invoke(probes.main, ["predictions", str(tmp_path / name)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert sentence in done.stderr


def test_damaged_compressed_predictions_are_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    numpy.savez_compressed(path, pred=numpy.arange(5000) % 7)
    data = bytearray(path.read_bytes())
    data[60:90] = bytes(30)
    path.write_bytes(data)
    done = CliRunner().invoke(probes.main, ["predictions", str(path)])
    assert done.exit_code == 2 and f"{path} cannot be read as npz: " in done.stderr


def test_a_single_array_is_no_npz(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with path.open("wb") as file:
        numpy.save(file, numpy.arange(5))
    done = CliRunner().invoke(probes.main, ["predictions", str(path)])
    assert (done.exit_code, done.stderr) == (
        2,
        f"error: {path} holds one array without a name; use numpy.savez(pred=...)\n",
    )


def test_a_table_saved_by_a_spreadsheet(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("pred,target\n1,1\n2,2\n3,3\n", encoding="utf-8-sig")
    assert judged(path) == (0, [])


def test_flags_and_small_integers_are_numbers(tmp_path: Path) -> None:
    for dtype in (bool, numpy.uint8):
        pred = (numpy.arange(100) % 2).astype(dtype)
        path = save(tmp_path / "x.npz", pred=pred, target=pred, pred_without_text=pred[::-1])
        done = CliRunner().invoke(probes.main, ["predictions", str(path), "--json"])
        rows = {row["probe"]: row["evidence"] for row in json.loads(done.stdout)["probes"]}
        assert rows["ablation"] == "largest change 1"


def test_several_labels_per_sample(tmp_path: Path) -> None:
    target = numpy.random.default_rng(0).integers(0, 2, (200, 4))
    logits = 4.0 * target - 2
    path = save(tmp_path / "x.npz", logits=logits, target=target, logits_shuffled=numpy.roll(logits, 1, 0))
    assert judged(path) == (0, [])


def test_missing_and_uneven_predictions(tmp_path: Path) -> None:
    numpy.savez(tmp_path / "uneven.npz", pred=numpy.ones(3), target=numpy.ones(4))
    for name, sentence in (("gone.npz", "is not a file"), ("uneven.npz", "columns of different length")):
        done = CliRunner().invoke(probes.main, ["predictions", str(tmp_path / name)])
        assert done.exit_code == 2 and sentence in done.stderr
