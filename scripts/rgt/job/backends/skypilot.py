"""A SkyPilot managed job: it finds machines, and after a preemption it finds others.

What job.yaml means here:
    workdir     a folder of this machine goes to every node; any other path is one in the image or on a mount
    mounts      from: a bucket (s3://, gs://, r2://, Azure's https://, ...), volume:NAME, or a local path, to be copied
    output      an absolute path below a bucket or a volume: the machines, and all that is on them, vanish
    hardware    accelerators such as L4:1,A10G:1 (any of them), or min_gpu_memory; spot
    secrets     `--secret NAME`: sky takes the value from its environment and redacts it in what it shows
    time_limit  of each start; grace and signal are kept then, but SkyPilot itself gives no warning
    image       docker:IMAGE; shm_size is SkyPilot's own affair
Writable buckets are MOUNT_CACHED: a plain mount cannot append to a log, nor rename a checkpoint into place.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path, PurePosixPath
from typing import Any

from rgt import units
from rgt.errors import bad_input, lacking
from rgt.job.backends import Order, Status, Step, ask, engine_states, exports, limit_words
from rgt.job.description import Job

_BUCKETS = ("s3://", "gs://", "r2://", "cos://", "oci://", "nebius://", "cw://", "https://")
_LAUNCH_SECONDS = 1800.0  # the first launch also brings up the jobs controller, a machine of its own
_ASK_SECONDS = 180.0  # it may have to start its local server first
_STATES = engine_states(queued="PENDING SUBMITTED STARTING RECOVERING", running="RUNNING WINDING_DOWN CANCELLING")
_STATES |= engine_states(finished="SUCCEEDED", stopped="CANCELLED")

# what only the node knows
_THERE = ["export PET_NODE_RANK=$SKYPILOT_NODE_RANK", "export PET_MASTER_ADDR=${SKYPILOT_NODE_IPS%%$'\\n'*}"]

# Words and variables stand in `run`, quoted for bash: in `envs` they would also be filled into paths as $NAME.
_RUN = """\
{exports}
{cd}
mkdir -p {run_dir} || exit 3
log={run_dir}/train.log
[ "$SKYPILOT_NODE_RANK" = 0 ] || log={run_dir}/train.$SKYPILOT_NODE_RANK.log
set -o pipefail
{words} 2>&1 | tee -a "$log"
"""


def render(order: Order) -> list[Step]:
    import yaml

    text = yaml.safe_dump(task(order), sort_keys=False, width=1000)
    path, secrets = f"{order.record_dir}/skypilot.yaml", list(order.job.secrets)
    words = ["sky", "jobs", "launch", "--yes", "--detach-run", "--name", order.label]
    words += [word for name in secrets for word in ("--secret", name)]  # no value: from its environment
    return [Step([*words, path], files={path: text}, secrets=secrets, seconds=_LAUNCH_SECONDS)]


resume = render  # a new managed job of the same name on the same bucket


def task(order: Order) -> dict[str, Any]:
    """What sky.Task.from_yaml_config takes."""
    job = order.job
    files: dict[str, Any] = {}
    volumes, kept = {}, []  # kept: places that outlive the machine
    for mount in job.mounts:
        source, target, read_only = mount["from"], mount["to"], mount.get("read_only")
        if source.startswith("volume:"):
            volumes[target] = source.removeprefix("volume:")
        elif source.startswith(_BUCKETS):
            files[target] = {"source": source, "mode": "MOUNT" if read_only else "MOUNT_CACHED"}
        else:
            files[target] = str(Path(job.folder) / Path(source).expanduser())
        if source.startswith((*_BUCKETS, "volume:")) and not read_only:
            kept.append(target)
    inside = any(PurePosixPath(order.run_dir).is_relative_to(place) for place in kept)
    if not job.output.startswith("/") or not inside:
        advice = "add mounts: [{from: s3://BUCKET, to: /bucket}] and output: /bucket/runs"
        raise bad_input(f"output {job.output} would vanish with the machine; {advice}")
    here = job.workdir if Path(job.workdir).is_dir() else None
    parts = {"name": order.label, "resources": _resources(job), "num_nodes": job.nodes, "workdir": here}
    parts |= {"file_mounts": files, "volumes": volumes, "secrets": dict.fromkeys(job.secrets), "run": script(order)}
    return {**{name: value for name, value in parts.items() if value}, **job.extra.get("skypilot", {})}


def _resources(job: Job) -> dict[str, Any]:
    """One kind of GPU, or any of several. The count is gpus_per_node: torchrun starts that many processes."""
    hardware, count = job.hardware, job.gpus_per_node
    named = [word.strip() for word in hardware.get("accelerators", "").split(",") if word.strip()]
    if not named and "min_gpu_memory" in hardware:
        named = [f"{-(-units.size(hardware['min_gpu_memory']) // 10**9)}GB+"]
    if count and not named:
        raise bad_input("SkyPilot chooses from a list; add hardware: {accelerators: 'L4:1,A10G:1'} or min_gpu_memory")
    kinds = []
    for word in named if count else []:
        kind, _, written = word.partition(":")
        if written not in ("", str(count)):
            raise bad_input(f"hardware.accelerators says {word}, gpus_per_node says {count}; make them agree")
        kinds.append(f"{kind}:{count}")
    resources = {
        "accelerators": kinds[0] if len(kinds) == 1 else None,
        "any_of": [{"accelerators": kind} for kind in kinds] if len(kinds) > 1 else None,
        "cpus": f"{hardware['cpus']}+" if "cpus" in hardware else None,
        "memory": f"{-(-units.size(hardware['memory']) // 2**30)}+" if "memory" in hardware else None,
        "use_spot": hardware.get("spot"),
        "image_id": f"docker:{job.image}" if job.image else None,
        "job_recovery": {"max_restarts_on_errors": job.restarts},  # preemptions are recovered without a limit
    }
    return {name: value for name, value in resources.items() if value is not None}


def script(order: Order) -> str:
    """The same for every node; rank and head come from what SkyPilot sets."""
    job = order.job
    lines = [exports(job.variables(order.run_dir)), *(_THERE if job.nodes > 1 else [])]
    place = shlex.quote(job.workdir)
    if job.workdir.startswith("~/"):
        place = f'"$HOME"/{shlex.quote(job.workdir[2:])}'
    cd = ": # SkyPilot has put the workdir here" if Path(job.workdir).is_dir() else f"cd {place} || exit 3"
    words = shlex.join([*limit_words(job), *job.words(order.run_dir)])
    return _RUN.format(exports="\n".join(lines), cd=cd, run_dir=shlex.quote(order.run_dir), words=words)


# -- what became of it


def status(order: Order) -> Status:
    done = ask(order.head, ["sky", "jobs", "queue", "--all", "--output", "json"], "ask SkyPilot", seconds=_ASK_SECONDS)
    text = done.out if done else ""
    try:
        rows = json.loads(text[text.index("[") :])  # sky may print a notice first
    except ValueError:
        raise lacking(f"`sky jobs queue --output json` gave no JSON but {text.strip()[:99]!r}; sky 0.14 does") from None
    named = [row for row in rows if isinstance(row, dict) and row.get("job_name") == order.label]
    if not named:
        return Status("lost", detail=f"SkyPilot knows no managed job {order.label}")
    latest = max(named, key=lambda row: int(row["job_id"]))  # a resumed run has several of one name
    word = str(latest["status"])
    state = _STATES.get(word, "failed" if word.startswith("FAILED") else "lost")
    detail = latest.get("failure_reason") or latest.get("details") or ("" if state in ("finished", "running") else word)
    return Status(state, 0 if state == "finished" else None, str(detail))


def logs(order: Order, lines: int) -> list[str]:
    words = ["sky", "jobs", "logs", "--name", order.label, "--no-follow", "--tail", str(lines)]
    done = order.head.run(words, seconds=_ASK_SECONDS)
    if done.code and not done.out:  # its exit code is also the job's
        raise lacking(f"cannot get the log from SkyPilot: {done.sentence()}")
    return done.out.splitlines()


def stop(order: Order) -> list[Step]:
    """Graceful: what the cached bucket mounts have not uploaded yet is uploaded first."""
    words = ["sky", "jobs", "cancel", "--yes", "--graceful", "--name", order.label]
    return [Step(words, seconds=_LAUNCH_SECONDS)]
