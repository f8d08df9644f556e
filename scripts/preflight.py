# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""RUN · audits the box and the launch assumptions, and smokes the job on the CPU before a GPU costs money

Example:
    rgt preflight audit                             # this machine, no job yet
    rgt preflight audit job.yaml --checkpoint-size 14GiB --keep 3
    rgt preflight smoke job.yaml --timeout 2m

One row per check: ok, warn or fail, what was seen, and the fix. A probe file is written to every place the job writes
to, and removed; nothing else changes. The smoke runs in a scratch directory, which stays when it fails.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from rgt import bundle, cli, errors, files
from rgt.errors import RgtError, bad_input, lacking
from rgt.report import Report

import click

if TYPE_CHECKING:
    from rgt.job import description, settings
    from rgt.job.audit import PlannedJob, Row

PLACE = click.Path(path_type=Path)
_SCRIPT_BYTES = 1 << 20  # of a script, looked through for Windows line ends
_CONFIGS = (".yaml", ".yml", ".json", ".py")


@click.group(cls=cli.Group)
def main() -> None:
    """Find what would break the job, before it costs money.

    Example: rgt preflight audit job.yaml
    """


@main.command(name="audit")
@click.argument("spec", required=False, type=PLACE, metavar="[JOB]")
@click.option("--quick", is_flag=True, help="Only what a start needs: paths, room for two checkpoints, port, sizes.")
@click.option("--write", multiple=True, type=PLACE, help="One more directory that is written to. Repeatable.")
@click.option("--checkpoint-size", type=cli.Size(), help="Size of one checkpoint. [default: as the newest in output]")
@click.option("--keep", type=click.IntRange(1), default=3, show_default=True, help="How many checkpoints are kept.")
@click.option("--python", help="Interpreter to ask when no JOB names one. [default: the active environment's]")
@cli.report_options
def audit_command(
    spec: Path | None, quick: bool, write: tuple[Path, ...], python: str | None, fmt: str | None, **sizes: Any
) -> int:
    """Check this machine, and what JOB (job.yaml) takes for granted.

    Example: rgt preflight audit job.yaml --checkpoint-size 14GiB
    """
    from rgt.job import description
    from rgt.job.audit import PlannedJob, audit
    from rgt.machine.interpreter import job_python
    from rgt.preflight import box_checks

    job = _load(spec) if spec else description.Job("", python=job_python(python))
    planned = PlannedJob(job, str(spec or ""), list(write), **sizes)
    checks = (*box_checks.CHECKS, *(JOB_CHECKS if spec else ()))
    if quick:
        planned.keep = 1
        checks = (*JOB_CHECKS, box_checks.size, box_checks.port, box_checks.output_place, box_checks.checkpoints)
    return _emit(audit(checks, planned), fmt)


@main.command()
@click.argument("image")
@click.option("--gpu", required=True, help="The card on offer, such as B200.")
@click.option("--driver", default="", help="Its NVIDIA driver, where the offer names one, such as 550.54.")
@cli.report_options
def fits(image: str, gpu: str, driver: str, fmt: str | None) -> int:
    """Before renting: do CUDA and torch of IMAGE, as its name tells them, run on the card and driver on offer?

    Example: rgt preflight fits pytorch/pytorch:2.4.0-cuda12.4-cudnn9-runtime --gpu B200 --driver 550.54
    """
    from rgt.job.audit import Row, fail, ok
    from rgt.machine import card_sheets

    cuda, _ = card_sheets.versions(image)
    if not card_sheets.lookup(gpu):
        raise bad_input(f"no card called {gpu!r} is known; known are {', '.join(card_sheets.SHEETS)}")
    rows = [
        fail("image", "cuda", each, "take an image for this card") for each in card_sheets.problems(image, gpu, driver)
    ]
    if not cuda:
        rows = [Row("image", "warn", f"the name of {image} does not tell its CUDA; nothing was judged", "", "unjudged")]
    wanted = (
        "" if driver or not cuda else f"; the driver was not judged: {card_sheets.driver_for(cuda)} or newer is wanted"
    )
    return _emit(rows or [ok("image", f"CUDA {cuda[0]}.{cuda[1]} runs on {gpu}{wanted}" if cuda else "")], fmt)


@main.command()
@click.argument("spec", type=PLACE, metavar="JOB")
@click.option("--timeout", type=cli.Duration(), default="2m", show_default=True, help="End it after this.")
@cli.report_options
def smoke(spec: Path, timeout: float, fmt: str | None) -> int:
    """Run the `smoke` command of JOB (job.yaml) on the CPU: no GPU, no logger, a scratch run directory, bounded time.

    Example: rgt preflight smoke job.yaml --timeout 5m
    """
    from rgt.job.audit import PlannedJob
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
    from rgt.job import description

    if str(spec) == "-":  # from launch, which has checked it
        return description.Job(**json.load(sys.stdin))
    if not spec.is_file():
        least = "at least the lines  name: NAME  script: train.py  python: INTERPRETER"
        least += f"; all of them: {bundle.REFERENCES / 'run-local' / 'launch.md'}"
        raise bad_input(f"{spec} is not a file; expected a job description (job.yaml), {least}")
    if spec.suffix == ".json":
        return description.from_dict(files.read_json(spec, "job"), spec.parent)
    try:
        return description.load(spec)
    except ModuleNotFoundError as error:
        raise lacking(f"reading {spec} needs pyyaml ({error}); pip install pyyaml, or give it as .json") from None


def _emit(rows: list[Row], fmt: str | None, data: dict[str, Any] | None = None, tail: list[str] | None = None) -> int:
    from rgt.job.audit import add_findings, count, table

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
    from rgt.job.audit import fail, ok

    if planned.workdir.is_dir():
        yield ok("workdir", str(planned.workdir))
    else:
        fix = "copy the code there, or correct workdir (relative: to the folder of the job's file)"
        yield fail("workdir", "missing", f"{planned.workdir} is not a directory", fix, planned.spec)


def program(planned: PlannedJob) -> Iterator[Row]:
    """The script, or the command's first word: there, and executable."""
    from rgt.job.audit import fail, ok

    job = planned.job
    if job.image or not planned.workdir.is_dir():
        return
    word = job.command[0] if job.command else job.script
    path = planned.workdir / (planned.program(word) or word if job.command else word)
    if not path.is_file():
        seen = f"{word} is neither a file in {planned.workdir} nor a program on PATH"
        yield fail("program", "missing", seen, "correct it in the job", planned.spec)
    elif job.command and not os.access(path, os.X_OK):
        fix = f"chmod +x {quote(str(path))}, or copy it off a noexec mount"
        yield fail("program", "missing", f"{path} cannot be executed", fix, str(path))
    else:
        yield ok("program", str(path))


def line_ends(planned: PlannedJob) -> Iterator[Row]:
    """In what a shell or the kernel reads; Python itself does not mind."""
    from rgt.job.audit import fail

    job = planned.job
    for word in dict.fromkeys((*job.command, job.script, *job.args, *job.smoke)):
        path = planned.workdir / word
        if not word or not path.is_file():
            continue
        with path.open("rb") as file:
            text = file.read(_SCRIPT_BYTES)
        executed = text.startswith(b"#!") and os.access(path, os.X_OK)
        if b"\r\n" in text and (executed or path.suffix in (".sh", ".bash")):
            fix = f"sed -i 's/\\r$//' {quote(str(path))}"
            yield fail("line ends", "crlf", f"{path} has Windows line ends", fix, str(path))


def data(planned: PlannedJob) -> Iterator[Row]:
    from rgt.job.audit import fail, ok

    for word in planned.job.data:
        path = planned.on_host(planned.workdir / os.path.expanduser(word))
        if not path.exists():
            fix = "copy it there, or correct `data` in the job; a relative path is read from workdir"
            yield fail("data", "missing", f"{path} does not exist", fix, planned.spec)
        elif path.is_dir() and not any(path.iterdir()):
            yield fail("data", "empty", f"{path} is empty", "a mount that is not there looks like this", planned.spec)
        else:
            yield ok("data", str(path))


def configs(planned: PlannedJob) -> Iterator[Row]:
    """The command line is a config, too (--resume_from must be whole, --output_dir have room); then config files."""
    from rgt.job import config_paths, description, settings
    from rgt.job.audit import ok, warn

    moved = planned.job.image and any(mount["from"] != mount["to"] for mount in planned.job.mounts)
    if not planned.workdir.is_dir() or moved:  # what a path means in there cannot be said from here
        return
    given: list[settings.Setting] = []
    found = [("command line", Path(planned.spec), given)]
    program = next((word for word in planned.job.command if word.endswith(".py")), "")
    for key, word in planned.options:
        path = planned.workdir / word
        named = (not key and word != program) or re.search(r"conf|cfg|recipe", key)
        if word.startswith(("~/", "$")):
            fix = "write its value: no shell reads the job, so it stays as it is"
            yield warn("command line", "unresolved", f"--{key} {word}" if key else word, fix, planned.spec)
        elif key and description.RUN not in word:
            given.append(settings.Setting(key, word))
        if named and word.endswith(_CONFIGS) and path.is_file():
            try:
                found.append((f"config {path.name}", path, settings.read(path)))
            except RgtError as error:
                fix = "if it is a config, mend it; else this does not matter"
                yield warn(f"config {path.name}", "unjudged", error.message, fix, planned.spec)
    for name, path, named_there in found:
        config = config_paths.ConfigPaths(named_there, path, planned.workdir)
        bad = [row for row in config.rows() if row.status in ("warn", "fail")]
        for row in bad:
            fix = row.fix or "correct the path, or make it there"
            yield replace(row, name=name, seen=f"{row.name}: {row.seen}", fix=fix)
        if config.paths and not bad:
            yield ok(name, f"{len(config.paths)} paths checked from {planned.workdir}")


def store(planned: PlannedJob) -> Iterator[Row]:
    """The token, and whether it may write, with the environment that the job will have."""
    from rgt.host import stores
    from rgt.job.audit import fail, ok

    if not planned.job.store:
        return
    os.environ.update(planned.job.env)  # where the clients look for their settings
    try:
        stores.check_write(planned.job.store)
    except RgtError as error:
        fix = "mend token or store; a token of the job is one of its `secrets`"
        yield fail("store", "unreadable", error.message, fix, planned.spec)
    else:
        yield ok("store", f"{planned.job.store} may be written to")


JOB_CHECKS = (workdir, program, line_ends, data, configs, store)


if __name__ == "__main__":
    main()
