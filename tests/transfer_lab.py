"""A run to be moved, a provider whose command line writes down how it was called, and transfer's own command line."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt.machine import processes
from rgt.run import record as rundir

import numpy as np
import yaml

from . import front_door

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "scripts" / "transfer.py"
RUN_ID = "20261116-083000-tiny-1f00ab"
OTHER_ID = "20261116-090000-tiny-2e11cd"
DONE = {"time": 2.0, "event": "finished"}


def start(*words: object, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """The command line as a process of its own, to be killed."""
    command, pipe = [sys.executable, str(SCRIPT), *map(str, words)], subprocess.PIPE
    return subprocess.Popen(command, env={**os.environ, **(env or {})}, stdout=pipe, stderr=pipe, text=True)


Result = subprocess.CompletedProcess[str]
transfer = functools.partial(front_door.call, "transfer.py")


def make_run(folder: Path, run_id: str = RUN_ID, mib: float = 0.1, small: int = 3) -> Path:
    """A run that is over: a checkpoint of `mib`, results, `small` little files, an end in its events."""
    run = folder / run_id
    (run / "checkpoints").mkdir(parents=True)
    (run / "logs").mkdir()
    values = np.random.default_rng(0).standard_normal(max(1, int(mib * (1 << 18)))).astype(np.float32)
    np.save(run / "checkpoints" / "step_1.npy", values)
    for number in range(small):
        (run / "logs" / f"{number}.txt").write_text(f"line {number}\n" * 20)
    (run / "logs" / "empty").touch()
    (run / "train.log").write_text("step 1 loss 2.0\n")
    (run / "events.jsonl").write_text(json.dumps({"time": 1.0, "event": "launched"}) + "\n" + json.dumps(DONE) + "\n")
    config = {"lr": 0.1}
    record: dict[str, Any] = {"run_id": run_id, "created": "2026-11-16T08:30:00+00:00", "job": {}}
    record |= {"command": ["train"], "cwd": "/exp"}
    record |= {"config": config, "config_sha256": rundir.config_hash(config), "seeds": {}, "backend": "none"}
    record |= {"git": None, "env": {"python": "3.12", "executable": "python3", "packages": {}}, "devices": []}
    record |= {"host": {"name": "box", "platform": "linux", "cpus": 2}}
    (run / "run.json").write_text(json.dumps(record))
    return run


def same_tree(there: Path, here: Path, cut: bool = False) -> None:
    """Every file of the box is here, byte for byte. `cut`: one that was killed may not have tidied up yet."""
    for path in there.rglob("*"):
        if path.is_file() and not path.is_symlink():
            name = path.relative_to(there)
            name = Path("events.box.jsonl") if str(name) == "events.jsonl" else name
            assert (here / name).read_bytes() == path.read_bytes(), name
    assert cut or not (here / ".rgt-pull").exists()


def events(local: Path) -> list[str]:
    return [json.loads(line)["event"] for line in (local / "events.jsonl").read_text().splitlines()]


@dataclass
class Provider:
    """A platform with a profile of its own and a command line that records every call."""

    folder: Path
    home: Path | None = None  # of a box that is a folder here
    instances: list[str] = field(default_factory=lambda: ["pod-1", "pod-2"])

    def __post_init__(self) -> None:
        self.bin = self.folder / "bin"
        self.bin.mkdir(parents=True, exist_ok=True)
        self.calls_file, self.list_file = self.folder / "calls", self.folder / "instances"
        self.set_rows(*({"id": name, "status": "RUNNING"} for name in self.instances))
        tool = self.bin / "fakectl"
        tool.write_text(
            f"""#!{sys.executable}
import json, pathlib, sys
calls, path = pathlib.Path({str(self.calls_file)!r}), pathlib.Path({str(self.list_file)!r})
with calls.open("a") as file:
    file.write("\\0".join(sys.argv[1:]) + "\\n")
if sys.argv[1] == "list":
    sys.exit(print(path.read_text(), end=""))
rows = json.loads(path.read_text())["pods"]
if sys.argv[1] == "delete":
    rows = [row for row in rows if row["id"] != sys.argv[2]]
if sys.argv[1] == "halt":
    rows = [{{**row, "status": "EXITED"}} if row["id"] == sys.argv[2] else row for row in rows]
if sys.argv[1] != "lie":
    path.write_text(json.dumps({{"pods": rows}}))
"""
        )
        tool.chmod(0o755)
        self.profile()

    def profile(self, name: str = "fake", **changes: Any) -> Path:
        """profiles/runpod.md with other commands; a dotted key changes one fact: {"meter.list": {...}}.

        Without its container disk: that is "/", and here it would be this machine's.
        """
        text = (ROOT / "profiles" / "runpod.md").read_text(encoding="utf-8")
        data = yaml.safe_load(text.split("---\n")[1])
        cited = {"source": "https://example.org", "verified": "2026-11"}
        data["verbs"]["down"] = {"value": "fakectl delete <id>", "argv": ["fakectl", "delete", "<id>"], **cited}
        data["verbs"]["stop"] = {"value": "fakectl halt <id>", "argv": ["fakectl", "halt", "<id>"], **cited}
        answer = {"rows": "pods", "id": "id", "status": "status", "stopped": ["EXITED"], "ended": ["TERMINATED"]}
        data["meter"]["list"] = {"value": "fakectl list", "argv": ["fakectl", "list"], "answer": answer, **cited}
        data["storage"] = [tier for tier in data["storage"] if tier["path"] != "/"]
        for key, value in changes.items():
            part, _, rest = key.partition("__")
            if rest:
                data[part][rest] = {**cited, **value}
            else:
                data[part] = value
        path = self.folder / f"{name}.md"
        path.write_text(f"---\n{yaml.safe_dump(data)}---\n")
        return path

    def set_rows(self, *rows: dict[str, Any]) -> None:
        self.list_file.write_text(json.dumps({"pods": rows}))

    @property
    def env(self) -> dict[str, str]:
        path = {"PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"}
        return path | ({"HOME": str(self.home), "RUNPOD_POD_ID": "pod-1"} if self.home else {})

    @property
    def calls(self) -> list[list[str]]:
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        return [line.split("\0") for line in lines]

    @property
    def acts(self) -> list[list[str]]:
        """Calls that change something."""
        return [call for call in self.calls if call[0] != "list"]

    def approval(self, local: Path, *words: object, **how: Any) -> list[str]:
        """What the user answers to the page: the words with the phrase that it showed."""
        done = self.down(local, *words, "--json", **how)
        answer = json.loads(done.stdout)
        assert [finding["code"] for finding in answer["findings"]] == ["unapproved"], done.stdout
        phrase = answer["notes"][-1].partition('"')[2].rstrip('"')
        assert phrase and phrase not in json.dumps(answer["findings"])  # no ready-made command holds it
        return ["--approve", f"yes, {phrase}, thank you"]

    def down_approved(self, local: Path, *words: object, **how: Any) -> Result:
        chosen = [word for word in words if word != "--execute"]
        return self.down(local, *words, *self.approval(local, *chosen, **how), **how)

    def down(self, local: Path, *words: object, **how: Any) -> Result:
        profile = self.folder / "fake.md"
        given = ("--profile", profile, "--id", "pod-1", "--wait", "1s", *words)
        return transfer("down", local, *given, env={**self.env, **how})


def keepers(below: Path) -> list[int]:
    """Keepers of leases below a folder that live. By what they are: a pid on record may be another process's by now."""
    lines = {pid: processes.command(pid) for pid in processes.pids()}
    return [pid for pid, words in lines.items() if "keep" in words and any(str(below) in word for word in words)]
