"""remote_train through its front door: what stops it, what it warns of, the estimate, the launch, the next commands."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from doccheck import commands
from rgt import bundle, schema

import numpy
import pytest
import yaml

from . import front_door
from .gate_box import ROOT, until
from .test_sweep import Bench, own_bench, two_boxes  # noqa: F401  # the fixtures bench and boxes

SHELL = ROOT / "scripts" / "remote_train.sh"
GOOD: dict[str, Any] = {"script": "train.py", "args": ["--config", "{config}", "--epochs", "{epochs}"], "lr": 0.1}
GOOD |= {"python": sys.executable, "epochs": 200, "early_stopping_patience": 3, "save_every": 5, "validate_every": 1}
GOOD |= {"gradient_checkpointing": True, "mixed_precision": "bf16", "world_size": 1, "batch_size": 32}


def train(
    bench: Bench, *words: object, cluster: str = "local", gpus: int = 0, name: str = "base", **config: Any
) -> subprocess.CompletedProcess[str]:
    """One call with the good config, some keys changed; None takes a key out. Who only asks, asks in this process."""
    (bench.directory / "train.py").write_text("import sys; print(sys.argv[1:])")
    kept = {key: value for key, value in {**GOOD, **config}.items() if value is not None}
    (bench.directory / "prod.yaml").write_text(yaml.safe_dump(kept))
    given = ["--cluster", cluster, "--config", "prod.yaml", "--gpus", gpus, "--name", name, *words]
    if {"--dry-run", "--json"} & set(words):
        return front_door.call("remote_train.py", *given, cwd=bench.directory, env=bench.environment)
    where: dict[str, Any] = {"cwd": bench.directory, "env": bench.environment}
    return subprocess.run([SHELL, *map(str, given)], text=True, capture_output=True, timeout=120, **where)


def findings(done: subprocess.CompletedProcess[str]) -> list[tuple[str, str, str]]:
    found = json.loads(done.stdout)["findings"]
    return [(each["code"], each["severity"], each["message"]) for each in found]


def test_starts_the_job_and_says_how_to_go_on(bench: Bench) -> None:
    done = train(bench, "--epoch-time", "95s", save_every=50)
    assert (done.returncode, done.stderr) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert lines["run"] == "base on local: 1 process (1 x 0 GPUs)"
    assert lines["batch"] == "32 x 1 process x 1 accumulated = 32"
    assert lines["duration"] == "5h16m = 200 epochs x 1m35s an epoch at most"
    run = Path(lines["started"])
    config = next((bench.directory / ".rgt").iterdir())
    assert config.read_bytes() == (bench.directory / "prod.yaml").read_bytes()
    until(lambda: (run / "train.log").read_text() == f"{['--config', f'.rgt/{config.name}', '--epochs', '200']}\n")
    report = json.loads((run / "remote_train.json").read_text())
    assert schema.problems(report, "report") == [] and [f["code"] for f in report["findings"]] == ["cadence"]
    follow = [lines[key] for key in ("state", "log", "verify")]
    assert "pull" not in lines and all(str(run) in line for line in follow)
    printed = [line for line in lines.values() if line.startswith(str(ROOT / "bin" / "rgt"))]
    assert not any(commands.problems(ROOT, line) for line in printed)


def test_dry_run_checks_and_starts_nothing(bench: Bench) -> None:
    done = train(bench, "--dry-run")
    shipped = f".rgt/prod-{hashlib.sha256((bench.directory / 'prod.yaml').read_bytes()).hexdigest()[:8]}.yaml"
    measure = "duration   unknown; measure it: run a copy of the config with epochs: 2, take the second epoch's time"
    assert done.returncode == 0 and done.stdout.splitlines()[2].startswith(measure)
    assert done.stdout.splitlines()[3:] == [
        f"would put  {bench.directory}/{shipped}",
        f"would run  {sys.executable} train.py --config {shipped} --epochs 200",
        f"in         {bench.directory} on local",
        "nothing was started",
    ]
    assert sorted(path.name for path in bench.directory.iterdir()) == ["prod.yaml", "train.py"]


# -- what cannot work stops before anything starts


STOPS = [
    ({"world_size": 4}, 8, "world-size", "world_size is 4, but 1 x 8 GPUs make 8 processes"),
    ({"resume_from": "ckpt/last.pt"}, 0, "missing", "{folder}/ckpt/last.pt does not exist on this machine"),
    ({"script": "trian.py"}, 0, "missing", "{folder}/trian.py does not exist on this machine"),
]


@pytest.mark.parametrize(("config", "gpus", "code", "message"), STOPS)
def test_stops(bench: Bench, config: dict[str, Any], gpus: int, code: str, message: str) -> None:
    done = train(bench, "--json", gpus=gpus, **config)
    assert done.returncode == 1
    assert findings(done) == [(code, "error", message.format(folder=bench.directory))]
    assert (bench.queue.records(), json.loads(done.stdout)["run"]) == ([], None)
    assert sorted(path.name for path in bench.directory.iterdir()) == ["prod.yaml", "train.py"]


# -- what is doubtful travels


LOSES = "a preemption loses up to {} between checkpoints (--max-loss is {})"
NEVER = "it never fires: patience 3 x validate_every {}, and there are 200 epochs"


WARNINGS = [
    ({"save_every": 300}, "", "cadence", "save_every is 300: no checkpoint before the end, 200 epochs"),
    ({"save_every": 50}, "--epoch-time 95s", "cadence", LOSES.format("1h19m of work: 50 epochs x 1m35s", "1h00m")),
    ({}, "--epoch-time 10m --max-loss 45m", "cadence", LOSES.format("50m00s of work: 5 epochs x 10m00s", "45m00s")),
    ({"validate_every": 70}, "", "early-stopping", NEVER.format(70)),
    ({"time_limit": "1h"}, "--epoch-time 60s", "time-limit", "it will take 3h20m and is ended after 1h00m"),
]


@pytest.mark.parametrize(("config", "words", "code", "message"), WARNINGS)
def test_warns(bench: Bench, config: dict[str, Any], words: str, code: str, message: str) -> None:
    done = train(bench, "--dry-run", "--json", *words.split(), **config)
    assert (done.returncode, findings(done)) == (0, [(code, "warn", message)])


# -- a machine behind ssh (a stand-in for ssh, with a home of its own)


def test_looks_at_the_host_and_runs_there(bench: Bench, boxes: Path) -> None:
    home = boxes / "a" / "exp"
    missing = train(bench, "--json", cluster="a", workdir="~/exp", python="python3", resume_from="ckpt/last.npy")
    gone = ["~/exp/train.py does not exist on a", "~/exp/ckpt/last.npy does not exist on a"]
    assert [message for _, _, message in findings(missing)] == gone
    (home / "ckpt").mkdir()
    numpy.save(home / "ckpt" / "last.npy", numpy.ones(4))
    (home / "train.py").write_text("import sys; open('seen', 'w').write(open(sys.argv[2]).read())")
    done = train(bench, "--json", cluster="a", workdir="~/exp", python="python3", resume_from="ckpt/last.npy")
    assert done.returncode == 0, done.stderr
    until(lambda: (home / "seen").exists() and (home / "seen").read_text())
    assert (home / "seen").read_bytes() == (bench.directory / "prod.yaml").read_bytes()
    answer = json.loads(done.stdout)
    run = Path(answer["run"])
    assert run.parent == bench.directory / "runs"
    assert answer["next"]["pull"] == bundle.command("transfer", "pull", run)


# -- slips of the hand and bad input


def test_name_that_runs_already_is_refused(bench: Bench) -> None:
    words: dict[str, Any] = {"script": None, "args": None, "command": ["sleep", "300"]}
    first = train(bench, "--json", **words)
    run = json.loads(first.stdout)["run"]
    until(lambda: bench.queue.records()[0]["state"] == "running")
    second = train(bench, **words)
    assert (second.returncode, second.stdout) == (2, "")
    assert second.stderr == (f"error: base is running already: {run}; stop it with launch.py, or change --name\n")
    assert len(bench.queue.records()) == 1


BAD_CONFIGS = [
    ({"epochs": None, "num_epochs": "many"}, "epochs: 'many' is not of type 'integer'"),
    ({"max_epochs": 100}, "epochs: 200 and max_epochs: 100 mean the same and differ; leave one of them out"),
    ({"script": None, "args": None, "workdir": "sub"}, 'train.py; add to it: script: main.py and args: [--config, "{c'),
    ({"args": ["{lrr}"]}, "asks for {lrr} in its words, but has no lrr"),
]


# -- configs as people write them


OTHER_WORDS: list[tuple[dict[str, Any], list[str]]] = [
    ({"epochs": None, "trainer": {"max_epochs": 200}, "bf16": True, "scheduler": {"patience": 5}}, []),
    ({"epochs": None, "max_steps": 1000, "save_every": None, "save_interval": 100}, []),
    ({"epochs": None, "save_every": None}, ["it names no number of epochs or steps: neither duration nor cadence"]),
    (
        {"save_every": None, "save_evry": 5},
        ["save_evry is passed on to the trainer as it is; did you mean save_every?"],
    ),
]


@pytest.mark.parametrize(("config", "said"), OTHER_WORDS)
def test_other_words_for_the_same_thing(bench: Bench, config: dict[str, Any], said: list[str]) -> None:
    done = train(bench, "--dry-run", "--json", **{**config, "args": ["{config}"], "early_stopping_patience": None})
    assert done.returncode == 0, done.stderr
    messages = [message for _, _, message in findings(done)]
    assert all(any(line.startswith(each) for line in messages) for each in said) and bool(messages) == bool(said)


STARTS = [
    ("train.py", "p.add_argument('--config')", "python3 -m torch.distributed.run train.py --config {shipped}"),
    ("train.py", "open(sys.argv[1])", "python3 -m torch.distributed.run train.py {shipped}"),
    ("train.py", "mp.spawn(main, nprocs=8)", "python3 train.py"),
    ("train.sh", 'exec torchrun train.py "$@"', "bash train.sh {shipped}"),
]


@pytest.mark.parametrize(("name", "text", "words"), STARTS)
def test_the_start_is_found_beside_the_config(bench: Bench, name: str, text: str, words: str) -> None:
    (bench.directory / "train.py").unlink()
    (bench.directory / name).write_text(text)
    (bench.directory / "prod.yaml").write_text("num_epochs: 3\nsave_every: 1\n")
    given = ["--cluster", "local", "--config", "prod.yaml", "--gpus", 8, "--name", "base", "--dry-run"]
    done = front_door.call("remote_train.py", *given, cwd=bench.directory, env=bench.environment)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("would run")]
    shipped = f".rgt/prod-{hashlib.sha256((bench.directory / 'prod.yaml').read_bytes()).hexdigest()[:8]}.yaml"
    assert line == f"would run  {words.format(shipped=shipped)}"


@pytest.mark.parametrize(("config", "sentence"), BAD_CONFIGS)
def test_bad_config(bench: Bench, config: dict[str, Any], sentence: str) -> None:
    done = train(bench, **config)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and sentence in done.stderr


def test_file_of_somebody_else_is_not_overwritten(bench: Bench) -> None:
    (bench.directory / "base.job.yaml").write_text("name: mine\n")
    done = train(bench)
    problem = "base.job.yaml was not written by remote_train and would be overwritten"
    assert done.returncode == 2 and problem in done.stderr
    assert (bench.directory / "base.job.yaml").read_text() == "name: mine\n"
