"""What became of each cell: the engine's word first, then the artifact itself."""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cells import MARK
from cells.ledger import Attempt, Ledger
from cells.plan import Cell, Sweep
from rgt import errors, files, procs, rundir, submit
from rgt.errors import RgtError, bad_input

VERIFY_LOCAL = Path(__file__).resolve().parents[1] / "verify_local.py"
ACTIVE = ("queued", "running")
# Ended without an artifact to show; --retry submits these again. `unknown` is not one of them: it may be running.
BAD = ("failed", "cancelled", "lost", "unverified")
STATES = ("verified", *BAD, "unpulled", "unjudged", *ACTIVE, "unknown", "missing")
_AT_ONCE = 4  # questions to engines and verifications

Rows = list["Row"]


@dataclass
class Row:
    """What is known of one cell now."""

    cell: Cell
    state: str
    attempts: int = 0
    attempt: Attempt | None = None
    exit_code: int | None = None
    detail: str = ""

    def as_dict(self) -> dict[str, Any]:
        last = self.attempt
        return {
            "cell": self.cell.id, "values": self.cell.values, "state": self.state, "attempts": self.attempts,
            "target": last.target if last else None, "run": str(last.run.path) if last and last.run else None,
            "exit_code": self.exit_code, "detail": self.detail,
        }  # fmt: skip


def look(sweep: Sweep, ledger: Ledger, write: bool = True) -> Rows:
    """The state of every cell, asked of the engines and of the artifacts."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        rows = list(pool.map(lambda cell: _look(sweep, ledger, cell), sweep.cells))
    for row in rows:
        last = row.attempt
        if write and row.state == "verified" and last and last.run:
            seen = _fingerprint(sweep, last.run)
            if seen != last.fingerprint:
                ledger.write("verified", last, run=str(last.run.path), fingerprint=seen)
    return rows


def _look(sweep: Sweep, ledger: Ledger, cell: Cell) -> Row:
    tried = len(ledger.attempts.get(cell.id, []))
    attempt = ledger.last(cell.id)
    if attempt is None or attempt.run is None:
        return Row(cell, "missing", tried)
    # its engine was asked when it verified first
    if attempt.fingerprint and attempt.fingerprint == _fingerprint(sweep, attempt.run):
        state, detail = _verdict(sweep, cell, attempt.run) if "command" in sweep.verify else ("verified", "")
        return Row(cell, state, tried, attempt, detail=detail)
    state, code, detail = _engine(sweep, ledger, attempt)
    if state in ("done", "lost"):
        state, detail = _artifact(sweep, cell, attempt, state, detail)
    return Row(cell, state, tried, attempt, code, detail)


def _engine(sweep: Sweep, ledger: Ledger, attempt: Attempt) -> tuple[str, int | None, str]:
    """State, exit code and detail as launch tells them. `lost` is believed only when no process carries the mark."""
    assert attempt.run
    reply = submit.launch("status", str(attempt.run.path))
    if not reply.data:
        gone = attempt.target not in sweep.targets  # a rented box that is no more will never answer
        return ("lost" if gone else "unknown"), None, reply.sentence
    state, code, detail = reply.data["state"], reply.data["exit_code"], reply.data["detail"]
    if state == "lost" and reply.data["event"] == "finished":
        return "done", 0, "its engine has forgotten it; its record says that it finished"
    if state == "lost" and os.path.isdir("/proc/self") and any(procs.carrying(MARK, ledger.mark(attempt))):
        return "running", None, "processes of it live, though its engine does not know it (yet)"
    return state, code, detail


def _artifact(sweep: Sweep, cell: Cell, attempt: Attempt, state: str, detail: str) -> tuple[str, str]:
    """`verified` needs an artifact; neither an exit code nor a log line is one."""
    run = attempt.run
    assert run
    if "command" not in sweep.verify and not attempt.target.startswith("local") and not run.results.exists():
        return ("lost", detail) if state == "lost" else ("unpulled", f"results.json is not in {run.path}")
    verdict, why = _verdict(sweep, cell, run)
    if verdict != "unverified":
        return verdict, why
    return ("lost", f"{detail}; {why}") if state == "lost" else (verdict, why)


def _verdict(sweep: Sweep, cell: Cell, run: rundir.Run) -> tuple[str, str]:
    if "command" in sweep.verify:
        return _own_verdict(submit.fill(sweep.verify, {**cell.values, "run": str(run.path)})["command"], run)
    try:
        _check_results(run)
        checkpoint = _newest_checkpoint(run) if sweep.verify.get("checkpoint", True) else None
    except RgtError as error:
        return "unverified", error.message
    return _verify_local(checkpoint) if checkpoint and VERIFY_LOCAL.exists() else ("verified", "")


def _own_verdict(words: list[str], run: rundir.Run) -> tuple[str, str]:
    try:
        done = subprocess.run(words, cwd=run.path, capture_output=True, stdin=subprocess.DEVNULL)
    except OSError as error:
        return "unjudged", f"the verify command cannot be started: {words[0]}: {error.strerror}"
    said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()[-1:]
    return ("verified", "") if done.returncode == 0 else (
        "unverified", ": ".join([f"the verify command ended with {done.returncode}", *said])
    )  # fmt: skip


def _check_results(run: rundir.Run) -> None:
    results = files.read_json(run.results, "results")
    if results["run_id"] != run.id:
        raise bad_input(f"{run.results} belongs to another run: {results['run_id']}")
    for metric in results["metrics"]:
        if not math.isfinite(metric["value"]):
            raise bad_input(f"{run.results}: {metric['name']} is {metric['value']}")


def _newest_checkpoint(run: rundir.Run) -> Path:
    """By the index; where there is none, by time."""
    if run.checkpoints_index.exists():
        rows = files.read_json(run.checkpoints_index, "checkpoints_index")["checkpoints"]
        found: list[Path] = [run.path / row["path"] for row in rows]
    else:
        entries = list(run.checkpoints.iterdir()) if run.checkpoints.is_dir() else []
        found = sorted((path for path in entries if not path.name.startswith(".")), key=lambda p: p.stat().st_mtime_ns)
    if not found:
        raise bad_input(f"{run.checkpoints} holds no checkpoint (a job without one: verify: {{checkpoint: false}})")
    if not found[-1].exists():
        raise bad_input(f"{found[-1]} does not exist, though {run.checkpoints_index.name} names it as the newest")
    return found[-1]


def _verify_local(checkpoint: Path) -> tuple[str, str]:
    words = [sys.executable, str(VERIFY_LOCAL), str(checkpoint), "--no-digest", "--json"]
    done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL)
    said = (done.stderr.decode(errors="replace").strip().splitlines() or ["no word"])[-1].removeprefix("error: ")
    if done.returncode not in (errors.OK, errors.FINDINGS):
        return ("unverified" if done.returncode == errors.BAD_INPUT else "unjudged"), said
    found = [each for each in json.loads(done.stdout)["findings"] if each["severity"] == "error"]
    return (
        ("unverified", f"{found[0]['path']}: {found[0]['code']}: {found[0]['message']}") if found else ("verified", "")
    )


def _fingerprint(sweep: Sweep, run: rundir.Run) -> str:
    """Of what was judged and how, by size and time: reading every byte again is for the first look."""
    paths = [run.results, run.checkpoints_index, *sorted(run.checkpoints.rglob("*"))]
    seen = [(str(p.relative_to(run.path)), (s := p.stat()).st_size, s.st_mtime_ns) for p in paths if p.is_file()]
    return hashlib.sha256(json.dumps([sweep.verify, seen]).encode()).hexdigest()
