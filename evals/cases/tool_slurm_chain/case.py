"""A generator of batch scripts, whose scripts are run under Slurm's rules: other specs, other signals, other ends."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trials.case import Box, Case
from worlds import batch, tool

WRONG = 0.05  # the share of checks that may fail
AWKWARD = [
    "two words",
    "it's",
    '"q"',
    "$HOME $(touch pwned)",
    "",
    "a\nb",
    "größe 训练",
    "back\\slash",
    "*",
    "#SBATCH --x",
]


def _spec(box: Box, name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name, "command": ["python", "train.py", "--config", "base.yaml"], "dir": str(box.world / "code"),
        "out": str(box.world / "runs" / name), "gpus": 4, "cpus": 32, "mem_gb": 240, "hours": 24, "save_signal": "TERM",
        "save_seconds": 300, "max_requeues": 6, "env": {"OMP_NUM_THREADS": "8"}, **changes,
    }  # fmt: skip


def _hidden(box: Box) -> list[dict[str, Any]]:
    """The first gets all events, the others those that its settings could break."""
    words = ["python", "train.py", *AWKWARD]
    return [
        _spec(box, "abl-7", command=words, env={"NOTE": "it's $5 \"now\"\nand `more`", "EMPTY": "", "P": "/a b:/c"}),
        _spec(box, "ctrlc_1", save_signal="INT", gpus=1, cpus=8, mem_gb=60, hours=1.5, save_seconds=45, max_requeues=2),
        _spec(box, "usr-2", save_signal="USR1", gpus=8, hours=72, save_seconds=900, max_requeues=1, env={}),
        _spec(box, "ctrl.c", save_signal="INT", hours=0.75, gpus=0, cpus=4, mem_gb=7, max_requeues=3, command=words),
    ]  # fmt: skip


def make(box: Box) -> None:
    box.write("train.py", "# yours is not like this one; see the prompt\nprint('training')\n")
    for name, changes in (("base", {}), ("small", {"gpus": 1, "hours": 0.5, "save_signal": "USR1", "max_requeues": 2})):
        spec = {**_spec(box, name, **changes), "dir": "/home/me/exp", "out": f"/home/me/exp/runs/{name}"}
        box.write(f"samples/{name}.json", spec)


def _judge(trial: batch.Trial, thorough: bool) -> None:
    most = trial.spec["max_requeues"]
    trial.header()
    trial.run("short", "", 0, 0, 0, "0")
    trial.words()
    trial.run("long", "warn", 0, None, 1, None)
    trial.run("long", "warn", most, 85, 0, "85")
    trial.run("finishes", "warn", 0, 0, 0, "0")
    if thorough:
        trial.run("7", "", most - 1, 7, 0, "7")
        trial.run("long", "cancel", 1, None, 0, "*")
        trial.run("long", "warn", most - 1, None, 1, None)
        trial.run("long", "warn", 0, 85, 0, "85", refuses=True)


def verify(box: Box) -> list[str]:
    (box.world / "code").mkdir(exist_ok=True)
    (box.world / "code" / "train.py").write_text(batch.TRAIN)
    trials = []
    for spec in _hidden(box):
        Path(spec["out"]).mkdir(parents=True, exist_ok=True)
        path = box.world / f"{spec['name']}.json"
        path.write_text(json.dumps(spec, ensure_ascii=False))
        answer = tool.call(box, "make_job", path, seconds=10)
        if answer.code != 0:
            return [f"make_job ended with {answer.code}"]
        (box.world / f"{spec['name']}.sbatch").write_text(answer.out)
        trials.append(batch.Trial(box, spec, box.world / f"{spec['name']}.sbatch"))
    with ThreadPoolExecutor(len(trials)) as pool:
        list(pool.map(lambda trial: _judge(trial, trial in (trials[0], trials[2])), trials))
    wrong, count = [problem for trial in trials for problem in trial.problems], sum(trial.checks for trial in trials)
    return [] if len(wrong) <= WRONG * count else [f"{len(wrong)} of {count}: {'; '.join(wrong[:8])}"]


_REFERENCE = """#!/usr/bin/env python
import json, subprocess, sys, tempfile
from pathlib import Path
spec = json.load(open(sys.argv[1]))
job = {"name": spec["name"], "command": spec["command"], "workdir": spec["dir"], "env": spec["env"],
       "output": str(Path(spec["out"]).parent), "gpus_per_node": spec["gpus"], "signal": spec["save_signal"],
       "hardware": {"cpus": spec["cpus"], "memory": f"{spec['mem_gb']}GB"}, "time_limit": f"{spec['hours']}h",
       "grace": spec["save_seconds"], "max_restarts": spec["max_requeues"]}
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "job.yaml")
    path.write_text(json.dumps(job))
    words = [sys.executable, "{launch}", "submit", str(path), "--on", "slurm", "--dry-run", "--json"]
    steps = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)["steps"]
print(next(iter(steps[0]["files"].values())).replace("<run-id>", Path(spec["out"]).name))
"""
_NAIVE = r"""#!/usr/bin/env python
import json, math, shlex, sys
s = json.load(open(sys.argv[1]))
gpus = f"#SBATCH --gres=gpu:{s['gpus']}\n" if s["gpus"] else ""
exports = "\n".join(f"export {k}={shlex.quote(v)}" for k, v in s["env"].items())
print(f'''#!/bin/bash
#SBATCH --job-name={s["name"]}
#SBATCH --nodes=1
#SBATCH --cpus-per-task={s["cpus"]}
#SBATCH --mem={s["mem_gb"]}G
#SBATCH --time={math.ceil(s["hours"] * 60)}
#SBATCH --signal=B:USR1@{s["save_seconds"] + 60}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --chdir={s["dir"]}
#SBATCH --output={s["out"]}/train.log
#SBATCH --dependency=singleton
{gpus}
rm -f {s["out"]}/exit_code
{exports}
warned=0
on_warn() {{ warned=1; kill -{s["save_signal"]} $pid; }}
trap on_warn USR1
trap 'kill -TERM $pid' TERM
{shlex.join(s["command"])} &
pid=$!
wait $pid; code=$?
while kill -0 $pid 2>/dev/null; do wait $pid; code=$?; done
if [ $warned = 1 ] && [ $code != 0 ] && [ ${{SLURM_RESTART_COUNT:-0}} -lt {s["max_requeues"]} ]; then
  scontrol requeue $SLURM_JOB_ID
  exit $code
fi
echo $code > {s["out"]}/exit_code
exit $code''')
"""


def reference(box: Box) -> None:
    tool.leave(box, "make_job", _REFERENCE.replace("{launch}", str(box.skill / "scripts" / "launch.py")))


def naive(box: Box) -> None:
    """The forum's trap and wait, done with care; what `&` starts does not hear INT."""
    tool.leave(box, "make_job", _NAIVE)


CASE = Case(
    route="train something: here, over ssh, docker, Slurm, Kubernetes",
    reads=("references/run-local/launch.md",),
    minutes=6,
    commands=30,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="Scripts that pass the right signal on, wait, requeue a bounded number of times and never after a crash.",
)
