"""A snapshot as one screen of text, and what somebody who takes over must not overlook, as findings.

What decides comes first, what is long is counted; --json has it all. Beside runs that go on, old ones are not judged.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sized
from pathlib import Path
from typing import Any

from rgt.job import queue as gate
from rgt.log.fate import SENTENCES
from rgt.log.history import History
from rgt.metrics.table import role
from rgt.report import SEVERITIES, Finding, Report, plural
from rgt.run.discovery import Run
from rgt.takeover import outcomes
from rgt.takeover.snapshot import Process, Snapshot
from rgt.units import show_duration, show_size

QUIET = 600.0  # seconds without a line after which a living process is suspect
QUIET_STEPS = 20  # or this many steps of its own speed, if that is longer
WIDTH = 160
_FULL = 0.03  # share of bytes or inodes that may be left
_PROCESSES, _RUNS, _JOBS, _FINDINGS, _STOPPED = 5, 10, 4, 8, 3  # rows shown
_JOB_FIELDS = "state id name session pane tty elapsed status image where reason command".split()
_JOB_STATES = ("running", "RUNNING", "queued", "waiting", "PENDING")
# the metrics that are shown, in this order
_SHOWN = ("loss", "val_loss", "accuracy", "reward")


def lines(box: Snapshot, report: Report) -> Iterator[str]:
    host, when = box.host, time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(box.time))
    facts = [host["name"], f"{when} UTC", f"load {host['load']} of {host['cpus']} CPUs"]
    if "memory" in host:
        facts.append(f"RAM {show_size(host['memory_available'])} free of {show_size(host['memory'])}")
    disks = []
    for disk in box.disks[:3]:
        share = f"{show_size(disk.free)} free of {show_size(disk.total)} ({disk.free_share:.0%})"
        disks.append(f"{disk.path} {share}" + (f", inodes {disk.inodes_share:.0%} free" if disk.inodes else ""))
    repositories = []
    for row in box.git:
        head = f"{row['path']} {row.get('branch')} {str(row.get('commit') or 'no commit')[:10]}"
        good = " · ".join([head, *(_unsaved(row) or ["clean and pushed"])])
        repositories.append(f"{row['path']}: {row['problem']}" if "problem" in row else good)
    here: list[Finding] = []
    elsewhere: list[Finding] = []
    for finding in sorted(report.findings, key=lambda finding: SEVERITIES.index(finding.severity)):
        # what the user asked about, and what has no place: cards, queues, this machine's disks
        path = finding.path
        asked = any(path == root or _inside(path, root) for root in box.scope)
        (here if asked or path == "/" or not path.startswith("/") else elsewhere).append(finding)
    findings = []
    for finding in here[:_FINDINGS]:
        path = os.path.relpath(finding.path) if finding.path and _inside(finding.path, ".") else finding.path
        place = " ".join(filter(None, (finding.where, path)))
        seen = f"{finding.message} ({finding.evidence})" if finding.evidence else finding.message
        findings.append(f"{finding.severity} " + ": ".join(filter(None, (finding.code, place, seen))))
    folders = list(dict.fromkeys(os.path.dirname(finding.path) for finding in elsewhere))
    others = f"elsewhere: {plural(len(elsewhere), 'finding')} outside this directory (--json): {' '.join(folders[:3])}"
    others += " ..." if len(folders) > 3 else ""
    for name, rows in (
        ("box", [" · ".join([*facts, f"took {box.seconds} s"])]),
        ("gpus", _gpus(box)),
        ("processes", _processes(box)),
        ("queues", _queues(box)),
        ("git", repositories),
        ("runs", _runs(box)),
        ("disks", [" · ".join(disks)]),
        ("look at", [*findings, *_more(here, _FINDINGS), *([others] if elsewhere else [])]),
        ("not seen", [*box.stopped[:_STOPPED], *_more(box.stopped, _STOPPED)]),
    ):
        width = 2 * WIDTH if name in ("look at", "not seen") else WIDTH
        for number, line in enumerate(rows):
            text = " ".join(f"{'' if number else name:10}{line}".splitlines())
            yield text if len(text) <= width else text[: width - 3] + "..."


def _more(rows: Sized, shown: int) -> list[str]:
    return [f"... and {len(rows) - shown} more (--json)"] if len(rows) > shown else []


def _gpus(box: Snapshot) -> Iterator[str]:
    if not box.gpus.gpus:
        yield box.gpus.problem or "none"
    for card in box.gpus.gpus:
        facts = [f"{show_size(card.memory_used or 0)} of {show_size(card.memory_total or 0)}"]
        facts += [f"{card.utilization} %"] if card.utilization is not None else []
        facts += [f"{card.temperature} C"] if card.temperature is not None else []
        facts += [f"pids {' '.join(str(p.pid) for p in card.processes)}"] if card.processes else ["idle"]
        name = f"{card.index} {card.name}"
        yield f"{name} {card.error}" if card.error else " · ".join([name, *facts, *card.slowdown])


def _processes(box: Snapshot) -> Iterator[str]:
    if not box.processes:
        yield "no training process"
    holding_a_card_first = sorted(box.processes, key=lambda process: not process.trainer.gpus)
    for process in holding_a_card_first[:_PROCESSES]:
        trainer = process.trainer
        more = f" +{len(trainer.members) - 1}" if len(trainer.members) > 1 else ""
        yield f"{trainer.pid}{more} {trainer.text if len(trainer.text) <= 90 else trainer.text[:87] + '...'}"
        facts = [f"{show_duration(trainer.elapsed)} · {trainer.user} · {trainer.origin}"]
        memory = f" {show_size(trainer.gpu_memory)}" if trainer.gpu_memory is not None else ""
        facts += [f"GPU {','.join(map(str, trainer.gpus))}{memory}"] if trainer.gpus else []
        yield "    " + " · ".join(filter(None, [*facts, trainer.cwd, trainer.python]))
        yield f"    {progress(process.summary) or 'no numbers yet'}"
        log = trainer.log
        text = {
            "file": f"log {log.path}",
            "deleted": f"log {log.path} (deleted; still in {log.readable})",
            "pipe": f"a pipe to {log.via}" + (f", log {log.path}" if log.path else ""),
            "terminal": f"terminal {log.path}" + (f" ({log.via})" if log.via else ""),
            "null": "stdout goes to /dev/null",
            "socket": "stdout goes to a socket",
            "closed": "stdout is closed",
            "hidden": "we may not see its files (another user)",
        }[log.kind]
        if process.source and process.source not in (log.path, log.via):
            text += f", numbers from {process.source}"
        yield f"    {text}" + (f", last line {_ago(process.age)}" if process.age is not None else "")
    yield from _more(box.processes, _PROCESSES)


def _ago(seconds: float) -> str:
    return f"{show_duration(max(1.0, round(seconds))).replace('.0s', 's')} ago"


def progress(summary: History, few: bool = False, speed: bool = True) -> str:
    """'step 1200 of 5000, loss 2.31, val_loss 2.4, 12.1 it/s, ETA 5m13s'; without `speed`, only what stays."""
    step, batch = ("" if number is None else str(number) for number in (summary.step, summary.batch))
    epoch = "" if summary.epoch is None else f"{summary.epoch:g}"
    counts = (("step", step, summary.total), ("epoch", epoch, summary.epochs), ("batch", batch, summary.batches))
    facts = [f"{name} {number}" + (f" of {total}" if total else "") for name, number, total in counts if number]
    # a few metrics that everybody looks at; one that is not known is better than none
    metrics = summary.metrics
    roles = sorted((which[1], which[0], name) for name in metrics if (which := role(name)))
    best = {which: name for _, which, name in reversed(roles)}
    shown = [best[which] for which in _SHOWN if which in best]
    shown = shown or [name for name in metrics if "loss" in name][:2] or list(metrics)[:2]
    facts += [f"{name} {metrics[name]:.4g}" for name in shown[: 3 if few else None]]
    if speed:
        facts += [f"{summary.it_per_s:.3g} it/s"] if summary.it_per_s else []
        facts += [f"{summary.tokens_per_s:.3g} tokens/s"] if summary.tokens_per_s else []
        eta, of = (summary.eta, "") if summary.eta is not None else (summary.epoch_eta, "epoch ")
        facts += [f"{of}ETA {show_duration(eta)}"] if eta is not None else []
    return ", ".join(facts)


def _queues(box: Snapshot) -> Iterator[str]:
    silent: dict[str | None, list[str]] = {}
    rank = {state: number for number, state in enumerate(_JOB_STATES)}
    for row in box.queues:
        for job in sorted(row.jobs, key=lambda job: rank.get(str(job.get("state")), len(rank)))[:_JOBS]:
            values = filter(None, map(job.get, _JOB_FIELDS))
            words = (" ".join(map(str, value)) if isinstance(value, list) else str(value) for value in values)
            yield f"{row.tool}: {' '.join(words)}"
        yield from _more(row.jobs, _JOBS)
        if not row.jobs:
            # why a tool gives no answer is in --json; its raw error would stand on every screen
            word = row.problem if row.problem in ("no jobs", "not running", "not installed") else "no answer"
            silent.setdefault(word, []).append(row.tool)
    yield from (f"{', '.join(tools)}: {problem}" for problem, tools in silent.items())


def _unsaved(row: dict[str, Any]) -> list[str]:
    """What of a repository is on this disk only."""
    facts = [f"{row[name]} {name}" for name in ("changed", "untracked") if row.get(name)]
    facts += [f"{plural(row['unpushed'], 'commit')} on no remote"] if row.get("unpushed") else []
    return facts + ([plural(row["stashes"], "stash", "es")] if row.get("stashes") else [])


def _runs(box: Snapshot) -> Iterator[str]:
    places = " ".join(box.roots)
    first = "" if box.roots == box.scope else f"those below {' '.join(box.scope)} first; "
    order = f"{len(box.runs)} {first}below {places}, newest first"
    yield order if box.runs else f"none below {places or 'any directory'}"
    for run in box.runs[:_RUNS]:
        facts = [progress(run.summary, few=True) if run.read else "not read"]
        facts += ["tensorboard events only"] if run.tfevents and not run.summary.found else []
        if run.checkpoints:
            newest, state = run.checkpoints[-1], "unchecked"
            if check := run.check:  # how deep it was looked at stands in the parentheses
                words = {"ok": f"whole ({check.depth})", "unknown": "of unknown format"}
                state = words.get(check.state, check.state.upper())
            last = f"last {_ago(time.time() - newest.mtime)} {show_size(newest.bytes)} {state}"
            facts.append(f"{plural(len(run.checkpoints), 'checkpoint')}, {last}")
        facts += [problem.code for problem in run.summary.problems if not problem.recovered]
        facts.append(f"pid {run.pid}" if run.pid else "finished" if run.finished else "")
        place = next((os.path.relpath(run.path, root) for root in box.roots if _inside(run.path, root)), run.path)
        yield f"{_ago(run.age):11} {place}: {' · '.join(filter(None, facts)) or 'no numbers'}"
    yield from _more(box.runs, _RUNS)


def _inside(path: str, root: str) -> bool:
    return os.path.abspath(path).startswith(os.path.abspath(root).rstrip("/") + "/")


# -- findings


def judge(box: Snapshot, report: Report) -> None:
    judged: set[str] = set()
    for process in box.processes:
        _judge_process(process, report)
        judged |= {process.source, process.trainer.log.path}
    for run in box.judged:
        if not judged & {run.path, run.log.path if run.log else run.path}:  # else its process was judged by it
            _add_problems(run.summary, report, path=run.path)
        _judge_pid_files(run, box, report)
        if run.check and run.check.state == "broken":
            older = f"; {len(run.checkpoints) - 1} older ones are there" if len(run.checkpoints) > 1 else ""
            message = f"the newest checkpoint is broken: {run.check.message}{older}"
            report.add("truncated", "error", message, path=str(run.check.path))
    _judge_gpus_and_jobs(box, report)
    largest = max((run.checkpoints[-1].bytes for run in box.runs if run.checkpoints), default=0)
    need = f", a checkpoint takes {show_size(largest)}" if largest else ""
    for disk in box.disks:
        scratch = disk.path in ("/tmp", "/dev/shm") and disk.free_share > _FULL
        if not scratch and (disk.free_share < _FULL or disk.free < 2 * largest):
            report.add("no-space", "warn", f"{show_size(disk.free)} free{need}", path=disk.path)
        if not scratch and disk.inodes_share < _FULL:
            report.add("no-space", "warn", f"{disk.inodes_free} inodes free of {disk.inodes}", path=disk.path)
    _judge_code_and_files(box, report)


def _judge_code_and_files(box: Snapshot, report: Report) -> None:
    for drift in box.drift:
        message = f"{plural(len(drift['files']), 'file')} differ from the code that this run recorded: "
        message += ", ".join(drift["files"][:6]) + (" ..." if len(drift["files"]) > 6 else "")
        fix = "resume it from a worktree of its own commit and patch (references/takeover.md), not from this checkout"
        report.add("drift", "warn", message, path=drift["path"], evidence=f"recorded {drift['commit'][:10]}", fix=fix)
    for end in box.loose:
        report.add(
            end.code, end.severity, end.message, path=end.path, fix=end.fix or None, evidence=end.evidence or None
        )
    for row in box.git:
        if unsaved := _unsaved(row):
            report.add("unsaved", "info", ", ".join(unsaved), path=row["path"])


def _add_problems(summary: History, report: Report, path: str, where: str | None = None) -> None:
    for problem in summary.problems:
        if not problem.recovered:
            message = SENTENCES[problem.code]
            report.add(problem.code, "error", message, path=path, where=where, evidence=problem.line)


def _judge_process(process: Process, report: Report) -> None:
    trainer, log, who = process.trainer, process.trainer.log, f"pid {process.trainer.pid}"
    _add_problems(process.summary, report, process.source, who)
    if log.kind == "deleted":
        fix = f"cp {log.readable} rescued.log, before the process ends"
        report.add("lost-log", "warn", "its log was deleted while it writes", path=log.path, where=who, fix=fix)
    if log.kind in ("null", "closed") and not process.summary.found:
        report.add("lost-log", "warn", "its output goes nowhere, and no other file of it has numbers", where=who)
    quiet = max(QUIET, QUIET_STEPS / process.summary.it_per_s if process.summary.it_per_s else 0.0)
    if trainer.state == "T":
        report.add("stalled", "warn", "the process is stopped (SIGSTOP)", where=who, fix=f"kill -CONT {trainer.pid}")
    elif process.age is not None and process.age > quiet:
        buffered = "" if process.summary.last_line else "; stdout may be buffered (python -u, PYTHONUNBUFFERED=1)"
        message = f"alive, but no new line for {show_duration(process.age)}{buffered}"
        fix = f"py-spy dump --pid {trainer.pid} shows where it is, before anything is killed"
        report.add("stalled", "warn", message, path=process.source, where=who, fix=fix)


def _judge_pid_files(run: Run, box: Snapshot, report: Report) -> None:
    """A pid file that names somebody else's process."""
    owners = {process.trainer.pid: process.trainer for process in box.processes}
    folder = run.path if os.path.isdir(run.path) else os.path.dirname(run.path)
    for path in Path(folder).glob("*pid"):
        with contextlib.suppress(OSError, ValueError):
            pid = int(path.read_text()[:20])
            other = next((one for one in box.runs if one.pid == pid and one.path != run.path), None)
            trainer = owners.get(pid)
            if run.pid != pid and (other or trainer):
                whose = other.path if other else trainer.text[:80] if trainer else ""
                message = f"{path.name} names pid {pid}, which belongs to {whose}: do not signal it for this run"
                report.add("mixed", "warn", message, path=str(path))


def _judge_gpus_and_jobs(box: Snapshot, report: Report) -> None:
    if box.gpus.problem:
        report.add("gpu", "error", box.gpus.problem)
    for card in box.gpus.gpus:
        if card.error:
            report.add("gpu", "error", card.error, where=f"GPU {card.index}")
        for user in card.processes:
            if not os.path.exists(f"/proc/{user.pid}"):  # another container's, or a dead one
                message = f"pid {user.pid} holds GPU {card.index} but is not visible here (another container?)"
                report.add("unseen", "info", message)
    for job in (job for row in box.queues if row.tool == "gpu_gate" for job in row.jobs):
        bad = job["state"] in gate.FINAL and job["state"] not in ("done", "cancelled")
        if bad and time.time() - float(job["ended"] or job["started"] or job["submitted"]) < outcomes.RECENT:
            reason = job["reason"] or f"exit code {job['exit_code']}"
            report.add("failed", "warn", f"{job['state']}: {reason}", path=job["log"] or "", where=job["id"])
