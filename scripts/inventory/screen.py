"""A snapshot as one screen of text: what decides comes first, what is long is counted. --json has it all."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from inventory.snapshot import Process, Snapshot
from inventory.survey import Run
from rgt import logs
from rgt.report import Report
from rgt.units import show_duration, show_size

WIDTH = 160
_PROCESSES, _RUNS, _JOBS, _FINDINGS, _STOPPED = 5, 10, 4, 8, 3  # rows shown
_JOB_FIELDS = "state id name session pane tty elapsed status image where reason command".split()
# the metrics that are shown, in this order; the first of each line that is there
_SHOWN = (
    ("loss", "train_loss", "total_loss", "lm_loss"),
    ("val_loss", "eval_loss", "test_loss"),
    ("val_acc", "val_accuracy", "eval_accuracy", "test_accuracy", "acc", "accuracy", "acc@1", "train_acc"),
    ("val_ppl", "ppl", "perplexity", "mfu", "reward", "f1", "eval_f1", "map"),
)


def lines(box: Snapshot, report: Report) -> Iterator[str]:
    for name, rows in (
        ("box", _box(box)),
        ("gpus", _gpus(box)),
        ("processes", _processes(box)),
        ("queues", _queues(box)),
        ("git", _git(box)),
        ("runs", _runs(box)),
        ("disks", _disks(box)),
        ("look at", _findings(report)),
        ("not seen", _some(iter(box.stopped), _STOPPED, len(box.stopped))),
    ):
        label = name
        for row in rows:
            yield _cut(f"{label:10}{row}", 2 * WIDTH if name in ("look at", "not seen") else WIDTH)
            label = ""


def _cut(text: str, width: int) -> str:
    text = " ".join(text.splitlines())
    return text if len(text) <= width else text[: width - 3] + "..."


def _some(rows: Iterator[str], limit: int, count: int) -> Iterator[str]:
    for row, _ in zip(rows, range(limit), strict=False):
        yield row
    if count > limit:
        yield f"... and {count - limit} more (--json)"


def _box(box: Snapshot) -> Iterator[str]:
    host = box.host
    memory = ""
    if "memory" in host:
        memory = f" · RAM {show_size(host['memory_available'])} free of {show_size(host['memory'])}"
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(box.time))
    yield f"{host['name']} · {when} UTC · load {host['load']} of {host['cpus']} CPUs{memory} · took {box.seconds} s"


def _gpus(box: Snapshot) -> Iterator[str]:
    if not box.gpus.gpus:
        yield box.gpus.problem or "none"
    for card in box.gpus.gpus:
        if card.error:
            yield f"{card.index} {card.name} {card.error}"
            continue
        used = f"{show_size(card.memory_used or 0)} of {show_size(card.memory_total or 0)}"
        facts = [f"{card.index} {card.name}", used]
        facts += [f"{card.utilization} %"] if card.utilization is not None else []
        facts += [f"{card.temperature} C"] if card.temperature is not None else []
        facts += [f"pids {' '.join(str(p.pid) for p in card.processes)}"] if card.processes else ["idle"]
        yield " · ".join([*facts, *card.slowdown])


def _processes(box: Snapshot) -> Iterator[str]:
    if not box.processes:
        yield "no training process"
    who_holds_a_card_first = sorted(box.processes, key=lambda process: not process.trainer.gpus)
    for process in who_holds_a_card_first[:_PROCESSES]:
        yield from _process(process)
    if len(box.processes) > _PROCESSES:
        yield f"... and {len(box.processes) - _PROCESSES} more (--json)"


def _process(process: Process) -> Iterator[str]:
    trainer = process.trainer
    more = f" +{len(trainer.members) - 1}" if len(trainer.members) > 1 else ""
    command = trainer.text if len(trainer.text) <= 90 else trainer.text[:87] + "..."
    yield f"{trainer.pid}{more} {command}"
    facts = [f"{show_duration(trainer.elapsed)} · {trainer.user} · {trainer.origin}"]
    if trainer.gpus:
        memory = f" {show_size(trainer.gpu_memory)}" if trainer.gpu_memory is not None else ""
        facts.append(f"GPU {','.join(map(str, trainer.gpus))}{memory}")
    yield "    " + " · ".join(fact for fact in [*facts, trainer.cwd, trainer.python] if fact)
    yield f"    {progress(process.summary) or 'no numbers yet'}"
    yield f"    {_output(process)}"


def _output(process: Process) -> str:
    log = process.trainer.log
    words = {
        "file": f"log {log.path}",
        "deleted": f"log {log.path} (deleted; still in {log.readable})",
        "pipe": f"a pipe to {log.via}" + (f", log {log.path}" if log.path else ""),
        "terminal": f"terminal {log.path}" + (f" ({log.via})" if log.via else ""),
        "null": "stdout goes to /dev/null",
        "socket": "stdout goes to a socket",
        "closed": "stdout is closed",
        "hidden": "its files are not ours to see",
    }
    text = words[log.kind]
    if process.source and process.source not in (log.path, log.via):
        text += f", numbers from {process.source}"
    return text + (f", last line {ago(process.age)}" if process.age is not None else "")


def plural(count: int, word: str, ending: str = "s") -> str:
    return f"{count} {word}{'' if count == 1 else ending}"


def ago(seconds: float) -> str:
    return f"{show_duration(max(1.0, round(seconds))).replace('.0s', 's')} ago"


def progress(summary: logs.Summary, few: bool = False) -> str:
    """'step 1200 of 5000, loss 2.31, val_loss 2.4, 12.1 it/s, ETA 5m13s'."""
    facts = []
    if summary.step is not None:
        facts.append(f"step {summary.step}" + (f" of {summary.total}" if summary.total else ""))
    if summary.epoch is not None:
        facts.append(f"epoch {summary.epoch:g}" + (f" of {summary.epochs}" if summary.epochs else ""))
    if summary.batch is not None:
        facts.append(f"batch {summary.batch} of {summary.batches}")
    facts += [f"{name} {value:.4g}" for name, value in key_metrics(summary.metrics)[: 3 if few else None]]
    facts += [f"{summary.it_per_s:.3g} it/s"] if summary.it_per_s else []
    facts += [f"{summary.tokens_per_s:.3g} tokens/s"] if summary.tokens_per_s else []
    if summary.eta is not None:
        facts.append(f"ETA {show_duration(summary.eta)}")
    elif summary.epoch_eta is not None:
        facts.append(f"epoch ETA {show_duration(summary.epoch_eta)}")
    return ", ".join(facts)


def key_metrics(metrics: dict[str, float]) -> list[tuple[str, float]]:
    """A few that everybody looks at; one that is not known is better than none."""
    chosen = [next((name for name in names if name in metrics), "") for names in _SHOWN]
    named = [(name, metrics[name]) for name in chosen if name]
    if not named:
        named = [(name, value) for name, value in metrics.items() if "loss" in name][:2] or list(metrics.items())[:2]
    return named


def _queues(box: Snapshot) -> Iterator[str]:
    silent = {row.tool: row.problem for row in box.queues if not row.jobs}
    for row in box.queues:
        rows = [_job(row.tool, job) for job in sorted(row.jobs, key=_job_order)]
        yield from _some(iter(rows), _JOBS, len(rows))
    for problem in dict.fromkeys(silent.values()):
        tools = [tool for tool, said in silent.items() if said == problem]
        yield f"{', '.join(tools)}: {problem}"


def _job_order(job: dict[str, object]) -> int:
    states = ("running", "RUNNING", "queued", "waiting", "PENDING")
    return states.index(str(job["state"])) if job.get("state") in states else len(states)


def _job(tool: str, job: dict[str, object]) -> str:
    words = []
    for name in _JOB_FIELDS:
        value = job.get(name)
        if value:
            words.append(" ".join(map(str, value)) if isinstance(value, list) else str(value))
    return f"{tool}: {' '.join(words)}"


def _git(box: Snapshot) -> Iterator[str]:
    for row in box.git:
        if "problem" in row:
            yield f"{row['path']}: {row['problem']}"
            continue
        facts = [f"{row['path']} {row['branch']} {(row['commit'] or 'no commit')[:10]}"]
        facts += [f"{row['changed']} changed"] if row["changed"] else []
        facts += [f"{row['untracked']} untracked"] if row["untracked"] else []
        if row.get("unpushed"):
            facts.append(f"{plural(row['unpushed'], 'commit')} unpushed" + ("" if row["remote"] else " (no remote)"))
        facts += [f"{row['stashes']} stashed"] if row["stashes"] else []
        yield " · ".join(facts if len(facts) > 1 else [*facts, "clean and pushed"])


def _runs(box: Snapshot) -> Iterator[str]:
    places = " ".join(box.roots)
    yield f"{len(box.runs)} below {places}, newest first" if box.runs else f"none below {places or 'any directory'}"
    yield from _some((_run(run, box.roots) for run in box.runs), _RUNS, len(box.runs))


def _run(run: Run, roots: list[str]) -> str:
    facts = [progress(run.summary, few=True) if run.read else "not read"]
    if run.tfevents and not run.summary.found:
        facts.append("tensorboard events only")
    facts += [_checkpoints(run)] if run.checkpoints else []
    facts += [problem.code for problem in run.summary.problems if not problem.recovered]
    state = f"pid {run.pid}" if run.pid else "finished" if run.finished else ""
    words = " · ".join(fact for fact in [*facts, state] if fact)
    place = next((os.path.relpath(run.path, root) for root in roots if _inside(run.path, root)), run.path)
    return f"{ago(run.age):11} {place}: {words or 'no numbers'}"


def _checkpoints(run: Run) -> str:
    """'3 checkpoints, last 2m05s ago 1.2 GiB whole (read)'; how deep it was looked at stands in the parentheses."""
    newest, check = run.checkpoints[-1], run.check
    state = "unchecked"
    if check:
        state = {"ok": f"whole ({check.depth})", "unknown": "of unknown format"}.get(check.state, check.state.upper())
    last = f"last {ago(time.time() - newest.mtime)} {show_size(newest.bytes)} {state}"
    return f"{plural(len(run.checkpoints), 'checkpoint')}, {last}"


def _inside(path: str, root: str) -> bool:
    return os.path.abspath(path).startswith(os.path.abspath(root).rstrip("/") + "/")


def _short(path: str) -> str:
    return os.path.relpath(path) if _inside(path, ".") else path


def _disks(box: Snapshot) -> Iterator[str]:
    rows = []
    for disk in box.disks:
        inodes = f", inodes {disk.inodes_share:.0%} free" if disk.inodes else ""
        rows.append(
            f"{disk.path} {show_size(disk.free)} free of {show_size(disk.total)} ({disk.free_share:.0%}){inodes}"
        )
    yield " · ".join(rows[:3])


def _findings(report: Report) -> Iterator[str]:
    order = {"error": 0, "warn": 1, "info": 2}
    ranked = sorted(report.findings, key=lambda finding: order[finding.severity])
    rows = []
    for finding in ranked:
        place = " ".join(part for part in (finding.where, _short(finding.path) if finding.path else "") if part)
        seen = f"{finding.message} ({finding.evidence})" if finding.evidence else finding.message
        rows.append(f"{finding.severity} " + ": ".join(part for part in (finding.code, place, seen) if part))
    yield from _some(iter(rows), _FINDINGS, len(rows))
