# /// script
# requires-python = ">=3.10"
# dependencies = ["click", "nvidia-ml-py"]
# ///
"""RUN · FIFO gate to the GPUs, without a daemon: one job per card, nothing lost when anything is killed

Example:
    scripts/gpu_gate.sh -n baseline -t 12h -- python train.py --config base.yaml
    scripts/gpu_gate.sh -n big --gpus 4 --detach -- torchrun --nproc-per-node 4 train.py
    scripts/gpu_gate.sh list

A job waits in line, gets its cards, runs with CUDA_VISIBLE_DEVICES set, and its whole process tree keeps the cards
until the last process of it is dead. Records and logs are in the queue directory (see scripts/rgt/gate.py).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import click

from gatekeeper.keeper import Keeper
from gatekeeper.locks import WAITED, WAKE, Lock
from rgt import cli, errors, gate, procs, units
from rgt.errors import bad_input, from_os_error, lacking
from rgt.ids import mint_id

EXIT_CODES = """\b
Exit codes: the job's own; 124 timeout; 130 or 143 ended by SIGINT or SIGTERM.
Before the job runs: 2 usage or bad input, 3 the environment lacks something."""

GRACE = "30s"
KEPT_ENVIRONMENT = ("PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "LD_LIBRARY_PATH", "PYTHONPATH")


# -- the command line


class Verbs(cli.Group):
    """`gpu_gate.py -n NAME -- COMMAND` without a verb means `run`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


def queue_option(function: Any) -> Any:
    option = click.option("--queue", "directory", type=click.Path(path_type=Path, file_okay=False), envvar="RGT_QUEUE",
                          help="Queue directory; one that several users can write to is shared.")  # fmt: skip
    return option(function)


@click.group(cls=Verbs)
def main() -> None:
    """Queue jobs for the GPUs of this box: strict order, one job per card.

    Without a verb it runs a job: gpu_gate.py -n NAME -t TIMEOUT -- COMMAND... (gpu_gate.py run --help)
    """


@main.command(epilog=EXIT_CODES)
@click.option("-n", "--name", required=True, help="Name of the job; --then and the verbs find it by this.")
@click.option("-t", "--timeout", type=units.Duration(), help="Longest run time, such as 12h; counts from the start.")
@click.option("--grace", type=units.Duration(), default=GRACE, show_default=True, help="From SIGTERM to SIGKILL.")
@click.option("--gpus", type=click.IntRange(1), help="How many cards, any of them. [default: 1]")
@click.option("--gpu-ids", help="Exactly these cards: indices or UUIDs, such as 0,2.")
@click.option("--slots", type=click.IntRange(1), help="On a box without GPUs: how many jobs may run at once.")
@click.option("--min-free-mem", type=units.Size(), help="Free memory each card must have, such as 20GiB.")
@click.option("--max-util", type=click.IntRange(0, 100), help="Highest utilisation in percent a card may show.")
@click.option("--then", help="Start only after this job (name or id) has finished well.")
@click.option("--unique", is_flag=True, help="Refuse when a job of this name is already queued or running.")
@click.option("--detach", is_flag=True, help="Return the job id at once; the job outlives shell, connection and agent.")
@click.option("--log", type=click.Path(path_type=Path), help="Log file. [default: in the queue directory]")
@queue_option
@cli.json_option
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def run(directory: Path | None, command: tuple[str, ...], detach: bool, as_json: bool, **asked: Any) -> int:
    """Wait in line, then run COMMAND on its cards.

    Example: gpu_gate.py -n baseline -t 12h -- python train.py
    """
    queue = _queue(directory)
    record = _new_record(queue, command, detach, asked)
    return _submit(queue, record, as_json)


@main.command()
@click.argument("jobs", nargs=-1)
@queue_option
@cli.json_option
def resume(jobs: tuple[str, ...], directory: Path | None, as_json: bool) -> None:
    """Put lost jobs back in line, detached: those named, or all that had not started yet.

    A job that was already running when it was lost is queued again only when it is named.
    Its environment is yours of now, with PATH and the Python variables of then.
    """
    queue = _queue(directory)
    records = [queue.find(job) for job in jobs] or queue.records()
    lost = [r for r in records if r["state"] == "lost" and (jobs or (r["detached"] and not r["started"]))]
    wrong = [r["id"] for r in records if jobs and r["state"] != "lost"]
    if wrong:
        raise bad_input(f"only lost jobs can be resumed; {wrong[0]} is {queue.find(wrong[0])['state']}")
    for record in lost:
        if not Path(record["cwd"]).is_dir():
            raise bad_input(f"{record['id']} cannot be resumed: its directory {record['cwd']} is gone")
        _submit(queue, {**record, **_FRESH, "detached": True}, as_json)
    if not lost:
        click.echo("nothing to resume", err=True)


@main.command()
@click.argument("job")
@queue_option
@cli.json_option
def status(job: str, directory: Path | None, as_json: bool) -> None:
    """Show one job (by id, or the newest of that name), checked against the processes that really live."""
    record = _queue(directory).find(job)
    if as_json:
        _print_json(record)
        return
    for key, value in record.items():
        if value not in (None, "", {}, []) and key != "environment":
            click.echo(f"{key:10} {_show(key, value)}")


@main.command("list")
@click.option("--all", "everything", is_flag=True, help="Also the jobs that ended long ago (the last 20 are shown).")
@queue_option
@cli.json_option
def list_jobs(everything: bool, directory: Path | None, as_json: bool) -> None:
    """List jobs: what runs, what waits and for what, what ended and how."""
    records = _queue(directory).records()
    ended = [record for record in records if record["state"] in gate.FINAL]
    hidden = set() if everything else {record["id"] for record in ended[:-20]}
    records = [record for record in records if record["id"] not in hidden]
    if as_json:
        _print_json({"jobs": records})
        return
    for record in records:
        click.echo(_line(record))
    click.echo(f"{len(records)} jobs" + (f", {len(hidden)} older ones with --all" if hidden else ""), err=True)


@main.command()
@click.argument("job")
@click.option("-n", "--lines", type=click.IntRange(1), default=50, show_default=True, help="How many last lines.")
@queue_option
@cli.json_option
def logs(job: str, lines: int, directory: Path | None, as_json: bool) -> None:
    """Print the end of a job's log; the first line on stderr is the log's path."""
    record = _queue(directory).find(job)
    tail = _tail(Path(record["log"]), lines)
    if as_json:
        _print_json({"id": record["id"], "log": record["log"], "lines": tail})
        return
    click.echo(record["log"], err=True)
    for line in tail:
        click.echo(line)


@main.command()
@click.argument("jobs", nargs=-1, required=True)
@click.option("--timeout", type=units.Duration(), help="Stop waiting after this long; the jobs go on.")
@queue_option
@cli.json_option
def wait(jobs: tuple[str, ...], timeout: float | None, directory: Path | None, as_json: bool) -> int:
    """Wait until the jobs have ended. Exit 0: all finished well; 1: one did not, or the time is over."""
    queue = _queue(directory)
    records = [queue.find(job) for job in jobs]
    deadline = None if timeout is None else time.monotonic() + timeout
    for record in records:
        _wait_for_end(queue, record, None if deadline is None else deadline - time.monotonic())
    records = [queue.find(record["id"]) for record in records]
    if as_json:
        _print_json({"jobs": records})
    else:
        for record in records:
            click.echo(_line(record))
    return errors.OK if all(record["state"] == "done" for record in records) else errors.FINDINGS


@main.command()
@click.argument("jobs", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Say what would be ended, and end nothing.")
@queue_option
@cli.json_option
def cancel(jobs: tuple[str, ...], dry_run: bool, directory: Path | None, as_json: bool) -> None:
    """Take jobs out of the line, or end them: SIGTERM to the whole tree, SIGKILL after their grace."""
    queue = _queue(directory)
    records = [queue.find(job) for job in jobs]
    if not dry_run:
        records = [_cancel(queue, record) for record in records]
    if as_json:
        _print_json({"dry_run": dry_run, "jobs": records})
        return
    for record in records:
        click.echo(("would cancel " if dry_run else "") + _line(record))


# -- submitting

_FRESH: gate.Record = {
    "state": "queued", "reason": None, "gate": None, "job": None, "gpus": [], "slot": None, "taken": None,
    "started": None, "ended": None, "exit_code": None, "submitted": 0.0, "git_commit": None,
}  # fmt: skip


def _queue(directory: Path | None) -> gate.Queue:
    if not hasattr(signal, "sigtimedwait") or not os.path.isdir("/proc/self"):
        raise lacking("gpu_gate needs Linux: it follows process trees through /proc")
    queue = gate.Queue(directory or gate.default_directory())
    queue.prepare()
    return queue


def _new_record(queue: gate.Queue, command: tuple[str, ...], detach: bool, asked: dict[str, Any]) -> gate.Record:
    _check_command(command)
    if asked["then"]:
        asked["then"] = queue.find(asked["then"])["id"]
    job_id = mint_id(asked["name"])
    log = asked.pop("log")
    return {
        "id": job_id, "name": asked["name"], **_FRESH, "detached": detach, "command": list(command),
        "cwd": os.getcwd(), "log": str((log or queue.job_path(job_id, "log")).absolute()),
        "wanted": _wanted(asked), "asked": asked,
        "environment": {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ},
    }  # fmt: skip


def _wanted(asked: dict[str, Any]) -> list[str]:
    """Names of the locks the job may take: its slots, or its cards."""
    if asked["slots"]:
        if asked["gpus"] or asked["gpu_ids"]:
            raise bad_input("--slots is for boxes without GPUs; leave out --gpus and --gpu-ids")
        return [f"slot-{number}" for number in range(asked["slots"])]
    from gatekeeper import cards  # here, because reading GPUs costs what a job on slots need not pay

    chosen = cards.choose(asked["gpus"], asked["gpu_ids"])
    asked["gpus"] = len(chosen) if asked["gpu_ids"] else asked["gpus"] or 1
    return [cards.lock_name(card) for card in chosen]


def _check_command(command: tuple[str, ...]) -> None:
    if not command or not command[0].strip():
        raise bad_input("no command to run; write it after --, such as: gpu_gate.py -n NAME -- python train.py")
    if not _executable(command[0]):
        raise bad_input(f"the command {command[0]!r} is not found or not executable; give its path, or check PATH")


def _executable(name: str) -> bool:
    """As shutil.which, whose import would cost a tenth of a submit."""
    folders = [""] if "/" in name else os.environ.get("PATH", os.defpath).split(os.pathsep)
    paths = [os.path.join(folder, name) for folder in folders]
    return any(os.path.isfile(path) and os.access(path, os.X_OK) for path in paths)


def _submit(queue: gate.Queue, record: gate.Record, as_json: bool) -> int:
    """Write the record, take a number, and become the gate (or leave one behind)."""
    record["submitted"] = time.time()
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED)  # from here on signals are read, not suffered
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a closed terminal is no reason to end a run
    keeper = Keeper(queue, record)
    if not record["detached"]:
        click.echo(f"log: {record['log']}", err=True)
        return keeper.run(echo=True)
    if os.fork() == 0:
        _become_daemon(keeper)
    keeper.hand_over()
    click.echo(f"log: {record['log']}", err=True)
    if as_json:
        _print_json(record)
    else:
        click.echo(record["id"])
    return errors.OK


def _become_daemon(keeper: Keeper) -> None:
    """In the forked child: no terminal, no inherited pipe that would make the caller's $(...) wait. Never returns."""
    code = errors.ENVIRONMENT
    try:
        os.setsid()
        empty = os.open(os.devnull, os.O_RDWR)
        for target, source in ((0, empty), (1, keeper.log), (2, keeper.log)):
            os.dup2(source, target)
        code = keeper.run(echo=False)
    except Exception as error:  # nobody is left to read a traceback; the log is the place
        keeper.say(f"the gate failed: {type(error).__name__}: {error}")
    finally:
        os._exit(code)


# -- cancelling and showing


def _cancel(queue: gate.Queue, record: gate.Record) -> gate.Record:
    """Ask its gate; where the gate was killed, do its work."""
    flag = queue.job_path(record["id"], "cancel")
    record = _with_gate(queue, record)
    try:
        flag.touch()
        if procs.alive(record["gate"]):
            os.kill(record["gate"]["pid"], signal.SIGTERM)
        else:
            _end_orphans(record)
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


def _with_gate(queue: gate.Queue, record: gate.Record) -> gate.Record:
    """A detached gate needs a moment after the submit to write its own pid into the record."""
    deadline = time.monotonic() + 5
    while record["state"] == "queued" and not record["gate"] and time.monotonic() < deadline:
        time.sleep(0.01)
        record = queue.find(record["id"])
    return record


def _wait_for_end(queue: gate.Queue, record: gate.Record, seconds: float | None) -> None:
    """Until nobody of the job lives, or the time is over."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {WAKE})
    lock = Lock(queue.open_file(queue.job_path(record["id"], "lock")), fcntl.LOCK_SH)
    deadline = time.monotonic() + (threading.TIMEOUT_MAX if seconds is None else seconds)
    while not lock.got and (left := deadline - time.monotonic()) > 0:
        signal.sigtimedwait({WAKE}, left)  # may be the late echo of an earlier lock: look again
    lock.drop()


def _end_orphans(record: gate.Record) -> None:
    """SIGTERM to every process of the job, SIGKILL after its grace. They are not our children: only looking helps."""
    number, patience = signal.SIGTERM, float(record["asked"]["grace"])
    while living := list(procs.carrying(gate.MARK, record["id"])):
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + patience
        while any(procs.start_time(pid) for pid in living) and time.monotonic() < deadline:
            time.sleep(0.05)
        number, patience = signal.SIGKILL, 1.0


def _tail(path: Path, lines: int) -> list[str]:
    """The last lines, read from the end: a log may have gigabytes."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - lines * 1000))
            return file.read().decode(errors="replace").splitlines()[-lines:]
    except OSError as error:
        raise from_os_error(error, f"read the log {path}") from None


def _line(record: gate.Record) -> str:
    where = f"GPU {','.join(map(str, record['gpus']))}" if record["gpus"] else record["slot"] or ""
    age = units.show_duration(max(0.0, gate.age(record)))
    code = f" exit {record['exit_code']}" if record["exit_code"] else ""
    reason = f"  {record['reason']}" if record["reason"] else ""
    return f"{record['state']:9} {record['id']:44} {age:>7} {where}{code}{reason}"


def _show(key: str, value: Any) -> str:
    if key in ("submitted", "started", "ended"):
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {item}" for name, item in value.items() if item is not None)
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _print_json(data: Any) -> None:
    from rgt.report import print_json

    print_json(data)


if __name__ == "__main__":
    main()
