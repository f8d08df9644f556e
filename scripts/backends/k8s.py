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
`hardware.accelerators` and `spot` are words of other engines; min_gpu_memory asks NVIDIA's node label.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import PurePosixPath
from typing import Any

from backends import WAIT_FOR_CHILD, Order, Status, Step, engine_name
from rgt import units
from rgt.errors import bad_input, lacking

LABEL = "rgt-run"
_RANK = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
_GPU, _GPU_MEMORY = "nvidia.com/gpu", "nvidia.com/gpu.memory"  # the second is set by GPU feature discovery, in MiB
_NOMINAL = 0.93  # a "24 GB" card has 23034 MiB, a "16 GB" one 15360

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
    _check(order)
    path = f"{order.record_dir}/k8s.json"
    steps = [Step(["kubectl", "apply", "-f", path], files={path: manifest_text(order)})]
    if order.job.secrets:
        words = [sys.executable, "-c", _SECRET, engine_name(order.run_id), *order.job.secrets]
        steps.append(Step(words, secrets=list(order.job.secrets)))
    return steps


def _check(order: Order) -> None:
    job = order.job
    if not job.image:
        raise bad_input("the k8s target needs `image:` in job.yaml; pin it by digest")
    if not job.workdir.startswith("/"):
        raise bad_input(f"workdir is a path in the container on k8s, so it starts with /, not {job.workdir}")
    if not any(PurePosixPath(order.run_dir).is_relative_to(mount["to"]) for mount in job.mounts):
        raise bad_input(
            f"{order.run_dir} is on no mount, so checkpoints would die with the pod; "
            "add mounts: [{from: pvc:NAME, to: /data}] and output: /data/runs"
        )


def manifest_text(order: Order) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests(order)}, indent=2)


def manifests(order: Order) -> list[dict[str, Any]]:
    service = [_service(order)] if order.job.nodes > 1 else []
    return [*service, _job(order)]


def _service(order: Order) -> dict[str, Any]:
    """Headless, and with addresses of pods that are not ready: the rendezvous comes before any readiness."""
    name = engine_name(order.run_id)
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {LABEL: name},
            "ports": [{"name": "rendezvous", "port": order.job.port}]}  # fmt: skip
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(order), "spec": spec}


def _metadata(order: Order) -> dict[str, Any]:
    labels = {LABEL: engine_name(order.run_id)}
    return {"name": engine_name(order.run_id), "labels": labels, "annotations": {LABEL: order.run_id}}


def _job(order: Order) -> dict[str, Any]:
    job = order.job
    spec: dict[str, Any] = {
        # counts from the first pod wanted to the end, restarts included: a bound on what it can cost
        **({"activeDeadlineSeconds": math.ceil(job.time_limit)} if job.time_limit else {}),
        **_restarts(order),
        # the old pod has ended before its replacement starts: two of one run would write over each other's checkpoints
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]
        },
        "template": {"metadata": {"labels": {LABEL: engine_name(order.run_id)}}, "spec": _pod(order)},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(order), "spec": spec}


def _restarts(order: Order) -> dict[str, Any]:
    job = order.job
    if job.nodes == 1:
        return {"backoffLimit": job.max_restarts}
    # one lost node takes all the others down with it, so a limit for the whole Job would be used up at once
    return {
        "completionMode": "Indexed", "completions": job.nodes, "parallelism": job.nodes,
        "backoffLimitPerIndex": job.max_restarts, "maxFailedIndexes": 0,
    }  # fmt: skip


def _pod(order: Order) -> dict[str, Any]:
    job = order.job
    volumes = [_volume(index, mount) for index, mount in enumerate(job.mounts)]
    shm = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(units.size(job.shm_size))}}
    pod: dict[str, Any] = {
        "restartPolicy": "Never",  # podFailurePolicy asks for it; the Job makes new pods
        "terminationGracePeriodSeconds": math.ceil(job.grace),
        "containers": [_container(order)],
        "volumes": [shm, *volumes],
    }
    if job.nodes > 1:
        pod["subdomain"] = engine_name(order.run_id)
    if job.gpus_per_node:
        pod["tolerations"] = [{"key": _GPU, "operator": "Exists"}]
    if "min_gpu_memory" in job.hardware:
        pod["affinity"] = _affinity(job.hardware["min_gpu_memory"])
    return pod


def _affinity(memory: str) -> dict[str, Any]:
    least = {"key": _GPU_MEMORY, "operator": "Gt", "values": [str(int(units.size(memory) * _NOMINAL) >> 20)]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [least]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _container(order: Order) -> dict[str, Any]:
    job = order.job
    # in a script, what `&` starts ignores INT, and only env can undo that
    words = [*(["env", "--default-signal=INT"] if job.signal == "INT" else []), *job.words(order.run_dir)]
    command = ["sh", "-c", _BODY.format(signal=job.signal, wait=WAIT_FOR_CHILD), "sh", *words]
    mounts = [
        {"name": f"mount-{index}", "mountPath": mount["to"], "readOnly": mount.get("read_only", False)}
        for index, mount in enumerate(job.mounts)
    ]
    return {
        "name": "job", "image": job.image, "workingDir": job.workdir,
        "command": [literal(word) for word in command],
        "env": _env(order), "resources": _resources(order),
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}, *mounts],
    }  # fmt: skip


def literal(text: str) -> str:
    """Kubernetes reads $(NAME) in command and env, and $$ as $: so every $ is doubled."""
    return text.replace("$", "$$")


def _env(order: Order) -> list[dict[str, Any]]:
    job, name = order.job, engine_name(order.run_id)
    env: list[dict[str, Any]] = []
    for key, value in job.variables(order.run_dir, head=f"{name}-0.{name}").items():
        rank = job.nodes > 1 and key == "PET_NODE_RANK"
        env.append({"name": key, **({"valueFrom": {"fieldRef": {"fieldPath": _RANK}}} if rank else
                                    {"value": literal(value)})})  # fmt: skip
    return env + [{"name": key, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}} for key in job.secrets]


def _resources(order: Order) -> dict[str, Any]:
    """GPUs are limits; so is memory (which /dev/shm counts into): without one, the node's OOM killer chooses."""
    job = order.job
    limits: dict[str, str] = {_GPU: str(job.gpus_per_node)} if job.gpus_per_node else {}
    requests: dict[str, str] = {"cpu": str(job.hardware["cpus"])} if "cpus" in job.hardware else {}
    if "memory" in job.hardware:
        limits["memory"] = requests["memory"] = str(units.size(job.hardware["memory"]))
    return {"limits": limits, "requests": requests}


def _volume(index: int, mount: dict[str, Any]) -> dict[str, Any]:
    source, name = mount["from"], f"mount-{index}"
    if source.startswith("pvc:"):
        return {"name": name, "persistentVolumeClaim": {"claimName": source[4:]}}
    if source.startswith("/"):
        return {"name": name, "hostPath": {"path": source, "type": "Directory"}}  # never an empty one by mistake
    raise bad_input(f"k8s mounts pvc:NAME or an absolute path on the node, not {source!r}")


# -- what became of it


def status(order: Order) -> Status:
    name = engine_name(order.run_id)
    found = _get(order, ["job", name])
    if found is None:
        return Status("lost", detail=f"kubectl's current context has no job {name}")
    state = found.get("status", {})
    now = {each["type"]: each for each in state.get("conditions") or [] if each["status"] == "True"}
    if "Complete" in now:
        return Status("done", 0)
    if "Failed" in now:
        return _failed(order, now["Failed"])
    if "Suspended" in now:
        return Status("cancelled", detail="suspended")
    if state.get("ready"):
        return Status("running")
    return Status("queued", detail=_waiting(_pods(order)))


def _get(order: Order, what: list[str]) -> dict[str, Any] | None:
    done = order.head.run(["kubectl", "get", *what, "-o", "json"])
    if done.code and "(NotFound)" in done.err:
        return None
    if done.code:
        raise lacking(f"cannot ask Kubernetes: {done.sentence()}")
    answer: dict[str, Any] = json.loads(done.out)
    return answer


def _pods(order: Order) -> list[dict[str, Any]]:
    found = _get(order, ["pods", "-l", f"{LABEL}={engine_name(order.run_id)}"]) or {}
    return sorted(found.get("items", []), key=lambda pod: str(pod["metadata"].get("creationTimestamp")))


def _failed(order: Order, condition: dict[str, Any]) -> Status:
    said = ": ".join(filter(None, [condition.get("reason"), condition.get("message")]))
    for container in reversed(_containers(_pods(order))):
        ended = container.get("state", {}).get("terminated", {})
        if ended.get("exitCode"):
            memory = ["killed by its memory limit"] if ended.get("reason") == "OOMKilled" else []
            return Status("failed", ended["exitCode"], "; ".join([said, *memory]))
    return Status("failed", detail=said)


def _containers(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [container for pod in pods for container in pod.get("status", {}).get("containerStatuses") or []]


def _waiting(pods: list[dict[str, Any]]) -> str:
    """Why it does not run: no node fits, the image cannot be had."""
    for container in _containers(pods):
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("message"):
            return f"{waiting.get('reason')}: {waiting['message']}"
    for pod in pods:
        for condition in pod.get("status", {}).get("conditions") or []:
            if condition.get("status") == "False" and condition.get("message"):
                return f"{condition.get('reason')}: {condition['message']}"
    return ""


def logs(order: Order, lines: int) -> list[str]:
    """Of the first node."""
    name = engine_name(order.run_id)
    first = ["-l", f"{LABEL}={name},batch.kubernetes.io/job-completion-index=0"]
    done = order.head.run(["kubectl", "logs", *(first if order.job.nodes > 1 else [f"job/{name}"]), f"--tail={lines}"])
    if done.code:
        raise lacking(f"cannot get the log from Kubernetes: {done.sentence()}")
    return done.out.splitlines()


# -- stop and go on


def stop(order: Order) -> list[Step]:
    return [_suspend(order, True)]


def resume(order: Order) -> list[Step]:
    """A suspended Job goes on; a failed one cannot, so it is made anew."""
    now = status(order).state
    if now == "cancelled":
        return [_suspend(order, False)]
    if now == "lost":
        return render(order)
    words = ["kubectl", "delete", "job", engine_name(order.run_id), "--ignore-not-found", "--cascade=foreground"]
    return [Step(words, seconds=order.job.grace + 120), *render(order)]


def _suspend(order: Order, value: bool) -> Step:
    patch = json.dumps({"spec": {"suspend": value}})
    return Step(["kubectl", "patch", "job", engine_name(order.run_id), "--type=merge", "--patch", patch])
