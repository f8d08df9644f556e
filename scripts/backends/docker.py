"""A container on this machine or on one behind ssh. What people forget is in every rendered command:

shared memory, an init that reaps and passes signals on, the ulimits NCCL wants, the run directory on the host with the
log in it.
"""

from __future__ import annotations

import json

from backends import Order, Status, Step
from backends.local import combine
from rgt import units
from rgt.errors import bad_input, lacking
from rgt.hosts import SECONDS

# the log goes to the run directory as everywhere else; `docker logs` would die with the container
_TO_LOG = 'exec "$@" >> "$RGT_RUN_DIR/train.log" 2>&1'
_FOR_NCCL = ["--ulimit", "memlock=-1", "--ulimit", "stack=67108864"]  # pinned buffers; a CPU job needs no such right
_PULL_SECONDS = 3600.0  # `docker run` brings the image first, gigabytes on a fresh box
_STATES = {"created": "queued", "running": "running", "paused": "running", "restarting": "running", "dead": "failed"}


def name(order: Order) -> str:
    return f"rgt-{order.run_id}"


def render(order: Order) -> list[Step]:
    job = order.job
    if not job.image:
        raise bad_input("the docker target needs `image:` in job.yaml; pin it by digest")
    if job.nodes > 1 and len(order.hosts) != job.nodes:
        raise bad_input(f"the job wants {job.nodes} nodes, --on names {len(order.hosts)}: --on docker:HOST1,HOST2")
    return [_run(order, node) for node in range(job.nodes)]


def _run(order: Order, node: int) -> Step:
    job, host = order.job, order.hosts[node]
    variables = job.variables(order.run_dir, node, order.head.address())
    words = [
        "docker", "run", "--detach", "--init", "--name", name(order), "--network", "host",
        "--shm-size", str(units.size(job.shm_size)),
        "--stop-signal", f"SIG{job.signal}", "--stop-timeout", f"{job.grace:.0f}",
        *(["--gpus", str(job.gpus_per_node), *_FOR_NCCL] if job.gpus_per_node else []),
        *_mounts(order), "--workdir", job.workdir,
        *(word for key, value in variables.items() for word in ("--env", f"{key}={value}")),
        *(word for key in job.secrets for word in ("--env", key)),  # no value: docker takes it from its environment
        job.image, "sh", "-c", _TO_LOG, "sh", *_limit(order), *job.words(order.run_dir),
    ]  # fmt: skip
    return Step(words, host, secrets=list(job.secrets), seconds=_PULL_SECONDS)


def _limit(order: Order) -> list[str]:
    """Docker has no time limit; timeout(1) of the image has, with the same signal and grace."""
    job = order.job
    return ["timeout", "-s", job.signal, "-k", f"{job.grace:.0f}", f"{job.time_limit:.0f}"] if job.time_limit else []


def _mounts(order: Order) -> list[str]:
    """The code, and what job.yaml names; the run directory too, when it lies elsewhere. On every node."""
    job = order.job
    places = [(job.workdir, job.workdir, False), *((m["from"], m["to"], m.get("read_only", False)) for m in job.mounts)]
    if not order.run_dir.startswith(job.workdir + "/"):
        places.append((order.run_dir, order.run_dir, False))
    words = []
    for source, target, read_only in places:
        if "," in source + target:
            raise bad_input(f"docker cannot mount a path with a comma: {source}")
        words += ["--mount", f"type=bind,source={source},target={target}" + (",readonly" if read_only else "")]
    return words


def status(order: Order) -> Status:
    return combine([_inspect(order, node) for node in range(order.job.nodes)])


def _inspect(order: Order, node: int) -> Status:
    host = order.hosts[node]
    done = host.run(["docker", "inspect", "--type", "container", "--format", "{{json .State}}", name(order)])
    if done.code:
        if "no such" in done.err.lower():
            return Status("lost", detail=f"docker on {host.title} has no container {name(order)}")
        raise lacking(f"cannot ask docker on {host.title}: {done.sentence()}")
    state = json.loads(done.out)
    if state["Status"] != "exited":
        return Status(_STATES.get(state["Status"], "lost"))
    code = int(state["ExitCode"])
    detail = "the kernel's OOM killer ended it (OOMKilled)" if state.get("OOMKilled") else state.get("Error", "")
    return Status("failed" if code else "done", code, detail)


def stop(order: Order) -> list[Step]:
    words = ["docker", "stop", "--time", f"{order.job.grace:.0f}", name(order)]
    return [Step(words, host, seconds=order.job.grace + SECONDS) for host in order.hosts]


def resume(order: Order) -> list[Step]:
    """The same container again where it still exists: same image, same words. Else a new one, node by node."""
    again = [Step(["docker", "start", name(order)], host) for host in order.hosts]
    gone = [_inspect(order, node).state == "lost" for node in range(order.job.nodes)]
    return [new if lost else old for old, new, lost in zip(again, render(order), gone, strict=True)]
