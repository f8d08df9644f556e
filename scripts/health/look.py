"""One look at a run: read what is new, judge, remember. All it found is one JSON object; every output is made of it.

Example:
    found = look(target.find(("runs/x",)), silenced=())        found["findings"], found["now"], found["changes"], ...

Two looks at one run take turns (a lock), so the daemon and a person never read over each other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from health import collect, curves, liveness, machine, reader, series
from health import view as views
from health.collect import Record
from health.target import Target
from health.view import Facts, View
from rgt import files, procs, rundir, units
from rgt.errors import RgtError, from_os_error
from rgt.logline import parse_line
from rgt.report import Finding, Report

VERSION = 1
_CURVE = 240  # points of a curve that leave this machine
_EVENTS_SHOWN = 40
_STARTS = ("launched", "submitted", "resumed")


def look(target: Target, silenced: tuple[str, ...] = (), box: bool = True) -> dict[str, Any]:
    """The report of one look, as --json prints it."""
    with _locked(target.keep):
        memory = _load(target.keep)
        records, mtimes = _read(target, memory)
        facts = _facts(target, memory, records, mtimes)
        view = views.build(records, facts)
        _progress(memory, view)
        facts.progress = memory["progress"]["time"]
        samples = _sample(target, memory, view) if box else []
        report = Report("watch")
        findings = [*_judge(view, samples), *_watcher(target, view)]
        report.findings = [_placed(finding, view) for finding in findings if finding.code not in silenced]
        report.data = _data(view, memory, samples, silenced)
        memory["last"] = report.data["now"] | {
            "findings": sorted({f.code for f in report.findings if f.severity != "info"})
        }
        _save(target.keep, memory, records)
    return report.as_dict()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise from_os_error(error, f"keep what was read in {folder}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _load(folder: Path) -> dict[str, Any]:
    """What the last look remembered. Of another version, or broken: nothing, and the logs are read again."""
    fresh: dict[str, Any] = {"version": VERSION, "files": {}, "samples": [], "last": None, "since": time.time()}
    with contextlib.suppress(RgtError):
        found: dict[str, Any] = files.read_json(folder / "state.json", "watch_state")
        if found["version"] == VERSION:
            return fresh | found
    return fresh


def _save(folder: Path, memory: dict[str, Any], records: dict[str, Record]) -> None:
    for path, record in records.items():
        memory["files"][path]["record"] = record.as_dict()
    memory["samples"] = memory["samples"][-machine.SAMPLES :]
    files.write_json(folder / "state.json", memory, "watch_state")


# -- reading


def _read(target: Target, memory: dict[str, Any]) -> tuple[dict[str, Record], dict[str, float]]:
    records, mtimes = {}, {}
    for path in target.logs:
        row = memory["files"].setdefault(str(path), {"cursor": None, "record": None, "mtime": 0.0, "lines": 0})
        record = _record(row)
        cursor = reader.Cursor(**row["cursor"]) if row["cursor"] else None
        before = record.lines
        new, grown = reader.advance(path, cursor, record.take)
        if new is None:
            records[str(path)] = record
            continue
        if "%|" in grown.unfinished and grown.unfinished.rstrip().endswith("]"):  # a bar's newest state has no end yet
            _peek(record, grown.unfinished)
        _note_gap(row, record.lines - before, grown.mtime)
        row |= {"cursor": new.as_dict(), "mtime": grown.mtime, "restarted": grown.restarted, "thinned": grown.thinned}
        row["bytes"] = grown.bytes
        records[str(path)], mtimes[str(path)] = record, grown.mtime
    memory["files"] = {path: row for path, row in memory["files"].items() if path in records}
    return records, mtimes


def _record(row: dict[str, Any]) -> Record:
    try:
        return collect.from_dict(row["record"]) if row["record"] else Record()
    except (TypeError, ValueError, KeyError):  # written by another version
        row["cursor"] = None
        return Record()


def _peek(record: Record, text: str) -> None:
    """Counters only: the state will be read again, with its end, next time."""
    for state in text.replace("\r", "\n").split("\n"):
        point = {name: value for name, value in parse_line(state).items() if name != "metrics"}
        if point:
            record.take_point(point, state)


def _note_gap(row: dict[str, Any], lines: int, mtime: float) -> None:
    if lines > 0 and row["mtime"] and mtime > row["mtime"]:
        row["gap"] = (mtime - row["mtime"]) / lines


def _facts(target: Target, memory: dict[str, Any], records: dict[str, Record], mtimes: dict[str, float]) -> Facts:
    facts = Facts(time.time(), target.where, mtimes, since=memory["since"])
    gaps = [row["gap"] for row in memory["files"].values() if row.get("gap")]
    facts.line_gap = min(gaps) if gaps else None
    facts.saved = target.checkpoints()
    facts.writers = machine.writers(list(records)) if records else None
    if target.directory:
        facts.results = (target.directory / "results.json").exists()
    run = target.run
    if run:
        _read_events(run.events, facts)
        with contextlib.suppress(RgtError, ValueError, KeyError, TypeError):
            facts.since = datetime.fromisoformat(files.read_json(run.run_json)["created"]).timestamp()
    return facts


def _read_events(path: Path, facts: Facts) -> None:
    if not path.exists():
        return
    saved = set(facts.saved)
    with contextlib.suppress(RgtError):
        for row in sorted(files.read_jsonl(path, bad=[]), key=rundir.event_time):  # a box's rows may come late
            event = row.get("event")
            if event in views.ENDS:
                facts.event, facts.reason = str(event), rundir.event_reason(row)
            elif event in _STARTS:
                facts.event, facts.reason = "", ""
            elif event == "checkpoint":
                saved.add(rundir.event_time(row))
    facts.saved = sorted(saved - {0.0})


def _progress(memory: dict[str, Any], view: View) -> None:
    """When the step last changed, as seen by whoever looked."""
    mark = memory.get("progress")
    if not mark or mark["step"] != view.step:
        memory["progress"] = {"step": view.step, "time": view.now}


def _sample(target: Target, memory: dict[str, Any], view: View) -> list[dict[str, Any]]:
    memory["samples"].append(machine.take(target.place, view.writers))
    return list(memory["samples"])


# -- judging


def _judge(view: View, samples: list[dict[str, Any]]) -> Iterator[Finding]:
    yield from liveness.findings(view)
    if view.state == "failed":
        yield Finding("failed", "error", f"the run failed: {view.facts.reason}", sure=0.99)
    yield from judge_curves(view)
    yield from machine.judge(samples, view.eta, live=view.state == "running")


def judge_curves(view: View) -> Iterator[Finding]:
    loss, done = view.points("loss"), view.share_done
    found = list(curves.diverged(loss))
    yield from found
    yield from curves.spike(loss) if not found else ()
    yield from curves.plateau(loss, view.points("lr"), done) if not found else ()
    yield from curves.no_better(view.points("val_loss"), view.name_of("val_loss"))
    yield from curves.spike(view.points("grad_norm"), "grad_norm")
    yield from curves.lr(view.points("lr"), done)
    if not view.finished:
        yield from curves.slow(view.points("rate"), view.name_of("rate"))


def _watcher(target: Target, view: View) -> Iterator[Finding]:
    """A daemon that promised to look and does not: its silence would be taken for health."""
    if view.finished:
        return
    with contextlib.suppress(RgtError, KeyError, TypeError):
        beat = files.read_json(target.keep / "heartbeat.json", "watch_heartbeat")
        late = time.time() - beat["time"]
        if beat["state"] == "watching" and (not procs.alive(beat["process"]) or late > 3 * beat["every"] + 60):
            message = f"the daemon's last heartbeat is {units.show_duration(late)} old and it is gone or stuck"
            fix = f"python scripts/watch.py daemon {target.where}"
            yield Finding("watcher", "warn", message, path=target.where, fix=fix, sure=0.95)


def _placed(finding: Finding, view: View) -> Finding:
    finding.path = finding.path or (view.log if finding.where in view.chosen else view.where)
    return finding


# -- what leaves


def _data(
    view: View, memory: dict[str, Any], samples: list[dict[str, Any]], silenced: tuple[str, ...]
) -> dict[str, Any]:
    now = {
        "time": round(view.now, 1),
        "state": view.state,
        "step": view.step,
        "total": view.total,
        "epoch": view.epoch,
        "epochs": view.epochs,
        "eta": None if view.eta is None else round(view.eta, 1),
        "it_per_s": view.it_per_s,
        "tokens_per_s": view.tokens_per_s,
        "age": None if view.age is None else round(view.age, 1),
        "metrics": view.metrics,
        "checkpoints": view.counts.get("saves", 0),
        "checkpoint_age": None if view.saved_at is None else round(view.now - view.saved_at, 1),
    }
    roles = {role: name for role, (name, _) in view.chosen.items()}
    plots = {
        role: {"name": name, "points": series.thin(points, _CURVE)} for role, (name, points) in view.chosen.items()
    }
    return {
        "where": view.where,
        "log": view.log,
        "now": now,
        "before": memory["last"],
        "roles": roles,
        "curves": plots,
        "events": _events(view),
        "machine": [_slim(sample) for sample in samples[-120:]],
        "files": [
            {"path": path, **{name: row.get(name) for name in ("bytes", "thinned", "restarted")}}
            for path, row in memory["files"].items()
        ],
        "silenced": list(silenced),
    }


def _events(view: View) -> list[dict[str, Any]]:
    """What to mark in a plot."""
    rows = [{"kind": "checkpoint", "x": row["step"]} for row in view.saves if row.get("step") is not None]
    rows += [{"kind": "restart", "x": row["at"]} for row in view.restarts]
    rows += [{"kind": row["code"], "x": row["step"]} for row in view.problems if row.get("step") is not None]
    rows += [{"kind": "nan", "x": row["x"]} for found in view.not_numbers().values() for row in found[:1]]
    return rows[-_EVENTS_SHOWN:]


def _slim(sample: dict[str, Any]) -> dict[str, Any]:
    cards = [
        {name: card.get(name) for name in ("index", "utilization", "memory_used", "memory_total", "temperature")}
        for card in sample.get("gpus", [])
    ]
    memory, disk = sample.get("memory", {}), sample.get("disk", {})
    return {
        "time": round(sample["time"], 1),
        "gpus": cards,
        "memory": {name: memory[name] for name in ("used", "limit") if name in memory},
        "disk": {name: disk[name] for name in ("free", "total") if name in disk},
    }
