"""An audit of what is about to start: checks that yield rows, and the planned job they look at.

Example:
    rows = audit([workdir, memory], PlannedJob(job, "job.yaml"))        add_findings(report, rows)
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rgt.job.description import Job
from rgt.machine import gpus as gpu
from rgt.machine import outside
from rgt.machine.interpreter import Interpreter, interrogate, program, python_word
from rgt.report import Report

CHECK_SECONDS = 150.0  # for one check: a dead network mount, or an import of torch from one, never returns
_SEVERITIES = {"info": "info", "warn": "warn", "fail": "error"}  # status of a row -> severity of the finding
_NEGATIVE = re.compile(r"-\d*\.?\d+(?:e[-+]?\d+)?", re.I)


@dataclass
class Row:
    """What one check saw. `code` is the finding's word in CODES; an ok row has none."""

    name: str
    status: str  # ok | info | warn | fail
    seen: str
    fix: str = ""
    code: str = ""
    path: str = ""


def ok(name: str, seen: str) -> Row:
    return Row(name, "ok", seen)


def warn(name: str, code: str, seen: str, fix: str = "", path: str = "") -> Row:
    return Row(name, "warn", seen, fix, code, path)


def fail(name: str, code: str, seen: str, fix: str = "", path: str = "") -> Row:
    return Row(name, "fail", seen, fix, code, path)


def add_findings(report: Report, rows: Iterable[Row]) -> None:
    for row in rows:
        if row.status in _SEVERITIES:
            severity, where = _SEVERITIES[row.status], row.name or None
            report.add(row.code, severity, row.seen, fix=row.fix or None, path=row.path, where=where)


@dataclass
class PlannedJob:
    """What is about to be started, as far as it is known. Without a `spec` only the machine is looked at."""

    job: Job = field(default_factory=lambda: Job(""))
    spec: str = ""  # path of job.yaml
    write: list[Path] = field(default_factory=list)
    checkpoint_size: int | None = None
    keep: int = 3
    inherited: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def __post_init__(self) -> None:
        self.environ = {**self.inherited, **self.job.env}  # as the job's process would find it
        self.workdir = Path(os.path.abspath(os.path.expanduser(self.job.workdir)))
        # folder of the run directories; the log is in there, too
        self.output = self.workdir / os.path.expanduser(self.job.output) if self.spec else None

    @functools.cached_property
    def reading(self) -> gpu.Reading:
        return gpu.read()

    @property
    def usable_cards(self) -> list[gpu.Gpu]:
        mask = self.environ.get("CUDA_VISIBLE_DEVICES")
        return [card for card in gpu.visible(self.reading.gpus, mask) if not card.error]

    @functools.cached_property
    def options(self) -> list[tuple[str, str]]:
        """--key value, --key=value and key=value of the command line; a word alone has the key ''."""
        pairs, key = [], ""  # the key of an option whose value may be the next word
        for word in self.job.command[1:] if self.job.command else self.job.args:
            name, equals, value = word.partition("=")
            if word.startswith("-") and not _NEGATIVE.fullmatch(word):
                pairs += [(name.lstrip("-"), value)] if equals else []
                key = "" if equals else word.lstrip("-")
                continue
            assigns = equals and name.replace(".", "").replace("_", "").replace("+", "").isalnum()
            pairs.append((name.lstrip("+"), value) if assigns else (key, word))
            key = ""
        return pairs

    def on_host(self, path: Path) -> Path:
        """Where a path of the container is, by the job's mounts."""
        for mount in self.job.mounts if self.job.image else []:
            if path.is_relative_to(mount["to"]):
                return Path(mount["from"]) / path.relative_to(mount["to"])
        return path

    def program(self, word: str) -> str | None:
        """The file that execvp would start, from the job's directory."""
        return program(word, self.workdir, self.environ)

    @functools.cached_property
    def interpreter(self) -> Interpreter | None:
        """None when it cannot be known from here: a container image, or a command that is a shell script."""
        cwd = self.workdir if self.workdir.is_dir() else Path.cwd()
        word = python_word(self.job.command, cwd, self.environ) if self.job.command else self.job.python
        return interrogate(word, cwd, self.environ, torch=True) if word and not self.job.image else None


Check = Callable[[PlannedJob], Iterator[Row]]


def audit(checks: Iterable[Check], planned: PlannedJob) -> list[Row]:
    """Every row of every check, in order. A check that breaks or hangs is itself a row, and stops no other."""
    rows: list[Row] = []
    for check in checks:
        name, own = check.__name__.replace("_", " "), list[Row]()
        # extend keeps the rows that came before an error
        _, problems = outside.together({name: functools.partial(own.extend, check(planned))}, CHECK_SECONDS)
        rows += own
        for problem in problems.values():
            fix = "look at it by hand; a network mount that hangs shows in `df`"
            rows.append(warn(name, "unjudged", f"not checked: {' '.join(problem.split())[:200]}", fix))
    return rows


def table(rows: list[Row]) -> Iterator[str]:
    """Two columns and the fixes, and a last line that counts."""
    width = max((len(row.name) for row in rows), default=0)
    for row in rows:
        yield f"{row.status:<4}  {row.name:<{width}}  {_one_line(row.seen)}"
        if row.fix and row.status != "ok":
            yield f"{'':{width + 8}}fix: {_one_line(row.fix)}"


def count(rows: list[Row]) -> str:
    return ", ".join(f"{sum(row.status == status for row in rows)} {status}" for status in ("ok", "warn", "fail"))


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 400 else text[:400] + "..."
