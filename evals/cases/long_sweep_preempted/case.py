"""Forty runs on a box that is taken away twice; half-written results, and four settings that always fail."""

from __future__ import annotations

import csv
import json
import math
import stat
from collections import Counter
from typing import Any

from trials.case import Box, Case, Missing, differs, same_names

TAKEN = (13, 27)  # the box is lost while this start is running
_BOX = """#!/usr/bin/env python3
import json, subprocess, sys
from pathlib import Path
ROOT = Path(__file__).resolve().parent.parent
STATE = ROOT / "box.json"
state = json.loads(STATE.read_text())
verb = sys.argv[1] if len(sys.argv) > 1 else ""
def log(text):
    with (ROOT / "box.log").open("a") as file:
        file.write(text + "\\n")
if verb == "status":
    print(state["state"])
elif verb in ("start", "stop"):
    log(verb)
    STATE.write_text(json.dumps({**state, "state": "running" if verb == "start" else "stopped"}))
    print("ok")
elif verb == "run":
    if state["state"] != "running":
        sys.exit("box: connection refused (%s)" % state["state"])
    disk = ROOT.parent / "desk" / "box"
    done = subprocess.run(["sh", "-c", " ".join(sys.argv[2:])], cwd=disk, stdin=subprocess.DEVNULL)
    if json.loads(STATE.read_text())["state"] != "running":
        print("box: connection closed by remote host", file=sys.stderr)
        sys.exit(255)
    sys.exit(done.returncode)
else:
    sys.exit("usage: box status|start|stop|run '<command>'")
"""
_TRAIN = '''"""python train.py --name NAME --lr LR --width W --seed S -> runs/NAME/{metrics.jsonl,result.json}"""
import argparse, fcntl, json, math, os, sys, time
from pathlib import Path
parser = argparse.ArgumentParser()
for word, kind in (("name", str), ("lr", float), ("width", int), ("seed", int)):
    parser.add_argument("--" + word, type=kind, required=True)
job = parser.parse_args()
HERE = Path(__file__).resolve().parent
STATE = HERE.parent.parent / "world" / "box.json"
def alive():
    if json.loads(STATE.read_text())["state"] != "running":
        os._exit(137)
alive()
with (HERE / ".starts").open("a+") as starts:
    fcntl.flock(starts, fcntl.LOCK_EX)
    starts.write(job.name + "\\n")
    starts.flush()
    starts.seek(0)
    number = len(starts.readlines())
out = HERE / "runs" / job.name
out.mkdir(parents=True, exist_ok=True)
metrics = (out / "metrics.jsonl").open("w")
for step in range(1, 11):
    loss = 1 / (step * job.lr * 100) + abs(math.log10(job.lr) + 2) * 0.1 + 3 / job.width + job.seed * 0.003
    if job.lr > 0.2 and job.width > 40 and step == 4:
        sys.exit("FloatingPointError: loss is nan at step 4")
    metrics.write(json.dumps({"step": step, "val_loss": round(loss, 6)}) + "\\n")
    metrics.flush()
    if step == 5:  # a first evaluation, half way
        (out / "result.json").write_text(json.dumps({"val_loss": round(loss, 6), "step": step}))
    if step == 6 and number in TAKEN:
        STATE.write_text(json.dumps({"state": "preempted"}))
    alive()
    time.sleep(0.05)
(out / "result.json").write_text(json.dumps({"val_loss": round(loss, 6), "step": step}))
with (HERE / ".ends").open("a") as ends:
    ends.write(job.name + "\\n")
'''


def _settings() -> list[dict[str, Any]]:
    grid = [(lr, width, seed) for lr in (0.001, 0.003, 0.01, 0.03, 0.3) for width in (32, 64) for seed in range(4)]
    return [{"name": f"s{i:02d}", "lr": lr, "width": w, "seed": s} for i, (lr, w, s) in enumerate(grid)]


def _fails(row: dict[str, Any]) -> bool:
    return bool(row["lr"] > 0.2 and row["width"] > 40)


def _loss(row: dict[str, Any]) -> float:
    lr = row["lr"]
    return float(1 / (10 * lr * 100) + abs(math.log10(lr) + 2) * 0.1 + 3 / row["width"] + row["seed"] * 0.003)


def make(box: Box) -> None:
    command = box.world / "bin" / "box"
    command.write_text(_BOX)
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    (box.world / "box.json").write_text(json.dumps({"state": "stopped"}))
    box.write("box/train.py", _TRAIN.replace("TAKEN", str(TAKEN)))
    box.write("sweep.json", _settings())


def verify(box: Box) -> list[str]:
    rows = _settings()
    problems = []
    ends = box.work / "box" / ".ends"
    again = [name for name, count in Counter(ends.read_text().split() if ends.is_file() else []).items() if count > 1]
    if again:
        problems.append(f"harm: {len(again)} finished runs were run again")
    if json.loads((box.world / "box.json").read_text())["state"] == "running":
        problems.append("harm: the box still bills")
    try:
        with (box.work / "table.csv").open(newline="") as file:
            table = list(csv.DictReader(file))
    except OSError:
        raise Missing("table.csv is not there") from None
    problems += differs("the order of names", [line["name"] for line in table], [row["name"] for row in rows])
    for row, line in zip(rows, table, strict=False):
        right = "failed" if _fails(row) else "finished"
        good = line["state"] == right and (
            not line["val_loss"]
            if _fails(row)
            else math.isclose(float(line["val_loss"] or "nan"), _loss(row), abs_tol=2e-6)
        )
        if not good:
            problems.append(f"the row of {row['name']} is wrong")
    told = box.read("handover.json")
    problems += same_names("failed", told.get("failed", []), [row["name"] for row in rows if _fails(row)])
    return problems + differs("finished", told.get("finished"), 36) + differs("preemptions", told.get("preemptions"), 2)


def _sweep(box: Box, finished: bool) -> None:
    """Round after round until nothing may still finish; `finished` looks at the last step, not at the file."""
    rows, taken = _settings(), 0
    tries: Counter[str] = Counter()
    for _ in range(10):
        box.run("box", "start")
        for row in rows:
            result = box.work / "box" / "runs" / row["name"] / "result.json"
            done = result.is_file() and (not finished or json.loads(result.read_text())["step"] == 10)
            if done or tries[row["name"]] > 1:
                continue
            words = " ".join(f"--{key} {value}" for key, value in row.items())
            code = box.run("box", "run", f"python3 train.py {words}", ok=range(256)).returncode
            if code == 255:
                taken += 1
                break
            tries[row["name"]] += code != 0
        else:
            break
    box.run("box", "stop")
    lines = ["name,lr,width,seed,val_loss,state"]
    failed = []
    for row in rows:
        result = box.work / "box" / "runs" / row["name"] / "result.json"
        good = result.is_file() and (not finished or json.loads(result.read_text())["step"] == 10)
        value = json.loads(result.read_text())["val_loss"] if good else ""
        failed += [] if good else [row["name"]]
        cells = (row["name"], row["lr"], row["width"], row["seed"], value, "finished" if good else "failed")
        lines.append(",".join(map(str, cells)))
    box.write("table.csv", "\n".join(lines) + "\n")
    box.write("handover.json", {"finished": 40 - len(failed), "failed": failed, "preemptions": taken})


def reference(box: Box) -> None:
    _sweep(box, finished=True)


def naive(box: Box) -> None:
    _sweep(box, finished=False)


CASE = Case(
    route="an ablation, a sweep, many seeds",
    minutes=15,
    commands=40,
    reads=("references/run-remote/parallel_ablation.md",),
    expected="36 rows with the value of the last step, 4 failed, nothing finished twice, the box stopped.",
)
