"""One shape for every finding, in every script, rendered as text, JSON, GitHub annotations or SARIF.

Example:
    report = Report("verify_local")
    report.add("nan", "error", "3 of 4096 values are NaN", path="step_100.pt", where="lm_head.weight")
    return report.emit(fmt)          # prints, and gives the exit code: 1 when there is an error or a warning

A code is a short, stable word. All of them are in CODES, so that two scripts never use one word for two things.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote

import click

from rgt import VERSION
from rgt.errors import FINDINGS, OK

CODES = {
    "future": "a date stamp lies in the future",
    "malformed": "a stamp or file has the right place but not the right form",
    "stale": "a dated fact is older than allowed",
}

SEVERITIES = ("error", "warn", "info")
_SHOWN = 50  # findings printed as text; the rest is counted, and --json has them all
_WIDTH = 500  # characters of one line of text


@dataclass
class Finding:
    code: str
    severity: str
    message: str
    path: str = ""
    line: int | None = None
    where: str | None = None
    evidence: str | None = None
    fix: str | None = None

    def __post_init__(self) -> None:
        if self.code not in CODES or self.severity not in SEVERITIES:
            raise ValueError(f"unknown finding code or severity: {self.code}, {self.severity}")

    def as_dict(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}


@dataclass
class Report:
    """Findings of one tool plus whatever else its --json carries (`data`, JSON-ready)."""

    tool: str
    findings: list[Finding] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def add(self, code: str, severity: str, message: str, **place: Any) -> None:
        self.findings.append(Finding(code, severity, message, **place))

    @property
    def ok(self) -> bool:
        """Information is not a finding to act on: only errors and warnings make a report not ok."""
        return all(finding.severity == "info" for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        return {"tool": self.tool, "ok": self.ok, "findings": [f.as_dict() for f in self.findings], **self.data}

    def emit(self, fmt: str | None = None, summary: str = "") -> int:
        """Print in the chosen format (`summary` is the text report's last line) and return the exit code."""
        if fmt == "json":
            print_json(self.as_dict())
        elif fmt == "sarif":
            print_json(_sarif(self))
        else:
            line = _github if fmt == "github" else _text
            shown = self.findings if fmt == "github" else self.findings[:_SHOWN]
            for finding in shown:
                click.echo(line(finding))
            _close(len(self.findings) - len(shown), summary if fmt is None else "")
        return OK if self.ok else FINDINGS


def print_json(data: Any) -> None:
    click.echo(json.dumps(data, indent=2, ensure_ascii=False))


def progress(message: str) -> None:
    """A line for the person who waits: stderr, so that stdout stays data."""
    click.echo(message, err=True)
    sys.stderr.flush()


def _close(hidden: int, summary: str) -> None:
    if hidden > 0:
        click.echo(f"... and {hidden} more; --json lists them all")
    if summary:
        click.echo(summary)


def _place(finding: Finding) -> str:
    place = finding.path + (f":{finding.line}" if finding.line else "")
    return " ".join(part for part in (place, finding.where) if part)


def _text(finding: Finding) -> str:
    head = ": ".join(part for part in (finding.code, _place(finding), finding.message) if part)
    extra = [f"{name}: {value}" for name, value in (("seen", finding.evidence), ("fix", finding.fix)) if value]
    return "\n      ".join([f"{finding.severity:5} {_one_line(head)}", *map(_one_line, extra)])


def _one_line(text: str) -> str:
    """Evidence may be a page of a log; --json has it all."""
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else text[:_WIDTH] + "..."


def _github(finding: Finding) -> str:
    level = {"error": "error", "warn": "warning", "info": "notice"}[finding.severity]
    properties = {"file": finding.path, "line": str(finding.line or ""), "title": finding.code}
    place = ",".join(f"{name}={_escape(value, ':,')}" for name, value in properties.items() if value)
    body = " ".join(part for part in (finding.where, finding.message, finding.fix) if part)
    return f"::{level} {place}::{_escape(body)}"


def _escape(text: str, more: str = "") -> str:
    """GitHub's workflow commands end at a newline; in a property also ':' and ',' have a meaning."""
    for sign in "%\r\n" + more:
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text


def _sarif(report: Report) -> dict[str, Any]:
    used = sorted({finding.code for finding in report.findings})
    rules = [{"id": code, "shortDescription": {"text": CODES[code]}} for code in used]
    driver = {"name": report.tool, "version": VERSION, "rules": rules}
    run = {"tool": {"driver": driver}, "results": [_sarif_result(finding) for finding in report.findings]}
    return {"version": "2.1.0", "$schema": "https://json.schemastore.org/sarif-2.1.0.json", "runs": [run]}


def _sarif_result(finding: Finding) -> dict[str, Any]:
    level = {"error": "error", "warn": "warning", "info": "note"}[finding.severity]
    location: dict[str, Any] = {"artifactLocation": {"uri": quote(os.fsencode(finding.path))}}
    if finding.line:
        location["region"] = {"startLine": finding.line}
    result: dict[str, Any] = {"ruleId": finding.code, "level": level, "message": {"text": finding.message}}
    if finding.path:
        result["locations"] = [{"physicalLocation": location}]
    return result
