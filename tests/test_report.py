"""rgt.report: what a finding looks like in each format, and that every code is in the one list."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rgt import report, schema
from rgt.report import CODES, SEVERITIES, Finding, Report

import pytest

SCRIPTS = Path(report.__file__).resolve().parents[1]


def example() -> Report:
    """Three findings: everything filled, only a path, nothing but words."""
    found = Report("check_staleness", data={"checked": 3})
    where = {"path": "profiles/autodl.md", "line": 12, "where": "pricing.a100"}
    about = {"evidence": "verified: 2025-09", "fix": "look it up and update it"}
    found.add("stale", "error", "the price is 14 months old", **where, **about)
    found.add("malformed", "warn", "no month in the stamp", path="references/x.md")
    found.add("future", "info", "the clock of this machine may be wrong")
    return found


def printed(found: Report, capsys: pytest.CaptureFixture[str], fmt: str | None = None, summary: str = "") -> str:
    """What emit prints, having checked that nothing goes to stderr."""
    found.emit(fmt, summary)
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


# --- the four formats ------------------------------------------------------------------------------------------


TEXT = """\
error stale: profiles/autodl.md:12 pricing.a100: the price is 14 months old
      seen: verified: 2025-09
      fix: look it up and update it
warn  malformed: references/x.md: no month in the stamp
info  future: the clock of this machine may be wrong
3 stamps, 1 stale
"""
GITHUB = """\
::error file=profiles/autodl.md,line=12,title=stale::pricing.a100 the price is 14 months old look it up and update it
::warning file=references/x.md,title=malformed::no month in the stamp
::notice title=future::the clock of this machine may be wrong
"""


def test_text_json_and_github(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(example(), capsys, summary="3 stamps, 1 stale") == TEXT
    assert printed(example(), capsys, "github", summary="not shown") == GITHUB
    answer = json.loads(printed(example(), capsys, "json", summary="not shown"))
    schema.check(answer, "report", "stdout")
    assert list(answer) == ["tool", "ok", "findings", "checked"]
    assert list(answer["findings"][0]) == "code severity message path line where evidence fix".split()
    assert list(answer["findings"][2].values()) == ["future", "info", "the clock of this machine may be wrong", ""]


def test_sarif_is_a_log_of_version_2_1_0(capsys: pytest.CaptureFixture[str]) -> None:
    """https://docs.oasis-open.org/sarif/sarif/v2.1.0: a location is a URI, so a file name is percent-encoded."""
    found = Report("check_staleness")
    found.add("nan", "warn", "odd", path="a:b c/\u6a21 #1.pt", line=12)
    found.add("future", "info", "the clock")
    place = {"artifactLocation": {"uri": "a%3Ab%20c/%E6%A8%A1%20%231.pt"}, "region": {"startLine": 12}}
    results = [
        {
            "ruleId": "nan",
            "level": "warning",
            "message": {"text": "odd"},
            "locations": [{"physicalLocation": place}],
        },
        {"ruleId": "future", "level": "note", "message": {"text": "the clock"}},
    ]
    run = {"tool": {"driver": {"name": "check_staleness"}}, "results": results}
    assert json.loads(printed(found, capsys, "sarif", summary="not shown")) == {"version": "2.1.0", "runs": [run]}


# --- details ---------------------------------------------------------------------------------------------------


def test_github_escapes_what_would_end_or_forge_an_annotation(capsys: pytest.CaptureFixture[str]) -> None:
    """https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts"""
    found = Report("x")
    found.add("stale", "warn", "100% old,\r\nsee: below", path="a,b:c%.md", line=1, fix="one\ntwo")
    assert printed(found, capsys, "github") == (
        "::warning file=a%2Cb%3Ac%25.md,line=1,title=stale::100%25 old,%0D%0Asee: below one%0Atwo\n"
    )


def test_a_page_of_evidence_is_one_line_of_text(capsys: pytest.CaptureFixture[str]) -> None:
    found = Report("x")
    found.add("stale", "warn", "two\nlines", path="a.log", evidence="step 1\r" * 10_000, fix="\x1b[2Jread\n\tit")
    head, seen, fix = printed(found, capsys).splitlines()
    assert (head, fix) == ("warn  stale: a.log: two lines", r"      fix: \x1b[2Jread it")
    assert seen.startswith("      seen: step 1 step 1 ") and seen.endswith("...") and len(seen) < 600
    assert json.loads(printed(found, capsys, "json"))["findings"][0]["evidence"] == "step 1\r" * 10_000


def test_text_is_bounded_and_the_rest_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    found = Report("x", [Finding("stale", "warn", "old", path=f"{number}.md") for number in range(50)])
    assert len(printed(found, capsys, summary="the end").splitlines()) == 51
    found.add("stale", "warn", "old", path="50.md")
    shown = printed(found, capsys, summary="the end").splitlines()
    assert shown[-3:] == ["warn  stale: 49.md: old", "... and 1 more; --json lists them all", "the end"]
    assert len(printed(found, capsys, "github").splitlines()) == 51
    assert len(json.loads(printed(found, capsys, "json"))["findings"]) == 51


def test_information_alone_is_fine() -> None:
    for severities, code in {"": 0, "info": 0, "warn": 1, "error": 1, "info warn info": 1}.items():
        found = Report("x", [Finding("stale", severity, "old") for severity in severities.split()])
        assert (found.emit(), found.as_dict()["ok"]) == (code, code == 0)


def test_an_unknown_code_or_severity_is_a_bug_of_the_caller() -> None:
    for code, severity in (("no-such-code", "warn"), ("stale", "fatal")):
        with pytest.raises(ValueError, match="unknown finding code or severity"):
            Report("x").add(code, severity, "m")


# --- all codes -------------------------------------------------------------------------------------------------


def codes_in(source: str) -> Iterator[tuple[str, int]]:
    """Code and line of every `x.add("code", "severity", ...)` and `Finding("code", ...)` with a literal code."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        severity: Any = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], ast.Constant) else None
        if name == "Finding" or (name == "add" and (severity in SEVERITIES or len(node.args) > 2)):
            yield str(node.args[0].value), node.lineno


def test_every_code_a_script_uses_is_in_the_list() -> None:
    unknown = [
        f"{path.name}:{line} {code}"
        for path in sorted(SCRIPTS.rglob("*.py"))
        for code, line in codes_in(path.read_text(encoding="utf-8"))
        if code not in CODES
    ]
    assert unknown == []
