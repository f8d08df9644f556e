"""From submit to down without a pull: a run behind ssh ends in its store, and is believed only while that is true."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from rgt.checkpoint.names import STORE_PROOF

from ..front_door import executable
from ..gate_box import ROOT
from ..test_stores import TRAIN, Bench, moto, s3_bench
from .support import wait_for
from .test_transfer_ssh import Lab, lab

__all__ = ["lab", "moto", "s3_bench"]


def test_a_run_on_a_box_ends_in_its_store(lab: Lab, s3: Bench, tmp_path: Path) -> None:
    (lab.bin / "python3").unlink()
    executable(lab.bin / "python3", f'exec {s3.python} "$@"')  # a box with boto3
    keys = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
    env = {name: s3.env[name] for name in ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION")}
    spec: dict[str, Any] = {"name": "x", "command": [s3.python, "-c", TRAIN], "workdir": str(lab.home), "env": env}
    (tmp_path / "job.yaml").write_text(json.dumps({**spec, "secrets": keys, "store": "s3://box/runs"}))

    def tool(name: str, *words: object) -> subprocess.CompletedProcess[str]:
        command = [s3.python, str(ROOT / "scripts" / f"{name}.py"), *map(str, words)]
        own = {**s3.env, **lab.env, **lab.provider.env}
        return subprocess.run(command, capture_output=True, text=True, env=own, cwd=tmp_path, timeout=120)

    started = tool("launch", "submit", "job.yaml", "--on", "ssh:box")
    assert started.returncode == 0, started.stderr
    run = Path(started.stdout.strip())
    wait_for("the upload", (lab.home / "runs" / run.name / STORE_PROOF).exists)
    profile = lab.provider.folder / "fake.md"

    def against() -> list[str]:
        done = tool("transfer", "down", run, "--profile", profile, "--id", "pod-1", "--json")
        assert done.returncode == 4, done.stdout + done.stderr
        return [f"{one['code']}: {one['message']}" for one in json.loads(done.stdout)["findings"]]

    wait_for("only the user's word lacks", lambda: [line.split(":")[0] for line in against()] == ["unapproved"])
    assert (run / STORE_PROOF).is_file() and not list(run.rglob("*.npy"))
    s3.s3(f"s3.delete_object(Bucket='box', Key='runs/{run.name}/step_1.npy')")
    assert any("s3://box/runs" in line and "no longer holds 1 of" in line for line in against())
