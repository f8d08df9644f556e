# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py", "scipy"]
# ///
"""VERIFY · bug, effect or noise: what changed between two sets of runs, and whether the difference is real

Example:
    rgt compare_runs runs/new-* --vs runs/base-* --metric accuracy --intended lr
    rgt compare_runs ours.csv --vs baseline.csv --metric psnr
    rgt compare_runs table.csv::method=ours --vs table.csv::method=base --metric val/loss --json

Reads run directories, folders of them, results.json and CSV (one row per run or per eval item). Writes nothing. Ends
with a sentence to put beside the number.
"""

from __future__ import annotations

import importlib.util
from dataclasses import replace

from rgt import cli, errors
from rgt.compare_runs import suspect, trial_sources, verdict
from rgt.compare_runs.trial import Arm, short
from rgt.compare_runs.verdict import Question
from rgt.report import SEVERITIES, Report

import click

_BETWEEN = "\0"  # cannot be in an argument, so it can stand between those of one --vs
_WIDTH = 110


class ArmsCommand(cli.Command):
    """`--vs b1 b2 b3`: click's options take a fixed number of values, an arm has any number."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words: list[str] = []
        in_arm = False
        for word in args:
            if word == "--vs" or word.startswith("--vs="):
                words += ["--vs", word[5:]]
                in_arm = True
            elif in_arm and not word.startswith("-"):
                words[-1] += _BETWEEN + word
            else:
                words.append(word)
                in_arm = False
        return super().parse_args(ctx, words)


@click.command(cls=ArmsCommand)
@click.argument("runs", nargs=-1, required=True)
@click.option("--vs", multiple=True, required=True, metavar="RUNS...", help="The other arm; a second --vs is a third.")
@click.option("--metric", "metrics", multiple=True, required=True, help="Its name in the records; repeatable.")
@click.option("--split", type=click.Choice(["train", "val", "test"]), help="[default: test, else val, else train]")
@click.option("--intended", metavar="KEY", help="The variable that was meant to differ: lr, optimizer, code, ...")
@click.option("--higher-is-better", "told", flag_value="up", default=None, help="For a metric that is not known.")
@click.option("--lower-is-better", "told", flag_value="down", default=None, help="For a metric that is not known.")
@cli.report_options
def main(
    runs: tuple[str, ...],
    vs: tuple[str, ...],
    metrics: tuple[str, ...],
    split: str | None,
    intended: str | None,
    told: str | None,
    fmt: str | None,
) -> int:
    """Compare RUNS (arm A) with those after --vs (arm B): bug-suspect, effect, noise or undecided.

    \b
    A run is a run directory, a folder of them, a results.json or a row of a CSV; FILE.csv::COLUMN=VALUE takes only
    those rows. Exit 0 means: an effect, and nothing to disclose beside it.

    Example: rgt compare_runs runs/new --vs runs/base --metric accuracy --intended lr
    """
    if importlib.util.find_spec("scipy") is None:
        raise errors.lacking("scipy cannot be imported, and there is no test without it; pip install scipy")
    arms = []
    for index, side in enumerate([runs, *(tuple(filter(None, part.split(_BETWEEN))) for part in vs)]):
        name = chr(ord("A") + index) if index < 26 else f"arm{index + 1}"
        if not side:
            raise errors.bad_input(f"arm {name} is empty: --vs needs at least one run")
        arms.append(Arm(name, [trial for path in side for trial in trial_sources.load(path, metrics)]))
    general = suspect.duplicates(arms)
    pairs = [(arms[0], other, metric) for other in arms[1:] for metric in dict.fromkeys(metrics)]
    questions = [verdict.ask(a, b, metric, split, told, intended) for a, b, metric in pairs]
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
        "arms": [{"name": arm.name, "runs": [trial.source for trial in arm.trials]} for arm in arms],
        "comparisons": [verdict.as_dict(question, general) for question in questions],
    }
    return found.emit(fmt, "\n".join(f"disclose: {row['disclosure']}" for row in found.data["comparisons"]))


def _print(question: Question) -> None:
    a, b = question.a, question.b
    better = "higher" if question.direction == "up" else "lower"
    said = f"{question.split or 'split not recorded'}; {better} is better, {question.stated_by}"
    click.echo(f"{question.verdict.upper()}: {a.arm.name} vs {b.arm.name} in {question.metric} ({said})")
    for reason in question.reasons[:4]:
        click.echo(f"  because {reason}")
    for sample in (a, b):
        values = sample.values
        shown = " ".join(short(value) for value in values[:10]) + (" ..." if len(values) > 10 else "")
        several = f"mean {short(sample.mean)} sd {short(sample.sd)}  ({shown})"
        line = f"{sample.arm.name}: n={len(values)} {several if len(values) > 1 else f'{shown}, a single run'}"
        click.echo("  " + line[:_WIDTH])
    changed = "; ".join(str(change) for change in question.changes.found[:6]) or "nothing that was recorded"
    click.echo(f"  changed: {changed}")


if __name__ == "__main__":
    main()
