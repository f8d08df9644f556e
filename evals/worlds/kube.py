"""A Kubernetes Job without a cluster: each pod's container is run here, as the kubelet would start it.

Variables and words are expanded as Kubernetes does ($(NAME), and $$ for $), fieldRef and secretKeyRef are resolved,
TERM goes to the first process alone, and what it leaves behind ends with it. torchrun is a stand-in that
notes what it got. The last functions are what an expert would look at in a manifest.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trials.case import Missing

GIB = 2**30
INDEX = "batch.kubernetes.io/job-completion-index"
# options by their names with _, as torchrun reads them: the command line, else PET_<NAME>
_TORCHRUN = """#!{python}
import json, os, string, subprocess, sys
words, given = sys.argv[1:], {}
while words and words[0].startswith("-") and words[0] != "--":
    name, has, value = words.pop(0).lstrip("-").partition("=")
    name = name.replace("-", "_")
    given[name] = value if has or name in ("standalone", "no_python", "m", "module") else words.pop(0)
for name, value in os.environ.items():
    if name.startswith("PET_"):
        given.setdefault(name[4:].lower(), value)
os.environ["TOY_TORCHRUN"] = json.dumps(given)
words = [string.Template(word).safe_substitute(local_rank="0") for word in words[words[:1] == ["--"]:]]
os.execv(sys.executable, [sys.executable, *words])
"""
_PYTHON = """#!/bin/sh
case "$1 $2" in
"-m torch.distributed.run" | "-m torch.distributed.launch") shift 2; exec "{bin}/torchrun" "$@";;
"-u -m") [ "$3" = torch.distributed.run ] && { shift 3; exec "{bin}/torchrun" "$@"; };;
esac
exec {python} "$@"
"""


@dataclass
class Ended:
    code: int | None  # None: it had to be killed
    out: str


def put_up(folder: Path) -> None:
    """The image's programs."""
    folder.mkdir(parents=True, exist_ok=True)
    python = _PYTHON.replace("{bin}", str(folder)).replace("{python}", sys.executable)
    for name, text in (("python", python), ("python3", python), ("torchrun", _TORCHRUN)):
        (folder / name).write_text(text.replace("{python}", sys.executable))
        (folder / name).chmod(0o755)


def items(text: str) -> list[dict[str, Any]]:
    """What kubectl apply -f would see."""
    import yaml

    try:
        documents = [one for one in yaml.safe_load_all(text) if one]
    except yaml.YAMLError as error:
        raise Missing(f"that is no YAML: {str(error)[:80]}") from None
    return [item for one in documents for item in (one["items"] if one.get("kind") == "List" else [one])]


def quantity(text: object) -> float:
    """Of memory or CPUs: 64Gi, 64G, 500m, 68719476736."""
    found = re.fullmatch(r"([\d.]+)(Ki|Mi|Gi|Ti|k|M|G|T|m)?", str(text))
    powers = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "m": 1e-3}
    return float(found[1]) * powers.get(found[2] or "", 1) if found else -1.0


def expand(text: str, known: dict[str, str]) -> str:
    """$(NAME) of a known name is its value, of an unknown one it stays; $$ is $; any other $ stays."""
    pattern = r"\$\$|\$\(([^)]*)\)"
    return re.sub(pattern, lambda m: "$" if m[0] == "$$" else known.get(m[1], m[0]), text)


def variables(container: dict[str, Any], index: int, secrets: dict[str, str]) -> dict[str, str]:
    known = {"JOB_COMPLETION_INDEX": str(index)}
    for row in container.get("env") or []:
        source = row.get("valueFrom") or {}
        if "secretKeyRef" in source:
            known[row["name"]] = secrets.get(f"{source['secretKeyRef']['name']}/{source['secretKeyRef']['key']}", "")
        elif "fieldRef" in source:
            known[row["name"]] = str(index) if INDEX in source["fieldRef"]["fieldPath"] else "?"
        else:
            known[row["name"]] = expand(row.get("value", ""), known)
    return known


def run(pod: dict[str, Any], tools: Path, index: int, secrets: dict[str, str], started: Path | None = None) -> Ended:
    """One container to its end; with `started`, TERM once that file is there."""
    container = pod["containers"][0]
    known = variables(container, index, secrets)
    words = [expand(word, known) for word in [*(container.get("command") or []), *(container.get("args") or [])]]
    env = {"PATH": f"{tools}:/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8", **known}
    try:
        process = subprocess.Popen(
            words,
            cwd=container.get("workingDir") or "/",
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except (OSError, IndexError):
        return Ended(None, "")
    try:
        if started:
            _wait(started, process)
            process.send_signal(signal.SIGTERM)
        code: int | None = process.wait(8)
    except subprocess.TimeoutExpired:
        code = None
    for pid in _session(process.pid):  # the container is gone with its first process
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    out, _ = process.communicate()
    return Ended(code, out)


def _session(leader: int) -> Iterator[int]:
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdigit() and os.getsid(int(path.name)) == leader:
                yield int(path.name)
        except ProcessLookupError:
            continue


def _wait(started: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 8
    while not started.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)


def policy(spec: dict[str, Any], job: dict[str, Any]) -> dict[str, bool]:
    pod, many = job["template"]["spec"], spec["nodes"] > 1
    rules = (job.get("podFailurePolicy") or {}).get("rules", [])
    forgiven = [c["type"] for r in rules if r["action"] == "Ignore" for c in r.get("onPodConditions") or []]
    total, each = job.get("backoffLimit", 6), job.get("backoffLimitPerIndex")
    indexed = job.get("completionMode") == "Indexed" and job.get("completions") == spec["nodes"] == job.get(
        "parallelism"
    )
    tries = each == spec["max_restarts"] or (each is None and total >= spec["max_restarts"] * spec["nodes"])
    return {
        "preemptions do not count": "DisruptionTarget" in forgiven and pod.get("restartPolicy") == "Never",
        "tries": (indexed and tries) if many else total == spec["max_restarts"],
        "limit": job.get("activeDeadlineSeconds") == spec["hours"] * 3600,
        "time to save": int(pod.get("terminationGracePeriodSeconds", 30)) >= spec["save_seconds"],
    }


def pod_checks(spec: dict[str, Any], pod: dict[str, Any]) -> dict[str, bool]:
    container = pod["containers"][0]
    limits, requests = ((container.get("resources") or {}).get(kind) or {} for kind in ("limits", "requests"))
    mounts = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts") or []}
    volumes = {volume["name"]: volume for volume in pod.get("volumes") or []}
    shm = volumes.get(mounts.get("/dev/shm", ""), {}).get("emptyDir") or {}
    claim = volumes.get(mounts.get(spec["data"], ""), {}).get("persistentVolumeClaim") or {}
    tolerated = any(t.get("key") in (None, "nvidia.com/gpu") for t in pod.get("tolerations") or [])
    by_reference = {row["name"] for row in container.get("env") or [] if "secretKeyRef" in (row.get("valueFrom") or {})}
    cpus = requests.get("cpu", limits.get("cpu", 0))
    return {
        "GPUs": str(limits.get("nvidia.com/gpu", 0)) == str(spec["gpus"]) and (tolerated or not spec["gpus"]),
        "CPUs": quantity(cpus) == spec["cpus"],
        "memory": quantity(limits.get("memory", 0)) == spec["mem_gb"] * GIB,
        "shared memory": shm.get("medium") == "Memory" and quantity(shm.get("sizeLimit", 0)) == spec["shm_gb"] * GIB,
        "claim": claim.get("claimName") == spec["claim"] and container["image"] == spec["image"],
        "secrets": by_reference == set(spec["secrets"]) or (bool(spec["secrets"]) and "envFrom" in container),
        "values are text": all(isinstance(row.get("value", ""), str) for row in container.get("env") or []),
    }


def reachable(spec: dict[str, Any], items: list[dict[str, Any]], job: dict[str, Any], where: str) -> bool:
    """The head's name, as the cluster's DNS knows it: <job>-0.<headless service>, or a service of index 0 alone."""
    host = where.split(":")[0].split(".")
    template, services = job["template"], {i["metadata"]["name"]: i["spec"] for i in items if i["kind"] == "Service"}
    name = spec["name"]
    labels = {
        **((template.get("metadata") or {}).get("labels") or {}),
        "job-name": name,
        "batch.kubernetes.io/job-name": name,
    }
    service = services.get(host[1] if len(host) > 1 and host[1] in services else host[0])
    chosen = dict((service or {}).get("selector") or {"": ""})
    first = chosen.pop(INDEX, None) == "0"
    if not chosen.items() <= labels.items():
        return False
    direct = host[0] == f"{name}-0" and (service or {}).get("clusterIP") == "None"
    return first if host[0] in services else direct and template["spec"].get("subdomain") == host[1]


def rendezvous(spec: dict[str, Any], seen: list[dict[str, Any]]) -> tuple[bool, str]:
    """All nodes agree, each with its own rank; and where they meet."""
    given = [row["torchrun"] or {} for row in seen]
    ends = {g.get("rdzv_endpoint") or f"{g.get('master_addr', '')}:{g.get('master_port', 29500)}" for g in given}
    ranks = {g.get("node_rank") for g in given}
    ranked = ranks == {str(n) for n in range(spec["nodes"])} or all(g.get("rdzv_backend") == "c10d" for g in given)
    sizes = {(g.get("nnodes"), g.get("nproc_per_node")) for g in given} == {(str(spec["nodes"]), str(spec["gpus"]))}
    end = min(ends, default="")
    return len(ends) == 1 and ranked and sizes and end.endswith(f":{spec['port']}"), end
