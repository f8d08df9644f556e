"""Taking over: whatever runs is found with its numbers, whoever started it; hostile places neither hang nor break it;
nothing on disk changes."""

from __future__ import annotations

import fcntl
import json
import math
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import takeover
from bench.takeover import make_runs
from rgt import walk
from rgt.log import summary as logs
from rgt.machine import open_files, trainers
from rgt.run import discovery
from rgt.run import record as rundir
from rgt.takeover import screen
from rgt.takeover import snapshot as machine

import pytest

from . import front_door
from .front_door import git
from .real.support import need, wait_for

SCRIPTS = Path(__file__).resolve().parent.parent / "scripts"
SCRIPT = SCRIPTS / "takeover.py"
HOST = socket.gethostname()

TRAIN = """
import sys, time
print("max_iters = 5000", flush=True)
for step in range(1, 5001):
    print(f"iter {step}: loss {5 / step ** 0.5:.4f}, time 20.00ms, mfu 31.2%", flush=True)
    time.sleep(0.02)
"""


Env = dict[str, str]


def run(*arguments: object, cwd: Path | None = None, env: Env | None = None) -> subprocess.CompletedProcess[str]:
    return front_door.call("takeover.py", *arguments, cwd=cwd, env={"RGT_QUEUE": "/nonexistent/queue", **(env or {})})


def strict(text: str) -> Any:
    """JSON as other languages read it: no NaN."""
    return json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))


def snapshot(*arguments: object, cwd: Path | None = None, env: Env | None = None) -> dict[str, Any]:
    done = run("snapshot", *arguments, "--json", cwd=cwd, env=env)
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = strict(done.stdout)
    return found


def process(found: dict[str, Any], pid: int) -> Any:
    rows = {row["pid"]: row for row in found["processes"]}
    assert pid in rows, f"pid {pid} is not among {[(row['pid'], row['text'][:60]) for row in found['processes']]}"
    return rows[pid]


def lines(path: Path, count: int = 3) -> None:
    wait_for(f"{count} lines in {path}", lambda: path.exists() and path.read_bytes().count(b"\n") >= count)


@contextmanager
def shell(command: str, cwd: Path, program: str = TRAIN) -> Iterator[int]:
    """A command line as somebody would type it; gives the pid of the python process behind it, and ends both."""
    pidfile = cwd / ".pid"
    pidfile.unlink(missing_ok=True)
    cwd.mkdir(exist_ok=True)
    head = f"import os, sys\nif 'worker' not in sys.argv: open({str(pidfile)!r}, 'w').write(str(os.getpid()))\n"
    (cwd / "train.py").write_text(head + program)
    words = ["bash", "-c", command.replace("python", sys.executable)]
    starter = subprocess.Popen(words, cwd=cwd, start_new_session=True)
    try:
        yield int(wait_for("the pid", lambda: pidfile.exists() and pidfile.read_text()))
    finally:
        os.killpg(starter.pid, signal.SIGKILL)
        starter.wait()


def tree(root: Path, files: dict[str, str | bytes]) -> None:
    """Files with these contents, and the folders they need."""
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data.encode() if isinstance(data, str) else data)


def findings_of(found: dict[str, Any], pid: int) -> list[tuple[str, str]]:
    return [(f["code"], f["fix"]) for f in found["findings"] if f.get("where") == f"pid {pid}"]


@pytest.fixture(autouse=True)
def room_for_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other people's processes on this machine must not push those of a test off the screen."""
    monkeypatch.setattr(screen, "_PROCESSES", 1000)
    monkeypatch.setattr(screen, "_FINDINGS", 1000)


# -- processes


def test_a_process_started_by_hand_and_its_numbers(tmp_path: Path) -> None:
    there, log = tmp_path / "there", tmp_path / "there" / "weird.log"
    with shell("nohup python train.py --batch-size 8 > weird.log 2>&1 & wait", there) as pid:
        lines(log, 5)
        found = snapshot(cwd=tmp_path)  # it is found from anywhere
        row = process(found, pid)
        assert row["command"][1:] == ["train.py", "--batch-size", "8"]
        assert (row["cwd"], row["python"], row["user"]) == (str(there), sys.executable, "root")
        assert row["log"] == {"kind": "file", "path": str(log), "via": "", "readable": f"/proc/{pid}/fd/1"}
        assert row["step"] >= 4 and row["total"] == 5000 and row["it_per_s"] == 50.0
        assert row["metrics"]["mfu"] == 31.2 and row["metrics"]["loss"] == round(5 / row["step"] ** 0.5, 4)
        assert row["eta"] == (5000 - row["step"]) / 50 and 0 <= row["age"] < 5 and row["elapsed"] < 30
        assert row["origin"].startswith("by hand")
        assert [run["pid"] for run in found["runs"] if run["path"] == str(log)] == [pid]
        text = run("snapshot", cwd=tmp_path).stdout
        assert f"{pid} {sys.executable} train.py --batch-size 8" in text and f"log {log}, last line " in text


def test_runs_below_the_current_directory_come_first(tmp_path: Path) -> None:
    tree(tmp_path, {"here/old.log": "step 1 loss 1.0\nstep 2 loss 0.9\n"})
    os.utime(tmp_path / "here" / "old.log", (1e9, 1e9))
    with shell("python train.py > new.log", tmp_path / "there"):
        lines(tmp_path / "there" / "new.log")
        found = snapshot(cwd=tmp_path / "here")
        text = run("snapshot", cwd=tmp_path / "here").stdout
    paths = [row["path"] for row in found["runs"]]
    assert paths[0] == str(tmp_path / "here" / "old.log") and str(tmp_path / "there" / "new.log") in paths
    assert f"those below {tmp_path / 'here'} first; below" in text


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
        rescue = f"cp /proc/{pid}/fd/1 rescued.log, before the process ends"
        assert findings_of(found, pid) == [("lost-log", rescue)]


def test_output_thrown_away_but_numbers_elsewhere(tmp_path: Path) -> None:
    program = "import time\nf = open('metrics.jsonl', 'w')\nf.write('{\"step\": 7, \"loss\": 0.5}\\n')\nf.flush()\n"
    with shell("python train.py > /dev/null 2>&1", tmp_path, program + "time.sleep(60)\n") as pid:
        lines(tmp_path / "metrics.jsonl", 1)
        row = process(snapshot(tmp_path), pid)
        assert (row["log"]["kind"], row["numbers_from"]) == ("null", str(tmp_path / "metrics.jsonl"))
        assert (row["step"], row["metrics"]) == (7, {"loss": 0.5})


TREE = """
import subprocess, time
if len(sys.argv) == 1:
    workers = [subprocess.Popen([sys.executable, "train.py", "worker"]) for _ in range(3)]
print("step 1 loss 2.0", flush=True)
time.sleep(60)
"""


def test_a_tree_is_one_row(tmp_path: Path) -> None:
    with shell("python train.py > x.log", tmp_path, TREE) as pid:
        lines(tmp_path / "x.log", 4)
        found = snapshot(tmp_path)
        members = process(found, pid)["members"]
        assert members[0] == pid and len(members) == 4
        assert [row["pid"] for row in found["processes"] if row["cwd"] == str(tmp_path)] == [pid]


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
        assert findings_of(snapshot(tmp_path), pid) == [("stalled", f"kill -CONT {pid}")]
    quiet = "import time\nprint('step 3 loss 1.0', flush=True)\nos.utime('x.log', (0, time.time() - 3000))\n"
    with shell("python train.py > x.log", tmp_path, quiet + "time.sleep(60)\n") as pid:
        wait_for("the old log", lambda: (tmp_path / "x.log").stat().st_mtime < time.time() - 2000)
        done = run("snapshot", tmp_path)
        assert done.returncode == 1
        assert f"warn stalled: pid {pid} {tmp_path}/x.log: alive, but no new line for 50m0" in done.stdout


def test_total_from_the_command_line_and_mean_speed(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("step 10 loss 2.0\nstep 60 loss 1.0\n")  # resumed at 10
    trainer = trainers.Trainer(1, 0, ["python", "train.py", "--max-iters", "110", "--lr=1"], "", elapsed=100.0)
    trainer.log = open_files.Output("file", str(log), readable=str(log))
    process = machine.Process(trainer, logs.read(log), age=0.0)
    machine.finish(process)
    summary = process.summary
    assert (summary.step, summary.total, summary.it_per_s, summary.eta) == (60, 110, 0.5, 100.0)
    trainer.elapsed = 5.0  # too young to tell
    process.summary = logs.read(log)
    machine.finish(process)
    assert (process.summary.total, process.summary.it_per_s, process.summary.eta) == (110, None, None)


TRAINS = """
python train.py
python -u -m pkg.train --lr 1
python -m torch.distributed.run --nproc-per-node 2 main.py
python /venv/bin/torchrun main.py
python /venv/bin/accelerate launch main.py
python main.py --epochs 3
python main.py --max-steps=3
python -X dev finetune_lora.py
python pretrain.py
"""
DOES_NOT = """
python serve.py --port 80
python constrained.py
python -m http.server
python scripts/gpu_gate.py -n x -- python train.py --epochs 3
python /venv/bin/tensorboard --logdir train
python -m pytest tests/test_train.py
python -c 'train()'
"""


def test_what_counts_as_training() -> None:
    for text, trains in ((TRAINS, True), (DOES_NOT, False)):
        for command in text.strip().splitlines():
            assert bool(trainers.looks_like_training(command.split(" "))) is trains, command


# -- queues and terminals


def queue(found: dict[str, Any], tool: str) -> Any:
    return next(row for row in found["queues"] if row["tool"] == tool)


def test_tmux_pane_is_the_log_of_a_run_without_one(tmp_path: Path) -> None:
    need("tmux", "tmux")
    sockets = tmp_path / "tmux-0"
    sockets.mkdir()
    tmux = ["tmux", "-S", str(sockets / "private")]
    pidfile = tmp_path / ".pid"
    (tmp_path / "train.py").write_text(f"import os\nopen({str(pidfile)!r}, 'w').write(str(os.getpid()))\n{TRAIN}")
    subprocess.run([*tmux, "new-session", "-d", "-s", "night", f"{sys.executable} train.py"], cwd=tmp_path, check=True)
    try:
        pid = int(wait_for("the pid", lambda: pidfile.exists() and pidfile.read_text()))
        wait_for("a step", lambda: "step" in process(snapshot(tmp_path), pid))
        found = snapshot(tmp_path)
        row = process(found, pid)
        assert (row["log"]["kind"], row["log"]["via"], row["origin"]) == ("terminal", "tmux night", "tmux")
        assert row["numbers_from"] == "tmux night" and row["metrics"]["mfu"] == 31.2
        assert "night" in [job["session"] for job in queue(found, "tmux")["jobs"]]
    finally:
        subprocess.run([*tmux, "kill-server"], check=True)


def test_gpu_gate_jobs_also_of_a_queue_nobody_named(tmp_path: Path) -> None:
    directory = tmp_path / "queue"
    gate = [sys.executable, str(SCRIPTS / "gpu_gate.py"), "--queue", str(directory)]

    def submit(*command: str) -> str:
        return subprocess.check_output([*gate, "-n", "nightly", "--slots", "1", "--detach", "--", *command], text=True)

    job = submit("sleep", "60").strip()
    try:
        record = directory / "jobs" / f"{job}.json"
        wait_for("the job", lambda: json.loads(record.read_text())["state"] == "running")
        submit("sleep", "61")
        jobs = queue(snapshot(tmp_path), "gpu_gate")["jobs"]
        rows = [(row["state"], row["command"]) for row in jobs if row["name"] == "nightly"]
        assert rows == [("running", ["sleep", "60"]), ("queued", ["sleep", "61"])]
        assert f"gpu_gate: running {job} nightly sleep 60" in run("snapshot", tmp_path).stdout
    finally:
        names = sorted((path.stem for path in (directory / "jobs").glob("*.json")), reverse=True)
        subprocess.run([gate[0], gate[1], "cancel", *gate[2:], *names], check=True, stdout=subprocess.DEVNULL)


def program(path: Path, body: str) -> Env:
    """A program of that name and body, before all others on PATH."""
    return {"PATH": f"{front_door.executable(path, body).parent}:{os.environ['PATH']}"}


def test_a_tool_that_hangs_or_fails_is_a_row_that_says_so(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "squeue", "sleep 60 & wait")
    env = program(tmp_path / "bin" / "docker", "echo 'no daemon here' >&2; exit 3")
    start = time.monotonic()
    found = snapshot(tmp_path, env=env)
    assert time.monotonic() - start < 15
    assert queue(found, "slurm")["problem"] == "no answer within 2 s"
    assert queue(found, "docker")["problem"] == "no daemon here"
    assert queue(snapshot(tmp_path, env={"PATH": "/nonexistent"}), "slurm")["problem"] == "not installed"


# -- git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    repository = tmp_path / "repo"
    tree(repository, {name: f"{name}\n" * 20 for name in ("a.py", "b c.py", "old.py")})
    git(repository, "init", "-q")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "first")
    return repository


def test_git_state(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "--bare", "remote.git")
    git(repository, "remote", "add", "origin", str(tmp_path / "remote.git"))
    git(repository, "push", "-q", "-u", "origin", "main")
    row = snapshot(repository)["git"][0]
    assert (row["branch"], row["unpushed"], row["changed"]) == ("main", 0, 0)
    assert f"{repository} main {row['commit'][:10]} · clean and pushed" in run("snapshot", repository).stdout

    (repository / "a.py").write_text("changed")
    git(repository, "commit", "-qam", "second")
    (repository / "b c.py").write_text("changed")
    git(repository, "mv", "old.py", "new.py")
    (repository / "new file").touch()
    found = snapshot(repository)
    row = found["git"][0]
    assert row["commit"] == git(repository, "rev-parse", "HEAD")
    assert (row["changed_files"], row["untracked_files"]) == (["b c.py", "new.py"], ["new file"])
    assert row["unpushed"] == 1
    unsaved = next(finding for finding in found["findings"] if finding["code"] == "unsaved")
    message = "2 changed, 1 untracked, 1 commit on no remote"
    assert unsaved == {"code": "unsaved", "severity": "info", "message": message, "path": str(repository)}


def test_git_of_a_repository_without_a_commit_or_broken(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    row = snapshot(tmp_path)["git"][0]
    assert (row["branch"], row["commit"]) == ("main", None)
    (tmp_path / ".git" / "HEAD").write_text("nonsense")
    assert "not a git repository" in snapshot(tmp_path)["git"][0]["problem"]


# -- what the files of a project promise


def loose_ends(root: Path) -> dict[str, str]:
    found = snapshot(root, "--seconds", "20")["findings"]
    kept = [one for one in found if one["code"] in ("missing", "mixed")]
    return {os.path.relpath(one["path"], root): one["message"] for one in kept}


def test_pointers_paths_to_resume_from_and_pid_files_that_lead_nowhere(tmp_path: Path) -> None:
    weights = {f"{place}/{name}": b"x" for place in ("a", "b") for name in ("epoch_2.pth", "epoch_10.pth")}
    steps: dict[str, str | bytes] = {f"ds/global_step{n}/mp_rank_00_model_states.pt": b"x" for n in (900, 1000)}
    pointers = {"a/last_checkpoint": "/old/box/a/epoch_12.pth", "b/last_checkpoint": "b/epoch_2.pth"}
    configs = {"configs/next.yaml": "train:\n  resume_from: out/step_9.pt\n", "conf.py": "load_from = 'gone/x.pth'\n"}
    tree(tmp_path, {**weights, **steps, **pointers, **configs, "ds/latest": "global_step900", "old.pid": "4194304\n"})
    (tmp_path / "a" / "best.pth").symlink_to("epoch_11.pth")
    assert loose_ends(tmp_path) == {
        "a/last_checkpoint": "names epoch_12.pth, which is not there; the newest there is epoch_10.pth",
        "b/last_checkpoint": "names epoch_2.pth, and epoch_10.pth is newer",
        "ds/latest": "names global_step900, and global_step1000 is newer",
        "a/best.pth": "a link to epoch_11.pth, which is not there",
        "configs/next.yaml": "train.resume_from is out/step_9.pt, which does not exist",
        "conf.py": "load_from is gone/x.pth, which does not exist",
        "old.pid": "names pid 4194304; no process here has that number any more",
    }


def test_pointers_and_paths_that_hold_are_silent(tmp_path: Path) -> None:
    weights: dict[str, str | bytes] = {f"iter_{step:07d}/model.pt": b"x" for step in (100, 200)}
    configs = {"configs/a.yaml": "resume: iter_0000200/model.pt\nweights: imagenet\nckpt_path: null\n"}
    pointers = {"latest_checkpointed_iteration.txt": "200\n", "latest.log": "step 1\n", "me.pid": f"{os.getpid()}\n"}
    tree(tmp_path, {**weights, **configs, **pointers})
    assert loose_ends(tmp_path) == {}


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
    private = {"HOME": str(home), "TMPDIR": str(screens), "TMUX_TMPDIR": str(screens)}
    environment = {**private, "XDG_STATE_HOME": str(home / "state"), "RGT_QUEUE": ""}
    found = snapshot(repository, "--seconds", "10", env=environment)
    assert len(found["runs"]) == 3
    assert listing(tmp_path) == before
    config = repository / "c.json"
    config.write_text(json.dumps({"output_dir": "runs"}))
    before = listing(tmp_path)
    run("validate", config, "--cwd", repository, env=environment)
    assert listing(tmp_path) == before


# -- runs and logs that nobody prepared


HISTORY = [{"epoch": 0.5, "loss": 1.5, "step": 250}, {"epoch": 1.0, "eval_loss": 1.25, "step": 500}]
FOREIGN: dict[str, str | bytes] = {
    "hf/checkpoint-500/trainer_state.json": json.dumps(
        {"global_step": 500, "max_steps": 1000, "num_train_epochs": 2, "log_history": HISTORY}, indent=2
    ),
    "lightning_logs/version_3/metrics.csv": "epoch,step,train_loss,val_acc\n0,49,0.5,\n0,49,,0.75\n1,99,0.25,\n",
    "wandb/offline-run-1/files/output.log": "step 3 loss 0.5\n",
    "slurm-77.out": "Epoch 2/4 loss 0.5\n",
    "nohup.out": "step 9 loss 0.5\n",
    "board/events.out.tfevents.1.host.2.0": "x" * 100,
}


def test_every_kind_of_run_is_found(tmp_path: Path) -> None:
    tree(tmp_path, FOREIGN)
    prepared = rundir.create(tmp_path / "runs", "tiny", command=["x"], config={"steps": 40})
    prepared.log_metrics(step=30, split="train", loss=float("nan"))
    prepared.log.write_text("warming up\n")
    found = {os.path.relpath(run["path"], tmp_path): run for run in snapshot(tmp_path)["runs"]}
    expected: dict[str, dict[str, Any]] = {
        "hf": {"step": 500, "total": 1000, "epochs": 2, "metrics": {"eval_loss": 1.25, "loss": 1.5}},
        "lightning_logs/version_3": {"step": 99, "metrics": {"train_loss": 0.25, "val_acc": 0.75}},
        "wandb/offline-run-1/files/output.log": {"step": 3},
        "slurm-77.out": {"epoch": 2, "epochs": 4},
        "nohup.out": {"step": 9},
        "board": {"tfevents": True},
        f"runs/{prepared.id}": {"kind": "run", "step": 30, "total": 40, "metrics": {"loss": "NaN"}},
    }
    assert {name: {key: found[name][key] for key in facts} for name, facts in expected.items()} == expected
    assert found[f"runs/{prepared.id}"]["problems"][0]["code"] == "nan"


def test_a_run_that_ended_badly_a_day_ago_is_listed_but_not_judged(tmp_path: Path) -> None:
    tree(tmp_path, {"old.log": "step 1 loss nan\n", "new.log": "step 1 loss nan\n"})
    os.utime(tmp_path / "old.log", (0, time.time() - 90000))
    found = snapshot(tmp_path)
    # it lists what other tests run at this moment, too
    runs = [run for run in found["runs"] if str(run.get("log", "")).startswith(f"{tmp_path}/")]
    assert [run["problems"][0]["code"] for run in runs] == ["nan", "nan"]
    told = [(finding["path"], finding["evidence"]) for finding in found["findings"] if finding["code"] == "nan"]
    mine = [row for row in told if row[0].startswith(f"{tmp_path}/")]
    assert mine == [(str(tmp_path / "new.log"), "step 1 loss nan")]


def curve(values: list[float], of: int = 0, end: str = "") -> str:
    rows = [f"epoch {n}/{of or len(values)} loss {value:.4f} val_acc 0.{80 + n}" for n, value in enumerate(values, 1)]
    return "\n".join([*rows, end, ""])


def test_a_project_at_rest_is_judged_whole(tmp_path: Path) -> None:
    """Two years old, and nobody else will say it: what stopped, diverged, was cut or is quoted wrongly."""
    falls = [2.0 / n for n in range(1, 13)]
    tree(
        tmp_path,
        {
            "runs/good/train.log": curve(falls, end="training finished"),
            "runs/good/results.json": '{"epoch": 12, "val_acc": 0.92, "test_acc": 0.5}',
            "runs/short/train.log": curve(falls[:5], of=12),
            "runs/typed/train.log": curve(falls, end="training finished"),
            "runs/typed/results.json": '{"val_acc": 0.97}',
            "runs/td3/progress.csv": "step,actor_loss,critic_loss\n"
            + "".join(f"{n}000,-0.2,{1 if n < 20 else 3.0 ** (n - 19):.1f}\n" for n in range(32)),
            "runs/cut/train.log": curve(falls, end="training finished"),
            "runs/cut/step_1.pt": "",
            "runs/loop/train.log": ("resuming\n" + curve(falls[:3], of=50)) * 4,
            "tf/checkpoint": 'model_checkpoint_path: "ckpt-10"\nall_model_checkpoint_paths: "ckpt-10"\n',
            "tf/ckpt-8.index": "x",
            "tf/weights.h5": "",
            "go.sh": "# --resume old.pt\npython train.py --resume=runs/gone.pt --data x\n",
        },
    )
    (tmp_path / "runs" / "latest").symlink_to("r4/ckpt.pt")
    for path in tmp_path.rglob("*.*"):
        os.utime(path, (1.7e9, 1.7e9), follow_symlinks=False)
    shown = [one for one in snapshot(tmp_path, "--seconds", "20")["findings"] if str(tmp_path) in one["path"]]
    told = {(one["code"], os.path.relpath(one["path"], tmp_path)): one["message"] for one in shown}
    assert told.keys() == {
        ("unfinished", "runs/short/train.log"),
        ("unexplained", "runs/typed/results.json"),
        ("diverged", "runs/td3/progress.csv"),
        ("truncated", "runs/cut/step_1.pt"),
        ("unfinished", "runs/loop/train.log"),
        ("restarts", "runs/loop/train.log"),
        ("missing", "runs/latest"),
        ("missing", "tf/checkpoint"),
        ("truncated", "tf/weights.h5"),
        ("missing", "go.sh"),
    }
    assert "stopped at epoch 5 of 12" in told["unfinished", "runs/short/train.log"]
    assert "val_acc is 0.97 and disagrees" in told["unexplained", "runs/typed/results.json"]
    assert told["missing", "tf/checkpoint"] == "names ckpt-10, which is not there; the newest there is ckpt-8"
    assert told["missing", "go.sh"] == "resume is runs/gone.pt, which does not exist"


# -- hostile places


def test_places_that_hang_or_break_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "_CROWDED", 1000)
    odd, deep, crowd = os.fsdecode(b"caf\xe9 \xff.log"), "/".join("d" * 40) + "/deep.log", tmp_path / "crowd"
    for number, name in ((5, "good.log"), (7, odd), (8, "new\nline.log"), (9, deep)):
        tree(tmp_path, {name: f"step {number} loss 0.5\n"})
    tree(crowd, {f"{number}.txt": "" for number in range(201)})
    tree(tmp_path, {"binary.log": os.urandom(300_000)})
    os.mkfifo(tmp_path / "train.log")
    os.mkfifo(tmp_path / "model.pt")
    with (tmp_path / "huge.log").open("wb") as file:
        file.seek(5 << 30)
        file.write(b"\nstep 6 loss 0.5\n")
    (tmp_path / "loop").symlink_to(tmp_path)
    (tmp_path / "ring").symlink_to("ring")
    (tmp_path / "dangling.log").symlink_to("nowhere")
    (tmp_path / "again.log").symlink_to("good.log")

    found = snapshot(tmp_path, "--seconds", "10")
    steps = {os.path.relpath(run["path"], tmp_path): run.get("step") for run in found["runs"]}
    steps.pop("binary.log")  # noise may look like a number
    assert steps == {"good.log": 5, "huge.log": 6, odd: 7, "new\nline.log": 8, deep: 9}
    assert found["stopped"] == [f"{crowd} has 200 entries or more; only the first were looked at"]
    done = subprocess.run([sys.executable, str(SCRIPT), "snapshot", str(tmp_path)], capture_output=True, text=True)
    assert "\\udcff.log" in done.stdout  # what a terminal of its own gets


HEADER = b'{"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}    '
SAFETENSORS = struct.pack("<Q", len(HEADER)) + HEADER + bytes(8)
BAD_RUNS: dict[str, str | bytes] = {
    "csv/metrics.csv": "step,loss\n1,0.5\n2," + "9" * 200_000 + "\n",
    "state/trainer_state.json": '{"global_step": 1e999, "max_steps": 100}',
    "total/run.json": '{"config": {"steps": 1' + "0" * 400 + "}}",
    "total/train.log": "step 5 loss 0.5, 3.0 it/s\n",
    "speed/train.log": "step 5/100000 loss 0.5 it_per_s: 1e-320\n",
    "offsets/a.safetensors": SAFETENSORS.replace(b"8]}}    ", b"1e999]}}"),
    "index/model-00001-of-00002.safetensors": SAFETENSORS,
    "index/model.safetensors.index.json": '{"weight_map": {"a": 1, "b": "x"}}',
    "fifo/train.log": "step 5 loss 0.5\n",  # and a run.json that would block whoever opens it
}


def test_a_run_with_a_bad_file_hides_no_other(tmp_path: Path) -> None:
    tree(tmp_path, {"good.log": "step 5 loss 0.5\n", **BAD_RUNS})
    os.mkfifo(tmp_path / "fifo" / "run.json")
    found = discovery.discover(tmp_path, math.inf)
    assert len(found.runs) == 1 + len({name.partition("/")[0] for name in BAD_RUNS}) and found.stopped == []
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
        os.seteuid(65534)  # root reads everything
        try:
            found = discovery.discover(place, math.inf)
        finally:
            os.seteuid(0)
    assert [run.summary.step for run in found.runs] == [5]
    assert found.stopped == [f"{place}/closed cannot be read: Permission denied"]


def test_the_walk_says_when_its_time_was_over(tmp_path: Path) -> None:
    make_runs(tmp_path, 20)
    found = snapshot(tmp_path, "--seconds", "0.0001")
    assert "the time was over" in found["stopped"][0]


def test_bad_input() -> None:
    missing = run("snapshot", "no/such/place")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "Directory 'no/such/place' does not exist." in missing.stderr
    assert run("validate", "no.yaml").returncode == run("cadence").returncode == run("log").returncode == 2


# -- checkpoints


def torch_zip(path: Path, size: int = 1000) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("m/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("m/version", b"3\n")
        archive.writestr("m/data/0", os.urandom(size))
    return path


def settled(path: Path) -> Path:
    os.utime(path, (0, time.time() - 1000))
    return path


def test_snapshot_tells_a_broken_newest_checkpoint(tmp_path: Path) -> None:
    weights = tmp_path / "checkpoints"
    weights.mkdir()
    tree(tmp_path, {"train.log": "step 5 loss 0.5\n"})
    settled(torch_zip(weights / "step_1.pt"))
    newest = torch_zip(weights / "step_2.pt")
    newest.write_bytes(newest.read_bytes()[:-30])
    os.utime(newest, (0, time.time() - 500))
    done = run("snapshot", tmp_path)
    assert done.returncode == 1
    assert re.search(r"train\.log: step 5, loss 0\.5 · 2 checkpoints, last 8m2\ds ago 1\.\d+ KiB BROKEN", done.stdout)
    message = "the newest checkpoint is broken: the zip's directory is missing: the end of the file is not there"
    assert f"error truncated: {newest}: {message}; 1 older ones are there" in done.stdout


# -- validate

CUT_ZIP = "the zip's directory is missing: the end of the file is not there"


def validate(config: dict[str, Any], cwd: Path, *arguments: object, name: str = "c.json") -> list[tuple[str, str, str]]:
    path = cwd / name
    path.write_text(json.dumps(config))
    done = run("validate", path, "--cwd", cwd, "--python", sys.executable, *arguments, "--json")
    report = strict(done.stdout)
    assert done.returncode == (0 if report["ok"] else 1)
    return [(f["code"], f["where"], f["message"]) for f in report["findings"]]


def test_a_config_without_a_fault(tmp_path: Path) -> None:
    tree(tmp_path, {"data/train.bin": "", "out/log": ""})
    torch_zip(tmp_path / "out" / "ckpt.pt")
    data = {"train_file": "data/train.bin", "val_data": "data/*.bin", "dataset": "openwebtext"}
    trainer = {"resume_from": "out/ckpt.pt", "output_dir": "out", "learning_rate": 1e-4}
    config = {"model": {"name_or_path": "gpt2"}}
    assert validate({**config, "data": data, "trainer": trainer}, tmp_path) == []


def test_every_fault_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    cut = torch_zip(tmp_path / "cut.pt")
    cut.write_bytes(cut.read_bytes()[:-30])
    settled(cut)
    missing = f"does not exist (the path is there up to {tmp_path})"
    unset = "holds a variable that is not known here; it was not checked"
    faults: dict[str, tuple[Any, str, str]] = {  # key -> value, code, message
        "trainer.resume_from": ("gone.pt", "missing", f"{tmp_path}/gone.pt {missing}"),
        "ckpt_path": ("cut.pt", "truncated", f"{tmp_path}/cut.pt: {CUT_ZIP}"),
        "data_dir": ("empty", "missing", f"{tmp_path}/empty is empty"),
        "train_file": ("no/such/train.bin", "missing", f"{tmp_path}/no/such/train.bin {missing}"),
        "val_files": (["x/*.bin"], "missing", f"nothing matches {tmp_path}/x/*.bin"),
        "log_dir": ("file", "missing", f"{tmp_path}/file is a file, not a directory"),
        "out_dir": ("$NOT_SET_ANYWHERE/x", "unresolved", f"$NOT_SET_ANYWHERE/x {unset}"),
    }
    config = {key: value for key, (value, _, _) in faults.items() if "." not in key}
    found = validate({**config, "trainer": {"resume_from": "gone.pt"}}, tmp_path)
    assert sorted(found) == sorted((code, key, message) for key, (_, code, message) in faults.items())


def test_a_path_that_is_right_only_from_elsewhere(tmp_path: Path) -> None:
    tree(tmp_path, {"conf/c.yaml": "a: 1\ntrainer:\n  resume_from: x.pt\n", "job/train.py": ""})
    config = tmp_path / "conf" / "c.yaml"
    torch_zip(tmp_path / "conf" / "x.pt")
    done = run("validate", config, "--cwd", tmp_path / "job", "--python", sys.executable)
    assert done.returncode == 1
    assert done.stdout.startswith(
        f"error unresolved: {config} trainer.resume_from: x.pt does not exist from {tmp_path}/job, where the job "
        f"runs, but it does from {tmp_path}/conf\n      fix: write {tmp_path}/conf/x.pt\n"
    )


def test_resume_by_word_means_the_newest_of_the_output(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    config = {"init_from": "resume", "out_dir": "out"}
    assert [c for c, _, _ in validate(config, tmp_path)] == ["missing"]
    torch_zip(settled(torch_zip(tmp_path / "out" / "ckpt.pt")))
    assert [c for c, _, _ in validate(config, tmp_path)] == []
    others = {"pretrained": True, "weights": "imagenet", "checkpoint": {"every": 5}, "ckpt": 7}
    assert validate({**others, "loss": {"weights": [0.5]}, "out_dir": "out"}, tmp_path, name="c.yaml") == []
    (hub,), (slip,) = (validate({key: "org/name"}, tmp_path) for key in ("pretrained", "ckpt_path"))
    assert "taken for an id of the hub" in hub[2] and "org/name does not exist (" in slip[2]
    for word in ("scratch", None, False, "gpt2-xl"):
        assert validate({"init_from": word, "out_dir": "out"}, tmp_path) == []


def test_the_interpreter_of_the_job(tmp_path: Path) -> None:
    fake, config = tmp_path / "python", tmp_path / "c.json"
    fake.write_text("#!/bin/sh\nexit 1\n")
    config.write_text(json.dumps({"out_dir": "."}))
    done = run("validate", config, "--cwd", tmp_path, "--python", "./python")
    assert f"./python: {fake} is not executable" in done.stdout
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / ".venv")], check=True)
    own = tmp_path / ".venv" / "bin" / "python"
    done = run("validate", config, "--cwd", tmp_path, "--python", sys.executable)
    seen = f"the job would use {sys.executable}, but its directory has .venv\n      fix: name it: --python {own}"
    assert seen in done.stdout


def test_room_for_two_checkpoints(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=50", "tmpfs", str(disk)]).returncode:
        pytest.skip("tmpfs cannot be mounted here")
    try:
        torch_zip(tmp_path / "x.pt", 3 << 20)
        found = validate({"resume": "x.pt", "output_dir": "disk"}, tmp_path)
        assert [(c, w) for c, w, _ in found] == [("no-space", "output_dir")]
        assert found[0][2] == f"{disk}: 4 MiB free, two checkpoints take 6 MiB"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


BAD_CONFIGS = [
    ("c.yaml", "a: [1", "is not YAML: "),
    ("c.yaml", "- 1\n- 2\n", "has no settings"),
    ("c.json", "{", "is not JSON"),
    ("c.json", "[" * 100_000, "nested too deep"),
    ("c.py", "x = (", "is not Python"),
    ("c.yaml", b"\xff\xfe", "is not text: byte 0 is not UTF-8"),
    ("c.yaml", "a: " + "[" * 1200, "nested too deep"),
]


@pytest.mark.parametrize(("name", "text", "message"), BAD_CONFIGS)
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
    done = run("validate", tmp_path / "c.yaml", "--cwd", tmp_path)
    assert done.returncode == 2 and "its aliases make more than" in done.stderr
    (tmp_path / "c.py").write_text("import os\nout_dir = 'out'\nos.mkdir('ran')\nresume_from = 'gone.pt'\n")
    done = run("validate", tmp_path / "c.py", cwd=tmp_path)
    assert "c.py resume_from" in done.stdout and not (tmp_path / "ran").exists()


# -- cadence


LOOKS = [
    ({"epochs": 100, "epoch": 0}, "startup", 5),
    ({"epochs": 500, "epoch": 5}, "startup", 10),
    ({"epochs": 2000, "epoch": 60}, "steady", 100),
    ({"epochs": 2000, "epoch": 460, "started": 455}, "startup", 475),
    ({"epochs": 2000, "epoch": 460, "unstable": 460}, "unstable", 465),
    ({"epochs": 2000, "epoch": 1950}, "steady", 2000),
    ({"epochs": 3, "epoch": 0}, "startup", 1),
    ({"epochs": 2000, "epoch": 460, "epoch_time": 7200.0}, "steady", 468),
    ({"epochs": 2000, "epoch": 0, "epoch_time": 1.0}, "startup", 60),
]


@pytest.mark.parametrize(("arguments", "phase", "next_epoch"), LOOKS)
def test_cadence(arguments: dict[str, Any], phase: str, next_epoch: int) -> None:
    plan = takeover.plan_looks(**arguments)
    assert (plan.phase, plan.next_epoch) == (phase, next_epoch)


def test_cadence_prints_the_next_time() -> None:
    done = run("cadence", "--epochs", 2000, "--epoch", 40, "--epoch-time", "90s")
    at = time.gmtime(time.time() + 1800)
    assert done.stdout.startswith(f"next look: epoch 60 of 2000, in 30m00s, at {time.strftime('%Y-%m-%d %H:', at)}")
    assert done.stdout.endswith("\nwhy: 3 looks every 20 epochs after the start at epoch 0\n")
    assert strict(run("cadence", "--epochs", 9, "--epoch", 9, "--json").stdout)["phase"] == "over"


# -- log


BLOCK = ["--event", "failure", "--decision", "stop", "--hypothesis", "shard 17 is bad", "--next", "python check.py 17"]


def block(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run("log", *BLOCK, *arguments, cwd=cwd)


def test_a_block_tells_only_what_changed(repository: Path) -> None:
    (repository / "train.log").write_text("step 5 loss 0.5\n")
    first = block(".", "--path", "train.log", cwd=repository)
    text = (repository / "HANDOFF.md").read_text()
    commit = git(repository, "rev-parse", "HEAD")[:10]
    rows = first.stdout.splitlines()
    assert text == "# Handoff\n\n" + first.stdout
    assert rows[0].startswith("## 2") and rows[0].endswith("Z failure → stop")
    told = ["- hypothesis: shard 17 is bad", "- next: `python check.py 17`", f"- paths: {repository}/train.log"]
    assert rows[2:5] == told
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
    states = [row for row in third if row.startswith(("- state git", "- state run"))]
    assert states == [f"- state run {HOST}:{repository}/train.log: step 10, loss 0.3"]


def test_the_same_again_adds_nothing(tmp_path: Path) -> None:
    block("--no-state", cwd=tmp_path)
    text = (tmp_path / "HANDOFF.md").read_text()
    done = block("--no-state", cwd=tmp_path)
    assert done.stdout == "nothing changed since the last block of HANDOFF.md; nothing was added\n"
    assert (tmp_path / "HANDOFF.md").read_text() == text
    assert "failure → continue\n" in block("--no-state", "--decision", "continue", cwd=tmp_path).stdout
    assert "- next: `grep 'a  b' x`\n" in block("--no-state", "--next", "grep 'a  b' x", cwd=tmp_path).stdout


def test_a_process_that_ended_is_gone(tmp_path: Path) -> None:
    with shell("python train.py > x.log", tmp_path) as pid:
        lines(tmp_path / "x.log")
        done = block(".", cwd=tmp_path)
        state = f"{sys.executable} train.py (cwd {tmp_path}, log {tmp_path}/x.log)"
        assert f"- state process {HOST}:{pid}: {state}" in done.stdout
    wait_for("the end", lambda: not Path(f"/proc/{pid}").exists())
    assert f"- state process {HOST}:{pid}: gone\n" in block(".", cwd=tmp_path).stdout
    assert f":{pid}" not in block(".", cwd=tmp_path).stdout


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("lr is too high and also the data is bad", 2),
        ("the loader was starved; the cards are fine", 2),
        ("the spike at step 900 is shard 17, not the learning rate", 0),
        ("warm-up and decay together are too short", 0),
    ],
)
def test_a_hypothesis_is_one_cause(tmp_path: Path, text: str, code: int) -> None:
    words = ("--event", "failure", "--decision", "stop", "--next", "true", "--no-state", "--dry-run")
    done = run("log", *words, "--hypothesis", text, cwd=tmp_path)
    assert done.returncode == code and ("names two causes" in done.stderr) == (code == 2)


def test_what_a_block_refuses(tmp_path: Path) -> None:
    two = block("--hypothesis", "and the learning rate", "--no-state", cwd=tmp_path)
    sentence = "error: --hypothesis was given 2 times; a decision tests one at a time\n"
    assert (two.returncode, two.stderr) == (2, sentence)
    gone = block("--path", "gone.pt", "--no-state", cwd=tmp_path)
    assert gone.stderr == "error: --path gone.pt does not exist; a hand-over names only what the next one will find\n"
    for text in ("a\nb", "a\rb", " "):
        done = block("--next", text, "--no-state", cwd=tmp_path)
        assert done.stderr == "error: --next must be one line of text\n"
    assert block("--dry-run", "--no-state", cwd=tmp_path).stdout.startswith("## ")
    assert not (tmp_path / "HANDOFF.md").exists()


def test_a_block_names_a_path_that_is_not_utf_8(tmp_path: Path) -> None:
    odd = tmp_path / os.fsdecode(b"caf\xe9.pt")
    odd.touch()
    done = block("--path", odd, "--no-state", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "caf\\udce9.pt\n" in (tmp_path / "HANDOFF.md").read_text()


def test_another_host_is_not_judged_from_here(tmp_path: Path) -> None:
    old = "## x launch → continue\n\n- state process other:5: python train.py\n- state run other:/gone: step 3\n"
    (tmp_path / "HANDOFF.md").write_text(old)
    assert "other" not in block(".", cwd=tmp_path).stdout


def test_a_hand_over_waits_for_another_one(tmp_path: Path) -> None:
    path = tmp_path / "HANDOFF.md"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        command = [sys.executable, str(SCRIPT), "log", *BLOCK, "--no-state"]
        second = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL)
        wait_for("it to wait", lambda: re.search(rf"-> FLOCK .* {second.pid} ", Path("/proc/locks").read_text()))
        file.write("# Handoff\n\n- state run x: y\n")
    assert second.wait() == 0
    assert path.read_text().startswith("# Handoff\n\n- state run x: y\n\n## ")


def test_two_hundred_runs_are_told_in_a_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rgt.machine.processes.pids", lambda: [os.getpid()])  # not the machine's trainings
    make_runs(tmp_path)
    done = run("snapshot", tmp_path, "--seconds", "60")
    assert f"200 below {tmp_path}, newest first" in done.stdout and "... and 190 more (--json)" in done.stdout
    text = done.stdout.splitlines()
    assert len(text) < 50 and max(map(len, text)) <= 320


# -- runs that nobody computes any more


def old_log(folder: Path, seconds: float = 2880.0) -> Path:
    tree(folder, {"train.log": "".join(f"step {n} loss {3 - n / 50:.3f}\n" for n in range(60))})
    os.utime(folder / "train.log", (time.time() - seconds,) * 2)
    return folder


def test_unfinished_without_a_process_and_a_pid_file_of_another_run(tmp_path: Path) -> None:
    old_log(tmp_path / "r7")
    with shell("python train.py > train.log 2>&1", tmp_path / "r8") as pid:
        lines(tmp_path / "r8" / "train.log")
        (tmp_path / "r7" / "train.pid").write_text(f"{pid}\n")
        found = {row["code"]: row for row in snapshot(tmp_path)["findings"]}
    assert "the log ends without an error or an end; last line 48m" in found["unfinished"]["message"]
    assert f"train.pid names pid {pid}, which belongs to {tmp_path / 'r8'}" in found["mixed"]["message"]


def test_code_that_is_not_what_the_run_recorded(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(repository)
    (repository / "a.py").write_text("launched with this\n")
    run_dir = rundir.create(repository / "runs", "a", command=["x"], config={}, seeds={})
    run_dir.log.write_text("step 1 loss 2.5\n")
    assert snapshot(repository)["drift"] == []
    (repository / "a.py").write_text("another\n")
    (repository / "old.py").write_text("too\n")
    git(repository, "commit", "-qam", "second")
    (drift,) = snapshot(repository)["drift"]
    assert (drift["path"], drift["files"]) == (str(run_dir.path), ["a.py", "old.py"])


def test_what_was_asked_about_is_told_and_the_rest_is_one_line(tmp_path: Path) -> None:
    for name in ("mine", "a", "b", "c"):
        old_log(tmp_path / name)
    assert run("snapshot", tmp_path, cwd=tmp_path / "mine").stdout.count("unfinished") == 4
    text = run("snapshot", tmp_path / "mine", cwd=tmp_path / "a").stdout
    assert text.count("unfinished") == 1 and str(tmp_path / "b") not in text
