"""Sealed runs: seal.json holds the sha256 of every file, and the ledger beside the runs holds the sha256 of every seal.

Example:
    seal(run).digest              hashes, writes runs/<id>/seal.json, appends to runs/SEALS.jsonl
    problems(run)                 [("digest", "metrics.jsonl", "changed since it was sealed"), ...]

A byte changed later is found against seal.json; a seal.json made anew is found against the ledger, which only grows.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple

from rgt import files
from rgt.checkpoint.names import OUR_RECORDS
from rgt.errors import RgtError, bad_input, from_os_error
from rgt.run.record import Run

LEDGER = "SEALS.jsonl"
_UNRECORDED = f"is not in {LEDGER}: it was not made by `seal`, or the ledger was cut"
_BLOCK = 1 << 20


class Problem(NamedTuple):
    code: str  # of report.CODES
    name: str  # path inside the run
    message: str


class Sealed(NamedTuple):
    digest: str  # sha256 of seal.json
    how: str  # sealed | sealed already | finished (a seal that was cut off)


def digest_of(path: Path) -> str:
    """sha256 of a file's bytes, read in blocks."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None
    return digest.hexdigest()


def seal(run: Run) -> Sealed:
    """Make the run immutable. An intact sealed run is left as it is; a seal that was cut off is finished."""
    with files.locked(files.lock_beside(run.path.parent / LEDGER)):  # of several at once, one seals
        how = "sealed already" if run.seal.exists() else "sealed"
        differences = problems(run) if run.seal.exists() else []
        changed = [problem for problem in differences if problem.message != _UNRECORDED]
        if len(differences) > len(changed):
            how = "finished"  # killed between the two files, nobody has relied on it: another seal's event may be there
            changed = [problem for problem in changed if problem.name != run.events.name]
        if changed:
            raise bad_input(f"{run.path} is sealed and changed since: {changed[0].name} {changed[0].message}")
        if how == "sealed" or len(differences) > 1:
            if not run.results.is_file():
                raise bad_input(f"{run.path} has no results.json: write its final metrics before it is sealed")
            files.read_json(run.results, "results")
            run.log_event("sealed")
            digests = {}
            for name in sorted(_names(run)):
                before = (run.path / name).stat()
                digests[name] = digest_of(run.path / name)
                after = (run.path / name).stat()
                if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
                    late = f"{run.path / name} was written to while it was sealed"
                    raise bad_input(f"{late}; seal the run when it has ended")
            sealed = datetime.now(timezone.utc).isoformat(timespec="seconds")
            files.write_json(run.seal, {"run_id": run.id, "sealed": sealed, "files": digests}, "seal")
        digest = digest_of(run.seal)
        if how != "sealed already":
            row = {"run_id": run.id, "seal_sha256": digest, "time": time.time()}
            files.append_jsonl(run.path.parent / LEDGER, row)
        return Sealed(digest, how)


def _names(run: Run) -> Iterator[str]:
    """Every file but the seal itself and the proofs of a pull, which are about this copy and are made anew."""
    apart = {run.seal.name, *OUR_RECORDS}
    for folder, _, names in os.walk(run.path):
        paths = (Path(folder, name).relative_to(run.path).as_posix() for name in names)
        yield from (path for path in paths if path not in apart)


def problems(run: Run) -> list[Problem]:
    """What differs from the seal. Empty: every byte is the sealed one."""
    try:
        record = files.read_json(run.seal, "seal")
    except RgtError as error:
        return [Problem("missing", "seal.json", error.message)]
    sealed: dict[str, str] = record["files"]
    there = set(_names(run))
    found = [Problem("missing", name, "was sealed and is gone") for name in sorted(set(sealed) - there)]
    found += [Problem("extra", name, "was added after the seal") for name in sorted(there - set(sealed))]
    found += [
        Problem("digest", name, "changed since it was sealed")
        for name in sorted(there & set(sealed))
        if digest_of(run.path / name) != sealed[name]
    ]
    ledger = run.path.parent / LEDGER
    rows = files.read_jsonl(ledger) if ledger.exists() else ()
    known = [row.get("seal_sha256") for row in rows if row.get("run_id") == run.id]  # oldest first
    if record["run_id"] != run.id:
        found.append(Problem("digest", "seal.json", f"is the seal of {record['run_id']}"))
    elif not known:
        found.append(Problem("missing", "seal.json", _UNRECORDED))
    elif known[0] != digest_of(run.seal):
        found.append(Problem("digest", "seal.json", f"is not the seal that {LEDGER} recorded first"))
    return found
