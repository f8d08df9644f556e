"""What the launch takes for granted: directories, data, programs, the paths of the command line and of its configs."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from checks import Check, Plan, fail, looks_like_path, ok, python, quote, warn
from rgt.errors import RgtError
from rgt.report import Finding, Report

_CONFIG = (".yaml", ".yml", ".json", ".py")
_SCRIPT_BYTES = 1 << 20  # of a script that are looked at
_SHELL = re.compile(rb"#!.*\b(?:ba|da|z|k)?sh\b")
_VARIABLE = re.compile(r"\$\{?[A-Za-z_]\w*\}?(?=/|$)")


def workdir(plan: Plan) -> Iterator[Check]:
    if plan.job is None:
        return
    if plan.workdir.is_dir():
        yield ok("workdir", str(plan.workdir))
    else:
        fix = "copy the code there, or correct workdir (relative: to the folder of the job's file)"
        yield fail("workdir", "missing", f"{plan.workdir} is not a directory", fix, plan.spec)


def data(plan: Plan) -> Iterator[Check]:
    for word in plan.job.data if plan.job else []:
        path = plan.workdir / os.path.expanduser(word)
        if not path.exists():
            fix = _elsewhere(plan, word) or "copy it there, or correct `data` in the job"
            yield fail("data", "missing", f"{path} does not exist", fix, plan.spec)
        elif path.is_dir() and not any(path.iterdir()):
            yield fail("data", "empty", f"{path} is empty", "a mount that is not there looks like this", plan.spec)
        elif not os.access(path, os.R_OK):
            yield fail("data", "unreadable", f"{path} cannot be read", f"chmod -R a+rX {quote(path)}", plan.spec)
        else:
            yield ok("data", str(path))


def secrets(plan: Plan) -> Iterator[Check]:
    names = plan.job.secrets if plan.job else []
    unset = [name for name in names if not plan.inherited.get(name)]
    if unset:
        yield fail("secrets", "missing", f"not set here: {', '.join(unset)}", f"export {unset[0]}=..., then submit")
    elif names:
        yield ok("secrets", f"set: {', '.join(names)}")


# -- the program


def program(plan: Plan) -> Iterator[Check]:
    """The script, or the command's first word: there, executable, with Unix line ends."""
    if plan.job is None or plan.job.image or not plan.workdir.is_dir():
        return
    word = plan.job.command[0] if plan.job.command else plan.job.script
    path = plan.workdir / word if plan.job.script else Path(python.locate(plan, word) or plan.workdir / word)
    if word.startswith("~"):
        yield fail("program", "unresolved", f"{word}: no shell expands the ~", f"write {os.path.expanduser(word)}")
    elif not path.is_file():
        fix = _elsewhere(plan, word) or "correct it in the job"
        yield fail(
            "program", "missing", f"{word} is no file from {plan.workdir} and no program on PATH", fix, plan.spec
        )
    elif plan.job.command and not os.access(path, os.X_OK):
        fix = "it is on a noexec mount: copy it elsewhere" if path.stat().st_mode & 0o111 else f"chmod +x {quote(path)}"
        yield fail("program", "missing", f"{path} cannot be executed", fix, str(path))
    else:
        yield ok("program", str(path))


def line_ends(plan: Plan) -> Iterator[Check]:
    """A shell takes the carriage return for a part of the word; the kernel, for a part of the interpreter's name."""
    if plan.job is None or not plan.workdir.is_dir():
        return
    words = [*plan.job.command, plan.job.script, *plan.job.args, *plan.job.smoke]
    files = {plan.workdir / word for word in words if word and (plan.workdir / word).is_file()}
    for path in sorted(files):
        with path.open("rb") as file:
            text = file.read(_SCRIPT_BYTES)
        first = text.partition(b"\n")[0]
        shell = path.suffix in (".sh", ".bash") or _SHELL.match(first)
        run_by_kernel = first.startswith(b"#!") and first.endswith(b"\r") and os.access(path, os.X_OK)
        if b"\r\n" in text and (shell or run_by_kernel):
            fix = f"sed -i 's/\\r$//' {quote(path)}"
            yield fail("line ends", "crlf", f"{path} has Windows line ends", fix, str(path))


# -- paths in words


def _elsewhere(plan: Plan, word: str) -> str:
    """Where a relative path would have been right: the caller's directory, or that of the job's file."""
    if os.path.isabs(word) or plan.job is None:
        return ""
    for base in (Path.cwd(), Path(plan.job.folder)):
        if base != plan.workdir and (base / word).exists():
            return f"write {base / word}: a relative path is read from workdir"
    return ""


def paths(plan: Plan) -> Iterator[Check]:
    """Words that mean a path, and do not where the job runs."""
    if plan.job is None or not plan.workdir.is_dir():
        return
    bad = False
    for key, word in plan.options:
        row = _path(plan, f"--{key} {word}" if key else word, word)
        if row:
            bad = True
            yield row
    if plan.options and not bad:
        yield ok(
            "paths", f"{sum(looks_like_path(word) for _, word in plan.options)} in the command line, none misleads"
        )


def _path(plan: Plan, shown: str, word: str) -> Check | None:
    if word.startswith("~/") or word == "~":
        seen = f"{shown}: no shell reads the job, so ~ stays as it is"
        return warn("paths", "unresolved", seen, f"write {os.path.expanduser(word)}", plan.spec)
    if _VARIABLE.match(word):
        seen = f"{shown}: no shell reads the job, so the variable stays as it is"
        return warn("paths", "unresolved", seen, "write its value, or read it from env in the program", plan.spec)
    if not looks_like_path(word) or (plan.workdir / word).exists():
        return None
    fix = _elsewhere(plan, word)
    if fix:
        seen = f"{shown} does not exist from {plan.workdir}, where the job runs"
        return fail("paths", "unresolved", seen, fix, plan.spec)
    return None


# -- settings, by the checks of `takeover validate`


def command_line(plan: Plan) -> Iterator[Check]:
    """The command line is a config, too: --resume_from must load, --output_dir must have room."""
    if not plan.workdir.is_dir():
        return
    settings = {key: word for key, word in plan.options if key and _checkable(plan, word)}
    if not settings:
        return
    with tempfile.TemporaryDirectory(prefix="preflight-") as folder:
        file = Path(folder) / "command-line.json"
        file.write_text(json.dumps(settings))
        yield from _settings(plan, file, "command line")


def _checkable(plan: Plan, word: str) -> bool:
    return "{run}" not in word and _path(plan, word, word) is None


def configs(plan: Plan) -> Iterator[Check]:
    """Every config file that the command line names."""
    if plan.job is None or not plan.workdir.is_dir():
        return
    for key, word in plan.options:
        named = not key or re.search(r"conf|cfg|recipe", key)
        path = plan.workdir / word
        if named and word.endswith(_CONFIG) and word != plan.job.script and path.is_file() and not _is_main(plan, word):
            yield from _settings(plan, path, f"config {path.name}")


def _is_main(plan: Plan, word: str) -> bool:
    """`command: [python, train.py, ...]`: the first .py is the program, not a config."""
    words = plan.job.command if plan.job else []
    return word.endswith(".py") and word == next((one for one in words if one.endswith(".py")), None)


def _settings(plan: Plan, file: Path, name: str) -> Iterator[Check]:
    from inventory.configs import Checker

    answer = python.ask(plan)
    found = Report("preflight")
    try:
        checker = Checker(file, plan.workdir, answer.program if answer and answer.facts else None, found)
        checker.run()
    except RgtError as error:
        yield warn(name, "unjudged", error.message, "if it is a config, mend it; else this does not matter", plan.spec)
        return
    rows = [_as_row(name, finding, plan) for finding in found.findings if finding.code != "interpreter"]
    bad = [row for row in rows if row.status != "ok"]
    yield from bad
    if checker.paths and not bad:
        yield ok(name, f"{len(checker.paths)} paths checked from {plan.workdir}")


def _as_row(name: str, finding: Finding, plan: Plan) -> Check:
    status = {"error": "fail", "warn": "warn"}.get(finding.severity, "ok")
    seen = f"{finding.where}: {finding.message}" if finding.where else finding.message
    fix = finding.fix or "correct the path, or make it there"
    return Check(name, status, seen, fix, finding.code, plan.spec if name == "command line" else finding.path)


CHECKS = [workdir, program, line_ends, data, secrets, paths, command_line, configs]
