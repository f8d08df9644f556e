"""One card and a line before it, kept by a command without a daemon: real jobs, real kills, and a ledger."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time

from trials.case import Box, Case
from worlds import boxes, card, tool

WRONG = 0.06  # the share of checks that may fail; two at once, or a lost job, are never forgiven
AWKWARD = ["", "two words", "it's", '"q"', "a\nb\n", "$HOME $(touch pwned) `id`", "*", "--", "-n", "--help", "größe",
           "训练", "back\\slash\\n", "\t", "!;&|<>", "#", "x" * 9000]  # fmt: skip
NOTE, STDIN, LONG = "it's\n$5", "läuft\n\0 the end", 60.0


def make(box: Box) -> None:
    box.write("README", "one card in this box; ./only will be the way to it\n")


def _line(one: card.Card) -> None:
    """Behind a worker that was left behind: eight callers, of whom two are killed and one loses its terminal."""
    link, elsewhere, home = card.odd_ways(one)
    one.call("first", LONG, one.words("first", "leaves", 5), settle=False)
    one.check("a job that leaves a worker behind starts", one.began("first", "left", 60))
    (one.place / "stdin").write_text(STDIN)
    one.call("words", LONG, one.words("words", "words", 0, *AWKWARD), by=link, cwd=elsewhere,
             stdin=(one.place / "stdin").open(), env={**home, "RUN_NOTE": NOTE}, name="größe/8 'x' $y")  # fmt: skip
    one.call("signal", LONG, one.words("signal", "dies"), env=home, name="same")
    one.call("killed waiting", LONG, one.words("killed waiting", "quick"), name="same")
    one.call("closed", LONG, one.words("closed", "quick", 7), env=home, cwd="/")
    one.call("ended waiting", LONG, one.words("ended waiting", "quick"))
    one.call("missing", LONG, ["no-such-program-here"], by=os.path.relpath(one.command, elsewhere), cwd=elsewhere)
    one.call("last", LONG, one.words("last", "quick", 3), cwd=elsewhere)
    boxes.kill(one.callers["killed waiting"].pid)
    boxes.kill(one.callers["ended waiting"].pid, signal.SIGTERM)
    os.killpg(one.callers["closed"].pid, signal.SIGHUP)
    time.sleep(0.5)
    one.check("nobody passes the worker that was left behind", len({row[1] for row in one.rows()}) == 1)
    one.go("first left")
    for key, code in (("first", 5), ("words", 0), ("signal", 128 + signal.SIGSEGV), ("closed", 7), ("last", 3)):
        one.check(f"the exit code of {key}", one.code(key) == code)
    one.check("a program that is not there", one.code("missing") not in (0, None))
    order = [row[1] for row in one.rows(what="start") if row[2] not in ("fork", "left")]
    one.check(f"the order was {order}", order == ["first", "words", "signal", "closed", "last"])
    for key in ("killed waiting", "ended waiting"):
        one.check(f"{key} does not run", key not in order and one.code(key) not in (0, None))
    told = (one.rows("words", "start") or [[[]] * 9])[0][5:]
    for index, word in enumerate(AWKWARD):
        one.check(f"the word {word[:20]!r}", told[:1] != [] and told[0][index : index + 1] == [word])
    one.check("folder, environment, stdin", told[1:] == [str(elsewhere), NOTE, STDIN])
    one.check("the output", b"said by words" in (one.place / "words.out").read_bytes())


def _killed(one: card.Card) -> None:
    """Its caller is killed with all helpers: the job and then what it left behind keep the card. Then the limits."""
    one.call("killed", LONG, one.words("killed", "killed"), cwd="/", settle=False)
    one.check("it starts", one.began("killed", "left"))
    one.call("stubborn", 0.8, one.words("stubborn", "stubborn"))
    one.call("saves", 0.7, one.words("saves", "saves"))
    one.call("left over", 0.7, one.words("left over", "leaves"))
    one.call("patient", 2.0, one.words("patient", "quick", 9))  # has waited for longer than its limit by then
    one.kill_helpers("killed")
    time.sleep(0.6)
    one.must(
        "a running job was lost with its caller",
        all(card.living(one.pids("killed", role)[0]) for role in ("killed", "left")),
    )
    one.go("killed")
    time.sleep(0.6)
    one.check("nobody else is on the card", not one.rows("stubborn") and not one.rows("saves"))
    one.must("what a job left behind was lost", card.living(one.pids("killed", "left")[0]))
    one.go("killed left")
    one.check("the next one starts", one.began("stubborn", "far"))
    for key, code in (("stubborn", 124), ("saves", 124), ("patient", 9)):
        one.check(f"the exit code of {key}", one.code(key) == code)
    for key in ("stubborn", "left over"):
        left = [pid for pid in one.pids(key) if card.living(pid)]
        one.check(f"{key}: {len(left)} processes live after the limit", not left and bool(one.rows(key)))
    one.check("there was time to save", bool(one.rows("saves", "saved")))


def _signals(one: card.Card) -> None:
    """A closed laptop, and a plain kill."""
    one.call("prints", LONG, one.words("prints", "prints"), out=subprocess.PIPE, settle=False)
    one.check("it starts", one.began("prints"))
    one.call("told", LONG, one.words("told", "saves", 4))
    one.stop_reading("prints")
    os.killpg(one.callers["prints"].pid, signal.SIGHUP)
    time.sleep(0.3)
    one.go("prints")
    one.must("a hangup ended a running job", one.until(lambda: bool(one.rows("prints", "end")), 5))
    one.check("the next one starts", one.began("told"))
    boxes.kill(one.callers["told"].pid, signal.SIGTERM)
    one.check("a plain kill reaches the job", one.until(lambda: bool(one.rows("told", "saved")), 5))
    one.go("told")
    one.check("and its exit code comes back", one.code("told") == 4)


def _crowd(one: card.Card) -> None:
    """Eight at the same moment, three of them killed at some other; then the power goes."""
    dice = random.Random(11)
    keys = [f"crowd {number}" for number in range(8)]
    for key in keys:
        one.call(key, LONG, one.words(key, "quick", 6), settle=False)
    for key in keys[2::3]:
        time.sleep(dice.uniform(0.05, 0.3))
        boxes.kill(one.callers[key].pid)
    for key in keys:
        code = one.code(key, 20)
        one.check(f"{key} ends with {code}", code == 6 or key in keys[2::3])
        one.check(f"{key} ran {len(one.rows(key, 'start'))} times", len(one.rows(key, "start")) == 1 or code != 6)
    one.call("dark", LONG, one.words("dark", "killed"), settle=False)
    one.check("it starts", one.began("dark", "left"))
    one.call("dark too", LONG, one.words("dark too", "quick"))
    with boxes.taken(one.box.world, "card", one.power_off()):
        one.call("light", LONG, one.words("light", "quick", 8), settle=False)
        one.check("after a power cut the next one runs", one.code("light", 12) == 8)
    one.check("what waited then is gone", not one.rows("dark too"))


def verify(box: Box) -> list[str]:
    with card.of(box, "only") as one:
        for scene in (_line, _killed, _signals, _crowd):
            scene(one)
            if problems := one.overlaps():
                return problems[:1]
    fine = len(one.wrong) <= WRONG * one.checks
    return [] if fine else [f"{len(one.wrong)} of {one.checks}: {'; '.join(one.wrong[:8])}"]


_REFERENCE = """#!/bin/sh
name=$1 limit=$2
shift 3
export RGT_QUEUE="{work}/.queue"  # one line for all, whatever their HOME is
exec "{scripts}/gpu_gate.sh" run -n "$name" -t "${limit}s" --grace 2s --slots 1 -- "$@"
"""
# what a capable agent in a hurry leaves: numbered tickets, a lock that the job inherits, the group killed at the limit
_NAIVE = r"""#!/usr/bin/env python
import fcntl, os, signal, subprocess, sys, time
from pathlib import Path
limit, command = float(sys.argv[2]), sys.argv[4:]
home = Path(__file__).resolve().parent / ".only"
(home / "line").mkdir(parents=True, exist_ok=True)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with open(home / "mutex", "w") as mutex:
    fcntl.flock(mutex, fcntl.LOCK_EX)
    number = max((int(p.name) for p in (home / "line").iterdir()), default=0) + 1
    ticket = home / "line" / f"{number:08d}"
    mine = open(ticket, "w")
    fcntl.flock(mine, fcntl.LOCK_EX)
def waiting(path):
    try:
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink(missing_ok=True)
        return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
while any(waiting(p) for p in sorted((home / "line").iterdir()) if p.name < ticket.name):
    time.sleep(0.1)
lock = open(home / "card", "a")
fcntl.flock(lock, fcntl.LOCK_EX)
job = subprocess.Popen(command, pass_fds=[lock.fileno()], start_new_session=True)
ticket.unlink()
signal.signal(signal.SIGTERM, lambda *_: os.killpg(job.pid, signal.SIGTERM))
try:
    code = job.wait(limit)
except subprocess.TimeoutExpired:
    os.killpg(job.pid, signal.SIGTERM)
    time.sleep(2)
    subprocess.run(["pkill", "-9", "-s", str(job.pid)])
    code = 124
sys.exit(code if code >= 0 else 128 - code)
"""


CASE = Case(
    route="only queue a command on the GPUs of this box",
    reads=(),
    minutes=4,
    commands=30,
    make=make,
    verify=verify,
    reference=tool.leaving(_REFERENCE, "only"),
    naive=tool.leaving(_NAIVE, "only"),
    expected="Jobs run in order and never two at once, whoever is killed and whatever a job leaves behind.",
)
