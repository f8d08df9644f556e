"""The command line of checkpoints.py."""

from __future__ import annotations

import math
import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rgt import bundle, cli, errors, files, units
from rgt.report import Report, print_json

import click

_PATH = click.Path(path_type=Path)


def _open_run(context: click.Context, parameter: click.Parameter, path: Path) -> Path:
    from rgt.checkpoint import inventory

    return inventory.open_run(path)


run_argument = click.argument("run", type=_PATH, callback=_open_run)
_DIRECTION = click.Choice(["down", "up"])
dry_run = click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")


@click.group(cls=cli.Group)
def main() -> None:
    """See, prove and thin out the checkpoints of a run directory; say how often to save.

    Example: rgt checkpoints list runs/20261116-083000-tiny-gpt-1f00ab
    """


@main.command("list")
@run_argument
@cli.json_option
def list_(run: Path, as_json: bool) -> int:
    """List the checkpoints of RUN, oldest first, from names, sizes, the index and a look at each.

    Exit 1 when something needs a look: a lost index, a file it names that is gone, remains of a save, damaged ones.
    Headers are read, and checksums for two seconds; `verify` reads every byte.

    Example: rgt checkpoints list runs/20261116-083000-tiny-gpt-1f00ab
    """
    from rgt.checkpoint import index, inventory, whole

    report, read_until = Report("checkpoints"), time.monotonic() + 2
    _add_state(report, run)
    rows: list[dict[str, Any]] = []
    for each in inventory.find(run):
        size, entry = each.bytes, each.entry
        verified = bool(entry.get("verified")) and entry.get("bytes", size) == size
        row = {"path": index.relative(run, each.path), "step": each.step, "bytes": size, "verified": verified}
        answer = whole.verdict(each.path, read_until=read_until)
        rows.append({**row, "metrics": entry.get("metrics", {}), "whole": answer.whole})
        if not answer.whole:
            report.add(answer.code, "error", answer.message, path=str(each.path))
    if as_json:
        print_json({**report.as_dict(), "run": str(run), "checkpoints": rows})
        return errors.OK if report.ok else errors.FINDINGS
    for row in rows:
        state = "NOT WHOLE" if not row["whole"] else "verified" if row["verified"] else "not verified"
        metrics = "  ".join(f"{name} {value:.6g}" for name, value in row["metrics"].items())
        shown = units.show_size(row["bytes"])
        click.echo(f"{row['step']:>9}  {shown:>9}  {state:12}  {row['path']}  {metrics}".rstrip())
    return report.emit(None, f"{len(rows)} checkpoints, {units.show_size(sum(row['bytes'] for row in rows))}")


def _add_state(report: Report, run: Path) -> None:
    """What the index and the names in the folder show without reading a checkpoint."""
    from rgt.checkpoint import index, inventory, names

    listed, there = index.read(run), (run / index.INDEX).exists()
    if listed is None and (there or inventory.find(run)):
        problem = "is torn or not an index" if there else "is missing"
        fix = bundle.command("checkpoints", "verify", run)
        report.add("stale-index", "warn", problem, path=str(run / index.INDEX), fix=fix)
    for entry in listed or []:
        if not (run / entry["path"]).exists():
            report.add("missing", "warn", f"is listed in {index.INDEX} and not there", path=str(run / entry["path"]))
    for path in sorted(inventory.place(run).iterdir()):
        if names.DAMAGED in path.name:
            message = "was found damaged and set aside"
            report.add("truncated", "warn", message, path=str(path), fix="look at it, delete it")
        elif path.name.startswith(".") and path.suffix == ".tmp":
            report.add("partial", "info", "a save under way, or the remains of one that was killed", path=str(path))


@main.command()
@run_argument
@dry_run
@cli.report_options
def verify(run: Path, dry_run: bool, fmt: str | None) -> int:
    """Read every byte of every checkpoint of RUN, and note in the index which ones are real.

    Container, CRCs, sha256, NaN, zeros and range, as scripts/verify_local.py does. Exit 1 when one is not real.

    Example: rgt checkpoints verify runs/20261116-083000-tiny-gpt-1f00ab
    """
    from rgt.checkpoint import index, inventory

    report = Report("checkpoints")
    _add_state(report, run)
    checkpoints = inventory.read_all(run)
    for each in checkpoints:
        for _, problem in each.problems or []:
            report.add(path=str(each.path), **asdict(problem))
    if not dry_run:
        index.write(run, [each.new_entry(run) for each in checkpoints])
    good = [each for each in checkpoints if each.good]
    newest = str(good[-1].path) if good else None
    report.data = {"run": str(run), "good": len(good), "checkpoints": len(checkpoints), "latest": newest}
    return report.emit(fmt, f"{len(good)} of {len(checkpoints)} checkpoints are real; last good: {newest or 'none'}")


@main.command()
@run_argument
@cli.json_option
def latest(run: Path, as_json: bool) -> None:
    """Print the path of the last good checkpoint of RUN; newer ones that are damaged are named on stderr.

    It is read in full before it is named, and has the parts that the others have, of one step. RUN may also be a
    Trainer's output_dir, DeepSpeed's folder or nanoGPT's out. Exit 1 when none is good.

    Example: rgt checkpoints latest runs/20261116-083000-tiny-gpt-1f00ab
    """
    from rgt.checkpoint import inventory

    newest, skipped = inventory.newest_whole([*inventory.find(run), *inventory.without_step(run)])
    for each, why in skipped:
        click.echo(f"{each.path} is damaged ({why.code}: {why.message}), trying the one before it", err=True)
    if newest is None:
        raise errors.RgtError(f"{inventory.place(run)} holds no good checkpoint", errors.FINDINGS)
    data = {"path": str(newest.path), "step": newest.step, "sha256": newest.sha256}
    cli.show(data, as_json, [str(newest.path)])


@main.command()
@run_argument
@click.option("--keep-last", type=click.IntRange(1), default=2, show_default=True, help="So many of the newest good.")
@click.option("--best", help="Also the best by this metric of the index.")
@click.option("--direction", type=_DIRECTION, default="down", show_default=True, help="down: less is better.")
@click.option("--every", type=click.IntRange(1), help="Also those whose step is a multiple of this.")
@dry_run
@cli.json_option
def prune(
    run: Path, keep_last: int, best: str | None, direction: str, every: int | None, dry_run: bool, as_json: bool
) -> None:
    """Delete the checkpoints of RUN that none of the rules keeps.

    Every one is read first, and only good ones count: the last good one of each series (fold0-step_N, fold1-step_N),
    the one that results.json names, whatever is damaged, is a link or is linked to stay. Exit 4 when none is good, the
    run is sealed, or its folder is a link.

    Example: rgt checkpoints prune runs/20261116-083000-tiny-gpt-1f00ab --best val_loss --dry-run
    """
    from rgt.checkpoint import index, inventory, names
    from rgt.checkpoint.index import Keep

    if (run / "seal.json").exists():
        raise errors.refused(f"{run} is sealed; a sealed run never changes")
    if inventory.place(run).is_symlink():
        raise errors.refused(f"{inventory.place(run)} is a link; name the run that it leads to")
    checkpoints = inventory.read_all(run)
    metrics = {name for each in checkpoints for name in each.entry.get("metrics", {})}
    if best and best not in metrics:
        there = ", ".join(sorted(metrics)) or "none"
        raise errors.bad_input(f"no checkpoint has a metric {best!r}; the index has {there}")
    bad = [str(each.path) for each in checkpoints if not each.good]
    if len(bad) == len(checkpoints):
        raise errors.refused(f"none of the {len(bad)} checkpoints of {run} is good; nothing is deleted")
    wanted: set[str] = set()
    if (run / "results.json").exists():
        results = files.read_json(run / "results.json", "results")  # unreadable: better to stop than to delete
        wanted = {metric["checkpoint"] for metric in results["metrics"] if metric.get("checkpoint")}
    linked = {path.resolve() for path in inventory.place(run).iterdir() if path.is_symlink()}
    listed = [each.new_entry(run) for each in checkpoints if each.good]
    keep, gone = Keep(keep_last, best, direction, every), []
    for series in {names.series(Path(entry["path"]).name) for entry in listed}:
        own = [entry for entry in listed if names.series(Path(entry["path"]).name) == series]
        own = [entry for entry in own if not (run / entry["path"]).is_symlink()]
        gone += [entry for entry in keep.doomed(own, lambda entry: True) if entry["path"] not in wanted]
    gone = [entry for entry in listed if entry in gone and (run / entry["path"]).resolve() not in linked]
    if not dry_run:
        index.delete(run, listed, gone)
    deleted = [str(run / entry["path"]) for entry in gone]
    kept = [str(run / entry["path"]) for entry in listed if entry not in gone]
    size = sum(entry["bytes"] for entry in gone)
    data = {"deleted": deleted, "kept": kept, "damaged": bad, "bytes": size, "dry_run": dry_run}
    cli.show(data, as_json, deleted)
    if not as_json:
        word = "would delete" if dry_run else "deleted"
        left = f", {len(bad)} damaged left alone" if bad else ""
        click.echo(f"{word} {len(gone)}, {units.show_size(size)}; {len(kept)} stay{left}", err=True)


@main.command()
@click.argument("command", nargs=-1, required=True, metavar="-- COMMAND...")
@click.option("--steps", type=click.IntRange(12), default=30, show_default=True, help="Optimizer steps of a whole run.")
@click.option("--resume", metavar="COMMAND", help="How to go on, as one word. [default: COMMAND again]")
@click.option("--kills", type=click.IntRange(1), default=1, show_default=True, help="So many times per signal.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the steps at which it is killed.")
@click.option("--timeout", type=cli.Duration(), default=1800.0, show_default=True, help="Of each single run.")
@cli.report_options
def certify(
    command: tuple[str, ...],
    steps: int,
    resume: str | None,
    kills: int,
    seed: int,
    timeout: float,
    fmt: str | None,
) -> int:
    """Does COMMAND, a training with torch, really resume? Kill it, run it again, compare with an uninterrupted run.

    \b
    Runs it six times, unmodified: twice whole, then SIGTERM and SIGKILL at random steps behind the first checkpoint,
    each followed by a resume. Watched from inside (PYTHONPATH): steps, losses, batches, learning rate, RNG, optimizer,
    EMA, final weights. Names what was not restored, and whether the checkpoint lacks it. Exit 0: all as if unbroken.

    \b
    In COMMAND and --resume these words are replaced:
      {out}         a new folder for each run; without it each run works in a copy of the current directory
                    (up to 200 MB), and what COMMAND writes to an absolute path is not kept apart
      {steps}       --steps, where COMMAND takes a bound; without it the run is cut after so many steps
      {checkpoint}  in --resume: the newest whole checkpoint of the killed run
    It must save within the first steps: set its interval low. Rank 0 and the first optimizer that steps are watched.

    \b
    Example: rgt checkpoints certify -- python train.py --out {out} --max-steps {steps} --save-every 5
             rgt checkpoints certify --resume 'python train.py --from {checkpoint}' -- python train.py
    """
    from rgt.checkpoints import certify as certification

    again = shlex.split(resume) if resume else list(command)
    report = certification.certify(certification.Stage(list(command), steps, timeout), again, kills, seed)
    verdict = "certified" if report.ok else "NOT certified"
    return report.emit(fmt, f"{verdict}: {report.data['summary']}; compared: {', '.join(report.data['stable'])}")


# -- how often to save


def save_every(cost: float, mtbf: float) -> tuple[float, float]:
    """Seconds between two saves (Daly), and the share of time that saving and computing again take.

    Where a save costs more than twice the time between failures, the interval is that time; it is never shorter than
    a save: to save half of the time is the most there is a point in.
    """
    ratio = cost / (2 * mtbf)
    daly = math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost if ratio < 1 else mtbf
    interval = max(daly, cost)
    return interval, cost / (interval + cost) + interval / (2 * mtbf)  # half an interval is lost each time


@main.command()
@click.option("--save-cost", type=cli.Duration(), required=True, help="How long a save holds training up, such as 12s.")
@click.option("--mtbf", type=cli.Duration(), required=True, help="Mean time between interruptions; one node's / nodes.")
@click.option("--step-time", type=cli.Duration(), help="Of one training step: gives the interval in steps, too.")
@cli.json_option
def cadence(save_cost: float, mtbf: float, step_time: float | None, as_json: bool) -> None:
    """Say how often to save (Young, Daly), and the share of time that is lost then.

    Example: rgt checkpoints cadence --save-cost 12s --mtbf 6h --step-time 1.4s
    """
    if save_cost == 0 or mtbf == 0:
        raise errors.bad_input("a save and the time between interruptions take longer than 0 s")
    interval, overhead = save_every(save_cost, mtbf)
    steps = max(1, round(interval / step_time)) if step_time else None
    data = {"save_cost": save_cost, "mtbf": mtbf, "interval": interval, "overhead": overhead, "steps": steps}
    shown = f"save every {units.show_duration(interval)}" + (f", {steps} steps" if steps else "")
    cli.show(data, as_json, [f"{shown}: {overhead:.1%} of the time is lost"])
