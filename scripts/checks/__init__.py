"""The checks behind preflight.py. Each is a small function of a Plan that yields rows; none can stop the others."""

from __future__ import annotations

import functools
import os
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rgt.errors import RgtError
from rgt.job import RUN, Job
from rgt.report import Report

CHECK_SECONDS = 150.0  # for one check: a dead network mount, or an import of torch from one, never returns
STATUSES = {"warn": "warn", "fail": "error"}  # status -> severity of the finding
_WORKERS = ("num_workers", "dataloader_num_workers", "workers", "n_workers")


@dataclass
class Check:
    """One row. `code` is the finding's word in CODES; an ok row has none."""

    name: str
    status: str
    seen: str
    fix: str = ""
    code: str = field(default="", repr=False)
    path: str = field(default="", repr=False)

    def row(self) -> dict[str, str]:
        return {name: value for name, value in asdict(self).items() if name not in ("code", "path")}


def ok(name: str, seen: str) -> Check:
    return Check(name, "ok", seen)


def warn(name: str, code: str, seen: str, fix: str, path: str = "") -> Check:
    return Check(name, "warn", seen, fix, code, path)


def fail(name: str, code: str, seen: str, fix: str, path: str = "") -> Check:
    return Check(name, "fail", seen, fix, code, path)


@dataclass
class Plan:
    """What is about to be started, as far as it is known. Without a job only the machine is looked at."""

    job: Job | None = None
    spec: str = ""  # path of job.yaml
    write: list[Path] = field(default_factory=list)
    checkpoint_size: int | None = None
    keep: int = 3
    python: str = "python3"
    inherited: Mapping[str, str] = field(default_factory=lambda: os.environ)

    @property
    def environ(self) -> dict[str, str]:
        """As the job's process would find it."""
        return {**self.inherited, **(self.job.env if self.job else {})}

    @property
    def workdir(self) -> Path:
        return Path(os.path.abspath(os.path.expanduser(self.job.workdir if self.job else ".")))

    @property
    def output(self) -> Path | None:
        """Folder of the run directories; the log is in there, too."""
        return self.workdir / os.path.expanduser(self.job.output) if self.job else None

    @property
    def gpus(self) -> int:
        return self.job.gpus_per_node if self.job else 0

    @property
    def arguments(self) -> list[str]:
        """The words after the program (or the script)."""
        if self.job is None:
            return []
        return self.job.command[1:] if self.job.command else self.job.args

    @functools.cached_property
    def options(self) -> list[tuple[str, str]]:
        """--key value, --key=value and key=value of the command line; a word alone has the key ''."""
        return list(_options(self.arguments))

    @property
    def workers(self) -> int | None:
        """DataLoader workers per process, when the command line says so."""
        found = [value for key, value in self.options if _last(key) in _WORKERS and value.isdigit()]
        return int(found[-1]) if found else None


def _options(words: list[str]) -> Iterator[tuple[str, str]]:
    rest = iter(words)
    held = ""
    for word in rest:
        key, equals, value = word.partition("=")
        if word.startswith("-") and not _is_number(word):
            held = "" if equals else word.lstrip("-")
            if equals:
                yield key.lstrip("-"), value
        elif equals and key.replace(".", "").replace("_", "").replace("+", "").isalnum():
            yield key.lstrip("+"), value
            held = ""
        else:
            yield held, word
            held = ""


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _last(key: str) -> str:
    return key.rpartition(".")[2].replace("-", "_").lower()


def looks_like_path(word: str) -> bool:
    if RUN in word or "://" in word or "\n" in word or not word.strip("./"):
        return False
    return "/" in word or word.endswith(
        (".yaml", ".yml", ".json", ".py", ".pt", ".pth", ".ckpt", ".safetensors", ".bin")
    )


CheckFunction = Callable[[Plan], Iterator[Check]]


def collect(functions: list[CheckFunction], plan: Plan) -> list[Check]:
    """Every row of every check, in order. A check that breaks or hangs is itself a row."""
    return [row for function in functions for row in _guarded(function, plan)]


def _guarded(function: CheckFunction, plan: Plan) -> list[Check]:
    rows: list[Check] = []
    name = function.__name__.replace("_", " ")

    def body() -> None:
        try:
            for row in function(plan):
                rows.append(row)
        except Exception as error:
            text = error.message if isinstance(error, RgtError) else f"{type(error).__name__}: {error}"
            rows.append(_unjudged(name, f"not checked: {' '.join(text.split())[:200]}"))

    thread = threading.Thread(target=body, daemon=True)  # one that hangs must not keep the process from ending
    thread.start()
    thread.join(CHECK_SECONDS)
    if thread.is_alive():
        return [*rows, _unjudged(name, f"no answer within {CHECK_SECONDS:g} s")]
    return rows


def _unjudged(name: str, seen: str) -> Check:
    return warn(name, "unjudged", seen, "look at it by hand; a network mount that hangs shows in `df`")


def report(rows: list[Check]) -> Report:
    """The rows as findings, and all of them under `checks`."""
    found = Report("preflight", data={"checks": [row.row() for row in rows]})
    for row in rows:
        if row.status in STATUSES:
            found.add(row.code, STATUSES[row.status], row.seen, path=row.path, where=row.name, fix=row.fix or None)
    return found


def table(rows: list[Check]) -> Iterator[str]:
    width = max((len(row.name) for row in rows), default=0)
    for row in rows:
        yield f"{row.status:<4}  {row.name:<{width}}  {_one_line(row.seen)}"
        if row.fix and row.status != "ok":
            yield f"{'':{width + 8}}fix: {_one_line(row.fix)}"


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 400 else text[:400] + "..."


def summary(rows: list[Check]) -> str:
    counts = {status: sum(row.status == status for row in rows) for status in ("ok", "warn", "fail")}
    return ", ".join(f"{count} {status}" for status, count in counts.items())


def quote(path: object) -> str:
    return shlex.quote(str(path))
