"""OpenClaw nodes: the exact `exec` calls that an OpenClaw agent makes. Nothing here can make them itself.

    python scripts/launch.py submit job.yaml --on openclaw:NODE --dry-run

Each call is short: it hands the job to the gate on the node and returns. A job that were itself the call would end with
OpenClaw's timeout (1800 s unless said otherwise), and `background` would leave it to the memory of a gateway, until its
next restart. So background and pty are off; timeoutSeconds (called timeout before 2026.8) bounds the handing over.

The node has python3, and the bundle in ~/.cache/rgt: `--on ssh:` brings it, or any copy. The first call says so if not.
Secrets are in the environment of the node's own service: in a call they would be in the agent's transcript.
Several nodes are openclaw:NODE1,NODE2, and the first one's name is an address that the others reach.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

from backends import Order, Status, Step, local, ssh
from rgt import ids
from rgt.errors import RgtError, bad_input, lacking

PLACEHOLDER = "<run-id>"  # what launch's --dry-run calls a run
_SECONDS = 120
# Overrides that OpenClaw refuses or drops for a command on a host (its host-env-security-policy.json), as far as a
# training job would set them.
_REFUSED = {
    "PATH", "HOME", "SHELL", "ENV", "BASH_ENV", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE",
    "VIRTUAL_ENV", "CC", "CXX", "CPATH", "LIBRARY_PATH", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL",
    "PIP_CONFIG_FILE", "UV_INDEX", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_PYTHON", "XDG_CONFIG_HOME", "KUBECONFIG",
    "GOOGLE_APPLICATION_CREDENTIALS", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "DOCKER_HOST", "NODE_OPTIONS",
}  # fmt: skip
_REFUSED_STARTS = ("LD_", "DYLD_", "BASH_FUNC_", "GIT_CONFIG_", "NPM_CONFIG_")


def render(order: Order) -> list[Step]:
    """For --dry-run: the calls, with a run id of their own so that they can be made as they stand."""
    if order.run_id != PLACEHOLDER:
        raise _only_the_agent("submit")
    named = Order(order.job, ids.mint_id(order.job.name), order.kind, order.hosts)
    return [Step([], files={title: json.dumps(call, indent=2, ensure_ascii=False)}) for title, call in calls(named)]


def _only_the_agent(verb: str) -> RgtError:
    return lacking(
        f"only an OpenClaw agent can {verb} on an OpenClaw node; print the exec calls with "
        "`submit job.yaml --on openclaw:NODE --dry-run` and make them"
    )


def calls(order: Order) -> Iterator[tuple[str, dict[str, Any]]]:
    """What to do now, node by node; then what to do later. Each with its title."""
    _check(order)
    for node in range(order.job.nodes):
        yield _title(order, "now, check", node), _ready(order, node)
        yield _title(order, "now, start", node), _start(order, node)
    for node in range(order.job.nodes):
        yield _title(order, "later, to ask", node), _verb(order, node, "status", "--json")
        yield _title(order, "later, to read the log", node), _read(order, node)
        yield _title(order, "later, to stop", node), _verb(order, node, "cancel")


def _title(order: Order, what: str, node: int) -> str:
    return f"exec call {what}: {order.hosts[node].name or 'the node'}"


def _check(order: Order) -> None:
    job = order.job
    if len(order.hosts) != job.nodes:
        raise bad_input(f"the job wants {job.nodes} nodes, --on names {len(order.hosts)}: --on openclaw:NODE1,NODE2")
    if not order.run_dir.startswith("/") or not job.workdir.startswith("/"):
        raise bad_input(f"OpenClaw does not expand ~; give workdir as an absolute path on the node, not {job.workdir}")
    refused = [name for name in job.env if name.upper() in _REFUSED or name.upper().startswith(_REFUSED_STARTS)]
    if refused:
        raise bad_input(
            f"OpenClaw takes no {refused[0]} from a call; set it in the node's own service, "
            f"or start the job as command: [env, {refused[0]}=..., ...]"
        )


def _call(order: Order, node: int, command: str, **more: Any) -> dict[str, Any]:
    name = order.hosts[node].name
    return {
        "tool": "exec", "host": "node", **({"node": name} if name else {}), "command": command, **more,
        "background": False, "pty": False, "timeoutSeconds": _SECONDS,
    }  # fmt: skip


def _gate(words: list[str]) -> str:
    """The node's shell expands $HOME and nothing else."""
    return f'python3 "$HOME"/{_bundle()} {shlex.join(["gpu_gate", *words])}'


def _bundle() -> str:
    return ssh.gate_words()[1].removeprefix("~/")


def _ready(order: Order, node: int) -> dict[str, Any]:
    bundle, secrets = _bundle(), order.job.secrets
    tests = [f'test -s "$HOME"/{bundle}', *(f'test -n "${{{name}:-}}"' for name in secrets)]
    wanted = shlex.quote(" ".join(["the node lacks one of:", f"~/{bundle}", *secrets]))
    return _call(order, node, f"{' && '.join(tests)} && echo ready || {{ echo {wanted}; exit 3; }}")


def _start(order: Order, node: int) -> dict[str, Any]:
    """What the ssh target would run there."""
    step = local.start(order, order.hosts[node], [], node)
    return _call(order, node, _gate(step.words), workdir=order.job.workdir, env=step.env)


def _verb(order: Order, node: int, verb: str, *more: str) -> dict[str, Any]:
    queue = local.queue(order)
    return _call(order, node, _gate([verb, order.run_id, *more]), **({"env": queue} if queue else {}))


def _read(order: Order, node: int) -> dict[str, Any]:
    words = local.start(order, order.hosts[node], [], node).words
    return _call(order, node, shlex.join(["tail", "-n", "50", words[words.index("--log") + 1]]))


def status(order: Order) -> Status:
    raise _only_the_agent("ask")


def stop(order: Order) -> list[Step]:
    raise _only_the_agent("stop a job")


def resume(order: Order) -> list[Step]:
    raise _only_the_agent("resume a job")
