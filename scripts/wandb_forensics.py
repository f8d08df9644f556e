# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "jsonschema", "wandb"]
# ///
"""VERIFY · what a tracker really holds: list, diff, curve, duplicates, prune, export; offline files and the hosted API

Example:
    python scripts/wandb_forensics.py list wandb/
    python scripts/wandb_forensics.py diff wandb/ <id> <id>
    python scripts/wandb_forensics.py curve entity/project <id> val/loss
    python scripts/wandb_forensics.py export wandb/ <id> --into runs

SOURCE is a folder with run-*.wandb files (read as they are, also after a crash) or entity/project of the hosted
service. `prune` prints a plan; it acts only on ids you name, with --yes.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import click

from rgt import cli, files, rundir
from rgt.errors import bad_input, refused
from rgt.ids import mint_id
from rgt.report import Report, print_json, progress
from rgt.rundir import Run
from tracker import judge
from tracker.hosted import Hosted
from tracker.offline import Offline
from tracker.shape import Row, Source, Tracked, in_order, joined

_SHOWN = 40
_RELIST = (0, 2, 5, 10)  # seconds between looks after a deletion: the service's list lags behind
_SPLITS = (
    ("val", "val"),
    ("valid", "val"),
    ("validation", "val"),
    ("eval", "val"),
    ("test", "test"),
    ("train", "train"),
)

source_argument = click.argument("source")
run_argument = click.argument("run_id")


@click.group(cls=cli.Group)
def main() -> None:
    """Look at the runs of a tracker as evidence."""


def open_source(text: str) -> Source:
    """A path that exists is a folder; two or three words with slashes are the hosted service."""
    path = Path(text)
    if path.exists() or text.startswith((".", "/", "~")) or text.count("/") not in (1, 2):
        return Offline(path.expanduser())
    return Hosted(text)


def pick(runs: list[Tracked], run_id: str) -> Tracked:
    found = [run for run in runs if run_id in (run.id, run.name)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise bad_input(f"no run {run_id}; there are: {', '.join(run.id for run in runs[:10])}")
    longest = max(found, key=lambda run: run.rows or run.steps)
    progress(f"{len(found)} records of {run_id} (a resumed or copied run); this is the longest: {longest.where}")
    return longest


def pick_whole(source: Source, runs: list[Tracked], run_id: str) -> list[Tracked]:
    """Every record of one run, the last one last; of a resumed run there are several."""
    parts = sorted(records_of(runs, run_id), key=in_order)
    if len(parts) > 1:
        _say_joined(source, parts)
    return parts


def records_of(runs: list[Tracked], run_id: str) -> list[Tracked]:
    found = [run for run in runs if run_id in (run.id, run.name)]
    named = {(run.project, run.id) for run in found}
    run = found[0] if len(named) == 1 else pick(runs, run_id)
    return [part for part in runs if (part.project, part.id) == (run.project, run.id)]


def _say_joined(source: Source, parts: list[Tracked]) -> None:
    count: Counter[int] = Counter()
    said = []
    for part in parts:
        steps = {row["_step"] for row in source.history(part)}
        count.update(steps)
        said.append(f"{part.where} ({f'steps {min(steps)} to {max(steps)}' if steps else 'no steps'})")
    both = sum(times > 1 for times in count.values())
    progress(
        f"{len(parts)} records of {parts[0].id} were joined by step, the later one counts where both have a step "
        f"({both}): {', '.join(said)}"
    )


@main.command("list")
@source_argument
@cli.report_options
def list_runs(source: str, fmt: str | None) -> int:
    """Every run with its state, length and last values; damaged, crashed and doubled ones are findings."""
    opened = open_source(source)
    runs = opened.runs()
    report = Report("wandb_forensics")
    for run in runs:
        _state(report, run)
    _doubles(report, opened, runs)
    report.data = {"runs": [_row(run) for run in runs]}
    if fmt is None:
        for run in runs[:_SHOWN]:
            click.echo(_line(run))
    more = f", {len(runs) - _SHOWN} not shown" if len(runs) > _SHOWN else ""
    return report.emit(fmt, f"{len(runs)} runs{more}, {len(report.findings)} findings")


def _state(report: Report, run: Tracked) -> None:
    if run.damage:
        report.add("truncated", "warn", f"{run.damage}; what came before is readable", path=run.where, where=run.id)
    if run.state in ("crashed", "failed"):
        code = "" if run.exit_code is None else f" with exit code {run.exit_code}"
        report.add(
            "failed", "info", f"{run.state}{code} after {run.rows or run.steps} rows", path=run.where, where=run.id
        )


def _doubles(report: Report, source: Source, runs: list[Tracked]) -> None:
    for group in judge.groups(source, runs):
        ids, count = ", ".join(group.ids), len(group.runs)
        if group.kind == "copy":
            message = f"{ids} hold the same curve: one run counted {len(group.ids)} times"
            report.add("duplicate", "warn", message, where=group.keep.id)
        elif group.kind == "resume":
            message = f"{group.keep.id} has {count} records, it was resumed; the longest is {group.keep.where}"
            report.add("duplicate", "info", message, where=group.keep.id)


def _row(run: Tracked) -> dict[str, Any]:
    numbers = {
        key: value for key, value in run.summary.items() if isinstance(value, (int, float)) and not key.startswith("_")
    }
    return {
        "id": run.id, "name": run.name, "project": run.project, "state": run.state, "created": run.created,
        "rows": run.rows, "last_step": run.steps, "resumed": run.resumed, "where": run.where,
        "summary": _jsonable(numbers), "config": run.settings(),
    }  # fmt: skip


def _line(run: Tracked) -> str:
    numbers = [f"{key}={value:.4g}" for key, value in _row(run)["summary"].items() if isinstance(value, (int, float))]
    rows = run.rows if run.rows is not None else run.steps
    return f"{run.id}  {run.state:9} {rows:>7} rows  {run.name}  {' '.join(numbers[:4])}"


def _jsonable(data: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value if not isinstance(value, float) or math.isfinite(value) else str(value)
        for key, value in data.items()
    }


@main.command()
@source_argument
@click.argument("first")
@click.argument("second")
@cli.json_option
def diff(source: str, first: str, second: str, as_json: bool) -> int:
    """What differs between two runs: config, code commit, command, final values. Exit 1 when the config does."""
    opened = open_source(source)
    runs = opened.runs()
    a, b = pick(runs, first), pick(runs, second)
    for run in (a, b):
        opened.details(run)
    changed = {part: _changed(left, right) for part, left, right in _compared(a, b)}
    if as_json:
        print_json({"first": a.id, "second": b.id, **changed})
    else:
        for part, keys in changed.items():
            for key, (left, right) in keys.items():
                click.echo(f"{part:8} {key}: {left!r} -> {right!r}")
        click.echo(f"{len(changed['config'])} settings differ")
    return 1 if changed["config"] else 0


def _compared(a: Tracked, b: Tracked) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    return [
        ("config", a.settings(), b.settings()),
        ("code", {**a.git, "command": a.command}, {**b.git, "command": b.command}),
        ("summary", _row(a)["summary"], _row(b)["summary"]),
    ]


def _changed(left: dict[str, Any], right: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {key: (left.get(key), right.get(key)) for key in sorted({*left, *right}) if left.get(key) != right.get(key)}


@main.command()
@source_argument
@run_argument
@click.argument("metric")
@cli.json_option
def curve(source: str, run_id: str, metric: str, as_json: bool) -> None:
    """Every logged value of METRIC, unsampled, as CSV (step,value) or JSON; of a resumed run all records, joined."""
    opened = open_source(source)
    parts = pick_whole(opened, opened.runs(), run_id)
    run = parts[-1]
    points = [(row["_step"], row[metric]) for row in joined(opened, parts) if metric in row]
    if not points:
        names = sorted({key for row in joined(opened, parts) for key in row if not key.startswith("_")})
        raise bad_input(f"{run.id} never logged {metric}; it logged: {', '.join(names[:20])}")
    if as_json:
        print_json({"run": run.id, "metric": metric, "points": [[step, _finite(value)] for step, value in points]})
        return
    click.echo("step,value")
    for step, value in points:
        click.echo(f"{step},{value!r}")


def _finite(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@main.command()
@source_argument
@cli.json_option
def dupes(source: str, as_json: bool) -> int:
    """Runs that are one (same curve), parts of one (resumed), or repeats (same config).

    Exit 1 when one run is counted twice.
    """
    opened = open_source(source)
    found = judge.groups(opened, opened.runs())
    if as_json:
        print_json(
            {
                "groups": [
                    {"kind": group.kind, "keep": group.keep.id, "runs": [run.where for run in group.runs]}
                    for group in found
                ]
            }
        )
    else:
        for group in found:
            click.echo(f"{group.kind}: {', '.join(group.ids)} (longest: {group.keep.where})")
        click.echo(f"{len(found)} groups")
    return 1 if any(group.kind == "copy" for group in found) else 0


@main.command()
@source_argument
@click.argument("ids", nargs=-1)
@click.option(
    "--shorter-than",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Crashed runs with fewer rows are listed.",
)
@click.option("--yes", is_flag=True, help="Really do it, for the IDS that you name.")
@cli.json_option
def prune(source: str, ids: tuple[str, ...], shorter_than: int, yes: bool, as_json: bool) -> int:
    """Print what could go, and why; with IDS and --yes take exactly those away, then list again.

    Offline runs move to pruned/ beside them, a resumed one with all its records. Hosted runs are gone for good.
    """
    opened = open_source(source)
    runs = opened.runs()
    if not yes:
        _print_plan(judge.prunable(opened, runs, shorter_than), as_json)
        return 0
    if not ids:
        raise refused("--yes needs the ids of the runs to remove; `prune` without it prints the candidates")
    chosen = [record for run_id in ids for record in records_of(runs, run_id)]
    alive = [run.id for run in chosen if run.state == "running"]
    if alive:
        raise refused(f"{', '.join(alive)} still runs; nothing was removed")
    done = [(run.id, opened.delete(run)) for run in chosen]
    left = _still_listed(source, {run.where for run in chosen})
    if as_json:
        print_json({"removed": [{"id": run_id, "now": where} for run_id, where in done], "still_listed": left})
    else:
        for run_id, where in done:
            click.echo(f"removed {run_id}: {where}")
        click.echo(f"still listed: {', '.join(left) or 'none'}")
    return 1 if left else 0


def _print_plan(plan: list[tuple[Tracked, str]], as_json: bool) -> None:
    if as_json:
        print_json({"plan": [{"id": run.id, "where": run.where, "why": why} for run, why in plan]})
        return
    for run, why in plan:
        click.echo(f"{run.id}  {why}  {run.where}")
    click.echo(f"{len(plan)} candidates; nothing was removed (name ids and --yes to do it)")


def _still_listed(source: str, places: set[str]) -> list[str]:
    left: list[str] = []
    for pause in _RELIST:
        time.sleep(pause)
        try:
            left = [run.id for run in open_source(source).runs() if run.where in places]
        except click.ClickException:  # the last one is gone
            return []
        if not left or isinstance(open_source(source), Offline):
            break
    return left


@main.command()
@source_argument
@run_argument
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    default=Path("runs"),
    show_default=True,
    help="Where run directories live.",
)
@cli.json_option
def export(source: str, run_id: str, into: Path, as_json: bool) -> None:
    """Write a run directory from a tracked run, so that every script can read it."""
    opened = open_source(source)
    parts = pick_whole(opened, opened.runs(), run_id)
    tracked = parts[-1]
    opened.details(tracked)
    run = _create(into, tracked)
    rows = [line for row in joined(opened, parts) for line in _metrics(row)]
    files.write_bytes(run.metrics, b"".join(files.dump(line, str(run.metrics)) + b"\n" for line in rows))
    run.log_event({"finished": "finished", "running": "launched"}.get(tracked.state, "failed"), source=tracked.where)
    if as_json:
        print_json({"run": str(run.path), "rows": len(rows)})
    else:
        click.echo(run.path)


def _create(into: Path, tracked: Tracked) -> Run:
    """The record of how it was started, as far as the tracker knows it."""
    run = Run(into / mint_id(tracked.name or tracked.id))
    run.path.mkdir(parents=True)
    config = tracked.settings()
    git = {"commit": tracked.git["commit"], "branch": "", "dirty": False, "untracked": []} if tracked.git else None
    record = {
        "run_id": run.id,
        "created": tracked.created or datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": tracked.command,
        "cwd": "",
        "config": config,
        "config_sha256": rundir.config_hash(config),
        "seeds": {
            key: value for key, value in config.items() if key.split(".")[-1] == "seed" and isinstance(value, int)
        },
        "backend": "wandb",
        "job": {"source": tracked.where, "id": tracked.id, "state": tracked.state},
        "git": git,
        "env": {"python": "", "executable": "", "packages": {}},
        "host": {"name": tracked.host, "platform": "", "cpus": None},
        "devices": [],
    }
    files.write_json(run.run_json, record, "run")
    return run


def _metrics(row: Row) -> list[dict[str, Any]]:
    """One row of the tracker is one line per split: val/loss becomes loss of the split val."""
    by_split: dict[str, dict[str, Any]] = {}
    for key, value in row.items():
        if not key.startswith("_") and isinstance(value, (int, float)) and not isinstance(value, bool):
            split, name = _split(key)
            by_split.setdefault(split, {})[name] = (
                files.json_number(float(value)) if isinstance(value, float) else value
            )
    head = {"step": int(row["_step"]), "time": float(row.get("_timestamp", 0.0))}
    return [{**head, "split": split, **values} for split, values in by_split.items()]


def _split(key: str) -> tuple[str, str]:
    for prefix, split in _SPLITS:
        for mark in ("/", "_", "."):
            if key.startswith(prefix + mark):
                return split, key[len(prefix) + 1 :]
    return "train", key


if __name__ == "__main__":
    main()
