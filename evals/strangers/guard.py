"""How many command lines of strangers the guard misses or falsely refuses.

    python evals/strangers/guard.py [evals/strangers/guard/*.jsonl]        --show lists the lines that it got wrong

Each line is judged in a fresh world: a project with runs, checkpoints and results of which nothing was pulled, nothing
approved, and no process but the guard's own and the first one. Label `refuse` that passed is missed; `pass` that was
refused is falsely refused.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from rgt.guard import destroyers, hook  # noqa: E402

RUN = ["run.json", "train.log", "metrics.jsonl", "events.jsonl", "results.json", "checkpoints_index.json"]
RUN += ["checkpoints/step_100.pt", "checkpoints/step_200.pt"]
FILES = [f"runs/{run}/{name}" for run in ("20261101-101010-tiny-abc123", "20261102-111111-base-0f00aa") for name in RUN]
FILES += [f"outputs/exp1/checkpoint-500/{name}" for name in ("model.safetensors", "optimizer.pt", "trainer_state.json")]
FILES += ["outputs/exp1/train.log", "lightning_logs/version_0/metrics.csv"]
FILES += ["lightning_logs/version_0/checkpoints/epoch=3-step=400.ckpt"]
FILES += ["wandb/offline-run-20261101_101010-ab12cd34/run-ab12cd34.wandb", "ckpts/best.pt", "weights/final.safetensors"]
FILES += ["results.json", "src/model.py", "tests/test_model.py", "scripts/train.sh", "train.py", "config.yaml"]
FILES += ["README.md", "notes.txt", "requirements.txt", "data/train.bin", "build/lib.o", "dist/proj-0.1.tar.gz"]
FILES += ["node_modules/x/index.js", "__pycache__/train.cpython-311.pyc", ".pytest_cache/v", ".venv/bin/activate"]
FILES += ["tmp/scratch.txt", "downloads/page.html", "figures/loss.png"]
CONTENT = {"scripts/train.sh": "#!/bin/sh\npython train.py\n", "train.py": "print('step 1 loss 2.0')\n"}


def make_world(home: Path) -> Path:
    project = home / "proj"
    for name in FILES:
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CONTENT.get(name, "x\n"))
    for name in ("objects", "refs"):  # a repository to whoever looks, also where git is not installed
        (project / ".git" / name).mkdir(parents=True)
    (project / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return project


def no_other_process(pid: int, name: str) -> str:
    """/proc/PID/NAME of that world: a pid in a line is not one of the machine that judges it."""
    return f"{pid} (sh) S {pid != 1:d} " if name == "stat" and pid in (os.getpid(), 1) else ""


def refused(case: dict[str, object], project: Path, home: Path, proc: Callable[[int, str], str] | None = None) -> bool:
    """`proc`: how a file of /proc is read."""
    extra = case.get("files") or {}
    assert isinstance(extra, dict)
    written = []
    for name, text in extra.items():
        path = project / str(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(text))
        path.chmod(0o755)
        written.append(path)
    environ = {"HOME": str(home), "USER": "me", "PATH": "/usr/bin:/bin", "PWD": str(project)}
    event = json.dumps({"tool_name": "Bash", "tool_input": {"command": case["cmd"]}}).encode()
    table = hook.read_table()
    with mock.patch.object(destroyers, "read_proc", proc or no_other_process):
        acts = [] if hook.is_harmless(event, table) else hook.find_acts(str(case["cmd"]), str(project), environ, table)
    for path in written:
        path.unlink()
    return bool(acts)


def main(words: list[str]) -> int:
    show = "--show" in words
    named = [Path(word) for word in words if word != "--show"]
    paths = named or sorted(Path(__file__).with_suffix("").glob("*.jsonl"))
    cases = [json.loads(line) for path in paths for line in path.read_text().splitlines() if line.strip()]
    home = Path(tempfile.mkdtemp())
    totals, wrong = Counter[str](), Counter[str]()
    try:
        project = make_world(home)
        for case in cases:
            label, kind = case["label"], case["kind"]
            totals.update([label, f"{label} {kind}"])
            if refused(case, project, home) != (label == "refuse"):
                wrong.update([label, f"{label} {kind}"])
                if show:
                    print(json.dumps({key: case.get(key) for key in ("id", "label", "kind", "cmd", "why")}))
    finally:
        shutil.rmtree(home)
    for label, word in (("refuse", "missed"), ("pass", "falsely refused")):
        share = wrong[label] / totals[label] if totals[label] else 0.0
        print(f"{word}: {wrong[label]} of {totals[label]} ({share:.1%})")
        for name, count in sorted(totals.items()):
            if name.startswith(f"{label} ") and wrong[name]:
                print(f"    {name.removeprefix(label).strip()}: {wrong[name]} of {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
