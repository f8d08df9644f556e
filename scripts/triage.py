# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "jsonschema"]
# ///
"""RUN · names the disease of a log: ranked catalogue entries, each with the line that shows it, the cause and the fix

Example:
    python scripts/triage.py train.log
    python scripts/triage.py logs/rank*.log --exit-code 137 --dmesg dmesg.txt
    kubectl logs train-0 | python scripts/triage.py -

The catalogue is the `signature:` lines of the documents themselves. The first error in time beats the cascade after it;
what training survived is no finding; a failure that no entry explains is called unknown. Logs of any size are streamed.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

import click

from diagnosis import catalogue
from diagnosis.judge import AFTERMATH, CAUSE, FINDINGS, UNKNOWN, Diagnosis, judge
from diagnosis.scan import Scan, Trace
from rgt import cli, files, rundir
from rgt.errors import bad_input, from_os_error
from rgt.report import Report

Patterns = list[tuple[re.Pattern[str], tuple[re.Pattern[str], ...]]]
_LOGS = ("train*.log", "*.log", "*.out", "*.err")  # of a directory: the first pattern that finds something
_EXITS = click.IntRange(-64, 255)


@click.command(cls=cli.Command)
@click.argument("logs", nargs=-1, required=True, metavar="LOG|RUN_DIR...")
@click.option("--top", type=click.IntRange(1), default=3, show_default=True, help="How many explanations are listed.")
@click.option("--exit-code", type=_EXITS, help="What the job ended with; -9 and 137 are the same. [default: what a run "
              "directory or torchrun's summary says]")  # fmt: skip
@click.option("--dmesg", type=click.Path(path_type=Path), help="The kernel's log, for memory kills and GPU faults.")
@cli.report_options
def main(logs: tuple[str, ...], top: int, exit_code: int | None, dmesg: Path | None, fmt: str | None) -> int:
    """Say what killed the run that wrote LOG (- is stdin; several logs are ranks of one run).

    \b
    Example: python scripts/triage.py train.log
             dmesg -T > kernel.txt; python scripts/triage.py run/ --dmesg kernel.txt
    """
    entries = catalogue.load()
    if not entries:
        raise bad_input(f"no catalogue: {catalogue.ROOT} has no references/ with signature lines beside scripts/")
    patterns, owners = compiled(entries)
    paths = [path for name in logs for path in _expand(name)]
    code = exit_code if exit_code is not None else _recorded_exit(logs)
    traces = scan_all(paths, patterns, dmesg)
    return _report(judge(traces, owners, code), traces, top, fmt)


def compiled(entries: tuple[catalogue.Entry, ...]) -> tuple[Patterns, list[catalogue.Entry]]:
    """Compiled signatures, and the entry each belongs to; entries known by their exit code only come last."""
    patterns: Patterns = []
    owners = []
    for entry in entries:
        excluders = tuple(re.compile(text) for text in entry.excluders)
        for text in entry.signatures:
            patterns.append((re.compile(text), excluders))
            owners.append(entry)
    owners += [entry for entry in entries if entry.exits and not entry.signatures]
    return patterns, owners


def _expand(name: str) -> list[str]:
    """A directory stands for its logs: a run's train.log, torchrun's files per rank, or whatever looks like one."""
    if name == "-" or not os.path.isdir(name):
        return [name]
    for pattern in _LOGS:
        found = sorted(str(path) for path in Path(name).rglob(pattern) if path.is_file())
        if found:
            return found
    raise bad_input(f"{name} holds no log (looked for {', '.join(_LOGS)}); name the file itself")


def _recorded_exit(names: tuple[str, ...]) -> int | None:
    """What launch wrote down about the run's end."""
    for name in names:
        events = rundir.Run(Path(name)).events
        if name != "-" and events.is_file():
            for event in reversed(list(files.read_jsonl(events, bad=[]))):
                if isinstance(event.get("exit_code"), int):
                    return int(event["exit_code"])
    return None


def scan_all(paths: list[str], patterns: Patterns, dmesg: Path | None = None) -> list[Trace]:
    """One trace for each log, in the order given; the kernel's comes last."""
    traces = [_scan(path, patterns) for path in paths]
    return [*traces, _scan(str(dmesg), patterns, kernel=True)] if dmesg else traces


def _scan(path: str, patterns: Patterns, kernel: bool = False) -> Trace:
    try:
        with _open(path) as stream:
            return Scan(patterns, path, kernel).run(stream)
    except OSError as error:
        raise from_os_error(error, f"read {path}") from error


def _open(path: str) -> AbstractContextManager[BinaryIO]:
    if path == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise bad_input(f"{path} is not a regular file; pipe it in and give - instead")
        return open(path, "rb")
    except ValueError as error:  # a NUL in the name
        raise bad_input(f"cannot read {path!r}: {error}") from error


# -- the report


def _report(found: list[Diagnosis], traces: list[Trace], top: int, fmt: str | None) -> int:
    report = Report("triage")
    for one in found[:top]:
        _add(report, one)
    report.data = {
        "diagnoses": [one.as_dict() for one in found[:top]],
        "more": len(found[top:]),
        "logs": [{"path": trace.path, "lines": trace.lines, "bytes": trace.size} for trace in traces],
    }
    return report.emit(fmt, _summary(found, traces))


def _add(report: Report, one: Diagnosis) -> None:
    place, entry = one.place, one.entry
    where = f"rank {place.rank}" if place and place.rank is not None else None
    if len(one.ranks) > 1:
        where = f"{where} (and {len(one.ranks) - 1} more ranks)"
    evidence = place.text if place else None
    if entry:
        message = f"{entry.id} {entry.name} ({one.role}): {entry.cause}"
        fix = f"{entry.fix} -> {entry.read}"
    else:
        message, fix = f"unknown failure: {one.note}", None
        evidence = "\n".join([*([evidence] if evidence else []), *one.traceback])
    severity = "info" if one.role not in FINDINGS else "warn" if one.role == AFTERMATH else "error"
    report.add("known" if entry else "unknown", severity, message, path=place.path if place else "",
               line=place.line if place else None, where=where, evidence=evidence, fix=fix)  # fmt: skip


def _summary(found: list[Diagnosis], traces: list[Trace]) -> str:
    read = f"{sum(trace.lines for trace in traces):,} lines of {len(traces)} log{'s' if len(traces) > 1 else ''}"
    if not found or found[0].role not in FINDINGS:
        return f"{read}: no failure is known to be in it; a run that was killed may leave no line, so give --exit-code"
    first = found[0]
    if first.role == UNKNOWN:
        return f"{read}: unknown; read the traceback, do not guess from the list"
    label = f"{first.entry.id} {first.entry.name}" if first.entry else ""
    sure = "" if first.role == CAUSE else f" ({first.role})"
    return f"{read}: most likely {label}{sure}; {len(found)} explanation{'s' if len(found) > 1 else ''}"


if __name__ == "__main__":
    main()
