# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""RUN · starts one job description on local, ssh, docker, slurm, k8s, skypilot, kaggle or openclaw, and finds it again

Example:
    rgt launch submit job.yaml --on local
    rgt launch submit job.yaml --on ssh:box --dry-run
    rgt launch status runs/20261116-083000-tiny-1f00ab

Writes runs/<run-id>/ with run.json and events.jsonl before anything is started, so that no job is without a record.
"""

from __future__ import annotations

import codecs
import os
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rgt import bundle, cli, errors
from rgt.errors import RgtError, bad_input

import click

if TYPE_CHECKING:
    from rgt.job import backends
    from rgt.job.backends import Order

FOLLOW_SECONDS = 1.0
LINE_BYTES = 1000  # read per line asked for; a longer line is cut
TARGETS = (
    "local, ssh:HOST[,HOST..], ssh://USER@HOST:PORT, docker[:HOST], slurm[:HOST], k8s, skypilot, kaggle, openclaw."
)


@click.group(cls=cli.Group)
def main() -> None:
    """Run one job description anywhere, and know what became of it.

    Example: rgt launch submit job.yaml --on ssh:box
    """


run_argument = click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
dry_run_option = click.option("--dry-run", is_flag=True, help="Print the exact commands and files, and do nothing.")


@main.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--on", "target", required=True, help=TARGETS)
@click.option("--no-preflight", is_flag=True, help="Do not look for the job's paths, room, image and port first.")
@dry_run_option
@cli.json_option
def submit(spec: Path, target: str, no_preflight: bool, dry_run: bool, as_json: bool) -> None:
    """Start the job of SPEC (job.yaml) on a target; prints the run directory. Exit 1: it could not work there.

    Example: rgt launch submit job.yaml --on slurm --dry-run
    """
    from rgt.job import backends, before_start, description
    from rgt.job.backends import Order
    from rgt.machine.interpreter import python_word
    from rgt.run import provenance
    from rgt.run import record as rundir

    wanted = description.load(spec)
    kind, hosts = backends.parse_target(target)
    if dry_run:
        _print_steps(backends.steps(Order(wanted, "<run-id>", kind, hosts)), as_json)
        return
    wanted.secret_values()  # a missing one is reported before anything exists
    wanted = replace(wanted, workdir=hosts[0].absolute(wanted.workdir), output=hosts[0].absolute(wanted.output))
    backends.steps(Order(wanted, "check", kind, hosts))
    if not no_preflight and (found := before_start.problems(Order(wanted, "check", kind, hosts))):
        more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
        advice = "mend it, or submit with --no-preflight"
        raise RgtError(f"nothing was started: {'; '.join(found[:3])}{more}; {advice}", errors.FINDINGS)
    here, elsewhere = wanted.roots()
    is_local = kind in ("local", "docker", "slurm") and not hosts[0].name
    environ, workdir = {**os.environ, **wanted.env}, Path(wanted.workdir)
    code = workdir if is_local else Path(wanted.folder)  # elsewhere workdir is a path of that machine
    python = python_word(wanted.command, workdir, environ) if wanted.command else wanted.python
    # a container has its own Python, a cluster other machines: of those nothing is said that was read here
    known = python if kind == "local" else None
    origin = provenance.collect(code, known, environ, here=is_local and kind != "slurm")
    words, config, root = wanted.words("{run}"), wanted.spec(), here if is_local else elsewhere
    job = {"target": target, "spec": config}
    run = rundir.create(
        root, wanted.name, command=words, config=config, seeds=wanted.seeds(), backend=kind, job=job, origin=origin
    )
    order = Order(wanted, run.id, kind, hosts)
    try:
        # the same record on every machine that runs it
        for host in hosts if kind in ("ssh", "docker", "slurm") else []:
            host.put(f"{order.run_dir}/run.json", run.run_json.read_bytes())
        _ship(order)
        backends.carry_out(order, backends.steps(order))
    except RgtError as error:
        run.log_event("failed", reason=error.message)
        raise
    run.log_event("submitted", target=target)
    cli.show({"run_id": run.id, "run": str(run.path)}, as_json, [str(run.path)])


@main.command()
@run_argument
@cli.json_option
def status(run: Path, as_json: bool) -> int:
    """Ask the engine what became of RUN, and say so if our own record claims something else.

    Exit 1 when the job failed or is lost.
    """
    from rgt.job import backends

    opened, order = backends.open_order(run)
    now = backends.settle(opened, order)
    target, last = opened.record()["job"]["target"], (opened.last_event() or {}).get("event", "")
    code = "" if now.exit_code is None else f", exit code {now.exit_code}"
    line = f"{now.state}{code}: {opened.id}" + (f" ({now.detail})" if now.detail else "")
    cli.show({"run": str(opened.path), "target": target, "event": last, **vars(now)}, as_json, [line])
    return errors.FINDINGS if now.state in ("failed", "lost") else errors.OK


@main.command()
@run_argument
@click.option("-n", "--lines", type=click.IntRange(1), default=50, show_default=True, help="How many last lines.")
@click.option("--follow", is_flag=True, help="Go on printing until the job ends.")
@cli.json_option
def logs(run: Path, lines: int, follow: bool, as_json: bool) -> None:
    """Print the end of the log, wherever it is."""
    from rgt.job import backends
    from rgt.run.record import ACTIVE

    opened, order = backends.open_order(run)
    own = getattr(backends.backend(order.kind), "logs", None)  # of an engine without a file that we can read
    if follow and (own or as_json):
        raise bad_input(f"--follow prints a file as text; on {order.kind} ask without {'it' if own else '--json'}")
    if follow:  # the last lines, then only what is new; a job that is silent, or queued, is waited for
        size = order.head.run(["sh", "-c", 'wc -c < "$0"', order.log()], expand=(3,)).out
        start, ended = max(0, int(size or 0) - lines * LINE_BYTES), False
        first: int | None = -lines  # of the first read
        decoder = codecs.getincrementaldecoder("utf-8")("replace")  # a read may end in the middle of a character
        while not ended:
            ended = backends.settle(opened, order).state not in ACTIVE  # first: the last read has all of it
            fresh = order.head.read(order.log(), start) or b""
            text = "".join(decoder.decode(fresh, final=ended).splitlines(keepends=True)[first:])
            click.echo(re.sub(r"\r\n?", "\n", text), nl=False)  # each state of a progress bar is a line
            start, first = start + len(fresh), None
            time.sleep(0 if ended else FOLLOW_SECONDS)
        return
    if own:
        tail = own(order, lines)
    else:
        data = order.head.read(order.log(), -lines * LINE_BYTES)
        if data is None:
            raise bad_input(f"there is no log yet: {order.log()} on {order.head.title}")
        tail = data.decode(errors="replace").splitlines()[-lines:]
    cli.show({"run": str(opened.path), "lines": tail}, as_json, tail)


@main.command()
@run_argument
@click.option("--rm", "remove", is_flag=True, help="Docker: remove its containers, too; what they wrote here stays.")
@dry_run_option
@cli.json_option
def stop(run: Path, remove: bool, dry_run: bool, as_json: bool) -> None:
    """End the job: its warning signal, its grace, then the kill. The run directory stays."""
    from rgt.job import backends

    opened, order = backends.open_order(run)
    engine = backends.backend(order.kind)
    if remove and not hasattr(engine, "remove"):
        raise bad_input(f"--rm removes containers of docker; {order.kind} leaves none")
    steps = engine.stop(order) + (engine.remove(order) if remove else [])
    if dry_run:
        _print_steps(steps, as_json)
        return
    failures = []
    for step in steps:  # every node is asked, also when one does not answer: what still runs still costs money
        try:
            backends.carry_out(order, [step])
        except RgtError as error:
            failures.append(error)
    if failures:
        raise failures[0]
    opened.log_event("stopped", reason="launch stop")
    cli.show({"run_id": opened.id, "run": str(opened.path)}, as_json, [str(opened.path)])


@main.command()
@run_argument
@dry_run_option
@cli.json_option
def resume(run: Path, dry_run: bool, as_json: bool) -> None:
    """Start an ended job again on its own run directory; what it resumes from is its own checkpoint."""
    from rgt.job import backends
    from rgt.run.record import ACTIVE

    opened, order = backends.open_order(run)
    opened.refuse_if_sealed()
    now = backends.backend(order.kind).status(order)
    if now.state in ACTIVE:
        raise bad_input(f"{opened.id} is {now.state}; two of one run would write over each other's checkpoints")
    if now.still_running:
        where = ", ".join(order.hosts[node].title for node in now.still_running)
        still = f"{opened.id} {now.state}, but its old attempt still runs on {where} and would join the new one"
        raise bad_input(f"{still}; wait for it to notice, or end it: {bundle.command('launch', 'stop', opened.path)}")
    steps = backends.backend(order.kind).resume(order)
    if dry_run:
        _print_steps(steps, as_json)
        return
    _ship(order)
    backends.carry_out(order, steps)
    opened.log_event("resumed", before=now.state)
    cli.show({"run_id": opened.id, "run": str(opened.path)}, as_json, [str(opened.path)])


# -- the record


def _ship(order: Order) -> None:
    if order.kind == "ssh" or (order.kind == "docker" and order.supervised):
        from rgt.host import box

        for host in order.hosts:
            if host.name:
                box.ship(host)


# -- what a person sees


def _print_steps(steps: list[backends.Step], as_json: bool) -> None:
    shown = [{"host": s.host.title, "cwd": s.cwd, "words": s.words, "env": s.env, "files": s.files} for s in steps]
    cli.show({"dry_run": True, "steps": shown}, as_json, [step.show() for step in steps])


if __name__ == "__main__":
    main()
