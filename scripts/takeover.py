# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""RUN · takes over a running experiment: what runs and what is on disk on one screen, when to look next, a handoff log

Example:
    rgt takeover snapshot                     # everything that runs here, whoever started it
    rgt takeover validate train.yaml --cwd /data/exp
    rgt takeover cadence --epochs 2000 --epoch 40 --epoch-time 95s
    rgt takeover log --event failure --decision stop --hypothesis "..." --next "..."

`snapshot` and `validate` write nothing; `log` appends one block to HANDOFF.md:

    ## 2026-11-16T06:40:00Z failure → stop

    - hypothesis: the spike at step 900 is shard 17, not the learning rate
    - next: `python train.py --resume ckpt.pt --skip-shard 17`
    - state run box:/data/runs/a: step 912 of 5000, loss nan; newest checkpoint step_900.pt
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt import cli, errors, units
from rgt.errors import bad_input, from_os_error
from rgt.report import Report, print_json

import click

if TYPE_CHECKING:
    from rgt.takeover.snapshot import Snapshot

LONG, STEADY = 1000, 100  # a run of LONG epochs is looked at every STEADY epochs
STARTUP = (5, 20)  # epochs between looks after a start or a resume, by length of the run
STARTUP_LOOKS, UNSTABLE_LOOKS = 3, 5  # looks at the tighter interval before the next wider one
SHORTEST, LONGEST = 60.0, 86400.0  # seconds: a look costs something, and a day may lose a day of GPU money
_RUNS = 5  # newest runs in a block, beside those that are alive
_STATE = "- state "
_GONE = "gone"
_LONGEST = 300  # characters of a state
_VERB = r"\b(?:is|are|was|were|has|have|needs?|causes?|comes?|does|do)\b"
# "lr is too high and also the data is bad"; "not X" behind a comma is the alternative that it excludes
_TWO_CAUSES = re.compile(rf"{_VERB}.*(?:\b(?:and|or|plus|also|as well as)\b|;).*{_VERB}", re.I)

FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)
COUNT = click.IntRange(0)
directories = click.argument("directories", nargs=-1, type=FOLDER, metavar="[DIR]...")
seconds = click.option("--seconds", type=cli.Duration(), default=1.2, show_default=True, help="Time for directories.")


@click.group(cls=cli.Group)
def main() -> None:
    """Take over an experiment that somebody else started.

    Example: rgt takeover snapshot
    """


@main.command()
@directories
@seconds
@cli.report_options
def snapshot(directories: tuple[Path, ...], seconds: float, fmt: str | None) -> int:
    """Show GPUs, training processes, queues, git, runs, checkpoints and disks on one screen; change nothing.

    Looks below DIR; without one, below the directories of whatever runs and the current one. Exit 1 when something
    needs a look: a NaN, a crash, a stalled process, a broken checkpoint, a full disk. Where nothing has run for a day,
    old runs are judged, too: a log that stops short, a loss that diverged, a result that no log has.

    Example: rgt takeover snapshot runs --json
    """
    from rgt.takeover import screen
    from rgt.takeover.snapshot import take

    box = take(list(directories), seconds)
    report = Report("takeover")
    screen.judge(box, report)
    report.data = box.as_dict()
    if fmt:
        return report.emit(fmt)
    for line in screen.lines(box, report):
        click.echo(line)
    return errors.OK if report.ok else errors.FINDINGS


@main.command()
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--cwd", type=FOLDER, default=".", show_default=True, help="Directory the job will run in.")
@click.option("--python", help="The interpreter of the job. [default: the active environment's, else the one on PATH]")
@cli.report_options
def validate(config: Path, cwd: Path, python: str | None, fmt: str | None) -> int:
    """Check the paths of CONFIG (YAML, JSON or Python): there, whole, writable, with room.

    A checkpoint to resume from is read, not loaded.

    Example: rgt takeover validate train.yaml --cwd /data/exp --python .venv/bin/python
    """
    from rgt.job import config_paths, settings
    from rgt.job.audit import add_findings

    cwd = Path(os.path.abspath(cwd))
    given = settings.read(config)
    interpreter, rows = config_paths.job_interpreter(python, cwd)
    checked = config_paths.ConfigPaths(given, config, cwd)
    report = Report("takeover")
    add_findings(report, [*rows, *checked.rows()])
    facts = interpreter.facts or {"problem": interpreter.problem}
    report.data = {"config": str(config), "cwd": str(cwd), "python": facts, "paths": checked.paths}
    program = facts.get("executable", "no interpreter")
    return report.emit(fmt, f"{len(checked.paths)} paths from {cwd}, {program}, {len(report.findings)} findings")


# -- when to look next: often after a start, rarely in a long steady run, tighter after trouble


@main.command()
@click.option("--epochs", type=click.IntRange(1), required=True, help="Length of the run.")
@click.option("--epoch", type=COUNT, default=0, show_default=True, help="The last epoch that is done.")
@click.option("--epoch-time", type=cli.Duration(), help="Time of one epoch, such as 95s: tells when the next look is.")
@click.option("--started", type=COUNT, default=0, show_default=True, help="Epoch of the last start or resume.")
@click.option("--unstable", type=COUNT, help="Epoch of the last spike, NaN or restart that was not planned.")
@cli.json_option
def cadence(epochs: int, epoch: int, epoch_time: float | None, as_json: bool, **marks: Any) -> None:
    """Say when to look next: every 5 to 20 epochs after a start, every 100 in a long run, tighter after trouble.

    Example: rgt takeover cadence --epochs 2000 --epoch 40 --epoch-time 95s
    """
    looks = plan_looks(epochs, epoch, epoch_time, **marks)
    wait = None if epoch_time is None else (looks.next_epoch - epoch) * epoch_time
    at = None if wait is None else time.time() + wait
    lines = [looks.why]
    if looks.phase != "over":
        stamp = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
        when = "" if wait is None else f", in {units.show_duration(wait)}, at {stamp}"
        lines = [f"next look: epoch {looks.next_epoch} of {epochs}{when}", f"why: {looks.why}"]
    data = {"tool": "takeover", "ok": True, "findings": [], **vars(looks), "in_seconds": wait, "at": at}
    cli.show(data, as_json, lines)


@dataclass
class Looks:
    phase: str  # startup | steady | unstable | over
    interval: int
    next_epoch: int
    why: str


def plan_looks(
    epochs: int, epoch: int, epoch_time: float | None = None, started: int = 0, unstable: int | None = None
) -> Looks:
    """The next look after `epoch`, for a run that (re)started at epoch `started` and shook at epoch `unstable`."""
    if epoch >= epochs:
        return Looks("over", 0, epochs, "the last epoch is done: verify the result instead of watching it")
    startup = min(max(STARTUP[0], min(STARTUP[1], epochs // 50)), max(1, epochs // 4))
    tight, steady = max(1, startup // 4), STEADY if epochs >= LONG else max(startup, epochs // 10)
    if epoch_time:
        shortest, longest = math.ceil(SHORTEST / epoch_time), int(LONGEST / epoch_time)
        tight, startup, steady = (max(1, min(max(each, shortest), longest)) for each in (tight, startup, steady))
    # phase, the epoch that it counts from, how many looks, epochs between two
    phases = [("startup", started, STARTUP_LOOKS, startup), ("steady", 0, epochs, steady)]
    if unstable is not None:
        phases.insert(0, ("unstable", unstable, UNSTABLE_LOOKS, tight))

    # the first that holds the epoch applies; steady looks fall on round numbers
    phase, mark, count, step = next(row for row in phases if row[1] <= epoch < row[1] + row[2] * row[3])
    next_epoch = min(epochs, mark + ((epoch - mark) // step + 1) * step)
    why = f"steady: every {step} epochs"
    if phase != "steady":
        cause = "start" if phase == "startup" else "instability"
        why = f"{count} looks every {step} epochs after the {cause} at epoch {mark}"
    return Looks(phase, step, next_epoch, why)


@main.command()
@directories
@click.option("--event", type=click.Choice(["launch", "failure", "decision", "commit"]), required=True, help="Why now.")
@click.option("--decision", type=click.Choice(["continue", "stop", "branch"]), required=True, help="What was decided.")
@click.option("--hypothesis", multiple=True, required=True, help="The one hypothesis that the decision tests.")
@click.option("--next", "next_command", required=True, help="The exact next command.")
@click.option("--path", "paths", multiple=True, help="A path the next one needs; must exist. Repeatable.")
@click.option("--file", type=FILE, default="HANDOFF.md", show_default=True, help="The handoff file.")
@click.option("--state/--no-state", default=True, help="Add what changed on the machine (default).")
@click.option("--dry-run", is_flag=True, help="Print the block, and write nothing.")
@seconds
@cli.json_option
def log(**options: Any) -> None:
    """Append one compact block to HANDOFF.md: the decision, the one hypothesis, the next command, what changed.

    Example: rgt takeover log --event failure --decision stop --hypothesis "shard 17 is bad" --next "python check.py 17"
    """
    from rgt.takeover.snapshot import take

    if len(options["hypothesis"]) != 1:
        raise bad_input(f"--hypothesis was given {len(options['hypothesis'])} times; a decision tests one at a time")
    if _TWO_CAUSES.search(options["hypothesis"][0]):
        raise bad_input(
            "--hypothesis names two causes; a decision tests one at a time: write down the one to test first"
        )
    texts = {"hypothesis": options["hypothesis"][0], "next": options["next_command"]}
    texts = {option: text.strip() for option, text in texts.items()}
    for option, text in texts.items():
        if len(text.splitlines()) != 1:  # a block must stay compact and readable back
            raise bad_input(f"--{option} must be one line of text")
    for path in options["paths"]:
        if not os.path.lexists(path):
            raise bad_input(f"--path {path} does not exist; a hand-over names only what the next one will find")
    texts["next"] = f"`` {texts['next']} ``" if "`" in texts["next"] else f"`{texts['next']}`"
    if options["paths"]:
        texts["paths"] = ", ".join(map(os.path.abspath, options["paths"]))
    rows = [f"- {name}: {_utf8(texts[name])}" for name in ("hypothesis", "next", "paths") if name in texts]
    state = {}
    if options["state"]:
        state = state_of(take(list(options["directories"]), options["seconds"]))
    heading = f"{options['event']} → {options['decision']}"
    text = append_block(options["file"], partial(block_after, heading, rows, state), options["dry_run"])
    if options["as_json"]:
        data = {"file": str(options["file"]), "written": bool(text) and not options["dry_run"], "block": text}
        print_json({"tool": "takeover", "ok": True, "findings": [], **data})
    else:
        click.echo(text or f"nothing changed since the last block of {options['file']}; nothing was added", nl=not text)


# -- HANDOFF.md: one block per launch, failure, decision or commit, each saying only what changed since the last one


def block_after(heading: str, rows: list[str], state: dict[str, str], old: str) -> str:
    """The block with only those states that the text before it does not tell; empty when it would only repeat."""
    states = (line.removeprefix(_STATE).partition(": ") for line in old.splitlines() if line.startswith(_STATE))
    known = {key: value for key, _, value in states}
    changes = {key: value for key, value in state.items() if known.get(key) != value}
    for key in (key for key, value in known.items() if value != _GONE and key not in state):
        # on this host, a process that is no longer listed has ended, and a run is gone when its files are
        kind, _, name = key.partition(" ")
        host, _, place = name.partition(":")
        if host == os.uname().nodename and (kind == "process" or (kind == "run" and not os.path.exists(place))):
            changes[key] = _GONE
    last = old.rpartition("\n## ")[2] if "\n## " in old else ""
    if not changes and f" {heading}\n" in last and set(rows) <= set(last.splitlines()):
        return ""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    rows = [*rows, *(f"{_STATE}{key}: {value}" for key, value in changes.items())]
    return "\n".join([f"## {stamp} {heading}", "", *rows, ""])


def _utf8(text: str) -> str:
    """A file name need not be UTF-8, a Markdown file is."""
    return text.encode("utf-8", "backslashreplace").decode()


def state_of(box: Snapshot) -> dict[str, str]:
    """What a successor needs, in words that stay the same while nothing happens."""
    from rgt.takeover import screen

    state: dict[str, str] = {}
    here = box.host["name"]
    for row in box.git:
        if "problem" not in row:
            counts = [f"{row[name]} {name}" for name in ("changed", "untracked", "unpushed") if row.get(name)]
            state[f"git {here}:{row['path']}"] = ", ".join([f"{row['branch']} {(row['commit'] or '')[:10]}", *counts])
    for trainer in (process.trainer for process in box.processes):
        log = f", log {trainer.log.path}" if trainer.log.path else ""
        state[f"process {here}:{trainer.pid}"] = f"{trainer.text} (cwd {trainer.cwd}{log})"
    for run in [*box.runs[:_RUNS], *(run for run in box.runs[_RUNS:] if run.pid)]:
        facts = [screen.progress(run.summary, speed=False)]
        facts += [f"problem {problem.code}" for problem in run.summary.problems if not problem.recovered]
        if run.checkpoints:
            verdict = f" ({run.check.state})" if run.check and run.check.state != "ok" else ""
            facts.append(f"newest checkpoint {os.path.basename(run.checkpoints[-1].path)}{verdict}")
        facts += ["finished"] if run.finished else []
        state[f"run {here}:{run.path}"] = "; ".join(filter(None, facts)) or "no numbers"
    # as it stands in the file, so that it can be compared with what was read from there
    lines = [[" ".join(_utf8(text).split()) for text in pair] for pair in state.items()]
    return {key.replace(": ", ":"): value[:_LONGEST].rstrip() for key, value in lines}


def append_block(path: Path, block_after: Callable[[str], str], dry_run: bool) -> str:
    """Write the block that belongs after the text of the file to its end, and return it; it may be empty."""
    try:
        if dry_run:
            return block_after(path.read_text(encoding="utf-8", errors="replace") if path.exists() else "")
        with open(path, "ab+", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # two agents may hand over at once
            file.seek(0)
            old = file.read().decode("utf-8", "replace")
            new = block_after(old)
            gap = "# Handoff\n\n" if not old else "\n" if old.endswith("\n") else "\n\n"
            data, end = (gap + new).encode() if new else b"", os.fstat(file.fileno()).st_size
            try:
                while data:
                    data = data[file.write(data) :]
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):  # half a block would be read as a whole one
                    file.truncate(end)
                raise
            return new
    except OSError as error:
        raise from_os_error(error, f"write {path}") from None


if __name__ == "__main__":
    main()
