# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""VERIFY · writes a run's results.json from its metrics.jsonl or an evaluation's output, with rule and source

    rgt results runs/<run-id> --metric val_loss                     # the last point, no selection
    rgt results runs/<run-id> --metric loss --split val --rule mean-last-5
    rgt results runs/<run-id> --metric test_acc --rule best-val     # test where val is best
    rgt results runs/<run-id> --metric accuracy --split test --from eval.json --eval-set test.jsonl

Each row of results.json says by which rule its value was taken, from which file, that file's sha256, and the command.
Rows of other metrics stay; a row with another value is replaced only with --replace. Exit 1: written, but a test point
was selected.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rgt import bundle, cli
from rgt.errors import bad_input
from rgt.report import Report

import click

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command(cls=cli.Command)
@click.argument("run_dir", type=click.Path(path_type=Path), metavar="RUN_DIR")
@click.option("--metric", "metrics", multiple=True, required=True, help="Its name in the file; repeatable.")
@click.option("--rule", help="last (the default), best, best-val, or mean-last-K.")
@click.option("--split", type=click.Choice(["train", "val", "test"]), help="Needed where the name or row has none.")
@click.option("--from", "evaluation", type=_FILE, help="An evaluation's JSON or CSV instead of metrics.jsonl.")
@click.option("--direction", type=click.Choice(["up", "down"]), help="Which way is better, for an unknown metric.")
@click.option("-n", "n", type=click.IntRange(1), help="Examples behind the value, where the file does not say.")
@click.option("--dataset", help="What it was measured on, as tables shall name it.")
@click.option("--eval-set", type=_FILE, help="The file it was measured on: its sha256 goes into the row.")
@click.option("--replace", is_flag=True, help="Replace a row that says something else.")
@click.option("--dry-run", is_flag=True, help="Show the rows and write nothing.")
@cli.report_options
def main(
    run_dir: Path,
    metrics: tuple[str, ...],
    evaluation: Path | None,
    eval_set: Path | None,
    replace: bool,
    dry_run: bool,
    fmt: str | None,
    **question: Any,
) -> int:
    """Compute the final numbers of RUN_DIR and write them to its results.json.

    Example: rgt results runs/20260101-120000-tiny-a1b2c3 --metric val_loss --rule best
    """
    from rgt.run import record, results
    from rgt.run.seal import digest_of

    if run_dir.is_dir() and not record.Run(run_dir).run_json.is_file():
        raise bad_input(f"{run_dir} has no run.json; others' runs get one by {bundle.command('adopt', run_dir)}")
    run = record.open_run(run_dir.resolve())
    question |= {"eval_set_sha256": digest_of(eval_set) if eval_set else None}
    rows = [results.measure(run, results.Question(metric, **question), evaluation) for metric in metrics]
    rows = [{**row, "command": cli.command_line()} for row in rows]
    merged = results.merge(run, rows, replace)
    report = Report("results", data={"results": str(run.results), "rows": rows, "written": not dry_run})
    for row in rows:
        if row["rule"] == "best" and row["split"] == "test":
            message = f"{row['name']} is the best of {row['points']} test points: it was chosen on the test set"
            fix = "choose the step on val, and report test there"
            report.add("selection", "warn", message, path=str(run.results), where=row["name"], fix=fix)
    if not dry_run:
        run.write_results(merged)
    lines = [f"{row['split']} {row['name']} {row['value']:.6g} ({row['rule']}, from {row['source']})" for row in rows]
    written = "nothing written" if dry_run else f"written to {run.results}"
    return report.emit(fmt, "\n".join([*lines, written]))


if __name__ == "__main__":
    main()
