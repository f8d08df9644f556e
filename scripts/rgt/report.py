"""One shape for every finding, in every script, rendered as text, JSON, GitHub annotations or SARIF.

Example:
    report = Report("verify_local")
    report.add("nan", "error", "3 of 4096 values are NaN", path="step_100.pt", where="lm_head.weight")
    return report.emit(fmt)          # prints, and gives the exit code: 1 when there is an error or a warning

A code is a short, stable word; its message says what it means. All of them are in CODES, so that none is misspelt.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote

from rgt.errors import FINDINGS, OK
from rgt.units import show_json, show_text

CODES = frozenset(
    """
    accumulated blank bomb bounds budget bug-suspect cadence chance changed clipped clock code coincidence
    confound constant count crash crc crlf cuda curve dead-units digest direction disclose diverged drawn drift dtype
    duplicate early-stopping ecc effect ema empty error-page eval-set extra failed font future gap gpu gpu-hot
    gpu-idle gradient group-leak growth hang hardware held hole host-memory hostile identical ignored-input image inf
    interpreter killed known leak lfs-pointer limit loss-input loss-scale lost-log lr malformed missed missing mixed
    mode moved moving nan near-duplicate no-crc no-fit no-space noise nondeterminism not-a-checkpoint not-updating
    object-array oom optimizer order overfit overlap padding partial path-name peak plan plateau port precision proxy
    ragged range refused-global removed renamed restarts resume rng sampler secret seeds selection shape single-run
    size slow spike split stale stale-index stale-proof stale-source stalled starved step superseded target throttled
    time-limit timeout too-good trailing truncated unapplied unapproved undecided undeclared unexplained unfinished
    unjudged unknown unknown-claim unpulled unreadable unrecorded unregistered unresolved unsaved unsealed
    unseen untrusted unverified volatile watcher weights worker-rng world-size wrong-box wrong-op zero
    """.split()
)

SEVERITIES = ("error", "warn", "info")
_SHOWN = 50  # findings printed as text; the rest is counted, and --json has them all
_WIDTH, _EVIDENCE = 1000, 500  # characters of one line of text


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
    sure: float | None = None  # 0 to 1, where a finding is a judgement and not a fact

    def __post_init__(self) -> None:
        if self.code not in CODES or self.severity not in SEVERITIES:
            raise ValueError(f"unknown finding code or severity: {self.code}, {self.severity}")

    def as_dict(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value is not None}

    def as_text(self) -> str:
        place = " ".join(filter(None, [self.path + (f":{self.line}" if self.line else ""), self.where]))
        sure = None if self.sure is None else f"{self.sure:.0%}"
        shown = (("seen", self.evidence), ("sure", sure), ("fix", self.fix))
        lines = [": ".join(filter(None, [self.code, place, self.message]))]
        lines += [f"{name}: {value}" for name, value in shown if value]
        lines = [show_text(" ".join(line.split())) for line in lines]
        # evidence may be a page of a log; --json has it all
        widths = [_EVIDENCE if line.startswith("seen: ") else _WIDTH for line in lines]
        lines = [line if len(line) <= most else line[:most] + "..." for line, most in zip(lines, widths, strict=True)]
        return f"{self.severity:5} " + "\n      ".join(lines)

    def as_sarif(self) -> dict[str, Any]:
        level = {"error": "error", "warn": "warning", "info": "note"}[self.severity]
        result: dict[str, Any] = {"ruleId": self.code, "level": level, "message": {"text": self.message}}
        if self.path:
            region = {"region": {"startLine": self.line}} if self.line else {}
            place = {"artifactLocation": {"uri": quote(os.fsencode(self.path))}, **region}
            result["locations"] = [{"physicalLocation": place}]
        return result

    def as_github(self) -> str:
        level = {"error": "error", "warn": "warning", "info": "notice"}[self.severity]
        properties = {"file": self.path, "line": str(self.line or ""), "title": self.code}
        place = ",".join(f"{name}={_escape(value, ':,')}" for name, value in properties.items() if value)
        body = " ".join(part for part in (self.where, self.message, self.fix) if part)
        return f"::{level} {place}::{_escape(body)}"


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
            results = [finding.as_sarif() for finding in self.findings]
            print_json({"version": "2.1.0", "runs": [{"tool": {"driver": {"name": self.tool}}, "results": results}]})
        elif fmt == "github":
            print("".join(f"{finding.as_github()}\n" for finding in self.findings), end="")
        else:
            hidden = len(self.findings) - _SHOWN
            more = f"... and {hidden} more; --json lists them all" if hidden > 0 else ""
            for line in filter(None, [*(finding.as_text() for finding in self.findings[:_SHOWN]), more, summary]):
                print(line)
        return OK if self.ok else FINDINGS


def print_json(data: Any) -> None:
    print(show_json(json.dumps(data, indent=2, ensure_ascii=False)))


def plural(count: int, word: str, ending: str = "s") -> str:
    """1 run, 3 runs."""
    return f"{count} {word}{'' if count == 1 else ending}"


def progress(message: str) -> None:
    """A line for the person who waits: stderr, so that stdout stays data."""
    print(message, file=sys.stderr, flush=True)


def _escape(text: str, more: str = "") -> str:
    """GitHub's workflow commands end at a newline; in a property also ':' and ',' have a meaning."""
    for sign in "%\r\n" + more:
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text
