"""One trial: a fresh world, an agent or a person in it, the verdict in trial.json.

<out>/<case>/<arm>-<number>/   desk/ world/ prompt.md transcript.jsonl stderr.txt trial.json
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from bundle import BUNDLE, NAME
from rgt import files
from trials.agents import Agent, Effort
from trials.case import ROOT, Box, Loaded, build, judge

ARMS = ("none", "skill")


@dataclass(frozen=True)
class Plan:
    loaded: Loaded
    arm: str
    number: int
    out: Path

    @property
    def folder(self) -> Path:
        return self.out / self.loaded.name / f"{self.arm}-{self.number}"

    @property
    def verdict(self) -> Path:
        return self.folder / "trial.json"


def install(target: Path) -> None:
    """The skill as a user would have it."""
    target.mkdir(parents=True)
    for name in BUNDLE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.is_file():
            shutil.copy2(source, target / name)


def prepare(plan: Plan, skills: str | None) -> Box:
    """A world for this trial, with the skill in it or not, and the prompt as the agent gets it."""
    box = build(plan.loaded, plan.folder)
    prompt = plan.loaded.prompt + "\n"
    if plan.arm == "skill":
        place = box.work / (skills or f".skills/{NAME}") / (NAME if skills else "")
        install(place)
        if skills is None:
            prompt += f"\n(The folder {place.relative_to(box.work)} holds a skill; its SKILL.md says when to use it.)\n"
    (plan.folder / "prompt.md").write_text(prompt, encoding="utf-8")
    return box


def run(plan: Plan, agent: Agent, max_tokens: int | None = None) -> dict[str, Any]:
    """A trial by an agent; what it leaves running in its process group ends with it."""
    transcript = plan.folder / "transcript.jsonl"
    try:
        box = prepare(plan, agent.skills)
        seconds, how = _let_work(plan, agent, box, transcript)
    except BaseException:  # no such program, or Ctrl-C: the same call again begins anew
        shutil.rmtree(plan.folder, ignore_errors=True)
        raise
    return grade(plan, box, seconds, agent.count(transcript), max_tokens, **how, agent=agent.template)


def _let_work(plan: Plan, agent: Agent, box: Box, transcript: Path) -> tuple[float, dict[str, Any]]:
    """How long it took, and how it ended."""
    prompt_file = plan.folder / "prompt.md"
    argv, stdin = agent.argv(prompt_file.read_text(encoding="utf-8"), prompt_file, box.work)
    env = box.env | {key: value.replace("{work}", str(box.work)) for key, value in agent.env}
    start = time.monotonic()
    with transcript.open("wb") as out, (plan.folder / "stderr.txt").open("wb") as err:
        process = subprocess.Popen(
            argv, cwd=box.work, env=env, stdin=subprocess.PIPE, stdout=out, stderr=err, start_new_session=True
        )
        try:
            process.communicate((stdin or "").encode(), timeout=plan.loaded.case.minutes * 60)
            ended = "ended"
        except subprocess.TimeoutExpired:
            ended = "out of time"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return time.monotonic() - start, {"ended": ended, "exit_code": process.returncode}


def grade(
    plan: Plan, box: Box, seconds: float | None, effort: Effort, max_tokens: int | None = None, **more: Any
) -> dict[str, Any]:
    """The verdict: the outcome, and whether it came within the budget. Both count for `passed`."""
    case = plan.loaded.case
    problems = judge(plan.loaded, box)
    over = []
    if seconds is not None and seconds > case.minutes * 60:
        over.append(f"{seconds:.0f} s of {case.minutes * 60:.0f} s")
    if effort.commands is not None and effort.commands > case.commands:
        over.append(f"{effort.commands} commands of {case.commands}")
    if max_tokens is not None and effort.tokens is not None and effort.tokens > max_tokens:
        over.append(f"{effort.tokens} tokens of {max_tokens}")
    record: dict[str, Any] = {"case": plan.loaded.name, "arm": plan.arm, "trial": plan.number}
    record |= {"kind": case.kind, "held_out": case.held_out, "outcome": not problems}
    record |= {"passed": not problems and not over, "problems": problems, "over_budget": over}
    record |= {"seconds": None if seconds is None else round(seconds, 1), "commands": effort.commands}
    record |= {"tokens": effort.tokens, "cached_tokens": effort.cached}
    record |= {"time": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"), **more}
    files.write_json(plan.verdict, record)
    return record


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text(encoding="utf-8")) for path in sorted(out.glob("*/*/trial.json"))]
