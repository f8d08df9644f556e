"""A box with one card: real jobs that note when they use it, callers that wait for it, and hands that kill them.

Each process of a job writes a row every few hundredths of a second as long as it lives: two jobs with rows in each
other's time were on the card at once, however they came to an end.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trials.case import Box, Missing
from worlds import boxes

# job.py PLACE KEY ROLE CODE WORDS...: the roles say what it starts, and how it ends
JOB = r"""
import json, os, signal, subprocess, sys, time
place, key, role, code = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
def row(what, *more):
    line = json.dumps([what, key, role, os.getpid(), time.time(), *more]) + "\n"
    with open(os.path.join(place, "ledger"), "a") as file:
        file.write(line)
def hold(name, seconds=40):
    end = time.time() + seconds
    while not os.path.exists(os.path.join(place, name + ".go")) and time.time() < end:
        row("beat")
        time.sleep(0.03)
def start(other, env=None):
    words = [sys.executable, "-I", "-S", __file__, place, key, other, "0"]
    subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                     start_new_session=True, env=env)
def save(*_):
    row("saving")
    time.sleep(0.5)
    row("saved")
    os._exit(code)
if role in ("far", "late"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if role == "near":  # told to end, it starts another one instead
    signal.signal(signal.SIGTERM, lambda *_: start("late"))
if role == "saves":
    signal.signal(signal.SIGTERM, save)
told = [sys.argv[5:], os.getcwd(), os.environ.get("RUN_NOTE"), sys.stdin.read()] if role == "words" else []
row("start", *told)
if role in ("words", "quick"):
    print("said by", key, flush=True)
    time.sleep(0.05)
elif role == "leaves":  # with nothing of what it was given
    start("fork", env={})
elif role == "fork":  # between the two: gone at once, so that the left one is nobody's child
    start("left")
elif role in ("killed", "stubborn", "near"):
    start({"killed": "fork", "stubborn": "near", "near": "far"}[role])
    hold(key)
elif role == "left":
    hold(key + " left")
elif role == "dies":
    os.kill(os.getpid(), signal.SIGSEGV)
elif role == "prints":
    hold(key)
    for number in range(2000):
        print("step", number, "loss 2.31 " + "." * 60, flush=True)
else:
    hold(key)
row("end")
sys.exit(code)
"""


def living(pid: int) -> bool:
    return boxes.stat(pid)[:1] not in ([], ["Z"], ["X"])


@dataclass
class Card:
    """What is seen of one card while the agent's command is in use."""

    box: Box
    place: Path
    command: Path
    wrong: list[str] = field(default_factory=list)
    checks: int = 0
    callers: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def check(self, what: str, fine: bool) -> bool:
        self.checks += 1
        if not fine:
            self.wrong.append(what)
        return fine

    def must(self, problem: str, fine: bool) -> None:
        """What is never forgiven: the first is the verdict."""
        if not self.check(problem, fine):
            raise Missing(problem)

    def stop_reading(self, key: str) -> None:
        """The other end of its output is closed, as with a terminal that is gone."""
        pipe = self.callers[key].stdout
        assert pipe
        pipe.close()

    def words(self, key: str, role: str, code: int = 0, *words: str) -> list[str]:
        job = str(self.place / "job.py")
        return [sys.executable, "-I", "-S", job, str(self.place), key, role, str(code), *words]

    def call(self, key: str, seconds: float, command: list[str], settle: bool = True, **how: Any) -> None:
        """A caller of its own session, whose output goes to a file (or a pipe: out=PIPE)."""
        self._go_on()
        env = {**self.box.env, "CARD_OF": str(self.place), **how.get("env", {})}
        tool = how.get("by", self.command)
        out = how.get("out") or (self.place / f"{key}.out").open("wb")
        try:
            process = subprocess.Popen(
                [str(tool), how.get("name", key), f"{seconds:g}", "--", *command],
                cwd=how.get("cwd", self.box.work), env=env, stdin=how.get("stdin", subprocess.DEVNULL), stdout=out,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise Missing(f"{tool} cannot be started: {error.strerror}") from None
        self.callers[key] = process
        if settle:
            self._settled(process.pid)

    def _settled(self, pid: int) -> None:
        """It sleeps, and has used no time for a while: it stands in line, however busy this machine is."""
        before, still, end = "", 0, time.monotonic() + 3
        while still < 4 and time.monotonic() < end:
            time.sleep(0.05)
            fields = boxes.stat(pid)
            now = " ".join(fields[11:13])
            still = still + 1 if fields[:1] in (["S"], ["Z"], []) and now == before else 0
            before = now

    def _go_on(self) -> None:
        """Nothing more is to be learnt once two were on the card, or much is wrong: the rest would only cost time."""
        if problems := self.overlaps():
            raise Missing(problems[0])
        if len(self.wrong) > 5:
            raise Missing(f"wrong so far: {'; '.join(self.wrong)}")

    def rows(self, key: str = "", what: str = "") -> list[list[Any]]:
        path = self.place / "ledger"
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [row for row in rows if key in ("", row[1]) and what in ("", row[0])]

    def pids(self, key: str, role: str = "") -> list[int]:
        return sorted({row[3] for row in self.rows(key) if role in ("", row[2])})

    def go(self, name: str) -> None:
        (self.place / f"{name}.go").touch()

    def until(self, fine: Callable[[], bool], seconds: float = 10) -> bool:
        deadline = time.monotonic() + seconds
        while not fine():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.03)
        return True

    def began(self, key: str, role: str = "", seconds: float = 10) -> bool:
        return self.until(lambda: any(role in ("", row[2]) for row in self.rows(key, "start")), seconds)

    def code(self, key: str, seconds: float = 15) -> int | None:
        try:
            return self.callers[key].wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def marked(self) -> list[int]:
        """Everything that came out of a call, jobs and helpers."""
        found = []
        for pid in boxes.pids():
            with contextlib.suppress(OSError):
                words = b"".join((Path("/proc") / str(pid) / what).read_bytes() for what in ("environ", "cmdline"))
                if os.fsencode(self.place) in words:
                    found.append(pid)
        return found

    def kill_helpers(self, key: str) -> None:
        """The caller, and all that is above the job's first process."""
        pid, marked = self.rows(key, "start")[0][3], set(self.marked())
        found = [self.callers[key].pid]
        while (fields := boxes.stat(pid)) and (pid := int(fields[1])) in marked:
            found.append(pid)
        for one in found:
            boxes.kill(one)

    def power_off(self) -> list[int]:
        gone: set[int] = set()
        deadline = time.monotonic() + 5
        while (left := self.marked()) and time.monotonic() < deadline:
            gone.update(left)
            for pid in left:
                boxes.kill(pid)
            for caller in self.callers.values():
                caller.poll()
            time.sleep(0.03)
        return sorted(gone)

    def overlaps(self) -> list[str]:
        times: dict[str, list[float]] = {}
        for row in self.rows():
            times.setdefault(row[1], []).append(row[4])
        spans = sorted((min(seen), max(seen), key) for key, seen in times.items())
        problems, latest = [], spans[:1]
        for span in spans[1:]:
            problems += [f"two at once: {span[2]!r} started while {one[2]!r} ran" for one in latest if span[0] < one[1]]
            latest = [max(*latest, span, key=lambda each: each[1])]
        return problems


def odd_ways(one: Card) -> tuple[Path, Path, dict[str, str]]:
    """A symlink to the command, a folder with a space, and the environment of somebody with another home."""
    elsewhere, link = one.place / "other place", one.place / "bin" / "take"
    elsewhere.mkdir(exist_ok=True)
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(one.command)
    other = dict.fromkeys(("TMPDIR", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME"), str(elsewhere))
    return link, elsewhere, {"HOME": "/nonexistent", **other}


@contextlib.contextmanager
def of(box: Box, name: str) -> Iterator[Card]:
    command, place = box.work / name, box.world / "card"
    if not os.access(command, os.X_OK):
        raise Missing(f"{name} is not there, or cannot be executed")
    place.mkdir(exist_ok=True)
    (place / "job.py").write_text(JOB)
    (place / "ledger").unlink(missing_ok=True)
    for old in place.glob("*.go"):
        old.unlink()
    card = Card(box, place, command)
    try:
        yield card
    finally:
        card.power_off()
        for caller in card.callers.values():
            caller.poll()
