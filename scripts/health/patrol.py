"""Every run below a directory in one go: a line for each, and the findings of those that are still on their way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from health import look, status
from health.target import find
from rgt import rundir
from rgt.errors import RgtError
from rgt.report import Finding, Report

_ELSEWHERE = "its log is not here; look with `watch.py show`"


def walk(root: Path, silenced: tuple[str, ...]) -> tuple[Report, list[str]]:
    report, lines, rows = Report("watch"), [], []
    for run in rundir.find(root):
        if not (run.log.exists() or run.metrics.exists()):
            lines.append(f"{run.id}: {_ELSEWHERE}")
            continue
        try:
            found = look.look(find((str(run.path),)), silenced, box=False)
        except RgtError as error:
            report.add("unreadable", "warn", error.message, path=str(run.path))
            continue
        word, _ = status.decide(found)
        rows.append({"run": str(run.path), "decision": word, **found["now"]})
        lines.append(f"{run.id}: {_line(found, word)}")
        report.findings += [_finding(row, run.id) for row in found["findings"]]
    report.data = {"runs": rows}
    return report, lines


def _line(found: dict[str, Any], word: str) -> str:
    codes = sorted({row["code"] for row in found["findings"] if row["severity"] != "info"})
    numbers = next(iter(status.numbers(found))).strip("*")
    return f"{word} · {found['now']['state']} · {numbers}" + (f" · {', '.join(codes)}" if codes else "")


def _finding(row: dict[str, Any], run: str) -> Finding:
    finding = Finding(**row)
    finding.where = " ".join(part for part in (run, finding.where) if part)
    return finding
