"""This machine, through gpu_gate: the job waits for its cards, outlives us, and its record is the gate's."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from backends import Order, Status, Step
from rgt.errors import lacking
from rgt.hosts import SECONDS, Host

GATE = Path(__file__).resolve().parents[1] / "gpu_gate.py"
_STATES = {"timeout": "failed"}


def gate_words() -> list[str]:
    return [sys.executable, str(GATE)]


def render(order: Order) -> list[Step]:
    return [start(order, host, gate_words(), node) for node, host in enumerate(order.hosts)]


def start(order: Order, host: Host, gate: list[str], node: int) -> Step:
    job = order.job
    limit = ["-t", f"{job.time_limit:g}"] if job.time_limit else []
    where = ["--gpus", str(job.gpus_per_node)] if job.gpus_per_node else ["--slots", "1"]
    log = f"{order.run_dir}/train.log" if node == 0 else f"{order.run_dir}/train.{node}.log"
    words = [
        *gate, "-n", order.run_id, *limit, "--grace", f"{job.grace:g}", *where, "--unique", "--detach",
        "--log", log, "--",
    ]  # fmt: skip
    variables = job.variables(order.run_dir, node, order.head.address())
    # words 0 and 1 are the interpreter and the bundle in the home directory; the log's path may start there, too
    expand = (0, 1, words.index(log))
    return Step([*words, *job.words(order.run_dir)], host, job.workdir, variables, {}, list(job.secrets), expand)


def resume(order: Order) -> list[Step]:
    """A new job of the same name in the gate, on the same run directory."""
    return render(order)


def stop(order: Order) -> list[Step]:
    return [cancel(order, host, gate_words()) for host in order.hosts]


def cancel(order: Order, host: Host, gate: list[str]) -> Step:
    """It returns when the job has ended, which may take its whole grace."""
    seconds = order.job.grace + SECONDS
    return Step([*gate, "cancel", order.run_id], host, env=queue(order), expand=(1,), seconds=seconds)


def queue(order: Order) -> dict[str, str]:
    """A queue that job.yaml chose is the one to ask later, too."""
    return {name: value for name, value in order.job.env.items() if name == "RGT_QUEUE"}


def status(order: Order) -> Status:
    return combine([gate_status(order, host, gate_words()) for host in order.hosts])


def gate_status(order: Order, host: Host, gate: list[str]) -> Status:
    done = host.run([*gate, "status", order.run_id, "--json"], env=queue(order), expand=(1,))
    if done.code == 2 and "no job is called" in done.err:
        return Status("lost", detail=f"the gate on {host.title} knows no such job")
    if done.code:
        raise lacking(f"cannot ask the gate on {host.title}: {done.sentence()}")
    record = json.loads(done.out)
    return Status(_STATES.get(record["state"], record["state"]), record["exit_code"], record["reason"] or "")


def combine(parts: list[Status]) -> Status:
    """Several nodes: one that failed, or is lost, decides; the job is done when all are."""
    living = tuple(node for node, part in enumerate(parts) if part.state in ("queued", "running"))
    for state in ("failed", "lost", "cancelled"):
        for part in parts:
            if part.state == state:
                return replace(part, still_running=living)
    for state in ("queued", "running", "done"):
        for part in parts:
            if part.state == state:
                return part
    return Status("lost")
