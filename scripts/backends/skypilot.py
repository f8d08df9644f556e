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

from backends import Order, Status, Step, engine_name
from rgt import units
from rgt.errors import bad_input, lacking
from rgt.hosts import Done
from rgt.job import Job

_BUCKETS = ("s3://", "gs://", "r2://", "cos://", "oci://", "nebius://", "cw://", "https://")
_LAUNCH_SECONDS = 1800.0  # the first launch also brings up the jobs controller, a machine of its own
_ASK_SECONDS = 180.0  # it may have to start its local server first
_STATES = {
    "PENDING": "queued", "SUBMITTED": "queued", "STARTING": "queued", "RUNNING": "running", "WINDING_DOWN": "running",
    "RECOVERING": "queued", "CANCELLING": "running", "SUCCEEDED": "done", "CANCELLED": "cancelled",
}  # fmt: skip

# what only the node knows
_THERE = {"PET_NODE_RANK": "$SKYPILOT_NODE_RANK", "PET_MASTER_ADDR": "${SKYPILOT_NODE_IPS%%$'\\n'*}"}

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
    path = f"{order.record_dir}/skypilot.yaml"
    words = ["sky", "jobs", "launch", "--yes", "--detach-run", "--name", engine_name(order.run_id)]
    words += [word for name in order.job.secrets for word in ("--secret", name)]  # no value: from its environment
    return [
        Step(
            [*words, path],
            files={path: yaml_text(task(order))},
            secrets=list(order.job.secrets),
            seconds=_LAUNCH_SECONDS,
        )
    ]


def yaml_text(data: dict[str, Any]) -> str:
    """A script as a block, as people write it, where YAML can hold it so."""
    import yaml

    class Dumper(yaml.SafeDumper):
        pass

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)

    Dumper.add_representer(str, text)
    return yaml.dump(data, Dumper=Dumper, sort_keys=False, width=1000)


def task(order: Order) -> dict[str, Any]:
    """What sky.Task.from_yaml_config takes."""
    job = order.job
    _check(order)
    parts: dict[str, Any] = {
        "name": engine_name(order.run_id), "resources": _resources(job), "num_nodes": job.nodes,
        "workdir": job.workdir if _local(job) else None, **_mounts(job),
        "secrets": dict.fromkeys(job.secrets), "run": script(order),
    }  # fmt: skip
    return {name: value for name, value in parts.items() if value}


def _local(job: Job) -> bool:
    return Path(job.workdir).is_dir()


def _check(order: Order) -> None:
    kept = [mount["to"] for mount in order.job.mounts if _kept(mount["from"]) and not mount.get("read_only")]
    inside = any(PurePosixPath(order.run_dir).is_relative_to(place) for place in kept)
    if not order.job.output.startswith("/") or not inside:
        raise bad_input(
            f"output {order.job.output} would vanish with the machine; "
            "add mounts: [{from: s3://BUCKET, to: /bucket}] and output: /bucket/runs"
        )


def _kept(source: str) -> bool:
    return source.startswith((*_BUCKETS, "volume:"))


def _resources(job: Job) -> dict[str, Any]:
    hardware = job.hardware
    resources = {
        **_accelerators(job),
        "cpus": f"{hardware['cpus']}+" if "cpus" in hardware else None,
        "memory": f"{-(-units.size(hardware['memory']) // 2**30)}+" if "memory" in hardware else None,
        "use_spot": hardware.get("spot"),
        "image_id": f"docker:{job.image}" if job.image else None,
        "job_recovery": {"max_restarts_on_errors": job.max_restarts},  # preemptions are recovered without a limit
    }
    return {name: value for name, value in resources.items() if value is not None}


def _accelerators(job: Job) -> dict[str, Any]:
    """One kind, or any of several. The count is gpus_per_node: torchrun starts that many processes."""
    if not job.gpus_per_node:
        return {}
    named = [word.strip() for word in job.hardware.get("accelerators", "").split(",") if word.strip()]
    if not named and "min_gpu_memory" in job.hardware:
        named = [f"{-(-units.size(job.hardware['min_gpu_memory']) // 10**9)}GB+"]
    if not named:
        raise bad_input("SkyPilot chooses from a list; add hardware: {accelerators: 'L4:1,A10G:1'} or min_gpu_memory")
    kinds = [_counted(word, job.gpus_per_node) for word in named]
    return {"accelerators": kinds[0]} if len(kinds) == 1 else {"any_of": [{"accelerators": kind} for kind in kinds]}


def _counted(word: str, count: int) -> str:
    kind, _, written = word.partition(":")
    if written and written != str(count):
        raise bad_input(f"hardware.accelerators says {word}, gpus_per_node says {count}; make them agree")
    return f"{kind}:{count}"


def _mounts(job: Job) -> dict[str, Any]:
    files: dict[str, Any] = {}
    volumes: dict[str, str] = {}
    for mount in job.mounts:
        source, target = mount["from"], mount["to"]
        if source.startswith("volume:"):
            volumes[target] = source[len("volume:") :]
        elif source.startswith(_BUCKETS):
            files[target] = {"source": source, "mode": "MOUNT" if mount.get("read_only") else "MOUNT_CACHED"}
        elif source.startswith("pvc:"):
            raise bad_input(f"{source} is a word of the k8s target; for SkyPilot make a volume and write volume:NAME")
        else:
            files[target] = str(Path(job.folder) / Path(source).expanduser())
    return {"file_mounts": files, "volumes": volumes}


def script(order: Order) -> str:
    """The same for every node; rank and head come from what SkyPilot sets."""
    job = order.job
    there = _THERE if job.nodes > 1 else {}
    variables = job.variables(order.run_dir)
    exports = [f"export {name}={there.get(name) or shlex.quote(value)}" for name, value in variables.items()]
    return _RUN.format(
        exports="\n".join(exports), cd=_cd(job), run_dir=shlex.quote(order.run_dir),
        words=shlex.join([*_limit(job), *job.words(order.run_dir)]),
    )  # fmt: skip


def _cd(job: Job) -> str:
    if _local(job):
        return ": # SkyPilot has put the workdir here"
    if job.workdir.startswith("~/"):
        return f'cd "$HOME"/{shlex.quote(job.workdir[2:])} || exit 3'
    return f"cd {shlex.quote(job.workdir)} || exit 3"


def _limit(job: Job) -> list[str]:
    if not job.time_limit:
        return []
    return ["timeout", f"--signal={job.signal}", f"--kill-after={job.grace:g}", f"{job.time_limit:g}"]


# -- what became of it


def status(order: Order) -> Status:
    done = _sky(order, ["queue", "--all", "--output", "json"])
    if done.code:
        raise lacking(f"cannot ask SkyPilot: {done.sentence()}")
    named = [job for job in _rows(done.out) if job.get("job_name") == engine_name(order.run_id)]
    if not named:
        return Status("lost", detail=f"SkyPilot knows no managed job {engine_name(order.run_id)}")
    latest = max(named, key=lambda job: int(job["job_id"]))  # a resumed run has several of one name
    word = str(latest["status"])
    state = _STATES.get(word, "failed" if word.startswith("FAILED") else "lost")
    detail = latest.get("failure_reason") or latest.get("details") or ("" if state in ("done", "running") else word)
    return Status(state, 0 if state == "done" else None, str(detail))


def _sky(order: Order, words: list[str]) -> Done:
    return order.head.run(["sky", "jobs", *words], seconds=_ASK_SECONDS)


def _rows(text: str) -> list[dict[str, Any]]:
    """The list, after whatever notice sky prints before it."""
    try:
        rows = json.loads(text[text.index("[") :])
    except ValueError:
        raise lacking(
            f"`sky jobs queue --output json` gave no JSON but {text.strip()[:100]!r}; sky 0.14 does"
        ) from None
    return [row for row in rows if isinstance(row, dict)]


def logs(order: Order, lines: int) -> list[str]:
    done = _sky(order, ["logs", "--name", engine_name(order.run_id), "--no-follow", "--tail", str(lines)])
    if done.code and not done.out:  # its exit code is also the job's
        raise lacking(f"cannot get the log from SkyPilot: {done.sentence()}")
    return done.out.splitlines()


def stop(order: Order) -> list[Step]:
    """Graceful: what the cached bucket mounts have not uploaded yet is uploaded first."""
    words = ["sky", "jobs", "cancel", "--yes", "--graceful", "--name", engine_name(order.run_id)]
    return [Step(words, seconds=_LAUNCH_SECONDS)]


def resume(order: Order) -> list[Step]:
    """A new managed job of the same name on the same bucket."""
    return render(order)
