"""Taking over: whatever runs is found with its numbers, whoever started it; hostile places neither hang nor break it;
nothing on disk changes."""

from __future__ import annotations

import fcntl
import json
import os
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from bench.takeover import make_runs
from inventory import cadence, ckpt, outside, streams, survey, trainers
from inventory import snapshot as machine
from rgt import logs, rundir
from rgt.report import CODES

from . import front_door
from .real.support import need

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
SCRIPT = SCRIPTS / "takeover.py"
HOST = socket.gethostname()
T = TypeVar("T")

TRAIN = """
import sys, time
print("max_iters = 5000", flush=True)
for step in range(1, 5001):
    print(f"iter {step}: loss {5 / step ** 0.5:.4f}, time 20.00ms, mfu 31.2%", flush=True)
    time.sleep(0.02)
"""


Env = dict[str, str]


def run(*arguments: object, cwd: Path | None = None, env: Env | None = None) -> subprocess.CompletedProcess[str]:
    """The script through its front door; a hang fails the test."""
    if arguments[0] == "validate":  # the other verbs look at processes, and ours should not be among them
        return front_door.call("takeover.py", *arguments, cwd=cwd, env=env)
    environment = {**os.environ, "RGT_QUEUE": "/nonexistent/queue", **(env or {})}
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=60, env=environment)


def strict(text: str) -> Any:
    """JSON as other languages read it: no NaN."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def snapshot(*arguments: object, cwd: Path | None = None, env: Env | None = None) -> dict[str, Any]:
    done = run("snapshot", *arguments, "--json", cwd=cwd, env=env)
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = strict(done.stdout)
    return found


def process(found: dict[str, Any], pid: int) -> dict[str, Any]:
    rows = [row for row in found["processes"] if row["pid"] == pid]
    assert rows, f"pid {pid} is not among {[(row['pid'], row['text'][:60]) for row in found['processes']]}"
    row: dict[str, Any] = rows[0]
    return row


def wait_for(what: str, ready: Callable[[], T], seconds: float = 60) -> T:
    deadline = time.monotonic() + seconds
    while not (value := ready()):
        assert time.monotonic() < deadline, f"{what}: not within {seconds} s"
        time.sleep(0.02)
    return value


def lines(path: Path, count: int = 3) -> None:
    wait_for(f"{count} lines in {path}", lambda: path.exists() and path.read_bytes().count(b"\n") >= count)


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextmanager
def shell(command: str, cwd: Path, name: str = "train.py") -> Iterator[int]:
    """A command line as somebody would type it; gives the pid of the python process behind it, and ends both."""
    pidfile = cwd / ".pid"
    (cwd / name).parent.mkdir(parents=True, exist_ok=True)
    if not (cwd / name).exists():
        (cwd / name).write_text(f"import os\nopen({str(pidfile)!r}, 'w').write(str(os.getpid()))\n" + TRAIN)
    starter = subprocess.Popen(
        ["bash", "-c", command.replace("python", sys.executable)], cwd=cwd, start_new_session=True
    )
    try:
        pid = int(wait_for("the pid", lambda: pidfile.exists() and pidfile.read_text()))
        yield pid
    finally:
        os.killpg(starter.pid, signal.SIGKILL)
        starter.wait()


# -- processes


def test_a_process_started_by_hand_and_its_numbers(tmp_path: Path) -> None:
    with shell("nohup python train.py --batch-size 8 > weird.log 2>&1 & wait", tmp_path) as pid:
        lines(tmp_path / "weird.log", 5)
        found = snapshot(cwd=tmp_path)
        row = process(found, pid)
        assert row["command"][1:] == ["train.py", "--batch-size", "8"]
        assert (row["cwd"], row["python"], row["user"]) == (str(tmp_path), sys.executable, "root")
        assert row["log"] == {
            "kind": "file", "path": str(tmp_path / "weird.log"), "via": "", "readable": f"/proc/{pid}/fd/1",
        }  # fmt: skip
        assert row["step"] >= 4 and row["total"] == 5000 and row["it_per_s"] == 50.0
        assert row["metrics"]["mfu"] == 31.2 and row["metrics"]["loss"] == round(5 / row["step"] ** 0.5, 4)
        assert row["eta"] == (5000 - row["step"]) / 50 and 0 <= row["age"] < 5 and row["elapsed"] < 30
        assert row["origin"].startswith("by hand")
        runs = [run for run in found["runs"] if run["path"] == str(tmp_path / "weird.log")]
        assert [run["pid"] for run in runs] == [pid]
        text = run("snapshot", cwd=tmp_path).stdout
        assert f"{pid} {sys.executable} train.py --batch-size 8" in text
        assert f"log {tmp_path / 'weird.log'}, last line " in text


def test_it_is_found_from_anywhere(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    with shell("python train.py > weird.log", there) as pid:
        lines(there / "weird.log")
        found = snapshot(cwd=here)
        assert process(found, pid)["step"] > 0
        assert str(there / "weird.log") in [run["path"] for run in found["runs"]]


def test_through_a_pipe_to_tee(tmp_path: Path) -> None:
    with shell("python train.py 2>&1 | tee out.log > /dev/null", tmp_path) as pid:
        lines(tmp_path / "out.log")
        row = process(snapshot(tmp_path), pid)
        assert (row["log"]["kind"], row["log"]["path"]) == ("pipe", str(tmp_path / "out.log"))
        assert row["log"]["via"].startswith("tee (pid ") and row["step"] > 0


def test_a_deleted_log_is_still_read_and_can_be_rescued(tmp_path: Path) -> None:
    with shell("python train.py > gone.log", tmp_path) as pid:
        lines(tmp_path / "gone.log")
        (tmp_path / "gone.log").unlink()
        found = snapshot(tmp_path)
        row = process(found, pid)
        assert (row["log"]["kind"], row["log"]["path"]) == ("deleted", str(tmp_path / "gone.log")) and row["step"] > 0
        finding = next(finding for finding in found["findings"] if finding.get("where") == f"pid {pid}")
        assert (finding["code"], finding["fix"]) == (
            "lost-log",
            f"cp /proc/{pid}/fd/1 rescued.log, before the process ends",
        )


def test_output_thrown_away_but_numbers_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        f"import os, time\nopen({str(tmp_path / '.pid')!r}, 'w').write(str(os.getpid()))\n"
        "f = open('metrics.jsonl', 'w')\nf.write('{\"step\": 7, \"loss\": 0.5}\\n')\nf.flush()\ntime.sleep(60)\n"
    )
    with shell("python train.py > /dev/null 2>&1", tmp_path) as pid:
        lines(tmp_path / "metrics.jsonl", 1)
        row = process(snapshot(tmp_path), pid)
        assert (row["log"]["kind"], row["numbers_from"]) == ("null", str(tmp_path / "metrics.jsonl"))
        assert (row["step"], row["metrics"]) == (7, {"loss": 0.5})


def test_a_tree_is_one_row(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, subprocess, sys, time\n"
        "if len(sys.argv) == 1:\n"
        "    workers = [subprocess.Popen([sys.executable, 'train.py', 'worker']) for _ in range(3)]\n"
        f"    open({str(tmp_path / '.pid')!r}, 'w').write(str(os.getpid()))\n"
        "print('step 1 loss 2.0', flush=True)\ntime.sleep(60)\n"
    )
    with shell("python train.py > x.log", tmp_path) as pid:
        lines(tmp_path / "x.log", 4)
        found = snapshot(tmp_path)
        row = process(found, pid)
        assert row["members"][0] == pid and len(row["members"]) == 4
        assert [r["pid"] for r in found["processes"] if r["cwd"] == str(tmp_path)] == [pid]


def test_whoever_asks_is_not_an_answer(tmp_path: Path) -> None:
    """An agent's own process tree, even when it looks like training."""
    asker = tmp_path / "train.py"
    asker.write_text("import os, subprocess, sys\nprint(os.getpid(), flush=True)\nsubprocess.run(sys.argv[1:])\n")
    command = [sys.executable, str(asker), sys.executable, str(SCRIPT), "snapshot", str(tmp_path), "--json"]
    pid, _, text = subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout.partition("\n")
    assert int(pid) not in [row["pid"] for row in strict(text)["processes"]]


def test_a_stopped_and_a_quiet_process(tmp_path: Path) -> None:
    with shell("python train.py > x.log", tmp_path) as pid:
        lines(tmp_path / "x.log")
        os.kill(pid, signal.SIGSTOP)
        wait_for("the stop", lambda: "State:\tT" in Path(f"/proc/{pid}/status").read_text())
        stopped = [f for f in snapshot(tmp_path)["findings"] if f.get("where") == f"pid {pid}"]
        assert [(f["code"], f["fix"]) for f in stopped] == [("stalled", f"kill -CONT {pid}")]
        os.kill(pid, signal.SIGCONT)
    (tmp_path / "train.py").write_text(
        f"import os, time\nprint('step 3 loss 1.0', flush=True)\nos.utime('x.log', (0, time.time() - 3000))\n"
        f"open({str(tmp_path / '.pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    )
    (tmp_path / ".pid").unlink()
    with shell("python train.py > x.log", tmp_path) as pid:
        done = run("snapshot", tmp_path)
        assert done.returncode == 1
        assert f"warn stalled: pid {pid} {tmp_path}/x.log: alive, but no new line for 50m0" in done.stdout


def test_total_from_the_command_line_and_mean_speed(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("step 10 loss 2.0\nstep 60 loss 1.0\n")  # resumed at 10
    trainer = trainers.Trainer(1, 0, ["python", "train.py", "--max-iters", "110", "--lr=1"], "", elapsed=100.0)
    trainer.log = streams.Output("file", str(log), readable=str(log))
    process = machine.Process(trainer, logs.read(log), age=0.0)
    machine.finish(process)
    summary = process.summary
    assert (summary.step, summary.total, summary.it_per_s, summary.eta) == (60, 110, 0.5, 100.0)
    trainer.elapsed = 5.0  # too young to tell
    process.summary = logs.read(log)
    machine.finish(process)
    assert (process.summary.total, process.summary.it_per_s, process.summary.eta) == (110, None, None)


@pytest.mark.parametrize(
    ("command", "trains"),
    [
        ("python train.py", True),
        ("python -u -m pkg.train --lr 1", True),
        ("python -m torch.distributed.run --nproc-per-node 2 main.py", True),
        ("python /venv/bin/torchrun main.py", True),
        ("python /venv/bin/accelerate launch main.py", True),
        ("python main.py --epochs 3", True),
        ("python main.py --max-steps=3", True),
        ("python -X dev finetune_lora.py", True),
        ("python pretrain.py", True),
        ("python serve.py --port 80", False),
        ("python constrained.py", False),
        ("python -m http.server", False),
        ("python scripts/gpu_gate.py -n x -- python train.py --epochs 3", False),
        ("python /venv/bin/tensorboard --logdir train", False),
        ("python -m pytest tests/test_train.py", False),
        ("python -c 'train()'", False),
    ],
)
def test_what_counts_as_training(command: str, trains: bool) -> None:
    assert bool(trainers.looks_like_training(command.split(" "))) is trains


def test_secrets_are_not_shown() -> None:
    text = "train.py --api-key abc123 --wandb_token=xyz --max_tokens 512 --password hunter2 HF=hf_abcdefghijk"
    assert trainers.redact(text) == "train.py --api-key *** --wandb_token=*** --max_tokens 512 --password *** HF=***"


# -- queues and terminals


def queue(found: dict[str, Any], tool: str) -> dict[str, Any]:
    row: dict[str, Any] = next(row for row in found["queues"] if row["tool"] == tool)
    return row


def test_tmux_pane_is_the_log_of_a_run_without_one(tmp_path: Path) -> None:
    need("tmux", "tmux")
    sockets = tmp_path / "tmux-0"
    sockets.mkdir()
    tmux = ["tmux", "-S", str(sockets / "private")]
    (tmp_path / "train.py").write_text(
        f"import os\nopen({str(tmp_path / '.pid')!r}, 'w').write(str(os.getpid()))\n" + TRAIN
    )
    subprocess.run([*tmux, "new-session", "-d", "-s", "night", f"{sys.executable} train.py"], cwd=tmp_path, check=True)
    try:
        pid = int(wait_for("the pid", lambda: (tmp_path / ".pid").exists() and (tmp_path / ".pid").read_text()))
        wait_for("a step", lambda: "step" in process(snapshot(tmp_path), pid))
        found = snapshot(tmp_path)
        row = process(found, pid)
        assert (row["log"]["kind"], row["log"]["via"], row["origin"]) == ("terminal", "tmux night", "tmux")
        assert row["numbers_from"] == "tmux night" and row["metrics"]["mfu"] == 31.2
        assert "night" in [job["session"] for job in queue(found, "tmux")["jobs"]]
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)


def test_tsp_jobs_and_no_server_where_none_runs(tmp_path: Path) -> None:
    need("tsp", "task-spooler")
    env = {"TS_SOCKET": str(tmp_path / "tsp.socket"), "TMPDIR": str(tmp_path)}

    def tsp(*arguments: str) -> str:
        return subprocess.run(
            ["tsp", *arguments], env={**os.environ, **env}, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    tsp("sleep", "60"), tsp("-L", "second", "echo", "two words")
    try:
        jobs = queue(snapshot(tmp_path, env=env), "tsp")["jobs"]
        assert [(job["id"], job["state"], job["command"]) for job in jobs] == [
            ("0", "running", "sleep 60"),
            ("1", "queued", "[second]echo two words"),
        ]
        server = _listener(tmp_path / "tsp.socket")
        kill(int(tsp("-p", "0")))
    finally:
        tsp("-K")
    wait_for("the server's end", lambda: not Path(f"/proc/{server}").exists())
    (tmp_path / "tsp.socket").touch()  # what a killed server leaves behind
    assert queue(snapshot(tmp_path, env=env), "tsp") == {"tool": "tsp", "jobs": [], "problem": "not running"}
    assert str(tmp_path) not in Path("/proc/net/unix").read_text()


def _listener(path: Path) -> int:
    for stat in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            environment = (stat.parent / "environ").read_bytes()
            if stat.read_bytes().startswith(b"tsp") and str(path).encode() in environment:
                return int(stat.parent.name)
    raise AssertionError("no tsp server")


def test_gpu_gate_jobs_also_of_a_queue_nobody_named(tmp_path: Path) -> None:
    directory = tmp_path / "queue"
    gate = [str(SCRIPTS / "gpu_gate.sh"), "--queue", str(directory), "-n", "nightly", "--slots", "1", "--detach", "--"]
    env = {**os.environ, "PYTHON": sys.executable}
    job = subprocess.run([*gate, "sleep", "60"], env=env, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    try:
        record = directory / "jobs" / f"{job}.json"
        wait_for("the job", lambda: json.loads(record.read_text())["state"] == "running")
        subprocess.run([*gate, "sleep", "61"], env=env, check=True, stdout=subprocess.DEVNULL)
        for arguments in ([], ["--queue", directory]):
            rows = [
                row for row in queue(snapshot(tmp_path, *arguments), "gpu_gate")["jobs"] if row["name"] == "nightly"
            ]
            assert [(row["state"], row["command"]) for row in rows] == [
                ("running", ["sleep", "60"]),
                ("queued", ["sleep", "61"]),
            ]
        assert f"gpu_gate: running {job} nightly sleep 60" in run("snapshot", tmp_path).stdout
    finally:
        names = [path.stem for path in (directory / "jobs").glob("*.json")]
        cancel = [
            sys.executable,
            str(SCRIPTS / "gpu_gate.py"),
            "cancel",
            "--queue",
            str(directory),
            *sorted(names, reverse=True),
        ]
        subprocess.run(cancel, check=True, stdout=subprocess.DEVNULL)


def test_a_tool_that_hangs_or_fails_is_a_row_that_says_so(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, body in (("squeue", "sleep 60 & wait"), ("docker", "echo 'no daemon here' >&2; exit 3")):
        (tools / name).write_text(f"#!/bin/sh\n{body}\n")
        (tools / name).chmod(0o755)
    start = time.monotonic()
    found = snapshot(tmp_path, env={"PATH": f"{tools}:{os.environ['PATH']}"})
    assert time.monotonic() - start < 15
    assert queue(found, "slurm")["problem"] == "no answer within 2 s"
    assert queue(found, "docker")["problem"] == "no daemon here"
    assert queue(snapshot(tmp_path, env={"PATH": "/nonexistent"}), "slurm")["problem"] == "not installed"


def test_slurm_jobs_and_where_they_run(tmp_path: Path) -> None:
    tools, work = tmp_path / "bin", tmp_path / "work"
    tools.mkdir()
    work.mkdir()
    (tools / "squeue").write_text(f"#!/bin/sh\nprintf '7\\tbig\\tRUNNING\\t1:00\\t2:00\\tnode1\\t{work}\\n'\n")
    (tools / "squeue").chmod(0o755)
    (work / "slurm-7.out").write_text("step 3 loss 0.5\n")
    found = snapshot(cwd=tmp_path, env={"PATH": f"{tools}:{os.environ['PATH']}"})
    assert queue(found, "slurm")["jobs"][0]["where"] == "node1"
    assert [row["step"] for row in found["runs"] if row["path"] == str(work / "slurm-7.out")] == [3]


# -- git


def git(directory: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        [need("git", "git"), "-C", str(directory), *identity, *arguments], check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    repository = tmp_path / "repo"
    repository.mkdir()
    git(repository, "init", "-q")
    for name in ("a.py", "b c.py", "old.py"):
        (repository / name).write_text(f"{name}\n" * 20)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "first")
    return repository


def test_git_state(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "remote.git")
    git(repository, "remote", "add", "origin", str(tmp_path / "remote.git"))
    git(repository, "push", "-q", "-u", "origin", "main")
    row = snapshot(repository)["git"][0]
    assert (row["branch"], row["upstream"], row["unpushed"], row["changed"]) == ("main", "origin/main", 0, 0)
    assert f"{repository} main {row['commit'][:10]} · clean and pushed" in run("snapshot", repository).stdout

    (repository / "a.py").write_text("changed")
    git(repository, "commit", "-qam", "second")
    (repository / "b c.py").write_text("changed")
    git(repository, "mv", "old.py", "new.py")
    (repository / "new file").touch()
    found = snapshot(repository)
    row = found["git"][0]
    assert (row["commit"], row["subject"]) == (git(repository, "rev-parse", "HEAD"), "second")
    assert (row["changed_files"], row["untracked_files"]) == (["b c.py", "new.py"], ["new file"])
    assert row["unpushed"] == 1
    assert {"code": "unsaved", "severity": "info", "message": "2 changed, 1 untracked, 1 commit on no remote",
            "path": str(repository)} in found["findings"]  # fmt: skip


def test_git_of_a_repository_without_a_commit_or_broken(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    row = snapshot(tmp_path)["git"][0]
    assert (row["branch"], row["commit"]) == ("main", None)
    (tmp_path / ".git" / "HEAD").write_text("nonsense")
    assert "not a git repository" in snapshot(tmp_path)["git"][0]["problem"]


# -- nothing changes


def listing(root: Path) -> dict[str, tuple[int, int, int]]:
    """Every entry with size, mtime and ctime: ctime tells even what was changed and put back."""
    found = {}
    for folder, folders, files in os.walk(root):
        for name in [".", *folders, *files]:
            status = os.lstat(Path(folder) / name)
            found[f"{folder}/{name}"] = (status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return found


def test_nothing_changes_on_disk(repository: Path, tmp_path: Path) -> None:
    make_runs(repository / "runs", 3)
    home, screens = tmp_path / "home", tmp_path / "tmp"
    home.mkdir()
    screens.mkdir()
    time.sleep(0.01)
    (repository / "a.py").touch()  # git would refresh its index for this
    before = listing(tmp_path)
    private = {"HOME": str(home), "TMPDIR": str(screens), "TMUX_TMPDIR": str(screens), "SCREENDIR": str(screens / "s")}
    environment = {**private, "TS_SOCKET": str(screens / "ts"), "XDG_STATE_HOME": str(home / "state"), "RGT_QUEUE": ""}
    found = snapshot(repository, "--seconds", "10", env=environment)
    assert len(found["runs"]) == 3
    assert listing(tmp_path) == before
    config = repository / "c.json"
    config.write_text(json.dumps({"output_dir": "runs"}))
    before = listing(tmp_path)
    run("validate", config, "--cwd", repository, env=environment)
    assert listing(tmp_path) == before


# -- runs and logs that nobody prepared


def by_path(found: dict[str, Any], root: Path) -> dict[str, dict[str, Any]]:
    return {os.path.relpath(run["path"], root): run for run in found["runs"]}


def test_every_kind_of_run_is_found(tmp_path: Path) -> None:
    hf = tmp_path / "hf"
    (hf / "checkpoint-500").mkdir(parents=True)
    history = [{"epoch": 0.5, "loss": 1.5, "step": 250}, {"epoch": 1.0, "eval_loss": 1.25, "step": 500}]
    state = {"global_step": 500, "max_steps": 1000, "num_train_epochs": 2, "log_history": history}
    (hf / "checkpoint-500" / "trainer_state.json").write_text(json.dumps(state, indent=2))
    lightning = tmp_path / "lightning_logs" / "version_3"
    lightning.mkdir(parents=True)
    (lightning / "metrics.csv").write_text("epoch,step,train_loss,val_acc\n0,49,0.5,\n0,49,,0.75\n1,99,0.25,\n")
    wandb = tmp_path / "wandb" / "offline-run-1" / "files"
    wandb.mkdir(parents=True)
    (wandb / "output.log").write_text("step 3 loss 0.5\n")
    (tmp_path / "slurm-77.out").write_text("Epoch 2/4 loss 0.5\n")
    (tmp_path / "nohup.out").write_text("step 9 loss 0.5\n")
    board = tmp_path / "board"
    board.mkdir()
    (board / "events.out.tfevents.1.host.2.0").write_bytes(b"x" * 100)
    prepared = rundir.create(tmp_path / "runs", "tiny", command=["x"], config={"steps": 40})
    prepared.log_metrics(step=30, split="train", loss=float("nan"))
    prepared.log.write_text("warming up\n")

    found = by_path(snapshot(tmp_path), tmp_path)
    assert found["hf"]["step"] == 500 and found["hf"]["total"] == 1000 and found["hf"]["epochs"] == 2
    assert found["hf"]["metrics"] == {"eval_loss": 1.25, "loss": 1.5}
    assert found["lightning_logs/version_3"]["step"] == 99
    assert found["lightning_logs/version_3"]["metrics"] == {"train_loss": 0.25, "val_acc": 0.75}
    assert found["wandb/offline-run-1/files/output.log"]["step"] == 3
    assert (found["slurm-77.out"]["epoch"], found["slurm-77.out"]["epochs"]) == (2, 4)
    assert found["nohup.out"]["step"] == 9
    assert found["board"]["tfevents"] is True
    row = found[f"runs/{prepared.id}"]
    assert (row["kind"], row["step"], row["total"], row["metrics"]["loss"]) == ("run", 30, 40, "NaN")
    assert row["problems"][0]["code"] == "nan"


def test_a_run_that_ended_badly_a_day_ago_is_listed_but_not_judged(tmp_path: Path) -> None:
    (tmp_path / "old.log").write_text("step 1 loss nan\n")
    (tmp_path / "new.log").write_text("step 1 loss nan\n")
    os.utime(tmp_path / "old.log", (0, time.time() - 90000))
    found = snapshot(tmp_path)
    assert [run["problems"][0]["code"] for run in found["runs"]] == ["nan", "nan"]
    mine = [finding for finding in found["findings"] if finding["code"] == "nan"]
    assert [(finding["path"], finding["evidence"]) for finding in mine] == [
        (str(tmp_path / "new.log"), "step 1 loss nan")
    ]


def test_two_hundred_runs_cost_less_than_two_seconds_of_cpu(tmp_path: Path) -> None:
    make_runs(tmp_path)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run("snapshot", tmp_path, "--seconds", "20")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2
    assert f"200 below {tmp_path}, newest first" in done.stdout and "... and 190 more (--json)" in done.stdout
    text = done.stdout.splitlines()
    assert len(text) < 50 and max(map(len, text)) <= 320


# -- hostile places


def test_places_that_hang_or_break_others(tmp_path: Path) -> None:
    (tmp_path / "good.log").write_text("step 5 loss 0.5\n")
    os.mkfifo(tmp_path / "train.log")
    os.mkfifo(tmp_path / "model.pt")
    (tmp_path / "binary.log").write_bytes(os.urandom(300_000))
    with (tmp_path / "huge.log").open("wb") as file:
        file.seek(5 << 30)
        file.write(b"\nstep 6 loss 0.5\n")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "ring").symlink_to("ring")
    (tmp_path / "dangling.log").symlink_to("nowhere")
    (tmp_path / "again.log").symlink_to("good.log")
    odd = os.fsdecode(b"caf\xe9 \xff.log")
    (tmp_path / odd).write_text("step 7 loss 0.5\n")
    (tmp_path / "new\nline.log").write_text("step 8 loss 0.5\n")
    crowd = tmp_path / "crowd"
    crowd.mkdir()
    for number in range(20_001):
        (crowd / f"{number}.txt").touch()
    deep = tmp_path / "/".join("d" * 40)
    deep.mkdir(parents=True)
    (deep / "deep.log").write_text("step 9 loss 0.5\n")

    found = snapshot(tmp_path, "--seconds", "10")
    steps = {os.path.relpath(run["path"], tmp_path): run.get("step") for run in found["runs"]}
    steps.pop("binary.log")  # noise may look like a number
    assert steps == {"good.log": 5, "huge.log": 6, odd: 7, "new\nline.log": 8}
    assert found["stopped"] == [f"{crowd} has 20000 entries or more; only the first were looked at"]
    assert "\\udcff.log" in run("snapshot", tmp_path).stdout


def bad_csv(run: Path) -> None:
    (run / "metrics.csv").write_text("step,loss\n1,0.5\n2," + "9" * 200_000 + "\n")


def bad_state(run: Path) -> None:
    (run / "trainer_state.json").write_text('{"global_step": 1e999, "max_steps": 100}')


def bad_total(run: Path) -> None:
    (run / "run.json").write_text(json.dumps({"config": {"steps": 10**400}}))
    (run / "train.log").write_text("step 5 loss 0.5, 3.0 it/s\n")


def fifo_record(run: Path) -> None:
    os.mkfifo(run / "run.json")
    (run / "train.log").write_text("step 5 loss 0.5\n")


def bad_speed(run: Path) -> None:
    (run / "train.log").write_text("step 5/100000 loss 0.5 it_per_s: 1e-320\n")


def bad_offsets(run: Path) -> None:
    header = b'{"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, Infinity]}}'
    (run / "a.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))


def bad_index(run: Path) -> None:
    safetensors(run / "model-00001-of-00002.safetensors")
    (run / "model.safetensors.index.json").write_text('{"weight_map": {"a": 1, "b": "x"}}')


def test_a_run_with_a_bad_file_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "good.log").write_text("step 5 loss 0.5\n")
    plants = (bad_csv, bad_state, bad_total, fifo_record, bad_speed, bad_offsets, bad_index)
    for plant in plants:
        (tmp_path / plant.__name__).mkdir()
        plant(tmp_path / plant.__name__)
    found = survey.look(tmp_path, time.monotonic() + 10)
    assert len(found.runs) == 1 + len(plants) and found.stopped == []
    shown = run("snapshot", tmp_path)
    assert "good.log: step 5" in shown.stdout and shown.stderr == ""


def test_a_directory_that_may_not_be_read() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become somebody else")
    with tempfile.TemporaryDirectory() as name:  # pytest's own directories are closed to others
        place = Path(name)
        place.chmod(0o755)
        (place / "closed").mkdir(mode=0o700)
        (place / "open.log").write_text("step 5 loss 0.5\n")
        found = as_nobody(lambda: survey.look(place, time.monotonic() + 10))
    assert found == [[5], [f"{place}/closed cannot be read: Permission denied"]]


def as_nobody(look: Callable[[], survey.Found]) -> Any:
    """In a forked child without rights: root reads everything."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            found = look()
            os.write(writer, json.dumps([[run.summary.step for run in found.runs], found.stopped]).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        return json.loads(file.read())


def test_the_walk_says_when_its_time_was_over(tmp_path: Path) -> None:
    make_runs(tmp_path, 20)
    found = snapshot(tmp_path, "--seconds", "0.0001")
    assert "the time was over" in found["stopped"][0]


def test_a_place_that_never_answers_costs_its_own_row() -> None:
    """As a read from a dead network mount: it cannot be interrupted, only left behind."""
    start = time.monotonic()
    results, problems = outside.together(
        {"dead": threading.Event().wait, "alive": lambda: 7, "sick": lambda: 1 / 0}, 0.3
    )
    assert time.monotonic() - start < 5
    assert results == {"alive": 7}
    assert problems == {"dead": "no answer within 0.3 s", "sick": "ZeroDivisionError: division by zero"}


def test_bad_input() -> None:
    missing = run("snapshot", "no/such/place")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "Directory 'no/such/place' does not exist." in missing.stderr
    assert run("validate", "no.yaml").returncode == run("cadence").returncode == run("log").returncode == 2


# -- checkpoints


def torch_zip(path: Path, size: int = 1000) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("m/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("m/data/0", os.urandom(size))
    return path


def safetensors(path: Path, extra: bytes = b"") -> Path:
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8) + extra)
    return path


def settled(path: Path) -> Path:
    os.utime(path, (0, time.time() - 1000))
    return path


def test_whole_checkpoints(tmp_path: Path) -> None:
    big = torch_zip(tmp_path / "b.pt", 10_000)
    cases = {torch_zip(tmp_path / "a.pt"): "read", safetensors(tmp_path / "a.safetensors"): "read"}
    for path, depth in cases.items():
        assert (ckpt.inspect(path).state, ckpt.inspect(path).depth) == ("ok", depth)
    assert (ckpt.inspect(big, read=5000).state, ckpt.inspect(big, read=5000).depth) == ("ok", "structure")
    assert ckpt.inspect(big, deadline=0).depth == "structure"  # no time left to read


def test_a_real_torch_checkpoint(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.ones(1000)}, tmp_path / "new.pt")  # with the ZIP64 records that zipfile leaves out
    assert ckpt.inspect(tmp_path / "new.pt", read=0).depth == "structure"
    torch.save({"w": torch.ones(1000)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert (ckpt.inspect(tmp_path / "new.pt").state, ckpt.inspect(tmp_path / "new.pt").depth) == ("ok", "read")
    assert ckpt.inspect(tmp_path / "old.pt").state == "unknown"


def _broken(tmp_path: Path) -> dict[str, Path]:
    whole = torch_zip(tmp_path / "x.pt").read_bytes()
    flipped = bytearray(whole)
    flipped[500] ^= 1
    (tmp_path / "cut.pt").write_bytes(whole[:-30])
    (tmp_path / "flipped.pt").write_bytes(flipped)
    (tmp_path / "hole.pt").write_bytes(whole[:100] + whole[200:])
    (tmp_path / "empty.pt").touch()
    (tmp_path / "zeros.pt").write_bytes(bytes(5000))
    (tmp_path / "pointer.pt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    (tmp_path / "page.pt").write_text("<!DOCTYPE html><html>403</html>")
    (tmp_path / "cut.safetensors").write_bytes(safetensors(tmp_path / "y.safetensors").read_bytes()[:-3])
    (tmp_path / "bomb.safetensors").write_bytes(struct.pack("<Q", 1 << 60) + b"{}")
    safetensors(tmp_path / "long.safetensors", b"xx")
    (tmp_path / "x.pt").unlink()
    (tmp_path / "y.safetensors").unlink()
    return {path.name: settled(path) for path in tmp_path.iterdir()}


def test_broken_checkpoints(tmp_path: Path) -> None:
    messages = {name: ckpt.inspect(path) for name, path in _broken(tmp_path).items()}
    assert {check.state for check in messages.values()} == {"broken"}
    assert {name: check.message for name, check in messages.items()} == {
        "cut.pt": "cut off: the directory at its end is missing",
        "flipped.pt": "m/data/0: Bad CRC-32 for file 'm/data/0'",
        "hole.pt": "its directory is damaged: it is not where the end of the file says",
        "empty.pt": "empty",
        "pointer.pt": "a git-LFS pointer, not the file itself: run git lfs pull",
        "page.pt": "a web page, not the file itself: the download was answered by an error",
        "zeros.pt": "starts with zeros: the space was reserved, the content never written",
        "cut.safetensors": "74 bytes, but its header says 77",
        "bomb.safetensors": f"cut off: the header alone would be {1 << 60} bytes",
        "long.safetensors": "79 bytes, but its header says 77",
    }
    fresh = tmp_path / "cut.pt"
    os.utime(fresh)
    assert ckpt.inspect(fresh).state == "writing"


def test_a_checkpoint_of_several_files(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-10"
    folder.mkdir()
    shards = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    safetensors(folder / shards["a"])
    assert ckpt.inspect(folder).message == "1 shards of its index are missing: model-00002-of-00002.safetensors"
    safetensors(folder / shards["b"])
    assert (ckpt.inspect(folder).state, ckpt.inspect(folder).depth) == ("ok", "read")
    (folder / "loop.pt").symlink_to(folder)
    assert ckpt.inspect(folder).state == "ok"
    run = snapshot(tmp_path)["runs"][0]
    assert run["checkpoints"]["count"] == 1 and run["checkpoints"]["newest"]["path"] == str(folder)


def test_snapshot_tells_a_broken_newest_checkpoint(tmp_path: Path) -> None:
    weights = tmp_path / "checkpoints"
    weights.mkdir()
    (tmp_path / "train.log").write_text("step 5 loss 0.5\n")
    settled(torch_zip(weights / "step_1.pt"))
    newest = torch_zip(weights / "step_2.pt")
    newest.write_bytes(newest.read_bytes()[:-30])
    os.utime(newest, (0, time.time() - 500))
    done = run("snapshot", tmp_path)
    assert done.returncode == 1
    assert re.search(r"train\.log: step 5, loss 0\.5 · 2 checkpoints, last 8m2\ds ago 1\.\d+ KiB BROKEN", done.stdout)
    message = "the newest checkpoint is broken: cut off: the directory at its end is missing; 1 older ones are there"
    assert f"error truncated: {newest}: {message}" in done.stdout


# -- validate


def validate(config: dict[str, Any], cwd: Path, *arguments: object, name: str = "c.json") -> list[tuple[str, str, str]]:
    path = cwd / name
    path.write_text(json.dumps(config))
    done = run("validate", path, "--cwd", cwd, "--python", sys.executable, *arguments, "--json")
    report = strict(done.stdout)
    assert done.returncode == (0 if report["ok"] else 1)
    return [(f["code"], f["where"], f["message"]) for f in report["findings"]]


def test_a_config_without_a_fault(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    for name in ("out", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "data" / "train.bin").touch()
    torch.save({"w": torch.ones(3)}, tmp_path / "out" / "ckpt.pt")
    config = {
        "python": sys.executable,
        "data": {"train_file": "data/train.bin", "val_data": "data/*.bin", "dataset": "openwebtext"},
        "trainer": {"resume_from": "out/ckpt.pt", "output_dir": "${root}/out", "learning_rate": 1e-4},
        "root": str(tmp_path),
        "model": {"name_or_path": "gpt2"},
    }
    assert validate(config, tmp_path) == []


def test_every_fault_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    cut = torch_zip(tmp_path / "cut.pt")
    cut.write_bytes(settled(cut).read_bytes()[:-30])
    settled(cut)
    config = {
        "trainer": {"resume_from": "gone.pt"},
        "ckpt_path": "cut.pt",
        "data_dir": "empty",
        "train_file": "no/such/train.bin",
        "val_files": ["x/*.bin"],
        "output_dir": "a/b/c",
        "log_dir": "file",
        "save_dir": "fresh",
        "cache_path": "$NOT_SET_ANYWHERE/x",
    }
    found = validate(config, tmp_path, "--no-load")
    assert sorted(found) == sorted([
        ("missing", "trainer.resume_from", f"{tmp_path}/gone.pt does not exist (the path is there up to {tmp_path})"),
        ("truncated", "ckpt_path", f"{tmp_path}/cut.pt: cut off: the directory at its end is missing"),
        ("missing", "data_dir", f"{tmp_path}/empty is empty"),
        ("missing", "train_file", f"{tmp_path}/no/such/train.bin does not exist (the path is there up to {tmp_path})"),
        ("missing", "val_files", f"nothing matches {tmp_path}/x/*.bin"),
        ("missing", "output_dir", f"{tmp_path}/a/b/c does not exist (the path is there up to {tmp_path})"),
        ("missing", "log_dir", f"{tmp_path}/file is a file, not a directory"),
        ("missing", "save_dir", f"{tmp_path}/fresh does not exist yet; the job must make it"),
        ("unresolved", "cache_path", "$NOT_SET_ANYWHERE/x holds a variable that is not set here; it was not checked"),
    ])  # fmt: skip


def test_a_path_that_is_right_only_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "job").mkdir()
    torch_zip(tmp_path / "conf" / "x.pt")
    config = tmp_path / "conf" / "c.yaml"
    config.write_text("a: 1\ntrainer:\n  resume_from: x.pt\n")
    done = run("validate", config, "--cwd", tmp_path / "job", "--python", sys.executable)
    assert done.returncode == 1
    assert done.stdout.startswith(
        f"error unresolved: {config}:3 trainer.resume_from: x.pt does not exist from {tmp_path}/job, where the job "
        f"runs, but it does from {tmp_path}/conf\n      fix: write {tmp_path}/conf/x.pt\n"
    )


def test_resume_loads_with_the_jobs_own_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    good, code, bad = tmp_path / "good.pt", tmp_path / "code.pt", tmp_path / "bad.pt"
    torch.save({"w": torch.ones(3)}, good)
    torch.save({"w": torch.ones(3), "hook": shutil.rmtree}, code)
    settled(torch_zip(bad))
    assert validate({"resume": str(good)}, tmp_path) == []
    assert [(c, w) for c, w, _ in validate({"resume": str(code)}, tmp_path)] == [("untrusted", "resume")]
    assert [(c, w) for c, w, _ in validate({"resume": str(bad)}, tmp_path)] == [("unloadable", "resume")]


def test_resume_by_word_means_the_newest_of_the_output(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    config = {"init_from": "resume", "out_dir": "out"}
    assert [c for c, _, _ in validate(config, tmp_path)] == ["missing"]
    torch_zip(settled(torch_zip(tmp_path / "out" / "ckpt.pt")))
    assert [c for c, _, _ in validate(config, tmp_path, "--no-load")] == []
    others = {
        "pretrained": True,
        "weights": "imagenet",
        "checkpoint": {"every": 5},
        "ckpt": 7,
        "loss": {"weights": [0.5]},
    }
    assert validate({**others, "out_dir": "out"}, tmp_path, name="c.yaml") == []
    for key, severity in (("pretrained", 0), ("ckpt_path", 1)):  # the id of a hub model, or a path with a mistake
        (tmp_path / "c.json").write_text(json.dumps({key: "org/name"}))
        assert (
            run("validate", tmp_path / "c.json", "--cwd", tmp_path, "--python", sys.executable).returncode == severity
        )
    for word in ("scratch", None, False, "gpt2-xl"):
        assert validate({"init_from": word, "out_dir": "out"}, tmp_path) == []


def test_the_interpreter_is_the_one_meant(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nexit 1\n")
    assert validate({"python": "./python"}, tmp_path)[0][2] == f"./python is not a program here (from {tmp_path})"
    fake.chmod(0o755)
    assert [(c, w) for c, w, _ in validate({"python": "./python"}, tmp_path)] == [("interpreter", "python")]
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / ".venv")], check=True)
    own = tmp_path / ".venv" / "bin" / "python"
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"python": sys.executable}))
    done = run("validate", path, "--cwd", tmp_path)
    assert f"the job would use {sys.executable}, but its directory has .venv\n      fix: name it: {own}" in done.stdout
    done = run("validate", path, "--cwd", tmp_path, "--python", own)
    assert f"the job would use {sys.executable}, not {own}" in done.stdout


def test_room_for_two_checkpoints(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=50", "tmpfs", str(disk)]).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        torch_zip(tmp_path / "x.pt", 3 << 20)
        found = validate({"resume": "x.pt", "output_dir": "disk"}, tmp_path, "--no-load")
        assert [(c, w) for c, w, _ in found] == [("no-space", "output_dir"), ("no-space", "output_dir")]
        assert found[0][2] == f"{disk}: 4 MiB free, two checkpoints take 6 MiB"
        assert "inodes free" in found[1][2]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.yaml", "a: [1", "line 1 is not YAML"),
        ("c.yaml", "- 1\n- 2\n", "is not a mapping"),
        ("c.yaml", "", "is not a mapping"),
        ("c.json", "{", "is not JSON"),
        ("c.json", "{}", "has no settings"),
        ("c.json", "[" * 100_000, "nested too deep"),
        ("c.py", "x = (", "is not Python"),
        ("c.yaml", b"\xff\xfe", "is not text in UTF-8"),
        ("c.yaml", "a: " + "[" * 5000, "nested too deep"),
    ],
)
def test_a_bad_config_is_one_sentence(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    done = run("validate", tmp_path / name)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {tmp_path / name}") and message in done.stderr
    assert done.stderr.count("\n") == 1


def test_yaml_that_would_explode_and_python_that_would_run(tmp_path: Path) -> None:
    rows = ["a: &a {resume_from: gone.pt}"] + [
        f"{c}: &{c} [*{p}, *{p}, *{p}, *{p}]" for p, c in zip("abcdefghij", "bcdefghijk", strict=True)
    ]
    (tmp_path / "c.yaml").write_text("\n".join(rows))
    assert run("validate", tmp_path / "c.yaml", "--cwd", tmp_path).returncode == 1
    (tmp_path / "c.py").write_text("import os\nout_dir = 'out'\nos.mkdir('ran')\nresume_from = 'gone.pt'\n")
    done = run("validate", tmp_path / "c.py", cwd=tmp_path)
    assert "c.py:4 resume_from" in done.stdout and not (tmp_path / "ran").exists()


# -- cadence


@pytest.mark.parametrize(
    ("arguments", "phase", "looks"),
    [
        ({"epochs": 100, "epoch": 0}, "startup", [5, 10, 15, 20, 30, 40]),
        ({"epochs": 500, "epoch": 0}, "startup", [10, 20, 30, 50, 100, 150]),
        ({"epochs": 2000, "epoch": 0}, "startup", [20, 40, 60, 100, 200, 300]),
        ({"epochs": 2000, "epoch": 460}, "steady", [500, 600, 700, 800, 900, 1000]),
        ({"epochs": 2000, "epoch": 460, "started": 455}, "startup", [475, 495, 515, 600, 700, 800]),
        ({"epochs": 2000, "epoch": 460, "unstable": 460}, "unstable", [465, 470, 475, 480, 485, 500]),
        ({"epochs": 2000, "epoch": 1950}, "steady", [2000]),
        ({"epochs": 3, "epoch": 0}, "startup", [1, 2, 3]),
        ({"epochs": 2000, "epoch": 460, "epoch_time": 7200.0}, "steady", [468, 480, 492, 504, 516, 528]),
        ({"epochs": 2000, "epoch": 0, "epoch_time": 1.0}, "startup", [60, 120, 180, 200, 300, 400]),
    ],
)
def test_cadence(arguments: dict[str, Any], phase: str, looks: list[int]) -> None:
    plan = cadence.plan(**{"started": 0, "unstable": None, "epoch_time": None, **arguments})
    assert (plan.phase, [plan.next_epoch, *plan.then]) == (phase, looks)


def test_cadence_prints_the_next_time() -> None:
    done = run("cadence", "--epochs", 2000, "--epoch", 40, "--epoch-time", "90s")
    at = time.gmtime(time.time() + 1800)
    assert done.stdout.startswith(f"next look: epoch 60 of 2000, in 30m00s, at {time.strftime('%Y-%m-%d %H:', at)}")
    assert done.stdout.endswith(
        "then: 100, 200, 300, 400, 500\nwhy: 3 looks every 20 epochs after the start at epoch 0\n"
    )
    assert strict(run("cadence", "--epochs", 9, "--epoch", 9, "--json").stdout)["phase"] == "over"


# -- log


def block(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    fixed = [
        "--event",
        "failure",
        "--decision",
        "stop",
        "--hypothesis",
        "shard 17 is bad",
        "--next",
        "python check.py 17",
    ]
    return run("log", *fixed, *arguments, cwd=cwd)


def test_a_block_tells_only_what_changed(repository: Path) -> None:
    (repository / "train.log").write_text("step 5 loss 0.5\n")
    first = block(".", "--path", "train.log", cwd=repository)
    text = (repository / "HANDOFF.md").read_text()
    commit = git(repository, "rev-parse", "HEAD")[:10]
    rows = first.stdout.splitlines()
    assert text == "# Handoff\n\n" + first.stdout
    assert rows[0].startswith("## 2") and rows[0].endswith("Z failure → stop")
    assert rows[2:5] == [
        "- hypothesis: shard 17 is bad", "- next: `python check.py 17`", f"- paths: {repository}/train.log",
    ]  # fmt: skip
    assert f"- state git {HOST}:{repository}: main {commit}, 1 untracked, 1 unpushed" in rows
    assert f"- state run {HOST}:{repository}/train.log: step 5, loss 0.5" in rows

    (repository / "train.log").write_text("step 9 loss 0.4\n")
    second = block(".", cwd=repository)
    states = [row for row in second.stdout.splitlines() if row.startswith("- state") and "process" not in row]
    assert states == [
        f"- state git {HOST}:{repository}: main {commit}, 2 untracked, 1 unpushed",
        f"- state run {HOST}:{repository}/train.log: step 9, loss 0.4",
    ]
    assert (repository / "HANDOFF.md").read_text() == text + "\n" + second.stdout

    (repository / "train.log").write_text("step 10 loss 0.3\n")
    third = block(".", cwd=repository).stdout.splitlines()
    assert [row for row in third if row.startswith(("- state git", "- state run"))] == [
        f"- state run {HOST}:{repository}/train.log: step 10, loss 0.3"
    ]


def test_the_same_again_adds_nothing(tmp_path: Path) -> None:
    block("--no-state", cwd=tmp_path)
    text = (tmp_path / "HANDOFF.md").read_text()
    done = block("--no-state", cwd=tmp_path)
    assert done.stdout == "nothing changed since the last block of HANDOFF.md; nothing was added\n"
    assert (tmp_path / "HANDOFF.md").read_text() == text


def test_a_process_that_ended_is_gone(tmp_path: Path) -> None:
    with shell("python train.py > x.log", tmp_path) as pid:
        lines(tmp_path / "x.log")
        done = block(".", cwd=tmp_path)
        assert (
            f"- state process {HOST}:{pid}: {sys.executable} train.py (cwd {tmp_path}, log {tmp_path}/x.log)"
            in done.stdout
        )
    wait_for("the end", lambda: not Path(f"/proc/{pid}").exists())
    assert f"- state process {HOST}:{pid}: gone\n" in block(".", cwd=tmp_path).stdout
    assert f":{pid}" not in block(".", cwd=tmp_path).stdout


def test_what_a_block_refuses(tmp_path: Path) -> None:
    two = block("--hypothesis", "and the learning rate", "--no-state", cwd=tmp_path)
    assert (two.returncode, two.stderr) == (
        2,
        "error: --hypothesis was given 2 times; a decision tests one at a time\n",
    )
    gone = block("--path", "gone.pt", "--no-state", cwd=tmp_path)
    assert gone.stderr == "error: --path gone.pt does not exist; a hand-over names only what the next one will find\n"
    for note in ("a\nb", "a\rb", " "):
        done = block("--note", note, "--no-state", cwd=tmp_path)
        assert done.stderr == "error: --note must be one line of text\n"
    assert block("--dry-run", "--no-state", cwd=tmp_path).stdout.startswith("## ")
    assert not (tmp_path / "HANDOFF.md").exists()


def test_a_block_names_a_path_that_is_not_utf_8(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9.pt")
    odd.touch()
    done = block("--path", odd, "--no-state", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "caf\\udce9.pt\n" in (tmp_path / "HANDOFF.md").read_text()


def test_another_host_is_not_judged_from_here(tmp_path: Path) -> None:
    (tmp_path / "HANDOFF.md").write_text(
        "## x launch → continue\n\n- state process other:5: python train.py\n- state run other:/gone: step 3\n"
    )
    assert "other" not in block(".", cwd=tmp_path).stdout


def test_two_hand_over_at_once(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "log", "--event", "launch", "--decision", "continue", "--no-state"]
    started = [
        subprocess.Popen([*command, "--hypothesis", f"h{n}", "--next", "x"], cwd=tmp_path, stdout=subprocess.DEVNULL)
        for n in range(8)
    ]
    assert [process.wait() for process in started] == [0] * 8
    text = (tmp_path / "HANDOFF.md").read_text()
    assert text.count("# Handoff\n") == 1 and text.count("\n## ") == 8
    assert sorted(row for row in text.splitlines() if row.startswith("- hyp")) == [
        f"- hypothesis: h{n}" for n in range(8)
    ]


def test_a_hand_over_waits_for_another_one(tmp_path: Path) -> None:
    path = tmp_path / "HANDOFF.md"
    command = [sys.executable, str(SCRIPT), "log", "--event", "launch", "--decision", "continue", "--no-state"]
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        second = subprocess.Popen(
            [*command, "--hypothesis", "h", "--next", "x"], cwd=tmp_path, stdout=subprocess.DEVNULL
        )
        wait_for("it to wait", lambda: re.search(rf"-> FLOCK .* {second.pid} ", Path("/proc/locks").read_text()))
        file.write("# Handoff\n\n- state run x: y\n")
    assert second.wait() == 0
    assert path.read_text().startswith("# Handoff\n\n- state run x: y\n\n## ")


def test_codes_are_known() -> None:
    assert {"nan", "oom", "crash", "killed", "hang", "no-space"} <= set(CODES)  # what a log's problems are called
