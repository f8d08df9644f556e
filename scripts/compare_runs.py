# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py", "scipy"]
# ///
"""VERIFY · bug, effect or noise: what changed between two sets of runs, and whether the difference is real

Example:
    rgt compare_runs runs/new-* --vs runs/base-* --metric accuracy --intended lr
    rgt compare_runs ours.csv --vs baseline.csv --metric psnr
    rgt compare_runs table.csv::method=ours --vs table.csv::method=base --metric val/loss --json
    rgt compare_runs plan --metric accuracy --delta 0.5 --from runs/old-* --looks 3 --write plan.json

Reads run directories, folders of them, results.json and CSV (one row per run or per eval item). Ends with a sentence to
put beside the number. `plan` says beforehand how many seeds a difference needs; it writes only what --write names.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

from rgt import bundle, cli, errors
from rgt.compare_runs import changes, stats, suspect, trial_sources, verdict
from rgt.compare_runs import plan as plans
from rgt.compare_runs.trial import Arm, short
from rgt.compare_runs.verdict import Question
from rgt.metrics import table
from rgt.report import SEVERITIES, Report

import click

_BETWEEN = "\0"  # cannot be in an argument, so it can stand between those of one --vs
_WIDTH = 110


class ArmsCommand(cli.Command):
    """`--vs b1 b2 b3`, `--from a1 a2`: click's options take a fixed number of values, an arm has any number."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words: list[str] = []
        in_arm = False
        for word in args:
            option, _, value = word.partition("=")
            if option in ("--vs", "--from"):
                words += [option, value]
                in_arm = True
            elif in_arm and not word.startswith("-"):
                words[-1] += _BETWEEN + word
            else:
                words.append(word)
                in_arm = False
        return super().parse_args(ctx, words)


@click.group(cls=cli.Group, default_verb="arms")
def main() -> None:
    """Bug, effect or noise: compare RUNS with those after --vs (the verb `arms` may be left out); or plan it first."""


_metric_split = click.option(
    "--split",
    callback=lambda _ctx, _option, word: table.scope(word or ""),
    help="Or what it was measured on, as the records name it. [default: test, else val, else train]",
)


@main.command(cls=ArmsCommand)
@click.argument("runs", nargs=-1, required=True)
@click.option("--vs", multiple=True, required=True, metavar="RUNS...", help="The other arm; a second --vs is a third.")
@click.option("--metric", "metrics", multiple=True, required=True, help="Its name in the records; repeatable.")
@_metric_split
@click.option("--intended", metavar="KEY", help="The variable that was meant to differ: lr, optimizer, code, ...")
@click.option("--higher-is-better", "told", flag_value="up", default=None, help="For a metric that is not known.")
@click.option("--lower-is-better", "told", flag_value="down", default=None, help="For a metric that is not known.")
@click.option("--settings", multiple=True, metavar="KEY", help="Only these are settings; repeatable.")
@click.option("--ignore", multiple=True, metavar="KEY", help="Not a setting, whatever differs; repeatable.")
@click.option("--pair-by", metavar="KEY", help="Pair the runs by this setting or column instead of the seed.")
@click.option("--plan", "plan_file", type=click.Path(path_type=Path), help="What `plan --write` wrote before the runs.")
@cli.report_options
def arms(
    runs: tuple[str, ...],
    vs: tuple[str, ...],
    metrics: tuple[str, ...],
    split: str | None,
    intended: str | None,
    told: str | None,
    settings: tuple[str, ...],
    ignore: tuple[str, ...],
    pair_by: str | None,
    plan_file: Path | None,
    fmt: str | None,
) -> int:
    """Compare RUNS (arm A) with those after --vs (arm B): bug-suspect, effect, noise or undecided.

    \b
    A run is a run directory, a folder of them, a results.json or a row of a CSV; FILE.csv::COLUMN=VALUE takes only
    those rows. Exit 0 means: an effect, and nothing to disclose beside it.

    Example: rgt compare_runs runs/new --vs runs/base --metric accuracy --intended lr
    """
    sides = _load_arms([runs, *map(_words, vs)], metrics)
    general = suspect.duplicates(sides) + changes.keep_settings(sides, settings, ignore)
    pairs = [(sides[0], other, metric) for other in sides[1:] for metric in dict.fromkeys(metrics)]
    questions = [verdict.ask(a, b, metric, split, told, intended, pair_by) for a, b, metric in pairs]
    if plan_file:
        planned = plans.read(plan_file)
        for question in questions:
            verdict.check_plan(question, planned)
    verdict.decide(questions, general)
    notes = list(general)
    for question in questions:
        where = f"{question.a.arm.name} vs {question.b.arm.name}, {question.metric}: " if len(questions) > 1 else ""
        own = (*question.notes, *question.changes.notes)
        notes += [replace(note, message=where + note.message) for note in own]
        if fmt is None:
            _print(question)
    found = Report("compare_runs")
    for note in {(note.code, note.message, note.path): note for note in notes}.values():
        found.add(note.code, note.severity, note.message, path=note.path, evidence=note.evidence, fix=note.fix)
    found.findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    found.data = {
        "verdict": min((question.verdict for question in questions), key=verdict.VERDICTS.index),
        "arms": [{"name": arm.name, "runs": [trial.source for trial in arm.trials]} for arm in sides],
        "comparisons": [verdict.as_dict(question, general) for question in questions],
    }
    code = errors.OK if found.ok else errors.FINDINGS
    if fmt is None:  # a verdict's reason was printed with it
        said, words = tuple(question.reasons[0] for question in questions), {*verdict.VERDICTS, "single-run"}
        found.findings = [one for one in found.findings if one.code not in words or not one.message.endswith(said)]
    found.emit(fmt, "\n".join(f"disclose: {row['disclosure']}" for row in found.data["comparisons"]))
    return code


def _words(joined: str) -> tuple[str, ...]:
    return tuple(filter(None, joined.split(_BETWEEN)))


def _load_arms(sides: list[tuple[str, ...]], metrics: tuple[str, ...]) -> list[Arm]:
    if importlib.util.find_spec("scipy") is None:
        raise errors.lacking("scipy cannot be imported, and there is no test without it; pip install scipy")
    loaded = []
    for index, side in enumerate(sides):
        name = chr(ord("A") + index) if index < 26 else f"arm{index + 1}"
        if not side:
            raise errors.bad_input(f"arm {name} is empty: it needs at least one run")
        loaded.append(Arm(name, [trial for path in side for trial in trial_sources.load(path, metrics)], side))
    return loaded


@main.command(cls=ArmsCommand)
@click.option("--metric", required=True, help="Its name in the records.")
@click.option(
    "--delta", type=click.FloatRange(0, min_open=True), required=True, help="The true difference to be found."
)
@click.option(
    "--from", "old", multiple=True, required=True, metavar="RUNS...", help="Old runs of one setting; repeatable."
)
@_metric_split
@click.option("--power", type=click.FloatRange(0.5, 0.99), default=stats.POWER, show_default=True, help="How surely.")
@click.option("--looks", type=click.IntRange(1, 10), default=1, show_default=True, help="How often you may look.")
@click.option("--rate", type=click.FloatRange(0), help="Price of an hour. [default: as the old runs record it]")
@click.option("--hypothesis", help="What you expect, in words; kept in the plan.")
@click.option("--write", type=click.Path(path_type=Path), help="Where; compare later with --plan.")
@cli.json_option
def plan(
    metric: str,
    delta: float,
    old: tuple[str, ...],
    split: str | None,
    power: float,
    looks: int,
    rate: float | None,
    hypothesis: str | None,
    write: Path | None,
    as_json: bool,
) -> None:
    """Say how many seeds per arm find a difference of DELTA, by the upper end of old runs' spread, and what they cost.

    \b
    Each --from is one setting at several seeds; runs of different settings belong to different --from. With --looks
    you may compare earlier and stop: the bars of all looks add up to the one of a single look.

    Example: rgt compare_runs plan --metric accuracy --delta 0.5 --from runs/base-* --looks 3 --write plan.json
    """
    sides = _load_arms(list(map(_words, old)), (metric,))
    noise = plans.spread([sample.values for sample in verdict.samples(sides, metric, split)])
    bar = plans.last_bar(looks)
    few, n = (plans.seeds_per_arm(delta, sd, power, bar) for sd in (noise.sd, noise.high))
    steps = plans.looks(n, looks)
    likely = [plans.power_of(delta, sd, few, bar) for sd in (noise.high, noise.low)]
    hours, recorded = plans.hours_and_rate(sides)
    price = rate if rate is not None else recorded
    cost = None if hours is None or price is None else 2 * n * hours * price
    data: dict[str, Any] = {"metric": metric, "split": split, "delta": delta, "power": power, "sd": noise.sd}
    data |= {"sd_interval": [noise.low, noise.high], "looks": [vars(step) for step in steps]}
    data |= {"hypothesis": hypothesis} if hypothesis else {}
    if write:
        plans.write(write, data)
    more = {"n": n, "n_if_sd": few, "power_if_sd": likely, "hours": hours, "cost": cost}
    sure, price_told = f"{plans.SURE:.0%}", "unknown, the old runs record no hours"
    if hours is not None:
        price_told = f"{2 * n * hours:.3g} h at an unknown price; --rate says it"
    if cost is not None:
        price_told = f"{cost:.2f} ({2 * n} runs of {hours:.3g} h at {price:g})"
    lines = [
        f"{n} seeds per arm find a difference of {delta:g} in {metric} in {power:.0%} of cases (p < {stats.CLAIM})",
        f"  spread of one run: sd {short(noise.sd)}, {sure} interval {short(noise.low)} to {short(noise.high)};"
        " planned with its upper end",
        f"  {few} would do if the sd were right; over its interval they find it in {likely[0]:.0%} to {likely[1]:.0%}",
        f"  cost of both arms: {price_told}",
    ]
    if looks > 1:
        lines += [f"  look {at}: {step.n} per arm, effect below p = {step.bar:.2g}" for at, step in enumerate(steps, 1)]
    kept = (
        f"  written: {write}; after the runs: --plan {write}"
        if write
        else "  --write FILE keeps it: compare with --plan"
    )
    cli.show(data | more, as_json, [*lines, kept])


def _print(question: Question) -> None:
    a, b = question.a, question.b
    said = f"{question.split or 'split not recorded'}; {question.better}, {question.stated_by}"
    click.echo(f"{question.verdict.upper()}: {a.arm.name} vs {b.arm.name} in {question.metric} ({said})")
    for reason in question.reasons[:4]:
        click.echo(f"  because {reason}")
    for sample in (a, b):
        values = sample.values
        shown = " ".join(short(value) for value in values[:10]) + (" ..." if len(values) > 10 else "")
        several = f"mean {short(sample.mean)} sd {short(sample.sd)}  ({shown})"
        line = f"{sample.arm.title}: n={len(values)} {several if len(values) > 1 else f'{shown}, a single run'}"
        click.echo("  " + line[:_WIDTH])
    if question.more_seeds_decide:
        old, delta = [*a.arm.words, "--from", *b.arm.words], f"{abs(a.mean - b.mean):.3g}"
        old += ["--split", question.split] if question.split else []
        how = bundle.command("compare_runs", "plan", "--metric", question.metric, "--delta", delta, "--from", *old)
        click.echo(f"  how many seeds would: {how}")
    changed = "; ".join(str(change) for change in question.changes.found[:6]) or "nothing that was recorded"
    click.echo(f"  changed: {changed}")


if __name__ == "__main__":
    main()
