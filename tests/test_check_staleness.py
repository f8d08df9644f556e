"""Dated facts: old, malformed and future stamps are found wherever they hide; billing facts age twice as fast."""

from __future__ import annotations

import functools
import json
from datetime import date, timedelta
from pathlib import Path

import pytest

from . import front_door


def month(days_ago: int) -> str:
    return (date.today() - timedelta(days=days_ago)).strftime("%Y-%m")


run = functools.partial(front_door.call, "check_staleness.py")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "page.md"


FACT = f"{{value: x, source: https://example.org/a, verified: {month(130)}}}"
BLOCK = f"      down:\n        value: x\n        source: https://example.org/a\n        verified: {month(130)}\n"


STAMPS = [
    (f"fact, verified: {month(0)}", []),
    ("fact, verified: 2020-01", [("stale", 1)]),
    ("fact, verified:\n2020-01", [("stale", 1)]),  # a stamp wrapped over the line end
    ("a\nb (verified: 2020-01)", [("stale", 2)]),
    (f"the end of a sentence, verified: {month(0)}.", []),
    ("fact, verified: January", [("malformed", 1)]),
    ("fact, verified: 2020-13", [("malformed", 1)]),
    ("fact, verified: 2099-01", [("future", 1)]),
    (f"talk about `verified: 2020-01` in code, verified: {month(0)}", []),
    # a billing fact may be half as old as another
    (f"---\nspot: {FACT}\nmeter:\n  down: {FACT}\nstorage:\n  - {FACT}\n---\n", [("stale", 4), ("stale", 6)]),
    # also one of a variant
    (f"---\nvariants:\n  slurm:\n    verbs:\n{BLOCK}    ssh: {FACT}\n---\n", [("stale", 8)]),
]


@pytest.mark.parametrize(("text", "expected"), STAMPS)
def test_what_is_found(page: Path, text: str, expected: list[tuple[str, int]]) -> None:
    page.write_text(text)
    report = json.loads(run(page, "--json").stdout)
    assert [(finding["code"], finding["line"]) for finding in report["findings"]] == expected


@pytest.mark.parametrize("text", ["talk about `verified: 2020-01` in code", ""])
def test_nothing_to_check_is_not_an_all_clear(page: Path, text: str) -> None:
    page.write_text(text)
    done = run(page)
    assert (done.returncode, done.stdout) == (2, "") and "nothing was checked" in done.stderr


def test_text_names_the_place_and_the_source(page: Path) -> None:
    page.write_text("---\nmeter:\n  zero_balance: {value: x, source: https://example.org/a, verified: 2020-01}\n---\n")
    done = run(page, "--max-age", "10d")
    age = (date.today() - date(2020, 1, 31)).days
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == (
        f"warn  stale: {page}:3 meter.zero_balance: money or data depends on it; checked {age} days ago, 5 allowed\n"
        "      fix: look it up again: https://example.org/a\n"
        "1 dated facts, 1 to look up again; not checked: 0 files without a date, 0 facts written as unknown\n"
    )


def test_the_bundle_has_stamps_and_none_is_malformed() -> None:
    report = json.loads(run("--json", "--max-age", "9999d").stdout)
    assert (report["ok"], report["findings"]) == (True, [])
    assert report["stamps"] > 10


def test_what_has_no_date_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(f"---\nmeter:\n  list: {{value: unknown}}\nspot: {FACT}\n---\n")
    (tmp_path / "b.md").write_text("no date")
    done = run(tmp_path)
    assert done.stdout == (
        f"1 dated facts, 0 to look up again; not checked: 1 files without a date ({tmp_path}/b.md), "
        "1 facts written as unknown\n"
    )
    unchecked = json.loads(run(tmp_path, "--json").stdout)["unchecked"]
    assert unchecked == {"undated_files": [f"{tmp_path}/b.md"], "unknown_facts": [f"{tmp_path}/a.md:3 meter.list"]}


def test_bad_input() -> None:
    missing = run("no/such/file.md")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr == "error: no/such/file.md does not exist; name a Markdown file or a folder of them\n"
