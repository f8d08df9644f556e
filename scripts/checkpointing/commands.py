"""The command line of checkpoints.py."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from checkpointing import cadence as daly
from checkpointing import index, retention
from checkpointing.errors import CheckpointError
from rgt import cli, errors, files, units
from rgt.report import Report, print_json

if TYPE_CHECKING:
    from checkpointing.inspection import Found

TABLE_COSTS = (2.0, 10.0, 60.0, 300.0)  # seconds a save holds training up
TABLE_MTBFS = (1800.0, 7200.0, 6 * 3600.0, 86400.0, 7 * 86400.0)

run_argument = click.argument("run", type=click.Path(path_type=Path))
dry_run = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")


@click.group(cls=cli.Group)
def main() -> None:
    """See, prove and thin out the checkpoints of a run directory; say how often to save.

    Example: python scripts/checkpoints.py list runs/20261116-083000-tiny-gpt-1f00ab
    """


@main.command("list")
@run_argument
@cli.json_option
def list_(run: Path, as_json: bool) -> int:
    """List the checkpoints of RUN, oldest first, from names, sizes and the index; nothing is read.

    Exit 1 when something needs a look: a lost index, a file it names that is gone, remains of a save, damaged ones.

    Example: python scripts/checkpoints.py list runs/20261116-083000-tiny-gpt-1f00ab
    """
    from checkpointing import inspection

    run = inspection.open_run(run)
    rows, report = [_row(run, found) for found in inspection.find(run)], _state(run)
    if as_json:
        print_json({**report.as_dict(), "run": str(run), "checkpoints": rows})
        return errors.OK if report.ok else errors.FINDINGS
    for row in rows:
        state = "verified" if row["verified"] else "not verified"
        metrics = "  ".join(f"{name} {value:.6g}" for name, value in row["metrics"].items())
        click.echo(
            f"{row['step']:>9}  {units.show_size(row['bytes']):>9}  {state:12}  {row['path']}  {metrics}".rstrip()
        )
    return report.emit(None, f"{len(rows)} checkpoints, {units.show_size(sum(row['bytes'] for row in rows))}")


def _row(run: Path, found: Found) -> dict[str, Any]:
    entry = found.entry or {}
    return {
        "path": index.relative(run, found.path),
        "step": found.step,
        "bytes": found.bytes,
        "metrics": entry.get("metrics", {}),
        "verified": bool(entry.get("verified")) and entry.get("bytes", found.bytes) == found.bytes,
    }


def _state(run: Path) -> Report:
    from checkpointing import inspection

    report = Report("checkpoints")
    problem = inspection.index_problem(run)
    if problem:
        fix = f"python scripts/checkpoints.py rebuild {run}"
        report.add("stale-index", "warn", problem, path=str(run / index.INDEX), fix=fix)
    for name in inspection.gone(run):
        report.add("missing", "warn", f"is listed in {index.INDEX} and not there", path=str(run / name))
    for path in inspection.set_aside(run):
        report.add("truncated", "warn", "was found damaged and set aside", path=str(path), fix="look at it, delete it")
    for path in sorted(inspection.place(run).glob(".*.tmp")):
        report.add("partial", "info", "a save under way, or the remains of one that was killed", path=str(path))
    return report


@main.command()
@run_argument
@dry_run
@cli.report_options
def verify(run: Path, dry_run: bool, fmt: str | None) -> int:
    """Read every byte of every checkpoint of RUN, and note in the index which ones are real.

    Container, CRCs, sha256, NaN, zeros and range, as scripts/verify_local.py does. Exit 1 when one is not real.

    Example: python scripts/checkpoints.py verify runs/20261116-083000-tiny-gpt-1f00ab
    """
    from checkpointing import inspection

    run = inspection.open_run(run)
    report, judged = _state(run), _judge_all(run)
    for found in judged:
        for problem in found.problems or []:
            report.add(problem.code, problem.severity, problem.message, path=str(found.path), where=problem.where,
                       evidence=problem.evidence, fix=problem.fix)  # fmt: skip
    if not dry_run:
        _write_index(run, judged)
    good = [found for found in judged if found.good]
    newest = str(good[-1].path) if good else None
    report.data = {"run": str(run), "good": len(good), "checkpoints": len(judged), "latest": newest}
    return report.emit(fmt, f"{len(good)} of {len(judged)} checkpoints are real; last good: {newest or 'none'}")


def _judge_all(run: Path) -> list[Found]:
    from checkpointing import inspection

    found = inspection.find(run)
    if not found:
        raise errors.bad_input(
            f"{inspection.place(run)} holds no checkpoint: no file or folder with a step in its name"
        )
    return [inspection.judge(each) for each in found]


def _write_index(run: Path, judged: list[Found]) -> None:
    from checkpointing import inspection

    listed = [inspection.describe(run, each) for each in judged if each.path.exists()]
    files.write_json(run / index.INDEX, {"checkpoints": listed}, "checkpoints_index")


@main.command()
@run_argument
@dry_run
@cli.json_option
def rebuild(run: Path, dry_run: bool, as_json: bool) -> int:
    """Write checkpoints_index.json anew from the files of RUN, each read and judged; the damaged stay out of it.

    Example: python scripts/checkpoints.py rebuild runs/20261116-083000-tiny-gpt-1f00ab
    """
    from checkpointing import inspection

    run = inspection.open_run(run)
    judged = _judge_all(run)
    good = [found for found in judged if found.good]
    if not dry_run:
        _write_index(run, good)
    bad = [str(found.path) for found in judged if not found.good]
    if as_json:
        print_json({"run": str(run), "listed": [str(found.path) for found in good], "damaged": bad})
    else:
        done = "would list" if dry_run else "lists"
        click.echo(
            f"{run / index.INDEX} {done} {len(good)} checkpoints; {len(bad)} damaged: {', '.join(bad) or 'none'}"
        )
    return errors.FINDINGS if bad else errors.OK


@main.command()
@run_argument
@cli.json_option
def latest(run: Path, as_json: bool) -> int:
    """Print the path of the last good checkpoint of RUN; newer ones that are damaged are named on stderr.

    It is read in full before it is named, and has the parts that the others have, of one step. RUN may also be a
    Trainer's output_dir, DeepSpeed's folder or nanoGPT's out. Exit 1 when none is good.

    Example: python scripts/checkpoints.py latest runs/20261116-083000-tiny-gpt-1f00ab
    """
    from checkpointing import inspection, resume

    run = inspection.open_run(run)
    best, skipped = resume.choose(run)
    for found, why in skipped:
        click.echo(f"{found.path} is damaged ({why.code}: {why.message}), trying the one before it", err=True)
    if best is None:
        raise errors.RgtError(f"{inspection.place(run)} holds no good checkpoint", errors.FINDINGS)
    if as_json:
        print_json({"path": str(best.path), "step": best.step, "sha256": best.sha256})
    else:
        click.echo(best.path)
    return errors.OK


@main.command()
@run_argument
@click.option("--keep-last", type=click.IntRange(1), default=2, show_default=True, help="So many of the newest good.")
@click.option("--best", help="Also the best by this metric of the index.")
@click.option("--direction", type=click.Choice(["down", "up"]), default="down", show_default=True,
              help="down: less is better.")  # fmt: skip
@click.option("--every", type=click.IntRange(1), help="Also those whose step is a multiple of this.")
@dry_run
@cli.json_option
def prune(run: Path, keep_last: int, best: str | None, direction: str, every: int | None, dry_run: bool,
          as_json: bool) -> int:  # fmt: skip
    """Delete the checkpoints of RUN that none of the rules keeps.

    Every one is read first, and only good ones count: the last good one, the one that results.json names, and
    whatever is damaged stay. Exit 4 when none is good, or the run is sealed.

    Example: python scripts/checkpoints.py prune runs/20261116-083000-tiny-gpt-1f00ab --best val_loss --dry-run
    """
    from checkpointing import inspection

    run = inspection.open_run(run)
    if (run / "seal.json").exists():
        raise errors.refused(f"{run} is sealed; a sealed run never changes")
    judged = _judge_all(run)
    _metric_is_known(judged, best)
    gone = _doomed(run, judged, retention.Keep(keep_last, best, direction, every))
    if not dry_run:
        _delete(run, judged, gone)
    sizes = sum(found.bytes for found in gone)
    bad = [str(found.path) for found in judged if not found.good]
    kept = [str(found.path) for found in judged if found.good and found not in gone]
    if as_json:
        print_json({"deleted": [str(found.path) for found in gone], "kept": kept, "damaged": bad, "bytes": sizes,
                    "dry_run": dry_run})  # fmt: skip
        return errors.OK
    for found in gone:
        click.echo(found.path)
    word = "would delete" if dry_run else "deleted"
    left = f", {len(bad)} damaged left alone" if bad else ""
    click.echo(f"{word} {len(gone)}, {units.show_size(sizes)}; {len(kept)} stay{left}", err=True)
    return errors.OK


def _metric_is_known(judged: list[Found], best: str | None) -> None:
    known = {name for found in judged for name in (found.entry or {}).get("metrics", {})}
    if best and best not in known:
        there = ", ".join(sorted(known)) or "none"
        raise errors.bad_input(f"no checkpoint has a metric {best!r}; the index has {there}")


def _doomed(run: Path, judged: list[Found], keep: retention.Keep) -> list[Found]:
    by_path = {index.relative(run, found.path): found for found in judged}
    if not any(found.good for found in judged):
        raise errors.refused(f"none of the {len(judged)} checkpoints of {run} is good; nothing is deleted")
    listed = [{**(found.entry or {}), "path": path, "step": found.step} for path, found in by_path.items()]
    wanted = _named_by_results(run)
    doomed = retention.doomed(listed, keep, lambda entry: by_path[entry["path"]].good)
    return [by_path[entry["path"]] for entry in doomed if entry["path"] not in wanted]


def _named_by_results(run: Path) -> set[str]:
    if not (run / "results.json").exists():
        return set()
    results = files.read_json(run / "results.json", "results")  # unreadable: better to stop than to delete
    return {metric["checkpoint"] for metric in results["metrics"] if metric.get("checkpoint")}


def _delete(run: Path, judged: list[Found], gone: list[Found]) -> None:
    """Index first: killed in between, what it names is there."""
    _write_index(run, [found for found in judged if found not in gone and found.good])
    for found in gone:
        if found.path.is_dir() and not found.path.is_symlink():
            shutil.rmtree(found.path)
        else:
            with contextlib.suppress(FileNotFoundError):
                found.path.unlink()


@main.command()
@click.option("--save-cost", type=units.Duration(), help="How long a save holds training up, such as 12s.")
@click.option("--mtbf", type=units.Duration(), help="Mean time between interruptions of one node, such as 6h.")
@click.option("--restart", type=units.Duration(), default=0.0, help="From an interruption until training goes on.")
@click.option("--nodes", type=click.IntRange(1), default=1, show_default=True, help="Any of them stops the run.")
@click.option("--step-time", type=units.Duration(), help="Of one training step: gives the interval in steps, too.")
@cli.json_option
def cadence(save_cost: float | None, mtbf: float | None, restart: float, nodes: int, step_time: float | None,
            as_json: bool) -> int:  # fmt: skip
    """Say how often to save (Young, Daly); without --save-cost and --mtbf, print a table.

    Example: python scripts/checkpoints.py cadence --save-cost 12s --mtbf 6h --restart 5m --step-time 1.4s
    """
    if (save_cost is None) != (mtbf is None):
        raise click.UsageError("--save-cost and --mtbf belong together")
    if save_cost is None or mtbf is None:
        return _table(as_json)
    try:
        found = daly.cadence(save_cost, mtbf, restart, nodes)
    except CheckpointError as error:
        raise errors.bad_input(str(error)) from None
    steps = max(1, round(found.interval / step_time)) if step_time else None
    if as_json:
        print_json({"interval": found.interval, "young": found.young, "steps": steps, "overhead": found.overhead,
                    "saving": found.saving, "lost": found.lost, "restarting": found.restarting})  # fmt: skip
        return errors.OK
    every = units.show_duration(found.interval) + (f" ({steps} steps)" if steps else "")
    parts = f"saving {found.saving:.1%}, computed again {found.lost:.1%}, restarting {found.restarting:.1%}"
    click.echo(f"save every {every}: {found.overhead:.1%} of the time goes to interruptions ({parts})")
    return errors.OK


def _table(as_json: bool) -> int:
    rows = [(cost, mtbf, daly.cadence(cost, mtbf)) for cost in TABLE_COSTS for mtbf in TABLE_MTBFS]
    if as_json:
        print_json({"table": [{"save_cost": cost, "mtbf": mtbf, "interval": each.interval, "overhead": each.overhead}
                              for cost, mtbf, each in rows]})  # fmt: skip
        return errors.OK
    click.echo("save costs".ljust(12) + "".join(f"MTBF {units.show_duration(mtbf)}".rjust(17) for mtbf in TABLE_MTBFS))
    for cost in TABLE_COSTS:
        cells = [f"{units.show_duration(each.interval)} ({each.overhead:.1%})" for c, _, each in rows if c == cost]
        click.echo(units.show_duration(cost).ljust(12) + "".join(cell.rjust(17) for cell in cells))
    return errors.OK
