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

import ipaddress
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from rgt import bundle, cli, errors, schema
from rgt.errors import RgtError, bad_input
from rgt.host import box
from rgt.host.bounded import Done
from rgt.host.ssh import Host
from rgt.job import backends, description
from rgt.job.backends import Order, Step
from rgt.machine import card_sheets
from rgt.machine.interpreter import python_word
from rgt.report import progress
from rgt.run import record
from rgt.run.record import ACTIVE, FINISHED

import click

LINE_BYTES = 1000  # read per line asked for; a longer line is cut
WITH_DISK = ("local", "ssh", "docker", "slurm")  # engines with a disk that can be looked at before the job runs
_AUDIT_SECONDS = 120.0
_PROBE_SECONDS = 15.0
_LISTEN = """\
import socket, sys
address, port, wanted, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
family, _, _, _, where = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
with socket.socket(family) as server:
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as torch's store does
    server.bind(where)
    server.listen()
    server.settimeout(seconds)
    for _ in range(wanted):
        server.accept()[0].close()
"""
_CONNECT = """\
import socket, sys, time
end = time.monotonic() + float(sys.argv[4])
while True:
    try:
        socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3).close()
        break
    except OSError as error:
        if time.monotonic() > end:
            sys.exit(str(error))
        time.sleep(0.2)
"""
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
@click.option("--store", default="", help="Send the run there at its end: s3://BUCKET/PREFIX or hf://USER/REPO.")
@click.option("--no-preflight", is_flag=True, help="Do not look for the job's paths, room, image and port first.")
@dry_run_option
@cli.json_option
def submit(spec: Path, target: str, store: str, no_preflight: bool, dry_run: bool, as_json: bool) -> None:
    """Start the job of SPEC (job.yaml) on a target; prints the run directory. Exit 1: it could not work there.

    Example: rgt launch submit job.yaml --on slurm --dry-run
    """
    from rgt.run import provenance

    wanted = description.load(spec)
    if store:
        schema.check({**description.load_yaml(spec), "store": store}, "job", f"--store {store}")
        wanted = replace(wanted, store=store)
    kind, hosts = backends.parse_target(target)
    if dry_run:
        _print_steps(backends.steps(Order(wanted, "<run-id>", kind, hosts)), as_json)
        return
    wanted.secret_values()  # a missing one is reported before anything exists
    wanted = replace(wanted, workdir=hosts[0].absolute(wanted.workdir), output=hosts[0].absolute(wanted.output))
    backends.steps(Order(wanted, "check", kind, hosts))
    if not no_preflight and (found := _problems(Order(wanted, "check", kind, hosts))):
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
    config = wanted.spec()
    run = record.create(
        here if is_local else elsewhere,
        wanted.name,
        command=wanted.words("{run}"),
        config=config,
        seeds=wanted.seeds(),
        backend=kind,
        job={"target": target, "spec": config},
        origin=origin,
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
@cli.json_option
def logs(run: Path, lines: int, as_json: bool) -> None:
    """Print the end of the log, wherever it is; `rgt watch RUN --follow` goes on."""
    opened, order = backends.open_order(run)
    own = getattr(backends.backend(order.kind), "logs", None)  # of an engine without a file that we can read
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
    """Start an ended job again on its own run directory, from its own checkpoint. Exit 2: it runs, or finished."""
    from rgt.checkpoint import inventory

    opened, order = backends.open_order(run)
    opened.refuse_if_sealed()
    now = backends.backend(order.kind).status(order)
    if now.state in ACTIVE:
        raise bad_input(f"{opened.id} is {now.state}; two of one run would write over each other's checkpoints")
    if now.state == FINISHED:
        raise bad_input(f"{opened.id} finished, there is nothing to resume; a re-run is a new submit")
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
    is_here = order.kind in WITH_DISK and not order.head.name
    if is_here and not inventory.find(opened.path):
        progress("no checkpoint in the run directory: it starts at step 0, unless it keeps its checkpoints elsewhere")
    cli.show({"run_id": opened.id, "run": str(opened.path)}, as_json, [str(opened.path)])


def _ship(order: Order) -> None:
    if order.kind == "ssh" or (order.kind == "docker" and order.supervised):
        for host in order.hosts:
            if host.name:
                box.ship(host)


def _print_steps(steps: list[Step], as_json: bool) -> None:
    shown = [{"host": s.host.title, "cwd": s.cwd, "words": s.words, "env": s.env, "files": s.files} for s in steps]
    cli.show({"dry_run": True, "steps": shown}, as_json, [step.show() for step in steps])


# -- what submit looks at before it makes anything: paths and room where the job will run, the image, the rendezvous


def _problems(order: Order) -> list[str]:
    """Sentences; none when it may start."""
    # the image against the cards that the job names, and the one that is there, with its driver, as far as docker tells
    job = order.job
    named = [word.partition(":")[0].strip() for word in str(job.hardware.get("accelerators", "")).split(",")]
    offers = [(name, "") for name in named if name]
    for host in order.hosts if job.image and order.kind == "docker" and job.gpus_per_node else []:
        try:
            answer = host.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"])
        except RgtError:  # no nvidia-smi there: docker run itself will say what is missing
            continue
        cards = [line.rpartition(",") for line in answer.out.splitlines() if not answer.code]
        offers += dict.fromkeys((card.strip(), driver.strip()) for card, _, driver in cards)
    told = [card_sheets.problems(job.image, card, driver) for card, driver in offers]
    # of several accelerators any will do: only when none fits there is nothing to run on
    found = list(dict.fromkeys(sentence for one in told for sentence in one)) if all(told) else []
    for host in order.hosts if order.kind in WITH_DISK else []:
        words, data = ["audit", "-", "--quick", "--json"], json.dumps(order.job.spec()).encode()
        if host.name:
            done = box.run_tool(host, "preflight", words, input=data, env=order.job.secret_values())
        else:
            tool = [sys.executable, str(bundle.SCRIPTS / "preflight.py")]
            done = host.run([*tool, *words], input=data, seconds=_AUDIT_SECONDS)
        try:
            rows = json.loads(done.out)["checks"]
        except (ValueError, KeyError):
            found.append(f"preflight gave no answer on {host.title}: {done.sentence()}")
            continue
        where = f" on {host.title}" if host.name else ""
        found += [f"{row['name']}{where}: {row['seen']} ({row['fix']})" for row in rows if row["status"] == "fail"]
    if order.job.nodes > 1 and order.kind in ("ssh", "docker") and not found:
        found = _rendezvous_problems(order)
    return found


def _rendezvous_problems(order: Order) -> list[str]:
    """Let the first node listen at the address and port of the job, and every other one connect."""
    address, port = order.master, order.job.port
    try:
        loop = ipaddress.ip_address(address).is_loopback
    except ValueError:
        loop = address == "localhost"
    if loop:
        return [f"the other nodes cannot reach {address}; add master_addr: ADDRESS of {order.head.title} to the job"]

    def probe(host: Host) -> Done | RgtError:
        first = host is order.head
        program, seconds = (_LISTEN, 2 * _PROBE_SECONDS) if first else (_CONNECT, _PROBE_SECONDS)
        words = [program, address, str(port), str(len(order.hosts) - 1), str(seconds)]
        try:
            return host.run(["python3", "-c", *words], seconds=_AUDIT_SECONDS)
        except RgtError as error:
            return error

    with ThreadPoolExecutor(len(order.hosts)) as pool:
        answers = list(pool.map(probe, order.hosts))
    told = []
    for host, answer in zip(order.hosts, answers, strict=True):
        verb = f"{host.title} cannot {'listen at' if host is order.head else 'reach'} {address}:{port}"
        if isinstance(answer, RgtError):
            told.append(f"{verb}: {answer.message}")
        elif answer.code and (host is not order.head or "timed out" not in answer.err):
            told.append(f"{verb}: {answer.sentence()}; choose master_addr and port in the job")
    return told


if __name__ == "__main__":
    main()
