"""k8s, skypilot, kaggle, openclaw: the rendering is valid, arrives verbatim, has no secret; answers are understood."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from rgt.errors import RgtError
from rgt.host.ssh import Host
from rgt.job import backends, description
from rgt.job.backends import Order, Step, engine_name, k8s, kaggle, openclaw, skypilot

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pytest import MonkeyPatch

from . import front_door
from .gate_box import until
from .hostile import HOSTILE
from .real.support import missing

ROOT = Path(__file__).resolve().parent.parent
RUN_ID = "20261116-083000-tiny-1f00ab"
NAME = f"rgt-{RUN_ID}"
SECRET = "s3cr3t-value"
CHARACTERS = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
TEXT = st.text(CHARACTERS, max_size=12) | st.sampled_from(HOSTILE)
# writes what has arrived: its words, and the variable V
PROBE = "import json,os,sys;json.dump([sys.argv[1:],os.environ['V']],open(os.environ['RGT_RUN_DIR']+'/got.json','w'))"


TINY = {"name": "tiny", "script": "train.py", "workdir": "/code"}
MOUNTED: dict[str, dict[str, Any]] = {
    "k8s": {"image": "img@sha256:1", "mounts": [{"from": "pvc:data", "to": "/data"}], "output": "/data/runs"},
    "skypilot": {"mounts": [{"from": "s3://b", "to": "/data"}], "output": "/data/runs"},
    "kaggle": {"mounts": [{"from": "dataset:me/code", "to": "/code"}]},
    "openclaw": {},
    "local": {},
    "ssh": {},
    "slurm": {},
}


def order(kind: str, hosts: list[Host] | None = None, run_id: str = RUN_ID, **changes: Any) -> Order:
    spec: dict[str, Any] = {**TINY, **MOUNTED[kind], **changes}
    if "command" in spec:
        del spec["script"]
    return Order(description.from_dict(spec, Path("/home/me")), run_id, kind, hosts or [Host()])


def kept(source: str, folder: Path) -> dict[str, Any]:
    """Everything in one folder of ours, where the engine would have its mount."""
    return {"workdir": str(folder), "output": str(folder), "mounts": [mount(source, str(folder))]}


@pytest.fixture(autouse=True)
def _me(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setenv("KAGGLE_USERNAME", "me")


def mount(source: str, target: str = "/data", **more: Any) -> dict[str, Any]:
    return {"from": source, "to": target, **more}


CANNOT_DO = [
    ("k8s", {"image": ""}, "the k8s target needs `image:`"),
    ("k8s", {"output": "runs"}, f"/code/runs/{RUN_ID} is on no mount, so checkpoints would die"),
    ("k8s", {"mounts": [mount("s3://b")]}, "k8s mounts pvc:NAME or an absolute path on the node, not 's3"),
    ("skypilot", {"output": "runs"}, "output runs would vanish with the machine"),
    ("skypilot", {"gpus_per_node": 1}, "SkyPilot chooses from a list"),
    ("skypilot", {"gpus_per_node": 2, "hardware": {"accelerators": "L4:1"}}, "says L4:1, gpus_per_node says 2"),
    ("kaggle", {"nodes": 2}, "Kaggle has one machine"),
    ("kaggle", {"secrets": ["TOKEN"]}, "cannot get the secret TOKEN"),
    ("kaggle", {"workdir": "/home/me"}, "Kaggle gets the runner, not /home/me; make the code a dataset"),
    ("kaggle", {"gpus_per_node": 2}, "the job wants 2 GPUs and names no machine"),
    ("openclaw", {"workdir": "~/x"}, "OpenClaw does not expand ~"),
    ("openclaw", {"nodes": 2}, "the job wants 2 nodes, --on names 1"),
    ("openclaw", {"env": {"A": "", "LD_X": "", "PATH": ""}}, "OpenClaw takes no LD_X from a call"),  # it drops them
    ("openclaw", {"nodes": 2, "hosts": "a,b"}, "a node's name in OpenClaw is no address; add master_addr"),
    ("local", {"image": "img"}, "--on local cannot honour `image`: it starts no container; --on docker does"),
    ("local", {"nodes": 2}, "--on local cannot honour `nodes`: it is one machine"),
    ("ssh", {"signal": "USR1", "hosts": "a"}, "--on ssh cannot honour `signal`: its warning is TERM"),
    ("ssh", {"nodes": 2, "max_restarts": 5, "hosts": "a,b"}, "--on ssh cannot honour `max_restarts`: no node can tell"),
    ("slurm", {"image": "img"}, "with Pyxis: extra: {slurm: {container-image: IMAGE}}"),
    ("slurm", {"slurm": {"array": "0-3"}, "args": ["{run}"]}, "each task of an array has a run directory of its own"),
    ("slurm", {"extra": {"slurm": {"comment": "a\n#SBATCH --uid=0"}}}, "an option of sbatch is one line"),
    ("kaggle", {"image": "img"}, "--on kaggle cannot honour `image`: Kaggle has no word for it"),
    ("skypilot", {"shm_size": "1GiB"}, "--on skypilot cannot honour `shm_size`"),
]


@pytest.mark.parametrize(("kind", "changes", "said"), CANNOT_DO)
def test_what_a_target_cannot_do_is_refused(kind: str, changes: dict[str, Any], said: str) -> None:
    given = {name: value for name, value in changes.items() if name != "hosts"}
    hosts = [Host(name) for name in changes.get("hosts", "").split(",")]
    wanted = order(kind, hosts, run_id=openclaw.PLACEHOLDER if kind == "openclaw" else RUN_ID, **given)
    with pytest.raises(RgtError, match=re.escape(said)) as error:
        backends.steps(wanted)
    assert error.value.exit_code == 2


# -- names


@given(st.text(min_size=1, max_size=90))
def test_a_name_is_a_dns_label_and_a_sky_name(run_id: str) -> None:
    assert re.fullmatch(r"[a-z]([a-z0-9]*-?[a-z0-9])*", name := engine_name(run_id)) and len(name) <= 52


def test_names_stay_apart() -> None:
    long = "20261116-083000-" + "a" * 40
    ids = [RUN_ID, RUN_ID.replace("tiny", "ti.ny"), RUN_ID.replace("tiny", "ti_ny"), f"{long}-000000", f"{long}-000001"]
    assert len({engine_name(each) for each in ids}) == len(ids)


# -- Kubernetes


def validate(manifests: list[dict[str, Any]], version: str) -> None:
    try:
        validator = importlib.import_module("kubernetes_validate")
    except ImportError:
        missing("kubernetes-validate is not installed (pip install kubernetes-validate)")
    for manifest in manifests:
        validator.validate(manifest, version, strict=True)


HARDWARE = {"cpus": 4, "memory": "16GiB", "accelerators": "L4:8,A10G:8", "spot": True}
EVERYTHING: dict[str, Any] = {"gpus_per_node": 8, "secrets": ["TOKEN"], "env": {"A": "$(B)"}, "hardware": HARDWARE}
EVERYTHING |= {"time_limit": "90m", "grace": 0.5, "signal": "USR1", "shm_size": "2GB", "max_restarts": 0}


@pytest.mark.parametrize("version", ["1.29", "1.33", "1.37"])
@pytest.mark.parametrize("changes", [{}, {"nodes": 2}, EVERYTHING, {**EVERYTHING, "nodes": 3}])
def test_manifests_are_valid(changes: dict[str, Any], version: str) -> None:
    validate(k8s.manifests(order("k8s", **changes)), version)


def pod(wanted: Order) -> dict[str, Any]:
    spec: dict[str, Any] = k8s.manifests(wanted)[-1]["spec"]["template"]["spec"]
    return spec


def test_several_nodes_are_an_indexed_job_behind_a_headless_service() -> None:
    service, made = k8s.manifests(order("k8s", nodes=2, gpus_per_node=8))
    spec = made["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    assert (spec["backoffLimitPerIndex"], spec["podReplacementPolicy"]) == (3, "Failed")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"].items() <= spec["template"]["metadata"]["labels"].items()
    env = {each["name"]: each for each in spec["template"]["spec"]["containers"][0]["env"]}
    assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"] == NAME
    assert env["PET_MASTER_ADDR"]["value"] == f"{NAME}-0.{NAME}"
    assert "job-completion-index" in env["PET_NODE_RANK"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert env["PET_NNODES"]["value"] == "2"


def expand(text: str, known: dict[str, str]) -> str:
    """The kubelet's reading: $$ is $, $(NAME) is a variable if it is known, any other $ is itself."""

    def one(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else known.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^)]*)\)", one, text)


def run_pod(folder: Path, wanted: Order, **more: str) -> subprocess.Popen[str]:
    (container,) = pod(wanted)["containers"]
    env = {each["name"]: expand(each["value"], {}) for each in container["env"] if "value" in each}
    words = [expand(word, env) for word in container["command"]]
    own = {**os.environ, **env, **more}
    return subprocess.Popen(words, env=own, cwd=folder, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("word", ["TERM", "USR1"])
def test_the_pod_passes_the_warning_on_and_keeps_the_log(tmp_path: Path, word: str) -> None:
    body = (
        f"import os, signal, sys, time\nsignal.signal(signal.SIG{word}, signal.default_int_handler)\n"
        "try:\n    os.write(1, b'ready\\n'); time.sleep(60)\n"
        "except KeyboardInterrupt:\n    os.write(1, b'warned\\n'); sys.exit(7)"
    )
    command = [sys.executable, "-c", body]
    wanted = order("k8s", command=command, signal=word, nodes=2, **kept("pvc:x", tmp_path))
    shell = run_pod(tmp_path, wanted, PET_NODE_RANK="1")
    log = tmp_path / RUN_ID / "train.1.log"
    until(lambda: log.exists() and log.read_text() == "ready\n")
    shell.send_signal(signal.SIGTERM)
    out, _ = shell.communicate(timeout=30)
    assert (shell.returncode, log.read_text()) == (7, "ready\nwarned\n")
    assert out == "ready\nwarned\n"  # for `kubectl logs`


# -- a stand-in for each engine's command: it writes down what it was given, and answers


FAKE = """\
#!{python}
import json, os, sys
words = sys.argv[1:]
row = {{"words": words, "stdin": sys.stdin.read() if "-" in words else "", "env": sorted(os.environ)}}
open({record!r}, "a").write(json.dumps(row) + "\\n")
for start, (code, out, err) in {answers!r}.items():
    if " ".join(words).startswith(start):
        sys.stdout.write(out), sys.stderr.write(err), sys.exit(code)
"""


class Engine:
    """A command on PATH with its answers."""

    def __init__(self, folder: Path, patch: MonkeyPatch, name: str, answers: dict[str, Any]) -> None:
        self.record = folder / f"{name}.jsonl"
        full = {start: (0, each, "") if isinstance(each, str) else each for start, each in answers.items()}
        tool = folder / "bin" / name
        tool.parent.mkdir(exist_ok=True)
        tool.write_text(FAKE.format(python=sys.executable, record=str(self.record), answers=full))
        tool.chmod(0o755)
        patch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.record.read_text().splitlines()]

    def words(self) -> list[str]:
        return [" ".join(row["words"]) for row in self.rows()]


def pods(*containers: dict[str, Any], **status: Any) -> str:
    items = [
        {"metadata": {"creationTimestamp": f"2026-11-16T08:30:0{n}Z"}, "status": {"containerStatuses": [each]}}
        for n, each in enumerate(containers)
    ]
    return json.dumps({"items": items or [{"metadata": {}, "status": status}]})


SUSPENDED = {"type": "Suspended", "status": "True"}
FAILED = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "too many"}
TOOLS = {"k8s": "kubectl", "skypilot": "sky", "kaggle": "kaggle"}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes have gpu"}


def k8s_says(state: dict[str, Any], of_pods: str = "") -> dict[str, Any]:
    return {f"get job {NAME}": json.dumps({"status": state}), "get pods": of_pods or pods()}


def terminated(**how: Any) -> dict[str, Any]:
    return {"state": {"terminated": how}}


def sky_says(*rows: dict[str, Any]) -> dict[str, Any]:
    queue = [{"job_id": number, "job_name": NAME, **row} for number, row in enumerate(rows)]
    return {"jobs queue --all --output json": "a notice of sky\n" + json.dumps(queue)}


def kaggle_says(answer: Any) -> dict[str, Any]:
    return {f"kernels status me/{NAME}": f"me/{NAME} has status {answer}\n" if isinstance(answer, str) else answer}


OUT_OF_MEMORY = pods(terminated(exitCode=1), terminated(exitCode=137, reason="OOMKilled"))
NO_IMAGE = pods({"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}})
NOT_SUSPENDED = {**SUSPENDED, "status": "False"}
DENIED = (1, "", f"Cannot access kernel 'me/{NAME}' (Permission 'kernels.get' was denied).\n")
NOT_FOUND = (1, "", f'Error from server (NotFound): jobs.batch "{NAME}" not found\n')


MANY, ERROR = "BackoffLimitExceeded: too many", "KernelWorkerStatus.ERROR"
NO_NODE = "Unschedulable: 0/3 nodes have gpu"


STATES = [
    ("k8s", k8s_says({"conditions": [{"type": "Complete", "status": "True"}]}), "finished 0"),
    ("k8s", k8s_says({"conditions": [FAILED]}, OUT_OF_MEMORY), f"failed 137 {MANY}; killed by its memory limit"),
    ("k8s", k8s_says({"conditions": [SUSPENDED]}), "stopped None suspended"),
    ("k8s", k8s_says({"conditions": [NOT_SUSPENDED], "ready": 1}), "running None"),
    ("k8s", k8s_says({"ready": 0}, pods(conditions=[UNSCHEDULABLE])), f"queued None {NO_NODE}"),
    ("k8s", k8s_says({"active": 1}, NO_IMAGE), "queued None ImagePullBackOff: no such image"),
    ("k8s", {"get": NOT_FOUND}, f"lost None kubectl's current context has no job {NAME}"),
    ("skypilot", sky_says({"status": "SUCCEEDED"}), "finished 0"),
    ("skypilot", sky_says({"status": "RECOVERING"}), "queued None RECOVERING"),
    ("skypilot", sky_says({"status": "FAILED", "failure_reason": "exit 1"}), "failed None exit 1"),
    ("skypilot", sky_says({"status": "FAILED"}, {"status": "RUNNING"}), "running None"),  # the newest counts
    ("skypilot", sky_says({"job_name": "other"}), f"lost None SkyPilot knows no managed job {NAME}"),
    ("kaggle", kaggle_says('"KernelWorkerStatus.RUNNING"'), "running None"),
    ("kaggle", kaggle_says('"complete"'), "finished 0"),
    ("kaggle", kaggle_says(f'"{ERROR}"\nFailure message: "out of memory"'), "failed None out of memory"),
    ("kaggle", kaggle_says(DENIED), f"lost None Kaggle shows no kernel me/{NAME}"),
]


@pytest.mark.parametrize(("kind", "answers", "expected"), STATES)
def test_status(tmp_path: Path, monkeypatch: MonkeyPatch, kind: str, answers: dict[str, Any], expected: str) -> None:
    Engine(tmp_path, monkeypatch, TOOLS[kind], answers)
    now = backends.backend(kind).status(order(kind))
    assert f"{now.state} {now.exit_code} {now.detail}".rstrip() == expected


NO_ANSWERS = [
    ("k8s", (1, "", "Unable to connect to the server\n"), "cannot ask Kubernetes: Unable to connect to the server"),
    ("skypilot", "No managed jobs found\n", "gave no JSON but 'No managed jobs found'"),  # an older sky
    ("kaggle", "hello\n", "cannot ask Kaggle: hello"),
]


@pytest.mark.parametrize(("kind", "answer", "said"), NO_ANSWERS)
def test_an_engine_without_an_answer(
    tmp_path: Path, monkeypatch: MonkeyPatch, kind: str, answer: Any, said: str
) -> None:
    Engine(tmp_path, monkeypatch, TOOLS[kind], {"": answer})
    with pytest.raises(RgtError, match=said) as error:
        backends.backend(kind).status(order(kind))
    assert error.value.exit_code == 3


@pytest.mark.parametrize(("condition", "expected"), [(SUSPENDED, ["patch"]), (FAILED, ["delete", "apply"])])
def test_k8s_resume(tmp_path: Path, monkeypatch: MonkeyPatch, condition: dict[str, Any], expected: list[str]) -> None:
    Engine(tmp_path, monkeypatch, "kubectl", k8s_says({"conditions": [condition]}))
    assert [step.words[1] for step in k8s.resume(order("k8s"))] == expected


def launch(folder: Path, *words: object, **env: str) -> subprocess.CompletedProcess[str]:
    return front_door.call("launch.py", *words, cwd=folder, env=env)


def spec_file(folder: Path, kind: str, **changes: Any) -> Path:
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump({**TINY, **MOUNTED[kind], **changes}))
    return path


def test_k8s_from_submit_to_stop_with_the_secret_in_a_pipe(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    suspended = json.dumps({"status": {"conditions": [SUSPENDED]}})
    engine = Engine(tmp_path, monkeypatch, "kubectl", {"get job rgt- -o jsonpath": "", "get job": suspended})
    spec = spec_file(tmp_path, "k8s", secrets=["TOKEN"])
    done = launch(tmp_path, "submit", spec, "--on", "k8s", TOKEN=SECRET)
    assert done.returncode == 0, done.stderr
    run = Path(done.stdout.strip())
    apply, uid, secret = engine.rows()
    assert apply["words"] == ["apply", "-f", str(run / "k8s.json")]
    assert uid["words"][:2] == ["get", "job"]
    assert json.loads(secret["stdin"])["stringData"] == {"TOKEN": SECRET}
    assert json.loads(secret["stdin"])["metadata"]["name"] == engine_name(run.name)
    files = [path for path in run.rglob("*") if path.is_file()]
    assert run / "k8s.json" in files
    everywhere = [done.stdout, done.stderr, *engine.words(), *(path.read_text() for path in files)]
    assert not [text for text in everywhere if SECRET in text]
    assert launch(tmp_path, "stop", run).returncode == 0
    patch = '{"spec": {"suspend": true}}'
    assert engine.words()[-1] == f"patch job {engine_name(run.name)} --type=merge --patch {patch}"
    assert launch(tmp_path, "status", run).stdout == f"stopped: {run.name} (suspended)\n"


# -- SkyPilot


def bash(folder: Path, script: str, **env: str) -> subprocess.CompletedProcess[str]:
    own = {**os.environ, "SKYPILOT_NODE_RANK": "0", **env}
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=own, cwd=folder)


CHECK = """\
import json, sys
import sky, yaml
rows = []
for path in sys.argv[1:]:
    task = sky.Task.from_yaml_config(yaml.safe_load(open(path)))
    rows.append({**task.to_yaml_config(), "hidden": sorted(map(str, task.to_yaml_config().get("secrets", [])))})
print("ROWS" + json.dumps(rows))
"""


def sky_python() -> str:
    """SkyPilot wants an older click than we do, so it lives in an environment of its own."""
    python = os.environ.get("RGT_SKY_PYTHON", str(ROOT / ".venv-sky" / "bin" / "python"))
    if not Path(python).exists():
        missing("skypilot is not there: python3 -m venv .venv-sky && .venv-sky/bin/pip install skypilot==0.14.1")
    return python


def test_sky_itself_takes_the_tasks(tmp_path: Path) -> None:
    python = sky_python()
    wanted = [
        order("skypilot"),
        order("skypilot", **{**EVERYTHING, "nodes": 2, "image": "img@sha256:1", "command": ["x", *HOSTILE]}),
        order("skypilot", mounts=[{"from": "volume:v", "to": "/data"}, {"from": "/etc/hosts", "to": "/h"}]),
    ]
    paths = [tmp_path / f"{number}.yaml" for number in range(len(wanted))]
    for path, each in zip(paths, wanted, strict=True):
        (step,) = skypilot.render(each)
        path.write_text(step.files[step.words[-1]])
    done = subprocess.run([python, "-c", CHECK, *paths], capture_output=True, text=True, env={"HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    plain, full, volume = json.loads(done.stdout.partition("ROWS")[2])
    assert plain["file_mounts"]["/data"]["mode"] == "MOUNT_CACHED"
    assert (plain["name"], plain["num_nodes"]) == (NAME, 1)
    kinds = full["resources"]["any_of"]
    assert sorted(str(kind["accelerators"]) for kind in kinds) == ["{'A10G': 8}", "{'L4': 8}"]
    assert {(kind["use_spot"], kind["cpus"], kind["memory"]) for kind in kinds} == {(True, "4+", "16+")}
    assert {kind["job_recovery"]["max_restarts_on_errors"] for kind in kinds} == {0}
    assert (full["num_nodes"], full["run"]) == (2, skypilot.script(wanted[1]))
    assert "TOKEN" in full["hidden"][0]
    assert (volume["volumes"], volume["file_mounts"]) == ({"/data": "v"}, {"/h": "/etc/hosts"})


def test_sky_nodes_find_their_rank_and_head(tmp_path: Path) -> None:
    place = kept("s3://b", tmp_path)
    shown = "import os;print(*(os.environ['PET_'+n] for n in ('NODE_RANK','MASTER_ADDR','NNODES','NPROC_PER_NODE')))"
    script = skypilot.script(
        order("skypilot", command=[sys.executable, "-c", shown], nodes=2, gpus_per_node=4, **place)
    )
    for rank, log in (("0", "train.log"), ("1", "train.1.log")):
        done = bash(tmp_path, script, SKYPILOT_NODE_RANK=rank, SKYPILOT_NODE_IPS="10.0.0.5\n10.0.0.6")
        assert done.stdout == (tmp_path / RUN_ID / log).read_text() == f"{rank} 10.0.0.5 2 4\n"


# -- Kaggle

# `kaggle kernels init` 2.2.4 writes these; docs/kernels_metadata.md of Kaggle/kaggle-cli explains them
PUBLISHED = set(
    "id title code_file language kernel_type is_private enable_gpu enable_tpu enable_internet machine_shape "
    "dataset_sources competition_sources kernel_sources model_sources".split()
)


def test_kaggle_metadata_has_the_published_fields() -> None:
    mounts = [mount("dataset:me/code", "/code"), mount("competition:titanic", "/t"), mount("kernel:me/prep", "/p")]
    mounts.append(mount("model:g/gemma/pyTorch/2b/1", "/m"))
    long = "20261116-083000-a.very_long.slug-that-kaggle-would-cut-1f00ab"
    wanted = order("kaggle", run_id=long, gpus_per_node=1, mounts=mounts)
    made = kaggle.metadata(wanted, kaggle.kernel(wanted), resume=True)
    assert set(made) == PUBLISHED and made["is_private"] and made["enable_gpu"]
    assert made["id"] == f"me/{made['title']}" and re.fullmatch("[a-z0-9-]{5,50}", made["title"])
    assert (made["dataset_sources"], made["competition_sources"]) == (["me/code"], ["titanic"])
    assert (made["model_sources"], made["kernel_sources"]) == (["g/gemma/pyTorch/2b/1"], ["me/prep", made["id"]])


def run_kaggle(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    script = folder / "runner.py"
    script.write_text(text)
    own = {**os.environ, "RGT_KAGGLE_INPUT": str(folder / "input")}
    return subprocess.run([sys.executable, script], capture_output=True, text=True, env=own, cwd=folder)


def test_the_runner_links_the_code_and_keeps_log_and_exit_code(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(kaggle, "WORKING", str(tmp_path / "working"))
    code = tmp_path / "input" / "datasets/me/code"
    code.mkdir(parents=True)
    (code / "train.py").write_text("print('step 1'); raise SystemExit(4)")
    linked = str(tmp_path / "linked" / "code")
    mounts = [{"from": "dataset:me/code", "to": linked}]
    done = run_kaggle(tmp_path, kaggle.runner(order("kaggle", mounts=mounts, workdir=linked, python=sys.executable)))
    run = tmp_path / "working" / "runs" / RUN_ID
    assert (done.returncode, done.stdout) == (4, "step 1\n"), done.stderr
    assert ((run / "train.log").read_text(), (run / "exit_code").read_text()) == ("step 1\n", "4")


def test_the_runner_resumes_from_its_last_output(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr(kaggle, "WORKING", str(tmp_path / "working"))
    before = tmp_path / "input" / NAME / "runs" / RUN_ID
    wanted = order("kaggle", command=["cat", "ckpt"], mounts=[], workdir=str(tmp_path / "working" / "runs" / RUN_ID))
    text = kaggle.runner(wanted, f"kernel:me/{NAME}")
    assert "is not below" in run_kaggle(tmp_path, text).stderr
    before.mkdir(parents=True)
    (before / "ckpt").write_text("step 7\n")
    (before / "train.log").write_text("old\n")
    assert run_kaggle(tmp_path, text).stdout == "step 7\n"
    assert (tmp_path / "working" / "runs" / RUN_ID / "train.log").read_text() == "old\nstep 7\n"


def carried_out(tmp_path: Path, step: Step) -> str:
    """The error of the push, or nothing."""
    wanted = Order(description.from_dict({"name": "x", "command": ["x"]}, tmp_path), RUN_ID, "kaggle")
    step.files = {str(tmp_path / Path(path).name): text for path, text in step.files.items()}
    try:
        backends.carry_out(wanted, [step])
    except RgtError as error:
        return error.message
    return ""


PUSHES = [
    ("Kernel version 1 successfully pushed.  Please check progress at https://x\n", ""),
    ("Kernel push error: Maximum batch GPU session count of 2 reached.\n", "Maximum batch GPU session count"),
    ("The following are not valid dataset sources and could not be added to the kernel: ['me/code']\n", "me/code"),
    ((1, "", "Authentication required to call the Kaggle API.\n"), "Authentication required"),
]


@pytest.mark.parametrize(("answer", "said"), PUSHES)
def test_a_failed_push_is_seen_despite_exit_0(tmp_path: Path, monkeypatch: MonkeyPatch, answer: Any, said: str) -> None:
    engine = Engine(tmp_path, monkeypatch, "kaggle", {"kernels push": answer})
    (step,) = kaggle.render(order("kaggle", time_limit="1h"))
    message = carried_out(tmp_path, step)
    assert (said in message) if said else not message
    assert engine.words() == [f"kernels push -p /home/me/runs/{RUN_ID}/kaggle --timeout 3600"]


def test_kaggle_asks_who_you_are_and_cannot_stop(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.delenv("KAGGLE_USERNAME")
    view = "Configuration values from /x\n- username: someone\n- auth_method: OAUTH\n"
    Engine(tmp_path, monkeypatch, "kaggle", {"config view": view})
    with pytest.raises(RgtError, match=f"cancel it on its page: https://www.kaggle.com/code/someone/{NAME}"):
        kaggle.stop(order("kaggle"))
    Engine(tmp_path, monkeypatch, "kaggle", {"config view": "- username: None\n"})
    with pytest.raises(RgtError, match="set KAGGLE_USERNAME"):
        kaggle.render(order("kaggle"))


# -- the engine's own words


def test_extra_words_reach_every_engine() -> None:
    words = {"docker": ["--privileged"], "k8s": {"nodeSelector": {"a": "b"}}, "skypilot": {"envs": {"A": "b"}}}
    words |= {"kaggle": {"is_private": False}, "openclaw": {"pty": True}, "local": ["--min-free-mem", "20GiB"]}
    assert pod(order("k8s", extra=words))["nodeSelector"] == {"a": "b"}
    assert skypilot.task(order("skypilot", extra=words))["envs"] == {"A": "b"}
    assert kaggle.metadata(order("kaggle", extra=words), "me/x")["is_private"] is False
    assert call(order("openclaw", extra=words), "now, start")["pty"] is True
    (step,) = backends.steps(order("local", extra=words))
    assert "--min-free-mem 20GiB --" in " ".join(step.words)


# -- OpenClaw


def call(wanted: Order, what: str) -> dict[str, Any]:
    return next(each for title, each in openclaw.calls(wanted) if title.startswith(f"exec call {what}"))


def test_openclaw_call_word_by_word() -> None:
    made = call(order("openclaw", [Host("mac-1")], gpus_per_node=1, time_limit="1h"), "now, start")
    bundle = re.search(r"box-\w{12}\.pyz", made["command"])
    assert bundle
    command = (
        f'python3 "$HOME"/.cache/rgt/{bundle[0]} gpu_gate -n {RUN_ID} -t 3600 --grace 60 --gpus 1 '
        f"--unique --detach --log /code/runs/{RUN_ID}/train.log -- python3 train.py"
    )
    env = {"RGT_RUN_DIR": f"/code/runs/{RUN_ID}", "PYTHONUNBUFFERED": "1"}
    how = {"background": False, "pty": False, "timeoutSeconds": 120}
    where = {"tool": "exec", "host": "node", "node": "mac-1"}
    assert made == {**where, "command": command, "workdir": "/code", "env": env, **how}


def test_openclaw_with_an_image_is_docker_on_the_node() -> None:
    hosts = [Host("n1"), Host("n2")]
    changes: dict[str, Any] = {"image": "img@sha256:1", "nodes": 2, "gpus_per_node": 8, "master_addr": "10.0.0.5"}
    changes |= {"env": {"LD_LIBRARY_PATH": "/x"}, "secrets": ["TOKEN"], "port": 29512}
    wanted = order("openclaw", hosts, mounts=[mount("/data")], **changes)
    made = [each for title, each in openclaw.calls(wanted) if "start" in title]
    assert [each["node"] for each in made] == ["n1", "n2"]
    words = shlex.split(made[1]["command"])
    assert words[:6] == ["mkdir", "-p", f"/code/runs/{RUN_ID}", "&&", "docker", "run"]
    env = {words[n + 1] for n, word in enumerate(words) if word == "--env"}
    assert {
        "PET_NODE_RANK=1",
        "PET_MASTER_ADDR=10.0.0.5",
        "PET_MASTER_PORT=29512",
        "LD_LIBRARY_PATH=/x",
        "TOKEN",
    } <= env
    assert "--gpus 8" in made[1]["command"] and "type=bind,source=/data,target=/data" in words
    later = {title: each["command"] for title, each in openclaw.calls(wanted) if title.endswith("n2")}
    assert later["exec call later, to stop: n2"] == f"docker stop -t 60 {NAME}"
    assert later["exec call later, to go on: n2"] == f"docker start {NAME}"
    assert later["exec call later, to remove the container: n2"] == f"docker rm {NAME}"


def node(tmp_path: Path, made: dict[str, Any], **env: str) -> subprocess.CompletedProcess[str]:
    """What a node does with a call, with a bundle that starts the command in its own place."""
    bundle = re.search(r"\.cache/rgt/box-\w+\.pyz", made["command"])
    if bundle:
        (tmp_path / bundle[0]).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / bundle[0]).write_text("import os,sys;w=sys.argv[sys.argv.index('--')+1:];os.execvp(w[0],w)")
    own = {**os.environ, "HOME": str(tmp_path), **made.get("env", {}), **env}
    return subprocess.run(["sh", "-c", made["command"]], capture_output=True, text=True, env=own, cwd=tmp_path)


def test_openclaw_prints_calls_and_cannot_submit(tmp_path: Path) -> None:
    spec = spec_file(tmp_path, "openclaw")
    shown = launch(tmp_path, "submit", spec, "--on", "openclaw:mac-1", "--dry-run")
    first, _, rest = shown.stdout.partition("\n")
    assert first == "# exec call now, check: mac-1"
    assert json.JSONDecoder().raw_decode(rest)[0]["host"] == "node"
    assert "<run-id>" not in shown.stdout  # the calls can be made as they stand
    done = launch(tmp_path, "submit", spec, "--on", "openclaw:mac-1")
    assert (done.returncode, done.stdout) == (3, "")
    sentence = "error: only an OpenClaw agent can start, ask or stop a job on mac-1; print the exec calls with"
    assert done.stderr.startswith(sentence)
    assert [path.name for path in tmp_path.iterdir()] == ["job.yaml"]


# -- whatever is in words, values and names arrives as it is


@settings(max_examples=5)
@example(words=HOSTILE, value="\n".join(HOSTILE), name="$(x) 'é'")
@given(words=st.lists(TEXT, max_size=4), value=TEXT, name=st.text(min_size=1, max_size=20))
def test_words_arrive_verbatim(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], value: str, name: str
) -> None:
    folder = tmp_path_factory.mktemp("verbatim")
    run = folder / "a b'$(x)" / RUN_ID
    command, places = [sys.executable, "-c", PROBE, *words], {"workdir": str(folder), "output": str(run.parent)}
    changes: dict[str, Any] = {"name": name, "command": command, "env": {"V": value}, **places}

    def check(done: subprocess.CompletedProcess[str]) -> None:
        assert done.returncode == 0, done.stderr
        assert json.loads((run / "got.json").read_text()) == [[w.replace("{run}", str(run)) for w in words], value]
        (run / "got.json").unlink()

    (step,) = skypilot.render(order("skypilot", **changes, mounts=[mount("s3://b", str(folder))]))
    check(bash(folder, yaml.safe_load(step.files[step.words[-1]])["run"]))
    with MonkeyPatch.context() as patch:
        patch.setattr(kaggle, "WORKING", str(folder))
        check(run_kaggle(folder, kaggle.runner(order("kaggle", **{**changes, "mounts": []}))))
    check(node(folder, call(order("openclaw", **changes), "now, start")))
    if words == HOSTILE:  # once: a pod waits a second for the end of its log
        with run_pod(folder, order("k8s", **changes, mounts=[mount("pvc:x", str(folder))])) as process:
            out, _ = process.communicate(timeout=30)
        check(subprocess.CompletedProcess([], process.returncode, out, out))
    assert not list(folder.rglob("pwned"))


@pytest.mark.parametrize("kind", ["k8s", "skypilot", "openclaw"])
def test_no_secret_is_rendered_and_commands_can_be_typed(kind: str, monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", SECRET)
    run_id = openclaw.PLACEHOLDER if kind == "openclaw" else RUN_ID
    steps = backends.backend(kind).render(order(kind, run_id=run_id, secrets=["TOKEN"]))
    shown = "\n".join(step.show() for step in steps)
    assert "TOKEN" in shown and SECRET not in shown
    (stop,) = skypilot.stop(order("skypilot"))
    assert shlex.split(stop.show().splitlines()[-1]) == stop.words
