from __future__ import annotations

import re
from pathlib import Path

from .slurm import Slurm
from .support import need, run, wait_for


def test_a_job_runs_to_its_end(slurm: Slurm, tmp_path: Path) -> None:
    job = slurm.submit("echo on $SLURMD_NODENAME as $SLURM_JOB_ID; exit 3", f"--output={tmp_path}/out")
    assert slurm.wait(job, "FAILED")["ExitCode"] == "3:0"
    assert (tmp_path / "out").read_text() == f"on {slurm.node} as {job}\n"
    assert slurm.wait(slurm.submit("true", f"--output={tmp_path}/out"), "COMPLETED")["ExitCode"] == "0:0"


def test_a_requeue_counts_the_restart(slurm: Slurm, tmp_path: Path) -> None:
    seen = tmp_path / "restarts"
    seen.touch()
    job = slurm.submit(f'echo "restart ${{SLURM_RESTART_COUNT:-0}}" >> {seen}; sleep 60', "--requeue")
    wait_for("the first start", lambda: seen.read_text() == "restart 0\n", 20)
    slurm.requeue(job)
    wait_for("the second start", lambda: seen.read_text() == "restart 0\nrestart 1\n", 20)


def test_jobs_share_the_gpus(slurm: Slurm, tmp_path: Path) -> None:
    for _ in range(2):
        script = f"touch {tmp_path}/gpu$CUDA_VISIBLE_DEVICES; sleep 60"
        slurm.submit(script, "--gres=gpu:1")
    wait_for("both jobs", lambda: {path.name for path in tmp_path.iterdir()} == {"gpu0", "gpu1"}, 20)


def test_it_listens_on_loopback_only(slurm: Slurm) -> None:
    ports = re.findall(r"Port=(\d+)", Path(slurm.env["SLURM_CONF"]).read_text())
    columns = [line.split() for line in run([need("ss", "iproute2"), "-Hltn"]).stdout.splitlines()]
    listening = {local for _, _, _, local, *_ in columns if local.rpartition(":")[2] in ports}
    assert listening == {f"127.0.0.1:{port}" for port in ports}
