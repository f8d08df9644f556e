"""OpenClaw nodes: the exact `exec` calls that an OpenClaw agent makes. Nothing here can make them itself.

    rgt launch submit job.yaml --on openclaw:NODE --dry-run

Each call is short: it hands the job to the gate on the node, or with `image:` to docker, and returns. A job that were
itself the call would end with OpenClaw's timeout (1800 s unless said otherwise), and `background` would leave it to the
memory of a gateway, until its next restart. So background and pty are off, unless extra: {openclaw: {...}} says else
for the starting call; timeoutSeconds (called timeout before 2026.8) bounds the handing over.

Without an image the node has python3, and the bundle in ~/.cache/rgt: `--on ssh:` brings it, or any copy. The first
call says so if not. Secrets are in the environment of the node's own service: in a call they would be in the agent's
transcript. Several nodes are openclaw:NODE1,NODE2, and master_addr is an address of the first that the others reach.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NoReturn

from rgt.errors import bad_input, lacking
from rgt.host import box
from rgt.job.backends import Order, Step, docker
from rgt.job.backends import gate as gates
from rgt.run import record

Call = Callable[..., tuple[str, dict[str, Any]]]
PLACEHOLDER = "<run-id>"  # what launch's --dry-run calls a run
_SECONDS = 120
# Overrides that OpenClaw refuses or drops for a command on a host (its host-env-security-policy.json), as far as a
# training job would set them.
_REFUSED = re.compile(
    r"(?:LD|DYLD|BASH_FUNC|GIT_CONFIG|NPM_CONFIG|PIP|UV|SSL_CERT)_\w+|\w+_PROXY|PATH|HOME|SHELL|(?:BASH_)?ENV|VIRTUAL_ENV"
    r"|PYTHON(?:PATH|HOME|STARTUP|USERBASE)|CC|CXX|CPATH|LIBRARY_PATH|NODE_OPTIONS|(?:REQUESTS|CURL)_CA_BUNDLE"
    r"|XDG_CONFIG_HOME|KUBECONFIG|DOCKER_HOST|GOOGLE_APPLICATION_CREDENTIALS|AWS_(?:CONFIG|SHARED_CREDENTIALS)_FILE",
    re.I,
)


def render(order: Order) -> list[Step]:
    """For --dry-run: the calls, with a run id of their own so that they can be made as they stand."""
    if order.run_id != PLACEHOLDER:
        only_the_agent(order)
    named = replace(order, run_id=record.mint_id(order.job.name))
    return [Step([], files={title: json.dumps(call, indent=2, ensure_ascii=False)}) for title, call in calls(named)]


def calls(order: Order) -> Iterator[tuple[str, dict[str, Any]]]:
    """What to do now, node by node; then what to do later. Each with its title."""
    job = order.job
    order.check_nodes()
    if not order.run_dir.startswith("/") or not job.workdir.startswith("/"):
        raise bad_input(f"OpenClaw does not expand ~; give workdir as an absolute path on the node, not {job.workdir}")
    if job.nodes > 1 and not job.master_addr:
        raise bad_input("a node's name in OpenClaw is no address; add master_addr: ADDRESS of the first node")
    refused = [name for name in job.env if _REFUSED.fullmatch(name)]
    if refused and not job.image:  # docker gets them as words
        advice = f"set it in the node's own service, or start the job as command: [env, {refused[0]}=..., ...]"
        raise bad_input(f"OpenClaw takes no {refused[0]} from a call; {advice}")

    def call(what: str, node: int, command: str, **more: Any) -> tuple[str, dict[str, Any]]:
        name = order.hosts[node].name
        where = {"tool": "exec", "host": "node", **({"node": name} if name else {})}
        how = {"background": False, "pty": False, "timeoutSeconds": _SECONDS}
        return f"exec call {what}: {name or 'the node'}", {**where, "command": command, **how, **more}

    yield from (_with_docker if job.image else _with_the_gate)(order, call)


def _check(needed: list[str], tests: list[str], secrets: list[str]) -> str:
    wanted = shlex.quote(" ".join(["the node lacks one of:", *needed, *secrets]))
    tests = [*tests, *(f'test -n "${{{name}:-}}"' for name in secrets)]
    return f"{' && '.join(tests)} && echo ready || {{ echo {wanted}; exit 3; }}"


def _with_the_gate(order: Order, call: Call) -> Iterator[tuple[str, dict[str, Any]]]:
    job, bundle = order.job, box.tool_words("gpu_gate")[1].removeprefix("~/")
    ready = _check([f"~/{bundle}"], [f'test -s "$HOME"/{bundle}'], job.secrets)
    gate = f'python3 "$HOME"/{bundle} gpu_gate '  # the node's shell expands $HOME and nothing else
    later_env = {"env": queue} if (queue := gates.queue_variable(order)) else {}
    own = job.extra.get("openclaw", {})
    for node, host in enumerate(order.hosts):
        step = gates.start(order, host, [], node)  # what the ssh target would run there
        yield call("now, check", node, ready)
        yield call("now, start", node, gate + shlex.join(step.words), workdir=job.workdir, env=step.env, **own)
    for node in range(job.nodes):
        yield call("later, to ask", node, f"{gate}status {order.run_id} --json", **later_env)
        yield call("later, to read the log", node, shlex.join(["tail", "-n", "50", order.log(node)]))
        yield call("later, to stop", node, f"{gate}cancel {order.run_id}", **later_env)


def _with_docker(order: Order, call: Call) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every word is in the command; secrets come from the environment of the node's service."""
    job, name, own = order.job, docker.name(order), order.job.extra.get("openclaw", {})
    image = shlex.quote(job.image)
    tests = [f"test -d {shlex.quote(job.workdir)}", "docker version > /dev/null"]
    ready = _check(["docker", job.workdir], tests, job.secrets)
    for node, step in enumerate(docker.render(order)):
        bring = f"docker image inspect {image} > /dev/null || docker pull {image}"
        yield call("now, check", node, ready)
        yield call("now, bring the image", node, bring, timeoutSeconds=0)  # gigabytes
        start = f"mkdir -p {shlex.quote(order.run_dir)} && {shlex.join(step.words)}"
        yield call("now, start", node, start, workdir=job.workdir, **own)
    for node in range(job.nodes):
        yield call("later, to ask", node, shlex.join(["docker", "inspect", "--format", "{{json .State}}", name]))
        yield call("later, to read the log", node, shlex.join(["tail", "-n", "50", order.log()]))
        yield call("later, to stop", node, shlex.join(docker.stop(order)[node].words))
        yield call("later, to go on", node, shlex.join(["docker", "start", name]))
        yield call("later, to remove the container", node, shlex.join(["docker", "rm", name]))


def only_the_agent(order: Order) -> NoReturn:
    advice = "print the exec calls with `submit job.yaml --on openclaw:NODE --dry-run` and make them"
    node = order.head.name or "a node"
    raise lacking(f"only an OpenClaw agent can start, ask or stop a job on {node}; {advice}")


status = stop = resume = only_the_agent
