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

from pathlib import Path
from typing import Any

import click

from checks import Check, CheckFunction, Plan, collect, report, summary, table
from rgt import cli, job, units
from rgt.errors import bad_input, lacking

SMOKE_SECONDS = "2m"


@click.group(cls=cli.Group)
def main() -> None:
    """Find what would break the job, before it costs money.

    Example: python scripts/preflight.py audit job.yaml
    """


@main.command()
@click.argument("spec", required=False, type=click.Path(path_type=Path), metavar="[JOB]")
@click.option("--write", multiple=True, type=click.Path(path_type=Path), help="One more directory that will be "
              "written to. Repeatable.")  # fmt: skip
@click.option("--checkpoint-size", type=units.Size(), help="Size of one checkpoint. [default: as the newest in output]")
@click.option("--keep", type=click.IntRange(1), default=3, show_default=True, help="How many checkpoints are kept.")
@click.option("--python", default="python3", show_default=True, help="Interpreter to ask when no JOB names one.")
@cli.report_options
def audit(
    spec: Path | None, write: tuple[Path, ...], checkpoint_size: int | None, keep: int, python: str, fmt: str | None
) -> int:
    """Check this machine, and what JOB (job.yaml) takes for granted.

    Example: python scripts/preflight.py audit job.yaml --checkpoint-size 14GiB
    """
    from checks import assumptions, box, cards, disks
    from checks import python as interpreter

    plan = Plan(_load(spec) if spec else None, str(spec or ""), list(write), checkpoint_size, keep, python)
    functions: list[CheckFunction] = [
        *interpreter.CHECKS,
        *cards.CHECKS,
        *box.CHECKS,
        *disks.CHECKS,
        *assumptions.CHECKS,
    ]
    return _emit(collect(functions, plan), fmt)


@main.command()
@click.argument("spec", type=click.Path(path_type=Path), metavar="JOB")
@click.option("--timeout", type=units.Duration(), default=SMOKE_SECONDS, show_default=True, help="End it after this.")
@cli.report_options
def smoke(spec: Path, timeout: float, fmt: str | None) -> int:
    """Run the `smoke` command of JOB (job.yaml) on the CPU: no GPU, no logger, a scratch run directory, bounded time.

    Example: python scripts/preflight.py smoke job.yaml --timeout 5m
    """
    from checks import smoke as runner
    from checks import verdict

    plan = Plan(_load(spec), str(spec))
    _need_smoke(plan, spec)
    done, scratch = runner.run(plan, timeout)
    rows = list(verdict.rows(done, timeout))
    good = all(row.status == "ok" for row in rows)
    if good:
        runner.remove(scratch)
    data = {"smoke": {**done.as_dict(), "scratch": None if good else str(scratch)}}
    tail = [] if good else [*(f"    {line}" for line in runner.last_lines(done.log)), f"all of it: {scratch}/smoke.log"]
    return _emit(rows, fmt, data, tail)


def _need_smoke(plan: Plan, spec: Path) -> None:
    assert plan.job is not None
    if not plan.job.smoke:
        example = "smoke: [python3, train.py, --max_steps, '2', --device, cpu, --out, '{run}']"
        raise bad_input(f"{spec} has no `smoke`; add a command of a minute on the CPU, such as {example}")
    if not plan.workdir.is_dir():
        raise bad_input(f"the workdir of {spec} is not a directory: {plan.workdir}")


def _load(spec: Path) -> job.Job:
    """YAML, or JSON where there is no pyyaml (a rented box)."""
    if not spec.is_file():
        raise bad_input(f"{spec} is not a file; expected a job description (job.yaml)")
    try:
        return job.load(spec)
    except ModuleNotFoundError as error:
        if spec.suffix != ".json":
            raise lacking(f"reading {spec} needs pyyaml ({error}); pip install pyyaml, or give it as .json") from None
    from rgt import files

    return job.from_dict(files.read_json(spec, "job"), spec.parent)


def _emit(rows: list[Check], fmt: str | None, data: dict[str, Any] | None = None, tail: list[str] | None = None) -> int:
    found = report(rows)
    found.data |= data or {}
    if fmt:
        return found.emit(fmt)
    for line in [*table(rows), *(tail or []), summary(rows)]:
        click.echo(line)
    return 0 if found.ok else 1


if __name__ == "__main__":
    main()
