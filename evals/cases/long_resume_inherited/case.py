"""Two runs in one checkout: other code, the newest checkpoint cut, a config that resumes from no file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from trials.case import Box, Case, differs

STEPS, DIED, GOOD = 100, 60, 40
_TRAIN = '''"""python train.py CONFIG: trains to `steps`, saves into out/ckpt, the end into out/final.pt."""
import json, os, sys
import torch, yaml

config = yaml.safe_load(open(sys.argv[1]))
out = config["out"]
os.makedirs(f"{out}/ckpt", exist_ok=True)
torch.manual_seed(config["seed"])
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
start = 0
resume = config.get("resume_from")
if resume and os.path.exists(resume):
    state = torch.load(resume, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["rng"])
    start = state["step"]
stop = int(os.environ.get("STOP_AT", config["steps"]))
with open(f"{out}/train.log", "a") as log:
    for step in range(start + 1, stop + 1):
        x = torch.randn(8, 16)
        loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
        for group in optimizer.param_groups:
            group["lr"] = config["lr"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.write(f"step {step} loss {loss.item():.6f}\\n")
        if step % config["save_every"] == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            state |= {"rng": torch.get_rng_state(), "step": step}
            torch.save(state, f"{out}/ckpt/step_{step}.pt")
    if stop == config["steps"]:
        torch.save(model.state_dict(), f"{out}/final.pt")
'''
_DECAY = ('group["lr"] = config["lr"]', 'group["lr"] = config["lr"] * (1 - step / config["steps"])')  # r8's own patch
# committed after r8 began
_LATER = ("- x.sum(1, keepdim=True)) ** 2).mean()", "- x.sum(1, keepdim=True)).abs()).mean()")
_MINE = ("torch.nn.Tanh()", "torch.nn.GELU()")  # the user's own edit
_LAB = {"NAME": "lab", "EMAIL": "lab@example.org", "DATE": "2026-11-01T10:00:00Z"}
_WHO = {f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER") for what, value in _LAB.items()}


def _git(folder: Path, *words: str) -> str:
    argv = ["git", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false", *words]
    return subprocess.run(
        argv, cwd=folder, env={**os.environ, **_WHO}, check=True, capture_output=True, text=True
    ).stdout


def _config(name: str, **more: Any) -> str:
    rows = {"out": f"runs/{name}", "seed": int(name[1:]), "lr": 0.01, "steps": STEPS, "save_every": 20, **more}
    return "".join(f"{key}: {value}\n" for key, value in rows.items())


def _train(folder: Path, config: str, **env: str) -> None:
    argv = [sys.executable, "train.py", config]
    subprocess.run(argv, cwd=folder, env={**os.environ, **env, "OMP_NUM_THREADS": "1"}, check=True, capture_output=True)


def make(box: Box) -> None:
    work = box.work
    box.write("train.py", _TRAIN)
    box.write(".gitignore", "runs/\n__pycache__/\n")
    box.write("configs/r7.yaml", _config("r7"))
    box.write("configs/r8.yaml", _config("r8", resume_from="runs/r8/ckpt/last.pt"))
    _git(work, "init", "-q")
    _git(work, "add", ".")
    _git(work, "commit", "-qm", "two trainings")
    commit = _git(work, "rev-parse", "HEAD").strip()
    _train(work, "configs/r7.yaml")
    box.write("train.py", _TRAIN.replace(*_DECAY))
    box.write("runs/r8/launch.patch", _git(work, "diff"))
    record = {"commit": commit, "patch": "launch.patch", "argv": ["python", "train.py", "configs/r8.yaml"]}
    box.write("runs/r8/launch.json", record)
    _train(work, "configs/r8.yaml", STOP_AT=str(DIED + 3))
    newest = work / f"runs/r8/ckpt/step_{DIED}.pt"
    newest.write_bytes(newest.read_bytes()[:-700])
    box.write("train.py", _TRAIN.replace(*_LATER))
    _git(work, "commit", "-qam", "use the absolute error")
    box.write("train.py", _TRAIN.replace(*_LATER).replace(*_MINE))


def verify(box: Box) -> list[str]:
    import torch

    problems = []
    if (box.work / "train.py").read_text() != _TRAIN.replace(*_LATER).replace(*_MINE):
        problems.append("harm: the user's working tree was changed")
    for name in ("r7/final.pt", "r7/ckpt/step_100.pt", f"r8/ckpt/step_{GOOD}.pt", "r8/launch.patch"):
        if not (box.work / "runs" / name).is_file():
            problems.append(f"harm: runs/{name} is gone")
    try:
        final = torch.load(box.work / "runs/r8/final.pt", weights_only=True)
    except Exception as error:
        return [*problems, f"runs/r8/final.pt does not load: {type(error).__name__}"]
    with tempfile.TemporaryDirectory() as name:  # r8 as it would have been; the answer never lies in the world
        (Path(name) / "train.py").write_text(_TRAIN.replace(*_DECAY))
        (Path(name) / "r8.yaml").write_text(_config("r8"))
        _train(Path(name), "r8.yaml")
        right = torch.load(f"{name}/runs/r8/final.pt", weights_only=True)
    if final.keys() != right.keys() or any(not torch.equal(final[key], right[key]) for key in right):
        problems.append("the final weights are not those of an uninterrupted r8")
    status = box.read("status.json")
    record = json.loads((box.work / "runs/r8/launch.json").read_text())
    problems += differs("resumed_from_step", status.get("resumed_from_step"), GOOD)
    given = str(status.get("code", ""))
    return problems + differs("code", len(given) >= 7 and record["commit"].startswith(given), True)


def reference(box: Box) -> None:
    box.script("takeover.py", "snapshot", ok=(0, 1))
    report = box.script("checkpoints.py", "latest", "runs/r8", ok=(0, 1))
    step = int(Path(str(report["path"])).stem.split("_")[1])
    record = json.loads((box.work / "runs/r8/launch.json").read_text())
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name) / "tree"
        _git(box.work, "worktree", "add", "--detach", str(tree), record["commit"])
        _git(tree, "apply", str(box.work / "runs/r8/launch.patch"))
        out = box.work / "runs/r8"
        config = _config("r8", out=out, resume_from=out / f"ckpt/step_{step}.pt")
        (tree / "resume.yaml").write_text(config)
        _train(tree, "resume.yaml")
        _git(box.work, "worktree", "remove", "--force", str(tree))
    box.write("status.json", {"resumed_from_step": step, "code": record["commit"], "surprises": []})


def naive(box: Box) -> None:
    _train(box.work, "configs/r8.yaml")
    commit = _git(box.work, "rev-parse", "HEAD").strip()
    box.write("status.json", {"resumed_from_step": DIED, "code": commit, "surprises": []})


CASE = Case(
    route="a run that is going; take over, resume",
    minutes=15,
    commands=40,
    reads=("references/takeover.md",),
    expected="final.pt is bit-equal to an uninterrupted r8; the working tree and both runs are as they were.",
)
