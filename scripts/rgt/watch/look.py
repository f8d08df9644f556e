"""One look at a run: read what is new, judge, remember. All it found is one JSON object; every output is made of it.

Example:
    found = look(find_target(("runs/x",)), silenced=())        found["findings"], found["now"], found["before"], ...

In a directory the watcher's own files go into its `watch/` folder. For a bare log, a sealed run, and where nothing can
be written, they go into the user's cache, so that somebody else's directory stays as it is. Two looks at one run take
turns (a lock), so the daemon and a person never read over each other.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rgt import bundle, files, units
from rgt.checkpoint.names import is_checkpoint, is_step_folder
from rgt.errors import RgtError, bad_input
from rgt.log import reader
from rgt.log.history import SCALE_TOLD, History
from rgt.log.series import Series
from rgt.machine import disks, open_files, outside, processes
from rgt.report import Finding, Report
from rgt.run import billing, curves, record
from rgt.run.phases import phase_rows
from rgt.run.record import Run
from rgt.watch import box_health
from rgt.watch.view import View, liveness

_VERSION = 10  # of state.json; one of another version is not used, and the logs are read again
_FOLDER = "watch"
# the gate's words for an end
_REOPENED = 60.0  # seconds: within them, a log that is opened anew for each line is usually written again
_GATE = {"done": record.FINISHED, "cancelled": record.STOPPED, "lost": record.LOST}
_GATE |= {"failed": record.FAILED, "timeout": record.FAILED}
_LOG = re.compile(
    r".*\.(?:log|(?:out|err)(?:\.\d+)?)|(?:train|log|stdout|stderr|output)[\w-]*\.txt|metrics\.jsonl", re.I
)
# squeue may still name a job whose processes are gone
_SLURM_OVER = set(
    "COMPLETING COMPLETED FAILED CANCELLED TIMEOUT NODE_FAIL OUT_OF_MEMORY PREEMPTED BOOT_FAIL DEADLINE".split()
)
_LOGS = 16
_CHECKPOINTS = 200
_CARD = ("index", "utilization", "memory_used", "memory_total", "temperature")
_UNUSABLE = (RgtError, KeyError, TypeError, ValueError, AttributeError)  # a file of ours that is broken


@dataclass
class Target:
    """What is watched, and where its watcher keeps its own files."""

    where: str
    logs: list[Path]
    keep: Path
    directory: Path | None = None

    @property
    def status(self) -> Path | None:
        """training_status.md, where it may be written."""
        return Run(self.directory).status if self.directory and self.keep.parent == self.directory else None

    def checkpoint_times(self) -> list[float]:
        """When each was written, oldest first."""
        times: list[float] = []
        for folder in (self.directory, self.directory / "checkpoints") if self.directory else ():
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):  # deleted meanwhile, by retention
                        if is_checkpoint(entry.name) or (is_step_folder(entry.name) and entry.is_dir()):
                            times.append(entry.stat().st_mtime)
        return sorted(times)[-_CHECKPOINTS:]


def is_log(name: str) -> bool:
    return bool(_LOG.fullmatch(name))


def find_target(words: tuple[str, ...]) -> Target:
    """One directory, or one or more logs; a sentence for anything else."""
    paths = [Path(word) for word in words]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rgt" / _FOLDER
    name = "\0".join(sorted(os.path.realpath(path) for path in paths))
    keep = cache / hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
    for path in paths:
        if not path.exists():
            raise bad_input(f"{path} does not exist; give a run directory or a log")
        if path.is_dir() and len(paths) > 1:
            raise bad_input(f"{path} is a directory: watch one of them at a time, or name its logs")
        if not path.is_dir() and not (path.is_file() and os.access(path, os.R_OK)):
            raise bad_input(f"{path} cannot be read as a log: it is no regular file, or not readable by you")
    directory = paths[0]
    if not directory.is_dir():
        return Target(", ".join(words), paths, keep)
    with os.scandir(directory) as entries:  # os.path: a link that leads in circles is no file, and no error
        names = [entry.name for entry in entries if is_log(entry.name) and os.path.isfile(entry.path)]
    # newest first would change with every line; names do not
    names.sort(key=lambda name: (name != "train.log", name != "metrics.jsonl", name))
    if not names and not Run(directory).run_json.is_file():
        raise bad_input(f"{directory} has no log: no *.log, *.out, *.err or metrics.jsonl; name the log itself")
    if not Run(directory).seal.exists() and os.access(directory, os.W_OK):
        keep = directory / _FOLDER
    return Target(str(directory), [directory / name for name in names[:_LOGS]], keep, directory)


def look(target: Target, silenced: tuple[str, ...] = (), box: bool = True) -> dict[str, Any]:
    """The report of one look, as --json prints it; `box`: the machine is looked at, too."""
    with files.locked(target.keep / "lock"):
        memory = _load(target.keep)
        view = _view(target, memory)
        if not memory["progress"] or memory["progress"]["step"] != view.step:
            memory["progress"] = {"step": view.step, "time": view.now}  # when somebody first saw this step
        view.progress = memory["progress"]["time"]
        if box:
            place = target.directory or (target.logs[0].parent if target.logs else Path())
            memory["samples"] = [*memory["samples"], box_health.take(place, view.writers)][-box_health.SAMPLES :]
        samples = memory["samples"] if box else []
        report = Report("watch")
        for finding in (*_judge(view, samples), *_missing_daemon(target, view)):
            if finding.code not in silenced:
                finding.path = finding.path or (view.log if finding.where in view.chosen else view.where)
                report.findings.append(finding)
        report.data = _data(view, memory, samples) | {"silenced": list(silenced), "phases": view.phases}
        report.data["cost"] = billing.bill_of(target.directory).cost if target.directory else None
        codes = {finding.code for finding in report.findings if finding.severity != "info"}
        memory["last"] = report.data["now"] | {"findings": sorted(codes)}
        rows = {
            path: {**row, "history": row["history"].as_dict(), "cursor": row["cursor"] and asdict(row["cursor"])}
            for path, row in memory["files"].items()
        }
        files.write_json(target.keep / "state.json", {**memory, "files": rows})
    return report.as_dict()


def _load(folder: Path) -> dict[str, Any]:
    """What the last look remembered. Of another version, or broken: nothing, and the logs are read again."""
    fresh: dict[str, Any] = {"version": _VERSION, "files": {}, "samples": [], "last": None, "progress": None}
    fresh["since"] = time.time()
    with contextlib.suppress(*_UNUSABLE):
        found: dict[str, Any] = files.read_json(folder / "state.json")
        for row in found["files"].values():
            row["history"] = History.from_json(row["history"])
            row["cursor"] = reader.Cursor(**row["cursor"]) if row["cursor"] else None
        if found["version"] == _VERSION:
            return fresh | found
    return fresh


def _view(target: Target, memory: dict[str, Any]) -> View:
    """Read what is new in the logs, and what stands beside them."""
    mtimes, rests = {}, []
    for path in target.logs:
        row = memory["files"].setdefault(str(path), {"cursor": None, "history": History(), "mtime": 0.0})
        history: History = row["history"]
        before = history.lines
        new, grown = reader.advance(path, row["cursor"], history.take)
        if new is None:
            continue
        lines = history.lines - before
        if lines > 0 and row["mtime"] and grown.mtime > row["mtime"]:
            row["gap"] = (grown.mtime - row["mtime"]) / lines
        row |= {"cursor": new, "mtime": grown.mtime, "restarted": grown.restarted}
        row |= {"thinned": grown.thinned, "bytes": grown.bytes}
        mtimes[str(path)] = grown.mtime
        rests += [grown.rest] if grown.rest else []
    logs = [str(path) for path in target.logs]
    memory["files"] = {path: row for path, row in memory["files"].items() if path in logs}
    view = View({path: memory["files"][path]["history"] for path in logs}, time.time(), target.where, mtimes)
    view.since, view.saved = memory["since"], target.checkpoint_times()
    view.line_gap = min((row["gap"] for row in memory["files"].values() if row.get("gap")), default=None)
    view.writers, view.rests = open_files.writers(logs, of_owner=True) if logs else None, rests
    memory["held"] = memory.get("held") or bool(view.writers)
    view.asked = ask(target, view, memory["held"])
    last = memory["last"] or {}
    for name in ("step", "epoch"):  # a log without a clock: two looks have seen how fast it counts
        earlier, now, seconds = last.get(name), getattr(view.main, name), view.now - last.get("time", view.now)
        if earlier is not None and now is not None and now > earlier and seconds > 1:
            memory["speed"] = (now - earlier) / seconds
            break
    view.steps_per_s = memory.get("speed")
    run = Run(target.directory) if target.directory else None
    view.results = run is not None and run.results.exists()
    if run and (run.run_json.is_file() or run.events.is_file()):  # a pipeline that launch did not start has no run.json
        events: list[record.Event] = []
        with contextlib.suppress(RgtError):  # what was read up to there counts
            events.extend(files.read_jsonl(run.events, bad=[]))
        view.events_state = record.state_after(events)
        view.reason = record.event_reason(record.last_event(events) or {})
        saved = {record.event_time(row) for row in events if row.get("event") == "checkpoint"}
        view.saved = sorted((saved | set(view.saved)) - {0.0})
        with contextlib.suppress(*_UNUSABLE):
            view.phases = phase_rows(events)
        with contextlib.suppress(*_UNUSABLE):
            view.since = datetime.fromisoformat(files.read_json(run.run_json)["created"]).timestamp()
    return view


def ask(target: Target, view: View, held: bool) -> tuple[str, str]:
    """Whoever started it knows first: the gate's record of this log, then Slurm, then whether anybody has it open.

    `held`: an earlier look saw a writer. Where none did, the log may be opened anew for each line.
    """
    paths = {os.path.realpath(path) for path in target.logs}
    if importlib.util.find_spec("rgt.job.queue"):
        from rgt.job import queue

        place = os.environ.get("RGT_QUEUE")
        known = queue.Queue(Path(place) if place else queue.default_directory())
        jobs = [job for job in known.records() if job["log"] and os.path.realpath(job["log"]) in paths]
        if jobs and jobs[-1]["state"] in _GATE:
            code, reason = jobs[-1]["exit_code"], jobs[-1]["reason"]
            return _GATE[jobs[-1]["state"]], f"the gate says: {reason or f'exit code {code}'}"
        if jobs:
            return record.RUNNING, ""
    if slurm := next((match for path in paths if (match := re.search(r"/slurm-(\d+)[^/]*\.out$", path))), None):
        answer = outside.tool("squeue", "-h", "-j", slurm[1], "-o", "%T")
        if answer.problem is None and (told := answer.text.split()):
            over = told[0] in _SLURM_OVER
            return (record.LOST, f"Slurm says that job {slurm[1]} is {told[0]}") if over else (record.RUNNING, "")
        if "Invalid job id" in f"{answer.problem} {answer.text}" or answer.problem is None:
            return record.LOST, f"Slurm has no job {slurm[1]} any more"
    closed = view.writers == [] and any(Path(path).name != "metrics.jsonl" for path in paths)
    closed = closed and (held or (view.age or 0.0) > max(_REOPENED, 3 * (view.line_gap or 0.0)))
    if closed and any(log.lines for log in view.logs.values()) and not any(map(disks.is_remote, paths)):
        return record.LOST, "no process on this machine has its log open"
    return "", ""


# -- judging


def _judge(view: View, samples: list[dict[str, Any]]) -> Iterator[Finding]:
    yield from liveness(view)
    if view.state == record.FAILED:
        yield Finding("failed", "error", f"the run failed: {view.reason or view.asked[1]}", sure=0.99)
    elif view.state == record.LOST and not any(not problem.recovered for problem in view.problems):
        message = f"{view.asked[1]}, and its last line is no end: it died, or this is a copy of a log from elsewhere"
        evidence = f"last: {view.main.last_line[:200].strip()}"
        fix = bundle.command("triage", view.log)
        yield Finding("unfinished", "warn", message, path=view.log, evidence=evidence, fix=fix, sure=0.85)
    told = max((log.series.get(SCALE_TOLD, Series()).points() for log in view.logs.values()), key=len, default=[])
    scale = view.points("loss_scale")
    newer = len(told) >= 8 and scale and told[-1][0] >= scale[-1][0] and told[-1][1] < scale[-1][1]
    yield from curves.judge(
        curves.Curves(
            **{role: points for role, (_, points) in view.chosen.items()}
            | {"loss_scale": told if newer or not scale else scale},
            names={role: name for role, (name, _) in view.chosen.items()},
            share_done=view.share_done,
            adversarial=view.adversarial,
            losses=view.losses,
            explained=next((curve for name, curve in view.curves.items() if "explained_var" in name), []),
        )
    )
    yield from box_health.judge(samples, view.eta, live=view.state == record.RUNNING)


def heartbeat(target: Target) -> dict[str, Any]:
    """The daemon's last sign of life; empty when there is none."""
    with contextlib.suppress(*_UNUSABLE):
        return dict(files.read_json(target.keep / "heartbeat.json"))
    return {}


def _missing_daemon(target: Target, view: View) -> Iterator[Finding]:
    """A daemon that promised to look and does not: its silence would be taken for health."""
    beat = heartbeat(target)
    with contextlib.suppress(*_UNUSABLE):
        late = view.now - beat["time"]
        here = processes.alive(beat["process"]) and late <= 3 * beat["every"] + 60
        if beat["state"] == "watching" and not here and not view.over:
            message = f"the daemon's last heartbeat is {units.show_duration(late)} old and it is gone or stuck"
            fix = bundle.command("watch", "daemon", target.where)
            yield Finding("watcher", "warn", message, path=target.where, fix=fix, sure=0.95)


# -- what leaves


def _data(view: View, memory: dict[str, Any], samples: list[dict[str, Any]]) -> dict[str, Any]:
    now = {
        "time": round(view.now, 1),
        "state": view.state,
        "step": view.step,
        "total": view.total,
        **{name: view.first(name) for name in ("epoch", "epochs", "it_per_s", "tokens_per_s")},
        "eta": None if view.eta is None else round(view.eta, 1),
        "age": None if view.age is None else round(view.age, 1),
        "metrics": {name: files.json_number(value) for name, value in view.metrics.items()},
        "checkpoints": view.counts.get("saves", 0),
        "checkpoint_age": round(view.now - view.saved[-1], 1) if view.saved else None,
        "writers": view.writers,
    }
    machine = {}
    if sample := samples[-1] if samples else None:
        machine = {
            "gpus": [{name: card.get(name) for name in _CARD} for card in sample["gpus"]],
            "memory": {name: sample["memory"][name] for name in ("used", "limit") if name in sample["memory"]},
            "disk": {name: sample["disk"][name] for name in ("free", "total") if name in sample["disk"]},
        }
    return {
        "where": view.where,
        "log": view.log,
        "now": now,
        "before": memory["last"],
        "roles": {role: name for role, (name, _) in view.chosen.items()},
        "machine": machine,
        "files": [
            {"path": path, **{name: row.get(name) for name in ("bytes", "thinned", "restarted")}}
            for path, row in memory["files"].items()
        ],
    }
