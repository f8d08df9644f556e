"""A Kubernetes Job, through this machine's kubectl with its current context and namespace.

What job.yaml means here:
    image     required; the code is in it, or on a mount
    mounts    from: pvc:NAME, a PersistentVolumeClaim (ReadWriteMany for several nodes), or an absolute path on the node
    output    below a mount, so that checkpoints outlive the pod; workdir and output are paths in the container
    secrets   a Secret that dies with the Job; the values go from our environment to kubectl's stdin, to no file
    grace     terminationGracePeriodSeconds; `signal` is passed on to the job when Kubernetes says TERM
    max_restarts    per node; evictions and drains do not count
Several nodes are an Indexed Job behind a headless Service: rank from the index, the first pod is the head.
`stop` suspends the Job (pods get their grace, the Job stays), `resume` takes it up again. Needs Kubernetes 1.29.
`hardware.accelerators` and `spot` are words of other engines.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import PurePosixPath
from typing import Any

from rgt import units
from rgt.errors import bad_input
from rgt.job.backends import WAIT_FOR_CHILD, Order, Status, Step, ask

LABEL = "rgt-run"
_RANK = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_GPU = "nvidia.com/gpu"

# The shell is PID 1, for which TERM has no default action: it passes the signal on, and reaps what is orphaned.
# The log is a file in the run directory as everywhere; tail copies it to where `kubectl logs` looks.
_BODY = """\
log=$RGT_RUN_DIR/train.log
[ "${{PET_NODE_RANK:-0}}" = 0 ] || log=$RGT_RUN_DIR/train.$PET_NODE_RANK.log
mkdir -p "$RGT_RUN_DIR" && : >> "$log" || exit 3
child=
trap 'if [ -n "$child" ]; then kill -{signal} "$child" 2>/dev/null; else exit 143; fi' TERM
tail -n 0 -F "$log" 2>/dev/null &
tail=$!
"$@" >> "$log" 2>&1 &
child=$!
{wait}sleep 1   # for tail to copy the last lines
kill "$tail" 2>/dev/null
exit "$code"
"""

# Reads values from its environment; server-side apply keeps no second copy of them in an annotation.
_SECRET = """\
import json, os, subprocess, sys
name, *keys = sys.argv[1:]
uid = subprocess.run(["kubectl", "get", "job", name, "-o", "jsonpath={.metadata.uid}"], stdout=subprocess.PIPE)
if uid.returncode:
    sys.exit(uid.returncode)
owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid.stdout.decode()}
secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "ownerReferences": [owner]},
          "stringData": {key: os.environ[key] for key in keys}}
words = ["kubectl", "apply", "--server-side", "--force-conflicts", "-f", "-"]
sys.exit(subprocess.run(words, input=json.dumps(secret).encode()).returncode)
"""


def render(order: Order) -> list[Step]:
    job, path = order.job, f"{order.record_dir}/k8s.json"
    if not job.image:
        raise bad_input("the k8s target needs `image:` in job.yaml; pin it by digest")
    if not job.workdir.startswith("/"):
        raise bad_input(f"workdir is a path in the container on k8s, so it starts with /, not {job.workdir}")
    if not any(PurePosixPath(order.run_dir).is_relative_to(mount["to"]) for mount in job.mounts):
        advice = "add mounts: [{from: pvc:NAME, to: /data}] and output: /data/runs"
        raise bad_input(f"{order.run_dir} is on no mount, so checkpoints would die with the pod; {advice}")
    if "min_gpu_memory" in job.hardware:
        raise bad_input("k8s chooses no card by its memory; leave hardware.min_gpu_memory out")
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests(order)}, indent=2)
    steps = [Step(["kubectl", "apply", "-f", path], files={path: text})]
    if job.secrets:
        steps.append(Step([sys.executable, "-c", _SECRET, order.label, *job.secrets], secrets=list(job.secrets)))
    return steps


def manifests(order: Order) -> list[dict[str, Any]]:
    """The Job; for several nodes the Service before it."""
    job, name = order.job, order.label
    metadata = {"name": name, "labels": {LABEL: name}, "annotations": {LABEL: order.run_id}}
    disrupted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    spec: dict[str, Any] = {
        # the old pod has ended before its replacement starts: two of one run would write over each other's checkpoints
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": [disrupted]},
        "template": {"metadata": {"labels": {LABEL: name}}, "spec": _pod(order)},
    }
    if job.time_limit:  # counts from the first pod wanted to the end, restarts included: a bound on what it can cost
        spec["activeDeadlineSeconds"] = math.ceil(job.time_limit)
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
    if job.nodes == 1:
        spec["backoffLimit"] = job.restarts
        return [made]
    # one lost node takes all the others down with it, so a limit for the whole Job would be used up at once
    spec |= {"completionMode": "Indexed", "completions": job.nodes, "parallelism": job.nodes}
    spec |= {"backoffLimitPerIndex": job.restarts, "maxFailedIndexes": 0}
    # headless, and with addresses of pods that are not ready: the rendezvous comes before any readiness
    ports = [{"name": "rendezvous", "port": job.port}]
    behind = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {LABEL: name}, "ports": ports}
    return [{"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": behind}, made]


def _pod(order: Order) -> dict[str, Any]:
    job = order.job
    shm = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(units.size(job.shm_size))}}
    pod: dict[str, Any] = {"containers": [_container(order)], "volumes": [shm]}
    # podFailurePolicy asks for Never; the Job makes new pods
    pod |= {"restartPolicy": "Never", "terminationGracePeriodSeconds": math.ceil(job.grace)}
    for index, mount in enumerate(job.mounts):
        source = mount["from"]
        if source.startswith("pvc:"):
            volume: dict[str, Any] = {"persistentVolumeClaim": {"claimName": source[4:]}}
        elif source.startswith("/"):
            volume = {"hostPath": {"path": source, "type": "Directory"}}  # never an empty one by mistake
        else:
            raise bad_input(f"k8s mounts pvc:NAME or an absolute path on the node, not {source!r}")
        pod["volumes"].append({"name": f"mount-{index}", **volume})
    if job.nodes > 1:
        pod["subdomain"] = order.label
    if job.gpus_per_node:
        pod["tolerations"] = [{"key": _GPU, "operator": "Exists"}]
    return {**pod, **job.extra.get("k8s", {})}


def _container(order: Order) -> dict[str, Any]:
    job, name = order.job, order.label
    rank = {"valueFrom": {"fieldRef": {"fieldPath": _RANK}}}
    variables = job.variables(order.run_dir, head=f"{name}-0.{name}")
    env: list[dict[str, Any]] = [
        {"name": key, **(rank if job.nodes > 1 and key == "PET_NODE_RANK" else {"value": literal(value)})}
        for key, value in variables.items()
    ]
    env += [{"name": key, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}} for key in job.secrets]
    # GPUs are limits; so is memory (which /dev/shm counts into): without one, the node's OOM killer chooses
    limits = {_GPU: str(job.gpus_per_node)} if job.gpus_per_node else {}
    requests = {"cpu": str(job.hardware["cpus"])} if "cpus" in job.hardware else {}
    if "memory" in job.hardware:
        limits["memory"] = requests["memory"] = str(units.size(job.hardware["memory"]))
    mounts = [
        {"name": f"mount-{index}", "mountPath": mount["to"], "readOnly": mount.get("read_only", False)}
        for index, mount in enumerate(job.mounts)
    ]
    body = _BODY.format(signal=job.signal, wait=WAIT_FOR_CHILD)
    words = [literal(word) for word in ("sh", "-c", body, "sh", *job.words(order.run_dir))]
    starts = {"name": "job", "image": job.image, "workingDir": job.workdir, "command": words, "env": env}
    mounted = [{"name": "shm", "mountPath": "/dev/shm"}, *mounts]
    return {**starts, "resources": {"limits": limits, "requests": requests}, "volumeMounts": mounted}


def literal(text: str) -> str:
    """Kubernetes reads $(NAME) in command and env, and $$ as $: so every $ is doubled."""
    return text.replace("$", "$$")


# -- what became of it


def status(order: Order) -> Status:
    found = _get(order, "job", order.label)
    if not found:
        return Status("lost", detail=f"kubectl's current context has no job {order.label}")
    state = found.get("status", {})
    now = {each["type"]: each for each in state.get("conditions") or [] if each["status"] == "True"}
    if "Complete" in now:
        return Status("finished", 0)
    if "Suspended" in now and "Failed" not in now:
        return Status("stopped", detail="suspended")
    if state.get("ready") and "Failed" not in now:
        return Status("running")
    pods = _get(order, "pods", "-l", f"{LABEL}={order.label}").get("items", [])
    by_age = sorted(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")))
    statuses = [pod.get("status", {}) for pod in by_age]
    containers = [each.get("state", {}) for pod in statuses for each in pod.get("containerStatuses") or []]
    if "Failed" in now:
        codes = [ended for each in containers if (ended := each.get("terminated", {})).get("exitCode")]
        last = codes[-1] if codes else {}
        memory = "killed by its memory limit" if last.get("reason") == "OOMKilled" else ""
        return Status("failed", last.get("exitCode"), "; ".join(filter(None, [_reason(now["Failed"]), memory])))
    # why it does not run: the image cannot be had, no node fits
    waiting = [each.get("waiting", {}) for each in containers]
    conditions = [each for pod in statuses for each in pod.get("conditions") or [] if each.get("status") == "False"]
    reasons = [_reason(each) for each in (*waiting, *conditions) if each.get("message")]
    return Status("queued", detail=reasons[0] if reasons else "")


def _reason(said: dict[str, Any]) -> str:
    return ": ".join(filter(None, [said.get("reason"), said.get("message")]))


def _get(order: Order, *what: str) -> dict[str, Any]:
    """Empty when there is none."""
    done = ask(order.head, ["kubectl", "get", *what, "-o", "json"], "ask Kubernetes", gone=r"\(NotFound\)")
    return dict(json.loads(done.out)) if done else {}


def logs(order: Order, lines: int) -> list[str]:
    """Of the first node."""
    first = ["-l", f"{LABEL}={order.label},batch.kubernetes.io/job-completion-index=0"]
    which = first if order.job.nodes > 1 else [f"job/{order.label}"]
    done = ask(order.head, ["kubectl", "logs", *which, f"--tail={lines}"], "get the log from Kubernetes")
    return done.out.splitlines() if done else []


# -- stop and go on


def stop(order: Order, suspend: bool = True) -> list[Step]:
    patch = json.dumps({"spec": {"suspend": suspend}})
    return [Step(["kubectl", "patch", "job", order.label, "--type=merge", "--patch", patch])]


def resume(order: Order) -> list[Step]:
    """A suspended Job goes on; a failed one cannot, so it is made anew."""
    now = status(order).state
    if now == "stopped":
        return stop(order, suspend=False)
    words = ["kubectl", "delete", "job", order.label, "--ignore-not-found", "--cascade=foreground"]
    remove = [] if now == "lost" else [Step(words, seconds=order.job.grace + 120)]
    return [*remove, *render(order)]
