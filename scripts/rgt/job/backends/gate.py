"""This machine, or machines behind ssh as nodes of one job: through gpu_gate, which is shipped as one file (box.pyz).

The job waits for its cards, is the gate's child and not ours or the connection's, and its record is the gate's. A box
needs its own python3 and nothing else.
"""

from __future__ import annotations

import json
import sys

from rgt import bundle
from rgt.errors import RgtError, lacking
from rgt.host import box
from rgt.host.ssh import SECONDS, Host
from rgt.job import supervisor
from rgt.job.backends import Order, Status, Step, combine, ended, engine_states, supervisor_words
from rgt.job.description import seconds_word

_STATES = engine_states(finished="done", failed="timeout", stopped="cancelled")  # the gate's other words are ours


def render(order: Order) -> list[Step]:
    order.check_nodes()
    return [start(order, host, _gate(host), node) for node, host in enumerate(order.hosts)]


resume = render  # a new job of the same name in the gate, on the same run directory


def _gate(host: Host) -> list[str]:
    return box.tool_words("gpu_gate") if host.name else [sys.executable, str(bundle.SCRIPTS / "gpu_gate.py")]


def start(order: Order, host: Host, gate: list[str], node: int) -> Step:
    job, log = order.job, order.log(node)
    words = [*gate, "-n", order.run_id, *(["-t", seconds_word(job.time_limit)] if job.time_limit else [])]
    words += ["--grace", seconds_word(job.grace)]
    words += ["--gpus", str(job.gpus_per_node)] if job.gpus_per_node else ["--slots", "1"]
    words += ["--unique", "--detach", "--log", log, *job.extra.get(order.kind, []), "--"]
    variables = job.variables(order.run_dir, node, order.master)
    # words 0 and 1 are the interpreter and the bundle in the home directory; the log's path may start there, too
    expand: tuple[int, ...] = (0, 1, words.index(log))
    command, files = job.words(order.run_dir), dict[str, str]()
    if order.supervised:
        files = order.supervisor_files(words=command)
        command = [*supervisor_words(host), order.run_dir]
        expand = (*expand, len(words) + 1, len(words) + len(command) - 1)
    return Step([*words, *command], host, job.workdir, variables, files, list(job.secrets), expand)


def queue_variable(order: Order) -> dict[str, str]:
    """A queue that job.yaml chose is the one to ask later, too."""
    return {name: value for name, value in order.job.env.items() if name == "RGT_QUEUE"}


def stop(order: Order) -> list[Step]:
    """It returns when the job has ended, which may take its whole grace."""
    how = {"env": queue_variable(order), "expand": (1,), "seconds": order.job.grace + SECONDS}
    return [Step([*_gate(host), "cancel", order.run_id], host, **how) for host in order.hosts]  # type: ignore[arg-type]


def status(order: Order) -> Status:
    """A box without the bundle (a submit that died early, an emptied cache) gets it first, then is asked again."""
    parts = []
    for host in order.hosts:
        try:
            parts.append(_status(order, host))
        except RgtError:
            if not host.name:
                raise
            box.ship(host)  # does nothing when another launch brought it meanwhile
            parts.append(_status(order, host))
    return combine(parts)


def _status(order: Order, host: Host) -> Status:
    done = host.run([*_gate(host), "status", order.run_id, "--json"], env=queue_variable(order), expand=(1,))
    if done.code == 2 and "no job is called" in done.err:
        return Status("lost", detail=f"the gate on {host.title} knows no such job")
    if done.code:
        raise lacking(f"cannot ask the gate on {host.title}: {done.sentence()}")
    record = json.loads(done.out)
    # the gate's own child may have been a supervisor that was killed; a timeout or a cancel is the gate's own act
    if order.supervised and record["state"] in ("done", "failed", "lost"):
        written = host.read(f"{order.run_dir}/{supervisor.FOLDER}/state.json")
        known = json.loads(written) if written else {}
        if known.get("ended") and known["code"] is not None:
            plain = known["ended"] == supervisor.plain_cause(known["code"]) or not known["code"]
            return ended(known["code"], "" if plain else known["ended"])
    return Status(_STATES.get(record["state"], record["state"]), record["exit_code"], record["reason"] or "")
