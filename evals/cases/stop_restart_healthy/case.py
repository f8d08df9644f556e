"""Thirty-six logs full of scary lines, eight of them of runs that are really dead."""

from __future__ import annotations

import random
import stat
from collections.abc import Callable

from trials.case import ROOT, Box, Case, same_names

CORPUS = ROOT / "tests" / "triage"
DEAD = "oom_hf_bar nan_raise disk_full_save worker_killed ddp_unused inplace slurm_oom recovered_oom_then_quota"
HEALTHY = (
    "batch_finder nccl_info oom_recovered omp_notice tf_noise real_retry_traceback metric_error "
    "compile_warn tcpstore_end config_dump deprecations grad_norm_inf_once slurm_ok nan_safe wandb_sync "
    "pip_noise real_torchrun real_lightning real_grad_scaler_skips real_hf_trainer real_accelerate "
    "plain_0 plain_1 plain_2 plain_3 plain_4 plain_5 sigterm_saved "
).split()


def _truth() -> dict[str, str]:
    logs = [f"failures/{name}" for name in DEAD.split()] + [f"healthy/{name}" for name in HEALTHY]
    random.Random(36).shuffle(logs)
    return {f"run{number:02d}": log for number, log in enumerate(logs, 1)}


def _dead() -> list[str]:
    return [run for run, log in _truth().items() if log.startswith("failures/")]


def make(box: Box) -> None:
    (box.work / "logs").mkdir()
    for run, log in _truth().items():
        (box.work / "logs" / f"{run}.log").write_bytes((CORPUS / f"{log}.log").read_bytes())
    script = box.work / "restart.sh"
    script.write_text('#!/bin/sh\ncd "$(dirname "$0")" && echo "$1" >> restarts.txt && echo "restarting $1"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)


def verify(box: Box) -> list[str]:
    path = box.work / "restarts.txt"
    done = path.read_text().split() if path.exists() else []
    problems = same_names("restarted", done, _dead())
    if len(done) != len(set(done)):
        problems.append("a run was restarted twice")
    return problems + same_names("done.json", box.read("done.json")["restarted"], _dead())


def _restart(box: Box, is_dead: Callable[[str], bool]) -> None:
    restarted = [run for run in _truth() if is_dead(f"logs/{run}.log")]
    for run in restarted:
        box.run("./restart.sh", run)
    box.write("done.json", {"restarted": restarted})


def reference(box: Box) -> None:
    _restart(box, lambda log: not box.script("triage.py", log)["ok"])


def naive(box: Box) -> None:
    words = ("Error", "error", "nan", "Killed", "Traceback", "out of memory")
    _restart(box, lambda log: any(word in (box.work / log).read_text(errors="replace") for word in words))


CASE = Case(
    route="a run failed, what does this log mean?",
    minutes=8,
    commands=25,
    kind="stop",
    expected="Exactly the eight dead runs are restarted, once each.",
)
