"""Thirty hours in sessions of twelve: the right machine, the new mounts, a resume from the kernel's own output."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from trials.case import Box, Case, Missing
from worlds import kaggle

EPOCHS, QUOTA = 30, 4
TRAIN = """\
import argparse, json, os, pathlib, sys

parser = argparse.ArgumentParser()
parser.add_argument("--data", type=pathlib.Path, required=True)
parser.add_argument("--out", type=pathlib.Path, required=True)
parser.add_argument("--stop-after", default="99h")
args = parser.parse_args()
# this toy of the real training takes no time: an epoch stands for an hour
gpus, limit = int(os.environ.get("KAGGLE_SIM_GPUS", 0)), int(os.environ.get("KAGGLE_SIM_HOURS", 12))
if gpus < 2:
    sys.exit(f"RuntimeError: two GPUs are needed, found {gpus}")
rows = len((args.data / "birds.csv").read_text().splitlines())
args.out.mkdir(parents=True, exist_ok=True)
state = args.out / "state.json"
done = json.loads(state.read_text())["epoch"] if state.exists() else 0
print(f"{rows} rows, starting after epoch {done}", flush=True)
for hour, epoch in enumerate(range(done + 1, EPOCHS + 1), 1):
    if hour > limit:
        (pathlib.Path(os.environ["HOME"]) / ".session-cut").touch()
        os.kill(os.getpid(), 9)
    print(f"epoch {epoch} loss {2 / epoch:.4f}", flush=True)
    state.write_text(json.dumps({"epoch": epoch}))
    if hour >= int(args.stop_after.rstrip("h")) and epoch < EPOCHS:
        print("stopping in time", flush=True)
        sys.exit(0)
(args.out / "model.json").write_text(json.dumps({"epoch": epoch, "rows": rows}))
print("training done", flush=True)
""".replace("EPOCHS", str(EPOCHS))
SPEC = """\
name: birds
command: [python, train.py, --data, /kaggle/temp/data, --out, "{run}", --stop-after, 11h]
mounts: [{from: "dataset:lab/birds", to: /kaggle/temp/data}, {from: "dataset:lab/birds-code", to: /kaggle/temp/code}]
workdir: /kaggle/temp/code
gpus_per_node: 2
hardware: {accelerators: NvidiaTeslaT4}
"""


def make(box: Box) -> None:
    box.write("code/train.py", TRAIN)
    rows = "".join(f"bird{number},{number * 7 % 13}\n" for number in range(400))
    kaggle.put_up(box.world, {"birds": {"birds.csv": rows}, "birds-code": {"train.py": TRAIN}}, QUOTA)


def verify(box: Box) -> list[str]:
    kernels = kaggle.state(box.world)["kernels"]
    if not kernels:
        raise Missing("nothing was ever pushed to Kaggle")
    problems = [f"{name} is public" for name, kernel in kernels.items() if not kernel["private"]]
    logs = "\n".join(version["log"] for kernel in kernels.values() for version in kernel["versions"])
    trained = [int(number) for number in re.findall(r"^epoch (\d+) ", logs, re.M)]
    if sorted(set(trained)) != list(range(1, EPOCHS + 1)):
        problems.append(f"{len(set(trained))} of {EPOCHS} epochs were trained on Kaggle")
    final = box.work / "final"
    if not (final / "model.json").is_file() or json.loads((final / "model.json").read_text())["epoch"] != EPOCHS:
        problems.append("final/model.json is not that of the whole training")
    log = (final / "train.log").read_text() if (final / "train.log").is_file() else ""
    told = [int(number) for number in re.findall(r"epoch (\d+) loss", log)]
    if told != list(range(1, EPOCHS + 1)):
        problems.append(f"final/train.log tells of {len(told)} epochs, not of {EPOCHS} in order")
    return problems


def reference(box: Box) -> None:
    box.write("job.yaml", SPEC)
    run = Path(box.script("launch.py", "submit", "job.yaml", "--on", "kaggle")["run"])
    name = json.loads((run / "kaggle/kernel-metadata.json").read_text())["id"]
    for _ in range(QUOTA - 1):
        box.run("kaggle", "kernels", "output", name, "-p", "out")
        (found,) = (box.work / "out").rglob(run.name)
        if (found / "model.json").exists():
            break
        box.script("launch.py", "resume", run)
    (box.work / "final").mkdir()
    for file in ("model.json", "train.log"):
        shutil.copy(found / file, box.work / "final" / file)


def naive(box: Box) -> None:
    """The metadata of the tutorials, the paths of the tutorials, and a push for each attempt."""
    text = """\
import subprocess, sys
sys.exit(subprocess.run(["python", "/kaggle/input/birds-code/train.py", "--data", "/kaggle/input/birds",
                         "--out", "/kaggle/working/out", "--stop-after", "11h"]).returncode)
"""
    metadata = {
        "id": "lab/birds-training", "title": "birds training", "code_file": "run.py", "language": "python",
        "kernel_type": "script", "is_private": True, "enable_gpu": True, "enable_internet": True,
        "dataset_sources": ["lab/birds", "lab/birds-code"], "kernel_sources": ["lab/birds-training"],
    }  # fmt: skip
    box.write("kernel/run.py", text)
    box.write("kernel/kernel-metadata.json", metadata)
    for _ in range(QUOTA):
        box.run("kaggle", "kernels", "push", "-p", "kernel")
        text = text.replace("/kaggle/input/birds", "/kaggle/input/datasets/lab/birds")  # after a look at the log
        box.write("kernel/run.py", text)
        box.write("kernel/kernel-metadata.json", {**metadata, "machine_shape": "NvidiaTeslaT4"})
    box.run("kaggle", "kernels", "output", "lab/birds-training", "-p", "final")


CASE = Case(
    route="train something: here, over ssh, docker, Slurm, Kubernetes",
    reads=("references/run-local/launch.md", "profiles/generic-ssh.md"),
    minutes=8,
    commands=16,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    held_out=True,
    expected="Three sessions that continue one another on two T4s, and final/ with the model and the whole log.",
)
