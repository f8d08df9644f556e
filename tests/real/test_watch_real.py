"""watch.py on real cards (NVML), over a real ssh, inside a real limit."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rgt import files

import pytest

from .dockerd import Dockerd
from .nvml import GIB, Gpu, Nvml
from .slurm import Slurm
from .sshd import Sshd
from .support import descendants, kill, run, wait_for

ROOT = Path(__file__).resolve().parents[2]
WATCH = [sys.executable, str(ROOT / "scripts" / "watch.py")]
LINES = "".join(f"step {n} loss {2 + (n % 7) / 100:.3f} 2.00it/s lr=0.0003\n" for n in range(60))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "run"
    path.mkdir()
    (path / "train.log").write_text("max_steps = 1000\n" + LINES)
    return path


def report(*words: object, env: dict[str, str] | None = None) -> dict[str, Any]:
    done = run([*WATCH, *map(str, words), "--json"], env=env, check=False)
    assert done.returncode in (0, 1), done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def codes(found: dict[str, Any]) -> dict[str, str]:
    rows = (row for row in found["findings"] if row["code"] not in ("no-space", "host-memory"))  # this machine's own
    return {f"{row['code']} {row.get('where', '')}".strip(): row["severity"] for row in rows}


# -- cards


def test_sick_cards_are_named_and_the_healthy_one_is_not(nvml: Nvml) -> None:
    nvml.set(
        [
            Gpu(utilization=97, temperature=70, processes=[(os.getpid(), GIB)], memory_used=GIB),
            Gpu(temperature=93, clocks_event_reasons=0x40),
            Gpu(ecc_uncorrected=3),
            Gpu(memory_used=30 * GIB),
            Gpu(lost=True),
        ]
    )
    found = report("box", env=nvml.env)
    assert codes(found) == {
        "gpu-hot GPU 1": "warn",
        "throttled GPU 1": "warn",
        "ecc GPU 2": "error",
        "held GPU 3": "warn",
        "gpu GPU 4": "error",
    }
    text = run([*WATCH, "box"], env=nvml.env, check=False).stdout
    assert "GPU 0 NVIDIA A100-SXM4-80GB: 97 %, 70 °C" in text and "sure: " in text
    nvml.set([Gpu(utilization=97, clocks_event_reasons=0x04)])  # at its power limit: that is what it was bought for
    assert codes(report("box", env=nvml.env)) == {}


def test_an_idle_card_is_seen_only_after_several_looks(nvml: Nvml, folder: Path) -> None:
    with (folder / "train.log").open("a") as writer:  # we are the run
        nvml.set([Gpu(utilization=1, processes=[(os.getpid(), GIB)], memory_used=GIB)])
        assert "gpu-idle GPU 0" not in codes(report(folder, env=nvml.env))
        state = files.read_json(folder / "watch" / "state.json")
        state["samples"] = [{**state["samples"][0], "time": time.time() - age} for age in (400, 200)]
        files.write_json(folder / "watch" / "state.json", state)
        found = report(folder, env=nvml.env)
        assert codes(found)["gpu-idle GPU 0"] == "warn"
        writer.flush()
    text = (folder / "training_status.md").read_text()
    assert "GPU 0: 1 %, 1 GiB of 80 GiB" in text


# -- over ssh


def connections(sshd: Sshd) -> int:
    return sshd.daemon.log.read_text(errors="replace").count("Accepted publickey")


def test_poll_is_one_connection_and_the_log_stays_there(sshd: Sshd, folder: Path, tmp_path: Path) -> None:
    env = {"RGT_SSH_CONFIG": str(sshd.config), "HOME": str(tmp_path)}
    words = ["poll", f"box:{folder}"]
    first = report(*words, env=env)
    assert (first["now"]["step"], first["where"], first["host"]) == (59, f"box:{folder}", "box")
    with (folder / "train.log").open("a") as file:
        file.write("step 60 loss nan\n")
    before = connections(sshd)
    done = run([*WATCH, *words, "--silence", "stalled"], env=env, check=False)
    assert connections(sshd) - before == 1
    assert done.returncode == 1 and "- step: 59 → 60" in done.stdout and "`nan`" in done.stdout
    assert (folder / "training_status.md").exists()  # the box has it, too
    gone = run([*WATCH, "poll", "box:/nowhere/run"], env=env, check=False)
    assert gone.returncode == 2 and "does not exist; give a run directory or a log" in gone.stderr
    sshd.stop()
    lost = run([*WATCH, *words], env=env, check=False)
    assert lost.returncode == 3 and "box cannot be reached" in lost.stderr


def test_daemon_on_a_box_with_python_alone(folder: Path, tmp_path: Path) -> None:
    """The bundle, under an interpreter that sees none of our packages, and without HOME or a shell."""
    from rgt.host import box

    name, data = box.build()
    bundle = tmp_path / name
    bundle.write_bytes(data)
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    version = run([python, "-c", "import sys; print(sys.version_info >= (3, 10))"]).stdout.strip()
    plain = [python if version == "True" else sys.executable, "-I", str(bundle)]
    started = json.loads(run([*plain, "watch", "daemon", str(folder), "--every", "1s", "--json"]).stdout)
    heartbeat = folder / "watch" / "heartbeat.json"
    wait_for("a heartbeat", heartbeat.exists, 40)
    with (folder / "train.log").open("a") as file:
        file.write("step 61 loss 1.9\nTraining finished\n")
    wait_for("its end", lambda: json.loads(heartbeat.read_text())["state"] == "ended", 40)
    assert json.loads(heartbeat.read_text())["process"]["pid"] == started["pid"]
    wait_for("the process's end", lambda: not Path(f"/proc/{started['pid']}").exists(), 40)
    assert "step 61" in (folder / "training_status.md").read_text()


def test_record_of_a_run_on_another_machine_is_looked_at_there(sshd: Sshd, tmp_path: Path) -> None:
    """The command that remote_train.py prints, `watch.py RUN`, for a run that launch.py put on a box."""
    from rgt.run import record

    there = tmp_path / "there"
    job = {"name": "tiny", "command": ["true"], "workdir": str(there), "output": "runs"}
    run_ = record.create(
        tmp_path / "here", "tiny", command=["true"], config=job, backend="ssh", job={"target": "ssh:box", "spec": job}
    )
    (there / "runs" / run_.id).mkdir(parents=True)
    (there / "runs" / run_.id / "train.log").write_text(LINES)
    env = {"RGT_SSH_CONFIG": str(sshd.config), "HOME": str(tmp_path)}
    found = report(run_.path, env=env)
    assert (found["now"]["step"], found["where"]) == (59, str(run_.path))
    assert "step 59" in run_.status.read_text()
    run_.log_event("failed", state="failed", exit_code=137)  # what launch.py status saw; the log there just stops
    found = report(run_.path, env=env)
    assert (found["now"]["state"], found["decision"]["word"]) == ("failed", "stop")
    assert found["findings"][0]["message"] == "the run failed: exit code 137" and not found["ok"]


# -- a job that was killed is dead at the first look after it

TRAINER = "import time; [print('step', n, 'loss', 3 - n / 50, flush=True) for n in range(60)]; time.sleep(600)"


def told(log: Path) -> bool:
    return log.exists() and "step 59" in log.read_text()


def states(log: Path, die: Callable[[], object], *words: str, env: Mapping[str, str]) -> list[str]:
    """What one look says while it lives, and the first one after its death."""
    wait_for("its steps", lambda: told(log), 60)
    living = report(*words, env=dict(env))
    die()
    dead = report(*words, env=dict(env))
    assert living["decision"]["word"] == "continue" and dead["decision"]["word"] == "stop", dead["findings"]
    return [living["now"]["state"], dead["now"]["state"]]


def test_killed_over_ssh(sshd: Sshd, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    pid = sshd.run(f'nohup {sys.executable} -c "{TRAINER}" > {log} 2>&1 < /dev/null & echo $!').stdout.strip()
    env = {"RGT_SSH_CONFIG": str(sshd.config), "HOME": str(tmp_path)}
    dies = lambda: (sshd.run(f"kill -9 {pid}"), wait_for("its end", lambda: not Path(f"/proc/{pid}").exists()))  # noqa: E731
    assert states(log, dies, "poll", f"box:{log}", env=env) == ["running", "lost"]


def test_killed_in_a_container(dockerd: Dockerd, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    options = ["-d", "--name", "killed", *dockerd.torch_mounts, "-v", f"{tmp_path}:/work", "-w", "/work"]
    dockerd.run(["run", *options, dockerd.image, "sh", "-c", f'exec {sys.executable} -c "{TRAINER}" > train.log'])
    env = {**dockerd.env, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    dies = lambda: (dockerd.run(["kill", "-s", "KILL", "killed"]), dockerd.run(["wait", "killed"]))  # noqa: E731
    assert states(log, dies, str(log), env=env) == ["running", "lost"]


def test_killed_in_a_slurm_job(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINER)
    script = f"echo $$ > pid; {sys.executable} train.py; exit $?"
    job = slurm.submit(script, f"--chdir={tmp_path}", "--output=slurm-%j.out")
    env = {**slurm.env, "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def dies() -> None:
        shell = int((tmp_path / "pid").read_text())
        kill([shell, *descendants(shell)])
        wait_for("its end", lambda: not Path(f"/proc/{shell}").exists())

    log = tmp_path / f"slurm-{job}.out"
    assert states(log, dies, str(log), env=env) == ["running", "lost"]
