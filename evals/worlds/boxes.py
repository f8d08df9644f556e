"""Boxes behind an ssh whose connections can be made to break: each is a home of its own, its jobs are real processes.

A box is a folder `world/hosts/<name>`. What runs on it carries its folder in BOX, so that it can be found and ended.
The stand-in takes ssh's words, gives the command a login's plain environment, and like the real one stays until nobody
holds the command's output any more. `fault` says what happens to one of the next connections:
before: it never comes up · cut: half of stdin arrives · mid: it breaks once all was sent · after: the answer is lost.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trials.case import Box
from worlds import tool

_SSH = r"""#!/usr/bin/env python3
import ctypes, json, os, subprocess, sys, threading
from pathlib import Path
WORLD = Path(__file__).resolve().parent.parent
words = sys.argv[1:]
no_input = False
while words and words[0].startswith("-"):
    word = words.pop(0)
    if word == "--":
        break
    if word == "-V":
        sys.exit("OpenSSH_9.6p1")
    if word == "-G":
        print("hostname " + words[-1].split("@")[-1])
        sys.exit(0)
    no_input = no_input or word == "-n"
    if word[:2] in ("-o", "-F", "-p", "-i", "-l", "-e", "-E", "-J", "-L", "-R", "-D", "-S", "-c", "-m", "-b", "-O"):
        word[2:] or words.pop(0)
name = words.pop(0).split("@")[-1] if words else ""
words = words[1:] if words[:1] == ["--"] else words
box = WORLD / "hosts" / name
if not name or "/" in name or not box.is_dir():
    print("ssh: Could not resolve hostname %s: Name or service not known" % name, file=sys.stderr)
    sys.exit(255)
with open(box / "connections", "a") as file:
    file.write("x")
    file.flush()
    number = file.tell()
fault = json.loads((box / "fault").read_text()) if (box / "fault").exists() else {}
kind = fault.get("kind") if fault.get("at") == number else None
def broken():
    print("client_loop: send disconnect: Broken pipe", file=sys.stderr)
    sys.stderr.flush()
    os._exit(255)
if kind == "before":
    print("kex_exchange_identification: Connection reset by peer", file=sys.stderr)
    sys.exit(255)
home = box / "home"
path = os.path.dirname(sys.executable) + ":/usr/local/bin:/usr/bin:/bin"
env = {"HOME": str(home), "PATH": path, "LANG": "C.UTF-8", "USER": "me", "LOGNAME": "me", "SHELL": "/bin/sh",
       "BOX": str(box), "SSH_CONNECTION": "10.0.0.1 40000 10.0.0.2 22"}
command = " ".join(words) or "sh -s"
data = sys.stdin.buffer.read() if kind in ("cut", "mid") and not no_input else None
def pipe():
    return [os.fdopen(end, mode, 0) for end, mode in zip(os.pipe(), ("rb", "wb"))]
(stdin_r, stdin_w), (out_r, out_w), (err_r, err_w), (code_r, code_w) = pipe(), pipe(), pipe(), pipe()
if os.fork() == 0:  # the box's init: adopts and buries what is left alone there
    os.setsid()
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    child = subprocess.Popen(["/bin/sh", "-c", command], cwd=home, env=env, start_new_session=True, stdout=out_w,
                             stderr=err_w, stdin=subprocess.DEVNULL if no_input else 0 if data is None else stdin_r)
    for end in (stdin_r, stdin_w, out_r, out_w, err_r, err_w, code_r):
        end.close()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            os._exit(0)
        if pid == child.pid:
            try:
                code_w.write(b"%d" % os.waitstatus_to_exitcode(status))
            except BrokenPipeError:
                pass
            code_w.close()
for end in (stdin_r, out_w, err_w, code_w):
    end.close()
if data is not None:
    try:
        stdin_w.write(data[: len(data) // 2] if kind == "cut" else data)
    except BrokenPipeError:
        pass
stdin_w.close()
if kind == "mid":
    broken()
def relay(pipe, out):
    while True:
        block = os.read(pipe.fileno(), 65536)
        if not block:
            return
        if kind is None:
            out.write(block)
            out.flush()
threads = [threading.Thread(target=relay, args=pair, daemon=True)
           for pair in ((out_r, sys.stdout.buffer), (err_r, sys.stderr.buffer))]
for thread in threads:
    thread.start()
code = int(code_r.read() or b"255")
if kind:
    broken()
for thread in threads:
    thread.join()
sys.exit(code if code >= 0 else 255)
"""
SECONDS = 15.0  # for one call of the agent's commands
# notes its start, its pid, its words; holds until it is let go; notes its end
JOB = """\
import json, os, sys, time
from pathlib import Path
place, wait, code = Path(sys.argv[1]), sys.argv[2] == "hold", int(sys.argv[3])
print("step 1 loss 2.31", flush=True)
print("warning: läuft", file=sys.stderr, flush=True)
with open(place, "a") as file:
    file.write(json.dumps(["start", os.getpid(), sys.argv[4:], os.getcwd(), sys.stdin.read(), time.time()]) + "\\n")
deadline = time.time() + 60
while wait and not Path(str(place) + ".go").exists() and time.time() < deadline:
    time.sleep(0.02)
print("last words", flush=True)
with open(place, "a") as file:
    file.write(json.dumps(["end", os.getpid(), time.time()]) + "\\n")
sys.exit(code)
"""
_NO_SERVER = "#!/bin/sh\necho 'subsystem request failed on channel 0' >&2\nexit 255\n"


def put_up(world: Path, *names: str) -> None:
    tools = {"ssh": _SSH, "scp": _NO_SERVER, "sftp": _NO_SERVER}
    for name, text in tools.items():
        (world / "bin" / name).write_text(text)
        (world / "bin" / name).chmod(0o755)
    (world / "jobs").mkdir(exist_ok=True)
    for name in names:
        (world / "hosts" / name / "home").mkdir(parents=True, exist_ok=True)


def connections(world: Path, name: str) -> int:
    path = world / "hosts" / name / "connections"
    return path.stat().st_size if path.exists() else 0


def fault(world: Path, name: str, kind: str, ahead: int) -> None:
    """It hits the connection `ahead` (1: the next one)."""
    told = json.dumps({"kind": kind, "at": connections(world, name) + ahead})
    (world / "hosts" / name / "fault").write_text(told)


def mend(world: Path, name: str) -> None:
    (world / "hosts" / name / "fault").unlink(missing_ok=True)


def _entries(pid: int, what: str) -> list[str]:
    try:
        return (Path("/proc") / str(pid) / what).read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def pids() -> Iterator[int]:
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def on_box(world: Path, name: str, pid: int) -> bool:
    return f"BOX={world / 'hosts' / name}" in _entries(pid, "environ")


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def stat(pid: int) -> list[str]:
    """From the state on; empty when it is gone."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def parent(pid: int) -> int:
    return int((stat(pid) or "00")[1])


def cut_power(world: Path, name: str) -> list[int]:
    """All that runs on the box is gone, at once; looked at until nothing is left. The pids of what was there."""
    deadline, gone = time.monotonic() + 10, set[int]()
    while time.monotonic() < deadline:
        left = [pid for pid in pids() if on_box(world, name, pid)]
        if not left:
            break
        gone.update(left)
        for pid in left:
            kill(pid)
        time.sleep(0.05)
    return sorted(gone)


@contextlib.contextmanager
def taken(world: Path, name: str, pids: list[int]) -> Iterator[None]:
    """After a reboot others have those pids. Only where the kernel lets us choose (root); else nothing is taken."""
    env = {**os.environ, "BOX": str(world / "hosts" / name)}
    others: list[subprocess.Popen[bytes]] = []
    for pid in pids:
        for _ in range(20):  # on a busy machine somebody else may be faster
            try:
                Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
            except OSError:
                break
            others.append(subprocess.Popen(["sleep", "60"], env=env, start_new_session=True))
            if others[-1].pid >= pid:
                break
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def hang_up(world: Path, name: str) -> None:
    """The laptop is closed: every open connection to the box ends."""
    for pid in pids():
        words = _entries(pid, "cmdline")
        if str(world / "bin" / "ssh") in words[:3] and name in words:
            kill(pid)


@dataclass
class Lab:
    """One box of the bot's, and what was seen there."""

    box: Box
    host: str
    wrong: list[str] = field(default_factory=list)
    fatal: list[str] = field(default_factory=list)
    checks: int = 0

    def check(self, what: str, fine: bool) -> None:
        self.checks += 1
        if not fine:
            self.wrong.append(what)

    def place(self, key: str) -> Path:
        return self.box.world / "jobs" / f"{self.host}-{key}"

    def start(self, name: str, key: str, wait: str = "end", code: int = 0, words: tuple[str, ...] = ()) -> int | None:
        command = ["python3", "-c", JOB, str(self.place(key)), wait, str(code), *words]
        return tool.call(self.box, "start", self.host, name, "--", *command, seconds=SECONDS).code

    def state(self, name: str) -> str:
        return tool.call(self.box, "state", self.host, name, seconds=SECONDS).out.strip()

    def rows(self, key: str, kind: str = "start") -> list[list[Any]]:
        path = self.place(key)
        rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [row for row in rows if row[0] == kind]

    def go(self, key: str) -> None:
        Path(f"{self.place(key)}.go").touch()

    def until(self, fine: Callable[[], bool], seconds: float = 8.0) -> bool:
        deadline = time.monotonic() + seconds
        while not fine():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def began(self, key: str) -> bool:
        return self.until(lambda: bool(self.rows(key)))

    def ended(self, key: str) -> bool:
        return self.until(lambda: bool(self.rows(key, "end")))

    def became(self, name: str, *words: str) -> bool:
        time.sleep(0.2)  # for a watcher to note what the job itself has just noted
        return self.until(lambda: self.state(name) in words, 4.0)

    def once(self, what: str, key: str) -> None:
        """It ran, and did not run twice."""
        self.check(f"{what}: it never ran", self.began(key))
        if len(self.rows(key)) > 1:
            self.fatal.append(f"{what}: it ran {len(self.rows(key))} times")

    def overlaps(self) -> list[str]:
        """No two jobs of a box at the same time, by what they noted; one that was killed has no end: left out."""
        spans = []
        for path in (self.box.world / "jobs").glob(f"{self.host}-*"):
            rows = [json.loads(line) for line in path.read_text().splitlines() if path.suffix != ".go"]
            ends = {row[1]: row[2] for row in rows if row[0] == "end"}
            spans += [(row[5], ends[row[1]]) for row in rows if row[0] == "start" and row[1] in ends]
        pairs = itertools.pairwise(sorted(spans))
        return [f"two ran at once on {self.host}" for one, two in pairs if two[0] < one[1] - 0.01]


def verdict(labs: list[Lab], share: float) -> list[str]:
    """A job that ran twice, or two at once, is never forgiven; else a share of the checks may fail."""
    fatal = [problem for lab in labs for problem in [*lab.fatal, *lab.overlaps()]]
    wrong, count = [problem for lab in labs for problem in lab.wrong], sum(lab.checks for lab in labs)
    return fatal + ([] if len(wrong) <= share * count else [f"{len(wrong)} of {count}: {'; '.join(wrong[:6])}"])
