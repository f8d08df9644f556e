"""A renderer of Kubernetes Jobs, for specs it has not seen: looked at as an expert, run as a kubelet would."""

from __future__ import annotations

import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from trials.case import Box, Case
from worlds import kube, tool

WRONG = 0.06  # the share of checks that may fail
MUST = ("words", "variables", "exit code", "saved when told", "preemptions do not count")  # but never these
# saves on TERM, then ends with 85; notes what it got, for each node
TRAIN = """\
import json, os, pathlib, signal, sys, time
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
place = pathlib.Path(os.environ["TOY_PLACE"])
torchrun = json.loads(os.environ.get("TOY_TORCHRUN", "null"))
seen = {"words": sys.argv[1:], "env": dict(os.environ), "dir": os.getcwd(), "torchrun": torchrun}
with open(place / "seen.jsonl", "a") as file:
    file.write(json.dumps(seen) + "\\n")
print("step 1", flush=True)
print("to stderr", file=sys.stderr, flush=True)
(place / "started").touch()
deadline = time.time() + 3
while (place / "hold").exists() and time.time() < deadline:
    time.sleep(0.02)
    if told:
        time.sleep(0.3)
        (place / "saved").touch()
        print("saved", flush=True)
        sys.exit(85)
sys.exit(int((place / "code").read_text()))
"""
AWKWARD = [
    "two words",
    "it's",
    '"q"',
    "$HOME",
    "$(NOTE)",
    "costs $$5",
    "$$(date)",
    "",
    "a\nb",
    "größe 训练",
    "\\",
    "*",
    "{run_id}",
]


def _spec(box: Box, name: str, **changes: Any) -> dict[str, Any]:
    data = str(box.world / "data" / name)
    return {
        "name": name,
        "image": "ghcr.io/lab/train:1.4",
        "dir": str(box.world / "code"),
        "claim": "team-data",
        "data": data,
        "log": f"{data}/train.log",
        "nodes": 1,
        "gpus": 1,
        "cpus": 8,
        "mem_gb": 64,
        "shm_gb": 16,
        "env": {},
        "secrets": [],
        "max_restarts": 4,
        "save_seconds": 45,
        "hours": 24,
        "port": 29500,
        **changes,
    }


def _hidden(box: Box) -> list[dict[str, Any]]:
    command = ["python", "train.py"]
    notes = {"NOTE": "it's $5, not $$5 or $(HOSTNAME) `x`", "OMP_NUM_THREADS": "8", "EMPTY": "", "FLAG": "true"}
    return [
        _spec(box, "abl-7", command=[*command, *AWKWARD], env=notes, secrets=["WANDB_API_KEY", "HF_TOKEN"]),
        _spec(
            box,
            "pre-70b",
            script="train.py",
            args=["--config", "a b.yaml"],
            nodes=4,
            gpus=8,
            cpus=96,
            mem_gb=900,
            shm_gb=128,
            max_restarts=2,
            save_seconds=600,
            hours=71.5,
            port=29611,
            secrets=["WANDB_API_KEY"],
        ),
        _spec(
            box, "prep", command=command, gpus=0, cpus=3, mem_gb=7, shm_gb=1, max_restarts=0, save_seconds=5, hours=0.75
        ),
        _spec(box, "two", script="train.py", args=AWKWARD, gpus=2, env={"A": "$(B)", "B": "$$"}, save_seconds=120),
        _spec(box, "pair", script="train.py", args=[], nodes=2, gpus=1, claim="other-claim", max_restarts=7),
    ]


def make(box: Box) -> None:
    one = _spec(box, "base", command=["python", "train.py", "--lr", "3e-4"], env={"OMP_NUM_THREADS": "8"})
    many = _spec(
        box, "big", script="train.py", args=["--config", "big.yaml"], nodes=2, gpus=8, secrets=["WANDB_API_KEY"]
    )
    for spec in (one, many):
        box.write(f"samples/{spec['name']}.json", {**spec, "dir": "/app", "data": "/data", "log": "/data/train.log"})


def _judge(box: Box, spec: dict[str, Any], text: str) -> dict[str, bool]:
    items = kube.items(text)
    jobs = [item for item in items if item.get("kind") == "Job"]
    if len(jobs) != 1 or jobs[0]["metadata"]["name"] != spec["name"]:
        return {f"one Job, check {n}": False for n in range(20)}
    job = jobs[0]["spec"]
    place, tools = Path(spec["data"]), box.world / "image"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    (place / "code").write_text("7")
    values = {name: f"s-{name}" for name in spec["secrets"]}
    secrets = {f"{spec['name']}/{name}": value for name, value in values.items()}
    for row in job["template"]["spec"]["containers"]:  # where this toy of a training notes what it got
        row["env"] = [*(row.get("env") or []), {"name": "TOY_PLACE", "value": str(place)}]
    pod = job["template"]["spec"]
    ended = [kube.run(pod, tools, node, secrets) for node in range(spec["nodes"])]
    notes = place / "seen.jsonl"
    seen = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
    log = Path(spec["log"]).read_text() if Path(spec["log"]).exists() else ""
    (place / "hold").touch()
    (place / "started").unlink(missing_ok=True)
    stopped = kube.run(pod, tools, 0, secrets, place / "started")
    again = Path(spec["log"]).read_text() if log else ""
    words = spec["args"] if "script" in spec else spec["command"][2:]
    want = {**spec["env"], **values}
    checks = {
        **kube.policy(spec, job),
        **kube.pod_checks(spec, pod),
        "every node runs": len(seen) == spec["nodes"],
        "words": bool(seen) and all(row["words"] == words for row in seen),
        "variables": bool(seen) and all(row["env"].get(name) == value for row in seen for name, value in want.items()),
        "folder": bool(seen) and all(row["dir"] == spec["dir"] for row in seen),
        "exit code": [end.code for end in ended] == [7] * spec["nodes"],
        "kubectl logs": all(re.search(r"step 1[\s\S]*to stderr", end.out) for end in ended),
        "log": log.count("step 1") == 1 == log.count("to stderr") and "saved" in again.removeprefix(log) != again,
        "saved when told": (place / "saved").exists() and stopped.code == 85,
    }
    if spec["nodes"] > 1:
        agreed, where = kube.rendezvous(spec, seen)
        checks |= {"one rendezvous": agreed, "its name": bool(where) and kube.reachable(spec, items, job, where)}
        checks["logs of the others"] = all(Path(f"{spec['log']}.{n}").exists() for n in range(1, spec["nodes"]))
    return checks


def verify(box: Box) -> list[str]:
    kube.put_up(box.world / "image")
    (box.world / "code").mkdir(exist_ok=True)
    (box.world / "code" / "train.py").write_text(TRAIN)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda spec: _answer(box, spec), _hidden(box)))
    wrong = [f"{name}: {what}" for name, checks in answers for what, fine in checks.items() if not fine]
    count = sum(len(checks) for _, checks in answers)
    serious = [problem for problem in wrong if problem.partition(": ")[2] in MUST]
    return (
        [f"{len(wrong)} of {count}: {'; '.join(serious + wrong)[:600]}"]
        if serious or len(wrong) > WRONG * count
        else []
    )


def _answer(box: Box, spec: dict[str, Any]) -> tuple[str, dict[str, bool]]:
    path = box.world / f"{spec['name']}.json"
    path.write_text(json.dumps(spec))
    return spec["name"], _judge(box, spec, tool.call(box, "render", path, seconds=10).out)


_REFERENCE = """#!/usr/bin/env python
import json, sys
from pathlib import Path
sys.path.insert(0, "{scripts}")
from rgt.job import description as job
from rgt.job.backends import Order, engine_name, k8s
spec = json.load(open(sys.argv[1]))
same = ("name", "command", "script", "args", "env", "secrets", "nodes", "image", "max_restarts", "port")
wanted = job.from_dict({
    **{key: spec[key] for key in same if key in spec},
    "workdir": spec["dir"], "gpus_per_node": spec["gpus"], "shm_size": f"{spec['shm_gb']}GiB",
    "hardware": {"cpus": spec["cpus"], "memory": f"{spec['mem_gb']}GiB"}, "time_limit": f"{spec['hours']}h",
    "grace": spec["save_seconds"], "mounts": [{"from": "pvc:" + spec["claim"], "to": spec["data"]}],
    "output": spec["data"]}, Path("."))
order = Order(wanted, spec["name"], "k8s")
items = {"apiVersion": "v1", "kind": "List", "items": k8s.manifests(order)}
text = json.dumps(items, indent=2).replace(engine_name(spec["name"]), spec["name"])
old, log = "log=$$RGT_RUN_DIR/train", "log=" + spec["log"]
print(text.replace(old + ".log", log).replace(old + ".$$PET_NODE_RANK.log", log + ".$$PET_NODE_RANK"))
"""
# a good manifest by one who does not know that Kubernetes reads $$ and $(NAME)
_NAIVE = r"""#!/usr/bin/env python
import json, shlex, sys
s = json.load(open(sys.argv[1]))
name, many = s["name"], s["nodes"] > 1
head = f"{name}-0.{name}" if many else "localhost"
words = s.get("command") or ["torchrun", f"--nnodes={s['nodes']}", f"--nproc_per_node={s['gpus']}", "--node_rank=NODE",
                             f"--master_addr={head}", f"--master_port={s['port']}", s["script"], *s["args"]]
line = shlex.join(words).replace("--node_rank=NODE", "--node_rank=${JOB_COMPLETION_INDEX:-0}")
shell = ('log=' + shlex.quote(s["log"]) + '; i=${JOB_COMPLETION_INDEX:-0}; [ "$i" = 0 ] || log="$log.$i"\n'
         'exec > >(tee -a "$log") 2>&1\nexec ' + line)
gpu = {"nvidia.com/gpu": s["gpus"]} if s["gpus"] else {}
size = {"cpu": str(s["cpus"]), "memory": f"{s['mem_gb']}Gi"}
env = [{"name": k, "value": v} for k, v in s["env"].items()]
env += [{"name": k, "valueFrom": {"secretKeyRef": {"name": name, "key": k}}} for k in s["secrets"]]
pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": s["save_seconds"] + 10,
       "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
       "containers": [{"name": "train", "image": s["image"], "workingDir": s["dir"], "command": ["bash", "-c", shell],
                       "env": env, "resources": {"limits": {**size, **gpu}, "requests": {**size, **gpu}},
                       "volumeMounts": [{"name": "data", "mountPath": s["data"]},
                                        {"name": "shm", "mountPath": "/dev/shm"}]}],
       "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": s["claim"]}},
                   {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{s['shm_gb']}Gi"}}],
       **({"subdomain": name} if many else {})}
spec = {"backoffLimit": s["max_restarts"] * s["nodes"], "activeDeadlineSeconds": int(s["hours"] * 3600),
        "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]},
        "template": {"metadata": {"labels": {"app": name}}, "spec": pod}}
if many:
    spec.update(completionMode="Indexed", completions=s["nodes"], parallelism=s["nodes"])
items = [{"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}]
if many:
    service = {"clusterIP": "None", "selector": {"app": name}, "ports": [{"port": s["port"]}]}
    items.append({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": service})
print(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
"""


CASE = Case(
    route="train something: here, over ssh, docker, Slurm, Kubernetes",
    reads=("references/run-local/launch.md",),
    minutes=6,
    commands=30,
    reference=tool.leaving(_REFERENCE, "render"),
    naive=tool.leaving(_NAIVE, "render"),
    held_out=True,
    expected="Jobs whose words, variables, signals and exit codes arrive, forgiving preemptions, with one rendezvous.",
)
