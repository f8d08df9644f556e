# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "scipy"]
# ///
"""VERIFY · bug, effect or noise: what changed between two sets of runs, and whether the difference is real

Example:
    python scripts/compare_runs.py runs/new-* --vs runs/base-* --metric accuracy --intended lr
    python scripts/compare_runs.py ours.csv --vs baseline.csv --metric psnr
    python scripts/compare_runs.py table.csv::method=ours --vs table.csv::method=base --metric val/loss --json

Reads run directories, folders of them, results.json, CSV (one row per run, per eval item or per step) and wandb
exports. Writes nothing. Ends with a sentence to put beside the number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from rgt import cli, errors
from rgt.report import SEVERITIES, Report

if TYPE_CHECKING:
    from comparison.judge import Question
    from comparison.model import Arm, Note, Sample

_BETWEEN = "\0"  # cannot be in an argument, so it can stand between those of one --vs
_WIDTH = 110


class ArmsCommand(cli.Command):
    """`--vs b1 b2 b3`: click's options take a fixed number of values, an arm has any number."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words, at = [], 0
        while at < len(args):
            word = args[at]
            at += 1
            if word != "--vs" and not word.startswith("--vs="):
                words.append(word)
                continue
            arm = [word[5:]] if word.startswith("--vs=") else []
            while at < len(args) and not args[at].startswith("-"):
                arm.append(args[at])
                at += 1
            words += ["--vs", _BETWEEN.join(arm)]
        return super().parse_args(ctx, words)


@click.command(cls=ArmsCommand)
@click.argument("runs", nargs=-1, required=True)
@click.option("--vs", multiple=True, required=True, metavar="RUNS...",
              help="The runs to compare with; a second --vs is a third arm.")  # fmt: skip
@click.option("--metric", "metrics", multiple=True, required=True, help="Its name in the records; repeatable.")
@click.option("--split", type=click.Choice(["train", "val", "test"]),
              help="[default: the first of test, val, train that both arms have]")  # fmt: skip
@click.option("--intended", metavar="KEY", help="The variable that was meant to differ: lr, optimizer, code, ...")
@click.option("--higher-is-better", "told", flag_value="up", default=None, help="For a metric that is not known.")
@click.option("--lower-is-better", "told", flag_value="down", default=None, help="For a metric that is not known.")
@cli.report_options
def main(runs: tuple[str, ...], vs: tuple[str, ...], metrics: tuple[str, ...], split: str | None, intended: str | None,
         told: str | None, fmt: str | None) -> int:  # fmt: skip
    """Compare RUNS (arm A) with those after --vs (arm B): bug-suspect, effect, noise or undecided.

    \b
    A run is a run directory, a folder of them, a results.json, a wandb export (run folder, history JSON, CSV) or a row
    of a CSV. FILE.csv::COLUMN=VALUE takes only those rows. Exit 0 means: an effect, and nothing to disclose beside it.

    Example: python scripts/compare_runs.py runs/new --vs runs/base --metric accuracy --intended lr
    """
    _need_scipy()
    from comparison import judge, suspect
    from comparison.model import Arm

    sides = [runs, *(tuple(word for word in part.split(_BETWEEN) if word) for part in vs)]
    arms = [Arm(_name(index), _load(_name(index), side, metrics)) for index, side in enumerate(sides)]
    general = suspect.duplicates(arms)
    pairs = [(arms[0], other, metric) for other in arms[1:] for metric in dict.fromkeys(metrics)]
    questions = [judge.ask(a, b, metric, split, told, intended) for a, b, metric in pairs]
    judge.decide(questions, general)
    return _report(arms, questions, general, fmt)


def _need_scipy() -> None:
    try:
        import scipy  # noqa: F401
    except ImportError:
        message = "scipy cannot be imported, and there is no test without it; pip install scipy"
        raise errors.lacking(message) from None


def _name(index: int) -> str:
    return chr(ord("A") + index) if index < 26 else f"arm{index + 1}"


def _load(name: str, paths: tuple[str, ...], metrics: tuple[str, ...]) -> list[Any]:
    from comparison.sources import load

    if not paths:
        raise errors.bad_input(f"arm {name} is empty: --vs needs at least one run")
    return [trial for path in paths for trial in load(path, metrics)]


def _report(arms: list[Arm], questions: list[Question], general: list[Note], fmt: str | None) -> int:
    from comparison import judge, sentence

    found = Report("compare_runs")
    seen = set()
    for note in _notes(questions, general):
        mark = (note.code, note.message, note.path)
        if mark not in seen:
            seen.add(mark)
            found.add(note.code, note.severity, note.message, path=note.path, evidence=note.evidence, fix=note.fix)
    found.findings.sort(key=lambda finding: SEVERITIES.index(finding.severity))
    found.data = {
        "verdict": min((question.verdict for question in questions), key=judge.VERDICTS.index),
        "arms": [{"name": arm.name, "runs": [trial.source for trial in arm.trials]} for arm in arms],
        "comparisons": [sentence.as_dict(question, general) for question in questions],
    }
    if fmt is None:
        for question in questions:
            _print(question)
    return found.emit(fmt, "\n".join(f"disclose: {row['disclosure']}" for row in found.data["comparisons"]))


def _notes(questions: list[Question], general: list[Note]) -> Iterator[Note]:
    yield from general
    for question in questions:
        where = f"{question.a.arm.name} vs {question.b.arm.name}, {question.metric}: " if len(questions) > 1 else ""
        for note in (*question.notes, *question.changes.notes):
            note.message = where + note.message
            yield note


def _print(question: Question) -> None:
    a, b, outcome = question.a, question.b, question.outcome
    better = "higher" if question.direction == "up" else "lower"
    split = question.split or "split not recorded"
    said = f"{split}; {better} is better, {question.stated_by}"
    click.echo(f"{question.verdict.upper()}: {a.arm.name} vs {b.arm.name} in {question.metric} ({said})")
    for reason in question.reasons[:4]:
        click.echo(f"  because {reason}")
    for sample in (a, b):
        click.echo("  " + _arm_line(sample))
    if outcome:
        low, high = outcome.ci
        boot = f", bootstrap [{outcome.bootstrap[0]:+.4g}, {outcome.bootstrap[1]:+.4g}]" if outcome.bootstrap else ""
        by = f"{a.arm.name} - {b.arm.name} = {outcome.difference:+.4g} ({question.leads})"
        click.echo(f"  {by}, 95 % [{low:+.4g}, {high:+.4g}]{boot}")
    changed = "; ".join(str(change) for change in question.changes.found[:6]) or "nothing that was recorded"
    click.echo(f"  changed: {changed}")


def _arm_line(sample: Sample) -> str:
    from comparison.model import short

    values = sample.values
    shown = " ".join(short(value) for value in values[:10]) + (" ..." if len(values) > 10 else "")
    several = f"mean {short(sample.mean)} sd {short(sample.sd)}  ({shown})"
    return f"{sample.arm.name}: n={len(values)} {several if len(values) > 1 else f'{shown}, a single run'}"[:_WIDTH]


if __name__ == "__main__":
    main()
