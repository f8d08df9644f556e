# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""VERIFY · run directories for runs that others made: logs, CSV, TensorBoard, W&B, MLflow, Trackio, HF, Lightning

Example:
    rgt adopt old_experiments/                                  # every run below it, into runs/
    rgt adopt table.csv --group method --seed seed --metric acc --split test
    rgt adopt mlflow.db wandb/ lightning_logs/ --dry-run

Reads logs, HF's trainer_state.json, CSV and JSON lines (a row per step or per run), TensorBoard event files, W&B
offline files, MLflow (folder or database), Trackio, results.json; never changes them. Writes runs/<run-id>/ with
run.json (`adopted_from`), metrics.jsonl, train.log and results.json: the last point of each metric of known direction;
`rgt results` computes others. Again on the same source: nothing new, or the same directories brought up to date.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from rgt import cli
from rgt.errors import bad_input
from rgt.metrics.table import known
from rgt.report import Report, plural

import click

_ROWS = 60  # of the table; --json has them all
_METRICS = 3  # of a row


@click.command(cls=cli.Command)
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="PATH...")
@click.option("--into", type=click.Path(path_type=Path), default="runs", show_default=True, help="Where runs live.")
@click.option("--metric", "metrics", multiple=True, help="Only these are results; in a table, its columns. Repeatable.")
@click.option("--group", metavar="COLUMN", help="The column of a table that names the arm.")
@click.option("--seed", metavar="COLUMN", help="The column of a table that holds the seed.")
@click.option("--split", type=click.Choice(["train", "val", "test"]), help="Of values that do not name theirs.")
@click.option("--patience", type=cli.Duration(), default="30s", show_default=True, help="For the reading of one PATH.")
@click.option("--dry-run", is_flag=True, help="Show what is understood and write nothing.")
@cli.report_options
def main(
    paths: tuple[Path, ...],
    into: Path,
    patience: float,
    dry_run: bool,
    fmt: str | None,
    metrics: tuple[str, ...],
    **columns: Any,
) -> int:
    """Give every run in PATH... a run directory, and say what was not understood and why.

    Exit 1: something was not read, or only in part: also what the --patience did not suffice for.

    Example: rgt adopt old_experiments/ --into runs
    """
    from rgt.run import adopt
    from rgt.run.foreign import Ask
    from rgt.run.foreign.run_survey import look

    surveys = [look(path, Ask(metrics, **columns), patience) for path in paths]
    report = Report("adopt")
    already = adopt.adopted_already(into)
    rows = []
    for run in (run for seen in surveys for run in seen.runs):
        row: dict[str, Any] = {"name": run.name, "format": run.format, "source": str(run.source), "state": "understood"}
        row |= {"seeds": run.seeds, "points": len(run.points), "metrics": run.metrics, "values": len(run.results)}
        row["notes"] = list(run.gaps)
        if not dry_run:
            made = adopt.adopt(into, run, already, metrics, cli.command_line())
            row |= {"state": made.state, "run": str(made.run.path), "results": len(made.results)}
            row["notes"] = [*run.gaps, *made.notes]
        rows.append(row)
    for seen in surveys:
        for sentence in seen.stopped:  # first: of thousands of findings the text shows the first ones
            report.add("unseen", "warn", sentence, path=str(seen.root))
        for path, why in seen.unread:
            report.add("unreadable", "warn", why.removeprefix(str(path)).lstrip(": "), path=str(path))
        if seen.ours:
            message = f"{plural(len(seen.ours), 'folder')} below it with a run.json already, left alone"
            report.add("known", "info", message, path=str(seen.root))
    _add_notes(report, rows)
    if not rows and not any(seen.ours for seen in surveys):
        reasons = [why for seen in surveys for _, why in seen.unread[:3]] or ["no log, table or tracker's file"]
        reasons += [sentence for seen in surveys for sentence in seen.stopped[:3]]
        raise bad_input(f"no run was understood in {', '.join(map(str, paths))}: {'; '.join(reasons)}")
    report.data = {"into": str(into), "dry_run": dry_run, "runs": rows}
    for line in _table(rows) if fmt is None else []:
        click.echo(line)
    counts = ", ".join(f"{count} {name}" for name, count in Counter(row["format"] for row in rows).most_common())
    states = ", ".join(f"{count} {name}" for name, count in Counter(row["state"] for row in rows).most_common())
    unread = plural(sum(len(seen.unread) for seen in surveys), "file") + " not understood"
    return report.emit(fmt, f"{plural(len(rows), 'run')} ({counts}): {states}; {unread}; in {into}")


def _add_notes(report: Report, rows: list[dict[str, Any]]) -> None:
    """What is doubtful about the runs; the same sentence about many of them is one finding."""
    from rgt.run.foreign import MAY_GO_ON, NAMED_SEED

    by_note: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        for note in row["notes"]:
            by_note.setdefault(note, []).append(row)
    for note, those in by_note.items():
        names = ", ".join(row["name"] for row in those[:4]) + (f" and {len(those) - 4} more" if len(those) > 4 else "")
        report.add("partial", "info" if note in (MAY_GO_ON, NAMED_SEED) else "warn", note, where=names)


def _table(rows: list[dict[str, Any]]) -> list[str]:
    """One line per run: what it is called, what wrote it, how much of it there is."""
    lines = []
    for row in rows[:_ROWS]:
        names = sorted(row["metrics"], key=lambda name: (known(name.partition(" ")[2]) is None, name))
        shown = ", ".join(names[:_METRICS]) + (f", +{len(names) - _METRICS}" if len(names) > _METRICS else "")
        seed = "/".join(map(str, sorted(set(row["seeds"].values())))) or "-"
        length = f"{row['points']} rows" if row["points"] else plural(row["values"], "value")
        where = Path(row["run"]).name if "run" in row else row["state"]
        lines.append(f"{row['name'][-32:]:32}  {row['format']:12} {length:>10}  seed {seed:<6} {where}  {shown}")
    return lines + ([f"... and {len(rows) - _ROWS} more; --json lists them all"] if len(rows) > _ROWS else [])


if __name__ == "__main__":
    main()
