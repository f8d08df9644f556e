"""The worked sweep runs as its README says: nine cells once each, all verified, an effect and a noise told apart."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from rgt import files
from rgt.run import record

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "autodl_sweep"


def sweep(folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = ["sh", str(EXAMPLE / "sweep.sh"), str(folder)]
    env = {**os.environ, "PATH": path, "RGT_QUEUE": str(folder.parent / "queue")}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_sweep_runs_as_it_is(tmp_path: Path) -> None:
    out = sweep(tmp_path / "sweep")
    for line in (
        "9 would be submitted to local, 0 left alone, of 9 cells",
        "9 submitted, 0 left alone, of 9 cells",
        "0 submitted, 9 left alone, of 9 cells",
        "9 expected = 9 verified + 0 failed; 9 submitted, 9 finished",
        "EFFECT: A vs B in accuracy",
        "NOISE: A vs B in accuracy",
    ):
        assert line in out, out
    assert "RGT_CELL" not in out  # the sweep's own mark on a cell is no second variable
    runs = record.find(tmp_path / "sweep" / "runs")
    assert len(runs) == 9
    assert all(row["split"] == "val" for run in runs for row in files.read_json(run.results, "results")["metrics"])
    assert not (EXAMPLE / "runs").exists()
