# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "nvidia-ml-py"]
# ///
"""RUN · takes over a running experiment: what runs and what is on disk on one screen, when to look next, a handoff log

Example:
    python scripts/takeover.py snapshot                     # everything that runs here, whoever started it
    python scripts/takeover.py validate train.yaml --cwd /data/exp
    python scripts/takeover.py cadence --epochs 2000 --epoch 40 --epoch-time 95s
    python scripts/takeover.py log --event failure --decision stop --hypothesis "..." --next "..."

`snapshot` and `validate` write nothing; `log` appends one block to HANDOFF.md.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from rgt import cli, errors, units
from rgt.errors import bad_input
from rgt.report import Report, print_json

directories = click.argument(
    "directories", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="[DIR]..."
)
queue = click.option(
    "--queue", "queues", multiple=True, type=click.Path(path_type=Path), help="Also this gpu_gate queue directory."
)
seconds = click.option(
    "--seconds", type=units.Duration(), default=1.2, show_default=True, help="Time for looking through directories."
)


@click.group(cls=cli.Group)
def main() -> None:
    """Take over an experiment that somebody else started.

    Example: python scripts/takeover.py snapshot
    """


@main.command()
@directories
@queue
@seconds
@cli.report_options
def snapshot(directories: tuple[Path, ...], queues: tuple[Path, ...], seconds: float, fmt: str | None) -> int:
    """Show GPUs, training processes, queues, git, runs, checkpoints and disks on one screen; change nothing.

    Looks below DIR; without one, below the directories of whatever runs and the current one. Exit 1 when something
    needs a look: a NaN, a crash, a stalled process, a broken checkpoint, a full disk.

    Example: python scripts/takeover.py snapshot runs --json
    """
    from inventory import judge, screen
    from inventory.snapshot import take

    box = take(list(directories), list(queues), seconds)
    report = Report("takeover")
    judge.judge(box, report)
    report.data = box.as_dict()
    if fmt:
        return report.emit(fmt)
    for line in screen.lines(box, report):
        click.echo(line)
    return errors.OK if report.ok else errors.FINDINGS


@main.command()
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--cwd", type=click.Path(exists=True, file_okay=False, path_type=Path), default=".",
              help="Directory the job will run in. [default: the current one]")  # fmt: skip
@click.option("--python", "python", help="The interpreter that is meant; the config must lead to the same one.")
@click.option(
    "--load/--no-load", default=True, show_default=True, help="Load checkpoints with the job's torch, tensors only."
)
@cli.report_options
def validate(config: Path, cwd: Path, python: str | None, load: bool, fmt: str | None) -> int:
    """Check the paths of CONFIG (YAML, JSON or Python): there, whole, loadable, writable, with room.

    Example: python scripts/takeover.py validate train.yaml --cwd /data/exp --python .venv/bin/python
    """
    from inventory.configs import Checker

    report = Report("takeover")
    checker = Checker(config, cwd, python, report, load)
    checker.run()
    program = checker.interpreter.get("executable", "no interpreter")
    return report.emit(
        fmt, f"{len(checker.paths)} paths from {checker.cwd}, {program}, {len(report.findings)} findings"
    )


@main.command()
@click.option("--epochs", type=click.IntRange(1), required=True, help="Length of the run.")
@click.option("--epoch", type=click.IntRange(0), default=0, show_default=True, help="The last epoch that is done.")
@click.option(
    "--epoch-time", type=units.Duration(), help="Time of one epoch, such as 95s; gives the time of the next look."
)
@click.option(
    "--started", type=click.IntRange(0), default=0, show_default=True, help="Epoch of the last start or resume."
)
@click.option(
    "--unstable", type=click.IntRange(0), help="Epoch of the last spike, NaN or restart that was not planned."
)
@cli.json_option
def cadence(
    epochs: int, epoch: int, epoch_time: float | None, started: int, unstable: int | None, as_json: bool
) -> None:
    """Say when to look next: every 5 to 20 epochs after a start, every 100 in a long run, tighter after trouble.

    Example: python scripts/takeover.py cadence --epochs 2000 --epoch 40 --epoch-time 95s
    """
    from inventory.cadence import plan

    found = plan(epochs, epoch, started, unstable, epoch_time)
    wait = None if epoch_time is None else (found.next_epoch - epoch) * epoch_time
    if as_json:
        at = None if wait is None else time.time() + wait
        print_json({"tool": "takeover", "ok": True, "findings": [], **vars(found), "in_seconds": wait, "at": at})
        return
    if found.phase == "over":
        click.echo(found.why)
        return
    when = "" if wait is None else f", in {units.show_duration(wait)}, at {_stamp(time.time() + wait)}"
    click.echo(f"next look: epoch {found.next_epoch} of {epochs}{when}")
    click.echo(f"then: {', '.join(map(str, found.then)) or 'nothing, that is the end'}")
    click.echo(f"why: {found.why}")


def _stamp(when: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(when))


@main.command()
@directories
@click.option("--event", type=click.Choice(["launch", "failure", "decision", "commit"]), required=True, help="Why now.")
@click.option("--decision", type=click.Choice(["continue", "stop", "branch"]), required=True, help="What was decided.")
@click.option("--hypothesis", multiple=True, required=True, help="The one hypothesis that the decision tests.")
@click.option("--next", "next_command", required=True, help="The exact next command.")
@click.option("--path", "paths", multiple=True, help="A path the next one needs; must exist. Repeatable.")
@click.option("--note", default="", help="One more line, if it must be.")
@click.option("--file", type=click.Path(dir_okay=False, path_type=Path), default="HANDOFF.md", show_default=True,
              help="The handoff file.")  # fmt: skip
@click.option(
    "--state/--no-state", default=True, show_default=True, help="Add what changed on the machine, as snapshot sees it."
)
@click.option("--dry-run", is_flag=True, help="Print the block, and write nothing.")
@queue
@seconds
@cli.json_option
def log(**options: Any) -> None:
    """Append one compact block to HANDOFF.md: the decision, the one hypothesis, the next command, what changed.

    Example: takeover.py log --event failure --decision stop --hypothesis "shard 17 is bad" --next "python check.py 17"
    """
    from inventory import handoff

    if len(options["hypothesis"]) != 1:
        raise bad_input(f"--hypothesis was given {len(options['hypothesis'])} times; a decision tests one at a time")
    block = handoff.Block(
        event=options["event"],
        decision=options["decision"],
        hypothesis=handoff.one_line(options["hypothesis"][0], "--hypothesis"),
        next=handoff.one_line(options["next_command"], "--next"),
        paths=handoff.check_paths(options["paths"]),
        note=handoff.one_line(options["note"], "--note") if options["note"] else "",
        state=_state(options) if options["state"] else {},
    )
    text = handoff.append(options["file"], block, options["dry_run"])
    if options["as_json"]:
        data = {"file": str(options["file"]), "written": bool(text) and not options["dry_run"], "block": text}
        print_json({"tool": "takeover", "ok": True, "findings": [], **data})
        return
    click.echo(text or f"nothing changed since the last block of {options['file']}; nothing was added", nl=not text)


def _state(options: dict[str, Any]) -> dict[str, str]:
    from inventory import handoff
    from inventory.snapshot import take

    return handoff.state_of(take(list(options["directories"]), list(options["queues"]), options["seconds"]))


if __name__ == "__main__":
    main()
