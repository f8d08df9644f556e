"""Slurm, here or through a login node: an sbatch file that warns the job before the end, and requeues it.

The exit code is written to the run directory by the job itself: Slurm forgets a finished job within minutes.
"""

from __future__ import annotations

import math
import shlex

from backends import WAIT_FOR_CHILD, Order, Status, Step
from rgt import units
from rgt.errors import bad_input, lacking

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
_ACTIVE = {
    "PENDING": "queued", "CONFIGURING": "queued", "REQUEUED": "queued", "REQUEUE_HOLD": "queued", "SUSPENDED": "queued",
    "RUNNING": "running", "COMPLETING": "running", "STOPPED": "running", "RESIZING": "running", "SIGNALING": "running",
}  # fmt: skip


def script_path(order: Order) -> str:
    return f"{order.run_dir}/job.sbatch"


def render(order: Order) -> list[Step]:
    words = ["sbatch", "--parsable", "--export=ALL", script_path(order)]
    files = {script_path(order): script(order)}
    return [Step(words, order.head, files=files, secrets=list(order.job.secrets))]


def script(order: Order) -> str:
    job = order.job
    exports = [f"export {name}={shlex.quote(value)}" for name, value in job.variables(order.run_dir).items()]
    body = _BODY.format(
        exit_code=shlex.quote(f"{order.run_dir}/exit_code"), signal=job.signal, workdir=shlex.quote(job.workdir),
        exports="\n".join(exports), start=_start(order), max_restarts=job.max_restarts,
        wait=WAIT_FOR_CHILD,
    )  # fmt: skip
    return "\n".join(["#!/bin/bash", *(f"#SBATCH {option}" for option in _options(order)), body])


def _options(order: Order) -> list[str]:
    job = order.job
    if any(sign in order.run_dir for sign in "\n\"'\\ "):
        raise bad_input(f"Slurm cannot write its log below {order.run_dir}: no spaces, quotes or backslashes in output")
    log = f"{order.run_dir}/train.log".replace("%", "%%")
    options = {
        "job-name": order.run_id, "output": log, "open-mode": "append", "nodes": job.nodes, "ntasks-per-node": 1,
        "gres": f"gpu:{job.gpus_per_node}" if job.gpus_per_node else None,
        "cpus-per-task": job.hardware.get("cpus"),
        "mem": f"{units.size(job.hardware['memory']) >> 20}M" if "memory" in job.hardware else None,
        "time": math.ceil(job.time_limit / 60) if job.time_limit else None,
        "signal": f"B:USR1@{math.ceil(job.grace)}",
        "dependency": "singleton",  # never two of one run at once, whatever was submitted twice
    }  # fmt: skip
    return [f"--{name}={value}" for name, value in options.items() if value is not None] + ["--requeue"]


def _start(order: Order) -> str:
    """One node: the command itself. Several: srun on each, which tells every node its rank and who is the first."""
    words = shlex.join(order.job.words(order.run_dir))
    if order.job.signal == "INT":
        words = f"env --default-signal=INT {words}"  # a shell starts what runs behind & with SIGINT ignored
    if order.job.nodes == 1:
        return words
    return f"srun --kill-on-bad-exit=1 bash -c {shlex.quote(_RANKED)} bash {words}"


def status(order: Order) -> Status:
    done = order.head.run(["squeue", "--noheader", "--name", order.run_id, "--format", "%T %r"])
    if done.code:
        raise lacking(f"cannot ask Slurm on {order.head.title}: {done.sentence()}")
    state, _, reason = done.out.strip().partition(" ")
    if state in _ACTIVE:
        return Status(_ACTIVE[state], detail="" if reason in ("None", "") else reason)
    written = order.head.read(f"{order.run_dir}/exit_code")
    if written is None or not written.strip():
        return Status(
            "lost", detail="Slurm has no such job and it left no exit code (cancelled, out of time, node lost)"
        )
    code = int(written)
    return Status("failed" if code else "done", code)


def stop(order: Order) -> list[Step]:
    return [Step(["scancel", "--name", order.run_id], order.head)]


def resume(order: Order) -> list[Step]:
    return render(order)
