"""A batch script that warns, waits, requeues, and does none of it at the wrong time; it is run, not read."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass, field
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
        time.sleep(0.5)  # minutes, in the real one
        (out / "ckpt").write_text(f"step {step}")
        sys.exit(85)
sys.exit(int(plan) if plan.isdigit() else 0)
"""
RESTARTS = 6
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


@dataclass
class Trial:
    """The script under the rules of worlds.slurm; what went wrong is collected."""

    script: Path
    box: Box
    problems: list[str] = field(default_factory=list)

    @property
    def out(self) -> Path:
        return self.box.work / "runs/pre"

    def clear(self) -> None:
        shutil.rmtree(self.out)
        self.out.mkdir(parents=True)

    def run(
        self, what: str, plan: str, hit: str, restarts: int, want: tuple[int | None, int, str | None]
    ) -> slurm.Ended:
        """`want`: the job's code (None: any), how often it is put back, what exit_code holds (*: anything)."""
        cluster = slurm.Cluster(self.box.work, self.box.world / "spool")
        env = {**self.box.env, "TOY_PLAN": plan}
        ended = cluster.run(self.script, env, self.out / "started", hit, restarts)
        left = (self.out / "exit_code").read_text().strip() if (self.out / "exit_code").exists() else None
        code, requeued, said = want
        if not (self.out / "started").exists():
            self.problems.append(f"{what}: train.py was never started")
        elif ended.code is None or (code is not None and ended.code != code):
            self.problems.append(f"{what}: the job ends with {ended.code}")
        elif ended.requeued != requeued:
            self.problems.append(f"{what}: it was put back {ended.requeued} times")
        elif hit and plan == "long" and not (self.out / "ckpt").exists():
            self.problems.append(f"{what}: nothing was saved")
        elif said not in ("*", left):
            self.problems.append(f"{what}: exit_code holds {left}")
        return ended


def verify(box: Box) -> list[str]:
    script = box.work / "job.sbatch"
    if not script.is_file():
        raise Missing("job.sbatch is not there")
    trial = Trial(script, box, _header(slurm.options(script), box.work))
    for what, plan, hit, want in (
        ("it finishes", "short", "", (0, 0, "0")),
        ("it crashes", "7", "", (7, 0, "7")),
        ("it finishes when warned", "finishes", "warn", (0, 0, "0")),
        ("it is cancelled", "long", "cancel", (None, 0, "*")),
    ):
        trial.clear()
        trial.run(what, plan, hit, 1, want)
    trial.clear()
    (trial.out / "exit_code").write_text("0\n")  # of a life before this one
    restarts = 0
    for attempt in range(RESTARTS):
        before = len(trial.problems)
        ended = trial.run(f"warning {attempt + 1}", "long", "warn", restarts, (None, 1, None))
        if len(trial.problems) > before:
            return trial.problems
        restarts += not ended.submitted  # Slurm counts requeues, not submits
    trial.run("it is warned once more", "long", "warn", restarts, (85, 0, "85"))
    log = trial.out / "train.log"
    told = log.read_text().count("resuming from") if log.exists() else 0
    return trial.problems + ([] if told == RESTARTS + 1 else [f"the log tells of {told} of {RESTARTS + 1} attempts"])


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
