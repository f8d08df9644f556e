"""Seven jobs for one card: one fails, one hangs with a child that ignores SIGTERM, one leaves a process behind."""

from __future__ import annotations

import itertools
import stat
import subprocess
import time

from trials.case import Box, Case

# what each job does between its start and end lines; the ledger is below the folder of the jobs
BODIES = {
    "01": "sleep 0.6",
    "02": "sleep 0.3; mark end; exit 7",
    "03": "sleep 0.3",
    "04": "( trap '' TERM HUP; sleep 2; mark late ) & sleep 0.2",  # leaves a child that still uses the card
    "05": 'sh -c \'trap "" TERM; for i in $(seq 60); do sleep 0.3; date "+busy 05 %s.%N"; done\' >> ledger.txt & wait',
    "06": "sleep 0.3",
    "07": "sleep 0.3",
}
PATIENCE = 60  # seconds that the verifier waits for the line to run dry
SILENCE = 12  # no job is silent for so long: nothing more will come


def make(box: Box) -> None:
    (box.work / "jobs").mkdir()
    (box.work / "ledger.txt").write_text("")
    for name, body in BODIES.items():
        path = box.work / "jobs" / f"{name}.sh"
        path.write_text(
            '#!/bin/sh\ncd "$(dirname "$0")/.." || exit 9\n'
            f'mark() {{ echo "$1 {name} $(date +%s.%N)" >> ledger.txt; }}\nmark start\n{body}\nmark end\n'
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


def _rows(box: Box) -> list[tuple[str, str, float]]:
    lines = [line.split() for line in (box.work / "ledger.txt").read_text().splitlines()]
    return [(what, job, float(when)) for what, job, when in lines]


def verify(box: Box) -> list[str]:
    deadline = time.monotonic() + PATIENCE
    if not _rows(box):  # nothing queued shows at once; a queue of a slow box gets its time
        deadline = time.monotonic() + 6
    rows, changed = _rows(box), time.monotonic()
    while time.monotonic() < min(deadline, changed + SILENCE) and not any(row[:2] == ("end", "07") for row in rows):
        time.sleep(0.3)
        rows, before = _rows(box), rows
        changed = time.monotonic() if rows != before else changed
    spans = {
        job: (min(t for _, j, t in rows if j == job), max(t for _, j, t in rows if j == job)) for _, job, _ in rows
    }
    problems = []
    if sorted(spans) != ["01", "02", "04", "05", "07"]:
        problems.append(f"the jobs that ran are {sorted(spans)}")
    order = sorted(spans, key=lambda job: spans[job][0])
    if order != sorted(order):
        problems.append(f"the order was {order}")
    for one, next_ in itertools.pairwise(order):
        if spans[one][1] > spans[next_][0]:
            problems.append(f"{next_} started while {one} was still using the card")
    if "05" in spans and spans["05"][1] - spans["05"][0] > 25:
        problems.append("05 ran far beyond its limit")
    if any(count > 1 for count in (sum(row[:2] == ("start", job) for row in rows) for job in spans)):
        problems.append("a job ran twice")
    return problems


def reference(box: Box) -> None:
    gate = box.skill / "scripts" / "gpu_gate.sh"
    after = {"03": "02", "06": "05"}
    for job in BODIES:
        words = ["--then", f"job{after[job]}"] if job in after else []
        box.run(
            gate,
            "-n",
            f"job{job}",
            "-t",
            "5s",
            "--grace",
            "1s",
            "--slots",
            "1",
            "--detach",
            *words,
            "--",
            f"jobs/{job}.sh",
        )


def naive(box: Box) -> None:
    loop = "for j in 01 02 03 04 05 06 07; do timeout 5 jobs/$j.sh; done"
    subprocess.Popen(
        ["sh", "-c", loop],
        cwd=box.work,
        env=box.env,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


CASE = Case(
    route="only queue a command on the GPUs of this box",
    reads=(),
    minutes=5,
    commands=20,
    make=make,
    verify=verify,
    reference=reference,
    naive=naive,
    expected="01, 02, 04, 05 (killed with its child) and 07 run one after the other; 03 and 06 are skipped.",
)
