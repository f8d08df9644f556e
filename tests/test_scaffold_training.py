"""scaffold_training through its front door: the plan, what `new` writes, what is refused, half saves, nanoGPT."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import io
import json
import math
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from rgt import schema
from rgt.errors import RgtError
from rgt.run.phases import Schedule
from rgt.run.record import Run
from rgt.scaffold_training import pipeline as pipelines
from rgt.scaffold_training import tokens
from rgt.scaffold_training.tokens import Stream, Validation
from rgt.scaffold_training.training_session import Session

import numpy as np
import pytest
import yaml
from pytest import MonkeyPatch
from tokenizers import Tokenizer, models, pre_tokenizers

from . import front_door, zoo
from .gate_box import until
from .pipeline_box import (
    DEADLINE,
    ENVIRONMENT,
    NANO_PHASES,
    PHASES,
    IndexWatch,
    curves,
    edit,
    events,
    names,
    nano,
    progress,
    scaffold,
    small,
    train,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untouched pipeline for the Trainer."""
    return small(tmp_path_factory.mktemp("made") / "pipeline", "hf-trainer")


@pytest.fixture
def pipeline(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "pipeline"))


def prepare(folder: Path) -> tuple[int, str]:
    """What train.sh runs before the trainer, in this process: its exit code and stderr."""
    said, code = io.StringIO(), 0
    with contextlib.redirect_stderr(said):
        try:
            Session(folder, Run(folder)).choose_checkpoint()
        except RgtError as error:
            error.show()
            code = error.exit_code
    return code, said.getvalue()


# -- the plan


def test_a_dry_run_shows_every_formula_and_writes_nothing(tmp_path: Path) -> None:
    words = ("new", tmp_path / "a", "--framework", "litgpt", "--dry-run")
    done = scaffold(*words, "--gpu", "A100", "--price", "1.8")
    assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (0, "", [])
    assert "framework: litgpt" in done.stdout and done.stdout.endswith("nothing was written\n")
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[:8])
    assert lines["model"] == "N = 12 L d^2 + V d = 124M: L 12, d 768, 12 heads, V 50304"
    assert lines["batch"] == "64 x 8 accumulated x 1 GPU(s) x 1024 tokens = 524,288 tokens a step"
    assert lines["steps"] == "4,731 x 524,288 = D = 2.48B tokens (20.1 a parameter)"
    assert lines["FLOPs"] == "(6 N + 12 L d T) x D = 2.12e+18"
    assert lines["time"].startswith("FLOPs / (1 x 3.12e+14 FLOP/s x 35% MFU) = 5h23m; the MFU is an assumption")
    assert lines["cost"] == "5.39 h x 1 x 1.8 an hour = 9.71"
    assert "adam 8 B x N = 943 MiB" in lines["memory"]


@pytest.mark.parametrize("params", [60e3, 1e6, 25e6, 124e6, 350e6, 1.3e9, 7e9])
def test_a_shape_has_the_parameters_it_was_asked_for(params: float) -> None:
    found = pipelines.shape(params, 257 if params < 1e6 else 50_304 if params > 1e8 else 8192)
    assert 0.85 < found.params / params < 1.18
    assert found.width % found.heads == 0 and 1 <= found.layers <= found.width


REFUSED = [
    (["--params", "7B", "--gpu", "4090"], "do not fit on 4090 with 24 GiB: one sequence of 1024 needs"),
    (["--params", "10K"], "no shape has about 10K parameters with a vocabulary of 50304"),
    (["--params", "124M", "--gpu", "Voodoo2"], "no card called 'Voodoo2' is known; known are B200,"),
    (["--params", "lots"], "'lots' is not a count; write it like 124M, 1.5B or 3e9"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
def test_what_cannot_be_is_refused(words: list[str], message: str, tmp_path: Path) -> None:
    done = scaffold("new", tmp_path / "a", "--framework", "litgpt", *words)
    assert done.returncode == 2 and message in done.stderr and "Traceback" not in done.stderr
    assert (done.stdout, list(tmp_path.iterdir())) == ("", [])


# -- the phases


def test_the_learning_rate_is_one_line_without_jumps() -> None:
    plan = pipelines.propose(pipelines.card("A100", None), "bf16", params=124e6)
    schedule = Schedule.of(pipelines.build_config("litgpt", "x", plan, 1, "cuda"))
    rates = [schedule.lr(step) for step in range(schedule.total)]
    assert [phase.name for phase in schedule.phases] == ["broad", "curated", "domain", "anneal"]
    assert schedule.total == pytest.approx(plan.steps, abs=4)
    warm = round(0.02 * schedule.phases[0].steps)
    assert rates[0] == pytest.approx(schedule.peak / (warm + 1)) and max(rates) == rates[warm] == schedule.peak
    assert all(a >= b for a, b in zip(rates[warm:], rates[warm + 1 :], strict=False))
    assert rates[-1] < 0.01 * schedule.peak


def test_samples_depend_on_the_step_and_the_mix_alone(made: Path) -> None:
    config = pipelines.load_config(made / "training_config.yaml")
    stream, later = Stream(config, made / "data"), Stream(config, made / "data", start=40)
    assert len(stream) == 24 * 4 and len(later) == len(stream) - 40
    assert all((stream[40 + n] == later[n]).all() for n in range(len(later)))
    other = Stream({**config, "seed": 1}, made / "data")
    assert any((stream[n] != other[n]).any() for n in range(3))
    domain = {bytes(stream.sources["domain"]["train"].astype(np.uint8))}
    texts = [bytes(stream[n].astype(np.uint8)) for n in range(14 * 4, 20 * 4)]  # the phase with nothing but `domain`
    assert all(text in next(iter(domain)) for text in texts)
    broad = [bytes(stream[n].astype(np.uint8)) for n in range(32)]
    web = bytes(stream.sources["web"]["train"].astype(np.uint8))
    assert 20 <= sum(text in web for text in broad) < 32
    val = Validation(config, made / "data")
    assert [list(val[n]) for n in range(len(val))] == [list(val[n]) for n in range(len(val))]


# -- what `new` writes


@pytest.mark.parametrize("framework", pipelines.ENTRY)
def test_new_writes_a_whole_pipeline(framework: str, tmp_path: Path) -> None:
    folder = tmp_path / "base"
    done = scaffold("new", folder, "--framework", framework, "--params", "124M", "--gpu", "T4", "--gpus", 4)
    assert done.returncode == 0, done.stderr
    written = "train.sh training_config.yaml pretrain.py job.yaml checkpoints_index.json lib"
    assert {path.name for path in folder.iterdir()} == set(written.split())
    assert os.access(folder / "train.sh", os.X_OK)
    config = pipelines.load_config(folder / "training_config.yaml")
    assert (config["precision"], config["device"], config["optimizer"]["grad_clip"]) == ("fp16", "cuda", 1.0)
    assert config["phases"][0]["lr"]["warmup_steps"] > 10
    assert json.loads((folder / "checkpoints_index.json").read_text()) == {"checkpoints": []}
    job = yaml.safe_load((folder / "job.yaml").read_text())
    assert (schema.problems(job, "job"), job["gpus_per_node"]) == ([], 4)
    assert f"\nranks={1 if framework == 'nanogpt' else 4}\n" in (folder / "train.sh").read_text()
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", folder / "train.sh"], check=True)


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/mine.txt").write_text("mine")
    done = scaffold("new", tmp_path / "a", "--framework", "litgpt")
    assert done.returncode == 2 and "exists already and is not empty; a new pipeline needs a new folder" in done.stderr
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["mine.txt"]


# -- the data


def token_ids(path: Path) -> list[int]:
    ids: list[int] = np.fromfile(path, "uint16").tolist()
    return ids


def test_bytes_become_tokens_and_each_file_ends_with_its_mark(pipeline: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(bytes(range(100)))
    (tmp_path / "b.txt").write_text("ab训")  # the cut is moved behind the character it falls into
    done = scaffold("data", pipeline, "web", tmp_path / "a.txt", tmp_path / "b.txt", "--val-share", 0.3)
    folder = pipeline / "data/web"
    said = "75 tokens to train on, 30 to validate with, vocabulary 257"
    assert (done.stdout, done.stderr) == (f"{folder}: {said}\n", "")
    assert token_ids(folder / "train.bin") == [*range(70), 256, *"ab训".encode(), 256]
    assert token_ids(folder / "val.bin") == [*range(70, 100), 256]


def test_a_tokenizer_reads_every_word_once(pipeline: Path, tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    tokenizer = Tokenizer(models.WordLevel({"训练": 0, "b": 1, "[UNK]": 2, "</s>": 3}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(5)  # as a fine-tuning leaves it
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "a.txt").write_text("训练 b c\n" * 50 + "训练 b " * 50)
    done = scaffold("data", pipeline, "words", tmp_path / "a.txt", "--tokenizer", tmp_path / "tokenizer.json")
    said = "248 tokens to train on, 2 to validate with, vocabulary 4; no phase reads it yet"
    assert done.stdout == f"{pipeline}/data/words: {said}\n"
    assert token_ids(pipeline / "data/words/train.bin") == [0, 1, 2] * 50 + [0, 1] * 49 + [3]
    monkeypatch.setattr(tokens, "_PIECE", 10)
    known = tokens.load_tokenizer(tmp_path / "tokenizer.json")
    tokens.write(tmp_path / "small", [tmp_path / "a.txt"], known, "uint16", 0.01)
    for name in ("train.bin", "val.bin"):
        assert (tmp_path / "small" / name).read_bytes() == (pipeline / "data/words" / name).read_bytes()


def test_data_refuses_and_leaves_what_was_there(pipeline: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello")
    Tokenizer(models.WordLevel({str(n): n for n in range(300)}, unk_token="0")).save(str(tmp_path / "large.json"))
    cases: list[tuple[list[object], str]] = [
        (["web", tmp_path / "gone.txt"], "gone.txt' does not exist"),
        (["../web", tmp_path / "a.txt"], "'../web' is not a name for a source"),
        (["web", tmp_path / "a.txt"], "too little text for web: 5 tokens to train on, 0 to validate with"),
        (["web", tmp_path / "a.txt", "--tokenizer", tmp_path / "a.txt"], "is not a tokenizer.json"),
        (["web", tmp_path / "a.txt", "--tokenizer", tmp_path / "large.json"], "has 300 tokens, the model 257"),
    ]
    before = (pipeline / "data/web/train.bin").read_bytes()
    for words, message in cases:
        done = scaffold("data", pipeline, *words)
        assert done.returncode == 2 and message in done.stderr, done.stderr
    assert (pipeline / "data/web/train.bin").read_bytes() == before
    assert len(list((pipeline / "data/web").iterdir())) == 2
    assert "training_config.yaml does not exist" in scaffold("data", tmp_path, "web", tmp_path / "a.txt").stderr


# -- train.sh before the trainer


BAD_CONFIGS = [
    ({"optimizer": None}, "training_config.yaml does not fit the training_config schema: 'optimizer' is "),
    ({"phases": [PHASES[0], PHASES[0]]}, "has two phases of one name"),
    ({"typo": 1}, "Additional properties are not allowed ('typo' was unexpected)"),
]


@pytest.mark.parametrize(("changes", "message"), BAD_CONFIGS)
def test_a_config_with_missing_keys_is_one_sentence(pipeline: Path, changes: dict[str, Any], message: str) -> None:
    config = {**yaml.safe_load((pipeline / "training_config.yaml").read_text()), **changes}
    kept = {key: value for key, value in config.items() if value is not None}
    (pipeline / "training_config.yaml").write_text(yaml.safe_dump(kept))
    code, said = prepare(pipeline)
    assert code == 2 and message in said and said.count("\n") == 1
    if "typo" in changes:
        done = train(pipeline)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_train_twice_at_once_is_refused(pipeline: Path) -> None:
    with (pipeline / ".train.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = train(pipeline)
    assert (done.returncode, done.stdout) == (2, "")
    who = "another process (pid unknown)"  # it holds the lock by another descriptor than ours
    assert done.stderr == f"error: {pipeline} is being trained by {who}; wait for it, or stop it first\n"


def test_an_interpreter_without_the_packages_is_said(pipeline: Path, tmp_path: Path) -> None:
    bare = front_door.executable(tmp_path / "bare", f'exec {sys.executable} -S -I "$@"')
    done = train(pipeline, PYTHON=str(bare))
    assert done.returncode == 3
    assert done.stderr == f"error: {bare} lacks one of click, numpy, pyyaml; pip install them, or set PYTHON\n"


# -- checkpoints that a kill cut in half


def save(folder: Path, step: int) -> Path:
    return zoo.hf_trainer(folder / "checkpoints", step)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def spoil_weights(path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    save_file({**load_file(path), "norm.bias": torch.full((32,), math.nan)}, path)


HALF_SAVES = [
    (lambda p: (p / "trainer_state.json").unlink(), "trainer_state.json is not there: the save was cut off"),
    (lambda p: cut(p / "model.safetensors"), "model.safetensors: "),
    (lambda p: cut(p / "optimizer.pt"), "optimizer.pt: "),
    (lambda p: spoil_weights(p / "model.safetensors"), "model.safetensors: 32 of 32 values are NaN"),
    (lambda p: (p / "trainer_state.json").write_text('{"global_step": 3}'), "is of step 3, its folder of step 6"),
]


@pytest.mark.parametrize(("spoil", "message"), HALF_SAVES)
def test_a_half_save_is_set_aside_and_said(pipeline: Path, spoil: Any, message: str) -> None:
    save(pipeline, 3)
    spoil(save(pipeline, 6))
    code, said = prepare(pipeline)
    assert code == 0 and "warning: checkpoint-6 is damaged: " in said and message in said
    assert "set aside as checkpoint-6.damaged, trying the one before it" in said
    assert json.loads((pipeline / ".resume.json").read_text()) == {"path": "checkpoints/checkpoint-3", "step": 3}
    assert names(pipeline) == {"checkpoint-3", "checkpoint-6.damaged"}
    index = json.loads((pipeline / "checkpoints_index.json").read_text())["checkpoints"]
    assert [(entry["path"], entry["verified"]) for entry in index] == [("checkpoints/checkpoint-3", True)]
    assert [(row["event"], row["step"]) for row in events(pipeline)] == [("set_aside", 6)]


# -- watch


def test_watch_shows_the_phases(pipeline: Path) -> None:
    run, config = Run(pipeline), pipelines.load_config(pipeline / "training_config.yaml")
    run.log_metrics(step=8, split="val", loss=9.5)
    run.log_event("launched", step=0, phase="broad", phases=Schedule.of(config).plan())
    facts = {"metric": "loss", "split": "val", "bound": "at_most", "value": 9.5, "threshold": 5.4}
    run.log_event("phase", step=8, phase="broad", verdict="missed", **facts)
    run.log_event("checkpoint", step=9)
    front_door.call("watch.py", pipeline)
    text = (pipeline / "training_status.md").read_text()
    assert "- broad, steps 0 to 8: missed: val loss 9.5, wanted at most 5.4\n" in text
    assert "- curated, steps 8 to 14: under way: 1 of 6 steps saved\n- domain, steps 14 to 20: not reached\n" in text


# -- nanoGPT


@pytest.fixture(scope="module")
def made_nano(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return nano(tmp_path_factory.mktemp("nano") / "pipeline")


def kill_tree(pid: int) -> None:
    """The machine goes away: train.sh, the driver and train.py at once."""
    pids = [pid]
    for each in pids:
        children = Path(f"/proc/{each}/task/{each}/children")
        pids += [int(child) for child in children.read_text().split()] if children.exists() else []
    for each in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def unlocked(folder: Path) -> bool:
    with (folder / ".train.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def start(folder: Path) -> subprocess.Popen[bytes]:
    null = subprocess.DEVNULL
    return subprocess.Popen([folder / "train.sh"], env=ENVIRONMENT, stdout=null, stderr=null)


def nano_chaos(folder: Path, kills: int, dice: random.Random) -> None:
    watch = IndexWatch(folder)
    for number in range(kills):
        one, saving = start(folder), number % 2 == 0
        old, rows = names(folder), progress(folder) + dice.randint(0, 4)

        def due(one: Any = one, saving: bool = saving, old: set[str] = old, rows: int = rows) -> bool:
            grown = names(folder) != old if saving else progress(folder) > rows
            return grown or one.poll() is not None

        until(due, DEADLINE)
        kill_tree(one.pid)
        one.wait()
        until(functools.partial(unlocked, folder), DEADLINE)  # a train.py that was just being started ends at its print
        if saving:  # the worst moment: train.py was inside its own save
            ckpt = folder / "nanogpt_out/ckpt.pt"
            if ckpt.exists():
                cut(ckpt)
        watch.look()
    done = train(folder)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    watch.look()


def check_nano(folder: Path, steps: int) -> None:
    found = curves(folder)
    assert sorted(found["train"]) == list(range(1, steps + 1))
    assert found["val"][steps] < found["val"][3] + 0.1
    assert names(folder) >= {f"step-{steps:08d}.pt"}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    schedule = Schedule.of(pipelines.load_config(folder / "training_config.yaml"))
    assert all(row["lr"] == pytest.approx(schedule.lr(row["step"] - 1)) for row in rows if row["split"] == "train")


@pytest.mark.parametrize(("steps", "kills"), [((7, 4), 2), pytest.param((60, 60), 20, marks=pytest.mark.soak)])
def test_nanogpt_phases_are_as_written_and_kills_end_bit_equal(
    tmp_path: Path, steps: tuple[int, int], kills: int
) -> None:
    """train.py restores neither its generator nor its place in the data; the config that we write for it does."""
    phases = [{**phase, "steps": count} for phase, count in zip(NANO_PHASES, steps, strict=True)]
    whole, killed = nano(tmp_path / "whole", phases, every=3), nano(tmp_path / "killed", phases, every=3)
    assert train(whole).returncode == 0
    assert {f"step-{end:08d}.pt" for end in (steps[0], sum(steps))} <= names(whole)
    rows = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    timed = {row["step"] for row in rows if "tokens_per_s" in row}
    assert timed and not timed & {1, 4}  # the iterations whose time holds a validation
    listed = json.loads((whole / "checkpoints_index.json").read_text())["checkpoints"]
    assert all(entry["verified"] and "val_loss" in entry["metrics"] for entry in listed)
    nano_chaos(killed, kills, random.Random(kills))
    check_nano(killed, sum(steps))
    verdicts = {row["phase"]: row["verdict"] for row in events(killed) if row["event"] == "phase"}
    assert list(verdicts) == ["broad", "curated"] and verdicts["curated"] == "missed"
    assert curves(whole) == curves(killed)
    last = f"checkpoints/step-{sum(steps):08d}.pt"
    assert (whole / last).read_bytes() == (killed / last).read_bytes()


def test_nanogpt_stops_at_a_signal_and_needs_its_checkout(made_nano: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made_nano, tmp_path / "nano"))
    one = start(folder)
    until(lambda: names(folder), DEADLINE)
    one.terminate()
    assert one.wait(timeout=DEADLINE) == 143
    assert [row["signal"] for row in events(folder) if row["event"] == "preempted"] == ["SIGTERM"]
    shutil.rmtree(folder / "nanoGPT")
    done = train(folder)
    assert done.returncode == 3 and f"error: {folder}/nanoGPT/train.py does not exist; clone" in done.stdout


def test_nanogpt_ends_with_its_wrapper_and_a_second_start_names_the_first(made_nano: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(made_nano, tmp_path / "nano"))
    one = start(folder)
    until(lambda: names(folder), DEADLINE)
    done = train(folder)
    assert done.returncode == 2 and re.search(rf"another process \(pid [\d ]*\b{one.pid}\b", done.stdout + done.stderr)
    one.kill()  # the wrapper alone
    one.wait()
    until(functools.partial(unlocked, folder), DEADLINE)


def test_the_best_and_the_periodic_ones_stay(pipeline: Path) -> None:
    """By validation loss, beside the newest, whatever the order in which they were saved."""
    edit(pipeline, checkpoints={"every_steps": 1, "keep": 2, "keep_every": 3})
    session = Session(pipeline, Run(pipeline))
    losses = {1: 3.0, 2: 1.0, 3: 2.0, 4: 2.5, 5: 2.4, 6: 2.3}
    for step, loss in losses.items():
        session.run.log_metrics(step=step, split="val", loss=loss)
        save(pipeline, step)
        session.saved(step)
        listed = json.loads(session.run.checkpoints_index.read_text())["checkpoints"]
        assert sorted(entry["path"] for entry in listed) == sorted(f"checkpoints/{n}" for n in names(session.run.path))
    assert {entry["step"] for entry in listed} == {2, 3, 5, 6} and all(entry["verified"] for entry in listed)


NANO_SETTINGS = [
    ({"eval": {"every_steps": 2, "samples": 6}}, "checkpoints.every_steps must be eval.every_steps"),
    ({"phases": [{**PHASES[3], "steps": 8}]}, "phase anneal: nanoGPT has no linear decay"),
]


@pytest.mark.parametrize(("changes", "message"), NANO_SETTINGS)
def test_nanogpt_settings_that_lose_a_phase_end(
    made_nano: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    folder = Path(shutil.copytree(made_nano, tmp_path / "nano"))
    edit(folder, **changes)
    code, said = prepare(folder)
    assert code == 2 and message in said


def test_token_files_that_cannot_be_trained_on_are_refused(pipeline: Path) -> None:
    config, path = pipelines.load_config(pipeline / "training_config.yaml"), pipeline / "data/web/train.bin"
    cases = {"has token 257, the model a vocabulary of 257": np.full(100, 257), "has 5 tokens; one sample": np.ones(5)}
    for sentence, ids in cases.items():
        ids.astype("uint16").tofile(path)
        with pytest.raises(RgtError, match=sentence):
            Stream(config, pipeline / "data")
    path.unlink()
    with pytest.raises(RgtError, match=r"web/train.bin does not exist; token ids are expected, uint16"):
        Stream(config, pipeline / "data")


def test_nothing_good_means_from_the_start_and_says_so(pipeline: Path) -> None:
    cut(save(pipeline, 3) / "optimizer.pt")
    cut(save(pipeline, 6) / "optimizer.pt")
    code, said = prepare(pipeline)
    assert code == 0 and said.count("is damaged") == 2
    assert json.loads((pipeline / ".resume.json").read_text()) == {"path": None, "step": 0}


def test_retention_keeps_the_newest_and_the_phase_ends_and_only_whole_ones_count(pipeline: Path) -> None:
    edit(pipeline, checkpoints={"every_steps": 3, "keep": 2})
    session = Session(pipeline, Run(pipeline))
    for step in (3, 6, 8, 9, 12):
        save(pipeline, step)
    (pipeline / "checkpoints/best-step-1.pt").write_bytes(b"not ours to delete")
    cut(save(pipeline, 15) / "optimizer.pt")
    session.saved(12)
    assert names(pipeline) == {"best-step-1.pt", *(f"checkpoint-{step}" for step in (8, 9, 12, 15))}
    index = json.loads((pipeline / "checkpoints_index.json").read_text())["checkpoints"]
    assert {Path(entry["path"]).name for entry in index} == names(pipeline)


def test_a_broken_index_is_made_anew(pipeline: Path) -> None:
    save(pipeline, 3)
    (pipeline / "checkpoints_index.json").write_text("{")
    code, said = prepare(pipeline)
    assert code == 0 and "is torn or not an index; it is made anew" in said
    assert len(json.loads((pipeline / "checkpoints_index.json").read_text())["checkpoints"]) == 1


def test_a_sealed_run_is_not_trained(pipeline: Path) -> None:
    (pipeline / "seal.json").write_text("{}")
    code, said = prepare(pipeline)
    assert code == 2 and "is sealed; a sealed run never changes" in said
