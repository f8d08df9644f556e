"""A training under a batch script of the agent's: what it got, what it saved, and how the job ended (see slurm.py)."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trials.case import Box
from worlds import slurm

# notes its words and variables; saves on its signal, if it hears it
TRAIN = """\
import json, os, pathlib, signal, sys, time

out = pathlib.Path(os.environ["TOY_OUT"])
number = getattr(signal, "SIG" + os.environ["TOY_SIGNAL"])
plan, told = os.environ["TOY_PLAN"], []
if not (number == signal.SIGINT and signal.getsignal(number) == signal.SIG_IGN):  # as Python's own handler
    signal.signal(number, lambda *_: told.append(1))
here = {"words": sys.argv[1:], "env": dict(os.environ), "dir": os.getcwd()}
(out / "seen.json").write_text(json.dumps(here))
print("attempt", flush=True)
(out / "started").touch()
for step in range(40 if plan in ("long", "finishes") else 2):
    time.sleep(0.1)
    if told and plan == "finishes":
        sys.exit(0)
    if told:
        time.sleep(0.3)
        (out / "ckpt").write_text("saved")
        sys.exit(85)
sys.exit(int(plan) if plan.isdigit() else 0)
"""


@dataclass
class Trial:
    box: Box
    spec: dict[str, Any]
    script: Path
    problems: list[str] = field(default_factory=list)
    checks: int = 0

    @property
    def out(self) -> Path:
        return Path(self.spec["out"])

    def check(self, what: str, fine: bool) -> None:
        self.checks += 1
        if not fine:
            self.problems.append(f"{self.spec['name']}: {what}")

    def header(self) -> None:
        spec, given = self.spec, slurm.options(self.script)
        gpus = " ".join(given.get(key, "") for key in ("gres", "gpus", "gpus-per-node", "gpus-per-task"))
        count = sum(int(number) for number in re.findall(r"(?:^|[:\s])(\d+)\b", gpus))
        memory = re.fullmatch(r"(\d+)([GM]?)B?", given.get("mem", ""))
        megabytes = int(memory[1]) * (1024 if memory[2] == "G" else 1) if memory else 0
        warned = slurm.warning(given)
        log = Path(given.get("chdir") or "/nowhere") / given.get("output", "").replace("%x", spec["name"])
        self.check("GPUs", count == spec["gpus"])
        self.check("CPUs", given.get("cpus-per-task") == str(spec["cpus"]))
        self.check("memory", 930 * spec["mem_gb"] <= megabytes <= 1030 * spec["mem_gb"])
        self.check("time limit", abs(slurm.minutes(given.get("time", "0")) - 60 * spec["hours"]) < 1)
        self.check("warned in time", warned is not None and warned[2] >= spec["save_seconds"])
        self.check("a lost node restarts it", "requeue" in given)
        self.check("two at once", "singleton" in given.get("dependency", "") and given.get("job-name") == spec["name"])
        self.check("log", log == self.out / "train.log" and given.get("open-mode") == "append")

    def run(
        self,
        plan: str,
        hit: str,
        restarts: int,
        code: int | None,
        requeued: int,
        left: str | None,
        *,
        refuses: bool = False,
    ) -> None:
        """`code` None: any; `left`: what exit_code holds (*: anything)."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        (self.out / "exit_code").write_text("0\n")  # of a life before this one
        (self.out / "train.log").write_text("before\n")
        cluster = slurm.Cluster(self.box.work, self.box.world / "spool" / self.spec["name"], refuses)
        toy = {"TOY_PLAN": plan, "TOY_OUT": str(self.out), "TOY_SIGNAL": self.spec["save_signal"]}
        ended = cluster.run(self.script, {**self.box.env, **toy}, self.out / "started", hit, restarts)
        said = (self.out / "exit_code").read_text().strip() if (self.out / "exit_code").exists() else None
        what = f"{plan} {hit} after {restarts} requeues"
        self.check(f"{what}: code {ended.code}", ended.code is not None and code in (None, ended.code))
        self.check(f"{what}: put back {ended.requeued} times", ended.requeued == requeued or refuses)
        self.check(f"{what}: exit_code {said}", left in ("*", said))
        if plan == "long" and hit == "warn":
            self.check(f"{what}: nothing was saved", (self.out / "ckpt").exists())
        self.check(f"{what}: log", (self.out / "train.log").read_text().count("attempt") == 1)

    def words(self) -> None:
        """After a run: what the training got."""
        path = self.out / "seen.json"
        seen = json.loads(path.read_text()) if path.exists() else {"words": None, "env": {}, "dir": ""}
        self.check("arguments", seen["words"] == self.spec["command"][2:])
        self.check("variables", all(seen["env"].get(name) == value for name, value in self.spec["env"].items()))
        self.check("folder", seen["dir"] == self.spec["dir"])
