"""How a ratio is measured: both sides in this run, taking turns, so that a busy machine hurts both."""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Row:
    """A claim: `ours` against `peer` in the same unit, and the ratio that `goal` allows at most."""

    claim: str
    ours: float
    peer: float
    goal: float
    unit: str = "s"

    @property
    def ratio(self) -> float:
        return self.ours / self.peer

    def __str__(self) -> str:
        verdict = "" if self.ratio <= self.goal else "  MISSED"
        sides = f"{self.ours:9.4g}{self.unit} {self.peer:9.4g}{self.unit}"
        return f"{self.claim:58} {sides} {self.ratio:7.3g} {self.goal:5}{verdict}"

    def markdown(self) -> str:
        goal = "-" if math.isinf(self.goal) else f"{self.goal:g}"
        missed = " **missed**" if self.ratio > self.goal else ""
        unit = f" {self.unit}" if self.unit else ""
        return f"| {self.claim} | {self.ours:.4g}{unit} | {self.peer:.4g}{unit} | {self.ratio:.3g}{missed} | {goal} |"


def timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def take_turns(ours: Callable[[], object], peer: Callable[[], object], rounds: int) -> tuple[float, float]:
    """Median seconds of both sides."""
    pairs = [(timed(ours), timed(peer)) for _ in range(rounds)]
    return statistics.median(pair[0] for pair in pairs), statistics.median(pair[1] for pair in pairs)


@dataclass
class Ran:
    code: int
    out: bytes
    peak: float  # MB that were resident at most


# a process starts with the peak of the one that forked it, and a bench may be large: so a small one stands between
_BETWEEN = (
    "import os,subprocess,sys;p=subprocess.Popen(sys.argv[1:]);s,u=os.wait4(p.pid,0)[1:];"
    "print(os.waitstatus_to_exitcode(s),u.ru_maxrss,file=sys.stderr)"
)


def ran(command: list[str]) -> Ran:
    done = subprocess.run([sys.executable, "-c", _BETWEEN, *command], capture_output=True, check=True)
    code, peak = done.stderr.split()[-2:]
    return Ran(int(code), done.stdout, int(peak) / (1024 if sys.platform == "linux" else 1 << 20))


def tool(name: str, *words: object) -> list[str]:
    """One of our tools as a command."""
    return [sys.executable, str(ROOT / "scripts" / f"{name}.py"), *map(str, words)]


def cpu_seconds(pid: int) -> float:
    """Of user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def quiet(*command: str) -> Callable[[], object]:
    """A call that runs the command and swallows its output."""
    return lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
