"""A container on this machine or on one behind ssh. What people forget is in every rendered command:

shared memory, an init that reaps and passes signals on, the ulimits NCCL wants, the run directory on the host with the
log in it.
"""

from __future__ import annotations

import json
from typing import Any

from rgt import units
from rgt.errors import bad_input
from rgt.host.ssh import SECONDS, Host
from rgt.job import supervisor
from rgt.job.backends import Order, Status, Step, ask, combine, ended, engine_states, limit_words, supervisor_words

# the log goes to the run directory as everywhere else; `docker logs` would die with the container
_TO_LOG = 'exec "$@" >> "$RGT_RUN_DIR/train.log" 2>&1'
_FOR_NCCL = ["--ulimit", "memlock=-1", "--ulimit", "stack=67108864"]  # pinned buffers; a CPU job needs no such right
_PULL_SECONDS = 3600.0  # `docker run` brings the image first, gigabytes on a fresh box
_STATES = engine_states(queued="created", running="running paused restarting", failed="dead")


def render(order: Order) -> list[Step]:
    """A container on each node, with the code, the mounts of job.yaml, and the run directory if it lies elsewhere."""
    job = order.job
    if not job.image:
        raise bad_input("the docker target needs `image:` in job.yaml; pin it by digest")
    order.check_nodes()
    places = [(job.workdir, job.workdir, False), *((m["from"], m["to"], m.get("read_only", False)) for m in job.mounts)]
    if not order.run_dir.startswith(job.workdir + "/"):
        places.append((order.run_dir, order.run_dir, False))
    options = ["--name", name(order), "--shm-size", str(units.size(job.shm_size)), "--workdir", job.workdir]
    options += ["--stop-signal", f"SIG{job.signal}", "--stop-timeout", f"{job.grace:.0f}"]
    if job.gpus_per_node:
        options += ["--gpus", str(job.gpus_per_node), *_FOR_NCCL]
    for source, target, read_only in places:
        if "," in source + target:
            raise bad_input(f"docker cannot mount a path with a comma: {source}")
        options += ["--mount", f"type=bind,source={source},target={target}" + (",readonly" if read_only else "")]
    options += job.extra.get("docker", [])
    inside = [job.image, "sh", "-c", _TO_LOG, "sh", *limit_words(job), *job.words(order.run_dir)]
    steps = []
    for node, host in enumerate(order.hosts):
        variables = job.variables(order.run_dir, node, order.master)
        # a secret without a value: docker takes it from its environment
        env = [*(f"{key}={value}" for key, value in variables.items()), *job.secrets]
        words = ["docker", "run", "--detach", "--init", "--network", "host", *options]
        words += [word for each in env for word in ("--env", each)]
        steps.append(Step([*words, *inside], host, secrets=list(job.secrets), seconds=_PULL_SECONDS))
    return [*steps, *_supervise(order)]


def _supervise(order: Order) -> list[Step]:
    """Beside the container, on its host: an image need not have a Python."""
    if not order.supervised:
        return []
    program, *options = supervisor_words(order.head)
    words = [program, *options, "--detach", order.run_dir]
    files = order.supervisor_files(container=name(order))
    # what it sends to a store, it sends with the job's own token
    known: dict[str, Any] = {"env": order.job.env, "secrets": list(order.job.secrets)} if order.job.store else {}
    return [Step(words, order.head, files=files, expand=(1, len(words) - 1), **known)]


def name(order: Order) -> str:
    return f"rgt-{order.run_id}"


def status(order: Order) -> Status:
    return combine([_container_status(order, host) for host in order.hosts])


def _container_status(order: Order, host: Host) -> Status:
    words = ["docker", "inspect", "--type", "container", "--format", "{{json .State}}", name(order)]
    done = ask(host, words, f"ask docker on {host.title}", gone="(?i)no such")
    if not done:
        return Status("lost", detail=f"docker on {host.title} has no container {name(order)}")
    state = json.loads(done.out)
    if state["Status"] == "exited" and order.supervised:
        written = host.read(f"{order.run_dir}/{supervisor.FOLDER}/state.json")
        known = json.loads(written) if written else {"ended": "nobody restarts it"}
        if not known["ended"]:
            return Status("queued", detail=f"restart {known['restarts']} comes")
        if known.get("code") and int(state["ExitCode"]) == known["code"]:
            return ended(known["code"], known["ended"])
    if state["Status"] != "exited":
        return Status(_STATES.get(state["Status"], "lost"))
    killed = "the kernel's OOM killer ended it (OOMKilled)" if state.get("OOMKilled") else state.get("Error", "")
    return ended(int(state["ExitCode"]), killed)


def stop(order: Order) -> list[Step]:
    # -t: docker 28 deprecated --time, and older ones do not know --timeout
    words = ["docker", "stop", "-t", f"{order.job.grace:.0f}", name(order)]
    steps = [Step(words, host, seconds=order.job.grace + SECONDS) for host in order.hosts]
    if order.supervised:  # first, or it would start it again
        steps.insert(0, Step(["touch", f"{order.run_dir}/{supervisor.FOLDER}/stop"], order.head, expand=(1,)))
    return steps


def remove(order: Order) -> list[Step]:
    """The containers, not what they wrote to the host."""
    return [Step(["docker", "rm", name(order)], host) for host in order.hosts]


def resume(order: Order) -> list[Step]:
    """The same container again where it still exists: same image, same words. Else a new one, node by node."""
    if order.supervised:  # only the supervisor's own start forgets that it was asked to stop
        order.head.run(["rm", "-f", f"{order.run_dir}/{supervisor.FOLDER}/stop"], expand=(2,))
    gone = [_container_status(order, host).state == "lost" for host in order.hosts]
    new, old = render(order), [Step(["docker", "start", name(order)], host) for host in order.hosts]
    return [*(new[node] if lost else old[node] for node, lost in enumerate(gone)), *_supervise(order)]
