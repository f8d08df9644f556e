# /// script
# requires-python = ">=3.10"
# dependencies = ["click"]
# ///
"""META · lists the dated facts that must be looked up again

Example:
    python scripts/check_staleness.py                   # the whole bundle
    python scripts/check_staleness.py profiles/runpod.md --max-age 60d --json

Reads every `verified: YYYY-MM` stamp: in the front matter of profiles (with the source beside it) and in any prose.
A fact that decides over money or data may be half as old as any other. Writes nothing.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import click

from rgt import cli, units
from rgt.errors import bad_input, from_os_error
from rgt.report import Report

BUNDLE = Path(__file__).resolve().parent.parent
MAX_AGE = "180d"
# front-matter keys whose facts cost money or data when they are wrong
BILLING = ("meter", "storage", "auto_release", "down", "egress")

# A stamp may be wrapped over a line end, quoted, or in a YAML flow mapping.
_STAMP = re.compile(r"verified:\s*[\"'(]?([^\s\"',;)}\]]+)")
_SOURCE = re.compile(r"source:\s*[\"']?([^\s\"',}]+)|(https?://[^\s\"',;)}]+)")
_MONTH = re.compile(r"(20\d\d)-(0[1-9]|1[0-2])(?:-\d\d)?")


@dataclass
class Stamp:
    path: Path
    line: int
    text: str
    key: str  # where in the front matter, such as meter.stops_with; empty in prose
    source: str

    @property
    def billing(self) -> bool:
        return any(part in BILLING for part in self.key.split("."))


@click.command(cls=cli.Command)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--max-age", type=units.Duration(), default=MAX_AGE, show_default=True, help="Oldest fact to accept.")
@cli.report_options
def main(paths: tuple[Path, ...], max_age: float, fmt: str | None) -> int:
    """List the facts of the bundle (or of PATHS) that are too old, undated by mistake, or dated in the future.

    Example: python scripts/check_staleness.py --max-age 90d
    """
    report = Report("check_staleness")
    stamps = [stamp for path in _markdown(paths or (BUNDLE,)) for stamp in read_stamps(path)]
    for stamp in stamps:
        _judge(report, stamp, max_age / 86400)
    report.data = {"stamps": len(stamps)}
    return report.emit(fmt, f"{len(stamps)} dated facts, {len(report.findings)} to look up again")


def _markdown(paths: tuple[Path, ...]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(file for file in path.rglob("*.md") if not _hidden(file.relative_to(path)))
        elif path.exists():
            yield path
        else:
            raise bad_input(f"{path} does not exist; name a Markdown file or a folder of them")


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def read_stamps(path: Path) -> list[Stamp]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None
    front = re.match(r"---\n.*?\n---\n", text, re.S)
    return [_stamp(path, text, match, front.end() if front else 0) for match in _STAMP.finditer(_no_code(text))]


def _no_code(text: str) -> str:
    """Blank what is in backticks: there the word is talked about, not used."""
    return re.sub(r"`[^`\n]*`", lambda match: " " * len(match[0]), text)


def _stamp(path: Path, text: str, match: re.Match[str], front_end: int) -> Stamp:
    key = _key(text[: match.start()]) if match.start() < front_end else ""
    nearby = list(_SOURCE.finditer(text, max(0, match.start() - 300), match.start()))
    source = nearby[-1][1] or nearby[-1][2] if nearby else ""
    return Stamp(path, text.count("\n", 0, match.start()) + 1, match[1].rstrip("."), key, source)


def _key(before: str) -> str:
    """The dotted key of the YAML line that ends `before`: its own parents, by indentation."""
    parents: list[str] = []
    indent = 10**6
    for line in reversed(before.split("\n")):
        match = re.match(r"( *)(?:- )?([\w-]+):", line)
        if match and len(match[1]) < indent:
            indent = len(match[1])
            parents.append(match[2])
    return ".".join(reversed(parents))


def _judge(report: Report, stamp: Stamp, max_age_days: float) -> None:
    place = {"path": str(stamp.path), "line": stamp.line, "where": stamp.key or None}
    month = _MONTH.fullmatch(stamp.text)
    if not month:
        report.add("malformed", "error", f"{stamp.text!r} is not a month", fix="write verified: YYYY-MM", **place)
        return
    year, number = int(month[1]), int(month[2])
    last_day = date(year, number, calendar.monthrange(year, number)[1])
    if (year, number) > (date.today().year, date.today().month):
        report.add("future", "error", f"{stamp.text} has not come yet", fix="write the month of the check", **place)
        return
    age, limit = (date.today() - last_day).days, max_age_days / (2 if stamp.billing else 1)
    if age > limit:
        kind = "money or data depends on it; " if stamp.billing else ""
        fix = f"look it up again: {stamp.source}" if stamp.source else "look it up again and add its source"
        report.add("stale", "warn", f"{kind}checked {age} days ago, {limit:.0f} allowed", fix=fix, **place)


if __name__ == "__main__":
    main()
