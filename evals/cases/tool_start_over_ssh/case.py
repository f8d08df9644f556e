"""Three commands that start jobs over ssh, on boxes whose plugs are pulled: real processes, counted."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from trials.case import Box, Case
from worlds import boxes, tool

COMMANDS = ("start", "state", "log")
HOSTS = ("gpu-lab", "alpha.example", "beta", "gamma", "delta")
WRONG = 0.1  # the share of checks that may fail
WORDS = [
    ("two words", "\\", "it's", '"double"', "tab\there", "back\\slash\\n", "*", "~", "{a,b}", "#no", "100%", "'", "\r",
     "", json.dumps({f"layer{n}.it's": ['a "b"', "$c", n] for n in range(700)})),
    ("$HOME $(touch pwned) `touch pwned`", "line one\nline two\n", "größe=µ 训练 🚀", "-n", "--", "--help", "!x;&|<>(",
     " ends "),
]  # fmt: skip


def make(box: Box) -> None:
    boxes.put_up(box.world, "box1", "box2")


def _arguments(lab: boxes.Lab) -> None:
    """Every word as it was given, the output kept, the exit code told."""
    for number, (name, words) in enumerate(zip(("sweep lr=3e-4", "größe 'x' $HOME a.b"), WORDS, strict=True)):
        key, code = f"words{number}", 3 * number
        lab.check(f"start {name!r}", lab.start(name, key, code=code, words=words) == 0)
        boxes.hang_up(lab.box.world, lab.host)
        lab.ended(key)
        seen: list[Any] = lab.rows(key)[0] if lab.rows(key) else [0, 0, [], "", "?"]
        for index, word in enumerate(words):
            lab.check(f"the word {word[:20]!r} did not arrive", [word] == seen[2][index : index + 1])
        lab.check("it does not run in the home there", seen[3] == str(lab.box.world / "hosts" / lab.host / "home"))
        lab.check(f"the state of code {code}", lab.became(name, "failed" if code else "finished"))
    out = tool.call(lab.box, "log", lab.host, name, seconds=boxes.SECONDS).out
    lab.check("the log", all(line in out for line in ("step 1 loss 2.31", "warning: läuft", "last words")))
    lab.check("a name that is part of another", lab.state("sweep lr=3e-") == "unknown")
    lab.check(
        "ended, it may start again",
        lab.start(name, "again") == 0 and lab.ended("again") and lab.became(name, "finished"),
    )


def _line(lab: boxes.Lab) -> None:
    """In order, one at a time; a name in use is refused; the killed one makes room."""
    for key in ("first", "abl-1", "abl-10"):
        lab.check(f"start {key}", lab.start(key, key, "hold") == 0)
    lab.check("the first runs", lab.began("first") and lab.became("first", "running"))
    lab.check("the others wait", (lab.state("abl-1"), lab.state("abl-10")) == ("waiting", "waiting"))
    for key in ("first", "abl-10"):
        lab.check(f"{key} is in use", lab.start(key, key, "hold") not in (0, None))
    for key, after in (("first", "abl-1"), ("abl-1", "abl-10")):
        if lab.began(key):
            boxes.kill(lab.rows(key)[0][1])
        lab.check(f"{after} goes on when {key} was killed", lab.began(after))
        lab.check(f"{key} was killed", lab.became(key, "failed"))
    lab.go("abl-10")
    lab.check("the last finishes", lab.ended("abl-10") and lab.became("abl-10", "finished"))
    for key in ("first", "abl-1", "abl-10"):
        lab.once(key, key)


def _breaks(lab: boxes.Lab) -> None:
    """A start is broken off at one of its connections, and called again."""
    lab.check("start", lab.start("warm", "warm") == 0 and lab.ended("warm"))
    before = boxes.connections(lab.box.world, lab.host)
    lab.check("start again", lab.start("warm 2", "warm2") == 0 and lab.ended("warm2"))
    used = max(1, boxes.connections(lab.box.world, lab.host) - before)
    for kind, ahead in (("after", used), ("mid", used), ("before", 1), ("cut", used)):
        boxes.fault(lab.box.world, lab.host, kind, ahead)
        lab.start(f"job {kind}", kind, "hold")
        boxes.mend(lab.box.world, lab.host)
        time.sleep(1.5)
        lab.start(f"job {kind}", kind, "hold")
        lab.check(f"broken {kind}: not running", lab.began(kind) and lab.became(f"job {kind}", "running"))
        lab.go(kind)
        lab.check(f"broken {kind}: not finished", lab.ended(kind) and lab.became(f"job {kind}", "finished"))
        lab.once(f"broken {kind}", kind)


def _helpers(lab: boxes.Lab) -> None:
    """Whoever watches over the job is killed: it goes on, and the box stays taken."""
    lab.check("start", lab.start("watched", "watched", "hold") == 0 and lab.began("watched"))
    pid = (lab.rows("watched") or [["start", 0]])[0][1]
    where, watcher = (lab.box.world, lab.host), boxes.parent(pid)
    if boxes.on_box(*where, watcher):
        boxes.kill(watcher)
    lab.check("it runs on without its helper", lab.state("watched") == "running" and boxes.on_box(*where, pid))
    lab.check("a refused name", lab.start("watched", "watched", "hold") not in (0, None))
    lab.check("the next waits", lab.start("next", "next", "hold") == 0 and lab.state("next") == "waiting")
    lab.go("watched")
    lab.check("the next goes on", lab.began("next") and lab.became("next", "running"))
    lab.check("the first has ended", lab.state("watched") in ("finished", "failed", "lost"))
    lab.once("watched", "watched")


def _plugs(lab: boxes.Lab) -> None:
    """Two calls in the same moment; then the power goes."""
    with ThreadPoolExecutor(3) as pool:
        codes = list(pool.map(lambda _: lab.start("twin", "twin", "hold"), range(3)))
    lab.check("three at once: two are refused", codes.count(0) == 1)
    lab.go("twin")
    lab.check("it finishes", lab.ended("twin") and lab.became("twin", "finished"))
    lab.once("three calls at once", "twin")
    lab.check("start", lab.start("long", "long", "hold") == 0 and lab.began("long"))
    lab.check("another waits", lab.start("longer", "longer", "hold") == 0 and lab.state("longer") == "waiting")
    with boxes.taken(lab.box.world, lab.host, boxes.cut_power(lab.box.world, lab.host)):
        lab.check("after the power cut", lab.state("long") in ("lost", "failed"))
        lab.check("what waited then", lab.state("longer") in ("lost", "failed"))
    nobody = boxes.Lab(lab.box, "nobody")
    lab.check("no such box", nobody.state("twin") == "unknown" and nobody.start("x", "x") not in (0, None))
    lab.check("it starts again", lab.start("long", "l2") == 0 and lab.ended("l2") and lab.became("long", "finished"))


def verify(box: Box) -> list[str]:
    for name in COMMANDS:
        tool.call(box, name, "nobody", "x", "--", "true", seconds=boxes.SECONDS)
    boxes.put_up(box.world, *HOSTS)
    labs = [boxes.Lab(box, host) for host in HOSTS]
    trials = zip((_arguments, _line, _breaks, _helpers, _plugs), labs, strict=True)
    try:
        with ThreadPoolExecutor(len(HOSTS)) as pool:
            list(pool.map(lambda pair: pair[0](pair[1]), trials))
    finally:
        for host in (*HOSTS, "box1", "box2"):
            boxes.cut_power(box.world, host)
    return boxes.verdict(labs, WRONG)


_REFERENCE = """#!/usr/bin/env python
import json, sys
from pathlib import Path
sys.path.insert(0, "{scripts}")
from backends import ssh
from rgt import errors, hosts
verb, host, name = Path(sys.argv[0]).name, hosts.Host(sys.argv[1]), sys.argv[2]
try:
    ssh.ship(host)  # the gate: one file, its own line of jobs on the box
    start = ["-n", name, "--slots", "1", "--unique", "--detach", "--", *sys.argv[4:]]
    gate = {"start": start, "state": ["status", name, "--json"], "log": ["logs", name, "-n", "1000000"]}[verb]
    done = host.run([*ssh.gate_words(), *gate], expand=(1,))
except errors.RgtError as error:
    print("unknown" if verb == "state" else "")
    sys.exit(error.message)
if verb == "state":
    state = json.loads(done.out)["state"] if done.code == 0 else "unknown"
    print({"queued": "waiting", "done": "finished", "timeout": "failed", "cancelled": "failed"}.get(state, state))
print(done.out if verb == "log" else "", end="")
sys.exit(done.code)
"""
# what a capable agent in a hurry leaves: quoted words, setsid, flock for the line, pid and exit code in files
_NAIVE = """#!/usr/bin/env python
import hashlib, shlex, subprocess, sys
from pathlib import Path
verb, host, name = Path(sys.argv[0]).name, *sys.argv[1:3]
job = "jobs/" + hashlib.sha256(name.encode()).hexdigest()[:16]
def ssh(command):
    words = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=8", host, command]
    return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True)
living = f'[ -e {job}/pid ] && [ ! -e {job}/code ] && kill -0 $(cat {job}/pid) 2>/dev/null'
if verb == "start":
    inner = f"touch {job}/started; {shlex.join(sys.argv[4:])}; echo $? > {job}/code"
    done = ssh(f"mkdir -p {job}; if {living}; then exit 4; fi; rm -f {job}/started {job}/code; "
               f"setsid nohup flock jobs/lock sh -c {shlex.quote(inner)} > {job}/log 2>&1 < /dev/null & "
               f"echo $! > {job}/pid")
    sys.exit(done.returncode)
elif verb == "state":
    done = ssh(f"if [ ! -e {job} ]; then echo unknown; elif [ -e {job}/code ]; then "
               f"if [ $(cat {job}/code) = 0 ]; then echo finished; else echo failed; fi; elif {living}; then "
               f"if [ -e {job}/started ]; then echo running; else echo waiting; fi; else echo lost; fi")
    print(done.stdout.strip() or "unknown")
else:
    print(ssh(f"cat {job}/log").stdout, end="")
"""


CASE = Case(
    route="train something: here, over ssh, docker, Slurm, Kubernetes",
    reads=("references/run-local/launch.md",),
    minutes=6,
    commands=30,
    make=make,
    verify=verify,
    reference=tool.leaving(_REFERENCE, *COMMANDS),
    naive=tool.leaving(_NAIVE, *COMMANDS),
    expected="Jobs run once, one at a time and in order, words intact, whatever plug is pulled.",
)
