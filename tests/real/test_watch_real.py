"""watch.py on real cards (NVML), over a real ssh, inside a real limit."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from rgt import files

import pytest

from .nvml import GIB, Gpu, Nvml
from .sshd import Sshd
from .support import run, wait_for

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
