# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py", "wandb"]
# ///
"""VERIFY · what a tracker really holds: list, diff, curve, duplicates, export; offline files and the hosted API

Example:
    rgt wandb_forensics list wandb/
    rgt wandb_forensics diff wandb/ <id> <id>
    rgt wandb_forensics curve entity/project <id> val/loss
    rgt wandb_forensics export wandb/ <id> --into runs

SOURCE is a folder with run-*.wandb files (read as they are, also after a crash) or entity/project of the hosted
service. Nothing of it is changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt import cli
from rgt.errors import bad_input
from rgt.report import Report
from rgt.run.foreign import strict

import click

if TYPE_CHECKING:
    from rgt.wandb_forensics import tracked

_SHOWN = 40
source_argument = click.argument("source")
run_argument = click.argument("run_id")


@click.group(cls=cli.Group)
def main() -> None:
    """Look at the runs of a tracker as evidence."""


def open_source(text: str) -> tracked.Source:
    """A path that exists is a folder; two or three words with slashes are the hosted service."""
    from rgt.run.foreign import wandb_files
    from rgt.wandb_forensics import tracked

    path = Path(text)
    if path.exists() or text.startswith((".", "/", "~")) or text.count("/") not in (1, 2):
        return wandb_files.Offline(path.expanduser())
    return tracked.Hosted(text)


@main.command("list")
@source_argument
@cli.report_options
def list_runs(source: str, fmt: str | None) -> int:
    """Every run with its state, length and last values; damaged, crashed and doubled ones are findings."""
    from rgt.run.foreign.wandb_files import whole_runs
    from rgt.wandb_forensics import tracked

    opened = open_source(source)
    runs = opened.runs()
    report = Report("wandb_forensics")
    for run in runs:
        if run.damage:
            report.add("truncated", "warn", f"{run.damage}; what came before is readable", path=run.where, where=run.id)
        if run.state in ("crashed", "failed"):
            code = "" if run.exit_code is None else f" with exit code {run.exit_code}"
            report.add("failed", "info", f"{run.state}{code} after {run.length} rows", path=run.where, where=run.id)
    for parts in (parts for parts in whole_runs(runs) if len(parts) > 1):
        message = f"{len(parts)} records, it was resumed; curve and export join them"
        report.add("duplicate", "info", message, path=parts[-1].where, where=parts[-1].id)
    for ids in tracked.copies(opened, runs):
        message = f"{', '.join(ids)} hold the same curve: one run counted {len(ids)} times"
        report.add("duplicate", "warn", message, where=ids[0])
    report.data = {"runs": [run.as_dict() for run in runs]}
    for run in runs[:_SHOWN] if fmt is None else []:
        numbers = [f"{key}={value:.4g}" for key, value in run.numbers().items() if isinstance(value, (int, float))]
        click.echo(f"{run.id}  {run.state:9} {run.length:>7} rows  {run.name}  {' '.join(numbers[:4])}")
    more = f", {len(runs) - _SHOWN} not shown" if len(runs) > _SHOWN else ""
    return report.emit(fmt, f"{len(runs)} runs{more}, {len(report.findings)} findings")


@main.command()
@source_argument
@click.argument("first")
@click.argument("second")
@cli.json_option
def diff(source: str, first: str, second: str, as_json: bool) -> int:
    """What differs between two runs: config, code commit, command, final values. Exit 1 when the config does."""
    from rgt.wandb_forensics import tracked

    opened = open_source(source)
    runs = opened.runs()
    a, b = (tracked.records_of(runs, run_id)[-1] for run_id in (first, second))
    for run in (a, b):
        opened.details(run)
    compared: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "config": (a.settings(), b.settings()),
        "code": ({**a.git, "command": a.command}, {**b.git, "command": b.command}),
        "summary": (a.numbers(), b.numbers()),
    }
    changed = {
        part: {key: (x.get(key), y.get(key)) for key in sorted({*x, *y}) if x.get(key) != y.get(key)}
        for part, (x, y) in compared.items()
    }
    rows = [(part, key, *pair) for part, keys in changed.items() for key, pair in keys.items()]
    lines = [f"{part:8} {key}: {left!r} -> {right!r}" for part, key, left, right in rows]
    data = {"first": a.id, "second": b.id, **changed}
    cli.show(data, as_json, [*lines, f"{len(changed['config'])} settings differ"])
    return 1 if changed["config"] else 0


@main.command()
@source_argument
@run_argument
@click.argument("metric")
@cli.json_option
def curve(source: str, run_id: str, metric: str, as_json: bool) -> None:
    """Every logged value of METRIC, unsampled, as CSV (step,value) or JSON; of a resumed run all records, joined."""
    from rgt.wandb_forensics import tracked

    opened = open_source(source)
    parts = tracked.records_of(opened.runs(), run_id)
    run = parts[-1]
    points = [(row["_step"], row[metric]) for row in tracked.joined_history(opened, parts) if metric in row]
    if not points:
        names = sorted({key for row in tracked.joined_history(opened, parts) for key in row if not key.startswith("_")})
        raise bad_input(f"{run.id} never logged {metric}; it logged: {', '.join(names[:20])}")
    data = {"run": run.id, "metric": metric, "points": strict(points)}
    cli.show(data, as_json, ["step,value", *(f"{step},{value!r}" for step, value in points)])


@main.command()
@source_argument
@run_argument
@click.option("--into", type=click.Path(path_type=Path), default="runs", show_default=True, help="Where runs live.")
@cli.json_option
def export(source: str, run_id: str, into: Path, as_json: bool) -> None:
    """Write a run directory from a tracked run, so that every script can read it."""
    from rgt.wandb_forensics import tracked

    opened = open_source(source)
    parts = tracked.records_of(opened.runs(), run_id)
    opened.details(parts[-1])
    path, rows = tracked.write_run(into, parts[-1], tracked.joined_history(opened, parts))
    cli.show({"run": str(path), "rows": rows}, as_json, [str(path)])


if __name__ == "__main__":
    main()
