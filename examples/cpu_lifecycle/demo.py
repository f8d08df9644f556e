"""Train, kill, resume, compare, deliver: a training that loses nothing to a SIGKILL, and numbers that cannot go stale.

Usage:
    python examples/cpu_lifecycle/demo.py [--out DIR]          make demo

Writes DIR/runs/<run-id>/ for each of its two runs, and DIR/delivery/ with six short runs and what is shipped from them.
Every call makes new runs; earlier ones stay.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

# neither examples/ nor rgt is installed: the bundle is used from its folder
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from examples.cpu_lifecycle import bit_equal
from examples.cpu_lifecycle import deliver as shipping

from rgt import cli, errors, files, rundir, units

TRAIN = Path(__file__).with_name("train.py")
SEEDS = {"data": 7, "train": 1337}
DEADLINE = 300.0  # seconds for one training process; it takes about 10, so one that takes this long hangs
POLL = 0.02  # seconds; a step takes about 0.03

CONFIG = {
    "batch_size": 32,
    "block_size": 32,
    "n_layer": 2,
    "n_head": 8,
    "n_embd": 64,
    "dropout": 0.05,
    "learning_rate": 6e-3,
    "min_lr": 2e-4,
    "warmup_steps": 20,
    "weight_decay": 0.1,
    "grad_clip": 1.0,
    "text_bytes": 100_000,
}


@dataclass
class Demo:
    """What one stage leaves for the next."""

    out: Path
    config: dict[str, Any]
    reference: rundir.Run = field(init=False)
    killed: rundir.Run = field(init=False)
    killed_at: int = 0
    resumed_from: int = 0
    equal: str = ""
    folder: Path = field(init=False)  # of the delivery
    arms: dict[str, list[rundir.Run]] = field(default_factory=dict)
    verdict: str = ""


def train_reference(demo: Demo) -> None:
    began = time.monotonic()
    demo.reference = launch(demo, "reference")
    finish(demo.reference)
    losses = list(demo.reference.curve("loss", "val").values())
    tell(f"val loss {losses[0]:.3f} -> {losses[-1]:.3f} in {units.show_duration(time.monotonic() - began)}")


def kill_half_way(demo: Demo) -> None:
    run = demo.killed = launch(demo, "killed")
    with training(run) as child:
        wait_for_step(run, child, half_way(demo.config))
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    demo.killed_at = last_step(run)
    run.log_event("stopped", step=demo.killed_at, signal="SIGKILL")
    tell(f"killed at step {demo.killed_at}; it had no chance to save anything")


def resume(demo: Demo) -> None:
    finish(demo.killed)
    demo.resumed_from = [row["step"] for row in files.read_jsonl(demo.killed.events) if row["event"] == "resumed"][-1]
    tell(f"went on from the checkpoint of step {demo.resumed_from} to the end")


def compare(demo: Demo) -> None:
    steps, evaluations = (bit_equal.curves(demo.reference, demo.killed, split) for split in ("train", "val"))
    demo.equal = f"{steps} of {steps} steps, {evaluations} of {evaluations} evaluations"
    tell(f"loss curves bit-equal: {demo.equal}")
    tell(f"computed twice, with the same loss both times: {bit_equal.redone_steps(demo.killed)} steps")
    tensors = bit_equal.final_states(demo.reference, demo.killed)
    tell(f"final checkpoints bit-equal: {tensors} tensors of weights, optimizer and random state")


def train_variants(demo: Demo) -> None:
    """A folder per call, because a delivery is made of one set of runs."""
    demo.folder = demo.out / f"delivery-{demo.reference.id[:15]}"
    steps = max(10, demo.config["steps"] // 4)
    every = {"steps": steps, "eval_interval": max(1, steps // 5), "checkpoint_interval": steps}
    for claim, rate in (("loss-fast", 6e-3), ("loss-slow", 1e-3)):
        config = {**demo.config, **every, "learning_rate": rate, "min_lr": 2e-4}
        runs = [create(demo.folder, claim, config, {**SEEDS, "train": seed}) for seed in shipping.SEEDS]
        demo.arms[claim] = runs
    for run in [run for runs in demo.arms.values() for run in runs]:
        finish(run)


def compare_variants(demo: Demo) -> None:
    demo.verdict = shipping.compare(demo.folder, demo.arms["loss-fast"], demo.arms["loss-slow"], tell)


def deliver(demo: Demo) -> None:
    shipping.deliver(demo.folder, demo.arms, tell)


def catch_a_stale_number(demo: Demo) -> None:
    shipping.plant_a_stale_number(demo.folder, tell)


STAGES: list[tuple[str, Callable[[Demo], None]]] = [
    ("Train to the end without interruption: the reference", train_reference),
    ("Train again with the same seeds, and SIGKILL it half way", kill_half_way),
    ("Resume: the same command on the same run directory", resume),
    ("Compare the two runs", compare),
    ("Train two variants with three seeds each", train_variants),
    ("VERIFY: is the difference an effect, or noise?", compare_variants),
    ("DELIVER: sealed runs, computed claims, table, figure, document, report", deliver),
    ("Type a stale number into a document, and see it caught", catch_a_stale_number),
]


def launch(demo: Demo, slug: str) -> rundir.Run:
    return create(demo.out, slug, demo.config, SEEDS)


def create(folder: Path, slug: str, config: dict[str, Any], seeds: dict[str, int]) -> rundir.Run:
    """A new run directory: what launch makes for a real job."""
    command = ["python", os.path.relpath(TRAIN), "--run", "{run}"]
    return rundir.create(folder / "runs", slug, command=command, config=config, seeds=seeds)


@contextlib.contextmanager
def training(run: rundir.Run) -> Iterator[subprocess.Popen[bytes]]:
    """train.py in a process group of its own, which does not outlive the block: Ctrl-C leaves no orphan."""
    tell(f"$ python {os.path.relpath(TRAIN)} --run {run.path}")
    command = [sys.executable, str(TRAIN), "--run", str(run.path)]
    with run.log.open("ab") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        yield child
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def finish(run: rundir.Run) -> None:
    with training(run) as child:
        try:
            code = child.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            raise broken(run, f"was not done after {DEADLINE:.0f} seconds") from None
    if code:
        documented = errors.FINDINGS <= code <= errors.REFUSED  # a full disk is 3, in the training and here
        raise broken(run, f"ended with exit code {code}", code if documented else errors.FINDINGS)


def wait_for_step(run: rundir.Run, child: subprocess.Popen[bytes], step: int) -> None:
    deadline = time.monotonic() + DEADLINE
    while last_step(run) < step:
        if child.poll() is not None:
            raise broken(run, f"ended with exit code {child.returncode} before step {step}")
        if time.monotonic() > deadline:
            raise broken(run, f"did not reach step {step} in {DEADLINE:.0f} seconds")
        time.sleep(POLL)


def last_step(run: rundir.Run) -> int:
    return max(run.curve("loss"), default=0)


def half_way(config: dict[str, Any]) -> int:
    """Half of the steps, but never a checkpoint's step: then nothing would have to be computed twice."""
    half: int = config["steps"] // 2
    return half if half % config["checkpoint_interval"] else half + 1


def broken(run: rundir.Run, what: str, code: int = errors.FINDINGS) -> errors.RgtError:
    lines = run.log.read_text(errors="replace").splitlines()
    last = f": {lines[-1]}" if lines else ""
    return errors.RgtError(f"the training of {run.path} {what}; {run.log} says more{last}", code)


def tell(line: str) -> None:
    click.echo(f"     {line}")


def summary(demo: Demo, seconds: float) -> str:
    loss = list(demo.killed.curve("loss", "val").values())
    redone = demo.killed_at - demo.resumed_from
    return f"""
Done in {units.show_duration(seconds)}
     val loss   {loss[0]:.3f} -> {loss[-1]:.3f} in both runs
     killed     at step {demo.killed_at} of {demo.config["steps"]}
     resumed    from step_{demo.resumed_from:06d}.pt; {redone} steps computed twice
     bit-equal: {demo.equal}
     verdict    {demo.verdict}: two learning rates, three seeds each

Look at
     {demo.folder / "report.html"}
         the delivery on one page: every number with its runs and disclosures
     {demo.killed.run_json}
         how the run was started: command, config, seeds, commit, versions
     {demo.killed.metrics}
         every step; {redone} of them have two rows
     {demo.killed.events}
         launched, checkpoint, stopped, resumed, finished
     {demo.killed.checkpoints}
         the last two; {demo.killed.checkpoints_index.name} has their sha256
     {demo.killed.results}
         the val loss, over how many characters, and the hash of the set
     {demo.reference.path}
         the same, never interrupted"""


@click.command(cls=cli.Command)
@click.option("--out", type=click.Path(path_type=Path), default="demo-out", show_default=True, help="Where runs/ goes.")
@click.option("--steps", type=click.IntRange(10), default=200, show_default=True, help="How long to train.")
def main(out: Path, steps: int) -> None:
    """Train twice on one CPU, once with a SIGKILL half way: bit-equal. Then compare two variants and ship it."""
    signal.signal(signal.SIGTERM, lambda number, _: cli.stop(128 + number))  # as Ctrl-C: through every finally
    began = time.monotonic()
    every = steps // 5
    demo = Demo(out, {"steps": steps, "eval_interval": every, "checkpoint_interval": every, **CONFIG})
    for number, (title, stage) in enumerate(STAGES, 1):
        click.echo(f"{number}/{len(STAGES)}  {title}")
        stage(demo)
    click.echo(summary(demo, time.monotonic() - began))


if __name__ == "__main__":
    main()
