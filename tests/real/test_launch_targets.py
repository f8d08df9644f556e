"""The same job on every engine that runs here, interrupted in the way that engine interrupts, and resumed.

Each test ends with the loss of an uninterrupted run, and with a record that tells the truth on the way there.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt.host import box
from rgt.host import ssh as hosts
from rgt.job import description as job
from rgt.job import queue
from rgt.job.backends import Order, gate
from rgt.machine import processes
from rgt.platform import acts, profiles

import pytest
import yaml

from .. import front_door
from ..gate_box import kill, kill_job
from ..hostile import HOSTILE
from .dockerd import Dockerd
from .hosts import Host, TwoHosts
from .nvml import Gpu, Nvml
from .slurm import Slurm
from .sshd import SERVER, Sshd
from .support import need, run, wait_for

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = ROOT / "scripts" / "launch.py"
TINY = Path(__file__).with_name("tiny_job.py")


@dataclass
class Lab:
    """A folder with a job in it, a queue of its own, and launch's command line."""

    directory: Path
    env: dict[str, str] = field(default_factory=dict)
    prefix: list[str] = field(default_factory=list)  # runs launch on another host

    def job(self, **changes: Any) -> Path:
        shutil.copy(TINY, self.directory / "tiny_job.py")
        spec = {"name": "tiny", "script": "tiny_job.py", "python": sys.executable, "grace": "5s", **changes}
        path = self.directory / "job.yaml"
        path.write_text(yaml.safe_dump({key: value for key, value in spec.items() if value is not None}))
        return path

    def __call__(self, *words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [*self.prefix, sys.executable, str(LAUNCH), *map(str, words)]
        return run(command, env=self.env, check=check, timeout=90)

    def submit(self, target: str, **changes: Any) -> Path:
        return Path(self("submit", self.job(**changes), "--on", target).stdout.strip())

    def state(self, directory: Path) -> str:
        return str(self.status(directory)["state"])

    def status(self, directory: Path) -> dict[str, Any]:
        done = self("status", directory, "--json", check=False)
        assert done.stdout, done.stderr
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def until(self, directory: Path, state: str) -> dict[str, Any]:
        def there() -> dict[str, Any] | None:
            now = self.status(directory)
            return now if now["state"] == state else None

        return wait_for(state, there, 60) or {}

    def paused(self, directory: Path, ranks: int = 1) -> None:
        wait_for("the pause", lambda: all((directory / f"paused.{rank}").exists() for rank in range(ranks)), 60)

    def clean(self) -> None:
        for record in queue.Queue(Path(self.env["RGT_QUEUE"])).records():
            kill_job(record)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path, {"RGT_QUEUE": str(tmp_path / "queue"), "XDG_CACHE_HOME": str(tmp_path / "cache")})
    yield lab
    lab.clean()


@pytest.fixture(scope="session")
def loss(tmp_path_factory: pytest.TempPathFactory) -> float:
    """Of the job that nobody interrupts."""
    directory = tmp_path_factory.mktemp("reference")
    (directory / "go").touch()
    run([sys.executable, str(TINY)], env={"RGT_RUN_DIR": str(directory)})
    return float(final(directory)["loss"])


def final(directory: Path) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((directory / "final.json").read_text())
    return result


def go_on(lab: Lab, directory: Path, loss: float, resumed_at: int | None) -> None:
    """Let it finish: same loss; `resumed_at` is the step it must have taken up again (None: it never stopped)."""
    (directory / "go").touch()
    wait_for("the job's result", (directory / "final.json").exists)  # launch is dearer to ask than a file
    assert lab.until(directory, "finished")["exit_code"] == 0
    assert final(directory) == {"loss": loss, "started_at": resumed_at or 0}
    events = [json.loads(line)["event"] for line in (directory / "events.jsonl").read_text().splitlines()]
    assert events[0] == "launched" and events[-1] == "finished"


def test_local_job_survives_its_gate_and_resumes_after_a_reboot(lab: Lab, loss: float) -> None:
    directory = lab.submit("local")
    lab.paused(directory)
    record = queue.Queue(Path(lab.env["RGT_QUEUE"])).find(directory.name)
    kill(record["gate"]["pid"])
    assert lab.state(directory) == "running"  # only the gate died
    kill_job(record)
    lost = lab.until(directory, "lost")
    assert (lost["event"], lab("status", directory, check=False).returncode) == ("failed", 1)
    lab("resume", directory)
    go_on(lab, directory, loss, resumed_at=6)


def test_ssh_job_survives_the_loss_of_every_connection(lab: Lab, sshd: Sshd, loss: float) -> None:
    lab.env["RGT_SSH_CONFIG"] = str(sshd.config)
    directory = lab.submit("ssh:box", env={"RGT_QUEUE": lab.env["RGT_QUEUE"]})
    lab.paused(directory)
    sshd.stop()
    gone = lab("status", directory, check=False)
    assert (gone.returncode, gone.stdout) == (3, "") and gone.stderr.startswith("error: box cannot be reached: ")
    sshd.start()
    go_on(lab, directory, loss, resumed_at=None)
    assert "step 11 loss" in lab("logs", directory, "-n", 1).stdout


# a production config as its author wrote it, and the command that goes with it
PRODUCTION = """\
num_epochs: 500
early_stopping_patience: 50
save_every: 10
validate_every: 1
frame_skip: 4
gradient_checkpointing: true
use_mixed_precision: true
world_size: 8
"""
RANK = """\
import argparse, os, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--config")
rank, run = os.environ["RANK"], pathlib.Path(os.environ["RGT_RUN_DIR"])
(run / f"rank.{rank}").write_text(os.environ["WORLD_SIZE"] + pathlib.Path(parser.parse_args().config).read_text())
"""


def test_the_production_command_as_it_stands(lab: Lab, sshd: Sshd, nvml: Nvml) -> None:
    nvml.set([Gpu()] * 8)
    names = {**nvml.env, "RGT_QUEUE": lab.env["RGT_QUEUE"]}
    (lab.directory / ".venv").symlink_to(sys.prefix)
    with (sshd.config.parent / "sshd_config").open("a") as config:
        config.write("SetEnv " + " ".join(f'"{name}={value}"' for name, value in names.items()) + "\n")
    sshd.restart()
    sshd.config.write_text(sshd.config.read_text().replace("Host box", "Host tensor01"))
    (lab.directory / "train.py").write_text(RANK)
    (lab.directory / "production_training_config.yaml").write_text(PRODUCTION)
    command = "remote_train.sh --cluster tensor01 --config production_training_config.yaml --gpus 8"
    words = [*command.split(), "--name", "giblet_production"]
    own = {**os.environ, **lab.env, "RGT_SSH_CONFIG": str(sshd.config), "PATH": f"{ROOT}/scripts:{os.environ['PATH']}"}
    done = subprocess.run(words, cwd=lab.directory, env=own, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    said = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert said["run"] == "giblet_production on ssh:tensor01: 8 processes (1 x 8 GPUs)"
    run = Path(said["started"])
    files = [run / f"rank.{rank}" for rank in range(8)]
    wait_for("all ranks", lambda: all(path.exists() and path.stat().st_size for path in files), 90)
    assert files[7].read_text() == "8" + PRODUCTION


def test_launch_killed_in_a_submit_leaves_a_record_that_can_be_resumed(lab: Lab, sshd: Sshd, loss: float) -> None:
    lab.env["RGT_SSH_CONFIG"] = str(sshd.config)
    spec = lab.job(env={"RGT_QUEUE": lab.env["RGT_QUEUE"]})
    command = [sys.executable, str(LAUNCH), "submit", str(spec), "--on", "ssh:box"]
    process = subprocess.Popen(command, env={**os.environ, **lab.env}, stdout=subprocess.DEVNULL)
    directory = wait_for("run.json", lambda: list(lab.directory.glob("runs/*/run.json")))[0].parent
    process.kill()
    process.wait()
    sshd.cut()
    if lab.state(directory) == "lost":
        lab("resume", directory, check=False)  # refused when the half-done submit got through after all
    lab.paused(directory)
    go_on(lab, directory, loss, resumed_at=None)


def test_a_box_without_our_bundle_knows_no_such_job(lab: Lab, sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """A submit that died before it shipped anything, on a box that never saw us."""
    monkeypatch.setenv("RGT_SSH_CONFIG", str(sshd.config))
    name, contents = box._contents()
    fresh = f"test-{os.getpid()}-{name}"
    monkeypatch.setattr(box, "_contents", lambda: (fresh, contents))
    order = Order(job.load(lab.job()), "20260101-000000-tiny-abcdef", "ssh", [hosts.Host("box")])
    try:
        assert gate.status(order).state == "lost"
    finally:
        (Path.home() / ".cache" / "rgt" / fresh).unlink()


def docker_lab(lab: Lab, dockerd: Dockerd) -> dict[str, Any]:
    lab.env |= dockerd.env
    pairs = [mount.split(":")[:2] for mount in dockerd.torch_mounts if mount != "-v"]
    return {"image": dockerd.image, "mounts": [{"from": a, "to": b, "read_only": True} for a, b in pairs]}


def test_docker_job_is_stopped_and_resumed(lab: Lab, dockerd: Dockerd, loss: float) -> None:
    directory = lab.submit("docker", **docker_lab(lab, dockerd))
    lab.paused(directory)
    assert lab.state(directory) == "running"
    lab("stop", directory)
    assert lab.until(directory, "failed")["exit_code"] == 143
    lab("resume", directory)
    go_on(lab, directory, loss, resumed_at=6)
    lab("stop", directory, "--rm")
    assert dockerd.run(["ps", "--all", "--quiet"]).stdout == ""


SUPERVISED = Path(__file__).parents[1] / "supervised_job.py"


def supervised(lab: Lab, target: str, words: list[str], **changes: Any) -> Path:
    shutil.copy(SUPERVISED, lab.directory / "job.py")
    command = [sys.executable, "job.py", *words]
    return lab.submit(target, command=command, script=None, python=None, restart_delay=0.3, **changes)


def state_of(directory: Path) -> dict[str, Any]:
    path = directory / ".supervisor" / "state.json"
    return dict(json.loads(path.read_text())) if path.exists() else {"ended": ""}


def step_of(directory: Path) -> int:
    return int(json.loads((directory / "state.json").read_text())["step"]) if (directory / "state.json").exists() else 0


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.soak)])
@pytest.mark.parametrize("target", ["ssh:box", "docker"])
def test_killed_jobs_and_supervisors_end_as_if_nothing_had_been(
    lab: Lab, request: pytest.FixtureRequest, target: str, kills: int
) -> None:
    changes = prepare(target, lab, request) | {"env": {"RGT_QUEUE": lab.env["RGT_QUEUE"]}}
    # an odd number of steps for each target: tests beside this one have jobs with the same name
    luck, steps, starts = random.Random(target), 20 * kills + 1 + (target == "docker"), 1
    directory = supervised(lab, target, [str(steps), "hold"], max_restarts=kills, **changes)

    def ours(last: str) -> list[int]:
        words = {pid: processes.command(pid) for pid in processes.pids()}
        return [pid for pid, each in words.items() if each[-1:] == [last] and "gpu_gate" not in " ".join(each)]

    for round in range(kills):
        reached = min(step_of(directory) + luck.randrange(1, 8), steps - 1)
        wait_for("steps", lambda reached=reached: step_of(directory) >= reached, 60)  # type: ignore[misc]
        wait_for("two supervisors", lambda: len(ours(str(directory))) == 2, 60)
        if target == "ssh:box":
            request.getfixturevalue("sshd").cut()
        jobs = [pid for pid in ours("hold") if processes.command(pid)[-3:-1] == ["job.py", str(steps)]]
        victim = jobs[-1] if round == 0 or luck.random() < 0.5 else ours(str(directory))[0]
        starts += victim in jobs
        kill(victim)
    (directory / "go").touch()
    wait_for("its end", lambda: state_of(directory)["ended"], 90)
    assert lab.until(directory, "finished")["exit_code"] == 0
    value = 1.0
    for _ in range(steps):
        value = value * 1.5 % 1.3
    assert json.loads((directory / "final.json").read_text()) == {"step": steps, "value": value}
    assert not (directory / "twice").exists()
    assert len((directory / "starts").read_text().splitlines()) == starts


@pytest.mark.parametrize("target", ["ssh:box", "docker"])
def test_a_fault_of_the_job_is_not_restarted(lab: Lab, request: pytest.FixtureRequest, target: str) -> None:
    changes = prepare(target, lab, request) | {"env": {"RGT_QUEUE": lab.env["RGT_QUEUE"]}}
    directory = supervised(lab, target, ["12", "shape"], **changes)
    assert "TO87" in lab.until(directory, "failed")["detail"]
    assert len((directory / "starts").read_text().splitlines()) == 1


def slurm_job(slurm: Slurm, lab: Lab) -> tuple[Path, str]:
    """The paused job: its run directory, and its number in Slurm."""
    lab.env |= slurm.env
    directory = lab.submit("slurm")
    lab.paused(directory)
    number = slurm.run(["squeue", "--noheader", "--name", directory.name, "--format=%A"]).stdout.strip()
    return directory, number


def test_slurm_requeue_resumes_by_itself(lab: Lab, slurm: Slurm, loss: float) -> None:
    directory, number = slurm_job(slurm, lab)
    slurm.requeue(number)
    go_on(lab, directory, loss, resumed_at=6)


def test_slurm_warning_before_the_time_limit_saves_and_requeues(lab: Lab, slurm: Slurm, loss: float) -> None:
    directory, number = slurm_job(slurm, lab)
    slurm.run(["scancel", "--batch", "--signal=USR1", number])
    slurm.wait(number, "PENDING")
    assert lab.state(directory) == "queued"
    slurm.release(number)
    go_on(lab, directory, loss, resumed_at=6)


def test_slurm_array_has_a_run_directory_for_each_task(lab: Lab, slurm: Slurm) -> None:
    lab.env |= slurm.env
    command = ["sh", "-c", 'echo "task $SLURM_ARRAY_TASK_ID"; test "$SLURM_ARRAY_TASK_ID" != 2']
    changes = {"command": command, "script": None, "python": None}
    directory = lab.submit("slurm", slurm={"array": "1-2", "partition": "test"}, **changes)
    assert lab.until(directory, "failed")["exit_code"] == 1
    assert [(directory / f"task-{n}" / "exit_code").read_text().strip() for n in (1, 2)] == ["0", "1"]
    assert lab("logs", directory).stdout == "task 1\n"


def test_slurm_shows_a_cancelled_job_as_ended(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in slurm.env.items():
        monkeypatch.setenv(name, value)
    facts = profiles.load("generic-ssh:slurm")
    job = slurm.submit("sleep 300")
    slurm.wait(job, "RUNNING")
    unknown = acts.end(facts, {"id": f"{job}0"}, f"{job}0", wait=0)
    assert (unknown.executed, unknown.gone) == (False, False)
    outcome = acts.end(facts, {"id": job}, job, wait=60)
    assert (outcome.executed, outcome.gone) == (True, True), outcome
    assert outcome.sentence == f"the provider lists {job} as CANCELLED"


NODE = SERVER + "SetEnv RGT_QUEUE={queue} GLOO_SOCKET_IFNAME={interface}\n"
CLIENT = """\
Host {name}
  HostName {address}
  Port 2222
  User root
  IdentityFile "{dir}/user_key"
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  LogLevel ERROR
"""


def node(host: Host, name: str, directory: Path, env: dict[str, str]) -> str:
    """An sshd inside the namespace; the part of ssh_config that names it."""
    for key in ("host_key", "user_key"):
        if not (directory / key).exists():
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / key)])
    config = directory / f"{name}.conf"
    text = NODE.format(port=2222, dir=directory, queue=directory / f"queue-{name}", interface=host.interface)
    more = "".join(f" {key}={value}" for key, value in env.items())  # sshd takes the first SetEnv line only
    config.write_text(text.replace("127.0.0.1", host.address).rstrip("\n") + f"{more}\n")
    process = host.popen([need("sshd", "openssh-server"), "-D", "-e", "-f", str(config)])
    assert process.stdout
    wait_for("sshd", lambda: "listening" in (process.stdout.readline() if process.stdout else ""))
    return CLIENT.format(name=name, address=host.address, dir=directory)


def reach(lab: Lab, two_hosts: TwoHosts, *env: dict[str, str]) -> None:
    """launch runs on the first host, and can log in to both; `env` is what their logins find."""
    each = zip((two_hosts.a, two_hosts.b), "ab", env or ({}, {}), strict=True)
    parts = [node(host, name, lab.directory, own) for host, name, own in each]
    (lab.directory / "ssh_config").write_text("".join(parts))
    lab.env["RGT_SSH_CONFIG"] = str(lab.directory / "ssh_config")
    lab.prefix = two_hosts.a.enter


def two_nodes(lab: Lab, two_hosts: TwoHosts) -> Path:
    """The job on both hosts, each with its own gate, paused."""
    reach(lab, two_hosts)
    directory = lab.submit("ssh:a,b", nodes=2)
    lab.paused(directory, ranks=2)
    return directory


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"port": 2222}, "port on a: 2222 cannot be taken"),
        ({"master_addr": "10.255.255.1"}, "cannot listen at 10.255.255.1"),
    ],
)
def test_the_rendezvous_is_probed(
    lab: Lab, two_hosts: TwoHosts, sshd: Sshd, changes: dict[str, Any], said: str
) -> None:
    reach(lab, two_hosts)
    done = lab("submit", lab.job(nodes=2, **changes), "--on", "ssh:a,b", check=False)
    assert done.returncode == 1 and said in done.stderr and not (lab.directory / "runs").exists()


def test_two_nodes_lose_their_link_and_resume(lab: Lab, two_hosts: TwoHosts, loss: float, sshd: Sshd) -> None:
    directory = two_nodes(lab, two_hosts)
    two_hosts.cut()
    (directory / "go").touch()
    log = directory / "train.log"
    wait_for("an error on the first node", lambda: "Error" in log.read_text(), 60)
    two_hosts.mend()
    queues = [queue.Queue(lab.directory / f"queue-{name}") for name in "ab"]
    wait_for("both old attempts gone", lambda: all(q.find(directory.name)["state"] in queue.FINAL for q in queues), 60)
    assert lab.state(directory) == "failed"
    lab("resume", directory)
    go_on(lab, directory, loss, resumed_at=6)


def test_docker_on_two_nodes_meets_at_the_master_address(
    lab: Lab, two_hosts: TwoHosts, two_engines: list[Dockerd], sshd: Sshd, loss: float
) -> None:
    """An engine and a network for each node: only by the configured address and port can the ranks find each other."""
    reach(lab, two_hosts, *(engine.env for engine in two_engines))
    changes = docker_lab(lab, two_engines[0]) | {"master_addr": two_hosts.a.address, "port": 29517}
    extra = {"docker": ["--env", "GLOO_SOCKET_IFNAME"]}  # each node's own
    directory = lab.submit("docker:a,b", nodes=2, extra=extra, **changes)
    lab.paused(directory, ranks=2)
    names = [engine.run(["ps", "--format", "{{.Names}}"]).stdout.split() for engine in two_engines]
    assert names == [[f"rgt-{directory.name}"]] * 2
    listening = two_hosts.a.run(["ss", "-Htn", "state", "established", "sport = :29517"]).stdout
    assert two_hosts.b.address in listening
    go_on(lab, directory, loss, resumed_at=None)


@pytest.mark.soak
def test_two_nodes_resume_when_the_old_attempt_is_gone(lab: Lab, two_hosts: TwoHosts, loss: float, sshd: Sshd) -> None:
    directory = two_nodes(lab, two_hosts)
    record = queue.Queue(lab.directory / "queue-a").find(directory.name)
    two_hosts.cut()  # so that the second node does not learn of it
    kill_job(record)
    two_hosts.mend()
    wait_for("a node to be lost", lambda: lab.state(directory) in ("failed", "lost"))
    refused = lab("resume", directory, check=False)
    assert refused.returncode == 2 and "its old attempt still runs on b" in refused.stderr
    lab("stop", directory)
    wait_for("the old attempt's end", lambda: not lab.status(directory)["still_running"])
    lab("resume", directory)
    go_on(lab, directory, loss, resumed_at=6)


# -- words arrive as they were written

TARGETS = ("local", "ssh:box", "docker", "slurm")


def prepare(target: str, lab: Lab, request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the target wants in the environment, and in job.yaml."""
    if target == "docker":
        return docker_lab(lab, request.getfixturevalue("dockerd"))
    if target == "ssh:box":
        lab.env["RGT_SSH_CONFIG"] = str(request.getfixturevalue("sshd").config)
    elif target == "slurm":
        lab.env |= request.getfixturevalue("slurm").env
    return {}


SHOW = """
import hashlib, json, os, sys, time
run, secret = os.environ["RGT_RUN_DIR"], os.environ["TOKEN"].encode()
with open(run + "/part", "w") as file:
    json.dump([sys.argv[1:], os.environ["H"], hashlib.sha256(secret).hexdigest()], file)
os.rename(run + "/part", run + "/seen")
while not os.path.exists(run + "/go"): time.sleep(0.02)
"""


@pytest.mark.parametrize("target", TARGETS)
def test_hostile_words_and_a_secret_arrive_unseen(lab: Lab, request: pytest.FixtureRequest, target: str) -> None:
    changes, secret = prepare(target, lab, request), "s3cr3t'$(id)"
    lab.env["TOKEN"] = secret
    words = [word for word in HOSTILE if word != "\r"]  # sbatch refuses what looks like a DOS line end
    nasty = "\n".join(words)
    changes |= {"command": [sys.executable, "-c", SHOW, *words], "script": None, "python": None, "secrets": ["TOKEN"]}
    changes |= {"name": "x'; $(id)\n训练", "env": {"H": nasty, "RGT_QUEUE": lab.env["RGT_QUEUE"]}}
    shown = lab("submit", lab.job(**changes), "--on", target, "--dry-run").stdout
    assert secret not in shown and "TOKEN" in shown
    directory = lab.submit(target, **changes)
    wait_for("what has arrived", (directory / "seen").exists)
    assert json.loads((directory / "seen").read_text()) == [words, nasty, hashlib.sha256(secret.encode()).hexdigest()]
    arguments = [" ".join(processes.command(pid)) for pid in processes.pids()]
    assert not [line for line in arguments if secret in line]
    (directory / "go").touch()
    assert lab.until(directory, "finished")["exit_code"] == 0
    written = [path for path in lab.directory.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()]
    assert (written, list(lab.directory.rglob("pwned"))) == ([], [])


# -- bad input


BAD_INPUT = [
    ("moon", {}, 2, "error: unknown target 'moon'; it is one of local, ssh, docker"),
    ("ssh", {}, 2, "error: the target ssh needs a host: --on ssh:HOST"),
    ("ssh:a,a", {}, 2, "error: ssh:a,a names a host twice"),
    ("ssh:a", {"nodes": 2}, 2, "error: the job wants 2 nodes, --on names 1"),
    ("ssh:no-such-host.invalid", {}, 3, "error: no-such-host.invalid cannot be reached"),
    ("local", {"secrets": ["RGT_NOT_SET"]}, 3, "error: the secret RGT_NOT_SET is not set in this environment"),
    ("local", {"secrets": ["A"], "env": {"A": "1"}}, 2, "error: A is in env and in secrets"),
    ("local", {"script": None, "command": ["no-such-program"]}, 1, "no-such-program is neither a file in"),
]


@pytest.mark.parametrize(("target", "changes", "code", "sentence"), BAD_INPUT)
def test_bad_input(lab: Lab, target: str, changes: dict[str, Any], code: int, sentence: str) -> None:
    if target.startswith("ssh:"):
        need("ssh", "openssh-client")
    done = front_door.call("launch.py", "submit", lab.job(**changes), "--on", target, env=lab.env)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert sentence in done.stderr and "Traceback" not in done.stderr


def test_refused_key_is_named(lab: Lab, sshd: Sshd) -> None:
    text = sshd.config.read_text().replace("user_key", "host_key")
    config = lab.directory / "wrong_config"
    config.write_text(text)
    lab.env["RGT_SSH_CONFIG"] = str(config)
    done = lab("submit", lab.job(), "--on", "ssh:box", check=False)
    assert done.returncode == 3 and done.stderr.startswith("error: box refused the key: ")


def test_running_job_is_not_resumed(lab: Lab) -> None:
    directory = lab.submit("local")
    lab.paused(directory)
    done = lab("resume", directory, check=False)
    assert done.returncode == 2 and "is running; two of one run would write over" in done.stderr
