"""An audit of what is about to start: checks that yield rows, the planned job they look at, and its interpreter.

Example:
    rows = audit([workdir, memory], PlannedJob(job, "job.yaml"))        add_findings(report, rows)
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rgt.job.description import Job
from rgt.machine import gpus as gpu
from rgt.machine import outside
from rgt.report import Report

CHECK_SECONDS = 150.0  # for one check: a dead network mount, or an import of torch from one, never returns
ASK_SECONDS, TORCH_SECONDS = 20.0, 120.0  # torch may come from a cold network disk
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

    def program(self, word: str) -> str | None:
        """The file that execvp would start, from the job's directory."""
        if "/" not in word:
            return shutil.which(word, path=self.environ.get("PATH"))
        path = self.workdir / word
        return str(path) if path.is_file() else None

    @functools.cached_property
    def interpreter(self) -> Interpreter | None:
        """None when it cannot be known from here: a container image, or a command that is a shell script."""
        word: str = self.job.command[0] if self.job.command else self.job.python
        name = os.path.basename(word)
        if name in ("torchrun", "accelerate", "deepspeed") and (found := self.program(word)):
            word = str(Path(found).with_name("python"))  # the same environment
        elif self.job.command and not name.startswith("python"):
            return None
        if self.job.image:
            return None
        cwd = self.workdir if self.workdir.is_dir() else Path.cwd()
        return interrogate(word, cwd, self.environ, torch=True)


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


# -- the interpreter that the job would use; torch is imported there, never by us

_ASK = """
import importlib.util, json, sys, warnings
found = [name for name in ("torch", "jax", "tensorflow") if importlib.util.find_spec(name)]
facts = {"executable": sys.executable, "prefix": sys.prefix, "frameworks": found,
         "version": sys.version.split()[0]}
if "torch" in found and sys.argv[1:] == ["torch"]:
    try:
        import torch
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            available, count = torch.cuda.is_available(), torch.cuda.device_count()
        flags = getattr(torch._C, "_cuda_getArchFlags", lambda: "")() or ""
        error = str(said[-1].message) if said else ""
        facts["torch"] = {"version": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip,
                          "arch": flags.split(), "available": available, "count": count, "error": error}
    except Exception as problem:
        facts["torch"] = {"problem": type(problem).__name__ + ": " + str(problem)}
print("\\n" + json.dumps(facts))
"""


@dataclass
class Interpreter:
    """`facts` is what it says about itself; empty when there is a `problem`, which `fix` mends."""

    word: str  # as the job names it
    facts: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    fix: str = ""

    def other_environment(self, folder: Path) -> Path | None:
        """The virtual environment in the job's directory, when that is not the one in use."""
        own = next((folder / name for name in (".venv", "venv") if (folder / name / "pyvenv.cfg").is_file()), None)
        return own if own and os.path.realpath(own) != os.path.realpath(self.facts["prefix"]) else None


def interrogate(word: str, cwd: Path, environ: Mapping[str, str], torch: bool = False) -> Interpreter:
    """Find the interpreter as the job would, from `cwd`, and ask it; with `torch` it imports torch, too."""
    if word.startswith("~"):
        return Interpreter(word, problem="no shell expands the ~", fix=f"write {os.path.expanduser(word)}")
    program = str(cwd / word) if "/" in word else shutil.which(word, path=environ.get("PATH")) or ""
    if not os.path.isfile(program):
        where = f"from {cwd}" if "/" in word else "on PATH"
        return Interpreter(word, problem=f"there is no such program {where}", fix="correct the name of the interpreter")
    if not os.access(program, os.X_OK):
        return Interpreter(word, problem=f"{program} is not executable", fix=f"chmod +x {program}")
    # it runs in the job's directory: a torch.py there would be imported by the job, too
    words, seconds = (["torch"], TORCH_SECONDS) if torch else ([], ASK_SECONDS)
    env = {**environ, "PYTHONDONTWRITEBYTECODE": "1"}
    answer = outside.tool(program, "-c", _ASK, *words, seconds=seconds, env=env, cwd=str(cwd))
    facts = None
    with contextlib.suppress(ValueError, IndexError):
        facts = json.loads(answer.text.strip().splitlines()[-1])
    if isinstance(facts, dict):
        return Interpreter(word, facts)
    fix = "make the environment anew; it was moved, or its base was removed"
    return Interpreter(word, problem=answer.problem or "it is not a Python (exit code 0)", fix=fix)
