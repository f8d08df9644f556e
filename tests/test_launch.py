"""launch without a server: what would be run, word by word; the job description; the one-file bundle; the transport."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from rgt.errors import RgtError
from rgt.host import box
from rgt.host.ssh import Host
from rgt.job import backends, description

import pytest
import yaml

from . import front_door
from .real.support import free_port

LAUNCH = Path(__file__).resolve().parent.parent / "scripts" / "launch.py"
SPEC: dict[str, Any] = {"name": "tiny", "script": "train.py", "args": ["--out", "{run}", 3], "workdir": "/exp"}


def launch(*words: object, **env: str) -> subprocess.CompletedProcess[str]:
    return front_door.call("launch.py", *words, env=env)


def steps(tmp_path: Path, target: str, **changes: Any) -> list[dict[str, Any]]:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({**SPEC, **changes}))
    done = launch("submit", path, "--on", target, "--dry-run", "--json")
    assert done.returncode == 0, done.stderr
    shown: list[dict[str, Any]] = json.loads(done.stdout)["steps"]
    return shown


# -- the seeds that run.json will have

SEEDS: list[tuple[dict[str, Any], dict[str, int]]] = [
    ({"args": ["--seed", 3, "--lr", 0.1]}, {"seed": 3}),
    ({"args": ["trainer.seed=6", "--data-seed=7"]}, {"trainer.seed": 6, "data-seed": 7}),
    ({"env": {"SEED": 4}}, {"SEED": 4}),
    ({"seed": 5, "args": ["--seed", 5]}, {"seed": 5}),
]


@pytest.mark.parametrize(("changes", "seeds"), SEEDS)
def test_seeds_are_those_that_the_job_names(changes: dict[str, Any], seeds: dict[str, int]) -> None:
    assert description.from_dict({**SPEC, **changes}, Path("/exp")).seeds() == seeds


def test_two_different_seeds_are_refused() -> None:
    with pytest.raises(RgtError, match=r"job\.yaml says seed 5, its command or env seed 6; make them one"):
        description.from_dict({**SPEC, "seed": 5, "args": ["--seed", "6"]}, Path("/exp")).seeds()


# -- what is rendered


def test_local_goes_through_the_gate(tmp_path: Path) -> None:
    env = {"DUMP": "{run}/dump"}
    (step,) = steps(tmp_path, "local", gpus_per_node=1, time_limit="14d", grace=0.5, env=env, max_restarts=0)
    shown = (
        "-n <run-id> -t 1209600 --grace 0.5 --gpus 1 --unique --detach --log /exp/runs/<run-id>/train.log "
        "-- python3 train.py --out /exp/runs/<run-id> 3"
    )
    assert step["words"][2:] == shown.split()
    assert step["cwd"] == "/exp"
    own = {"RGT_RUN_DIR": "/exp/runs/<run-id>", "PYTHONUNBUFFERED": "1"}
    assert step["env"] == {"DUMP": "/exp/runs/<run-id>/dump", **own}


def test_arguments_pass_through_torchrun_unchanged(tmp_path: Path) -> None:
    """It would make $ of $$, and a number of ${local_rank}."""
    (tmp_path / "train.py").write_text("import json, sys\nsys.stdout.write(json.dumps(sys.argv[1:]) + chr(10))\n")
    given = ["$$", "${local_rank}", "$HOME", "a b", "", "--nnodes=7"]
    changes = {"args": given, "workdir": str(tmp_path), "python": sys.executable, "output": "x"}
    (step,) = steps(tmp_path, "local", gpus_per_node=2, max_restarts=0, **changes)
    words = step["words"][step["words"].index("--") + 1 :]
    variables = {**os.environ, **step["env"], "PET_MASTER_PORT": str(free_port())}
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [given, given]


def test_nodes_get_the_same_words_and_their_own_rank(tmp_path: Path) -> None:
    first, second = steps(tmp_path, "ssh:10.0.0.1,10.0.0.2", nodes=2, gpus_per_node=8, port=29511)
    assert first["words"][-6:] == second["words"][-6:]
    own = {"PET_NODE_RANK": "1", "PET_MASTER_ADDR": "10.0.0.1", "PET_MASTER_PORT": "29511", "PET_NPROC_PER_NODE": "8"}
    own |= {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "60"}  # the job's grace, not torchrun's 30 s
    assert own.items() <= second["env"].items()
    assert {**second["env"], "PET_NODE_RANK": "0"} == first["env"]


def test_docker_has_what_people_forget(tmp_path: Path) -> None:
    mounts = [{"from": "/data", "to": "/data", "read_only": True}]
    changes = {"image": "img@sha256:1", "gpus_per_node": 8, "mounts": mounts, "output": "/ckpt", "secrets": ["TOKEN"]}
    (step,) = steps(tmp_path, "docker", max_restarts=0, **changes, time_limit="2h", grace="30s", signal="USR1")
    text = " ".join(step["words"])
    parts = ["--init", "--shm-size 8589934592", "--ulimit memlock=-1", "--gpus 8", "--network host"]
    parts += ["--stop-signal SIGUSR1 --stop-timeout 30", "--env TOKEN img@sha256:1", "timeout -s USR1 -k 30 7200"]
    bound = ["/exp,target=/exp", "/data,target=/data,readonly", "/ckpt/<run-id>,target=/ckpt/<run-id>"]
    parts += [f"--mount type=bind,source={each}" for each in bound]
    assert [part for part in parts if part not in text] == []
    assert step["words"][-5:] == ["torch.distributed.run", "train.py", "--out", "/ckpt/<run-id>", "3"]


def test_sbatch_file(tmp_path: Path) -> None:
    hardware = {"cpus": 8, "memory": "32GiB"}
    (step,) = steps(tmp_path, "slurm", gpus_per_node=2, nodes=2, time_limit="90s", hardware=hardware, grace="45s")
    ((path, text),) = step["files"].items()
    options = [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]
    assert step["words"] == ["sbatch", "--parsable", "--export=ALL", path]
    shown = (
        "--job-name=<run-id> --output=/exp/runs/<run-id>/train.log --open-mode=append --nodes=2 --ntasks-per-node=1 "
        "--gres=gpu:2 --cpus-per-task=8 --mem=32768M --time=2 --signal=B:USR1@45 --dependency=singleton --requeue"
    )
    assert options == shown.split()
    given = {"partition": "gpu", "account": "me", "qos": "long", "constraint": "a100|h100", "reservation": "r"}
    more = {"slurm": {**given, "array": "2-7%2"}, "extra": {"slurm": {"exclusive": True, "mail-type": "END"}}}
    (with_fields,) = steps(tmp_path, "slurm", args=[], **more)
    ((_, written),) = with_fields["files"].items()
    own = [f"--{name}={value}" for name, value in given.items()]
    own += ["--array=2-7%2", "--exclusive", "--mail-type=END", "--output=/exp/runs/<run-id>/train.%a.log"]
    assert {f"#SBATCH {line}" for line in own} <= set(written.splitlines()) and "singleton" not in written
    assert "srun --kill-on-bad-exit=1 bash -c 'export PET_NODE_RANK=$SLURM_NODEID" in text
    if shutil.which("shellcheck"):
        words = ["shellcheck", "-s", "bash", "-S", "warning", "-"]
        checked = subprocess.run(words, input=text, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize(
    ("kind", "verb", "least"),
    [("local", "stop", 610), ("ssh", "stop", 610), ("docker", "stop", 610), ("docker", "render", 1800)],
)
def test_patience(kind: str, verb: str, least: float) -> None:
    """stop outlasts the grace (the gate itself waits ten seconds longer); docker may have to bring the image."""
    given = description.from_dict({**SPEC, "grace": "10m", "image": "img", "max_restarts": 0}, Path("/home/me"))
    (step,) = getattr(backends.backend(kind), verb)(backends.Order(given, "x", kind, [Host("box")]))
    assert step.seconds > least


def test_dry_run_shows_a_command_a_person_can_read_and_makes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({**SPEC, "workdir": ".", "secrets": ["TOKEN"]}))
    done = launch("submit", path, "--on", "local", "--dry-run")
    assert "TOKEN=<secret>" in done.stdout and f"# on this machine, in {tmp_path}" in done.stdout
    assert list(tmp_path.iterdir()) == [path]


# -- the log of a local job


# -- what submit looks at first


LOOKED = [
    ({"args": ["--resume_from", "gone.pt"]}, "resume_from: {here}/gone.pt does not exist"),
    ({"data": ["corpus"]}, "data: {here}/corpus does not exist"),
    ({"hardware": {"memory": "900TiB"}}, "the job asks for 900 TiB"),
    ({"script": "trian.py"}, "program: trian.py is neither a file in {here} nor a program on PATH"),
]


@pytest.mark.parametrize(("changes", "said"), LOOKED)
def test_what_cannot_work_is_not_started(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    path = tmp_path / "job.yaml"
    (tmp_path / "train.py").touch()
    path.write_text(yaml.safe_dump({"name": "x", "script": "train.py", "python": sys.executable, **changes}))
    done = launch("submit", path, "--on", "local", RGT_QUEUE=str(tmp_path / "queue"))
    assert (done.returncode, done.stdout) == (1, "") and said.format(here=tmp_path) in done.stderr
    assert done.stderr.startswith("error: nothing was started: ") and not (tmp_path / "runs").exists()


def test_an_image_that_no_accelerator_of_the_job_runs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    mounts = [{"from": "s3://b", "to": "/data"}]
    spec = {**SPEC, "image": "pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime", "output": "/data/runs", "mounts": mounts}
    path.write_text(yaml.safe_dump({**spec, "gpus_per_node": 1, "hardware": {"accelerators": "B200:1"}}))
    done = launch("submit", path, "--on", "skypilot")
    assert done.returncode == 1 and "does not run on B200" in done.stderr


# -- bad input


BAD_JOBS = [
    ("a: [", "is not YAML"),
    (r'{"name": "half \ud83d of an emoji", "command": ["a"]}', "is not YAML"),
    ("{name: x, command: [a], script: b}", "does not fit the job schema"),
    ("{name: x, command: 'a b'}", "command: 'a b' is not of type 'array'"),
]


@pytest.mark.parametrize(("text", "sentence"), BAD_JOBS)
def test_bad_job_file(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(RgtError) as caught:
        description.load(path)
    assert sentence in caught.value.message and "\n" not in caught.value.message


# -- the bundle


def test_bundle_runs_with_nothing_but_python(tmp_path: Path) -> None:
    name, data = box.build()
    path = tmp_path / name
    path.write_bytes(data)
    python = [sys.executable, "-I", "-S", str(path), "gpu_gate"]  # no site-packages: only what is in the file
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    command = [*python, "-n", "x", "--slots", "1", "--", "echo", "from the box"]
    assert subprocess.run(command, env=env, capture_output=True, text=True).stdout == "from the box\n"
    listed = subprocess.run([*python, "list", "--json"], env=env, capture_output=True, text=True)
    assert json.loads(listed.stdout)["jobs"][0]["state"] == "done"
    for tool in (["takeover", "snapshot", str(tmp_path)], ["preflight", "audit"]):
        done = subprocess.run([*python[:-1], *tool, "--json"], env=env, capture_output=True, text=True)
        assert json.loads(done.stdout)["tool"] == tool[0], done.stderr
    assert box.build() == (name, data)  # the same bytes: shipped once


# -- the transport: words arrive as they were written
