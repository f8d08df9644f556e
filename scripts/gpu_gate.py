# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "pyyaml", "jsonschema", "numpy", "nvidia-ml-py"]
# ///
"""RUN · FIFO gate to the GPUs, without a daemon: one job per card, nothing lost when anything is killed

Example:
    rgt gpu_gate -n baseline -t 12h -- python train.py --config base.yaml
    rgt gpu_gate -n big --gpus 4 --detach -- torchrun --nproc-per-node 4 train.py
    rgt gpu_gate list

A job waits in line, gets its cards, runs with CUDA_VISIBLE_DEVICES set, and its whole process tree keeps the cards
until the last process of it is dead. Records and logs are in the queue directory (see scripts/rgt/job/queue.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rgt import cli, errors, units
from rgt.errors import bad_input, lacking
from rgt.job import queue as gate

import click

EXIT_CODES = """\b
Exit codes: the job's own; 124 timeout; 130 or 143 ended by SIGINT or SIGTERM.
Before the job runs: 2 usage or bad input, 3 the environment lacks something."""

FOREVER = 1e9  # seconds
FILE = click.Path(path_type=Path, dir_okay=False)
KEPT_ENVIRONMENT = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "PYTHONPATH")


# -- the command line


@click.group(cls=cli.Group, default_verb="run")
def main() -> None:
    """Queue jobs for the GPUs of this box: strict order, one job per card.

    Without a verb it runs a job: rgt gpu_gate -n NAME -t TIMEOUT -- COMMAND... (rgt gpu_gate run --help)
    """


def open_queue(_context: click.Context, _option: click.Parameter, directory: Path | None) -> gate.Queue:
    if not hasattr(signal, "sigtimedwait") or not os.path.isdir("/proc/self"):
        raise lacking("gpu_gate needs Linux: it follows process trees through /proc")
    queue = gate.Queue(directory or gate.default_directory())
    queue.prepare()
    return queue


def verb(name: str, **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """A command of this group, with the options that all of them have: --queue and --json."""
    shared = "Queue directory; one that several users can write to is shared."
    kind = click.Path(path_type=Path, file_okay=False)
    option = click.option("--queue", type=kind, envvar="RGT_QUEUE", callback=open_queue, help=shared)
    return lambda function: main.command(name, **settings)(option(cli.json_option(function)))


@verb("run", epilog=EXIT_CODES)
@click.option("-n", "--name", required=True, help="Name of the job; --then and the verbs find it by this.")
@click.option("-t", "--timeout", type=cli.Duration(), help="Longest run time, such as 12h; counts from the start.")
@click.option("--grace", type=cli.Duration(), default="30s", show_default=True, help="From SIGTERM to SIGKILL.")
@click.option("--hard-limit", is_flag=True, help="SIGKILL at --timeout, SIGTERM a --grace before it.")
@click.option("--lock", type=FILE, help="The box's own lock file: join its flock queue, start when it is held.")
@click.option("--gpus", type=click.IntRange(1), help="How many cards of CUDA_VISIBLE_DEVICES, or of all. [default: 1]")
@click.option("--slots", type=click.IntRange(1), help="On a box without GPUs: how many jobs may run at once.")
@click.option("--min-free-mem", type=cli.Size(), help="Free memory each card must have, such as 20GiB.")
@click.option("--share", type=click.IntRange(2), help="Up to N such jobs on one card; each names its --min-free-mem.")
@click.option("--then", help="Start only after this job (name or id) has finished well.")
@click.option("--unique", is_flag=True, help="Refuse when a job of this name is already queued or running.")
@click.option("--detach", is_flag=True, help="Return the job id at once; the job outlives shell, connection and agent.")
@click.option("--log", type=click.Path(path_type=Path), help="Log file. [default: in the queue directory]")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(queue: gate.Queue, command: tuple[str, ...], detach: bool, as_json: bool, **asked: Any) -> int:
    """Wait in line, then run COMMAND on its cards.

    Example: rgt gpu_gate -n baseline -t 12h -- python train.py
    """
    from rgt.run.record import RUN_ID, mint_id

    if not command or not command[0].strip():
        raise bad_input("no command to run; write it after --, such as: rgt gpu_gate -n NAME -- python train.py")
    # as shutil.which, whose import would cost a tenth of a submit
    folders = [""] if "/" in command[0] else os.environ.get("PATH", os.defpath).split(os.pathsep)
    paths = [os.path.join(folder, command[0]) for folder in folders]
    if not any(os.path.isfile(path) and os.access(path, os.X_OK) for path in paths):
        raise bad_input(f"the command {command[0]!r} is not found or not executable; give its path, or check PATH")
    if asked["then"]:
        asked["then"] = queue.find(asked["then"])["id"]
    if asked["slots"] and asked["gpus"]:
        raise bad_input("--slots is for boxes without GPUs; leave out --gpus")
    if asked["share"] and (asked["slots"] or (asked["gpus"] or 1) > 1 or not asked["min_free_mem"]):
        raise bad_input(
            "--share is for a job on one card that says what it needs of it: --share 3 --min-free-mem 20GiB"
        )
    if asked["slots"]:
        wanted = [f"slot-{number}" for number in range(asked["slots"])]
    else:
        from rgt.gpu_gate.keeper import choose_cards

        asked["gpus"] = asked["gpus"] or 1
        wanted = choose_cards(asked["gpus"])
    name = asked["name"]  # of a run that launch made: its id, which has a time already
    job_id = f"{name}-{os.urandom(3).hex()}" if RUN_ID.fullmatch(name) else mint_id(name)
    log = str((asked.pop("log") or queue.job_path(job_id, "log")).absolute())
    with contextlib.suppress(OSError):  # no such log yet, or no stdout
        if not detach and os.path.samestat(os.stat(log), os.fstat(1)):
            raise bad_input(f"stdout goes to {log}, which is the job's own log; leave out one of the two")
    if asked["hard_limit"] and not asked["timeout"]:
        raise bad_input("--hard-limit needs a --timeout that it makes hard")
    asked["lock"] = str(asked["lock"].absolute()) if asked["lock"] else None
    environment = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
    record = {"id": job_id, "name": asked["name"], **_FRESH, "detached": detach, "command": list(command)}
    record |= {"cwd": os.getcwd(), "log": log, "wanted": wanted, "asked": asked, "environment": environment}
    return _submit(queue, record, as_json)


@verb("resume")
@click.argument("jobs", nargs=-1)
def resume(jobs: tuple[str, ...], queue: gate.Queue, as_json: bool) -> None:
    """Put lost jobs back in line, detached: those named, or all that had not started yet.

    A job that was already running when it was lost is queued again only when it is named.
    Its environment is yours of now, with PATH and the Python variables of then.
    """
    records = [queue.find(job) for job in jobs] or queue.records()
    lost = [r for r in records if r["state"] == "lost" and (jobs or (r["detached"] and not r["started"]))]
    wrong = [r["id"] for r in records if jobs and r["state"] != "lost"]
    if wrong:
        raise bad_input(f"only lost jobs can be resumed; {wrong[0]} is {queue.find(wrong[0])['state']}")
    for record in lost:
        if not Path(record["cwd"]).is_dir():
            raise bad_input(f"{record['id']} cannot be resumed: its directory {record['cwd']} is gone")
        _submit(queue, {**record, **_FRESH, "detached": True, "again": record["submitted"]}, as_json)
    if not lost:
        click.echo("nothing to resume", err=True)


@verb("status")
@click.argument("job")
def status(job: str, queue: gate.Queue, as_json: bool) -> None:
    """Show one job (by id, or the newest of that name), checked against the processes that really live."""
    record = queue.find(job)
    details = {"command": shlex.join(record["command"]), "cwd": record["cwd"], "log": record["log"]}
    cli.show(record, as_json, [_line(record), *(f"{key:9} {value}" for key, value in details.items())])


@verb("list")
@click.option("--all", "everything", is_flag=True, help="Also the jobs that ended long ago (the last 20 are shown).")
def list_jobs(everything: bool, queue: gate.Queue, as_json: bool) -> None:
    """List jobs: what runs, what waits and for what, what ended and how."""
    records = queue.records()
    ended = [record for record in records if record["state"] in gate.FINAL]
    hidden = set() if everything else {record["id"] for record in ended[:-20]}
    records = [record for record in records if record["id"] not in hidden]
    if not as_json:
        click.echo(f"queue {queue.directory}")
        click.echo(f"{'STATE':9} {'JOB':44} {'FOR':>7} WHERE, WHY")
    _print_records(records, as_json)
    if not as_json:
        from rgt.machine import gpus, processes

        # users of the cards that no gate started: they are what a job waits for, too
        users = [(card, user) for card in gpus.read().gpus for user in card.processes if user.type == "C"]
        for card, user in users:
            if gate.MARK not in processes.environment(user.pid):
                words = " ".join(processes.command(user.pid))[:60] or "not visible here"
                click.echo(f"outside   GPU {card.index}: pid {user.pid} ({words}), not started through this gate")
        click.echo(f"{len(records)} jobs" + (f", {len(hidden)} older ones with --all" if hidden else ""), err=True)


@verb("logs")
@click.argument("job")
@click.option("-n", "--lines", type=click.IntRange(1, 10_000), default=50, show_default=True, help="How many.")
def logs(job: str, lines: int, queue: gate.Queue, as_json: bool) -> None:
    """Print the last lines of a job's log, control characters as escapes; stderr says where the log is."""
    record = queue.find(job)
    try:
        with open(record["log"], "rb") as file:  # from the end: a log may have gigabytes
            file.seek(max(0, os.fstat(file.fileno()).st_size - lines * 1000))
            text = file.read().decode(errors="backslashreplace")
    except OSError as error:
        raise errors.from_os_error(error, f"read the log {record['log']}") from None
    tail = text.removesuffix("\n").split("\n")[-lines:]
    click.echo(f"log: {record['log']}", err=True)
    cli.show({"id": record["id"], "log": record["log"], "lines": tail}, as_json, tail)


@verb("wait")
@click.argument("jobs", nargs=-1, required=True)
@click.option("--timeout", type=cli.Duration(), help="Stop waiting after this long; the jobs go on.")
def wait(jobs: tuple[str, ...], timeout: float | None, queue: gate.Queue, as_json: bool) -> int:
    """Wait until the jobs have ended. Exit 0: all finished well; 1: one did not, or the time is over."""
    records = [queue.find(job) for job in jobs]
    deadline = time.monotonic() + (FOREVER if timeout is None else timeout)
    for record in records:
        _wait_for_end(queue, record, deadline - time.monotonic())
    records = [queue.find(record["id"]) for record in records]
    _print_records(records, as_json)
    return errors.OK if all(record["state"] == "done" for record in records) else errors.FINDINGS


@verb("cancel")
@click.argument("jobs", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Say what would be ended, and end nothing.")
def cancel(jobs: tuple[str, ...], dry_run: bool, queue: gate.Queue, as_json: bool) -> None:
    """Take jobs out of the line, or end them: SIGTERM to the whole tree, SIGKILL after their grace."""
    records = [queue.find(job) for job in jobs]
    if not dry_run:
        records = [_cancel(queue, record) for record in records]
    _print_records(records, as_json, "would cancel " if dry_run else "", dry_run=dry_run)


# -- submitting

_FRESH: gate.Record = {"state": "queued", "submitted": 0.0, "gpus": []}
_FRESH |= dict.fromkeys("reason gate job slot taken started ended exit_code".split())


def _submit(queue: gate.Queue, record: gate.Record, as_json: bool) -> int:
    """Write the record, take a number, and become the gate (or leave one behind)."""
    from rgt.gpu_gate.keeper import Keeper
    from rgt.gpu_gate.locks import WAITED

    record["submitted"] = time.time()
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED)  # from here on handled with sigtimedwait
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a closed terminal is no reason to end a run
    keeper = Keeper(queue, record)
    if not record["detached"]:
        click.echo(f"log: {record['log']}", err=True)
        return keeper.run(echo=True)
    if os.fork() == 0:
        code = errors.ENVIRONMENT
        try:  # no terminal, and no inherited pipe that would make the caller's $(...) wait
            os.setsid()
            empty = os.open(os.devnull, os.O_RDWR)
            for target, source in ((0, empty), (1, keeper.log), (2, keeper.log)):
                os.dup2(source, target)
            code = keeper.run(echo=False)
        except Exception as error:  # nobody reads a traceback here; the log is the place for it
            keeper.say(f"the gate failed: {type(error).__name__}: {error}")
        finally:
            os._exit(code)
    keeper.hand_over()
    click.echo(f"log: {record['log']}", err=True)
    cli.show(record, as_json, [record["id"]])
    return errors.OK


# -- cancelling and showing


def _cancel(queue: gate.Queue, record: gate.Record) -> gate.Record:
    """Ask its gate; where the gate was killed, do its work."""
    from rgt.machine import processes

    flag = queue.job_path(record["id"], "cancel")
    deadline = time.monotonic() + 5  # a detached gate needs a moment to write its own pid into the record
    while record["state"] == "queued" and not record["gate"] and time.monotonic() < deadline:
        time.sleep(0.01)
        record = queue.find(record["id"])
    try:
        flag.touch()
        if processes.alive(record["gate"]):
            os.kill(record["gate"]["pid"], signal.SIGTERM)
        else:  # its gate was killed, and its processes are not our children: only looking helps
            number, patience = signal.SIGTERM, float(record["asked"]["grace"])
            while living := list(processes.carrying(gate.MARK, record["id"])):
                for pid in living:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, number)
                deadline = time.monotonic() + patience
                while any(processes.start_time(pid) for pid in living) and time.monotonic() < deadline:
                    time.sleep(0.05)
                number, patience = signal.SIGKILL, 1.0
        if record["state"] not in gate.FINAL:
            _wait_for_end(queue, record, record["asked"]["grace"] + 10)
    except ProcessLookupError:
        pass  # it ended by itself
    except PermissionError:
        raise bad_input(f"{record['id']} belongs to another user; ask them to cancel it") from None
    finally:
        flag.unlink(missing_ok=True)
    now = queue.find(record["id"])
    if now["state"] == "lost":
        now = {**now, "state": "cancelled", "reason": "cancelled after its gate was gone", "ended": time.time()}
        queue.save(now)
    return now


def _wait_for_end(queue: gate.Queue, record: gate.Record, seconds: float) -> None:
    """Return when the last process of the job is gone, or the time is over."""
    from rgt.gpu_gate.locks import WAKE, Lock

    signal.pthread_sigmask(signal.SIG_BLOCK, {WAKE})
    lock = Lock(queue.open_file(queue.job_path(record["id"], "lock")), fcntl.LOCK_SH)
    deadline = time.monotonic() + seconds
    while not lock.got and (left := deadline - time.monotonic()) > 0:
        signal.sigtimedwait({WAKE}, left)  # the signal may be an earlier lock's: look again
    lock.drop()


def _print_records(records: list[gate.Record], as_json: bool, prefix: str = "", **more: Any) -> None:
    cli.show({**more, "jobs": records}, as_json, [prefix + _line(record) for record in records])


def _line(record: gate.Record) -> str:
    where = f"GPU {','.join(map(str, record['gpus']))}" if record["gpus"] else record["slot"] or ""
    since = record["ended"] or record["started"] or record["submitted"]  # how long it is in its present state
    age = units.show_duration(max(0.0, time.time() - since))
    code = f" exit {record['exit_code']}" if record["exit_code"] else ""
    reason = f"  {record['reason']}" if record["reason"] else ""
    return f"{record['state']:9} {record['id']:44} {age:>7} {where}{code}{reason}"


if __name__ == "__main__":
    main()
