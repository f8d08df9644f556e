"""A Kaggle script kernel: `kaggle kernels push`, status, output. One machine, hours, GPUs that cost nothing.

What job.yaml means here:
    mounts      from: dataset:OWNER/SLUG, kernel:OWNER/SLUG (its output), competition:SLUG or
                model:OWNER/SLUG/FRAMEWORK/VARIATION/VERSION; Kaggle mounts it read-only, `to` becomes a link to it
    workdir     on such a mount, or below /kaggle: a push uploads the runner and nothing else, so the code is a dataset,
                or `command` clones it (the internet is on)
    output      always /kaggle/working/<its last part>: Kaggle keeps nothing else
    hardware    accelerators is Kaggle's name of a machine, such as NvidiaTeslaT4 (two cards); without it Kaggle chooses
    time_limit  `push --timeout`; Kaggle's own limit comes first
secrets are refused: a secret reaches a kernel only when someone attaches it in the editor. image, grace and signal are
not Kaggle's words. The CLI has no verb that stops a kernel. `resume` mounts the kernel's own last output and copies the
run directory from it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import PurePosixPath
from typing import Any

from rgt.errors import bad_input, lacking
from rgt.job.backends import Order, Status, Step, ask, engine_name, engine_states

WORKING = "/kaggle/working"
_TITLE = 50  # characters that Kaggle takes
_SOURCES = ("dataset", "kernel", "model", "competition")
_STATES = engine_states(queued="QUEUED NEW_SCRIPT", running="RUNNING CANCEL_REQUESTED", finished="COMPLETE")
_STATES |= engine_states(failed="ERROR", stopped="CANCEL_ACKNOWLEDGED")
# `kaggle kernels push` exits 0 after "Kernel push error", and when a source was left out
_PUSH = """\
command -v kaggle >/dev/null || { echo 'kaggle is not installed here: pip install kaggle' >&2; exit 3; }
said=$(kaggle kernels push "$@") || { printf '%s\\n' "$said" >&2; exit 1; }
case $said in *'push error'*|*'not valid'*) printf '%s\\n' "$said" >&2; exit 1;; esac
printf '%s\\n' "$said"
"""

# Runs on Kaggle with nothing but its Python. The job is data in it, not code.
_RUNNER = '''\
"""Started by launch: links the inputs, runs the job, keeps its log and its exit code."""
import glob, json, os, shutil, subprocess, sys
JOB = json.loads({job})
INPUT = os.environ.get("RGT_KAGGLE_INPUT", "/kaggle/input")
def find(source):
    """Kaggle has mounted inputs as INPUT/slug and as INPUT/datasets/owner/slug."""
    path = glob.escape(source.partition(":")[2])
    slug = path.partition("/")[2] or path
    for name in (slug, "*/" + path, path, "*/" + slug):
        for hit in sorted(glob.glob(os.path.join(INPUT, name))):
            return hit
    sys.exit("error: " + source + " is not below " + INPUT + "; was it left out of the kernel's sources?")
for source, target in JOB["links"]:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if not os.path.lexists(target):
        os.symlink(find(source), target)
run = JOB["run"]
if JOB["resume"]:  # from the run directory of the version before this one
    old = glob.glob(os.path.join(find(JOB["resume"]), "**", os.path.basename(run)), recursive=True)
    if not old:
        sys.exit("error: the last version of this kernel left no run directory to resume from")
    shutil.copytree(old[0], run, dirs_exist_ok=True)
os.makedirs(run, exist_ok=True)
with open(os.path.join(run, "train.log"), "ab") as log:
    job = subprocess.Popen(JOB["words"], cwd=JOB["workdir"], env=dict(os.environ, **JOB["env"]),
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    for line in job.stdout:
        for copy in (log, sys.stdout.buffer):
            copy.write(line)
            copy.flush()
with open(os.path.join(run, "exit_code"), "w") as file:
    file.write(str(job.wait()))
sys.exit(job.returncode)
'''


def render(order: Order, resume: bool = False) -> list[Step]:
    job = order.job
    if job.nodes > 1:
        raise bad_input(f"Kaggle has one machine for a kernel; the job wants {job.nodes} nodes")
    for name in job.secrets:
        raise bad_input(f"a pushed kernel cannot get the secret {name}: Kaggle attaches secrets in its editor")
    places = ["/kaggle", *(mount["to"] for mount in job.mounts)]
    if not any(PurePosixPath(job.workdir).is_relative_to(place) for place in places):
        dataset = "make the code a dataset (mounts: [{from: dataset:YOU/CODE, to: /code}], workdir: /code)"
        clone = "set workdir: /kaggle/working and clone it in `command`"
        raise bad_input(f"Kaggle gets the runner, not {job.workdir}; {dataset}, or {clone}")
    folder, name = f"{order.record_dir}/kaggle", kernel(order)
    files = {
        f"{folder}/kernel-metadata.json": json.dumps(metadata(order, name, resume), indent=2),
        f"{folder}/runner.py": runner(order, f"kernel:{name}" if resume else ""),
    }
    limit = ["--timeout", f"{job.time_limit:.0f}"] if job.time_limit else []
    return [Step(["sh", "-c", _PUSH, "sh", "-p", folder, *limit], files=files, seconds=300)]


def resume(order: Order) -> list[Step]:
    """A new version of the same kernel, which finds the output of the last one among its inputs."""
    return render(order, resume=True)


def metadata(order: Order, name: str, resume: bool = False) -> dict[str, Any]:
    """kernel-metadata.json, with the fields that `kaggle kernels init` writes."""
    job = order.job
    sources: dict[str, list[str]] = {f"{kind}_sources": [] for kind in _SOURCES}
    for mount in job.mounts:
        kind, _, what = mount["from"].partition(":")
        if kind not in _SOURCES or not what:
            raise bad_input(f"Kaggle mounts dataset:, kernel:, model: or competition: + a name, not {mount['from']!r}")
        sources[f"{kind}_sources"].append(what)
    if resume:
        sources["kernel_sources"].append(name)
    kinds = [word.strip().partition(":")[0] for word in str(job.hardware.get("accelerators", "")).split(",")]
    machine = next((kind for kind in kinds if kind.startswith(("Nvidia", "Tpu"))), "")
    if job.gpus_per_node > 1 and not machine:
        advice = "such as hardware: {accelerators: NvidiaTeslaT4} with two"
        raise bad_input(f"the job wants {job.gpus_per_node} GPUs and names no machine of Kaggle with them; {advice}")
    title = name.partition("/")[2]  # its own slug: Kaggle derives one from the other
    kind = {"code_file": "runner.py", "language": "python", "kernel_type": "script", "is_private": True}
    has = {"enable_gpu": job.gpus_per_node > 0, "enable_tpu": False, "enable_internet": True, "machine_shape": machine}
    return {"id": name, "title": title, **kind, **has, **sources, **job.extra.get("kaggle", {})}


def kernel(order: Order) -> str:
    """owner/slug; the owner is whoever `kaggle` is logged in as."""
    owner = os.environ.get("KAGGLE_USERNAME")
    if not owner:
        done = order.head.run(["kaggle", "config", "view"])
        found = re.search(r"^- username: (\S+)$", done.out, re.M)
        if done.code or not found or found[1] == "None":
            raise lacking("kaggle does not say who you are; run `kaggle auth login`, or set KAGGLE_USERNAME")
        owner = found[1]
    return f"{owner}/{engine_name(order.run_id, _TITLE)}"


def runner(order: Order, resume: str = "") -> str:
    """The uploaded script. The job is a string literal of ASCII JSON: nothing in it is read as code."""
    job, run = order.job, f"{WORKING}/{PurePosixPath(order.job.output).name}/{order.run_id}"
    links = [[mount["from"], mount["to"]] for mount in job.mounts]
    data = {"words": job.words(run), "env": job.variables(run), "workdir": job.workdir, "run": run}
    return _RUNNER.replace("{job}", ascii(json.dumps({**data, "resume": resume, "links": links})))


# -- what became of it


def status(order: Order) -> Status:
    words = ["kaggle", "kernels", "status", name := kernel(order)]
    done = ask(order.head, words, "ask Kaggle", gone="Cannot access kernel|404|Not Found")
    if not done:
        return Status("lost", detail=f"Kaggle shows no kernel {name}")
    found = re.search(r'has status "(?:KernelWorkerStatus\.)?(\w+)"', done.out)
    if not found:
        raise lacking(f"cannot ask Kaggle: {done.sentence()}")
    state = _STATES.get(found[1].upper(), "lost")
    said = re.search(r'Failure message: "(.*)"', done.out, re.S)
    return Status(state, 0 if state == "finished" else None, said[1] if said else "")


def logs(order: Order, lines: int) -> list[str]:
    """Kaggle keeps the log as a list of {"stream_name", "time", "data"}."""
    done = ask(order.head, ["kaggle", "kernels", "logs", kernel(order)], "get the log from Kaggle")
    text = done.out if done else ""
    with contextlib.suppress(ValueError, TypeError, KeyError):  # plain text
        text = "".join(str(row["data"]) for row in json.loads(text))
    return text.splitlines()[-lines:]


def stop(order: Order) -> list[Step]:
    page = f"https://www.kaggle.com/code/{kernel(order)}"
    raise lacking(f"the kaggle CLI cannot stop a kernel; cancel it on its page: {page}")
