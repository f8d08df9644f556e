"""triage on the labelled logs (first guess, first three, false alarms), and its speed and memory on large ones."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.measure import ROOT, Row, ran, take_turns, tool

import yaml

sys.path.insert(0, str(ROOT / "scripts"))

LOGS = ROOT / "tests" / "triage"
LARGE = 400 << 20  # bytes for the ratio to grep
HUGE = 3 << 30  # bytes for the memory
# what a person would grep for, in place of triage
WORDS = "Error|error:|Traceback|Killed|out of memory|No space|nan|timeout|Xid|denied"
CHUNK = 1 << 20


@dataclass
class Score:
    """How the labelled logs were judged; `pending` wait for an entry that no document holds yet."""

    right: list[str] = field(default_factory=list)
    listed: list[str] = field(default_factory=list)  # among the first three, not first
    missed: dict[str, list[str]] = field(default_factory=dict)  # log -> what was said instead
    pending: list[str] = field(default_factory=list)
    alarms: dict[str, list[str]] = field(default_factory=dict)  # healthy log -> what was said
    healthy: int = 0

    @property
    def failures(self) -> int:
        return len(self.right) + len(self.listed) + len(self.missed)


def score(root: Path = ROOT) -> Score:
    """Judge every log below tests/triage with the catalogue below `root`."""
    import triage
    from rgt.catalogue import entries as catalogue
    from rgt.triage import causes, scan

    what = scan.plan(catalogue.read(root))
    known = {entry.id for entry in what.entries} | {"unknown"}
    found = Score()
    for name, label in labels().items():
        expected = set(label["expect"]) & known
        if not expected:
            found.pending.append(name)
            continue
        kernel = LOGS / "failures" / f"{name}.dmesg" if label.get("dmesg") else None
        traces = triage.scan_all(files(name), what, kernel)
        said = [one.entry.id if one.entry else "unknown" for one in causes.diagnose(traces, what, label.get("exit"))]
        _place(found, name, expected, said)
    for path in sorted((LOGS / "healthy").iterdir()):
        found.healthy += 1
        verdict = causes.diagnose(triage.scan_all([str(path)], what), what)
        alarms = [one.entry.id if one.entry else "unknown" for one in verdict if one.role in causes.FINDINGS]
        if alarms:
            found.alarms[path.name] = alarms
    return found


def labels() -> dict[str, dict[str, Any]]:
    loaded: dict[str, dict[str, Any]] = yaml.safe_load((LOGS / "labels.yaml").read_text(encoding="utf-8"))
    return loaded


def files(name: str) -> list[str]:
    folder = LOGS / "failures" / name
    return sorted(map(str, folder.rglob("*.log"))) if folder.is_dir() else [f"{folder}.log"]


def _place(found: Score, name: str, expected: set[str], said: list[str]) -> None:
    if said[:1] and said[0] in expected:
        found.right.append(name)
    elif expected & set(said[:3]):
        found.listed.append(name)
    else:
        found.missed[name] = said[:3]


def rows() -> Iterator[Row]:
    judged = score()
    count, healthy = judged.failures, judged.healthy
    wrong = 1 - len(judged.right) / count
    yield Row(f"triage: first guess wrong, of {count} failures / 20 %", wrong, 0.20, goal=1, unit=" ")
    yield Row("triage: not among the first three / 5 %", len(judged.missed) / count, 0.05, goal=1, unit=" ")
    yield Row(f"triage: false alarms, of {healthy} healthy logs / 2 %", len(judged.alarms) / healthy, 0.02, 1, " ")
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "train.log"
        write_log(path, LARGE)
        ours, peer = take_turns(lambda: peak(path), lambda: _grep(path), rounds=3)
        yield Row(f"triage: a log of {LARGE >> 20} MB / grep -cE", ours, peer, goal=4)
        small = peak(path)
        write_log(path, HUGE)
        yield Row(f"triage: peak memory, {HUGE >> 30} GB / {LARGE >> 20} MB", peak(path), small, goal=1.1, unit="M")


def write_log(path: Path, size: int) -> None:
    """A run's log with the usual noise; one failure at the end."""
    lines = [
        f"2026-11-16 08:51:{second:02} INFO step {second * 977}/900000 | loss {3 - second / 97:.4f} | lr 3.0e-04 | "
        f"grad_norm {1 + second / 61:.3f} | 8{second:02}31 tok/s\n"
        for second in range(60)
    ]
    lines.append("2026-11-16 08:52:00 WARNING prefetch queue is empty, waiting for the loader\n")
    block = "".join(lines * (CHUNK // 8000)).encode()
    with path.open("wb") as file:
        for _ in range(size // len(block)):
            file.write(block)
        file.write(b"RuntimeError: DataLoader worker (pid 4127) is killed by signal: Killed. \n")


def peak(path: Path) -> float:
    """Runs triage; its peak memory in MB. An answer that misses the last line is no answer."""
    done = ran(tool("triage", path, "--json"))
    if done.code != 1 or b"is killed by signal: Killed" not in done.out:
        raise AssertionError(f"triage did not find the failure in {path}")
    return done.peak


def _grep(path: Path) -> None:
    subprocess.run(["grep", "-cE", WORDS, str(path)], stdout=subprocess.DEVNULL, check=False)
