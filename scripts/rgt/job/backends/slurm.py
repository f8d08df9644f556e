"""Slurm, here or through a login node: an sbatch file that warns the job before the end, and requeues it.

The exit code is written to the run directory by the job itself: Slurm forgets a finished job within minutes.
"""

from __future__ import annotations

import math
import shlex

from rgt import units
from rgt.errors import bad_input
from rgt.job.backends import WAIT_FOR_CHILD, Order, Status, Step, ask, ended, engine_states, exports

# Slurm signals only the batch shell (B:); the shell passes it on, and puts the job back in the queue if it heeded it.
_BODY = """\
set -u
restarts=${{SLURM_RESTART_COUNT:-0}}
warned=0
child=
warn() {{ warned=1; [ -n "$child" ] && kill -{signal} "$child" 2>/dev/null; }}
trap warn USR1
trap '[ -n "$child" ] && kill -TERM "$child" 2>/dev/null' TERM
cd {workdir} || exit 2
{exports}
rm -f {exit_code}
{start} &
child=$!
{wait}if [ "$warned" = 1 ] && [ "$code" -ne 0 ] && [ "$restarts" -lt {max_restarts} ]; then
  scontrol requeue "$SLURM_JOB_ID" && exit "$code"
fi
echo "$code" > {exit_code}.part && mv {exit_code}.part {exit_code}
exit "$code"
"""
_RANKED = 'export PET_NODE_RANK=$SLURM_NODEID PET_MASTER_ADDR=$(scontrol show hostnames | head -n 1); exec "$@"'
_ACTIVE = engine_states(queued="PENDING CONFIGURING REQUEUED REQUEUE_HOLD SUSPENDED")
_ACTIVE |= engine_states(running="RUNNING COMPLETING STOPPED RESIZING SIGNALING")


def render(order: Order) -> list[Step]:
    job = order.job
    if any(sign in order.run_dir for sign in "\n\"'\\ "):
        raise bad_input(f"Slurm cannot write its log below {order.run_dir}: no spaces, quotes or backslashes in output")
    log, is_array = order.log().replace("%", "%%"), "array" in job.slurm
    here, task = shlex.quote(order.run_dir), ""
    if is_array:
        if any("{run}" in word for word in (*job.command, *job.args, *job.env.values())):
            raise bad_input("each task of an array has a run directory of its own: read $RGT_RUN_DIR instead of {run}")
        log, here = f"{order.run_dir.replace('%', '%%')}/train.%a.log", '"$RGT_RUN_DIR"'
        task = f'export RGT_RUN_DIR={shlex.quote(order.run_dir)}/task-"$SLURM_ARRAY_TASK_ID"; mkdir -p "$RGT_RUN_DIR"'
    options = {"job-name": order.run_id, "output": log, "open-mode": "append", "nodes": job.nodes, "ntasks-per-node": 1}
    options |= {
        "gres": f"gpu:{job.gpus_per_node}" if job.gpus_per_node else None,
        "cpus-per-task": job.hardware.get("cpus"),
        "mem": f"{units.size(job.hardware['memory']) >> 20}M" if "memory" in job.hardware else None,
        "time": math.ceil(job.time_limit / 60) if job.time_limit else None,
        "signal": f"B:USR1@{math.ceil(job.grace)}",
        # never two of one run at once, whatever was submitted twice; the tasks of an array are one submit
        "dependency": None if is_array else "singleton",
        **job.slurm,
        **job.extra.get("slurm", {}),
    }
    start = shlex.join(job.words(order.run_dir))
    if job.nodes > 1:  # srun on each, which tells every node its rank and who is the first
        start = f"srun --kill-on-bad-exit=1 bash -c {shlex.quote(_RANKED)} bash {start}"
    places = {"exit_code": f"{here}/exit_code", "workdir": shlex.quote(job.workdir)}
    variables = f"{exports(job.variables(order.run_dir))}\n{task}".rstrip()
    parts = {"exports": variables, "start": start, "wait": WAIT_FOR_CHILD}
    body = _BODY.format(signal=job.signal, max_restarts=job.restarts, **places, **parts)
    given = {name: value for name, value in options.items() if value is not None and value is not False}
    for name, value in given.items():
        if "\n" in f"{name}{value}":
            raise bad_input(f"an option of sbatch is one line, not {name}={value!r}")
    lines = [f"#SBATCH --{name}" + ("" if value is True else f"={value}") for name, value in given.items()]
    script = "\n".join(["#!/bin/bash", *lines, "#SBATCH --requeue", body])
    path = f"{order.run_dir}/job.sbatch"
    words = ["sbatch", "--parsable", "--export=ALL", path]
    return [Step(words, order.head, files={path: script}, secrets=list(job.secrets))]


resume = render


def status(order: Order) -> Status:
    words = ["squeue", "--noheader", "--name", order.run_id, "--format", "%T %r"]
    done = ask(order.head, words, f"ask Slurm on {order.head.title}")
    rows = [line.partition(" ") for line in (done.out if done else "").strip().splitlines()]
    for state, _, reason in sorted(rows, key=lambda row: _ACTIVE.get(row[0]) != "running"):
        if state in _ACTIVE:
            return Status(_ACTIVE[state], detail="" if reason in ("None", "") else reason)
    # of an array: as many codes as tasks that ended; the first that is not 0 decides
    script = 'cat "$0"/exit_code "$0"/task-*/exit_code 2>/dev/null || true'
    codes = [int(word) for word in order.head.run(["sh", "-c", script, order.run_dir], expand=(3,)).out.split()]
    if codes:
        return ended(next((code for code in codes if code), 0))
    return Status("lost", detail="Slurm has no such job and it left no exit code (cancelled, out of time, node lost)")


def stop(order: Order) -> list[Step]:
    return [Step(["scancel", "--name", order.run_id], order.head)]
