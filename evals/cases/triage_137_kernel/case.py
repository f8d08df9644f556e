"""Exit 137 five times; the kernel's log has two hundred memory kills of other people's processes, and reused pids."""

from __future__ import annotations

import random
import re
from datetime import datetime, timedelta

from trials.case import Box, Case, differs

DAY = datetime(2026, 11, 14)
# run: (pid, when it ended in minutes of the day, verdict)
RUNS = {
    "r1": (48211, 372, "cgroup-oom"),
    "r2": (51902, 640, "killed"),
    "r3": (60017, 811, "node-oom"),
    "r4": (61550, 955, "killed"),  # its pid is in the log, hours before it started
    "r5": (70433, 1290, "cgroup-oom"),
}
_KILL = re.compile(r"\[\w+ (\w+ +\d+ [\d:]+ \d+)\] (Memory cgroup out of memory|Out of memory): Killed process (\d+)")


def _line(minute: float, text: str) -> tuple[float, str]:
    return minute, f"[{(DAY + timedelta(minutes=minute)).strftime('%a %b %d %H:%M:%S %Y')}] {text}"


def _kill(minute: float, kind: str, pid: int) -> list[tuple[float, str]]:
    head = "Memory cgroup out of memory" if kind == "cgroup-oom" else "Out of memory"
    where = "CONSTRAINT_MEMCG" if kind == "cgroup-oom" else "CONSTRAINT_NONE"
    return [
        _line(minute, "python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0"),
        _line(minute + 0.001, f"oom-kill:constraint={where},nodemask=(null),task=python,pid={pid},uid=1004"),
        _line(minute + 0.002, f"{head}: Killed process {pid} (python) total-vm:91234567kB, anon-rss:63200128kB"),
    ]


def make(box: Box) -> None:
    rng = random.Random(137)
    lines = []
    for run, (pid, end, verdict) in RUNS.items():
        if verdict != "killed":
            lines += _kill(end + 0.01, verdict, pid)
        text = f"pid {pid} started {(DAY + timedelta(minutes=end - 100)).isoformat(sep=' ')}\n"
        for step in range(1000):
            when = DAY + timedelta(minutes=end - 100 + step / 10)
            text += f"{when.strftime('%Y-%m-%d %H:%M:%S')} step {step} loss {4 - step / 900:.4f}\n"
        box.write(f"runs/{run}.log", text)
    lines += _kill(200, "node-oom", 61550)
    for _ in range(200):
        lines += _kill(rng.uniform(0, 1439), rng.choice(["node-oom", "cgroup-oom"]), rng.randint(1000, 45000))
    lines += [
        _line(rng.uniform(0, 1439), f"audit: type=1400 apparmor=ALLOWED pid={rng.randint(1000, 90000)}")
        for _ in range(9000)
    ]
    box.write("kernel.log", "".join(text + "\n" for _, text in sorted(lines)))


def verify(box: Box) -> list[str]:
    answer = box.read("verdict.json")
    return [p for run, (_, _, verdict) in RUNS.items() for p in differs(run, answer.get(run), verdict)]


def reference(box: Box) -> None:
    """By pid and minute; which limit it was, the kernel's line says (OOM9). Alone, that log blames anybody."""
    kernel = (box.work / "kernel.log").read_text()
    verdicts = {}
    for run, (pid, end, _) in RUNS.items():
        verdicts[run] = "killed"
        for when, kind, killed in _KILL.findall(kernel):
            at = datetime.strptime(when, "%b %d %H:%M:%S %Y")
            if int(killed) == pid and abs((at - DAY).total_seconds() / 60 - end) < 5:
                verdicts[run] = "cgroup-oom" if kind.startswith("Memory") else "node-oom"
    box.write("verdict.json", verdicts)


def naive(box: Box) -> None:
    """Exit 137 and the pid somewhere in the kernel's log."""
    kernel = (box.work / "kernel.log").read_text()
    box.write(
        "verdict.json",
        {run: "node-oom" if f"process {pid} " in kernel else "killed" for run, (pid, _, _) in RUNS.items()},
    )


CASE = Case(
    route="a run failed, what does this log mean?",
    reads=("references/training/oom-memory.md",),
    minutes=5,
    commands=10,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="Two hit their own limit, one the node's, two were killed by hand (one pid appears hours before its run).",
)
