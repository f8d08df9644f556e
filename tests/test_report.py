"""rgt.report: what a finding looks like in each format, and that every code is in the one list."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rgt import VERSION, report, schema
from rgt.report import CODES, SEVERITIES, Finding, Report

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
    shown = printed(example(), capsys, "json", summary="not shown")
    answer = json.loads(shown)
    assert (shown, list(answer)) == (json.dumps(answer, indent=2) + "\n", ["tool", "ok", "findings", "checked"])
    assert (answer["tool"], answer["ok"], answer["checked"]) == ("check_staleness", False, 3)
    last = ["pricing.a100", "verified: 2025-09", "look it up and update it"]
    assert [list(finding.values()) for finding in answer["findings"]] == [
        ["stale", "error", "the price is 14 months old", "profiles/autodl.md", 12, *last],
        ["malformed", "warn", "no month in the stamp", "references/x.md"],
        ["future", "info", "the clock of this machine may be wrong", ""],
    ]
    keys = "code severity message path line where evidence fix".split()
    assert [list(finding) for finding in answer["findings"]] == [keys, keys[:4], keys[:4]]


def test_sarif(capsys: pytest.CaptureFixture[str]) -> None:
    sarif = json.loads(printed(example(), capsys, "sarif"))
    (run,) = sarif.pop("runs")
    assert sarif == {"version": "2.1.0", "$schema": "https://json.schemastore.org/sarif-2.1.0.json"}
    rules = [{"id": code, "shortDescription": {"text": CODES[code]}} for code in ("future", "malformed", "stale")]
    assert run["tool"] == {"driver": {"name": "check_staleness", "version": VERSION, "rules": rules}}
    places = [result.pop("locations", None) for result in run["results"]]
    first = {"artifactLocation": {"uri": "profiles/autodl.md"}, "region": {"startLine": 12}}
    second = {"artifactLocation": {"uri": "references/x.md"}}
    assert places == [[{"physicalLocation": first}], [{"physicalLocation": second}], None]
    assert run["results"] == [
        {"ruleId": "stale", "level": "error", "message": {"text": "the price is 14 months old"}},
        {"ruleId": "malformed", "level": "warning", "message": {"text": "no month in the stamp"}},
        {"ruleId": "future", "level": "note", "message": {"text": "the clock of this machine may be wrong"}},
    ]


def test_nothing_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(Report("x"), capsys) == ""
    assert printed(Report("x"), capsys, summary="all 12 stamps are fresh") == "all 12 stamps are fresh\n"
    assert printed(Report("x"), capsys, "github") == ""
    assert json.loads(printed(Report("x"), capsys, "json")) == {"tool": "x", "ok": True, "findings": []}
    assert json.loads(printed(Report("x"), capsys, "sarif"))["runs"][0]["results"] == []


# --- details ---------------------------------------------------------------------------------------------------


def test_a_place_without_a_path_and_a_path_without_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    found = Report("x")
    found.add("stale", "warn", "old", where="lm_head.weight")
    found.add("stale", "warn", "old", path="a.pt", where="lm_head.weight")
    found.add("stale", "warn", "old", path="a.log", line=3)
    assert printed(found, capsys).splitlines() == [
        "warn  stale: lm_head.weight: old",
        "warn  stale: a.pt lm_head.weight: old",
        "warn  stale: a.log:3: old",
    ]


def test_github_escapes_what_would_end_or_forge_an_annotation(capsys: pytest.CaptureFixture[str]) -> None:
    """https://github.com/actions/toolkit/blob/main/packages/core/src/command.ts"""
    found = Report("x")
    found.add("stale", "warn", "100% old,\r\nsee: below", path="a,b:c%.md", line=1, fix="one\ntwo")
    assert printed(found, capsys, "github") == (
        "::warning file=a%2Cb%3Ac%25.md,line=1,title=stale::100%25 old,%0D%0Asee: below one%0Atwo\n"
    )
    found = Report("x")
    found.add("stale", "info", "log says:\n::error::forged", path="a\n::error::forged")
    assert len(printed(found, capsys, "github").splitlines()) == 1


def test_a_sarif_location_is_a_uri(capsys: pytest.CaptureFixture[str]) -> None:
    found = Report("x")
    found.add("stale", "warn", "old", path="my runs/100%#1/模型.md")
    (result,) = json.loads(printed(found, capsys, "sarif"))["runs"][0]["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "my%20runs/100%25%231/%E6%A8%A1%E5%9E%8B.md"


def test_a_page_of_evidence_is_one_line_of_text(capsys: pytest.CaptureFixture[str]) -> None:
    found = Report("x")
    found.add("stale", "warn", "two\nlines", path="a.log", evidence="step 1\r" * 10_000, fix="read\n\tit")
    head, seen, fix = printed(found, capsys).splitlines()
    assert (head, fix) == ("warn  stale: a.log: two lines", "      fix: read it")
    assert seen.startswith("      seen: step 1 step 1 ") and seen.endswith("...") and len(seen) < 600
    assert json.loads(printed(found, capsys, "json"))["findings"][0]["evidence"] == "step 1\r" * 10_000


@pytest.mark.parametrize(("count", "lines"), [(49, 49), (50, 50), (51, 51), (1000, 51)])
def test_text_is_bounded_and_the_rest_is_counted(capsys: pytest.CaptureFixture[str], count: int, lines: int) -> None:
    found = Report("x")
    for number in range(count):
        found.add("stale", "warn", "old", path=f"{number}.md")
    shown = printed(found, capsys, summary="the end").splitlines()
    assert len(shown) == lines + 1 and shown[-1] == "the end"
    assert (shown[-2] == f"... and {count - 50} more; --json lists them all") is (count > 50)
    assert len(printed(found, capsys, "github").splitlines()) == count
    assert len(json.loads(printed(found, capsys, "json"))["findings"]) == count


@pytest.mark.parametrize("fmt", [None, "json", "github", "sarif"])
def test_information_alone_is_fine(fmt: str | None) -> None:
    for severities, code in {"": 0, "info": 0, "info info": 0, "warn": 1, "error": 1, "info warn info": 1}.items():
        found = Report("x", [Finding("stale", severity, "old") for severity in severities.split()])
        assert (found.emit(fmt), found.as_dict()["ok"]) == (code, code == 0)


def test_json_fits_the_report_schema() -> None:
    schema.check(example().as_dict(), "report", "stdout")
    schema.check(Report("x").as_dict(), "report", "stdout")
    for code in CODES:
        schema.check(Report("x", [Finding(code, "warn", "m")]).as_dict(), "report", "stdout")


@pytest.mark.parametrize(("code", "severity"), [("no-such-code", "warn"), ("stale", "fatal"), ("", "")])
def test_an_unknown_code_or_severity_is_a_bug_of_the_caller(code: str, severity: str) -> None:
    with pytest.raises(ValueError, match="unknown finding code or severity"):
        Report("x").add(code, severity, "m")


def test_progress_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    report.progress("step 1 of 2")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "step 1 of 2\n")


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


def test_the_search_for_codes_sees_them() -> None:
    source = """
report.add("nan", "error", "text")
self.report.add("stale", severity, f"text")
findings.append(Finding("drift", "warn", "x"))
report.Finding("confound", severity=level, message="x")
names.add("not a code")
report.add(code, "error", "text")
"""
    assert {line: code for code, line in codes_in(source)} == {2: "nan", 3: "stale", 4: "drift", 5: "confound"}


def test_every_code_a_script_uses_is_in_the_list() -> None:
    unknown = [
        f"{path.name}:{line} {code}"
        for path in sorted(SCRIPTS.rglob("*.py"))
        for code, line in codes_in(path.read_text(encoding="utf-8"))
        if code not in CODES
    ]
    assert unknown == []


def test_every_code_of_the_list_is_a_word_of_some_script() -> None:
    """Also when the script passes it on in a variable."""
    scripts = [path for path in sorted(SCRIPTS.rglob("*.py")) if path.name != "report.py"]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in scripts)
    assert [code for code in CODES if not re.search(rf"""["']{code}["']""", sources)] == []


def test_codes_are_short_words_in_order() -> None:
    assert list(CODES) == sorted(CODES)
    assert [code for code in CODES if not re.fullmatch(r"[a-z][a-z0-9-]{1,24}", code)] == []
    assert len(set(CODES.values())) == len(CODES), "two codes with one meaning"
    assert [text for text in CODES.values() if text.endswith(".") or len(text) > 100] == []
