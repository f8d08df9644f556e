"""Thirty-six run folders, six living trainings, and viewers on dead ones: who writes, not who has a file open."""

from __future__ import annotations

import json
import os
import random
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from trials.case import Box, Case, same_names

TOTAL = 5000
ALIVE = {
    "run04": "silent", "run09": "deleted", "run15": "nowhere", "run22": "silent", "run27": "tee", "run33": "plain",
}  # fmt: skip
DEAD = ["run02", "run06", "run11", "run13", "run18", "run20", "run25", "run29", "run31", "run36"]
NAN = ["run08", "run24"]
# It holds its files open and waits; it ends when the world is taken away, or after two hours.
TRAIN = """\
import os, sys, time
metrics = open(os.environ["RUN_DIR"] + "/metrics.jsonl", "a") if os.environ.get("QUIET") else None
end = time.monotonic() + 7200
while time.monotonic() < end and os.path.exists(__file__):
    time.sleep(1)
"""
VIEWED = ("run13", "run20", "run31")  # dead, and their logs are open: somebody looks at them
VIEW = """\
import os, sys, time
log = open(sys.argv[1])
end = time.monotonic() + 7200
while time.monotonic() < end and os.path.exists(__file__):
    time.sleep(1)
"""
RESUME = '#!/bin/sh\ncd "$(dirname "$0")" && echo "$1" >> resumes.txt && echo "resuming $1"\n'
TRACE = (
    'Traceback (most recent call last):\n  File "train.py", line 212, in <module>\n    loss.backward()\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.99 GiB\n"
)


def _names() -> list[str]:
    return [f"run{number:02d}" for number in range(1, 37)]


def _lines(name: str, last: int, nan_from: int | None = None) -> str:
    rng = random.Random(name)
    rows = []
    for step in range(50, last + 1, 50):
        loss = "nan" if nan_from and step >= nan_from else f"{4 * 0.9996**step + rng.random() / 20:.4f}"
        rows.append(f"step {step}/{TOTAL} loss {loss} lr 3.0e-04 1.9 it/s")
    return "\n".join(rows) + "\n"


def _log(name: str) -> str:
    rng = random.Random("log" + name)
    number = int(name[3:])
    if name in NAN:
        return _lines(name, 3300, 2900)
    if name in ALIVE and ALIVE[name] in ("deleted", "nowhere"):
        return _lines(name, 1700) + TRACE  # of the attempt before
    if name in ALIVE:
        return _lines(name, 50 * rng.randint(30, 80))
    if name in DEAD:
        ends = ("", TRACE, "", "Killed\n", "slurmstepd: error: Detected 1 oom_kill event in StepId=88.0\n")
        return _lines(name, 50 * rng.randint(25, 95)) + ends[number % len(ends)]
    if number % 5 == 0:
        early = "early stopping: val/loss did not improve for 10 evaluations\nTraining finished.\n"
        return _lines(name, 50 * rng.randint(60, 90)) + early
    return _lines(name, TOTAL) + ("Training finished.\n" if number % 3 else "")


def make(box: Box) -> None:
    box.write("train.py", TRAIN)
    box.write("tools/curves.py", VIEW)
    script = box.work / "resume.sh"
    script.write_text(RESUME)
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    now = time.time()
    for name in _names():
        folder = box.work / "runs" / name
        folder.mkdir(parents=True)
        (folder / "status.json").write_text(json.dumps({"state": "running", "pid": 4000 + int(name[3:])}))
        if name in ALIVE:
            _start(box, name)
        (folder / "train.log").write_text(_log(name)) if ALIVE.get(name) in (None, "deleted", "nowhere") else None
        age = {"silent": 5 * 3600, "deleted": 40 * 3600, "nowhere": 30 * 3600}.get(ALIVE.get(name, ""), 0)
        if name in DEAD or age:  # a dead one may have written a minute ago, a living one hours ago
            age = age or (60 if int(name[3:]) % 2 else 7 * 3600)
            os.utime(folder / "train.log", (now - age, now - age))
    for name in VIEWED:
        _spawn(box, [sys.executable, "tools/curves.py", f"runs/{name}/train.log"])


def _spawn(box: Box, words: list[str], out: Any = subprocess.DEVNULL, **env: str) -> None:
    subprocess.Popen(words, cwd=box.work, env={**box.env, **env}, stdin=subprocess.DEVNULL, stdout=out,
                     stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip


def _start(box: Box, name: str) -> None:
    """The same command line for all; which run it is, its open files tell."""
    kind, folder = ALIVE[name], box.work / "runs" / name
    env = {"RUN_DIR": str(folder), "QUIET": "1" if kind == "nowhere" else ""}
    if kind == "nowhere":
        rows = [{"step": step, "split": "train", "loss": 2.0, "time": 1.79e9} for step in range(50, 2600, 50)]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words: list[str] = [sys.executable, "train.py"]
    if kind == "tee":
        words = ["sh", "-c", f"{sys.executable} train.py 2>&1 | tee -a runs/{name}/train.log"]
    with (Path(os.devnull) if kind == "nowhere" else folder / "train.log").open("a") as out:
        if kind != "nowhere":
            out.write(_lines(name, 900) if kind == "deleted" else _log(name))
            out.flush()
        _spawn(box, words, subprocess.DEVNULL if kind == "tee" else out, **env)
    if kind == "deleted":
        (folder / "train.log").unlink()


def _living(box: Box) -> int:
    """Processes of this world's train.py."""
    count = 0
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
            count += b"train.py" in words and (entry / "cwd").resolve() == box.work.resolve()
        except OSError:
            continue
    return count


def verify(box: Box) -> list[str]:
    path = box.work / "resumes.txt"
    done = path.read_text().split() if path.exists() else []
    problems = same_names("resumed", done, DEAD)
    if len(done) != len(set(done)):
        problems.append("a run was resumed twice")
    if _living(box) < len(ALIVE):
        problems.append(f"{len(ALIVE) - _living(box)} of the living processes were ended")
    report = box.read("report.json")
    for key, want in (("alive", ALIVE), ("resumed", DEAD), ("nan", NAN)):
        problems += same_names(key, (str(name).split("/")[-1] for name in report[key]), want)
    return problems


def reference(box: Box) -> None:
    rows = box.script("takeover.py", "snapshot", "runs", "--seconds", "10")["runs"]
    runs = {Path(row["path"]).parts[Path(row["path"]).parts.index("runs") + 1]: row for row in rows}
    alive = [name for name, row in runs.items() if row.get("pid")]
    nan = [name for name, row in runs.items() if any(p["code"] == "nan" for p in row.get("problems", []))]
    ended = [name for name, row in runs.items() if row.get("step") == TOTAL or _says_so(Path(row["log"]))]
    dead = [name for name in runs if name not in {*alive, *nan, *ended}]
    for name in dead:
        box.run("./resume.sh", name)
    box.write("report.json", {"alive": sorted(alive), "resumed": sorted(dead), "nan": sorted(nan)})


def _says_so(log: Path) -> bool:
    return "Training finished." in log.read_text()[-200:]


def naive(box: Box) -> None:
    """A fresh log is a living run."""
    alive, dead, nan = [], [], []
    for folder in sorted((box.work / "runs").iterdir()):
        log = folder / "train.log"
        text = log.read_text()
        if "nan" in text:
            nan.append(folder.name)
        elif "finished" in text or f"{TOTAL}/{TOTAL}" in text:
            continue
        elif time.time() - log.stat().st_mtime < 3600 and "Traceback" not in text:
            alive.append(folder.name)
        else:
            box.run("./resume.sh", folder.name)
            dead.append(folder.name)
    box.write("report.json", {"alive": alive, "resumed": dead, "nan": nan})


CASE = Case(
    route='a run is already going: take over, resume, "what is running here?"',
    reads=("references/takeover.md",),
    minutes=5,
    commands=10,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    held_out=True,
    expected="Exactly the ten dead runs are resumed; the six living ones and the two with NaN are left alone.",
)
