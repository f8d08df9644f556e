"""What somebody who takes over must not overlook, as findings. Old runs are history: they are listed, not judged."""

from __future__ import annotations

import re
import time

from inventory.screen import plural
from inventory.snapshot import Process, Snapshot
from inventory.survey import Run
from rgt import gate, logs, units
from rgt.report import Report

RECENT = 86400.0  # seconds; a run that ended before is not judged
QUIET = 600.0  # seconds without a line after which a living process is suspect
QUIET_STEPS = 20  # or this many steps of its own speed, if that is longer
_FULL = 0.03  # share of bytes or inodes that may be left

_NAMELESS = re.compile(r"/#\d+$")  # O_TMPFILE: it never had a name that could be deleted


def judge(box: Snapshot, report: Report) -> None:
    judged: set[str] = set()
    for process in box.processes:
        _process(process, report)
        judged |= {process.source, process.trainer.log.path}
    for run in box.runs:
        if run.age < RECENT:
            _run(run, report, judged)
    _gpus(box, report)
    _jobs(box, report)
    _disks(box, report)
    _git(box, report)


def _process(process: Process, report: Report) -> None:
    trainer, who = process.trainer, f"pid {process.trainer.pid}"
    for problem in process.summary.problems:
        if not problem.recovered:
            report.add(
                problem.code,
                "error",
                logs.SENTENCES[problem.code],
                path=process.source,
                where=who,
                evidence=problem.line,
            )
    if trainer.log.kind == "deleted" and not _NAMELESS.search(trainer.log.path):
        fix = f"cp {trainer.log.readable} rescued.log, before the process ends"
        report.add("lost-log", "warn", "its log was deleted while it writes", path=trainer.log.path, where=who, fix=fix)
    if trainer.log.kind in ("null", "closed") and not process.summary.found:
        report.add("lost-log", "warn", "its output goes nowhere, and no other file of it has numbers", where=who)
    quiet = max(QUIET, QUIET_STEPS / process.summary.it_per_s if process.summary.it_per_s else 0.0)
    if trainer.state == "T":
        report.add("stalled", "warn", "the process is stopped (SIGSTOP)", where=who, fix=f"kill -CONT {trainer.pid}")
    elif process.age is not None and process.age > quiet:
        _stalled(process, report, who)


def _stalled(process: Process, report: Report, who: str) -> None:
    age = units.show_duration(process.age or 0.0)
    buffered = "" if process.summary.last_line else "; stdout may be buffered (python -u, PYTHONUNBUFFERED=1)"
    fix = f"py-spy dump --pid {process.trainer.pid} shows where it is, before anything is killed"
    report.add(
        "stalled", "warn", f"alive, but no new line for {age}{buffered}", path=process.source, where=who, fix=fix
    )


def _run(run: Run, report: Report, judged: set[str]) -> None:
    """Its log, unless a living process was judged by the same one; its newest checkpoint in any case."""
    if not judged & {run.path, run.log.path if run.log else run.path}:
        for problem in run.summary.problems:
            if not problem.recovered:
                report.add(problem.code, "error", logs.SENTENCES[problem.code], path=run.path, evidence=problem.line)
    if run.check and run.check.state == "broken":
        older = f"; {len(run.checkpoints) - 1} older ones are there" if len(run.checkpoints) > 1 else ""
        report.add(
            "truncated", "error", f"the newest checkpoint is broken: {run.check.message}{older}", path=run.check.path
        )


def _gpus(box: Snapshot, report: Report) -> None:
    if box.gpus.problem:
        report.add("gpu", "error", box.gpus.problem)
    for card in box.gpus.gpus:
        if card.error:
            report.add("gpu", "error", card.error, where=f"GPU {card.index}")
    for pid, cards in box.unseen_pids().items():
        report.add("unseen", "info", f"pid {pid} holds GPU {cards[0]} but is not visible here (another container?)")


def _jobs(box: Snapshot, report: Report) -> None:
    for row in box.queues:
        for job in row.jobs if row.tool == "gpu_gate" else []:
            bad = job["state"] in gate.FINAL and job["state"] not in ("done", "cancelled")
            if bad and time.time() - float(job["ended"] or job["started"] or job["submitted"]) < RECENT:
                reason = job["reason"] or f"exit code {job['exit_code']}"
                report.add("failed", "warn", f"{job['state']}: {reason}", path=job["log"] or "", where=job["id"])


def _disks(box: Snapshot, report: Report) -> None:
    largest = max((run.checkpoints[-1].bytes for run in box.runs if run.checkpoints), default=0)
    for disk in box.disks:
        if disk.path in ("/tmp", "/dev/shm") and disk.free_share > _FULL:
            continue
        if disk.free_share < _FULL or disk.free < 2 * largest:
            room = f"{units.show_size(disk.free)} free"
            need = f", a checkpoint takes {units.show_size(largest)}" if largest else ""
            report.add("no-space", "warn", f"{room}{need}", path=disk.path)
        if disk.inodes_share < _FULL:
            report.add("no-space", "warn", f"{disk.inodes_free} inodes free of {disk.inodes}", path=disk.path)


def _git(box: Snapshot, report: Report) -> None:
    for row in box.git:
        unsaved = [f"{row[name]} {name}" for name in ("changed", "untracked") if row.get(name)]
        unsaved += [f"{plural(row['unpushed'], 'commit')} on no remote"] if row.get("unpushed") else []
        unsaved += [plural(row["stashes"], "stash", "es")] if row.get("stashes") else []
        if unsaved:
            report.add("unsaved", "info", ", ".join(unsaved), path=row["path"])
