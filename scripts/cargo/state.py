"""Is the run over? Asked of the engine that started it, else of its own events; and who still writes there."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cargo.roster import EVENTS, EVENTS_THERE, SEAL, Roster
from rgt import files, job
from rgt.errors import RgtError
from rgt.hosts import Host

OVER = ("done", "failed", "cancelled", "lost")
_EVENTS = {"finished": "done", "failed": "failed", "stopped": "cancelled"}
_ON_A_HOST = ("local", "ssh", "docker", "slurm")  # engines that are asked on the box itself


@dataclass
class State:
    word: str  # one of backends.STATES; idle: nobody can tell, and nobody writes there; unknown: could not be asked
    detail: str = ""

    @property
    def over(self) -> bool:
        return self.word in OVER or self.word == "idle"


def decisions(local: Path) -> Path:
    """Where pull and down write down what they did: events.jsonl, or beside a sealed run, which never changes."""
    sealed = (local / SEAL).exists()
    return local.absolute().with_name(f"{local.absolute().name}.events.jsonl") if sealed else local / EVENTS


def log(local: Path, event: str, **detail: Any) -> None:
    files.append_jsonl(decisions(local), {**detail, "time": time.time(), "event": event}, "events")


def own_record(local: Path) -> dict[str, Any] | None:
    """run.json of a run that launch started from here. One that came with a pull is only the box's word."""
    here, there = ({canonical(row) for row in _submits(local / name)} for name in (EVENTS, EVENTS_THERE))
    if not here - there:
        return None
    with contextlib.suppress(RgtError):
        record: dict[str, Any] = files.read_json(local / "run.json", "run")
        return record
    return None


def _submits(path: Path) -> Iterator[dict[str, Any]]:
    rows = files.read_jsonl(path, bad=[]) if path.is_file() else iter(())
    return (row for row in rows if row.get("event") == "submitted")


def canonical(row: dict[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)


def of(found: Roster, record: dict[str, Any] | None = None) -> State:
    """`record` is our own run.json; without it the box's copy is used, and only for questions to the box itself."""
    asked = _ask(found, record)
    if asked.over and found.writers:
        return State("running", f"process {found.writers[0]} has files of it open for writing")
    return asked


def _ask(found: Roster, record: dict[str, Any] | None) -> State:
    chosen = record or found.record
    if chosen and isinstance(chosen.get("job"), dict) and "target" in chosen["job"]:
        try:
            return _engine(
                found.host, chosen, ours=record is not None, run_id=found.run_id or str(chosen.get("run_id"))
            )
        except RgtError as error:
            return State("unknown", error.message)
        except (KeyError, TypeError, ValueError, AttributeError) as error:  # a run.json that is not ours
            return State("unknown", f"run.json cannot be used: {type(error).__name__}")
    if found.last_event in _EVENTS:
        return State(_EVENTS[found.last_event], "by its events.jsonl")
    if found.last_event:
        return State("unknown", f"its last event is {found.last_event}, and no launch record tells who runs it")
    return State("idle", "no record tells who runs it, and no process writes there")


def _engine(host: Host, record: dict[str, Any], ours: bool, run_id: str) -> State:
    import backends

    kind, targets = backends.parse_target(record["job"]["target"])
    if kind in _ON_A_HOST:
        targets = [dataclasses.replace(one, name=one.name if ours and one.name else host.name) for one in targets]
        kind = "ssh" if kind == "local" and host.name else kind
    elif not ours:
        return State("unknown", f"it runs with {kind}, which can be asked only with the run directory that launch made")
    order = backends.Order(job.from_record(record), run_id, kind, targets)
    now = backends.backend(kind).status(order)
    return State(now.state, now.detail)
