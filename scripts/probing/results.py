"""What a probe answers: a verdict, the evidence for it, and what to do next."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from rgt.report import Finding


@dataclass
class Result:
    """`fine`, `found` or `unjudged`; evidence is a sentence with the measured numbers; `data` is for --json."""

    probe: str
    evidence: str = ""
    findings: list[Finding] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    unjudged: str = ""  # why there is no verdict
    seconds: float = 0.0

    def add(self, code: str, severity: str, message: str, where: str = "", evidence: str = "", fix: str = "") -> None:
        place = ": ".join(part for part in (self.probe, where[:200]) if part)
        self.findings.append(Finding(code, severity, message, where=place, evidence=evidence or None, fix=fix or None))

    @property
    def verdict(self) -> str:
        if any(finding.severity != "info" for finding in self.findings):
            return "found"
        return "unjudged" if self.unjudged else "fine"

    @property
    def next_step(self) -> str:
        return next((finding.fix for finding in self.findings if finding.fix), "") or ""

    def as_dict(self) -> dict[str, Any]:
        row = {
            "probe": self.probe,
            "verdict": self.verdict,
            "evidence": self.unjudged or self.evidence,
            "next": self.next_step,
            "seconds": round(self.seconds, 3),
            "findings": [finding.as_dict() for finding in self.findings],
            **self.data,
        }
        cleaned: dict[str, Any] = plain(row)
        return cleaned


def plain(value: Any) -> Any:
    """JSON has no NaN: a number that is none becomes its word."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def several(names: list[str], shown: int = 4) -> str:
    """'a, b and 7 more'"""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more
