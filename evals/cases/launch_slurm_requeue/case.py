"""A batch script that warns, waits, requeues, and does none of it at the wrong time; it is run, not read."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from trials.case import Box, Case, Missing
from worlds import slurm

TRAIN = """\
import argparse, os, pathlib, signal, sys, time

parser = argparse.ArgumentParser()
parser.add_argument("--out", type=pathlib.Path, required=True)
out = parser.parse_args().out
out.mkdir(parents=True, exist_ok=True)
stop = False


def on_term(*_):
    global stop
    stop = True


signal.signal(signal.SIGTERM, on_term)
plan = os.environ.get("TOY_PLAN", "long")  # how this toy of the real training behaves
print("resuming from", (out / "ckpt").read_text() if (out / "ckpt").exists() else "scratch", flush=True)
(out / "started").touch()
for step in range(100 if plan == "long" else 4):
    time.sleep(0.1)
    if stop:
        if plan == "finishes":
            sys.exit(0)
        time.sleep(0.8)  # minutes, in the real one
        (out / "ckpt").write_text(f"step {step}")
        sys.exit(85)
sys.exit(int(plan) if plan.isdigit() else 0)
"""
SPEC = """\
name: pre
command: [python, train.py, --out, "{run}"]
gpus_per_node: 4
hardware: {cpus: 32, memory: 240GB}
time_limit: 24h
grace: 5m
max_restarts: 6
output: runs
"""


def make(box: Box) -> None:
    box.write("train.py", TRAIN)
    (box.work / "runs" / "pre").mkdir(parents=True)


def _megabytes(memory: re.Match[str]) -> int:
    return int(memory[1]) * (1024 if memory[2] == "G" else 1)


def _header(given: dict[str, str], work: Path) -> list[str]:
    warned = slurm.warning(given)
    gpus = " ".join(given.get(key, "") for key in ("gres", "gpus", "gpus-per-node", "gpus-per-task"))
    memory = re.fullmatch(r"(\d+)([GM]?)B?", given.get("mem", ""))
    log = Path(given.get("chdir") or "nowhere") / given.get("output", "")
    checks = {
        "four GPUs": bool(re.search(r"(?:^|[:\s])4\b", gpus)),
        "32 CPUs": given.get("cpus-per-task") == "32",
        "240 GB": 220_000 <= (_megabytes(memory) if memory else 0) <= 250_000,
        "24 hours": slurm.minutes(given.get("time", "0")) == 1440,
        "a warning five minutes ahead": warned is not None and warned[2] >= 300,
        "a lost node restarts it": "requeue" in given,
        "two never run at once": "singleton" in given.get("dependency", "") and bool(given.get("job-name")),
        "the log, from wherever it is submitted": log.resolve() == (work / "runs/pre/train.log").resolve(),
        "the log survives": given.get("open-mode") == "append",
    }
    return [f"not so: {what}" for what, fine in checks.items() if not fine]


def verify(box: Box) -> list[str]:
    script, out = box.work / "job.sbatch", box.work / "runs/pre"
    if not script.is_file():
        raise Missing("job.sbatch is not there")
    problems = _header(slurm.options(script), box.work)
    cluster = slurm.Cluster(box.work, box.world / "spool")
    # plan of the toy, what hits it, restarts so far: code, requeued, exit_code
    table = {
        "it finishes": ("short", "", 0, {0}, 0, "0"),
        "it crashes": ("7", "", 2, {7}, 0, "7"),
        "it is warned": ("long", "warn", 2, None, 1, None),
        "it is warned once too often": ("long", "warn", 6, {85}, 0, "85"),
        "it finishes when warned": ("finishes", "warn", 0, {0}, 0, "0"),
        "it is cancelled": ("long", "cancel", 1, None, 0, None),
    }
    for what, (plan, hit, restarts, codes, requeued, left) in table.items():
        shutil.rmtree(out)
        out.mkdir(parents=True)
        (out / "exit_code").write_text("85\n") if what == "it is warned" else None  # of a life before this one
        ended = cluster.run(script, {**box.env, "TOY_PLAN": plan}, out / "started", hit, restarts)
        found = (out / "exit_code").read_text().strip() if (out / "exit_code").exists() else None
        if not (out / "started").exists():
            problems.append(f"when {what}: train.py was never started")
        elif ended.code is None or (codes is not None and ended.code not in codes):
            problems.append(f"when {what}: the job ends with {ended.code}")
        elif ended.requeued != requeued:
            problems.append(f"when {what}: it was put back {ended.requeued} times")
        elif hit and plan == "long" and not (out / "ckpt").exists():
            problems.append(f"when {what}: nothing was saved")
        elif found != left and what != "it is cancelled":
            problems.append(f"when {what}: exit_code holds {found}")
    return problems


def reference(box: Box) -> None:
    box.write("job.yaml", SPEC)
    words = ["python", str(box.skill / "scripts/launch.py"), "submit", "job.yaml", "--on", "slurm", "--dry-run"]
    shown = box.run(*words).stdout.replace("<run-id>", "pre")
    text = shown[shown.index("#!/bin/bash") : shown.index("\n# on this machine")]
    box.write("job.sbatch", text)


def naive(box: Box) -> None:
    """The script of every forum: a trap, a wait."""
    box.write(
        "job.sbatch",
        "#!/bin/bash\n#SBATCH --job-name=pre\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:4\n#SBATCH --cpus-per-task=32\n"
        "#SBATCH --mem=240G\n#SBATCH --time=24:00:00\n#SBATCH --signal=B:USR1@300\n#SBATCH --requeue\n"
        f"#SBATCH --open-mode=append\n#SBATCH --chdir={box.work}\n#SBATCH --output=runs/pre/train.log\n"
        "#SBATCH --dependency=singleton\n"
        "handler() { kill -TERM $PID; wait $PID; scontrol requeue $SLURM_JOB_ID; exit 0; }\ntrap handler USR1\n"
        "python train.py --out runs/pre &\nPID=$!\nwait $PID\ncode=$?\necho $code > runs/pre/exit_code\nexit $code\n",
    )


CASE = Case(
    route="train something: here, over ssh, docker, Slurm, Kubernetes",
    reads=("references/run-local/launch.md",),
    minutes=5,
    commands=8,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    held_out=True,
    expected="A script that saves and requeues when warned, up to six times, and else ends with its job's code.",
)
