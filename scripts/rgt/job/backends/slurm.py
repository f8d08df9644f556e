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
rm -f {exit_code}
warn() {{ warned=1; [ -n "$child" ] && kill -{signal} "$child" 2>/dev/null; }}
trap warn USR1
trap '[ -n "$child" ] && kill -TERM "$child" 2>/dev/null' TERM
cd {workdir} || exit 2
{exports}
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
    log = order.log().replace("%", "%%")
    options = {"job-name": order.run_id, "output": log, "open-mode": "append", "nodes": job.nodes, "ntasks-per-node": 1}
    options |= {
        "gres": f"gpu:{job.gpus_per_node}" if job.gpus_per_node else None,
        "cpus-per-task": job.hardware.get("cpus"),
        "mem": f"{units.size(job.hardware['memory']) >> 20}M" if "memory" in job.hardware else None,
        "time": math.ceil(job.time_limit / 60) if job.time_limit else None,
        "signal": f"B:USR1@{math.ceil(job.grace)}",
        "dependency": "singleton",  # never two of one run at once, whatever was submitted twice
    }
    start = shlex.join(job.words(order.run_dir))
    if job.nodes > 1:  # srun on each, which tells every node its rank and who is the first
        start = f"srun --kill-on-bad-exit=1 bash -c {shlex.quote(_RANKED)} bash {start}"
    places = {"exit_code": shlex.quote(f"{order.run_dir}/exit_code"), "workdir": shlex.quote(job.workdir)}
    parts = {"exports": exports(job.variables(order.run_dir)), "start": start, "wait": WAIT_FOR_CHILD}
    body = _BODY.format(signal=job.signal, max_restarts=job.max_restarts, **places, **parts)
    lines = [f"#SBATCH --{name}={value}" for name, value in options.items() if value is not None]
    script = "\n".join(["#!/bin/bash", *lines, "#SBATCH --requeue", body])
    path = f"{order.run_dir}/job.sbatch"
    words = ["sbatch", "--parsable", "--export=ALL", path]
    return [Step(words, order.head, files={path: script}, secrets=list(job.secrets))]


resume = render


def status(order: Order) -> Status:
    words = ["squeue", "--noheader", "--name", order.run_id, "--format", "%T %r"]
    done = ask(order.head, words, f"ask Slurm on {order.head.title}")
    state, _, reason = (done.out if done else "").strip().partition(" ")
    if state in _ACTIVE:
        return Status(_ACTIVE[state], detail="" if reason in ("None", "") else reason)
    written = order.head.read(f"{order.run_dir}/exit_code")
    if written and written.strip():
        return ended(int(written))
    return Status("lost", detail="Slurm has no such job and it left no exit code (cancelled, out of time, node lost)")


def stop(order: Order) -> list[Step]:
    return [Step(["scancel", "--name", order.run_id], order.head)]
