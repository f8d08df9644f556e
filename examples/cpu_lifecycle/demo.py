"""RUN, VERIFY, DELIVER on a CPU: a training that loses nothing to a SIGKILL, and numbers that cannot go stale.

Usage:
    python examples/cpu_lifecycle/demo.py [--out DIR]          make demo

Writes DIR/1/ (the next time DIR/2/) with everything it makes, and DIR/index.html, the page that links it.
Ctrl-C at any time: what it started is ended.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click

# neither examples/ nor rgt is installed: the bundle is used from its folder
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from rgt import cli, units

from examples.cpu_lifecycle import deliver, interrupts, page, proving, running, settings
from examples.cpu_lifecycle.story import Demo, here

STAGES: list[tuple[str, str, Callable[[Demo], None]]] = [
    ("RUN: preflight", "What would break the job is cheaper to hear before the meter runs.", running.preflight),
    (
        "The gate to the GPUs",
        "One job per card, in order; a card that is not there is said, not assumed.",
        running.gate,
    ),
    ("Launch, detached", "The job belongs to the gate on the box, so no lost connection ends it.", running.launch),
    ("Preemption", "Spot boxes vanish without a word: SIGKILL half way.", running.preempt),
    ("Resume", "The same run directory, from its own checkpoint; beside it the reference trains.", running.resume),
    ("Watch", "One page that says what the run did and whether it is healthy.", running.watch),
    ("Was anything lost?", "A resume that is only nearly right shows up in a paper, not in a log.", running.compare),
    ("VERIFY: pull with proof", "A copy counts when every file has its sha256 and the checkpoint loads.", proving.pull),
    ("A corrupt checkpoint", "A bad disk or a cut copy looks like a file of the right size.", proving.corrupt),
    (
        "Variants, three seeds each",
        "Two learning rates, and one of them again with other seeds.",
        proving.train_variants,
    ),
    (
        "An effect, or noise?",
        "A difference is a result when it is larger than that of the seeds.",
        proving.effect_or_noise,
    ),
    ("DELIVER", "Table, figure, document and report are computed from sealed runs.", deliver.deliver),
    ("A stale number", "Somebody types a number of last week; documents do not notice.", deliver.catch_a_stale_number),
    ("A forgotten box", "A lease ends what nobody remembers: pulled, verified, stopped, told.", deliver.forget),
    ("Teardown", "Nothing ends before it is pulled, verified, and approved in words.", deliver.tear_down),
]


def new_folder(out: Path) -> Path:
    """out/1, out/2, ...: short to type, and an earlier demo stays as it is."""
    out.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        with contextlib.suppress(FileExistsError):
            (out / str(number)).mkdir()
            break
    return Path(os.path.abspath(out / str(number)))


def summary(demo: Demo, seconds: float, index: Path) -> str:
    loss = list(demo.killed.curve("loss", "val").values())
    redone = demo.killed_at - demo.resumed_from
    return f"""
Done in {units.show_duration(seconds)}
     val loss   {loss[0]:.3f} -> {loss[-1]:.3f} in both runs
     killed     at step {demo.killed_at} of {demo.config["steps"]}, on {demo.target}
     resumed    from step_{demo.resumed_from:06d}.pt; {redone} steps computed twice
     bit-equal: {demo.equal}
     verdicts   {demo.verdicts["slow"]} for two learning rates, {demo.verdicts["fast-again"]} for two sets of seeds

Open {here(index)}
     it links the status, the report, the figure, the table, the proof and the event logs"""


def close(demo: Demo) -> None:
    """In this order: the jobs, then the box they ran on. A second Ctrl-C would only leave something behind."""
    for number in interrupts.SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    try:
        running.end_jobs(demo)
    finally:
        if demo.box:
            demo.box.close()


@click.command(cls=cli.Command)
@click.option("--out", type=click.Path(path_type=Path), default="demo-out", show_default=True, help="Where to write.")
@click.option("--steps", type=click.IntRange(10), default=200, show_default=True, help="How long to train.")
def main(out: Path, steps: int) -> None:
    """Launch, kill, resume, pull, compare, ship and tear down one small training on this machine's CPU."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # as Ctrl-C: through every finally
    began = time.monotonic()
    every = steps // 5
    config = {"steps": steps, "eval_interval": every, "checkpoint_interval": every, **settings.CONFIG}
    demo = Demo(out, new_folder(out), config)
    click.echo(f"python is {here(Path(sys.executable))}; everything goes to {here(demo.folder)}")
    try:
        for count, (title, why, stage) in enumerate(STAGES, 1):
            demo.begin(count, len(STAGES), title, why)
            stage(demo)
    finally:
        close(demo)
    seconds = time.monotonic() - began
    click.echo(summary(demo, seconds, page.write(demo, seconds)))


if __name__ == "__main__":
    main()
