# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""META · lists the dated facts that must be looked up again

Example:
    rgt check_staleness                   # the whole bundle
    rgt check_staleness profiles/runpod.md --max-age 60d --json     # of the bundle, from any directory

Reads every `verified: YYYY-MM` stamp: in the front matter of profiles (with the source beside it) and in any prose.
A fact that decides over money or data may be half as old as any other. What has no date is not checked, and is named:
files without a stamp, facts that a profile writes as unknown. Writes nothing.
"""

from __future__ import annotations

import calendar
import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from rgt import cli, files
from rgt.bundle import PROFILES, REFERENCES, ROOT
from rgt.errors import bad_input, from_os_error, lacking
from rgt.report import Report
from rgt.walk import walk

import click

MAX_AGE = "180d"
# front-matter keys whose facts cost money or data when they are wrong
BILLING = ("meter", "storage", "auto_release", "down", "egress")

# A stamp may be wrapped over a line end, quoted, or in a YAML flow mapping.
_STAMP = re.compile(r"verified:\s*[\"'(]?([^\s\"',;)}\]]+)")
_SOURCE = re.compile(r"source:\s*[\"']?([^\s\"',}]+)|(https?://[^\s\"',;)}]+)")
_UNKNOWN = re.compile(r"value:\s*[\"']?unknown\b")
_MONTH = re.compile(r"(20\d\d)-(0[1-9]|1[0-2])(?:-\d\d)?")
_NAMED = 5  # files in the last line; --json has them all


@dataclass
class Stamp:
    path: Path
    line: int
    text: str
    key: str  # where in the front matter, such as meter.stops_with; empty in prose
    source: str

    def check(self, report: Report, max_age_days: float) -> None:
        place = {"path": str(self.path), "line": self.line, "where": self.key or None}
        month, today = _MONTH.fullmatch(self.text), date.today()
        year, number = (int(month[1]), int(month[2])) if month else (today.year, today.month)
        age = (today - date(year, number, calendar.monthrange(year, number)[1])).days
        billing = any(part in BILLING for part in self.key.split("."))
        limit = max_age_days / (2 if billing else 1)
        if not month:
            report.add("malformed", "error", f"{self.text!r} is not a month", fix="write verified: YYYY-MM", **place)
        elif (year, number) > (today.year, today.month):
            report.add("future", "error", f"{self.text} has not come yet", fix="write the month of the check", **place)
        elif age > limit:
            kind = "money or data depends on it; " if billing else ""
            fix = f"look it up again: {self.source}" if self.source else "look it up again and add its source"
            report.add("stale", "warn", f"{kind}checked {age} days ago, {limit:.0f} allowed", fix=fix, **place)


@click.command(cls=cli.Command)
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--max-age", type=cli.Duration(), default=MAX_AGE, show_default=True, help="Oldest fact to accept.")
@cli.report_options
def main(paths: tuple[Path, ...], max_age: float, fmt: str | None) -> int:
    """List the facts of the bundle (or of PATHS) that are too old, undated by mistake, or dated in the future.

    Example: rgt check_staleness --max-age 90d
    """
    report = Report("check_staleness")
    stamps: list[Stamp] = []
    undated: list[str] = []
    unknown: list[str] = []
    if not paths and not (PROFILES.is_dir() and REFERENCES.is_dir()):
        raise lacking(f"{ROOT} has no profiles/ and references/: there is nothing to check; install the whole bundle")
    for given in paths or (ROOT,):
        path = given if given.exists() else ROOT / given
        if not path.exists():
            raise bad_input(f"{given} does not exist; name a Markdown file or a folder of them")
        below = sorted(Path(entry.path) for _, entry, _ in walk(str(path), links=False)) if path.is_dir() else [path]
        for file in (one for one in below if (one.suffix == ".md" and one.name[0] != ".") or one == path):
            dated, without = read(file)
            stamps, unknown = stamps + dated, unknown + without
            undated += [] if dated else [str(file)]
    for stamp in stamps:
        stamp.check(report, max_age / 86400)
    if not stamps:
        raise bad_input("no `verified: YYYY-MM` stamp was found there: nothing was checked")
    report.data = {"stamps": len(stamps), "unchecked": {"undated_files": undated, "unknown_facts": unknown}}
    left_out = f"{len(undated)} files without a date"
    left_out += f" ({', '.join(undated[:_NAMED])}{', ...' if len(undated) > _NAMED else ''})" if undated else ""
    last = f"{len(stamps)} dated facts, {len(report.findings)} to look up again; not checked: {left_out}, "
    return report.emit(fmt, f"{last}{len(unknown)} facts written as unknown")


def read(path: Path) -> tuple[list[Stamp], list[str]]:
    """Its stamps, and `profiles/china.md:11 verbs.down` for each fact of the front matter that is unknown."""
    try:
        with files.open_regular(path) as file:
            text = file.read().decode(errors="replace")
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None
    front = re.match(r"---\n.*?\n---\n", text, re.S)
    front_end = front.end() if front else 0

    def place(start: int) -> tuple[int, str]:
        """Line, and in the front matter the key there with its parents before it by indentation."""
        keys: list[str] = []
        indent = 10**6
        for line in reversed(text[:start].split("\n")) if start < front_end else ():
            key = re.match(r"( *)(?:- )?([\w-]+):", line)
            if key and len(key[1]) < indent:
                indent = len(key[1])
                keys.insert(0, key[2])
        return text.count("\n", 0, start) + 1, ".".join(keys)

    unknown = [place(match.start()) for match in _UNKNOWN.finditer(text, 0, front_end)]
    # blank what is in backticks: there the word is talked about, not used
    prose = re.sub(r"`[^`\n]*`", lambda match: " " * len(match[0]), text)
    stamps = []
    for match in _STAMP.finditer(prose):
        nearby = list(_SOURCE.finditer(text, max(0, match.start() - 300), match.start()))
        source = nearby[-1][1] or nearby[-1][2] if nearby else ""
        line, key = place(match.start())
        stamps.append(Stamp(path, line, match[1].rstrip("."), key, source))
    return stamps, [f"{path}:{line} {key}" for line, key in unknown]


if __name__ == "__main__":
    main()
