# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "nvidia-ml-py"]
# ///
"""RUN · audits the box and the launch assumptions, and smokes the job on the CPU before a GPU costs money

Example:
    python scripts/preflight.py audit                             # this machine, no job yet
    python scripts/preflight.py audit job.yaml --checkpoint-size 14GiB --keep 3
    python scripts/preflight.py smoke job.yaml --timeout 2m

One row per check: ok, warn or fail, what was seen, and the fix. A probe file is written to every place the job writes
to, and removed; nothing else changes. The smoke runs in a scratch directory, which stays when it fails.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

import click

from rgt import cli, errors, files
from rgt.errors import RgtError, bad_input, lacking
from rgt.job import description, settings
from rgt.job.audit import PlannedJob, Row, add_findings, audit, count, fail, ok, table, warn
from rgt.job.settings import Setting
from rgt.report import Report

PLACE = click.Path(path_type=Path)
_SCRIPT_BYTES = 1 << 20  # of a script that are looked at
_SHELL = re.compile(rb"#!.*\b(?:ba|da|z|k)?sh\b")
_VARIABLE = re.compile(r"\$\{?[A-Za-z_]\w*\}?(?=/|$)")
_CONFIGS = (".yaml", ".yml", ".json", ".py")
_FILES = (*_CONFIGS, ".pt", ".pth", ".ckpt", ".safetensors", ".bin")


@click.group(cls=cli.Group)
def main() -> None:
    """Find what would break the job, before it costs money.

    Example: python scripts/preflight.py audit job.yaml
    """


@main.command(name="audit")
@click.argument("spec", required=False, type=PLACE, metavar="[JOB]")
@click.option("--write", multiple=True, type=PLACE, help="One more directory that is written to. Repeatable.")
@click.option("--checkpoint-size", type=cli.Size(), help="Size of one checkpoint. [default: as the newest in output]")
@click.option("--keep", type=click.IntRange(1), default=3, show_default=True, help="How many checkpoints are kept.")
@click.option("--python", default="python3", show_default=True, help="Interpreter to ask when no JOB names one.")
@cli.report_options
def audit_command(spec: Path | None, write: tuple[Path, ...], python: str, fmt: str | None, **sizes: Any) -> int:
    """Check this machine, and what JOB (job.yaml) takes for granted.

    Example: python scripts/preflight.py audit job.yaml --checkpoint-size 14GiB
    """
    from rgt.preflight import box_checks, gpu_checks

    job = _load(spec) if spec else description.Job("", python=python)
    planned = PlannedJob(job, str(spec or ""), list(write), **sizes)
    checks = (*gpu_checks.CHECKS, *box_checks.CHECKS, *(JOB_CHECKS if spec else ()))
    return _emit(audit(checks, planned), fmt)


@main.command()
@click.argument("spec", type=PLACE, metavar="JOB")
@click.option("--timeout", type=cli.Duration(), default="2m", show_default=True, help="End it after this.")
@cli.report_options
def smoke(spec: Path, timeout: float, fmt: str | None) -> int:
    """Run the `smoke` command of JOB (job.yaml) on the CPU: no GPU, no logger, a scratch run directory, bounded time.

    Example: python scripts/preflight.py smoke job.yaml --timeout 5m
    """
    from rgt.preflight import smoke as runner

    planned = PlannedJob(_load(spec), str(spec))
    if not planned.job.smoke:
        example = "smoke: [python3, train.py, --max_steps, '2', --device, cpu, --out, '{run}']"
        raise bad_input(f"{spec} has no `smoke`; add a command of a minute on the CPU, such as {example}")
    if not planned.workdir.is_dir():
        raise bad_input(f"the workdir of {spec} is not a directory: {planned.workdir}")
    done, scratch = runner.run(planned, timeout)
    rows = list(runner.verdict(done, timeout))
    good = all(row.status == "ok" for row in rows)
    if good:
        shutil.rmtree(scratch, ignore_errors=True)
    data = {"smoke": {**done.as_dict(), "scratch": None if good else str(scratch)}}
    tail = [] if good else [*(f"    {line}" for line in runner.last_lines(done.log)), f"all of it: {scratch}/smoke.log"]
    return _emit(rows, fmt, data, tail)


def _load(spec: Path) -> description.Job:
    """YAML, or JSON where there is no pyyaml (a rented box)."""
    if not spec.is_file():
        raise bad_input(f"{spec} is not a file; expected a job description (job.yaml)")
    if spec.suffix == ".json":
        return description.from_dict(files.read_json(spec, "job"), spec.parent)
    try:
        return description.load(spec)
    except ModuleNotFoundError as error:
        raise lacking(f"reading {spec} needs pyyaml ({error}); pip install pyyaml, or give it as .json") from None


def _emit(rows: list[Row], fmt: str | None, data: dict[str, Any] | None = None, tail: list[str] | None = None) -> int:
    names = ("name", "status", "seen", "fix")
    report = Report("preflight", data={"checks": [{name: getattr(row, name) for name in names} for row in rows]})
    report.data |= data or {}
    add_findings(report, rows)
    if fmt:
        return report.emit(fmt)
    for line in [*table(rows), *(tail or []), count(rows)]:
        click.echo(line)
    return errors.OK if report.ok else errors.FINDINGS


# -- what the launch takes for granted: directories, data, programs, the paths of the command line and of its configs


def workdir(planned: PlannedJob) -> Iterator[Row]:
    if planned.workdir.is_dir():
        yield ok("workdir", str(planned.workdir))
    else:
        fix = "copy the code there, or correct workdir (relative: to the folder of the job's file)"
        yield fail("workdir", "missing", f"{planned.workdir} is not a directory", fix, planned.spec)


def program(planned: PlannedJob) -> Iterator[Row]:
    """The script, or the command's first word: there, executable, with Unix line ends."""
    job = planned.job
    if job.image or not planned.workdir.is_dir():
        return
    word = job.command[0] if job.command else job.script
    path = planned.workdir / (planned.program(word) or word if job.command else word)
    if word.startswith("~"):
        yield fail("program", "unresolved", f"{word}: no shell expands the ~", f"write {os.path.expanduser(word)}")
    elif not path.is_file():
        seen = f"{word} is neither a file in {planned.workdir} nor a program on PATH"
        yield fail("program", "missing", seen, _elsewhere(planned, word) or "correct it in the job", planned.spec)
    elif job.command and not os.access(path, os.X_OK):
        noexec = path.stat().st_mode & 0o111
        fix = "it is on a noexec mount: copy it elsewhere" if noexec else f"chmod +x {quote(str(path))}"
        yield fail("program", "missing", f"{path} cannot be executed", fix, str(path))
    else:
        yield ok("program", str(path))


def line_ends(planned: PlannedJob) -> Iterator[Row]:
    job = planned.job
    words = filter(None, (*job.command, job.script, *job.args, *job.smoke))
    for path in sorted({path for word in words if (path := planned.workdir / word).is_file()}):
        with path.open("rb") as file:
            text = file.read(_SCRIPT_BYTES)
        first = text.partition(b"\n")[0]
        shell = path.suffix in (".sh", ".bash") or _SHELL.match(first)
        run_by_kernel = first.startswith(b"#!") and first.endswith(b"\r") and os.access(path, os.X_OK)
        if b"\r\n" in text and (shell or run_by_kernel):
            fix = f"sed -i 's/\\r$//' {quote(str(path))}"
            yield fail("line ends", "crlf", f"{path} has Windows line ends", fix, str(path))


def data(planned: PlannedJob) -> Iterator[Row]:
    for word in planned.job.data:
        path = planned.workdir / os.path.expanduser(word)
        if not path.exists():
            fix = _elsewhere(planned, word) or "copy it there, or correct `data` in the job"
            yield fail("data", "missing", f"{path} does not exist", fix, planned.spec)
        elif path.is_dir() and not any(path.iterdir()):
            yield fail("data", "empty", f"{path} is empty", "a mount that is not there looks like this", planned.spec)
        elif not os.access(path, os.R_OK):
            fix = f"chmod -R a+rX {quote(str(path))}"
            yield fail("data", "unreadable", f"{path} cannot be read", fix, planned.spec)
        else:
            yield ok("data", str(path))


def secrets(planned: PlannedJob) -> Iterator[Row]:
    names = planned.job.secrets
    unset = [name for name in names if not planned.inherited.get(name)]
    if unset:
        yield fail("secrets", "missing", f"not set here: {', '.join(unset)}", f"export {unset[0]}=..., then submit")
    elif names:
        yield ok("secrets", f"set: {', '.join(names)}")


def paths(planned: PlannedJob) -> Iterator[Row]:
    """Words of the command line that mean a path, and do not where the job runs."""
    if planned.options and planned.workdir.is_dir():
        bad = [row for key, word in planned.options if (row := _misleading(planned, key, word))]
        yield from bad
        if not bad:
            number = sum(_looks_like_path(word) for _, word in planned.options)
            yield ok("paths", f"{number} in the command line, all lead where they seem to")


def _misleading(planned: PlannedJob, key: str, word: str) -> Row | None:
    shown = f"--{key} {word}" if key else word
    home = word.startswith("~/") or word == "~"
    if home or _VARIABLE.match(word):
        seen = f"{shown}: no shell reads the job, so {'~' if home else 'the variable'} stays as it is"
        fix = f"write {os.path.expanduser(word)}" if home else "write its value, or read it from env in the program"
        return warn("paths", "unresolved", seen, fix, planned.spec)
    if not _looks_like_path(word) or (planned.workdir / word).exists() or not (fix := _elsewhere(planned, word)):
        return None
    seen = f"{shown} does not exist from {planned.workdir}, where the job runs"
    return fail("paths", "unresolved", seen, fix, planned.spec)


def _looks_like_path(word: str) -> bool:
    if description.RUN in word or "://" in word or "\n" in word or not word.strip("./"):
        return False
    return "/" in word or word.endswith(_FILES)


def _elsewhere(planned: PlannedJob, word: str) -> str:
    """Where a relative path would have been right: the caller's directory, or that of the job's file."""
    if not os.path.isabs(word):
        for base in (Path.cwd(), Path(planned.job.folder)):
            if base != planned.workdir and (base / word).exists():
                return f"write {base / word}: a relative path is read from workdir"
    return ""


def configs(planned: PlannedJob) -> Iterator[Row]:
    """The command line is a config, too (--resume_from must load, --output_dir have room); then its config files."""
    job = planned.job
    if not planned.workdir.is_dir():
        return
    options = [(key, word) for key, word in planned.options if description.RUN not in word]
    given = [Setting(key, word) for key, word in options if key and not _misleading(planned, key, word)]
    yield from _settings(planned, given, Path(planned.spec), "command line")
    main_script = job.script or next((word for word in job.command if word.endswith(".py")), "")
    for key, word in options:
        path = planned.workdir / word
        named = not key or re.search(r"conf|cfg|recipe", key)
        if named and word.endswith(_CONFIGS) and word != main_script and path.is_file():
            name = f"config {path.name}"
            try:
                yield from _settings(planned, settings.read(path), path, name)
            except RgtError as error:
                fix = "if it is a config, mend it; else this does not matter"
                yield warn(name, "unjudged", error.message, fix, planned.spec)


def _settings(planned: PlannedJob, given: list[Setting], path: Path, name: str) -> Iterator[Row]:
    from rgt.job.config_paths import ConfigPaths

    python = planned.interpreter
    config = ConfigPaths(given, path, planned.workdir, python.facts if python else {})
    bad = [row for row in config.rows() if row.status in ("warn", "fail")]
    for row in bad:
        fix = row.fix or "correct the path, or make it there"
        yield replace(row, name=name, seen=f"{row.name}: {row.seen}", fix=fix)
    if config.paths and not bad:
        yield ok(name, f"{len(config.paths)} paths checked from {planned.workdir}")


JOB_CHECKS = (workdir, program, line_ends, data, secrets, paths, configs)


if __name__ == "__main__":
    main()
