"""A Job for spot nodes: shared memory, a failure policy that forgives preemptions, time to save."""

from __future__ import annotations

import json
from typing import Any

from trials.case import Box, Case, Missing

SPEC = """\
name: train
command: [python, train.py, --config, base.yaml]
image: ghcr.io/lab/train:1.2
workdir: /workspace
gpus_per_node: 2
hardware: {spot: true, memory: 64GiB, cpus: 8}
shm_size: 16GiB
mounts: [{from: "pvc:train-data", to: /data}]
output: /data/runs
grace: 15s
max_restarts: 4
"""


def make(box: Box) -> None:
    box.write("train.py", "print('training')\n")
    box.write("base.yaml", "lr: 3.0e-4\n")


def _job(box: Box) -> dict[str, Any]:
    data = box.read("job-manifest.json")
    items = data["items"] if data.get("kind") == "List" else [data]
    job = next((item for item in items if item.get("kind") == "Job"), None)
    if job is None:
        raise Missing("job-manifest.json has no Job")
    spec: dict[str, Any] = job["spec"]
    return spec


def _bytes(text: object) -> int:
    units = {"Gi": 2**30, "G": 10**9, "Mi": 2**20, "M": 10**6, "": 1}
    word = str(text)
    digits = word.rstrip("GMiK")
    return int(float(digits) * units[word[len(digits) :]])


def verify(box: Box) -> list[str]:
    spec = _job(box)
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    limits, mounts = (
        container["resources"]["limits"],
        {m["mountPath"]: m["name"] for m in container.get("volumeMounts", [])},
    )
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    rules = (spec.get("podFailurePolicy") or {}).get("rules", [])
    forgives = any(
        rule["action"] == "Ignore" and any(c["type"] == "DisruptionTarget" for c in rule.get("onPodConditions", []))
        for rule in rules
    )
    shm = volumes.get(mounts.get("/dev/shm", ""), {}).get("emptyDir", {})
    checks = {
        "two GPUs as limits": str(limits.get("nvidia.com/gpu")) == "2",
        "64 GiB": _bytes(limits.get("memory", 0)) == 64 * 2**30,
        "/dev/shm in memory": shm.get("medium") == "Memory" and _bytes(shm.get("sizeLimit", 0)) == 16 * 2**30,
        "the claim on /data": volumes.get(mounts.get("/data", ""), {}).get("persistentVolumeClaim", {}).get("claimName")
        == "train-data",
        "restartPolicy Never, which a failure policy needs": pod.get("restartPolicy") == "Never",
        "four more tries": spec.get("backoffLimit") == 4,
        "a preemption is no failure": forgives,
        "at least 15 s to save": int(pod.get("terminationGracePeriodSeconds", 30)) >= 15,
    }
    return [f"not so: {what}" for what, fine in checks.items() if not fine]


def reference(box: Box) -> None:
    box.write("job.yaml", SPEC)
    shown = box.run("python", box.skill / "scripts/launch.py", "submit", "job.yaml", "--on", "k8s", "--dry-run").stdout
    body = shown[shown.index("{") : shown.rindex("}") + 1]
    box.write("job-manifest.json", json.loads(body))


def naive(box: Box) -> None:
    """The Job of every tutorial."""
    container = {
        "name": "train",
        "image": "ghcr.io/lab/train:1.2",
        "command": ["python", "train.py", "--config", "base.yaml"],
        "resources": {"limits": {"nvidia.com/gpu": 2, "cpu": "8", "memory": "64Gi"}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    pod = {
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": 15,
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "train-data"}}],
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"backoffLimit": 4, "template": {"spec": pod}},
    }
    box.write("job-manifest.json", job)


CASE = Case(
    route="train something: here, over ssh, docker, Slurm, Kubernetes",
    reads=("references/run-local/launch.md",),
    minutes=5,
    commands=12,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    held_out=True,
    expected="A Job with memory-backed /dev/shm, the claim, four retries, and preemptions that do not count.",
)
