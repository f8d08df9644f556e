"""cells.jsonl: every attempt at every cell. Its intent is written first, so a kill at any moment leaves a trace."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from cells.plan import Sweep
from rgt import files, rundir
from rgt.errors import bad_input, from_os_error
from rgt.ids import mint_id
from rgt.report import progress


@dataclass
class Attempt:
    cell: str
    number: int
    target: str
    values: dict[str, str]
    job_sha256: str
    run: rundir.Run | None = None
    refused: str = ""
    fingerprint: str = ""  # of the artifact as it was when it verified


@dataclass
class Ledger:
    """cells.jsonl. `mark` is what the processes of an attempt carry."""

    directory: Path
    sweep_id: str = ""
    attempts: dict[str, list[Attempt]] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.directory / "cells.jsonl"

    def mark(self, attempt: Attempt) -> str:
        return f"{self.sweep_id}/{attempt.cell}/{attempt.number}"

    def last(self, cell: str) -> Attempt | None:
        """The newest attempt that has a run."""
        return next((each for each in reversed(self.attempts.get(cell, [])) if each.run), None)

    def open(self) -> Iterator[Attempt]:
        """Intents of which nobody wrote down what became of them."""
        for attempts in self.attempts.values():
            yield from (each for each in attempts if not each.run and not each.refused)

    def write(self, event: str, attempt: Attempt, **detail: Any) -> None:
        row = {"time": time.time(), "event": event, "cell": attempt.cell, "attempt": attempt.number, **detail}
        files.append_jsonl(self.path, row, "sweep_cells")
        self.take(row)

    def take(self, row: dict[str, Any]) -> None:
        known = self.attempts.setdefault(row["cell"], [])
        if row["event"] == "intent":
            known.append(Attempt(row["cell"], row["attempt"], row["target"], row["values"], row["job_sha256"]))
            return
        attempt = next((each for each in known if each.number == row["attempt"]), None)
        if attempt is None:
            raise bad_input(f"{self.path} tells of an attempt that it never began: {row['cell']} {row['attempt']}")
        attempt.refused = row.get("reason", attempt.refused)
        attempt.fingerprint = row.get("fingerprint", attempt.fingerprint)
        attempt.run = rundir.Run(Path(row["run"])) if "run" in row else attempt.run


def read_ledger(sweep: Sweep) -> Ledger:
    ledger = Ledger(sweep.directory)
    birth = sweep.directory / "sweep.json"
    if birth.exists():
        known = files.read_json(birth)
        if not isinstance(known, dict) or not {"sweep_id", "sweep"} <= set(known):
            raise bad_input(f"{birth} is not the record of a sweep; expected its sweep_id and its file")
        if known["sweep"] != sweep.path.name:
            raise bad_input(f"{sweep.directory} belongs to {known['sweep']}, not to {sweep.path.name}; rename one")
        ledger.sweep_id = str(known["sweep_id"])
    if ledger.path.exists():
        for row in files.read_jsonl(ledger.path, "sweep_cells"):
            ledger.take(row)
    return ledger


@contextlib.contextmanager
def alone(sweep: Sweep) -> Iterator[tuple[Ledger, int]]:
    """The ledger, with nobody else submitting. launch inherits the lock: it outlives us with a half-done submit."""
    try:
        sweep.directory.mkdir(exist_ok=True)
        descriptor = os.open(sweep.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise from_os_error(error, f"use {sweep.directory} as the sweep's directory") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another submit of this sweep is under way; waiting for its end")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not (sweep.directory / "sweep.json").exists():
            now = datetime.now(timezone.utc).isoformat(timespec="seconds")
            birth = {"sweep_id": mint_id(sweep.path.stem), "sweep": sweep.path.name, "created": now}
            files.write_json(sweep.directory / "sweep.json", birth)
        yield read_ledger(sweep), descriptor
    finally:
        os.close(descriptor)
