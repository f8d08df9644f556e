# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""RUN · names the disease of a log: ranked catalogue entries, each with the line that shows it, the cause and the fix

Example:
    rgt triage train.log
    rgt triage logs/rank*.log --exit-code 137 --dmesg dmesg.txt
    kubectl logs train-0 | rgt triage -

Each file is read for what it is, by its content: a log (also docker's JSON, kubectl's and srun's prefixes), dmesg,
`kubectl describe pod` or `get events`, `sacct` or `scontrol show job`, `docker inspect`. The catalogue is the
`signature:` lines of the documents themselves. The root beats its aftermath, context decides between look-alikes, what
training survived is no finding, a failure that no entry explains is shown as unknown. Logs of any size are streamed.
"""

from __future__ import annotations

import fnmatch
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
from rgt.walk import walk

import click

if TYPE_CHECKING:
    from rgt.triage.causes import Diagnosis
    from rgt.triage.scan import Plan, Trace


_LOGS = ("train*.log", "*.log", "*.out", "*.err")  # of a directory: the first pattern that finds something
_RECORDS = ("*dmesg*.txt", "*describe*.txt", "*events*.txt", "*sacct*.txt", "*scontrol*.txt", "*inspect*.json")
_EXITS = click.IntRange(-64, 511)  # PBS writes 256 + the signal


@click.command(cls=cli.Command)
@click.argument("logs", nargs=-1, metavar="LOG|RUN_DIR...")
@click.option("--top", type=click.IntRange(1), default=3, show_default=True, help="How many explanations are listed.")
@click.option(
    "--exit-code", type=_EXITS, help="What it ended with; 137 is -9. [default: what the run or torchrun says]"
)
@click.option("--dmesg", type=click.Path(path_type=Path), help="The kernel's log, for memory kills and GPU faults.")
@click.option("--flight", type=click.Path(path_type=Path), help="Folder of flight-recorder dumps, instead of logs.")
@cli.report_options
def main(
    logs: tuple[str, ...], top: int, exit_code: int | None, dmesg: Path | None, flight: Path | None, fmt: str | None
) -> int:
    """Say what killed the run that wrote LOG (- is stdin; several logs are ranks of one run).

    \b
    Example: rgt triage train.log
             dmesg -T > kernel.txt; rgt triage run/ --dmesg kernel.txt
             rgt triage --flight dumps/    # torch's, of all ranks: who is behind, at which collective
    """
    if bool(logs) == bool(flight):
        raise bad_input("name a log or a run directory, or, instead of it, the folder of the dumps with --flight")
    if flight:
        from rgt.triage.flight import judge, read_folder

        report, summary = judge(*read_folder(flight))
        return report.emit(fmt, summary)
    from rgt import files
    from rgt.run import record
    from rgt.triage import scan
    from rgt.triage.causes import diagnose

    what = scan.plan()
    if not what.entries:
        raise bad_input(f"no catalogue: {ROOT} has no references/ with signature lines beside scripts/")
    paths: list[str] = []
    for name in logs:
        # a directory stands for its logs: a run's train.log, torchrun's files per rank, or whatever looks like one
        found = [name]
        if name != "-" and os.path.isdir(name):
            met = [entry for _, entry, _ in walk(name, links=False) if entry.is_file()]
            below = ([entry.path for entry in met if fnmatch.fnmatchcase(entry.name, kind)] for kind in _LOGS)
            records = [str(path) for pattern in _RECORDS for path in Path(name).glob(pattern) if path.is_file()]
            found = sorted(next(filter(None, below), [])) + records
        if not found:
            raise bad_input(f"{name} holds no log (looked for {', '.join(_LOGS)}); name the file itself")
        paths += found
    if exit_code is None:  # what launch wrote down about the run's end
        runs = [Path(name) for name in logs if name != "-"]
        events = [path for run in runs if (path := record.Run(run).events).is_file()]
        rows = [row["exit_code"] for path in events for row in files.read_jsonl(path, bad=[]) if "exit_code" in row]
        written = [
            path.read_text(errors="replace")[:9].strip() for run in runs if (path := run / "exit_code").is_file()
        ]
        codes = [code for code in rows if isinstance(code, int)]
        codes += [int(text) for text in written if re.fullmatch(r"-?\d{1,3}", text)]
        exit_code = codes[-1] if codes else None
    traces = scan_all(paths, what, dmesg)
    exit_code = 256 - exit_code if exit_code and exit_code > 256 else exit_code
    return _report(diagnose(traces, what, exit_code), traces, what, top, fmt)


def scan_all(paths: list[str], what: Plan, dmesg: Path | None = None) -> list[Trace]:
    """One trace for each log, in the order given; the kernel's comes last."""
    from rgt.triage.scan import Scan

    traces = []
    for path, kernel in [*((path, False) for path in paths), *([(str(dmesg), True)] if dmesg else [])]:
        try:
            if path != "-" and not stat.S_ISREG(os.stat(path).st_mode):
                raise bad_input(f"{path} is not a regular file; pipe it in and give - instead")
            with nullcontext(sys.stdin.buffer) if path == "-" else open(path, "rb") as stream:
                traces.append(Scan(what, path, kernel).run(stream))
        except OSError as error:
            raise from_os_error(error, f"read {path}") from error
        except ValueError as error:  # a NUL in the name
            raise bad_input(f"cannot read {path!r}: {error}") from error
    return traces


# -- the report


def _report(explanations: list[Diagnosis], traces: list[Trace], what: Plan, top: int, fmt: str | None) -> int:
    from rgt.triage.causes import AFTERMATH, CAUSE, FINDINGS, UNKNOWN

    report = Report("triage")
    findings = [one for one in explanations if one.role in FINDINGS]
    shown = [one for one in findings if one.competes_with(findings[0])]
    for one in shown[:top]:
        place, entry = one.place, one.entry
        where: dict[str, Any] = {"path": place.path, "line": place.line, "evidence": place.text} if place else {}
        if place and place.rank is not None:
            more = f" (and {len(one.ranks) - 1} more ranks)" if len(one.ranks) > 1 else ""
            where["where"] = f"rank {place.rank}{more}"
        if one.frame and place:
            where["evidence"] = f"{place.text} (your code: {one.frame})"
        severity = "warn" if one.role == AFTERMATH else "error"
        if entry:
            role = f"{one.role}; {one.note}" if one.note else one.role
            more = (f" Check: {one.check}" if one.check else "") + (f" -> {entry.read}" if entry.read else "")
            code = "unknown" if one.role == UNKNOWN else "known"
            said = f"{entry.id} {entry.name} ({role}): {one.cause}"
            report.add(code, severity, said, fix=one.fix + more, **where)
        else:
            where.setdefault("evidence", "\n".join(one.traceback))
            report.add("unknown", severity, f"unknown failure: {one.note}", **where)
    report.data = {
        "diagnoses": [one.as_dict() for one in explanations[:top]],
        "more": len(explanations[top:]),
        "logs": [{"path": trace.path, "lines": trace.lines, "bytes": trace.size} for trace in traces],
    }
    read = f"{sum(trace.lines for trace in traces):,} lines of {len(traces)} log{'s' if len(traces) > 1 else ''}"
    first = findings[0] if findings else None
    if not first:
        known = sum(bool(entry.signatures) for entry in what.entries)
        said = (
            f"no failure found. Looked for {known} known ones, tracebacks, exceptions, error lines, signals, exit "
            "codes and a loss that diverges; a killed run may leave no line: give --exit-code, --dmesg, or the text of "
            "kubectl describe pod, sacct or docker inspect as one more file"
        )
    elif first.role == UNKNOWN or not first.entry:
        said = "unknown; read the traceback, do not guess from the list"
    else:
        sure = "" if first.role == CAUSE else f" ({first.role})"
        count = f"; {len(shown)} explanations compete" if len(shown) > 1 else ""
        said = f"most likely {first.entry.id} {first.entry.name}{sure}{count}"
    return report.emit(fmt, f"{read}: {said}")


if __name__ == "__main__":
    main()
