"""After the copy: load everything here, compare it with the manifest, and write the proof (verify_local's own)."""

from __future__ import annotations

import importlib
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from cargo.gauge import Gauge
from rgt.report import Finding

MAX_ABS = 1e6
AGAIN = ("digest", "size", "missing")  # of a file in the manifest: a copy that is not what was listed
_SEVERITIES = ("error", "warn", "info")


@dataclass
class Verified:
    proof: Path | None
    findings: list[Finding] = field(default_factory=list)
    artifacts: int = 0
    again: list[Path] = field(default_factory=list)  # to be copied once more


def get_ready() -> None:
    """Load what the proof needs while the copy waits for the line."""
    threading.Thread(target=importlib.import_module, args=("artifacts.verify",), daemon=True).start()


def verify_folder(local: Path) -> Verified:
    """Everything the manifest names, by load; PULL_VERIFIED.json only when all of it passed."""
    from artifacts import verify
    from artifacts.examine import Options
    from artifacts.survey import survey

    # a box can be destroyed on the word of the proof: what it speaks of must be on the disk, not in a cache
    flushing = threading.Thread(target=os.sync)
    flushing.start()
    found = survey(local)
    gauge = Gauge(verify.sizes(found), f"verify {local}")
    read = 0

    def tick(count: int) -> None:
        nonlocal read
        read += count
        gauge.show(read)

    verdict = verify.verify(found, verify.Request(Options(max_abs=MAX_ABS)), tick)
    gauge.close()
    flushing.join()
    listed = set(verdict.expected.listed)
    again = [path for path, problem in verdict.problems if problem.code in AGAIN and path in listed]
    problems = list(verdict.problems)
    if verdict.failed:
        problems += verify.withdraw(verdict)
    proofs = list(verify.prove(verdict, {"max_abs": MAX_ABS, "expect": None, "deep": False}))
    problems.sort(key=lambda entry: _SEVERITIES.index(entry[1].severity))
    findings = [
        Finding(p.code, p.severity, p.message, str(path), where=p.where, evidence=p.evidence, fix=p.fix)
        for path, p in problems
    ]
    if not verdict.artifacts:
        message = "holds no checkpoint or array, so nothing can be proved by loading it: no PULL_VERIFIED.json"
        findings.append(Finding("unverified", "warn", message, str(local)))
    return Verified(proofs[0] if proofs else None, findings, len(verdict.artifacts), again)
