"""takeover against real servers: GPUs that NVML reports, a Slurm job, a container."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .dockerd import Dockerd
from .nvml import GIB, Gpu, Nvml
from .slurm import Slurm
from .support import kill, need, run, wait_for

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "takeover.py"
TRAIN = (
    "import time\nfor step in range(1, 4000):\n    print(f'step {step} loss 0.5', flush=True)\n    time.sleep(0.02)\n"
)
NOBODY = 2**22 + 1  # above Linux's largest pid


def snapshot(directory: Path, env: Mapping[str, str]) -> dict[str, Any]:
    command = [sys.executable, str(SCRIPT), "snapshot", str(directory), "--json"]
    found: dict[str, Any] = json.loads(run(command, env=env, check=False).stdout)
    return found


def test_gpus_and_whoever_uses_them(nvml: Nvml, tmp_path: Path) -> None:
    log = (tmp_path / "odd.log").open("w")
    user = subprocess.Popen(["sh", "-c", "echo step 7 loss 0.5; exec sleep 60"], stdout=log, cwd=tmp_path)
    try:
        mine = [(user.pid, 30 * GIB)]
        nvml.set(
            [
                Gpu(memory_used=31 * GIB, utilization=97, processes=mine),
                Gpu(lost=True),
                Gpu(processes=[(user.pid, 2 * GIB), (NOBODY, None)], graphics_processes=[(os.getpid(), 5)]),
            ]
        )
        wait_for("the line", lambda: (tmp_path / "odd.log").read_text())
        found = snapshot(tmp_path, nvml.env)
        row = next(row for row in found["processes"] if row["pid"] == user.pid)
        assert (row["why"], row["gpus"], row["gpu_memory"]) == ("uses a GPU", [0, 2], 32 * GIB)
        assert (row["step"], row["log"]["path"]) == (7, str(tmp_path / "odd.log"))
        told = {(finding["code"], finding["severity"]): finding["message"] for finding in found["findings"]}
        assert told["gpu", "error"] == "GPU is lost"
        assert told["unseen", "info"] == f"pid {NOBODY} holds GPU 2 but is not visible here (another container?)"
        text = run([sys.executable, str(SCRIPT), "snapshot", str(tmp_path)], env=nvml.env, check=False).stdout
        assert f"0 NVIDIA A100-SXM4-80GB · 31 GiB of 80 GiB · 97 % · 35 C · pids {user.pid}" in text
        assert "GPU 0,2 32 GiB" in text
    finally:
        kill([user.pid])
        user.wait()
        log.close()


def test_a_driver_that_does_not_start(nvml: Nvml, tmp_path: Path) -> None:
    nvml.set([], init_error=9)  # NVML_ERROR_DRIVER_NOT_LOADED
    finding = next(finding for finding in snapshot(tmp_path, nvml.env)["findings"] if finding["code"] == "gpu")
    assert finding["message"] == "NVML does not start: Driver Not Loaded"


def test_a_slurm_job_and_its_output(slurm: Slurm, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    job = slurm.submit(
        f"exec {sys.executable} train.py", f"--chdir={tmp_path}", "--job-name=big", "--output=slurm-%j.out"
    )
    output = tmp_path / f"slurm-{job}.out"
    wait_for("its output", lambda: output.exists() and output.read_text().count("\n") > 3, 30)
    found = snapshot(tmp_path, slurm.env)
    row = next(row for row in found["queues"] if row["tool"] == "slurm")["jobs"][0]
    assert (row["id"], row["name"], row["state"], row["cwd"]) == (job, "big", "RUNNING", str(tmp_path))
    process = next(row for row in found["processes"] if row["cwd"] == str(tmp_path))
    assert (process["origin"], process["log"]["path"]) == (f"slurm job {job}", str(output))
    assert process["step"] > 1


def test_a_slurm_that_does_not_answer_is_one_word(tmp_path: Path) -> None:
    need("squeue", "slurm-client")
    (tmp_path / "slurm.conf").write_text("ClusterName=x\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=9\n")
    done = run(
        [sys.executable, str(SCRIPT), "snapshot", str(tmp_path)],
        env={"SLURM_CONF": str(tmp_path / "slurm.conf")},
        check=False,
    )
    told = next(line for line in done.stdout.splitlines() if "no answer" in line)  # a path may say slurm, too
    assert "slurm" in told and "squeue: error" not in done.stdout + done.stderr


def test_a_container_and_its_log(dockerd: Dockerd, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    options = ["-d", "--name", "job", *dockerd.torch_mounts, "-v", f"{tmp_path}:/work", "-w", "/work"]
    dockerd.run(["run", *options, dockerd.image, sys.executable, "train.py"])
    wait_for("its log", lambda: dockerd.run(["logs", "job"]).stdout.count("\n") > 3, 30)
    found = snapshot(tmp_path, dockerd.env)
    row = next(row for row in found["queues"] if row["tool"] == "docker")["jobs"][0]
    assert (row["name"], row["image"]) == ("job", dockerd.image)
    process = next(row for row in found["processes"] if row["container"] and row["command"][1:] == ["train.py"])
    assert (process["origin"], process["numbers_from"]) == ("a container", f"docker logs {row['id']}")
    assert process["step"] > 1
