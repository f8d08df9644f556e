"""The user's project in one folder, the skill in another: every tool works there and prints commands that run there."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from doccheck import commands

import pytest

from .front_door import git
from .real.support import wait_for

ROOT = Path(__file__).resolve().parent.parent
one_worker = pytest.mark.xdist_group("from-anywhere")  # the runs are launched once
RGT = ROOT / "bin" / "rgt"
# a loop that logs as people do, saves one checkpoint, and finds its run directory in the environment
TRAIN = """
import json, os, random, pathlib, torch
run = pathlib.Path(os.environ["RGT_RUN_DIR"])
random.seed(int(os.environ.get("SEED", "0")))
for step in range(1, 41):
    loss = 2.0 / step + random.random() / 100
    print(f"step {step} loss {loss:.4f}", flush=True)
    with (run / "metrics.jsonl").open("a") as file:
        print(json.dumps({"step": step, "time": step, "split": "val", "loss": loss}), file=file)
torch.save({"model": {"w": torch.randn(64, 64)}}, run / "checkpoints" / "step_40.pt")
"""
FACTORY = """
import torch
from rgt.probes.factory import Training

def factory():
    model = torch.nn.Linear(4, 2)
    data = [(torch.randn(8, 4), torch.randint(0, 2, (8,))) for _ in range(4)]
    return Training(model, data, torch.nn.functional.cross_entropy, torch.optim.SGD(model.parameters(), 0.1))
"""


class Project:
    """The user's folder, and what rgt said there."""

    def __init__(self, folder: Path, elsewhere: Path) -> None:
        self.folder, self.said = folder, ""
        self.env = {**os.environ, "RGT_QUEUE": str(elsewhere / "queue"), "XDG_CACHE_HOME": str(elsewhere / "cache")}

    def __call__(self, *words: object, code: int | tuple[int, ...] = 0) -> str:
        line = [str(RGT), *map(str, words)]
        done = subprocess.run(line, cwd=self.folder, env=self.env, capture_output=True, text=True)
        wanted = code if isinstance(code, tuple) else (code,)
        assert done.returncode in wanted, f"{shlex.join(line)}: {done.returncode}\n{done.stdout}{done.stderr}"
        self.said += done.stdout + done.stderr
        return done.stdout.strip()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    home = Project(tmp_path_factory.mktemp("a project"), tmp_path_factory.mktemp("away"))  # names of people have spaces
    git(home.folder, "init", "-q")
    home.write("train.py", TRAIN)
    home.write("work.py", FACTORY)
    for name, seed in (("base", 0), ("new", 1)):
        job = {"name": name, "script": "train.py", "python": sys.executable, "env": {"SEED": seed}, "grace": 1}
        home.write(f"{name}.yaml", json.dumps(job))
    git(home.folder, "add", "-A")
    git(home.folder, "commit", "-qm", "start")
    before = skill_status()
    yield home
    assert skill_status() == before, "a tool wrote into the skill's folder"


def skill_status() -> str:
    return subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def runs(project: Project) -> list[str]:
    found = [project("launch", "submit", f"{name}.yaml", "--on", "local") for name in ("base", "new")]

    for run in found:
        wait_for("its last save", (project.folder / run / "checkpoints" / "step_40.pt").exists)  # launch costs more
    wait_for("the end", lambda: all("finished" in project("launch", "status", run, code=(0, 1)) for run in found))
    return found


@one_worker
def test_a_run_is_the_projects(project: Project, runs: list[str]) -> None:
    for run in runs:
        record = json.loads((project.folder / run / "run.json").read_text())
        assert (project.folder / run).parent == project.folder / "runs"
        assert record["git"]["commit"] == git(project.folder, "rev-parse", "HEAD")


@one_worker
def test_every_tool_works_there_and_what_it_prints_can_be_pasted(project: Project, runs: list[str]) -> None:
    base, new = runs
    project("takeover", "snapshot", code=(0, 1))
    words = ["--event", "launch", "--decision", "continue", "--hypothesis", "it learns", "--next", "rgt watch runs"]
    project("takeover", "log", *words, "--no-state")
    assert (project.folder / "HANDOFF.md").exists()
    project("preflight", "audit", "base.yaml", code=(0, 1))
    project("gpu_gate", "--slots", "1", "-n", "quick", "--", "true")
    project("watch", base, code=(0, 1))
    project("triage", base, code=(0, 1))
    project("checkpoints", "latest", base)
    project("verify_local", base, code=(0, 1))
    for run in runs:
        project("results", run, "--metric", "loss")
    project("compare_runs", new, "--vs", base, "--metric", "loss", code=(0, 1))
    project.write("train.csv", "id,text\n1,a b c d\n2,e f g h\n")
    project.write("test.csv", "id,text\n3,i j k l\n")
    project("leak_probe", "overlap", "--train", "train.csv", "--test", "test.csv", code=(0, 1))
    project("manifest_scaffold", "init")
    project("render", "tables", code=2)  # says how a claim is added
    project("manifest_scaffold", "seal", base)
    project("manifest_scaffold", "claim", "add", "C1", "--metric", "loss", "--run", base)
    project("render", "tables")
    project("reconcile", code=(0, 1))
    project.write("sweep.yaml", "job: {name: s, script: train.py, env: {SEED: '{seed}'}}\nseeds: [3]\n")
    project("sweep", "run", "sweep.yaml", "--dry-run")
    project("scaffold_training", "new", "pipe", "--framework", "hf-trainer", "--params", "1M", "--gpu", "A100")
    project("transfer", "pull", base, "pulled", code=(0, 1))
    project("transfer", "down", "pulled", "--profile", "local", code=4)
    project("wandb_forensics", "list", ".", code=2)  # there is no wandb folder
    project("adopt", f"{base}/train.log", "--dry-run")
    project("check_staleness", "profiles/runpod.md", code=(0, 1))
    project("probes", "loss", "--factory", "work:factory", "--python", sys.executable, code=(0, 1))
    project.write("prod.yaml", "script: train.py\nepochs: 2\noutput_dir: out\nsave_every: 1\n")
    project("remote_train", "--cluster", "local", "--config", "prod.yaml", "--gpus", "0", "--name", "p", code=(0, 1))
    project("guard", "check", "--", "rm", "-rf", "runs", code=4)
    project("lease", "status", code=(0, 1))
    project("notify", "test", code=(1, 2, 3))  # nobody is to be told yet
    tools = {path.stem for path in (ROOT / "scripts").glob("*.py")}
    assert set(re.findall(r'project\("(\w+)"', Path(__file__).read_text())) >= tools, "a tool is not tried here"

    project.write("died.log", "step 1 loss 2.0\nRuntimeError: CUDA error: out of memory\n")
    project("watch", "died.log", code=1)
    project("gpu_gate", "status", "nobody", code=2)
    # `rgt` is not on PATH here, so the commands name it by its path
    printed = {line.strip(" `;,.") for line in re.findall(rf"{re.escape(str(RGT))} [^\n#`;]*", project.said)}
    assert len(printed) >= 6, printed
    for line in sorted(line for line in printed if "<" not in line):  # <...> is for the reader to fill in
        done = subprocess.run(["sh", "-c", line], cwd=project.folder, env=project.env, capture_output=True, text=True)
        assert done.returncode in (0, 1, 4), f"{line}: {done.returncode}\n{done.stdout}{done.stderr}"


def call_sites() -> Iterator[tuple[str, str]]:
    """Every bundle.command(...) of the code, as the line it prints; what is computed there stands as <x>."""
    for path in sorted((ROOT / "scripts").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "bundle.command":
                words = [str(word.value) if isinstance(word, ast.Constant) else "<x>" for word in node.args]
                if words[0] != "<x>":
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", " ".join(["rgt", *words])


def test_every_printed_command_parses() -> None:
    printed = list(call_sites())
    assert len(printed) > 40
    assert {place: problems for place, line in printed if (problems := commands.problems(ROOT, line))} == {}
