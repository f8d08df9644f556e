"""preflight: what would break a job is named before it starts, by the row it belongs to, with its fix."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt import schema
from rgt.host import box
from rgt.job import audit
from rgt.job.audit import Check, PlannedJob, Row, ok
from rgt.machine import gpus, memory, processes
from rgt.preflight import box_checks, smoke

import pytest

from . import front_door
from .gate_box import until

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "preflight.py"
FACTS: dict[str, Any] = {"executable": "/envs/train/bin/python", "prefix": "/envs/train"}
FACTS |= {"version": "3.11.7", "frameworks": []}
Env = dict[str, str] | None
Done = subprocess.CompletedProcess[str]
Rows = dict[str, list[dict[str, str]]]
LIVING = "RGT_TEST_SMOKE"  # marks the processes of one test


def run(*arguments: object, env: Env = None, cwd: Path | None = None) -> Done:
    """An audit in this process; a smoke in its own, which is then the parent of the job."""
    if arguments[0] == "audit":
        without: dict[str, str | None] = {name: None for name in os.environ if "proxy" in name.lower()}
        return front_door.call("preflight.py", *arguments, env={**without, **(env or {})}, cwd=cwd)
    environ = {**os.environ, **(env or {})}
    return subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, env=environ)


def rows(done: Done) -> Rows:
    """Checks by name; the JSON fits its schema, and its findings are the rows that are not ok."""
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    schema.check(report, "report", "stdout")
    bad = [row for row in report["checks"] if row["status"] != "ok"]
    assert [finding["where"] for finding in report["findings"]] == [row["name"] for row in bad]
    assert all(row["fix"] for row in bad)
    assert done.returncode == (1 if bad else 0)
    names = dict.fromkeys(row["name"] for row in report["checks"])
    return {name: [row for row in report["checks"] if row["name"] == name] for name in names}


def stub(**changes: Any) -> str:
    """An interpreter that answers these facts."""
    return f"#!/bin/sh\ncat <<'END'\n{json.dumps({**FACTS, **changes})}\nEND\n"


class Experiment:
    """A job's directory with a stub interpreter, so that no check waits for torch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file("train.py", "print('hello')\n")
        self.python = self.file("python", stub())

    def file(self, name: str, text: str) -> Path:
        """One that starts with #! is executable."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, newline="")
        path.chmod(0o755 if text.startswith("#!") else 0o644)
        return path

    def spec(self, **settings: Any) -> Path:
        data = {"name": "x", "script": "train.py", "python": str(self.python), **settings}
        if "command" in settings:
            del data["script"], data["python"]
        path = self.folder / "job.json"
        path.write_text(json.dumps(data))
        return path

    def audit(self, *options: object, environ: Env = None, cwd: Path | None = None, **settings: Any) -> Rows:
        return rows(run("audit", self.spec(**settings), "--json", *options, env=environ, cwd=cwd))

    def smoke(self, text: str, *options: object, environ: Env = None, **settings: Any) -> Any:
        """Run `text` as the smoke; the whole report."""
        (self.folder / "smoke.py").write_text(text)
        spec = self.spec(smoke=[sys.executable, "smoke.py"], **settings)
        done = run("smoke", spec, "--json", *options, env={"TMPDIR": str(self.folder), **(environ or {})})
        rows(done)
        return json.loads(done.stdout)


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    folder = tmp_path / "exp"
    folder.mkdir()
    return Experiment(folder)


def status(found: Rows, name: str) -> str:
    (row,) = found[name]
    return row["status"]


# --- the machine ----------------------------------------------------------------------------------------------------


def test_a_machine_without_a_job(tmp_path: Path) -> None:
    found = rows(run("audit", "--json", "--python", sys.executable, cwd=tmp_path))
    expected = "interpreter, gpus, torch, memory, cpus, /dev/shm, open files, proxies, disk TMPDIR, disk HF_HOME"
    assert list(found) == expected.split(", ")
    assert found["torch"][0]["seen"].startswith("torch 2.")  # the real one, asked in its own process


def test_a_bare_box_reads_a_job_as_json(experiment: Experiment, tmp_path: Path) -> None:
    """It has no jsonschema, numpy or torch: only what is in the one file, and its own Python."""
    bundle, spec = tmp_path / "box.pyz", experiment.spec()
    bundle.write_bytes(box.build()[1])

    def start(*words: object) -> Done:
        command = [sys.executable, "-I", "-S", bundle, "preflight", "audit", *words]
        return subprocess.run(list(map(str, command)), capture_output=True, text=True)

    assert rows(start(spec, "--json"))["program"][0]["status"] == "ok"
    as_yaml = spec.rename(spec.with_suffix(".yaml"))
    assert rows(start(as_yaml, "--json"))["program"][0]["status"] == "ok"


def test_few_descriptors_and_a_proxy_without_its_password() -> None:
    words = [sys.executable, str(SCRIPT), "audit", "--json", "--python", "none"]
    shell = ["bash", "-c", 'ulimit -n 256; exec "$@"', "bash", *words]
    environ = {**os.environ, "https_proxy": "http://me:secret@10.0.0.1:7890"}
    found = rows(subprocess.run(shell, capture_output=True, text=True, env=environ))
    (row,) = found["open files"]
    assert (row["status"], row["seen"]) == ("warn", "ulimit -n is 256; DataLoader workers need thousands")
    (row,) = found["proxies"]
    assert row["seen"] == "https_proxy=http://***@10.0.0.1:7890: the training process would inherit it"
    assert row["fix"].startswith("unset https_proxy before the launch")


def test_a_port_in_use_matters_to_several_nodes_only(experiment: Experiment) -> None:
    with socket.socket() as server:
        server.bind(("", 0))
        server.listen()
        number = server.getsockname()[1]
        (row,) = experiment.audit(nodes=2, port=number)["port"]
        assert (row["status"], row["seen"]) == ("fail", f"{number} cannot be taken: Address already in use")
        assert "port" not in experiment.audit(port=number)
    assert status(experiment.audit(nodes=2, port=number), "port") == "ok"


# --- cgroups: the tree of a container, laid out as the kernel does --------------------------------------------------

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"
V1 = "\n".join(
    f"3{number} 23 0:2{number} /docker/abc /sys/fs/cgroup/{name} ro - cgroup cgroup rw,{name}"
    for number, name in enumerate(("memory", "cpu,cpuacct"))
)
NESTED = {
    "user/job/memory.max": "max",
    "user/memory.max": "5000",
    "user/memory.current": "4000",
    "user/memory.stat": "anon 10\ninactive_file 1500",
    "user/job/cpu.max": "max 100000",
    "user/cpu.max": "250000 100000",
}
CONTAINER = {"memory.max": "8589934592", "cpu.max": "200000 100000", "memory.current": "7"}
OLD_CONTAINER = {
    "memory/memory.limit_in_bytes": "1073741824",
    "memory/memory.usage_in_bytes": "900",
    "memory/memory.stat": "cache 1\ntotal_inactive_file 100",
    "cpu,cpuacct/cpu.cfs_quota_us": "150000",
    "cpu,cpuacct/cpu.cfs_period_us": "100000",
}


CGROUPS = [
    # the tightest limit on the way up counts
    ("0::/user/job", V2, NESTED, memory.Limits(5000, 2500, 2.5)),
    ("0::/", V2, CONTAINER, memory.Limits(8 << 30, 7, 2.0)),
    # /proc/self/cgroup names the host's path; what is mounted starts at the container's own cgroup
    ("4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc", V1, OLD_CONTAINER, memory.Limits(1 << 30, 800, 1.5)),
    ("0::/", V2, {"memory.max": "", "cpu.max": "100"}, memory.Limits()),
]


@pytest.mark.parametrize(("cgroup", "mountinfo", "files", "expected"), CGROUPS)
def test_cgroup_limits(
    tmp_path: Path, cgroup: str, mountinfo: str, files: dict[str, str], expected: memory.Limits
) -> None:
    (tmp_path / "cgroup").write_text(cgroup + "\n")
    (tmp_path / "mountinfo").write_text(mountinfo + "\n")
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert memory.limits(tmp_path, tmp_path) == expected


def test_memory_and_cpus_speak_of_the_container(monkeypatch: pytest.MonkeyPatch) -> None:
    def row(check: Check, limits: memory.Limits, environ: Env = None) -> Row:
        monkeypatch.setattr(memory, "limits", lambda: limits)
        return next(check(PlannedJob(inherited=environ or {})))

    mib = 1 << 20
    seen = "512 MiB may be used (cgroup limit; free and top show"
    assert seen in row(box_checks.memory, memory.Limits(512 * mib)).seen
    assert row(box_checks.memory, memory.Limits(512 * mib, used=100 * mib)).status == "ok"
    assert row(box_checks.memory, memory.Limits(512 * mib, used=500 * mib)).status == "warn"
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    few = row(box_checks.cpus, memory.Limits(cpus=7.5))
    seen = "64 visible, 7.5 may be used (cgroup quota): every process would start 64 threads"
    assert (few.status, few.seen) == ("warn", seen)
    assert few.fix == "put OMP_NUM_THREADS: 7 into the job's env"
    assert row(box_checks.cpus, memory.Limits(cpus=7.5), {"OMP_NUM_THREADS": "7"}).status == "ok"
    assert row(box_checks.cpus, memory.Limits()).status == "ok"


# --- one row each --------------------------------------------------------------------------------------------------


def case(name: str, status: str, seen: str, *options: str, **job: Any) -> Any:
    """A job with these settings gives this row; `seen` and `fix` are parts of its text, `absent` rows are not there."""
    return pytest.param(name, status, seen, options, job, id=f"{name} {seen[:30]}")


IMAGE = {"image": "train:1", "shm_size": "16GiB"}
RESUME = ["--resume_from", "last.pt", "--out_dir", "{run}"]
LIAR = {"liar": "#!/bin/sh\necho hello\n"}
BROKEN = {"broken": "#!/bin/sh\necho libpython3.11.so: cannot open shared object file >&2; exit 127\n"}
CRLF = {"run.sh": "#!/bin/sh\r\necho hi\r\n", "train.py": "print('hi')\r\n"}  # Python itself does not mind
NO_TORCH = {"python": stub(torch={"problem": "ImportError: libcudnn.so.9: cannot open"})}
VENV, TORCHRUN = {".venv/pyvenv.cfg": ""}, {"torchrun": "#!/bin/sh"}
CONFIG = ["--config", "c.json"]
NO_DATA = {"c.json": '{"data_dir": "gone/x/y", "output_dir": "out"}'}
SIZES = "2 kept + 1 being written x 900 TiB (--checkpoint-size) = 2.64 PiB, twice that to be safe; "
NOT_THERE = "is neither a file in {folder} nor a program on PATH"


ROWS = [
    case("interpreter", "fail", "none: there is no such program on PATH", python="none", absent={"torch"}),
    case("interpreter", "fail", "~/bin/python: no shell expands the ~", python="~/bin/python"),
    case("interpreter", "fail", "./liar: it is not a Python (exit code 0)", python="./liar", files=LIAR),
    case("interpreter", "fail", "./broken: libpython3.11.so: cannot open", python="./broken", files=BROKEN),
    case("interpreter", "warn", "has .venv", files=VENV, fix="{folder}/.venv/bin/python in the job"),
    case("interpreter", "ok", "/envs/train/bin/python (3.11.7)", files=TORCHRUN, command=["./torchrun"]),
    case("interpreter", "ok", "that of the image train:1; run this audit in there, too", absent={"torch"}, **IMAGE),
    case("/dev/shm", "ok", "the container gets its own: 16GiB (shm_size of the job)", **IMAGE),
    case("torch", "fail", "does not import: ImportError: libcudnn.so.9: cannot open", files=NO_TORCH),
    case("disk write", "fail", "but a write fails: ", "--write", "/proc/preflight"),
    case("disk output", "fail", "{folder}/train.py is a file, not a directory", output="train.py/runs"),
    case("checkpoints", "fail", SIZES, "--checkpoint-size", "900TiB", "--keep", "2"),
    case("checkpoints", "ok", "size unknown"),
    case("workdir", "fail", "{folder}/gone is not a directory", workdir="gone", absent={"program", "disk workdir"}),
    case("command line", "fail", "resume_from: {folder}/last.pt: ", args=RESUME, files={"last.pt": "PK\3\4\0\0\0"}),
    case("command line", "fail", "resume_from: {folder}/last.pt does not exist", args=RESUME),
    case("config c.json", "fail", "data_dir: {folder}/gone/x/y does not", args=CONFIG, files=NO_DATA),
    case("config c.json", "warn", "c.json is not JSON", args=CONFIG, files={"c.json": "{"}),
    case("line ends", "fail", "run.sh has Windows", command=["./run.sh"], files=CRLF, fix="r$//' {folder}/run.sh"),
    case("program", "ok", "{folder}/train.py", files=CRLF, absent={"line ends"}),
    case("program", "fail", "{folder}/train.py cannot be executed", command=["./train.py"]),
    case("program", "fail", f"./gone.sh {NOT_THERE}", command=["./gone.sh"]),
]


@pytest.mark.parametrize(("name", "status", "seen", "options", "job"), ROWS)
def test_one_row(experiment: Experiment, name: str, status: str, seen: str, options: tuple[str], job: Any) -> None:
    files, fix, absent = job.pop("files", {}), job.pop("fix", ""), job.pop("absent", set())
    for path, text in files.items():
        experiment.file(path, text)
    found = experiment.audit(*options, **job)
    (row,) = found[name]
    assert row["status"] == status and not absent & set(found)
    assert seen.format(folder=experiment.folder) in row["seen"] and fix.format(folder=experiment.folder) in row["fix"]


# --- the triangle ---------------------------------------------------------------------------------------------------


BUILDS = [
    ("8.6", "sm_80 sm_90", True),  # an older minor of the same major
    ("8.0", "sm_86", False),
    ("9.0", "sm_80 compute_80", True),
    ("12.0", "sm_50 sm_80 sm_90", False),
    ("9.0", "sm_90a", True),
    ("10.3", "sm_100a", False),  # a means exactly that card
    ("10.3", "sm_100f", True),  # f means its family
    ("12.0", "sm_90 compute_90a", False),
]


@pytest.mark.parametrize(("card", "archs", "expected"), BUILDS)
def test_which_card_runs_which_build(card: str, archs: str, expected: bool) -> None:
    assert box_checks.has_kernels(card, archs.split()) == expected


def torch_facts(**changes: Any) -> dict[str, Any]:
    facts = {"version": "2.6.0", "cuda": "12.4", "hip": None, "arch": ["sm_80", "sm_90"], "available": True, "count": 1}
    return {**facts, "error": "", **changes}


A100 = gpus.Gpu(0, name="A100", compute_cap="8.0")
V100 = gpus.Gpu(0, name="V100", compute_cap="7.0")


VERDICTS = [
    ({}, A100, (12, 4), "ok", "torch 2.6.0, built for CUDA 12.4, driver for CUDA 12.4, cards sm_80: they fit"),
    ({"cuda": "12.8"}, A100, (12, 4), "ok", "built for CUDA 12.8, driver for CUDA 12.4"),  # same major: runs
    ({"cuda": "13.0", "available": False}, A100, (12, 4), "fail", "the driver ends at CUDA 12.4"),
    ({"cuda": "13.0"}, A100, (12, 4), "ok", "they fit"),  # the compatibility package: torch itself says it works
    ({}, V100, (12, 4), "fail", "no kernel image for V100 (sm_70): torch 2.6.0 has sm_80 sm_90"),
    ({"cuda": None}, A100, (12, 4), "fail", "is a CPU-only build: it will never see a GPU"),
    ({"available": False, "error": "CUDA unknown"}, A100, (12, 4), "fail", "sees no card: CUDA unknown"),
    ({"cuda": None, "hip": "6.2"}, None, None, "ok", "for ROCm 6.2"),
    ({"available": False}, None, None, "ok", "no card here to try it on"),
]


@pytest.mark.parametrize(("facts", "card", "cuda", "expected", "seen"), VERDICTS)
def test_one_verdict(
    facts: dict[str, Any], card: gpus.Gpu | None, cuda: tuple[int, int] | None, expected: str, seen: str
) -> None:
    row = box_checks.verdict(torch_facts(**facts), [card] if card else [], cuda)
    assert (row.status, seen in row.seen) == (expected, True), row


# --- disks ----------------------------------------------------------------------------------------------------------


def test_every_place_the_job_writes_to_is_tried(experiment: Experiment, tmp_path: Path) -> None:
    env = {"TMPDIR": str(tmp_path), "HF_HOME": str(tmp_path / "hf")}
    found = experiment.audit("--write", tmp_path / "logs", environ=env, output="out")
    places = {name: row[0]["seen"].partition(":")[0] for name, row in found.items() if name.startswith("disk ")}
    folder = experiment.folder
    expected = {"output": f"{folder}/out", "write": f"{tmp_path}/logs", "TMPDIR": tmp_path, "HF_HOME": f"{tmp_path}/hf"}
    assert places == {f"disk {name}": str(path) for name, path in {**expected, "workdir": folder}.items()}
    assert sorted(path.name for path in experiment.folder.iterdir()) == ["job.json", "python", "train.py"]


def test_checkpoint_size_of_an_earlier_run_and_data_that_is_not_there(experiment: Experiment) -> None:
    folder = experiment.folder / "runs" / "a" / "checkpoints"
    folder.mkdir(parents=True)
    (folder / "step_100.pt").write_bytes(b"\0" * (3 << 20))
    (experiment.folder / "mount").mkdir()
    found = experiment.audit("--keep", "1", data=["gone", "mount", "train.py"])
    (row,) = found["checkpoints"]
    assert row["seen"].startswith(f"1 kept + 1 being written x 3 MiB (as {folder}/step_100.pt) = 6 MiB")
    assert [(row["status"], row["seen"]) for row in found["data"]] == [
        ("fail", f"{experiment.folder}/gone does not exist"),
        ("fail", f"{experiment.folder}/mount is empty"),
        ("ok", f"{experiment.folder}/train.py"),
    ]


def test_a_relative_path_that_is_right_only_from_here(experiment: Experiment, tmp_path: Path) -> None:
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "a.bin").write_text("x")
    args = ["--train_file", "sets/a.bin", "--cache", "~/cache", "--out=$HOME/x", "--lr", "1e-3", "--name", "a/b"]
    first, second, third = experiment.audit(args=args)["command line"]
    assert (first["status"], first["seen"], second["seen"]) == ("warn", "--cache ~/cache", "--out $HOME/x")
    where = f"does not exist from {experiment.folder}, where the job runs, but it does from {tmp_path}"
    assert (third["status"], third["seen"]) == ("fail", f"train_file: sets/a.bin {where}")
    assert third["fix"] == f"write {tmp_path}/sets/a.bin"


# --- rows -----------------------------------------------------------------------------------------------------------


def test_a_check_that_breaks_or_hangs_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = threading.Event()

    def fine(planned: PlannedJob) -> Iterator[Row]:
        yield ok("fine", "all well")

    def broken_half_way(planned: PlannedJob) -> Iterator[Row]:
        yield ok("half", "first")
        raise OSError("the disk is gone")

    def hanging(planned: PlannedJob) -> Iterator[Row]:
        stuck.wait()
        yield ok("never", "")

    monkeypatch.setattr(audit, "CHECK_SECONDS", 0.05)
    found = audit.audit([broken_half_way, hanging, fine], PlannedJob())
    stuck.set()
    assert [(row.name, row.status, row.seen) for row in found] == [
        ("half", "ok", "first"),
        ("broken half way", "warn", "not checked: OSError: the disk is gone"),
        ("hanging", "warn", "not checked: no answer within 0.05 s"),
        ("fine", "ok", "all well"),
    ]


# --- the smoke ------------------------------------------------------------------------------------------------------

GOOD = """
import os
print("step 1 loss 2.5")
open(os.path.join(os.environ["RGT_RUN_DIR"], "step_1.pt"), "w").close()
"""


def smoke_rows(report: Any) -> list[tuple[str, str, str]]:
    return [(row["name"], row["status"], row["seen"]) for row in report["checks"] if row["name"] != "cost"]


def test_smoke_as_text(experiment: Experiment) -> None:
    (experiment.folder / "smoke.py").write_text("raise ValueError('bad shape')\n")
    spec = experiment.spec(smoke=[sys.executable, "smoke.py", "{run}"])
    done = run("smoke", spec, env={"TMPDIR": str(experiment.folder)})
    (log,) = experiment.folder.glob("preflight-smoke-*/smoke.log")
    text = re.sub(r"[\d.]+s of wall time, [\d.]+ MiB", "1.0s of wall time, 10 MiB", done.stdout)
    assert (done.returncode, done.stderr) == (1, "")
    expected = f"""\
fail  smoke  exit code 1: ValueError: bad shape
             fix: mend it here, where it costs nothing; it must run without a GPU (device, map_location, gloo)
ok    cost   1.0s of wall time, 10 MiB of memory in the largest process
    Traceback (most recent call last):
      File "{experiment.folder}/smoke.py", line 1, in <module>
        raise ValueError('bad shape')
    ValueError: bad shape
all of it: {log}
1 ok, 0 warn, 1 fail
"""
    assert text == expected


def test_smoke_sees_no_gpu_no_logger_and_a_scratch_directory(experiment: Experiment) -> None:
    text = """
import json, os, sys
names = ("CUDA_VISIBLE_DEVICES", "WANDB_MODE", "SWANLAB_MODE", "NEPTUNE_MODE", "MINE")
print("SEEN", json.dumps([[os.environ[name] for name in names], os.getcwd(), sys.stdin.read(), sys.argv]))
print("RUN", os.environ["RGT_RUN_DIR"])
"""
    environ = {"CUDA_VISIBLE_DEVICES": "0,1", "WANDB_MODE": "online"}
    report = experiment.smoke(text, environ=environ, env={"MINE": "kept", "CUDA_VISIBLE_DEVICES": "0"})
    seen, folder = report["smoke"]["last_lines"]
    expected = [["", "disabled", "disabled", "debug", "kept"], str(experiment.folder), "", ["smoke.py"]]
    assert json.loads(seen.removeprefix("SEEN ")) == expected
    assert folder == f"RUN {report['smoke']['scratch']}/run"
    assert smoke_rows(report)[1][:2] == ("written", "warn")  # it saved nothing


SMOKES = [
    (0, "step 2 loss nan\nstep 3 loss 2.0", "numbers", "nan", "loss is nan: step 2 loss nan"),
    (0, "iter 1: loss inf, time 2ms", "numbers", "nan", "loss is inf: iter 1: loss inf, time 2ms"),
    (1, "KeyError: 'label'", "smoke", "crash", "exit code 1: KeyError: 'label'"),
    (-9, "step 1", "smoke", "killed", "ended by SIGKILL: step 1"),
]


@pytest.mark.parametrize(("exit_code", "log", "name", "code", "seen"), SMOKES)
def test_what_a_smoke_means(exit_code: int, log: str, name: str, code: str, seen: str) -> None:
    rows = list(smoke.verdict(smoke.Smoke(exit_code, log=log, written=["step_1.pt"]), 60))
    assert [(row.name, row.code, row.seen) for row in rows if row.status == "fail"] == [(name, code, seen)]


# a child with a session of its own, and a grandchild whose parent is gone: neither is found by process group or parent
HANG = """
import subprocess, sys, threading
def wait_for_data(): threading.Event().wait()
subprocess.Popen(["sleep", "1000"], start_new_session=True)
subprocess.run(["sh", "-c", "setsid sleep 1000 & true"])
print("started", flush=True)
"""


def living(mark: str) -> list[int]:
    return list(processes.carrying(LIVING, mark))


def test_smoke_that_hangs_is_ended_with_all_its_processes(experiment: Experiment, tmp_path: Path) -> None:
    mark = {LIVING: str(tmp_path)}
    report = experiment.smoke(HANG + "wait_for_data()\n", "--timeout", "3s", environ=mark)
    ((name, status, seen),) = smoke_rows(report)
    assert (name, status, report["smoke"]["exit_code"]) == ("smoke", "fail", None)
    assert seen.startswith("still running after 3.0s; ")
    assert any("wait_for_data" in line for line in report["smoke"]["last_lines"])
    assert living(str(tmp_path)) == []


def test_a_smoke_passes_and_what_it_leaves_behind_is_ended(experiment: Experiment, tmp_path: Path) -> None:
    report = experiment.smoke(GOOD + HANG, environ={LIVING: str(tmp_path)})
    seen = [("smoke", "ok", "exit code 0"), ("numbers", "ok", "loss 2.5"), ("written", "ok", "step_1.pt")]
    assert smoke_rows(report) == seen and report["smoke"]["peak_memory"] > 1 << 20
    assert not list(experiment.folder.glob("preflight-smoke-*")) and not living(str(tmp_path))


def test_terminating_us_ends_the_smoke_too(experiment: Experiment, tmp_path: Path) -> None:
    (experiment.folder / "smoke.py").write_text(HANG + "wait_for_data()\n")
    spec = experiment.spec(smoke=[sys.executable, "smoke.py"])
    environ = {**os.environ, LIVING: str(tmp_path), "TMPDIR": str(experiment.folder)}
    us = subprocess.Popen([sys.executable, SCRIPT, "smoke", spec], env=environ, stdout=subprocess.DEVNULL)
    logs = experiment.folder
    until(lambda: any("started" in log.read_text() for log in logs.glob("preflight-smoke-*/smoke.log")))
    us.send_signal(signal.SIGTERM)
    assert us.wait(60) == 128 + signal.SIGTERM
    assert living(str(tmp_path)) == []


def test_ctrl_c_ends_an_interpreter_that_hangs(experiment: Experiment, tmp_path: Path) -> None:
    program = experiment.file("hangs", "#!/bin/sh\ntouch asked\nexec sleep 1000\n")
    environ = {**os.environ, LIVING: str(tmp_path)}
    us = subprocess.Popen([sys.executable, SCRIPT, "audit", experiment.spec(python=str(program))], env=environ)
    until((experiment.folder / "asked").exists)
    us.send_signal(signal.SIGINT)
    assert us.wait(60) == 128 + signal.SIGINT
    until(lambda: living(str(tmp_path)) == [])


# Ctrl-C at the worst moments: the child is there, and its parent has not noted it yet; the parent waits for its answer
INTERRUPTED = """
import os, signal, subprocess, sys, time
from rgt.machine import outside

class Popen(subprocess.Popen):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        if "early" in sys.argv:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.5)

subprocess.Popen = Popen
script = "exec sleep 1000" if "early" in sys.argv else "kill -INT $PPID; exec sleep 1000"
ask = lambda: outside.tool("sh", "-c", script, seconds=60)
try:
    outside.together({"x": ask}, 60) if "thread" in sys.argv else ask()
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.mark.parametrize("when", ["early thread", "late"])
def test_ctrl_c_ends_a_program_that_was_asked(tmp_path: Path, when: str) -> None:
    environ = {**os.environ, LIVING: str(tmp_path), "PYTHONPATH": str(SCRIPT.parent)}
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, *when.split()], env=environ, timeout=60)
    left = living(str(tmp_path))
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert (done.returncode, left) == (130, [])


# --- bad input ------------------------------------------------------------------------------------------------------


BAD_INPUT = [
    (None, "audit", "{spec} is not a file; expected a job description (job.yaml)"),
    ("name: x\nscript: a.py\nsmokes: [a]\n", "audit", "{spec} does not fit the job schema: "),
    ("name: x\nscript: a.py\n", "smoke", "{spec} has no `smoke`; add a command of a minute on the CPU, such as "),
    ("name: x\nscript: a.py\nworkdir: gone\nsmoke: [a]\n", "smoke", "the workdir of {spec} is not a directory: "),
]


@pytest.mark.parametrize(("text", "command", "message"), BAD_INPUT)
def test_bad_input(tmp_path: Path, text: str | None, command: str, message: str) -> None:
    spec = tmp_path / "job.yaml"
    if text is not None:
        spec.write_text(text)
    done = run(command, spec)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {message.format(spec=spec)}") and done.stderr.count("\n") == 1


def test_a_smoke_that_is_no_program(experiment: Experiment) -> None:
    done = run("smoke", experiment.spec(smoke=["./gone"]), env={"TMPDIR": str(experiment.folder)})
    assert (done.returncode, done.stdout) == (3, "")
    where = f"./gone, from {experiment.folder}"
    assert done.stderr == f"error: the smoke does not start: {where}: No such file or directory\n"
    assert list(experiment.folder.glob("preflight-smoke-*")) == []


# -- before renting


OFFERS = [
    ("pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime", "H100", "550.54", ""),
    ("pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime", "B200", "570.86", "does not run on B200 (10.0)"),
    ("pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime", "A100", "515.65", "wants driver 525.60 or newer"),
    ("pytorch/pytorch:2.7.0-cuda12.8-cudnn9-runtime", "V100", "570.86", "does not run on V100 (7.0)"),
    ("pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime", "V100", "570.86", ""),
    ("pytorch/pytorch:2.11.0-cuda12.8-cudnn9-runtime", "V100", "570.86", "does not run on V100 (7.0)"),
    ("pytorch/pytorch:2.11.0-cuda12.6-cudnn9-runtime", "P100", "525.60", ""),
    ("pytorch/pytorch:2.11.0-cuda13.0-cudnn9-runtime", "T4", "575.57", "wants driver 580.65 or newer"),
    ("nvcr.io/nvidia/pytorch:24.05-py3", "RTX 5090", "570", "does not run on 5090 (12.0)"),
    ("me/mine@sha256:1", "A100", "570", "nothing was judged"),
]


@pytest.mark.parametrize(("image", "card", "driver", "said"), OFFERS)
def test_an_image_against_an_offer(image: str, card: str, driver: str, said: str) -> None:
    done = front_door.call("preflight.py", "fits", image, "--gpu", card, "--driver", driver)
    assert (done.returncode, said in done.stdout) == (1 if said else 0, True)
