# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "nvidia-ml-py"]
# ///
"""RUN · starts one job description on local, ssh, docker, slurm, k8s, skypilot, kaggle or openclaw, and finds it again

Example:
    python scripts/launch.py submit job.yaml --on local
    python scripts/launch.py submit job.yaml --on ssh:box --dry-run
    python scripts/launch.py status runs/20261116-083000-tiny-1f00ab

Writes runs/<run-id>/ with run.json and events.jsonl before anything is started, so that no job is without a record.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import click

import backends
from backends import Order, Status
from rgt import cli, errors, job, rundir
from rgt.errors import RgtError, bad_input
from rgt.report import print_json

LINE_BYTES = 1000  # read per line asked for; a longer line is cut
FOLLOW_SECONDS = 1.0
ENDED = {"done": "finished", "failed": "failed", "cancelled": "stopped", "lost": "failed"}  # state -> event


@click.group(cls=cli.Group)
def main() -> None:
    """Run one job description anywhere, and know what became of it.

    Example: python scripts/launch.py submit job.yaml --on ssh:box
    """


run_argument = click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))


@main.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--on", "target", required=True, help="local, ssh:HOST[,HOST...], docker[:HOST], slurm[:HOST], k8s, "
              "skypilot, kaggle or openclaw.")  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Print the exact commands and files, and do nothing.")
@cli.json_option
def submit(spec: Path, target: str, dry_run: bool, as_json: bool) -> None:
    """Start the job of SPEC (job.yaml) on a target; prints the run directory.

    Example: python scripts/launch.py submit job.yaml --on slurm --dry-run
    """
    wanted = job.load(spec)
    kind, hosts = backends.parse_target(target)
    if dry_run:
        _show(Order(wanted, "<run-id>", kind, hosts), as_json)
        return
    wanted.secret_values()  # a missing one is said before anything exists
    wanted = replace(wanted, workdir=hosts[0].absolute(wanted.workdir), output=hosts[0].absolute(wanted.output))
    backends.backend(kind).render(Order(wanted, "check", kind, hosts))
    run = _create(wanted, target)
    order = Order(wanted, run.id, kind, hosts)
    try:
        _prepare(order, run)
        backends.carry_out(order, backends.backend(kind).render(order))
    except RgtError as error:
        run.log_event("failed", reason=error.message)
        raise
    run.log_event("submitted", target=target)
    _tell(run, as_json)


@main.command()
@run_argument
@cli.json_option
def status(run: Path, as_json: bool) -> int:
    """Ask the engine what became of RUN, and say so if our own record claims something else.

    Exit 1 when the job failed or is lost.
    """
    opened, order = _open(run)
    now = _settle(opened, order)
    claimed = _last_event(opened)
    if as_json:
        print_json({"run": str(opened.path), "target": opened.record()["job"]["target"], "event": claimed, **vars(now)})
    else:
        code = "" if now.exit_code is None else f", exit code {now.exit_code}"
        click.echo(f"{now.state}{code}: {opened.id}" + (f" ({now.detail})" if now.detail else ""))
    return errors.FINDINGS if now.state in ("failed", "lost") else errors.OK


@main.command()
@run_argument
@click.option("-n", "--lines", type=click.IntRange(1), default=50, show_default=True, help="How many last lines.")
@click.option("--follow", is_flag=True, help="Go on printing until the job ends.")
@cli.json_option
def logs(run: Path, lines: int, follow: bool, as_json: bool) -> None:
    """Print the end of the log, wherever it is."""
    opened, order = _open(run)
    tail, seen = _tail(order, lines)
    if as_json:
        print_json({"run": str(opened.path), "lines": tail})
        return
    for line in tail:
        click.echo(line)
    if follow:
        _follow(opened, order, seen)


@main.command()
@run_argument
@click.option("--dry-run", is_flag=True, help="Print the exact commands, and do nothing.")
@cli.json_option
def stop(run: Path, dry_run: bool, as_json: bool) -> None:
    """End the job: its warning signal, its grace, then the kill. The run directory stays."""
    opened, order = _open(run)
    steps = backends.backend(order.kind).stop(order)
    if dry_run:
        _print_steps(steps, as_json)
        return
    _stop_all(order, steps)
    opened.log_event("stopped", reason="launch stop")
    _tell(opened, as_json)


@main.command()
@run_argument
@click.option("--dry-run", is_flag=True, help="Print the exact commands and files, and do nothing.")
@cli.json_option
def resume(run: Path, dry_run: bool, as_json: bool) -> None:
    """Start an ended job again on its own run directory; what it resumes from is its own checkpoint."""
    opened, order = _open(run)
    opened.refuse_if_sealed()
    now = backends.backend(order.kind).status(order)
    if now.state in ("queued", "running"):
        raise bad_input(f"{opened.id} is {now.state}; two of one run would write over each other's checkpoints")
    if now.still_running:
        where = ", ".join(order.hosts[node].title for node in now.still_running)
        raise bad_input(
            f"{opened.id} {now.state}, but its old attempt still runs on {where} and would join the new one; "
            f"wait for it to notice, or end it: launch.py stop {opened.path}"
        )
    steps = backends.backend(order.kind).resume(order)
    if dry_run:
        _print_steps(steps, as_json)
        return
    _ship(order)
    backends.carry_out(order, steps)
    opened.log_event("resumed", before=now.state)
    _tell(opened, as_json)


# -- the record


def _create(wanted: job.Job, target: str) -> rundir.Run:
    """The run directory on this machine: the run itself when it is here, else its record."""
    kind, hosts = backends.parse_target(target)
    local = kind in ("local", "docker", "slurm") and not hosts[0].name
    here, record = wanted.roots()
    return rundir.create(
        here if local else record,
        wanted.name,
        command=wanted.words("{run}"),
        config=wanted.spec(),
        backend=target.partition(":")[0],
        job={"target": target, "spec": wanted.spec()},
        code=Path(wanted.workdir) if local else None,
    )


def _prepare(order: Order, run: rundir.Run) -> None:
    """The same record on every machine that will run it; the bundle where there is none of our scripts."""
    for host in order.hosts if order.kind in ("ssh", "docker", "slurm") else []:
        host.put(f"{order.run_dir}/run.json", run.run_json.read_bytes())
    _ship(order)


def _ship(order: Order) -> None:
    if order.kind == "ssh":
        from backends import ssh

        for host in order.hosts:
            ssh.ship(host)


def _open(path: Path) -> tuple[rundir.Run, Order]:
    run = rundir.open_run(path)
    record = run.record()
    if "target" not in record["job"]:
        raise bad_input(f"{path} was not started by launch; takeover.py snapshot can tell what runs there")
    kind, hosts = backends.parse_target(record["job"]["target"])
    return run, Order(job.from_record(record), run.id, kind, hosts)


def _stop_all(order: Order, steps: list[backends.Step]) -> None:
    """Every node is asked, also when one does not answer: what goes on running goes on billing."""
    without_secrets = replace(order, job=replace(order.job, secrets=[]))
    failures = []
    for step in steps:
        try:
            backends.carry_out(without_secrets, [step])
        except RgtError as error:
            failures.append(error)
    if failures:
        raise failures[0]


def _settle(run: rundir.Run, order: Order) -> Status:
    """What the engine says; an end that nobody recorded becomes an event now."""
    now: Status = backends.backend(order.kind).status(order)
    event, last = ENDED.get(now.state), _last_event(run)
    under_way = now.state == "lost" and last == "launched"  # the submit may still be on its way there
    if event and not under_way and last not in ("finished", "failed", "stopped"):
        run.log_event(event, state=now.state, exit_code=now.exit_code, detail=now.detail)
    return now


def _last_event(run: rundir.Run) -> str:
    last = run.last_event()
    return str(last["event"]) if last else ""


# -- what a person sees


def _show(order: Order, as_json: bool) -> None:
    _print_steps(backends.backend(order.kind).render(order), as_json)


def _print_steps(steps: list[backends.Step], as_json: bool) -> None:
    if as_json:
        shown = [{"host": s.host.title, "cwd": s.cwd, "words": s.words, "env": s.env, "files": s.files} for s in steps]
        print_json({"dry_run": True, "steps": shown})
        return
    for step in steps:
        click.echo(step.show())


def _tell(run: rundir.Run, as_json: bool) -> None:
    if as_json:
        print_json({"run_id": run.id, "run": str(run.path)})
    else:
        click.echo(str(run.path))


def _log(order: Order) -> str:
    return f"{order.run_dir}/train.log"


def _tail(order: Order, lines: int) -> tuple[list[str], int]:
    """The last lines, and how far the log has been read. Engines without a file to read have their own `logs`."""
    own = getattr(backends.backend(order.kind), "logs", None)
    if own:
        return own(order, lines), 0
    size = order.head.size(_log(order))
    if size is None:
        raise bad_input(f"there is no log yet: {_log(order)} on {order.head.title}")
    start = max(0, size - lines * LINE_BYTES)
    data = order.head.read(_log(order), start) or b""
    return data.decode(errors="replace").splitlines()[-lines:], start + len(data)


def _follow(run: rundir.Run, order: Order, seen: int) -> None:
    """Only what is new crosses the wire; once more after the end, for what was printed last."""
    if hasattr(backends.backend(order.kind), "logs"):
        raise bad_input(f"--follow reads a file; on {order.kind} ask again without it")
    while True:
        ended = _settle(run, order).state not in ("queued", "running")
        data = order.head.read(_log(order), seen) or b""
        click.echo(data.decode(errors="replace"), nl=False)
        seen += len(data)
        if ended:
            return
        time.sleep(FOLLOW_SECONDS)


if __name__ == "__main__":
    main()
