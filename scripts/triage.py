# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""RUN · names the disease of a log: ranked catalogue entries, each with the line that shows it, the cause and the fix

Example:
    rgt triage train.log
    rgt triage logs/rank*.log --exit-code 137 --dmesg dmesg.txt
    kubectl logs train-0 | rgt triage -

The catalogue is the `signature:` lines of the documents themselves. The first error in time beats the cascade after it;
what training survived is no finding; a failure that no entry explains is called unknown. Logs of any size are streamed.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt import cli
from rgt.bundle import ROOT
from rgt.errors import bad_input, from_os_error
from rgt.report import Report

import click

if TYPE_CHECKING:
    from rgt.catalogue import entries as catalogue
    from rgt.triage.causes import Diagnosis
    from rgt.triage.scan import Patterns, Trace


_LOGS = ("train*.log", "*.log", "*.out", "*.err")  # of a directory: the first pattern that finds something
_EXITS = click.IntRange(-64, 255)


@click.command(cls=cli.Command)
@click.argument("logs", nargs=-1, required=True, metavar="LOG|RUN_DIR...")
@click.option("--top", type=click.IntRange(1), default=3, show_default=True, help="How many explanations are listed.")
@click.option(
    "--exit-code", type=_EXITS, help="What it ended with; 137 is -9. [default: what the run or torchrun says]"
)
@click.option("--dmesg", type=click.Path(path_type=Path), help="The kernel's log, for memory kills and GPU faults.")
@cli.report_options
def main(logs: tuple[str, ...], top: int, exit_code: int | None, dmesg: Path | None, fmt: str | None) -> int:
    """Say what killed the run that wrote LOG (- is stdin; several logs are ranks of one run).

    \b
    Example: rgt triage train.log
             dmesg -T > kernel.txt; rgt triage run/ --dmesg kernel.txt
    """
    from rgt import files
    from rgt.catalogue import entries as catalogue
    from rgt.run import record
    from rgt.triage.causes import diagnose

    entries = catalogue.load()
    if not entries:
        raise bad_input(f"no catalogue: {ROOT} has no references/ with signature lines beside scripts/")
    patterns, owners = compiled(entries)
    paths: list[str] = []
    for name in logs:
        # a directory stands for its logs: a run's train.log, torchrun's files per rank, or whatever looks like one
        below = ([str(path) for path in Path(name).rglob(pattern) if path.is_file()] for pattern in _LOGS)
        found = next(filter(None, below), []) if name != "-" and os.path.isdir(name) else [name]
        if not found:
            raise bad_input(f"{name} holds no log (looked for {', '.join(_LOGS)}); name the file itself")
        paths += sorted(found)
    if exit_code is None:  # what launch wrote down about the run's end
        events = [path for name in logs if name != "-" and (path := record.Run(Path(name)).events).is_file()]
        rows = (row for path in events for row in reversed(list(files.read_jsonl(path, bad=[]))))
        exit_code = next((row["exit_code"] for row in rows if isinstance(row.get("exit_code"), int)), None)
    traces = scan_all(paths, patterns, dmesg)
    return _report(diagnose(traces, owners, exit_code), traces, top, fmt)


def compiled(entries: tuple[catalogue.Entry, ...]) -> tuple[Patterns, list[catalogue.Entry]]:
    """Compiled signatures, and the entry each belongs to; entries known by their exit code only come last."""
    pairs = [(entry, text) for entry in entries for text in entry.signatures]
    patterns = [(re.compile(text), tuple(map(re.compile, entry.excluders))) for entry, text in pairs]
    by_exit_code = [entry for entry in entries if entry.exits and not entry.signatures]
    return patterns, [*(entry for entry, _ in pairs), *by_exit_code]


def scan_all(paths: list[str], patterns: Patterns, dmesg: Path | None = None) -> list[Trace]:
    """One trace for each log, in the order given; the kernel's comes last."""
    from rgt.triage.scan import Scan

    traces = []
    for path, kernel in [*((path, False) for path in paths), *([(str(dmesg), True)] if dmesg else [])]:
        try:
            if path != "-" and not stat.S_ISREG(os.stat(path).st_mode):
                raise bad_input(f"{path} is not a regular file; pipe it in and give - instead")
            with nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as stream:
                traces.append(Scan(patterns, path, kernel).run(stream))
        except OSError as error:
            raise from_os_error(error, f"read {path}") from error
        except ValueError as error:  # a NUL in the name
            raise bad_input(f"cannot read {path!r}: {error}") from error
    return traces


# -- the report


def _report(explanations: list[Diagnosis], traces: list[Trace], top: int, fmt: str | None) -> int:
    from rgt.triage.causes import AFTERMATH, CAUSE, FINDINGS

    report = Report("triage")
    for one in explanations[:top]:
        place, entry = one.place, one.entry
        where: dict[str, Any] = {"path": place.path, "line": place.line, "evidence": place.text} if place else {}
        if place and place.rank is not None:
            more = f" (and {len(one.ranks) - 1} more ranks)" if len(one.ranks) > 1 else ""
            where["where"] = f"rank {place.rank}{more}"
        severity = "info" if one.role not in FINDINGS else "warn" if one.role == AFTERMATH else "error"
        if entry:
            message, fix = f"{entry.id} {entry.name} ({one.role}): {entry.cause}", f"{entry.fix} -> {entry.read}"
            report.add("known", severity, message, fix=fix, **where)
        else:
            where["evidence"] = "\n".join([*([place.text] if place else []), *one.traceback])
            report.add("unknown", severity, f"unknown failure: {one.note}", **where)
    report.data = {
        "diagnoses": [one.as_dict() for one in explanations[:top]],
        "more": len(explanations[top:]),
        "logs": [{"path": trace.path, "lines": trace.lines, "bytes": trace.size} for trace in traces],
    }
    first, count = explanations[0] if explanations else None, len(explanations)
    read = f"{sum(trace.lines for trace in traces):,} lines of {len(traces)} log{'s' if len(traces) > 1 else ''}"
    if not first or first.role not in FINDINGS:
        said = "no failure is known to be in it; a run that was killed may leave no line, so give --exit-code"
    elif not first.entry:
        said = "unknown; read the traceback, do not guess from the list"
    else:
        sure = "" if first.role == CAUSE else f" ({first.role})"
        said = f"most likely {first.entry.id} {first.entry.name}{sure}; {count} explanation{'s' if count > 1 else ''}"
    return report.emit(fmt, f"{read}: {said}")


if __name__ == "__main__":
    main()
