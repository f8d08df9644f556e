"""launch without a server: what would be run, word by word; the job description; the one-file bundle; the transport."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import backends
from backends import box
from rgt import gate, job, procs
from rgt.errors import RgtError
from rgt.hosts import Done, Host

from . import front_door
from .gate_box import kill, until
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


# -- what is rendered


def test_local_goes_through_the_gate(tmp_path: Path) -> None:
    (step,) = steps(tmp_path, "local", gpus_per_node=1, time_limit="2h", grace=30)
    assert step["words"][2:] == [
        "-n", "<run-id>", "-t", "7200", "--grace", "30", "--gpus", "1", "--unique", "--detach", "--log",
        "/exp/runs/<run-id>/train.log", "--", "python3", "train.py", "--out", "/exp/runs/<run-id>", "3",
    ]  # fmt: skip
    assert step["cwd"] == "/exp"
    assert step["env"] == {"RGT_RUN_DIR": "/exp/runs/<run-id>", "PYTHONUNBUFFERED": "1"}


def test_several_cards_mean_torchrun(tmp_path: Path) -> None:
    (step,) = steps(tmp_path, "local", gpus_per_node=4)
    assert step["words"][-7:-4] == ["python3", "-m", "torch.distributed.run"]
    assert (step["env"]["PET_NNODES"], step["env"]["PET_NPROC_PER_NODE"]) == ("1", "4")
    assert step["env"]["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] == "60"  # the job's grace, not torchrun's 30 s


def test_arguments_pass_through_torchrun_unchanged(tmp_path: Path) -> None:
    """It would make $ of $$, and a number of ${local_rank}."""
    (tmp_path / "train.py").write_text("import json, sys\nsys.stdout.write(json.dumps(sys.argv[1:]) + chr(10))\n")
    given = ["$$", "${local_rank}", "$HOME", "a b", "", "--nnodes=7"]
    changes = {"args": given, "workdir": str(tmp_path), "python": sys.executable, "output": "x"}
    (step,) = steps(tmp_path, "local", gpus_per_node=2, **changes)
    words = step["words"][step["words"].index("--") + 1 :]
    variables = {**os.environ, **step["env"], "PET_MASTER_PORT": str(free_port())}
    done = subprocess.run(words, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [given, given]


def test_run_directory_is_filled_in_everywhere(tmp_path: Path) -> None:
    (step,) = steps(tmp_path, "local", env={"DUMP": "{run}/dump"})
    assert step["env"]["DUMP"] == "/exp/runs/<run-id>/dump"


def test_docker_limits_time_with_the_signal_and_grace_of_the_job(tmp_path: Path) -> None:
    (step,) = steps(tmp_path, "docker", image="img", time_limit="2h", grace="30s", signal="USR1")
    assert step["words"][-11:-5] == ["timeout", "-s", "USR1", "-k", "30", "7200"]


def test_nodes_get_the_same_words_and_their_own_rank(tmp_path: Path) -> None:
    first, second = steps(tmp_path, "ssh:10.0.0.1,10.0.0.2", nodes=2, gpus_per_node=8, port=29511)
    assert first["words"][-6:] == second["words"][-6:]
    ranks = [
        (s["env"]["PET_NODE_RANK"], s["env"]["PET_MASTER_ADDR"], s["env"]["PET_MASTER_PORT"]) for s in (first, second)
    ]
    assert ranks == [("0", "10.0.0.1", "29511"), ("1", "10.0.0.1", "29511")]


def test_docker_has_what_people_forget(tmp_path: Path) -> None:
    mounts = [{"from": "/data", "to": "/data", "read_only": True}]
    changes = {"image": "img@sha256:1", "gpus_per_node": 8, "mounts": mounts, "output": "/ckpt", "secrets": ["TOKEN"]}
    (step,) = steps(tmp_path, "docker", **changes)
    text = " ".join(step["words"])
    for part in (
        "--init", "--shm-size 8589934592", "--ulimit memlock=-1", "--gpus 8", "--network host", "--stop-timeout 60",
        "--mount type=bind,source=/exp,target=/exp", "--mount type=bind,source=/data,target=/data,readonly",
        "--mount type=bind,source=/ckpt/<run-id>,target=/ckpt/<run-id>", "--env TOKEN img@sha256:1",
    ):  # fmt: skip
        assert part in text, part
    assert step["words"][-5:] == ["torch.distributed.run", "train.py", "--out", "/ckpt/<run-id>", "3"]


def test_sbatch_file(tmp_path: Path) -> None:
    hardware = {"cpus": 8, "memory": "32GiB"}
    (step,) = steps(tmp_path, "slurm", gpus_per_node=2, nodes=2, time_limit="90s", hardware=hardware, grace="45s")
    ((path, text),) = step["files"].items()
    options = [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]
    assert step["words"] == ["sbatch", "--parsable", "--export=ALL", path]
    assert options == [
        "--job-name=<run-id>", "--output=/exp/runs/<run-id>/train.log", "--open-mode=append", "--nodes=2",
        "--ntasks-per-node=1", "--gres=gpu:2", "--cpus-per-task=8", "--mem=32768M", "--time=2", "--signal=B:USR1@45",
        "--dependency=singleton", "--requeue",
    ]  # fmt: skip
    assert "srun --kill-on-bad-exit=1 bash -c 'export PET_NODE_RANK=$SLURM_NODEID" in text
    if shutil.which("shellcheck"):
        checked = subprocess.run(
            ["shellcheck", "-s", "bash", "-S", "warning", "-"], input=text, capture_output=True, text=True
        )
        assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("kind", ["local", "ssh", "docker"])
def test_stop_waits_for_longer_than_the_grace(kind: str) -> None:
    given = job.from_dict({**SPEC, "grace": "10m", "image": "img"}, Path("/home/me"))
    (step,) = backends.backend(kind).stop(backends.Order(given, "x", kind, [Host("box")]))
    assert step.seconds > 610  # the gate itself waits ten seconds longer


def test_docker_may_take_long_to_bring_the_image() -> None:
    given = job.from_dict({**SPEC, "image": "img"}, Path("/home/me"))
    (step,) = backends.backend("docker").render(backends.Order(given, "x", "docker"))
    assert step.seconds >= 1800


def test_dry_run_shows_a_command_a_person_can_read_and_makes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({**SPEC, "workdir": ".", "secrets": ["TOKEN"]}))
    done = launch("submit", path, "--on", "local", "--dry-run")
    assert "TOKEN=<secret>" in done.stdout and f"# on this machine, in {tmp_path}" in done.stdout
    assert list(tmp_path.iterdir()) == [path]


# -- the life of a local job


@pytest.fixture
def queue(tmp_path: Path) -> Any:
    queue = gate.Queue(tmp_path / "queue")
    yield queue
    for record in queue.records():
        for pid in [*procs.carrying(gate.MARK, record["id"]), *([record["gate"]["pid"]] if record["gate"] else [])]:
            kill(pid)


def test_follow_prints_until_the_end(tmp_path: Path, queue: gate.Queue) -> None:
    path = tmp_path / "job.yaml"
    script = "echo one; until [ -e go ]; do sleep 0.02; done; echo two"
    path.write_text(yaml.safe_dump({"name": "x", "command": ["sh", "-c", script]}))
    env = {"RGT_QUEUE": str(queue.directory)}
    run = Path(launch("submit", path, "--on", "local", **env).stdout.strip())
    log = run / "train.log"
    until(lambda: log.exists() and log.read_text() == "one\n")
    command = [sys.executable, str(LAUNCH), "logs", str(run), "--follow"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **env})
    assert process.stdout and process.stdout.readline() == "one\n"
    (tmp_path / "go").touch()
    assert process.communicate(timeout=30)[0] == "two\n"
    assert [json.loads(line)["event"] for line in (run / "events.jsonl").read_text().splitlines()] == [
        "launched", "submitted", "finished",
    ]  # fmt: skip


def test_run_directory_that_launch_did_not_make(tmp_path: Path) -> None:
    done = launch("status", tmp_path)
    assert (done.returncode, done.stderr) == (2, f"error: {tmp_path} is not a run directory: it has no run.json\n")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "does not fit the job schema: None is not of type 'object'"),
        ("a: [", "is not YAML"),
        ("{name: x, command: [a], time_limit: 2026-02-30}", "is not YAML: day is out of range for month"),
        (r'{"name": "half \ud83d of an emoji", "command": ["a"]}', "is not YAML"),
        ("name: x", "does not fit the job schema"),
        ("{name: x, command: [a], script: b}", "does not fit the job schema"),
        ("{name: x, command: 'a b'}", "command: 'a b' is not of type 'array'"),
        ("{name: x, command: [a], shm_size: big}", "'big' is not a size"),
        ("{name: x, command: [a], env: {'A B': c}}", "env: 'A B' does not match"),
    ],
)
def test_bad_job_file(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(RgtError) as caught:
        job.load(path)
    assert sentence in caught.value.message and "\n" not in caught.value.message


def test_job_file_written_as_json_with_escapes(tmp_path: Path) -> None:
    """YAML would leave the halves of an emoji apart: the run's own record would then differ from its hash."""
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps({"name": "🚀 größe", "command": ["true", "训练 🚀"], "env": {"A": "🚀"}}))
    loaded = job.load(path)
    assert (loaded.name, loaded.command[1], loaded.env) == ("🚀 größe", "训练 🚀", {"A": "🚀"})


def test_missing_job_file(tmp_path: Path) -> None:
    done = launch("submit", tmp_path / "gone.yaml", "--on", "local")
    assert (done.returncode, done.stderr) == (
        2,
        f"error: cannot read {tmp_path}/gone.yaml: No such file or directory\n",
    )


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

WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


@settings(max_examples=25)
@given(words=st.lists(WORDS, max_size=5), value=WORDS, rest=st.binary(max_size=50))
def test_words_environment_and_stdin_arrive_verbatim(words: list[str], value: str, rest: bytes) -> None:
    code = "import sys,os,json; print(json.dumps([sys.argv[1:], os.environ['V'], list(sys.stdin.buffer.read())]))"
    done = Host().run([sys.executable, "-c", code, *words], env={"V": value}, input=rest)
    assert json.loads(done.out) == [words, value, list(rest)]


def test_file_is_put_whole_and_read_back(tmp_path: Path) -> None:
    data = bytes(range(256)) * 1000
    target = str(tmp_path / "new folder" / "it's $(here)")
    Host().put(target, data, 0o600)
    assert Host().read(target) == data
    assert Host().read(target, -3) == Host().read(target, len(data) - 3) == b"\xfd\xfe\xff"
    assert Host().size(target) == len(data)
    assert os.stat(target).st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path / "new folder") == ["it's $(here)"]
    assert Host().read(str(tmp_path / "gone")) is None


def test_missing_program_and_directory_are_sentences() -> None:
    with pytest.raises(RgtError, match=r"^no-such-program is not installed on this machine$"):
        Host().run(["no-such-program"])
    with pytest.raises(RgtError, match=r"^there is no directory /no/such/place on this machine$"):
        Host().run(["true"], cwd="/no/such/place")


def test_failure_is_named_by_its_error_line() -> None:
    docker = "Unable to find image locally\ndocker: Error response from daemon: nope.\nSee 'docker run --help'.\n"
    assert Done(125, "", docker).sentence() == "docker: Error response from daemon: nope."
    assert Done(1, "", "").sentence() == "exit code 1"
